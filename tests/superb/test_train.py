"""Training resumes where it was killed, comes to the same head; a sweep keeps the best rate; runs
side by side."""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.superb import Utterance, UtteranceSet, load_labelled
from speechssl.superb.data import (
    CachedLoader,
    Featurizer,
    HeadEvaluation,
    HeadSettings,
    Measure,
    cache_states,
    list_split_recordings,
    pad_batch,
)
from speechssl.superb.options import Superb
from speechssl.superb.tasks.classification import Classification
from speechssl.superb.train import (
    STATE,
    Attempt,
    HeadRun,
    Stopped,
    advance,
    better_half,
    load_best,
    parallel_training,
    rungs,
    shuffled_batches,
    sweep_learning_rates,
    train_one_by_one,
    weighted_batches,
)
from speechssl.timing import FrameGrid

from ..files import refused

SETTINGS = HeadSettings(1e-2, steps=40, batch=4, every=10)


class Head(torch.nn.Module):
    def __init__(self, states, width):
        super().__init__()
        self.featurizer = Featurizer(states)
        self.output = torch.nn.Linear(width, 1)
        self.dropout = torch.nn.Dropout(0.3)

    def forward(self, states):
        return self.output(self.dropout(self.featurizer(states))).mean(1)[:, 0]


class Loudness:
    """A toy task: the mean over time of the first number of the second state. Its head has
    dropout."""

    name, grid, pooled, wants_waves = "toy", FrameGrid(16_000, 320, 400), False, False

    def __init__(self, broken=False):
        splits = {"train": 24, "dev": 8}
        made = {
            s: tuple(Utterance(f"{s}-{i}", "x", 0.1 * (i % 5 + 1)) for i in range(n))
            for s, n in splits.items()
        }
        self.data, self._broken = UtteranceSet("/none", "toy", made, "hash"), broken

    def build(self, states, width):
        return Head(states, width)

    def loss(self, head, batch):
        wanted = batch.states[:, 1, :, 0].mean(1)
        return (head(batch.states) - wanted).square().mean() * (math.nan if self._broken else 1)

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
    return HeadRun(Loudness(), Invented(), SETTINGS, 0, tmp_path / "run")


def same(a, b):
    """Whether two runs came to the same weights."""
    a, b = (load_best(run).state_dict() for run in (a, b))
    return all(torch.equal(value, b[name]) for name, value in a.items())


def test_it_learns_and_leaves_the_random_state_alone(run):
    before = torch.get_rng_state()
    first, last = advance(replace(run, folder=run.folder / "a"), 10), advance(run, 40)
    assert torch.equal(torch.get_rng_state(), before)
    assert (
        last.value < first.value
        and last.steps == 40
        and load_best(run)["head"].featurizer.shares.argmax() == 1
    )


@pytest.mark.parametrize("stops", [(10, 40), (20, 20, 30, 40)])
def test_in_pieces_it_comes_to_the_same_head(run, tmp_path, stops):
    whole, parts = advance(run, 40), replace(run, folder=tmp_path / "parts")
    for stop in stops:
        found = advance(parts, stop)
    assert replace(found, seconds=0) == replace(whole, seconds=0) and same(run, parts)


def test_killed_between_evaluations_it_comes_to_the_same_head(run, tmp_path, dies_in):
    whole, killed = advance(run, 40), replace(run, folder=tmp_path / "killed", loader=Invented())
    with dies_in(killed.loader, "batch", 25):
        advance(killed, 40)
    found = advance(killed, 40)
    assert (found.value, found.best) == (whole.value, whole.best) and same(run, killed)


def test_a_folder_belongs_to_its_run_and_damage_is_reported(run):
    advance(run, 10)
    refused("trained with other settings", advance, replace(run, seed=1), 10)
    advance(replace(run, settings=replace(SETTINGS, steps=50)), 50)  # a run may be made longer
    path = run.folder / STATE
    path.write_bytes(path.read_bytes()[:100])
    refused(r"state.safetensors is damaged", advance, run, 10)


def test_a_loss_that_is_no_number_ends_the_run(run):
    found = advance(replace(run, task=Loudness(broken=True)), 40)
    assert found.ended and found.steps == 1 and found.best == 0


def test_patience(run):
    patient = replace(run, settings=replace(SETTINGS, learning_rate=1e-9, steps=200, patience=2))
    found = advance(patient, 200)
    assert found.ended and found.steps < 200
    assert advance(patient, 200) == found


