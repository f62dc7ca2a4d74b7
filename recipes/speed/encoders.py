"""Encoders side by side: the same weights and audio in one process, turn by turn.

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
from common import encoder, flops, folder, model, row, save, settings
from torch.nn.utils import parametrize

from speechssl.artifacts import read_json
from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.export import convert
from speechssl.encoders.s3prl import load_s3prl

FP32, BF16 = "fp32", "bf16"
OURS = "speechssl"
DTYPES = {FP32: torch.float32, BF16: torch.bfloat16}
ERRORS = {FP32: 1e-5, BF16: 0.1}  # relative; more is no rounding
# the second does not see other work, and is for one thread
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
SQUARE = 2048
Name = tuple[str, str]  # of a contender, and its precision
# (B, N) samples, whether all layers -> (B, T, D) each, the last one last
Run = Callable[[torch.Tensor, bool], list[torch.Tensor]]


def contenders(shape: str, exp: Path) -> dict[Name, Callable[[], Run]]:
    """Return what loads each contender."""
    found: dict[Name, Callable[[], Run]] = {}
    for precision in DTYPES:
        found["transformers", precision] = partial(_transformers, shape, exp, precision)
        found["torchaudio", precision] = partial(_torchaudio, shape, exp, precision)
        if find_spec("s3prl"):
            found["s3prl", precision] = partial(_s3prl, shape, exp, precision)
        if find_spec("openvino"):
            found["OpenVINO", precision] = partial(_openvino, shape, exp, precision)
            engine = f"{OURS} through OpenVINO"
            found[engine, precision] = partial(_ours, shape, exp, precision, "openvino")
        found[OURS, precision] = partial(_ours, shape, exp, precision, "torch")
    if find_spec("onnxruntime") and find_spec("onnx"):
        found["ONNX Runtime", FP32] = partial(_onnxruntime, shape, exp)
    return found


def _transformers(shape: str, exp: Path, precision: str) -> Run:
    dtype = DTYPES[precision]
    network: Any = model(shape, exp).to(dtype)
    return lambda x, _: list(network(x.to(dtype), output_hidden_states=True).hidden_states)


def _torchaudio(shape: str, exp: Path, precision: str) -> Run:
    """Torchaudio's own model has the weights that `speechssl convert` writes; no layer 0."""
    path, dtype = exp / "checkpoints" / f"{shape}-torchaudio.pt", DTYPES[precision]
    convert(folder(shape, exp), path, "torchaudio")
    network = torchaudio.models.wav2vec2_model(**read_json(path.with_suffix(".json")))
    network.load_state_dict(torch.load(path, weights_only=True))
    network.eval().to(dtype)
    return lambda x, _: network.extract_features(x.to(dtype))[0]


def _s3prl(shape: str, exp: Path, precision: str) -> Run:
    upstream: Any = load_s3prl(f"s3prl:hf_hubert_custom@{folder(shape, exp)}").engine

    def run(x: torch.Tensor, every: bool) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == BF16):
            return upstream.upstream(list(x))["hidden_states"]

    return run


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


