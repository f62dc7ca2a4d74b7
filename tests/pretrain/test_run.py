"""Tests of runs of pre-training by HuBERT and wav2vec 2.0, from recordings to a folder: kills,
distortions, label heads and shared targets."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import HubertModel

from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.options import TrainingOptions
from speechssl.pretrain.data import Cropper
from speechssl.pretrain.model import LABEL_HEAD
from speechssl.pretrain.options import (
    Adversary,
    Batches,
    Continue,
    Convolutions,
    Distillation,
    Distortion,
    Hubert,
    Masks,
    Prediction,
    Targets,
)
from speechssl.pretrain.run import continue_pretraining, make_distortions, pretrain_hubert

from ..files import read_lines, untouched

TRAINING = TrainingOptions(
    steps=5, learning_rate=1e-3, warmup_steps=1, save_every=2, log_every=1, bf16=False
)
# white noise and babble
NOISE = Distortion("g+b", distorted=(0.5, 0.9), snr_range=(5.0, 10.0), snr_range_end=(0.0, 5.0))
AUXILIARY = {
    "distillation": Distillation(distil=2.0),
    "adversary": Adversary("multi", domain_adversary_width=8),
}
MASKS = Masks(mask_probability=0.5, mask_length=4)
LAYER_1 = Targets(layer=1, clusters=6)


def pretrain(o):
    """Run a training, and return its encoder."""
    continue_pretraining(o)
    return load_encoder(o.out / "encoder")


def make_options(source, out, start, **changes):
    options = {
        "training": TRAINING,
        "batches": Batches(crops=4, crop_seconds=0.4),
        "distortion": NOISE,
        "masks": MASKS,
    }
    return Continue(source=source, out=out, start=start, **options | changes)


def hubert_options(source, out, start, **changes):
    options = {
        "targets": LAYER_1,
        "prediction": Prediction(visible_weight=1.0, projection=8),
        "convolutions": Convolutions(feature_penalty=10.0, gradient_scale=1.0),
    }
    return make_options(source, out, start, **options | changes)


def read_log(out):
    """Return the line of the log of every step, without times and memory."""
    lines = [line for line in read_lines(out / "checkpoints/log.jsonl") if "loss" in line]
    for line in lines:
        for name in ("epoch", "seconds", "peak_gb", "gpu_gb"):
            line.pop(name, None)
    return lines


def check_same_weights(folder, other, name):
    """Assert that a file holds the same weights in two folders."""
    weights, other_weights = load_file(folder / name), load_file(other / name)
    assert weights.keys() == other_weights.keys()
    for key, value in weights.items():
        assert torch.equal(value, other_weights[key]), key


@pytest.mark.slow
def test_recordings_that_are_shorter_than_a_crop_are_trained_on_too(
    hubert, mini_corpus, tmp_path, monkeypatch, capsys
):
    make_batch, lengths = Cropper.__call__, set()  # lengths of crops, in frames

    def note_length(self, step):
        batch = make_batch(self, step)
        lengths.add(batch["labels"].shape[1])
        return batch

    monkeypatch.setattr(Cropper, "__call__", note_length)
    changes = AUXILIARY | {
        "batches": Batches(crops=4, crop_seconds=4.0),
        "distortion": replace(NOISE, silence=0.5),
        "training": replace(TRAINING, accumulation=2),
    }
    root = mini_corpus((70_000, 33_000, 35_000, 5_000, 55_000))  # samples
    pretrain(hubert_options(root, tmp_path / "out", hubert, **changes))
    log = read_log(tmp_path / "out")
    assert [line["step"] for line in log] == [1, 2, 3, 4, 5]
    assert all(line["loss"] > 0 for line in log)
    # of full length, of the recording of 55,000 samples, and of the two shortest that are left
    assert lengths == {200, 171, 102}
    # a crop may be half as long as it should be
    assert "1 of 5 recordings are too short for a crop of 2 s" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hubert", "wav2vec2"])
def test_a_killed_run_goes_on_to_the_same_weights(kind, request, mini_corpus, tmp_path, dies_at):
    """It is killed in its fourth step."""
    whole, killed = tmp_path / "whole", tmp_path / "apart" / "killed"  # they share no targets
    make = hubert_options if kind == "hubert" else make_options
    o = make(mini_corpus(), whole, request.getfixturevalue(kind), **AUXILIARY)
    expected = pretrain(o)
    with dies_at(Cropper, 3):
        pretrain(replace(o, out=killed))
    assert not (killed / "encoder/card.json").exists()
    assert pretrain(replace(o, out=killed)).hash == expected.hash
    log = read_log(whole)
    assert [line["step"] for line in log] == [1, 2, 3, 4, 5]
    assert read_log(killed) == log
    for line in log:
        assert "distillation" in line
        assert "domain_accuracy" in line
    for name in ("encoder/model.safetensors", "checkpoints/checkpoint-5/model.safetensors"):
        check_same_weights(whole, killed, name)


@pytest.mark.slow
def test_a_continued_encoder_is_written_alone_with_its_distortions_in_the_card(
    hubert, mini_corpus, tmp_path
):
    changes = AUXILIARY | {"targets": replace(LAYER_1, save_bf16=True)}
    out = tmp_path / "one"
    encoder = pretrain(hubert_options(mini_corpus(), out, hubert, **changes))
    assert encoder.hash != load_encoder(hubert).hash
    _, info = HubertModel.from_pretrained(out / "encoder", output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for weight in load_checkpoint(out / "encoder").model.parameters():
        assert torch.equal(weight, weight.bfloat16().float())
    state = load_file(out / "checkpoints/checkpoint-5/model.safetensors")
    assert {name.split(".")[0] for name in state} == {"encoder", "project", "labels", "auxiliary"}
    # of the auxiliary modules only the adversary is saved, and not the teacher
    assert all(".classifier." in name for name in state if name.startswith("auxiliary"))
    card = (out / "encoder/card.json").read_text()
    distortions = make_distortions(NOISE, seed=0, out=out)
    assert json.loads(card)["options"]["distort"] == distortions.card
    assert str(tmp_path) not in card


@pytest.mark.slow
def test_a_label_head_goes_on_with_its_codebook(hubert, mini_corpus, tmp_path):
    """The second run trains one step at the rate 0, so that its weights are those that it starts
    with."""
    root = mini_corpus()
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    pretrain(hubert_options(root, first, hubert))
    codebook = str(first / "targets.safetensors")
    o = hubert_options(
        root,
        second,
        str(first / "encoder"),
        teacher=hubert,
        targets=Targets(codebook=codebook),
        training=replace(TRAINING, steps=1, learning_rate=0.0),
    )
    pretrain(o)
    for name in (LABEL_HEAD, "model.safetensors"):
        check_same_weights(first / "encoder", second / "encoder", name)
    # both runs share targets and audio
    assert len(list(tmp_path.glob("targets-*"))) == 1
    assert len(list(tmp_path.glob("packed-*"))) == 1
    # a codebook of another size gets a new head
    pretrain(replace(o, out=third, targets=replace(LAYER_1, clusters=8)))
    assert len(load_file(third / "encoder" / LABEL_HEAD)["labels"]) == 8


@pytest.mark.slow
def test_a_first_iteration_learns_clusters_of_mfccs_and_is_trained_once(mini_corpus, tmp_path):
    o = Hubert(
        source=mini_corpus(),
        out=tmp_path / "first",
        training=replace(TRAINING, steps=2),
        targets=Targets(clusters=6),
        masks=MASKS,
        batches=Batches(crops=2, crop_seconds=0.5),
    )
    pretrain_hubert(o)
    card = json.loads((o.out / "encoder/card.json").read_text())
    assert card["targets"]["encoder"] == "mfcc"
    with untouched(o.out / "encoder"):
        pretrain_hubert(o)
