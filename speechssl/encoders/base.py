"""A HuBERT, wav2vec 2.0 or other encoder as the rest of the package sees it: samples in, hidden states out.

Layer 0 is the input of the first transformer layer, layer n the output of layer n (fairseq's "layer 0" is something else). Where
layers normalise their input (large), the last one's output is taken before the final norm of the encoder, as in transformers 5 and
torchaudio; fairseq and s3prl's `hubert_custom` give it after that norm.

Letters: N samples, T frames, L layers, D width.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from tqdm import tqdm
from transformers import WhisperFeatureExtractor
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.batched import BatchedEngine
from speechssl.encoders.hubert import convolution_dtype
from speechssl.errors import InputError
from speechssl.io import hash_bytes
from speechssl.timing import FrameGrid

BLOCK = 1 << 20  # samples whose moments are taken at a time
LONG_PIECES = 15  # pieces from which on (10 minutes) there is a progress bar


class Engine(Protocol):
    """What computes the layers of one utterance, by itself."""

    def statistics(self, wave: torch.Tensor) -> Any:
        """What must be known of the whole utterance before a piece of it is encoded. wave: (N,) float32."""

    def states(self, piece: torch.Tensor, statistics: Any, last: int) -> Iterator[torch.Tensor]:
        """Layers 0 to `last` of a piece of the utterance, (T, D) each, as they are computed. piece: (N,) float32."""


@dataclass(frozen=True)
class Chunking:
    """How audio longer than `whole` seconds is cut: pieces of `seconds`, each seen with `context` seconds on either side."""

    seconds: float = 40.0
    context: float = 2.0

    @property
    def whole(self) -> float:  # no field: cards of units and of cached states hold the fields
        return self.seconds


@dataclass(frozen=True)
class SpeechEncoder:
    """A frozen encoder. It owns sample rate, normalisation, frame grid and layer count; callers never touch them.

    Padding policy: there is none. Utterances are encoded as they are, so that none depends on what it is batched with.
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
    settings: str = ""  # hash of what decides the features beside the weights; empty where that is not known

    def __repr__(self) -> str:
        about = f"{self.layers} layers of {self.width}, {self.precision}, {self.device}"
        return f"SpeechEncoder({self.name}: {about}, {self.grid.frame_rate:g} frames a second)"

    def hidden_states(self, samples: np.ndarray) -> torch.Tensor:
        """All layers of one utterance of any length. samples: (N,) float32 at 16 kHz. Returns (L + 1, T, D) float32.

        T is what one pass would give (`grid.frames(N)`): longer audio than `chunking.seconds` is encoded in overlapping pieces
        that are joined frame by frame. Raises ValueError for fewer samples than one receptive field.
        """
        return torch.cat([torch.stack(list(states)) for states in self._pieces(samples, self.layers)], dim=1)

    def features(self, samples: np.ndarray, layer: int) -> torch.Tensor:
        """One layer of one utterance: (T, D) float32. Raises InputError for a layer the encoder does not have."""
        return self.features_of([samples], layer)[0].cpu()

    def stream(self, samples: np.ndarray, layer: int) -> Iterator[torch.Tensor]:
        """`features` piece by piece, (T_i, D) float32 each: hours of audio in constant memory."""
        self._check(layer)
        for states in self._pieces(samples, layer):
            yield next(islice(states, layer, None))

    @property
    def device(self) -> str:
        """The kind of device it runs on: cpu or cuda."""
        return str(getattr(getattr(self.engine, "device", None), "type", "cpu"))

    @property
    def batches(self) -> bool:
        """Whether `features_of` computes several recordings at a time."""
        return isinstance(self.engine, BatchedEngine)

    def features_of(self, recordings: Sequence[np.ndarray], layer: int) -> list[torch.Tensor]:
        """`features` of many recordings. A GPU computes several at a time, and there they stay; a CPU is fastest one by one."""
        if not isinstance(self.engine, BatchedEngine):
            return [torch.cat(list(self.stream(samples, layer))) for samples in recordings]
        self._check(layer)
        short = [n for n, samples in enumerate(recordings) if len(samples) <= self.chunking.seconds * self.grid.sample_rate]
        found = dict(zip(short, self.engine.features([self.wave(recordings[n]) for n in short], layer), strict=True))
        streamed = (torch.cat(list(self.stream(x, layer))) if n not in found else found[n] for n, x in enumerate(recordings))
        return [features.clone().float() for features in streamed]  # not a view of the padded batch

    def _check(self, layer: int) -> None:
        if not 0 <= operator.index(layer) <= self.layers:
            raise InputError(f"{self.name} has the layers 0 to {self.layers}, not {layer}; choose one of these")

    def wave(self, samples: np.ndarray) -> torch.Tensor:
        """What the model is given: (N,) float32, normalised where the encoder wants it. Raises ValueError for what is not finite
        samples, at least of one receptive field."""
        samples = np.asarray(samples)
        if samples.ndim != 1:
            raise ValueError(f"samples have the shape {samples.shape}; give one channel, (N,)")
        if self.grid.frames(len(samples)) == 0:
            raise ValueError(f"{len(samples)} samples are fewer than the {self.grid.receptive} that one frame needs")
        total = squares = 0.0  # in float64, the same on any number of threads
        for first in range(0, len(samples), BLOCK):
            block = samples[first : first + BLOCK].astype(np.float64)
            total, squares = total + float(block.sum()), squares + float(np.square(block, out=block).sum())
        mean, square = total / max(len(samples), 1), squares / max(len(samples), 1)
        if not np.isfinite(square):
            raise ValueError("the samples hold numbers that are not finite, or are far too large")
        if not self.normalise:
            return torch.from_numpy(np.require(samples, np.float32, ["C", "W"]))
        scale = 1 / np.sqrt(max(square - mean**2, 0.0) + 1e-7)  # as transformers' feature extractor does it
        return torch.from_numpy(samples.astype(np.float32)).sub_(mean).mul_(scale)

    @torch.inference_mode()
    def _pieces(self, samples: np.ndarray, last: int) -> Iterator[Iterator[torch.Tensor]]:
        """Of every piece its layers 0 to `last`, without the context."""
        wave, frames = self.wave(samples), self.grid.frames(len(samples))
        statistics = self.engine.statistics(wave)
        size = round(self.chunking.seconds * self.grid.frame_rate)
        context = round(self.chunking.context * self.grid.frame_rate)
        if len(wave) <= self.chunking.whole * self.grid.sample_rate:
            size = frames
        starts = range(0, frames, size)
        beside = threading.current_thread() is not threading.main_thread()  # others, who have a bar of their own
        for first in tqdm(starts, "encoding", unit="piece", leave=False, disable=beside or len(starts) < LONG_PIECES):
            left, right = max(first - context, 0), min(first + size + context, frames)
            end = len(wave) if right == frames else self.grid.samples_for(right)  # a group norm sees the rest too
            piece = wave[left * self.grid.hop : end]
            inner = slice(first - left, min(first + size, frames) - left)
            # float() copies bf16; clone, lest a view keep the context alive
            yield (x[inner].clone().float() for x in self.engine.states(piece, statistics, last))


