"""From what a loader read to a prepared corpus: manifests, card, data report and set_aside.jsonl, whole or not at all."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, TypeVar

from tqdm import tqdm

from speechssl.data.records import INVENTED, Passage, Question, write_records
from speechssl.errors import InputError
from speechssl.io import hash_files, read_json, write_json, write_text
from speechssl.text import answer_tokens

# The folder of a corpus while it is made: begun, gone on with, left alone when finished, removed where nothing came of it.


@contextmanager
def claimed(out: Path, corpus: str, source: Path, **settings: Any) -> Iterator[dict[str, Any] | None]:
    """Gives the data report of a folder that was finished with these settings, else None: it is to be made.

    A folder that is begun here is removed (one that was empty: emptied) again on InputError, except where archives were unpacked
    into it.
    """
    empty = out.is_dir() and not any(out.iterdir())
    fresh = empty or not out.exists()
    begin(out, corpus, source, **settings)
    report = _finished(out)
    if report is not None:
        yield report
        return
    try:
        yield None
    except InputError:
        if fresh and not (out / "unpacked").exists():
            shutil.rmtree(out)
            if empty:
                out.mkdir()
        raise


def _finished(out: Path) -> dict[str, Any] | None:
    """The data report of a folder that was begun with these settings and is whole, which is said; else None."""
    if not (out / "card.json").is_file():
        return None
    tqdm.write(f"{out} holds this corpus already, from the same files; it is left as it is", file=sys.stderr)
    return dict(read_json(out / "data_report.json"))


# What the corpora that are made here share: a folder of one set of settings, work in parallel, manifests whole or not at all.

R = TypeVar("R")


def claim_settings(out: Path, wanted: dict[str, Any], name: str) -> None:
    """Begin a folder, or go on with one of the same settings. name: of the corpus, as it is written.

    Raises InputError for a folder that was begun with other settings or holds something else.
    """
    begun = out / "settings.json"
    if begun.is_file():
        if read_json(begun) != json.loads(json.dumps(wanted)):
            raise InputError(f"{out} holds the {name} corpus made with other settings (see {begun}); choose another folder")
    elif out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} is not empty and not the {name} corpus; choose another folder")
    else:
        write_json(begun, wanted)


def in_parallel(function: Callable[..., R], jobs: Sequence[tuple[Any, ...]], workers: int) -> Iterable[R]:
    """What the function gives for every job, in processes where there are several workers; in no certain order."""
    if workers <= 1:
        yield from map(function, jobs)
        return
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(function, jobs, chunksize=4)


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """A manifest, one record a line."""
    write_text(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))


# What was read of a corpus, what was kept of it, and why the rest was set aside: nothing is dropped in silence.
#
# Every item that is read is either kept or set aside with a reason, and `Ledger.report` refuses to be written where that does
# not add
# up. What is odd about items that are kept (an answer without times, offsets that do not match) is remarked, with what was done.

Kind = Literal["passages", "questions"]
KINDS: tuple[Kind, ...] = ("passages", "questions")
T = TypeVar("T", bound=Hashable)
Done = tuple[str, str]  # what was found, and what was done about it


@dataclass
class Ledger:
    """Of one corpus. published: split -> kind -> the count that its paper or its owners state.

    first: how many passages of every split are wanted, None for all of them; see `slice`. invented: the corpus is a miniature, to
    which no published count applies.
    """

    corpus: str
    published: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    first: int | None = None
    invented: bool = False
    kept: Counter[tuple[str, Kind]] = field(default_factory=Counter)
    found: Counter[tuple[str, Done]] = field(default_factory=Counter)  # remarks on what was kept
    aside: list[dict[str, Any]] = field(default_factory=list)  # the lines of set_aside.jsonl; one with a count is so many items
    read: Counter[tuple[str, Kind]] = field(default_factory=Counter)

    def count(self, split: str, kind: Kind, number: int = 1) -> None:
        """Items that were read."""
        self.read[split, kind] += number

    def keep(self, split: str, kind: Kind, number: int = 1) -> None:
        """Items that are written."""
        self.kept[split, kind] += number

    def set_aside(self, split: str, kind: Kind, name: str, reason: str, **more: Any) -> None:
        """An item that is not written. more: what else its line of set_aside.jsonl says."""
        self.aside.append({"split": split, "kind": kind, "id": name, "reason": reason, **more})

    def slice(self, split: str, passages: Iterable[T], questions: Mapping[T, int]) -> Collection[T]:
        """The passages that are wanted: the first ones, in their order, that have questions. The rest is set aside, counted.

        questions: how many each passage has. All of them have been counted as read.
        """
        passages = list(passages)
        if self.first is None:
            return passages
        wanted = [p for p in passages if questions.get(p)][: self.first]
        asked = sum(questions.values()) - sum(questions[p] for p in wanted)
        for kind, number in zip(KINDS, (len(passages) - len(wanted), asked), strict=True):
            if number:
                reason = f"beyond the first {self.first} passage{'s' * (self.first > 1)} with questions (--passages)"
                self.aside.append({"split": split, "kind": kind, "count": number, "reason": reason})
        return wanted

    def remark(self, split: str, what: str, done: str, number: int = 1) -> None:
        """Something odd about an item. what: "answers without times"; done: "scored by text only"."""
        self.found[split, (what, done)] += number

    def compare(self, split: str, what: str, published: int, number: int, done: str = "") -> None:
        """A remark that holds a count against the published one, where that applies. done: what was done about it."""
        told = "" if self.invented else f"published {published:,}" + ("" if number == published else " (DIFFERENT)")
        if said := f"{done} ({told})" if done and told else done or told:
            self.remark(split, what, said, number)

    def report(self, hours: Mapping[str, Mapping[str, float]], more: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The content of data_report.json. hours: split -> kind -> hours of speech; more: split -> further facts.

        Raises AssertionError where kept and set aside do not make up what was read: a loader lost something.
        """
        splits = list(dict.fromkeys(split for split, _ in self.read))
        counted = {s: self._split(s, hours.get(s, {}), more.get(s, {})) for s in splits}
        known = {"corpus": self.corpus} | ({"invented": True} if self.invented else {})
        return known | {"splits": counted, "absent": [s for s in self.published if s not in counted]}

    def _split(self, split: str, hours: Mapping[str, float], more: Mapping[str, Any]) -> dict[str, Any]:
        counted: dict[str, Any] = {kind: self._counts(split, kind) for kind in KINDS if self._counted(split, kind)}
        remarks = [{"what": w, "count": n, "done": d} for (s, (w, d)), n in self.found.items() if s == split]
        reasons: Counter[str] = Counter()
        for line in (line for line in self.aside if line["split"] == split):
            reasons[line["reason"]] += line.get("count", 1)
        return {**counted, "hours": dict(hours), "found": remarks, "set_aside": dict(reasons), **more}

    def _counted(self, split: str, kind: Kind) -> bool:
        """Whether there is any, or should be."""
        return bool(self.read[split, kind]) or (not self.invented and kind in self.published.get(split, {}))

    def _counts(self, split: str, kind: Kind) -> dict[str, Any]:
        read, kept = self.read[split, kind], self.kept[split, kind]
        aside = sum(line.get("count", 1) for line in self.aside if line["split"] == split and line["kind"] == kind)
        assert kept + aside == read, f"{self.corpus}, {split}: of {read} {kind} {kept} were kept and {aside} set aside"
        found: dict[str, Any] = {"read": read, "kept": kept, "set_aside": aside}
        published = None if self.invented else self.published.get(split, {}).get(kind)
        return found if published is None else found | {"published": published, "agrees": read == published}


