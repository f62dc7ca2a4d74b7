"""Language models of units, as they are read: what they say of units, and how they go on.

Symbols are the K units of a codebook, of which runs are one symbol, and one more, id K, that stands
before every recording and behind the last.
Letters: K units, U units of a recording, H width of the model, N sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from speechssl.artifacts import read_json
from speechssl.errors import InputError
from speechssl.textlm.encoders import longest_sequence, reason_of
from speechssl.units.storage import UtteranceUnits, iterate_units, units_card
from textside.objectives import CausalModel, padded
from textside.runs import describe_encoder

WHAT = "unit language model"
TOGETHER = 16  # sequences scored at a time


def check_same(
    card: dict[str, Any],
    model: dict[str, Any],
    place: Path,
    what: str = ("the units that come first"),
) -> None:
    """Raise InputError where units are not those of a model, or of other units: another K, or
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
        raise InputError(f"{folder} is no unit language model; give a folder of `unit_lm.py`")
    try:
        options = {"dtype": torch.float32, "local_files_only": True}
        model = AutoModelForCausalLM.from_pretrained(
            folder / "model", **options, trust_remote_code=False
        )
    except Exception as error:  # transformers and safetensors each raise their own
        raise InputError(
            f"cannot load {folder / 'model'} ({reason_of(error)}); train the model again"
        ) from error
    if describe_encoder(str(folder / "model")).get("weights") != card.get("weights"):
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


Model = UnitLm | Bigram
BIGRAM = "bigram"
