"""Recordings beside a corpus of texts: one file, or one a sentence, for a passage or a question.

One whole WAV or FLAC file stays where it is; segments are joined at their own rate, with nothing between them, resampled once to
16 kHz and written as OUT/<split>/audio/*.flac. Times in the joined recording are those in the segment plus the lengths of the segments
before it: no sample is lost or made at a join. A recording with a hole (a segment missing, or damaged) is not made: all that follows
would be early.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.artefacts import hash_bytes
from speechssl.audio import SAMPLE_RATE, check_audio, duration, read_channels, resample, write_flac
from speechssl.corpora.making import in_parallel
from speechssl.corpora.records import Passage, Question
from speechssl.corpora.spoken_qa.drafts import Draft
from speechssl.corpora.spoken_qa.ledger import Kind, Ledger
from speechssl.errors import InputError

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
STAYS = (".wav", ".flac")  # their headers state the length; that of an MP3 may be an estimate
NAME = re.compile(r"[\w.-]{1,100}")  # what every file system takes as it is


@dataclass(frozen=True)
class Take:
    """The files of one recording in their order. missing: segments that should lie among them."""

    paths: tuple[Path, ...]
    missing: int = 0


@dataclass(frozen=True)
class Takes:
    """What there is for a split: by the ids of passages and of questions. Empty: no recordings of that kind at all."""

    passages: Mapping[str, Take]
    questions: Mapping[str, Take]


def audio_files(folder: Path) -> list[Path]:
    """Every recording below a folder, in order, without hidden files."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))


def take_of(segments: Mapping[int, Path], first: int = 0) -> Take:
    """A recording of numbered segments. first: the number that the first of them has; a gap counts as missing."""
    last = max(segments)
    present = [segments[n] for n in sorted(segments)]
    return Take(tuple(present), last + 1 - first - len(present))


def file_name(name: str) -> str:
    """An id as the name of a file: itself where every file system takes it, else what is left of it and a hash."""
    return name if NAME.fullmatch(name) else f"{re.sub(r'[^A-Za-z0-9]+', '-', name)[:40]}-{hash_bytes(name.encode())[:8]}"


def with_recordings(out: Path, split: str, draft: Draft, takes: Takes, ledger: Ledger, workers: int) -> Draft:
    """The draft with its audio. Where a split has recordings of a kind, records of that kind without one are set aside, and with
    a passage its questions: what is left can be heard throughout."""
    if takes.passages:
        sounding = _recorded(out, split, "passages", draft.passages, takes.passages, ledger, workers)
        kept = {p.id for p in sounding}
        for question in (q for q in draft.questions if q.passage not in kept):
            ledger.set_aside(split, "questions", question.id, "its passage is set aside")
        draft = Draft(sounding, [q for q in draft.questions if q.passage in kept])
    else:
        ledger.remark(split, "passages without recordings", "text only", len(draft.passages))
    if takes.questions:
        return Draft(draft.passages, _recorded(out, split, "questions", draft.questions, takes.questions, ledger, workers))
    ledger.remark(split, "questions without recordings", "text only", len(draft.questions))
    return draft


def join(paths: Sequence[Path], target: Path) -> float:
    """Write the segments as one recording, unless it is there; returns its seconds.

    Raises InputError where a segment cannot be read whole or has another rate than the first.
    """
    if not target.is_file():
        rate, parts = 0, []
        for path in paths:
            channels, own = read_channels(path)
            if rate not in (0, own):
                raise InputError(f"{path} has {own} Hz and the segments before it {rate}; convert them to one rate")
            rate = own
            parts.append(channels.mean(axis=0))
        samples = resample(np.concatenate(parts), rate, SAMPLE_RATE)
        check_audio(samples, SAMPLE_RATE, str(paths[0]))
        write_flac(target, samples)
    return duration(target)


def _recorded(
    out: Path, split: str, kind: Kind, records: Sequence[Any], takes: Mapping[str, Take], ledger: Ledger, workers: int
) -> list[Any]:
    whole = {r.id: takes[r.id] for r in records if r.id in takes and not takes[r.id].missing}
    letter = kind[0]  # a passage and a question may have one id
    jobs = [(out, f"{split}/audio/{letter}-{file_name(name)}.flac", name, take.paths) for name, take in whole.items()]
    heard = {name: (audio, seconds, why) for name, audio, seconds, why in in_parallel(_hear, jobs, workers)}
    return list(_sounding(split, kind, records, takes, heard, ledger))


def _sounding(
    split: str,
    kind: Kind,
    records: Sequence[Passage | Question],
    takes: Mapping[str, Take],
    heard: Mapping[str, tuple[str, float, str]],
    ledger: Ledger,
) -> Iterable[Passage | Question]:
    for record in records:
        audio, seconds, why = heard.get(record.id, ("", 0.0, ""))
        if audio:
            yield replace(record, audio=audio, seconds=seconds)
        elif why:
            ledger.set_aside(split, kind, record.id, "its recording is damaged", why=why)
        elif record.id in takes:
            ledger.set_aside(split, kind, record.id, "segments of its recording are missing", missing=takes[record.id].missing)
        else:
            ledger.set_aside(split, kind, record.id, "it has no recording, and others have")


def _hear(job: tuple[Path, str, str, Sequence[Path]]) -> tuple[str, str, float, str]:
    """(record, its audio, its seconds, why it has none). job: corpus, path below it, record, segments; called in other processes."""
    out, name, record, paths = job
    try:
        if len(paths) == 1 and paths[0].suffix.lower() in STAYS:
            return record, str(paths[0].resolve()), duration(paths[0]), ""
        return record, name, join(paths, out / name), ""
    except InputError as error:
        return record, "", 0.0, str(error)
