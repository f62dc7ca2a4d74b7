"""Tests of s3prl's upstreams as encoders, which are compared with s3prl itself, of our encoders as
an upstream of s3prl, and of the stand-ins that s3prl's programs need."""

import argparse
import math
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import soundfile
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2Model

from speechssl.encoders import s3prl as programs
from speechssl.encoders.export import measure_errors
from speechssl.encoders.load import load_encoder
from speechssl.encoders.s3prl import import_hub, list_upstreams, register, run

from ..conftest import SIZES
from ..files import refused
from .conftest import noise

pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
pytest.importorskip(
    "tensorboardX", reason="s3prl's programs need tensorboardX, of the optional extra s3prl"
)


@pytest.fixture(scope="module")
def wav2vec2_folder(tmp_path_factory):
    front = {"conv_dim": (16,) * 3, "conv_kernel": (10, 8, 4), "conv_stride": (5, 8, 4)}
    places = {"num_conv_pos_embeddings": 5, "num_conv_pos_embedding_groups": 4}
    folder = tmp_path_factory.mktemp("wav2vec2")
    torch.manual_seed(0)
    Wav2Vec2Model(Wav2Vec2Config(**SIZES | front | places)).save_pretrained(folder)
    Wav2Vec2FeatureExtractor(sampling_rate=16_000, do_normalize=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def wavlm_file(tmp_path_factory):
    """Return a checkpoint of s3prl's own WavLM, which normalises its input and gathers its layers
    through hooks."""
    import_hub()
    from s3prl.upstream.wavlm.WavLM import WavLM, WavLMConfig

    config = {"layers": 2, "embed_dim": 32, "ffn_embed_dim": 64, "attention_heads": 2}
    config = {f"encoder_{name}": value for name, value in config.items()}
    config |= {"conv_feature_layers": "[(16,10,5)] + [(16,3,2)] * 4 + [(16,2,2)] * 2"}
    config |= {"extractor_mode": "layer_norm", "normalize": True}
    config |= {"conv_pos": 16, "conv_pos_groups": 4, "relative_position_embedding": True}
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("wavlm") / "wavlm.pt"
    torch.save({"cfg": config, "model": WavLM(WavLMConfig(config)).state_dict()}, path)
    return path


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
    assert max(measure_errors(ours.hidden_states(samples), expected)) <= 1e-5
    assert max(measure_errors(upstream.hidden_states(samples), expected)) <= 1e-6
    assert upstream.grid == ours.grid
    assert upstream.layers == ours.layers
    assert upstream.width == ours.width


def test_the_grid_is_found_where_s3prl_misstates_the_hop(wav2vec2_folder):
    ours = load_encoder(wav2vec2_folder)
    upstream = load_encoder(f"s3prl:hf_wav2vec2_custom@{wav2vec2_folder}")
    assert upstream.grid.hop == 5 * 8 * 4
    assert upstream.grid.receptive == 10 + 7 * 5 + 3 * 40
    assert upstream.grid == ours.grid
    states, expected = ours.hidden_states(noise(9_999)), upstream.hidden_states(noise(9_999))
    assert max(measure_errors(states, expected)) <= 1e-5


def test_an_upstream_of_s3prls_own_code_gives_its_layers(wavlm_file):
    encoder, samples = load_encoder(f"s3prl:wavlm_local@{wavlm_file}"), noise(16_777)
    expected = encode_by_s3prl(import_hub().wavlm_local(ckpt=str(wavlm_file)), samples)
    assert torch.equal(encoder.hidden_states(samples), expected)
    assert encoder.layers == 2
    assert encoder.width == 32
    assert encoder.name == "s3prl:wavlm_local@wavlm.pt"


@cache
def load_upstream(name):
    return load_encoder(f"s3prl:{name}")


@pytest.mark.parametrize(("name", "hop", "receptive"), [("fbank", 160, 400), ("mel", 160, 0)])
@pytest.mark.parametrize("samples", [3_999, 16_123])
def test_frames_are_counted_as_the_upstream_counts_them(name, hop, receptive, samples):
    encoder = load_upstream(name)
    assert encoder.grid.hop == hop
    assert encoder.grid.receptive == receptive
    assert encoder.layers == 0
    states = encoder.hidden_states(noise(samples))
    assert states.shape[1] == encoder.grid.count_frames(samples)
    expected = run(list_upstreams()[name]().eval(), torch.from_numpy(noise(samples)))
    assert torch.equal(states[0], expected[0])


# ---- wrong input


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Path", "no upstream 'Path'"),  # s3prl's hub lists what its files import
        ("hubert@file.pt", "downloads its own checkpoint; write s3prl:hubert, and not"),
        ("hubert_custom", "cannot load s3prl:hubert_custom .*'ckpt'"),
        ("hubert_custom@/no/such.pt", "cannot load s3prl:hubert_custom@/no/such.pt"),
        ("hf_hubert_custom@/no/such/folder", "found no speech encoder at /no/such/folder"),
        ("hubert", r"cannot load s3prl:hubert \(the network is unreachable\).*or the network"),
    ],
)
def test_a_wrong_name_a_missing_file_and_a_failed_download_are_refused(
    name, message, monkeypatch, tmp_path
):
    import_hub()
    from s3prl.util import download

    def offline(*_, **__):
        raise OSError("the network is unreachable\nat length")

    monkeypatch.setattr(download, "_download_dir", tmp_path)
    for function in ("_download_url_to_file", "_download_url_to_file_requests"):
        monkeypatch.setattr(download, function, offline)
    refused(message, load_encoder, f"s3prl:{name}")


