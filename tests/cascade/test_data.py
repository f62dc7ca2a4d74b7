"""Cutting long recordings at pauses, and putting the words back."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE as RATE
from speechssl.cascade.data import split_at_pauses


@given(samples=st.integers(0, 320_000), longest=st.floats(0.4, 6), seed=st.integers(0, 99))
def test_pieces_tile_the_recording_and_none_is_too_long(samples, longest, seed):
    audio = np.random.default_rng(seed).normal(size=samples).astype(np.float32)
    pieces = split_at_pauses(audio, longest)
    borders = [0, *(b for _, b in pieces)]
    assert pieces == list(itertools.pairwise(borders)) and borders[-1] == samples
    assert all(0 < b - a <= longest * RATE for a, b in pieces)


def test_cuts_fall_into_the_pauses():
    audio = np.ones(10 * RATE, np.float32)
    for pause in (1.4, 3.1, 4.4, 6.0, 7.3, 9.0):
        audio[int((pause - 0.1) * RATE) : int((pause + 0.1) * RATE)] = 0
    borders = [round(RATE * cut) for cut in (0, 1.4, 3.1, 4.4, 6.0, 7.3, 9.0, 10)]
    assert split_at_pauses(audio, 2.0) == list(itertools.pairwise(borders))
