"""Time encoders side by side: the same weights and audio in one process, turn by turn.

python recipes/speed/encoders.py CONFIG EXP

Every contender's output is first compared with that of transformers in fp32. Libraries that are
not installed are left out. A workload wants the last layer alone, or all layers.
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
from common import (
    CLOCKS,
    Settings,
    add_rows,
    count_flops,
    load_speechssl,
    load_transformers,
    make_checkpoint,
    read_settings,
)
from torch.nn.utils import parametrize

from speechssl.artifacts import read_json
from speechssl.audio import SAMPLE_RATE
from speechssl.cli import run_program
from speechssl.encoders.export import convert
from speechssl.encoders.s3prl import load_s3prl

FP32, BF16 = "fp32", "bf16"
OURS = "speechssl"
DTYPES = {FP32: torch.float32, BF16: torch.bfloat16}
ERRORS = {FP32: 1e-5, BF16: 0.1}  # relative errors; a greater one is more than rounding
SQUARE = 2048  # rows and columns of a large product
Name = tuple[str, str]  # a contender and its precision
# called with (B, N) samples and whether all layers are wanted; returns (B, T, D) a layer, the last
# layer at the end
Run = Callable[[torch.Tensor, bool], list[torch.Tensor]]


def list_contenders(shape: str, exp: Path) -> dict[Name, Callable[[], Run]]:
    """Return functions that load the contenders that are installed."""
    loaders: dict[Name, Callable[[], Run]] = {}
    for precision in DTYPES:
        loaders["transformers", precision] = partial(_load_transformers, shape, exp, precision)
        loaders["torchaudio", precision] = partial(_load_torchaudio, shape, exp, precision)
        if find_spec("s3prl"):
            loaders["s3prl", precision] = partial(_load_s3prl, shape, exp, precision)
        if find_spec("openvino"):
            loaders["OpenVINO", precision] = partial(_load_openvino, shape, exp, precision)
            engine = f"{OURS} through OpenVINO"
            loaders[engine, precision] = partial(_load_speechssl, shape, exp, precision, "openvino")
        loaders[OURS, precision] = partial(_load_speechssl, shape, exp, precision, "torch")
    if find_spec("onnxruntime") and find_spec("onnx"):
        loaders["ONNX Runtime", FP32] = partial(_load_onnxruntime, shape, exp)
    return loaders


def _load_transformers(shape: str, exp: Path, precision: str) -> Run:
    dtype = DTYPES[precision]
    network: Any = load_transformers(shape, exp).to(dtype)
    return lambda x, _: list(network(x.to(dtype), output_hidden_states=True).hidden_states)


def _load_torchaudio(shape: str, exp: Path, precision: str) -> Run:
    """Load torchaudio's own model with the weights that `speechssl convert` writes. It returns no
    layer 0."""
    dtype = DTYPES[precision]
    path = exp / "checkpoints" / f"{shape}-torchaudio.pt"
    convert(make_checkpoint(shape, exp), path, "torchaudio")
    network = torchaudio.models.wav2vec2_model(**read_json(path.with_suffix(".json")))
    network.load_state_dict(torch.load(path, weights_only=True))
    network.eval().to(dtype)
    return lambda x, _: network.extract_features(x.to(dtype))[0]


def _load_s3prl(shape: str, exp: Path, precision: str) -> Run:
    upstream: Any = load_s3prl(f"s3prl:hf_hubert_custom@{make_checkpoint(shape, exp)}").engine

    def run(x: torch.Tensor, all_layers: bool) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == BF16):
            return upstream.upstream(list(x))["hidden_states"]

    return run


class AllLayers(torch.nn.Module):
    """transformers' model maps (B, N) samples to a tuple of (B, T, D), one a layer."""

    def __init__(self, shape: str, exp: Path) -> None:
        super().__init__()
        self.inner = load_transformers(shape, exp)
        for module in self.inner.modules():
            # ONNX has no weight that is computed from two others (weight normalisation)
            if parametrize.is_parametrized(module):
                parametrize.remove_parametrizations(module, "weight")

    def forward(self, samples: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.inner(samples, output_hidden_states=True).hidden_states)


def _load_openvino(shape: str, exp: Path, precision: str) -> Run:
    """Convert transformers' model for OpenVINO, without speechssl."""
    import openvino

    with warnings.catch_warnings(action="ignore"):  # tracing warns; `measure` compares the output
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


def _load_onnxruntime(shape: str, exp: Path) -> Run:
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