def test_an_upstream_runs_in_fp32_only():
    refused("in fp32 on the CPU", load_encoder, "s3prl:fbank", precision="bf16")


# ---- stand-ins for s3prl's programs: torchaudio's reading of files, sox's effects, and modules
# that are imported for one name


@pytest.fixture
def stereo(tmp_path):
    """Return a file of a second at 8 kHz: a tone of 440 Hz, twice as loud in the first channel."""
    tone = 0.4 * np.sin(2 * np.pi * 440 * np.arange(8_000) / 8_000)
    soundfile.write(tmp_path / "a.wav", np.stack([tone, tone / 2], 1), 8_000, subtype="FLOAT")
    return tmp_path / "a.wav"


def test_files_are_read_as_torchaudio_does(stereo):
    samples, rate = programs.load_audio(str(stereo))
    assert rate == 8_000
    assert samples.shape == (2, 8_000)
    assert samples.dtype == torch.float32
    assert torch.allclose(samples[0], 2 * samples[1])
    part, _ = programs.load_audio(stereo, frame_offset=100, num_frames=50)
    assert torch.equal(part, samples[:, 100:150])


def test_channels_are_averaged_resampled_and_made_quieter(stereo):
    effects = [["channels", "1"], ["rate", "16000"], ["gain", "-6.0"]]
    samples, rate = programs.apply_effects_file(str(stereo), effects)
    assert rate == 16_000
    assert samples.shape == (1, 16_000)
    assert samples.dtype == torch.float32
    amplitude = 10 ** (-6 / 20) * (0.4 + 0.2) / 2
    expected = amplitude * torch.sin(2 * torch.pi * 440 * torch.arange(16_000) / 16_000)
    assert (samples[0] - expected)[500:-500].abs().max() < 2e-3  # without the edges, which ring


@pytest.mark.slow
def test_s3prls_experts_start_and_its_checkpoints_are_read(tmp_path):
    """They run in another process, where the stand-ins stay."""
    pytest.importorskip("pandas", reason="s3prl's experts read their lists with pandas")
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


def make_waves(lengths=LENGTHS):
    return [torch.from_numpy(noise(n, seed)) for seed, n in enumerate(lengths)]


def encode_batch(upstream, waves):
    """Return all layers of a padded batch, (L + 1, B, T, D), and the frames of each utterance."""
    lengths = torch.tensor([len(wave) for wave in waves])
    with torch.no_grad():
        states, lengths = upstream(pad_sequence(waves, batch_first=True), lengths)
    return torch.stack(states), lengths[0].tolist()


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_our_upstream_gives_the_layers_of_our_encoder_and_of_s3prls(hubert_folder, nn, norm):
    folder = str(hubert_folder(norm))
    waves = make_waves(LENGTHS[:1])
    ours = nn.S3PRLUpstream("speechssl", path_or_url=folder).eval()
    states, lengths = encode_batch(ours, waves)
    exact = load_encoder(folder).hidden_states(waves[0].numpy())
    assert torch.equal(states[:, 0, : exact.shape[1]], exact)
    s3prls = nn.S3PRLUpstream("hf_hubert_custom", path_or_url=folder).eval()
    expected_states, expected_lengths = encode_batch(s3prls, waves)
    assert lengths == expected_lengths
    assert states.shape == expected_states.shape
    assert max(measure_errors(states, expected_states)) <= 1e-5


def test_an_utterance_does_not_depend_on_the_others_in_its_batch(hubert_folder, nn):
    folder = str(hubert_folder("group"))
    upstream = nn.S3PRLUpstream("speechssl", path_or_url=folder).eval()
    together, lengths = encode_batch(upstream, make_waves())
    assert lengths == [math.ceil(n / 320) for n in LENGTHS]
    for i, wave in enumerate(make_waves()):
        alone, length = encode_batch(upstream, [wave])
        assert length == [lengths[i]]
        assert torch.equal(together[:, i, : lengths[i]], alone[:, 0])


def test_the_frame_that_s3prl_counts_and_we_do_not_repeats_the_last(hubert_folder, nn):
    folder = str(hubert_folder("group"))
    upstream = nn.S3PRLUpstream("speechssl", path_or_url=folder).eval()
    states, (length,) = encode_batch(upstream, make_waves(LENGTHS[:1]))
    assert torch.equal(states[:, 0, length - 2], states[:, 0, length - 1])


def test_our_upstream_needs_an_encoder(nn):
    refused("needs an encoder", nn.S3PRLUpstream, "speechssl")
