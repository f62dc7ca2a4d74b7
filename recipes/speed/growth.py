"""Measure time and memory of commands on 1, 10 and 100 times the data, each in a process of its
own, and of steps of DUAL on longer and longer windows.

python recipes/speed/growth.py CONFIG EXP
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from common import CODEBOOK, ENCODER, Settings, add_rows, read_settings
from extraction import make_recordings
from hour import peak_memory
from reading import WIDTH, Step, make_sequences

from speechssl.cli import run_program
from speechssl.cli.parser import read_section

STEPS = 3  # of DUAL, after one that is not measured
# This program runs a command and prints its peak memory in KiB (Linux). It is small itself: a
# process that it starts counts the memory of its parent as well.
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def measure(
    settings: Settings, work: str, size: str, command: Sequence[str | Path], out: Path
) -> None:
    """Run a command anew, and add a row of its seconds and one of its peak memory.

    work, size: name the row, as "units extract" and "40 min"; out: what the command writes.
    """
    shutil.rmtree(out, ignore_errors=True)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], check=True, stdout=subprocess.PIPE, text=True
    )
    values = {"seconds": time.perf_counter() - start, "peak_gb": int(done.stdout) * 1024 / 1e9}
    add_rows(settings.exp, "speechssl", "small", f"growth, {work}, {size}", values)


def measure_extraction(settings: Settings) -> None:
    """Measure `units extract` on folders of more and more recordings of a minute."""
    folder = settings.exp / "growth"
    for minutes in settings.values["minutes"]:
        source = make_recordings(folder / f"minutes-{minutes}", minutes)
        out = folder / f"units-{minutes}"
        command = ["speechssl", "units", "extract", str(source), ENCODER, CODEBOOK, str(out)]
        measure(settings, "units extract", f"{minutes} min", command, out)


def measure_evaluation(settings: Settings) -> None:
    """Measure `evaluate qa` of DUAL on more and more passages of MiniSQA."""
    folder = settings.exp / "growth"
    sizes = settings.values["passages"]
    corpus = str(folder / "corpus")
    prepare = ["speechssl", "prepare", "minisqa", corpus, "--passages", "0", "--dev-passages", "0"]
    subprocess.run([*prepare, "--test-passages", str(max(sizes))], check=True)
    for passages in sizes:
        out = folder / f"answers-{passages}"
        command = ["speechssl", "evaluate", "qa", corpus, str(out)]
        command += ["--systems", "dual", "--conditions", "clean", "--passages", str(passages)]
        measure(settings, "evaluate qa", f"{passages} passages", command, out)


def measure_superb(settings: Settings) -> None:
    """Measure keyword spotting (`superb run --tasks ks`) on more and more words."""
    folder = settings.exp / "growth"
    for scale in settings.values["scales"]:
        sets = folder / f"sets-{scale:g}"
        prepare = [sys.executable, "recipes/superb/minisuperb.py", str(sets), "--tasks", "ks"]
        subprocess.run([*prepare, "--scale", str(scale)], check=True)
        lines = sum(len(path.read_text().splitlines()) for path in sets.glob("ks/*.jsonl"))
        out = folder / f"superb-{scale:g}"
        command = ["speechssl", "superb", "run", str(out), "--tasks", "ks"]
        command += ["--encoders", "people-en", "--data", str(sets), "--preset", "small"]
        command += ["--learning-rates", "1e-3", "--steps", str(settings.values["head-steps"])]
        measure(settings, "superb run, ks", f"{lines} words", command, out)


def measure_steps(settings: Settings, config: Path) -> None:
    """Measure steps of DUAL on windows of more and more units, with local and with exact
    attention."""
    for window in settings.values["windows"]:
        for attention, width in (("local", WIDTH), ("exact", 0)):
            command = [sys.executable, __file__, "step", config, str(window), str(width)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            condition = f"growth, a step of DUAL, {attention} attention, {window} units"
            add_rows(settings.exp, "speechssl", "base", condition, json.loads(done.stdout), STEPS)


def step(config: Path, window: int, width: int) -> None:
    """Print median seconds of a step and the peak memory (GB) of this process, as JSON."""
    values = read_section(config, "growth")
    run_step = Step("BERT", values["precision"], values["shape"], "wall", width=width)
    sequences = make_sequences([window])
    run_step(sequences)  # warms up
    seconds = median(run_step(sequences) for _ in range(STEPS))
    print(json.dumps({"seconds": seconds, "peak_gb": peak_memory()}))


def main(config: Path, exp: Path) -> None:
    settings = read_settings("growth", config, exp)
    measure_extraction(settings)
    measure_evaluation(settings)
    measure_superb(settings)
    measure_steps(settings, config)


if __name__ == "__main__":
    run_program(main, step=step)  # of `measure_steps`
