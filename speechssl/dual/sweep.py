"""--sweep: one training a learning rate, evaluated on held-out items; OUT becomes the best of them. For all readers.

OUT/sweep/learning-rate=1e-05 and so on are finished runs, which a killed sweep finds again. OUT gets a copy of the best, and is
then a run as any other, with the scores of all on its card.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from speechssl.dual.dev import SHOWN
from speechssl.errors import InputError
from speechssl.io import CARD, MADE_FROM, locked, read_json, write_json
from speechssl.processes import is_main, main_first

FOLDER = "sweep"


def learning_rates(sweep: str) -> list[float]:
    """Of `learning-rate=1e-5,3e-5,1e-4`, in their order. Raises InputError for anything else."""
    name, _, typed = sweep.partition("=")
    try:
        rates = [float(value) for value in typed.split(",")]
    except ValueError:
        rates = []
    if name.replace("_", "-") != "learning-rate" or not all(0 < rate < float("inf") for rate in rates) or not rates:
        raise InputError(f"--sweep {sweep} is no list of learning rates; write for example --sweep learning-rate=1e-5,3e-5,1e-4")
    return list(dict.fromkeys(rates))


def swept(out: Path, sweep: str | None, options: Any, train: Callable[[Path, Any], None]) -> None:
    """Train into `out`: once with these options, or once with every learning rate of the sweep.

    options: with `training` and `evaluation`, as `QaOptions`; train: folder, options -> a finished run in the folder.
    Raises InputError where `out` holds something else than a sweep, and what `train` raises.
    """
    begun, whole = (out / FOLDER).is_dir(), (out / MADE_FROM).is_file()
    if sweep is None:
        if begun and not whole:
            raise InputError(f"{out} holds a sweep that is not finished; give its --sweep, or choose another folder")
        train(out, options)
        return
    rates = learning_rates(sweep)
    if whole and not begun:
        raise InputError(f"{out} holds a run that is no sweep; choose another folder or delete it")
    every = options.evaluation.eval_every or options.training.steps  # at least at the end
    options = replace(options, evaluation=replace(options.evaluation, eval_every=every))
    found: list[dict[str, Any]] = []
    for rate in rates:
        folder = out / FOLDER / f"learning-rate={rate:g}"
        try:
            train(folder, replace(options, training=replace(options.training, learning_rate=rate)))
        except InputError:
            with suppress(OSError):  # what was begun for nothing
                (out / FOLDER).rmdir()
                out.rmdir()
            raise
        made = read_json(folder / CARD)["training"]
        found.append({"learning_rate": rate} | made.get("spans", made)["best"])
    best = max(found, key=lambda row: row["score"])
    with main_first():
        if is_main():
            _take(out / FOLDER / f"learning-rate={best['learning_rate']:g}", out, found)
            print(_table(found, best))


def _take(run: Path, out: Path, found: list[dict[str, Any]]) -> None:
    """Copy a run into `out`, its card last."""
    card = read_json(run / CARD) | {"sweep": found}
    if (out / CARD).is_file() and read_json(out / CARD) == card:
        return
    with locked(out, wait=False):
        for path in out.iterdir():  # what an earlier sweep of fewer rates left; the card first, lest it look done
            if path.name != FOLDER and path.is_file():
                path.unlink()
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        shutil.copytree(run, out, ignore=shutil.ignore_patterns(CARD), dirs_exist_ok=True)
        write_json(out / CARD, card)


def _table(found: list[dict[str, Any]], best: dict[str, Any]) -> str:
    metric, split = SHOWN[best["metric"]], best["split"]
    rows = [("learning rate", f"{metric}, {split}", "step")]
    rows += [(f"{r['learning_rate']:g}", f"{100 * r['score']:.1f}", f"{r['step']}{' (best)' if r is best else ''}") for r in found]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
