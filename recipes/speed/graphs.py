"""OpenVINO and ONNX Runtime, which run a graph that is made of transformers' model once and kept.

fp32 and bf16 are OpenVINO's `INFERENCE_PRECISION_HINT` on one graph. Its int8 is NNCF's: linear
maps and convolutions but the first three, which OpenVINO's own notebook leaves in float, with
scales from synthetic speech; the rest in bf16. That of ONNX Runtime is dynamic: 8-bit linear maps
with a scale a call, convolutions in float.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import model, sentences
from torch.nn.utils import parametrize

from speechssl.artifacts import read_json, write_json
from speechssl.audio import SAMPLE_RATE

FLOAT = 3  # convolutions that int8 leaves in float
CALIBRATION, SECONDS = 16, 4.0  # recordings that give the scales, and how long each is
# (B, N) samples, whether all layers -> (B, T, D) each, the last one last
Run = Callable[[torch.Tensor, bool], list[torch.Tensor]]


class AllLayers(torch.nn.Module):
    """transformers' model as a function of (B, N) samples to a tuple of (B, T, D)."""

    def __init__(self, shape: str, exp: Path) -> None:
        super().__init__()
        self.inner = model(shape, exp)
        for module in self.inner.modules():
            # a weight that is a product of two has no counterpart in ONNX
            if parametrize.is_parametrized(module):
                parametrize.remove_parametrizations(module, "weight")

    def forward(self, samples: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.inner(samples, output_hidden_states=True).hidden_states)


def kept(path: Path, convert: Callable[[Path], Any]) -> float:
    """Make a file unless it is there. Returns the seconds that it took."""
    card = path.with_name(f"{path.name}.card.json")
    if not card.is_file():
        start = time.perf_counter()
        # of tracing: it is compared with the model afterwards
        with warnings.catch_warnings(action="ignore"):
            convert(path)
        write_json(card, {"seconds": time.perf_counter() - start})
    return float(read_json(card)["seconds"])


def openvino_graph(shape: str, exp: Path, int8: bool) -> tuple[Path, float]:
    """The file, and the seconds that it took to make."""
    import openvino

    path = exp / "checkpoints" / f"{shape}-openvino.xml"

    def floating(path: Path) -> None:
        graph = openvino.convert_model(
            AllLayers(shape, exp), example_input=torch.randn(1, SAMPLE_RATE)
        )
        openvino.save_model(graph, path, compress_to_fp16=False)

    seconds = kept(path, floating)
    if not int8:
        return path, seconds
    packed = path.with_name(f"{shape}-openvino-int8.xml")
    return packed, seconds + kept(
        packed, lambda out: openvino.save_model(_quantised(openvino.Core().read_model(path)), out)
    )


def _quantised(graph: Any) -> Any:
    import nncf

    kinds = ("Convolution", "GroupConvolution")
    first = [
        op.get_friendly_name() for op in graph.get_ordered_ops() if op.get_type_name() in kinds
    ][:FLOAT]
    speech = [
        x[: round(SECONDS * SAMPLE_RATE)] for x in islice(sentences(2 * CALIBRATION), CALIBRATION)
    ]
    speech = [((x - x.mean()) / x.std())[None] for x in speech]
    return nncf.quantize(
        graph,
        nncf.Dataset(speech),
        subset_size=len(speech),
        model_type=nncf.ModelType.TRANSFORMER,
        ignored_scope=nncf.IgnoredScope(names=first),
    )


def openvino(path: Path, precision: str, streams: int = 1) -> Run:
    """precision: of what is not int8. streams: utterances at a time, on as many threads as torch
    has, together."""
    import openvino as ov

    graph = ov.Core().read_model(path)
    last = ov.Model([graph.outputs[-1].node], graph.get_parameters())
    hints = {
        "INFERENCE_PRECISION_HINT": {"fp32": "f32"}.get(precision, "bf16"),
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }

    @cache
    def ready(every: bool) -> Any:
        return ov.compile_model(graph if every else last, "CPU", {**hints, "NUM_STREAMS": streams})

    def run(x: torch.Tensor, every: bool) -> list[torch.Tensor]:
        found = ready(every)(x.numpy(), share_inputs=True)
        return [torch.from_numpy(found[i]) for i in range(len(found))]

    def side_by_side(x: torch.Tensor, every: bool) -> list[torch.Tensor]:
        found: list[list[np.ndarray]] = [[]] * len(x)

        def keep(request: Any, place: int) -> None:
            found[place] = [out.data.copy() for out in request.output_tensors]

        queue = ov.AsyncInferQueue(ready(every), streams)
        queue.set_callback(keep)
        for place, one in enumerate(x.numpy()):
            queue.start_async(one[None], place, share_inputs=True)
        queue.wait_all()
        return [torch.from_numpy(np.concatenate(layer)) for layer in zip(*found, strict=True)]

    return run if streams == 1 else side_by_side


def onnx_graph(shape: str, exp: Path, int8: bool) -> tuple[Path, float]:
    """The file, and the seconds that it took to make."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = exp / "checkpoints" / f"{shape}.onnx"

    def floating(path: Path) -> None:
        network = AllLayers(shape, exp)
        names = [f"layer_{n}" for n in range(network.inner.config.num_hidden_layers + 1)]
        axes = {"samples": {0: "batch", 1: "samples"}}
        example = (torch.randn(1, SAMPLE_RATE),)
        torch.onnx.export(
            network,
            example,
            path,
            dynamo=False,
            input_names=["samples"],
            output_names=names,
            dynamic_axes=axes,
        )

    seconds = kept(path, floating)
    if not int8:
        return path, seconds
    packed = path.with_name(f"{shape}-int8.onnx")
    return packed, seconds + kept(
        packed,
        lambda out: quantize_dynamic(
            path,
            out,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        ),
    )


def onnxruntime(path: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # else its threads are in the way of whoever is next
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(x: torch.Tensor, every: bool) -> list[torch.Tensor]:
        return [
            torch.from_numpy(layer)
            for layer in session.run(names if every else names[-1:], {"samples": x.numpy()})
        ]

    return run
