"""How a language model of units goes on from the beginning of a recording, as units; nothing is synthesised.

Three measures of a continuation: the model's own perplexity of it; how many of its pairs of units are different ones, which falls
where it repeats itself; and how many of its runs of FIVE units occur in what occurs in training, beside the same of what really
followed, by the same model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.errors import InputError
from speechssl.io import write_json
from speechssl.results import Table
from speechssl.text_side.config import Continue
from speechssl.text_side.continued import REAL, tables
from speechssl.text_side.runs import arm_name
from speechssl.text_side.unit_lm import UnitLm, load_unit_lm, utterances
from speechssl.timing import FrameGrid
from speechssl.units.storage import iterate_units, units_card

FIVE = 5


def go_on(o: Continue) -> list[Table]:
    """Write RESULTS/continuations/ARM-SEED.json, and return its tables.

    Raises InputError for units of another codebook, or recordings that are all shorter than the prompt.
    """
    lm = load_unit_lm(o.model)
    recordings = utterances(o.units / o.split, lm, o.model)
    grid = FrameGrid(**units_card(o.units / o.split)["grid"])
    known = runs_of_five(u.runs.units for u in iterate_units(o.units / "train"))
    frames = grid.frames(round(o.prompt_seconds * grid.sample_rate))
    long = [u for u in recordings if u.runs.frames > frames > 0][: o.recordings]
    if not long:
        raise InputError(
            f"no recording in {o.units / o.split} is longer than {o.prompt_seconds:g} s; give smaller --prompt-seconds"
        )
    lines: list[dict[str, Any]] = []
    for number, utterance in enumerate(tqdm(long, desc="continuations", unit="recording")):
        units = utterance.runs.units
        cut = utterance.runs.unit_at(frames - 1) + 1
        prompt, followed = units[:cut], units[cut : cut + o.count]
        line: dict[str, Any] = {"id": utterance.id, "prompt": prompt.tolist(), "followed": followed.tolist(), "drawn": {}}
        if len(followed):
            line["measures"] = {REAL: measures(lm, prompt, followed, known)}
            for temperature in o.temperature:
                generator = torch.Generator().manual_seed(1_000_003 * o.seed + number)
                found = lm.go_on(prompt, o.count, temperature, generator)
                line["drawn"][f"{temperature:g}"] = found.tolist()
                if len(found):
                    line["measures"][f"{temperature:g}"] = measures(lm, prompt, found, known)
            lines.append(line)
    seed = int(lm.card["options"]["training"]["seed"])
    options = asdict(o) | {name: Path(getattr(o, name)).name for name in ("model", "units", "results")}
    made = {"arm": o.arm, "seed": seed, "options": options, "weights": lm.card["weights"], "continuations": lines}
    write_json(o.results / "continuations" / f"{arm_name(o.arm)}-{seed}.json", made)
    return tables([made])


def runs_of_five(spoken: Iterable[np.ndarray]) -> set[tuple[int, ...]]:
    return {tuple(map(int, units[i : i + FIVE])) for units in spoken for i in range(len(units) - FIVE + 1)}


def measures(lm: UnitLm, prompt: np.ndarray, units: np.ndarray, known: set[tuple[int, ...]]) -> dict[str, float | None]:
    """surprise: mean negative log-likelihood, in nats; different: of the pairs of units; known: of the runs of five."""
    (scores,) = lm.log_probs([np.concatenate([prompt, units])])
    pairs = list(pairwise(map(int, units)))
    runs = [tuple(map(int, units[i : i + FIVE])) for i in range(len(units) - FIVE + 1)]
    return {
        "units": float(len(units)),
        "surprise": -float(scores[len(prompt) :].mean()),
        "different": len(set(pairs)) / len(pairs) if pairs else None,
        "known": sum(run in known for run in runs) / len(runs) if runs else None,
    }
