"""Write the report of an evaluation, `speechssl report`: one page with all results in a folder, of
question answering, the robustness grid, and SUPERB."""

from __future__ import annotations

import math
import platform
import random
import sys
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    hash_data,
    load_corpus,
    read_corpus_card,
    read_synthetic_note,
)
from speechssl.encoders.encoder import open_pool
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.eval.compare import Scores, read_results
from speechssl.eval.predict import read_card, read_predictions
from speechssl.eval.score import classify_answer
from speechssl.report.listening import (
    Answers,
    Lane,
    ListeningExample,
    Region,
    Strip,
    compute_envelope,
    cut_at,
    encode_audio,
    find_predictions,
    list_predictions,
    make_explorer,
    make_region,
    tabulate_errors,
)
from speechssl.report.options import Report
from speechssl.report.page import Section, write_page
from speechssl.report.robustness import make_robustness_section, split_grid
from speechssl.report.scores import (
    NAMES,
    assign_slots,
    label_condition,
    phrase_condition,
    rank_name,
    sort_rows,
    tabulate_scores,
)
from speechssl.report.spoken_qa import make_qa_section, write_opening
from speechssl.report.superb import make_superb_section
from speechssl.report.superb_figures import Artefacts, read_artefacts
from speechssl.results import (
    DEFAULT,
    Row,
    Table,
    describe_range,
    describe_seen,
    join_words,
    make_published_tables,
    make_table,
    name_full_condition,
    order_conditions,
    read_rows,
)
from speechssl.signal import ACTIVE
from speechssl.superb.options import ORDER
from speechssl.units.codebook import load_codebook
from speechssl.units.features import UnitExtractor, make_extractor

# titles of pages
TITLE = "Spoken question answering with and without a transcript"
ROBUSTNESS = "Speech encoders in noise"
SUPERB = "SUPERB: what speech encoders are good for"
DRAWN = (
    "Questions were drawn at random: where no conditions were named, in clean speech and in the "
    "noisiest condition in which the best FF1 is at least half of that."
)
POINTS = 30  # points of an envelope per second, enough for zooming in to phones
FEWEST_POINTS = 600  # points of the envelope of a short recording


@dataclass(frozen=True)
class Results:
    """A page shows these results."""

    rows: Sequence[Row]
    artefacts: Artefacts = Artefacts()
    examples: Sequence[ListeningExample] = ()
    predictions: Sequence[Mapping[str, Any]] = ()  # rows of `list_predictions`
    grid: Sequence[Table] = ()  # tables of a robustness grid
    tables: Sequence[Table] = ()  # further tables
    provenance: Mapping[str, Any] = field(default_factory=dict)  # data, machine, versions
    synthetic: str = ""  # sentences about synthetic speech and training data in the results
    opening: str = ""  # the first paragraph, by `write_opening`
    examples_note: str = ""  # says how the examples were drawn


def build_report(out: Path | str, results: Results) -> None:
    """Write the page, whole or not at all; the same input gives the same bytes. Parts without data
    are left out."""
    rows, artefacts = sort_rows(results.rows), results.artefacts
    sections: list[Section] = []
    if artefacts:
        sections += make_superb_sections([row for row in rows if row.task in ORDER], artefacts)
        rows = [row for row in rows if row.task not in ORDER]
    grid_rows, qa_rows = split_grid(rows)
    qa_scores, *listening = make_qa_sections(qa_rows, results)
    sections += [
        qa_scores,
        make_robustness_section(grid_rows, ROBUSTNESS, results.grid),
        Section("Further tables", tables=results.tables),
        *listening,
    ]
    title = TITLE
    if artefacts and not qa_rows:
        title = SUPERB
    elif grid_rows and not qa_rows:
        title = ROBUSTNESS
    models = dict.fromkeys(row.encoder for row in results.rows if row.encoder)
    facts = {"Models and encoders": ", ".join(models)} if models else {}
    write_page(
        out,
        title,
        sections,
        {**results.provenance, **facts},
        results.synthetic,
        results.rows,
        results.opening,
    )


def make_superb_sections(rows: Sequence[Row], artefacts: Artefacts) -> list[Section]:
    """Make the section of SUPERB, and one of its tasks in noise."""
    grid_rows, _ = split_grid(row for row in rows if not row.metric.endswith(DEFAULT))
    noise = make_robustness_section(grid_rows, "In noise, task by task")
    return [make_superb_section(rows, artefacts), noise]


