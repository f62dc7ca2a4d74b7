"""The section of SUPERB on a page: scores (clean speech, published, noise, learning rates), figures
from what lies beside the rows.

Figures: confusion matrices, DET curves, who spoke when, layer weights, and sweeps of learning
rates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from speechssl.artifacts import read_json
from speechssl.data.superb import Turn
from speechssl.errors import InputError
from speechssl.report.figures import (
    CLEAN,
    INCHES,
    NAMES,
    PALETTE,
    ROW,
    SYSTEMS,
    Drawing,
    ScoreCell,
    Series,
    ShownCondition,
    arrange,
    axes_at,
    blank,
    cell_axes,
    decibels,
    draw_cell,
    legend,
    shortened,
    svg_of,
)
from speechssl.report.page import Placed, Section, best_of, cell_notes, cell_of, printed
from speechssl.report.robustness import AT, GROUPS, Panel, of_grid, panels, series_of
from speechssl.results import (
    DEFAULT,
    INK,
    LOWER_IS_BETTER,
    METRICS,
    MUTED,
    PAPER,
    PUBLISHED_SUPERB,
    RULE,
    Cell,
    Row,
    Table,
    decimals,
    metric_name,
    nearest_snr,
    published,
    published_encoders,
    unit,
)
from speechssl.superb.tasks.diarisation import matching_names
from speechssl.superb.tasks.verification import ErrorCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

ASPECTS = {  # as in the paper of the benchmark, and their tasks in the order of the page
    "Content": ("pr", "asr", "ks", "qbe"),
    "Speaker": ("sid", "asv", "sd"),
    "Semantics": ("ic", "sf"),
    "Para\u00adlinguistics": ("er",),
    "Generation": ("se", "ss"),
}
TASKS = tuple(task for tasks in ASPECTS.values() for task in tasks)
ASPECT = {task: aspect for aspect, tasks in ASPECTS.items() for task in tasks}
ORDER = (
    ("pr", "per"),
    ("asr", "wer"),
    ("asr", "wer_lm"),
    ("ks", "acc"),
    ("qbe", "mtwv"),
    ("sid", "acc"),
    ("asv", "eer"),
    ("sd", "der"),
    ("ic", "acc"),
    ("sf", "slot_f1"),
    ("sf", "slot_cer"),
    ("er", "acc"),
    ("se", "pesq"),
    ("se", "stoi"),
    ("se", "si_sdr"),
    ("ss", "si_sdri"),
)
MAIN = {task: metric for task, metric in reversed(ORDER)}  # what heads are chosen by
# tasks that no robustness grid has
OWN = frozenset({"pr", "qbe", "asv", "sd", "sf", "er", "se", "ss"})
RATIO = "ratio_cached"
TOLERANCE = 1e-2  # of a sum of rounded weights to 1
Measured = tuple[str, str]  # task, metric
# below the name of the task
SHORT = {"acc": "Acc", "wer_lm": "WER+LM", "slot_f1": "F1", "slot_cer": "CER", "min_dcf": "minDCF"}
BESIDE = ("atwv", "min_dcf")  # measures that the benchmark does not list


# ---- cards of heads, and details


class SweepTrial(NamedTuple):
    """One learning rate of a sweep. value: the task's first metric on dev; NaN where training broke
    down."""

    learning_rate: float
    value: float
    steps: int


class Head(NamedTuple):
    """weights: the share of each hidden state, CNN output first; they sum to 1. default: the
    learning rate without a sweep."""

    encoder: str
    task: str
    seed: int
    weights: tuple[float, ...]
    learning_rate: float | None = None
    default: float | None = None
    sweep: tuple[SweepTrial, ...] = ()


class Confusion(NamedTuple):
    """counts: a line a true class, predictions of each class in it. slot: of the label; a set has
    one or more."""

    encoder: str
    task: str
    slot: str
    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class Timeline(NamedTuple):
    """The turns of speakers in one recording, in truth and as predicted."""

    encoder: str
    id: str
    seconds: float
    truth: tuple[Turn, ...]
    predicted: tuple[Turn, ...]


class Recognised(NamedTuple):
    """A recording of the test set, and what a head made of it."""

    encoder: str
    task: str
    id: str
    truth: str
    predicted: str


Shares = Sequence[float]


@dataclass(frozen=True)
class Artefacts:
    """The files that a run left beside its rows, by encoder where it is a mapping.

    errors: shares of impostors accepted and of speakers rejected, threshold by threshold. layers:
    of QbE, MTWV (percent) of every layer on dev.
    """

    heads: Sequence[Head] = ()
    confusions: Sequence[Confusion] = ()
    errors: Mapping[str, tuple[Shares, Shares]] | None = None
    timelines: Sequence[Timeline] = ()
    layers: Mapping[str, Shares] | None = None
    transcripts: Sequence[Recognised] = ()

    def __bool__(self) -> bool:
        return any(vars(self).values())


def read_artefacts(out: Path | str, rows: Iterable[Row] = ()) -> Artefacts:
    """All artefacts of a run; missing ones are left out.

    out: the folder of `superb run`, with heads/<encoder>/<task>/[fold-<k>/]seed-<n>/card.json and
    details/<encoder>/<task>.json. rows: name the encoders, whose folders may have simpler names.
    Raises InputError naming the first damaged file.
    """

    def simple(name: str) -> str:
        return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

    out, names = Path(out), {simple(row.encoder): row.encoder for row in rows}
    artefacts = Artefacts([], [], {}, [], {}, [])
    for path in [
        *sorted(out.glob("heads/**/seed-*/card.json")),
        *sorted(out.glob("details/**/*.json")),
    ]:
        value = read_json(path)
        try:
            *folders, task, seed, _ = [
                "",
                "",
                *(x for x in path.relative_to(out).parts[1:] if not x.startswith("fold-")),
            ]
            if path.relative_to(out).parts[0] == "heads":
                name = "/".join(filter(None, folders))
                _parse_head(
                    value,
                    names.get(simple(name), name),
                    task,
                    int(seed.removeprefix("seed-")),
                    artefacts,
                )
            else:
                _parse_details(value, artefacts)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(
                f"{path} is not what `speechssl superb run` writes ({what}); remove "
                "it and run that again"
            ) from error
    return artefacts


def _parse_head(
    card: Mapping[str, Any], encoder: str, task: str, seed: int, artefacts: Any
) -> None:
    weights = tuple(_number(w) for w in card.get("layer_weights") or ())
    if weights and (min(weights) < 0 or abs(sum(weights) - 1) > TOLERANCE):
        raise ValueError(f"its layer_weights sum to {sum(weights):.3g}, not 1")
    rate, default = (card.get(name) for name in ("learning_rate", "default_learning_rate"))
    rate, default = (
        None if value is None else _number(value, positive=True) for value in (rate, default)
    )
    sweep = []
    for entry in card.get("sweep") or ():
        broken = entry["value"] is None or entry["value"] != entry["value"]
        value, steps = (
            math.nan if broken else _number(entry["value"]),
            _number(entry["steps"], whole=True),
        )
        sweep.append(SweepTrial(_number(entry["learning_rate"], positive=True), value, int(steps)))
    artefacts.heads.append(Head(encoder, task, seed, weights, rate, default, tuple(sweep)))


def _parse_details(value: Mapping[str, Any], artefacts: Any) -> None:
    encoder, task, detail = value["encoder"], value["task"], value["detail"]
    if not isinstance(encoder, str) or not isinstance(task, str):
        raise ValueError("its encoder and task are no names")
    for slot, part in detail.get("confusion", {}).items():
        classes = tuple(map(str, part["classes"]))
        counts = tuple(tuple(int(_number(n, whole=True)) for n in line) for line in part["counts"])
        if not classes or any(len(line) != len(classes) for line in (classes, counts, *counts)):
            raise ValueError(f"the confusion of {slot} is not {len(classes)} × {len(classes)}")
        artefacts.confusions.append(Confusion(encoder, task, slot, classes, counts))
    if "det" in detail:
        alarms, misses = (
            tuple(_number(v) for v in detail["det"][name]) for name in ("false_alarms", "misses")
        )
        if (
            len(alarms) != len(misses)
            or not alarms
            or not all(0 <= v <= 1 for v in (*alarms, *misses))
        ):
            raise ValueError(
                "false_alarms and misses of its det are not equally many shares between 0 and 1"
            )
        artefacts.errors[encoder] = alarms, misses
    if line := detail.get("timeline"):
        turns = []
        for name in ("truth", "predicted"):
            turns.append(
                tuple(
                    Turn(str(t["speaker"]), _number(t["start"]), _number(t["end"]))
                    for t in line[name]
                )
            )
            if backwards := [t.end for t in turns[-1] if t.end < t.start]:
                raise ValueError(f"a turn ends at {backwards[0]:g} s, before it starts")
        artefacts.timelines.append(
            Timeline(encoder, str(line["id"]), _number(line["seconds"], positive=True), *turns)
        )
    if "layers" in detail:
        artefacts.layers[encoder] = tuple(_number(v) for v in detail["layers"])
    for example in detail.get("examples", ()):  # phones come one by one
        texts = [
            text if isinstance(text, str) else " ".join(map(str, text))
            for text in (example["truth"], example["predicted"])
        ]
        artefacts.transcripts.append(Recognised(encoder, task, str(example["id"]), *texts))


def _number(value: Any, positive: bool = False, whole: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    if (positive and value <= 0) or (whole and (value < 0 or value != int(value))):
        raise ValueError(f"{value!r} is not {'above 0' if positive else 'a count'}")
    return float(value)


# ---- rows


@dataclass(frozen=True)
class SuperbResults:
    """The rows of a SUPERB run and what lies beside them. Falsy where there are none."""

    rows: tuple[Row, ...] = ()
    artefacts: Artefacts = Artefacts()

    def __bool__(self) -> bool:
        return bool(self.rows or self.artefacts)

    def shows(self, row: Row) -> bool:
        """Return whether SUPERB's own tables and figures show a row, so that no others need to."""
        mine = bool(self) and (row.name in TASKS or row.metric == RATIO)
        return mine and (row.condition == CLEAN.name or row.condition.startswith(GROUPS))

    @property
    def noisy(self) -> tuple[Panel, ...]:
        """A panel a task that was measured in noise, in the benchmark's order and with the colours
        of its encoders."""
        order = {column: number for number, column in enumerate(self.columns)}
        grid_rows, _ = of_grid(
            r for r in self.rows if (r.name, r.metric.lower()) in order and self.shows(r)
        )
        return panels(
            sorted(grid_rows, key=lambda r: order[r.name, r.metric.lower()]),
            [e.label for e in self.encoders],
        )

    @cached_property
    def encoders(self) -> tuple[Series, ...]:
        a = self.artefacts
        names = [x.encoder for items in (self.rows, a.heads, a.confusions) for x in items]
        return tuple(series_of([*names, *(a.errors or ()), *(x.encoder for x in a.timelines)]))

    @cached_property
    def cells(self) -> Mapping[tuple[str, str, str, ShownCondition], ScoreCell]:
        """Make the cells by encoder, task, metric and condition, a mean over seeds."""
        return {
            (s.encoder, s.system, metric, c): cell
            for (s, metric, c), cell in arrange(self.rows).cells.items()
        }

    @cached_property
    def columns(self) -> tuple[Measured, ...]:
        measured = {
            (task, metric)
            for _, task, metric, _ in self.cells
            if metric != RATIO and not metric.endswith(DEFAULT)
        }
        rest = sorted(measured - set(ORDER), key=lambda m: (TASKS.index(m[0]), m[1]))
        return tuple(
            sorted([m for m in ORDER if m in measured] + rest, key=lambda m: TASKS.index(m[0]))
        )

    def at(
        self, encoder: str, column: Measured, condition: ShownCondition = CLEAN
    ) -> ScoreCell | None:
        return self.cells.get((encoder, *column, condition))


