"""The architecture of a checkpoint: from the shapes of its weights, and for the rest from what stands beside them.

Weights do not show strides, heads, where the layer norms are, nor whether the input is normalised. fairseq's settings and
torchaudio's factory arguments say it (`Said`); where nobody does, the published models' values are taken, which is said on stderr.
Letters: C channels, K kernel size, D width.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from transformers import AutoConfig

from speechssl.encoders.convert import CONV
from speechssl.errors import InputError

KERNELS, STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)  # of every published model
HEAD_WIDTH, MAX_DISTANCE = 64, 800
POSITIONS, PROJECTION = "encoder.pos_conv_embed.conv.parametrizations.weight.original1", "feature_projection.projection."


@dataclass(frozen=True)
class Said:
    """What weights do not show, and None where nobody says it."""

    strides: tuple[int, ...] | None = None  # of the front end's convolutions
    heads: int | None = None
    pre_norm: bool | None = None  # layer norm before attention and feed-forward (HuBERT large) or after (base)
    normalise: bool | None = None  # zero mean and unit variance over the utterance first
    model_type: str | None = None  # of transformers; HuBERT and wav2vec 2.0 compute the same
    norm: str | None = None  # of the front end: group or layer
    max_distance: int | None = None  # of WavLM's relative positions
    convolutions: tuple[tuple[int, int], ...] | None = None  # (C, K) that the strides go with

    def over(self, other: Said) -> Said:
        """This, and where it says nothing the other."""
        return replace(other, **{f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None})


def said_by_fairseq(settings: Any, where: str) -> Said:
    """Of fairseq's `cfg` ({"model": ..., "task": ...}) or older `args` (all in one). Raises InputError for another activation."""
    settings = settings if isinstance(settings, dict) else {}
    model, task = _section(settings, "model"), _section(settings, "task")
    before = model.get("w2v_args")  # a fine-tuned model holds the settings of its pre-training
    if isinstance(before, dict):
        model = _section(before, "model")
    if model.get("activation_fn", "gelu") != "gelu":
        raise InputError(f"{where} has the activation {model['activation_fn']}, and only gelu is known; give another checkpoint")
    layers = _convolutions(model.get("conv_feature_layers"))
    name = str(model.get("_name") or model.get("arch") or "")
    return Said(
        strides=tuple(stride for _, _, stride in layers) or None,
        heads=_of_type(model, "encoder_attention_heads", int),
        pre_norm=_of_type(model, "layer_norm_first", bool),
        normalise=_of_type(task, "normalize", bool),
        model_type="hubert" if "hubert" in name else "wav2vec2" if name else None,
        convolutions=tuple((channels, kernel) for channels, kernel, _ in layers) or None,
    )


def said_by_torchaudio(arguments: Mapping[str, Any]) -> Said:
    """Of the arguments of `torchaudio.models.wav2vec2_model` (or `wavlm_model`)."""
    layers = arguments["extractor_conv_layer_config"] or [(512, k, s) for k, s in zip(KERNELS, STRIDES, strict=True)]
    return Said(
        strides=tuple(stride for _, _, stride in layers),
        heads=arguments["encoder_num_heads"],
        pre_norm=arguments["encoder_layer_norm_first"],
        norm=arguments["extractor_mode"].removesuffix("_norm"),
        max_distance=arguments.get("encoder_max_distance"),
        convolutions=tuple((channels, kernel) for channels, kernel, _ in layers),
    )


