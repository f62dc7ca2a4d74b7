"""Scores of multiple choice: what is right, what chance is worth, which option is longest."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.records import Question
from speechssl.multiple_choice.model import longest_options, score_choice


def question(options, correct):
    return Question("q", "p", "", 0.0, "why", "", "en", options=tuple(options), correct=tuple(correct))


@st.composite
def questions(draw):
    options = draw(st.lists(st.text(max_size=8), min_size=1, max_size=6))
    return question(options, sorted(draw(st.sets(st.integers(0, len(options) - 1), min_size=1))))


@pytest.mark.slow
@given(questions(), st.data())
def test_only_the_right_set_scores_in_any_order(asked, data):
    picked = data.draw(st.sets(st.integers(0, len(asked.options) - 1)))
    scored = score_choice(asked, data.draw(st.permutations(sorted(picked))))
    assert scored.set_accuracy == float(picked == set(asked.correct))
    assert scored.accuracy == (scored.set_accuracy if len(asked.correct) == 1 else None)


@given(questions())
def test_chance_is_the_mean_over_all_sets_of_the_right_size(asked):
    sets = list(combinations(range(len(asked.options)), len(asked.correct)))
    assert score_choice(asked, None).set_accuracy == pytest.approx(
        sum(score_choice(asked, s).set_accuracy for s in sets) / len(sets)
    )


@given(questions())
def test_the_longest_are_as_many_as_are_right_and_none_left_out_is_longer(asked):
    picked = longest_options(asked)
    assert len(picked) == len(asked.correct)
    left = [len(o) for i, o in enumerate(asked.options) if i not in picked]
    assert not left or max(left) <= min(len(asked.options[i]) for i in picked)


def test_chance_on_four_options():
    assert [score_choice(question("abcd", right), None).set_accuracy for right in ((0,), (0, 3), (0, 1, 2))] == [
        1 / 4,
        1 / 6,
        1 / 4,
    ]
