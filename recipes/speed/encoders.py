"""Encoders side by side: the same weights and audio in one process, turn by turn. python recipes/speed/encoders.py CONFIG EXP"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torchaudio
from common import encoder, folder, model, row, save, settings

from speechssl.encoders.export import convert
from speechssl.encoders.s3prl import load_s3prl
from speechssl.io import read_json

Run = Callable[[torch.Tensor], torch.Tensor]  # (B, N) samples -> (B, T, D) of the last layer
FP32, BF16 = "fp32", "bf16"
SQUARE = 2048


def contenders(shape: str, exp: Path) -> dict[tuple[str, str], Run]:
    """(name, precision) -> what is timed."""
    audio = torchaudio_model(shape, exp)
    s3prl: Any = load_s3prl(f"s3prl:hf_hubert_custom@{folder(shape, exp)}").engine
    ours = {p: encoder(shape, exp, p) for p in (FP32, BF16, "int8")}
    found: dict[tuple[str, str], Run] = {
        ("transformers", FP32): _transformers(model(shape, exp), torch.float32),
        ("transformers", BF16): _transformers(model(shape, exp).bfloat16(), torch.bfloat16),
        ("transformers autocast", BF16): _autocast(_transformers(model(shape, exp), torch.float32)),
        ("torchaudio", FP32): lambda x: audio.extract_features(x)[0][-1],
        ("torchaudio", BF16): _torchaudio(deepcopy(audio).bfloat16()),
        ("s3prl", FP32): lambda x: s3prl.upstream(list(x))["hidden_states"][-1],
        ("s3prl autocast", BF16): _autocast(lambda x: s3prl.upstream(list(x))["hidden_states"][-1]),
    }
    for precision, one in ours.items():
        found["speechssl", precision] = _ours(one)
    return found


def torchaudio_model(shape: str, exp: Path) -> Any:
    """torchaudio's own model, with the weights that `speechssl convert` gives it."""
    path = exp / "checkpoints" / f"{shape}-torchaudio.pt"
    convert(folder(shape, exp), path, "torchaudio")
    network = torchaudio.models.wav2vec2_model(**read_json(path.with_suffix(".json")))
    network.load_state_dict(torch.load(path, weights_only=True))
    return network.eval()


def _transformers(network: Any, dtype: torch.dtype) -> Run:
    return lambda x: network(x.to(dtype), output_hidden_states=True).hidden_states[-1]


def _torchaudio(network: Any) -> Run:
    return lambda x: network.extract_features(x.bfloat16())[0][-1]


def _autocast(run: Run) -> Run:
    def inner(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return run(x)

    return inner


def _ours(one: Any) -> Run:
    return lambda x: torch.stack(one.features_of(list(x.numpy()), one.layers))


def gflop(config: Any, frames: int) -> float:
    """Of the matrix products of one utterance: convolutions (not that of positions) and linear maps, without those of attention."""
    sizes, total = [1, *config.conv_dim], 0.0
    lengths = [frames]
    for kernel, stride in list(zip(config.conv_kernel, config.conv_stride, strict=True))[:0:-1]:
        lengths.append((lengths[-1] - 1) * stride + kernel)
    for length, kernel, before, after in zip(lengths[::-1], config.conv_kernel, sizes, sizes[1:], strict=False):
        total += 2 * length * kernel * before * after
    d = config.hidden_size
    total += 2 * frames * sizes[-1] * d
    return (total + 2 * frames * config.num_hidden_layers * (4 * d * d + 2 * d * config.intermediate_size)) / 1e9


def matrix_rate(dtype: torch.dtype) -> float:
    """GFLOP/s of a large product, now."""
    a = torch.ones(SQUARE, SQUARE, dtype=dtype)
    start = time.perf_counter()
    for _ in range(3):
        a @ a
    return 3 * 2 * SQUARE**3 / (time.perf_counter() - start) / 1e9


@torch.inference_mode()
def measure(shape: str, seconds: float, batch: int, repeats: int, runs: dict[tuple[str, str], Run], config: Any, exp: Path) -> None:
    """Time every contender `repeats` times, in turn, and leave the rows of one workload."""
    torch.manual_seed(1)
    audio = torch.randn(batch, int(seconds * 16_000))
    audio = (audio - audio.mean(1, keepdim=True)) / audio.std(1, keepdim=True)  # so that normalising it once more is harmless
    times: dict[tuple[str, str], list[float]] = {name: [] for name in runs}
    rates: dict[str, list[float]] = {FP32: [], BF16: []}
    expected = runs["transformers", FP32](audio)
    for name, run in runs.items():  # a first time for what is set up at the first call, and to see that all compute the same
        error = ((run(audio).float() - expected).norm() / expected.norm()).item()
        print(f"{' '.join(name):>30}: relative error {error:.1e}")
        assert error < {FP32: 1e-5}.get(name[1], 0.1), f"{name} does not compute the same"
    for _ in range(repeats):
        for precision, dtype in ((FP32, torch.float32), (BF16, torch.bfloat16)):
            rates[precision].append(matrix_rate(dtype))
        for name, run in runs.items():
            start = time.perf_counter()
            run(audio)
            times[name].append(time.perf_counter() - start)
    limit = {precision: median(values) for precision, values in rates.items()}
    save(exp, [row(f"matrix product {p}", shape, f"{seconds:g} s x {batch}", "gflops", r, None, repeats) for p, r in limit.items()])
    _rows(shape, seconds, batch, times, batch * gflop(config, expected.shape[1]) / limit[BF16], exp)


def _rows(shape: str, seconds: float, batch: int, times: dict, least: float, exp: Path) -> None:
    """least: seconds that the products alone would take."""
    condition, n = f"{seconds:g} s x {batch}", len(next(iter(times.values())))
    spent = {name: median(values) for name, values in times.items()}
    best = {p: min(t for (name, q), t in spent.items() if q == p and name != "speechssl") for p in (FP32, BF16)}
    rows = []
    for (name, precision), values in times.items():
        spread = batch * seconds / max(values), batch * seconds / min(values)
        rows.append(row(f"{name} {precision}", shape, condition, "x_realtime", batch * seconds / spent[name, precision], spread, n))
        if name == "speechssl":
            values_of = {f"ratio_{p}": best[p] / spent[name, precision] for p in (FP32, BF16)}
            if precision == BF16:
                values_of["share_of_limit"] = 100 * least / spent[name, precision]
            rows += [row(f"{name} {precision}", shape, condition, m, v, None, n) for m, v in values_of.items()]
    save(exp, rows)


def main() -> None:
    step = settings("encoders")
    for shape, workloads in step.values["models"].items():
        runs, config = contenders(shape, step.exp), model(shape, step.exp).config
        for seconds, batch in workloads:
            measure(shape, seconds, batch, step.values["repeats"], runs, config, step.exp)


if __name__ == "__main__":
    main()
