"""Tests of the conversions between samples, frames, units and seconds, to the sample."""

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.metrics import frame_f1
from speechssl.timing import FrameGrid, RunLength, find_interval, find_units

KERNELS = (10, 3, 3, 3, 3, 2, 2)
STRIDES = (5, 2, 2, 2, 2, 2, 2)
HUBERT = FrameGrid.of_convolutions(16_000, KERNELS, STRIDES)
grids = st.sampled_from(
    [
        HUBERT,
        FrameGrid(16_000, hop=160, receptive=400),
        FrameGrid(22_050, hop=441, receptive=441),
        FrameGrid(8_000, hop=80, receptive=201),
    ]
)
run_lengths = st.lists(st.integers(1, 9), min_size=1, max_size=12).map(
    lambda lengths: RunLength(np.arange(len(lengths)) % 3, np.array(lengths))
)


@pytest.mark.parametrize("samples", [1, 399, 400, 719, 720, 16_000, 16_079, 16_080])
def test_frames_are_what_convolutions_give(samples):
    length = samples
    for kernel, stride in zip(KERNELS, STRIDES, strict=True):
        if length < kernel:
            length = 0
            break
        sound, weight = torch.zeros(1, 1, length), torch.zeros(1, 1, kernel)
        length = torch.nn.functional.conv1d(sound, weight, stride=stride).shape[-1]
    assert HUBERT.count_frames(samples) == length


@given(grids, st.integers(1, 2000))
def test_samples_for_is_the_smallest_number_that_gives_the_frames(grid, frames):
    smallest = grid.count_samples(frames)
    assert grid.count_frames(smallest) == frames
    assert grid.count_frames(smallest - 1) == frames - 1
    assert grid.count_frames(smallest + grid.hop - 1) == frames


@given(grids, st.integers(1, 60))
def test_frames_tile_the_samples(grid, frames):
    borders = [grid.find_first_sample(t) for t in range(frames + 1)]
    assert borders[0] == 0
    assert set(np.diff(borders[1:]).tolist()) <= {grid.hop}
    total = grid.count_samples(frames) + grid.hop - 1
    owners = [grid.find_frame(sample, frames) for sample in range(total)]
    expected = np.searchsorted(borders, np.arange(total), side="right") - 1
    assert owners == np.clip(expected, 0, frames - 1).tolist()


@given(grids, st.integers(0, 5000))
def test_a_frame_starts_where_its_seconds_say(grid, frame):
    sample = grid.find_sample(grid.find_start(frame))
    assert sample == grid.find_first_sample(frame)
    assert grid.find_frame(sample, frame + 1) == frame


@given(st.lists(st.integers(0, 3), max_size=40))
def test_runs_merge_and_expand(frames):
    runs = RunLength.of_frames(np.array(frames, dtype=np.int64))
    assert runs.expand().tolist() == frames
    assert runs.frames == len(frames)
    assert not (runs.units[1:] == runs.units[:-1]).any()


@given(run_lengths)
def test_unit_at_is_the_unit_of_the_frame(runs):
    owners = np.repeat(np.arange(len(runs)), runs.lengths)
    assert [runs.unit_at(frame) for frame in range(runs.frames)] == owners.tolist()
    assert runs.unit_at(-3) == 0
    assert runs.unit_at(runs.frames) == len(runs) - 1
    assert runs.unit_at(runs.frames + 99) == len(runs) - 1


@given(grids, run_lengths, st.data())
def test_spans_of_units_survive_seconds(grid, runs, data):
    first = data.draw(st.integers(0, len(runs) - 1))
    last = data.draw(st.integers(first, len(runs) - 1))
    start, end = find_interval(grid, runs, first, last)
    assert start < end
    assert end <= grid.count_samples(runs.frames) / grid.sample_rate
    assert find_units(grid, runs, start, end) == (first, last)


@given(grids, run_lengths, st.data())
def test_no_span_of_units_fits_better(grid, runs, data):
    total = grid.count_samples(runs.frames)
    first = data.draw(st.integers(0, total - 1))
    last = data.draw(st.integers(first, total - 1))
    gold = first / grid.sample_rate, (last + 1) / grid.sample_rate  # seconds

    def score(first_unit, last_unit):
        return frame_f1(find_interval(grid, runs, first_unit, last_unit), [gold])

    spans = combinations_with_replacement(range(len(runs)), 2)
    best = max(score(*span) for span in spans)
    assert best > 0
    assert score(*find_units(grid, runs, *gold)) == pytest.approx(best)


@given(grids, run_lengths, st.integers(0, 10_000))
def test_the_last_unit_ends_where_the_recording_does(grid, runs, beyond):
    # any length that gives this number of frames
    samples = grid.count_samples(runs.frames) + beyond % grid.hop
    assert grid.count_frames(samples) == runs.frames
    runs = RunLength(runs.units, runs.lengths, samples / grid.sample_rate)
    last = len(runs) - 1
    start, end = find_interval(grid, runs, last, last)
    assert start < end
    assert grid.find_sample(end) == samples
    assert find_units(grid, runs, start, end) == (last, last)
    if last > 0:
        _, end_before = find_interval(grid, runs, last - 1, last - 1)
        assert end_before == start


def test_the_last_unit_of_a_padded_recording_is_not_empty():
    # the last frame begins at sample 1,000, after the end of the recording
    runs = RunLength(np.array([1, 2]), np.array([3, 1]), seconds=900 / 16_000)
    assert find_interval(HUBERT, runs, 1, 1) == (1000 / 16_000, 1001 / 16_000)


@pytest.mark.parametrize(
    ("start", "end"), [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.inf)]
)
def test_an_empty_or_infinite_interval_is_refused(start, end):
    runs = RunLength(np.array([1]), np.array([9]))
    with pytest.raises(ValueError, match="is not an interval"):
        find_units(HUBERT, runs, start, end)


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (1, 0), (0, 2)])
def test_a_span_beyond_the_units_is_refused(first, last):
    runs = RunLength(np.array([1, 2]), np.array([3, 4]))
    with pytest.raises(ValueError, match="not among 2 units"):
        find_interval(HUBERT, runs, first, last)
