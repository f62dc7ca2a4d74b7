"""This module evaluates spoken question answering and multiple choice: systems x conditions on the
questions of a split; imported answers.

Every system under every condition leaves `predictions/<system>/<condition>.json` and
`scores/<system>/<condition>.jsonl`, a line a question for `compare`; `eval.run` has the loop.
Passages, questions and options are all distorted, and encoded once in every condition. Noise does
not change what is written: systems that read text, and baselines, are evaluated in clean speech
alone.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import hash_files, hash_json, hold_output, read_json, write_json
from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.data import Transcript
from speechssl.cascade.readers import find_reader, reader_suffix
from speechssl.cascade.system import SIMULATED, CascadeSystem
from speechssl.checkpoints import model_folder
from speechssl.data.files import load_json
from speechssl.data.records import (
    TOLERANCE,
    Corpus,
    Passage,
    Question,
    corpus_card,
    data_hash,
    first_passages,
    guess_unit,
    load_corpus,
    passage_units,
    synthetic_note,
    training_data,
)
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.options import Choice, Conditions, Predictions, Qa
from speechssl.eval.run import (
    Encoded,
    Encoding,
    ResultFile,
    check_conditions,
    encode_recordings,
    evaluate_files,
)
from speechssl.eval.scores import choice_lines, error_type, question_lines, write_lines
from speechssl.metrics import (
    WordErrors,
    exact_match,
    frame_f1,
    overlap_score,
    token_f1,
    word_error_rate,
)
from speechssl.multiple_choice.data import written_text
from speechssl.multiple_choice.model import choose_options, longest_options, score_choice
from speechssl.multiple_choice.system import (
    Baseline,
    ChoiceSystem,
    EncodedQuestion,
    WrittenChoice,
    load_choice_systems,
)
from speechssl.results import (
    SEEN,
    Row,
    append_rows,
    list_rows,
    published_choice,
    read_rows,
    results_table,
    seconds_range,
    snr_note,
)
from speechssl.stats import Interval, mean_interval, ratio_interval
from speechssl.systems import default_systems, link_parts, load_systems
from speechssl.text import answer_tokens, error_metric

if TYPE_CHECKING:
    from speechssl.dual.system import TimedAnswer
    from speechssl.systems import System

# seconds; answers of NMSQA: median 1.1
BUCKETS = ((0.0, 0.5), (0.5, 1.0), (1.0, 2.0), (2.0, float("inf")))
# questions that are answered together; whose options are scored together
BATCH, CHOICE_BATCH = 64, 16
CLEAN = parse_condition("clean")
# A system has a name, by which its results are known, and a card, which says what made it; one that
# is not ours has no more.
METRICS = ("ff1", "aos", "em", "f1")
FIELDS = ("text", "start", "end")  # of an imported answer
IMPORTED = "imported"  # in the card of a system that is not ours


@dataclass(frozen=True)
class Setup:
    """Systems are evaluated with this. out: the folder of predictions; models: what rows call the
    folder of models."""

    out: Path
    distorter: Distorter
    workers: int = 2
    models: str = ""
    parts: tuple[Path, ...] = ()  # folders of models, whose cards say what they were trained on

    @classmethod
    def of(cls, o: Conditions, models: str, *parts: Path) -> Setup:
        return cls(
            o.out, Distorter(o.seed, o.voices, snr_over=o.snr_over), o.workers, models, parts
        )


# ---- spoken question answering


def evaluate_qa(o: Qa) -> list[dict[str, Any]]:
    """Evaluate the systems, print the table, and return the rows of `o.out`. Raises InputError for
    systems, a corpus or conditions that there are not."""
    with hold_output(o.out):
        print(run_evaluation(o))
        return list_rows(o.out)


def run_evaluation(o: Qa) -> str:
    """Evaluate, append the rows, and return the table of everything in `o.out`/results.jsonl."""
    if o.parts.dual is None:
        return _evaluate_models(o, model_folder(o.models))
    label = o.label or "/".join(o.parts.dual.parts[-2:])  # two readers may have one encoder
    with link_parts(o.parts) as folder:
        return _evaluate_models(replace(o, label=label), folder)


def _evaluate_models(o: Qa, folder: Path) -> str:
    conditions = [parse_condition(c) for c in o.conditions]
    names = o.systems or default_systems(folder)
    data = first_passages(load_corpus(o.corpus, o.split), o.passages)
    transcripts = [
        *(p.transcript for p in data.passages.values()),
        *(q.transcript for q in data.questions),
    ]
    if "cascade-given" in names and not any(transcripts):
        raise InputError(
            f"{o.corpus / o.split} has no transcripts for cascade-given; use the system text"
        )
    loaded = load_systems(
        folder,
        names,
        o.bf16,
        errors=o.errors,
        reading=o.reading,
        language=data.language,
    )
    parts = [folder, *([find_reader(folder, o.reading.reader)] if o.reading.reader else [])]
    append_results(
        o.out,
        evaluate(loaded, data, conditions, Setup.of(o, o.label or models_name(folder), *parts)),
    )
    return table_of_rows(o, conditions)


def evaluate(
    systems: Sequence[System],
    corpus: Corpus,
    conditions: Sequence[Condition],
    setup: Setup,
) -> list[Row]:
    """Fill in the predictions that are missing and return the rows of all of them. Raises
    InputError without questions.

    A cascade reads a question that is only written as it stands, as `QA` does; other systems fail
    at it.
    """
    items: list[Passage | Question] = [*passages_with_questions(corpus), *corpus.answerable]
    records = {r.id: r for r in items}
    written = {q.id: q for q in corpus.answerable if not q.audio and q.text.strip()}
    listening = any(s.needs_audio for s in systems)
    if written and listening:
        count = f"{len(written)} questions have" if len(written) > 1 else "1 question has"
        print(
            f"{count} no recording: cascades read what is written, other systems cannot be asked",
            file=sys.stderr,
        )
    if (
        listening
        and corpus.answerable
        and not any(a.start is not None for q in corpus.answerable for a in q.answers)
    ):
        if any(r.audio for r in items) and not any(
            isinstance(s, CascadeSystem) or not s.needs_audio for s in systems
        ):
            names, where = ", ".join(s.name for s in systems), corpus.root / corpus.split
            raise InputError(
                f"no answer of {where} has times, by which alone {names} can be "
                "scored; `speechssl align` finds them"
            )
        print(
            "no answer has times, so nothing can be said of FF1 and AOS; `speechssl align` "
            "finds them",
            file=sys.stderr,
        )

    def encoding(s: System) -> Encoding[str]:
        spoken = (
            records.keys() - written.keys()
            if isinstance(s, CascadeSystem) and s.needs_audio
            else None
        )
        return Encoding(lambda i, samples: s.encode(records[i], samples), s.needs_audio, spoken)

    def answer(
        s: System, features: Mapping[str, Any], condition: Condition
    ) -> dict[str, dict[str, Any]]:
        if isinstance(s, CascadeSystem) and s.needs_audio:
            features = {**features, **{i: s.read(q.text, q.language) for i, q in written.items()}}
        return answer_questions(s, corpus, features, condition.label)

    def score(system: System, predictions: Mapping[str, Any]) -> Scored:
        scored, transcripts = score_questions(predictions, corpus), predictions["transcripts"]
        return Scored(
            scored,
            transcripts,
            question_lines(scored, corpus, transcripts),
            {"encoder": setup.models},
        )

    return evaluate_systems(
        rounds_of(systems, corpus, conditions, setup.distorter),
        corpus,
        setup,
        questions=[q.id for q in corpus.answerable],
        recordings=find_recordings(corpus, items),
        encoding=encoding,
        answer=answer,
        score=score,
        metrics=METRICS,
    )


def answer_questions(
    system: System, corpus: Corpus, features: Mapping[str, Any], where: str
) -> dict[str, dict[str, Any]]:
    """Find the answers and transcripts of one system. features: of its recordings, by id; where:
    for the progress bar.

    Times that nobody knows are null.
    """
    questions = [q for q in corpus.answerable if q.id in features and q.passage in features]
    items = [(features[q.id], features[q.passage]) for q in questions]
    answers: list[TimedAnswer] = []
    for start in tqdm(
        range(0, len(items), BATCH),
        desc=(f"{system.name} answers, {where}"),
        unit="batch",
        disable=not items,
    ):
        answers += system.answer_all(items[start : start + BATCH])
    answered = zip(questions, map(asdict, answers), strict=True)
    return {
        "answers": {
            q.id: {name: None if value != value else value for name, value in a.items()}
            for q, a in answered
        },
        "transcripts": {i: x.text for i, x in features.items() if isinstance(x, Transcript)},
    }


def passages_with_questions(corpus: Corpus) -> list[Passage]:
    ids = {q.passage for q in corpus.answerable}
    return [p for p in corpus.passages.values() if p.id in ids]


# ---- multiple choice


def evaluate_choice(o: Choice) -> list[dict[str, Any]]:
    """Evaluate the systems, print the table, and return the rows of `o.out`. Raises InputError for
    systems, a corpus or conditions that there are not."""
    with hold_output(o.out):
        print(run_choice(o))
        return list_rows(o.out)


def run_choice(o: Choice) -> str:
    """Evaluate, append the rows, and return the table of everything in `o.out`/results.jsonl."""
    conditions = [parse_condition(c) for c in o.conditions]
    data = first_passages(load_corpus(o.corpus, o.split), o.passages)
    loaded, folder = load_choice_systems(o.models, o.systems, o.bf16, data.language), Path(o.models)
    name = f"{folder.parent.name}/{folder.name}".lstrip("/")
    append_results(
        o.out, choose(loaded, data, conditions, Setup.of(o, name, model_folder(o.models)))
    )
    note = snr_note(o.snr_over) if any(c.noisy for c in conditions) else ""
    published = published_choice(str(corpus_card(o.corpus).get("corpus", "")), o.split)
    return "\n\n".join(
        filter(None, [results_table(read_rows(o.out / "results.jsonl")), note, published])
    )


def choose(
    systems: Sequence[ChoiceSystem],
    corpus: Corpus,
    conditions: Sequence[Condition],
    setup: Setup,
) -> list[Row]:
    """Evaluate multiple choice as `evaluate` does spans. Raises InputError, too, where `setup.out`
    holds answers that are spans, which would be lost."""
    if not corpus.choices:
        raise InputError(
            f"{corpus.root / corpus.split} has no question with options and a right one; give a "
            "multiple-choice corpus"
        )
    check_conditions(conditions, setup.distorter)
    passages = {q.passage for q in corpus.choices}
    recordings = find_recordings(
        corpus, [*(p for p in corpus.passages.values() if p.id in passages), *corpus.choices]
    )
    for question in corpus.choices:
        if question.option_audio:
            recordings |= dict(
                zip(
                    question.option_ids,
                    [corpus.root / audio for audio in question.option_audio],
                    strict=True,
                )
            )
        else:
            why = (
                f"the options of {question.id} are text only; prepare the corpus with --speak, "
                "or take systems that read (text)"
            )
            recordings |= dict.fromkeys(question.option_ids, InputError(why))
    reading = [s for s in systems if isinstance(s, (Baseline, WrittenChoice))]
    spoken = [s for s in systems if not isinstance(s, (Baseline, WrittenChoice))]
    rounds: list[tuple[Condition, list[Any]]] = [(CLEAN, reading)] * bool(reading) + [
        (c, spoken) for c in conditions if spoken
    ]
    for file in (
        prediction_path(setup.out, system, condition)
        for condition, members in rounds
        for system in members
    ):
        if file.is_file() and read_json(file).get("what") != "choice":
            raise InputError(
                f"{file} has answers that are spans, from `evaluate qa`; choose "
                "another folder for multiple choice"
            )

    def score(system: ChoiceSystem, predictions: Mapping[str, Any]) -> Scored:
        choices, transcripts = predictions["choices"], predictions["transcripts"]
        # () where it could not be answered
        scored = [score_choice(q, choices.get(q.id, ())) for q in corpus.choices]
        if isinstance(system, WrittenChoice):  # its transcript is what it reads
            transcripts = {
                q.passage: written_text(corpus.passages[q.passage], system.source)
                for q in corpus.choices
            }
        return Scored(scored, transcripts, choice_lines(scored, corpus, transcripts), {})

    return evaluate_systems(
        rounds,
        corpus,
        setup,
        questions=[q.id for q in corpus.choices],
        recordings=recordings,
        encoding=lambda s: (
            None if s in reading else Encoding(lambda _, samples: s.encode(None, samples))
        ),
        answer=lambda s, features, condition: _choose(s, corpus, features, condition.label),
        score=score,
        metrics=("set_accuracy", "accuracy"),
        kind={"what": "choice"},
    )


def _choose(
    system: ChoiceSystem, corpus: Corpus, features: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Return log-probabilities and choices of every question that could be answered, and the
    transcripts of a recogniser."""
    if isinstance(system, Baseline):
        choices = {
            q.id: longest_options(q) if system.name == "longest-option" else None
            for q in corpus.choices
        }
        return {"choices": choices, "scores": {}, "transcripts": {}}
    reads = isinstance(system, WrittenChoice)
    questions = [
        q
        for q in corpus.choices
        if reads or all(i in features for i in (q.id, q.passage, *q.option_ids))
    ]
    scores: list[np.ndarray] = []
    starts = range(0, len(questions), CHOICE_BATCH)
    for start in tqdm(starts, f"{system.name} chooses, {where}", unit="batch", disable=not starts):
        batch = questions[start : start + CHOICE_BATCH]
        if isinstance(system, WrittenChoice):
            scores += system.score_written([(q, corpus.passages[q.passage]) for q in batch])
        else:
            options = [tuple(features[i] for i in q.option_ids) for q in batch]
            scores += system.score_all(
                [
                    EncodedQuestion(features[q.id], o, features[q.passage])
                    for q, o in zip(batch, options, strict=True)
                ]
            )
    by_question = dict(zip(questions, scores, strict=True))
    return {
        "choices": {q.id: choose_options(s, len(q.correct)) for q, s in by_question.items()},
        "scores": {q.id: [round(float(x), 5) for x in s] for q, s in by_question.items()},
        "transcripts": {i: x.text for i, x in features.items() if isinstance(x, Transcript)},
    }


