"""One space for languages: do words and their translations lie close, and what does the mean of a
language say?

    align      mean reciprocal rank of a word's translation among all words of the other language, at every layer. A word is the
               mean of its tokens' states over its occurrences; near is a great cosine, as the
               vectors are and with the mean of
               each language taken away (zero-mean). Of units a word is what is spoken between its
               times in the manifest
    vector     the shift from one language's mean to another's, for `train text-qa --shift` and `evaluate qa --shift`

    translate  unsupervised token translation (arXiv 2010.10041): the language vector, mean state of the second language less that
               of the first, is added alpha times to the output of a layer, and the head for masked
               tokens says what every token
               of a sentence has become. Scored are the share of tokens that are now the second
               language's (those that its text
               has more often), and, where words of the lexicon stood, how many of the tokens are
               among those of the translations
               of the piece, each as often as it is there (BLEU-1's precision, on that part of the
               text)

Letters: B sequences, S tokens in a sequence, W words, L layers, H hidden width, V vocabulary, E
width of the embeddings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from speechssl.data.records import load_corpus
from speechssl.dual.data import collate
from speechssl.dual.model import EncoderInputs, load_reader
from speechssl.dual.system import device_of
from speechssl.errors import InputError
from speechssl.io import checkpoint_folder, hash_json, read_json, read_text, stage
from speechssl.stats import BootstrapUnits
from speechssl.synth.minisqa import lexicon
from speechssl.text import joiner
from speechssl.text_side.data import Text, load_text, respell
from speechssl.text_side.objectives import MLM_HEAD, TokenHead
from speechssl.text_side.options import LanguageOptions
from speechssl.text_side.published import ALIGNMENT, CONVERTED, PRECISION
from speechssl.text_side.runs import encoder_named, run_folder, write_scores
from speechssl.textlm import (
    Shift,
    assign_tokens,
    changed,
    check_layer,
    layers_of,
    listening,
    load_shift,
    load_text_encoder,
    load_tokenizer,
    longest_sequence,
    reason_of,
    special_tokens,
)
from speechssl.timing import FrameGrid, units_of_interval
from speechssl.units.storage import load_units, units_card

MINISQA, SAME = "minisqa", "same"  # lexicons that are no file
FREQUENT = 300  # words of the lexicon `same`
CENTRED = "-zero-mean"  # ends the name of a task
# ids (S,), and words in it: number, first token, token behind it
Sequence_ = tuple[np.ndarray, tuple[tuple[int, int, int], ...]]
Pair = tuple[str, str]
_HANZI = re.compile(r"[\u3400-\u9fff]")


# ---- encoders


class Body:
    """A text encoder that is given vectors in the place of its tokens, on its device."""

    def __init__(
        self, encoder: PreTrainedModel, table: nn.Embedding, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        """table: (V, E) of its tokens."""
        device = device_of("auto")
        self.encoder, self.table = (
            m.eval().requires_grad_(False).to(device) for m in (encoder, table)
        )
        self.tokenizer, self.device, self.inputs = (
            tokenizer,
            device,
            EncoderInputs(encoder, table.embedding_dim),
        )

    def __call__(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """ids, mask: (B, S). Returns (B, S, H)."""
        return self.encoder(**self.inputs(self.table(ids), mask, None)).last_hidden_state


def load_body(name: str) -> Body:
    """A text encoder, or a reader of `train text-qa`. Raises InputError where it cannot be
    loaded."""
    config = Path(name) / "config.json"
    if config.is_file() and "symbols" in read_json(config):
        model, *_ = load_reader(Path(name))
        return Body(
            model.encoder,
            model.embedding,
            load_tokenizer(Path(name), model.embedding.num_embeddings),
        )
    encoder, tokenizer = load_text_encoder(name)
    return Body(
        encoder,
        nn.Embedding.from_pretrained(encoder.get_input_embeddings().weight.detach().clone()),
        tokenizer,
    )


# ---- lexicon


def read_lexicon(name: str, texts: Sequence[Text] = (), letters: str = "own") -> list[Pair]:
    """Pairs of a word and its translation; letters: of the second text. Raises InputError for a
    file that is no lexicon."""
    if name == MINISQA:
        pairs: Iterable[Pair] = lexicon()
    elif name == SAME:
        counts = Counter(
            word
            for text in texts[:1]
            for paragraph in text.paragraphs
            for word in paragraph.lower().split()
        )
        pairs = [(word, word) for word in sorted(counts, key=lambda w: (-counts[w], w))[:FREQUENT]]
    else:
        written = read_text(Path(name), f"give a file, or {MINISQA} or {SAME}", "the lexicon")
        lines = [line.strip() for line in written.splitlines() if line.strip()]
        cut = [line.split("\t") if "\t" in line else line.split() for line in lines]
        if wrong := [n for n, parts in enumerate(cut, 1) if len(parts) != 2]:
            raise InputError(
                f"{name}:{wrong[0]} is not a word and its translation; write two "
                "words a line, with a tab between"
            )
        pairs = [(a, b) for a, b in cut]
    return [(a.lower(), respell(b.lower(), letters)) for a, b in dict.fromkeys(pairs)]


def finder(words: Sequence[str]) -> Callable[[str], list[tuple[int, int, int]]]:
    """Where words stand in a text: number of the word, first character, character behind it. Longer
    words come first; a word in letters is a whole one.
    """
    if not words:
        return lambda _: []
    number = {word: i for i, word in enumerate(words)}
    ordered = sorted(number, key=len, reverse=True)
    pattern = re.compile(
        "|".join(re.escape(w) if _HANZI.search(w) else rf"\b{re.escape(w)}\b" for w in ordered)
    )
    return lambda written: [(number[m[0]], *m.span()) for m in pattern.finditer(written.lower())]


# ---- sequences


def text_sequences(
    text: Text, words: Sequence[str], tokenizer: PreTrainedTokenizerBase, room: int, most: int
) -> list[Sequence_]:
    """Pieces of a text of at most `room` tokens; at most so many. Raises InputError for a tokeniser
    without places of tokens."""
    if not tokenizer.is_fast:
        raise InputError(
            "the tokeniser has no tokenizer.json, which says where words stand; "
            "choose an encoder that has one"
        )
    find = finder(words)
    pieces: list[Sequence_] = []
    for paragraph in text.paragraphs:
        if len(pieces) >= most:
            break
        encoded = tokenizer(
            paragraph, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        starts, ends = np.array(encoded["offset_mapping"], np.int64).reshape(-1, 2).T
        # XLM-R's begin with the blank
        starts = starts + (starts < ends) * [paragraph[a : a + 1].isspace() for a in starts]
        places = [
            (w, int((ends <= a).sum()), int((starts < b).sum())) for w, a, b in find(paragraph)
        ]
        pieces += _cut(np.array(encoded["input_ids"], np.int64), places, room)
    return pieces[:most]


def unit_sequences(
    corpus: Path,
    units: Path,
    split: str,
    words: Sequence[str],
    tokens: np.ndarray,
    room: int,
    most: int,
) -> list[Sequence_]:
    """The same of spoken passages. tokens: (K,) of the units. Raises InputError where no word has a
    time."""
    data, runs, find = load_corpus(corpus, split), load_units(units / split), finder(words)
    pieces: list[Sequence_] = []
    grid = FrameGrid(**units_card(units / split)["grid"])
    timed = [p for p in data.passages.values() if p.words and p.id in runs]
    if not timed:
        raise InputError(
            f"no passage of {corpus / split} has units and words with times; make times with "
            f"`speechssl align {corpus}`"
        )
    for passage in timed:
        if len(pieces) >= most:
            break
        join, places = joiner(passage.language), []
        ends = np.cumsum([len(w.text) + len(join) for w in passage.words])
        for word, a, b in find(join.join(w.text for w in passage.words)):
            first, last = (int(np.searchsorted(ends, at, "right")) for at in (a, b - 1))
            start, end = units_of_interval(
                grid, runs[passage.id], passage.words[first].start, passage.words[last].end
            )
            places.append((word, start, end + 1))
        pieces += _cut(tokens[runs[passage.id].units], places, room)
    return pieces[:most]


def _cut(ids: np.ndarray, places: Sequence[tuple[int, int, int]], room: int) -> list[Sequence_]:
    """Pieces one after another; a word that lies in two is left out."""
    pieces = []
    for begin in range(0, len(ids), room):
        inside = tuple(
            (w, a - begin, b - begin) for w, a, b in places if begin <= a < b <= begin + room
        )
        pieces.append((ids[begin : begin + room], inside))
    return pieces


# ---- states


@dataclass(frozen=True, eq=False)
class States:
    """words: (L + 1, W, H), means over occurrences; counts: (W,) of these; mean: (L + 1, H) of all
    tokens but specials."""

    words: np.ndarray
    counts: np.ndarray
    mean: np.ndarray


def framed(body: Body, sequences: Sequence[Sequence_]) -> tuple[torch.Tensor, torch.Tensor]:
    """ids, mask: (B, S) of pieces between their specials, on the body's device."""
    cls, sep, pad = special_tokens(body.tokenizer)
    batch = collate(
        [(np.concatenate([[cls], ids, [sep]]), len(ids) + 2) for ids, _ in sequences], pad
    )
    return batch["ids"].to(body.device), batch["mask"].to(body.device)


