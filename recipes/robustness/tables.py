"""Print the tables of RESULTS.md: encoders against tasks in clean speech, seen and unseen noise (in
the form of the table of arXiv 2203.16104), all scores at 5 dB, the targets of the recipe, and what
noise costs.

python recipes/robustness/tables.py EXP
    reads results.jsonl and degradation.json of EXP, and of EXP/fsdd and EXP/control where they are
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pandas

from speechssl.artifacts import read_json
from speechssl.cli import run_program
from speechssl.results import Table, format_interval, make_table, read_rows, read_table

SNR = 5.0  # dB, of the noise in targets and tables of scores
GROUPS = ["clean", "seen", "unseen"]  # of conditions: "seen-..." noise was trained on
# targets of the recipe, in percent of the baseline's loss and in points
TARGET_REMOVED = 40
TARGET_LOSS = 1
Values = Mapping[str, Any]  # degradation.json, see `make_targets`
TargetRow = tuple[str, ...]  # a target, and a cell an encoder


def nearest_ratio(ratios: Set[float | None]) -> float | None:
    """Return the ratio nearest to SNR; None where there is none."""
    return min((r for r in ratios if r is not None), key=lambda r: abs(r - SNR), default=None)


def read_scores(path: Path, skip: tuple[str, ...] = ()) -> pandas.DataFrame:
    """Read the rows in clean speech and in every noise at the ratio nearest to SNR, a line each.

    skip: endings of metrics that are left out. Three columns are added: `what` ("ks acc"), `group`
    (one of GROUPS) and `text` (value and interval).
    """
    rows = [row for row in read_rows(path) if not row.metric.endswith(skip)]
    ratio = nearest_ratio({row.snr_db for row in rows})
    rows = [row for row in rows if row.snr_db in (None, ratio)]
    scores = read_table(rows)
    scores["what"] = [f"{row.name} {row.metric}" for row in rows]
    scores["group"] = [row.condition.split("-")[0] for row in rows]  # "seen" of "seen-m+g+r"
    scores["text"] = [format_interval(row) for row in rows]
    return scores


def lay_out_means(scores: pandas.DataFrame) -> pandas.DataFrame:
    """Lay encoders against tasks: "clean · seen · unseen", the latter two means over noises."""
    means = scores.pivot_table("value", ["encoder", "what"], "group").reindex(columns=GROUPS)
    texts = means.map(lambda mean: "–" if pandas.isna(mean) else f"{mean:.1f}")
    cells = texts.agg(" · ".join, axis=1).unstack()
    return cells.reindex(index=scores.encoder.unique(), columns=scores.what.unique())


def table_of_scores(scores: pandas.DataFrame) -> Table:
    """Lay a task in a condition against encoders, with intervals."""
    cells = scores.pivot(index=["what", "condition"], columns="encoder", values="text")
    lines = pandas.MultiIndex.from_product([scores.what.unique(), scores.condition.unique()])
    cells = cells.reindex(index=lines, columns=scores.encoder.unique())
    ratios = scores.snr_db.dropna()
    condition = "condition" if ratios.empty else f"condition ({ratios.iloc[0]:g} dB)"
    rows = tuple(cells.reset_index().itertuples(index=False, name=None))
    return Table("", ("task", condition, *cells.columns), rows)


def make_targets(values: Values, control: Values | None) -> Table:
    """Tabulate the targets of the recipe, a column an encoder beside the baseline.

    values: degradation.json, of which these are read:
        `clean`: a line an encoder, with `gain` (mean over tasks) and `worst` (the worst task);
        `averages`: a line an encoder, group of noises and SNR, with the share of the baseline's
            loss in noise that the encoder does not have. `removed`: losses are counted from every
            encoder's own clean speech; `recovered`: from the baseline's clean speech;
        `dual_against_cascade`: a line an encoder and condition.
    control: the same values against an encoder that was trained as long on clean speech, which say
        how much is due to the noise alone; None: there is none.
    """
    encoders = [of_encoder["encoder"] for of_encoder in values["clean"]]
    unseen = [average for average in values["averages"] if average["group"] == "unseen"]
    snr_db = nearest_ratio({average["snr_db"] for average in unseen})
    rows = make_noise_rows(values, encoders, snr_db) + make_clean_rows(values, encoders)
    if control:
        rows += make_control_rows(control, encoders, snr_db)
    rows += make_dual_rows(values, encoders)
    return Table("", ("target", *encoders), tuple(rows))


def make_noise_rows(
    values: Values, encoders: Sequence[str], snr_db: float | None
) -> list[TargetRow]:
    """Return the rows of the share of the baseline's loss in unseen noise that encoders remove."""
    removed = collect_unseen(values, "removed", snr_db)
    recovered = collect_unseen(values, "recovered", snr_db)
    noise = f"unseen noise{name_ratio(snr_db)}"
    target = f"removes {TARGET_REMOVED} % of the baseline's loss in {noise}"
    return [
        lay_out_row(target, removed, encoders),
        lay_out_row("the same, against the baseline's clean speech", recovered, encoders),
    ]


