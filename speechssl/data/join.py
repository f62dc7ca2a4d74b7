"""Recordings beside a corpus of texts: one file, or one a sentence, for a passage or a question.

One whole WAV or FLAC file stays where it is; segments are joined by `joining.py` and written as OUT/<split>/audio/*.flac. A
recording with a hole (a segment that is missing or damaged) is not made: all that follows the hole would come too early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, groupby
from math import ceil
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, check_audio, duration, read_audio, read_native, resample, write_flac
from speechssl.data.files import safe_name
from speechssl.data.prepare_report import Draft, Kind, Ledger, in_parallel
from speechssl.data.records import Passage, Question
from speechssl.errors import InputError
from speechssl.io import read_json, write_json

# Recordings of sentences joined to one recording of their passage, in which nothing drifts.
#
# Every piece is decoded at its own rate, its samples are counted, and what is joined is resampled to 16 kHz once: the beginning
# of a
# piece is the exact sum of the lengths before it, whereas pieces that are resampled (or cut into frames) one by one each gain
# or lose
# a little (fault 4 of the released DUAL code). Lengths are those of what is decoded; the header of an MP3 may only guess.

Piece = tuple[np.ndarray, int]  # samples (N,), rate in Hz


@dataclass(frozen=True)
class Joined:
    """Where the pieces lie in what was joined of them."""

    lengths: tuple[int, ...]  # (K,) samples of every piece, at its own rate
    rates: tuple[int, ...]  # (K,) Hz
    samples: int  # of the whole, at 16 kHz

    @cached_property
    def starts(self) -> tuple[Fraction, ...]:
        """(K + 1,) seconds before every piece, and of all, exactly."""
        seconds = (Fraction(n, rate) for n, rate in zip(self.lengths, self.rates, strict=True))
        return tuple(accumulate(seconds, initial=Fraction(0)))

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
    is put where the exact sum of the lengths before it says, to the nearest sample: an error of half a sample that does not add up.
    """
    if not pieces:
        raise ValueError("there is nothing to join")
    runs = [(rate, np.concatenate([samples for samples, _ in run])) for rate, run in groupby(pieces, key=lambda piece: piece[1])]
    whole = resample(runs[0][1], runs[0][0], SAMPLE_RATE) if len(runs) == 1 else _placed(runs)
    return whole, Joined(tuple(len(s) for s, _ in pieces), tuple(rate for _, rate in pieces), len(whole))


def _placed(runs: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
    """Runs of different rates, each at the sample that is nearest to its beginning; one may end a sample before the next begins."""
    ends = list(accumulate((Fraction(len(samples), rate) for rate, samples in runs), initial=Fraction(0)))
    borders = [*(round(end * SAMPLE_RATE) for end in ends[:-1]), ceil(ends[-1] * SAMPLE_RATE)]
    whole = np.zeros(borders[-1], np.float32)
    for (rate, samples), start, end in zip(runs, borders, borders[1:], strict=False):
        piece = resample(samples, rate, SAMPLE_RATE)[: end - start]
        whole[start : start + len(piece)] = piece
    return whole


def write_joined(paths: Sequence[Path], out: Path) -> Joined:
    """Join recordings into one FLAC; `out` with the suffix .json says where they lie. What is there already is left alone.

    Raises InputError naming the recording that cannot be read, and where the whole is silent or shorter than `read_audio` takes.
    """
    made_from = [{"file": path.name, "bytes": path.stat().st_size if path.is_file() else -1} for path in paths]
    if (there := _there(out, made_from)) is not None:
        return there
    samples, joined = join([read_native(path) for path in paths])
    check_audio(samples, SAMPLE_RATE, f"what was joined of {paths[0]} and {len(paths) - 1} more")
    write_flac(out, samples)
    write_json(out.with_suffix(".json"), {**asdict(joined), "made_from": made_from})
    return joined


def _there(out: Path, made_from: list[dict[str, Any]]) -> Joined | None:
    """What an earlier run joined of the same recordings; it wrote the JSON last."""
    if not (out.is_file() and out.with_suffix(".json").is_file()):
        return None
    card = read_json(out.with_suffix(".json"))
    if card.pop("made_from", None) != made_from:
        return None
    return Joined(tuple(card["lengths"]), tuple(card["rates"]), card["samples"])


def joining(job: tuple[str, list[Path], Path]) -> tuple[str, Joined | str]:
    """A job for `in_parallel`: (name, recordings, FLAC to write) -> (name, where they lie, or why they could not be joined)."""
    name, paths, out = job
    try:
        return name, write_joined(paths, out)
    except InputError as error:
        return name, str(error)


def measuring(job: tuple[str, Path]) -> tuple[str, float | str]:
    """A job for `in_parallel`: (name, recording) -> (name, its seconds as decoded, or why it cannot be used)."""
    name, path = job
    try:
        return name, len(read_audio(path)) / SAMPLE_RATE
    except InputError as error:
        return name, str(error)


R = TypeVar("R", Passage, Question)
SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
FEW = 8  # recordings that are done sooner than other processes are there
STAYS = (".wav", ".flac")  # their headers state the length; that of an MP3 may be an estimate


@dataclass(frozen=True)
class Take:
    """The files of one recording in their order. missing: segments that should lie among them."""

    paths: tuple[Path, ...]
    missing: int = 0


class Sounds(Protocol):
    """The recordings of a split, in whatever form they are."""

    def record(self, out: Path, split: str, draft: Draft, ledger: Ledger, workers: int) -> Draft:
        """The draft with its audio, which is written below `out` where it has to be."""


@dataclass(frozen=True)
class Takes:
    """Files: by the ids of passages and of questions. Empty: no recordings of that kind at all.

    unused: recordings that lie there and are of nothing that was read.
    """

    passages: Mapping[str, Take] = field(default_factory=dict)
    questions: Mapping[str, Take] = field(default_factory=dict)
    unused: int = 0

    def record(self, out: Path, split: str, draft: Draft, ledger: Ledger, workers: int) -> Draft:
        if self.unused:
            sliced = " of the slice" if ledger.first is not None else ""
            ledger.remark(split, f"recordings of no passage or question{sliced}", "not used", self.unused)
        draft = with_passages(split, draft, _hear(out, split, "passages", self.passages, draft.passages, workers), ledger)
        return with_questions(split, draft, _hear(out, split, "questions", self.questions, draft.questions, workers), ledger)


@dataclass(frozen=True)
class Heard:
    """What became of a recording: its audio and seconds, or why there is none."""

    audio: str = ""
    seconds: float = 0.0
    reason: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)  # what set_aside.jsonl says beside the reason