@torch.inference_mode()
def states_of(body: Body, sequences: Sequence[Sequence_], words: int, batch: int) -> States:
    """words: W. Raises InputError where there is nothing to read."""
    if not sequences:
        raise InputError("the text has no tokens; give one in which something is written")
    total: Any = 0
    sums: Any = 0
    counts, tokens = np.zeros(words), 0
    order = sorted(range(len(sequences)), key=lambda n: len(sequences[n][0]))
    for start in range(0, len(order), batch):
        pieces = [sequences[n] for n in order[start : start + batch]]
        with listening(body.encoder) as layers:
            body(*framed(body, pieces))
            # SqueezeBERT's are passed by where a hook is called
            if len(layers) <= len(layers_of(body.encoder)):
                kind = body.encoder.config.model_type
                raise InputError(
                    f"the layers of a {kind} do not show what they give; choose an "
                    "encoder such as BERT or DistilBERT"
                )
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


def reciprocal_ranks(
    first: np.ndarray, second: np.ndarray, golds: Mapping[int, Sequence[int]]
) -> dict[int, float]:
    """Of the words that have translations, by number: 1 over the place of the nearest right one
    among all of the others; equals
    are wrong first. first: (W, H); second: (X, H); golds: which of the second are right.
    """
    unit = [
        v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in (first, second)
    ]
    near = unit[0] @ unit[1].T
    ranks = {}
    for word, right in golds.items():
        wrong = np.ones(len(second), bool)
        wrong[list(right)] = False
        ranks[word] = 1 / (
            1 + int((near[word][wrong] >= near[word][list(right)].max() - 1e-9).sum())
        )
    return ranks


