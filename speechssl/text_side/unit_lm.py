"""A language model of units: GPT on units (GSLM, arXiv 2102.01192), from a text-pre-trained body (TWIST, 2305.13009) or none.

Symbols are the K units of a codebook, of which runs are one symbol, and one more, id K, that stands before every recording and
behind the last. TWIST keeps the layers of a text model and draws new rows for the units; `--assignment` has the other ways in which
DUAL gives rows to units, and `scratch`.
OUT/model is a checkpoint of transformers.
Letters: K units, U units of a recording, H width of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from speechssl.errors import InputError
from speechssl.io import read_json, stage
from speechssl.processes import is_main, main_first
from speechssl.text_side.config import UnitLmOptions
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
from speechssl.text_side.pretrain import whole
from speechssl.text_side.runs import encoder_named, fit_and_score
from speechssl.textlm import assign_tokens, longest_sequence, reason_of, without_dropout
from speechssl.trainer import check_share
from speechssl.units.storage import Utterance, iterate_units, units_card

WHAT = "unit language model"
NEW, SCRATCH = "re-init", "scratch"
TOGETHER = 16  # sequences scored at a time


def train_unit_lm(units: Path, out: Path, o: UnitLmOptions) -> str:
    """Train (once) on a split, and leave the model in `out`/model; a line that says what came out.

    Raises InputError for units that there are not, a start that is no language model, sequences longer than its positions, or an
    `out` that was made from other inputs.
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
    named = encoder_named(o.start) if o.start else {}
    start = {"start": named["encoder"]} if named else {}
    with stage(out, inputs | {"start": named}, asdict(o) | start) as step:
        if not step.done:
            torch.manual_seed(seed)
            model = begin(o, symbols)
            check_length(o.length, model, "symbols", "the language model")
            if not o.dropout:
                without_dropout(model)
            stream = Recordings([u.runs.units for u in iterate_units(folder)], symbols, folder)
            trained = CausalModel(model)
            held_out = [u.runs.units for u in iterate_units(scored)] if scored else []

            def perplexity() -> float:
                lm = UnitLm(trained, symbols, longest_sequence(model) or o.length, window=o.length)
                found = lm.log_probs(held_out)
                trained.train()
                return float(np.exp(-np.concatenate(found).mean()))

            batches = CausalBatches(whole(stream), None, symbols, o.batch, o.length, seed)
            every = o.evaluate_every if held_out else 0
            score = perplexity if held_out else lambda: 0.0
            result, curve = fit_and_score(trained, batches, o.training, out / "checkpoints", score, every)
            with main_first():
                if is_main():
                    save_causal(model, trained, out / "model")
                    about = {"what": WHAT, "K": symbols, "units": card["made_from"], "codebooks": card["codebooks"]}
                    made = {"options": asdict(o) | start, "training": result, "curve": curve if held_out else []}
                    weights = encoder_named(str(out / "model"))["weights"]
                    step.finish(about | made | {"start": named, "weights": weights})
        made = read_json(out / "card.json")
    last = f", perplexity of {o.scored} {made['curve'][-1]['score']:.2f}" if made["curve"] else ""
    return f"{out}: unit language model of K = {symbols}, {o.assignment if o.start else SCRATCH}{last}"


def begin(o: UnitLmOptions, symbols: int) -> PreTrainedModel:
    """What training begins from. Raises InputError for a start that is none, or one without the rows that are asked for."""
    if o.start is None:
        model = make_causal(gpt2_values(symbols + 1, o.layers, o.width, o.heads, max(o.positions, o.length)))
    else:
        model = load_causal(o.start)
        if o.assignment == SCRATCH:
            model = make_causal(model.config.to_dict())
    source = model.get_input_embeddings().weight.detach()
    if o.start is None or o.assignment in (NEW, SCRATCH):
        std = getattr(model.config, "initializer_range", None)
        rows = torch.randn(symbols + 1, source.shape[1]) * float(source.std() if std is None else std)
    else:
        tokenizer = load_vocabulary(o.start, masked=False)
        chosen = assign_tokens(tokenizer, symbols, o.assignment, o.training.seed)
        special = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
        rows = source[[*chosen, special]]
    set_rows(model, rows, symbols)
    return model.train()


