"""The vector of an audio word: the code of an autoencoder, drawn towards the word's text embedding.

SpeechBERT (arXiv 1910.11559), section 2.1: a recurrent encoder turns the features of a word into one code, a recurrent decoder
makes the features of the code (so that the code knows how the word sounds), and the L1 distance of the code to the text embedding
is made small (so that the text encoder can read it). A word of several pieces has the mean of their embeddings.
Letters: B words, T rows of features, D their width, E embedding width, H LSTM width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from speechssl.asr.ctc import run_lstm
from speechssl.qa.cascade import TextCodec
from speechssl.qa.speechbert.words import WordTable
from speechssl.training import Batch

LONGEST = 150  # rows of a word that are looked at (3 s at 50 Hz); what is longer is no word


@dataclass(frozen=True)
class WordShape:
    """Sizes of a WordEncoder."""

    features: int  # D
    code: int  # E
    width: int = 256  # H, a direction


class WordEncoder(nn.Module):
    """Bidirectional LSTM; the code is a projection of both last states."""

    mean: Tensor
    scale: Tensor

    def __init__(self, shape: WordShape) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("mean", torch.zeros(shape.features))
        self.register_buffer("scale", torch.ones(shape.features))
        self.lstm = nn.LSTM(shape.features, shape.width, batch_first=True, bidirectional=True)
        self.projection = nn.Sequential(nn.Linear(2 * shape.width, shape.code), nn.Tanh(), nn.Linear(shape.code, shape.code))

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Codes (B, E). features: (B, T, D); lengths: (B,) rows, 1 to T. What rows beyond a length hold never matters."""
        states = run_lstm(self.lstm, self.standardised(features), lengths)
        forward, backward = states.split(self.shape.width, -1)
        last = (lengths - 1).to(states.device)[:, None, None].expand(-1, 1, self.shape.width)
        return self.projection(torch.cat([forward.gather(1, last)[:, 0], backward[:, 0]], -1))

    def standardised(self, features: Tensor) -> Tensor:
        return (features - self.mean) / self.scale


class WordAutoencoder(nn.Module):
    """WordEncoder and a decoder that hears the code at every step."""

    def __init__(self, encoder: WordEncoder, pull: float = 1.0) -> None:
        super().__init__()
        self.encoder, self.pull = encoder, pull
        self.decoder = nn.LSTM(encoder.shape.code, encoder.shape.width, batch_first=True)
        self.output = nn.Linear(encoder.shape.width, encoder.shape.features)

    def forward(self, features: Tensor, lengths: Tensor, targets: Tensor) -> Batch:
        """features: (B, T, D); lengths: (B,); targets: (B, E) text embeddings. Every loss is a mean over the words.

        rebuilt: squared error of a standardised feature. distance: L1 to the word's own embedding. nearest: share of words that
        have no nearer embedding in the batch than their own.
        """
        codes = self.encoder(features, lengths)
        rebuilt = self._rebuilt(codes, features, lengths)
        distance = (codes - targets).abs().sum(-1).mean()
        return {
            "loss": rebuilt + self.pull * distance,
            "rebuilt": rebuilt.detach(),
            "distance": distance.detach(),
            "nearest": nearest(codes.detach(), targets),
        }

    def _rebuilt(self, codes: Tensor, features: Tensor, lengths: Tensor) -> Tensor:
        steps = features.shape[1]
        made = self.output(self.decoder(codes[:, None].expand(-1, steps, -1))[0])
        errors = (made - self.encoder.standardised(features)).square().mean(-1)
        real = torch.arange(steps, device=errors.device) < lengths.to(errors.device)[:, None]
        return (torch.where(real, errors, 0.0).sum(1) / lengths.to(errors)).mean()


def nearest(codes: Tensor, targets: Tensor) -> Tensor:
    """Share of the codes that have no nearer target (L1) than their own. Both (B, E)."""
    closest = targets[torch.cdist(codes, targets, p=1).argmin(1)]
    return (closest == targets).all(-1).float().mean()


def new_encoder(table: WordTable, code: int, width: int) -> WordEncoder:
    """A WordEncoder that standardises as the features of the table want it."""
    return standardise(WordEncoder(WordShape(table.features.shape[1], code, width)), table)


def standardise(encoder: WordEncoder, table: WordTable) -> WordEncoder:
    """The encoder, with mean and scale as the features of the table want them."""
    some = np.asarray(table.features[:: max(len(table.features) // 20_000, 1)], np.float32)
    encoder.mean.copy_(torch.from_numpy(some.mean(0)))
    encoder.scale.copy_(torch.from_numpy(some.std(0)).clamp(min=1e-5))
    return encoder


def pieces_of(texts: Sequence[str], codec: TextCodec) -> list[np.ndarray]:
    """Ids of every word's pieces, (P,) each; none for a word that is not known or has no letter."""
    known = {text: codec.encode([text])[0] for text in set(texts)}
    return [known[text] for text in texts]


def text_vectors(pieces: Sequence[np.ndarray], embeddings: Tensor) -> Tensor:
    """(words, E): the mean embedding of each word's pieces, at least one each. embeddings: (V, E)."""
    return torch.stack([embeddings[torch.from_numpy(ids)].mean(0) for ids in pieces])


@dataclass(frozen=True)
class WordBatches:
    """Batches of words of about one length, a function of (seed, step) only; every word is seen once in an epoch."""

    table: WordTable
    numbers: np.ndarray  # of the words of the table that are learnt from
    targets: Callable[[np.ndarray], Tensor]  # (B,) numbers -> (B, E) what their codes are drawn to
    size: int = 128  # B
    seed: int = 0

    def __call__(self, step: int) -> Batch:
        count = max(len(self.numbers) // self.size, 1)
        epoch, index = divmod(step, count)
        rng = np.random.default_rng([self.seed, epoch])
        lengths = np.diff(self.table.rows[self.numbers], axis=1)[:, 0]
        order = np.argsort(lengths * rng.uniform(0.8, 1.25, len(lengths)), kind="stable")  # other neighbours in every epoch
        order = np.roll(order, int(rng.integers(len(order))))  # and other words left over
        place = int(rng.permutation(count)[index]) * self.size
        chosen = self.numbers[order[place : place + self.size]]
        batch = padded(self.table, chosen)
        return batch | {"targets": self.targets(chosen)}


def padded(table: WordTable, numbers: np.ndarray) -> dict[str, Tensor]:
    """Features (B, T, D) float32 and lengths (B,) of these words of a table."""
    words = [table.features[first : min(last, first + LONGEST)] for first, last in table.rows[numbers]]
    features = [torch.from_numpy(np.asarray(word, np.float32)) for word in words]
    return {"features": pad_sequence(features, batch_first=True), "lengths": torch.tensor([len(f) for f in features])}


@torch.inference_mode()
def codes_of(encoder: WordEncoder, table: WordTable, size: int = 256) -> Tensor:
    """(N, E) codes of all words of a table, float32, computed in order of length."""
    order = np.argsort(np.diff(table.rows, axis=1)[:, 0], kind="stable")
    codes = torch.zeros(len(table), encoder.shape.code)
    device = encoder.mean.device
    for start in range(0, len(order), size):
        part = order[start : start + size]
        batch = padded(table, part)
        codes[torch.from_numpy(part)] = encoder(batch["features"].to(device), batch["lengths"]).float().cpu()
    return codes
