"""The robustness grid is encoders x tasks x conditions, every cell a file of scores, item by item;
`eval.run` has the loop.

`MAKERS` make the tasks ready for an encoder: they train what is missing, on clean speech.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from rapidfuzz.distance import Levenshtein
from tqdm import tqdm

from speechssl.artifacts import hash_json, read_json
from speechssl.cascade.model import CtcRecogniser, greedy_decode
from speechssl.cascade.options import CtcOptions, ReaderOptions, TrainCtc
from speechssl.cascade.train import fit_ctc
from speechssl.checkpoints import SHIPPED
from speechssl.data.recordings import list_recordings, source_card
from speechssl.data.records import (
    Corpus,
    Passage,
    Question,
    data_hash,
    first_passages,
    known_voices,
    load_corpus,
    voices_of,
)
from speechssl.data.superb import RECORDING, LabelledSet, load_labelled, unknown_speakers
from speechssl.encoders.encoder import SharedEncoder, SpeechEncoder
from speechssl.encoders.load import load_encoder, shared_encoder
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.conditions import (
    FrozenMixtures,
    Item,
    Setting,
    check_unseen,
    file_size,
    name_utterances,
    normalise_paths,
    trained_noises,
)
from speechssl.eval.encode import FeatureStore, Job, Recording, encode_recordings
from speechssl.eval.options import TEST, Robustness
from speechssl.eval.predict import (
    answer_questions,
    is_current,
    parse_predictions,
    read_items,
    write_items,
)
from speechssl.eval.score import score_questions, word_errors
from speechssl.eval.spoken_qa import passages_with_questions
from speechssl.metrics import word_error_rate
from speechssl.options import PLAIN, TrainingOptions
from speechssl.results import CASCADE, HEAD
from speechssl.stats import ItemScore, unknown_voice
from speechssl.superb.data import (
    TRAINING,
    Batch,
    CachedLoader,
    CacheOptions,
    HeadSettings,
    cache_states,
    encoder_card,
    list_split_recordings,
)
from speechssl.superb.tasks.classification import METRIC, Classification
from speechssl.superb.train import HeadRun, TrainedHead, load_head, train_head
from speechssl.systems import System, load_systems
from speechssl.timing import RunLength
from speechssl.units.codebook import load_codebook
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus
from speechssl.units.features import UnitExtractor, extractor_of
from speechssl.units.options import SHARD
from speechssl.units.storage import load_units

# learning rates of a classification head, of which the best on dev is kept
HEAD_RATES = (1e-4, 1e-3, 1e-2, 1e-1)
RECOGNISER = CtcOptions(
    TrainingOptions(800, 4e-3, 100, **vars(PLAIN)), passages=200, crop_seconds=4.0, lstm_width=192
)
CASCADES = ("cascade-ctc", "cascade-ctc-greedy")
NEEDS = {  # what a folder of models must have in it
    "units": "encoder/ and units.safetensors",
    "dual": "encoder/, units.safetensors and dual/",
    **dict.fromkeys(CASCADES, "encoder/, ctc/ and text-qa/ (or --reader)"),
    "speechbert": "encoder/, speechbert/ and ctc/",
}

# ---- encoders under test


@dataclass(frozen=True)
class TestedEncoder:
    """This is an encoder under test. models: its folder of models (`systems`), None for an encoder
    alone. trained_noises: noises it was trained on."""

    name: str
    encoder: SharedEncoder
    models: Path | None
    trained_noises: frozenset[str] = frozenset()

    def models_for(self, task: str) -> Path:
        """Return the folder of models. Raises InputError where the encoder comes alone."""
        if self.models is None:
            needs = f"give a folder with {NEEDS[task]} in it"
            raise InputError(f"the encoder {self.name} is not enough for the task {task}; {needs}")
        return self.models

    def check(self, tasks: Iterable[str], settings: Iterable[Setting] = ()) -> None:
        """Call it before anything is trained.

        Raises InputError where a task needs a folder of models and the encoder comes alone, and for
        unseen noise it was trained on.
        """
        for task in tasks:
            if task in NEEDS:
                self.models_for(task)
        check_unseen(self.name, self.trained_noises, settings)


def load_tested(name: str, where: str) -> TestedEncoder:
    """Load an encoder under test. where: a folder of models or the name of a shipped one, else what
    `load_encoder` takes. Raises InputError as these do."""
    for folder in (Path(where), SHIPPED / where):
        if (folder / "encoder").is_dir():
            return TestedEncoder(name, shared_encoder(folder), folder, trained_noises(folder))
    return TestedEncoder(name, SharedEncoder(load_encoder(where)), None, trained_noises(where))


# ---- tasks


@dataclass(frozen=True, eq=False, kw_only=True)
class GridTask(ABC):
    """This is what is evaluated, such as a head with its encoder, and its test recordings, in the
    order of the manifest.

    metric: acc (more is better) or wer (less is). unit: what the groups of its scores are called:
    "recording", "passage". card: all that its scores depend on, beside the condition.
    """

    name: str
    metric: str
    unit: str
    card: Mapping[str, Any]
    items: Sequence[Item]

    @property
    def label(self) -> str:
        return f"{self.name}-{self.metric}"

    @abstractmethod
    def encode(self, record: Any, samples: Any) -> Any:
        """Encode samples (N,), float32 at 16 kHz, of which nothing else is known. Several threads
        call it at once. Raises ValueError for fewer samples than one frame of the encoder."""

    @abstractmethod
    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        """Score features by the id of the item. An item without any counts as wrong (for wer: every
        word is missing)."""

    def limit_items(self, count: int | None, seed: int) -> Self:
        """Keep so many of its items only, drawn by the seed; None: all."""
        return replace(self, items=first_items(self.items, count, seed))


def first_items(items: Sequence[Item], count: int | None, seed: int) -> list[Item]:
    """Return so many of the items, drawn by the seed and their ids, in the order in which they
    stand; None: all."""
    if count is None or count >= len(items):
        return list(items)
    chosen = set(sorted(range(len(items)), key=lambda i: hash_json([seed, items[i].id]))[:count])
    return [item for i, item in enumerate(items) if i in chosen]


def check_split(data: LabelledSet, split: str) -> None:
    """Raise InputError for a split that a set does not have; call it before a head is trained to be
    tested on it."""
    if split not in data.splits:
        raise InputError(
            f"{data.root} has no split {split!r}; choose from {', '.join(data.splits)}"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadTask(GridTask):
    """A head classifies recordings. An item is right when all its slots are (IC: three)."""

    encoder: Any
    task: Classification
    head: TrainedHead
    utterances: Sequence[Any]

    def encode(self, record: Any, samples: Any) -> dict[str, str]:
        """Return the labels of a recording, by slot, from the mean of every hidden state over
        time."""
        means = self.encoder.hidden_states(samples).cpu().mean(1)
        batch = Batch((), means[None], torch.ones(1).long())
        with torch.inference_mode():
            return self.task.choose(self.task.predict(self.head.head, batch)[0])

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        voices = unknown_speakers(self.task.data, self.utterances)
        scored = []
        for u, who in zip(self.utterances, voices, strict=True):
            right = float(features.get(u.id) == dict(u.labels))
            scored.append(ItemScore(u.id, u.id, right, 1.0, "".join(who)))
        return scored


def load_classification(
    folder: Path | str, data: Path | str, encoder: SpeechEncoder, split: str = TEST
) -> HeadTask:
    """Load a head from the folder that training wrote, on a split of its set.

    Raises InputError where head, set and encoder do not belong together, and for a split that the
    set does not have.
    """
    labelled = load_labelled(data)
    check_split(labelled, split)
    sizes = read_json(Path(folder) / "card.json").get("task", {}).get("sizes", {})
    task = Classification(labelled.task, labelled, encoder.grid, sizes.get("projection", 256))
    head = load_head(folder, task, encoder_card(encoder))
    utterances = labelled.splits[split]
    card = {
        "task": labelled.task,
        "weights": head.weights,
        "classes": labelled.classes,
        "encoder": encoder_card(encoder),
        "data": labelled.hash,
        "split": split,
    }
    return HeadTask(
        name=labelled.task,
        metric=METRIC,
        unit=RECORDING,
        card=card,
        items=[Item(u.id, labelled.path(u)) for u in utterances],
        encoder=encoder,
        task=task,
        head=head,
        utterances=utterances,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class RecognitionTask(GridTask):
    """A recogniser, decoded greedily, hears the questions of a spoken-QA corpus."""

    recogniser: CtcRecogniser
    questions: Sequence[Question]
    trained: frozenset[str]  # voices that training knew

    def encode(self, record: Any, samples: Any) -> str:
        # "" below a frame
        return greedy_decode(self.recogniser.log_probs(samples), self.recogniser.vocabulary)

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        heard = [features.get(q.id, "") for q in self.questions]
        texts = [q.text for q in self.questions]
        errors = word_error_rate(texts, heard, self.questions[0].language)
        scored = []
        for q, wrong, words in zip(self.questions, errors.errors, errors.words, strict=True):
            voice = unknown_voice(q.speaker, self.trained)
            scored.append(ItemScore(q.id, q.passage, float(wrong), float(words), voice))
        return scored


def load_recognition(
    folder: Path | str, corpus: Path | str, encoder: SpeechEncoder, split: str = TEST
) -> RecognitionTask:
    """Load a recogniser from the folder that `train ctc` wrote. Raises InputError where the split
    has no questions or the encoder is not the recogniser's."""
    questions = load_corpus(corpus, split).questions
    if not questions:
        raise InputError(
            f"{Path(corpus) / split} has no questions to recognise; prepare the corpus with some"
        )
    recogniser = CtcRecogniser.load(folder, encoder)
    card = {
        "task": "asr",
        "weights": read_json(Path(folder) / "card.json")["weights"],
        "layer": recogniser.layer,
        "encoder": encoder.hash,
        "data": hash_json([[q.id, q.audio, q.text] for q in questions]),
    }
    return RecognitionTask(
        name="asr",
        metric="wer",
        unit="passage",
        card=card,
        items=[Item(q.id, Path(corpus) / q.audio) for q in questions],
        recogniser=recogniser,
        questions=questions,
        trained=known_voices(corpus),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitsTask(GridTask):
    """This measures how far the units of distorted speech are from those of clean speech, of the
    same encoder and codebook.

    A recording adds the edits between the run-length units of the two, over the units of clean
    speech (arXiv 2209.15483): clean speech has no error by definition, and a recording that could
    not be encoded has every unit missing.
    """

    extractor: UnitExtractor
    clean: Mapping[str, RunLength]
    voices: Mapping[str, str]

    def encode(self, record: Any, samples: Any) -> RunLength:
        return self.extractor.units(samples)

    def score(self, features: Mapping[str, RunLength]) -> list[ItemScore]:
        scored = []
        for name, _ in self.items:
            units = features[name].units.tolist() if name in features else []
            clean = self.clean[name].units.tolist()
            edits = Levenshtein.distance(clean, units)
            voice = self.voices.get(name, "")
            scored.append(ItemScore(name, name, float(edits), float(len(clean)), voice))
        return scored


def units_task(
    extractor: UnitExtractor,
    source: Path,
    out: Path,
    split: str | None,
    count: int | None = None,
    seed: int = 0,
    workers: int | None = None,
) -> UnitsTask:
    """Extract the units of clean speech into `out`, where they stay.

    source: a corpus (with its split), a manifest, a folder or a file. count: so many recordings,
    drawn by the seed; None: all. Raises InputError as `list_recordings` and `extract_corpus` do.
    """
    every = {r.id: r for r in list_recordings(source, split)}
    chosen = first_items([Item(r.id, r.path) for r in every.values()], count, seed)
    maker = ShardMaker(extractor, out, SHARD)
    facts = {"drawn": [count, seed]} | source_card(source, split, None)
    recordings = [every[item.id] for item in chosen]
    extracted = extract_corpus(maker, recordings, LocalEngine(workers), facts)
    report_set_aside(extracted.failed, "units of clean speech")
    clean = load_units(out)
    units = [[i, clean[i].units.tolist()] for i in sorted(clean)]
    return UnitsTask(
        name="units",
        metric="unit_error",
        unit=RECORDING,
        card={"task": "units", **extractor.card, "clean": hash_json(units)},
        items=[item for item in chosen if item.id in clean],
        extractor=extractor,
        clean=clean,
        voices={} if split is None else voices_of(load_corpus(source, split)),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswersTask(GridTask):
    """A system answers questions: FF1 of those whose answers have times. A question scores 0 where
    it or its passage could not be encoded."""

    system: System
    corpus: Corpus

    def encode(self, record: Any, samples: Any) -> Any:
        return self.system.encode(None, samples)

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        where = f"{len(features)} recordings"
        rows = answer_questions(self.system, self.corpus, features, where)
        voices = voices_of(self.corpus)
        scored = []
        for s in score_questions(parse_predictions(rows, {"task": "qa"}), self.corpus):
            if s.ff1 is not None:
                who = voices[s.passage], voices[s.id]
                scored.append(ItemScore(s.id, s.passage, s.ff1, 1.0, *who))
        return scored


@dataclass(frozen=True, eq=False, kw_only=True)
class TranscriptsTask(AnswersTask):
    """A cascade transcribes the passages that are asked about and have a text: word error rate."""

    def score(self, features: Mapping[str, Any]) -> list[ItemScore]:
        # others have no words that could be missed
        passages = [p for p in passages_with_questions(self.corpus) if p.text]
        errors = word_errors(passages, {name: x.text for name, x in features.items()})
        voices = voices_of(self.corpus)
        scored = []
        for p, wrong, words in zip(passages, errors.errors, errors.words, strict=True):
            scored.append(ItemScore(p.id, p.id, float(wrong), float(words), voices[p.id]))
        return scored


def qa_tasks(system: System, corpus: Corpus) -> list[GridTask]:
    """Make the tasks that a system of spoken question answering is scored by: its answers, and of a
    cascade its transcripts. Raises InputError where no question has an answer with times."""
    if not any(a.start is not None for q in corpus.answerable for a in q.answers):
        raise InputError(
            f"{corpus.root / corpus.split} has no question whose answer has times; "
            f"leave out the task {system.name}"
        )
    data, passages = data_hash(corpus.root, corpus.split), passages_with_questions(corpus)
    records: list[Passage | Question] = [*passages, *corpus.answerable]
    questions = hash_json([q.id for q in corpus.answerable])
    answers = AnswersTask(
        name=system.name,
        metric="ff1",
        unit="passage",
        card={**system.card, "data": data, "questions": questions},
        items=[Item(r.id, corpus.path(r)) for r in records],
        system=system,
        corpus=corpus,
    )
    written = {p.id for p in passages if p.text}
    if not (system.name.startswith(CASCADE) and written):
        return [answers]
    recogniser = {name: x for name, x in system.card.items() if name in ("asr", "asr_weights")}
    transcripts = TranscriptsTask(
        name=system.name,
        metric="wer",
        unit="passage",
        card=recogniser | {"data": data, "passages": len(passages)},
        items=[item for item in answers.items[: len(passages)] if item.id in written],
        system=system,
        corpus=corpus,
    )
    return [answers, transcripts]


# ---- making tasks ready


# encoder, data, a folder of its own, options
Maker = Callable[[TestedEncoder, Path, Path, Robustness], list[GridTask]]


def _classification(
    name: str, tested: TestedEncoder, data: Path, out: Path, o: Robustness
) -> list[GridTask]:
    """Train and load a head. data: a labelled set of this task. The head's learning rate is chosen
    on clean speech of its dev split."""
    labelled = load_labelled(data)
    if labelled.task != name:
        raise InputError(
            f"{data} is a set of the task {labelled.task}, not of {name}; name the set of {name}"
        )
    check_split(labelled, o.split)
    encoder: Any = tested.encoder
    train_classifier(labelled, encoder, out, o.head_steps, o.seed, o.workers)
    return [load_classification(out, data, encoder, o.split).limit_items(o.recordings, o.seed)]


def train_classifier(
    data: LabelledSet,
    encoder: SpeechEncoder,
    out: Path,
    steps: int,
    seed: int = 0,
    workers: int = 2,
) -> None:
    """Train (once) and save a head in `out`; every learning rate gets all steps, but ends where dev
    improves no more.

    The hidden states of the set are kept in `out`-features. Raises InputError as `cache_states` and
    `train_head`.
    """
    folder = out.with_name(f"{out.name}-features") / "train-dev"
    if not (out / "card.json").is_file():
        cache_states(
            encoder,
            list_split_recordings(data, TRAINING),
            folder,
            CacheOptions(pooled=True),
            workers=workers,
        )
    task, settings = (
        Classification(data.task, data, encoder.grid),
        HeadSettings(HEAD_RATES[0], steps, 32, 100, patience=8),
    )
    run = HeadRun(
        task, CachedLoader(data, folder, task.pooled, task.wants_waves), settings, seed, out
    )
    train_head(run, encoder_card(encoder), HEAD_RATES, METRIC)


def _asr(tested: TestedEncoder, data: Path, out: Path, o: Robustness) -> list[GridTask]:
    """Train and load a recogniser. data: a prepared corpus of questions, whose words have times in
    the training data. A `ctc` of the models is used."""
    encoder: Any = tested.encoder
    if tested.models and (tested.models / "ctc").is_dir():
        out = tested.models / "ctc"
    else:
        head = replace(RECOGNISER, training=replace(RECOGNISER.training, seed=o.seed))
        fit_ctc(TrainCtc(corpus=data, encoder=encoder.name, out=out, head=head), encoder)
    return [load_recognition(out, data, encoder, o.split).limit_items(o.recordings, o.seed)]


def _units(tested: TestedEncoder, data: Path, out: Path, o: Robustness) -> list[GridTask]:
    """Make the task of units. data: a prepared corpus, a manifest, a folder or a file; no labels
    are needed."""
    encoder: Any = tested.encoder
    extractor = extractor_of(
        encoder, load_codebook(tested.models_for("units") / "units.safetensors")
    )
    split = o.split if any(data.glob("*/passages.jsonl")) else None
    # units of clean speech are kept there
    out = out if o.split == TEST else out.with_name(f"{out.name}-{o.split}")
    return [units_task(extractor, data, out, split, o.recordings, o.seed, o.workers)]


def _question_answering(
    name: str, tested: TestedEncoder, data: Path, out: Path, o: Robustness
) -> list[GridTask]:
    corpus = first_passages(load_corpus(data, o.split), o.passages)
    reading = o.reading if name in CASCADES else ReaderOptions()
    models = tested.models_for(name)
    (system,) = load_systems(models, [name], o.bf16, tested.encoder, reading=reading)
    return qa_tasks(system, corpus)


MAKERS: Mapping[str, Maker] = {
    **{name: partial(_classification, name) for name in ("ks", "ic", "sid", "style")},
    "asr": _asr,
    "units": _units,
    **{name: partial(_question_answering, name) for name in ("dual", *CASCADES, "speechbert")},
}


# ---- the grid


@dataclass(frozen=True)
class GridCell:
    """These are the scores of an encoder in a task under a condition. scored: every item once;
    card: hash of what made the head."""

    encoder: str
    task: str
    metric: str
    setting: Setting
    scored: tuple[ItemScore, ...]
    seed: int
    card: str
    failed: Mapping[str, str]  # id of a recording that could not be encoded -> why
    unit: str = "recording"  # what the groups of its scores are (`GridTask.unit`)

    @property
    def method(self) -> tuple[str, str]:
        """Return the task and the system, as rows have them: systems of spoken question answering
        are columns of the grid, as tasks are."""
        if self.metric == "ff1" or self.task.startswith(CASCADE):
            return "qa", self.task
        return self.task, "units" if self.task == "units" else HEAD


def run_grid(
    encoders: Mapping[str, Sequence[GridTask]],
    settings: Sequence[Setting],
    out: Path,
    mixtures: FrozenMixtures,
    workers: int = 2,
) -> list[GridCell]:
    """Say how large the grid is, fill in the cells that are missing and return all of them.

    Recordings that cannot be read are set aside and reported; they count as wrong, and are tried
    again by the next run.
    Raises InputError for noise that cannot be had, and where no recording of a task can be encoded.
    """
    # as noise knows them
    utterances = name_utterances(
        (task.name, task.items) for tasks in encoders.values() for task in tasks
    )
    recordings = 0
    for tasks in encoders.values():
        recordings += len({item for task in tasks for item in normalise_paths(task.items)})
    tqdm.write(
        f"the grid encodes {recordings:,} recordings of {len(encoders)} encoder(s) under "
        f"{len(settings)} conditions, {recordings * len(settings):,} in all, but for what {out} "
        "has already",
        file=sys.stderr,
    )
    cells = []
    for encoder, tasks in encoders.items():
        for place, setting in enumerate(settings, 1):
            what = f"{encoder}, {setting.label} ({place} of {len(settings)})"
            folder = out / "scores" / encoder
            fill_cells(tasks, setting, folder, mixtures, utterances, workers, what)
            cells += [read_cell(task, setting, folder) for task in tasks]
    return cells


def fill_cells(
    tasks: Sequence[GridTask],
    setting: Setting,
    folder: Path,
    mixtures: FrozenMixtures,
    utterances: Mapping[Item, str],
    workers: int,
    what: str,
) -> None:
    """Encode and score the tasks of an encoder whose files are missing. utterances: what noise
    knows recordings by."""
    condition = setting.condition
    jobs, missing = [], []
    recordings: dict[str, Recording] = {}
    for task in tasks:
        items = {utterances[item]: item for item in normalise_paths(task.items)}
        listed = [[item.id, name, file_size(item.path)] for name, item in items.items()]
        noise = mixtures.made_from(condition, list(items))
        facts = [setting.group, asdict(condition), noise, mixtures.seed]
        made_from = hash_json([dict(task.card), task.metric, listed, *facts])
        path = cell_path(folder, task, setting)
        if not is_current(path, made_from):
            store = FeatureStore(path.with_suffix(".features"), made_from)
            jobs.append(Job(task.label, task.encode, items, True, store))
            missing.append((task, path, store, items))
            recordings |= {name: Recording(name, item.path) for name, item in items.items()}

    every = recordings.values() if jobs else ()
    encoded = encode_recordings(jobs, every, condition, mixtures, workers, what)
    error = None
    for task, path, store, items in missing:
        of_task = encoded[task.label]
        label = f"{folder.name}, {task.name}, {setting.label}"
        try:
            of_task.check(label)
        except InputError as none_encoded:
            error = error or none_encoded
            continue
        scored = task.score({items[name].id: x for name, x in of_task.features.items()})
        ids = {item.id for item in task.items}
        card = {
            "encoder": folder.name,
            "task": task.name,
            "metric": task.metric,
            "condition": setting.name,
            "snr_db": setting.snr_db,
            "seed": mixtures.seed,
            "made_from": store.made_from,
            "failed": {items[name].id: why for name, why in of_task.failed.items()},
        }
        write_items(path, [asdict(s) for s in scored if s.id in ids], card)
        store.remove()
    if error:
        raise error


def cell_path(folder: Path, task: GridTask, setting: Setting) -> Path:
    return folder / task.label / f"{setting.file}.parquet"


def read_cell(task: GridTask, setting: Setting, folder: Path) -> GridCell:
    """Read the scores of an encoder in a task; recordings that failed are reported."""
    rows, card = read_items(cell_path(folder, task, setting))
    label = f"{folder.name}, {task.name}, {setting.label}"
    report_set_aside(card["failed"], f"{label} (they count as wrong)")
    return GridCell(
        folder.name,
        task.name,
        task.metric,
        setting,
        tuple(ItemScore(**row) for row in rows),
        card["seed"],
        hash_json(dict(task.card)),
        card["failed"],
        task.unit,
    )
