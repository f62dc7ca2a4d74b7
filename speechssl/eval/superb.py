"""SUPERB from the command line: encoders on tasks, clean and noisy; the gain of caching. In one
folder are

features/<encoder>/<key> (hidden states; may be deleted), heads/<encoder>/<part>/seed-<n>,
noise.jsonl (the mixtures, frozen before anything is encoded), scores/<encoder>/<part>/... (a file a
head and condition), details/<encoder>/<task>.json (what figures are drawn from), results.jsonl and
superb.md. A part is a task, or a fold of it (er/fold-1). Every file exists or is made by the same
command; a killed run resumes.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from speechssl.artifacts import hash_bytes, hash_json, read_json, write_json, write_text
from speechssl.audio import read_audio
from speechssl.augment import Distorter
from speechssl.cascade.decode import read_arpa
from speechssl.data.superb import DOCUMENTS, UtteranceSet, load_labelled, load_set
from speechssl.encoders.encoder import SpeechEncoder, single_threaded
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.conditions import (
    FrozenMixtures,
    Item,
    Setting,
    check_conditions,
    check_unseen,
    file_size,
    freeze_mixtures,
    list_settings,
    name_utterances,
    noises_in,
    trained_noises,
)
from speechssl.eval.encode import Encoded
from speechssl.options import noise_folders
from speechssl.results import (
    DEFAULT,
    HEAD,
    LOWER_IS_BETTER,
    Row,
    Table,
    append_rows,
    decimals,
    drawn_sentence,
    list_rows,
    nearest_snr,
    read_rows,
    seeds_text,
    snr_note,
    unit,
)
from speechssl.schema import convert
from speechssl.stats import FEWEST
from speechssl.superb.data import (
    CLEAN,
    TRAINING,
    AudioReader,
    CachedLoader,
    FeatureCache,
    HeadEvaluation,
    HeadSettings,
    Loader,
    Measure,
    OnlineLoader,
    Task,
    encoder_card,
)
from speechssl.superb.options import LEADERBOARD, Data, Superb, SuperbSpeed
from speechssl.superb.tasks import ABOUT, ORDER, QBE, TASKS
from speechssl.superb.tasks.classification import METRIC
from speechssl.superb.tasks.diarisation import Diarisation
from speechssl.superb.tasks.enhancement import check_installed
from speechssl.superb.tasks.spoken_terms import SpokenTerms
from speechssl.superb.tasks.transcription import Speech, train_language_model
from speechssl.superb.train import (
    HeadRun,
    TrainedHead,
    load_head,
    own_generator,
    parallel_training,
    predict,
    shuffled_batches,
    task_card,
    train_head,
)
from speechssl.superb.tuning import NO_HEADS, Tuning, make_tuning
from speechssl.timing import FrameGrid
from speechssl.units.spectral import SPECTRAL, spectral_encoder

ALL = "all"
GROUPS = ("clean", "seen", "unseen")
HOURS = 3.0  # of training speech: the preset `auto` is `small` below it
read_language_model = lru_cache(maxsize=1)(read_arpa)  # LibriSpeech's takes minutes
RESAMPLES = 1000
# the rules of `stats`; a result keeps intervals and no items
DRAWN = f"voices from {FEWEST} on, width by t"


@dataclass(frozen=True)
class Plan:
    """This plans a run as the options say. encoders: name -> where; data: task -> folder of its
    set, or of fold-1, ..., in order."""

    options: Superb
    encoders: Mapping[str, str]
    data: Mapping[str, Path]
    distorter: Distorter


@dataclass(frozen=True)
class TaskPart:
    """This is a set that heads are trained on: a task, or one fold of it. label: "ks",
    "er/fold-1"."""

    task: str
    label: str
    data: UtteranceSet
    preset: str

    @property
    def items(self) -> list[Item]:
        splits = (DOCUMENTS, "test") if self.task == QBE else ("test",)
        return [Item(u.id, self.data.path(u)) for split in splits for u in self.data.splits[split]]

    def make(self, grid: FrameGrid) -> tuple[Task, HeadSettings]:
        """Make the task with a head for an encoder of this grid, and how the head is trained."""
        entry = TASKS[self.task]
        if self.preset == "small":
            return entry.make(self.data, grid, **entry.sizes), entry.small
        return entry.make(self.data, grid), entry.published


@dataclass(frozen=True)
class Benchmarked:
    """This is an encoder under test. name: in results, with that of the tuning
    ("robust+distorted"); tuning: how heads are trained on distorted speech, or with their upstream;
    None: on clean speech, with a frozen one.
    """

    name: str
    cache: FeatureCache
    device: str  # of the heads
    tuning: Tuning | None = None

    @property
    def card(self) -> dict[str, Any]:
        """This is the card of what heads are trained on, or with."""
        return encoder_card(self.cache.encoder) | (
            {"tuning": self.tuning.card} if self.tuning else {}
        )

    def encoder_of(self, head: TrainedHead, plan: Plan) -> SpeechEncoder:
        """Return the encoder that was trained with a head, or the frozen one."""
        sets = plan.options.sets
        return (
            self.cache.encoder
            if head.upstream is None
            else _loaded(head.upstream, sets.precision, sets.device)
        )


_loaded = lru_cache(maxsize=1)(load_encoder)  # a head is evaluated in one condition after another


@dataclass(frozen=True)
class ConditionAudio:
    """These are test recordings under a setting. names: what frozen noise knows a recording by, by
    its path."""

    setting: Setting
    mixtures: FrozenMixtures | None  # None: clean speech
    names: Mapping[str, str]

    def read(self, path: Path) -> np.ndarray:
        """Read samples (N,), float32 at 16 kHz. Raises InputError or ValueError where it cannot be
        read or distorted."""
        samples = read_audio(path)
        if self.mixtures is None:
            return samples
        return self.mixtures.apply(
            samples, self.setting.condition, self.names[os.path.abspath(path)]
        )

    def card(self, paths: Sequence[Path]) -> Any:
        """Return what decides the samples of these recordings."""
        files = [[path.name, file_size(path)] for path in paths]
        if self.mixtures is None:
            return [files, "clean"]
        utterances = [self.names[os.path.abspath(path)] for path in paths]
        return [
            files,
            asdict(self.setting.condition),
            self.mixtures.made_from(self.setting.condition, utterances),
        ]


# ---- the run


def evaluate_superb(o: Superb) -> list[dict[str, Any]]:
    """Run SUPERB, print the tables, and return the rows of `o.out`, of which --train-only has
    none. Raises InputError as `run_superb` does."""
    print(run_superb(o))
    return list_rows(o.out) if (o.out / "results.jsonl").is_file() else []


def run_superb(o: Superb) -> str:
    """Do what is not done yet, write rows and tables, and return the tables.

    Raises InputError for encoders, tasks, data or noises that cannot be had, before anything is
    computed where it can be known.
    """
    plan, tuning, out = make_plan(o), make_tuning(o), o.out
    if "se" in plan.data:
        check_installed()
    if "asr" in plan.data and o.lm:
        read_language_model(o.lm)
    parts = []
    for task, folder in plan.data.items():
        parts += list_parts(task, folder, o.sets.preset)
    settings = list_settings(o.noise.seen, o.noise.unseen, o.noise.snr)
    check_conditions(settings, plan.distorter)
    if tuning:
        check_tunable(plan)
    trained_on = noises_in(tuning.card) if tuning else frozenset()
    for name, where in plan.encoders.items():
        check_unseen(name, trained_noises(where) | trained_on, settings)

    audio = [] if o.train_only else frozen_audio(plan, parts, settings)  # before any encoder runs
    suffix, device = tuning.name if tuning else "", o.sets.device
    if device == "auto":  # heads are trained where the encoder is
        device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, where in plan.encoders.items():
        encoder_tuning = replace(tuning, source=where) if tuning else None
        cache = feature_cache(out, name, where, plan)
        encoder = Benchmarked(f"{name}{suffix}", cache, device, encoder_tuning)
        heads = train_heads(encoder, parts, plan)
        for task in () if o.train_only else plan.data:
            of_task = [part for part in parts if part.task == task]
            rows = list(evaluate_task(encoder, of_task, heads, audio, plan))
            is_old = partial(is_outdated, rows[0])
            append_rows(out / "results.jsonl", rows, True, outdated=is_old)
            first = next(row for row in rows if row.condition == "clean")
            ends = "" if first.low is None else f" [{first.low:.2f}, {first.high:.2f}]"
            score = f"{first.metric} {first.value:.2f}{ends}"
            tqdm.write(f"{encoder.name}: {task} ({ABOUT[task]}) {score}", file=sys.stderr)
    if o.train_only:
        return (
            "heads are trained; their dev scores are in heads/*/*/*/card.json, and the test "
            "set was not used"
        )

    over = ("", plan.distorter.snr_over)
    rows = [row for row in read_rows(out / "results.jsonl") if row.snr_over in over]
    tables = superb_tables(rows, [f"{name}{suffix}" for name in plan.encoders], o.noise.at)
    note = list(filter(None, [snr_note(o.noise.snr_over)]))
    text = "\n\n".join([*(table.markdown for table in tables), *note])
    write_text(out / "superb.md", f"{text}\n")
    return "\n\n".join([*(table.text for table in tables), *note])


def frozen_audio(
    plan: Plan, parts: Sequence[TaskPart], settings: Sequence[Setting]
) -> list[ConditionAudio]:
    """Return the test recordings under every setting, mixtures frozen in noise.jsonl. Raises
    InputError as `freeze_mixtures`."""
    o, utterances = plan.options, name_utterances((part.task, part.items) for part in parts)
    mixtures = None
    if len(settings) > 1:
        recordings = {name: item.path for item, name in utterances.items()}
        conditions = [setting.condition for setting in settings]
        mixtures = freeze_mixtures(
            plan.distorter, recordings, conditions, o.out / "noise.jsonl", o.sets.workers
        )
    names = {str(item.path): name for item, name in utterances.items()}
    return [
        ConditionAudio(setting, None if setting.group == "clean" else mixtures, names)
        for setting in settings
    ]


def check_tunable(plan: Plan) -> None:
    """Raise InputError where a task has no head that can be trained on distorted speech or with its
    upstream, or an encoder has no weights."""
    left = [task for task in plan.data if task in NO_HEADS]
    left += [where for where in plan.encoders.values() if where in SPECTRAL]
    if left:
        raise InputError(
            f"{', '.join(left)} cannot be trained with --finetune or --distort; leave out these "
            "tasks and encoders, or both options"
        )


def list_parts(task: str, folder: Path, preset: str) -> list[TaskPart]:
    """Return the set in a folder, or its folds. Raises InputError where there is none."""
    folds = [fold for fold in folder.glob("fold-*") if fold.is_dir()]
    folds.sort(key=lambda f: [int(n) for n in re.findall(r"\d+", f.name)])
    folders = {f"{task}/{fold.name}": fold for fold in folds} or {task: folder}
    parts = []
    for label, where in folders.items():
        data: UtteranceSet
        if task == QBE:
            data = load_set(where, task)
        else:
            card = where / "card.json"
            name = read_json(card).get("task") if card.is_file() else None
            load = load_labelled if TASKS[task].metric == METRIC else load_set
            data = load(where, name if name in TASKS[task].folders else task)
        if preset == "auto":
            hours = sum(u.seconds for u in data.splits.get("train", ())) / 3600
            parts.append(TaskPart(task, label, data, "small" if hours < HOURS else "published"))
        else:
            parts.append(TaskPart(task, label, data, preset))
    return parts


def feature_cache(out: Path, name: str, where: str, plan: Plan) -> FeatureCache:
    o, sets = plan.options, plan.options.sets
    encoder = (
        spectral_encoder(where)
        if where in SPECTRAL
        else load_encoder(where, sets.precision, sets.device)
    )
    return FeatureCache(encoder, out / "features" / name, o.features, o.cache_gb, sets.workers)


# ---- heads

# label of a part -> name of a head ("seed-0", "seed-0-default") -> head
Heads = Mapping[str, Mapping[str, TrainedHead]]


def train_heads(encoder: Benchmarked, parts: Sequence[TaskPart], plan: Plan) -> Heads:
    """Train what is missing: tasks side by side, and for each the rates of its sweep. The first
    seed tunes for all."""
    o = plan.options
    trained = [part for part in parts if part.task != QBE]
    pairs = [part.make(encoder.cache.encoder.grid) for part in trained]  # raises first
    runs = []
    for part, (task, settings) in zip(trained, pairs, strict=True):
        steps, batch = o.steps or settings.steps, o.batch or settings.batch
        settings = replace(settings, steps=steps, every=min(settings.every, steps), batch=batch)
        folder = o.out / "heads" / encoder.name / part.label
        loader = (
            encoder.cache.loader(task) if encoder.tuning is None else encoder.cache.online(task)
        )
        runs.append(
            HeadRun(task, loader, settings, o.seed[0], folder, encoder.device, encoder.tuning)
        )

    def with_decoding(trained: TrainedHead, run: HeadRun) -> TrainedHead:
        """Add the language model of ASR, and the threshold and the filter of SD that are best on
        dev."""
        task, loader = trained.task, run.loader
        if isinstance(task, Speech):
            model = read_language_model(o.lm) if o.lm else train_language_model(task.data)
            return replace(trained, task=replace(task, language_model=model))
        if isinstance(task, Diarisation):
            if isinstance(loader, OnlineLoader):
                loader = replace(loader, encoder=encoder.encoder_of(trained, plan))
            dev = loader.usable(task.data.splits["dev"])
            predicted = predict({"head": (task, trained.head)}, loader, dev, run.settings.batch)[
                "head"
            ]
            return replace(trained, task=task.tune(predicted))
        return trained

    def train_seeds(run: HeadRun) -> dict[str, TrainedHead]:
        heads: dict[str, TrainedHead] = {}
        rates = o.learning_rates or (run.settings.learning_rate,)
        for seed in o.seed:
            seed_run = replace(run, seed=seed, folder=run.folder / f"seed-{seed}")
            heads[f"seed-{seed}"] = tuned = train_head(
                seed_run, encoder.card, rates, TASKS[run.task.name].metric, train_runs
            )
            heads[f"seed-{seed}-default"] = load_head(
                seed_run.folder, run.task, encoder.card, "default"
            )
            rates = (float(tuned.card["learning_rate"]),)
        return {name: with_decoding(head, run) for name, head in heads.items()}

    with parallel_training(o.sets.workers, f"heads on {encoder.name}") as train_runs:
        pool = ThreadPoolExecutor(max(len(runs), 1))
        try:
            return dict(
                zip([part.label for part in trained], pool.map(train_seeds, runs), strict=True)
            )
        finally:  # where one fails the others are not waited for
            pool.shutdown(wait=False, cancel_futures=True)


# ---- scores


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
    decisive = []
    for part in parts if task != QBE else ():
        head = next(iter(heads[part.label].values()))  # all seeds have the same settings
        facts = [head.card[name] for name in ("encoder", "task", "settings")]
        decisive.append([*facts, hash_language_model(head.task)])
    made_from = hash_json(decisive or encoder_card(encoder.cache.encoder))
    for one in audio:
        clean = one.setting.group == "clean"
        chosen = [name for name in names if clean or not name.endswith("default")]
        if task == QBE:
            folds = [{"seed-0": evaluate_terms(encoder, part, one, plan)} for part in parts]
        else:
            folds = [
                evaluate_heads(encoder, p, {n: heads[p.label][n] for n in chosen}, one, plan)
                for p in parts
            ]
        for name in chosen:
            together, default = (
                combine_folds([fold[name] for fold in folds]),
                name.endswith("-default"),
            )
            if clean and name == chosen[0]:
                detail = {
                    "task": task,
                    "encoder": encoder.name,
                    "condition": "clean",
                    "detail": together.detail,
                }
                write_json(plan.options.out / "details" / encoder.name / f"{task}.json", detail)
            card = {
                "data": [part.data.hash for part in parts],
                "preset": parts[0].preset,
                "made_from": made_from,
            }
            seed = int(name.removesuffix("-default").removeprefix("seed-"))
            for m in together.measures[:1] if default else together.measures:
                # fewer say too little of the spread
                low, high = (m.low, m.high) if m.groups >= FEWEST else (None, None)
                cell = (
                    task,
                    HEAD,
                    encoder.name,
                    one.setting.name,
                    one.setting.snr_db,
                    f"{m.metric}{DEFAULT}" if default else m.metric,
                )
                over = (
                    "" if clean else plan.distorter.card(one.setting.condition).get("snr_over", "")
                )
                yield Row(*cell, m.value, low, high, m.n, seed, card, m.drawn, m.groups, over)


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


def hash_language_model(task: Any) -> str | None:
    """Return the hash of the language model that a task decodes with."""
    model = getattr(task, "language_model", None)
    return model and hash_bytes(
        "\n".join(model.words).encode(), *(n.log_probs.tobytes() for n in model.ngrams)
    )


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
        facts += [
            encoder_card(speech_encoder),
            decoding,
            hash_language_model(head.task),
            RESAMPLES,
            DRAWN,
        ]
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


def result_path(out: Path, encoder: str, part: str, head: str, setting: Setting) -> Path:
    return out / "scores" / encoder / part / head / f"{setting.file}.json"


@dataclass(frozen=True)
class EvaluationFile:
    """This is the evaluation of a head in a condition, on disk. made_from: hash of all that decides
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


