"""Print the tables of RESULTS.md, from EXP/results.jsonl.

python recipes/speed/tables.py CONFIG EXP
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speechssl.cli import run_program
from speechssl.results import Row, Table, read_rows

LABELS = {  # metric -> addition to the name of a system
    "x_realtime": "",
    "ratio_fastest": ", over the fastest of transformers, torchaudio, s3prl, ONNX Runtime",
    "ratio_openvino": ", over OpenVINO by itself",
    "share_of_limit": ", % of the limit",
}


def print_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    print(f"\n{Table('', tuple(head), tuple(map(tuple, lines))).markdown}")


def print_encoders(rows: list[Row]) -> None:
    """Print a line a contender, a column a workload: times real time; then the ratios of
    speechssl."""
    # conditions: "10 s x 8" of encoders.py, "10 s x 320 on GPU" of gpu.py
    shown = [r for r in rows if r.metric in LABELS and " x " in r.condition]
    shown = [r for r in shown if " on " not in r.condition]
    workloads = list(dict.fromkeys((r.encoder, r.condition) for r in shown))
    values = {(r.system, r.metric, r.encoder, r.condition): f"{r.value:.2f}" for r in shown}
    lines = []
    for metric, label in LABELS.items():
        for system in dict.fromkeys(r.system for r in shown if r.metric == metric):
            cells = [values.get((system, metric, *workload), "") for workload in workloads]
            lines.append([system + label, *cells])
    heads = [f"{shape}, {condition}" for shape, condition in workloads]
    print_table(["x real time", *heads], lines)


def print_rows(rows: list[Row], metrics: Sequence[str], where: str = "") -> None:
    """Print a line a row. where: part of its condition; "": any but workloads as "10 s x 8"."""
    lines = []
    for r in rows:
        is_shown = where in r.condition
        if not where:
            is_shown = " x " not in r.condition and "growth" not in r.condition
        if is_shown and r.metric in metrics:
            lines.append([r.encoder, r.condition, r.system, r.metric, f"{r.value:.2f}"])
    print_table(["encoder", "what", "system", "metric", "value"], lines)


def print_growth(rows: list[Row]) -> None:
    """Print a line a size of the data: seconds, and peak memory in GB."""
    sizes: dict[tuple[str, str], dict[str, str]] = {}
    for r in rows:
        if r.condition.startswith("growth, "):
            _, *work, size = r.condition.split(", ")
            sizes.setdefault((", ".join(work), size), {})[r.metric] = f"{r.value:.2f}"
    lines = [[*size, values["seconds"], values["peak_gb"]] for size, values in sizes.items()]
    print_table(["what", "data", "seconds", "peak memory, GB"], lines)


def main(config: Path, exp: Path) -> None:
    rows = list(read_rows(exp / "results.jsonl"))
    # a card names the machine, its threads and versions of packages
    for card in {row.card_text: row.card for row in rows}.values():
        print(card)
    print_encoders(rows)
    print_rows(rows, ["start_seconds"])
    print_rows(
        rows, ["x_realtime", "peak_gb", "one_file_over_many", "encoder_share", "answer_seconds"]
    )
    training = ["steps_per_second", "steps_over_fp32", "steps_over_bf16", "share_of_limit"]
    print_rows(rows, training, "training on")
    print_rows(rows, ["seconds_a_step", "over_longformer_fp32", "over_longformer_bf16"], "reading")
    print_growth(rows)
    print_rows(rows, ["x_realtime"], " on ")


if __name__ == "__main__":
    run_program(main)