def complete(said: Said, state: Mapping[str, torch.Tensor], where: str) -> tuple[Said, list[str]]:
    """`said` with nothing left unsaid, and in words what was taken for granted.

    state: weights under Hugging Face's names. Raises InputError where there is nothing to take.
    """
    shapes = convolution_shapes(state, where)
    if said.convolutions is not None and said.convolutions != tuple((c, k) for c, _, k in shapes):
        raise InputError(f"{where} has other convolutions than its settings say; fetch or make it again")
    if said.norm is None:
        raise InputError(f"{where} has one convolution and does not say how it is normalised; give a checkpoint with its settings")
    guesses = []
    if said.strides is None:
        if tuple(k for _, _, k in shapes) != KERNELS:
            kernels = ", ".join(str(k) for _, _, k in shapes)
            raise InputError(
                f"{where} does not say its strides, and its kernels ({kernels}) are unusual; say --strides to `speechssl convert`"
            )
        said, guesses = replace(said, strides=STRIDES), ["strides 5 2 2 2 2 2 2"]
    if said.heads is None:
        said = replace(said, heads=_guess_heads(state, where))
        guesses.append(f"{said.heads} heads")
    if said.pre_norm is None:  # as in the published models: large ones have both
        said = replace(said, pre_norm=said.norm == "layer")
        guesses.append(f"layer norm {'before' if said.pre_norm else 'after'} attention")
    if said.normalise is None:
        said = replace(said, normalise=said.norm == "layer")
        guesses.append(f"input {'' if said.normalise else 'not '}normalised")
    if said.model_type == "wavlm" and said.max_distance is None:
        said = replace(said, max_distance=MAX_DISTANCE)
        guesses.append(f"positions told apart up to {MAX_DISTANCE} frames")
    return said, guesses


def config_of(said: Said, state: Mapping[str, torch.Tensor], where: str) -> Any:
    """The configuration of transformers. said: complete; state: weights under Hugging Face's names."""
    shapes, width = convolution_shapes(state, where), shape(state, PROJECTION + "weight", where)[0]
    _, grouped, positions = shape(state, POSITIONS, where)
    strides, heads = said.strides or (), said.heads or 0
    if len(strides) != len(shapes) or min(strides) < 1:
        raise InputError(f"{where} has {len(shapes)} convolutions, and {len(strides)} strides were given; give one for each")
    if heads < 1 or width % heads:
        raise InputError(f"{where} is {width} wide, which {heads} heads cannot share; give --heads")
    kind = said.model_type or "wav2vec2"
    return AutoConfig.for_model(
        kind,
        conv_dim=tuple(c for c, _, _ in shapes),
        conv_kernel=tuple(k for _, _, k in shapes),
        conv_stride=strides,
        conv_bias=CONV + "0.conv.bias" in state,
        feat_extract_norm=said.norm,
        hidden_size=width,
        num_hidden_layers=_count(state, r"encoder\.layers\.(\d+)\..+", where),
        num_attention_heads=heads,
        intermediate_size=shape(state, "encoder.layers.0.feed_forward.intermediate_dense.weight", where)[0],
        num_conv_pos_embeddings=positions,
        num_conv_pos_embedding_groups=width // max(grouped, 1),
        do_stable_layer_norm=said.pre_norm,
        **(_wavlm(state, said, where) if kind == "wavlm" else {}),
    )


def torchaudio_arguments(config: Any) -> dict[str, Any]:
    """What `torchaudio.models.wav2vec2_model` (of a WavLM: `wavlm_model`) is to be called with."""
    wavlm = config.model_type == "wavlm"
    relative = {"encoder_num_buckets": config.num_buckets, "encoder_max_distance": config.max_bucket_distance} if wavlm else {}
    return relative | {
        "extractor_mode": f"{config.feat_extract_norm}_norm",
        "extractor_conv_layer_config": [list(x) for x in zip(config.conv_dim, config.conv_kernel, config.conv_stride, strict=True)],
        "extractor_conv_bias": config.conv_bias,
        "encoder_embed_dim": config.hidden_size,
        "encoder_projection_dropout": config.feat_proj_dropout,
        "encoder_pos_conv_kernel": config.num_conv_pos_embeddings,
        "encoder_pos_conv_groups": config.num_conv_pos_embedding_groups,
        "encoder_num_layers": config.num_hidden_layers,
        "encoder_num_heads": config.num_attention_heads,
        "encoder_attention_dropout": config.attention_dropout,
        "encoder_ff_interm_features": config.intermediate_size,
        "encoder_ff_interm_dropout": config.activation_dropout,
        "encoder_dropout": config.hidden_dropout,
        "encoder_layer_norm_first": config.do_stable_layer_norm,
        "encoder_layer_drop": config.layerdrop,
        "aux_num_out": None,
    }


