"""Make the section of a robustness grid on a page: heat maps of encoders and conditions, and curves
over the SNR, with a panel for each task and metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from speechssl.report.figures import Drawing, draw_over_snr, make_axes, save_svg, shade, shorten
from speechssl.report.page import Section
from speechssl.report.scores import (
    NAMES,
    assign_slots,
    label_condition,
    list_conditions,
    print_value,
    tabulate_scores,
)
from speechssl.results import (
    LOWER_IS_BETTER,
    Row,
    Table,
    describe_error_bars,
    name_metric,
    name_metric_unit,
)

GROUPS = ("seen-", "unseen-")  # the names of noisy conditions of a grid begin with these
# unit -> loss that the colour scale reaches at least
LEAST_SCALE = {"%": 10.0, "dB": 4.0, "": 1.0}
# unit -> title of the figure of its metrics; losses in different units cannot share a scale
LOSSES = {
    "%": "What noise costs, task by task",
    "dB": "What noise costs, in decibels",
    "": "What noise costs, on PESQ's scale",
}


def split_grid(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows of a robustness grid, and the others."""
    rows = list(rows)
    noisy = {(r.name, r.encoder, r.metric) for r in rows if r.condition.startswith(GROUPS)}
    grid: list[Row] = []
    others: list[Row] = []
    for r in rows:
        has_condition = r.condition.startswith(("clean", *GROUPS))
        if has_condition and (r.name, r.encoder, r.metric) in noisy:
            grid.append(r)
        else:
            others.append(r)
    return grid, others


def add_losses(scores: pd.DataFrame) -> pd.DataFrame:
    """Add the points that an encoder loses in a condition against its own clean speech: below 0
    where it is better in noise, NaN where clean speech was not measured."""
    keys = ["system", "encoder", "metric"]
    clean = scores[scores.condition == "clean"].set_index(keys).value.rename("clean")
    joined = scores.join(clean, on=keys)
    signs = np.where(joined.metric.isin(LOWER_IS_BETTER), 1, -1)
    return joined.assign(loss=signs * (joined.value - joined.clean))


def make_robustness_section(
    rows: Sequence[Row], title: str, tables: Sequence[Table] = ()
) -> Section:
    """Make the section of a grid. tables: those of the grid; the first stands before the
    figures."""
    if not rows:
        return Section(title, tables=tables)
    scores = add_losses(tabulate_scores(rows, by="encoder"))
    slots = assign_slots(scores.label)
    panels = {}
    for (task, metric), panel in scores.groupby(["system", "metric"], sort=False):
        panels[f"{NAMES.get(task, task)}, {name_metric(metric)}"] = panel
    bars = describe_error_bars(zip(scores.label, scores.drawn, scores.groups, strict=True))
    drawings: list[Drawing | None] = []
    for metric_unit, losses_title in LOSSES.items():
        unit_panels = {}
        for name, panel in panels.items():
            if name_metric_unit(panel.metric.iloc[0]) == metric_unit:
                unit_panels[name] = panel
        drawings.append(draw_losses(losses_title, unit_panels, metric_unit))
    curves_title = "Scores against the signal-to-noise ratio (SNR)"
    drawings.append(draw_over_snr(curves_title, bars, panels, slots))
    return Section(title, "", tables, drawings, leading=1)


def draw_losses(title: str, panels: Mapping[str, pd.DataFrame], metric_unit: str) -> Drawing | None:
    """Draw a matrix of encoders and conditions for each panel: the score is written in the cell,
    and its colour shows the loss against the encoder's own clean speech, on one scale for all
    panels. metric_unit: that of all panels. None where no noise was measured."""
    if not panels:
        return None
    all_scores = pd.concat(panels.values())
    if (all_scores.condition == "clean").all():
        return None
    darkest = max(LEAST_SCALE[metric_unit], all_scores.loss.max())
    conditions = list_conditions(all_scores)
    # in inches: 0.27 a row of cells, 0.9 of a row the title of a panel, 0.9 the names of conditions
    # below the last panel
    heights = [panel.label.nunique() + 0.9 for panel in panels.values()]
    height = (0.27 * sum(heights) + 0.9) / len(panels)
    with make_axes(len(panels), 1, height, sharex="all", height_ratios=heights) as (figure, axes):
        for ax, (name, panel) in zip(axes[:, 0], panels.items(), strict=True):
            snrs = zip(panel.condition, panel.snr_db, strict=True)
            values = zip(panel.metric, panel.value, strict=True)
            labelled = panel.assign(
                where=[label_condition(condition, snr) for condition, snr in snrs],
                number=[print_value(metric, value) for metric, value in values],
            )
            pivot = labelled.pivot(index="label", columns="where", values=["loss", "number"])
            pivot = pivot.loc[panel.label.unique()]
            losses = pivot["loss"].reindex(columns=conditions).astype(float)
            texts = pivot["number"].reindex(columns=conditions).fillna("–").to_numpy().tolist()
            # the square root shows small losses more clearly
            shares = np.sqrt(losses.clip(0) / darkest).to_numpy()
            labels = [shorten(label, 24) for label in pivot.index]
            shade(ax, shares, labels, conditions, texts, "YlOrBr", upright=True)
            ax.set_title(name, loc="left", fontsize=9)
        svg = save_svg(figure)
    darkest_text = print_value(all_scores.metric.iloc[0], darkest)
    caption = (
        "The number is the score; the darker, the more is lost against the encoder's own clean "
        f"speech (darkest: {darkest_text})."
    )
    return Drawing(title, svg, caption)
