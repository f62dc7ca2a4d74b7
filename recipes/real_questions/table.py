"""Print the table of textless.sh, in the order of DUAL's Table 1.

python recipes/real_questions/table.py OUT
    reads OUT/on-dev, on-test and on-some, writes OUT/table.json
"""

import sys
from pathlib import Path

from speechssl.artifacts import write_json
from speechssl.data.records import synthetic_note
from speechssl.results import (
    Table,
    condition_name,
    interval_text,
    read_rows,
    rows_sentence,
)

METRICS = ("wer", "ff1", "aos", "em", "f1")
# FF1 / AOS on NMSQA's dev, arXiv 2203.04911; other speech, and all of SQuAD's training questions
PUBLISHED = {"dual": "54.2 / 48.5", "dual-scratch": "6.1 / 4.9"}
# folder of results -> the articles that were asked about
FOLDERS = {"on-dev": "dev", "on-test": "test", "on-some": "test, some"}


def main(out: Path) -> None:
    lines: list[tuple[str, ...]] = []
    notes: list[str] = []
    for folder, articles in FOLDERS.items():
        rows = read_rows(out / folder / "results.jsonl")
        cells = {(r.system, condition_name(r.condition, r.snr_db), r.metric): r for r in rows}
        for system, condition in dict.fromkeys((s, c) for s, c, _ in cells):
            values = [interval_text(cells.get((system, condition, m))) for m in METRICS]
            published = PUBLISHED.get(system, "–") if folder == "on-dev" else ""
            lines.append((articles, system, condition, *values, published))
        if sentence := rows_sentence(rows):
            notes.append(f"{articles}: {sentence}")
    notes += [f"{split}: {synthetic_note(out / split)}" for split in ("train", "dev", "test")]
    heads = [metric.upper() for metric in METRICS]
    columns = ("articles", "system", "condition", *heads, "published FF1 / AOS")
    table = Table("Real questions, spoken", columns, tuple(lines), " ".join(notes))
    print(table.markdown)
    write_json(out / "table.json", table.values)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
