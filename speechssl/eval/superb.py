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
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment import Distorter
from speechssl.data.sources import Recording
from speechssl.data.utterances import DOCUMENTS, Utterance, UtteranceSet
from speechssl.encoders.base import SpeechEncoder
from speechssl.encoders.load import load_encoder
from speechssl.encoders.states import Hearing, Hears, encoder_card
from speechssl.errors import InputError, tell_set_aside
from speechssl.eval.grid import FrozenMixtures, Setting, check_settings, file_size, freeze_mixtures, name_utterances
from speechssl.eval.grid_tasks import check_unseen, noises_in, trained_noises
from speechssl.eval.robustness import settings_of
from speechssl.eval.states import TRAINING, Augmentation, Stock, options_of
from speechssl.eval.superb_tables import superb_tables
from speechssl.io import hash_bytes, hash_json, read_json, write_json, write_text
from speechssl.results import DEFAULT, Row, append_rows, read_rows
from speechssl.signal import ACTIVE, snr_note
from speechssl.stats import FEWEST
from speechssl.superb.catalogue import ABOUT, ORDER, QBE, TASKS, language_model, make_task, preset_for, read_data
from speechssl.superb.data import InTheLoop, Supply
from speechssl.superb.fit import Run, on_device, predictions, task_card
from speechssl.superb.task import Judgement, Measure
from speechssl.superb.tasks.diarisation import Diarisation
from speechssl.superb.tasks.enhancement import check_installed
from speechssl.superb.tasks.spoken_terms import SpokenTerms
from speechssl.superb.tasks.transcription import Speech
from speechssl.superb.train import LEADERBOARD, Go, TrainedHead, crew, load_head, train_head
from speechssl.superb.trained import Item
from speechssl.superb.tuning import NO_HEADS, Tuning
from speechssl.superb.upstream import SPECTRAL, find_upstream, load_upstream

# Heads of SUPERB under a condition: what they say of the test recordings, judged, and kept item by item no longer than that.
#
# A cell is `scores/<encoder>/<part>/<head>/<condition>.json`, whole or not at all: its measures with intervals, and what
# figures are
# drawn from. In each condition an encoder hears every recording once for all heads of a part (seeds, tuned and default rate).

RESAMPLES = 1000
DRAWN = f"voices from {FEWEST} on"  # the rule of `bootstrap.choose_units`; a cell keeps intervals and no items


@dataclass(frozen=True)
class Ears:
    """How recordings of a setting are heard. names: what noise knows a recording by, by its path."""

    setting: Setting
    mixtures: FrozenMixtures | None  # None: clean speech only
    names: Mapping[str, str]

    def hear(self, path: Path) -> np.ndarray:
        """(N,) float32 at 16 kHz. Raises InputError or ValueError where it cannot be read or distorted."""
        samples = read_audio(path)
        if self.setting.condition.name == "clean" or self.mixtures is None:
            return samples
        return self.mixtures.apply(samples, self.setting.condition, self.names[os.path.abspath(path)])

    def card(self, paths: Sequence[Path]) -> Any:
        """What decides the sound of these recordings."""
        files = [[path.name, file_size(path)] for path in paths]
        if self.setting.condition.name == "clean" or self.mixtures is None:
            return [files, "clean"]
        utterances = [self.names[os.path.abspath(path)] for path in paths]
        return [files, asdict(self.setting.condition), self.mixtures.made_from(self.setting.condition, utterances)]


@dataclass(frozen=True)
class Cell:
    """Where a judgement is kept, and what it is made from."""

    path: Path
    made_from: str

    def read(self) -> Judgement | None:
        """None where it is not there, or was made from other inputs."""
        found = read_json(self.path) if self.path.is_file() else {}
        if not isinstance(found, dict) or found.get("made_from") != self.made_from:
            return None
        try:
            return Judgement(tuple(Measure(**m) for m in found["measures"]), dict(found["detail"]))
        except (KeyError, TypeError, ValueError):
            return None

    def write(self, judged: Judgement, failed: Mapping[str, str]) -> None:
        values = {"made_from": self.made_from, "measures": [asdict(m) for m in judged.measures]}
        write_json(self.path, values | {"detail": dict(judged.detail), "failed": dict(failed)})


