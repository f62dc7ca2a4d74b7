"""Applies conditions to recordings for evaluation; what is random is decided by (seed, kind of noise, utterance id) alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from speechssl.audio import duration
from speechssl.noise.bank import NoiseBank
from speechssl.noise.conditions import RT60, Condition
from speechssl.noise.effects import band_reject, pitch_shift, reverberate
from speechssl.noise.level import generator
from speechssl.noise.mixing import mix
from speechssl.noise.room import room_impulse


@dataclass(frozen=True)
class Distorter:
    """Applies conditions. seed: of all that is random; voices: speech recordings for babble, of other people."""

    seed: int = 0
    voices: tuple[Path, ...] = ()
    _banks: dict[str, NoiseBank] = field(default_factory=dict, repr=False, compare=False)

    def check(self, condition: Condition) -> None:
        """Raises InputError where `apply` would for want of voices or a noise file that can be read; call it before a long run."""
        for path in self._files(condition):
            duration(path)

    def sources(self, condition: Condition) -> list[tuple[str, int]]:
        """Name and size in bytes of the recordings that a condition draws on."""
        return [(path.name, path.stat().st_size) for path in self._files(condition)]

    def _files(self, condition: Condition) -> tuple[Path, ...]:
        return self._bank(condition.kind).files if condition.name == "noise" else ()

    def apply(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        """samples: (N,) at 16 kHz. Returns float32 (N,); "clean" gives the samples themselves.

        Raises ValueError for silent speech, InputError for noise that cannot be had.
        """
        apply: dict[str, Callable[[], np.ndarray]] = {
            "clean": lambda: samples,
            "noise": lambda: self._noisy(samples, condition, utterance_id),
            "reverb": lambda: reverberate(samples, self._room(condition, utterance_id)),
            "pitch": lambda: pitch_shift(samples, condition.semitones or 0.0),
            "band": lambda: band_reject(samples, *(condition.band or (0, 0))),
        }
        if condition.name not in apply:
            raise ValueError(f"no condition is named {condition.name!r}; the names are {', '.join(apply)}")
        return apply[condition.name]()

    def _noisy(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        noise = self._bank(condition.kind).sample(utterance_id, len(samples))
        return mix(samples, noise, math.nan if condition.snr_db is None else condition.snr_db)

    def _room(self, condition: Condition, utterance_id: str) -> np.ndarray:
        return room_impulse(generator(self.seed, "reverb", utterance_id), condition.rt60 or RT60)

    def _bank(self, kind: str) -> NoiseBank:
        if kind not in self._banks:
            self._banks[kind] = NoiseBank.of(kind, self.voices, self.seed)
        return self._banks[kind]


def distort(samples: np.ndarray, condition: Condition, utterance_id: str, seed: int = 0) -> np.ndarray:
    """`Distorter.apply` for a single recording. samples: (N,). Returns float32 (N,)."""
    return Distorter(seed).apply(samples, condition, utterance_id)
