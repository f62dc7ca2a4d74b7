"""Print the table of measure.sh: FF1 of every system and the WER of every cascade, a column for
each set and condition.

    python recipes/units/measured.py [NAME=]FOLDER ...
        folders that `speechssl evaluate qa` wrote

NAME says what is other than in the first set: who speaks, or what is said.
"""

import sys
from pathlib import Path

from speechssl.results import Row, Table, condition_name, interval_text, markdown, read_rows

METRICS = {"ff1": "FF1", "aos": "AOS", "wer": "WER"}


def name_column(name: str, row: Row) -> str:
    """Name a column: "pink 5 dB", "festival", "festival, pink 5 dB"."""
    condition = condition_name(row.condition, row.snr_db)
    if not name:
        return condition
    return name if condition == "clean" else f"{name}, {condition}"


def metric_table(title: str, rows: dict[tuple[str, str], Row]) -> Table:
    """Tabulate one metric: a line a system, a column a set and condition; questions and what is
    drawn are in the note. rows: by system and column."""
    systems = dict.fromkeys(system for system, _ in rows)
    columns = dict.fromkeys(column for _, column in rows)
    lines = []
    for system in systems:
        lines.append((system, *(interval_text(rows.get((system, name))) for name in columns)))
    sizes: dict[str, list[str]] = {}
    for (system, column), row in rows.items():
        size = f"{row.n} of {column}, drawn by {row.groups} x {row.drawn}"
        sizes.setdefault(size, []).append(system)
    listed = "; ".join(f"{size} ({', '.join(names)})" for size, names in sizes.items())
    note = f"Percent with 95 % intervals. Items, and what the intervals draw: {listed}."
    return Table(title, ("system", *columns), tuple(lines), note)


def main(folders: list[str]) -> None:
    by_metric: dict[str, dict[tuple[str, str], Row]] = {metric: {} for metric in METRICS}
    for folder in folders:
        name, _, path = folder.rpartition("=")
        for row in read_rows(Path(path) / "results.jsonl"):
            if row.metric in METRICS:
                by_metric[row.metric][row.name, name_column(name, row)] = row
    print(markdown(metric_table(METRICS[name], rows) for name, rows in by_metric.items() if rows))


if __name__ == "__main__":
    main(sys.argv[1:])
