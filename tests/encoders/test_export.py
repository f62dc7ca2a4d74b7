"""Tests of `speechssl convert`: encoders of many shapes are written in the three formats and read
again, each format compared with the library that it belongs to."""

import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from speechssl.artifacts import write_json
from speechssl.cli import main
from speechssl.encoders import export as exporting
from speechssl.encoders.checkpoints import make_torchaudio_arguments, rename
from speechssl.encoders.export import convert
from speechssl.encoders.load import load_checkpoint, load_encoder

from ..conftest import FRONT, SIZES
from ..files import refused, untouched
from .conftest import noise

GROUP, LAYER = {"feat_extract_norm": "group"}, {"feat_extract_norm": "layer"}
PRE_NORM = {"do_stable_layer_norm": True, "conv_bias": True}
FEW_CONVOLUTIONS = {"conv_dim": (8, 12, 24), "conv_kernel": (10, 8, 4), "conv_stride": (5, 8, 4)}
SHAPES = {
    "base": GROUP,
    "large": LAYER | PRE_NORM | {"num_hidden_layers": 3},
    "layer norms, post-norm": LAYER | {"do_stable_layer_norm": False},
    "group norm, pre-norm": GROUP | PRE_NORM,
    "few convolutions": LAYER | FEW_CONVOLUTIONS,
    "odd positions": GROUP | {"num_conv_pos_embeddings": 15, "num_conv_pos_embedding_groups": 1},
    "equal widths": GROUP | {"conv_dim": (32,) * 7},
    "eleven layers": GROUP | {"num_hidden_layers": 11},
}


def randomise(model):
    """Add noise to all weights, so that no bias is zero and no norm is one. Returns the model."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory):
    """Return a function (family of transformers, key of SHAPES, **changes of the config) -> folder
    of a Hugging Face model."""
    folders = {}

    def make(family="Hubert", shape="base", **changes):
        key = (family, shape, json.dumps(changes))
        if key not in folders:
            folder = folders[key] = tmp_path_factory.mktemp("model")
            values = SIZES | FRONT | SHAPES[shape] | changes
            config = getattr(transformers, f"{family}Config")(**values)
            randomise(getattr(transformers, f"{family}Model")(config)).save_pretrained(folder)
            normalise = config.feat_extract_norm == "layer"
            transformers.Wav2Vec2FeatureExtractor(do_normalize=normalise).save_pretrained(folder)
        return folders[key]

    return make


def output_path(kind, folder):
    """Return where `convert` shall write the format: a folder or a file."""
    return folder / ("hf" if kind == "huggingface" else f"{kind}.pt")


# ---- round trips


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "shape"),
    [*(("Hubert", shape) for shape in SHAPES), ("Wav2Vec2", "base"), ("Wav2Vec2", "large")],
)
def test_every_shape_goes_round_all_formats(make_folder, tmp_path, family, shape):
    source = make_folder(family, shape)
    encoder = load_encoder(source)
    kinds = ("torchaudio", "fairseq", "huggingface", "fairseq", "torchaudio", "huggingface")
    previous = source
    for number, kind in enumerate(kinds):
        written = output_path(kind, tmp_path / f"{number}")
        written.parent.mkdir()
        card = convert(previous, written, kind)
        assert max(card["largest_errors"]) <= 1e-5
        loaded = load_encoder(written)
        for fact in ("hash", "grid", "layers", "width", "normalise"):
            assert getattr(loaded, fact) == getattr(encoder, fact)
        assert torch.equal(loaded.hidden_states(noise()), encoder.hidden_states(noise()))
        previous = written
    model_type = load_checkpoint(source).model.config.model_type
    assert load_checkpoint(written).model.config.model_type == model_type


# ---- fairseq's equal widths


def test_an_identity_as_projection_is_left_out_for_fairseq_and_put_back(make_folder, tmp_path):
    folder = shutil.copytree(make_folder("Hubert", "equal widths"), tmp_path / "identity")
    projection = "feature_projection.projection"
    state = load_file(folder / "model.safetensors")
    state |= {f"{projection}.weight": torch.eye(32), f"{projection}.bias": torch.zeros(32)}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    assert "note" not in convert(folder, tmp_path / "x.pt", "fairseq")
    written = torch.load(tmp_path / "x.pt", weights_only=True)["model"]
    assert not [name for name in written if name.startswith("post_extract_proj")]
    assert load_encoder(tmp_path / "x.pt").hash == load_encoder(folder).hash


def test_another_projection_between_equal_widths_is_noted_in_the_card(make_folder, tmp_path):
    assert "note" in convert(make_folder("Hubert", "equal widths"), tmp_path / "x.pt", "fairseq")


# ---- refusals


@pytest.mark.parametrize(
    ("family", "changes", "out", "message"),
    [
        ("WavLM", {}, "x.pt", "is not a plain HuBERT or wav2vec 2.0"),
        ("Hubert", {"hidden_act": "relu"}, "x.pt", "is not a plain HuBERT or wav2vec 2.0"),
        ("Hubert", {}, "mine.pt", "mine.pt already exists"),
    ],
)
def test_a_refused_conversion_leaves_no_file(make_folder, tmp_path, family, changes, out, message):
    (tmp_path / "mine.pt").write_text("mine")
    refused(message, convert, make_folder(family, "base", **changes), tmp_path / out, "fairseq")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.pt"]
    assert (tmp_path / "mine.pt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["huggingface", "torchaudio", "fairseq"])
def test_an_encoder_is_converted_once_and_no_other_over_it(make_folder, tmp_path, kind):
    out = output_path(kind, tmp_path)
    card = convert(make_folder("Hubert", "base"), out, kind)
    with untouched(tmp_path):
        assert convert(make_folder("Hubert", "base"), out, kind) == json.loads(json.dumps(card))
        refused("is something else", convert, make_folder("Hubert", "large"), out, kind)
        refused("is something else", convert, make_folder("Wav2Vec2", "base"), out, kind)


def test_a_writer_that_spoils_a_weight_is_caught(make_folder, tmp_path, monkeypatch):
    def rename_and_spoil(*arguments, **options):
        state = rename(*arguments, **options)
        name = next(n for n in state if n.endswith("k_proj.weight"))
        return state | {name: state[name] * 1.0001}

    monkeypatch.setattr(exporting, "rename", rename_and_spoil)
    refused("is another encoder in", convert, make_folder(), tmp_path / "x.pt", "fairseq")
    assert not list(tmp_path.iterdir())


# ---- the command


@pytest.mark.parametrize("kind", ["torchaudio", "fairseq"])
def test_a_file_beside_it_states_what_the_weights_do_not(make_folder, tmp_path, capsys, kind):
    source, path = make_folder("Hubert", "few convolutions"), tmp_path / "bare.pt"
    model = load_checkpoint(source).model
    torch.save(rename(model.state_dict(), kind, "layer"), path)
    command = ["convert", str(path), str(tmp_path / "hf"), "--to", "huggingface"]
    assert main(command) == 2
    assert "strides and heads of a model of kernels" in capsys.readouterr().err
    write_json(tmp_path / "bare.json", {"encoder_num_head": 2})
    assert main(command) == 2
    assert "bare.json: " in capsys.readouterr().err
    write_json(tmp_path / "bare.json", make_torchaudio_arguments(model.config))
    assert main(command) == 0
    expected, converted = load_encoder(source), load_encoder(tmp_path / "hf")
    assert converted.hash == expected.hash
    assert converted.grid == expected.grid
    assert converted.normalise == expected.normalise
    assert torch.equal(converted.hidden_states(noise()), expected.hidden_states(noise()))
