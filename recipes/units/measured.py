"""The table of measure.sh: FF1 of every system and the WER of every cascade, a column for each set
and condition.

    python recipes/units/measured.py [NAME=]FOLDER ...
        folders that `speechssl evaluate qa` wrote

NAME is what is other than in the first set: who speaks, or what is said.
"""

import sys
from pathlib import Path

from speechssl.results import Row, Table, interval_text, markdown, read_rows

METRICS = {"ff1": "FF1", "aos": "AOS", "wer": "WER"}


def column(name: str, row: Row) -> str:
    """ "pink 5 dB", "festival", "festival, pink 5 dB"."""
    condition = row.condition + (f" {row.snr_db:g} dB" if row.snr_db is not None else "")
    if not name:
        return condition
    return name if condition == "clean" else f"{name}, {condition}"


def tables(folders: list[str]) -> list[Table]:
    """Make one table a metric: a line a system, a column a set and condition; questions and what is
    drawn are in the note."""
    cells: dict[str, dict[tuple[str, str], Row]] = {metric: {} for metric in METRICS}
    for folder in folders:
        name, _, path = folder.rpartition("=")
        for row in read_rows(Path(path) / "results.jsonl"):
            if row.metric in cells:
                cells[row.metric][row.name, column(name, row)] = row
    made = []
    for metric, rows in cells.items():
        systems = dict.fromkeys(system for system, _ in rows)
        columns = dict.fromkeys(where for _, where in rows)
        lines = []
        for system in systems:
            lines.append((system, *(interval_text(rows.get((system, where))) for where in columns)))
        sizes: dict[str, list[str]] = {}
        for (system, where), row in rows.items():
            sizes.setdefault(f"{row.n} of {where}, drawn by {row.groups} x {row.drawn}", []).append(
                system
            )
        listed = "; ".join(f"{size} ({', '.join(names)})" for size, names in sizes.items())
        note = f"Percent with 95 % intervals. Items, and what the intervals draw: {listed}."
        made.append(Table(METRICS[metric], ("system", *columns), tuple(lines), note))
    return [table for table in made if table.rows]


if __name__ == "__main__":
    print(markdown(tables(sys.argv[1:])))
