"""Heads that are trained side by side equal those that are trained one after another."""

import json
import threading
import time
from dataclasses import replace

import pytest

from speechssl.data.utterances import load_labelled
from speechssl.encoders.states import cache_states
from speechssl.errors import InputError
from speechssl.superb.data import CachedLoader, recordings_of
from speechssl.superb.fit import Run, advance
from speechssl.superb.task import Settings
from speechssl.superb.tasks.classification import Classification
from speechssl.superb.train import Stopped, parallel_training


@pytest.fixture
def runs(labelled, encoder, tmp_path):
    data = load_labelled(labelled())
    cache_states(encoder, recordings_of(data, ("train", "dev")), tmp_path / "features")
    loader = CachedLoader(data, (tmp_path / "features",), True, False)
    task = Classification("ks", data, encoder.grid)
    settings = Settings(1e-2, 30, 4, 10)
    return [Run(task, loader, settings, seed, tmp_path / f"{seed}") for seed in (0, 1)]


@pytest.mark.slow
def test_side_by_side_is_one_after_another(runs, tmp_path):
    with parallel_training(2, "heads") as train_runs:
        found = train_runs(runs, 30)
        with pytest.raises(InputError, match="trained with other settings"):
            train_runs([replace(runs[0], seed=5)], 30)
    alone = [advance(replace(run, folder=tmp_path / f"alone-{run.seed}"), 30) for run in runs]
    reported = [[json.dumps(vars(replace(a, seconds=0))) for a in attempts] for attempts in (found, alone)]
    assert reported[0] == reported[1] and found[0].steps == 30


def test_what_trains_in_this_process_ends_when_the_rest_does(runs):
    ended = []

    def train(train_runs):
        try:
            train_runs([replace(runs[0], settings=Settings(1e-2, 10**9, 4, 10**9))], 10**9)
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
