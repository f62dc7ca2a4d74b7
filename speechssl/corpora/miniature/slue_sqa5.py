"""SLUE-SQA-5 as the hub has it: Parquet files a split, recordings within, words with their times, punctuation with -1."""

from __future__ import annotations

import random
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.audio import SAMPLE_RATE, resample
from speechssl.corpora.espeak import speak
from speechssl.corpora.miniature.nmsqa import write_parquet
from speechssl.corpora.miniature.telling import Asked, Content, Told, joined, record

SPLITS = {"train": "train", "dev": "validation", "test": "test"}
VERIFIED = 1  # questions of the test set that are in its verified part too


def write_slue_sqa5(told: Content, root: Path, rng: random.Random) -> None:
    for split, passages in told.items():
        rows = [_row(t, question, i) for t in passages for i, question in enumerate(t.questions)]
        write_parquet(root / "sqa5" / f"{SPLITS[split]}-00000-of-00001.parquet", rows)
        if split == "test":
            write_parquet(root / "sqa5" / "verified_test-00000-of-00001.parquet", rows[:VERIFIED])


def _row(told: Told, question: Asked, number: int) -> dict[str, Any]:
    sound, (start, end) = speak(question.spoken, question.voice), told.times(question)
    earlier = told.before(question.source.sentence)
    return {
        "question_id": f"Invented-{told.split}-{told.index}-{number}",
        "question_audio": _audio(f"question-{told.index}-{number}.wav", sound.samples, sound.sample_rate),
        "question_speaker_id": question.voice.name,
        "raw_question_text": question.text,
        "normalized_question_text": question.spoken,
        "document_id": f"Invented_{told.split}_{told.index}",
        "document_audio": _audio(f"document-{told.index}.wav", *joined(told)),
        "document_speaker_id": told.voice.name,
        "raw_document_text": told.context,
        "normalized_document_text": " ".join(told.spoken),
        "word2time": _words(told),
        "answer_spans": {
            "answer": [question.answer.lower()],
            "start_second": [earlier + start],
            "end_second": [earlier + end],
        },
    }


def _audio(name: str, samples: np.ndarray, rate: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder) / name, resample(samples / 32768, rate, SAMPLE_RATE), SAMPLE_RATE)
        return {"bytes": (Path(folder) / name).read_bytes(), "path": name}


def _words(told: Told) -> dict[str, list[Any]]:
    """A dict of lists. Full stops are words of their own, without times."""
    found: list[tuple[str, str, float, float]] = []
    for i, (written, sound) in enumerate(zip(told.written, told.sounds, strict=True)):
        earlier, rate = told.before(i), sound.sample_rate
        for word, mark in zip(re.findall(r"[^\s.]+", written), sound.words, strict=True):
            found.append((word, mark.text, earlier + mark.start / rate, earlier + mark.end / rate))
        found.append((".", "", -1.0, -1.0))
    names = ("word", "normalized_word", "start_second", "end_second")
    return {name: list(column) for name, column in zip(names, zip(*found, strict=True), strict=True)}
