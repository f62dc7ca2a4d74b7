"""SUPERB from the command line: encoders on tasks, clean and noisy; heads, scores, rows and tables in one folder.

    out/data/<task>/                       the synthetic sets, where no others are given
    out/features/<encoder>/<key>/          hidden states, computed once; may be deleted
    out/heads/<encoder>/<part>/seed-<n>/   what was trained, on clean speech or as `Plan.tuning` says
    out/noise.jsonl                        the mixtures, frozen before anything is heard
    out/scores/<encoder>/<part>/...        a file a head and condition
    out/details/<encoder>/<task>.json      what figures are drawn from
    out/results.jsonl, superb.md           a row a value; the tables

A part is a task, or a fold of it (er/fold-1). Each file is there or is made by the same command; a killed run goes on.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.artefacts import write_json, write_text
from speechssl.corpora.utterances import UtteranceSet
from speechssl.encoders.loading import load_encoder
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.errors import InputError
from speechssl.evaluation.grid import Setting, check_settings, name_utterances
from speechssl.evaluation.judging import Ears, cell_path, judge_heads
from speechssl.evaluation.mixtures import freeze_mixtures
from speechssl.evaluation.results import DEFAULT, Row, append_rows, read_rows
from speechssl.evaluation.robustness import settings_of
from speechssl.evaluation.states import TRAINING, Augmentation, Stock
from speechssl.evaluation.subjects import check_unseen, heard_by, names_in
from speechssl.evaluation.superb_tables import superb_tables
from speechssl.evaluation.terms import judge_terms
from speechssl.noise import Distorter
from speechssl.noise.level import ACTIVE, snr_note
from speechssl.superb.catalogue import ABOUT, ORDER, QBE, TASKS, language_model, make_task, preset_for, read_data
from speechssl.superb.crew import crew
from speechssl.superb.diarisation import Diarisation
from speechssl.superb.features import encoder_card
from speechssl.superb.fit import Run, predictions
from speechssl.superb.metrics.enhancement import check_installed
from speechssl.superb.supply import InTheLoop, Supply
from speechssl.superb.sweep import LEADERBOARD, Go
from speechssl.superb.task import Judgement, Measure
from speechssl.superb.tasks import Item
from speechssl.superb.train import TrainedHead, load_head, train_head
from speechssl.superb.transcription import Speech
from speechssl.superb.tuning import NO_HEADS, Tuning
from speechssl.superb.upstream import SPECTRAL, find_upstream, load_upstream


@dataclass(frozen=True)
class Plan:
    """What is run. encoders: name -> where; data: task -> folder of its set, or of fold-1, fold-2, ... of it."""

    encoders: Mapping[str, str]
    data: Mapping[str, Path]
    preset: str = "auto"  # or published, small
    rates: tuple[float, ...] = LEADERBOARD  # () for the task's own alone
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None  # instead of the preset's
    seen: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    snrs: tuple[float, ...] = (20.0, 10.0, 5.0, 0.0)
    voices: tuple[Path, ...] = ()  # for babble
    folders: Mapping[str, Path] = field(default_factory=dict)  # of noises by name
    snr_over: str = ACTIVE  # what of the speech an SNR is measured over, see `speech_level`
    at: float = 5.0  # dB, the SNR of the table clean | seen | unseen
    arpa: Path | None = None  # language model of ASR; None: of the training texts
    features: str = "auto"
    tuning: Tuning | None = None  # heads trained on distorted speech, or with their upstream; then encoders get its name
    judge: bool = True  # False: heads are trained and chosen on dev, and the test set is left alone
    augment: tuple[str, ...] = ()  # conditions that training recordings are heard through; then the encoder is in the loop
    cache_gb: float = 50.0
    precision: str = "fp32"
    device: str = "auto"
    workers: int = 2


@dataclass(frozen=True)
class Part:
    """A set that heads are trained on: a task, or one fold of it."""

    task: str
    label: str  # "ks", "er/fold-1"
    data: UtteranceSet
    preset: str


@dataclass(frozen=True)
class Listener:
    """An encoder at work."""

    name: str
    stock: Stock
    device: str  # of the heads
    tuning: Tuning | None = None

    @property
    def card(self) -> dict[str, Any]:
        """Of what heads are trained on, or with."""
        augmentation = self.stock.augmentation
        through: dict[str, Any] = {}
        if augmentation:
            through["heard through"] = [c.text for c in augmentation.conditions]
            through |= {} if augmentation.distorter.snr_over == ACTIVE else {"snr_over": augmentation.distorter.snr_over}
        return encoder_card(self.stock.encoder) | through | ({"tuning": self.tuning.card} if self.tuning else {})


def run_superb(out: Path, plan: Plan) -> str:
    """Do what is not done yet, write rows and tables, and return the tables.

    Raises InputError for encoders, tasks, data or noises that cannot be had, before anything is computed where it can be known.
    """
    if "se" in plan.data:
        check_installed()
    if "asr" in plan.data and plan.arpa:
        language_model(None, plan.arpa)
    parts = [part for task in ORDER if task in plan.data for part in parts_of(task, plan.data[task], plan.preset)]
    settings, distorter = settings_of(plan.seen, plan.unseen, plan.snrs), _distorter(plan)
    check_settings(settings, distorter)
    check_tuning(plan)
    trained_on = names_in(plan.tuning.card) if plan.tuning else frozenset()
    for name, where in plan.encoders.items():
        check_unseen(name, heard_by(Path(find_upstream(where))) | trained_on, settings)
    ears = _ears(out, parts, settings, distorter, plan) if plan.judge else []
    for name, where in plan.encoders.items():
        stock = stock_of(out, name, where, plan)
        tuning = None if plan.tuning is None else replace(plan.tuning, source=str(find_upstream(where)))
        listener = Listener(named(name, tuning), stock, _device(plan.device), tuning)
        heads = _train(out, listener, parts, plan)
        for task in [task for task in ORDER if task in plan.data and plan.judge]:
            mine = [part for part in parts if part.task == task]
            rows = list(_judge(out, listener, mine, heads, ears, plan))
            append_rows(out / "results.jsonl", rows, any_card=True)
            _tell(listener.name, task, rows)
    if not plan.judge:
        return "heads are trained; their dev scores stand in heads/*/*/*/card.json, and no test recording was read"
    tables = superb_tables(read_rows(out / "results.jsonl"), [named(name, plan.tuning) for name in plan.encoders], plan.at)
    note = [sentence for sentence in (snr_note(plan.snr_over),) if sentence]
    write_text(out / "superb.md", "\n\n".join([*(table.markdown for table in tables), *note]) + "\n")
    return "\n\n".join([*(table.text for table in tables), *note])


def named(encoder: str, tuning: Tuning | None) -> str:
    """What an encoder is called in results: "robust", "robust+distorted"."""
    return encoder if tuning is None else f"{encoder}{tuning.name}"


def check_tuning(plan: Plan) -> None:
    """Raises InputError for tasks, or other settings, that heads cannot be tuned with."""
    if plan.tuning is None:
        return
    check_tunable(plan.data)
    if plan.augment:
        raise InputError("--augment and --distort both distort the training recordings; give one of them")
    if plan.precision == "int8":
        raise InputError("no encoder trains in int8; choose --precision fp32 or bf16")
    if spectral := [where for where in plan.encoders.values() if where in SPECTRAL]:
        raise InputError(f"{spectral[0]} has no weights, and nothing to train; name an encoder without --finetune and --distort")


def check_tunable(tasks: Iterable[str]) -> None:
    """Raises InputError where one of them has no head that can be trained on distorted speech or with its upstream."""
    if left := [task for task in tasks if task in NO_HEADS]:
        raise InputError(f"{', '.join(left)} cannot be trained with --finetune or --distort; name other tasks with --tasks")


def parts_of(task: str, folder: Path, preset: str) -> list[Part]:
    """The set in a folder, or its folds. Raises InputError where there is none."""
    folds = sorted(folder.glob("fold-*"), key=lambda f: [int(n) for n in re.findall(r"\d+", f.name)])
    found = {f"{task}/{fold.name}": fold for fold in folds if fold.is_dir()} or {task: folder}
    sets = {label: read_data(task, where) for label, where in found.items()}
    return [Part(task, label, data, preset_for(data, preset)) for label, data in sets.items()]


def stock_of(out: Path, name: str, where: str, plan: Plan) -> Stock:
    encoder = load_upstream(find_upstream(where), plan.precision, plan.device)
    augmentation = None
    if plan.augment:
        conditions = tuple(s.condition for s in settings_of(plan.augment, (), plan.snrs)[1:])
        augmentation = Augmentation(conditions, _distorter(plan))
        check_settings([Setting("seen", c) for c in conditions], augmentation.distorter)
    return Stock(encoder, out / "features" / name, plan.features, plan.cache_gb, plan.workers, augmentation)


def _distorter(plan: Plan) -> Distorter:
    return Distorter(plan.seeds[0], plan.voices, plan.folders, plan.snr_over)


def _device(wanted: str) -> str:
    """Of the heads: where the encoder is."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class _Listed:
    """The test recordings of a part, as `name_utterances` wants them."""

    name: str
    part: Part

    def items(self) -> list[Item]:
        data = self.part.data
        splits = ("documents", "test") if self.part.task == QBE else ("test",)
        return [Item(u.id, data.path(u)) for split in splits for u in data.splits[split]]


