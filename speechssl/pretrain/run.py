"""Pre-training runs from recordings to an encoder folder.

A run makes its targets, trains, and writes `OUT/encoder`; it is resumable. It begins from scratch
or goes on from any HuBERT or wav2vec 2.0; on what is recorded, or on a distorted version of it with
the clean signal's targets (arXiv 2203.16104), perhaps beside a teacher on the clean signal and
against a domain classifier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import HubertModel, Wav2Vec2Model

from speechssl.artifacts import hash_json, stage, write_json
from speechssl.audio import SAMPLE_RATE
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.encoders.hubert import check_known
from speechssl.encoders.load import file_hashes, load_checkpoint, load_encoder, save_encoder
from speechssl.errors import InputError
from speechssl.options import noise_folders, settings
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
from speechssl.pretrain.options import (
    Continue,
    Distortion,
    Hubert,
    Masks,
    Spin,
    Targets,
    Wav2Vec2,
)
from speechssl.pretrain.presets import PRESETS, apply_size, hubert_config, wav2vec2_config
from speechssl.processes import is_main, main_first
from speechssl.timing import FrameGrid
from speechssl.trainer import check_share, fit
from speechssl.units.features import Features, features_of, load_features, spectral_stream
from speechssl.units.kmeans import Codebook, load_codebook

STEPS = "options.training.steps"  # a finished run with fewer goes on
CARD = "encoder/card.json"


def pretrain_hubert(o: Hubert) -> None:
    """Train one iteration of HuBERT. Finished work is not done again.

    Raises InputError where OUT was made from other inputs, and as `apply_size` does.
    """
    _train_hubert(apply_size(o))


def pretrain_wav2vec2(o: Wav2Vec2) -> None:
    """Train a wav2vec 2.0, as `pretrain_hubert`."""
    _train_wav2vec2(apply_size(o))


def continue_pretraining(o: Continue) -> None:
    """Train a HuBERT or wav2vec 2.0 further, each with its own loss, as `pretrain_hubert`."""
    complete = apply_size(o)
    if isinstance(load_checkpoint(o.start).model, HubertModel):
        _train_hubert(complete)
    else:
        _train_wav2vec2(complete)


def _train_hubert(o: Hubert | Continue) -> None:
    check_share(o.batches.crops)
    assert o.teacher is not None  # `apply_size` has set it
    seed = o.training.seed
    distort = make_distortions(o.distortion, seed, o.out)
    data = training_data(o.source, o.recordings, o.targets.reference, seed)
    inputs = {"data": data.hash, "options": decisive_options(o, distort, hash_model)}
    with stage(o.out, inputs, grows=STEPS, card=CARD) as step:
        if not step.done:
            torch.manual_seed(seed)
            encoder, normalise = _load_hubert(o)
            # before the targets: layers that the encoder has not are refused at once
            auxiliary = auxiliary_losses(encoder, o, o.start, distort)
            grid = frame_grid(encoder)
            with main_first():
                packed = pack_crops(data, o.out, grid, o.batches.crop_seconds)
                codebook, audio = make_targets(
                    data, packed, o.out, grid, o.teacher, o.targets, seed
                )
            model = HubertPretraining(
                encoder, codebook.size, o.prediction, o.convolutions, auxiliary
            )
            if o.start:
                restore_label_head(model, o.start, codebook.hash)
            cropper = make_cropper(
                o, audio, grid, normalise, distort, clean=bool(o.distillation.distil)
            )
            result = fit(model, cropper, o.training, o.out / "checkpoints", cropper.audio_seconds)
            with main_first():
                if is_main():
                    save_encoder(encoder, o.out / "encoder", normalise, o.targets.save_bf16)
                    save_label_head(model, o.out / "encoder", codebook.hash)
                    card = {
                        "what": "HuBERT encoder",
                        "targets": codebook.card,
                        "options": decisive_options(o, distort, name_model),
                        "corpus": data.card,
                        "training": result,
                    }
                    write_card(o.out, card | cropper.card)
    print(f"{o.out / 'encoder'}: {load_encoder(o.out / 'encoder').hash}")


def _train_wav2vec2(o: Wav2Vec2 | Continue) -> None:
    check_share(o.batches.crops)
    seed = o.training.seed
    distort = make_distortions(o.distortion, seed, o.out)
    data = training_data(o.source, o.recordings, reference=False, seed=seed)
    inputs = {"data": data.hash, "options": decisive_options(o, distort, hash_model)}
    with stage(o.out, inputs, grows=STEPS, card=CARD) as step:
        if not step.done:
            torch.manual_seed(seed)
            model = _load_wav2vec2(o)
            model.auxiliary.extend(auxiliary_losses(model.encoder, o, o.start, distort))
            grid = frame_grid(model.encoder)
            with main_first():
                packed = pack_crops(data, o.out, grid, o.batches.crop_seconds)
                audio = LabelledAudio.load(packed, grid)
            cropper = make_cropper(o, audio, grid, model.normalise, distort, clean=bool(distort))
            batches = ContrastiveBatches(cropper, o.contrast, seed, o.training.accumulation)
            result = fit(model, batches, o.training, o.out / "checkpoints", cropper.audio_seconds)
            with main_first():
                if is_main():
                    save_pretraining(model, o.out / "encoder")
                    card = {
                        "what": "wav2vec 2.0 with its heads",
                        "options": decisive_options(o, distort, name_model),
                        "corpus": data.card,
                        "training": result,
                    }
                    write_card(o.out, card | cropper.card)
    print(f"{o.out / 'encoder'}: {load_encoder(o.out / 'encoder').hash}")


def _load_hubert(o: Hubert | Continue) -> tuple[HubertModel, bool]:
    """Load or make the model to train, in float32, and say whether its input is normalised. Raises
    InputError for a start that is not a HuBERT."""
    if isinstance(o, Hubert) and o.start is None:
        normalise = PRESETS["hubert"][o.size]["normalise"]
        return HubertModel(hubert_config(o.size)).train(), normalise
    start = str(o.start)
    checkpoint = load_checkpoint(start)
    if not isinstance(checkpoint.model, HubertModel):
        kind = checkpoint.model.config.model_type
        raise InputError(f"{start} is a {kind} encoder; start this training from a HuBERT")
    check_known(checkpoint.model, start)
    return checkpoint.model.train().requires_grad_(True), checkpoint.normalise


def _load_wav2vec2(o: Wav2Vec2 | Continue) -> Wav2Vec2Pretraining:
    if isinstance(o, Wav2Vec2) and o.start is None:
        normalise = PRESETS["wav2vec2"][o.size]["normalise"]
        encoder = Wav2Vec2Model(wav2vec2_config(o.size))
        return Wav2Vec2Pretraining(encoder, o.contrast, o.convolutions, normalise)
    start = str(o.start)
    model = load_pretraining(start, o.contrast, o.convolutions)
    check_known(model.encoder, start)
    return model


# ---- steps that the methods share


def make_distortions(o: Distortion, seed: int, out: Path) -> TrainingDistortions | None:
    """Make the distortions of a run that writes `out`, with all their noise at hand; None without
    --distort."""
    if o.distort is None:
        return None
    return parse_distortions(
        o.distort,
        noise_folders(o.noise),
        seed=seed,
        probability=(o.distorted[0], o.distorted[-1]),
        snr=o.snr_range,
        snr_end=o.snr_range_end,
        double=o.double,
        cache=o.noise_cache or out.parent / "noise",
        snr_over=o.snr_over,
    )


def frame_grid(encoder: Any) -> FrameGrid:
    """Return the frame grid of a HuBERT or wav2vec 2.0."""
    config = encoder.config
    return FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)


def make_cropper(
    o: Hubert | Wav2Vec2 | Continue | Spin,
    audio: LabelledAudio,
    grid: FrameGrid,
    normalise: bool,
    distort: TrainingDistortions | None,
    *,
    clean: bool = False,
    second: TrainingDistortions | None = None,
) -> Cropper:
    """Make the batches of a run; see `Cropper`. Spin masks nothing."""
    no_masks = Masks(mask_probability=0.0, same_masks=False)
    return Cropper(
        audio,
        grid,
        no_masks if isinstance(o, Spin) else o.masks,
        o.batches,
        o.training.seed,
        normalise,
        distort,
        clean=clean,
        horizon=o.training.horizon or o.training.steps,
        accumulation=o.training.accumulation,
        silence=o.distortion.silence,
        second=second,
    )


def pack_crops(data: TrainingData, out: Path, grid: FrameGrid, crop_seconds: float) -> Path:
    """Pack the audio, once. Raises InputError where no recording is as long as a crop."""
    packed = pack_audio(data, out)
    check_crops(read_lengths(packed), grid, crop_seconds)
    return packed


def read_lengths(packed: Path) -> list[int]:
    """Read how many samples every recording has, 0 for those that were set aside."""
    lengths: list[int] = np.diff(np.load(packed / "bounds.npy")).tolist()
    return lengths


def make_targets(
    data: TrainingData,
    packed: Path,
    out: Path,
    grid: FrameGrid,
    teacher: str,
    targets: Targets,
    seed: int,
) -> tuple[Codebook, LabelledAudio]:
    """Get or fit the codebook, once, and label all frames of `grid` with it.

    packed: the folder of the audio. teacher: an encoder or "mfcc".
    """
    if targets.codebook:
        codebook = load_codebook(targets.codebook)
        features = features_of(codebook, teacher, targets.teacher_precision)
    else:
        if teacher == "mfcc":
            features = Features("mfcc", grid, partial(spectral_stream, grid=grid, kind="mfcc"))
        else:
            precision = targets.teacher_precision or "fp32"
            features = load_features(teacher, targets.layer, targets.smooth, precision)
        path = out / "targets.safetensors"
        if not path.is_file():
            fit_targets(data.recordings, features, targets, seed).save(path)
        codebook = load_codebook(path)
    labelled_by = [data.hash, codebook.hash, targets.reference, asdict(grid)]
    # beside `out` too, for runs that share the targets
    folder = out.parent / f"targets-{hash_json([*labelled_by, targets.teacher_precision])}"
    made_from = {"corpus": data.hash, "reference": targets.reference}
    lengths = read_lengths(packed)
    write_targets(data.recordings, folder, grid, features, codebook, lengths, made_from)
    return codebook, LabelledAudio.load(packed, folder)


# ---- cards

PLACES = ("source", "out", "device", "distortion")  # do not decide the result, or are in a hash
MODELS = ("start", "teacher", "codebook")


def decisive_options(
    o: Hubert | Wav2Vec2 | Continue | Spin,
    distort: TrainingDistortions | None,
    identify: Callable[[str, str], str],
) -> dict[str, Any]:
    """Return the options that decide the result, as JSON holds them, with the distortions' card.

    identify: option and its value, an encoder or a codebook -> what stands for it (`hash_model` or
    `name_model`).
    """
    values = {name: value for name, value in settings(o).items() if name not in PLACES}
    options = _identify_models(values, identify)
    options["distort"] = None if distort is None else distort.card
    options["silence"] = o.distortion.silence
    return options


def _identify_models(values: dict[str, Any], identify: Callable[[str, str], str]) -> dict[str, Any]:
    """Replace the values of MODELS, in groups as well."""
    replaced: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            replaced[name] = _identify_models(value, identify)
        elif name in MODELS and value is not None:
            replaced[name] = identify(name, value)
        else:
            replaced[name] = value
    return replaced


def hash_model(name: str, value: str) -> str:
    """Return the hash of an encoder or a codebook: its weights identify it, not its place."""
    if value == "mfcc":
        return value
    return load_codebook(value).hash if name == "codebook" else load_encoder(value).hash


def name_model(name: str, value: str) -> str:
    """Return the end of a path, for a card: it does not say where things lie on this machine."""
    return "/".join(Path(value).parts[-2:])


def write_card(out: Path, card: dict[str, Any]) -> None:
    """Write the card of `out`/encoder with the hashes of its files; last, for it says that the run
    is done."""
    folder = out / "encoder"
    write_json(folder / "card.json", card | {"files": file_hashes(folder)})
