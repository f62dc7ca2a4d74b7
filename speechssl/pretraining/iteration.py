"""One run of HuBERT pre-training, from recordings to an encoder folder: targets, then training; resumable.

From scratch or from any HuBERT; on what is recorded, or on what it sounds like distorted, with the clean signal's targets
(arXiv 2203.16104), perhaps beside a clean teacher and against a domain classifier.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import HubertModel

from speechssl.artefacts import claim, hash_json, write_json
from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.loading import load_checkpoint, load_encoder
from speechssl.encoders.saving import save_encoder
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.encoders.training_forward import check_known
from speechssl.errors import InputError
from speechssl.pretraining.adversary import AdversaryOptions
from speechssl.pretraining.crops import Cropper, Distortions, check_crops
from speechssl.pretraining.distillation import DistilOptions
from speechssl.pretraining.extras import extras, named, plain
from speechssl.pretraining.hubert import PENALTY, HubertPretraining
from speechssl.pretraining.label_head import restore_label_head, save_label_head
from speechssl.pretraining.masking import MaskOptions
from speechssl.pretraining.sizes import HUBERT
from speechssl.pretraining.targets import Material, fit_targets, load_labelled, material, pack_audio, packed, write_targets
from speechssl.processes import agreed, is_main, main_first
from speechssl.timing import FrameGrid
from speechssl.training import TrainingOptions, check_share, fit
from speechssl.units.features import Features, load_features, load_features_of
from speechssl.units.kmeans import BUDGET, STARTS, Codebook, load_codebook
from speechssl.units.mfcc import mfcc_stream


@dataclass(frozen=True)
class IterationOptions:
    """One run. `teacher` is "mfcc" or an encoder whose `layer` gives the targets."""

    training: TrainingOptions
    teacher: str = "mfcc"
    layer: int = 0
    smooth: int = 1  # frames the teacher's features are averaged over
    clusters: int = 100  # K
    share: float | None = None  # of the recordings that the codebook is fitted on, drawn by the seed; None: see `units.fit.draw`
    budget: int | None = None  # frames of them that k-means sees; None: `kmeans.BUDGET`
    starts: int | None = None  # of k-means; None: `kmeans.STARTS`
    codebook: str | None = None  # of the teacher, in the place of one that is fitted here; says layer, smoothing and K
    start: str | None = None  # an encoder to go on from; None: from scratch, as published for both iterations
    mask: MaskOptions = field(default_factory=lambda: MaskOptions(visible_weight=1.0))
    crops: int = 10  # a batch of full length; one of shorter crops has more
    seconds: float = 4.0  # the longest crop
    save_bf16: bool = False  # round the weights of the finished encoder to bf16: what is fitted on it sees them so
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


def pretrain(source: Path, out: Path, options: IterationOptions) -> SpeechEncoder:
    """Run it; what it makes lies in `out`, the encoder in `out`/encoder. Finished work is not done again.

    source: a prepared corpus (its training passages), a manifest or a folder of recordings. The audio is packed once for all runs
    beside `out`, in packed-<hash of the data>, and so are the targets. Raises InputError where `out` was made from other inputs.
    """
    check_share(options.crops)
    found = material(source, options.recordings, options.reference, options.training.seed)
    with claim(out, _made_from(found, options)):
        if agreed((out / "encoder" / "card.json").is_file()):
            return load_encoder(out / "encoder")
        torch.manual_seed(options.training.seed)
        encoder, normalise = _start(options.start) if options.start else _scratch(options.size or "small")
        grid = FrameGrid.of_convolutions(SAMPLE_RATE, encoder.config.conv_kernel, encoder.config.conv_stride)
        added = extras(encoder, options)  # what cannot be had is known before the targets are made
        with main_first():
            codebook = make_targets(found, out, grid, options)
        model = _model(encoder, codebook, options, added)
        crop = _cropper(found, out, grid, codebook, options, normalise)
        result = fit(model, crop, options.training, out / "checkpoints", crop.audio_seconds)
        with main_first():
            if is_main():
                save_encoder(encoder, out / "encoder", normalise, options.save_bf16)
                save_label_head(model, out / "encoder", codebook.hash)
                write_json(out / "encoder" / "card.json", _card(found, options, codebook, result))
        return load_encoder(out / "encoder")


def labelled(found: Material, out: Path, grid: FrameGrid, codebook: Codebook, options: IterationOptions) -> Path:
    """Where the targets lie: beside `out` too, for runs that share them. grid: of the frames that are labelled."""
    made_from = [found.hash, codebook.hash, options.reference, asdict(grid), options.precision]
    return out.parent / f"targets-{hash_json(made_from)}"


def _made_from(found: Material, options: IterationOptions) -> dict[str, Any]:
    encoders = {"teacher": options.teacher, "start": options.start}
    hashes = {name: load_encoder(name).hash for name in {*encoders.values()} if name and name != "mfcc"}  # mostly one
    known = {k: hashes.get(v, v) if v else v for k, v in encoders.items()}
    books = {"codebook": load_codebook(Path(options.codebook)).hash} if options.codebook else {}
    return {"data": found.hash, "options": plain(options) | known | books}


def _scratch(name: str) -> tuple[HubertModel, bool]:
    size = HUBERT[name]
    return size.model().train(), size.normalise


def _start(name: str) -> tuple[HubertModel, bool]:
    """The encoder to go on from, every weight of it, in float32. Raises InputError for one that is not a HuBERT."""
    checkpoint = load_checkpoint(name)
    if not isinstance(checkpoint.model, HubertModel):
        raise InputError(f"{name} is a {checkpoint.model.config.model_type} encoder; this training goes on from HuBERT encoders")
    check_known(checkpoint.model, name)
    return checkpoint.model.train().requires_grad_(True), checkpoint.normalise


def _model(encoder: HubertModel, codebook: Codebook, options: IterationOptions, added: list[nn.Module]) -> HubertPretraining:
    objective = (options.projection, options.mask.visible_weight, options.penalty, options.gradient_scale)
    model = HubertPretraining(encoder, codebook.size, *objective, added)
    if options.start:
        restore_label_head(model, options.start, codebook.hash)
    return model


def make_targets(found: Material, out: Path, grid: FrameGrid, options: IterationOptions) -> Codebook:
    """Codebook and labels."""
    audio = packed(found.hash, out)
    pack_audio(found.readings, audio, {"corpus": found.hash})
    lengths = np.diff(np.load(audio / "bounds.npy")).tolist()
    check_crops(lengths, grid, options.seconds)
    features, codebook = _teacher(found, out, grid, options)
    made_from = {"corpus": found.hash, "reference": options.reference}
    teaching = lambda samples: torch.cat(list(features.stream(samples)))  # noqa: E731
    write_targets(found.readings, labelled(found, out, grid, codebook, options), grid, teaching, codebook, lengths, made_from)
    return codebook


def _teacher(found: Material, out: Path, grid: FrameGrid, options: IterationOptions) -> tuple[Features, Codebook]:
    """What targets are clusters of, and the codebook: the one that was given, or one fitted here, once."""
    if options.codebook:
        codebook = load_codebook(Path(options.codebook))
        return load_features_of(codebook, options.teacher, options.precision), codebook
    path = out / "targets.safetensors"
    features = _features(grid, options)
    if not path.is_file():
        sampling = (options.share, options.budget or BUDGET, options.starts or STARTS)
        fit_targets(found.readings, features, options.clusters, options.training.seed, *sampling).save(path)
    return features, load_codebook(path)


def _features(grid: FrameGrid, options: IterationOptions) -> Features:
    if options.teacher == "mfcc":
        return Features("mfcc", grid, partial(mfcc_stream, grid=grid))
    return load_features(options.teacher, options.layer, options.smooth, options.precision or "fp32")


def _cropper(
    found: Material, out: Path, grid: FrameGrid, codebook: Codebook, options: IterationOptions, normalise: bool
) -> Cropper:
    data = load_labelled(packed(found.hash, out), labelled(found, out, grid, codebook, options))
    updates = options.training.horizon or options.training.steps
    crop = (options.mask, options.crops, options.seconds, options.training.seed, normalise)
    heard = (options.distort, options.distil is not None, updates, options.training.accumulation, options.silence or 0.0)
    return Cropper(data, grid, *crop, *heard)


def _card(found: Material, options: IterationOptions, codebook: Codebook, result: dict[str, Any]) -> dict[str, Any]:
    return {
        "what": "HuBERT encoder",
        "options": named(options),
        "targets": codebook.card,
        "corpus": found.card,
        "training": result,
    }
