"""Classification of utterances (KS, SID, IC, ER): one or several labels each, from the mean over time of every hidden state.

The mean is all that the head sees of a recording (`heads.py` says why), so a training set is one array. s3prl crops the training
utterances of SID to 8 s at random; here the mean is over the whole of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from speechssl.data.sources import Recording
from speechssl.data.utterances import LabelledSet, Utterance, UtteranceSet
from speechssl.data.voices import recording_units
from speechssl.encoders.base import SpeechEncoder
from speechssl.encoders.states import CachedStates, CacheOptions, Hearing, cache_states, encoder_card
from speechssl.stats import Units, mean_interval
from speechssl.superb.data import supply_of
from speechssl.superb.fit import Run
from speechssl.superb.task import Batch, Featurizer, Judgement, Measure, Settings
from speechssl.superb.train import TrainedHead, train_head
from speechssl.timing import FrameGrid

# The head of SUPERB's utterance classification (KS, SID, IC, ER): weighted sum, projection, mean over time, linear.
#
# There is no non-linearity in it (s3prl `downstream/{speech_commands,voxceleb1,fluent_commands,emotion}`), so that the mean
# over time
# may as well be taken first: of a frozen encoder the head need only see the mean of every hidden state, (S, D) a recording.
# Letters: B batch, S hidden states, T frames, D width, C classes of all slots together.


@dataclass(frozen=True)
class ClassifierShape:
    """Sizes of a head."""

    states: int  # S
    width: int  # D
    classes: tuple[int, ...]  # of every slot
    projection: int = 256


class UtteranceClassifier(nn.Module):
    """One or several labels an utterance: action, object and location are three slots of one head."""

    def __init__(self, shape: ClassifierShape) -> None:
        super().__init__()
        self.shape = shape
        self.featurizer = Featurizer(shape.states)
        self.projection = nn.Linear(shape.width, shape.projection)
        self.output = nn.Linear(shape.projection, sum(shape.classes))

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Logits (B, C), of the slots one after another. states: (B, S, T, D); lengths: (B,) real frames, at least 1."""
        return self.output(mean_over_time(self.projection(self.featurizer(states)), lengths))

    def of_means(self, means: Tensor) -> Tensor:
        """The same from the mean of every hidden state over the real frames. means: (B, S, D)."""
        return self.output(self.projection(self.featurizer(means)))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The sum of the slots' cross-entropies, in nats. labels: (B, slots) numbers of classes."""
        slots = zip(logits.split(self.shape.classes, 1), labels.T, strict=True)
        return torch.stack([cross_entropy(of_slot, wanted) for of_slot, wanted in slots]).sum()

    def choose(self, logits: Tensor) -> Tensor:
        """(B, slots) the likeliest class of every slot."""
        return torch.stack([of_slot.argmax(1) for of_slot in logits.split(self.shape.classes, 1)], 1)


def mean_over_time(features: Tensor, lengths: Tensor) -> Tensor:
    """(B, T, D) -> (B, D), over the real frames; what others hold never matters. lengths: (B,)."""
    real = torch.arange(features.shape[1], device=features.device) < lengths.to(features.device)[:, None]
    return features.masked_fill(~real[..., None], 0).sum(1) / real.sum(1, keepdim=True)


def accuracy(chosen: Tensor, labels: Tensor) -> float:
    """Share of the utterances of which every slot is right. Both (B, slots)."""
    return float((chosen == labels).all(1).float().mean())


def numbers(labels: Sequence[Sequence[str]], classes: Sequence[Sequence[str]]) -> Tensor:
    """(B, slots) numbers of classes. Raises ValueError for a label that is no class."""
    return torch.tensor([[names.index(label) for names, label in zip(classes, row, strict=True)] for row in labels])


METRIC = "acc"
PUBLISHED = {  # s3prl 0.4.18, downstream/{speech_commands,voxceleb1,fluent_commands,emotion}/config.yaml
    "ks": Settings(1e-4, 200_000, 32, 5_000, balanced=True),
    "sid": Settings(1e-4, 200_000, 32, 5_000),
    "ic": Settings(1e-4, 200_000, 32, 5_000),
    "er": Settings(1e-4, 30_000, 32, 1_000),
}


