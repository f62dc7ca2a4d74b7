"""Multiple choice: systems x conditions on the questions of a split that have options.

Passages, questions and options are all distorted, and encoded once in every condition. Every system under every condition leaves
`predictions/<system>/<condition>.json` and `scores/<system>/<condition>.jsonl`, a line a question; `eval.run` has the loop.
Baselines, and systems that read only what is written, are evaluated once, in the condition clean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.words import Transcript
from speechssl.data.records import Corpus, Passage, Question, data_hash, first_passages, load_corpus
from speechssl.errors import InputError, tell_set_aside
from speechssl.eval.run import Encoded, Encoding, ResultFile, check_conditions, encode_recordings, evaluate_files
from speechssl.eval.scores import choice_lines, write_lines
from speechssl.eval.spoken_qa import check_names, mean_score, prediction_path, recogniser_name, rows_of, word_error_interval
from speechssl.io import hash_json, read_json
from speechssl.multiple_choice.data import written
from speechssl.multiple_choice.decode import ScoredChoice, chosen, longest_options, score_chance, score_choice
from speechssl.multiple_choice.system import (
    Baseline,
    ChoiceSystem,
    EncodedQuestion,
    WrittenChoice,
    load_choice_systems,
)
from speechssl.results import Row, append_rows, read_rows, table
from speechssl.signal import ACTIVE, snr_note
from speechssl.stats import Interval
from speechssl.text import error_metric

CLEAN = parse_condition("clean")
BATCH = 16  # questions whose options are scored together


def run_choice(
    corpus: Path,
    out: Path,
    models: str,
    systems: Sequence[str],
    conditions: Sequence[str],
    split: str = "dev",
    passages: int | None = None,
    voices: Sequence[Path] = (),
    seed: int = 0,
    workers: int = 2,
    bf16: bool = False,
    snr_over: str = ACTIVE,
) -> str:
    """Evaluate, append the rows, and return the table of everything in `out`/results.jsonl."""
    parsed = [parse_condition(c) for c in conditions]
    data = first_passages(load_corpus(corpus, split), passages)
    loaded = load_choice_systems(models, systems, bf16)
    folder = Path(models)
    name = f"{folder.parent.name}/{folder.name}".lstrip("/")
    distorter = Distorter(seed, tuple(voices), snr_over=snr_over)
    append_rows(out / "results.jsonl", evaluate_choice(loaded, data, parsed, out, distorter, workers, name))
    note = snr_note(snr_over) if any(c.noisy for c in parsed) else ""
    return "\n\n".join(filter(None, [table(read_rows(out / "results.jsonl")), note]))


def evaluate_choice(
    systems: Sequence[ChoiceSystem],
    corpus: Corpus,
    conditions: Sequence[Condition],
    out: Path,
    distorter: Distorter,
    workers: int = 2,
    encoder_name: str = "",
) -> list[Row]:
    """Fill in the predictions that are missing and return the rows of all of them. Raises InputError without questions, and where
    `out` holds answers that are spans, which would be lost.
    """
    if not corpus.choices:
        raise InputError(
            f"{corpus.root / corpus.split} has no question with options and right ones among them; give a multiple-choice corpus"
        )
    check_conditions(conditions, [c.label for c in conditions], distorter)
    check_names(systems, out)
    written_only = [s for s in systems if isinstance(s, (Baseline, WrittenChoice))]
    listening = [s for s in systems if not isinstance(s, (Baseline, WrittenChoice))]
    runs = [(CLEAN, written_only)] * bool(written_only) + [(c, listening) for c in conditions if listening]
    rows: list[Row] = []
    for condition, some in runs:
        for system, predictions in zip(some, _predictions(some, corpus, condition, out, distorter, workers), strict=True):
            tell_set_aside(predictions["failed"], f"{system.name}, {condition.label} (their questions count as not answered)")
            rows += _score(predictions, corpus, condition, system, out, distorter.seed, encoder_name)
    return rows


def _predictions(
    systems: Sequence[ChoiceSystem], corpus: Corpus, condition: Condition, out: Path, distorter: Distorter, workers: int
) -> list[dict[str, Any]]:
    """What the files of all systems in one condition hold, made where it is missing."""
    by_name = {s.name: s for s in systems}
    recordings = _recordings(corpus)
    data, ids = data_hash(corpus.root, corpus.split), [q.id for q in corpus.choices]
    inputs = [data, ids, asdict(condition), distorter.sources(condition), distorter.seed]
    files = []
    for system in systems:
        path = prediction_path(out, system, condition)
        if path.is_file() and read_json(path).get("what") != "choice":
            raise InputError(f"{path} holds answers that are spans, from `evaluate qa`; evaluate choices into another folder")
        made_from = hash_json(["choice", dict(system.card), *inputs])
        files.append(ResultFile(system.name, path, made_from, f"{system.name}, {condition.label}"))

    def read(name: str) -> np.ndarray:
        path = recordings[name]
        if isinstance(path, InputError):
            raise path
        return read_audio(path)

    def encode(missing: Sequence[ResultFile]) -> Mapping[str, Encoded[str]]:
        some = [by_name[file.system] for file in missing]
        encodings = {
            s.name: Encoding(lambda _, samples, s=s: s.encode(None, samples))  # type: ignore[misc]
            for s in some
            if not isinstance(s, (Baseline, WrittenChoice))
        }
        if not encodings:
            return {}
        what = f"encoding, {condition.label}"
        return encode_recordings(recordings, read, lambda x, i: distorter.apply(x, condition, i), encodings, workers, what)

    def predict(file: ResultFile, features: Mapping[str, Any]) -> dict[str, Any]:
        system = by_name[file.system]
        made = {"what": "choice", "data": data, **distorter.card(condition), "recogniser": recogniser_name(system)}
        return made | _choose(system, corpus, features, condition)

    return evaluate_files(files, encode, predict)


def _recordings(corpus: Corpus) -> dict[str, Path | InputError]:
    """Of all that is asked: name -> file, or why there is none."""
    asked = {q.passage for q in corpus.choices}
    found: dict[str, Path | InputError] = {}
    records: list[Passage | Question] = [*(p for p in corpus.passages.values() if p.id in asked), *corpus.choices]
    for record in records:
        try:
            found[record.id] = corpus.path(record)
        except InputError as error:
            found[record.id] = error
    for question in corpus.choices:
        if question.option_audio:
            found |= {name: corpus.root / audio for name, audio in zip(question.option_ids, question.option_audio, strict=True)}
        else:
            why = f"the options of {question.id} are text only; prepare the corpus with --speak, or take systems that read (text)"
            found |= dict.fromkeys(question.option_ids, InputError(why))
    return found


def _choose(system: ChoiceSystem, corpus: Corpus, features: Mapping[str, Any], condition: Condition) -> dict[str, Any]:
    """Log-probabilities and choices of every question that could be answered, and the transcripts of a recogniser."""
    if isinstance(system, Baseline):  # None: all sets alike
        choices = {q.id: longest_options(q) if system.name == "longest-option" else None for q in corpus.choices}
        return {"choices": choices, "scores": {}, "transcripts": {}}
    reads = isinstance(system, WrittenChoice)
    questions = [q for q in corpus.choices if reads or all(i in features for i in (q.id, q.passage, *q.option_ids))]
    scores: list[np.ndarray] = []
    starts = range(0, len(questions), BATCH)
    for start in tqdm(starts, f"{system.name} chooses, {condition.label}", unit="batch", disable=not starts):
        some = questions[start : start + BATCH]
        if isinstance(system, WrittenChoice):
            scores += system.score_written([(q, corpus.passages[q.passage]) for q in some])
        else:
            options = [tuple(features[i] for i in q.option_ids) for q in some]
            scores += system.score_all(
                [EncodedQuestion(features[q.id], o, features[q.passage]) for q, o in zip(some, options, strict=True)]
            )
    found = dict(zip(questions, scores, strict=True))
    return {
        "choices": {q.id: chosen(s, len(q.correct)) for q, s in found.items()},
        "scores": {q.id: [round(float(x), 5) for x in s] for q, s in found.items()},
        "transcripts": {i: x.text for i, x in features.items() if isinstance(x, Transcript)},
    }


def score_choices(predictions: Mapping[str, Any], corpus: Corpus) -> list[ScoredChoice]:
    """Every multiple-choice question; one that could not be answered scores 0."""
    choices = predictions["choices"]
    return [score_chance(q) if choices.get(q.id, ()) is None else score_choice(q, choices.get(q.id, ())) for q in corpus.choices]


def _score(
    predictions: Mapping[str, Any], corpus: Corpus, condition: Condition, system: ChoiceSystem, out: Path, seed: int, encoder: str
) -> list[Row]:
    """Rows in percent with 95 % bootstrap intervals (`passage_units` says what is drawn); one voice or passage has none.

    Writes the lines that `compare` reads.
    """
    scored = score_choices(predictions, corpus)
    transcripts = predictions["transcripts"]
    if isinstance(system, WrittenChoice):  # its transcript is what it reads
        transcripts = {q.passage: written(corpus.passages[q.passage], system.source) for q in corpus.choices}
    made = {name: predictions[name] for name in ("made_from", "data", "seed", "snr_over") if name in predictions}
    made |= {"condition": condition.short, "snr_db": condition.snr_db}
    stem = prediction_path(out, system, condition).stem
    write_lines(out, system.name, stem, choice_lines(scored, corpus, transcripts), corpus, made)
    values: dict[str, Interval | None] = {m: mean_score(corpus, scored, m, seed) for m in ("set_accuracy", "accuracy")}
    asked = {q.passage for q in corpus.choices}
    passages = [p for p in corpus.passages.values() if p.id in asked & transcripts.keys() and p.text]
    if passages:
        values[error_metric(passages[0].language)] = word_error_interval(corpus, passages, transcripts, seed)
    return rows_of(values, system, "" if isinstance(system, Baseline) else encoder, condition, seed)