def _ears(out: Path, parts: Sequence[Part], settings: Sequence[Setting], distorter: Distorter, plan: Plan) -> list[Ears]:
    """One a setting; mixtures are frozen before the first of them listens."""
    sources = name_utterances([_Listed(part.task, part) for part in parts])  # type: ignore[misc]
    names = {os.path.abspath(path): name for (_, path), name in sources.items()}
    if len(settings) == 1:
        return [Ears(settings[0], None, names)]
    recordings = {name: path for (_, path), name in sources.items()}
    mixtures = freeze_mixtures(distorter, recordings, [s.condition for s in settings], out / "noise.jsonl", plan.workers)
    return [Ears(setting, mixtures, names) for setting in settings]


# ---- heads

Heads = Mapping[str, Mapping[str, TrainedHead]]  # label of a part -> name of a head ("seed-0", "seed-0-default") -> it


def _train(out: Path, listener: Listener, parts: Sequence[Part], plan: Plan) -> Heads:
    """Train what is missing: tasks side by side, and for each the rates of its sweep."""
    for part in parts:  # what cannot be done at all is told before anything is computed
        if part.task != QBE:
            make_task(part.task, part.data, listener.stock.encoder.grid, part.preset)
    runs = [_prepared(out, listener, part, plan) for part in parts if part.task != QBE]
    labels = [part.label for part in parts if part.task != QBE]
    with crew(plan.workers, f"heads on {listener.name}") as go:
        pool = ThreadPoolExecutor(max(len(runs), 1))
        try:
            return dict(zip(labels, pool.map(lambda run: _heads_of(run, listener.card, plan, go), runs), strict=True))
        finally:  # where one fails the others are not waited for
            pool.shutdown(wait=False, cancel_futures=True)


