"""Where noise comes from: a generator, voices, or recordings; each draw is decided by the seed and a key alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy import fft, signal

from speechssl.audio import SAMPLE_RATE, read_audio, to_int16
from speechssl.augment.sounds import DEV, HELD_OUT, SEEN, WEIGHTS, Family, on_and_off, unit
from speechssl.data.files import COMMON, MANIFESTS, audio_files, read_manifest
from speechssl.errors import InputError
from speechssl.signal import active_level, fit_at, generator, random_offset, room_impulse

TALKERS_RANGE = (3, 7)  # of babble; Snyder et al., "X-vectors" (ICASSP 2018), data augmentation
TALKERS = 5  # the middle of them
SHARES = {"m": 0.3, "g": 0.4, "r": 0.3}  # of MUSAN, Gaussian noise and rooms, as arXiv 2210.07978 draws them in training
COLOURED_FROM = 20.0  # Hz; below, 1/f would put more inaudible power into a long recording than into a short one
GENERATED: dict[str, Mapping[str, Family]] = {
    "stand-in": SEEN,
    "dev": DEV,  # to choose settings on
    "held-out": HELD_OUT,
}
ALIASES = {"g": "gaussian", "m": "stand-in"}  # m: where no folder of MUSAN is named


LEVEL = 0.05  # RMS of a generated clip, full scale 1: far above the steps of 16 bits, far below clipping
CREST = 12.0  # what is louder than this times the RMS is rounded off, as microphones do; else one click would be all of a clip
VERSION = 3  # of the generated sounds: raised when they change, so that what was made before is made anew
CLIPS, SECONDS = 300, 10.0  # 50 minutes in all, about the variety of the 900 clips of MUSAN's noise


def clip(families: Mapping[str, Family], rng: np.random.Generator, n: int) -> np.ndarray:
    """Generated noise (n,) int16: up to three of the families at up to 15 dB from each other, in and out, at times in a room."""
    weights = np.array([WEIGHTS.get(name, 1.0) for name in families])
    total = np.zeros(n)
    for place in range(rng.choice([1, 2, 3], p=[0.4, 0.4, 0.2])):
        family = list(families.values())[rng.choice(len(families), p=weights / weights.sum())]
        sound = unit(family(n, rng)) * 10 ** (-rng.uniform(0, 15) * (place > 0) / 20)
        if place or rng.random() < 0.2:  # what is alone mostly lasts
            sound = sound * on_and_off(n, rng, rng.uniform(0.5, 5), rng.uniform(0.2, 3))
        total += sound
    if rng.random() < 0.5:
        room = room_impulse(rng, rng.uniform(0.15, 0.9), rng.uniform(0.3, 1.7))
        total = signal.oaconvolve(total, room)[:n]
    return to_int16(np.clip(LEVEL * unit(CREST * np.tanh(unit(total) / CREST)), -1, 1))


def stand_in(seed: int, count: int = CLIPS, seconds: float = SECONDS) -> Iterator[np.ndarray]:
    """The generated stand-in for MUSAN: clips (n,) int16 of all families that training has, decided by seed and number."""
    for number in range(count):
        yield clip(SEEN, generator(seed, "stand-in", str(number)), round(seconds * SAMPLE_RATE))


def coloured(n: int, rng: np.random.Generator, weight: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Gaussian noise (n,) of power about 1 whose amplitude density is the weight of a frequency in Hz, from 20 Hz on."""
    size = fft.next_fast_len(max(n, 2), real=True)
    frequency = fft.rfftfreq(size, 1 / SAMPLE_RATE)
    weights = np.where(frequency >= COLOURED_FROM, weight(np.maximum(frequency, COLOURED_FROM)), 0)
    noise = fft.irfft(fft.rfft(rng.standard_normal(size)) * weights, size)
    return np.asarray(noise[:n] / np.sqrt(np.mean(noise**2)))


def noise_files(path: Path) -> list[Path]:
    """The recordings that a path stands for: itself, all below a folder in the order of their names, or those of a manifest.

    Manifests are those of `list_recordings`. Empty where there is no such file or folder. Raises InputError for a manifest that
    cannot be read or holds nothing.
    """
    if path.is_dir():
        return audio_files(path)
    if not path.is_file():
        return []
    if path.suffix.lower() not in MANIFESTS:
        return [path]
    if not (found := [recording.path for recording in read_manifest(path)]):
        raise InputError(f"the list of noises {path} is empty; write a recording in every line")
    return found


@dataclass(frozen=True)
class Piece:
    """Where in a recording noise begins; see `signal.fit_at`."""

    file: Path
    offset: int


