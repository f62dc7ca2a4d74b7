"""These engines compute hidden states beside `TorchEngine` (`hubert.py`): OpenVINO for HuBERT and
wav2vec 2.0, transformers' own modules for other encoders.

Letters: N samples, T frames, C channels, D width.
"""

from __future__ import annotations

import os
import tempfile
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.encoder import Engine
from speechssl.encoders.hubert import (
    Statistics,
    apply_layer_norm,
    choose_dtype,
    find_dtype,
    measure_group_norm,
    remove_weight_norm,
    transform,
)
from speechssl.errors import MissingExtra
from speechssl.timing import FrameGrid

if TYPE_CHECKING:  # transformers takes seconds to import
    from transformers.models.whisper.modeling_whisper import WhisperEncoder


class OpenVinoEngine:
    """This engine runs HuBERT or wav2vec 2.0 on a CPU by OpenVINO, which is faster than torch on
    processors with AMX.

    precision: fp32 or bf16. graph: file of the model in OpenVINO's format, which is made from
    `model` if it does not exist. torch computes the statistics of the group norm, from the whole
    utterance. Raises MissingExtra.
    """

    backend = "openvino"

    def __init__(self, model: Any, precision: str, graph: Path) -> None:
        try:
            import openvino
        except ImportError as error:
            raise MissingExtra("the engine openvino", "openvino") from error
        self.precision = {"fp32": "f32", "bf16": "bf16"}[precision]
        self.first = model.feature_extractor.conv_layers[0]
        if not graph.is_file():
            convert_to_openvino(model, graph)
        self.graph = openvino.Core().read_model(graph)
        self.threads = torch.get_num_threads()  # of the thread that loads it, not of a pool's
        self.compiled: dict[tuple[int, ...], Any] = {}
        self.lock = threading.Lock()

    @torch.inference_mode()
    def compute_statistics(self, wave: torch.Tensor) -> Statistics:
        """Return the scale and shift of the group norm for this utterance. wave: (N,) float32."""
        return measure_group_norm(self.first, wave[None])

    def compute_layers(
        self, piece: torch.Tensor, statistics: Statistics, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers of one piece, (T, D) each. piece: (N,) float32."""
        inputs = [piece[None].numpy(), statistics.scale.numpy(), statistics.shift.numpy()]
        request = self._compile(tuple(layers)).create_infer_request()
        outputs = request.infer(inputs, share_inputs=True)
        return [torch.from_numpy(np.array(output[0])) for output in outputs.values()]

    def _compile(self, layers: tuple[int, ...]) -> Any:
        """Compile, once, the part of the graph that these layers need."""
        import openvino

        with self.lock:
            if layers not in self.compiled:
                outputs = [self.graph.outputs[layer] for layer in layers]
                part = openvino.Model(outputs, self.graph.get_parameters())
                settings = {
                    "INFERENCE_PRECISION_HINT": self.precision,
                    "INFERENCE_NUM_THREADS": self.threads,
                    "NUM_STREAMS": 1,
                }
                self.compiled[layers] = openvino.compile_model(part, "CPU", settings)
            return self.compiled[layers]


class AllLayers(nn.Module):
    """This module returns all layers of a model, for OpenVINO to trace."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, samples: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return layers 0 to L. Convolutions are computed on (1, C, T), which OpenVINO does best,
        in contrast to `hubert.convolve_samples`."""
        x = samples[:, None]
        for n, layer in enumerate(self.model.feature_extractor.conv_layers):
            conv = layer.conv
            x = F.conv1d(x, conv.weight, conv.bias if n else None, conv.stride)
            if n == 0:
                x = scale[..., None] * x + shift[..., None]
            x = F.gelu(apply_layer_norm(layer, x.transpose(1, 2)).transpose(1, 2))
        return tuple(transform(self.model, x.transpose(1, 2)))


def convert_to_openvino(model: Any, graph: Path) -> None:
    """Write a model as a graph of OpenVINO: samples (1, N), scale and shift (1, C) -> all layers,
    (1, T, D) each."""
    import openvino

    model.encoder.pos_conv_embed.conv = remove_weight_norm(model.encoder.pos_conv_embed.conv)
    channels = model.config.conv_dim[0]
    example = torch.zeros(1, SAMPLE_RATE), torch.ones(1, channels), torch.zeros(1, channels)
    with warnings.catch_warnings(action="ignore"):  # tracing warns of constants
        converted = openvino.convert_model(AllLayers(model), example_input=example)
    graph.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=graph.parent) as scratch:
        openvino.save_model(converted, Path(scratch) / graph.name, compress_to_fp16=False)
        for name in (graph.with_suffix(".bin").name, graph.name):
            os.replace(Path(scratch) / name, graph.parent / name)


class TransformersEngine(Engine):
    """This engine runs a model of transformers as it is, up to the last layer that is needed, in
    fp32 or bf16."""

    def __init__(self, model: nn.Module, precision: str = "fp32", device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.backend = self.device.type
        self.lock = threading.Lock()  # the hooks are on the model, which all threads share
        self.dtype = find_dtype(precision)
        self.model = model.to(device, self.dtype)
        # convolutions that may be wrong in bf16 (`choose_dtype`) run in float32
        for module in self.model.modules():
            if not isinstance(module, nn.Conv1d):
                continue
            if choose_dtype(module.weight, self.dtype, module.stride[0]) != self.dtype:
                module.float().register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
                module.register_forward_hook(lambda _, __, x: x.bfloat16())

    @torch.inference_mode()
    def compute_layers(
        self, piece: torch.Tensor, statistics: None, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers, (T, D) each. piece: (N,) float32."""
        modules = list(self.model.encoder.layers)
        hidden_states: list[torch.Tensor] = []

        class LastLayerDone(Exception):
            """The last layer that is needed has been computed."""

        def record(x: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
            hidden_states.append(x[0] if isinstance(x, torch.Tensor) else x[0][0])
            if len(hidden_states) > max(layers):
                raise LastLayerDone

        with self.lock:
            hooks = [modules[0].register_forward_pre_hook(lambda _, inputs: record(inputs))]
            for module in modules:
                hooks.append(module.register_forward_hook(lambda _, __, outputs: record(outputs)))
            try:
                self.model(piece[None].to(self.device, self.dtype))
            except LastLayerDone:
                pass
            finally:
                for hook in hooks:
                    hook.remove()
        return [hidden_states[layer].cpu() for layer in layers]


# The centre of frame t is sample 320 t (in HuBERT it is 320 t + 200).
WHISPER_GRID = FrameGrid(SAMPLE_RATE, hop=320, receptive=1)
WHISPER_WINDOW = 30.0  # seconds


class WhisperEngine(Engine):
    """This engine runs Whisper's encoder (arXiv 2212.04356, section 2.2) of transformers on one
    window, up to the last layer that is needed.

    The encoder always reads 30 s, and shorter audio is followed by silence, so every piece costs
    the same. The log-mel is scaled by its largest value in the window, and not in the utterance.
    The last layer is taken after the encoder's final norm, as in `hidden_states` of transformers.
    precision: fp32 or bf16.
    """

    def __init__(self, encoder: WhisperEncoder, precision: str, device: str) -> None:
        self.device = torch.device(device)
        self.backend = self.device.type
        self.model = encoder.to(device, find_dtype(precision))
        from transformers import WhisperFeatureExtractor

        self.mel = WhisperFeatureExtractor(feature_size=encoder.config.num_mel_bins)

    @torch.inference_mode()
    def compute_layers(
        self, piece: torch.Tensor, statistics: None, layers: Sequence[int]
    ) -> list[torch.Tensor]:
        """Return these layers, (T, D) each. piece: (N,) float32, at most 30 s."""
        frames = WHISPER_GRID.count_frames(len(piece))
        weight = self.model.conv1.weight
        samples = piece.numpy()
        mel = self.mel(samples, sampling_rate=SAMPLE_RATE, return_tensors="pt").input_features
        x = F.gelu(self.model.conv1(mel.to(weight.device, weight.dtype)))
        x = F.gelu(self.model.conv2(x)).transpose(1, 2)
        x = x + self.model.embed_positions.weight[: x.shape[1]]
        states = [x]
        for layer in self.model.layers[: max(layers)]:
            states.append(layer(states[-1], None))
        if len(states) > len(self.model.layers):
            states[-1] = self.model.layer_norm(states[-1])
        return [states[layer][0, :frames].cpu() for layer in layers]
