"""Cutting recordings into words: borders, what a word of a recogniser is taken for, rows of features."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from speechssl.cascade.data import TimedWord
from speechssl.data.records import Span
from speechssl.speechbert.data import matched, spans_of, word_rows, word_table
from speechssl.timing import FrameGrid

GRID = FrameGrid(16_000, 320, 400)


@st.composite
def recordings(draw):
    """Words in order that do not overlap, and the length of their recording."""
    cuts = sorted(draw(st.lists(st.integers(0, 400), min_size=2, max_size=24, unique=True)))
    pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
    return tuple(Span(f"w{i}", a / 50, b / 50) for i, (a, b) in enumerate(pairs)), cuts[-1] / 50 + draw(st.integers(0, 50)) / 50


def test_words_come_in_order_of_time_and_none_is_empty():
    recognised = [TimedWord("b", 0.5, 0.9, 1.0), TimedWord("", 0.2, 0.2, 1.0), TimedWord("a", 0.1, 0.4, 0.5)]
    assert spans_of(recognised) == (Span("a", 0.1, 0.4), Span("b", 0.5, 0.9))


def test_a_word_is_taken_for_the_one_it_covers_by_half():
    known = (Span("silver", 0.0, 1.0), Span("lantern", 1.0, 2.0))
    recognised = (Span("x", 0.05, 0.95), Span("y", 0.6, 1.4), Span("z", 1.0, 1.4), Span("z", 1.4, 2.0))
    assert [w.text for w in matched(recognised, known)] == ["silver", "", "", "lantern"]
    assert [(w.start, w.end) for w in matched(recognised, known)] == [(w.start, w.end) for w in recognised]


def test_words_of_nothing_known_have_no_text():
    assert [w.text for w in matched((Span("x", 0.0, 1.0),), ())] == [""]
    assert matched((), (Span("x", 0.0, 1.0),)) == ()


@given(recordings(), st.integers(1, 400))
def test_every_word_has_rows_of_its_recording(recording, frames):
    rows = word_rows(recording[0], GRID, frames)
    assert rows.shape == (len(recording[0]), 2)
    assert (rows[:, 0] >= 0).all() and (rows[:, 1] <= frames).all() and (rows[:, 1] > rows[:, 0]).all()


def test_neighbours_share_no_more_than_the_row_of_their_border():
    rows = word_rows((Span("a", 0.0, 0.1), Span("b", 0.1, 0.3)), GRID, 50)
    assert rows.tolist() == [[0, 5], [4, 15]]  # sample 1600 lies in frame 4, which owns 1320 to 1639


def test_a_table_numbers_the_words_of_all_recordings_in_every_way_they_were_cut():
    features = np.zeros((40, 3), np.float16)
    cuts = {"p": [(Span("a", 0.0, 0.2), Span("b", 0.2, 0.3)), (Span("", 0.0, 0.3),)], "q": [(), (Span("c", 0.0, 0.1),)]}
    table = word_table(features, {"p": (0, 20), "q": (20, 40)}, cuts, GRID)
    assert table.texts == ("a", "b", "", "c") and len(table.rows) == 4
    assert [s.numbers.tolist() for s in table.sequences["p"]] == [[0, 1], [2]]
    assert [s.numbers.tolist() for s in table.sequences["q"]] == [[], [3]]
    assert table.rows[3].tolist() == [20, 25]
    assert table.sequences["p"][0].inside(0.15, 0.3).tolist() == [1]
