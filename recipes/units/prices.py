"""Measure units at several prices of a change: a higher price (DPDP) gives fewer units, and their
distances between readings of one text change."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

from speechssl.artifacts import write_json
from speechssl.cli import script
from speechssl.options import Weight, list_changes, option, refuse_given
from speechssl.results import Table, name_condition
from speechssl.units.options import Evaluate
from speechssl.units.quality import evaluate_units

COLUMNS = {  # heading -> name of the measure
    "units/s": "units_a_second",
    "bits/s": "bits_a_second",
    "bits/s, timed": "bits_a_second_timed",
    "best FF1": "oracle_ff1",
}


@dataclass(frozen=True, kw_only=True)
class Prices(Evaluate):
    """measure units at several prices of a change

    Everything that `units evaluate` measures, once a price; the table has units and bits a second,
    the FF1 that a perfect reader of a corpus would have, and of a list the distance and AUC of the
    same text, and the unit edit distance under each condition.

      python recipes/units/prices.py corpus people-en/encoder people-en/units.safetensors
      python recipes/units/prices.py digits.csv people-en/encoder people-en/units.safetensors \\
        --prices 0 2 4 8 --conditions kitchen.wav@10
    """

    prices: tuple[Weight, ...] = option((0.0, 1.0, 2.0, 4.0, 8.0), "prices", least=1)


def measure(o: Prices) -> list[dict[str, Any]]:
    """Measure, print the table, and write it as JSON where `--out` says so."""
    refuse_given(("price", "violins"), list_changes(o), "beside --prices")
    rows = []
    for price in o.prices:
        measures = evaluate_units(replace(o, price=price, out=None))
        rows.append({"price": price} | measures)
    print(f"\n{make_table(rows).markdown}")
    if o.out:
        write_json(o.out, rows)
    return rows


def make_table(rows: list[dict[str, Any]]) -> Table:
    """Tabulate the measures, a line a price."""
    lines = []
    for row in rows:
        cells = {"price": f"{row['price']:g}"}
        for heading, name in COLUMNS.items():
            if name in row:
                cells[heading] = f"{row[name]:.2f}"
        for pair in row.get("same_text", []):
            group = f", {pair['groups']}" if pair["groups"] else ""
            values = f"{pair['same_text_distance']:.2f}, {pair['same_text_auc']:.2f}"
            cells[f"same text{group}: distance, AUC"] = values
        for line in row.get("stability", []):
            heading = f"UED, {name_condition(line['condition'], line['snr_db'])}"
            cells[heading] = f"{line['unit_edit_distance']:.2f}"
        lines.append(cells)
    return Table("", tuple(lines[0]), tuple(tuple(cells.values()) for cells in lines))


if __name__ == "__main__":
    sys.exit(script(measure, Prices))
