"""Applies conditions to recordings for evaluation; what is random is decided by (seed, kind of noise, utterance id) alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.audio import duration
from speechssl.errors import InputError
from speechssl.noise.bank import Draw, NoiseBank, Piece, recording
from speechssl.noise.codecs import through_codec
from speechssl.noise.conditions import LETTERS, RT60, Condition
from speechssl.noise.effects import band_reject, pitch_shift, reverberate
from speechssl.noise.files import noise_files
from speechssl.noise.level import ACTIVE, generator
from speechssl.noise.mixing import mix
from speechssl.noise.room import room_impulse

SHARES = {"m": 0.3, "g": 0.4, "r": 0.3}  # of the utterances of a set; as arXiv 2210.07978 draws them in training
RT60S, DISTANCES = (0.2, 1.0), (0.3, 1.7)  # seconds and metres of the rooms of "r"


@dataclass(frozen=True)
class Distorter:
    """Applies conditions. seed: of all that is random; voices: speech recordings for babble, of other people; snr_over: what of the
    speech an SNR is measured over, see `speech_level`."""

    seed: int = 0
    voices: tuple[Path, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)  # of recordings by name: musan, fsd50k, ...
    snr_over: str = ACTIVE
    _banks: dict[str, NoiseBank] = field(default_factory=dict, repr=False, compare=False)

    def card(self, condition: Condition) -> dict[str, Any]:
        """For the card of what is made in this condition: the seed, and what its SNR is over where that is not active speech."""
        return {"seed": self.seed} | ({"snr_over": self.snr_over} if condition.noisy and self.snr_over != ACTIVE else {})

    def check(self, condition: Condition) -> None:
        """Raises InputError where `apply` would for want of voices or a noise file that can be read; call it before a long run."""
        for step in self._possible(condition):
            for path in self._files(step):
                duration(path)

    def sources(self, condition: Condition) -> list[tuple[str, int]]:
        """Name and size in bytes of the recordings that a condition draws on, and the versions of what is generated; a line more
        where its SNR is not over active speech."""
        return [source for step in self._possible(condition) for source in self._sources(step)]

    def apply(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        """samples: (N,) at 16 kHz. Returns float32 (N,); "clean" gives the samples themselves.

        Raises ValueError for silent speech, InputError for noise that cannot be had.
        """
        for step in self.steps(condition, utterance_id):
            samples = perform(samples, step, partial(self._noise, step, utterance_id), self.snr_over)
        return samples

    def steps(self, condition: Condition, utterance_id: str) -> list[Condition]:
        """The steps in order, and of a set the member that this utterance gets."""
        return [self._member(step, utterance_id) for step in condition.steps or (condition,)]

    def draw(self, step: Condition, utterance_id: str, n: int) -> Draw:
        """The noise (n,) of a step, or its impulse response, and what it is of; empty for a step that needs neither."""
        draws: dict[str, Callable[[], Draw]] = {
            "noise": lambda: self._bank(step.kind).draw(utterance_id, n),
            "reverb": lambda: Draw(room_impulse(generator(self.seed, "reverb", utterance_id), step.rt60 or RT60)),
            "rooms": lambda: Draw(_any_room(generator(self.seed, "rooms", utterance_id))),
            "rir": lambda: _measured(self._impulses(step), generator(self.seed, "rir", utterance_id)),
        }
        return draws.get(step.name, lambda: Draw(np.zeros(0)))()

    def _noise(self, step: Condition, utterance_id: str, n: int) -> np.ndarray:
        return self.draw(step, utterance_id, n).noise

    def _member(self, step: Condition, utterance_id: str) -> Condition:
        if not (letters := _letters(step)):
            return step
        shares = np.array([SHARES[letter] for letter in letters])
        return _of_letter(
            letters[generator(self.seed, step.kind, utterance_id).choice(len(letters), p=shares / shares.sum())], step
        )

    def _possible(self, condition: Condition) -> list[Condition]:
        steps = condition.steps or (condition,)
        return [one for step in steps for one in ([_of_letter(x, step) for x in _letters(step)] or [step])]

    def _files(self, step: Condition) -> tuple[Path, ...]:
        if step.name == "rir":
            return self._impulses(step)
        bank = self._bank(step.kind) if step.name == "noise" else NoiseBank("")
        return (*bank.files, *bank.voices)

    def _sources(self, step: Condition) -> list[tuple[str, int]]:
        if step.name == "noise":
            return self._bank(step.kind).sources + ([] if self.snr_over == ACTIVE else [(f"SNR over: {self.snr_over}", 0)])
        return [(path.name, path.stat().st_size) for path in self._files(step)]

    def _impulses(self, step: Condition) -> tuple[Path, ...]:
        files = noise_files(self.folders.get(step.kind, Path(step.kind)))
        if not files:
            raise InputError(f"there are no impulse responses in {step.kind}; give an audio file, a folder of them or a list")
        return tuple(files)

    def _bank(self, kind: str) -> NoiseBank:
        if kind not in self._banks:
            self._banks[kind] = NoiseBank.of(kind, self.voices, self.seed, self.folders)
        return self._banks[kind]


def perform(samples: np.ndarray, step: Condition, source: Callable[[int], np.ndarray], snr_over: str = ACTIVE) -> np.ndarray:
    """One step of a condition. samples: (N,); source: gives noise (n,), or the impulse response. Returns float32 (N,).

    Raises ValueError for silent speech and for a step of no known name.
    """
    apply: dict[str, Callable[[], np.ndarray]] = {
        "clean": lambda: samples,
        "noise": lambda: mix(samples, source(len(samples)), math.nan if step.snr_db is None else step.snr_db, over=snr_over),
        "reverb": lambda: reverberate(samples, source(len(samples))),
        "rooms": lambda: reverberate(samples, source(len(samples))),
        "rir": lambda: reverberate(samples, source(len(samples))),
        "pitch": lambda: pitch_shift(samples, step.semitones or 0.0),
        "band": lambda: band_reject(samples, *(step.band or (0, 0))),
        "codec": lambda: through_codec(samples, step.kind, step.kbps or 0.0),
    }
    if step.name not in apply:
        raise ValueError(f"no condition is named {step.name!r}; the names are {', '.join(apply)}")
    return apply[step.name]()


def distort(samples: np.ndarray, condition: Condition, utterance_id: str, seed: int = 0) -> np.ndarray:
    """`Distorter.apply` for a single recording. samples: (N,). Returns float32 (N,)."""
    return Distorter(seed).apply(samples, condition, utterance_id)


def _letters(step: Condition) -> list[str]:
    """Of "m+g+r": its letters; of any other noise none."""
    letters = step.kind.split("+") if step.name == "noise" else []
    return letters if len(letters) > 1 and set(letters) <= set(LETTERS) else []


def _of_letter(letter: str, step: Condition) -> Condition:
    return Condition("rooms") if letter == "r" else Condition("noise", letter, snr_db=step.snr_db)


def _any_room(rng: np.random.Generator) -> np.ndarray:
    return room_impulse(rng, rng.uniform(*RT60S), rng.uniform(*DISTANCES))


def _measured(files: tuple[Path, ...], rng: np.random.Generator) -> Draw:
    file = files[int(rng.integers(len(files)))]
    return Draw(recording(file), (Piece(file, 0),))
