"""This module defines tasks of SUPERB (arXiv 2105.01051) and the batches that heads are trained on.

A task (`Task`) knows its data and its head: it computes the loss of a batch, predicts, and measures
predictions. It knows nothing of encoders, caches, learning rates or noise. Loaders give batches of
hidden states of any encoder, or of spectral features as the baseline. The states are computed once
and cached, or computed for every batch with the encoder in the loop. A cache folder is named after
its contents, so that tasks on the same recordings (PR and ASR) share it.
Letters: B batch, S hidden states (the encoder's layers and the input of the first), T frames, D
width, N samples, R recordings.
"""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from speechssl.artifacts import hash_json
from speechssl.audio import read_audio
from speechssl.data.recordings import Recording
from speechssl.data.superb import Utterance, UtteranceSet, group_recordings
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.encoders.store import FeatureStore, store_features
from speechssl.errors import InputError
from speechssl.stats import Interval, estimate_ratio
from speechssl.timing import FrameGrid


class Featurizer(nn.Module):
    """A featurizer sums S hidden states (SUPERB, section 3; s3prl's `Featurizer`) by learned
    weights, which a softmax makes sum to 1.

    The states are all that `SpeechEncoder.hidden_states` gives, L + 1 of them. State 0 is the input
    of the first transformer layer (the CNN's output after projection and positional convolution),
    which s3prl's upstreams of HuBERT and wav2vec 2.0 give first and the benchmark calls the CNN
    output. Features without layers have one state. The weights begin equal.
    """

    def __init__(self, states: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(states))

    @property
    def shares(self) -> Tensor:
        """Return the weight of every state in the sum, (S,)."""
        return self.weights.detach().softmax(0)

    def forward(self, states: Tensor) -> Tensor:
        """Sum hidden states (B, S, ..., D) to features (B, ..., D)."""
        return torch.einsum("s,bs...->b...", self.weights.softmax(0), states)


@dataclass(frozen=True)
class Batch:
    """A batch has B utterances with their hidden states."""

    utterances: tuple[Utterance, ...]
    # (B, S, T, D) float32, zeros beyond a length; (B, S, D) for tasks that use means over time
    states: Tensor
    lengths: Tensor  # (B,) real frames
    # the encoder's inputs, each (N,) float32, for tasks that use them
    waves: tuple[np.ndarray, ...] = ()

    def to(self, device: str) -> Batch:
        """Move states and lengths to a device."""
        return replace(self, states=self.states.to(device), lengths=self.lengths.to(device))


@dataclass(frozen=True)
class HeadEvaluation:
    """An evaluation has measures by their names; heads are chosen by the first of them.

    The names are acc, per, wer, wer_lm, eer, min_dcf, mtwv, atwv, der, slot_f1, slot_cer, pesq,
    stoi and si_sdri. Values are in the units of `results.name_metric_unit`: percent, dB or a scale.
    """

    measures: Mapping[str, Interval]
    # JSON values that figures are drawn from:
    # classification: {"confusion": {slot: {"classes": [...], "counts": [[number of predictions of
    # each class] for each true class]}}}; asv: {"det": {"false_alarms": [shares], "misses":
    # [shares]}}, at most 200 points; qbe: {"layers": [MTWV of each on dev]}
    detail: Mapping[str, Any] = field(default_factory=dict)


def measure_rate(
    values: Sequence[float],
    sizes: Sequence[float] | None,
    data: UtteranceSet,
    split: str,
    resamples: int,
    percent: bool = True,
) -> Interval:
    """Measure the sum of the values over the sum of the sizes, in percent or as it is.

    values, sizes: of the recordings of the split, in their order, such as errors and numbers of
    words; sizes None: a mean over recordings. resamples 0: without an interval, [value, value].
    """
    sizes = [1] * len(values) if sizes is None else sizes
    if not resamples:
        value = (100 if percent else 1) * sum(values) / sum(sizes)
        return Interval(value, value, value, len(values), estimated=False)
    units = group_recordings(data, data.splits[split])
    interval = estimate_ratio(values, sizes, units, resamples=resamples)
    return interval.percent if percent else interval


