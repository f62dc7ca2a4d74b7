"""Measure, layer by layer, how near the states of words are to those of their translations in a
text encoder, by the cosine of mean states. Letters: W, X words, L layers, H hidden width."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.cli import script
from speechssl.errors import InputError
from speechssl.options import DEVICE, argument, option
from speechssl.stats import BootstrapUnits
from textside.languages import (
    SIDES,
    BilingualData,
    Pair,
    States,
    average_states,
    load_body,
    longest_piece,
    read_languages,
)
from textside.options import ARM, RESULTS, TwoLanguages
from textside.published import ALIGNMENT
from textside.runs import describe_encoder, keep_decisive, run_folder, run_once, write_scores


@dataclass(frozen=True, kw_only=True)
class Align(TwoLanguages):
    """measure by layer how near a text encoder has words and their translations

    Mean reciprocal rank of a word's translation among all words of the other language, both ways,
    as the states are and with the mean of each language taken away. Words are read in their
    contexts, in texts that need not be translations of each other. ENCODER is any text encoder, or
    a reader of `train text-qa`. With --units words are what is spoken between their times.

      python recipes/text_side/align.py minisqa-en minisqa-zh bert-base-multilingual-cased \\
        exp/text_side --arm mbert
      python recipes/text_side/align.py minisqa-en minisqa-zh exp/unit-mlm/encoder \\
        exp/text_side --arm units --units en --second-units zh
    """

    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    device: str = option("auto", DEVICE)


CENTRED = "-zero-mean"  # ends the name of a task whose states have lost the mean of their language


def reciprocal_ranks(
    first: np.ndarray, second: np.ndarray, golds: Mapping[int, Sequence[int]]
) -> dict[int, float]:
    """Return, for each word that has translations, 1 over the rank of its nearest translation among
    all words of the other language. Of equally near words wrong ones count as nearer.

    first: (W, H); second: (X, H); golds: number of a word -> numbers of its translations.
    """
    first = first / np.maximum(np.linalg.norm(first, axis=1, keepdims=True), 1e-12)
    second = second / np.maximum(np.linalg.norm(second, axis=1, keepdims=True), 1e-12)
    cosines = first @ second.T  # (W, X)
    ranks = {}
    for word, right in golds.items():
        wrong = np.delete(cosines[word], list(right))
        nearer = wrong >= cosines[word][list(right)].max() - 1e-9
        ranks[word] = 1 / (1 + int(nearer.sum()))
    return ranks


def compute_chance(candidates: int, right: int = 1) -> float:
    """Return the mean reciprocal rank of the first of `right` right candidates in a random
    order."""
    weighted = 0.0
    for rank in range(1, candidates - right + 2):
        # in so many orders the first right candidate has this rank
        weighted += comb(candidates - rank, right - 1) / rank
    return weighted / comb(candidates, right)


def align(o: Align) -> None:
    """Measure mean reciprocal ranks at every layer (once), and add them to RESULTS.

    Raises InputError where a text, a lexicon with words of both, or the encoder is missing.
    """
    folder = run_folder(o.results, ALIGNMENT, o.arm, o.seed)
    data, identity = read_languages(o), describe_encoder(o.encoder)
    options = keep_decisive(o)
    inputs = {**data.inputs, **identity}
    details = identity | {"options": options}
    card = run_once(folder, inputs, options, lambda: measure_alignment(data, details, o))
    best = max(range(len(card["layers"])), key=lambda n: card["layers"][n][""])
    raw, centred = (100 * card["layers"][best][name] for name in ("", CENTRED))
    print(
        f"{folder}: MRR {raw:.1f} % at layer {best}, zero-mean {centred:.1f} %, chance "
        f"{100 * card['chance']:.1f} %, {card['pairs']} pairs ({o.arm}, seed {o.seed})"
    )


def measure_alignment(data: BilingualData, details: dict[str, Any], o: Align) -> dict[str, Any]:
    """Measure the ranks of translations at every layer, write them, and return the card. details:
    what every card of the run has."""
    body = load_body(o.encoder)
    longest = longest_piece(body, o.length)
    lexicon_words = [sorted({pair[side] for pair in data.pairs}) for side in SIDES]
    states = []  # of both languages
    for side, side_words in zip(SIDES, lexicon_words, strict=True):
        sequences = data.read_sequences(side, side_words, body, longest)
        states.append(average_states(body, sequences, len(side_words), o.batch))
    pairs = choose_read_pairs(data.pairs, lexicon_words, states, o)
    words, golds = make_dictionary(pairs)
    indices = [[lexicon_words[side].index(word) for word in words[side]] for side in SIDES]
    chances = []
    for side in SIDES:
        candidates = len(words[1 - side])
        chances += [compute_chance(candidates, len(right)) for right in golds[side].values()]
    facts = {"pairs": len(pairs), "chance": float(np.mean(chances)), "units": o.units is not None}
    deepest = len(states[0].mean) - 1
    card = details | facts | {"layers": deepest}
    layers = []
    for layer in range(deepest + 1):
        values = {}
        for name, share in (("", 0.0), (CENTRED, 1.0)):
            vectors = []
            for side in SIDES:
                word_states = states[side].words[layer][indices[side]]
                vectors.append(word_states - share * states[side].mean[layer])
            ranks = [reciprocal_ranks(vectors[i], vectors[1 - i], golds[i]) for i in SIDES]
            task = f"{ALIGNMENT}-{layer}{name}"
            values[name] = write_ranks(o, task, words, golds, ranks, card)
        layers.append(values)
    return {"what": "alignment of languages", "layers": layers} | facts


def choose_read_pairs(
    pairs: Sequence[Pair], words: Sequence[Sequence[str]], states: Sequence[States], o: Align
) -> list[Pair]:
    """Return the pairs both of whose words occur in the texts. words: of either language, in the
    order of their states. Raises InputError for too few."""
    words_read = []
    for side in SIDES:
        counts = zip(words[side], states[side].counts, strict=True)
        words_read.append({word for word, count in counts if count})
    read_pairs = [(a, b) for a, b in pairs if a in words_read[0] and b in words_read[1]]
    if min(len({pair[side] for pair in read_pairs}) for side in SIDES) < 2:
        raise InputError(
            f"the lexicon {o.lexicon} has {len(read_pairs)} pairs whose words both texts hold; "
            "give a lexicon of these texts, or more text"
        )
    return read_pairs


def write_ranks(
    o: Align,
    task: str,
    words: Sequence[Sequence[str]],
    golds: Sequence[Mapping[int, Sequence[int]]],
    ranks: Sequence[Mapping[int, float]],
    details: Mapping[str, Any],
) -> float:
    """Write the reciprocal ranks of one layer in both directions; return their mean."""
    items = {}
    for i, direction in enumerate("><"):
        for word, rank in ranks[i].items():
            items[f"{direction} {words[i][word]}"] = (1.0, rank)
    # a word and its translation are drawn together in the bootstrap
    first_words = [words[0][word] for word in ranks[0]]
    first_words += [words[0][golds[1][word][0]] for word in ranks[1]]
    units = BootstrapUnits("word", tuple((word,) for word in first_words))
    means = {"directions": [float(np.mean(list(r.values()))) for r in ranks]}
    write_scores(o.results, task, "mrr", o.arm, o.seed, items, {**details, **means}, units)
    return float(np.mean([rank for _, rank in items.values()]))


def make_dictionary(pairs: Sequence[Pair]) -> tuple[list[list[str]], list[dict[int, list[int]]]]:
    """Return the sorted words of either language, and number of a word -> numbers of its
    translations."""
    words = [sorted({pair[side] for pair in pairs}) for side in SIDES]
    golds: list[dict[int, list[int]]] = [{}, {}]
    for pair in pairs:
        a, b = (words[side].index(pair[side]) for side in SIDES)
        golds[0].setdefault(a, []).append(b)
        golds[1].setdefault(b, []).append(a)
    return words, golds


if __name__ == "__main__":
    sys.exit(script(align, Align))