def of_superb(rows: Iterable[Row], artefacts: Artefacts = Artefacts()) -> SuperbResults:
    """Empty where neither the rows nor the artefacts are SUPERB's: keywords, intents, speakers and
    words alone may be a grid's."""
    rows = list(rows)
    if not (
        artefacts
        or any(
            r.name in OWN or r.metric in (RATIO, "wer_lm") or r.metric.endswith(DEFAULT)
            for r in rows
        )
    ):
        return SuperbResults()
    return SuperbResults(tuple(r for r in rows if r.name in TASKS or r.metric == RATIO), artefacts)


def superb_section(results: SuperbResults) -> Section:
    layers = (
        "Softmax weights of the sum that each head sees, in percent, a mean over seeds; column "
        "CNN is the output of the "
        "convolutions, the others are the layers of the transformer. QbE has no weights: the "
        "square marks the layer that dev chose."
    )
    confusion = (
        "A line is what it was, a column what it was taken for; percent of the line, the "
        "stronger the colour the more (on a "
        "square-root scale, so that a few are seen as well)."
    )
    det = (
        "Both axes are normal deviates. The marks are the equal error rates, where a curve "
        "crosses the dotted diagonal; the nearer "
        "to the lower left corner, the better."
    )
    turns = (
        "The first recording of the test set: for each speaker the truth, and below it what "
        "each encoder's head predicted."
    )
    sweep = (
        "Ringed: the learning rate that dev chose. Dotted: the default. Hollow: given up before "
        "the end, as others were better by "
        "then."
    )
    figures = [
        ("Which layers the tasks use", layers, layer_weights(results)),
        *(
            (f"What was taken for what: {name}", confusion, drawing)
            for name, drawing in confusions(results)
        ),
        ("Speaker verification: misses against false alarms", det, det_curves(results)),
        ("Diarisation: who spoke when", turns, timelines(results)),
        ("Score on dev by learning rate", sweep, sweeps(results)),
    ]
    return Section(summarise_superb(results), blocks(results), figures, plain_tables(results))