def _openvino(shape: str, exp: Path, precision: str) -> Run:
    """OpenVINO by itself: transformers' model, converted."""
    import openvino

    with warnings.catch_warnings(action="ignore"):  # of tracing: the output is compared
        example = torch.randn(1, SAMPLE_RATE)
        graph = openvino.convert_model(AllLayers(shape, exp), example_input=example)
    last = openvino.Model([graph.outputs[-1].node], graph.get_parameters())
    hints = {
        "INFERENCE_PRECISION_HINT": {FP32: "f32", BF16: "bf16"}[precision],
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    ready = {
        True: openvino.compile_model(graph, "CPU", hints),
        False: openvino.compile_model(last, "CPU", hints),
    }

    def run(x: torch.Tensor, every: bool) -> list[torch.Tensor]:
        outputs = ready[every](x.numpy(), share_inputs=True)
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
    # else its threads are in the way of whoever is next
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def run(x: torch.Tensor, every: bool) -> list[torch.Tensor]:
        wanted = outputs if every else outputs[-1:]
        return [torch.from_numpy(y) for y in session.run(wanted, {"samples": x.numpy()})]

    return run


def _ours(shape: str, exp: Path, precision: str, engine: str) -> Run:
    one = encoder(shape, exp, precision, engine)

    def run(x: torch.Tensor, every: bool) -> list[torch.Tensor]:
        if every:
            return list(torch.stack([one.hidden_states(samples) for samples in x.numpy()], 1))
        return [torch.stack([one.features(samples, one.layers) for samples in x.numpy()])]

    return run


def matrix_rate(dtype: torch.dtype, now: Callable[[], float]) -> float:
    """Measure the GFLOP/s of a large product, now."""
    a = torch.ones(SQUARE, SQUARE, dtype=dtype)
    start = now()
    for _ in range(3):
        a @ a
    return 3 * 2 * SQUARE**3 / (now() - start) / 1e9


def start(shape: str, exp: Path) -> dict[Name, Run]:
    """Load every contender, and keep the seconds until the first result of a second of audio."""
    runs, second = {}, torch.randn(1, SAMPLE_RATE)
    for name, load in contenders(shape, exp).items():
        begun = time.perf_counter()
        runs[name] = load()
        with torch.inference_mode():
            runs[name](second, False)
        took = time.perf_counter() - begun
        save(exp, [row(" ".join(name), shape, "once", "start_seconds", took, None, 1)])
    return runs


@torch.inference_mode()
def measure(shape: str, workload: tuple[float, int, str], step: Any, runs: dict[Name, Run]) -> None:
    """Time every contender `repeats` times, in turn, and leave the rows of one workload: seconds,
    utterances, one layer or all."""
    seconds, batch, layers = workload
    repeats, now, every = step.values["repeats"], CLOCKS[step.values["clock"]], layers == "all"
    condition = f"{seconds:g} s x {batch}{', all layers' if every else ''}"
    torch.manual_seed(1)
    audio = torch.randn(batch, int(seconds * SAMPLE_RATE))
    # so that normalising it once more is harmless
    audio = (audio - audio.mean(1, keepdim=True)) / audio.std(1, keepdim=True)
    compare(shape, condition, audio, every, runs, step.exp)
    times: dict[Name, list[float]] = {name: [] for name in runs}
    rates = []
    for _ in range(repeats):
        rates.append(matrix_rate(torch.bfloat16, now))
        for name, run in runs.items():
            begun = now()
            run(audio, every)
            times[name].append(now() - begun)
    config: Any = model(shape, step.exp).config
    least = batch * flops(config, audio.shape[1]) / 1e9 / median(rates)
    save(step.exp, rows_of(shape, condition, batch * seconds, times, least))


def compare(
    shape: str, condition: str, audio: torch.Tensor, every: bool, runs: dict[Name, Run], exp: Path
) -> None:
    """Run each once, to see that all compute the same."""
    expected = runs["transformers", FP32](audio, every)
    for name, run in runs.items():
        outputs = run(audio, every)
        if not every:
            outputs = outputs[-1:]
        errors = []
        for found, exact in zip(outputs[::-1], expected[::-1], strict=False):
            errors.append(float((found.float() - exact).norm() / exact.norm()))
        worst = max(errors)
        save(exp, [row(" ".join(name), shape, condition, "relative_error", worst, None, 1)])
        assert worst < ERRORS[name[1]], f"{' '.join(name)} does not compute the same"


def rows_of(
    shape: str, condition: str, audio: float, times: dict[Name, list[float]], least: float
) -> list[Any]:
    """Return speeds, and ratios as medians of those of single turns. audio: seconds of it; least:
    seconds that the products alone would take in bf16."""
    rows = []
    for (name, precision), values in times.items():
        found = {"x_realtime": audio / median(values)}
        if name.startswith(OURS):
            others = [n for n in times if n[1] == precision and not n[0].startswith(OURS)]
            others = [n for n in others if n[0] != "OpenVINO"]
            fastest = min(others, key=lambda other: median(times[other]))
            peers = {"ratio_fastest": fastest, "ratio_openvino": ("OpenVINO", precision)}
            for metric, peer in peers.items():
                if peer in times:
                    found[metric] = median(b / a for a, b in zip(values, times[peer], strict=True))
            if precision == BF16:
                found["share_of_limit"] = 100 * least / median(values)
        for metric, value in found.items():
            system = f"{name} {precision}"
            rows.append(row(system, shape, condition, metric, value, None, len(values)))
    return rows


def main() -> None:
    step = settings("encoders")
    for shape, workloads in step.values["models"].items():
        runs = start(shape, step.exp)
        for seconds, batch, layers in workloads:
            measure(shape, (seconds, batch, layers), step, runs)


if __name__ == "__main__":
    main()
