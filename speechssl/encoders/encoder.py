"""A speech encoder turns samples into hidden states, whichever library it comes from.

Layer 0 is the input of the first transformer layer, layer n the output of layer n (fairseq's "layer
0" is something else). In models whose layers normalise their input (large), the last layer is taken
before the final norm of the encoder, as in transformers 5 and torchaudio; fairseq and s3prl's
`hubert_custom` take it after that norm. Whisper's last layer is taken after it.

Letters: N samples, T frames, L layers, D width.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import HOT_PEAK, LONG, collect, iterate_blocks
from speechssl.encoders.hubert import TorchEngine
from speechssl.errors import InputError
from speechssl.timing import FrameGrid

BLOCK = 1 << 20  # samples whose moments are computed at a time
LONG_PIECES = 15  # pieces (10 minutes) from which on a recording has a progress bar
# A `SharedEncoder` that is asked for the last layer computes and remembers all layers of a
# recording if they take at most so many bytes.
REMEMBERED_BYTES = 2**28


class Engine(Protocol):
    """An engine computes layers of one utterance at a time."""

    backend: str  # what computes: cpu, cuda, or openvino

    def compute_statistics(self, wave: torch.Tensor) -> Any:
        """Return what encoding a piece needs to know of the whole utterance, (N,) float32, such as
        the scale and shift of HuBERT's group norm after the first convolution; None where a piece
        is encoded as if it were the utterance."""
        return None

    def compute_layers(
        self, piece: torch.Tensor, statistics: Any, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers, in ascending order, of a piece of the utterance, (N,) float32: (T,
        D) each."""
        ...