def chance(candidates: int, right: int = 1) -> float:
    """The mean reciprocal rank of the first right one in a random order."""
    every = comb(candidates, right)
    return sum(
        comb(candidates - k, right - 1) / every / k for k in range(1, candidates - right + 2)
    )


# ---- verbs


@dataclass(frozen=True, eq=False)
class Two:
    """The two languages: texts (of units: none), lexicon, and what reads sequences of either for a
    list of words."""

    texts: tuple[Text, ...]
    pairs: Sequence[Pair]
    inputs: Mapping[str, Any]
    # 0 or 1, words, body, tokens in a piece
    sequences: Callable[[int, Sequence[str], Body, int], list[Sequence_]]


def two_languages(first: Path, second: Path, o: LanguageOptions) -> Two:
    """Raises InputError where a text or units are missing."""
    written = tuple(load_text(path, o.split) for path in (first, second))
    texts = (written[0].first(o.documents), written[1].first(o.documents).spelt(o.letters))
    pairs = read_lexicon(o.lexicon, texts, o.letters)
    inputs: dict[str, Any] = {"texts": [text.hash for text in texts], "lexicon": hash_json(pairs)}
    if not (o.units or o.second_units):
        return Two(
            texts,
            pairs,
            inputs,
            lambda which, words, body, room: text_sequences(
                texts[which], words, body.tokenizer, room, o.sequences
            ),
        )
    if not (o.units and o.second_units):
        raise InputError(
            "both languages are read as units, or neither; give --units and --second-units"
        )
    units = (o.units, o.second_units)
    inputs["units"] = [
        [part["hash"] for part in units_card(folder / o.split)["parts"]] for folder in units
    ]

    def spoken(which: int, words: Sequence[str], body: Body, room: int) -> list[Sequence_]:
        count = int(units_card(units[0] / o.split)["K"])
        tokens = np.array(assign_tokens(body.tokenizer, count, o.assignment, o.seed), np.int64)
        return unit_sequences(
            (first, second)[which], units[which], o.split, words, tokens, room, o.sequences
        )

    return Two(texts, pairs, inputs, spoken)


