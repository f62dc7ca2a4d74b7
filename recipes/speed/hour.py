"""An hour of audio in one file, and in files of a minute, and ten hours in one: each in a process
of its own, time and peak memory.

python recipes/speed/hour.py CONFIG EXP
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import encoder, save, sentences, settings

from speechssl.audio import SAMPLE_RATE, read_audio, write_flac


def speech(path: Path, minutes: float) -> Path:
    """The same sentences again and again."""
    if path.is_file():
        return path
    read = np.concatenate(list(sentences(20)))
    size = int(minutes * 60 * SAMPLE_RATE)
    write_flac(path, np.resize(read, size))
    return path


def peak() -> float:
    """The greatest memory of this process so far, in GB. (getrusage would tell the parent's,
    too.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


def one(shape: str, exp: Path, precision: str, paths: list[str]) -> None:
    """In a process of its own: read, encode at the last layer, print frames, seconds and the
    greatest memory."""
    encoded = encoder(shape, exp, precision)
    start, frames = time.perf_counter(), 0
    for path in paths:
        samples = read_audio(path)
        found = sum(len(piece) for piece in encoded.stream(samples, encoded.layers))
        assert found == encoded.grid.frames(len(samples)), "frames were lost"
        frames += found
    spent = time.perf_counter() - start
    print(json.dumps({"frames": frames, "seconds": spent, "gb": peak()}))


def main() -> None:
    step = settings("hour")
    minutes, longer = step.values["minutes"], step.values["longer"]
    hour, minute, hours = (
        speech(step.exp / f"speech-{length:g}.flac", length) for length in (minutes, 1, longer)
    )
    one_file, many, long = f"{minutes:g} min", f"{minutes:g} files of 1 min", f"{longer:g} min"
    paths = {one_file: [hour], many: [minute] * round(minutes), long: [hours]}
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
            speed = length * 60 / found["seconds"]
            values = {"x_realtime": speed, "peak_gb": found["gb"]}
            save(step.exp, system, shape, condition, values, 1)
        if many in took:
            ratio = took[one_file] / took[many]
            save(step.exp, system, shape, one_file, {"one_file_over_many": ratio}, 1)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        one(sys.argv[4], Path(sys.argv[2]), sys.argv[3], sys.argv[5:])
    else:
        main()
