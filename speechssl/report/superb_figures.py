"""The figures of SUPERB that all tasks share: layer weights and the learning-rate sweep. Those of speakers: speaker_figures.py."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Any

from speechssl.report.figures import INCHES, INK, MUTED, PALETTE, PAPER, RULE, SYSTEMS, Drawing, Series, metric_name, styled, svg_of
from speechssl.report.published import LEARNING_RATES
from speechssl.report.robustness import NAMES, ROW, shortened
from speechssl.report.superb import MAIN, TASKS, Confusion, Errors, Head, Superb, Timeline, Trial, Turn
from speechssl.results import decimals, unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Confusion matrices as a figure: legible for four classes, and for as many as there are speakers.

PRINTED = 14  # classes up to which a cell has its number and every class its name
NAMED = 34  # up to which every class has its name
MOST = 60  # of more classes those that are confused most are shown
SHADES = 20
GAP = 0.1  # inches between two matrices
SQUARE = ((-0.48, -0.48), (0.48, -0.48), (0.48, 0.48), (-0.48, 0.48), (-0.48, -0.48))
WIDE = 3.05  # inches: a matrix at most
CELL, LEFT = 0.22, 0.95  # inches: a cell at most, beside a matrix
LONGEST = 13  # letters of a class's name


@dataclass(frozen=True)
class Matrix:
    """shares: of every class of the truth (a line), how its recordings were classified; a class without any has zeros."""

    encoder: str
    slot: str  # empty where there is but one
    classes: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]
    of: int  # classes there are; more than are shown where they are too many

    @property
    def side(self) -> float:
        """Inches."""
        return min(WIDE, max(CELL * len(self.classes), 0.8))

    @property
    def about(self) -> str:
        """What stands below the encoder's name."""
        some = f"{len(self.classes)} of {self.of:,} classes" if self.of > len(self.classes) else ""
        return ", ".join(filter(None, [self.slot, some]))

    @property
    def above(self) -> float:
        """Inches for both."""
        return 0.5 if self.about else 0.33

    @property
    def below(self) -> float:
        """Inches that the upright names take, and a gap."""
        return 0.25 + 0.066 * min(LONGEST, max(map(len, self.classes)))


def confusions(found: Superb) -> list[tuple[str, Drawing]]:
    """For every task that classifies: its name, and a matrix for every encoder and slot."""
    made = []
    for task in TASKS:
        some = [c for e in found.encoders for c in found.artefacts.confusions if (c.encoder, c.task) == (e.label, task)]
        if some:
            made.append((SYSTEMS[task], _drawn(task, some)))
    return made


def matrix(found: Confusion, several: bool) -> Matrix:
    """several: whether the slot must be told beside the encoder."""
    kept = _worst(found)
    lines = [(line, sum(line)) for line in found.counts]
    shares = tuple(tuple(lines[i][0][j] / lines[i][1] if lines[i][1] else 0.0 for j in kept) for i in kept)
    return Matrix(found.encoder, found.slot if several else "", tuple(found.classes[i] for i in kept), shares, len(found.classes))


def _worst(found: Confusion) -> list[int]:
    """All classes, in their order; of too many those with the most wrong answers, given or received."""
    every = range(len(found.classes))
    if len(found.classes) <= MOST:
        return list(every)
    wrong = [sum(found.counts[i]) - found.counts[i][i] + sum(line[i] for line in found.counts) - found.counts[i][i] for i in every]
    return sorted(sorted(every, key=lambda i: -wrong[i])[:MOST])


def _drawn(task: str, some: Sequence[Confusion]) -> Drawing:
    from matplotlib.figure import Figure

    several = len({c.slot for c in some}) > 1
    matrices = [matrix(c, several) for c in some]
    lines = _laid(matrices)
    heights = [max(m.above + m.side + m.below for m in line) for line in lines]
    with styled():
        figure, top = Figure(figsize=(INCHES, sum(heights))), sum(heights)
        for line, height in zip(lines, heights, strict=True):
            left = 0.0
            for m in line:
                _draw(figure, m, left + LEFT, top - max(x.above for x in line) - m.side)
                left += LEFT + m.side + GAP
            top -= height
        svg = svg_of(figure, f"confusion-{task}")
    return Drawing(svg, f"{SYSTEMS[task]}: percent of each class that was taken for another. {' '.join(map(_told, matrices))}")


