"""Tokens are embedded by their sub-word units, the phones or the pinyin of a token, beside the text
encoder's own embedding.

Words that a recogniser confuses look alike to a reader of sub-word units (ODSQA, arXiv 1808.02280;
Spoken-SQuAD, 1804.00320). A small convolution runs over the units of a token; its maximum over the
units is added to the token's embedding (the papers concatenate both, which a pre-trained encoder
has no room for). A token is pronounced by itself: a character with several readings has the
commonest.

Letters: V tokens in the vocabulary, U units of the longest token, N units, W width of a unit, E
embedding width, B sequences, S tokens in a sequence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch
from torch import nn

from speechssl.errors import InputError
from speechssl.synth.synthesisers import pronounce
from speechssl.text.chinese import split_syllables

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST = 12  # most units of a token; further ones are left out
WIDTH = 64
MARKS = re.compile("^(##|Ġ|▁)")  # of tokens within a word (BERT), or at the beginning of one
CHINESE = re.compile(r"[\u3400-\u9fff]+")
LATIN = re.compile(r"[a-z']*[a-z][a-z']*")  # letters and apostrophes, at least one letter


class SubwordUnits(nn.Module):
    """This module embeds tokens by their sub-word units. Its output is zero before training, so
    that the encoder begins undisturbed."""

    def __init__(self, tokens: torch.Tensor, unit_count: int, width: int, out: int) -> None:
        """Initialise the weights. tokens: (V, U) int, the units of every token as numbers from 1 to
        N, filled up with 0; unit_count: N; width: W; out: E."""
        super().__init__()
        self.register_buffer("tokens", tokens.to(torch.int32))
        self.units = nn.Embedding(unit_count + 1, width, padding_idx=0)
        self.convolution = nn.Conv1d(width, width, 3, padding=1)
        self.output = nn.Linear(width, out, bias=False)
        nn.init.zeros_(self.output.weight)

    @property
    def shape(self) -> dict[str, int]:
        """Return the sizes other than V and E, for a config."""
        return {
            "longest": self.tokens.shape[1],
            "units": self.units.num_embeddings - 1,
            "width": self.units.embedding_dim,
        }

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Embed ids (B, S) as (B, S, E); zeros for tokens without units."""
        distinct_tokens, places = ids.unique(return_inverse=True)  # places: (B, S)
        units = self.tokens[distinct_tokens].long()
        real = (units > 0)[..., None]
        convolved = self.convolution(self.units(units).transpose(1, 2)).transpose(1, 2)
        greatest = torch.where(real, convolved, -1e4).amax(1)
        return (self.output(greatest) * real.any(1))[places]


def make_subword_units(
    tokenizer: PreTrainedTokenizerBase, kind: str, rows: int, out: int
) -> SubwordUnits | None:
    """Make the embedding by sub-word units of a vocabulary. kind: pinyin or phones, or none, for
    which it returns None. rows, out: V and E of the table of embeddings, which may have more rows
    than the vocabulary.

    Raises InputError for a vocabulary in which no token has units; MissingExtra without the
    package.
    """
    if kind == "none":
        return None
    special = set(tokenizer.all_special_ids)
    pattern = CHINESE if kind == "pinyin" else LATIN
    texts: dict[int, str] = {}
    for token, token_id in tokenizer.get_vocab().items():
        text = MARKS.sub("", token)
        if token_id not in special and pattern.fullmatch(text.lower()):
            texts[token_id] = text
    if kind == "pinyin":  # initial, final and tone of each character
        units_of_token = {token_id: split_syllables(text) for token_id, text in texts.items()}
    else:  # phones of American English; a piece of a word is pronounced as if it were a word
        phones = pronounce(list(texts.values()))
        units_of_token = dict(zip(texts, phones, strict=True))
    inventory = sorted({unit for units in units_of_token.values() for unit in units})
    numbers = {unit: i for i, unit in enumerate(inventory, 1)}
    if not numbers:
        raise InputError(
            f"no token of this text encoder has {kind}; choose other --subwords or "
            "another --text-encoder"
        )
    longest = min(LONGEST, max(map(len, units_of_token.values())))
    tokens = torch.zeros(rows, longest, dtype=torch.int32)
    for token_id, units in units_of_token.items():
        row = [numbers[unit] for unit in units[:longest]]
        tokens[token_id, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return SubwordUnits(tokens, len(numbers), WIDTH, out)
