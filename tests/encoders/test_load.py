"""Every form an encoder comes in: the same weights are the same encoder, what is left out or
guessed is reported."""

import re
import shutil
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torchaudio
import transformers
from safetensors.torch import load_file, save_file
from transformers import HubertModel, Wav2Vec2FeatureExtractor, WhisperFeatureExtractor

from speechssl.artifacts import write_json
from speechssl.checkpoints import SHIPPED
from speechssl.encoders import load as loading
from speechssl.encoders.checkpoints import (
    Architecture,
    fairseq_settings,
    rename,
    torchaudio_arguments,
)
from speechssl.encoders.encoder import Chunking
from speechssl.encoders.engines import TransformersEngine
from speechssl.encoders.export import convert, relative_errors
from speechssl.encoders.load import (
    as_encoder,
    hash_weights,
    load_checkpoint,
    load_encoder,
    save_encoder,
)
from speechssl.finetuning import add_modules

from ..files import refused
from .conftest import noise

SIZES = {"num_hidden_layers": 2, "intermediate_size": 64}
SIZES |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}


# heads of 64: what is guessed is right
WIDE = SIZES | {"hidden_size": 128, "num_attention_heads": 2, "conv_dim": (16,) * 7}


def family_of(family, head="Model", seed=0, **changes):
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**WIDE | changes)
    return getattr(transformers, f"{family}{head}")(config).eval()


@pytest.fixture(scope="module")
def base():
    return family_of("Hubert", feat_extract_norm="group")


@pytest.fixture(scope="module")
def large():
    norms = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
    return family_of("Wav2Vec2", **norms, conv_bias=True, num_attention_heads=4)


def renamed(model, kind):
    return rename(model.state_dict(), kind, model.config.feat_extract_norm, inverse=True)


def saved(model, folder):
    model.save_pretrained(folder)
    return load_encoder(folder)


# ---- fairseq


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "zipped"), [("dict", True), ("omegaconf", True), ("args", False)]
)
def test_a_fairseq_checkpoint_is_the_hugging_face_encoder(
    base, large, fakes, tmp_path, capsys, style, zipped
):
    for name, model in (("base", base), ("large", large)):
        cfg = fairseq_settings(model.config, name == "large")
        extras = {"final_proj.weight": torch.ones(3, 3), "final_proj.bias": torch.ones(3)}
        path = tmp_path / f"{name}.pt"
        fakes.write_fairseq(path, renamed(model, "fairseq"), cfg, style, zipped, extras=extras)
        found, expected = load_encoder(path), saved(model, tmp_path / name)
        assert (found.hash, found.grid) == (expected.hash, expected.grid)
        assert found.normalise == (name == "large")
        assert torch.equal(found.hidden_states(noise()), expected.hidden_states(noise()))
        assert load_checkpoint(path).model.config.model_type == model.config.model_type
        message = capsys.readouterr().err
        assert "2 weights beside the encoder's are not needed" in message
        assert "base.pt does not state" not in message


@pytest.mark.parametrize("flat", [False, True])
def test_a_fine_tuned_fairseq_checkpoint_has_its_settings_further_in(base, fakes, tmp_path, flat):
    cfg = fairseq_settings(base.config, False)
    before = cfg
    if flat:
        before = cfg["model"] | cfg["task"] | {"arch": "hubert"}
        del before["_name"]
    model = {"_name": "hubert_ctc", "layer_norm_first": "??", "w2v_args": before}
    settings = {"model": model, "task": cfg["task"]}
    extras = {"w2v_encoder.proj.weight": torch.ones(3, 3), "w2v_encoder.proj.bias": torch.ones(3)}
    path, prefix = tmp_path / "x.pt", "w2v_encoder.w2v_model."
    state = renamed(base, "fairseq")
    fakes.write_fairseq(path, state, settings, "omegaconf", True, prefix, extras)
    checkpoint = load_checkpoint(path)
    assert checkpoint.left_out == ("w2v_encoder.proj.bias", "w2v_encoder.proj.weight")
    assert checkpoint.guesses == ()
    assert checkpoint.model.config.model_type == "hubert" and checkpoint.normalise is False


