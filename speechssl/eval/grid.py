"""The robustness grid is encoders x tasks x conditions, every cell a file of scores, item by item;
`eval.run` has the loop.

`MAKERS` make the tasks ready for an encoder: they train what is missing, on clean speech.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein
from tqdm import tqdm

from speechssl.artifacts import hash_json, read_json
from speechssl.audio import read_audio
from speechssl.cascade.model import CtcRecogniser, greedy_decode
from speechssl.cascade.options import CtcOptions, ReaderOptions, TrainCtc
from speechssl.cascade.train import fit_ctc
from speechssl.checkpoints import SHIPPED
from speechssl.data.files import list_recordings, source_card
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
from speechssl.encoders.load import (
    SharedEncoder,
    SpeechEncoder,
    load_encoder,
    remember_last,
    shared_encoder,
)
from speechssl.errors import InputError, report_set_aside
from speechssl.eval.options import TEST, Robustness
from speechssl.eval.run import (
    Encoded,
    Encoding,
    FrozenMixtures,
    Item,
    ResultFile,
    Setting,
    check_unseen,
    encode_recordings,
    evaluate_files,
    file_size,
    name_utterances,
    normalised,
    trained_noises,
)
from speechssl.eval.spoken_qa import (
    answer_questions,
    passages_with_questions,
    score_questions,
    word_errors,
)
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
from speechssl.superb.train import HeadRun, load_head, train_head
from speechssl.systems import System, load_systems
from speechssl.timing import RunLength
from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus
from speechssl.units.features import UnitExtractor, extractor_of
from speechssl.units.kmeans import load_codebook
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


@dataclass(frozen=True, eq=False)
class GridTask:
    """This is what is evaluated, such as a head with its encoder, and its test recordings, in the
    order of the manifest.

    metric: acc (more is better) or wer (less is). unit: what the groups of its scores are called:
    "recording", "passage".
    card: all that its scores depend on, beside the condition.
    encode: (N,) float32 at 16 kHz -> the features that `score` takes. Several threads may call it
    at once. Raises ValueError for fewer samples than one frame of the encoder.
    score: features by the id of the item -> scores. An item without any counts as wrong (for wer:
    every word is missing).
    """

    name: str
    metric: str
    unit: str
    card: Mapping[str, Any]
    items: Sequence[Item]
    encode: Callable[[np.ndarray], Any]
    score: Callable[[Mapping[str, Any]], list[ItemScore]]

    def limit_items(self, count: int | None, seed: int) -> GridTask:
        """On so many of its items only, drawn by the seed; None: on all."""
        if count is None:
            return self
        items = first_items(self.items, count, seed)
        ids = {item.id for item in items}
        return replace(
            self,
            items=items,
            score=lambda features: [s for s in self.score(features) if s.id in ids],
        )


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


def load_classification(
    folder: Path | str, data: Path | str, encoder: SpeechEncoder, split: str = TEST
) -> GridTask:
    """Load a head from the folder that training wrote, on a split of its set. An item is right when
    all its slots are (IC: three).

    Raises InputError where head, set and encoder do not belong together, and for a split that the
    set does not have.
    """
    labelled = load_labelled(data)
    check_split(labelled, split)
    utterances = labelled.splits[split]
    sizes = read_json(Path(folder) / "card.json").get("task", {}).get("sizes", {})
    task = Classification(labelled.task, labelled, encoder.grid, sizes.get("projection", 256))
    head = load_head(folder, task, encoder_card(encoder))
    card = {
        "task": labelled.task,
        "weights": head.weights,
        "classes": labelled.classes,
        "encoder": encoder_card(encoder),
    }

    def encode(samples: np.ndarray) -> dict[str, str]:
        """The labels of a recording, by slot, from the mean of every hidden state over time."""
        means = encoder.hidden_states(samples).cpu().mean(1)
        with torch.inference_mode():
            return task.choose(
                task.predict(head.head, Batch((), means[None], torch.ones(1).long()))[0]
            )

    def score(features: Mapping[str, Any]) -> list[ItemScore]:
        voices = unknown_speakers(labelled, utterances)
        right = (float(features.get(u.id) == dict(u.labels)) for u in utterances)
        return [
            ItemScore(u.id, u.id, ok, 1.0, "".join(who))
            for u, ok, who in zip(utterances, right, voices, strict=True)
        ]

    return GridTask(
        name=labelled.task,
        metric=METRIC,
        unit=RECORDING,
        card=card | {"data": labelled.hash, "split": split},
        items=[Item(u.id, labelled.path(u)) for u in utterances],
        encode=encode,
        score=score,
    )


def load_recognition(
    folder: Path | str, corpus: Path | str, encoder: SpeechEncoder, split: str = TEST
) -> GridTask:
    """Load a recogniser from the folder that `train ctc` wrote, decoded greedily, on the questions
    of a spoken-QA corpus.

    Raises InputError where the split has no questions or the encoder is not the recogniser's.
    """
    questions = load_corpus(corpus, split).questions
    if not questions:
        raise InputError(
            f"{Path(corpus) / split} has no questions to recognise; prepare the corpus with some"
        )
    recogniser, speakers = CtcRecogniser.load(folder, encoder), known_voices(corpus)
    card = {
        "weights": read_json(Path(folder) / "card.json")["weights"],
        "layer": recogniser.layer,
        "encoder": encoder.hash,
    }

    def score(features: Mapping[str, Any]) -> list[ItemScore]:
        errors = word_error_rate(
            [q.text for q in questions],
            [features.get(q.id, "") for q in questions],
            questions[0].language,
        )
        counted = zip(questions, errors.errors, errors.words, strict=True)
        return [
            ItemScore(q.id, q.passage, float(e), float(w), unknown_voice(q.speaker, speakers))
            for q, e, w in counted
        ]

    return GridTask(
        name="asr",
        metric="wer",
        unit="passage",
        card=card
        | {"task": "asr", "data": hash_json([[q.id, q.audio, q.text] for q in questions])},
        items=[Item(q.id, Path(corpus) / q.audio) for q in questions],
        # "" below a frame
        encode=lambda samples: greedy_decode(recogniser.log_probs(samples), recogniser.vocabulary),
        score=score,
    )


def units_task(
    extractor: UnitExtractor,
    source: Path,
    out: Path,
    split: str | None,
    count: int | None = None,
    seed: int = 0,
    workers: int | None = None,
) -> GridTask:
    """Make the task that measures how far the units of distorted speech are from those of clean
    speech, of the same encoder and codebook.

    A recording adds the edits between the run-length units of the two, over the units of clean
    speech (arXiv 2209.15483): clean speech has no error by definition, and a recording that could
    not be encoded has every unit missing.

    source: a corpus (with its split), a manifest, a folder or a file; units of clean speech go into
    `out`, and stay there. count: so many recordings, drawn by the seed; None: all. Raises
    InputError as `list_recordings` and `extract_corpus` do.
    """
    every = {r.id: r for r in list_recordings(source, split)}
    recordings = [
        every[i.id] for i in first_items([Item(r.id, r.path) for r in every.values()], count, seed)
    ]
    maker = ShardMaker(extractor, out, SHARD)
    facts = {"drawn": [count, seed]} | source_card(source, split, None)
    report_set_aside(
        extract_corpus(maker, recordings, LocalEngine(workers), facts).failed,
        "units of clean speech",
    )
    clean = load_units(out)
    voices = {} if split is None else voices_of(load_corpus(source, split))
    items = [Item(r.id, r.path) for r in recordings if r.id in clean]

    def score(features: Mapping[str, RunLength]) -> list[ItemScore]:
        sequences = {i: features[i].units.tolist() if i in features else [] for i, _ in items}
        return [
            ItemScore(
                i,
                i,
                Levenshtein.distance(clean[i].units.tolist(), units),
                len(clean[i]),
                voices.get(i, ""),
            )
            for i, units in sequences.items()
        ]

    units = [[i, clean[i].units.tolist()] for i in sorted(clean)]
    card = {"task": "units", **extractor.card, "clean": hash_json(units)}
    return GridTask("units", "unit_error", RECORDING, card, items, extractor.units, score)


def qa_tasks(system: System, corpus: Corpus) -> list[GridTask]:
    """Make the tasks that a system of spoken question answering is scored by.

    Its answers: FF1 of the questions whose answers have times. Their voice is that of the passage,
    their asker that of the question. A question scores 0 where it or its passage could not be
    encoded. Of a cascade its transcripts, too: the word error rate over the passages that are asked
    about and have a text. Raises InputError where no question has an answer with times.
    """
    if not any(a.start is not None for q in corpus.answerable for a in q.answers):
        raise InputError(
            f"{corpus.root / corpus.split} has no question whose answer has times; "
            f"leave out the task {system.name}"
        )
    data, passages = data_hash(corpus.root, corpus.split), passages_with_questions(corpus)
    encode = remember_last(lambda samples: system.encode(None, samples))  # for both tasks
    records: list[Passage | Question] = [*passages, *corpus.answerable]
    written = [p for p in passages if p.text]  # others have no words that could be missed

    def score_answers(features: Mapping[str, Any]) -> list[ItemScore]:
        predictions = answer_questions(system, corpus, features, f"{len(features)} recordings")
        scored, voices = score_questions(predictions, corpus), voices_of(corpus)
        return [
            ItemScore(s.id, s.passage, s.ff1, 1.0, voices[s.passage], voices[s.id])
            for s in scored
            if s.ff1 is not None
        ]

    def score_transcripts(features: Mapping[str, Any]) -> list[ItemScore]:
        errors, voices = (
            word_errors(written, {i: transcript.text for i, transcript in features.items()}),
            voices_of(corpus),
        )
        counted = zip(written, errors.errors, errors.words, strict=True)
        return [
            ItemScore(p.id, p.id, float(wrong), float(words), voices[p.id])
            for p, wrong, words in counted
        ]

    card = {**system.card, "data": data, "questions": hash_json([q.id for q in corpus.answerable])}
    items = [Item(r.id, corpus.path(r)) for r in records]
    tasks = [GridTask(system.name, "ff1", "passage", card, items, encode, score_answers)]
    if system.name.startswith("cascade") and written:
        card = {"asr": system.card.get("asr"), "data": data, "passages": len(passages)}
        # of recognisers known by name
        card |= {name: value for name, value in system.card.items() if name == "asr_weights"}
        texts = {p.id for p in written}
        transcribed = [item for item in items[: len(passages)] if item.id in texts]
        tasks.append(
            GridTask(system.name, "wer", "passage", card, transcribed, encode, score_transcripts)
        )
    return tasks


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
    return qa_tasks(
        load_systems(tested.models_for(name), [name], o.bf16, tested.encoder, reading=reading)[0],
        corpus,
    )


MAKERS: Mapping[str, Maker] = {
    **{name: partial(_classification, name) for name in ("ks", "ic", "sid", "style")},
    "asr": _asr,
    "units": _units,
    **{name: partial(_question_answering, name) for name in ("dual", *CASCADES, "speechbert")},
}


# ---- the grid


def encode_alone(task: GridTask, item: Any, samples: Any) -> Any:
    """Encode a recording for a task, which needs its samples alone. samples: (N,) at 16 kHz."""
    return task.encode(samples)


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
    seed = mixtures.seed
    recordings = sum(
        len({item for task in tasks for item in normalised(task.items)})
        for tasks in encoders.values()
    )
    size = (
        f"{recordings:,} recordings of {len(encoders)} encoder(s) under {len(settings)} conditions"
    )
    tqdm.write(
        f"the grid encodes {size}, {recordings * len(settings):,} in all, but for what "
        f"{out} has already",
        file=sys.stderr,
    )

    def run_tasks(
        encoder: str, tasks: Sequence[GridTask], setting: Setting, place: int
    ) -> Iterator[GridCell]:
        condition, by_name = (
            setting.condition,
            {f"{task.name}-{task.metric}": task for task in tasks},
        )
        items = {name: dict.fromkeys(normalised(task.items)) for name, task in by_name.items()}
        files = []
        for name, task in by_name.items():
            noise = mixtures.made_from(condition, [utterances[item] for item in items[name]])
            listed = [[item.id, utterances[item], file_size(item.path)] for item in items[name]]
            made_from = hash_json(
                [
                    dict(task.card),
                    task.metric,
                    listed,
                    setting.group,
                    asdict(condition),
                    noise,
                    seed,
                ]
            )
            path = out / "scores" / encoder / name / setting.file
            files.append(
                ResultFile(name, path, made_from, f"{encoder}, {task.name}, {setting.label}")
            )

        def encode(missing: Sequence[ResultFile]) -> Mapping[str, Encoded[str]]:
            encodings = {
                file.system: Encoding(
                    partial(encode_alone, by_name[file.system]),
                    recordings=items[file.system].keys(),
                )
                for file in missing
            }
            encoded = encode_recordings(
                dict.fromkeys(item for file in missing for item in items[file.system]),
                lambda item: read_audio(item.path),
                lambda samples, item: mixtures.apply(samples, condition, utterances[item]),
                encodings,
                workers,
                f"{encoder}, {setting.label} ({place} of {len(settings)})",
                {file.system: file.partial for file in missing},
            )
            return {
                name: Encoded(
                    {i: x for (i, _), x in e.features.items()},
                    {i: why for (i, _), why in e.failed.items()},
                )
                for name, e in encoded.items()
            }

        def score(file: ResultFile, features: Mapping[str, Any]) -> dict[str, Any]:
            task = by_name[file.system]
            facts = {
                "encoder": encoder,
                "task": task.name,
                "metric": task.metric,
                "condition": setting.name,
            }
            scored = [
                # numpy's scalars made Python's
                asdict(s) | {"numerator": float(s.numerator), "denominator": float(s.denominator)}
                for s in task.score(features)
            ]
            return facts | {"snr_db": setting.snr_db, "seed": seed, "items": scored}

        for task, file, contents in zip(
            tasks, files, evaluate_files(files, encode, score), strict=True
        ):
            report_set_aside(contents["failed"], f"{file.label} (they count as wrong)")
            scored, card = (
                tuple(ItemScore(**s) for s in contents["items"]),
                hash_json(dict(task.card)),
            )
            yield GridCell(
                encoder,
                task.name,
                task.metric,
                setting,
                scored,
                seed,
                card,
                contents["failed"],
                task.unit,
            )

    places = [
        (*pair, setting, place)
        for pair in encoders.items()
        for place, setting in enumerate(settings, 1)
    ]
    return [cell for place in places for cell in run_tasks(*place)]
