"""Options are filled in from the published models and settings of presets.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from importlib import resources
from typing import Any, TypeVar

import yaml
from transformers import HubertConfig, Wav2Vec2Config, Wav2Vec2Model

from speechssl.encoders.load import load_checkpoint, load_encoder, small_config
from speechssl.errors import InputError
from speechssl.options import changed_options, refuse_given
from speechssl.pretrain.model import load_heads
from speechssl.pretrain.options import Continue, Hubert, Wav2Vec2

Verb = TypeVar("Verb", Hubert, Wav2Vec2, Continue)
PRESETS: dict[str, Any] = yaml.safe_load(
    resources.files("speechssl.pretrain").joinpath("presets.yaml").read_text("utf-8")
)


def hubert_config(size: str) -> HubertConfig:
    """Return the architecture of a HuBERT from scratch."""
    return HubertConfig(**_architecture("hubert", size))


def wav2vec2_config(size: str) -> Wav2Vec2Config:
    """Return the architecture of a wav2vec 2.0 from scratch, with its heads."""
    return Wav2Vec2Config(**_architecture("wav2vec2", size))


def _architecture(kind: str, size: str) -> dict[str, Any]:
    values: dict[str, Any] = PRESETS[kind][size]["architecture"]
    if size != "small":
        return values
    small = small_config().to_diff_dict()
    for name in ("model_type", "transformers_version"):
        del small[name]
    return small | values


def apply_size(o: Verb) -> Verb:
    """Fill in what was not given: from --size, or from the checkpoint that training continues.

    Raises InputError for a size that needs a teacher, a start of another kind, and options of the
    other kind of encoder.
    """
    if isinstance(o, Hubert):
        values = _hubert_values(o)
    elif isinstance(o, Wav2Vec2):
        values = _wav2vec2_values(o)
    else:
        values = _start_values(o)
    crops = max(values["crops"] // o.training.accumulation, 1)
    return fill_in(o, values | {"crops": crops})


def fill_in(options: Any, values: Mapping[str, Any]) -> Any:
    """Return a dataclass in which these values stand for None, in its groups as well."""
    found = {}
    for f in fields(options):
        value = getattr(options, f.name)
        if is_dataclass(value):
            found[f.name] = fill_in(value, values)
        elif value is None and f.name in values:
            found[f.name] = values[f.name]
    return replace(options, **found)


def _hubert_values(o: Hubert) -> dict[str, Any]:
    """Return the settings of the first iteration, or with a teacher of the last."""
    iterations = PRESETS["hubert"][o.size]["iterations"]
    teacher = o.teacher or "mfcc"
    values = iterations[0 if teacher == "mfcc" else -1] | {"teacher": teacher}
    if teacher == "mfcc" and "layer" in values:
        raise InputError(
            f"HuBERT {o.size} needs another HuBERT as teacher; give one with --teacher, such as "
            "facebook/hubert-base-ls960"
        )
    return _without_fitting(values) if o.targets.codebook else values


def _wav2vec2_values(o: Wav2Vec2) -> dict[str, Any]:
    """Return the settings of a size; with a start its heads are those of the start."""
    size = PRESETS["wav2vec2"][o.size]
    contrast = _head_settings(o.start) if o.start else size["contrast"]
    return size["options"] | contrast


def _start_values(o: Continue) -> dict[str, Any]:
    """Return the settings of the loss that the start was trained with; a HuBERT's targets are of
    the last layer."""
    model: Any = load_checkpoint(o.start).model
    if isinstance(model, Wav2Vec2Model):
        given = {"teacher": o.teacher} | changed_options(o.targets) | changed_options(o.prediction)
        refuse_given(given, given, f"on {o.start}, a wav2vec 2.0")
        return PRESETS["continue"]["wav2vec2"] | _head_settings(o.start)
    given = changed_options(o.contrast)
    refuse_given(given, given, f"on {o.start}, which is no wav2vec 2.0")
    width = model.config.hidden_size
    nearest = min(PRESETS["hubert"], key=lambda size: abs(hubert_config(size).hidden_size - width))
    projection = PRESETS["hubert"][nearest]["iterations"][0]["projection"]
    values = PRESETS["continue"]["hubert"] | {"teacher": o.start, "projection": projection}
    if o.targets.codebook:
        return _without_fitting(values)
    if o.teacher != "mfcc":
        values["layer"] = load_encoder(o.teacher or o.start).layers
    return values


def _without_fitting(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what a codebook says itself: what it was fitted on."""
    return {name: value for name, value in values.items() if name not in ("layer", "clusters")}


def _head_settings(start: str) -> dict[str, Any]:
    """Return what the heads of a checkpoint were trained with; base's where it has none or does not
    say."""
    _, trained_with = load_heads(start, load_checkpoint(start))
    return PRESETS["wav2vec2"]["base"]["contrast"] | trained_with
