"""Small tasks that work: they measure the level of a recording, or how far it is from what it was."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from speechssl.audio import write_flac
from speechssl.augment import Distorter
from speechssl.eval.grid import Item
from speechssl.stats import ItemScore


def recordings(folder: Path, count: int = 6, seed: int = 0) -> list[Path]:
    """Half a second of tone at different levels each."""
    rng = np.random.default_rng(seed)
    paths = [folder / f"u{i}.flac" for i in range(count)]
    for i, path in enumerate(paths):
        tone = 0.3 * np.sin(np.arange(8_000) * (0.05 + 0.01 * i)) + rng.normal(0, 0.01, 8_000)
        write_flac(path, tone)
    return paths


@dataclass
class LiveMixtures:
    """Made when they are needed, not frozen."""

    distorter: Distorter

    @property
    def seed(self):
        return self.distorter.seed

    def apply(self, samples, condition, utterance):
        return self.distorter.apply(samples, condition, utterance)

    def made_from(self, condition, utterances):
        return [list(source) for source in self.distorter.sources(condition)]


@dataclass
class Roughness:
    """Right where the samples are smooth; `tolerance` > 0 makes it right in noise. Keeps what it encodes."""

    paths: list[Path]
    tolerance: float = 0.0
    name: str = "ks"
    metric: str = "acc"
    version: int = 0
    voices: int = 0  # that training did not know
    unit: str = "session"
    encoded: list = field(default_factory=list)

    @property
    def card(self):
        return {"task": self.name, "tolerance": self.tolerance, "version": self.version}

    @property
    def items(self):
        return [Item(p.stem, p) for p in self.paths]

    def encode(self, samples):
        self.encoded.append(samples)
        return float(np.abs(np.diff(samples)).mean())

    def score(self, encoded):
        right = {i.id: float(encoded.get(i.id, 9.0) < 0.03 + self.tolerance) for i in self.items}
        wrong = self.metric != "acc"
        return [
            ItemScore(name, f"session {i % 3}", 1 - ok if wrong else ok, 1.0, f"speaker {i % self.voices}" if self.voices else "")
            for i, (name, ok) in enumerate(right.items())
        ]
