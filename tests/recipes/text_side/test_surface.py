"""Loss surfaces: directions, what is taken of lines, starts that are made again, killed runs, and
the figures of the page."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import plateau as program
from gains import Gains, make_tables
from speechssl.artifacts import read_json
from speechssl.cascade.options import TrainTextQa
from speechssl.cascade.train_text_qa import train_text_qa
from speechssl.data.records import data_hash, load_corpus
from speechssl.dual.model import load_reader
from speechssl.dual.options import QaOptions, TrainDual
from speechssl.dual.train import train_dual
from speechssl.options import TrainingOptions
from speechssl.results import read_rows
from speechssl.timing import FrameGrid, RunLength
from surface import (
    Losses,
    Surface,
    draw_direction,
    measure_lines,
    read_windows,
    remake_start,
    surface,
)
from textside.published import END_TRAIN, HILL, RISE, has_own_table
from textside.runs import count_steps

from ...files import change_json, change_lines, refused

GRID = FrameGrid(16_000, 320, 400)
SMALL = {"line": 3, "plane": 2, "windows": 2, "eval_split": "train"}


def around(corpus, reader, results, arm, **more):
    surface(Surface(corpus=corpus, reader=reader, results=results, arm=arm, **SMALL | more))


def options(encoder, rate=1e-3, **changes):
    """changes: of the training."""
    few = {"steps": 2, "warmup_steps": 0, "log_every": 1, "bf16": False}
    training = TrainingOptions(learning_rate=rate, **few | changes)
    return QaOptions(training, encoder, batch=2, window=40, stride=20, max_question=20, answer=20)


def dual(corpus, units, out, arm, qa):
    train_dual(TrainDual(corpus=corpus, units=units, out=out, assignment=arm, qa=qa))


def learn(corpus, units, results, qa, **more):
    """Train and score on the split of training, by default at every step."""
    usual = {"arm": "x", "assignment": "random", "eval_split": "train", "eval_every": 1}
    places = {"corpus": corpus, "units": units, "results": results}
    program.plateau(program.Plateau(**places, qa=qa, **usual | more))


@pytest.fixture
def corpus(mini_corpus, save_units):
    root = mini_corpus((16_000, 24_123, 20_000))
    answer = {"text": "silver", "start": 0.3, "end": 0.6, "char_start": 4}
    change_lines(root / "train/questions.jsonl", {"text": "who", "answers": [answer]})
    change_lines(root / "train/passages.jsonl", {"text": "the silver lantern"})
    rng, data = np.random.default_rng(0), load_corpus(root, "train")
    units = {}
    for record in data.records:
        frames = np.repeat(rng.integers(0, 6, 200), 3)
        units[record.id] = RunLength.of_frames(
            frames[: GRID.frames(round(record.seconds * 16_000))]
        )
    save_units(units, {"codebook": "b", "precision": "fp32", "corpus": data_hash(root, "train")})
    return root


def test_random_directions_are_as_long_as_the_weights_row_by_row():
    matrix = torch.tensor([[3.0, 4.0], [0.0, 0.5]])
    end = {"matrix": matrix, "bias": torch.tensor([1.0, 2.0]), "dead": torch.zeros(2, 2)}
    found, again, other = (draw_direction(end, seed) for seed in (0, 0, 1))
    assert found["matrix"].norm(dim=1).tolist() == pytest.approx([5.0, 0.5])
    assert not found["bias"].any()
    assert not found["dead"].any()
    assert found["matrix"].equal(again["matrix"])
    assert not found["matrix"].equal(other["matrix"])


def test_hill_and_rise_of_curves_that_are_known():
    at = np.array([-0.5, 0.0, 0.5, 1.0])
    # a hill of 2 in the first window, none in the second
    path = np.array([[9.0, 9.0], [4.0, 2.0], [5.0, 1.0], [2.0, 0.0]])
    random = {"at": np.array([-1.0, 0.0, 1.0]), "train": np.array([[3.0], [2.0], [5.0]])}
    lines = {"path": {"at": at, "train": path, "dev": path + 1}, "random": random}
    found = measure_lines(lines, "dual", "train", "dev")
    values = {name: [v for _, v in items.values()] for name, items in found.items()}
    assert values[f"dual-{HILL}"] == values[f"dual-{END_TRAIN}"] == [2.0, 0.0]
    assert values["dual-loss-dev"] == [3.0, 1.0]
    assert values[f"dual-{RISE}"] == [2.0]
    assert all(map(has_own_table, found))
    assert not has_own_table("dual")


@pytest.mark.parametrize(("kind", "trained"), [("text-qa", "all"), ("dual", "adapters")])
def test_the_start_is_made_again_as_training_had_it(kind, trained, corpus, checkpoint, tmp_path):
    # a rate so small that it stays where it was
    made, reader = options(str(checkpoint("BERT")), rate=1e-12, seed=3), tmp_path / "reader"
    made = replace(made, trained=trained)
    if kind == "dual":
        dual(corpus, tmp_path / "units", reader, "random", made)
    else:
        train_text_qa(TrainTextQa(corpus=corpus, out=reader, qa=made))
    model, _, card = load_reader(reader)
    first = remake_start(corpus, reader, card, model)
    for name, value in model.state_dict().items():
        error = (first[name] - value).abs().max()
        assert error <= first[name].abs().max() / 100 + 1e-9, name  # int8
    assert any(value.ndim > 1 and value.abs().max() > 0 for value in first.values())
    change_json(reader / "made_from.json", text_weights="others")
    refused("did not begin as", remake_start, corpus, reader, card, model)


@pytest.mark.slow
def test_points_leave_rows_figures_and_are_not_taken_twice(
    corpus, checkpoint, tmp_path, dies_in, capsys
):
    units, results = tmp_path / "units", tmp_path / "results"
    for arm in ("scratch", "random"):
        dual(corpus, units, tmp_path / arm, arm, options(str(checkpoint("BERT"))))
    around(corpus, tmp_path / "scratch", results, "scratch", units=units)
    with dies_in(Losses, "_losses", 4):
        around(corpus, tmp_path / "random", results, "random", units=units)
    folder = results / "runs/dual-surface/random-0"
    kept = (folder / "points.jsonl").read_text()
    assert len(kept.splitlines()) == 3
    (folder / "points.jsonl").write_text(f'{kept}{{"path 0.5')  # cut short
    capsys.readouterr()
    around(corpus, tmp_path / "random", results, "random", units=units)
    assert (folder / "points.jsonl").read_text().startswith(kept)
    assert "16 points" in capsys.readouterr().out  # 5 + 3 of lines, 2 planes of 4
    parts = read_json(folder / "surface.json")["parts"]
    path, random = parts["path"], parts["random"]
    end = path["train"][path["at"].index(1.0)]
    assert len(path["at"]) == 5
    assert np.shape(parts["plane"]["train"]) == (2, 2)
    assert end == pytest.approx(random["train"][random["at"].index(0.0)], abs=1e-5)
    model, layout, card = load_reader(tmp_path / "random")
    places = {"corpus": corpus, "reader": tmp_path / "random", "units": units}
    o = Surface(**places, results=results, arm="random", **SMALL)
    windows = read_windows("train", model, layout, card, o)
    assert end == pytest.approx(np.mean([float(model(**w)["loss"]) for w in windows]), abs=1e-4)
    rows = {(r.task, r.encoder): r for r in read_rows(results / "results.jsonl")}
    assert rows["dual-loss-train", "random"].value == pytest.approx(end)
    assert rows["dual-hill", "random"].metric == "nats"
    (table,) = make_tables(Gains(results=results))
    assert table.title == "Loss surfaces: dual"
    assert [row[0] for row in table.rows] == ["random", "random over scratch", "scratch"]


def test_a_curve_ends_in_the_score_of_its_items_of_which_those_without_units_are_wrong(
    corpus, checkpoint, tmp_path, monkeypatch
):
    every, lost = program.load_units, load_corpus(corpus, "train").questions[0].id
    monkeypatch.setattr(
        program, "load_units", lambda f: {k: v for k, v in every(f).items() if k != lost}
    )
    encoder, results = str(checkpoint("BERT")), tmp_path / "results"
    for seed in (0, 1):
        for arm in ("scratch", "random"):
            qa = options(encoder, seed=seed, steps=4)
            learn(corpus, tmp_path / "units", results, qa, arm=arm, assignment=arm, eval_every=2)
    scores = read_json(results / "runs/dual/random-0/scores.json")
    shares = [share for _, share in scores["items"].values()]
    assert [p["step"] for p in scores["curve"]] == [2, 4]
    assert (len(shares), scores["unit"]) == (3, "passage")
    assert scores["items"][lost] == [1.0, 0.0]
    assert scores["curve"][-1]["score"] == pytest.approx(np.mean(shares))
    rows = {(r.encoder, r.seed): r for r in read_rows(results / "results.jsonl")}
    row = rows["random", 0]
    assert (row.metric, row.value) == ("ff1", pytest.approx(100 * np.mean(shares)))
    for steps, score in zip(make_tables(Gains(results=results))[-2:], (0.25, 0.5), strict=True):
        assert steps.title == f"Steps of DUAL to FF1 {100 * score:.0f}"
        assert steps.columns == ("start", "seed 0", "seed 1", "mean", "later than text")
        reached = {row[0]: row[1] for row in steps.rows}
        assert len(reached) == 2
        assert reached["random"] == str(count_steps(scores["curve"], score) or "–")
