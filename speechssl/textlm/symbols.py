"""Symbols other than tokens get embeddings in a text encoder: units, characters, and the sub-word
units of tokens.

Units (DUAL, arXiv 2203.04911, section 4.4 and table 3) are assigned to tokens in five ways, or as
in DUAL's released code in the place of the first. Which token a unit gets is arbitrary in all of
them; the idea is that of arXiv 2103.07162. Characters are for a language that the text encoder does
not know: the layers are pre-trained, the meaning of a character is learnt from the corpus.

Sub-word units make words that a recogniser confuses look alike to the reader: those of ODSQA's
authors (arXiv 1808.02280) and of Spoken-SQuAD's (1804.00320). A small convolution reads a token's
pronunciation; its maximum over the units is added to the token's embedding (they concatenate both,
which a pre-trained encoder has no room for). A token is pronounced by itself: of a character with
several readings the commonest is taken.

Letters: K symbols, V tokens in the vocabulary, U units of the longest token, N units, W width of a
unit, E embedding width, B sequences, S tokens in a sequence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from speechssl.errors import InputError
from speechssl.synth.synthesisers import pronounce
from speechssl.text.chinese import syllable_parts
from speechssl.textlm.encoders import make_encoder
from speechssl.textlm.tokenizers import character_tokenizer, special_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

ASSIGNMENTS = ("most-frequent", "released", "least-frequent", "random", "re-init", "scratch")
RELEASED = 5  # the id of the first unit in DUAL's train.py, whose Longformer has specials before it
# tokens that are kept free in vocabularies: BERT's [unused1], Gemma's <unused1>, fairseq's
# madeupword0001
UNUSED = re.compile(r"^(\[unused\d+\]|<unused\d+>|madeupword\d+)$")
SPECIALS = 3  # [CLS], [SEP], [PAD] follow the K symbols in the table


def special_ids(symbols: int) -> tuple[int, int, int]:
    """Return the ids of [CLS], [SEP] and [PAD] in a table of K symbols."""
    return symbols, symbols + 1, symbols + 2


def symbol_encoder(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    symbols: int,
    assignment: str,
    seed: int = 0,
) -> tuple[PreTrainedModel, nn.Embedding]:
    """Return the encoder and an embedding table (K + 3, E) for its `inputs_embeds`.

    `re-init` keeps the layers and initialises new rows; `scratch` initialises everything. Raises
    InputError for an unknown assignment, or as `assign_tokens` does.
    """
    if assignment not in ASSIGNMENTS:
        raise InputError(
            f"there is no assignment {assignment!r}; choose one of {', '.join(ASSIGNMENTS)}"
        )
    torch.manual_seed(seed)
    if assignment == "scratch":
        model = make_encoder(model.config.to_dict())
    source = model.get_input_embeddings().weight.detach()
    table = nn.Embedding(symbols + SPECIALS, source.shape[1])
    if assignment in ("re-init", "scratch"):
        std = getattr(model.config, "initializer_range", None)
        if std is None:  # as in T5, whose embeddings are larger
            std = float(source.std())
        nn.init.normal_(table.weight, std=std)
        return model, table
    rows = assign_tokens(tokenizer, symbols, assignment, seed)
    with torch.no_grad():
        table.weight.copy_(source[torch.tensor([*rows, *special_tokens(tokenizer)])])
    return model, table


def assign_tokens(
    tokenizer: PreTrainedTokenizerBase, symbols: int, assignment: str, seed: int = 0
) -> list[int]:
    """Choose a token id for every symbol.

    `released`: id k + 5 for symbol k, as in DUAL's train.py. The others choose among the whole
    words of two letters and more (`plain_words`). The order of the vocabulary gives the frequency:
    WordPiece, BPE and unigram vocabularies go from the commonest to the rarest. The chosen words
    are shuffled by `seed`. Raises InputError for a vocabulary with fewer words than symbols, and in
    `released` for one with specials or unused ids there.
    """
    if assignment == "released":
        ids = list(range(RELEASED, RELEASED + symbols))
        tokens = {index: token for token, index in tokenizer.get_vocab().items()}
        special = set(tokenizer.all_special_ids)
        unfit = [i for i in ids if i not in tokens or i in special or UNUSED.match(tokens[i])]
        if unfit:
            raise InputError(
                f"the assignment released takes the ids {ids[0]} to {ids[-1]}, of which "
                f"{len(unfit)} are no tokens of text in this vocabulary; choose a text encoder "
                "with RoBERTa's or Longformer's vocabulary, or the assignment most-frequent"
            )
        return ids
    words = plain_words(tokenizer)
    if len(words) < symbols:
        raise InputError(
            f"the tokeniser has {len(words)} words, too few for {symbols} units; use a smaller "
            "codebook, or the assignment re-init"
        )
    rng = np.random.default_rng(seed)
    if assignment == "random":
        return [int(i) for i in rng.choice(words, size=symbols, replace=False)]
    chosen = words[:symbols] if assignment == "most-frequent" else words[-symbols:]
    return [int(i) for i in rng.permutation(chosen)]


def plain_words(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """List the ids of whole words of at least two letters, in the order of the vocabulary; of a
    vocabulary without any, such as ByT5's bytes, all ids but those of specials.
    """
    special = set(tokenizer.all_special_ids)
    # Ġ and ▁ mark the beginning of a word; "Ġthe" is one, "##ing" and "3rd" are none (Ġ counts as a
    # letter itself)
    word = re.compile(r"^[Ġ▁]?[^\W\d_Ġ]{2,}$")
    ordered = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    plain = [(token, index) for token, index in ordered if index not in special]
    words = [index for token, index in plain if word.match(token)]
    return words or [index for _, index in plain]


def character_encoder(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], seed: int = 0
) -> tuple[PreTrainedModel, nn.Embedding, PreTrainedTokenizerFast]:
    """Return the encoder, a table (K + 3, E) for its `inputs_embeds`, and the tokeniser of the
    characters.

    A character begins as one of the K commonest words of the encoder's vocabulary, shuffled by
    `seed`; [MASK] is the encoder's own where it has one. Raises InputError where there are more
    characters than words.
    """
    characters = character_tokenizer(texts)
    symbols = len(characters) - SPECIALS
    encoder, table = symbol_encoder(model, tokenizer, symbols, "most-frequent", seed)
    if tokenizer.mask_token_id is not None:
        rows = model.get_input_embeddings().weight
        with torch.no_grad():
            table.weight[characters.mask_token_id] = rows[tokenizer.mask_token_id].to(table.weight)
    return encoder, table, characters


SUBWORDS = ("none", "pinyin", "phones")
LONGEST = 12  # units of a token; what follows is left out
WIDTH = 64
MARKS = re.compile("^(##|Ġ|▁)")  # of tokens within a word (BERT), or at its beginning
# Chinese characters only; letters and apostrophes, a letter at least
CHINESE, LATIN = re.compile(r"[\u3400-\u9fff]+"), re.compile(r"[a-z']*[a-z][a-z']*")


class SubwordUnits(nn.Module):
    """Tokens are embedded by their sub-word units. The embedding begins at zero, which does not
    disturb the encoder at first."""

    def __init__(self, tokens: torch.Tensor, units: int, width: int, out: int) -> None:
        """Initialise the weights. tokens: (V, U) int, the units of every token by numbers from 1 to
        N, 0 where there is none; units: N; width: W; out: E."""
        super().__init__()
        self.register_buffer("tokens", tokens.to(torch.int32))
        self.units = nn.Embedding(units + 1, width, padding_idx=0)
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
        kinds, kind_of_token = ids.unique(return_inverse=True)
        units = self.tokens[kinds].long()
        real = (units > 0)[..., None]
        convolved = self.convolution(self.units(units).transpose(1, 2)).transpose(1, 2)
        greatest = torch.where(real, convolved, -1e4).amax(1)
        return (self.output(greatest) * real.any(1))[kind_of_token]


def subword_units(
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
    kinds = sorted({unit for units in units_of.values() for unit in units})
    numbers = {unit: i for i, unit in enumerate(kinds, 1)}
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
