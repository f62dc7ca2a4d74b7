"""The tasks by their short names: how their data is read, which head they have, and how it is trained.

published: sizes and settings as s3prl 0.4.18 has them. small: for an hour or two of speech and a CPU, chosen on the dev sets of the
synthetic SUPERB: same heads and losses, fewer units and steps, and an end when dev gets no better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from speechssl.cascade.lm import NgramModel, read_arpa
from speechssl.data.utterances import UtteranceSet, load_labelled, load_set
from speechssl.superb.task import Settings, Task
from speechssl.superb.tasks import classification as classify
from speechssl.superb.tasks import diarisation, transcription, verification
from speechssl.superb.tasks import enhancement as spectral
from speechssl.superb.tasks.classification import Classification
from speechssl.superb.tasks.diarisation import Diarisation
from speechssl.superb.tasks.enhancement import Enhancement, Separation
from speechssl.superb.tasks.transcription import Phones, SlotFilling, Speech, train_language_model
from speechssl.superb.tasks.verification import Verification
from speechssl.timing import FrameGrid

PRESETS = ("published", "small")
HOURS = 3.0  # of training speech: below it, `small` is the better guess
QBE = "qbe"  # has no head: `spoken_terms`


@dataclass(frozen=True)
class Entry:
    """A task with a head. folders: names its data may have, where `speechssl prepare` writes another than the task's."""

    about: str
    metric: str  # the first measure
    make: Callable[..., Task]  # (data, grid, **sizes)
    published: Settings
    small: Settings
    sizes: Mapping[str, Any] = field(default_factory=dict)  # of the small head
    folders: tuple[str, ...] = ()
    labelled: bool = False


def _classifier(name: str) -> Callable[..., Task]:
    def make(data: Any, grid: FrameGrid, **sizes: Any) -> Task:
        return Classification(name, data, grid, **sizes)

    return make


_FEW = Settings(1e-3, 3000, 32, 100, patience=8)
_TEXT = {"projection": 192, "lstm_width": 192, "lstm_layers": 1, "dropout": 0.1, "masks": None}
_MASKS = {"hidden": 64, "layers": 2}

TASKS: dict[str, Entry] = {
    "pr": Entry("phone recognition", "per", Phones, transcription.PUBLISHED_PR, Settings(1e-2, 1200, 16, 100, patience=5)),
    "asr": Entry(
        "speech recognition", "wer", Speech, transcription.PUBLISHED_ASR, Settings(3e-3, 1600, 16, 200, patience=4), _TEXT
    ),
    "ks": Entry("keyword spotting", "acc", _classifier("ks"), classify.PUBLISHED["ks"], _FEW, labelled=True),
    "sid": Entry("speaker identification", "acc", _classifier("sid"), classify.PUBLISHED["sid"], _FEW, labelled=True),
    "asv": Entry(
        "speaker verification", "eer", Verification, verification.PUBLISHED,
        Settings(1e-3, 600, 32, 100, "AdamW", 1e3, 4), {"projection": 128, "last": 384, "stretch": 3.0},
    ),
    "sd": Entry(
        "speaker diarisation", "der", Diarisation, diarisation.PUBLISHED,
        Settings(1e-3, 600, 8, 100, patience=4), {"hidden": 128},
    ),
    "ic": Entry("intent classification", "acc", _classifier("ic"), classify.PUBLISHED["ic"], _FEW, labelled=True),
    "sf": Entry(
        "slot filling", "slot_f1", SlotFilling, transcription.PUBLISHED_SF, Settings(3e-3, 1200, 16, 200, patience=6), _TEXT
    ),
    "er": Entry(
        "emotion recognition", "acc", _classifier("er"), classify.PUBLISHED["er"], _FEW, folders=("style",), labelled=True
    ),
    "se": Entry(
        "speech enhancement", "pesq", Enhancement, spectral.PUBLISHED["se"],
        Settings(1e-3, 400, 8, 100, "AdamW", patience=3), _MASKS,
    ),
    "ss": Entry(
        "source separation", "si_sdri", Separation, spectral.PUBLISHED["ss"],
        Settings(1e-3, 400, 8, 100, "AdamW", patience=3), _MASKS,
    ),
}  # fmt: skip
ORDER = ("pr", "asr", "ks", QBE, "sid", "asv", "sd", "ic", "sf", "er", "se", "ss")
ABOUT = {name: "query by example" if name == QBE else TASKS[name].about for name in ORDER}


def read_data(name: str, folder: Path) -> UtteranceSet:
    """The set of a task. Raises InputError where the folder does not hold one."""
    if name == QBE:
        return load_set(folder, name)
    entry = TASKS[name]
    called = next((n for n in entry.folders if (folder / "card.json").is_file() and f'"task": "{n}"' in _card(folder)), name)
    return load_labelled(folder, called) if entry.labelled else load_set(folder, called)


def _card(folder: Path) -> str:
    return (folder / "card.json").read_text(encoding="utf-8", errors="replace")


def preset_for(data: UtteranceSet, wanted: str) -> str:
    """wanted: published, small, or auto: by the hours of training speech."""
    if wanted in PRESETS:
        return wanted
    hours = sum(u.seconds for u in data.splits.get("train", ())) / 3600
    return "small" if hours < HOURS else "published"


def make_task(name: str, data: UtteranceSet, grid: FrameGrid, preset: str) -> tuple[Task, Settings]:
    """A task with a head, and how it is trained. preset: published or small."""
    entry = TASKS[name]
    small = preset == "small"
    return entry.make(data, grid, **(entry.sizes if small else {})), entry.small if small else entry.published


def language_model(data: UtteranceSet | None, arpa: Path | None) -> NgramModel:
    """What ASR is decoded with beside greedily: that of a file, or a 4-gram of the training texts. Raises InputError as both do."""
    return _read_once(arpa) if arpa or data is None else train_language_model(data)


@lru_cache(maxsize=1)
def _read_once(arpa: Path) -> NgramModel:
    """LibriSpeech's takes minutes."""
    return read_arpa(arpa)
