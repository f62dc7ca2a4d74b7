"""Define what a task of SUPERB (arXiv 2105.01051) is, and the data that its head is trained on.

A task (`Task`) knows its data and its head: utterances in, a loss, predictions, and measures of
them. It knows nothing of encoders, caches, learning rates or noise. Loaders give batches of hidden
states of any encoder, or of spectral features as the baseline, computed once and cached or with the
encoder in the loop. A cache folder is named after its contents, so that tasks on the same
recordings (PR and ASR) share it.
Letters: B batch, S hidden states (the encoder's layers and the input of the first), T frames, D
width, N samples, R recordings.
"""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
from speechssl.audio import header_duration, read_audio
from speechssl.data.recordings import Recording
from speechssl.data.superb import Utterance, UtteranceSet, recording_units
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.encoders.store import FeatureStore, store_features
from speechssl.errors import InputError
from speechssl.stats import Interval, ratio_interval
from speechssl.timing import FrameGrid


class Featurizer(nn.Module):
    """Sum S hidden states (SUPERB, section 3; s3prl's `Featurizer`) by learnt weights that a
    softmax makes sum to 1.

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
        """Sum (B, S, ..., D) to (B, ..., D)."""
        return torch.einsum("s,bs...->b...", self.weights.softmax(0), states)


@dataclass(frozen=True)
class Batch:
    """A batch is some recordings with their features."""

    utterances: tuple[Utterance, ...]
    # (B, S, T, D) float32, zeros beyond a length; (B, S, D) for tasks that use means over time
    states: Tensor
    lengths: Tensor  # (B,) real frames
    # B of (N,) float32, the encoder's input, for tasks that use it
    waves: tuple[np.ndarray, ...] = ()

    def to(self, device: str) -> Batch:
        """Move states and lengths to a device."""
        return replace(self, states=self.states.to(device), lengths=self.lengths.to(device))


@dataclass(frozen=True)
class Measure:
    """A measure is a value with its 95 % interval, low to high, in the units of `results.unit`:
    percent, dB or a scale.

    drawn, groups: what the interval draws and of how many (`data.superb.recording_units`); "" and 0
    without an interval.
    """

    # "acc", "per", "wer", "eer", "mtwv", "der", "slot_f1", "slot_cer", "pesq", "stoi", "si_sdri",
    # "min_dcf", ...
    metric: str
    value: float
    low: float
    high: float
    n: int  # items it is about
    drawn: str = ""
    groups: int = 0

    @classmethod
    def of(cls, metric: str, i: Interval) -> Measure:
        """Make a measure from an interval on its own scale."""
        return cls(metric, i.value, i.low, i.high, i.n, i.drawn, i.groups)


@dataclass(frozen=True)
class HeadEvaluation:
    """An evaluation has measures, by the first of which heads are chosen, and as `detail` the JSON
    values that figures are drawn from.

    classification: {"confusion": {slot: {"classes": [...], "counts": [[by true class: predictions
    of each class]]}}}; asv: {"det": {"false_alarms": [shares], "misses": [shares]}}, at most 200
    points; qbe: {"layers": [MTWV of each on dev]}.
    """

    measures: tuple[Measure, ...]
    detail: Mapping[str, Any] = field(default_factory=dict)


def rate_measure(
    metric: str,
    values: Sequence[float],
    sizes: Sequence[float] | None,
    data: UtteranceSet,
    split: str,
    resamples: int,
    scale: float = 100.0,
) -> Measure:
    """Divide the sum of the values by the sum of the sizes, times `scale`, of the recordings of a
    split in their order.

    values: such as errors; sizes: such as numbers of words, None for a mean over recordings.
    """
    sizes = [1] * len(values) if sizes is None else sizes
    if not resamples:
        value = scale * sum(values) / sum(sizes)
        return Measure(metric, value, value, value, len(values))
    units = recording_units(data, data.splits[split])
    interval = ratio_interval(values, sizes, units, resamples=resamples)
    return Measure.of(metric, interval.percent if scale == 100 else interval)


@dataclass(frozen=True)
class HeadSettings:
    """A head is trained with these settings. The published ones of each task are those of s3prl
    0.4.18 (its config.yaml)."""

    learning_rate: float
    steps: int
    batch: int  # recordings in a step, accumulation included
    every: int  # steps between evaluations on dev
    optimiser: str = "Adam"  # or AdamW
    clip: float = 1.0  # gradient norm
    patience: int = 0  # evaluations without improvement before training ends; 0: never
    balanced: bool = False  # recordings are drawn so that all classes come equally often


class Task(ABC):
    """A task is a frozen dataclass: `Verification(data, grid, ...sizes of the head...)`."""

    name: str  # pr, asr, ks, qbe, sid, asv, sd, ic, sf, er, se or ss
    data: UtteranceSet
    grid: FrameGrid  # of the encoder: for which samples a frame stands
    pooled = False  # the head uses the mean over time alone, (S, D) a recording
    wants_waves = False  # batches contain the encoder's input

    @abstractmethod
    def build(self, states: int, width: int) -> nn.Module:
        """Make a head for S states of width D, with `featurizer: Featurizer`. Random weights come
        from torch's generator."""

    @abstractmethod
    def loss(self, head: Any, batch: Batch) -> Tensor:
        """Return the training loss, a scalar."""

    @abstractmethod
    def predict(self, head: Any, batch: Batch) -> Sequence[Any]:
        """Predict JSON values or numpy arrays, one a recording, independent of padding and of the
        rest of the batch."""

    @abstractmethod
    def evaluate(self, split: str, predicted: Mapping[str, Any], resamples: int) -> HeadEvaluation:
        """Evaluate predictions, which are by the utterance's id. An utterance without one could not
        be read; it counts as wrong and is never left out.

        resamples: of the bootstrap that gives the intervals; 0: none ([value, value]), for
        evaluations on dev, which must be fast.
        """