def make_clean_rows(values: Values, encoders: Sequence[str]) -> list[TargetRow]:
    """Return the rows of the gain in clean speech: the mean over tasks, and the worst task."""
    target = f"in clean speech at most {TARGET_LOSS} point worse: mean over tasks"
    worst = []
    for of_encoder in values["clean"]:
        task = of_encoder["worst"]
        worst.append(f"{task['task']}: {format_interval(task, '+')}")
    return [
        lay_out_row(target, collect_gains(values), encoders, "+"),
        ("and the worst task", *worst),
    ]


def make_control_rows(
    control: Values, encoders: Sequence[str], snr_db: float | None
) -> list[TargetRow]:
    """Return the rows of the loss that is removed, and of the gain, against the control."""
    name = control["baseline"]
    in_noise = f"removes of the loss of {name} in unseen noise{name_ratio(snr_db)}"
    in_clean = f"better than {name} in clean speech: mean over tasks"
    return [
        lay_out_row(in_noise, collect_unseen(control, "removed", snr_db), encoders),
        lay_out_row(in_clean, collect_gains(control), encoders, "+"),
    ]


def make_dual_rows(values: Values, encoders: Sequence[str]) -> list[TargetRow]:
    """Return a row a cascade and noise: the share of its clean FF1 that DUAL keeps, less that of
    the cascade with the same encoder."""
    # cascade and noise -> encoder -> interval
    differences: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for line in values["dual_against_cascade"]:
        # of one cascade, the mean over SNRs comes behind single SNRs and replaces them
        differences[line["cascade"], line["condition"]][line["encoder"]] = line["difference"]
    rows = []
    for (cascade, noise), intervals in differences.items():
        target = f"DUAL keeps more of its clean FF1 than {cascade} (above 0), mean over SNRs, "
        rows.append(lay_out_row(target + noise, intervals, encoders, "+"))
    return rows


def collect_unseen(values: Values, measure: str, snr_db: float | None) -> dict[str, Any]:
    """Return encoder -> interval of an average in unseen noise at this ratio."""
    intervals = {}
    for average in values["averages"]:
        if (average["group"], average["snr_db"]) == ("unseen", snr_db):
            intervals[average["encoder"]] = average[measure]
    return intervals


def collect_gains(values: Values) -> dict[str, Any]:
    """Return encoder -> interval of its mean gain in clean speech."""
    return {of_encoder["encoder"]: of_encoder["gain"] for of_encoder in values["clean"]}


def name_ratio(snr_db: float | None) -> str:
    return "" if snr_db is None else f" at {snr_db:g} dB"


def lay_out_row(
    target: str, intervals: Mapping[str, Any], encoders: Sequence[str], sign: str = ""
) -> TargetRow:
    """Return the row of a target: its name, and the interval of every encoder in their order."""
    return target, *(format_interval(intervals.get(encoder), sign) for encoder in encoders)


def print_tables(exp: Path, title: str) -> None:
    """Print the tables of one evaluation."""
    scores = read_scores(exp / "results.jsonl")
    values = read_json(exp / "degradation.json")
    means = lay_out_means(scores)
    path = exp / "control" / "degradation.json"
    control = read_json(path) if path.is_file() else None
    tables = [
        Table("", ("", *means.columns), tuple(means.itertuples(name=None))).markdown,
        table_of_scores(scores).markdown,
        values["drawn"],
        make_targets(values, control).markdown,
    ]
    print(f"\n## {title}\n", *tables, sep="\n\n")
    for table in map(make_table, values["tables"]):
        if table.title.startswith("Loss in noise"):  # of speechssl.eval.degradation
            print(f"\n{table.markdown}")


def main(exp: Path) -> None:
    print_tables(exp, "Synthetic speech")
    if (exp / "fsdd" / "results.jsonl").is_file():
        print_tables(exp / "fsdd", "Real voices: FSDD")


if __name__ == "__main__":
    run_program(main)
