"""Print time, memory and disk of a run by its stages, from EXP/usage.jsonl, as a table in Markdown.

python recipes/usage.py EXP

Every command of a run writes a row to usage.jsonl: stage, command, seconds, peak_gb, disk_gb and,
where a GPU was used, gpu_gb. Of a command that ran several times the last row counts. Memory is the
largest of a stage's commands; disk is the size of EXP when the last command of the stage ends.
"""

import json
from pathlib import Path

from speechssl.artifacts import read_text
from speechssl.cli import run_program


def tabulate_usage(rows: list[dict]) -> str:
    """Tabulate the rows of usage.jsonl, which are in the order of time."""
    latest: dict[tuple[str, str], dict] = {}
    for row in rows:
        latest.pop((row["stage"], row["command"]), None)  # a repeated command is the last one
        latest[row["stage"], row["command"]] = row
    lines = ["| stage | time | memory | GPU memory | disk |", "|---|---:|---:|---:|---:|"]
    for stage in dict.fromkeys(stage for stage, _ in latest):
        commands = [row for (name, _), row in latest.items() if name == stage]
        gpu = max(row.get("gpu_gb") or 0 for row in commands)
        cells = (
            format_time(sum(row["seconds"] for row in commands)),
            f"{max(row['peak_gb'] for row in commands):.1f} GB",
            f"{gpu:.1f} GB" if gpu else "–",
            f"{commands[-1]['disk_gb']:.2f} GB",
        )
        lines.append(f"| {stage} | {' | '.join(cells)} |")
    return "\n".join(lines)


def format_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def main(exp: Path) -> None:
    lines = read_text(exp / "usage.jsonl", "a run of a recipe writes it").splitlines()
    print(tabulate_usage([json.loads(line) for line in lines]))


if __name__ == "__main__":
    run_program(main)
