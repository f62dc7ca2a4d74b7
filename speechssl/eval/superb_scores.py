"""Score the heads of SUPERB on test sets, under every condition.

`evaluate_task` is called for each encoder and task once its heads are trained. It evaluates the
heads of every part (`evaluate_heads`; QbE has no head and is searched: `evaluate_terms`), takes the
mean over folds, and makes the rows. The evaluations of a part under a condition are a file, which a
resumed run reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speechssl.artifacts import hash_json, read_json, write_json
from speechssl.audio import read_audio
from speechssl.data.superb import DOCUMENTS
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.superb_plan import Benchmarked, ConditionAudio, Heads, Plan, TaskPart
from speechssl.results import DEFAULT, HEAD, Row
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
from speechssl.superb.train import TrainedHead, one_thread, predict, task_card

RESAMPLES = 1000
# the rules of `stats`; a result keeps intervals and no items
DRAWN = f"voices from {FEWEST} on, width by t"
# evaluations by the name of the head, and recordings that could not be encoded, with the reason
Scored = tuple[dict[str, HeadEvaluation], dict[str, str]]


def evaluate_task(
    encoder: Benchmarked,
    parts: Sequence[TaskPart],
    heads: Heads,
    audio: Sequence[ConditionAudio],
    plan: Plan,
) -> list[Row]:
    """Return the rows of a task: every seed under every condition, and the task's own rate on clean
    speech. Writes the details.

    Rows of the task's own rate have only the first measure, called `<metric>_default`.
    """
    task = parts[0].task
    facts = [[part.data.hash, part.preset, _settings(part, heads, plan)] for part in parts]
    card = hash_json([encoder.card, facts])
    rows = []
    for one in audio:
        setting = one.setting
        clean = setting.group == "clean"
        folds = []
        for part in parts:
            if task == QBE:
                folds.append(evaluate_terms(encoder, part, one, plan))
                continue
            of_part = heads[part.label].items()
            chosen = {name: h for name, h in of_part if clean or h.which == "tuned"}
            folds.append(evaluate_heads(encoder, part, chosen, one, plan))
        means = {name: combine_folds([fold[name] for fold in folds]) for name in folds[0]}
        if clean:
            detail = {
                "task": task,
                "encoder": encoder.name,
                "detail": next(iter(means.values())).detail,
            }
            write_json(plan.options.out / "details" / encoder.name / f"{task}.json", detail)
        over = "" if clean else plan.distorter.card(setting.condition).get("snr_over", "")
        for name, evaluation in means.items():
            seed, _, default = name.removeprefix("seed-").partition("-")
            for m in evaluation.measures[:1] if default else evaluation.measures:
                # fewer groups say too little of the spread
                low, high = (m.low, m.high) if m.groups >= FEWEST else (None, None)
                metric = f"{m.metric}{DEFAULT}" if default else m.metric
                cell = (task, HEAD, encoder.name, setting.name, setting.snr_db, metric)
                drawn = (m.drawn, m.groups, over)
                rows.append(Row(*cell, m.value, low, high, m.n, int(seed), card, *drawn))
    return rows


def _settings(part: TaskPart, heads: Heads, plan: Plan) -> Any:
    """Return what decides the heads of a part, and how they decode; None without heads."""
    if part.task == QBE:
        return None
    head = next(iter(heads[part.label].values()))  # all seeds have the same settings
    return [head.card["task"], head.card["settings"], str(plan.options.lm)]


def evaluate_once(
    path: Path, facts: Any, evaluate: Callable[[], Scored]
) -> dict[str, HeadEvaluation]:
    """Read evaluations from a file, or make them where it is not there, was made from other facts,
    or some recording could not be encoded."""
    made_from = hash_json([facts, RESAMPLES, DRAWN])
    stored = read_json(path) if path.is_file() else {}
    if stored.get("made_from") != made_from or stored["failed"]:
        evaluations, failed = evaluate()
        stored = {"made_from": made_from, "failed": failed}
        stored["heads"] = {name: asdict(evaluation) for name, evaluation in evaluations.items()}
        write_json(path, stored)
    evaluations = {}
    for name, values in stored["heads"].items():
        measures = tuple(Measure(**values_of) for values_of in values["measures"])
        evaluations[name] = HeadEvaluation(measures, values["detail"])
    return evaluations


def score_path(encoder: Benchmarked, part: TaskPart, audio: ConditionAudio, plan: Plan) -> Path:
    file = f"{audio.setting.file}.json"
    return plan.options.out / "scores" / encoder.name / part.label / file


# ---- heads


def evaluate_heads(
    encoder: Benchmarked,
    part: TaskPart,
    heads: Mapping[str, TrainedHead],
    audio: ConditionAudio,
    plan: Plan,
) -> dict[str, HeadEvaluation]:
    """Evaluate the heads of one part on its test split.

    Every recording is encoded once for all heads (seeds, tuned and default rate), or once a head
    where each has an encoder of its own. Recordings that cannot be read are set aside, reported,
    and count as wrong.
    """
    what, cache = f"{encoder.name}, {part.label}, {audio.setting.label}", encoder.cache
    facts: list[Any] = [encoder.card, audio.hash(part.items), str(plan.options.lm)]
    for name, head in heads.items():
        # with its task as it is evaluated: the threshold that dev chose
        facts.append([name, head.weights, task_card(head.task)])
    groups: dict[Path | None, dict[str, TrainedHead]] = {}
    for name, head in heads.items():
        groups.setdefault(head.upstream, {})[name] = head

    def evaluate() -> Scored:
        evaluations, failed = {}, {}
        for group in groups.values():
            first = next(iter(group.values()))
            task, batch = first.task, int(first.card["settings"]["batch"])
            loader: Loader = OnlineLoader(
                encoder.encoder_of(first, plan), audio.read, task, cache.pool
            )
            if audio.setting.group == "clean" and first.upstream is None:
                loader = cache.loader(task, ("test",))
            on = {name: (head.task, head.head.to(encoder.device)) for name, head in group.items()}
            test = task.data.splits["test"]
            bar = what if isinstance(loader, OnlineLoader) else ""
            with one_thread():
                predicted = predict(on, loader, test, batch, encoder.device, bar)
            usable = {u.id for u in loader.usable(test)}
            reasons = loader.failed if isinstance(loader, OnlineLoader) else {}
            for u in test:
                if u.id not in usable:
                    failed[u.id] = reasons.get(u.id, "it could not be cached")
            for name, head in group.items():
                evaluations[name] = head.task.evaluate("test", predicted[name], RESAMPLES)
        report_set_aside(failed, what)
        return evaluations, failed

    return evaluate_once(score_path(encoder, part, audio, plan), facts, evaluate)


# ---- query by example: the layer is chosen on clean dev queries


def evaluate_terms(
    encoder: Benchmarked, part: TaskPart, audio: ConditionAudio, plan: Plan
) -> dict[str, HeadEvaluation]:
    """Evaluate query by example. Raises InputError as the search and the cache of states do."""
    terms, cache = SpokenTerms(part.data), encoder.cache
    layer_file = plan.options.out / "heads" / encoder.name / QBE / "card.json"
    layer, layers = choose_layer(terms, cache, layer_file)

    def evaluate() -> Scored:
        states_of = term_states(cache, terms, "test", audio)
        evaluation = terms.evaluate(states_of, "test", layer, RESAMPLES, cache.workers)
        return {"seed-0": replace(evaluation, detail={"layers": layers})}, {}

    facts = [part.data.hash, audio.hash(part.items), encoder.card, layer]
    return evaluate_once(score_path(encoder, part, audio, plan), facts, evaluate)


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