def make_qa_sections(rows: Sequence[Row], results: Results) -> list[Section]:
    """Make the sections of question answering: scores, questions to listen to, predictions."""
    systems: list[str | None] = []
    for example in results.examples:
        systems += [lane.system for lane in example.lanes]
    systems += [line["system"] for line in results.predictions]
    labels = tabulate_scores(rows).label if rows else []
    slots = assign_slots([*labels, *filter(None, systems)])
    explorer = None
    errors: list[Table] = []
    if results.predictions:
        explorer = make_explorer(results.predictions, slots)
        errors = tabulate_errors(explorer, results.synthetic)
    return [
        make_qa_section(rows, slots, results.synthetic, errors),
        Section("Listen", results.examples_note, examples=results.examples, slots=slots),
        Section("All predictions", explorer=explorer),
    ]


# ---- from the folder of an evaluation


def report(o: Report) -> dict[str, str]:
    """Write the page of a folder of results, and return its path. Raises InputError where
    `write_report` does."""
    with hold_output(o.out):
        write_report(o)
    page = o.out / "report.html"
    rows = len(read_rows(o.out / "results.jsonl"))
    print(f"{page}: {rows:,} results; open it in a browser")
    return {"page": str(page)}


def write_report(o: Report) -> None:
    """Write `out`/report.html from `out`/results.jsonl, `out`/predictions and
    `out`/degradation.json, and from `out`/heads and `out`/details where SUPERB was run.

    Without a corpus there are no questions to listen to. Raises InputError where these files are
    missing or were made on other data.
    """
    rows = read_rows(o.out / "results.jsonl")
    grid: list[Table] = []
    if (o.out / "degradation.json").is_file():
        grid = [make_table(table) for table in read_json(o.out / "degradation.json")["tables"]]
    results = Results(
        rows,
        read_artefacts(o.out),
        grid=grid,
        tables=list(map(read_table, o.tables)),
        provenance=describe_machine(),
        synthetic=describe_seen((row.name, row.seen) for row in rows),
    )
    if o.corpus:
        results = add_corpus(results, o, o.corpus)
    build_report(o.out / "report.html", results)


def add_corpus(results: Results, o: Report, corpus: Path) -> Results:
    """Add facts about the corpus, published tables, questions to listen to and predictions.

    Raises InputError where the answers in the folder were not made on this corpus and split.
    """
    split = o.split or find_evaluated_split(o.out)
    card = read_corpus_card(corpus)
    data = load_corpus(corpus, split)
    manifest_hash = hash_data(corpus, split)
    facts = {
        "Data": f"{card.get('corpus')} ({card.get('synthetic', 'as the corpus has it')})",
        "Split": f"{split}: {describe_questions(data)}",
        "Manifest": manifest_hash,
        # the command that prepared the corpus, which the card has with OUT for its folder
        "Made by": card.get("made_by", "").replace(" OUT ", f" {corpus} "),
    }
    published = make_published_tables([f"{card.get('corpus')} {split}"])
    scores = [score for score in read_scores(o.out) if score.card.get("data") == manifest_hash]
    places = [(condition.short, condition.snr_db) for condition in choose_conditions(results.rows)]
    opening = write_opening(scores, places, describe_speech(card, data))
    scored = read_answers(o.out)
    for score, _ in scored:
        if score.card["data"] != manifest_hash:
            raise InputError(
                f"{score.path} and its answers were not made on {corpus / split}; name the corpus "
                "and split of `speechssl evaluate`"
            )
    results = replace(
        results,
        tables=[*results.tables, *published],
        provenance={**facts, **results.provenance},
        synthetic=f"{read_synthetic_note(corpus)} {results.synthetic}".strip(),
        opening=opening,
    )
    if not scored:
        return results
    examples, note = draw_examples(o, data, scored, results.rows)
    anchors = {(e.id, e.condition): f"example-{i}" for i, e in enumerate(examples, 1)}
    predictions = list_predictions(scored, data, anchors)
    return replace(results, examples=examples, examples_note=note, predictions=predictions)


