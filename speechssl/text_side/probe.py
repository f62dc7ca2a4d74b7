"""What a language model of units knows: perplexity, spot-the-word, same-different, few-shot by prompts (`Probe` has what they are).

Letters: K units, N items, W words, V voices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.errors import InputError, tell_set_aside
from speechssl.stats import Units
from speechssl.text_side.config import ProbeOptions
from speechssl.text_side.published import FEW_SHOT, PERPLEXITY, SAME_DIFFERENT, SAME_NON_WORD, SPOT_THE_WORD
from speechssl.text_side.runs import run_folder, write_scores
from speechssl.text_side.spoken_words import SpokenWord, read_spoken_words
from speechssl.text_side.tasks import ACCURACY
from speechssl.text_side.unit_lm import Bigram, UnitLm, check_same, load_unit_lm, utterances
from speechssl.units.storage import iterate_units, load_units, units_card

Items = dict[str, tuple[float, float]]
BIGRAM = "bigram"


def probe(
    model: str, units: Path, results: Path, arm: str, words: Path | None, word_units: Path | None, o: ProbeOptions
) -> list[str]:
    """Test a model; a line a test. Raises InputError for what does not fit together, or is too long for the model."""
    if (words is None) != (word_units is None):
        raise InputError("words are tested by their units; give both --words and --word-units, or neither")
    lm: UnitLm | Bigram
    if model == BIGRAM:
        card = units_card(units / "train")
        lm = Bigram([u.runs.units for u in iterate_units(units / "train")], int(card["K"]))
        check_same(units_card(units / o.split), card, units / o.split)
        spoken = [u for u in iterate_units(units / o.split) if len(u.runs)]
        about: dict[str, Any] = {"model": BIGRAM, "units": card["made_from"], "curve": []}
    else:
        lm = load_unit_lm(Path(model))
        spoken, card = utterances(units / o.split, lm, Path(model)), lm.card
        about = {name: card[name] for name in ("start", "weights", "units", "curve", "options", "training")}
    seed = int(about.get("options", {}).get("training", {}).get("seed", 0))
    about |= {"probe": asdict(o)}
    found: dict[str, tuple[str, Items, list[str], str]] = {}  # task -> metric, items, what is drawn of each, its name
    scores = lm.log_probs([u.runs.units for u in spoken])
    items = {u.id: (float(len(some)), -float(some.sum())) for u, some in zip(spoken, scores, strict=True)}
    found[PERPLEXITY] = PERPLEXITY, items, list(items), "recording"
    if words is not None and word_units is not None:
        check_same(units_card(word_units), card, word_units, f"those of {model}" if model != BIGRAM else f"those in {units}")
        listed = spoken_words(words, word_units)
        for task, made in (
            (SPOT_THE_WORD, spot_the_word(lm, listed)),
            (SAME_DIFFERENT, same_different(lm, listed, o.seed)),
            (SAME_NON_WORD, same_different(lm, listed, None)),
            (FEW_SHOT, few_shot(lm, listed, o)),
        ):
            found[task] = ACCURACY, made[0], made[1], "word"
    lines = []
    for task, (metric, items, drawn, name) in found.items():
        facts = about if task == PERPLEXITY else about | {"curve": []}
        facts |= (
            {"note": f"Few-shot: {o.ways} words, {o.shots} examples of each; chance {100 / o.ways:.0f} %."}
            if task == FEW_SHOT
            else {}
        )
        folder = run_folder(results, task, arm, seed)
        card = write_scores(results, folder, task, metric, arm, seed, items, facts, Units(name, tuple((d,) for d in drawn)))
        lines.append(f"{folder}: {card['value']:.2f}{' %' if metric == ACCURACY else ''} {metric} ({len(items)} items)")
    return lines


def spoken_words(words: Path, units: Path) -> list[tuple[SpokenWord, np.ndarray]]:
    """Each with its units; those without are counted. Raises InputError where none has."""
    runs = load_units(units)
    listed = read_spoken_words(words)
    found = [(word, runs[word.id].units) for word in listed if word.id in runs and len(runs[word.id])]
    tell_set_aside({w.id: "it has no units" for w in listed if w.id not in runs or not len(runs[w.id])}, "the tests of words")
    if not found:
        raise InputError(f"{units} has no units of the words in {words}; extract them from {words / 'words.jsonl'}")
    return found


def spot_the_word(lm: UnitLm | Bigram, listed: Sequence[tuple[SpokenWord, np.ndarray]]) -> tuple[Items, list[str]]:
    """(1, 1 where the word is likelier, 0 where not, a half for the same) of every word and voice, and its word."""
    scores = lm.log_probs([units for _, units in listed])
    means = {(word.word, word.voice, word.real): float(some.mean()) for (word, _), some in zip(listed, scores, strict=True)}
    items: Items = {}
    drawn = []
    for word, voice, real in means:
        if real and (word, voice, False) in means:
            ahead = means[word, voice, True] - means[word, voice, False]
            items[f"{word}-{voice}"] = 1.0, 1.0 if ahead > 0 else 0.5 if ahead == 0 else 0.0
            drawn.append(word)
    if not items:
        raise InputError("no word has units with its non-word; extract the units of all spoken words")
    return items, drawn


def same_different(
    lm: UnitLm | Bigram, listed: Sequence[tuple[SpokenWord, np.ndarray]], seed: int | None
) -> tuple[Items, list[str]]:
    """Of every word A and two voices x, y: is A by x nearer to A by y than another word by y? seed: draws that; None: its non-word.

    Raises InputError for fewer than two words or voices.
    """
    means = lm.states([units for _, units in listed])
    means = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    place = {(word.word, word.real, word.voice): i for i, (word, _) in enumerate(listed)}
    words, voices = sorted({w for w, real, _ in place if real}), sorted({v for *_, v in place})
    if len(words) < 2 or len(voices) < 2:
        raise InputError("same-different needs two words and two voices at least; prepare the spoken words with more --voices")
    rng = np.random.default_rng(0 if seed is None else seed)
    items: Items = {}
    drawn = []
    for word in words:
        for i, x in enumerate(voices):
            y = voices[(i + 1) % len(voices)]
            other = words[(words.index(word) + int(rng.integers(1, len(words)))) % len(words)]
            keys = (word, True, x), (word, True, y), (word, False, y) if seed is None else (other, True, y)
            if all(key in place for key in keys):
                here, same, different = (means[place[key]] for key in keys)
                ahead = float(here @ same - here @ different)
                items[f"{word}-{x}-{y}"] = 1.0, 1.0 if ahead > 0 else 0.5 if ahead == 0 else 0.0
                drawn.append(word)
    return items, drawn


def few_shot(lm: UnitLm | Bigram, listed: Sequence[tuple[SpokenWord, np.ndarray]], o: ProbeOptions) -> tuple[Items, list[str]]:
    """(the place of the word that is asked for among those of the prompt, that of the unit that the model finds likeliest).

    A prompt shows `shots` readings of each of `ways` words in a random order, each followed by the unit that stands for the word in
    this prompt, which is drawn, and then another reading. Raises InputError for too few words or voices.
    """
    readings: dict[str, list[np.ndarray]] = {}
    for word, units in listed:
        if word.real:
            readings.setdefault(word.word, []).append(units)
    words = sorted(word for word, some in readings.items() if len(some) > o.shots)
    if len(words) < o.ways or lm.symbols < o.ways:
        raise InputError(
            f"few-shot with {o.ways} words and {o.shots} examples of each needs as many words, each by {o.shots + 1} voices, "
            f"of which there are {len(words)}; give smaller --ways or --shots, or prepare more words and voices"
        )
    rng = np.random.default_rng(o.seed)
    prompts, gold, marks, asked = [], [], [], []
    for _ in range(o.queries):
        chosen = [words[i] for i in rng.permutation(len(words))[: o.ways]]
        signs = rng.choice(lm.symbols, size=o.ways, replace=False)
        right = int(rng.integers(o.ways))
        shown, query = [], np.zeros(0, np.int64)
        for way, word in enumerate(chosen):
            order = rng.permutation(len(readings[word]))
            shown += [np.append(readings[word][i], signs[way]) for i in order[: o.shots]]
            if way == right:
                query = readings[word][order[o.shots]]
        prompts.append(np.concatenate([*(shown[i] for i in rng.permutation(len(shown))), query]))
        gold.append(right)
        marks.append(signs)
        asked.append(chosen[right])
    following = lm.next_units(prompts)
    items = {
        f"{i}-{word}": (float(right), float(np.argmax(scores[signs])))
        for i, (word, right, scores, signs) in enumerate(zip(asked, gold, following, marks, strict=True))
    }
    return items, asked
