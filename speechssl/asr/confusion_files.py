"""`confusions.json`: a fitted model of a recogniser's errors on disk, with the card that says what it was fitted on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from speechssl.artefacts import read_json, write_json
from speechssl.asr.confusions import Confusions, Rates, Word
from speechssl.errors import InputError

KIND = "confusions"


def write_confusions(path: Path | str, model: Confusions, card: Mapping[str, Any]) -> None:
    """card: what it was fitted on."""
    values = {
        "kind": KIND,
        "card": dict(card),
        "language": model.language,
        "words": {w: [k.count, k.deleted, dict(k.taken_for)] for w, k in model.words.items()},
        "inserted": dict(model.inserted),
        "vocabulary": dict(model.vocabulary),
        "distances": list(model.distances),
        "rates": astuple(model.rates),
        "calibration": [[level, astuple(rates)] for level, rates in model.calibration],
    }
    write_json(path, values)


def read_confusions(path: Path | str) -> Confusions:
    """Raises InputError for a file that is missing, damaged, or something else."""
    values = read_json(path)
    try:
        if values["kind"] != KIND:
            raise ValueError(f"it is {values['kind']!r}")
        model = Confusions(
            str(values["language"]),
            {w: Word(int(n), int(gone), _counts(taken)) for w, (n, gone, taken) in values["words"].items()},
            _counts(values["inserted"]),
            _counts(values["vocabulary"]),
            tuple(map(float, values["distances"])),
            Rates(*map(float, values["rates"])),
            tuple((float(level), Rates(*map(float, rates))) for level, rates in values["calibration"]),
        )
        _check(model)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} does not hold a model of a recogniser's errors ({error}); fit one with `speechssl evaluate confusions`"
        ) from error
    return model


def confusions_card(path: Path) -> dict[str, Any]:
    """What a file was fitted on; nothing of a file that is something else. Raises InputError for one that is no JSON."""
    values = read_json(path)
    card = values.get("card") if isinstance(values, dict) and values.get("kind") == KIND else None
    return card if isinstance(card, dict) else {}


def _counts(values: Mapping[str, Any]) -> dict[str, int]:
    return {str(word): int(count) for word, count in values.items()}


def _check(model: Confusions) -> None:
    """Raises ValueError for what cannot be drawn from."""
    made = [rate for rates in (model.rates, *(r for _, r in model.calibration)) for rate in astuple(rates)]
    if not model.words or not model.rates.wer > 0:
        raise ValueError("it holds no errors")
    if not all(math.isfinite(x) and x >= 0 for x in (*made, *model.distances)):
        raise ValueError("a rate or distance is not a number of at least 0")
    counts = (
        *model.inserted.values(),
        *model.vocabulary.values(),
        *(n for w in model.words.values() for n in w.taken_for.values()),
    )
    if min(counts, default=1) < 1 or any(min(w.count, w.deleted) < 0 for w in model.words.values()):
        raise ValueError("a count is not positive")
    if (levels := [level for level, _ in model.calibration]) != sorted(levels):
        raise ValueError("its calibration is out of order")
