"""Checkpoints of torchaudio and fairseq are read as encoders of transformers: their files, the
names of their weights, and their architecture.

Most of the architecture follows from the shapes of the weights. Strides, heads, the position of the
layer norms and the normalisation of the input do not; they come from fairseq's settings or from the
arguments of torchaudio's factory (`Architecture`). Where neither states them, the values of the
published models are assumed, which is reported on stderr.

Letters: C channels, K kernel size, D width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from speechssl.artifacts import read_json
from speechssl.encoders.unpickle import read_pt, replace_stand_ins
from speechssl.errors import InputError, cut_error
from speechssl.schema import convert

CONV, TRANSFORMER = "feature_extractor.conv_layers.", "encoder.transformer."
LAYER = "encoder.layers.{n}."
# Names of a module in Hugging Face, and in torchaudio or fairseq. The first row that matches is
# used; `{n}` is a number, and the rest of a name (`.weight`) stays.
TORCHAUDIO = (
    ("masked_spec_embed", "mask_generator.mask_embedding"),  # in HuBERTPretrainModel only
    ("feature_projection", "encoder.feature_projection"),
    ("encoder", "encoder.transformer"),
)
FAIRSEQ = (
    (CONV + "{n}.conv", CONV + "{n}.0"),
    ("feature_projection.layer_norm", "layer_norm"),
    ("feature_projection.projection", "post_extract_proj"),
    ("masked_spec_embed", "mask_emb"),
    ("encoder.pos_conv_embed.conv", "encoder.pos_conv.0"),
    (LAYER + "attention", LAYER + "self_attn"),
    (LAYER + "layer_norm", LAYER + "self_attn_layer_norm"),
    (LAYER + "feed_forward.intermediate_dense", LAYER + "fc1"),
    (LAYER + "feed_forward.output_dense", LAYER + "fc2"),
)
# Norms of the front end: a layer norm after each convolution, or one group norm after the first.
FAIRSEQ_NORMS = {
    "layer": (CONV + "{n}.layer_norm", CONV + "{n}.2.1"),
    "group": (CONV + "0.layer_norm", CONV + "0.2"),
}
WEIGHT_NORM = (
    ("parametrizations.weight.original0", "weight_g"),
    ("parametrizations.weight.original1", "weight_v"),
)

# Prefixes that the encoder may have inside a larger model.
PREFIXES = (
    "w2v_encoder.w2v_model.",
    "w2v_model.",
    "wav2vec2.",
    "model.wav2vec2.",
    "model.",
    "module.",
)
EXTRAS = (  # weights beyond the encoder's, which are listed and left out
    # of wav2vec 2.0's pre-training
    r"quantizer\..+", r"project_q\..+", r"project_hid\..+", r"target_glu\..+",
    # of HuBERT's pre-training
    r"final_proj\..+", r"label_embs_concat", r"mask_generator\.(?!mask_embedding).+",
    r"logit_generator\..+",
    r"(w2v_encoder\.)?proj\..+", r"aux\..+", r"lm_head\..+",  # CTC heads
    r"classifier\..+", r"projector\..+", r"layer_weights", r"tdnn\..+", r"objective\..+",
    r"feature_extractor\.(weight|bias)",
)  # fmt: skip


def is_extra(name: str) -> bool:
    """Return whether a weight is known not to belong to the encoder."""
    return any(re.fullmatch(pattern, name) for pattern in EXTRAS)


def rename(
    state: Mapping[str, torch.Tensor], kind: str, norm: str | None = None
) -> dict[str, torch.Tensor]:
    """Rename the weights of a library (`kind`) to Hugging Face's names. Other names stay.

    norm: rename Hugging Face's weights to the names of `kind` instead; the norm of their front end,
    group or layer.
    """
    rows = TORCHAUDIO
    if kind == "fairseq":
        norms = [FAIRSEQ_NORMS[norm]] if norm else FAIRSEQ_NORMS.values()
        rows = (*FAIRSEQ, *norms)
    patterns = []
    for hugging_face, other in rows:
        old, new = (hugging_face, other) if norm else (other, hugging_face)
        # encoder.layers.{n}.fc1 -> the pattern of encoder.layers.3.fc1.weight
        pattern = re.escape(old).replace(r"\{n\}", r"(?P<n>\d+)") + r"(?P<rest>\..+|)"
        patterns.append((re.compile(pattern), new))
    renamed: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        for expression, new in patterns:
            match = expression.fullmatch(name)
            if match:
                name = new.format(**match.groupdict()) + match["rest"]
                break
        for parametrised, original in WEIGHT_NORM:
            if norm and kind == "fairseq":
                name = name.replace(parametrised, original)
            else:
                name = name.replace(original, parametrised)
        renamed[name] = tensor
    return renamed


def list_first(names: Iterable[str]) -> str:
    """List the first three names, for a message."""
    listed = sorted(names)
    return ", ".join(listed[:3]) + (" ..." if len(listed) > 3 else "")


# Every published model has these.
KERNELS = (10, 3, 3, 3, 3, 2, 2)  # of the front end's convolutions
STRIDES = (5, 2, 2, 2, 2, 2, 2)
HEAD_WIDTH = 64
MAX_DISTANCE = 800  # WavLM's largest relative position, in frames
# Names of weights, from whose shapes the architecture is read.
POSITIONS = "encoder.pos_conv_embed.conv.parametrizations.weight.original1"
PROJECTION = "feature_projection.projection."


@dataclass(frozen=True)
class Architecture:
    """These properties of an architecture do not follow from the shapes of its weights. None stands
    for one that is not stated."""

    strides: tuple[int, ...] | None = None  # of the front end's convolutions
    heads: int | None = None
    # layer norm before attention and feed-forward (HuBERT large) or after (base)
    pre_norm: bool | None = None
    normalise: bool | None = None  # zero mean and unit variance over the utterance first
    model_type: str | None = None  # of transformers; HuBERT and wav2vec 2.0 compute the same
    max_distance: int | None = None  # of WavLM's relative positions


def read_fairseq_architecture(settings: Any, where: str) -> Architecture:
    """Read fairseq's `cfg` ({"model": ..., "task": ...}) or its older, flat `args`. Raises
    InputError for an activation other than gelu."""
    settings = settings if isinstance(settings, dict) else {}
    model, task = _get_section(settings, "model"), _get_section(settings, "task")
    pretraining = model.get("w2v_args")  # in the settings of a fine-tuned model
    if isinstance(pretraining, dict):
        model = _get_section(pretraining, "model")
    if model.get("activation_fn", "gelu") != "gelu":
        raise InputError(
            f"{where} has the activation {model['activation_fn']}, and only gelu is supported; "
            "give another checkpoint"
        )
    # an expression such as "[(512,10,5)] + [(512,3,2)] * 4 + [(512,2,2)] * 2", of (C, K, stride)
    strides: list[int] = []
    expression = str(model.get("conv_feature_layers"))
    for layers, times in re.findall(r"\[([^\]]*)\]\s*(?:\*\s*(\d{1,2}))?", expression):
        numbers = re.findall(r"\(\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*\)", layers)
        strides += [int(stride) for stride in numbers] * int(times or 1)
    name = str(model.get("_name") or model.get("arch") or "")
    model_type = None
    if name:
        model_type = "hubert" if "hubert" in name else "wav2vec2"
    return Architecture(
        strides=tuple(strides) or None,
        heads=_get_value(model, "encoder_attention_heads", int),
        pre_norm=_get_value(model, "layer_norm_first", bool),
        normalise=_get_value(task, "normalize", bool),
        model_type=model_type,
    )


def _get_section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of the settings; the settings themselves where they are flat."""
    section = settings.get(name)
    return section if isinstance(section, dict) else settings


