"""Tests of loading encoders from every format: the same weights are the same encoder, and weights
that are left out and settings that are guessed are reported."""

import math
import re
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

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
    NO_MASK,
    make_fairseq_settings,
    make_torchaudio_arguments,
    rename,
)
from speechssl.encoders.encoder import Chunking
from speechssl.encoders.engines import TransformersEngine
from speechssl.encoders.export import convert, measure_errors
from speechssl.encoders.load import (
    find_encoder,
    load_checkpoint,
    load_encoder,
    make_speech_encoder,
    save_encoder,
)
from speechssl.finetuning import add_modules

from ..files import refused
from .conftest import make_whisper, noise, write_fairseq

CONVOLUTIONS = ("conv_kernel", "conv_stride")
SIZES = {
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    # heads of width 64, as the loader guesses where a file does not state their number
    "hidden_size": 128,
    "num_attention_heads": 2,
    "conv_dim": (16,) * 7,
}


def make_model(family, head="Model", **changes):
    """Make a model of transformers, such as HubertForCTC (family Hubert, head ForCTC)."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES | changes)
    return getattr(transformers, f"{family}{head}")(config).eval()


@pytest.fixture(scope="module")
def base():
    return make_model("Hubert", feat_extract_norm="group")


@pytest.fixture(scope="module")
def large():
    norms = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
    return make_model("Wav2Vec2", **norms, conv_bias=True, num_attention_heads=4)


def rename_weights(model, kind):
    """Return the weights under the names of torchaudio or fairseq (`kind`)."""
    return rename(model.state_dict(), kind, model.config.feat_extract_norm)


def save_and_load(model, folder):
    """Save a model of transformers, and load it as an encoder."""
    model.save_pretrained(folder)
    return load_encoder(folder)


# ---- fairseq


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "zipped"), [("dict", True), ("omegaconf", True), ("args", False)]
)
@pytest.mark.parametrize("size", ["base", "large"])
def test_a_fairseq_checkpoint_is_the_hugging_face_encoder(
    request, tmp_path, capsys, size, style, zipped
):
    model, normalise = request.getfixturevalue(size), size == "large"
    cfg, state = make_fairseq_settings(model.config, normalise), rename_weights(model, "fairseq")
    extras = {"final_proj.weight": torch.ones(3, 3), "final_proj.bias": torch.ones(3)}
    path = tmp_path / "x.pt"
    write_fairseq(path, state, cfg, style, zipped, extras=extras)
    encoder, expected = load_encoder(path), save_and_load(model, tmp_path / "hf")
    assert encoder.hash == expected.hash
    assert encoder.grid == expected.grid
    assert encoder.normalise == normalise
    assert torch.equal(encoder.hidden_states(noise()), expected.hidden_states(noise()))
    assert load_checkpoint(path).model.config.model_type == model.config.model_type
    message = capsys.readouterr().err
    assert "2 weights are not the encoder's" in message
    assert "x.pt does not state" not in message


@pytest.mark.parametrize("flat", [False, True])
def test_the_settings_of_pre_training_are_found_in_a_fine_tuned_checkpoint(base, tmp_path, flat):
    cfg = make_fairseq_settings(base.config, normalise=False)
    cfg_of_pretraining = cfg
    if flat:
        cfg_of_pretraining = cfg["model"] | cfg["task"] | {"arch": "hubert"}
        del cfg_of_pretraining["_name"]
    model = {"_name": "hubert_ctc", "layer_norm_first": "??", "w2v_args": cfg_of_pretraining}
    prefix, state = "w2v_encoder.w2v_model.", rename_weights(base, "fairseq")
    extras = {"w2v_encoder.proj.bias": torch.ones(3)}
    cfg_of_file = {"model": model, "task": cfg["task"]}
    path = tmp_path / "x.pt"
    write_fairseq(path, state, cfg_of_file, "omegaconf", prefix=prefix, extras=extras)
    checkpoint = load_checkpoint(path)
    assert checkpoint.left_out == ("w2v_encoder.proj.bias",)
    assert checkpoint.assumptions == ()
    assert checkpoint.model.config.model_type == "hubert"
    assert checkpoint.normalise is False


def test_a_copy_of_s3prl_in_half_precision_is_read(base, tmp_path):
    cfg = make_fairseq_settings(base.config, normalise=False)
    state = {name: tensor.half() for name, tensor in rename_weights(base, "fairseq").items()}
    content = {"task_cfg": cfg["task"], "model_cfg": cfg["model"], "model_weight": state}
    torch.save(content | {"dictionaries_symbols": [["a"]]}, tmp_path / "x.pt")
    model = load_checkpoint(tmp_path / "x.pt").model
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    rounded = deepcopy(base).half().float()
    assert load_encoder(tmp_path / "x.pt").hash == save_and_load(rounded, tmp_path / "hf").hash


# ---- settings that a file does not state


@pytest.mark.parametrize("kind", ["torchaudio", "fairseq"])
@pytest.mark.parametrize("size", ["base", "large"])
def test_assumptions_are_reported(request, tmp_path, capsys, kind, size):
    state = rename_weights(request.getfixturevalue(size), kind)
    state.pop("mask_generator.mask_embedding", None)  # torchaudio's; fairseq's has another name
    torch.save(state, tmp_path / "x.pt")
    checkpoint = load_checkpoint(tmp_path / "x.pt")
    assert "x.pt does not state all settings; assumed: strides" in capsys.readouterr().err
    expected = [
        "strides 5 2 2 2 2 2 2",
        "2 heads",
        f"layer norm {'before' if size == 'large' else 'after'} attention",
        f"input {'' if size == 'large' else 'not '}normalised",
    ]
    if kind == "torchaudio":
        expected.append(NO_MASK)
    assert list(checkpoint.assumptions) == expected


# ---- torchaudio


@pytest.mark.parametrize(
    ("size", "prefix", "heads"), [("base", "", 2), ("large", "model.wav2vec2.", 4)]
)
def test_a_state_dict_of_torchaudio_gives_torchaudios_layers(
    request, tmp_path, size, prefix, heads
):
    """Torchaudio's factory makes the model: HuBERT base normalises after attention, wav2vec 2.0
    large before."""
    config = request.getfixturevalue(size).config
    torch.manual_seed(0)
    arguments = make_torchaudio_arguments(config) | {"aux_num_out": 7}
    model = torchaudio.models.wav2vec2_model(**arguments).eval()
    state = {}
    for name, tensor in model.state_dict().items():
        state[name if name.startswith("aux") else prefix + name] = tensor
    torch.save(state, tmp_path / "x.pth")
    write_json(tmp_path / "x.json", arguments)
    checkpoint = replace(load_checkpoint(tmp_path / "x.pth"), normalise=False)
    assert checkpoint.left_out == ("aux.bias", "aux.weight")
    assert checkpoint.model.config.num_attention_heads == heads
    with torch.inference_mode():
        expected = model.extract_features(torch.from_numpy(noise())[None])[0]
    layers = list(make_speech_encoder(checkpoint).hidden_states(noise()))[1:]
    assert max(measure_errors(layers, [x[0] for x in expected])) < 1e-5


@pytest.mark.parametrize("norm", ["group", "layer"])
def test_a_wavlm_of_torchaudio_gives_torchaudios_layers(tmp_path, capsys, norm):
    norms = {"feat_extract_norm": norm, "do_stable_layer_norm": norm == "layer"}
    model = make_model("WavLM", **norms, num_buckets=32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    original = torchaudio.models.wavlm_model(**make_torchaudio_arguments(model.config)).eval()
    imported = torchaudio.models.wav2vec2.utils.import_huggingface_model(model)
    original.load_state_dict(imported.state_dict())
    torch.save(original.state_dict(), tmp_path / "x.pt")
    encoder = load_encoder(tmp_path / "x.pt")
    message = capsys.readouterr().err
    assert "relative positions up to 800 frames" in message
    assert "heads" not in message  # they are read from the weights
    samples = noise(400 + 48 * 320)  # 49 frames, without samples after the last
    wave = torch.from_numpy(samples)
    if encoder.normalise:
        wave = (wave - wave.mean()) / torch.sqrt(wave.var(correction=0) + 1e-7)
    with torch.inference_mode():
        expected = [x[0] for x in original.extract_features(wave[None])[0]]
    assert max(measure_errors(list(encoder.hidden_states(samples))[1:], expected)) < 1e-5


@pytest.mark.parametrize(
    ("name", "kind", "normalise"),
    [("HUBERT_BASE", "hubert", False), ("WAV2VEC2_ASR_LARGE_LV60K_960H", "wav2vec2", True)],
)
def test_a_bundle_is_its_model_and_its_parameters(monkeypatch, tmp_path, name, kind, normalise):
    bundle = getattr(torchaudio.pipelines, name)
    convolutions = bundle._params["extractor_conv_layer_config"]  # (channels, kernel, stride)
    params = bundle._params | {
        "extractor_conv_layer_config": [(16, kernel, stride) for _, kernel, stride in convolutions],
        "encoder_embed_dim": 64,
        "encoder_num_layers": 2,
        "encoder_num_heads": 8,
        "encoder_ff_interm_features": 64,
    }
    torch.manual_seed(0)
    state = torchaudio.models.wav2vec2_model(**params).state_dict()
    monkeypatch.setattr(torchaudio.pipelines, name, replace(bundle, _params=params))
    monkeypatch.setattr(type(bundle), "_get_state_dict", lambda self, dl_kwargs: state)
    checkpoint = load_checkpoint(f"torchaudio:{name}")
    config = checkpoint.model.config
    assert config.model_type == kind
    assert config.num_attention_heads == 8
    assert checkpoint.normalise == normalise
    assert config.do_stable_layer_norm == bundle._params["encoder_layer_norm_first"]
    assert checkpoint.assumptions == (NO_MASK,)
    assert checkpoint.left_out == (("aux.bias", "aux.weight") if "ASR" in name else ())


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
    model = make_model(family, head)
    model.save_pretrained(tmp_path)
    if binary:
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
        (tmp_path / "model.safetensors").unlink()
    encoder = load_encoder(tmp_path)
    inner = getattr(model, model.base_model_prefix)
    assert re.search(r"\d+ weights are not the encoder's", capsys.readouterr().err)
    assert encoder.hash == save_and_load(inner, tmp_path / "inner").hash


def test_adapters_come_back_with_the_encoder(base, tmp_path):
    adapted = deepcopy(base)
    add_modules(adapted, {"adapters": 10})
    for name, values in adapted.named_parameters():
        if "adapter" in name:
            torch.nn.init.normal_(values, std=0.3)
    save_encoder(adapted, tmp_path / "adapted")
    save_encoder(deepcopy(base), tmp_path / "plain")
    encoder, plain = load_encoder(tmp_path / "adapted"), load_encoder(tmp_path / "plain")
    exact = TransformersEngine(adapted).compute_layers(encoder.wave(noise()), None, range(3))
    assert max(measure_errors(list(encoder.hidden_states(noise())), exact)) < 1e-5
    assert encoder.hash != plain.hash
    convert(tmp_path / "adapted", tmp_path / "again", "huggingface")
    assert load_encoder(tmp_path / "again").hash == encoder.hash
    refused("not a plain HuBERT", convert, tmp_path / "adapted", tmp_path / "x.pt", "fairseq")
    path = tmp_path / "adapted/model.safetensors"
    weights = load_file(path)
    del weights["encoder.layers.1.feed_forward.output_dense.adapter.up.bias"]
    save_file(weights, path, {"format": "pt"})
    refused("1 weights of adapters are missing", load_encoder, tmp_path / "adapted")


def test_the_feature_extractor_states_whether_the_input_is_normalised(base, tmp_path, capsys):
    """It is kept in preprocessor_config.json, or, by a processor of transformers 5, in
    processor_config.json."""
    base.save_pretrained(tmp_path)
    load_checkpoint(tmp_path)
    assert "assumed: input not normalised" in capsys.readouterr().err
    extractor = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": True}
    extractor["sampling_rate"] = 16_000
    processor = tmp_path / "processor_config.json"
    preprocessor = tmp_path / "preprocessor_config.json"
    write_json(processor, {"feature_extractor": extractor})
    assert load_checkpoint(tmp_path).normalise is True
    processor.unlink()
    write_json(preprocessor, extractor | {"sampling_rate": 8_000})
    refused("expects audio at 8000 Hz", load_checkpoint, tmp_path)
    preprocessor.write_text("{")
    refused("preprocessor_config.json", load_checkpoint, tmp_path)


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
    assert encoder.grid.count_frames(len(samples)) == expected.shape[1]
    torch.testing.assert_close(encoder.hidden_states(samples), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["base", "large", "shipped"])
def test_an_encoder_read_without_transformers_is_the_same(kind, base, large, tmp_path, monkeypatch):
    folder = SHIPPED / "people-en/encoder" if kind == "shipped" else tmp_path
    if kind != "shipped":
        {"base": base, "large": large}[kind].save_pretrained(folder)
        Wav2Vec2FeatureExtractor(do_normalize=kind == "large").save_pretrained(folder)
    assert type(load_checkpoint(folder, weights_alone=True).model) is torch.nn.Module
    encoder = load_encoder(folder)
    monkeypatch.setattr("speechssl.encoders.load._read_weights_alone", lambda *_: None)
    by_transformers = load_encoder(folder)
    for fact in ("name", "grid", "layers", "width", "normalise", "hash", "card", "settings"):
        assert getattr(encoder, fact) == getattr(by_transformers, fact)
    assert torch.equal(encoder.hidden_states(noise()), by_transformers.hidden_states(noise()))


@pytest.fixture
def copied(hubert_folder, tmp_path):
    """Return a folder `copied` of a checkpoint, which a test may damage."""
    return shutil.copytree(hubert_folder("layer"), tmp_path / "copied")


def test_a_shipped_encoder_is_found_by_its_name_and_has_its_card_and_hash(
    encoder, copied, monkeypatch
):
    (copied / "card.json").write_text('{"what": "toy"}')
    monkeypatch.setattr(loading, "SHIPPED", copied.parent)
    for name in (copied, "copied"):
        loaded = load_encoder(name)
        assert loaded.name == "copied"
        assert loaded.card == {"what": "toy"}
        assert loaded.hash == encoder.hash
    weights = load_file(copied / "model.safetensors")
    name = next(n for n in weights if n.endswith("k_proj.bias"))
    save_file(weights | {name: weights[name] + 1e-3}, copied / "model.safetensors")
    assert load_encoder(copied).hash != encoder.hash


# ---- long audio


@pytest.mark.parametrize("frames", [51, 163])
@pytest.mark.parametrize("norm", ["layer", "group"])
def test_long_audio_in_pieces_is_nearly_one_pass(hubert_folder, norm, frames):
    encoder = load_encoder(hubert_folder(norm))
    samples = noise(encoder.grid.count_samples(frames) + 100)
    whole = encoder.hidden_states(samples)
    pieces = replace(encoder, chunking=Chunking(1.0, 0.5)).hidden_states(samples)
    assert pieces.shape == whole.shape == (3, frames, 32)
    # Layer 0 sees eight frames to either side, fewer than the context, and the group norm is the
    # whole utterance's: it is the same.
    torch.testing.assert_close(pieces[0], whole[0], atol=1e-4, rtol=1e-4)
    assert torch.cosine_similarity(pieces, whole, dim=-1).min() > 0.97


# ---- Whisper


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    """Return a folder with a small Whisper, and the model of transformers."""
    model = make_whisper()
    folder = tmp_path_factory.mktemp("whisper")
    model.save_pretrained(folder)
    WhisperFeatureExtractor().save_pretrained(folder)
    return folder, model


def encode_by_whisper(model, samples):
    """Return the hidden states of transformers' Whisper of at most 30 s, (L + 1, 1500, D)."""
    extract = WhisperFeatureExtractor()
    mel = extract(samples, sampling_rate=16_000, return_tensors="pt").input_features
    with torch.inference_mode():
        return torch.cat(model.model.encoder(mel, output_hidden_states=True).hidden_states)


