"""This module has what every `prepare_<corpus>` shares: it attaches recordings to the records of a
corpus, and writes manifests, report and card.

Every passage and question that is read is either written or set aside with a reason: the report
(data_report.json) is not written where kept and set aside do not add up to those that were read.
Oddities of an item that is kept are counted, with what was done about them (`remark`). A WAV or
FLAC file of a whole recording stays where it is; segments are joined and written as
OUT/<split>/audio/*.flac. A recording that lacks a segment is not joined: all that follows the gap
would come too early.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate, groupby, pairwise
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import (
    CORPUS_RECORD,
    begin_stage,
    hash_files,
    read_json,
    write_json,
    write_lines,
)
from speechssl.audio import (
    SAMPLE_RATE,
    check_audio,
    format_length,
    measure_duration,
    read_audio,
    read_duration,
    read_native,
    resample,
    write_flac,
)
from speechssl.data.files import (
    check_shards,
    decode_cell,
    list_files,
    make_manifest_path,
    make_safe_name,
)
from speechssl.data.options import SpokenQA
from speechssl.data.records import (
    INVENTED,
    Passage,
    Question,
    check_question,
    check_spans,
    hash_data,
    locate,
    write_records,
)
from speechssl.errors import InputError, count_set_aside
from speechssl.text import find_language, split_answer_tokens

Kind = Literal["passages", "questions"]
KINDS: tuple[Kind, ...] = ("passages", "questions")
# the path and the seconds of a record's audio, or fields of its line in set_aside.jsonl, which say
# why it has no audio
Attached = tuple[str, float] | dict[str, Any]
Measured = tuple[Path, float | InputError]  # a recording, and its seconds or why it is unusable
Interval = tuple[float, float]  # start and end in seconds
# folder of a split with finished parts of its work, from which a killed run goes on; it is removed
# when the manifests are written
PARTS = "parts"
Remark = tuple[str, str]  # what was found, and what was done about it
# remarks that several corpora make
NO_RECORDINGS = ("questions of a split without recordings", "text only unless --speak reads them")
RENAMED = ("ids that occur twice", "the later one has a number behind it")
EMPTY = ("empty answers", "left out")
BY_TEXT = ("answers whose offset does not match", "kept without their offsets")
IMPOSSIBLE = ("questions marked impossible that have answers", "these answers are left out")
UNTIMED = "no times; scored by text only"  # second part of a remark
# reasons why items of several corpora are set aside
NO_QUESTION = "its question is empty and there is no recording of it"
NO_TEXT = "there is neither a recording nor a text of it"
NOT_FOUND = "its recording is not in the source"
UNUSABLE = "its recording cannot be used"
ITS_PASSAGE = "its passage is set aside"
NOT_RECORDED: Attached = {
    "reason": "it has no recording, and others have; add it, or give --no-audio"
}
# A single file with one of these suffixes is not copied: its header states the exact length, and
# the length of an MP3 may be an estimate.
STAYS = (".wav", ".flac")
# So few recordings are read by this process: worker processes would take longer to start.
FEW = 8
EXAMPLES = 5  # ids of items that a report names of a remark
# seconds by which a time may lie beyond its recording, since decoders differ; it is then clipped
SLACK = 0.1
K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class SplitRecords:
    """These are the records of one split. Paths of audio are absolute, or relative to the output
    folder."""

    passages: Sequence[Passage]
    questions: Sequence[Question]


@dataclass
class PrepareReport:
    """A report counts the items of one corpus that are read, kept and set aside."""

    corpus: str
    # split -> kind -> the count that the paper or the owners of the corpus state
    published: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    first: int | None = None  # passages to keep of a split (--passages), None for all; see `slice`
    invented: bool = False  # the corpus is a miniature, to which no published count applies
    # (split, remark) -> items
    remarks: Counter[tuple[str, Remark]] = field(default_factory=Counter)
    examples: dict[tuple[str, Remark], list[str]] = field(default_factory=dict)  # ids of some
    # lines of set_aside.jsonl; a line with a `count` stands for so many items
    aside: list[dict[str, Any]] = field(default_factory=list)
    read: Counter[tuple[str, Kind]] = field(default_factory=Counter)  # (split, kind) -> items

    def count(self, split: str, kind: Kind, number: int = 1) -> None:
        """Count items that were read."""
        self.read[split, kind] += number

    def set_aside(self, split: str, kind: Kind, name: str, reason: str, **more: Any) -> None:
        """Set aside an item that is not written. more: further fields of its line in
        set_aside.jsonl."""
        self.aside.append({"split": split, "kind": kind, "id": name, "reason": reason, **more})

    def remark(
        self, split: str, what: str, done: str, number: int = 1, name: str | None = None
    ) -> None:
        """Remark on something odd about an item that is kept. what: "answers without times"; done:
        "scored by text only"; name: id of the item, of which the report names EXAMPLES."""
        self.remarks[split, (what, done)] += number
        if name is not None:
            names = self.examples.setdefault((split, (what, done)), [])
            if len(names) < EXAMPLES:
                names.append(name)

    def make_unique_id(self, split: str, name: str, taken: Container[str]) -> str:
        """Make an id that is not taken: the name itself, or else the first of NAME#2, NAME#3, ...,
        with a remark."""
        unique, number = name, 2
        while unique in taken:
            unique = f"{name}#{number}"
            number += 1
        if unique != name:
            self.remark(split, *RENAMED, name=name)
        return unique

    def slice(self, split: str, passages: Iterable[T], questions: Mapping[T, int]) -> Collection[T]:
        """Choose the first passages with questions, as many as --passages says. The other passages
        are set aside in one line with their number, and so are their questions.

        questions: passage -> number of its questions. All passages and questions have been counted
        as read.
        """
        passages = list(passages)
        if self.first is None:
            return passages
        chosen = [p for p in passages if questions.get(p)][: self.first]
        beyond = sum(questions.values()) - sum(questions[p] for p in chosen)
        plural = "s" if self.first > 1 else ""
        reason = f"beyond the first {self.first} passage{plural} with questions (--passages)"
        left_out: dict[Kind, int] = {
            "passages": len(passages) - len(chosen),
            "questions": beyond,
        }
        for kind, number in left_out.items():
            if number:
                self.aside.append({"split": split, "kind": kind, "count": number, "reason": reason})
        return chosen

    def slice_rows(
        self, split: str, rows: Mapping[str, R], passage_of: Callable[[R], str]
    ) -> tuple[dict[str, R], dict[str, R]]:
        """Count the passages of questions, and choose the first as `slice` does. Returns the first
        question about every passage, by passage, and all questions about them, by id.

        rows: id of a question -> its row; passage_of: a function that returns the id of the passage
        of a row.
        """
        first_rows: dict[str, R] = {}
        for row in rows.values():
            first_rows.setdefault(passage_of(row), row)
        self.count(split, "passages", len(first_rows))
        chosen = self.slice(split, first_rows, Counter(map(passage_of, rows.values())))
        first_rows = {name: first_rows[name] for name in chosen}
        return first_rows, {n: row for n, row in rows.items() if passage_of(row) in first_rows}

    def count_reasons(self, **where: str) -> Counter[str]:
        """Count the items that were set aside: reason -> number. where: split=..., kind=... count
        only those of this split, this kind."""
        counts: Counter[str] = Counter()
        for line in self.aside:
            if where.items() <= line.items():
                counts[line["reason"]] += line.get("count", 1)
        return counts

    def summarise(self, splits: Mapping[str, SplitRecords]) -> dict[str, Any]:
        """Make the content of data_report.json. splits: the records that are kept.

        Raises AssertionError where the items that were kept and set aside do not add up to those
        that were read: the code of the corpus lost some.
        """
        by_split: dict[str, dict[str, Any]] = {}
        for split in dict.fromkeys(split for split, _ in self.read):
            records = splits.get(split, SplitRecords((), ()))
            published = {} if self.invented else self.published.get(split, {})
            facts: dict[str, Any] = {"hours": {}}
            for kind in KINDS:
                items = getattr(records, kind)
                read = self.read[split, kind]
                aside = self.count_reasons(split=split, kind=kind).total()
                if not read and kind not in published:
                    continue
                assert len(items) + aside == read, (
                    f"{self.corpus}, {split}: of {read} {kind} {len(items)} "
                    f"were kept and {aside} set aside"
                )
                facts[kind] = {"read": read, "kept": len(items), "set_aside": aside}
                if kind in published:
                    number = published[kind]
                    facts[kind] |= {"published": number, "agrees": read == number}
                facts["hours"][kind] = round(sum(item.seconds for item in items) / 3600, 4)
            facts["found"] = []
            for (of_split, remark), number in self.remarks.items():
                if of_split == split:
                    found = {"what": remark[0], "count": number, "done": remark[1]}
                    names = self.examples.get((split, remark))
                    facts["found"].append(found | ({"such_as": names} if names else {}))
            facts["set_aside"] = dict(self.count_reasons(split=split))
            by_split[split] = facts | _count_answers(records)
        content: dict[str, Any] = {"corpus": self.corpus}
        if self.invented:
            content["invented"] = True
        content["splits"] = by_split
        content["absent"] = [split for split in self.published if split not in by_split]
        return content


# ---- recordings of a corpus of texts


@dataclass(frozen=True)
class Take:
    """A take is one recording of a passage or a question: a file, or several segments."""

    paths: tuple[Path, ...]  # in order
    missing: int = 0  # number of segments that the source lacks


def make_take(segments: Mapping[int, Path], first: int) -> Take:
    """Make the take of numbered segments, and count the segments that are missing. first: the
    number that the first segment should have. Segments after the last one are not known to be
    missing."""
    missing = max(segments) + 1 - first - len(segments)
    return Take(tuple(segments[n] for n in sorted(segments)), missing)


def make_takes(segments: Mapping[K, Mapping[int, Path]]) -> dict[K, Take]:
    """Make the takes of the numbered segments of recordings. Numbers begin with 0 in some releases
    and with 1 in others: the smallest of all tells which."""
    first = min((min(files) for files in segments.values()), default=0)
    return {name: make_take(files, first) for name, files in segments.items()}


def make_audio_path(split: str, kind: Kind, name: str) -> str:
    """Make the path of a recording below the corpus, with "p" or "q" before its name: a passage and
    a question may have the same id."""
    return f"{split}/audio/{kind[0]}-{make_safe_name(name)}.flac"


def attach(
    split: str,
    kind: Kind,
    records: SplitRecords,
    attached: Mapping[str, Attached],
    report: PrepareReport,
) -> SplitRecords:
    """Attach audio to the passages or the questions, by id, and return the records that have audio.

    Records without audio are set aside; the questions of a passage are set aside with it. Where no
    record has audio, the records are returned as they are.
    """
    if not attached:
        return records
    with_audio: list[Any] = []
    for record in getattr(records, kind):
        audio = attached.get(record.id, NOT_RECORDED)
        if isinstance(audio, dict):
            report.set_aside(split, kind, record.id, **audio)
        else:
            with_audio.append(replace(record, audio=audio[0], seconds=audio[1]))
    if kind == "questions":
        return SplitRecords(records.passages, with_audio)
    passage_ids = {p.id for p in with_audio}
    for question in records.questions:
        if question.passage not in passage_ids:
            report.set_aside(split, "questions", question.id, ITS_PASSAGE)
    questions = [q for q in records.questions if q.passage in passage_ids]
    return SplitRecords(with_audio, questions)


def attach_takes(
    o: SpokenQA,
    split: str,
    records: SplitRecords,
    report: PrepareReport,
    passages: Mapping[str, Take],
    questions: Mapping[str, Take] | None = None,
) -> SplitRecords:
    """Attach recordings to passages and questions, by their ids, and return the records with audio.
    Recordings that have to be joined or decoded are written below `o.out`."""
    takes: dict[Kind, Mapping[str, Take]] = {"passages": passages, "questions": questions or {}}
    for kind, by_id in takes.items():
        attached: dict[str, Attached] = {}
        jobs: dict[str, tuple[Path, str, tuple[Path, ...]]] = {}
        for record in getattr(records, kind):
            take = by_id.get(record.id)
            if take is None:
                continue
            if take.missing:
                reason = "segments of its recording are missing"
                attached[record.id] = {"reason": reason, "missing": take.missing}
            else:
                jobs[record.id] = (o.out, make_audio_path(split, kind, record.id), take.paths)
        processes = o.workers if len(jobs) > FEW else 1
        attached |= run_parallel(_write_take, jobs, processes, f"{split} {kind}", "recording")
        records = attach(split, kind, records, attached, report)
    return records


def _write_take(out: Path, audio: str, paths: Sequence[Path]) -> Attached:
    """Join the files of a take into `audio`, a path below the corpus, unless it is one WAV or FLAC
    file, which stays where it is."""
    try:
        if len(paths) == 1 and paths[0].suffix.lower() in STAYS:
            return str(paths[0].resolve()), measure_duration(paths[0])
        return audio, write_joined(paths, out / audio).samples / SAMPLE_RATE
    except InputError as error:
        return {"reason": UNUSABLE, "why": str(error)}


# ---- recordings that are joined from pieces


@dataclass(frozen=True)
class Joined:
    """A joined recording knows the lengths of its pieces, and so where each of them lies."""

    lengths: tuple[int, ...]  # (K,) samples of every piece, at its own rate
    rates: tuple[int, ...]  # (K,) Hz
    samples: int  # of the whole, at 16 kHz

    @cached_property
    def starts(self) -> tuple[Fraction, ...]:
        """Return the exact start of every piece in seconds, and the end of the last; (K + 1,)."""
        return tuple(accumulate(map(Fraction, self.lengths, self.rates), initial=Fraction(0)))

    def measure_piece(self, piece: int) -> float:
        """Measure the seconds of a piece."""
        return float(self.starts[piece + 1] - self.starts[piece])

    def move_to_whole(self, piece: int, seconds: float) -> float:
        """Move a time in a piece to the whole."""
        return float(self.starts[piece] + Fraction(seconds))


def join(pieces: Sequence[tuple[np.ndarray, int]]) -> tuple[np.ndarray, Joined]:
    """Join pieces (samples, rate), at least one, at 16 kHz. Returns samples (N,) float32, and where
    the pieces lie.

    Pieces that are resampled (or cut into frames) one by one each gain or lose a little, as in the
    released DUAL code, and the times of later pieces drift. So successive pieces of one rate, a
    run, are joined before they are resampled. A run begins at the exact sum of the lengths before
    it, rounded to the nearest sample, so that errors do not add up. Lengths are counted in decoded
    samples; the header of an MP3 may only estimate them.
    """
    runs = []
    for rate, run in groupby(pieces, key=lambda piece: piece[1]):
        runs.append((rate, np.concatenate([samples for samples, _ in run])))
    seconds = [Fraction(len(samples), rate) for rate, samples in runs]
    ends = list(accumulate(seconds, initial=Fraction(0)))
    borders = [*(round(end * SAMPLE_RATE) for end in ends[:-1]), ceil(ends[-1] * SAMPLE_RATE)]
    whole = np.zeros(borders[-1], np.float32)
    for (rate, samples), (start, end) in zip(runs, pairwise(borders), strict=True):
        # rounding may leave a sample of silence between a run and the next
        piece = resample(samples, rate, SAMPLE_RATE)[: end - start]
        whole[start : start + len(piece)] = piece
    lengths = tuple(len(samples) for samples, _ in pieces)
    return whole, Joined(lengths, tuple(rate for _, rate in pieces), len(whole))


def write_joined(paths: Sequence[Path], out: Path) -> Joined:
    """Join recordings into the FLAC `out`; then write a .json beside it, which says where they lie
    in it. A FLAC that was made of the same recordings is kept.

    Raises InputError for a recording that cannot be read, and where the whole is silent or shorter
    than `read_audio` takes.
    """
    made_from = [
        {"file": path.name, "bytes": path.stat().st_size if path.is_file() else -1}
        for path in paths
    ]
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


def write_cell(content: bytes, where: str, out: Path) -> float:
    """Write a recording from the cell of a table as FLAC, unless it is there already, and return
    its seconds. Raises InputError as `decode_cell` does."""
    if not out.is_file():
        write_flac(out, decode_cell(content, where))
    return read_duration(out)


def measure_recordings(paths: Mapping[K, Path], workers: int, what: str) -> dict[K, Measured]:
    """Measure the seconds of recordings by decoding them. what: the text of the progress bar."""
    return run_parallel(_measure, {key: (path,) for key, path in paths.items()}, workers, what)


def _measure(path: Path) -> Measured:
    """Measure the seconds of one recording."""
    try:
        return path, len(read_audio(path)) / SAMPLE_RATE
    except InputError as error:
        return path, error


def choose_audio(
    recording: Measured | None, text: str, no_text: str, text_will_do: bool, out: Path
) -> Attached:
    """Choose the audio of an item: its recording if that is usable; otherwise none, ("", 0), if a
    text is enough; otherwise the reason why the item is set aside.

    text_will_do: whether an item needs no recording if it has a text; no_text: the reason for
    setting it aside if it has neither.
    """
    path, seconds = recording or (out, None)
    if isinstance(seconds, float):
        return make_manifest_path(path, out), seconds
    if text_will_do:
        return ("", 0.0) if text.strip() else {"reason": no_text}
    if seconds is None:
        return {"reason": NOT_FOUND}
    return {"reason": UNUSABLE, "why": str(seconds)}


def clip_time(start: float | None, end: float | None, seconds: float) -> Interval | None:
    """Clip a time of the release to a recording of `seconds`; None for a time that is empty,
    reversed, or ends more than SLACK behind the recording."""
    if start is None or end is None:
        return None
    clipped_end = min(end, seconds)
    fits = 0 <= start < clipped_end and end <= seconds + SLACK
    return (start, clipped_end) if fits else None


# ---- a corpus


def prepare_corpus(
    corpus: str,
    o: SpokenQA,
    settings: Mapping[str, Any],
    read: Callable[[PrepareReport], Mapping[str, SplitRecords]],
    published: Mapping[str, Mapping[str, int]],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Make the corpus in `o.out` unless it was finished with these settings; print its data report
    and return it.

    settings: what decides the content beside the options; read: a function that reads the records
    of every split; about: entries of the card. Raises InputError where the folder holds something
    else, for an invalid question (`check_question`), where no question can be used, or as `read`
    does.
    """
    source = o.source.resolve()
    made_from = {"passages": o.passages, "speak": o.speak} | dict(settings)
    if o.speak:
        made_from |= {"seed": o.seed, "synthesiser": o.synthesiser}

    def make() -> dict[str, Any]:
        # a miniature of tests/corpora says so in the title of its README
        readme = (source if source.is_dir() else source.parent) / "README.md"
        title = readme.read_text(encoding="utf-8").partition("\n")[0] if readme.is_file() else ""
        report = PrepareReport(corpus, published, o.passages, INVENTED in title)
        splits = read(report)
        _check_used(splits, report, source)
        if o.speak:
            from speechssl.synth.speak import speak_drafts

            splits = speak_drafts(o, splits, report)
        for split, records in splits.items():
            passages = {p.id: p for p in records.passages}
            for name, passage in passages.items():
                check_spans(passage, f"{source}, {split}, passage {name}")
            for question in records.questions:
                place = f"{source}, {split}, question {question.id}"
                check_spans(question, place)
                check_question(question, passages, place)
        card = {**about, "settings": made_from}
        return write_corpus(o.out, splits, report, card, o.synthesiser)

    return make_once(o.out, {"corpus": corpus, "source": str(source), **made_from}, make)