@dataclass(frozen=True)
class Classification:
    """An utterance is right when all its slots are (IC: three)."""

    name: str
    data: LabelledSet
    grid: FrameGrid
    projection: int = 256

    pooled = True
    wants_waves = False

    def build(self, states: int, width: int) -> UtteranceClassifier:
        return UtteranceClassifier(ClassifierShape(states, width, tuple(map(len, self.data.classes.values())), self.projection))

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(head, UtteranceClassifier)
        return head.loss(head.of_means(batch.states), self.labels(batch.utterances).to(batch.states.device))

    def predict(self, head: nn.Module, batch: Batch) -> list[list[float]]:
        """The log-probabilities of all classes, of the slots one after another."""
        assert isinstance(head, UtteranceClassifier)
        slots = head.of_means(batch.states).split(head.shape.classes, 1)
        found: list[list[float]] = torch.cat([logits.log_softmax(1) for logits in slots], 1).tolist()
        return found

    def judge(self, split: str, predicted: Mapping[str, list[float]], resamples: int) -> Judgement:
        """acc with its interval; the confusion of every slot, and the mean loss."""
        every = self.data.splits[split]
        heard = [u for u in every if u.id in predicted]
        right = dict.fromkeys((u.id for u in every), 0.0)
        detail: dict[str, Any] = {}
        if heard:
            said, truth = torch.tensor([predicted[u.id] for u in heard]), self.labels(heard)
            slots = said.split([len(names) for names in self.data.classes.values()], 1)
            chosen = torch.stack([of_slot.argmax(1) for of_slot in slots], 1)
            right |= {u.id: float(ok) for u, ok in zip(heard, (chosen == truth).all(1).tolist(), strict=True)}
            losses = [-of_slot.gather(1, t[:, None]).mean() for of_slot, t in zip(slots, truth.T, strict=True)]
            detail = {"loss": float(torch.stack(losses).sum()), "confusion": self._confusion(chosen, truth)}
        return Judgement((_measure(list(right.values()), recording_units(self.data, every), resamples),), detail)

    def labels(self, utterances: Sequence[Utterance]) -> Tensor:
        """(B, slots) numbers of classes."""
        return numbers([[u.labels[slot] for slot in self.data.classes] for u in utterances], list(self.data.classes.values()))

    def weights(self, utterances: Sequence[Utterance]) -> Tensor:
        """(B,) how often each is to be drawn for all classes to come equally often: one over the number with its labels."""
        counts = Counter(tuple(sorted(u.labels.items())) for u in utterances)
        return torch.tensor([1 / counts[tuple(sorted(u.labels.items()))] for u in utterances])

    def choose(self, said: Sequence[float]) -> dict[str, str]:
        """The likeliest label of every slot."""
        found, at = {}, 0
        for slot, names in self.data.classes.items():
            part = said[at : at + len(names)]
            found[slot], at = names[max(range(len(names)), key=part.__getitem__)], at + len(names)
        return found

    def _confusion(self, chosen: Tensor, truth: Tensor) -> dict[str, Any]:
        found = {}
        for number, (slot, names) in enumerate(self.data.classes.items()):
            counts = torch.zeros(len(names), len(names), dtype=torch.long)
            counts.index_put_((truth[:, number], chosen[:, number]), torch.ones(len(truth), dtype=torch.long), accumulate=True)
            found[slot] = {"classes": list(names), "counts": counts.tolist()}
        return found


def _measure(right: Sequence[float], units: Units, resamples: int) -> Measure:
    if not resamples:
        return Measure.fixed(METRIC, 100 * sum(right) / len(right), len(right))
    return Measure.of(METRIC, mean_interval(right, units, resamples=resamples).percent)


@dataclass(frozen=True)
class ClassifierOptions:
    """How the robustness grid trains its classifiers: every rate for all steps, for sets of a few thousand utterances."""

    learning_rates: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)  # the best on dev is kept
    steps: int = 3000  # at most, for each
    batch: int = 32
    every: int = 100  # steps between looks at dev
    patience: int = 8  # looks without a better one, then it ends
    projection: int = 256
    seed: int = 0


def train_classifier(
    data: LabelledSet,
    encoder: SpeechEncoder,
    out: Path | str,
    options: ClassifierOptions = ClassifierOptions(),
    features: Path | str | None = None,
    workers: int = 2,
) -> TrainedHead:
    """Train (once) and save a head in `out`; every learning rate is tried.

    features: folder for the hidden states of the set (None: `out`-features); several heads on one encoder and set share it.
    Raises InputError as `train_head`.
    """
    out = Path(out)
    task = Classification(data.task, data, encoder.grid, options.projection)
    folder = Path(features or out.with_name(f"{out.name}-features")) / "train-dev"
    if not (out / "card.json").is_file():
        cache(data, encoder, folder, ("train", "dev"), CacheOptions(pooled=True), workers=workers)
    settings = Settings(options.learning_rates[0], options.steps, options.batch, options.every, patience=options.patience)
    run = Run(task, supply_of(task, [folder]), settings, options.seed, out)
    return train_head(run, encoder_card(encoder), options.learning_rates, METRIC, halving=False)


def cache(
    data: UtteranceSet,
    encoder: SpeechEncoder,
    folder: Path,
    splits: Sequence[str],
    options: CacheOptions,
    hearing: Hearing = Hearing(),
    workers: int = 2,
) -> CachedStates:
    """The hidden states of these splits, in `folder`."""
    utterances = [u for split in splits for u in data.splits[split]]
    recordings = [Recording(u.id, data.path(u), u.seconds) for u in utterances]
    return cache_states(encoder, recordings, folder, options, hearing, workers)


def of_mean(head: TrainedHead, mean: Tensor) -> dict[str, str]:
    """The labels of a recording, by slot. mean: (S, D) of every hidden state over time."""
    assert isinstance(head.task, Classification)
    with torch.inference_mode():
        said = head.task.predict(head.head, Batch((), mean[None], torch.ones(1).long()))
    return head.task.choose(said[0])
