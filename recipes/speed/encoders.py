"""Time encoders side by side: the same weights and audio in one process, turn by turn.

python recipes/speed/encoders.py CONFIG EXP

Every contender's output is first compared with that of transformers in fp32. What is not installed
is left out. `one layer` is the last one; `all layers` are all of them, as they are handed over.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torchaudio
from common import Settings, checkpoint, flops, load_ours, load_theirs, read_settings, save
from torch.nn.utils import parametrize

from speechssl.artifacts import read_json
from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.export import convert
from speechssl.encoders.s3prl import load_s3prl

FP32, BF16 = "fp32", "bf16"
OURS = "speechssl"
DTYPES = {FP32: torch.float32, BF16: torch.bfloat16}
ERRORS = {FP32: 1e-5, BF16: 0.1}  # relative errors; a greater one is more than rounding
# processor time does not see other work on the machine, and is for one thread
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
SQUARE = 2048  # rows and columns of a large product
Name = tuple[str, str]  # a contender and its precision
# (B, N) samples, whether all layers are wanted -> (B, T, D) of each, the last one last
Run = Callable[[torch.Tensor, bool], list[torch.Tensor]]


def contenders(shape: str, exp: Path) -> dict[Name, Callable[[], Run]]:
    """Return functions that load the contenders that are installed."""
    load: dict[Name, Callable[[], Run]] = {}
    for precision in DTYPES:
        load["transformers", precision] = partial(_transformers, shape, exp, precision)
        load["torchaudio", precision] = partial(_torchaudio, shape, exp, precision)
        if find_spec("s3prl"):
            load["s3prl", precision] = partial(_s3prl, shape, exp, precision)
        if find_spec("openvino"):
            load["OpenVINO", precision] = partial(_openvino, shape, exp, precision)
            engine = f"{OURS} through OpenVINO"
            load[engine, precision] = partial(_ours, shape, exp, precision, "openvino")
        load[OURS, precision] = partial(_ours, shape, exp, precision, "torch")
    if find_spec("onnxruntime") and find_spec("onnx"):
        load["ONNX Runtime", FP32] = partial(_onnxruntime, shape, exp)
    return load


def _transformers(shape: str, exp: Path, precision: str) -> Run:
    dtype = DTYPES[precision]
    network: Any = load_theirs(shape, exp).to(dtype)
    return lambda x, _: list(network(x.to(dtype), output_hidden_states=True).hidden_states)


def _torchaudio(shape: str, exp: Path, precision: str) -> Run:
    """Torchaudio's own model has the weights that `speechssl convert` writes; no layer 0."""
    path, dtype = exp / "checkpoints" / f"{shape}-torchaudio.pt", DTYPES[precision]
    convert(checkpoint(shape, exp), path, "torchaudio")
    network = torchaudio.models.wav2vec2_model(**read_json(path.with_suffix(".json")))
    network.load_state_dict(torch.load(path, weights_only=True))
    network.eval().to(dtype)
    return lambda x, _: network.extract_features(x.to(dtype))[0]


def _s3prl(shape: str, exp: Path, precision: str) -> Run:
    upstream: Any = load_s3prl(f"s3prl:hf_hubert_custom@{checkpoint(shape, exp)}").engine

    def run(x: torch.Tensor, all_layers: bool) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == BF16):
            return upstream.upstream(list(x))["hidden_states"]

    return run


class AllLayers(torch.nn.Module):
    """transformers' model maps (B, N) samples to a tuple of (B, T, D), one a layer."""

    def __init__(self, shape: str, exp: Path) -> None:
        super().__init__()
        self.inner = load_theirs(shape, exp)
        for module in self.inner.modules():
            # a weight that is a product of two has no counterpart in ONNX
            if parametrize.is_parametrized(module):
                parametrize.remove_parametrizations(module, "weight")

    def forward(self, samples: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.inner(samples, output_hidden_states=True).hidden_states)