def is_invented(source: Path) -> bool:
    """Whether a folder, or that of a file, is a tree of `speechssl prepare miniature`, whose README says what it is not."""
    readme = (source if source.is_dir() else source.parent) / "README.md"
    return readme.is_file() and INVENTED in readme.read_text(encoding="utf-8", errors="replace").partition("\n")[0]


def described(report: Mapping[str, Any]) -> str:
    """A data report for people: a line a split and kind, then what was found and what was done with it."""
    lines = [
        f"{report['corpus']}" + f", {INVENTED} of it, to which published counts do not apply" * report.get("invented", False) + ":"
    ]
    for split, facts in report["splits"].items():
        lines += [f"  {split} {kind}: {_counts(facts[kind], facts['hours'].get(kind))}" for kind in KINDS if kind in facts]
        lines += [f"    {f['what']}: {f['count']:,}; {f['done']}" for f in facts["found"]]
        lines += [f"    {number:,} set aside: {reason}" for reason, number in facts["set_aside"].items()]
        if (ceiling := facts.get("answer_in_context")) is not None:
            letters = f" ({facts['answer_in_letters']:.1%} as a string of letters)" if "answer_in_letters" in facts else ""
            lines.append(
                f"    {ceiling:.1%} of the questions have an answer that occurs in what is read{letters}: the ceiling of spans"
            )
    lines += [f"  {split}: not in the source, left out" for split in report.get("absent", ())]
    return "\n".join(lines)


def _counts(counts: Mapping[str, Any], hours: float | None) -> str:
    text = f"{counts['read']:,} read, {counts['kept']:,} kept, {counts['set_aside']:,} set aside"
    if "published" in counts:
        text += f"; published {counts['published']:,}" + ("" if counts["agrees"] else " (DIFFERENT)")
    return text + (f"; {hours:.2f} h" if hours else "; no audio")


PARTS = "parts"  # folder of a split in which work that may be killed is written down until the manifests are


@dataclass(frozen=True)
class Draft:
    """One split as a loader leaves it. Paths of audio are absolute, or relative to the folder to be made."""

    passages: Sequence[Passage]
    questions: Sequence[Question]


def begin(out: Path, corpus: str, source: Path | str, **settings: Any) -> None:
    """Claim the folder before anything is written into it. Raises InputError where it holds something else."""
    claim_settings(out, {"corpus": corpus, "source": str(source), **settings}, corpus)


