"""Diarisation: frames and seconds, the head and its loss, the task, and the error rate of
pyannote.metrics."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyannote.core import Annotation, Segment, Timeline
from pyannote.metrics.diarization import DiarizationErrorRate

from speechssl.data.superb import Turn, Utterance, UtteranceSet
from speechssl.superb.data import Batch
from speechssl.superb.tasks.diarisation import (
    Diarisation,
    SpeakerActivity,
    active_frames,
    active_intervals,
    diarisation_errors,
    permutation_free_loss,
)
from speechssl.timing import FrameGrid

from ..heads import alone

GRID = FrameGrid(16_000, 320, 400)
GRIDS = [GRID, FrameGrid(16_000, 160, 400), FrameGrid(16_000, 160, 160)]


def recording(name, seed, speakers=("ann", "bob"), seconds=6.0):
    rng = np.random.default_rng(seed)
    turns = []
    for who in speakers:
        a, b, c, d = np.sort(rng.uniform(0, seconds, 4)).tolist()
        turns += [Turn(who, a, b), Turn(who, c, d)]
    return Utterance(name, f"{name}.flac", seconds, turns=tuple(turns))


def data():
    splits = {}
    for n, split in enumerate(("train", "dev", "test")):
        splits[split] = tuple(recording(f"{split}-{i}", 10 * n + i) for i in range(6))
    return UtteranceSet(Path("sets/sd"), "sd", splits, "hash")


def perfect(found):
    frames = {u.id: GRID.frames(GRID.sample(u.seconds)) for u in found}
    return {u.id: active_frames(u.turns, GRID, frames[u.id]).numpy() for u in found}


@given(st.sampled_from(GRIDS), st.integers(1, 200), st.integers(0, 99))
def test_frames_to_seconds_and_back(grid, frames, seed):
    active = np.random.default_rng(seed).random(frames) < 0.5
    found = active_intervals(active, grid, grid.samples_for(frames) / grid.sample_rate)
    again = active_frames([Turn("a", *interval) for interval in found], grid, frames)
    assert again.shape == (frames, int(active.any()))
    assert not active.any() or np.array_equal(again[:, 0].numpy() > 0, active)


def test_a_prediction_is_the_recordings_own():
    task = Diarisation(data(), GRID, hidden=8)
    head, lengths = task.build(2, 8), torch.tensor([150, 1, 299])
    found = [recording(name, i) for i, name in enumerate("xyz")]
    batch = Batch(tuple(found), torch.randn(3, 2, 299, 8), lengths)
    for i, together in enumerate(task.predict(head, batch)):
        (own,) = task.predict(head, alone(batch, i))
        assert together.shape == (int(lengths[i]), 2)
        assert np.allclose(own, together, atol=1e-6)


def test_unreadable_recordings_are_missed():
    task = Diarisation(data(), GRID, median=1)
    utterances = task.data.splits["test"]
    found = perfect(utterances)
    del found["test-0"]
    (measure,) = task.evaluate("test", found, 0).measures
    speech = [sum(turn.end - turn.start for turn in u.turns) for u in utterances]
    assert measure.value > 100 * speech[0] / sum(speech)
    assert measure.n == 6
    assert measure.low == measure.value == measure.high
    assert task.evaluate("test", {}, 0).measures[0].value == pytest.approx(100)


def test_threshold_and_filter_are_chosen_on_dev():
    task = Diarisation(data(), GRID)
    rng = np.random.default_rng(0)
    dull = {}
    for name, x in perfect(task.data.splits["dev"]).items():
        dull[name] = 0.25 * x + 0.11 + rng.uniform(0, 0.1, x.shape)
    assert task.evaluate("dev", dull, 0).measures[0].value > 99
    tuned = task.tune(dull)
    assert tuned.threshold == 0.3
    assert task.threshold == 0.5
    assert tuned.evaluate("dev", dull, 0).measures[0].value < 10
    # perfect frames need no filter
    assert task.tune(perfect(task.data.splits["dev"])).median == 1


@pytest.mark.parametrize("lengths", [[1], [5, 31, 17]])
@pytest.mark.parametrize(("width", "hidden", "speakers"), [(6, 8, 2), (1, 3, 3)])
def test_the_head_is_s3prls(s3prl, lengths, width, hidden, speakers):
    """`downstream/diarization`: logits, loss and gradients."""
    from s3prl.downstream.diarization.model import Model
    from s3prl.downstream.diarization.utils import pit_loss

    torch.manual_seed(0)
    head, frames = SpeakerActivity(3, width, speakers, hidden), torch.tensor(lengths)
    torch.nn.init.normal_(head.featurizer.weights)
    model = Model(width, speakers, 1, hidden)
    model.rnn.load_state_dict(head.lstm.state_dict())
    model.linear.load_state_dict(head.output.state_dict())
    states = torch.randn(len(lengths), 3, max(lengths), width)
    truth = (torch.rand(len(lengths), max(lengths), speakers) > 0.5).float()
    ours, theirs = head(states), model(head.featurizer(states))
    assert torch.allclose(ours, theirs, atol=1e-6)
    losses = permutation_free_loss(ours, truth, frames), pit_loss(theirs, truth, frames)[0]
    assert torch.allclose(*losses, atol=1e-5)
    gradients = [torch.autograd.grad(x, head.featurizer.weights)[0] for x in losses]
    assert torch.allclose(*gradients, atol=1e-5)


LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@given(st.integers(1, 4), st.integers(1, 4), LENGTHS, st.integers(0, 99))
def test_who_is_who_does_not_matter_nor_what_is_beyond_a_length(outputs, speakers, lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    shape, frames = (len(lengths), max(lengths)), torch.tensor(lengths)
    logits = 3 * torch.randn(*shape, outputs, generator=generator)
    truth = (torch.rand(*shape, speakers, generator=generator) > 0.5).float()
    loss = permutation_free_loss(logits, truth, frames)
    order = torch.randperm(speakers, generator=generator)
    for i, n in enumerate(lengths):
        logits[i, n:], truth[i, n:] = float("nan"), 1
    assert torch.allclose(permutation_free_loss(logits, truth[..., order], frames), loss, atol=1e-5)
    assert loss >= 0


@st.composite
def turns(draw, names="abc", most=8):
    """Turns on a grid of a quarter of a second, which touch and overlap now and then."""
    found = []
    for _ in range(draw(st.integers(0, most))):
        start, length = draw(st.integers(0, 40)), draw(st.integers(1, 12))
        found.append(Turn(draw(st.sampled_from(names)), start / 4, (start + length) / 4))
    return tuple(found)


def annotation(found):
    """As pyannote wants it: touching and overlapping turns of one person are one."""
    made = Annotation(uri="x")
    for number, turn in enumerate(found):
        made[Segment(turn.start, turn.end), number] = turn.speaker
    return made.support()


@pytest.mark.slow
@given(turns(), turns("1234"))
def test_it_is_pyannotes(truth, predicted):
    annotations, uem = (annotation(truth), annotation(predicted)), Timeline([Segment(0, 20)])
    theirs = DiarizationErrorRate()(*annotations, uem=uem, detailed=True)
    found = diarisation_errors(truth, predicted)
    ours = [found.speech, found.missed, found.false_alarms, found.confused]
    names = ("total", "missed detection", "false alarm", "confusion")
    assert ours == pytest.approx([theirs[name] for name in names], abs=1e-6)
    if found.speech:
        assert found.wrong / found.speech == pytest.approx(theirs["diarization error rate"])
