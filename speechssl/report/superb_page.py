"""What a page shows of SUPERB below its tables: figures with their captions, and small tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from speechssl.report.figures import METRICS, SYSTEMS, Cell, Condition, Drawing, Series, decibels, metric_name
from speechssl.report.published import CHECKED, MARK, published
from speechssl.report.robustness import AT, CLEAN, GROUPS
from speechssl.report.superb import ASPECT, MAIN, RATIO, TASKS, Measured, Superb
from speechssl.report.superb_figures import confusions, det_curves, layer_weights, sweeps, timelines
from speechssl.results import DEFAULT, LOWER_IS_BETTER, decimals, drawn_sentence, unit

# The tables of SUPERB: clean speech, what others published, clean | seen | unseen, tuned and default learning rates.

SHORT = {
    "acc": "Acc",
    "wer_lm": "WER+LM",
    "slot_f1": "F1",
    "slot_cer": "CER",
    "min_dcf": "minDCF",
}  # in the head of a column that names the task
BESIDE = ("atwv", "min_dcf")  # measures that the benchmark does not list


@dataclass(frozen=True)
class Heading:
    task: str
    metric: str
    arrow: str
    about: str


@dataclass(frozen=True)
class Entry:
    """One cell. small: its interval, or the mark of it; best: of its column."""

    text: str
    small: str = ""
    best: bool = False


@dataclass(frozen=True)
class Line:
    """where: the condition, if the block has several. span: lines that the label stands for; 0: that of the line above."""

    label: str
    series: Series | None
    entries: tuple[Entry | None, ...]
    where: str = ""
    span: int = 1


@dataclass(frozen=True)
class Block:
    """One table. aspects: name, number of columns. strange: numbers that were not measured here."""

    title: str
    note: str
    aspects: tuple[tuple[str, int], ...]
    headings: tuple[Heading, ...]
    lines: tuple[Line, ...]
    strange: bool = False
    of: str = "Encoder"  # what the lines are

    @property
    def located(self) -> bool:
        """Whether the lines are told apart by their conditions."""
        return any(line.where for line in self.lines)


# ---- clean speech --------------------------------------------------------------------------------


def blocks(found: Superb) -> list[Block]:
    """Clean speech, what is published, and noise; the ten tasks apart from the extension."""
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


def _clean(found: Superb, columns: Sequence[Measured], title: str) -> Block | None:
    columns = [c for c in columns if any(found.at(e.label, c) for e in found.encoders)]
    lines = [(e, [found.at(e.label, c) for c in columns]) for e in found.encoders]
    lines = [(e, cells) for e, cells in lines if any(cells)]
    if not lines:
        return None
    best = [best_of(c, [cells[i] for _, cells in lines]) for i, c in enumerate(columns)]
    made = [Line(e.label, e, tuple(map(_entry, columns, cells, best))) for e, cells in lines]
    every = [(c, cell) for _, cells in lines for c, cell in zip(columns, cells, strict=True) if cell]
    return Block(title, _note(columns, every, len(lines)), _aspects(columns), _headings(columns), tuple(made))


def best_of(column: Measured, cells: Sequence[Cell | None]) -> str:
    """As printed; empty where nothing competes."""
    values = [cell.value for cell in cells if cell]
    choose = min if column[1] in LOWER_IS_BETTER else max
    return printed(column, choose(values)) if len(values) > 1 else ""


def _entry(column: Measured, cell: Cell | None, best: str) -> Entry | None:
    if cell is None:
        return None
    ends = [] if cell.low is None or cell.high is None else [printed(column, cell.low), printed(column, cell.high)]
    text, dash = printed(column, cell.value), " to " if cell.low is not None and cell.low < 0 else "–"
    return Entry(text, dash.join(ends), bool(best) and text == best)


def printed(column: Measured, value: float) -> str:
    return _minus(f"{value:.{decimals(column[1])}f}")


def _minus(text: str) -> str:
    return text.replace("-", "\u2212")


def _headings(columns: Sequence[Measured]) -> tuple[Heading, ...]:
    return tuple(
        Heading(
            _code(task),
            SHORT.get(metric, metric_name(metric)),
            arrow(metric),
            METRICS.get(metric, ("", metric))[1],
        )
        for task, metric in columns
    )


def _code(task: str) -> str:
    return "QbE" if task == "qbe" else task.upper()


def arrow(metric: str) -> str:
    return "↓" if metric in LOWER_IS_BETTER else "↑"


def _aspects(columns: Sequence[Measured]) -> tuple[tuple[str, int], ...]:
    return tuple((name, len(list(some))) for name, some in groupby(columns, key=lambda c: ASPECT[c[0]]))


def _note(columns: Sequence[Measured], found: Sequence[tuple[Measured, Cell]], lines: int) -> str:
    cells = [cell for _, cell in found]
    parts = [f"Measured by this run. {_measured_in(columns)}; ↑ more is better, ↓ less is."]
    if any(cell.low is not None for cell in cells):
        parts.append(f"Grey: 95 % interval. {drawn_sentence((_code(c[0]), cell.drawn, cell.groups) for c, cell in found)}".strip())
    if (seeds := max(cell.seeds for cell in cells)) > 1:
        parts.append(f"Means over up to {seeds} seeds; an interval reaches over those of all seeds.")
    if lines > 1:
        parts.append("Bold: best of the column.")
    return " ".join(parts)


def _measured_in(columns: Sequence[Measured]) -> str:
    """Percent, and whatever is not."""
    kinds = {metric: unit(metric) for _, metric in columns}
    others = [f"{metric_name(m)} {'in dB' if u == 'dB' else 'on its own scale'}" for m, u in kinds.items() if u != "%"]
    return ", ".join((["Percent"] if "%" in kinds.values() else []) + others)


# ---- published -----------------------------------------------------------------------------------


def _published(columns: Sequence[Measured]) -> Block | None:
    """The same columns, for encoders that others measured."""
    known = published()
    columns = [c for c in columns if any(c in values for values in known.values())]
    if not columns:
        return None
    lines = [Line(name, None, tuple(_noted(c, values.get(c)) for c in columns)) for name, values in known.items()]
    note = f"{MARK} {_measured_in(columns)}. Those above may be set beside them only where measured on the same sets."
    if any(task not in CHECKED for task, _ in columns):
        note += " † Not verified against the leaderboard."
    return Block("Published encoders, on the published sets", note, _aspects(columns), _headings(columns), tuple(lines), True)


def _noted(column: Measured, value: float | None) -> Entry | None:
    return None if value is None else Entry(f"{value:.2f}", "" if column[0] in CHECKED else "†")


# ---- noise ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Conditions that stand as one line: the mean over them is shown."""

    name: str
    conditions: tuple[Condition, ...]


