"""Span models on disk: what comes back, and every way the folder can be wrong."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from speechssl.dual.data import collate
from speechssl.dual.model import SpanModel, load_reader, save_reader
from speechssl.errors import InputError
from speechssl.int8 import dequantise, quantise
from speechssl.io import hash_files
from speechssl.textlm import SubwordUnits

from .conftest import KINDS, LAYOUT


@pytest.fixture
def saved(span_model, tmp_path):
    save_reader(tmp_path / "reader", span_model(), LAYOUT, {"what": "toy"})
    return tmp_path / "reader"


# ---- round trips


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_comes_back(span_model, tmp_path, kind):
    model = span_model(kind)
    save_reader(tmp_path, model, LAYOUT, {"what": "toy", "seed": 3})
    loaded, layout, card = load_reader(tmp_path)
    assert layout == LAYOUT and (card["what"], card["seed"]) == ("toy", 3)
    assert not loaded.training and not any(p.requires_grad for p in loaded.parameters())
    expected = dequantise(quantise(model.state_dict()))
    assert set(loaded.state_dict()) == set(expected)
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())
    rng = np.random.default_rng(0)
    batch = collate([LAYOUT.sequence(rng.integers(0, 30, 4), rng.integers(0, 30, 20))], LAYOUT.pad)
    model.load_state_dict(expected)
    with torch.no_grad():
        torch.testing.assert_close(loaded.logits(**batch), model.logits(**batch), atol=1e-6, rtol=1e-6)


def test_a_reader_with_subword_units_comes_back(text_encoder, tmp_path):
    encoder = text_encoder()
    units = SubwordUnits(torch.randint(0, 5, (33, 3), generator=torch.Generator().manual_seed(0)), 4, 8, 32)
    torch.nn.init.normal_(units.output.weight)
    save_reader(tmp_path, SpanModel(encoder, nn.Embedding(33, 32), units).eval(), LAYOUT, {"what": "toy"})
    model, _, _ = load_reader(tmp_path)
    assert torch.equal(model.subwords.tokens, units.tokens) and model.subwords.shape == {"longest": 3, "units": 4, "width": 8}
    batch = collate([LAYOUT.sequence(np.arange(4), np.arange(9))], LAYOUT.pad)
    with torch.no_grad():
        encoded = model.logits(**batch)
        model.subwords = None
        assert not torch.allclose(encoded, model.logits(**batch))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"subwords": {"units": 4}}))
    with pytest.raises(InputError, match="does not describe a reader"):
        load_reader(tmp_path)


def test_a_saved_reader_is_small_rounds_little_and_stays_as_it_is(span_model, saved, tmp_path):
    rng = np.random.default_rng(0)
    batch = collate([LAYOUT.sequence(rng.integers(0, 30, 4), rng.integers(0, 30, 20))], LAYOUT.pad)
    whole, (model, layout, _) = span_model(), load_reader(saved)
    with torch.no_grad():
        assert 0 < (whole.logits(**batch) - model.logits(**batch)).abs().max() < 0.05
    size = (saved / "model.safetensors").stat().st_size  # matrices of 32 columns: scales and biases weigh much
    assert size < 0.5 * sum(p.numel() * 4 for p in whole.parameters())
    assert sorted(p.name for p in saved.iterdir()) == ["card.json", "config.json", "model.safetensors"]
    save_reader(tmp_path / "again", model, layout, {})
    assert (tmp_path / "again/model.safetensors").read_bytes() == (saved / "model.safetensors").read_bytes()


# ---- refusals


def rewrite(folder, change):
    """Change the tensors and let the card fit them again."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path)
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps(card | {"weights": hash_files([path])}))


def bitten(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.safetensors").write_bytes(b""), "cannot read the weights .* train or fetch the model again"),
        (lambda f: cut(f / "model.safetensors"), "cannot read the weights .*model.safetensors.* train or fetch the model again"),
        (lambda f: bitten(f / "model.safetensors"), "does not match its card"),
        (lambda f: rewrite(f, lambda t: {n: v for n, v in t.items() if "layer.1.attention.self.query" not in n}),
         r"does not fit its config: 2 weights .*missing .*layer.1.attention.self.query"),
        (lambda f: rewrite(f, lambda t: t | {"encoder.pooler.extra": torch.zeros(3)}),
         r"1 weights .*left over \(encoder.pooler.extra"),
        (lambda f: rewrite(f, lambda t: {n: v for n, v in t.items() if n != "head.weight"}), "head.weight"),
    ],
)  # fmt: skip
def test_damaged_weights_are_named(saved, damage, message):
    damage(saved)
    with pytest.raises(InputError, match=message):
        load_reader(saved)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("name", ["card.json", "config.json", "model.safetensors"])
def test_missing_files_are_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(InputError, match=name):
        load_reader(saved)


@pytest.mark.parametrize("change", [{"symbols": [40, 32]}, {"hidden_size": 16}, {"num_hidden_layers": 3}])
def test_a_config_of_another_size_is_refused(saved, change):
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(InputError, match="does not fit its config"):
        load_reader(saved)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("config.json", lambda c: c.pop("symbols")),
        ("config.json", lambda c: c.pop("model_type")),
        ("config.json", lambda c: c.update(symbols="many")),
        ("config.json", lambda c: c.update(hidden_size="wide")),
        ("card.json", lambda c: c.pop("layout")),
        ("card.json", lambda c: c["layout"].pop("cls")),
        ("card.json", lambda c: c["layout"].update(colour=1)),
    ],
)
def test_damaged_descriptions_are_one_sentence(saved, name, change):
    values = json.loads((saved / name).read_text())
    change(values)
    (saved / name).write_text(json.dumps(values))
    with pytest.raises(InputError, match="does not describe a reader"):
        load_reader(saved)
