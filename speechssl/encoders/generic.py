"""Any encoder of transformers (WavLM, data2vec-audio, unusual HuBERTs), computed by its own code, one utterance at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import torch
from torch import nn

from speechssl.encoders.convolutions import convolution_dtype
from speechssl.errors import InputError


class _Enough(Exception):
    """The layer that was asked for has been computed."""


class TransformersEngine:
    """Runs the model as it is, up to the layer that is asked for. Raises InputError for a precision other than fp32 and bf16."""

    def __init__(self, model: nn.Module, precision: str = "fp32", device: str = "cpu") -> None:
        if precision not in ("fp32", "bf16"):
            raise InputError(f"a {model.config.model_type} encoder of this shape runs in fp32 or bf16, not in {precision}")
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

        def keep(x: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
            found.append(x[0] if isinstance(x, torch.Tensor) else x[0][0])
            if len(found) > last:
                raise _Enough

        with self.lock:
            hooks = [layers[0].register_forward_pre_hook(lambda _, inputs: keep(inputs))]
            hooks += [layer.register_forward_hook(lambda _, __, outputs: keep(outputs)) for layer in layers]
            try:
                self.model(piece[None].to(self.device, self.dtype))
            except _Enough:
                pass
            finally:
                for hook in hooks:
                    hook.remove()
        yield from (x.cpu() for x in found)
