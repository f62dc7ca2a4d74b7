"""Tests of s3prl's upstreams as encoders, which are compared with s3prl itself, of our encoders as
an upstream of s3prl, and of the stand-ins that s3prl's programs need."""

import argparse
import math
import subprocess
import sys

import numpy as np
import pytest
import soundfile
import torch
from torch.nn.utils.rnn import pad_sequence

from speechssl.encoders import s3prl as programs
from speechssl.encoders.export import relative_errors
from speechssl.encoders.load import load_encoder
from speechssl.encoders.s3prl import import_hub, register, run, upstreams

from ..files import refused
from .conftest import noise

pytest.importorskip("s3prl")
pytest.importorskip("tensorboardX")  # which s3prl's programs need


def encode_by_s3prl(upstream, samples):
    """Return all layers as s3prl itself gives them, (L + 1, T, D)."""
    with torch.no_grad():
        return torch.cat(upstream.eval()([torch.from_numpy(samples)])["hidden_states"])


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["layer", "group"])
def test_every_layer_is_that_of_s3prls_hf_hubert(hubert_folder, norm):
    folder, samples = hubert_folder(norm), noise(16_777)
    expected = encode_by_s3prl(import_hub().hf_hubert_custom(str(folder)), samples)
    ours, upstream = load_encoder(folder), load_encoder(f"s3prl:hf_hubert_custom@{folder}")
    assert max(relative_errors(ours.hidden_states(samples), expected)) <= 1e-5
    assert max(relative_errors(upstream.hidden_states(samples), expected)) <= 1e-6
    assert upstream.grid == ours.grid
    assert upstream.layers == ours.layers
    assert upstream.width == ours.width


def test_the_grid_is_found_where_s3prl_misstates_the_hop(hubert_folder):
    front = {"conv_dim": (16,) * 3, "conv_kernel": (10, 8, 4), "conv_stride": (5, 8, 4)}
    folder = hubert_folder("layer", **front, num_feat_extract_layers=3)
    ours, upstream = load_encoder(folder), load_encoder(f"s3prl:hf_hubert_custom@{folder}")
    assert upstream.grid.hop == 5 * 8 * 4
    assert upstream.grid.receptive == 10 + 7 * 5 + 3 * 40
    assert upstream.grid == ours.grid
    states, expected = ours.hidden_states(noise(9_999)), upstream.hidden_states(noise(9_999))
    assert max(relative_errors(states, expected)) <= 1e-5


@pytest.mark.parametrize(("name", "hop", "receptive"), [("fbank", 160, 400), ("mel", 160, 0)])
def test_frames_are_counted_as_the_upstream_counts_them(name, hop, receptive):
    encoder = load_encoder(f"s3prl:{name}")
    assert encoder.grid.hop == hop
    assert encoder.grid.receptive == receptive
    assert encoder.layers == 0
    for samples in (3_999, 16_123):
        states = encoder.hidden_states(noise(samples))
        assert states.shape[1] == encoder.grid.frames(samples)
        expected = run(upstreams()[name]().eval(), torch.from_numpy(noise(samples)))
        assert torch.equal(states[0], expected[0])


# ---- wrong input


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Path", {}, "no upstream 'Path'"),  # s3prl's hub lists what its files import
        ("hubert@file.pt", {}, "downloads its own checkpoint; write s3prl:hubert, and not"),
        ("hubert_custom", {}, "needs a checkpoint; write s3prl:hubert_custom@PATH"),
        ("hubert_custom@/no/such.pt", {}, "cannot load s3prl:hubert_custom@/no/such.pt"),
        ("hf_hubert_custom@/no/such", {}, "found no speech encoder at /no/such"),
        ("fbank", {"precision": "bf16"}, "in fp32 on the CPU"),
    ],
)
def test_a_wrong_name_or_option_is_refused(name, options, message):
    refused(message, load_encoder, f"s3prl:{name}", **options)


# ---- stand-ins for s3prl's programs


