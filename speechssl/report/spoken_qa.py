"""The report of an evaluation: examples to listen to, breakdown by answer length, and the page."""

from __future__ import annotations

import platform
import random
from collections.abc import Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.data.records import Corpus, Question, data_hash, load_corpus, synthetic_note
from speechssl.errors import InputError
from speechssl.eval.spoken_qa import QuestionScore, by_length, score_questions
from speechssl.eval.tables import Table, table_of
from speechssl.io import read_json
from speechssl.report import published as published_qa
from speechssl.report.figures import Breakdown
from speechssl.report.listening import Example, Prediction, encode_audio, envelope
from speechssl.report.page import build_report
from speechssl.report.published import published_columns, published_rows
from speechssl.report.robustness import of_grid
from speechssl.report.superb import of_superb, read_artefacts
from speechssl.results import read_rows
from speechssl.signal import ACTIVE

Answers = dict[str, dict[str, Any]]  # system -> what `evaluate` left for one condition


def write_report(
    out: Path,
    corpus: Path | None,
    split: str,
    count: int,
    conditions: Sequence[str],
    seed: int,
    tables: Sequence[Path],
    voices: Sequence[Path] = (),
) -> None:
    """Write `out`/report.html from `out`/results.jsonl, `out`/predictions and `out`/degradation.json, and from
    `out`/heads and `out`/details where SUPERB was run.

    corpus: of the questions; None for a folder that holds a robustness grid, SUPERB or multiple choice alone, which give nothing to
    listen to.
    seed: of the draw of examples and of the bootstrap. Raises InputError when they are not there or were made on other data.
    """
    rows = read_rows(out / "results.jsonl")
    artefacts = read_artefacts(out, rows)
    printed = [*_degradation(out), *(_table(t) for t in tables), *_published(corpus, split)]
    chosen = _are_choices(out)
    if corpus is None and not chosen and not of_grid(rows)[0] and not of_superb(rows, artefacts):
        raise InputError(
            f"{out / 'results.jsonl'} holds neither SUPERB nor a robustness grid; name the corpus of the questions as well"
        )
    if corpus is None or chosen:
        about = provenance(corpus, split) if corpus else machine()
        spoken = synthetic_note(corpus) if corpus else ""
        build_report(out / "report.html", rows, (), (), printed, about, artefacts=artefacts, synthetic=spoken)
        return
    data = load_corpus(corpus, split)
    found = _found(out, corpus, split, conditions)
    distorter = _distorter(out, found, voices)
    examples: list[Example] = []
    for number, (condition, answers) in enumerate(found.items()):
        share = count // len(found) + (number < count % len(found))
        examples += _examples(data, condition, answers, share, distorter, seed)
    clean = found.get(Condition("clean"), {})
    bars = [cast(Breakdown, b) for system, p in clean.items() for b in by_length(_answered(p, data), data, system, seed)]
    about = provenance(corpus, split)
    build_report(out / "report.html", rows, examples, bars, printed, about, artefacts=artefacts, synthetic=synthetic_note(corpus))


def _are_choices(out: Path) -> bool:
    """Whether all that was predicted are options of multiple choice, which have no place in a recording."""
    found = [read_json(path) for path in out.glob("predictions/*/*.json")]
    return bool(found) and all("choices" in predictions for predictions in found)


def _found(out: Path, corpus: Path, split: str, conditions: Sequence[str]) -> dict[Condition, Answers]:
    """The predictions of each of the conditions that were evaluated, at least one, on these data."""
    parsed = [parse_condition(c) for c in conditions]
    found = {c: answers for c in parsed if (answers := _predictions(out, c))}
    if not found:
        wanted = ", ".join(conditions)
        raise InputError(f"{out / 'predictions'} holds none of the conditions {wanted}; run `speechssl evaluate` first")
    hashed = data_hash(corpus, split)
    if any(p.get("data") != hashed for answers in found.values() for p in answers.values()):
        raise InputError(
            f"{out / 'predictions'} were not made on {corpus / split}; name the corpus and split of `speechssl evaluate`"
        )
    return found


def _distorter(out: Path, found: dict[Condition, Answers], voices: Sequence[Path]) -> Distorter:
    """What makes the noise that was heard."""
    seeds = {p["seed"] for answers in found.values() for p in answers.values()}
    if len(seeds) > 1:
        raise InputError(
            f"{out / 'predictions'} were heard in noise of several seeds ({sorted(seeds)}); evaluate them again with one"
        )
    over = {p.get("snr_over", ACTIVE) for c, answers in found.items() if c.noisy for p in answers.values()} or {ACTIVE}
    if len(over) > 1:
        raise InputError(f"{out / 'predictions'} have SNRs over {' and over '.join(sorted(over))}; evaluate them again with one")
    distorter = Distorter(seeds.pop(), tuple(voices), snr_over=over.pop())
    for condition in found:
        distorter.check(condition)
    return distorter


