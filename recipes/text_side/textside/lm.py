"""Score units with language models of units.

Symbols are the K units of a codebook, and one more, id K, that stands before every recording and
behind the last; a run of equal units is one symbol. Letters: K units, U units of a recording, H
width of the model, N sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.artifacts import read_json
from speechssl.errors import InputError
from speechssl.textlm.encoders import count_positions
from speechssl.units.storage import UtteranceUnits, iterate_units, read_units_card
from textside.objectives import CausalModel, load_causal, pad_sequences

WHAT = "unit language model"  # on the card of a model
BIGRAM = "bigram"  # in the place of a model
BATCH = 16  # sequences that are scored together


def check_codebook(card: dict[str, Any], model: dict[str, Any], folder: Path) -> None:
    """Raise InputError where units are of another codebook than a model, or than other units.

    card, model: cards with "K" and "codebooks"; folder: of the units, for the message.
    """
    same = set(card.get("codebooks", ())) & set(model.get("codebooks", ()))
    if int(card["K"]) != int(model["K"]) or not same:
        raise InputError(
            f"the units in {folder} are of another codebook (K = {card['K']}) than those that come "
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
        self.device = next(model.parameters()).device

    @torch.inference_mode()
    def run(
        self, sequences: Sequence[np.ndarray], previous: Sequence[int] = ()
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Yield for every sequence, in any order, its number, logits (U + 1, K + 1) and outputs
        (U + 1, H). The first of both are at the symbol before the sequence.

        previous: the symbol before each sequence, id K or the unit that it goes on from; (): id K.
        Raises InputError for a sequence that is longer than the positions.
        """
        longest = max(map(len, sequences), default=0)
        previous = previous or [self.symbols] * len(sequences)
        if longest >= self.positions:
            raise InputError(
                f"a sequence of {longest} units does not fit into the {self.positions} positions "
                "of the language model; give shorter prompts, or a model with more positions"
            )
        rows = self.model.table.weight
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        for first in range(0, len(order), BATCH):
            numbers = order[first : first + BATCH]
            batch = pad_sequences([[previous[i], *sequences[i]] for i in numbers], self.symbols)
            hidden = self.model.hidden(batch["ids"].to(self.device), batch["mask"].to(self.device))
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
        windows: list[np.ndarray] = []
        previous: list[int] = []  # symbol before each window
        # of each window: number of its sequence, and how many of its units the window before scores
        owners: list[tuple[int, int]] = []
        size = self.window - 1
        for i, units in enumerate(sequences):
            starts = [0]
            if len(units) > size:
                starts = [*range(0, len(units) - size, max(size // 2, 1)), len(units) - size]
            done = 0
            for start in starts:
                windows.append(units[start : start + size])
                previous.append(int(units[start - 1]) if start else self.symbols)
                owners.append((i, done - start))
                done = min(start + size, len(units))
        by_window: dict[int, np.ndarray] = {}
        for n, logits, _ in self.run(windows, previous):
            targets = torch.as_tensor(np.asarray(windows[n], np.int64))
            log_probs = logits[:-1].log_softmax(-1)
            by_window[n] = log_probs[torch.arange(len(targets)), targets].numpy()
        by_sequence: list[list[np.ndarray]] = [[] for _ in sequences]
        for n, (i, overlap) in enumerate(owners):
            scores = by_window[n]
            by_sequence[i].append(scores[overlap:])
        return [np.concatenate(parts) for parts in by_sequence]

    def states(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean of the outputs over the units of each of N sequences, (N, H)."""
        means = {i: outputs[1:].mean(0).numpy() for i, _, outputs in self.run(sequences)}
        return np.stack([means[i] for i in range(len(sequences))])

    def next_units(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return the log-likelihoods of the next symbol after each of N sequences, (N, K + 1)."""
        rows = {i: logits[-1].log_softmax(-1).numpy() for i, logits, _ in self.run(sequences)}
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
        """Return what `UnitLm.log_probs` does."""
        scores = []
        for units in sequences:
            before = np.concatenate([[self.symbols], units[:-1]]).astype(int)
            scores.append(self.logs[before, units])
        return scores

    def states(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return the share of each unit in each of N sequences, (N, K)."""
        counts = [np.bincount(units, minlength=self.symbols) for units in sequences]
        return np.stack([c / max(c.sum(), 1) for c in counts])

    def next_units(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Return what `UnitLm.next_units` does."""
        return self.logs[[int(units[-1]) for units in sequences]]


def load_unit_lm(folder: Path) -> UnitLm:
    """Load a model of `unit_lm.py`."""
    card = read_json(folder / "card.json")
    loaded = load_causal(str(folder / "model"))
    length = int(card["options"]["length"])
    positions = count_positions(loaded) or length
    model = CausalModel(loaded).to("cuda" if torch.cuda.is_available() else "cpu")
    return UnitLm(model, int(card["K"]), positions, card, length)


def read_utterances(units: Path, card: dict[str, Any]) -> list[UtteranceUnits]:
    """Read the recordings that have units. card: of a model. Raises InputError for units of another
    codebook than the model's."""
    check_codebook(read_units_card(units), card, units)
    return [u for u in iterate_units(units) if len(u.runs)]


Model = UnitLm | Bigram
