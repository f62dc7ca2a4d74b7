"""Make the tables of the recipe: systems and readers beside each other, clean and in noise, with
what is published; and characters against characters with pinyin where errors are simulated.

python recipes/odsqa/tables.py EXP SPLIT [SPLIT ...]
    reads EXP/SPLIT/READER/results.jsonl, writes EXP/SPLIT/tables/readers.json;
    reads EXP/errors, writes EXP/errors/tables/errors.json
"""

import sys
from itertools import chain
from pathlib import Path

from speechssl.artifacts import read_json, write_json
from speechssl.results import Table, condition_name, interval_text, read_rows, rows_sentence

METRICS = ("ff1", "aos", "em", "f1", "cer")
READERS = {  # folder -> what the reader reads
    "plain": "characters",
    "pinyin": "characters and pinyin",
    "zero-shot": "multilingual, English questions only",
    "multilingual": "multilingual, Chinese questions",
}
# DRCD's development set as text, EM / F1 of BERT (arXiv 1909.09587): another corpus and real text,
# for orientation only
PUBLISHED = {"plain": "82.0 / 89.1", "zero-shot": "63.3 / 78.8", "multilingual": "81.2 / 88.7"}


def reader_table(folder: Path) -> Table:
    """Tabulate the scores of every system with every reader in every condition."""
    paths = {reader: folder / reader / "results.jsonl" for reader in READERS}
    found = {reader: read_rows(path) for reader, path in paths.items() if path.is_file()}
    rows: list[tuple[str, ...]] = []
    for reader, results in found.items():
        cells = {(r.system, condition_name(r.condition, r.snr_db), r.metric): r for r in results}
        for system, condition in dict.fromkeys((s, c) for s, c, _ in cells):
            values = (interval_text(cells.get((system, condition, metric))) for metric in METRICS)
            # DUAL and SpeechBERT answer without a reader of text
            label = "–" if system.startswith(("dual", "speechbert")) else READERS[reader]
            published = PUBLISHED.get(reader, "–") if system == "text" else "–"
            rows.append((system, label, condition, *values, published))
    heads = (*(m.upper() for m in METRICS), "published, DRCD as text")
    note = f"Percent. {rows_sentence(chain.from_iterable(found.values()))}"
    columns = ("system", "text QA", "condition", *heads)
    return Table("Systems and readers", columns, tuple(rows), note)


def error_table(folder: Path) -> Table:
    """Tabulate the scores of both readers at every rate of errors, and the gain by pinyin, tested
    in pairs."""
    found = {reader: read_rows(folder / reader / "results.jsonl") for reader in ("plain", "pinyin")}
    cells = {reader: {(r.system, r.metric): r for r in rows} for reader, rows in found.items()}
    gains = {}  # by the first of the two systems that `speechssl compare` tested
    for corpus in read_json(folder / "compare/compare.json")["corpora"]:
        for test in corpus["tests"]:
            gains[test["first"]] = test
    columns_of_scores = [(metric, reader) for metric in ("em", "f1") for reader in found]
    rows = []
    for system in dict.fromkeys(r.system for r in found["plain"]):
        values = []
        for metric, reader in columns_of_scores:
            values.append(interval_text(cells[reader].get((system, metric))))
        gain = gains.get(f"{system} (pinyin)")
        better = f"{interval_text(gain, '+')}, {gain['p_holm']:.3f}" if gain else "–"
        rows.append((system, interval_text(cells["plain"].get((system, "cer"))), *values, better))
    heads = (f"{metric.upper()}, {READERS[reader]}" for metric, reader in columns_of_scores)
    columns = ("what is read", "CER", *heads, "gain in F1, p (Holm)")
    note = f"Percent. {rows_sentence(chain.from_iterable(found.values()))}"
    return Table("Errors of the recogniser, simulated", columns, tuple(rows), note)


def main(exp: Path, splits: list[str]) -> None:
    tables = [(exp / split, "readers", reader_table) for split in splits if (exp / split).is_dir()]
    if (exp / "errors/compare/compare.json").is_file():
        tables.append((exp / "errors", "errors", error_table))
    for folder, name, make in tables:
        table = make(folder)
        write_json(folder / "tables" / f"{name}.json", table.values)
        print(f"{folder}:\n\n{table.markdown}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
