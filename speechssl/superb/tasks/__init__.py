"""The tasks by their short names: how their data is read, which head they have, and how it is trained.

published: sizes and settings of s3prl 0.4.18. small: for an hour or two of speech and a CPU, chosen on the dev sets of the
synthetic SUPERB: the same heads and losses with fewer units and steps, ended early where dev does not improve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from speechssl.cascade.decode import NgramModel, read_arpa
from speechssl.data.superb import UtteranceSet, load_labelled, load_set
from speechssl.superb.data import HeadSettings, Task
from speechssl.superb.tasks import classification, diarisation, enhancement, transcription, verification
from speechssl.superb.tasks.classification import Classification
from speechssl.superb.tasks.diarisation import Diarisation
from speechssl.superb.tasks.enhancement import Enhancement, Separation
from speechssl.superb.tasks.transcription import Phones, SlotFilling, Speech, train_language_model
from speechssl.superb.tasks.verification import Verification
from speechssl.timing import FrameGrid

PRESETS = ("published", "small")
HOURS = 3.0  # of training speech: `auto` is `small` below it
QBE = "qbe"  # has no head: `spoken_terms`


@dataclass(frozen=True)
class Entry:
    """A task with a head. folders: other names that `speechssl prepare` gives its data."""

    about: str
    metric: str  # the first measure
    make: Callable[..., Task]  # (data, grid, **sizes)
    published: HeadSettings
    small: HeadSettings
    sizes: Mapping[str, Any] = field(default_factory=dict)  # of the small head
    folders: tuple[str, ...] = ()


def _classes(name: str, about: str, folders: tuple[str, ...] = ()) -> Entry:
    make = partial(Classification, name)
    return Entry(about, "acc", make, classification.PUBLISHED[name], HeadSettings(1e-3, 3000, 32, 100, patience=8), folders=folders)


_TEXT = {"projection": 192, "lstm_width": 192, "lstm_layers": 1, "dropout": 0.1, "masks": None}
_MASKS = {"hidden": 64, "layers": 2}
_MASKING = HeadSettings(1e-3, 400, 8, 100, "AdamW", patience=3)

TASKS: dict[str, Entry] = {
    "pr": Entry("phone recognition", "per", Phones, transcription.PUBLISHED_PR, HeadSettings(1e-2, 1200, 16, 100, patience=5)),
    "asr": Entry(
        "speech recognition", "wer", Speech, transcription.PUBLISHED_ASR, HeadSettings(3e-3, 1600, 16, 200, patience=4), _TEXT
    ),
    "ks": _classes("ks", "keyword spotting"),
    "sid": _classes("sid", "speaker identification"),
    "asv": Entry(
        "speaker verification", "eer", Verification, verification.PUBLISHED,
        HeadSettings(1e-3, 600, 32, 100, "AdamW", 1e3, 4), {"projection": 128, "last": 384, "crop": 3.0},
    ),
    "sd": Entry(
        "speaker diarisation", "der", Diarisation, diarisation.PUBLISHED,
        HeadSettings(1e-3, 600, 8, 100, patience=4), {"hidden": 128},
    ),
    "ic": _classes("ic", "intent classification"),
    "sf": Entry(
        "slot filling", "slot_f1", SlotFilling, transcription.PUBLISHED_SF, HeadSettings(3e-3, 1200, 16, 200, patience=6), _TEXT
    ),
    "er": _classes("er", "emotion recognition", folders=("style",)),
    "se": Entry("speech enhancement", "pesq", Enhancement, enhancement.PUBLISHED["se"], _MASKING, _MASKS),
    "ss": Entry("source separation", "si_sdri", Separation, enhancement.PUBLISHED["ss"], _MASKING, _MASKS),
}  # fmt: skip
ORDER = ("pr", "asr", "ks", QBE, "sid", "asv", "sd", "ic", "sf", "er", "se", "ss")
ABOUT = {name: "query by example" if name == QBE else TASKS[name].about for name in ORDER}


def read_data(name: str, folder: Path) -> UtteranceSet:
    """The set of a task. Raises InputError where the folder does not hold one."""
    if name == QBE:
        return load_set(folder, name)
    card = folder / "card.json"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    called = next((other for other in TASKS[name].folders if f'"task": "{other}"' in text), name)
    return load_labelled(folder, called) if name in classification.PUBLISHED else load_set(folder, called)


def preset_for(data: UtteranceSet, wanted: str) -> str:
    """wanted: published, small, or auto: by the hours of training speech."""
    if wanted in PRESETS:
        return wanted
    hours = sum(u.seconds for u in data.splits.get("train", ())) / 3600
    return "small" if hours < HOURS else "published"


def make_task(name: str, data: UtteranceSet, grid: FrameGrid, preset: str) -> tuple[Task, HeadSettings]:
    """A task with a head, and how it is trained. preset: published or small."""
    entry = TASKS[name]
    if preset == "small":
        return entry.make(data, grid, **entry.sizes), entry.small
    return entry.make(data, grid), entry.published


read_language_model = lru_cache(maxsize=1)(read_arpa)  # LibriSpeech's takes minutes


def language_model(data: UtteranceSet, arpa: Path | None) -> NgramModel:
    """For decoding of ASR beside greedy decoding: that of a file (errors as of `read_arpa`), or a 4-gram of the training texts."""
    return read_language_model(arpa) if arpa else train_language_model(data)