def _laid(matrices: Sequence[Matrix]) -> list[list[Matrix]]:
    """Into lines, as many in each as fit; the slots of an encoder begin a new one."""
    lines: list[list[Matrix]] = []
    for m in matrices:
        room = INCHES - sum(LEFT + x.side + GAP for x in lines[-1]) if lines else 0.0
        if room < LEFT + m.side or (m.slot and m.encoder != lines[-1][0].encoder):
            lines.append([])
        lines[-1].append(m)
    return lines


def _draw(figure: Figure, m: Matrix, left: float, bottom: float) -> None:
    tall, count = figure.get_figheight(), len(m.classes)
    ax = figure.add_axes((left / INCHES, bottom / tall, m.side / INCHES, m.side / tall))
    _shade(ax, m)
    if count <= PRINTED:
        _print(ax, m)
    ax.set_xlim(-0.5, count - 0.5)
    ax.set_ylim(count - 0.5, -0.5)
    _name_classes(ax, m)
    ax.grid(False)
    ax.spines[:].set(visible=True, color=RULE)
    _entitle(ax, m)


def _entitle(ax: Axes, m: Matrix) -> None:
    """The encoder, and below it the slot and how many of the classes are shown."""
    fits = int((LEFT + m.side) / 0.083)
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    ax.annotate(
        shortened(m.encoder, fits), (0, 1), xytext=(4 - LEFT * 72, 19 if m.about else 7), fontsize=8.5, fontweight="bold", **place
    )
    ax.annotate(m.about, (0, 1), xytext=(4 - LEFT * 72, 7), fontsize=8, color=MUTED, **place)


