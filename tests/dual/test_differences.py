"""Weights as their difference from another reader's: the same bytes come back, and what they are restored from is never another."""

import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel
from speechssl.dual.weights import CODED, DIFFERENCE, load_difference, load_reader, quantise, save_difference, save_reader
from speechssl.errors import InputError
from speechssl.io import model_folder, read_json

LAYOUT = Layout(cls=30, sep=31, pad=32, size=24, stride=12, question=6, answer=5)


@pytest.fixture
def two(text_encoder, tmp_path):
    """A set of models: `text-qa`, and `dual`, which is it with other symbols and every weight moved a little."""
    for name, symbols, moved in (("text-qa", 40, 0.0), ("dual", 33, 0.002)):
        torch.manual_seed(0)
        model = SpanModel(text_encoder("bert"), nn.Embedding(symbols, 32)).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight += moved * torch.randn_like(weight)
        save_reader(tmp_path / name, model, LAYOUT, {"what": name})
    return tmp_path


def differ(folder):
    """Leave dual as its difference from text-qa; what it was before."""
    model = folder / "dual/model.safetensors"
    before = load_reader(folder / "dual")[0].state_dict(), model.read_bytes()
    save_difference(model, folder / "text-qa/model.safetensors", folder / "dual" / DIFFERENCE)
    model.unlink()
    return before


def test_a_reader_comes_back_to_the_bit(two):
    weights, content = differ(two)
    found = load_reader(two / "dual")[0].state_dict()
    assert found.keys() == weights.keys() and all(torch.equal(found[name], weights[name]) for name in weights)
    assert (two / "dual" / DIFFERENCE).stat().st_size < len(content)


def test_rows_the_other_has_not_are_kept_as_they_are(two):
    whole = load_file(two / "dual/model.safetensors")
    differ(two)
    there = load_file(two / "dual" / DIFFERENCE)
    assert torch.equal(there["embedding.weight"], whole["embedding.weight"])  # 33 rows and not 40
    assert "encoder.encoder.layer.0.output.dense.weight" + CODED in there


@given(st.integers(0, 2**32 - 1), st.floats(0, 40), st.integers(1, 7), st.integers(1, 9))
def test_any_two_matrices(tmp_path_factory, seed, far, rows, columns):
    folder = tmp_path_factory.mktemp("set")
    generator = torch.Generator().manual_seed(seed)
    one, step = (torch.randn(rows, columns, generator=generator) for _ in range(2))
    one[0] *= 1e4
    for name, matrix in (("a", one), ("b", one + far * step)):
        (folder / name).mkdir()
        save_file(quantise({"w": matrix, "bias": matrix[0]}), folder / name / "model.safetensors")
    save_difference(folder / "b/model.safetensors", folder / "a/model.safetensors", folder / "b" / DIFFERENCE)
    found, wanted = load_difference(folder / "b" / DIFFERENCE), load_file(folder / "b/model.safetensors")
    assert found.keys() == wanted.keys() and all(torch.equal(found[n], wanted[n]) for n in wanted)


def test_a_file_of_others_is_refused_where_it_would_not_come_back(two):
    model = two / "dual/model.safetensors"
    save_file(load_file(model), model, {"format": "pt"})  # what this says would be lost
    with pytest.raises(ValueError, match="would not come back"):
        save_difference(model, two / "text-qa/model.safetensors", two / "dual" / DIFFERENCE)
    assert not (two / "dual" / DIFFERENCE).exists()


def test_a_whole_file_is_read_before_a_difference(two):
    differ(two)
    torch.manual_seed(7)
    trained = load_reader(two / "text-qa")[0]
    save_reader(two / "dual", trained, LAYOUT, {"what": "trained again"})
    assert load_reader(two / "dual")[2]["what"] == "trained again"


# ---- refusals


def test_without_the_other_reader_it_says_which(two):
    differ(two)
    shutil.rmtree(two / "text-qa")
    with pytest.raises(InputError, match=r"is a difference from .*text-qa/model.safetensors, which is missing or another"):
        load_reader(two / "dual")


def test_another_reader_in_its_place_is_not_believed(two):
    differ(two)
    path = two / "text-qa/model.safetensors"
    save_file(load_file(path) | {"embedding.weight.row_scale": torch.ones(40)}, path)
    with pytest.raises(InputError, match="which is missing or another"):
        load_reader(two / "dual")


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_a_file_that_was_cut_is_named(two, keep):
    differ(two)
    path = two / "dual" / DIFFERENCE
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=f"cannot read the weights .*{DIFFERENCE}"):
        load_reader(two / "dual")


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9])
def test_no_byte_can_be_changed_in_silence(two, share):
    differ(two)
    path = two / "dual" / DIFFERENCE
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 4
    path.write_bytes(content)
    with pytest.raises(InputError, match=DIFFERENCE):
        load_reader(two / "dual")


# ---- what ships


@pytest.mark.parametrize("part", ["dual", "speechbert"])
def test_what_ships_reads_alone_where_the_package_is(tmp_path, part):
    shutil.copytree(model_folder() / part, tmp_path / part)
    assert (tmp_path / part / DIFFERENCE).is_file()
    model, _, card = load_reader(tmp_path / part)
    assert card["weights"] == read_json(model_folder() / part / "card.json")["weights"] and not model.training