def describe_questions(data: Corpus) -> str:
    """Describe how many questions a split has, and how many of them have no answer."""
    passages = describe_range([len(data.passages)], "passage")
    text = f"{describe_range([len(data.questions)], 'question')} about {passages}"
    left_out = len(data.questions) - len(data.answerable)
    if left_out:
        text += (
            f"; n is {len(data.answerable)}; not asked: {left_out} without an answer in the corpus"
        )
    return text


def describe_speech(card: Mapping[str, Any], data: Corpus) -> str:
    """Name a split of a corpus, and say who speaks it as far as that is known."""
    name = card.get("title") or card.get("corpus")
    if card.get("corpus") == "squad":  # a file in the layout of SQuAD, which has no name
        name = ""
    voices = {record.speaker for record in data.records if record.audio} - {""}
    spoken = describe_range([len(voices)], "voice") if voices else ""
    return ", ".join(filter(None, [name, f"split {data.split}", card.get("synthetic"), spoken]))


def find_evaluated_split(out: Path) -> str:
    """Return the split of the scores in a folder; test where there are none, or several splits."""
    splits = {read_card(path)["split"] for path in out.glob("scores/*/*.parquet")}
    return splits.pop() if len(splits) == 1 else "test"


def describe_machine() -> dict[str, str]:
    """Describe the machine, the packages and the date."""
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "numpy")]
    return {
        "Machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "Versions": ", ".join(versions),
        "Date": date.today().isoformat(),
    }


def read_table(path: Path) -> Table:
    """Read a JSON table. Raises InputError for a file that is none."""
    try:
        return make_table(read_json(path))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not a table (an object with title, columns and rows); {error}"
        ) from error


def read_scores(out: Path) -> list[Scores]:
    """Read the scores in a folder: conditions in the order of `order_conditions`, systems in that
    of the page."""
    scores = read_results([out]) if any(out.glob("scores/*/*.parquet")) else []
    conditions = order_conditions(score.condition for score in scores)

    def sort_key(score: Scores) -> tuple[Any, ...]:
        return conditions.index(score.condition), rank_name(score.system, NAMES)

    return sorted(scores, key=sort_key)


def read_answers(out: Path) -> list[tuple[Scores, Answers]]:
    """Read the scores of spoken question answering in a folder with the answers, in the order of
    `read_scores`. Those of multiple choice and retrieval are left out."""
    scored: list[tuple[Scores, Answers]] = []
    for score in read_scores(out):
        predictions = read_predictions(find_predictions(score))
        if "answers" in predictions:
            scored.append((score, predictions))
    return scored


# ---- questions to listen to


def draw_examples(
    o: Report, data: Corpus, scored: Sequence[tuple[Scores, Answers]], rows: Sequence[Row]
) -> tuple[list[ListeningExample], str]:
    """Draw `o.examples` questions to listen to, about as many in every condition; return them, and
    a sentence that says how they were drawn. scored: all scores with their answers.

    Raises InputError where there are no answers in a given condition, or of a given system.
    """
    conditions = [parse_condition(text) for text in o.conditions] or choose_conditions(rows)
    by_condition: dict[Condition, list[tuple[Scores, Answers]]] = {}
    for condition in conditions:
        place = (condition.short, condition.snr_db)
        by_condition[condition] = [pair for pair in scored if pair[0].condition == place]
        if o.conditions and not by_condition[condition]:
            raise InputError(
                f"{o.out} has no answers in {condition.text}; run `speechssl evaluate` first"
            )
    systems = {score.system for score, _ in scored}
    for system in o.differ or ():
        if system not in systems:
            raise InputError(
                f"{o.out} has no answers of {system}; name two of {', '.join(sorted(systems))} "
                "with --differ"
            )
    extractor = load_unit_extractor(o.models, [a for _, a in scored]) if o.examples else None
    examples: list[ListeningExample] = []
    counts = []
    for i, (condition, condition_scored) in enumerate(by_condition.items()):
        maker = ExampleMaker(data, condition, condition_scored, extractor)
        if o.differ:
            right_systems, n = find_differing([score for score, _ in condition_scored], o.differ)
            maker = replace(maker, drawable=right_systems.keys())
            counts.append(describe_differing(condition, o.differ, right_systems, n))
        examples_left = o.examples - len(examples)
        conditions_left = len(by_condition) - i
        examples += maker.draw(math.ceil(examples_left / conditions_left), o.seed)
    if not o.differ:
        return examples, DRAWN if examples else ""
    pair = join_words(o.differ)
    sentence = f"Questions were drawn at random of those where the FF1 of {pair} differs by 50 "
    return examples, f"{sentence}points or more: {'; '.join(counts)}."


