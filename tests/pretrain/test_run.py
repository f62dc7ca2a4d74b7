"""Runs of pre-training, from recordings to a folder: iterations, kills, codebooks, shared targets,
both methods."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import HubertModel, Wav2Vec2ForPreTraining

from speechssl.augment.training import parse_distortions
from speechssl.data.records import data_hash
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.errors import InputError
from speechssl.finetuning import added
from speechssl.options import TrainingOptions
from speechssl.pretrain import run as iteration
from speechssl.pretrain.data import Cropper, MaskOptions
from speechssl.pretrain.model import NAME, AdversaryOptions, DistilOptions, Wav2Vec2Pretraining
from speechssl.pretrain.presets import HubertOptions, Wav2Vec2Options
from speechssl.pretrain.run import hashes, pretrain
from speechssl.units.kmeans import load_codebook

from ..files import read_lines, untouched

TRAINING = TrainingOptions(5, 1e-3, warmup_steps=1, save_every=2, log_every=1, bf16=False)
NOISE = parse_distortions("g+b", probability=(0.5, 0.9), snr=(5.0, 10.0), snr_end=(0.0, 5.0))
COMMON = {"training": TRAINING, "crops": 4, "seconds": 0.4, "distort": NOISE}
BOTH = {
    "distil": DistilOptions(2.0, (1, 2)),
    "adversary": AdversaryOptions("multi", (1, 2), width=8),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Nothing here is so large that what is left of it must be swept up at once, which takes most
    of the time."""
    monkeypatch.setattr("speechssl.encoders.load.gc", SimpleNamespace(collect=lambda: 0))


def hubert_options(encoder, **changes):
    made = {
        "teacher": encoder,
        "start": encoder,
        "layer": 1,
        "clusters": 6,
        "mask": MaskOptions(0.5, 4, 1.0),
        "projection": 8,
    }
    return HubertOptions(**COMMON | made | changes)


def wav2vec2_options(encoder, **changes):
    return Wav2Vec2Options(
        **COMMON | {"start": encoder, "mask": MaskOptions(0.5, 4), "negatives": 5} | changes
    )


def curve(out):
    """Step -> what was logged of it. The last lines count: those of a run that was killed come
    before."""
    rows = read_lines(out / "checkpoints/log.jsonl")
    drop = ("times_real_time", "epoch", "seconds", "peak_gb", "gpu_gb")
    return {
        row["step"]: {k: v for k, v in row.items() if k not in drop}
        for row in rows
        if "loss" in row
    }


def same_files(a, b, *names):
    for name in names:
        left, right = (load_file(folder / name) for folder in (a, b))
        assert left.keys() == right.keys() and all(
            torch.equal(value, right[key]) for key, value in left.items()
        ), name


# ---- recordings of many lengths


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hubert", "wav2vec2"])
def test_recordings_that_are_shorter_than_a_crop_are_trained_on_too(
    kind, request, mini_corpus, tmp_path, monkeypatch, capsys
):
    start, call, shapes = request.getfixturevalue(kind), Cropper.__call__, {}

    def recorded(self, step):
        made = call(self, step)
        shapes[step] = tuple(made["labels"].shape)
        assert (
            made["clean_samples"].shape == made["samples"].shape
            and len(made["domains"]) == shapes[step][0]
        )
        return made

    monkeypatch.setattr(Cropper, "__call__", recorded)
    options = hubert_options if kind == "hubert" else wav2vec2_options
    mixed = {"seconds": 4.0, "silence": 0.5, "training": replace(TRAINING, accumulation=2)} | BOTH
    pretrain(
        mini_corpus((70_000, 33_000, 35_000, 5_000, 55_000)),
        tmp_path / "out",
        options(start, **mixed),
    )
    assert (
        "1 of 5 recordings are too short for a crop of 2 s, the shortest"
    ) in capsys.readouterr().err
    assert set(range(10)) <= set(shapes) and {frames for _, frames in shapes.values()} == {
        200,
        171,
        102,
    }
    assert all(650 < rows * frames <= 800 for rows, frames in shapes.values())
    rows = curve(tmp_path / "out")
    assert list(rows) == [1, 2, 3, 4, 5] and all(
        row["loss"] > 0 and "distillation" in row for row in rows.values()
    )


# ---- killed, in each kind of training

