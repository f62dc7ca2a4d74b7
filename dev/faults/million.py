"""Test planning, sharding, resume and the report of failures on a manifest of a million lines, with
an encoder that takes almost no time.

    python dev/faults/million.py EXP [LINES]

Every line of the manifest is a recording of 7.2 s (a million: 2,000 h), all of which are links to a
few short files, and one in a hundred is no audio. LINES: 1,000,000. Three things are measured:
planning alone; a run that is killed and goes on; and three processes with `--shard i/3`, of which
one is killed and started again. Writes million.md, a table with time and the greatest memory of
every process, and ends with exit code 1 if a row is missing or is there twice.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.artifacts import write_text
from speechssl.audio import write_flac
from speechssl.data.recordings import list_recordings
from speechssl.encoders.load import SMALL_KERNELS, SMALL_STRIDES
from speechssl.timing import FrameGrid
from speechssl.units.codebook import Codebook
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus, plan_shards
from speechssl.units.features import Features, UnitExtractor
from speechssl.units.storage import decode_part, iterate_units

SECONDS = 7.2  # of a recording, as the manifest says
FILES = 16  # different audio files
BROKEN = 100  # one in so many lines is no audio
SIZE = 200  # most recordings of a shard
GRID = FrameGrid.of_convolutions(16_000, SMALL_KERNELS, SMALL_STRIDES)


def make_extractor() -> UnitExtractor:
    """Make an extractor whose frames are means of samples: no encoder is faster, so that the rest
    of the way is measured."""

    def mean_frames(samples: np.ndarray) -> Iterator[torch.Tensor]:
        count = GRID.count_frames(len(samples))
        frames = samples[: count * GRID.hop].reshape(count, GRID.hop)
        yield torch.from_numpy(frames.mean(1, keepdims=True))

    centroids = np.linspace(-0.05, 0.05, 8, dtype=np.float32)[:, None]
    codebook = Codebook(centroids, {"encoder": "nothing", "layer": 0})
    return UnitExtractor(Features("nothing", GRID, mean_frames), codebook)


def make_manifest(folder: Path, lines: int) -> Path:
    """Write a manifest of `lines` recordings and its audio files, unless they are there; return its
    path."""
    rng = np.random.default_rng(0)
    for i in range(FILES):
        if not (folder / f"{i}.flac").exists():
            write_flac(folder / f"{i}.flac", rng.uniform(-0.3, 0.3, 1_600))
    (folder / "broken.flac").write_text("no audio")
    path = folder / f"{lines}.jsonl"
    if not path.exists():
        text = []
        for i in range(lines):
            name = "broken" if i % BROKEN == BROKEN - 1 else str(i % FILES)
            row = {"id": f"recording-{i:07d}", "audio": f"{name}.flac", "seconds": SECONDS}
            text.append(json.dumps(row) + "\n")
        write_text(path, "".join(text))
    return path


def peak_memory() -> float:
    """Return the greatest memory of this process so far, in GB."""
    status = Path("/proc/self/status").read_text()
    match = re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)
    assert match
    return int(match[1]) * 1024 / 1e9


def run_process(path: Path, out: str, shard_text: str) -> None:
    """Plan or extract, and print measures as JSON. It runs in a process of its own.

    out: a folder, or "plan" to plan alone; shard_text: "I/N", as of --shard, or "all".
    """
    start, before = time.monotonic(), peak_memory()
    recordings = list_recordings(path)
    measured: dict[str, Any] = {"lines": len(recordings)}
    if out == "plan":
        measured["shards"] = len(plan_shards(recordings, SIZE))
        measured["hours"] = sum(r.seconds or 0 for r in recordings) / 3_600
    else:
        shard = None
        if shard_text != "all":
            number, _, count = shard_text.partition("/")
            shard = int(number), int(count)
        maker = ShardMaker(make_extractor(), Path(out), SIZE)
        extracted = extract_corpus(maker, recordings, LocalEngine(1), {}, shard)
        measured |= {"failed": len(extracted.failed), "whole": bool(extracted.card)}
    measured["seconds"] = time.monotonic() - start
    measured |= {"gb": peak_memory(), "grown": peak_memory() - before}
    print(json.dumps(measured))


def start_process(path: Path, out: Path | str, shard: str = "all") -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "one", str(path), str(out), shard]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def wait_for(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the end of a process; return the measures that it printed."""
    printed, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{process.args} ended with exit code {process.returncode}")
    measured: dict[str, Any] = json.loads(printed)
    return measured


