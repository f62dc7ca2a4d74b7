"""Prepare the Free Spoken Digit Dataset (real voices) as sets for KS and SID."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from speechssl.artifacts import (
    CARD,
    CORPUS_RECORD,
    begin_stage,
    hash_files,
    read_json,
    write_json,
    write_lines,
)
from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.data.files import add_recording
from speechssl.data.options import Fsdd
from speechssl.data.superb import SPLITS, Utterance, make_record
from speechssl.data.superb_sets import Cards
from speechssl.errors import InputError

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NAME = re.compile(r"\d_[a-z]+_\d+\.wav")  # digit, speaker, index: "7_jackson_32.wav"
TASKS = ("ks", "sid")  # in the order in which they are written


def prepare_fsdd(o: Fsdd) -> Cards:
    """Write `o.out`/audio (16 kHz) and the sets `o.out`/ks (ten digits) and `o.out`/sid (the
    speakers), and return their cards.

    The customary test split of the Free Spoken Digit Dataset (Jackson,
    github.com/Jakobovski/free-spoken-digit-dataset) is the indices 0 to 4; 5 to 9 are dev here. A
    killed run goes on. Raises InputError where there are no such recordings, one cannot be read, a
    split has none, or `o.out` holds something else.
    """
    out = o.out
    by_name: dict[str, Path] = {}
    for path in sorted(o.source.rglob("*.wav")):
        if NAME.fullmatch(path.name):
            add_recording(by_name, path.stem, path)
    splits: dict[Path, str] = {}  # recording -> its split
    for name, path in by_name.items():
        index = int(name.rpartition("_")[2])
        if index < 5:
            splits[path] = "test"
        else:
            splits[path] = "dev" if index < 10 else "train"
    if set(splits.values()) != set(SPLITS):
        raise InputError(
            f"{o.source} has not the recordings of the Free Spoken Digit Dataset, like "
            "7_jackson_32.wav (test: 0 to 4, dev: 5 to 9, train: the rest); give the whole dataset"
        )
    made_from = {"corpus": "fsdd", "recordings": hash_files(list(splits))}
    # the card of the last task says that all is done
    with begin_stage(out, made_from, record=CORPUS_RECORD, card=f"{TASKS[-1]}/{CARD}") as step:
        if not step.done:
            _write_fsdd(out, splits, made_from)
    print(f"{out}: {' and '.join(TASKS)}, {len(splits):,} recordings")
    return {task: read_json(out / task / CARD) for task in TASKS}


def _write_fsdd(out: Path, splits: Mapping[Path, str], made_from: Mapping[str, Any]) -> None:
    """Resample the recordings and write the manifests. splits: recording -> its split."""
    # all are read before one is written: a damaged recording leaves nothing behind
    recordings = {path: read_audio(path) for path in tqdm(splits, "resampling FSDD", unit="file")}
    utterances: dict[str, list[Utterance]] = {split: [] for split in SPLITS}
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
        utterances[splits[path]].append(utterance)
    for task in TASKS:
        hashes = {}
        for split in SPLITS:
            manifest = out / task / f"{split}.jsonl"
            lines = []
            for u in utterances[split]:
                labels = {"keyword": u.text} if task == "ks" else {"speaker": u.speaker}
                lines.append(make_record(u) | {"labels": labels})
            write_lines(manifest, lines)
            hashes[split] = hash_files([manifest])
        write_json(out / task / CARD, {**made_from, "task": task, "manifests": hashes})
