"""One verb that loads a speech encoder, whoever made it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel

from speechssl.artefacts import read_json
from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.fast import FastEngine, is_known
from speechssl.encoders.generic import TransformersEngine
from speechssl.encoders.speech_encoder import SpeechEncoder, hash_weights
from speechssl.errors import InputError
from speechssl.timing import FrameGrid

SHIPPED = Path(__file__).parent.parent / "models"
MODEL_TYPES = ("hubert", "wav2vec2", "wavlm", "data2vec-audio")


PRECISIONS = ("fp32", "bf16", "int8")


@dataclass(frozen=True)
class Checkpoint:
    """A speech encoder of transformers with float32 weights, and what its folder says about it."""

    name: str
    model: torch.nn.Module
    normalise: bool
    card: dict[str, Any]


def load_encoder(name: str | Path, precision: str = "fp32") -> SpeechEncoder:
    """Load a Hugging Face encoder by folder, hub id, or the name of a shipped model.

    precision: fp32 gives what transformers gives, to rounding; bf16 is faster, and differs in the third digit.
    Raises InputError when it cannot be found, is not a speech encoder, or any of its weights is missing or damaged.
    """
    if str(name).startswith("s3prl:"):
        from speechssl.encoders.s3prl import load_s3prl

        return load_s3prl(str(name), precision)
    return as_encoder(load_checkpoint(name), precision)


def as_encoder(checkpoint: Checkpoint, precision: str = "fp32") -> SpeechEncoder:
    """Give a checkpoint the fastest engine that computes its architecture."""
    if precision not in PRECISIONS:
        raise InputError(f"there is no precision {precision}; choose from {', '.join(PRECISIONS)}")
    model = checkpoint.model
    config: Any = model.config
    return SpeechEncoder(
        name=checkpoint.name,
        grid=FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride),
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        normalise=checkpoint.normalise,
        hash=hash_weights(model),
        card=checkpoint.card,
        precision=precision,
        engine=FastEngine(model, precision) if is_known(config) else TransformersEngine(model, precision),
    )


def load_checkpoint(name: str | Path) -> Checkpoint:
    """The model itself, to go on training it. Raises InputError as `load_encoder` does."""
    folder = SHIPPED / str(name) if (SHIPPED / str(name) / "config.json").is_file() else Path(name)
    source = str(folder) if folder.is_dir() else str(name)
    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(_not_found(source, error)) from error
    if config.model_type not in MODEL_TYPES:
        raise InputError(f"{source} is a {config.model_type} model; an encoder must be one of {', '.join(MODEL_TYPES)}")
    card = read_json(folder / "card.json") if (folder / "card.json").is_file() else {}
    return Checkpoint(folder.name if folder.is_dir() else source, _load_weights(source), _normalises(folder, config), card)


def _load_weights(source: str) -> torch.nn.Module:
    try:
        model, info = AutoModel.from_pretrained(source, dtype=torch.float32, output_loading_info=True)
    except Exception as error:  # safetensors, torch and transformers each have their own for a damaged file
        reason = _first_line(error)
        raise InputError(f"cannot load the weights of {source} ({reason}); fetch or make the checkpoint again") from error
    missing = sorted(set(info["missing_keys"]) - {"masked_spec_embed"})
    if missing or info["mismatched_keys"]:
        keys = missing or sorted(str(k) for k in info["mismatched_keys"])
        some = ", ".join(keys[:3])
        raise InputError(f"the checkpoint {source} lacks {len(keys)} weights ({some} ...); fetch or make it again")
    return model.eval().requires_grad_(False)


def _normalises(folder: Path, config: Any) -> bool:
    """The feature extractor's word; without one, what the published checkpoints do: layer-norm front ends are normalised."""
    path = folder / "preprocessor_config.json"
    if path.is_file():
        return bool(read_json(path).get("do_normalize", True))
    return getattr(config, "feat_extract_norm", "layer") == "layer"  # data2vec has no other


def _not_found(source: str, error: Exception) -> str:
    return (
        f"found no speech encoder at {source} ({_first_line(error)}); give a folder with config.json and model.safetensors, "
        f"or a hub id that can be reached"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
