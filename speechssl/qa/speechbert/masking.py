"""Masked words are predicted, in text and in speech, by one encoder (SpeechBERT, arXiv 1910.11559, section 2.2).

A sequence is `[CLS] words [SEP]`: word pieces, or audio words. Of 15 % of the positions 80 % are masked, 10 % replaced, 10 % kept
(BERT). The target of an audio word is its text; where that has several pieces, the mean of their losses. The text embeddings stay
as they are: the codes of the audio words were drawn to them.
Ids below V are word pieces, id V + n is audio word n. Letters: B sequences, S positions, V vocabulary, E embedding width, P pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from speechssl.qa.reader import SpanModel
from speechssl.training import Batch

NONE = -1  # no piece to predict
KEEP, REPLACE = 0.1, 0.1  # shares of the chosen positions


def look_up(table: Tensor, codes: Tensor, ids: Tensor) -> Tensor:
    """Vectors (B, S, E): rows of the table (V, E), and of the codes (N, E) for ids from V on."""
    rows = len(table)
    words = functional.embedding(ids.clamp(max=rows - 1), table)
    if not len(codes):
        return words
    heard = functional.embedding((ids - rows).clamp(min=0), codes).to(words.dtype)
    return torch.where((ids >= rows)[..., None], heard, words)


class MaskedWords(nn.Module):
    """The reader's encoder with a head that predicts word pieces; its last layer is the text embeddings themselves."""

    embeddings: Tensor
    codes: Tensor

    def __init__(self, reader: SpanModel, embeddings: Tensor, codes: Tensor) -> None:
        """embeddings: (V, E), codes: (N, E); neither is trained or saved."""
        super().__init__()
        self.reader = reader
        self.register_buffer("embeddings", embeddings, persistent=False)
        self.register_buffer("codes", codes, persistent=False)
        width = embeddings.shape[1]
        self.transform = nn.Sequential(nn.Linear(reader.encoder.config.hidden_size, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(len(embeddings)))

    def forward(self, ids: Tensor, mask: Tensor, targets: Tensor, speech: Tensor) -> Batch:
        """ids, mask: (B, S); targets: (B, S, P), NONE where there is nothing to predict; speech: (B,) 1 for audio words.

        The loss is a mean over the chosen positions of each sequence, then over sequences. text, speech: share of chosen positions
        of either kind whose likeliest piece is right.
        """
        hidden = self.reader.hidden(look_up(self.embeddings, self.codes, ids), mask, None)
        row, column = torch.nonzero(targets[..., 0] != NONE, as_tuple=True)
        wanted = targets[row, column]
        logits = (self.transform(hidden[row, column]) @ self.embeddings.T.to(hidden) + self.bias).float()
        real = wanted != NONE
        each = -logits.log_softmax(-1).gather(1, wanted.clamp(min=0))
        loss = torch.where(real, each, 0.0).sum(1) / real.sum(1)
        share = 1 / torch.bincount(row, minlength=len(ids))[row]
        right = ((logits.argmax(-1)[:, None] == wanted) & real).any(1).float()
        return {"loss": (loss * share).sum() / len(ids), **_shares(right, speech[row].bool())}


def _shares(right: Tensor, speech: Tensor) -> Batch:
    """A kind that is not in the batch counts as 0."""
    kinds = {"text": ~speech, "speech": speech}
    return {name: (right * which).sum() / which.sum().clamp(min=1) for name, which in kinds.items()}


@dataclass(frozen=True)
class Sentence:
    """What a model reads of one recording, and what it could be asked for. ids: (W,); targets: W arrays of pieces, may be empty."""

    ids: np.ndarray
    targets: Sequence[np.ndarray]


@dataclass(frozen=True)
class Vocabulary:
    """Special ids, and where ids of audio words begin."""

    cls: int
    sep: int
    pad: int
    mask: int
    size: int  # V
    words: int  # N audio words


@dataclass(frozen=True)
class MaskedBatches:
    """Batches of which half the sequences are text and half speech, a function of (seed, step) only.

    Recordings are drawn by their length; a sequence is a random stretch of at most `window` words.
    """

    text: Sequence[Sentence]
    speech: Sequence[Sentence]
    vocabulary: Vocabulary
    size: int = 16  # B
    window: int = 100
    share: float = 0.15
    seed: int = 0

    def __call__(self, step: int) -> Batch:
        rng = np.random.default_rng([self.seed, step])
        half = self.size // 2
        chosen = [*self._chosen(rng, self.text, self.size - half), *self._chosen(rng, self.speech, half)]
        made = [self._masked(rng, self._stretch(rng, sentence)) for sentence in chosen]
        ids = pad_sequence([torch.from_numpy(i) for i, _ in made], batch_first=True, padding_value=self.vocabulary.pad)
        mask = pad_sequence([torch.ones(len(i), dtype=torch.long) for i, _ in made], batch_first=True)
        deepest = max(t.shape[1] for _, t in made)
        targets = torch.full((*ids.shape, deepest), NONE)
        for row, (_, wanted) in enumerate(made):
            targets[row, : len(wanted), : wanted.shape[1]] = torch.from_numpy(wanted)
        return {"ids": ids, "mask": mask, "targets": targets, "speech": (torch.arange(self.size) >= self.size - half).long()}

    def _chosen(self, rng: np.random.Generator, sentences: Sequence[Sentence], count: int) -> list[Sentence]:
        lengths = np.array([len(s.ids) for s in sentences], float)
        return [sentences[i] for i in rng.choice(len(sentences), count, p=lengths / lengths.sum())]

    def _stretch(self, rng: np.random.Generator, sentence: Sentence) -> Sentence:
        first = int(rng.integers(max(len(sentence.ids) - self.window, 0) + 1))
        stop = first + self.window
        return Sentence(sentence.ids[first:stop], sentence.targets[first:stop])

    def _masked(self, rng: np.random.Generator, sentence: Sentence) -> tuple[np.ndarray, np.ndarray]:
        """Ids (S,) with [CLS] and [SEP], and targets (S, P). At least one position is chosen, if any can be."""
        known = np.array([len(t) > 0 for t in sentence.targets])
        chosen = known & (rng.random(len(known)) < self.share)
        if not chosen.any() and known.any():
            chosen[rng.choice(np.flatnonzero(known))] = True
        ids = np.concatenate([[self.vocabulary.cls], self._disturbed(rng, sentence.ids, chosen), [self.vocabulary.sep]])
        targets = np.full((len(ids), max(map(len, sentence.targets), default=1) or 1), NONE, np.int64)
        for place in np.flatnonzero(chosen).tolist():
            pieces = sentence.targets[place]
            targets[place + 1, : len(pieces)] = pieces
        return ids.astype(np.int64), targets

    def _disturbed(self, rng: np.random.Generator, ids: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """The chosen are masked, or replaced by another of their kind, or kept."""
        v, draw, others = self.vocabulary, rng.random(len(ids)), ids.copy()
        heard = ids >= v.size
        others[heard] = v.size + rng.integers(max(v.words, 1), size=int(heard.sum()))
        others[~heard] = rng.integers(v.size, size=int((~heard).sum()))
        masked = np.where(draw < KEEP, ids, np.where(draw < KEEP + REPLACE, others, v.mask))
        return np.where(chosen, masked, ids)