KINDS = {
    "hubert": ("hubert", {"start": None, "teacher": "mfcc", "layer": 0, "distort": None}, 3),
    "hubert-at-once": ("hubert", {"adversary": replace(BOTH["adversary"], layers=())}, 0),
    "reversal": ("hubert", {"training": replace(TRAINING, accumulation=2)} | BOTH, 7),
    "alternating": (
        "hubert",
        BOTH | {"adversary": AdversaryOptions("binary", mode="alternating", width=8)},
        3,
    ),
    "wav2vec2": ("wav2vec2", {"distort": None}, 3),
    "wav2vec2-distorted": ("wav2vec2", BOTH, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_killed_run_goes_on_with_the_same_loss_curve_to_the_same_weights(
    name, request, mini_corpus, tmp_path, monkeypatch, dies_at
):
    kind, changes, at = KINDS[name]
    start, root = request.getfixturevalue(kind), mini_corpus()
    options = hubert_options if kind == "hubert" else wav2vec2_options
    if name == "hubert":
        config = HubertModel.from_pretrained(start).config
        monkeypatch.setattr(
            iteration, "_hubert_encoder", lambda options: (HubertModel(config), True)
        )
    whole, killed = tmp_path / "whole", tmp_path / "apart" / "killed"
    pretrain(root, whole, options(start, **changes))
    with dies_at(Cropper, at):
        pretrain(root, killed, options(start, **changes))
    assert not (killed / "encoder/card.json").exists()
    assert (
        pretrain(root, killed, options(start, **changes)).hash
        == load_encoder(whole / "encoder").hash
    )
    assert curve(whole) == curve(killed) and list(curve(whole)) == [1, 2, 3, 4, 5]
    heads = (f"encoder/{NAME}",) if kind == "hubert" else ()
    same_files(
        whole,
        killed,
        "encoder/model.safetensors",
        "checkpoints/checkpoint-5/model.safetensors",
        *heads,
    )
    wanted = {"distillation": "distil" in changes, "domain_accuracy": "adversary" in changes}
    assert all(
        (name in row) is there for row in curve(whole).values() for name, there in wanted.items()
    )


@pytest.mark.slow
def test_a_finished_run_is_trained_further(hubert, mini_corpus, tmp_path):
    root, encoders = mini_corpus(), {}
    for name, steps in (("whole", (5,)), ("more", (3, 5))):
        for count in steps:
            training = replace(COMMON["training"], steps=count, horizon=5)
            encoders[name] = pretrain(
                root, tmp_path / name / "run", hubert_options(hubert, training=training)
            ).hash
    assert encoders["whole"] == encoders["more"] and curve(tmp_path / "whole/run") == curve(
        tmp_path / "more/run"
    )


@pytest.mark.slow
def test_a_run_killed_while_its_result_is_written_writes_it_again(
    hubert, mini_corpus, tmp_path, monkeypatch, dies_in
):
    root, out = mini_corpus(), tmp_path / "out"
    with dies_in(iteration, "save_label_head"):
        pretrain(root, out, hubert_options(hubert, **BOTH))
    assert (out / "encoder/model.safetensors").is_file() and not (
        out / "encoder/card.json"
    ).exists()
    monkeypatch.setattr(Cropper, "__call__", lambda *_: pytest.fail("this was trained before"))
    found = pretrain(root, out, hubert_options(hubert, **BOTH))
    saved, trained = (
        load_file(out / name)
        for name in ("encoder/model.safetensors", "checkpoints/checkpoint-5/model.safetensors")
    )
    assert (
        all(torch.equal(saved[key], trained[f"encoder.{key}"]) for key in saved)
        and found.hash == load_encoder(out / "encoder").hash
    )


# ---- HuBERT


def test_what_a_run_begins_from_is_known_by_its_weights_not_by_its_place(hubert, tmp_path):
    own, moved = load_encoder(hubert).hash, str(shutil.copytree(hubert, tmp_path / "moved"))
    assert hashes(hubert_options(moved, teacher=hubert)) == {"start": own, "teacher": own}
    assert hashes(hubert_options(None, teacher="mfcc")) == {"start": None, "teacher": "mfcc"}


@pytest.mark.slow
def test_what_continues_is_a_folder_of_its_own_that_names_its_distortions(
    hubert, mini_corpus, tmp_path
):
    found = pretrain(
        mini_corpus(), tmp_path / "one", hubert_options(hubert, save_bf16=True, **BOTH)
    )
    out = tmp_path / "one/encoder"
    assert found.hash != load_encoder(hubert).hash and found.layers == 2
    _, info = HubertModel.from_pretrained(out, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert all(
        torch.equal(p, p.bfloat16().float()) for p in load_checkpoint(out).model.parameters()
    )
    state = load_file(tmp_path / "one/checkpoints/checkpoint-5/model.safetensors")
    assert {name.split(".")[0] for name in state} == {"encoder", "project", "labels", "auxiliary"}
    # nothing of the teacher
    assert all(".classifiers." in name for name in state if name.startswith("auxiliary"))
    text = (out / "card.json").read_text()
    card = json.loads(text)
    assert card["options"]["distort"] == NOISE.card and card["options"]["distil"] == {
        "weight": 2.0,
        "layers": [1, 2],
    }
    assert str(tmp_path) not in text and card["options"]["start"].endswith(hubert.split("/")[-1])


@pytest.mark.slow
def test_the_same_codebook_goes_on_with_its_head_and_another_k_is_reported(
    hubert, mini_corpus, tmp_path, capsys
):
    """The head of the first run is that of the second before its first step; targets and audio are
    shared beside both."""
    root = mini_corpus()
    pretrain(root, tmp_path / "one", hubert_options(hubert))
    err = capsys.readouterr().err
    assert (
        f"{hubert} has no label head; one for 6 clusters was made"
    ) in err and "features for k-means" in err
    first, book = str(tmp_path / "one/encoder"), tmp_path / "one/targets.safetensors"
    same = hubert_options(
        first,
        teacher=hubert,
        codebook=str(book),
        training=replace(TRAINING, steps=1, learning_rate=0.0),
    )
    pretrain(root, tmp_path / "two", same)
    err = capsys.readouterr().err
    assert "label head" not in err and "features for k-means" not in err and "targets:" not in err
    same_files(tmp_path / "one/encoder", tmp_path / "two/encoder", NAME, "model.safetensors")
    assert len(list(tmp_path.glob("targets-*"))) == len(list(tmp_path.glob("packed-*"))) == 1
    pretrain(
        root,
        tmp_path / "three",
        hubert_options(first, teacher=hubert, clusters=8, training=replace(TRAINING, steps=1)),
    )
    old = load_codebook(book).hash
    assert (
        f"is 6 clusters in 8 dimensions for codebook {old}; it was re-made: 8 clusters in 8 "
        "dimensions"
    ) in capsys.readouterr().err
    assert load_file(tmp_path / "three/encoder" / NAME)["labels"].shape == (8, 8)


@pytest.mark.slow
def test_targets_of_other_frames_or_another_precision_are_not_shared(
    hubert, hubert_folder, mini_corpus, tmp_path
):
    """A given codebook does not tell them apart."""
    root, training = mini_corpus(), replace(TRAINING, steps=1)
    pretrain(root, tmp_path / "one", hubert_options(hubert, training=training))
    given = {
        "training": training,
        "teacher": hubert,
        "codebook": str(tmp_path / "one/targets.safetensors"),
    }
    wide = str(hubert_folder("layer", conv_kernel=(10, 3, 3, 3, 3, 4, 4)))
    for name, options in (
        ("same", hubert_options(hubert, **given)),
        ("wide", hubert_options(wide, **given)),
        ("bf16", hubert_options(hubert, precision="bf16", **given)),
    ):
        pretrain(root, tmp_path / name, options)
    assert len(list(tmp_path.glob("targets-*"))) == 3 and len(list(tmp_path.glob("packed-*"))) == 1


def test_what_cannot_be_added_is_refused_before_any_work_and_nothing_is_left(
    hubert, wav2vec2, mini_corpus, tmp_path, monkeypatch
):
    def working(*_, **__):
        raise AssertionError("work was done")

    monkeypatch.setattr(iteration, "pack_audio", working)
    root, wrong = mini_corpus(), {"distil": DistilOptions(1.0, (7,))}
    for options in (hubert_options(hubert, **wrong), wav2vec2_options(wav2vec2, **wrong)):
        with pytest.raises(InputError, match="the encoder has the layers 0 to 2, not 7"):
            pretrain(root, tmp_path / "out", options)
        assert not (tmp_path / "out").exists()


# ---- wav2vec 2.0


@pytest.mark.slow
def test_the_quantiser_gets_the_clean_signal_and_the_context_the_distorted(
    wav2vec2, mini_corpus, tmp_path, monkeypatch
):
    seen, forward = [], Wav2Vec2Pretraining.forward
    monkeypatch.setattr(
        Wav2Vec2Pretraining,
        "forward",
        lambda self, **batch: seen.append(batch) or forward(self, **batch),
    )
    root, one = mini_corpus(), replace(TRAINING, steps=1)
    for name, distort in (("noisy", replace(NOISE, probability=(1, 1))), ("plain", None)):
        pretrain(root, tmp_path / name, wav2vec2_options(wav2vec2, training=one, distort=distort))
    noisy, plain = seen
    assert torch.equal(noisy["clean_samples"], plain["samples"]) and not torch.equal(
        noisy["samples"], plain["samples"]
    )
    assert "clean_samples" not in plain and (noisy["domains"] > 0).all()


@pytest.mark.slow
def test_a_wav2vec2_that_continued_is_transformers_own_folder(
    wav2vec2, mini_corpus, tmp_path, capsys
):
    found = pretrain(mini_corpus(), tmp_path / "out", wav2vec2_options(wav2vec2, **BOTH))
    folder = tmp_path / "out/encoder"
    err = capsys.readouterr().err
    assert (
        "quantiser, projection of its vectors, projection of the encoder's output as trained"
    ) in err
    theirs, info = Wav2Vec2ForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    before = Wav2Vec2ForPreTraining.from_pretrained(wav2vec2)
    moved = {
        name.split(".")[0]
        for name, value in before.state_dict().items()
        if not torch.equal(value, theirs.state_dict()[name])
    }
    assert moved == {"wav2vec2", "quantizer", "project_q", "project_hid"}
    assert load_encoder(folder).hash == found.hash != load_encoder(wav2vec2).hash
    card = json.loads((folder / "card.json").read_text())
    assert card["what"] == "wav2vec 2.0 with its heads" and card["options"]["distort"] == NOISE.card
    assert str(tmp_path) not in (folder / "card.json").read_text()
    with untouched(folder):
        pretrain(tmp_path / "corpus", tmp_path / "out", wav2vec2_options(wav2vec2, **BOTH))


def options(**changes):
    training = TrainingOptions(
        steps=2, learning_rate=1e-4, warmup_steps=1, save_every=1, bf16=False
    )
    common = {
        "training": training,
        "clusters": 6,
        "mask": MaskOptions(0.5, 4, 1.0),
        "crops": 2,
        "seconds": 0.5,
    }
    return HubertOptions(**common | changes)


@pytest.fixture
def first(mini_corpus, tmp_path):
    root = mini_corpus()
    pretrain(root, tmp_path / "first", options())
    return root, tmp_path / "first"


def test_an_iteration_leaves_an_encoder_whose_card_names_what_made_it(first):
    root, out = first
    card = json.loads((out / "encoder/card.json").read_text())
    assert card["targets"]["encoder"] == "mfcc" and card["training"]["steps"] == 2
    assert card["normalised_over"] == "recording"
    assert (out.parent / f"packed-{data_hash(root, 'train')}").is_dir()
    with untouched(out / "encoder"):
        pretrain(root, out, options())


def test_a_start_that_cannot_be_trained_is_refused_before_targets_are_made(
    mini_corpus, hubert, wav2vec2, adapted, tmp_path, text_encoder, hubert_folder, monkeypatch
):
    monkeypatch.setattr(iteration, "make_targets", lambda *_: pytest.fail("targets were made"))
    text_encoder().save_pretrained(tmp_path / "bert")
    relu, contrastive = (
        str(hubert_folder("layer", hidden_act="relu")),
        ("is a hubert encoder; start contrastive pre-training from a"),
    )
    for wrong, message in (
        (options(start=relu), " is a hubert model, not a plain HuBERT .* start from another"),
        (options(start=str(tmp_path / "bert")), "bert"),
        (options(start=str(tmp_path / "nowhere")), "nowhere"),
        (wav2vec2_options(hubert), f"{contrastive} plain wav2vec 2.0"),
        (
            wav2vec2_options(adapted(wav2vec2)),
            "adapted has adapters, which contrastive pre-training does not",
        ),
    ):
        with pytest.raises(InputError, match=message):
            pretrain(mini_corpus(), tmp_path / "next", wrong)
        assert not (tmp_path / "next").exists()


def test_adapters_of_a_hubert_stay_in_it(mini_corpus, hubert, adapted, tmp_path):
    pretrain(mini_corpus(), tmp_path / "out", hubert_options(adapted(hubert), **BOTH))
    assert added(load_checkpoint(tmp_path / "out/encoder").model) == {"adapters": 4}


@pytest.mark.slow
def test_other_options_are_refused_and_named_and_what_is_not_asked_for_is_no_option(
    hubert, mini_corpus, tmp_path
):
    root, out = mini_corpus(), tmp_path / "out"
    pretrain(root, out, hubert_options(hubert, **BOTH))
    made_from = json.loads((out / "made_from.json").read_text())["options"]
    assert (
        not {"share", "budget", "starts"} & made_from.keys()
        and "same_masks" not in made_from["mask"]
    )
    changes = {
        "adversary.mode": {"adversary": replace(BOTH["adversary"], mode="alternating")},
        "distil": {"distil": None},
        "distort.snr": {"distort": replace(NOISE, snr=(0.0, 1.0))},
        "mask.same_masks": {"mask": MaskOptions(0.5, 4, 1.0, same_masks=True)},
        **{
            name: {name: value}
            for name, value in (
                ("seconds", 0.3),
                ("share", 0.5),
                ("budget", 99),
                ("starts", 3),
                ("clusters", 7),
            )
        },
    }
    for name, change in changes.items():
        with pytest.raises(InputError, match=rf"made from other inputs \(options\.{name} differ"):
            pretrain(root, out, hubert_options(hubert, **BOTH | change))
