"""Tests of diarisation: frames and turns; the task; the head and its loss, compared with s3prl's;
and the error rate, compared with that of pyannote.metrics."""

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
    list_active_intervals,
    mark_active_frames,
    measure_diarisation_errors,
    permutation_free_loss,
)
from speechssl.timing import FrameGrid

from ..heads import take_one

GRID = FrameGrid(16_000, 320, 400)
GRIDS = [GRID, FrameGrid(16_000, 160, 400), FrameGrid(16_000, 160, 160)]


def make_recording(name, seed, seconds=6.0):
    """Make an utterance in which Ann and Bob speak twice each."""
    rng = np.random.default_rng(seed)
    turns = []
    for speaker in ("ann", "bob"):
        a, b, c, d = np.sort(rng.uniform(0, seconds, 4)).tolist()
        turns += [Turn(speaker, a, b), Turn(speaker, c, d)]
    return Utterance(name, f"{name}.flac", seconds, turns=tuple(turns))


def make_set():
    splits = {}
    for n, split in enumerate(("train", "dev", "test")):
        splits[split] = tuple(make_recording(f"{split}-{i}", 10 * n + i) for i in range(6))
    return UtteranceSet(Path("sets/sd"), "sd", splits, "hash")


def predict_perfectly(utterances):
    """Return predictions by id: 1 in the frames in which a speaker speaks, else 0."""
    predicted = {}
    for u in utterances:
        frames = GRID.count_frames(GRID.find_sample(u.seconds))
        predicted[u.id] = mark_active_frames(u.turns, GRID, frames).numpy()
    return predicted


@given(st.sampled_from(GRIDS), st.integers(1, 200), st.integers(0, 99))
def test_frames_become_turns_and_turns_the_same_frames(grid, frames, seed):
    is_active = np.random.default_rng(seed).random(frames) < 0.5
    intervals = list_active_intervals(
        is_active, grid, grid.count_samples(frames) / grid.sample_rate
    )
    turns = [Turn("a", *interval) for interval in intervals]
    active = mark_active_frames(turns, grid, frames)
    assert active.shape == (frames, int(is_active.any()))
    if is_active.any():
        assert np.array_equal(active[:, 0].numpy() > 0, is_active)


def test_a_prediction_does_not_depend_on_the_batch():
    task = Diarisation(make_set(), GRID, hidden=8)
    head, lengths = task.build(2, 8), torch.tensor([150, 1, 299])
    utterances = tuple(make_recording(name, i) for i, name in enumerate("xyz"))
    batch = Batch(utterances, torch.randn(3, 2, 299, 8), lengths)
    for i, predicted in enumerate(task.predict(head, batch)):
        (alone,) = task.predict(head, take_one(batch, i))
        assert predicted.shape == (int(lengths[i]), 2)
        assert np.allclose(alone, predicted, atol=1e-6)


def test_the_speech_of_unreadable_recordings_is_missed():
    task = Diarisation(make_set(), GRID, median=1)
    utterances = task.data.splits["test"]
    predicted = predict_perfectly(utterances)
    del predicted["test-0"]
    measure = task.evaluate("test", predicted, 0).measures["der"]
    speech = [sum(turn.end - turn.start for turn in u.turns) for u in utterances]
    assert measure.value > 100 * speech[0] / sum(speech)
    assert measure.n == 6
    assert task.evaluate("test", {}, 0).measures["der"].value == pytest.approx(100)


def test_without_resamples_there_is_no_interval():
    task = Diarisation(make_set(), GRID)
    measure = task.evaluate("test", {}, 0).measures["der"]
    assert measure.low == measure.value
    assert measure.high == measure.value


def test_threshold_and_filter_are_chosen_on_dev():
    task = Diarisation(make_set(), GRID)
    rng = np.random.default_rng(0)
    low = {}  # probabilities of at most 0.46, those of silence at most 0.21
    for name, active in predict_perfectly(task.data.splits["dev"]).items():
        low[name] = 0.25 * active + 0.11 + rng.uniform(0, 0.1, active.shape)
    assert task.threshold == 0.5
    assert task.evaluate("dev", low, 0).measures["der"].value > 99
    tuned = task.tune(low)
    assert tuned.threshold == 0.3
    assert tuned.evaluate("dev", low, 0).measures["der"].value < 10


def test_perfect_predictions_need_no_filter():
    task = Diarisation(make_set(), GRID)
    assert task.tune(predict_perfectly(task.data.splits["dev"])).median == 1


@pytest.mark.parametrize("lengths", [[1], [5, 31, 17]])
@pytest.mark.parametrize(("width", "hidden", "speakers"), [(6, 8, 2), (1, 3, 3)])
def test_logits_loss_and_gradients_are_s3prls(s3prl, lengths, width, hidden, speakers):
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
    logits, expected_logits = head(states), model(head.featurizer(states))
    assert torch.allclose(logits, expected_logits, atol=1e-6)
    loss = permutation_free_loss(logits, truth, frames)
    expected = pit_loss(expected_logits, truth, frames)[0]
    assert torch.allclose(loss, expected, atol=1e-5)
    (gradient,) = torch.autograd.grad(loss, head.featurizer.weights)
    (expected_gradient,) = torch.autograd.grad(expected, head.featurizer.weights)
    assert torch.allclose(gradient, expected_gradient, atol=1e-5)


LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@given(st.integers(1, 4), st.integers(1, 4), LENGTHS, st.integers(0, 99))
def test_neither_the_order_of_speakers_nor_the_padding_changes_the_loss(
    outputs, speakers, lengths, seed
):
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
def random_turns(draw, speakers="abc"):
    """Draw up to eight turns on a grid of a quarter of a second, so that some touch or overlap."""
    turns = []
    for _ in range(draw(st.integers(0, 8))):
        start, length = draw(st.integers(0, 40)), draw(st.integers(1, 12))
        turns.append(Turn(draw(st.sampled_from(speakers)), start / 4, (start + length) / 4))
    return tuple(turns)


def annotate(turns):
    """Return turns as pyannote takes them, in which touching and overlapping turns of one speaker
    are joined."""
    annotation = Annotation(uri="x")
    for number, turn in enumerate(turns):
        annotation[Segment(turn.start, turn.end), number] = turn.speaker
    return annotation.support()


@pytest.mark.slow
@given(random_turns(), random_turns("1234"))
def test_the_errors_are_pyannotes(truth, predicted):
    uem = Timeline([Segment(0, 20)])
    metric = DiarizationErrorRate()
    expected = metric(annotate(truth), annotate(predicted), uem=uem, detailed=True)
    errors = measure_diarisation_errors(truth, predicted)
    assert errors.speech == pytest.approx(expected["total"], abs=1e-6)
    assert errors.missed == pytest.approx(expected["missed detection"], abs=1e-6)
    assert errors.false_alarms == pytest.approx(expected["false alarm"], abs=1e-6)
    assert errors.confused == pytest.approx(expected["confusion"], abs=1e-6)
    if errors.speech:
        rate = errors.wrong / errors.speech
        assert rate == pytest.approx(expected["diarization error rate"])
