"""Read the data of a SUPERB task, a folder of manifests.

`train.jsonl`, `dev.jsonl` and `test.jsonl` have one recording a line, such as `{"audio":
"audio/7.flac", "speaker": "ann", "labels": {"keyword": "yes"}}`. Which fields of a line a task
needs is said at `Utterance`. `id` (by default the path without its suffix), `seconds` and `speaker`
may be left out, and so may `dev.jsonl`: then every tenth recording of `train.jsonl` is dev. Audio
paths are relative to the folder, or absolute.

`card.json`, which `speechssl prepare` writes, names the task: `{"task": "ks", ...}`. Two tasks need
further files: asv has `dev.trials.jsonl` and `test.trials.jsonl` (`Trial`); qbe has
`documents.jsonl`, the recordings that are searched, and no `train.jsonl`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Annotated, Any

from msgspec import Meta
from tqdm import tqdm

from speechssl.artifacts import hash_files, read_json
from speechssl.audio import read_duration
from speechssl.data.records import Seconds, check_inside, read_lines
from speechssl.errors import InputError
from speechssl.schema import convert
from speechssl.stats import BootstrapUnits, choose_units

SPLITS = ("train", "dev", "test")
DOCUMENTS = "documents"  # the manifest of the recordings that qbe searches
TOGETHER = "+"  # joins the speakers of a mixture: "ann+bob"
SILENCE = "_silence_"  # the keyword of a recording in which nobody speaks
RECORDING = "recording"  # what a bootstrap resamples where it does not resample speakers
WITH_DEV = ("asv", "qbe")  # tasks whose dev.jsonl cannot be taken from train.jsonl
SPLITS_OF = {"qbe": (DOCUMENTS, "dev", "test")}  # task -> its manifests, where they are not SPLITS


def format_sizes(card: Mapping[str, Any]) -> str:
    """Format the sizes that a card states by split: "18 train, 2 dev, 4 test"."""
    sizes = card["sizes"]
    return ", ".join(
        f"{sizes[split]:,} {split}" for split in (*SPLITS, DOCUMENTS) if split in sizes
    )


@dataclass(frozen=True)
class Slot:
    """A slot is filled by a piece of a command (SF)."""

    type: str  # "city"
    value: str  # "new york": words of the utterance's text; slots are in the order of the text


@dataclass(frozen=True)
class Turn:
    """A turn is a stretch of time in which somebody speaks (SD). Turns may overlap."""

    speaker: str
    start: Seconds
    end: Seconds

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise ValueError(f"a turn of {self.speaker} ends at {self.end} s, before it starts")


@dataclass(frozen=True)
class Utterance:
    """An utterance is one recording, and a line of a manifest. Fields that a task does not need are
    left out of the line."""

    id: Annotated[str, Meta(min_length=1)]
    audio: Annotated[str, Meta(min_length=1)]  # path below the folder
    seconds: Annotated[float, Meta(gt=0, le=1e9)] = 0.0  # 0 until the recording is measured
    speaker: str = ""  # the two speakers of a mixture are joined by TOGETHER
    labels: Mapping[str, str] = field(default_factory=dict)  # slot -> class (classification)
    text: str = ""  # normalised (ASR, SF)
    phones: str = ""  # the phones, separated by spaces (PR)
    slots: tuple[Slot, ...] = ()  # in the order of speech (SF)
    turns: tuple[Turn, ...] = ()  # who speaks when (SD)
    # paths of the recordings that were mixed (SS), or of the clean recording (SE)
    sources: tuple[str, ...] = ()
    matches: tuple[str, ...] = ()  # ids of the documents that hold this query (QbE)


@dataclass(frozen=True)
class Trial:
    """A trial is two recordings of a split, and whether one person speaks in both (ASV):
    `{"first": id, "second": id, "same": true}`."""

    first: str
    second: str
    same: bool


@dataclass(frozen=True)
class UtteranceSet:
    """An utterance set is the data of a task in memory."""

    root: Path
    task: str
    splits: dict[str, tuple[Utterance, ...]]
    hash: str  # of the manifests; recordings are known by their names

    def path(self, utterance: Utterance) -> Path:
        return self.root / utterance.audio


@dataclass(frozen=True)
class LabelledSet(UtteranceSet):
    """A labelled set is the data of a classification task."""

    classes: dict[str, tuple[str, ...]]  # slot -> its classes, sorted


def load_set(root: Path | str, task: str | None = None) -> UtteranceSet:
    """Read and check the manifests of a task. task: the task that the set must have, None for any.
    A folder without a card is taken for a set of that task.

    Without `dev.jsonl` a tenth of `train.jsonl` is dev (`_choose_dev`), with a note on stderr.
    Raises InputError (one sentence, naming file and line) for a missing manifest, a set of another
    task, a line that is not an utterance, an id that occurs twice, or a missing recording.
    """
    root = Path(root)
    if not root.is_dir():
        raise InputError(f"{root} is no folder; give one that `speechssl prepare` made")
    card = root / "card.json"
    name = read_json(card).get("task", task) if card.is_file() else task
    if name is None:
        raise InputError(
            f'{root} has no card.json that says of which task it is; add {{"task": "ks"}}'
        )
    if task not in (None, name):
        raise InputError(f"{root} is a set of the task {name}, not of {task}; give one of {task}")
    manifests = {split: root / f"{split}.jsonl" for split in SPLITS_OF.get(name, SPLITS)}
    without_dev = name not in WITH_DEV and not manifests["dev"].is_file()
    if without_dev:
        del manifests["dev"]
    seen: set[str] = set()
    splits: dict[str, tuple[Utterance, ...]] = {}
    for split, path in manifests.items():
        utterances = []
        for number, values in read_lines(path):
            utterance = _make_utterance(root, values, f"{path}:{number}")
            if utterance.id in seen:
                raise InputError(f"{path}:{number}: the id {utterance.id} occurs twice; rename it")
            seen.add(utterance.id)
            utterances.append(utterance)
        if not utterances:
            raise InputError(f"{path} has no utterance; prepare the set with some")
        splits[split] = tuple(utterances)
    if without_dev:
        train = splits["train"]
        dev = _choose_dev(train)
        tqdm.write(
            f"{root} has no dev.jsonl; {len(dev)} of the {len(train)} recordings of "
            "train.jsonl are it",
            file=sys.stderr,
        )
        splits["train"] = tuple(u for u in train if u.id not in dev)
        splits["dev"] = tuple(u for u in train if u.id in dev)
    files = [*manifests.values(), *sorted(root.glob("*.trials.jsonl"))]
    return UtteranceSet(root, name, splits, hash_files(files))


def _choose_dev(train: Sequence[Utterance]) -> set[str]:
    """Choose the ids for dev: every tenth of each group of utterances with the same labels. Where
    no group has ten, the last of each is chosen, unless it is the only one of its group."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}  # labels -> ids
    for u in train:
        groups.setdefault(tuple(sorted(u.labels.items())), []).append(u.id)
    dev: set[str] = set()
    for ids in groups.values():
        dev.update(ids[9::10])
    return dev or {ids[-1] for ids in groups.values() if len(ids) > 1}


