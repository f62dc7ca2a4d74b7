"""Runs of pre-training, from recordings to a folder: iterations, kills, codebooks, shared targets, both methods."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import HubertModel, Wav2Vec2Config, Wav2Vec2ForPreTraining, Wav2Vec2Model

from speechssl.audio import read_audio, write_flac
from speechssl.augment.training import parse_distortions
from speechssl.config import TrainingOptions
from speechssl.data.records import data_hash
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.errors import InputError
from speechssl.pretrain import run as iteration
from speechssl.pretrain.auxiliary import AdversaryOptions, DistilOptions
from speechssl.pretrain.data import Cropper, MaskOptions
from speechssl.pretrain.model import NAME, ContrastiveOptions, Wav2Vec2Pretraining, save_pretraining
from speechssl.pretrain.presets import HubertOptions, Wav2Vec2Options
from speechssl.pretrain.run import Reading, fit_targets, load_labelled, material, pack_audio, packed, pretrain, write_targets
from speechssl.timing import FrameGrid
from speechssl.units.features import Features
from speechssl.units.fit import draw
from speechssl.units.kmeans import Codebook, load_codebook

from ..files import read_lines, untouched

TRAINING = TrainingOptions(5, 1e-3, warmup_steps=1, save_every=2, log_every=1, bf16=False)
NOISE = parse_distortions("g+b", probability=(0.5, 0.9), snr=(5.0, 10.0), snr_end=(0.0, 5.0))
COMMON = {"training": TRAINING, "crops": 4, "seconds": 0.4, "distort": NOISE}
BOTH = {"distil": DistilOptions(2.0, (1, 2)), "adversary": AdversaryOptions("multi", (1, 2), width=8)}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Nothing here is so large that what is left of it must be swept up at once, which takes most of the time."""
    monkeypatch.setattr("speechssl.encoders.load.gc", SimpleNamespace(collect=lambda: 0))


@pytest.fixture(scope="module")
def hubert(hubert_folder):
    return str(hubert_folder("layer", layerdrop=0.1))