# ---- the steps that both have in common


def models_name(folder: Path) -> str:
    """Return what rows call a folder of models."""
    return (
        folder.name
        if folder.parent.name in ("models", "")
        else f"{folder.parent.name}/{folder.name}"
    )


def append_results(out: Path, rows: Sequence[Row]) -> None:
    """Add rows to `out`/results.jsonl. What another model of the same name left of a result goes,
    whatever its seed: tables show means over the seeds of the noise, which are of one model.
    Simulated errors depend on the seed, and so do their cards.
    """

    def result(row: Row) -> tuple[Any, ...]:
        return *row.cell[:-1], row.seed if row.system.startswith(SIMULATED) else None

    cards = {result(row): row.card_text for row in rows}
    append_rows(
        out / "results.jsonl",
        rows,
        by_content=True,
        outdated=lambda r: cards.get(result(r), r.card_text) != r.card_text,
    )


def table_of_rows(o: Conditions, conditions: Sequence[Condition]) -> str:
    """Return the table of everything in `o.out`/results.jsonl, and notes on the data."""
    notes = [
        synthetic_note(o.corpus),
        snr_note(o.snr_over) if any(c.noisy for c in conditions) else "",
    ]
    return "\n\n".join(filter(None, [results_table(read_rows(o.out / "results.jsonl")), *notes]))


