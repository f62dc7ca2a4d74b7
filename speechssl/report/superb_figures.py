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
from speechssl.report.figures import Drawing, line_style, new_axes, save_svg, shade, shorten
from speechssl.report.scores import NAMES
from speechssl.results import MUTED
from speechssl.superb.options import ORDER
from speechssl.superb.tasks.verification import ErrorCurve

NUMBERED_CLASSES = 14  # the cells of a matrix have numbers up to this number of classes
MOST_CLASSES = 60  # in a matrix that is drawn


@dataclass(frozen=True)
class Artefacts:
    """A run of SUPERB has heads and details beside its rows."""

    # encoder -> task -> of each head the share of every hidden state, CNN output first
    weights: Mapping[str, Mapping[str, Sequence[Sequence[float]]]] = field(default_factory=dict)
    # task -> encoder -> data of figures about the test set: `HeadEvaluation.detail` of one head,
    # such as {"confusion": ...} or {"det": ...}
    details: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)


def read_artefacts(out: Path) -> Artefacts:
    """Read all artefacts of a run; missing ones are left out.

    out: the folder of `superb run`, with heads/<encoder>/<task>/[fold-<k>/]seed-<n>/card.json and
    details/<encoder>/<task>.json.
    """
    weights: dict[str, dict[str, list[Sequence[float]]]] = {}
    for path in sorted(out.glob("heads/*/*/**/seed-*/card.json")):
        _, encoder, task, *_ = path.relative_to(out).parts
        layer_weights = read_json(path).get("layer_weights", ())
        if len(layer_weights) > 1:
            weights.setdefault(encoder, {}).setdefault(task, []).append(layer_weights)
    details: dict[str, dict[str, Mapping[str, Any]]] = {}
    for path in sorted(out.glob("details/*/*.json")):
        read = read_json(path)
        details.setdefault(read["task"], {})[read["encoder"]] = read["detail"]
    return Artefacts(weights, details)


# ---- layers


def draw_layers(artefacts: Artefacts, slots: Mapping[str, int]) -> Drawing | None:
    """Draw the layer weights, as means over seeds: a panel for each encoder, with a row for each
    task and a column for each hidden state (CNN output first)."""
    panels = [encoder for encoder in slots if encoder in artefacts.weights]
    if not panels:
        return None
    heights = [len(artefacts.weights[encoder]) + 2.5 for encoder in panels]
    height = 0.24 * sum(heights) / len(panels)
    with new_axes(len(panels), 1, height, height_ratios=heights) as (figure, axes):
        for ax, encoder in zip(axes[:, 0], panels, strict=True):
            by_task = artefacts.weights[encoder]
            tasks = sorted(by_task, key=ORDER.index)
            shares = np.array([np.mean(by_task[task], axis=0) for task in tasks])
            texts = [[f"{100 * share:.0f}" for share in line] for line in shares]
            names = ["CNN", *map(str, range(1, shares.shape[1]))]
            shade(ax, shares / shares.max(), [NAMES[task] for task in tasks], names, texts)
            ax.set_title(encoder, loc="left", fontsize=9)
        svg = save_svg(figure)
    caption = (
        "Percent of each hidden state in the sum that a head sees, a mean over seeds; CNN is the "
        "output of the convolutions."
    )
    return Drawing("Which layers the tasks use", svg, caption)


# ---- confusions


def draw_confusions(artefacts: Artefacts) -> list[Drawing]:
    """Draw the confusions of every classification task: a matrix for each encoder and slot, two in
    a row. Slots of more than MOST_CLASSES are left out."""
    caption = "A line is what it was, a column what it was taken for; percent of the line."
    drawings = []
    for task in ORDER:
        matrices = {}
        for encoder, detail in artefacts.details.get(task, {}).items():
            slots = detail.get("confusion", {})
            for slot, confusion in slots.items():
                name = f"{encoder}, {slot}" if len(slots) > 1 else encoder
                if len(confusion["classes"]) <= MOST_CLASSES:
                    matrices[name] = share_confusions(**confusion)
        if not matrices:
            continue
        rows = math.ceil(len(matrices) / 2)
        with new_axes(rows, 2, 3.9) as (figure, axes):
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
    recordings. counts: a row for each true class."""
    table = pd.DataFrame(counts, classes, classes)
    return table.div(table.sum(axis=1).clip(lower=1), axis=0)


# ---- detection error trade-off


def draw_det(artefacts: Artefacts, slots: Mapping[str, int]) -> Drawing | None:
    """Draw misses against false alarms on normal-deviate axes, on which normally distributed scores
    give a straight line; None without verification."""
    by_encoder = artefacts.details.get("asv", {})
    details = {encoder: by_encoder[encoder] for encoder in slots if encoder in by_encoder}
    if not details:
        return None
    from sklearn.metrics import DetCurveDisplay  # slow to import

    with new_axes(1, 1, 4.6) as (figure, ((ax,),)):
        for encoder, detail in details.items():
            false_alarms, misses = (np.array(detail["det"][x]) for x in ("false_alarms", "misses"))
            eer = ErrorCurve(false_alarms, misses).eer
            style = line_style(slots[encoder])
            DetCurveDisplay(fpr=false_alarms, fnr=misses).plot(ax, color=style["color"])
            name = f"{shorten(encoder)}: EER {100 * eer:.1f} %"
            ax.plot(norm.ppf(eer), norm.ppf(eer), linestyle="none", label=name, **style)
        ax.axline((0, 0), slope=1, color=MUTED, linewidth=0.9, linestyle=":")
        ax.set(box_aspect=1)
        ax.set_xlabel("False alarms: impostors let in")
        ax.set_ylabel("Misses: speakers turned away")
        figure.legend(loc="outside right upper")
        svg = save_svg(figure)
    caption = "Both axes are normal deviates; the marks are the equal error rates."
    return Drawing("Speaker verification: misses against false alarms", svg, caption)