@pytest.fixture(scope="module")
def wav2vec2(tmp_path_factory):
    """A tiny wav2vec 2.0 with its heads."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "conv_dim": (16,) * 7}
    front = {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "feat_extract_norm": "layer"}
    torch.manual_seed(0)
    encoder = Wav2Vec2Model(Wav2Vec2Config(**sizes, **front, do_stable_layer_norm=True))
    model = Wav2Vec2Pretraining(encoder, ContrastiveOptions(2, 5, 16, penalty=0.1))
    save_pretraining(model, folder := tmp_path_factory.mktemp("wav2vec2"))
    return str(folder)


def hubert_options(encoder, **changes):
    made = {"teacher": encoder, "start": encoder, "layer": 1, "clusters": 6, "mask": MaskOptions(0.5, 4, 1.0), "projection": 8}
    return HubertOptions(**COMMON | made | changes)


def wav2vec2_options(encoder, **changes):
    return Wav2Vec2Options(**COMMON | {"start": encoder, "mask": MaskOptions(0.5, 4), "negatives": 5} | changes)


def curve(out):
    """Step -> what was logged of it. The last lines count: those of a run that was killed come before."""
    rows = read_lines(out / "checkpoints/log.jsonl")
    drop = ("times_real_time", "epoch", "seconds", "peak_gb", "gpu_gb")
    return {row["step"]: {k: v for k, v in row.items() if k not in drop} for row in rows if "loss" in row}


def same_files(a, b, *names):
    for name in names:
        left, right = (load_file(folder / name) for folder in (a, b))
        assert left.keys() == right.keys() and all(torch.equal(value, right[key]) for key, value in left.items()), name


# ---- recordings of many lengths


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hubert", "wav2vec2"])
def test_recordings_that_are_shorter_than_a_crop_are_trained_on_too(kind, request, mini_corpus, tmp_path, monkeypatch, capsys):
    start, call, shapes = request.getfixturevalue(kind), Cropper.__call__, {}

    def recorded(self, step):
        made = call(self, step)
        shapes[step] = tuple(made["labels"].shape)
        assert made["clean_samples"].shape == made["samples"].shape and len(made["domains"]) == shapes[step][0]
        return made

    monkeypatch.setattr(Cropper, "__call__", recorded)
    options = hubert_options if kind == "hubert" else wav2vec2_options
    mixed = {"seconds": 4.0, "silence": 0.5, "training": replace(TRAINING, accumulation=2)} | BOTH
    pretrain(mini_corpus((70_000, 33_000, 35_000, 5_000, 55_000)), tmp_path / "out", options(start, **mixed))
    assert "1 of 5 recordings are too short for a crop of 2 s, the shortest" in capsys.readouterr().err
    assert set(range(10)) <= set(shapes) and {frames for _, frames in shapes.values()} == {200, 170, 101}
    assert all(650 < rows * frames <= 800 for rows, frames in shapes.values())
    rows = curve(tmp_path / "out")
    assert list(rows) == [1, 2, 3, 4, 5] and all(row["loss"] > 0 and "distillation" in row for row in rows.values())


# ---- killed, in each kind of training

KINDS = {
    "hubert": ("hubert", {"start": None, "teacher": "mfcc", "layer": 0, "distort": None}, 3),
    "hubert-at-once": ("hubert", {"adversary": replace(BOTH["adversary"], layers=())}, 0),
    "reversal": ("hubert", {"training": replace(TRAINING, accumulation=2)} | BOTH, 7),
    "alternating": ("hubert", BOTH | {"adversary": AdversaryOptions("binary", mode="alternating", frames=True, width=8)}, 3),
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
        monkeypatch.setattr(iteration, "_hubert_encoder", lambda options: (HubertModel(config), True))
    whole, killed = tmp_path / "whole", tmp_path / "apart" / "killed"
    pretrain(root, whole, options(start, **changes))
    with dies_at(Cropper, at):
        pretrain(root, killed, options(start, **changes))
    assert not (killed / "encoder/card.json").exists()
    assert pretrain(root, killed, options(start, **changes)).hash == load_encoder(whole / "encoder").hash
    assert curve(whole) == curve(killed) and list(curve(whole)) == [1, 2, 3, 4, 5]
    heads = (f"encoder/{NAME}",) if kind == "hubert" else ()
    same_files(whole, killed, "encoder/model.safetensors", "checkpoints/checkpoint-5/model.safetensors", *heads)
    wanted = {"distillation": "distil" in changes, "domain_accuracy": "adversary" in changes}
    assert all((name in row) is there for row in curve(whole).values() for name, there in wanted.items())


@pytest.mark.slow
def test_a_finished_run_is_trained_further(hubert, mini_corpus, tmp_path):
    root, encoders = mini_corpus(), {}
    for name, steps in (("whole", (5,)), ("more", (3, 5))):
        for count in steps:
            training = replace(COMMON["training"], steps=count, horizon=5)
            encoders[name] = pretrain(root, tmp_path / name / "run", hubert_options(hubert, training=training)).hash
    assert encoders["whole"] == encoders["more"] and curve(tmp_path / "whole/run") == curve(tmp_path / "more/run")


@pytest.mark.slow
def test_a_run_killed_while_its_result_is_written_writes_it_again(hubert, mini_corpus, tmp_path, monkeypatch, dies_in):
    root, out = mini_corpus(), tmp_path / "out"
    with dies_in(iteration, "save_label_head"):
        pretrain(root, out, hubert_options(hubert, **BOTH))
    assert (out / "encoder/model.safetensors").is_file() and not (out / "encoder/card.json").exists()
    monkeypatch.setattr(Cropper, "__call__", lambda *_: pytest.fail("this was trained before"))
    found = pretrain(root, out, hubert_options(hubert, **BOTH))
    saved, trained = (load_file(out / name) for name in ("encoder/model.safetensors", "checkpoints/checkpoint-5/model.safetensors"))
    assert (
        all(torch.equal(saved[key], trained[f"encoder.{key}"]) for key in saved)
        and found.hash == load_encoder(out / "encoder").hash
    )


# ---- HuBERT


@pytest.mark.slow
def test_what_continues_is_a_folder_of_its_own_that_names_its_distortions(hubert, mini_corpus, tmp_path):
    found = pretrain(mini_corpus(), tmp_path / "one", hubert_options(hubert, save_bf16=True, **BOTH))
    out = tmp_path / "one/encoder"
    assert found.hash != load_encoder(hubert).hash and found.layers == 2
    _, info = HubertModel.from_pretrained(out, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert all(torch.equal(p, p.bfloat16().float()) for p in load_checkpoint(out).model.parameters())
    state = load_file(tmp_path / "one/checkpoints/checkpoint-5/model.safetensors")
    assert {name.split(".")[0] for name in state} == {"encoder", "project", "labels", "auxiliary"}
    assert all(".classifiers." in name for name in state if name.startswith("auxiliary"))  # nothing of the teacher
    text = (out / "card.json").read_text()
    card = json.loads(text)
    assert card["options"]["distort"] == NOISE.card and card["options"]["distil"] == {"weight": 2.0, "layers": [1, 2]}
    assert str(tmp_path) not in text and card["options"]["start"].endswith(hubert.split("/")[-1])


@pytest.mark.slow
def test_the_same_codebook_goes_on_with_its_head_and_another_k_is_reported(hubert, mini_corpus, tmp_path, capsys):
    """The head of the first run is that of the second before its first step; targets and audio are shared beside both."""
    root = mini_corpus()
    pretrain(root, tmp_path / "one", hubert_options(hubert))
    err = capsys.readouterr().err
    assert f"{hubert} has no label head; one for 6 clusters was made" in err and "features for k-means" in err
    first, book = str(tmp_path / "one/encoder"), tmp_path / "one/targets.safetensors"
    same = hubert_options(first, teacher=hubert, codebook=str(book), training=replace(TRAINING, steps=1, learning_rate=0.0))
    pretrain(root, tmp_path / "two", same)
    err = capsys.readouterr().err
    assert "label head" not in err and "features for k-means" not in err and "targets:" not in err
    same_files(tmp_path / "one/encoder", tmp_path / "two/encoder", NAME, "model.safetensors")
    assert len(list(tmp_path.glob("targets-*"))) == len(list(tmp_path.glob("packed-*"))) == 1
    pretrain(root, tmp_path / "three", hubert_options(first, teacher=hubert, clusters=8, training=replace(TRAINING, steps=1)))
    old = load_codebook(book).hash
    assert (
        f"is 6 clusters in 8 dimensions for codebook {old}; it was re-made: 8 clusters in 8 dimensions" in capsys.readouterr().err
    )
    assert load_file(tmp_path / "three/encoder" / NAME)["labels"].shape == (8, 8)


@pytest.mark.slow
def test_targets_of_other_frames_or_another_precision_are_not_shared(hubert, hubert_folder, mini_corpus, tmp_path):
    """A given codebook does not tell them apart."""
    root, training = mini_corpus(), replace(TRAINING, steps=1)
    pretrain(root, tmp_path / "one", hubert_options(hubert, training=training))
    given = {"training": training, "teacher": hubert, "codebook": str(tmp_path / "one/targets.safetensors")}
    wide = str(hubert_folder("layer", conv_kernel=(10, 3, 3, 3, 3, 4, 4)))
    for name, options in (
        ("same", hubert_options(hubert, **given)),
        ("wide", hubert_options(wide, **given)),
        ("bf16", hubert_options(hubert, precision="bf16", **given)),
    ):
        pretrain(root, tmp_path / name, options)
    assert len(list(tmp_path.glob("targets-*"))) == 3 and len(list(tmp_path.glob("packed-*"))) == 1


def test_what_cannot_be_added_is_refused_before_any_work_and_nothing_is_left(hubert, wav2vec2, mini_corpus, tmp_path, monkeypatch):
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
def test_a_wav2vec2_that_continued_is_transformers_own_folder(wav2vec2, mini_corpus, tmp_path, capsys):
    found = pretrain(mini_corpus(), tmp_path / "out", wav2vec2_options(wav2vec2, **BOTH))
    folder = tmp_path / "out/encoder"
    err = capsys.readouterr().err
    assert "quantiser, projection of its vectors, projection of the encoder's output as trained" in err
    theirs, info = Wav2Vec2ForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    before = Wav2Vec2ForPreTraining.from_pretrained(wav2vec2)
    moved = {name.split(".")[0] for name, value in before.state_dict().items() if not torch.equal(value, theirs.state_dict()[name])}
    assert moved == {"wav2vec2", "quantizer", "project_q", "project_hid"}
    assert load_encoder(folder).hash == found.hash != load_encoder(wav2vec2).hash
    card = json.loads((folder / "card.json").read_text())
    assert card["what"] == "wav2vec 2.0 with its heads" and card["options"]["distort"] == NOISE.card
    assert str(tmp_path) not in (folder / "card.json").read_text()
    with untouched(folder):
        pretrain(tmp_path / "corpus", tmp_path / "out", wav2vec2_options(wav2vec2, **BOTH))


@pytest.mark.slow
def test_the_quantiser_gets_the_clean_signal_and_the_context_the_distorted(wav2vec2, mini_corpus, tmp_path, monkeypatch):
    seen = []
    forward = Wav2Vec2Pretraining.forward

    def watched(self, samples, mask, negatives, temperature, clean_samples=None, **batch):
        seen.append((samples, clean_samples, batch))
        return forward(self, samples, mask, negatives, temperature, clean_samples, **batch)

    monkeypatch.setattr(Wav2Vec2Pretraining, "forward", watched)
    root = mini_corpus()
    one = replace(TRAINING, steps=1)
    pretrain(root, tmp_path / "noisy", wav2vec2_options(wav2vec2, training=one, distort=replace(NOISE, probability=(1, 1))))
    pretrain(root, tmp_path / "plain", wav2vec2_options(wav2vec2, training=one, distort=None))
    (noisy, clean, batch), (plain, none, _) = seen
    assert none is None and torch.equal(clean, plain) and not torch.equal(noisy, clean)
    assert set(batch) == {"domains", "progress", "step"} and (batch["domains"] > 0).all()


def options(**changes):
    training = TrainingOptions(steps=2, learning_rate=1e-4, warmup_steps=1, save_every=1, bf16=False)
    common = {"training": training, "clusters": 6, "mask": MaskOptions(0.5, 4, 1.0), "crops": 2, "seconds": 0.5}
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
    assert packed(data_hash(root, "train"), out).is_dir()
    with untouched(out / "encoder"):
        pretrain(root, out, options())


@pytest.mark.slow
def test_the_next_iteration_goes_on_in_full_precision_from_rounded_weights(mini_corpus, tmp_path):
    root = mini_corpus()
    rounded = pretrain(root, tmp_path / "rounded", options(save_bf16=True))
    assert all(torch.equal(p, p.bfloat16().float()) for p in load_checkpoint(tmp_path / "rounded/encoder").model.parameters())
    teacher = str(tmp_path / "rounded/encoder")
    second = pretrain(root, tmp_path / "second", options(teacher=teacher, start=teacher, layer=1, smooth=3))
    assert second.hash != rounded.hash
    assert not all(torch.equal(p, p.bfloat16().float()) for p in load_checkpoint(tmp_path / "second/encoder").model.parameters())


def test_a_start_that_cannot_be_trained_is_refused_before_targets_are_made(
    mini_corpus, hubert, tmp_path, text_encoder, hubert_folder, monkeypatch
):
    monkeypatch.setattr(iteration, "make_targets", lambda *_: pytest.fail("targets were made"))
    text_encoder().save_pretrained(tmp_path / "bert")
    relu, contrastive = str(hubert_folder("layer", hidden_act="relu")), "is a hubert encoder; start contrastive pre-training from a"
    for wrong, message in (
        (options(start=relu), " is a hubert model, not a plain HuBERT .* start from another"),
        (options(start=str(tmp_path / "bert")), "bert"),
        (options(start=str(tmp_path / "nowhere")), "nowhere"),
        (wav2vec2_options(hubert), f"{contrastive} plain wav2vec 2.0"),
    ):
        with pytest.raises(InputError, match=message):
            pretrain(mini_corpus(), tmp_path / "next", wrong)
        assert not (tmp_path / "next").exists()


@pytest.mark.slow
def test_a_run_killed_before_its_codebook_is_written_draws_the_same_again(mini_corpus, tmp_path, monkeypatch):
    root, fit_targets = mini_corpus(tuple(range(16_000, 24_000, 1_000))), iteration.fit_targets
    for name in ("once", "killed"):
        if name == "killed":
            monkeypatch.setattr(iteration, "fit_targets", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                pretrain(root, tmp_path / name, options(share=0.5))
            monkeypatch.setattr(iteration, "fit_targets", fit_targets)
        pretrain(root, tmp_path / name, options(share=0.5))
    hashes = {load_codebook(tmp_path / name / "targets.safetensors").hash for name in ("once", "killed")}
    assert len(hashes) == 1
    monkeypatch.setattr(iteration, "fit_targets", lambda *_: pytest.fail("the codebook was fitted again"))
    pretrain(root, tmp_path / "killed", options(share=0.5))


@pytest.mark.slow
def test_other_options_are_refused_and_named_and_what_is_not_asked_for_is_no_option(hubert, mini_corpus, tmp_path):
    root, out = mini_corpus(), tmp_path / "out"
    pretrain(root, out, hubert_options(hubert, **BOTH))
    made_from = json.loads((out / "made_from.json").read_text())["options"]
    assert not {"share", "budget", "starts"} & made_from.keys() and "same_masks" not in made_from["mask"]
    changes = {
        "adversary.mode": {"adversary": replace(BOTH["adversary"], mode="alternating")},
        "distil": {"distil": None},
        "distort.snr": {"distort": replace(NOISE, snr=(0.0, 1.0))},
        "mask.same_masks": {"mask": MaskOptions(0.5, 4, 1.0, same_masks=True)},
        **{
            name: {name: value}
            for name, value in (("seconds", 0.3), ("share", 0.5), ("budget", 99), ("starts", 3), ("clusters", 7))
        },
    }
    for name, change in changes.items():
        with pytest.raises(InputError, match=rf"made from other inputs \(options\.{name} differ"):
            pretrain(root, out, hubert_options(hubert, **BOTH | change))


GRID = FrameGrid(16_000, 320, 400)
BOOK = Codebook(np.linspace(-0.05, 0.05, 8, dtype=np.float32)[:, None], {"encoder": "toy"})


def features(samples):
    """(T, 1) mean of the samples a frame owns."""
    frames = GRID.frames(len(samples))
    owned = samples[GRID.offset : GRID.offset + frames * GRID.hop].reshape(frames, GRID.hop)
    return torch.from_numpy(owned.mean(1, keepdims=True))


def of(function):
    """Features of a function (N,) -> (T, D)."""
    return Features("toy", GRID, lambda samples: iter([function(samples)]))


def teacher(anchors=None):
    return Reading("p", Path("p.flac"), Path("p.flac"), None if anchors is None else np.array(anchors))


def teachers(root):
    return material(root).readings


def pack(root, out, workers=2):
    pack_audio(teachers(root), out, {"corpus": material(root).hash}, workers)


def write(root, out, function=features, book=BOOK, workers=2):
    """Labels of everything that was packed beside them."""
    packed = np.diff(np.load(out.parent / out.name.replace("targets", "packed") / "bounds.npy")).tolist()
    write_targets(teachers(root), out, GRID, function, book, packed, {"corpus": material(root).hash}, workers)


# ---- anchors


def test_without_anchors_a_frame_is_its_own_teacher():
    assert teacher().frames(GRID, 5, 5).tolist() == [0, 1, 2, 3, 4]
    assert teacher().frames(GRID, 5, 4).tolist() == [0, 1, 2, 3, 3]
    assert teacher([[0, 0], [1.5, 1.5], [4, 4]]).frames(GRID, 199, 199).tolist() == list(range(199))  # equal readings


@given(st.floats(0.5, 2.0), st.integers(2, 150))
def test_a_reading_that_is_slower_throughout(rate, count):
    found = teacher([[0, 0], [10, 10 * rate]]).frames(GRID, count, 1_000)
    middles = (np.arange(count) * 320 + 200) / 16_000
    expected = (middles * rate * 16_000 - 200) / 320
    assert np.abs(found - expected).max() <= 0.5 + 1e-6 or found[0] == 0


@given(st.lists(st.tuples(st.floats(0.05, 0.5), st.floats(0.05, 0.5)), min_size=1, max_size=10), st.integers(1, 200))
def test_a_frame_is_read_in_the_same_phone(durations, count):
    """Phones with other lengths in either reading: a frame's middle and its teacher's middle lie in the same phone."""
    anchors = np.vstack([[0, 0], np.cumsum(durations, 0)])
    there = GRID.frames(int(anchors[-1, 1] * 16_000))
    if there == 0:
        return
    found = teacher(anchors).frames(GRID, count, there)
    assert (np.diff(found) >= 0).all() and found.min() >= 0 and found.max() < there
    half = 0.011  # seconds: the teacher's middle is at most half a frame from the point meant
    for own, other in enumerate(found):
        here = (own * 320 + 200) / 16_000
        if not (0 < other < there - 1 and here < anchors[-1, 0]):
            continue
        phone = int(np.searchsorted(anchors[:, 0], here, side="right")) - 1
        assert anchors[phone, 1] - half <= (other * 320 + 200) / 16_000 <= anchors[phone + 1, 1] + half


# ---- teachers of a corpus


def with_reference(root):
    """A second reading of p1, a quarter slower, and what it says."""
    write_flac(root / "train/reference/p1.flac", np.random.default_rng(5).uniform(-0.5, 0.5, 30_154))
    row = {"id": "p1", "audio": "train/reference/p1.flac", "anchors": [[0.0, 0.0], [24_123 / 16_000, 30_154 / 16_000]]}
    (root / "train/reference.jsonl").write_text(json.dumps(row) + "\n")


def test_a_passage_is_taught_by_its_reference_where_it_has_one(mini_corpus):
    root = mini_corpus()
    assert all(t.anchors is None for t in teachers(root))
    with_reference(root)
    found = teachers(root)
    assert [t.id for t in found] == ["p0", "p1", "p2"]
    assert [t.audio.relative_to(root).as_posix() for t in found] == [
        "train/audio/p0.flac", "train/reference/p1.flac", "train/audio/p2.flac",
    ]  # fmt: skip
    assert found[1].anchors.shape == (2, 2) and found[0].anchors is found[2].anchors is None


def test_clusters_are_fitted_on_a_random_choice(mini_corpus):
    root, drawn = mini_corpus(tuple(range(8_000, 12_000, 400))), {}

    def watched(samples):
        seen.append(len(samples))
        return features(samples)

    for seed in range(4):
        seen = drawn.setdefault(seed, [])
        book = fit_targets(teachers(root), of(watched), 6, seed, share=0.3)
        assert len(seen) == book.card["recordings"] == 3 and book.card["drawn_from"] == 10 and book.size == 6
        assert (book.card["encoder"], book.card["seed"], book.card["budget"], book.card["starts"]) == ("toy", seed, 300_000, 20)
        assert book.card["reference_reading"] is False
    assert len({tuple(sorted(seen)) for seen in drawn.values()}) > 1
    again = fit_targets(teachers(root), of(features), 6, 0, 0.3, budget=20, starts=2)
    assert (again.card["frames"], again.card["budget"], again.card["starts"]) == (sum(map(GRID.frames, drawn[0])), 20, 2)


def test_speakers_that_come_late_in_the_list_are_drawn_too(tmp_path):
    """20 speakers x 100 files, as LibriSpeech lists them: the first 400 files would be of four speakers."""
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 800)
    write_flac(tmp_path / "one.flac", noise)
    for speaker in range(20):
        (tmp_path / f"voices/{speaker:02}").mkdir(parents=True)
        for number in range(100):
            (tmp_path / f"voices/{speaker:02}/{number:02}.flac").hardlink_to(tmp_path / "one.flac")
    chosen, card = draw(material(tmp_path / "voices").readings, seed=0)
    assert card == {"recordings": 400, "drawn_from": 2_000}
    assert {reading.id.split("/")[0] for reading in chosen} == {f"{speaker:02}" for speaker in range(20)}
    assert [reading.id for reading in chosen] == sorted({reading.id for reading in chosen})


# ---- files


def test_labels_fit_the_packed_audio_to_the_frame(mini_corpus, tmp_path):
    root = mini_corpus()
    with_reference(root)
    pack(root, tmp_path / "packed")
    write(root, tmp_path / "targets")
    data = load_labelled(tmp_path / "packed", tmp_path / "targets")
    assert np.diff(data.sample_bounds).tolist() == [16_000, 24_123, 9_999]
    assert np.diff(data.label_bounds).tolist() == [GRID.frames(n) for n in (16_000, 24_123, 9_999)]
    assert data.samples.dtype == data.labels.dtype == np.int16 and len(data) == 3
    for i in (0, 2):
        audio = read_audio(root / f"train/audio/p{i}.flac")
        cut = data.samples[data.sample_bounds[i] : data.sample_bounds[i + 1]]
        assert np.array_equal(cut, audio * 32768)  # the 16 bits of the file
        labels = data.labels[data.label_bounds[i] : data.label_bounds[i + 1]]
        assert np.array_equal(labels, BOOK.assign(features(audio)))
    slow = BOOK.assign(features(read_audio(root / "train/reference/p1.flac")))
    mapped = teachers(root)[1].frames(GRID, GRID.frames(24_123), len(slow))
    assert np.array_equal(data.labels[slice(*data.label_bounds[1:3])], slow[mapped])


def test_crops_of_what_was_written_hold_their_own_labels(mini_corpus, tmp_path):
    """End to end: the label of every frame of every crop can be found again from the crop's samples."""
    root = mini_corpus((16_000, 32_000))
    pack(root, tmp_path / "packed")
    write(root, tmp_path / "targets")
    data = load_labelled(tmp_path / "packed", tmp_path / "targets")
    for step in range(5):
        made = Cropper(data, GRID, MaskOptions(), crops=3, seconds=0.5)(step)
        for samples, labels in zip(made["samples"].numpy(), made["labels"].numpy(), strict=True):
            means = features(samples)[:, 0].numpy()  # normalised, so the order of the means decides
            assert np.corrcoef(means, labels)[0, 1] > 0.9


