"""Read the data of a SUPERB task, a folder of manifests.

`train.jsonl`, `dev.jsonl` and `test.jsonl` hold one recording a line, such as
`{"audio": "audio/7.flac", "speaker": "ann", "labels": {"keyword": "yes"}}`. What a task asks for
stands in its field (`Utterance`); `id` (the path without its suffix), `seconds` and `speaker` may
be left out, and so may `dev.jsonl`: then every tenth recording of `train.jsonl` is dev. Audio paths
are relative to the folder, or absolute.
`card.json`, which `speechssl prepare` writes, names its task (`{"task": "ks", ...}`).
Two tasks need more: asv has `dev.trials.jsonl` and `test.trials.jsonl` (`Trial`); qbe has
`documents.jsonl`, the recordings that are searched, and no `train.jsonl`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any

from tqdm import tqdm

from speechssl.artifacts import hash_files, read_json
from speechssl.audio import duration
from speechssl.data.records import check_inside, read_lines
from speechssl.errors import InputError
from speechssl.stats import BootstrapUnits, choose_units

SPLITS = ("train", "dev", "test")
DOCUMENTS = "documents"
TOGETHER = "+"
SILENCE = "_silence_"  # the keyword of a recording in which nobody speaks
RECORDING = "recording"
WITH_DEV = ("asv", "qbe")  # tasks whose dev.jsonl cannot be taken from train.jsonl
SPLITS_OF = {"qbe": (DOCUMENTS, "dev", "test")}  # task -> its manifests, where they are not SPLITS


def format_sizes(card: Mapping[str, Any]) -> str:
    """Format the sizes in a card, which has them by name: "18 train, 2 dev, 4 test"."""
    counts = sorted(card["sizes"].items(), key=lambda size: [*SPLITS, size[0]].index(size[0]))
    return ", ".join(f"{number:,} {split}" for split, number in counts)


@dataclass(frozen=True)
class Slot:
    """A slot is filled by a piece of a command (SF)."""

    type: str  # "city"
    value: str  # "new york": words of the utterance's text, where it follows the slots before


@dataclass(frozen=True)
class Turn:
    """A turn is a stretch of time in which somebody speaks (SD). Turns may overlap."""

    speaker: str
    start: float  # seconds
    end: float


@dataclass(frozen=True)
class Utterance:
    """An utterance is one recording; a line of a manifest. Fields that a task does not ask for are
    left out of the line."""

    id: str
    audio: str  # path below the folder
    seconds: float
    speaker: str = ""  # of a mixture of two voices both, joined by TOGETHER
    labels: Mapping[str, str] = field(default_factory=dict)  # slot -> class (KS, SID, IC, ER)
    text: str = ""  # normalised (ASR, SF)
    phones: str = ""  # the phones, separated by spaces (PR)
    slots: tuple[Slot, ...] = ()  # in the order of speech (SF)
    turns: tuple[Turn, ...] = ()  # who speaks when (SD)
    # paths: the recordings that were mixed (SS), or the one without noise (SE)
    sources: tuple[str, ...] = ()
    matches: tuple[str, ...] = ()  # ids of the documents that hold this query (QbE)


@dataclass(frozen=True)
class Trial:
    """A trial is two recordings of a split, and whether one person speaks in both (ASV): `{"first":
    id, "second": id, "same": true}`."""

    first: str
    second: str
    same: bool


@dataclass(frozen=True)
class UtteranceSet:
    """The data of a task in memory."""

    root: Path
    task: str
    splits: dict[str, tuple[Utterance, ...]]
    hash: str  # of the manifests; audio is known by its name

    def path(self, utterance: Utterance) -> Path:
        return self.root / utterance.audio


@dataclass(frozen=True)
class LabelledSet(UtteranceSet):
    """The data of a classification task."""

    classes: dict[str, tuple[str, ...]]  # slot -> its classes, sorted


def load_set(root: Path | str, task: str | None = None) -> UtteranceSet:
    """Read and check the manifests. task: the task that the folder is to be of; one without a card
    is taken for it.

    Without `dev.jsonl` a tenth of `train.jsonl` is dev, with a note on stderr: every tenth of those
    with the same labels; of few, the last that is not the only one. Raises InputError (one
    sentence, naming file and line) for a missing manifest, a set of another task, a line that is
    not an utterance, an id that occurs twice, or a missing recording.
    """
    root, card = Path(root), Path(root) / "card.json"
    if card.is_file():
        values = read_json(card)
        if not isinstance(values, dict) or not isinstance(values.get("task"), str):
            raise InputError(f'{card} does not state the task of the set; add it as "task"')
        name = str(values["task"])
        if task not in (None, name):
            raise InputError(
                f"{root} is a set of the task {name}, not of {task}; give a set of {task}"
            )
    elif task is None or not root.is_dir():
        raise InputError(
            f"{root} is not a labelled set (no card.json); give a folder that "
            "`speechssl prepare` made"
        )
    else:
        name = task
    manifests = {split: root / f"{split}.jsonl" for split in SPLITS_OF.get(name, SPLITS)}
    without_dev = name not in WITH_DEV and "train" in manifests and not manifests["dev"].is_file()
    if without_dev:
        del manifests["dev"]
    seen: dict[str, str] = {}  # id -> where it was read
    splits: dict[str, tuple[Utterance, ...]] = {}
    for split, path in manifests.items():
        utterances = []
        for number, values in read_lines(path):
            place = f"{path}:{number}"
            utterance = _utterance(root, values, place)
            if utterance.id in seen:
                raise InputError(
                    f"{place}: the id {utterance.id} is also that of "
                    f"{seen[utterance.id]}; make ids unique"
                )
            seen[utterance.id] = place
            utterances.append(utterance)
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
    for split, of_split in splits.items():
        if not of_split:
            raise InputError(f"{root / split}.jsonl has no utterance; prepare the set with some")
    files = [*manifests.values(), *sorted(root.glob("*.trials.jsonl"))]
    return UtteranceSet(root, name, splits, hash_files(files))


def _choose_dev(train: Sequence[Utterance]) -> set[str]:
    """Choose the ids of a tenth of the utterances, alike in labels."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for u in train:
        groups.setdefault(tuple(sorted(u.labels.items())), []).append(u.id)
    dev: set[str] = set()
    for ids in groups.values():
        dev.update(ids[9::10])
    return dev or {ids[-1] for ids in groups.values() if len(ids) > 1}


