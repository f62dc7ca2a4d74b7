"""The tasks of the frozen transformer have right answers and floors, and `compute` trains on them
from the weights that its options name."""

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

TESTED = 12  # examples


def make_options(task, results, encoder, steps=2, **options):
    """Make options of Compute. options: in the place of these."""
    options = {"arm": "frozen", "batch": 8, "test": TESTED} | options
    training = TrainingOptions(
        steps=steps, learning_rate=3e-3, warmup_steps=1, save_every=50, bf16=False
    )
    return Compute(task=task, results=results, encoder=str(encoder), training=training, **options)


def test_bit_memory_shows_the_string_once_whole_and_once_masked():
    puzzle = puzzles.load_puzzle("bit-memory", 100)
    shown, answers = puzzle.batch(step=0, size=4, seed=0)
    assert puzzle.places == 12  # six strings of 100 bits, 50 bits a place
    assert shown.shape == (4, 12, 50)
    assert answers.shape == (4, 100)
    strings, masked = shown[:, :10].reshape(4, 5, 100), shown[:, 10:].reshape(4, 100)
    bits = 2 * answers - 1
    for i in range(4):
        assert (strings[i] == bits[i]).all(1).any()
    assert np.array_equal(masked[masked != 0], bits[masked != 0])
    assert 0.3 < (masked == 0).mean() < 0.7


def test_the_answer_of_bit_xor_is_the_exclusive_or_of_both_strings():
    shown, answers = puzzles.load_puzzle("bit-xor").batch(step=0, size=50, seed=0)
    first, second = shown[:, :5, 0] > 0, shown[:, 5:, 0] > 0
    assert np.array_equal(first ^ second, answers.astype(bool))


SIGNS = [*map(str, range(10)), "[MIN", "[MAX", "[MED", "[SUM_MOD", "]"]
PADDING = len(SIGNS)  # its feature


def evaluate(signs):
    """Compute the value of an expression in another way than the task does, by a stack."""
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
    assert len(signs) <= places
    assert evaluate(signs) == value


def test_listops_are_shown_from_the_right_with_all_their_signs():
    shown, answers = puzzles.load_puzzle("listops", 30).batch(step=3, size=20, seed=1)
    assert shown.shape == (20, 30, len(SIGNS) + 1)
    assert np.array_equal(shown.sum(2), np.ones((20, 30)))  # one sign a place
    for features, (value,) in zip(shown.argmax(2), answers, strict=True):
        signs = [SIGNS[feature] for feature in features if feature != PADDING]
        assert SIGNS[features[-1]] == "]"
        assert len(signs) > 2
        assert evaluate(signs) == value
    assert len(set(answers[:, 0])) > 4


@pytest.mark.parametrize(
    ("text", "answer", "depth", "digits"),
    [
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9, 2, 5),
        ("[SUM_MOD 7 [MED 8 [MAX 6 3 ] ] ]", 4, 3, 4),
        ("[MED 1 4 ]", 2, 1, 2),
    ],
)
def test_the_floor_of_listops_is_the_outer_operator_over_all_digits(text, answer, depth, digits):
    features = [SIGNS.index(sign) for sign in text.split()]
    padded = [PADDING] * (14 - len(features)) + features  # in 14 places
    shown = np.eye(len(SIGNS) + 1, dtype=np.float32)[padded][None]
    signs = puzzles.read_signs(shown[0])
    assert puzzles.apply_outer_operator(shown).tolist() == [[answer]]
    assert signs == text.split()
    assert puzzles.measure_depth(signs) == depth
    assert len(puzzles.list_digits(signs)) == digits


