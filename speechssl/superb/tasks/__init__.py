"""TASKS lists the tasks of SUPERB that have a head, with the sizes of the heads and the settings of
their training.

The published sizes and settings are those of s3prl 0.4.18 (downstream/*/config.yaml; for SE and SS
those of the second versions, _stft2).
The small ones are for an hour or two of speech and a CPU. They were chosen on the dev sets of the
synthetic SUPERB: the kinds of heads and the losses are the same, with fewer units, layers and
steps, shorter crops in ASV and no SpecAugment in ASR and SF, and training ends early where dev does
not improve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from speechssl.superb.data import HeadSettings, Task
from speechssl.superb.options import ORDER, QBE
from speechssl.superb.tasks.classification import METRIC, Classification
from speechssl.superb.tasks.diarisation import Diarisation
from speechssl.superb.tasks.enhancement import Enhancement, Separation
from speechssl.superb.tasks.transcription import Phones, SlotFilling, Speech
from speechssl.superb.tasks.verification import Verification


@dataclass(frozen=True)
class Entry:
    """An entry describes a task that has a head."""

    about: str
    metric: str  # the first measure
    make: Callable[..., Task]  # (data, grid, **sizes) -> task
    published: HeadSettings
    small: HeadSettings
    sizes: Mapping[str, Any] = field(default_factory=dict)  # of the small head
    also_called: tuple[str, ...] = ()  # other names of its data (`speechssl prepare`)


def _make_classification(
    name: str, about: str, published: HeadSettings, also_called: tuple[str, ...] = ()
) -> Entry:
    """Make the entry of a classification task; all of them have the same small head."""
    small = HeadSettings(learning_rate=1e-3, steps=3000, batch=32, every=100, patience=8)
    return Entry(
        about, METRIC, partial(Classification, name), published, small, also_called=also_called
    )


# Settings and sizes that several tasks share.
_CLASSIFICATION = HeadSettings(learning_rate=1e-4, steps=200_000, batch=32, every=5_000)
_RECURRENT = HeadSettings(learning_rate=1e-4, steps=200_000, batch=32, every=2_000)
_RNN_SIZES = {"projection": 192, "lstm_width": 192, "lstm_layers": 1, "dropout": 0.1, "masks": None}
_MASKER_SIZES = {"hidden": 64, "layers": 2}
_SMALL_MASKING = HeadSettings(
    learning_rate=1e-3, steps=400, batch=8, every=100, optimiser="AdamW", patience=3
)

TASKS: dict[str, Entry] = {
    "pr": Entry(
        "phone recognition",
        "per",
        Phones,
        published=HeadSettings(learning_rate=1e-2, steps=100_000, batch=32, every=1_000),
        small=HeadSettings(learning_rate=1e-2, steps=1200, batch=16, every=100, patience=5),
    ),
    "asr": Entry(
        "speech recognition",
        "wer",
        Speech,
        published=_RECURRENT,
        small=HeadSettings(learning_rate=3e-3, steps=1600, batch=16, every=200, patience=4),
        sizes=_RNN_SIZES,
    ),
    "ks": _make_classification("ks", "keyword spotting", replace(_CLASSIFICATION, balanced=True)),
    "sid": _make_classification("sid", "speaker identification", _CLASSIFICATION),
    "asv": Entry(
        "speaker verification",
        "eer",
        Verification,
        published=HeadSettings(
            learning_rate=1e-4, steps=200_000, batch=50, every=10_000, optimiser="AdamW", clip=1e3
        ),
        small=HeadSettings(
            learning_rate=1e-3,
            steps=600,
            batch=32,
            every=100,
            optimiser="AdamW",
            clip=1e3,
            patience=4,
        ),
        sizes={"projection": 128, "last": 384, "crop": 3.0},
    ),
    "sd": Entry(
        "speaker diarisation",
        "der",
        Diarisation,
        published=HeadSettings(learning_rate=1e-4, steps=30_000, batch=32, every=500),
        small=HeadSettings(learning_rate=1e-3, steps=600, batch=8, every=100, patience=4),
        sizes={"hidden": 128},
    ),
    "ic": _make_classification("ic", "intent classification", _CLASSIFICATION),
    "sf": Entry(
        "slot filling",
        "slot_f1",
        SlotFilling,
        published=_RECURRENT,
        small=HeadSettings(learning_rate=3e-3, steps=1200, batch=16, every=200, patience=6),
        sizes=_RNN_SIZES,
    ),
    "er": _make_classification(
        "er",
        "emotion recognition",
        HeadSettings(learning_rate=1e-4, steps=30_000, batch=32, every=1_000),
        ("style",),
    ),
    "se": Entry(
        "speech enhancement",
        "pesq",
        Enhancement,
        published=HeadSettings(
            learning_rate=1e-3, steps=100_000, batch=8, every=1_250, optimiser="AdamW"
        ),
        small=_SMALL_MASKING,
        sizes=_MASKER_SIZES,
    ),
    "ss": Entry(
        "source separation",
        "si_sdri",
        Separation,
        published=HeadSettings(
            learning_rate=1e-3, steps=150_000, batch=8, every=2_000, optimiser="AdamW"
        ),
        small=_SMALL_MASKING,
        sizes=_MASKER_SIZES,
    ),
}
ABOUT = {name: "query by example" if name == QBE else TASKS[name].about for name in ORDER}
