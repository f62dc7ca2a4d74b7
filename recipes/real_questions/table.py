"""The table of textless.sh, in the order of DUAL's Table 1.

python recipes/real_questions/table.py OUT
    reads OUT/on-dev, on-test and on-some, writes OUT/table.json and prints it
"""

import sys
from pathlib import Path

from speechssl.artifacts import write_json
from speechssl.data.records import synthetic_note
from speechssl.results import Table, condition_name, interval_text, read_rows, rows_sentence

METRICS = ("wer", "ff1", "aos", "em", "f1")
# FF1 / AOS on NMSQA's dev, arXiv 2203.04911; other speech, and all of SQuAD's training questions
PUBLISHED = {"dual": "54.2 / 48.5", "dual-scratch": "6.1 / 4.9"}
PARTS = {"on-dev": "dev", "on-test": "test", "on-some": "test, some"}
AIM = (25, 8)  # FF1 of DUAL at least, from scratch at most


def main(out: Path) -> None:
    results = {part: read_rows(out / part / "results.jsonl") for part in PARTS}
    found = {
        part: {(r.system, condition_name(r.condition, r.snr_db), r.metric): r for r in rows}
        for part, rows in results.items()
    }
    lines: list[tuple[str, ...]] = []
    for part, label in PARTS.items():
        for system, condition in dict.fromkeys((system, where) for system, where, _ in found[part]):
            cells = [interval_text(found[part].get((system, condition, m))) for m in METRICS]
            published = PUBLISHED.get(system, "–") if part == "on-dev" else ""
            lines.append((label, system, condition, *cells, published))
    drawn = {label: rows_sentence(results[part]) for part, label in PARTS.items()}
    notes = [f"{label}: {text}" for label, text in drawn.items() if text]
    notes += [f"{split}: {synthetic_note(out / split)}" for split in ("train", "dev", "test")]
    heads = (*(metric.upper() for metric in METRICS), "published FF1 / AOS")
    columns = ("articles", "system", "condition", *heads)
    table = Table("Real questions, spoken", columns, tuple(lines), " ".join(notes))
    print(table.markdown)
    write_json(out / "table.json", table.values)
    for part in ("on-dev", "on-test"):
        rows = [found[part].get((name, "clean", "ff1")) for name in ("dual", "dual-scratch")]
        if all(rows):
            dual, scratch = (row.value for row in rows)
            reached = "reached" if dual >= AIM[0] and scratch <= AIM[1] else "not reached"
            aim = f"DUAL's FF1 at least {AIM[0]}, from scratch at most {AIM[1]}"
            print(f"\nAim on {PARTS[part]} ({aim}): {dual:.1f} and {scratch:.1f}, {reached}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