class Recordings:
    """Pieces of recordings, one after another in an endless order, id K before each. A stream, as of `data`."""

    def __init__(self, spoken: Sequence[np.ndarray], symbols: int, place: Path) -> None:
        """spoken: units of each, 0 to K - 1. Raises InputError where there are none."""
        kept = [units for units in spoken if len(units)]
        if not kept:
            raise InputError(f"the units in {place} are empty; extract those of recordings that can be read")
        self.ids = np.concatenate([np.concatenate([[symbols], units]) for units in kept]).astype(np.int64)

    def __call__(self, rng: np.random.Generator, length: int) -> np.ndarray:
        return np.take(self.ids, np.arange(length) + rng.integers(len(self.ids)), mode="wrap")


def check_same(card: dict[str, Any], model: dict[str, Any], place: Path, what: str = "the units that come first") -> None:
    """Raises InputError where units are not those of a model, or of other units: another K, or another codebook.

    card, model: cards with "K" and "codebooks"; what: whose they should be.
    """
    if int(card["K"]) != int(model["K"]):
        raise InputError(
            f"the units in {place} are of a codebook of {card['K']}, {what} of one of {model['K']}; extract them with that codebook"
        )
    if not set(card.get("codebooks", ())) & set(model.get("codebooks", ())):
        raise InputError(f"the units in {place} are of another codebook than {what}; extract them with the same codebook")


