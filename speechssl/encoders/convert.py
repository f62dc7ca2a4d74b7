"""Names of the same weights in three worlds: Hugging Face, torchaudio, fairseq. One line a weight, used in both directions.

`{n}` is a number, `{p}` weight or bias. What a checkpoint holds beyond the encoder (heads, quantisers) is listed in EXTRAS and left
out in the open; every other name must be in the table, or reading fails and names the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch

from speechssl.errors import InputError

KINDS = ("huggingface", "torchaudio", "fairseq")
CONV, TRANSFORMER = "feature_extractor.conv_layers.", "encoder.transformer."
LAYER, TA_LAYER = "encoder.layers.{n}.", TRANSFORMER + "layers.{n}."
Row = tuple[str, str, str | None]

NAMES: tuple[Row, ...] = (
    # huggingface, torchaudio, fairseq
    (CONV + "{n}.conv.{p}", CONV + "{n}.conv.{p}", CONV + "{n}.0.{p}"),
    ("feature_projection.layer_norm.{p}", "encoder.feature_projection.layer_norm.{p}", "layer_norm.{p}"),
    ("feature_projection.projection.{p}", "encoder.feature_projection.projection.{p}", "post_extract_proj.{p}"),
    ("masked_spec_embed", "mask_generator.mask_embedding", "mask_emb"),  # torchaudio: of HuBERTPretrainModel only
    ("encoder.pos_conv_embed.conv.bias", TRANSFORMER + "pos_conv_embed.conv.bias", "encoder.pos_conv.0.bias"),
    ("encoder.pos_conv_embed.conv.weight_g", TRANSFORMER + "pos_conv_embed.conv.weight_g", "encoder.pos_conv.0.weight_g"),
    ("encoder.pos_conv_embed.conv.weight_v", TRANSFORMER + "pos_conv_embed.conv.weight_v", "encoder.pos_conv.0.weight_v"),
    ("encoder.layer_norm.{p}", TRANSFORMER + "layer_norm.{p}", "encoder.layer_norm.{p}"),
    (LAYER + "attention.q_proj.{p}", TA_LAYER + "attention.q_proj.{p}", LAYER + "self_attn.q_proj.{p}"),
    (LAYER + "attention.k_proj.{p}", TA_LAYER + "attention.k_proj.{p}", LAYER + "self_attn.k_proj.{p}"),
    (LAYER + "attention.v_proj.{p}", TA_LAYER + "attention.v_proj.{p}", LAYER + "self_attn.v_proj.{p}"),
    (LAYER + "attention.out_proj.{p}", TA_LAYER + "attention.out_proj.{p}", LAYER + "self_attn.out_proj.{p}"),
    (LAYER + "layer_norm.{p}", TA_LAYER + "layer_norm.{p}", LAYER + "self_attn_layer_norm.{p}"),
    (LAYER + "feed_forward.intermediate_dense.{p}", TA_LAYER + "feed_forward.intermediate_dense.{p}", LAYER + "fc1.{p}"),
    (LAYER + "feed_forward.output_dense.{p}", TA_LAYER + "feed_forward.output_dense.{p}", LAYER + "fc2.{p}"),
    (LAYER + "final_layer_norm.{p}", TA_LAYER + "final_layer_norm.{p}", LAYER + "final_layer_norm.{p}"),
    # WavLM, which torchaudio has and fairseq has not
    (LAYER + "attention.gru_rel_pos_linear.{p}", TA_LAYER + "attention.gru_rel_pos_linear.{p}", None),
    (LAYER + "attention.gru_rel_pos_const", TA_LAYER + "attention.gru_rel_pos_const", None),
    (LAYER + "attention.rel_attn_embed.weight", TA_LAYER + "attention.rel_attn_embed.weight", None),
)
CONV_NORMS: dict[str, Row] = {  # of the front end: one group norm after the first convolution, or a layer norm after each
    "group": (CONV + "0.layer_norm.{p}", CONV + "0.layer_norm.{p}", CONV + "0.2.{p}"),
    "layer": (CONV + "{n}.layer_norm.{p}", CONV + "{n}.layer_norm.{p}", CONV + "{n}.2.1.{p}"),
}
WEIGHT_NORM = (("parametrizations.weight.original0", "weight_g"), ("parametrizations.weight.original1", "weight_v"))

PREFIXES = (
    "w2v_encoder.w2v_model.",
    "w2v_model.",
    "wav2vec2.",
    "model.wav2vec2.",
    "model.",
    "module.",
)  # of the encoder in a model
EXTRAS = (
    r"quantizer\..+", r"project_q\..+", r"project_hid\..+", r"target_glu\..+",  # wav2vec 2.0's pre-training
    r"final_proj\..+", r"label_embs_concat", r"mask_generator\..+", r"logit_generator\..+",  # HuBERT's
    r"(w2v_encoder\.)?proj\..+", r"aux\..+", r"lm_head\..+",  # CTC heads
    r"classifier\..+", r"projector\..+", r"layer_weights", r"tdnn\..+", r"objective\..+", r"feature_extractor\.(weight|bias)",
)  # fmt: skip


def is_extra(name: str) -> bool:
    """Whether a weight is known not to belong to the encoder."""
    return any(re.fullmatch(pattern, name) for pattern in EXTRAS)


def conv_norm(names: Iterable[str]) -> str | None:
    """group or layer, by the names of a front end; None where it has one convolution and both have the same names."""
    names = set(names)
    if any(re.fullmatch(re.escape(CONV) + r"\d+\.2\.1\.weight", name) for name in names):
        return "layer"
    if names & {CONV + "0.2.weight", CONV + "1.0.weight", CONV + "1.conv.weight"}:
        return "layer" if CONV + "1.layer_norm.weight" in names else "group"
    return None


def strip(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights without the prefix that the encoder has inside a larger model, and without that of the whole model."""
    prefix = next((p for p in PREFIXES if any(name.startswith(p + CONV) for name in state)), "")
    outer = "model." if prefix.startswith("model.") else ""
    return {name.removeprefix(prefix if name.startswith(prefix) else outer): tensor for name, tensor in state.items()}


