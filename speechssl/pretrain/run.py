"""Runs of pre-training, from recordings to an encoder folder: presets of the papers, and one run protocol for both methods.

A run makes its targets, trains, and writes `OUT/encoder`; it is resumable. It begins from scratch or goes on from any HuBERT or
wav2vec 2.0; on what is recorded, or on a distorted version of it with the clean signal's targets (arXiv 2203.16104), perhaps beside
a teacher on the clean signal and against a domain classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import HubertModel, Wav2Vec2Model

from speechssl.audio import SAMPLE_RATE
from speechssl.config import TrainingOptions
from speechssl.encoders.base import SpeechEncoder
from speechssl.encoders.export import save_encoder
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.encoders.training import check_known
from speechssl.errors import InputError
from speechssl.io import hash_json, stage, write_json
from speechssl.pretrain.adversarial import AdversaryOptions
from speechssl.pretrain.data import Cropper, Distortions, LabelledAudio, MaskOptions, check_crops, unlabelled
from speechssl.pretrain.distil import DistilOptions, auxiliary_losses
from speechssl.pretrain.hubert import PENALTY, HubertPretraining, restore_label_head, save_label_head
from speechssl.pretrain.presets import HUBERT, WAV2VEC2, Batching
from speechssl.pretrain.targets import Material, fit_targets, load_labelled, material, pack_audio, packed, write_targets
from speechssl.pretrain.wav2vec2 import (
    ContrastiveBatches,
    ContrastiveOptions,
    Temperature,
    Wav2Vec2Pretraining,
    head_options,
    load_pretraining,
    save_pretraining,
)
from speechssl.processes import agreed, is_main, main_first
from speechssl.timing import FrameGrid
from speechssl.trainer import Batch, check_share, fit
from speechssl.units.config import BUDGET, STARTS
from speechssl.units.features import Features, load_features, load_features_of, mfcc_stream
from speechssl.units.kmeans import Codebook, load_codebook


@dataclass(frozen=True)
class HubertOptions:
    """One iteration of HuBERT. `teacher` is "mfcc" or an encoder whose `layer` gives the targets."""

    training: TrainingOptions
    teacher: str = "mfcc"
    layer: int = 0
    smooth: int = 1  # frames the teacher's features are averaged over
    clusters: int = 100  # K
    share: float | None = None  # of the recordings that the codebook is fitted on, drawn by the seed; None: see `units.fit.draw`
    budget: int | None = None  # frames of them that k-means gets; None: `kmeans.BUDGET`
    starts: int | None = None  # of k-means; None: `kmeans.STARTS`
    codebook: str | None = None  # of the teacher, in the place of one that is fitted here; holds layer, smoothing and K
    start: str | None = None  # an encoder to go on from; None: from scratch, as published for both iterations
    mask: MaskOptions = field(default_factory=lambda: MaskOptions(visible_weight=1.0))
    crops: int = 10  # a batch of full length; one of shorter crops has more
    seconds: float = 4.0  # the longest crop
    save_bf16: bool = False  # round the weights of the finished encoder to bf16: what is fitted on it gets them so
    size: str | None = None  # of a model from scratch; None: small
    recordings: int | None = None  # only so many, drawn by the seed
    reference: bool = True  # read targets off reference readings, where the corpus has them
    projection: int = 128  # width in which labels are compared
    penalty: float = PENALTY  # weight of the CNN's mean square
    gradient_scale: float = 1.0  # of the gradient into the CNN
    precision: str | None = None  # of the teacher whose clusters are the targets: bf16 is faster and changes a label in a hundred
    silence: float | None = None  # share of the crops of which a part is silenced, as short recordings have it
    distort: Distortions | None = None
    distil: DistilOptions | None = None
    adversary: AdversaryOptions | None = None


@dataclass(frozen=True)
class Wav2Vec2Options:
    """One contrastive run. The defaults are those of the size `small`; `contrastive` None: that of the folder it starts from."""

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


Options = HubertOptions | Wav2Vec2Options


@dataclass(frozen=True)
class Task:
    """What a method gives to the run: a model, its data, and how the trained model is saved."""

    model: nn.Module
    audio: LabelledAudio
    grid: FrameGrid
    normalise: bool  # of the model's input
    batches: Callable[[Cropper], Callable[[int], Batch]]  # what the model is trained on, of crops
    save: Callable[[Path], dict[str, Any]]  # writes the encoder's folder; returns what its card says of it


def pretrain(source: Path, out: Path, options: Options) -> SpeechEncoder:
    """Run it; what it makes lies in `out`, the encoder in `out`/encoder. Finished work is not done again.

    source: a prepared corpus (its training passages), a manifest or a folder of recordings. The audio is packed once for all runs
    beside `out`, in packed-<hash of the data>, and so are a HuBERT's targets. Raises InputError where `out` was made from other
    inputs.
    """
    check_share(options.crops)
    hubert, training = isinstance(options, HubertOptions), options.training
    data = material(source, options.recordings, isinstance(options, HubertOptions) and options.reference, training.seed)
    with stage(out, {"data": data.hash, "options": plain(options) | _input_hashes(options)}):
        if agreed((out / "encoder" / "card.json").is_file()):
            return load_encoder(out / "encoder")
        torch.manual_seed(training.seed)
        task = _hubert(data, out, options) if isinstance(options, HubertOptions) else _wav2vec2(data, out, options)
        cropper = Cropper(
            task.audio,
            task.grid,
            options.mask,
            options.crops,
            options.seconds,
            training.seed,
            task.normalise,
            options.distort,
            clean=options.distil is not None if hubert else options.distort is not None,
            horizon=training.horizon or training.steps,
            accumulation=training.accumulation,
            silence=options.silence or 0.0,
        )
        result = fit(task.model, task.batches(cropper), training, out / "checkpoints", cropper.audio_seconds)
        with main_first():
            if is_main():
                card = task.save(out / "encoder") | {"options": named(options), "corpus": data.card, "training": result}
                write_json(out / "encoder" / "card.json", card)
        return load_encoder(out / "encoder")


def plain(options: Options) -> dict[str, Any]:
    """As JSON holds it; options that were not given are left out, so that folders older than an option stay valid."""
    values = asdict(replace(options, distort=None)) | {"distort": getattr(options.distort, "card", None)}
    if not values["mask"]["same_masks"]:
        del values["mask"]["same_masks"]
    return {name: value for name, value in values.items() if value is not None}


def named(options: Options) -> dict[str, Any]:
    """`plain` for a card, which has the names of things and not where they lie on this machine."""
    values = plain(options)
    return values | {n: "/".join(Path(values[n]).parts[-2:]) for n in ("teacher", "start", "codebook") if n in values}


def _input_hashes(options: Options) -> dict[str, str | None]:
    """Of the encoders and the codebook that a run is made from, in the place of their names."""
    if isinstance(options, Wav2Vec2Options):
        return {"start": load_encoder(options.start).hash} if options.start else {}
    hashes: dict[str | None, str] = {
        name: load_encoder(name).hash for name in {options.teacher, options.start} if name and name != "mfcc"
    }  # mostly one
    known = {name: hashes.get(value) or value for name, value in (("teacher", options.teacher), ("start", options.start))}
    return known | ({"codebook": load_codebook(Path(options.codebook)).hash} if options.codebook else {})


def _auxiliary(encoder: Any, options: Options) -> list[nn.Module]:
    return auxiliary_losses(encoder, options.start, options.distort, options.distil, options.adversary)


# ---- HuBERT


def _hubert(data: Material, out: Path, options: HubertOptions) -> Task:
    encoder, normalise = _hubert_encoder(options)
    grid = FrameGrid.of_convolutions(SAMPLE_RATE, encoder.config.conv_kernel, encoder.config.conv_stride)
    auxiliary = _auxiliary(encoder, options)  # raises what cannot be had before the targets are made
    with main_first():
        codebook = make_targets(data, out, grid, options)
    objective = (options.projection, options.mask.visible_weight, options.penalty, options.gradient_scale)
    model = HubertPretraining(encoder, codebook.size, *objective, auxiliary)
    if options.start:
        restore_label_head(model, options.start, codebook.hash)

    def save(folder: Path) -> dict[str, Any]:
        save_encoder(encoder, folder, normalise, options.save_bf16)
        save_label_head(model, folder, codebook.hash)
        return {"what": "HuBERT encoder", "targets": codebook.card}

    audio = load_labelled(packed(data.hash, out), _targets_folder(data, out, grid, codebook, options))
    return Task(model, audio, grid, normalise, lambda cropper: cropper, save)


def _hubert_encoder(options: HubertOptions) -> tuple[HubertModel, bool]:
    """The model to train, in float32, and whether its input is normalised. Raises InputError for a start that is not a HuBERT."""
    if not options.start:
        size = HUBERT[options.size or "small"]
        return size.model().train(), size.normalise
    checkpoint = load_checkpoint(options.start)
    if not isinstance(checkpoint.model, HubertModel):
        kind = checkpoint.model.config.model_type
        raise InputError(f"{options.start} is a {kind} encoder; start this training from a HuBERT")
    check_known(checkpoint.model, options.start)
    return checkpoint.model.train().requires_grad_(True), checkpoint.normalise


def make_targets(data: Material, out: Path, grid: FrameGrid, options: HubertOptions) -> Codebook:
    """Pack the audio, get or fit the codebook, once, and label all frames with it. grid: of the frames that are labelled."""
    audio = packed(data.hash, out)
    pack_audio(data.readings, audio, {"corpus": data.hash})
    lengths = np.diff(np.load(audio / "bounds.npy")).tolist()
    check_crops(lengths, grid, options.seconds)
    if options.codebook:
        codebook = load_codebook(Path(options.codebook))
        features = load_features_of(codebook, options.teacher, options.precision)
    else:
        if options.teacher == "mfcc":
            features = Features("mfcc", grid, partial(mfcc_stream, grid=grid))
        else:
            features = load_features(options.teacher, options.layer, options.smooth, options.precision or "fp32")
        path = out / "targets.safetensors"
        if not path.is_file():
            sampling = (options.share, options.budget or BUDGET, options.starts or STARTS)
            fit_targets(data.readings, features, options.clusters, options.training.seed, *sampling).save(path)
        codebook = load_codebook(path)
    folder = _targets_folder(data, out, grid, codebook, options)
    made_from = {"corpus": data.hash, "reference": options.reference}
    streamed = lambda samples: torch.cat(list(features.stream(samples)))  # noqa: E731
    write_targets(data.readings, folder, grid, streamed, codebook, lengths, made_from)
    return codebook


def _targets_folder(data: Material, out: Path, grid: FrameGrid, codebook: Codebook, options: HubertOptions) -> Path:
    """Beside `out` too, for runs that share the targets."""
    made_from = [data.hash, codebook.hash, options.reference, asdict(grid), options.precision]
    return out.parent / f"targets-{hash_json(made_from)}"


# ---- wav2vec 2.0


def _wav2vec2(data: Material, out: Path, options: Wav2Vec2Options) -> Task:
    if options.start:
        model = load_pretraining(options.start, options.contrastive)
        check_known(model.encoder, options.start)
    else:
        size = WAV2VEC2[options.size]
        model = Wav2Vec2Pretraining(size.model(), options.contrastive or size.contrastive, size.normalise)
    model.auxiliary.extend(_auxiliary(model.encoder, options))
    config: Any = model.encoder.config
    grid = FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)
    audio = packed(data.hash, out)
    with main_first():
        pack_audio(data.readings, audio, {"corpus": data.hash})
    bounds = np.load(audio / "bounds.npy")
    check_crops(np.diff(bounds).tolist(), grid, options.seconds)

    def batches(cropper: Cropper) -> Callable[[int], Batch]:
        seed, accumulation = options.training.seed, options.training.accumulation
        return ContrastiveBatches(cropper, seed, options.negatives, options.temperature, accumulation)

    def save(folder: Path) -> dict[str, Any]:
        save_pretraining(model, folder)
        return {"what": "wav2vec 2.0 with its heads"}

    labelled = unlabelled(np.memmap(audio / "samples.s16", np.int16, "r"), bounds, grid)
    return Task(model, labelled, grid, model.normalise, batches, save)


# ---- presets: the settings of the papers, or fit for a checkpoint, of which some may be replaced

NAMES = {  # of options of the command line, where an option of a run is called otherwise
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
NEEDED = {  # an option -> those that mean nothing without it
    "distort": ("noise", "snr", "snr_end", "snr_over", "distorted", "double", "noise_cache", "distil", "domain_adversary"),
    "start": ("distil",),
    "distil": ("distil_layers",),
    "domain_adversary": tuple(f"domain_adversary_{part}" for part in ("layers", "weight", "mode", "schedule", "frames")),
}
OFF = {"reference": True}  # switches that ask for nothing; others: False
CONTINUED = TrainingOptions(steps=1500, learning_rate=3e-4, warmup_steps=100)


def hubert_preset(size: str, teacher: str | None = None) -> HubertOptions:
    """HuBERT of a size: the first iteration, or with a teacher the last. Raises InputError for large without a teacher."""
    chosen = HUBERT[size]
    first = teacher in (None, "mfcc")
    number = 1 if first else len(chosen.iterations)
    iteration = chosen.iterations[number - 1]
    if first and iteration.teacher != "mfcc":
        raise InputError(
            f"HuBERT {size} needs another HuBERT as teacher; give one with --teacher, such as facebook/hubert-base-ls960"
        )
    return HubertOptions(
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
    )


def wav2vec2_preset(size: str, start: str | None = None) -> Wav2Vec2Options:
    """wav2vec 2.0 of a size; with a start its heads are those of the start."""
    chosen = WAV2VEC2[size]
    return Wav2Vec2Options(
        chosen.training,
        size,
        None if start else chosen.contrastive,
        mask=chosen.mask,
        negatives=chosen.negatives,
        temperature=chosen.temperature,
        crops=_crops(chosen.batching),
        seconds=chosen.batching.crop_seconds,
    )


def continued_preset(start: str, teacher: str | None = None) -> Options:
    """Going on with a checkpoint, with the loss that it was trained with. Visible frames count for a HuBERT: see `hubert`.

    teacher: whose last layer gives a HuBERT's targets; None: the start. Raises InputError for a start of another kind.
    """
    model: Any = load_checkpoint(start).model
    if isinstance(model, Wav2Vec2Model):
        return Wav2Vec2Options(CONTINUED)
    if not isinstance(model, HubertModel):
        raise InputError(f"{start} is a {model.config.model_type} encoder; start this training from a HuBERT or a wav2vec 2.0")
    layer = model.config.num_hidden_layers if teacher is None else 0 if teacher == "mfcc" else load_encoder(teacher).layers
    mask = MaskOptions(0.65, 10, visible_weight=1.0)
    width = min(HUBERT.values(), key=lambda size: abs(size.config().hidden_size - model.config.hidden_size)).width
    return HubertOptions(CONTINUED, teacher=teacher or start, layer=layer, mask=mask, projection=width)


def with_options(preset: Options, given: Mapping[str, Any]) -> Options:
    """A preset in which options of the command line replace its own. Raises InputError for those that would change nothing."""
    contrastive = isinstance(preset, Wav2Vec2Options)
    if stray := _asked(HUBERT_ONLY if contrastive else WAV2VEC2_ONLY, given):
        kind, what = "wav2vec 2.0" if contrastive else "HuBERT", given.get("start") or "what is trained"
        raise InputError(f"{_flags(stray)} would have no effect, since {what} is a {kind}; leave out options of the other kind")
    refuse_lonely(given)
    if isinstance(preset, HubertOptions):  # a codebook says what it was fitted on and is not fitted again; MFCCs have no layers
        codebook, teacher = given.get("codebook"), given.get("teacher", preset.teacher)
        if codebook and (stray := _asked(("layer", "smooth", "clusters", "share", "budget", "starts"), given)):
            raise InputError(f"{_flags(stray)} would have no effect, since the codebook {codebook} determines it; leave it out")
        if teacher == "mfcc" and (stray := _asked(("layer", "smooth", "precision"), given)):
            raise InputError(f"{_flags(stray)} would have no effect with MFCCs; give an encoder with --teacher, or leave it out")
    values = {NAMES.get(name, name): value for name, value in given.items()}
    made = replace(preset, **_fields_of(preset, values))
    made = replace(made, training=replace(made.training, **_fields_of(made.training, values)))
    made = replace(made, mask=replace(made.mask, **_fields_of(made.mask, values)))
    if isinstance(made, Wav2Vec2Options):
        wanted = _fields_of(ContrastiveOptions(), values)
        wanted |= {"feature_gradient": values["gradient_scale"]} if "gradient_scale" in values else {}
        if wanted:
            own = made.contrastive or head_options(made.start or "") or ContrastiveOptions()
            made = replace(made, contrastive=replace(own, **wanted))
    if "crops" not in values:
        made = replace(made, crops=max(made.crops // made.training.accumulation, 1))
    return made


def refuse_lonely(given: Mapping[str, Any], rules: Mapping[str, Iterable[str]] = NEEDED) -> None:
    """rules: an option -> those that mean nothing without it. Raises InputError for the latter alone."""
    for needed, names in rules.items():
        if not _asked((needed,), given) and (stray := _asked(names, given)):
            raise InputError(f"{_flags(stray)} would have no effect without {_flags([needed])}; give both or neither")


def _asked(names: Iterable[str], given: Mapping[str, Any]) -> list[str]:
    return [name for name in names if given.get(name) is not None and given[name] is not OFF.get(name, False)]


def _flags(names: Iterable[str]) -> str:
    return " and ".join("--no-reference" if name == "reference" else f"--{name.replace('_', '-')}" for name in names)


def _fields_of(options: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of the values those that are fields of these options; distortions and auxiliary losses are set by the caller."""
    return {f.name: values[f.name] for f in fields(options) if f.name in values and f.name not in ("distort", "distil")}


def _crops(batching: Batching) -> int:
    """An update's; a large number is rounded to a multiple of 16, so that processes and accumulation can divide it."""
    return batching.crops if batching.crops < 16 else round(batching.crops / 16) * 16
