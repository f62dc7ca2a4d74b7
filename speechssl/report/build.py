"""Write the report of an evaluation: one page of everything in its folder, SUPERB, question
answering and the robustness grid."""

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
    corpus_card,
    data_hash,
    load_corpus,
    synthetic_note,
)
from speechssl.encoders.encoder import single_threaded
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.eval.compare import Scores, read_results
from speechssl.eval.predict import parse_predictions, read_items
from speechssl.eval.score import answer_type
from speechssl.report.listening import (
    Answers,
    Lane,
    ListeningExample,
    Region,
    Strip,
    cut_at,
    encode_audio,
    envelope,
    find_predictions,
    list_predictions,
    make_explorer,
    region,
    tabulate_errors,
)
from speechssl.report.options import Report
from speechssl.report.page import Section, write_page
from speechssl.report.robustness import robustness_section, split_grid
from speechssl.report.scores import (
    SYSTEMS,
    arrange,
    assign_slots,
    condition_label,
    condition_phrase,
    rank_name,
    sort_rows,
)
from speechssl.report.spoken_qa import qa_section, write_opening
from speechssl.report.superb import superb_section
from speechssl.report.superb_figures import Artefacts, read_artefacts
from speechssl.results import (
    DEFAULT,
    Row,
    Table,
    describe_range,
    full_condition,
    join_words,
    order_conditions,
    published_tables,
    read_rows,
    seen_sentence,
    table_of,
)
from speechssl.signal import ACTIVE
from speechssl.superb.tasks import ORDER
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
    opening: str = ""  # the first paragraph: what was asked, and who was right how often
    drawn: str = ""  # how the examples were drawn


