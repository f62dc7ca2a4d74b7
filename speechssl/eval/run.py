"""Every evaluation runs this loop: encode -> cache -> score.

A result is one system under one condition, in one JSON file that is written whole or not at all. A
killed run resumes with the
next recording: what was encoded for a result lies beside it until it is written (`PartialResult`).
A file is made again where its inputs have changed, where it is damaged, and where it lists
recordings that failed, since they may have been mended. A recording that one system cannot encode
is no loss to the others; a system that can encode none is an error, raised once the results of the
others are kept.

The robustness grid and SUPERB evaluate in conditions that their encoders have seen in training or
have not (`Setting`), and freeze the mixtures before the first encoder runs: what is random about
one depends on the seed, the condition and the utterance alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from tqdm import tqdm

from speechssl.artifacts import hash_files, hash_json, read_json, write_json
from speechssl.audio import read_audio
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.augment.conditions import FrozenDistorter, freeze
from speechssl.checkpoints import SHIPPED
from speechssl.errors import InputError
from speechssl.eval.partial import PartialResult
from speechssl.results import condition_name

Key = TypeVar("Key", bound=Hashable)  # what a recording is known by


@dataclass(frozen=True)
class ResultFile:
    """This says where the result of one system under one condition lies.

    made_from: hash of all that decides it. label: for messages, such as "dual, pink 5 dB".
    """

    system: str
    path: Path
    made_from: str
    label: str

    def read(self) -> dict[str, Any]:
        """Read the contents. Raises InputError where they are not what was written."""
        contents = read_json(self.path)
        if not isinstance(contents, dict) or contents.get("hash") != hash_json(
            {k: v for k, v in contents.items() if k != "hash"}
        ):
            raise InputError(
                f"{self.path} was changed after it was written; delete it and evaluate again"
            )
        return contents

    def write(self, values: Mapping[str, Any], failed: Mapping[str, str]) -> None:
        """Write the result. failed: id of a recording -> why it could not be encoded."""
        contents = {"made_from": self.made_from, **values, "failed": dict(failed)}
        write_json(self.path, contents | {"hash": hash_json(contents)})
        self.partial.remove()

    @cached_property
    def partial(self) -> PartialResult:
        """Return what an interrupted run encoded for it."""
        return PartialResult(self.path.with_suffix(".partial"), self.made_from)

    @property
    def done(self) -> bool:
        """Tell whether it need not be made (again). A damaged file is reported."""
        if not self.path.is_file():
            return False
        try:
            contents = self.read()
        except InputError as error:
            tqdm.write(f"{error}; it is made again", file=sys.stderr)
            return False
        return contents["made_from"] == self.made_from and not contents["failed"]


@dataclass(frozen=True)
class Encoded(Generic[Key]):
    """This is what one system made of the recordings. failed: why there are no features of a
    recording."""

    features: dict[Key, Any] = field(default_factory=dict)
    failed: dict[Key, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Encoding(Generic[Key]):
    """This says how one system encodes. encode: of a recording and its samples, (N,) float32 at 16
    kHz; None where it needs no audio.

    recordings: those that it needs; None: all. Several threads call `encode` at once.
    """

    encode: Callable[[Key, np.ndarray | None], Any]
    needs_audio: bool = True
    recordings: Collection[Key] | None = None


def encode_recordings(
    recordings: Iterable[Key],
    read: Callable[[Key], np.ndarray],
    distort: Callable[[np.ndarray, Key], np.ndarray],
    systems: Mapping[str, Encoding[Key]],
    workers: int,
    what: str,
    partial: Mapping[str, PartialResult] = MappingProxyType({}),
) -> dict[str, Encoded[Key]]:
    """Encode every recording with every system. All get the same samples, so that those with a
    common encoder run it once.

    read: samples of a recording, (N,) float32 at 16 kHz. distort: samples, recording -> (N,)
    samples. what: for the progress bar. partial: by system, where features are kept and what an
    interrupted run left there.
    InputError and ValueError of `read` and of a system, and ValueError of `distort` (silent speech)
    are the recording's failure. Raises InputError as `distort` does: noise that cannot be had
    counts against no system.
    """
    from speechssl.encoders.load import single_threaded  # imports torch

    def one(recording: Key) -> dict[str, tuple[Any, str]]:
        needed = {
            name: s
            for name, s in systems.items()
            if (s.recordings is None or recording in s.recordings)
            and str(recording) not in stored.get(name, ())
        }
        samples, unreadable = None, ""
        if any(s.needs_audio for s in needed.values()):
            try:
                samples = read(recording)
            except (InputError, ValueError) as error:
                unreadable = str(error)
            else:
                try:  # apart from reading: an InputError of this one ends the run
                    samples = distort(samples, recording)
                except ValueError as error:
                    unreadable = str(error)
        outputs: dict[str, tuple[Any, str]] = {}
        for name, system in needed.items():
            if system.needs_audio and unreadable:
                outputs[name] = None, unreadable
                continue
            try:
                outputs[name] = (
                    system.encode(recording, samples if system.needs_audio else None),
                    "",
                )
            except (InputError, ValueError) as error:
                outputs[name] = None, str(error)
        return outputs

    every = list(recordings)
    stored = {name: result.features for name, result in partial.items()}
    encoded: dict[str, Encoded[Key]] = {name: Encoded() for name in systems}
    with single_threaded(workers) as pool:
        bar = tqdm(
            pool.map(one, every), total=len(every), desc=what, unit="file", disable=not every
        )
        for recording, outputs in zip(every, bar, strict=True):
            for name in systems:
                if str(recording) in stored.get(name, ()):
                    encoded[name].features[recording] = stored[name][str(recording)]
                elif name in outputs:
                    features, reason = outputs[name]
                    if reason:
                        encoded[name].failed[recording] = reason
                        continue
                    encoded[name].features[recording] = features
                    if name in partial:
                        partial[name].add(str(recording), features)
    return encoded


def evaluate_files(
    files: Sequence[ResultFile],
    encode: Callable[[Sequence[ResultFile]], Mapping[str, Encoded[str]]],
    score: Callable[[ResultFile, Mapping[str, Any]], Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return the contents of all files of one condition; make those that are missing.

    encode: the missing files -> by system, what it made of the recordings; a system that is left
    out needs none.
    score: a file, its system's features by the recording's id -> the values to be written, beside
    `made_from` and `failed`.
    Raises InputError where a system could encode none of its recordings, after the files of the
    others are written.
    """
    missing = [file for file in files if not file.done]
    encoded = encode(missing) if missing else {}
    error = None
    for file in missing:
        of_system = encoded.get(file.system, Encoded())
        if of_system.failed and not of_system.features:
            reason = next(iter(of_system.failed.values()))
            which = f"none of the {len(of_system.failed)} recordings could be encoded"
            # raised below: what the other systems encoded is written first, and not lost
            error = error or InputError(f"{file.label}: {which} ({reason}); fix them")
            continue
        file.write(score(file, of_system.features), of_system.failed)
    if error:
        raise error
    return [file.read() for file in files]


