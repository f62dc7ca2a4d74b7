"""Arrange the long table of scores that pages pivot and figures draw: a line a system, encoder,
condition and metric, with the names that they have on a page.

The columns are system, encoder, condition, snr_db, metric, value, low, high, n, seeds, drawn and
groups as in `results.Row`; label (what a line of a table or figure is called), family and level
(of the condition, "Pink noise" and "5 dB"), text ("61.2" above "[58.0, 64.5]") and best (of its
column).
"""

from __future__ import annotations

import math
import re
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
    read_table,
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
    "clean": "Clean speech",
    "written": "As written",
    "reverb": "Reverberation",
    "pink": "Pink noise",
    "gaussian": "Gaussian noise",
}
READERS = (  # systems without audio, before any @ or +
    *("text", "cascade-given", "cascade-simulated", "chance", "longest-option"),
    *(f"{m}-{source}" for m in ("bm25", "tfidf", "embeddings") for source in ("text", "given")),
)
KEYS = ["system", "encoder", "condition", "snr_db", "metric"]
COLUMN = ["system", "metric", "condition", "snr_db"]  # values of these may be compared
SCALES = {"%": "Percent", "dB": "Decibels", "×": "Times"}


def arrange(rows: Iterable[Row], by: str = "system") -> pd.DataFrame:
    """Make the table of scores.

    Values that are not finite are left out. Rows that differ in their seed alone are averaged, and
    their interval reaches from the least lower to the greatest upper end; of rows that differ in
    their card alone the last counts. by: what lines are called after, "system" or "encoder"; the
    values of one column are those of all systems, or of all encoders on one system.
    """
    every = read_table(rows)
    every["system"] = every.task.where(every.system == HEAD, every.system)
    over = every.snr_over.map(lambda over: f", over the {over}" if over else "")
    every["condition"] += over
    every["metric"] = every.metric.str.lower()
    numbers = ["snr_db", "value", "low", "high"]
    every[numbers] = every[numbers].astype(float).replace([np.inf, -np.inf], np.nan)
    every = every[every.value.notna()].drop_duplicates([*KEYS, "seed"], keep="last")
    every.loc[every.low.isna() | every.high.isna(), ["low", "high"]] = np.nan
    if len(every) and reads_only(every.system):
        every["condition"] = every.condition.replace("clean", "written")
    seeds = every.groupby(KEYS, dropna=False, sort=False)
    scores = seeds.agg(
        value=("value", "mean"),
        low=("low", lambda ends: ends.min(skipna=False)),
        high=("high", lambda ends: ends.max(skipna=False)),
        n=("n", "first"),
        seeds=("seed", "size"),
        drawn=("drawn", "first"),
        groups=("groups", "first"),
    ).reset_index()
    order = sorted(scores.itertuples(), key=_place)
    scores = scores.loc[[line.Index for line in order]].reset_index(drop=True)
    scores["label"] = scores.encoder if by == "encoder" else _name_systems(scores)
    scores["family"] = [family_name(name) for name in scores.condition]
    scores["level"] = ["" if math.isnan(snr) else decibels(snr) for snr in scores.snr_db]
    scores["text"] = [print_score(score) for score in scores.itertuples()]
    scores["best"] = mark_best(scores, COLUMN if by == "encoder" else COLUMN[1:])
    return scores


def reads_only(systems: Iterable[str]) -> bool:
    """Return whether none of these systems listens, so that "clean" is not of speech."""
    return all(re.split("[@+]", system)[0] in READERS for system in systems)


def _place(score: Any) -> tuple[Any, ...]:
    """Order systems and metrics as SYSTEMS and METRICS do, others by name; clean first, then by
    name, the easiest signal-to-noise ratio first."""
    known, measured = list(SYSTEMS), list(METRICS)
    system = known.index(score.system) if score.system in known else len(known)
    metric = measured.index(score.metric) if score.metric in measured else len(measured)
    snr = -math.inf if math.isnan(score.snr_db) else -score.snr_db
    condition = (score.condition != "clean", score.condition, snr)
    return (system, score.system, metric, score.metric, *condition)


def _name_systems(scores: pd.DataFrame) -> list[str]:
    """Name the encoder beside a system that has several."""
    encoders = scores.groupby("system").encoder.nunique()
    names = []
    for system, encoder in zip(scores.system, scores.encoder, strict=True):
        name = SYSTEMS.get(system, system)
        names.append(f"{name} · {encoder}" if encoder and encoders[system] > 1 else name)
    return names


def assign_slots(labels: Iterable[str]) -> dict[str, int]:
    """Give every line of a page its colour and marker, as a place in the palette."""
    return {label: slot for slot, label in enumerate(dict.fromkeys(labels))}


def find_label(scores: pd.DataFrame, system: str) -> str:
    """Return what the system of a prediction is called; its own name where it has no scores."""
    labels = scores.label[(scores.system == system) | (scores.label == system)]
    return str(labels.iloc[0]) if len(labels) else system


def clean_of(scores: pd.DataFrame) -> pd.DataFrame:
    return scores[scores.condition == "clean"]


def sort_conditions(scores: pd.DataFrame) -> pd.DataFrame:
    """Sort scores by condition: clean first, then by name, the easiest noise first."""
    order = pd.DataFrame(
        {
            "noisy": scores.condition != "clean",
            "condition": scores.condition,
            "loudness": -scores.snr_db,
        }
    )
    by = list(order.columns)
    return scores.loc[order.sort_values(by, kind="stable", na_position="first").index]


def conditions_of(scores: pd.DataFrame) -> list[str]:
    """Return the names of the conditions, in their order."""
    shown = sort_conditions(scores)[["condition", "snr_db"]].drop_duplicates()
    return [condition_label(*place) for place in shown.itertuples(index=False)]


def metrics_of(scores: pd.DataFrame) -> list[str]:
    """Return the metrics in the order of METRICS, then others by name."""
    known = list(METRICS)
    names = sorted(scores.metric.unique())
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


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
    merit = pd.Series(rounded, scores.index, dtype=float) * signs
    keys = [scores[name] for name in column]
    best = merit == merit.groupby(keys, dropna=False).transform("max")
    several = merit.groupby(keys, dropna=False).transform("size") > 1
    few = (scores.drawn != "") & (scores.groups < FEWEST)
    return best & several & ~few.groupby(keys, dropna=False).transform("max").astype(bool)


def describe_scores(scores: pd.DataFrame, names: str = "") -> str:
    """Say what the numbers of a table are. names: the column that its intervals are named after,
    where they draw different things."""
    metrics = list(scores.metric.unique())
    scales = {unit(metric): metric for metric in metrics}
    kinds = [SCALES.get(scale, "On its own scale") for scale in scales]
    if len(metrics) == 1:
        better = "lower" if metrics[0] in LOWER_IS_BETTER else "higher"
        notes = [f"{kinds[0]}; {better} is better."]
    else:
        notes = [f"{', '.join(kinds)}; ↑ more is better, ↓ less is."]
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
