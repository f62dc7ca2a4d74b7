"""Make the long table of scores that figures draw (`tabulate_scores`), and the names on pages.

The table has a row for each system, encoder, condition and metric. The columns system, encoder,
condition, snr_db, metric, value, low, high, drawn and groups are those of `results.Row`. The column
`label` has the name of a line in a figure, the column `place` the number of the condition in the
order of conditions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from speechssl.results import (
    HEAD,
    METRICS,
    Row,
    count_decimals,
    name_full_condition,
    name_system,
    order_conditions,
    read_table,
)

# the names of systems and tasks on pages, in their order there; systems of question answering are
# called as in commands
NAMES = {
    "dual": "dual",
    "cascade": "cascade",
    "cascade-ctc": "cascade-ctc",
    "speechbert": "speechbert",
    "units": "units",
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
KEYS = ["system", "encoder", "condition", "snr_db", "metric"]  # columns that tell scores apart


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by systems and metrics in the order of pages."""

    def sort_key(row: Row) -> tuple[tuple[int, str], tuple[int, str]]:
        return rank_name(row.name, NAMES), rank_name(row.metric, METRICS)

    return sorted(rows, key=sort_key)


def tabulate_scores(rows: Iterable[Row], by: str = "system") -> pd.DataFrame:
    """Make the table of scores from sorted rows (`sort_rows`).

    Rows that differ only in their seed are averaged, and their interval reaches from the lowest to
    the highest end; of rows that differ only in their card the last counts. by: "system" or
    "encoder", after which the lines of figures are named.
    """
    table = read_table(rows).astype(dict.fromkeys(["snr_db", "value", "low", "high"], float))
    table["system"] = table.task.where(table.system == HEAD, table.system)
    table["condition"] = list(map(name_full_condition, table.condition, table.snr_over))
    table = table.drop_duplicates([*KEYS, "seed"], keep="last")
    scores = table.groupby(KEYS, dropna=False, sort=False, as_index=False).agg(
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
    """Return a sort key that puts known names first, in their order, then others by name."""
    names = list(known)
    return (names.index(name) if name in names else len(names), name)


def _name_systems(scores: pd.DataFrame) -> pd.Series:
    """Return the label of every row: the name of the system, with the encoder where the system has
    several."""
    names = scores.system.map(lambda system: NAMES.get(system, system))
    several = scores.groupby("system").encoder.transform("nunique") > 1
    labels = [name_system(*pair) for pair in zip(names, scores.encoder, strict=True)]
    return names.mask(several, pd.Series(labels, names.index, dtype=names.dtype))


def assign_slots(labels: Iterable[str]) -> dict[str, int]:
    """Give every line of a page a slot: the number of its colour and marker in the palette."""
    return {label: slot for slot, label in enumerate(dict.fromkeys(labels))}


def list_conditions(scores: pd.DataFrame) -> list[str]:
    """Return the names of the conditions, in their order."""
    ordered = scores.sort_values("place").drop_duplicates("place")
    pairs = zip(ordered.condition, ordered.snr_db, strict=True)
    return [label_condition(condition, snr) for condition, snr in pairs]


# ---- names and numbers as printed


def write_decibels(snr_db: float) -> str:
    """Write an SNR, with a no-break space and a minus sign."""
    return f"{snr_db:g}\u00a0dB".replace("-", "\u2212")


def title_condition(condition: str) -> str:
    """Name a condition without its SNR, such as "Pink noise"."""
    plain = condition.replace("_", " ").replace("-", " ").capitalize()
    return CONDITIONS.get(condition, plain)


def label_condition(condition: str, snr_db: float | None) -> str:
    """Name a condition with its SNR, such as "Pink noise, 5 dB"."""
    if snr_db is None or math.isnan(snr_db):
        return title_condition(condition)
    return f"{title_condition(condition)}, {write_decibels(snr_db)}"


def phrase_condition(condition: str, snr_db: float | None) -> str:
    """Name a condition within a sentence: "clean speech", "pink noise at 5 dB"."""
    if condition == "clean":
        return "clean speech"
    name = title_condition(condition)
    noise = "" if snr_db is None else f" at {write_decibels(snr_db)}"
    return f"{name[:1].lower()}{name[1:]}{noise}"


def print_value(metric: str, value: float) -> str:
    """Write a value with the decimals of its metric and a minus sign."""
    return f"{value:.{count_decimals(metric)}f}".replace("-", "\u2212")
