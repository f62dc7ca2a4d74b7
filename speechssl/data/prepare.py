"""A published corpus becomes a prepared one: output folder, report, manifests, card. Every
`prepare_<corpus>` shares this.

Every passage and question that is read is either written or set aside with a reason: the report
(data_report.json) refuses to be written where kept and set aside do not make up those that were
read. Oddities of an item that is kept are remarked, with what was done about it. One whole WAV or
FLAC recording stays where it is; segments are joined and written as OUT/<split>/audio/*.flac. A
recording with a hole is not made: all that follows the hole would come too early.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate, groupby
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import CORPUS_RECORD, hash_files, read_json, stage, write_json, write_lines
from speechssl.audio import (
    SAMPLE_RATE,
    check_audio,
    format_length,
    header_duration,
    read_audio,
    read_native,
    resample,
    write_flac,
)
from speechssl.data.files import check_shards, files_below, manifest_path, safe_name
from speechssl.data.options import SpokenQA
from speechssl.data.records import (
    INVENTED,
    Passage,
    Question,
    check_question,
    data_hash,
    locate,
    write_records,
)
from speechssl.errors import InputError, count_set_aside
from speechssl.text import answer_tokens, language_of

Kind = Literal["passages", "questions"]
KINDS: tuple[Kind, ...] = ("passages", "questions")
# folder of a split for parts of work that may be killed; removed when its manifests are written
PARTS = "parts"
Done = tuple[str, str]  # what was found, and what was done about it
# remarks, and reasons why an item is set aside, of several corpora
NO_RECORDINGS = ("questions of a split without recordings", "text only unless --speak reads them")
RENAMED = ("ids that occur twice", "the later one has a number behind it")
EMPTY = ("empty answers", "left out")
BY_TEXT = ("answers whose offset does not match", "kept without it")
UNTIMED = "no times; scored by text only"
NO_QUESTION = "its question is empty and there is no recording of it"
NO_TEXT = "there is neither a recording nor a text of it"
NOT_FOUND = "its recording is not in the source"
UNUSABLE = "its recording cannot be used"
ITS_PASSAGE = "its passage is set aside"
STAYS = (".wav", ".flac")  # their headers state the length; that of an MP3 may be an estimate
FEW = 8  # recordings that are done sooner than other processes are there
# audio and seconds of a record, or why there is none: fields of set_aside.jsonl
Attached = tuple[str, float] | dict[str, Any]
Measured = tuple[Path, float | InputError]  # a recording, and its seconds or why it cannot be used
Interval = tuple[float, float]  # seconds
# seconds by which a time may lie beyond its recording, whose decoders differ; it then ends with it
SLACK = 0.1
NOT_RECORDED: Attached = {"reason": "it has no recording, and others have"}
K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class SplitRecords:
    """The records of one split. Paths of audio are absolute, or relative to the folder to be
    made."""

    passages: Sequence[Passage]
    questions: Sequence[Question]


@dataclass
class PrepareReport:
    """A report counts the items of one corpus. published: split -> kind -> the count that its paper
    or its owners state.

    first: how many passages of every split are wanted, None for all of them; see `slice`. invented:
    the corpus is a miniature, to which no published count applies.
    """

    corpus: str
    published: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    first: int | None = None
    invented: bool = False
    remarks: Counter[tuple[str, Done]] = field(default_factory=Counter)  # remarks on what was kept
    # the lines of set_aside.jsonl; one with a count is so many items
    aside: list[dict[str, Any]] = field(default_factory=list)
    read: Counter[tuple[str, Kind]] = field(default_factory=Counter)

    def count(self, split: str, kind: Kind, number: int = 1) -> None:
        """Count items that were read."""
        self.read[split, kind] += number

    def set_aside(self, split: str, kind: Kind, name: str, reason: str, **more: Any) -> None:
        """Set aside an item that is not written. more: further fields of its line in
        set_aside.jsonl."""
        self.aside.append({"split": split, "kind": kind, "id": name, "reason": reason, **more})

    def remark(self, split: str, what: str, done: str, number: int = 1) -> None:
        """Remark on something odd about an item that is kept. what: "answers without times"; done:
        "scored by text only"."""
        self.remarks[split, (what, done)] += number

    def unique_id(self, split: str, name: str, taken: Container[str]) -> str:
        """Return an id, or that with the first number behind it (ID#2, ...) that no other has."""
        unique, number = name, 2
        while unique in taken:
            unique = f"{name}#{number}"
            number += 1
        if unique != name:
            self.remark(split, *RENAMED)
        return unique

    def slice(self, split: str, passages: Iterable[T], questions: Mapping[T, int]) -> Collection[T]:
        """Choose the passages that are wanted: the first ones, in their order, that have questions.
        The rest is set aside, counted.

        questions: how many each passage has. All of them have been counted as read.
        """
        passages = list(passages)
        if self.first is None:
            return passages
        chosen = [p for p in passages if questions.get(p)][: self.first]
        beyond = sum(questions.values()) - sum(questions[p] for p in chosen)
        plural = "s" if self.first > 1 else ""
        reason = f"beyond the first {self.first} passage{plural} with questions (--passages)"
        for kind, number in zip(KINDS, (len(passages) - len(chosen), beyond), strict=True):
            if number:
                self.aside.append({"split": split, "kind": kind, "count": number, "reason": reason})
        return chosen

    def reasons(self, **where: str) -> Counter[str]:
        """Count the items that were set aside for each reason. where: split=..., kind=..."""
        counts: Counter[str] = Counter()
        for line in self.aside:
            if where.items() <= line.items():
                counts[line["reason"]] += line.get("count", 1)
        return counts

    def to_json(self, splits: Mapping[str, SplitRecords]) -> dict[str, Any]:
        """Return the content of data_report.json. splits: the records that are kept.

        Raises AssertionError where kept and set aside do not make up those that were read: a
        corpus's code lost something.
        """
        by_split: dict[str, dict[str, Any]] = {}
        for split in dict.fromkeys(split for split, _ in self.read):
            records = splits.get(split, SplitRecords((), ()))
            published = {} if self.invented else self.published.get(split, {})
            facts: dict[str, Any] = {"hours": {}}
            for kind in KINDS:
                items = getattr(records, kind)
                read, aside = self.read[split, kind], self.reasons(split=split, kind=kind).total()
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
            facts["found"] = [
                {"what": what, "count": number, "done": done}
                for (of_split, (what, done)), number in self.remarks.items()
                if of_split == split
            ]
            facts["set_aside"] = dict(self.reasons(split=split))
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
    """A take is the files of one recording in their order. missing: segments that should lie among
    them."""

    paths: tuple[Path, ...]
    missing: int = 0


def make_take(segments: Mapping[int, Path], first: int = 0) -> Take:
    """Make a recording of numbered segments. first: the number that the first of them has; a gap
    counts as missing."""
    missing = max(segments) + 1 - first - len(segments)
    return Take(tuple(segments[n] for n in sorted(segments)), missing)


def audio_name(split: str, kind: Kind, name: str) -> str:
    """Name the file of a recording below the corpus. A passage and a question may have one id."""
    return f"{split}/audio/{kind[0]}-{safe_name(name)}.flac"


def attach(
    split: str,
    kind: Kind,
    records: SplitRecords,
    attached: Mapping[str, Attached],
    report: PrepareReport,
) -> SplitRecords:
    """Attach audio to the passages or the questions, by id; return the records that have some.

    Those without are set aside, and with a passage its questions. Nothing changes where there is no
    audio at all.
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
    """Attach recordings, by the ids of passages and questions, which are written below `o.out`
    where they have to be joined or decoded; return the records with their audio."""
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
                jobs[record.id] = (o.out, audio_name(split, kind, record.id), take.paths)
        processes = o.workers if len(jobs) > FEW else 1
        attached |= run_parallel(_write_take, jobs, processes, f"{split} {kind}", "recording")
        records = attach(split, kind, records, attached, report)
    return records


def _write_take(out: Path, audio: str, paths: Sequence[Path]) -> Attached:
    """Join segments into one recording. audio: its path below the corpus, where it does not stay
    where it is."""
    try:
        if len(paths) == 1 and paths[0].suffix.lower() in STAYS:
            return str(paths[0].resolve()), header_duration(paths[0])
        return audio, write_joined(paths, out / audio).samples / SAMPLE_RATE
    except InputError as error:
        return {"reason": UNUSABLE, "why": str(error)}


# ---- recordings in pieces
#
# Pieces are decoded at their own rate and joined before they are resampled to 16 kHz: the beginning
# of a piece is the exact sum of the lengths before it. Pieces that are resampled (or cut into
# frames) one by one each gain or lose a little (fault 4 of the released DUAL code). Lengths are
# those of the decoded samples; the header of an MP3 may only guess.


@dataclass(frozen=True)
class Joined:
    """A joined recording knows where its pieces lie."""

    lengths: tuple[int, ...]  # (K,) samples of every piece, at its own rate
    rates: tuple[int, ...]  # (K,) Hz
    samples: int  # of the whole, at 16 kHz

    @cached_property
    def starts(self) -> tuple[Fraction, ...]:
        """The seconds before every piece, and of all, exactly; (K + 1,)."""
        return tuple(accumulate(map(Fraction, self.lengths, self.rates), initial=Fraction(0)))

    def length(self, piece: int) -> float:
        """Return the seconds of a piece."""
        return float(self.starts[piece + 1] - self.starts[piece])

    def move_to_whole(self, piece: int, seconds: float) -> float:
        """Move a time in a piece to the whole."""
        return float(self.starts[piece] + Fraction(seconds))


def join(pieces: Sequence[tuple[np.ndarray, int]]) -> tuple[np.ndarray, Joined]:
    """Join the pieces (at least one) one after another at 16 kHz: float32 (N,), and where they lie.

    Pieces of one rate are resampled as a whole. Where rates change there is one resampling for
    every run of one rate, and each run begins at the exact sum of the lengths before it, to the
    nearest sample: an error of half a sample that does not add up.
    """
    runs = [
        (rate, np.concatenate([samples for samples, _ in run]))
        for rate, run in groupby(pieces, key=lambda piece: piece[1])
    ]
    if len(runs) == 1:
        whole = resample(runs[0][1], runs[0][0], SAMPLE_RATE)
    else:
        seconds = [Fraction(len(samples), rate) for rate, samples in runs]
        ends = list(accumulate(seconds, initial=Fraction(0)))
        borders = [*(round(end * SAMPLE_RATE) for end in ends[:-1]), ceil(ends[-1] * SAMPLE_RATE)]
        whole = np.zeros(borders[-1], np.float32)
        for (rate, samples), start, end in zip(runs, borders, borders[1:], strict=False):
            # may end a sample before the next begins
            piece = resample(samples, rate, SAMPLE_RATE)[: end - start]
            whole[start : start + len(piece)] = piece
    lengths = tuple(len(samples) for samples, _ in pieces)
    return whole, Joined(lengths, tuple(rate for _, rate in pieces), len(whole))


def write_joined(paths: Sequence[Path], out: Path) -> Joined:
    """Join recordings into one FLAC; `out` with the suffix .json, written last, has where they lie.
    A file that is there is left alone.

    Raises InputError naming the recording that cannot be read, and where the whole is silent or
    shorter than `read_audio` takes.
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


def decoded_seconds(path: Path) -> float:
    """Return the seconds of a recording that `read_audio` takes. Raises InputError for another."""
    return len(read_audio(path)) / SAMPLE_RATE


def measure_recordings(paths: Mapping[K, Path], workers: int, what: str) -> dict[K, Measured]:
    """Decode recordings, to know their seconds."""
    jobs = {key: (path,) for key, path in paths.items()}
    seconds = run_parallel(partial(attempt, decoded_seconds), jobs, workers, what)
    return {key: (path, seconds[key]) for key, path in paths.items()}


def choose_audio(
    recording: Measured | None, text: str, textless: str, text_will_do: bool, out: Path
) -> Attached:
    """Choose the recording of an item, or its text where that will do: ("", 0); or say why there is
    neither. textless: the reason for one without a text either."""
    path, seconds = recording or (out, None)
    if isinstance(seconds, float):
        return manifest_path(path, out), seconds
    if text_will_do:
        return ("", 0.0) if text.strip() else {"reason": textless}
    if seconds is None:
        return {"reason": NOT_FOUND}
    return {"reason": UNUSABLE, "why": str(seconds)}


def clip_time(start: float | None, end: float | None, seconds: float) -> Interval | None:
    """Clip a released time to a recording of so many seconds; None for one that is not in it."""
    if start is None or end is None:
        return None
    fits = 0 <= start < min(end, seconds) and end <= seconds + SLACK
    return (start, min(end, seconds)) if fits else None


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

    settings: all that decides the content, beside the options; read: gives the records by split;
    about: entries of the card. Raises InputError where the folder holds something else, a question
    is none, none can be used, or as `read` does.
    """
    source = o.source.resolve()
    made_from = {"passages": o.passages, "speak": o.speak} | dict(settings)
    if o.speak:
        made_from |= {"seed": o.seed, "synthesiser": o.synthesiser}

    def make() -> dict[str, Any]:
        # a miniature says so in the title of its README
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
            for question in records.questions:
                check_question(question, passages, f"{source}, {split}, question {question.id}")
        card = {**about, "settings": made_from}
        return write_corpus(o.out, splits, report, card, o.synthesiser)

    return make_once(o.out, {"corpus": corpus, "source": str(source), **made_from}, make)


def stamp_files(files: Mapping[str, Path]) -> dict[str, str]:
    """Describe files so that a change is seen; a large one by its size."""
    stamps = {}
    for name, path in files.items():
        size = path.stat().st_size
        stamps[name] = hash_files([path]) if size < 1 << 28 else f"{size} bytes"
    return stamps


def split_files(
    source: Path, suffix: str, split_of: Callable[[Path], str], layout: str
) -> dict[str, Path]:
    """Find the files below a source, or the one that it is, by their splits. split_of: "" for a
    file of no split; layout: the expected files, for the error. Raises InputError where there are
    none, or two claim to be one split."""
    files: dict[str, Path] = {}
    paths = [path for _, path in files_below([source], suffix)] if source.is_dir() else [source]
    for path in paths:
        split = split_of(path) if path.is_file() else ""
        if split:
            check_shards(split, [files.setdefault(split, path), path])
    if not files:
        raise InputError(f"{source} has no file of this corpus; {layout}")
    return files


def make_once(
    out: Path, made_from: Mapping[str, Any], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Make the corpus in `out`, a stage, unless it is there and was made from the same; print its
    data report and return it. make: writes the corpus and returns the report."""
    with stage(out, made_from, record=CORPUS_RECORD, lasting=("unpacked", f"*/{PARTS}")) as step:
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
    if _refers_outside(out):
        print(f"{out}: its WAV and FLAC recordings stay where they are; prepare again if they move")
    untimed = sum(facts.get("answers_to_align", 0) for facts in report["splits"].values())
    if untimed:
        print(
            f"{out}: answers without times: {untimed:,}, on which DUAL cannot be trained; "
            f"give them times with `speechssl align {out} {out}-aligned`"
        )
    count_set_aside(count_set_aside_items(report))
    return report


def _refers_outside(out: Path) -> bool:
    """Tell whether the first passage of a split has its recording outside the corpus."""
    for path in out.glob("*/passages.jsonl"):
        with path.open(encoding="utf-8") as lines:
            if Path(json.loads(next(lines, "{}")).get("audio") or "").is_absolute():
                return True
    return False


def run_parallel(
    function: Callable[..., R],
    jobs: Mapping[K, tuple[Any, ...]],
    workers: int,
    what: str,
    unit: str = "file",
) -> dict[K, R]:
    """Call the function with the arguments of every key, in processes where there are several
    workers; return the results by key. what, unit: of the bar."""
    call = partial(_call_keyed, function)  # results come in any order: each brings its key along
    # spawned: a process with threads, as torch's and the progress bars' are, cannot be forked
    # safely
    with get_context("spawn").Pool(workers) if workers > 1 else nullcontext() as pool:
        results: Iterable[tuple[K, R]] = map(call, jobs.items())
        if pool:
            results = pool.imap_unordered(call, jobs.items(), chunksize=4)
        return dict(tqdm(results, what, len(jobs), unit=unit, disable=not jobs))


def _call_keyed(function: Callable[..., R], job: tuple[K, tuple[Any, ...]]) -> tuple[K, R]:
    return job[0], function(*job[1])


def attempt(function: Callable[..., R], *arguments: Any) -> R | InputError:
    """Call the function; return what it gives, or the InputError that it raises."""
    try:
        return function(*arguments)
    except InputError as error:
        return error


def _check_used(splits: Mapping[str, SplitRecords], report: PrepareReport, source: Path) -> None:
    """Raise InputError where nothing was read, or questions were and none of them can be used: the
    layout is another one."""
    questions = sum(number for (_, kind), number in report.read.items() if kind == "questions")
    for records in splits.values():
        if records.questions or (records.passages and not questions):
            return
    reasons = report.reasons(kind="questions").most_common(3)
    why = "; ".join(f"{number:,} x {reason}" for reason, number in reasons)
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

    about: entries of the card beside the corpus's name, such as its source and licence;
    synthesiser: of the records that are marked as synthetic. Returns the data report.
    """
    for split, records in splits.items():
        for kind in KINDS:
            write_records(out / split / f"{kind}.jsonl", getattr(records, kind))
    content = report.to_json(splits)
    write_lines(out / "set_aside.jsonl", report.aside)
    write_json(out / "data_report.json", content)
    card: dict[str, Any] = {"corpus": report.corpus, **about}
    synthetic = _synthetic_note(splits, report.invented, synthesiser)
    if synthetic:
        card["synthetic"] = synthetic
    card["manifests"] = {split: data_hash(out, split) for split in splits}
    write_json(out / "card.json", card)
    for split in splits:
        shutil.rmtree(out / split / PARTS, ignore_errors=True)
    return content


def _count_answers(records: SplitRecords) -> dict[str, Any]:
    """Count the answers that have times, and those that `speechssl align` could give some (of
    passages with a recording, where it is known which words they are), and the share of questions
    with an answer that occurs in the transcripts, else texts, in whole words (zh: characters)."""
    answerable = [q for q in records.questions if q.answers]
    if not answerable:
        return {}
    passages = {p.id: p for p in records.passages}
    timed = to_align = 0
    for q in answerable:
        passage, untimed = passages[q.passage], [a for a in q.answers if a.start is None]
        timed += len(untimed) < len(q.answers)
        if passage.audio:
            language = language_of(q.language)
            to_align += sum(locate(a, passage.written, language)[0] is not None for a in untimed)
    facts = {"answerable": len(answerable), "with_times": timed, "answers_to_align": to_align}
    if not any(p.written for p in records.passages):  # nobody knows what is said
        return facts

    def words(text: str, language: str) -> str:
        return f" {' '.join(answer_tokens(text, language, digits=False))} "

    texts = {p.id: words(p.transcript or p.text, p.language) for p in records.passages}
    found = 0
    for q in answerable:
        found += any(words(a.text, q.language) in texts[q.passage] for a in q.answers)
    return facts | {"answer_in_context": found / len(answerable)}


def _synthetic_note(splits: Mapping[str, SplitRecords], invented: bool, synthesiser: str) -> str:
    """Say how much of the audio was spoken by a synthesiser, or that all of the corpus is invented;
    "" where neither is so."""
    passages = [p for records in splits.values() for p in records.passages]
    questions = [q for records in splits.values() for q in records.questions]
    spoken = {
        "passages": (sum(p.synthetic for p in passages), len(passages)),
        "questions": (sum(q.synthetic for q in questions), len(questions)),
        "options": (
            sum(len(q.option_audio) for q in questions if q.synthetic),
            sum(len(q.options) for q in questions),
        ),
    }
    kinds = [f"{part:,} of {total:,} {kind}" for kind, (part, total) in spoken.items() if part]
    notes = []
    if invented:
        recorded = any(r.audio and not r.synthetic for r in (*passages, *questions))
        notes.append(INVENTED + (", its recordings spoken by espeak-ng" if recorded else ""))
    if kinds:
        *others, last = kinds
        listed = f"{', '.join(others)} and {last}" if others else last
        notes.append(f"{listed} spoken by {synthesiser}")
    return "; ".join(notes)


def count_set_aside_items(report: Mapping[str, Any]) -> int:
    """Count the items that a data report says were set aside, but for those that nobody asked for
    (--passages)."""
    total = 0
    for facts in report["splits"].values():
        for reason, number in facts["set_aside"].items():
            if not reason.endswith("(--passages)"):
                total += number
    return total


def format_report(report: Mapping[str, Any]) -> str:
    """Format a data report for people: a line a split and kind, then remarks and what was done."""
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
        for remark in facts["found"]:
            lines.append(f"    {remark['what']}: {remark['count']:,}; {remark['done']}")
        for reason, number in facts["set_aside"].items():
            lines.append(f"    {number:,} set aside: {reason}")
        if "answer_in_context" in facts:
            lines.append(
                f"    {facts['answer_in_context']:.1%} of the questions have an answer that occurs "
                "in what is read: the ceiling of spans"
            )
    lines += [f"  {split}: not in the source, left out" for split in report.get("absent", ())]
    return "\n".join(lines)
