"""What a language model of units knows, and how it goes on.

    probe              perplexity, spot-the-word, same-different, few-shot by prompts (`Probe` in `config.py` has what they are)
    make_spoken_words  real words and non-words, spoken, for spot-the-word (sWUGGY, arXiv 2011.11588) and its kin. sWUGGY's
                       non-words are Wuggy's; here a word of a corpus and its non-word differ in one phone, by the rule in
                       `SpokenWords`. Both go to the synthesiser as phones, so that nothing but the phone tells them apart
    go_on              continuations of the beginnings of recordings, as units; nothing is synthesised. Measured are the model's own
                       perplexity of them; how many of their pairs of units are different ones, which falls where it repeats itself;
                       and how many of their runs of FIVE units occur in training; beside the same of what really followed

Letters: K units, N items, W words, V voices.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, resample, write_flac
from speechssl.data.records import data_hash, load_corpus, read_lines
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import stage, write_json, write_text
from speechssl.results import Table
from speechssl.stats import Units
from speechssl.synth.minisqa import speakers
from speechssl.synth.minisuperb import trimmed
from speechssl.synth.synthesisers import Voice, pronounce, speak_phones
from speechssl.text_side.config import Continue, ProbeOptions, SpokenWords
from speechssl.text_side.published import FEW_SHOT, PERPLEXITY, SAME_DIFFERENT, SAME_NON_WORD, SPOT_THE_WORD
from speechssl.text_side.runs import arm_name, run_folder, write_scores
from speechssl.text_side.tables import REAL, continuation_tables
from speechssl.text_side.tasks import ACCURACY
from speechssl.text_side.unit_lm import Bigram, UnitLm, check_same, load_unit_lm, utterances
from speechssl.textlm import load_text_encoder, plain_words
from speechssl.timing import FrameGrid
from speechssl.units.storage import iterate_units, load_units, units_card

Items = dict[str, tuple[float, float]]
BIGRAM = "bigram"


def probe(
    model: str, units: Path, results: Path, arm: str, words: Path | None, word_units: Path | None, o: ProbeOptions
) -> list[str]:
    """Test a model; a line a test. Raises InputError for what does not fit together, or is too long for the model."""
    if (words is None) != (word_units is None):
        raise InputError("words are tested by their units; give both --spoken-words and --word-units, or neither")
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
        card = write_scores(results, task, metric, arm, seed, items, facts, Units(name, tuple((d,) for d in drawn)))
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


# ---- words and their non-words

KINDS = tuple(  # espeak-ng's phones of American English that take each other's place
    tuple(line.split())
    for line in (
        "p b t d k g",  # stops
        "f v T D s z S Z h",  # fricatives
        "tS dZ",  # affricates
        "m n N",  # nasals
        "l r w j",  # approximants
        "a aa E I 0 V U",  # short vowels
        "A: i: O: u: 3:",  # long vowels
        "eI aI aU OI oU",  # double vowels
    )
)
EDGE = "#"  # of a word
QUIET = 0.05  # seconds before and after a word
MANIFEST = "words.jsonl"
_STRESS = re.compile("^[',%=]+")


@dataclass(frozen=True)
class Pair:
    """phones, other: of the word and of its non-word, with stress marks; place: of the one that differs."""

    word: str
    phones: tuple[str, ...]
    other: tuple[str, ...]
    place: int


@dataclass(frozen=True)
class SpokenWord:
    """A line of the manifest."""

    id: str
    audio: str
    word: str
    real: bool
    voice: str
    phones: str


def bare(phones: Sequence[str]) -> tuple[str, ...]:
    """Without stress marks."""
    return tuple(_STRESS.sub("", phone) for phone in phones)


def pairs_of(phones: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Neighbours in a word, its edges among them. phones: without stress."""
    return pairwise((EDGE, *phones, EDGE))


