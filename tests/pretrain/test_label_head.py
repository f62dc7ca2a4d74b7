"""The head of HuBERT's loss travels beside its encoder: the same codebook goes on with it, another gets a new one, and is told."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from speechssl.errors import InputError
from speechssl.pretrain.hubert import NAME, restore_label_head, save_label_head


class Model(nn.Module):
    """As much of a `HubertPretraining` as has to do with it."""

    def __init__(self, clusters=5, width=4, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.project, self.labels = nn.Linear(8, width), nn.Parameter(torch.randn(clusters, width))


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.fixture
def start(tmp_path):
    save_label_head(Model(), tmp_path, "cafe")
    return tmp_path


def test_the_head_of_the_same_codebook_goes_on_exactly(start, capsys):
    model = Model(seed=1)
    assert restore_label_head(model, str(start), "cafe") is True
    assert same(model, Model()) and all(weight.requires_grad for weight in model.parameters())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("clusters", "width", "codebook"), [(7, 4, "cafe"), (5, 4, "beef"), (5, 6, "cafe")], ids=["clusters", "codebook", "width"]
)
def test_another_head_is_made_anew_and_said(start, capsys, clusters, width, codebook):
    model = Model(clusters, width, seed=1)
    assert restore_label_head(model, str(start), codebook) is False
    assert same(model, Model(clusters, width, seed=1))
    said = (
        f"is 5 clusters in 4 dimensions for codebook cafe; it was re-made: {clusters} clusters in {width} dimensions for {codebook}"
    )
    assert said in capsys.readouterr().err


def test_an_encoder_without_a_head_gets_one_and_it_is_said(tmp_path, capsys):
    assert restore_label_head(Model(), str(tmp_path), "cafe") is False
    assert f"{tmp_path} has no label head; one for 5 clusters was made" in capsys.readouterr().err


def test_a_shipped_encoder_is_not_given_the_head_of_a_folder_of_its_name(tmp_path, monkeypatch, capsys):
    save_label_head(Model(), tmp_path / "minisqa-en/encoder", "cafe")
    monkeypatch.chdir(tmp_path)
    assert restore_label_head(Model(seed=1), "minisqa-en/encoder", "cafe") is False
    assert "re-made" in (said := capsys.readouterr().err) or "has no label head" in said


def cut(path):
    path.write_bytes(path.read_bytes()[:40])


def without(name):
    def damage(path):
        save_file({k: v for k, v in load_file(path).items() if k != name}, path, {"codebook": "cafe"})

    return damage


def flat(path):
    save_file(load_file(path) | {"labels": torch.zeros(5)}, path, {"codebook": "cafe"})


@pytest.mark.parametrize("damage", [cut, without("labels"), without("project.weight"), flat])
def test_a_damaged_head_is_one_sentence(start, damage):
    damage(start / NAME)
    with pytest.raises(
        InputError, match=rf"^cannot read the label head .*{NAME} \(.+\); delete it and a new one is made$"
    ) as caught:
        restore_label_head(Model(), str(start), "cafe")
    assert "\n" not in str(caught.value)
