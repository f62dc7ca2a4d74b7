"""What the steps of the comparison share: settings, shapes of encoders, speech, the machine,
rows."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import yaml
from transformers import AutoModel, HubertConfig, HubertModel, Wav2Vec2FeatureExtractor

from speechssl import checkpoints
from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.results import Row, append_rows
from speechssl.synth.minisqa import speak_pairs


def sizes(width: int, layers: int, heads: int, inner: int, **more: object) -> dict[str, Any]:
    shape = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    return shape | {"intermediate_size": inner} | more


LARGE = sizes(
    1024, 24, 16, 4096, feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True
)
# Wide enough for the peers: oneDNN computes narrower bf16 convolutions wrongly on processors with
# AMX (tests/known_issues).
TINY = sizes(64, 2, 2, 64, conv_dim=(32,) * 7)
SHAPES = {
    "base": {},
    "large": LARGE,
    "tiny": TINY | {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4},
}
SHIPPED, CODEBOOK = "people-en/encoder", "people-en/units.safetensors"
MODELS = checkpoints.SHIPPED
SQUARE = 2048  # of a large product
Name = tuple[str, str]  # of a contender, and its precision


@dataclass(frozen=True)
class Settings:
    """exp: where rows go. values: this step's section of the config."""

    exp: Path
    values: dict[str, Any]


def settings(step: str) -> Settings:
    """Of `python recipes/speed/STEP.py CONFIG EXP`."""
    config, exp = Path(sys.argv[1]), Path(sys.argv[2])
    exp.mkdir(parents=True, exist_ok=True)
    return Settings(exp, yaml.safe_load(config.read_text(encoding="utf-8"))[step])


def folder(shape: str, exp: Path) -> Path:
    """A checkpoint of a shape with random weights (base, large, tiny), or the small trained one
    that ships, all in float32."""
    path = exp / "checkpoints" / shape
    if not (path / "model.safetensors").is_file() and shape == "small":
        # it ships in bf16, which others would compute in
        load_checkpoint(SHIPPED).model.save_pretrained(path)
        shutil.copy(MODELS / SHIPPED / "preprocessor_config.json", path)
    elif not (path / "model.safetensors").is_file():
        torch.manual_seed(0)
        extractor = Wav2Vec2FeatureExtractor(
            sampling_rate=SAMPLE_RATE, do_normalize=shape == "large"
        )
        extractor.save_pretrained(path)
        HubertModel(HubertConfig(**SHAPES[shape])).save_pretrained(path)
    return path


def flops(config: Any, samples: int, attention: bool = False) -> float:
    """Of a forward pass over one utterance: convolutions and linear maps; with `attention` that of
    positions and attention, too."""
    frames, channels, total = samples, 1, 0.0
    convolutions = config.conv_dim, config.conv_kernel, config.conv_stride
    for width, kernel, stride in zip(*convolutions, strict=True):
        frames = (frames - kernel) // stride + 1
        total += 2 * frames * kernel * channels * width
        channels = width
    d, layers = config.hidden_size, config.num_hidden_layers
    total += 2 * frames * channels * d
    total += layers * (8 * frames * d**2 + 4 * frames * d * config.intermediate_size)
    if attention:
        total += layers * 4 * frames**2 * d
        positions = config.num_conv_pos_embeddings / config.num_conv_pos_embedding_groups
        total += 2 * frames * positions * d**2
    return total


def model(shape: str, exp: Path) -> torch.nn.Module:
    """transformers' own model."""
    loaded = AutoModel.from_pretrained(folder(shape, exp), dtype=torch.float32)
    return loaded.eval().requires_grad_(False)


def encoder(shape: str, exp: Path, precision: str, engine: str = "torch") -> SpeechEncoder:
    """Ours, on the CPU."""
    return load_encoder(folder(shape, exp), precision, "cpu", engine)


def time_in_turns(
    runs: Mapping[Name, Callable[[], object]], repeats: int, now: Callable[[], float]
) -> tuple[dict[Name, list[float]], float]:
    """Time every contender once in each of the turns. Returns seconds by contender, and the rate
    of a large product in bf16, in FLOP/s: the median of what it was in the same turns."""
    times: dict[Name, list[float]] = {name: [] for name in runs}
    square = torch.ones(SQUARE, SQUARE, dtype=torch.bfloat16)
    rates = []
    for _ in range(repeats):
        begun = now()
        for _ in range(3):
            square @ square
        rates.append(3 * 2 * SQUARE**3 / (now() - begun))
        for name, run in runs.items():
            begun = now()
            run()
            times[name].append(now() - begun)
    return times, median(rates)


def sentences(count: int) -> Iterator[np.ndarray]:
    """Synthetic English by voices of the test split: (N,) float32 at 16 kHz."""
    for first, second in speak_pairs("en", "test", -(-count // 2)):
        yield first.samples.astype(np.float32)
        yield second.samples.astype(np.float32)


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    compared = "torch transformers openvino".split()
    packages = {name: version(name) for name in compared if find_spec(name)}
    return {"cpu": next(names, "unknown"), "threads": torch.get_num_threads(), **packages}


def save(
    exp: Path,
    system: str,
    shape: str,
    where: str,
    values: Mapping[str, float],
    n: int,
    ends: tuple[float | None, float | None] = (None, None),
) -> None:
    """Add values by metric to EXP/results.jsonl, and print them. n: repeats; ends: the least and
    the greatest of them."""
    rows = []
    for metric, value in values.items():
        about = "speed", system, shape, where, None, metric
        rows.append(Row(*about, float(value), *ends, n, 0, machine()))
        print(f"{shape:>6}  {where:<24} {system:<26} {metric:<18} {value:10.3f}")
    append_rows(exp / "results.jsonl", rows)
