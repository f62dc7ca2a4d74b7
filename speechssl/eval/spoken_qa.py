"""One evaluation from the command line: systems by name, conditions by name, rows into `results.jsonl`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.confusions import confusions_card
from speechssl.cascade.system import PREFIX as SIMULATED
from speechssl.cascade.words import Transcript
from speechssl.data.records import Corpus, Passage, Question, data_hash, first_passages, load_corpus, synthetic_note
from speechssl.data.voices import passage_units
from speechssl.errors import InputError, tell_set_aside
from speechssl.eval.metrics import WordErrors, exact_match, frame_f1, overlap_score, token_f1, word_error_rate
from speechssl.eval.scores import write_scores
from speechssl.io import hash_files, hash_json, model_folder, read_json, write_json
from speechssl.results import Row, append_rows, read_rows, table
from speechssl.signal import ACTIVE, snr_note
from speechssl.stats import Interval, mean_interval, ratio_interval
from speechssl.systems import confusions_path, load_systems
from speechssl.text import error_metric

if TYPE_CHECKING:  # the report scores what was answered, and starts without torch
    from speechssl.dual.system import TimedAnswer
    from speechssl.systems import System


# Systems and their folders of predictions: a cascade is called by the last part of its recogniser's name, as others may be.


class Named(Protocol):
    """What has answered, as far as its scores are concerned."""

    @property
    def name(self) -> str: ...
    @property
    def card(self) -> Mapping[str, Any]: ...


def recogniser_name(system: Named) -> str | None:
    """The hub id or folder of the recogniser that a cascade is called by; None for any other system.

    One that was trained again lies where it did, so that this tells recognisers apart and not their weights.
    """
    full = system.card.get("asr")
    return full if isinstance(full, str) and system.name == f"cascade-{Path(full).name}" else None


def check_names(systems: Sequence[Named], out: Path) -> None:
    """Raises InputError where different systems would share a folder of predictions in `out`, now or with an earlier evaluation.

    Predictions that do not say whose they are (of earlier versions) are nobody's.
    """
    first: dict[str, Named] = {}
    for system in systems:
        other = first.setdefault(system.name, system)
        if dict(other.card) != dict(system.card):
            raise InputError(
                f"{recogniser_name(other) or other.name} and {recogniser_name(system) or system.name} would both be called "
                f"{system.name}; evaluate them one by one into two folders"
            )
    for system in first.values():
        if system.name.startswith("cascade-"):
            mine = recogniser_name(system)
            for path in sorted((out / "predictions" / system.name).glob("*.json")):
                theirs = read_json(path).get("recogniser", mine)
                if not _same(theirs, mine):
                    asked = mine or "that of the models"
                    raise InputError(
                        f"{path} was made with {_told(theirs)}, and {asked} would be called {system.name} as well; "
                        "evaluate it into another folder"
                    )


def _told(name: str | None) -> str:
    return f"the recogniser {name}" if name else "that of the models"


def _same(one: str | None, other: str | None) -> bool:
    """Whether two names are of one recogniser: a folder has several paths."""
    if one is None or other is None:
        return one is other
    return one == other or (Path(one).exists() and Path(other).exists() and Path(one).samefile(other))


# Systems x conditions on the answerable questions of a split: predictions on disk, rows for the table.
#
# Every (system, condition) leaves one file, `predictions/<system>/<condition>.json`, whole or not at all; a killed run goes on with
# the next one. Passages and questions are both distorted. Systems that share an encoder hear the same samples and encode them once.


BUCKETS = ((0.0, 0.5), (0.5, 1.0), (1.0, 2.0), (2.0, float("inf")))  # seconds; answers of NMSQA: median 1.1


def evaluate(
    systems: Sequence[System],
    corpus: Corpus,
    conditions: Sequence[Condition],
    out: Path,
    distorter: Distorter,
    workers: int = 2,
    encoder_name: str = "",
) -> list[Row]:
    """Fill in the predictions that are missing and return the rows of all of them. Raises InputError without questions."""
    if not corpus.answerable:
        raise InputError(f"{corpus.root / corpus.split} has no answerable question; there is nothing to evaluate")
    rows: list[Row] = []
    for condition in conditions:
        distorter.check(condition)
    if not any(map(listens, systems)) and all(c.name != "clean" for c in conditions):
        names = ", ".join(s.name for s in systems)
        raise InputError(f"{names} read what is written, which noise does not change; evaluate them in the condition clean")
    check_names(systems, out)
    if twins := [c.label for i, c in enumerate(conditions) if c.label in {d.label for d in conditions[:i]}]:
        raise InputError(
            f"two conditions are both called {twins[0]!r}; rename a noise file, or evaluate them one by one into two folders"
        )
    for condition in conditions:
        present = [s for s in systems if condition.name == "clean" or listens(s)]  # noise does not change what is written
        missing = [s for s in present if not _is_done(prediction_path(out, s, condition), s, corpus, condition, distorter)]
        if missing:
            _run(missing, corpus, condition, out, distorter, workers)
        for system in present:
            predictions = read_json(prediction_path(out, system, condition))
            tell_set_aside(predictions["failed"], f"{system.name}, {condition.label} (their questions count as not answered)")
            rows += score(predictions, corpus, condition, system, distorter.seed, encoder_name)
            keep_scores(out, predictions, corpus, condition, system, encoder_name)
    return rows


def keep_scores(
    out: Path, predictions: Mapping[str, Any], corpus: Corpus, condition: Condition, system: Named, encoder: str
) -> None:
    """What `compare` reads."""
    card = {name: predictions[name] for name in ("made_from", "data", "seed", "snr_over") if name in predictions}
    card |= {"condition": condition.short, "snr_db": condition.snr_db, "encoder": encoder}
    name = prediction_path(out, system, condition).stem
    write_scores(out, system.name, name, score_questions(predictions, corpus), corpus, predictions, card)


def prediction_path(out: Path, system: Named, condition: Condition) -> Path:
    return out / "predictions" / system.name / f"{condition.label.replace(' ', '-')}.json"


def _made_from(system: System, corpus: Corpus, condition: Condition, distorter: Distorter) -> str:
    ids = [q.id for q in corpus.answerable]
    data = data_hash(corpus.root, corpus.split)
    return hash_json([dict(system.card), data, ids, asdict(condition), distorter.sources(condition), distorter.seed])


def _is_done(path: Path, system: System, corpus: Corpus, condition: Condition, distorter: Distorter) -> bool:
    """Whether these predictions exist. Those with recordings that could not be read are made again: they may have been mended."""
    if not path.is_file():
        return False
    there = read_json(path)
    return there.get("made_from") == _made_from(system, corpus, condition, distorter) and not there.get("failed")


def _run(systems: Sequence[System], corpus: Corpus, condition: Condition, out: Path, distorter: Distorter, workers: int) -> None:
    found, deaf = _hear(systems, corpus, condition, distorter, workers), None
    for system in systems:
        mine = {i: h[system.name] for i, h in found.items() if not isinstance(h[system.name], Unheard)}
        failed = {i: h[system.name].reason for i, h in found.items() if i not in mine}
        if not mine:
            first = next(iter(failed.values()))
            deaf = deaf or InputError(
                f"{system.name}: none of the {len(failed)} recordings could be heard in the condition {condition.label} ({first}); "
                f"mend them"
            )
            continue
        write_json(
            prediction_path(out, system, condition),
            {
                "made_from": _made_from(system, corpus, condition, distorter),
                "data": data_hash(corpus.root, corpus.split),
                **distorter.card(condition),
                "recogniser": recogniser_name(system),
                **answered(system, corpus, mine, condition.label),
                "failed": failed,
            },
        )
    if deaf:
        raise deaf  # when the others are kept


def answered(system: System, corpus: Corpus, heard: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """The answers and transcripts of one system. heard: what it kept of every recording, by id; where: for the progress bar."""
    questions = [q for q in corpus.answerable if q.id in heard and q.passage in heard]
    items = [(heard[q.id], heard[q.passage]) for q in questions]
    answers: list[TimedAnswer] = []
    for start in tqdm(range(0, len(items), 64), desc=f"{system.name} answers, {where}", unit="batch", disable=not items):
        answers += system.answer_all(items[start : start + 64])
    return {
        "answers": {q.id: _plain(a) for q, a in zip(questions, answers, strict=True)},
        "transcripts": {i: h.text for i, h in heard.items() if isinstance(h, Transcript)},
    }


def listens(system: System) -> bool:
    """Whether a system needs audio."""
    return system.needs_audio


@dataclass(frozen=True)
class Unheard:
    """What a system could not hear or read, and why."""

    reason: str


def _heard(system: System, record: Passage | Question, samples: np.ndarray | Unheard | None) -> Any:
    """What a system keeps of a record. samples: (N,) float32 at 16 kHz, why there are none, or None where no system listens."""
    if not listens(system):
        samples = None
    if isinstance(samples, Unheard):
        return samples
    try:
        return system.encode(record, samples)
    except (InputError, ValueError) as error:
        return Unheard(str(error))


def _plain(answer: TimedAnswer) -> dict[str, Any]:
    """As JSON; times that nobody knows are null."""
    return {name: None if value != value else value for name, value in asdict(answer).items()}


def _hear(
    systems: Sequence[System], corpus: Corpus, condition: Condition, distorter: Distorter, workers: int
) -> dict[str, dict[str, Any]]:
    """What every system hears in every recording, by id and system; `Unheard` where it cannot, which is nothing to the others."""
    from speechssl.units.extract import single_threaded

    listening = any(map(listens, systems))
    records: list[Passage | Question] = [*asked_passages(corpus), *corpus.answerable]

    def one(record: Passage | Question) -> dict[str, Any]:
        samples: np.ndarray | Unheard | None = None
        try:
            samples = distorter.apply(read_audio(corpus.path(record)), condition, record.id) if listening else None
        except (InputError, ValueError) as error:
            samples = Unheard(str(error))
        return {s.name: _heard(s, record, samples) for s in systems}

    what = f"hearing, {condition.label}"
    with single_threaded(workers) as pool:
        found = list(tqdm(pool.map(one, records), total=len(records), desc=what, unit="file"))
    return dict(zip([r.id for r in records], found, strict=True))


def asked_passages(corpus: Corpus) -> list[Passage]:
    """Those that an answerable question is about."""
    asked = {q.passage for q in corpus.answerable}
    return [p for p in corpus.passages.values() if p.id in asked]


@dataclass(frozen=True)
class Scored:
    """One question's scores, 0 to 1; ff1 and aos are None without times (annotated, or of what was answered), em and f1 where the
    system gives no text.
    """

    id: str
    passage: str
    seconds: float  # length of the answer
    ff1: float | None
    aos: float | None
    em: float | None
    f1: float | None


def score_questions(predictions: Mapping[str, Any], corpus: Corpus) -> list[Scored]:
    """Score every answerable question over all its annotations; one that could not be answered scores 0."""
    scored, answers = [], predictions["answers"].values()
    has_text = bool(predictions["transcripts"]) or any(a["text"] is not None for a in answers)
    untimed = bool(answers) and all(a["start"] is None for a in answers)
    for question in corpus.answerable:
        gold = [(a.start, a.end) for a in question.answers if a.start is not None and a.end is not None]
        answer = predictions["answers"].get(question.id)
        gold = [] if untimed else gold
        span = (answer["start"], answer["end"]) if answer and (answer["end"] or 0) > (answer["start"] or 0) else None
        texts = [a.text for a in question.answers]
        said = answer["text"] if answer else ""
        scored.append(
            Scored(
                question.id,
                question.passage,
                gold[0][1] - gold[0][0] if gold else 0.0,
                frame_f1(span, gold) if gold else None,
                overlap_score(span, gold) if gold else None,
                exact_match(said, texts, question.language) if has_text else None,
                token_f1(said, texts, question.language) if has_text else None,
            )
        )
    return scored


def score(
    predictions: Mapping[str, Any], corpus: Corpus, condition: Condition, system: Named, seed: int, encoder: str
) -> list[Row]:
    """Rows in percent with 95 % bootstrap intervals (`passage_units` says what is drawn); one voice or passage alone has none."""
    scored = score_questions(predictions, corpus)
    values: dict[str, Interval] = {}
    for metric in ("ff1", "aos", "em", "f1"):
        column = [(getattr(s, metric), s.passage) for s in scored if getattr(s, metric) is not None]
        if column:
            values[metric] = mean_interval([v for v, _ in column], passage_units(corpus, [p for _, p in column]), seed)
    if predictions["transcripts"]:
        passages = [p for p in corpus.passages.values() if p.id in predictions["transcripts"] and p.text]
        if passages:
            values[error_metric(passages[0].language)] = word_error_interval(corpus, passages, predictions["transcripts"], seed)
    card = hash_json(dict(system.card))

    def row(metric: str, v: Interval) -> Row:
        p, about = v.percent, (system.name, encoder, condition.short, condition.snr_db, metric)
        return Row(*about, p.value, *p.ends, p.n, seed, card, p.drawn, p.groups)

    return [row(metric, interval) for metric, interval in values.items()]


def word_error_interval(corpus: Corpus, passages: Sequence[Passage], transcripts: Mapping[str, str], seed: int) -> Interval:
    """WER (zh: CER) over the passages, at least one."""
    errors = word_errors(passages, transcripts)
    return ratio_interval(errors.errors, errors.words, passage_units(corpus, [p.id for p in passages]), seed)


def word_errors(passages: Sequence[Passage], transcripts: Mapping[str, str]) -> WordErrors:
    """Of passages, at least one, by their transcripts; every word of one without a transcript is an error."""
    heard = [transcripts.get(p.id, "") for p in passages]
    return word_error_rate([p.text for p in passages], heard, passages[0].language)


def by_length(scored: Sequence[Scored], corpus: Corpus, system: str, seed: int) -> list[dict[str, Any]]:
    """FF1 in percent by length of the answer. What is drawn is chosen for all lengths together."""
    units = passage_units(corpus, [s.passage for s in scored])
    found = []
    for low, high in BUCKETS:
        inside = {i: s.ff1 for i, s in enumerate(scored) if s.ff1 is not None and low <= s.seconds < high}
        if inside:
            v = mean_interval(list(inside.values()), units.at(list(inside)), seed).percent
            bucket = f"{low:g}-{high:g} s" if np.isfinite(high) else f"over {low:g} s"
            low_end, high_end = v.ends
            found.append({"system": system, "bucket": bucket, "value": v.value, "low": low_end, "high": high_end, "n": v.n})
    return found


# Answers of a system that is not ours, scored as ours are and put beside them.
#
# A JSON file of predictions has one value a question: a text (SQuAD's format), a pair [start, end] in seconds, or an object with
# `text`, `start` and `end`, any of them left out; null or "" is no answer.

FIELDS = ("text", "start", "end")


@dataclass(frozen=True)
class Imported:
    """A system that is known by its answers alone."""

    name: str
    card: Mapping[str, Any]


def import_predictions(corpus: Path, out: Path, file: Path, name: str, split: str, condition: str = "clean", seed: int = 0) -> str:
    """Score the predictions, append the rows, and return the table of everything in `out`/results.jsonl.

    condition: that in which they were made. Questions without a prediction count as not answered. Raises InputError for a file that
    does not hold predictions, or one of a question that the split does not ask.
    """
    if Path(name).name != name:  # a folder is called so
        raise InputError(f"{name!r} cannot be the name of a system; give a --name without slashes")
    data, heard = load_corpus(corpus, split), parse_condition(condition)
    answers = _answers(file, data)
    system = Imported(name, {"imported": hash_files([file])})
    kept = {
        "made_from": system.card["imported"],
        "data": data_hash(corpus, split),
        "seed": seed,
        "answers": answers,
        "transcripts": {},
        "failed": {},
    }
    _write(out, system, heard, kept)
    append_rows(out / "results.jsonl", score(kept, data, heard, system, seed, ""))
    keep_scores(out, kept, data, heard, system, "")
    left = sum(q.id not in answers for q in data.answerable)
    said = f"{len(answers):,} answers of {name}; {left:,} questions have none and count as not answered\n"
    return said + table(read_rows(out / "results.jsonl"))


def _write(out: Path, system: Imported, condition: Condition, kept: dict[str, Any]) -> None:
    path = prediction_path(out, system, condition)
    if path.is_file() and read_json(path).get("made_from") != kept["made_from"]:
        raise InputError(f"{path} holds other predictions called {system.name}; give another --name or remove them")
    write_json(path, kept)


def _answers(file: Path, data: Corpus) -> dict[str, dict[str, Any]]:
    found = read_json(file)
    if not isinstance(found, dict) or not found:
        raise InputError(f"{file} is not a JSON object of question -> answer; write one as SQuAD's scorer takes it")
    known = {q.id for q in data.questions}
    if unknown := [name for name in found if name not in known]:
        raise InputError(
            f"{file} answers {unknown[0]}, which {data.root / data.split} does not ask; name the corpus and its --split"
        )
    answerable = {q.id for q in data.answerable}
    return {name: _answer(file, name, value) for name, value in found.items() if name in answerable and value not in (None, "")}


def _answer(file: Path, name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = {"text": value}
    elif isinstance(value, list) and len(value) == 2:
        value = dict(zip(FIELDS[1:], value, strict=True))
    if not isinstance(value, dict) or not value.keys() <= set(FIELDS) or not _is_answer(*map(value.get, FIELDS)):
        raise InputError(f"{file}: the answer of {name} is {value!r}; give a text, [start, end] in seconds, or an object with both")
    return {**dict.fromkeys(FIELDS), **value, "confidence": None}


def _is_answer(text: Any, start: Any, end: Any) -> bool:
    if text is not None and not isinstance(text, str):
        return False
    if start is None and end is None:
        return text is not None
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) for x in (start, end))
    return numbers and 0 <= start <= end


def run_evaluation(
    corpus: Path,
    out: Path,
    models: str,
    systems: Sequence[str],
    conditions: Sequence[str],
    split: str = "test",
    passages: int | None = None,
    voices: Sequence[Path] = (),
    seed: int = 0,
    workers: int = 2,
    bf16: bool = False,
    errors: Path | None = None,
    snr_over: str = ACTIVE,
) -> str:
    """Evaluate, append the rows, and return the table of everything in `out`/results.jsonl.

    errors: see `load_simulated`; snr_over: see `speech_level`.
    """
    parsed = [parse_condition(c) for c in conditions]
    folder = model_folder(models)
    data = first_passages(load_corpus(corpus, split), passages)
    transcripts = [*(p.transcript for p in data.passages.values()), *(q.transcript for q in data.questions)]
    if "cascade-given" in systems and not any(transcripts):
        raise InputError(f"{corpus / split} has no transcripts that cascade-given could read; take the system text")
    if any(name.startswith(SIMULATED) for name in systems):
        _check_errors(confusions_path(folder, errors), corpus, split)
    loaded = load_systems(folder, list(systems), bf16, errors=errors, seed=seed)
    name = folder.name if folder.parent.name == "models" else f"{folder.parent.name}/{folder.name}"
    rows = evaluate(loaded, data, parsed, out, Distorter(seed, tuple(voices), snr_over=snr_over), workers, name)
    append_rows(out / "results.jsonl", rows)
    notes = [synthetic_note(corpus), snr_note(snr_over) if any(c.noisy for c in parsed) else ""]
    return "\n\n".join(filter(None, [table(read_rows(out / "results.jsonl")), *notes]))


def _check_errors(path: Path, corpus: Path, split: str) -> None:
    """Raises InputError for errors that were fitted on what is evaluated. What is no such file is told by who reads it."""
    card = confusions_card(path) if path.is_file() else {}
    if card.get("data") == data_hash(corpus, split):
        raise InputError(
            f"{path} was fitted on {corpus / split} itself, which is to be evaluated; fit errors on another split "
            "(`speechssl evaluate confusions`) and give them with --errors"
        )
