"""The tables of the recipe: systems and readers beside each other, clean and in noise, with what is published; and characters
against characters with pinyin where errors are simulated.

python recipes/odsqa/tables.py EXP SPLIT [SPLIT ...]     reads EXP/SPLIT/READER/results.jsonl, writes EXP/SPLIT/tables/readers.json;
                                                         reads EXP/errors, writes EXP/errors/tables/errors.json
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from speechssl.io import read_json, write_json
from speechssl.results import Row, drawn_sentence, read_rows

METRICS = ("ff1", "aos", "em", "f1", "cer")
READERS = {
    "plain": "characters",
    "pinyin": "characters and pinyin",
    "zero-shot": "multilingual, English questions only",
    "multilingual": "multilingual, Chinese questions",
}
# DRCD's development set as text, EM / F1 of BERT (arXiv 1909.09587): another corpus and real text, for orientation only
PUBLISHED = {"plain": "82.0 / 89.1", "zero-shot": "63.3 / 78.8", "multilingual": "81.2 / 88.7"}


def readers(folder: Path) -> dict:
    found = {name: read_rows(path) for name in READERS if (path := folder / name / "results.jsonl").is_file()}
    rows = [line for name, results in found.items() for line in _lines(name, results)]
    columns = ["system", "text QA", "condition", *(m.upper() for m in METRICS), "published, DRCD as text"]
    note = f"Percent. {_drawn(found)}"
    return {"title": "Systems and readers", "columns": columns, "rows": rows, "note": note}


def _drawn(found: Mapping[str, Sequence[Row]]) -> str:
    return drawn_sentence((r.metric, r.drawn, r.groups) for rows in found.values() for r in rows)


def _lines(reader: str, results: tuple[Row, ...]) -> list[list[str]]:
    cells = {(r.system, _condition(r), r.metric): r for r in results}
    lines = []
    for system, condition in dict.fromkeys((s, c) for s, c, _ in cells):
        values = [_cell(cells.get((system, condition, metric))) for metric in METRICS]
        label = "–" if system.startswith(("dual", "speechbert")) else READERS[reader]
        lines.append([system, label, condition, *values, PUBLISHED.get(reader, "–") if system == "text" else "–"])
    return lines


def errors(folder: Path) -> dict:
    """Rows: a rate of errors; what each reader makes of it, and by how much pinyin is better (tested in pairs)."""
    found = {name: read_rows(folder / name / "results.jsonl") for name in ("plain", "pinyin")}
    cells = {name: {(r.system, r.metric): r for r in rows} for name, rows in found.items()}
    gains = {test["first"]: test for corpus in read_json(folder / "compare/compare.json")["corpora"] for test in corpus["tests"]}
    rows = []
    for system in dict.fromkeys(r.system for r in found["plain"]):
        values = [_cell(cells[name].get((system, metric))) for metric in ("em", "f1") for name in found]
        gain = gains.get(f"{system} (pinyin)")
        rows.append([system, _cell(cells["plain"].get((system, "cer"))), *values, _gain(gain) if gain else "–"])
    columns = ["what is read", "CER", *(f"{m}, {READERS[n]}" for m in ("EM", "F1") for n in found), "gain in F1, p (Holm)"]
    return {"title": "Errors of the recogniser, simulated", "columns": columns, "rows": rows, "note": f"Percent. {_drawn(found)}"}


def _gain(test: dict) -> str:
    ends = "" if test["low"] is None else f" [{test['low']:+.1f}, {test['high']:+.1f}]"
    return f"{test['value']:+.1f}{ends}, {test['p_holm']:.3f}"


def _condition(row: Row) -> str:
    return row.condition if row.snr_db is None else f"{row.condition} {row.snr_db:g} dB"


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    return f"{row.value:.1f}" if row.low is None else f"{row.value:.1f} [{row.low:.1f}, {row.high:.1f}]"  # one passage has none


def markdown(table: dict) -> str:
    lines = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(exp: Path, splits: list[str]) -> None:
    for folder in (exp / split for split in splits if (exp / split).is_dir()):
        _tell(folder, "readers", readers(folder))
    if (exp / "errors/compare/compare.json").is_file():
        _tell(exp / "errors", "errors", errors(exp / "errors"))


def _tell(folder: Path, name: str, table: dict) -> None:
    write_json(folder / "tables" / f"{name}.json", table)
    print(f"{folder}: {table['title'].lower()}. {table['note']}\n\n{markdown(table)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
