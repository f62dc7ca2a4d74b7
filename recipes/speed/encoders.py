"""Encoders side by side: the same weights and audio in one process, turn by turn. python
recipes/speed/encoders.py CONFIG EXP

What is not installed is left out, by name. `one layer` is the last one; `all layers` are all of
them, as they are handed over.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torchaudio
from common import encoder, flops, folder, model, row, save, settings
from graphs import Run, kept, onnx_graph, onnxruntime, openvino, openvino_graph
from transformers import AutoConfig

from speechssl.artifacts import read_json
from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.encoder import single_threaded
from speechssl.encoders.export import convert
from speechssl.encoders.s3prl import load_s3prl

FP32, BF16, INT8 = "fp32", "bf16", "int8"
# on one thread each, as `units extract` encodes a corpus
OURS, SIDE_BY_SIDE = "speechssl", "side by side"
# relative to transformers in fp32, more is no rounding; what 8 bits lose is only told
ERRORS = {FP32: 1e-5, BF16: 0.1}
# the second does not see other work, and is for one thread
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
SQUARE = 2048
Name = tuple[str, str]  # of a contender, and its precision


@dataclass(frozen=True)
class Contender:
    """start: load it, from files. convert: make these files unless they are there; the seconds that
    it took."""

    start: Callable[[], Run]
    convert: Callable[[], float] = lambda: 0.0


def contenders(shape: str, exp: Path, espnet: Path | None) -> dict[Name, Contender]:
    """espnet: a folder with espnet-s3prl, whose module has s3prl's name."""
    threads = torch.get_num_threads()
    torchaudios = partial(torchaudio_file, shape, exp)
    found = {
        ("transformers", FP32): Contender(lambda: _transformers(model(shape, exp), torch.float32)),
        ("transformers", BF16): Contender(
            lambda: _transformers(model(shape, exp).bfloat16(), torch.bfloat16)
        ),
        ("transformers autocast", BF16): Contender(
            lambda: _autocast(_transformers(model(shape, exp), torch.float32))
        ),
        ("torchaudio", FP32): Contender(
            lambda: _torchaudio(torchaudios()[0], torch.float32), lambda: torchaudios()[1]
        ),
        ("torchaudio", BF16): Contender(
            lambda: _torchaudio(torchaudios()[0], torch.bfloat16), lambda: torchaudios()[1]
        ),
    }
    if find_spec("s3prl"):
        found["s3prl", FP32] = Contender(lambda: _s3prl(shape, exp))
        found["s3prl autocast", BF16] = Contender(lambda: _autocast(_s3prl(shape, exp)))
    if espnet:
        found["espnet-s3prl", FP32] = Contender(lambda: _espnet(shape, exp, espnet))
    if find_spec("openvino"):
        for precision in (FP32, BF16, *([INT8] if find_spec("nncf") else [])):
            graph = partial(openvino_graph, shape, exp, precision == INT8)
            for name, streams in _and_side_by_side("OpenVINO", threads):
                found[name, precision] = Contender(
                    partial(_openvino, graph, precision, streams), partial(_seconds, graph)
                )
    if find_spec("onnxruntime") and find_spec("onnx"):
        for precision in (FP32, INT8):
            graph = partial(onnx_graph, shape, exp, precision == INT8)
            found["ONNX Runtime", precision] = Contender(
                partial(_onnxruntime, graph), partial(_seconds, graph)
            )
    for precision in (FP32, BF16, INT8):
        for name, workers in _and_side_by_side(OURS, threads):
            found[name, precision] = Contender(partial(_ours, shape, exp, precision, workers))
    return found


def _and_side_by_side(name: str, threads: int) -> list[tuple[str, int]]:
    """What works on one utterance, and what works on as many as there are threads."""
    return [(name, 1), *([(f"{name} {SIDE_BY_SIDE}", threads)] if threads > 1 else [])]


def _seconds(graph: Callable[[], tuple[Path, float]]) -> float:
    return graph()[1]


def _openvino(graph: Callable[[], tuple[Path, float]], precision: str, streams: int) -> Run:
    return openvino(graph()[0], precision, streams)


def _onnxruntime(graph: Callable[[], tuple[Path, float]]) -> Run:
    return onnxruntime(graph()[0])


