"""This module makes embedding tables by which a text encoder reads symbols other than its own
tokens: units or characters.

Units (DUAL, arXiv 2203.04911, section 4.4 and table 3) get the embeddings of tokens, or new ones,
in five ways; a sixth, `released`, is the way of DUAL's released code. Which token a unit gets is
arbitrary in all of them; the idea is that of arXiv 2103.07162. Characters serve a language that the
text encoder does not know: the layers are pre-trained, the meaning of a character is learnt from
the corpus.

Letters: K symbols, E embedding width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from speechssl.errors import InputError
from speechssl.textlm.encoders import make_encoder
from speechssl.textlm.tokenizers import find_special_tokens, make_character_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

ASSIGNMENTS = ("most-frequent", "released", "least-frequent", "random", "re-init", "scratch")
RELEASED = 5  # the id of the first unit in DUAL's train.py, whose Longformer has specials before it
# tokens that vocabularies hold in reserve: BERT's [unused1], Gemma's <unused1>, fairseq's
# madeupword0001
UNUSED = re.compile(r"^(\[unused\d+\]|<unused\d+>|madeupword\d+)$")
SPECIALS = 3  # [CLS], [SEP], [PAD] follow the K symbols in the table


class SeenTokens(nn.Module):
    """This table trains the rows of the tokens that it has seen, and keeps the others as they are.

    The others would have a gradient of 0: training is that of the whole table, in less time and
    memory. Of the 250,000 tokens of a multilingual encoder a corpus has some thousands.
    """

    def __init__(self, table: nn.Embedding, seen: torch.Tensor) -> None:
        """table: (V, E), whose weights are shared; seen: (N,) different ids of tokens."""
        super().__init__()
        self.embedding_dim = table.embedding_dim
        places = torch.full((table.num_embeddings,), -1)
        places[seen] = torch.arange(len(seen))
        self.register_buffer("places", places, persistent=False)  # (V,), in `seen`, or -1
        self.register_buffer("ids", seen, persistent=False)
        self.table = nn.Embedding.from_pretrained(table.weight.detach())
        self.seen = nn.Embedding.from_pretrained(table.weight.detach()[seen], freeze=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Embed ids (B, S) as (B, S, E)."""
        places = self.places[ids]
        seen = self.seen(places.clamp(min=0))
        return torch.where(places[..., None] < 0, self.table(ids), seen)

    def merge(self) -> nn.Embedding:
        """Return the whole table, with the rows that were trained."""
        weights = self.table.weight.index_copy(0, self.ids, self.seen.weight.detach())
        return nn.Embedding.from_pretrained(weights, freeze=False)


def list_specials(symbols: int) -> tuple[int, int, int]:
    """Return the ids of [CLS], [SEP] and [PAD] in a table of K symbols."""
    return symbols, symbols + 1, symbols + 2


def embed_symbols(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    symbols: int,
    assignment: str,
    seed: int = 0,
) -> tuple[PreTrainedModel, nn.Embedding]:
    """Return the encoder and an embedding table (K + 3, E) of symbols for its `inputs_embeds`.

    The assignment `re-init` keeps the layers and initialises new rows; `scratch` initialises
    everything; the others copy rows (`assign_tokens`). Raises InputError for an unknown assignment,
    or as `assign_tokens` does.
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
        table.weight.copy_(source[torch.tensor([*rows, *find_special_tokens(tokenizer)])])
    return model, table


def assign_tokens(
    tokenizer: PreTrainedTokenizerBase, symbols: int, assignment: str, seed: int = 0
) -> list[int]:
    """Choose a token id for every symbol.

    `released`: id k + 5 for symbol k, as in DUAL's train.py. The others choose among the whole
    words of two letters and more (`list_words`). The order of the vocabulary gives the frequency:
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
    words = list_words(tokenizer)
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


def list_words(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """List the ids of whole words of at least two letters, in the order of the vocabulary; of a
    vocabulary without any, such as ByT5's bytes, all ids but those of specials.
    """
    special = set(tokenizer.all_special_ids)
    # "the", "Ġthe" and "▁the" are words, "##ing" and "3rd" are none; \w has Ġ, too
    word = re.compile(r"^[Ġ▁]?[^\W\d_Ġ]{2,}$")
    ordered = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    tokens = [(token, index) for token, index in ordered if index not in special]
    words = [index for token, index in tokens if word.match(token)]
    return words or [index for _, index in tokens]


def embed_characters(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], seed: int = 0
) -> tuple[PreTrainedModel, nn.Embedding, PreTrainedTokenizerFast]:
    """Return the encoder, an embedding table (K + 3, E) of the characters of these texts for its
    `inputs_embeds`, and the tokeniser of the characters.

    The characters get the rows of the K commonest words of the encoder's vocabulary, shuffled by
    `seed`; [MASK] gets that of the encoder's [MASK] where it has one. Raises InputError where there
    are more characters than words.
    """
    characters = make_character_tokenizer(texts)
    symbols = len(characters) - SPECIALS
    encoder, table = embed_symbols(model, tokenizer, symbols, "most-frequent", seed)
    if tokenizer.mask_token_id is not None:
        rows = model.get_input_embeddings().weight
        with torch.no_grad():
            table.weight[characters.mask_token_id] = rows[tokenizer.mask_token_id].to(table.weight)
    return encoder, table, characters