def test_s3prls_copies_of_fairseqs_and_half_precision_are_read(base, tmp_path):
    cfg, half = fairseq_settings(base.config, False), deepcopy(base).half().float()
    state = {name: tensor.half() for name, tensor in renamed(base, "fairseq").items()}
    content = {"task_cfg": cfg["task"], "model_cfg": cfg["model"], "model_weight": state}
    torch.save(content | {"dictionaries_symbols": [["a"]]}, tmp_path / "x.pt")
    model = load_checkpoint(tmp_path / "x.pt").model
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert load_encoder(tmp_path / "x.pt").hash == saved(half, tmp_path / "hf").hash


# ---- what the file does not state


@pytest.mark.parametrize("kind", ["torchaudio", "fairseq"])
@pytest.mark.parametrize("size", ["base", "large"])
def test_guesses_are_reported(request, tmp_path, capsys, kind, size):
    state = renamed(request.getfixturevalue(size), kind)
    state.pop("mask_generator.mask_embedding", None)
    torch.save(state, tmp_path / "x.pt")
    checkpoint = load_checkpoint(tmp_path / "x.pt")
    assert "x.pt does not state all settings; assumed: strides" in capsys.readouterr().err
    strides, heads, order, normalised, *rest = checkpoint.guesses
    assert (strides, heads) == ("strides 5 2 2 2 2 2 2", "2 heads")
    assert order == f"layer norm {'before' if size == 'large' else 'after'} attention"
    assert normalised == f"input {'' if size == 'large' else 'not '}normalised"
    assert len(rest) == (kind == "torchaudio")  # it has no mask embedding


# ---- torchaudio


@pytest.mark.parametrize(
    ("size", "prefix", "stated"),
    [
        ("base", "", Architecture(heads=2, pre_norm=False, normalise=False)),
        ("large", "model.wav2vec2.", Architecture(heads=4, pre_norm=True, normalise=False)),
    ],
)
def test_torchaudios_own_state_dict_gives_torchaudios_layers(
    request, tmp_path, size, prefix, stated
):
    """Made by torchaudio's factory, not by us: HuBERT base normalises after attention, wav2vec 2.0
    large before."""
    config = request.getfixturevalue(size).config
    torch.manual_seed(0)
    arguments = torchaudio_arguments(config) | {"aux_num_out": 7}
    model = torchaudio.models.wav2vec2_model(**arguments).eval()
    state = {}
    for name, tensor in model.state_dict().items():
        state[name if name.startswith("aux") else prefix + name] = tensor
    torch.save(state, tmp_path / "x.pth")
    checkpoint = load_checkpoint(tmp_path / "x.pth", stated)
    assert checkpoint.left_out == ("aux.bias", "aux.weight")
    with torch.inference_mode():
        expected = model.extract_features(torch.from_numpy(noise())[None])[0]
    found = list(as_encoder(checkpoint).hidden_states(noise()))[1:]
    assert max(relative_errors(found, [x[0] for x in expected])) < 1e-5