def non_word(phones: Sequence[str], pairs: Mapping[tuple[str, str], int], real: Collection[tuple[str, ...]]) -> Pair | None:
    """The non-word of a word; None where there is none. pairs: how often neighbours occur; real: pronunciations of words."""
    plain = bare(phones)

    def frequency(some: Sequence[str]) -> float:
        return sum(math.log(pairs[pair]) for pair in pairs_of(some)) / (len(some) + 1)

    found: list[tuple[float, int, str]] = []
    for place, phone in enumerate(plain):
        for other in next((kind for kind in KINDS if phone in kind), ()):
            made = (*plain[:place], other, *plain[place + 1 :])
            if other != phone and made not in real and all(pairs.get(pair) for pair in pairs_of(made)):
                found.append((abs(frequency(made) - frequency(plain)), place, other))
    if not found:
        return None
    _, place, other = min(found)
    mark = phones[place][: len(phones[place]) - len(plain[place])]
    return Pair("", tuple(phones), (*phones[:place], mark + other, *phones[place + 1 :]), place)


def choose_pairs(words: Mapping[str, int], count: int, fewest: int, avoided: Sequence[str]) -> list[Pair]:
    """Of the commonest words those that have a non-word, and no pronunciation that came before. words: how often each occurs.

    Raises InputError where there are fewer than `count`.
    """
    listed = sorted(words, key=lambda word: (-words[word], word))
    spoken = dict(zip(listed, pronounce(listed, "en-us", stress=True), strict=True))
    real = {bare(phones) for phones in spoken.values()} | {tuple(phones) for phones in pronounce(avoided, "en-us")}
    pairs = Counter(pair for phones in spoken.values() for pair in pairs_of(bare(phones)))
    found: list[Pair] = []
    taken: set[tuple[str, ...]] = set()
    for word, phones in spoken.items():
        plain = bare(phones)
        if len(found) < count and len(plain) >= fewest and plain not in taken and (made := non_word(phones, pairs, real | taken)):
            found.append(Pair(word, made.phones, made.other, made.place))
            taken |= {plain, bare(made.other)}
    if len(found) < count:
        raise InputError(
            f"only {len(found)} words of the corpus have {fewest} phones and a non-word, not {count}; "
            "give fewer --words or --phones"
        )
    return found


def make_spoken_words(o: SpokenWords) -> str:
    """Speak them (once); a line that says what came out.

    Raises InputError for a corpus that is not English, or too few words or voices; MissingExtra without the synthesiser.
    """
    voices = speakers("en", "test")
    if o.voices > len(voices):
        raise InputError(f"there are {len(voices)} voices that no training set has; give --voices {len(voices)} at most")
    inputs = {"data": data_hash(o.corpus, o.split), "avoid": o.avoid}
    with stage(o.out, inputs, {"words": o.words, "voices": o.voices, "phones": o.phones}) as step:
        if not step.done:
            corpus = load_corpus(o.corpus, o.split)
            if corpus.language != "en":
                raise InputError(f"{o.corpus} is in {corpus.language}; words are taken from an English corpus")
            written = [*(p.written for p in corpus.passages.values()), *(q.written for q in corpus.questions)]
            words = Counter(word for text in written for word in re.findall(r"[a-z]+", text.lower()))
            avoided: list[str] = []
            if o.avoid:
                _, tokenizer = load_text_encoder(o.avoid)
                avoided = [token.lstrip("Ġ▁") for token in tokenizer.convert_ids_to_tokens(plain_words(tokenizer))]
            pairs = choose_pairs(words, o.words, o.phones, avoided)
            lines = []
            for number, pair in enumerate(tqdm(pairs, desc="synthesising words", unit="word")):
                for real, phones in ((True, pair.phones), (False, pair.other)):
                    for voice in voices[: o.voices]:
                        name = f"{number:04d}-{'word' if real else 'other'}-{voice.name}"
                        place = f"audio/{name}.flac"
                        write_flac(o.out / place, spoken(phones, voice))
                        lines.append(SpokenWord(name, place, pair.word, real, voice.name, " ".join(phones)))
            write_text(o.out / MANIFEST, "".join(json.dumps(asdict(line)) + "\n" for line in lines))
            listed = [{"word": p.word, "phones": " ".join(p.phones), "other": " ".join(p.other), "place": p.place} for p in pairs]
            step.finish(
                {"what": "spoken words", "words": len(pairs), "voices": [v.name for v in voices[: o.voices]], "pairs": listed}
            )
        return f"{o.out}: {step.card['words']} words and as many non-words by {len(step.card['voices'])} voices"


