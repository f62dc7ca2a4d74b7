"""Every prediction behind a page in one table to filter and sort, how answers err, and what all systems answered.

Scores are those that the evaluation left in `scores/`, answers those in `predictions/` beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from speechssl.data.records import Corpus, Passage, data_hash
from speechssl.errors import InputError
from speechssl.eval.compare import Scores, read_results
from speechssl.eval.scores import ERRORS, TYPES
from speechssl.eval.spoken_qa import METRICS, rows_of, score_questions
from speechssl.eval.tables import Table
from speechssl.io import read_json
from speechssl.report.figures import Results, ShownCondition, in_order
from speechssl.report.page import UNKNOWN, Explorer
from speechssl.results import Row

Answers = Mapping[str, Any]  # predictions of one system in one condition, as `evaluate` left them
KINDS = (
    "Right: an FF1 of 50 or more (of an answer without times, the F1 of its words). Below that: too long, where it holds half of "
    "the gold answer or more; too short, where half of it or more lies in that. Little overlap: less than half of either."
)


def predictions_path(scores: Scores) -> Path:
    """The answers that were scored."""
    return scores.path.parents[2] / "predictions" / scores.path.parent.name / f"{scores.path.stem}.json"


def shown_condition(scores: Scores, results: Results) -> ShownCondition:
    """As the tables of the page have it ("written", where no system needs audio)."""
    found = ShownCondition(*scores.condition)
    written = ShownCondition("written", found.snr_db)
    return written if found.name == "clean" and any(written == c for _, _, c in results.cells) else found


# ---- one table


def explorer_of(
    found: Sequence[Scores],
    answers: Mapping[Path, Answers],
    results: Results,
    corpus: Corpus | None = None,
    common: Collection[str] | None = None,
    examples: Mapping[tuple[str, str], str] | None = None,
    title: str = "All predictions",
) -> Explorer:
    """A line a question, system and condition, as compact JSON.

    answers: by the path of their scores, as far as there are any. corpus: None leaves out what only it knows, the texts of
    questions and gold answers and the words that are said in an answer. common: ids of the questions that all systems answered;
    None: no difference is made. examples: (id of a question, label of its condition) -> identifier of its element on the page.
    """
    order = {s: i for i, s in enumerate(results.series)}
    # (place of its system, of its condition, scores); systems in the order of the page
    placed = [(results.named(f.system) or UNKNOWN, shown_condition(f, results), f) for f in found]
    series = sorted({s: None for s, _, _ in placed}, key=lambda s: order.get(s, len(order)))
    conditions = in_order({c for _, c, _ in placed})
    texts = {q.id: q for q in corpus.questions} if corpus else {}
    lines: dict[str, Mapping[str, Any]] = {}
    for _, _, f in placed:
        lines = dict(f.lines) | lines
    number = {name: i for i, name in enumerate(lines)}
    questions = []
    for name, line in lines.items():
        asked = texts.get(name)
        seconds = line.get("answer_seconds")
        questions.append(
            [
                name,
                asked.written if asked else "",
                asked.answers[0].text if asked and asked.answers else "",
                TYPES.index(line["type"]) if line.get("type") in TYPES else -1,
                None if seconds is None else round(seconds, 2),
                int(common is None or name in common),
            ]
        )
    rows: list[list[Any]] = []
    words = [False] * len(series)  # whether a system gives words; else those that are said in its span are shown
    for s, _, f in placed:
        given = answers.get(f.path, {}).get("answers", {})
        words[series.index(s)] |= any(a.get("text") for a in given.values())
    for s, c, f in placed:
        given, has_words = answers.get(f.path, {}).get("answers", {}), words[series.index(s)]
        for name, line in f.lines.items():
            a = given.get(name) or {}
            span = (a["start"], a["end"]) if a.get("start") is not None and a["end"] > a["start"] else None
            text = a.get("text") or ""
            if span and not has_words and corpus:
                text = said(corpus.passages[line["passage"]], *span)
            error = line.get("error")
            rows.append(
                [
                    number[name],
                    series.index(s),
                    conditions.index(c),
                    _percent(line.get("ff1")),
                    _percent(line.get("f1")),
                    ERRORS.index(error) if error in ERRORS else -1,
                    *([round(t, 2) for t in span] if span else [None, None]),
                    text,
                    (examples or {}).get((name, c.label), ""),
                ]
            )
    rows.sort(key=lambda row: (row[2], row[0], row[1]))
    data = {
        "systems": [{"label": s.label, "slot": s.slot, "words": has} for s, has in zip(series, words, strict=True)],
        "conditions": [c.label for c in conditions],
        "types": TYPES,
        "errors": ERRORS,
        "questions": questions,
        "rows": rows,
    }
    timed = corpus and not all(words) and any(p.words for p in corpus.passages.values())
    note = "In italics: what is said in the time that a system without words gives as its answer." if timed else ""
    return Explorer(title, data, note)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 2)


def said(passage: Passage, start: float, end: float) -> str:
    """The words of a passage whose middle lies in [start, end) seconds; "" where their times are not known."""
    return " ".join(w.text for w in passage.words if start <= (w.start + w.end) / 2 < end)


# ---- how answers err


def error_table(found: Sequence[Scores], results: Results, note: str = "", title: str = "How answers err") -> Table | None:
    """A line a system and condition, in percent of its questions; None where no score says how an answer errs."""
    rows = []
    order = {s: i for i, s in enumerate(results.series)}
    without = dict.fromkeys(f.system for f in found if not any(line.get("error") for line in f.lines.values()))
    conditions = in_order({shown_condition(f, results) for f in found})
    for f in sorted(
        found,
        key=lambda f: (order.get(results.named(f.system) or UNKNOWN, len(order)), conditions.index(shown_condition(f, results))),
    ):
        counts = Counter(line.get("error") for line in f.lines.values())
        if n := sum(counts[error] for error in ERRORS):
            label = (results.named(f.system) or UNKNOWN).label or f.system
            rows.append((label, shown_condition(f, results).label, n, *(round(100 * counts[error] / n) for error in ERRORS)))
    left = f"Left out, for their scores do not say how answers err: {', '.join(without)}." if without else ""
    notes = " ".join(filter(None, ["Percent of the questions.", KINDS, left, note]))
    return Table(title, ("system", "condition", "n", *ERRORS), tuple(rows), notes) if rows else None


# ---- what all systems answered


@dataclass(frozen=True, eq=False)
class Predicted:
    """The predictions of an evaluation. answers: by the path of their scores. evaluated: how many questions any system was asked.

    common: ids of the questions that every system answered in every condition that it was evaluated in. rows: the results on these
    alone; none where they are all of them, or none.
    """

    scores: tuple[Scores, ...]
    answers: Mapping[Path, Answers]
    corpus: Corpus
    evaluated: int
    common: frozenset[str]
    rows: tuple[Row, ...] = ()

    @property
    def switch(self) -> str:
        """What stands beside the switch to the common questions, or in its place."""
        if self.rows:
            which = f"only the {len(self.common):,} questions that all systems answered in all their conditions"
            return f"{which} (of {self.evaluated:,}), here and in the table of predictions"
        if not self.common:
            return "No question was answered by all systems, so that their scores are of different questions."
        return f"All systems answered the same {self.evaluated:,} questions in all their conditions."


def read_predicted(out: Path, corpus: Corpus) -> Predicted:
    """Read what `evaluate` left in `out`, and score the common questions by the functions of the evaluation.

    Raises InputError where scores or predictions are missing, damaged, or of other data.
    """
    found, data = read_results([out]), data_hash(corpus.root, corpus.split)
    if other := next((f for f in found if f.card["data"] != data), None):
        raise InputError(
            f"{other.path} was not made on {corpus.root / corpus.split}; name the corpus and split of `speechssl evaluate`"
        )
    answers: dict[Path, Answers] = {f.path: read_json(predictions_path(f)) for f in found}
    found = [f for f in found if "answers" in answers[f.path]]  # retrieval may lie beside them
    common = frozenset.intersection(*(frozenset(f.lines.keys() & answers[f.path]["answers"].keys()) for f in found))
    evaluated = {name for f in found for name in f.lines}
    rows: list[Row] = []
    for f in found if common and common != evaluated else ():
        scored = [s for s in score_questions(answers[f.path], corpus) if s.id in common]
        system, condition, seed = SimpleNamespace(name=f.system, card={}), condition_of(f), int(f.card.get("seed", 0))
        encoder = str(f.card.get("encoder", ""))
        rows += rows_of(scored, METRICS, answers[f.path]["transcripts"], corpus, condition, system, seed, encoder)
    return Predicted(tuple(found), answers, corpus, len(evaluated), common, tuple(rows))


def condition_of(scores: Scores) -> Any:
    """With the fields of `augment.Condition` that rows have."""
    return SimpleNamespace(short=scores.condition[0], snr_db=scores.condition[1])