def _get_value(section: dict[str, Any], name: str, kind: type) -> Any:
    """Return a value, None for one of another type: it may be a reference, "${task.normalize}"."""
    value = section.get(name)
    return value if type(value) is kind else None


@dataclass(frozen=True)
class TorchaudioArguments:
    """These arguments of `torchaudio.models.wav2vec2_model` (or `wavlm_model`) do not follow from
    the weights."""

    encoder_num_heads: int
    encoder_layer_norm_first: bool | None = None
    extractor_conv_layer_config: tuple[tuple[int, int, int], ...] | None = None
    encoder_max_distance: int | None = None


def read_torchaudio_architecture(
    values: Any, where: Path | str, stated: Architecture = Architecture()
) -> Architecture:
    """Read arguments of torchaudio's factory. where: what they are of, for messages; stated: what
    is known besides. Raises InputError for other values."""
    arguments = convert(values, TorchaudioArguments, where, "correct it, or delete it")
    layers = arguments.extractor_conv_layer_config
    return replace(
        stated,
        strides=tuple(stride for _, _, stride in layers) if layers else None,
        heads=arguments.encoder_num_heads,
        pre_norm=arguments.encoder_layer_norm_first,
        max_distance=arguments.encoder_max_distance,
    )


def make_config(
    stated: Architecture, state: Mapping[str, torch.Tensor]
) -> tuple[Any, bool, list[str]]:
    """Return the configuration of transformers, whether the input is normalised, and the
    assumptions in words.

    state: weights under Hugging Face's names. Raises KeyError for a weight that is missing, and
    ValueError where a property is not stated and cannot be assumed.
    """
    shapes: list[torch.Size] = []
    while f"{CONV}{len(shapes)}.conv.weight" in state:
        shapes.append(state[f"{CONV}{len(shapes)}.conv.weight"].shape)  # (C', C, K)
    kernels = tuple(kernel for _, _, kernel in shapes)
    width = len(state[PROJECTION + "weight"])
    _, group_width, positions_kernel = state[POSITIONS].shape
    norm = "layer" if CONV + "1.layer_norm.weight" in state else "group"
    assumptions = []
    strides = stated.strides
    if strides is None and kernels == KERNELS:
        strides = STRIDES
        assumptions.append("strides 5 2 2 2 2 2 2")
    heads = stated.heads
    gru_constant = state.get("encoder.layers.0.attention.gru_rel_pos_const")
    if heads is None:
        if gru_constant is not None and gru_constant.ndim == 4:  # of WavLM, (1, heads, 1, 1)
            heads = gru_constant.shape[1]
        elif width % HEAD_WIDTH == 0:
            heads = width // HEAD_WIDTH
            assumptions.append(f"{heads} heads")
    if strides is None or heads is None:
        raise ValueError(
            f"strides and heads of a model of kernels {kernels} and width {width} are not known: "
            "write the arguments of torchaudio's wav2vec2_model to a .json of its name beside it"
        )
    pre_norm = stated.pre_norm
    if pre_norm is None:  # published models have both kinds of layer norms, or neither
        pre_norm = norm == "layer"
        assumptions.append(f"layer norm {'before' if pre_norm else 'after'} attention")
    normalise = stated.normalise
    if normalise is None:
        normalise = norm == "layer"
        assumptions.append(f"input {'' if normalise else 'not '}normalised")
    relative = {}
    if stated.model_type == "wavlm":
        if stated.max_distance is None:
            assumptions.append(f"relative positions up to {MAX_DISTANCE} frames")
        relative = {
            "num_buckets": len(state["encoder.layers.0.attention.rel_attn_embed.weight"]),
            "max_bucket_distance": stated.max_distance or MAX_DISTANCE,
        }
    layers = {name.split(".")[2] for name in state if name.startswith("encoder.layers.")}
    from transformers import AutoConfig  # slow to import

    config = AutoConfig.for_model(
        stated.model_type or "wav2vec2",
        conv_dim=tuple(c for c, _, _ in shapes),
        conv_kernel=kernels,
        conv_stride=strides,
        conv_bias=CONV + "0.conv.bias" in state,
        feat_extract_norm=norm,
        hidden_size=width,
        num_hidden_layers=len(layers),
        num_attention_heads=heads,
        intermediate_size=len(state["encoder.layers.0.feed_forward.intermediate_dense.weight"]),
        num_conv_pos_embeddings=positions_kernel,
        num_conv_pos_embedding_groups=width // max(group_width, 1),
        do_stable_layer_norm=pre_norm,
        **relative,
    )
    return config, normalise, assumptions


