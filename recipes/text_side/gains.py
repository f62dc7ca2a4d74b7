"""Print all tables of a folder of results, and what every start gains over scratch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from speechssl.artifacts import write_json
from speechssl.cli import script
from speechssl.options import argument, option
from speechssl.results import HEAD, Row, Table, append_rows
from textside import tables
from textside.claims import judge_claims
from textside.options import RESULTS
from textside.published import GAIN, is_of_languages
from textside.runs import CONDITION, is_share, read_answers, read_runs


@dataclass(frozen=True, kw_only=True)
class Gains:
    """print what every start gains over scratch, with intervals over seeds and items

    Reads RESULTS/runs and, with --answers, folders that `speechssl evaluate qa` wrote, in which the
    readers are called dual-ARM-SEED and text+text-ARM-SEED. Appends the gains to
    RESULTS/results.jsonl, of which `page.py RESULTS` makes a page.

      python recipes/text_side/gains.py exp/text_side
      python recipes/text_side/gains.py exp/text_side \\
        --answers exp/text_side/dual exp/text_side/text-qa
    """

    results: Path = argument(RESULTS)
    answers: tuple[Path, ...] = option((), "folders of `evaluate qa`")
    baseline: str = option("scratch", "arm that gains are over")


def print_gains(o: Gains) -> None:
    """Print all tables of RESULTS. Raises InputError where there is nothing."""
    print("\n\n".join(table.text for table in make_tables(o)))


def make_tables(o: Gains) -> list[Table]:
    """Make all tables of RESULTS, and append the gains to its results. Raises InputError where
    there is nothing."""
    all_runs = read_runs(o.results, o.answers)
    runs = [run for run in all_runs if not is_of_languages(run.task)]
    scored = tables.estimate_gains(runs, o.baseline)
    card = f"over {o.baseline}"
    rows = []
    for (task, arm), gain in scored.gains.items():
        if is_share(scored.metrics.get(task, "")):  # the mean of the tasks has no entry
            row = Row.from_interval(
                gain.interval,
                task=task,
                system=HEAD,
                encoder=arm,
                condition=CONDITION,
                snr_db=None,
                metric=GAIN,
                seed=0,
                card=card,
            )
            rows.append(row)

    def is_outdated(row: Row) -> bool:
        return row.metric == GAIN and row.card != card

    append_rows(o.results / "results.jsonl", rows, outdated=is_outdated)
    made = [
        *judge_claims(all_runs),
        *tables.make_score_table(scored),
        *tables.make_gain_table(scored),
        *tables.make_symbol_table(scored),
        *tables.make_equal_loss_tables(runs),
        *tables.make_frozen_table(scored, runs),
        *tables.make_depth_table(runs),
        *tables.make_plateau_tables(runs),
        *tables.make_unit_lm_table(scored),
        *tables.make_surface_tables(scored),
        *tables.make_language_tables(o.results, all_runs, list(read_answers(o.answers, "em"))),
    ]
    path = o.results / "tables" / "text_side.json"
    write_json(path, {"tables": [table.values for table in made]})
    return made


if __name__ == "__main__":
    sys.exit(script(print_gains, Gains))