def load_labelled(root: Path | str, task: str | None = None) -> LabelledSet:
    """Read and check a set of labelled utterances. The classes of a slot are those of the training
    data.

    Raises InputError as `load_set` does, and for utterances with other slots than the rest, or a
    label that the training data does not have.
    """
    data = load_set(root, task)
    labels: dict[str, set[str]] = {}  # slot -> its labels in the training data
    for utterance in data.splits["train"]:
        for slot, label in utterance.labels.items():
            labels.setdefault(slot, set()).add(label)
    # slots and classes are sorted as in the JSON of a card: a head that is loaded again finds its
    # slots in the same order
    classes = {slot: tuple(sorted(names)) for slot, names in sorted(labels.items())}
    for split, utterances in data.splits.items():
        for u in utterances:
            _check_labels(u, classes, f"{data.root / split}.jsonl, utterance {u.id},")
    return LabelledSet(data.root, data.task, data.splits, data.hash, classes)


def _check_labels(u: Utterance, classes: Mapping[str, tuple[str, ...]], place: str) -> None:
    """Raise InputError for an utterance with other slots than the training data has, or a label
    that no training utterance has."""
    unknown = {slot: name for slot, name in u.labels.items() if name not in classes.get(slot, ())}
    if unknown or not u.labels or set(u.labels) != set(classes):
        raise InputError(
            f"{place} has the labels {dict(u.labels)}; give every line one for "
            f"{', '.join(classes) or 'something'} that a training utterance has"
        )


