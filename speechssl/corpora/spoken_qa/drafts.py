"""From what a loader read to a prepared corpus: manifests, card, data report and set_aside.jsonl, whole or not at all."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechssl.artefacts import hash_files, write_json
from speechssl.corpora.making import claim_settings, write_lines
from speechssl.corpora.records import INVENTED, Passage, Question, write_records
from speechssl.corpora.spoken_qa.ledger import Ledger
from speechssl.errors import InputError
from speechssl.text import answer_tokens

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
