"""Where noise comes from: a generator, voices, or recordings; each draw is decided by the seed and a key alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.errors import InputError
from speechssl.noise.files import AUDIO_SUFFIXES, noise_files
from speechssl.noise.level import generator
from speechssl.noise.mixing import fit_at, random_offset
from speechssl.noise.signals import TALKERS, at_one_level, coloured, gaussian, pink, talker_order
from speechssl.noise.sounds import dev, held_out, seen
from speechssl.noise.sounds.scenes import VERSION, clip
from speechssl.noise.sounds.seen import Family

GENERATED: dict[str, Mapping[str, Family]] = {
    "stand-in": seen.FAMILIES,
    "dev": dev.FAMILIES,  # to choose settings on
    "held-out": held_out.FAMILIES,
}
ALIASES = {"g": "gaussian", "m": "stand-in"}  # m: where no folder of MUSAN is named
MUSAN_BABBLE = (3, 7)  # talkers; Snyder et al., "X-vectors" (ICASSP 2018)


@dataclass(frozen=True)
class Piece:
    """Where in a recording noise begins; see `mixing.fit_at`."""

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
        folders = {**(folders or {}), **_named(kind)}
        name = next(iter(_named(kind)), kind)
        if name == "babble" and not voices:
            raise InputError("babble needs voices; name recordings of other people with --voices")
        if name == "babble":
            return cls(name, tuple(voices), seed)
        if name == "musan" or (name == "m" and "musan" in folders):
            return cls._musan(folders.get("musan", Path(kind)), seed)
        if (made := ALIASES.get(name, name)) in ("gaussian", "pink", *GENERATED) or made.startswith("coloured:"):
            return cls(made, (), seed)
        path = folders.get(name, Path(kind))
        files = noise_files(path)
        if not files:
            raise InputError(_missing(kind, path, name in folders))
        return cls("recording", tuple(files), seed)

    @classmethod
    def _musan(cls, folder: Path, seed: int) -> NoiseBank:
        parts = {name: noise_files(folder / name) for name in ("noise", "music", "speech")}
        if missing := [name for name, files in parts.items() if not files]:
            raise InputError(f"{folder} is not MUSAN: it has no recordings in {', '.join(missing)}; give the folder that has them")
        return cls("musan", (*parts["noise"], *parts["music"]), seed, tuple(parts["speech"]))

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
        draws: dict[str, Callable[[], Draw]] = {
            "gaussian": lambda: Draw(gaussian(n, rng)),
            "pink": lambda: Draw(pink(n, rng)),
            "babble": lambda: _babble(self.files, n, rng, TALKERS),
            "musan": lambda: self._of_musan(n, rng),
            "recording": lambda: _single(self.files, n, rng),
        }
        return draws[self.kind]()

    def _of_musan(self, n: int, rng: np.random.Generator) -> Draw:
        """Noise or music twice as often as babble: each of the three kinds as often."""
        if rng.random() < 2 / 3:
            return _single(self.files, n, rng)
        return _babble(self.voices, n, rng, int(rng.integers(MUSAN_BABBLE[0], MUSAN_BABBLE[1] + 1)))

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


def _single(files: Sequence[Path], n: int, rng: np.random.Generator) -> Draw:
    pieces = (_piece(files[int(rng.integers(len(files)))], n, rng),)
    return Draw(replay(pieces, n), pieces)


def _babble(files: Sequence[Path], n: int, rng: np.random.Generator, talkers: int) -> Draw:
    chosen = rng.choice(len(files), min(talkers, len(files)), replace=False)
    pieces = tuple([_piece(files[chosen[i]], n, rng) for i in talker_order(len(chosen), talkers, rng)])
    return Draw(at_one_level([fit_at(recording(p.file), n, p.offset) for p in pieces], n), pieces)


def _piece(file: Path, n: int, rng: np.random.Generator) -> Piece:
    return Piece(file, random_offset(len(recording(file)), n, rng))


def _missing(kind: str, path: Path, named: bool) -> str:
    """named: the path is what the user said the noise is."""
    if path.is_dir():
        return f"there are no recordings of noise in {path}; give a folder with {', '.join(AUDIO_SUFFIXES)} files"
    if named:
        return f"the recordings {path} of the noise {kind} do not exist; check the path"
    known = f"gaussian, pink, coloured:SLOPE, babble, {', '.join(GENERATED)}, m+g+r, an audio file, a folder, a list or NAME=FOLDER"
    return f"there is no noise {kind}; give {known}"


def _named(kind: str) -> dict[str, Path]:
    """{"fsd50k": path} of "fsd50k=path", else nothing."""
    name, equals, path = kind.partition("=")
    return {name: Path(path)} if equals and path and re.fullmatch(r"[\w-]+", name) else {}


@lru_cache(maxsize=32)
def recording(path: Path) -> np.ndarray:
    """A noise or voice file (M,) at 16 kHz, read-only, kept for the next utterance. Errors as of `read_audio`."""
    samples = read_audio(path)
    samples.flags.writeable = False
    return samples
