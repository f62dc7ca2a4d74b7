"""Judge whether our results agree with Hung-yi Lee's lectures. A claim compares two arms on the
same seeds and items, and the interval of their difference decides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from speechssl.results import Table, format_interval
from speechssl.stats import average_estimates
from textside import published as papers
from textside.runs import DECIMALS, Run, estimate, group_runs, in_percent, is_share

AGREEMENT = "What agrees with the lectures"  # title of the table
# a smaller difference counts as none: points of a share, nats of a loss
MARGIN, MARGIN_NATS = 2.0, 0.2
# arms of readers that were trained on English without a shift: "bilingual", not "mandarin",
# "bilingual.zero-mean" (trained with a shift) or "bilingual~zero-mean" (shifted when it reads)
ZERO_SHOT = re.compile(r"(?!mandarin)[^~]+(?<!\.zero-mean)")
Cells = Mapping[tuple[str, str], Sequence[Run]]  # task, arm -> its runs


class Claim(NamedTuple):
    """A claim of the lectures is that an arm scores more than another in the mean of some tasks."""

    part: int  # of the recipe
    says: str
    published: str
    tasks: Sequence[str]
    arm: str
    over: str  # the other arm; "": the score itself is compared with 0
    sign: int = 1  # 1: more; -1: less; 0: no more


def list_claims(cells: Cells) -> list[Claim]:
    """List the claims of the lectures about the tasks that were run, part by part."""
    tasks = list(dict.fromkeys(task for task, _ in cells))
    symbols = list(dict.fromkeys(task for (task, _), runs in cells.items() if runs[0].symbols))
    sentence_tasks = []
    for task in tasks:
        elsewhere = papers.has_own_table(task) or papers.is_of_languages(task)
        if task not in ("dual", "text-qa", *symbols) and not elsewhere:
            sentence_tasks.append(task)
    claims = [Claim(**({"tasks": sentence_tasks} | claim)) for claim in papers.CLAIMS]
    for task in symbols:
        for arm in ("bert", "re-emb"):
            says = "text layers help with other symbols"
            quoted = quote_both(papers.SYMBOLS, task, arm, "random")
            claims.append(Claim(2, says, quoted, (task,), arm, "random"))
    for task in papers.FROZEN:
        claims += list_frozen_claims(cells, task)
    claims += list_language_claims(cells, tasks)
    return sorted(claims, key=lambda claim: claim.part)


def list_frozen_claims(cells: Cells, task: str) -> list[Claim]:
    """List the claims about the frozen transformer on a task."""
    claims = []
    published = papers.FROZEN[task]
    for arm, what in (("default", "untrained ones"), ("statistics", "their statistics")):
        # where the published scores are equal nothing is claimed
        if published["frozen"] is None or published["frozen"] != published[arm]:
            says = f"frozen text layers compute more than {what}"
            quoted = quote_both(papers.FROZEN, task, "frozen", arm)
            claims.append(Claim(3, says, quoted, (task,), "frozen", arm))
    if floor := find_best_floor(cells, task):
        says = "frozen text layers compute more than what needs no encoder"
        claims.append(Claim(3, says, "–", (task,), "frozen", floor))
    return claims


def list_language_claims(cells: Cells, tasks: Sequence[str]) -> list[Claim]:
    """List the claims about alignment by layer, zero-shot transfer, and shifts of it."""
    claims = []
    aligned = [task for task in tasks if re.fullmatch(rf"{papers.ALIGNMENT}-\d+", task)]
    layers = [task for task in aligned if (task, "bilingual") in cells]
    if layers:
        best = max(layers, key=lambda task: estimate(cells[task, "bilingual"]).value)
        says = "an encoder of two languages has translations close to each other (its best layer)"
        claims.append(Claim(4, says, "a chart", (best,), "bilingual", "random-weights"))
    for task, zero_shot in cells:
        if not (papers.OTHER_LANGUAGE.match(task) and ZERO_SHOT.fullmatch(zero_shot)):
            continue
        mandarin = "mandarin" if zero_shot == "bilingual" else f"mandarin.{zero_shot}"
        says = "training on the language itself is better than zero-shot"
        claims.append(Claim(4, says, "88.7 against 78.8", (task,), mandarin, zero_shot))
        shifts = {"mean-difference": zero_shot, "zero-mean": f"{zero_shot}.zero-mean"}
        for shift, trained in shifts.items():
            tagging = f"{papers.SHIFTED[shift][0]} against {papers.SHIFTED['none'][0]} (tagging)"
            says, arm = f"the {shift} shift helps transfer", f"{trained}~{shift}"
            claims.append(Claim(4, says, tagging, (task,), arm, zero_shot))
    return claims


def quote_both(published: papers.Scores, task: str, arm: str, other: str) -> str:
    """Write "54.2 against 6.1" for two published scores; "–" where one is missing."""
    values = [published.get(task, {}).get(name) for name in (arm, other)]
    return "–" if None in values else "{} against {}".format(*values)


def find_best_floor(cells: Cells, task: str) -> str:
    """Return the floor with the highest score; "" where none was scored."""
    floors = [arm for arm in papers.FLOORS if (task, arm) in cells]
    return max(floors, key=lambda arm: estimate(cells[task, arm]).value, default="")


def is_above(runs: Sequence[Run], floor: Sequence[Run]) -> bool:
    """Return whether the interval of the difference is above 0; true without a seed in common."""
    if not {run.seed for run in runs} & {run.seed for run in floor}:
        return True
    low = estimate(runs, floor).interval.ends[0]
    return low is not None and low > 0


def judge_claims(runs: Iterable[Run]) -> list[Table]:
    """Judge every claim whose arms were run; no table where there is none."""
    cells = group_runs(runs)
    lines = [judge(claim, cells) for claim in list_claims(cells)]
    rows = [line for line in lines if line]
    note = (
        "Ours: score, and difference on the same seeds and items, with 95 % intervals, which "
        "decide. That there is nothing (no gain, no hill on the path of the loss) is confirmed "
        f"where the interval ends below {MARGIN:g} points or {MARGIN_NATS:g} nats. A score that is "
        "not above the floor of its task, by the interval of their difference, needs no encoder."
    )
    columns = ("part", "what the lectures say", "task: start", "published", "ours", "agrees?")
    return [Table(AGREEMENT, columns, tuple(rows), note)] if rows else []


def judge(claim: Claim, cells: Cells) -> tuple[int | str, ...] | None:
    """Return the line of a claim; None where its arms have no seed in common."""
    tasks: list[str] = []
    scores, other_scores, gains = [], [], []  # a score a task
    for task in claim.tasks:
        runs = cells.get((task, claim.arm), [])
        other_runs = cells.get((task, claim.over), [])
        if claim.over:
            common = {run.seed for run in runs} & {run.seed for run in other_runs}
            runs = [run for run in runs if run.seed in common]
            other_runs = [run for run in other_runs if run.seed in common]
        if runs:
            tasks.append(task)
            scores.append(estimate(runs))
            other_scores.append(estimate(other_runs) if claim.over else scores[-1])
            gains.append(estimate(runs, other_runs) if claim.over else scores[-1])
    if not tasks:
        return None
    metric = cells[tasks[0], claim.arm][0].metric
    digits = DECIMALS.get(metric, 1)
    ours = in_percent(average_estimates(scores), metric)
    other = in_percent(average_estimates(other_scores), metric)
    gain = in_percent(average_estimates(gains), metric)
    text = format_interval(gain, "+", digits=digits)
    arms = claim.arm
    if claim.over:
        arms += f" against {claim.over}"
        text = f"{ours.value:.{digits}f} against {other.value:.{digits}f}: {text}"
    margin = MARGIN if is_share(metric) else MARGIN_NATS
    judgement = decide_claim(claim.sign, *gain.ends, margin)
    # only tasks of the frozen transformer have floors, and their claims are about one task each
    floor = find_best_floor(cells, tasks[0])
    compares_floor = floor and claim.over not in papers.FLOORS
    if compares_floor and not is_above(cells[tasks[0], claim.arm], cells[tasks[0], floor]):
        judgement += f"; {claim.arm} is not above the floor {floor}"
    where = f"{', '.join(tasks)}: {arms}"
    return claim.part, claim.says, where, claim.published, text, judgement


def decide_claim(sign: int, low: float | None, high: float | None, margin: float) -> str:
    """Decide a claim by the interval of its difference. sign: of `Claim`. margin: a smaller
    difference counts as none."""
    if low is None or high is None:
        return "no interval"
    if sign == 0:
        if high < margin:
            return "yes"
        return "no" if low > 0 else "within the interval"
    low, high = sorted((sign * low, sign * high))
    if low > 0:
        return "yes"
    if high < 0:
        return "no, the other way round"
    return "within the interval"
