"""Training of a classification head on a frozen encoder: features once, then a sweep over learning rates in seconds.

The mean over time of every hidden state is all that the head sees of a recording (`heads.py` says why), so a training set is one
array, and a step costs less than Trainer would spend on its book-keeping: the loop is here. It takes seconds and does not resume.
"""

from __future__ import annotations

import copy
import importlib.metadata
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from speechssl.artefacts import claim, hash_files, read_json, replacing, write_json
from speechssl.corpora.sources import Recording
from speechssl.corpora.utterances import LabelledSet, Utterance
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.errors import InputError
from speechssl.superb.features import CachedStates, Hearing, cache_states, encoder_card
from speechssl.superb.heads import ClassifierShape, UtteranceClassifier, accuracy, numbers
from speechssl.units.extract import single_threaded

KIND = "utterance-classifier"


@dataclass(frozen=True)
class ClassifierOptions:
    """SUPERB trains 200,000 steps of 32 and sweeps the learning rate; sizes here are for sets of a few thousand utterances."""

    learning_rates: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)  # the best on dev is kept
    steps: int = 3000  # at most, for each
    batch: int = 32
    every: int = 100  # steps between looks at dev
    patience: int = 8  # looks without a better one, then it ends
    clip: float = 1.0  # gradient norm
    projection: int = 256
    seed: int = 0


@dataclass(frozen=True)
class Examples:
    """means: (N, S, D) of every hidden state over time; labels: (N, slots) numbers of classes."""

    means: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Attempt:
    """What one learning rate came to, at its best look at dev."""

    learning_rate: float
    accuracy: float  # on dev
    loss: float  # on dev, nats; decides between equals
    step: int
    head: UtteranceClassifier

    @property
    def rank(self) -> tuple[float, float]:
        return self.accuracy, -self.loss


@dataclass(frozen=True)
class Classifier:
    """A trained head. classes: slot -> names."""

    head: UtteranceClassifier
    classes: dict[str, tuple[str, ...]]
    card: Mapping[str, Any]

    @torch.inference_mode()
    def predict(self, means: Tensor) -> list[dict[str, str]]:
        """The labels of every recording, by slot. means: (N, S, D)."""
        chosen = self.head.choose(self.head.of_means(means))
        return [{slot: names[i] for (slot, names), i in zip(self.classes.items(), row, strict=True)} for row in chosen.tolist()]

    @classmethod
    def load(cls, folder: Path | str, encoder: SpeechEncoder) -> Classifier:
        """Raises InputError where a file is missing or damaged, or the encoder is not the one the head was trained on."""
        path, weights = Path(folder) / "card.json", Path(folder) / "head.safetensors"
        card = read_json(path)
        if not isinstance(card, dict) or card.get("kind") != KIND:
            raise InputError(f"{path} is not the card of a classifier; give the folder that training wrote")
        if card["encoder"] != encoder_card(encoder):
            raise InputError(
                f"{path} was trained on another encoder than {encoder.name} ({encoder.hash}); load that one or train again"
            )
        classes = {slot: tuple(names) for slot, names in card["classes"].items()}
        if [len(names) for names in classes.values()] != card["head"]["classes"]:
            raise InputError(f"{path} has its slots in another order than the head; delete the folder and train again")
        head = UtteranceClassifier(ClassifierShape(**card["head"] | {"classes": tuple(card["head"]["classes"])}))
        try:
            head.load_state_dict(load_file(weights))
            if hash_files([weights]) != card["weights"]:
                raise ValueError("its contents are not those the card was written for")
        except (OSError, SafetensorError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"{weights} does not hold the weights of its card ({reason}); delete the folder and train again"
            ) from error
        return cls(head.eval(), classes, card)


def train_classifier(
    data: LabelledSet,
    encoder: SpeechEncoder,
    out: Path | str,
    options: ClassifierOptions = ClassifierOptions(),
    features: Path | str | None = None,
    workers: int = 2,
) -> Classifier:
    """Train (once) and save a head in `out`: `head.safetensors`, then `card.json`.

    features: folder for the hidden states of the set (None: `out`/features); several heads on one encoder and set share it.
    Raises InputError where `out` was made from other inputs, or all recordings of a split had to be set aside.
    """
    out = Path(out)
    with claim(out, {"encoder": encoder_card(encoder), "task": data.task, "data": data.hash, "options": asdict(options)}):
        if not (out / "card.json").is_file():
            cached = cached_means(data, encoder, Path(features or out / "features"), ("train", "dev"), workers=workers)
            train, dev = (examples(data, cached, split) for split in ("train", "dev"))
            began = time.perf_counter()
            attempts = sweep(train, dev, tuple(map(len, data.classes.values())), options)
            _save(out, data, encoder, options, attempts, time.perf_counter() - began)
    return Classifier.load(out, encoder)