# ---- tables with heads of two lines


def blocks(results: SuperbResults) -> list[Placed]:
    """Clean speech, published scores, and noise; the ten tasks apart from the extension."""
    ten = [c for c in results.columns if c[0] not in ("se", "ss") and c[1] not in BESIDE]
    extension = [c for c in results.columns if c[0] in ("se", "ss")]
    tables = [
        _clean(results, ten, "Clean speech"),
        _published(ten),
        _clean(
            results,
            [c for c in results.columns if c[1] in BESIDE],
            "Clean speech, other measures of the same tasks",
        ),
        _clean(results, extension, "Clean speech, the extension: enhancement and separation"),
        _noisy(results, ten, "Clean, seen and unseen noise"),
        _noisy(results, extension, "Clean, seen and unseen noise, the extension"),
        _tuned(results),
    ]
    return [block for block in tables if block]


def _code(task: str) -> str:
    return "QbE" if task == "qbe" else task.upper()


def _arrow(metric: str) -> str:
    return "\u00a0↓" if metric in LOWER_IS_BETTER else "\u00a0↑"


def _block(
    title: str,
    note: str,
    columns: Sequence[Measured],
    rows: Sequence[tuple[Any, ...]],
    strange: bool = False,
) -> Placed:
    """rows: what a line is of (the encoder, and a condition where the lines have several), then a
    cell for each of the columns."""
    labels = len(rows[0]) - len(columns)
    heads = [
        Cell(
            _code(task), SHORT.get(m, metric_name(m)) + _arrow(m), about=METRICS.get(m, ("", m))[1]
        )
        for task, m in columns
    ]
    groups = (*[""] * labels, *(ASPECT[task] for task, _ in columns))
    return Placed(
        Table(title, (*("Encoder", "speech")[:labels], *heads), tuple(rows), note, groups, labels),
        strange=strange,
    )


def _units(columns: Sequence[Measured]) -> str:
    kinds = {metric: unit(metric) for _, metric in columns}
    others = [
        (f"{metric_name(m)} {'in dB' if u == 'dB' else 'on its own scale'}")
        for m, u in kinds.items()
        if u != "%"
    ]
    return ", ".join((["Percent"] if "%" in kinds.values() else []) + others)


def _clean(results: SuperbResults, columns: Sequence[Measured], title: str) -> Placed | None:
    columns = [c for c in columns if any(results.at(e.label, c) for e in results.encoders)]
    rows = {e: [results.at(e.label, c) for c in columns] for e in results.encoders}
    rows = {e: cells for e, cells in rows.items() if any(cells)}
    if not rows:
        return None
    metrics = [metric for _, metric in columns]
    best = list(map(best_of, metrics, zip(*rows.values(), strict=True)))
    lines = [
        (Cell(e.label, slot=e.slot), *map(cell_of, metrics, cells, best))
        for e, cells in rows.items()
    ]
    notes = [f"Measured by this run. {_units(columns)}; ↑ more is better, ↓ less is."]
    notes += cell_notes(
        (_code(c[0]), cell)
        for cells in rows.values()
        for c, cell in zip(columns, cells, strict=True)
        if cell
    )
    notes += ["Bold: best of the column."] if len(lines) > 1 else []
    return _block(title, " ".join(notes), columns, lines)


def _published(columns: Sequence[Measured]) -> Placed | None:
    encoders = published_encoders()
    columns = [c for c in columns if any(c in values for values in encoders.values())]
    if not columns:
        return None
    marks, lines = (
        ["" if task in published()["superb"]["checked"] else "†" for task, _ in columns],
        [],
    )
    for name, values in encoders.items():
        cells = zip(map(values.get, columns), marks, strict=True)
        lines.append(
            (Cell(name), *(None if v is None else Cell(f"{v:.2f}", mark) for v, mark in cells))
        )
    note = (
        f"{PUBLISHED_SUPERB} {_units(columns)}. Those above may be set beside them only where "
        "measured on the same sets."
    )
    note += " † Not verified against the leaderboard." if any(marks) else ""
    return _block("Published encoders, on the published sets", note, columns, lines, True)


