"""Print time, memory and disk of a run by its stages, from EXP/usage.jsonl, as a table in Markdown.

python recipes/usage.py EXP

The last run of a command counts. Memory is the largest of a stage's commands; disk is the size of
EXP when its last command ends. GPU memory is given where a GPU was used.
"""

import json
import sys
from pathlib import Path


def usage_table(rows: list[dict]) -> str:
    """Tabulate rows of `speechssl`, one a command, in the order of time."""
    latest = {(row["stage"], row["command"]): row for row in rows}
    lines = ["| stage | time | memory | GPU memory | disk |", "|---|---:|---:|---:|---:|"]
    for stage in dict.fromkeys(stage for stage, _ in latest):
        commands = [row for (name, _), row in latest.items() if name == stage]
        gpu = max(row.get("gpu_gb") or 0 for row in commands)
        facts = (
            format_time(sum(row["seconds"] for row in commands)),
            f"{max(row['peak_gb'] for row in commands):.1f} GB",
            f"{gpu:.1f} GB" if gpu else "–",
            f"{commands[-1]['disk_gb']:.2f} GB",
        )
        lines.append(f"| {stage} | {' | '.join(facts)} |")
    return "\n".join(lines)


def format_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    file = Path(sys.argv[1]) / "usage.jsonl"
    if not file.is_file():
        sys.exit(f"speechssl: {file} does not exist; a run of a recipe writes it")
    print(usage_table([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]))
