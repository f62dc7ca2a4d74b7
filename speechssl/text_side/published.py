"""What the lectures and papers have beside what is measured here.

Gains of 2109.03537 are a bar chart (GLUE, points over training from scratch, an axis from 0 to 25) whose bars the lecture describes
in words; no number is read off it here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from speechssl.text_side.streams import dependency

CONDITION = "text side"  # of the rows of this room
GAIN = "gain"  # metric
MEAN = "mean of the tasks"

PAPER = "arXiv 2109.03537"
ARTIFICIAL = {  # kind of data -> gain over scratch, in the order of the chart
    "random": "≈ 0",
    "unigram": "a few points",
    "bigram": "a few points",
    "nested": "most of English's",
    "flat": "most of English's",
    "shuffle": "most of English's",
    "english": "the most (the axis ends at 25)",
}
NOTE = f"Published: as the lecture describes the chart of {PAPER}, on GLUE, with encoders of published size."

FROZEN_PAPER = "arXiv 2103.05247"
FROZEN: dict[str, dict[str, float | None]] = {  # task -> arm -> accuracy in percent
    "bit-memory": {"frozen": 100.0, "statistics": 100.0, "default": 75.8, "full": None},
    "bit-xor": {"frozen": 100.0, "statistics": 100.0, "default": 100.0, "full": None},
    "listops": {"frozen": 38.4, "statistics": 37.4, "default": 34.3, "full": None},
    "digits": {"frozen": None, "statistics": None, "default": None, "full": None},
    "mnist": {"frozen": 98.0, "statistics": 97.2, "default": 91.7, "full": None},
    "cifar-10": {"frozen": 72.1, "statistics": 56.5, "default": 61.7, "full": 70.3},
}
FROZEN_NOTE = f"Published: {FROZEN_PAPER}, GPT-2 of 12 layers, tasks of the paper's size."

ALIGNMENT, CONVERTED, PRECISION = "alignment", "converted", "precision"  # what tasks of languages begin with
OTHER_LANGUAGE = re.compile(r"text-qa (?!en$)")  # written question answering in it

CROSS_PAPER = "arXiv 1909.09587, SQuAD and DRCD"
CROSS: dict[str, tuple[float, float]] = {  # reader, trained on -> EM, F1 on Chinese
    "QANet, Chinese": (66.1, 78.1),
    "Chinese BERT, Chinese": (82.0, 89.1),
    "mBERT, Chinese": (81.2, 88.7),
    "mBERT, English": (63.3, 78.8),
    "mBERT, both": (82.6, 90.1),
}
SHIFTED: dict[str, tuple[float, float]] = {  # shift before transfer -> part-of-speech tagging, parsing (arXiv 2010.10041)
    "none": (66.9, 50.8),
    "zero-mean": (67.5, 51.2),
    "mean-difference": (67.8, 51.0),
}


def of_languages(task: str) -> bool:
    """Whether it is about several languages, and stands in tables of its own."""
    return task.startswith((f"{ALIGNMENT}-", f"{CONVERTED}-", f"{PRECISION}-")) or bool(OTHER_LANGUAGE.match(task))


def family(arm: str) -> str:
    """The kind of data without its number: shuffle of shuffle-64."""
    return re.sub(r"-\d+$", "", arm)


def in_order(arms: Iterable[str]) -> list[str]:
    """Those of the lecture's chart in its order, shorter dependencies first, then the others."""
    order = list(ARTIFICIAL)
    place = {arm: order.index(family(arm)) if family(arm) in order else len(order) for arm in arms}
    return sorted(place, key=lambda arm: (place[arm], dependency(arm) or 0, arm))
