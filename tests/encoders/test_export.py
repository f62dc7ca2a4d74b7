"""Encoders of many shapes through the three formats and back, each against the library whose format
it is."""

import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from speechssl.cli import main
from speechssl.encoders import export as exporting
from speechssl.encoders.checkpoints import KINDS, rename
from speechssl.encoders.export import convert
from speechssl.encoders.load import load_checkpoint, load_encoder

from ..conftest import SIZES
from ..files import refused, untouched
from .conftest import noise

FRONT = {"conv_dim": (16,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
SIZES = {k: SIZES[k] for k in ("hidden_size", "num_attention_heads", "intermediate_size")}
GROUP, LAYER = ({"feat_extract_norm": norm} for norm in ("group", "layer"))
PRE = {"do_stable_layer_norm": True, "conv_bias": True}
ONE = {"conv_dim": (16,), "conv_kernel": (400,), "conv_stride": (320,)}
FEW = {"conv_dim": (8, 12, 24), "conv_kernel": (10, 8, 4), "conv_stride": (5, 8, 4)}
SHAPES = {
    "base": GROUP,
    "large": LAYER | PRE | {"num_hidden_layers": 3},
    "layer norms, post-norm": LAYER | {"do_stable_layer_norm": False},
    "group norm, pre-norm": GROUP | PRE,
    "few convolutions": LAYER | FEW,
    "odd positions": GROUP | {"num_conv_pos_embeddings": 15, "num_conv_pos_embedding_groups": 1},
    "one convolution": LAYER | ONE,
    "one convolution, group norm": GROUP | ONE,
    "equal widths": GROUP | {"conv_dim": (32,) * 7},
    "eleven layers": GROUP | {"num_hidden_layers": 11},
}


def randomised(model, seed=0):
    """Weights as no initialisation leaves them: no bias is zero, no norm is one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A function (family, shape) -> a Hugging Face folder."""
    folders = {}

    def make(family="Hubert", shape="base", **changes):
        key = (family, shape, json.dumps(changes))
        if key not in folders:
            folder = folders[key] = tmp_path_factory.mktemp("made")
            values = SIZES | FRONT | SHAPES[shape] | changes
            config = getattr(transformers, f"{family}Config")(**values)
            randomised(getattr(transformers, f"{family}Model")(config)).save_pretrained(folder)
            normalise = config.feat_extract_norm == "layer"
            transformers.Wav2Vec2FeatureExtractor(do_normalize=normalise).save_pretrained(folder)
        return folders[key]

    return make


def out_of(kind, folder):
    return folder / ("hf" if kind == "huggingface" else f"{kind}.pt")


# ---- round trips


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "shape"),
    [*(("Hubert", shape) for shape in SHAPES), ("Wav2Vec2", "base"), ("Wav2Vec2", "large")],
)
def test_every_shape_goes_round_all_formats(made, tmp_path, family, shape):
    source = place = made(family, shape)
    first = load_encoder(source)
    kinds = ("torchaudio", "fairseq", "huggingface", "fairseq", "torchaudio", "huggingface")
    for number, kind in enumerate(kinds):
        previous, place = place, out_of(kind, tmp_path / f"{number}")
        place.parent.mkdir()
        card = convert(previous, place, kind)
        assert max(card["largest_errors"]) <= 1e-5
        again = load_encoder(place)
        for fact in ("hash", "grid", "layers", "width", "normalise"):
            assert getattr(again, fact) == getattr(first, fact)
        assert torch.equal(again.hidden_states(noise()), first.hidden_states(noise()))
    before, after = (load_checkpoint(folder).model.config for folder in (source, place))
    assert after.model_type == before.model_type


# ---- fairseq's equal widths


def test_a_projection_that_changes_nothing_is_left_out_for_fairseq_and_put_back(made, tmp_path):
    equal = made("Hubert", "equal widths")
    folder = shutil.copytree(equal, tmp_path / "identity")
    projection = "feature_projection.projection"
    state = load_file(folder / "model.safetensors")
    state |= {f"{projection}.weight": torch.eye(32), f"{projection}.bias": torch.zeros(32)}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    assert "note" not in convert(folder, tmp_path / "x.pt", "fairseq")
    written = torch.load(tmp_path / "x.pt", weights_only=True)["model"]
    assert not [name for name in written if name.startswith("post_extract_proj")]
    assert load_encoder(tmp_path / "x.pt").hash == load_encoder(folder).hash
    assert "note" in convert(equal, tmp_path / "y.pt", "fairseq")


# ---- what is refused


@pytest.mark.parametrize(
    ("family", "changes", "out", "message"),
    [
        ("WavLM", {}, "x.pt", "is not a plain HuBERT or wav2vec 2.0"),
        ("Hubert", {"hidden_act": "relu"}, "x.pt", "is not a plain HuBERT or wav2vec 2.0"),
        ("Hubert", {}, "mine.pt", "mine.pt already exists"),
        ("Hubert", {}, "x.bin", "ends in .pt"),
    ],
)
def test_what_cannot_be_written_is_named_and_leaves_nothing(
    made, tmp_path, family, changes, out, message
):
    (tmp_path / "mine.pt").write_text("mine")
    refused(message, convert, made(family, "base", **changes), tmp_path / out, "fairseq")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("mine.pt", "mine")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_again_is_nothing_to_do_and_another_is_refused(made, tmp_path, kind):
    out = out_of(kind, tmp_path)
    first = convert(made("Hubert", "base"), out, kind)
    with untouched(tmp_path):
        assert convert(made("Hubert", "base"), out, kind) == json.loads(json.dumps(first))
        refused("is something else", convert, made("Hubert", "large"), out, kind)
        refused("is something else", convert, made("Wav2Vec2", "base"), out, kind)


def test_a_writer_that_spoils_a_weight_is_caught(made, tmp_path, monkeypatch):
    def spoil(*given, **options):
        state = rename(*given, **options)
        name = next(n for n in state if n.endswith("k_proj.weight"))
        return state | {name: state[name] * 1.0001}

    monkeypatch.setattr(exporting, "rename", spoil)
    refused("is another encoder in", convert, made(), tmp_path / "x.pt", "fairseq")
    assert not list(tmp_path.iterdir())


# ---- the verb


def test_the_verb_takes_what_the_file_does_not_say(made, tmp_path, capsys):
    source, path = made("Hubert", "few convolutions"), tmp_path / "bare.pt"
    state = load_checkpoint(source).model.state_dict()
    torch.save(rename(state, "fairseq", "layer", inverse=True), path)
    command = ["convert", str(path), str(tmp_path / "hf"), "--to", "huggingface"]
    assert main(command) == 2
    assert "give --strides and --heads" in capsys.readouterr().err
    assert main([*command, "--strides", "5", "8", "4", "--heads", "2", "--post-norm"]) == 0
    expected, found = load_encoder(source), load_encoder(tmp_path / "hf")
    assert (found.hash, found.grid) == (expected.hash, expected.grid)
    assert found.normalise == expected.normalise
    assert torch.equal(found.hidden_states(noise()), expected.hidden_states(noise()))
