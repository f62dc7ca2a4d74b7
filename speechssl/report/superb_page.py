"""SUPERB on a page: tables of clean speech, published scores, noise and learning rates; figures; what was recognised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from speechssl.eval.published import CHECKED, MARK, published
from speechssl.eval.tables import Table
from speechssl.report.figures import CLEAN, METRICS, SYSTEMS, Cell, Condition, Drawing, Series, decibels, metric_name
from speechssl.report.robustness import AT, GROUPS
from speechssl.report.superb import ASPECT, MAIN, RATIO, TASKS, Measured, Superb
from speechssl.report.superb_figures import confusions, det_curves, layer_weights, sweeps, timelines
from speechssl.results import DEFAULT, LOWER_IS_BETTER, decimals, drawn_sentence, unit

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


# ---- cells and headings


def best_of(column: Measured, cells: Sequence[Cell | None]) -> str:
    """As printed; empty where nothing competes."""
    values = [cell.value for cell in cells if cell]
    choose = min if column[1] in LOWER_IS_BETTER else max
    return printed(column, choose(values)) if len(values) > 1 else ""


def printed(column: Measured, value: float) -> str:
    return _minus(f"{value:.{decimals(column[1])}f}")


def arrow(metric: str) -> str:
    return "↓" if metric in LOWER_IS_BETTER else "↑"


def _minus(text: str) -> str:
    return text.replace("-", "\u2212")


def _code(task: str) -> str:
    return "QbE" if task == "qbe" else task.upper()


def _entry(column: Measured, cell: Cell | None, best: str = "") -> Entry | None:
    if cell is None:
        return None
    ends = [] if cell.low is None or cell.high is None else [printed(column, cell.low), printed(column, cell.high)]
    text, dash = printed(column, cell.value), " to " if cell.low is not None and cell.low < 0 else "–"
    return Entry(text, dash.join(ends), bool(best) and text == best)


def _block(title: str, note: str, columns: Sequence[Measured], lines: Sequence[Line], strange: bool = False) -> Block:
    headings = tuple(
        Heading(_code(task), SHORT.get(metric, metric_name(metric)), arrow(metric), METRICS.get(metric, ("", metric))[1])
        for task, metric in columns
    )
    aspects = tuple((name, len(list(some))) for name, some in groupby(columns, key=lambda c: ASPECT[c[0]]))
    return Block(title, note, aspects, headings, tuple(lines), strange)


def _units(columns: Sequence[Measured]) -> str:
    """ "Percent, PESQ on its own scale": percent, and whatever is not."""
    kinds = {metric: unit(metric) for _, metric in columns}
    others = [f"{metric_name(m)} {'in dB' if u == 'dB' else 'on its own scale'}" for m, u in kinds.items() if u != "%"]
    return ", ".join((["Percent"] if "%" in kinds.values() else []) + others)


# ---- tables


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

    def entry(column: Measured, value: float | None) -> Entry | None:
        return None if value is None else Entry(f"{value:.2f}", "" if column[0] in CHECKED else "†")

    lines = [Line(name, None, tuple(entry(c, values.get(c)) for c in columns)) for name, values in known.items()]
    note = f"{MARK} {_units(columns)}. Those above may be set beside them only where measured on the same sets."
    if any(task not in CHECKED for task, _ in columns):
        note += " † Not verified against the leaderboard."
    return _block("Published encoders, on the published sets", note, columns, lines, True)


@dataclass(frozen=True)
class Place:
    """Conditions that share a line: the mean over them is shown."""

    name: str
    conditions: tuple[Condition, ...]


def _noisy(found: Superb, columns: Sequence[Measured], title: str) -> Block | None:
    """As the lecture has it: clean above seen above unseen, a column a task; small, what the noise changes."""
    every = dict.fromkeys(c for _, task, metric, c in found.cells if (task, metric) in columns)
    places = []
    for group in GROUPS:  # each at the SNR nearest to that of the robustness grid; a group without SNRs as it is
        mine = [c for c in every if c.name.startswith(group)]
        snr = min((c.snr_db for c in mine if c.snr_db is not None), key=lambda x: (abs(x - AT), x), default=None)
        name = group.rstrip("-") + ("" if snr is None else f", {decibels(snr)}")
        places += [Place(name, tuple(c for c in mine if c.snr_db == snr))] if mine else []

    def mean(encoder: Series, column: Measured, place: Place) -> float | None:
        """None unless all of the conditions were measured: a mean over others would not compare."""
        cells = [found.at(encoder.label, column, c) for c in place.conditions]
        values = [cell.value for cell in cells if cell]
        return fmean(values) if values and len(values) == len(cells) else None

    def entry(encoder: Series, column: Measured, place: Place) -> Entry | None:
        value, clean = mean(encoder, column, place), found.at(encoder.label, column)
        if value is None:
            return None
        if clean is None or place.conditions == (CLEAN,):
            return Entry(printed(column, value))
        return Entry(printed(column, value), _minus(f"{value - clean.value:+.{decimals(column[1])}f}"))

    columns = [c for c in columns if any(mean(e, c, p) is not None for e in found.encoders for p in places)]
    lines: list[Line] = []
    for e in found.encoders:
        rows = [(p.name, tuple(entry(e, c, p) for c in columns)) for p in (Place("clean", (CLEAN,)), *places)]
        rows = [(where, entries) for where, entries in rows if any(entries)]
        if len(rows) > 1:
            lines += [Line(e.label, e, entries, where, 0 if i else len(rows)) for i, (where, entries) in enumerate(rows)]
    if not lines:
        return None
    named = {p.name: [c.name.split("-", 1)[1] for c in p.conditions] for p in places}
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
            entries.append(Entry(_minus(f"{rate:g}")) if rate else None)
            entries += [_entry(column, cell) for cell in pairs.get((e, column), (None, None))]
        lines.append(Line(f"{_code(task)}, {metric_name(metric)}\u00a0{arrow(metric)}", None, tuple(entries)))
    note = f"Clean speech, test. tuned: with the learning rate that dev chose; default lr: with none chosen. {_units(columns)}."
    heads = (Heading("lr", "", "", "learning rate that dev chose"), Heading("tuned", "", "", ""), Heading("default lr", "", "", ""))
    aspects = tuple((e.label, len(heads)) for e in encoders)
    return Block("Tuned and default learning rate", note, aspects, heads * len(encoders), tuple(lines), of="Task")


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
        Table("What was recognised", ("Task", "Encoder", "What was said", "What was recognised"), tuple(texts), spoken),
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


# ---- figures

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
TIMELINE = "The first recording of the test set: for each speaker the truth, and below it what each encoder's head predicted."
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
