"""The table of the recipe: systems and readers beside each other, clean and in noise, with what is published.

python recipes/odsqa/tables.py EXP SPLIT [SPLIT ...]     reads EXP/SPLIT/READER/results.jsonl, writes EXP/SPLIT/tables/readers.json
"""

import sys
from pathlib import Path

from speechssl.artefacts import write_json
from speechssl.evaluation.results import Row, read_rows

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
    return {"title": "Systems and readers", "columns": columns, "rows": rows, "note": "Percent with 95 % bootstrap intervals."}


def _lines(reader: str, results: tuple[Row, ...]) -> list[list[str]]:
    cells = {(r.system, _condition(r), r.metric): r for r in results}
    lines = []
    for system, condition in dict.fromkeys((s, c) for s, c, _ in cells):
        values = [_cell(cells.get((system, condition, metric))) for metric in METRICS]
        label = "–" if system.startswith("dual") else READERS[reader]
        lines.append([system, label, condition, *values, PUBLISHED.get(reader, "–") if system == "text" else "–"])
    return lines


def _condition(row: Row) -> str:
    return row.condition if row.snr_db is None else f"{row.condition} {row.snr_db:g} dB"


def _cell(row: Row | None) -> str:
    return f"{row.value:.1f} [{row.low:.1f}, {row.high:.1f}]" if row else "–"


def markdown(table: dict) -> str:
    lines = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(exp: Path, splits: list[str]) -> None:
    for folder in (exp / split for split in splits if (exp / split).is_dir()):
        table = readers(folder)
        write_json(folder / "tables" / "readers.json", table)
        print(f"{folder}: {table['title'].lower()}. {table['note']}\n\n{markdown(table)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
