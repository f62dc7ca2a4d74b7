"""Speaker verification: the task, the x-vector head beside s3prl's, and the curve of errors with
its bootstrap."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.superb import Utterance, UtteranceSet
from speechssl.superb.tasks.verification import (
    MARGIN,
    SCALE,
    SHORTEST,
    ErrorCurve,
    Verification,
    XVector,
    verification_intervals,
)
from speechssl.timing import FrameGrid

from ...files import refused

GRID = FrameGrid(16_000, 320, 400)


def utterances(split, speakers, each):
    names = [(f"{split}{s}-{i}", f"{split}{s}") for s in range(speakers) for i in range(each)]
    return tuple(Utterance(name, f"{name}.flac", 1.0, speaker=who) for name, who in names)


@pytest.fixture
def made(tmp_path):
    """A function (**splits) -> data set with all trials of dev and test."""

    def make(**changes):
        splits = {"train": utterances("a", 4, 6), "dev": utterances("b", 3, 4)}
        splits |= {"test": utterances("c", 6, 3)} | changes
        for split in ("dev", "test"):
            lines = []
            for x, y in combinations(splits[split], 2):
                same = x.speaker == y.speaker
                lines.append(json.dumps({"first": x.id, "second": y.id, "same": same}) + "\n")
            (tmp_path / f"{split}.trials.jsonl").write_text("".join(lines))
        return UtteranceSet(tmp_path, "asv", splits, "hash")

    return make


def embeddings(task, split, noise=0.1):
    rng = np.random.default_rng(0)
    own = {u.speaker: rng.normal(size=16) for u in task.data.splits[split]}
    return {u.id: own[u.speaker] + noise * rng.normal(size=16) for u in task.data.splits[split]}


def test_embeddings_are_evaluated(made):
    task = Verification(made(), GRID)
    evaluated = task.evaluate("test", embeddings(task, "test", noise=1.0), 100)
    eer, cost = evaluated.measures
    assert (eer.metric, cost.metric, eer.n) == ("eer", "min_dcf", 18 * 17 // 2)
    assert eer.low <= eer.value <= eer.high
    assert cost.low <= cost.value <= cost.high <= 1
    det = evaluated.detail["det"]
    assert len(det["misses"]) == len(det["false_alarms"]) <= 200
    curve = ErrorCurve(np.array(det["false_alarms"]), np.array(det["misses"]))
    assert curve.eer == pytest.approx(eer.value / 100, abs=0.02)


def test_unreadable_recordings_are_wrong_at_any_threshold(made):
    task = Verification(made(), GRID)
    found = embeddings(task, "test")
    assert task.evaluate("test", found, 0).measures[0].value == 0
    del found[task.data.splits["test"][0].id]
    eer = task.evaluate("test", found, 0).measures[0]
    assert eer.n == 18 * 17 // 2
    assert eer.low == eer.value == eer.high
    # 2 of the 18 trials of one person; 15 of 135 of two, as many
    assert eer.value == pytest.approx(100 * 2 / 18)
    assert [m.value for m in task.evaluate("test", {}, 0).measures] == [100, 1]


@pytest.mark.parametrize(
    "train", [utterances("a", 1, 5), (*utterances("a", 2, 2), Utterance("x", "x.flac", 1.0))]
)
def test_data_that_cannot_be_learnt_from_is_refused_at_once(made, train):
    refused("train.jsonl does not name two speakers", Verification, made(train=train), GRID)
    data = made()
    (data.root / "test.trials.jsonl").unlink()
    refused(r"test.trials.jsonl", Verification, data, GRID)


# frames; one more than 15, of which s3prl's deviation is NaN
ODD = [[16], [17, 40, 23]]


def head_of(states=3, width=6, speakers=5, projection=7, last=11, seed=0):
    torch.manual_seed(seed)
    head = XVector(states, width, speakers, projection, last)
    torch.nn.init.normal_(head.featurizer.weights)
    return head


def states_of(lengths, states=3, width=6):
    shape = (len(lengths), states, max(lengths), width)
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*shape, generator=generator), torch.tensor(lengths)


def s3prls_model(head):
    """Their model with the weights of ours, and their softmax."""
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


@pytest.mark.parametrize("lengths", ODD)
@pytest.mark.parametrize(("width", "projection", "last", "speakers"), [(6, 7, 11, 5), (1, 2, 3, 2)])
def test_the_head_is_s3prls(s3prl, lengths, width, projection, last, speakers):
    """`downstream/sv_voxceleb1`: embeddings, loss and gradients, of every recording by itself:
    their pooling takes padding in."""
    head = head_of(width=width, projection=projection, last=last, speakers=speakers)
    model, softmax = s3prls_model(head)
    states, frames = states_of(lengths, width=width)
    numbers = torch.arange(len(lengths)) % speakers
    embedded, trained = [], []
    for x, n in zip(states, lengths, strict=True):
        features, mask = head.projection(head.featurizer(x[None, :, :n])), torch.zeros(1, n - 14)
        embedded.append(model.inference(features, mask))
        trained.append(model(features, mask))
    ours, theirs = head(states, frames), torch.cat(embedded)
    assert torch.allclose(ours, theirs, atol=1e-5)
    loss, expected = head.loss(ours, numbers), softmax(torch.cat(trained), numbers)
    assert torch.allclose(loss, expected, atol=1e-4)
    parameters = [head.projection.weight, head.featurizer.weights]
    gradients = [torch.autograd.grad(x, parameters) for x in (loss, expected)]
    for mine, his in zip(*gradients, strict=True):
        assert torch.allclose(mine, his, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("frames", [1, 14])
def test_a_short_recording_is_repeated(frames):
    head = head_of()
    states, lengths = states_of([frames])
    around = states.repeat(1, 1, SHORTEST, 1)[:, :, :SHORTEST]
    found = head(states, lengths)
    assert torch.isfinite(found).all()
    assert torch.allclose(found, head(around, torch.tensor([SHORTEST])), atol=1e-6)
    head.loss(found, torch.tensor([0])).backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


def trials(count, seed, apart=1.0, digits=8):
    """Scores with as many ties as few digits make, and at least one trial of each kind."""
    rng = np.random.default_rng(seed)
    same = np.r_[True, False, rng.random(count - 2) < rng.uniform(0.05, 0.95)]
    return (rng.normal(size=count) + apart * same).round(digits), same


DRAWN = (st.integers(2, 400), st.integers(0, 10**6), st.sampled_from([-1.0, 0.0, 1.0, 3.0]))
random_trials = st.builds(trials, *DRAWN, st.sampled_from([0, 1, 8]))


@pytest.mark.slow
@given(random_trials)
def test_rates_are_s3prls(s3prl, drawn):
    """`downstream/sv_voxceleb1/utils.py` and `metric/common.py`."""
    from s3prl.downstream.sv_voxceleb1.utils import EER
    from s3prl.metric.common import compute_eer, compute_minDCF

    scores, same = drawn
    curve = ErrorCurve.of_scores(scores, same)
    assert curve.eer == pytest.approx(EER(same.astype(int), scores)[0], abs=1e-9)
    assert curve.eer == pytest.approx(compute_eer(same.astype(int), scores)[0], abs=1e-9)
    assert curve.min_dcf == pytest.approx(compute_minDCF(same.astype(int), scores)[0], abs=1e-9)


def trials_of(persons, count, seed):
    rng = np.random.default_rng(seed)
    first, same = rng.integers(0, persons, count), rng.random(count) < 0.5
    second = np.where(same, first, (first + rng.integers(1, persons, count)) % persons)
    return rng.normal(size=count) + 2 * same, same, first.astype(str), second.astype(str)


def test_the_bootstrap_draws_speakers():
    scores, same, *_ = trials = trials_of(8, 300, 0)
    eer, cost = verification_intervals(*trials, 200)
    assert eer.low < eer.value < eer.high
    assert cost.low <= cost.value <= cost.high
    assert (eer.n, eer.groups) == (300, 8)
    assert eer.value == ErrorCurve.of_scores(scores, same).eer


def test_a_resample_by_hand():
    scores, same, first, second = trials_of(5, 60, 3)
    # the first that is drawn
    times = np.random.default_rng(0).multinomial(5, np.full(5, 0.2), 1)[0]
    drawn = dict(zip(dict.fromkeys([*first, *second]), times, strict=True))
    weights = []
    for a, b in zip(first, second, strict=True):
        weights.append(drawn[a] if a == b else drawn[a] * drawn[b])
    expected = ErrorCurve.of_scores(scores.repeat(weights), same.repeat(weights))
    # the interval of one resample ends there
    found = verification_intervals(scores, same, first, second, 1)
    for one, value in zip(found, (expected.eer, expected.min_dcf), strict=True):
        ends = sorted({one.low, one.value, one.high})
        assert ends == pytest.approx(sorted({one.value, float(value)}))