@pytest.mark.parametrize("norm", ["group", "layer"])
def test_torchaudios_wavlm_is_transformers(tmp_path, capsys, norm):
    norms = {"feat_extract_norm": norm, "do_stable_layer_norm": norm == "layer"}
    model = family_of("WavLM", **norms, num_buckets=32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    original = torchaudio.models.wavlm_model(**torchaudio_arguments(model.config)).eval()
    imported = torchaudio.models.wav2vec2.utils.import_huggingface_model(model)
    original.load_state_dict(imported.state_dict())
    torch.save(original.state_dict(), tmp_path / "x.pt")
    encoder = load_encoder(tmp_path / "x.pt")
    assert "relative positions up to 800 frames" in capsys.readouterr().err
    samples = noise(400 + 48 * 320)
    wave = torch.from_numpy(samples)
    if encoder.normalise:
        wave = (wave - wave.mean()) / torch.sqrt(wave.var(correction=0) + 1e-7)
    with torch.inference_mode():
        expected = [x[0] for x in original.extract_features(wave[None])[0]]
    assert max(relative_errors(list(encoder.hidden_states(samples))[1:], expected)) < 1e-5


@pytest.mark.parametrize(
    ("name", "kind", "normalise"),
    [("HUBERT_BASE", "hubert", False), ("WAV2VEC2_ASR_LARGE_LV60K_960H", "wav2vec2", True)],
)
def test_a_bundle_is_its_model_and_its_parameters(monkeypatch, tmp_path, name, kind, normalise):
    bundle = getattr(torchaudio.pipelines, name)
    layers = [(16, *more) for _, *more in bundle._params["extractor_conv_layer_config"]]
    small = {"embed_dim": 64, "num_layers": 2, "num_heads": 8, "ff_interm_features": 64}
    params = bundle._params | {f"encoder_{k}": v for k, v in small.items()}
    params["extractor_conv_layer_config"] = [tuple(layer) for layer in layers]
    torch.manual_seed(0)
    state = torchaudio.models.wav2vec2_model(**params).state_dict()
    monkeypatch.setattr(torchaudio.pipelines, name, replace(bundle, _params=params))
    monkeypatch.setattr(type(bundle), "_get_state_dict", lambda self, dl_kwargs: state)
    checkpoint = load_checkpoint(f"torchaudio:{name}")
    config = checkpoint.model.config
    assert (config.model_type, config.num_attention_heads) == (kind, 8)
    assert checkpoint.normalise == normalise
    assert config.do_stable_layer_norm == bundle._params["encoder_layer_norm_first"]
    assert len(checkpoint.guesses) == 1  # the mask embedding
    assert checkpoint.left_out == (("aux.bias", "aux.weight") if "ASR" in name else ())


# ---- wrong files


@pytest.mark.parametrize("kind", ["torchaudio", "fairseq"])
@pytest.mark.parametrize("fault", ["one more", "missing", "shape", "two encoders"])
def test_every_weight_must_have_its_place(base, tmp_path, kind, fault):
    state = renamed(base, kind)
    name = next(name for name in state if name.endswith("k_proj.weight"))
    if fault == "one more":  # the second of fairseq's data2vec
        state["encoder.pos_conv.1.0.weight"] = torch.ones(2)
    elif fault == "missing":
        del state[name]
    elif fault == "shape":
        state[name] = torch.cat([state[name], state[name]])
    else:
        state |= {f"w2v_model.{name}": tensor for name, tensor in state.items()}
    torch.save(state, tmp_path / "x.pt")
    message = "holds no encoder, or more than one"
    if fault != "two encoders":
        message = "x.pt does not have the weights of a wav2vec2 model"
    refused(message, load_encoder, tmp_path / "x.pt")


# ---- Hugging Face


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "head", "binary"),
    [
        ("Hubert", "ForCTC", True),
        ("Wav2Vec2", "ForPreTraining", False),
        ("WavLM", "ForCTC", False),
        ("Data2VecAudio", "ForCTC", False),
    ],
)
def test_heads_of_hugging_face_are_left_out_and_reported(tmp_path, capsys, family, head, binary):
    model = family_of(family, head)
    model.save_pretrained(tmp_path)
    if binary:
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
        (tmp_path / "model.safetensors").unlink()
    encoder = load_encoder(tmp_path)
    inner = getattr(model, model.base_model_prefix)
    assert re.search(r"\d+ weights beside the encoder's", capsys.readouterr().err)
    assert encoder.hash == saved(inner, tmp_path / "inner").hash


