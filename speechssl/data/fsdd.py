"""Prepare the Free Spoken Digit Dataset (real voices) as sets for KS and SID."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.artifacts import (
    CARD,
    CORPUS_RECORD,
    hash_files,
    read_json,
    stage,
    write_json,
    write_lines,
)
from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.data.options import Fsdd
from speechssl.data.superb import SPLITS, Utterance, to_record
from speechssl.data.superb_sets import Cards
from speechssl.errors import InputError

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DIGIT = re.compile(r"(\d)_([a-z]+)_(\d+)\.wav")  # digit, speaker, index
LABELS: dict[str, Callable[[Utterance], dict[str, str]]] = {
    "ks": lambda utterance: {"keyword": utterance.text},
    "sid": lambda utterance: {"speaker": utterance.speaker},
}


def prepare_fsdd(o: Fsdd) -> Cards:
    """Write `o.out`/audio (16 kHz) and the sets `o.out`/ks (ten digits) and `o.out`/sid (the
    speakers), and return their cards.

    The Free Spoken Digit Dataset (Jackson, github.com/Jakobovski/free-spoken-digit-dataset): its
    customary test split is the indices 0 to 4; 5 to 9 are dev here. What was killed goes on. Raises
    InputError where there are no such recordings, one cannot be read, a split has none, or `o.out`
    holds something else.
    """
    out = o.out
    where: dict[Path, str] = {}
    for path in sorted(o.source.rglob("*.wav")):
        match = DIGIT.fullmatch(path.name)
        if match:
            index = int(match[3])
            where[path] = "test" if index < 5 else "dev" if index < 10 else "train"
    if set(where.values()) != set(SPLITS):
        raise InputError(
            f"{o.source} has not the recordings of the Free Spoken Digit Dataset, like "
            "7_jackson_32.wav (test: 0 to 4, dev: 5 to 9, train: the rest); give the whole dataset"
        )
    made_from = {"corpus": "fsdd", "recordings": hash_files(list(where))}
    with stage(out, made_from, record=CORPUS_RECORD, card=f"{[*LABELS][-1]}/{CARD}") as step:
        if not step.done:
            _write_fsdd(out, where, made_from)
    print(f"{out}: {' and '.join(LABELS)}, {len(where):,} recordings")
    return {task: read_json(out / task / CARD) for task in LABELS}


def _write_fsdd(out: Path, where: Mapping[Path, str], made_from: Mapping[str, Any]) -> None:
    """Resample the recordings and write the manifests. where: recording -> its split."""
    # all, before one is written
    recordings = {path: read_audio(path) for path in tqdm(where, "resampling FSDD", unit="file")}
    splits: dict[str, list[Utterance]] = {split: [] for split in SPLITS}
    for path, samples in recordings.items():
        digit, speaker, _ = path.stem.split("_")
        target = out / "audio" / f"{path.stem}.flac"
        if not target.is_file():
            write_flac(target, samples)
        utterance = Utterance(
            id=path.stem,
            audio=f"../audio/{target.name}",
            seconds=len(samples) / SAMPLE_RATE,
            speaker=speaker,
            text=DIGITS[int(digit)],
        )
        splits[where[path]].append(utterance)
    for task, labels in LABELS.items():
        manifests = {split: out / task / f"{split}.jsonl" for split in SPLITS}
        for split, path in manifests.items():
            write_lines(path, [to_record(u) | {"labels": labels(u)} for u in splits[split]])
        hashes = {split: hash_files([path]) for split, path in manifests.items()}
        write_json(out / task / CARD, {**made_from, "task": task, "manifests": hashes})
