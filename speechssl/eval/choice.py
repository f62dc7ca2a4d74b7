"""Systems x conditions on the multiple-choice questions of a split: predictions on disk, rows for the table.

Passages, questions and options are all distorted, and heard once in every condition. Every (system, condition) leaves
`predictions/<system>/<condition>.json` and `scores/<system>/<condition>.jsonl`, which has a line a question; a killed run goes on
with the next one. What reads only what is written, or nothing, is evaluated once, in the condition clean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.words import Transcript
from speechssl.data.records import Corpus, Passage, Question, data_hash, first_passages, load_corpus
from speechssl.data.voices import passage_units
from speechssl.errors import InputError, tell_set_aside
from speechssl.eval.scores import choice_lines, write_lines
from speechssl.eval.spoken_qa import Unheard, check_names, prediction_path, recogniser_name, word_error_interval
from speechssl.io import hash_json, read_json, write_json
from speechssl.multiple_choice.model import chosen
from speechssl.multiple_choice.system import (
    Baseline,
    ChoiceSystem,
    EncodedQuestion,
    ScoredChoice,
    SpokenChoice,
    WrittenChoice,
    load_choice_systems,
    longest_options,
    score_chance,
    score_choice,
)
from speechssl.multiple_choice.train import written
from speechssl.results import Row, append_rows, read_rows, table
from speechssl.signal import ACTIVE, snr_note
from speechssl.stats import Interval, mean_interval
from speechssl.text import error_metric
from speechssl.units.extract import single_threaded

CLEAN = parse_condition("clean")
AT_ONCE = 16  # questions whose options are scored together


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
    """Fill in the predictions that are missing and return the rows of all of them. Raises InputError without questions."""
    if not corpus.choices:
        raise InputError(
            f"{corpus.root / corpus.split} has no question with options and right ones among them; give a multiple-choice corpus"
        )
    for condition in conditions:
        distorter.check(condition)
    if len({c.label for c in conditions}) < len(conditions):
        raise InputError("two conditions have the same name; rename a noise file, or evaluate them one by one into two folders")
    check_names(systems, out)
    hearers = [s for s in systems if not isinstance(s, (Baseline, WrittenChoice))]
    others = [s for s in systems if isinstance(s, (Baseline, WrittenChoice))]
    run = Run(corpus, out, distorter, workers, encoder_name)
    rows = run.rows(others, CLEAN) if others else []
    for condition in conditions if hearers else ():
        rows += run.rows(hearers, condition)
    return rows


@dataclass(frozen=True)
class Run:
    """What is the same for all systems and conditions of an evaluation."""

    corpus: Corpus
    out: Path
    distorter: Distorter
    workers: int
    encoder_name: str

    @property
    def data(self) -> str:
        return data_hash(self.corpus.root, self.corpus.split)

    def rows(self, systems: Sequence[ChoiceSystem], condition: Condition) -> list[Row]:
        """Of systems of one kind: those that hear, or those that do not."""
        missing = [s for s in systems if not self._is_done(s, condition)]
        hearing = [s for s in missing if not isinstance(s, (Baseline, WrittenChoice))]
        found = self._hear(hearing, condition) if hearing else {}
        deaf = None
        for system in missing:
            mine = {i: h[system.name] for i, h in found.items() if not isinstance(h[system.name], Unheard)}
            failed = {i: h[system.name].reason for i, h in found.items() if i not in mine}
            if failed and not mine:
                first = next(iter(failed.values()))
                where = f"none of the {len(failed)} recordings could be heard in the condition {condition.label}"
                deaf = deaf or InputError(f"{system.name}: {where} ({first})")
                continue
            self._write(system, condition, self._predicted(system, mine, condition), failed)
        if deaf:
            raise deaf  # when the others are kept
        return [row for system in systems for row in self._scored(system, condition)]

    def _made_from(self, system: ChoiceSystem, condition: Condition) -> str:
        ids = [q.id for q in self.corpus.choices]
        noise = [asdict(condition), self.distorter.sources(condition), self.distorter.seed]
        return hash_json(["choice", dict(system.card), self.data, ids, *noise])

    def _is_done(self, system: ChoiceSystem, condition: Condition) -> bool:
        """Whether these predictions exist. Those with recordings that could not be read are made again.

        Raises InputError where they are answers to other questions than which option is right: they would be lost.
        """
        path = prediction_path(self.out, system, condition)
        if not path.is_file():
            return False
        there = read_json(path)
        if there.get("what") != "choice":
            raise InputError(f"{path} holds answers that are spans, from `evaluate qa`; evaluate choices into another folder")
        return there.get("made_from") == self._made_from(system, condition) and not there.get("failed")

    def _hear(self, systems: Sequence[SpokenChoice], condition: Condition) -> dict[str, dict[str, Any]]:
        """What every system hears in every recording, once, by name of the recording and system; `Unheard` where it cannot."""

        def one(item: tuple[str, Path | InputError]) -> dict[str, Any]:
            name, path = item
            samples: np.ndarray | Unheard
            try:
                if isinstance(path, InputError):
                    raise path
                samples = self.distorter.apply(read_audio(path), condition, name)
            except (InputError, ValueError) as error:
                samples = Unheard(str(error))
            return {s.name: _heard(s, samples) for s in systems}

        recordings = _recordings(self.corpus)
        with single_threaded(self.workers) as pool:
            bar = tqdm(pool.map(one, recordings.items()), total=len(recordings), desc=f"hearing, {condition.label}", unit="file")
            return dict(zip(recordings, bar, strict=True))

    def _predicted(self, system: ChoiceSystem, heard: Mapping[str, Any], condition: Condition) -> dict[str, Any]:
        """Log-probabilities and choices of every question that could be answered, and what a recogniser made of everything."""
        if isinstance(system, Baseline):
            return {"choices": _baseline(system, self.corpus), "scores": {}, "transcripts": {}}
        names = {q.id: (q.passage, *q.option_ids) for q in self.corpus.choices}
        written = isinstance(system, WrittenChoice)
        questions = [q for q in self.corpus.choices if written or all(n in heard for n in (q.id, *names[q.id]))]
        scores: list[np.ndarray] = []
        starts = range(0, len(questions), AT_ONCE)
        for start in tqdm(starts, f"{system.name} chooses, {condition.label}", unit="batch", disable=not starts):
            some = questions[start : start + AT_ONCE]
            if isinstance(system, WrittenChoice):
                scores += system.score_written([(q, self.corpus.passages[q.passage]) for q in some])
            else:
                kept = [(heard[q.id], tuple(heard[i] for i in q.option_ids), heard[q.passage]) for q in some]
                scores += system.score_all([EncodedQuestion(*k) for k in kept])
        found = dict(zip(questions, scores, strict=True))
        return {
            "choices": {q.id: chosen(s, len(q.correct)) for q, s in found.items()},
            "scores": {q.id: [round(float(x), 5) for x in s] for q, s in found.items()},
            "transcripts": {i: h.text for i, h in heard.items() if isinstance(h, Transcript)},
        }

    def _write(self, system: ChoiceSystem, condition: Condition, predicted: dict[str, Any], failed: Mapping[str, str]) -> None:
        made = {"what": "choice", "made_from": self._made_from(system, condition), "data": self.data}
        made |= self.distorter.card(condition) | {"recogniser": recogniser_name(system)}
        write_json(prediction_path(self.out, system, condition), made | predicted | {"failed": dict(failed)})

    def _scored(self, system: ChoiceSystem, condition: Condition) -> list[Row]:
        """Rows in percent with 95 % bootstrap intervals (`passage_units` says what is drawn); one voice or passage has none."""
        path = prediction_path(self.out, system, condition)
        predictions = read_json(path)
        tell_set_aside(predictions["failed"], f"{system.name}, {condition.label} (their questions count as not answered)")
        scored = score_choices(predictions, self.corpus)
        transcripts = self._read(system) if isinstance(system, WrittenChoice) else predictions["transcripts"]
        made = {name: predictions[name] for name in ("made_from", "data", "seed", "snr_over") if name in predictions}
        made |= {"condition": condition.short, "snr_db": condition.snr_db}
        write_lines(self.out, system.name, path.stem, choice_lines(scored, self.corpus, transcripts), self.corpus, made)
        values = {"set_accuracy": self._mean(scored, "set_accuracy")}
        if any(s.accuracy is not None for s in scored):
            values["accuracy"] = self._mean(scored, "accuracy")
        values |= self._errors(transcripts)
        card = hash_json(dict(system.card))
        heard = "" if isinstance(system, Baseline) else self.encoder_name
        label, snr, seed = condition.short, condition.snr_db, self.distorter.seed

        def row(metric: str, v: Interval) -> Row:
            return Row(system.name, heard, label, snr, metric, v.value, *v.ends, v.n, seed, card, v.drawn, v.groups)

        return [row(metric, interval.percent) for metric, interval in values.items()]

    def _read(self, system: WrittenChoice) -> dict[str, str]:
        """What a system that does not listen reads of every passage."""
        return {q.passage: written(self.corpus.passages[q.passage], system.source) for q in self.corpus.choices}

    def _mean(self, scored: Sequence[ScoredChoice], metric: str) -> Interval:
        column = [(getattr(s, metric), s.passage) for s in scored if getattr(s, metric) is not None]
        units = passage_units(self.corpus, [passage for _, passage in column])
        return mean_interval([value for value, _ in column], units, self.distorter.seed)

    def _errors(self, transcripts: Mapping[str, str]) -> dict[str, Interval]:
        """WER (zh: CER) over the passages; nothing where no text or no transcript is known."""
        asked = {q.passage for q in self.corpus.choices}
        passages = [p for p in self.corpus.passages.values() if p.id in asked & transcripts.keys() and p.text]
        if not passages:
            return {}
        interval = word_error_interval(self.corpus, passages, transcripts, self.distorter.seed)
        return {error_metric(passages[0].language): interval}


def _heard(system: SpokenChoice, samples: np.ndarray | Unheard) -> Any:
    """What a system keeps of a recording. samples: (N,) float32 at 16 kHz, or why there are none."""
    if isinstance(samples, Unheard):
        return samples
    try:
        return system.encode(None, samples)
    except (InputError, ValueError) as error:
        return Unheard(str(error))


def score_choices(predictions: Mapping[str, Any], corpus: Corpus) -> list[ScoredChoice]:
    """Every multiple-choice question; one that could not be answered scores 0."""
    choices = predictions["choices"]
    return [score_chance(q) if choices.get(q.id, ()) is None else score_choice(q, choices.get(q.id, ())) for q in corpus.choices]


def _baseline(system: Baseline, corpus: Corpus) -> dict[str, Any]:
    """None: all sets alike."""
    return {q.id: longest_options(q) if system.name == "longest-option" else None for q in corpus.choices}


def _recordings(corpus: Corpus) -> dict[str, Path | InputError]:
    """Of all that is asked: name -> file, or why there is none."""
    asked = {q.passage for q in corpus.choices}
    records: list[Passage | Question] = [*(p for p in corpus.passages.values() if p.id in asked), *corpus.choices]
    found: dict[str, Path | InputError] = {record.id: _file(corpus, record) for record in records}
    for question in corpus.choices:
        found |= _option_files(corpus, question)
    return found


def _file(corpus: Corpus, record: Passage | Question) -> Path | InputError:
    try:
        return corpus.path(record)
    except InputError as error:
        return error


def _option_files(corpus: Corpus, question: Question) -> dict[str, Path | InputError]:
    if not question.option_audio:
        why = f"the options of {question.id} are text only; prepare the corpus with --speak, or take systems that read (text)"
        return dict.fromkeys(question.option_ids, InputError(why))
    return {name: corpus.root / audio for name, audio in zip(question.option_ids, question.option_audio, strict=True)}
