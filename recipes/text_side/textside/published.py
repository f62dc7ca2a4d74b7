"""What Hung-yi Lee's lectures and papers have, and whether what was run agrees: the difference of
two starts that is claimed, on the same seeds and items.

Gains of arXiv 2109.03537 are a bar chart (GLUE, points over training from scratch, an axis from 0
to 25) whose bars the lecture describes in words; no number is read off it here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from speechssl.results import Table, interval_text
from speechssl.stats import mean_estimate
from textside.data import dependency
from textside.runs import DECIMALS, PERPLEXITY, Run, cells_of, estimate, shown

# ---- what is published

AGREEMENT = "What agrees with the lectures"  # a table
MARGIN, MARGIN_NATS = 2.0, 0.2  # points and nats: what is less is taken for nothing
GAIN = "gain"  # metric
SCRATCH = "scratch"  # the arm from random weights
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
NOTE = (
    f"Published: as the lecture describes the chart of {PAPER}, on GLUE, with encoders of "
    "published size."
)

SYMBOL_PAPER = "arXiv 2103.07162"
SYMBOL_TITLE = "BERT on other symbols"
SYMBOL_ARMS = ("specific", "bert", "re-emb", "random")  # the lecture's last is called rand
# task -> arm -> score in percent, Spearman's correlation for stability and fluorescence
SYMBOLS = {
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
SYMBOL_NOTE = (
    f"Published: {SYMBOL_PAPER}, BERT base; specific: made for the field, here MLM on "
    "the train split's own sequences."
)

DUAL_NOTE = (
    "Published (DUAL, arXiv 2203.04911, NMSQA dev): FF1 54.2 with text pre-training, 6.1 "
    "from random weights."
)

FROZEN_PAPER = "arXiv 2103.05247"
FROZEN: dict[str, dict[str, float | None]] = {  # task -> arm -> accuracy in percent
    "bit-memory": {"frozen": 100.0, "statistics": 100.0, "default": 75.8, "full": None},
    "bit-xor": {"frozen": 100.0, "statistics": 100.0, "default": 100.0, "full": None},
    "listops": {"frozen": 38.4, "statistics": 37.4, "default": 34.3, "full": None},
    "digits": {"frozen": None, "statistics": None, "default": None, "full": None},
    "mnist": {"frozen": 98.0, "statistics": 97.2, "default": 91.7, "full": None},
    "cifar-10": {"frozen": 72.1, "statistics": 56.5, "default": 61.7, "full": 70.3},
}
COPY, VOTE, OUTER, NEAREST, MAJORITY = (
    "copy-shown",
    "copy-and-vote",
    "outer-operator",
    "nearest-mean",
    "majority",
)
FLOORS = {  # arms that are no encoder -> what they answer
    MAJORITY: "at every place the commonest answer of training",
    COPY: "the bits that are shown, 0 where they are masked",
    VOTE: "the bits that are shown, where they are masked those that most of the strings have",
    OUTER: "the outer operator over all digits, brackets ignored",
    NEAREST: "the class whose mean training image is nearest",
}
FROZEN_NOTE = f"Published: {FROZEN_PAPER}, GPT-2 of 12 layers, tasks of the paper's size."

# what tasks of languages begin with
ALIGNMENT, CONVERTED, PRECISION = "alignment", "converted", "precision"
OTHER_LANGUAGE = re.compile(r"text-qa (?!en$)")  # written question answering in it
ZERO_SHOT = re.compile(r"(?!mandarin)[^~]+(?<!\.zero-mean)")  # readers of English, without a shift

CROSS_PAPER = "arXiv 1909.09587, SQuAD and DRCD"
CROSS: dict[str, tuple[float, float]] = {  # reader, trained on -> EM, F1 on Chinese
    "QANet, Chinese": (66.1, 78.1),
    "Chinese BERT, Chinese": (82.0, 89.1),
    "mBERT, Chinese": (81.2, 88.7),
    "mBERT, English": (63.3, 78.8),
    "mBERT, both": (82.6, 90.1),
}
# shift before transfer -> part-of-speech tagging, parsing (arXiv 2010.10041)
SHIFTED: dict[str, tuple[float, float]] = {
    "none": (66.9, 50.8),
    "zero-mean": (67.5, 51.2),
    "mean-difference": (67.8, 51.0),
}


def of_languages(task: str) -> bool:
    """Whether it is about several languages, and stands in tables of its own."""
    return task.startswith((f"{ALIGNMENT}-", f"{CONVERTED}-", f"{PRECISION}-")) or bool(
        OTHER_LANGUAGE.match(task)
    )


TWIST = "arXiv 2305.13009"
SPOT_THE_WORD, SAME_DIFFERENT, SAME_NON_WORD, FEW_SHOT = (
    "spot-the-word",
    "same-different",
    "same-non-word",
    "few-shot",
)
UNIT_LM = {  # task -> what the paper has of it: a text-pre-trained start against a random one
    PERPLEXITY: "lower",
    SPOT_THE_WORD: "higher (sWUGGY)",
    SAME_DIFFERENT: None,
    SAME_NON_WORD: None,
    FEW_SHOT: None,
}
UNIT_LM_NOTE = (
    f"Published: the direction that {TWIST} reports, for models of published size on audio books."
)

SURFACE = "surface"  # ends the name of a task
READERS = ("dual", "text-qa")  # begins the name of a measure
END_TRAIN, END_DEV, HILL, RISE = "loss-train", "loss-dev", "hill", "rise"  # the measures of one
SURFACES = {
    END_TRAIN: "loss at the end, training",
    END_DEV: "loss at the end, dev",
    HILL: "hill on the path",
    RISE: "rise around it",
}
SURFACE_NOTE = (
    "Nats, of windows. Hill: how far the loss on the way from start to end lies above the "
    "straight line between its ends; rise: "
    "how far it rises along a filter-normalised random direction; both are means over the line, "
    "on training windows. "
    "Published: from a pre-trained start the end lies in a wider valley, and the way there has "
    "no hill "
    "(arXiv 1908.05620, BERT on GLUE, pictures)."
)


def has_own_table(task: str) -> bool:
    """Tasks that neither the scores nor the mean of the tasks has: of the frozen transformer, of
    language models of units, and the measures of a loss surface.
    """
    return (
        task in FROZEN
        or task in UNIT_LM
        or task in {f"{kind}-{name}" for kind in READERS for name in SURFACES}
    )


def family(arm: str) -> str:
    """The kind of data without its number: shuffle of shuffle-64."""
    return re.sub(r"-\d+$", "", arm)


def in_order(arms: Iterable[str]) -> list[str]:
    """Those of the lecture's chart in its order, shorter dependencies first, then the others."""
    order = list(ARTIFICIAL)
    place = {arm: order.index(family(arm)) if family(arm) in order else len(order) for arm in arms}
    return sorted(place, key=lambda arm: (place[arm], dependency(arm) or 0, arm))


