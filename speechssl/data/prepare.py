"""From a published corpus to a prepared one: output folder, prepare report, manifests, card; what
every `prepare_<corpus>` shares.

Every passage and question that is read is either written or set aside with a reason: the report
(data_report.json) refuses to
be written where kept and set aside do not make up what was read. What is odd about an item that is
kept is remarked, with what was done about it. One whole WAV or FLAC recording stays where it is;
segments are joined and written as OUT/<split>/audio/*.flac. A recording with a hole is not made:
all that follows the hole would come too early.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, TypeVar

from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, duration
from speechssl.data.files import archives_in, safe_name, write_joined
from speechssl.data.records import (
    INVENTED,
    Passage,
    Question,
    check_question,
    data_hash,
    locate,
    write_records,
)
from speechssl.errors import InputError
from speechssl.io import CORPUS_RECORD, hash_files, read_json, stage, write_json, write_lines
from speechssl.text import answer_tokens, language_of
from speechssl.timing import shown_length

Kind = Literal["passages", "questions"]
KINDS: tuple[Kind, ...] = ("passages", "questions")
# folder of a split for parts of work that may be killed; removed when its manifests are written
PARTS = "parts"
Done = tuple[str, str]  # what was found, and what was done about it
# what NMSQA and SLUE-SQA-5 have in common: remarks, and reasons why an item is set aside
NO_RECORDINGS = (
    "questions of a split without recordings",
    "text only unless --speak reads them; times are kept as released, in released_times.json",
)
RENAMED = ("questions with the id of another question", "kept, a number added to the id")
REPEATED = ("answers that repeat another of their question", "kept once")
EMPTY = ("empty answers", "left out")
TWICE = "it repeats another row"
UNTIMED = "no times; scored by text only"
NO_QUESTION = "its question is empty and there is no recording of it"
NO_TEXT = "there is neither a recording nor a text of it"
NOT_FOUND = "its recording is not in the source"
UNUSABLE = "its recording cannot be used"
STAYS = (".wav", ".flac")  # their headers state the length; that of an MP3 may be an estimate
FEW = 8  # recordings that are done sooner than other processes are there
# audio and seconds of a record, or why there is none: fields of set_aside.jsonl
Attached = tuple[str, float] | dict[str, Any]
NOT_RECORDED: Attached = {"reason": "it has no recording, and others have"}
K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class Wanted:
    """What is to be made of a source, whichever corpus it is: the options that all corpora
    share."""

    speak: bool = False  # synthesise what has no recording (needs speechssl[synth])
    synthesiser: str = "espeak-ng"  # of `speak`
    seed: int = 0  # of the voices of `speak`
    workers: int = 1  # processes; the bytes do not depend on it
    audio: bool = True  # take the recordings that lie there, where the corpus has --no-audio
    passages: int | None = None  # make only so many of every split, those with questions; None: all

    @property
    def settings(self) -> dict[str, Any]:
        """What of it decides the content, as settings.json has it. `audio` is seen by the
        recordings that were taken."""
        settings: dict[str, Any] = {"speak": self.speak} | (
            {"seed": self.seed} if self.speak else {}
        )
        settings |= (
            {"synthesiser": self.synthesiser}
            if self.speak and self.synthesiser != "espeak-ng"
            else {}
        )
        return settings | ({} if self.passages is None else {"passages": self.passages})


@dataclass(frozen=True)
class SplitRecords:
    """The records of one split. Paths of audio are absolute, or relative to the folder to be
    made."""

    passages: Sequence[Passage]
    questions: Sequence[Question]


@dataclass
class PrepareReport:
    """Of one corpus. published: split -> kind -> the count that its paper or its owners state.

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
        """Items that were read."""
        self.read[split, kind] += number

    def set_aside(self, split: str, kind: Kind, name: str, reason: str, **more: Any) -> None:
        """An item that is not written. more: further fields of its line in set_aside.jsonl."""
        self.aside.append({"split": split, "kind": kind, "id": name, "reason": reason, **more})

    def remark(self, split: str, what: str, done: str, number: int = 1) -> None:
        """Something odd about an item that is kept. what: "answers without times"; done: "scored by
        text only"."""
        self.remarks[split, (what, done)] += number

    def compare(self, split: str, what: str, published: int, number: int, done: str = "") -> None:
        """A remark that holds a count against the published one, where that applies. done: what was
        done about it."""
        compared = (
            ""
            if self.invented
            else (f"published {published:,}") + ("" if number == published else " (DIFFERENT)")
        )
        if text := f"{done} ({compared})" if done and compared else done or compared:
            self.remark(split, what, text, number)

    def slice(self, split: str, passages: Iterable[T], questions: Mapping[T, int]) -> Collection[T]:
        """The passages that are wanted: the first ones, in their order, that have questions. The
        rest is set aside, counted.

        questions: how many each passage has. All of them have been counted as read.
        """
        passages = list(passages)
        if self.first is None:
            return passages
        chosen = [p for p in passages if questions.get(p)][: self.first]
        beyond = sum(questions.values()) - sum(questions[p] for p in chosen)
        for kind, number in zip(KINDS, (len(passages) - len(chosen), beyond), strict=True):
            if number:
                reason = (
                    f"beyond the first {self.first} passage{'s' * (self.first > 1)} with "
                    "questions (--passages)"
                )
                self.aside.append({"split": split, "kind": kind, "count": number, "reason": reason})
        return chosen

    def reasons(self, **where: str) -> Counter[str]:
        """Why items were set aside, and how many for each reason. where: split=..., kind=..."""
        counts: Counter[str] = Counter()
        for line in self.aside:
            if where.items() <= line.items():
                counts[line["reason"]] += line.get("count", 1)
        return counts

    def to_json(self, splits: Mapping[str, SplitRecords]) -> dict[str, Any]:
        """The content of data_report.json. splits: what is kept.

        Raises AssertionError where kept and set aside do not make up what was read: a corpus's code
        lost something.
        """
        by_split: dict[str, dict[str, Any]] = {}
        for split in dict.fromkeys(split for split, _ in self.read):
            records, facts = splits.get(split, SplitRecords((), ())), dict[str, Any]()
            for kind in KINDS:
                published = None if self.invented else self.published.get(split, {}).get(kind)
                read, kept = self.read[split, kind], len(getattr(records, kind))
                if not read and published is None:
                    continue
                aside = self.reasons(split=split, kind=kind).total()
                assert kept + aside == read, (
                    f"{self.corpus}, {split}: of {read} {kind} {kept} "
                    f"were kept and {aside} set aside"
                )
                facts[kind] = {"read": read, "kept": kept, "set_aside": aside}
                if published is not None:
                    facts[kind] |= {"published": published, "agrees": read == published}
            hours = {
                kind: round(sum(i.seconds for i in getattr(records, kind)) / 3600, 4)
                for kind in KINDS
            }
            facts["hours"] = hours if split in splits else {}
            facts["found"] = [
                {"what": w, "count": n, "done": d}
                for (s, (w, d)), n in self.remarks.items()
                if s == split
            ]
            facts["set_aside"] = dict(self.reasons(split=split))
            by_split[split] = facts | _answerable(records)
        identity = {"corpus": self.corpus} | ({"invented": True} if self.invented else {})
        return identity | {
            "splits": by_split,
            "absent": [s for s in self.published if s not in by_split],
        }


