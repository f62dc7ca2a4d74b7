"""The report of an evaluation: one page of everything in its folder, SUPERB, question answering and
the robustness grid."""

from __future__ import annotations

import platform
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import hold_output, read_json
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.checkpoints import model_folder
from speechssl.data.options import CORES
from speechssl.data.records import (
    Corpus,
    Passage,
    Question,
    corpus_card,
    data_hash,
    load_corpus,
    synthetic_note,
)
from speechssl.encoders.load import load_encoder, single_threaded
from speechssl.errors import InputError
from speechssl.eval.compare import Scores, read_results
from speechssl.eval.scores import answer_type
from speechssl.eval.spoken_qa import METRICS, by_length, rows_of, score_questions
from speechssl.report.figures import ShownCondition, arrange, decibels
from speechssl.report.options import Report
from speechssl.report.page import (
    ListeningExample,
    Prediction,
    Section,
    Strip,
    encode_audio,
    envelope,
    write_page,
)
from speechssl.report.robustness import of_grid, panels, robustness_section
from speechssl.report.spoken_qa import (
    Answers,
    Breakdown,
    error_table,
    explorer_of,
    predictions_path,
    qa_section,
)
from speechssl.report.superb import MAIN, Artefacts, of_superb, read_artefacts, superb_section
from speechssl.results import (
    Row,
    Table,
    full_condition,
    published_table,
    read_rows,
    seen_sentence,
    table_of,
    unit,
)
from speechssl.signal import ACTIVE
from speechssl.units.features import UnitExtractor, extractor_of
from speechssl.units.kmeans import load_codebook

TITLE = "Spoken question answering with and without a transcript"
ROBUSTNESS = "Speech encoders in noise"
POINTS = 30  # of an envelope, a second: enough to be zoomed in to phones
SUPERB = "SUPERB: what speech encoders are good for"
# system -> its predictions in one condition, as `evaluate` left them
Answered = dict[str, dict[str, Any]]


def build_report(
    out: Path | str,
    rows: Sequence[Row],
    examples: Sequence[ListeningExample] = (),
    breakdowns: Sequence[Breakdown] = (),
    tables: Sequence[Table] = (),
    provenance: Mapping[str, str] | None = None,
    artefacts: Artefacts | None = None,
    synthetic: str = "",
    predicted: Predicted | None = None,
    listening: str = "",
) -> None:
    """Write the page, whole or not at all; the same input gives the same bytes. What has no data is
    left out.

    breakdowns: FF1 by length of the answer, clean speech. provenance: what, value (command,
    versions, hardware, date); questions, seeds and cards are added from the rows. synthetic: what a
    synthesiser spoke of the data of these rows; stands under the title and at every table of them.
    artefacts: what a SUPERB run left beside its rows. listening: which questions the examples are.
    Raises InputError when there is nothing to show.
    """
    if not (rows or examples or breakdowns or tables):
        raise InputError(
            f"there is nothing to report in {out}; give at least one result, example or table"
        )
    systems = [p.system for e in examples for p in e.predictions] + [
        b["system"] for b in breakdowns
    ]
    superb = of_superb(rows, artefacts or Artefacts())
    grid, others = of_grid(row for row in rows if not superb.shows(row))
    all_panels = (*superb.noisy, *panels(grid))
    # losses have a mean over these
    counted = [
        p for p in all_panels if unit(p.metric) == "%" and MAIN.get(p.task, p.metric) == p.metric
    ]
    results = arrange(others, also=systems)
    more: dict[str, Any] = {"listening": listening}
    if predicted:
        anchors = {(e.id, e.condition): f"example-{number}" for number, e in enumerate(examples, 1)}
        errors = error_table(predicted.scores, results, synthetic)
        more["explorers"] = [
            explorer_of(
                predicted.scores,
                predicted.answers,
                results,
                predicted.corpus,
                predicted.common,
                anchors,
            )
        ]
        more |= {"switch": predicted.switch, "tables": [errors] if errors else []}
        more["common"] = arrange(predicted.rows, also=systems) if predicted.rows else None
        more["common_breakdowns"] = predicted.breakdowns
    sections = [
        superb_section(superb),
        qa_section(results, examples, breakdowns, synthetic, **more),
        robustness_section(all_panels, counted),
        Section(tables=tables),
    ]
    if superb and not others:
        title, heading = SUPERB, "In noise, task by task"
    else:
        title, heading = ROBUSTNESS if grid and not others else TITLE, "Results"
    qa_rows, cards = (
        set(map(id, others)),
        list(dict.fromkeys(row.card for row in rows if isinstance(row.card, str) and row.card)),
    )
    facts = {  # the `encoder` of question answering is a folder of models
        "Models": ", ".join(dict.fromkeys(row.encoder for row in others if row.encoder)),
        "Encoders": ", ".join(
            dict.fromkeys(row.encoder for row in rows if row.encoder and id(row) not in qa_rows)
        ),
        "Seeds": ", ".join(map(str, sorted({row.seed for row in rows if row.seed is not None}))),
        "Cards": ", ".join(cards[:6]) + (f" and {len(cards) - 6} more" if len(cards) > 6 else ""),
    }
    stated = dict(provenance or {})
    lower = {name.lower() for name in stated}
    details = stated | {
        name: value for name, value in facts.items() if value and name.lower() not in lower
    }
    write_page(out, title, sections, details, synthetic, rows, heading)