def hash_weights(model: torch.nn.Module) -> str:
    """16 hex digits over all parameters and buffers that features depend on, in order of their names. Only training uses the mask
    embedding, and torchaudio's files do not have it."""
    state = sorted((name, tensor) for name, tensor in model.state_dict().items() if name != "masked_spec_embed")
    return hash_bytes(*(name.encode() + tensor.float().cpu().contiguous().numpy().tobytes() for name, tensor in state))


@contextmanager
def single_threaded(workers: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads, in each of which torch uses one thread, however many there are.

    Many small models side by side beat one small model on many threads; and as sums are grouped by threads, no result depends on
    the number of workers. What has not begun when the block is left by an exception is not begun any more.
    """
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # the workers' setting is also the default of threads to come


class TransformersEngine:
    """Runs the model as it is, up to the layer that is asked for. Raises InputError for a precision other than fp32 and bf16."""

    def __init__(self, model: nn.Module, precision: str = "fp32", device: str = "cpu") -> None:
        if precision not in ("fp32", "bf16"):
            raise InputError(
                f"a {model.config.model_type} encoder of this shape runs in fp32 or bf16, not in {precision}; choose one of these"
            )
        self.device = torch.device(device)
        self.lock = threading.Lock()  # the hooks are on the one model that all threads use
        self.dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        self.model = model.to(device, self.dtype)
        for module in self.model.modules():
            if isinstance(module, nn.Conv1d) and convolution_dtype(module.weight, self.dtype, module.stride[0]) != self.dtype:
                module.float().register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
                module.register_forward_hook(lambda _, __, x: x.bfloat16())

    def statistics(self, wave: torch.Tensor) -> None:
        """None: a piece is encoded as if it were the utterance."""

    @torch.inference_mode()
    def states(self, piece: torch.Tensor, statistics: None, last: int) -> Iterator[torch.Tensor]:
        """Layers 0 to `last`, (T, D) each. piece: (N,) float32."""
        layers = list(self.model.encoder.layers)
        found: list[torch.Tensor] = []

        class Enough(Exception):
            """The layer that was asked for has been computed."""

        def keep(x: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
            found.append(x[0] if isinstance(x, torch.Tensor) else x[0][0])
            if len(found) > last:
                raise Enough

        with self.lock:
            hooks = [layers[0].register_forward_pre_hook(lambda _, inputs: keep(inputs))]
            hooks += [layer.register_forward_hook(lambda _, __, outputs: keep(outputs)) for layer in layers]
            try:
                self.model(piece[None].to(self.device, self.dtype))
            except Enough:
                pass
            finally:
                for hook in hooks:
                    hook.remove()
        yield from (x.cpu() for x in found)


WHISPER_GRID = FrameGrid(SAMPLE_RATE, hop=320, receptive=1)  # the centre of frame t is sample 320 t (HuBERT's: 320 t + 200)


@dataclass(frozen=True)
class WhisperChunking(Chunking):
    """Whisper always reads 30 s: a piece with its context, or shorter audio as a whole."""

    seconds: float = 26.0

    @property
    def whole(self) -> float:
        return self.seconds + 2 * self.context


class WhisperEngine:
    """Runs Whisper's encoder (arXiv 2212.04356, section 2.2) of transformers on one window, up to the layer that is asked for.

    It always reads 30 s, shorter audio with silence after it, so every piece costs the same. The last layer is taken after the
    encoder's final norm, as transformers' `hidden_states` has it. Raises InputError for a precision other than fp32 and bf16.
    """

    def __init__(self, encoder: WhisperEncoder, precision: str, device: str) -> None:
        if precision not in ("fp32", "bf16"):
            raise InputError(f"Whisper's encoder runs in fp32 or bf16, not in {precision}")
        self.device = torch.device(device)
        self.model = encoder.to(device, torch.float32 if precision == "fp32" else torch.bfloat16)
        self.mel = WhisperFeatureExtractor(feature_size=encoder.config.num_mel_bins)
        self.lock = threading.Lock()  # torch's layers are safe beside each other, the extractor's buffers are not known to be

    def statistics(self, wave: torch.Tensor) -> None:
        """None: the loudest point of the log-mel, which scales it, is that of the window."""

    @torch.inference_mode()
    def states(self, piece: torch.Tensor, statistics: None, last: int) -> Iterator[torch.Tensor]:
        """Layers 0 to `last`, (T, D) each. piece: (N,) float32, at most 30 s."""
        frames, weight = WHISPER_GRID.frames(len(piece)), self.model.conv1.weight
        with self.lock:
            mel = self.mel(piece.numpy(), sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
        x = nn.functional.gelu(self.model.conv1(mel.to(weight.device, weight.dtype)))
        x = nn.functional.gelu(self.model.conv2(x)).transpose(1, 2)
        x = x + self.model.embed_positions.weight[: x.shape[1]]
        for n in range(last + 1):
            if n:
                x = self.model.layers[n - 1](x, None)
            yield (self.model.layer_norm(x) if n == len(self.model.layers) else x)[0, :frames].cpu()