def load_labelled(root: Path | str, task: str | None = None) -> LabelledSet:
    """Read and check a set of labelled utterances. The classes of a slot are those of the training
    data.

    Raises InputError as `load_set`, and for slots that differ or a label that the training data
    does not have.
    """
    data = load_set(root, task)
    labels: dict[str, set[str]] = {}
    for utterance in data.splits["train"]:
        for slot, label in utterance.labels.items():
            labels.setdefault(slot, set()).add(label)
    # both sorted: JSON keeps them so, and a head that is read again has its slots in the order of
    # its card
    classes = {slot: tuple(sorted(names)) for slot, names in sorted(labels.items())}
    for split, utterances in data.splits.items():
        for u in utterances:
            _check_labels(u, classes, f"{data.root / split}.jsonl, utterance {u.id},")
    return LabelledSet(data.root, data.task, data.splits, data.hash, classes)


def _check_labels(u: Utterance, classes: Mapping[str, tuple[str, ...]], place: str) -> None:
    if not u.labels:
        raise InputError(f"{place} has no label; give every line at least one")
    if set(u.labels) != set(classes):
        raise InputError(
            f"{place} has labels for {', '.join(u.labels)}; give every line "
            f"labels for {', '.join(classes)}"
        )
    for slot, label in u.labels.items():
        if label not in classes[slot]:
            raise InputError(
                f"{place} has the {slot} {label!r}, which no training utterance has; correct "
                "it or add some to train"
            )


def load_trials(data: UtteranceSet, split: str) -> tuple[Trial, ...]:
    """Read the trials of a split. Raises InputError for a missing or damaged file, or a trial of an
    unknown recording."""
    path, ids = data.root / f"{split}.trials.jsonl", {u.id for u in data.splits[split]}
    trials = []
    for number, values in read_lines(path):
        if set(values) != {"first", "second", "same"} or not isinstance(values["same"], bool):
            raise InputError(
                f'{path}:{number} is not a trial ({{"first": id, "second": id, '
                f'"same": true}}); correct the line'
            )
        unknown = [values[key] for key in ("first", "second") if values[key] not in ids]
        if unknown:
            raise InputError(
                f"{path}:{number} names {unknown[0]!r}, which is not in "
                f"{split}.jsonl; correct the id"
            )
        trials.append(Trial(**values))
    if {t.same for t in trials} != {True, False}:
        raise InputError(f"{path} needs trials of one speaker and of two; add some of both")
    return tuple(trials)


