"""Make data for pre-training: artificial sequences of ids that have one property of language and no
meaning (arXiv 2109.03537), and the sentences, vocabularies and tokens of real texts.

A stream makes one sequence from a generator of random numbers and a length. Its ids are 0 to V - 1;
the caller gives them tokens of a vocabulary.

    random      ids drawn uniformly
    unigram     ids as frequent as the tokens of a text
    bigram      ids that follow each other as often as the tokens of a text
    nested      every id occurs in pairs, one pair around another, as brackets do
    flat        every id occurs in pairs that may cross; flat-D: partners at most D places apart
    shuffle-N   runs of N consecutive ids, each in random order; N = 4, 6, 64 in the paper
    dyck-K      brackets of K kinds, opening and closing ones with different ids, well nested
    copy        a random half, and the same again; copy-N: pieces of N ids, each said twice (a task
                of arXiv 2206.10139)

Letters: V ids, L length of a sequence, N tokens of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from speechssl.artifacts import hash_json, read_text
from speechssl.checkpoints import fetch_checkpoint
from speechssl.data.records import load_corpus
from speechssl.errors import InputError
from speechssl.text.chinese import write_pinyin
from speechssl.textlm.tokenizers import find_special_tokens, read_tokenizer

if TYPE_CHECKING:  # transformers takes seconds to import, here and below
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

Stream = Callable[[np.random.Generator, int], np.ndarray]  # (generator, L) -> (L,) int64
NAMES = ("random", "unigram", "bigram", "nested", "flat", "shuffle-N", "dyck-K", "copy")
OF_TEXT = ("unigram", "bigram")  # artificial data that imitate a text
# "random", "flat", "shuffle-64"
_NAME = re.compile(r"(random|nested)|(flat|shuffle|dyck|copy)(?:-([1-9]\d*))?")


def make_stream(name: str, symbols: int, text: np.ndarray | None = None) -> Stream:
    """Return the stream of a name. symbols: V; text: (N,) ids of a real text, which unigram and
    bigram imitate.

    Raises InputError for a name that there is not, a number that does not fit V, or an imitation
    without a text.
    """
    if name in OF_TEXT:
        if text is None:
            raise InputError(f"the artificial data {name} imitate a text; give one with --text")
        if name == "bigram":
            return BigramSampler(text)
        return lambda rng, length: text[rng.integers(len(text), size=length)]
    match = _NAME.fullmatch(name)
    if not match:
        raise InputError(f"there is no artificial data {name!r}; choose from {', '.join(NAMES)}")
    return _make_kind(match[1] or match[2], int(match[3] or 0), symbols)


def dependency_distance(name: str) -> int | None:
    """Return the greatest distance of tokens that depend on each other; None for a name without
    it."""
    match = re.fullmatch(r"(?:shuffle|flat|copy)-([1-9]\d*)", name)
    return int(match[1]) if match else None


def _make_kind(kind: str, number: int, symbols: int) -> Stream:
    """Return a stream of one kind. number: the N of a name such as shuffle-N; 0 without one."""
    needed = {"shuffle": number, "dyck": 2 * number}.get(kind, 1)
    if not 0 < needed <= symbols:
        raise InputError(
            f"{kind}-{number} needs {needed} of the {symbols} symbols of the vocabulary; give "
            f"another number, as {kind}-4"
        )
    makers: dict[str, Stream] = {
        "random": lambda rng, length: rng.integers(symbols, size=length),
        "nested": lambda rng, length: _draw_nested(rng, length, symbols),
        "flat": lambda rng, length: _draw_flat(rng, length, symbols, number or length),
        "shuffle": lambda rng, length: _draw_shuffled(rng, length, symbols, number),
        "dyck": lambda rng, length: _draw_dyck(rng, length, number),
        "copy": lambda rng, length: _draw_copied(
            rng, length, symbols, number or max(length // 2, 1)
        ),
    }
    return makers[kind]


class BigramSampler:
    """A walk through a text goes from a token to the one that follows it at a random one of its
    places."""

    def __init__(self, text: np.ndarray) -> None:
        """List the places of every token. text: (N,)."""
        self.text = text
        self.places = np.argsort(text[:-1], kind="stable")
        tokens, counts = np.unique(text[:-1], return_counts=True)
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        # token -> number of its first entry in `places`, and how many entries it has
        self.places_of: dict[int, tuple[int, int]] = {}
        for token, first, count in zip(tokens.tolist(), firsts, counts, strict=True):
            self.places_of[token] = (int(first), int(count))

    def __call__(self, rng: np.random.Generator, length: int) -> np.ndarray:
        ids = [int(self.text[rng.integers(len(self.text))])]
        draws = rng.random(length)
        while len(ids) < length:
            # the last token of the text may occur nowhere else: then the walk goes on anywhere
            first, count = self.places_of.get(ids[-1], (0, len(self.places)))
            place = self.places[first + int(draws[len(ids)] * count)]
            ids.append(int(self.text[place + 1]))
        return np.array(ids, np.int64)


def draw_brackets(rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a sequence of nested pairs: the number of the pair at every place (L,), and whether
    the pair opens there (L,).

    An even number of places is filled with whole pairs; of an odd one the last place opens a pair
    that is cut off.
    """
    even = length - length % 2
    coins = rng.random(length) < 0.5
    pairs = np.empty(length, np.int64)
    opens = np.zeros(length, bool)
    count = 0
    stack: list[int] = []  # pairs that are open
    for i in range(length):
        remaining = even - i  # places to close the pairs on the stack
        if not stack or (coins[i] and len(stack) < remaining):
            stack.append(count)
            pairs[i] = count
            opens[i] = True
            count += 1
        else:
            pairs[i] = stack.pop()
    return pairs, opens