def test_the_floors_of_bit_memory_copy_bits_and_vote_on_those_that_are_masked():
    strings = [[1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1], [-1, 1, -1, -1], [-1, 1, 1, -1]]
    # the second string, of which two bits are masked
    shown = np.array([[*strings, [0, -1, 0, -1]]], np.float32)
    assert puzzles.copy_shown(shown).tolist() == [[0, 0, 0, 0]]
    assert puzzles.copy_and_vote(shown).tolist() == [[1, 0, 0, 0]]
    # they are right as often as they can be
    shown, answers = puzzles.load_puzzle("bit-memory", 40).draw_test(500)
    masked = shown[:, 5] == 0
    copied = puzzles.copy_shown(shown) == answers
    voted = puzzles.copy_and_vote(shown) == answers
    assert copied[~masked].all()
    assert voted[~masked].all()
    assert copied.mean() == pytest.approx(0.75, abs=0.01)  # half of the masked half is 0
    # the string is one of five: with it the majority is at least two of the four others
    assert voted[masked].mean() == pytest.approx(11 / 16, abs=0.01)


def test_every_task_is_scored_with_its_floors_on_the_same_examples(checkpoint, tmp_path):
    compute(make_options("listops", tmp_path, checkpoint("BERT"), length=12))
    runs = {p.parent.name: read_json(p) for p in tmp_path.glob("runs/listops/*/scores.json")}
    assert runs.keys() == {"frozen-0", "majority-0", "outer-operator-0"}
    arms = {r.encoder for r in read_rows(tmp_path / "results.jsonl")}
    assert arms == {"frozen", "majority", "outer-operator"}
    shown, answers = puzzles.load_puzzle("listops", 12).draw_test(TESTED)
    right = (puzzles.apply_outer_operator(shown) == answers)[:, 0].astype(float)
    shares = {int(i): share for i, (_, share) in runs["outer-operator-0"]["items"].items()}
    assert shares == dict(enumerate(right))
    assert runs["frozen-0"]["items"].keys() == runs["outer-operator-0"]["items"].keys()
    signs = puzzles.read_signs(shown[3])
    depth, digits = runs["majority-0"]["expressions"]["3"]
    assert depth == puzzles.measure_depth(signs)
    assert digits == len(puzzles.list_digits(signs))


def test_the_learning_rate_is_the_best_on_dev_and_the_card_says_so(checkpoint, tmp_path):
    rates = (1e-9, 3e-3, 2e-9)  # the others are too low to learn
    options = make_options(
        "bit-xor",
        tmp_path,
        checkpoint("BERT"),
        learning_rates=rates,
        arm="full",
        trained="all",
        steps=60,
        length=1,
        batch=16,
    )
    compute(options)
    card = read_json(tmp_path / "runs/bit-xor/full-0/scores.json")
    scores = {line["learning_rate"]: line["score"] for line in card["sweep"]}
    assert tuple(scores) == rates
    assert max(scores, key=scores.get) == 3e-3
    assert card["chosen_on"] == {"split": "dev", "items": TESTED}
    (run,) = (run for run in read_runs(tmp_path) if run.arm == "full")
    assert run.learning_rate == 3e-3
    assert run.rates == rates


def test_statistics_keep_mean_and_variance_of_each_matrix_and_nothing_else(checkpoint):
    folder = str(checkpoint("BERT", hidden_size=64, intermediate_size=256))
    name = "encoder.layer.0.intermediate.dense.weight"

    def initialise_matrix(init):
        encoder, _ = load_text_encoder(folder)
        return initialise(encoder, init, seed=1).state_dict()[name]

    encoder, _ = load_text_encoder(folder)
    before, after = encoder.state_dict()[name], initialise_matrix("statistics")
    assert not torch.allclose(before, after)
    assert float(after.std()) == pytest.approx(float(before.std()), rel=0.05)
    assert not torch.equal(initialise_matrix("default"), before)
    assert torch.equal(initialise_matrix("pretrained"), before)


@pytest.mark.parametrize(
    ("task", "length"),
    [
        ("sorting", None),  # no task
        ("bit-memory", 75),  # 50 bits a place
        ("listops", 4),  # too short for an expression
        ("listops", 9999),  # longer than the encoder's positions
    ],
)
def test_unknown_tasks_and_unfit_lengths_are_refused(task, length, checkpoint, tmp_path):
    with pytest.raises(InputError):
        compute(make_options(task, tmp_path / "r", checkpoint("BERT"), length=length))
    assert not list(tmp_path.glob("r/runs/*/*"))