def _noisy(results: SuperbResults, columns: Sequence[Measured], title: str) -> Placed | None:
    """Make the lecture's table: clean above seen above unseen, a column a task; small, what the
    noise changes."""
    every = dict.fromkeys(
        condition for _, task, metric, condition in results.cells if (task, metric) in columns
    )
    # conditions that share a line: the mean over them is shown
    places: dict[str, list[ShownCondition]] = {}
    # each at the SNR nearest to that of the robustness grid; a group without SNRs as it is
    for group in GROUPS:
        if together := nearest_snr((c for c in every if c.name.startswith(group)), AT):
            snr = together[0].snr_db
            places[group.rstrip("-") + ("" if snr is None else f", {decibels(snr)}")] = together

    def entry(
        encoder: Series, column: Measured, conditions: Sequence[ShownCondition]
    ) -> Cell | None:
        """None unless all of the conditions were measured: a mean over others would not compare."""
        cells = [results.at(encoder.label, column, condition) for condition in conditions]
        values, clean = [cell.value for cell in cells if cell], results.at(encoder.label, column)
        if not values or len(values) < len(cells):
            return None
        change = (
            ""
            if clean is None or conditions == [CLEAN]
            else f"{fmean(values) - clean.value:+.{decimals(column[1])}f}"
        )
        return Cell(printed(column[1], fmean(values)), change.replace("-", "\u2212"))

    measured = {
        c
        for c in columns
        for e in results.encoders
        for together in places.values()
        if entry(e, c, together)
    }
    columns = [column for column in columns if column in measured]
    lines: list[tuple[Any, ...]] = []
    for encoder in results.encoders:
        rows = []
        for place, together in {"clean": [CLEAN], **places}.items():
            entries = [entry(encoder, column, together) for column in columns]
            if any(entries):
                rows.append((Cell(place), *entries))
        if len(rows) > 1:  # its name once, beside all of its lines
            spans = [len(rows), *[0] * (len(rows) - 1)]
            lines += [
                (Cell(encoder.label, slot=encoder.slot, span=n), *row)
                for n, row in zip(spans, rows, strict=True)
            ]
    if not lines:
        return None
    over = []
    for place, together in places.items():
        names = [condition.name.split("-", 1)[1] for condition in together]
        over.append(f"{place}: {'mean of ' * (len(names) > 1)}{', '.join(names)}")
    note = (
        f"{_units(columns)}. {'; '.join(over)}. Grey: difference from the same encoder's "
        "clean speech; "
    )
    return _block(title, f"{note}↑ more is better, ↓ less is.", columns, lines)


def _tuned(results: SuperbResults) -> Placed | None:
    """A line a metric: for each encoder the score with the learning rate that dev chose, and with
    the default one."""
    pairs: dict[tuple[Series, Measured], tuple[ScoreCell, ScoreCell]] = {}
    for e in results.encoders:
        for c in results.columns:
            if (tuned := results.at(e.label, c)) and (
                default := results.at(e.label, (c[0], c[1] + DEFAULT))
            ):
                pairs[e, c] = tuned, default
    encoders = [e for e in results.encoders if any(e == x for x, _ in pairs)]
    columns = [c for c in results.columns if any(c == x for _, x in pairs)]
    if not pairs:
        return None
    rows = []
    for task, metric in columns:
        cells: list[Cell | None] = []
        for e in encoders:
            rates = {
                h.seed: h.learning_rate
                for h in results.artefacts.heads
                if (h.encoder, h.task) == (e.label, task)
            }
            rate = rates[min(rates)] if rates else None  # of the first seed
            cells.append(Cell(f"{rate:g}".replace("-", "\u2212")) if rate else None)
            cells += [
                cell_of(metric, score) for score in pairs.get((e, (task, metric)), (None, None))
            ]
        rows.append((Cell(f"{_code(task)}, {metric_name(metric)}{_arrow(metric)}"), *cells))
    note = (
        "Clean speech, test. tuned: with the learning rate that dev chose; default lr: with "
        f"none chosen. {_units(columns)}."
    )
    heads = [Cell("lr", about="learning rate that dev chose"), Cell("tuned"), Cell("default lr")]
    groups = ("", *(e.label for e in encoders for _ in heads))
    title = "Tuned and default learning rate"
    return Placed(
        Table(title, ("Task", *heads * len(encoders)), tuple(rows), note, groups, labels=1)
    )


# ---- plain tables, and the paragraph


def plain_tables(results: SuperbResults) -> list[Table]:
    """The gain by caching, and recognised texts; tables without rows are left out."""
    cells = {
        (task, encoder): cell
        for (encoder, task, metric, _), cell in results.cells.items()
        if metric == RATIO
    }
    order = sorted(cells, key=lambda k: (TASKS.index(k[0]) if k[0] in TASKS else len(TASKS), k[0]))
    ratios = [
        (SYSTEMS.get(task, task), encoder, f"{cells[task, encoder].value:.2f} ×")
        for task, encoder in order
    ]
    transcripts = sorted(
        (t for t in results.artefacts.transcripts if t.task in TASKS),
        key=lambda t: (TASKS.index(t.task), t.id),
    )
    texts = [(SYSTEMS[t.task], t.encoder, t.truth, t.predicted or "–") for t in transcripts]
    cached = (
        "Time of training a head with the encoder in the loop, over the time from hidden "
        "states computed once."
    )
    columns = ("Task", "Encoder", "Spoken", "What was recognised")
    tables = [
        Table("Features once", ("Task", "Encoder", "times faster"), tuple(ratios), cached),
        Table(
            "What was recognised", columns, tuple(texts), "The first recordings of the test set."
        ),
    ]
    return [table for table in tables if table.rows]


