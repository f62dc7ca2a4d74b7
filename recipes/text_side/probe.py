"""Test a language model of units: perplexity, spot-the-word, same-different, few-shot by prompts.

Letters: K units, U units of a recording, N items.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.cli import script
from speechssl.errors import InputError, report_set_aside
from speechssl.options import DEVICE, Count, Whole, argument, option
from speechssl.stats import BootstrapUnits
from speechssl.units.storage import iterate_units, load_units, read_units_card
from spoken_words import SpokenWord, WordsWithUnits, read_spoken_words
from textside.lm import BIGRAM, Bigram, Model, check_codebook, load_unit_lm, read_utterances
from textside.options import ARM, RESULTS
from textside.published import FEW_SHOT, SAME_DIFFERENT, SAME_NON_WORD, SPOT_THE_WORD
from textside.runs import PERPLEXITY, keep_decisive, run_folder, write_scores
from textside.tasks import ACCURACY


@dataclass(frozen=True, kw_only=True)
class Probe:
    """test a language model of units: perplexity, spot-the-word, same-different, few-shot by
    prompts

      perplexity      of the units of a split
      spot-the-word   is a word likelier than its non-word, by log-likelihood over length? (chance
                      50 %)
      same-different  are two readings of a word, by different voices, more alike than readings of
                      two words? The outputs of the model are averaged over a word; the cosine
                      decides; the other word is by the same voice (chance 50 %)
      same-non-word   the same, against the word's own non-word
      few-shot        the prompt has words, each followed by a unit that stands for it; which unit
                      follows the last one?

    MODEL is a folder of `unit_lm.py`, or bigram: counts of pairs of units in
    UNITS/train, as a floor. RESULTS/runs has what every item got; a table is printed by `gains.py`.

      python recipes/text_side/probe.py exp/lm-text units exp/text_side --arm text \\
        --spoken-words words --word-units word-units
    """

    model: str = argument("folder of `unit_lm.py`, or bigram")
    units: Path = argument("folder of `speechssl units extract`")
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    spoken_words: Path = option(MISSING, "folder of `spoken_words.py`")
    word_units: Path = option(MISSING, "units of these words: folder of `speechssl units extract`")
    device: str = option("auto", DEVICE)
    split: str = option("test", "split of UNITS for the perplexity")
    ways: Count = option(4, "few-shot: words to tell apart")
    shots: Count = option(2, "few-shot: examples of each in the prompt")
    queries: Count = option(200, "few-shot: number of prompts")
    seed: Whole = option(0, "seed of what is drawn: pairs of different words, prompts")


Items = dict[str, tuple[float, float]]  # id -> gold, predicted


def probe(o: Probe) -> None:
    """Test a model, and print a line a test.

    Raises InputError for what does not fit together, or is too long for the model.
    """
    lm, card, details = load_model(o)
    seed = int(details.get("options", {}).get("training", {}).get("seed", 0))
    details |= {"probe": keep_decisive(o)}
    utterances = read_utterances(o.units / o.split, card)
    scores = lm.log_probs([u.runs.units for u in utterances])
    items: Items = {}
    for u, log_probs in zip(utterances, scores, strict=True):
        items[u.id] = float(len(log_probs)), -float(log_probs.sum())
    recordings = BootstrapUnits("recording", tuple((name,) for name in items))
    write_test(o, PERPLEXITY, items, recordings, seed, details)
    check_codebook(read_units_card(o.word_units), card, o.word_units)
    spoken_words = read_words_with_units(o.spoken_words, o.word_units)
    tests = {  # task -> items, and the word of every item, which the bootstrap draws
        SPOT_THE_WORD: spot_the_word(lm, spoken_words),
        SAME_DIFFERENT: same_different(lm, spoken_words, o.seed),
        SAME_NON_WORD: same_different(lm, spoken_words, None),
        FEW_SHOT: few_shot(lm, spoken_words, o),
    }
    for task, (items, words) in tests.items():
        facts = details | {"curve": []}
        if task == FEW_SHOT:
            facts["note"] = (
                f"Few-shot: {o.ways} words, {o.shots} examples of each; chance "
                f"{100 / o.ways:.0f} %."
            )
        units = BootstrapUnits("word", tuple((word,) for word in words))
        write_test(o, task, items, units, seed, facts)


def load_model(o: Probe) -> tuple[Model, dict[str, Any], dict[str, Any]]:
    """Return a model, the card of the units that it knows, and the details that cards of its scores
    have."""
    if o.model == BIGRAM:
        card = read_units_card(o.units / "train")
        recordings = [u.runs.units for u in iterate_units(o.units / "train")]
        details = {"model": BIGRAM, "units": card["made_from"]}
        return Bigram(recordings, int(card["K"])), card, details
    lm = load_unit_lm(Path(o.model))
    names = ("start", "weights", "units", "curve", "options", "training")
    return lm, lm.card, {name: lm.card[name] for name in names}


def write_test(
    o: Probe, task: str, items: Items, units: BootstrapUnits, seed: int, details: dict[str, Any]
) -> None:
    """Write the items of a test, and print the score. seed: of the model's training."""
    metric = PERPLEXITY if task == PERPLEXITY else ACCURACY
    card = write_scores(o.results, task, metric, o.arm, seed, items, details, units)
    percent = "" if task == PERPLEXITY else " %"
    folder = run_folder(o.results, task, o.arm, seed)
    print(f"{folder}: {card['value']:.2f}{percent} {metric} ({len(items)} items)")


