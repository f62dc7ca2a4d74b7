"""One iteration of pre-training from a corpus to an encoder folder; the next one goes on from it."""

import json

import pytest
import torch

from speechssl.corpora.records import data_hash
from speechssl.encoders.loading import load_checkpoint
from speechssl.errors import InputError
from speechssl.pretraining import iteration
from speechssl.pretraining.iteration import IterationOptions, pretrain
from speechssl.pretraining.masking import MaskOptions
from speechssl.pretraining.targets import packed
from speechssl.training import TrainingOptions


def options(**changes):
    training = TrainingOptions(steps=2, learning_rate=1e-4, warmup_steps=1, save_every=1, bf16=False)
    common = {"training": training, "clusters": 6, "mask": MaskOptions(0.5, 4, 1.0), "crops": 2, "seconds": 0.5}
    return IterationOptions(**common | changes)


@pytest.fixture
def first(mini_corpus, tmp_path):
    root = mini_corpus()
    pretrain(root, tmp_path / "first", options())
    return root, tmp_path / "first"


def test_an_iteration_leaves_an_encoder_that_says_what_made_it(first):
    root, out = first
    card = json.loads((out / "encoder/card.json").read_text())
    assert card["targets"]["encoder"] == "mfcc" and card["training"]["steps"] == 2
    assert packed(data_hash(root, "train"), out).is_dir()
    before = (out / "encoder/model.safetensors").stat().st_mtime_ns
    pretrain(root, out, options())
    assert (out / "encoder/model.safetensors").stat().st_mtime_ns == before


def test_the_next_iteration_goes_on_in_full_precision_from_rounded_weights(first, tmp_path):
    root, _ = first
    rounded = pretrain(root, tmp_path / "rounded", options(save_bf16=True))
    assert all(torch.equal(p, p.bfloat16().float()) for p in load_checkpoint(tmp_path / "rounded/encoder").model.parameters())
    teacher = str(tmp_path / "rounded/encoder")
    second = pretrain(root, tmp_path / "second", options(teacher=teacher, start=teacher, layer=1, smooth=3))
    assert second.hash != rounded.hash
    assert not all(torch.equal(p, p.bfloat16().float()) for p in load_checkpoint(tmp_path / "second/encoder").model.parameters())


def test_other_inputs_are_refused(first):
    root, out = first
    with pytest.raises(InputError, match="options.clusters"):
        pretrain(root, out, options(clusters=7))


def test_a_start_that_is_no_hubert_or_is_not_there_is_refused(first, tmp_path, text_encoder):
    text_encoder().save_pretrained(tmp_path / "bert")
    for start in (str(tmp_path / "bert"), str(tmp_path / "nowhere")):
        with pytest.raises(InputError, match="bert|nowhere"):
            pretrain(first[0], tmp_path / "next", options(start=start))


def test_a_start_that_cannot_be_trained_is_said_before_targets_are_made(first, tmp_path, hubert_folder, monkeypatch):
    monkeypatch.setattr(iteration, "make_targets", lambda *_: pytest.fail("targets were made"))
    with pytest.raises(InputError, match=" is a hubert model, but no plain HuBERT .* go on from another"):
        pretrain(first[0], tmp_path / "next", options(start=str(hubert_folder("layer", hidden_act="relu"))))
    assert not (tmp_path / "next").exists()
