"""SpeechBERT (arXiv 1910.11559): an autoencoder makes vectors of audio words, and a text encoder
reads them beside word pieces.

Section 2.1: a recurrent encoder turns the features of a word into one code, and a recurrent decoder
makes features of the code. The loss is the error of these features and the L1 distance of the code
to the text embedding of the word (the mean over its pieces).
Section 2.2: one encoder predicts masked words, in text and in speech, with BERT's shares (15 %, of
which 80 % are masked and 10 % replaced). The target of an audio word is its text, where the loss is
the mean over the pieces of the word. The text embeddings are not trained.
Letters: B words or sequences, T rows of features, D their width, E embedding width, H LSTM width, N
audio words, S positions, V vocabulary, P pieces.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from speechssl.artifacts import check_hash, hash_files, read_json, replace_file
from speechssl.cascade.model import run_lstm
from speechssl.dual.data import Layout
from speechssl.dual.model import SpanModel, load_reader, save_reader
from speechssl.errors import InputError
from speechssl.quantisation import dequantise, quantise
from speechssl.speechbert.data import NONE, WordTable, pad_words

if TYPE_CHECKING:  # the Trainer takes long to import, and answering does not need it
    from speechssl.training import Batch

WORDS = "words.safetensors"  # file with the weights of the word encoder
WHAT = "SpeechBERT"  # on the card
BATCH = 256  # words that are encoded together


class WordEncoder(nn.Module):
    """The word encoder is a bidirectional LSTM, whose code is a projection of both last states."""

    mean: Tensor
    scale: Tensor

    def __init__(self, features: int, code: int, width: int = 256) -> None:
        """Make an encoder. features: D; code: E; width: H, a direction."""
        super().__init__()
        self.features, self.code, self.width = features, code, width
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.lstm = nn.LSTM(features, width, batch_first=True, bidirectional=True)
        self.projection = nn.Sequential(
            nn.Linear(2 * width, code), nn.Tanh(), nn.Linear(code, code)
        )

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Return codes (B, E). features: (B, T, D); lengths: (B,) rows, 1 to T. Rows beyond a
        length do not change a code."""
        states = run_lstm(self.lstm, self.standardise(features), lengths)
        forward, backward = states.split(self.width, -1)
        last = (lengths - 1).to(states.device)[:, None, None].expand(-1, 1, self.width)
        return self.projection(torch.cat([forward.gather(1, last)[:, 0], backward[:, 0]], -1))

    def standardise(self, features: Tensor) -> Tensor:
        return (features - self.mean) / self.scale

    def fit_scale(self, table: WordTable) -> WordEncoder:
        """Set mean and scale to those of about 20,000 rows of features of a table. Returns
        itself."""
        sample = np.asarray(table.features[:: max(len(table.features) // 20_000, 1)], np.float32)
        self.mean.copy_(torch.from_numpy(sample.mean(0)))
        self.scale.copy_(torch.from_numpy(sample.std(0)).clamp(min=1e-5))
        return self

    @torch.inference_mode()
    def encode_words(self, table: WordTable) -> Tensor:
        """Return the codes (N, E) of all words of a table, float32, computed in order of length."""
        order = np.argsort(np.diff(table.rows, axis=1)[:, 0], kind="stable")
        codes = torch.zeros(len(order), self.code)
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            batch = pad_words(table, part)
            part_codes = self(batch["features"].to(self.mean.device), batch["lengths"])
            codes[torch.from_numpy(part)] = part_codes.float().cpu()
        return codes


class WordAutoencoder(nn.Module):
    """The autoencoder is a WordEncoder and a decoder that is given the code at every step."""

    def __init__(self, encoder: WordEncoder, pull: float = 1.0) -> None:
        super().__init__()
        self.encoder, self.pull = encoder, pull
        self.decoder = nn.LSTM(encoder.code, encoder.width, batch_first=True)
        self.output = nn.Linear(encoder.width, encoder.features)

    def forward(self, features: Tensor, lengths: Tensor, targets: Tensor) -> Batch:
        """Return losses, which are means over the words. features: (B, T, D); lengths: (B,);
        targets: text embeddings (B, E).

        rebuilt: squared error of a standardised feature. distance: L1 distance of code and text
        embedding.
        """
        codes = self.encoder(features, lengths)
        rows = features.shape[1]
        decoded = self.output(self.decoder(codes[:, None].expand(-1, rows, -1))[0])
        errors = (decoded - self.encoder.standardise(features)).square().mean(-1)
        real = torch.arange(rows, device=errors.device) < lengths.to(errors.device)[:, None]
        rebuilt = (torch.where(real, errors, 0.0).sum(1) / lengths.to(errors)).mean()
        distance = (codes - targets).abs().sum(-1).mean()
        return {
            "loss": rebuilt + self.pull * distance,
            "rebuilt": rebuilt.detach(),
            "distance": distance.detach(),
        }


class CodeRegression(nn.Module):
    """In a transfer the word encoder learns to give a word, from another encoder's features, the
    code that it had before."""

    def __init__(self, encoder: WordEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, features: Tensor, lengths: Tensor, targets: Tensor) -> Batch:
        """Return the loss: the L1 distance of a word to its code, a mean over the words. features:
        (B, T, D); lengths: (B,); targets: (B, E) codes."""
        codes = self.encoder(features, lengths)
        return {"loss": (codes - targets).abs().sum(-1).mean()}


def look_up(table: Tensor, codes: Tensor, ids: Tensor) -> Tensor:
    """Look up vectors (B, S, E): rows of the table (V, E), and of the codes (N, E) for ids from V
    on."""
    rows = len(table)
    words = functional.embedding(ids.clamp(max=rows - 1), table)
    if not len(codes):
        return words
    spoken = functional.embedding((ids - rows).clamp(min=0), codes).to(words.dtype)
    return torch.where((ids >= rows)[..., None], spoken, words)


class MaskedWords(nn.Module):
    """The reader's encoder predicts word pieces by a head whose last layer is the text embeddings
    themselves."""

    embeddings: Tensor
    codes: Tensor

    def __init__(self, reader: SpanModel, embeddings: Tensor, codes: Tensor) -> None:
        """Put a head on an encoder. embeddings: (V, E), codes: (N, E); neither is trained or
        saved."""
        super().__init__()
        self.reader = reader
        self.register_buffer("embeddings", embeddings, persistent=False)
        self.register_buffer("codes", codes, persistent=False)
        width = embeddings.shape[1]
        self.transform = nn.Sequential(
            nn.Linear(reader.encoder.config.hidden_size, width), nn.GELU(), nn.LayerNorm(width)
        )
        self.bias = nn.Parameter(torch.zeros(len(embeddings)))

    def forward(self, ids: Tensor, mask: Tensor, targets: Tensor, speech: Tensor) -> Batch:
        """Return loss, text and speech. ids, mask: (B, S); targets: (B, S, P), NONE where there is
        nothing to predict; speech: (B,) 1 for sequences of audio words.

        loss: the cross-entropy, a mean over the predicted positions of each sequence, then over
        sequences. text, speech: the share of predicted positions of either kind whose likeliest
        piece is one of the targets; 0 for a kind that is not in the batch.
        """
        embedded = look_up(self.embeddings, self.codes, ids)
        hidden = self.reader.encoder(**self.reader.inputs(embedded, mask, None)).last_hidden_state
        row, column = torch.nonzero(targets[..., 0] != NONE, as_tuple=True)
        labels = targets[row, column]
        transformed = self.transform(hidden[row, column])
        logits = (transformed @ self.embeddings.T.to(hidden) + self.bias).float()
        real = labels != NONE
        losses = -logits.log_softmax(-1).gather(1, labels.clamp(min=0))
        loss = torch.where(real, losses, 0.0).sum(1) / real.sum(1)
        weight = 1 / torch.bincount(row, minlength=len(ids))[row]
        right = ((logits.argmax(-1)[:, None] == labels) & real).any(1).float()
        outputs = {"loss": (loss * weight).sum() / len(ids)}
        is_speech = speech[row].bool()
        for name, positions in (("text", ~is_speech), ("speech", is_speech)):
            outputs[name] = (right * positions).sum() / positions.sum().clamp(min=1)
        return outputs


class CodeEmbedding(nn.Embedding):
    """This table has SPECIALS rows, which are trained and saved, and after them the codes of audio
    words, which are not. In a SpanModel or ChoiceModel it takes the place of the table of tokens.
    """

    codes: Tensor  # (N, E)

    def __init__(self, specials: nn.Embedding) -> None:
        frozen = not specials.weight.requires_grad
        super().__init__(*specials.weight.shape, _weight=specials.weight.detach(), _freeze=frozen)
        self.register_buffer("codes", torch.zeros(0, specials.embedding_dim), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return vectors (B, S, E). ids: (B, S)."""
        return look_up(self.weight, self.codes.to(self.weight.device), ids)


def round_as_saved(encoder: WordEncoder) -> WordEncoder:
    """Round the weights of an encoder as its file will, so that the later stages are trained on the
    codes that the loaded encoder gives. Returns it, frozen."""
    encoder.load_state_dict(dequantise(quantise(encoder.state_dict())))
    return encoder.eval().requires_grad_(False)


def save_speechbert(
    folder: Path, encoder: WordEncoder, reader: SpanModel, layout: Layout, card: dict[str, Any]
) -> None:
    """Write words.safetensors, and the reader as any reader: model.safetensors, config.json and,
    last, card.json."""
    with replace_file(folder / WORDS) as temporary:
        save_file(quantise(encoder.state_dict()), temporary)
    shape = {"features": encoder.features, "code": encoder.code, "width": encoder.width}
    words = {"shape": shape, "weights": hash_files([folder / WORDS])}
    save_reader(folder, reader, layout, card | {"what": WHAT, "words": words})


def load_weights(folder: Path) -> tuple[WordEncoder, SpanModel, Layout, dict[str, Any]]:
    """Load a SpeechBERT: word encoder, reader, layout and card. Raises InputError where a file is
    not the one of the card, or the folder holds another kind of model."""
    card = read_json(folder / "card.json")
    if card.get("what") != WHAT:
        raise InputError(
            f"{folder} is not a SpeechBERT; give the folder of `speechssl train speechbert`"
        )
    reader, layout, card = load_reader(folder)
    reader.embedding = CodeEmbedding(reader.embedding)
    path = folder / WORDS
    check_hash(path, card["words"]["weights"])
    encoder = WordEncoder(**card["words"]["shape"])
    encoder.load_state_dict(dequantise(load_file(path)))
    return encoder.eval().requires_grad_(False), reader, layout, card
