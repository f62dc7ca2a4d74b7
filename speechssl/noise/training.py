"""Distortions on the fly for training: what each crop hears is decided by (seed, key) alone, on any number of workers.

Written "m+g+r", with shares "m:0.3+g:0.4+r:0.3": m, noise of MUSAN or its generated stand-in; g, Gaussian; r, reverberation;
p, pitch shift; b, a missing band; c, a codec; s, babble of given voices; or the name of a folder of recordings among the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.audio import SILENT_PEAK
from speechssl.errors import InputError
from speechssl.noise.kinds import Band, Change, Clips, Codec, Noise, Pitch, White, musan, recordings, rooms, voices
from speechssl.noise.level import ACTIVE, generator, guard, rms_level, speech_level

SHARES = {"m": 0.3, "g": 0.4, "r": 0.3}  # of arXiv 2210.07978, the follow-up of 2203.16104; what is not named there: 0.3
SNR = (10.0, 19.0)  # dB, uniform; there too, over the whole signal
PROBABILITY = 0.75  # of distorting a crop at all: the rest is the replay of clean speech; there the shares sum to 1, none is clean

Range = tuple[float, float]


@dataclass(frozen=True)
class Kind:
    """One letter: a noise or a change, and its share among the distorted crops."""

    name: str
    share: float
    does: Noise | Change


@dataclass(frozen=True)
class TrainingDistortions:
    """Draws a distortion for each crop. Ranges at the beginning and at the end of training, linear in between."""

    kinds: tuple[Kind, ...]
    seed: int = 0
    probability: Range = (PROBABILITY, PROBABILITY)  # of distorting at all: at the beginning, at the end
    snr: Range = SNR  # dB at the beginning, drawn uniformly
    snr_end: Range = SNR  # dB at the end
    double: float = 0.0  # share of the crops with noise that get a change (r, p or b) before it
    changes: tuple[Change, ...] = ()  # for them
    snr_over: str = ACTIVE  # what of the crop an SNR is measured over, see `speech_level`

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domain labels. Index 0 is clean speech; a double one counts as its noise."""
        return ("clean", *(kind.name for kind in self.kinds))

    @property
    def card(self) -> dict[str, Any]:
        """All that decides what training hears, for the card of a checkpoint."""
        kinds = [{"name": k.name, "share": round(k.share, 4), **k.does.card} for k in self.kinds]
        ranges = {"probability": list(self.probability), "snr": list(self.snr), "snr_end": list(self.snr_end)}
        over = {} if self.snr_over == ACTIVE else {"snr_over": self.snr_over}
        return {"kinds": kinds, "seed": self.seed, **ranges, "double": self.double} | over

    def apply(self, samples: np.ndarray, key: tuple[int, ...] | str, progress: float = 0.0) -> tuple[np.ndarray, int]:
        """A crop as training hears it. samples: (N,) float32 at 16 kHz; progress: of training, 0 to 1.

        Returns float32 (N,) and the domain. Silence (and what is not finite) stays as it is, in domain 0; nothing raises.
        """
        rng = generator(self.seed, "training", *((key,) if isinstance(key, str) else map(str, key)))
        if rng.random() >= _between(*self.probability, progress) or not _audible(samples):
            return samples, 0
        domain = 1 + int(np.searchsorted(np.cumsum([kind.share for kind in self.kinds])[:-1], rng.random(), "right"))
        does = self.kinds[domain - 1].does
        if hasattr(does, "change"):
            return does.change(samples, rng), domain
        return self._noisy(samples, does, rng, progress), domain

    def _noisy(self, samples: np.ndarray, noise: Noise, rng: np.random.Generator, progress: float) -> np.ndarray:
        place, double = rng.random(), rng.random() < self.double
        low, high = (_between(*ends, progress) for ends in zip(self.snr, self.snr_end, strict=True))
        if double:
            samples = self.changes[int(rng.integers(len(self.changes)))].change(samples, rng)
        return _add(samples, noise.noise(len(samples), rng), low + place * (high - low), self.snr_over)


def parse_distortions(
    text: str,
    sources: Mapping[str, Path] | None = None,
    *,
    seed: int = 0,
    probability: Range = (PROBABILITY, PROBABILITY),
    snr: Range = SNR,
    snr_end: Range | None = None,
    double: float = 0.0,
    cache: Path | None = None,
    snr_over: str = ACTIVE,
) -> TrainingDistortions:
    """Read "m+g+r" or "m:0.3+g:0.4+kitchens:0.3", and have all noise at hand.

    sources: folders of recordings by name: musan, voices, rir (measured impulse responses), or a name used in the text. cache: a
    folder that keeps decoded and generated noise for the next process and run. Raises InputError for what is no such distortion.
    """
    sources = sources or {}
    shares = _shares(text)
    if not (0 <= min(probability) and max(probability) <= 1 and 0 <= double <= 1):
        raise InputError(f"the probabilities {probability} and {double} of distortions must lie in [0, 1]; change them")
    for low, high in (snr, snr_end or snr):
        if not -100 <= low <= high <= 100:
            raise InputError(f"the SNR range {low} to {high} dB is not one; give the lower number first, in [-100, 100]")
    kinds = tuple(Kind(name, share, _kind(name, text, sources, seed, cache)) for name, share in shares.items())
    changes = (rooms(sources, seed), Pitch(), Band()) if double else ()
    return TrainingDistortions(kinds, seed, probability, snr, snr_end or snr, double, changes, snr_over)


def _shares(text: str) -> dict[str, float]:
    """Name -> share, which add up to 1."""
    shares: dict[str, float] = {}
    for part in text.split("+"):
        name, colon, share = part.strip().partition(":")
        if not name or name in shares or name == "clean":
            raise InputError(f"{text!r} is not a list of distortions; write one like m+g+r or m:0.3+g:0.4+r:0.3")
        try:
            shares[name] = float(share) if colon else SHARES.get(name, 0.3)
        except ValueError:
            raise InputError(f"the share {share!r} in {text!r} is not a number; write one like m:0.3+g:0.4+r:0.3") from None
        if not 0 < shares[name] < np.inf:
            raise InputError(f"the share {share} in {text!r} is not above 0; change it or leave {name} out")
    return {name: share / sum(shares.values()) for name, share in shares.items()}


def _kind(name: str, text: str, sources: Mapping[str, Path], seed: int, cache: Path | None) -> Noise | Change:
    kinds: dict[str, Callable[[], Noise | Change]] = {
        "m": lambda: musan(sources, seed, cache),
        "g": White,
        "r": lambda: rooms(sources, seed),
        "p": Pitch,
        "b": Band,
        "c": Codec,
        "s": lambda: voices(sources, seed, cache),
    }
    if name in sources:
        return Clips(recordings(sources[name], name, seed, cache))
    if name not in kinds:
        raise InputError(f"{text!r} names the distortion {name!r}, which is neither a source nor one of {', '.join(kinds)}")
    return kinds[name]()


def _between(start: float, end: float, progress: float) -> float:
    return start + (end - start) * min(max(progress, 0.0), 1.0)


def _audible(samples: np.ndarray) -> bool:
    return SILENT_PEAK <= float(np.abs(samples).max(initial=0)) < np.inf


def _add(samples: np.ndarray, noise: np.ndarray, snr_db: float, over: str) -> np.ndarray:
    """As `mixing.mix`, in single precision. Where the noise is silent the samples stay as they are."""
    noise_level = rms_level(noise)
    if not np.isfinite(noise_level):
        return samples
    gain = 10 ** ((speech_level(samples, over) - noise_level - snr_db) / 20)
    return guard(samples + np.float32(gain) * noise)