@pytest.mark.parametrize("workers", [1, 3])
def test_files_do_not_depend_on_the_workers(mini_corpus, tmp_path, workers):
    root = mini_corpus()
    for name, number in (("a", 2), ("b", workers)):
        pack(root, tmp_path / f"{name}-packed", number)
        write(root, tmp_path / f"{name}-targets", workers=number)
    for file in ("packed/samples.s16", "packed/bounds.npy", "targets/labels.npy", "targets/bounds.npy"):
        assert (tmp_path / f"a-{file}").read_bytes() == (tmp_path / f"b-{file}").read_bytes()


def test_finished_work_is_not_done_again_and_a_killed_run_is(mini_corpus, tmp_path, dies_in):
    root = mini_corpus()
    for run in (pack, write):
        name = tmp_path / ("packed" if run is pack else "targets")
        with dies_in(iteration, "_save"):
            run(root, name)
        if run is pack:
            pack(root, name)
    write(root, tmp_path / "targets")
    files = [tmp_path / f for f in ("packed/samples.s16", "packed/bounds.npy", "targets/labels.npy", "targets/bounds.npy")]
    before = {p: p.stat().st_mtime_ns for p in files}
    pack(root, tmp_path / "packed")
    write(root, tmp_path / "targets", lambda *_: pytest.fail("this was computed before"))
    assert before == {p: p.stat().st_mtime_ns for p in files}
    other = Codebook(BOOK.centroids * 1.1, BOOK.card)
    write(root, tmp_path / "targets", book=other)
    assert json.loads((tmp_path / "targets/card.json").read_text())["codebook"] == other.hash


