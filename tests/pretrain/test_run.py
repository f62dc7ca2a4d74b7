"""Runs of pre-training, from recordings to a folder: iterations, kills, codebooks, shared targets,
both methods."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import HubertModel

from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.options import TrainingOptions
from speechssl.pretrain import run as iteration
from speechssl.pretrain.data import Cropper
from speechssl.pretrain.model import LABEL_HEAD
from speechssl.pretrain.options import (
    Adversary,
    Batches,
    Continue,
    Contrast,
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

TRAINING = TrainingOptions(5, 1e-3, warmup_steps=1, save_every=2, log_every=1, bf16=False)
NOISY = Distortion("g+b", distorted=(0.5, 0.9), snr_range=(5.0, 10.0), snr_range_end=(0.0, 5.0))


CLEAN = {"distortion": Distortion()}
COMMON = {"training": TRAINING, "batches": Batches(4, 0.4), "distortion": NOISY}
BOTH = {
    "distillation": Distillation(2.0),
    "adversary": Adversary("multi", domain_adversary_width=8),
}


LAYER_1 = Targets(layer=1, clusters=6)


def pretrain(o):
    """Run it; the encoder."""
    if isinstance(o, Hubert):
        pretrain_hubert(o)
    else:
        continue_pretraining(o)
    return load_encoder(o.out / "encoder")


def hubert_options(source, out, start, **changes):
    made = {"targets": LAYER_1, "prediction": Prediction(1.0, 8), "masks": Masks(0.5, 4)}
    made |= {"convolutions": Convolutions(10.0, 1.0)}
    return Continue(source=source, out=out, start=start, **COMMON | made | changes)


def wav2vec2_options(source, out, start, **changes):
    made = {"masks": Masks(0.5, 4), "contrast": Contrast(negatives=5)}
    return Continue(source=source, out=out, start=start, **COMMON | made | changes)


def curve(out):
    """Step -> what was logged of it. The last lines count: those of a run that was killed come
    before."""
    rows = [row for row in read_lines(out / "checkpoints/log.jsonl") if "loss" in row]
    for row in rows:
        for name in ("epoch", "seconds", "peak_gb", "gpu_gb"):
            row.pop(name, None)
    return {row["step"]: row for row in rows}


def same_weights(a, b, *names):
    for name in names:
        left, right = (load_file(folder / name) for folder in (a, b))
        assert left.keys() == right.keys()
        assert all(torch.equal(value, right[key]) for key, value in left.items()), name


@pytest.mark.slow
def test_recordings_that_are_shorter_than_a_crop_are_trained_on_too(
    hubert, mini_corpus, tmp_path, monkeypatch, capsys
):
    call, shapes = Cropper.__call__, {}

    def recorded(self, step):
        made = call(self, step)
        shapes[step] = tuple(made["labels"].shape)
        assert made["clean_samples"].shape == made["samples"].shape
        assert len(made["domains"]) == shapes[step][0]
        return made

    monkeypatch.setattr(Cropper, "__call__", recorded)
    mixed = BOTH | {
        "batches": Batches(4, 4.0),
        "distortion": replace(NOISY, silence=0.5),
        "training": replace(TRAINING, accumulation=2),
    }
    root = mini_corpus((70_000, 33_000, 35_000, 5_000, 55_000))
    pretrain(hubert_options(root, tmp_path / "out", hubert, **mixed))
    assert ("1 of 5 recordings are too short for a crop of 2 s") in capsys.readouterr().err
    assert set(range(10)) <= set(shapes)
    assert {frames for _, frames in shapes.values()} == {200, 171, 102}
    assert all(650 < rows * frames <= 800 for rows, frames in shapes.values())
    rows = curve(tmp_path / "out")
    assert list(rows) == [1, 2, 3, 4, 5]
    assert all(row["loss"] > 0 and "distillation" in row for row in rows.values())


KINDS = {
    "hubert": ("hubert", CLEAN | {"teacher": "mfcc", "targets": Targets(clusters=6)}, 3),
    "wav2vec2-distorted": ("wav2vec2", BOTH, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_killed_run_goes_on_with_the_same_loss_curve_to_the_same_weights(
    name, request, mini_corpus, tmp_path, monkeypatch, dies_at
):
    kind, changes, at = KINDS[name]
    start, root = request.getfixturevalue(kind), mini_corpus()
    options, files = wav2vec2_options, ["encoder/model.safetensors"]
    files.append("checkpoints/checkpoint-5/model.safetensors")
    if name == "hubert":
        config = HubertModel.from_pretrained(start).config
        monkeypatch.setattr(iteration, "_load_hubert", lambda o: (HubertModel(config), True))
        options, files = hubert_options, [*files, f"encoder/{LABEL_HEAD}"]
    whole, killed = tmp_path / "whole", tmp_path / "apart" / "killed"
    expected = pretrain(options(root, whole, start, **changes)).hash
    with dies_at(Cropper, at):
        pretrain(options(root, killed, start, **changes))
    assert not (killed / "encoder/card.json").exists()
    assert pretrain(options(root, killed, start, **changes)).hash == expected
    assert curve(whole) == curve(killed)
    assert list(curve(whole)) == [1, 2, 3, 4, 5]
    same_weights(whole, killed, *files)
    for row in curve(whole).values():
        assert ("distillation" in row) == ("distillation" in changes)
        assert ("domain_accuracy" in row) == ("adversary" in changes)


@pytest.mark.slow
def test_what_continues_is_a_folder_of_its_own_that_names_its_distortions(
    hubert, mini_corpus, tmp_path
):
    rounded = {"targets": replace(LAYER_1, save_bf16=True)}
    found = pretrain(hubert_options(mini_corpus(), tmp_path / "one", hubert, **BOTH | rounded))
    out = tmp_path / "one/encoder"
    assert found.hash != load_encoder(hubert).hash
    assert found.layers == 2
    _, info = HubertModel.from_pretrained(out, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert all(
        torch.equal(p, p.bfloat16().float()) for p in load_checkpoint(out).model.parameters()
    )
    state = load_file(tmp_path / "one/checkpoints/checkpoint-5/model.safetensors")
    assert {name.split(".")[0] for name in state} == {"encoder", "project", "labels", "auxiliary"}
    # nothing of the teacher
    assert all(".classifier." in name for name in state if name.startswith("auxiliary"))
    text = (out / "card.json").read_text()
    card = json.loads(text)
    noise = make_distortions(NOISY, 0, tmp_path / "one")
    assert card["options"]["distort"] == noise.card
    assert str(tmp_path) not in text


@pytest.mark.slow
def test_the_same_codebook_goes_on_with_its_head_and_another_k_gets_a_new_one(
    hubert, mini_corpus, tmp_path
):
    """The head of the first run is that of the second before its first step; targets and audio are
    shared beside both."""
    root, first, second = mini_corpus(), tmp_path / "one/encoder", tmp_path / "two"
    pretrain(hubert_options(root, tmp_path / "one", hubert))
    book = Targets(codebook=str(tmp_path / "one/targets.safetensors"))
    still = replace(TRAINING, steps=1, learning_rate=0.0)
    same = {"teacher": hubert, "targets": book, "training": still}
    made = hubert_options(root, second, str(first), **same)
    pretrain(made)
    same_weights(first, second / "encoder", LABEL_HEAD, "model.safetensors")
    assert len(list(tmp_path.glob("targets-*"))) == len(list(tmp_path.glob("packed-*"))) == 1
    pretrain(replace(made, out=tmp_path / "three", targets=replace(LAYER_1, clusters=8)))
    assert load_file(tmp_path / "three/encoder" / LABEL_HEAD)["labels"].shape == (8, 8)


def test_a_first_iteration_learns_clusters_of_mfccs_and_is_made_once(mini_corpus, tmp_path):
    out, two = tmp_path / "first", replace(TRAINING, steps=2)
    small = {"targets": Targets(clusters=6), "masks": Masks(0.5, 4), "batches": Batches(2, 0.5)}
    o = Hubert(source=mini_corpus(), out=out, training=two, **small)
    pretrain(o)
    assert json.loads((out / "encoder/card.json").read_text())["targets"]["encoder"] == "mfcc"
    with untouched(out / "encoder"):
        pretrain(o)
