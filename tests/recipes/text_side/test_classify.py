"""`classify` fine-tunes an encoder on a task of text or of symbols, and scores it item by item."""

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


def run_classify(
    data, encoder, results, *, arm="bert", assignment="own", steps=2, length=16, eval_every=0
):
    options = Classify(
        data=data,
        encoder=str(encoder),
        results=results,
        arm=arm,
        assignment=assignment,
        batch=8,
        length=length,
        eval_every=eval_every,
        training=TrainingOptions(
            steps=steps, learning_rate=3e-3, warmup_steps=1, bf16=False, save_every=50
        ),
    )
    classify(options)


def write_task(folder, make_line, test):
    """Write a task of 80 training examples, and `test` examples of dev and of test. Returns its
    folder."""
    for split in SPLITS:
        count = 80 if split == "train" else test
        write_lines(folder / f"{split}.jsonl", [make_line() for _ in range(count)])
    return folder


@pytest.fixture
def pairs(tmp_path):
    """A task of text: is the second text the word that the first one begins with?"""
    rng, words = np.random.default_rng(0), ("lake", "silver", "lost", "great")

    def make_line():
        first, other = rng.permutation(words)[:2]
        same = rng.random() < 0.5
        return {"text": f"{first} is old", "pair": first if same else other, "label": int(same)}

    return write_task(tmp_path / "same", make_line, test=20)


@pytest.fixture
def genes(tmp_path):
    """A task of symbols: does a sequence have more A than T?"""
    rng = np.random.default_rng(0)

    def make_line():
        share = float(rng.choice([0.2, 0.8]))
        symbols = rng.choice(["A", "T", "C"], size=12, p=[0.8 * share, 0.8 * (1 - share), 0.2])
        more_a = (symbols == "A").sum() > (symbols == "T").sum()
        return {"symbols": symbols.tolist(), "label": int(more_a)}

    return write_task(tmp_path / "genes", make_line, test=30)


def test_a_run_leaves_the_answer_to_every_item_and_is_not_repeated(pairs, checkpoint, tmp_path):
    encoder, results = checkpoint("BERT"), tmp_path / "results"
    run_classify(pairs, encoder, results, steps=4, eval_every=2)
    scores = read_json(results / "runs/same/bert-0/scores.json")
    assert len(scores["items"]) == 20
    assert [point["step"] for point in scores["curve"]] == [2, 4]
    right = np.mean([gold == predicted for gold, predicted in scores["items"].values()])
    (row,) = read_rows(results / "results.jsonl")
    assert (row.task, row.encoder, row.metric, row.n) == ("same", "bert", "accuracy", 20)
    assert row.value == pytest.approx(100 * right)
    assert scores["curve"][-1]["score"] == pytest.approx(right)
    with untouched(results):
        run_classify(pairs, encoder, results, steps=4, eval_every=2)
    with pytest.raises(InputError, match="made from other inputs"):
        run_classify(pairs, encoder, results, steps=5)


@pytest.mark.slow
def test_symbols_are_learnt_on_rows_of_an_encoder(genes, checkpoint, tmp_path):
    for arm in ("random", "scratch"):
        start = {"arm": arm, "assignment": arm}
        run_classify(genes, checkpoint("BERT"), tmp_path / "r", steps=60, length=14, **start)
    values = {r.encoder: r.value for r in read_rows(tmp_path / "r/results.jsonl")}
    assert set(values) == {"random", "scratch"}
    assert values["random"] > 80


def test_assignments_differ_in_the_weights_that_are_drawn_anew(pairs, checkpoint):
    task = load_task(pairs)

    def begin(assignment, seed=1):
        """Return a matrix of the encoder, and the embeddings."""
        encoder, tokenizer = load_text_encoder(str(checkpoint("BERT")))
        start = begin_task(task, encoder, tokenizer, assignment, seed, longest=16)
        weights = start.encoder.state_dict()
        return weights["encoder.layer.0.attention.self.query.weight"], start.table.weight

    own_matrix, own_table = begin("own")
    matrix, table = begin("re-init")
    assert torch.equal(matrix, own_matrix)
    assert table.shape == own_table.shape
    assert not torch.equal(table, own_table)
    scratch_matrix, _ = begin("scratch")
    assert not torch.equal(scratch_matrix, own_matrix)
    other_seed, _ = begin("scratch", seed=2)
    assert not torch.equal(other_seed, scratch_matrix)


@pytest.mark.parametrize(
    ("data", "assignment", "length"),
    [
        ("pairs", "random", 16),  # an assignment of symbols
        ("genes", "all", 16),  # no assignment
        ("genes", "own", 16),  # the tokeniser has no tokens A, T and C
        ("pairs", "own", 9999),  # longer than the encoder's positions
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    data, assignment, length, request, checkpoint, tmp_path
):
    folder, results = request.getfixturevalue(data), tmp_path / "r"
    with pytest.raises(InputError):
        run_classify(folder, checkpoint("BERT"), results, assignment=assignment, length=length)
    assert not list(results.glob("runs/*/*"))