# ---- recordings of a corpus of texts


@dataclass(frozen=True)
class Take:
    """The files of one recording in their order. missing: segments that should lie among them."""

    paths: tuple[Path, ...]
    missing: int = 0


def take_of(segments: Mapping[int, Path], first: int = 0) -> Take:
    """A recording of numbered segments. first: the number that the first of them has; a gap counts
    as missing."""
    return Take(
        tuple(segments[n] for n in sorted(segments)), max(segments) + 1 - first - len(segments)
    )


def audio_name(split: str, kind: Kind, name: str) -> str:
    """Where a recording is written, below the corpus. A passage and a question may have one id."""
    return f"{split}/audio/{kind[0]}-{safe_name(name)}.flac"


def damaged(error: InputError) -> Attached:
    return {"reason": "its recording is damaged", "why": str(error)}


def attach(
    split: str,
    kind: Kind,
    records: SplitRecords,
    attached: Mapping[str, Attached],
    report: PrepareReport,
) -> SplitRecords:
    """The records with the audio of their passages or questions, by id.

    Where any has some, those without are set aside, and with a passage its questions.
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
    for question in (q for q in records.questions if q.passage not in passage_ids):
        report.set_aside(split, "questions", question.id, "its passage is set aside")
    return SplitRecords(with_audio, [q for q in records.questions if q.passage in passage_ids])


@dataclass(frozen=True)
class Takes:
    """Files: by the ids of passages and of questions. Empty: no recordings of that kind at all.

    unused: recordings that lie there and are of nothing that was read.
    """

    passages: Mapping[str, Take] = field(default_factory=dict)
    questions: Mapping[str, Take] = field(default_factory=dict)
    unused: int = 0

    def attach(
        self, out: Path, split: str, records: SplitRecords, report: PrepareReport, workers: int
    ) -> SplitRecords:
        """The records with their audio, which is written below `out` where it has to be joined or
        decoded."""
        if self.unused:
            sliced = " of the slice" if report.first is not None else ""
            report.remark(
                split, f"recordings of no passage or question{sliced}", "not used", self.unused
            )
        for kind in KINDS:
            takes: Mapping[str, Take] = getattr(self, kind)
            used = {r.id: takes[r.id] for r in getattr(records, kind) if r.id in takes}
            reason = "segments of its recording are missing"
            attached: dict[str, Attached] = {
                i: {"reason": reason, "missing": t.missing} for i, t in used.items() if t.missing
            }
            jobs = {
                i: (out, audio_name(split, kind, i), t.paths)
                for i, t in used.items()
                if not t.missing
            }
            attached |= in_parallel(
                _take_job, jobs, workers if len(jobs) > FEW else 1, f"{split} {kind}", "recording"
            )
            records = attach(split, kind, records, attached, report)
        return records


def _take_job(out: Path, audio: str, paths: Sequence[Path]) -> Attached:
    """The recording of these segments. audio: its path below the corpus, where it does not stay
    where it is."""
    try:
        if len(paths) == 1 and paths[0].suffix.lower() in STAYS:
            return str(paths[0].resolve()), duration(paths[0])
        return audio, write_joined(paths, out / audio).samples / SAMPLE_RATE
    except InputError as error:
        return damaged(error)


# ---- a corpus

# out, split, its records, report, processes -> the records with their audio, which is written below
# `out` where it has to be
Attach = Callable[[Path, str, SplitRecords, "PrepareReport", int], SplitRecords]


def prepared(
    corpus: str,
    source: Path,
    out: Path | str,
    wanted: Wanted,
    settings: Mapping[str, Any],
    read: Callable[[PrepareReport], Mapping[str, SplitRecords]],
    published: Mapping[str, Mapping[str, int]],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """The data report of the corpus in `out`, a stage, which is made unless it was finished with
    these settings.

    source: absolute; settings: what decides the content, beside `wanted`; read: gives the records
    by split; about: entries of the card. Raises InputError where the folder holds something else,
    or what `read` raises.
    """
    out = Path(out)
    made_from = {"corpus": corpus, "source": str(source), **wanted.settings, **settings}
    with stage(out, made_from, record=CORPUS_RECORD, lasting=("unpacked", f"*/{PARTS}")) as step:
        if step.done:
            tqdm.write(
                f"{out} holds this corpus already, from the same files; it is left as it is",
                file=sys.stderr,
            )
            return dict(read_json(out / "data_report.json"))
        # of `prepare miniature` says so in its title
        readme = (source if source.is_dir() else source.parent) / "README.md"
        title = (
            readme.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
            if readme.is_file()
            else ""
        )
        report = PrepareReport(corpus, published, wanted.passages, INVENTED in title)
        return write_corpus(out, read(report), report, about, wanted)


def prepared_texts(
    corpus: str,
    source: Path,
    out: Path | str,
    wanted: Wanted,
    files: Mapping[str, Path],
    read: Callable[[PrepareReport], Mapping[str, tuple[SplitRecords, Attach]]],
    layout: str,
    published: Mapping[str, Mapping[str, int]],
    about: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """As `prepared`, of a corpus of texts beside which there may be recordings.

    files: name -> file that decides the content; read: gives by split its records, and what
    attaches their recordings; layout: what is expected; options: what else decides the content.
    Raises InputError where there are no files, too.
    """
    if not files:
        raise InputError(f"{source} has no file of this corpus; {layout}")
    # a large file is known by its size: enough to see that it is another
    stamps = {
        n: hash_files([p]) if p.stat().st_size < 1 << 28 else (f"{p.stat().st_size} bytes")
        for n, p in files.items()
    }
    settings = {"files": stamps, **options}

    def attached(report: PrepareReport) -> dict[str, SplitRecords]:
        texts = read(report)
        check_used({split: records for split, (records, _) in texts.items()}, report, source)
        if not options.get("recordings") and (
            packed := [path.name for path in archives_in(source)]
        ):
            # the published ones of recordings are to be unpacked first
            what = f"archives that are packed ({', '.join(packed)})"
            for split in texts:
                report.remark(split, what, "not read; unpack those of recordings", len(packed))
        splits = {
            s: attach(Path(out), s, records, report, wanted.workers)
            for s, (records, attach) in texts.items()
        }
        for split, records in splits.items():
            for kind in KINDS:
                if not wanted.speak and (
                    number := sum(not item.audio for item in getattr(records, kind))
                ):
                    report.remark(split, f"{kind} without recordings", "text only", number)
        return splits

    facts = {
        "files": {name: path.name for name, path in files.items()},
        "settings": {**wanted.settings, **settings},
    }
    return prepared(corpus, source, out, wanted, settings, attached, published, {**about, **facts})


def checked_source(source: Path | str, layout: str) -> Path:
    """The source, absolute. layout: what is expected. Raises InputError where nothing is there."""
    if not Path(source).exists():
        raise InputError(f"{source} does not exist; {layout}")
    return Path(source).resolve()


def unique_id(name: str, taken: Container[str]) -> str:
    """An id, or that with the first number behind it (ID#2, ...) that no other has."""
    return (
        name
        if name not in taken
        else next(i for n in count(2) if (i := f"{name}#{n}") not in taken)
    )


def in_parallel(
    function: Callable[..., R],
    jobs: Mapping[K, tuple[Any, ...]],
    workers: int,
    what: str,
    unit: str = "file",
) -> dict[K, R]:
    """Key -> what the function gives for its arguments, in processes where there are several
    workers. what, unit: of the bar."""
    call = partial(_keyed, function)  # results come in any order, so each brings its key along
    # spawned: a process with threads, as torch's and the progress bars' are, cannot be forked
    # safely
    with get_context("spawn").Pool(workers) if workers > 1 else nullcontext() as pool:
        results = (
            pool.imap_unordered(call, jobs.items(), chunksize=4)
            if pool
            else map(call, jobs.items())
        )
        return dict(tqdm(results, what, len(jobs), unit=unit, disable=not jobs))


def _keyed(function: Callable[..., R], job: tuple[K, tuple[Any, ...]]) -> tuple[K, R]:
    return job[0], function(*job[1])


def attempt(function: Callable[..., R], *arguments: Any) -> R | InputError:
    """What the function gives, or the InputError that it raises."""
    try:
        return function(*arguments)
    except InputError as error:
        return error


def check_used(
    splits: Mapping[str, SplitRecords], report: PrepareReport, source: Path | str
) -> None:
    """Raises InputError where nothing was read, or questions were and none of them can be used: the
    layout is another one.

    Questions that are there and empty do not speak of another layout: they are set aside and
    reported.
    """
    if any(records.questions for records in splits.values()):
        return
    questions = sum(number for (_, kind), number in report.read.items() if kind == "questions")
    if not questions and any(records.passages for records in splits.values()):
        return
    reasons = report.reasons(kind="questions")
    if any(reason.startswith("empty") for reason in reasons):
        return
    why = "; ".join(f"{number:,} x {reason}" for reason, number in reasons.most_common(3)) or (
        "its files are empty"
    )
    raise InputError(
        f"{source} has no usable question of {report.corpus} ({why}); give the published files"
    )


def write_corpus(
    out: Path,
    splits: Mapping[str, SplitRecords],
    report: PrepareReport,
    about: Mapping[str, Any],
    wanted: Wanted = Wanted(),
) -> dict[str, Any]:
    """Synthesise what has no audio (--speak), write the manifests, then set_aside.jsonl,
    data_report.json and card.json.

    about: entries of the card beside the corpus's name, such as its source and licence. Returns the
    data report. Raises InputError for a question that `load_corpus` would refuse.
    """
    if wanted.speak:
        from speechssl.synth.speak import speak_drafts

        splits = speak_drafts(out, splits, report, wanted.seed, wanted.workers, wanted.synthesiser)
    for split, records in splits.items():
        passages = {p.id: p for p in records.passages}
        for question in records.questions:
            check_question(
                question, passages, f"the question {question.id} of {report.corpus} ({split})"
            )
        for kind in KINDS:
            write_records(out / split / f"{kind}.jsonl", getattr(records, kind))
    content = report.to_json(splits)
    write_lines(out / "set_aside.jsonl", report.aside)
    write_json(out / "data_report.json", content)
    manifests = {split: data_hash(out, split) for split in splits}
    synthetic = _synthetic(splits, report.invented, wanted.synthesiser)
    write_json(
        out / "card.json", {"corpus": report.corpus, **about, **synthetic, "manifests": manifests}
    )
    for split in splits:
        shutil.rmtree(out / split / PARTS, ignore_errors=True)
    return content


def _answerable(records: SplitRecords) -> dict[str, Any]:
    """How many answers have times, how many `speechssl align` could give some (of passages with a
    recording, where it is known which words they are), and the share of questions with an answer
    that occurs in what is read: transcripts, else texts.

    In whole words (zh: characters), and as a string of letters, which "art" is in "part".
    """
    answerable = [q for q in records.questions if q.answers]
    if not answerable:
        return {}

    def in_words(text: str, language: str) -> str:
        return f" {' '.join(answer_tokens(text, language, digits=False))} "

    def share(original: bool, normalise: Callable[[str, str], str]) -> float:
        texts = {
            p.id: normalise(p.text if original else p.transcript or p.text, p.language)
            for p in records.passages
        }
        return sum(
            any(normalise(a.text, q.language) in texts[q.passage] for a in q.answers)
            for q in answerable
        ) / len(answerable)

    timed = sum(any(a.start is not None for a in q.answers) for q in answerable)
    facts: dict[str, Any] = {"answerable": len(answerable), "with_times": timed}
    passages = {p.id: p for p in records.passages if p.audio}
    pairs = [(q, passages[q.passage]) for q in answerable if q.passage in passages]
    facts["answers_to_align"] = sum(
        a.start is None and locate(a, p.written, language_of(q.language))[0] is not None
        for q, p in pairs
        for a in q.answers
    )
    if any(p.written for p in records.passages):  # else nobody knows what is said
        facts["answer_in_context"] = share(False, in_words)
        facts["answer_in_letters"] = share(False, lambda text, _: " ".join(text.casefold().split()))
    if any(p.transcript and p.text for p in records.passages):
        facts["answer_in_original"] = share(True, in_words)
    return facts


def _synthetic(
    splits: Mapping[str, SplitRecords], invented: bool, synthesiser: str
) -> dict[str, Any]:
    """An entry of the card where any audio was spoken by a synthesiser, and of what; or where all
    of the corpus is invented."""
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
    listed = ", ".join(kinds[:-1]) + " and " * (len(kinds) > 1) + "".join(kinds[-1:])
    recorded = any(p.audio and not p.synthetic for p in passages) or any(
        q.audio and not q.synthetic for q in questions
    )
    miniature = INVENTED + ", its recordings spoken by espeak-ng" * recorded
    notes = [miniature] * invented + [f"{listed} spoken by {synthesiser}"] * bool(kinds)
    return {"synthetic": "; ".join(notes)} if notes else {}


def aside_in(report: Mapping[str, Any]) -> int:
    """How many items a data report says were set aside, but for those that nobody asked for
    (--passages)."""
    reasons = [item for facts in report["splits"].values() for item in facts["set_aside"].items()]
    return sum(number for reason, number in reasons if not reason.endswith("(--passages)"))


def alignment_advice(report: Mapping[str, Any], out: Path) -> str:
    """What to do about answers without times in a corpus, in one sentence; "" where nothing can be
    done."""
    number = sum(facts.get("answers_to_align", 0) for facts in report["splits"].values())
    subject = "1 answer has" if number == 1 else f"{number:,} answers have"
    advice = f"give them times with `speechssl align {out} {out}-aligned`"
    return (
        (f"{out}: {subject} no times, so DUAL cannot be trained on them; {advice}")
        if number
        else ""
    )


def described(report: Mapping[str, Any]) -> str:
    """A data report for people: a line a split and kind, then what was found and what was done with
    it."""
    lines = [
        f"{report['corpus']}"
        + (f", {INVENTED} of it, to which published counts do not apply")
        * report.get("invented", False)
        + ":"
    ]
    for split, facts in report["splits"].items():
        for kind in (kind for kind in KINDS if kind in facts):
            counts, hours = facts[kind], facts["hours"].get(kind)
            text = (
                f"{counts['read']:,} read, {counts['kept']:,} kept, {counts['set_aside']:,} "
                "set aside"
            )
            if "published" in counts:
                text += (f"; published {counts['published']:,}") + (
                    "" if counts["agrees"] else " (DIFFERENT)"
                )
            lines.append(
                f"  {split} {kind}: {text}"
                + (f"; {shown_length(3600 * hours)}" if hours else "; no audio")
            )
        lines += [f"    {f['what']}: {f['count']:,}; {f['done']}" for f in facts["found"]]
        lines += [
            f"    {number:,} set aside: {reason}" for reason, number in facts["set_aside"].items()
        ]
        if (ceiling := facts.get("answer_in_context")) is not None:
            letters = (
                (f" ({facts['answer_in_letters']:.1%} as a string of letters)")
                if "answer_in_letters" in facts
                else ""
            )
            lines.append(
                f"    {ceiling:.1%} of the questions have an answer that occurs in what is "
                f"read{letters}: the ceiling of spans"
            )
    lines += [f"  {split}: not in the source, left out" for split in report.get("absent", ())]
    return "\n".join(lines)
