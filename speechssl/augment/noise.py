"""Where noise comes from: a generator, voices, or recordings; each draw is decided by the seed and a key alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import fft

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.errors import InputError
from speechssl.signal import active_level, fit_at, fit_length, generator, random_offset
from speechssl.synth.sounds import dev, held_out, seen
from speechssl.synth.sounds.scenes import VERSION, clip
from speechssl.synth.sounds.seen import Family

TALKERS_RANGE = (3, 7)  # of babble; Snyder et al., "X-vectors" (ICASSP 2018), data augmentation
TALKERS = 5  # the middle of them
SHARES = {"m": 0.3, "g": 0.4, "r": 0.3}  # of MUSAN, Gaussian noise and rooms, as arXiv 2210.07978 draws them in training
PINK_FROM = 20.0  # Hz; below, 1/f would put more inaudible power into a long recording than into a short one
AUDIO_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
MANIFESTS = (".jsonl", ".txt", ".tsv")
GENERATED: dict[str, Mapping[str, Family]] = {
    "stand-in": seen.FAMILIES,
    "dev": dev.FAMILIES,  # to choose settings on
    "held-out": held_out.FAMILIES,
}
ALIASES = {"g": "gaussian", "m": "stand-in"}  # m: where no folder of MUSAN is named


def gaussian(n: int, rng: np.random.Generator) -> np.ndarray:
    """White Gaussian noise of power 1. Returns (n,)."""
    return rng.standard_normal(n)


def pink(n: int, rng: np.random.Generator, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Noise of power about 1 whose power density falls as 1/f from 20 Hz on (-3 dB an octave). Returns (n,)."""
    return _weighted(n, rng, lambda frequency: 1 / np.sqrt(frequency), sample_rate)


