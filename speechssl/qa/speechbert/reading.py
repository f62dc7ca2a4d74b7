"""Questions about audio words: `[CLS] question [SEP] passage [SEP]` with a vector in the place of every word.

The reader, its windows and its choice are those of the other systems. Ids 0, 1 and 2 are [CLS], [SEP] and [PAD]; id 3 + n is audio
word n. Letters: B sequences, S positions, E embedding width, N audio words, W words of one recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from speechssl.corpora.records import Corpus, Question
from speechssl.qa.dual import TimedAnswer
from speechssl.qa.reader import Example, Layout, Reader, SpanModel, span_loss
from speechssl.qa.speechbert.masking import look_up
from speechssl.qa.speechbert.words import WordSequence, WordTable
from speechssl.qa.train import first_times
from speechssl.training import Batch

CLS, SEP, PAD, SPECIALS = 0, 1, 2, 3


class CodeReader(nn.Module):
    """A span model whose ids are three specials and the rows of a table of codes."""

    codes: Tensor

    def __init__(self, reader: SpanModel, codes: Tensor) -> None:
        """reader: its embedding has SPECIALS rows. codes: (N, E), neither trained nor saved."""
        super().__init__()
        self.reader = reader
        self.register_buffer("codes", codes, persistent=False)

    def logits(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """As SpanModel's."""
        return self.reader.logits_of(look_up(self.reader.embedding.weight, self.codes, ids), mask, segments)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor, first: Tensor, last: Tensor) -> Batch:
        """As SpanModel's."""
        return span_loss(self.logits(ids, mask, segments), first, last)


@dataclass(frozen=True, eq=False)
class Heard:
    """What is kept of a recording. codes: (W, E) float32; starts, ends: (W,) seconds. Of its words nothing is known."""

    codes: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)


def examples(data: Corpus, table: WordTable) -> tuple[list[Example], dict[str, str]]:
    """For every answerable question one example a way of cutting; and the questions without any: id -> why."""
    found, left_out = [], {}
    for question in data.answerable:
        times = first_times(question)
        if times is None:
            left_out[question.id] = "no answer has times"
            continue
        made = _of_question(question, table, *times)
        if not made:
            left_out[question.id] = f"it, or the answer in passage {question.passage}, has no audio word"
        found += made
    return found, left_out


def _of_question(question: Question, table: WordTable, start: float, end: float) -> list[Example]:
    made = []
    for asked, passage in zip(table.sequences.get(question.id, ()), table.sequences.get(question.passage, ()), strict=False):
        inside = passage.inside(start, end)
        if len(asked) and len(inside):
            made.append(Example(_ids(asked), _ids(passage), int(inside[0]), int(inside[-1])))
    return made


def _ids(words: WordSequence) -> np.ndarray:
    return words.numbers + SPECIALS


def answer_heard(
    model: SpanModel, layout: Layout, items: Sequence[tuple[Heard, Heard]], batch: int = 16, bf16: bool = False
) -> list[TimedAnswer]:
    """(question, passage) -> answers in seconds. A passage in which no word was heard gives an empty answer at 0 s."""
    recordings = {id(heard): heard for pair in items for heard in pair}
    firsts = np.cumsum([0, *(len(heard) for heard in recordings.values())]) + SPECIALS
    ids = {name: np.arange(first, first + len(heard)) for (name, heard), first in zip(recordings.items(), firsts, strict=False)}
    codes = np.concatenate([np.zeros((0, model.embedding.embedding_dim), np.float32), *(h.codes for h in recordings.values())])
    reader = Reader(CodeReader(model, torch.from_numpy(codes)).eval(), layout, batch, bf16)
    usable = [i for i, (_, passage) in enumerate(items) if len(passage)]
    choices = reader.read_many([(ids[id(items[i][0])], ids[id(items[i][1])]) for i in usable])
    answers = [TimedAnswer(0.0, 0.0, 0.0)] * len(items)
    for i, choice in zip(usable, choices, strict=True):
        passage = items[i][1]
        answers[i] = TimedAnswer(float(passage.starts[choice.first]), float(passage.ends[choice.last]), choice.confidence)
    return answers