def stamp_files(files: Mapping[str, Path]) -> dict[str, str]:
    """Describe files, so that a change of a file changes its description: by their hashes, and
    files above 256 MB by their sizes."""
    stamps = {}
    for name, path in files.items():
        size = path.stat().st_size
        stamps[name] = hash_files([path]) if size < 1 << 28 else f"{size} bytes"
    return stamps


def make_source_error(source: Path, corpus: str) -> InputError:
    """Make the error of a source that is not of this corpus, by the name of its verb."""
    return InputError(
        f"{source} has no files of {corpus}; give those that `speechssl prepare {corpus} --help` "
        "describes"
    )


def find_split_files(
    source: Path, find_split: Callable[[Path], str], corpus: str
) -> dict[str, Path]:
    """Find the JSON file of every split: below the source, or the source itself. find_split: a
    function that returns the split of a file, "" for a file of none. Raises InputError where there
    are no files, or two of one split."""
    files: dict[str, Path] = {}
    paths = list_files(source, ".json") if source.is_dir() else [source]
    for path in paths:
        split = find_split(path) if path.is_file() else ""
        if split:
            check_shards(split, [files.setdefault(split, path), path])
    if not files:
        raise make_source_error(source, corpus)
    return files


def make_once(
    out: Path, made_from: Mapping[str, Any], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Make the corpus in `out` as a stage, unless it is there and was made from the same; print its
    data report and return it. make: a function that writes the corpus and returns the report."""
    with begin_stage(
        out, made_from, record=CORPUS_RECORD, lasting=("unpacked", f"*/{PARTS}")
    ) as step:
        if step.done:
            note = "holds this corpus already, from the same files; it is left as it is"
            tqdm.write(f"{out} {note}", file=sys.stderr)
            report = dict(read_json(out / "data_report.json"))
        else:
            report = make()
    print(format_report(report))
    print(
        f"{out}: this report is in data_report.json, and every item that was set aside in "
        "set_aside.jsonl"
    )
    to_align = sum(facts.get("answers_to_align", 0) for facts in report["splits"].values())
    if to_align:
        print(
            f"{out}: DUAL is trained on answers with times; `speechssl align {out} {out}-aligned` "
            f"can find those of {to_align:,} answers that have none"
        )
    count_set_aside(count_set_aside_items(report))
    return report


def run_parallel(
    function: Callable[..., R],
    jobs: Mapping[K, tuple[Any, ...]],
    workers: int,
    what: str,
    unit: str = "file",
) -> dict[K, R]:
    """Call a function with the arguments of every key, in as many processes as there are workers;
    return the results by key. what, unit: the texts of the progress bar."""
    call = partial(_call, function)
    # processes are spawned: torch and the progress bar have threads, and a process with threads
    # cannot be forked safely
    with get_context("spawn").Pool(workers) if workers > 1 else nullcontext() as pool:
        results: Iterable[R] = map(call, jobs.values())
        if pool:
            results = pool.imap(call, jobs.values(), chunksize=4)
        bar = tqdm(results, what, len(jobs), unit=unit, disable=not jobs)
        return dict(zip(jobs, bar, strict=True))


def _call(function: Callable[..., R], arguments: tuple[Any, ...]) -> R:
    """Call a function with its arguments; a worker process can be sent this one by name."""
    return function(*arguments)


def _check_used(splits: Mapping[str, SplitRecords], report: PrepareReport, source: Path) -> None:
    """Raise InputError where no question can be used, or, in a source without questions, no
    passage: the layout of the source is then another one."""
    questions = sum(number for (_, kind), number in report.read.items() if kind == "questions")
    for records in splits.values():
        if records.questions or (records.passages and not questions):
            return
    reasons = report.count_reasons().most_common(3)
    why = "; ".join(f"{number:,} x {reason}" for reason, number in reasons)
    errors = [line["why"] for line in report.aside if "why" in line]
    if errors:
        why += f", such as: {errors[0]}"
    raise InputError(
        f"{source} has no usable question of {report.corpus} ({why or 'its files are empty'}); "
        "give the published files"
    )


def write_corpus(
    out: Path,
    splits: Mapping[str, SplitRecords],
    report: PrepareReport,
    about: Mapping[str, Any],
    synthesiser: str = "espeak-ng",
) -> dict[str, Any]:
    """Write the manifests, then set_aside.jsonl, data_report.json and card.json.

    about: entries of the card beside the name of the corpus, such as its source and licence;
    synthesiser: its name, for the card of a corpus with synthetic records. Returns the data report.
    """
    for split, records in splits.items():
        for kind in KINDS:
            write_records(out / split / f"{kind}.jsonl", getattr(records, kind))
    content = report.summarise(splits)
    write_lines(out / "set_aside.jsonl", report.aside)
    write_json(out / "data_report.json", content)
    card: dict[str, Any] = {"corpus": report.corpus, **about}
    synthetic = _describe_synthetic(splits, report.invented, synthesiser)
    if synthetic:
        card["synthetic"] = synthetic
    card["manifests"] = {split: hash_data(out, split) for split in splits}
    write_json(out / "card.json", card)
    for split in splits:
        shutil.rmtree(out / split / PARTS, ignore_errors=True)
    return content


def _count_answers(records: SplitRecords) -> dict[str, Any]:
    """Count the answerable questions, those of them with an answer time, and the answers without a
    time to which `speechssl align` could give one: answers that are found in the text of a passage
    with a recording.

    The result also has `answer_in_context`: the fraction of questions with written answers of which
    one occurs, in whole words (zh: characters), in the transcript of the passage, or in its text
    where there is no transcript.
    """
    answerable = [q for q in records.questions if q.answers]
    if not answerable:
        return {}
    passages = {p.id: p for p in records.passages}
    with_times = 0  # questions
    to_align = 0  # answers
    for q in answerable:
        passage = passages[q.passage]
        without_time = [a for a in q.answers if a.start is None]
        with_times += len(without_time) < len(q.answers)
        if not passage.audio:
            continue
        for answer in without_time:
            place, _ = locate(answer, passage.written, find_language(q.language))
            to_align += place is not None
    facts = {"answerable": len(answerable), "with_times": with_times, "answers_to_align": to_align}
    with_text = [q for q in answerable if any(a.text.strip() for a in q.answers)]
    # it is not known what is said
    if not with_text or not any(p.written for p in records.passages):
        return facts

    def join_words(text: str, language: str) -> str:
        """Join the normalised words by spaces, with a space at either end: then a text is found
        within another in whole words only."""
        return f" {' '.join(split_answer_tokens(text, language, digits=False))} "

    texts = {p.id: join_words(p.transcript or p.text, p.language) for p in records.passages}
    in_context = 0
    for q in with_text:
        found = [join_words(a.text, q.language) in texts[q.passage] for a in q.answers if a.text]
        in_context += any(found)
    return facts | {"answer_in_context": in_context / len(with_text)}


def _describe_synthetic(
    splits: Mapping[str, SplitRecords], invented: bool, synthesiser: str
) -> str:
    """Say how much of the audio a synthesiser spoke, and whether the corpus is invented; "" for a
    corpus of real speech."""
    passages = [p for records in splits.values() for p in records.passages]
    questions = [q for records in splits.values() for q in records.questions]
    synthetic = {  # kind of item -> whether each item is synthetic
        "passages": [p.synthetic for p in passages],
        "questions": [q.synthetic for q in questions],
        "options": [bool(q.option_audio) for q in questions for _ in q.options],
    }
    kinds = []
    for kind, flags in synthetic.items():
        if any(flags):
            kinds.append(f"{sum(flags):,} of {len(flags):,} {kind}")
    notes = []
    if invented:
        records: list[Passage | Question] = [*passages, *questions]
        recorded = any(record.audio and not record.synthetic for record in records)
        notes.append(INVENTED + (", its recordings spoken by espeak-ng" if recorded else ""))
    if kinds:
        *others, last = kinds
        listed = f"{', '.join(others)} and {last}" if others else last
        notes.append(f"{listed} spoken by {synthesiser}")
    return "; ".join(notes)


def count_set_aside_items(report: Mapping[str, Any]) -> int:
    """Count the items that were set aside according to a data report, without those that --passages
    leaves out."""
    total = 0
    for facts in report["splits"].values():
        for reason, number in facts["set_aside"].items():
            if not reason.endswith("(--passages)"):
                total += number
    return total


def format_report(report: Mapping[str, Any]) -> str:
    """Format a data report for people: for every split a line for its passages and one for its
    questions, then the remarks, and the reasons why items were set aside."""
    title = report["corpus"]
    if report.get("invented", False):
        title += f", {INVENTED} of it, to which published counts do not apply"
    lines = [f"{title}:"]
    for split, facts in report["splits"].items():
        for kind in KINDS:
            if kind not in facts:
                continue
            counts, hours = facts[kind], facts["hours"].get(kind)
            line = f"  {split} {kind}: {counts['read']:,} read, {counts['kept']:,} kept, "
            line += f"{counts['set_aside']:,} set aside"
            if "published" in counts:
                line += f"; published {counts['published']:,}"
                line += "" if counts["agrees"] else " (DIFFERENT)"
            line += f"; {format_length(3600 * hours)}" if hours else "; no audio"
            lines.append(line)
        without_answer = facts.get("questions", {}).get("kept", 0) - facts.get("answerable", 0)
        if "answerable" in facts and without_answer:
            lines.append(
                f"    questions without an answer: {without_answer:,}; `evaluate` does not ask them"
            )
        for remark in facts["found"]:
            line = f"    {remark['what']}: {remark['count']:,}; {remark['done']}"
            if "such_as" in remark:
                line += f" (such as {remark['such_as'][0]})"
            lines.append(line)
        for reason, number in facts["set_aside"].items():
            lines.append(f"    {number:,} set aside: {reason}")
        if "answer_in_context" in facts:
            lines.append(
                f"    {facts['answer_in_context']:.1%} of the questions with an answer have one "
                "that occurs in what is read: the ceiling of spans"
            )
    lines += [f"  {split}: not in the source, left out" for split in report.get("absent", ())]
    return "\n".join(lines)
