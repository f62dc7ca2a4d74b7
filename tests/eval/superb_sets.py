"""Sets of tones for tasks of SUPERB: a tone is a word, a speaker and a phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.audio import write_flac

COUNTS = {"train": 12, "dev": 4, "test": 4}
PITCH = {"low": 300.0, "high": 1200.0}


def tone(name: str, seconds: float, seed: int) -> np.ndarray:
    rng, n = np.random.default_rng(seed), round(seconds * 16_000)
    return 0.3 * np.sin(2 * np.pi * PITCH[name] * np.arange(n) / 16_000) + rng.normal(0, 0.01, n)


def write_set(root: Path, task: str, lines: dict[str, list[dict[str, Any]]]) -> Path:
    for split, found in lines.items():
        (root / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))
    (root / "card.json").write_text(json.dumps({"task": task}))
    return root


def recordings(root: Path, split: str, count: int, seconds: float = 0.5) -> list[tuple[str, dict[str, Any]]]:
    """(which tone, line) of recordings that are written."""
    found = []
    for i in range(count):
        kind, path = ("low", "high")[i % 2], f"audio/{split}-{i}.flac"
        write_flac(root / path, tone(kind, seconds, hash_of(split) + i))
        found.append((kind, {"id": f"{split}-{i}", "audio": path, "speaker": f"{split}-{kind}"}))
    return found


def hash_of(text: str) -> int:
    return sum(map(ord, text))


def labelled(root: Path, task: str = "ks") -> Path:
    return write_set(
        root, task, {s: [line | {"labels": {"word": kind}} for kind, line in recordings(root, s, n)] for s, n in COUNTS.items()}
    )


def texts(root: Path, task: str, field: str) -> Path:
    printed = {"low": "l o", "high": "h i"} if field == "phones" else {"low": "lo", "high": "hi"}
    return write_set(
        root, task, {s: [line | {field: printed[kind]} for kind, line in recordings(root, s, n)] for s, n in COUNTS.items()}
    )


def searched(root: Path) -> Path:
    documents = [line for _, line in recordings(root, "documents", 8)]
    of = {kind: [f"documents-{i}" for i in range(8) if ("low", "high")[i % 2] == kind] for kind in PITCH}
    queries = {s: [line | {"matches": of[k]} for k, line in recordings(root, s, 2, 0.3)] for s in ("dev", "test")}
    return write_set(root, "qbe", {"documents": documents, **queries})