def _prepared(out: Path, listener: Listener, part: Part, plan: Plan) -> Run:
    """The run of a part, its states computed."""
    task, settings = make_task(part.task, part.data, listener.stock.encoder.grid, part.preset)
    settings = replace(settings, steps=plan.steps or settings.steps, every=min(settings.every, plan.steps or settings.every))
    folder = out / "heads" / listener.name / part.label
    supply = listener.stock.supply(task, TRAINING) if listener.tuning is None else listener.stock.loop(task)
    return Run(task, supply, settings, plan.seeds[0], folder, listener.device, listener.tuning)


def _heads_of(run: Run, encoder: Mapping[str, Any], plan: Plan, go: Go) -> dict[str, TrainedHead]:
    """The heads of all seeds at the rate that does best for the first of them, and those of the task's own rate."""
    found: dict[str, TrainedHead] = {}
    rates: tuple[float, ...] = plan.rates or (run.settings.learning_rate,)
    for seed in plan.seeds:
        mine = replace(run, seed=seed, folder=run.folder / f"seed-{seed}")
        found[f"seed-{seed}"] = tuned = train_head(mine, encoder, rates, TASKS[run.task.name].metric, go)
        found[f"seed-{seed}-default"] = load_head(mine.folder, run.task, encoder, "default")
        rates = (float(tuned.card["learning_rate"]),)  # of the first seed
    return {name: _ready(head, run, plan) for name, head in found.items()}


def _ready(trained: TrainedHead, run: Run, plan: Plan) -> TrainedHead:
    """With what decides beside the head: the language model of ASR, and of SD the threshold and the filter that are best on dev."""
    task = trained.task
    if isinstance(task, Speech):
        return replace(trained, task=replace(task, language_model=language_model(task.data, plan.arpa)))
    if isinstance(task, Diarisation):
        supply = run.supply
        if isinstance(supply, InTheLoop):
            supply = replace(supply, encoder=encoder_of(trained, supply.encoder, plan))
        dev = supply.usable(task.data.splits["dev"])
        return replace(trained, task=task.tuned(predictions(task, trained.head, supply, dev, run.settings.batch)))
    return trained


def encoder_of(trained: TrainedHead, start: SpeechEncoder, plan: Plan) -> SpeechEncoder:
    """The encoder that was trained with a head, or the frozen one."""
    return start if trained.upstream is None else _loaded(trained.upstream, plan.precision, plan.device)


@lru_cache(maxsize=1)
def _loaded(folder: Path, precision: str, device: str) -> SpeechEncoder:
    """A head is judged in one condition after another."""
    return load_encoder(folder, precision, device)


# ---- scores


