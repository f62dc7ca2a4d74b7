"""How a token sounds, beside what it is: what a recogniser confuses looks alike to the reader.

The sub-word units of ODSQA's authors (arXiv 1808.02280) and of Spoken-SQuAD's (1804.00320): a token's pronunciation is read by a
small convolution, whose maximum over the units is added to the token's embedding (theirs is set beside it; a pre-trained encoder
has no room for that). For Chinese the initial, final and tone of every character, for English the phones of espeak-ng. A token is
pronounced by itself: of a character with several readings the commonest is taken.
Letters: V tokens in the vocabulary, U units of the longest token, N units, W width of a unit, E embedding width, B sequences, S
tokens in a sequence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from speechssl.corpora.espeak import pronounce
from speechssl.errors import InputError
from speechssl.pinyin import parts

Subwords = Literal["none", "pinyin", "phones"]
SUBWORDS: tuple[str, ...] = get_args(Subwords)
LONGEST = 12  # units of a token; what follows is left out
WIDTH = 64
_MARKS = re.compile("^(##|Ġ|▁)")  # of a token's place in its word
_HANZI, _LATIN = re.compile(r"[\u3400-\u9fff]+"), re.compile(r"[a-z']*[a-z][a-z']*")


class SubwordUnits(nn.Module):
    """An embedding of tokens by their units. It begins at zero: the encoder is not disturbed before it has learnt to listen."""

    def __init__(self, tokens: torch.Tensor, units: int, width: int, out: int) -> None:
        """tokens: (V, U) int, numbers of units from 1 to N, 0 where there is none; out: E."""
        super().__init__()
        self.register_buffer("tokens", tokens.to(torch.int32))
        self.units = nn.Embedding(units + 1, width, padding_idx=0)
        self.convolution = nn.Conv1d(width, width, 3, padding=1)
        self.output = nn.Linear(width, out, bias=False)
        nn.init.zeros_(self.output.weight)

    @property
    def shape(self) -> dict[str, int]:
        """What `of_shape` needs beside V and E."""
        return {"longest": self.tokens.shape[1], "units": self.units.num_embeddings - 1, "width": self.units.embedding_dim}

    @classmethod
    def of_shape(cls, tokens: int, out: int, longest: int, units: int, width: int) -> SubwordUnits:
        """Without content, to be filled with weights."""
        return cls(torch.zeros(tokens, longest), units, width, out)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: (B, S). Returns (B, S, E); zeros for tokens without units."""
        kinds, places = ids.unique(return_inverse=True)
        units = self.tokens[kinds].long()
        there = (units > 0)[..., None]
        heard = self.convolution(self.units(units).transpose(1, 2)).transpose(1, 2)
        best = torch.where(there, heard, -1e4).amax(1)
        return (self.output(best) * there.any(1))[places]


def subword_units(tokenizer: PreTrainedTokenizerBase, kind: str, rows: int, out: int) -> SubwordUnits | None:
    """Of every token of a vocabulary; None for "none". rows, out: V and E of the table of embeddings, which may have more rows.

    Raises InputError for an unknown kind, or a vocabulary in which no token has units; MissingExtra without the package.
    """
    if kind not in SUBWORDS:
        raise InputError(f"there are no sub-word units {kind!r}; choose one of {', '.join(SUBWORDS)}")
    if kind == "none":
        return None
    found = _pinyin(tokenizer) if kind == "pinyin" else _phones(tokenizer)
    numbers = {unit: i for i, unit in enumerate(sorted({u for units in found.values() for u in units}), 1)}
    if not numbers:
        raise InputError(f"no token of this text encoder has {kind}; choose other --subwords or another --text-encoder")
    longest = min(LONGEST, max(map(len, found.values())))
    tokens = torch.zeros(rows, longest, dtype=torch.int32)
    for token, units in found.items():
        some = [numbers[u] for u in units[:longest]]
        tokens[token, : len(some)] = torch.tensor(some, dtype=torch.int32)
    return SubwordUnits(tokens, len(numbers), WIDTH, out)


def _pinyin(tokenizer: PreTrainedTokenizerBase) -> Mapping[int, list[str]]:
    """Token id -> initial, final and tone of each of its characters."""
    return {token: parts(text) for token, text in _texts(tokenizer, _HANZI.fullmatch)}


def _phones(tokenizer: PreTrainedTokenizerBase) -> Mapping[int, list[str]]:
    """Token id -> phones, as American English has them; a piece of a word is read as if it were one."""
    found = list(_texts(tokenizer, _LATIN.fullmatch))
    return dict(zip([token for token, _ in found], pronounce([text for _, text in found], "en-us"), strict=True))


def _texts(tokenizer: PreTrainedTokenizerBase, wanted: Callable[[str], Any]) -> Iterable[tuple[int, str]]:
    """The tokens that have units, without the marks of their places."""
    special = set(tokenizer.all_special_ids)
    plain = ((token, _MARKS.sub("", text)) for text, token in tokenizer.get_vocab().items())
    return ((token, text) for token, text in plain if token not in special and wanted(text.lower()))
