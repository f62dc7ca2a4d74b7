"""Make the tasks of the frozen pre-trained transformer (arXiv 2103.05247, section 2.1) and its
layers.

Bit memory shows five strings and then one of them with half of its bits masked (0 where the others
are -1 or 1), which is to be completed; bit XOR shows two strings; ListOps (1804.06028) are
expressions; images come in patches. Floors, which need no encoder, are scored on the same test
examples. Letters: B sequences, n examples, T places, F features of a place, O answers, C classes of
an answer, H width of the encoder.
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

STRINGS = 5  # of bit memory
PLACE = 50  # bits of a string at one place
OPERATORS = ("MIN", "MAX", "MED", "SUM_MOD")
# seed of the test examples, which no training step has; that of dev is the next number
TEST_SEED = 2**31
COUNTED = 2000  # generated training examples from which the commonest answers are counted
DEV = 0.1  # share of the training images on which a learning rate is chosen
TASKS = ("bit-memory", "bit-xor", "listops", "digits")
Examples = tuple[np.ndarray, np.ndarray]  # inputs (n, T, F), answers (n, O)
Floor = Callable[[np.ndarray], np.ndarray]  # inputs (n, T, F) -> answers (n, O)


@dataclass(frozen=True)
class Puzzle:
    """A puzzle is a task whose examples are generated, or images in tables."""

    name: str
    features: int  # F
    places: int  # T
    answers: int  # O, at the last places
    classes: int  # C
    # of a generator of random numbers and n; None: examples are in `train` and `test`
    make: Callable[[np.random.Generator, int], Examples] | None = None
    train: Examples = (np.empty(0), np.empty(0))
    test: Examples = (np.empty(0), np.empty(0))
    per_place: int = 1  # answers at one place
    floors: Mapping[str, Floor] = field(default_factory=dict)  # by their names

    def batch(self, step: int, size: int, seed: int) -> Examples:
        if self.make is not None:
            return self.make(np.random.default_rng([seed, step]), size)
        numbers, _ = draw_batch(step, len(self.train[0]), size, seed)
        return self.train[0][numbers], self.train[1][numbers]

    def draw_test(self, count: int) -> Examples:
        """Return the test examples, which are the same for all arms and seeds."""
        if self.make is not None:
            return self.make(np.random.default_rng(TEST_SEED), count)
        return self.test

    def split_dev(self, count: int) -> tuple[Puzzle, Examples]:
        """Return the task without the examples of dev, and dev: a tenth of the training images, or
        `count` generated examples."""
        if self.make is not None:
            return self, self.make(np.random.default_rng(TEST_SEED + 1), count)
        shown, answers = self.train
        first = len(shown) - max(1, round(DEV * len(shown)))
        dev = shown[first:], answers[first:]
        return replace(self, train=(shown[:first], answers[:first])), dev

    def find_commonest(self) -> np.ndarray:
        """Return the commonest answers of training, place by place, (O,)."""
        _, answers = self.train
        if self.make is not None:
            _, answers = self.make(np.random.default_rng(0), COUNTED)
        counts = [np.bincount(of_place, minlength=self.classes) for of_place in answers.T]
        return np.array(counts).argmax(1)


class PuzzleModel(nn.Module):
    """An encoder stands between a layer for inputs and a layer for answers at the last places."""

    def __init__(self, encoder: PreTrainedModel, puzzle: Puzzle) -> None:
        super().__init__()
        width = encoder.get_input_embeddings().embedding_dim
        self.inputs, self.encoder, self.puzzle = EncoderInputs(encoder, width), encoder, puzzle
        self.read = nn.Linear(puzzle.features, width)
        self.write = nn.Linear(encoder.config.hidden_size, puzzle.per_place * puzzle.classes)

    def logits(self, shown: torch.Tensor) -> torch.Tensor:
        """Return (B, O, C). shown: (B, T, F)."""
        mask = torch.ones(shown.shape[:2], dtype=torch.long, device=shown.device)
        hidden = self.encoder(**self.inputs(self.read(shown), mask, None)).last_hidden_state
        last = hidden[:, -(self.puzzle.answers // self.puzzle.per_place) :]
        shape = len(shown), self.puzzle.answers, self.puzzle.classes
        return self.write(last).float().reshape(shape)

    def forward(self, shown: torch.Tensor, targets: torch.Tensor) -> Batch:
        """Return the loss, cross-entropy, and the share of right answers. targets: (B, O)."""
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
        return Puzzle(
            task,
            features=place,
            places=(STRINGS + 1) * bits // place,
            answers=bits,
            classes=2,
            make=partial(make_memory, bits=bits, place=place),
            per_place=place,
            floors={COPY: copy_shown, VOTE: copy_and_vote},
        )
    if task == "bit-xor":
        bits = size or 5
        make = partial(make_xor, bits=bits)
        return Puzzle(task, features=1, places=2 * bits, answers=bits, classes=2, make=make)
    if task == "listops":
        places = size or 512
        if places < 8:
            raise InputError(f"--length {places} is too short for ListOps; give at least 8 places")
        return Puzzle(
            task,
            features=len(SIGNS) + 1,
            places=places,
            answers=1,
            classes=10,
            make=partial(make_listops, places=places),
            floors={OUTER: apply_outer_operator},
        )
    if task == "digits":
        from sklearn.datasets import load_digits

        loaded = load_digits()
        images = loaded.images.astype(np.float32)[..., None] / 16
        order = np.random.default_rng(0).permutation(len(images))
        count = len(images) - len(images) // 4
        return cut_images(task, images[order], loaded.target[order], count, patch=2)
    path = Path(task)
    if path.suffix == ".npz" and path.is_file():
        arrays = np.load(path)
        x, y = (np.concatenate([arrays[f"{c}_train"], arrays[f"{c}_test"]]) for c in "xy")
        images = x.reshape(*x.shape[:3], -1).astype(np.float32) / 255
        return cut_images(path.stem, images, y.ravel(), len(arrays["x_train"]), patch=4)
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
    """Return the bits of the string that are shown, and 0 where they are masked."""
    last = shown.reshape(len(shown), STRINGS + 1, -1)[:, -1]
    return (last > 0).astype(np.int64)


def copy_and_vote(shown: np.ndarray) -> np.ndarray:
    """Return the bits of the string that are shown, and where they are masked those that most of
    the strings have."""
    strings = shown.reshape(len(shown), STRINGS + 1, -1)
    majority = np.sign(strings[:, :STRINGS].sum(1))  # the number of strings is odd
    return (np.where(strings[:, -1] == 0, majority, strings[:, -1]) > 0).astype(np.int64)


def make_xor(rng: np.random.Generator, n: int, bits: int) -> Examples:
    pairs = rng.integers(2, size=(n, 2, bits))
    return (2 * pairs - 1).reshape(n, -1, 1).astype(np.float32), pairs[:, 0] ^ pairs[:, 1]


SIGNS = [*map(str, range(10)), *(f"[{name}" for name in OPERATORS), "]"]


def draw_expression(rng: np.random.Generator, places: int, depth: int = 4) -> tuple[list[str], int]:
    """Sample a ListOps expression of at most so many places; return its signs and its value. An
    operator has 2 to 5 arguments."""
    if depth == 0 or places < 4 or rng.random() < 0.25:
        digit = int(rng.integers(10))
        return [str(digit)], digit
    name = OPERATORS[int(rng.integers(len(OPERATORS)))]
    count = int(rng.integers(2, 6))
    signs = []
    values = []
    free = places - 2
    for left in range(min(count, free), 0, -1):
        # every argument that is left needs one place at least
        inner, number = draw_expression(rng, free - (left - 1), depth - 1)
        signs += inner
        values.append(number)
        free -= len(inner)
    return [f"[{name}", *signs, "]"], evaluate(name, values)


def evaluate(name: str, values: Sequence[int]) -> int:
    """Apply an operator. MED of an even number of values is the mean of the middle two, rounded
    down."""
    if name == "SUM_MOD":
        return sum(values) % 10
    functions: dict[str, Callable[..., Any]] = {"MIN": min, "MAX": max, "MED": np.median}
    return int(functions[name](values))


def make_listops(rng: np.random.Generator, n: int, places: int) -> Examples:
    """Make expressions that end at the last place, with padding before them. A lone digit is no
    expression."""
    shown = np.zeros((n, places, len(SIGNS) + 1), np.float32)
    labels = np.zeros((n, 1), np.int64)
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
    """Return the greatest number of operators around a digit."""
    opened = np.cumsum([sign.startswith("[") - (sign == "]") for sign in signs])
    return int(opened.max())


def apply_outer_operator(shown: np.ndarray) -> np.ndarray:
    """Apply the outer operator to all digits, as if there were no brackets within."""
    guesses = [evaluate(signs[0][1:], list_digits(signs)) for signs in map(read_signs, shown)]
    return np.array(guesses, np.int64)[:, None]


def find_nearest_mean(train: Examples) -> Floor:
    """Return a floor that answers with the class whose mean image is the nearest."""
    shown = train[0].reshape(len(train[0]), -1)
    labels = train[1][:, 0]
    classes = np.unique(labels)
    means = np.stack([shown[labels == label].mean(0) for label in classes])

    def floor(shown: np.ndarray) -> np.ndarray:
        flat = shown.reshape(len(shown), -1)
        # squared distances, less a term that is the same for all classes
        distances = (means**2).sum(1) - 2 * flat @ means.T
        return classes[distances.argmin(1)][:, None]

    return floor


def cut_images(name: str, images: np.ndarray, labels: np.ndarray, count: int, patch: int) -> Puzzle:
    """Cut images into patches. images: (n, height, width, colours) in [0, 1], of which the first
    `count` are to train on."""
    n, height, width, colours = images.shape
    grid = images.reshape(n, height // patch, patch, width // patch, patch, colours)
    patches = grid.transpose(0, 1, 3, 2, 4, 5).reshape(n, -1, patch * patch * colours)
    shown, answers = np.ascontiguousarray(patches, np.float32), labels.astype(np.int64)[:, None]
    train = shown[:count], answers[:count]
    _, places, features = shown.shape
    return Puzzle(
        name,
        features,
        places,
        answers=1,
        classes=10,
        train=train,
        test=(shown[count:], answers[count:]),
        floors={NEAREST: find_nearest_mean(train)},
    )