# ---- what all systems answered


@dataclass(frozen=True, eq=False)
class Predicted:
    """The predictions of an evaluation. answers: by the path of their scores. evaluated: how many
    questions any system was asked.

    common: ids of the questions that every system answered in every condition that it was evaluated
    in. rows, breakdowns: the results on these alone; none where they are all of them, or none.
    """

    scores: tuple[Scores, ...]
    answers: Mapping[Path, Answers]
    corpus: Corpus
    evaluated: int
    common: frozenset[str]
    rows: tuple[Row, ...] = ()
    breakdowns: tuple[Breakdown, ...] = ()

    @property
    def switch(self) -> str:
        if self.rows:
            which = (
                f"only the {len(self.common):,} questions that all systems answered in all "
                "their conditions"
            )
            return (
                f"{which} (of {self.evaluated:,}), here, in the figures and in the table of "
                "predictions"
            )
        if not self.common:
            return (
                "No question was answered by all systems, so that their scores are of "
                "different questions."
            )
        return (
            f"All systems answered the same {self.evaluated:,} questions in all their conditions."
        )


def read_predicted(out: Path, corpus: Corpus) -> Predicted:
    """Read what `evaluate` left in `out`, and score the common questions by the functions of the
    evaluation.

    Raises InputError where scores or predictions are missing, damaged, or of other data.
    """
    scores, data = read_results([out]), data_hash(corpus.root, corpus.split)
    if other := next((f for f in scores if f.card["data"] != data), None):
        raise InputError(
            f"{other.path} was not made on {corpus.root / corpus.split}; name the corpus and "
            "split of `speechssl evaluate`"
        )
    answers: dict[Path, Answers] = {f.path: read_json(predictions_path(f)) for f in scores}
    scores = [f for f in scores if "answers" in answers[f.path]]  # retrieval may lie beside them
    common = frozenset.intersection(
        *(frozenset(f.lines.keys() & answers[f.path]["answers"].keys()) for f in scores)
    )
    evaluated = {name for f in scores for name in f.lines}
    rows, breakdowns = list[Row](), list[Breakdown]()
    for f in scores if common and common != evaluated else ():
        scored = [s for s in score_questions(answers[f.path], corpus) if s.id in common]
        system, seed = SimpleNamespace(name=f.system, card={}), int(f.card.get("seed", 0))
        # what rows have of `augment.Condition`
        condition: Any = SimpleNamespace(short=f.condition[0], snr_db=f.condition[1])
        encoder, over = (str(f.card.get(name, "")) for name in ("encoder", "snr_over"))
        rows += rows_of(
            scored,
            METRICS,
            answers[f.path]["transcripts"],
            corpus,
            condition,
            system,
            seed,
            encoder,
            over,
        )
        if f.condition == ("clean", None):
            breakdowns += cast(list[Breakdown], by_length(scored, corpus, f.system, seed))
    return Predicted(
        tuple(scores), answers, corpus, len(evaluated), common, tuple(rows), tuple(breakdowns)
    )


# ---- from the folder of an evaluation


def evaluated_split(out: Path) -> str:
    """The split that the scores in a folder are of; test where they are of several, or none."""
    splits = {read_json(path).get("split") for path in out.glob("scores/*/*.card.json")}
    return str(splits.pop()) if len(splits) == 1 else "test"


