"""A recording as it is drawn and as it is made. Most are of one voice that speaks once: `Draw`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from scipy import signal

from speechssl.audio import SAMPLE_RATE, duration, resample, write_flac
from speechssl.corpora.espeak import Spoken, Voice, speak
from speechssl.corpora.minisuperb.phones import phones_of
from speechssl.corpora.utterances import Slot, Utterance

SILENT = -45.0  # dB from the peak; what the synthesiser leaves before and after the speech is below


class Planned(Protocol):
    """A recording that is to be made: a frozen dataclass of all that decides its samples, `id` and `seed` among them."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def id(self) -> str: ...

    def make(self, folder: Path) -> Utterance:
        """Write its audio below the folder of its task, and return its line of the manifest."""


P = TypeVar("P", bound=Planned)


@dataclass(frozen=True)
class Draw:
    """One voice that speaks once."""

    id: str
    text: str  # "": nothing but faint background noise
    voice: Voice
    labels: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # the recording is at least so long, what is said anywhere in it
    tilt: float = 0.0  # of the spectrum: more is brighter
    gain: float = 0.0  # dB
    seed: int = 0  # of where it lies in the recording, and of the noise
    slots: tuple[Slot, ...] = ()
    matches: tuple[str, ...] = ()
    phones: bool = False  # are asked for
    folder: str = "audio"  # where its audio goes, from the folder of its task

    def make(self, folder: Path) -> Utterance:
        """A recording that another task of the same recordings made is there already."""
        path, phones = folder / self.folder / f"{self.id}.flac", ""
        if self.phones or not path.is_file():
            spoken = _speak(self)
            phones = phones_of(spoken) if self.phones else ""
            write_flac(path, _shape(self, spoken))
        name, labels = self.voice.name, self.labels
        return Utterance(
            self.id, f"{self.folder}/{path.name}", duration(path), name, labels, self.text, phones, self.slots, matches=self.matches
        )


def numbered(found: Iterator[P], key: str, name: str, count: int) -> list[P]:
    """The first of them, with ids and with seeds of their own. key: what they were drawn from."""
    return [
        replace(d, id=f"{name}-{number:05d}", seed=Random(f"{key}/{number}").getrandbits(32))
        for number, d in enumerate(islice(found, count))
    ]


def render(drawn: Draw) -> np.ndarray:
    """(N,) float32 at 16 kHz."""
    return _shape(drawn, _speak(drawn))


def _speak(drawn: Draw) -> Spoken | None:
    return speak(drawn.text, drawn.voice) if drawn.text else None


def _shape(drawn: Draw, spoken: Spoken | None) -> np.ndarray:
    """spoken: None where there is no text."""
    rng = np.random.default_rng(drawn.seed)
    if spoken is not None:
        samples = resample(spoken.samples.astype(np.float32) / 32768, spoken.sample_rate, SAMPLE_RATE)
    else:
        samples = rng.standard_normal(round(drawn.seconds * SAMPLE_RATE)).astype(np.float32)
    coloured = _tilted(samples, drawn.tilt)
    missing = max(round(drawn.seconds * SAMPLE_RATE) - len(coloured), 0)
    before = int(rng.integers(missing + 1))
    padded = np.pad(coloured, (before, missing - before))
    return np.asarray(padded / np.abs(padded).max() * 10 ** (drawn.gain / 20), np.float32)


def _tilted(samples: np.ndarray, tilt: float) -> np.ndarray:
    """Brighter (above 0) or darker (below 0) by a filter of one zero."""
    return np.asarray(signal.lfilter([1.0, -max(min(tilt, 0.9), -0.9)], [1.0], samples))


def trimmed(samples: np.ndarray) -> np.ndarray:
    """From the first sample that is loud enough for speech to the last. samples: (N,)."""
    loud = np.flatnonzero(np.abs(samples) > np.abs(samples).max() * 10 ** (SILENT / 20))
    return samples[int(loud[0]) : int(loud[-1]) + 1]
