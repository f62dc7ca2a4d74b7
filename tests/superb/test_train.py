"""Tests of the training of heads: it resumes where it was killed, a sweep keeps the best learning
rate, and runs side by side do not influence each other."""

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

SETTINGS = HeadSettings(learning_rate=1e-2, steps=40, batch=4, every=10)


class Head(torch.nn.Module):
    """This head has a weighted sum, dropout and a linear layer."""

    def __init__(self, states, width):
        super().__init__()
        self.featurizer = Featurizer(states)
        self.output = torch.nn.Linear(width, 1)
        self.dropout = torch.nn.Dropout(0.3)

    def forward(self, states):
        return self.output(self.dropout(self.featurizer(states))).mean(1)[:, 0]


def make_toy_set():
    splits = {}
    for split, n in (("train", 24), ("dev", 8)):
        splits[split] = tuple(Utterance(f"{split}-{i}", "x", 0.1 * (i % 5 + 1)) for i in range(n))
    return UtteranceSet("/none", "toy", splits, "hash")


@dataclass(frozen=True)
class FirstDimension:
    """This toy task predicts the mean over time of the first number of state 1."""

    broken: bool = False  # whether the loss is NaN
    name, grid, pooled, wants_waves = "toy", FrameGrid(16_000, 320, 400), False, False
    data = make_toy_set()

    def build(self, states, width):
        return Head(states, width)

    def target(self, batch):
        return batch.states[:, 1, :, 0].mean(1)

    def loss(self, head, batch):
        loss = (head(batch.states) - self.target(batch)).square().mean()
        return loss * math.nan if self.broken else loss

    def predict(self, head, batch):
        return (head(batch.states) - self.target(batch)).abs().tolist()

    def evaluate(self, split, predicted, resamples):
        error = 100 * sum(predicted.values()) / len(predicted)
        return HeadEvaluation((Measure("per", error, error, error, len(predicted)),))


class RandomStates:
    """This loader gives every utterance random hidden states, which depend on its id alone."""

    shape = (3, 4)

    def usable(self, utterances):
        return list(utterances)

    def batch(self, utterances):
        states = []
        for u in utterances:
            split, number = u.id.split("-")
            seed = int(number) + (100 if split == "dev" else 0)
            generator = torch.Generator().manual_seed(seed)
            states.append(torch.randn(round(u.seconds * 50), 3, 4, generator=generator))
        return pad_batch(utterances, states, ())


@pytest.fixture
def run(tmp_path):
    return train.HeadRun(FirstDimension(), RandomStates(), SETTINGS, 0, tmp_path / "run")


def same_weights(run, other):
    """Return whether the best heads of two runs have the same weights."""
    weights, other_weights = (train.load_best(r).state_dict() for r in (run, other))
    return all(torch.equal(value, other_weights[name]) for name, value in weights.items())


def test_a_head_learns(run):
    settings = replace(SETTINGS, steps=10)
    short = train.train_run(replace(run, folder=run.folder / "short", settings=settings))
    long = train.train_run(run)
    assert long.steps == 40
    assert long.value < short.value
    # the state that the target comes from has the largest weight
    assert train.load_best(run)["head"].featurizer.shares.argmax() == 1


def test_training_leaves_the_state_of_torchs_generator_alone(run):
    state = torch.get_rng_state()
    train.train_run(run)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_killed_run_comes_to_the_same_head(run, tmp_path, dies_in):
    expected = train.train_run(run)
    killed = replace(run, folder=tmp_path / "killed", loader=RandomStates())
    with dies_in(killed.loader, "batch", 14):
        train.train_run(killed)
    attempt = train.train_run(killed)
    assert replace(attempt, seconds=0) == replace(expected, seconds=0)
    assert same_weights(run, killed)


def test_a_loss_that_is_not_finite_ends_the_run(run):
    attempt = train.train_run(replace(run, task=FirstDimension(broken=True)))
    assert attempt.ended
    assert attempt.steps == 1
    assert attempt.best == 0


def test_a_sweep_trains_every_rate_and_the_tasks_own_and_keeps_the_best(run):
    (head,) = train.train_heads([replace(run, rates=(1e-3, 1e-1))], {})
    sweep = head.card["sweep"]
    assert [attempt["learning_rate"] for attempt in sweep] == [1e-3, 1e-1, 1e-2]
    assert [attempt["steps"] for attempt in sweep] == [40, 40, 40]
    assert head.card["default_learning_rate"] == 1e-2
    assert head.card["dev"]["per"] == min(attempt["value"] for attempt in sweep)


@pytest.mark.parametrize(
    ("attempts", "metric", "own_rate", "best"),  # attempts: rate -> (value, loss on dev)
    [
        # all are equal: the rate that is nearest to the task's own
        ({1e-1: (90, 0), 1e-3: (90, 0), 1e-6: (90, 0)}, "acc", 1e-4, 1e-3),
        # equal values: the lower loss
        ({1e-1: (90, 0.2), 1e-3: (90, 0.3)}, "acc", 1e-4, 1e-1),
        # a lower error rate is better
        ({1e-1: (5, 0), 1e-3: (9, 0)}, "eer", 1e-4, 1e-1),
        ({1e-1: (math.nan, 0), 1e-6: (3, 0)}, "acc", 1e-1, 1e-6),
    ],
)
def test_the_best_attempt_is_chosen(attempts, metric, own_rate, best):
    listed = []
    for rate, (value, loss) in attempts.items():
        listed.append(train.Attempt(rate, metric, value, tie=loss))
    assert train.choose_attempt(listed, own_rate).learning_rate == best


@given(st.integers(1, 50), st.integers(1, 8), st.booleans(), st.integers(0, 3))
def test_the_batches_of_an_epoch_have_every_utterance_at_most_once(count, size, by_length, seed):
    utterances = [Utterance(str(i), "x", 1.0 + i % 7) for i in range(count)]
    stream = train.shuffled_batches(utterances, size, seed, by_length)
    size = min(size, count)
    batches = count // size  # an incomplete last batch is left out
    epoch = [next(stream) for _ in range(batches)]
    assert all(len(batch) == size for batch in epoch)
    assert len({u.id for batch in epoch for u in batch}) == batches * size


@pytest.mark.slow
def test_runs_side_by_side_come_to_the_heads_of_runs_one_after_another(labelled, encoder, tmp_path):
    data = load_labelled(labelled())
    features = tmp_path / "features"
    cache_states(encoder, list_split_recordings(data, TRAINING), features, pooled=True)
    loader = CachedLoader(data, features, pooled=True, wants_waves=False)
    task = Classification("ks", data, encoder.grid)
    settings = HeadSettings(learning_rate=1e-2, steps=30, batch=4, every=10)

    def make_runs(name):
        return [
            train.HeadRun(task, loader, settings, seed, tmp_path / f"{name}-{seed}")
            for seed in (0, 1)
        ]

    together, one_by_one = make_runs("together"), make_runs("one-by-one")
    train.train_runs(together, workers=2)
    train.train_runs(one_by_one, workers=1)
    assert same_weights(together[0], one_by_one[0])
    assert same_weights(together[1], one_by_one[1])
    assert not same_weights(together[0], together[1])
