"""Evaluate spoken question answering: every system under every condition on the questions of a
split.

`evaluate_task` takes three steps with files between them (`encode`, `predict`, `score`); multiple
choice (`choice`) uses it too. In every condition all recordings are distorted, and encoded once by
each system. Systems that read text are evaluated in clean speech alone, because noise does not
change text.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from speechssl.artifacts import hash_json, hold_output
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.readers import find_reader
from speechssl.cascade.system import CascadeSystem, split_into_words
from speechssl.checkpoints import model_folder
from speechssl.data.records import (
    Corpus,
    Passage,
    Question,
    hash_data,
    load_corpus,
    read_synthetic_note,
    take_first_passages,
)
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.conditions import check_conditions
from speechssl.eval.encode import Encoded, Job, JsonStore, Recording, encode_recordings
from speechssl.eval.options import Conditions, Qa
from speechssl.eval.predict import (
    Rows,
    answer_questions,
    check_names,
    is_current,
    make_prediction_path,
    read_predictions,
    write_items,
)
from speechssl.eval.score import (
    METRICS,
    find_seen,
    make_question_lines,
    measure_scores,
    score_questions,
    write_scores,
)
from speechssl.results import (
    SEEN,
    Row,
    append_rows,
    describe_range,
    describe_snr,
    format_results,
    list_rows,
    read_rows,
)
from speechssl.systems import System, choose_default_systems, link_parts, load_systems


@dataclass(frozen=True)
class Setup:
    """A setup has the settings that all systems of an evaluation share."""

    out: Path  # folder of predictions and scores
    distorter: Distorter
    workers: int = 2
    models: str = ""  # name of the folder of models in rows
    parts: tuple[Path, ...] = ()  # folders of models, whose cards name their training data


def make_setup(o: Conditions, models: str, *parts: Path) -> Setup:
    """Make the setup of an evaluation with these options."""
    distorter = Distorter(o.seed, o.voices, snr_over=o.snr_over)
    return Setup(o.out, distorter, o.workers, models, parts)


class Scored(NamedTuple):
    """One system under one condition has these scores."""

    scores: Sequence[Any]  # the score of each question, with `id`, `passage` and the metrics
    lines: Rows  # the lines of the file that `compare` reads, one a question
    transcripts: Mapping[str, str]  # those of passages, by id


class Task(ABC):
    """A task asks systems the questions of a corpus.

    A system has a name, under which its results are listed, and a card, which identifies its
    models and settings.
    """

    name: str  # "qa", "choice", "retrieval"
    metrics: Sequence[str]
    questions: Sequence[str]  # ids; predictions for other questions are made again

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    @abstractmethod
    def list_recordings(self) -> list[Recording]:
        """List the recordings of all questions."""

    @abstractmethod
    def choose_recordings(self, system: Any) -> Collection[str]:
        """Return the names of the recordings that a system encodes."""

    @abstractmethod
    def predict(self, system: Any, features: Mapping[str, Any], where: str) -> Rows:
        """Make a row of predictions for each question. features: by recording; where: the
        condition, for the progress bar."""

    @abstractmethod
    def score(self, system: Any, predictions: Mapping[str, Any]) -> Scored:
        """Score the predictions that `read_predictions` returned."""


# ---- the three steps


def evaluate_task(
    task: Task, rounds: Sequence[tuple[Condition, Sequence[Any]]], setup: Setup
) -> list[Row]:
    """Return the rows of results of every system in every condition; predictions are made where
    they are missing. rounds: each condition with the systems that are evaluated under it."""
    all_systems = [system for _, systems in rounds for system in systems]
    check_names(all_systems, setup.out)
    split = task.corpus.root / task.corpus.split
    data = hash_data(task.corpus.root, task.corpus.split)
    seen = {}
    for system in {system.name: system for system in all_systems}.values():
        key = find_seen(data, task.corpus, system, setup.parts)
        seen[system.name] = key
        if key:
            warning = f"{SEEN[key].lower()}, {split}; it may score less on other data"
            print(f"{system.name}: {warning}", file=sys.stderr)
    rows: list[Row] = []
    for condition, systems in rounds:
        by_name = {system.name: system for system in systems}  # the options may name one twice
        encode_and_predict(task, list(by_name.values()), condition, setup)
        for name, system in by_name.items():
            rows += score_system(task, system, condition, setup, seen[name])
    return rows


def encode_and_predict(
    task: Task, systems: Sequence[Any], condition: Condition, setup: Setup
) -> None:
    """Make the predictions that are missing under a condition. Raises InputError where a system
    could encode none of its recordings."""
    corpus, distorter = task.corpus, setup.distorter
    inputs = {
        "task": task.name,
        "data": hash_data(corpus.root, corpus.split),
        "questions": list(task.questions),
        "condition": asdict(condition),
        "noise": distorter.list_sources(condition),
        "seed": distorter.seed,
    }
    missing, jobs = [], []
    for system in systems:
        path = make_prediction_path(setup.out, system.name, condition)
        made_from = hash_json([inputs, dict(system.card)])
        if is_current(path, made_from):
            continue
        store = JsonStore(path.with_suffix(".features"), made_from)
        missing.append((system, path, store))
        names = task.choose_recordings(system)
        if names:
            needs_audio = getattr(system, "needs_audio", True)
            jobs.append(Job(system.name, system.encode, names, needs_audio, store))
    recordings = task.list_recordings() if jobs else []
    title = f"encoding, {condition.label}"
    encoded = encode_recordings(jobs, recordings, condition, distorter, setup.workers, title)
    for system, path, store in missing:
        system_features = encoded.get(system.name, Encoded())
        system_features.check(f"{system.name}, {condition.label}")
        rows = task.predict(system, system_features.features, condition.label)
        card = {
            "task": task.name,
            "made_from": store.made_from,
            "data": inputs["data"],
            **distorter.describe(condition),
            "card": dict(system.card),
            "failed": system_features.failed,
        }
        write_items(path, rows, card)
        store.path.unlink(missing_ok=True)


def score_system(
    task: Task, system: Any, condition: Condition, setup: Setup, seen: str
) -> list[Row]:
    """Score the predictions of a system under a condition: write the scores of questions, and
    return the rows of results. Failed recordings are reported. seen: `Row.seen`."""
    predictions = read_predictions(make_prediction_path(setup.out, system.name, condition))
    label = f"{system.name}, {condition.label}"
    report_set_aside(predictions["failed"], f"{label} (their questions count as not answered)")
    scored = task.score(system, predictions)
    encoder = "" if "baseline" in system.card else setup.models
    facts = {"encoder": encoder} | ({"seen": seen} if seen else {})
    out, corpus, seed = setup.out, task.corpus, setup.distorter.seed
    write_scores(out, system.name, condition, scored.lines, corpus, predictions, **facts)
    rows = []
    intervals = measure_scores(scored.scores, task.metrics, scored.transcripts, corpus, seed)
    for metric, interval in intervals.items():
        row = Row.from_interval(
            interval,
            task=task.name,
            system=system.name,
            encoder=encoder,
            condition=condition.short,
            snr_db=condition.snr_db,
            metric=metric,
            seed=seed,
            card=hash_json(dict(system.card)),
            snr_over=predictions.get("snr_over", ""),
            seen=seen,
        )
        rows.append(row)
    return rows


def list_rounds(
    systems: Sequence[Any], conditions: Sequence[Condition], distorter: Distorter
) -> list[tuple[Condition, list[Any]]]:
    """List the systems of every condition; those that read text have clean speech alone.

    Raises InputError where all systems read text and no condition is clean, and for the conditions
    that `check_conditions` refuses.
    """
    check_conditions(conditions, distorter)
    rounds = []
    for condition in conditions:
        evaluated = [s for s in systems if condition.name == "clean" or s.needs_audio]
        if evaluated:
            rounds.append((condition, evaluated))
    if not rounds:
        names = ", ".join(s.name for s in systems)
        raise InputError(f"{names} read text, which noise does not change; add the condition clean")
    return rounds


def check_answerable(corpus: Corpus) -> None:
    """Raise InputError where no question has an answer."""
    if not corpus.answerable:
        raise InputError(
            f"no question of {corpus.root / corpus.split} has `answers` to compare with; mark some "
            "(text, or start and end), or ask without scores by `speechssl answer`"
        )


def find_recordings(corpus: Corpus, records: Iterable[Passage | Question]) -> list[Recording]:
    """List the recordings of records. That of a question that is only text has an error in the
    place of a path."""
    recordings = []
    for record in records:
        try:
            recordings.append(Recording(record.id, corpus.path(record), record))
        except InputError as error:
            recordings.append(Recording(record.id, error, record))
    return recordings


# ---- spoken question answering


def evaluate_qa(o: Qa) -> list[dict[str, Any]]:
    """Evaluate the systems, print the table, and return the rows of `o.out`. Raises InputError for
    systems, a corpus or conditions that do not exist."""
    with hold_output(o.out):
        print(run_evaluation(o))
        return list_rows(o.out)


def run_evaluation(o: Qa) -> str:
    """Evaluate, append the rows, and return the table of everything in `o.out`/results.jsonl."""
    if o.parts.dual is None:
        return _evaluate_models(o, model_folder(o.models))
    # the models are named after the reader, because two readers may have the same encoder
    label = o.label or "/".join(o.parts.dual.parts[-2:])
    with link_parts(o.parts) as folder:
        return _evaluate_models(replace(o, label=label), folder)


def _evaluate_models(o: Qa, folder: Path) -> str:
    """Evaluate the systems of a folder of models, and return the table."""
    conditions = [parse_condition(c) for c in o.conditions]
    names = o.systems or choose_default_systems(folder)
    data = take_first_passages(load_corpus(o.corpus, o.split), o.passages)
    check_answerable(data)  # before models are loaded
    if "cascade-given" in names and not any(r.transcript for r in data.records):
        raise InputError(
            f"{o.corpus / o.split} has no transcripts for cascade-given; use the system text"
        )
    systems = load_systems(
        folder, names, o.bf16, errors=o.errors, reading=o.reading, language=data.language
    )
    parts = [folder]
    if o.reading.reader:
        parts.append(find_reader(folder, o.reading.reader))
    setup = make_setup(o, o.label or name_models(folder), *parts)
    append_results(o.out, evaluate(systems, data, conditions, setup))
    sizes = {
        "system": len(systems),
        "condition": len(conditions),
        "question": len(data.answerable),
    }
    counts = ", ".join(describe_range([size], noun) for noun, size in sizes.items())
    unmarked = len(data.questions) - len(data.answerable)
    if unmarked:
        counts += f" ({unmarked} without `answers` were not asked)"
    summary = f"{o.out}: {counts}; next: `speechssl report {o.out} {o.corpus}`"
    return f"{make_results_table(o, conditions)}\n\n{summary}"


def name_models(folder: Path) -> str:
    """Return the name of a folder of models in rows: its own, with that of the folder around it
    unless this is models/."""
    if folder.parent.name in ("models", ""):
        return folder.name
    return f"{folder.parent.name}/{folder.name}"


def append_results(out: Path, rows: Sequence[Row]) -> None:
    """Add rows to `out`/results.jsonl; results of one model under two names become one row."""
    append_rows(out / "results.jsonl", rows, by_content=True)


def make_results_table(o: Conditions, conditions: Sequence[Condition]) -> str:
    """Make the table of everything in `o.out`/results.jsonl, with notes on the data."""
    table = format_results(read_rows(o.out / "results.jsonl"))
    noise = describe_snr(o.snr_over) if any(c.noisy for c in conditions) else ""
    return "\n\n".join(filter(None, [table, read_synthetic_note(o.corpus), noise]))


def evaluate(
    systems: Sequence[System],
    corpus: Corpus,
    conditions: Sequence[Condition],
    setup: Setup,
) -> list[Row]:
    """Evaluate systems under conditions and return the rows of results. Raises InputError as
    `list_rounds` does."""
    task = SpokenQa(corpus)
    rounds = list_rounds(systems, conditions, setup.distorter)
    if any(s.needs_audio for s in systems):
        task.warn_of_gaps(systems)
    return evaluate_task(task, rounds, setup)


class SpokenQa(Task):
    """Systems find the span of the answer. A cascade takes the text of a question that has no
    recording, as `QA` does; other systems cannot answer it."""

    name = "qa"
    metrics = METRICS

    def __init__(self, corpus: Corpus) -> None:
        super().__init__(corpus)
        self.questions = [q.id for q in corpus.answerable]
        self.records: list[Passage | Question] = [
            *list_asked_passages(corpus),
            *corpus.answerable,
        ]
        # the questions that have no recording, by id
        self.text_only = {q.id: q for q in corpus.answerable if not q.audio and q.text.strip()}

    def list_recordings(self) -> list[Recording]:
        return find_recordings(self.corpus, self.records)

    def choose_recordings(self, system: System) -> Collection[str]:
        names = {record.id for record in self.records}
        return names - self.text_only.keys() if _has_recogniser(system) else names

    def predict(self, system: System, features: Mapping[str, Any], where: str) -> Rows:
        if _has_recogniser(system):
            written = {}
            for name, question in self.text_only.items():
                written[name] = split_into_words(question.text, question.language)
            features = {**features, **written}
        return answer_questions(system, self.corpus, features, where)

    def score(self, system: System, predictions: Mapping[str, Any]) -> Scored:
        scores = score_questions(predictions, self.corpus)
        transcripts = predictions["transcripts"]
        return Scored(scores, make_question_lines(scores, self.corpus, transcripts), transcripts)

    def warn_of_gaps(self, systems: Sequence[System]) -> None:
        """Warn on stderr of questions without a recording, and where no answer has times. Raises
        InputError where no answer has times and all systems need them."""
        corpus = self.corpus
        if self.text_only:
            print(
                f"{len(self.text_only)} of the questions have no recording: cascades read what is "
                "written, other systems cannot be asked",
                file=sys.stderr,
            )
        if any(a.start is not None for q in corpus.answerable for a in q.answers):
            return
        message = "no answer has times, which FF1 and AOS need; `speechssl align` finds them"
        gives_text = any(isinstance(s, CascadeSystem) or not s.needs_audio for s in systems)
        if not gives_text and any(r.audio for r in self.records):
            raise InputError(f"{corpus.root / corpus.split}: {message}")
        print(message, file=sys.stderr)


def _has_recogniser(system: System) -> bool:
    """Return whether a system is a cascade with a recogniser."""
    return isinstance(system, CascadeSystem) and system.needs_audio


def list_asked_passages(corpus: Corpus) -> list[Passage]:
    """List the passages that have an answerable question."""
    ids = {q.passage for q in corpus.answerable}
    return [p for p in corpus.passages.values() if p.id in ids]
