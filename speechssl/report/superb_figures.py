"""Read what `superb run` left beside its rows, cards of heads and details of the test set, and draw
layer weights, confusion matrices and DET curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from speechssl.artifacts import read_json
from speechssl.report.figures import Drawing, line_style, new_axes, save_svg, shade, shorten
from speechssl.report.scores import SYSTEMS
from speechssl.results import MUTED
from speechssl.superb.tasks import ORDER
from speechssl.superb.tasks.verification import ErrorCurve

PRINTED, CLASSES = 14, 60  # classes up to which cells have their numbers; classes that are shown
DET_TICKS = (0.1, 0.5, 1, 2, 5, 10, 20, 40, 60, 80)  # percent
ERRORS = ("false_alarms", "misses")  # of a curve in the details of verification


@dataclass(frozen=True)
class Head:
    """A trained head. layer_weights: the share of each hidden state, CNN output first; they sum to
    1."""

    encoder: str
    task: str
    layer_weights: Sequence[float] = ()
    learning_rate: float | None = None


@dataclass(frozen=True)
class Details:
    """What figures of the test set are drawn from: `HeadEvaluation.detail` of one head."""

    encoder: str
    task: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Artefacts:
    heads: Sequence[Head] = ()
    details: Sequence[Details] = ()

    def __bool__(self) -> bool:
        return bool(self.heads or self.details)

    def of_task(self, task: str) -> list[Details]:
        return [d for d in self.details if d.task == task]


def read_artefacts(out: Path) -> Artefacts:
    """Read all artefacts of a run; missing ones are left out.

    out: the folder of `superb run`, with heads/<encoder>/<task>/[fold-<k>/]seed-<n>/card.json and
    details/<encoder>/<task>.json.
    """
    heads = []
    for path in sorted(out.glob("heads/*/*/**/seed-*/card.json")):
        card = read_json(path)
        _, encoder, task, *_ = path.relative_to(out).parts
        heads.append(Head(encoder, task, card.get("layer_weights", ()), card.get("learning_rate")))
    details = [Details(**read_json(path)) for path in sorted(out.glob("details/*/*.json"))]
    return Artefacts(heads, details)


# ---- layers


def draw_layers(artefacts: Artefacts, slots: Mapping[str, int]) -> Drawing | None:
    """Draw a panel an encoder, a line a task, a column a hidden state (CNN output first), a mean
    over seeds. QbE, which has no weights, has a mark at the layer that dev chose."""
    weights: dict[str, dict[str, list[Sequence[float]]]] = {}
    for head in artefacts.heads:
        if len(head.layer_weights) > 1:
            of_encoder = weights.setdefault(head.encoder, {})
            of_encoder.setdefault(head.task, []).append(head.layer_weights)
    for details in artefacts.of_task("qbe"):
        if details.encoder in weights:
            chosen = np.full(len(details.detail["layers"]), np.nan)
            chosen[np.argmax(details.detail["layers"])] = 0
            weights[details.encoder]["qbe"] = [chosen.tolist()]
    panels = [encoder for encoder in slots if encoder in weights]
    if not panels:
        return None
    heights = [len(weights[encoder]) + 2.5 for encoder in panels]
    with new_axes(len(panels), 1, 0.24 * sum(heights) / len(panels), height_ratios=heights) as (
        figure,
        axes,
    ):
        for ax, encoder in zip(axes[:, 0], panels, strict=True):
            tasks = sorted(weights[encoder], key=ORDER.index)
            shares = np.array([np.mean(weights[encoder][task], axis=0) for task in tasks])
            texts = []
            for line in shares:
                texts.append(["" if np.isnan(v) else f"{100 * v:.0f}" if v else "✓" for v in line])
            names = ["CNN", *map(str, range(1, shares.shape[1]))]
            shade(ax, shares / np.nanmax(shares), [SYSTEMS[task] for task in tasks], names, texts)
            ax.set_title(encoder, loc="left", fontsize=9)
        svg = save_svg(figure)
    caption = (
        "Percent of each hidden state in the sum that a head sees, a mean over seeds; CNN is the "
        "output of the convolutions. QbE has no weights: its mark is the layer that dev chose."
    )
    return Drawing("Which layers the tasks use", svg, caption)


# ---- confusions


def draw_confusions(artefacts: Artefacts) -> list[Drawing]:
    """Draw for every task that classifies a matrix for every encoder and slot, two abreast."""
    caption = "A line is what it was, a column what it was taken for; percent of the line."
    drawings = []
    for task in ORDER:
        matrices = {}
        for details in artefacts.of_task(task):
            slots = details.detail.get("confusion", {})
            for slot, confusion in slots.items():
                name = f"{details.encoder}, {slot}" if len(slots) > 1 else details.encoder
                matrices[name] = share_confusions(**confusion)
        if not matrices:
            continue
        rows = -(-len(matrices) // 2)
        with new_axes(rows, 2, 3.9) as (figure, axes):
            for ax in axes.ravel()[len(matrices) :]:
                ax.remove()
            for ax, (name, shares) in zip(axes.ravel(), matrices.items(), strict=False):
                names = [shorten(str(c), 13) for c in shares.index]
                texts = []
                if len(names) <= PRINTED:
                    for line in shares.to_numpy():
                        texts.append([f"{100 * v:.0f}" if v >= 0.005 else "" for v in line])
                shade(ax, np.sqrt(shares.to_numpy()), names, names, texts, upright=True)
                ax.set_title(shorten(name, 44), loc="left", fontsize=8.5)
            title = f"What was taken for what: {SYSTEMS[task]}"
            drawings.append(Drawing(title, save_svg(figure), caption))
    return drawings


def share_confusions(classes: Sequence[str | int], counts: Sequence[Sequence[int]]) -> pd.DataFrame:
    """Return for each true class how its recordings were classified; zeros for one without any. Of
    too many classes those with the most errors are kept. counts: a line a true class."""
    table = pd.DataFrame(counts, classes, classes)
    totals = table.sum(axis=1).to_numpy()
    shares = table / np.maximum(totals, 1)[:, None]
    if len(table) > CLASSES:
        errors = totals + table.sum().to_numpy() - 2 * np.diag(table)
        kept = np.sort(np.argsort(-errors, kind="stable")[:CLASSES])
        shares = shares.iloc[kept, kept]
    return shares


# ---- detection error trade-off


def draw_det(artefacts: Artefacts, slots: Mapping[str, int]) -> Drawing | None:
    """Draw misses against false alarms on normal-deviate axes, on which scores that are normal for
    both kinds of trial give a straight line; None without any."""
    curves = {
        d.encoder: ErrorCurve(*(np.array(d.detail["det"][name]) for name in ERRORS))
        for d in artefacts.of_task("asv")
    }
    if not curves:
        return None
    with new_axes(1, 1, 4.6) as (figure, ((ax,),)):
        for encoder, curve in curves.items():
            style = line_style(slots[encoder])
            ax.plot(curve.false_alarms, curve.misses, color=style["color"])
            name = f"{shorten(encoder)}: EER {100 * curve.eer:.1f} %"
            ax.plot(curve.eer, curve.eer, linestyle="none", label=name, **style)
        ax.axline((0.1, 0.1), (0.2, 0.2), color=MUTED, linewidth=0.9, linestyle=":")
        ticks = [percent / 100 for percent in DET_TICKS]
        labels = [f"{percent:g}" for percent in DET_TICKS]
        ax.set_xscale("function", functions=(deviate, norm.cdf))
        ax.set_yscale("function", functions=(deviate, norm.cdf))
        ax.set_xticks(ticks, labels)
        ax.set_yticks(ticks, labels)
        ax.set(xlim=(0.001, 0.8), ylim=(0.001, 0.8), box_aspect=1)
        ax.set_xlabel("False alarms: impostors let in (%)")
        ax.set_ylabel("Misses: speakers turned away (%)")
        figure.legend(loc="outside right upper")
        svg = save_svg(figure)
    caption = "Both axes are normal deviates; the marks are the equal error rates."
    return Drawing("Speaker verification: misses against false alarms", svg, caption)


def deviate(shares: np.ndarray) -> np.ndarray:
    """Return quantiles of the normal distribution, finite for shares of 0 and 1 too."""
    return np.asarray(norm.ppf(np.clip(shares, 1e-5, 1 - 1e-5)))