def _draw_nested(rng: np.random.Generator, length: int, symbols: int) -> np.ndarray:
    """Draw an id for every pair of nested brackets."""
    pairs, _ = draw_brackets(rng, length)
    return rng.integers(symbols, size=length)[pairs]


def _draw_dyck(rng: np.random.Generator, length: int, kinds: int) -> np.ndarray:
    """Draw brackets, of which kind k opens as id k and closes as id K + k."""
    pairs, opens = draw_brackets(rng, length)
    return rng.integers(kinds, size=length)[pairs] + np.where(opens, 0, kinds)


def _draw_flat(rng: np.random.Generator, length: int, symbols: int, farthest: int) -> np.ndarray:
    """Give every place from left to right a partner among the free places that are at most
    `farthest` away; where none is free it stays alone."""
    filled = np.full(length, -1, np.int64)
    ids = rng.integers(symbols, size=length)
    draws = rng.random(length)
    for i in range(length):
        if filled[i] < 0:
            filled[i] = ids[i]
            free = np.flatnonzero(filled[i + 1 : i + 1 + farthest] < 0)
            if len(free):
                filled[i + 1 + free[int(draws[i] * len(free))]] = ids[i]
    return filled


def _draw_shuffled(rng: np.random.Generator, length: int, symbols: int, run: int) -> np.ndarray:
    """Draw runs of consecutive ids, each in random order."""
    firsts = rng.integers(symbols - run + 1, size=ceil(length / run))
    return np.concatenate([first + rng.permutation(run) for first in firsts])[:length]


def _draw_copied(rng: np.random.Generator, length: int, symbols: int, piece: int) -> np.ndarray:
    """Draw pieces, each of which occurs twice in a row."""
    count = ceil(length / (2 * piece))
    pieces = [np.tile(rng.integers(symbols, size=piece), 2) for _ in range(count)]
    return np.concatenate(pieces)[:length]


