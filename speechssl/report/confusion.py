"""Confusion matrices as a figure: legible for four classes, and for as many as there are speakers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from speechssl.report.figures import INCHES, INK, MUTED, PAPER, RULE, Drawing, styled, svg_of
from speechssl.report.robustness_figures import shortened
from speechssl.report.series import SYSTEMS
from speechssl.report.superb import TASKS, Confusion
from speechssl.report.superb_figures import SHADE, TURNS_AT
from speechssl.report.superb_rows import Superb

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    """All squares of one shade are one path: 40 classes have 1,600 cells. Nothing is drawn where nothing was said."""
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
