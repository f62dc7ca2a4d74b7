"""Speaker verification as a task: what is learnt, what is judged, and recordings that nobody heard."""

import json

import numpy as np
import pytest
import torch

from speechssl.data.utterances import Utterance, UtteranceSet
from speechssl.errors import InputError
from speechssl.superb.task import Batch
from speechssl.superb.tasks.verification import PUBLISHED, ErrorCurve, Verification, scored
from speechssl.timing import FrameGrid

GRID = FrameGrid(16_000, 320, 400)
SMALL = {"projection": 16, "last": 24, "stretch": 0.6}


def utterances(split, speakers, each):
    names = [(f"{split}{s}", i) for s in range(speakers) for i in range(each)]
    return tuple(Utterance(f"{name}-{i}", f"{name}-{i}.flac", 1.0, speaker=name) for name, i in names)


@pytest.fixture
def made(tmp_path):
    """A function (**splits) -> data set with all trials of dev and test."""

    def make(**changes):
        splits = {"train": utterances("a", 4, 6), "dev": utterances("b", 3, 4), "test": utterances("c", 6, 3)} | changes
        for split in ("dev", "test"):
            found = splits[split]
            pairs = [(x, y) for i, x in enumerate(found) for y in found[:i]]
            lines = [json.dumps({"first": x.id, "second": y.id, "same": x.speaker == y.speaker}) + "\n" for x, y in pairs]
            (tmp_path / f"{split}.trials.jsonl").write_text("".join(lines))
        return UtteranceSet(tmp_path, "asv", splits, "hash")

    return make


def heard(found, lengths=None, seed=0):
    """Noise around a direction of each speaker: (B, 2, T, 8)."""
    generator = torch.Generator().manual_seed(seed)
    lengths = lengths or [int(n) for n in torch.randint(10, 60, (len(found),), generator=generator)]
    states = torch.zeros(len(found), 2, max(lengths), 8)
    for i, (u, n) in enumerate(zip(found, lengths, strict=True)):
        own = torch.Generator().manual_seed(sum(map(ord, u.speaker)) * 7)
        states[i, :, :n] = torch.randn(8, generator=own) + 0.7 * torch.randn(2, n, 8, generator=generator)
    return Batch(tuple(found), states, torch.tensor(lengths))


def predictions(task, head, split):
    batch = heard(task.data.splits[split], seed=1)
    return dict(zip([u.id for u in batch.utterances], task.predict(head, batch), strict=True))


def test_the_published_task(made):
    task = Verification(made(), GRID)
    assert (task.name, task.pooled, task.wants_waves, PUBLISHED.batch, PUBLISHED.clip) == ("asv", False, False, 50, 1e3)
    assert (task.projection, task.last, task.scale, task.margin, task.stretch) == (512, 1500, 30, 0.4, 8.0)
    head = task.build(13, 8)
    assert head.speakers.shape == (512, 4) and len(head.featurizer.weights) == 13


