"""`surface` measures losses along lines and in planes around a reader, from the start that its
training had, and goes on after a kill; `plateau` scores DUAL as it learns."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

import plateau
from gains import Gains, make_tables
from speechssl.artifacts import read_json
from speechssl.cascade.options import TrainTextQa
from speechssl.cascade.train_text_qa import train_text_qa
from speechssl.data.records import hash_data, load_corpus
from speechssl.dual.model import load_reader
from speechssl.dual.options import QaOptions, TrainDual
from speechssl.dual.train import train_dual
from speechssl.options import TrainingOptions
from speechssl.results import read_rows
from speechssl.timing import FrameGrid, RunLength
from speechssl.units.storage import load_units
from surface import (
    Losses,
    Surface,
    draw_direction,
    measure_lines,
    measure_surface,
    read_windows,
    remake_start,
)
from textside.published import END_TRAIN, HILL, RISE, has_own_table
from textside.runs import count_steps

from ...files import change_json, change_lines, refused

GRID = FrameGrid(sample_rate=16_000, hop=320, receptive=400)
SMALL = {"line": 3, "plane": 2, "windows": 2, "eval_split": "train"}  # options of Surface


def make_qa_options(encoder, learning_rate=1e-3, steps=2, seed=0):
    training = TrainingOptions(
        steps=steps,
        learning_rate=learning_rate,
        warmup_steps=0,
        log_every=1,
        bf16=False,
        seed=seed,
    )
    sizes = {"batch": 2, "window": 40, "stride": 20, "max_question": 20, "answer": 20}
    return QaOptions(training, text_encoder=encoder, **sizes)


@pytest.fixture
def corpus(mini_corpus, save_units):
    """The folder of a corpus whose questions have one answer; its units lie beside it."""
    root = mini_corpus((16_000, 24_123, 20_000))
    answer = {"text": "silver", "start": 0.3, "end": 0.6, "char_start": 4}
    change_lines(root / "train/questions.jsonl", {"text": "who", "answers": [answer]})
    change_lines(root / "train/passages.jsonl", {"text": "the silver lantern"})
    rng, data = np.random.default_rng(0), load_corpus(root, "train")
    units = {}
    for record in data.records:
        frames = np.repeat(rng.integers(0, 6, 200), 3)
        units[record.id] = RunLength.of_frames(
            frames[: GRID.count_frames(round(record.seconds * 16_000))]
        )
    save_units(units, {"codebook": "b", "precision": "fp32", "corpus": hash_data(root, "train")})
    return root


def test_random_directions_are_as_long_as_the_weights_row_by_row():
    matrix = torch.tensor([[3.0, 4.0], [0.0, 0.5]])
    end = {"matrix": matrix, "bias": torch.tensor([1.0, 2.0]), "dead": torch.zeros(2, 2)}
    direction = draw_direction(end, seed=0)
    assert direction["matrix"].norm(dim=1).tolist() == pytest.approx([5.0, 0.5])
    assert not direction["bias"].any()
    assert not direction["dead"].any()
    assert direction["matrix"].equal(draw_direction(end, seed=0)["matrix"])
    assert not direction["matrix"].equal(draw_direction(end, seed=1)["matrix"])


def test_hill_and_rise_of_curves_that_are_known():
    at = np.array([-0.5, 0.0, 0.5, 1.0])
    # a hill of 2 in the first window, none in the second
    path = np.array([[9.0, 9.0], [4.0, 2.0], [5.0, 1.0], [2.0, 0.0]])
    random = {"at": np.array([-1.0, 0.0, 1.0]), "train": np.array([[3.0], [2.0], [5.0]])}
    lines = {"path": {"at": at, "train": path, "dev": path + 1}, "random": random}
    measures = measure_lines(lines, "dual", "train", "dev")
    values = {task: [value for _, value in items.values()] for task, items in measures.items()}
    assert values[f"dual-{HILL}"] == [2.0, 0.0]
    assert values[f"dual-{END_TRAIN}"] == [2.0, 0.0]
    assert values["dual-loss-dev"] == [3.0, 1.0]
    assert values[f"dual-{RISE}"] == [2.0]  # the mean of 1 and 3
    assert all(map(has_own_table, measures))
    assert not has_own_table("dual")


@pytest.mark.parametrize(("kind", "trained"), [("text-qa", "all"), ("dual", "adapters")])
def test_the_start_is_made_again_as_training_had_it(kind, trained, corpus, checkpoint, tmp_path):
    reader = tmp_path / "reader"
    # a learning rate so small that the reader stays where it began
    qa = make_qa_options(str(checkpoint("BERT")), learning_rate=1e-12, seed=3)
    qa = replace(qa, trained=trained)
    if kind == "dual":
        units = tmp_path / "units"
        train_dual(TrainDual(corpus=corpus, units=units, out=reader, assignment="random", qa=qa))
    else:
        train_text_qa(TrainTextQa(corpus=corpus, out=reader, qa=qa))
    model, _, card = load_reader(reader)
    first = remake_start(corpus, reader, card, model)
    for name, value in model.state_dict().items():
        error = (first[name] - value).abs().max()
        rounding = first[name].abs().max() / 100  # matrices are saved in int8
        assert error <= rounding + 1e-9, name
    assert any(value.ndim > 1 and value.abs().max() > 0 for value in first.values())
    change_json(reader / "made_from.json", text_weights="others")
    refused("did not begin as", remake_start, corpus, reader, card, model)


@pytest.mark.slow
def test_points_leave_rows_figures_and_are_not_taken_twice(
    corpus, checkpoint, tmp_path, dies_in, capsys
):
    units, results = tmp_path / "units", tmp_path / "results"
    qa = make_qa_options(str(checkpoint("BERT")))
    for arm in ("scratch", "random"):
        out = tmp_path / arm
        train_dual(TrainDual(corpus=corpus, units=units, out=out, assignment=arm, qa=qa))

    def make_options(arm):
        reader = tmp_path / arm
        return Surface(corpus=corpus, reader=reader, results=results, arm=arm, units=units, **SMALL)

    measure_surface(make_options("scratch"))
    with dies_in(Losses, "_losses", 4):
        measure_surface(make_options("random"))
    folder = results / "runs/dual-surface/random-0"
    before = (folder / "points.jsonl").read_text()
    assert len(before.splitlines()) == 3
    (folder / "points.jsonl").write_text(f'{before}{{"path 0.5')  # a line that a kill cut short
    capsys.readouterr()
    measure_surface(make_options("random"))
    assert (folder / "points.jsonl").read_text().startswith(before)
    # lines: three points and both ends of the path; three random ones; two planes of 2 x 2
    assert "16 points" in capsys.readouterr().out
    parts = read_json(folder / "surface.json")["parts"]
    path, random = parts["path"], parts["random"]
    end = path["train"][path["at"].index(1.0)]
    assert len(path["at"]) == 5
    assert np.shape(parts["plane"]["train"]) == (2, 2)
    assert end == pytest.approx(random["train"][random["at"].index(0.0)], abs=1e-5)
    model, layout, card = load_reader(tmp_path / "random")
    windows = read_windows("train", model, layout, card, make_options("random"))
    losses = [float(model(**window)["loss"]) for window in windows]
    assert end == pytest.approx(np.mean(losses), abs=1e-4)
    rows = {(r.task, r.encoder): r for r in read_rows(results / "results.jsonl")}
    assert rows["dual-loss-train", "random"].value == pytest.approx(end)
    assert rows["dual-hill", "random"].metric == "nats"
    (table,) = make_tables(Gains(results=results))
    assert table.title == "Loss surfaces: dual"
    assert [row[0] for row in table.rows] == ["random", "random over scratch", "scratch"]


def test_a_curve_ends_in_the_mean_of_the_items_and_those_without_units_are_wrong(
    corpus, checkpoint, tmp_path, monkeypatch
):
    units, results = tmp_path / "units", tmp_path / "results"
    lacking = load_corpus(corpus, "train").questions[0].id

    def load_others(folder):
        return {name: runs for name, runs in load_units(folder).items() if name != lacking}

    monkeypatch.setattr(plateau, "load_units", load_others)
    for seed, arm in product((0, 1), ("scratch", "random")):
        options = plateau.Plateau(
            corpus=corpus,
            units=units,
            results=results,
            arm=arm,
            assignment=arm,
            eval_split="train",
            eval_every=2,
            qa=make_qa_options(str(checkpoint("BERT")), seed=seed, steps=4),
        )
        plateau.measure_plateau(options)
    scores = read_json(results / "runs/dual/random-0/scores.json")
    shares = [share for _, share in scores["items"].values()]
    assert len(shares) == 3
    assert scores["unit"] == "passage"
    assert scores["items"][lacking] == [1.0, 0.0]
    assert [point["step"] for point in scores["curve"]] == [2, 4]
    assert scores["curve"][-1]["score"] == pytest.approx(np.mean(shares))
    rows = {(row.encoder, row.seed): row for row in read_rows(results / "results.jsonl")}
    assert rows["random", 0].metric == "ff1"
    assert rows["random", 0].value == pytest.approx(100 * np.mean(shares))
    # the tables count the steps to a score
    curve = scores["curve"]
    *_, to_25, to_50 = make_tables(Gains(results=results))
    for table, score in ((to_25, 0.25), (to_50, 0.5)):
        assert table.title == f"Steps of DUAL to FF1 {100 * score:.0f}"
        assert table.columns == ("start", "seed 0", "seed 1", "mean", "later than text")
        with_seed_0 = {arm: steps for arm, steps, *_ in table.rows}
        assert set(with_seed_0) == {"scratch", "random"}
        assert with_seed_0["random"] == str(count_steps(curve, score) or "–")
