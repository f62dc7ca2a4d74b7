"""SUPERB on a page: its rows as tables (clean speech, published scores, noise, learning rates), and what lies beside the rows.

Cards of heads and details are what figures are drawn from (`superb_figures`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from speechssl.errors import InputError
from speechssl.eval.published import CHECKED, MARK, published
from speechssl.eval.tables import Table
from speechssl.io import read_json
from speechssl.report.figures import CLEAN, METRICS, SYSTEMS, Cell, Condition, Series, arrange, decibels, metric_name
from speechssl.report.robustness import AT, GROUPS, Panel, panels, series_of
from speechssl.results import DEFAULT, LOWER_IS_BETTER, Row, decimals, drawn_sentence, unit

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
OWN = frozenset({"pr", "qbe", "asv", "sd", "sf", "er", "se", "ss"})  # tasks that no robustness grid has
RATIO = "ratio_cached"
TOLERANCE = 1e-2  # of a sum of rounded weights to 1
Measured = tuple[str, str]  # task, metric
SHORT = {
    "acc": "Acc",
    "wer_lm": "WER+LM",
    "slot_f1": "F1",
    "slot_cer": "CER",
    "min_dcf": "minDCF",
}  # in the head of a column that names the task
BESIDE = ("atwv", "min_dcf")  # measures that the benchmark does not list


# ---- cards of heads, and details


class Trial(NamedTuple):
    """One learning rate of a sweep. value: the task's first metric on dev; NaN where training broke down."""

    learning_rate: float
    value: float
    steps: int


class Head(NamedTuple):
    """weights: the share of each hidden state, CNN output first; they sum to 1. default: the learning rate without a sweep."""

    encoder: str
    task: str
    seed: int
    weights: tuple[float, ...]
    learning_rate: float | None = None
    default: float | None = None
    sweep: tuple[Trial, ...] = ()


class Confusion(NamedTuple):
    """counts: a line a true class, predictions of each class in it. slot: of the label; a set has one or more."""

    encoder: str
    task: str
    slot: str
    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class Errors(NamedTuple):
    """Shares of impostors accepted and of speakers rejected, threshold by threshold."""

    encoder: str
    false_alarms: tuple[float, ...]
    misses: tuple[float, ...]


class Turn(NamedTuple):
    speaker: str
    start: float  # seconds
    end: float


class Timeline(NamedTuple):
    """Who spoke when in one recording, in truth and as predicted."""

    encoder: str
    id: str
    seconds: float
    truth: tuple[Turn, ...]
    predicted: tuple[Turn, ...]


class Transcript(NamedTuple):
    """The true text of a recording and the recognised one."""

    encoder: str
    task: str
    id: str
    truth: str
    predicted: str


@dataclass(frozen=True)
class Artefacts:
    """What a run left beside its rows. layers: of QbE, by encoder: MTWV (percent) of every layer on dev."""

    heads: Sequence[Head] = ()
    confusions: Sequence[Confusion] = ()
    errors: Sequence[Errors] = ()
    timelines: Sequence[Timeline] = ()
    layers: Mapping[str, Sequence[float]] | None = None
    transcripts: Sequence[Transcript] = ()

    def __bool__(self) -> bool:
        return any(vars(self).values())


