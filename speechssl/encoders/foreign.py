"""Checkpoints of torchaudio and fairseq, as encoders of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel

from speechssl.artefacts import read_json
from speechssl.encoders.architecture import (
    PROJECTION,
    Said,
    complete,
    config_of,
    convolution_shapes,
    said_by_fairseq,
    said_by_torchaudio,
    shape,
)
from speechssl.encoders.convert import conv_norm, rename, some, split_extras, strip
from speechssl.encoders.unpickle import plain, read_pt
from speechssl.errors import InputError

BUNDLE = "torchaudio:"
MASK = "masked_spec_embed"  # stands for hidden frames; only training uses it
NO_MASK = "a mask embedding of zeros, which only training uses"
SAID_IN_CARD = ("normalise", "model_type", "norm")


@dataclass(frozen=True)
class Weights:
    """The encoder's weights under the names of the world they come from, without its prefix and what is not the encoder's."""

    name: str
    where: str  # for messages
    kind: str  # torchaudio or fairseq
    state: dict[str, torch.Tensor]
    left_out: list[str]
    said: Said
    card: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Translated:
    """A model of transformers made from them, and in words what they did not say and what was taken for it."""

    model: torch.nn.Module
    normalise: bool
    guesses: list[str]


def read_weights(name: str | Path) -> Weights:
    """Read `torchaudio:BUNDLE` or a `.pt` file. Raises InputError for what is neither, is damaged, or cannot be fetched."""
    return read_bundle(str(name).removeprefix(BUNDLE)) if str(name).startswith(BUNDLE) else read_file(Path(name))


def translate(weights: Weights, given: Said) -> Translated:
    """The model of transformers with these weights. given: what the user says beyond, which wins.

    Raises InputError when a weight has no place, a place has no weight, or what must be known is not said.
    """
    norm = conv_norm(weights.state) or weights.said.norm or given.norm
    state = rename(_split_projections(weights.state), weights.kind, "huggingface", norm or "group", weights.where)
    said = replace(given.over(weights.said), norm=norm)
    if given.strides is not None:
        said = replace(said, convolutions=None)
    filled = _fill(state, weights.kind, weights.where)
    said, guesses = complete(said, state, weights.where)
    config = config_of(said, state, weights.where)
    return Translated(build(config, state, weights.where), bool(said.normalise), guesses + filled)


def build(config: Any, state: Mapping[str, torch.Tensor], where: str) -> torch.nn.Module:
    """A model of transformers that has exactly these weights, in float32. Raises InputError where they do not fit."""
    config.mask_time_prob = config.mask_time_prob or 0.05  # or the model would have no mask embedding
    try:
        with torch.device("meta"):  # nothing is initialised, so nothing can stay as it was initialised
            model = AutoModel.from_config(config, dtype=torch.float32)
    except Exception as error:  # torch and transformers have their own for shapes that make no sense
        raise InputError(f"{where} has weights of shapes that no encoder has ({_words(error)}); fetch or make it again") from error
    missing, rest = model.state_dict().keys() - state.keys(), state.keys() - model.state_dict().keys()
    if missing or rest:
        lacks, has = f"lacks {len(missing)} weights ({some(missing)})", f"has {len(rest)} too many ({some(rest)})"
        raise InputError(f"{where} {' and '.join([lacks] * bool(missing) + [has] * bool(rest))}; fetch or make it again")
    copies = {name: tensor.detach().to(torch.float32, copy=True) for name, tensor in state.items()}
    try:
        model.load_state_dict(copies, assign=True)
    except RuntimeError as error:
        raise InputError(f"{where} has weights of other shapes than its first ones ({_words(error)}); fetch it again") from error
    return model.eval().requires_grad_(False)


def read_bundle(name: str) -> Weights:
    """One of torchaudio.pipelines, which fetches it. Raises InputError for an unknown name, and where it cannot be fetched."""
    import torchaudio

    bundle = getattr(torchaudio.pipelines, name, None)
    if not isinstance(bundle, torchaudio.pipelines.Wav2Vec2Bundle):
        known = [n for n, x in vars(torchaudio.pipelines).items() if type(x) is torchaudio.pipelines.Wav2Vec2Bundle]
        raise InputError(f"torchaudio has no encoder {name!r}; choose from {', '.join(known)}, or one with a CTC head")
    where = BUNDLE + name
    try:
        state = bundle.get_model().state_dict()
    except Exception as error:  # no network, a damaged cache, a disk that is full
        raise InputError(f"cannot fetch {where} ({_words(error)}); try again with a network, or give a file") from error
    kind = "wavlm" if name.startswith("WAVLM") else "hubert" if name.startswith("HUBERT") else "wav2vec2"
    said = replace(said_by_torchaudio(bundle._params), model_type=kind, normalise=bundle._normalize_waveform)
    state, left_out = split_extras(strip(state), "torchaudio")
    return Weights(where, where, "torchaudio", state, left_out, said)


def read_file(path: Path) -> Weights:
    """A fairseq checkpoint or a torchaudio state dict, told apart by its names."""
    if path.suffix == ".safetensors":
        raise InputError(f"{path} alone does not say what it is; give the folder that it lies in, with config.json")
    state, settings = _state_and_settings(read_pt(path))
    if not state or not all(isinstance(k, str) and isinstance(v, torch.Tensor) for k, v in state.items()):
        raise InputError(f"{path} holds no weights by name; give a fairseq checkpoint or a torchaudio state dict")
    count, state = len(state), strip(state)
    if len(state) != count:
        raise InputError(f"{path} holds more than one encoder; give a checkpoint with one")
    kind = _kind(state, path)
    state, left_out = split_extras(state, kind)
    if kind == "torchaudio":
        return _of_torchaudio(path, state, left_out)
    try:
        said = said_by_fairseq(plain(settings), str(path))
    except RecursionError:
        raise InputError(f"{path} has settings that hold themselves; fetch or make it again") from None
    model_type = "hubert" if "label_embs_concat" in left_out else None
    return Weights(path.name, str(path), kind, state, left_out, said.over(Said(model_type=model_type)), _card(path))


def _state_and_settings(content: Any) -> tuple[dict[str, Any], Any]:
    """Of fairseq ({"model", "cfg" or "args"}), Lightning ({"state_dict"}), s3prl's copies of fairseq's, or bare weights."""
    if not isinstance(content, Mapping):
        return {}, None
    if isinstance(content.get("model"), Mapping):
        return dict(content["model"]), content.get("cfg") or content.get("args")
    if isinstance(content.get("model_weight"), Mapping):
        return dict(content["model_weight"]), {"model": content.get("model_cfg"), "task": content.get("task_cfg")}
    inner = content.get("state_dict")
    return dict(inner if isinstance(inner, Mapping) else content), None


def _kind(state: Mapping[str, torch.Tensor], path: Path) -> str:
    if any(name.startswith("encoder.transformer.") for name in state):
        return "torchaudio"
    if any(".self_attn." in name for name in state):
        return "fairseq"
    if any("feature_projection." in name for name in state):
        raise InputError(f"{path} has Hugging Face's names; give the folder that it lies in, with config.json")
    raise InputError(f"{path} has neither torchaudio's nor fairseq's names ({some(state)}); give a HuBERT or a wav2vec 2.0")


def _of_torchaudio(path: Path, state: dict[str, torch.Tensor], left_out: list[str]) -> Weights:
    """Beside the file may lie what `speechssl convert` writes: the factory's arguments and a card."""
    arguments, card = path.with_suffix(".json"), _card(path)
    try:
        said = said_by_torchaudio(read_json(arguments)) if arguments.is_file() else Said()
        said = Said(**{name: card[name] for name in SAID_IN_CARD if name in card}).over(said)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{arguments} does not hold the arguments of wav2vec2_model ({_words(error)}); mend or delete it"
        ) from error
    if any("attention.attention." in name for name in state):
        said = replace(said, model_type="wavlm")
    if "mask_generator.mask_embedding" not in state and MASK in card:
        state = state | {"mask_generator.mask_embedding": torch.tensor(card[MASK], dtype=torch.float32)}
    return Weights(path.name, str(path), "torchaudio", state, left_out, said, card)