def report(o: Report) -> dict[str, str]:
    """Write the page of a folder of results, and return where it is. Raises InputError as
    `write_report` does."""
    with hold_output(o.out):
        write_report(o)
    page = o.out / "report.html"
    print(f"{page}: open it in a browser")
    return {"page": str(page)}


def made_with() -> dict[str, str]:
    """Say where, when and with what a page is made."""
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "numpy")]
    return {
        "Machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "Versions": ", ".join(versions),
        "Date": date.today().isoformat(),
    }


def write_report(o: Report) -> None:
    """Write `out`/report.html from `out`/results.jsonl, `out`/predictions and
    `out`/degradation.json, and from
    `out`/heads and `out`/details where SUPERB was run.

    Without a corpus the folder holds a robustness grid, SUPERB, multiple choice or retrieval, which
    give nothing to listen to. Raises InputError when these files are not there or were made on
    other data.
    """
    out, split = o.out, o.split or evaluated_split(o.out)
    rows = read_rows(out / "results.jsonl")
    seen = seen_sentence((row.name, row.seen) for row in rows)
    artefacts, tables = read_artefacts(out, rows), stored_tables(o)
    details = made_with()
    if o.corpus:
        card = corpus_card(o.corpus)
        hashes = card.get("manifests")
        manifests = (
            ", ".join(f"{name} {value}" for name, value in hashes.items())
            if isinstance(hashes, dict)
            else hashes or ""
        )
        source = (
            f"{card.get('corpus')} {manifests} "
            f"({card.get('synthetic', 'speech or text as the corpus has it')})"
        )
        details = (
            {"Data": source, "Split": split}
            | ({"Made by": str(card["made_by"])} if card.get("made_by") else {})
            | details
        )
        tables += [table] if (table := published_table([f"{card.get('corpus')} {split}"])) else []

    predictions = [read_json(path) for path in out.glob("predictions/*/*.json")]
    # options and ranks have no place in a passage
    placed = not predictions or any("answers" in p for p in predictions)
    if o.corpus is None and placed and not of_grid(rows)[0] and not of_superb(rows, artefacts):
        raise InputError(
            f"{out / 'results.jsonl'} has neither SUPERB nor a robustness grid; give the corpus "
            "of the questions as well"
        )
    questions = read_questions(o, o.corpus, split, rows) if o.corpus and placed else Questions()
    build_report(
        out / "report.html",
        rows,
        questions.examples,
        questions.breakdowns,
        tables,
        details,
        artefacts=artefacts,
        synthetic=" ".join(filter(None, [synthetic_note(o.corpus) if o.corpus else "", seen])),
        predicted=questions.predicted,
        listening=questions.listening,
    )


def stored_tables(o: Report) -> list[Table]:
    """Collect the tables of the robustness grid in the folder, and those that are given. Raises
    InputError for what is no table."""
    stored = [(path, read_json(path)) for path in o.tables]
    if (path := o.out / "degradation.json").is_file():
        values = read_json(path)
        if not isinstance(values, dict) or not isinstance(values.get("tables"), list):
            raise InputError(
                f"{path} is not what `speechssl evaluate robustness` writes; run it again"
            )
        stored = [*((path, table) for table in values["tables"]), *stored]
    tables = []
    for path, values in stored:
        try:
            tables.append(table_of(values))
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{path} is not a table (an object with title, columns and rows); {error}"
            ) from error
    return tables


class Questions(NamedTuple):
    """The spoken question answering of a page, beside its rows. listening: which questions the
    examples are."""

    examples: Sequence[ListeningExample] = ()
    breakdowns: Sequence[Breakdown] = ()
    predicted: Predicted | None = None
    listening: str = ""


