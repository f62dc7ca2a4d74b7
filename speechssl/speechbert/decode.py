"""From audio words to an answer in seconds: `[CLS] question [SEP] passage [SEP]` with a vector in the place of every word.

The reader, its windows and its choice are those of the other systems. Letters: W words of one recording, E embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from speechssl.dual.data import Layout
from speechssl.dual.decode import Reader
from speechssl.dual.model import SpanModel
from speechssl.dual.system import TimedAnswer
from speechssl.speechbert.data import SPECIALS
from speechssl.speechbert.model import CodeReader


@dataclass(frozen=True, eq=False)
class AudioWords:
    """A recording, encoded. codes: (W, E) float32; starts, ends: (W,) seconds. Which words they are is not known."""

    codes: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)


def answer_codes(
    model: SpanModel, layout: Layout, items: Sequence[tuple[AudioWords, AudioWords]], batch: int = 16, bf16: bool = False
) -> list[TimedAnswer]:
    """(question, passage) -> answers in seconds. A passage without words gives an empty answer at 0 s."""
    recordings = {id(words): words for pair in items for words in pair}
    firsts = np.cumsum([0, *map(len, recordings.values())]) + SPECIALS
    ids = {name: np.arange(first, first + len(words)) for (name, words), first in zip(recordings.items(), firsts, strict=False)}
    codes = np.concatenate([np.zeros((0, model.embedding.embedding_dim), np.float32), *(w.codes for w in recordings.values())])
    reader = Reader(CodeReader(model, torch.from_numpy(codes)).eval(), layout, batch, bf16)
    usable = [i for i, (_, passage) in enumerate(items) if len(passage)]
    choices = reader.read_many([(ids[id(items[i][0])], ids[id(items[i][1])]) for i in usable])
    answers = [TimedAnswer(0.0, 0.0, 0.0)] * len(items)
    for i, choice in zip(usable, choices, strict=True):
        passage = items[i][1]
        answers[i] = TimedAnswer(float(passage.starts[choice.first]), float(passage.ends[choice.last]), choice.confidence)
    return answers
