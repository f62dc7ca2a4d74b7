"""Commands that are killed, or find the disk full."""

import errno
import multiprocessing
import os
import random
import shutil
import time

import pytest

from speechssl import artifacts
from speechssl.cli import main

from .conftest import THOROUGH, check_refusal, run_verb

pytestmark = pytest.mark.slow

OUTPUTS = {  # stage -> pattern of what it writes
    "convert": "models/encoder",
    "units fit": "models/units.*",
    "units extract": "units/train",
    "train dual": "models/dual",
    "evaluate qa": "qa",
}
STAGES = list(OUTPUTS) if THOROUGH else ["units extract"]
VARIES = ("log.jsonl", "training_args.bin")  # hold seconds, or the hash of what does
PRELOADED = ("units.corpus", "dual.train", "eval.spoken_qa", "encoders.export")  # modules


def copy_without_outputs(chain, root, stage):
    """Copy the chain to `root`, without what the stage writes."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(chain, root)
    for path in root.glob(OUTPUTS[stage]):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def read_outputs(root, stage):
    """Read the files that a stage wrote: name -> bytes. Cards of training hold seconds and memory:
    the weights count."""
    varies = (*VARIES, "card.json") if stage == "train dual" else VARIES
    contents = {}
    for top in root.glob(OUTPUTS[stage]):
        for path in [top] if top.is_file() else sorted(p for p in top.rglob("*") if p.is_file()):
            name = path.relative_to(root).as_posix()
            if path.name not in varies and "checkpoints" not in name:
                contents[name] = path.read_bytes()
    return contents


@pytest.fixture(scope="module")
def start_verb():
    """A function that starts a verb in a process that has its imports already."""
    context = multiprocessing.get_context("forkserver")
    models = [f"transformers.models.{name}.modeling_{name}" for name in ("hubert", "bert")]
    context.set_forkserver_preload([*(f"speechssl.{name}" for name in PRELOADED), *models])

    def start(arguments):
        process = context.Process(target=main, args=([*map(str, arguments), "-q"],))
        process.start()
        return process

    return start


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_stage_ends_in_the_same_bytes(stage, stages, chain, tmp_path, start_verb):
    rng = random.Random(stage)
    root = tmp_path / "chain"  # its name is in results
    arguments = stages(root, steps=40 if stage == "train dual" else 4)[stage]
    copy_without_outputs(chain, root, stage)
    began = time.monotonic()
    whole_run = start_verb(arguments)
    whole_run.join()
    seconds = time.monotonic() - began
    assert whole_run.exitcode == 0
    expected = read_outputs(root, stage)
    assert expected
    copy_without_outputs(chain, root, stage)
    for _ in range(10 if THOROUGH else 2):
        process = start_verb(arguments)
        process.join(rng.uniform(0.1, 0.9) * seconds)
        was_alive = process.is_alive()
        process.kill()
        process.join()
        if not was_alive:
            copy_without_outputs(chain, root, stage)
    last = start_verb(arguments)
    last.join()
    assert last.exitcode == 0
    assert read_outputs(root, stage) == expected
    if stage == "units extract":
        files_of_killed_runs = [path for path in root.rglob(".*") if path.is_file()]
        assert not files_of_killed_runs


# ---- a full disk


def limit_renames(monkeypatch, most):
    """Let every rename after the first `most` fail, as on a full disk. Returns the list of targets,
    which grows by every rename."""
    replace, targets = os.replace, []

    def replace_or_fail(source, target):
        targets.append(target)
        if len(targets) > most:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(artifacts.os, "replace", replace_or_fail)
    return targets


@pytest.mark.parametrize("stage", STAGES)
def test_a_write_that_finds_the_disk_full_is_one_sentence_and_leaves_nothing_half_written(
    stage, stages, chain, tmp_path, monkeypatch
):
    """The disk is full at every file that a stage renames to its name, one after the other; then
    there is room again."""
    root = tmp_path / "chain"
    arguments = stages(root)[stage]
    copy_without_outputs(chain, root, stage)
    assert run_verb(*arguments).code == 0
    expected = read_outputs(root, stage)
    for most in range(40 if THOROUGH else 2):
        copy_without_outputs(chain, root, stage)
        with monkeypatch.context() as patched:
            targets = limit_renames(patched, most)
            outcome = run_verb(*arguments)
        if len(targets) <= most:  # it writes no more files
            assert outcome.code == 0
            break
        check_refusal(outcome, "the disk of ", "is full; free space and give the same command")
        for name, content in read_outputs(root, stage).items():
            assert expected.get(name, content) == content, name
        assert not [path for path in root.rglob(".*-????????*") if path.is_file()]
        assert run_verb(*arguments).code == 0
        assert read_outputs(root, stage) == expected