def _noisy(found: Superb, columns: Sequence[Measured], title: str) -> Block | None:
    """As the lecture has it: clean above seen above unseen, a column a task; small, what the noise changes."""
    places = _places(found, columns)
    columns = [c for c in columns if any(_mean(found, e.label, c, p) is not None for e in found.encoders for p in places)]
    lines: list[Line] = []
    every = [Place("clean", (CLEAN,)), *places]
    for encoder in found.encoders:
        mine = [Line(encoder.label, encoder, _row(found, encoder.label, columns, p), p.name) for p in every]
        mine = [line for line in mine if any(line.entries)]
        if len(mine) > 1:
            lines += [Line(x.label, x.series, x.entries, x.where, 0 if i else len(mine)) for i, x in enumerate(mine)]
    if not lines:
        return None
    over = "; ".join(f"{p.name}: {_names(p)}" for p in places)
    note = f"{_measured_in(columns)}. {over}. Grey: difference from the same encoder's clean speech; ↑ more is better, ↓ less is."
    return Block(title, note, _aspects(columns), _headings(columns), tuple(lines))


def _places(found: Superb, columns: Sequence[Measured]) -> list[Place]:
    """Every group at the SNR nearest to that of the robustness grid; a group without SNRs as it is."""
    every = dict.fromkeys(c for _, task, metric, c in found.cells if (task, metric) in columns)
    places = []
    for group in GROUPS:
        mine = [c for c in every if c.name.startswith(group)]
        ratios = [c.snr_db for c in mine if c.snr_db is not None]
        snr = min(ratios, key=lambda x: (abs(x - AT), x), default=None)
        name = group.rstrip("-") + ("" if snr is None else f", {decibels(snr)}")
        places += [Place(name, tuple(c for c in mine if c.snr_db == snr))] if mine else []
    return places


def _row(found: Superb, encoder: str, columns: Sequence[Measured], place: Place) -> tuple[Entry | None, ...]:
    return tuple(_change(c, _mean(found, encoder, c, place), found.at(encoder, c), place) for c in columns)


def _change(column: Measured, value: float | None, clean: Cell | None, place: Place) -> Entry | None:
    if value is None:
        return None
    if clean is None or place.conditions == (CLEAN,):
        return Entry(printed(column, value))
    return Entry(printed(column, value), _minus(f"{value - clean.value:+.{decimals(column[1])}f}"))


def _mean(found: Superb, encoder: str, column: Measured, place: Place) -> float | None:
    """None unless all of the conditions were measured: a mean over others would not compare."""
    cells = [found.at(encoder, column, c) for c in place.conditions]
    values = [cell.value for cell in cells if cell]
    return fmean(values) if values and len(values) == len(cells) else None


def _names(place: Place) -> str:
    names = [c.name.split("-", 1)[1] for c in place.conditions]
    return names[0] if len(names) == 1 else f"mean of {', '.join(names)}"


# ---- learning rates ------------------------------------------------------------------------------