def rounds_of(
    systems: Sequence[Any], corpus: Corpus, conditions: Sequence[Condition], distorter: Distorter
) -> list[tuple[Condition, list[Any]]]:
    """Return the systems of every condition: those that read text belong to clean speech alone.

    Raises InputError where no question can be answered, for text in noise alone, and as
    `check_conditions`.
    """
    if not corpus.answerable:
        raise InputError(
            f"{corpus.root / corpus.split} has no answerable question to evaluate; "
            "choose another split or corpus"
        )
    if not any(s.needs_audio for s in systems) and all(c.name != "clean" for c in conditions):
        names = ", ".join(s.name for s in systems)
        raise InputError(
            f"{names} read text, which noise does not change; evaluate them under "
            "the condition clean"
        )
    check_conditions(conditions, distorter)
    return [(c, [s for s in systems if c.name == "clean" or s.needs_audio]) for c in conditions]


def find_recordings(
    corpus: Corpus, records: Iterable[Passage | Question]
) -> dict[str, Path | InputError]:
    paths: dict[str, Path | InputError] = {}
    for record in records:
        try:
            paths[record.id] = corpus.path(record)
        except InputError as error:
            paths[record.id] = error
    return paths


class Scored(NamedTuple):
    """These are the scored predictions of a system in one condition."""

    scores: Sequence[Any]  # by question, with `id`, `passage` and the metrics
    transcripts: Mapping[str, str]  # of passages, by id; none of a system without any
    lines: Sequence[Mapping[str, Any]]  # for `compare`
    facts: Mapping[str, str]  # for the card of the lines


