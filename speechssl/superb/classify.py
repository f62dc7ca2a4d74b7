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

from speechssl.bootstrap import Units, mean_interval
from speechssl.corpora.sources import Recording
from speechssl.corpora.utterances import LabelledSet, Utterance, UtteranceSet
from speechssl.corpora.voices import recording_units
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.superb.features import CachedStates, CacheOptions, Hearing, cache_states, encoder_card
from speechssl.superb.fit import Run
from speechssl.superb.heads import ClassifierShape, UtteranceClassifier, numbers
from speechssl.superb.supply import supply_of
from speechssl.superb.task import Batch, Judgement, Measure, Settings
from speechssl.superb.train import TrainedHead, train_head
from speechssl.timing import FrameGrid

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
