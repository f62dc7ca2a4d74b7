"""Print EM and F1 beside the word error rate of each test set and the share of questions that its
transcripts can answer.

python recipes/spoken_squad/tables.py EXP SPLIT ...
    reads EXP/corpus/data_report.json and EXP/SPLIT/results.jsonl
"""

import sys
from pathlib import Path

from speechssl.artifacts import read_json
from speechssl.results import Row, Table, interval_text, read_rows, rows_sentence

# test set -> word error rate in percent, as published; it is measured where the text is known
WER = {"test": 22.7, "test-wer44": 44.2, "test-wer54": 54.8}
RATES = ("WER, published", "WER, measured", "answer in transcript")


def clean_rows(exp: Path, splits: list[str]) -> dict[str, dict[tuple[str, str], Row]]:
    """Return, of every split that was evaluated, the rows in clean speech by system and metric."""
    paths = {split: exp / split / "results.jsonl" for split in splits}
    found = {}
    for split, path in paths.items():
        if path.is_file():
            rows = (row for row in read_rows(path) if row.condition == "clean")
            found[split] = {(row.system, row.metric): row for row in rows}
    return found


def table_rows(exp: Path, splits: list[str]) -> list[tuple[str, ...]]:
    facts = read_json(exp / "corpus" / "data_report.json")["splits"]
    lines = []
    for split, rows in clean_rows(exp, splits).items():
        ceiling = facts[split].get("answer_in_context")
        inside = "–" if ceiling is None else f"{100 * ceiling:.1f}"
        published = f"{WER[split]:.1f}" if split in WER else "–"
        for system in dict.fromkeys(name for name, _ in rows):
            wer, *scores = (interval_text(rows.get((system, m))) for m in ("wer", "em", "f1"))
            recognised = ["–", "–" if system == "text" else wer, "–"]  # text reads no transcript
            if system == "cascade-given":  # whose transcripts are those of the corpus
                recognised = [published, wer, inside]
            lines.append((split, system, *recognised, *scores))
    return lines


def main(exp: Path, splits: list[str]) -> None:
    paths = [exp / split / "results.jsonl" for split in splits]
    rows = [row for path in paths if path.is_file() for row in read_rows(path)]
    columns = ("test set", "system", *RATES, "EM", "F1")
    print(Table("", columns, tuple(table_rows(exp, splits)), rows_sentence(rows)).markdown)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