def room_of(body: Body, length: int) -> int:
    """Tokens of a piece that fits, beside its specials. Raises InputError for a length that has
    room for none."""
    longest = longest_sequence(body.encoder)
    if length < 3:
        raise InputError(
            f"--length {length} is too short for a token between two specials; give 3 or more"
        )
    return (length if longest is None else min(length, longest)) - 2


def align(
    first: Path, second: Path, encoder: str, results: Path, arm: str, o: LanguageOptions
) -> str:
    """Mean reciprocal ranks at every layer (once), rows of RESULTS; a line that says what came out.

    Raises InputError where a text, a lexicon with words of both, or the encoder cannot be had.
    """
    folder = run_folder(results, ALIGNMENT, arm, o.seed)
    two, identity = two_languages(first, second, o), encoder_named(encoder)
    with stage(folder, {**two.inputs, **identity}, card_options(o)) as step:
        if not step.done:
            body = load_body(encoder)
            room = room_of(body, o.length)
            listed = [sorted({pair[i] for pair in two.pairs}) for i in (0, 1)]
            read = [
                states_of(body, two.sequences(i, listed[i], body, room), len(listed[i]), o.batch)
                for i in (0, 1)
            ]
            seen = [
                {w for w, n in zip(listed[i], read[i].counts, strict=True) if n >= o.occurrences}
                for i in (0, 1)
            ]
            pairs = [(a, b) for a, b in two.pairs if a in seen[0] and b in seen[1]]
            words, golds = dictionary_of(pairs)
            if min(map(len, words)) < 2:
                raise InputError(
                    f"the lexicon {o.lexicon} has {len(pairs)} pairs whose words both texts hold "
                    f"{o.occurrences} times or more; "
                    "give a lexicon of these texts, or more text"
                )
            places = [[listed[i].index(word) for word in words[i]] for i in (0, 1)]
            guessed = [
                chance(len(words[1 - i]), len(right)) for i in (0, 1) for right in golds[i].values()
            ]
            facts = {
                "pairs": len(pairs),
                "chance": float(np.mean(guessed)),
                "units": o.units is not None,
            }
            details = (
                identity
                | facts
                | {"options": card_options(o), "curve": [], "layers": len(read[0].mean) - 1}
            )
            layers = []
            for layer in range(len(read[0].mean)):
                values = {}
                for name, less in (("", False), (CENTRED, True)):
                    states = [
                        s.words[layer][places[i]] - (s.mean[layer] if less else 0)
                        for i, s in enumerate(read)
                    ]
                    ranks = [reciprocal_ranks(states[i], states[1 - i], golds[i]) for i in (0, 1)]
                    items = {
                        (f"{'>' if i == 0 else '<'} {words[i][w]}"): (1.0, r)
                        for i in (0, 1)
                        for w, r in ranks[i].items()
                    }
                    # a word and its translation are drawn together
                    drawn = [words[0][w] for w in ranks[0]] + [
                        words[0][golds[1][w][0]] for w in ranks[1]
                    ]
                    task = f"{ALIGNMENT}-{layer}{name}"
                    values[name] = float(np.mean([r for _, r in items.values()]))
                    both = {"directions": [float(np.mean(list(r.values()))) for r in ranks]}
                    units = BootstrapUnits("word", tuple((word,) for word in drawn))
                    write_scores(results, task, "mrr", arm, o.seed, items, details | both, units)
                layers.append(values)
            step.finish({"what": "alignment of languages", "layers": layers} | facts)
        card = step.card
    best = max(range(len(card["layers"])), key=lambda n: card["layers"][n][""])
    raw, less = (100 * card["layers"][best][name] for name in ("", CENTRED))
    return (
        f"{folder}: MRR {raw:.1f} % at layer {best}, zero-mean {less:.1f} %, chance "
        f"{100 * card['chance']:.1f} %, "
        f"{card['pairs']} pairs ({arm}, seed {o.seed})"
    )


