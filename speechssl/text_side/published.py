"""What the lectures and papers have beside what is measured here.

Gains of 2109.03537 are a bar chart (GLUE, points over training from scratch, an axis from 0 to 25) whose bars the lecture describes
in words; no number is read off it here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from speechssl.text_side.data import dependency

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

SYMBOL_PAPER = "arXiv 2103.07162"
SYMBOL_TITLE = "BERT on other symbols"
SYMBOL_ARMS = ("specific", "bert", "re-emb", "random")  # the lecture's last is called rand
SYMBOLS = {  # task -> arm -> score in percent, Spearman's correlation for stability and fluorescence
    task: dict(zip(SYMBOL_ARMS, scores, strict=True))
    for task, scores in {
        "localisation": (69.0, 64.8, 63.3, 58.6),
        "stability": (76.0, 74.5, 75.4, 65.8),
        "fluorescence": (63.0, 63.7, 37.3, 27.5),
        "h3": (87.3, 83.0, 78.5, 75.6),
        "h4": (87.3, 86.2, 83.7, 66.5),
        "h3k9ac": (79.1, 78.3, 76.3, 72.8),
        "splice": (94.1, 97.5, 95.6, 95.0),
        "composer": (None, 55.2, 55.2, 36.0),
    }.items()
}
SYMBOL_NOTE = f"Published: {SYMBOL_PAPER}, BERT base; specific: made for the field, here MLM on the train split's own sequences."

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


TWIST = "arXiv 2305.13009"
PERPLEXITY, NATS = "perplexity", "nats"  # metrics that are not shares
SPOT_THE_WORD, SAME_DIFFERENT, SAME_NON_WORD, FEW_SHOT = "spot-the-word", "same-different", "same-non-word", "few-shot"
UNIT_LM = {  # task -> what the paper has of it: a text-pre-trained start against a random one
    PERPLEXITY: "lower",
    SPOT_THE_WORD: "higher (sWUGGY)",
    SAME_DIFFERENT: None,
    SAME_NON_WORD: None,
    FEW_SHOT: None,
}
UNIT_LM_NOTE = f"Published: the direction that {TWIST} reports, for models of published size on audio books."

SURFACE = "surface"  # ends the name of a task
END_TRAIN, END_DEV, HILL, RISE = "loss-train", "loss-dev", "hill", "rise"  # the measures of one
SURFACES = {
    END_TRAIN: "loss at the end, training",
    END_DEV: "loss at the end, dev",
    HILL: "hill on the path",
    RISE: "rise around it",
}
SURFACE_NOTE = (
    "Nats, of windows. Hill: how far the loss on the way from start to end lies above the straight line between its ends; rise: "
    "how far it rises along a filter-normalised random direction; both are means over the line, on training windows. "
    "Published: from a pre-trained start the end lies in a wider valley, and the way there has no hill "
    "(arXiv 1908.05620, BERT on GLUE, pictures)."
)


def is_surface(task: str) -> bool:
    """Whether a task is a measure of a loss surface."""
    return task.partition("-")[2].removeprefix("qa-") in SURFACES and task.startswith(("dual-", "text-qa-"))


def has_own_table(task: str) -> bool:
    """Tasks that neither the scores nor the mean of the tasks has."""
    return task in FROZEN or task in UNIT_LM or is_surface(task)


def family(arm: str) -> str:
    """The kind of data without its number: shuffle of shuffle-64."""
    return re.sub(r"-\d+$", "", arm)


def in_order(arms: Iterable[str]) -> list[str]:
    """Those of the lecture's chart in its order, shorter dependencies first, then the others."""
    order = list(ARTIFICIAL)
    place = {arm: order.index(family(arm)) if family(arm) in order else len(order) for arm in arms}
    return sorted(place, key=lambda arm: (place[arm], dependency(arm) or 0, arm))
