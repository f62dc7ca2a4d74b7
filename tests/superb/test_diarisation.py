"""Diarisation as a task: frames and seconds, what is learnt, what is judged, and recordings that nobody heard."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import medfilt

from speechssl.data.utterances import Turn, Utterance, UtteranceSet
from speechssl.errors import InputError
from speechssl.superb.task import Batch
from speechssl.superb.tasks.diarisation import PUBLISHED, Diarisation, active_frames, intervals, smoothed
from speechssl.timing import FrameGrid

GRID = FrameGrid(16_000, 320, 400)
GRIDS = [GRID, FrameGrid(16_000, 160, 400), FrameGrid(16_000, 160, 160)]


def recording(name, seed, speakers=("ann", "bob"), seconds=6.0):
    rng = np.random.default_rng(seed)
    borders = [np.sort(rng.uniform(0, seconds, 4)) for _ in speakers]
    turns = [Turn(who, float(b[i]), float(b[i + 1])) for who, b in zip(speakers, borders, strict=True) for i in (0, 2)]
    return Utterance(name, f"{name}.flac", seconds, turns=tuple(turns))


def data(**changes):
    splits = {
        split: tuple(recording(f"{split}-{i}", 10 * n + i) for i in range(6)) for n, split in enumerate(("train", "dev", "test"))
    }
    return UtteranceSet(Path("sets/sd"), "sd", splits | changes, "hash")


def truth_of(u, grid=GRID):
    return active_frames(u.turns, grid, grid.frames(grid.sample(u.seconds)))


def heard(found, seed=0):
    """States in which a voice is a direction: (B, 2, T, 8)."""
    generator, rng = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    voices, truths = torch.randn(2, 8, generator=generator), [truth_of(u) for u in found]
    states = torch.zeros(len(found), 2, max(len(t) for t in truths), 8)
    for i, truth in enumerate(truths):
        states[i, :, : len(truth)] = truth @ voices + 0.3 * torch.randn(2, len(truth), 8, generator=rng)
    return Batch(tuple(found), states, torch.tensor([len(t) for t in truths]))


def perfect(found):
    return {u.id: truth_of(u).numpy() for u in found}


def test_the_published_task():
    task = Diarisation(data(), GRID)
    assert (task.name, task.pooled, task.wants_waves, PUBLISHED.batch, PUBLISHED.steps) == ("sd", False, False, 32, 30_000)
    assert (task.hidden, task.chunk, task.threshold, task.median, task.collar) == (512, 2_000, 0.5, 11, 0)
    assert task.build(13, 768).shape.speakers == 2  # from the data
    three = Diarisation(data(train=(recording("x", 0, ("ann", "bob", "cem")),)), GRID)
    assert three.build(1, 4).shape.speakers == 3 and Diarisation(three.data, GRID, speakers=2).build(1, 4).shape.speakers == 2


def test_it_learns():
    task = Diarisation(data(), GRID, hidden=24, chunk=150)
    torch.manual_seed(0)
    head = task.build(2, 8)
    optimiser = torch.optim.Adam(head.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        loss = task.loss(head, heard(task.data.splits["train"]))
        loss.backward()
        optimiser.step()
    batch = heard(task.data.splits["test"], 1)
    predicted = dict(zip([u.id for u in batch.utterances], task.predict(head, batch), strict=True))
    judged = task.judge("test", predicted, 100)
    (der,) = judged.measures
    assert (der.metric, der.n) == ("der", 6) and der.low <= der.value <= der.high and der.value < 25
    assert sum(judged.detail["parts"].values()) == pytest.approx(der.value) and json.dumps(judged.detail)
    timeline = judged.detail["timeline"]
    assert (timeline["id"], timeline["seconds"], len(timeline["truth"])) == ("test-0", 6.0, 4)
    assert {turn["speaker"] for turn in timeline["said"]} == {"ann", "bob"}  # by the names of those they belong to


@pytest.mark.parametrize("grid", GRIDS)
def test_perfect_frames_are_as_good_as_frames_allow(grid):
    task = Diarisation(data(), grid, median=1)
    der = task.judge("test", {u.id: truth_of(u, grid).numpy() for u in task.data.splits["test"]}, 0).measures[0]
    borders = sum(2 * len(u.turns) for u in task.data.splits["test"])
    speech = sum(turn.end - turn.start for u in task.data.splits["test"] for turn in u.turns)
    assert 0 < der.value <= 100 * borders * grid.hop / grid.sample_rate / 2 / speech * 1.2
    collar = Diarisation(task.data, grid, median=1, collar=0.03)
    assert collar.judge("test", {u.id: truth_of(u, grid).numpy() for u in task.data.splits["test"]}, 0).measures[0].value < 1e-6


@given(st.sampled_from(GRIDS), st.integers(1, 200), st.integers(0, 99))
def test_frames_to_seconds_and_back(grid, frames, seed):
    active = np.random.default_rng(seed).random(frames) < 0.5
    found = intervals(active, grid, grid.samples_for(frames) / grid.sample_rate)
    again = active_frames([Turn("a", *interval) for interval in found], grid, frames)
    assert again.shape == (frames, int(active.any())) and (not active.any() or np.array_equal(again[:, 0].numpy() > 0, active))


@pytest.mark.parametrize(("said", "end"), [(0.5, 0.505), (0.5125, 0.5125), (9.0, 0.525)])
def test_the_last_frame_ends_with_the_recording(said, end):
    """25 frames mean 8,080 to 8,399 samples; a manifest may say something else."""
    assert GRID.frames(8_080) == GRID.frames(8_399) == 25
    assert intervals(np.ones(25, bool), GRID, said) == [(0.0, end)]


def test_labels_by_hand():
    found = active_frames([Turn("bob", 0.0, 0.03), Turn("ann", 0.02, 0.06), Turn("ann", 0.5, 9.0)], GRID, 5)
    assert found.T.tolist() == [
        [0, 1, 1, 0, 0],
        [1, 0, 0, 0, 0],
    ]  # middles at 0.01, 0.0325, 0.0525 s: bob has not half of the second


@pytest.mark.filterwarnings("ignore:kernel_size exceeds")
@given(st.integers(1, 60), st.integers(1, 3), st.sampled_from([1, 3, 11, 51]), st.integers(0, 99))
def test_the_filter_is_scipys(frames, speakers, median, seed):
    active = np.random.default_rng(seed).random((frames, speakers)) < 0.5
    assert np.array_equal(smoothed(active, median), medfilt(active.astype(float), (median, 1)) > 0.5)


def test_a_prediction_is_the_recordings_own():
    task = Diarisation(data(), GRID, hidden=8)
    head, found = task.build(2, 8), [recording("x", 0, seconds=3.0), recording("y", 1, seconds=0.03), recording("z", 2)]
    batch = heard(found)
    for i, (u, together) in enumerate(zip(found, task.predict(head, batch), strict=True)):
        n = int(batch.lengths[i])
        (alone,) = task.predict(head, Batch((u,), batch.states[i : i + 1, :, :n], batch.lengths[i : i + 1]))
        assert together.shape == (n, 2) and together.dtype == np.float32 and np.allclose(alone, together, atol=1e-6)


def test_labels_follow_the_chunk():
    """With states that are the labels and a head that repeats them, every chunk is without loss."""
    task = Diarisation(data(), GRID, chunk=37)
    batch = heard(task.data.splits["train"])
    for i, u in enumerate(batch.utterances):
        batch.states[i, :, : len(truth_of(u)), :2] = truth_of(u)
    for _ in range(5):
        assert task.loss(lambda states: 60 * states[:, 0, :, :2] - 30, batch) < 1e-6


def test_more_speakers_than_outputs():
    task = Diarisation(data(test=(recording("t", 5, ("ann", "bob", "cem", "dan")),)), GRID, median=1)
    truth = perfect(task.data.splits["test"])["t"]
    assert (
        task.loss(task.build(2, 8), Batch(task.data.splits["test"], torch.randn(1, 2, len(truth), 8), torch.tensor([len(truth)])))
        > 0
    )
    judged = task.judge("test", {"t": truth[:, :2]}, 50)
    assert judged.detail["parts"]["miss"] > 10 and judged.detail["parts"]["confusion"] < 3
    assert {turn["speaker"] for turn in judged.detail["timeline"]["said"]} == {"ann", "bob"}


def test_fewer_speakers_than_outputs():
    task = Diarisation(data(), GRID, speakers=5, median=1)
    wide = {name: np.pad(x, ((0, 0), (2, 1))) for name, x in perfect(task.data.splits["test"]).items()}
    assert task.judge("test", wide, 0).measures[0].value < 3
    assert task.loss(task.build(2, 8), heard(task.data.splits["train"])).isfinite()


@pytest.mark.parametrize("broken", [{}, {"test-0": np.full((299, 2), np.nan)}])
def test_of_what_nobody_heard_all_is_missed(broken):
    task = Diarisation(data(), GRID, median=1)
    found = perfect(task.data.splits["test"])
    judged = task.judge("test", {name: x for name, x in found.items() if name != "test-0"} | broken, 0)
    speech = [sum(turn.end - turn.start for turn in u.turns) for u in task.data.splits["test"]]
    assert judged.detail["parts"]["miss"] > 100 * speech[0] / sum(speech) and judged.measures[0].n == 6
    assert judged.detail["timeline"]["said"] == [] and judged.measures[0].low == judged.measures[0].high
    assert task.judge("test", {}, 0).measures[0].value == pytest.approx(100)


def test_a_recording_in_which_nobody_speaks():
    task = Diarisation(data(test=(Utterance("quiet", "q.flac", 2.0), recording("t", 5))), GRID)
    said = perfect(task.data.splits["test"]) | {"quiet": np.ones((99, 2), np.float32)}
    judged = task.judge("test", said, 50)
    assert judged.detail["parts"]["false_alarm"] > 10 and judged.detail["timeline"]["truth"] == []
    assert {turn["speaker"] for turn in judged.detail["timeline"]["said"]} == {"?1", "?2"}


def test_threshold_and_filter_are_chosen_on_dev():
    task = Diarisation(data(), GRID)
    rng = np.random.default_rng(0)
    dull = {name: 0.25 * x + 0.11 + rng.uniform(0, 0.1, x.shape) for name, x in perfect(task.data.splits["dev"]).items()}
    assert task.judge("dev", dull, 0).measures[0].value > 99
    tuned = task.tuned(dull)
    assert tuned.threshold == 0.3 and task.threshold == 0.5
    assert tuned.judge("dev", dull, 0).measures[0].value < 10
    decisions = task.judge("test", perfect(task.data.splits["test"]), 10).detail["decisions"]
    assert [(d["median"], d["threshold"]) for d in decisions] == [(m, t) for m in (1, 11) for t in (0.3, 0.4, 0.5, 0.6, 0.7)]
    assert decisions[0]["der"] < decisions[5]["der"]  # perfect frames need no filter


@pytest.mark.parametrize(
    ("changes", "sizes", "message"),
    [
        ({"dev": (Utterance("x", "x.flac", 1.0),)}, {}, r"nobody speaks in .*dev.jsonl; write who speaks when as turns$"),
        ({}, {"median": 4}, r"a median filter of 4 frames has no middle; give an odd number$"),
    ],
)
def test_what_cannot_be_a_task(changes, sizes, message):
    with pytest.raises(InputError, match=message):
        Diarisation(data(**changes), GRID, **sizes)


def test_a_collar_that_leaves_nothing():
    task = Diarisation(data(), GRID, collar=60.0)
    with pytest.raises(InputError, match=r"a collar of 60.0 s leaves no speech of .*test.jsonl; give a smaller one$"):
        task.judge("test", perfect(task.data.splits["test"]), 0)