def dictionary_of(pairs: Sequence[Pair]) -> tuple[list[list[str]], list[dict[int, list[int]]]]:
    """The words of either language in order, and of every word, by its number, the numbers of its
    translations."""
    words = [sorted({pair[i] for pair in pairs}) for i in (0, 1)]
    golds: list[dict[int, list[int]]] = [{}, {}]
    for pair in pairs:
        a, b = (words[i].index(pair[i]) for i in (0, 1))
        golds[0].setdefault(a, []).append(b)
        golds[1].setdefault(b, []).append(a)
    return words, golds


def card_options(o: LanguageOptions) -> dict[str, Any]:
    """Without places on this machine."""
    return asdict(o) | {
        name: None if (path := getattr(o, name)) is None else path.name
        for name in ("units", "second_units")
    }


def language_vector(
    first: Path, second: Path, encoder: str, out: Path, layer: int, method: str, o: LanguageOptions
) -> str:
    """Write the shift that is added to the second language's states, once; a line that says which.

    Raises InputError for a layer that there is not, or where `out` was made from other inputs.
    """
    two = two_languages(first, second, o)
    origin = (
        {"method": method, "options": card_options(o)} | encoder_named(encoder) | dict(two.inputs)
    )
    if out.is_file():
        stored, _ = load_shift(out)
        if (stored.layer, stored.made) != (layer, origin):
            raise InputError(f"{out} was made from other inputs; choose another file or delete it")
        shift = stored
    else:
        body = load_body(encoder)
        check_layer(body.encoder, layer)
        means = [
            states_of(body, two.sequences(i, (), body, room_of(body, o.length)), 0, o.batch).mean[
                layer
            ]
            for i in (0, 1)
        ]
        vector = -means[1] if method == "zero-mean" else means[0] - means[1]
        shift = Shift(layer, torch.from_numpy(vector).float(), origin)
        shift.save(out)
    return f"{out}: {method} of layer {layer}, length {float(shift.vector.norm()):.3g}"


# ---- translation

PIECE = 24  # tokens that are translated together
EXAMPLES = 4
Predict = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # ids, mask (B, S) -> (B, S, V)