# Names of a setting in Hugging Face's config, torchaudio's arguments, and fairseq's model; "" where
# the library does not have it.
SETTINGS = (
    ("conv_bias", "extractor_conv_bias", "conv_bias"),
    ("hidden_size", "encoder_embed_dim", "encoder_embed_dim"),
    ("feat_proj_dropout", "encoder_projection_dropout", ""),
    ("num_conv_pos_embeddings", "encoder_pos_conv_kernel", "conv_pos"),
    ("num_conv_pos_embedding_groups", "encoder_pos_conv_groups", "conv_pos_groups"),
    ("num_hidden_layers", "encoder_num_layers", "encoder_layers"),
    ("num_attention_heads", "encoder_num_heads", "encoder_attention_heads"),
    ("attention_dropout", "encoder_attention_dropout", "attention_dropout"),
    ("intermediate_size", "encoder_ff_interm_features", "encoder_ffn_embed_dim"),
    ("activation_dropout", "encoder_ff_interm_dropout", "activation_dropout"),
    ("hidden_dropout", "encoder_dropout", "dropout"),
    ("do_stable_layer_norm", "encoder_layer_norm_first", "layer_norm_first"),
    ("layerdrop", "encoder_layer_drop", "encoder_layerdrop"),
    ("num_buckets", "encoder_num_buckets", ""),  # of WavLM
    ("max_bucket_distance", "encoder_max_distance", ""),
)