# ---- query by example: queries and documents under one condition; the layer is chosen on clean
# dev queries


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


# ---- data and names from the command line


def find_data(sets: Data) -> dict[str, Path]:
    """Find the data: task -> folder. Raises InputError for an unknown task, and for folders that
    are not there or not given."""
    given = dict(text.split("=", 1) for text in sets.tasks if "=" in text)
    named = [text for text in sets.tasks if "=" not in text]
    unknown = [task for task in (*given, *named) if task not in (*ORDER, ALL)]
    if unknown:
        raise InputError(f"there is no task {unknown[0]!r}; choose from {', '.join(ORDER)}, or all")
    found = {}
    for task in ORDER:
        places = []
        if task in given:
            places = [Path(given[task])]
        elif sets.data and (task in named or ALL in named):
            names = (task, *(TASKS[task].folders if task != QBE else ()))
            places = [sets.data / name for name in names]
        for place in filter(Path.is_dir, places[::-1]):
            found[task] = place
    missing = [task for task in (*given, *named) if task not in (*found, ALL)]
    if missing or not found:
        task = missing[0] if missing else "any task"
        raise InputError(
            f"there is no data for {task} in {given.get(task, sets.data)}; prepare it, and give "
            "--data the folder of all sets, or one set with TASK=FOLDER"
        )
    left = [task for task in ORDER if ALL in named and task not in found]
    if left:
        without = f"{sets.data} has no data for {', '.join(left)}"
        tqdm.write(f"{without}; these are left out", file=sys.stderr)
    return found