def _card(path: Path) -> dict[str, Any]:
    card = path.with_suffix(".card.json")
    return read_json(card) if card.is_file() else {}


def _split_projections(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """torchaudio's WavLM holds query, key and value in one tensor, (3 D, ...)."""
    parts: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        stem, found, parameter = name.partition("attention.attention.in_proj_")
        if found:
            parts |= {f"{stem}attention.{x}_proj.{parameter}": t for x, t in zip("qkv", tensor.chunk(3), strict=True)}
        else:
            parts[name.replace("attention.attention.", "attention.")] = tensor
    return parts


def _fill(state: dict[str, torch.Tensor], kind: str, where: str) -> list[str]:
    """Put in what a world legitimately leaves out; in words, what of it is a guess."""
    channels, width = convolution_shapes(state, where)[-1][0], shape(state, "encoder.layers.0.attention.q_proj.weight", where)[0]
    if kind == "fairseq" and PROJECTION + "weight" not in state and channels == width:  # fairseq has none between equal widths
        state |= {PROJECTION + "weight": torch.eye(width), PROJECTION + "bias": torch.zeros(width)}
    if MASK in state:
        return []
    state[MASK] = torch.zeros(width)
    return [NO_MASK]


def _words(error: Exception) -> str:
    return " ".join((str(error).strip() or type(error).__name__).split())[:160]
