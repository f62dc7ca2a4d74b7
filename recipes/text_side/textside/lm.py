"""Language models of units, as they are read: what they say of units.

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

from speechssl.artifacts import read_json
from speechssl.errors import InputError
from speechssl.textlm.encoders import longest_sequence
from speechssl.units.storage import UtteranceUnits, iterate_units, units_card
from textside.objectives import CausalModel, load_causal, pad_sequences

WHAT = "unit language model"
BIGRAM = "bigram"
TOGETHER = 16  # sequences scored at a time


def check_same(card: dict[str, Any], model: dict[str, Any], place: Path) -> None:
    """Raise InputError where units are of another codebook than a model, or than other units.

    card, model: cards with "K" and "codebooks".
    """
    same = set(card.get("codebooks", ())) & set(model.get("codebooks", ()))
    if int(card["K"]) != int(model["K"]) or not same:
        raise InputError(
            f"the units in {place} are of another codebook (K = {card['K']}) than those that come "
            f"first or the model (K = {model['K']}); extract them with the same codebook"
        )


class UnitLm:
    """A trained model that scores and generates. Sequences are units without id K, which is put
    before them."""

    def __init__(
        self,
        model: CausalModel,
        symbols: int,
        positions: int,
        card: dict[str, Any] | None = None,
        window: int | None = None,
    ) -> None:
        """Take a model in eval mode. symbols: K; positions: the longest sequence, id K included;
        window: how much of it training has seen, None: all."""
        self.model, self.card = model.eval(), card or {}
        self.symbols, self.positions = symbols, positions
        self.window = min(window or positions, positions)
        self.place = next(model.parameters()).device

    @torch.inference_mode()
    def read(
        self, sequences: Sequence[np.ndarray], begins: Sequence[int] = ()
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Yield of every sequence, in any order, its number, logits (U + 1, K + 1) and outputs (U +
        1, H), from what is before it on.

        begins: what is before each, id K or the unit that it goes on from; none: id K. Raises
        InputError for a sequence that is longer than the positions.
        """
        longest = max(map(len, sequences), default=0)
        before = begins or [self.symbols] * len(sequences)
        if longest >= self.positions:
            raise InputError(
                f"a sequence of {longest} units does not fit into the {self.positions} positions "
                "of the language model; give shorter prompts, or a model with more positions"
            )
        rows = self.model.table.weight
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        for first in range(0, len(order), TOGETHER):
            places = order[first : first + TOGETHER]
            batch = pad_sequences([[before[i], *sequences[i]] for i in places], self.symbols)
            hidden = self.model.hidden(batch["ids"].to(self.place), batch["mask"].to(self.place))
            logits = (hidden @ rows.T).float()
            for i, line, outputs in zip(places, logits, hidden, strict=True):
                size = len(sequences[i]) + 1
                yield i, line[:size].cpu(), outputs[:size].float().cpu()

    def log_probs(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the log-likelihood of every unit, (U,), in nats. What is longer than the sequences
        of training is read in windows of their length that overlap by half; a later window goes on
        from the unit before it, for no recording begins there."""
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
        """Return the mean of the outputs over the units of each of N sequences, (N, H)."""
        means: dict[int, np.ndarray] = {
            i: outputs[1:].mean(0).numpy() for i, _, outputs in self.read(sequences)
        }
        return np.stack([means[i] for i in range(len(sequences))])

    def next_units(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return the log-likelihoods of what follows each of N sequences, (N, K + 1)."""
        rows = {i: logits[-1].log_softmax(-1).numpy() for i, logits, _ in self.read(sequences)}
        return np.stack([rows[i] for i in range(len(sequences))])


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
        """Return the same as `UnitLm`."""
        return [
            self.logs[np.concatenate([[self.symbols], units[:-1]]).astype(int), units]
            for units in sequences
        ]

    def states(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return how often each unit is there, (N, K)."""
        return np.stack(
            [np.bincount(units, minlength=self.symbols) / max(len(units), 1) for units in sequences]
        )

    def next_units(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return the same as `UnitLm`."""
        return self.logs[[int(units[-1]) for units in sequences]]


def load_unit_lm(folder: Path) -> UnitLm:
    """Load what `train_unit_lm` left."""
    card = read_json(folder / "card.json")
    loaded = load_causal(str(folder / "model"))
    length = int(card["options"]["length"])
    positions = longest_sequence(loaded) or length
    model = CausalModel(loaded).to("cuda" if torch.cuda.is_available() else "cpu")
    return UnitLm(model, int(card["K"]), positions, card, length)


def utterances(units: Path, lm: UnitLm) -> list[UtteranceUnits]:
    """Read those with units. Raises InputError for units of another codebook than the model's."""
    check_same(units_card(units), lm.card, units)
    return [u for u in iterate_units(units) if len(u.runs)]


Model = UnitLm | Bigram
