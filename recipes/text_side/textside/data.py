"""Artificial data for pre-training: sequences of ids that have one property of language and no
meaning (arXiv 2109.03537).

A stream makes one sequence from a generator of random numbers and a length. Its ids are 0 to V - 1;
which token of a vocabulary an id becomes is the business of whoever asks.

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
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from speechssl.artifacts import hash_json, read_text
from speechssl.checkpoints import checkpoint_folder
from speechssl.data.records import load_corpus
from speechssl.errors import InputError
from speechssl.text import syllables
from speechssl.textlm.tokenizers import read_tokenizer, special_tokens

if TYPE_CHECKING:  # here and below: it takes seconds to import
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

Stream = Callable[[np.random.Generator, int], np.ndarray]  # (generator, L) -> (L,) int64
NAMES = ("random", "unigram", "bigram", "nested", "flat", "shuffle-N", "dyck-K", "copy")
OF_TEXT = ("unigram", "bigram")  # those that imitate a text
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


def dependency(name: str) -> int | None:
    """Return how many places, at most, lie between tokens that depend on each other; None where the
    name does not say."""
    match = re.fullmatch(r"(?:shuffle|flat|copy)-([1-9]\d*)", name)
    return int(match[1]) if match else None


def _make_kind(kind: str, number: int, symbols: int) -> Stream:
    """Return a stream of one kind. number: behind its name, 0 where there is none."""
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
    """A walk through a text: from a token to what follows it at one of its places, drawn
    uniformly."""

    def __init__(self, text: np.ndarray) -> None:
        """List the places of every token. text: (N,)."""
        self.text = text
        self.places = np.argsort(text[:-1], kind="stable")
        kinds, counts = np.unique(text[:-1], return_counts=True)
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        places = zip(firsts.tolist(), counts.tolist(), strict=True)
        self.at = dict(zip(kinds.tolist(), places, strict=True))

    def __call__(self, rng: np.random.Generator, length: int) -> np.ndarray:
        ids, draws = [int(self.text[rng.integers(len(self.text))])], rng.random(length)
        while len(ids) < length:
            # the text's last token may occur nowhere else: anywhere
            first, count = self.at.get(ids[-1], (0, len(self.places)))
            place = self.places[first + int(draws[len(ids)] * count)]
            ids.append(int(self.text[place + 1]))
        return np.array(ids, np.int64)


def draw_brackets(rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a sequence of nested pairs: the number of the pair at every place (L,), and whether
    the pair opens there (L,).

    An even number of places is filled with whole pairs; of an odd one the last place opens a pair
    that is cut off.
    """
    whole, coins = length - length % 2, rng.random(length) < 0.5
    pairs, opens, count = np.empty(length, np.int64), np.zeros(length, bool), 0
    stack: list[int] = []
    for i in range(length):
        remaining = whole - i  # places that are left for those on the stack
        if i == whole or not stack or (coins[i] and len(stack) < remaining):
            stack.append(count)
            pairs[i], opens[i] = count, True
            count += 1
        else:
            pairs[i] = stack.pop()
    return pairs, opens


def _draw_nested(rng: np.random.Generator, length: int, symbols: int) -> np.ndarray:
    pairs, _ = draw_brackets(rng, length)
    return rng.integers(symbols, size=length)[pairs]


def _draw_dyck(rng: np.random.Generator, length: int, kinds: int) -> np.ndarray:
    """Draw brackets, of which kind k opens as id k and closes as id K + k."""
    pairs, opens = draw_brackets(rng, length)
    return rng.integers(kinds, size=length)[pairs] + np.where(opens, 0, kinds)


def _draw_flat(rng: np.random.Generator, length: int, symbols: int, farthest: int) -> np.ndarray:
    """Give every place from left to right a partner among the free ones within reach; where there
    is none it stays alone."""
    filled = np.full(length, -1, np.int64)
    ids, draws = rng.integers(symbols, size=length), rng.random(length)
    for i in range(length):
        if filled[i] < 0:
            filled[i] = ids[i]
            free = np.flatnonzero(filled[i + 1 : i + 1 + farthest] < 0)
            if len(free):
                filled[i + 1 + free[int(draws[i] * len(free))]] = ids[i]
    return filled