def make_plan(o: Superb) -> Plan:
    """Make the plan. Raises InputError for options that cannot be followed."""
    distorter = Distorter(o.seed[0], o.noise.voices, noise_folders(o.noise.noise), o.noise.snr_over)
    return Plan(o, name_encoders(o.encoders), find_data(o.sets), distorter)


def name_encoders(texts: Sequence[str]) -> dict[str, str]:
    """Name encoders by `NAME=WHERE`, or WHERE alone, whose last part is the name (exp/mine/encoder
    is mine, hubert.pt is hubert). Raises InputError for names that cannot be folders."""
    by_name: dict[str, str] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        if not equals:
            where, path = text, Path(text)
            path = path.parent if path.name == "encoder" and path.parent.name else path
            name = (path.stem if path.suffix in (".pt", ".pth") else path.name).replace(":", "-")
        if not re.fullmatch(r"[^./\\][^/\\]*", name) or not where or name in by_name:
            raise InputError(
                f"--encoders {text} has no name of its own that can be a folder's; write NAME=WHERE"
            )
        by_name[name] = where
    return by_name


def superb_tables(rows: Sequence[Row], encoders: Sequence[str], at: float) -> list[Table]:
    """Make the tables: clean speech; learning rates; noise. at: dB, the SNR that stands for noise.
    Tables without rows are left out."""
    every = [row for row in rows if row.task in ORDER and row.encoder in encoders]
    cells: dict[tuple[str, ...], list[Row]] = {}  # by task, metric, encoder and group
    for row in every:
        group = row.condition.partition("-")[0]
        cells.setdefault((row.task, row.metric, row.encoder, group), []).append(row)
    measured = dict.fromkeys((row.task, row.metric) for row in every)
    in_order = sorted(measured, key=lambda pair: ORDER.index(pair[0]))
    # without those at the task's own rate and those of the gain of caching
    main = [m for m in in_order if not m[1].endswith(DEFAULT) and not m[1].startswith("ratio")]

    scores, rates, noise = [], [], []
    groups = [g for g in GROUPS if any(key[3] == g for key in cells)]
    for task, metric in main:
        name = measure_name(task, metric)
        texts = [seeds_text(cells.get((task, metric, e, "clean"), [])) for e in encoders]
        if set(texts) != {"-"}:
            scores.append((name, *texts))
        if (task, f"{metric}{DEFAULT}") in measured:
            of_default = [cells.get((task, f"{metric}{DEFAULT}", e, "clean"), []) for e in encoders]
            pairs = zip(texts, map(seeds_text, of_default), strict=True)
            rates.append((name, *(" / ".join(t.partition(" ")[0] for t in pair) for pair in pairs)))
        if len(groups) > 1:
            # as the lecture has it: each group at the SNR nearest to `at`, the mean over its noises
            line = []
            for encoder in encoders:
                values = [
                    [r.value for r in nearest_snr(cells.get((task, metric, encoder, g), []), at)]
                    for g in groups
                ]
                digits = decimals(metric)
                means = [f"{statistics.fmean(v):.{digits}f}" if v else "-" for v in values]
                line.append(" | ".join(means))
            noise.append((name, *line))

    clean = [row for row in every if row.condition == "clean" and (row.task, row.metric) in main]
    seeds = len({row.seed for row in clean})
    note = "Test sets, clean speech; ↑ more is better, ↓ less is. "
    note += drawn_sentence((row.task, row.drawn, row.groups) for row in clean)
    if seeds > 1:
        note += f" Means over {seeds} seeds, the interval reaches over those of all."
    but = ", but for those of encoders with + in their names" * any("+" in e for e in encoders)
    legend = (
        f"Noise at the SNR nearest to {at:g} dB, the mean over the noises of a group. Heads "
        f"were trained on clean speech{but}."
    )
    head, tuned = ("task", *encoders), "Learning rate tuned on dev / the task's own"
    tables = [
        Table("SUPERB", head, tuple(scores), note.strip()),
        Table(tuned, head, tuple(rates), "Test sets, clean speech."),
        Table(" | ".join(groups), head, tuple(noise), legend),
    ]
    return [table for table in tables if table.rows]


