"""Encoders side by side: the same weights and audio in one process, turn by turn.

python recipes/speed/encoders.py CONFIG EXP

Every contender's output is first compared with that of transformers in fp32. OpenVINO is left out
where it is not installed. `one layer` is the last one; `all layers` are all of them, as they are
handed over.
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
from common import Name, encoder, flops, model, save, settings, time_in_turns
from torch.nn.utils import parametrize

from speechssl.audio import SAMPLE_RATE

FP32, BF16 = "fp32", "bf16"
OURS = "speechssl"
DTYPES = {FP32: torch.float32, BF16: torch.bfloat16}
ERRORS = {FP32: 1e-5, BF16: 0.1}  # relative; more is no rounding
# the second does not see other work, and is for one thread
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
# (B, N) samples, whether all layers -> (B, T, D) each, the last one last
Run = Callable[[torch.Tensor, bool], list[torch.Tensor]]


def contenders(shape: str, exp: Path) -> dict[Name, Callable[[], Run]]:
    """Return what loads each contender."""
    found: dict[Name, Callable[[], Run]] = {}
    for precision in DTYPES:
        found["transformers", precision] = partial(_transformers, shape, exp, precision)
        if find_spec("openvino"):
            found["OpenVINO", precision] = partial(_openvino, shape, exp, precision)
            engine = f"{OURS} through OpenVINO"
            found[engine, precision] = partial(_ours, shape, exp, precision, "openvino")
        found[OURS, precision] = partial(_ours, shape, exp, precision, "torch")
    return found


def _transformers(shape: str, exp: Path, precision: str) -> Run:
    dtype = DTYPES[precision]
    network: Any = model(shape, exp).to(dtype)
    return lambda x, _: list(network(x.to(dtype), output_hidden_states=True).hidden_states)


class AllLayers(torch.nn.Module):
    """transformers' model as a function of (B, N) samples to a tuple of (B, T, D)."""

    def __init__(self, shape: str, exp: Path) -> None:
        super().__init__()
        self.inner = model(shape, exp)
        for module in self.inner.modules():
            # a weight that is a product of two has no counterpart in a graph
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


def _ours(shape: str, exp: Path, precision: str, engine: str) -> Run:
    one = encoder(shape, exp, precision, engine)

    def run(x: torch.Tensor, every: bool) -> list[torch.Tensor]:
        if every:
            return list(torch.stack([one.hidden_states(samples) for samples in x.numpy()], 1))
        return [torch.stack([one.features(samples, one.layers) for samples in x.numpy()])]

    return run


def start(shape: str, exp: Path) -> dict[Name, Run]:
    """Load every contender, and keep the seconds until the first result of a second of audio."""
    runs, second = {}, torch.randn(1, SAMPLE_RATE)
    for name, load in contenders(shape, exp).items():
        begun = time.perf_counter()
        runs[name] = load()
        with torch.inference_mode():
            runs[name](second, False)
        took = time.perf_counter() - begun
        save(exp, " ".join(name), shape, "once", {"start_seconds": took}, 1)
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
    times, rate = time_in_turns(
        {n: partial(r, audio, every) for n, r in runs.items()}, repeats, now
    )
    config: Any = model(shape, step.exp).config
    # seconds that the products alone would take in bf16
    least = batch * flops(config, audio.shape[1]) / rate
    for (name, precision), values in times.items():
        found = {"x_realtime": batch * seconds / median(values)}
        if name.startswith(OURS):
            peers = {"ratio_transformers": "transformers", "ratio_openvino": "OpenVINO"}
            for metric, peer in peers.items():
                theirs = times.get((peer, precision), [])
                if theirs:  # the median of the ratios of single turns
                    found[metric] = median(b / a for a, b in zip(values, theirs, strict=True))
            if precision == BF16:
                found["share_of_limit"] = 100 * least / median(values)
        save(step.exp, f"{name} {precision}", shape, condition, found, repeats)


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
        save(exp, " ".join(name), shape, condition, {"relative_error": worst}, 1)
        assert worst < ERRORS[name[1]], f"{' '.join(name)} does not compute the same"


def main() -> None:
    step = settings("encoders")
    for shape, workloads in step.values["models"].items():
        runs = start(shape, step.exp)
        for seconds, batch, layers in workloads:
            measure(shape, (seconds, batch, layers), step, runs)


if __name__ == "__main__":
    main()