def audio_files(folder: Path) -> list[Path]:
    """Every recording below a folder, in order, without hidden files."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))


def take_of(segments: Mapping[int, Path], first: int = 0) -> Take:
    """A recording of numbered segments. first: the number that the first of them has; a gap counts as missing."""
    last = max(segments)
    present = [segments[n] for n in sorted(segments)]
    return Take(tuple(present), last + 1 - first - len(present))


def with_passages(split: str, draft: Draft, heard: Mapping[str, Heard], ledger: Ledger) -> Draft:
    """The draft with audio of its passages. Where any has some, those without are set aside with their questions."""
    if not heard:
        return draft
    passages = list(_sounding(split, "passages", draft.passages, heard, ledger))
    kept = {p.id for p in passages}
    for question in (q for q in draft.questions if q.passage not in kept):
        ledger.set_aside(split, "questions", question.id, "its passage is set aside")
    return Draft(passages, [q for q in draft.questions if q.passage in kept])


def with_questions(split: str, draft: Draft, heard: Mapping[str, Heard], ledger: Ledger) -> Draft:
    """The draft with audio of its questions. Where any has some, those without are set aside."""
    if not heard:
        return draft
    return Draft(draft.passages, list(_sounding(split, "questions", draft.questions, heard, ledger)))


def audio_name(split: str, kind: Kind, name: str) -> str:
    """Where a recording is written, below the corpus. A passage and a question may have one id."""
    return f"{split}/audio/{kind[0]}-{safe_name(name)}.flac"


def _sounding(split: str, kind: Kind, records: Iterable[R], heard: Mapping[str, Heard], ledger: Ledger) -> Iterator[R]:
    for record in records:
        found = heard.get(record.id, Heard(reason="it has no recording, and others have"))
        if found.audio:
            yield replace(record, audio=found.audio, seconds=found.seconds)
        else:
            ledger.set_aside(split, kind, record.id, found.reason, **found.more)


def _hear(
    out: Path, split: str, kind: Kind, takes: Mapping[str, Take], records: Iterable[Passage | Question], workers: int
) -> dict[str, Heard]:
    """By id: those of the records that have a recording, as far as it is whole."""
    wanted = {r.id: takes[r.id] for r in records if r.id in takes}
    holed = {name: take.missing for name, take in wanted.items() if take.missing}
    heard = {name: Heard("", 0.0, "segments of its recording are missing", {"missing": n}) for name, n in holed.items()}
    jobs = [(out, audio_name(split, kind, name), name, take.paths) for name, take in wanted.items() if name not in holed]
    done = in_parallel(_take, jobs, workers if len(jobs) > FEW else 1)
    return heard | dict(tqdm(done, f"{split} {kind}", len(jobs), unit="recording", mininterval=1, leave=False, disable=not jobs))


def _take(job: tuple[Path, str, str, Sequence[Path]]) -> tuple[str, Heard]:
    """The recording of one record. job: corpus, path below it, id, segments; called in other processes."""
    out, audio, name, paths = job
    try:
        if len(paths) == 1 and paths[0].suffix.lower() in STAYS:
            return name, Heard(str(paths[0].resolve()), duration(paths[0]))
        return name, Heard(audio, write_joined(paths, out / audio).seconds)
    except InputError as error:
        return name, damaged(error)


def damaged(error: InputError) -> Heard:
    return Heard(reason="its recording is damaged", more={"why": str(error)})
