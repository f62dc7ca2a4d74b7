"""Find words of two languages in texts or speech, and take the states of a text encoder for them.

Letters: B sequences, S tokens in a sequence, W words, L layers, H hidden width, V vocabulary, E
width of the embeddings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from speechssl.artifacts import hash_json, read_json, read_text
from speechssl.data.records import load_corpus
from speechssl.dual.data import collate
from speechssl.dual.model import EncoderInputs, load_reader
from speechssl.dual.system import choose_device
from speechssl.errors import InputError
from speechssl.synth.minisqa import load_vocabulary, split_phrases
from speechssl.text import choose_joiner
from speechssl.textlm.encoders import count_positions, load_text_encoder
from speechssl.textlm.layers import find_layers, hook_layer
from speechssl.textlm.symbols import assign_tokens
from speechssl.textlm.tokenizers import find_special_tokens, load_tokenizer
from speechssl.timing import FrameGrid, find_units
from speechssl.units.storage import load_units, read_units_card
from textside.data import Text, load_text, respell
from textside.options import TwoLanguages

MINISQA, SAME = "minisqa", "same"  # lexicons that are no files
SPLIT = "train"  # of corpora and units
SIDES = (0, 1)  # the first language and the second
FREQUENT = 300  # words of the lexicon `same`
# words that were found in a sequence: number of the word, its first token, the token behind it
Places = tuple[tuple[int, int, int], ...]
WordSequence = tuple[np.ndarray, Places]  # ids (S,), and the words that were found in it
Pair = tuple[str, str]  # a word and its translation
_HANZI = re.compile(r"[\u3400-\u9fff]")


# ---- encoders


class Body:
    """A text encoder reads tokens by an embedding table, on its device."""

    def __init__(
        self, encoder: PreTrainedModel, table: nn.Embedding, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        """Move an encoder to its device. table: (V, E), embeddings of its tokens."""
        device = choose_device()
        self.encoder = encoder.eval().requires_grad_(False).to(device)
        self.table = table.eval().requires_grad_(False).to(device)
        self.inputs = EncoderInputs(encoder, table.embedding_dim)
        self.tokenizer, self.device = tokenizer, device

    def __call__(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return (B, S, H). ids, mask: (B, S)."""
        return self.encoder(**self.inputs(self.table(ids), mask, None)).last_hidden_state


def load_body(name: str) -> Body:
    """Load a text encoder, or that of a reader of `train text-qa`. Raises InputError where it
    cannot be loaded."""
    config = Path(name) / "config.json"
    if config.is_file() and "symbols" in read_json(config):
        model, *_ = load_reader(Path(name))
        return Body(model.encoder, model.embedding, load_tokenizer(Path(name)))
    encoder, tokenizer = load_text_encoder(name)
    rows = encoder.get_input_embeddings().weight.detach()
    return Body(encoder, nn.Embedding.from_pretrained(rows.clone()), tokenizer)


# ---- lexicon


def read_lexicon(name: str, texts: Sequence[Text], letters: str) -> list[Pair]:
    """Read pairs of a word and its translation; letters: of the second text. Raises InputError for
    a file that is no lexicon."""
    pairs: list[Pair] = []
    if name == MINISQA:  # "red 红色, blue 蓝色, ..."
        for phrase in split_phrases(load_vocabulary("mandarin.yaml")["lexicon"]):
            english, _, chinese = phrase.rpartition(" ")
            pairs.append((english, chinese))
    elif name == SAME:
        counts = Counter(" ".join(texts[0].paragraphs).lower().split())
        pairs = [(word, word) for word in sorted(counts, key=lambda w: (-counts[w], w))[:FREQUENT]]
    else:
        content = read_text(Path(name), f"give a file, or {MINISQA} or {SAME}", "the lexicon")
        lines = [tuple(line.split("\t")) for line in content.splitlines()]
        if any(len(pair) != 2 for pair in lines):
            raise InputError(f"{name}: write a word, a tab and its translation in every line")
        pairs = [(a, b) for a, b in lines]
    return [(a.lower(), respell(b.lower(), letters)) for a, b in dict.fromkeys(pairs)]