def test_effects_of_sox_are_computed_from_a_file(tmp_path):
    tone = 0.4 * np.sin(2 * np.pi * 440 * np.arange(8_000) / 8_000)
    path = tmp_path / "stereo.wav"
    soundfile.write(path, np.stack([tone, tone / 2], 1), 8_000, subtype="FLOAT")
    effects = [["channels", "1"], ["rate", "16000"], ["gain", "-6.0"]]
    samples, rate = programs.apply_effects_file(str(path), effects)
    assert rate == 16_000
    assert samples.shape == (1, 16_000)
    assert samples.dtype == torch.float32
    amplitude = 10 ** (-6 / 20) * (0.4 + 0.2) / 2
    expected = amplitude * torch.sin(2 * torch.pi * 440 * torch.arange(16_000) / 16_000)
    assert (samples[0] - expected)[500:-500].abs().max() < 2e-3  # without the edges, which ring


@pytest.mark.slow
def test_s3prls_experts_start_and_its_checkpoints_are_read(tmp_path):
    """They run in another process, where the stand-ins stay."""
    torch.save(
        {"Args": argparse.Namespace(upstream="speechssl"), "Step": 1}, tmp_path / "states.ckpt"
    )
    code = f"""
import importlib, torch
from speechssl.encoders.s3prl import register, stand_in_for_programs
register()
for _ in range(2):
    stand_in_for_programs()
for name in "ctc asr speech_commands voxceleb1 sv_voxceleb1 fluent_commands emotion".split():
    importlib.import_module(f"s3prl.downstream.{{name}}.expert").DownstreamExpert
from s3prl.downstream.ctc.metric import per
assert per(hypothesis=["a b c"], groundtruth=["a c"]) == 0.5
assert torch.load({str(tmp_path / "states.ckpt")!r})["Args"].upstream == "speechssl"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


# ---- our encoders inside s3prl

LENGTHS = (16_777, 9_999, 1_000, 250)  # samples; the last is less than one receptive field


@pytest.fixture(scope="module")
def nn():
    """Return s3prl.nn, with our upstream registered."""
    register()
    from s3prl import nn

    return nn


WAVES = [torch.from_numpy(noise(length, seed)) for seed, length in enumerate(LENGTHS)]


def encode_batch(upstream, waves):
    """Return all layers of a padded batch, (L + 1, B, T, D), and the frames of each utterance."""
    lengths = torch.tensor([len(wave) for wave in waves])
    with torch.no_grad():
        states, lengths = upstream(pad_sequence(waves, batch_first=True), lengths)
    return torch.stack(states), lengths[0].tolist()


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_our_upstream_gives_the_layers_of_our_encoder_and_of_s3prls(hubert_folder, nn, norm):
    folder = str(hubert_folder(norm))
    waves = WAVES[:1]
    ours = nn.S3PRLUpstream("speechssl", path_or_url=folder).eval()
    states, lengths = encode_batch(ours, waves)
    exact = load_encoder(folder).hidden_states(waves[0].numpy())
    assert torch.equal(states[:, 0, : exact.shape[1]], exact)
    assert torch.equal(states[:, 0, -2], states[:, 0, -1])  # s3prl counts a frame more
    s3prls = nn.S3PRLUpstream("hf_hubert_custom", path_or_url=folder).eval()
    expected_states, expected_lengths = encode_batch(s3prls, waves)
    assert lengths == expected_lengths
    assert states.shape == expected_states.shape
    assert max(relative_errors(states, expected_states)) <= 1e-5


def test_an_utterance_does_not_depend_on_the_others_in_its_batch(hubert_folder, nn):
    folder = str(hubert_folder("group"))
    upstream = nn.S3PRLUpstream("speechssl", path_or_url=folder).eval()
    together, lengths = encode_batch(upstream, WAVES)
    assert lengths == [math.ceil(n / 320) for n in LENGTHS]
    for i, wave in enumerate(WAVES):
        alone, length = encode_batch(upstream, [wave])
        assert length == [lengths[i]]
        assert torch.equal(together[:, i, : lengths[i]], alone[:, 0])
