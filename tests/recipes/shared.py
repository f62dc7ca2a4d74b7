"""What the tests of recipes share: scripts that are run or imported, sections against verbs,
checkpoints by name."""

import importlib.util
import os
import re
import select
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

ROOT = Path(__file__).parents[2]
CASCADES = ("cascade-ctc", "cascade-ctc-greedy")  # of one head, with its n-gram and without
COLD_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
WARM = []  # the folder whose commands are forked from one process (warm.py), if any


def needs(*packages):
    """Skips where one of them is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(
        bool(missing), reason=(f"the recipe needs the packages {', '.join(missing)}")
    )


def script(path):
    """A script of recipes/, imported."""
    spec = importlib.util.spec_from_file_location(
        path.replace("/", "_").removesuffix(".py"), ROOT / "recipes" / path
    )
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def surroundings(given):
    """The environment of a recipe, without the variables that scripts read but for those that are
    given."""
    known = "LIBRISPEECH KMEANS TEXT_QA START_UNITS SEED CORPUS TASKS WITHOUT PARTS GLUE".split()
    kept = {k: v for k, v in os.environ.items() if k not in known}
    path = os.pathsep.join([*WARM, COLD_PATH])
    return kept | {"PATH": path, "HF_HUB_OFFLINE": "1"} | dict(given)


def run(path, *arguments, code=0, **environment):
    """Run a shell script of recipes/ to its end. code: that it must end with."""
    command = ["bash", f"recipes/{path}", *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=surroundings(environment),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == code, (done.stdout + done.stderr)[-3000:]
    return done


def run_until(there, log, path, *arguments, **environment):
    """Run it until something is there, and kill it and all that it started."""
    command = ["bash", f"recipes/{path}", *arguments]
    with log.open("wb") as file:
        files = {"stdin": subprocess.PIPE, "stdout": file, "stderr": file}
        running = subprocess.Popen(
            command, cwd=ROOT, env=surroundings(environment), start_new_session=True, **files
        )
    kill_when(there, running, log)


def kill_when(there, running, log=None):
    """Kill a recipe as soon as something is there, and wait until all that it started is dead.

    running: in a session of its own; its standard input is a pipe, which its commands share. log:
    to quote if it ends before.
    """
    began = time.monotonic()
    try:
        while not there():
            assert running.poll() is None and time.monotonic() - began < 900, (
                log and log.read_text(errors="replace")[-3000:]
            )
            time.sleep(0.02)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert running.stdin
    with running.stdin as held:
        readers = select.poll()
        readers.register(held, 0)  # for the error that there are none
        assert readers.poll(20_000), "a command outlives its recipe"


def write_digits(folder, digits=range(10), takes=(0, 5, 10, 11)):
    """A tone for every digit, by two voices, in files that are called as FSDD's are. Returns the
    folder."""
    rng, seconds = np.random.default_rng(0), np.arange(4_000) / 8_000
    folder.mkdir(parents=True)
    for digit in digits:
        for speaker, pitch in (("ann", 1.0), ("bob", 1.3)):
            tone = 0.3 * np.sin(2 * np.pi * (200 + 90 * digit) * pitch * seconds)
            for take in takes:
                soundfile.write(
                    folder / f"{digit}_{speaker}_{take}.wav",
                    tone + rng.normal(0, 0.01, 4_000),
                    8_000,
                )
    return folder


def sections(recipe, config):
    content = yaml.safe_load((ROOT / f"recipes/{recipe}/{config}.yaml").read_text())
    return {name: section or {} for name, section in content.items()}


@cache
def program_options(path):
    """The dataclass that a program gives to `speechssl.cli.script`; None for another program."""
    names = re.findall(r"sys\.exit\(script\(\w+, (\w+)\)\)", path.read_text())
    if not names:
        return None
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    options = getattr(module, names[0])
    assert isinstance(options, type)
    return options
