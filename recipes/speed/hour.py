"""Measure time and peak memory of encoding an hour in one file, ten hours in one file, and an hour
in files of a minute, each in a process of its own.

python recipes/speed/hour.py CONFIG EXP
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import Settings, add_rows, load_speechssl, read_settings, speak_sentences

from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.cli import run_program


def make_speech(path: Path, minutes: float) -> Path:
    """Write a recording that repeats some sentences, unless it is there; return its path."""
    if not path.is_file():
        samples = np.concatenate(list(speak_sentences(pairs=10)))
        write_flac(path, np.resize(samples, int(minutes * 60 * SAMPLE_RATE)))
    return path


def peak_memory() -> float:
    """Return the greatest memory of this process so far, in GB. (getrusage would count that of the
    parent, too.)"""
    status = Path("/proc/self/status").read_text()
    kibibytes = int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)[1])
    return kibibytes * 1024 / 1e9


def encode(shape: str, exp: Path, precision: str, *paths: str) -> None:
    """Encode files at the last layer, and print seconds, peak memory (GB) and engine as JSON."""
    encoder = load_speechssl(shape, exp, precision)
    start = time.perf_counter()
    for path in paths:
        samples = read_audio(path)
        frames = sum(len(piece) for piece in encoder.stream(samples, encoder.layers))
        assert frames == encoder.grid.count_frames(len(samples)), "frames were lost"
    seconds = time.perf_counter() - start
    engine = encoder.engine.backend
    print(json.dumps({"seconds": seconds, "gb": peak_memory(), "engine": engine}))


@dataclass(frozen=True)
class Workload:
    """A workload is audio of some length in one file or several."""

    condition: str  # of its rows
    minutes: float
    paths: list[Path]


def measure(
    settings: Settings, shape: str, precision: str, workload: Workload
) -> tuple[float, str]:
    """Encode a workload in another process (see `encode`), add its rows, and return its seconds and
    the name of the system."""
    command = [sys.executable, __file__, "encode", shape, settings.exp, precision]
    command += workload.paths
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured = json.loads(done.stdout)
    seconds = measured["seconds"]
    values = {"x_realtime": workload.minutes * 60 / seconds, "peak_gb": measured["gb"]}
    system = f"speechssl {precision}"
    if measured["engine"] == "openvino":
        system = f"speechssl through OpenVINO {precision}"
    add_rows(settings.exp, system, shape, workload.condition, values)
    return seconds, system


def main(config: Path, exp: Path) -> None:
    settings = read_settings("hour", config, exp)
    minutes, longer = settings.values["minutes"], settings.values["longer"]
    file = make_speech(exp / f"speech-{minutes:g}.flac", minutes)
    short_file = make_speech(exp / "speech-1.flac", 1)
    long_file = make_speech(exp / f"speech-{longer:g}.flac", longer)
    one = Workload(f"{minutes:g} min", minutes, [file])
    many = Workload(f"{minutes:g} files of 1 min", minutes, [short_file] * round(minutes))
    long = Workload(f"{longer:g} min", longer, [long_file])
    shape = settings.values.get("model", "base")
    for precision in settings.values["precisions"]:
        seconds, system = measure(settings, shape, precision, one)
        seconds_of_many, _ = measure(settings, shape, precision, many)
        ratio = {"one_file_over_many": seconds / seconds_of_many}
        add_rows(exp, system, shape, one.condition, ratio)
    for workload in (one, long):
        measure(settings, "small", "bf16", workload)


if __name__ == "__main__":
    run_program(main, encode=encode)  # of `measure`