def build_report(out: Path | str, results: Results) -> None:
    """Write the page, whole or not at all; the same input gives the same bytes. Parts without data
    are left out."""
    rows, artefacts = sort_rows(results.rows), results.artefacts
    sections: list[Section] = []
    if artefacts:
        sections += superb_sections([row for row in rows if row.task in ORDER], artefacts)
        rows = [row for row in rows if row.task not in ORDER]
    grid_rows, qa_rows = split_grid(rows)
    qa_scores, *listening = qa_sections(qa_rows, results)
    sections += [
        qa_scores,
        robustness_section(grid_rows, ROBUSTNESS, results.grid),
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


def superb_sections(rows: Sequence[Row], artefacts: Artefacts) -> list[Section]:
    """Make the section of SUPERB, and one of its tasks in noise."""
    grid_rows, _ = split_grid(row for row in rows if not row.metric.endswith(DEFAULT))
    noise = robustness_section(grid_rows, "In noise, task by task")
    return [superb_section(rows, artefacts), noise]


def qa_sections(rows: Sequence[Row], results: Results) -> list[Section]:
    """Make the sections of question answering: scores, questions to listen to, predictions."""
    systems = [lane.system for example in results.examples for lane in example.lanes]
    systems += [line["system"] for line in results.predictions]
    labels = arrange(rows).label if rows else []
    slots = assign_slots([*labels, *filter(None, systems)])
    explorer = None
    errors: list[Table] = []
    if results.predictions:
        explorer = make_explorer(results.predictions, slots)
        errors = tabulate_errors(explorer, results.synthetic)
    return [
        qa_section(rows, slots, results.synthetic, errors),
        Section("Listen", results.drawn, examples=results.examples, slots=slots),
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
    file = o.out / "degradation.json"
    grid = list(map(table_of, read_json(file)["tables"])) if file.is_file() else []
    results = Results(
        rows,
        read_artefacts(o.out),
        grid=grid,
        tables=read_tables(o.tables),
        provenance=describe_machine(),
        synthetic=seen_sentence((row.name, row.seen) for row in rows),
    )
    if o.corpus:
        results = add_corpus(results, o, o.corpus)
    build_report(o.out / "report.html", results)


def add_corpus(results: Results, o: Report, corpus: Path) -> Results:
    """Add facts about the corpus, published tables, questions to listen to and predictions.

    Raises InputError where the answers in the folder were not made on this corpus and split.
    """
    split = o.split or find_evaluated_split(o.out)
    card, data = corpus_card(corpus), load_corpus(corpus, split)
    manifest_hash = data_hash(corpus, split)
    facts = {
        "Data": f"{card.get('corpus')} ({card.get('synthetic', 'as the corpus has it')})",
        "Split": f"{split}: {describe_questions(data)}",
        "Manifest": manifest_hash,
        "Made by": card.get("made_by", "").replace(" OUT ", f" {corpus} "),
    }
    published = published_tables([f"{card.get('corpus')} {split}"])
    results = replace(
        results,
        tables=[*results.tables, *published],
        provenance={**facts, **results.provenance},
        synthetic=f"{synthetic_note(corpus)} {results.synthetic}".strip(),
    )
    scores = [score for score in read_scores(o.out) if score.card.get("data") == manifest_hash]
    places = [(condition.short, condition.snr_db) for condition in choose_conditions(results.rows)]
    opening = write_opening(scores, places, describe_speech(card, data))
    results = replace(results, opening=opening)
    scored = read_answers(o.out)
    if not scored:
        return results
    for score, _ in scored:
        if score.card["data"] != manifest_hash:
            raise InputError(
                f"{score.path} and its answers were not made on {corpus / split}; name the corpus "
                "and split of `speechssl evaluate`"
            )
    examples, drawn = draw_examples(o, data, scored, results.rows)
    anchors = {(e.id, e.condition): f"example-{i}" for i, e in enumerate(examples, 1)}
    predictions = list_predictions(scored, data, anchors)
    return replace(results, examples=examples, drawn=drawn, predictions=predictions)


def describe_questions(data: Corpus) -> str:
    """Describe how many questions a split has, and how many of them have no answer."""
    passages = describe_range([len(data.passages)], "passage")
    text = f"{describe_range([len(data.questions)], 'question')} about {passages}"
    left_out = len(data.questions) - len(data.answerable)
    if left_out:
        text += f"; n is {len(data.answerable)}: the passage has no answer to the other {left_out},"
        text += " which are not asked"
    return text


def describe_speech(card: Mapping[str, Any], data: Corpus) -> str:
    """Name a split of a corpus, and say who speaks it as far as that is known. JSON in the layout
    of SQuAD has no name."""
    name = "" if card.get("corpus") == "squad" else card.get("title") or card.get("corpus")
    voices = {record.speaker for record in data.records if record.audio} - {""}
    spoken = describe_range([len(voices)], "voice") if voices else ""
    return ", ".join(filter(None, [name, f"split {data.split}", card.get("synthetic"), spoken]))


def find_evaluated_split(out: Path) -> str:
    """Return the split of the scores in a folder; test where there are none, or several splits."""
    splits = {read_items(path)[1].get("split") for path in out.glob("scores/*/*.parquet")}
    return str(splits.pop()) if len(splits) == 1 else "test"


def describe_machine() -> dict[str, str]:
    """Describe the machine, the packages and the date."""
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "numpy")]
    return {
        "Machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "Versions": ", ".join(versions),
        "Date": date.today().isoformat(),
    }


def read_tables(paths: Iterable[Path]) -> list[Table]:
    """Read JSON tables. Raises InputError for a file that is no table."""
    tables = []
    for path in paths:
        try:
            tables.append(table_of(read_json(path)))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path} is not a table (an object with title, columns and rows); {error}"
            ) from error
    return tables


def read_scores(out: Path) -> list[Scores]:
    """Read the scores in a folder: conditions in the order of `order_conditions`, systems in that
    of the page."""
    scores = read_results([out]) if any(out.glob("scores/*/*.parquet")) else []
    conditions = order_conditions(score.condition for score in scores)

    def order(score: Scores) -> tuple[Any, ...]:
        return conditions.index(score.condition), rank_name(score.system, SYSTEMS)

    return sorted(scores, key=order)