class UnitLm:
    """A trained model that scores and goes on. Sequences are units without id K, which is put before them."""

    def __init__(
        self,
        model: CausalModel | PreTrainedModel,
        symbols: int,
        positions: int,
        card: dict[str, Any] | None = None,
        window: int | None = None,
    ) -> None:
        """symbols: K; positions: the longest sequence, id K included; window: how much of it training has seen, None: all."""
        self.model, self.symbols, self.positions, self.card = model.eval(), symbols, positions, card or {}
        self.window = min(window or positions, positions)

    @torch.inference_mode()
    def read(self, sequences: Sequence[np.ndarray], begins: Sequence[int] = ()) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Of every sequence, in any order: its number, logits (U + 1, K + 1) and outputs (U + 1, H), from what is before it on.

        begins: what is before each, id K or the unit that it goes on from; none: id K. Raises InputError for a sequence that is
        longer than the positions.
        """
        longest = max(map(len, sequences), default=0)
        before = begins or [self.symbols] * len(sequences)
        if longest >= self.positions:
            raise InputError(
                f"a sequence of {longest} units does not fit into the {self.positions} positions of the language model; "
                "give shorter recordings or prompts, or a model with more positions"
            )
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        place = next(self.model.parameters()).device
        for first in range(0, len(order), TOGETHER):
            some = order[first : first + TOGETHER]
            batch = {k: v.to(place) for k, v in padded([[before[i], *sequences[i]] for i in some], self.symbols).items()}
            if isinstance(self.model, CausalModel):
                given = self.model.inputs(self.model.table(batch["ids"]), batch["mask"], None)
                hidden = self.model.body(**given).last_hidden_state
                rows = self.model.table.weight
            else:
                hidden = self.model.base_model(input_ids=batch["ids"], attention_mask=batch["mask"]).last_hidden_state
                rows = self.model.get_input_embeddings().weight
            logits = (hidden @ rows.T).float()
            for i, line, outputs in zip(some, logits, hidden, strict=True):
                size = len(sequences[i]) + 1
                yield i, line[:size].cpu(), outputs[:size].float().cpu()

    def log_probs(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """(U,) log-likelihood of every unit, in nats. What is longer than the sequences of training is read in windows of their
        length that overlap by half; a later window goes on from the unit before it, for no recording begins there.
        """
        pieces: list[np.ndarray] = []
        begins: list[int] = []
        owners: list[tuple[int, int]] = []  # number of the sequence; units of the piece that were scored before
        size = self.window - 1
        for i, units in enumerate(sequences):
            starts = [0] if len(units) <= size else [*range(0, len(units) - size, max(size // 2, 1)), len(units) - size]
            done = 0
            for start in starts:
                pieces.append(units[start : start + size])
                begins.append(int(units[start - 1]) if start else self.symbols)
                owners.append((i, done - start))
                done = min(start + size, len(units))
        found: list[np.ndarray | None] = [None] * len(pieces)
        for n, logits, _ in self.read(pieces, begins):
            wanted = torch.as_tensor(np.asarray(pieces[n], np.int64))
            found[n] = logits[:-1].log_softmax(-1)[torch.arange(len(wanted)), wanted].numpy()
        made: list[list[np.ndarray]] = [[] for _ in sequences]
        for (i, known), scores in zip(owners, found, strict=True):
            assert scores is not None
            made[i].append(scores[known:])
        return [np.concatenate(some) if some else np.zeros(0) for some in made]

    def states(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """(N, H): the mean of the outputs over the units of each of N sequences."""
        found: dict[int, np.ndarray] = {i: outputs[1:].mean(0).numpy() for i, _, outputs in self.read(sequences)}
        return np.stack([found[i] for i in range(len(sequences))])

    def next_units(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """(N, K + 1) log-likelihoods of what follows each of N sequences."""
        found = {i: logits[-1].log_softmax(-1).numpy() for i, logits, _ in self.read(sequences)}
        return np.stack([found[i] for i in range(len(sequences))])

    @torch.inference_mode()
    def go_on(self, prompt: np.ndarray, count: int, temperature: float, generator: torch.Generator) -> np.ndarray:
        """At most `count` units behind a prompt (U,), drawn at a temperature (0: the likeliest); fewer where the recording ends.

        A unit does not follow itself: runs are one symbol.
        """
        assert not isinstance(self.model, CausalModel)
        ids, cache, found = torch.tensor([[self.symbols, *prompt]]), None, list[int]()
        place = next(self.model.parameters()).device
        while len(found) < min(count, self.positions - 1 - len(prompt)):
            read = self.model(input_ids=ids.to(place), past_key_values=cache, use_cache=True)
            cache, logits = read.past_key_values, read.logits[0, -1].float().cpu()
            last = found[-1] if found else int(prompt[-1]) if len(prompt) else self.symbols
            logits[last] = -torch.inf
            if temperature > 0:
                unit = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
            else:
                unit = int(logits.argmax())
            if unit == self.symbols:
                break
            found.append(unit)
            ids = torch.tensor([[unit]])
        return np.array(found, np.int64)


class Bigram:
    """What pairs of units alone say: counts of a split, one added to each. It stands beside the models as a floor."""

    def __init__(self, spoken: Sequence[np.ndarray], symbols: int) -> None:
        counts = np.ones((symbols + 1, symbols + 1))
        for units in spoken:
            framed = np.concatenate([[symbols], units, [symbols]]).astype(int)
            np.add.at(counts, (framed[:-1], framed[1:]), 1)
        self.symbols, self.logs = symbols, np.log(counts / counts.sum(1, keepdims=True))

    def log_probs(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As of `UnitLm`."""
        return [self.logs[np.concatenate([[self.symbols], units[:-1]]).astype(int), units] for units in sequences]

    def states(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """(N, K): how often each unit is there."""
        return np.stack([np.bincount(units, minlength=self.symbols) / max(len(units), 1) for units in sequences])

    def next_units(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """As of `UnitLm`."""
        return self.logs[[int(units[-1]) for units in sequences]]


def load_unit_lm(folder: Path) -> UnitLm:
    """What `train_unit_lm` left. Raises InputError where there is none, or it is damaged."""
    card = read_json(folder / "card.json")
    if not isinstance(card, dict) or card.get("what") != WHAT:
        raise InputError(f"{folder} is no unit language model; give a folder of `speechssl text unit-lm`")
    try:
        model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, local_files_only=True)
    except Exception as error:  # transformers and safetensors each raise their own
        raise InputError(f"cannot load {folder / 'model'} ({reason_of(error)}); train the model again") from error
    if encoder_named(str(folder / "model")).get("weights") != card.get("weights"):
        raise InputError(f"the weights in {folder / 'model'} do not match their card; train the model again")
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    length = int(card["options"]["length"])
    return UnitLm(model, int(card["K"]), longest_sequence(model) or length, card, length)


def utterances(units: Path, lm: UnitLm, folder: Path) -> list[Utterance]:
    """Those with units. folder: of the model, for messages. Raises InputError for units of another codebook, or none."""
    check_same(units_card(units), lm.card, units, f"the model {folder}")
    found = [u for u in iterate_units(units) if len(u.runs)]
    if not found:
        raise InputError(f"the units in {units} are empty; extract those of recordings that can be read")
    return found
