"""Checkpoints of torchaudio and fairseq are read as encoders of transformers: names of weights,
architecture, and files.

One table has the names of the same weights in Hugging Face, torchaudio and fairseq, a line a
weight, used in both directions. The architecture follows from the shapes of the weights; strides,
heads, the place of the layer norms and whether the input is normalised do not, and come from
fairseq's settings or torchaudio's factory arguments (`Architecture`). Where nobody states them, the
published models' values are taken, which is reported on stderr.

Letters: C channels, K kernel size, D width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from speechssl.artifacts import read_json
from speechssl.encoders.unpickle import plain, read_pt
from speechssl.errors import InputError, first_line

KINDS = ("huggingface", "torchaudio", "fairseq")
CONV, TRANSFORMER = "feature_extractor.conv_layers.", "encoder.transformer."
LAYER, TA_LAYER = "encoder.layers.{n}.", TRANSFORMER + "layers.{n}."
Row = tuple[str, str, str | None]

NAMES: tuple[Row, ...] = (
    # huggingface, torchaudio, fairseq
    # `{n}` is a number, `{p}` weight or bias
    (CONV + "{n}.conv.{p}", CONV + "{n}.conv.{p}", CONV + "{n}.0.{p}"),
    (
        "feature_projection.layer_norm.{p}",
        "encoder.feature_projection.layer_norm.{p}",
        "layer_norm.{p}",
    ),
    (
        "feature_projection.projection.{p}",
        "encoder.feature_projection.projection.{p}",
        "post_extract_proj.{p}",
    ),
    # torchaudio: of HuBERTPretrainModel only
    ("masked_spec_embed", "mask_generator.mask_embedding", "mask_emb"),
    (
        "encoder.pos_conv_embed.conv.bias",
        TRANSFORMER + "pos_conv_embed.conv.bias",
        "encoder.pos_conv.0.bias",
    ),
    (
        "encoder.pos_conv_embed.conv.weight_g",
        TRANSFORMER + "pos_conv_embed.conv.weight_g",
        "encoder.pos_conv.0.weight_g",
    ),
    (
        "encoder.pos_conv_embed.conv.weight_v",
        TRANSFORMER + "pos_conv_embed.conv.weight_v",
        "encoder.pos_conv.0.weight_v",
    ),
    ("encoder.layer_norm.{p}", TRANSFORMER + "layer_norm.{p}", "encoder.layer_norm.{p}"),
    (
        LAYER + "attention.q_proj.{p}",
        TA_LAYER + "attention.q_proj.{p}",
        LAYER + "self_attn.q_proj.{p}",
    ),
    (
        LAYER + "attention.k_proj.{p}",
        TA_LAYER + "attention.k_proj.{p}",
        LAYER + "self_attn.k_proj.{p}",
    ),
    (
        LAYER + "attention.v_proj.{p}",
        TA_LAYER + "attention.v_proj.{p}",
        LAYER + "self_attn.v_proj.{p}",
    ),
    (
        LAYER + "attention.out_proj.{p}",
        TA_LAYER + "attention.out_proj.{p}",
        LAYER + "self_attn.out_proj.{p}",
    ),
    (LAYER + "layer_norm.{p}", TA_LAYER + "layer_norm.{p}", LAYER + "self_attn_layer_norm.{p}"),
    (
        LAYER + "feed_forward.intermediate_dense.{p}",
        TA_LAYER + "feed_forward.intermediate_dense.{p}",
        LAYER + "fc1.{p}",
    ),
    (
        LAYER + "feed_forward.output_dense.{p}",
        TA_LAYER + "feed_forward.output_dense.{p}",
        LAYER + "fc2.{p}",
    ),
    (
        LAYER + "final_layer_norm.{p}",
        TA_LAYER + "final_layer_norm.{p}",
        LAYER + "final_layer_norm.{p}",
    ),
    # WavLM, which torchaudio has and fairseq has not
    (
        LAYER + "attention.gru_rel_pos_linear.{p}",
        TA_LAYER + "attention.gru_rel_pos_linear.{p}",
        None,
    ),
    (LAYER + "attention.gru_rel_pos_const", TA_LAYER + "attention.gru_rel_pos_const", None),
    (LAYER + "attention.rel_attn_embed.weight", TA_LAYER + "attention.rel_attn_embed.weight", None),
)
# of the front end: one group norm after the first convolution, or a layer norm after each
CONV_NORMS: dict[str, Row] = {
    "group": (CONV + "0.layer_norm.{p}", CONV + "0.layer_norm.{p}", CONV + "0.2.{p}"),
    "layer": (CONV + "{n}.layer_norm.{p}", CONV + "{n}.layer_norm.{p}", CONV + "{n}.2.1.{p}"),
}
WEIGHT_NORM = (
    ("parametrizations.weight.original0", "weight_g"),
    ("parametrizations.weight.original1", "weight_v"),
)

# of the encoder inside a larger model
PREFIXES = (
    "w2v_encoder.w2v_model.",
    "w2v_model.",
    "wav2vec2.",
    "model.wav2vec2.",
    "model.",
    "module.",
)
EXTRAS = (  # what a checkpoint holds beyond the encoder: listed, and left out
    # wav2vec 2.0's pre-training
    r"quantizer\..+", r"project_q\..+", r"project_hid\..+", r"target_glu\..+",
    # HuBERT's
    r"final_proj\..+", r"label_embs_concat", r"mask_generator\..+", r"logit_generator\..+",
    r"(w2v_encoder\.)?proj\..+", r"aux\..+", r"lm_head\..+",  # CTC heads
    r"classifier\..+", r"projector\..+", r"layer_weights", r"tdnn\..+", r"objective\..+",
    r"feature_extractor\.(weight|bias)",
)  # fmt: skip


def is_extra(name: str) -> bool:
    """Say whether a weight is known not to belong to the encoder."""
    return any(re.fullmatch(pattern, name) for pattern in EXTRAS)


def rename(
    state: Mapping[str, torch.Tensor], source: str, target: str, norm: str, where: str
) -> dict[str, torch.Tensor]:
    """Give weights the names of another library.

    norm: of the front end, group or layer; where: what the weights are from, for the message.
    Raises InputError that names what the table does not have.
    """
    a, b = KINDS.index(source), KINDS.index(target)
    rows: list[tuple[re.Pattern[str], str]] = []
    for row in (*NAMES, CONV_NORMS[norm]):
        if (old := row[a]) and (new := row[b]):
            pattern = (
                re.escape(old)
                .replace(r"\{n\}", r"(?P<n>0|[1-9]\d*)")
                .replace(r"\{p\}", "(?P<p>weight|bias)")
            )
            rows.append((re.compile(pattern), new))
    renamed: dict[str, torch.Tensor] = {}
    rest = []
    for name, tensor in state.items():
        plain_name = name
        for parametrised, original in WEIGHT_NORM:
            plain_name = plain_name.replace(parametrised, original)
        new = ""
        for expression, template in rows:
            match = expression.fullmatch(plain_name)
            if match:
                new = template.format(**match.groupdict())
                break
        if target != "fairseq":
            for parametrised, original in WEIGHT_NORM:
                new = new.replace(original, parametrised)
        if not new or new in renamed:
            rest.append(name)
        else:
            renamed[new] = tensor
    if rest:
        raise InputError(
            f"{where} has {len(rest)} weights that no HuBERT or wav2vec 2.0 of {target} has "
            f"({brief(rest)}); give such a checkpoint"
        )
    return renamed


def brief(names: Iterable[str]) -> str:
    """List the first names, for a message."""
    listed = sorted(names)
    return ", ".join(listed[:3]) + (" ..." if len(listed) > 3 else "")


KERNELS = (10, 3, 3, 3, 3, 2, 2)  # of every published model
STRIDES = (5, 2, 2, 2, 2, 2, 2)
HEAD_WIDTH = 64
MAX_DISTANCE = 800
POSITIONS = "encoder.pos_conv_embed.conv.parametrizations.weight.original1"
PROJECTION = "feature_projection.projection."


@dataclass(frozen=True)
class Architecture:
    """An architecture has what weights do not show of it; None where it is not stated."""

    strides: tuple[int, ...] | None = None  # of the front end's convolutions
    heads: int | None = None
    # layer norm before attention and feed-forward (HuBERT large) or after (base)
    pre_norm: bool | None = None
    normalise: bool | None = None  # zero mean and unit variance over the utterance first
    model_type: str | None = None  # of transformers; HuBERT and wav2vec 2.0 compute the same
    norm: str | None = None  # of the front end: group or layer
    max_distance: int | None = None  # of WavLM's relative positions
    convolutions: tuple[tuple[int, ...], ...] | None = None  # (C, K) that the strides go with

    def over(self, other: Architecture) -> Architecture:
        """Return this, and where it states nothing the other."""
        stated = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(other, **{name: x for name, x in stated.items() if x is not None})


def architecture_of_fairseq(settings: Any, where: str) -> Architecture:
    """Read fairseq's `cfg` ({"model": ..., "task": ...}) or older `args` (all in one). Raises
    InputError for another activation."""

    def section(settings: dict[str, Any], name: str) -> dict[str, Any]:
        part = settings.get(name)
        return part if isinstance(part, dict) else settings

    def of_type(section: dict[str, Any], name: str, kind: type) -> Any:
        value = section.get(name)
        return value if type(value) is kind else None  # not "${task.normalize}"

    settings = settings if isinstance(settings, dict) else {}
    model, task = section(settings, "model"), section(settings, "task")
    before = model.get("w2v_args")  # a fine-tuned model holds the settings of its pre-training
    if isinstance(before, dict):
        model = section(before, "model")
    if model.get("activation_fn", "gelu") != "gelu":
        raise InputError(
            f"{where} has the activation {model['activation_fn']}, and only gelu is supported; "
            "give another checkpoint"
        )
    # an expression such as "[(512,10,5)] + [(512,3,2)] * 4 + [(512,2,2)] * 2", of (C, K, stride)
    layers: list[tuple[int, ...]] = []
    text = model.get("conv_feature_layers")
    if isinstance(text, str) and re.fullmatch(r"[\s\d()\[\],*+]+", text):
        for listed, times in re.findall(r"\[([^\]]*)\]\s*(?:\*\s*(\d{1,2}))?", text):
            triples = re.findall(r"\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)", listed)
            layers += [tuple(map(int, numbers)) for numbers in triples] * int(times or 1)
    name = str(model.get("_name") or model.get("arch") or "")
    return Architecture(
        strides=tuple(stride for _, _, stride in layers) or None,
        heads=of_type(model, "encoder_attention_heads", int),
        pre_norm=of_type(model, "layer_norm_first", bool),
        normalise=of_type(task, "normalize", bool),
        model_type="hubert" if "hubert" in name else "wav2vec2" if name else None,
        convolutions=tuple((channels, kernel) for channels, kernel, _ in layers) or None,
    )


def architecture_of_torchaudio(arguments: Mapping[str, Any]) -> Architecture:
    """Read the arguments of `torchaudio.models.wav2vec2_model` (or `wavlm_model`)."""
    layers = arguments["extractor_conv_layer_config"] or [
        (512, k, s) for k, s in zip(KERNELS, STRIDES, strict=True)
    ]
    return Architecture(
        strides=tuple(stride for _, _, stride in layers),
        heads=arguments["encoder_num_heads"],
        pre_norm=arguments["encoder_layer_norm_first"],
        norm=arguments["extractor_mode"].removesuffix("_norm"),
        max_distance=arguments.get("encoder_max_distance"),
        convolutions=tuple((channels, kernel) for channels, kernel, _ in layers),
    )


def config_of(
    stated: Architecture, state: Mapping[str, torch.Tensor], where: str
) -> tuple[Any, bool, list[str]]:
    """Return the configuration of transformers, whether the input is normalised, and in words what
    was assumed.

    state: weights under Hugging Face's names. Raises InputError where what must be known is neither
    stated nor usual.
    """

    shapes = convolution_shapes(state, where)
    kernels = tuple(k for _, _, k in shapes)
    width = shape(state, PROJECTION + "weight", where)[0]
    _, grouped, positions = shape(state, POSITIONS, where)
    if stated.convolutions is not None and stated.convolutions != tuple(
        (c, k) for c, _, k in shapes
    ):
        raise InputError(
            f"the convolutions of {where} do not match its settings; fetch or make it again"
        )
    if stated.norm is None:
        raise InputError(
            f"{where} has one convolution and does not state how it is normalised; give a "
            "checkpoint with its settings"
        )
    guesses = []
    strides = stated.strides
    if strides is None:
        if kernels != KERNELS:
            listed = ", ".join(map(str, kernels))
            raise InputError(
                f"{where} does not state its strides, and its kernels ({listed}) are unusual; "
                "use `speechssl convert --strides`"
            )
        strides = STRIDES
        guesses.append("strides 5 2 2 2 2 2 2")
    heads, constant = stated.heads, state.get("encoder.layers.0.attention.gru_rel_pos_const")
    if heads is None:
        if constant is not None and constant.ndim == 4:  # WavLM's has an axis of heads
            heads = constant.shape[1]
        elif width % HEAD_WIDTH:
            reason = f"{width} is no multiple of {HEAD_WIDTH}"
            raise InputError(
                f"{where} does not state its number of heads, and {reason}; give "
                "--heads to `speechssl convert`"
            )
        else:
            heads = width // HEAD_WIDTH
        guesses.append(f"{heads} heads")
    pre_norm = stated.pre_norm
    if pre_norm is None:  # as in the published models: large ones have both
        pre_norm = stated.norm == "layer"
        guesses.append(f"layer norm {'before' if pre_norm else 'after'} attention")
    normalise = stated.normalise
    if normalise is None:
        normalise = stated.norm == "layer"
        guesses.append(f"input {'' if normalise else 'not '}normalised")
    relative = {}
    if stated.model_type == "wavlm":
        if stated.max_distance is None:
            guesses.append(f"relative positions up to {MAX_DISTANCE} frames")
        buckets = shape(state, "encoder.layers.0.attention.rel_attn_embed.weight", where)[0]
        relative = {
            "num_buckets": buckets,
            "max_bucket_distance": stated.max_distance or MAX_DISTANCE,
        }
    if len(strides) != len(shapes) or min(strides) < 1:
        raise InputError(
            f"{where} has {len(shapes)} convolutions, and {len(strides)} strides "
            "were given; give one for each"
        )
    if heads < 1 or width % heads:
        raise InputError(
            f"{where} has width {width}, which is no multiple of {heads} heads; give --heads"
        )
    from transformers import AutoConfig  # slow to import

    config = AutoConfig.for_model(
        stated.model_type or "wav2vec2",
        conv_dim=tuple(c for c, _, _ in shapes),
        conv_kernel=kernels,
        conv_stride=strides,
        conv_bias=CONV + "0.conv.bias" in state,
        feat_extract_norm=stated.norm,
        hidden_size=width,
        num_hidden_layers=count(state, r"encoder\.layers\.(\d+)\..+", where),
        num_attention_heads=heads,
        intermediate_size=shape(
            state, "encoder.layers.0.feed_forward.intermediate_dense.weight", where
        )[0],
        num_conv_pos_embeddings=positions,
        num_conv_pos_embedding_groups=width // max(grouped, 1),
        do_stable_layer_norm=pre_norm,
        **relative,
    )
    return config, normalise, guesses


def convolution_shapes(state: Mapping[str, torch.Tensor], where: str) -> list[tuple[int, ...]]:
    """Return (C', C, K) of the front end's convolutions."""
    number = count(state, re.escape(CONV) + r"(\d+)\.conv\.weight", where)
    return [shape(state, f"{CONV}{n}.conv.weight", where) for n in range(number)]


def count(state: Mapping[str, torch.Tensor], pattern: str, where: str) -> int:
    """Count parts that are numbered from 0. pattern: of the names of weights, with a group for
    the number."""
    numbers = {int(match[1]) for name in state if (match := re.fullmatch(pattern, name))}
    if numbers != set(range(len(numbers))) or not numbers:
        shown = pattern.replace("\\", "")
        raise InputError(
            f"{where} lacks weights ({shown} has the numbers {sorted(numbers)}); fetch it again"
        )
    return len(numbers)


def shape(state: Mapping[str, torch.Tensor], name: str, where: str) -> tuple[int, ...]:
    """Return the shape of a weight: (C', C, K) of a convolution, (out, in) of a product."""
    axes = 3 if "conv" in name else 2
    if name not in state or state[name].ndim != axes:
        raise InputError(
            f"{where} lacks the weight {name}, or it has another number of axes "
            f"than {axes}; fetch or make it again"
        )
    return tuple(state[name].shape)


# the same of an architecture in Hugging Face's config, torchaudio's arguments, fairseq's model; ""
# where it has none
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


def torchaudio_arguments(config: Any) -> dict[str, Any]:
    """Return the arguments of `torchaudio.models.wav2vec2_model` (of a WavLM: `wavlm_model`)."""
    wavlm = config.model_type == "wavlm"
    rows = SETTINGS if wavlm else SETTINGS[:-2]
    return {name: getattr(config, ours) for ours, name, _ in rows} | {
        "extractor_mode": f"{config.feat_extract_norm}_norm",
        "extractor_conv_layer_config": [
            list(x)
            for x in zip(config.conv_dim, config.conv_kernel, config.conv_stride, strict=True)
        ],
        "aux_num_out": None,
    }


def fairseq_settings(config: Any, normalise: bool) -> dict[str, Any]:
    """Return the `cfg` of a fairseq checkpoint, as plain values."""
    hubert = config.model_type == "hubert"
    layers = [
        tuple(x) for x in zip(config.conv_dim, config.conv_kernel, config.conv_stride, strict=True)
    ]
    model = {
        "_name": "hubert" if hubert else "wav2vec2",
        "extractor_mode": "default" if config.feat_extract_norm == "group" else "layer_norm",
        "conv_feature_layers": str(layers),
        "activation_fn": "gelu",
        **{name: getattr(config, ours) for ours, _, name in SETTINGS if name},
    }
    task = {
        "_name": "hubert_pretraining" if hubert else "audio_pretraining",
        "sample_rate": 16_000,
        "normalize": normalise,
    }
    return {"model": model, "task": task}


BUNDLE = "torchaudio:"
MASK = "masked_spec_embed"  # stands for hidden frames; only training uses it
NO_MASK = "a mask embedding of zeros, which only training uses"
STATED_IN_CARD = ("normalise", "model_type", "norm")


@dataclass(frozen=True)
class Weights:
    """Weights of an encoder have the names of the library they come from, without a prefix and what
    is not the encoder's."""

    name: str
    where: str  # for messages
    kind: str  # torchaudio or fairseq
    state: dict[str, torch.Tensor]
    left_out: list[str]
    stated: Architecture
    card: dict[str, Any] = field(default_factory=dict)


def translate(weights: Weights, overrides: Architecture) -> tuple[torch.nn.Module, bool, list[str]]:
    """Make the model of transformers with these weights; say whether its input is normalised, and
    in words what was assumed.

    overrides: what the user states, which wins.
    Raises InputError when a weight has no place, a place has no weight, or what must be known is
    not stated.
    """
    where = weights.where
    stated = overrides.over(weights.stated)
    names = set(weights.state)
    # the names tell, but not those of one convolution, which has the same in both
    norm = weights.stated.norm or overrides.norm
    if any(re.fullmatch(re.escape(CONV) + r"\d+\.2\.1\.weight", name) for name in names):
        norm = "layer"
    elif names & {CONV + "0.2.weight", CONV + "1.0.weight", CONV + "1.conv.weight"}:
        norm = "layer" if CONV + "1.layer_norm.weight" in names else "group"
    state: dict[str, torch.Tensor] = {}
    # torchaudio's WavLM holds query, key and value in one tensor, (3 D, ...)
    for name, tensor in weights.state.items():
        stem, in_one, parameter = name.partition("attention.attention.in_proj_")
        if in_one:
            state |= {
                f"{stem}attention.{x}_proj.{parameter}": t
                for x, t in zip("qkv", tensor.chunk(3), strict=True)
            }
        else:
            state[name.replace("attention.attention.", "attention.")] = tensor
    state = rename(state, weights.kind, "huggingface", norm or "group", where)
    stated = replace(stated, norm=norm)
    if overrides.strides is not None:
        stated = replace(stated, convolutions=None)
    channels = convolution_shapes(state, where)[-1][0]
    width = shape(state, "encoder.layers.0.attention.q_proj.weight", where)[0]
    # it has none between equal widths
    if weights.kind == "fairseq" and PROJECTION + "weight" not in state and channels == width:
        state |= {PROJECTION + "weight": torch.eye(width), PROJECTION + "bias": torch.zeros(width)}
    filled = [] if MASK in state else [NO_MASK]
    state.setdefault(MASK, torch.zeros(width))
    config, normalise, guesses = config_of(stated, state, where)
    # or the model would have no mask embedding
    config.mask_time_prob = config.mask_time_prob or 0.05
    from transformers import AutoModel  # slow to import

    try:
        # nothing is initialised, so nothing can stay as it was initialised
        with torch.device("meta"):
            model = AutoModel.from_config(config, dtype=torch.float32)
    except Exception as error:
        # torch and transformers have their own for shapes that make no sense
        reason = first_line(error)
        raise InputError(
            f"{where} has weights of shapes that no encoder has ({reason}); fetch or make it again"
        ) from error
    missing = model.state_dict().keys() - state.keys()
    rest = state.keys() - model.state_dict().keys()
    faults = []
    if missing:
        faults.append(f"lacks {len(missing)} weights ({brief(missing)})")
    if rest:
        faults.append(f"has {len(rest)} too many ({brief(rest)})")
    if faults:
        raise InputError(f"{where} {' and '.join(faults)}; fetch or make it again")
    copies = {name: tensor.detach().to(torch.float32, copy=True) for name, tensor in state.items()}
    try:
        model.load_state_dict(copies, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(
            f"{where} has weights whose shapes do not match its first ones "
            f"({reason}); fetch it again"
        ) from error
    return model.eval().requires_grad_(False), normalise, guesses + filled


def read_weights(name: str | Path) -> Weights:
    """Read `torchaudio:BUNDLE` or a `.pt` file. Raises InputError for what is neither, is damaged,
    or cannot be fetched."""
    if str(name).startswith(BUNDLE):
        return read_bundle(str(name).removeprefix(BUNDLE))
    return read_file(Path(name))


def read_bundle(name: str) -> Weights:
    """Read one of torchaudio.pipelines, which fetches it. Raises InputError for an unknown name,
    and where it cannot be fetched."""
    import torchaudio

    bundle = getattr(torchaudio.pipelines, name, None)
    if not isinstance(bundle, torchaudio.pipelines.Wav2Vec2Bundle):
        names = [
            n
            for n, x in vars(torchaudio.pipelines).items()
            if type(x) is torchaudio.pipelines.Wav2Vec2Bundle
        ]
        raise InputError(
            f"torchaudio has no encoder {name!r}; choose from {', '.join(names)}, "
            "or one with a CTC head"
        )
    where = BUNDLE + name
    try:
        state = bundle.get_model().state_dict()
    except Exception as error:  # no network, a damaged cache, a disk that is full
        raise InputError(
            f"cannot fetch {where} ({first_line(error)}); try again with a network, or give a file"
        ) from error
    kind = "wav2vec2"
    for model_type in ("wavlm", "hubert"):
        if name.startswith(model_type.upper()):
            kind = model_type
    stated = replace(
        architecture_of_torchaudio(bundle._params),
        model_type=kind,
        normalise=bundle._normalize_waveform,
    )
    state, left_out = _without_extras(_without_prefix(state), "torchaudio")
    return Weights(where, where, "torchaudio", state, left_out, stated)


def read_file(path: Path) -> Weights:
    """Read a fairseq checkpoint or a torchaudio state dict; its names say which."""
    if path.suffix == ".safetensors":
        raise InputError(
            f"{path} alone does not identify the model; give its folder, with config.json"
        )
    content = read_pt(path)
    settings = None
    state: Any = content if isinstance(content, Mapping) else {}
    if isinstance(state.get("model"), Mapping):  # fairseq's
        state, settings = state["model"], state.get("cfg") or state.get("args")
    elif isinstance(state.get("model_weight"), Mapping):  # s3prl's copies of fairseq's
        settings = {"model": state.get("model_cfg"), "task": state.get("task_cfg")}
        state = state["model_weight"]
    elif isinstance(state.get("state_dict"), Mapping):  # Lightning's
        state = state["state_dict"]
    if not state or not all(
        isinstance(k, str) and isinstance(v, torch.Tensor) for k, v in state.items()
    ):
        raise InputError(
            f"{path} contains no named weights; give a fairseq checkpoint or a "
            "torchaudio state dict"
        )
    weights = _without_prefix(state)
    if len(state) != len(weights):
        raise InputError(f"{path} contains more than one encoder; give a checkpoint with one")
    kind = "torchaudio" if any(n.startswith(TRANSFORMER) for n in weights) else "fairseq"
    if kind == "fairseq" and not any(".self_attn." in name for name in weights):
        if any("feature_projection." in name for name in weights):
            raise InputError(f"{path} has Hugging Face's names; give its folder, with config.json")
        raise InputError(
            f"{path} has neither torchaudio's nor fairseq's names "
            f"({brief(weights)}); give a HuBERT or a wav2vec 2.0"
        )
    state, left_out = _without_extras(weights, kind)
    card_file, arguments = path.with_suffix(".card.json"), path.with_suffix(".json")
    card = read_json(card_file) if card_file.is_file() else {}
    if kind == "fairseq":
        try:
            stated = architecture_of_fairseq(plain(settings), str(path))
        except RecursionError:
            raise InputError(f"{path} has recursive settings; fetch or make it again") from None
        stated = stated.over(
            Architecture(model_type="hubert" if "label_embs_concat" in left_out else None)
        )
        return Weights(path.name, str(path), kind, state, left_out, stated, card)
    try:
        # beside a file of torchaudio may lie what `speechssl convert` writes: the factory's
        # arguments and a card
        stated = Architecture()
        if arguments.is_file():
            stated = architecture_of_torchaudio(read_json(arguments))
        by_card = Architecture(**{name: card[name] for name in STATED_IN_CARD if name in card})
        stated = by_card.over(stated)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = first_line(error)
        raise InputError(
            f"{arguments} does not hold the arguments of wav2vec2_model ({reason}); "
            "correct or delete it"
        ) from error
    if any("attention.attention." in name for name in state):
        stated = replace(stated, model_type="wavlm")
    if "mask_generator.mask_embedding" not in state and MASK in card:
        state = state | {
            "mask_generator.mask_embedding": torch.tensor(card[MASK], dtype=torch.float32)
        }
    return Weights(path.name, str(path), kind, state, left_out, stated, card)


def _without_prefix(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Remove the prefix that the encoder has inside a larger model, and that of the whole model."""
    prefix = next((p for p in PREFIXES if any(name.startswith(p + CONV) for name in state)), "")
    outer = "model." if prefix.startswith("model.") else ""
    return {
        name.removeprefix(prefix if name.startswith(prefix) else outer): tensor
        for name, tensor in state.items()
    }


def _without_extras(
    state: Mapping[str, torch.Tensor], kind: str
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return the encoder's weights, and the names of what is known not to be its own."""
    rows = [row[KINDS.index(kind)] for row in NAMES]
    left_out = sorted(name for name in state if is_extra(name) and name not in rows)
    return {name: tensor for name, tensor in state.items() if name not in left_out}, left_out
