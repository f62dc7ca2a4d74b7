"""s3prl's upstreams against s3prl itself, ours against s3prl's on the same weights, and every way a name can be wrong."""

import random
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2Model

from speechssl.encoders.base import Chunking
from speechssl.encoders.load import load_encoder
from speechssl.encoders.s3prl import import_hub, load_s3prl, run, upstreams
from speechssl.errors import InputError, MissingExtra

pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")


def noise(samples, seed=0):
    return (np.random.default_rng(seed).standard_normal(samples) * 0.1 + 0.02).astype(np.float32)


def apart(found, expected):
    """Relative error of every layer, the largest."""
    assert found.shape == expected.shape
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))


@pytest.fixture(scope="module")
def wav2vec2_folder(tmp_path_factory):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    front = {"conv_dim": (16,) * 3, "conv_kernel": (10, 8, 4), "conv_stride": (5, 8, 4), "num_conv_pos_embeddings": 5}
    folder = tmp_path_factory.mktemp("wav2vec2")
    torch.manual_seed(0)
    Wav2Vec2Model(Wav2Vec2Config(**sizes | front | {"num_conv_pos_embedding_groups": 4})).save_pretrained(folder)
    Wav2Vec2FeatureExtractor(sampling_rate=16_000, do_normalize=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def wavlm_file(tmp_path_factory):
    """A checkpoint of s3prl's own code, which normalises and gathers its layers through hooks."""
    import_hub()
    from s3prl.upstream.wavlm.WavLM import WavLM, WavLMConfig

    config = {"encoder_layers": 2, "encoder_embed_dim": 32, "encoder_ffn_embed_dim": 64, "encoder_attention_heads": 2}
    config |= {"conv_feature_layers": "[(16,10,5)] + [(16,3,2)] * 4 + [(16,2,2)] * 2", "extractor_mode": "layer_norm"}
    config |= {"normalize": True, "conv_pos": 16, "conv_pos_groups": 4, "relative_position_embedding": True}
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("wavlm") / "wavlm.pt"
    torch.save({"cfg": config, "model": WavLM(WavLMConfig(config)).state_dict()}, path)
    return path


# ---- golden


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_every_layer_is_that_of_s3prls_hf_hubert(hubert_folder, norm):
    folder, samples = hubert_folder(norm), noise(16_777)
    with torch.no_grad():
        theirs = import_hub().hf_hubert_custom(str(folder)).eval()([torch.from_numpy(samples)])["hidden_states"]
    ours, through = load_encoder(folder), load_encoder(f"s3prl:hf_hubert_custom@{folder}")
    assert apart(ours.hidden_states(samples), torch.cat(theirs)) <= 1e-5
    assert apart(through.hidden_states(samples), torch.cat(theirs)) <= 1e-6
    assert (through.grid, through.layers, through.width) == (ours.grid, ours.layers, ours.width)


def test_every_layer_is_that_of_s3prls_hf_wav2vec2_whose_hop_it_misstates(wav2vec2_folder):
    ours, through = load_encoder(wav2vec2_folder), load_encoder(f"s3prl:hf_wav2vec2_custom@{wav2vec2_folder}")
    assert (through.grid.hop, through.grid.receptive) == (160, 10 + 7 * 5 + 3 * 40) and through.grid == ours.grid
    assert apart(ours.hidden_states(noise(9_999)), through.hidden_states(noise(9_999))) <= 1e-5


def test_an_upstream_of_s3prls_own_code_gives_what_it_gives(wavlm_file):
    encoder, samples = load_encoder(f"s3prl:wavlm_local@{wavlm_file}"), noise(16_777)
    with torch.no_grad():
        theirs = torch.cat(import_hub().wavlm_local(ckpt=str(wavlm_file)).eval()([torch.from_numpy(samples)])["hidden_states"])
    assert torch.equal(encoder.hidden_states(samples), theirs)
    assert (encoder.layers, encoder.width, encoder.name) == (2, 32, "s3prl:wavlm_local@wavlm.pt")
    assert torch.equal(encoder.features(samples, 1), theirs[1])


@pytest.mark.parametrize(("name", "hop", "receptive"), [("fbank", 160, 400), ("mel", 160, 0)])
@pytest.mark.parametrize("samples", [3_999, 4_000, 8_081, 16_123])
def test_frames_are_counted_as_the_upstream_counts_them(name, hop, receptive, samples):
    encoder = loaded(name)
    assert (encoder.grid.hop, encoder.grid.receptive, encoder.layers) == (hop, receptive, 0)
    states = encoder.hidden_states(noise(samples))
    assert states.shape[1] == encoder.grid.frames(samples)
    assert torch.equal(states[0], run(upstreams()[name]().eval(), torch.from_numpy(noise(samples)))[0])


@cache
def loaded(name):
    return load_encoder(f"s3prl:{name}")


def test_long_audio_has_as_many_frames_as_in_one_pass(hubert_folder):
    encoder = load_encoder(f"s3prl:hf_hubert_custom@{hubert_folder('layer')}")
    samples = noise(50_123)
    whole, pieces = (replace(encoder, chunking=c).hidden_states(samples) for c in (Chunking(), Chunking(1.0, 0.5)))
    assert pieces.shape == whole.shape
    assert torch.cosine_similarity(pieces, whole, dim=-1).min() > 0.95


def test_threads_do_not_mix_the_layers_of_utterances(wavlm_file):
    encoder = load_encoder(f"s3prl:wavlm_local@{wavlm_file}")
    items = [noise(4_000 + 321 * i, i) for i in range(12)]
    alone = [encoder.hidden_states(x) for x in items]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(encoder.hidden_states, items))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