def _degradation(out: Path) -> list[Table]:
    """The tables of a robustness grid, where there is one."""
    path = out / "degradation.json"
    if not path.is_file():
        return []
    values = read_json(path)
    if not isinstance(values, dict) or not isinstance(values.get("tables"), list):
        raise InputError(f"{path} is not what `speechssl evaluate robustness` writes; run it again")
    return [_as_table(path, t) for t in values["tables"]]


def _published(corpus: Path | None, split: str) -> list[Table]:
    """What others reached on the corpus, where anything was published."""
    card = read_json(corpus / "card.json") if corpus else {}
    rows = published_rows([f"{card.get('corpus')} {split}"])
    return [Table(published_qa.TITLE, *published_columns(rows), published_qa.MARK)] if rows else []


def _predictions(out: Path, condition: Condition) -> Answers:
    name = f"{condition.label.replace(' ', '-')}.json"
    return {p.parent.name: read_json(p) for p in sorted(out.glob(f"predictions/*/{name}"))}


def _answered(predictions: dict[str, Any], data: Corpus) -> list[QuestionScore]:
    return [s for s in score_questions(predictions, data) if s.id in predictions["answers"]]


def _examples(data: Corpus, condition: Condition, answers: Answers, count: int, distorter: Distorter, seed: int) -> list[Example]:
    """A random draw (not a choice) of the questions that most systems answered, no passage twice."""
    often = max(len(a["answers"]) for a in answers.values())
    full = [a for a in answers.values() if len(a["answers"]) == often]
    timed = [q for q in data.answerable if any(a.start is not None for a in q.answers) and _audible(data, q)]
    questions = [q for q in timed if all(q.id in a["answers"] for a in full)]
    random.Random(f"examples {condition.label} {seed}").shuffle(questions)
    first = list({q.passage: q for q in questions}.values())[:count]
    scores = {system: {s.id: s for s in score_questions(p, data)} for system, p in answers.items()}
    return [
        _example(data, q, condition, answers, scores, distorter)
        for q in tqdm(first, desc="examples", unit="question", disable=not first)
    ]


def _audible(data: Corpus, question: Question) -> bool:
    return bool(question.audio and data.passages[question.passage].audio)


def _example(
    data: Corpus,
    question: Question,
    condition: Condition,
    answers: Answers,
    scores: dict[str, dict[str, QuestionScore]],
    distorter: Distorter,
) -> Example:
    passage = data.passages[question.passage]
    heard = distorter.apply(read_audio(data.path(passage)), condition, passage.id)
    asked = distorter.apply(read_audio(data.path(question)), condition, question.id)
    return Example(
        id=question.id,
        question_text=question.text,
        question_audio=encode_audio(asked, SAMPLE_RATE),
        passage_text=passage.text,
        passage_audio=encode_audio(heard, SAMPLE_RATE),
        seconds=len(heard) / SAMPLE_RATE,
        envelope=envelope(heard),
        gold=tuple((a.start, a.end) for a in question.answers if a.start is not None and a.end is not None),
        answer_text=question.answers[0].text,
        predictions=tuple(
            _prediction(system, p, question, scores[system][question.id].ff1)
            for system, p in answers.items()
            if question.id in p["answers"]
        ),
        condition=condition.label,
    )


def _prediction(system: str, predictions: dict[str, Any], question: Question, ff1: float | None) -> Prediction:
    found = predictions["answers"][question.id]
    some = found["start"] is not None and found["end"] > found["start"]
    return Prediction(
        system,
        found["start"] if some else None,
        found["end"] if some else None,
        found["confidence"],
        None if ff1 is None else 100 * ff1,
        predictions["transcripts"].get(question.passage),
        found["text"],
    )


def _table(path: Path) -> Table:
    return _as_table(path, read_json(path))


def _as_table(path: Path, values: Any) -> Table:
    try:
        return table_of(values)
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} is not a table (an object with title, columns and rows); {error}") from error


def provenance(corpus: Path, split: str) -> dict[str, str]:
    """Where, when and with what the numbers were made."""
    card = read_json(corpus / "card.json")
    hashes = card.get("manifests")
    manifests = ", ".join(f"{name} {value}" for name, value in hashes.items()) if isinstance(hashes, dict) else hashes
    data = f"{card.get('corpus')} {manifests} ({card.get('synthetic', 'speech or text as the corpus has it')})"
    made_by = {"Made by": str(card["made_by"])} if card.get("made_by") else {}
    return {"Data": data, "Split": split} | made_by | machine()


def machine() -> dict[str, str]:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "numpy"))
    return {
        "Machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "Versions": versions,
        "Date": date.today().isoformat(),
    }
