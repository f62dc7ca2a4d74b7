"""s3prl's upstreams against s3prl itself, ours against s3prl's on the same weights, and every way a
name can be wrong."""

import argparse
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
from speechssl.encoders.export import relative_errors
from speechssl.encoders.load import load_encoder
from speechssl.encoders.s3prl import import_hub, register, run, upstreams

from ..conftest import SIZES
from ..files import refused
from .conftest import noise

pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
pytest.importorskip(
    "tensorboardX", reason=("s3prl's programs need tensorboardX, of the optional extra s3prl")
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
    """A checkpoint of s3prl's own code, which normalises and gathers its layers through hooks."""
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


def layers_of(upstream, samples):
    """All layers, as s3prl itself gives them."""
    with torch.no_grad():
        return torch.cat(upstream.eval()([torch.from_numpy(samples)])["hidden_states"])


# ---- golden


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["layer", "group"])
def test_every_layer_is_that_of_s3prls_hf_hubert(hubert_folder, norm):
    folder, samples = hubert_folder(norm), noise(16_777)
    theirs = layers_of(import_hub().hf_hubert_custom(str(folder)), samples)
    ours, through = load_encoder(folder), load_encoder(f"s3prl:hf_hubert_custom@{folder}")
    assert max(relative_errors(ours.hidden_states(samples), theirs)) <= 1e-5
    assert max(relative_errors(through.hidden_states(samples), theirs)) <= 1e-6
    assert (through.grid, through.layers, through.width) == (ours.grid, ours.layers, ours.width)


def test_every_layer_is_that_of_s3prls_hf_wav2vec2_whose_hop_it_misstates(wav2vec2_folder):
    ours = load_encoder(wav2vec2_folder)
    through = load_encoder(f"s3prl:hf_wav2vec2_custom@{wav2vec2_folder}")
    assert (through.grid.hop, through.grid.receptive) == (160, 10 + 7 * 5 + 3 * 40)
    assert through.grid == ours.grid
    states = ours.hidden_states(noise(9_999)), through.hidden_states(noise(9_999))
    assert max(relative_errors(*states)) <= 1e-5


def test_an_upstream_of_s3prls_own_code_gives_what_it_gives(wavlm_file):
    encoder, samples = load_encoder(f"s3prl:wavlm_local@{wavlm_file}"), noise(16_777)
    theirs = layers_of(import_hub().wavlm_local(ckpt=str(wavlm_file)), samples)
    assert torch.equal(encoder.hidden_states(samples), theirs)
    assert (encoder.layers, encoder.width, encoder.name) == (2, 32, "s3prl:wavlm_local@wavlm.pt")


@pytest.mark.parametrize(("name", "hop", "receptive"), [("fbank", 160, 400), ("mel", 160, 0)])
@pytest.mark.parametrize("samples", [3_999, 16_123])
def test_frames_are_counted_as_the_upstream_counts_them(name, hop, receptive, samples):
    encoder = loaded(name)
    assert (encoder.grid.hop, encoder.grid.receptive, encoder.layers) == (hop, receptive, 0)
    states = encoder.hidden_states(noise(samples))
    assert states.shape[1] == encoder.grid.frames(samples)
    theirs = run(upstreams()[name]().eval(), torch.from_numpy(noise(samples)))
    assert torch.equal(states[0], theirs[0])


@cache
def loaded(name):
    return load_encoder(f"s3prl:{name}")