def read_questions(o: Report, corpus: Path, split: str, rows: Sequence[Row]) -> Questions:
    """Read the questions from `out`/predictions. Raises InputError where none of the conditions was
    evaluated, or on other data or in other noise."""
    data, folder = load_corpus(corpus, split), o.out / "predictions"
    if o.conditions:
        conditions, listening = [parse_condition(text) for text in o.conditions], ""
    else:
        conditions, listening = audible_conditions(rows, o.voices)
    # the predictions of each of the conditions that were evaluated
    by_condition: dict[Condition, Answered] = {}
    for condition in conditions:
        paths = sorted(folder.glob(f"*/{condition.label.replace(' ', '-')}.json"))
        predictions = {path.parent.name: read_json(path) for path in paths}
        if answers := {system: p for system, p in predictions.items() if "answers" in p}:
            by_condition[condition] = answers
    if not by_condition:
        names = ", ".join(c.text for c in conditions) or "clean and noise"
        raise InputError(
            f"{folder} has none of the conditions {names}; run `speechssl evaluate` first"
        )

    # all of them were made on this split, and in one noise, which is made again to be listened to
    made_in = [
        (condition, p) for condition, answers in by_condition.items() for p in answers.values()
    ]
    hashed = data_hash(corpus, split)
    if any(p.get("data") != hashed for _, p in made_in):
        raise InputError(
            f"{folder} were not made on {corpus / split}; name the corpus and split "
            "of `speechssl evaluate`"
        )
    if len(seeds := {p["seed"] for _, p in made_in}) > 1:
        raise InputError(
            f"{folder} were made in noise of several seeds ({sorted(seeds)}); "
            "evaluate them again with one"
        )
    if (
        len(
            over := {p.get("snr_over", ACTIVE) for condition, p in made_in if condition.noisy}
            or {ACTIVE}
        )
        > 1
    ):
        raise InputError(
            f"{folder} have SNRs over {' and over '.join(sorted(over))}; evaluate "
            "them again with one"
        )
    predicted = read_predicted(o.out, data)
    distorter = Distorter(seeds.pop(), tuple(o.voices), snr_over=over.pop())
    for condition in by_condition:
        distorter.check(condition)

    extractor = units_of(o.models, [p for _, p in made_in]) if o.examples else None
    examples: list[ListeningExample] = []
    for number, (condition, answers) in enumerate(by_condition.items()):
        share = o.examples // len(by_condition) + (number < o.examples % len(by_condition))
        examples += _examples(data, condition, answers, share, distorter, o.seed, extractor)
    breakdowns: list[Breakdown] = []
    for system, predictions in by_condition.get(parse_condition("clean"), {}).items():
        scored = [s for s in score_questions(predictions, data) if s.id in predictions["answers"]]
        breakdowns += cast(list[Breakdown], by_length(scored, data, system, o.seed))
    return Questions(examples, breakdowns, predicted, listening)


def audible_conditions(
    rows: Sequence[Row], voices: Sequence[Path] = ()
) -> tuple[list[Condition], str]:
    """Clean speech, and the noisiest condition in which something is still understood, as far as
    they were evaluated; and the rule, to be printed.

    That is where the best FF1 is at least half of the best in clean speech, or, where none is, the
    quietest noise. Noise that cannot be made again from its name (recordings) is left out. voices:
    recordings of babble.
    """
    distorter, best = Distorter(0, tuple(voices)), dict[Condition, float]()
    for row in rows:
        try:
            condition = parse_condition(
                row.condition if row.snr_db is None else f"{row.condition}@{row.snr_db:g}"
            )
            distorter.check(condition)
        except InputError:
            continue
        if (condition.short, condition.snr_db) == (row.condition, row.snr_db):
            best[condition] = max(
                best.get(condition, 0.0), row.value if row.metric == "ff1" else 0.0
            )
    clean = parse_condition("clean")
    noisy = sorted((c for c in best if c.snr_db is not None), key=lambda c: (c.snr_db, best[c]))
    if clean not in best or not noisy:
        return ([clean] if clean in best else list(best)[:1]), ""
    usable = [c for c in noisy if best[c] >= best[clean] / 2]
    chosen = usable[0] if usable else noisy[-1]
    shown = f"{ShownCondition(chosen.short).family.lower()} at {decibels(chosen.snr_db or 0.0)}"
    rule, values = (
        ("the best FF1 is at least half of the best in clean speech"),
        f"{best[chosen]:.1f} and {best[clean]:.1f}",
    )
    quietest = f"the quietest noise (there is none in which {rule})"
    why = f"the noisiest condition in which {rule} ({values})" if usable else quietest
    return [clean, chosen], (
        f"Two groups of questions, drawn at random: in clean speech, and in {shown}, {why}."
    )


