"""Measure time and peak memory of audio in one file (an hour, ten hours) and of an hour in files of
a minute: each in a process of its own.

python recipes/speed/hour.py CONFIG EXP
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import load_ours, read_settings, save, sentences

from speechssl.audio import SAMPLE_RATE, read_audio, write_flac


def make_speech(path: Path, minutes: float) -> Path:
    """Write the same sentences again and again, once; return the path."""
    if not path.is_file():
        samples = np.concatenate(list(sentences(20)))
        write_flac(path, np.resize(samples, int(minutes * 60 * SAMPLE_RATE)))
    return path


def peak_memory() -> float:
    """Return the greatest memory of this process so far, in GB. (getrusage would count that of the
    parent, too.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


def encode(shape: str, exp: Path, precision: str, paths: list[str]) -> None:
    """Encode files at the last layer, in a process of its own, and print seconds and the greatest
    memory."""
    encoder = load_ours(shape, exp, precision)
    start = time.perf_counter()
    for path in paths:
        samples = read_audio(path)
        frames = sum(len(piece) for piece in encoder.stream(samples, encoder.layers))
        assert frames == encoder.grid.frames(len(samples)), "frames were lost"
    print(json.dumps({"seconds": time.perf_counter() - start, "gb": peak_memory()}))


def main() -> None:
    step = read_settings("hour")
    minutes, longer = step.values["minutes"], step.values["longer"]
    one_file, many, long = f"{minutes:g} min", f"{minutes:g} files of 1 min", f"{longer:g} min"
    files = {x: make_speech(step.exp / f"speech-{x:g}.flac", x) for x in (minutes, 1, longer)}
    paths = {one_file: [files[minutes]], many: [files[1]] * round(minutes), long: [files[longer]]}
    shape = step.values.get("model", "base")
    runs = [(shape, precision, (one_file, many)) for precision in step.values["precisions"]]
    for shape, precision, conditions in [*runs, ("small", "bf16", (one_file, long))]:
        system, took = f"speechssl {precision}", {}
        for condition in conditions:
            given = [*sys.argv[1:3], precision, shape, *map(str, paths[condition])]
            command = [sys.executable, __file__, *given]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found = json.loads(done.stdout)
            took[condition] = found["seconds"]
            length = longer if condition == long else minutes
            values = {"x_realtime": length * 60 / found["seconds"], "peak_gb": found["gb"]}
            save(step.exp, system, shape, condition, values)
        if many in took:
            ratio = {"one_file_over_many": took[one_file] / took[many]}
            save(step.exp, system, shape, one_file, ratio)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        encode(sys.argv[4], Path(sys.argv[2]), sys.argv[3], sys.argv[5:])
    else:
        main()
