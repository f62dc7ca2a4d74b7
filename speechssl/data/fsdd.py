"""The Free Spoken Digit Dataset (Jackson, github.com/Jakobovski/free-spoken-digit-dataset): 3,000 digits by six speakers, 8 kHz.

A recording is called `{digit}_{speaker}_{index}.wav`. The customary test split is the indices 0 to 4; 5 to 9 are dev here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.data.prepare import begin_folder, write_lines
from speechssl.data.utterances import SPLITS, Utterance, to_record
from speechssl.errors import InputError
from speechssl.io import hash_files, read_json, write_json

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LABELS: dict[str, Callable[[Utterance], dict[str, str]]] = {
    "ks": lambda utterance: {"keyword": utterance.text},
    "sid": lambda utterance: {"speaker": utterance.speaker},
}
_NAME = re.compile(r"(\d)_([a-z]+)_(\d+)\.wav")


def prepare_fsdd(source: Path | str, out: Path | str) -> dict[str, dict[str, Any]]:
    """Write `out`/audio (16 kHz) and the sets `out`/ks (ten digits) and `out`/sid (the speakers), and return their cards.

    source: the dataset, or its folder `recordings`. What was killed goes on. Raises InputError where there are no such recordings,
    one cannot be read, a split has none, or `out` holds something else.
    """
    out, folder = Path(out), _recordings(Path(source))
    paths = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    wanted = {"corpus": "fsdd", "recordings": hash_files(paths)}
    begin_folder(out, wanted, "FSDD")
    splits: dict[str, list[Utterance]] = {split: [] for split in SPLITS}
    for path in tqdm(paths, "resampling FSDD", unit="file"):
        splits[_split(path.name)].append(_utterance(path, out))
    if empty := [split for split, found in splits.items() if not found]:
        raise InputError(
            f"{folder} has no recordings for {empty[0]} (test: 0 to 4, dev: 5 to 9, train: the rest); give the whole dataset"
        )
    return {task: _write(out / task, task, splits, wanted) for task in LABELS}


def _recordings(source: Path) -> Path:
    folder = source / "recordings" if (source / "recordings").is_dir() else source
    if not folder.is_dir() or not any(_NAME.fullmatch(path.name) for path in folder.iterdir()):
        raise InputError(f"{source} has no recordings like 7_jackson_32.wav; give the folder of the Free Spoken Digit Dataset")
    return folder


def _split(name: str) -> str:
    index = int(re.sub(_NAME, r"\3", name))
    return "test" if index < 5 else "dev" if index < 10 else "train"


def _utterance(path: Path, out: Path) -> Utterance:
    """Resample a recording, unless that was done. Labels are the tasks' business."""
    digit, speaker, _ = path.stem.split("_")
    samples, target = read_audio(path), out / "audio" / f"{path.stem}.flac"
    if not target.is_file():
        write_flac(target, samples)
    return Utterance(path.stem, f"../audio/{target.name}", len(samples) / SAMPLE_RATE, speaker, {}, DIGITS[int(digit)])


def _write(folder: Path, task: str, splits: dict[str, list[Utterance]], wanted: dict[str, Any]) -> dict[str, Any]:
    """The manifests of a task, then its card, unless it is there."""
    if (folder / "card.json").is_file():
        card: dict[str, Any] = read_json(folder / "card.json")
        return card
    for split, found in splits.items():
        write_lines(folder / f"{split}.jsonl", [to_record(u) | {"labels": LABELS[task](u)} for u in found])
    manifests = {split: hash_files([folder / f"{split}.jsonl"]) for split in SPLITS}
    card = wanted | {"task": task, "manifests": manifests}
    write_json(folder / "card.json", card)
    return card
