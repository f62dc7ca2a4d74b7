"""The frozen transformer: what is trained, where it begins, and tasks whose answers are right."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compute import Compute, compute
from speechssl.artifacts import read_json
from speechssl.errors import InputError
from speechssl.options import TrainingOptions
from speechssl.results import read_rows
from speechssl.textlm.encoders import load_text_encoder
from textside import puzzles
from textside.objectives import initialise
from textside.runs import read_runs


def options(task, results, encoder, steps=2, **changes):
    training = TrainingOptions(steps, 3e-3, 1, save_every=50, bf16=False)
    places = {"task": task, "results": results, "encoder": str(encoder), "arm": "frozen"}
    return Compute(training=training, **places | {"batch": 8, "test": 12} | changes)


def test_bit_memory_shows_the_string_once_whole_and_once_masked():
    puzzle = puzzles.load_puzzle("bit-memory", 100)
    shown, wanted = puzzle.batch(0, 4, 0)
    assert shown.shape == (4, puzzle.places, 50) == (4, 12, 50) and wanted.shape == (4, 100)
    strings, masked = shown[:, :10].reshape(4, 5, 100), shown[:, 10:].reshape(4, 100)
    bits = 2 * wanted - 1
    assert all((strings[i] == bits[i]).all(1).any() for i in range(4))
    assert np.array_equal(masked[masked != 0], bits[masked != 0])
    assert 0.3 < (masked == 0).mean() < 0.7


def test_bit_xor_is_one():
    shown, wanted = puzzles.load_puzzle("bit-xor").batch(0, 50, 0)
    first, second = shown[:, :5, 0] > 0, shown[:, 5:, 0] > 0
    assert np.array_equal(first ^ second, wanted.astype(bool))


def read(signs):
    """Another way to the value of an expression."""
    stack = []
    for sign in signs:
        if sign != "]":
            stack.append(sign if sign.startswith("[") else int(sign))
            continue
        values = []
        while not isinstance(stack[-1], str):
            values.append(stack.pop())
        operators = {"[MIN": min, "[MAX": max, "[MED": lambda v: int(np.median(v))}
        stack.append(operators.get(stack.pop(), lambda v: sum(v) % 10)(values))
    (value,) = stack
    return value


@given(st.integers(0, 10**6), st.integers(8, 60))
def test_expressions_fit_and_have_their_value(seed, places):
    signs, value = puzzles.draw_expression(np.random.default_rng(seed), places)
    assert len(signs) <= places and read(signs) == value


def test_listops_are_shown_from_the_right_with_all_their_signs():
    assert puzzles.evaluate("MED", [1, 2, 4, 9]) == 3 and puzzles.evaluate("SUM_MOD", [7, 8]) == 5
    shown, wanted = puzzles.load_puzzle("listops", 30).batch(3, 20, 1)
    assert shown.shape == (20, 30, 16) and np.array_equal(shown.sum(2), np.ones((20, 30)))
    signs = [*map(str, range(10)), "[MIN", "[MAX", "[MED", "[SUM_MOD", "]"]
    for line, (value,) in zip(shown.argmax(2), wanted, strict=True):
        written = [signs[i] for i in line if i < 15]
        assert line[-1] == 14 and len(written) > 2 and read(written) == value
    assert len(set(wanted[:, 0])) > 4


def shown_expression(written, places=14):
    """(1, T, F) as `listops` shows it."""
    signs = [*map(str, range(10)), "[MIN", "[MAX", "[MED", "[SUM_MOD", "]"]
    numbers = [signs.index(sign) for sign in written.split()]
    return np.eye(len(signs) + 1, dtype=np.float32)[
        [len(signs)] * (places - len(numbers)) + numbers
    ][None]


@pytest.mark.parametrize(
    ("written", "guess", "deep", "count"),
    [
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9, 2, 5),
        ("[MIN 5 [MAX 1 8 ] ]", 1, 2, 3),  # which has the value 5
        ("[SUM_MOD 7 [MED 8 [MAX 6 3 ] ] ]", 4, 3, 4),
        ("[MED 1 4 ]", 2, 1, 2),
    ],
)
def test_the_floor_of_listops_is_the_outer_operator_over_all_digits(written, guess, deep, count):
    shown = shown_expression(written)
    signs = puzzles.read_signs(shown[0])
    assert puzzles.apply_outer_operator(shown).tolist() == [[guess]]
    assert signs == written.split()
    assert puzzles.measure_depth(signs) == deep
    assert len(puzzles.list_digits(signs)) == count


def test_the_floors_of_bit_memory_copy_what_is_shown_and_vote_where_it_is_masked():
    strings = [[1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1], [-1, 1, -1, -1], [-1, 1, 1, -1]]
    # the second string, of which two bits are masked
    shown = np.array([[*strings, [0, -1, 0, -1]]], np.float32)
    assert puzzles.copy_shown(shown).tolist() == [[0, 0, 0, 0]]
    assert puzzles.copy_and_vote(shown).tolist() == [[1, 0, 0, 0]]
    shown, wanted = puzzles.load_puzzle("bit-memory", 40).draw_test(500)
    masked = shown[:, 5] == 0
    copied, voted = puzzles.copy_shown(shown) == wanted, puzzles.copy_and_vote(shown) == wanted
    assert copied[~masked].all() and voted[~masked].all()
    assert copied.mean() == pytest.approx(0.75, abs=0.01)
    # the string itself is one of five
    assert voted[masked].mean() == pytest.approx(11 / 16, abs=0.01)


def test_every_task_is_scored_with_its_floors_on_the_same_examples(checkpoint, tmp_path):
    compute(options("listops", tmp_path, checkpoint("BERT"), length=12))
    runs = {p.parent.name: read_json(p) for p in tmp_path.glob("runs/listops/*/scores.json")}
    assert runs.keys() == {"frozen-0", "majority-0", "outer-operator-0"}
    arms = {r.encoder for r in read_rows(tmp_path / "results.jsonl")}
    assert arms == {"frozen", "majority", "outer-operator"}
    shown, wanted = puzzles.load_puzzle("listops", 12).draw_test(12)
    expected = (puzzles.apply_outer_operator(shown) == wanted)[:, 0].astype(float)
    floor = {int(i): share for i, (_, share) in runs["outer-operator-0"]["items"].items()}
    assert floor == dict(enumerate(expected))
    assert runs["frozen-0"]["items"].keys() == runs["outer-operator-0"]["items"].keys()
    signs = puzzles.read_signs(shown[3])
    depth, digits = runs["majority-0"]["expressions"]["3"]
    assert (depth, digits) == (puzzles.measure_depth(signs), len(puzzles.list_digits(signs)))


def test_the_learning_rate_is_the_best_on_dev_and_the_card_says_so(checkpoint, tmp_path):
    rates = [1e-9, 3e-3, 2e-9]
    changes = {"arm": "full", "trained": "all", "steps": 60, "length": 1, "batch": 16}
    compute(
        options("bit-xor", tmp_path, checkpoint("BERT"), learning_rates=tuple(rates), **changes)
    )
    card = read_json(tmp_path / "runs/bit-xor/full-0/scores.json")
    assert [tried["learning_rate"] for tried in card["sweep"]] == rates
    low, best, other = (tried["score"] for tried in card["sweep"])
    assert best > max(low, other)
    assert card["chosen_on"] == {"split": "dev", "items": 12}
    (run,) = (run for run in read_runs(tmp_path) if run.arm == "full")
    assert (run.learning_rate, run.rates) == (3e-3, tuple(rates))


def test_statistics_keep_mean_and_variance_of_each_matrix_and_nothing_else(checkpoint):
    folder = str(checkpoint("BERT", hidden_size=64, intermediate_size=256))
    name = "encoder.layer.0.intermediate.dense.weight"

    def begun(start):
        return initialise(load_text_encoder(folder)[0], start, 1).state_dict()[name]

    before, after = load_text_encoder(folder)[0].state_dict()[name], begun("statistics")
    assert not torch.allclose(before, after)
    assert float(after.std()) == pytest.approx(float(before.std()), rel=0.05)
    assert not torch.equal(begun("default"), before)
    assert torch.equal(begun("pretrained"), before)


@pytest.mark.parametrize(
    ("task", "size"), [("sorting", None), ("bit-memory", 75), ("listops", 4), ("listops", 9999)]
)
def test_tasks_that_cannot_be_had_are_refused(task, size, checkpoint, tmp_path):
    with pytest.raises(InputError):
        compute(options(task, tmp_path / "r", checkpoint("BERT"), length=size))
    assert not list(tmp_path.glob("r/runs/*/*"))
