"""Make the section of a robustness grid on a page: heat maps of encoders and conditions, and curves
over the SNR, with a panel for each task and metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from speechssl.report.figures import Drawing, draw_over_snr, new_axes, save_svg, shade, shorten
from speechssl.report.page import Section
from speechssl.report.scores import (
    NAMES,
    assign_slots,
    list_conditions,
    print_value,
    tabulate_scores,
)
from speechssl.results import LOWER_IS_BETTER, Row, Table, error_bar_note, metric_name, unit

GROUPS = ("seen-", "unseen-")  # the names of noisy conditions of a grid begin with these
# unit -> loss that the colour scale reaches at least
LEAST_SCALE = {"%": 10.0, "dB": 4.0, "": 1.0}


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
        panels[f"{NAMES.get(task, task)}, {metric_name(metric)}"] = panel
    bars = error_bar_note(zip(scores.label, scores.drawn, scores.groups, strict=True))
    curves_title = "Scores against the signal-to-noise ratio (SNR)"
    drawings = [draw_losses(panels), draw_over_snr(curves_title, bars, panels, slots)]
    return Section(title, "", tables, drawings, leading=1)


def draw_losses(panels: Mapping[str, pd.DataFrame]) -> Drawing | None:
    """Draw a matrix of encoders and conditions for each panel: the score is written in the cell,
    and its colour shows the loss against the encoder's own clean speech, on one scale for all
    panels of a unit. None where no noise was measured."""
    all_scores = pd.concat(panels.values())
    if (all_scores.condition == "clean").all():
        return None
    greatest_losses = all_scores.groupby(all_scores.metric.map(unit)).loss.max()
    conditions, places = list_conditions(all_scores), sorted(all_scores.place.unique())
    # in inches: 0.27 a row of cells, 0.9 of a row the title of a panel, 0.9 the names of conditions
    # below the last panel
    heights = [panel.label.nunique() + 0.9 for panel in panels.values()]
    height = (0.27 * sum(heights) + 0.9) / len(panels)
    with new_axes(len(panels), 1, height, sharex="all", height_ratios=heights) as (figure, axes):
        for ax, (name, panel) in zip(axes[:, 0], panels.items(), strict=True):
            pivot = panel.pivot(index="label", columns="place", values=["loss", "value"])
            pivot = pivot.loc[panel.label.unique()]
            losses = pivot["loss"].reindex(columns=places)
            scores = pivot["value"].reindex(columns=places)
            metric = panel.metric.iloc[0]
            texts = scores.map(partial(print_value, metric)).to_numpy().tolist()
            darkest = max(LEAST_SCALE[unit(metric)], greatest_losses[unit(metric)])
            # the square root shows small losses more clearly
            shares = np.sqrt(losses.clip(0) / darkest).to_numpy()
            labels = [shorten(label, 24) for label in pivot.index]
            shade(ax, shares, labels, conditions, texts, "YlOrBr", upright=True)
            ax.set_title(name, loc="left", fontsize=9)
        svg = save_svg(figure)
    caption = (
        "The number is the score; the darker, the more is lost against the encoder's own clean "
        "speech."
    )
    return Drawing("What noise costs, task by task", svg, caption)