SPECIALS = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}
OWN, APART, PINYIN = "own", "apart", "pinyin"  # letters of a text: see `respell`
SYLLABICS = 0x1400  # added to a Latin letter gives a Canadian syllabic, which no tokeniser changes
# quotation marks and brackets that belong to the sentence before; behind "。" a " may open the next
CLOSING = "[\"')\\]」』”’）]"
CLOSING_WIDE = "[」』”’）]"
# matches between two sentences: of "He left. She left." the blank before "She"; "" behind "。"
_END = re.compile(
    rf"(?:(?<=[.!?])|(?<=[.!?]{CLOSING})|(?<=[.!?]{CLOSING}{CLOSING}))\s+(?=[\"'(\[]*[A-Z0-9])"
    rf"|(?<=\s[.!?])\s+|(?<=[.!?])\n|(?<=[。！？])(?!{CLOSING_WIDE})"
    rf"|(?<=[。！？]{CLOSING_WIDE})(?!{CLOSING_WIDE})|(?<=[。！？]{CLOSING_WIDE}{CLOSING_WIDE})"
)
_PLACE = re.compile(r"^(.*\d+)_\d+$")  # ARTICLE_PARAGRAPH: "12" of "12_3"


@dataclass(frozen=True)
class Text:
    """A text has documents of paragraphs."""

    documents: Mapping[str, Sequence[str]]  # name -> paragraphs
    source: str  # name of the file or folder

    @property
    def paragraphs(self) -> list[str]:
        return [paragraph for document in self.documents.values() for paragraph in document]

    def first(self, count: int | None) -> Text:
        """Keep the first documents; None: all."""
        return replace(self, documents=dict(islice(self.documents.items(), count)))

    def respell(self, letters: str) -> Text:
        """Write the text in other letters, as the function `respell` does."""
        documents = {}
        for name, paragraphs in self.documents.items():
            documents[name] = [respell(paragraph, letters) for paragraph in paragraphs]
        return replace(self, documents=documents)

    @property
    def hash(self) -> str:
        return hash_json({name: list(paragraphs) for name, paragraphs in self.documents.items()})


def load_text(source: Path, split: str = "train") -> Text:
    """Load a folder of .txt files, one of them, or a split of a prepared corpus. Raises InputError
    where there is no text."""
    documents: dict[str, list[str]] = {}
    if any(source.glob("*/passages.jsonl")):
        for passage in load_corpus(source, split).passages.values():
            match = _PLACE.match(passage.id)
            name = match[1] if match else passage.id
            documents.setdefault(name, []).append(_unwrap(passage.written))
    else:
        for path in [source] if source.is_file() else sorted(source.rglob("*.txt")):
            content = read_text(path, "write it as UTF-8 or take it away", "the text")
            name = path.name if path == source else path.relative_to(source).as_posix()
            documents[name] = [_unwrap(paragraph) for paragraph in re.split(r"\n\s*\n", content)]
    not_empty = {}
    for name, paragraphs in documents.items():
        if any(paragraphs):
            not_empty[name] = [paragraph for paragraph in paragraphs if paragraph]
    if not not_empty:
        raise InputError(
            f"{source} has no text; give a folder of .txt files, one of them, or a prepared corpus"
        )
    return Text(not_empty, source.name)


def respell(text: str, letters: str) -> str:
    """Write a text in other letters.

    own: it stays as it is; apart: every Latin letter becomes another character, so that no symbol
    is shared with a text in Latin letters ("fake English", arXiv 1912.07840); pinyin: Chinese in
    Latin letters, without tones, a syllable a word. Raises MissingExtra for pinyin without its
    package.
    """
    if letters == APART:
        return re.sub("[a-z]", lambda match: chr(ord(match[0]) + SYLLABICS), text.lower())
    if letters == PINYIN:
        return " ".join(re.sub(r"([a-zü]+)[1-5]", r" \1 ", write_pinyin(text)).split())
    return text


