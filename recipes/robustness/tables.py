"""The tables of RESULTS.md, printed: that in the form of the paper's, all scores at 5 dB, what was
aimed at, what noise costs.

python recipes/robustness/tables.py EXP
    reads results.jsonl and degradation.json of EXP, and of EXP/fsdd and EXP/control if
                                             there are these
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import pandas

from speechssl.artifacts import read_json
from speechssl.results import Table, interval_text, read_rows, read_table, table_of

AT = 5.0  # dB, of the targets and of the tables of scores
GROUPS = ["clean", "seen", "unseen"]


def nearest(ratios: Set[float | None]) -> float | None:
    """Return the SNR nearest to AT; None where there is none."""
    return min((s for s in ratios if s is not None), key=lambda s: abs(s - AT), default=None)


def read_scores(path: Path, skip: tuple[str, ...] = ()) -> pandas.DataFrame:
    """Read the rows in clean speech and in every noise at the SNR nearest to AT, a line each.

    skip: how the metrics end that are left out. Three columns are added: `what` ("ks acc"), `group`
    (one of GROUPS) and `text` (value and interval).
    """
    rows = [row for row in read_rows(path) if not row.metric.endswith(skip)]
    at = nearest({row.snr_db for row in rows})
    rows = [row for row in rows if row.snr_db in (None, at)]
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
    """Tabulate what the recipe aims at, a column an encoder beside the baseline.

    control: the same values against an encoder that was trained as long on clean speech: how much
    is due to the noise alone.
    """
    clean = {line["encoder"]: line for line in values["clean"]}
    unseen = [a for a in values["averages"] if a["group"] == "unseen"]
    snr = nearest({a["snr_db"] for a in unseen})
    where = "" if snr is None else f" at {snr:g} dB"
    at = {a["encoder"]: a for a in unseen if a["snr_db"] == snr}

    def line(what: str, intervals: Mapping[str, Any], sign: str = "") -> tuple[str, ...]:
        return what, *(interval_text(intervals.get(encoder), sign) for encoder in clean)

    worst = (f"{c['worst']['task']}: {interval_text(c['worst'], '+')}" for c in clean.values())
    removed, recovered = ({e: a[x] for e, a in at.items()} for x in ("removed", "recovered"))
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
    # A line a noise, over all SNRs: what DUAL keeps of its clean FF1, less what the cascade of the
    # same encoder keeps.
    kept: dict[str, dict[str, Any]] = {}
    for x in values["dual_against_cascade"]:
        # the mean over the SNRs comes last, and stays
        kept.setdefault(x["condition"], {})[x["encoder"]] = x["difference"]
    what = "DUAL keeps more of its clean FF1 than the cascade (above 0), mean over SNRs,"
    rows += [line(f"{what} {noise}", of, "+") for noise, of in kept.items()]
    return Table("", ("target", *clean), tuple(rows))


def show(exp: Path, title: str) -> None:
    scores, values = read_scores(exp / "results.jsonl"), read_json(exp / "degradation.json")
    means = lay_out_means(scores)
    beside = exp / "control" / "degradation.json"
    control = read_json(beside) if beside.is_file() else None
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
