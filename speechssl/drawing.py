"""The look of all figures: of the report's pages, and of the pictures of units."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechssl.io import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, RULE, PAPER = "#1d2127", "#69707a", "#d9dde3", "#fffffe"
STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a system may be called "a$b$"
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "legend.frameon": False,
}


@contextmanager
def styled(**more: Any) -> Iterator[type[Figure]]:
    """Within the block figures look alike, whatever the user's own settings are. more: rcParams, with _ for the dots. Gives the
    class of figures.
    """
    import matplotlib  # slow to import
    from matplotlib.figure import Figure

    given = {name.replace("_", ".", 1): value for name, value in more.items()}
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, "backend": matplotlib.rcParams["backend"], **STYLE, **given}):
        yield Figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a .png, .svg or .pdf file, whole or not at all; the same figure gives the same bytes."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
