"""Words found in a text, and answers timed by them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.records import Answer, Passage, Span
from speechssl.data.squad import places, read_words, with_times
from speechssl.errors import InputError


def spans(words):
    return tuple(Span(word, float(i), i + 1.0) for i, word in enumerate(words))


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("Ann, in Rome.", "ann in Rome", [(0, 3), (5, 7), (8, 12)]),
        ("a a", "a a", [(0, 1), (2, 3)]),
        ("在歐洲", "在 歐洲", [(0, 1), (1, 3)]),
        ("Ann left Rome", "Ann Rome", None),
        ("Ann", "Ann Rome", None),
        ("İstanbul is", "is", None),
        ("Ann", "", []),
    ],
)
def test_places(text, words, found):
    assert places(text, spans(words.split())) == found


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=8), st.data())
def test_an_answer_of_whole_words_has_their_times(words, data):
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    start = len(" ".join([*words[:first], ""])) if first else 0
    passage = Passage("p", "", 99.0, " ".join(words), "", "en", spans(words))
    (answer,) = with_times((Answer(" ".join(words[first : last + 1]), char_start=start),), passage)
    assert (answer.start, answer.end) == (first, last + 1)


def test_no_times_without_an_offset_or_where_the_words_are_others():
    passage = Passage("p", "", 9.0, "Ann left", "", "en", spans(["Bob", "left"]))
    assert with_times((Answer("left", char_start=4), Answer("left")), passage) == (Answer("left", char_start=4), Answer("left"))


@pytest.mark.parametrize("content", ["{", "[3]", '[["a", 1]]', '[["a", "x", 2]]', '[["a", 2, 1]]', '[["a", 0, NaN]]', "3"])
def test_files_that_hold_no_words_are_named(tmp_path, content):
    (tmp_path / "p.words.json").write_text(content)
    with pytest.raises(InputError, match=r"p.words.json .*; write it anew or remove it"):
        read_words(tmp_path / "p.words.json")
