"""Score the heads of SUPERB on test sets, under every condition.

`score_task` is called for each encoder and task once its heads are trained. It evaluates the heads
of every part (`evaluate_heads`; QbE has no head, and `evaluate_terms` searches its queries), takes
the mean over folds, and adds the rows to results.jsonl, condition by condition. A run that resumes
evaluates only heads without rows.
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
# the rules of `stats` for intervals; in the hash of results, which have no items to draw anew
INTERVAL_RULES = f"voices from {FEWEST} on, width by t"
# task, system, encoder, condition and SNR of rows
Cell = tuple[str, str, str, str, float | None]


def score_task(
    encoder: Benchmarked,
    parts: Sequence[TaskPart],
    heads: Heads,
    audio: Sequence[ConditionAudio],
    plan: Plan,
) -> None:
    """Add the missing rows of a task, and write its details.

    Every seed has rows under every condition. The head of the task's own rate has a row on clean
    speech, for the first measure alone, as `<metric>_default`. The card of a row has the hash of
    the heads' inputs, the hash of the distortions of the recordings, and the number of recordings
    that could not be read, which are tried again. Rows of other heads are removed, so that no mean
    includes them.
    """
    o, task = plan.options, parts[0].task
    results = o.out / "results.jsonl"
    made_from = hash_heads(encoder, parts, heads, plan)
    names = [(0, "tuned")] if task == QBE else list(heads[parts[0].label])

    def is_outdated(row: Row) -> bool:
        """Return whether a row belongs to other heads. Rows of speed, whose card is no text, do
        not."""
        is_same_cell = (row.task, row.encoder) == (task, encoder.name)
        return is_same_cell and isinstance(row.card, str) and row.card.split()[0] != made_from

    for condition_audio in audio:
        setting = condition_audio.setting
        is_clean = setting.group == "clean"
        card = f"{made_from} {hash_json([condition_audio.hash(part.items) for part in parts])}"
        cell = (task, HEAD, encoder.name, setting.name, setting.snr_db)
        wanted = names if is_clean else [name for name in names if name[1] == "tuned"]
        scored = list_scored(results, cell, card)
        missing = [name for name in wanted if name not in scored]
        if not missing:
            continue
        folds = []
        failed: dict[str, str] = {}
        for part in parts:
            if task == QBE:
                folds.append(evaluate_terms(encoder, part, condition_audio, plan))
            else:
                chosen = {name: heads[part.label][name] for name in missing}
                evaluations, unreadable = evaluate_heads(
                    encoder, part, chosen, condition_audio, plan
                )
                folds.append(evaluations)
                failed |= unreadable
        if failed:
            card += f" {len(failed)} unreadable"
        rows = []
        for name in missing:
            mean = combine_folds([fold[name] for fold in folds])
            rows += make_rows(cell, name, mean, card, condition_audio.snr_over(plan))
            if is_clean and name == names[0]:
                detail = {"task": task, "encoder": encoder.name, "detail": mean.detail}
                write_json(o.out / "details" / encoder.name / f"{task}.json", detail)
        append_rows(results, rows, outdated=is_outdated)


def hash_heads(encoder: Benchmarked, parts: Sequence[TaskPart], heads: Heads, plan: Plan) -> str:
    """Return the hash of everything that decides the scores of a task's heads, beside the seed."""
    o = plan.options
    facts: list[object] = [
        encoder.card,
        RESAMPLES,
        INTERVAL_RULES,
        str(o.lm),
        list(o.learning_rates),
    ]
    for part in parts:
        facts += [part.data.hash, part.preset]
        part_heads = list(heads.get(part.label, {}).values())
        if part_heads:
            card = part_heads[0].card
            facts += [card["settings"], card["task"]]
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
        low: float | None = m.low
        high: float | None = m.high
        if m.groups < FEWEST:  # too few for an interval
            low = high = None
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
    """Evaluate the heads of one part on its test split. Return the evaluations, and the errors of
    recordings that cannot be read, by id, which are reported and count as wrong.

    Every recording is encoded once for all heads (seeds, tuned and default rate), or once for each
    head that has an encoder of its own.
    """
    what = f"{encoder.name}, {part.label}, {audio.setting.label}"
    cache = encoder.cache
    by_upstream: dict[Path | None, dict[HeadName, TrainedHead]] = {}
    for name, head in heads.items():
        by_upstream.setdefault(head.upstream, {})[name] = head
    evaluations = {}
    unreadable: dict[str, str] = {}
    for group in by_upstream.values():
        first = next(iter(group.values()))
        task, batch = first.task, int(first.card["settings"]["batch"])
        test = task.data.splits["test"]
        speech_encoder = encoder.encoder_of(first, plan)
        loader: Loader = OnlineLoader(speech_encoder, audio.read, task, cache.pool)
        if audio.setting.group == "clean" and first.upstream is None:
            loader = cache.loader(task, ("test",))
        models = {name: (head.task, head.head.to(encoder.device)) for name, head in group.items()}
        with one_thread():
            predicted = predict(models, loader, test, batch, encoder.device, what)
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
    """Evaluate query by example with the best layer on dev. Raises InputError as `choose_layer`
    and `SpokenTerms.evaluate` do."""
    terms, cache = SpokenTerms(part.data), encoder.cache
    layer_file = plan.options.out / "heads" / encoder.name / QBE / "card.json"
    layer, layers = choose_layer(terms, cache, layer_file)
    states_of = term_states(cache, terms, "test", audio)
    evaluation = terms.evaluate(states_of, "test", layer, RESAMPLES, cache.workers)
    return {(0, "tuned"): HeadEvaluation(evaluation.measures, {"layers": layers})}


def choose_layer(terms: SpokenTerms, cache: FeatureCache, path: Path) -> tuple[int, list[float]]:
    """Return the best layer on dev and the MTWV of every layer there, in percent; they are computed
    once and kept in `path`."""
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
    """Return a function that gives the states of a document or query by id. They come from the
    cache for clean speech, as far as they fit, else from the encoder at every call, rounded as in
    the cache. audio: None for clean speech."""
    data = terms.data
    stores = []
    if audio is None or audio.setting.group == "clean":
        # two folders, so that dev and test share the states of the documents
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
    """Return the mean of each measure over folds. Their intervals are independent; the mean has
    none where a fold has none. Confusions are added up.
    """
    if len(folds) == 1:
        return folds[0]
    measures = []
    for by_fold in zip(*(fold.measures for fold in folds), strict=True):
        n_folds = len(by_fold)
        value = sum(m.value for m in by_fold) / n_folds
        below = sum((m.value - m.low) ** 2 for m in by_fold) ** 0.5 / n_folds
        above = sum((m.high - m.value) ** 2 for m in by_fold) ** 0.5 / n_folds
        groups = [m.groups for m in by_fold]
        mean = Measure(
            metric=by_fold[0].metric,
            value=value,
            low=value - below,
            high=value + above,
            n=sum(m.n for m in by_fold),
            drawn=", ".join(dict.fromkeys(m.drawn for m in by_fold if m.drawn)),
            groups=sum(groups) if min(groups) >= FEWEST else min(groups),
        )
        measures.append(mean)
    confusion = {}
    for slot, first in folds[0].detail.get("confusion", {}).items():
        counts = [fold.detail["confusion"][slot]["counts"] for fold in folds]
        confusion[slot] = {"classes": first["classes"], "counts": np.sum(counts, axis=0).tolist()}
    return HeadEvaluation(tuple(measures), {"confusion": confusion})