def coloured(n: int, rng: np.random.Generator, slope: float, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Noise of power about 1 whose density changes by `slope` dB an octave from 20 Hz on: -6 brown, 0 white. Returns (n,)."""
    exponent = slope / (20 * np.log10(2))
    return _weighted(n, rng, lambda frequency: (frequency / 1000) ** exponent, sample_rate)


def _weighted(n: int, rng: np.random.Generator, weight: Callable[[np.ndarray], np.ndarray], sample_rate: int) -> np.ndarray:
    size = fft.next_fast_len(max(n, 2), real=True)
    frequency = fft.rfftfreq(size, 1 / sample_rate)
    weights = np.where(frequency >= PINK_FROM, weight(np.maximum(frequency, PINK_FROM)), 0)
    noise = fft.irfft(fft.rfft(rng.standard_normal(size)) * weights, size)
    return np.asarray(noise[:n] / np.sqrt(np.mean(noise**2)))


def babble(
    voices: Sequence[np.ndarray],
    n: int,
    rng: np.random.Generator,
    talkers: int = TALKERS,
    sample_rate: int = SAMPLE_RATE,
) -> np.ndarray:
    """Several talkers at once, each at the same active level. voices: recordings (M_i,), at least one. Returns (n,).

    A talker is a random voice; none is taken twice before each was taken once. Raises ValueError without voices.
    """
    if not voices:
        raise ValueError("babble needs recordings of voices")
    return at_one_level([fit_length(voices[i], n, rng, sample_rate) for i in _talkers(len(voices), talkers, rng)], n, sample_rate)


def _talkers(voices: int, talkers: int, rng: np.random.Generator) -> list[int]:
    """Which of so many voices speak, none twice before each did once."""
    order = np.concatenate([rng.permutation(voices) for _ in range(-(-talkers // voices))])
    return [int(index) for index in order[:talkers]]


def at_one_level(crops: Sequence[np.ndarray], n: int, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Sum (n,) of voices (n,) each, brought to the same active level. A crop that fell into a pause adds nothing."""
    total = np.zeros(n)
    for crop in crops:
        if np.isfinite(level := active_level(crop, sample_rate)):
            total += crop * 10 ** (-level / 20)
    return total


def noise_files(path: Path) -> list[Path]:
    """The recordings that a path stands for: itself, all below a folder in the order of their names, or those of a manifest.

    A manifest is .jsonl with `audio` in every line, .txt with a path a line, or .tsv with a path in the first column, under the
    root in its first line where there is one (fairseq's); paths are relative to it. Empty where there is no such file or folder.
    Raises InputError for a manifest that cannot be read or holds nothing.
    """
    if path.is_dir():
        return sorted(p for p in path.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES and not p.name.startswith("."))
    if not path.is_file():
        return []
    if path.suffix.lower() not in MANIFESTS:
        return [path]
    try:
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the list of noises {path} as UTF-8 text; check it") from error
    root = path.parent
    if path.suffix.lower() == ".tsv" and lines and "\t" not in lines[0] and Path(lines[0]).suffix.lower() not in AUDIO_SUFFIXES:
        root /= lines.pop(0).strip()
    if not lines:
        raise InputError(f"the list of noises {path} is empty; write a recording in every line")
    if path.suffix.lower() != ".jsonl":
        return [root / line.split("\t")[0].strip() for line in lines]
    found = []
    for number, line in enumerate(lines, 1):
        try:
            row: Any = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}:{number} is not JSON; write one object a line with the recording as `audio`") from error
        if not isinstance(row, dict) or not isinstance(row.get("audio"), str):
            raise InputError(f"{path}:{number} has no `audio`; write the path of the recording there")
        found.append(root / row["audio"])
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
                raise InputError("babble needs voices; name recordings of other people with --voices")
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
            raise InputError(f"there are no recordings of noise in {path}; give a folder with {', '.join(AUDIO_SUFFIXES)} files")
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
        raise InputError(f"{self.files[0]} and its like are silent for the most part; give other noise recordings")

    def _draw(self, rng: np.random.Generator, n: int) -> Draw:
        if self.kind.startswith("coloured:"):
            return Draw(coloured(n, rng, float(self.kind.removeprefix("coloured:"))))
        if self.kind in GENERATED:  # of a second at least, in which every sound has room
            return Draw(clip(GENERATED[self.kind], rng, max(n, SAMPLE_RATE))[:n] / 32768)
        if self.kind == "gaussian":
            return Draw(gaussian(n, rng))
        if self.kind == "pink":
            return Draw(pink(n, rng))
        if self.kind == "babble":
            return _babble(self.files, n, rng, TALKERS)
        if self.kind == "musan" and rng.random() >= 2 / 3:  # noise, music and babble as often each
            return _babble(self.voices, n, rng, int(rng.integers(TALKERS_RANGE[0], TALKERS_RANGE[1] + 1)))
        pieces = (_piece(self.files[int(rng.integers(len(self.files)))], n, rng),)
        return Draw(replay(pieces, n), pieces)

    @property
    def sources(self) -> list[tuple[str, int]]:
        """Name and size in bytes of the recordings, or name and version of what generates the noise, where it has one."""
        if self.kind in GENERATED:
            return [(f"generated: {self.kind}", VERSION)]
        return [(path.name, path.stat().st_size) for path in (*self.files, *self.voices)]


def replay(pieces: Sequence[Piece], n: int) -> np.ndarray:
    """The noise (n,) of a draw from its pieces (at least one)."""
    crops = [fit_at(recording(piece.file), n, piece.offset) for piece in pieces]
    return crops[0] if len(crops) == 1 else at_one_level(crops, n)


def _babble(files: Sequence[Path], n: int, rng: np.random.Generator, talkers: int) -> Draw:
    chosen = rng.choice(len(files), min(talkers, len(files)), replace=False)
    pieces = tuple([_piece(files[chosen[i]], n, rng) for i in _talkers(len(chosen), talkers, rng)])
    return Draw(at_one_level([fit_at(recording(p.file), n, p.offset) for p in pieces], n), pieces)


def _piece(file: Path, n: int, rng: np.random.Generator) -> Piece:
    return Piece(file, random_offset(len(recording(file)), n, rng))


@lru_cache(maxsize=32)
def recording(path: Path) -> np.ndarray:
    """A noise or voice file (M,) at 16 kHz, read-only, kept for the next utterance. Errors as of `read_audio`."""
    samples = read_audio(path)
    samples.flags.writeable = False
    return samples
