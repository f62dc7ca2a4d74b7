"""Samples, frames, units and seconds agree to the sample."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.metrics import frame_f1
from speechssl.timing import FrameGrid, RunLength, interval_of_units, units_of_interval

KERNELS, STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
HUBERT = FrameGrid.of_convolutions(16_000, KERNELS, STRIDES)
grids = st.sampled_from(
    [HUBERT, FrameGrid(16_000, 160, 400), FrameGrid(22_050, 441, 441), FrameGrid(8_000, 80, 201)]
)
run_lengths = st.lists(st.integers(1, 9), min_size=1, max_size=12).map(
    lambda lengths: RunLength(np.arange(len(lengths)) % 3, np.array(lengths))
)


@pytest.mark.parametrize("samples", [1, 399, 400, 719, 720, 16_000, 16_079, 16_080])
def test_frames_are_what_convolutions_give(samples):
    length = samples
    for kernel, stride in zip(KERNELS, STRIDES, strict=True):
        sound = torch.zeros(1, 1, max(length, kernel))
        length = (
            torch.nn.functional.conv1d(sound, torch.zeros(1, 1, kernel), stride=stride).shape[-1]
            if length >= kernel
            else 0
        )
    assert HUBERT.frames(samples) == length


@given(grids, st.integers(1, 2000))
def test_samples_for_is_the_least_number_that_gives_the_frames(grid, frames):
    least = grid.samples_for(frames)
    assert grid.frames(least) == frames
    assert grid.frames(least - 1) == frames - 1
    assert grid.frames(least + grid.hop - 1) == frames


@given(grids, st.integers(1, 60))
def test_frames_tile_the_samples(grid, frames):
    borders = [grid.first_sample(t) for t in range(frames + 1)]
    assert borders[0] == 0
    assert set(np.diff(borders[1:]).tolist()) <= {grid.hop}
    total = grid.samples_for(frames) + grid.hop - 1
    owners = [grid.frame_at(sample, frames) for sample in range(total)]
    expected = np.searchsorted(borders, np.arange(total), side="right") - 1
    assert owners == np.clip(expected, 0, frames - 1).tolist()


@given(grids, st.integers(0, 5000))
def test_a_frame_starts_where_its_seconds_say(grid, frame):
    sample = grid.sample(grid.seconds(frame))
    assert sample == grid.first_sample(frame)
    assert grid.frame_at(sample, frame + 1) == frame


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
    assert runs.unit_at(runs.frames) == runs.unit_at(runs.frames + 99) == len(runs) - 1


@given(grids, run_lengths, st.data())
def test_spans_of_units_survive_seconds(grid, runs, data):
    first = data.draw(st.integers(0, len(runs) - 1))
    last = data.draw(st.integers(first, len(runs) - 1))
    start, end = interval_of_units(grid, runs, first, last)
    assert start < end <= grid.samples_for(runs.frames) / grid.sample_rate
    assert units_of_interval(grid, runs, start, end) == (first, last)


@given(grids, run_lengths, st.data())
def test_no_span_of_units_fits_better(grid, runs, data):
    total = grid.samples_for(runs.frames)
    first = data.draw(st.integers(0, total - 1))
    last = data.draw(st.integers(first, total - 1))
    gold = first / grid.sample_rate, (last + 1) / grid.sample_rate
    found = frame_f1(interval_of_units(grid, runs, *units_of_interval(grid, runs, *gold)), [gold])
    count = len(runs)
    best = max(
        frame_f1(interval_of_units(grid, runs, i, j), [gold])
        for i in range(count)
        for j in range(i, count)
    )
    assert found == pytest.approx(best) and found > 0


@given(grids, run_lengths, st.integers(0, 10_000))
def test_the_last_unit_ends_where_the_recording_does(grid, runs, beyond):
    # all lengths that give so many frames
    samples = grid.samples_for(runs.frames) + beyond % grid.hop
    assert grid.frames(samples) == runs.frames
    runs = RunLength(runs.units, runs.lengths, samples / grid.sample_rate)
    last = len(runs) - 1
    start, end = interval_of_units(grid, runs, last, last)
    assert grid.sample(end) == samples and start < end
    assert units_of_interval(grid, runs, start, end) == (last, last)
    if last:
        assert interval_of_units(grid, runs, last - 1, last - 1)[1] == start


def test_the_last_unit_of_a_padded_recording_is_not_empty():
    # the last frame begins at sample 1,000
    runs = RunLength(np.array([1, 2]), np.array([3, 1]), 900 / 16_000)
    assert interval_of_units(HUBERT, runs, 1, 1) == (1000 / 16_000, 1001 / 16_000)


def test_what_is_refused():
    inf = float("inf")
    for start, end in ((1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0), (0.0, inf)):
        with pytest.raises(ValueError, match="is not an interval"):
            units_of_interval(HUBERT, RunLength(np.array([1]), np.array([9])), start, end)
    for first, last in ((-1, 0), (1, 0), (0, 2)):
        with pytest.raises(ValueError, match="not among 2 units"):
            interval_of_units(HUBERT, RunLength(np.array([1, 2]), np.array([3, 4])), first, last)