def _draw_shuffled(rng: np.random.Generator, length: int, symbols: int, run: int) -> np.ndarray:
    firsts = rng.integers(symbols - run + 1, size=-(-length // run))
    return np.concatenate([first + rng.permutation(run) for first in firsts])[:length]


def _draw_copied(rng: np.random.Generator, length: int, symbols: int, piece: int) -> np.ndarray:
    count = -(-length // (2 * piece))
    pieces = [np.tile(rng.integers(symbols, size=piece), 2) for _ in range(count)]
    return np.concatenate(pieces)[:length]


SPECIALS = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}
OWN, APART, PINYIN = "own", "apart", "pinyin"  # letters that a text is written in
SYLLABICS = 0x1400  # from a Latin letter to a Canadian syllabic, which no tokeniser changes
_END = re.compile(
    r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])|(?<=\s[.!?])\s+|(?<=[.!?])\n|(?<=[。！？])"
)
_PLACE = re.compile(r"^(.*\d+)_\d+$")  # ARTICLE_PARAGRAPH


@dataclass(frozen=True)
class Text:
    """Documents by name, each a list of paragraphs."""

    documents: Mapping[str, Sequence[str]]
    source: str

    @property
    def paragraphs(self) -> list[str]:
        return [paragraph for document in self.documents.values() for paragraph in document]

    def first(self, count: int | None) -> Text:
        """Keep the first documents; None: all."""
        return replace(self, documents=dict(islice(self.documents.items(), count)))

    def respell(self, letters: str) -> Text:
        """Write it in other letters, as the function `respell` does."""
        documents = {
            name: [respell(paragraph, letters) for paragraph in each]
            for name, each in self.documents.items()
        }
        return replace(self, documents=documents)

    @property
    def hash(self) -> str:
        return hash_json({name: list(paragraphs) for name, paragraphs in self.documents.items()})


def load_text(source: Path, split: str = "train") -> Text:
    """Load a folder of .txt files, one of them, or a prepared corpus. split: of a corpus. Raises
    InputError where nothing is written."""
    documents: dict[str, list[str]] = {}
    if any(source.glob("*/passages.jsonl")):
        for passage in load_corpus(source, split).passages.values():
            match = _PLACE.match(passage.id)
            documents.setdefault(match[1] if match else passage.id, []).append(
                _unwrap(passage.written)
            )
    else:
        for path in [source] if source.is_file() else sorted(source.rglob("*.txt")):
            written = read_text(path, "write it as UTF-8 or take it away", "the text")
            name = path.name if path == source else path.relative_to(source).as_posix()
            documents[name] = [_unwrap(paragraph) for paragraph in re.split(r"\n\s*\n", written)]
    documents = {name: list(filter(None, some)) for name, some in documents.items()}
    documents = {name: paragraphs for name, paragraphs in documents.items() if paragraphs}
    if not documents:
        raise InputError(
            f"{source} has no text; give a folder of .txt files, one of them, or a prepared corpus"
        )
    return Text(documents, source.name)


def respell(written: str, letters: str) -> str:
    """Write a text in other letters. own: as it is; apart: every Latin letter another character, so
    that no symbol is shared with a text in Latin letters and everything else stays as it is ("fake
    English", arXiv 1912.07840); pinyin: Chinese in Latin letters, without tones, a syllable a word.

    Raises MissingExtra for pinyin without its package.
    """
    if letters == APART:
        return re.sub("[a-z]", lambda match: chr(ord(match[0]) + SYLLABICS), written.lower())
    if letters == PINYIN:
        return " ".join(re.sub(r"([a-zü]+)[1-5]", r" \1 ", syllables(written)).split())
    return written