def fairseq_settings(config: Any, normalise: bool) -> dict[str, Any]:
    """The `cfg` of a fairseq checkpoint, as plain values."""
    hubert = config.model_type == "hubert"
    layers = [tuple(x) for x in zip(config.conv_dim, config.conv_kernel, config.conv_stride, strict=True)]
    model = {
        "_name": "hubert" if hubert else "wav2vec2",
        "extractor_mode": "default" if config.feat_extract_norm == "group" else "layer_norm",
        "conv_feature_layers": str(layers),
        "conv_bias": config.conv_bias,
        "conv_pos": config.num_conv_pos_embeddings,
        "conv_pos_groups": config.num_conv_pos_embedding_groups,
        "encoder_layers": config.num_hidden_layers,
        "encoder_embed_dim": config.hidden_size,
        "encoder_ffn_embed_dim": config.intermediate_size,
        "encoder_attention_heads": config.num_attention_heads,
        "layer_norm_first": config.do_stable_layer_norm,
        "activation_fn": "gelu",
        "dropout": config.hidden_dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "encoder_layerdrop": config.layerdrop,
    }
    task = {"_name": "hubert_pretraining" if hubert else "audio_pretraining", "sample_rate": 16_000, "normalize": normalise}
    return {"model": model, "task": task}


def _section(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section, or all of it where there are none."""
    return section if isinstance(section := settings.get(name), dict) else settings


def _of_type(section: Mapping[str, Any], name: str, kind: type) -> Any:
    return value if type(value := section.get(name)) is kind else None  # not "${task.normalize}"


def _convolutions(text: Any) -> list[tuple[int, int, int]]:
    """[(C, K, stride)] of fairseq's expression, such as "[(512,10,5)] + [(512,3,2)] * 4 + [(512,2,2)] * 2"; [] where it is none."""
    if not isinstance(text, str) or not re.fullmatch(r"[\s\d()\[\],*+]+", text):
        return []
    layers: list[tuple[int, int, int]] = []
    for listed, times in re.findall(r"\[([^\]]*)\]\s*(?:\*\s*(\d{1,2}))?", text):
        found = re.findall(r"\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)", listed)
        layers += [(int(c), int(k), int(s)) for c, k, s in found] * int(times or 1)
    return layers


def _guess_heads(state: Mapping[str, torch.Tensor], where: str) -> int:
    constant = state.get("encoder.layers.0.attention.gru_rel_pos_const")
    if constant is not None and constant.ndim == 4:
        return constant.shape[1]
    width = shape(state, PROJECTION + "weight", where)[0]
    if width % HEAD_WIDTH:
        raise InputError(
            f"{where} does not say its heads, and {width} is no multiple of {HEAD_WIDTH}; say --heads to `speechssl convert`"
        )
    return width // HEAD_WIDTH


def _wavlm(state: Mapping[str, torch.Tensor], said: Said, where: str) -> dict[str, Any]:
    buckets = shape(state, "encoder.layers.0.attention.rel_attn_embed.weight", where)[0]
    return {"num_buckets": buckets, "max_bucket_distance": said.max_distance}


def convolution_shapes(state: Mapping[str, torch.Tensor], where: str) -> list[tuple[int, int, int]]:
    """(C', C, K) of the front end's convolutions."""
    count = _count(state, re.escape(CONV) + r"(\d+)\.conv\.weight", where)
    return [shape(state, f"{CONV}{n}.conv.weight", where) for n in range(count)]  # type: ignore[misc]


def _count(state: Mapping[str, torch.Tensor], pattern: str, where: str) -> int:
    numbers = {int(found[1]) for name in state if (found := re.fullmatch(pattern, name))}
    if numbers != set(range(len(numbers))) or not numbers:
        raise InputError(
            f"{where} lacks weights ({pattern.replace(chr(92), '')} has the numbers {sorted(numbers)}); fetch it again"
        )
    return len(numbers)


def shape(state: Mapping[str, torch.Tensor], name: str, where: str) -> tuple[int, ...]:
    """The shape of a weight: (C', C, K) of a convolution, (out, in) of a product."""
    axes = 3 if "conv" in name else 2
    if name not in state or state[name].ndim != axes:
        raise InputError(f"{where} lacks the weight {name}, or it has another number of axes than {axes}; fetch or make it again")
    return tuple(state[name].shape)