def _load_speechssl(shape: str, exp: Path, precision: str, engine: str) -> Run:
    encoder = load_speechssl(shape, exp, precision, engine)

    def run(x: torch.Tensor, all_layers: bool) -> list[torch.Tensor]:
        if all_layers:
            return list(torch.stack([encoder.hidden_states(samples) for samples in x.numpy()], 1))
        return [torch.stack([encoder.features(samples, encoder.layers) for samples in x.numpy()])]

    return run


def measure_product_rate(now: Callable[[], float]) -> float:
    """Measure the GFLOP/s of a large matrix product in bf16. now: a clock."""
    matrix = torch.ones(SQUARE, SQUARE, dtype=torch.bfloat16)
    products = 3
    start = now()
    for _ in range(products):
        matrix @ matrix
    return products * 2 * SQUARE**3 / (now() - start) / 1e9


def load_contenders(shape: str, exp: Path) -> dict[Name, Run]:
    """Load every contender, and record the seconds until its first result, of a second of audio."""
    runs: dict[Name, Run] = {}
    second = torch.randn(1, SAMPLE_RATE)
    for name, load in list_contenders(shape, exp).items():
        start = time.perf_counter()
        runs[name] = load()
        with torch.inference_mode():
            runs[name](second, False)
        add_rows(exp, " ".join(name), shape, "once", {"start_seconds": time.perf_counter() - start})
    return runs


@torch.inference_mode()
def measure(
    shape: str,
    seconds: float,
    batch: int,
    all_layers: bool,
    settings: Settings,
    runs: dict[Name, Run],
) -> None:
    """Time every contender `repeats` times, in turn, on a batch of noise, and add the rows."""
    now = CLOCKS[settings.values["clock"]]
    condition = f"{seconds:g} s x {batch}{', all layers' if all_layers else ''}"
    torch.manual_seed(1)
    audio = torch.randn(batch, int(seconds * SAMPLE_RATE))
    # a contender that normalises its input changes nothing
    audio = (audio - audio.mean(1, keepdim=True)) / audio.std(1, keepdim=True)
    for name, error in compare_outputs(audio, all_layers, runs).items():
        add_rows(settings.exp, " ".join(name), shape, condition, {"relative_error": error})
        assert error < ERRORS[name[1]], f"{' '.join(name)} does not compute the same"
    times: dict[Name, list[float]] = {name: [] for name in runs}
    rates = []
    for _ in range(settings.values["repeats"]):
        rates.append(measure_product_rate(now))
        for name, run in runs.items():
            start = now()
            run(audio, all_layers)
            times[name].append(now() - start)
    config: Any = load_transformers(shape, settings.exp).config
    # seconds that the products alone would take in bf16
    limit = batch * count_flops(config, audio.shape[1]) / 1e9 / median(rates)
    for name, values in compute_speeds(times, batch * seconds, limit).items():
        add_rows(settings.exp, " ".join(name), shape, condition, values, len(times[name]))


def compare_outputs(
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
        # from the last layer back: some contenders return no layer 0
        pairs = zip(outputs[::-1], expected[::-1], strict=False)
        errors[name] = max(float((y.float() - x).norm() / x.norm()) for y, x in pairs)
    return errors


def compute_speeds(
    times: dict[Name, list[float]], audio: float, limit: float
) -> dict[Name, dict[str, float]]:
    """Return metric -> value of every contender: speeds, and of ours also ratios to others.

    times: seconds of every turn; audio: seconds of audio in a turn; limit: seconds that the
    products alone would take in bf16.
    """
    speeds: dict[Name, dict[str, float]] = {}
    for (name, precision), seconds in times.items():
        values = speeds[name, precision] = {"x_realtime": audio / median(seconds)}
        if not name.startswith(OURS):
            continue
        others = {n: t for n, t in times.items() if n[1] == precision and not n[0].startswith(OURS)}
        openvino = others.pop(("OpenVINO", precision), None)
        fastest = min(others.values(), key=median)
        values["ratio_fastest"] = median_ratio(fastest, seconds)
        if openvino:
            values["ratio_openvino"] = median_ratio(openvino, seconds)
        if precision == BF16:
            values["share_of_limit"] = 100 * limit / median(seconds)
    return speeds


def median_ratio(theirs: list[float], ours: list[float]) -> float:
    """Return the median over turns of the ratio of seconds."""
    return median(a / b for a, b in zip(theirs, ours, strict=True))


def main(config: Path, exp: Path) -> None:
    settings = read_settings("encoders", config, exp)
    for shape, workloads in settings.values["models"].items():
        runs = load_contenders(shape, settings.exp)
        for seconds, batch, layers in workloads:
            measure(shape, seconds, batch, layers == "all", settings, runs)


if __name__ == "__main__":
    run_program(main)
