"""Score the heads of SUPERB on test sets, under every condition.

`score_task` is called for each encoder and task once its heads are trained. It evaluates the heads
of every part (`evaluate_heads`; QbE has no head and is searched: `evaluate_terms`), takes the mean
over folds, and adds the rows to results.jsonl, condition by condition. A run that resumes evaluates
what has no row yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from speechssl.artifacts import hash_json, read_json, write_json
from speechssl.audio import read_audio
from speechssl.data.superb import DOCUMENTS
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.superb_plan import Benchmarked, ConditionAudio, HeadName, Heads, Plan, TaskPart
from speechssl.results import DEFAULT, HEAD, Row, append_rows, read_rows
from speechssl.stats import FEWEST
from speechssl.superb.data import (
    FeatureCache,
    HeadEvaluation,
    Loader,
    Measure,
    OnlineLoader,
    encoder_card,
)
from speechssl.superb.tasks import QBE
from speechssl.superb.tasks.spoken_terms import SpokenTerms
from speechssl.superb.train import TrainedHead, one_thread, predict

RESAMPLES = 1000
# the rules of `stats`; a result keeps intervals and no items
DRAWN = f"voices from {FEWEST} on, width by t"
# of rows: task, system, encoder, condition and SNR
Cell = tuple[str, str, str, str, float | None]


def score_task(
    encoder: Benchmarked,
    parts: Sequence[TaskPart],
    heads: Heads,
    audio: Sequence[ConditionAudio],
    plan: Plan,
) -> None:
    """Add the rows of a task that are missing: of every seed under every condition, and of the
    task's own rate on clean speech, which has only the first measure, called `<metric>_default`.
    Writes the details.

    The card of a row is the hash of what made the heads, that of what was done to the recordings,
    and how many of these could not be read, which are tried again. Rows of other heads go, so that
    no mean is over both.
    """
    o, task = plan.options, parts[0].task
    results = o.out / "results.jsonl"
    made_from = hash_heads(encoder, parts, heads, plan)
    names = [(0, "tuned")] if task == QBE else list(heads[parts[0].label])

    def is_outdated(row: Row) -> bool:
        """Say whether a row is of other heads; speed, whose card is no text, is of none."""
        same = (row.task, row.encoder) == (task, encoder.name)
        return same and isinstance(row.card, str) and row.card.split()[0] != made_from

    for one in audio:
        clean = one.setting.group == "clean"
        card = f"{made_from} {hash_json([one.hash(part.items) for part in parts])}"
        cell = (task, HEAD, encoder.name, one.setting.name, one.setting.snr_db)
        wanted = names if clean else [name for name in names if name[1] == "tuned"]
        scored = list_scored(results, cell, card)
        missing = [name for name in wanted if name not in scored]
        if not missing:
            continue
        folds = []
        failed: dict[str, str] = {}
        for part in parts:
            if task == QBE:
                folds.append(evaluate_terms(encoder, part, one, plan))
            else:
                chosen = {name: heads[part.label][name] for name in missing}
                evaluations, unreadable = evaluate_heads(encoder, part, chosen, one, plan)
                folds.append(evaluations)
                failed |= unreadable
        if failed:
            card += f" {len(failed)} unreadable"
        rows = []
        for name in missing:
            mean = combine_folds([fold[name] for fold in folds])
            rows += make_rows(cell, name, mean, card, one.snr_over(plan))
            if clean and name == names[0]:
                detail = {"task": task, "encoder": encoder.name, "detail": mean.detail}
                write_json(o.out / "details" / encoder.name / f"{task}.json", detail)
        append_rows(results, rows, any_card=True, outdated=is_outdated)


def hash_heads(encoder: Benchmarked, parts: Sequence[TaskPart], heads: Heads, plan: Plan) -> str:
    """Hash what decides the scores of a task's heads; all seeds share it."""
    o = plan.options
    facts: list[object] = [encoder.card, RESAMPLES, DRAWN, str(o.lm), list(o.learning_rates)]
    for part in parts:
        facts += [part.data.hash, part.preset]
        of_part = list(heads.get(part.label, {}).values())
        if of_part:
            facts += [of_part[0].card["settings"], of_part[0].card["task"]]
    return hash_json(facts)


def list_scored(results: Path, cell: Cell, card: str) -> set[HeadName]:
    """List the heads that have rows of this cell and card."""
    scored = set()
    for row in read_rows(results) if results.is_file() else ():
        if row.cell[: len(cell)] == cell and row.card == card:
            scored.add((row.seed, "default" if row.metric.endswith(DEFAULT) else "tuned"))
    return scored


def make_rows(
    cell: Cell, name: HeadName, evaluation: HeadEvaluation, card: str, snr_over: str
) -> list[Row]:
    """Make the rows of one head under one condition."""
    seed, which = name
    rows = []
    for m in evaluation.measures if which == "tuned" else evaluation.measures[:1]:
        # fewer groups say too little of the spread
        low, high = (m.low, m.high) if m.groups >= FEWEST else (None, None)
        metric = m.metric if which == "tuned" else f"{m.metric}{DEFAULT}"
        drawn = (m.drawn, m.groups, snr_over)
        rows.append(Row(*cell, metric, m.value, low, high, m.n, seed, card, *drawn))
    return rows


# ---- heads


