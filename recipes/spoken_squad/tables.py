"""EM and F1 beside the word error rate of each test set and the share of questions that their
transcripts can answer.

python recipes/spoken_squad/tables.py EXP SPLIT ...
    reads EXP/corpus/data_report.json and EXP/SPLIT/results.jsonl
"""

import sys
from pathlib import Path

from speechssl.artifacts import read_json
from speechssl.results import Table, drawn_sentence, interval_text, read_rows

# % as published; where the text is known it is measured
WER = {"test": 22.7, "test-wer44": 44.2, "test-wer54": 54.8}
COLUMNS = (
    "test set",
    "system",
    "WER, published",
    "WER, measured",
    "answer in transcript",
    "EM",
    "F1",
)


def lines(exp: Path, splits: list[str]) -> list[tuple[str, ...]]:
    facts = read_json(exp / "corpus" / "data_report.json")["splits"]
    found = []
    for split in (s for s in splits if (exp / s / "results.jsonl").is_file()):
        rows = {
            (r.system, r.metric): r
            for r in read_rows(exp / split / "results.jsonl")
            if r.condition == "clean"
        }
        ceiling = facts[split].get("answer_in_context")
        inside = "–" if ceiling is None else f"{100 * ceiling:.1f}"
        for system in dict.fromkeys(name for name, _ in rows):
            values = [interval_text(rows.get((system, metric))) for metric in ("wer", "em", "f1")]
            given = system == "cascade-given"  # whose transcripts are those of the corpus
            recognised = [
                f"{WER[split]:.1f}" if given and split in WER else "–",
                values[0],
                inside if given else "–",
            ]
            # text reads no transcript
            found.append(
                (split, system, *(["–"] * 3 if system == "text" else recognised), *values[1:])
            )
    return found


def main(exp: Path, splits: list[str]) -> None:
    rows = [
        row
        for s in splits
        if (exp / s / "results.jsonl").is_file()
        for row in read_rows(exp / s / "results.jsonl")
    ]
    drawn = drawn_sentence((row.metric, row.drawn, row.groups) for row in rows)
    print(Table("", COLUMNS, tuple(lines(exp, splits)), drawn).markdown)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
