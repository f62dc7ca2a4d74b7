"""Continue the beginnings of recordings with a language model of units, as units; nothing is
synthesised."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import MISSING, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.artifacts import write_json
from speechssl.cli import script
from speechssl.errors import InputError
from speechssl.options import DEVICE, Amount, Count, Weight, Whole, argument, option
from speechssl.text import ngrams
from speechssl.timing import FrameGrid
from speechssl.units.storage import iterate_units, units_card
from textside.lm import UnitLm, load_unit_lm, utterances
from textside.options import ARM, RESULTS
from textside.runs import keep_decisive
from textside.tables import REAL, continuation_tables


@dataclass(frozen=True, kw_only=True)
class Continue:
    """continue the first seconds of recordings with a language model of units

    RESULTS/continuations/ARM-SEED.json has, for every recording and temperature, the units of the
    prompt, those that the model drew, and those that really followed. Printed are how sure the
    model was, how much it repeats itself, and how many of its runs of five units occur in
    UNITS/train, beside the same of what really followed.

      python recipes/text_side/continuations.py exp/lm-text units exp/text_side --arm text \\
        --prompt-seconds 3 --temperature 0.7 1.0
    """

    model: Path = argument("folder of `unit_lm.py`")
    units: Path = argument("folder of `speechssl units extract`")
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    split: str = option("test", "split of UNITS whose recordings begin")
    prompt_seconds: Amount = option(3.0, "length of the beginnings in seconds")
    temperature: tuple[Weight, ...] = option(
        (0.7, 1.0), "temperatures to draw at; 0: always the likeliest unit", least=1
    )
    count: Count = option(100, "units to draw at most")
    first: Count = option(
        20, "only the first N recordings of the split that are longer than the prompt"
    )
    seed: Whole = option(0, "seed of what is drawn")
    device: str = option("auto", DEVICE)


NGRAM = 5


def continue_recordings(o: Continue) -> None:
    """Write RESULTS/continuations/ARM-SEED.json, and print its tables.

    Raises InputError for units of another codebook, or recordings that are all shorter than the
    prompt.
    """
    lm = load_unit_lm(o.model)
    grid = FrameGrid(**units_card(o.units / o.split)["grid"])
    frames = grid.frames(round(o.prompt_seconds * grid.sample_rate))
    spoken = utterances(o.units / o.split, lm)
    long = [u for u in spoken if u.runs.frames > frames > 0][: o.first]
    if not long:
        raise InputError(
            f"no recording in {o.units / o.split} is longer than {o.prompt_seconds:g} s; give "
            "smaller --prompt-seconds"
        )
    seen: set[Hashable] = set()  # runs of NGRAM units in training
    for utterance in iterate_units(o.units / "train"):
        seen.update(ngrams(utterance.runs.units.tolist(), NGRAM))
    lines = []
    for number, utterance in enumerate(tqdm(long, desc="continuations", unit="recording")):
        units = utterance.runs.units
        cut = utterance.runs.unit_at(frames - 1) + 1
        if cut < len(units):
            line = continue_prompt(lm, units[:cut], units[cut : cut + o.count], seen, number, o)
            lines.append({"id": utterance.id} | line)
    seed = int(lm.card["options"]["training"]["seed"])
    card = {
        "arm": o.arm,
        "seed": seed,
        "options": keep_decisive(o) | {"model": o.model.name, "units": o.units.name},
        "weights": lm.card["weights"],
        "continuations": lines,
    }
    write_json(o.results / "continuations" / f"{o.arm}-{seed}.json", card)
    print("\n\n".join(table.text for table in continuation_tables([card])))


def continue_prompt(
    lm: UnitLm,
    prompt: np.ndarray,
    followed: np.ndarray,
    seen: set[Hashable],
    number: int,
    o: Continue,
) -> dict[str, Any]:
    """Draw what the model puts behind a prompt at every temperature, and measure it beside what
    really followed.

    prompt, followed: (U,) units. number: of the recording, for the seed.
    """
    by_temperature: dict[str, list[int]] = {}
    measured = {REAL: measure_continuation(lm, prompt, followed, seen)}
    for temperature in o.temperature:
        generator = torch.Generator().manual_seed(1_000_003 * o.seed + number)
        drawn = lm.generate(prompt, o.count, temperature, generator)
        by_temperature[f"{temperature:g}"] = drawn.tolist()
        if len(drawn):
            measured[f"{temperature:g}"] = measure_continuation(lm, prompt, drawn, seen)
    said = {"prompt": prompt.tolist(), "followed": followed.tolist()}
    return said | {"drawn": by_temperature, "measures": measured}


def measure_continuation(
    lm: UnitLm, prompt: np.ndarray, units: np.ndarray, seen: set[Hashable]
) -> dict[str, float | None]:
    """Return surprise, the mean negative log-likelihood in nats; and the shares of different pairs
    of units, and of known runs of NGRAM."""
    (scores,) = lm.log_probs([np.concatenate([prompt, units])])
    pairs = list(pairwise(map(int, units)))
    runs = ngrams(units.tolist(), NGRAM)
    return {
        "units": float(len(units)),
        "surprise": -float(scores[len(prompt) :].mean()),
        "different": len(set(pairs)) / len(pairs) if pairs else None,
        "known": sum(run in seen for run in runs) / len(runs) if runs else None,
    }


if __name__ == "__main__":
    sys.exit(script(continue_recordings, Continue))