@dataclass(frozen=True)
class HeadSettings:
    """A head is trained with these settings. The published ones of each task are those of s3prl
    0.4.18 (its config.yaml)."""

    learning_rate: float
    steps: int
    batch: int  # recordings in a step, over all accumulated batches
    every: int  # steps between evaluations on dev
    optimiser: str = "Adam"  # or AdamW
    clip: float = 1.0  # gradient norm
    patience: int = 0  # evaluations without improvement before training ends; 0: never
    balanced: bool = False  # recordings are drawn so that all classes come equally often


class Task(ABC):
    """A task is a frozen dataclass of data, frame grid and the sizes of its head, such as
    `Verification(data, grid, projection=128)`."""

    name: str  # one of ORDER
    data: UtteranceSet
    grid: FrameGrid  # the encoder's frames
    pooled = False  # whether the head uses the mean over time alone, (S, D) for a recording
    wants_waves = False  # whether batches contain the encoder's input

    @abstractmethod
    def build(self, states: int, width: int) -> nn.Module:
        """Make a head for S states of width D, which has a `Featurizer` as `featurizer`. Random
        weights come from torch's generator."""

    @abstractmethod
    def loss(self, head: Any, batch: Batch) -> Tensor:
        """Return the training loss, a scalar."""

    @abstractmethod
    def predict(self, head: Any, batch: Batch) -> Sequence[Any]:
        """Predict a JSON value or numpy array for each recording, independent of padding and of the
        rest of the batch."""

    @abstractmethod
    def evaluate(self, split: str, predicted: Mapping[str, Any], resamples: int) -> HeadEvaluation:
        """Evaluate predictions by the utterance's id. An utterance without a prediction could not
        be read; it counts as wrong and is never left out.

        resamples: of the bootstrap that gives the intervals; 0: no intervals ([value, value]), for
        evaluations on dev, which must be fast.
        """


# ---- hidden states of a frozen encoder in the feature store
#
# The store has a recording's hidden states (T, S, D) in bfloat16. For heads that use the mean over
# time alone, it has the mean (1, S, D) in float32, because these are few.

TRAINING = ("train", "dev")
FREE_SHARE = 0.9  # share of the free disk that caches may fill


def cache_states(
    encoder: SpeechEncoder,
    recordings: Sequence[Recording],
    folder: Path,
    pooled: bool,
    workers: int = 2,
) -> FeatureStore:
    """Compute (once) the hidden states of all recordings; errors are those of `store_features`.
    pooled: keep the mean over time instead of every frame."""
    # id, name and size, which identify the audio of a recording
    files = [(r.id, r.path.name, r.path.stat().st_size) for r in recordings]
    made_from = {
        "encoder": describe_encoder(encoder),
        "recordings": hash_json(files),
        "options": {"pooled": pooled, "precision": "float32" if pooled else "bfloat16"},
        "hearing": {"condition": "clean"},
    }

    def encode(recording: Recording) -> tuple[Tensor, None]:
        states = encoder.hidden_states(read_audio(recording.path)).cpu()
        if pooled:
            return states.mean(1)[None].float(), None
        return states.transpose(0, 1).to(torch.bfloat16), None

    return store_features(
        folder,
        recordings={r.id: r for r in recordings},
        encode=encode,
        sizes={r.id: estimate_bytes(encoder, [r], pooled) for r in recordings},
        made_from=made_from,
        what="hidden states",
        workers=workers,
    )


def describe_encoder(encoder: SpeechEncoder) -> dict[str, Any]:
    """Collect the facts that decide the features of an encoder, for a card."""
    card: dict[str, Any] = {
        "encoder": encoder.hash,
        "settings": encoder.settings,
        "precision": encoder.precision,
        "states": encoder.layers + 1,
        "width": encoder.width,
        "chunking": asdict(encoder.chunking),
    }
    if encoder.engine.backend == "openvino":
        card["engine"] = "openvino"
    return card


