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

from speechssl.artifacts import hash_files, hash_json, read_json, write_json
from speechssl.audio import read_audio
from speechssl.data.superb import DOCUMENTS
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.superb_plan import Benchmarked, ConditionAudio, HeadName, Heads, Plan, TaskPart
from speechssl.results import DEFAULT, HEAD, Row, append_rows, read_rows
from speechssl.stats import FEWEST, Interval
from speechssl.superb.data import (
    FeatureCache,
    HeadEvaluation,
    Loader,
    OnlineLoader,
    describe_encoder,
)
from speechssl.superb.options import QBE
from speechssl.superb.tasks.spoken_terms import SpokenTerms
from speechssl.superb.train import TrainedHead, predict, use_one_thread

RESAMPLES = 1000
# stands for the rules of `stats` for intervals in the hash of results: rows have no items that
# could be drawn again, so they are made again where the rules change
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
    """Add the missing rows of a task to results.jsonl, and write its details.

    The tuned head of every seed has rows under every condition. The head at the task's own learning
    rate has one row, on clean speech, for the first measure, as `<metric>_default`. The card of a
    row is "<hash of the heads' inputs> <hash of the distortions>", with " <number> unreadable"
    where recordings could not be read, which are then tried again. Rows of other heads are removed,
    so that no mean includes them.
    """
    o, task = plan.options, parts[0].task
    results = o.out / "results.jsonl"
    made_from = hash_heads(encoder, parts, heads, plan)
    head_names = [(0, "tuned")] if task == QBE else list(heads[parts[0].label])

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
        evaluated = head_names
        if not is_clean:
            evaluated = [(seed, rate) for seed, rate in head_names if rate == "tuned"]
        scored = list_scored(results, cell, card)
        missing = [name for name in evaluated if name not in scored]
        if not missing:
            continue
        folds = []
        failed: dict[str, str] = {}
        for part in parts:
            if task == QBE:
                folds.append(evaluate_terms(encoder, part, condition_audio, plan))
            else:
                missing_heads = {name: heads[part.label][name] for name in missing}
                evaluations, unreadable = evaluate_heads(
                    encoder, part, missing_heads, condition_audio, plan
                )
                folds.append(evaluations)
                failed |= unreadable
        if failed:
            card += f" {len(failed)} unreadable"
        rows = []
        for name in missing:
            mean = combine_folds([fold[name] for fold in folds])
            rows += make_rows(cell, name, mean, card, condition_audio.find_snr_over(plan))
            if is_clean and name == head_names[0]:
                detail = {"task": task, "encoder": encoder.name, "detail": mean.detail}
                write_json(o.out / "details" / encoder.name / f"{task}.json", detail)
        append_rows(results, rows, outdated=is_outdated)