def test_adapters_come_back_with_the_encoder(base, tmp_path):
    adapted = deepcopy(base)
    add_modules(adapted, {"adapters": 10})
    for name, values in adapted.named_parameters():
        if "adapter" in name:
            torch.nn.init.normal_(values, std=0.3)
    save_encoder(adapted, tmp_path / "adapted")
    save_encoder(deepcopy(base), tmp_path / "plain")
    found, plain = (load_encoder(tmp_path / name) for name in ("adapted", "plain"))
    exact = TransformersEngine(adapted).states(found.wave(noise()), None, range(3))
    assert max(relative_errors(list(found.hidden_states(noise())), exact)) < 1e-5
    assert found.hash != plain.hash
    convert(tmp_path / "adapted", tmp_path / "again", "huggingface")
    assert load_encoder(tmp_path / "again").hash == found.hash
    refused("not a plain HuBERT", convert, tmp_path / "adapted", tmp_path / "x.pt", "fairseq")
    path = tmp_path / "adapted/model.safetensors"
    weights = load_file(path)
    del weights["encoder.layers.1.feed_forward.output_dense.adapter.up.bias"]
    save_file(weights, path, {"format": "pt"})
    refused("1 weights of adapters are missing", load_encoder, tmp_path / "adapted")


def test_the_extractor_speaks_wherever_its_file_is(base, tmp_path, capsys):
    """A processor (transformers 5) keeps it in processor_config.json."""
    base.save_pretrained(tmp_path)
    load_checkpoint(tmp_path)
    assert "assumed: input not normalised" in capsys.readouterr().err
    extractor = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": True}
    extractor["sampling_rate"] = 16_000
    processor, own = (tmp_path / f"{name}_config.json" for name in ("processor", "preprocessor"))
    write_json(processor, {"feature_extractor": extractor})
    assert load_checkpoint(tmp_path).normalise is True
    processor.unlink()
    write_json(own, extractor | {"sampling_rate": 8_000})
    refused("expects audio at 8000 Hz", load_checkpoint, tmp_path)
    for damaged in ("{", "[]", "null", '{"feature_extractor": null}'):
        own.write_text(damaged)
        refused("preprocessor_config.json", load_checkpoint, tmp_path)


@pytest.fixture
def copied(hubert_folder, tmp_path):
    """A checkpoint that may be damaged."""
    return shutil.copytree(hubert_folder("layer"), tmp_path / "copied")


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_hidden_states_are_those_of_transformers(hubert_folder, norm):
    folder, samples = hubert_folder(norm), noise(16_777)
    extract = Wav2Vec2FeatureExtractor.from_pretrained(folder)
    inputs = extract(samples, sampling_rate=16_000, return_tensors="pt").input_values
    model = HubertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = torch.cat(model(inputs, output_hidden_states=True).hidden_states)
    encoder = load_encoder(folder)
    assert encoder.normalise == (norm == "layer")
    assert encoder.grid.frames(len(samples)) == expected.shape[1]
    torch.testing.assert_close(encoder.hidden_states(samples), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["base", "large", "shipped"])
def test_an_encoder_read_without_transformers_is_the_same(kind, base, large, tmp_path, monkeypatch):
    folder = SHIPPED / "people-en/encoder" if kind == "shipped" else tmp_path
    if kind != "shipped":
        {"base": base, "large": large}[kind].save_pretrained(folder)
        Wav2Vec2FeatureExtractor(do_normalize=kind == "large").save_pretrained(folder)
    assert type(load_checkpoint(folder, weights_alone=True).model) is torch.nn.Module
    ours = load_encoder(folder)
    monkeypatch.setattr("speechssl.encoders.load._read_weights_alone", lambda *_: None)
    theirs = load_encoder(folder)
    names = ("name", "grid", "layers", "width", "normalise", "hash", "card", "settings")
    assert all(getattr(ours, name) == getattr(theirs, name) for name in names)
    assert torch.equal(ours.hidden_states(noise()), theirs.hidden_states(noise()))