def missing(espnet: Path | None) -> list[str]:
    """What is left out, by name."""
    packages = {
        "OpenVINO": "openvino",
        "OpenVINO in int8": "nncf",
        "ONNX Runtime": "onnxruntime",
        "ONNX": "onnx",
        "s3prl": "s3prl",
    }
    return [
        *(name for name, package in packages.items() if not find_spec(package)),
        *([] if espnet else ["espnet-s3prl"]),
    ]


def _transformers(network: Any, dtype: torch.dtype) -> Run:
    return lambda x, _: list(network(x.to(dtype), output_hidden_states=True).hidden_states)


def torchaudio_file(shape: str, exp: Path) -> tuple[Path, float]:
    """The weights for torchaudio's own model that `speechssl convert` makes, and the seconds that
    it took."""
    path = exp / "checkpoints" / f"{shape}-torchaudio.pt"
    return path, kept(path, lambda out: convert(folder(shape, exp), out, "torchaudio"))


def _torchaudio(path: Path, dtype: torch.dtype) -> Run:
    network = torchaudio.models.wav2vec2_model(**read_json(path.with_suffix(".json")))
    network.load_state_dict(torch.load(path, weights_only=True))
    network.eval().to(dtype)
    return lambda x, _: network.extract_features(x.to(dtype))[0]


def _s3prl(shape: str, exp: Path) -> Run:
    upstream: Any = load_s3prl(f"s3prl:hf_hubert_custom@{folder(shape, exp)}").engine
    return lambda x, _: upstream.upstream(list(x))["hidden_states"]


@contextmanager
def _module_of(place: Path) -> Iterator[None]:
    """`import s3prl` imports what lies in that folder."""
    kept = {
        name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "s3prl"
    }
    sys.path.insert(0, str(place))
    try:
        yield
    finally:
        sys.path.remove(str(place))
        for name in [name for name in sys.modules if name.split(".")[0] == "s3prl"]:
            del sys.modules[name]
        sys.modules.update(kept)


def _espnet(shape: str, exp: Path, place: Path) -> Run:
    with _module_of(place):
        from s3prl.upstream.hf_hubert.expert import UpstreamExpert

        upstream = UpstreamExpert(str(folder(shape, exp))).eval()
    return lambda x, _: upstream(list(x))["hidden_states"]


def _autocast(run: Run) -> Run:
    def inner(x: torch.Tensor, every: bool) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            return run(x, every)

    return inner


def _ours(shape: str, exp: Path, precision: str, workers: int) -> Run:
    one = encoder(shape, exp, precision)

    def layers(samples: Any, every: bool) -> list[torch.Tensor]:
        return list(one.hidden_states(samples)) if every else [one.features(samples, one.layers)]

    def run(x: torch.Tensor, every: bool) -> list[torch.Tensor]:
        if workers == 1:
            found = [layers(samples, every) for samples in x.numpy()]
        else:
            with single_threaded(workers) as pool:
                found = list(pool.map(partial(layers, every=every), x.numpy()))
        return [torch.stack(same) for same in zip(*found, strict=True)]

    return run


def matrix_rate(dtype: torch.dtype, now: Callable[[], float]) -> float:
    """GFLOP/s of a large product, now."""
    a = torch.ones(SQUARE, SQUARE, dtype=dtype)
    start = now()
    for _ in range(3):
        a @ a
    return 3 * 2 * SQUARE**3 / (now() - start) / 1e9


def started(shape: str, chosen: dict[Name, Contender], exp: Path) -> dict[Name, Run]:
    """Load every contender: seconds of its conversion, and from its files to the first result of a
    second of audio."""
    runs, second = {}, torch.randn(1, SAMPLE_RATE)
    for name, contender in chosen.items():
        times = {"conversion_seconds": contender.convert()}
        begun = time.perf_counter()
        runs[name] = contender.start()
        with torch.inference_mode():
            runs[name](second, False)
        times["start_seconds"] = time.perf_counter() - begun
        save(
            exp,
            [
                row(" ".join(name), shape, "once", metric, value, None, 1)
                for metric, value in times.items()
            ],
        )
    return runs