def summarise_superb(results: SuperbResults) -> str:
    """Say how many encoders, tasks and seeds there are, and who is best how often. Empty without
    clean speech."""
    main = [(task, metric) for task, metric in results.columns if MAIN.get(task) == metric]
    scores = {
        c: {e.label: cell for e in results.encoders if (cell := results.at(e.label, c))}
        for c in main
    }
    scores = {c: cells for c, cells in scores.items() if cells}
    if not scores:
        return ""
    names = list(
        dict.fromkeys(
            e.label for e in results.encoders if any(e.label in cells for cells in scores.values())
        )
    )
    seeds = max(cell.seeds for cells in scores.values() for cell in cells.values())
    who = names[0] if len(names) == 1 else f"{len(names)} encoders"
    counted = f"{len(scores)} {'task' if len(scores) == 1 else 'tasks'} of SUPERB"
    text = f"{who} on {counted}{f', {seeds} seeds each' if seeds > 1 else ''}."
    common = {c: cells for c, cells in scores.items() if len(cells) == len(names)}
    if len(names) < 2 or not common:
        return text
    wins = dict.fromkeys(names, 0)  # of the tasks that all did; a draw counts for all that share it
    for column, cells in common.items():
        top = best_of(column[1], cells.values())
        for name, cell in cells.items():
            wins[name] += printed(column[1], cell.value) == top
    leaders = ", ".join(
        f"{name} in {wins[name]}" for name in sorted(names, key=lambda n: -wins[n]) if wins[name]
    )
    return f"{text} Best in clean speech, of {len(common)} that all did: {leaders}."


# ---- figures

SHADE = PALETTE[0][0]  # of cells: the more opaque the more, on a light page and on a dark one
TURNS_AT = 0.78  # of full opacity: from here on numbers have the colour of the page
PLACE: Mapping[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}


def heading(figure: Canvas, text: str, top: float) -> None:
    """At the left edge. top: inches from the lower edge of the figure."""
    figure.text(
        0.05 / INCHES,
        top / figure.get_figheight(),
        text,
        fontsize=9,
        fontweight="bold",
        va="center",
    )


# ---- confusion matrices: legible for four classes, and for as many as there are speakers

PRINTED = 14  # classes up to which a cell has its number and every class its name
NAMED = 34  # up to which every class has its name
MOST = 60  # of more classes those that are confused most are shown
SHADES = 20
GAP = 0.1  # inches between two matrices
SQUARE = ((-0.48, -0.48), (0.48, -0.48), (0.48, 0.48), (-0.48, 0.48), (-0.48, -0.48))
WIDE = 3.05  # inches: a matrix at most
CELL, LEFT = 0.22, 0.95  # inches: a cell at most, beside a matrix
LONGEST = 13  # letters of a class's name


@dataclass(frozen=True)
class Matrix:
    """shares: a line a true class, how its recordings were classified; a class without any has
    zeros. Lengths are inches."""

    encoder: str
    slot: str  # empty where there is but one
    classes: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]
    of: int  # classes there are; more than are shown where they are too many

    @property
    def side(self) -> float:
        return min(WIDE, max(CELL * len(self.classes), 0.8))

    @property
    def about(self) -> str:
        shown = f"{len(self.classes)} of {self.of:,} classes" if self.of > len(self.classes) else ""
        return ", ".join(filter(None, [self.slot, shown]))

    @property
    def above(self) -> float:
        return 0.5 if self.about else 0.33

    @property
    def height(self) -> float:
        """Return the height with both, the upright names, and a gap."""
        return self.above + self.side + 0.25 + 0.066 * min(LONGEST, max(map(len, self.classes)))


def matrix(confusion: Confusion, several: bool) -> Matrix:
    """several: whether the slot is named beside the encoder. Of too many classes those with the
    most errors are kept."""
    every, counts = range(len(confusion.classes)), confusion.counts
    chosen = list(every)
    if len(confusion.classes) > MOST:
        both = [sum(counts[i]) + sum(line[i] for line in counts) - 2 * counts[i][i] for i in every]
        chosen = sorted(sorted(every, key=lambda i: -both[i])[:MOST])
    sums, classes = [sum(line) for line in counts], tuple(confusion.classes[i] for i in chosen)
    shares = tuple(
        tuple(counts[i][j] / sums[i] if sums[i] else 0.0 for j in chosen) for i in chosen
    )
    return Matrix(confusion.encoder, confusion.slot if several else "", classes, shares, len(every))


def confusions(results: SuperbResults) -> list[tuple[str, Drawing]]:
    """Make for every task that classifies its name, and a matrix for every encoder and slot."""
    drawings = []
    for task in TASKS:
        of_task = [
            c
            for e in results.encoders
            for c in results.artefacts.confusions
            if (c.encoder, c.task) == (e.label, task)
        ]
        if not of_task:
            continue
        matrices = [matrix(c, len({c.slot for c in of_task}) > 1) for c in of_task]
        # as many in each as fit; the slots of an encoder begin a new one
        lines: list[list[Matrix]] = []
        for m in matrices:
            room = INCHES - sum(LEFT + other.side + GAP for other in lines[-1]) if lines else 0.0
            if room < LEFT + m.side or (m.slot and m.encoder != lines[-1][0].encoder):
                lines.append([])
            lines[-1].append(m)
        heights = [max(m.height for m in line) for line in lines]
        top = sum(heights)
        with blank(top) as figure:
            for line, height in zip(lines, heights, strict=True):
                left, above = 0.0, max(m.above for m in line)
                for m in line:
                    _draw_matrix(figure, m, left + LEFT, top - above - m.side)
                    left += LEFT + m.side + GAP
                top -= height
            svg = svg_of(figure, f"confusion-{task}")
        alt = (
            f"{SYSTEMS[task]}: percent of each class that was taken for another. "
            f"{' '.join(map(_in_words, matrices))}"
        )
        drawings.append((SYSTEMS[task], Drawing(svg, alt)))
    return drawings


def _in_words(m: Matrix) -> str:
    """The diagonal, and the worst confusion."""
    right, worst, most = [], "", 0.0
    for i, line in enumerate(m.shares):
        right.append(f"{m.classes[i]} {100 * line[i]:.0f}")
        for j, share in enumerate(line):
            if i != j and share > most:
                worst, most = (
                    (
                        f"; most often {m.classes[i]} is taken for {m.classes[j]} "
                        f"({100 * share:.0f})"
                    ),
                    share,
                )
    return f"{', '.join(filter(None, [m.encoder, m.slot]))}, right: {', '.join(right)}{worst}."