def evaluate_heads(
    encoder: Benchmarked,
    part: TaskPart,
    heads: Mapping[HeadName, TrainedHead],
    audio: ConditionAudio,
    plan: Plan,
) -> tuple[dict[HeadName, HeadEvaluation], dict[str, str]]:
    """Evaluate the heads of one part on its test split; return why some recordings cannot be read
    too, by id. These are reported, and count as wrong.

    Every recording is encoded once for all heads (seeds, tuned and default rate), or once a head
    where each has an encoder of its own.
    """
    what, cache = f"{encoder.name}, {part.label}, {audio.setting.label}", encoder.cache
    groups: dict[Path | None, dict[HeadName, TrainedHead]] = {}
    for name, head in heads.items():
        groups.setdefault(head.upstream, {})[name] = head
    evaluations = {}
    unreadable: dict[str, str] = {}
    for group in groups.values():
        first = next(iter(group.values()))
        task, batch = first.task, int(first.card["settings"]["batch"])
        test = task.data.splits["test"]
        speech_encoder = encoder.encoder_of(first, plan)
        loader: Loader = OnlineLoader(speech_encoder, audio.read, task, cache.pool)
        if audio.setting.group == "clean" and first.upstream is None:
            loader = cache.loader(task, ("test",))
        on = {name: (head.task, head.head.to(encoder.device)) for name, head in group.items()}
        with one_thread():
            predicted = predict(on, loader, test, batch, encoder.device, what)
        reasons = loader.failed if isinstance(loader, OnlineLoader) else {}
        usable = {u.id for u in loader.usable(test)}
        for u in test:
            if u.id not in usable:
                unreadable[u.id] = reasons.get(u.id, "it could not be cached")
        for name, head in group.items():
            evaluations[name] = head.task.evaluate("test", predicted[name], RESAMPLES)
    report_set_aside(unreadable, what)
    return evaluations, unreadable


# ---- query by example: the layer is chosen on clean dev queries


def evaluate_terms(
    encoder: Benchmarked, part: TaskPart, audio: ConditionAudio, plan: Plan
) -> dict[HeadName, HeadEvaluation]:
    """Evaluate query by example. Raises InputError as the search and the cache of states do."""
    terms, cache = SpokenTerms(part.data), encoder.cache
    layer_file = plan.options.out / "heads" / encoder.name / QBE / "card.json"
    layer, layers = choose_layer(terms, cache, layer_file)
    states_of = term_states(cache, terms, "test", audio)
    evaluation = terms.evaluate(states_of, "test", layer, RESAMPLES, cache.workers)
    return {(0, "tuned"): HeadEvaluation(evaluation.measures, {"layers": layers})}


def choose_layer(terms: SpokenTerms, cache: FeatureCache, path: Path) -> tuple[int, list[float]]:
    """Choose the best layer on dev and the MTWV of every layer there (percent), found once and kept
    in `path`."""
    made_from = hash_json([terms.data.hash, encoder_card(cache.encoder)])
    card = read_json(path) if path.is_file() else {}
    if card.get("made_from") != made_from:
        states_of = term_states(cache, terms, "dev", None)
        layer, layers = terms.choose_layer(states_of, cache.encoder.layers + 1, cache.workers)
        card = {"task": QBE, "layer": layer, "layers": layers, "made_from": made_from}
        write_json(path, card)
    return int(card["layer"]), list(card["layers"])


def term_states(
    cache: FeatureCache, terms: SpokenTerms, split: str, audio: ConditionAudio | None
) -> Callable[[str], Tensor]:
    """Return the states of documents and queries by id: of clean speech from the cache where there
    is room, else from the encoder every time anew, rounded as in the cache. audio: None for clean
    speech."""
    data = terms.data
    stores = []
    if audio is None or audio.setting.group == "clean":
        # in folders of their own, so that documents are computed once
        stores = [cache.states(data, (name,), False) for name in (DOCUMENTS, split)]
    paths = {u.id: data.path(u) for name in (DOCUMENTS, split) for u in data.splits[name]}

    def states_of(name: str) -> Tensor:
        for store in stores:
            if store and name in store:
                return store[name]
        try:
            samples = audio.read(paths[name]) if audio else read_audio(paths[name])
            states = cache.encoder.hidden_states(samples)
        except (InputError, ValueError) as error:
            raise KeyError(name) from error
        return states.cpu().transpose(0, 1).to(torch.bfloat16)

    return states_of


# ---- mean over folds


def combine_folds(folds: Sequence[HeadEvaluation]) -> HeadEvaluation:
    """Return the mean of each measure over folds, whose intervals are independent; without one,
    where a fold has none. Confusions are added up.
    """
    if len(folds) == 1:
        return folds[0]
    measures = []
    for same in zip(*(x.measures for x in folds), strict=True):
        value = sum(m.value for m in same) / len(same)
        below = sum((m.value - m.low) ** 2 for m in same) ** 0.5 / len(same)
        above = sum((m.high - m.value) ** 2 for m in same) ** 0.5 / len(same)
        drawn = ", ".join(dict.fromkeys(m.drawn for m in same if m.drawn))
        groups = [m.groups for m in same]
        sizes = sum(m.n for m in same), drawn, sum(groups) if min(groups) >= FEWEST else min(groups)
        measures.append(Measure(same[0].metric, value, value - below, value + above, *sizes))
    confusion = {}
    for slot, first in folds[0].detail.get("confusion", {}).items():
        counts = [fold.detail["confusion"][slot]["counts"] for fold in folds]
        confusion[slot] = {"classes": first["classes"], "counts": np.sum(counts, axis=0).tolist()}
    return HeadEvaluation(tuple(measures), {"confusion": confusion})
