"""The distortions that training draws from, a letter each: m, g, r and their like. Fast: all is at hand before the first crop.

A noise is an object with `noise(n, rng) -> (n,)`; a change is one with `change(samples, rng) -> (N,)`. Both have a card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.errors import InputError
from speechssl.noise.codecs import bit_rates, through_codec
from speechssl.noise.effects import band_reject, pitch_shift, reverberate
from speechssl.noise.files import noise_files
from speechssl.noise.level import generator
from speechssl.noise.library import Library, generated, recorded
from speechssl.noise.room import room_impulse

TALKERS = (3, 7)  # Snyder et al., "X-vectors" (ICASSP 2018): babble is of three to seven
ROOMS, RT60S, DISTANCES = 200, (0.2, 1.0), (0.3, 1.7)  # a pool that fits into a cache; seconds; metres
SEMITONES = 4.0  # up or down, at most
KBPS = (6.0, 48.0)  # kbit/s of the codecs, evenly on a log scale
WIDTHS = (0.5, 1.5)  # octaves that a missing band has
SECOND = 0.5  # share of mixtures of the stand-in that have a second clip, up to 10 dB below: more scenes than there are clips


class Noise(Protocol):
    """Something to add to speech at an SNR."""

    @property
    def card(self) -> Mapping[str, Any]: ...

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n,) noise at 16 kHz, of any level."""
        ...


class Change(Protocol):
    """Something that happens to the speech itself."""

    @property
    def card(self) -> Mapping[str, Any]: ...

    def change(self, samples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """samples: (N,), not silent. Returns float32 (N,), timing kept."""
        ...


@dataclass(frozen=True)
class White:
    """g: Gaussian noise."""

    card: Mapping[str, Any] = field(default_factory=lambda: {"set": "gaussian"})

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal(n, np.float32)


@dataclass(frozen=True)
class Clips:
    """Any library of noise: a crop of a clip, and where second > 0 in that share of cases a fainter second one."""

    library: Library
    second: float = 0.0

    @property
    def card(self) -> Mapping[str, Any]:
        return self.library.card

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        noise = self.library.crop(rng, n)
        if rng.random() < self.second:
            noise = noise + np.float32(10 ** (-rng.uniform(0, 10) / 20)) * self.library.crop(rng, n)
        return noise


@dataclass(frozen=True)
class Babble:
    """Three to seven voices at once, each at the same level."""

    voices: Library

    @property
    def card(self) -> Mapping[str, Any]:
        return self.voices.card

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        total = np.zeros(n, np.float32)
        for _ in range(rng.integers(TALKERS[0], TALKERS[1] + 1)):
            voice = self.voices.crop(rng, n)
            total += voice / max(float(np.sqrt(np.dot(voice, voice) / n)), 1e-6)
        return total


@dataclass(frozen=True)
class OneOf:
    """m: one of several noises, each as often: noise, music and babble of MUSAN."""

    noises: tuple[Noise, ...]
    name: str

    @property
    def card(self) -> Mapping[str, Any]:
        return {"set": self.name, "of": [dict(noise.card) for noise in self.noises]}

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self.noises[int(rng.integers(len(self.noises)))].noise(n, rng)


@dataclass(frozen=True)
class Rooms:
    """r: reverberation in one of a pool of rooms. impulses: (M_i,) float32 each."""

    impulses: Sequence[np.ndarray] = field(repr=False, compare=False)
    card: Mapping[str, Any]

    @classmethod
    def simulated(cls, seed: int, count: int = ROOMS) -> Rooms:
        """Rooms of the image method, decided by the seed."""
        pool = [_room(generator(seed, "training rooms", str(i))) for i in range(count)]
        return cls(pool, {"set": "simulated rooms", "seed": seed, "rooms": count, "rt60": list(RT60S), "metres": list(DISTANCES)})

    def change(self, samples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return reverberate(np.asarray(samples, np.float32), self.impulses[int(rng.integers(len(self.impulses)))])


def _room(rng: np.random.Generator) -> np.ndarray:
    return np.asarray(room_impulse(rng, rng.uniform(*RT60S), rng.uniform(*DISTANCES)), np.float32)


@dataclass(frozen=True)
class Pitch:
    """p: the pitch up or down by as much as four semitones."""

    card: Mapping[str, Any] = field(default_factory=lambda: {"set": "pitch", "semitones": SEMITONES})

    def change(self, samples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return pitch_shift(samples, rng.uniform(-SEMITONES, SEMITONES))


@dataclass(frozen=True)
class Band:
    """b: half an octave to one and a half are missing."""

    card: Mapping[str, Any] = field(default_factory=lambda: {"set": "band", "octaves": list(WIDTHS)})

    def change(self, samples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        low = 150 * 2 ** rng.uniform(0, 4)
        return band_reject(samples, low, min(low * 2 ** rng.uniform(*WIDTHS), SAMPLE_RATE / 2 - 100))


@dataclass(frozen=True)
class Codec:
    """c: MP3 or Opus at a random bit rate that is heard."""

    card: Mapping[str, Any] = field(default_factory=lambda: {"set": "codecs", "kbps": list(KBPS)})

    def change(self, samples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        codec = ("mp3", "opus")[int(rng.integers(2))]
        return through_codec(samples, codec, max(float(np.exp(rng.uniform(*np.log(KBPS)))), bit_rates(codec)[0]))


def rooms(sources: Mapping[str, Path], seed: int) -> Change:
    """r: measured impulse responses where `sources` names them as "rir", else simulated rooms."""
    if "rir" not in sources:
        return Rooms.simulated(seed)
    files = noise_files(sources["rir"])
    if not files:
        raise InputError(f"there are no impulse responses in {sources['rir']}; give a folder of .wav, .flac, .mp3 or .ogg files")
    return Rooms(
        [read_audio(path) for path in files], {"set": "measured rooms", "files": [[p.name, p.stat().st_size] for p in files]}
    )


def musan(sources: Mapping[str, Path], seed: int, cache: Path | None) -> Noise:
    """m: MUSAN where `sources` names its folder, else the generated stand-in, whose card says so; with babble of given voices."""
    if "musan" in sources:
        kinds = {kind: recordings(sources["musan"] / kind, f"musan {kind}", seed, cache) for kind in ("noise", "music", "speech")}
        return OneOf((Clips(kinds["noise"]), Clips(kinds["music"]), Babble(kinds["speech"])), "musan")
    stand_in = Clips(generated(seed, cache), SECOND)
    if "voices" not in sources:
        return stand_in
    return OneOf((stand_in, stand_in, voices(sources, seed, cache)), "stand-in and voices")


def voices(sources: Mapping[str, Path], seed: int, cache: Path | None) -> Noise:
    """s: babble of the recordings under "voices". Raises InputError where none is named."""
    if "voices" not in sources:
        raise InputError("babble needs voices; name a folder of recordings as the source voices=FOLDER")
    return Babble(recordings(sources["voices"], "voices", seed, cache))


def recordings(path: Path, name: str, seed: int, cache: Path | None) -> Library:
    """The recordings of a file or a folder. Raises InputError where there are none."""
    files = noise_files(path)
    if not files:
        raise InputError(f"there are no recordings in {path} (for {name}); give a folder with .wav, .flac, .mp3 or .ogg files")
    return recorded(files, name, seed, cache)
