"""Recordings beside a corpus of texts: one file, or one a sentence, for a passage or a question.

One whole WAV or FLAC file stays where it is; segments are joined by `joining.py` and written as OUT/<split>/audio/*.flac. A
recording with a hole (a segment that is missing or damaged) is not made: all that follows the hole would come too early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tqdm import tqdm

from speechssl.audio import duration
from speechssl.corpora.making import in_parallel
from speechssl.corpora.records import Passage, Question
from speechssl.corpora.spoken_qa.drafts import Draft
from speechssl.corpora.spoken_qa.joining import write_joined
from speechssl.corpora.spoken_qa.ledger import Kind, Ledger
from speechssl.corpora.spoken_qa.recordings import safe_name
from speechssl.errors import InputError

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
