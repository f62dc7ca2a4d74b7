"""Long recordings are cut into pieces at their pauses."""

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
    borders = [0, *(end for _, end in pieces)]
    assert pieces == list(itertools.pairwise(borders))
    assert borders[-1] == samples
    assert all(0 < end - start <= longest * RATE for start, end in pieces)


def test_cuts_fall_into_the_pauses():
    audio = np.ones(10 * RATE, np.float32)
    pauses = (1.4, 3.1, 4.4, 6.0, 7.3, 9.0)  # seconds of their middles
    for pause in pauses:
        audio[int((pause - 0.1) * RATE) : int((pause + 0.1) * RATE)] = 0
    borders = [round(RATE * cut) for cut in (0, *pauses, 10)]
    assert split_at_pauses(audio, longest=2.0) == list(itertools.pairwise(borders))