def _unwrap(paragraph: str) -> str:
    """Join the lines of a paragraph, but for the ends of lines that end a sentence."""
    lines = (" ".join(line.split()) for line in paragraph.splitlines())
    return re.sub(r"(?<![.!?])\n", " ", "\n".join(filter(None, lines)))


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph at its punctuation (English and Chinese)."""
    return [s for s in (part.strip() for part in _END.split(paragraph)) if s]


# ---- vocabularies


def load_vocabulary(name: str) -> PreTrainedTokenizerBase:
    """Load the tokeniser of a folder or hub id. Raises InputError where there is none, or none with
    [CLS] and [SEP]."""
    source = str(checkpoint_folder(name, "text encoder"))
    tokenizer = read_tokenizer(source, "give a --tokenizer with tokenizer.json or a vocabulary")
    special_tokens(tokenizer)
    return tokenizer


def train_vocabulary(texts: Sequence[str], size: int) -> PreTrainedTokenizerFast:
    """Return a WordPiece vocabulary of at most V entries, lower case, fitted to a text; the same
    text gives the same ids.

    The trainer gives ids to letters within words (##e) as a hash table has them, in another order
    each time, and decides between pieces that are equally frequent by their ids. Named to it as
    special tokens, which they are no longer afterwards, they have
    ids in order.
    """
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordPiece(unk_token=SPECIALS["unk_token"]))
    core.normalizer = normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = splitter = pre_tokenizers.BertPreTokenizer()
    letters: set[str] = set()
    for text in texts:
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)):
            letters.update(f"##{letter}" for letter in word[1:])
    first = [*SPECIALS.values(), *sorted(letters)]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=first, show_progress=False)
    core.train_from_iterator(texts, trainer)
    fitted = Tokenizer(models.WordPiece(core.get_vocab(), unk_token=SPECIALS["unk_token"]))
    fitted.normalizer, fitted.pre_tokenizer = normalizer, splitter
    fitted.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=fitted, **SPECIALS)


def symbol_vocabulary(symbols: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a vocabulary of symbols, which have no blanks in them, behind the specials."""
    from transformers import PreTrainedTokenizerFast

    listed = [*SPECIALS.values(), *symbols]
    numbers = {token: i for i, token in enumerate(listed)}
    core = Tokenizer(models.WordLevel(numbers, unk_token=SPECIALS["unk_token"]))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, **SPECIALS)


def list_plain_ids(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """List all ids of a vocabulary but those of specials, in order."""
    special = set(tokenizer.all_special_ids)
    special.update(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)
    return np.array(sorted(set(tokenizer.get_vocab().values()) - special), np.int64)


def find_tokens(tokenizer: PreTrainedTokenizerBase, symbols: Sequence[str]) -> list[int]:
    """Return the token of each symbol that has its name. Raises InputError for a vocabulary without
    one of them."""
    ids = tokenizer.get_vocab()
    lacking = [symbol for symbol in symbols if symbol not in ids]
    if lacking:
        raise InputError(
            f"the tokeniser has no token {lacking[0]!r}, and {len(lacking)} of {len(symbols)} "
            "symbols have none; give one that "
            "was pre-trained on them, or another --assignment"
        )
    return [ids[symbol] for symbol in symbols]


# ---- tokens


@dataclass(frozen=True)
class TokenText:
    """A text as tokens, one document after another."""

    ids: np.ndarray  # (N,)
    words: np.ndarray  # (N,) bool: a word begins
    sentences: np.ndarray  # (N,) bool: a sentence begins

    def draw_part(
        self, rng: np.random.Generator, length: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw `length` tokens, or all there are, from anywhere: ids, beginnings of words,
        beginnings of sentences."""
        first = int(rng.integers(max(len(self.ids) - length, 0) + 1))
        place = slice(first, first + length)
        return self.ids[place], self.words[place], self.sentences[place]


def tokenise(text: Text, tokenizer: PreTrainedTokenizerBase) -> TokenText:
    """Raise InputError for a tokeniser that knows less than half of the text."""
    ids, words, begins = [], [], []
    for sentence in (s for paragraph in text.paragraphs for s in split_sentences(paragraph)):
        encoded = tokenizer(sentence, add_special_tokens=False)
        owners = encoded.word_ids()
        ids += encoded["input_ids"]
        words += [i == 0 or owner != owners[i - 1] for i, owner in enumerate(owners)]
        begins += [i == 0 for i in range(len(owners))]
    token_ids = np.array(ids, np.int64)
    if not len(token_ids) or (token_ids == tokenizer.unk_token_id).mean() > 0.5:
        raise InputError(
            f"the tokeniser knows less than half of the text {text.source}; give "
            "one of its language (--tokenizer)"
        )
    return TokenText(token_ids, np.array(words), np.array(begins))
