"""Tests of speaker verification: the task; the x-vector head, compared with s3prl's; the error
curve and its bootstrap."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.superb import Utterance, UtteranceSet
from speechssl.superb.tasks.verification import (
    CONTEXT,
    MARGIN,
    SCALE,
    SHORTEST,
    ErrorCurve,
    Verification,
    XVector,
    estimate_verification_intervals,
)
from speechssl.timing import FrameGrid

from ...files import refused, write_lines

GRID = FrameGrid(16_000, 320, 400)


def make_utterances(split, speakers, each):
    """Make `each` utterances of every speaker."""
    utterances = []
    for number, i in np.ndindex(speakers, each):
        name = f"{split}{number}-{i}"
        utterances.append(Utterance(name, f"{name}.flac", 1.0, speaker=f"{split}{number}"))
    return tuple(utterances)


@pytest.fixture
def make_set(tmp_path):
    """Return a function (train) -> data set, whose trials are all pairs of dev and of test. The
    test split has six speakers with three recordings each."""

    def make(train=make_utterances("a", speakers=4, each=6)):
        splits = {
            "train": train,
            "dev": make_utterances("b", speakers=3, each=4),
            "test": make_utterances("c", speakers=6, each=3),
        }
        for split in ("dev", "test"):
            trials = []
            for x, y in combinations(splits[split], 2):
                same = x.speaker == y.speaker
                trials.append({"first": x.id, "second": y.id, "same": same})
            write_lines(tmp_path / f"{split}.trials.jsonl", trials)
        return UtteranceSet(tmp_path, "asv", splits, "hash")

    return make


TRIALS = 18 * 17 // 2  # of the 18 test recordings
TRIALS_OF_ONE = 6 * 3  # three pairs of every speaker


def make_embeddings(task, noise=0.1):
    """Make embeddings of the test split: a vector of the speaker, with noise."""
    rng = np.random.default_rng(0)
    utterances = task.data.splits["test"]
    of_speaker = {u.speaker: rng.normal(size=16) for u in utterances}
    return {u.id: of_speaker[u.speaker] + noise * rng.normal(size=16) for u in utterances}


def test_embeddings_are_evaluated(make_set):
    task = Verification(make_set(), GRID)
    evaluation = task.evaluate("test", make_embeddings(task, noise=1.0), resamples=100)
    eer, cost = evaluation.measures.values()
    assert eer.n == TRIALS
    assert eer.groups == 6
    assert eer.low < eer.value < eer.high
    assert cost.low <= cost.value <= cost.high
    assert cost.high <= 1
    det = evaluation.detail["det"]
    assert len(det["misses"]) == len(det["false_alarms"])
    assert len(det["misses"]) <= 200
    curve = ErrorCurve(np.array(det["false_alarms"]), np.array(det["misses"]))
    assert curve.eer == pytest.approx(eer.value / 100, abs=0.02)


def test_unreadable_recordings_are_wrong_at_any_threshold(make_set):
    task = Verification(make_set(), GRID)
    embeddings = make_embeddings(task)
    assert task.evaluate("test", embeddings, 0).measures["eer"].value == 0
    del embeddings[task.data.splits["test"][0].id]
    eer = task.evaluate("test", embeddings, 0).measures["eer"]
    # it is in 2 of the 18 trials of one speaker, and in as large a share of the others, 15 of 135
    assert eer.value == pytest.approx(100 * 2 / TRIALS_OF_ONE)
    unread = task.evaluate("test", {}, 0).measures
    assert [unread[name].value for name in ("eer", "min_dcf")] == [100, 1]


def test_training_data_without_two_speakers_are_refused(make_set):
    one_speaker = make_utterances("a", speakers=1, each=5)
    unnamed = (*make_utterances("a", speakers=2, each=2), Utterance("x", "x.flac", 1.0))
    for train in (one_speaker, unnamed):
        refused("train.jsonl .* two speakers", Verification, make_set(train), GRID)


def test_missing_trials_are_refused(make_set):
    data = make_set()
    (data.root / "test.trials.jsonl").unlink()
    refused("test.trials.jsonl", Verification, data, GRID)


# ---- the head


# Frames of recordings; with 15 the deviation would be of one frame, which in s3prl is NaN.
LENGTHS = [[16], [17, 40, 23]]


def make_head(width=6, speakers=5, projection=7, last=11):
    torch.manual_seed(0)
    head = XVector(3, width, speakers, projection, last)
    torch.nn.init.normal_(head.featurizer.weights)
    return head


def make_states(lengths, width=6):
    """Return random hidden states (B, 3, T, D) and the lengths (B,)."""
    shape = (len(lengths), 3, max(lengths), width)
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*shape, generator=generator), torch.tensor(lengths)


def make_s3prls_model(head):
    """Return s3prl's model with the weights of our head, and its softmax."""
    from s3prl.downstream.sv_voxceleb1.model import AMSoftmaxLoss, Model

    (projection, speakers), last = head.speakers.shape, head.layers[-1].out_channels
    settings = {"agg_dim": last, "dropout_p": 0.0, "batch_norm": False}
    model = Model(projection, last, "SP", "XVector", "UtteranceExtractor", settings)
    for theirs, ours in zip(model.framelevel_feature_extractor.module, head.layers, strict=True):
        # theirs is a linear layer over the frames one after another
        weight = ours.weight.permute(0, 2, 1).flatten(1)
        theirs.kernel.load_state_dict({"weight": weight, "bias": ours.bias})
    model.utterancelevel_feature_extractor.linear1.load_state_dict(head.embedding.state_dict())
    model.utterancelevel_feature_extractor.linear2.load_state_dict(head.second.state_dict())
    softmax = AMSoftmaxLoss(projection, speakers, SCALE, MARGIN)
    softmax.W.data.copy_(head.speakers)
    return model, softmax


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("width", "projection", "last", "speakers"), [(6, 7, 11, 5), (1, 2, 3, 2)])
def test_embeddings_loss_and_gradients_are_s3prls(
    s3prl, lengths, width, projection, last, speakers
):
    """s3prl's model gets every recording by itself, because its pooling includes padding."""
    head = make_head(width, speakers, projection, last)
    model, softmax = make_s3prls_model(head)
    states, frames = make_states(lengths, width)
    numbers = torch.arange(len(lengths)) % speakers
    embeddings_of_inference, embeddings_of_training = [], []
    for x, n in zip(states, lengths, strict=True):
        features = head.projection(head.featurizer(x[None, :, :n]))
        mask = torch.zeros(1, n - CONTEXT)
        embeddings_of_inference.append(model.inference(features, mask))
        embeddings_of_training.append(model(features, mask))
    embeddings = head(states, frames)
    assert torch.allclose(embeddings, torch.cat(embeddings_of_inference), atol=1e-5)
    loss = head.loss(embeddings, numbers)
    expected = softmax(torch.cat(embeddings_of_training), numbers)
    assert torch.allclose(loss, expected, atol=1e-4)
    parameters = [head.projection.weight, head.featurizer.weights]
    gradients = torch.autograd.grad(loss, parameters)
    expected_gradients = torch.autograd.grad(expected, parameters)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert torch.allclose(gradient, expected_gradient, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("frames", [1, 14])
def test_a_short_recording_is_repeated(frames):
    head = make_head()
    states, lengths = make_states([frames])
    repeated = states.repeat(1, 1, SHORTEST, 1)[:, :, :SHORTEST]
    embedding = head(states, lengths)
    assert torch.isfinite(embedding).all()
    assert torch.allclose(embedding, head(repeated, torch.tensor([SHORTEST])), atol=1e-6)
    head.loss(embedding, torch.tensor([0])).backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


# ---- the error curve


def make_scores(count, seed, distance, digits):
    """Make scores and whether one person speaks, with trials of both kinds. distance: of the mean
    scores of the kinds; digits: of the scores, few of which make ties."""
    rng = np.random.default_rng(seed)
    same = np.r_[True, False, rng.random(count - 2) < rng.uniform(0.05, 0.95)]
    return (rng.normal(size=count) + distance * same).round(digits), same


random_scores = st.builds(
    make_scores,
    count=st.integers(2, 400),
    seed=st.integers(0, 10**6),
    distance=st.sampled_from([-1.0, 0.0, 1.0, 3.0]),
    digits=st.sampled_from([0, 1, 8]),
)


@pytest.mark.slow
@given(random_scores)
def test_eer_and_min_dcf_are_s3prls(s3prl, scores_and_same):
    from s3prl.downstream.sv_voxceleb1.utils import EER
    from s3prl.metric.common import compute_eer, compute_minDCF

    scores, same = scores_and_same
    curve = ErrorCurve.from_scores(scores, same)
    assert curve.eer == pytest.approx(EER(same.astype(int), scores)[0], abs=1e-9)
    assert curve.eer == pytest.approx(compute_eer(same.astype(int), scores)[0], abs=1e-9)
    assert curve.min_dcf == pytest.approx(compute_minDCF(same.astype(int), scores)[0], abs=1e-9)


def test_a_resample_weights_trials_by_how_often_their_speakers_are_drawn():
    """The interval of a single resample ends at the value of that resample."""
    rng = np.random.default_rng(3)
    first, same = rng.integers(0, 5, 60), rng.random(60) < 0.5
    second = np.where(same, first, (first + rng.integers(1, 5, 60)) % 5)
    scores = rng.normal(size=60) + 2 * same
    # the first resample of the bootstrap, whose seed is 0
    counts = np.random.default_rng(0).multinomial(5, np.full(5, 0.2), 1)[0]
    count_of = dict(zip(dict.fromkeys([*first, *second]), counts, strict=True))
    weights = []
    for a, b in zip(first, second, strict=True):
        weights.append(count_of[a] if a == b else count_of[a] * count_of[b])
    resample = ErrorCurve.from_scores(scores.repeat(weights), same.repeat(weights))
    eer, cost = estimate_verification_intervals(scores, same, first, second, resamples=1)
    for interval, value in ((eer, resample.eer), (cost, resample.min_dcf)):
        ends = sorted({interval.low, interval.value, interval.high})
        assert ends == pytest.approx(sorted({interval.value, float(value)}))
