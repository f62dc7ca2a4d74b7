"""Give the programs of the comparison settings, checkpoints, speech and rows of results."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, HubertConfig, HubertModel, Wav2Vec2FeatureExtractor

from speechssl import checkpoints
from speechssl.audio import SAMPLE_RATE
from speechssl.cli.parser import read_section
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
# processor time does not see other work on the machine, and is for one thread
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
PACKAGES = ("torch", "torchaudio", "transformers", "s3prl", "openvino", "onnxruntime")
SHAPES: dict[str, dict[str, Any]] = {"base": {}, "large": LARGE, "tiny": TINY}
# what ships, as `speechssl.checkpoints` finds it
ENCODER = "people-en/encoder"
CODEBOOK = "people-en/units.safetensors"


@dataclass(frozen=True)
class Settings:
    """A program has a folder for its rows, and a section of the configuration."""

    exp: Path
    values: dict[str, Any]


def read_settings(section: str, config: Path, exp: Path) -> Settings:
    """Read the settings of `python recipes/speed/SECTION.py CONFIG EXP`, and make EXP."""
    values = read_section(config, section)
    exp.mkdir(parents=True, exist_ok=True)
    return Settings(exp, values)


def make_checkpoint(shape: str, exp: Path) -> Path:
    """Make a checkpoint in float32, unless it is there, and return its folder.

    shape: "base", "large" or "tiny" has random weights; "small" is the trained encoder that ships.
    """
    path = exp / "checkpoints" / shape
    if (path / "model.safetensors").is_file():
        return path
    if shape == "small":
        # it ships in bf16; a library that finds bf16 weights computes in bf16
        load_checkpoint(ENCODER).model.save_pretrained(path)
        shutil.copy(checkpoints.SHIPPED / ENCODER / "preprocessor_config.json", path)
        return path
    torch.manual_seed(0)
    extractor = Wav2Vec2FeatureExtractor(sampling_rate=SAMPLE_RATE, do_normalize=(shape == "large"))
    extractor.save_pretrained(path)
    HubertModel(HubertConfig(**SHAPES[shape])).save_pretrained(path)
    return path


def count_flops(config: Any, samples: int, attention: bool = False) -> float:
    """Count the FLOPs of a forward pass over one utterance, 2 for a multiply-add.

    config: of transformers' HuBERT. attention: whether the products of attention and of the
    convolution of positions count, beside those of front end and linear maps.
    """
    frames, channels = samples, 1
    total = 0.0
    front_end = zip(config.conv_dim, config.conv_kernel, config.conv_stride, strict=True)
    for width, kernel, stride in front_end:
        frames = (frames - kernel) // stride + 1
        total += 2 * frames * kernel * channels * width
        channels = width
    d, layers = config.hidden_size, config.num_hidden_layers
    total += 2 * frames * channels * d  # projection of the front end's output
    total += layers * 4 * 2 * frames * d**2  # queries, keys, values and outputs
    total += layers * 2 * 2 * frames * d * config.intermediate_size  # both maps of the MLP
    if attention:
        total += layers * 2 * 2 * frames**2 * d  # queries by keys, weights by values
        kernel, groups = config.num_conv_pos_embeddings, config.num_conv_pos_embedding_groups
        total += 2 * frames * kernel / groups * d**2
    return total


def load_transformers(shape: str, exp: Path) -> torch.nn.Module:
    """Load transformers' own model."""
    loaded = AutoModel.from_pretrained(make_checkpoint(shape, exp), dtype=torch.float32)
    return loaded.eval().requires_grad_(False)


def load_speechssl(shape: str, exp: Path, precision: str, engine: str = "auto") -> SpeechEncoder:
    """Load speechssl's encoder, on the CPU."""
    return load_encoder(make_checkpoint(shape, exp), precision, "cpu", engine)


def speak_sentences(pairs: int) -> Iterator[np.ndarray]:
    """Yield two synthetic English sentences a pair, by voices of the test split: (N,) float32 at
    16 kHz."""
    for first, second in speak_pairs("en", "test", pairs):
        yield first.samples.astype(np.float32)
        yield second.samples.astype(np.float32)


def describe_machine() -> dict[str, Any]:
    """Return processor, threads and versions of packages, on which the numbers depend."""
    cpuinfo = Path("/proc/cpuinfo")  # of Linux
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    packages = {name: version(name) for name in PACKAGES if find_spec(name)}
    return {
        "cpu": next(names, platform.processor()),
        "threads": torch.get_num_threads(),
        **packages,
    }


def add_rows(
    exp: Path,
    system: str,
    shape: str,
    condition: str,
    values: Mapping[str, float],
    repeats: int = 1,
    spread: tuple[float | None, float | None] = (None, None),
) -> None:
    """Add a row for every metric to EXP/results.jsonl, and print it.

    values: metric -> value. spread: least and greatest value of the repeats.
    """
    machine = describe_machine()
    low, high = spread
    rows = []
    for metric, value in values.items():
        row = Row(
            task="speed",
            system=system,
            encoder=shape,
            condition=condition,
            snr_db=None,
            metric=metric,
            value=float(value),
            low=low,
            high=high,
            n=repeats,
            seed=0,
            card=machine,
        )
        rows.append(row)
        print(f"{shape:>6}  {condition:<24} {system:<26} {metric:<18} {value:10.3f}")
    append_rows(exp / "results.jsonl", rows)
