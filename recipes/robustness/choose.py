"""Print the table of choose.sh: an arm a row, its scores on the dev splits in clean speech and in
the noise at 5 dB that is called `dev`, and the arm that is chosen.

The criterion, stated before anything was trained:

    the highest mean over KS, IC, SID, style and DUAL, all with the same weight, of the scores on
    the dev splits in the noise `dev` at 5 dB,
    among the arms whose mean in clean speech is at most 1 point below that of the encoder that
    training starts from;
    of means that are equal to one decimal, the arm with the lowest unit edit distance (UED) in
    that noise.

Where only some tasks were evaluated (EVAL_TASKS of choose.sh), the mean is over these, and the
table shows no others. UED is not in the mean: it compares an encoder with itself. The difference
from `base` has a 95 % interval of the paired cluster bootstrap (voices that several tasks share are
drawn in all of them together), which is not corrected for the number of arms.

python recipes/robustness/choose.py EXP CONFIG
    reads EXP/ARM/dev/scores; CONFIG: choose.yaml, for what an arm changes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from speechssl.artifacts import read_json
from speechssl.cli import run_program
from speechssl.errors import InputError
from speechssl.eval.degradation import draw_together
from speechssl.eval.predict import read_items
from speechssl.results import Table, describe_drawn, format_interval
from speechssl.stats import Estimate, ItemScore, average_estimates, combine_estimates

TASKS = ("ks acc", "ic acc", "sid acc", "style acc", "dual ff1")  # whose mean decides
UED = "units unit_error"
# task -> what the bootstrap draws beside voices
RESAMPLED_BY = dict.fromkeys((*TASKS, UED), "recording") | {"dual ff1": "passage"}
START, BASE = "start", "base"  # arms: the encoder that training starts from; the usual settings
CLEAN, NOISY = "clean", "unseen-dev"  # conditions
GREATEST_LOSS = 1.0  # points that an arm may lose in clean speech


class Cell(NamedTuple):
    """A cell has one score."""

    arm: str
    task: str  # of TASKS, or UED
    condition: str  # CLEAN or NOISY


Scores = Mapping[Cell, Estimate]


@dataclass(frozen=True)
class Arm:
    """An arm is an encoder trained with other settings, summed up in percent."""

    name: str
    pairs: Mapping[str, tuple[float, float]]  # task -> score in clean speech and in noise
    clean: float  # mean over tasks in clean speech
    noisy: float  # mean over tasks in noise
    ued: float  # unit edit distance in noise
    difference: Estimate | None  # noisy - that of `base`, paired; None where there is no other arm


def read_scores(exp: Path) -> Scores:
    """Read the items of every task, and resample them together for all arms. Raises InputError
    where there are none, or an arm lacks a task of another."""
    items_of: dict[str, dict[Cell, list[ItemScore]]] = {task: {} for task in (*TASKS, UED)}
    # ARM/dev: results.jsonl and scores/ARM/TASK/CONDITION.parquet, of `evaluate robustness`
    arms = [path.parent.parent.name for path in sorted(exp.glob("*/dev/results.jsonl"))]
    if START not in arms:
        raise InputError(
            f"{exp} has no scores of the arm {START}; evaluate it: bash "
            f"recipes/robustness/choose.sh {exp} evaluate {START}"
        )
    for arm in arms:
        for path in sorted((exp / arm / "dev" / "scores" / arm).glob("*/*.parquet")):
            items, card = read_items(path)
            cell = Cell(arm, f"{card['task']} {card['metric']}", card["condition"])
            if cell.task in items_of and cell.condition in (CLEAN, NOISY):
                items_of[cell.task][cell] = [ItemScore(**item) for item in items]
    evaluated = {task: cells for task, cells in items_of.items() if cells}
    for arm in arms:
        for task, cells in evaluated.items():
            if not {Cell(arm, task, CLEAN), Cell(arm, task, NOISY)} <= set(cells):
                raise InputError(
                    f"the arm {arm} has not been evaluated in {task}; run "
                    f"choose.sh {exp} evaluate {arm} again"
                )
    return draw_together(evaluated, {task: RESAMPLED_BY[task] for task in evaluated})


def average_tasks(arm: str, condition: str, scores: Scores) -> Estimate:
    """Return the mean over the tasks of TASKS that were evaluated."""
    evaluated = {cell.task for cell in scores}
    return average_estimates(
        [scores[Cell(arm, task, condition)] for task in TASKS if task in evaluated]
    )


def summarise_arm(name: str, scores: Scores) -> Arm:
    """Return the arm with its means over tasks, and its difference from `base`."""
    noisy = average_tasks(name, NOISY, scores)
    difference = None
    if name != BASE and Cell(BASE, UED, NOISY) in scores:
        base = average_tasks(BASE, NOISY, scores)
        difference = combine_estimates(lambda a, b: 100 * (a - b), noisy, base)
    evaluated = {cell.task for cell in scores}
    pairs = {}
    for task in TASKS:
        if task in evaluated:
            clean_score = scores[Cell(name, task, CLEAN)]
            noisy_score = scores[Cell(name, task, NOISY)]
            pairs[task] = (100 * clean_score.value, 100 * noisy_score.value)
    return Arm(
        name=name,
        pairs=pairs,
        clean=100 * average_tasks(name, CLEAN, scores).value,
        noisy=100 * noisy.value,
        ued=100 * scores[Cell(name, UED, NOISY)].value,  # units are always evaluated
        difference=difference,
    )


def choose(arms: Sequence[Arm]) -> Arm | None:
    """Choose an arm by the criterion; None where every arm loses too much in clean speech."""
    (start,) = [arm for arm in arms if arm.name == START]
    allowed = [
        arm for arm in arms if arm.name != START and arm.clean >= start.clean - GREATEST_LOSS
    ]
    return min(allowed, key=lambda arm: (-round(arm.noisy, 1), arm.ued), default=None)


def describe_change(name: str, sections: Mapping[str, Any], exp: Path) -> str:
    """Return the settings of an arm that differ from `base`'s, and its training steps."""
    if name == START:
        return "not trained"
    base = sections[BASE]
    settings = []
    for option, value in sections[name].items():
        if value != base.get(option):
            settings.append(f"{option} {value}")
    steps = read_json(exp / name / "encoder" / "card.json")["training"]["steps"]
    return ", ".join([*settings, f"{steps} steps"])