def evaluate_systems(
    rounds: Sequence[tuple[Condition, Sequence[Any]]],
    corpus: Corpus,
    setup: Setup,
    *,
    questions: Sequence[str],
    recordings: Mapping[str, Path | InputError],
    encoding: Callable[[Any], Encoding[str] | None],
    answer: Callable[[Any, Mapping[str, Any], Condition], dict[str, Any]],
    score: Callable[[Any, Mapping[str, Any]], Scored],
    metrics: Sequence[str],
    kind: Mapping[str, str] = MappingProxyType({}),
) -> list[Row]:
    """Return the rows of every system in every condition; its predictions are made where they are
    missing. Failed recordings are reported.

    rounds: conditions with the systems that they concern. questions: ids of what of the data
    decides the predictions.
    recordings: id -> file, or why there is none.
    encoding: how a system encodes, None where it needs nothing. answer: a system and its features
    by id -> its predictions.
    score: of a system and its predictions. kind: what else a file says of itself.
    """
    out, distorter, task = setup.out, setup.distorter, kind.get("what", "qa")
    check_names([system for _, systems in rounds for system in systems], out, setup.models)
    data = data_hash(corpus.root, corpus.split)
    seen = {s.name: have_seen(data, s, setup.parts) for _, systems in rounds for s in systems}
    for name, what in seen.items():
        if what:
            print(
                f"{name}: {SEEN[what].lower()}, {corpus.root / corpus.split}; it may score "
                "less on other data",
                file=sys.stderr,
            )

    def read(name: str) -> np.ndarray:
        if isinstance(path := recordings[name], InputError):
            raise path
        return read_audio(path)

    def evaluate_in(condition: Condition, systems: Sequence[Any]) -> list[Row]:
        by_name = {s.name: s for s in systems}
        inputs = [
            data,
            list(questions),
            asdict(condition),
            distorter.sources(condition),
            distorter.seed,
        ]
        files = []
        for name, s in by_name.items():
            made_from = hash_json([*kind.values(), dict(s.card), *inputs])
            files.append(
                ResultFile(
                    name,
                    prediction_path(out, s, condition),
                    made_from,
                    f"{name}, {condition.label}",
                )
            )

        def encode(missing: Sequence[ResultFile]) -> Mapping[str, Encoded[str]]:
            encodings = {
                file.system: how for file in missing if (how := encoding(by_name[file.system]))
            }
            distort = lambda samples, i: distorter.apply(samples, condition, i)  # noqa: E731
            doing = "encoding" if any(how.needs_audio for how in encodings.values()) else "reading"
            what = f"{doing}, {condition.label}"
            partial = {file.system: file.partial for file in missing if file.system in encodings}
            return encode_recordings(
                recordings if encodings else [],
                read,
                distort,
                encodings,
                setup.workers,
                what,
                partial,
            )

        def predict(file: ResultFile, features: Mapping[str, Any]) -> dict[str, Any]:
            system = by_name[file.system]
            card = {
                **kind,
                "data": data,
                **distorter.card(condition),
                **named_after(system),
                "card": dict(system.card),
            }
            return card | answer(system, features, condition)

        rows: list[Row] = []
        for file, predictions in zip(files, evaluate_files(files, encode, predict), strict=True):
            report_set_aside(
                predictions["failed"], f"{file.label} (their questions count as not answered)"
            )
            system = by_name[file.system]
            scored = score(system, predictions)
            encoder, over = (
                "" if isinstance(system, Baseline) else setup.models,
                predictions.get("snr_over", ""),
            )
            of_row = (corpus, condition, system, distorter.seed, encoder, over, task)
            new = rows_of(scored.scores, metrics, scored.transcripts, *of_row)
            rows += [replace(row, seen=seen[system.name]) for row in new]
            facts = {**scored.facts, **({"seen": seen[system.name]} if seen[system.name] else {})}
            write_lines(out, system.name, condition, scored.lines, corpus, predictions, **facts)
        return rows

    return [row for condition, systems in rounds for row in evaluate_in(condition, systems)]


