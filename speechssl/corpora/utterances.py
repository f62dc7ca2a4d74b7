"""Labelled utterances: the data of a classification task, as a folder.

`card.json` says which task it is (`{"task": "ks", ...}`); `train.jsonl`, `dev.jsonl` and `test.jsonl` hold one recording a line:
`{"id", "audio", "seconds", "speaker", "labels": {"keyword": "yes"}, "text"}`. A label fills a slot; commands have several
(`action`, `object`, `location`). Audio paths are relative to the folder. The classes of a slot are those of the training data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from speechssl.artefacts import hash_files, read_json
from speechssl.corpora.records import read_lines
from speechssl.errors import InputError

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Utterance:
    """One recording; a line of a manifest."""

    id: str
    audio: str  # path below the folder
    seconds: float
    speaker: str
    labels: Mapping[str, str]  # slot -> class
    text: str = ""  # what is said, where that is known


@dataclass(frozen=True)
class LabelledSet:
    """A task's data in memory."""

    root: Path
    task: str
    classes: dict[str, tuple[str, ...]]  # slot -> its classes, sorted
    splits: dict[str, tuple[Utterance, ...]]
    hash: str  # of the manifests; audio is known by its name

    def path(self, utterance: Utterance) -> Path:
        return self.root / utterance.audio


def load_labelled(root: Path | str) -> LabelledSet:
    """Read and check the three splits.

    Raises InputError (one sentence, naming file and line) for a missing card or manifest, a line that is not an utterance, an id
    that occurs twice, a missing recording, slots that differ, or a label that the training data does not have.
    """
    root = Path(root)
    if not (root / "card.json").is_file():
        raise InputError(f"{root} is not a labelled set (no card.json); give a folder that `speechssl prepare` made")
    card = read_json(root / "card.json")
    if not isinstance(card, dict) or not isinstance(card.get("task"), str):
        raise InputError(f'{root / "card.json"} does not say of which task the set is; write it as "task"')
    manifests = {split: root / f"{split}.jsonl" for split in SPLITS}
    seen: dict[str, str] = {}
    numbered = {split: list(_read(root, path, seen)) for split, path in manifests.items()}
    for split, found in numbered.items():
        if not found:
            raise InputError(f"{manifests[split]} has no utterance; prepare the set with some")
    classes = _classes(utterance for _, utterance in numbered["train"])
    for split, found in numbered.items():
        for number, utterance in found:
            _check_labels(utterance, classes, f"{manifests[split]}:{number}")
    splits = {split: tuple(utterance for _, utterance in found) for split, found in numbered.items()}
    return LabelledSet(root, card["task"], classes, splits, hash_files(manifests.values()))


def _read(root: Path, path: Path, seen: dict[str, str]) -> Iterator[tuple[int, Utterance]]:
    """The utterances of a manifest with their lines. seen: the ids so far and where they were; grows."""
    for number, values in read_lines(path):
        place = f"{path}:{number}"
        utterance = _build(values, place)
        if utterance.id in seen:
            raise InputError(f"{place}: the id {utterance.id} is that of {seen[utterance.id]} too; make ids unique")
        if not (root / utterance.audio).is_file():
            raise InputError(f"{place} names {root / utterance.audio}, which does not exist; restore it or remove the line")
        seen[utterance.id] = place
        yield number, utterance


def _build(values: dict[str, Any], place: str) -> Utterance:
    known = [f.name for f in fields(Utterance)]
    if unknown := sorted(set(values) - set(known)):
        raise InputError(f"{place} has the unknown field {unknown[0]!r}; the fields are {', '.join(known)}")
    try:
        utterance = Utterance(**values)
        for name in ("id", "audio", "speaker", "text"):
            if not isinstance(getattr(utterance, name), str):
                raise TypeError(f"{name} is {getattr(utterance, name)!r}, which is not text")
        if not utterance.id or not isinstance(utterance.labels, dict) or not utterance.labels:
            raise ValueError("it needs an id and at least one label")
        if not all(isinstance(label, str) for label in utterance.labels.values()):
            raise TypeError("a label is not text")
        if not math.isfinite(utterance.seconds) or utterance.seconds <= 0:
            raise ValueError(f"seconds is {utterance.seconds}")
    except (TypeError, ValueError) as error:
        raise InputError(f"{place} is not an utterance ({error}); mend the line") from error
    return utterance


def _classes(train: Iterator[Utterance]) -> dict[str, tuple[str, ...]]:
    """slot -> classes, both sorted: JSON keeps them so, and a head that is read again has its slots in the order of its card."""
    found: dict[str, set[str]] = {}
    for utterance in train:
        for slot, label in utterance.labels.items():
            found.setdefault(slot, set()).add(label)
    return {slot: tuple(sorted(labels)) for slot, labels in sorted(found.items())}


def _check_labels(utterance: Utterance, classes: Mapping[str, tuple[str, ...]], place: str) -> None:
    if set(utterance.labels) != set(classes):
        raise InputError(f"{place} has labels for {', '.join(utterance.labels)}; give every line labels for {', '.join(classes)}")
    for slot, label in utterance.labels.items():
        if label not in classes[slot]:
            raise InputError(f"{place} has the {slot} {label!r}, which no training utterance has; correct it or add some to train")
