"""Runs of pre-training with the settings of their papers, or fit for a checkpoint, of which some may be replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import HubertModel, Wav2Vec2Model

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.base import SpeechEncoder
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.encoders.training import check_known
from speechssl.errors import InputError
from speechssl.io import claim, write_json
from speechssl.pretrain.adversarial import AdversaryOptions
from speechssl.pretrain.data import Cropper, Distortions, MaskOptions, check_crops
from speechssl.pretrain.distil import DistilOptions, extras, named, plain
from speechssl.pretrain.hubert import IterationOptions, pretrain
from speechssl.pretrain.presets import HUBERT, WAV2VEC2, Batching
from speechssl.pretrain.targets import Material, material, pack_audio, packed
from speechssl.pretrain.wav2vec2 import (
    ContrastiveBatches,
    ContrastiveOptions,
    Temperature,
    Wav2Vec2Pretraining,
    head_options,
    load_pretraining,
    save_pretraining,
    unlabelled,
)
from speechssl.processes import agreed, is_main, main_first
from speechssl.timing import FrameGrid
from speechssl.trainer import TrainingOptions, check_share, fit

# One run of wav2vec 2.0's contrastive pre-training, from recordings to a Hugging Face folder; resumable.
#
# From scratch or from any wav2vec 2.0; on what is recorded, or on what it sounds like distorted, with the clean signal quantised.


@dataclass(frozen=True)
class ContrastiveRun:
    """One run. The defaults are those of the size `small`; `contrastive` None: those of the folder that training starts from."""

    training: TrainingOptions
    size: str = "small"  # of a model from scratch
    contrastive: ContrastiveOptions | None = None
    start: str | None = None  # an encoder to go on from; None: from scratch
    mask: MaskOptions = MaskOptions(0.65, 10)
    negatives: int = 100
    temperature: Temperature = Temperature()
    crops: int = 10  # a batch of full length; one of shorter crops has more
    seconds: float = 4.0  # the longest crop
    recordings: int | None = None  # only so many, drawn by the seed
    silence: float | None = None  # share of the crops of which a part is silenced, as short recordings have it
    distort: Distortions | None = None
    distil: DistilOptions | None = None
    adversary: AdversaryOptions | None = None


def pretrain_wav2vec2(source: Path, out: Path, options: ContrastiveRun) -> SpeechEncoder:
    """Run it; what it makes lies in `out`, the model in `out`/encoder, with its heads. Finished work is not done again.

    source: a prepared corpus (its training passages), a manifest or a folder of recordings, packed once for all runs beside `out`.
    Raises InputError where `out` was made from other inputs.
    """
    check_share(options.crops)
    found = material(source, options.recordings, reference=False, seed=options.training.seed)
    start = {"start": load_encoder(options.start).hash} if options.start else {}
    with claim(out, {"data": found.hash, "options": plain(options) | start}):
        if agreed((out / "encoder" / "card.json").is_file()):
            return load_encoder(out / "encoder")
        torch.manual_seed(options.training.seed)
        model = _model(options)
        with main_first():
            pack_audio(found.readings, packed(found.hash, out), {"corpus": found.hash})
        crop = _cropper(found, out, model, options)
        result = fit(model, _batches(crop, options), options.training, out / "checkpoints", crop.audio_seconds)
        with main_first():
            if is_main():
                save_pretraining(model, out / "encoder")
                card = {"what": "wav2vec 2.0 with its heads", "options": named(options), "corpus": found.card, "training": result}
                write_json(out / "encoder" / "card.json", card)
        return load_encoder(out / "encoder")


def _model(options: ContrastiveRun) -> Wav2Vec2Pretraining:
    if options.start:
        model = load_pretraining(options.start, options.contrastive)
        check_known(model.encoder, options.start)
    else:
        size = WAV2VEC2[options.size]
        model = Wav2Vec2Pretraining(size.model(), options.contrastive or size.contrastive, size.normalise)
    model.extras.extend(extras(model.encoder, options))
    return model


def _cropper(found: Material, out: Path, model: Wav2Vec2Pretraining, options: ContrastiveRun) -> Cropper:
    config: Any = model.encoder.config
    grid = FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)
    audio = packed(found.hash, out)
    bounds = np.load(audio / "bounds.npy")
    check_crops(np.diff(bounds).tolist(), grid, options.seconds)
    data = unlabelled(np.memmap(audio / "samples.s16", np.int16, "r"), bounds, grid)
    updates, together = options.training.horizon or options.training.steps, options.training.accumulation
    crop = (options.mask, options.crops, options.seconds, options.training.seed, model.normalise)
    heard = (options.distort, options.distort is not None, updates, together, options.silence or 0.0)
    return Cropper(data, grid, *crop, *heard)


def _batches(crop: Cropper, options: ContrastiveRun) -> ContrastiveBatches:
    return ContrastiveBatches(crop, options.training.seed, options.negatives, options.temperature, crop.accumulation)


NAMES = {  # of what is typed, where an option of a run is called otherwise
    "mask_probability": "probability",
    "mask_length": "length",
    "crop_seconds": "seconds",
    "feature_penalty": "penalty",
}
HUBERT_ONLY = (
    *("teacher", "layer", "smooth", "clusters", "share", "budget", "starts", "codebook", "precision", "reference"),
    *("visible_weight", "projection", "save_bf16"),
)
WAV2VEC2_ONLY = ("codebooks", "entries", "diversity", "negatives")
NEEDED = {  # what is typed -> what means nothing without it
    "distort": ("noise", "snr", "snr_end", "snr_over", "distorted", "double", "noise_cache", "distil", "domain_adversary"),
    "start": ("distil",),
    "distil": ("distil_layers",),
    "domain_adversary": tuple(f"domain_adversary_{part}" for part in ("layers", "weight", "mode", "schedule", "frames")),
}
OFF = {"reference": True}  # switches that ask for nothing; others: False
SHARED = 16  # crops
CONTINUED = TrainingOptions(steps=1500, learning_rate=3e-4, warmup_steps=100)


@dataclass(frozen=True)
class Plan:
    """options: an `IterationOptions` or a `ContrastiveRun`; function: what runs it."""

    options: Any
    function: Callable[[Path, Path, Any], SpeechEncoder]

    def with_options(self, typed: Mapping[str, Any]) -> Plan:
        """typed: values by the names of the command line. Raises InputError for those that would change nothing."""
        _refuse_of_other_kind(self.options, typed)
        refuse_lonely(typed)
        if not isinstance(self.options, ContrastiveRun):
            _refuse_of_other_teacher(typed.get("teacher", self.options.teacher), typed)
        values = {NAMES.get(name, name): value for name, value in typed.items()}
        made = replace(self.options, **_fitting(self.options, values))
        made = replace(made, training=replace(made.training, **_fitting(made.training, values)))
        made = replace(made, mask=replace(made.mask, **_fitting(made.mask, values)))
        if isinstance(made, ContrastiveRun):
            made = replace(made, contrastive=_contrastive(made, values))
        if "crops" not in values:
            made = replace(made, crops=max(made.crops // made.training.accumulation, 1))
        return replace(self, options=made)

    def with_extras(self, **extras: Any) -> Plan:
        """extras: `distort`, `distil` and `adversary`, see `Run`."""
        return replace(self, options=replace(self.options, **extras))

    def run(self, source: Path, out: Path) -> SpeechEncoder:
        """Raises InputError as `pretrain` and `pretrain_wav2vec2` do."""
        return self.function(source, out, self.options)


def _refuse_of_other_kind(run: Any, typed: Mapping[str, Any]) -> None:
    """What HuBERT learns is not what wav2vec 2.0 learns."""
    contrastive = isinstance(run, ContrastiveRun)
    if stray := _asked(HUBERT_ONLY if contrastive else WAV2VEC2_ONLY, typed):
        kind, what = "wav2vec 2.0" if contrastive else "HuBERT", typed.get("start") or "what is trained"
        raise InputError(f"{_flags(stray)} would change nothing, for {what} is a {kind}; leave out what is of the other kind")


def refuse_lonely(typed: Mapping[str, Any], rules: Mapping[str, Iterable[str]] = NEEDED) -> None:
    """rules: what is typed -> what means nothing without it. Raises InputError for the latter alone."""
    for needed, names in rules.items():
        if not _asked((needed,), typed) and (stray := _asked(names, typed)):
            raise InputError(f"{_flags(stray)} would change nothing without {_flags([needed])}; give that too, or neither")


def _refuse_of_other_teacher(teacher: str, typed: Mapping[str, Any]) -> None:
    """A codebook says what it was fitted on and is not fitted again, and MFCCs have no layers."""
    codebook = typed.get("codebook")
    if codebook and (stray := _asked(("layer", "smooth", "clusters", "share", "budget", "starts"), typed)):
        raise InputError(f"{_flags(stray)} would change nothing, for the codebook {codebook} says what it is of; leave it out")
    if teacher == "mfcc" and (stray := _asked(("layer", "smooth", "precision"), typed)):
        raise InputError(f"{_flags(stray)} would change nothing with MFCCs; name an encoder with --teacher, or leave it out")


def _asked(names: Iterable[str], typed: Mapping[str, Any]) -> list[str]:
    return [name for name in names if typed.get(name) is not None and typed[name] is not OFF.get(name, False)]


def _flags(names: Iterable[str]) -> str:
    return " and ".join("--no-reference" if name == "reference" else f"--{name.replace('_', '-')}" for name in names)


def _fitting(options: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: values[f.name] for f in fields(options) if f.name in values and f.name not in ("distort", "distil")}


def _contrastive(run: ContrastiveRun, values: Mapping[str, Any]) -> ContrastiveOptions | None:
    """None, for what the checkpoint says, where nothing else was asked for."""
    wanted = _fitting(ContrastiveOptions(), values)
    wanted |= {"feature_gradient": values["gradient_scale"]} if "gradient_scale" in values else {}
    if not wanted:
        return run.contrastive
    return replace(run.contrastive or head_options(run.start or "") or ContrastiveOptions(), **wanted)


def _crops(batching: Batching) -> int:
    """An update's, a large number of them to 16, so that processes and accumulation can divide it."""
    return batching.crops if batching.crops < SHARED else round(batching.crops / SHARED) * SHARED