@pytest.mark.parametrize("length", [1, 40_000, 480_000])
def test_every_layer_is_that_of_transformers(whisper, length):
    folder, model = whisper
    samples = np.random.default_rng(length).normal(0, 0.1, length).astype(np.float32)
    expected = encode_by_whisper(model, samples)[:, : math.ceil(length / 320)]
    states = load_encoder(folder).hidden_states(samples)
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-4)


def test_longer_audio_is_read_in_overlapping_windows_of_30_seconds(whisper):
    folder, model = whisper
    samples = np.random.default_rng(0).normal(0, 0.1, 16_000 * 50).astype(np.float32)
    hop, frames = 320, 2500
    piece, context = 1300, 100  # frames: 26 s, and 2 s before and after it
    first = encode_by_whisper(model, samples[: hop * (piece + context - 1) + 1])
    second = encode_by_whisper(model, samples[hop * (piece - context) :])
    expected = [first[:, :piece], second[:, context : context + frames - piece]]
    states = load_encoder(folder).hidden_states(samples)
    torch.testing.assert_close(states, torch.cat(expected, dim=1), atol=1e-5, rtol=1e-4)


# ---- wrong input


def test_frames_that_do_not_agree_with_the_grid_are_refused(tmp_path, monkeypatch):
    """SEW encodes every second frame, which its convolutions do not tell."""
    monkeypatch.setattr(loading, "MODEL_TYPES", (*loading.MODEL_TYPES, "sew"))
    front = {name: getattr(transformers.HubertConfig(), name) for name in CONVOLUTIONS}
    encoder = save_and_load(make_model("SEW", **front), tmp_path / "sew")
    refused("sew gives 24 frames .* not the 49 .* choose another", encoder.features, noise(), 1)