def _draw_matrix(figure: Canvas, m: Matrix, left: float, bottom: float) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    count = len(m.classes)
    ax = cell_axes(figure, left, bottom, m.side, m.side, count, count)
    # All squares of one shade are one path: 40 classes have 1,600 cells. The root shows a few
    # confusions beside the diagonal.
    squares: dict[int, list[Path]] = {}
    cells = [
        (x, y, share) for y, line in enumerate(m.shares) for x, share in enumerate(line) if share
    ]
    for x, y, share in cells:
        corners = [(x + i, y + j) for i, j in SQUARE]
        squares.setdefault(max(1, round(share**0.5 * SHADES)), []).append(
            Path(corners, closed=True)
        )
    for level, paths in sorted(squares.items()):
        ax.add_patch(
            PathPatch(
                Path.make_compound_path(*paths), facecolor=SHADE, alpha=level / SHADES, linewidth=0
            )
        )
    for x, y, share in cells if count <= PRINTED else ():
        if round(100 * share):
            ink = PAPER if share**0.5 > TURNS_AT else INK
            ax.text(
                x,
                y,
                f"{100 * share:.0f}",
                ha="center",
                va="center",
                fontsize=7.5 if count <= 12 else 6.5,
                color=ink,
            )
    step = 1 if count <= NAMED else -(-count // 20)
    names = [shortened(m.classes[i], LONGEST) for i in range(0, count, step)]
    ax.set_xticks(range(0, count, step), names, rotation=90)
    ax.set_yticks(range(0, count, step), names)
    ax.tick_params(
        labelsize=7.5 if count <= PRINTED else 6.0 if step == 1 else 6.5,
        length=0,
        pad=2,
        labelcolor=MUTED,
    )
    ax.spines[:].set(visible=True, color=RULE)
    title, up = shortened(m.encoder, int((LEFT + m.side) / 0.083)), 19 if m.about else 7
    ax.annotate(title, (0, 1), xytext=(4 - LEFT * 72, up), fontsize=8.5, fontweight="bold", **PLACE)
    ax.annotate(m.about, (0, 1), xytext=(4 - LEFT * 72, 7), fontsize=8, color=MUTED, **PLACE)


# ---- verification

DET_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 60, 80)  # percent


def det_curves(results: SuperbResults) -> Drawing | None:
    """Misses against false alarms on normal-deviate axes, with the equal error rate of each encoder
    marked; None without any."""
    # (false alarms, misses), from the threshold that rejects most
    curves: dict[Series, list[tuple[float, float]]] = {}
    for encoder in results.encoders:
        if errors := (results.artefacts.errors or {}).get(encoder.label):
            curves[encoder] = sorted(
                zip(*errors, strict=True), key=lambda point: (point[0], -point[1])
            )
    if not curves:
        return None
    rates = {encoder: equal_error(points) for encoder, points in curves.items()}
    # a share of 0 or 1 has no finite deviate; the axes go from just below the least error that is
    # drawn to just above the greatest equal one
    inner = {
        e: [(alarm, miss) for alarm, miss in points if 0 < alarm < 1 and 0 < miss < 1]
        for e, points in curves.items()
    }
    least = min(
        [
            0.01,
            *(rate for rate in rates.values() if rate),
            *(min(point) for points in inner.values() for point in points),
        ]
    )
    low, high = (
        deviate(max(0.0007, 0.7 * least)),
        deviate(min(0.9, max(0.5, 1.6 * max(rates.values())))),
    )
    with blank(4.5) as figure:
        ax = axes_at(figure, 0.75, 0.55, 3.85, 3.85)
        for encoder, points in inner.items():
            xs, ys = [deviate(alarm) for alarm, _ in points], [deviate(miss) for _, miss in points]
            ax.plot(xs, ys, color=encoder.colour, linewidth=1.6)
            edge: dict[str, Any] = {"markersize": 7, "markeredgecolor": INK, "markeredgewidth": 0.8}
            at = deviate(rates[encoder])
            ax.plot([at], [at], marker=encoder.marker, color=encoder.colour, **edge)
        ax.plot(
            [low, high], [low, high], color=MUTED, linewidth=0.9, linestyle=(0, (1.5, 2)), zorder=1
        )
        ticks = {deviate(percent / 100): f"{percent:g}" for percent in DET_TICKS}
        ticks = {place: label for place, label in ticks.items() if low <= place <= high}
        ax.set_xticks(list(ticks), list(ticks.values()))
        ax.set_yticks(list(ticks), list(ticks.values()))
        ax.grid(True, axis="both")
        ax.set_xlim(low, high)
        ax.set_ylim(low, high)
        ax.set_xlabel("False alarms: impostors let in (%)")
        ax.set_ylabel("Misses: speakers turned away (%)")
        entries = [
            (encoder, f"{shortened(encoder.label, 34)}: EER {100 * rate:.1f} %")
            for encoder, rate in rates.items()
        ]
        legend(figure, entries, (4.75 / INCHES, 0.985), 1.8, labelspacing=0.8)
        svg = svg_of(figure, "det")
    text = "; ".join(f"{encoder.label} {100 * rate:.1f} %" for encoder, rate in rates.items())
    return Drawing(
        svg, f"Misses against false alarms of speaker verification. Equal error rates: {text}."
    )


def equal_error(points: Sequence[tuple[float, float]]) -> float:
    """The share at which misses equal false alarms. points: (false alarms, misses), from the
    threshold that rejects most."""
    alarms, misses = np.array([(0.0, 1.0), *points, (1.0, 0.0)]).T
    return float(ErrorCurve(alarms, misses).eer)


def deviate(share: float) -> float:
    """The quantile of the normal distribution: a score that is normal for both kinds of trial gives
    a straight line."""
    return NormalDist().inv_cdf(min(max(share, 1e-5), 1 - 1e-5))


# ---- diarisation

LANE = 0.2  # inches: one line of a timeline
Lane = tuple[str, Series | None, Sequence[Turn]]  # label, encoder (None: the truth), turns


