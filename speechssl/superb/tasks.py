"""A task that a head was trained for, as whoever asks how well it is done sees it: test items in, scores out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Item:
    """One recording to be judged."""

    id: str  # what the random part of a distortion depends on
    path: Path


@dataclass(frozen=True)
class Scored:
    """What one item adds to a score, which is the sum of the numerators over the sum of the denominators.

    group, voice: what `bootstrap.choose_units` chooses from to draw items together.
    """

    id: str
    group: str  # the next larger unit than the item (of a question its passage), or the item itself
    numerator: float  # accuracy: 1 where right; word error rate: errors
    denominator: float  # accuracy: 1; word error rate: words of the reference
    voice: str = ""  # who speaks; "" where that is not known, or training knew the voice


class TrainedTask(Protocol):
    """A head with the encoder it was trained on and the recordings it is judged by."""

    @property
    def name(self) -> str:
        """ks, ic, sid, style or asr."""

    @property
    def metric(self) -> str:
        """acc (more is better) or wer (less is)."""

    @property
    def unit(self) -> str:
        """What the groups of its scores are called: "recording", "passage"."""

    @property
    def card(self) -> Mapping[str, Any]:
        """What made it: all that its scores depend on, beside the condition."""

    def items(self) -> Sequence[Item]:
        """The recordings that it is judged by, in the order of the manifest."""

    def hear(self, samples: np.ndarray) -> Any:
        """(N,) float32 at 16 kHz -> what is kept of it. Several threads may call it at once.

        Raises ValueError for fewer samples than one frame of the encoder.
        """

    def score(self, heard: Mapping[str, Any]) -> list[Scored]:
        """heard: by the id of the item. An item that is not in it counts as wrong (for wer: every word is missing)."""
