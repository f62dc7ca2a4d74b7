"""Commands that are killed, or find the disk full."""

import errno
import multiprocessing
import os
import random
import shutil
import time

import pytest

from speechssl import artifacts as files
from speechssl.cli import main

from .conftest import THOROUGH, check_refusal, command

pytestmark = pytest.mark.slow

STAGES = ("convert", "units fit", "units extract", "train dual", "evaluate qa")
NEW = {"convert": "models/encoder", "units fit": "models/units.*", "units extract": "units/train"}
NEW |= {"train dual": "models/dual", "evaluate qa": "qa"}  # what a stage makes
VARIES = ("log.jsonl", "training_args.bin", "sums.json")  # hold seconds, or the hash of what does


NAMES = ("units.corpus", "dual.train", "eval.spoken_qa", "encoders.export")


def before(chain, root, stage):
    """A copy of the chain without what the stage makes."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(chain, root)
    for path in root.glob(NEW[stage]):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return root


def made(root, stage):
    """The files that a stage made, by name. Cards of training hold seconds and memory: the weights
    count."""
    varies = (*VARIES, "card.json") if stage == "train dual" else VARIES
    found = {}
    for top in root.glob(NEW[stage]):
        for path in [top] if top.is_file() else sorted(p for p in top.rglob("*") if p.is_file()):
            name = path.relative_to(root).as_posix()
            if path.name not in varies and "checkpoints" not in name:
                found[name] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def start():
    """Starts a verb in a process that has its imports already."""
    context = multiprocessing.get_context("forkserver")
    models = [f"transformers.models.{name}.modeling_{name}" for name in ("hubert", "bert")]
    context.set_forkserver_preload([*(f"speechssl.{name}" for name in NAMES), *models])

    def begin(arguments):
        process = context.Process(target=main, args=([*map(str, arguments), "-q"],))
        process.start()
        return process

    return begin


@pytest.mark.parametrize("stage", STAGES if THOROUGH else STAGES[2:3])
def test_a_killed_stage_ends_in_the_same_bytes(stage, stages, chain, tmp_path, start):
    chance = random.Random(stage)
    root = tmp_path / "chain"  # its name is in results
    steps = 40 if stage == "train dual" else 4
    arguments = stages.commands(root, steps)[stage]
    before(chain, root, stage)
    began = time.monotonic()
    whole_run = start(arguments)
    whole_run.join()
    took = time.monotonic() - began
    assert whole_run.exitcode == 0
    wanted = made(root, stage)
    assert wanted
    before(chain, root, stage)
    for _ in range(10 if THOROUGH else 2):
        process = start(arguments)
        process.join(chance.uniform(0.1, 0.9) * took)
        alive = process.is_alive()
        process.kill()
        process.join()
        if not alive:
            before(chain, root, stage)
    last = start(arguments)
    last.join()
    assert last.exitcode == 0
    assert made(root, stage) == wanted
    assert not [path for path in root.rglob(".*") if path.is_file() and stage == "units extract"], (
        "files of killed runs"
    )


# ---- a full disk


class Full:
    """Writes and renames fail from the n-th on, as on a full disk."""

    def __init__(self, monkeypatch, after):
        self.left, replace = after, os.replace

        def replaced(source, target):
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            replace(source, target)

        monkeypatch.setattr(files.os, "replace", replaced)


@pytest.mark.parametrize("stage", STAGES if THOROUGH else STAGES[2:3])
def test_a_write_that_finds_the_disk_full_is_one_sentence_and_leaves_nothing_half_written(
    stage, stages, chain, tmp_path, monkeypatch
):
    """At every file that a stage renames to its name, one after the other; then with room again."""
    root = tmp_path / "chain"
    arguments = stages.commands(root)[stage]
    before(chain, root, stage)
    assert command(*arguments).code == 0
    wanted = made(root, stage)
    for after in range(40 if THOROUGH else 2):
        before(chain, root, stage)
        with monkeypatch.context() as patched:
            full = Full(patched, after)
            said = command(*arguments)
        if full.left >= 0:  # it writes no more files
            assert said.code == 0
            break
        check_refusal(said, "the disk of ", "is full; free space and give the same command")
        assert all(
            wanted.get(name, content) == content for name, content in made(root, stage).items()
        ), "half a file"
        assert not [path for path in root.rglob(".*-????????*") if path.is_file()]
        assert command(*arguments).code == 0 and made(root, stage) == wanted