def to_record(utterance: Utterance) -> dict[str, Any]:
    """Make the line of a manifest, which `load_set` reads, without empty fields."""
    return {
        name: value
        for name, value in asdict(utterance).items()
        if value or name in ("id", "audio", "seconds", "speaker")
    }


def _utterance(root: Path, values: dict[str, Any], place: str) -> Utterance:
    """Make the utterance of a line. Raises InputError, saying what is wrong with it."""
    field_names = [f.name for f in fields(Utterance)]
    unknown = sorted(set(values) - set(field_names))
    if unknown:
        raise InputError(
            f"{place} has the unknown field {unknown[0]!r}; the fields are {', '.join(field_names)}"
        )
    try:
        for path in (values["audio"], *values.get("sources", ())):
            if not isinstance(path, str):
                raise TypeError("a path is not text")
            # neighbours may share their audio
            check_inside(root.parent, str(root.absolute().name / PurePath(path)), place)
            if not (root / path).is_file():
                raise InputError(
                    f"{place} names {root / path}, which does not exist; restore it "
                    "or remove the line"
                )
        values = {"id": str(PurePath(values["audio"]).with_suffix(""))} | values
        for name, kind, parts in (
            ("slots", Slot, ("type", "value")),
            ("turns", Turn, ("speaker", "start", "end")),
        ):
            for part in values.get(name, ()):
                if not isinstance(part, dict) or set(part) != set(parts):
                    raise ValueError(
                        f"{part!r} is not a {kind.__name__.lower()}, which has "
                        f"{' and '.join(parts)}"
                    )
            values[name] = tuple(kind(**part) for part in values.get(name, ()))
        if "seconds" not in values:
            values["seconds"] = duration(root / values["audio"])
        for name in ("sources", "matches"):
            values[name] = tuple(values.get(name, ()))
        u = Utterance(**values)
        for name in ("id", "audio", "speaker", "text", "phones"):
            if not isinstance(getattr(u, name), str):
                raise TypeError(f"{name} is {getattr(u, name)!r}, which is not text")
        if not u.id or not isinstance(u.labels, dict):
            raise ValueError("it needs an id, and labels by slot")
        texts = [*u.labels.values(), *u.matches]
        for slot in u.slots:
            texts += [slot.type, slot.value]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("a label is not text")
        if not math.isfinite(u.seconds) or u.seconds <= 0:
            raise ValueError(f"seconds is {u.seconds}")
        for turn in u.turns:
            if not isinstance(turn.speaker, str) or not 0 <= turn.start < turn.end:
                raise ValueError(
                    f"a turn of {turn.speaker!r} lasts from {turn.start} to {turn.end} s"
                )
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"{place} is not an utterance ({error}); correct the line") from error
    return u


# ---- which voices training knew, and so what intervals draw (`stats.choose_units`): a head knows
# the speakers of `train.jsonl`


def speakers_of(utterance: Utterance) -> tuple[str, ...]:
    """List who speaks in a recording: one, all of a conversation or a mixture, or () where that is
    not known.

    A second of silence (Speech Commands) counts as a voice of its own.
    """
    if utterance.labels.get("keyword") == SILENCE and not utterance.speaker:
        return (f"nobody, {utterance.id}",)
    if utterance.turns:
        return tuple(sorted({turn.speaker for turn in utterance.turns}))
    return tuple(utterance.speaker.split(TOGETHER)) if utterance.speaker else ()


def unknown_speakers(data: UtteranceSet, utterances: Sequence[Utterance]) -> list[tuple[str, ...]]:
    """List who speaks in every recording; () where that is not known, or training knew one of the
    voices."""
    training_voices = {voice for u in data.splits.get("train", ()) for voice in speakers_of(u)}
    speakers = [speakers_of(u) for u in utterances]
    return [() if training_voices & set(voices) else voices for voices in speakers]


def recording_units(
    data: UtteranceSet, utterances: Sequence[Utterance], name: str = RECORDING
) -> BootstrapUnits:
    """Return the units that a bootstrap draws of recordings, each of which is its own next larger
    unit. name: of such an item.

    A conversation or a mixture belongs to all its voices.
    """
    return choose_units(unknown_speakers(data, utterances), [u.id for u in utterances], name)
