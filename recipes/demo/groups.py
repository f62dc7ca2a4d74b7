"""The demo in one table: FF1 of every system for the synthesiser of training, in noise, for new
words, and for another synthesiser.

    python recipes/demo/groups.py EXP [OTHER=FOLDER]
        FOLDER: of the evaluation of what the synthesiser OTHER says

Prints the table and writes EXP/groups.json, for `speechssl report --tables`.
"""

import sys
from pathlib import Path

from speechssl.artifacts import read_json, write_json
from speechssl.results import Row, Table, interval_text, markdown, read_rows


def read_ff1(folder: Path) -> list[Row]:
    return [row for row in read_rows(folder / "results.jsonl") if row.metric == "ff1"]


def clean(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.condition == "clean"]


def main(exp: Path, *others: str) -> None:
    rows = read_ff1(exp)
    noise = [row for row in rows if (row.condition, row.snr_db) == ("pink", 5.0)]
    groups = {"espeak-ng": clean(rows), "espeak-ng, pink noise at 5 dB": noise}
    held_out = exp / "held-out"
    for other in (f"espeak-ng, held-out words={held_out}", *others):
        name, _, folder = other.partition("=")
        groups[name] = clean(read_ff1(Path(folder)))
    systems = dict.fromkeys(row.system for row in rows)
    found = [{row.system: row for row in group} for group in groups.values()]
    lines = [(system, *(interval_text(rows.get(system)) for rows in found)) for system in systems]
    shares = read_json(held_out / "corpus/card.json")["unknown_words"]["test"]
    note = (
        "The models learned from other voices of espeak-ng, two of flite and kokoro's, three "
        "in five recordings distorted. Neither festival nor pink noise was used in training. "
        f"Of the held-out test {shares['words']} % of the words are unknown to training, and "
        "all its sentence patterns."
    )
    if not others:
        note += " No other synthesiser is installed here (Debian packages festival or flite)."
    title = (
        "FF1 by what is heard: the synthesiser of training, noise, new words, another synthesiser"
    )
    table = Table(title, ("system", *groups), tuple(lines), note)
    write_json(exp / "groups.json", table.values)
    print(markdown([table]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
