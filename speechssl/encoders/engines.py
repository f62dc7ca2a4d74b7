"""Engines compute the hidden states of an encoder: HuBERT and wav2vec 2.0 by torch (`hubert.py`) or
OpenVINO, others by transformers' own modules.

Letters: B utterances, N samples, T frames, C channels, D width.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.hubert import (
    Statistics,
    convolution_dtype,
    convolve_samples,
    frames_of_samples,
    group_norm_statistics,
    norm_where_any,
    transform,
)
from speechssl.errors import MissingExtra
from speechssl.timing import FrameGrid

if TYPE_CHECKING:  # transformers takes seconds to import
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

BATCH_SECONDS = 320.0  # of audio that a GPU computes at a time
# frames: lengths of a batch are rounded up to a multiple of this, 1.3 s
STEP = 64


class Engine(Protocol):
    """An engine computes layers of one utterance, by itself."""

    @property
    def place(self) -> str:
        """Say where it computes: cpu, cuda, or openvino."""

    def statistics(self, wave: torch.Tensor) -> Any:
        """Return what must be known of the whole utterance, (N,) float32, before a piece of it is
        encoded."""

    def states(
        self, piece: torch.Tensor, statistics: Any, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers, in ascending order, of a piece of the utterance, (N,) float32: (T,
        D) each."""


def cpu_capabilities() -> dict[str, Any]:
    """Return what torch knows of the processor (avx512_bf16, amx_bf16 ...); nothing where it is
    older than 2.11."""
    known = getattr(torch.cpu, "get_capabilities", dict)
    return dict(known())


def dtype_of(precision: str) -> torch.dtype:
    return torch.float32 if precision == "fp32" else torch.bfloat16