def _tuned(found: Superb) -> Block | None:
    """A line a metric: for each encoder the score with the learning rate that dev chose, and with the default one."""
    pairs = {
        (e, c): (found.at(e.label, c), found.at(e.label, (c[0], c[1] + DEFAULT))) for e in found.encoders for c in found.columns
    }
    pairs = {place: cells for place, cells in pairs.items() if all(cells)}
    encoders = [e for e in found.encoders if any(e == x for x, _ in pairs)]
    columns = [c for c in found.columns if any(c == x for _, x in pairs)]
    if not pairs:
        return None
    lines = []
    for task, metric in columns:
        entries: list[Entry | None] = []
        for e in encoders:
            both = pairs.get((e, (task, metric)), (None, None))
            entries += [_rate(found, e.label, task), *(_entry((task, metric), cell, "") for cell in both)]
        lines.append(Line(f"{_code(task)}, {metric_name(metric)}\u00a0{arrow(metric)}", None, tuple(entries)))
    note = (
        f"Clean speech, test. tuned: with the learning rate that dev chose; default lr: with none chosen. {_measured_in(columns)}."
    )
    heads = (Heading("lr", "", "", "learning rate that dev chose"), Heading("tuned", "", "", ""), Heading("default lr", "", "", ""))
    aspects = tuple((e.label, len(heads)) for e in encoders)
    return Block("Tuned and default learning rate", note, aspects, heads * len(encoders), tuple(lines), of="Task")


def _rate(found: Superb, encoder: str, task: str) -> Entry | None:
    """Of the first seed."""
    rates = {h.seed: h.learning_rate for h in found.artefacts.heads if (h.encoder, h.task) == (encoder, task)}
    rate = rates[min(rates)] if rates else None
    return Entry(_minus(f"{rate:g}")) if rate else None


# What SUPERB's tables leave open: the gain of the cache, what was recognised, and a sentence about it all.

CACHED = ("Task", "Encoder", "times faster")
HEARD = ("Task", "Encoder", "What was said", "What was recognised")


def cache_lines(found: Superb) -> list[tuple[str, str, str]]:
    """Task, encoder, and how many times faster a head trains from cached features than with the encoder in the loop."""
    cells = {(task, encoder): cell for (encoder, task, metric, _), cell in found.cells.items() if metric == RATIO}
    order = sorted(cells, key=lambda k: (TASKS.index(k[0]) if k[0] in TASKS else len(TASKS), k[0]))
    return [(SYSTEMS.get(task, task), encoder, f"{cells[task, encoder].value:.2f} ×") for task, encoder in order]


def heard_lines(found: Superb) -> list[tuple[str, str, str, str]]:
    """In the order of the tasks; phones with spaces between."""
    heard = sorted((h for h in found.artefacts.heard if h.task in TASKS), key=lambda h: (TASKS.index(h.task), h.id))
    return [(SYSTEMS[h.task], h.encoder, h.truth, h.said or "–") for h in heard]


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
    told = f"{who} on {counted}{f', {seeds} seeds each' if seeds > 1 else ''}."
    return told + _leaders(scores, names)


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
    told = ", ".join(f"{name} in {wins[name]}" for name in ranked if wins[name])
    return f" Best in clean speech, of {len(common)} that all did: {told}."


LAYERS = (
    "Softmax weights of the sum that each head sees, in percent, a mean over seeds; column CNN is the output of the convolutions, "
    "the others are the layers of the transformer. QbE has no weights: the square marks the layer that dev chose."
)
CONFUSION = (
    "A line is what it was, a column what it was taken for; percent of the line, the stronger the colour the more (on a "
    "square-root scale, so that a few are seen as well)."
)
DET = (
    "Both axes are normal deviates. The marks are the equal error rates, where a curve crosses the dotted diagonal; the nearer to "
    "the lower left corner, the better."
)
TIMELINE = "The first recording of the test set: for each speaker the truth, and below it what each encoder's head said."
SWEEP = (
    "Ringed: the learning rate that dev chose. Dotted: the default. Hollow: given up before the end, as others were better by then."
)


def superb_figures(found: Superb) -> list[tuple[str, str, Drawing]]:
    """Title, caption and drawing of each figure that there are data for."""
    drawn = [
        ("Which layers the tasks use", LAYERS, layer_weights(found)),
        *((f"What was taken for what: {name}", CONFUSION, drawing) for name, drawing in confusions(found)),
        ("Speaker verification: misses against false alarms", DET, det_curves(found)),
        ("Diarisation: who spoke when", TIMELINE, timelines(found)),
        ("Score on dev by learning rate", SWEEP, sweeps(found)),
    ]
    return [(title, caption, drawing) for title, caption, drawing in drawn if drawing]


def superb_tables(found: Superb) -> list[tuple[str, tuple[str, ...], tuple[tuple[Any, ...], ...], str]]:
    """Title, columns, rows and note of each table that there are rows for."""
    cached = "Time of training a head with the encoder in the loop, over the time from hidden states computed once."
    heard = "The first recordings of the test set."
    made: list[tuple[str, tuple[str, ...], Sequence[tuple[Any, ...]], str]] = [
        ("Features once", CACHED, cache_lines(found), cached),
        ("What was recognised", HEARD, heard_lines(found), heard),
    ]
    return [(title, columns, tuple(lines), note) for title, columns, lines, note in made if lines]
