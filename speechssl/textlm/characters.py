"""Characters as a vocabulary of their own: each gets a row of a text encoder's embedding table, as units do (`mapping.py`).

For a language that the text encoder does not know, where no other is at hand: the layers are pre-trained, what a character means is
learnt from the corpus (2103.07162).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from speechssl.errors import InputError
from speechssl.textlm.mapping import special_ids, symbol_encoder

UNKNOWN, MASK, SPECIALS = "[UNK]", "[MASK]", ("[CLS]", "[SEP]", "[PAD]")


def character_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Every character that occurs is a token, small letters for capitals: [UNK], [MASK], the K - 2 characters from the commonest to
    the rarest, then [CLS], [SEP] and [PAD]. Raises InputError where there is none.
    """
    counts = Counter(c for text in texts for c in text.lower() if not c.isspace())
    if not counts:
        raise InputError("nothing is written in the train split to take characters from; leave --characters out")
    listed = [UNKNOWN, MASK, *(c for c, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))), *SPECIALS]
    core = Tokenizer(models.WordLevel({token: i for i, token in enumerate(listed)}, unk_token=UNKNOWN))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")])
    cls, sep, pad = SPECIALS
    named = {"unk_token": UNKNOWN, "mask_token": MASK, "cls_token": cls, "sep_token": sep, "pad_token": pad}
    return PreTrainedTokenizerFast(tokenizer_object=core, **named)


def character_encoder(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], seed: int = 0
) -> tuple[PreTrainedModel, nn.Embedding, PreTrainedTokenizerFast]:
    """The encoder, a table (K + 3, E) for its `inputs_embeds`, and the tokeniser of the characters.

    A character begins as one of the K commonest words of the encoder's vocabulary, which one is drawn by `seed`; [MASK] is the
    encoder's own where it has one.
    Raises InputError where there are more characters than words.
    """
    characters = character_tokenizer(texts)
    symbols = len(characters) - len(SPECIALS)
    assert special_ids(symbols) == tuple(characters.convert_tokens_to_ids(list(SPECIALS)))
    encoder, table = symbol_encoder(model, tokenizer, symbols, "most-frequent", seed)
    if tokenizer.mask_token_id is not None:
        rows = model.get_input_embeddings().weight
        with torch.no_grad():
            table.weight[characters.mask_token_id] = rows[tokenizer.mask_token_id].to(table.weight)
    return encoder, table, characters
