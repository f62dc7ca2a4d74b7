"""Multiple choice: systems x conditions on the questions of a split that have options.

Passages, questions and options are all distorted, and encoded once in every condition. Every system under every condition leaves
`predictions/<system>/<condition>.json` and `scores/<system>/<condition>.jsonl`, a line a question; `eval.run` has the loop.
Baselines, and systems that read only what is written, are evaluated once, in the condition clean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.data import Transcript
from speechssl.data.records import Corpus, first_passages, load_corpus
from speechssl.errors import InputError
from speechssl.eval.config import Choice
from speechssl.eval.run import Encoding, check_conditions
from speechssl.eval.scores import choice_lines
from speechssl.eval.spoken_qa import check_names, find_recordings, keep_lines, predict_missing, prediction_path, rows_of
from speechssl.eval.tables import results_table
from speechssl.io import read_json
from speechssl.multiple_choice.data import written
from speechssl.multiple_choice.decode import chosen, longest_options, score_chance, score_choice
from speechssl.multiple_choice.system import Baseline, ChoiceSystem, EncodedQuestion, WrittenChoice, load_choice_systems
from speechssl.results import Row, append_rows, read_rows
from speechssl.signal import snr_note

CLEAN = parse_condition("clean")
BATCH = 16  # questions whose options are scored together


def run_choice(o: Choice) -> str:
    """Evaluate, append the rows, and return the table of everything in `o.out`/results.jsonl."""
    conditions = [parse_condition(c) for c in o.conditions]
    data = first_passages(load_corpus(o.corpus, o.split), o.passages)
    loaded, folder = load_choice_systems(o.models, o.systems, o.bf16), Path(o.models)
    name = f"{folder.parent.name}/{folder.name}".lstrip("/")
    distorter = Distorter(o.seed, o.voices, snr_over=o.snr_over)
    append_rows(o.out / "results.jsonl", evaluate_choice(loaded, data, conditions, o.out, distorter, o.workers, name))
    note = snr_note(o.snr_over) if any(c.noisy for c in conditions) else ""
    return "\n\n".join(filter(None, [results_table(read_rows(o.out / "results.jsonl")), note]))


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
            f"{corpus.root / corpus.split} has no question with options and a right one; give a multiple-choice corpus"
        )
    check_conditions(conditions, distorter)
    check_names(systems, out)
    listening = [s for s in systems if not isinstance(s, (Baseline, WrittenChoice))]
    others = [s for s in systems if isinstance(s, (Baseline, WrittenChoice))]
    asked = {q.passage for q in corpus.choices}
    recordings = find_recordings(corpus, [*(p for p in corpus.passages.values() if p.id in asked), *corpus.choices])
    for question in corpus.choices:
        if question.option_audio:
            recordings |= {
                name: corpus.root / audio for name, audio in zip(question.option_ids, question.option_audio, strict=True)
            }
        else:
            why = f"the options of {question.id} are text only; prepare the corpus with --speak, or take systems that read (text)"
            recordings |= dict.fromkeys(question.option_ids, InputError(why))

    def encoding(system: ChoiceSystem) -> Encoding[str] | None:
        return None if isinstance(system, (Baseline, WrittenChoice)) else Encoding(lambda _, samples: system.encode(None, samples))

    rows: list[Row] = []
    for condition, some in [(CLEAN, others)] * bool(others) + [(c, listening) for c in conditions if listening]:
        for system in some:
            file = prediction_path(out, system, condition)
            if file.is_file() and read_json(file).get("what") != "choice":
                raise InputError(
                    f"{file} has answers that are spans, from `evaluate qa`; choose another folder for multiple choice"
                )
        made = predict_missing(
            some,
            corpus,
            [q.id for q in corpus.choices],
            recordings,
            encoding,
            lambda s, features, where=condition: _choose(s, corpus, features, where),  # type: ignore[misc]
            condition,
            out,
            distorter,
            workers,
            {"what": "choice"},
        )
        for system, predictions in made:
            choices = predictions["choices"]  # None: all sets alike; a question that could not be answered scores 0
            scored = [
                score_chance(q) if choices.get(q.id, ()) is None else score_choice(q, choices.get(q.id, ())) for q in corpus.choices
            ]
            transcripts = predictions["transcripts"]
            if isinstance(system, WrittenChoice):  # its transcript is what it reads
                transcripts = {q.passage: written(corpus.passages[q.passage], system.source) for q in corpus.choices}
            encoder = "" if isinstance(system, Baseline) else encoder_name
            metrics = ("set_accuracy", "accuracy")
            rows += rows_of(scored, metrics, transcripts, corpus, condition, system, distorter.seed, encoder)
            keep_lines(out, choice_lines(scored, corpus, transcripts), predictions, corpus, condition, system)
    return rows


def _choose(system: ChoiceSystem, corpus: Corpus, features: Mapping[str, Any], condition: Condition) -> dict[str, Any]:
    """Log-probabilities and choices of every question that could be answered, and the transcripts of a recogniser."""
    if isinstance(system, Baseline):
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
