"""Fine-tuning on a task: from any start, of text and of symbols, scored item by item."""

import numpy as np
import pytest
import torch

from classify import Classify, begin_task, classify
from speechssl.artifacts import read_json
from speechssl.errors import InputError
from speechssl.options import TrainingOptions
from speechssl.results import read_rows
from speechssl.textlm.encoders import load_text_encoder
from textside.tasks import SPLITS, load_task

from ...files import untouched, write_lines


def classified(data, encoder, results, arm="bert", assignment="own", steps=2, **changes):
    training = TrainingOptions(steps, 3e-3, 1, bf16=False, save_every=50)
    places = {"data": data, "encoder": str(encoder), "results": results, "training": training}
    classify(
        Classify(**places, arm=arm, assignment=assignment, **{"batch": 8, "length": 16} | changes)
    )


def write(folder, line, test):
    for split in SPLITS:
        write_lines(
            folder / f"{split}.jsonl", [line() for _ in range(80 if split == "train" else test)]
        )
    return folder


@pytest.fixture
def pairs(tmp_path):
    """Is the second text the word that the first one begins with?"""
    rng, words = np.random.default_rng(0), ("lake", "silver", "lost", "great")

    def line():
        first, other = rng.permutation(words)[:2]
        same = rng.random() < 0.5
        return {"text": f"{first} is old", "pair": first if same else other, "label": int(same)}

    return write(tmp_path / "same", line, 20)


@pytest.fixture
def genes(tmp_path):
    """Does a sequence have more A than T?"""
    rng = np.random.default_rng(0)

    def line():
        share = float(rng.choice([0.2, 0.8]))
        drawn = rng.choice(["A", "T", "C"], size=12, p=[0.8 * share, 0.8 * (1 - share), 0.2])
        return {
            "symbols": drawn.tolist(),
            "label": int((drawn == "A").sum() > (drawn == "T").sum()),
        }

    return write(tmp_path / "genes", line, 30)


def test_a_run_leaves_what_every_item_got_and_is_not_repeated(pairs, checkpoint, tmp_path):
    encoder, results = checkpoint("BERT"), tmp_path / "results"
    classified(pairs, encoder, results, steps=4, eval_every=2)
    scores = read_json(results / "runs/same/bert-0/scores.json")
    assert len(scores["items"]) == 20
    assert [point["step"] for point in scores["curve"]] == [2, 4]
    right = np.mean([gold == guess for gold, guess in scores["items"].values()])
    (row,) = read_rows(results / "results.jsonl")
    assert (row.task, row.encoder, row.metric, row.n) == ("same", "bert", "accuracy", 20)
    assert row.value == pytest.approx(100 * right)
    assert scores["curve"][-1]["score"] == pytest.approx(right)
    with untouched(results):
        classified(pairs, encoder, results, steps=4, eval_every=2)
    with pytest.raises(InputError, match="made from other inputs"):
        classified(pairs, encoder, results, steps=5)


@pytest.mark.slow
def test_symbols_are_learnt_on_rows_of_an_encoder(genes, checkpoint, tmp_path):
    for arm in ("random", "scratch"):
        classified(genes, checkpoint("BERT"), tmp_path / "r", arm, arm, steps=60, length=14)
    values = {r.encoder: r.value for r in read_rows(tmp_path / "r/results.jsonl")}
    assert set(values) == {"random", "scratch"}
    assert values["random"] > 80


def test_starts_differ_in_what_is_drawn_anew(pairs, checkpoint):
    task = load_task(pairs)
    layer = "encoder.layer.0.attention.self.query.weight"

    def made(assignment, seed=1):
        body, table, *_ = begin_task(
            task, *load_text_encoder(str(checkpoint("BERT"))), assignment, seed, 16
        )
        return body.state_dict()[layer], table.weight

    own, again, scratch = made("own"), made("re-init"), made("scratch")
    assert torch.equal(own[0], again[0]) and not torch.equal(own[0], scratch[0])
    assert own[1].shape == again[1].shape and not torch.equal(own[1], again[1])
    assert not torch.equal(made("scratch", 2)[0], scratch[0])


@pytest.mark.parametrize(
    ("data", "assignment", "length"),
    [("pairs", "random", 16), ("genes", "all", 16), ("genes", "own", 16), ("pairs", "own", 9999)],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    data, assignment, length, request, checkpoint, tmp_path
):
    folder, results = request.getfixturevalue(data), tmp_path / "r"
    with pytest.raises(InputError):
        classified(folder, checkpoint("BERT"), results, "x", assignment, length=length)
    assert not list(results.glob("runs/*/*"))