# ---- what loading leaves alone, and what identifies an encoder


def test_loading_changes_no_random_state_and_says_nothing(wavlm_file, capfd):
    def state():
        return random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()

    before = state()
    load_encoder(f"s3prl:wavlm_local@{wavlm_file}")
    assert state() == before
    assert capfd.readouterr().out == ""


def test_the_hash_is_of_the_weights_and_of_what_computes_with_them(wavlm_file, tmp_path):
    first = load_encoder(f"s3prl:wavlm_local@{wavlm_file}")
    state = torch.load(wavlm_file)
    torch.save(state, tmp_path / "same.pt")
    assert load_encoder(f"s3prl:wavlm_local@{tmp_path / 'same.pt'}").hash == first.hash
    state["model"]["encoder.layers.0.fc1.bias"] += 1e-3
    torch.save(state, tmp_path / "other.pt")
    assert load_encoder(f"s3prl:wavlm_local@{tmp_path / 'other.pt'}").hash != first.hash
    assert loaded("fbank").hash != loaded("mel").hash  # neither has weights


# ---- wrong input


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hubrt_base", "no upstream 'hubrt_base'; did you mean hubert_base"),
        ("", "no upstream ''; did you mean "),
        ("Path", "no upstream 'Path'"),  # s3prl's hub lists what its files import
        ("hubert@file.pt", "fetches its own checkpoint; write s3prl:hubert, without file.pt"),
        ("hubert_custom", "needs a checkpoint; write s3prl:hubert_custom@PATH"),
        ("hubert_custom@/no/such.pt", "/no/such.pt is not a file"),
        ("hf_hubert_custom@/no/such/folder", "found no speech encoder at /no/such/folder"),
    ],
)
def test_a_wrong_name_is_one_sentence(name, message):
    with pytest.raises(InputError, match=message):
        load_encoder(f"s3prl:{name}")


def test_a_file_that_is_no_checkpoint_is_one_sentence(tmp_path):
    (tmp_path / "x.pt").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"cannot load s3prl:hubert_custom@.*x.pt \(.*\); check the checkpoint"):
        load_encoder(f"s3prl:hubert_custom@{tmp_path / 'x.pt'}")


def test_a_download_that_fails_is_one_sentence(monkeypatch, tmp_path):
    import_hub()
    from s3prl.util import download

    def offline(*_, **__):
        raise OSError("the network is unreachable\nat length")

    monkeypatch.setattr(download, "_download_dir", tmp_path)
    monkeypatch.setattr(download, "_download_url_to_file", offline)
    monkeypatch.setattr(download, "_download_url_to_file_requests", offline)
    with pytest.raises(InputError, match=r"cannot load s3prl:hubert \(the network is unreachable\).*or the network"):
        load_encoder("s3prl:hubert")


def test_what_s3prl_would_fill_in_or_misread_is_refused(hubert_folder, wav2vec2_folder, tmp_path):
    with pytest.raises(InputError, match="is a wav2vec2 model, which the upstream hf_hubert_custom would misread"):
        load_encoder(f"s3prl:hf_hubert_custom@{wav2vec2_folder}")
    folder = shutil.copytree(hubert_folder("layer"), tmp_path / "bare")
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(InputError, match="bare has no preprocessor_config.json"):
        load_encoder(f"s3prl:hf_hubert_custom@{folder}")
    folder = shutil.copytree(hubert_folder("layer"), tmp_path / "gaps")
    weights = load_file(folder / "model.safetensors")
    save_file({n: w for n, w in weights.items() if "layers.1" not in n}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match="gaps lacks"):
        load_encoder(f"s3prl:hf_hubert_custom@{folder}")


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_other_precisions_are_refused(precision):
    with pytest.raises(InputError, match=f"in fp32 only; leave out the precision {precision}"):
        load_encoder("s3prl:fbank", precision)


def test_an_upstream_without_one_frame_rate_is_refused(monkeypatch):
    class Uneven(torch.nn.Module):
        def get_downsample_rates(self, key):
            return 320

        def forward(self, wavs):
            return {"hidden_states": [torch.zeros(1, max(int(len(wavs[0]) ** 0.5), 1), 4)]}

    class Mixed(Uneven):
        def forward(self, wavs):
            return {"hidden_states": [torch.zeros(1, 50, 4), torch.zeros(1, 25, 4)]}

    known = upstreams()
    monkeypatch.setattr("speechssl.encoders.s3prl.upstreams", lambda: known | {"uneven": Uneven, "mixed": Mixed})
    with pytest.raises(InputError, match="does not give frames at one steady rate"):
        load_s3prl("s3prl:uneven")
    with pytest.raises(InputError, match="differ in width or frame rate"):
        load_s3prl("s3prl:mixed")


def test_audio_that_is_too_short_has_no_frames(hubert_folder):
    with pytest.raises(ValueError, match="399 samples are fewer than the 400"):
        load_encoder(f"s3prl:hf_hubert_custom@{hubert_folder('layer')}").hidden_states(noise(399))
    with pytest.raises(ValueError, match="the upstream cannot encode 0 samples"):
        loaded("mel").hidden_states(noise(0))


def test_without_s3prl_the_extra_is_named(monkeypatch):
    for name in [n for n in sys.modules if n == "s3prl" or n.startswith("s3prl.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "s3prl", None)
    with pytest.raises(MissingExtra, match=r"speechssl\[s3prl\]"):
        load_encoder("s3prl:hubert")