def have_seen(data: str, system: Any, parts: Sequence[Path]) -> str:
    """Find what a system has seen of the data with this hash, one of `SEEN`, by the cards of those
    of its parts that lie in these folders of models; "" where nothing is known.
    """

    def hashes(value: Any) -> set[str]:
        inside = (
            value.values()
            if isinstance(value, Mapping)
            else value
            if isinstance(value, list)
            else ()
        )
        return {value} if isinstance(value, str) else set().union(*map(hashes, inside))

    own, chosen = hashes(dict(system.card)), False
    for path in (
        p
        for part in parts
        for pattern in ("card.json", "*.card.json", "*/card.json")
        for p in part.glob(pattern)
    ):
        card = read_json(path)
        if isinstance(card, dict) and own & hashes([card.get("weights"), card.get("hash")]):
            if data in training_data(card):
                return "trained"
            chosen = chosen or card.get("eval_data") == data
    return "chosen" if chosen else ""


# ---- names of systems and their folders: a cascade is called by the last part of its recogniser's
# name, as others may be; and a
# system that reads words by that of a reader which is not the models' own


def prediction_path(out: Path, system: Any, condition: Condition) -> Path:
    return out / "predictions" / system.name / f"{condition.label.replace(' ', '-')}.json"


def named_after(system: Any) -> dict[str, str | None]:
    """Return the hub ids or folders of the recogniser (cascade-MODEL, bm25-MODEL, ...) and of the
    reader that a system is called by; None where it is by none.

    What is trained again stays in its folder: the name tells recognisers apart, not their weights.
    """
    full, reader = system.card.get("asr"), system.card.get("reader")
    name = system.name.partition("@")[0]
    called = isinstance(full, str) and name.endswith(f"-{Path(full).name}{reader_suffix(reader)}")
    return {"recogniser": full if called else None, "reader": reader}


