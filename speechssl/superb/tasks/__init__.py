"""TASKS has the tasks by their short names, with their heads and how these are trained: the
settings of tasks.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from typing import Any

import yaml

from speechssl.superb.data import HeadSettings, Task
from speechssl.superb.tasks.classification import Classification
from speechssl.superb.tasks.diarisation import Diarisation
from speechssl.superb.tasks.enhancement import Enhancement, Separation
from speechssl.superb.tasks.transcription import Phones, SlotFilling, Speech
from speechssl.superb.tasks.verification import Verification

QBE = "qbe"  # has no head: `spoken_terms`


@dataclass(frozen=True)
class Entry:
    """An entry is a task with a head. folders: other names of its data (`speechssl prepare`)."""

    about: str
    metric: str  # the first measure
    make: Callable[..., Task]  # (data, grid, **sizes)
    published: HeadSettings
    small: HeadSettings
    sizes: Mapping[str, Any] = field(default_factory=dict)  # of the small head
    folders: tuple[str, ...] = ()


MAKERS: dict[str, Callable[..., Task]] = {
    "pr": Phones,
    "asr": Speech,
    "asv": Verification,
    "sd": Diarisation,
    "sf": SlotFilling,
    "se": Enhancement,
    "ss": Separation,
}
MAKERS |= {name: partial(Classification, name) for name in ("ks", "sid", "ic", "er")}


def _read_entries() -> dict[str, Entry]:
    text = resources.files(__name__).joinpath("tasks.yaml").read_text("utf-8")
    entries = {}
    for name, values in yaml.safe_load(text)["tasks"].items():
        for settings in ("published", "small"):
            values[settings] = HeadSettings(**values[settings])
        entries[name] = Entry(make=MAKERS[name], **values)
    return entries


TASKS = _read_entries()
ORDER = ("pr", "asr", "ks", QBE, "sid", "asv", "sd", "ic", "sf", "er", "se", "ss")
ABOUT = {name: "query by example" if name == QBE else TASKS[name].about for name in ORDER}