def timelines(results: SuperbResults) -> Drawing | None:
    """Draw for every speaker the true turns, and below them those that each encoder's head
    predicted; None without any."""
    groups: dict[str, list[tuple[Series, Timeline]]] = {}
    for encoder in results.encoders:
        for line in results.artefacts.timelines:
            if line.encoder == encoder.label:
                groups.setdefault(line.id, []).append((encoder, line))
    if not groups:
        return None
    lanes = {name: _lanes(lines) for name, lines in groups.items()}
    heights = [
        0.95 + sum(len(lane_list) * LANE + 0.16 for _, lane_list in speakers)
        for speakers in lanes.values()
    ]
    top, texts = sum(heights), []
    with blank(top) as figure:
        for (name, speakers), height in zip(lanes.items(), heights, strict=True):
            heading(figure, name, top - 0.16)
            depth = height - 0.95
            ax = axes_at(figure, NAMES + 0.55, top - 0.4 - depth, INCHES - NAMES - 0.7, depth)
            y, ticks = 0.0, []
            for speaker, lane_list in speakers:
                middle, across = y + LANE * len(lane_list) / 2, ax.get_yaxis_transform()
                ax.text(
                    -0.235,
                    middle,
                    shortened(speaker, 8),
                    transform=across,
                    fontsize=8.5,
                    va="center",
                )
                for label, series, turns in lane_list:
                    spans = [(t.start, t.end - t.start) for t in turns]
                    ax.broken_barh(
                        spans,
                        (y + 0.03, LANE - 0.06),
                        color=INK if series is None else series.colour,
                        linewidth=0,
                    )
                    ticks.append((y + LANE / 2, shortened(label, 22)))
                    y += LANE
                    when = ", ".join(f"{t.start:.1f} to {t.end:.1f}" for t in turns) or "never"
                    texts.append(f"{name}, {speaker}, {label}: {when}")
                y += 0.16
            ax.set_yticks([place for place, _ in ticks], [label for _, label in ticks])
            ax.set_xlim(0, groups[name][0][1].seconds)
            ax.set_ylim(y - 0.08, -0.06)
            ax.grid(True, axis="x")
            ax.grid(False, axis="y")
            ax.spines["left"].set_visible(False)
            ax.tick_params(axis="y", labelsize=7.5)
            ax.set_xlabel("Seconds")
            top -= height
        svg = svg_of(figure, "timeline")
    return Drawing(svg, f"Who spoke when, in seconds. {'; '.join(texts)}.")


def _lanes(lines: Sequence[tuple[Series, Timeline]]) -> list[tuple[str, list[Lane]]]:
    """Sort lines by speaker. A speaker that a head made up, or one too many, has lanes without
    truth."""
    truth = lines[0][1].truth
    speakers = list(dict.fromkeys(t.speaker for t in truth))
    matched = [(encoder, match(truth, line.predicted), line.predicted) for encoder, line in lines]
    further = max((len(set(names.values()) - set(speakers)) for _, names, _ in matched), default=0)
    by_speaker = []
    for name in [*speakers, *(f"nobody {i + 1}" for i in range(further))]:
        lanes: list[Lane] = [("truth", None, [t for t in truth if t.speaker == name])]
        lanes += [
            (e.label, e, [t for t in predicted if names.get(t.speaker) == name])
            for e, names, predicted in matched
        ]
        by_speaker.append((name, lanes))
    return by_speaker


def match(truth: Sequence[Turn], predicted: Sequence[Turn]) -> dict[str, str]:
    """Predicted speaker -> true speaker, as the error rate matches them (a head's names mean
    nothing); then whoever is left."""
    names = matching_names(truth, predicted)
    left = [t for t in dict.fromkeys(t.speaker for t in truth) if t not in names.values()]
    strangers = (f"nobody {i + 1}" for i in range(len(predicted)))
    others = [name for name in dict.fromkeys(p.speaker for p in predicted) if name not in names]
    return names | {name: left.pop(0) if left else next(strangers) for name in others}


# ---- layer weights

WIDEST = 13  # hidden states whose shares are printed in their cells


class LayerUse(NamedTuple):
    """The hidden states that the heads of one encoder use."""

    encoder: Series
    shares: Mapping[str, tuple[float, ...]]  # task -> of each hidden state, a mean over seeds
    chosen: int | None  # the layer of QbE, which has no weights

    @property
    def tasks(self) -> list[str]:
        return [*self.shares, *(["qbe"] if self.chosen is not None else [])]

    @property
    def states(self) -> int:
        return max([*map(len, self.shares.values()), (self.chosen or 0) + 1])


def layer_use(results: SuperbResults) -> list[LayerUse]:
    """Collect the layer use of every encoder that has two states to weigh."""
    uses = []
    for encoder in results.encoders:
        shares = {}
        for task in TASKS:
            by_seed = [
                h.weights
                for h in results.artefacts.heads
                if (h.encoder, h.task) == (encoder.label, task) and h.weights
            ]
            if (
                by_seed
                and len(by_seed[0]) > 1
                and all(len(weights) == len(by_seed[0]) for weights in by_seed)
            ):
                shares[task] = tuple(map(fmean, zip(*by_seed, strict=True)))
        layers = (results.artefacts.layers or {}).get(encoder.label, ())
        if shares:
            uses.append(
                LayerUse(encoder, shares, layers.index(max(layers)) if len(layers) > 1 else None)
            )
    return uses