def test_it_learns_to_tell_people_apart_that_it_never_met(made):
    task = Verification(made(train=utterances("a", 20, 3)), GRID, **SMALL)
    torch.manual_seed(0)
    head = task.build(2, 8)
    before = task.judge("test", predictions(task, head, "test"), 0).measures[0].value
    optimiser = torch.optim.Adam(head.parameters(), 3e-3)
    for _ in range(60):
        optimiser.zero_grad()
        loss = task.loss(head, heard(task.data.splits["train"]))
        loss.backward()
        optimiser.step()
    judged = task.judge("test", predictions(task, head, "test"), 100)
    eer, cost = judged.measures
    assert (eer.metric, cost.metric, eer.n) == ("eer", "min_dcf", 18 * 17 // 2)
    assert eer.value < 0.6 * before and eer.low <= eer.value <= eer.high and cost.low <= cost.value <= cost.high <= 1
    det = judged.detail["det"]
    assert len(det["misses"]) == len(det["false_alarms"]) <= 200 and json.dumps(judged.detail)
    assert ErrorCurve(np.array(det["false_alarms"]), np.array(det["misses"])).eer == pytest.approx(eer.value / 100, abs=0.02)


def test_a_prediction_is_the_recordings_own(made):
    task = Verification(made(), GRID, **SMALL)
    head, batch = task.build(2, 8), heard(utterances("c", 4, 1), [1, 14, 33, 60])
    for i, (u, together) in enumerate(zip(batch.utterances, task.predict(head, batch), strict=True)):
        n = int(batch.lengths[i])
        (alone,) = task.predict(head, Batch((u,), batch.states[i : i + 1, :, :n], batch.lengths[i : i + 1]))
        assert together.shape == (16,) and together.dtype == np.float32 and np.allclose(alone, together, atol=1e-5)


def test_training_hears_a_stretch_that_the_seed_decides(made):
    task = Verification(made(), GRID, **SMALL)
    head, batch = task.build(2, 8), heard(task.data.splits["train"], [59] * 24)
    torch.manual_seed(5)
    first = task.loss(head, batch)
    assert torch.equal(task.loss(head, batch), first) is False
    torch.manual_seed(5)
    assert torch.equal(task.loss(head, batch), first) and first.shape == ()
    whole = Verification(task.data, GRID, **SMALL | {"stretch": 8.0})
    assert torch.equal(whole.loss(head, batch), whole.loss(head, batch))


def embeddings(task, split, noise=0.1):
    rng = np.random.default_rng(0)
    own = {u.speaker: rng.normal(size=16) for u in task.data.splits[split]}
    return {u.id: own[u.speaker] + noise * rng.normal(size=16) for u in task.data.splits[split]}


def test_scores_are_cosines(made):
    task = Verification(made(), GRID)
    found = embeddings(task, "test")
    trials = task._trials["test"]
    expected = [
        float(found[t.first] @ found[t.second] / np.linalg.norm(found[t.first]) / np.linalg.norm(found[t.second])) for t in trials
    ]
    assert np.allclose(scored(trials, found), expected, atol=1e-5)


@pytest.mark.parametrize("broken", [None, np.full(16, np.nan), np.full(16, np.inf)])
def test_what_nobody_heard_is_wrong_at_any_threshold(made, broken):
    task = Verification(made(), GRID)
    found = embeddings(task, "test")
    assert task.judge("test", found, 0).measures[0].value == 0
    lost = task.data.splits["test"][0].id
    found = {name: e for name, e in found.items() if name != lost} | ({} if broken is None else {lost: broken})
    judged, count = task.judge("test", found, 0), 18 * 17 // 2
    eer = judged.measures[0]
    assert eer.n == count and eer.low == eer.value == eer.high
    assert eer.value == pytest.approx(100 * 2 / 18)  # 2 of the 18 trials of one person; 15 of 135 of two, as many
    assert task.judge("test", {}, 0).measures[0].value == 100 and task.judge("test", {}, 0).measures[1].value == 1


def test_an_embedding_of_nought_is_like_nobody(made):
    task = Verification(made(), GRID)
    found = embeddings(task, "test") | {task.data.splits["test"][0].id: np.zeros(16)}
    assert 0 <= task.judge("test", found, 0).measures[0].value < 50
    assert task.judge("test", dict.fromkeys(found, np.zeros(16)), 0).measures[0].value == 50


def test_speakers_are_drawn_where_there_are_enough(made):
    task = Verification(made(), GRID)
    test = task.judge("test", embeddings(task, "test"), 10).measures
    assert [(m.drawn, m.groups) for m in test] == [("voice", 6)] * 2
    dev = task.judge("dev", embeddings(task, "dev", noise=2.0), 100).measures[0]
    assert dev.low < dev.value < dev.high
    assert (dev.drawn, dev.groups) == ("recording", len(task.data.splits["dev"]))  # three are too few


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (utterances("a", 1, 5), r"train.jsonl has one speaker only \(a0\); add recordings of others$"),
        (
            (*utterances("a", 2, 2), Utterance("x", "x.flac", 1.0)),
            r"train.jsonl, utterance x, has no speaker; say in every line who",
        ),
    ],
)
def test_training_data_that_cannot_be_learnt_from(made, train, message):
    with pytest.raises(InputError, match=message):
        Verification(made(train=train), GRID)


def test_trials_are_looked_at_at_once(made):
    data = made()
    (data.root / "test.trials.jsonl").unlink()
    with pytest.raises(InputError, match=r"test.trials.jsonl"):
        Verification(data, GRID)