def _judge(out: Path, listener: Listener, parts: Sequence[Part], heads: Heads, ears: Sequence[Ears], plan: Plan) -> Iterator[Row]:
    """The rows of a task: every seed under every condition, and the task's own rate on clean speech. Writes the details."""
    names = ["seed-0"] if parts[0].task == QBE else list(heads[parts[0].label])
    for ear in ears:
        clean = ear.setting.group == "clean"
        wanted = [name for name in names if clean or not name.endswith("default")]
        found = [_judged(out, listener, part, heads, wanted, ear, plan) for part in parts]
        for name in wanted:
            together = combine([judged[name] for judged in found])
            if clean and name == wanted[0]:
                detail = {"task": parts[0].task, "encoder": listener.name, "condition": "clean", "detail": together.detail}
                write_json(out / "details" / listener.name / f"{parts[0].task}.json", detail)
            yield from _rows(parts, listener.name, name, ear.setting, together)


def _judged(
    out: Path, listener: Listener, part: Part, heads: Heads, wanted: Sequence[str], ear: Ears, plan: Plan
) -> dict[str, Judgement]:
    def place(name: str) -> Path:
        return cell_path(out, listener.name, part.label, name, ear.setting)

    what = f"{listener.name}, {part.label}, {ear.setting.label}"
    if part.task == QBE:
        chosen = out / "heads" / listener.name / QBE / "card.json"
        return {"seed-0": judge_terms(part.data, listener.stock, ear, place("seed-0"), chosen, what)}
    mine = {name: heads[part.label][name] for name in wanted}
    if any(head.upstream for head in mine.values()):  # each has an encoder of its own
        judged: dict[str, Judgement] = {}
        for name, head in mine.items():
            encoder = encoder_of(head, listener.stock.encoder, plan)
            judged |= judge_heads({name: head}, place, ear, encoder, None, plan.workers, listener.device, what)
        return judged
    cached: Supply | None = None
    if ear.setting.group == "clean" and not all(place(name).is_file() for name in wanted):
        cached = listener.stock.supply(next(iter(mine.values())).task, ("test",))
    return judge_heads(mine, place, ear, listener.stock.encoder, cached, plan.workers, listener.device, what)


def combine(judged: Sequence[Judgement]) -> Judgement:
    """Of folds: the mean of each measure; its interval is that of independent folds. Confusions are added up."""
    if len(judged) == 1:
        return judged[0]
    found = []
    for same in zip(*(j.measures for j in judged), strict=True):
        value = sum(m.value for m in same) / len(same)
        below, above = (
            sum(x**2 for x in part) ** 0.5 / len(same)
            for part in zip(*((m.value - m.low, m.high - m.value) for m in same), strict=True)
        )
        drawn = ", ".join(dict.fromkeys(m.drawn for m in same if m.drawn))
        sizes = sum(m.n for m in same), drawn, sum(m.groups for m in same)
        found.append(Measure(same[0].metric, value, value - below, value + above, *sizes))
    return Judgement(tuple(found), {**judged[0].detail, **_confusions([j.detail for j in judged])})


def _confusions(details: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The counts of folds with the same classes, added up; nothing where the classes differ."""
    every = [detail.get("confusion", {}) for detail in details]
    classes = [{slot: found["classes"] for slot, found in confusion.items()} for confusion in every]
    if not every[0] or any(names != classes[0] for names in classes):
        return {}
    counts = {slot: np.sum([confusion[slot]["counts"] for confusion in every], axis=0).tolist() for slot in every[0]}
    return {"confusion": {slot: {"classes": classes[0][slot], "counts": counts[slot]} for slot in every[0]}}


def _rows(parts: Sequence[Part], encoder: str, head: str, setting: Setting, judged: Judgement) -> Iterator[Row]:
    """Rows of one head. Those of the task's own rate have only the first measure, called `<metric>_default`."""
    default = head.endswith("-default")
    seed = int(head.removesuffix("-default").removeprefix("seed-"))
    card = {"data": [part.data.hash for part in parts], "preset": parts[0].preset}
    for m in judged.measures[:1] if default else judged.measures:
        metric = f"{m.metric}{DEFAULT}" if default else m.metric
        low, high = (m.low, m.high) if m.groups > 1 else (None, None)  # one group says nothing about the spread
        about = (parts[0].task, encoder, setting.name, setting.snr_db, metric)
        yield Row(*about, m.value, low, high, m.n, seed, card, m.drawn, m.groups)


def _tell(encoder: str, task: str, rows: Sequence[Row]) -> None:
    """A line as soon as a task is done: its first measure on clean speech."""
    first = next(row for row in rows if row.condition == "clean")
    ends = "" if first.low is None else f" [{first.low:.2f}, {first.high:.2f}]"
    said = f"{first.metric} {first.value:.2f}{ends}"
    tqdm.write(f"{encoder}: {task} ({ABOUT[task]}) {said}", file=sys.stderr)