def layer_weights(results: SuperbResults) -> Drawing | None:
    """A panel an encoder, a line a task, a column a hidden state (0: CNN output), darker for a
    greater share.

    For QbE, which has no weights, a square at the layer that dev chose. None where no encoder has
    two states to weigh.
    """
    shown = layer_use(results)
    if not shown:
        return None
    most = max(max(shares) for use in shown for shares in use.shares.values())
    heights = [0.62 + ROW * len(use.tasks) + 0.2 for use in shown]
    top, texts = sum(heights), []
    with blank(top) as figure:
        for use, height in zip(shown, heights, strict=True):
            heading(figure, use.encoder.label, top - 0.14)
            states, tall = use.states, ROW * len(use.tasks)
            width = min(INCHES - NAMES - 0.15, 0.62 * states)
            ax = cell_axes(figure, NAMES, top - 0.62 - tall, width, tall, states, len(use.tasks))
            for y, shares in enumerate(use.shares.values()):
                for x, share in enumerate(shares):
                    shade, bold = share / most, "bold" if share == max(shares) else "normal"
                    number = f"{100 * share:.0f}" if states <= WIDEST else ""
                    draw_cell(
                        ax,
                        x,
                        y,
                        number,
                        SHADE,
                        PAPER if shade > TURNS_AT else INK,
                        7.5,
                        shade,
                        fontweight=bold,
                    )
            if use.chosen is not None:  # in the last line
                square: dict[str, Any] = {
                    "markersize": 8,
                    "markerfacecolor": "none",
                    "markeredgewidth": 1.6,
                }
                ax.plot([use.chosen], [len(use.tasks) - 1], "s", color=use.encoder.colour, **square)
            ax.set_yticks(range(len(use.tasks)), [shortened(SYSTEMS[task]) for task in use.tasks])
            step = -(-states // 26)
            ax.set_xticks(
                range(0, states, step), ["CNN" if not i else str(i) for i in range(0, states, step)]
            )
            ax.xaxis.tick_top()
            ax.tick_params(axis="x", length=0, labelsize=7.5, pad=1)
            ax.tick_params(axis="y", labelcolor=INK, labelsize=8.5)
            top -= height
            each = []
            for task, shares in use.shares.items():
                each.append(f"{task.upper()} {' '.join(f'{100 * share:.0f}' for share in shares)}")
            texts.append(f"{use.encoder.label}, CNN output first: {'; '.join(each)}.")
        svg = svg_of(figure, "layers")
    return Drawing(svg, f"Share of each hidden state in percent. {' '.join(texts)}")


# ---- learning rates

ACROSS = 4  # panels of the sweep in a line


def sweeps(results: SuperbResults) -> Drawing | None:
    """Score on dev by learning rate, a panel a task, a line an encoder; a dotted upright at the
    default.

    Filled where it was trained to the end, hollow where it was dropped on the way, ringed where it
    was chosen. None without a sweep of two rates.
    """
    lines: dict[str, list[tuple[Series, Head]]] = {}
    for task in TASKS:
        for e in results.encoders:
            heads = [
                h
                for h in results.artefacts.heads
                if (h.encoder, h.task) == (e.label, task) and len(_tried(h)) > 1
            ]
            if heads:
                lines.setdefault(task, []).append((e, min(heads, key=lambda h: h.seed)))
    if not lines:
        return None
    shown = [
        e
        for e in results.encoders
        if any(e == s for heads_of_task in lines.values() for s, _ in heads_of_task)
    ]
    # the last two: inches
    deep, wide, height, between = -(-len(lines) // ACROSS), min(len(lines), ACROSS), 1.25, 0.62
    above = 0.24 * -(-len(shown) // 4) + 0.45
    total, texts = above + deep * (height + between) - 0.2, []
    with blank(total) as figure:
        axes = figure.subplots(deep, wide, squeeze=False).ravel()
        right = 0.985 if wide == ACROSS else 0.985 * (wide + 0.3) / (ACROSS + 0.3)
        figure.subplots_adjust(left=0.055, right=right, top=1 - above / total, bottom=0.3 / total)
        figure.subplots_adjust(wspace=0.3, hspace=between / height)
        legend(
            figure,
            [(e, e.label) for e in shown],
            (0.04, 1.0),
            1.8,
            ncols=min(len(shown), 4),
            columnspacing=1.6,
        )
        for ax, (task, heads_of_task) in zip(axes, lines.items(), strict=False):
            _draw_sweeps(ax, task, heads_of_task)
            for e, head in heads_of_task:
                rates = ", ".join(
                    (f"{t.learning_rate:g} {t.value:.{decimals(MAIN[task])}f}")
                    for t in _tried(head)
                )
                chosen = f" (chosen {head.learning_rate:g})" if head.learning_rate else ""
                texts.append(f"{SYSTEMS[task]}, {e.label}: {rates}{chosen}")
        for ax in axes[len(lines) :]:
            ax.set_visible(False)
        svg = svg_of(figure, "sweep")
    return Drawing(svg, f"Score on dev by learning rate. {'; '.join(texts)}.")


def _tried(head: Head) -> list[SweepTrial]:
    """Return for every learning rate the value when it had been trained longest."""
    longest = {trial.learning_rate: trial for trial in sorted(head.sweep, key=lambda t: t.steps)}
    return sorted(
        (t for t in longest.values() if not math.isnan(t.value)), key=lambda t: t.learning_rate
    )


def _draw_sweeps(ax: Axes, task: str, lines: Sequence[tuple[Series, Head]]) -> None:
    metric = MAIN[task]
    for default in {h.default for _, h in lines if h.default}:
        ax.axvline(default, color=MUTED, linewidth=0.9, linestyle=(0, (1.5, 2)), zorder=1)
    for series, head in lines:
        trials = _tried(head)
        longest = max(t.steps for t in trials)
        ax.plot(
            [t.learning_rate for t in trials],
            [t.value for t in trials],
            color=series.colour,
            linewidth=1.3,
        )
        ax.margins(0.12)
        for trial in trials:
            x, y = [trial.learning_rate], [trial.value]
            face = series.colour if trial.steps == longest else "none"
            ax.plot(
                x, y, marker=series.marker, color=series.colour, markersize=4, markerfacecolor=face
            )
            if head.learning_rate and math.isclose(
                trial.learning_rate, head.learning_rate, rel_tol=1e-6
            ):
                ax.plot(
                    x,
                    y,
                    "o",
                    color=INK,
                    markersize=9,
                    markerfacecolor="none",
                    markeredgewidth=1,
                    clip_on=False,
                )
    ax.set_xscale("log")
    powers = sorted({round(math.log10(t.learning_rate)) for _, h in lines for t in _tried(h)})
    shown = powers[:: -len(powers) // 4]
    ax.set_xticks([10.0**p for p in shown], [f"1e{p}".replace("-", "\u2212") for p in shown])
    ax.minorticks_off()
    ax.tick_params(labelsize=7.5)
    below = f"{metric_name(metric)} ({unit(metric)})" if unit(metric) else metric_name(metric)
    ax.annotate(SYSTEMS[task], (0, 1), xytext=(0, 15), fontsize=8.5, fontweight="bold", **PLACE)
    ax.annotate(below, (0, 1), xytext=(0, 4), fontsize=7.5, color=MUTED, **PLACE)
