"""Two voices at once (SS), and a voice in noise (SE): mixtures with what they were mixed of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from random import Random

import numpy as np

from speechssl.audio import SAMPLE_RATE, to_int16, write_flac
from speechssl.corpora.minisqa.voices import speakers
from speechssl.corpora.minisuperb.choices import LANGUAGE, anyone, sentences, varied
from speechssl.corpora.minisuperb.draws import Draw, render, trimmed
from speechssl.corpora.utterances import TOGETHER, Utterance
from speechssl.noise import NoiseBank, active_level
from speechssl.noise.level import rms_level

PEAK = 0.99  # of full scale: no mixture is louder
PAIR_WORDS, NOISY_WORDS = range(10, 15), range(5, 8)  # of a sentence; 3 to 4 seconds, 2 to 3 seconds
RATIOS = (0.0, 5.0)  # dB of the one voice over the other
SEEN, UNSEEN = "stand-in", "held-out"  # generated noises: of train and dev, of test
SNRS: Mapping[str, tuple[float, ...]] = {  # dB; those of VoiceBank-DEMAND (Valentini-Botinhao et al., SSW 2016)
    "train": (15, 10, 5, 0),
    "dev": (15, 10, 5, 0),
    "test": (17.5, 12.5, 7.5, 2.5),
}


@dataclass(frozen=True)
class Overlap:
    """Two voices that begin together and end with the shorter one, as in mode "min" of Libri2Mix."""

    id: str
    first: Draw
    second: Draw
    ratio: float  # dB, active level of the first over that of the second
    seed: int = 0

    def make(self, folder: Path) -> Utterance:
        first, second = trimmed(render(self.first)), trimmed(render(self.second))
        n = min(len(first), len(second))
        parts = first[:n], at_ratio(second[:n], active_level(first[:n]) - self.ratio)
        return _write(folder, self.id, parts, kept=2, speaker=TOGETHER.join((self.first.voice.name, self.second.voice.name)))


@dataclass(frozen=True)
class Noisy:
    """A voice in generated noise."""

    id: str
    clean: Draw
    noise: str  # SEEN or UNSEEN
    snr: float  # dB, active level of the speech over RMS of the noise
    seed: int = 0

    def make(self, folder: Path) -> Utterance:
        clean = render(self.clean)
        noise = NoiseBank.of(self.noise, seed=self.seed).sample(self.id, len(clean))
        gain = active_level(clean) - self.snr - rms_level(noise)
        return _write(folder, self.id, (clean, noise * 10 ** (gain / 20)), kept=1, speaker=self.clean.voice.name)


def at_ratio(samples: np.ndarray, level: float) -> np.ndarray:
    """samples (N,) at this active level in dB."""
    return np.asarray(samples * 10 ** ((level - active_level(samples)) / 20))


def _write(folder: Path, name: str, parts: tuple[np.ndarray, np.ndarray], kept: int, speaker: str = "") -> Utterance:
    """The sum of two parts (N,), and the first of them by themselves. They are rounded before they are added: the sum is exact."""
    scale = min(1.0, PEAK / float(np.abs(parts[0] + parts[1]).max()), *(PEAK / float(np.abs(part).max()) for part in parts))
    rounded = [to_int16(part * scale) for part in parts]
    sources = tuple(f"sources/{name}-{number}.flac" for number in range(1, kept + 1))
    for source, part in zip(sources, rounded, strict=False):
        write_flac(folder / source, part)
    write_flac(folder / "audio" / f"{name}.flac", rounded[0] + rounded[1])
    return Utterance(name, f"audio/{name}.flac", len(parts[0]) / SAMPLE_RATE, speaker, sources=sources)


def overlaps(rng: Random, split: str, seed: int) -> Iterator[Overlap]:
    """Two voices of the split, and every sentence once."""
    texts = sentences(split, seed, PAIR_WORDS)
    while True:
        voices = rng.sample(speakers(LANGUAGE, split), 2)
        first, second = (Draw("", next(texts), varied(rng, v), tilt=rng.gauss(0, 0.1), gain=rng.uniform(-12, -3)) for v in voices)
        yield Overlap("", first, second, rng.uniform(*RATIOS))


def noisy(rng: Random, split: str, seed: int) -> Iterator[Noisy]:
    """Every sentence once, by anyone of the split, and the SNRs in turn."""
    for text, snr in zip(sentences(split, seed, NOISY_WORDS), cycle(SNRS[split]), strict=False):
        clean = Draw("", text, varied(rng, anyone(rng, split)), tilt=rng.gauss(0, 0.1), gain=rng.uniform(-12, -3))
        yield Noisy("", clean, UNSEEN if split == "test" else SEEN, snr)