def split_extras(state: Mapping[str, torch.Tensor], kind: str) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The encoder's weights, and the names of what is known not to be its own."""
    rows = [row[KINDS.index(kind)] for row in NAMES]
    left_out = sorted(name for name in state if is_extra(name) and name not in rows)
    return {name: tensor for name, tensor in state.items() if name not in left_out}, left_out


def rename(state: Mapping[str, torch.Tensor], source: str, target: str, norm: str, where: str) -> dict[str, torch.Tensor]:
    """Weights under the names of another world.

    norm: group or layer (`conv_norm`); where: what the weights are from, for the message.
    Raises InputError that names what the table does not have.
    """
    a, b = KINDS.index(source), KINDS.index(target)
    rows = [(_pattern(old), new) for row in (*NAMES, CONV_NORMS[norm]) if (old := row[a]) and (new := row[b])]
    renamed: dict[str, torch.Tensor] = {}
    rest = []
    for name, tensor in state.items():
        new = _match(_old_weight_norm(name), rows)
        new = new if new is None or target == "fairseq" else _new_weight_norm(new)
        if new is None or new in renamed:
            rest.append(name)
        else:
            renamed[new] = tensor
    if rest:
        raise InputError(
            f"{where} has {len(rest)} weights that no HuBERT or wav2vec 2.0 of {target} has ({some(rest)}); give such a checkpoint"
        )
    return renamed


def some(names: Iterable[str]) -> str:
    """The first names, for a message."""
    listed = sorted(names)
    return ", ".join(listed[:3]) + (" ..." if len(listed) > 3 else "")


def _match(name: str, rows: list[tuple[re.Pattern[str], str]]) -> str | None:
    return next((new.format(**found.groupdict()) for pattern, new in rows if (found := pattern.fullmatch(name))), None)


def _pattern(name: str) -> re.Pattern[str]:
    escaped = re.escape(name).replace(r"\{n\}", r"(?P<n>0|[1-9]\d*)").replace(r"\{p\}", "(?P<p>weight|bias)")
    return re.compile(escaped)


def _old_weight_norm(name: str) -> str:
    for new, old in WEIGHT_NORM:
        name = name.replace(new, old)
    return name


def _new_weight_norm(name: str) -> str:
    for new, old in WEIGHT_NORM:
        name = name.replace(old, new)
    return name