@pytest.mark.parametrize("kind", ["damaged", "short", "reference"])
def test_a_recording_without_targets_is_set_aside_and_the_rest_is_done(mini_corpus, tmp_path, capsys, kind):
    """Short: the teacher may see more at a time than the encoder that is trained."""
    root, audio, function = mini_corpus((16_000, 1_000 if kind == "short" else 24_123, 20_000)), kind != "damaged", features
    if kind == "damaged":
        (root / "train/audio/p1.flac").write_bytes(b"no audio")
    elif kind == "reference":
        (root / "bad.flac").write_bytes(b"no audio")
        reading = {"id": "p1", "audio": "bad.flac", "anchors": [[0, 0], [1, 1]]}
        (root / "train/reference.jsonl").write_text(json.dumps(reading) + "\n")
    else:

        def function(samples):
            if len(samples) < 1_200:
                raise ValueError(f"{len(samples)} samples are fewer than the 1200 that one frame needs")
            return features(samples)

    pack(root, tmp_path / "packed")
    assert ("set aside p1" in (err := capsys.readouterr().err)) is not audio and ("1 recording set aside" in err) is not audio
    assert (np.diff(np.load(tmp_path / "packed/bounds.npy"))[1] > 0) == audio
    write(root, tmp_path / "targets", function)
    assert ("set aside p1" in capsys.readouterr().err) is audio
    data = load_labelled(tmp_path / "packed", tmp_path / "targets")
    assert np.diff(data.label_bounds).tolist() == [GRID.frames(16_000), 0, GRID.frames(20_000)]
    crops = Cropper(data, GRID, MaskOptions(0.5, 10, 0.0), crops=20, seconds=0.5)
    assert [set(bucket.recordings) for bucket in crops._buckets] == [{0, 2}]
    assert fit_targets(teachers(root), of(function), 6).size == 6 and "set aside p1" in capsys.readouterr().err


