"""Make two tables of the recipe: scores of systems and readers in clean speech and in noise, with
published scores; and a reader of characters against a reader of characters and pinyin, on texts
with simulated recognition errors.

python recipes/odsqa/tables.py EXP SPLIT [SPLIT ...]
    reads EXP/SPLIT/READER/results.jsonl, writes EXP/SPLIT/tables/readers.json;
    reads EXP/errors, writes EXP/errors/tables/errors.json
"""

from itertools import chain
from pathlib import Path

from speechssl.artifacts import read_json, write_json
from speechssl.cli import run_program
from speechssl.errors import InputError
from speechssl.results import Table, describe_rows, format_interval, name_condition, read_rows

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


def make_reader_table(folder: Path) -> Table:
    """Tabulate the scores of every system with every reader in every condition."""
    results_of = {}
    for reader in READERS:
        path = folder / reader / "results.jsonl"
        if path.is_file():
            results_of[reader] = read_rows(path)
    rows: list[tuple[str, ...]] = []
    for reader, results in results_of.items():
        cells = {(r.system, name_condition(r.condition, r.snr_db), r.metric): r for r in results}
        for system, condition in dict.fromkeys((s, c) for s, c, _ in cells):
            values = (format_interval(cells.get((system, condition, metric))) for metric in METRICS)
            reads_text = not system.startswith(("dual", "speechbert"))
            label = READERS[reader] if reads_text else "–"
            published = PUBLISHED.get(reader, "–") if system == "text" else "–"
            rows.append((system, label, condition, *values, published))
    heads = (*(m.upper() for m in METRICS), "published, DRCD as text")
    note = f"Percent. {describe_rows(chain.from_iterable(results_of.values()))}"
    columns = ("system", "text QA", "condition", *heads)
    return Table("Systems and readers", columns, tuple(rows), note)


def make_error_table(folder: Path) -> Table:
    """Tabulate the scores of both readers at every rate of errors, and the gain by pinyin, tested
    in pairs."""
    plain = read_rows(folder / "plain" / "results.jsonl")
    pinyin = read_rows(folder / "pinyin" / "results.jsonl")
    cells = {}  # reader, system, metric -> row
    for reader, results in (("plain", plain), ("pinyin", pinyin)):
        cells |= {(reader, row.system, row.metric): row for row in results}
    # first of the two systems that `speechssl compare` tested, "SYSTEM (pinyin)" -> test
    gains = {}
    for corpus in read_json(folder / "compare/compare.json")["corpora"]:
        for test in corpus["tests"]:
            gains[test["first"]] = test
    scores = [(metric, reader) for metric in ("em", "f1") for reader in ("plain", "pinyin")]
    rows = []
    for system in dict.fromkeys(row.system for row in plain):
        error_rate = format_interval(cells.get(("plain", system, "cer")))
        values = [format_interval(cells.get((reader, system, metric))) for metric, reader in scores]
        gain = gains.get(f"{system} (pinyin)")
        gain_text = f"{format_interval(gain, '+')}, {gain['p_holm']:.3f}" if gain else "–"
        rows.append((system, error_rate, *values, gain_text))
    heads = (f"{metric.upper()}, {READERS[reader]}" for metric, reader in scores)
    columns = ("what is read", "CER", *heads, "gain in F1, p (Holm)")
    note = f"Percent. {describe_rows([*plain, *pinyin])}"
    return Table("Errors of the recogniser, simulated", columns, tuple(rows), note)


def main(exp: Path, *splits: str) -> None:
    folders = [exp / split for split in splits if (exp / split).is_dir()]
    if not folders:
        raise InputError(f"{exp} has no results of {' or '.join(splits)}; run the evaluation first")
    for folder in folders:
        write_table(folder, "readers", make_reader_table(folder))
    if (exp / "errors/compare/compare.json").is_file():
        write_table(exp / "errors", "errors", make_error_table(exp / "errors"))


def write_table(folder: Path, name: str, table: Table) -> None:
    write_json(folder / "tables" / f"{name}.json", table.values)
    print(f"{folder}:\n\n{table.markdown}\n")


if __name__ == "__main__":
    run_program(main)