# ---- wrong input


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Path", "no upstream 'Path'"),  # s3prl's hub lists what its files import
        ("hubert@file.pt", "downloads its own checkpoint; write s3prl:hubert, and not"),
        ("hubert_custom", "needs a checkpoint; write s3prl:hubert_custom@PATH"),
        ("hubert_custom@/no/such.pt", "cannot load s3prl:hubert_custom@/no/such.pt"),
        ("hf_hubert_custom@/no/such/folder", "found no speech encoder at /no/such/folder"),
        ("hubert", r"cannot load s3prl:hubert \(the network is unreachable\).*or the network"),
    ],
)
def test_a_wrong_name_a_damaged_file_and_a_failed_download_are_one_sentence(
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
    refused("in fp32 on the CPU", load_encoder, "s3prl:fbank", "bf16")


# ---- what is put in place for s3prl's programs: audio, sox's effects, modules that are wanted for
# one name


@pytest.fixture
def stereo(tmp_path):
    """A second at 8 kHz: 440 Hz in one channel, twice as loud as in the other."""
    tone = 0.4 * np.sin(2 * np.pi * 440 * np.arange(8_000) / 8_000)
    soundfile.write(tmp_path / "a.wav", np.stack([tone, tone / 2], 1), 8_000, subtype="FLOAT")
    return tmp_path / "a.wav"


def test_files_are_read_as_torchaudio_does_and_channels_rate_and_gain_are_what_they_say(stereo):
    whole, rate = programs.load(str(stereo))
    assert (whole.shape, whole.dtype, rate) == ((2, 8_000), torch.float32, 8_000)
    assert torch.allclose(whole[0], 2 * whole[1])
    assert torch.equal(programs.load(stereo, 100, 50)[0], whole[:, 100:150])
    effects = [["channels", "1"], ["rate", "16000"], ["gain", "-6.0"]]
    found, rate = programs.apply_effects_file(str(stereo), effects)
    expected = 10 ** (-6 / 20) * 0.3 * torch.sin(2 * torch.pi * 440 * torch.arange(16_000) / 16_000)
    assert (found.shape, rate, found.dtype) == ((1, 16_000), 16_000, torch.float32)
    assert (found[0] - expected)[500:-500].abs().max() < 2e-3  # edges ring


@pytest.mark.slow
def test_s3prls_experts_start_and_its_checkpoints_are_read(tmp_path):
    """In another process: what is put in place stays there."""
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


# ---- our encoder inside s3prl's own tools: S3PRLUpstream, Featurizer, run_downstream


LENGTHS = (16_777, 9_999, 1_000, 250)  # the last is less than one receptive field


@pytest.fixture(scope="module")
def nn():
    register()
    from s3prl import nn

    return nn


def waves(lengths=LENGTHS):
    return [torch.from_numpy(noise(n, seed)) for seed, n in enumerate(lengths)]


def through(upstream, wavs):
    lengths = torch.tensor([len(w) for w in wavs])
    with torch.no_grad():
        states, lengths = upstream(pad_sequence(wavs, batch_first=True), lengths)
    return torch.stack(states), lengths[0]


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_s3prl_gets_what_our_encoder_and_its_own_give(hubert_folder, nn, norm):
    folder = hubert_folder(norm)
    wavs, encoder = waves(LENGTHS[:1]), load_encoder(folder)
    ours, own = (
        nn.S3PRLUpstream(name, path_or_url=str(folder)).eval()
        for name in ("speechssl", "hf_hubert_custom")
    )
    (states, lengths), (theirs, their_lengths) = through(ours, wavs), through(own, wavs)
    exact = encoder.hidden_states(wavs[0].numpy())
    assert torch.equal(states[:, 0, : exact.shape[1]], exact)
    assert lengths.tolist() == their_lengths.tolist() == [53]
    assert states.shape == theirs.shape
    assert max(relative_errors(states, theirs)) <= 1e-5


def test_an_utterance_does_not_depend_on_its_batch_mates(hubert_folder, nn):
    folder = str(hubert_folder("group"))
    upstream = nn.S3PRLUpstream("speechssl", path_or_url=folder).eval()
    together, lengths = through(upstream, waves())
    assert lengths.tolist() == [-(-n // 320) for n in LENGTHS]
    for i, wav in enumerate(waves()):
        alone, length = through(upstream, [wav])
        assert length == lengths[i]
        assert torch.equal(together[:, i, : lengths[i]], alone[:, 0])
    # the frame that s3prl counts and we do not is the last once more
    assert torch.equal(together[:, 0, 51], together[:, 0, 52])
    refused("needs an encoder", nn.S3PRLUpstream, "speechssl")