def test_targets_that_cannot_be_are_one_sentence(mini_corpus, tmp_path):
    root, out = mini_corpus(), tmp_path / "targets"
    pack(root, tmp_path / "packed")
    few = Codebook(np.r_[BOOK.centroids[2:6], np.full((4, 1), 9, np.float32)], {})
    many = Codebook(np.linspace(-1, 1, 32_768, dtype=np.float32)[:, None], {})
    for book, message in (
        (few, "use only 4 of 8 clusters; check the features"),
        (many, "32768 clusters are too many; give at most 32767"),
        (
            Codebook(BOOK.centroids, {"frame_rate": 100.0}),
            "100 labels a second and the encoder 50 frames; give a teacher or codebook",
        ),
    ):
        with pytest.raises(InputError, match=message):
            write(root, out, book=book)
        assert not out.exists()
    write(root, out, book=Codebook(BOOK.centroids[2:6], {}))
    with pytest.raises(InputError, match="32768 clusters"):
        fit_targets(teachers(root), of(features), 32_768)
    for path in root.glob("train/audio/p*.flac"):
        path.write_bytes(b"no audio")
    with pytest.raises(InputError, match=r"none of 3 recordings can be used \(.*\); give others"):
        fit_targets(teachers(root), of(features), 6)
    with pytest.raises(InputError, match=r"none of 3 recordings can be read \(.*\); give others"):
        pack(root, tmp_path / "none")


