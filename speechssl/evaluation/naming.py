"""Systems and their folders of predictions: a cascade is called by the last part of its recogniser's name, as others may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from speechssl.artefacts import read_json
from speechssl.errors import InputError


class Named(Protocol):
    """What has answered, as far as its scores are concerned."""

    @property
    def name(self) -> str: ...
    @property
    def card(self) -> Mapping[str, Any]: ...


def recogniser_name(system: Named) -> str | None:
    """The hub id or folder of the recogniser that a cascade is called by; None for any other system.

    One that was trained again lies where it did, so that this tells recognisers apart and not their weights.
    """
    full = system.card.get("asr")
    return full if isinstance(full, str) and system.name == f"cascade-{Path(full).name}" else None


def check_names(systems: Sequence[Named], out: Path) -> None:
    """Raises InputError where different systems would share a folder of predictions in `out`, now or with an earlier evaluation.

    Predictions that do not say whose they are (of earlier versions) are nobody's.
    """
    first: dict[str, Named] = {}
    for system in systems:
        other = first.setdefault(system.name, system)
        if dict(other.card) != dict(system.card):
            raise InputError(
                f"{recogniser_name(other) or other.name} and {recogniser_name(system) or system.name} would both be called "
                f"{system.name}; evaluate them one by one into two folders"
            )
    for system in first.values():
        if system.name.startswith("cascade-"):
            mine = recogniser_name(system)
            for path in sorted((out / "predictions" / system.name).glob("*.json")):
                theirs = read_json(path).get("recogniser", mine)
                if not _same(theirs, mine):
                    asked = mine or "that of the models"
                    raise InputError(
                        f"{path} was made with {_told(theirs)}, and {asked} would be called {system.name} as well; "
                        "evaluate it into another folder"
                    )


def _told(name: str | None) -> str:
    return f"the recogniser {name}" if name else "that of the models"


def _same(one: str | None, other: str | None) -> bool:
    """Whether two names are of one recogniser: a folder has several paths."""
    if one is None or other is None:
        return one is other
    return one == other or (Path(one).exists() and Path(other).exists() and Path(one).samefile(other))
