"""The tables of README.md, printed: that in the form of the paper's, all scores at 5 dB, what was
aimed at, what noise costs.

python recipes/robustness/tables.py EXP
    reads results.jsonl and degradation.json of EXP, and of EXP/fsdd and EXP/control if
                                             there are these
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechssl.artifacts import read_json
from speechssl.results import Row, Table, interval_text, read_rows, table_of

AT = 5.0  # dB, of the targets and of the tables of scores


def nearest(ratios: Set[float | None]) -> float | None:
    """Return the SNR nearest to AT; None where there is none."""
    return min((s for s in ratios if s is not None), key=lambda s: abs(s - AT), default=None)


@dataclass(frozen=True)
class Scores:
    """The scores are rows in clean speech and in every noise at the SNR nearest to AT, by task,
    condition and encoder."""

    cells: Mapping[tuple[str, str, str], Row]
    snr: float | None  # None where no noise has one

    @classmethod
    def read(cls, path: Path, skip: tuple[str, ...] = ()) -> Scores:
        """Read the rows of a file. skip: how the metrics end that are left out."""
        rows = [row for row in read_rows(path) if not (skip and row.metric.endswith(skip))]
        snr = nearest({r.snr_db for r in rows})
        return cls(
            {
                (f"{r.name} {r.metric}", r.condition, r.encoder): r
                for r in rows
                if r.snr_db in (None, snr)
            },
            snr,
        )

    def names(self, place: int) -> list[str]:
        """List the names of the tasks (0), conditions (1) or encoders (2), in order."""
        return list(dict.fromkeys(key[place] for key in self.cells))

    def line(self, encoder: str) -> dict[str, str]:
        """Write clean · seen · unseen, the latter two means over their noises, by the name of the
        task."""

        def mean(task: str, group: str) -> str:
            found = [
                r.value
                for (t, c, e), r in self.cells.items()
                if (t, e) == (task, encoder) and c.split("-")[0] == group
            ]
            return f"{sum(found) / len(found):.1f}" if found else "–"

        return {
            task: " · ".join(mean(task, group) for group in ("clean", "seen", "unseen"))
            for task in self.names(0)
        }

    def lecture(self) -> Table:
        """Tabulate, a line an encoder and a column a task: clean · seen · unseen."""
        return Table(
            "", ("", *self.names(0)), tuple((e, *self.line(e).values()) for e in self.names(2))
        )

    def everything(self) -> Table:
        """Tabulate all, a line a task in a condition, a column an encoder, with intervals."""
        encoders, lines = (
            self.names(2),
            [(task, c) for task in self.names(0) for c in self.names(1)],
        )
        rows = tuple(
            (*line, *(interval_text(self.cells.get((*line, e))) for e in encoders))
            for line in lines
        )
        return Table(
            "",
            (
                "task",
                "condition" if self.snr is None else (f"condition ({self.snr:g} dB)"),
                *encoders,
            ),
            rows,
        )


def targets(values: Mapping[str, Any], control: Mapping[str, Any] | None = None) -> Table:
    """Tabulate what the recipe aims at, a column an encoder beside the baseline.

    control: the same values against an encoder that was trained as long on clean speech: how much
    is due to the noise alone.
    """
    clean = {line["encoder"]: line for line in values["clean"]}
    unseen = [a for a in values["averages"] if a["group"] == "unseen"]
    snr = nearest({a["snr_db"] for a in unseen})
    at = {a["encoder"]: a for a in unseen if a["snr_db"] == snr}
    where = "" if snr is None else f" at {snr:g} dB"
    worst = [
        f"{w['task']}: {interval_text(w, '+')}" if (w := c["worst"]) else "–"
        for c in clean.values()
    ]
    rows = [
        (
            f"removes 40 % of the baseline's loss in unseen noise{where}",
            *(interval_text(at.get(e, {}).get("removed")) for e in clean),
        ),
        (
            "the same, against the baseline's clean speech",
            *(interval_text(at.get(e, {}).get("recovered")) for e in clean),
        ),
        (
            "in clean speech at most 1 point worse: mean over tasks",
            *(interval_text(c["gain"], "+") for c in clean.values()),
        ),
        ("and the worst task", *worst),
    ]
    if control:
        name = control["baseline"]
        gains = {c["encoder"]: c["gain"] for c in control["clean"]}
        shares = {
            a["encoder"]: a["removed"]
            for a in control["averages"]
            if (a["group"], a["snr_db"]) == ("unseen", snr)
        }
        rows += [
            (
                f"removes of the loss of {name} in unseen noise{where}",
                *(interval_text(shares.get(e)) for e in clean),
            ),
            (
                f"better than {name} in clean speech: mean over tasks",
                *(interval_text(gains.get(e), "+") for e in clean),
            ),
        ]
    # A line a noise, over all SNRs: what DUAL keeps of its clean FF1, less what the cascade of the
    # same encoder keeps.
    mine = [x for x in values["dual_against_cascade"] if x["dual_encoder"] == x["cascade_encoder"]]
    kept: dict[str, dict[str, Any]] = {}
    # the mean over the SNRs comes last, and stays
    for x in sorted(mine, key=lambda x: len(x["mean_over"])):
        kept.setdefault(x["condition"], {})[x["dual_encoder"]] = x["difference"]
    what = "DUAL keeps more of its clean FF1 than the cascade (above 0), mean over SNRs,"
    rows += [
        (f"{what} {noise}", *(interval_text(of.get(e), "+") for e in clean))
        for noise, of in kept.items()
    ]
    return Table("", ("target", *clean), tuple(rows))


def show(exp: Path, title: str) -> None:
    scores, values = Scores.read(exp / "results.jsonl"), read_json(exp / "degradation.json")
    beside = exp / "control" / "degradation.json"
    control = read_json(beside) if beside.is_file() else None
    tables = [
        scores.lecture().markdown,
        scores.everything().markdown,
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