def _shade(ax: Axes, m: Matrix) -> None:
    """All squares of one shade are one path: 40 classes have 1,600 cells. Classes without predictions have no square."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    squares: dict[int, list[Path]] = {}
    for y, line in enumerate(m.shares):
        for x, share in enumerate(line):
            if share:
                corners = [(x + i, y + j) for i, j in SQUARE]
                squares.setdefault(max(1, round(shade(share) * SHADES)), []).append(Path(corners, closed=True))
    for level, paths in sorted(squares.items()):
        ax.add_patch(PathPatch(Path.make_compound_path(*paths), facecolor=SHADE, alpha=level / SHADES, linewidth=0))


def shade(share: float) -> float:
    """How opaque. A square root, so that a few confusions are seen beside a strong diagonal."""
    return share**0.5


def _print(ax: Axes, m: Matrix) -> None:
    small = 7.5 if len(m.classes) <= 12 else 6.5
    for y, line in enumerate(m.shares):
        for x, share in enumerate(line):
            if round(100 * share):
                ink = PAPER if shade(share) > TURNS_AT else INK
                ax.text(x, y, f"{100 * share:.0f}", ha="center", va="center", fontsize=small, color=ink)


def _name_classes(ax: Axes, m: Matrix) -> None:
    """Every one where there is room, else every so many."""
    count = len(m.classes)
    step = 1 if count <= NAMED else -(-count // 20)
    places = range(0, count, step)
    names = [shortened(m.classes[i], LONGEST) for i in places]
    size = 7.5 if count <= PRINTED else 6.0 if step == 1 else 6.5
    ax.set_xticks(places, names, rotation=90)
    ax.set_yticks(places, names)
    ax.tick_params(labelsize=size, length=0, pad=2, labelcolor=MUTED)


def _told(m: Matrix) -> str:
    """The diagonal, and the worst confusion."""
    right = ", ".join(f"{name} {100 * line[i]:.0f}" for i, (name, line) in enumerate(zip(m.classes, m.shares, strict=True)))
    off: Mapping[tuple[int, int], float] = {(i, j): s for i, line in enumerate(m.shares) for j, s in enumerate(line) if i != j}
    (i, j), most = max(off.items(), key=lambda x: x[1], default=((0, 0), 0.0))
    worst = f"; most often {m.classes[i]} is taken for {m.classes[j]} ({100 * most:.0f})" if most else ""
    title = ", ".join(filter(None, [m.encoder, m.slot]))
    return f"{title}, right: {right}{worst}."


# The figures of SUPERB's speaker tasks: the DET curve of verification, and who spoke when.

DET_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 60, 80)  # percent
LANE = 0.2  # inches: one line of a timeline


# ---- DET -----------------------------------------------------------------------------------------


def det_curves(found: Superb) -> Drawing | None:
    """Misses against false alarms on normal-deviate axes, with the equal error rate of each encoder marked; None without any."""
    lines = [(e, errors) for e in found.encoders for errors in found.artefacts.errors if errors.encoder == e.label]
    if not lines:
        return None
    with blank(4.5) as figure:
        ax = axes_at(figure, 0.75, 0.55, 3.85, 3.85)
        for series, errors in lines:
            _draw_det(ax, series, errors)
        _det_axes(ax, lines)
        handles = [handle(e, f"{shortened(e.label, 34)}: EER {100 * equal_error(x):.1f} %") for e, x in lines]
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(4.75 / INCHES, 0.985), labelspacing=0.8)
        svg = svg_of(figure, "det")
    told = "; ".join(f"{e.label} {100 * equal_error(x):.1f} %" for e, x in lines)
    return Drawing(svg, f"Misses against false alarms of speaker verification. Equal error rates: {told}.")


def equal_error(errors: Errors) -> float:
    """The share at which misses equal false alarms, interpolated between the two thresholds on either side."""
    points = sorted(zip(errors.false_alarms, errors.misses, strict=True), key=lambda p: (p[0], -p[1]))
    before = (0.0, 1.0)
    for alarm, miss in [*points, (1.0, 0.0)]:
        if alarm >= miss:
            gap, past = before[1] - before[0], alarm - miss
            part = gap / (gap + past) if gap + past else 0.0
            return before[0] + part * (alarm - before[0])
        before = (alarm, miss)
    return 0.5  # not reached: the last point is (1, 0)


def deviate(share: float) -> float:
    """The quantile of the normal distribution: a score that is normal for both kinds of trial gives a straight line."""
    return NormalDist().inv_cdf(min(max(share, 1e-5), 1 - 1e-5))


def _draw_det(ax: Axes, series: Series, errors: Errors) -> None:
    points = sorted(zip(errors.false_alarms, errors.misses, strict=True), key=lambda p: (p[0], -p[1]))
    inner = [(deviate(a), deviate(m)) for a, m in points if 0 < a < 1 and 0 < m < 1]
    ax.plot([x for x, _ in inner], [y for _, y in inner], color=series.colour, linewidth=1.6)
    place = deviate(equal_error(errors))
    ax.plot([place], [place], marker=series.marker, color=series.colour, markersize=7, markeredgecolor=INK, markeredgewidth=0.8)


def _det_axes(ax: Axes, lines: Sequence[tuple[Series, Errors]]) -> None:
    """From just below the least error that is drawn to just above the greatest equal one."""
    shares = [x for _, e in lines for a, m in zip(e.false_alarms, e.misses, strict=True) if 0 < a < 1 and 0 < m < 1 for x in (a, m)]
    rates = [equal_error(e) for _, e in lines]
    low = deviate(max(0.0007, 0.7 * min([*shares, *(r for r in rates if r), 0.01])))
    high = deviate(min(0.9, max(0.5, 1.6 * max(rates))))
    ax.plot([low, high], [low, high], color=MUTED, linewidth=0.9, linestyle=(0, (1.5, 2)), zorder=1)
    ticks = [t for t in DET_TICKS if low <= deviate(t / 100) <= high]
    places, labels = [deviate(t / 100) for t in ticks], [f"{t:g}" for t in ticks]
    ax.set_xticks(places, labels)
    ax.set_yticks(places, labels)
    ax.grid(True, axis="both")
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_xlabel("False alarms: impostors let in (%)")
    ax.set_ylabel("Misses: speakers turned away (%)")


# ---- diarisation ---------------------------------------------------------------------------------


def timelines(found: Superb) -> Drawing | None:
    """Who spoke when: for every speaker the truth, and below it what each encoder's head predicted for the same one; None without any."""
    groups: dict[str, list[tuple[Series, Timeline]]] = {}
    for encoder in found.encoders:
        for line in found.artefacts.timelines:
            if line.encoder == encoder.label:
                groups.setdefault(line.id, []).append((encoder, line))
    if not groups:
        return None
    lanes = {name: _lanes(lines) for name, lines in groups.items()}
    heights = [0.95 + sum(len(some) * LANE + 0.16 for _, some in speakers) for speakers in lanes.values()]
    with blank(sum(heights)) as figure:
        top = sum(heights)
        for (name, speakers), height in zip(lanes.items(), heights, strict=True):
            _timeline_panel(figure, name, speakers, groups[name][0][1].seconds, top, height)
            top -= height
        svg = svg_of(figure, "timeline")
    told = [
        f"{name}, {speaker}, {label}: {_turns_told(turns)}"
        for name, s in lanes.items()
        for speaker, x in s
        for label, _, turns in x
    ]
    return Drawing(svg, f"Who spoke when, in seconds. {'; '.join(told)}.")


