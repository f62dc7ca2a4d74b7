"""Make the section of question answering on a page: tables, scores over the SNR, over the
recognition errors and by the length of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from speechssl.report.figures import (
    Drawing,
    add_legend,
    draw_over_snr,
    line_style,
    name_points,
    new_axes,
    plot_scores,
    save_svg,
    score_limit,
)
from speechssl.report.page import Grid, Section, metric_grids
from speechssl.report.scores import clean_of, condition_label, find_label, sort_conditions
from speechssl.results import MUTED, UNITS_FROM, interval_note, join_words, metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 4  # systems in one sentence


def qa_section(
    scores: pd.DataFrame,
    slots: Mapping[str, int],
    breakdowns: Sequence[Mapping[str, Any]] = (),
    synthetic: str = "",
    common: Sequence[Grid] = (),
) -> Section:
    """Make the tables and figures. breakdowns: FF1 by length of the answer, clean speech.
    synthetic: what a synthesiser spoke of the data; stands at every table. common: tables of the
    questions that all systems answered."""
    if not len(scores):
        return Section("Results")
    ff1 = scores[scores.metric == "ff1"]
    drawn = interval_note("Error bars", zip(ff1.label, ff1.drawn, ff1.groups, strict=True))
    needs_note = scores.system.str.startswith("dual").any()
    return Section(
        "Results",
        f"dual needs no transcript ({UNITS_FROM})." if needs_note else "",
        [*metric_grids(scores, synthetic), *common],
        [
            draw_over_snr("FF1 against the signal-to-noise ratio (SNR)", drawn, {"FF1": ff1}, slots)
            if len(ff1)
            else None,
            draw_against_errors(scores, slots),
            draw_lengths(breakdowns, scores, slots, interval_note("Error bars", _drawn(ff1))),
        ],
    )


def _drawn(scores: pd.DataFrame) -> list[tuple[str, str, int]]:
    return [("", drawn, groups) for drawn, groups in zip(scores.drawn, scores.groups, strict=True)]


# ---- scores over recognition errors


def draw_against_errors(scores: pd.DataFrame, slots: Mapping[str, int]) -> Drawing | None:
    """Draw the crossing figure of DUAL (arXiv 2203.04911): a panel for each cascade, its WER along,
    everybody's FF1 up.

    None where no cascade has both in two conditions, or where no system without a transcript is
    there to compare. `speechssl compare` draws several recognisers against each other.
    """
    metrics = set(scores.metric)
    errors = "cer" if "cer" in metrics and "wer" not in metrics else "wer"  # Chinese has no words
    keys = ["label", "condition", "snr_db"]
    ff1 = scores[scores.metric == "ff1"]
    rates = scores[scores.metric == errors].set_index(keys).value.rename("rate")
    both = ff1.join(rates, on=keys)
    both = both[both.rate.notna()]
    others = ff1[~ff1.label.isin(scores.label[scores.metric == errors])]
    panels = [label for label, line in both.groupby("label", sort=False) if len(line) > 1]
    if not panels or not len(others):
        return None
    columns = min(len(panels), 2)
    with new_axes(-(-len(panels) // columns), columns, 3.3, sharey="all") as (figure, axes):
        for ax in axes.ravel()[len(panels) :]:
            ax.remove()
        for label, ax in zip(panels, axes.ravel(), strict=False):
            _plot_cascade(ax, sort_conditions(both[both.label == label]), others, slots)
            ax.set_xlabel(f"{metric_name(errors)} of {label} (%)")
        for line in axes:
            line[0].set_ylabel("FF1 (%)")
        axes[0, 0].set_ylim(0, score_limit([*ff1.value, *ff1.high]))
        add_legend(figure)
        svg = save_svg(figure)
    caption = (
        "Along, how often the recogniser of a cascade errs; up, what is left of the answer. "
        "A dotted upright joins the systems in one condition."
    )
    counts = ff1.groupby("label", sort=False).n.max()
    fewer = [f"{label} {n}" for label, n in counts.items() if n < counts.max()]
    if fewer:
        caption += (
            f" Of the {counts.max()} questions some systems answered fewer: {join_words(fewer)}; "
            "compare them by the tables."
        )
    return Drawing("FF1 against the recognition errors of the cascade", svg, caption)


def _plot_cascade(
    ax: Axes, cascade: pd.DataFrame, others: pd.DataFrame, slots: Mapping[str, int]
) -> None:
    """Plot all systems in the conditions of one cascade. A line joins clean with each kind of
    noise; other conditions stand alone."""
    keys = ["condition", "snr_db"]
    rates = cascade.set_index(keys).rate
    every = pd.concat([others.drop(columns="rate", errors="ignore").join(rates, on=keys), cascade])
    every = every[every.rate.notna()]
    for label, line in every.groupby("label", sort=False):
        plot_scores(ax, line.rate, line, slots[label], label, linestyle="none")
        clean = clean_of(line)
        for _, noise in line[line.snr_db.notna()].groupby("condition"):
            joined = pd.concat([clean, noise.sort_values("snr_db", ascending=False)])
            ax.plot(joined.rate, joined.value, color=line_style(slots[label])["color"])
    names = []
    for (condition, snr_db), here in every.groupby(keys, dropna=False):
        ends = (here.value.min(), here.value.max())
        ax.vlines(here.rate.iloc[0], *ends, color=MUTED, linestyle=":", linewidth=0.8)
        names.append((here.rate.iloc[0], condition_label(condition, snr_db)))
    ax.set_xlim(0 if every.rate.min() < every.rate.max() / 3 else None)
    name_points(ax, names, 0.06)


# ---- bars


def draw_lengths(
    breakdowns: Sequence[Mapping[str, Any]],
    scores: pd.DataFrame,
    slots: Mapping[str, int],
    caption: str = "",
) -> Drawing | None:
    """Draw a group of bars with intervals for each length of the answer. None without any."""
    bars = pd.DataFrame(breakdowns)
    bars = bars[bars.value.notna()] if len(bars) else bars
    if not len(bars):
        return None
    buckets = list(bars.bucket.unique())
    bars = bars.assign(label=[find_label(scores, system) for system in bars.system])
    bars = bars.sort_values("label", key=lambda labels: labels.map(slots), kind="stable")
    width = min(0.26, 0.8 / bars.label.nunique())
    with new_axes() as (figure, ((ax,),)):
        for number, (label, line) in enumerate(bars.groupby("label", sort=False)):
            aside = (number - (bars.label.nunique() - 1) / 2) * width
            xs = [buckets.index(bucket) + aside for bucket in line.bucket]
            ends = line[["low", "high"]].astype(float)
            errors = [line.value - ends.low, ends.high - line.value]
            colour = line_style(slots[label])["color"]
            drawn = ax.bar(xs, line.value, width * 0.9, color=colour, yerr=errors, label=label)
            ax.bar_label(drawn, fmt="%.0f", fontsize=7.5, padding=1)
        sizes = bars.groupby("bucket").n.max()
        ax.set_xticks(
            range(len(buckets)), [f"{bucket}\n{sizes[bucket]:,} questions" for bucket in buckets]
        )
        ax.set_xlabel("Length of the answer")
        ax.set_ylabel("FF1 (%)")
        add_legend(figure)
        where = "as written" if (scores.condition == "written").any() else "clean speech"
        title = f"FF1 by the length of the answer, {where}"
        return Drawing(title, save_svg(figure), caption)
