"""One run of wav2vec 2.0's contrastive pre-training, from recordings to a Hugging Face folder; resumable.

From scratch or from any wav2vec 2.0; on what is recorded, or on what it sounds like distorted, with the clean signal quantised.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.artefacts import claim, write_json
from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.loading import load_encoder
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.encoders.training_forward import check_known
from speechssl.pretraining.adversary import AdversaryOptions
from speechssl.pretraining.contrastive import ContrastiveBatches, ContrastiveOptions, Wav2Vec2Pretraining, unlabelled
from speechssl.pretraining.crops import Cropper, Distortions, check_crops
from speechssl.pretraining.distillation import DistilOptions
from speechssl.pretraining.extras import extras, named, plain
from speechssl.pretraining.heads import load_pretraining, save_pretraining
from speechssl.pretraining.masking import MaskOptions
from speechssl.pretraining.quantiser import Temperature
from speechssl.pretraining.sizes import WAV2VEC2
from speechssl.pretraining.targets import Material, material, pack_audio, packed
from speechssl.processes import agreed, is_main, main_first
from speechssl.timing import FrameGrid
from speechssl.training import TrainingOptions, check_share, fit


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