# ---- conditions, and what the encoders know of them


@dataclass(frozen=True)
class Setting:
    """A setting is a condition and what the encoders know of it. group: clean, seen (in training)
    or unseen."""

    group: str
    condition: Condition

    @property
    def name(self) -> str:
        """The name is as in `results.jsonl`, which has a column for the SNR: "clean", "seen-m+g+r",
        "unseen-kitchen"."""
        return "clean" if self.condition.name == "clean" else f"{self.group}-{self.condition.short}"

    @property
    def snr_db(self) -> float | None:
        return self.condition.snr_db

    @property
    def label(self) -> str:
        return condition_name(self.name, self.snr_db)

    @property
    def file(self) -> str:
        return f"{self.label.replace(' ', '-').replace('/', '-')}.json"


def settings_of(seen: Sequence[str], unseen: Sequence[str], snrs: Sequence[float]) -> list[Setting]:
    """Return the settings: clean speech, then these conditions, each at every SNR (dB) where it
    needs one and has none of its own."""
    settings = [Setting("clean", Condition("clean"))]
    for group, texts in (("seen", seen), ("unseen", unseen)):
        for text in texts:
            try:
                conditions = [parse_condition(text)]
            except InputError:
                # the last step has its number, and it is wrong
                if re.search(r"@[^/@]+$", text.rpartition("+")[2]) or not snrs:
                    raise
                conditions = [parse_condition(f"{text}@{snr:g}") for snr in snrs]
            settings += [Setting(group, condition) for condition in conditions]
    return settings


def trained_noises(where: str | Path) -> frozenset[str]:
    """Read from the card of an encoder which noises it was trained on; none where it has no card of
    ours.

    where: the encoder or the folder of models that it lies in, as `load_encoder` takes it.
    """
    places = [
        folder / inside
        for folder in (Path(where), SHIPPED / where)
        for inside in ("encoder/card.json", "card.json")
    ]
    card: Any = next((read_json(path) for path in places if path.is_file()), {})
    options = card.get("options") if isinstance(card, dict) else None
    return noises_in(options) if isinstance(options, dict) else frozenset()


def noises_in(options: Mapping[str, Any]) -> frozenset[str]:
    """Return what the options of a training call the noises in it."""
    distort = options.get("distort")
    kinds = distort.get("kinds", []) if isinstance(distort, dict) else []
    return frozenset(kind[key] for kind in kinds for key in ("name", "set") if key in kind)