def cell_path(out: Path, encoder: str, part: str, head: str, setting: Setting) -> Path:
    file = setting.label.replace(" ", "-").replace("/", "-")
    return out / "scores" / encoder / part / head / f"{file}.json"


def judge_heads(
    heads: Mapping[str, TrainedHead],
    place: Callable[[str], Path],
    ears: Ears,
    encoder: SpeechEncoder,
    cached: Supply | None,
    workers: int,
    device: str = "cpu",
    what: str = "",
) -> dict[str, Judgement]:
    """Judge heads of one part on its test split; what was judged already is read.

    heads: by name; place: name -> the file of its cell. cached: the states of the test split where they are known (clean speech).
    Recordings that cannot be heard are set aside, told, and count as wrong.
    """
    data = next(iter(heads.values())).task.data
    utterances = data.splits["test"]
    sound = ears.card([data.path(u) for u in utterances])
    cells = {name: Cell(place(name), _made_from(head, encoder, data, sound)) for name, head in heads.items()}
    judged = {name: found for name, cell in cells.items() if (found := cell.read())}
    missing = {name: head for name, head in heads.items() if name not in judged}
    if missing:
        said, failed = _hear(missing, ears, encoder, utterances, cached, workers, device, what)
        tell_set_aside(failed, what)
        for name, head in missing.items():
            judged[name] = head.task.judge("test", said[name], RESAMPLES)
            cells[name].write(judged[name], failed)
    return {name: judged[name] for name in heads}


def _made_from(head: TrainedHead, encoder: SpeechEncoder, data: UtteranceSet, sound: Any) -> str:
    """Of the task as it is judged: with its language model, and the threshold that dev chose."""
    decoding = {name: str(getattr(head.task, name, None)) for name in ("beam", "threshold", "median")}
    model = getattr(head.task, "language_model", None)
    words = None if model is None else hash_bytes("\n".join(model.words).encode(), *(n.log_probs.tobytes() for n in model.ngrams))
    facts = [head.weights, task_card(head.task), data.hash, sound, encoder_card(encoder), decoding, words, RESAMPLES]
    return hash_json([*facts, DRAWN])


