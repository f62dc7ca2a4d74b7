"""Real text for pre-training and for tasks: documents of paragraphs, their sentences, tokens and vocabularies.

A text is a folder of .txt files, one of them, or a prepared corpus, whose written passages are taken. A file is a document, with an
empty line between paragraphs; the passages of a corpus whose ids are ARTICLE_PARAGRAPH are paragraphs of their articles.
Letters: N tokens of a text, V tokens in a vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from speechssl.data.records import load_corpus
from speechssl.errors import InputError
from speechssl.io import checkpoint_folder, hash_json
from speechssl.text import syllables
from speechssl.textlm import read_tokenizer, special_tokens

SPECIALS = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
OWN, APART, PINYIN = "own", "apart", "pinyin"  # letters that a text is written in
SYLLABICS = 0x1400  # from a Latin letter to a Canadian syllabic, which no tokeniser changes
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])|(?<=\s[.!?])\s+|(?<=[.!?])\n|(?<=[。！？])")
_PLACE = re.compile(r"^(.*\d+)_\d+$")  # ARTICLE_PARAGRAPH


@dataclass(frozen=True)
class Text:
    """Documents by name, each a list of paragraphs."""

    documents: Mapping[str, Sequence[str]]
    source: str

    @property
    def paragraphs(self) -> list[str]:
        return [paragraph for some in self.documents.values() for paragraph in some]

    def first(self, count: int | None) -> Text:
        """Its first documents; None: all."""
        return self if count is None else replace(self, documents=dict(list(self.documents.items())[:count]))

    def spelt(self, letters: str) -> Text:
        """In other letters, as `respell` has them."""
        some = {name: [respell(paragraph, letters) for paragraph in each] for name, each in self.documents.items()}
        return self if letters == OWN else replace(self, documents=some)

    @property
    def hash(self) -> str:
        return hash_json({name: list(some) for name, some in self.documents.items()})


def read_text(source: Path, split: str = "train") -> Text:
    """Read a text. split: of a prepared corpus. Raises InputError where there is none, or nothing is written in it."""
    documents: dict[str, list[str]] = {}
    if any(source.glob("*/passages.jsonl")):
        for passage in load_corpus(source, split).passages.values():
            found = _PLACE.match(passage.id)
            documents.setdefault(found[1] if found else passage.id, []).append(_unwrapped(passage.written))
    else:
        files = [source] if source.is_file() else sorted(source.rglob("*.txt"))
        if not files:
            raise InputError(f"{source} has no text; give a folder of .txt files, one of them, or a prepared corpus")
        for path in files:
            try:
                written = path.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(f"cannot read the text {path} ({error}); write it as UTF-8 or take it away") from error
            name = path.name if path == source else path.relative_to(source).as_posix()
            documents[name] = [_unwrapped(paragraph) for paragraph in re.split(r"\n\s*\n", written)]
    documents = {name: kept for name, some in documents.items() if (kept := [p for p in some if p])}
    if not documents:
        raise InputError(f"the text in {source} is empty; give a folder of .txt files in which something is written")
    return Text(documents, source.name)


def respell(written: str, letters: str) -> str:
    """own: as it is; apart: every Latin letter another character, so that no symbol is shared with a text in Latin letters and
    everything else stays as it is ("fake English", arXiv 1912.07840); pinyin: Chinese in Latin letters, without tones, a syllable a
    word. Raises MissingExtra for pinyin without its package.
    """
    if letters == APART:
        return re.sub("[a-z]", lambda found: chr(ord(found[0]) + SYLLABICS), written.lower())
    if letters == PINYIN:
        return " ".join(re.sub(r"([a-zü]+)[1-5]", r" \1 ", syllables(written)).split())
    return written


def _unwrapped(paragraph: str) -> str:
    """In one line, but for the ends of lines that end a sentence."""
    lines = (" ".join(line.split()) for line in paragraph.splitlines())
    return re.sub(r"(?<![.!?])\n", " ", "\n".join(filter(None, lines)))


def sentences(paragraph: str) -> list[str]:
    """Those of a paragraph, by their punctuation (English and Chinese)."""
    return [s for s in (part.strip() for part in _END.split(paragraph)) if s]


# ---- vocabularies


def load_vocabulary(name: str, masked: bool = True) -> PreTrainedTokenizerBase:
    """The tokeniser of a folder or hub id. Raises InputError where there is none, or none with [CLS], [SEP] and, for masked
    pre-training, a mask.
    """
    source = str(checkpoint_folder(name, "text encoder"))
    tokenizer = read_tokenizer(source, "give a --tokenizer with tokenizer.json or a vocabulary")
    if masked:
        check_specials(tokenizer, name)
    special_tokens(tokenizer)
    return tokenizer


def check_specials(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Raises InputError for a tokeniser without the symbols that masked pre-training needs."""
    special_tokens(tokenizer)
    if tokenizer.mask_token_id is None:
        raise InputError(f"the tokeniser of {name} has no mask token, which pre-training needs; choose one with [MASK] or <mask>")


def train_vocabulary(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """A WordPiece vocabulary of at most V entries, lower case, fitted to a text."""
    core = Tokenizer(models.WordPiece(unk_token=SPECIALS["unk_token"]))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=list(SPECIALS.values()), show_progress=False)
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, **SPECIALS)


def symbol_vocabulary(symbols: Iterable[str]) -> PreTrainedTokenizerFast:
    """A vocabulary of symbols, which have no blanks in them, behind the specials."""
    listed = [*SPECIALS.values(), *symbols]
    core = Tokenizer(models.WordLevel({token: i for i, token in enumerate(listed)}, unk_token=SPECIALS["unk_token"]))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, **SPECIALS)


def plain_ids(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """All ids of a vocabulary but those of specials, in order."""
    special = {*tokenizer.all_special_ids, *(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)}
    return np.array(sorted(set(tokenizer.get_vocab().values()) - special), np.int64)


# ---- tokens


@dataclass(frozen=True)
class TokenText:
    """A text as tokens, one document after another."""

    ids: np.ndarray  # (N,)
    words: np.ndarray  # (N,) bool: a word begins
    sentences: np.ndarray  # (N,) bool: a sentence begins

    def part(self, rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`length` tokens, or all there are, from anywhere: ids, beginnings of words, beginnings of sentences."""
        first = int(rng.integers(max(len(self.ids) - length, 0) + 1))
        place = slice(first, first + length)
        return self.ids[place], self.words[place], self.sentences[place]


def tokenise(text: Text, tokenizer: PreTrainedTokenizerBase) -> TokenText:
    """Raises InputError for a slow tokeniser, which does not say where words begin, or one that knows nothing of the text."""
    if not tokenizer.is_fast:
        raise InputError("the tokeniser has no tokenizer.json, which says where words begin; choose an encoder that has one")
    ids, words, begins = [], [], []
    for sentence in (s for paragraph in text.paragraphs for s in sentences(paragraph)):
        found = tokenizer(sentence, add_special_tokens=False)
        owners = found.word_ids()
        ids += found["input_ids"]
        words += [i == 0 or owner != owners[i - 1] for i, owner in enumerate(owners)]
        begins += [i == 0 for i in range(len(owners))]
    made = np.array(ids, np.int64)
    if not len(made) or (made == tokenizer.unk_token_id).mean() > 0.5:
        raise InputError(f"the tokeniser knows less than half of the text {text.source}; give one of its language (--tokenizer)")
    return TokenText(made, np.array(words), np.array(begins))
