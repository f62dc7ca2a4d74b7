"""A table: title, columns, rows and a note, for the terminal, Markdown, JSON and the pages of reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from speechssl.errors import InputError
from speechssl.results import aligned
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
        return [tuple(_text(v, n) for v, n in zip(row, digits, strict=True)) for row in self.rows]

    @property
    def text(self) -> str:
        """For the terminal."""
        return "\n".join(filter(None, [self.title, aligned([self.columns, *self.texts]), self.note]))

    @property
    def markdown(self) -> str:
        lines = [self.columns, ("---",) + ("---:",) * (len(self.columns) - 1), *self.texts]
        cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
        body = "\n".join("| " + " | ".join(line) + " |" for line in cells)
        return "\n\n".join(filter(None, [f"## {self.title}", body, self.note]))

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


def with_interval(v: Interval, sign: str = "") -> str:
    """ "61.2 [58.0, 64.5]"; without an interval where none was estimated. sign: "+" for differences."""
    return f"{v.value:{sign}.1f}" + (f" [{v.low:{sign}.1f}, {v.high:{sign}.1f}]" if v.estimated else "")


def listed(parts: Sequence[str]) -> str:
    """ "a, b and c"."""
    return ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1] if parts else ""


def _text(value: Any, digits: int) -> str:
    return "–" if value is None or value != value else f"{value:.{digits}f}" if isinstance(value, float) else str(value)
