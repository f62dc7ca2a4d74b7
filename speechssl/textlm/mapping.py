"""Symbols that are not text, given to a text encoder: each is mapped onto a row of its embedding table.

The five assignments of DUAL (arXiv 2203.04911, section 4.4 and table 3), and what its released code does in the place of the first,
`released`. Which token a unit gets is arbitrary in all of them; the idea is that of 2103.07162.
Letters: K symbols, E embedding width.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from speechssl.errors import InputError
from speechssl.textlm.pretrained import from_scratch

Assignment = Literal["most-frequent", "released", "least-frequent", "random", "re-init", "scratch"]
ASSIGNMENTS: tuple[str, ...] = get_args(Assignment)
RELEASED = 5  # the id of the first unit in DUAL's train.py, whose Longformer has specials before it
UNUSED = re.compile(
    r"^(\[unused\d+\]|<unused\d+>|madeupword\d+)$"
)  # rows that are kept free, in BERT's, Gemma's and fairseq's vocabularies
SPECIALS = 3  # [CLS], [SEP], [PAD] follow the K symbols in the table


def special_ids(symbols: int) -> tuple[int, int, int]:
    """Ids of [CLS], [SEP] and [PAD] in a table of K symbols."""
    return symbols, symbols + 1, symbols + 2


def symbol_encoder(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, symbols: int, assignment: str, seed: int = 0
) -> tuple[PreTrainedModel, nn.Embedding]:
    """The encoder and an embedding table (K + 3, E) for its `inputs_embeds`.

    `re-init` keeps the layers and draws new rows; `scratch` draws everything. Raises InputError for an unknown assignment, or
    what `assign_tokens` raises.
    """
    if assignment not in ASSIGNMENTS:
        raise InputError(f"there is no assignment {assignment!r}; choose one of {', '.join(ASSIGNMENTS)}")
    torch.manual_seed(seed)
    if assignment == "scratch":
        model = from_scratch(model.config)
    source = model.get_input_embeddings().weight.detach()
    table = nn.Embedding(symbols + SPECIALS, source.shape[1])
    if assignment in ("re-init", "scratch"):
        nn.init.normal_(table.weight, std=getattr(model.config, "initializer_range", 0.02))
        return model, table
    rows = [*assign_tokens(tokenizer, symbols, assignment, seed), *_special_tokens(tokenizer)]
    with torch.no_grad():
        table.weight.copy_(source[torch.tensor(rows)])
    return model, table


def assign_tokens(tokenizer: PreTrainedTokenizerBase, symbols: int, assignment: str, seed: int = 0) -> list[int]:
    """A token id for every symbol.

    `released`: id k + 5 for symbol k, as DUAL's train.py has it. The others choose among the whole words of two letters and more
    (`plain_words`). Frequency is read off the order of the vocabulary: WordPiece, BPE and unigram vocabularies are written from the
    commonest to the rarest. Which of the chosen words a symbol gets is drawn by `seed`.
    Raises InputError for a vocabulary with fewer words than symbols, and for `released` one with specials or unused ids there.
    """
    if assignment == "released":
        return _released(tokenizer, symbols)
    words = plain_words(tokenizer)
    if len(words) < symbols:
        raise InputError(f"the tokeniser has {len(words)} words, too few for {symbols} units; use a smaller codebook")
    rng = np.random.default_rng(seed)
    if assignment == "random":
        return [int(i) for i in rng.choice(words, size=symbols, replace=False)]
    chosen = words[:symbols] if assignment == "most-frequent" else words[-symbols:]
    return [int(i) for i in rng.permutation(chosen)]


def _released(tokenizer: PreTrainedTokenizerBase, symbols: int) -> list[int]:
    ids = list(range(RELEASED, RELEASED + symbols))
    tokens = {index: token for token, index in tokenizer.get_vocab().items()}
    special = set(tokenizer.all_special_ids)
    unfit = [i for i in ids if i not in tokens or i in special or UNUSED.match(tokens[i])]
    if unfit:
        raise InputError(
            f"the assignment released takes the ids {ids[0]} to {ids[-1]}, of which {len(unfit)} are no tokens of text in this "
            f"vocabulary (the first: {unfit[0]}, {tokens.get(unfit[0], 'which it does not have')}); choose a text encoder with "
            "RoBERTa's or Longformer's vocabulary, or the assignment most-frequent"
        )
    return ids


def plain_words(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of whole words of at least two letters, in the order of the vocabulary."""
    special = set(tokenizer.all_special_ids)
    word = re.compile(r"^[Ġ▁]?[^\W\d_Ġ]{2,}$")  # Ġ and ▁ mark the beginning of a word; Ġ counts as a letter itself
    ordered = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return [index for token, index in ordered if index not in special and word.match(token)]


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int, int]:
    start = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end
    if start is None or end is None:
        raise InputError("the text encoder's tokeniser has no [CLS] and [SEP] (or <s> and </s>); choose an encoder that has")
    return start, end, pad