def find_differing(
    scores: Iterable[Scores], systems: tuple[str, str]
) -> tuple[dict[str, str], int]:
    """Find the questions where the FF1 of two systems differs by 50 points or more. Return by
    question which system is right, and the number of questions of which both have an FF1. scores:
    those of one condition."""
    values = {score.system: score.collect_values("ff1") for score in scores}
    first, second = (values.get(system, {}) for system in systems)
    right_systems = {}
    for question in sorted(first.keys() & second.keys()):
        difference = first[question] - second[question]
        if abs(difference) >= 0.5:
            right_systems[question] = systems[0] if difference > 0 else systems[1]
    return right_systems, len(first.keys() & second.keys())


def describe_differing(
    condition: Condition, systems: tuple[str, str], right_systems: Mapping[str, str], n: int
) -> str:
    """Say in how many of n questions two systems differ, and how often each is right there."""
    first, second = systems
    often = Counter(right_systems.values())
    phrase = phrase_condition(condition.short, condition.snr_db)
    return (
        f"{len(right_systems)} of {n} in {phrase}, where {first} is right in {often[first]} and "
        f"{second} in {often[second]}"
    )


def choose_conditions(rows: Sequence[Row]) -> list[Condition]:
    """Choose clean speech, and the noisiest condition in which the best FF1 is at least half of
    that in clean speech; without clean speech the first condition.

    Conditions with recorded noise, which their names do not identify, are left out.
    """
    best: dict[Condition, float] = {}  # FF1
    for row in rows:
        snr = "" if row.snr_db is None else f"@{row.snr_db:g}"
        try:
            condition = parse_condition(f"{row.condition}{snr}")
            Distorter().check(condition)
        except InputError:
            continue
        if row.metric == "ff1":
            best[condition] = max(best.get(condition, 0.0), row.value)
    clean = parse_condition("clean")
    if clean not in best:
        return [next(iter(best), clean)]
    usable = [c for c in best if c.snr_db is not None and best[c] >= best[clean] / 2]
    return [clean, *sorted(usable, key=lambda c: c.snr_db or 0.0)[:1]]


def load_unit_extractor(models: str, predictions: Sequence[Answers]) -> UnitExtractor | None:
    """Load the unit extractor of the folder of models. Return None where none of the predictions is
    made from units and, with a warning on stderr, where all were made with other units."""
    cards = [p["card"] for p in predictions if "codebook" in p["card"]]
    if not cards:
        return None
    folder = model_folder(models)
    path = folder / "units.safetensors"
    if path.is_file():
        extractor = make_extractor(load_encoder(folder / "encoder"), load_codebook(path))
        if any(extractor.card.items() <= card.items() for card in cards):
            return extractor
    print(
        f"units are not drawn, for {models} is not what made the predictions; name those "
        "models with --models",
        file=sys.stderr,
    )
    return None