def check_names(systems: Sequence[Any], out: Path, models: str = "") -> None:
    """Raise InputError where different systems would share a folder of predictions in `out`, now or
    with an earlier evaluation.

    models: what rows call those of these systems. Predictions that name no recogniser, or have no
    card, may be anybody's.
    """
    first: dict[str, Any] = {}
    for system in systems:
        other = first.setdefault(system.name, system)
        if dict(other.card) != dict(system.card):
            names = (named_after(s)["recogniser"] or s.name for s in (other, system))
            raise InputError(
                f"{' and '.join(names)} would both be called {system.name}; "
                "evaluate them one by one into two folders"
            )
    known = out / "results.jsonl"
    rows = read_rows(known) if known.is_file() else ()
    for system in first.values():
        parts, named = named_after(system), [r for r in rows if r.system == system.name]
        paths = sorted((out / "predictions" / system.name).glob("*.json"))
        for path in paths:
            stored = read_json(path)
            for part, new in parts.items():
                old = stored.get(part, new)
                same_folder = (
                    new
                    and old
                    and Path(new).exists()
                    and Path(old).exists()
                    and Path(new).samefile(old)
                )
                if old != new and not same_folder:
                    raise InputError(
                        f"{path} was made with "
                        f"{f'the {part} {old}' if old else 'that of the models'}, and "
                        f"{new or 'that of the models'} would have the same name {system.name}; "
                        "evaluate it into another folder"
                    )
            if part := differing_part(stored.get("card"), system.card):
                before, now = (
                    (
                        f"{system.name}{f' of {whose}' if whose else ''} ({part} "
                        f"{shown_part(card.get(part))})"
                    )
                    for whose, card in (
                        (named[-1].encoder if named else "", stored["card"]),
                        (models, system.card),
                    )
                )
                raise InputError(
                    f"{path} was made by {before}, which is not {now}; evaluate "
                    "this one into another folder"
                )
        for row in () if paths else named:  # whose predictions were removed
            card = dict(system.card) | ({"seed": row.seed} if "seed" in system.card else {})
            if row.card != hash_json(card):
                whose = f" of {row.encoder}" if row.encoder else ""
                raise InputError(
                    f"{known} has rows of another {system.name}{whose}; evaluate "
                    "this one into another folder"
                )


def differing_part(old: Any, new: Mapping[str, Any]) -> str:
    """Find in what the card in a file of predictions differs from that of a system of its name; ""
    where they are of one system, whose simulated errors may have other seeds and whose recogniser
    may have been called by another path.
    """
    if not isinstance(old, Mapping):
        return ""

    def one_folder(a: Any, b: Any) -> bool:
        return (
            isinstance(a, str)
            and isinstance(b, str)
            and Path(a).exists()
            and Path(b).exists()
            and Path(a).samefile(b)
        )

    plain = json.loads(json.dumps(dict(new)))
    parts = [
        part for part in {**plain, **old} if part != "seed" and old.get(part) != plain.get(part)
    ]
    return next((part for part in parts if not one_folder(old.get(part), plain.get(part))), "")


def shown_part(value: Any) -> str:
    """Show a part of a card in a sentence."""
    return (
        "of other values"
        if isinstance(value, (Mapping, list))
        else "of none"
        if value is None
        else str(value)
    )


# ---- scores


@dataclass(frozen=True)
class QuestionScore:
    """These are one question's scores, 0 to 1; ff1 and aos are None without times (annotated, or of
    the answer), em and f1 where the system gives no text.
    """

    id: str
    passage: str
    seconds: float  # length of the annotated answer
    ff1: float | None
    aos: float | None
    em: float | None
    f1: float | None
    error: str = ""  # one of `scores.ERRORS`; "" where neither times nor words can tell


def score_questions(predictions: Mapping[str, Any], corpus: Corpus) -> list[QuestionScore]:
    """Score every answerable question over all its annotations; one that could not be answered
    scores 0."""
    scored, answers = [], predictions["answers"].values()
    has_text = bool(predictions["transcripts"]) or any(a["text"] is not None for a in answers)
    # "no answer" has no times whatever the system has
    answered = [a for a in answers if a["text"] != ""]
    untimed = bool(answered) and all(a["start"] is None for a in answered)
    for question in corpus.answerable:
        gold = [
            (a.start, a.end)
            for a in question.answers
            if a.start is not None and a.end is not None and not untimed
        ]
        answer = predictions["answers"].get(question.id)
        span = (
            (answer["start"], answer["end"])
            if answer and (answer["end"] or 0) > (answer["start"] or 0)
            else None
        )
        texts, predicted = [a.text for a in question.answers], answer["text"] if answer else ""
        error = ""  # against the annotation that is most like the answer
        if gold:
            start, end = max(gold, key=lambda g: frame_f1(span, [g]))
            shared = max(0.0, min(span[1], end) - max(span[0], start)) if span else 0.0
            error = error_type(shared, span[1] - span[0] if span else 0.0, end - start)
        elif has_text:
            nearest = max(texts, key=lambda text: token_f1(predicted, [text], question.language))
            words, gold_words = (
                Counter(answer_tokens(text or "", question.language))
                for text in (predicted, nearest)
            )
            error = (
                error_type((words & gold_words).total(), words.total(), gold_words.total())
                if gold_words
                else ""
            )
        scored.append(
            QuestionScore(
                question.id,
                question.passage,
                gold[0][1] - gold[0][0] if gold else 0.0,
                frame_f1(span, gold) if gold else None,
                overlap_score(span, gold) if gold else None,
                exact_match(predicted, texts, question.language) if has_text else None,
                token_f1(predicted, texts, question.language) if has_text else None,
                error,
            )
        )
    return scored