@pytest.mark.parametrize("kind", ["torchaudio", "fairseq"])
@pytest.mark.parametrize("fault", ["one more", "missing", "shape", "two encoders"])
def test_every_weight_must_have_its_place(base, tmp_path, kind, fault):
    state = rename_weights(base, kind)
    name = next(name for name in state if name.endswith("k_proj.weight"))
    if fault == "one more":  # fairseq's data2vec has a second positional convolution
        state["encoder.pos_conv.1.0.weight"] = torch.ones(2)
    elif fault == "missing":
        del state[name]
    elif fault == "shape":
        state[name] = torch.cat([state[name], state[name]])
    else:
        state |= {f"w2v_model.{name}": tensor for name, tensor in state.items()}
    torch.save(state, tmp_path / "x.pt")
    message = "x.pt holds more than one encoder"
    if fault != "two encoders":
        message = "x.pt does not have the weights of a HuBERT"
    refused(message, load_encoder, tmp_path / "x.pt")


def test_weights_of_a_folder_that_do_not_fit_are_refused(copied):
    path = copied / "model.safetensors"
    weights = load_file(path)
    incomplete = {n: w for n, w in weights.items() if "layers.1.attention" not in n}
    wider = weights | {"feature_projection.projection.weight": torch.zeros(32, 17)}
    for damaged in (incomplete, wider):
        save_file(damaged, path, {"format": "pt"})
        refused("copied", load_encoder, copied)
    path.write_bytes(path.read_bytes()[:1_000])
    refused("copied", load_encoder, copied)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no/such-encoder", {}, "no speech encoder at no/such-encoder"),
        ("torchaudio:hubert_base", {}, "choose one, such as HUBERT_BASE"),
        (__file__, {}, "test_load.py"),
        ("", {"device": "nowhere"}, "nowhere"),
        ("", {"device": "cpu", "engine": "openvino"}, "Open"),
    ],
)
def test_a_wrong_name_or_option_is_refused(whisper, name, options, message):
    refused(message, load_encoder, name or whisper[0], **options)


