"""The tables of README.md, from EXP/results.jsonl. python recipes/speed/tables.py CONFIG EXP"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from speechssl.results import Row, Table, read_rows

OURS = "speechssl"
ONCE = {"conversion_seconds": "conversion, s", "start_seconds": "start-up, s"}


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    print(f"\n{Table('', tuple(head), tuple(map(tuple, lines))).markdown}")


def encoders(rows: list[Row]) -> None:
    """A line a contender, a column a workload: times real time; then ours against the fastest of
    the others."""
    found = {(r.encoder, r.condition, r.system, r.metric): r for r in rows}
    timed = [
        r
        for r in rows
        if r.metric == "x_realtime" and " x " in r.condition and " on " not in r.condition
    ]
    workloads = list(dict.fromkeys((r.encoder, r.condition) for r in timed))
    systems = list(dict.fromkeys(r.system for r in timed))

    def line(system: str, metric: str, label: str, form: str) -> list[str]:
        cells = [found.get((*w, system, metric)) for w in workloads]
        return [label, *(format(r.value, form) if r else "" for r in cells)]

    lines = [line(s, "x_realtime", s, ".1f") for s in systems]
    for system in (s for s in systems if s.startswith(OURS)):
        lines.append(line(system, "ratio_fp32", f"{system}, over the fastest other in fp32", ".2f"))
        lines.append(line(system, "ratio_bf16", f"{system}, over the fastest other in bf16", ".2f"))
        lines.append(
            line(system, "ratio_openvino", f"{system}, over OpenVINO in the same precision", ".2f")
        )
    lines.append(line(f"{OURS} bf16", "share_of_limit", f"{OURS} bf16, % of the limit", ".1f"))
    lines.append(line("matrix product bf16", "gflops", "measured bf16 matrix rate, GFLOP/s", ".0f"))
    lines.append(line("matrix product fp32", "gflops", "measured fp32 matrix rate, GFLOP/s", ".0f"))
    shapes = list(dict.fromkeys(shape for shape, _ in workloads))
    for cells in lines:
        once = [
            (shape, found.get((shape, "once", cells[0], metric)))
            for shape in shapes
            for metric in ONCE
        ]
        cells += [f"{r.value:.1f}" if r else "" for _, r in once]
    head = [
        *(f"{shape}, {condition}" for shape, condition in workloads),
        *(f"{s}, {what}" for s in shapes for what in ONCE.values()),
    ]
    table(["x real time", *head], [cells for cells in lines if any(cells[1:])])


def plain(rows: list[Row], metrics: Sequence[str], where: str = "") -> None:
    chosen = [
        r
        for r in rows
        if r.metric in metrics and (where in r.condition if where else " x " not in r.condition)
    ]
    lines = [[r.encoder, r.condition, r.system, r.metric, f"{r.value:.2f}"] for r in chosen]
    table(["encoder", "what", "system", "metric", "value"], lines)


def chunks(rows: list[Row], metric: str) -> None:
    """Per cent of frames with another unit than in one pass: a line a chunk length, a column a
    context."""
    found = {
        tuple(r.condition.replace("chunk ", "").split(", context ")): r.value
        for r in rows
        if r.metric == metric
    }
    lengths, contexts = (list(dict.fromkeys(key[i] for key in found)) for i in (0, 1))
    table(
        [metric, *(f"context {c}" for c in contexts)],
        [[n, *(f"{found.get((n, c), math.nan):.2f}" for c in contexts)] for n in lengths],
    )


def main() -> None:
    rows = list(read_rows(Path(sys.argv[2]) / "results.jsonl"))
    # every machine, number of threads and set of versions
    for card in {row.card_text: row.card for row in rows}.values():
        print(card)
    encoders(rows)
    plain(rows, ["unit_agreement"])
    chunks(rows, "changed_units")
    chunks(rows, "changed_at_seams")
    plain(rows, ["x_realtime", "peak_gb", "one_file_over_many", "encoder_share", "answer_seconds"])
    plain(rows, ["ratio_sklearn", "same_units"])
    plain(rows, ["fit_seconds", "fit_wall_seconds", "fit_ratio_sklearn", "inertia_over_sklearn"])
    plain(
        rows,
        ["steps_per_second", "steps_over_fp32", "steps_over_bf16", "share_of_limit"],
        "training on",
    )
    plain(
        rows,
        ["seconds_a_step", "over_longformer_fp32", "over_longformer_bf16", "over_sdpa"],
        "reading",
    )
    plain(rows, ["x_realtime", "over_training"], "one thread")
    plain(rows, ["x_realtime", "ratio_bf16"], " on ")


if __name__ == "__main__":
    main()