def cached_means(
    data: LabelledSet,
    encoder: SpeechEncoder,
    folder: Path,
    splits: Sequence[str],
    hearing: Hearing = Hearing(),
    workers: int = 2,
) -> CachedStates:
    """The mean hidden states of these splits, in `folder`/<split>-<split>."""
    utterances = [u for split in splits for u in data.splits[split]]
    recordings = [Recording(u.id, data.path(u), u.seconds) for u in utterances]
    return cache_states(encoder, recordings, folder / "-".join(splits), hearing=hearing, workers=workers)


def examples(data: LabelledSet, cached: CachedStates, split: str) -> Examples:
    """What could be heard of a split. Raises InputError where nothing could."""
    heard = [u for u in data.splits[split] if u.id in cached]
    if not heard:
        raise InputError(f"no recording of {data.root / split}.jsonl could be heard; mend them or prepare the set again")
    return Examples(cached.stacked([u.id for u in heard]), labels_of(data, heard))


def labels_of(data: LabelledSet, utterances: Sequence[Utterance]) -> Tensor:
    """(N, slots) numbers of classes."""
    return numbers([[u.labels[slot] for slot in data.classes] for u in utterances], list(data.classes.values()))


def sweep(train: Examples, dev: Examples, classes: tuple[int, ...], options: ClassifierOptions) -> list[Attempt]:
    """An attempt for every learning rate, from the same weights and batches. The same on any number of threads."""
    _, states, width = train.means.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        head = UtteranceClassifier(ClassifierShape(states, width, classes, options.projection))
    with single_threaded(1) as pool:
        return list(pool.map(lambda rate: attempt(copy.deepcopy(head), train, dev, rate, options), options.learning_rates))


def attempt(head: UtteranceClassifier, train: Examples, dev: Examples, rate: float, options: ClassifierOptions) -> Attempt:
    """Train the head with one learning rate until dev gets no better, and give back its best."""
    optimiser = torch.optim.Adam(head.parameters(), rate, fused=True)
    best, looks = look(head, dev, rate, 0), 0
    for step, chosen in enumerate(_batches(len(train.labels), options), 1):
        loss = head.loss(head.of_means(train.means[chosen]), train.labels[chosen])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), options.clip)
        optimiser.step()
        if step % options.every and step < options.steps:
            continue
        found = look(head, dev, rate, step)
        best, looks = (found, 0) if found.rank > best.rank else (best, looks + 1)
        if looks >= options.patience:
            break
    return best


@torch.no_grad()
def look(head: UtteranceClassifier, dev: Examples, rate: float, step: int) -> Attempt:
    """How good the head is on dev, with a copy of it."""
    logits = head.of_means(dev.means)
    loss = float(head.loss(logits, dev.labels))
    return Attempt(rate, accuracy(head.choose(logits), dev.labels), loss, step, copy.deepcopy(head))


def _batches(count: int, options: ClassifierOptions) -> Iterator[Tensor]:
    """Numbers of examples for every step: all of them in a new order, again and again."""
    generator, left = torch.Generator().manual_seed(options.seed), torch.zeros(0, dtype=torch.long)
    for _ in range(options.steps):
        if len(left) < min(options.batch, count):
            left = torch.randperm(count, generator=generator)
        yield left[: options.batch]
        left = left[options.batch :]


def _save(
    out: Path, data: LabelledSet, encoder: SpeechEncoder, options: ClassifierOptions, attempts: Sequence[Attempt], seconds: float
) -> None:
    best = max(attempts, key=lambda a: a.rank)
    with replacing(out / "head.safetensors") as temporary:
        save_file({name: weight.detach().contiguous() for name, weight in best.head.state_dict().items()}, temporary)
    card = {
        "kind": KIND,
        "task": data.task,
        "data": data.hash,
        "classes": data.classes,
        "encoder": encoder_card(encoder),
        "head": asdict(best.head.shape),
        "options": asdict(options),
        "learning_rate": best.learning_rate,
        "dev": {"acc": best.accuracy, "loss": best.loss, "step": best.step},
        "sweep": [{"learning_rate": a.learning_rate, "acc": a.accuracy, "loss": a.loss, "step": a.step} for a in attempts],
        "layer_weights": best.head.featurizer.shares.tolist(),
        "seconds": round(seconds, 1),
        "weights": hash_files([out / "head.safetensors"]),
        "versions": {"torch": importlib.metadata.version("torch")},
    }
    write_json(out / "card.json", card)