def estimate_bytes(encoder: SpeechEncoder, recordings: Sequence[Recording], pooled: bool) -> int:
    """Estimate the bytes of the hidden states of these recordings."""
    row = (encoder.layers + 1) * encoder.width
    if pooled:
        return 4 * row * len(recordings)
    samples = [encoder.grid.find_sample(recording.seconds or 0) for recording in recordings]
    return 2 * row * sum(map(encoder.grid.count_frames, samples))


def list_split_recordings(data: UtteranceSet, splits: Sequence[str]) -> list[Recording]:
    """List the recordings of these splits."""
    utterances = [u for split in splits for u in data.splits[split]]
    return [Recording(u.id, data.path(u), u.seconds) for u in utterances]


@dataclass
class FeatureCache:
    """A cache keeps the hidden states of one encoder for the tasks of a benchmark, in folders below
    `root`, as long as they fit within limit_gb and on the disk."""

    encoder: SpeechEncoder
    root: Path
    limit_gb: float = 50.0
    workers: int = 2

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))

    def make_loader(self, task: Task, splits: Sequence[str] = TRAINING) -> Loader:
        """Make a task's loader, with the encoder in the loop where the states do not fit."""
        if self.load_states(task.data, splits, task.pooled) is None:
            return self.make_online_loader(task)
        return CachedLoader(task, self.name_folder(task.data, splits, task.pooled))

    def make_online_loader(self, task: Task) -> OnlineLoader:
        """Make the loader with the encoder in the loop."""
        return OnlineLoader(self.encoder, read_audio, task, self.pool)

    def load_states(
        self, data: UtteranceSet, splits: Sequence[str], pooled: bool
    ) -> FeatureStore | None:
        """Load the states, which are computed where they are not cached; None, which is reported on
        stderr, where they do not fit."""
        folder = self.name_folder(data, splits, pooled)
        recordings = list_split_recordings(data, splits)
        needed = estimate_bytes(self.encoder, recordings, pooled) / 1e9 - _measure_gb(folder)
        self.root.mkdir(parents=True, exist_ok=True)
        free = FREE_SHARE * shutil.disk_usage(self.root).free / 1e9
        available = min(free, self.limit_gb - _measure_gb(self.root))
        if needed > available and not (folder / "card.json").is_file():
            tqdm.write(
                f"{data.task}: its hidden states need {needed:.3g} GB and there is room for "
                f"{max(available, 0):.3g} GB; the encoder stays in the loop, which is slower "
                "(--cache-gb, or another disk)",
                file=sys.stderr,
            )
            return None
        return cache_states(self.encoder, recordings, folder, pooled, self.workers)

    def name_folder(self, data: UtteranceSet, splits: Sequence[str], pooled: bool) -> Path:
        """Name a folder after the encoder, the recordings and whether states are pooled."""
        files = [[r.id, str(r.path.resolve())] for r in list_split_recordings(data, splits)]
        return self.root / hash_json([files, pooled, describe_encoder(self.encoder)])


def _measure_gb(folder: Path) -> float:
    """Measure the gigabytes of states in a folder, including those that a killed run left."""
    return sum(f.stat().st_size for f in folder.rglob("*.safetensors")) / 1e9


# ---- batches for heads


class Loader(Protocol):
    """A loader makes batches of the recordings of one set."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return (S, D), the number of hidden states and their width."""

    def list_usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        """List the utterances that are not known to be unreadable."""

    def make_batch(self, utterances: Sequence[Utterance]) -> Batch | None:
        """Make a batch of the utterances that can be encoded, in their order; None where an
        `OnlineLoader` can encode none of them."""