def read_artefacts(out: Path | str, rows: Iterable[Row] = ()) -> Artefacts:
    """All artefacts of a run; missing ones are left out.

    out: the folder of `superb run`, with heads/<encoder>/<task>/[fold-<k>/]seed-<n>/card.json and details/<encoder>/<task>.json.
    rows: name the encoders, whose folders may have simpler names. Raises InputError naming the first damaged file.
    """

    def simple(name: str) -> str:
        return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

    out, names = Path(out), {simple(row.encoder): row.encoder for row in rows}
    heads: list[Head] = []
    found = Artefacts(heads, [], [], [], {}, [])
    for path in [*sorted(out.glob("heads/**/seed-*/card.json")), *sorted(out.glob("details/**/*.json"))]:
        value = read_json(path)
        try:
            *folders, task, seed, _ = ["", "", *(x for x in path.relative_to(out).parts[1:] if not x.startswith("fold-"))]
            if path.relative_to(out).parts[0] == "heads":
                name = "/".join(filter(None, folders))
                heads.append(_parse_head(value, names.get(simple(name), name), task, int(seed.removeprefix("seed-"))))
            else:
                _parse_details(value, found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{path} is not what `speechssl superb run` writes ({what}); remove it and run that again") from error
    return found


def _parse_head(card: Mapping[str, Any], encoder: str, task: str, seed: int) -> Head:
    weights = tuple(_number(w) for w in card.get("layer_weights") or ())
    if weights and (min(weights) < 0 or abs(sum(weights) - 1) > TOLERANCE):
        raise ValueError(f"its layer_weights sum to {sum(weights):.3g}, not 1")
    rate, default = (None if card.get(k) is None else _positive(card[k]) for k in ("learning_rate", "default_learning_rate"))
    sweep = []
    for entry in card.get("sweep") or ():
        value = entry["value"]
        broken = value is None or (isinstance(value, float) and not math.isfinite(value))
        sweep.append(Trial(_positive(entry["learning_rate"]), math.nan if broken else _number(value), _count(entry["steps"])))
    return Head(encoder, task, seed, weights, rate, default, tuple(sweep))


def _parse_details(value: Mapping[str, Any], found: Artefacts) -> None:
    """Adds the drawable parts of a file of details."""
    encoder, task, detail = value["encoder"], value["task"], value["detail"]
    if not isinstance(encoder, str) or not isinstance(task, str):
        raise ValueError("its encoder and task are no names")
    parts: Any = found
    for slot, part in detail.get("confusion", {}).items():
        classes, counts = tuple(map(str, part["classes"])), tuple(tuple(map(_count, line)) for line in part["counts"])
        if not classes or any(len(line) != len(classes) for line in (classes, counts, *counts)):
            raise ValueError(f"the confusion of {slot} is not {len(classes)} × {len(classes)}")
        parts.confusions.append(Confusion(encoder, task, slot, classes, counts))
    if "det" in detail:
        alarms, misses = (tuple(_number(v) for v in detail["det"][name]) for name in ("false_alarms", "misses"))
        if len(alarms) != len(misses) or not alarms or not all(0 <= v <= 1 for v in (*alarms, *misses)):
            raise ValueError("false_alarms and misses of its det are not equally many shares between 0 and 1")
        parts.errors.append(Errors(encoder, alarms, misses))
    if line := detail.get("timeline"):
        turns = []
        for name in ("truth", "predicted"):
            some = tuple(Turn(str(t["speaker"]), _number(t["start"]), _number(t["end"])) for t in line[name])
            if backwards := [t.end for t in some if t.end < t.start]:
                raise ValueError(f"a turn ends at {backwards[0]:g} s, before it starts")
            turns.append(some)
        parts.timelines.append(Timeline(encoder, str(line["id"]), _positive(line["seconds"]), *turns))
    if "layers" in detail:
        parts.layers[encoder] = tuple(_number(v) for v in detail["layers"])
    for example in detail.get("examples", ()):  # phones come one by one
        texts = [example[name] for name in ("truth", "predicted")]
        texts = [text if isinstance(text, str) else " ".join(map(str, text)) for text in texts]
        parts.transcripts.append(Transcript(encoder, task, str(example["id"]), *texts))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _positive(value: Any) -> float:
    if _number(value) <= 0:
        raise ValueError(f"{value!r} is not above 0")
    return float(value)


def _count(value: Any) -> int:
    if _number(value) < 0 or value != int(value):
        raise ValueError(f"{value!r} is not a count")
    return int(value)


# ---- rows


@dataclass(frozen=True)
class Superb:
    """The rows of a SUPERB run and what lies beside them. Falsy where there are none."""

    rows: tuple[Row, ...] = ()
    artefacts: Artefacts = Artefacts()

    def __bool__(self) -> bool:
        return bool(self.rows or self.artefacts)

    def shows(self, row: Row) -> bool:
        """Whether SUPERB's own tables and figures show a row, so that no others need to."""
        mine = bool(self) and (row.system in TASKS or row.metric == RATIO)
        return mine and (row.condition == CLEAN.name or row.condition.startswith(GROUPS))

    @property
    def noisy(self) -> tuple[Panel, ...]:
        """A panel a task that was measured in noise, in the benchmark's order and with the colours of its encoders."""
        order = {column: number for number, column in enumerate(self.columns)}
        rows = [r for r in self.rows if (r.system, r.metric.lower()) in order and self.shows(r)]
        known = {(r.system, r.encoder, r.metric) for r in rows if r.condition.startswith(GROUPS)}
        mine = [r for r in rows if (r.system, r.encoder, r.metric) in known]
        return panels(sorted(mine, key=lambda r: order[r.system, r.metric.lower()]), [e.label for e in self.encoders])

    @cached_property
    def encoders(self) -> tuple[Series, ...]:
        found = self.artefacts
        some: list[Head | Confusion | Errors | Timeline] = [*found.heads, *found.confusions, *found.errors, *found.timelines]
        return tuple(series_of([*(r.encoder for r in self.rows), *(x.encoder for x in some)]))

    @cached_property
    def cells(self) -> Mapping[tuple[str, str, str, Condition], Cell]:
        """By encoder, task, metric and condition, a mean over seeds."""
        return {(s.encoder, s.system, metric, c): cell for (s, metric, c), cell in arrange(self.rows).cells.items()}

    @cached_property
    def columns(self) -> tuple[Measured, ...]:
        """The measured tasks and metrics, in the benchmark's order."""
        found = {(task, metric) for _, task, metric, _ in self.cells if metric != RATIO and not metric.endswith(DEFAULT)}
        rest = sorted(found - set(ORDER), key=lambda m: (TASKS.index(m[0]), m[1]))
        return tuple(sorted([m for m in ORDER if m in found] + rest, key=lambda m: TASKS.index(m[0])))

    def at(self, encoder: str, column: Measured, condition: Condition = CLEAN) -> Cell | None:
        return self.cells.get((encoder, *column, condition))


def of_superb(rows: Iterable[Row], artefacts: Artefacts = Artefacts()) -> Superb:
    """Empty where neither the rows nor the artefacts are SUPERB's: keywords, intents, speakers and words alone may be a grid's."""
    rows = list(rows)
    sure = artefacts or any(r.system in OWN or r.metric in (RATIO, "wer_lm") or r.metric.endswith(DEFAULT) for r in rows)
    if not sure:
        return Superb()
    return Superb(tuple(r for r in rows if r.system in TASKS or r.metric == RATIO), artefacts)


def main_panels(found: Sequence[Panel]) -> list[Panel]:
    """One a task, in percent: losses may be averaged over these."""
    return [p for p in found if unit(p.metric) == "%" and MAIN.get(p.task, p.metric) == p.metric]


# ---- tables with heads of two lines


class Heading(NamedTuple):
    task: str
    metric: str = ""
    arrow: str = ""
    about: str = ""


class Entry(NamedTuple):
    """One cell. small: its interval, or the mark of it; best: of its column."""

    text: str
    small: str = ""
    best: bool = False


class Line(NamedTuple):
    """where: the condition, if the block has several. span: lines that the label stands for; 0: that of the line above."""

    label: str
    series: Series | None
    entries: Sequence[Entry | None]
    where: str = ""
    span: int = 1


@dataclass(frozen=True)
class Block:
    """One table. aspects: name, number of columns. strange: numbers that were not measured here. of: what the lines are."""

    title: str
    note: str
    aspects: Sequence[tuple[str, int]]
    headings: Sequence[Heading]
    lines: Sequence[Line]
    strange: bool = False
    of: str = "Encoder"

    @property
    def located(self) -> bool:
        """Whether lines have conditions."""
        return any(line.where for line in self.lines)


def blocks(found: Superb) -> list[Block]:
    """Clean speech, published scores, and noise; the ten tasks apart from the extension."""
    ten = [c for c in found.columns if c[0] not in ("se", "ss") and c[1] not in BESIDE]
    extension = [c for c in found.columns if c[0] in ("se", "ss")]
    made = [
        _clean(found, ten, "Clean speech"),
        _published(ten),
        _clean(found, [c for c in found.columns if c[1] in BESIDE], "Clean speech, other measures of the same tasks"),
        _clean(found, extension, "Clean speech, the extension: enhancement and separation"),
        _noisy(found, ten, "Clean, seen and unseen noise"),
        _noisy(found, extension, "Clean, seen and unseen noise, the extension"),
        _tuned(found),
    ]
    return [block for block in made if block]


def printed(column: Measured, value: float) -> str:
    return f"{value:.{decimals(column[1])}f}".replace("-", "\u2212")


def best_of(column: Measured, cells: Sequence[Cell | None]) -> str:
    """As printed; empty where nothing competes."""
    values = [cell.value for cell in cells if cell]
    choose = min if column[1] in LOWER_IS_BETTER else max
    return printed(column, choose(values)) if len(values) > 1 else ""


def arrow(metric: str) -> str:
    return "↓" if metric in LOWER_IS_BETTER else "↑"


def _code(task: str) -> str:
    return "QbE" if task == "qbe" else task.upper()


def _entry(column: Measured, cell: Cell | None, best: str = "") -> Entry | None:
    if cell is None:
        return None
    ends = [] if cell.low is None or cell.high is None else [printed(column, cell.low), printed(column, cell.high)]
    text, dash = printed(column, cell.value), " to " if cell.low is not None and cell.low < 0 else "–"
    return Entry(text, dash.join(ends), bool(best) and text == best)


def _block(title: str, note: str, columns: Sequence[Measured], lines: Sequence[Line], strange: bool = False) -> Block:
    headings = [
        Heading(_code(task), SHORT.get(metric, metric_name(metric)), arrow(metric), METRICS.get(metric, ("", metric))[1])
        for task, metric in columns
    ]
    aspects = [(name, len(list(some))) for name, some in groupby(columns, key=lambda c: ASPECT[c[0]])]
    return Block(title, note, aspects, headings, lines, strange)


def _units(columns: Sequence[Measured]) -> str:
    """ "Percent, PESQ on its own scale": percent, and whatever is not."""
    kinds = {metric: unit(metric) for _, metric in columns}
    others = [f"{metric_name(m)} {'in dB' if u == 'dB' else 'on its own scale'}" for m, u in kinds.items() if u != "%"]
    return ", ".join((["Percent"] if "%" in kinds.values() else []) + others)


def _clean(found: Superb, columns: Sequence[Measured], title: str) -> Block | None:
    columns = [c for c in columns if any(found.at(e.label, c) for e in found.encoders)]
    rows = [(e, [found.at(e.label, c) for c in columns]) for e in found.encoders]
    rows = [(e, cells) for e, cells in rows if any(cells)]
    if not rows:
        return None
    best = [best_of(c, [cells[i] for _, cells in rows]) for i, c in enumerate(columns)]
    lines = [Line(e.label, e, tuple(map(_entry, columns, cells, best))) for e, cells in rows]
    every = [(c, cell) for _, cells in rows for c, cell in zip(columns, cells, strict=True) if cell]
    notes = [f"Measured by this run. {_units(columns)}; ↑ more is better, ↓ less is."]
    if any(cell.low is not None for _, cell in every):
        notes.append(f"Grey: 95 % interval. {drawn_sentence((_code(c[0]), cell.drawn, cell.groups) for c, cell in every)}".strip())
    if (seeds := max(cell.seeds for _, cell in every)) > 1:
        notes.append(f"Means over up to {seeds} seeds; an interval reaches over those of all seeds.")
    if len(lines) > 1:
        notes.append("Bold: best of the column.")
    return _block(title, " ".join(notes), columns, lines)


def _published(columns: Sequence[Measured]) -> Block | None:
    """The same columns, for encoders that others measured."""
    known = published()
    columns = [c for c in columns if any(c in values for values in known.values())]
    if not columns:
        return None
    marks = ["" if task in CHECKED else "†" for task, _ in columns]
    lines = []
    for name, values in known.items():
        cells = [values.get(c) for c in columns]
        entries = [None if v is None else Entry(f"{v:.2f}", mark) for v, mark in zip(cells, marks, strict=True)]
        lines.append(Line(name, None, entries))
    note = f"{MARK} {_units(columns)}. Those above may be set beside them only where measured on the same sets."
    note += " † Not verified against the leaderboard." if any(marks) else ""
    return _block("Published encoders, on the published sets", note, columns, lines, True)


def _noisy(found: Superb, columns: Sequence[Measured], title: str) -> Block | None:
    """As the lecture has it: clean above seen above unseen, a column a task; small, what the noise changes."""
    every = dict.fromkeys(c for _, task, metric, c in found.cells if (task, metric) in columns)
    places: dict[str, list[Condition]] = {}  # conditions that share a line: the mean over them is shown
    for group in GROUPS:  # each at the SNR nearest to that of the robustness grid; a group without SNRs as it is
        mine = [c for c in every if c.name.startswith(group)]
        snr = min((c.snr_db for c in mine if c.snr_db is not None), key=lambda x: (abs(x - AT), x), default=None)
        if mine:
            name = group.rstrip("-") + ("" if snr is None else f", {decibels(snr)}")
            places[name] = [c for c in mine if c.snr_db == snr]

    def mean(encoder: Series, column: Measured, conditions: Sequence[Condition]) -> float | None:
        """None unless all of the conditions were measured: a mean over others would not compare."""
        cells = [found.at(encoder.label, column, c) for c in conditions]
        values = [cell.value for cell in cells if cell]
        return fmean(values) if values and len(values) == len(cells) else None

    def entry(encoder: Series, column: Measured, conditions: Sequence[Condition]) -> Entry | None:
        value, clean = mean(encoder, column, conditions), found.at(encoder.label, column)
        if value is None:
            return None
        if clean is None or conditions == [CLEAN]:
            return Entry(printed(column, value))
        return Entry(printed(column, value), f"{value - clean.value:+.{decimals(column[1])}f}".replace("-", "\u2212"))

    columns = [c for c in columns if any(mean(e, c, some) is not None for e in found.encoders for some in places.values())]
    lines: list[Line] = []
    for e in found.encoders:
        rows = [(name, [entry(e, c, some) for c in columns]) for name, some in ({"clean": [CLEAN]} | places).items()]
        rows = [(name, entries) for name, entries in rows if any(entries)]
        if len(rows) > 1:
            lines += [Line(e.label, e, entries, name, 0 if i else len(rows)) for i, (name, entries) in enumerate(rows)]
    if not lines:
        return None
    named = {place: [c.name.split("-", 1)[1] for c in some] for place, some in places.items()}
    over = "; ".join(f"{p}: {'mean of ' * (len(names) > 1)}{', '.join(names)}" for p, names in named.items())
    note = f"{_units(columns)}. {over}. Grey: difference from the same encoder's clean speech; ↑ more is better, ↓ less is."
    return _block(title, note, columns, lines)


def _tuned(found: Superb) -> Block | None:
    """A line a metric: for each encoder the score with the learning rate that dev chose, and with the default one."""
    both = {
        (e, c): (found.at(e.label, c), found.at(e.label, (c[0], c[1] + DEFAULT))) for e in found.encoders for c in found.columns
    }
    pairs = {place: cells for place, cells in both.items() if all(cells)}
    if not pairs:
        return None
    encoders = [e for e in found.encoders if any(e == x for x, _ in pairs)]
    columns = [c for c in found.columns if any(c == x for _, x in pairs)]
    lines = []
    for column in columns:
        task, metric = column
        entries: list[Entry | None] = []
        for e in encoders:
            rates = {h.seed: h.learning_rate for h in found.artefacts.heads if (h.encoder, h.task) == (e.label, task)}
            rate = rates[min(rates)] if rates else None  # of the first seed
            entries.append(Entry(f"{rate:g}".replace("-", "\u2212")) if rate else None)
            entries += [_entry(column, cell) for cell in pairs.get((e, column), (None, None))]
        lines.append(Line(f"{_code(task)}, {metric_name(metric)}\u00a0{arrow(metric)}", None, entries))
    note = f"Clean speech, test. tuned: with the learning rate that dev chose; default lr: with none chosen. {_units(columns)}."
    heads = [Heading("lr", about="learning rate that dev chose"), Heading("tuned"), Heading("default lr")]
    aspects = [(e.label, len(heads)) for e in encoders]
    return Block("Tuned and default learning rate", note, aspects, heads * len(encoders), lines, of="Task")


# ---- plain tables, and the paragraph


def superb_tables(found: Superb) -> list[Table]:
    """The gain by caching, and recognised texts; tables without rows are left out."""
    cells = {(task, encoder): cell for (encoder, task, metric, _), cell in found.cells.items() if metric == RATIO}
    order = sorted(cells, key=lambda k: (TASKS.index(k[0]) if k[0] in TASKS else len(TASKS), k[0]))
    ratios = [(SYSTEMS.get(task, task), encoder, f"{cells[task, encoder].value:.2f} ×") for task, encoder in order]
    known = [t for t in found.artefacts.transcripts if t.task in TASKS]
    texts = [
        (SYSTEMS[t.task], t.encoder, t.truth, t.predicted or "–")
        for t in sorted(known, key=lambda t: (TASKS.index(t.task), t.id))
    ]  # fmt: skip
    cached = "Time of training a head with the encoder in the loop, over the time from hidden states computed once."
    spoken = "The first recordings of the test set."
    made = [
        Table("Features once", ("Task", "Encoder", "times faster"), tuple(ratios), cached),
        Table("What was recognised", ("Task", "Encoder", "Spoken", "What was recognised"), tuple(texts), spoken),
    ]
    return [table for table in made if table.rows]


def summarise_superb(found: Superb) -> str:
    """How many encoders, tasks and seeds, and who is best how often. Empty without clean speech."""
    main = [(task, metric) for task, metric in found.columns if MAIN.get(task) == metric]
    scores = {c: {e.label: cell for e in found.encoders if (cell := found.at(e.label, c))} for c in main}
    scores = {c: cells for c, cells in scores.items() if cells}
    if not scores:
        return ""
    names = list(dict.fromkeys(e.label for e in found.encoders if any(e.label in cells for cells in scores.values())))
    seeds = max(cell.seeds for cells in scores.values() for cell in cells.values())
    who = names[0] if len(names) == 1 else f"{len(names)} encoders"
    counted = f"{len(scores)} {'task' if len(scores) == 1 else 'tasks'} of SUPERB"
    return f"{who} on {counted}{f', {seeds} seeds each' if seeds > 1 else ''}." + _leaders(scores, names)


def _leaders(scores: Mapping[Measured, Mapping[str, Cell]], names: Sequence[str]) -> str:
    """Of the tasks that all did; a draw counts for all that share it."""
    common = {c: cells for c, cells in scores.items() if len(cells) == len(names)}
    if len(names) < 2 or not common:
        return ""
    wins = dict.fromkeys(names, 0)
    for column, cells in common.items():
        top = best_of(column, list(cells.values()))
        for name, cell in cells.items():
            wins[name] += printed(column, cell.value) == top
    ranked = sorted(names, key=lambda n: -wins[n])
    leaders = ", ".join(f"{name} in {wins[name]}" for name in ranked if wins[name])
    return f" Best in clean speech, of {len(common)} that all did: {leaders}."
