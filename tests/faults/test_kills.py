"""Commands that are killed, find the disk full, share a folder, may not write, or see the clock
jump."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from speechssl import artifacts as files
from speechssl.cli import main

from .conftest import CASES, Stages, check_refusal, command

pytestmark = pytest.mark.slow

Tell = Callable[[str, Sequence[str]], None]
STAGES = ("convert", "units fit", "units extract", "train dual", "evaluate qa")
NEW = {"convert": "models/encoder", "units fit": "models/units.*", "units extract": "units/train"}
NEW |= {"train dual": "models/dual", "evaluate qa": "qa"}  # what a stage makes
VARIES = ("log.jsonl", "training_args.bin", "sums.json")  # hold seconds, or the hash of what does


def before(chain: Path, root: Path, stage: str) -> Path:
    """A copy of the chain without what the stage makes."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(chain, root)
    for path in root.glob(NEW[stage]):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return root


def made(root: Path, stage: str) -> dict[str, bytes]:
    """The files that a stage made, by name. Cards of training hold seconds and memory: the weights
    count."""
    found = {}
    for top in root.glob(NEW[stage]):
        for path in [top] if top.is_file() else sorted(p for p in top.rglob("*") if p.is_file()):
            name = path.relative_to(root).as_posix()
            if (
                path.name not in VARIES
                and "checkpoints" not in name
                and not (stage == "train dual" and path.name == "card.json")
            ):
                found[name] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def start() -> Callable[[Sequence[object]], Any]:
    """Starts a verb in a process that has its imports already."""
    context = multiprocessing.get_context("forkserver")
    names = (
        "speechssl.units.corpus",
        "speechssl.dual.train",
        "speechssl.eval.spoken_qa",
        "speechssl.encoders.export",
    )
    context.set_forkserver_preload(
        [
            *names,
            "transformers.models.hubert.modeling_hubert",
            "transformers.models.bert.modeling_bert",
        ]
    )

    def begin(arguments: Sequence[object]) -> Any:
        process = context.Process(target=main, args=([*map(str, arguments), "-q"],))
        process.start()
        return process

    return begin


@pytest.mark.parametrize("stage", STAGES if CASES else STAGES[2:4])
def test_a_killed_stage_ends_in_the_same_bytes(
    stage: str,
    stages: Stages,
    chain: Path,
    tmp_path: Path,
    tell: Tell,
    start: Callable[[Sequence[object]], Any],
) -> None:
    chance, happened = random.Random(stage), list[str]()
    root = tmp_path / "chain"  # its name is in results
    steps = 40 if stage == "train dual" else 4
    arguments = stages.commands(root, steps)[stage]
    for _ in range(2):  # the first run of a stage takes longer
        before(chain, root, stage)
        began = time.monotonic()
        whole_run = start(arguments)
        whole_run.join()
        took = time.monotonic() - began
        assert whole_run.exitcode == 0
    wanted = made(root, stage)
    assert wanted
    before(chain, root, stage)
    for _ in range(10 if CASES else 3):
        process = start(arguments)
        process.join(chance.uniform(0.1, 0.9) * took)
        alive = process.is_alive()
        process.kill()
        process.join()
        happened.append("killed" if alive else "ended before the kill")
        if not alive:
            before(chain, root, stage)
    last = start(arguments)
    last.join()
    assert last.exitcode == 0
    assert made(root, stage) == wanted
    assert not [path for path in root.rglob(".*") if path.is_file() and stage == "units extract"], (
        "files of killed runs"
    )
    tell(f"kill -9, then the same bytes: {stage}", happened)


# ---- a full disk


