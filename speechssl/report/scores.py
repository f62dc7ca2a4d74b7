"""Arrange the long table of scores that pages pivot and figures draw: a line a system, encoder,
condition and metric, with the names that they have on a page.

The columns are system, encoder, condition, snr_db, metric, value, low, high, n, seeds, drawn and
groups as in `results.Row`; label (what a line of a table or figure is called), family, level and
place (of the condition: "Pink noise", "5 dB", and its number in the order of conditions), text
("61.2" above "[58.0, 64.5]") and best (of its column).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from speechssl.results import (
    HEAD,
    LOWER_IS_BETTER,
    METRICS,
    Row,
    decimals,
    interval_note,
    order_conditions,
    read_table,
    system_label,
    unit,
)
from speechssl.stats import FEWEST

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
COLUMN = ["system", "metric", "condition", "snr_db"]  # values of these may be compared
SCALES = {"%": "Percent", "dB": "Decibels", "×": "Times"}


def arrange(rows: Iterable[Row], by: str = "system") -> pd.DataFrame:
    """Make the table of scores.

    Rows that differ in their seed alone are averaged, and their interval reaches from the least
    lower to the greatest upper end; of rows that differ in their card alone the last counts. by:
    what lines are called after, "system" or "encoder"; the values of one column are those of all
    systems, or of all encoders on one system.
    """
    every = read_table(rows).astype(dict.fromkeys(["snr_db", "value", "low", "high"], float))
    every["system"] = every.task.where(every.system == HEAD, every.system)
    every["condition"] += every.snr_over.map(lambda over: f", over the {over}" if over else "")
    every["metric"] = every.metric.str.lower()
    every = every.drop_duplicates([*KEYS, "seed"], keep="last")
    seeds = every.groupby(KEYS, dropna=False, sort=False)
    scores = seeds.agg(
        value=("value", "mean"),
        low=("low", "min"),
        high=("high", "max"),
        n=("n", "first"),
        seeds=("seed", "size"),
        drawn=("drawn", "first"),
        groups=("groups", "first"),
    ).reset_index()
    conditions = [
        (name, None if math.isnan(snr) else snr)
        for name, snr in zip(scores.condition, scores.snr_db, strict=True)
    ]
    places = {condition: i for i, condition in enumerate(order_conditions(conditions))}
    scores["place"] = [places[condition] for condition in conditions]
    order = sorted(scores.itertuples(), key=_rank)
    scores = scores.loc[[score.Index for score in order]].reset_index(drop=True)
    scores["label"] = scores.encoder if by == "encoder" else _name_systems(scores)
    scores["family"] = [family_name(name) for name in scores.condition]
    scores["level"] = ["" if math.isnan(snr) else decibels(snr) for snr in scores.snr_db]
    scores["text"] = [print_score(score) for score in scores.itertuples()]
    scores["best"] = mark_best(scores, COLUMN if by == "encoder" else COLUMN[1:])
    return scores


def rank_name(name: str, known: Iterable[str]) -> tuple[int, str]:
    """Order names as the known ones stand, others by name behind them."""
    names = list(known)
    return (names.index(name) if name in names else len(names), name)


def _rank(score: Any) -> tuple[Any, ...]:
    return rank_name(score.system, SYSTEMS), rank_name(score.metric, METRICS), score.place


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


def metrics_of(scores: pd.DataFrame) -> list[str]:
    """Return the metrics in the order of METRICS, then others by name."""
    return sorted(scores.metric.unique(), key=lambda name: rank_name(name, METRICS))


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


def print_value(metric: str, value: float, sign: str = "") -> str:
    return f"{value:{sign}.{decimals(metric)}f}".replace("-", "\u2212")


def print_score(score: Any) -> str:
    """Write a value, and its interval in a second line."""
    value = print_value(score.metric, score.value)
    if math.isnan(score.low):
        return value
    low, high = (print_value(score.metric, end) for end in (score.low, score.high))
    return f"{value}\n[{low}, {high}]"


def mark_best(scores: pd.DataFrame, column: Sequence[str]) -> pd.Series:
    """Say which values are the best of their column, as printed.

    None is where nothing competes, or where so little was drawn that there is no interval.
    """
    signs = np.where(scores.metric.isin(LOWER_IS_BETTER), -1, 1)
    rounded = [round(v, decimals(m)) for v, m in zip(scores.value, scores.metric, strict=True)]
    few = (scores.drawn != "") & (scores.groups < FEWEST)
    merits = scores.assign(merit=rounded * signs, few=few).groupby(list(column), dropna=False)
    best = rounded * signs == merits.merit.transform("max")
    return best & (merits.merit.transform("size") > 1) & ~merits.few.transform("any")


def describe_scores(scores: pd.DataFrame, names: str = "") -> str:
    """Say what the numbers of a table are. names: the column that its intervals are named after,
    where they draw different things."""
    metrics = list(scores.metric.unique())
    scales = dict.fromkeys(SCALES.get(unit(metric), "On its own scale") for metric in metrics)
    better = "↑ more is better, ↓ less is"
    if len(metrics) == 1:
        better = f"{'lower' if metrics[0] in LOWER_IS_BETTER else 'higher'} is better"
    notes = [f"{', '.join(scales)}; {better}."]
    measured = scores[scores.low.notna()]
    if len(measured):
        of = measured[names] if names else [""] * len(measured)
        drawn = zip(of, measured.drawn, measured.groups, strict=True)
        notes.append(interval_note("In brackets", drawn))
    if scores.seeds.max() > 1:
        notes.append(f"Means over up to {scores.seeds.max()} seeds; an interval reaches over all.")
    if scores.best.any():
        notes.append("Bold: best of the column.")
    return " ".join(notes)
