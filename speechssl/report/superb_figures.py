"""The figures of SUPERB that all tasks share: layer weights and the learning-rate sweep. Those of speakers: speaker_figures.py."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING, Any

from speechssl.evaluation.results import decimals, unit
from speechssl.report.figures import INCHES, INK, MUTED, PAPER, Drawing, styled, svg_of
from speechssl.report.published import LEARNING_RATES
from speechssl.report.robustness_figures import NAMES, ROW, shortened
from speechssl.report.series import PALETTE, SYSTEMS, Series, metric_name
from speechssl.report.superb import TASKS, Head, Trial
from speechssl.report.superb_rows import MAIN, Superb

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADE = PALETTE[0][0]  # of cells: the more opaque the more, on a light page and on a dark one
TURNS_AT = 0.78  # of full opacity: from here on numbers have the colour of the page
WIDEST = 13  # hidden states whose shares are printed in their cells
ACROSS = 4  # panels of the sweep in a line
Weights = dict[str, tuple[float, ...]]  # task -> the share of each hidden state, a mean over seeds


# ---- layer weights -------------------------------------------------------------------------------


def layer_weights(found: Superb) -> Drawing | None:
    """A panel an encoder, a line a task, a column a hidden state (0: CNN output), darker for a greater share; for QbE, which has
    no weights, a square at the layer that dev chose. None where no encoder has two states to weigh."""
    shown = {e: weights for e in found.encoders if (weights := _weights(found, e.label))}
    if not shown:
        return None
    most = max(max(shares) for weights in shown.values() for shares in weights.values())
    chosen = {e: _layer(found, e.label) for e in shown}
    heights = [0.62 + ROW * (len(weights) + (chosen[e] is not None)) + 0.2 for e, weights in shown.items()]
    with blank(sum(heights)) as figure:
        top = sum(heights)
        for (encoder, weights), height in zip(shown.items(), heights, strict=True):
            _weights_panel(figure, encoder, weights, chosen[encoder], top, most)
            top -= height
        svg = svg_of(figure, "layers")
    return Drawing(svg, f"Share of each hidden state in percent. {' '.join(_weights_told(e.label, w) for e, w in shown.items())}")


def _weights(found: Superb, encoder: str) -> Weights:
    """Tasks in their order. Without those of one state, and those whose seeds do not have equally many."""
    weights: Weights = {}
    for task in TASKS:
        heads = [h.weights for h in found.artefacts.heads if (h.encoder, h.task) == (encoder, task) and h.weights]
        if heads and len(heads[0]) > 1 and all(len(shares) == len(heads[0]) for shares in heads):
            weights[task] = tuple(map(fmean, zip(*heads, strict=True)))
    return weights


def _layer(found: Superb, encoder: str) -> int | None:
    layers = (found.artefacts.layers or {}).get(encoder, ())
    return layers.index(max(layers)) if len(layers) > 1 else None


def _weights_panel(figure: Figure, encoder: Series, weights: Weights, chosen: int | None, top: float, most: float) -> None:
    """top: inches from the lower edge of the figure."""
    tasks = [*weights, *(["qbe"] if chosen is not None else [])]
    states = max([*map(len, weights.values()), (chosen or 0) + 1])
    width, height = min(INCHES - NAMES - 0.15, 0.62 * states), ROW * len(tasks)
    ax = axes_at(figure, NAMES, top - 0.62 - height, width, height)
    for y, shares in enumerate(weights.values()):
        _shares(ax, y, shares, most, states <= WIDEST)
    if chosen is not None:
        ax.plot([chosen], [len(tasks) - 1], "s", markersize=8, color=encoder.colour, markerfacecolor="none", markeredgewidth=1.6)
    ax.set_xlim(-0.5, states - 0.5)
    ax.set_ylim(len(tasks) - 0.5, -0.5)
    ax.set_yticks(range(len(tasks)), [shortened(SYSTEMS[t]) for t in tasks])
    step = -(-states // 26)
    ax.set_xticks(range(0, states, step), ["CNN" if not i else str(i) for i in range(0, states, step)])
    ax.xaxis.tick_top()
    _bare(ax)
    figure.text(0.05 / INCHES, (top - 0.14) / figure.get_figheight(), encoder.label, fontsize=9, fontweight="bold", va="center")


def _shares(ax: Axes, y: int, shares: Sequence[float], most: float, printed: bool) -> None:
    from matplotlib.patches import Rectangle

    for x, share in enumerate(shares):
        shade = share / most
        ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=SHADE, alpha=shade, linewidth=0))
        if printed:
            ink = PAPER if shade > TURNS_AT else INK
            weight = "bold" if share == max(shares) else "normal"
            ax.text(x, y, f"{100 * share:.0f}", ha="center", va="center", fontsize=7.5, color=ink, fontweight=weight)


def _weights_told(encoder: str, weights: Weights) -> str:
    told = [f"{task.upper()} {' '.join(f'{100 * s:.0f}' for s in shares)}" for task, shares in weights.items()]
    return f"{encoder}, CNN output first: {'; '.join(told)}."


# ---- learning rates ------------------------------------------------------------------------------


def sweeps(found: Superb) -> Drawing | None:
    """Score on dev by learning rate, a panel a task, a line an encoder: filled where it was trained to the end, hollow where it was
    dropped on the way, ringed where it was chosen; a dotted upright at the default. None without a sweep of two rates."""
    lines = {task: [(e, h) for e in found.encoders if (h := _swept(found, e.label, task))] for task in TASKS}
    lines = {task: some for task, some in lines.items() if some}
    if not lines:
        return None
    deep = -(-len(lines) // ACROSS)
    shown = [e for e in found.encoders if any(e == s for some in lines.values() for s, _ in some)]
    with _panels(deep, min(len(lines), ACROSS), 1.25, 0.62, shown) as (figure, axes):
        for ax, (task, some) in zip(axes, lines.items(), strict=False):
            _sweep_panel(ax, task, some)
        for ax in axes[len(lines) :]:
            ax.set_visible(False)
        svg = svg_of(figure, "sweep")
    told = [f"{SYSTEMS[task]}, {e.label}: {_sweep_told(task, h)}" for task, some in lines.items() for e, h in some]
    return Drawing(svg, f"Score on dev by learning rate. {'; '.join(told)}.")


def _swept(found: Superb, encoder: str, task: str) -> Head | None:
    """The first seed with two learning rates that gave a number."""
    heads = [h for h in found.artefacts.heads if (h.encoder, h.task) == (encoder, task) and len(_tried(h)) > 1]
    return min(heads, key=lambda h: h.seed, default=None)


def _tried(head: Head) -> list[Trial]:
    """Of every learning rate what it reached when it had been trained longest."""
    longest: dict[float, Trial] = {}
    for trial in sorted(head.sweep, key=lambda t: t.steps):
        longest[trial.learning_rate] = trial
    return sorted((t for t in longest.values() if not math.isnan(t.value)), key=lambda t: t.learning_rate)


def _sweep_panel(ax: Axes, task: str, lines: Sequence[tuple[Series, Head]]) -> None:
    metric = MAIN[task]
    defaults = {h.default for _, h in lines if h.default} or ({LEARNING_RATES[task]} if task in LEARNING_RATES else set())
    for default in defaults:
        ax.axvline(default, color=MUTED, linewidth=0.9, linestyle=(0, (1.5, 2)), zorder=1)
    for series, head in lines:
        _draw_sweep(ax, series, head)
    ax.set_xscale("log")
    powers = sorted({round(math.log10(t.learning_rate)) for _, h in lines for t in _tried(h)})
    step = -(-len(powers) // 4)
    ax.set_xticks([10.0**p for p in powers[::-step]], [f"1e{p}".replace("-", "\u2212") for p in powers[::-step]])
    ax.minorticks_off()
    ax.tick_params(labelsize=7.5)
    name = f"{metric_name(metric)} ({unit(metric)})" if unit(metric) else metric_name(metric)
    _headed(ax, SYSTEMS[task], name)


def _draw_sweep(ax: Axes, series: Series, head: Head) -> None:
    tried = _tried(head)
    xs, ys = [t.learning_rate for t in tried], [t.value for t in tried]
    longest = max(t.steps for t in tried)
    ax.plot(xs, ys, color=series.colour, linewidth=1.3)
    ax.margins(0.12)
    for x, y, trial in zip(xs, ys, tried, strict=True):
        face = series.colour if trial.steps == longest else "none"
        ax.plot([x], [y], marker=series.marker, color=series.colour, markersize=4, markerfacecolor=face)
        if head.learning_rate and math.isclose(x, head.learning_rate, rel_tol=1e-6):
            ax.plot([x], [y], "o", color=INK, markersize=9, markerfacecolor="none", markeredgewidth=1, clip_on=False)


def _sweep_told(task: str, head: Head) -> str:
    rates = ", ".join(f"{t.learning_rate:g} {t.value:.{decimals(MAIN[task])}f}" for t in _tried(head))
    return rates + (f" (chosen {head.learning_rate:g})" if head.learning_rate else "")


# ---- drawing -------------------------------------------------------------------------------------


@contextmanager
def blank(height: float) -> Iterator[Figure]:
    """height: inches."""
    from matplotlib.figure import Figure

    with styled():
        yield Figure(figsize=(INCHES, height))


def axes_at(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """All in inches."""
    tall = figure.get_figheight()
    return figure.add_axes((left / INCHES, bottom / tall, width / INCHES, height / tall))


@contextmanager
def _panels(deep: int, wide: int, height: float, between: float, shown: Sequence[Series]) -> Iterator[tuple[Figure, list[Axes]]]:
    """Small multiples with one legend above. height: of a panel; between: from one to the next; both in inches."""
    legend = 0.24 * -(-len(shown) // 4) + 0.45
    total = legend + deep * (height + between) - 0.2
    with blank(total) as figure:
        axes = figure.subplots(deep, wide, squeeze=False)
        right = 0.985 if wide == ACROSS else 0.985 * (wide + 0.3) / (ACROSS + 0.3)
        figure.subplots_adjust(left=0.055, right=right, top=1 - legend / total, bottom=0.3 / total)
        figure.subplots_adjust(wspace=0.3, hspace=between / height)
        handles = [handle(e, e.label) for e in shown]
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.04, 1.0), ncols=min(len(handles), 4), columnspacing=1.6)
        yield figure, [ax for line in axes for ax in line]


def handle(series: Series, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linewidth=1.8, marker=series.marker, color=series.colour, markersize=5, label=label)


def _headed(ax: Axes, title: str, below: str) -> None:
    """The task, and what its axis measures, above a panel."""
    place: Mapping[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    ax.annotate(title, (0, 1), xytext=(0, 15), fontsize=8.5, fontweight="bold", **place)
    ax.annotate(below, (0, 1), xytext=(0, 4), fontsize=7.5, color=MUTED, **place)


def _bare(ax: Axes) -> None:
    """Names alone: no rules, no ticks."""
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(axis="x", length=0, labelsize=7.5, pad=1)
    ax.tick_params(axis="y", labelcolor=INK, labelsize=8.5)
