"""Tests of hama, a phone recogniser that was trained on people's speech: its layers and phones are
compared with those of its own library."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from speechssl.encoders.hama import LAYERS, load_hama, read_phone_symbols
from speechssl.encoders.load import load_encoder
from speechssl.synth.minisqa import list_split_voices
from speechssl.synth.speak import read_aloud

from ..files import refused

hama = pytest.importorskip("hama")


@pytest.fixture(scope="module")
def speech():
    voice = list_split_voices("en", "dev")[0]
    return read_aloud("The quick brown fox jumps over the lazy dog.", voice, "en").samples


@pytest.fixture(scope="module")
def reference(speech):
    """Return the log-probabilities (T, K + 1) and the phones of hama's own library."""
    model = hama.ASRModel(decode=hama.ASRDecodeConfig(temperature=1.0, blank_bias=0.0))
    feeds = {
        model._waveform_input_name: speech[None],
        model._waveform_lengths_input_name: np.array([len(speech)]),
    }
    names = [model._log_probs_output_name, model._out_lengths_output_name]
    log_probs, _ = model.session.run(names, feeds)
    return log_probs[0], model.transcribe_waveform(speech, 16000).phonemes


def test_the_last_layer_gives_the_log_probabilities_of_the_library(speech, reference):
    encoder = load_hama()
    states = encoder.hidden_states(speech)
    assert states.shape == (LAYERS + 1, encoder.grid.count_frames(len(speech)), encoder.width)
    with torch.no_grad():
        log_probs = encoder.engine.model.proj(states[-1].T).T.log_softmax(-1)
    # of a multiple of 320 samples the library has one frame more, whose centre is behind the last
    expected = torch.from_numpy(reference[0])[: len(log_probs)]
    torch.testing.assert_close(log_probs, expected, atol=0.02, rtol=0)


def test_runs_of_phones_are_those_of_the_library(speech, reference):
    rows = load_encoder("hama:phones").features(speech, 0).numpy()
    assert (rows.sum(1) == 1).all()  # one-hot
    units = rows.argmax(1)
    runs = units[np.append(True, units[1:] != units[:-1])]
    symbols = read_phone_symbols()
    # a phone that is said twice in a row is one run
    phones = [phone for before, phone in pairwise([None, *reference[1]]) if phone != before]
    assert [symbols[unit] for unit in runs if symbols[unit] != "<wb>"] == phones


@pytest.mark.parametrize("length", [200, 640, 500_000])  # the last is encoded in pieces
def test_recordings_of_any_length_have_the_frames_of_the_grid(length):
    encoder = load_hama()
    noise = np.random.default_rng(0).normal(size=length).astype(np.float32)
    assert len(encoder.features(noise, 4)) == encoder.grid.count_frames(length)


def test_an_unknown_name_precision_or_device_is_refused():
    refused("no speech encoder at hama:words", load_encoder, "hama:words")
    refused("fp32 only", load_encoder, "hama", precision="bf16")
    refused("no device x", load_encoder, "hama", device="x")
