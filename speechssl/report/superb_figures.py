"""Draw layer weights, confusion matrices and DET curves from the cards of heads and the details of
the test set that `superb run` wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from speechssl.artifacts import read_json
from speechssl.report.figures import Drawing, choose_line_style, make_axes, save_svg, shade, shorten
from speechssl.report.scores import NAMES
from speechssl.results import MUTED
from speechssl.superb.options import ORDER
from speechssl.superb.tasks.verification import ErrorCurve

NUMBERED_CLASSES = 14  # the cells of a matrix have numbers up to this number of classes
MOST_CLASSES = 60  # largest number of classes in a matrix
DET_TICKS = (0.1, 0.5, 1, 2, 5, 10, 20, 40, 60, 80)  # percent


@dataclass(frozen=True)
class Details:
    """Details are the data of figures about the test set: `HeadEvaluation.detail` of one head, such
    as {"confusion": ...}, {"det": ...} or {"layers": ...}."""

    encoder: str
    task: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Artefacts:
    """A run of SUPERB has heads and details beside its rows."""

    # encoder -> task -> the layer weights of each head: the share of each hidden state, CNN output
    # first; sum 1
    weights: Mapping[str, Mapping[str, Sequence[Sequence[float]]]] = field(default_factory=dict)
    details: Sequence[Details] = ()

    def __bool__(self) -> bool:
        return bool(self.weights or self.details)

    def list_details(self, task: str) -> list[Details]:
        """List the details of a task."""
        return [d for d in self.details if d.task == task]


def read_artefacts(out: Path) -> Artefacts:
    """Read all artefacts of a run; missing ones are left out.

    out: the folder of `superb run`, with heads/<encoder>/<task>/[fold-<k>/]seed-<n>/card.json and
    details/<encoder>/<task>.json.
    """
    weights: dict[str, dict[str, list[Sequence[float]]]] = {}
    for path in sorted(out.glob("heads/*/*/**/seed-*/card.json")):
        _, encoder, task, *_ = path.relative_to(out).parts
        of_head = read_json(path).get("layer_weights", ())
        if len(of_head) > 1:
            weights.setdefault(encoder, {}).setdefault(task, []).append(of_head)
    details = [Details(**read_json(path)) for path in sorted(out.glob("details/*/*.json"))]
    return Artefacts(weights, details)


# ---- layers


def draw_layers(artefacts: Artefacts, slots: Mapping[str, int]) -> Drawing | None:
    """Draw the layer weights, as means over seeds: a panel for each encoder, with a row for each
    task and a column for each hidden state (CNN output first). QbE, which has no weights, has a
    mark at the best layer on dev."""
    weights = {encoder: dict(by_task) for encoder, by_task in artefacts.weights.items()}
    for details in artefacts.list_details("qbe"):
        if details.encoder in weights:
            # `_write_weight` prints infinity as a mark and NaN as nothing
            mark = np.full(len(details.detail["layers"]), np.nan)
            mark[np.argmax(details.detail["layers"])] = np.inf
            weights[details.encoder]["qbe"] = [mark.tolist()]
    panels = [encoder for encoder in slots if encoder in weights]
    if not panels:
        return None
    heights = [len(weights[encoder]) + 2.5 for encoder in panels]
    height = 0.24 * sum(heights) / len(panels)
    with make_axes(len(panels), 1, height, height_ratios=heights) as (figure, axes):
        for ax, encoder in zip(axes[:, 0], panels, strict=True):
            tasks = sorted(weights[encoder], key=ORDER.index)
            shares = np.array([np.mean(weights[encoder][task], axis=0) for task in tasks])
            texts = [[_write_weight(share) for share in line] for line in shares]
            names = ["CNN", *map(str, range(1, shares.shape[1]))]
            finite = np.where(np.isinf(shares), 0, shares)
            shade(ax, finite / np.nanmax(finite), [NAMES[task] for task in tasks], names, texts)
            ax.set_title(encoder, loc="left", fontsize=9)
        svg = save_svg(figure)
    caption = (
        "Percent of each hidden state in the sum that a head sees, a mean over seeds; CNN is the "
        "output of the convolutions. QbE has no weights: its mark is the layer that dev chose."
    )
    return Drawing("Which layers the tasks use", svg, caption)


def _write_weight(share: float) -> str:
    """Write the weight of a layer in percent. Infinity is the mark of QbE, NaN one of its other
    layers."""
    if np.isnan(share):
        return ""
    return "✓" if np.isinf(share) else f"{100 * share:.0f}"


# ---- confusions


def draw_confusions(artefacts: Artefacts) -> list[Drawing]:
    """Draw the confusions of every classification task: a matrix for each encoder and slot, two in
    a row."""
    caption = "A line is what it was, a column what it was taken for; percent of the line."
    drawings = []
    for task in ORDER:
        matrices = {}
        for details in artefacts.list_details(task):
            slots = details.detail.get("confusion", {})
            for slot, confusion in slots.items():
                name = f"{details.encoder}, {slot}" if len(slots) > 1 else details.encoder
                matrices[name] = share_confusions(**confusion)
        if not matrices:
            continue
        rows = math.ceil(len(matrices) / 2)
        with make_axes(rows, 2, 3.9) as (figure, axes):
            for ax in axes.ravel()[len(matrices) :]:
                ax.remove()
            for ax, (name, shares) in zip(axes.ravel(), matrices.items(), strict=False):
                names = [shorten(str(c), 13) for c in shares.index]
                texts = []
                if len(names) <= NUMBERED_CLASSES:
                    for line in shares.to_numpy():
                        texts.append([f"{100 * v:.0f}" if v >= 0.005 else "" for v in line])
                shade(ax, np.sqrt(shares.to_numpy()), names, names, texts, upright=True)
                ax.set_title(shorten(name, 44), loc="left", fontsize=8.5)
            title = f"What was taken for what: {NAMES[task]}"
            drawings.append(Drawing(title, save_svg(figure), caption))
    return drawings


def share_confusions(classes: Sequence[str | int], counts: Sequence[Sequence[int]]) -> pd.DataFrame:
    """Return the shares of predicted classes for each true class; zeros for a class without
    recordings. Of more than MOST_CLASSES those with the most errors are kept. counts: a row for
    each true class."""
    table = pd.DataFrame(counts, classes, classes)
    totals = table.sum(axis=1).to_numpy()
    shares = table / np.maximum(totals, 1)[:, None]
    if len(table) > MOST_CLASSES:
        # recordings of a class that were taken for others, and of others that were taken for it
        errors = totals + table.sum().to_numpy() - 2 * np.diag(table)
        worst = np.sort(np.argsort(-errors, kind="stable")[:MOST_CLASSES])
        shares = shares.iloc[worst, worst]
    return shares


# ---- detection error trade-off


def draw_det(artefacts: Artefacts, slots: Mapping[str, int]) -> Drawing | None:
    """Draw misses against false alarms on normal-deviate axes, on which normally distributed scores
    give a straight line; None without verification."""
    curves = {}
    for details in artefacts.list_details("asv"):
        det = details.detail["det"]
        curve = ErrorCurve(np.array(det["false_alarms"]), np.array(det["misses"]))
        curves[details.encoder] = curve
    if not curves:
        return None
    with make_axes(1, 1, 4.6) as (figure, ((ax,),)):
        for encoder, curve in curves.items():
            style = choose_line_style(slots[encoder])
            ax.plot(curve.false_alarms, curve.misses, color=style["color"])
            name = f"{shorten(encoder)}: EER {100 * curve.eer:.1f} %"
            ax.plot(curve.eer, curve.eer, linestyle="none", label=name, **style)
        ax.axline((0.1, 0.1), (0.2, 0.2), color=MUTED, linewidth=0.9, linestyle=":")
        ticks = [percent / 100 for percent in DET_TICKS]
        labels = [f"{percent:g}" for percent in DET_TICKS]
        ax.set_xscale("function", functions=(compute_deviates, norm.cdf))
        ax.set_yscale("function", functions=(compute_deviates, norm.cdf))
        ax.set_xticks(ticks, labels)
        ax.set_yticks(ticks, labels)
        ax.set(xlim=(0.001, 0.8), ylim=(0.001, 0.8), box_aspect=1)
        ax.set_xlabel("False alarms: impostors let in (%)")
        ax.set_ylabel("Misses: speakers turned away (%)")
        figure.legend(loc="outside right upper")
        svg = save_svg(figure)
    caption = "Both axes are normal deviates; the marks are the equal error rates."
    return Drawing("Speaker verification: misses against false alarms", svg, caption)


def compute_deviates(shares: np.ndarray) -> np.ndarray:
    """Compute the quantiles of the normal distribution at these shares, finite for 0 and 1 too."""
    return np.asarray(norm.ppf(np.clip(shares, 1e-5, 1 - 1e-5)))
