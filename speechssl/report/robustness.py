"""Make the section of a robustness grid on a page: a heat map of encoders and conditions, and
curves; a panel a task and metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from speechssl.report.figures import Drawing, draw_over_snr, new_axes, save_svg, shade, shorten
from speechssl.report.page import Section
from speechssl.report.scores import (
    SYSTEMS,
    arrange,
    assign_slots,
    condition_label,
    conditions_of,
    print_value,
)
from speechssl.results import LOWER_IS_BETTER, Row, Table, interval_note, metric_name, unit

GROUPS = ("seen-", "unseen-")  # what the names of noisy conditions of a grid begin with
LEAST = {"%": 10.0, "dB": 4.0, "": 1.0}  # the colour scale reaches at least to this loss
LOSSES = {  # a decibel is no point
    "%": "What noise costs, task by task",
    "dB": "What noise costs, in decibels",
    "": "What noise costs, on PESQ's scale",
}


def split_grid(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows of a robustness grid, and the others."""
    rows = list(rows)
    noisy = {(r.name, r.encoder, r.metric) for r in rows if r.condition.startswith(GROUPS)}
    parts: tuple[list[Row], list[Row]] = ([], [])
    for r in rows:
        of_grid = r.condition.startswith(("clean", *GROUPS))
        parts[0 if of_grid and (r.name, r.encoder, r.metric) in noisy else 1].append(r)
    return parts


def add_losses(scores: pd.DataFrame) -> pd.DataFrame:
    """Add the points that a condition costs against the encoder's own clean speech; below 0 where
    it is better, NaN where that was not measured."""
    keys = ["system", "encoder", "metric"]
    clean = scores[scores.condition == "clean"].set_index(keys).value.rename("clean")
    joined = scores.join(clean, on=keys)
    signs = np.where(joined.metric.isin(LOWER_IS_BETTER), 1, -1)
    return joined.assign(loss=signs * (joined.value - joined.clean))


def robustness_section(rows: Sequence[Row], title: str, tables: Sequence[Table] = ()) -> Section:
    """Make the section. tables: of the grid, the first before the figures."""
    if not rows:
        return Section(title, tables=tables)
    scores = add_losses(arrange(rows, by="encoder"))
    slots = assign_slots(scores.label)
    panels = {
        f"{SYSTEMS.get(task, task)}, {metric_name(metric)}": panel
        for (task, metric), panel in scores.groupby(["system", "metric"], sort=False)
    }
    bars = interval_note("Error bars", zip(scores.label, scores.drawn, scores.groups, strict=True))
    drawings: list[Drawing | None] = []
    for scale, what in LOSSES.items():
        of_scale = {name: p for name, p in panels.items() if unit(p.metric.iloc[0]) == scale}
        drawings.append(draw_losses(what, of_scale, scale))
    title_over = "Scores against the signal-to-noise ratio (SNR)"
    drawings.append(draw_over_snr(title_over, bars, panels, slots))
    return Section(title, "", tables, drawings, leading=1)


def draw_losses(title: str, panels: Mapping[str, pd.DataFrame], scale: str) -> Drawing | None:
    """Draw the score in every cell; its colour is the points lost against the encoder's own clean
    speech, for all tasks of one unit (scale) alike. None where nothing noisy was measured."""
    every = pd.concat(panels.values()) if panels else pd.DataFrame({"condition": []})
    if (every.condition == "clean").all():
        return None
    most = max(LEAST[scale], every.loss.max())
    conditions = conditions_of(every)
    heights = [panel.label.nunique() + 0.9 for panel in panels.values()]
    height = (0.27 * sum(heights) + 0.9) / len(panels)
    with new_axes(len(panels), 1, height, sharex="all", height_ratios=heights) as (figure, axes):
        for ax, (name, panel) in zip(axes[:, 0], panels.items(), strict=True):
            places = zip(panel.condition, panel.snr_db, strict=True)
            values = zip(panel.metric, panel.value, strict=True)
            panel = panel.assign(
                where=[condition_label(*place) for place in places],
                number=[print_value(*value) for value in values],
            )
            pivot = panel.pivot(index="label", columns="where", values=["loss", "number"])
            pivot = pivot.loc[panel.label.unique()]
            losses = pivot["loss"].reindex(columns=conditions).astype(float)
            texts = pivot["number"].reindex(columns=conditions).fillna("–").to_numpy().tolist()
            shares = np.sqrt(losses.clip(0) / most).to_numpy()
            labels = [shorten(label, 24) for label in pivot.index]
            shade(ax, shares, labels, conditions, texts, "YlOrBr", upright=True)
            ax.set_title(name, loc="left", fontsize=9)
        svg = save_svg(figure)
    lost = print_value(every.metric.iloc[0], most)
    caption = (
        "The number is the score; the darker, the more is lost against the encoder's own clean "
        f"speech (darkest: {lost})."
    )
    return Drawing(title, svg, caption)
