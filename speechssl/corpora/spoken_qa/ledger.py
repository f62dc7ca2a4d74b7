"""What was read of a corpus, what was kept of it, and why the rest was set aside: nothing is dropped in silence.

Every item that is read is either kept or set aside with a reason, and `Ledger.report` refuses to be written where that does not add
up. What is odd about items that are kept (an answer without times, offsets that do not match) is remarked, with what was done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from speechssl.corpora.records import INVENTED

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