def check_unseen(encoder: str, noises: frozenset[str], settings: Iterable[Setting]) -> None:
    """Raise InputError where noise is called unseen that an encoder was trained on. noises: those
    that its card names."""
    for condition in [s.condition for s in settings if s.group == "unseen"]:
        if seen := noises & {
            name for step in (condition.steps or (condition,)) for name in step.short.split("+")
        }:
            raise InputError(
                f"{encoder} was trained on the noise {min(seen)}, according to its card; give it "
                "with --seen instead of --unseen"
            )


def check_conditions(conditions: Sequence[Any], distorter: Distorter) -> None:
    """Raise InputError for conditions of one name and for noise that cannot be had; call it before
    a long run.

    conditions: or the settings of a grid.
    """
    labels = [one.label for one in conditions]
    if twins := [label for i, label in enumerate(labels) if label in labels[:i]]:
        raise InputError(
            f"two conditions have the name {twins[0]!r}; rename a noise file, or evaluate them "
            "separately into two folders"
        )
    for condition in (getattr(one, "condition", one) for one in conditions):
        if condition.name != "clean":
            distorter.check(condition)


# ---- recordings, and what noise knows them by


class Item(NamedTuple):
    """This is one test recording. id: what the random part of a distortion depends on."""

    id: str
    path: Path


def normalised(items: Iterable[Item]) -> list[Item]:
    """Return a path in its one form. Two tasks may write the path of one recording in two ways."""
    return [Item(name, Path(os.path.abspath(path))) for name, path in items]


def name_utterances(tasks: Iterable[tuple[str, Sequence[Item]]]) -> dict[Item, str]:
    """Name recordings for noise: by id; `<task>/<id>` where the tasks give one id to different
    recordings.

    tasks: their names and items. Keys are normalised.
    """
    owners: dict[Item, str] = {}
    for task, items in tasks:
        for item in normalised(items):
            owners[item] = min(owners.get(item, task), task)
    paths: dict[str, set[Path]] = {}
    for item in owners:
        paths.setdefault(item.id, set()).add(item.path)
    return {
        item: item.id if len(paths[item.id]) == 1 else f"{task}/{item.id}"
        for item, task in owners.items()
    }


def file_size(path: Path) -> int:
    """Return the size in bytes; -1 for a file that is not there, which is reported when it is to be
    encoded."""
    return path.stat().st_size if path.is_file() else -1


# ---- frozen mixtures


class FrozenMixtures(FrozenDistorter):
    """These are the mixtures of a manifest, by the names of recordings."""

    def made_from(self, condition: Condition, utterances: Sequence[str]) -> str:
        """Return what decides the mixtures of these utterances alone: a manifest that has grown
        leaves earlier results as they are."""
        rows = [self._rows.get((utterance, condition.text)) for utterance in utterances]
        return hash_json([hash_json(row) if row else "" for row in rows])


def freeze_mixtures(
    distorter: Distorter,
    recordings: Mapping[str, Path],
    conditions: Sequence[Condition],
    path: Path,
    workers: int = 2,
) -> FrozenMixtures:
    """Write the manifest where it is not there or was made from other inputs. recordings: by the
    name that noise knows them by.

    Recordings that cannot be read are left out, and reported when they are to be encoded. Raises
    InputError for noise that cannot be had, for noise that has changed since it was frozen, and
    where no recording can be read.
    """
    card = path.with_suffix(".card.json")
    files = [[name, file_size(file)] for name, file in recordings.items()]
    noise = [[c.text, [list(source) for source in distorter.sources(c)]] for c in conditions]
    made_from = hash_json([files, noise, distorter.seed])
    try:
        stored = read_json(card) if path.is_file() and card.is_file() else None
    except InputError:  # a damaged card: the manifest is made again
        stored = None
    current = (
        isinstance(stored, dict)
        and stored.get("made_from") == made_from
        and stored.get("hash") == hash_files([path])
    )
    if not current:

        def length(file: Path) -> int | str:
            """In samples at 16 kHz, or why it cannot be read."""
            try:
                return len(read_audio(file))
            except (InputError, ValueError) as error:
                return str(error)

        with ThreadPoolExecutor(workers) as pool:
            measured = list(
                tqdm(
                    pool.map(length, recordings.values()),
                    total=len(recordings),
                    desc="freezing noise",
                    unit="file",
                )
            )
        lengths = {
            name: n for name, n in zip(recordings, measured, strict=True) if not isinstance(n, str)
        }
        if not lengths:
            why = measured[0] if measured else "there are none"
            raise InputError(
                f"none of the {len(measured)} recordings can be read ({why}); fix them"
            )
        freeze(conditions, lengths, distorter, path)
        write_json(
            card,
            {
                "what": "frozen noise",
                "made_from": made_from,
                "hash": hash_files([path]),
                "seed": distorter.seed,
            },
        )
    frozen = FrozenMixtures(path)
    for condition in conditions:
        frozen.check(condition)
    return frozen