def make_finder(words: Sequence[str]) -> Callable[[str], list[tuple[int, int, int]]]:
    """Make a function that finds words in a text: number of the word, first character, character
    behind it. Longer words are preferred; letters next to letters are no word."""
    if not words:
        return lambda _: []
    number = {word: i for i, word in enumerate(words)}
    ordered = sorted(number, key=len, reverse=True)
    pattern = re.compile(
        "|".join(re.escape(w) if _HANZI.search(w) else rf"\b{re.escape(w)}\b" for w in ordered)
    )
    return lambda written: [(number[m[0]], *m.span()) for m in pattern.finditer(written.lower())]


# ---- sequences


def cut_text(
    text: Text, words: Sequence[str], tokenizer: PreTrainedTokenizerBase, longest: int, most: int
) -> list[WordSequence]:
    """Cut a text into at most `most` pieces of at most `longest` tokens, and find words in them."""
    find = make_finder(words)
    pieces: list[WordSequence] = []
    for paragraph in text.paragraphs:
        if len(pieces) >= most:
            break
        encoded = tokenizer(
            paragraph, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        starts, ends = np.array(encoded["offset_mapping"], np.int64).reshape(-1, 2).T
        # tokens of XLM-R begin with the blank before a word, which is left out
        begins_blank = [paragraph[start : start + 1].isspace() for start in starts]
        starts = starts + (starts < ends) * begins_blank
        places = []
        for word, begin, end in find(paragraph):
            places.append((word, int((ends <= begin).sum()), int((starts < end).sum())))
        pieces += _cut(np.array(encoded["input_ids"], np.int64), places, longest)
    return pieces[:most]


def cut_units(
    corpus: Path, units: Path, words: Sequence[str], tokens: np.ndarray, longest: int, most: int
) -> list[WordSequence]:
    """Cut the units of spoken passages in the same way, and find words by their times. tokens: (K,)
    of the units. Raises InputError where no word has a time."""
    data = load_corpus(corpus, SPLIT)
    runs = load_units(units / SPLIT)
    find = make_finder(words)
    pieces: list[WordSequence] = []
    grid = FrameGrid(**read_units_card(units / SPLIT)["grid"])
    timed = [p for p in data.passages.values() if p.words and p.id in runs]
    if not timed:
        raise InputError(
            f"no passage of {corpus / SPLIT} has units and words with times; make times with "
            f"`speechssl align {corpus} OUT`"
        )
    for passage in timed:
        if len(pieces) >= most:
            break
        join = choose_joiner(passage.language)
        ends = np.cumsum([len(w.text) + len(join) for w in passage.words])  # characters
        places = []
        for word, begin, end in find(join.join(w.text for w in passage.words)):
            first_word = passage.words[int(np.searchsorted(ends, begin, "right"))]
            last_word = passage.words[int(np.searchsorted(ends, end - 1, "right"))]
            first, last = find_units(grid, runs[passage.id], first_word.start, last_word.end)
            places.append((word, first, last + 1))
        pieces += _cut(tokens[runs[passage.id].units], places, longest)
    return pieces[:most]


def _cut(
    ids: np.ndarray, places: Sequence[tuple[int, int, int]], longest: int
) -> list[WordSequence]:
    """Cut ids into pieces one after another; a word that lies in two is left out."""
    pieces = []
    for begin in range(0, len(ids), longest):
        end = begin + longest
        inside = tuple((w, a - begin, b - begin) for w, a, b in places if begin <= a < b <= end)
        pieces.append((ids[begin:end], inside))
    return pieces


# ---- states


@dataclass(frozen=True, eq=False)
class States:
    """States of words are means over their occurrences, at every layer."""

    words: np.ndarray  # (L + 1, W, H)
    counts: np.ndarray  # (W,) occurrences
    mean: np.ndarray  # (L + 1, H), of all tokens but specials


def pad_pieces(body: Body, sequences: Sequence[WordSequence]) -> tuple[torch.Tensor, torch.Tensor]:
    """Put pieces between [CLS] and [SEP] and pad them. Returns ids, mask (B, S), on the body's
    device."""
    cls, sep, pad = find_special_tokens(body.tokenizer)
    framed = []  # ids, and their number: there is no second segment
    for ids, _ in sequences:
        framed.append((np.concatenate([[cls], ids, [sep]]), len(ids) + 2))
    batch = collate(framed, pad)
    return batch["ids"].to(body.device), batch["mask"].to(body.device)


@torch.inference_mode()
def average_states(body: Body, sequences: Sequence[WordSequence], words: int, batch: int) -> States:
    """Return the mean states of words and of all tokens. words: W."""
    total: Any = 0
    sums: Any = 0
    counts, tokens = np.zeros(words), 0
    order = sorted(range(len(sequences)), key=lambda n: len(sequences[n][0]))
    for start in range(0, len(order), batch):
        pieces = [sequences[n] for n in order[start : start + batch]]
        with record_layers(body.encoder) as layers:
            body(*pad_pieces(body, pieces))
            states = torch.stack(layers).float().cpu().numpy()  # (L + 1, B, S, H)
        batch_sums = np.zeros((len(states), words, states.shape[-1]))
        for row, (ids, places) in enumerate(pieces):
            total = total + states[:, row, 1 : 1 + len(ids)].sum(1, dtype=np.float64)
            tokens += len(ids)
            for word, first, stop in places:
                batch_sums[:, word] += states[:, row, 1 + first : 1 + stop].mean(1)
                counts[word] += 1
        sums = sums + batch_sums
    return States(sums / np.maximum(counts, 1)[:, None], counts, total / max(tokens, 1))


@dataclass(frozen=True, eq=False)
class BilingualData:
    """Two languages have a lexicon, and a function that reads sequences of either."""

    pairs: Sequence[Pair]
    inputs: Mapping[str, Any]  # hashes of the texts, the lexicon and the units
    # called with a side, words to find, the body that is to read them, and the most tokens of a
    # piece
    read_sequences: Callable[[int, Sequence[str], Body, int], list[WordSequence]]


def read_languages(o: TwoLanguages) -> BilingualData:
    """Read the texts and the lexicon. Raises InputError where a text or units are missing."""
    folders = (o.first, o.second)
    texts = (load_text(o.first), load_text(o.second).respell(o.letters))
    pairs = read_lexicon(o.lexicon, texts, o.letters)
    inputs: dict[str, Any] = {"texts": [text.hash for text in texts], "lexicon": hash_json(pairs)}
    if o.units is not None and o.second_units is not None:
        units = [o.units, o.second_units]
        cards = [read_units_card(folder / SPLIT) for folder in units]
        check_one_codebook(cards)
        inputs["units"] = [[part["hash"] for part in card["parts"]] for card in cards]

    def read_sequences(
        side: int, words: Sequence[str], body: Body, longest: int
    ) -> list[WordSequence]:
        if "units" not in inputs:
            return cut_text(texts[side], words, body.tokenizer, longest, o.sequences)
        count = int(cards[0]["K"])
        tokens = np.array(assign_tokens(body.tokenizer, count, "most-frequent", o.seed), np.int64)
        return cut_units(folders[side], units[side], words, tokens, longest, o.sequences)

    return BilingualData(pairs, inputs, read_sequences)


def check_one_codebook(cards: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError for units of different codebooks. cards: of folders of units."""
    shared = set.intersection(*(set(card["codebooks"]) for card in cards))
    if not shared:
        raise InputError(
            "--units and --second-units are of different codebooks; extract both with one"
        )


def longest_piece(body: Body, length: int) -> int:
    """Return how many tokens of a piece fit beside its specials. length: of a sequence."""
    longest = count_positions(body.encoder)
    return (length if longest is None else min(length, longest)) - 2


@contextmanager
def record_layers(encoder: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Record the outputs of all layers in the list at every run of the encoder within the block,
    layer 0 first; the block empties it."""
    states: list[torch.Tensor] = []

    def keep(hidden: torch.Tensor) -> torch.Tensor:
        states.append(hidden)
        return hidden

    with ExitStack() as stack:
        for layer in range(len(find_layers(encoder)) + 1):
            stack.enter_context(hook_layer(encoder, layer, keep))
        yield states