class TorchEngine:
    """Run HuBERT or wav2vec 2.0 on a CPU or a GPU. It takes the model over. precision: fp32 or
    bf16."""

    def __init__(self, model: Any, precision: str = "fp32", device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.place = self.device.type
        self.dtype = dtype_of(precision)
        if self.place == "cuda" and precision == "fp32":
            torch.backends.cudnn.allow_tf32 = False  # which rounds to 10 bits
        first = deepcopy(model.feature_extractor.conv_layers[0])
        model.encoder.pos_conv_embed.conv = without_weight_norm(model.encoder.pos_conv_embed.conv)
        self.model = model.to(self.device, self.dtype)
        self.model.feature_extractor.conv_layers[0] = first.to(self.device)  # stays in float32
        self.first = first

    @torch.inference_mode()
    def statistics(self, wave: torch.Tensor) -> Statistics:
        """Return what the group norm does to this utterance. wave: (N,) float32."""
        return group_norm_statistics(self.first, wave[None].to(self.device))

    @torch.inference_mode()
    def states(
        self, piece: torch.Tensor, statistics: Statistics, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers of one piece, (T, D) each. piece: (N,) float32."""
        samples = piece[None].to(self.device)
        x = convolve_samples(self.model, samples, statistics, self.dtype)
        states = enumerate(transform(self.model, x, last=max(layers)))
        return [state[0].cpu() for layer, state in states if layer in layers]

    @torch.inference_mode()
    def features(
        self, waves: Sequence[torch.Tensor], layer: int, grid: FrameGrid
    ) -> list[torch.Tensor]:
        """Return one layer of many utterances, in their order: (T_i, D) each, on the device. waves:
        (N_i,) float32 each.

        Utterances are padded to a few fixed shapes (a batch that is not full, with silence), so
        that a kernel is chosen by an utterance's own length alone, and none depends on the others
        in its batch.
        """
        lengths: dict[int, list[int]] = {}  # in frames, rounded up, of which utterances
        for place, wave in enumerate(waves):
            frames = -(-grid.frames(len(wave)) // STEP) * STEP
            lengths.setdefault(frames, []).append(place)
        features: list[torch.Tensor] = [torch.empty(0)] * len(waves)
        for frames, utterances in sorted(lengths.items()):
            size = max(int(BATCH_SECONDS * grid.frame_rate) // frames, 1)
            width = grid.samples_for(frames) + grid.hop - 1
            for start in range(0, len(utterances), size):
                places = utterances[start : start + size]
                # pinned, so that the next batch is filled while the GPU still computes this one
                pinned = self.place == "cuda"
                batch = torch.zeros(size, width, pin_memory=pinned)
                samples = torch.full((size,), grid.receptive, pin_memory=pinned)
                for row, place in enumerate(places):
                    length = len(waves[place])
                    samples[row] = length
                    batch[row, :length] = waves[place]
                x = self._layer(batch, samples, layer)
                for row, place in enumerate(places):
                    features[place] = x[row, : grid.frames(len(waves[place]))]
        return features

    def _layer(self, batch: torch.Tensor, samples: torch.Tensor, layer: int) -> torch.Tensor:
        """Return one layer, (B, T, D), of (B, N) samples, of which `samples` (B,) are real."""
        batch = batch.to(self.device, non_blocking=True)
        samples = samples.to(self.device, non_blocking=True)
        statistics = group_norm_statistics(self.first, batch, samples)
        x = convolve_samples(self.model, batch, statistics, self.dtype)
        frames = frames_of_samples(self.model.config, samples)
        for state in transform(self.model, x, frames, last=layer):
            x = state
        return x


def without_weight_norm(conv: Any) -> nn.Conv1d:
    """Copy a convolution, with the weights that its weight norm gives, computed once."""
    plain = nn.Conv1d(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size[0],
        padding=conv.padding[0],
        groups=conv.groups,
    )
    plain.requires_grad_(False)
    plain.weight.copy_(conv.weight)
    plain.bias.copy_(conv.bias)  # type: ignore[union-attr]
    return plain


class OpenVinoEngine:
    """Run HuBERT or wav2vec 2.0 on a CPU by OpenVINO, which is the faster one on processors with
    AMX. precision: fp32 or bf16.

    graph: where the model is kept in OpenVINO's format, made from `model` where there is none. The
    group norm's statistics are computed by torch, from the whole utterance. Raises MissingExtra.
    """

    place = "openvino"

    def __init__(self, model: Any, precision: str, graph: Path) -> None:
        try:
            import openvino
        except ImportError as error:
            raise MissingExtra("the engine openvino", "openvino") from error
        self.device = torch.device("cpu")
        self.precision = {"fp32": "f32", "bf16": "bf16"}[precision]
        self.first = model.feature_extractor.conv_layers[0]
        if not graph.is_file():
            started = time.perf_counter()
            convert_to_openvino(model, graph)
            seconds = time.perf_counter() - started
            tqdm.write(f"converted for OpenVINO in {seconds:.1f} s ({graph})", file=sys.stderr)
        self.graph = openvino.Core().read_model(graph)
        self.threads = torch.get_num_threads()  # of the caller, and not of a pool's workers
        self.compiled: dict[tuple[int, ...], Any] = {}
        self.lock = threading.Lock()

    @torch.inference_mode()
    def statistics(self, wave: torch.Tensor) -> Statistics:
        """Return what the group norm does to this utterance. wave: (N,) float32."""
        return group_norm_statistics(self.first, wave[None])

    def states(
        self, piece: torch.Tensor, statistics: Statistics, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers of one piece, (T, D) each. piece: (N,) float32."""
        inputs = [piece[None].numpy(), statistics.scale.numpy(), statistics.shift.numpy()]
        request = self._compile(tuple(layers)).create_infer_request()
        outputs = request.infer(inputs, share_inputs=True)
        return [torch.from_numpy(np.array(output[0])) for output in outputs.values()]

    def _compile(self, layers: tuple[int, ...]) -> Any:
        """Compile the part of the graph that these layers need, once."""
        import openvino

        with self.lock:
            if layers not in self.compiled:
                started = time.perf_counter()
                outputs = [self.graph.outputs[layer] for layer in layers]
                part = openvino.Model(outputs, self.graph.get_parameters())
                settings = {
                    "INFERENCE_PRECISION_HINT": self.precision,
                    "INFERENCE_NUM_THREADS": self.threads,
                    "NUM_STREAMS": 1,
                }
                self.compiled[layers] = openvino.compile_model(part, "CPU", settings)
                seconds = time.perf_counter() - started
                tqdm.write(f"compiled by OpenVINO in {seconds:.1f} s", file=sys.stderr)
            return self.compiled[layers]


class AllLayers(nn.Module):
    """Give all layers as outputs, for OpenVINO to trace."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, samples: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return layers 0 to L. Convolutions are written as OpenVINO computes them best, (1, C,
        T), and not as `hubert.convolve_samples` has them."""
        x = samples[:, None]
        for n, layer in enumerate(self.model.feature_extractor.conv_layers):
            conv = layer.conv
            x = F.conv1d(x, conv.weight, conv.bias if n else None, conv.stride)
            if n == 0:
                x = scale[..., None] * x + shift[..., None]
            x = F.gelu(norm_where_any(layer, x.transpose(1, 2)).transpose(1, 2))
        return tuple(transform(self.model, x.transpose(1, 2)))


def convert_to_openvino(model: Any, graph: Path) -> None:
    """Write a model as a graph of OpenVINO: samples (1, N), scale and shift (1, C) -> all layers,
    (1, T, D) each."""
    import openvino

    model.encoder.pos_conv_embed.conv = without_weight_norm(model.encoder.pos_conv_embed.conv)
    channels = model.config.conv_dim[0]
    example = torch.zeros(1, SAMPLE_RATE), torch.ones(1, channels), torch.zeros(1, channels)
    with warnings.catch_warnings(action="ignore"):  # of tracing
        converted = openvino.convert_model(AllLayers(model), example_input=example)
    graph.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=graph.parent) as scratch:
        openvino.save_model(converted, Path(scratch) / graph.name, compress_to_fp16=False)
        for name in (graph.with_suffix(".bin").name, graph.name):
            os.replace(Path(scratch) / name, graph.parent / name)


class TransformersEngine:
    """Run a model of transformers as it is, up to the layer that is asked for, in fp32 or bf16."""

    def __init__(self, model: nn.Module, precision: str = "fp32", device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.place = self.device.type
        self.lock = threading.Lock()  # the hooks are on the one model that all threads use
        self.dtype = dtype_of(precision)
        self.model = model.to(device, self.dtype)
        for module in self.model.modules():
            if not isinstance(module, nn.Conv1d):
                continue
            if convolution_dtype(module.weight, self.dtype, module.stride[0]) != self.dtype:
                module.float().register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
                module.register_forward_hook(lambda _, __, x: x.bfloat16())

    def statistics(self, wave: torch.Tensor) -> None:
        """Return None: a piece is encoded as if it were the utterance."""

    @torch.inference_mode()
    def states(
        self, piece: torch.Tensor, statistics: None, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers, (T, D) each. piece: (N,) float32."""
        modules = list(self.model.encoder.layers)
        hidden_states: list[torch.Tensor] = []

        class Enough(Exception):
            """The last layer that was asked for has been computed."""

        def keep(x: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
            hidden_states.append(x[0] if isinstance(x, torch.Tensor) else x[0][0])
            if len(hidden_states) > max(layers):
                raise Enough

        with self.lock:
            hooks = [modules[0].register_forward_pre_hook(lambda _, inputs: keep(inputs))]
            for module in modules:
                hooks.append(module.register_forward_hook(lambda _, __, outputs: keep(outputs)))
            try:
                self.model(piece[None].to(self.device, self.dtype))
            except Enough:
                pass
            finally:
                for hook in hooks:
                    hook.remove()
        return [hidden_states[layer].cpu() for layer in layers]


# the centre of frame t is sample 320 t (HuBERT's: 320 t + 200)
WHISPER_GRID = FrameGrid(SAMPLE_RATE, hop=320, receptive=1)
WHISPER_WINDOW = 30.0


class WhisperEngine:
    """Run Whisper's encoder (arXiv 2212.04356, section 2.2) of transformers on one window, up to
    the layer that is asked for.

    It always reads 30 s, shorter audio with silence after it, so every piece costs the same. The
    last layer is taken after the encoder's final norm, as transformers' `hidden_states` has it.
    precision: fp32 or bf16.
    """

    def __init__(self, encoder: WhisperEncoder, precision: str, device: str) -> None:
        self.device = torch.device(device)
        self.place = self.device.type
        self.model = encoder.to(device, dtype_of(precision))
        from transformers import WhisperFeatureExtractor

        self.mel = WhisperFeatureExtractor(feature_size=encoder.config.num_mel_bins)
        # torch's layers are safe beside each other, the extractor's buffers are not known to be
        self.lock = threading.Lock()

    def statistics(self, wave: torch.Tensor) -> None:
        """Return None: the loudest point of the log-mel, which scales it, is the window's."""

    @torch.inference_mode()
    def states(
        self, piece: torch.Tensor, statistics: None, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers, (T, D) each. piece: (N,) float32, at most 30 s."""
        frames = WHISPER_GRID.frames(len(piece))
        weight = self.model.conv1.weight
        with self.lock:
            extracted = self.mel(piece.numpy(), sampling_rate=SAMPLE_RATE, return_tensors="pt")
        mel = extracted.input_features
        x = F.gelu(self.model.conv1(mel.to(weight.device, weight.dtype)))
        x = F.gelu(self.model.conv2(x)).transpose(1, 2)
        x = x + self.model.embed_positions.weight[: x.shape[1]]
        states = [x]
        for layer in self.model.layers[: max(layers)]:
            states.append(layer(states[-1], None))
        if len(states) > len(self.model.layers):
            states[-1] = self.model.layer_norm(states[-1])
        return [states[layer][0, :frames].cpu() for layer in layers]
