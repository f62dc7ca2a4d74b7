"""Settings, shapes of encoders, speech, the machine and rows, for all steps of the comparison."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
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

LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
    "conv_bias": True,
}
# Wide enough for the peers: oneDNN computes narrower bf16 convolutions wrongly on processors with
# AMX (tests/known_issues).
TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "conv_dim": (32,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
SHAPES: dict[str, dict[str, Any]] = {"base": {}, "large": LARGE, "tiny": TINY}
SHIPPED, CODEBOOK = "people-en/encoder", "people-en/units.safetensors"


@dataclass(frozen=True)
class Settings:
    """A step has a folder for its rows, and its section of the configuration."""

    exp: Path
    values: dict[str, Any]


def read_settings(step: str) -> Settings:
    """Read the settings of `python recipes/speed/STEP.py CONFIG EXP`."""
    config, exp = Path(sys.argv[1]), Path(sys.argv[2])
    exp.mkdir(parents=True, exist_ok=True)
    return Settings(exp, yaml.safe_load(config.read_text(encoding="utf-8"))[step])


def checkpoint(shape: str, exp: Path) -> Path:
    """Make a checkpoint of a shape with random weights (base, large, tiny), or copy the small
    trained one that ships; all are in float32. Return its folder."""
    path = exp / "checkpoints" / shape
    if (path / "model.safetensors").is_file():
        return path
    if shape == "small":
        # it ships in bf16, which others would compute in
        load_checkpoint(SHIPPED).model.save_pretrained(path)
        shutil.copy(checkpoints.SHIPPED / SHIPPED / "preprocessor_config.json", path)
        return path
    torch.manual_seed(0)
    normalised = shape == "large"
    extractor = Wav2Vec2FeatureExtractor(sampling_rate=SAMPLE_RATE, do_normalize=normalised)
    extractor.save_pretrained(path)
    HubertModel(HubertConfig(**SHAPES[shape])).save_pretrained(path)
    return path


def flops(config: Any, samples: int, attention: bool = False) -> float:
    """Count the FLOPs of a forward pass over one utterance: of convolutions and linear maps; with
    `attention` those of positions and attention, too."""
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


def load_theirs(shape: str, exp: Path) -> torch.nn.Module:
    """Load transformers' own model."""
    loaded = AutoModel.from_pretrained(checkpoint(shape, exp), dtype=torch.float32)
    return loaded.eval().requires_grad_(False)


def load_ours(shape: str, exp: Path, precision: str, engine: str = "torch") -> SpeechEncoder:
    """Load our encoder, on the CPU."""
    return load_encoder(checkpoint(shape, exp), precision, "cpu", engine)


def sentences(count: int) -> Iterator[np.ndarray]:
    """Yield synthetic English by voices of the test split, (N,) float32 at 16 kHz."""
    for first, second in speak_pairs("en", "test", -(-count // 2)):
        yield first.samples.astype(np.float32)
        yield second.samples.astype(np.float32)


def describe_machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    compared = "torch torchaudio transformers s3prl openvino onnxruntime".split()
    packages = {name: version(name) for name in compared if find_spec(name)}
    return {"cpu": next(names, "unknown"), "threads": torch.get_num_threads(), **packages}


def save(
    exp: Path,
    system: str,
    shape: str,
    condition: str,
    values: Mapping[str, float],
    repeats: int = 1,
    spread: tuple[float | None, float | None] = (None, None),
) -> None:
    """Add a row for every metric to EXP/results.jsonl, and print it. spread: least and greatest of
    the repeats."""
    machine = describe_machine()
    rows = []
    for metric, value in values.items():
        cell = ("speed", system, shape, condition, None, metric)
        rows.append(Row(*cell, float(value), *spread, repeats, 0, machine))
        print(f"{shape:>6}  {condition:<24} {system:<26} {metric:<18} {value:10.3f}")
    append_rows(exp / "results.jsonl", rows)