def read_answers(out: Path) -> list[tuple[Scores, Answers]]:
    """Read the scores in a folder that are of answers in a passage, and these answers, in the order
    of `read_scores`."""
    found: list[tuple[Scores, Answers]] = []
    for score in read_scores(out):
        answers = parse_predictions(*read_items(find_predictions(score)))
        if "answers" in answers:  # options and ranks may lie beside them
            found.append((score, answers))
    return found


# ---- questions to listen to


def draw_examples(
    o: Report, data: Corpus, scored: Sequence[tuple[Scores, Answers]], rows: Sequence[Row]
) -> tuple[list[ListeningExample], str]:
    """Draw questions to listen to, as many in every condition as there are, and say of which.

    Raises InputError where there are no answers in a given condition, or of a given system.
    """
    conditions = [parse_condition(text) for text in o.conditions] or choose_conditions(rows)
    by_condition: dict[Condition, list[tuple[Scores, Answers]]] = {}
    for condition in conditions:
        place = (condition.short, condition.snr_db)
        found = [pair for pair in scored if pair[0].condition == place]
        if o.conditions and not found:
            raise InputError(
                f"{o.out} has no answers in {condition.text}; run `speechssl evaluate` first"
            )
        by_condition[condition] = found
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
    for i, (condition, found) in enumerate(by_condition.items()):
        maker = ExampleMaker(data, condition, found, extractor)
        if o.differ:
            right, n = find_differing([score for score, _ in found], o.differ)
            maker = replace(maker, drawable=right.keys())
            counts.append(count_differing(condition, o.differ, right, n))
        left = o.examples - len(examples)
        examples += maker.draw(math.ceil(left / (len(by_condition) - i)), o.seed)
    if not o.differ:
        return examples, DRAWN if examples else ""
    pair = join_words(o.differ)
    sentence = f"Questions were drawn at random of those where the FF1 of {pair} differs by 50 "
    return examples, f"{sentence}points or more: {'; '.join(counts)}."


def find_differing(
    scores: Iterable[Scores], systems: tuple[str, str]
) -> tuple[dict[str, str], int]:
    """Return by question, where the FF1 of two systems differs by 50 points or more, which of them
    is right, and how many questions both have an FF1 of. scores: in one condition."""
    values = {score.system: score.values("ff1") for score in scores}
    first, second = (values.get(system, {}) for system in systems)
    right = {}
    for question in sorted(first.keys() & second.keys()):
        difference = first[question] - second[question]
        if abs(difference) >= 0.5:
            right[question] = systems[0] if difference > 0 else systems[1]
    return right, len(first.keys() & second.keys())


def count_differing(
    condition: Condition, systems: tuple[str, str], right: Mapping[str, str], n: int
) -> str:
    """Say in how many of n questions two systems differ, and how often each is right there."""
    first, second = systems
    often = Counter(right.values())
    return (
        f"{len(right)} of {n} in {condition_phrase(condition.short, condition.snr_db)}, where "
        f"{first} is right in {often[first]} and {second} in {often[second]}"
    )


def choose_conditions(rows: Sequence[Row]) -> list[Condition]:
    """Choose clean speech, and the noisiest condition in which the best FF1 is at least half of
    that in clean speech; without clean speech the first condition.

    Conditions with recorded noise, which their names do not identify, are left out.
    """
    best: dict[Condition, float] = {}
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
        return [*best, clean][:1]
    usable = [c for c in best if c.snr_db is not None and best[c] >= best[clean] / 2]
    return [clean, *sorted(usable, key=lambda c: c.snr_db or 0.0)[:1]]


