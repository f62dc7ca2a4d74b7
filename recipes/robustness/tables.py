"""The tables of README.md, printed: all scores, what was aimed at, what noise costs. python recipes/robustness/tables.py EXP

Reads EXP/results.jsonl and EXP/degradation.json, and those of EXP/fsdd where there are any.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from speechssl.artefacts import read_json
from speechssl.evaluation.results import Row, read_rows

AT = 5.0  # dB, of the targets and of the table of scores


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def scores(rows: Sequence[Row]) -> str:
    """A line a task and condition, a column an encoder: in clean speech, and in every noise at the SNR nearest to AT."""
    encoders = list(dict.fromkeys(r.encoder for r in rows))
    cells = {(r.system, r.metric, r.condition, r.snr_db, r.encoder): r for r in rows}
    snr = min({r.snr_db for r in rows if r.snr_db is not None}, key=lambda s: abs(s - AT))
    lines = dict.fromkeys((r.system, r.metric, r.condition, r.snr_db) for r in rows if r.snr_db in (None, snr))
    table = []
    for system, metric, condition, level in sorted(lines, key=lambda line: [(r.system, r.metric) for r in rows].index(line[:2])):
        found = [cells.get((system, metric, condition, level, e)) for e in encoders]
        noise = condition if level is None else f"{condition} {level:g} dB"
        table.append([f"{system} {metric}", noise, *(cell(vars(r) if r else None) for r in found)])
    return markdown(["task", "condition", *encoders], table)


def targets(values: Mapping[str, Any]) -> str:
    """What the recipe aims at, a column an encoder beside the baseline."""
    encoders = [line["encoder"] for line in values["clean"]]
    ratios = {a["snr_db"] for a in values["averages"] if a["group"] == "unseen" and a["snr_db"] is not None}
    snr = min(ratios, key=lambda s: abs(s - AT))
    unseen = {a["encoder"]: a for a in values["averages"] if (a["group"], a["snr_db"]) == ("unseen", snr)}
    clean = {line["encoder"]: line for line in values["clean"]}
    table = [
        [f"removes 40 % of the baseline's loss in unseen noise at {snr:g} dB", *(cell(unseen[e]["removed"]) for e in encoders)],
        ["the same, against the baseline's clean speech", *(cell(unseen[e]["recovered"]) for e in encoders)],
        ["in clean speech at most 1 point worse: mean over tasks", *(cell(clean[e]["gain"], "+") for e in encoders)],
        ["and the worst task", *(worst(clean[e]["worst"]) for e in encoders)],
    ]
    return markdown(["target", *encoders], [*table, *against_cascade(values, encoders)])


def against_cascade(values: Mapping[str, Any], encoders: Sequence[str]) -> list[list[str]]:
    """Lines for every noise: what DUAL keeps of its clean FF1 less what the cascade on the same encoder does, over all SNRs."""
    mine = [x for x in values["dual_against_cascade"] if x["dual_encoder"] == x["cascade_encoder"]]
    whole = {x["condition"]: max(len(y["mean_over"]) for y in mine if y["condition"] == x["condition"]) for x in mine}
    found = {(x["condition"], x["dual_encoder"]): x["difference"] for x in mine if len(x["mean_over"]) == whole[x["condition"]]}
    what = "DUAL keeps more of its clean FF1 than the cascade (above 0), mean over SNRs,"
    return [[f"{what} {noise}", *(cell(found.get((noise, e)), "+") for e in encoders)] for noise in whole]


def worst(line: Mapping[str, Any] | None) -> str:
    return f"{line['task']} {cell(line, '+')}" if line else "–"


def cell(n: Mapping[str, Any] | None, sign: str = "") -> str:
    """Value and interval."""
    return f"{n['value']:{sign}.1f} [{n['low']:{sign}.1f}, {n['high']:{sign}.1f}]" if n and n.get("value") is not None else "–"


def show(exp: Path, title: str) -> None:
    values = read_json(exp / "degradation.json")
    losses = [t for t in values["tables"] if t["title"].startswith("Loss in noise")]
    print(f"\n## {title}\n\n{scores(read_rows(exp / 'results.jsonl'))}\n\n{targets(values)}")
    for table in losses:
        print(f"\n{markdown(table['columns'], table['rows'])}\n\n{table['note']}")


def main(exp: Path) -> None:
    show(exp, "Synthetic speech")
    if (exp / "fsdd" / "results.jsonl").is_file():
        show(exp / "fsdd", "Real voices: FSDD")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
