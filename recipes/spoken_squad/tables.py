"""Print EM and F1 beside the word error rate of each test set and the share of questions that its
transcripts can answer.

python recipes/spoken_squad/tables.py EXP SPLIT ...
    reads EXP/corpus/data_report.json and EXP/SPLIT/results.jsonl
"""

from itertools import chain
from pathlib import Path

from speechssl.artifacts import read_json
from speechssl.cli import run_program
from speechssl.results import Row, Table, describe_rows, format_interval, read_rows

# test set -> word error rate in percent, as published; it is measured where the text is known
PUBLISHED_WER = {"test": 22.7, "test-wer44": 44.2, "test-wer54": 54.8}
COLUMNS = (
    "test set",
    "system",
    "WER, published",
    "WER, measured",
    "answer in transcript",
    "EM",
    "F1",
)


def read_evaluated(exp: Path, splits: tuple[str, ...]) -> dict[str, tuple[Row, ...]]:
    """Read the rows of every split that was evaluated."""
    paths = {split: exp / split / "results.jsonl" for split in splits}
    return {split: read_rows(path) for split, path in paths.items() if path.is_file()}


def read_clean_rows(exp: Path, splits: tuple[str, ...]) -> dict[str, dict[tuple[str, str], Row]]:
    """Return split -> (system, metric) -> row in clean speech."""
    clean = {}
    for split, rows in read_evaluated(exp, splits).items():
        clean[split] = {(r.system, r.metric): r for r in rows if r.condition == "clean"}
    return clean


def make_lines(exp: Path, splits: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Make a line of the table for every split and system."""
    facts = read_json(exp / "corpus" / "data_report.json")["splits"]
    lines = []
    for split, rows in read_clean_rows(exp, splits).items():
        for system in dict.fromkeys(system for system, _ in rows):
            published = ceiling = "–"
            measured = format_interval(rows.get((system, "wer")))
            if system == "text":
                measured = "–"  # it reads no transcript
            if system == "cascade-given":  # it reads the transcripts of the corpus
                if split in PUBLISHED_WER:
                    published = f"{PUBLISHED_WER[split]:.1f}"
                if "answer_in_context" in facts[split]:
                    ceiling = f"{100 * facts[split]['answer_in_context']:.1f}"
            scores = [format_interval(rows.get((system, metric))) for metric in ("em", "f1")]
            lines.append((split, system, published, measured, ceiling, *scores))
    return lines


def main(exp: Path, *splits: str) -> None:
    rows = chain.from_iterable(read_evaluated(exp, splits).values())
    print(Table("", COLUMNS, tuple(make_lines(exp, splits)), describe_rows(rows)).markdown)


if __name__ == "__main__":
    run_program(main)
