"""TASKS has the tasks by their short names, with the sizes of their heads and their training.

The published sizes and settings are those of s3prl 0.4.18 (downstream/*/config.yaml; for SE and SS
those of the second versions, _stft2).
The small ones are for an hour or two of speech and a CPU. They were chosen on the dev sets of the
synthetic SUPERB: the heads and losses are the same, with fewer units and steps, and training ends
early where dev does not improve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from speechssl.superb.data import HeadSettings, Task
from speechssl.superb.tasks.classification import METRIC, Classification
from speechssl.superb.tasks.diarisation import Diarisation
from speechssl.superb.tasks.enhancement import Enhancement, Separation
from speechssl.superb.tasks.transcription import Phones, SlotFilling, Speech
from speechssl.superb.tasks.verification import Verification

QBE = "qbe"  # has no head: `spoken_terms`


@dataclass(frozen=True)
class Entry:
    """An entry describes a task that has a head."""

    about: str
    metric: str  # the first measure
    make: Callable[..., Task]  # (data, grid, **sizes) -> task
    published: HeadSettings
    small: HeadSettings
    sizes: Mapping[str, Any] = field(default_factory=dict)  # of the small head
    folders: tuple[str, ...] = ()  # other names that its data may have (`speechssl prepare`)


def _classification(
    name: str, about: str, published: HeadSettings, folders: tuple[str, ...] = ()
) -> Entry:
    """Make the entry of a classification task; all of them have the same small head."""
    small = HeadSettings(1e-3, 3000, 32, 100, patience=8)
    return Entry(about, METRIC, partial(Classification, name), published, small, folders=folders)


_CLASSIFICATION = HeadSettings(1e-4, 200_000, 32, 5_000)
_LETTERS = HeadSettings(1e-4, 200_000, 32, 2_000)
_TEXT = {"projection": 192, "lstm_width": 192, "lstm_layers": 1, "dropout": 0.1, "masks": None}
_MASKS = {"hidden": 64, "layers": 2}
_MASKING = HeadSettings(1e-3, 400, 8, 100, "AdamW", patience=3)

TASKS: dict[str, Entry] = {
    "pr": Entry(
        "phone recognition", "per", Phones,
        published=HeadSettings(1e-2, 100_000, 32, 1_000),
        small=HeadSettings(1e-2, 1200, 16, 100, patience=5),
    ),
    "asr": Entry(
        "speech recognition", "wer", Speech,
        published=_LETTERS,
        small=HeadSettings(3e-3, 1600, 16, 200, patience=4),
        sizes=_TEXT,
    ),
    "ks": _classification("ks", "keyword spotting", replace(_CLASSIFICATION, balanced=True)),
    "sid": _classification("sid", "speaker identification", _CLASSIFICATION),
    "asv": Entry(
        "speaker verification", "eer", Verification,
        published=HeadSettings(1e-4, 200_000, 50, 10_000, "AdamW", 1e3),
        small=HeadSettings(1e-3, 600, 32, 100, "AdamW", 1e3, 4),
        sizes={"projection": 128, "last": 384, "crop": 3.0},
    ),
    "sd": Entry(
        "speaker diarisation", "der", Diarisation,
        published=HeadSettings(1e-4, 30_000, 32, 500),
        small=HeadSettings(1e-3, 600, 8, 100, patience=4),
        sizes={"hidden": 128},
    ),
    "ic": _classification("ic", "intent classification", _CLASSIFICATION),
    "sf": Entry(
        "slot filling", "slot_f1", SlotFilling,
        published=_LETTERS,
        small=HeadSettings(3e-3, 1200, 16, 200, patience=6),
        sizes=_TEXT,
    ),
    "er": _classification(
        "er", "emotion recognition", HeadSettings(1e-4, 30_000, 32, 1_000), ("style",)
    ),
    "se": Entry(
        "speech enhancement", "pesq", Enhancement,
        published=HeadSettings(1e-3, 100_000, 8, 1_250, "AdamW"),
        small=_MASKING,
        sizes=_MASKS,
    ),
    "ss": Entry(
        "source separation", "si_sdri", Separation,
        published=HeadSettings(1e-3, 150_000, 8, 2_000, "AdamW"),
        small=_MASKING,
        sizes=_MASKS,
    ),
}  # fmt: skip
ORDER = ("pr", "asr", "ks", QBE, "sid", "asv", "sd", "ic", "sf", "er", "se", "ss")
ABOUT = {name: "query by example" if name == QBE else TASKS[name].about for name in ORDER}