def measure_name(task: str, metric: str) -> str:
    """Return a column's name: "sid acc ↑", "ss si_sdri (dB) ↑"."""
    shown = f" ({unit(metric)})" if unit(metric) not in ("", "%") else ""
    return f"{task} {metric}{shown} {'↓' if metric in LOWER_IS_BETTER else '↑'}"


# ---- the gain of caching


class TaskTiming(NamedTuple):
    """This is the time that a task takes, in seconds."""

    task: str
    updates: int | None  # of the whole sweep; of QbE: layers; None: of several tasks
    cached_step: float
    online_step: float  # with the encoder in the loop
    caching: float
    cached: float  # all, with the cache
    online: float

    @property
    def line(self) -> tuple[Any, ...]:
        """Return the task's line of the table."""
        steps = ["", "", ""]
        if self.updates is not None:
            each = (self.cached_step, self.online_step)
            steps = [f"{self.updates:,}", *(f"{1000 * step:.1f}" for step in each)]
        times = f"{self.caching:.1f}", f"{self.cached:.0f}", f"{self.online:.0f}"
        return (self.task, *steps, *times, f"{self.online / self.cached:.1f}")


def make_timing(
    task: str, updates: int, cached_step: float, online_step: float, caching: float
) -> TaskTiming:
    cached, online = caching + updates * cached_step, updates * online_step
    return TaskTiming(task, updates, cached_step, online_step, caching, cached, online)


