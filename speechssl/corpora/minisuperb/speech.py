"""The spoken MiniSUPERB: a folder of labelled utterances for every task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import signal
from tqdm import tqdm

from speechssl.artefacts import hash_files, read_json, write_json
from speechssl.audio import SAMPLE_RATE, duration, resample, write_flac
from speechssl.corpora.espeak import speak
from speechssl.corpora.making import claim_settings, in_parallel, write_lines
from speechssl.corpora.minisuperb.draws import TASKS, Draw, draw
from speechssl.corpora.utterances import SPLITS, Utterance
from speechssl.errors import InputError

VERSION = 1  # of the generator; part of the card
NAME = "MiniSUPERB"


def _sizes() -> dict[str, tuple[int, int, int]]:
    return {"ks": (2400, 300, 600), "ic": (1500, 300, 600), "sid": (1200, 240, 600), "style": (1200, 240, 480)}


def some_of(tasks: Sequence[str], share: float) -> dict[str, tuple[int, int, int]]:
    """Sizes for `Settings`: this share of the usual numbers (at least 1). Raises InputError for an unknown task."""
    usual = _sizes()
    if unknown := [task for task in tasks if task not in usual]:
        raise InputError(f"there is no set {unknown[0]}; choose from {', '.join(usual)}")
    train, dev, test = ({task: max(round(share * usual[task][i]), 1) for task in tasks} for i in range(3))
    return {task: (train[task], dev[task], test[task]) for task in tasks}


@dataclass(frozen=True)
class Settings:
    """What decides the bytes. sizes: task -> utterances in train, dev and test; tasks that are not named are not made."""

    sizes: dict[str, tuple[int, int, int]] = field(default_factory=_sizes)
    seed: int = 0


def prepare(out: Path | str, settings: Settings = Settings(), workers: int = 1) -> dict[str, dict[str, Any]]:
    """Write `out`/<task> for every task and return their cards. What is finished is left alone, what was killed goes on.

    The bytes depend on the settings only, not on `workers`. Raises InputError for an unknown task, a split without utterances, or
    a folder that holds something else.
    """
    for task, sizes in settings.sizes.items():
        if task not in TASKS or len(sizes) != len(SPLITS) or min(sizes) < 1:
            raise InputError(f"cannot make {task} of {sizes} utterances; give {', '.join(TASKS)} three numbers from 1")
    return {task: _prepare_task(Path(out) / task, task, settings, workers) for task in settings.sizes}


def _prepare_task(out: Path, task: str, settings: Settings, workers: int) -> dict[str, Any]:
    sizes = dict(zip(SPLITS, settings.sizes[task], strict=True))
    wanted = {"corpus": "minisuperb", "version": VERSION, "task": task, "sizes": sizes, "seed": settings.seed}
    claim_settings(out, wanted, NAME)
    if (out / "card.json").is_file():
        card: dict[str, Any] = read_json(out / "card.json")
        return card
    drawn = {split: draw(task, split, count, settings.seed) for split, count in sizes.items()}
    _speak_all(out, [d for split in SPLITS for d in drawn[split]], workers)
    for split in SPLITS:
        write_lines(out / f"{split}.jsonl", [asdict(_utterance(out, d)) for d in drawn[split]])
    manifests = {split: hash_files([out / f"{split}.jsonl"]) for split in SPLITS}
    card = wanted | {"manifests": manifests, "synthetic": "speech by espeak-ng"}
    write_json(out / "card.json", card)
    return card


def _speak_all(out: Path, draws: Sequence[Draw], workers: int) -> None:
    jobs = [(_path(out, d), d) for d in draws if not _path(out, d).is_file()]  # a recording is whole or not there
    for _ in tqdm(in_parallel(_make, jobs, workers), f"speaking {out.name}", total=len(jobs), unit="file"):
        pass


def _path(out: Path, drawn: Draw) -> Path:
    return out / "audio" / f"{drawn.id}.flac"


def _utterance(out: Path, drawn: Draw) -> Utterance:
    path = _path(out, drawn)
    return Utterance(drawn.id, f"audio/{path.name}", duration(path), drawn.voice.name, drawn.labels, drawn.text)


def _make(job: tuple[Path, Draw]) -> None:
    path, drawn = job
    write_flac(path, render(drawn))


def render(drawn: Draw) -> np.ndarray:
    """(N,) float32 at 16 kHz."""
    rng = np.random.default_rng(drawn.seed)
    if drawn.text:
        spoken = speak(drawn.text, drawn.voice)
        samples = resample(spoken.samples.astype(np.float32) / 32768, spoken.sample_rate, SAMPLE_RATE)
    else:
        samples = rng.standard_normal(round(drawn.seconds * SAMPLE_RATE)).astype(np.float32)
    coloured = _tilted(samples, drawn.tilt)
    missing = max(round(drawn.seconds * SAMPLE_RATE) - len(coloured), 0)
    before = int(rng.integers(missing + 1))
    padded = np.pad(coloured, (before, missing - before))
    return np.asarray(padded / np.abs(padded).max() * 10 ** (drawn.gain / 20), np.float32)


def _tilted(samples: np.ndarray, tilt: float) -> np.ndarray:
    """Brighter (above 0) or darker (below 0) by a filter of one zero."""
    return np.asarray(signal.lfilter([1.0, -max(min(tilt, 0.9), -0.9)], [1.0], samples))
