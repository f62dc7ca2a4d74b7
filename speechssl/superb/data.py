"""Where batches come from: hidden states that were computed once, or the encoder in the loop.

Letters: B batch, S hidden states, T frames, D width, N samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from speechssl.audio import read_audio
from speechssl.data.utterances import Utterance, UtteranceSet
from speechssl.encoders.base import SpeechEncoder
from speechssl.encoders.states import CachedStates
from speechssl.errors import InputError
from speechssl.superb.task import Batch, Task

# A random stretch of every recording of a batch, for heads that are trained on no more of it at a time.


def random_stretches(batch: Batch, frames: int) -> tuple[Batch, list[int]]:
    """At most so many frames of each, and the frame where each begins. Drawn from torch's generator; waves are left as they are."""
    spare = (batch.lengths - frames).clamp(min=0).tolist()
    starts = [int(torch.randint(n + 1, ())) for n in spare]
    if batch.states.shape[2] <= frames:
        return batch, starts
    states = torch.stack([states[:, start : start + frames] for states, start in zip(batch.states, starts, strict=True)])
    return replace(batch, states=states, lengths=batch.lengths.clamp(max=frames)), starts


class Supply(Protocol):
    """Recordings of one set, as an encoder heard them."""

    @property
    def shape(self) -> tuple[int, int]:
        """(S, D)."""

    def usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        """Without those that are known to be unreadable."""

    def batch(self, utterances: Sequence[Utterance]) -> Batch | None:
        """Those of them that can be heard, in their order; the encoder in the loop may find that some, or all, cannot (None)."""


@dataclass(frozen=True)
class Cached:
    """From disk. folders: of `cache_states`, together they hold the set."""

    data: UtteranceSet
    folders: tuple[Path, ...]
    pooled: bool
    waves: bool

    @cached_property
    def states(self) -> tuple[CachedStates, ...]:
        return tuple(CachedStates.load(folder) for folder in self.folders)

    @cached_property
    def means(self) -> tuple[dict[str, int], Tensor]:
        """The row of every id, and (R, S, D) float32: pooled states are few enough to be kept in memory."""
        parts = [(list(states.rows), states.stacked(list(states.rows))) for states in self.states]
        names = [name for part, _ in parts for name in part]
        return {name: row for row, name in enumerate(names)}, torch.cat([means for _, means in parts])

    @property
    def shape(self) -> tuple[int, int]:
        first = self[next(iter(self.states[0].rows))]
        return first.shape[-2], first.shape[-1]

    def __getitem__(self, name: str) -> Tensor:
        """(S, D) where pooled, else (T, S, D). Raises KeyError for what could not be heard."""
        for states in self.states:
            if name in states:
                return states[name]
        raise KeyError(name)

    def __getstate__(self) -> dict[str, object]:
        """Without open files and what was read: another process opens and reads them itself."""
        return {name: self.__dict__[name] for name in ("data", "folders", "pooled", "waves")}

    def usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        return [u for u in utterances if any(u.id in states for states in self.states)]

    def batch(self, utterances: Sequence[Utterance]) -> Batch:
        """Raises KeyError for an utterance that is not usable."""
        waves = tuple(read_audio(self.data.path(u)) for u in utterances) if self.waves else ()
        if self.pooled:
            rows, means = self.means
            return Batch(tuple(utterances), means[[rows[u.id] for u in utterances]], torch.ones(len(utterances)).long(), waves)
        return padded(utterances, [self[u.id].float() for u in utterances], waves)


@dataclass(frozen=True)
class InTheLoop:
    """From the encoder, every time anew. hear: (N,) float32 at 16 kHz of an utterance; it may raise InputError or ValueError."""

    encoder: SpeechEncoder
    hear: Callable[[Utterance], np.ndarray]
    pooled: bool
    waves: bool
    pool: ThreadPoolExecutor
    failed: dict[str, str] = field(default_factory=dict)  # id -> why; grows

    @property
    def shape(self) -> tuple[int, int]:
        return self.encoder.layers + 1, self.encoder.width

    def usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        return [u for u in utterances if u.id not in self.failed]

    def batch(self, utterances: Sequence[Utterance]) -> Batch | None:
        found = list(self.pool.map(self._one, utterances))
        self.failed.update({u.id: why for u, why in zip(utterances, found, strict=True) if isinstance(why, str)})
        heard = [(u, *x) for u, x in zip(utterances, found, strict=True) if not isinstance(x, str)]
        if not heard:
            return None
        kept = tuple(u for u, _, _ in heard)
        waves = tuple(wave for _, wave, _ in heard) if self.waves else ()
        if self.pooled:
            return Batch(kept, torch.stack([states for _, _, states in heard]), torch.ones(len(kept)).long(), waves)
        return padded(kept, [states for _, _, states in heard], waves)

    def _one(self, utterance: Utterance) -> tuple[np.ndarray, Tensor] | str:
        """What was heard, with (S, D) or (T, S, D); or why there is nothing."""
        try:
            wave = self.hear(utterance)
            states = self.encoder.hidden_states(wave).cpu()
        except (InputError, ValueError) as error:
            return str(error)
        return wave, states.mean(1).clone() if self.pooled else states.transpose(0, 1).clone()


def supply_of(task: Task, folders: Sequence[Path]) -> Cached:
    """Cached states of a task's data."""
    return Cached(task.data, tuple(folders), task.pooled, task.wants_waves)


def padded(utterances: Sequence[Utterance], states: Sequence[Tensor], waves: tuple[np.ndarray, ...]) -> Batch:
    """states: B of (T, S, D) float32."""
    together = pad_sequence(list(states), batch_first=True).transpose(1, 2)
    return Batch(tuple(utterances), together, torch.tensor([len(s) for s in states]), waves)
