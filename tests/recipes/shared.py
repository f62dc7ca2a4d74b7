"""Run scripts of recipes/, import them, and read their configurations, for the tests of recipes."""

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
# PATH with this Python's programs, each of which starts a process of its own
COLD_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# folder of the programs that are forked from one process (warm.py), before COLD_PATH; or empty
WARM = []
# variables of the environment that scripts of recipes read
VARIABLES = "LIBRISPEECH KMEANS TEXT_QA START_UNITS SEED CORPUS TASKS WITHOUT PARTS GLUE".split()


def needs(*packages):
    """Return a mark that skips a test where a package is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(
        bool(missing), reason=(f"the recipe needs the packages {', '.join(missing)}")
    )


def script(path):
    """Import a script of recipes/, and return its module."""
    name = re.sub(r"\W", "_", path)
    spec = importlib.util.spec_from_file_location(name, ROOT / "recipes" / path)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_environment(variables):
    """Return the environment of a recipe: this one without VARIABLES, and the given variables."""
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    path = os.pathsep.join([*WARM, COLD_PATH])
    return inherited | {"PATH": path, "HF_HUB_OFFLINE": "1"} | variables


def run(path, *arguments, code=0, **environment):
    """Run a shell script of recipes/ to its end. code: exit code that it must end with."""
    command = ["bash", f"recipes/{path}", *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=make_environment(environment),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == code, (done.stdout + done.stderr)[-3000:]
    return done


def run_until(is_time, log, path, *arguments, **environment):
    """Run a shell script of recipes/, kill it and all that it started once is_time() is true, and
    wait until all of that is dead: its commands share the pipe of its standard input. log: file for
    what it prints, which is quoted if the recipe ends before."""
    command = ["bash", f"recipes/{path}", *arguments]
    with log.open("wb") as file:
        files = {"stdin": subprocess.PIPE, "stdout": file, "stderr": file}
        running = subprocess.Popen(
            command, cwd=ROOT, env=make_environment(environment), start_new_session=True, **files
        )
    began = time.monotonic()
    try:
        while not is_time():
            ended = running.poll() is not None or time.monotonic() - began > 900
            assert not ended, log.read_text(errors="replace")[-3000:]
            time.sleep(0.02)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert running.stdin
    with running.stdin as pipe:
        poll = select.poll()
        poll.register(pipe, 0)  # reports an error as soon as no process reads the pipe
        assert poll.poll(20_000), "a command outlives its recipe"


def write_digits(folder, digits=range(10), takes=(0, 5, 10, 11)):
    """Write a tone for every digit, by two voices, in files that are called as FSDD's are:
    DIGIT_SPEAKER_TAKE.wav. Returns the folder."""
    rng, seconds = np.random.default_rng(0), np.arange(4_000) / 8_000
    folder.mkdir(parents=True)
    for digit in digits:
        for speaker, pitch in (("ann", 1.0), ("bob", 1.3)):
            tone = 0.3 * np.sin(2 * np.pi * (200 + 90 * digit) * pitch * seconds)
            for take in takes:
                file = folder / f"{digit}_{speaker}_{take}.wav"
                soundfile.write(file, tone + rng.normal(0, 0.01, 4_000), 8_000)
    return folder


def sections(recipe, config):
    """Read recipes/RECIPE/CONFIG.yaml: section -> option -> value."""
    content = yaml.safe_load((ROOT / f"recipes/{recipe}/{config}.yaml").read_text())
    return {name: section or {} for name, section in content.items()}


@cache
def program_options(path):
    """Return the dataclass of options that a program gives to `speechssl.cli.script`; None for a
    program that does not call it. path: from recipes/."""
    text = (ROOT / "recipes" / path).read_text()
    names = re.findall(r"sys\.exit\(script\(\w+, (\w+)\)\)", text)
    return getattr(script(path), names[0]) if names else None
