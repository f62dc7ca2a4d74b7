"""Draw the figure of every method, docs/methods/NAME.svg.

    python dev/method_figures.py

A figure is a grid of boxes and arrows between them. Parts that are trained are blue, parts that
stay as they are grey, and data has no frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

OUT = Path(__file__).parents[1] / "docs/methods"
WIDTH, HEIGHT = 138, 46  # of a box
GAP_X, GAP_Y = 40, 22
MARGIN = 16
LINE = 15  # between lines of text
COLOURS = {  # kind of a box: fill and frame
    "data": ("none", "none"),
    "frozen": ("#eceff3", "#8a93a0"),
    "trained": ("#dbe9fb", "#2b6cb0"),
}


@dataclass(frozen=True)
class Box:
    """A box stands for data or a part of a method.

    text: lines are separated by newlines. kind: of COLOURS. column, row: its place in the grid; 0.5
    lies between 0 and 1.
    """

    text: str
    kind: str
    column: float
    row: float

    @property
    def left(self) -> float:
        return MARGIN + self.column * (WIDTH + GAP_X)

    @property
    def top(self) -> float:
        return MARGIN + self.row * (HEIGHT + GAP_Y)


@dataclass(frozen=True)
class Figure:
    """A figure has boxes and arrows.

    arrows: numbers of the boxes that they come from and go to. note: a line below.
    """

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[tuple[int, int], ...]
    note: str = ""


def draw(figure: Figure) -> str:
    """Draw a figure as SVG on white, so that it can be read on a dark page too."""
    right = max(box.left for box in figure.boxes) + WIDTH + MARGIN
    bottom = max(box.top for box in figure.boxes) + HEIGHT + MARGIN
    parts = [draw_arrow(figure.boxes[a], figure.boxes[b]) for a, b in figure.arrows]
    parts += [draw_box(box) for box in figure.boxes]
    legend = "blue: trained; grey: stays as it is"
    for text in filter(None, (figure.note, legend)):
        parts.append(f'<text x="{MARGIN}" y="{bottom:g}" class="small">{escape(text)}</text>')
        bottom += LINE
    size = f'width="{right:g}" height="{bottom:g}" viewBox="0 0 {right:g} {bottom:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(figure.title)}</title>",
            "<style>text{font:13px sans-serif;fill:#1a202c}.small{font-size:11px;fill:#566}"
            "path{fill:none;stroke:#4a5568;stroke-width:1.4;marker-end:url(#head)}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" '
            'style="fill:#4a5568;stroke:none;marker-end:none"/></marker></defs>',
            '<rect width="100%" height="100%" rx="8" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def draw_box(box: Box) -> str:
    fill, frame = COLOURS[box.kind]
    lines = box.text.split("\n")
    x, y = box.left + WIDTH / 2, box.top + HEIGHT / 2 - LINE * (len(lines) - 1) / 2 + 4.5
    rectangle = (
        f'<rect x="{box.left:g}" y="{box.top:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
        f'fill="{fill}" stroke="{frame}"/>'
    )
    texts = [
        f'<text x="{x:g}" y="{y + i * LINE:g}" text-anchor="middle">{escape(line)}</text>'
        for i, line in enumerate(lines)
    ]
    return "".join([rectangle, *texts])


def draw_arrow(a: Box, b: Box) -> str:
    """Draw an arrow: down or up within a column, else from the right side to the left one."""
    if a.column == b.column:
        x = a.left + WIDTH / 2
        y1, y2 = (a.top + HEIGHT, b.top) if a.row < b.row else (a.top, b.top + HEIGHT)
        return f'<path d="M{x:g},{y1:g} L{x:g},{y2:g}"/>'
    x1, y1 = a.left + WIDTH, a.top + HEIGHT / 2
    x2, y2 = b.left, b.top + HEIGHT / 2
    middle = (x1 + x2) / 2
    return f'<path d="M{x1:g},{y1:g} C{middle:g},{y1:g} {middle:g},{y2:g} {x2:g},{y2:g}"/>'


FIGURES = {
    "units": Figure(
        "Units: clusters of an encoder's frames",
        (
            Box("speech\n16 kHz", "data", 0, 0),
            Box("HuBERT,\nlayer n", "frozen", 1, 0),
            Box("k-means,\nK clusters", "trained", 2, 0),
            Box("units, 50 a second\n7 7 7 31 31 12", "data", 3, 0),
            Box("merge repeats", "frozen", 4, 0),
            Box("7 31 12\nframes 3 2 1", "data", 5, 0),
        ),
        ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5)),
        "the run lengths keep the time: units become seconds again",
    ),
    "dual": Figure(
        "DUAL: a text BERT reads units",
        (
            Box("question,\nspoken", "data", 0, 0),
            Box("passage,\nspoken", "data", 0, 1),
            Box("HuBERT and\nk-means", "frozen", 1, 0.5),
            Box("units\nq … q [SEP] p … p", "data", 2, 0.5),
            Box("a word piece's\nvector for each unit", "trained", 3, 0.5),
            Box("BERT of text", "trained", 4, 0.5),
            Box("start and end,\nin seconds", "data", 5, 0.5),
        ),
        ((0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)),
        "no transcript on the way; windows of a long passage are read one by one",
    ),
    "text-teacher": Figure(
        "The text teacher: units learn to mean words",
        (
            Box("units of\na recording", "data", 0, 0),
            Box("DUAL's BERT", "trained", 1, 0),
            Box("mean over\na word's units", "frozen", 2, 0),
            Box("alike for the same\nword, unlike others", "data", 3, 0.5),
            Box("its text,\nwith word times", "data", 0, 1),
            Box("BERT of text", "frozen", 1, 1),
            Box("vector of the word\nin its sentence", "frozen", 2, 1),
        ),
        ((0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 3)),
        "before any question is asked; synthetic speech of any text will do",
    ),
    "cascade": Figure(
        "The cascade: recognise, then read",
        (
            Box("question and\npassage, spoken", "data", 0, 0.5),
            Box("HuBERT with a\nCTC head", "trained", 1, 0),
            Box("beam search with\nan n-gram", "trained", 2, 0),
            Box("or Whisper", "frozen", 1.5, 1),
            Box("words with times", "data", 3, 0.5),
            Box("BERT of text,\nspan head", "trained", 4, 0.5),
            Box("words, and their\nstart and end", "data", 5, 0.5),
        ),
        ((0, 1), (1, 2), (2, 4), (0, 3), (3, 4), (4, 5), (5, 6)),
    ),
    "speechbert": Figure(
        "SpeechBERT: a text BERT reads audio words",
        (
            Box("speech", "data", 0, 0.5),
            Box("HuBERT", "frozen", 1, 0),
            Box("recogniser: where\nwords begin and end", "frozen", 1, 1),
            Box("autoencoder:\na vector a word", "trained", 2, 0.5),
            Box("audio words", "data", 3, 0.5),
            Box("BERT of text", "trained", 4, 0.5),
            Box("start and end,\nin seconds", "data", 5, 0.5),
        ),
        ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 5), (5, 6)),
        "the words themselves are not used, only their borders",
    ),
    "choice": Figure(
        "Multiple choice: score every option",
        (
            Box("window of\nthe passage", "data", 0, 0),
            Box("question", "data", 0, 1),
            Box("option k", "data", 0, 2),
            Box("units, audio words\nor words", "frozen", 1, 1),
            Box("BERT of text,\none score", "trained", 2, 1),
            Box("softmax over\nthe options", "frozen", 3, 1),
            Box("the answer", "data", 4, 1),
        ),
        ((0, 3), (1, 3), (2, 3), (3, 4), (4, 5), (5, 6)),
    ),
    "pretraining": Figure(
        "Continual pre-training on noisy speech",
        (
            Box("speech", "data", 0, 0.5),
            Box("teacher's layer\nand its k-means", "frozen", 1, 0),
            Box("cluster of\nevery frame", "data", 2, 0),
            Box("add noise, a room,\nother speech", "frozen", 1, 1),
            Box("mask spans", "frozen", 2, 1),
            Box("encoder", "trained", 3, 1),
            Box("predict the cluster\nof masked frames", "trained", 4, 0.5),
        ),
        ((0, 1), (1, 2), (2, 6), (0, 3), (3, 4), (4, 5), (5, 6)),
        "targets are of the clean signal, inputs are distorted",
    ),
    "superb": Figure(
        "SUPERB: small heads on frozen features",
        (
            Box("speech", "data", 0, 0),
            Box("encoder: hidden\nstates of all layers", "frozen", 1, 0),
            Box("weighted sum\nover layers", "trained", 2, 0),
            Box("head of the task", "trained", 3, 0),
            Box("phones, words,\nspeaker, intent …", "data", 4, 0),
        ),
        ((0, 1), (1, 2), (2, 3), (3, 4)),
        "the weights say which layers a task uses",
    ),
}


if __name__ == "__main__":
    for name, figure in FIGURES.items():
        (OUT / f"{name}.svg").write_text(draw(figure), encoding="utf-8")
        print(OUT / f"{name}.svg")
