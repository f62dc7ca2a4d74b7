"""The table of textless.sh, in the order of DUAL's Table 1: python recipes/real_questions/table.py
OUT

Reads OUT/on-dev, on-test and on-some, writes OUT/table.json and prints it.
"""

import sys
from pathlib import Path

from speechssl.artifacts import write_json
from speechssl.data.records import synthetic_note
from speechssl.results import Table, condition_name, drawn_sentence, interval_text, read_rows

METRICS = ("wer", "ff1", "aos", "em", "f1")
# FF1 / AOS on NMSQA's dev, arXiv 2203.04911; other speech, and all of SQuAD's training questions
PUBLISHED = {
    "dual": "54.2 / 48.5",
    "dual-scratch": "6.1 / 4.9",
}
PARTS = {"on-dev": "dev", "on-test": "test", "on-some": "test, some"}
AIM = (25, 8)  # FF1 of DUAL at least, from scratch at most


def main(out: Path) -> None:
    found = {
        part: {
            (r.system, condition_name(r.condition, r.snr_db), r.metric): r
            for r in read_rows(out / part / "results.jsonl")
        }
        for part in PARTS
    }
    rows = []
    for part, label in PARTS.items():
        for system, condition in dict.fromkeys(
            (system, condition) for system, condition, _ in found[part]
        ):
            cells = [
                interval_text(found[part].get((system, condition, metric))) for metric in METRICS
            ]
            rows.append(
                (
                    label,
                    system,
                    condition,
                    *cells,
                    PUBLISHED.get(system, "–") if part == "on-dev" else "",
                )
            )
    drawn = [
        drawn_sentence((r.metric, r.drawn, r.groups) for r in of.values()) for of in found.values()
    ]
    notes = [f"{label}: {text}" for label, text in zip(PARTS.values(), drawn, strict=True) if text]
    notes += [f"{split}: {synthetic_note(out / split)}" for split in ("train", "dev", "test")]
    columns = (
        "articles",
        "system",
        "condition",
        *(metric.upper() for metric in METRICS),
        "published FF1 / AOS",
    )
    table = Table("Real questions, spoken", columns, tuple(rows), " ".join(notes))
    print(table.markdown)
    write_json(out / "table.json", table.values)
    for part in ("on-dev", "on-test"):
        if {("dual", "clean", "ff1"), ("dual-scratch", "clean", "ff1")} <= set(found[part]):
            dual, scratch = (
                found[part][system, "clean", "ff1"].value for system in ("dual", "dual-scratch")
            )
            reached = "reached" if dual >= AIM[0] and scratch <= AIM[1] else "not reached"
            aim = f"DUAL's FF1 at least {AIM[0]}, from scratch at most {AIM[1]}"
            print(f"\nAim on {PARTS[part]} ({aim}): {dual:.1f} and {scratch:.1f}, {reached}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
