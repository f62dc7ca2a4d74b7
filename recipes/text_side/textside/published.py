"""Name tasks, arms and measures, and read the results of Hung-yi Lee's lectures and of papers
(published.yaml)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import yaml

from textside.data import dependency_distance
from textside.runs import PERPLEXITY

_PUBLISHED = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

GAIN = "gain"  # a metric
MEAN = "mean of the tasks"  # a task

PAPER = "arXiv 2109.03537"
ARTIFICIAL: dict[str, str] = _PUBLISHED["artificial"]  # kind of data -> gain over scratch
NOTE = (
    f"Published: as the lecture describes the chart of {PAPER}, on GLUE, with encoders of "
    "published size."
)

Scores = dict[str, dict[str, float | None]]  # task -> arm -> percent
SYMBOL_PAPER = "arXiv 2103.07162"
SYMBOL_TITLE = "BERT on other symbols"
SYMBOLS: Scores = _PUBLISHED["symbols"]
SYMBOL_ARMS = tuple(SYMBOLS["h3"])
SYMBOL_NOTE = (
    f"Published: {SYMBOL_PAPER}, BERT base; specific: made for the field, here MLM on "
    "the train split's own sequences."
)

DUAL_NOTE = (
    "Published (DUAL, arXiv 2203.04911, NMSQA dev): FF1 54.2 with text pre-training, 6.1 "
    "from random weights."
)

FROZEN_PAPER = "arXiv 2103.05247"
FROZEN: Scores = _PUBLISHED["frozen"]
FROZEN_NOTE = f"Published: {FROZEN_PAPER}, GPT-2 of 12 layers, tasks of the paper's size."
MAJORITY, COPY, VOTE = "majority", "copy-shown", "copy-and-vote"
OUTER, NEAREST = "outer-operator", "nearest-mean"
FLOORS = {  # arms that are no encoder -> what they answer
    MAJORITY: "at every place the commonest answer of training",
    COPY: "the bits that are shown, 0 where they are masked",
    VOTE: "the bits that are shown, where they are masked those that most of the strings have",
    OUTER: "the outer operator over all digits, brackets ignored",
    NEAREST: "the class whose mean training image is nearest",
}

# beginnings of the tasks of languages
ALIGNMENT, CONVERTED, PRECISION = "alignment", "converted", "precision"
OTHER_LANGUAGE = re.compile(r"text-qa (?!en$)")  # "text-qa zh"
CROSS_PAPER = "arXiv 1909.09587, SQuAD and DRCD"
CROSS: dict[str, tuple[float, float]] = _PUBLISHED["cross"]  # reader -> EM, F1
SHIFTED: dict[str, tuple[float, float]] = _PUBLISHED["shifted"]  # shift -> tagging, parsing

SPOT_THE_WORD, SAME_DIFFERENT = "spot-the-word", "same-different"
SAME_NON_WORD, FEW_SHOT = "same-non-word", "few-shot"
UNIT_LM = {  # task -> result of TWIST: a text-pre-trained start against a random one
    PERPLEXITY: "lower",
    SPOT_THE_WORD: "higher (sWUGGY)",
    SAME_DIFFERENT: None,
    SAME_NON_WORD: None,
    FEW_SHOT: None,
}
UNIT_LM_NOTE = (
    "Published: the direction that arXiv 2305.13009 reports, for models of published size on "
    "audio books."
)

# a loss surface: "dual-surface" is its task, "dual-hill" a measure
SURFACE = "surface"
READERS = ("dual", "text-qa")
END_TRAIN, END_DEV, HILL, RISE = "loss-train", "loss-dev", "hill", "rise"
SURFACES = {  # measure -> column of the table
    END_TRAIN: "loss at the end, training",
    END_DEV: "loss at the end, dev",
    HILL: "hill on the path",
    RISE: "rise around it",
}
SURFACE_NOTE = (
    "Nats, of windows. Hill: how far the loss on the way from start to end lies above the "
    "straight line between its ends; rise: how far it rises along a filter-normalised random "
    "direction; both are means over the line, on training windows. Published: from a pre-trained "
    "start the end lies in a wider valley, and the way there has no hill (arXiv 1908.05620, BERT "
    "on GLUE, pictures)."
)

CLAIMS: list[dict] = _PUBLISHED["claims"]


def is_of_languages(task: str) -> bool:
    """Return whether a task is about several languages, and stands in tables of its own."""
    prefixes = (f"{ALIGNMENT}-", f"{CONVERTED}-", f"{PRECISION}-")
    return task.startswith(prefixes) or bool(OTHER_LANGUAGE.match(task))


def has_own_table(task: str) -> bool:
    """Return whether a task is in neither the table of scores nor the mean of the tasks: it is one
    of the frozen transformer or of language models of units, or a measure of a loss surface."""
    surfaces = {f"{kind}-{name}" for kind in READERS for name in SURFACES}
    return task in FROZEN or task in UNIT_LM or task in surfaces


def parse_family(arm: str) -> str:
    """Return the kind of data without its number: shuffle of shuffle-64."""
    return re.sub(r"-\d+$", "", arm)


def sort_arms(arms: Iterable[str]) -> list[str]:
    """Sort arms: those of the lecture's chart in its order, shorter dependencies first, then the
    others."""
    order = list(ARTIFICIAL)

    def rank(arm: str) -> tuple[int, int, str]:
        kind = parse_family(arm)
        place = order.index(kind) if kind in order else len(order)
        return place, dependency_distance(arm) or 0, arm

    return sorted(set(arms), key=rank)
