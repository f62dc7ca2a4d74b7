"""Runs of pre-training, from recordings to an encoder folder: one run protocol for both methods.

A run makes its targets, trains, and writes `OUT/encoder`; it is resumable. It begins from scratch
or goes on from any HuBERT or wav2vec 2.0; on what is recorded, or on a distorted version of it with
the clean signal's targets (arXiv 2203.16104), perhaps beside a teacher on the clean signal and
against a domain classifier.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import HubertModel, Wav2Vec2Model

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.hubert import check_known
from speechssl.encoders.load import (
    SpeechEncoder,
    file_hashes,
    load_checkpoint,
    load_encoder,
    save_encoder,
)
from speechssl.errors import InputError
from speechssl.io import hash_json, stage, write_json
from speechssl.options import settings
from speechssl.pretrain.data import (
    Cropper,
    LabelledAudio,
    TrainingData,
    check_crops,
    fit_targets,
    pack_audio,
    training_data,
    write_targets,
)
from speechssl.pretrain.model import (
    ContrastiveBatches,
    HubertPretraining,
    Wav2Vec2Pretraining,
    auxiliary_losses,
    load_pretraining,
    restore_label_head,
    save_label_head,
    save_pretraining,
)
from speechssl.pretrain.presets import HUBERT, WAV2VEC2, HubertOptions, Options
from speechssl.processes import is_main, main_first
from speechssl.timing import FrameGrid
from speechssl.trainer import check_share, fit
from speechssl.units.features import Features, features_of, load_features, spectral_stream
from speechssl.units.kmeans import Codebook, load_codebook
from speechssl.units.options import BUDGET, STARTS


def pretrain(source: Path, out: Path, options: Options) -> SpeechEncoder:
    """Run it; what it makes lies in `out`, the encoder in `out`/encoder. Finished work is not done
    again.

    source: a prepared corpus (its training passages), a manifest or a folder of recordings. Raises
    InputError where `out` was made from other inputs.
    """
    check_share(options.crops)
    training, hubert = options.training, isinstance(options, HubertOptions)
    data = training_data(
        source, options.recordings, getattr(options, "reference", False), training.seed
    )
    inputs = {"data": data.hash, "options": plain(options) | hashes(options)}
    with stage(out, inputs, grows="options.training.steps", card="encoder/card.json") as step:
        if step.done:
            return load_encoder(out / "encoder")
        torch.manual_seed(training.seed)
        model: HubertPretraining | Wav2Vec2Pretraining
        if isinstance(options, HubertOptions):
            encoder, normalise = _hubert_encoder(options)
            # raises what cannot be had before the targets are made
            auxiliary = auxiliary_losses(encoder, options)
            grid = FrameGrid.of_convolutions(
                SAMPLE_RATE, encoder.config.conv_kernel, encoder.config.conv_stride
            )
            with main_first():
                codebook, audio = make_targets(data, out, grid, options)
            objective = (
                options.projection,
                options.mask.visible_weight,
                options.penalty,
                options.gradient_scale,
            )
            model = HubertPretraining(encoder, codebook.size, *objective, auxiliary)
            if options.start:
                restore_label_head(model, options.start, codebook.hash)
        else:
            if options.start:
                model = load_pretraining(options.start, options.contrastive)
                check_known(model.encoder, options.start)
            else:
                size = WAV2VEC2[options.size]
                contrastive = options.contrastive or size.contrastive
                model = Wav2Vec2Pretraining(
                    Wav2Vec2Model(size.config()), contrastive, size.normalise
                )
            normalise, config = model.normalise, model.encoder.config
            model.auxiliary.extend(auxiliary_losses(model.encoder, options))
            grid = FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)
            with main_first():
                audio = LabelledAudio.load(pack_audio(data, out), grid)
            check_crops(np.diff(audio.sample_bounds).tolist(), grid, options.seconds)
        cropper = Cropper(
            audio,
            grid,
            options.mask,
            options.crops,
            options.seconds,
            training.seed,
            normalise,
            options.distort,
            clean=(options.distil if hubert else options.distort) is not None,
            horizon=training.horizon or training.steps,
            accumulation=training.accumulation,
            silence=options.silence or 0.0,
        )
        batches: Any = cropper
        if not isinstance(options, HubertOptions):
            batches = ContrastiveBatches(
                cropper,
                training.seed,
                options.negatives,
                options.temperature,
                training.accumulation,
            )
        result = fit(model, batches, training, out / "checkpoints", cropper.audio_seconds)
        with main_first():
            if is_main():
                folder = out / "encoder"
                card: dict[str, Any] = {
                    "options": named(options),
                    "corpus": data.card,
                    "training": result,
                }
                card |= cropper.card
                if isinstance(options, HubertOptions):
                    save_encoder(model.encoder, folder, normalise, options.save_bf16)
                    save_label_head(model, folder, codebook.hash)
                    card |= {"what": "HuBERT encoder", "targets": codebook.card}
                else:
                    save_pretraining(model, folder)
                    card |= {"what": "wav2vec 2.0 with its heads"}
                write_json(folder / "card.json", card | {"files": file_hashes(folder)})
        return load_encoder(out / "encoder")


def hashes(options: Any) -> dict[str, Any]:
    """Of the encoders and the codebook that a run is made from, for what they are called in the
    options."""
    names = {key: getattr(options, key) for key in ("start", "teacher") if hasattr(options, key)}
    # mostly one
    hash_of = {
        name: load_encoder(name).hash for name in set(names.values()) if name not in (None, "mfcc")
    }
    book = getattr(options, "codebook", None)
    return {key: hash_of.get(name, name) for key, name in names.items()} | (
        {"codebook": load_codebook(book).hash} if book else {}
    )


def plain(options: Options) -> dict[str, Any]:
    """As JSON holds it; options that were not given are left out, so that folders older than an
    option stay valid."""
    values = settings(replace(options, distort=None)) | {
        "distort": getattr(options.distort, "card", None)
    }
    if not values["mask"]["same_masks"]:
        del values["mask"]["same_masks"]
    return {name: value for name, value in values.items() if value is not None}


def named(options: Options) -> dict[str, Any]:
    """`plain` for a card, which has the names of things and not where they lie on this machine."""
    values = plain(options)
    return values | {
        n: "/".join(Path(values[n]).parts[-2:])
        for n in ("teacher", "start", "codebook")
        if n in values
    }


def _hubert_encoder(options: HubertOptions) -> tuple[HubertModel, bool]:
    """The model to train, in float32, and whether its input is normalised. Raises InputError for a
    start that is not a HuBERT."""
    if not options.start:
        size = HUBERT[options.size or "small"]
        return HubertModel(size.config()).train(), size.normalise
    checkpoint = load_checkpoint(options.start)
    if not isinstance(checkpoint.model, HubertModel):
        kind = checkpoint.model.config.model_type
        raise InputError(f"{options.start} is a {kind} encoder; start this training from a HuBERT")
    check_known(checkpoint.model, options.start)
    return checkpoint.model.train().requires_grad_(True), checkpoint.normalise


def make_targets(
    data: TrainingData, out: Path, grid: FrameGrid, options: HubertOptions
) -> tuple[Codebook, LabelledAudio]:
    """Pack the audio, get or fit the codebook, once, and label all frames of `grid` with it."""
    packed = pack_audio(data, out)
    lengths = np.diff(np.load(packed / "bounds.npy")).tolist()
    check_crops(lengths, grid, options.seconds)
    if options.codebook:
        codebook = load_codebook(options.codebook)
        features = features_of(codebook, options.teacher, options.precision)
    else:
        if options.teacher == "mfcc":
            features = Features("mfcc", grid, partial(spectral_stream, grid=grid, kind="mfcc"))
        else:
            features = load_features(
                options.teacher, options.layer, options.smooth, options.precision or "fp32"
            )
        path = out / "targets.safetensors"
        if not path.is_file():
            sampling = (options.share, options.budget or BUDGET, options.starts or STARTS)
            fit_targets(
                data.recordings, features, options.clusters, options.training.seed, *sampling
            ).save(path)
        codebook = load_codebook(path)
    decisive = [data.hash, codebook.hash, options.reference, asdict(grid), options.precision]
    # beside `out` too, for runs that share the targets
    folder = out.parent / f"targets-{hash_json(decisive)}"
    made_from = {"corpus": data.hash, "reference": options.reference}
    write_targets(data.recordings, folder, grid, features, codebook, lengths, made_from)
    return codebook, LabelledAudio.load(packed, folder)