def time_superb(o: SuperbSpeed) -> list[dict[str, Any]]:
    """Time the tasks, print the table, and return the rows of `o.out`. Raises InputError as
    `compare_cached` does."""
    print(compare_cached(Superb(out=o.out, encoders=(o.encoder,), sets=o.sets), o.turns))
    return list_rows(o.out)


def compare_cached(o: Superb, turns: int) -> str:
    """Compare training of heads from cached states beside the same heads with the encoder in the
    loop, on the same batches in turns: write rows `ratio_cached` (of each task, and of `all`
    together), and return the table.

    The time of a benchmark is that of computing the cache and of all steps of a sweep, at the
    median of the timed ones; without a cache, that of all the steps with the encoder in each.
    Evaluations on dev are left out on both sides. QbE compares all layers on dev; without a cache
    every layer is encoded anew, as by s3prl's program. The states are computed anew into a folder
    of their own, which is removed. Raises InputError as `run_superb`.
    """
    plan, out = make_plan(o), o.out
    name, where = next(iter(plan.encoders.items()))
    parts = [list_parts(task, plan.data[task], o.sets.preset)[0] for task in plan.data]
    out.mkdir(parents=True, exist_ok=True)
    timed = []
    with tempfile.TemporaryDirectory(dir=out, prefix=".speed-") as folder:
        cache = feature_cache(Path(folder), name, where, plan)
        # the first call is slow
        cache.encoder.hidden_states(
            np.random.default_rng(0).standard_normal(32_000).astype(np.float32)
        )
        for part in tqdm(parts, "timing", unit="task"):
            timed.append(
                _time_terms(cache, part) if part.task == QBE else _time_heads(cache, part, turns)
            )

    if len(timed) > 1:
        sums = [sum(column) for column in zip(*(t[4:] for t in timed), strict=True)]
        timed.append(TaskTiming(ALL, None, 0, 0, *sums))
    card = {"preset": o.sets.preset, "workers": o.sets.workers}
    rows = []
    for t in timed:
        cell = (t.task, HEAD, name, "clean", None, "ratio_cached")
        rows.append(Row(*cell, t.online / t.cached, None, None, 1, 0, card))
    append_rows(out / "results.jsonl", rows, any_card=True)
    each = ("updates", "ms a step, cached", "ms a step, encoder in the loop")
    columns = ("task", *each, "caching, s", "all, cached, s", "all, in the loop, s", "ratio")
    note = "Updates of a whole sweep of seven learning rates."
    title = "Heads from the cache beside the encoder in the loop"
    return Table(title, columns, tuple(t.line for t in timed), note).text


