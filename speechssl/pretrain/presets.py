"""The options of a run, and the published ones: presets.yaml has them, and their sources."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import yaml
from transformers import HubertConfig, Wav2Vec2Config

from speechssl.augment.training import TrainingDistortions
from speechssl.encoders.load import small_config
from speechssl.errors import InputError
from speechssl.options import TrainingOptions
from speechssl.pretrain.data import MaskOptions
from speechssl.pretrain.model import (
    PENALTY,
    AdversaryOptions,
    ContrastiveOptions,
    DistilOptions,
    Temperature,
)


@dataclass(frozen=True)
class HubertOptions:
    """One iteration of HuBERT. `teacher` is "mfcc" or an encoder whose `layer` gives the
    targets."""

    training: TrainingOptions
    teacher: str = "mfcc"
    layer: int = 0
    smooth: int = 1  # frames the teacher's features are averaged over
    clusters: int = 100  # K
    # of the recordings that the codebook is fitted on, drawn by the seed; None: see `draw`
    share: float | None = None
    budget: int | None = None  # frames of them that k-means gets; None: `kmeans.BUDGET`
    starts: int | None = None  # of k-means; None: `kmeans.STARTS`
    # of the teacher, in the place of one that is fitted here; holds layer, smoothing and K
    codebook: str | None = None
    # an encoder to train further; None: from scratch, as published for both iterations
    start: str | None = None
    mask: MaskOptions = MaskOptions(visible_weight=1.0)
    crops: int = 10  # a batch of full length; one of shorter crops has more
    seconds: float = 4.0  # the longest crop
    # round the weights of the finished encoder to bf16: what is fitted on it gets them so
    save_bf16: bool = False
    size: str | None = None  # of a model from scratch; None: small
    recordings: int | None = None  # only so many, drawn by the seed
    reference: bool = True  # read targets off reference readings, where the corpus has them
    projection: int = 128  # width in which labels are compared
    penalty: float = PENALTY  # weight of the CNN's mean square
    gradient_scale: float = 1.0  # of the gradient into the CNN
    # of the teacher whose clusters are the targets: bf16 is faster and changes a label in a hundred
    precision: str | None = None
    # share of the crops of which a part is silenced, as short recordings have it
    silence: float | None = None
    distort: TrainingDistortions | None = None
    distil: DistilOptions | None = None
    adversary: AdversaryOptions | None = None


@dataclass(frozen=True)
class Wav2Vec2Options:
    """One contrastive run. The defaults are those of the size `small`; `contrastive` None: that of
    the folder it starts from."""

    training: TrainingOptions
    size: str = "small"  # of a model from scratch
    contrastive: ContrastiveOptions | None = None
    start: str | None = None  # an encoder to train further; None: from scratch
    mask: MaskOptions = MaskOptions(0.65, 10)
    negatives: int = 100
    temperature: Temperature = Temperature()
    crops: int = 10  # as in HubertOptions, and so below
    seconds: float = 4.0
    recordings: int | None = None
    silence: float | None = None
    distort: TrainingDistortions | None = None
    distil: DistilOptions | None = None
    adversary: AdversaryOptions | None = None


Options = HubertOptions | Wav2Vec2Options


@dataclass(frozen=True)
class HubertSize:
    """A HuBERT and its training: architecture (of a HubertConfig), whether its input is normalised,
    and its iterations."""

    architecture: dict[str, Any]
    normalise: bool
    iterations: tuple[HubertOptions, ...]

    def config(self) -> HubertConfig:
        return HubertConfig(**self.architecture)


@dataclass(frozen=True)
class Wav2Vec2Size:
    """A wav2vec 2.0 and its training, as `HubertSize`."""

    architecture: dict[str, Any]
    normalise: bool
    options: Wav2Vec2Options
    contrastive: ContrastiveOptions

    def config(self) -> Wav2Vec2Config:
        return Wav2Vec2Config(**self.architecture)


def _sizes() -> tuple[dict[str, HubertSize], dict[str, Wav2Vec2Size]]:
    """What presets.yaml has, by size."""
    listed = yaml.safe_load(
        resources.files("speechssl.pretrain").joinpath("presets.yaml").read_text("utf-8")
    )
    parts: dict[str, Any] = {
        "training": TrainingOptions,
        "mask": MaskOptions,
        "temperature": Temperature,
    }
    small = {
        k: v
        for k, v in small_config().to_diff_dict().items()
        if k not in ("model_type", "transformers_version")
    }

    def options_of(kind: Any, values: dict[str, Any]) -> Any:
        return kind(
            **{
                name: parts[name](**value) if name in parts else value
                for name, value in values.items()
            }
        )

    hubert, wav2vec2 = {}, {}
    for name, size in listed["hubert"].items():
        iterations = tuple(options_of(HubertOptions, iteration) for iteration in size["iterations"])
        hubert[name] = HubertSize(size["architecture"] or small, size["normalise"], iterations)
    for name, size in listed["wav2vec2"].items():
        architecture = (small if name == "small" else {}) | size["architecture"]
        losses = (
            options_of(Wav2Vec2Options, size["options"]),
            ContrastiveOptions(**size["contrastive"]),
        )
        wav2vec2[name] = Wav2Vec2Size(architecture, size["normalise"], *losses)
    return hubert, wav2vec2


HUBERT, WAV2VEC2 = _sizes()


def hubert_preset(size: str, teacher: str | None = None) -> HubertOptions:
    """HuBERT of a size: the first iteration, or with a teacher the last. Raises InputError for
    large without a teacher."""
    first = teacher in (None, "mfcc")
    preset = HUBERT[size].iterations[0 if first else -1]
    if first and preset.teacher != "mfcc":
        raise InputError(
            f"HuBERT {size} needs another HuBERT as teacher; give one with --teacher, such as "
            "facebook/hubert-base-ls960"
        )
    return replace(preset, teacher=teacher or "mfcc")


def wav2vec2_preset(size: str, start: str | None = None) -> Wav2Vec2Options:
    """wav2vec 2.0 of a size; with a start its heads are those of the start."""
    chosen = WAV2VEC2[size]
    return replace(chosen.options, contrastive=None if start else chosen.contrastive)