@pytest.fixture
def disk() -> Iterator[Path]:
    """A file system of 1 MB, where this process may mount one."""
    folder = Path(tempfile.mkdtemp())
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True
        ).returncode
        == 0
    )
    if not mounted:
        folder.rmdir()
        pytest.skip("this process may mount no file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


class Full:
    """Writes and renames fail from the n-th on, as on a full disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.left, replace = after, os.replace

        def replaced(source: Any, target: Any) -> None:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            replace(source, target)

        monkeypatch.setattr(files.os, "replace", replaced)


@pytest.mark.parametrize("stage", STAGES)
def test_a_write_that_finds_the_disk_full_is_one_sentence_and_leaves_nothing_half_written(
    stage: str,
    stages: Stages,
    chain: Path,
    tmp_path: Path,
    tell: Tell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every file that a stage renames to its name, one after the other; then with room again."""
    happened, root = list[str](), tmp_path / "chain"
    arguments = stages.commands(root)[stage]
    before(chain, root, stage)
    assert command(*arguments).code == 0
    wanted = made(root, stage)
    for after in range(40 if CASES else 2):
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
        happened.append("one sentence; the same bytes with room again")
    tell(f"full disk, by a stub: {stage}", happened)


@pytest.mark.parametrize("stage", STAGES)
def test_a_full_file_system_is_one_sentence(
    stage: str, stages: Stages, chain: Path, disk: Path, tmp_path: Path, tell: Tell
) -> None:
    """Whatever writes: libraries too, which do not rename."""
    happened, root = list[str](), tmp_path / "chain"
    before(chain, root, stage)
    new = root / NEW[stage].replace(".*", ".safetensors")
    for room in (0, 20_000, 100_000) if CASES else (0,):  # bytes that are left
        for path in disk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        fill = os.open(disk / "filling", os.O_WRONLY | os.O_CREAT)
        with suppress(OSError):
            while True:
                os.write(fill, b"x" * 4_096)
        os.ftruncate(fill, max(os.fstat(fill).st_size - room, 0))
        os.close(fill)
        # which writes into units/SPLIT
        places = {str(new), str(new.parent)} if stage == "units extract" else {str(new)}
        arguments = [
            disk / new.name if str(a) in places else a for a in stages.commands(root)[stage]
        ]
        said = command(*arguments)
        if said.code == 0:
            happened.append("there was room")
            continue
        check_refusal(said, "the disk of ", "is full; free space and give the same command")
        happened.append("one sentence")
    tell(f"full file system: {stage}", happened)


# ---- others


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Another process holds a folder in the block, and is killed at its end."""
    code = (
        "import sys, time; from pathlib import Path; from speechssl.artifacts import hold_output\n"
        "with hold_output(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, folder], stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout and holder.stdout.readline() == "held\n"
            yield
        finally:
            holder.kill()


@pytest.mark.parametrize("stage", STAGES[2:])
def test_of_two_runs_in_one_folder_the_second_is_refused(
    stage: str, stages: Stages, chain: Path, tmp_path: Path, tell: Tell
) -> None:
    """The first is a process that holds the lock of the folder."""
    root = before(chain, tmp_path / "chain", stage)
    folder = root / NEW[stage]
    folder = folder.parent if "*" in folder.name else folder
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder):
        said = command(*stages.commands(root)[stage])
    check_refusal(said, "another run is writing into")
    assert command(*stages.commands(root)[stage]).code == 0  # a killed run lets the folder go
    tell(f"second run in one folder: {stage}", ["refused in one sentence"])


VERBS: dict[str, tuple[object, ...]] = {  # that are no stages; OUT: where they write
    "evaluate choice": ("corpus", "OUT"),
    "evaluate predictions": ("corpus", "OUT", "answers.json", "--name", "mine"),
    "evaluate robustness": ("OUT", "--encoders", "a=people-en", "--tasks", "ks=data"),
    "compare": ("results", "--out", "OUT"),
    "report": ("OUT",),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_another_run_would_write_over_is_refused_before_it_reads_anything(
    verb: str, tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("speechssl.cli.INPUTS", ())  # what is given here need not be there
    out = tmp_path / "new/out"
    arguments = [*verb.split(), *(out if a == "OUT" else a for a in VERBS[verb])]
    with held(out):
        said = command(*arguments)
    check_refusal(said, f"another run is writing into {out}; wait for it or choose another folder")
    shutil.rmtree(tmp_path / "new")
    said = command(*arguments)
    assert said.code == 2 and "another run" not in said.sentence, said
    assert not [*tmp_path.iterdir()], "a verb that is refused leaves nothing"
    tell(f"second run in one folder: {verb}", ["refused in one sentence"])