def rows_of(
    scored: Sequence[Any],
    metrics: Sequence[str],
    transcripts: Mapping[str, str],
    corpus: Corpus,
    condition: Condition,
    system: Any,
    seed: int,
    encoder: str,
    snr_over: str = "",
    task: str = "qa",
) -> list[Row]:
    """Make rows in percent with 95 % bootstrap intervals (`passage_units` says what is drawn);
    fewer than five of it have none.

    scored: with `passage` and the metrics; of each the mean over the questions that have it. With
    transcripts the WER (zh: CER) over the passages that are asked about, too: of one that could not
    be recognised every word is missing, as in `compare`.
    """
    values: dict[str, Interval] = {}
    for metric in metrics:
        if measured := [s for s in scored if getattr(s, metric) is not None]:
            units = passage_units(corpus, [s.passage for s in measured], [s.id for s in measured])
            values[metric] = mean_interval([getattr(s, metric) for s in measured], units, seed)
    passages_asked = {s.passage for s in scored}
    if passages := [
        p for p in corpus.passages.values() if transcripts and p.id in passages_asked and p.text
    ]:
        errors, units = (
            word_errors(passages, transcripts),
            passage_units(corpus, [p.id for p in passages]),
        )
        values[error_metric(passages[0].language)] = ratio_interval(
            errors.errors, errors.words, units, seed
        )
    cell, card = (
        (task, system.name, encoder, condition.short, condition.snr_db),
        hash_json(dict(system.card)),
    )
    return [
        Row.from_interval(v, *cell, metric, seed, card, snr_over) for metric, v in values.items()
    ]


def word_errors(passages: Sequence[Passage], transcripts: Mapping[str, str]) -> WordErrors:
    """Count the word errors of passages, at least one, by their transcripts; every word of one
    without a transcript is an error."""
    hypotheses = [transcripts.get(p.id, "") for p in passages]
    return word_error_rate([p.text for p in passages], hypotheses, passages[0].language)


def by_length(
    scored: Sequence[QuestionScore], corpus: Corpus, system: str, seed: int
) -> list[dict[str, Any]]:
    """Average FF1 in percent by length of the answer. What is drawn is chosen for all lengths
    together."""
    units = passage_units(corpus, [s.passage for s in scored], [s.id for s in scored])
    rows = []
    for low, high in BUCKETS:
        inside = {
            i: s.ff1 for i, s in enumerate(scored) if s.ff1 is not None and low <= s.seconds < high
        }
        if inside:
            v = mean_interval(list(inside.values()), units.at(list(inside)), seed).percent
            low_end, high_end = v.ends
            rows.append(
                {
                    "system": system,
                    "bucket": seconds_range(low, high),
                    "value": v.value,
                    "low": low_end,
                    "high": high_end,
                    "n": v.n,
                }
            )
    return rows


# ---- answers of a system that is not ours


def evaluate_predictions(o: Predictions) -> list[dict[str, Any]]:
    """Score the answers, print the table, and return the rows of `o.out`. Raises InputError as
    `import_predictions` does."""
    with hold_output(o.out):
        print(import_predictions(o))
        return list_rows(o.out)