# ---- long audio


@pytest.mark.parametrize("frames", [51, 163])
@pytest.mark.parametrize("norm", ["layer", "group"])
def test_long_audio_in_pieces_is_nearly_one_pass(hubert_folder, norm, frames):
    encoder = load_encoder(hubert_folder(norm))
    samples = noise(encoder.grid.samples_for(frames) + 100)
    whole = encoder.hidden_states(samples)
    pieces = replace(encoder, chunking=Chunking(1.0, 0.5)).hidden_states(samples)
    assert pieces.shape == whole.shape == (3, frames, 32)
    # layer 0 sees eight frames to either side, less than the context: the same, and the group norm
    # is the whole utterance's
    torch.testing.assert_close(pieces[0], whole[0], atol=1e-4, rtol=1e-4)
    assert torch.cosine_similarity(pieces, whole, dim=-1).min() > 0.97


def test_the_hash_is_of_the_weights_a_card_is_read_and_what_ships_is_found_by_its_name(
    encoder, copied, monkeypatch
):
    assert encoder.card == {}
    (copied / "card.json").write_text('{"what": "toy"}')
    monkeypatch.setattr(loading, "SHIPPED", copied.parent)
    for name in (copied, "copied"):
        same = load_encoder(name)
        assert (same.name, same.card) == ("copied", {"what": "toy"})
        assert same.hash == encoder.hash == hash_weights(load_checkpoint(copied).model)
    weights = load_file(copied / "model.safetensors")
    name = next(n for n in weights if n.endswith("k_proj.bias"))
    save_file(
        weights | {name: weights[name] + 1e-3}, copied / "model.safetensors", {"format": "pt"}
    )
    assert load_encoder(copied).hash != encoder.hash


# ---- Whisper


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
    mel = WhisperFeatureExtractor()(
        samples, sampling_rate=16_000, return_tensors="pt"
    ).input_features
    with torch.inference_mode():
        return torch.cat(model.model.encoder(mel, output_hidden_states=True).hidden_states)


@pytest.mark.parametrize("length", [1, 40_000, 480_000])
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


# ---- wrong input


def test_weights_that_do_not_fit_are_named(copied):
    path = copied / "model.safetensors"
    weights = load_file(path)
    kept = {n: w for n, w in weights.items() if "layers.1.attention" not in n}
    save_file(kept, path, {"format": "pt"})
    refused("copied", load_encoder, copied)
    wider = {"feature_projection.projection.weight": torch.zeros(32, 17)}
    save_file(weights | wider, path, {"format": "pt"})
    refused("copied", load_encoder, copied)
    path.write_bytes(path.read_bytes()[:1_000])
    refused("copied", load_encoder, copied)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no/such-encoder", "no speech encoder at no/such-encoder"),
        ("torchaudio:hubert_base", "choose from .*HUBERT_BASE"),
        (__file__, "test_load.py"),
        ({"model": {"w": torch.ones(1)}}, "x.pt holds no encoder"),
    ],
)
def test_what_is_no_encoder_is_named(tmp_path, name, message):
    if isinstance(name, dict):
        torch.save(name, tmp_path / "x.pt")
        name = tmp_path / "x.pt"
    refused(message, load_encoder, name)


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros((9_000, 2), np.float32),
        np.full(9_000, np.nan, np.float32),
        np.zeros(399, np.float32),
    ],
)
def test_what_is_not_samples_is_refused(encoder, samples):
    with pytest.raises(ValueError, match="samples"):
        encoder.features(samples, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [(("int8",), "int8"), (("fp32", "nowhere"), "nowhere"), (("fp32", "cpu", "openvino"), "Open")],
)
def test_what_an_encoder_cannot_run_in_is_named(whisper, settings, message):
    refused(message, load_encoder, whisper[0], *settings)
    refused("has the layers 0 to 2, not 3", load_encoder(whisper[0]).features, noise(), 3)