def make_torchaudio_arguments(config: Any) -> dict[str, Any]:
    """Make the arguments of `torchaudio.models.wav2vec2_model` (of a WavLM: `wavlm_model`)."""
    rows = SETTINGS if config.model_type == "wavlm" else SETTINGS[:-2]
    arguments = {name: getattr(config, hugging_face) for hugging_face, name, _ in rows}
    layers = zip(config.conv_dim, config.conv_kernel, config.conv_stride, strict=True)
    return arguments | {
        "extractor_mode": f"{config.feat_extract_norm}_norm",
        "extractor_conv_layer_config": [list(layer) for layer in layers],
        "aux_num_out": None,
    }


def make_fairseq_settings(config: Any, normalise: bool) -> dict[str, Any]:
    """Make the `cfg` of a fairseq checkpoint, as plain values."""
    is_hubert = config.model_type == "hubert"
    layers = zip(config.conv_dim, config.conv_kernel, config.conv_stride, strict=True)
    model = {
        "_name": "hubert" if is_hubert else "wav2vec2",
        "extractor_mode": "default" if config.feat_extract_norm == "group" else "layer_norm",
        "conv_feature_layers": str(list(layers)),
        "activation_fn": "gelu",
        **{name: getattr(config, hugging_face) for hugging_face, _, name in SETTINGS if name},
    }
    task = {
        "_name": "hubert_pretraining" if is_hubert else "audio_pretraining",
        "sample_rate": 16_000,
        "normalize": normalise,
    }
    return {"model": model, "task": task}


