"""Print the tables of RESULTS.md: SUPERB in clean speech, the gain by tuning learning rates, scores
in clean speech, seen and unseen noise, and the speed of cached features.

python recipes/superb/tables.py EXP
    reads results.jsonl of EXP, EXP/fsdd and EXP/published, of those that are there
"""

from __future__ import annotations

from pathlib import Path

from speechssl.cli import run_program
from speechssl.eval.superb import make_superb_tables
from speechssl.results import Table, format_markdown, read_rows

SNR = 5.0  # dB, of the noise in the tables


def main(exp: Path) -> None:
    folders = [exp, exp / "fsdd", exp / "published"]
    folders = [folder for folder in folders if (folder / "results.jsonl").is_file()] or [exp]
    for folder in folders:
        rows = read_rows(folder / "results.jsonl")
        ratios = []
        for row in rows:
            if row.metric == "ratio_cached":
                ratios.append((row.task, row.encoder, f"{row.value:.1f}"))
        tables = make_superb_tables(rows, list(dict.fromkeys(row.encoder for row in rows)), SNR)
        if ratios:
            columns = ("task", "encoder", "times faster")
            title = "From the cache, over the encoder in the loop"
            tables.append(Table(title, columns, tuple(ratios)))
        print(f"\n## {folder}\n\n{format_markdown(tables)}")


if __name__ == "__main__":
    run_program(main)
