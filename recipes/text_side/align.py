"""Measure by layer how near a text encoder has words and their translations.

A word is the mean of its tokens' states over its occurrences; near is a great cosine. Letters: W, X
words, L layers, H hidden width.
"""

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
from textside.languages import Pair, States, Two, find_room, load_body, mean_states, read_languages
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


CENTRED = "-zero-mean"  # ends the name of a task


def reciprocal_ranks(
    first: np.ndarray, second: np.ndarray, golds: Mapping[int, Sequence[int]]
) -> dict[int, float]:
    """Return, for each word that has translations, 1 over the place of the nearest right one among
    all words of the other language; equals are wrong first. first: (W, H); second: (X, H); golds:
    number of a word -> which of the second are right."""
    norms = [np.linalg.norm(v, axis=1, keepdims=True) for v in (first, second)]
    near = (first / np.maximum(norms[0], 1e-12)) @ (second / np.maximum(norms[1], 1e-12)).T
    ranks = {}
    for word, right in golds.items():
        wrong = np.delete(near[word], list(right))
        before = wrong >= near[word][list(right)].max() - 1e-9
        ranks[word] = 1 / (1 + int(before.sum()))
    return ranks


def chance(candidates: int, right: int = 1) -> float:
    """Return the mean reciprocal rank of the first right one in a random order."""
    ways = [comb(candidates - k, right - 1) / k for k in range(1, candidates - right + 2)]
    return sum(ways) / comb(candidates, right)


def align(o: Align) -> None:
    """Take mean reciprocal ranks at every layer (once), rows of RESULTS.

    Raises InputError where a text, a lexicon with words of both, or the encoder cannot be had.
    """
    folder = run_folder(o.results, ALIGNMENT, o.arm, o.seed)
    two, identity = read_languages(o), describe_encoder(o.encoder)
    options = keep_decisive(o)
    inputs = {**two.inputs, **identity}
    details = identity | {"options": options}
    card = run_once(folder, inputs, options, lambda: measure_alignment(two, details, o))
    best = max(range(len(card["layers"])), key=lambda n: card["layers"][n][""])
    raw, less = (100 * card["layers"][best][name] for name in ("", CENTRED))
    print(
        f"{folder}: MRR {raw:.1f} % at layer {best}, zero-mean {less:.1f} %, chance "
        f"{100 * card['chance']:.1f} %, {card['pairs']} pairs ({o.arm}, seed {o.seed})"
    )


def measure_alignment(two: Two, details: dict[str, Any], o: Align) -> dict[str, Any]:
    """Take the ranks of translations at every layer, write them, and return the card. details: of
    every run's card."""
    body = load_body(o.encoder)
    room = find_room(body, o.length)
    listed = [sorted({pair[i] for pair in two.pairs}) for i in (0, 1)]
    read = []
    for i in (0, 1):
        sequences = two.sequences(i, listed[i], body, room)
        read.append(mean_states(body, sequences, len(listed[i]), o.batch))
    pairs = choose_read_pairs(two.pairs, listed, read, o)
    words, golds = make_dictionary(pairs)
    places = [[listed[i].index(word) for word in words[i]] for i in (0, 1)]
    guessed = []
    for i in (0, 1):
        guessed += [chance(len(words[1 - i]), len(right)) for right in golds[i].values()]
    facts = {"pairs": len(pairs), "chance": float(np.mean(guessed)), "units": o.units is not None}
    deepest = len(read[0].mean) - 1
    about = details | facts | {"layers": deepest}
    layers = []
    for layer in range(deepest + 1):
        values = {}
        for name, share in (("", 0.0), (CENTRED, 1.0)):
            states = []
            for of_language, place in zip(read, places, strict=True):
                mean = of_language.mean[layer]
                states.append(of_language.words[layer][place] - share * mean)
            ranks = [reciprocal_ranks(states[i], states[1 - i], golds[i]) for i in (0, 1)]
            task = f"{ALIGNMENT}-{layer}{name}"
            values[name] = write_ranks(o, task, words, golds, ranks, about)
        layers.append(values)
    return {"what": "alignment of languages", "layers": layers} | facts


def choose_read_pairs(
    pairs: Sequence[Pair], listed: Sequence[Sequence[str]], read: Sequence[States], o: Align
) -> list[Pair]:
    """Return the pairs both of whose words occur often enough. listed: words of either language, in
    the order of their states. Raises InputError for too few."""
    seen = [{word for word, n in zip(listed[i], read[i].counts, strict=True) if n} for i in (0, 1)]
    kept = [(a, b) for a, b in pairs if a in seen[0] and b in seen[1]]
    if min(len({pair[i] for pair in kept}) for i in (0, 1)) < 2:
        raise InputError(
            f"the lexicon {o.lexicon} has {len(kept)} pairs whose words both texts hold; give a "
            "lexicon of these texts, or more text"
        )
    return kept


def write_ranks(
    o: Align,
    task: str,
    words: Sequence[Sequence[str]],
    golds: Sequence[Mapping[int, Sequence[int]]],
    ranks: Sequence[Mapping[int, float]],
    details: Mapping[str, Any],
) -> float:
    """Write the reciprocal ranks of one layer in both directions; their mean."""
    items = {
        f"{'>' if i == 0 else '<'} {words[i][word]}": (1.0, rank)
        for i in (0, 1)
        for word, rank in ranks[i].items()
    }
    # a word and its translation are drawn together
    drawn = [words[0][word] for word in ranks[0]]
    drawn += [words[0][golds[1][word][0]] for word in ranks[1]]
    units = BootstrapUnits("word", tuple((word,) for word in drawn))
    both = {"directions": [float(np.mean(list(r.values()))) for r in ranks]}
    write_scores(o.results, task, "mrr", o.arm, o.seed, items, {**details, **both}, units)
    return float(np.mean([rank for _, rank in items.values()]))


def make_dictionary(pairs: Sequence[Pair]) -> tuple[list[list[str]], list[dict[int, list[int]]]]:
    """Return the words of either language in order, and of every word, by its number, the numbers
    of its translations."""
    words = [sorted({pair[i] for pair in pairs}) for i in (0, 1)]
    golds: list[dict[int, list[int]]] = [{}, {}]
    for pair in pairs:
        a, b = (words[i].index(pair[i]) for i in (0, 1))
        golds[0].setdefault(a, []).append(b)
        golds[1].setdefault(b, []).append(a)
    return words, golds


if __name__ == "__main__":
    sys.exit(script(align, Align))