# ---- hidden states of a frozen encoder in the feature store
#
# A recording is kept as either its (T, S, D) hidden states in two bytes a number or, for heads that
# see their mean over time alone, (1, S, D) float32: these are few.

TRAINING = ("train", "dev")
FREE_SHARE = 0.9  # of the free disk that caches may fill


def cache_states(
    encoder: SpeechEncoder,
    recordings: Sequence[Recording],
    folder: Path,
    pooled: bool,
    limit_gb: float = 50.0,
    workers: int = 2,
) -> FeatureStore:
    """Compute (once) the hidden states of all recordings; errors are those of `store_features`.
    pooled: keep the mean over time instead of every frame."""
    # audio is known by id, name and size, in this order
    sizes = []
    for r in recordings:
        sizes.append((r.id, r.path.name, r.path.stat().st_size if r.path.is_file() else 0))
    made_from = {
        "encoder": encoder_card(encoder),
        "recordings": hash_json(sizes),
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
        {r.id: r for r in recordings},
        encode,
        {r.id: estimate_bytes(encoder, [r], pooled) for r in recordings},
        made_from,
        "hidden states",
        workers,
        limit_gb=limit_gb,
    )


def encoder_card(encoder: SpeechEncoder) -> dict[str, Any]:
    """Return what decides the features of an encoder."""
    card = {
        "encoder": encoder.hash,
        "settings": encoder.settings,
        "precision": encoder.precision,
        "states": encoder.layers + 1,
        "width": encoder.width,
        "chunking": asdict(encoder.chunking),
    }
    return card | ({"engine": "openvino"} if encoder.engine.backend == "openvino" else {})


def estimate_bytes(encoder: SpeechEncoder, recordings: Sequence[Recording], pooled: bool) -> int:
    """Estimate the bytes that the hidden states of these recordings need, of those that can be
    opened."""
    row = (encoder.layers + 1) * encoder.width
    if pooled:
        return 4 * row * len(recordings)
    frames = 0
    for recording in recordings:
        with suppress(InputError):
            seconds = recording.seconds or header_duration(recording.path)
            frames += encoder.grid.frames(encoder.grid.sample(seconds))
    return 2 * row * frames


def list_split_recordings(data: UtteranceSet, splits: Sequence[str]) -> list[Recording]:
    """List the recordings of these splits."""
    recordings = []
    for split in splits:
        recordings += [Recording(u.id, data.path(u), u.seconds) for u in data.splits[split]]
    return recordings


@dataclass
class FeatureCache:
    """Cache the hidden states of one encoder for the tasks of a benchmark, in folders below `root`:
    as far as there is room within limit_gb and on the disk."""

    encoder: SpeechEncoder
    root: Path
    limit_gb: float = 50.0
    workers: int = 2

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))

    def loader(self, task: Task, splits: Sequence[str] = TRAINING) -> Loader:
        """Make a task's loader, with the encoder in the loop where there is no room."""
        if self.states(task.data, splits, task.pooled) is None:
            return self.online(task)
        folder = self.folder(task.data, splits, task.pooled)
        return CachedLoader(task.data, folder, task.pooled, task.wants_waves)

    def online(self, task: Task) -> OnlineLoader:
        """Make the loader with the encoder in the loop."""
        return OnlineLoader(self.encoder, read_audio, task, self.pool)

    def states(
        self, data: UtteranceSet, splits: Sequence[str], pooled: bool
    ) -> FeatureStore | None:
        """Compute the states where they are not cached. None, which is reported, without room."""
        folder = self.folder(data, splits, pooled)
        recordings = list_split_recordings(data, splits)
        needed = estimate_bytes(self.encoder, recordings, pooled) / 1e9 - _gigabytes(folder)
        self.root.mkdir(parents=True, exist_ok=True)
        free = FREE_SHARE * shutil.disk_usage(self.root).free / 1e9
        room = min(free, self.limit_gb - _gigabytes(self.root))
        if needed > room and not (folder / "card.json").is_file():
            tqdm.write(
                f"{data.task}: its hidden states need {needed:.3g} GB and there is room for "
                f"{max(room, 0):.3g} GB; the encoder stays in the loop, which is slower "
                "(--cache-gb, or another disk)",
                file=sys.stderr,
            )
            return None
        return cache_states(self.encoder, recordings, folder, pooled, self.limit_gb, self.workers)

    def folder(self, data: UtteranceSet, splits: Sequence[str], pooled: bool) -> Path:
        """Name a folder after encoder, recordings and kind."""
        files = [[r.id, str(r.path.resolve())] for r in list_split_recordings(data, splits)]
        return self.root / hash_json([files, pooled, encoder_card(self.encoder)])


