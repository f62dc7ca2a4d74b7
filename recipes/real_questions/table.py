"""Print the table of textless.sh, in the order of DUAL's Table 1.

python recipes/real_questions/table.py OUT
    reads OUT/on-dev, on-test and on-some, writes OUT/table.json
"""

from pathlib import Path

from speechssl.artifacts import write_json
from speechssl.cli import run_program
from speechssl.data.records import read_synthetic_note
from speechssl.results import Row, Table, describe_rows, format_interval, name_condition, read_rows

METRICS = ("wer", "ff1", "aos", "em", "f1")
# FF1 / AOS on NMSQA's dev, arXiv 2203.04911; other speech, and all of SQuAD's training questions
PUBLISHED = {"dual": "54.2 / 48.5", "dual-scratch": "6.1 / 4.9"}
# folder of results -> the articles that were asked about
FOLDERS = {"on-dev": "dev", "on-test": "test", "on-some": "test, some"}
LEAST_DUAL = 25  # FF1 in percent that the recipe aims at
MOST_SCRATCH = 8


def print_aim(articles: str, dual: Row, scratch: Row) -> None:
    """Print whether the recipe reached its aim. dual, scratch: FF1 of DUAL, and from scratch."""
    reached = dual.value >= LEAST_DUAL and scratch.value <= MOST_SCRATCH
    print(
        f"\nAim on {articles} (DUAL's FF1 at least {LEAST_DUAL}, from scratch at most "
        f"{MOST_SCRATCH}): {dual.value:.1f} and {scratch.value:.1f}, "
        f"{'reached' if reached else 'not reached'}"
    )


def main(out: Path) -> None:
    lines: list[tuple[str, ...]] = []
    notes: list[str] = []
    cells: dict[tuple[str, str, str, str], Row] = {}  # folder, system, condition, metric
    for folder, articles in FOLDERS.items():
        rows = read_rows(out / folder / "results.jsonl")
        systems = {}  # (system, condition), each once
        for row in rows:
            condition = name_condition(row.condition, row.snr_db)
            systems[row.system, condition] = None
            cells[folder, row.system, condition, row.metric] = row
        for system, condition in systems:
            values = [format_interval(cells.get((folder, system, condition, m))) for m in METRICS]
            published = PUBLISHED.get(system, "–") if folder == "on-dev" else ""
            lines.append((articles, system, condition, *values, published))
        if sentence := describe_rows(rows):
            notes.append(f"{articles}: {sentence}")
    notes += [f"{split}: {read_synthetic_note(out / split)}" for split in ("train", "dev", "test")]
    heads = [metric.upper() for metric in METRICS]
    columns = ("articles", "system", "condition", *heads, "published FF1 / AOS")
    table = Table("Real questions, spoken", columns, tuple(lines), " ".join(notes))
    print(table.markdown)
    write_json(out / "table.json", table.values)
    for folder in ("on-dev", "on-test"):
        dual = cells.get((folder, "dual", "clean", "ff1"))
        scratch = cells.get((folder, "dual-scratch", "clean", "ff1"))
        if dual and scratch:
            print_aim(FOLDERS[folder], dual, scratch)


if __name__ == "__main__":
    run_program(main)
