"""Classification of utterances (KS, SID, IC, ER): one or several labels each, from the mean over time of every hidden state.

The head has no non-linearity (s3prl `downstream/{speech_commands,voxceleb1,fluent_commands,emotion}`), so the mean over time may be
taken first: of a frozen encoder it needs only the mean of every hidden state, (S, D) a recording, and a training set is one array.
s3prl crops the training utterances of SID to 8 s at random; here the mean is over the whole of each.
Letters: B batch, S hidden states, T frames, D width, C classes of all slots together.
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

from speechssl.data.superb import LabelledSet, Utterance, recording_units
from speechssl.encoders.load import SpeechEncoder
from speechssl.encoders.states import CacheOptions, cache_states, encoder_card
from speechssl.stats import mean_interval
from speechssl.superb.data import TRAINING, Batch, CachedLoader, Evaluation, Featurizer, HeadSettings, Measure, recordings_of
from speechssl.superb.train import Run, TrainedHead, train_head
from speechssl.timing import FrameGrid

METRIC = "acc"
PUBLISHED = {  # s3prl 0.4.18, downstream/{speech_commands,voxceleb1,fluent_commands,emotion}/config.yaml
    "ks": HeadSettings(1e-4, 200_000, 32, 5_000, balanced=True),
    "sid": HeadSettings(1e-4, 200_000, 32, 5_000),
    "ic": HeadSettings(1e-4, 200_000, 32, 5_000),
    "er": HeadSettings(1e-4, 30_000, 32, 1_000),
}


class UtteranceClassifier(nn.Module):
    """Weighted sum, projection and a linear layer, on the mean over time of every hidden state.

    classes: of every slot (IC: action, object and location in one head).
    """

    def __init__(self, states: int, width: int, classes: tuple[int, ...], projection: int = 256) -> None:
        super().__init__()
        self.classes = classes
        self.featurizer = Featurizer(states)
        self.projection = nn.Linear(width, projection)
        self.output = nn.Linear(projection, sum(classes))

    def forward(self, means: Tensor) -> Tensor:
        """Logits (B, C), of the slots one after another. means: (B, S, D) over the real frames of every hidden state."""
        return self.output(self.projection(self.featurizer(means)))  # type: ignore[no-any-return]

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The sum of the slots' cross-entropies, in nats. labels: (B, slots) numbers of classes."""
        slots = zip(logits.split(self.classes, 1), labels.T, strict=True)
        return torch.stack([cross_entropy(of_slot, wanted) for of_slot, wanted in slots]).sum()


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
        return UtteranceClassifier(states, width, tuple(map(len, self.data.classes.values())), self.projection)

    def loss(self, head: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(head, UtteranceClassifier)
        return head.loss(head(batch.states), self.labels(batch.utterances).to(batch.states.device))

    def predict(self, head: nn.Module, batch: Batch) -> list[list[float]]:
        """The log-probabilities of all classes, of the slots one after another."""
        assert isinstance(head, UtteranceClassifier)
        slots = head(batch.states).split(head.classes, 1)
        found: list[list[float]] = torch.cat([logits.log_softmax(1) for logits in slots], 1).tolist()
        return found

    def evaluate(self, split: str, predicted: Mapping[str, list[float]], resamples: int) -> Evaluation:
        """acc with its interval; the confusion of every slot, and the mean loss."""
        every = self.data.splits[split]
        known = [u for u in every if u.id in predicted]
        right = dict.fromkeys((u.id for u in every), 0.0)
        detail: dict[str, Any] = {}
        if known:
            truth = self.labels(known)
            slots = torch.tensor([predicted[u.id] for u in known]).split([len(names) for names in self.data.classes.values()], 1)
            chosen = torch.stack([of_slot.argmax(1) for of_slot in slots], 1)
            right |= {u.id: float(ok) for u, ok in zip(known, (chosen == truth).all(1).tolist(), strict=True)}
            losses = [-of_slot.gather(1, t[:, None]).mean() for of_slot, t in zip(slots, truth.T, strict=True)]
            confusion = {}
            for number, (slot, names) in enumerate(self.data.classes.items()):
                counts = torch.bincount(truth[:, number] * len(names) + chosen[:, number], minlength=len(names) ** 2)
                confusion[slot] = {"classes": list(names), "counts": counts.reshape(-1, len(names)).tolist()}
            detail = {"loss": float(torch.stack(losses).sum()), "confusion": confusion}
        values = list(right.values())
        if not resamples:
            return Evaluation((Measure.fixed(METRIC, 100 * sum(values) / len(values), len(values)),), detail)
        interval = mean_interval(values, recording_units(self.data, every), resamples=resamples)
        return Evaluation((Measure.of(METRIC, interval.percent),), detail)

    def labels(self, utterances: Sequence[Utterance]) -> Tensor:
        """(B, slots) numbers of classes. Raises ValueError for a label that is no class."""
        classes = self.data.classes.items()
        return torch.tensor([[names.index(u.labels[slot]) for slot, names in classes] for u in utterances])

    def weights(self, utterances: Sequence[Utterance]) -> Tensor:
        """(B,) sampling weights by which all classes come equally often: one over the number with the same labels."""
        counts = Counter(tuple(sorted(u.labels.items())) for u in utterances)
        return torch.tensor([1 / counts[tuple(sorted(u.labels.items()))] for u in utterances])

    def choose(self, log_probs: Sequence[float]) -> dict[str, str]:
        """The likeliest label of every slot."""
        found, at = {}, 0
        for slot, names in self.data.classes.items():
            part = log_probs[at : at + len(names)]
            found[slot], at = names[max(range(len(names)), key=part.__getitem__)], at + len(names)
        return found


@dataclass(frozen=True)
class ClassifierOptions:
    """How the robustness grid trains its classifiers: every rate for all steps, for sets of a few thousand utterances."""

    learning_rates: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)  # the best on dev is kept
    steps: int = 3000  # at most, for each
    batch: int = 32
    every: int = 100  # steps between evaluations on dev
    patience: int = 8  # evaluations without improvement before training ends
    projection: int = 256
    seed: int = 0


def train_classifier(
    data: LabelledSet,
    encoder: SpeechEncoder,
    out: Path,
    options: ClassifierOptions = ClassifierOptions(),
    workers: int = 2,
) -> TrainedHead:
    """Train (once) and save a head in `out`; every learning rate is tried.

    The hidden states of the set are kept in `out`-features. Raises InputError as `train_head`.
    """
    task = Classification(data.task, data, encoder.grid, options.projection)
    folder = out.with_name(f"{out.name}-features") / "train-dev"
    if not (out / "card.json").is_file():
        cache_states(encoder, recordings_of(data, TRAINING), folder, CacheOptions(pooled=True), workers=workers)
    settings = HeadSettings(options.learning_rates[0], options.steps, options.batch, options.every, patience=options.patience)
    loader = CachedLoader(data, folder, task.pooled, task.wants_waves)
    run = Run(task, loader, settings, options.seed, out)
    return train_head(run, encoder_card(encoder), options.learning_rates, METRIC, halving=False)


def classify_mean(head: TrainedHead, mean: Tensor) -> dict[str, str]:
    """The labels of a recording, by slot. mean: (S, D) of every hidden state over time."""
    assert isinstance(head.task, Classification)
    with torch.inference_mode():
        log_probs = head.task.predict(head.head, Batch((), mean[None], torch.ones(1).long()))
    return head.task.choose(log_probs[0])