class FunctionEngine(Engine):
    """This engine gives the one layer that a function computes: samples (N,) -> (T, D)."""

    backend = "cpu"

    def __init__(self, compute: Callable[[np.ndarray], torch.Tensor]) -> None:
        self.compute = compute

    def compute_layers(
        self, piece: torch.Tensor, statistics: None, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return the layer (T, D) of a piece (N,) float32."""
        return [self.compute(piece.numpy())]


@dataclass(frozen=True)
class Chunking:
    """Long audio is cut into pieces of `seconds`, each of which is encoded with `context` seconds
    before and after it."""

    seconds: float = 40.0
    context: float = 2.0


@dataclass(frozen=True)
class SpeechEncoder:
    """A frozen encoder takes care of sample rate, normalisation and frame grid: callers give
    samples and get layers.

    Utterances are not padded, so that none depends on the others in its batch.
    """

    name: str
    engine: Engine
    grid: FrameGrid
    layers: int  # L
    width: int  # D
    normalise: bool  # zero mean and unit variance over the utterance first
    hash: str  # of the weights
    card: dict[str, Any] = field(default_factory=dict)
    precision: str = "fp32"
    chunking: Chunking = Chunking()
    # hash of what decides the features beside the weights; empty where that is not known
    settings: str = ""
    # seconds of the fixed window of Whisper, up to which audio is one piece; None: no fixed window
    window: float | None = None

    def __repr__(self) -> str:
        size = f"{self.layers} layers of {self.width}, {self.precision}, {self.device}"
        return f"SpeechEncoder({self.name}: {size}, {self.grid.frame_rate:g} frames a second)"

    def hidden_states(self, samples: np.ndarray) -> torch.Tensor:
        """Encode one utterance of any length: (N,) float32 at 16 kHz -> all layers, (L + 1, T, D)
        float32.

        T is that of a single pass (`grid.count_frames(N)`): audio longer than `chunking.seconds` is
        encoded in overlapping pieces that are joined frame by frame. Raises ValueError for fewer
        samples than one receptive field, InputError where the encoder gives another
        number of frames.
        """
        layers = range(self.layers + 1)
        return torch.cat(
            [torch.stack(states) for states in self._encode_pieces(samples, layers)], dim=1
        )

    def features(self, samples: np.ndarray, layer: int) -> torch.Tensor:
        """Return one layer of one utterance, (T, D) float32. Raises InputError for a layer that the
        encoder does not have."""
        return self.features_of([samples], layer)[0].cpu()

    def stream(self, samples: np.ndarray, layer: int) -> Iterator[torch.Tensor]:
        """Yield `features` piece by piece, (T_i, D) float32 each: hours of audio in constant
        memory."""
        self.check_layer(layer)
        for states in self._encode_pieces(samples, [layer]):
            yield states[0]

    @property
    def device(self) -> str:
        """Return the kind of device it runs on: cpu or cuda."""
        return "cuda" if self.engine.backend == "cuda" else "cpu"

    @property
    def batches(self) -> bool:
        """Return whether `features_of` computes several recordings at a time: it does on a GPU,
        while a CPU is fastest one by one."""
        return isinstance(self.engine, TorchEngine) and self.engine.backend != "cpu"

    def features_of(self, recordings: Sequence[np.ndarray], layer: int) -> list[torch.Tensor]:
        """Return `features` of several recordings. With `batches` they stay on the GPU."""
        self.check_layer(layer)
        features: dict[int, torch.Tensor] = {}
        if self.batches:
            longest = self.chunking.seconds * self.grid.sample_rate
            short = [n for n, samples in enumerate(recordings) if len(samples) <= longest]
            waves = [self.wave(recordings[n]) for n in short]
            batched = self.engine.compute_features(waves, layer, self.grid)  # type: ignore[attr-defined]
            for n, x in zip(short, batched, strict=True):
                features[n] = x.clone().float()  # not a view of the padded batch
        for n, samples in enumerate(recordings):
            if n not in features:
                features[n] = torch.cat(list(self.stream(samples, layer)))
        return [features[n] for n in range(len(recordings))]

    def check_layer(self, layer: int | None) -> int:
        """Return the layer. Raises InputError for one that the encoder does not have, or None."""
        if layer is None or not 0 <= layer <= self.layers:
            given = "" if layer is None else f", not {layer}"
            raise InputError(
                f"{self.name} has the layers 0 to {self.layers}{given}; choose one with --layer"
            )
        return layer

    def wave(self, samples: np.ndarray) -> torch.Tensor:
        """Return the input of the model: (N,) float32, normalised if the encoder requires it.

        Raises ValueError for samples that are not finite, on another scale than [-1, 1] where the
        scale matters, or fewer than one receptive field.
        """
        samples = np.asanyarray(samples)
        if samples.ndim != 1:
            raise ValueError(f"samples have the shape {samples.shape}; give one channel, (N,)")
        if self.grid.count_frames(len(samples)) == 0:
            raise ValueError(
                f"{len(samples)} samples are fewer than the {self.grid.receptive} "
                "that one frame needs"
            )
        mean, square = _compute_moments(samples)
        if not np.isfinite(square):
            raise ValueError("the samples hold numbers that are not finite, or are far too large")
        if not self.normalise:
            if square > HOT_PEAK**2:
                raise ValueError(
                    f"the samples are far beyond full scale (their RMS is {np.sqrt(square):.3g}); "
                    "give floats in [-1, 1], such as 16-bit integers divided by 32768"
                )
            return _view_as_tensor(samples)
        # as transformers' feature extractor does it
        scale = 1 / np.sqrt(max(square - mean**2, 0.0) + 1e-7)
        if len(samples) <= LONG:
            return _view_as_tensor(_normalise(samples, mean, scale))
        blocks = (_normalise(block, mean, scale) for block in iterate_blocks(samples))
        return _view_as_tensor(collect(blocks))  # which lies in a file

    @torch.inference_mode()
    def _encode_pieces(
        self, samples: np.ndarray, layers: Sequence[int]
    ) -> Iterator[list[torch.Tensor]]:
        """Yield these layers of every piece, without the context."""
        wave = self.wave(samples)
        frames = self.grid.count_frames(len(samples))
        statistics = self.engine.compute_statistics(wave)
        size = round(self.chunking.seconds * self.grid.frame_rate)
        context = round(self.chunking.context * self.grid.frame_rate)
        if len(wave) <= (self.window or self.chunking.seconds) * self.grid.sample_rate:
            size = frames
        starts = range(0, frames, size)
        # in the threads of a pool there is no bar, for the pool has one
        in_pool = threading.current_thread() is not threading.main_thread()
        no_bar = in_pool or len(starts) < LONG_PIECES
        for first in tqdm(starts, "encoding", unit="piece", leave=False, disable=no_bar):
            left = max(first - context, 0)
            right = min(first + size + context, frames)
            # the last piece has the samples after the last frame: some engines' norms see them
            end = len(wave) if right == frames else self.grid.count_samples(right)
            piece = wave[left * self.grid.hop : end]
            inner = slice(first - left, min(first + size, frames) - left)
            states = self.engine.compute_layers(piece, statistics, layers)
            if any(len(x) != right - left for x in states):
                raise InputError(
                    f"{self.name} gives {len(states[0])} frames for {len(piece)} samples, and not "
                    f"the {right - left} of its grid, so that times would be wrong; choose another "
                    "encoder"
                )
            # clone(), because a view would keep the context in memory
            yield [x[inner].clone().float() for x in states]


def _compute_moments(samples: np.ndarray) -> tuple[float, float]:
    """Return the means of samples (N,) and of their squares. They are computed in float64 and block
    by block, and are the same for any number of threads."""
    total = squares = 0.0
    for first in range(0, len(samples), BLOCK):
        block = samples[first : first + BLOCK].astype(np.float64)
        total += float(block.sum())
        squares += float(np.square(block, out=block).sum())
    count = max(len(samples), 1)  # some upstreams of s3prl have a frame without samples
    return total / count, squares / count


def _normalise(samples: np.ndarray, mean: float, scale: float) -> np.ndarray:
    """Subtract the mean from samples (N,) and multiply them by the scale, in float32."""
    return torch.from_numpy(samples.astype(np.float32)).sub_(mean).mul_(scale).numpy()


def _view_as_tensor(samples: np.ndarray) -> torch.Tensor:
    """View an array as a tensor in the same memory, or of the same file."""
    if isinstance(samples, np.memmap):
        samples = samples.view(np.ndarray)
        # torch warns of arrays that are read-only; the map of `collect` is copy on write, and
        # nothing is written
        samples.flags.writeable = True
    return torch.from_numpy(np.require(samples, np.float32, ["C", "W"]))


@dataclass
class Memory:
    """A memory holds the layers that a `SharedEncoder` computed of its last samples."""

    samples: np.ndarray
    all_layers: torch.Tensor | None = None  # (L + 1, T, D)
    pieces: dict[int, list[torch.Tensor]] = field(default_factory=dict)  # by layer


class SharedEncoder:
    """Systems share one encoder: every thread remembers the last array that it encoded, so that the
    array is encoded once. All other attributes are those of the encoder."""

    batches = False  # it remembers one recording

    def __init__(self, inner: SpeechEncoder) -> None:
        self.inner = inner
        self.last = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def hidden_states(self, samples: np.ndarray) -> torch.Tensor:
        """Return all layers, (L + 1, T, D), of samples (N,) float32 at 16 kHz."""
        memory = self._remember(samples)
        if memory.all_layers is None:
            memory.all_layers = self.inner.hidden_states(samples)
        return memory.all_layers

    def features(self, samples: np.ndarray, layer: int) -> torch.Tensor:
        """Return one layer, (T, D), of samples (N,) float32 at 16 kHz."""
        return torch.cat(list(self.stream(samples, layer)))

    def stream(self, samples: np.ndarray, layer: int) -> Iterator[torch.Tensor]:
        """Yield `features` in the pieces of the encoder.

        There is one piece if all layers are remembered; also for the last layer, which costs as
        much as all of them, if they fit REMEMBERED_BYTES.
        """
        inner = self.inner
        memory = self._remember(samples)
        size = 4 * (inner.layers + 1) * inner.grid.count_frames(len(samples)) * inner.width
        is_cheap = layer == inner.layers and size <= REMEMBERED_BYTES
        if is_cheap or memory.all_layers is not None:
            yield self.hidden_states(samples)[layer]
            return
        if layer not in memory.pieces:
            memory.pieces[layer] = list(inner.stream(samples, layer))
        yield from memory.pieces[layer]

    def _remember(self, samples: np.ndarray) -> Memory:
        """Return what this thread knows of the samples."""
        memory: Memory | None = getattr(self.last, "memory", None)
        if memory is None or memory.samples is not samples:
            memory = Memory(samples)
            self.last.memory = memory
        return memory


def remember_last(encode: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    """Return `encode` with a memory: every thread remembers the last recording, so that systems
    which get the same samples one after the other encode them once."""
    last = threading.local()

    def encode_once(samples: np.ndarray) -> Any:
        # all systems get the same array, and not a copy
        if getattr(last, "samples", None) is not samples:
            last.encoded = encode(samples)
            last.samples = samples
        return last.encoded

    return encode_once


@contextmanager
def open_pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads, in each of which torch uses one thread.

    Several small models side by side are faster than one small model on several threads. And since
    the order of torch's sums depends on its number of threads, no result depends on the number of
    workers. Work that has not begun when an exception leaves the block is cancelled.
    """
    threads_before = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        # the workers have also set the default of later threads
        torch.set_num_threads(threads_before)