def test_an_own_folder_comes_before_a_shipped_set_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_encoder("people-en") == SHIPPED / "people-en/encoder"
    Path("people-en").mkdir()
    Path("people-en/config.json").touch()
    assert find_encoder("people-en") == Path("people-en")


def test_a_whisper_is_not_converted(whisper, tmp_path):
    for kind in ("huggingface", "torchaudio"):
        refused("is a Whisper", convert, whisper[0], tmp_path / kind, kind)
    assert not list(tmp_path.iterdir())


def test_a_file_without_an_encoder_is_refused(tmp_path):
    torch.save({"model": {"w": torch.ones(1)}}, tmp_path / "x.pt")
    refused("x.pt holds no encoder", load_encoder, tmp_path / "x.pt")


def test_wrong_samples_and_layers_are_refused(encoder):
    short = np.zeros(399, np.float32)
    for samples in (np.zeros((9_000, 2)), np.full(9_000, np.nan), short):
        with pytest.raises(ValueError, match="samples"):
            encoder.features(samples.astype(np.float32), 1)
    refused("has the layers 0 to 2, not 3", encoder.features, noise(), 3)


def test_integers_are_refused_where_their_scale_matters(encoder):
    integers = (noise() * 32768).astype(np.int16)
    with pytest.raises(ValueError, match="divided by 32768"):
        replace(encoder, normalise=False).features(integers, 1)