BUNDLE = "torchaudio:"  # begins the name of one of torchaudio's bundles
MASK = "masked_spec_embed"  # the vector that replaces masked frames in training
NO_MASK = "a mask embedding of zeros, which only training uses"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint is a speech encoder of transformers with float32 weights, its normalisation and
    its card."""

    name: str
    model: torch.nn.Module
    normalise: bool
    card: dict[str, Any]
    kind: str = "huggingface"  # the library whose format the weights had
    left_out: tuple[str, ...] = ()  # weights that are not the encoder's
    assumptions: tuple[str, ...] = ()  # in words, what the files do not state


@dataclass(frozen=True)
class Weights:
    """These weights of an encoder have been read from a file or a bundle. Their names are those of
    their library, without the prefix that they have inside a larger model."""

    name: str  # of the encoder
    where: str  # file or bundle, for messages
    kind: str  # torchaudio or fairseq
    state: dict[str, torch.Tensor]
    left_out: list[str]  # names of weights that are not the encoder's
    stated: Architecture
    card: dict[str, Any] = field(default_factory=dict)


def translate(weights: Weights) -> Checkpoint:
    """Return the model of transformers with these weights. Raises InputError when weights are
    missing or left over, or a property is not stated and cannot be assumed."""
    from transformers import AutoModel  # slow to import

    state = rename(_split_projections(weights.state), weights.kind)
    no_mask = [] if MASK in state else [NO_MASK]
    try:
        width = len(state["encoder.layers.0.attention.q_proj.weight"])
        if weights.kind == "fairseq" and PROJECTION + "weight" not in state:
            # fairseq has no projection between equal widths
            state[PROJECTION + "weight"] = torch.eye(width)
            state[PROJECTION + "bias"] = torch.zeros(width)
        state.setdefault(MASK, torch.zeros(width))
        config, normalise, assumptions = make_config(weights.stated, state)
        # at 0 the model would have no mask embedding
        config.mask_time_prob = config.mask_time_prob or 0.05
        # on "meta" no weight is initialised, so none can be missed by load_state_dict
        with torch.device("meta"):
            model = AutoModel.from_config(config, dtype=torch.float32)
        copies = {name: x.detach().to(torch.float32, copy=True) for name, x in state.items()}
        model.load_state_dict(copies, assign=True)
    except Exception as error:
        # torch and transformers raise many kinds for shapes that do not fit
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"{weights.where} does not have the weights of a HuBERT, wav2vec 2.0 or WavLM "
            f"({type(error).__name__}: {reason}); fetch or make it again"
        ) from error
    return Checkpoint(
        name=weights.name,
        model=model.eval().requires_grad_(False),
        normalise=normalise,
        card=weights.card,
        kind=weights.kind,
        left_out=tuple(weights.left_out),
        assumptions=(*assumptions, *no_mask),
    )


def _split_projections(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Split the projections to query, key and value, which torchaudio's WavLM has in one tensor,
    (3 D, ...)."""
    state: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        prefix, joint_projection, parameter = name.partition("attention.attention.in_proj_")
        if joint_projection:
            for letter, part in zip("qkv", tensor.chunk(3), strict=True):
                state[f"{prefix}attention.{letter}_proj.{parameter}"] = part
        else:
            state[name.replace("attention.attention.", "attention.")] = tensor
    return state


def read_weights(name: str | Path) -> Weights:
    """Read `torchaudio:BUNDLE` or a `.pt` file. Raises InputError for another name, and for weights
    that are damaged or cannot be fetched."""
    if str(name).startswith(BUNDLE):
        return read_bundle(str(name).removeprefix(BUNDLE))
    return read_file(Path(name))


def read_bundle(name: str) -> Weights:
    """Fetch and read one of torchaudio.pipelines. Raises InputError for an unknown name, and where
    it cannot be fetched."""
    import torchaudio

    bundle = getattr(torchaudio.pipelines, name, None)
    if not isinstance(bundle, torchaudio.pipelines.Wav2Vec2Bundle):
        raise InputError(
            f"torchaudio.pipelines has no encoder {name!r}; choose one, such as HUBERT_BASE"
        )
    where = BUNDLE + name
    try:
        state = bundle.get_model().state_dict()
    except Exception as error:  # no network, a damaged cache, a disk that is full
        raise InputError(
            f"cannot fetch {where} ({cut_error(error)}); try again with a network, or give a file"
        ) from error
    model_type = "wav2vec2"
    for other in ("wavlm", "hubert"):
        if name.startswith(other.upper()):
            model_type = other
    stated = read_torchaudio_architecture(bundle._params, where)
    stated = replace(stated, model_type=model_type, normalise=bundle._normalize_waveform)
    state, left_out = _leave_out_extras(_strip_prefix(state))
    return Weights(where, where, "torchaudio", state, left_out, stated)


