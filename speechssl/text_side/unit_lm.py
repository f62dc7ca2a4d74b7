"""A language model of units: GPT on units (GSLM, arXiv 2102.01192), from a text-pre-trained body
(TWIST, 2305.13009) or none.

Symbols are the K units of a codebook, of which runs are one symbol, and one more, id K, that stands
before every recording and behind the last. TWIST keeps the layers of a text model and draws new
rows for the units; `--assignment` has the other ways in which DUAL gives rows to units, and
`scratch`. OUT/model is a checkpoint of transformers.

    train_unit_lm      trains one
    probe              perplexity, spot-the-word, same-different, few-shot by prompts (`Probe` in `options.py` has what they are)
    make_spoken_words  real words and non-words, spoken, for spot-the-word (sWUGGY, arXiv 2011.11588) and its kin. sWUGGY's
                       non-words are Wuggy's; here a word of a corpus and its non-word differ in one
                       phone, by the rule in `SpokenWords`. Both go to the synthesiser as phones, so
                       that nothing but the phone tells them apart
    continuations      of the beginnings of recordings, as units; nothing is synthesised. Measured are the model's own perplexity of
                       them; how many of their pairs of units are different ones, which falls where
                       it repeats itself; and how many of their runs of NGRAM units occur in
                       training; beside the same of what really followed

Letters: K units, U units of a recording, H width of the model, N items, W words, V voices.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, PreTrainedModel

from speechssl.audio import SAMPLE_RATE, resample, write_flac
from speechssl.data.records import data_hash, load_corpus
from speechssl.errors import InputError, report_set_aside
from speechssl.io import (
    CARD,
    check_inside,
    hash_files,
    read_json,
    read_lines,
    stage,
    warn_edited,
    write_json,
    write_text,
)
from speechssl.processes import is_main, main_first
from speechssl.results import Table
from speechssl.stats import BootstrapUnits
from speechssl.synth.minisqa import speakers
from speechssl.synth.synthesisers import Voice, pronounce, speak_phones, trimmed
from speechssl.text import ngrams
from speechssl.text_side.data import load_vocabulary
from speechssl.text_side.objectives import (
    CausalBatches,
    CausalModel,
    check_length,
    gpt2_values,
    load_causal,
    make_causal,
    padded,
    save_causal,
    set_rows,
)
from speechssl.text_side.options import ProbeOptions, SpokenWords, TextContinue, UnitLmOptions
from speechssl.text_side.pretrain import not_empty, whole
from speechssl.text_side.published import FEW_SHOT, SAME_DIFFERENT, SAME_NON_WORD, SPOT_THE_WORD
from speechssl.text_side.runs import (
    PERPLEXITY,
    arm_name,
    encoder_named,
    fit_and_score,
    run_folder,
    write_scores,
)
from speechssl.text_side.tables import REAL, continuation_tables
from speechssl.text_side.tasks import ACCURACY
from speechssl.textlm import (
    assign_tokens,
    load_text_encoder,
    longest_sequence,
    plain_words,
    reason_of,
    without_dropout,
)
from speechssl.timing import FrameGrid
from speechssl.trainer import check_share
from speechssl.units.storage import UtteranceUnits, iterate_units, load_units, units_card

WHAT = "unit language model"
NEW, SCRATCH = "re-init", "scratch"
TOGETHER = 16  # sequences scored at a time


def train_unit_lm(units: Path, out: Path, o: UnitLmOptions) -> str:
    """Train (once) on a split, and leave the model in `out`/model; a line that says what came out.

    Raises InputError for units that there are not, a start that is no language model, sequences
    longer than its positions, or an `out` that was made from other inputs.
    """
    check_share(o.batch)
    seed, folder = o.training.seed, units / o.split
    card = units_card(folder)
    symbols = int(card["K"])
    inputs: dict[str, Any] = {"units": [part["hash"] for part in card["parts"]], "K": symbols}
    scored = units / o.scored if o.scored else None
    if scored is not None:
        check_same(units_card(scored), card, scored)
        inputs["scored"] = [part["hash"] for part in units_card(scored)["parts"]]
    identity = encoder_named(o.start) if o.start else {}
    start = {"start": identity["encoder"]} if identity else {}
    with stage(out, inputs | {"start": identity}, asdict(o) | start) as step:
        if not step.done:
            torch.manual_seed(seed)
            model = begin(o, symbols)
            check_length(o.length, model, "symbols", "the language model")
            if not o.dropout:
                without_dropout(model)
            stream = Recordings(
                [runs.units for runs in load_units(folder).values()], symbols, folder
            )
            trained = CausalModel(model)
            held_out = [runs.units for runs in load_units(scored).values()] if scored else []

            def perplexity() -> float:
                lm = UnitLm(trained, symbols, longest_sequence(model) or o.length, window=o.length)
                scores = lm.log_probs(held_out)
                trained.train()
                return float(np.exp(-np.concatenate(scores).mean()))

            batches = CausalBatches(whole(stream), None, symbols, o.batch, o.length, seed)
            every = o.evaluate_every if held_out else 0
            score = perplexity if held_out else lambda: 0.0
            result, curve = fit_and_score(
                trained, batches, o.training, out / "checkpoints", score, every
            )
            with main_first():
                if is_main():
                    save_causal(model, trained, out / "model")
                    facts = {
                        "what": WHAT,
                        "K": symbols,
                        "units": card["made_from"],
                        "codebooks": card["codebooks"],
                    }
                    record = {
                        "options": asdict(o) | start,
                        "training": result,
                        "curve": curve if held_out else [],
                    }
                    weights = encoder_named(str(out / "model"))["weights"]
                    step.finish(facts | record | {"start": identity, "weights": weights})
        record = read_json(out / "card.json")
    last = (
        (f", perplexity of {o.scored} {record['curve'][-1]['score']:.2f}")
        if record["curve"]
        else ""
    )
    return (
        f"{out}: unit language model of K = {symbols}, {o.assignment if o.start else SCRATCH}{last}"
    )


def begin(o: UnitLmOptions, symbols: int) -> PreTrainedModel:
    """What training begins from. Raises InputError for a start that is none, or one without the
    rows that are asked for."""
    if o.start is None:
        model = make_causal(
            gpt2_values(symbols + 1, o.layers, o.width, o.heads, max(o.positions, o.length))
        )
    else:
        model = load_causal(o.start)
        if o.assignment == SCRATCH:
            model = make_causal(model.config.to_dict())
    source = model.get_input_embeddings().weight.detach()
    if o.start is None or o.assignment in (NEW, SCRATCH):
        std = getattr(model.config, "initializer_range", None)
        rows = torch.randn(symbols + 1, source.shape[1]) * float(
            source.std() if std is None else std
        )
    else:
        tokenizer = load_vocabulary(o.start, masked=False)
        chosen = assign_tokens(tokenizer, symbols, o.assignment, o.training.seed)
        special = (
            tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
        )
        rows = source[[*chosen, special]]
    set_rows(model, rows, symbols)
    return model.train()


class Recordings:
    """Pieces of recordings, one after another in an endless order, id K before each. A stream, as
    of `data`."""

    def __init__(self, spoken: Sequence[np.ndarray], symbols: int, place: Path) -> None:
        """spoken: units of each, 0 to K - 1. Raises InputError where there are none."""
        self.ids = np.concatenate(
            [part for units in not_empty(spoken, place) for part in ([symbols], units)],
            dtype=np.int64,
        )

    def __call__(self, rng: np.random.Generator, length: int) -> np.ndarray:
        return np.take(self.ids, np.arange(length) + rng.integers(len(self.ids)), mode="wrap")


def check_same(
    card: dict[str, Any],
    model: dict[str, Any],
    place: Path,
    what: str = ("the units that come first"),
) -> None:
    """Raises InputError where units are not those of a model, or of other units: another K, or
    another codebook.

    card, model: cards with "K" and "codebooks"; what: whose they should be.
    """
    if int(card["K"]) != int(model["K"]):
        raise InputError(
            f"the units in {place} are of a codebook of {card['K']}, {what} of one of "
            f"{model['K']}; extract them with that codebook"
        )
    if not set(card.get("codebooks", ())) & set(model.get("codebooks", ())):
        raise InputError(
            f"the units in {place} are of another codebook than {what}; extract "
            "them with the same codebook"
        )


class UnitLm:
    """A trained model that scores and generates. Sequences are units without id K, which is put
    before them."""

    def __init__(
        self,
        model: CausalModel | PreTrainedModel,
        symbols: int,
        positions: int,
        card: dict[str, Any] | None = None,
        window: int | None = None,
    ) -> None:
        """symbols: K; positions: the longest sequence, id K included; window: how much of it
        training has seen, None: all."""
        self.model, self.symbols, self.positions, self.card = (
            model.eval(),
            symbols,
            positions,
            card or {},
        )
        self.window = min(window or positions, positions)

    @torch.inference_mode()
    def read(
        self, sequences: Sequence[np.ndarray], begins: Sequence[int] = ()
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Of every sequence, in any order: its number, logits (U + 1, K + 1) and outputs (U + 1,
        H), from what is before it on.

        begins: what is before each, id K or the unit that it goes on from; none: id K. Raises
        InputError for a sequence that is longer than the positions.
        """
        longest = max(map(len, sequences), default=0)
        before = begins or [self.symbols] * len(sequences)
        if longest >= self.positions:
            raise InputError(
                f"a sequence of {longest} units does not fit into the {self.positions} positions "
                "of the language model; "
                "give shorter recordings or prompts, or a model with more positions"
            )
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        place = next(self.model.parameters()).device
        for first in range(0, len(order), TOGETHER):
            places = order[first : first + TOGETHER]
            batch = {
                k: v.to(place)
                for k, v in padded(
                    [[before[i], *sequences[i]] for i in places], self.symbols
                ).items()
            }
            if isinstance(self.model, CausalModel):
                model_inputs = self.model.inputs(
                    self.model.table(batch["ids"]), batch["mask"], None
                )
                hidden = self.model.body(**model_inputs).last_hidden_state
                rows = self.model.table.weight
            else:
                hidden = self.model.base_model(
                    input_ids=batch["ids"], attention_mask=batch["mask"]
                ).last_hidden_state
                rows = self.model.get_input_embeddings().weight
            logits = (hidden @ rows.T).float()
            for i, line, outputs in zip(places, logits, hidden, strict=True):
                size = len(sequences[i]) + 1
                yield i, line[:size].cpu(), outputs[:size].float().cpu()

    def log_probs(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """(U,) log-likelihood of every unit, in nats. What is longer than the sequences of training
        is read in windows of their length that overlap by half; a later window goes on from the
        unit before it, for no recording begins there.
        """
        pieces: list[np.ndarray] = []
        begins: list[int] = []
        # number of the sequence; units of the piece that were scored before
        owners: list[tuple[int, int]] = []
        size = self.window - 1
        for i, units in enumerate(sequences):
            starts = (
                [0]
                if len(units) <= size
                else [*range(0, len(units) - size, max(size // 2, 1)), len(units) - size]
            )
            done = 0
            for start in starts:
                pieces.append(units[start : start + size])
                begins.append(int(units[start - 1]) if start else self.symbols)
                owners.append((i, done - start))
                done = min(start + size, len(units))
        by_piece: list[np.ndarray | None] = [None] * len(pieces)
        for n, logits, _ in self.read(pieces, begins):
            targets = torch.as_tensor(np.asarray(pieces[n], np.int64))
            by_piece[n] = logits[:-1].log_softmax(-1)[torch.arange(len(targets)), targets].numpy()
        by_sequence: list[list[np.ndarray]] = [[] for _ in sequences]
        for (i, overlap), scores in zip(owners, by_piece, strict=True):
            assert scores is not None
            by_sequence[i].append(scores[overlap:])
        return [np.concatenate(parts) if parts else np.zeros(0) for parts in by_sequence]

    def states(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """(N, H): the mean of the outputs over the units of each of N sequences."""
        means: dict[int, np.ndarray] = {
            i: outputs[1:].mean(0).numpy() for i, _, outputs in self.read(sequences)
        }
        return np.stack([means[i] for i in range(len(sequences))])

    def next_units(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """(N, K + 1) log-likelihoods of what follows each of N sequences."""
        rows = {i: logits[-1].log_softmax(-1).numpy() for i, logits, _ in self.read(sequences)}
        return np.stack([rows[i] for i in range(len(sequences))])

    @torch.inference_mode()
    def generate(
        self, prompt: np.ndarray, count: int, temperature: float, generator: torch.Generator
    ) -> np.ndarray:
        """At most `count` units behind a prompt (U,), drawn at a temperature (0: the likeliest);
        fewer where the recording ends.

        A unit does not follow itself: runs are one symbol.
        """
        assert not isinstance(self.model, CausalModel)
        ids, cache, drawn = torch.tensor([[self.symbols, *prompt]]), None, list[int]()
        place = next(self.model.parameters()).device
        while len(drawn) < min(count, self.positions - 1 - len(prompt)):
            read = self.model(input_ids=ids.to(place), past_key_values=cache, use_cache=True)
            cache, logits = read.past_key_values, read.logits[0, -1].float().cpu()
            last = drawn[-1] if drawn else int(prompt[-1]) if len(prompt) else self.symbols
            logits[last] = -torch.inf
            if temperature > 0:
                unit = int(
                    torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
                )
            else:
                unit = int(logits.argmax())
            if unit == self.symbols:
                break
            drawn.append(unit)
            ids = torch.tensor([[unit]])
        return np.array(drawn, np.int64)


class Bigram:
    """What pairs of units alone say: counts of a split, one added to each. It stands beside the
    models as a floor."""

    def __init__(self, spoken: Sequence[np.ndarray], symbols: int) -> None:
        counts = np.ones((symbols + 1, symbols + 1))
        for units in spoken:
            framed = np.concatenate([[symbols], units, [symbols]]).astype(int)
            np.add.at(counts, (framed[:-1], framed[1:]), 1)
        self.symbols, self.logs = symbols, np.log(counts / counts.sum(1, keepdims=True))

    def log_probs(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As of `UnitLm`."""
        return [
            self.logs[np.concatenate([[self.symbols], units[:-1]]).astype(int), units]
            for units in sequences
        ]

    def states(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """(N, K): how often each unit is there."""
        return np.stack(
            [np.bincount(units, minlength=self.symbols) / max(len(units), 1) for units in sequences]
        )

    def next_units(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """As of `UnitLm`."""
        return self.logs[[int(units[-1]) for units in sequences]]


def load_unit_lm(folder: Path) -> UnitLm:
    """What `train_unit_lm` left. Raises InputError where there is none, or it is damaged."""
    card = read_json(folder / "card.json")
    if not isinstance(card, dict) or card.get("what") != WHAT:
        raise InputError(
            f"{folder} is no unit language model; give a folder of `speechssl text unit-lm`"
        )
    try:
        options = {"dtype": torch.float32, "local_files_only": True}
        model = AutoModelForCausalLM.from_pretrained(
            folder / "model", **options, trust_remote_code=False
        )
    except Exception as error:  # transformers and safetensors each raise their own
        raise InputError(
            f"cannot load {folder / 'model'} ({reason_of(error)}); train the model again"
        ) from error
    if encoder_named(str(folder / "model")).get("weights") != card.get("weights"):
        raise InputError(
            f"the weights in {folder / 'model'} do not match their card; train the model again"
        )
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    length = int(card["options"]["length"])
    return UnitLm(model, int(card["K"]), longest_sequence(model) or length, card, length)


def utterances(units: Path, lm: UnitLm, folder: Path) -> list[UtteranceUnits]:
    """Those with units. folder: of the model, for messages. Raises InputError for units of another
    codebook, or none."""
    check_same(units_card(units), lm.card, units, f"the model {folder}")
    filled = [u for u in iterate_units(units) if len(u.runs)]
    if not filled:
        raise InputError(
            f"the units in {units} are empty; extract those of recordings that can be read"
        )
    return filled


# ---- what a model knows

Items = dict[str, tuple[float, float]]
Model = UnitLm | Bigram
BIGRAM = "bigram"


def probe(
    model: str,
    units: Path,
    results: Path,
    arm: str,
    words: Path | None,
    word_units: Path | None,
    o: ProbeOptions,
) -> list[str]:
    """Test a model; a line a test. Raises InputError for what does not fit together, or is too long
    for the model."""
    if (words is None) != (word_units is None):
        raise InputError(
            "words are tested by their units; give both --spoken-words and --word-units, or neither"
        )
    lm: Model
    if model == BIGRAM:
        card = units_card(units / "train")
        lm = Bigram([u.runs.units for u in iterate_units(units / "train")], int(card["K"]))
        check_same(units_card(units / o.split), card, units / o.split)
        spoken = [u for u in iterate_units(units / o.split) if len(u.runs)]
        details: dict[str, Any] = {"model": BIGRAM, "units": card["made_from"], "curve": []}
    else:
        lm = load_unit_lm(Path(model))
        spoken, card = utterances(units / o.split, lm, Path(model)), lm.card
        details = {
            name: card[name]
            for name in ("start", "weights", "units", "curve", "options", "training")
        }
    seed = int(details.get("options", {}).get("training", {}).get("seed", 0))
    details |= {"probe": asdict(o)}
    scores = lm.log_probs([u.runs.units for u in spoken])
    items = {
        u.id: (float(len(log_probs)), -float(log_probs.sum()))
        for u, log_probs in zip(spoken, scores, strict=True)
    }
    tests = {PERPLEXITY: (items, list(items))}  # task -> items, and what is drawn of each
    if words is not None and word_units is not None:
        check_same(
            units_card(word_units),
            card,
            word_units,
            f"those of {model}" if model != BIGRAM else f"those in {units}",
        )
        listed = spoken_words(words, word_units)
        tests |= {
            SPOT_THE_WORD: spot_the_word(lm, listed),
            SAME_DIFFERENT: same_different(lm, listed, o.seed),
            SAME_NON_WORD: same_different(lm, listed, None),
            FEW_SHOT: few_shot(lm, listed, o),
        }
    lines = []
    for task, (items, drawn) in tests.items():
        of_words = task != PERPLEXITY
        metric, facts = (ACCURACY, details | {"curve": []}) if of_words else (PERPLEXITY, details)
        if task == FEW_SHOT:
            facts["note"] = (
                f"Few-shot: {o.ways} words, {o.shots} examples of each; chance "
                f"{100 / o.ways:.0f} %."
            )
        folder = run_folder(results, task, arm, seed)
        groups = BootstrapUnits("word" if of_words else "recording", tuple((d,) for d in drawn))
        card = write_scores(results, task, metric, arm, seed, items, facts, groups)
        lines.append(
            f"{folder}: {card['value']:.2f}{' %' * of_words} {metric} ({len(items)} items)"
        )
    return lines


def spoken_words(words: Path, units: Path) -> list[tuple[SpokenWord, np.ndarray]]:
    """Each with its units; those without are counted. Raises InputError where none has."""
    runs = load_units(units)
    listed = read_spoken_words(words)
    with_units = [
        (word, runs[word.id].units) for word in listed if word.id in runs and len(runs[word.id])
    ]
    report_set_aside(
        {w.id: "it has no units" for w in listed if w.id not in runs or not len(runs[w.id])},
        "the tests of words",
    )
    if not with_units:
        raise InputError(
            f"{units} has no units of the words in {words}; extract them from "
            f"{words / 'words.jsonl'}"
        )
    return with_units


def spot_the_word(lm: Model, listed: Listed) -> tuple[Items, list[str]]:
    """(1, 1 where the word is likelier, 0 where not, a half for the same) of every word and voice,
    and its word."""
    scores = lm.log_probs([units for _, units in listed])
    means = {
        (word.word, word.voice, word.real): float(each.mean())
        for (word, _), each in zip(listed, scores, strict=True)
    }
    items: Items = {}
    drawn = []
    for word, voice, real in means:
        if real and (word, voice, False) in means:
            ahead = means[word, voice, True] - means[word, voice, False]
            items[f"{word}-{voice}"] = 1.0, 1.0 if ahead > 0 else 0.5 if ahead == 0 else 0.0
            drawn.append(word)
    if not items:
        raise InputError(
            "no word has units with its non-word; extract the units of all spoken words"
        )
    return items, drawn


def same_different(lm: Model, listed: Listed, seed: int | None) -> tuple[Items, list[str]]:
    """Of every word A and two voices x, y: is A by x nearer to A by y than another word by y? seed:
    draws that; None: its non-word.

    Raises InputError for fewer than two words or voices.
    """
    means = lm.states([units for _, units in listed])
    means = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    place = {(word.word, word.real, word.voice): i for i, (word, _) in enumerate(listed)}
    words, voices = sorted({w for w, real, _ in place if real}), sorted({v for *_, v in place})
    if len(words) < 2 or len(voices) < 2:
        raise InputError(
            "same-different needs two words and two voices at least; prepare the "
            "spoken words with more --voices"
        )
    rng = np.random.default_rng(0 if seed is None else seed)
    items: Items = {}
    drawn = []
    for word in words:
        for i, x in enumerate(voices):
            y = voices[(i + 1) % len(voices)]
            other = words[(words.index(word) + int(rng.integers(1, len(words)))) % len(words)]
            keys = (
                (word, True, x),
                (word, True, y),
                (word, False, y) if seed is None else (other, True, y),
            )
            if all(key in place for key in keys):
                anchor, same, different = (means[place[key]] for key in keys)
                ahead = float(anchor @ same - anchor @ different)
                items[f"{word}-{x}-{y}"] = 1.0, 1.0 if ahead > 0 else 0.5 if ahead == 0 else 0.0
                drawn.append(word)
    return items, drawn


def few_shot(lm: Model, listed: Listed, o: ProbeOptions) -> tuple[Items, list[str]]:
    """(the place of the word that is asked for among those of the prompt, that of the unit that the
    model finds likeliest).

    A prompt shows `shots` readings of each of `ways` words in a random order, each followed by the
    unit that stands for the word in this prompt, and then another reading. These units are drawn
    from those that no reading in the prompt begins or ends with (where there are too few, the
    rarest there), for a unit does not follow itself: runs are one symbol, and no model would
    predict it. Raises InputError for too few words or voices.
    """
    readings: dict[str, list[np.ndarray]] = {}
    for word, units in listed:
        if word.real:
            readings.setdefault(word.word, []).append(units)
    words = sorted(word for word, sequences in readings.items() if len(sequences) > o.shots)
    if len(words) < o.ways or lm.symbols < o.ways:
        raise InputError(
            f"few-shot with {o.ways} words and {o.shots} examples of each needs as many words, "
            f"each by {o.shots + 1} voices, "
            f"of which there are {len(words)}; give smaller --ways or --shots, or prepare more "
            "words and voices"
        )
    rng = np.random.default_rng(o.seed)
    prompts, gold, marks, targets = [], [], [], []
    for _ in range(o.queries):
        chosen = [words[i] for i in rng.permutation(len(words))[: o.ways]]
        right = int(rng.integers(o.ways))
        shown, query = list[tuple[int, np.ndarray]](), np.zeros(0, np.int64)
        for way, word in enumerate(chosen):
            order = rng.permutation(len(readings[word]))
            shown += [(way, readings[word][i]) for i in order[: o.shots]]
            if way == right:
                query = readings[word][order[o.shots]]
        edges = Counter(
            int(reading[at])
            for _, reading in [*shown, (right, query)]
            for at in (0, -1)
            if len(reading)
        )
        signs = np.array(
            sorted(rng.permutation(lm.symbols).tolist(), key=lambda unit: edges[unit])[: o.ways]
        )
        parts = [np.append(shown[i][1], signs[shown[i][0]]) for i in rng.permutation(len(shown))]
        prompts.append(np.concatenate([*parts, query]))
        gold.append(right)
        marks.append(signs)
        targets.append(chosen[right])
    following = lm.next_units(prompts)
    items = {
        f"{i}-{word}": (float(right), float(np.argmax(scores[signs])))
        for i, (word, right, scores, signs) in enumerate(
            zip(targets, gold, following, marks, strict=True)
        )
    }
    return items, targets


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
    """phones, other: of the word and of its non-word, with stress marks; place: of the one that
    differs."""

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


Listed = Sequence[tuple[SpokenWord, np.ndarray]]  # with its units


def bare(phones: Sequence[str]) -> tuple[str, ...]:
    """Without stress marks."""
    return tuple(_STRESS.sub("", phone) for phone in phones)


def pairs_of(phones: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Neighbours in a word, its edges among them. phones: without stress."""
    return pairwise((EDGE, *phones, EDGE))


def non_word(
    word: str,
    phones: Sequence[str],
    pairs: Mapping[tuple[str, str], int],
    real: Collection[tuple[str, ...]],
) -> Pair | None:
    """A word with its non-word; None where there is none. pairs: how often neighbours occur; real:
    pronunciations of words."""
    plain = bare(phones)

    def frequency(sequence: Sequence[str]) -> float:
        return sum(math.log(pairs[pair]) for pair in pairs_of(sequence)) / (len(sequence) + 1)

    candidates: list[tuple[float, int, str]] = []
    for place, phone in enumerate(plain):
        for other in next((kind for kind in KINDS if phone in kind), ()):
            variant = (*plain[:place], other, *plain[place + 1 :])
            if (
                other != phone
                and variant not in real
                and all(pairs.get(pair) for pair in pairs_of(variant))
            ):
                candidates.append((abs(frequency(variant) - frequency(plain)), place, other))
    if not candidates:
        return None
    _, place, other = min(candidates)
    mark = phones[place][: len(phones[place]) - len(plain[place])]
    return Pair(word, tuple(phones), (*phones[:place], mark + other, *phones[place + 1 :]), place)


def choose_pairs(
    words: Mapping[str, int], count: int, fewest: int, avoided: Sequence[str]
) -> list[Pair]:
    """Of the commonest words those that have a non-word, and no pronunciation that came before.
    words: how often each occurs.

    Raises InputError where there are fewer than `count`.
    """
    listed = sorted(words, key=lambda word: (-words[word], word))
    spoken = dict(zip(listed, pronounce(listed, "en-us", stress=True), strict=True))
    real = {bare(phones) for phones in spoken.values()} | {
        tuple(phones) for phones in pronounce(avoided, "en-us")
    }
    pairs = Counter(pair for phones in spoken.values() for pair in pairs_of(bare(phones)))
    chosen: list[Pair] = []
    used: set[tuple[str, ...]] = set()
    for word, phones in spoken.items():
        plain = bare(phones)
        if len(chosen) == count or len(plain) < fewest or plain in used:
            continue
        if candidate := non_word(word, phones, pairs, real | used):
            chosen.append(candidate)
            used |= {plain, bare(candidate.other)}
    if len(chosen) < count:
        raise InputError(
            f"only {len(chosen)} words of the corpus have {fewest} phones and a non-word, not "
            f"{count}; "
            "give fewer --words or --phones"
        )
    return chosen


def make_spoken_words(o: SpokenWords) -> str:
    """Speak them (once); a line that says what came out.

    Raises InputError for a corpus that is not English, or too few words or voices; MissingExtra
    without the synthesiser.
    """
    voices = speakers("en", "test")
    if o.voices > len(voices):
        raise InputError(
            f"there are {len(voices)} voices that no training set has; give "
            f"--voices {len(voices)} at most"
        )
    inputs = {"data": data_hash(o.corpus, o.split), "avoid": o.avoid}
    with stage(o.out, inputs, {"words": o.words, "voices": o.voices, "phones": o.phones}) as step:
        if not step.done:
            corpus = load_corpus(o.corpus, o.split)
            if corpus.language != "en":
                raise InputError(
                    f"{o.corpus} is in {corpus.language}; words are taken from an English corpus"
                )
            written = [
                *(p.written for p in corpus.passages.values()),
                *(q.written for q in corpus.questions),
            ]
            words = Counter(
                word for text in written for word in re.findall(r"[a-z]+", text.lower())
            )
            avoided: list[str] = []
            if o.avoid:
                _, tokenizer = load_text_encoder(o.avoid)
                avoided = [
                    token.lstrip("Ġ▁")
                    for token in tokenizer.convert_ids_to_tokens(plain_words(tokenizer))
                ]
            pairs = choose_pairs(words, o.words, o.phones, avoided)
            lines = []
            for number, pair in enumerate(tqdm(pairs, desc="synthesising words", unit="word")):
                for real, phones in ((True, pair.phones), (False, pair.other)):
                    for voice in voices[: o.voices]:
                        name = f"{number:04d}-{'word' if real else 'other'}-{voice.name}"
                        place = f"audio/{name}.flac"
                        write_flac(o.out / place, spoken(phones, voice))
                        lines.append(
                            SpokenWord(name, place, pair.word, real, voice.name, " ".join(phones))
                        )
            write_text(o.out / MANIFEST, "".join(json.dumps(asdict(line)) + "\n" for line in lines))
            listed = [
                {
                    "word": p.word,
                    "phones": " ".join(p.phones),
                    "other": " ".join(p.other),
                    "place": p.place,
                }
                for p in pairs
            ]
            spoken_by = {
                "words": len(pairs),
                "voices": [v.name for v in voices[: o.voices]],
                "pairs": listed,
            }
            step.finish(
                {"what": "spoken words", "manifest": hash_files([o.out / MANIFEST])} | spoken_by
            )
        return (
            f"{o.out}: {step.card['words']} words and as many non-words by "
            f"{len(step.card['voices'])} voices"
        )


def spoken(phones: Sequence[str], voice: Voice) -> np.ndarray:
    """(N,) samples at 16 kHz between two short silences."""
    audio = speak_phones(phones, voice)
    samples = trimmed(
        resample(audio.samples.astype(np.float32) / 2**15, audio.sample_rate, SAMPLE_RATE)
    )
    return np.asarray(np.pad(samples, round(QUIET * SAMPLE_RATE)), np.float32)


def read_spoken_words(folder: Path) -> list[SpokenWord]:
    """The manifest; stderr says where it is not the one that was made. Raises InputError where
    there is none, or it is damaged."""
    words, card = [], read_json(folder / CARD) if (folder / CARD).is_file() else {}
    if (folder / MANIFEST).is_file() and card.get(
        "manifest", now := hash_files([folder / MANIFEST])
    ) != now:
        warn_edited(folder / MANIFEST)
    for number, values in read_lines(folder / MANIFEST):
        fields: dict[str, Any] = {
            name: values.get(name) for name in SpokenWord.__dataclass_fields__
        }
        if not all(
            isinstance(value, bool if name == "real" else str) for name, value in fields.items()
        ):
            place = f"{folder / MANIFEST}:{number}"
            raise InputError(
                f"{place} is no line of `speechssl prepare spoken-words`; make the words again"
            )
        check_inside(folder, fields["audio"], f"{folder / MANIFEST}:{number}")
        words.append(SpokenWord(**fields))
    return words


# ---- how a model goes on

NGRAM = 5


def continuations(o: TextContinue) -> list[Table]:
    """Write RESULTS/continuations/ARM-SEED.json, and return its tables.

    Raises InputError for units of another codebook, or recordings that are all shorter than the
    prompt.
    """
    lm = load_unit_lm(o.model)
    recordings = utterances(o.units / o.split, lm, o.model)
    grid = FrameGrid(**units_card(o.units / o.split)["grid"])
    seen = {
        run
        for u in iterate_units(o.units / "train")
        for run in ngrams(u.runs.units.tolist(), NGRAM)
    }
    frames = grid.frames(round(o.prompt_seconds * grid.sample_rate))
    long = [u for u in recordings if u.runs.frames > frames > 0][: o.recordings]
    if not long:
        raise InputError(
            f"no recording in {o.units / o.split} is longer than {o.prompt_seconds:g} s; give "
            "smaller --prompt-seconds"
        )
    lines: list[dict[str, Any]] = []
    for number, utterance in enumerate(tqdm(long, desc="continuations", unit="recording")):
        units = utterance.runs.units
        cut = utterance.runs.unit_at(frames - 1) + 1
        prompt, followed = units[:cut], units[cut : cut + o.count]
        line: dict[str, Any] = {
            "id": utterance.id,
            "prompt": prompt.tolist(),
            "followed": followed.tolist(),
            "drawn": {},
        }
        if len(followed):
            line["measures"] = {REAL: measures(lm, prompt, followed, seen)}
            for temperature in o.temperature:
                generator = torch.Generator().manual_seed(1_000_003 * o.seed + number)
                drawn = lm.generate(prompt, o.count, temperature, generator)
                line["drawn"][f"{temperature:g}"] = drawn.tolist()
                if len(drawn):
                    line["measures"][f"{temperature:g}"] = measures(lm, prompt, drawn, seen)
            lines.append(line)
    seed = int(lm.card["options"]["training"]["seed"])
    options = asdict(o) | {
        name: Path(getattr(o, name)).name for name in ("model", "units", "results")
    }
    card = {
        "arm": o.arm,
        "seed": seed,
        "options": options,
        "weights": lm.card["weights"],
        "continuations": lines,
    }
    write_json(o.results / "continuations" / f"{arm_name(o.arm)}-{seed}.json", card, checked=True)
    return continuation_tables([card])


def measures(
    lm: UnitLm, prompt: np.ndarray, units: np.ndarray, seen: set[Hashable]
) -> dict[str, float | None]:
    """surprise: mean negative log-likelihood, in nats; different: of the pairs of units; known: of
    the runs of NGRAM."""
    (scores,) = lm.log_probs([np.concatenate([prompt, units])])
    pairs = list(pairwise(map(int, units)))
    runs = ngrams(units.tolist(), NGRAM)
    return {
        "units": float(len(units)),
        "surprise": -float(scores[len(prompt) :].mean()),
        "different": len(set(pairs)) / len(pairs) if pairs else None,
        "known": sum(run in seen for run in runs) / len(runs) if runs else None,
    }