def check_used(drafts: Mapping[str, Draft], ledger: Ledger, source: Path | str) -> None:
    """Raises InputError where nothing was read, or questions were and none of them can be used: the layout is another one.

    Questions that are there and empty are no matter of layout: they are set aside and told.
    """
    if any(draft.questions for draft in drafts.values()):
        return
    asked = sum(number for (_, kind), number in ledger.read.items() if kind == "questions")
    if not asked and any(draft.passages for draft in drafts.values()):
        return
    reasons: Counter[str] = Counter()
    for line in (line for line in ledger.aside if line["kind"] == "questions"):
        reasons[line["reason"]] += line.get("count", 1)
    if any(reason.startswith("empty") for reason in reasons):
        return
    why = "; ".join(f"{number:,} x {reason}" for reason, number in reasons.most_common(3)) or "its files are empty"
    raise InputError(f"{source} holds no question of {ledger.corpus} that can be used ({why}); give the published files")


def finish(out: Path, drafts: Mapping[str, Draft], ledger: Ledger, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifests, then set_aside.jsonl, data_report.json and card.json; returns the report.

    about: what the card says beside the corpus's name, such as its source and licence. What is kept is counted here.
    """
    for split, draft in drafts.items():
        ledger.keep(split, "passages", len(draft.passages))
        ledger.keep(split, "questions", len(draft.questions))
        write_records(out / split / "passages.jsonl", draft.passages)
        write_records(out / split / "questions.jsonl", draft.questions)
    hours = {split: _hours(draft) for split, draft in drafts.items()}
    report = ledger.report(hours, {split: _facts(draft) for split, draft in drafts.items()})
    write_lines(out / "set_aside.jsonl", ledger.aside)
    write_json(out / "data_report.json", report)
    manifests = hash_files(sorted(out.glob("*/*.jsonl")))
    write_json(out / "card.json", {"corpus": ledger.corpus, **about, **_synthetic(drafts, ledger.invented), "manifests": manifests})
    for split in drafts:
        shutil.rmtree(out / split / PARTS, ignore_errors=True)
    return report


def _hours(draft: Draft) -> dict[str, float]:
    seconds = {"passages": sum(p.seconds for p in draft.passages), "questions": sum(q.seconds for q in draft.questions)}
    return {kind: round(total / 3600, 4) for kind, total in seconds.items()}


def _facts(draft: Draft) -> dict[str, Any]:
    """Answers that are times, and the share of questions with an answer that occurs in what is read: transcripts, else texts.

    In whole words (zh: characters), and as a string of letters, which "art" is in "part".
    """
    answerable = [q for q in draft.questions if q.answers]
    if not answerable:
        return {}
    heard = {p.id: (p.transcript or p.text, p.language) for p in draft.passages}
    timed = sum(any(a.start is not None for a in q.answers) for q in answerable)
    facts = {"answerable": len(answerable), "with_times": timed, "answer_in_context": _inside(answerable, heard)}
    facts["answer_in_letters"] = _spelt_inside(answerable, {name: _letters(text) for name, (text, _) in heard.items()})
    if any(p.transcript and p.text for p in draft.passages):
        facts["answer_in_original"] = _inside(answerable, {p.id: (p.text, p.language) for p in draft.passages})
    return facts


def _inside(questions: Sequence[Question], contexts: Mapping[str, tuple[str, str]]) -> float:
    """The share of questions with an answer that occurs in whole tokens. contexts: id of a passage -> text and language."""
    tokens = {name: f" {_tokens(text, language)} " for name, (text, language) in contexts.items()}
    return sum(any(f" {_tokens(a.text, q.language)} " in tokens[q.passage] for a in q.answers) for q in questions) / len(questions)


def _spelt_inside(questions: Sequence[Question], contexts: Mapping[str, str]) -> float:
    return sum(any(_letters(a.text) in contexts[q.passage] for a in q.answers) for q in questions) / len(questions)


def _letters(text: str) -> str:
    return " ".join(text.casefold().split())


def _tokens(text: str, language: str) -> str:
    return " ".join(answer_tokens(text, language))


def _synthetic(drafts: Mapping[str, Draft], invented: bool) -> dict[str, Any]:
    """Says so in the card where any audio was spoken by a synthesiser, and of what; or where all of the corpus is invented."""
    passages = [p for d in drafts.values() for p in d.passages]
    questions = [q for d in drafts.values() for q in d.questions]
    spoken = {
        "passages": (sum(p.synthetic for p in passages), len(passages)),
        "questions": (sum(q.synthetic for q in questions), len(questions)),
        "options": (sum(len(q.option_audio) for q in questions if q.synthetic), sum(len(q.options) for q in questions)),
    }
    kinds = [f"{some:,} of {every:,} {kind}" for kind, (some, every) in spoken.items() if some]
    said = ", ".join(kinds[:-1]) + " and " * (len(kinds) > 1) + "".join(kinds[-1:])
    recorded = any(p.audio and not p.synthetic for p in passages) or any(q.audio and not q.synthetic for q in questions)
    miniature = INVENTED + ", its recordings spoken by espeak-ng" * recorded
    notes = [miniature] * invented + [f"{said} spoken by espeak-ng"] * bool(kinds)
    return {"synthetic": "; ".join(notes)} if notes else {}
