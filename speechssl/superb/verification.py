"""Speaker verification (ASV): does one person speak in both of two recordings? By the cosine of their x-vectors.

Heads are trained to tell the speakers of the training data apart, on a random stretch of 8 s of a recording, and judged on speakers
that they never met (VoxCeleb1, s3prl `downstream/sv_voxceleb1`). s3prl looks at no dev data: it judges every checkpoint on the test
trials and keeps the best; here the one that is best on the trials of dev is judged on those of test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speechssl.corpora.utterances import Trial, UtteranceSet, load_trials
from speechssl.corpora.voices import recording_units
from speechssl.errors import InputError
from speechssl.superb.metrics.verification import ErrorCurve, ScoredTrials
from speechssl.superb.stretches import random_stretches
from speechssl.superb.task import Batch, Judgement, Measure, Settings
from speechssl.superb.xvector import Margin, XVector, XVectorShape
from speechssl.timing import FrameGrid

PUBLISHED = Settings(learning_rate=1e-4, steps=200_000, batch=50, every=10_000, optimiser="AdamW", clip=1e3)


@dataclass(frozen=True)
class Verification:
    """The task `asv`. Raises InputError for training data without two speakers, or a split without trials of both kinds."""

    data: UtteranceSet
    grid: FrameGrid
    projection: int = 512  # its width is that of an embedding too
    last: int = 1500  # width of the last layer of the TDNN
    scale: float = 30.0  # s of the softmax
    margin: float = 0.4  # m
    stretch: float = 8.0  # seconds of a recording that training hears at a time

    name = "asv"
    pooled = False
    wants_waves = False

    def __post_init__(self) -> None:
        _ = self._speakers, self._trials  # what is wrong with them is told now rather than after hours

    @cached_property
    def _speakers(self) -> dict[str, int]:
        """Number of every speaker of the training data."""
        path, train = self.data.root / "train.jsonl", self.data.splits["train"]
        if nameless := [u.id for u in train if not u.speaker]:
            raise InputError(f"{path}, utterance {nameless[0]}, has no speaker; say in every line who speaks")
        names = sorted({u.speaker for u in train})
        if len(names) < 2:
            raise InputError(f"{path} has one speaker only ({names[0]}); add recordings of others")
        return {name: i for i, name in enumerate(names)}

    @cached_property
    def _trials(self) -> dict[str, tuple[Trial, ...]]:
        return {split: load_trials(self.data, split) for split in ("dev", "test")}

    def build(self, states: int, width: int) -> XVector:
        """A new head for S states of width D."""
        shape = XVectorShape(states, width, len(self._speakers), self.projection, self.last)
        return XVector(shape, Margin(self.scale, self.margin))

    def loss(self, head: Any, batch: Batch) -> Tensor:
        """Of a random stretch of every recording, in nats. Raises KeyError for a speaker who is not in the training data."""
        batch, _ = random_stretches(batch, max(1, self.grid.frames(self.grid.sample(self.stretch))))
        speakers = torch.tensor([self._speakers[u.speaker] for u in batch.utterances], device=batch.states.device)
        return head.loss(head(batch.states, batch.lengths), speakers)

    @torch.no_grad()
    def predict(self, head: Any, batch: Batch) -> list[np.ndarray]:
        """The embedding of every recording, (E,) float32."""
        return list(head(batch.states, batch.lengths).cpu().numpy())

    def judge(self, split: str, predicted: Mapping[str, Any], resamples: int) -> Judgement:
        """predicted: embeddings. A trial of which a recording could not be heard is wrong at any threshold."""
        trials = self._trials[split]
        scores, same = scored(trials, predicted), np.array([t.same for t in trials])
        units = recording_units(self.data, self.data.splits[split])
        group = dict(zip([u.id for u in self.data.splits[split]], units.labels, strict=True))
        first, second = ([group[name] for name in names] for names in _sides(trials))
        eer, cost = ScoredTrials(scores, same, first, second).intervals(resamples)
        about = (units.name, len({*first, *second})) if resamples else ("", 0)
        measures = tuple(
            Measure.of(name, replace(found, drawn=about[0], groups=about[1]))
            for name, found in (("eer", eer.percent), ("min_dcf", cost))
        )
        curve = ErrorCurve.of_scores(scores, same).thinned()
        return Judgement(measures, {"det": {"false_alarms": curve.false_alarms.tolist(), "misses": curve.misses.tolist()}})


def scored(trials: Sequence[Trial], embeddings: Mapping[str, np.ndarray]) -> np.ndarray:
    """(N,) cosines. -inf for trials of one person and inf for trials of two that have none: they are always wrong.

    They have none where an embedding is missing or no number.
    """
    row = {name: i for i, name in enumerate(embeddings)}
    missing = np.full_like(next(iter(embeddings.values()), np.zeros(1)), np.nan)
    matrix = np.array([*embeddings.values(), missing], np.float32)
    with np.errstate(invalid="ignore"):
        unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True).clip(min=1e-8)
        cosines = np.einsum("nd,nd->n", *(unit[[row.get(name, -1) for name in names]] for names in _sides(trials)))
    wrong = np.where([t.same for t in trials], -np.inf, np.inf)
    return np.where(np.isfinite(cosines), cosines, wrong)


def _sides(trials: Sequence[Trial]) -> tuple[list[str], list[str]]:
    return [t.first for t in trials], [t.second for t in trials]
