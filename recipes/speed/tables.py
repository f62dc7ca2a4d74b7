"""The tables of RESULTS.md, from EXP/results.jsonl. python recipes/speed/tables.py CONFIG EXP"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from speechssl.results import Row, Table, read_rows

OURS = "speechssl"
LABELS = {
    "x_realtime": "",
    "ratio_transformers": ", over transformers",
    "ratio_openvino": ", over OpenVINO by itself",
    "share_of_limit": ", % of the limit",
}


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    print(f"\n{Table('', tuple(head), tuple(map(tuple, lines))).markdown}")


def encoders(rows: list[Row]) -> None:
    """Print a line a contender, a column a workload: times real time; then ours over others."""
    timed = [r for r in rows if r.metric in LABELS and " x " in r.condition]
    timed = [r for r in timed if " on " not in r.condition]
    workloads = list(dict.fromkeys((r.encoder, r.condition) for r in timed))
    values = {(r.system, r.metric, r.encoder, r.condition): f"{r.value:.2f}" for r in timed}
    lines = []
    for metric, label in LABELS.items():
        for system in dict.fromkeys(r.system for r in timed if r.metric == metric):
            cells = [values.get((system, metric, *workload), "") for workload in workloads]
            lines.append([system + label, *cells])
    table(["x real time", *(f"{shape}, {condition}" for shape, condition in workloads)], lines)


def plain(rows: list[Row], metrics: Sequence[str], where: str = "") -> None:
    lines = []
    for r in rows:
        if r.metric in metrics and (where in r.condition if where else " x " not in r.condition):
            lines.append([r.encoder, r.condition, r.system, r.metric, f"{r.value:.2f}"])
    table(["encoder", "what", "system", "metric", "value"], lines)


def main() -> None:
    rows = list(read_rows(Path(sys.argv[2]) / "results.jsonl"))
    # every machine, number of threads and set of versions
    for card in {row.card_text: row.card for row in rows}.values():
        print(card)
    encoders(rows)
    plain(rows, ["start_seconds"])
    plain(rows, ["x_realtime", "peak_gb", "one_file_over_many", "encoder_share", "answer_seconds"])
    training = ["steps_per_second", "steps_over_fp32", "steps_over_bf16", "share_of_limit"]
    plain(rows, training, "training on")
    plain(rows, ["seconds_a_step", "over_longformer_fp32", "over_longformer_bf16"], "reading")
    plain(rows, ["x_realtime", "ratio_bf16"], " on ")


if __name__ == "__main__":
    main()