def make_table(arms: Sequence[Arm], sections: Mapping[str, Any], exp: Path) -> Table:
    """Lay the arms, a row each, against their scores; the chosen one is bold."""
    chosen = choose(arms)
    rows = []
    for arm in arms:
        pairs = (*arm.pairs.values(), (arm.clean, arm.noisy))
        cells = (f"{clean:.1f} · {noisy:.1f}" for clean, noisy in pairs)
        name = f"**{arm.name}**" if arm is chosen else arm.name
        difference = format_interval(arm.difference.interval if arm.difference else None, "+")
        change = describe_change(arm.name, sections, exp)
        rows.append((name, change, *cells, difference, f"{arm.ued:.1f}"))
    verdict = f"No arm is at most {GREATEST_LOSS:g} point below the start in clean speech."
    if chosen:
        verdict = f"Chosen: {chosen.name}."
    heads = (*arms[0].pairs, "mean", "against base, dev noise", "UED")
    note = f"Clean · dev noise at 5 dB, dev splits. {verdict}"
    return Table("", ("arm", "in the place of base's", *heads), tuple(rows), note)


def main(exp: Path, config: Path) -> None:
    scores = read_scores(exp)
    sections = yaml.safe_load(config.read_text(encoding="utf-8"))
    order = [START, *sections]
    names = sorted({cell.arm for cell in scores}, key=order.index)
    arms = [summarise_arm(name, scores) for name in names]
    print(make_table(arms, sections, exp).markdown)
    print(describe_drawn((cell.task, e.unit, e.groups) for cell, e in scores.items()))


if __name__ == "__main__":
    run_program(main)
