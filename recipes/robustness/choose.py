"""Print the table of choose.sh: an arm a row, its dev scores in clean speech and in the noise dev
at 5 dB, and the arm that is chosen.

The criterion, stated before anything was trained:

    the highest mean over KS, IC, SID, style and DUAL, all with the same weight, of the dev scores
    in the noise dev at 5 dB,
    among the arms whose mean in clean speech is at most 1 point below that of the encoder that
    training starts from;
    of means that print alike, the arm with the lowest unit edit distance in that noise.

Where only some tasks were evaluated (EVAL_TASKS of choose.sh), the mean is over these, and the
table shows no others. Units are not in the mean: they compare an encoder with itself. The
difference from `base` has a 95 % interval of the paired cluster bootstrap (voices that several
tasks share are drawn in all of them together), which is not corrected for the number of arms.

python recipes/robustness/choose.py EXP CONFIG
    reads EXP/ARM/dev/scores; CONFIG: choose.yaml, for what an arm changes
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from speechssl.artifacts import read_json
from speechssl.errors import InputError
from speechssl.eval.degradation import draw_together
from speechssl.eval.predict import read_items
from speechssl.results import Table, drawn_sentence, interval_text
from speechssl.stats import Estimate, ItemScore, combine_estimates, mean_estimate

TASKS = ("ks acc", "ic acc", "sid acc", "style acc", "dual ff1")  # whose mean decides
UNITS = "units unit_error"
# task -> the unit that is drawn with the voice, where it is not the recording itself
DRAWN_UNITS = {"dual ff1": "passage"}
START, BASE = "start", "base"  # arms: the encoder that training starts from; the usual settings
CLEAN, NOISY = "clean", "unseen-dev"  # conditions
GREATEST_LOSS = 1.0  # points that an arm may lose in clean speech
Scores = Mapping[tuple[str, str, str], Estimate]  # arm, task, condition


@dataclass(frozen=True)
class Arm:
    """An arm has scores in percent."""

    name: str
    cells: Mapping[str, tuple[float, float]]  # task -> clean, noisy
    clean: float  # mean over tasks
    noisy: float  # mean over tasks
    units: float  # unit edit distance in noise
    # of `noisy` from that of `base`, paired; None for `base` itself and without it
    difference: Estimate | None


def read_scores(exp: Path) -> Scores:
    """Read the items of every task, and resample them together for all arms. Raises InputError
    where there are none, or an arm lacks a task of another."""
    found: dict[str, dict[tuple[str, str, str], list[ItemScore]]] = {}
    arms = [path.parent.parent.name for path in sorted(exp.glob("*/dev/results.jsonl"))]
    if START not in arms:
        raise InputError(
            f"{exp} has no scores of the arm {START}; evaluate it: bash "
            f"recipes/robustness/choose.sh {exp} evaluate {START}"
        )
    for arm in arms:
        for path in sorted((exp / arm / "dev" / "scores" / arm).glob("*/*.parquet")):
            items, card = read_items(path)
            task = f"{card['task']} {card['metric']}"
            if task in (*TASKS, UNITS) and card["condition"] in (CLEAN, NOISY):
                cell = arm, task, card["condition"]
                found.setdefault(task, {})[cell] = [ItemScore(**item) for item in items]
    for arm, task, condition in product(arms, found, (CLEAN, NOISY)):
        if (arm, task, condition) not in found[task]:
            raise InputError(
                f"the arm {arm} has not been evaluated in {task}; run "
                f"choose.sh {exp} evaluate {arm} again"
            )
    found = {task: found[task] for task in (*TASKS, UNITS) if task in found}
    return draw_together(found, {task: DRAWN_UNITS.get(task, "recording") for task in found})


def list_tasks(scores: Scores) -> list[str]:
    """List the tasks of the mean."""
    return [task for task in TASKS if any(key[1] == task for key in scores)]


def arm_of(name: str, scores: Scores) -> Arm:
    """Return the arm with its means over tasks, and its difference from `base`."""
    tasks = list_tasks(scores)
    conditions = (CLEAN, NOISY)
    clean, noisy = (mean_estimate([scores[name, task, c] for task in tasks]) for c in conditions)
    difference = None
    if name != BASE and (BASE, UNITS, NOISY) in scores:
        base = mean_estimate([scores[BASE, task, NOISY] for task in tasks])
        difference = combine_estimates(lambda a, b: 100 * (a - b), noisy, base)
    cells = {task: tuple(100 * scores[name, task, c].value for c in conditions) for task in tasks}
    units = 100 * scores[name, UNITS, NOISY].value  # units are always evaluated
    return Arm(name, cells, 100 * clean.value, 100 * noisy.value, units, difference)


def choose(arms: Sequence[Arm]) -> Arm | None:
    """Choose an arm by the criterion; None where every arm loses too much in clean speech."""
    (start,) = [arm for arm in arms if arm.name == START]
    allowed = [
        arm for arm in arms if arm.name != START and arm.clean >= start.clean - GREATEST_LOSS
    ]
    return min(allowed, key=lambda arm: (-round(arm.noisy, 1), arm.units), default=None)


def describe_change(name: str, sections: Mapping[str, Any], exp: Path) -> str:
    """Return the settings of an arm that differ from `base`'s, and its training steps."""
    if name == START:
        return "not trained"
    mine, base = sections[name], sections[BASE]
    settings = [f"{option} {mine[option]}" for option in mine if mine[option] != base.get(option)]
    steps = read_json(exp / name / "encoder" / "card.json")["training"]["steps"]
    return ", ".join([*settings, f"{steps} steps"])


def table(arms: Sequence[Arm], sections: Mapping[str, Any], exp: Path) -> Table:
    """Lay the arms, a row each, against their scores; the chosen one is bold."""
    chosen = choose(arms)
    rows = []
    for arm in arms:
        pairs = (*arm.cells.values(), (arm.clean, arm.noisy))
        cells = (f"{clean:.1f} · {noisy:.1f}" for clean, noisy in pairs)
        name = f"**{arm.name}**" if arm is chosen else arm.name
        difference = interval_text(arm.difference.interval if arm.difference else None, "+")
        change = describe_change(arm.name, sections, exp)
        rows.append((name, change, *cells, difference, f"{arm.units:.1f}"))
    verdict = f"No arm is at most {GREATEST_LOSS:g} point below the start in clean speech."
    if chosen:
        verdict = f"Chosen: {chosen.name}."
    heads = (*arms[0].cells, "mean", "against base, dev noise", "UED")
    note = f"Clean · dev noise at 5 dB, dev splits. {verdict}"
    return Table("", ("arm", "in the place of base's", *heads), tuple(rows), note)


def main(exp: Path, config: Path) -> None:
    scores, sections = read_scores(exp), yaml.safe_load(config.read_text(encoding="utf-8"))
    order = [START, *sections]
    names = sorted({arm for arm, _, _ in scores}, key=order.index)
    print(table([arm_of(name, scores) for name in names], sections, exp).markdown)
    print(drawn_sentence((task, e.unit, e.groups) for (_, task, _), e in scores.items()))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except InputError as error:
        sys.exit(f"speechssl: {error}")
