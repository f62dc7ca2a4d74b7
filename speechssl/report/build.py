"""Write the report of an evaluation: one page of everything in its folder, SUPERB, question
answering and the robustness grid."""

from __future__ import annotations

import platform
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

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
from speechssl.encoders.encoder import single_threaded
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.eval.compare import Scores, read_results
from speechssl.eval.predict import parse_predictions, read_card, read_items
from speechssl.eval.score import (
    METRICS,
    answer_type,
    average_by_length,
    measure_scores,
    score_questions,
)
from speechssl.report.listening import (
    Answers,
    ListeningExample,
    Prediction,
    Strip,
    encode_audio,
    envelope,
    error_table,
    explorer_of,
    lanes_of,
    list_predictions,
    predictions_path,
)
from speechssl.report.options import Report
from speechssl.report.page import Section, metric_grids, text_grid, write_page
from speechssl.report.robustness import robustness_section, split_grid
from speechssl.report.scores import (
    arrange,
    assign_slots,
    condition_label,
    decibels,
    family_name,
    find_label,
)
from speechssl.report.spoken_qa import qa_section
from speechssl.report.superb import arrange_superb, is_shown, is_superb, superb_section
from speechssl.report.superb_figures import Artefacts, read_artefacts
from speechssl.results import (
    DEFAULT,
    Row,
    Table,
    full_condition,
    published_table,
    read_rows,
    seen_sentence,
    table_of,
)
from speechssl.signal import ACTIVE
from speechssl.units.codebook import load_codebook
from speechssl.units.features import UnitExtractor, extractor_of