def read_file(path: Path) -> Weights:
    """Read a fairseq checkpoint or a torchaudio state dict, which have different names of weights.
    Raises InputError for another file."""
    content = read_pt(path) if path.suffix != ".safetensors" else {}
    state, settings = _unwrap(content if isinstance(content, Mapping) else {})
    is_state = all(isinstance(k, str) and isinstance(v, torch.Tensor) for k, v in state.items())
    weights = _strip_prefix(state) if is_state else {}
    if weights and len(weights) < len(state):
        raise InputError(f"{path} holds more than one encoder; save one of them alone")
    kind = "torchaudio" if any(n.startswith(TRANSFORMER) for n in weights) else "fairseq"
    if kind == "fairseq" and not any(".self_attn." in name for name in weights):
        raise InputError(
            f"{path} holds no encoder under torchaudio's or fairseq's names "
            f"({list_first(map(str, state)) or 'it has none'}); give a HuBERT or a wav2vec 2.0 of "
            "these libraries, or the folder of a Hugging Face model"
        )
    state, left_out = _leave_out_extras(weights)
    card_file = path.with_suffix(".card.json")
    card = read_json(card_file) if card_file.is_file() else {}
    # arguments of torchaudio's factory, such as `speechssl convert` writes
    beside = path.with_suffix(".json")
    stated = Architecture(model_type=card.get("model_type"), normalise=card.get("normalise"))
    if beside.is_file():
        stated = read_torchaudio_architecture(read_json(beside), beside, stated)
    if settings is not None:  # what it states comes before what stands beside it
        settings = read_fairseq_architecture(replace_stand_ins(settings), str(path))
        known = {name: value for name, value in vars(settings).items() if value is not None}
        stated = replace(stated, **known)
    if any("attention.attention." in name for name in state):
        stated = replace(stated, model_type="wavlm")
    if "label_embs_concat" in left_out and stated.model_type is None:
        stated = replace(stated, model_type="hubert")
    if "mask_generator.mask_embedding" not in state and MASK in card:
        state["mask_generator.mask_embedding"] = torch.tensor(card[MASK], dtype=torch.float32)
    return Weights(path.name, str(path), kind, state, left_out, stated, card)


def _unwrap(content: Any) -> tuple[Any, Any]:
    """Return the weights in a file of a trainer, and fairseq's settings or None."""
    if isinstance(content.get("model"), Mapping):  # of fairseq
        return content["model"], content.get("cfg") or content.get("args")
    if isinstance(content.get("model_weight"), Mapping):  # of s3prl, converted from fairseq
        settings = {"model": content.get("model_cfg"), "task": content.get("task_cfg")}
        return content["model_weight"], settings
    if isinstance(content.get("state_dict"), Mapping):  # of Lightning
        return content["state_dict"], None
    return content, None


def _strip_prefix(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Remove from the names the prefix that the encoder has inside a larger model, and "model."
    from the names of other weights of that model."""
    prefix = next((p for p in PREFIXES if any(name.startswith(p + CONV) for name in state)), "")
    outer = "model." if prefix.startswith("model.") else ""
    renamed = {}
    for name, tensor in state.items():
        beginning = prefix if name.startswith(prefix) else outer
        renamed[name.removeprefix(beginning)] = tensor
    return renamed


def _leave_out_extras(
    state: Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return the encoder's weights, and the names of the `EXTRAS`, which are left out."""
    left_out = sorted(name for name in state if is_extra(name))
    return {name: tensor for name, tensor in state.items() if name not in left_out}, left_out