def units_of(models: str, predictions: Sequence[Mapping[str, Any]]) -> UnitExtractor | None:
    """Load what makes the units of some of these predictions from the models that they were made
    with; None where none has units.

    Other models are named on stderr, and nothing is drawn of them.
    """
    cards = [
        p["card"]
        for p in predictions
        if isinstance(p.get("card"), Mapping) and "codebook" in p["card"]
    ]
    if not cards:
        return None
    folder = model_folder(models)
    path = folder / "units.safetensors"
    if path.is_file() and any(card["codebook"] == load_codebook(path).hash for card in cards):
        extractor = extractor_of(load_encoder(folder / "encoder"), load_codebook(path))
        if any(extractor.card.items() <= card.items() for card in cards):
            return extractor
    print(
        f"units are not drawn, for {models} is not what made the predictions; name those "
        "models with --models",
        file=sys.stderr,
    )
    return None


def _examples(
    data: Corpus,
    condition: Condition,
    answers: Answered,
    count: int,
    distorter: Distorter,
    seed: int,
    extractor: UnitExtractor | None,
) -> list[ListeningExample]:
    """A random draw (not a choice) of the questions that most systems answered, no passage twice.

    extractor: of units to be drawn, which are those of the distorted passage.
    """
    most = max(len(predictions["answers"]) for predictions in answers.values())
    complete = [
        predictions["answers"]
        for predictions in answers.values()
        if len(predictions["answers"]) == most
    ]
    questions = []
    for question in data.answerable:
        recorded = question.audio and data.passages[question.passage].audio
        timed = any(answer.start is not None for answer in question.answers)
        if recorded and timed and all(question.id in answered for answered in complete):
            questions.append(question)
    random.Random(f"examples {condition.label} {seed}").shuffle(questions)
    drawn = list({question.passage: question for question in questions}.values())[:count]
    ff1 = {
        system: {scored.id: scored.ff1 for scored in score_questions(p, data)}
        for system, p in answers.items()
    }
    shown = ShownCondition(
        full_condition(condition.short, distorter.card(condition).get("snr_over")), condition.snr_db
    )

    def predicted(question: Question) -> Iterator[Prediction]:
        for system, predictions in answers.items():
            if answer := predictions["answers"].get(question.id):
                timed = answer["start"] is not None and answer["end"] > answer["start"]
                start, end = (answer["start"], answer["end"]) if timed else (None, None)
                score, transcript = (
                    ff1[system][question.id],
                    predictions["transcripts"].get(question.passage),
                )
                percent = None if score is None else 100 * score
                yield Prediction(
                    system, start, end, answer["confidence"], percent, transcript, answer["text"]
                )

    def strips(passage: Passage, samples: np.ndarray) -> Iterator[Strip]:
        if passage.phones:
            yield Strip(
                "Phones",
                tuple((p.text, round(p.start, 3), round(p.end, 3)) for p in passage.phones),
            )
        if extractor and extractor.grid.frames(len(samples)):
            runs = extractor.units(samples)
            borders = pairwise(
                round(extractor.grid.seconds(int(frame)), 3) for frame in runs.borders
            )
            blocks = tuple(
                (str(unit), start, end)
                for unit, (start, end) in zip(runs.units, borders, strict=True)
            )
            yield Strip("Units", blocks, coloured=True)

    def example(question: Question) -> ListeningExample:
        passage = data.passages[question.passage]
        samples, question_samples = (
            distorter.apply(read_audio(data.path(r)), condition, r.id) for r in (passage, question)
        )
        return ListeningExample(
            id=question.id,
            question_text=question.text,
            question_audio=encode_audio(question_samples),
            passage_text=passage.text,
            passage_audio=encode_audio(samples),
            seconds=len(samples) / SAMPLE_RATE,
            envelope=envelope(samples, max(600, round(POINTS * len(samples) / SAMPLE_RATE))),
            gold=tuple(
                (a.start, a.end)
                for a in question.answers
                if a.start is not None and a.end is not None
            ),
            answer_text=question.answers[0].text,
            predictions=tuple(predicted(question)),
            condition=shown.label,
            badges=(
                *([("voice of the passage", passage.speaker)] if passage.speaker else []),
                (
                    "type of the answer",
                    answer_type(question.written, question.answers[0].text, question.language),
                ),
            ),
            strips=tuple(strips(passage, samples)),
        )

    with single_threaded(CORES) as pool:
        return list(
            tqdm(
                pool.map(example, drawn),
                total=len(drawn),
                desc="examples",
                unit="question",
                disable=not drawn,
            )
        )
