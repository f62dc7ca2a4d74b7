"""One HTML page from rows and examples. It holds all that it shows, figures as SVG and sound as data."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from speechssl.errors import InputError
from speechssl.eval.tables import Table, listed
from speechssl.io import write_text
from speechssl.report.figures import (
    METRICS,
    PALETTE,
    Breakdown,
    Cell,
    Condition,
    Drawing,
    Results,
    Series,
    arrange,
    bars,
    decibels,
    metric_name,
    score_against_snr,
    score_against_wer,
)
from speechssl.report.listening import Example, Prediction, Region, data_uri, outline, region, ticks
from speechssl.report.robustness import Panel, curves, heat_map, kept, of_grid, panels, summarise_grid
from speechssl.report.superb import Artefacts, main_panels, of_superb
from speechssl.report.superb_page import blocks, summarise_superb, superb_figures, superb_tables
from speechssl.results import LOWER_IS_BETTER, Row, decimals, drawn_sentence, unit

# The opening paragraph of a report, written from the numbers: what each system reaches, and who leads where.

MOST = 4  # systems in one sentence


def summarise(results: Results, metric: str = "ff1") -> str:
    """A few plain sentences about one metric, or about the first there is where it is missing. Empty without any."""
    if metric not in results.metrics:
        metric = next(iter(results.metrics), "")
    conditions = results.conditions(metric)
    if not conditions:
        return ""
    sentences = [_scores(results, metric, conditions[0])]
    hardest = _hardest(conditions)
    if hardest:
        sentences += [
            _scores(results, metric, hardest),
            _change(results, metric, conditions[0], hardest),
            _wer(results, hardest),
        ]
    return " ".join(filter(None, sentences))


def _hardest(conditions: Sequence[Condition]) -> Condition | None:
    """The least signal-to-noise ratio, else the last condition; None where there is one condition only."""
    noisy = [c for c in conditions[1:] if c.snr_db is not None]
    return min(noisy, key=lambda c: c.snr_db or 0.0, default=conditions[-1]) if len(conditions) > 1 else None


def _scores(results: Results, metric: str, condition: Condition) -> str:
    ranked = _ranked(results, metric, condition)
    cells = ranked[:MOST]
    told = [f"{s.label} {'reaches ' + metric_name(metric) + ' ' if not i else ''}{_number(c)}" for i, (s, c) in enumerate(cells)]
    more = f" ({len(ranked) - MOST} more in the table)" if len(ranked) > MOST else ""
    return f"{_place(condition)} {listed(told)}{more}."


def _change(results: Results, metric: str, easy: Condition, hard: Condition) -> str:
    """Who leads at either end, and whether the intervals of the first two at the hard end overlap."""
    before, after = _ranked(results, metric, easy), _ranked(results, metric, hard)
    if len(before) < 2 or len(after) < 2:
        return ""
    (leader, first), (_, second) = after[:2]
    sure = "" if _apart(first, second) else ", though the intervals of the first two overlap"
    if leader == before[0][0]:
        return f"{leader.label} leads at both ends{sure}."
    return f"The order changes on the way: {before[0][0].label} leads {_where(easy)}, {leader.label} {_where(hard)}{sure}."


def _wer(results: Results, hard: Condition) -> str:
    clean = Condition("clean")
    errors = results.recognition
    pairs = [(s, results.get(s, errors, clean), results.get(s, errors, hard)) for s in results.having(errors)]
    told = [f"from {a.value:.1f} to {b.value:.1f} % for {s.label}" for s, a, b in pairs if a and b]
    return f"The {METRICS[errors][1].removesuffix(' of the transcript')} goes {listed(told)}." if told else ""


def _ranked(results: Results, metric: str, condition: Condition) -> list[tuple[Series, Cell]]:
    found = [(s, cell) for s in results.series if (cell := results.get(s, metric, condition))]
    return sorted(found, key=lambda pair: pair[1].value, reverse=metric not in LOWER_IS_BETTER)


def _apart(a: Cell, b: Cell) -> bool:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return True
    return a.low > b.high or b.low > a.high


def _number(cell: Cell) -> str:
    interval = "" if cell.low is None or cell.high is None else f" [{cell.low:.1f}, {cell.high:.1f}]"
    return f"{cell.value:.1f}{interval}"


def _where(condition: Condition) -> str:
    if condition == Condition("clean"):
        return "in clean speech"
    if condition == Condition("written"):
        return "as written"
    if condition.snr_db is not None:
        return f"in {condition.family.lower()} at {decibels(condition.snr_db)}"
    return f"with {condition.family.lower()}"


def _place(condition: Condition) -> str:
    where = _where(condition)
    return where[0].upper() + where[1:]


TITLE = "Spoken question answering with and without a transcript"
ROBUSTNESS = "Speech encoders in noise"
SUPERB = "SUPERB: what speech encoders are good for"
COLUMNS = ("system", "encoder", "condition", "snr_db", "metric", "value", "low", "high", "n", "seed", "card", "drawn", "groups")
PLAIN = Series("", "", "", len(PALETTE) - 1)  # grey, for a system that nothing else knows


@dataclass(frozen=True)
class Figure:
    title: str
    caption: str
    drawing: Drawing


@dataclass(frozen=True)
class Grid:
    """One metric as a table: a line a series, a column a condition.

    groups: kind of condition, number of its columns. lines: the flag says that the cell is the best of its column.
    """

    metric: str
    name: str
    about: str
    conditions: tuple[Condition, ...]
    groups: tuple[tuple[str, int], ...]
    lines: tuple[tuple[Series, tuple[tuple[Cell | None, bool], ...]], ...]
    note: str
    decimals: int = 1


@dataclass(frozen=True)
class Lane:
    """One line under a waveform. pieces: a transcript cut into before, answer, after; empty where there is none."""

    series: Series | None  # None: gold
    label: str
    regions: tuple[Region, ...]
    prediction: Prediction | None
    pieces: tuple[str, str, str] | None


def build_report(
    out: Path | str,
    rows: Sequence[Row],
    examples: Sequence[Example] = (),
    breakdowns: Sequence[Breakdown] = (),
    tables: Sequence[Table] = (),
    provenance: Mapping[str, str] | None = None,
    title: str = "",
    commentary: Sequence[str] = (),
    artefacts: Artefacts | None = None,
    synthetic: str = "",
) -> None:
    """Write the page, whole or not at all; the same input gives the same bytes. What has no data is left out.

    rows: percent (or what `results.unit` says), as `evaluation.results.read_rows` gives them.
    breakdowns: FF1 by length of the answer, clean speech.
    provenance: what, value (command, versions, hardware, date); questions, seeds and cards are added from the rows.
    title: as suits the rows, where it is empty. commentary: paragraphs to follow the summary.
    artefacts: what a SUPERB run left beside its rows.
    synthetic: what a synthesiser spoke of the data of these rows; stands under the title and at every table of them.
    Raises InputError when there is nothing to show, when a table is ragged or when an example has no length.
    """
    if not (rows or examples or breakdowns or tables):
        raise InputError(f"there is nothing to write into {out}; give at least one result, example or table")
    named = [p.system for e in examples for p in e.predictions] + [b["system"] for b in breakdowns]
    superb = of_superb(rows, artefacts or Artefacts())
    grid, others = of_grid(row for row in rows if not superb.shows(row))
    results, found = arrange(others, also=named), (*superb.noisy, *panels(grid))
    tables = [*superb_tables(superb), *tables]
    _check(examples)
    page = _template().render(
        title=title or _title(bool(superb), bool(grid), bool(others)),
        summary=" ".join(filter(None, [summarise_superb(superb), summarise(results), summarise_grid(main_panels(found))])),
        synthetic=synthetic,
        commentary=commentary,
        provenance=_provenance(rows, others, provenance or {}),
        blocks=blocks(superb),
        heading="In noise, task by task" if superb and not others else "Results",
        grids=[_told(grid_of(results, metric), synthetic) for metric in results.metrics] + [_panel_grid(panel) for panel in found],
        figures=[Figure(*figure) for figure in superb_figures(superb)] + _figures(results, breakdowns) + _robustness_figures(found),
        tables=[(table, table.texts) for table in tables],
        examples=[(e, _lanes(e, results)) for e in examples],
        rows=[_cells(row) for row in rows],
        columns=COLUMNS,
        download=_csv(rows),
        palette=PALETTE,
    )
    write_text(out, page)


def write_parts(
    out: Path | str,
    title: str,
    summary: str,
    provenance: Mapping[str, str],
    grids: Sequence[Grid],
    figures: Sequence[Figure],
    tables: Sequence[Table],
    synthetic: str = "",
) -> None:
    """A page of parts that are put together elsewhere, whole or not at all. Raises InputError when a table is ragged."""
    nothing: dict[str, Any] = {"commentary": (), "blocks": (), "examples": (), "rows": (), "columns": COLUMNS, "download": ""}
    parts = {
        "title": title,
        "summary": summary,
        "synthetic": synthetic,
        "provenance": provenance,
        "grids": grids,
        "figures": figures,
        "heading": "Results",
    }
    page = _template().render(**parts, **nothing, tables=[(table, table.texts) for table in tables], palette=PALETTE)
    write_text(out, page)


def _title(superb: bool, grid: bool, others: bool) -> str:
    if superb and not others:
        return SUPERB
    return ROBUSTNESS if grid and not others else TITLE


def locate(text: str, answer: str, near: float = 0.5) -> tuple[str, str, str] | None:
    """Cut a text at the occurrence of the answer that lies nearest to this fraction of the text: before, answer, after.

    Case does not count; whole words are preferred. None where the text does not hold the answer.
    """
    words = re.escape(answer.strip())
    if not words:
        return None
    found = list(re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE)) or list(re.finditer(words, text, re.IGNORECASE))
    if not found:
        return None
    best = min(found, key=lambda m: abs((m.start() + m.end()) / 2 - near * len(text)))
    return text[: best.start()], best[0], text[best.end() :]


def _template() -> Any:
    source = resources.files("speechssl.report").joinpath("template.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"data_uri": data_uri, "outline": outline, "number": _number_of_page, "span": _span}
    environment.globals |= {"decibels": decibels, "ticks": ticks}
    return environment.from_string(source)


def _check(examples: Sequence[Example]) -> None:
    for example in examples:
        if not example.seconds > 0:
            raise InputError(f"the example {example.id} lasts {example.seconds} s; give the length of its passage in seconds")


# ---- tables --------------------------------------------------------------------------------------


def grid_of(results: Results, metric: str) -> Grid:
    """One metric of the results."""
    conditions, series = results.conditions(metric), results.having(metric)
    columns = {c: [cell for s in series if (cell := results.get(s, metric, c))] for c in conditions}
    best = {c: _best(cells, metric) for c, cells in columns.items()}
    lines = tuple((s, tuple(_marked(results.get(s, metric, c), best[c], decimals(metric)) for c in conditions)) for s in series)
    groups = [(c.family, sum(d.family == c.family for d in conditions)) for c in conditions]
    about = METRICS[metric][1] if metric in METRICS else ""
    every = [cell for cells in columns.values() for cell in cells]
    return Grid(
        metric, metric_name(metric), about, conditions, tuple(dict.fromkeys(groups)), lines, _note(metric, every), decimals(metric)
    )


def _told(grid: Grid, synthetic: str) -> Grid:
    return replace(grid, note=f"{grid.note} {synthetic}".strip())


def _panel_grid(panel: Panel) -> Grid:
    """A task of a robustness grid: a line an encoder."""
    return replace(grid_of(panel.results, panel.metric), name=panel.label)


def _best(cells: Sequence[Cell], metric: str) -> str | None:
    """The best value as printed; None where nothing competes."""
    if len(cells) < 2:
        return None
    choose = min if metric in LOWER_IS_BETTER else max
    return _number_of_page(choose(cell.value for cell in cells), decimals(metric))


def _marked(cell: Cell | None, best: str | None, digits: int) -> tuple[Cell | None, bool]:
    return cell, cell is not None and _number_of_page(cell.value, digits) == best


def _note(metric: str, cells: Sequence[Cell]) -> str:
    what = {"%": "Percent", "dB": "Decibels", "×": "Times"}.get(unit(metric), "On its own scale")
    parts = [f"{what}; {'lower' if metric in LOWER_IS_BETTER else 'higher'} is better."]
    if any(cell.low is not None for cell in cells):
        parts.append(" ".join(filter(None, ["Grey: 95 % interval.", drawn_sentence(("", c.drawn, c.groups) for c in cells)])))
    sizes = sorted({cell.n for cell in cells if cell.n})
    if sizes:
        parts.append(f"n = {sizes[0]:,}." if len(sizes) == 1 else f"n = {sizes[0]:,} to {sizes[-1]:,}.")
    if (seeds := max(cell.seeds for cell in cells)) > 1:
        parts.append(f"Means over up to {seeds} seeds; an interval reaches over those of all seeds.")
    return " ".join(parts)


def _figures(results: Results, breakdowns: Sequence[Breakdown]) -> list[Figure]:
    drawn = drawn_sentence(("", cell.drawn, cell.groups) for (_, metric, _), cell in results.cells.items() if metric == "ff1")
    snr = f"Error bars: 95 % intervals. {drawn} Points of one condition stand side by side so that the bars can be told apart."
    crossing = (
        "Each point is one condition: along, what the recogniser of the cascade does to the words; up, what is left of "
        "the answer. A dotted upright joins the systems in one condition. Hollow: a condition outside the noise series."
    )
    what = "as written" if Condition("written") in results.conditions("ff1") else "clean speech"
    found = [
        ("FF1 as the noise grows", snr, score_against_snr(results)),
        ("FF1 against the recognition errors of the cascade", crossing, score_against_wer(results)),
        (f"FF1 by the length of the answer, {what}", f"Dark lines: 95 % intervals. {drawn}".strip(), bars(results, breakdowns)),
    ]
    return [Figure(title, caption, drawing) for title, caption, drawing in found if drawing]


def _robustness_figures(found: Sequence[Panel]) -> list[Figure]:
    heat = (
        "The number is the score (percent); the darker its cell, the more points are lost against the encoder's own clean speech."
    )
    other = "The same for what is not measured in percent, since such a loss is on another scale."
    cells = ((panel.label, cell.drawn, cell.groups) for panel in found for cell in panel.results.cells.values())
    curve = f"Bands: 95 % intervals. {drawn_sentence(cells)} Clean speech stands at the right end."
    share = "FF1 of each system over its own FF1 in clean speech: the flatter, the less it minds the noise."
    drawn = [
        ("What noise costs, task by task", heat, heat_map(found)),
        ("What noise costs, in decibels", other, heat_map(found, "dB")),
        ("What noise costs, on PESQ's scale", other, heat_map(found, "")),
        ("Scores as the noise grows", curve, curves(found)),
        ("What DUAL and the cascade keep", share, kept(found)),
    ]
    return [Figure(title, caption, drawing) for title, caption, drawing in drawn if drawing]


def _provenance(rows: Sequence[Row], answers: Sequence[Row], given: Mapping[str, str]) -> dict[str, str]:
    """answers: the rows of question answering, whose `encoder` is a folder of models."""
    asked = set(map(id, answers))
    known = dict(given)
    cards = dict.fromkeys(row.card for row in rows if isinstance(row.card, str) and row.card)
    facts = {
        "Models": ", ".join(dict.fromkeys(row.encoder for row in answers if row.encoder)),
        "Encoders": ", ".join(dict.fromkeys(row.encoder for row in rows if row.encoder and id(row) not in asked)),
        "Seeds": ", ".join(map(str, sorted({row.seed for row in rows if row.seed is not None}))),
        "Cards": ", ".join(list(cards)[:6]) + (f" and {len(cards) - 6} more" if len(cards) > 6 else ""),
    }
    lower = {name.lower() for name in known}
    return known | {name: value for name, value in facts.items() if value and name.lower() not in lower}


def _cells(row: Row) -> tuple[str, ...]:
    return tuple(_text(getattr(row, name)) for name in COLUMNS)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True, ensure_ascii=False)
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _csv(rows: Sequence[Row]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([COLUMNS, *map(_cells, rows)])
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(buffer.getvalue().encode()).decode("ascii")


def _number_of_page(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}"


def _span(region: Region) -> str:
    return f"{region.start:.2f} to {region.end:.2f} s"


# ---- listening -----------------------------------------------------------------------------------


def _lanes(example: Example, results: Results) -> list[Lane]:
    """Gold first, then the predictions in the order of the systems."""
    golden = tuple(region(start, end, example.seconds) for start, end in example.gold)
    middle = _middle(golden, example.seconds)
    gold = Lane(None, "Gold answer", golden, None, _cut(example.passage_text, example.answer_text, middle))
    predicted = [_lane(p, results.named(p.system) or PLAIN, example) for p in example.predictions]
    return [gold, *sorted(predicted, key=lambda lane: lane.series.slot if lane.series else 0)]


def _lane(prediction: Prediction, series: Series, example: Example) -> Lane:
    regions: tuple[Region, ...] = ()
    if prediction.start is not None and prediction.end is not None:
        regions = (region(prediction.start, prediction.end, example.seconds),)
    pieces = None
    if prediction.transcript is not None:
        pieces = _cut(prediction.transcript, prediction.answer_text or "", _middle(regions, example.seconds))
    return Lane(series, series.label or prediction.system, regions, prediction, pieces)


def _cut(text: str, answer: str, near: float) -> tuple[str, str, str]:
    return locate(text, answer, near) or (text, "", "")


def _middle(regions: Sequence[Region], seconds: float) -> float:
    return (regions[0].start + regions[0].end) / 2 / seconds if regions else 0.5
