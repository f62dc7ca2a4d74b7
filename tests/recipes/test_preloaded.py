"""Commands that are forked from what is imported: they see, say and end as commands of their own
do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from speechssl import cli

from .shared import kill_when, script

preloaded = script("preloaded.py")
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason=("recipes are tested with the commands themselves")
)
HELLO = """
import json, os, sys
print(json.dumps([__name__, sys.argv, sys.path[0], os.getcwd(), dict(os.environ), sys.stdin.read(), sys.stdout.isatty()]))
if "speechssl.errors" in sys.modules:
    open("forked", "w").close()
sys.exit(sys.argv[1])
"""


@pytest.fixture(scope="module")
def light() -> Iterator[str]:
    """With little imported."""
    with preloaded.commands(["speechssl.errors"]) as path:
        yield path


def call(path: str, *words: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": path} | more.pop("env", {})
    return subprocess.run(
        list(map(str, words)), env=environment, capture_output=True, text=True, timeout=300, **more
    )


def test_a_fork_sees_says_and_ends_as_a_process_of_its_own(light: str, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(HELLO)
    words, known = (
        ("hello.py", "it is over", "--a b"),
        {"cwd": tmp_path, "input": "heard", "env": {"COLOUR": "grün\n"}},
    )
    forked = call(light, "python", *words, **known)
    assert (tmp_path / "forked").exists()
    (tmp_path / "forked").unlink()
    own = call(light, sys.executable, *words, **known)
    assert not (tmp_path / "forked").exists()
    assert (forked.returncode, forked.stderr) == (own.returncode, own.stderr) == (1, "it is over\n")
    said, expected = json.loads(forked.stdout), json.loads(own.stdout)
    expected[4].pop("LC_CTYPE", None)  # which Python sets where the locale is C
    said[4].pop("LC_CTYPE", None)
    assert said == expected


def test_what_is_no_script_or_has_other_variables_for_libraries_is_a_process_of_its_own(
    light: str, tmp_path: Path
) -> None:
    assert (
        call(
            light, "python", "-c", "import sys; sys.exit('speechssl.errors' in sys.modules)"
        ).returncode
        == 0
    )
    (tmp_path / "hello.py").write_text(HELLO)
    for environment in ({"OMP_NUM_THREADS": "2"}, {"PYTHONHASHSEED": "1"}):
        assert (
            call(
                light, "python", "hello.py", "", cwd=tmp_path, env=environment, input=""
            ).returncode
            == 1
        )
        assert not (tmp_path / "forked").exists()


RUNS = """
import subprocess, time
subprocess.Popen(["sleep", "600"])
open("runs", "w").close()
time.sleep(600)
"""


def test_the_signal_that_a_command_dies_of_ends_its_caller_too(light: str, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    assert call(light, "python", "dies.py", cwd=tmp_path).returncode == -signal.SIGTERM


def start(path: str, folder: Path) -> subprocess.Popen[bytes]:
    (folder / "runs.py").write_text(RUNS)
    environment = os.environ | {"PATH": path}
    command = ["bash", "-c", "python runs.py; true"]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, start_new_session=True
    )


def test_with_its_caller_dies_what_it_started(light: str, tmp_path: Path) -> None:
    kill_when((tmp_path / "runs").exists, start(light, tmp_path))


def test_a_folder_for_temporary_files_may_have_a_long_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (long := tmp_path / ("long" * 30)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    (tmp_path / "hello.py").write_text(HELLO)
    with preloaded.commands(["speechssl.errors"]) as path:
        assert call(path, "python", "hello.py", "3", cwd=tmp_path, input="").returncode == 1
    assert (tmp_path / "forked").exists()


def test_with_the_tests_end_all_commands(tmp_path: Path) -> None:
    with preloaded.commands([]) as path:
        running = start(path, tmp_path)
        while not (tmp_path / "runs").exists():
            assert running.poll() is None
            time.sleep(0.01)
    assert running.wait(60) == 0  # bash, whose command has failed
    kill_when(lambda: True, running)


STATE = """
import os, random, sys
import numpy, torch
tasks = f"/proc/{os.getppid()}/task"
print(*(open(f"{tasks}/{task}/comm").read().strip() for task in os.listdir(tasks)))
print(random.random(), numpy.random.rand(), torch.initial_seed(), torch.rand(1).item())
"""


def test_only_imports_precede_a_fork(quick: str, tmp_path: Path) -> None:
    """Nothing has run in the server that a fork would have to go on with, and no two forks draw the
    same random numbers."""
    (tmp_path / "state.py").write_text(STATE)
    (threads, drawn), (_, others) = (
        call(quick, "python", tmp_path / "state.py").stdout.splitlines() for _ in "ab"
    )
    assert not set(drawn.split()) & set(others.split())
    # else those of OpenBLAS, which copes with forks, as does Arrow's allocator
    if os.environ.get("OMP_NUM_THREADS") == "1":
        assert len([name for name in threads.split() if name != "jemalloc_bg_thd"]) == 1


def test_what_a_verb_sets_in_the_tests_process_keeps_no_command_from_being_forked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        os,
        "environ",
        {name: value for name, value in os.environ.items() if name not in preloaded.SET},
    )
    before = preloaded.early(os.environ)
    cli._quiet_libraries(verbose=False)
    assert preloaded.early(os.environ) == before