# ---- what agrees


class Claim(NamedTuple):
    """sign: 1, `arm` has more than `over` in the mean of `tasks`; -1, less; 0, no more. over: ""
    compares with nothing."""

    part: int
    says: str
    published: str
    tasks: tuple[str, ...]
    arm: str
    over: str
    sign: int


def claims_of(cells: Mapping[tuple[str, str], Sequence[Run]]) -> Iterator[Claim]:
    """What the lectures say of the tasks that were run. cells: task, arm -> its runs."""
    tasks = list(dict.fromkeys(task for task, _ in cells))
    symbols = [task for (task, _), (run, *_) in cells.items() if run.symbols]
    text = tuple(
        t
        for t in tasks
        if not (t in ("dual", "text-qa", *symbols) or has_own_table(t) or of_languages(t))
    )
    most, grows = ARTIFICIAL["nested"], "the gain grows with the length"
    yield Claim(1, "random ids gain nothing", ARTIFICIAL["random"], text, "random", SCRATCH, 0)
    yield Claim(1, "nested pairs gain", most, text, "nested", SCRATCH, 1)
    yield Claim(1, "flat pairs gain", most, text, "flat-4", SCRATCH, 1)
    yield Claim(1, "shuffled runs gain", most, text, "shuffle-64", SCRATCH, 1)
    yield Claim(1, "longer shuffled runs gain more", grows, text, "shuffle-64", "shuffle-4", 1)
    yield Claim(1, "text gains", ARTIFICIAL["english"], text, "english", SCRATCH, 1)
    yield Claim(
        1,
        "DUAL needs pre-training on text",
        "54.2 against 6.1 (NMSQA)",
        ("dual",),
        "text",
        "text.scratch",
        1,
    )
    for task in dict.fromkeys(symbols):
        for arm in ("bert", "re-emb"):
            yield Claim(
                2,
                "text layers help with other symbols",
                _both(SYMBOLS, task, arm, "random"),
                (task,),
                arm,
                "random",
                1,
            )
    for task, published in FROZEN.items():
        for arm in ("default", "statistics"):
            # else there is nothing to agree with
            if published["frozen"] is None or published["frozen"] != published[arm]:
                says = ("frozen text layers compute more than ") + (
                    "untrained ones" if arm == "default" else "their statistics"
                )
                yield Claim(3, says, _both(FROZEN, task, "frozen", arm), (task,), "frozen", arm, 1)
        if floor := best_floor(cells, task):
            yield Claim(
                3,
                "frozen text layers compute more than what needs no encoder",
                "–",
                (task,),
                "frozen",
                floor,
                1,
            )
    layers = [
        task
        for task in tasks
        if re.fullmatch(rf"{ALIGNMENT}-\d+", task) and (task, "bilingual") in cells
    ]
    if layers:
        best = max(layers, key=lambda task: estimate(cells[task, "bilingual"]).value)
        says = "an encoder of two languages has translations close to each other (its best layer)"
        yield Claim(4, says, "a chart", (best,), "bilingual", "random-weights", 1)
    for task, reader in filter(
        lambda cell: OTHER_LANGUAGE.match(cell[0]) and ZERO_SHOT.fullmatch(cell[1]), cells
    ):
        itself = "mandarin" if reader == "bilingual" else f"mandarin.{reader}"
        yield Claim(
            4,
            "training on the language itself is better than zero-shot",
            "88.7 against 78.8",
            (task,),
            itself,
            reader,
            1,
        )
        for arm, shift in (
            (f"{reader}~mean-difference", "mean-difference"),
            (f"{reader}.zero-mean~zero-mean", "zero-mean"),
        ):
            tagging = f"{SHIFTED[shift][0]} against {SHIFTED['none'][0]} (tagging)"
            yield Claim(4, f"the {shift} shift helps transfer", tagging, (task,), arm, reader, 1)
    text_start = "a text start is better than a random one"
    yield Claim(6, text_start, f"lower ({TWIST})", (PERPLEXITY,), "text", SCRATCH, -1)
    yield Claim(6, text_start, f"higher (sWUGGY, {TWIST})", (SPOT_THE_WORD,), "text", SCRATCH, 1)
    for kind in READERS:
        for arm in ("english", "text"):
            yield Claim(
                7,
                "from a text start the end lies in a wider valley",
                "pictures",
                (f"{kind}-{RISE}",),
                arm,
                SCRATCH,
                -1,
            )
            yield Claim(
                7,
                "from a text start there is no hill on the way",
                "pictures",
                (f"{kind}-{HILL}",),
                arm,
                "",
                0,
            )