def test_audio_beyond_full_scale_is_clipped_and_not_wrapped_round(tmp_path):
    """Lossy and resampled recordings overshoot."""
    loud = 1.2 * np.sin(np.arange(16_000) * 0.05)
    soundfile.write(tmp_path / "loud.wav", loud, 16_000, "FLOAT")
    pack_audio([Reading("p", tmp_path / "loud.wav", tmp_path / "loud.wav", None)], tmp_path / "packed", {})
    packed = np.fromfile(tmp_path / "packed/samples.s16", np.int16)
    np.testing.assert_allclose(packed / 32768, np.clip(loud, -1, 1), atol=1e-4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{no json", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"id": "p0"}', "not a reference reading"),
        ('{"id": "p0", "audio": "x.flac", "anchors": [[0, 0, 0]]}', "not a reference reading"),
        ('{"id": "p0", "audio": "x.flac", "anchors": [[0, 0], [1, 1]]}', "x.flac, which does not exist"),
    ],
)
def test_a_damaged_reference_is_named(mini_corpus, line, message):
    root = mini_corpus((16_000, 24_123, 20_000))
    (root / "train/reference.jsonl").write_text("\n" + line + "\n")
    with pytest.raises(InputError, match=rf"reference.jsonl:2 .*{message}"):
        teachers(root)


