"""The tasks of the frozen pre-trained transformer (arXiv 2103.05247, section 2.1), and its layers.

Of bit memory five strings are shown and then one of them with half of its bits masked (0 where the
others are -1 or 1), which is to be written whole; of bit XOR two strings; ListOps (1804.06028) are
expressions; images come in patches. Floors, which need no encoder, are scored on the same test
examples.
Letters: B sequences, T places, F what is read at a place, O places that are written, C classes of
one, H width of the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from speechssl.dual.data import draw_batch
from speechssl.dual.model import EncoderInputs
from speechssl.errors import InputError
from speechssl.training import Batch
from textside.published import COPY, NEAREST, OUTER, VOTE

STRINGS, PLACE = 5, 50  # strings of bit memory; bits at a place
OPERATORS = ("MIN", "MAX", "MED", "SUM_MOD")
ANSWERED = 2**31  # seed of the test examples, which no training step has; the next is that of dev
COUNTED = 2000  # generated training examples whose answers are counted for the commonest
DEV = 0.1  # of the training images, where a learning rate is chosen
TASKS = ("bit-memory", "bit-xor", "listops", "digits")
Examples = tuple[np.ndarray, np.ndarray]  # (n, T, F) what is shown, (n, O) what is to be written
Floor = Callable[[np.ndarray], np.ndarray]  # (n, T, F) -> (n, O)


@dataclass(frozen=True)
class Puzzle:
    """A task. make: examples, from a generator of random numbers and n; or tables.

    written: O, the last places; classes: C. floors: answers that need no encoder, by name.
    """

    name: str
    read: int  # F
    places: int  # T
    written: int
    classes: int
    make: Callable[[np.random.Generator, int], Examples] | None = None
    train: Examples = (np.empty(0), np.empty(0))
    test: Examples = (np.empty(0), np.empty(0))
    per_place: int = 1  # what is written at one place: bits
    floors: Mapping[str, Floor] = field(default_factory=dict)

    def batch(self, step: int, size: int, seed: int) -> Examples:
        if self.make is not None:
            return self.make(np.random.default_rng([seed, step]), size)
        numbers, _ = draw_batch(step, len(self.train[0]), size, seed)
        return self.train[0][numbers], self.train[1][numbers]

    def draw_test(self, count: int) -> Examples:
        """Return the same for all arms and seeds."""
        if self.make is not None:
            return self.make(np.random.default_rng(ANSWERED), count)
        return self.test

    def split_dev(self, count: int) -> tuple[Puzzle, Examples]:
        """Return the task without what is then dev, and dev: a tenth of the images to train on, or
        so many other generated examples."""
        if self.make is not None:
            return self, self.make(np.random.default_rng(ANSWERED + 1), count)
        shown, written = self.train
        first = len(shown) - max(1, round(DEV * len(shown)))
        dev = shown[first:], written[first:]
        return replace(self, train=(shown[:first], written[:first])), dev

    def find_commonest(self) -> np.ndarray:
        """Find the answers that are commonest in training, place by place, (O,)."""
        written = self.train[1]
        if self.make is not None:
            _, written = self.make(np.random.default_rng(0), COUNTED)
        counts = [np.bincount(answers, minlength=self.classes) for answers in written.T]
        return np.array(counts).argmax(1)


class Computer(nn.Module):
    """A layer that reads, an encoder, a layer that writes at the last places."""

    def __init__(self, encoder: PreTrainedModel, puzzle: Puzzle) -> None:
        super().__init__()
        width = encoder.get_input_embeddings().embedding_dim
        self.inputs, self.encoder, self.puzzle = EncoderInputs(encoder, width), encoder, puzzle
        self.read = nn.Linear(puzzle.read, width)
        self.write = nn.Linear(encoder.config.hidden_size, puzzle.per_place * puzzle.classes)

    def logits(self, shown: torch.Tensor) -> torch.Tensor:
        """Return (B, O, C). shown: (B, T, F)."""
        mask = torch.ones(shown.shape[:2], dtype=torch.long, device=shown.device)
        hidden = self.encoder(**self.inputs(self.read(shown), mask, None)).last_hidden_state
        last = hidden[:, -(self.puzzle.written // self.puzzle.per_place) :]
        shape = len(shown), self.puzzle.written, self.puzzle.classes
        return self.write(last).float().reshape(shape)

    def forward(self, shown: torch.Tensor, targets: torch.Tensor) -> Batch:
        """Return the loss, cross-entropy, and the share of what is right. targets: (B, O)."""
        logits = self.logits(shown)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return {"loss": loss, "right": (logits.argmax(-1) == targets).float().mean().detach()}


# ---- tasks


def load_puzzle(task: str, size: int | None = None) -> Puzzle:
    """Load a task. size: bits of a string, or places of an expression; None: the paper's. Raises
    InputError where there is no such task, or of this size."""
    if task == "bit-memory":
        bits = size or 1000
        place = min(PLACE, bits)
        if bits % place:
            raise InputError(f"--length {bits} is no multiple of {PLACE} bits, which are a place")
        places, floors = (STRINGS + 1) * bits // place, {COPY: copy_shown, VOTE: copy_and_vote}
        make = partial(make_memory, bits=bits, place=place)
        return Puzzle(task, place, places, bits, 2, make, per_place=place, floors=floors)
    if task == "bit-xor":
        bits = size or 5
        return Puzzle(task, 1, 2 * bits, bits, 2, partial(make_xor, bits=bits))
    if task == "listops":
        places = size or 512
        if places < 8:
            raise InputError(f"--length {places} is too short for ListOps; give at least 8 places")
        read, floors = len(SIGNS) + 1, {OUTER: apply_outer_operator}
        make = partial(make_listops, places=places)
        return Puzzle(task, read, places, 1, 10, make, floors=floors)
    if task == "digits":
        from sklearn.datasets import load_digits

        loaded = load_digits()
        images, labels = loaded.images.astype(np.float32)[..., None] / 16, loaded.target
        order = np.random.default_rng(0).permutation(len(images))
        train = len(images) - len(images) // 4
        return cut_images(task, images[order], labels[order], train, patch=2)
    path = Path(task)
    if path.suffix == ".npz" and path.is_file():
        arrays = np.load(path)
        parts = [np.concatenate([arrays[f"{x}_train"], arrays[f"{x}_test"]]) for x in "xy"]
        images = parts[0].reshape(*parts[0].shape[:3], -1).astype(np.float32) / 255
        return cut_images(path.stem, images, parts[1].ravel(), len(arrays["x_train"]), patch=4)
    raise InputError(
        f"{task} is no task; choose from {', '.join(TASKS)}, or give images in a file .npz with "
        "x_train, y_train, x_test and y_test, as Keras has mnist.npz"
    )


def make_memory(rng: np.random.Generator, n: int, bits: int, place: int) -> Examples:
    strings = rng.integers(2, size=(n, STRINGS, bits))
    target = strings[np.arange(n), rng.integers(STRINGS, size=n)]
    masked = np.where(rng.random((n, bits)) < 0.5, 0, 2 * target - 1)
    shown = np.concatenate([2 * strings - 1, masked[:, None]], axis=1).reshape(n, -1, place)
    return shown.astype(np.float32), target


def copy_shown(shown: np.ndarray) -> np.ndarray:
    """Return the bits that are shown of the string, and 0 where they are masked."""
    last = shown.reshape(len(shown), STRINGS + 1, -1)[:, -1]
    return (last > 0).astype(np.int64)


def copy_and_vote(shown: np.ndarray) -> np.ndarray:
    """Return the bits that are shown of the string, and where they are masked what most of the
    strings have there."""
    strings = shown.reshape(len(shown), STRINGS + 1, -1)
    most = np.sign(strings[:, :STRINGS].sum(1))  # their number is odd
    return (np.where(strings[:, -1] == 0, most, strings[:, -1]) > 0).astype(np.int64)


def make_xor(rng: np.random.Generator, n: int, bits: int) -> Examples:
    pairs = rng.integers(2, size=(n, 2, bits))
    return (2 * pairs - 1).reshape(n, -1, 1).astype(np.float32), pairs[:, 0] ^ pairs[:, 1]


SIGNS = [*map(str, range(10)), *(f"[{name}" for name in OPERATORS), "]"]


def draw_expression(rng: np.random.Generator, places: int, depth: int = 4) -> tuple[list[str], int]:
    """Draw the signs of a ListOps expression of at most so many places, and return them with its
    value. An operator has 2 to 5 arguments."""
    if depth == 0 or places < 4 or rng.random() < 0.25:
        digit = int(rng.integers(10))
        return [str(digit)], digit
    name, signs, values = OPERATORS[int(rng.integers(len(OPERATORS)))], [], []
    room, count = places - 2, int(rng.integers(2, 6))
    for left in range(min(count, room), 0, -1):
        inner, number = draw_expression(rng, room - (left - 1), depth - 1)
        signs += inner
        values.append(number)
        room -= len(inner)
    return [f"[{name}", *signs, "]"], evaluate(name, values)


def evaluate(name: str, values: Sequence[int]) -> int:
    """Apply an operator. MED is the mean of the middle two rounded down, as numpy's median made an
    integer."""
    if name == "SUM_MOD":
        return sum(values) % 10
    functions: dict[str, Callable[..., Any]] = {"MIN": min, "MAX": max, "MED": np.median}
    return int(functions[name](values))


def make_listops(rng: np.random.Generator, n: int, places: int) -> Examples:
    """Make expressions that end at the last place; before them is a sign of nothing. A lone digit
    is no expression."""
    shown, labels = np.zeros((n, places, len(SIGNS) + 1), np.float32), np.zeros((n, 1), np.int64)
    for i in range(n):
        signs: list[str] = []
        while len(signs) < 2:
            signs, labels[i, 0] = draw_expression(rng, places)
        numbers = [len(SIGNS)] * (places - len(signs)) + [SIGNS.index(sign) for sign in signs]
        shown[i, np.arange(places), numbers] = 1
    return shown, labels


def read_signs(shown: np.ndarray) -> list[str]:
    """Return the expression of one example (T, F)."""
    return [SIGNS[i] for i in shown.argmax(1) if i < len(SIGNS)]


def list_digits(signs: Sequence[str]) -> list[int]:
    return [int(sign) for sign in signs if sign.isdigit()]


def measure_depth(signs: Sequence[str]) -> int:
    """Return how many operators lie around a digit at most."""
    opened = np.cumsum([sign.startswith("[") - (sign == "]") for sign in signs])
    return int(opened.max())


def apply_outer_operator(shown: np.ndarray) -> np.ndarray:
    """Return the outer operator over all digits; the brackets within are ignored."""
    guesses = [evaluate(signs[0][1:], list_digits(signs)) for signs in map(read_signs, shown)]
    return np.array(guesses, np.int64)[:, None]


def find_nearest_mean(train: Examples) -> Floor:
    """Return the class whose mean image is the nearest."""
    shown, labels = train[0].reshape(len(train[0]), -1), train[1][:, 0]
    classes = np.unique(labels)
    means = np.stack([shown[labels == label].mean(0) for label in classes])

    def floor(shown: np.ndarray) -> np.ndarray:
        flat = shown.reshape(len(shown), -1)
        # but for what is the same for all classes
        distances = (means**2).sum(1) - 2 * flat @ means.T
        return classes[distances.argmin(1)][:, None]

    return floor


def cut_images(name: str, images: np.ndarray, labels: np.ndarray, train: int, patch: int) -> Puzzle:
    """Cut images into patches. images: (n, height, width, colours) in [0, 1], of which the first
    `train` are to train on."""
    n, height, width, colours = images.shape
    cut = images.reshape(n, height // patch, patch, width // patch, patch, colours)
    cut = cut.transpose(0, 1, 3, 2, 4, 5).reshape(n, -1, patch * patch * colours)
    shown, targets = np.ascontiguousarray(cut, np.float32), labels.astype(np.int64)[:, None]
    first, rest = (shown[:train], targets[:train]), (shown[train:], targets[train:])
    _, places, read = shown.shape
    floors = {NEAREST: find_nearest_mean(first)}
    return Puzzle(name, read, places, 1, 10, train=first, test=rest, floors=floors)
