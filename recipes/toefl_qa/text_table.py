"""Make the table of text.sh: what a reader of texts learnt before the questions of TOEFL-QA, and
its accuracy on them.

python recipes/toefl_qa/text_table.py EXP/SPLIT
    reads EXP/SPLIT/ARM/results.jsonl, writes EXP/SPLIT/table.json and prints it
"""

from pathlib import Path

from speechssl.artifacts import write_json
from speechssl.cli import run_program
from speechssl.results import Row, Table, describe_rows, format_interval, read_rows

ARMS = {
    "minilm": "nothing: all-MiniLM-L6-v2",
    "minilm-long": "nothing: all-MiniLM-L6-v2, 400 steps",
    "e5-long": "nothing: multilingual-e5-small, 400 steps",
    "exams-only": "DREAM's and MCTest's questions; not TOEFL's",
    "exams": "DREAM's and MCTest's questions",
    "squad": "SQuAD's",
    "squad-exams-only": "SQuAD's, then DREAM's and MCTest's; not TOEFL's",
    "squad-exams": "SQuAD's, then DREAM's and MCTest's",
}
METRICS = ("set_accuracy", "accuracy")


def main(folder: Path) -> None:
    read: list[Row] = []  # all that the table shows
    lines: list[tuple[str, ...]] = []
    for arm, label in ARMS.items():
        if not (folder / arm).is_dir():
            continue
        rows = read_rows(folder / arm / "results.jsonl")
        read += rows
        for system in dict.fromkeys(row.system for row in rows):
            name = label if system == "text" else system
            scores = {row.metric: row for row in rows if row.system == system}
            line = (name, *(format_interval(scores.get(metric)) for metric in METRICS))
            lines.append(line)
    columns = ("learnt before", "set accuracy", "accuracy")
    table = Table("TOEFL-QA as text", columns, tuple(lines), f"Percent. {describe_rows(read)}")
    write_json(folder / "table.json", table.values)
    print(table.markdown)


if __name__ == "__main__":
    run_program(main)
