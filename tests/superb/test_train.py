"""Tests of the training of heads: it resumes where it was killed, a sweep keeps the best learning
rate, and runs side by side do not influence each other."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.superb import Utterance
from speechssl.superb import train
from speechssl.superb.data import HeadSettings
from speechssl.superb.tasks.classification import Classification

from .heads import same_weights

SETTINGS = HeadSettings(learning_rate=1e-2, steps=40, batch=4, every=10)


@pytest.fixture
def run(keywords, tmp_path):
    return train.HeadRun(*keywords, SETTINGS, 0, tmp_path / "run")


def test_a_killed_run_comes_to_the_same_head(run, tmp_path, dies_in, monkeypatch):
    """The head has dropout, which draws random numbers in every step. Training leaves the state of
    torch's generator alone."""
    build = Classification.build

    def build_with_dropout(self, states, width):
        head = build(self, states, width)
        head.output = torch.nn.Sequential(torch.nn.Dropout(0.3), head.output)
        return head

    monkeypatch.setattr(Classification, "build", build_with_dropout)
    state = torch.get_rng_state()
    expected = train.train_run(run)
    assert torch.equal(torch.get_rng_state(), state)
    assert expected.steps == 40
    killed = replace(run, folder=tmp_path / "killed")
    with dies_in(Classification, "loss", 14):
        train.train_run(killed)
    attempt = train.train_run(killed)
    assert replace(attempt, seconds=0) == replace(expected, seconds=0)
    assert same_weights(run, killed)


def test_a_loss_that_is_not_finite_ends_the_run(run, monkeypatch):
    def loss(self, head, batch):
        return head(batch.states).sum() * math.nan

    monkeypatch.setattr(Classification, "loss", loss)
    attempt = train.train_run(run)
    assert attempt.ended
    assert attempt.steps == 1
    assert attempt.best == 0


def test_a_sweep_trains_every_rate_and_the_tasks_own_and_keeps_the_best(run):
    (head,) = train.train_heads([replace(run, rates=(1e-3, 1e-6))], {})
    sweep = head.card["sweep"]
    assert [attempt["learning_rate"] for attempt in sweep] == [1e-3, 1e-6, 1e-2]
    assert [attempt["steps"] for attempt in sweep] == [40, 40, 40]
    assert head.card["default_learning_rate"] == 1e-2
    values = [attempt["value"] for attempt in sweep]
    assert min(values) < max(values)
    assert head.card["dev"]["acc"] == max(values)


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
    stream = train.draw_shuffled_batches(utterances, size, seed, by_length)
    size = min(size, count)
    batches = count // size  # an incomplete last batch is left out
    epoch = [next(stream) for _ in range(batches)]
    assert all(len(batch) == size for batch in epoch)
    assert len({u.id for batch in epoch for u in batch}) == batches * size


@pytest.mark.slow
def test_runs_side_by_side_come_to_the_heads_of_runs_one_after_another(keywords, tmp_path):
    def make_runs(name):
        folders = [tmp_path / f"{name}-{seed}" for seed in (0, 1)]
        return [train.HeadRun(*keywords, SETTINGS, i, folder) for i, folder in enumerate(folders)]

    together, one_by_one = make_runs("together"), make_runs("one-by-one")
    train.train_runs(together, workers=2)
    train.train_runs(one_by_one, workers=1)
    assert same_weights(together[0], one_by_one[0])
    assert same_weights(together[1], one_by_one[1])
    assert not same_weights(together[0], together[1])
