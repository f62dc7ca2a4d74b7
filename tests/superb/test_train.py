"""Training resumes where it was killed, comes to the same head; a sweep keeps the best rate; runs
side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.superb import Utterance, UtteranceSet, load_labelled
from speechssl.superb import train
from speechssl.superb.data import (
    TRAINING,
    CachedLoader,
    Featurizer,
    HeadEvaluation,
    HeadSettings,
    Measure,
    cache_states,
    list_split_recordings,
    pad_batch,
)
from speechssl.superb.tasks.classification import Classification
from speechssl.timing import FrameGrid

SETTINGS = HeadSettings(1e-2, steps=40, batch=4, every=10)


class Head(torch.nn.Module):
    def __init__(self, states, width):
        super().__init__()
        self.featurizer = Featurizer(states)
        self.output = torch.nn.Linear(width, 1)
        self.dropout = torch.nn.Dropout(0.3)

    def forward(self, states):
        return self.output(self.dropout(self.featurizer(states))).mean(1)[:, 0]


def toy_set():
    splits = {}
    for split, n in (("train", 24), ("dev", 8)):
        splits[split] = tuple(Utterance(f"{split}-{i}", "x", 0.1 * (i % 5 + 1)) for i in range(n))
    return UtteranceSet("/none", "toy", splits, "hash")


@dataclass(frozen=True)
class Loudness:
    """A toy task: the mean over time of the first number of the second state. Its head has
    dropout."""

    broken: bool = False
    name, grid, pooled, wants_waves = "toy", FrameGrid(16_000, 320, 400), False, False
    data = toy_set()

    def build(self, states, width):
        return Head(states, width)

    def loss(self, head, batch):
        wanted = batch.states[:, 1, :, 0].mean(1)
        return (head(batch.states) - wanted).square().mean() * (math.nan if self.broken else 1)

    def predict(self, head, batch):
        return (head(batch.states) - batch.states[:, 1, :, 0].mean(1)).abs().tolist()

    def evaluate(self, split, predicted, resamples):
        wrong = 100 * sum(predicted.values()) / len(predicted)
        return HeadEvaluation((Measure("per", wrong, wrong, wrong, len(predicted)),))


class Invented:
    """Hidden states that follow from the id."""

    shape = (3, 4)

    def usable(self, utterances):
        return list(utterances)

    def batch(self, utterances):
        states = []
        for u in utterances:
            generator = torch.Generator().manual_seed(
                int(u.id.split("-")[1]) + 100 * (u.id[0] == "d")
            )
            states.append(torch.randn(round(u.seconds * 50), 3, 4, generator=generator))
        return pad_batch(utterances, states, ())


@pytest.fixture
def run(tmp_path):
    return train.HeadRun(Loudness(), Invented(), SETTINGS, 0, tmp_path / "run")


def same(a, b):
    """Whether two runs came to the same weights."""
    a, b = (train.load_best(run).state_dict() for run in (a, b))
    return all(torch.equal(value, b[name]) for name, value in a.items())


def test_it_learns_and_leaves_the_random_state_alone(run):
    before = torch.get_rng_state()
    first = train.train_run(
        replace(run, folder=run.folder / "a", settings=replace(SETTINGS, steps=10))
    )
    last = train.train_run(run)
    assert torch.equal(torch.get_rng_state(), before)
    assert last.value < first.value
    assert last.steps == 40
    assert train.load_best(run)["head"].featurizer.shares.argmax() == 1


def test_killed_it_comes_to_the_same_head(run, tmp_path, dies_in):
    whole = train.train_run(run)
    killed = replace(run, folder=tmp_path / "killed", loader=Invented())
    with dies_in(killed.loader, "batch", 14):
        train.train_run(killed)
    found = train.train_run(killed)
    assert replace(found, seconds=0) == replace(whole, seconds=0)
    assert same(run, killed)


def test_a_loss_that_is_no_number_ends_the_run(run):
    found = train.train_run(replace(run, task=Loudness(broken=True)))
    assert (found.ended, found.steps, found.best) == (True, 1, 0)


def test_a_sweep_trains_every_rate_and_the_own_one_and_keeps_the_best(run):
    head = train.train_heads([replace(run, rates=(1e-3, 1e-1))], {})[0]
    sweep = head.card["sweep"]
    assert [(a["learning_rate"], a["steps"]) for a in sweep] == [(1e-3, 40), (1e-1, 40), (1e-2, 40)]
    assert head.card["default_learning_rate"] == 1e-2
    assert head.card["dev"]["per"] == min(a["value"] for a in sweep)


@pytest.mark.parametrize(
    ("rates", "metric", "own", "best"),
    [
        ({1e-1: (90, 0), 1e-3: (90, 0), 1e-6: (90, 0)}, "acc", 1e-4, 1e-3),
        ({1e-1: (90, 0.2), 1e-3: (90, 0.3)}, "acc", 1e-4, 1e-1),
        ({1e-1: (5, 0), 1e-3: (9, 0)}, "eer", 1e-4, 1e-1),
        ({1e-1: (math.nan, 0), 1e-6: (3, 0)}, "acc", 1e-1, 1e-6),
    ],
)
def test_equals_are_decided_by_the_tie_then_by_nearness(rates, metric, own, best):
    attempts = [train.Attempt(rate, metric, value, tie) for rate, (value, tie) in rates.items()]
    assert train.choose_attempt(attempts, own).learning_rate == best


@given(st.integers(1, 50), st.integers(1, 8), st.booleans(), st.integers(0, 3))
def test_batches_go_through_all_utterances(count, size, by_length, seed):
    utterances = [Utterance(str(i), "x", 1.0 + i % 7) for i in range(count)]
    stream = train.shuffled_batches(utterances, size, seed, by_length)
    size = min(size, count)
    epoch = [next(stream) for _ in range(count // size)]
    names = [u.id for batch in epoch for u in batch]
    assert len(set(names)) == len(names) == count // size * size
    assert all(len(batch) == size for batch in epoch)


@pytest.mark.slow
def test_side_by_side_is_one_after_another(labelled, encoder, tmp_path):
    data = load_labelled(labelled())
    cache_states(encoder, list_split_recordings(data, TRAINING), tmp_path / "features", True)
    loader = CachedLoader(data, tmp_path / "features", True, False)
    task, settings = Classification("ks", data, encoder.grid), HeadSettings(1e-2, 30, 4, 10)
    runs = [train.HeadRun(task, loader, settings, seed, tmp_path / f"{seed}") for seed in (0, 1)]
    alone = [replace(run, folder=tmp_path / f"alone-{run.seed}") for run in runs]
    train.train_runs(runs, 2)
    train.train_runs(alone, 1)
    assert same(runs[0], alone[0])
    assert same(runs[1], alone[1])
    assert not same(*runs)