@dataclass(frozen=True, eq=False)
class ExampleMaker:
    """An example maker makes questions to listen to, in one condition."""

    data: Corpus
    condition: Condition
    scored: Sequence[tuple[Scores, Answers]]  # the scores and answers of every system
    extractor: UnitExtractor | None  # of units of the distorted passage; None: none are shown
    drawable: Container[str] | None = None  # questions that may be drawn; None: all

    def draw(self, count: int, seed: int) -> list[ListeningExample]:
        """Draw `count` questions at random, of as many passages as possible, of those that all
        systems answered; systems that answered fewer questions than others do not count."""
        if not self.scored:
            return []
        answered = [set(answers["answers"]) for _, answers in self.scored]
        most = max(map(len, answered))
        common = set.intersection(*(ids for ids in answered if len(ids) == most))
        questions = []
        for question in self.data.answerable:
            recorded = question.audio and self.data.passages[question.passage].audio
            timed = any(answer.start is not None for answer in question.answers)
            drawable = self.drawable is None or question.id in self.drawable
            if recorded and timed and drawable and question.id in common:
                questions.append(question)
        random.Random(f"examples {self.condition.label} {seed}").shuffle(questions)
        firsts = {question.passage: question for question in questions}  # one a passage
        others = [question for question in questions if question is not firsts[question.passage]]
        drawn = [*firsts.values(), *others][:count]
        _, answers = self.scored[0]  # their card has the seed of the noise
        distorter = Distorter(answers.get("seed", 0), snr_over=answers.get("snr_over", ACTIVE))
        distorter.check(self.condition)
        with open_pool(CORES) as pool:
            examples = pool.map(partial(self.make_example, distorter), drawn)
            progress = tqdm(examples, "examples", len(drawn), unit="question", disable=not drawn)
            return list(progress)

    def make_example(self, distorter: Distorter, question: Question) -> ListeningExample:
        """Make the example of a question, with the distorted audio."""
        passage = self.data.passages[question.passage]

        def read_distorted(record: Passage | Question) -> np.ndarray:
            return distorter.apply(read_audio(self.data.path(record)), self.condition, record.id)

        passage_samples = read_distorted(passage)
        seconds = len(passage_samples) / SAMPLE_RATE
        gold = question.answers[0].text
        kind = classify_answer(question.written, gold, question.language)
        badges = [("type of the answer", kind)]
        if passage.speaker:
            badges.insert(0, ("voice of the passage", passage.speaker))
        snr_over = distorter.describe(self.condition).get("snr_over")
        return ListeningExample(
            id=question.id,
            question_text=question.text,
            question_audio=encode_audio(read_distorted(question)),
            passage_audio=encode_audio(passage_samples),
            seconds=seconds,
            envelope=compute_envelope(passage_samples, max(FEWEST_POINTS, round(POINTS * seconds))),
            lanes=tuple(self.make_lanes(question, seconds)),
            condition=label_condition(
                name_full_condition(self.condition.short, snr_over), self.condition.snr_db
            ),
            badges=tuple(badges),
            strips=tuple(self.make_strips(passage, passage_samples)),
        )

    def make_lanes(self, question: Question, seconds: float) -> list[Lane]:
        """Make the lanes of the gold answer and of the systems that answered. seconds: length of
        the passage."""
        gold_regions: tuple[Region, ...] = ()
        for gold in question.answers:
            if gold.start is not None and gold.end is not None:
                gold_regions += (make_region(gold.start, gold.end, seconds),)

        def middle(regions: Sequence[Region]) -> float:
            """Return where the first region is in the passage, from 0 to 1."""
            return (regions[0].start + regions[0].end) / 2 / seconds if regions else 0.5

        text = self.data.passages[question.passage].text
        gold_pieces = cut_at(text, question.answers[0].text, middle(gold_regions))
        lanes = [Lane(system=None, regions=gold_regions, pieces=gold_pieces)]
        for score, answers in self.scored:
            answer = answers["answers"].get(question.id)
            if not answer:
                continue
            start, end = answer["start"], answer["end"]
            regions: tuple[Region, ...] = ()
            if start is not None and end > start:
                regions = (make_region(start, end, seconds),)
            transcript = answers["transcripts"].get(question.passage)
            pieces = None
            if transcript is not None:
                pieces = cut_at(transcript, answer["text"] or "", middle(regions))
            ff1 = score.lines[question.id]["ff1"]
            percent = None if ff1 is None else 100 * ff1
            lanes.append(Lane(score.system, regions, pieces, percent, answer["confidence"]))
        return lanes

    def make_strips(self, passage: Passage, samples: np.ndarray) -> list[Strip]:
        """Make the strips of phones and of units below a waveform. samples: (N,) of the passage."""
        strips = []
        if passage.phones:
            phones = [(p.text, round(p.start, 3), round(p.end, 3)) for p in passage.phones]
            strips.append(Strip("Phones", tuple(phones)))
        if self.extractor and self.extractor.grid.count_frames(len(samples)):
            grid, runs = self.extractor.grid, self.extractor.extract(samples)
            borders = [round(grid.find_start(int(frame)), 3) for frame in runs.borders]
            blocks = []
            for unit, (start, end) in zip(runs.units, pairwise(borders), strict=True):
                blocks.append((str(unit), start, end))
            strips.append(Strip("Units", tuple(blocks), coloured=True))
        return strips