def kill_at(process: subprocess.Popen[str], out: Path, parts: int) -> int:
    """Kill a process as soon as `out` has `parts` parts; return how many it has then."""
    while process.poll() is None and sum(1 for _ in out.glob("part-*")) < parts:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    return sum(1 for _ in out.glob("part-*"))


def check_rows(out: Path, path: Path) -> None:
    """Check that every line of the manifest is there once, as a row or in the list of failures."""
    names = []
    for part in sorted(out.glob("part-*")):
        names += [utterance.id for utterance in decode_part(part.read_bytes()).utterances]
    failed = [json.loads(line)["id"] for line in (out / "_failed.jsonl").read_text().splitlines()]
    expected = [r.id for r in list_recordings(path)]
    if sorted(names + failed) != expected or not set(names).isdisjoint(failed):
        sys.exit(f"{out}: rows are missing or there twice")
    if sum(1 for _ in iterate_units(out)) != len(names):
        sys.exit(f"{out}: the card does not name all parts")


def check_bytes(whole: Path, sharded: Path, shards: int) -> None:
    """Check that one process and three made the same bytes."""
    names = sorted(p.name for p in whole.glob("part-*"))
    same = all((whole / n).read_bytes() == (sharded / n).read_bytes() for n in names)
    if len(names) != shards or not same:
        sys.exit("three processes made other bytes than one")


def main(exp: Path, lines: int) -> None:
    exp.mkdir(parents=True, exist_ok=True)
    heads = ("lines", "what", "seconds", "µs a line", "peak, GB", "beyond imports, GB")
    table = [f"| {' | '.join(heads)} |", "|---|---|---|---|---|---|"]

    def add_row(what: str, measured: dict[str, Any]) -> None:
        seconds, count = measured["seconds"], measured["lines"]
        cells = (f"{count:,}", what, f"{seconds:.1f}", f"{seconds / count * 1e6:.0f}")
        cells += (f"{measured['gb']:.2f}", f"{measured['grown']:.2f}")
        table.append(f"| {' | '.join(cells)} |")
        print(table[-1], file=sys.stderr, flush=True)

    path = make_manifest(exp, lines)
    add_row("planned", wait_for(start_process(path, "plan")))
    shards = len(plan_shards(list_recordings(path), SIZE))
    whole, sharded = exp / f"whole-{lines}", exp / f"sharded-{lines}"
    for out in (whole, sharded):
        shutil.rmtree(out, ignore_errors=True)
    written = kill_at(start_process(path, whole), whole, shards // 2)
    resumed = wait_for(start_process(path, whole))
    killed = f"killed after {written} of {shards} shards, then resumed"
    add_row(f"{killed}; {resumed['failed']:,} set aside", resumed)
    again = wait_for(start_process(path, whole))
    add_row("again: every row is verified against its audio", again)
    first, second, third = (start_process(path, sharded, f"{i}/3") for i in (1, 2, 3))
    written = kill_at(second, sharded, shards // 3)
    others = {1: wait_for(first), 3: wait_for(third)}
    last = wait_for(start_process(path, sharded, "2/3"))
    killed = f"shard 2/3, killed when there were {written} shards and started again"
    add_row(f"{killed}: it ends last, and verifies all", last)
    for number, measured in others.items():
        add_row(f"shard {number}/3, beside it", measured)
    for out in (whole, sharded):
        check_rows(out, path)
    check_bytes(whole, sharded, shards)
    table.append(
        "\nThe union of three processes is whole, no row is there twice, and its bytes "
        "are those of one process."
    )
    write_text(exp / "million.md", "\n".join(table) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "one":
        run_process(Path(sys.argv[2]), *sys.argv[3:])
    else:
        main(Path(sys.argv[1]), int((sys.argv[2:] or ["1000000"])[0]))