def import_predictions(o: Predictions) -> str:
    """Score the predictions of another system, append the rows, and return the table of everything
    in `o.out`/results.jsonl.

    The file is JSON with one value a question: a text (SQuAD's format), a pair [start, end] in
    seconds, or an object with `text`, `start` and `end`, any of them left out; null or "" is no
    answer. Scores are over all questions that have an answer: those with no answer given and those
    that are not in the file are counted apart, and count 0. Raises InputError for a file that does
    not hold predictions, or one of a question that the split does not ask.
    """
    data, where = load_corpus(o.corpus, o.split), parse_condition(o.condition)
    answers = _imported_answers(o.file, data)
    system = SimpleNamespace(name=o.name, card={IMPORTED: hash_files([o.file])})
    predictions: dict[str, Any] = {
        "made_from": system.card[IMPORTED],
        "data": data_hash(o.corpus, o.split),
        "seed": o.seed,
    }
    counts = count_answers(load_json(o.file), answers, data)
    predictions |= {
        "card": system.card,
        "counts": counts,
        "answers": answers,
        "transcripts": {},
        "failed": {},
    }
    path = prediction_path(o.out, system, where)
    for other in sorted(path.parent.glob("*.json")):  # of other conditions by other files
        stored = read_json(other)
        ours = IMPORTED not in stored.get("card", {IMPORTED: ""})
        if ours or (other == path and stored.get("made_from") != predictions["made_from"]):
            what = "answers of a system of `evaluate`" if ours else "other predictions"
            raise InputError(
                f"{other} holds {what} called {o.name}; give another --name, or another folder"
            )
    write_json(path, predictions)
    scored = score_questions(predictions, data)
    append_rows(
        o.out / "results.jsonl", rows_of(scored, METRICS, {}, data, where, system, o.seed, "")
    )
    write_lines(
        o.out,
        o.name,
        where,
        question_lines(scored, data, {}),
        data,
        predictions,
        encoder="",
        counts=counts,
    )
    parts = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    said = (
        f"{o.name}: {parts}; scores are over all {len(data.answerable):,} questions, of which "
        "all but the answered count 0\n"
    )
    return said + results_table(read_rows(o.out / "results.jsonl"))


def count_answers(
    given: Mapping[str, Any], answers: Mapping[str, Any], data: Corpus
) -> dict[str, int]:
    """Count, of the questions that have an answer, those that a file answers, says nothing of or
    null, and lacks.

    given: what the file holds, by question.
    """
    answered, there = len(answers), sum(q.id in given for q in data.answerable)
    return {
        "answered": answered,
        "with no answer given": there - answered,
        ("not in the file"): len(data.answerable) - there,
    }


def _imported_answers(file: Path, data: Corpus) -> dict[str, dict[str, Any]]:
    contents = load_json(file)
    if not isinstance(contents, dict) or not contents:
        raise InputError(
            f"{file} holds no answers; write a JSON object of question id -> "
            "answer, as SQuAD's scorer takes it"
        )
    ids = {q.id for q in data.questions}
    if unknown := [name for name in contents if name not in ids]:
        raise InputError(
            f"{file} has the question {unknown[0]}, which is not in {data.root / data.split}; "
            "give its corpus and --split"
        )

    answerable, answers = {q.id for q in data.answerable}, {}
    for name, raw in contents.items():
        if name not in answerable or raw in (None, ""):
            continue
        value = {"text": raw} if isinstance(raw, str) else raw
        if isinstance(value, list) and len(value) == 2:
            value = dict(zip(FIELDS[1:], value, strict=True))
        answer: dict[str, Any] = (
            {**dict.fromkeys(FIELDS), **value} if isinstance(value, dict) else {}
        )
        parts: list[Any] = [answer.get(part) for part in FIELDS]
        text, start, end = parts
        timed = all(
            isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)
            for x in (start, end)
        )
        if timed and end < start:
            raise InputError(
                f"{file}: the answer of {name} is reversed, from {start} to {end} "
                "s; give the start first"
            )
        whole = (timed and start >= 0) or (start is None and end is None and text is not None)
        if answer.keys() != set(FIELDS) or not whole or not isinstance(text, (str, type(None))):
            shown = f"the answer of {name} is {value!r}"
            raise InputError(
                f"{file}: {shown}; give a text, [start, end] in seconds, or an object with both"
            )
        answers[name] = answer | {"confidence": None}
    _check_seconds(file, answers, data)
    return answers


def _check_seconds(file: Path, answers: Mapping[str, Mapping[str, Any]], data: Corpus) -> None:
    """Say on stderr how many answers end after their recordings, and in which unit they would not.

    Raises InputError where that is most of them: they are no seconds.
    """
    seconds = {q.id: data.passages[q.passage].seconds for q in data.questions}
    ends = {
        name: float(a["end"])
        for name, a in answers.items()
        if a["end"] is not None and seconds[name] > 0
    }
    beyond = [name for name, end in ends.items() if end > seconds[name] + TOLERANCE]
    if not beyond:
        return
    first, unit = beyond[0], guess_unit((end, seconds[name]) for name, end in ends.items())
    example = f"that of {first} at {ends[first]:g} s, its passage at {seconds[first]:.2f} s"
    advice = f"; the times look like {unit}: give seconds" if unit else ""
    sentence = (
        f"{file}: {len(beyond):,} of {len(ends):,} timed answers end after their passages "
        f"({example}){advice}"
    )
    if 2 * len(beyond) > len(ends):
        raise InputError(
            sentence if advice else (f"{sentence}; give seconds from where the recording begins")
        )
    tqdm.write(sentence, file=sys.stderr)