def _time_heads(cache: FeatureCache, part: TaskPart, turns: int) -> TaskTiming:
    task, settings = part.make(cache.encoder.grid)
    caching = _time_caching(cache, part, TRAINING, task.pooled)
    loader = cache.loader(task)
    if not isinstance(loader, CachedLoader):
        raise InputError(
            f"the hidden states of {part.task} do not fit on the disk; leave the "
            "task out with --tasks"
        )
    # a sweep without early ends, and the task's own rate
    steps = (len(LEADERBOARD) + 1) * settings.steps
    durations: tuple[list[float], list[float]] = ([], [])
    with own_generator():
        trainers = [
            HeadRun(task, x, settings, 0, cache.root / "heads").trainer()
            for x in (loader, cache.online(task))
        ]
        batches = shuffled_batches(
            loader.usable(task.data.splits["train"]), settings.batch, 0, by_length=not task.pooled
        )
        for turn in range(turns + 1):
            utterances = next(batches)
            for trainer, seconds in zip(trainers, durations, strict=True):
                began = time.perf_counter()
                trainer.update(utterances, turn + 1)
                if turn:  # the first warms up
                    seconds.append(time.perf_counter() - began)
    return make_timing(
        part.task, steps, statistics.median(durations[0]), statistics.median(durations[1]), caching
    )


def _time_caching(
    cache: FeatureCache, part: TaskPart, splits: tuple[str, ...], pooled: bool
) -> float:
    """Return seconds; 0 where another task did it."""
    began, options = time.perf_counter(), cache.options(pooled)
    if (cache.folder(part.data, splits, options) / "card.json").is_file():
        return 0.0
    cache.states(part.data, splits, options)
    return time.perf_counter() - began


def _time_terms(cache: FeatureCache, part: TaskPart) -> TaskTiming:
    """Time the search of terms. A step is the search with the states of one layer.

    With the cache the states are computed once; without, once for each layer and for the test
    queries. The search itself is the same for both and is timed once.
    """
    caching = sum(_time_caching(cache, part, (split,), False) for split in (DOCUMENTS, "dev"))
    layers, began = cache.encoder.layers + 1, time.perf_counter()
    choose_layer(SpokenTerms(part.data), cache, cache.root / "qbe.json")
    search = (time.perf_counter() - began) / layers
    return make_timing(QBE, layers, search, search + caching, caching)