def _gigabytes(folder: Path) -> float:
    """Add up the states in a folder; a killed run may have left some."""
    return sum(f.stat().st_size for f in folder.rglob("*.safetensors")) / 1e9


# ---- batches for heads


class Loader(Protocol):
    """A loader makes batches of the recordings of one set."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return (S, D)."""

    def usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        """Leave out those that are known to be unreadable."""

    def batch(self, utterances: Sequence[Utterance]) -> Batch | None:
        """Return those of them that can be encoded, in their order; None where an `OnlineLoader`
        finds that none of them can."""


@dataclass(frozen=True)
class CachedLoader:
    """Load hidden states from disk. folder: of `cache_states`."""

    data: UtteranceSet
    folder: Path
    pooled: bool
    waves: bool

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

    def __getstate__(self) -> dict[str, object]:
        """Leave out open files and what was read: another process opens and reads them itself."""
        return {name: self.__dict__[name] for name in ("data", "folder", "pooled", "waves")}

    def usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        return [u for u in utterances if u.id in self.states]

    def batch(self, utterances: Sequence[Utterance]) -> Batch:
        """Make a batch. Raises KeyError for an utterance that is not usable."""
        waves = tuple(read_audio(self.data.path(u)) for u in utterances) if self.waves else ()
        if self.pooled:
            return mean_batch(utterances, [self.means[u.id] for u in utterances], waves)
        return pad_batch(utterances, [self.states[u.id].float() for u in utterances], waves)


@dataclass(frozen=True)
class OnlineLoader:
    """Compute hidden states with the encoder in the loop. read: (N,) float32 at 16 kHz of a
    path; a ValueError or InputError of it sets the utterance aside."""

    encoder: SpeechEncoder
    read: Callable[[Path], np.ndarray]
    task: Task
    pool: ThreadPoolExecutor
    failed: dict[str, str] = field(default_factory=dict)  # id -> why; grows

    @property
    def shape(self) -> tuple[int, int]:
        return self.encoder.layers + 1, self.encoder.width

    def usable(self, utterances: Iterable[Utterance]) -> list[Utterance]:
        return [u for u in utterances if u.id not in self.failed]

    def batch(self, utterances: Sequence[Utterance]) -> Batch | None:
        task = self.task

        def encode(utterance: Utterance) -> tuple[np.ndarray, Tensor] | None:
            """Return the wave with (S, D) or (T, S, D); None where it fails."""
            try:
                wave = self.read(task.data.path(utterance))
                states = self.encoder.hidden_states(wave).cpu()
            except (InputError, ValueError) as error:
                self.failed[utterance.id] = str(error)
                return None
            states = states.mean(1) if task.pooled else states.transpose(0, 1)
            # cloned: heads cannot be trained on views of what was made in inference mode
            return wave, states.clone()

        encoded = list(self.pool.map(encode, utterances))
        usable = [u for u, made in zip(utterances, encoded, strict=True) if made]
        if not usable:
            return None
        waves, states = zip(*filter(None, encoded), strict=True)
        make = mean_batch if task.pooled else pad_batch
        return make(usable, states, waves if task.wants_waves else ())


def mean_batch(
    utterances: Sequence[Utterance], means: Sequence[Tensor], waves: tuple[np.ndarray, ...]
) -> Batch:
    """Make a batch of B means over time (S, D) float32."""
    return Batch(tuple(utterances), torch.stack(list(means)), torch.ones(len(means)).long(), waves)


def pad_batch(
    utterances: Sequence[Utterance], states: Sequence[Tensor], waves: tuple[np.ndarray, ...]
) -> Batch:
    """Make a batch of B states (T, S, D) float32, with zeros beyond their lengths."""
    padded = pad_sequence(list(states), batch_first=True).transpose(1, 2)
    return Batch(tuple(utterances), padded, torch.tensor([len(s) for s in states]), waves)


def random_crops(batch: Batch, frames: int) -> tuple[Batch, list[int]]:
    """Crop each recording to at most so many frames, and return where each crop begins. torch's
    generator draws them; waves stay whole."""
    spare = (batch.lengths - frames).clamp(min=0).tolist()
    starts = [int(torch.randint(n + 1, ())) for n in spare]
    if batch.states.shape[2] <= frames:
        return batch, starts
    crops = []
    for states, start in zip(batch.states, starts, strict=True):
        crops.append(states[:, start : start + frames])
    lengths = batch.lengths.clamp(max=frames)
    return replace(batch, states=torch.stack(crops), lengths=lengths), starts