TITLE = "Spoken question answering with and without a transcript"
ROBUSTNESS = "Speech encoders in noise"
SUPERB = "SUPERB: what speech encoders are good for"
POINTS = 30  # of an envelope, a second: enough to be zoomed in to phones


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions hold what an evaluation of spoken QA left beside its rows.

    scored: with the predictions that they are of. breakdowns: FF1 by length of the answer, clean
    speech. common: ids of the questions that every system answered in every condition in which it
    was evaluated; common_rows: the results on these alone, where they are not all. listening: which
    questions the examples are.
    """

    corpus: Corpus | None = None
    scored: Sequence[tuple[Scores, Answers]] = ()
    examples: Sequence[ListeningExample] = ()
    listening: str = ""
    breakdowns: Sequence[Mapping[str, Any]] = ()
    common: frozenset[str] = frozenset()
    common_rows: Sequence[Row] = ()


@dataclass(frozen=True)
class Results:
    """Everything that a page is made of. tables: others to be added; provenance: how it was made;
    synthetic: what a synthesiser spoke of the data."""

    rows: Sequence[Row]
    artefacts: Artefacts = Artefacts()
    questions: Questions = field(default_factory=Questions)
    tables: Sequence[Table] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    synthetic: str = ""


def build_report(out: Path | str, results: Results) -> None:
    """Write the page, whole or not at all; the same input gives the same bytes. What has no data is
    left out. Raises InputError when there is nothing to show."""
    rows, questions = results.rows, results.questions
    if not (rows or results.artefacts or questions.examples or results.tables):
        raise InputError(
            f"there is nothing to report in {out}; give at least one result, example or table"
        )
    of_superb = is_superb(rows, results.artefacts)
    shown = [row for row in rows if of_superb and is_shown(row)]
    grid, others = split_grid(row for row in rows if not (of_superb and is_shown(row)))
    sections = superb_sections(shown, results.artefacts) if of_superb else []
    answering, *listening = qa_sections(others, results)
    scores = arrange(grid, by="encoder")
    noise = robustness_section(scores, assign_slots(scores.label), ROBUSTNESS)
    further = Section("Further tables", grids=[text_grid(t) for t in results.tables])
    sections += [answering, noise, further, *listening]
    title = TITLE
    if not others and (of_superb or grid):
        title = SUPERB if of_superb else ROBUSTNESS
    models = dict.fromkeys(row.encoder for row in rows if row.encoder)
    facts = {"Models and encoders": ", ".join(models)} if models else {}
    write_page(out, title, sections, {**results.provenance, **facts}, results.synthetic, rows)


def superb_sections(rows: Sequence[Row], artefacts: Artefacts) -> list[Section]:
    """Make the section of SUPERB, and one of its tasks in noise."""
    noisy, _ = split_grid(row for row in rows if not row.metric.endswith(DEFAULT))
    slots = assign_slots(arrange_superb(rows).label)
    noise = robustness_section(arrange_superb(noisy), slots, "In noise, task by task")
    return [superb_section(rows, artefacts), noise]


def qa_sections(rows: Sequence[Row], results: Results) -> list[Section]:
    """Make the sections of question answering: scores, questions to listen to, predictions."""
    questions, synthetic = results.questions, results.synthetic
    scores = arrange(rows)
    systems = [score.system for score, _ in questions.scored]
    systems += [p.system for example in questions.examples for p in example.predictions]
    slots = assign_slots([*scores.label, *(find_label(scores, system) for system in systems)])
    grids = []
    if questions.common_rows:
        count = f", the {len(questions.common):,} questions that all systems answered"
        grids = metric_grids(arrange(questions.common_rows), synthetic, count)
    anchors = {}
    for number, example in enumerate(questions.examples, 1):
        anchors[example.id, example.condition] = f"example-{number}"
    explorer = None
    if questions.scored:
        common = questions.common if questions.common_rows else ()
        lines = list_predictions(questions.scored, scores, questions.corpus, common, anchors)
        explorer = explorer_of(lines, scores, slots)
        errors = error_table(explorer, synthetic)
        grids += [text_grid(errors)] if errors else []
    examples = [(example, lanes_of(example, scores, slots)) for example in questions.examples]
    return [
        qa_section(scores, slots, questions.breakdowns, synthetic, grids),
        Section("Listen", examples=examples, listening=questions.listening),
        Section("All predictions", explorer=explorer),
    ]


# ---- from the folder of an evaluation


def report(o: Report) -> dict[str, str]:
    """Write the page of a folder of results, and return where it is. Raises InputError as
    `write_report` does."""
    with hold_output(o.out):
        write_report(o)
    page = o.out / "report.html"
    print(f"{page}: open it in a browser")
    return {"page": str(page)}


def write_report(o: Report) -> None:
    """Write `out`/report.html from `out`/results.jsonl, `out`/predictions and
    `out`/degradation.json, and from `out`/heads and `out`/details where SUPERB was run.

    Without a corpus the folder holds a robustness grid, SUPERB, multiple choice or retrieval, which
    give nothing to listen to. Raises InputError when these files are not there or were made on
    other data.
    """
    out, split = o.out, o.split or evaluated_split(o.out)
    rows = read_rows(out / "results.jsonl")
    artefacts, tables = read_artefacts(out), stored_tables(o)
    details, questions, notes = made_with(), Questions(), []
    if o.corpus:
        card = corpus_card(o.corpus)
        details = describe_data(card, split) | details
        published = published_table([f"{card.get('corpus')} {split}"])
        tables += [published] if published else []
        questions = read_questions(o, o.corpus, split, rows)
        notes.append(synthetic_note(o.corpus))
    elif needs_corpus(out, rows, artefacts):
        raise InputError(
            f"{out / 'results.jsonl'} has neither SUPERB nor a robustness grid; give the "
            "corpus of the questions as well"
        )
    notes.append(seen_sentence((row.name, row.seen) for row in rows))
    synthetic = " ".join(filter(None, notes))
    build_report(
        out / "report.html", Results(rows, artefacts, questions, tables, details, synthetic)
    )


def needs_corpus(out: Path, rows: Sequence[Row], artefacts: Artefacts) -> bool:
    """Return whether the results are of questions with answers in a passage; options and ranks
    have no place in one."""
    if split_grid(rows)[0] or is_superb(rows, artefacts):
        return False
    return not any(out.glob("scores/*/*.parquet")) or bool(read_predictions(out))


def evaluated_split(out: Path) -> str:
    """Return the split that the scores in a folder are of; test where they are of several, or
    none."""
    splits = {read_card(path).get("split") for path in out.glob("scores/*/*.parquet")}
    return str(splits.pop()) if len(splits) == 1 else "test"


def made_with() -> dict[str, str]:
    """Say where, when and with what a page is made."""
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "numpy")]
    return {
        "Machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "Versions": ", ".join(versions),
        "Date": date.today().isoformat(),
    }


def describe_data(card: Mapping[str, Any], split: str) -> dict[str, str]:
    """Say what corpus, split and manifests a page is of. card: of the corpus."""
    spoken = card.get("synthetic", "speech or text as the corpus has it")
    facts = {"Data": f"{card.get('corpus')} ({spoken})", "Split": split}
    facts["Manifests"] = str(card.get("manifests") or "")
    facts["Made by"] = str(card.get("made_by") or "")
    return {name: value for name, value in facts.items() if value}


def stored_tables(o: Report) -> list[Table]:
    """Collect the tables of the robustness grid in the folder, and those that are given. Raises
    InputError for what is no table."""
    stored = []
    path = o.out / "degradation.json"
    if path.is_file():
        stored = [(path, table) for table in read_json(path)["tables"]]
    stored += [(path, read_json(path)) for path in o.tables]
    tables = []
    for path, values in stored:
        try:
            tables.append(table_of(values))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path} is not a table (an object with title, columns and rows); {error}"
            ) from error
    return tables


def read_predictions(out: Path) -> list[tuple[Scores, Answers]]:
    """Read the scores in a folder that are of answers in a passage, and these answers."""
    found: list[tuple[Scores, Answers]] = []
    for score in read_results([out]):
        answers = parse_predictions(*read_items(predictions_path(score)))
        if "answers" in answers:  # options and ranks may lie beside them
            found.append((score, answers))
    return found


def read_questions(o: Report, corpus: Path, split: str, rows: Sequence[Row]) -> Questions:
    """Read the answers in a folder, and draw questions to listen to. Raises InputError where none
    of the conditions was evaluated, or on other data or in several noises."""
    data, scored = load_corpus(corpus, split), read_predictions(o.out)
    if not scored and any(o.out.glob("scores/*/*.parquet")):
        return Questions()
    hashed = data_hash(corpus, split)
    other = [score for score, _ in scored if score.card["data"] != hashed]
    if other:
        raise InputError(
            f"{other[0].path} and its answers were not made on {corpus / split}; name the corpus "
            "and split of `speechssl evaluate`"
        )
    conditions, listening = audible_conditions(rows, o.voices)
    if o.conditions:
        conditions, listening = [parse_condition(text) for text in o.conditions], ""
    by_condition: dict[Condition, dict[str, Answers]] = {}
    for condition in conditions:
        place = (condition.short, condition.snr_db)
        found = {score.system: a for score, a in scored if score.condition == place}
        if found:
            by_condition[condition] = found
    if not by_condition:
        names = ", ".join(c.text for c in conditions) or "clean and noise"
        raise InputError(f"{o.out} has no answers in {names}; run `speechssl evaluate` first")
    distorter = same_noise(o, by_condition)
    made = [answers for some in by_condition.values() for answers in some.values()]
    extractor = units_of(o.models, made) if o.examples else None
    examples: list[ListeningExample] = []
    for number, condition in enumerate(by_condition):
        count = o.examples // len(by_condition) + (number < o.examples % len(by_condition))
        draw = Draw(data, condition, by_condition[condition], distorter, extractor)
        examples += draw.examples(count, o.seed)
    breakdowns: list[Mapping[str, Any]] = []
    for system, answers in by_condition.get(parse_condition("clean"), {}).items():
        answered = [s for s in score_questions(answers, data) if s.id in answers["answers"]]
        breakdowns += average_by_length(answered, data, system, o.seed)
    common, common_rows = score_common(data, scored)
    return Questions(data, scored, examples, listening, breakdowns, common, common_rows)


def same_noise(o: Report, by_condition: Mapping[Condition, Mapping[str, Answers]]) -> Distorter:
    """Return what makes the noise of these answers again. Raises InputError where there were
    several, or recordings are missing."""
    made = set()
    for condition, some in by_condition.items():
        if condition.noisy:
            made |= {(a["seed"], a.get("snr_over", ACTIVE)) for a in some.values()}
    if len(made) > 1:
        noises = " and ".join(f"seed {seed}, SNRs over {over}" for seed, over in sorted(made))
        raise InputError(f"{o.out} has answers in two noises ({noises}); evaluate again in one")
    seed, over = made.pop() if made else (0, ACTIVE)
    distorter = Distorter(seed, tuple(o.voices), snr_over=over)
    for condition in by_condition:
        distorter.check(condition)
    return distorter


def score_common(
    data: Corpus, scored: Sequence[tuple[Scores, Answers]]
) -> tuple[frozenset[str], list[Row]]:
    """Return the questions that all systems answered in all their conditions, and the results on
    these alone where they are not all questions, by the functions of the evaluation."""
    answered = [frozenset(score.lines.keys() & a["answers"].keys()) for score, a in scored]
    common = frozenset.intersection(*answered)
    rows: list[Row] = []
    if not common or all(common == score.lines.keys() for score, _ in scored):
        return common, rows
    for score, answers in scored:
        seed = int(score.card.get("seed", 0))
        chosen = [s for s in score_questions(answers, data) if s.id in common]
        measured = measure_scores(chosen, METRICS, answers["transcripts"], data, seed)
        encoder, over = (str(score.card.get(name, "")) for name in ("encoder", "snr_over"))
        for metric, value in measured.items():
            cell = ("qa", score.system, encoder, *score.condition, metric)
            rows.append(Row.from_interval(value, *cell, seed, snr_over=over))
    return common, rows


def audible_conditions(
    rows: Sequence[Row], voices: Sequence[Path] = ()
) -> tuple[list[Condition], str]:
    """Choose clean speech, and the noisiest condition in which something is still understood, as
    far as they were evaluated; and return the rule, to be printed.

    That is where the best FF1 is at least half of the best in clean speech, or, where none is, the
    quietest noise. Noise that cannot be made again from its name (recordings) is left out. voices:
    recordings of babble.
    """
    distorter, best = Distorter(0, tuple(voices)), dict[Condition, float]()
    for row in rows:
        snr = "" if row.snr_db is None else f"@{row.snr_db:g}"
        try:
            condition = parse_condition(f"{row.condition}{snr}")
            distorter.check(condition)
        except InputError:
            continue
        if (condition.short, condition.snr_db) == (row.condition, row.snr_db):
            value = row.value if row.metric == "ff1" else 0.0
            best[condition] = max(best.get(condition, 0.0), value)
    clean = parse_condition("clean")
    noisy = sorted((c for c in best if c.snr_db is not None), key=lambda c: (c.snr_db, best[c]))
    if clean not in best or not noisy:
        return ([clean] if clean in best else list(best)[:1]), ""
    usable = [c for c in noisy if best[c] >= best[clean] / 2]
    chosen = usable[0] if usable else noisy[-1]
    where = f"{family_name(chosen.short).lower()} at {decibels(chosen.snr_db or 0.0)}"
    rule = "the best FF1 is at least half of the best in clean speech"
    why = f"the quietest noise (there is none in which {rule})"
    if usable:
        why = f"the noisiest condition in which {rule} ({best[chosen]:.1f} and {best[clean]:.1f})"
    return [clean, chosen], (
        f"Two groups of questions, drawn at random: in clean speech, and in {where}, {why}."
    )


def units_of(models: str, predictions: Sequence[Answers]) -> UnitExtractor | None:
    """Load what makes the units of some of these predictions from the models that they were made
    with; None where none has units.

    Other models are named on stderr, and nothing is drawn of them.
    """
    cards = [p["card"] for p in predictions if "codebook" in p.get("card", {})]
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


# ---- questions to listen to


@dataclass(frozen=True, eq=False)
class Draw:
    """Draw questions of one condition to listen to. answers: by system. extractor: of units to be
    drawn, which are those of the distorted passage."""

    data: Corpus
    condition: Condition
    answers: Mapping[str, Answers]
    distorter: Distorter
    extractor: UnitExtractor | None

    def examples(self, count: int, seed: int) -> list[ListeningExample]:
        """Draw at random (not by choice) of the questions that most systems answered, no passage
        twice."""
        most = max(len(a["answers"]) for a in self.answers.values())
        complete = [a["answers"] for a in self.answers.values() if len(a["answers"]) == most]
        questions = []
        for question in self.data.answerable:
            recorded = question.audio and self.data.passages[question.passage].audio
            timed = any(answer.start is not None for answer in question.answers)
            if recorded and timed and all(question.id in answered for answered in complete):
                questions.append(question)
        random.Random(f"examples {self.condition.label} {seed}").shuffle(questions)
        drawn = list({question.passage: question for question in questions}.values())[:count]
        ff1 = {}
        for system, answers in self.answers.items():
            ff1[system] = {s.id: s.ff1 for s in score_questions(answers, self.data)}
        with single_threaded(CORES) as pool:
            made = pool.map(partial(self.example, ff1), drawn)
            bar = {"desc": "examples", "unit": "question", "disable": not drawn}
            return list(tqdm(made, total=len(drawn), **bar))

    def example(
        self, ff1: Mapping[str, Mapping[str, float | None]], question: Question
    ) -> ListeningExample:
        passage = self.data.passages[question.passage]
        samples, asked = (self.listen(record) for record in (passage, question))
        over = self.distorter.card(self.condition).get("snr_over")
        gold = question.answers[0].text
        badges = [("type of the answer", answer_type(question.written, gold, question.language))]
        if passage.speaker:
            badges.insert(0, ("voice of the passage", passage.speaker))
        predictions = []
        for system, answers in self.answers.items():
            answer = answers["answers"].get(question.id)
            if answer:
                score = ff1[system][question.id]
                transcript = answers["transcripts"].get(question.passage)
                predictions.append(predict(system, answer, score, transcript))
        return ListeningExample(
            id=question.id,
            question_text=question.text,
            question_audio=encode_audio(asked),
            passage_text=passage.text,
            passage_audio=encode_audio(samples),
            seconds=len(samples) / SAMPLE_RATE,
            envelope=envelope(samples, max(600, round(POINTS * len(samples) / SAMPLE_RATE))),
            gold=tuple(
                (a.start, a.end)
                for a in question.answers
                if a.start is not None and a.end is not None
            ),
            answer_text=gold,
            predictions=tuple(predictions),
            condition=condition_label(
                full_condition(self.condition.short, over), self.condition.snr_db
            ),
            badges=tuple(badges),
            strips=tuple(self.strips(passage, samples)),
        )

    def listen(self, record: Passage | Question) -> np.ndarray:
        samples = read_audio(self.data.path(record))
        return self.distorter.apply(samples, self.condition, record.id)

    def strips(self, passage: Passage, samples: np.ndarray) -> list[Strip]:
        """Return the phones and the units below a waveform."""
        strips = []
        if passage.phones:
            phones = [(p.text, round(p.start, 3), round(p.end, 3)) for p in passage.phones]
            strips.append(Strip("Phones", tuple(phones)))
        if self.extractor and self.extractor.grid.frames(len(samples)):
            grid, runs = self.extractor.grid, self.extractor.units(samples)
            borders = pairwise(round(grid.seconds(int(frame)), 3) for frame in runs.borders)
            blocks = [(str(u), *ends) for u, ends in zip(runs.units, borders, strict=True)]
            strips.append(Strip("Units", tuple(blocks), coloured=True))
        return strips


def predict(
    system: str, answer: Mapping[str, Any], ff1: float | None, transcript: str | None
) -> Prediction:
    """Make a prediction as drawn of one as stored. ff1: a fraction."""
    timed = answer["start"] is not None and answer["end"] > answer["start"]
    start, end = (answer["start"], answer["end"]) if timed else (None, None)
    percent = None if ff1 is None else 100 * ff1
    return Prediction(system, start, end, answer["confidence"], percent, transcript, answer["text"])
