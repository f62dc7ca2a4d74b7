"""Cutting long recordings at pauses, and putting the words back."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.cascade.data import TimedWord, Transcript, split_at_pauses, transcribe_pieces

RATE = 1_000


@given(samples=st.integers(0, 20_000), longest=st.floats(0.4, 6), seed=st.integers(0, 99))
def test_pieces_tile_the_recording_and_none_is_too_long(samples, longest, seed):
    audio = np.random.default_rng(seed).normal(size=samples).astype(np.float32)
    pieces = split_at_pauses(audio, longest, RATE)
    assert [i for a, b in pieces for i in range(a, b)] == list(range(samples))
    assert all(0 < b - a <= longest * RATE for a, b in pieces)


def test_cuts_fall_into_the_pauses():
    audio = np.ones(10_000, np.float32)
    for pause in (1.4, 3.1, 4.4, 6.0, 7.3, 9.0):
        audio[int((pause - 0.1) * RATE) : int((pause + 0.1) * RATE)] = 0
    borders = [0, 1400, 3100, 4400, 6000, 7300, 9000, 10_000]
    assert split_at_pauses(audio, 2.0, RATE) == list(itertools.pairwise(borders))


def test_a_short_recording_stays_whole_and_pieces_too_short_for_a_pause_are_refused():
    assert split_at_pauses(np.zeros(2_000), 2.0, RATE) == [(0, 2_000)]
    assert split_at_pauses(np.zeros(0), 2.0, RATE) == []
    with pytest.raises(ValueError, match=r"at least 0\.4 s"):
        split_at_pauses(np.zeros(10), 0.3, RATE)


def test_words_come_back_where_they_were_said_and_inside_their_piece():
    audio = np.ones(3_000, np.float32)
    audio[1_400:1_600] = 0
    seen: list[int] = []

    def decode(piece: np.ndarray) -> list[TimedWord]:
        seen.append(len(piece))
        return [TimedWord("one", 0.1, 0.5, 1.0), TimedWord("late", 1.2, 9.0, 1.0)]

    words = transcribe_pieces(audio, 2.0, RATE, decode)
    assert seen == [1_500, 1_500]
    assert [(w.start, w.end) for w in words] == [(0.1, 0.5), (1.2, 1.5), (1.6, 2.0), (2.7, 3.0)]
    assert Transcript(words).text == "one late one late"
    assert Transcript(words[:2], "").text == "onelate"
