"""Recordings of a corpus of texts: segments joined to one recording of their passage, and audio attached to records.

Every piece is decoded at its own rate, its samples are counted, and what is joined is resampled to 16 kHz once: the beginning of a
piece is the exact sum of the lengths before it, whereas pieces that are resampled (or cut into frames) one by one each gain or lose
a little (fault 4 of the released DUAL code). Lengths are those of what is decoded; the header of an MP3 may only guess.

One whole WAV or FLAC file stays where it is; segments are joined and written as OUT/<split>/audio/*.flac. A recording with a hole
(a segment that is missing or damaged) is not made: all that follows the hole would come too early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, groupby
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, check_audio, duration, read_audio, read_native, resample, write_flac
from speechssl.data.files import safe_name
from speechssl.data.prepare import Kind, PrepareReport, SplitRecords, in_parallel
from speechssl.errors import InputError
from speechssl.io import read_json, write_json

Piece = tuple[np.ndarray, int]  # samples (N,), rate in Hz
Attached = tuple[str, float] | dict[str, Any]  # audio and seconds of a record, or why there is none: fields of set_aside.jsonl
NOT_RECORDED = {"reason": "it has no recording, and others have"}
SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
STAYS = (".wav", ".flac")  # their headers state the length; that of an MP3 may be an estimate
FEW = 8  # recordings that are done sooner than other processes are there


@dataclass(frozen=True)
class Joined:
    """Where the pieces lie in what was joined of them."""

    lengths: tuple[int, ...]  # (K,) samples of every piece, at its own rate
    rates: tuple[int, ...]  # (K,) Hz
    samples: int  # of the whole, at 16 kHz

    @cached_property
    def starts(self) -> tuple[Fraction, ...]:
        """(K + 1,) seconds before every piece, and of all, exactly."""
        return tuple(accumulate(map(Fraction, self.lengths, self.rates), initial=Fraction(0)))

    @property
    def seconds(self) -> float:
        return self.samples / SAMPLE_RATE

    def length(self, piece: int) -> float:
        """Seconds of a piece."""
        return float(self.starts[piece + 1] - self.starts[piece])

    def moved(self, piece: int, seconds: float) -> float:
        """A time in a piece as the time in the whole."""
        return float(self.starts[piece] + Fraction(seconds))


def join(pieces: Sequence[Piece]) -> tuple[np.ndarray, Joined]:
    """The pieces one after another at 16 kHz, float32 (N,), and where they lie. Raises ValueError for no pieces.

    Pieces of one rate are resampled as a whole. Where rates change there is one resampling for every run of one rate, and each run
    begins at the exact sum of the lengths before it, to the nearest sample: an error of half a sample that does not add up.
    """
    if not pieces:
        raise ValueError("there is nothing to join")
    runs = [(rate, np.concatenate([samples for samples, _ in run])) for rate, run in groupby(pieces, key=lambda piece: piece[1])]
    if len(runs) == 1:
        whole = resample(runs[0][1], runs[0][0], SAMPLE_RATE)
    else:
        ends = list(accumulate((Fraction(len(samples), rate) for rate, samples in runs), initial=Fraction(0)))
        borders = [*(round(end * SAMPLE_RATE) for end in ends[:-1]), ceil(ends[-1] * SAMPLE_RATE)]
        whole = np.zeros(borders[-1], np.float32)
        for (rate, samples), start, end in zip(runs, borders, borders[1:], strict=False):
            piece = resample(samples, rate, SAMPLE_RATE)[: end - start]  # may end a sample before the next begins
            whole[start : start + len(piece)] = piece
    return whole, Joined(tuple(len(s) for s, _ in pieces), tuple(rate for _, rate in pieces), len(whole))


def write_joined(paths: Sequence[Path], out: Path) -> Joined:
    """Join recordings into one FLAC; `out` with the suffix .json, written last, has where they lie. What is there is left alone.

    Raises InputError naming the recording that cannot be read, and where the whole is silent or shorter than `read_audio` takes.
    """
    made_from = [{"file": path.name, "bytes": path.stat().st_size if path.is_file() else -1} for path in paths]
    description = out.with_suffix(".json")
    if out.is_file() and description.is_file():
        card = read_json(description)
        if card.get("made_from") == made_from:
            return Joined(tuple(card["lengths"]), tuple(card["rates"]), card["samples"])
    samples, joined = join([read_native(path) for path in paths])
    check_audio(samples, SAMPLE_RATE, f"what was joined of {paths[0]} and {len(paths) - 1} more")
    write_flac(out, samples)
    write_json(description, {**asdict(joined), "made_from": made_from})
    return joined


def join_job(job: tuple[str, list[Path], Path]) -> tuple[str, Joined | str]:
    """For `in_parallel`: (name, recordings, FLAC to write) -> (name, where they lie, or why they could not be joined)."""
    name, paths, out = job
    try:
        return name, write_joined(paths, out)
    except InputError as error:
        return name, str(error)


def measure_job(job: tuple[str, Path]) -> tuple[str, float | str]:
    """For `in_parallel`: (name, recording) -> (name, its seconds as decoded, or why it cannot be used)."""
    name, path = job
    try:
        return name, len(read_audio(path)) / SAMPLE_RATE
    except InputError as error:
        return name, str(error)


@dataclass(frozen=True)
class Take:
    """The files of one recording in their order. missing: segments that should lie among them."""

    paths: tuple[Path, ...]
    missing: int = 0


def take_of(segments: Mapping[int, Path], first: int = 0) -> Take:
    """A recording of numbered segments. first: the number that the first of them has; a gap counts as missing."""
    return Take(tuple(segments[n] for n in sorted(segments)), max(segments) + 1 - first - len(segments))


def audio_files(folder: Path) -> list[Path]:
    """Every recording below a folder, in order, without hidden files."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))


