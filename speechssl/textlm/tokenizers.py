"""This module loads tokenisers of text encoders, and makes one whose tokens are characters.

In shapes, S is the number of tokens.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from speechssl.errors import InputError, cut_error
from speechssl.text.chinese import FORMS

# here and below: it takes seconds to import, and a reader that ships answers without it
if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

HANZI = re.compile(r"[\u3400-\u9fff]")


def read_tokenizer(source: Path | str, remedy: str) -> PreTrainedTokenizerBase:
    """Load the tokeniser of a checkpoint. Raises InputError where there is none. remedy: the end of
    the message."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        # where a folder has no vocabulary, transformers makes a tokeniser of specials alone
        special = set(tokenizer.all_special_ids)
        special |= {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        if len(special.symmetric_difference(tokenizer.get_vocab().values())) <= 1:
            raise ValueError("it has neither tokenizer.json nor a vocabulary")
    except Exception as error:  # transformers, tokenizers and the hub client each raise their own
        raise InputError(
            f"cannot load the tokeniser in {source} ({cut_error(error)}); {remedy}"
        ) from error
    return tokenizer


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokeniser of a reader of words. Raises InputError where there is none, as in the
    folder of a reader of units."""
    return read_tokenizer(folder, "give a model that reads words, or train or fetch it again")


def read_wordpiece(folder: Path) -> Tokenizer | None:
    """Read the tokeniser of a BERT without transformers; return None for another's."""
    if not (folder / "tokenizer.json").is_file():
        return None
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    stored = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
        "strip_accents": settings.get("strip_accents"),
        "lowercase": settings.get("do_lower_case", True),
    }
    is_bert = (
        settings["tokenizer_class"].removesuffix("Fast") == "BertTokenizer"
        and stored["model"]["type"] == "WordPiece"
        and stored["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        and stored["normalizer"] == normalizer
    )
    if not is_bert:
        return None
    return Tokenizer.from_str(json.dumps(stored | {"truncation": None, "padding": None}))


def find_special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int, int]:
    """Return the ids of [CLS], [SEP] and [PAD], or in their place those of <s>, </s> and </s>.

    T5 has no token that begins a sequence; its padding, with which its decoder begins, takes the
    place of [CLS]. Raises InputError for a tokeniser without any of these.
    """
    cls, bos, sep, eos, pad = (
        getattr(tokenizer, f"{name}_token_id") for name in ("cls", "bos", "sep", "eos", "pad")
    )
    starts = [index for index in (cls, bos, pad) if index is not None]
    ends = [index for index in (sep, eos) if index is not None]
    if not starts or not ends:
        raise InputError(
            "the text encoder's tokeniser has no [CLS] and [SEP] (or <s> and </s>); "
            "choose an encoder that has"
        )
    return starts[0], ends[0], ends[0] if pad is None else pad


@dataclass(frozen=True, eq=False)
class TextCodec:
    """A codec encodes words as the token ids of one tokeniser."""

    tokenizer: PreTrainedTokenizerBase | Tokenizer

    def encode(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return token ids (S,) and the index of the word that each belongs to (S,). Punctuation
        around words is dropped, letters are lower-cased. Chinese words are single characters, which
        the tokeniser does not get to join; they are read in the form in which answers are compared
        (`text.chinese.FORMS`), the simplified one.
        """
        pieces = [_split_word(self.tokenizer, word.lower().translate(FORMS)) for word in words]
        ids = np.array([i for piece in pieces for i in piece], np.int64)
        return ids, np.repeat(np.arange(len(words)), [len(piece) for piece in pieces])


@lru_cache(maxsize=200_000)
def _split_word(tokenizer: PreTrainedTokenizerBase | Tokenizer, word: str) -> tuple[int, ...]:
    """Return the token ids of a word without the punctuation around it."""
    letters = []
    for i, c in enumerate(word):
        is_punctuation = c in string.punctuation or unicodedata.category(c)[0] == "P"
        if not is_punctuation:
            letters.append(i)
    if not letters:
        return ()
    word = word[letters[0] : letters[-1] + 1]
    # one of `read_wordpiece`, whose tokens do not mark where a word begins
    if isinstance(tokenizer, Tokenizer):
        return tuple(tokenizer.encode(f" {word}", add_special_tokens=False).ids)
    ids = tuple(tokenizer(f" {word}", add_special_tokens=False)["input_ids"])
    # in Chinese every character would have a token that only marks where a word begins
    if len(ids) < 2 or not HANZI.match(word):
        return ids
    is_mark = tokenizer.convert_ids_to_tokens(ids[0]) in ("▁", "Ġ", " ")
    return ids[1:] if is_mark else ids


UNKNOWN = "[UNK]"
MASK = "[MASK]"
SPECIALS_OF_CHARACTERS = ("[CLS]", "[SEP]", "[PAD]")


def make_character_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Make a tokeniser whose tokens are the characters that occur, in lower case and in the forms
    that `TextCodec` reads: [UNK], [MASK], the K - 2 characters from the commonest to the rarest,
    then [CLS], [SEP] and [PAD]."""
    from transformers import PreTrainedTokenizerFast

    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(c for c in text.lower().translate(FORMS) if not c.isspace())
    by_count = sorted(counts, key=lambda c: (-counts[c], c))
    tokens = [UNKNOWN, MASK, *by_count, *SPECIALS_OF_CHARACTERS]
    ids = {token: i for i, token in enumerate(tokens)}
    core = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    cls, sep, pad = SPECIALS_OF_CHARACTERS
    specials = {
        "unk_token": UNKNOWN,
        "mask_token": MASK,
        "cls_token": cls,
        "sep_token": sep,
        "pad_token": pad,
    }
    return PreTrainedTokenizerFast(tokenizer_object=core, **specials)
