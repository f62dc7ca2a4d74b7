"""Where noise comes from: a generator, voices, or recordings; each draw is decided by the seed and a key alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from speechssl.audio import read_audio
from speechssl.errors import InputError
from speechssl.noise.level import generator
from speechssl.noise.mixing import fit_length
from speechssl.noise.signals import TALKERS, babble, gaussian, pink

AUDIO_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")


@dataclass(frozen=True)
class NoiseBank:
    """Where noise comes from. kind: gaussian, pink, babble (of the files), or recording (one of the files)."""

    kind: str
    files: tuple[Path, ...] = ()
    seed: int = 0

    @classmethod
    def of(cls, kind: str, voices: Sequence[Path] = (), seed: int = 0) -> NoiseBank:
        """The bank for a `Condition.kind`. Raises InputError where there is no such noise, or babble without voices."""
        if kind == "babble" and not voices:
            raise InputError("babble needs voices; name recordings of other people with --voices")
        if kind in ("gaussian", "pink", "babble"):
            return cls(kind, tuple(voices) if kind == "babble" else (), seed)
        path = Path(kind)
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES)
        if not files:
            raise InputError(f"there is no noise {kind}; give gaussian, pink, babble, an audio file or a folder")
        return cls("recording", tuple(files), seed)

    def sample(self, key: str, n: int) -> np.ndarray:
        """(n,) noise at 16 kHz, not silent, decided by the seed and the key alone. Raises InputError for a bad file."""
        rng = generator(self.seed, self.kind, key)
        for _ in range(16):
            noise = self._draw(rng, n)
            if np.any(noise):
                return noise
        raise InputError(f"{self.files[0]} and its like are silent for the most part; give other noise recordings")

    def _draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        if self.kind == "gaussian":
            return gaussian(n, rng)
        if self.kind == "pink":
            return pink(n, rng)
        if self.kind == "babble":
            chosen = rng.choice(len(self.files), min(TALKERS, len(self.files)), replace=False)
            return babble([recording(self.files[i]) for i in chosen], n, rng)
        return fit_length(recording(self.files[rng.integers(len(self.files))]), n, rng)


@lru_cache(maxsize=32)
def recording(path: Path) -> np.ndarray:
    """A noise or voice file (M,) at 16 kHz, read-only, kept for the next utterance. Errors as of `read_audio`."""
    samples = read_audio(path)
    samples.flags.writeable = False
    return samples