@dataclass(frozen=True)
class Draw:
    """Noise (n,), or an impulse response, and what it is of: several pieces are voices at one level, none is generated noise."""

    noise: np.ndarray
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class NoiseBank:
    """Where noise comes from.

    kind: gaussian, pink, coloured:SLOPE, stand-in, dev or held-out (generated); babble (of the files), recording (one of them),
    musan.
    """

    kind: str
    files: tuple[Path, ...] = ()
    seed: int = 0
    voices: tuple[Path, ...] = ()  # of musan: its speech, from which babble is made

    @classmethod
    def of(cls, kind: str, voices: Sequence[Path] = (), seed: int = 0, folders: Mapping[str, Path] | None = None) -> NoiseBank:
        """The bank for a `Condition.kind`. folders: recordings by name, such as musan or fsd50k.

        Raises InputError where there is no such noise, or babble without voices.
        """
        name, equals, place = kind.partition("=")
        if equals and place and re.fullmatch(r"[\w-]+", name):  # fsd50k=path
            folders = {**(folders or {}), name: Path(place)}
        else:
            name, folders = kind, folders or {}
        if name == "babble":
            if not voices:
                raise InputError("babble noise needs voices; give recordings of other people with --babble")
            return cls(name, tuple(voices), seed)
        if name == "musan" or (name == "m" and "musan" in folders):
            folder = folders.get("musan", Path(kind))
            parts = {part: noise_files(folder / part) for part in ("noise", "music", "speech")}
            if missing := [part for part, files in parts.items() if not files]:
                raise InputError(
                    f"{folder} is not MUSAN: it has no recordings in {', '.join(missing)}; give the folder that has them"
                )
            return cls("musan", (*parts["noise"], *parts["music"]), seed, tuple(parts["speech"]))
        if (made := ALIASES.get(name, name)) in ("gaussian", "pink", *GENERATED) or made.startswith("coloured:"):
            return cls(made, (), seed)
        path = folders.get(name, Path(kind))
        if files := noise_files(path):
            return cls("recording", tuple(files), seed)
        if path.is_dir():
            raise InputError(f"there are no recordings of noise in {path}; give a folder with {', '.join(COMMON)} files")
        if name in folders:
            raise InputError(f"the recordings {path} of the noise {kind} do not exist; check the path")
        known = f"gaussian, pink, coloured:SLOPE, babble, {', '.join(GENERATED)}, m+g+r, an audio file, a folder, a list"
        raise InputError(f"there is no noise {kind}; give {known} or NAME=FOLDER")

    def sample(self, key: str, n: int) -> np.ndarray:
        """(n,) noise at 16 kHz, not silent, decided by the seed and the key alone. Raises InputError for a bad file."""
        return self.draw(key, n).noise

    def draw(self, key: str, n: int) -> Draw:
        """As `sample`, with what it was made of."""
        rng = generator(self.seed, f"evaluation {self.kind}" if self.kind in GENERATED else self.kind, key)  # no clip of training
        for _ in range(16):
            draw = self._draw(rng, n)
            if np.any(draw.noise):
                return draw
        raise InputError(f"{self.files[0]} and similar recordings are mostly silent; give other noise recordings")

    def _draw(self, rng: np.random.Generator, n: int) -> Draw:
        if self.kind.startswith("coloured:"):  # 6 dB an octave is a factor of 2 in amplitude an octave
            exponent = float(self.kind.removeprefix("coloured:")) / (20 * np.log10(2))
            return Draw(coloured(n, rng, lambda frequency: (frequency / 1000) ** exponent))
        if self.kind in GENERATED:  # of a second at least, in which every sound has room
            return Draw(clip(GENERATED[self.kind], rng, max(n, SAMPLE_RATE))[:n] / 32768)
        if self.kind == "gaussian":
            return Draw(rng.standard_normal(n))
        if self.kind == "pink":
            return Draw(coloured(n, rng, lambda frequency: 1 / np.sqrt(frequency)))
        files, talkers = self.files, TALKERS if self.kind == "babble" else 0
        if self.kind == "musan" and rng.random() >= 2 / 3:  # noise, music and babble as often each
            files, talkers = self.voices, int(rng.integers(TALKERS_RANGE[0], TALKERS_RANGE[1] + 1))
        if talkers:  # none speaks twice before each spoke once
            chosen = rng.choice(len(files), min(talkers, len(files)), replace=False)
            order = np.concatenate([rng.permutation(len(chosen)) for _ in range(-(-talkers // len(chosen)))])[:talkers]
            numbers = [int(chosen[i]) for i in order]
        else:
            numbers = [int(rng.integers(len(files)))]
        pieces = tuple([Piece(files[i], random_offset(len(recording(files[i])), n, rng)) for i in numbers])
        return Draw(replay(pieces, n), pieces)

    @property
    def sources(self) -> list[tuple[str, int]]:
        """Name and size in bytes of the recordings, or name and version of what generates the noise, where it has one."""
        if self.kind in GENERATED:
            return [(f"generated: {self.kind}", VERSION)]
        return [(path.name, path.stat().st_size) for path in (*self.files, *self.voices)]


def replay(pieces: Sequence[Piece], n: int) -> np.ndarray:
    """The noise (n,) of a draw from its pieces (at least one). Several are voices, brought to the same active level and added."""
    crops = [fit_at(recording(piece.file), n, piece.offset) for piece in pieces]
    if len(crops) == 1:
        return crops[0]
    total = np.zeros(n)
    for crop in crops:
        if np.isfinite(level := active_level(crop)):  # a crop that fell into a pause adds nothing
            total += crop * 10 ** (-level / 20)
    return total


@lru_cache(maxsize=32)
def recording(path: Path) -> np.ndarray:
    """A noise or voice file (M,) at 16 kHz, read-only, kept for the next utterance. Errors as of `read_audio`."""
    samples = read_audio(path)
    samples.flags.writeable = False
    return samples
