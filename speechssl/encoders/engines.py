"""Engines compute the layers of one utterance: their protocol, and those that run models of
transformers as they are. `hubert.FastEngine` and `batched.BatchedEngine` are the others.

Letters: N samples, T frames, D width.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.hubert import convolution_dtype
from speechssl.timing import FrameGrid

if TYPE_CHECKING:  # transformers takes seconds to import
    from transformers.models.whisper.modeling_whisper import WhisperEncoder


class Engine(Protocol):
    """An engine computes the layers of one utterance, by itself."""

    def statistics(self, wave: torch.Tensor) -> Any:
        """Return what must be known of the whole utterance, (N,) float32, before a piece of it is
        encoded."""

    def states(self, piece: torch.Tensor, statistics: Any, last: int) -> Iterator[torch.Tensor]:
        """Yield layers 0 to `last`, (T, D) each, of a piece of the utterance, (N,) float32."""


class TransformersEngine:
    """Run the model as it is, up to the layer that is asked for, in fp32 or bf16."""

    def __init__(self, model: nn.Module, precision: str = "fp32", device: str = "cpu") -> None:
        self.device = torch.device(device)
        self.lock = threading.Lock()  # the hooks are on the one model that all threads use
        self.dtype = torch.float32 if precision == "fp32" else torch.bfloat16
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
    def states(self, piece: torch.Tensor, statistics: None, last: int) -> Iterator[torch.Tensor]:
        """Yield layers 0 to `last`, (T, D) each. piece: (N,) float32."""
        layers = list(self.model.encoder.layers)
        hidden_states: list[torch.Tensor] = []

        class Enough(Exception):
            """The layer that was asked for has been computed."""

        def keep(x: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
            hidden_states.append(x[0] if isinstance(x, torch.Tensor) else x[0][0])
            if len(hidden_states) > last:
                raise Enough

        with self.lock:
            hooks = [layers[0].register_forward_pre_hook(lambda _, inputs: keep(inputs))]
            hooks += [
                layer.register_forward_hook(lambda _, __, outputs: keep(outputs))
                for layer in layers
            ]
            try:
                self.model(piece[None].to(self.device, self.dtype))
            except Enough:
                pass
            finally:
                for hook in hooks:
                    hook.remove()
        yield from (x.cpu() for x in hidden_states)


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
        self.model = encoder.to(device, torch.float32 if precision == "fp32" else torch.bfloat16)
        from transformers import WhisperFeatureExtractor

        self.mel = WhisperFeatureExtractor(feature_size=encoder.config.num_mel_bins)
        # torch's layers are safe beside each other, the extractor's buffers are not known to be
        self.lock = threading.Lock()

    def statistics(self, wave: torch.Tensor) -> None:
        """Return None: the loudest point of the log-mel, which scales it, is the window's."""

    @torch.inference_mode()
    def states(self, piece: torch.Tensor, statistics: None, last: int) -> Iterator[torch.Tensor]:
        """Yield layers 0 to `last`, (T, D) each. piece: (N,) float32, at most 30 s."""
        frames = WHISPER_GRID.frames(len(piece))
        weight = self.model.conv1.weight
        with self.lock:
            extracted = self.mel(piece.numpy(), sampling_rate=SAMPLE_RATE, return_tensors="pt")
        mel = extracted.input_features
        x = nn.functional.gelu(self.model.conv1(mel.to(weight.device, weight.dtype)))
        x = nn.functional.gelu(self.model.conv2(x)).transpose(1, 2)
        x = x + self.model.embed_positions.weight[: x.shape[1]]
        for n in range(last + 1):
            if n > 0:
                x = self.model.layers[n - 1](x, None)
            is_last = n == len(self.model.layers)
            state = self.model.layer_norm(x) if is_last else x
            yield state[0, :frames].cpu()