@pytest.mark.slow
def test_a_sweep_keeps_the_best_rate_and_trains_the_own_one(run):
    rungs_seen = []

    def train_runs(runs, steps):
        rungs_seen.append((len(runs), steps))
        return train_one_by_one(runs, steps)

    attempts, best, own = sweep_learning_rates(run, Superb.learning_rates, "per", train_runs)
    assert rungs_seen == [(7, 5), (4, 10), (2, 20), (1, 40), (rungs_seen[-1][0], 40)]
    by_rate = {a.learning_rate: a for a in attempts}
    assert own.learning_rate == 1e-2 and own.steps == 40 and by_rate[1e-7].steps == 5
    assert best.steps == 40 and best.value <= own.value


def test_without_halving_every_rate_gets_all_steps(run):
    attempts, best, _ = sweep_learning_rates(
        run, (1e-3, 1e-1), "per", train_one_by_one, halving=False
    )
    assert [a.steps for a in attempts] == [40, 40, 40]  # and the task's own
    assert best.value == min(a.value for a in attempts)


def test_equals_are_decided_by_the_tie_then_by_nearness():
    def attempt(rate, value, tie=0.0):
        return Attempt(rate, value, tie, 1, 1)

    assert better_half([attempt(1e-1, 90), attempt(1e-3, 90), attempt(1e-6, 90)], "acc", 1e-4) == [
        1e-3,
        1e-6,
    ]
    assert better_half([attempt(1e-1, 90, 0.2), attempt(1e-3, 90, 0.3)], "acc", 1e-4) == [1e-1]
    assert better_half([attempt(1e-1, 5), attempt(1e-3, 9)], "eer", 1e-4) == [1e-1]
    assert better_half([attempt(1e-1, math.nan), attempt(1e-6, 3)], "acc", 1e-1) == [1e-6]


@given(st.integers(1, 9), st.integers(1, 10_000))
def test_rungs_rise_to_all_steps_and_halve_to_one(rates, steps):
    found = rungs(rates, steps)
    assert found[-1] == steps and found == sorted(found)
    left = rates
    for _ in found[:-1]:
        left = math.ceil(left / 2)
    assert left == 1


@given(st.integers(1, 50), st.integers(1, 8), st.booleans(), st.integers(0, 3))
def test_batches_go_through_all_utterances(count, size, by_length, seed):
    utterances = [Utterance(str(i), "x", 1.0 + i % 7) for i in range(count)]
    stream = shuffled_batches(utterances, size, seed, by_length)
    size = min(size, count)
    epoch = [next(stream) for _ in range(count // size)]
    names = [u.id for batch in epoch for u in batch]
    assert len(set(names)) == len(names) == count // size * size and all(
        len(batch) == size for batch in epoch
    )


def test_drawn_batches_balance_the_classes():
    utterances = [Utterance(str(i), "x", 1.0) for i in range(100)]
    weights = torch.tensor([1 / 90] * 90 + [1 / 10] * 10)  # two classes
    stream = weighted_batches(utterances, 50, 0, weights)
    drawn = [int(u.id) for _ in range(40) for u in next(stream)]
    assert 0.45 < sum(i >= 90 for i in drawn) / len(drawn) < 0.55


# ---- side by side


@pytest.mark.slow
def test_side_by_side_is_one_after_another(labelled, encoder, tmp_path):
    data = load_labelled(labelled())
    cache_states(encoder, list_split_recordings(data, ("train", "dev")), tmp_path / "features")
    loader, task = (
        CachedLoader(data, tmp_path / "features", True, False),
        Classification("ks", data, encoder.grid),
    )
    runs = [
        HeadRun(task, loader, HeadSettings(1e-2, 30, 4, 10), seed, tmp_path / f"{seed}")
        for seed in (0, 1)
    ]
    with parallel_training(2, "heads") as train_runs:
        found = train_runs(runs, 30)
        refused("trained with other settings", train_runs, [replace(runs[0], seed=5)], 30)
    alone = [advance(replace(run, folder=tmp_path / f"alone-{run.seed}"), 30) for run in runs]
    reported = [
        [json.dumps(vars(replace(a, seconds=0))) for a in attempts] for attempts in (found, alone)
    ]
    assert reported[0] == reported[1] and found[0].steps == 30


def test_what_trains_in_this_process_ends_when_the_rest_does(run):
    ended = []

    def train(train_runs):
        try:
            train_runs([replace(run, settings=HeadSettings(1e-2, 10**9, 4, 10**9))], 10**9)
        except Stopped:
            ended.append("stopped")

    with pytest.raises(KeyboardInterrupt), parallel_training(1, "heads") as train_runs:
        thread = threading.Thread(target=train, args=(train_runs,))
        thread.start()
        time.sleep(0.5)
        assert thread.is_alive()
        raise KeyboardInterrupt
    thread.join(10)
    assert not thread.is_alive() and ended == ["stopped"]
