"""Arrange the long table of scores that figures draw: a line a system, encoder, condition and
metric, with the names that they have on a page.

The columns are system, encoder, condition, snr_db, metric, value, low, high, drawn and groups as in
`results.Row`; label (what a line of a figure is called) and place (of the condition in the order of
conditions).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from speechssl.results import (
    HEAD,
    METRICS,
    Row,
    decimals,
    order_conditions,
    read_table,
    system_label,
)

SYSTEMS = {  # in the order of pages; those of question answering have the names that commands take
    **{name: name for name in ("dual", "cascade", "cascade-ctc", "speechbert", "units")},
    "ks": "KS (keywords)",
    "ic": "IC (intents)",
    "sid": "SID (speakers)",
    "style": "Style",
    "asr": "ASR (CTC)",
    "pr": "PR (phones)",
    "qbe": "QbE (spoken terms)",
    "asv": "ASV (verification)",
    "sd": "SD (diarisation)",
    "sf": "SF (slots)",
    "er": "ER (emotions)",
    "se": "SE (enhancement)",
    "ss": "SS (separation)",
}
CONDITIONS = {
    "reverb": "Reverberation",
    "pink": "Pink noise",
    "gaussian": "Gaussian noise",
}
KEYS = ["system", "encoder", "condition", "snr_db", "metric"]


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by their systems and metrics as pages have them."""
    return sorted(
        rows, key=lambda row: (rank_name(row.name, SYSTEMS), rank_name(row.metric, METRICS))
    )


def arrange(rows: Iterable[Row], by: str = "system") -> pd.DataFrame:
    """Make the table of scores, of rows as `sort_rows` has them.

    Rows that differ in their seed alone are averaged, and their interval reaches from the least
    lower to the greatest upper end; of rows that differ in their card alone the last counts. by:
    what lines are called after, "system" or "encoder".
    """
    every = read_table(rows).astype(dict.fromkeys(["snr_db", "value", "low", "high"], float))
    every["system"] = every.task.where(every.system == HEAD, every.system)
    every["condition"] += every.snr_over.map(lambda over: f", over the {over}" if over else "")
    every = every.drop_duplicates([*KEYS, "seed"], keep="last")
    scores = every.groupby(KEYS, dropna=False, sort=False, as_index=False).agg(
        value=("value", "mean"),
        low=("low", "min"),
        high=("high", "max"),
        drawn=("drawn", "first"),
        groups=("groups", "first"),
    )
    conditions = [
        (name, None if math.isnan(snr) else snr)
        for name, snr in zip(scores.condition, scores.snr_db, strict=True)
    ]
    places = {condition: i for i, condition in enumerate(order_conditions(conditions))}
    scores["place"] = [places[condition] for condition in conditions]
    scores["label"] = scores.encoder if by == "encoder" else _name_systems(scores)
    return scores


def rank_name(name: str, known: Iterable[str]) -> tuple[int, str]:
    """Order names as the known ones stand, others by name behind them."""
    names = list(known)
    return (names.index(name) if name in names else len(names), name)


def _name_systems(scores: pd.DataFrame) -> pd.Series:
    """Name the encoder beside a system that has several."""
    names = scores.system.map(lambda system: SYSTEMS.get(system, system))
    several = scores.groupby("system").encoder.transform("nunique") > 1
    labels = [system_label(*pair) for pair in zip(names, scores.encoder, strict=True)]
    return names.mask(several, pd.Series(labels, names.index, dtype=names.dtype))


def assign_slots(labels: Iterable[str]) -> dict[str, int]:
    """Give every line of a page its colour and marker, as a place in the palette."""
    return {label: slot for slot, label in enumerate(dict.fromkeys(labels))}


def conditions_of(scores: pd.DataFrame) -> list[str]:
    """Return the names of the conditions, in their order."""
    shown = scores.sort_values("place").drop_duplicates("place")
    return [condition_label(*place) for place in zip(shown.condition, shown.snr_db, strict=True)]


# ---- names and numbers as printed


def decibels(snr_db: float) -> str:
    return f"{snr_db:g}\u00a0dB".replace("-", "\u2212")


def family_name(condition: str) -> str:
    plain = condition.replace("_", " ").replace("-", " ").capitalize()
    return CONDITIONS.get(condition, plain)


def condition_label(condition: str, snr_db: float | None = None) -> str:
    if snr_db is None or math.isnan(snr_db):
        return family_name(condition)
    return f"{family_name(condition)}, {decibels(snr_db)}"


def condition_phrase(condition: str, snr_db: float | None = None) -> str:
    """Name a condition within a sentence: "clean speech", "pink noise at 5 dB"."""
    if condition == "clean":
        return "clean speech"
    name = family_name(condition)
    noise = "" if snr_db is None else f" at {decibels(snr_db)}"
    return f"{name[:1].lower()}{name[1:]}{noise}"


def print_value(metric: str, value: float) -> str:
    return f"{value:.{decimals(metric)}f}".replace("-", "\u2212")
