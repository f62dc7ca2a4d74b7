"""Print the table of measure.sh: FF1 and AOS of every system, and the WER of every cascade, a
column for each set and condition.

    python recipes/units/measured.py [NAME=]FOLDER ...
        folders that `speechssl evaluate qa` wrote

NAME says how a set differs from the first one: who speaks, or what is said.
"""

from collections import defaultdict
from pathlib import Path

from speechssl.cli import run_program
from speechssl.results import (
    Row,
    Table,
    format_interval,
    format_markdown,
    name_condition,
    read_rows,
)

METRICS = {"ff1": "FF1", "aos": "AOS", "wer": "WER"}


def name_column(name: str, row: Row) -> str:
    """Name a column: "pink 5 dB", "festival", "festival, pink 5 dB"."""
    condition = name_condition(row.condition, row.snr_db)
    if not name:
        return condition
    return name if condition == "clean" else f"{name}, {condition}"


def make_metric_table(title: str, rows: dict[tuple[str, str], Row]) -> Table:
    """Tabulate one metric: a line a system, a column a set and condition. The note has the number
    of questions and the units that the bootstrap draws. rows: by system and column."""
    systems = dict.fromkeys(system for system, _ in rows)
    columns = dict.fromkeys(column for _, column in rows)
    lines = []
    for system in systems:
        lines.append((system, *(format_interval(rows.get((system, name))) for name in columns)))
    systems_of: dict[str, list[str]] = defaultdict(list)  # text about a size -> systems
    for (system, column), row in rows.items():
        systems_of[f"{row.n} of {column}, drawn by {row.groups} x {row.drawn}"].append(system)
    sizes = "; ".join(f"{size} ({', '.join(names)})" for size, names in systems_of.items())
    note = f"Percent with 95 % intervals. Items, and what the intervals draw: {sizes}."
    return Table(title, ("system", *columns), tuple(lines), note)


def main(*folders: str) -> None:
    by_metric: dict[str, dict[tuple[str, str], Row]] = {metric: {} for metric in METRICS}
    for argument in folders:
        name, _, path = argument.rpartition("=")
        for row in read_rows(Path(path) / "results.jsonl"):
            if row.metric in METRICS:
                by_metric[row.metric][row.name, name_column(name, row)] = row
    tables = [make_metric_table(METRICS[name], rows) for name, rows in by_metric.items() if rows]
    print(format_markdown(tables))


if __name__ == "__main__":
    run_program(main)