def read_words_with_units(words: Path, units: Path) -> list[tuple[SpokenWord, np.ndarray]]:
    """Return the spoken words with their units; words without units are reported."""
    runs = load_units(units)
    spoken = read_spoken_words(words)
    lacking = {w.id: "it has no units" for w in spoken if w.id not in runs or not len(runs[w.id])}
    report_set_aside(lacking, "the tests of words")
    return [(word, runs[word.id].units) for word in spoken if word.id not in lacking]


def compare(right: float, other: float) -> tuple[float, float]:
    """Return gold (1) and predicted: 1 where the right answer has the higher score, 0 where it has
    the lower, 0.5 where both are equal."""
    return 1.0, 0.5 + 0.5 * float(np.sign(right - other))


def spot_the_word(lm: Model, spoken_words: WordsWithUnits) -> tuple[Items, list[str]]:
    """Test for every word and voice whether it is likelier than its non-word; return also the word
    of every item."""
    scores = lm.log_probs([units for _, units in spoken_words])
    means = {}
    for (word, _), log_probs in zip(spoken_words, scores, strict=True):
        means[word.word, word.voice, word.real] = float(log_probs.mean())
    items: Items = {}
    words = []
    for name, voice, real in means:
        if real and (name, voice, False) in means:
            items[f"{name}-{voice}"] = compare(means[name, voice, True], means[name, voice, False])
            words.append(name)
    return items, words


def same_different(
    lm: Model, spoken_words: WordsWithUnits, seed: int | None
) -> tuple[Items, list[str]]:
    """Test for every word A and two voices x, y whether A by x is nearer to A by y than another
    word by y. seed: of the choice of that word; None: it is the non-word of A."""
    means = lm.states([units for _, units in spoken_words])
    means = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    place = {(word.word, word.real, word.voice): i for i, (word, _) in enumerate(spoken_words)}
    words, voices = sorted({w for w, real, _ in place if real}), sorted({v for *_, v in place})
    rng = np.random.default_rng(0 if seed is None else seed)
    items: Items = {}
    words_of_items = []
    for word in words:
        for i, x in enumerate(voices):
            y = voices[(i + 1) % len(voices)]
            other = words[(words.index(word) + int(rng.integers(1, len(words)))) % len(words)]
            other_key = (word, False, y) if seed is None else (other, True, y)
            keys = (word, True, x), (word, True, y), other_key
            if all(key in place for key in keys):
                anchor, same, different = (means[place[key]] for key in keys)
                items[f"{word}-{x}-{y}"] = compare(float(anchor @ same), float(anchor @ different))
                words_of_items.append(word)
    return items, words_of_items


def few_shot(lm: Model, spoken_words: WordsWithUnits, o: Probe) -> tuple[Items, list[str]]:
    """Test with prompts of a few examples; return for every prompt the number of the right word,
    and that of the unit which the model finds likeliest among those of the prompt; also the right
    words.

    Raises InputError for too few words or voices.
    """
    readings: dict[str, list[np.ndarray]] = {}
    for word, units in spoken_words:
        if word.real:
            readings.setdefault(word.word, []).append(units)
    words = sorted(word for word, sequences in readings.items() if len(sequences) > o.shots)
    if len(words) < o.ways or lm.symbols < o.ways:
        raise InputError(
            f"few-shot needs {o.ways} words, each by {o.shots + 1} voices, of which there are "
            f"{len(words)}; give smaller --ways or --shots, or speak more words by more voices"
        )
    rng = np.random.default_rng(o.seed)
    prompts, units_of_prompts, answers = [], [], []
    for _ in range(o.queries):
        chosen = [words[i] for i in rng.permutation(len(words))[: o.ways]]
        right = int(rng.integers(o.ways))
        prompt, units = draw_prompt([readings[word] for word in chosen], right, lm.symbols, o, rng)
        prompts.append(prompt)
        units_of_prompts.append(units)
        answers.append((chosen[right], right))
    items: Items = {}
    predicted = zip(answers, lm.next_units(prompts), units_of_prompts, strict=True)
    for i, ((word, right), scores, units) in enumerate(predicted):
        items[f"{i}-{word}"] = float(right), float(np.argmax(scores[units]))
    return items, [word for word, _ in answers]


def draw_prompt(
    readings: Sequence[Sequence[np.ndarray]],
    right: int,
    symbols: int,
    o: Probe,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Return a prompt (U,), and the units that stand for its words, (ways,).

    readings: of each word. The prompt has `shots` readings of each in a random order, each followed
    by the unit that stands for its word, and then another reading of the word `right`. Units are
    drawn from those that no reading in the prompt begins or ends with (where there are too few, the
    rarest there): runs are one symbol, so that no model would predict that a unit follows itself.
    """
    shown: list[tuple[int, np.ndarray]] = []  # number of the word, reading
    query = np.zeros(0, np.int64)
    for way, of_word in enumerate(readings):
        order = rng.permutation(len(of_word))
        shown += [(way, of_word[i]) for i in order[: o.shots]]
        if way == right:
            query = of_word[order[o.shots]]
    edges = Counter(int(reading[at]) for _, reading in [*shown, (right, query)] for at in (0, -1))
    rarest_first = sorted(rng.permutation(symbols).tolist(), key=lambda unit: edges[unit])
    units = np.array(rarest_first[: o.ways])
    parts = []
    for i in rng.permutation(len(shown)):
        way, reading = shown[i]
        parts.append(np.append(reading, units[way]))
    return np.concatenate([*parts, query]), units


if __name__ == "__main__":
    sys.exit(script(probe, Probe))