def test_a_folder_of_recordings_is_material_too(tmp_path):
    for name in ("b", "a", "c"):
        write_flac(tmp_path / "voices" / f"{name}.flac", np.random.default_rng(0).uniform(-0.5, 0.5, 16_000))
    found = material(tmp_path / "voices", recordings=2)
    assert len(found.readings) == 2 and all(r.path == r.audio for r in found.readings)
    write_flac(found.readings[0].path, np.zeros(16_000))
    assert material(tmp_path / "voices", recordings=2).hash != found.hash
    with pytest.raises(InputError, match="no recordings to train on in 0 of .*voices; give more"):
        material(tmp_path / "voices", recordings=0)


def test_some_passages_of_a_corpus_are_drawn_by_the_seed_and_are_known_apart(mini_corpus):
    """Not the first ones, which in a list by speaker are a few speakers."""
    root = mini_corpus()
    found = [material(root, recordings=2, seed=seed) for seed in range(10)]
    assert {tuple(r.id for r in f.readings) for f in found} == {("p0", "p1"), ("p0", "p2"), ("p1", "p2")}
    assert material(root, recordings=2, seed=3) == found[3] and found[3].hash == material(root).hash + "-2-3"
    found = found[0]
    assert found.card == {"manifests": "0123"}
    with_reference(root)
    assert [r.anchors is None for r in material(root).readings] == [True, False, True]
    assert all(r.anchors is None and r.path == r.audio for r in material(root, reference=False).readings)
    with pytest.raises(InputError, match="has no passages to train on"):
        material(root, recordings=0)


def test_a_manifest_has_its_reference_readings_beside_it(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("one", "two", "neutral"):
        write_flac(tmp_path / f"{name}.flac", rng.normal(0, 0.1, 16_000))
    listed = tmp_path / "list.txt"
    listed.write_text("one.flac\ntwo.flac\n")
    line = {"id": "one", "audio": "neutral.flac", "anchors": [[0.0, 0.0], [1.0, 0.5]]}
    plain = material(listed)
    (tmp_path / "list.reference.jsonl").write_text(json.dumps(line) + "\n")
    found = material(listed)
    assert [r.audio.name for r in found.readings] == ["neutral.flac", "two.flac"] and found.readings[1].anchors is None
    assert found.readings[0].path.name == "one.flac" and found.hash != plain.hash == material(listed, reference=False).hash
    (tmp_path / "list.reference.jsonl").write_text(json.dumps(line | {"anchors": []}) + "\n")
    with pytest.raises(InputError, match="reference.jsonl:1 is not a reference reading"):
        material(listed)
