"""Score the heads of SUPERB on test sets, under every condition.

`evaluate_task` is called for each encoder and task once its heads are trained. It evaluates the
heads of every part (`evaluate_heads`; QbE has no head and is searched: `evaluate_terms`), takes the
mean over folds, and makes the rows. An evaluation is a file (`EvaluationFile`), which a resumed run
reads.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from speechssl.artifacts import hash_bytes, hash_json, read_json, write_json
from speechssl.audio import read_audio
from speechssl.data.superb import DOCUMENTS, UtteranceSet
from speechssl.encoders.encoder import SpeechEncoder, single_threaded
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.conditions import Setting
from speechssl.eval.encode import Encoded
from speechssl.eval.superb_plan import Benchmarked, ConditionAudio, Heads, Plan, TaskPart
from speechssl.results import DEFAULT, HEAD, Row
from speechssl.schema import convert
from speechssl.stats import FEWEST
from speechssl.superb.data import (
    CLEAN,
    AudioReader,
    FeatureCache,
    HeadEvaluation,
    Loader,
    Measure,
    OnlineLoader,
    encoder_card,
)
from speechssl.superb.tasks import QBE
from speechssl.superb.tasks.spoken_terms import SpokenTerms
from speechssl.superb.train import TrainedHead, predict, task_card

RESAMPLES = 1000

# the rules of `stats`; a result keeps intervals and no items

DRAWN = f"voices from {FEWEST} on, width by t"


def evaluate_task(
    encoder: Benchmarked,
    parts: Sequence[TaskPart],
    heads: Heads,
    audio: Sequence[ConditionAudio],
    plan: Plan,
) -> Iterator[Row]:
    """Return the rows of a task: every seed under every condition, and the task's own rate on clean
    speech. Writes the details.

    Rows of the task's own rate have only the first measure, called `<metric>_default`.
    """
    task = parts[0].task
    names = ["seed-0"] if task == QBE else list(heads[parts[0].label])
    card = {
        "data": [part.data.hash for part in parts],
        "preset": parts[0].preset,
        "made_from": hash_heads(encoder, parts, heads),
    }
    for one in audio:
        clean = one.setting.group == "clean"
        chosen = [name for name in names if clean or not name.endswith("-default")]
        if task == QBE:
            folds = [{"seed-0": evaluate_terms(encoder, part, one, plan)} for part in parts]
        else:
            folds = []
            for part in parts:
                of_part = {name: heads[part.label][name] for name in chosen}
                folds.append(evaluate_heads(encoder, part, of_part, one, plan))
        means = {name: combine_folds([fold[name] for fold in folds]) for name in chosen}
        if clean:
            detail = {
                "task": task,
                "encoder": encoder.name,
                "condition": "clean",
                "detail": means[chosen[0]].detail,
            }
            write_json(plan.options.out / "details" / encoder.name / f"{task}.json", detail)
        over = "" if clean else plan.distorter.card(one.setting.condition).get("snr_over", "")
        for name, evaluation in means.items():
            yield from make_rows(task, encoder.name, one.setting, name, evaluation, card, over)


def make_rows(
    task: str,
    encoder: str,
    setting: Setting,
    head: str,
    evaluation: HeadEvaluation,
    card: dict[str, Any],
    snr_over: str,
) -> Iterator[Row]:
    """Return the rows of one head under one condition. head: "seed-0" or "seed-0-default"."""
    default = head.endswith("-default")
    seed = int(head.removesuffix("-default").removeprefix("seed-"))
    for m in evaluation.measures[:1] if default else evaluation.measures:
        # fewer groups say too little of the spread
        low, high = (m.low, m.high) if m.groups >= FEWEST else (None, None)
        metric = f"{m.metric}{DEFAULT}" if default else m.metric
        cell = (task, HEAD, encoder, setting.name, setting.snr_db, metric)
        yield Row(*cell, m.value, low, high, m.n, seed, card, m.drawn, m.groups, snr_over)


def hash_heads(encoder: Benchmarked, parts: Sequence[TaskPart], heads: Heads) -> str:
    """Return the hash of all that decides the heads of a task; of QbE, which has none, of the
    encoder."""
    if parts[0].task == QBE:
        return hash_json(encoder_card(encoder.cache.encoder))
    facts = []
    for part in parts:
        head = next(iter(heads[part.label].values()))  # all seeds have the same settings
        of_head = [head.card[name] for name in ("encoder", "task", "settings")]
        facts.append([*of_head, hash_language_model(head.task)])
    return hash_json(facts)


def is_outdated(new: Row, old: Row) -> bool:
    """Return whether an older row of the same task and encoder is of other data, heads or decoding,
    so that no mean may be over both.

    Rows that do not say it are taken for the same.
    """
    cards = [row.card if isinstance(row.card, dict) else {} for row in (new, old)]
    comparable = (new.task, new.encoder) == (old.task, old.encoder) and "made_from" in cards[1]
    return comparable and any(
        cards[0].get(name) != cards[1].get(name) for name in ("data", "preset", "made_from")
    )


# ---- heads


def evaluate_heads(
    encoder: Benchmarked,
    part: TaskPart,
    heads: Mapping[str, TrainedHead],
    audio: ConditionAudio,
    plan: Plan,
) -> dict[str, HeadEvaluation]:
    """Evaluate the heads of one part on its test split; what was evaluated already is read.

    Every recording is encoded once for all heads (seeds, tuned and default rate), or once a head
    where each has an encoder of its own. Recordings that cannot be read are set aside, reported,
    and count as wrong.
    """
    groups = [heads]
    if any(head.upstream for head in heads.values()):
        groups = [{name: head} for name, head in heads.items()]
    evaluations: dict[str, HeadEvaluation] = {}
    for group in groups:
        evaluations |= _evaluate_together(encoder, part, group, audio, plan)
    return evaluations


def _evaluate_together(
    encoder: Benchmarked,
    part: TaskPart,
    heads: Mapping[str, TrainedHead],
    audio: ConditionAudio,
    plan: Plan,
) -> dict[str, HeadEvaluation]:
    """Evaluate heads on one encoder."""
    what, cache = f"{encoder.name}, {part.label}, {audio.setting.label}", encoder.cache
    samples = audio.card([part.data.path(u) for u in part.data.splits["test"]])
    speech_encoder = encoder.encoder_of(next(iter(heads.values())), plan)
    files = {}
    for name, head in heads.items():
        # with its task as it is evaluated: its language model, and the threshold that dev chose
        decoding = {x: str(getattr(head.task, x, None)) for x in ("beam", "threshold", "median")}
        facts = [head.weights, task_card(head.task), head.task.data.hash, samples]
        facts += [encoder_card(speech_encoder), decoding, hash_language_model(head.task)]
        facts += [RESAMPLES, DRAWN]
        path = result_path(plan.options.out, encoder.name, part.label, name, audio.setting)
        files[name] = EvaluationFile(path, hash_json(facts))
    missing = {name: head for name, head in heads.items() if not files[name].is_current}
    if missing:
        loader: Loader | None = None
        if audio.setting.group == "clean" and speech_encoder is cache.encoder:
            loader = cache.loader(next(iter(missing.values())).task, ("test",))
        encoded = predict_test(
            missing, audio, speech_encoder, loader, cache.workers, encoder.device, what
        )
        for name, of_head in encoded.items():
            of_head.check(what)
            evaluation = heads[name].task.evaluate("test", of_head.features, RESAMPLES)
            files[name].write(evaluation, of_head.failed)
    return {name: file.read() for name, file in files.items()}


def predict_test(
    heads: Mapping[str, TrainedHead],
    audio: ConditionAudio,
    encoder: SpeechEncoder,
    loader: Loader | None,
    workers: int,
    device: str,
    what: str,
) -> dict[str, Encoded]:
    """Return the predictions of every head for the test split, by the recording's id, and why there
    are none of some.

    loader: of cached states; None: recordings are encoded, in batches of like lengths.
    """
    first = next(iter(heads.values()))
    task, size = first.task, int(first.card["settings"]["batch"])
    utterances = task.data.splits["test"]
    with single_threaded(workers) as pool:
        torch.set_num_threads(1)  # here too; the end puts it back
        online = OnlineLoader(
            encoder, lambda u: audio.read(task.data.path(u)), task.pooled, task.wants_waves, pool
        )
        usable = {u.id for u in (loader or online).usable(utterances)}
        on = {name: (head.task, head.head.to(device)) for name, head in heads.items()}
        predicted = predict(on, loader or online, utterances, size, device, "" if loader else what)
    failed = dict(loader.failed if isinstance(loader, OnlineLoader) else online.failed)
    failed |= {u.id: "it could not be cached" for u in utterances if u.id not in usable}
    report_set_aside(failed, what)
    return {name: Encoded(dict(outputs), failed) for name, outputs in predicted.items()}


def hash_language_model(task: Any) -> str | None:
    """Return the hash of the language model that a task decodes with."""
    model = getattr(task, "language_model", None)
    return model and hash_bytes(
        "\n".join(model.words).encode(), *(n.log_probs.tobytes() for n in model.ngrams)
    )


# ---- query by example: the layer is chosen on clean dev queries


def evaluate_terms(
    encoder: Benchmarked, part: TaskPart, audio: ConditionAudio, plan: Plan
) -> HeadEvaluation:
    """Evaluate query by example. Raises InputError as the search and the cache of states do."""
    terms, cache, data, out = SpokenTerms(part.data), encoder.cache, part.data, plan.options.out
    layer, layers = choose_layer(terms, cache, out / "heads" / encoder.name / QBE / "card.json")
    recordings = [data.path(u) for split in (DOCUMENTS, "test") for u in data.splits[split]]
    facts = [data.hash, audio.card(recordings), encoder_card(cache.encoder), layer]
    path = result_path(out, encoder.name, part.label, "seed-0", audio.setting)
    file = EvaluationFile(path, hash_json([*facts, RESAMPLES, DRAWN]))
    if not file.is_current:
        states_of, folder = term_states(cache, data, (DOCUMENTS, "test"), audio)
        evaluation = terms.evaluate(states_of, "test", layer, RESAMPLES, cache.workers)
        if folder:  # distorted states are not needed again
            shutil.rmtree(folder, ignore_errors=True)
        file.write(replace(evaluation, detail={**evaluation.detail, "layers": layers}))
    return file.read()


def choose_layer(terms: SpokenTerms, cache: FeatureCache, path: Path) -> tuple[int, list[float]]:
    """Choose the best layer on dev and the MTWV of every layer there (percent), found once and kept
    in `path`."""
    made_from = hash_json([terms.data.hash, encoder_card(cache.encoder)])
    if path.is_file() and (card := read_json(path)).get("made_from") == made_from:
        return int(card["layer"]), list(card["layers"])
    states_of, _ = term_states(cache, terms.data, (DOCUMENTS, "dev"), None)
    layer, layers = terms.choose_layer(states_of, cache.encoder.layers + 1, cache.workers)
    write_json(
        path,
        {
            "kind": "superb-layer",
            "task": terms.name,
            "layer": layer,
            "layers": layers,
            "made_from": made_from,
        },
    )
    return layer, layers


def term_states(
    cache: FeatureCache, data: UtteranceSet, splits: tuple[str, ...], audio: ConditionAudio | None
) -> tuple[Callable[[str], Tensor], Path | None]:
    """Return states by id, from the cache where there is room, else from the encoder every time
    anew; and the folder of distorted states.

    Clean documents and queries are in folders of their own, so that documents are computed once.
    audio: None for clean speech.
    """
    options = cache.options(False)
    groups: list[tuple[str, ...]] = [(split,) for split in splits]
    reader, folder = CLEAN, None
    paths = {u.id: data.path(u) for split in splits for u in data.splits[split]}
    if audio and audio.setting.group != "clean":
        sound = hash_json(audio.card([*paths.values()]))
        groups, reader = (
            [splits],
            AudioReader({"sound": sound}, lambda recording: audio.read(recording.path)),
        )
        folder = cache.folder(data, splits, options, reader)
    fits = [cache.fits(SpokenTerms.name, data, group, options, reader) for group in groups]
    cached = (
        [cache.states(data, group, options, reader) for group in groups]
        if cache.mode != "loop" and all(fits)
        else None
    )

    def states_of(name: str) -> Tensor:
        for states in cached or ():
            if name in states:
                return states[name]
        if cached is not None:
            raise KeyError(name)
        try:
            samples = audio.read(paths[name]) if audio else read_audio(paths[name])
            return cache.encoder.hidden_states(samples).cpu().transpose(0, 1)
        except (InputError, ValueError) as error:
            raise KeyError(name) from error

    return states_of, folder


# ---- evaluations on disk, and their mean over folds


def result_path(out: Path, encoder: str, part: str, head: str, setting: Setting) -> Path:
    return out / "scores" / encoder / part / head / f"{setting.file}.json"


@dataclass(frozen=True)
class EvaluationFile:
    """A file keeps the evaluation of a head in a condition. made_from: hash of all that decides
    it."""

    path: Path
    made_from: str

    @property
    def is_current(self) -> bool:
        """Tell whether it need not be made (again). A damaged file is reported."""
        if not self.path.is_file():
            return False
        try:
            contents = read_json(self.path)
        except InputError as error:
            tqdm.write(f"{error}; it is made again", file=sys.stderr)
            return False
        return contents["made_from"] == self.made_from and not contents["failed"]

    def write(self, evaluation: HeadEvaluation, failed: Mapping[str, str] | None = None) -> None:
        """Write it. failed: id of a recording -> why it could not be encoded."""
        facts = {"made_from": self.made_from, "failed": dict(failed or {})}
        write_json(self.path, asdict(evaluation) | facts)

    def read(self) -> HeadEvaluation:
        return convert(read_json(self.path), HeadEvaluation, self.path, "delete it and run again")


def combine_folds(folds: Sequence[HeadEvaluation]) -> HeadEvaluation:
    """Return the mean of each measure over folds, whose intervals are independent; without one,
    where a fold has none. Confusions of the same classes are added up.
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
    detail = dict(folds[0].detail)
    confusions = [x.detail.get("confusion", {}) for x in folds]  # by slot
    classes = [
        {slot: part["classes"] for slot, part in confusion.items()} for confusion in confusions
    ]
    if confusions[0] and all(one == classes[0] for one in classes):
        detail["confusion"] = {
            slot: {
                "classes": names,
                "counts": np.sum([c[slot]["counts"] for c in confusions], axis=0).tolist(),
            }
            for slot, names in classes[0].items()
        }
    return HeadEvaluation(tuple(measures), detail)
