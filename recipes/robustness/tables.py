"""Print the tables of RESULTS.md: one in the form of the paper's, all scores at 5 dB, the targets
of the recipe, and what noise costs.

python recipes/robustness/tables.py EXP
    reads results.jsonl and degradation.json of EXP, and of EXP/fsdd and EXP/control where they are
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import pandas

from speechssl.artifacts import read_json
from speechssl.results import Table, interval_text, read_rows, read_table, table_of

SNR = 5.0  # dB, of the noise in targets and tables of scores
GROUPS = ["clean", "seen", "unseen"]


def nearest(ratios: Set[float | None]) -> float | None:
    """Return the ratio nearest to SNR; None where there is none."""
    return min((r for r in ratios if r is not None), key=lambda r: abs(r - SNR), default=None)


def read_scores(path: Path, skip: tuple[str, ...] = ()) -> pandas.DataFrame:
    """Read the rows in clean speech and in every noise at the ratio nearest to SNR, a line each.

    skip: endings of metrics that are left out. Three columns are added: `what` ("ks acc"), `group`
    (one of GROUPS) and `text` (value and interval).
    """
    rows = [row for row in read_rows(path) if not row.metric.endswith(skip)]
    ratio = nearest({row.snr_db for row in rows})
    rows = [row for row in rows if row.snr_db in (None, ratio)]
    scores = read_table(rows)
    scores["what"] = [f"{row.name} {row.metric}" for row in rows]
    scores["group"] = [row.condition.partition("-")[0] for row in rows]
    scores["text"] = [interval_text(row) for row in rows]
    return scores


def lay_out_means(scores: pandas.DataFrame) -> pandas.DataFrame:
    """Lay encoders against tasks: clean · seen · unseen, the latter two means over their noises."""
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


def targets(values: Mapping[str, Any], control: Mapping[str, Any] | None = None) -> Table:
    """Tabulate the targets of the recipe, a column an encoder beside the baseline.

    control: the same values against an encoder that was trained as long on clean speech, which say
    how much is due to the noise alone.
    """
    clean = {line["encoder"]: line for line in values["clean"]}
    unseen = [a for a in values["averages"] if a["group"] == "unseen"]
    snr = nearest({a["snr_db"] for a in unseen})
    where = "" if snr is None else f" at {snr:g} dB"
    averages = {a["encoder"]: a for a in unseen if a["snr_db"] == snr}

    def line(what: str, intervals: Mapping[str, Any], sign: str = "") -> tuple[str, ...]:
        return what, *(interval_text(intervals.get(encoder), sign) for encoder in clean)

    worst = (f"{c['worst']['task']}: {interval_text(c['worst'], '+')}" for c in clean.values())
    removed = {encoder: a["removed"] for encoder, a in averages.items()}
    recovered = {encoder: a["recovered"] for encoder, a in averages.items()}
    gained = {encoder: c["gain"] for encoder, c in clean.items()}
    rows = [
        line(f"removes 40 % of the baseline's loss in unseen noise{where}", removed),
        line("the same, against the baseline's clean speech", recovered),
        line("in clean speech at most 1 point worse: mean over tasks", gained, "+"),
        ("and the worst task", *worst),
    ]
    if control:
        name = control["baseline"]
        shares = {}
        for a in control["averages"]:
            if (a["group"], a["snr_db"]) == ("unseen", snr):
                shares[a["encoder"]] = a["removed"]
        gains = {c["encoder"]: c["gain"] for c in control["clean"]}
        rows.append(line(f"removes of the loss of {name} in unseen noise{where}", shares))
        rows.append(line(f"better than {name} in clean speech: mean over tasks", gains, "+"))
    # a line a noise: the share of its clean FF1 that DUAL keeps, less that of the cascade with the
    # same encoder
    differences: dict[str, dict[str, Any]] = {}
    for x in values["dual_against_cascade"]:
        # the mean over the SNRs comes last, and stays
        differences.setdefault(x["condition"], {})[x["encoder"]] = x["difference"]
    what = "DUAL keeps more of its clean FF1 than the cascade (above 0), mean over SNRs,"
    rows += [line(f"{what} {noise}", of_noise, "+") for noise, of_noise in differences.items()]
    return Table("", ("target", *clean), tuple(rows))


def show(exp: Path, title: str) -> None:
    scores, values = read_scores(exp / "results.jsonl"), read_json(exp / "degradation.json")
    means = lay_out_means(scores)
    path = exp / "control" / "degradation.json"
    control = read_json(path) if path.is_file() else None
    tables = [
        Table("", ("", *means.columns), tuple(means.itertuples(name=None))).markdown,
        table_of_scores(scores).markdown,
        values["drawn"],
        targets(values, control).markdown,
    ]
    print(f"\n## {title}\n", *tables, sep="\n\n")
    for table in map(table_of, values["tables"]):
        if table.title.startswith("Loss in noise"):
            print(f"\n{table.markdown}")


def main(exp: Path) -> None:
    show(exp, "Synthetic speech")
    if (exp / "fsdd" / "results.jsonl").is_file():
        show(exp / "fsdd", "Real voices: FSDD")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
