"""Whisper's encoder against transformers, on the same random weights."""

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor

from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError


@pytest.fixture(scope="module")
def whisper(tmp_path_factory, small_whisper):
    """A folder with a small Whisper, and the model."""
    model = small_whisper()
    folder = tmp_path_factory.mktemp("whisper")
    model.save_pretrained(folder)
    WhisperFeatureExtractor().save_pretrained(folder)
    return folder, model


def published(model, samples):
    """transformers' hidden states of at most 30 s, (L + 1, 1500, D)."""
    mel = WhisperFeatureExtractor()(samples, sampling_rate=16_000, return_tensors="pt").input_features
    with torch.inference_mode():
        return torch.cat(model.model.encoder(mel, output_hidden_states=True).hidden_states)


@pytest.mark.parametrize("length", [1, 321, 40_000, 480_000])
def test_every_layer_is_that_of_transformers(whisper, length):
    folder, model = whisper
    samples = np.random.default_rng(length).normal(0, 0.1, length).astype(np.float32)
    states = load_encoder(folder).hidden_states(samples)
    frames = -(-length // 320)
    assert states.shape == (3, frames, 32)
    torch.testing.assert_close(states, published(model, samples)[:, :frames], atol=1e-5, rtol=1e-4)


def test_longer_audio_is_read_in_overlapping_windows_of_30_seconds(whisper):
    folder, model = whisper
    samples = np.random.default_rng(0).normal(0, 0.1, 16_000 * 50).astype(np.float32)
    states = load_encoder(folder).hidden_states(samples)
    assert states.shape == (3, 2500, 32)
    first = published(model, samples[: 320 * (1300 + 100 - 1) + 1])  # 26 s and a context of 2 s
    torch.testing.assert_close(states[:, :1300], first[:, :1300], atol=1e-5, rtol=1e-4)
    second = published(model, samples[320 * 1200 :])
    torch.testing.assert_close(states[:, 1300:], second[:, 100:1300], atol=1e-5, rtol=1e-4)


def test_a_frame_is_centred_on_its_sample(whisper):
    """A click on sample 320 t is seen by frame t at its strongest, so the grid gives it the samples around it."""
    encoder = load_encoder(whisper[0])
    silence = np.zeros(32_000, np.float32)
    click = silence.copy()
    click[320 * 50] = 0.5
    with torch.inference_mode():
        quiet, loud = (encoder.hidden_states(x)[0] for x in (silence + 1e-4, click + 1e-4))
    moved = (loud - quiet).norm(dim=-1)
    near = moved[45:56] - moved[[30, 70]].mean()
    assert abs(float((near * torch.arange(-5, 6)).sum() / near.sum())) < 0.5
    assert encoder.grid.first_sample(50) == 320 * 50 - 160
    assert encoder.grid.frame_at(320 * 50, 100) == 50


def test_bf16_is_near_and_int8_is_refused(whisper):
    samples = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    exact, fast = (load_encoder(whisper[0], precision).features(samples, 2) for precision in ("fp32", "bf16"))
    assert torch.nn.functional.cosine_similarity(exact, fast, dim=-1).min() > 0.99
    with pytest.raises(InputError, match="fp32 or bf16, not in int8"):
        load_encoder(whisper[0], "int8")
