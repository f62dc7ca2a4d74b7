"""Score units with language models of units.

Symbols are the K units of a codebook, of which runs are one symbol, and one more, id K, that stands
before every recording and behind the last. Letters: K units, U units of a recording, H width of the
model, N sequences.
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

WHAT = "unit language model"  # on the card of a model
BIGRAM = "bigram"  # in the place of a model
BATCH = 16  # sequences that are scored together


def check_same(card: dict[str, Any], model: dict[str, Any], place: Path) -> None:
    """Raise InputError where units are of another codebook than a model, or than other units.

    card, model: cards with "K" and "codebooks"; place: of the units, for the message.
    """
    same = set(card.get("codebooks", ())) & set(model.get("codebooks", ()))
    if int(card["K"]) != int(model["K"]) or not same:
        raise InputError(
            f"the units in {place} are of another codebook (K = {card['K']}) than those that come "
            f"first or the model (K = {model['K']}); extract them with the same codebook"
        )


class UnitLm:
    """A trained model scores sequences of units. Id K, which stands before them, is added here."""

    def __init__(
        self,
        model: CausalModel,
        symbols: int,
        positions: int,
        card: dict[str, Any] | None = None,
        window: int | None = None,
    ) -> None:
        """Put a model into eval mode. symbols: K; positions: of the longest sequence, id K
        included; window: of the longest sequence in training, None: as many."""
        self.model, self.card = model.eval(), card or {}
        self.symbols, self.positions = symbols, positions
        self.window = min(window or positions, positions)
        self.place = next(model.parameters()).device

    @torch.inference_mode()
    def read(
        self, sequences: Sequence[np.ndarray], begins: Sequence[int] = ()
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Yield for every sequence, in any order, its number, logits (U + 1, K + 1) and outputs
        (U + 1, H), beginning with those of the symbol before it.

        begins: the symbol before each, id K or the unit that it goes on from; (): id K. Raises
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
        for first in range(0, len(order), BATCH):
            numbers = order[first : first + BATCH]
            batch = pad_sequences([[before[i], *sequences[i]] for i in numbers], self.symbols)
            hidden = self.model.hidden(batch["ids"].to(self.place), batch["mask"].to(self.place))
            logits = (hidden @ rows.T).float()
            for i, line, outputs in zip(numbers, logits, hidden, strict=True):
                size = len(sequences[i]) + 1
                yield i, line[:size].cpu(), outputs[:size].float().cpu()

    def log_probs(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the log-likelihood of every unit, (U,), in nats.

        A sequence that is longer than those of training is read in windows of their length that
        overlap by half; a later window goes on from the unit before it, for no recording begins
        there.
        """
        pieces: list[np.ndarray] = []
        begins: list[int] = []
        # number of the sequence; units of the piece that were scored before
        owners: list[tuple[int, int]] = []
        size = self.window - 1
        for i, units in enumerate(sequences):
            starts = [0]
            if len(units) > size:
                starts = [*range(0, len(units) - size, max(size // 2, 1)), len(units) - size]
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
        means = {i: outputs[1:].mean(0).numpy() for i, _, outputs in self.read(sequences)}
        return np.stack([means[i] for i in range(len(sequences))])

    def next_units(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return the log-likelihoods of the next symbol after each of N sequences, (N, K + 1)."""
        rows = {i: logits[-1].log_softmax(-1).numpy() for i, logits, _ in self.read(sequences)}
        return np.stack([rows[i] for i in range(len(sequences))])


class Bigram:
    """Counts of pairs of units, with one added to each, are a floor for the models."""

    def __init__(self, recordings: Sequence[np.ndarray], symbols: int) -> None:
        counts = np.ones((symbols + 1, symbols + 1))
        for units in recordings:
            framed = np.concatenate([[symbols], units, [symbols]]).astype(int)
            np.add.at(counts, (framed[:-1], framed[1:]), 1)
        self.symbols, self.logs = symbols, np.log(counts / counts.sum(1, keepdims=True))

    def log_probs(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the same as `UnitLm`."""
        scores = []
        for units in sequences:
            before = np.concatenate([[self.symbols], units[:-1]]).astype(int)
            scores.append(self.logs[before, units])
        return scores

    def states(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return the share of each unit, (N, K)."""
        counts = [np.bincount(units, minlength=self.symbols) for units in sequences]
        return np.stack([c / max(c.sum(), 1) for c in counts])

    def next_units(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return the same as `UnitLm`."""
        return self.logs[[int(units[-1]) for units in sequences]]


def load_unit_lm(folder: Path) -> UnitLm:
    """Load a model of `unit_lm.py`."""
    card = read_json(folder / "card.json")
    loaded = load_causal(str(folder / "model"))
    length = int(card["options"]["length"])
    positions = longest_sequence(loaded) or length
    model = CausalModel(loaded).to("cuda" if torch.cuda.is_available() else "cpu")
    return UnitLm(model, int(card["K"]), positions, card, length)


def utterances(units: Path, card: dict[str, Any]) -> list[UtteranceUnits]:
    """Read the recordings that have units. card: of a model. Raises InputError for units of another
    codebook than the model's."""
    check_same(units_card(units), card, units)
    return [u for u in iterate_units(units) if len(u.runs)]


Model = UnitLm | Bigram