def hash_heads(encoder: Benchmarked, parts: Sequence[TaskPart], heads: Heads, plan: Plan) -> str:
    """Return the hash of everything that decides the scores of a task's heads, except the seed."""
    o = plan.options
    facts: list[object] = [
        encoder.card,
        RESAMPLES,
        INTERVAL_RULES,
        hash_files([o.lm]) if o.lm and parts[0].task == "asr" else "",
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
    if not results.is_file():
        return set()
    scored = set()
    for row in read_rows(results):
        if row.cell[: len(cell)] == cell and row.card == card:
            scored.add((row.seed, "default" if row.metric.endswith(DEFAULT) else "tuned"))
    return scored


def make_rows(
    cell: Cell, name: HeadName, evaluation: HeadEvaluation, card: str, snr_over: str
) -> list[Row]:
    """Make the rows of one head under one condition: one for each measure of a tuned head, one for
    the first measure of the head at the task's own rate."""
    seed, rate = name
    measures, suffix = list(evaluation.measures.items()), ""
    if rate == "default":
        measures, suffix = measures[:1], DEFAULT
    rows = []
    for metric, m in measures:
        has_interval = m.groups >= FEWEST
        row = Row(
            *cell,
            metric=f"{metric}{suffix}",
            value=m.value,
            low=m.low if has_interval else None,
            high=m.high if has_interval else None,
            n=m.n,
            seed=seed,
            card=card,
            drawn=m.drawn,
            groups=m.groups,
            snr_over=snr_over,
        )
        rows.append(row)
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
    title = f"{encoder.name}, {part.label}, {audio.setting.label}"
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
        speech_encoder = encoder.find_encoder(first, plan)
        loader: Loader = OnlineLoader(speech_encoder, audio.read, task, cache.pool)
        if audio.setting.group == "clean" and first.upstream is None:
            loader = cache.make_loader(task, ("test",))
        models = {name: (head.task, head.head.to(encoder.device)) for name, head in group.items()}
        with use_one_thread():
            predicted = predict(models, loader, test, batch, encoder.device, title)
        reasons = loader.failed if isinstance(loader, OnlineLoader) else {}
        usable = {u.id for u in loader.list_usable(test)}
        for u in test:
            if u.id not in usable:
                unreadable[u.id] = reasons.get(u.id, "it could not be cached")
        for name, head in group.items():
            evaluations[name] = head.task.evaluate("test", predicted[name], RESAMPLES)
    report_set_aside(unreadable, title)
    return evaluations, unreadable


# ---- query by example: the layer is chosen on clean dev queries


def evaluate_terms(
    encoder: Benchmarked, part: TaskPart, audio: ConditionAudio, plan: Plan
) -> dict[HeadName, HeadEvaluation]:
    """Evaluate query by example with the best layer on dev. Raises InputError as `choose_layer`
    and `SpokenTerms.evaluate` do."""
    terms, cache = SpokenTerms(part.data), encoder.cache
    layer_file = plan.options.out / "heads" / encoder.name / QBE / "card.json"
    layer, mtwv_by_layer = choose_layer(terms, cache, layer_file)
    states_of = read_term_states(cache, terms, "test", audio)
    evaluation = terms.evaluate(states_of, "test", layer, RESAMPLES, cache.workers)
    return {(0, "tuned"): HeadEvaluation(evaluation.measures, {"layers": mtwv_by_layer})}


def choose_layer(terms: SpokenTerms, cache: FeatureCache, path: Path) -> tuple[int, list[float]]:
    """Return the best layer on dev, and the MTWV (maximum term-weighted value) of every layer
    there, in percent; they are computed once and kept in `path`."""
    made_from = hash_json([terms.data.hash, describe_encoder(cache.encoder)])
    card = read_json(path) if path.is_file() else {}
    if card.get("made_from") != made_from:
        states_of = read_term_states(cache, terms, "dev", None)
        layer, mtwv = terms.choose_layer(states_of, cache.encoder.layers + 1, cache.workers)
        card = {"task": QBE, "layer": layer, "layers": mtwv, "made_from": made_from}
        write_json(path, card)
    return int(card["layer"]), list(card["layers"])


def read_term_states(
    cache: FeatureCache, terms: SpokenTerms, split: str, audio: ConditionAudio | None
) -> Callable[[str], Tensor]:
    """Return a function that gives the hidden states of a document or query, by its id.

    Those of clean speech come from the cache, as far as they fit into it; others are computed by
    the encoder at every call, and rounded as in the cache. audio: None for clean speech. The
    function raises KeyError for a recording that cannot be read.
    """
    data = terms.data
    stores = []
    paths = {}
    for name in (DOCUMENTS, split):  # in two folders: dev and test share those of documents
        if audio is None or audio.setting.group == "clean":
            stores.append(cache.load_states(data, (name,), False))
        paths.update({u.id: data.path(u) for u in data.splits[name]})

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
    """Return the mean of each measure over folds, whose intervals are combined as those of
    independent values; it has no interval where a fold has none. Confusions are added up."""
    if len(folds) == 1:
        return folds[0]
    measures = {}
    for metric in folds[0].measures:
        by_fold = [fold.measures[metric] for fold in folds]
        n_folds = len(by_fold)
        value = sum(m.value for m in by_fold) / n_folds
        below = sum((m.value - m.low) ** 2 for m in by_fold) ** 0.5 / n_folds
        above = sum((m.high - m.value) ** 2 for m in by_fold) ** 0.5 / n_folds
        groups = [m.groups for m in by_fold]
        measures[metric] = Interval(
            value=value,
            low=value - below,
            high=value + above,
            n=sum(m.n for m in by_fold),
            estimated=all(m.estimated for m in by_fold),
            drawn=", ".join(dict.fromkeys(m.drawn for m in by_fold if m.drawn)),
            groups=sum(groups) if min(groups) >= FEWEST else min(groups),
        )
    confusion = {}
    for slot, first in folds[0].detail.get("confusion", {}).items():
        counts = [fold.detail["confusion"][slot]["counts"] for fold in folds]
        confusion[slot] = {"classes": first["classes"], "counts": np.sum(counts, axis=0).tolist()}
    return HeadEvaluation(measures, {"confusion": confusion})
