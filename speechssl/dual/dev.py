"""Evaluation while a reader is trained: on which held-out items, and what its answers are worth; and sweeps, which choose by it.
For all methods.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from speechssl.config import EvalOptions
from speechssl.data.records import Corpus, Question, data_hash, load_corpus
from speechssl.dual.data import answer_times
from speechssl.errors import InputError
from speechssl.io import CARD, MADE_FROM, locked, read_json, write_json
from speechssl.metrics import frame_f1, token_f1
from speechssl.processes import is_main, main_first

T = TypeVar("T")
SHOWN = {"ff1": "FF1", "f1": "F1", "wer": "WER", "cer": "CER", "set_accuracy": "set accuracy"}


def held_out(corpus: Path, options: EvalOptions) -> Corpus | None:
    """The split to evaluate on; None where training is without evaluation. Raises InputError where the corpus does not have it."""
    if not options.eval_every:
        return None
    if not (corpus / options.eval_split / "passages.jsonl").is_file():
        raise InputError(
            f"{corpus} has no split {options.eval_split} to evaluate on while training; name one that it has with --eval-split, or "
            "leave out --eval-every"
        )
    return load_corpus(corpus, options.eval_split)


def held_out_hash(corpus: Path, options: EvalOptions) -> dict[str, str]:
    """What `made_from.json` says of the split that decides which checkpoint is the best."""
    return {"eval_data": data_hash(corpus, options.eval_split)} if held_out(corpus, options) else {}


def drawn(items: Sequence[T], options: EvalOptions) -> list[T]:
    """As many as are evaluated on, in their order; the same in every training."""
    count = options.eval_items or len(items)
    return [items[i] for i in sorted(np.random.default_rng(0).permutation(len(items))[:count].tolist())]


def asked(data: Corpus, questions: Sequence[Question], options: EvalOptions, what: str) -> Corpus:
    """The split with those questions that are evaluated on, and their passages. what: they must have, for the message.

    Raises InputError where there are none.
    """
    if not questions:
        raise InputError(
            f"{data.root / data.split} has no question with {what} to evaluate on while training; name another split with "
            "--eval-split, or leave out --eval-every"
        )
    chosen = drawn(questions, options)
    wanted = {q.passage for q in chosen}
    return replace(data, passages={i: p for i, p in data.passages.items() if i in wanted}, questions=tuple(chosen))


def timed(data: Corpus, options: EvalOptions) -> Corpus:
    """`asked` of the questions whose answers have times."""
    return asked(data, [q for q in data.answerable if answer_times(q) is not None], options, "times of its answer")


def mean_ff1(data: Corpus, answers: Mapping[str, Any]) -> float:
    """Over all questions. answers: id -> something with start and end in seconds; a question without one scores 0, as does an
    answer that is empty.
    """
    scores = []
    for question in data.questions:
        gold = [(a.start, a.end) for a in question.answers if a.start is not None and a.end is not None]
        answer = answers.get(question.id)
        scores.append(frame_f1((answer.start, answer.end) if answer and answer.end > answer.start else None, gold))
    return sum(scores) / len(scores)


def mean_f1(data: Corpus, answers: Mapping[str, str | None]) -> float:
    """Over all questions. answers: id -> text; a question without one scores 0."""
    scores = [token_f1(answers.get(q.id) or "", [a.text for a in q.answers], q.language) for q in data.questions]
    return sum(scores) / len(scores)


def answer_in_batches(ask: Callable[[Sequence[Any]], Sequence[Any]], items: Mapping[str, Any], size: int = 64) -> dict[str, Any]:
    """What a system answers to every item, by its id."""
    names, found = list(items), list[Any]()
    for start in range(0, len(names), size):
        found += ask([items[name] for name in names[start : start + size]])
    return dict(zip(names, found, strict=True))


def best_of(out: Path) -> str:
    """ "; the best checkpoint ...", by the card of what was trained; "" where it was not evaluated while it was trained."""
    card = out / "card.json"
    made = read_json(card).get("training", {}) if card.is_file() else {}
    made = made.get("spans", made)  # SpeechBERT's last stage
    if not (best := made.get("best")):
        return ""
    score = f"{SHOWN[best['metric']]} {100 * best['score']:.1f} on {best['items']} items of {best['split']}"
    return f"; the best checkpoint, of step {best['step']} of {made['steps']}: {score}"


# ---- --sweep: one training a learning rate; OUT becomes the best of them
# OUT/sweep/learning-rate=1e-05 and so on are finished runs, which a killed sweep finds again. OUT gets a copy of the best, and is
# then a run as any other, with the scores of all on its card.

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