def best_floor(cells: Mapping[tuple[str, str], Sequence[Run]], task: str) -> str:
    """The floor with the highest score; "" where none was scored."""
    floors = [arm for arm in FLOORS if (task, arm) in cells]
    return max(floors, key=lambda arm: estimate(cells[task, arm]).value, default="")


def above_floor(
    cells: Mapping[tuple[str, str], Sequence[Run]], task: str, arm: str, seed: int
) -> bool:
    """Whether the interval of the difference says so; true where there is no floor."""
    floor = best_floor(cells, task)
    if not floor or not {run.seed for run in cells[task, arm]} & {
        run.seed for run in cells[task, floor]
    }:
        return True
    low = estimate(cells[task, arm], cells[task, floor], seed).interval.ends[0]
    return low is not None and low > 0


def _both(
    published: Mapping[str, Mapping[str, float | None]], task: str, arm: str, other: str
) -> str:
    values = [published.get(task, {}).get(name) for name in (arm, other)]
    return "–" if None in values else "{} against {}".format(*values)


def agreement(runs: Iterable[Run], seed: int = 0) -> list[Table]:
    """Every claim whose starts were run, with our figures and a verdict; none where there is no
    claim on what was run."""
    cells, rows = cells_of(runs), []
    for claim in claims_of(cells):
        scores, compared, tasks = [], [], []
        for task in claim.tasks:
            a, b = cells.get((task, claim.arm), []), cells.get((task, claim.over), [])
            common = {run.seed for run in a} & (
                {run.seed for run in b} if claim.over else {run.seed for run in a}
            )
            if common:
                a, b = ([run for run in cell if run.seed in common] for cell in (a, b))
                scores.append(estimate(a, seed=seed))
                compared.append(
                    (estimate(b, seed=seed), estimate(a, b, seed))
                    if claim.over
                    else (scores[-1], scores[-1])
                )
                tasks.append(task)
        if not tasks:
            continue
        metric = cells[tasks[0], claim.arm][0].metric
        digits = DECIMALS.get(metric, 1)
        first, second, gain = (
            shown(mean_estimate(each).interval, metric)
            for each in (scores, [b for b, _ in compared], [change for _, change in compared])
        )
        ours, arms = interval_text(gain, "+", digits=digits), claim.arm
        if claim.over:
            arms += f" against {claim.over}"
            ours = f"{first.value:.{digits}f} against {second.value:.{digits}f}: {ours}"
        judged = verdict(claim.sign, *gain.ends, MARGIN_NATS if metric in DECIMALS else MARGIN)
        task, floor = tasks[0], best_floor(cells, tasks[0])
        if floor and claim.over not in FLOORS and not above_floor(cells, task, claim.arm, seed):
            judged += f"; {claim.arm} is not above the floor {floor}"
        rows.append(
            (claim.part, claim.says, f"{', '.join(tasks)}: {arms}", claim.published, ours, judged)
        )
    note = (
        "Ours: score, and difference on the same seeds and items, with 95 % intervals, which "
        "decide. That there is nothing (no "
        f"gain, no hill) is confirmed where the interval ends below {MARGIN:g} points or "
        f"{MARGIN_NATS:g} nats. A score that "
        "is not above the floor of its task, by the interval of their difference, needs no encoder."
    )
    columns = ("part", "what the lectures say", "task: start", "published", "ours", "agrees?")
    return [Table(AGREEMENT, columns, tuple(rows), note)] if rows else []


def verdict(sign: int, low: float | None, high: float | None, margin: float = 0.0) -> str:
    """What the ends of a difference say of a claim: see `Claim`. margin: more than this is not
    nothing."""
    if low is None or high is None:
        return "no interval"
    if sign == 0:
        return "yes" if high < margin else "no" if low > 0 else "within the interval"
    low, high = sorted((sign * low, sign * high))
    return "yes" if low > 0 else "no, the other way round" if high < 0 else "within the interval"
