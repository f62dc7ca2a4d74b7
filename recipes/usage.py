"""Time, memory and disk of a run by its stages, as a table in Markdown, of EXP/usage.jsonl; of a
command the last run counts.

python recipes/usage.py EXP

Memory is the largest of a stage's commands; disk is what EXP holds when its last command ends. GPU
memory stands there where a GPU was used.
"""

import json
import sys
from pathlib import Path


def table(rows: list[dict]) -> str:
    """Tabulate rows of `speechssl`, one a command, in the order of time."""
    latest = {(row["stage"], row["command"]): row for row in rows}
    lines = ["| stage | time | memory | GPU memory | disk |", "|---|---:|---:|---:|---:|"]
    for stage in dict.fromkeys(stage for stage, _ in latest):
        some = [row for (of, _), row in latest.items() if of == stage]
        gpu = max(row.get("gpu_gb") or 0 for row in some)
        facts = (
            minutes(sum(row["seconds"] for row in some)),
            f"{max(row['peak_gb'] for row in some):.1f} GB",
            f"{gpu:.1f} GB" if gpu else "–",
            f"{some[-1]['disk_gb']:.2f} GB",
        )
        lines.append(f"| {stage} | {' | '.join(facts)} |")
    return "\n".join(lines)


def minutes(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    file = Path(sys.argv[1]) / "usage.jsonl"
    if not file.is_file():
        sys.exit(f"speechssl: {file} does not exist; a run of a recipe writes it")
    print(table([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]))