def load_unit_extractor(models: str, predictions: Sequence[Answers]) -> UnitExtractor | None:
    """Load the unit extractor of the models that made some of these predictions; None where no
    prediction has units.

    None as well, with a warning on stderr, where other models made the predictions.
    """
    cards = [p["card"] for p in predictions if "codebook" in p.get("card", {})]
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
    """This makes questions to listen to, of one condition. scored: the answers of every system.
    extractor: of the units that are shown, which are those of the distorted passage. drawable:
    questions that may be drawn; None: all."""

    data: Corpus
    condition: Condition
    scored: Sequence[tuple[Scores, Answers]]
    extractor: UnitExtractor | None
    drawable: Container[str] | None = None

    def draw(self, count: int, seed: int) -> list[ListeningExample]:
        """Draw at random (not by choice) of the questions that most systems answered, no passage
        twice."""
        answered = [set(answers["answers"]) for _, answers in self.scored]
        most = max(map(len, answered), default=0)
        complete = [ids for ids in answered if len(ids) == most]
        common = set.intersection(*complete) if complete else set()
        questions = []
        for question in self.data.answerable:
            recorded = question.audio and self.data.passages[question.passage].audio
            timed = any(answer.start is not None for answer in question.answers)
            drawable = self.drawable is None or question.id in self.drawable
            if recorded and timed and drawable and question.id in common:
                questions.append(question)
        random.Random(f"examples {self.condition.label} {seed}").shuffle(questions)
        drawn = list({question.passage: question for question in questions}.values())[:count]
        noise = self.scored[0][1] if self.scored else {}
        distorter = Distorter(noise.get("seed", 0), snr_over=noise.get("snr_over", ACTIVE))
        distorter.check(self.condition)
        with single_threaded(CORES) as pool:
            made = pool.map(partial(self.make, distorter), drawn)
            bar = {"desc": "examples", "unit": "question", "disable": not drawn}
            return list(tqdm(made, total=len(drawn), **bar))

    def make(self, distorter: Distorter, question: Question) -> ListeningExample:
        passage = self.data.passages[question.passage]

        def listen(record: Passage | Question) -> np.ndarray:
            return distorter.apply(read_audio(self.data.path(record)), self.condition, record.id)

        samples, asked = listen(passage), listen(question)
        seconds = len(samples) / SAMPLE_RATE
        gold = question.answers[0].text
        badges = [("type of the answer", answer_type(question.written, gold, question.language))]
        if passage.speaker:
            badges.insert(0, ("voice of the passage", passage.speaker))
        over = distorter.card(self.condition).get("snr_over")
        return ListeningExample(
            id=question.id,
            question_text=question.text,
            question_audio=encode_audio(asked),
            passage_audio=encode_audio(samples),
            seconds=seconds,
            envelope=envelope(samples, max(600, round(POINTS * seconds))),
            lanes=tuple(self.lanes(question, seconds)),
            condition=condition_label(
                full_condition(self.condition.short, over), self.condition.snr_db
            ),
            badges=tuple(badges),
            strips=tuple(self.strips(passage, samples)),
        )

    def lanes(self, question: Question, seconds: float) -> list[Lane]:
        """Return the gold answer, and those of the systems that answered."""
        golden = tuple(
            region(a.start, a.end, seconds)
            for a in question.answers
            if a.start is not None and a.end is not None
        )
        text = self.data.passages[question.passage].text

        def middle(regions: Sequence[Region]) -> float:
            return (regions[0].start + regions[0].end) / 2 / seconds if regions else 0.5

        lanes = [Lane(None, golden, cut_at(text, question.answers[0].text, middle(golden)))]
        for score, answers in self.scored:
            answer = answers["answers"].get(question.id)
            if not answer:
                continue
            start, end = answer["start"], answer["end"]
            regions: tuple[Region, ...] = ()
            if start is not None and end > start:
                regions = (region(start, end, seconds),)
            transcript = answers["transcripts"].get(question.passage)
            pieces = None
            if transcript is not None:
                pieces = cut_at(transcript, answer["text"] or "", middle(regions))
            ff1 = score.lines.get(question.id, {}).get("ff1")
            percent = None if ff1 is None else 100 * ff1
            lanes.append(Lane(score.system, regions, pieces, percent, answer["confidence"]))
        return lanes

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