def load_predictor(name: str) -> tuple[Body, Predict]:
    """An encoder and what predicts tokens of its outputs. Raises InputError for an encoder that has
    no such head."""
    remedy = (
        "give one that was pre-trained by masked tokens, such as "
        "bert-base-multilingual-cased, or of `speechssl pretrain text`"
    )
    if (path := Path(name) / MLM_HEAD).is_file():
        body = load_body(name)
        head = TokenHead(
            body.encoder.config.hidden_size, body.table.embedding_dim, body.table.num_embeddings
        )
        head.load_state_dict(load_file(path))
        head.eval().requires_grad_(False).to(body.device)
        return body, lambda ids, mask: head(body(ids, mask), body.table.weight)
    tokenizer = load_text_encoder(name)[1]
    try:
        loader: Any = AutoModelForMaskedLM
        source = checkpoint_folder(name, "text encoder")
        whole, info = loader.from_pretrained(
            source, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
        lacking = sorted(key for key in info["missing_keys"] if "pooler" not in key)
    except Exception as error:  # transformers and safetensors each raise their own
        raise InputError(
            f"the text encoder {name} has no head that predicts tokens "
            f"({reason_of(error)}); {remedy}"
        ) from error
    if lacking:
        raise InputError(
            f"the text encoder {name} has no head that predicts tokens (it lacks "
            f"{lacking[0]}); {remedy}"
        )
    table = nn.Embedding.from_pretrained(whole.get_input_embeddings().weight.detach().clone())
    body = Body(whole.base_model, table, tokenizer)
    whole.eval().to(body.device)
    return body, lambda ids, mask: whole(**body.inputs(table(ids), mask, None)).logits


@torch.inference_mode()
def predicted(
    body: Body, predict: Predict, sequences: Sequence[Sequence_], batch: int
) -> list[np.ndarray]:
    """The likeliest token at every place of each sequence, (S,); never a special."""
    special = torch.tensor(sorted(set(body.tokenizer.all_special_ids)), device=body.device)
    guesses = []
    for start in range(0, len(sequences), batch):
        pieces = sequences[start : start + batch]
        logits = predict(*framed(body, pieces)).index_fill(2, special, -torch.inf)
        tokens = logits.argmax(2).cpu().numpy()
        guesses += [row[1 : 1 + len(ids)] for row, (ids, _) in zip(tokens, pieces, strict=True)]
    return guesses


def translate(
    first: Path,
    second: Path,
    encoder: str,
    results: Path,
    arm: str,
    layers: Sequence[int],
    alphas: Sequence[float],
    o: LanguageOptions,
) -> str:
    """Translate pieces of the first text (once) and score them, for every layer and alpha; a line
    that says what came out.

    Raises InputError for an encoder that predicts no tokens, a layer that there is not, or a
    lexicon without words of the text.
    """
    if o.units or o.second_units:
        raise InputError(
            "units have no words that could be read as a translation; leave out "
            "--units and --second-units"
        )
    folder = run_folder(results, "translation", arm, o.seed)
    two, identity = two_languages(first, second, o), encoder_named(encoder)
    settings = card_options(o) | {"layers": list(layers), "alphas": list(alphas)}
    with stage(folder, {**two.inputs, **identity}, settings) as step:
        if not step.done:
            body, predict = load_predictor(encoder)
            for layer in layers:
                check_layer(body.encoder, layer)
            whole = [two.sequences(i, (), body, room_of(body, o.length)) for i in (0, 1)]
            means = [states_of(body, pieces, 0, o.batch).mean for pieces in whole]
            often = [
                np.bincount(
                    np.concatenate([i for i, _ in pieces]), minlength=body.table.num_embeddings
                )
                for pieces in whole
            ]
            shares = [counts / counts.sum() for counts in often]
            of_second = shares[1] > shares[0]  # (V,) tokens of the second language

            words = sorted({a for a, _ in two.pairs})
            golds: dict[str, set[int]] = {word: set() for word in words}
            for a, b in two.pairs:
                golds[a].update(body.tokenizer(b, add_special_tokens=False)["input_ids"])
            pieces = [
                p
                for p in two.sequences(0, words, body, min(PIECE, room_of(body, o.length)))
                if p[1]
            ]
            if not pieces:
                raise InputError(
                    f"the text {first.name} has no word of the lexicon {o.lexicon}; "
                    "give a lexicon of this text"
                )
            # of every piece: the tokens of its words' translations, and at how many places words
            # stood
            gloss = [
                Counter(t for w, _, _ in places for t in golds[words[w]]) for _, places in pieces
            ]
            stood = [sum(b - a for _, a, b in places) for _, places in pieces]
            # the best precision with one and the same token everywhere
            guess = max(
                float(
                    np.mean([min(tokens[t], n) / n for tokens, n in zip(gloss, stood, strict=True)])
                )
                for t in set().union(*gloss)
            )

            cells = []
            for layer in layers:
                vector = torch.from_numpy(means[1][layer] - means[0][layer]).float().to(body.device)
                for alpha in alphas:
                    with changed(body.encoder, layer, partial(torch.add, alpha * vector)):
                        guesses = predicted(body, predict, pieces, o.batch)
                    converted, precision = {}, {}
                    for n, (tokens, (_, places)) in enumerate(zip(guesses, pieces, strict=True)):
                        # where words stood
                        produced = Counter(int(t) for _, a, b in places for t in tokens[a:b])
                        converted[str(n)] = (1.0, float(of_second[tokens].mean()))
                        precision[str(n)] = (1.0, (produced & gloss[n]).total() / stood[n])
                    cell: dict[str, Any] = {"layer": layer, "alpha": alpha}
                    for name, items in ((CONVERTED, converted), (PRECISION, precision)):
                        task = f"{name}-{layer}x{alpha:g}"
                        details = identity | {"options": settings, "curve": [], "constant": guess}
                        cell[name] = write_scores(results, task, name, arm, o.seed, items, details)[
                            "value"
                        ]
                    cell["examples"] = [
                        [body.tokenizer.decode(ids) for ids in pair]
                        for pair in zip((i for i, _ in pieces[:EXAMPLES]), guesses, strict=False)
                    ]
                    cells.append(cell)
            step.finish(
                {
                    "what": "token translation",
                    "cells": cells,
                    "constant": guess,
                    "pieces": len(pieces),
                }
            )
        card = step.card
    best = max(card["cells"], key=lambda cell: cell["precision"])
    return (
        f"{folder}: at layer {best['layer']}, alpha {best['alpha']:g}: {best['converted']:.1f} % "
        "of the tokens converted, "
        f"precision {best['precision']:.1f} % (one token everywhere: "
        f"{100 * card['constant']:.1f} %), {card['pieces']} pieces "
        f"({arm}, seed {o.seed})"
    )