def spoken(phones: Sequence[str], voice: Voice) -> np.ndarray:
    """(N,) samples at 16 kHz between two short silences."""
    made = speak_phones(phones, voice)
    samples = trimmed(resample(made.samples.astype(np.float32) / 2**15, made.sample_rate, SAMPLE_RATE))
    return np.asarray(np.pad(samples, round(QUIET * SAMPLE_RATE)), np.float32)


def read_spoken_words(folder: Path) -> list[SpokenWord]:
    """The manifest. Raises InputError where there is none, or it is damaged."""
    found = []
    for number, values in read_lines(folder / MANIFEST):

        def typed(name: str, values: Mapping[str, Any] = values) -> Any:
            if not isinstance(values[name], bool if name == "real" else str):
                raise TypeError(name)
            return values[name]

        try:
            found.append(SpokenWord(**{name: typed(name) for name in SpokenWord.__dataclass_fields__}))
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{folder / MANIFEST}:{number} is no line of `speechssl prepare spoken-words`; make the words again"
            ) from error
    return found


# ---- how a model goes on

FIVE = 5


def go_on(o: Continue) -> list[Table]:
    """Write RESULTS/continuations/ARM-SEED.json, and return its tables.

    Raises InputError for units of another codebook, or recordings that are all shorter than the prompt.
    """
    lm = load_unit_lm(o.model)
    recordings = utterances(o.units / o.split, lm, o.model)
    grid = FrameGrid(**units_card(o.units / o.split)["grid"])
    known = {run for u in iterate_units(o.units / "train") for run in runs_of_five(u.runs.units)}
    frames = grid.frames(round(o.prompt_seconds * grid.sample_rate))
    long = [u for u in recordings if u.runs.frames > frames > 0][: o.recordings]
    if not long:
        raise InputError(
            f"no recording in {o.units / o.split} is longer than {o.prompt_seconds:g} s; give smaller --prompt-seconds"
        )
    lines: list[dict[str, Any]] = []
    for number, utterance in enumerate(tqdm(long, desc="continuations", unit="recording")):
        units = utterance.runs.units
        cut = utterance.runs.unit_at(frames - 1) + 1
        prompt, followed = units[:cut], units[cut : cut + o.count]
        line: dict[str, Any] = {"id": utterance.id, "prompt": prompt.tolist(), "followed": followed.tolist(), "drawn": {}}
        if len(followed):
            line["measures"] = {REAL: measures(lm, prompt, followed, known)}
            for temperature in o.temperature:
                generator = torch.Generator().manual_seed(1_000_003 * o.seed + number)
                found = lm.go_on(prompt, o.count, temperature, generator)
                line["drawn"][f"{temperature:g}"] = found.tolist()
                if len(found):
                    line["measures"][f"{temperature:g}"] = measures(lm, prompt, found, known)
            lines.append(line)
    seed = int(lm.card["options"]["training"]["seed"])
    options = asdict(o) | {name: Path(getattr(o, name)).name for name in ("model", "units", "results")}
    made = {"arm": o.arm, "seed": seed, "options": options, "weights": lm.card["weights"], "continuations": lines}
    write_json(o.results / "continuations" / f"{arm_name(o.arm)}-{seed}.json", made)
    return continuation_tables([made])


def runs_of_five(units: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(map(int, units[i : i + FIVE])) for i in range(len(units) - FIVE + 1)]


def measures(lm: UnitLm, prompt: np.ndarray, units: np.ndarray, known: set[tuple[int, ...]]) -> dict[str, float | None]:
    """surprise: mean negative log-likelihood, in nats; different: of the pairs of units; known: of the runs of five."""
    (scores,) = lm.log_probs([np.concatenate([prompt, units])])
    pairs = list(pairwise(map(int, units)))
    runs = runs_of_five(units)
    return {
        "units": float(len(units)),
        "surprise": -float(scores[len(prompt) :].mean()),
        "different": len(set(pairs)) / len(pairs) if pairs else None,
        "known": sum(run in known for run in runs) / len(runs) if runs else None,
    }
