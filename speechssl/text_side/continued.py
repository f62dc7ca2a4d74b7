"""The tables of what `speechssl text continue` left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.errors import InputError
from speechssl.io import read_json
from speechssl.results import Table

SHOWN, UNITS_SHOWN = 3, 16  # recordings of the second table; units of each
REAL = "what followed"


def read_continuations(results: Path) -> list[Table]:
    """The tables of what lies in RESULTS/continuations; none where nothing does. Raises InputError for what is damaged."""
    found = []
    for path in sorted(results.glob("continuations/*.json")):
        values = read_json(path)
        if not isinstance(values, dict) or not isinstance(values.get("continuations"), list):
            raise InputError(f"{path} is not what `speechssl text continue` writes; delete it and run it again")
        found.append(values)
    return tables(found) if found else []


def tables(found: Sequence[dict[str, Any]]) -> list[Table]:
    """Means over recordings and seeds, and the first recordings of the first seed of each arm."""
    cells: dict[tuple[str, str], list[dict[str, float | None]]] = {}
    examples: list[tuple[Any, ...]] = []
    shown: set[str] = set()
    for made in found:
        for line in made["continuations"]:
            for way, values in line["measures"].items():
                cells.setdefault((made["arm"], way), []).append(values)
        if made["arm"] not in shown:
            shown.add(made["arm"])
            for line in made["continuations"][:SHOWN]:
                begins = " ".join(map(str, line["prompt"][-UNITS_SHOWN // 2 :]))
                for way, units in {**line["drawn"], REAL: line["followed"]}.items():
                    examples.append((line["id"], f"{made['arm']}, {way}", begins, " ".join(map(str, units[:UNITS_SHOWN]))))

    def mean(some: Sequence[dict[str, float | None]], name: str) -> float | None:
        values = [v for one in some if (v := one[name]) is not None]
        return sum(values) / len(values) if values else None

    rows = []
    for (arm, way), some in sorted(cells.items()):
        surprise = mean(some, "surprise")
        percents = [None if (v := mean(some, name)) is None else f"{100 * v:.1f}" for name in ("different", "known")]
        rows.append(
            (arm, way, len(some), f"{mean(some, 'units'):.1f}", None if surprise is None else f"{np.exp(surprise):.2f}", *percents)
        )
    seconds = ", ".join(dict.fromkeys(f"{made['options']['prompt_seconds']:g} s" for made in found))
    note = (
        f"Prompts of {seconds}. A run of five is known where it occurs in the units of training. Means over recordings and seeds."
    )
    columns = ("start", "temperature", "continuations", "units", "perplexity", "different pairs (%)", "known runs of five (%)")
    return [
        Table("Continuations", columns, tuple(rows), note),
        Table(
            "Continuations, the first recordings", ("recording", "start, temperature", "prompt ends", "goes on"), tuple(examples)
        ),
    ]