@torch.inference_mode()
def measure(
    shape: str,
    workload: tuple[float, int, str],
    values: dict[str, Any],
    runs: dict[Name, Run],
    exp: Path,
) -> None:
    """Time every contender `repeats` times, in turn, and leave the rows of one workload: seconds,
    utterances, one layer or all."""
    (seconds, batch, layers), repeats, now = workload, values["repeats"], CLOCKS[values["clock"]]
    every = {"one": False, "all": True}[layers]
    condition = f"{seconds:g} s x {batch}{', all layers' if every else ''}"
    if batch == 1:
        runs = {name: run for name, run in runs.items() if SIDE_BY_SIDE not in name[0]}
    torch.manual_seed(1)
    audio = torch.randn(batch, int(seconds * SAMPLE_RATE))
    # so that normalising it once more is harmless
    audio = (audio - audio.mean(1, keepdim=True)) / audio.std(1, keepdim=True)
    times: dict[Name, list[float]] = {name: [] for name in runs}
    rates: dict[str, list[float]] = {FP32: [], BF16: []}
    expected = runs["transformers", FP32](audio, every)
    # a first time for what is set up at the first call, and to see that all compute the same
    for name, run in runs.items():
        found = run(audio, every)
        # torchaudio leaves out layer 0
        pairs = list(zip(found[::-1], expected[::-1], strict=False))
        error = max(distance(x, y) for x, y in (pairs if every else pairs[:1]))
        save(exp, [row(" ".join(name), shape, condition, "relative_error", error, None, 1)])
        assert error < ERRORS.get(name[1], float("inf")), (
            f"{' '.join(name)} does not compute the same"
        )
    for _ in range(repeats):
        for precision, dtype in ((FP32, torch.float32), (BF16, torch.bfloat16)):
            rates[precision].append(matrix_rate(dtype, now))
        for name, run in runs.items():
            start = now()
            run(audio, every)
            times[name].append(now() - start)
    limit = {precision: median(values) for precision, values in rates.items()}
    save(
        exp,
        [
            row(f"matrix product {p}", shape, condition, "gflops", r, None, repeats)
            for p, r in limit.items()
        ],
    )
    _rows(
        shape,
        condition,
        batch * seconds,
        times,
        batch
        * flops(AutoConfig.from_pretrained(folder(shape, exp)), audio.shape[1])
        / 1e9
        / limit[BF16],
        exp,
    )


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative to the length of what is expected."""
    return float((found.float() - expected).norm() / expected.norm())


def _rows(
    shape: str,
    condition: str,
    audio: float,
    times: dict[Name, list[float]],
    least: float,
    exp: Path,
) -> None:
    """audio: seconds of it. least: seconds that the products alone would take. Ratios are medians
    of those of single turns."""
    spent = {name: median(values) for name, values in times.items()}
    others = {
        p: [name for name in spent if name[1] == p and not name[0].startswith(OURS)]
        for p in (FP32, BF16, INT8)
    }
    rows = []
    for (name, precision), values in times.items():
        n = len(values)
        spread = audio / max(values), audio / min(values)
        rows.append(
            row(
                f"{name} {precision}",
                shape,
                condition,
                "x_realtime",
                audio / spent[name, precision],
                spread,
                n,
            )
        )
        if not name.startswith(OURS):
            continue
        against = {
            f"ratio_{p}": min(others[p], key=lambda other: spent[other])
            for p in (FP32, BF16)
            if others[p]
        }
        same = f"OpenVINO{name.removeprefix(OURS)}", precision
        against |= {"ratio_openvino": same} if same in times else {}
        found = {
            metric: median(b / a for a, b in zip(values, times[peer], strict=True))
            for metric, peer in against.items()
        }
        if name == OURS and precision == BF16:
            found["share_of_limit"] = 100 * least / spent[name, precision]
        rows += [
            row(f"{name} {precision}", shape, condition, metric, value, None, n)
            for metric, value in found.items()
        ]
    save(exp, rows)


def main() -> None:
    step = settings("encoders")
    espnet = step.values.get("espnet_s3prl")
    if absent := missing(espnet):
        print(f"left out, because not installed: {', '.join(absent)}")
    only: Sequence[str] | None = step.values.get("systems")
    for shape, workloads in step.values["models"].items():
        found = contenders(shape, step.exp, Path(espnet) if espnet else None)
        # with it all others are compared
        wanted = {"transformers fp32", *(only or map(" ".join, found))}
        chosen = {name: contender for name, contender in found.items() if " ".join(name) in wanted}
        runs = started(shape, chosen, step.exp)
        for seconds, batch, layers in workloads:
            measure(shape, (seconds, batch, layers), step.values, runs, step.exp)


if __name__ == "__main__":
    main()