def audio_name(split: str, kind: Kind, name: str) -> str:
    """Where a recording is written, below the corpus. A passage and a question may have one id."""
    return f"{split}/audio/{kind[0]}-{safe_name(name)}.flac"


def damaged(error: InputError) -> Attached:
    return {"reason": "its recording is damaged", "why": str(error)}


def attach(split: str, kind: Kind, records: SplitRecords, found: Mapping[str, Attached], report: PrepareReport) -> SplitRecords:
    """The records with the audio of their passages or questions, by id.

    Where any has some, those without are set aside, and with a passage its questions.
    """
    if not found:
        return records
    kept: list[Any] = []
    for record in records.passages if kind == "passages" else records.questions:
        audio = found.get(record.id, NOT_RECORDED)
        if isinstance(audio, dict):
            report.set_aside(split, kind, record.id, **audio)
        else:
            kept.append(replace(record, audio=audio[0], seconds=audio[1]))
    if kind == "questions":
        return SplitRecords(records.passages, kept)
    there = {p.id for p in kept}
    for question in (q for q in records.questions if q.passage not in there):
        report.set_aside(split, "questions", question.id, "its passage is set aside")
    return SplitRecords(kept, [q for q in records.questions if q.passage in there])


@dataclass(frozen=True)
class Takes:
    """Files: by the ids of passages and of questions. Empty: no recordings of that kind at all.

    unused: recordings that lie there and are of nothing that was read.
    """

    passages: Mapping[str, Take] = field(default_factory=dict)
    questions: Mapping[str, Take] = field(default_factory=dict)
    unused: int = 0

    def attach(self, out: Path, split: str, records: SplitRecords, report: PrepareReport, workers: int) -> SplitRecords:
        """The records with their audio, which is written below `out` where it has to be joined or decoded."""
        if self.unused:
            sliced = " of the slice" if report.first is not None else ""
            report.remark(split, f"recordings of no passage or question{sliced}", "not used", self.unused)
        kinds: tuple[tuple[Kind, Mapping[str, Take]], ...] = (("passages", self.passages), ("questions", self.questions))
        for kind, takes in kinds:
            found: dict[str, Attached] = {}
            jobs = []
            for record in records.passages if kind == "passages" else records.questions:
                if (take := takes.get(record.id)) is None:
                    continue
                if take.missing:
                    found[record.id] = {"reason": "segments of its recording are missing", "missing": take.missing}
                else:
                    jobs.append((out, audio_name(split, kind, record.id), record.id, take.paths))
            done = in_parallel(_take_job, jobs, workers if len(jobs) > FEW else 1)
            shown = tqdm(done, f"{split} {kind}", len(jobs), unit="recording", mininterval=1, leave=False, disable=not jobs)
            records = attach(split, kind, records, found | dict(shown), report)
        return records


def _take_job(job: tuple[Path, str, str, Sequence[Path]]) -> tuple[str, Attached]:
    """For `in_parallel`: (corpus, path below it, id, segments) -> (id, its recording)."""
    out, audio, name, paths = job
    try:
        if len(paths) == 1 and paths[0].suffix.lower() in STAYS:
            return name, (str(paths[0].resolve()), duration(paths[0]))
        return name, (audio, write_joined(paths, out / audio).seconds)
    except InputError as error:
        return name, damaged(error)