@torch.inference_mode()
def _hear(
    heads: Mapping[str, TrainedHead],
    ears: Ears,
    encoder: SpeechEncoder,
    utterances: Sequence[Utterance],
    cached: Supply | None,
    workers: int,
    device: str,
    what: str,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What every head says, by the id of the recording; and why others could not be heard."""
    first = next(iter(heads.values()))
    task, size = first.task, int(first.card["settings"]["batch"])
    said: dict[str, dict[str, Any]] = {name: {} for name in heads}
    before = torch.get_num_threads()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        torch.set_num_threads(1)
        live = InTheLoop(encoder, lambda u: ears.hear(task.data.path(u)), task.pooled, task.wants_waves, pool)
        supply: Supply = cached or live
        usable = supply.usable(utterances)
        ordered = sorted(usable, key=lambda u: u.seconds)
        parts = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        for part in tqdm(parts, desc=what, unit="batch", disable=cached is not None):
            batch = supply.batch(part)
            if batch is None:
                continue
            for name, head in heads.items():
                found = head.task.predict(head.head.to(device), on_device(batch, device))
                said[name] |= {u.id: x for u, x in zip(batch.utterances, found, strict=True)}
    torch.set_num_threads(before)
    heard = {u.id for u in usable}
    return said, live.failed | {u.id: "it could not be cached" for u in utterances if u.id not in heard and u.id not in live.failed}


# Query by example under a condition: queries and documents are both heard through it; the layer is chosen on clean dev queries.


def judge_terms(data: UtteranceSet, stock: Stock, ears: Ears, place: Path, chosen: Path, what: str) -> Judgement:
    """place: the file of the cell. chosen: of the layer. Raises InputError as the search and the cache of states do."""
    terms = SpokenTerms(data)
    layer, layers = choose(terms, stock, chosen)
    recordings = [data.path(u) for split in (DOCUMENTS, "test") for u in data.splits[split]]
    made_from = hash_json([data.hash, ears.card(recordings), encoder_card(stock.encoder), layer, RESAMPLES, DRAWN])
    cell = Cell(place, made_from)
    if (found := cell.read()) is None:
        states = _states(stock, data, (DOCUMENTS, "test"), ears)
        judged = terms.judge(states, "test", layer, RESAMPLES, stock.workers)
        found = replace(judged, detail={**judged.detail, "layers": layers})
        cell.write(found, {})
        _forget(stock, data, ears)
    return found


def choose(terms: SpokenTerms, stock: Stock, path: Path) -> tuple[int, list[float]]:
    """The best layer on dev and the MTWV of every layer there (percent), found once."""
    made_from = hash_json([terms.data.hash, encoder_card(stock.encoder)])
    if path.is_file() and (card := read_json(path)).get("made_from") == made_from:
        return int(card["layer"]), list(card["layers"])
    states = _states(stock, terms.data, (DOCUMENTS, "dev"), None)
    layer, layers = terms.choose_layer(states, stock.encoder.layers + 1, stock.workers)
    write_json(path, {"kind": "superb-layer", "task": terms.name, "layer": layer, "layers": layers, "made_from": made_from})
    return layer, layers


@dataclass(frozen=True)
class _Through:
    """What the cache of states hears recordings through."""

    ears: Ears
    paths: tuple[Path, ...]

    @property
    def card(self) -> dict[str, Any]:
        return {"sound": hash_json(self.ears.card(self.paths))}

    def read(self, recording: Recording) -> np.ndarray:
        """(N,) float32 at 16 kHz."""
        return self.ears.hear(recording.path)


def _states(stock: Stock, data: UtteranceSet, splits: tuple[str, ...], ears: Ears | None) -> Callable[[str], Tensor]:
    """By id, from the cache where there is room, else from the encoder every time anew.

    Clean documents and queries are in folders of their own, so that documents are computed once.
    """
    options = options_of(False, stock.limit_gb)
    groups, hearing = _kept(data, splits, ears)
    folders = [stock.folder(data, group, options, hearing) for group in groups]
    fits = [stock.fits(SpokenTerms.name, data, group, options, folder) for group, folder in zip(groups, folders, strict=True)]
    if stock.mode == "loop" or not all(fits):
        return _live(stock, data, splits, ears)
    found = [stock.states(data, group, options, hearing) for group in groups]

    def states_of(name: str) -> Tensor:
        for states in found:
            if name in states:
                return states[name]
        raise KeyError(name)

    return states_of


def _kept(data: UtteranceSet, splits: tuple[str, ...], ears: Ears | None) -> tuple[list[tuple[str, ...]], Hears]:
    """The splits that share a folder, and what they are heard through."""
    if ears is None or ears.setting.group == "clean":
        return [(split,) for split in splits], Hearing()
    return [splits], _Through(ears, tuple(data.path(u) for split in splits for u in data.splits[split]))


def _live(stock: Stock, data: UtteranceSet, splits: tuple[str, ...], ears: Ears | None) -> Callable[[str], Tensor]:
    paths = {u.id: data.path(u) for split in splits for u in data.splits[split]}

    def states_of(name: str) -> Tensor:
        try:
            return stock.encoder.hidden_states(ears.hear(paths[name]) if ears else read_audio(paths[name])).cpu().transpose(0, 1)
        except (InputError, ValueError) as error:
            raise KeyError(name) from error

    return states_of


def _forget(stock: Stock, data: UtteranceSet, ears: Ears) -> None:
    """What was heard through noise is not asked for again."""
    groups, hearing = _kept(data, (DOCUMENTS, "test"), ears)
    if ears.setting.group != "clean":
        shutil.rmtree(stock.folder(data, groups[0], options_of(False, stock.limit_gb), hearing), ignore_errors=True)


# Where the data of SUPERB's tasks is, as typed; synthetic sets are made where none are named.

ALL = "all"


def find_data(out: Path, tasks: Sequence[str], data: Path | None, share: float, seed: int, workers: int) -> dict[str, Path]:
    """task -> folder. tasks: as `all`, `ks` or `ks=FOLDER`; share, seed: of the synthetic sets, in out/data.

    Raises InputError for an unknown task and for folders that are not there.
    """
    named = {task: Path(folder) for task, _, folder in (text.partition("=") for text in tasks) if folder}
    plain = [task for task in tasks if "=" not in task and task != ALL]
    if unknown := [task for task in (*named, *plain) if task not in ORDER]:
        raise InputError(f"there is no task {unknown[0]!r}; choose from {', '.join(ORDER)}, or all")
    if missing := [folder for folder in (*named.values(), *([data] if data else [])) if not folder.is_dir()]:
        raise InputError(f"the folder {missing[0]} does not exist; check the path")
    wanted = [task for task in ORDER if task not in named and (task in plain or ALL in tasks)]
    found = named | (_within(data, wanted, plain) if data else _synthetic(out / "data", wanted, share, seed, workers))
    return {task: found[task] for task in ORDER if task in found}


def folder_of(root: Path, task: str) -> Path | None:
    """The set of a task below a folder of sets; None where there is none."""
    names = (task, *(TASKS[task].folders if task != QBE else ()))
    return next((root / name for name in names if (root / name).is_dir()), None)


def name_encoders(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=WHERE`, or WHERE alone, which is called by the last part of it. Raises InputError for names that cannot be folders."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        where = where if equals else text
        name = name if equals else _called(Path(where))
        if not name or not where or name.startswith(".") or "/" in name or "\\" in name:
            raise InputError(f"--encoder {text} has no name that can be a folder's; write NAME=WHERE")
        if name in found:
            raise InputError(f"--encoder gives the name {name} twice; write NAME=WHERE for one of them")
        found[name] = where
    return found


def _called(where: Path) -> str:
    """exp/mine/encoder is mine, hubert.pt is hubert."""
    path = where.parent if where.name == "encoder" and where.parent.name else where
    return (path.stem if path.suffix in (".pt", ".pth") else path.name).replace(":", "-")


def _within(root: Path, wanted: Sequence[str], named: Sequence[str]) -> dict[str, Path]:
    """named: those that must be there."""
    found = {task: folder for task in wanted if (folder := folder_of(root, task))}
    if missing := [task for task in named if task not in found]:
        raise InputError(f"{root} has no folder {missing[0]}; prepare it, or name another with {missing[0]}=FOLDER")
    if not found:
        raise InputError(f"{root} has no folder of a task ({', '.join(ORDER)}); prepare some")
    if left := [task for task in wanted if task not in found]:
        tqdm.write(f"{root} has no data for {', '.join(left)}; these tasks are left out", file=sys.stderr)
    return found


def _synthetic(root: Path, wanted: Sequence[str], share: float, seed: int, workers: int) -> dict[str, Path]:
    """Raises InputError where they were made with another share or seed."""
    from speechssl.synth.minisuperb import Settings, prepare, some_of

    made = {task: next(iter(TASKS[task].folders), task) if task != QBE else task for task in wanted}
    if made:
        prepare(root, Settings(some_of(list(made.values()), share), seed), workers)
    return {task: root / name for task, name in made.items()}


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
    trained_on = noises_in(plan.tuning.card) if plan.tuning else frozenset()
    for name, where in plan.encoders.items():
        check_unseen(name, trained_noises(Path(find_upstream(where))) | trained_on, settings)
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
