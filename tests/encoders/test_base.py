"""The encoder against transformers' own model, long audio against one pass, and every way a checkpoint can be wrong."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, HubertModel, Wav2Vec2FeatureExtractor

from speechssl.encoders import load as loading
from speechssl.encoders.base import Chunking, hash_weights
from speechssl.encoders.load import as_encoder, load_checkpoint, load_encoder
from speechssl.errors import InputError


def noise(samples, seed=0):
    """Noise that grows and shrinks, so that frames differ."""
    rng = np.random.default_rng(seed)
    shape = np.interp(np.arange(samples), np.linspace(0, samples, 30), rng.uniform(0.05, 0.5, 30))
    return (rng.standard_normal(samples) * shape + 0.1).astype(np.float32)


@pytest.fixture
def copied(hubert_folder, tmp_path):
    """A checkpoint that may be damaged."""
    return shutil.copytree(hubert_folder("layer"), tmp_path / "copied")


# ---- golden


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_hidden_states_are_those_of_transformers(hubert_folder, norm):
    folder, samples = hubert_folder(norm), noise(16_777)
    inputs = Wav2Vec2FeatureExtractor.from_pretrained(folder)(samples, sampling_rate=16_000, return_tensors="pt")
    model = HubertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = torch.cat(model(inputs.input_values, output_hidden_states=True).hidden_states)
    encoder = load_encoder(folder)
    assert (encoder.layers, encoder.width, encoder.normalise) == (2, 32, norm == "layer")
    assert encoder.grid.frames(len(samples)) == expected.shape[1]
    torch.testing.assert_close(encoder.hidden_states(samples), expected, atol=1e-5, rtol=1e-5)


def test_normalisation_hides_level_and_offset_only_where_the_checkpoint_asks_for_it(copied):
    samples = noise(8_000)
    for asked in (True, False):
        (copied / "preprocessor_config.json").write_text(json.dumps({"do_normalize": asked}))
        encoder = load_encoder(copied)
        plain, louder = (encoder.features(s, 2) for s in (samples, 0.5 * samples + 0.2))
        assert torch.allclose(plain, louder, atol=1e-3) == asked


def test_features_are_one_of_the_hidden_states(encoder):
    samples = noise(5_000)
    states = encoder.hidden_states(samples)
    assert states.shape == (3, encoder.grid.frames(5_000), 32) and states.dtype == torch.float32
    for layer in range(3):
        assert torch.equal(encoder.features(samples, layer), states[layer])
    assert not torch.equal(states[1], states[2]) and not states.requires_grad


@pytest.mark.parametrize("samples", [400, 719, 720, 15_999])
def test_the_number_of_frames_is_the_grids(hubert_folder, samples):
    checkpoint = load_checkpoint(hubert_folder())
    encoder = as_encoder(checkpoint)
    frames = encoder.hidden_states(noise(samples)).shape[1]
    assert frames == encoder.grid.frames(samples) == int(checkpoint.model._get_feat_extract_output_lengths(samples))


@pytest.mark.parametrize("kind", ["Wav2Vec2", "WavLM", "Data2VecAudio"])
def test_other_families_load_with_their_own_grid(tmp_path, kind):
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    front = {"conv_dim": (16,) * 3, "conv_kernel": (10, 8, 4), "conv_stride": (5, 8, 4), "num_conv_pos_embeddings": 5}
    config = getattr(transformers, f"{kind}Config")(**sizes | front | {"num_conv_pos_embedding_groups": 4})
    AutoModel.from_config(config).save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path)
    assert (encoder.grid.hop, encoder.grid.receptive) == (160, 10 + 7 * 5 + 3 * 40)
    assert encoder.hidden_states(noise(2_000)).shape == (3, encoder.grid.frames(2_000), 32)


def test_a_group_norm_sees_the_samples_after_the_last_frame_too(tmp_path):
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "conv_dim": (16,) * 7}
    config = transformers.WavLMConfig(**sizes, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)
    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval()
    model.save_pretrained(tmp_path)
    samples = noise(16_000)  # 240 more than 49 frames need
    samples[-240:] *= 20
    with torch.no_grad():
        expected = torch.cat(model(torch.from_numpy(samples)[None], output_hidden_states=True).hidden_states)
    torch.testing.assert_close(load_encoder(tmp_path).hidden_states(samples), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there_is_one_sentence(hubert_folder, device):
    with pytest.raises(InputError, match=rf"no device {device} .*choose cpu"):
        load_encoder(hubert_folder(), device=device)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((9_000, 2), np.float32), r"shape \(9000, 2\); give one channel"),
        (np.full(9_000, np.nan, np.float32), "not finite"),
        (np.full(9_000, np.inf, np.float32), "not finite"),
        (np.zeros(399, np.float32), "399 samples are fewer than the 400"),
    ],
)
def test_what_is_not_samples_is_refused(encoder, samples, message):
    with pytest.raises(ValueError, match=message):
        encoder.features(samples, 1)


def test_samples_may_be_read_only_strided_and_of_double_precision(encoder, recwarn):
    samples = noise(9_000)
    samples.flags.writeable = False
    before, strided = samples.copy(), np.stack([samples, samples], axis=1).astype(np.float64)[:, 0]
    assert torch.equal(encoder.features(samples, 1), encoder.features(before, 1))
    assert torch.equal(encoder.features(strided, 1), encoder.features(before, 1))
    assert np.array_equal(samples, before) and not recwarn.list


# ---- long audio


@pytest.mark.parametrize("frames", [51, 100, 163])
@pytest.mark.parametrize("norm", ["layer", "group"])
def test_long_audio_in_pieces_is_nearly_one_pass(hubert_folder, norm, frames):
    encoder = load_encoder(hubert_folder(norm))
    samples = noise(encoder.grid.samples_for(frames) + 100)
    whole = encoder.hidden_states(samples)
    pieces = replace(encoder, chunking=Chunking(1.0, 0.5)).hidden_states(samples)
    assert pieces.shape == whole.shape == (3, frames, 32)
    assert not torch.equal(pieces, whole)
    # layer 0 sees eight frames to either side, less than the context: the same, and the group norm is the whole utterance's
    torch.testing.assert_close(pieces[0], whole[0], atol=1e-4, rtol=1e-4)
    assert torch.cosine_similarity(pieces, whole, dim=-1).min() > 0.97
    one = samples[: encoder.grid.samples_for(50)]  # exactly one piece
    assert torch.equal(encoder.hidden_states(one), replace(encoder, chunking=Chunking(1.0, 0.5)).hidden_states(one))


# ---- what identifies an encoder


def test_the_hash_is_of_the_weights_a_card_is_read_and_what_ships_is_found_by_its_name(encoder, copied, monkeypatch):
    assert encoder.card == {}
    (copied / "card.json").write_text('{"what": "toy"}')
    monkeypatch.setattr(loading, "SHIPPED", copied.parent)
    for name in (copied, "copied"):
        same = load_encoder(name)
        assert (same.name, same.card) == ("copied", {"what": "toy"})
        assert same.hash == encoder.hash == hash_weights(load_checkpoint(copied).model)
    weights = load_file(copied / "model.safetensors")
    name = next(n for n in weights if n.endswith("k_proj.bias"))
    save_file(weights | {name: weights[name] + 1e-3}, copied / "model.safetensors", {"format": "pt"})
    assert load_encoder(copied).hash != encoder.hash


@pytest.mark.parametrize(("norm", "expected"), [("layer", True), ("group", False)])
def test_without_a_feature_extractor_the_norm_decides(hubert_folder, tmp_path, norm, expected):
    folder = shutil.copytree(hubert_folder(norm), tmp_path / "bare")
    (folder / "preprocessor_config.json").unlink()
    assert load_encoder(folder).normalise is expected
    (folder / "preprocessor_config.json").write_text(json.dumps({"do_normalize": not expected}))
    assert load_encoder(folder).normalise is not expected


# ---- wrong input


@pytest.mark.parametrize("layer", [-1, 3])
def test_a_layer_out_of_range_is_refused(encoder, layer):
    with pytest.raises(InputError, match=f"has the layers 0 to 2, not {layer}"):
        encoder.features(noise(1_000), layer)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        *((keep, "cannot load the weights of .*copied.*again") for keep in (0, 5, 1_000, -1, None)),
        ("lost", r"copied lacks \d+ weights \(encoder.layers.1.attention.*again"),
        ("shape", "copied"),
    ],
)
def test_damaged_weights_are_named(copied, keep, message):
    path = copied / "model.safetensors"
    weights = load_file(path)
    if keep == "lost":
        save_file({n: w for n, w in weights.items() if "layers.1.attention" not in n}, path, {"format": "pt"})
    elif keep == "shape":
        save_file(weights | {"feature_projection.projection.weight": torch.zeros(32, 17)}, path, {"format": "pt"})
    elif keep is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=message):
        load_encoder(copied)


def test_what_is_no_encoder_says_what_to_give(text_encoder, tmp_path):
    for name in ("no-such-encoder", "/no/such/folder", "no such name at all", str(tmp_path)):
        with pytest.raises(InputError, match=f"found no speech encoder at {name}.*give a folder with config.json"):
            load_encoder(name)
    text_encoder("bert").save_pretrained(tmp_path)
    with pytest.raises(InputError, match="is a bert model; an encoder must be one of hubert, wav2vec2"):
        load_encoder(tmp_path)
