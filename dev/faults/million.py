"""Planning, sharding, resume and the report of failures of a manifest of a million lines, with an
encoder of almost nothing.

    python dev/faults/million.py EXP [LINES]

Every line of the manifest is a recording of 7.2 s (a million: 2,000 h), all of which are links to a
few short files, and one in a hundred is no audio. LINES: 1,000,000. Measured are planning
alone, a run that is killed and goes on, and three processes with `--shard i/3`, of which one is
killed and started again. Writes million.md, a table with time and the greatest memory of every
process, and ends with exit code 1 where a row is missing or there twice.
"""

from __future__ import annotations

import json
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
from speechssl.units.storage import decode, iterate_units

# of a recording as the manifest has it; different files; every so many lines no audio
SECONDS, FILES, BROKEN = 7.2, 16, 100
SIZE = 200  # recordings of a shard at most
GRID = FrameGrid.of_convolutions(16_000, SMALL_KERNELS, SMALL_STRIDES)


def almost_nothing() -> UnitExtractor:
    """Frames are the mean of what they own: no encoder is faster, so that what is left is the rest
    of the way."""

    def raw(samples: np.ndarray) -> Iterator[torch.Tensor]:
        frames = GRID.frames(len(samples))
        yield torch.from_numpy(
            samples[: frames * GRID.hop].reshape(frames, GRID.hop).mean(1, keepdims=True)
        )

    centroids = np.linspace(-0.05, 0.05, 8, dtype=np.float32)[:, None]
    return UnitExtractor(
        Features("nothing", GRID, raw), Codebook(centroids, {"encoder": "nothing", "layer": 0})
    )


def manifest(folder: Path, lines: int) -> Path:
    """A list of so many recordings, and what it names."""
    rng = np.random.default_rng(0)
    for i in range(FILES):
        if not (folder / f"{i}.flac").exists():
            write_flac(folder / f"{i}.flac", rng.uniform(-0.3, 0.3, 1_600))
    (folder / "broken.flac").write_text("no audio")
    path = folder / f"{lines}.jsonl"
    if not path.exists():
        names = ("broken" if i % BROKEN == BROKEN - 1 else str(i % FILES) for i in range(lines))
        rows = (
            {"id": f"recording-{i:07d}", "audio": f"{name}.flac", "seconds": SECONDS}
            for i, name in enumerate(names)
        )
        write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
    return path


def peak() -> float:
    """The greatest memory of this process so far, in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


def one(path: Path, out: str, share: str) -> None:
    """In a process of its own. out: a folder, or "plan" to plan alone; share: I/N, or "all"."""
    began, before = time.monotonic(), peak()
    recordings = list_recordings(path)
    found: dict[str, Any] = {"lines": len(recordings)}
    if out == "plan":
        found |= {
            "shards": len(plan_shards(recordings, SIZE)),
            "hours": sum(r.seconds or 0 for r in recordings) / 3_600,
        }
    else:
        maker = ShardMaker(almost_nothing(), Path(out), SIZE)
        number, _, count = share.partition("/")
        made = extract_corpus(
            maker,
            recordings,
            LocalEngine(1),
            {},
            None if share == "all" else (int(number), int(count)),
        )
        found |= {"failed": len(made.failed), "whole": bool(made.card)}
    print(
        json.dumps(
            found | {"seconds": time.monotonic() - began, "gb": peak(), "grown": peak() - before}
        )
    )


def start(path: Path, out: Path | str, share: str = "all") -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "one", str(path), str(out), share]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{process.args} ended with exit code {process.returncode}")
    found: dict[str, Any] = json.loads(said)
    return found


def killed_at(process: subprocess.Popen[str], out: Path, parts: int) -> int:
    """Kill it when there are so many parts; how many there are then."""
    while process.poll() is None and sum(1 for _ in out.glob("part-*")) < parts:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    return sum(1 for _ in out.glob("part-*"))


def check(out: Path, path: Path) -> None:
    """Every line of the manifest once: as a row, or in the list of what failed."""
    names = []
    for part in sorted(out.glob("part-*")):
        names += [utterance.id for utterance in decode(part.read_bytes()).utterances]
    failed = [json.loads(line)["id"] for line in (out / "_failed.jsonl").read_text().splitlines()]
    wanted = [r.id for r in list_recordings(path)]
    if sorted(names + failed) != wanted or not set(names).isdisjoint(failed):
        sys.exit(f"{out}: rows are missing or there twice")
    if sum(1 for _ in iterate_units(out)) != len(names):
        sys.exit(f"{out}: the card does not name all parts")


def main(exp: Path, lines: int) -> None:
    exp.mkdir(parents=True, exist_ok=True)
    table = [
        "| lines | what | seconds | µs a line | peak, GB | beyond imports, GB |",
        "|---|---|---|---|---|---|",
    ]

    def tell(what: str, found: dict[str, Any]) -> None:
        cells = (
            f"{found['lines']:,} | {what} | {found['seconds']:.1f} | "
            f"{found['seconds'] / found['lines'] * 1e6:.0f}"
        )
        table.append(f"| {cells} | {found['gb']:.2f} | {found['grown']:.2f} |")
        print(table[-1], file=sys.stderr, flush=True)

    tell("planned", ended(start(manifest(exp, lines), "plan")))
    path = manifest(exp, lines)
    shards = len(plan_shards(list_recordings(path), SIZE))
    whole, shared = exp / f"whole-{lines}", exp / f"shared-{lines}"
    for out in (whole, shared):
        shutil.rmtree(out, ignore_errors=True)
    there = killed_at(start(path, whole), whole, shards // 2)
    resumed = ended(start(path, whole))
    tell(
        f"killed after {there} of {shards} shards, then resumed; {resumed['failed']:,} set aside",
        resumed,
    )
    tell("again: every row is verified against its audio", ended(start(path, whole)))
    others = [start(path, shared, f"{i}/3") for i in (1, 2, 3)]
    there = killed_at(others[1], shared, shards // 3)
    found = [ended(others[0]), ended(others[2])]
    last = ended(start(path, shared, "2/3"))
    tell(
        f"shard 2/3, killed when there were {there} shards and started again: it ends last, "
        "and verifies all",
        last,
    )
    for number, one_of in zip((1, 3), found, strict=True):
        tell(f"shard {number}/3, beside it", one_of)
    for out in (whole, shared):
        check(out, path)
    names = sorted(p.name for p in whole.glob("part-*"))
    if len(names) != shards or any(
        (whole / n).read_bytes() != (shared / n).read_bytes() for n in names
    ):
        sys.exit("three processes made other bytes than one")
    table.append(
        "\nThe union of three processes is whole, no row is there twice, and its bytes "
        "are those of one process."
    )
    write_text(exp / "million.md", "\n".join(table) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "one":
        one(Path(sys.argv[2]), *sys.argv[3:])
    else:
        main(Path(sys.argv[1]), int((sys.argv[2:] or ["1000000"])[0]))