def load_trials(data: UtteranceSet, split: str) -> tuple[Trial, ...]:
    """Read the trials of a split. Raises InputError for a missing or damaged file, or a trial of an
    unknown recording."""
    path = data.root / f"{split}.trials.jsonl"
    ids = {u.id for u in data.splits[split]}
    trials = []
    for number, values in read_lines(path):
        trial = convert(values, Trial, f"{path}:{number}")
        for name in (trial.first, trial.second):
            if name not in ids:
                raise InputError(
                    f"{path}:{number} names {name}, which is not in {split}.jsonl; correct the id"
                )
        trials.append(trial)
    if {t.same for t in trials} != {True, False}:
        raise InputError(f"{path} needs trials of one speaker and of two; add some of both")
    return tuple(trials)


def make_record(utterance: Utterance) -> dict[str, Any]:
    """Make the line of a manifest from an utterance, without its optional fields that are empty."""
    always = ("id", "audio", "seconds", "speaker")
    values = asdict(utterance)
    return {name: value for name, value in values.items() if value or name in always}


def _make_utterance(root: Path, values: dict[str, Any], place: str) -> Utterance:
    """Make the utterance of a line. Seconds that the line does not state are read from the
    recording. Raises InputError, which says what is wrong with the line."""
    audio = values.get("audio")
    if isinstance(audio, str):
        values = {"id": str(PurePath(audio).with_suffix(""))} | values
    utterance = convert(values, Utterance, place, only=True)
    for path in (utterance.audio, *utterance.sources):
        # "../audio/7.flac" is allowed: sets beside each other may share their audio
        check_inside(root.parent, str(root.absolute().name / PurePath(path)), place)
        if not (root / path).is_file():
            raise InputError(
                f"{place} names {root / path}, which does not exist; restore it or remove the line"
            )
    if utterance.seconds:
        return utterance
    return replace(utterance, seconds=read_duration(root / utterance.audio))


# ---- Speakers: a bootstrap interval resamples them where there are enough (`stats.choose_units`)
# that do not occur in training; a head knows the speakers of `train.jsonl`.


def list_speakers(utterance: Utterance) -> tuple[str, ...]:
    """List the speakers of a recording: one speaker, or all those of a conversation or a mixture;
    () where they are not known.

    Every second of silence (Speech Commands) counts as a different speaker.
    """
    if utterance.labels.get("keyword") == SILENCE and not utterance.speaker:
        return (f"nobody, {utterance.id}",)
    if utterance.turns:
        return tuple(sorted({turn.speaker for turn in utterance.turns}))
    return tuple(utterance.speaker.split(TOGETHER)) if utterance.speaker else ()


def list_unknown_speakers(
    data: UtteranceSet, utterances: Sequence[Utterance]
) -> list[tuple[str, ...]]:
    """List the speakers of every recording; () where they are not known, and where one of them
    occurs in training."""
    training_voices = {voice for u in data.splits.get("train", ()) for voice in list_speakers(u)}
    speakers = [list_speakers(u) for u in utterances]
    return [() if training_voices & set(voices) else voices for voices in speakers]


def group_recordings(
    data: UtteranceSet, utterances: Sequence[Utterance], name: str = RECORDING
) -> BootstrapUnits:
    """Group recordings for a bootstrap, which resamples the groups: those of a speaker, where
    enough speakers do not occur in training; otherwise single recordings, which are called `name`.

    A conversation or a mixture belongs to the groups of all its speakers.
    """
    return choose_units(list_unknown_speakers(data, utterances), [u.id for u in utterances], name)
