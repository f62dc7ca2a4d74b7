"""Runs of pre-training with the settings of their papers, or fit for a checkpoint, of which some may be replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from transformers import Wav2Vec2Model

from speechssl.encoders.loading import load_checkpoint
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.errors import InputError
from speechssl.pretraining.contrastive import ContrastiveOptions
from speechssl.pretraining.contrastive_run import ContrastiveRun, pretrain_wav2vec2
from speechssl.pretraining.heads import head_options
from speechssl.pretraining.iteration import IterationOptions, pretrain
from speechssl.pretraining.masking import MaskOptions
from speechssl.pretraining.sizes import HUBERT, WAV2VEC2
from speechssl.training import TrainingOptions

NAMES = {  # of what is typed, where an option of a run is called otherwise
    "mask_probability": "probability",
    "mask_length": "length",
    "crop_seconds": "seconds",
    "feature_penalty": "penalty",
}
CONTINUED = TrainingOptions(steps=1500, learning_rate=3e-4, warmup_steps=100)


@dataclass(frozen=True)
class Plan:
    """options: an `IterationOptions` or a `ContrastiveRun`; function: what runs it."""

    options: Any
    function: Callable[[Path, Path, Any], SpeechEncoder]

    def with_options(self, typed: Mapping[str, Any], **extras: Any) -> Plan:
        """typed: values by the names of the command line; what is no option of this run is left alone. extras: see `Run`."""
        values = {NAMES.get(name, name): value for name, value in typed.items()}
        made = replace(self.options, **_fitting(self.options, values), **extras)
        made = replace(made, training=replace(made.training, **_fitting(made.training, values)))
        made = replace(made, mask=replace(made.mask, **_fitting(made.mask, values)))
        if isinstance(made, ContrastiveRun):
            made = replace(made, contrastive=_contrastive(made, values))
        if "crops" not in values:
            made = replace(made, crops=max(made.crops // made.training.accumulation, 1))
        return replace(self, options=made)

    def run(self, source: Path, out: Path) -> SpeechEncoder:
        """Raises InputError as `pretrain` and `pretrain_wav2vec2` do."""
        return self.function(source, out, self.options)


def _fitting(options: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: values[f.name] for f in fields(options) if f.name in values and f.name not in ("distort", "distil")}


def _contrastive(run: ContrastiveRun, values: Mapping[str, Any]) -> ContrastiveOptions | None:
    """None, for what the checkpoint says, where nothing else was asked for."""
    wanted = _fitting(ContrastiveOptions(), values)
    wanted |= {"feature_gradient": values["gradient_scale"]} if "gradient_scale" in values else {}
    if not wanted:
        return run.contrastive
    return replace(run.contrastive or head_options(run.start or "") or ContrastiveOptions(), **wanted)


def hubert_plan(size: str, teacher: str | None = None) -> Plan:
    """HuBERT of a size: the first iteration, or with a teacher the last. Raises InputError for large without a teacher."""
    chosen = HUBERT[size]
    first = teacher in (None, "mfcc")
    iteration = chosen.iterations[0 if first else -1]
    if first and iteration.teacher != "mfcc":
        raise InputError(f"HuBERT {size} learns from another HuBERT; name one with --teacher, such as facebook/hubert-base-ls960")
    return Plan(
        IterationOptions(
            replace(chosen.training, steps=iteration.steps),
            teacher=teacher or "mfcc",
            layer=iteration.layer,
            clusters=iteration.clusters,
            mask=chosen.mask,
            crops=chosen.batching.crops,
            seconds=chosen.batching.crop_seconds,
            size=size,
            projection=chosen.width,
            penalty=chosen.penalty,
            gradient_scale=chosen.feature_gradient,
        ),
        pretrain,
    )


def wav2vec2_plan(size: str, start: str | None = None) -> Plan:
    """wav2vec 2.0 of a size; with a start its heads are those of the start."""
    chosen = WAV2VEC2[size]
    return Plan(
        ContrastiveRun(
            chosen.training,
            size,
            None if start else chosen.contrastive,
            mask=chosen.mask,
            negatives=chosen.negatives,
            temperature=chosen.temperature,
            crops=chosen.batching.crops,
            seconds=chosen.batching.crop_seconds,
        ),
        pretrain_wav2vec2,
    )


def continued_plan(start: str) -> Plan:
    """Going on with a checkpoint, with the loss that it was trained with. Visible frames count for a HuBERT: see `hubert`."""
    checkpoint = load_checkpoint(start)
    if isinstance(checkpoint.model, Wav2Vec2Model):
        return Plan(ContrastiveRun(CONTINUED), pretrain_wav2vec2)
    layers = checkpoint.model.config.num_hidden_layers  # type: ignore[union-attr]
    options = IterationOptions(CONTINUED, teacher=start, layer=layers, mask=MaskOptions(0.65, 10, visible_weight=1.0))  # type: ignore[arg-type]
    return Plan(options, pretrain)
