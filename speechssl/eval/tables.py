"""One table: title, columns, rows and a note, for the terminal, Markdown, JSON and the pages of reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechssl.errors import InputError
from speechssl.results import Row, decimals, drawn_sentence, unit
from speechssl.stats import Interval


@dataclass(frozen=True)
class Table:
    """rows: texts and numbers, as many as columns; None: nothing was measured. Raises InputError for a ragged table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise InputError(f"the table {self.title!r} has {len(self.columns)} columns; give every row as many values")

    @property
    def texts(self) -> list[tuple[str, ...]]:
        """The rows as they are printed: a column of fractions with three decimals, other decimal numbers with one."""
        columns = [[row[i] for row in self.rows] for i in range(len(self.columns))]
        digits = [3 if all(abs(v) <= 1 for v in column if isinstance(v, float)) else 1 for column in columns]

        def printed(value: Any, n: int) -> str:
            return "–" if value is None or value != value else f"{value:.{n}f}" if isinstance(value, float) else str(value)

        return [tuple(map(printed, row, digits)) for row in self.rows]

    @property
    def text(self) -> str:
        """For the terminal: columns of equal width, the first flush left, the others flush right, a rule under the head."""
        lines = [self.columns, *self.texts]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        head, *body = ("  ".join([x.ljust(widths[0]), *map(str.rjust, more, widths[1:])]).rstrip() for x, *more in lines)
        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        return "\n".join(filter(None, [self.title, head, rule, *body, self.note]))

    @property
    def markdown(self) -> str:
        lines = [self.columns, ("---",) + ("---:",) * (len(self.columns) - 1), *self.texts]
        cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
        body = "\n".join("| " + " | ".join(line) + " |" for line in cells)
        return "\n\n".join(filter(None, [f"## {self.title}" if self.title else "", body, self.note]))

    @property
    def values(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"title": self.title, "columns": self.columns, "rows": self.rows, "note": self.note}


def table_of(values: Any) -> Table:
    """From `Table.values`. Raises KeyError or TypeError for what is no table, InputError for a ragged one."""
    return Table(values["title"], tuple(values["columns"]), tuple(map(tuple, values["rows"])), values.get("note", ""))


def markdown(tables: Iterable[Table]) -> str:
    """Tables to paste."""
    return "\n\n".join(table.markdown for table in tables) + "\n"


def results_table(rows: Iterable[Row]) -> str:
    """Results for the terminal: a table a metric, a line a system, a column a condition, value [low, high].

    Where a cell has rows of several seeds, their mean, the number of seeds and the range over the intervals are shown. Of rows that
    differ in their card alone the last one is shown. Systems come in order of appearance; conditions without a signal-to-noise
    ratio first, then by name and from the quietest noise to the loudest.
    """
    rows = list(rows)
    tables = []
    for metric in dict.fromkeys(row.metric for row in rows):
        mine = [r for r in rows if r.metric == metric]
        columns = sorted({(r.condition, r.snr_db) for r in mine}, key=lambda c: (c[1] is not None, c[0], -(c[1] or 0.0)))
        cells: dict[tuple[Any, ...], dict[int, Row]] = {}  # by seed
        for row in mine:
            cells.setdefault((row.system, row.encoder, row.condition, row.snr_db), {})[row.seed] = row
        lines = []
        for system in dict.fromkeys((r.system, r.encoder) for r in mine):
            found = [list(cells.get((*system, *column), {}).values()) for column in columns]
            texts = [seeds_text(some) + (f" ({len(some)} seeds)" if len(some) > 1 else "") for some in found]
            lines.append((" ".join(filter(None, system)), *texts))
        head = f"{metric} ({unit(metric)})" if unit(metric) else metric
        tables.append(Table("", (head, *(condition_name(*c) for c in columns)), tuple(lines)).text)
    return "\n\n".join(filter(None, [*tables, drawn_sentence((row.metric, row.drawn, row.groups) for row in rows)]))


# ---- what stands in cells


def interval_text(found: Interval | Row | Mapping[str, Any] | None, sign: str = "", missing: str = "–", digits: int = 1) -> str:
    """ "61.2 [58.0, 64.5]" of an interval, a row or their JSON; without the interval where none was estimated.

    sign: "+" for differences; missing: for None and for JSON without a value.
    """
    values: Mapping[str, Any] = (found if isinstance(found, Mapping) else vars(found)) if found else {}
    if "value" not in values:
        return missing
    low, high = found.ends if isinstance(found, Interval) else (values["low"], values["high"])
    form = f"{sign}.{digits}f"
    return f"{values['value']:{form}}" + ("" if low is None else f" [{low:{form}}, {high:{form}}]")


def seeds_text(rows: Sequence[Row]) -> str:
    """ "61.2 [58.0, 64.5]" of rows of one metric that differ in their seeds: their mean, and the range over their intervals."""
    if not rows:
        return "-"
    digits = decimals(rows[0].metric)
    text = f"{sum(r.value for r in rows) / len(rows):.{digits}f}"
    lows, highs = [r.low for r in rows if r.low is not None], [r.high for r in rows if r.high is not None]
    return f"{text} [{min(lows):.{digits}f}, {max(highs):.{digits}f}]" if lows and highs else text


def condition_name(condition: str, snr_db: float | None) -> str:
    """ "clean", "pink 10 dB"."""
    return condition if snr_db is None else f"{condition} {snr_db:g} dB"


def listed(parts: Sequence[str]) -> str:
    """ "a, b and c"."""
    return ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1] if parts else ""


def snr_note(over: str) -> str:
    """A sentence below tables; none where SNRs are over active speech, as they are by default."""
    return "" if over == "active" else "SNRs are over the whole signal, pauses and all."