def hubert_plan(size: str, teacher: str | None = None) -> Plan:
    """HuBERT of a size: the first iteration, or with a teacher the last. Raises InputError for large without a teacher."""
    chosen = HUBERT[size]
    first = teacher in (None, "mfcc")
    number = 1 if first else len(chosen.iterations)
    iteration = chosen.iterations[number - 1]
    if first and iteration.teacher != "mfcc":
        raise InputError(f"HuBERT {size} learns from another HuBERT; name one with --teacher, such as facebook/hubert-base-ls960")
    return Plan(
        IterationOptions(
            chosen.options(number),
            teacher=teacher or "mfcc",
            layer=iteration.layer,
            clusters=iteration.clusters,
            mask=chosen.mask,
            crops=_crops(chosen.batching),
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
            crops=_crops(chosen.batching),
            seconds=chosen.batching.crop_seconds,
        ),
        pretrain_wav2vec2,
    )


def continued_plan(start: str, teacher: str | None = None) -> Plan:
    """Going on with a checkpoint, with the loss that it was trained with. Visible frames count for a HuBERT: see `hubert`.

    teacher: whose last layer gives a HuBERT's targets; None: the start. Raises InputError for a start of another kind.
    """
    model: Any = load_checkpoint(start).model
    if isinstance(model, Wav2Vec2Model):
        return Plan(ContrastiveRun(CONTINUED), pretrain_wav2vec2)
    if not isinstance(model, HubertModel):
        raise InputError(f"{start} is a {model.config.model_type} encoder; this training goes on from a HuBERT or a wav2vec 2.0")
    layer = model.config.num_hidden_layers if teacher is None else 0 if teacher == "mfcc" else load_encoder(teacher).layers
    mask = MaskOptions(0.65, 10, visible_weight=1.0)
    width = min(HUBERT.values(), key=lambda size: abs(size.config().hidden_size - model.config.hidden_size)).width
    return Plan(IterationOptions(CONTINUED, teacher=teacher or start, layer=layer, mask=mask, projection=width), pretrain)