@dataclass(frozen=True)
class CachedLoader:
    """This loader reads hidden states from the folder of `cache_states`."""

    task: Task
    folder: Path

    @cached_property
    def states(self) -> FeatureStore:
        return FeatureStore.load(self.folder)

    @cached_property
    def means(self) -> dict[str, Tensor]:
        """Return (S, D) float32 by id: pooled states are few enough to be kept in memory."""
        return {name: self.states[name][0] for name in self.states.places}

    @property
    def shape(self) -> tuple[int, int]:
        first = self.states[next(iter(self.states.places))]
        return first.shape[-2], first.shape[-1]

    def list_usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        return [u for u in utterances if u.id in self.states]

    def make_batch(self, utterances: Sequence[Utterance]) -> Batch:
        """Make a batch. Raises KeyError for an utterance that is not usable."""
        waves: tuple[np.ndarray, ...] = ()
        if self.task.wants_waves:
            waves = tuple(read_audio(self.task.data.path(u)) for u in utterances)
        states = self.means if self.task.pooled else self.states
        return pad_batch(utterances, [states[u.id].float() for u in utterances], waves)


@dataclass(frozen=True)
class OnlineLoader:
    """This loader computes hidden states whenever they are needed."""

    encoder: SpeechEncoder
    # path -> (N,) float32 at 16 kHz; an utterance that raises ValueError or InputError is left out
    read: Callable[[Path], np.ndarray]
    task: Task
    pool: ThreadPoolExecutor
    failed: dict[str, str] = field(default_factory=dict)  # id of an utterance left out -> its error

    @property
    def shape(self) -> tuple[int, int]:
        return self.encoder.layers + 1, self.encoder.width

    def list_usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        return [u for u in utterances if u.id not in self.failed]

    def make_batch(self, utterances: Sequence[Utterance]) -> Batch | None:
        task = self.task

        def encode(utterance: Utterance) -> tuple[np.ndarray, Tensor] | None:
            """Return the wave and its states, (S, D) or (T, S, D); None where this fails."""
            try:
                wave = self.read(task.data.path(utterance))
                states = self.encoder.hidden_states(wave).cpu()
            except (InputError, ValueError) as error:
                self.failed[utterance.id] = str(error)
                return None
            states = states.mean(1) if task.pooled else states.transpose(0, 1)
            # heads cannot be trained on views of tensors from inference mode, hence the clone
            return wave, states.clone()

        encoded = list(self.pool.map(encode, utterances))
        usable = [u for u, pair in zip(utterances, encoded, strict=True) if pair]
        if not usable:
            return None
        waves, states = zip(*filter(None, encoded), strict=True)
        return pad_batch(usable, states, waves if task.wants_waves else ())


def pad_batch(
    utterances: Sequence[Utterance], states: Sequence[Tensor], waves: tuple[np.ndarray, ...]
) -> Batch:
    """Make a batch of B states (T, S, D) float32, with zeros beyond their lengths; or of means over
    time (S, D), whose lengths are 1."""
    if states[0].ndim == 2:
        lengths = torch.ones(len(states), dtype=torch.long)
        return Batch(tuple(utterances), torch.stack(list(states)), lengths, waves)
    padded = pad_sequence(list(states), batch_first=True).transpose(1, 2)
    return Batch(tuple(utterances), padded, torch.tensor([len(s) for s in states]), waves)


def crop_randomly(batch: Batch, frames: int) -> tuple[Batch, list[int]]:
    """Crop each recording at random to at most `frames` frames. Return the batch, and the first
    frame of each crop. Random numbers come from torch's generator; waves are not cropped."""
    last_starts = (batch.lengths - frames).clamp(min=0).tolist()
    starts = [int(torch.randint(last + 1, ())) for last in last_starts]
    if batch.states.shape[2] <= frames:
        return batch, starts
    crops = []
    for states, start in zip(batch.states, starts, strict=True):
        crops.append(states[:, start : start + frames])
    lengths = batch.lengths.clamp(max=frames)
    return replace(batch, states=torch.stack(crops), lengths=lengths), starts