def _unwrap(paragraph: str) -> str:
    """Join the lines of a paragraph, except where a line ends a sentence."""
    lines = (" ".join(line.split()) for line in paragraph.splitlines())
    return re.sub(r"(?<![.!?])\n", " ", "\n".join(filter(None, lines)))


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph at its punctuation (English and Chinese)."""
    return [s for s in (part.strip() for part in _END.split(paragraph)) if s]


# ---- vocabularies


def load_vocabulary(name: str) -> PreTrainedTokenizerBase:
    """Load the tokeniser of a folder or hub id. Raises InputError where there is none, or none with
    [CLS] and [SEP]."""
    source = str(fetch_checkpoint(name, "text encoder"))
    tokenizer = read_tokenizer(source, "give a --tokenizer with tokenizer.json or a vocabulary")
    find_special_tokens(tokenizer)
    return tokenizer


def train_vocabulary(texts: Sequence[str], size: int) -> PreTrainedTokenizerFast:
    """Return a WordPiece vocabulary of at most V entries, lower case, fitted to a text; the same
    text gives the same ids.

    The trainer gives ids to letters within words (##e) in the order of a hash table, which differs
    from run to run, and decides between equally frequent pieces by their ids. Therefore these
    letters are special tokens in training, whose ids follow the list; the result has them as usual
    tokens.
    """
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordPiece(unk_token=SPECIALS["unk_token"]))
    core.normalizer = normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = splitter = pre_tokenizers.BertPreTokenizer()
    letters: set[str] = set()
    for text in texts:
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)):
            letters.update(f"##{letter}" for letter in word[1:])
    in_order = [*SPECIALS.values(), *sorted(letters)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=in_order, show_progress=False
    )
    core.train_from_iterator(texts, trainer)
    fitted = Tokenizer(models.WordPiece(core.get_vocab(), unk_token=SPECIALS["unk_token"]))
    fitted.normalizer, fitted.pre_tokenizer = normalizer, splitter
    fitted.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=fitted, **SPECIALS)


def make_symbol_vocabulary(symbols: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a vocabulary of symbols without blanks; specials come first."""
    from transformers import PreTrainedTokenizerFast

    numbers = {token: i for i, token in enumerate([*SPECIALS.values(), *symbols])}
    core = Tokenizer(models.WordLevel(numbers, unk_token=SPECIALS["unk_token"]))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, **SPECIALS)


def list_plain_ids(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """Return all ids of a vocabulary but those of specials, in order."""
    special = set(tokenizer.all_special_ids)
    special.update(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)
    return np.array(sorted(set(tokenizer.get_vocab().values()) - special), np.int64)


def find_tokens(tokenizer: PreTrainedTokenizerBase, symbols: Sequence[str]) -> list[int]:
    """Return the id of the token that is written as each symbol. Raises InputError for a vocabulary
    without one of them."""
    ids = tokenizer.get_vocab()
    lacking = [symbol for symbol in symbols if symbol not in ids]
    if lacking:
        raise InputError(
            f"the tokeniser has no token {lacking[0]!r}, and {len(lacking)} of {len(symbols)} "
            "symbols have none; give one that was pre-trained on them, or another --assignment"
        )
    return [ids[symbol] for symbol in symbols]


# ---- tokens


@dataclass(frozen=True)
class TokenText:
    """The tokens of a text follow each other, one document after another."""

    ids: np.ndarray  # (N,)
    words: np.ndarray  # (N,) bool: whether a word begins there
    sentences: np.ndarray  # (N,) bool: whether a sentence begins there

    def draw_part(
        self, rng: np.random.Generator, length: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sample `length` successive tokens, or all of a shorter text: ids, beginnings of words,
        beginnings of sentences."""
        first = int(rng.integers(max(len(self.ids) - length, 0) + 1))
        part = slice(first, first + length)
        return self.ids[part], self.words[part], self.sentences[part]


def tokenise(text: Text, tokenizer: PreTrainedTokenizerBase) -> TokenText:
    """Split a text into tokens. Raises InputError for a tokeniser that knows less than half of
    it."""
    ids, begins_word, begins_sentence = [], [], []
    for paragraph in text.paragraphs:
        for sentence in split_sentences(paragraph):
            encoded = tokenizer(sentence, add_special_tokens=False)
            ids += encoded["input_ids"]
            word_of = encoded.word_ids()  # number of the word of every token
            for i, word in enumerate(word_of):
                begins_word.append(i == 0 or word != word_of[i - 1])
                begins_sentence.append(i == 0)
    token_ids = np.array(ids, np.int64)
    if not len(token_ids) or (token_ids == tokenizer.unk_token_id).mean() > 0.5:
        raise InputError(
            f"the tokeniser knows less than half of the text {text.source}; give "
            "one of its language (--tokenizer)"
        )
    return TokenText(token_ids, np.array(begins_word), np.array(begins_sentence))
