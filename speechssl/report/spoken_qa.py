"""Make the section of question answering on a page: tables, scores over the SNR and over the
recognition errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from speechssl.report.figures import (
    Drawing,
    add_legend,
    draw_over_snr,
    line_style,
    new_axes,
    plot_scores,
    save_svg,
)
from speechssl.report.page import Section
from speechssl.report.scores import arrange, condition_label
from speechssl.results import (
    METRICS,
    MUTED,
    UNITS_FROM,
    Row,
    Table,
    drawn_sentence,
    interval_note,
    metric_name,
    metric_tables,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def qa_section(
    rows: Sequence[Row], slots: Mapping[str, int], synthetic: str, errors: Sequence[Table]
) -> Section:
    """Make the tables and figures. synthetic: what a synthesiser spoke of the data; stands at every
    table. errors: tables of how answers err."""
    if not rows:
        return Section("Results")
    scores = arrange(rows)
    ff1 = scores[scores.metric == "ff1"]
    bars = interval_note("Error bars", zip(ff1.label, ff1.drawn, ff1.groups, strict=True))
    tables = []
    for metric, table in metric_tables(rows).items():
        name = metric_name(metric)
        about = f"{name}: {METRICS[metric][1]}." if metric in METRICS else ""
        drawn = drawn_sentence((r.name, r.drawn, r.groups) for r in rows if r.metric == metric)
        note = " ".join(filter(None, [about, drawn, synthetic]))
        tables.append(replace(table, title=name, note=note))
    title = "FF1 against the signal-to-noise ratio (SNR)"
    needs_note = scores.system.str.startswith("dual").any()
    return Section(
        "Results",
        f"dual needs no transcript ({UNITS_FROM})." if needs_note else "",
        [*tables, *errors],
        [
            draw_over_snr(title, bars, {"FF1": ff1} if len(ff1) else {}, slots),
            draw_against_errors(scores, slots),
        ],
        leading=1,
    )


# ---- scores over recognition errors


def draw_against_errors(scores: pd.DataFrame, slots: Mapping[str, int]) -> Drawing | None:
    """Draw the crossing figure of DUAL (arXiv 2203.04911): a panel for each cascade, its WER along,
    everybody's FF1 up.

    None where no cascade has both in two conditions, or where no system without a transcript is
    there to compare. `speechssl compare` draws several recognisers against each other.
    """
    keys = ["label", "condition", "snr_db"]
    ff1 = scores[scores.metric == "ff1"]
    # Chinese has no words
    errors = "cer" if "wer" not in set(scores.metric) else "wer"
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
            _plot_cascade(ax, both[both.label == label], others, slots)
            ax.set_xlabel(f"{metric_name(errors)} of {label} (%)")
        for line in axes:
            line[0].set_ylabel("FF1 (%)")
        axes[0, 0].set_ylim(bottom=0)
        add_legend(figure)
        svg = save_svg(figure)
    caption = (
        "Along, how often the recogniser of a cascade errs; up, what is left of the answer. "
        "A dotted upright joins the systems in one condition."
    )
    return Drawing("FF1 against the recognition errors of the cascade", svg, caption)


def _plot_cascade(
    ax: Axes, cascade: pd.DataFrame, others: pd.DataFrame, slots: Mapping[str, int]
) -> None:
    """Plot all systems in the conditions of one cascade. A line joins clean with each kind of
    noise; other conditions stand alone."""
    keys = ["condition", "snr_db"]
    rates = cascade.set_index(keys).rate
    every = pd.concat([others.join(rates, on=keys), cascade])
    every = every[every.rate.notna()]
    for label, line in every.groupby("label", sort=False):
        plot_scores(ax, line.rate, line, slots[label], label, linestyle="none")
        clean = line[line.condition == "clean"]
        for _, noise in line[line.snr_db.notna()].groupby("condition"):
            joined = pd.concat([clean, noise.sort_values("snr_db", ascending=False)])
            ax.plot(joined.rate, joined.value, color=line_style(slots[label])["color"])
    for (condition, snr_db), here in every.groupby(keys, dropna=False):
        rate, low, high = here.rate.iloc[0], here.value.min(), here.value.max()
        ax.vlines(rate, low, high, color=MUTED, linestyle=":", linewidth=0.8)
        look: Any = {"transform": ax.get_xaxis_transform(), "rotation": 90, "fontsize": 7}
        ax.text(rate, 1.02, condition_label(condition, snr_db), ha="center", color=MUTED, **look)
    ax.set_xlim(left=0)
