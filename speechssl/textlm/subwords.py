"""Tokens are embedded by their sub-word units, beside the text encoder's own embedding.

Sub-word units make words that a recogniser confuses look alike to the reader: those of ODSQA's
authors (arXiv 1808.02280) and of Spoken-SQuAD's (1804.00320). A small convolution reads a token's
pronunciation; its maximum over the units is added to the token's embedding (they concatenate both,
which a pre-trained encoder has no room for). A token is pronounced by itself: of a character with
several readings the commonest is taken.

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
from speechssl.text.chinese import syllable_parts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SUBWORDS = ("none", "pinyin", "phones")
LONGEST = 12  # units of a token; what follows is left out
WIDTH = 64
MARKS = re.compile("^(##|Ġ|▁)")  # of tokens within a word (BERT), or at its beginning
# Chinese characters only; letters and apostrophes, a letter at least
CHINESE, LATIN = re.compile(r"[\u3400-\u9fff]+"), re.compile(r"[a-z']*[a-z][a-z']*")


class SubwordUnits(nn.Module):
    """Tokens are embedded by their sub-word units. The embedding begins at zero, which does not
    disturb the encoder at first."""

    def __init__(self, tokens: torch.Tensor, unit_count: int, width: int, out: int) -> None:
        """Initialise the weights. tokens: (V, U) int, the units of every token by numbers from 1 to
        N, 0 where there is none; unit_count: N; width: W; out: E."""
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
    """Return the sub-word units of every token of a vocabulary; None for "none". rows, out: V and E
    of the table of embeddings, which may have more rows than the vocabulary.

    Raises InputError for an unknown kind, or a vocabulary in which no token has units; MissingExtra
    without the package.
    """
    if kind not in SUBWORDS:
        raise InputError(
            f"there are no sub-word units {kind!r}; choose one of {', '.join(SUBWORDS)}"
        )
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
        units_of = {token_id: syllable_parts(text) for token_id, text in texts.items()}
    else:  # of American English; a piece of a word is pronounced as if it were a word
        phones = pronounce(list(texts.values()), "en-us")
        units_of = dict(zip(texts, phones, strict=True))
    inventory = sorted({unit for units in units_of.values() for unit in units})
    numbers = {unit: i for i, unit in enumerate(inventory, 1)}
    if not numbers:
        raise InputError(
            f"no token of this text encoder has {kind}; choose other --subwords or "
            "another --text-encoder"
        )
    longest = min(LONGEST, max(map(len, units_of.values())))
    tokens = torch.zeros(rows, longest, dtype=torch.int32)
    for token_id, units in units_of.items():
        row = [numbers[unit] for unit in units[:longest]]
        tokens[token_id, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return SubwordUnits(tokens, len(numbers), WIDTH, out)