def _openvino(shape: str, exp: Path, precision: str) -> Run:
    """Convert transformers' model for OpenVINO by itself."""
    import openvino

    with warnings.catch_warnings(action="ignore"):  # of tracing: the output is compared
        example = torch.randn(1, SAMPLE_RATE)
        graph = openvino.convert_model(AllLayers(shape, exp), example_input=example)
    last = openvino.Model([graph.outputs[-1].node], graph.get_parameters())
    hints = {
        "INFERENCE_PRECISION_HINT": {FP32: "f32", BF16: "bf16"}[precision],
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    compiled = {
        True: openvino.compile_model(graph, "CPU", hints),
        False: openvino.compile_model(last, "CPU", hints),
    }

    def run(x: torch.Tensor, all_layers: bool) -> list[torch.Tensor]:
        outputs = compiled[all_layers](x.numpy(), share_inputs=True)
        return [torch.from_numpy(outputs[i]) for i in range(len(outputs))]

    return run


def _onnxruntime(shape: str, exp: Path) -> Run:
    import onnxruntime

    path = exp / "checkpoints" / f"{shape}.onnx"
    if not path.is_file():
        network = AllLayers(shape, exp)
        names = [f"layer_{n}" for n in range(network.inner.config.num_hidden_layers + 1)]
        with warnings.catch_warnings(action="ignore"):
            torch.onnx.export(
                network,
                (torch.randn(1, SAMPLE_RATE),),
                path,
                dynamo=False,
                input_names=["samples"],
                output_names=names,
                dynamic_axes={"samples": {0: "batch", 1: "samples"}},
            )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # else its spinning threads slow down the contender that runs next
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def run(x: torch.Tensor, all_layers: bool) -> list[torch.Tensor]:
        wanted = outputs if all_layers else outputs[-1:]
        return [torch.from_numpy(y) for y in session.run(wanted, {"samples": x.numpy()})]

    return run


def _ours(shape: str, exp: Path, precision: str, engine: str) -> Run:
    encoder = load_ours(shape, exp, precision, engine)

    def run(x: torch.Tensor, all_layers: bool) -> list[torch.Tensor]:
        if all_layers:
            return list(torch.stack([encoder.hidden_states(samples) for samples in x.numpy()], 1))
        return [torch.stack([encoder.features(samples, encoder.layers) for samples in x.numpy()])]

    return run


def measure_product_rate(dtype: torch.dtype, now: Callable[[], float]) -> float:
    """Measure the GFLOP/s of a large product. now: a clock."""
    a = torch.ones(SQUARE, SQUARE, dtype=dtype)
    start = now()
    for _ in range(3):
        a @ a
    return 3 * 2 * SQUARE**3 / (now() - start) / 1e9


def load_contenders(shape: str, exp: Path) -> dict[Name, Run]:
    """Load every contender, and save the seconds until the first result of a second of audio."""
    runs, second = {}, torch.randn(1, SAMPLE_RATE)
    for name, load in contenders(shape, exp).items():
        start = time.perf_counter()
        runs[name] = load()
        with torch.inference_mode():
            runs[name](second, False)
        save(exp, " ".join(name), shape, "once", {"start_seconds": time.perf_counter() - start})
    return runs


@torch.inference_mode()
def measure(
    shape: str, seconds: float, batch: int, all_layers: bool, step: Settings, runs: dict[Name, Run]
) -> None:
    """Time every contender `repeats` times, in turn, on a batch of noise, and save the rows."""
    now = CLOCKS[step.values["clock"]]
    condition = f"{seconds:g} s x {batch}{', all layers' if all_layers else ''}"
    torch.manual_seed(1)
    audio = torch.randn(batch, int(seconds * SAMPLE_RATE))
    # so that normalising it once more is harmless
    audio = (audio - audio.mean(1, keepdim=True)) / audio.std(1, keepdim=True)
    for name, error in relative_errors(audio, all_layers, runs).items():
        save(step.exp, " ".join(name), shape, condition, {"relative_error": error})
        assert error < ERRORS[name[1]], f"{' '.join(name)} does not compute the same"
    times: dict[Name, list[float]] = {name: [] for name in runs}
    rates = []
    for _ in range(step.values["repeats"]):
        rates.append(measure_product_rate(torch.bfloat16, now))
        for name, run in runs.items():
            start = now()
            run(audio, all_layers)
            times[name].append(now() - start)
    config: Any = load_theirs(shape, step.exp).config
    limit = batch * flops(config, audio.shape[1]) / 1e9 / median(rates)
    for name, values in speeds(times, batch * seconds, limit).items():
        save(step.exp, " ".join(name), shape, condition, values, len(times[name]))


def relative_errors(
    audio: torch.Tensor, all_layers: bool, runs: dict[Name, Run]
) -> dict[Name, float]:
    """Run every contender once; return the greatest relative error of its layers against
    transformers in fp32."""
    expected = runs["transformers", FP32](audio, all_layers)
    errors = {}
    for name, run in runs.items():
        outputs = run(audio, all_layers)
        if not all_layers:
            outputs = outputs[-1:]
        pairs = zip(outputs[::-1], expected[::-1], strict=False)
        errors[name] = max(float((ours.float() - x).norm() / x.norm()) for ours, x in pairs)
    return errors


def speeds(
    times: dict[Name, list[float]], audio: float, limit: float
) -> dict[Name, dict[str, float]]:
    """Return speeds, and ratios as medians of those of single turns.

    times: seconds of every turn; audio: seconds of it; limit: seconds that the products alone would
    take in bf16.
    """
    found = {}
    for (name, precision), values in times.items():
        found[name, precision] = {"x_realtime": audio / median(values)}
        if not name.startswith(OURS):
            continue
        others = [n for n in times if n[1] == precision and not n[0].startswith(OURS)]
        others = [n for n in others if n[0] != "OpenVINO"]
        fastest = min(others, key=lambda other: median(times[other]))
        peers = {"ratio_fastest": fastest, "ratio_openvino": ("OpenVINO", precision)}
        for metric, peer in peers.items():
            if peer in times:
                ratios = (theirs / ours for ours, theirs in zip(values, times[peer], strict=True))
                found[name, precision][metric] = median(ratios)
        if precision == BF16:
            found[name, precision]["share_of_limit"] = 100 * limit / median(values)
    return found


def main() -> None:
    step = read_settings("encoders")
    for shape, workloads in step.values["models"].items():
        runs = load_contenders(shape, step.exp)
        for seconds, batch, layers in workloads:
            measure(shape, seconds, batch, layers == "all", step, runs)


if __name__ == "__main__":
    main()
