"""Loss surfaces as figures: lines from start to end and in a random direction, and contours of planes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from speechssl.drawing import INK, MUTED
from speechssl.errors import InputError
from speechssl.io import read_json
from speechssl.report.figures import Drawing, Series, axes_at, blank, legend, shortened, svg_of
from speechssl.text_side.published import SURFACE, in_order

LINES = {"path": "from the start (0) to the end (1)", "random": "random direction"}
PLANES = {"plane": "two random directions", "path-plane": "from start (0) to end (1), and a random direction"}
SIDE, GAP, LEVELS = 2.15, 0.6, 9  # inches of a plane and between two; contours


@dataclass(frozen=True)
class SurfaceRun:
    """parts: line or plane -> "at" (P,), or "x" and "y", and for every split the mean loss there, in nats."""

    kind: str  # "dual" or "text-qa"
    arm: str
    seed: int
    splits: tuple[str, str]  # of training, and the other
    parts: Mapping[str, Mapping[str, np.ndarray]]


def read_surfaces(out: Path) -> tuple[SurfaceRun, ...]:
    """Those in a folder of results. Raises InputError for a file that is damaged."""
    found = []
    for path in sorted(out.glob(f"runs/*-{SURFACE}/*/surface.json")):
        values = read_json(path)
        try:
            parts = {part: {name: np.array(some, float) for name, some in one.items()} for part, one in values["parts"].items()}
            train, dev = values["splits"]
            for part, one in parts.items():
                shape = (len(one["at"]),) if part in LINES else (len(one["y"]), len(one["x"]))
                if any(one[split].shape != shape for split in (train, dev)):
                    raise ValueError(f"{part} has gaps")
            found.append(SurfaceRun(values["kind"], values["arm"], int(values["seed"]), (train, dev), parts))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{path} is not what `speechssl text surface` leaves ({error}); delete its folder") from error
    return tuple(found)


def surface_figures(found: Sequence[SurfaceRun]) -> list[tuple[str, str, Drawing | None]]:
    """Title, caption and drawing: of each kind of reader the lines, and the planes of the first seed."""
    figures: list[tuple[str, str, Drawing | None]] = []
    for kind in dict.fromkeys(run.kind for run in found):
        runs = [run for run in found if run.kind == kind]
        caption = f"Means over seeds. Solid: {runs[0].splits[0]}; dashed: {runs[0].splits[1]}. Loss in nats."
        figures.append((f"{kind}: the loss along lines", caption, line_figure(runs, kind)))
        for part, about in PLANES.items():
            first = {run.arm: run for run in reversed(runs) if part in run.parts}
            if first:
                caption = (
                    f"Loss in nats on {runs[0].splits[0]}; {about}. The cross is where training ended, the ring where it began."
                )
                some = [first[arm] for arm in in_order(first)]
                figures.append((f"{kind}: the loss in a plane ({about})", caption, plane_figure(some, part, kind)))
    return figures


def line_figure(runs: Sequence[SurfaceRun], kind: str) -> Drawing:
    arms = in_order(run.arm for run in runs)
    series = {arm: Series("", "", shortened(arm), n) for n, arm in enumerate(arms)}
    texts = []
    with blank(2.7 + 0.2 * -(-len(arms) // 4)) as figure:
        panels = {part: axes_at(figure, 0.62 + 4.1 * i, 0.5, 3.6, 1.9) for i, part in enumerate(LINES)}
        legend(figure, [(s, s.label) for s in series.values()], (0.045, 1.0), ncols=4)
        for part, ax in panels.items():
            for arm in arms:
                some = [run for run in runs if run.arm == arm]
                at = some[0].parts[part]["at"]
                alike = [run for run in some if np.array_equal(run.parts[part]["at"], at)]
                means = [np.mean([run.parts[part][split] for run in alike], axis=0) for split in some[0].splits]
                for loss, dash in zip(means, ("-", "--"), strict=True):
                    ax.plot(at, loss, dash, color=series[arm].colour, linewidth=1.3)
                ends = ", ".join(f"{x:g}: {loss:.2f}" for x, loss in zip(at, means[0], strict=True) if x in (at[0], 0, 1, at[-1]))
                texts.append(f"{arm}, {part}: {ends}")
            ax.set_xlabel(LINES[part])
        next(iter(panels.values())).set_ylabel("loss")
        svg = svg_of(figure, f"surface-lines-{kind}")
    return Drawing(svg, f"{kind}, training loss. {'; '.join(texts)}.")


def plane_figure(runs: Sequence[SurfaceRun], part: str, kind: str) -> Drawing:
    """A panel a start, three in a row, with the same contours."""
    rows = -(-len(runs) // 3)
    losses = [run.parts[part][run.splits[0]] for run in runs]
    low, high = max(min(float(x.min()) for x in losses), 1e-3), max(max(float(x.max()) for x in losses), 2e-3)
    levels = np.geomspace(low, high, LEVELS)
    texts = []
    with blank(rows * (SIDE + GAP + 0.15) + 0.1) as figure:
        for n, (run, loss) in enumerate(zip(runs, losses, strict=True)):
            row, column = divmod(n, 3)
            ax = axes_at(figure, 0.5 + column * (SIDE + GAP), 0.45 + (rows - 1 - row) * (SIDE + GAP + 0.15), SIDE, SIDE)
            x, y = run.parts[part]["x"], run.parts[part]["y"]
            drawn = ax.contour(x, y, np.maximum(loss, 1e-4), levels=levels, cmap="viridis", linewidths=1.0)
            ax.clabel(drawn, fmt=lambda v: f"{v:.2g}", fontsize=6, colors=MUTED)
            ends = (1.0, 0.0) if part == "path-plane" else (0.0, 0.0)
            ax.plot(*ends, marker="+", color=INK, markersize=8)
            if part == "path-plane":
                ax.plot(0.0, 0.0, marker="o", markerfacecolor="none", color=INK, markersize=6)
            ax.grid(False)
            ax.set_title(f"{shortened(run.arm)}, seed {run.seed}", loc="left", fontsize=8)
            texts.append(f"{run.arm} {float(loss.min()):.2f} to {float(loss.max()):.2f}")
        svg = svg_of(figure, f"surface-{part}-{kind}")
    return Drawing(svg, f"{kind}, training loss, least to greatest in the plane. {'; '.join(texts)}.")