Lane = tuple[str, Series | None, Sequence[Turn]]  # label, whose (None: the truth), when


def _lanes(lines: Sequence[tuple[Series, Timeline]]) -> list[tuple[str, list[Lane]]]:
    """By speaker. A speaker that a head made up, or one too many, has lanes without truth."""
    truth = lines[0][1].truth
    speakers = list(dict.fromkeys(t.speaker for t in truth))
    matched = [(encoder, match(truth, line.predicted), line.predicted) for encoder, line in lines]
    further = max((len(set(found.values()) - set(speakers)) for _, found, _ in matched), default=0)
    made = []
    for name in [*speakers, *(f"nobody {i + 1}" for i in range(further))]:
        some: list[Lane] = [("truth", None, [t for t in truth if t.speaker == name])]
        some += [(e.label, e, [t for t in predicted if found.get(t.speaker) == name]) for e, found, predicted in matched]
        made.append((name, some))
    return made


def match(truth: Sequence[Turn], said: Sequence[Turn]) -> dict[str, str]:
    """Which true speaker each speaker of a head stands for: greedily by the time that they share, since its names mean nothing."""
    pairs = {(s.speaker, t.speaker): 0.0 for s in said for t in truth}
    for s in said:
        for t in truth:
            pairs[s.speaker, t.speaker] += max(0.0, min(s.end, t.end) - max(s.start, t.start))
    found: dict[str, str] = {}
    for (mine, real), shared in sorted(pairs.items(), key=lambda p: -p[1]):
        if shared > 0 and mine not in found and real not in found.values():
            found[mine] = real
    left = [t for t in dict.fromkeys(t.speaker for t in truth) if t not in found.values()]
    strangers = (f"nobody {i + 1}" for i in range(len(said)))
    return found | {s: left.pop(0) if left else next(strangers) for s in dict.fromkeys(t.speaker for t in said) if s not in found}


def _timeline_panel(figure: Figure, name: str, speakers: Any, seconds: float, top: float, height: float) -> None:
    depth = height - 0.95
    ax = axes_at(figure, NAMES + 0.55, top - 0.4 - depth, INCHES - NAMES - 0.7, depth)
    y, ticks = 0.0, []
    for speaker, lanes in speakers:
        ax.text(
            -0.235, y + LANE * len(lanes) / 2, shortened(speaker, 8), transform=ax.get_yaxis_transform(), fontsize=8.5, va="center"
        )
        for label, series, turns in lanes:
            spans = [(t.start, t.end - t.start) for t in turns]
            ax.broken_barh(spans, (y + 0.03, LANE - 0.06), color=INK if series is None else series.colour, linewidth=0)
            ticks.append((y + LANE / 2, shortened(label, 22)))
            y += LANE
        y += 0.16
    ax.set_yticks([place for place, _ in ticks], [label for _, label in ticks])
    ax.set_xlim(0, seconds)
    ax.set_ylim(y - 0.08, -0.06)
    ax.grid(True, axis="x")
    ax.grid(False, axis="y")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", labelsize=7.5)
    ax.set_xlabel("Seconds")
    figure.text(0.05 / INCHES, (top - 0.16) / figure.get_figheight(), name, fontsize=9, fontweight="bold", va="center")


def _turns_told(turns: Sequence[Turn]) -> str:
    return ", ".join(f"{t.start:.1f} to {t.end:.1f}" for t in turns) or "never"


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
