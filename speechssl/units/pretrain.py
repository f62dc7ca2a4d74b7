"""One iteration of HuBERT pre-training, from a prepared corpus to an encoder folder: targets, then training; resumable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import HubertModel

from speechssl.artefacts import claim, read_json, write_json
from speechssl.audio import SAMPLE_RATE
from speechssl.corpora.records import data_hash
from speechssl.encoders.loading import load_checkpoint, load_encoder
from speechssl.encoders.pretraining import Cropper, HubertPretraining, MaskOptions, save_encoder, small_config
from speechssl.encoders.speech_encoder import SpeechEncoder
from speechssl.errors import InputError
from speechssl.processes import agreed, is_main, main_first
from speechssl.timing import FrameGrid
from speechssl.training import TrainingOptions, check_share, fit
from speechssl.units.features import load_features
from speechssl.units.kmeans import Codebook, load_codebook
from speechssl.units.mfcc import mfcc
from speechssl.units.targets import fit_targets, load_labelled, pack_audio, write_targets


@dataclass(frozen=True)
class IterationOptions:
    """One iteration. `teacher` is "mfcc" or the folder of an encoder whose `layer` gives the targets."""

    training: TrainingOptions
    teacher: str = "mfcc"
    layer: int = 0
    smooth: int = 1  # frames the teacher's features are averaged over
    clusters: int = 100  # K
    start: str | None = None  # an encoder to go on from; None: from scratch, as published for both iterations
    mask: MaskOptions = field(default_factory=lambda: MaskOptions(visible_weight=1.0))
    crops: int = 10  # a batch
    seconds: float = 4.0  # a crop
    save_bf16: bool = False  # round the weights of the finished encoder to bf16: what is fitted on it sees them so


def pretrain(corpus: Path, out: Path, options: IterationOptions) -> SpeechEncoder:
    """Run one iteration; what it makes lies in `out`, the encoder in `out`/encoder. Finished work is not done again.

    The training audio is packed once for all iterations, beside `out`: in packed-<hash of the data>.
    Raises InputError where `out` was made from other inputs.
    """
    check_share(options.crops)
    with claim(out, _made_from(corpus, options)):
        if agreed((out / "encoder" / "card.json").is_file()):
            return load_encoder(out / "encoder")
        torch.manual_seed(options.training.seed)
        encoder = _start(options.start) if options.start else HubertModel(small_config())
        grid = FrameGrid.of_convolutions(SAMPLE_RATE, encoder.config.conv_kernel, encoder.config.conv_stride)
        with main_first():
            codebook = make_targets(corpus, out, grid, options)
        model = HubertPretraining(encoder, options.clusters, visible_weight=options.mask.visible_weight)
        data = load_labelled(packed(corpus, out), out / "targets")
        crop = Cropper(data, grid, options.mask, options.crops, options.seconds, options.training.seed)
        result = fit(model, crop, options.training, out / "checkpoints")
        with main_first():
            if is_main():
                save_encoder(encoder, out / "encoder", bf16=options.save_bf16)
                write_json(out / "encoder" / "card.json", _card(corpus, options, codebook, result))
        return load_encoder(out / "encoder")


def packed(corpus: Path, out: Path) -> Path:
    """Where the training audio of a corpus lies in one array."""
    return out.parent / f"packed-{data_hash(corpus, 'train')}"


def _made_from(corpus: Path, options: IterationOptions) -> dict[str, Any]:
    named = {"teacher": options.teacher, "start": options.start}
    hashes = {k: load_encoder(v).hash if v and v != "mfcc" else v for k, v in named.items()}
    return {"data": data_hash(corpus, "train"), "options": asdict(options) | hashes}


def _start(name: str) -> HubertModel:
    """The encoder to go on from, every weight of it, in float32. Raises InputError for one that is not a HuBERT."""
    model = load_checkpoint(name).model
    if not isinstance(model, HubertModel):
        raise InputError(f"{name} is a {model.config.model_type} encoder; pre-training goes on from HuBERT encoders")
    return model.train().requires_grad_(True)


def make_targets(corpus: Path, out: Path, grid: FrameGrid, options: IterationOptions) -> Codebook:
    """Codebook and labels of an iteration."""
    pack_audio(corpus, packed(corpus, out))
    features, made_from = _teacher(grid, options)
    path = out / "targets.safetensors"
    if not path.is_file():
        fit_targets(corpus, features, options.clusters, made_from, options.training.seed).save(path)
    codebook = load_codebook(path)
    lengths = np.diff(np.load(packed(corpus, out) / "bounds.npy")).tolist()
    write_targets(corpus, out / "targets", grid, features, codebook, samples=lengths)
    return codebook


def _teacher(grid: FrameGrid, options: IterationOptions) -> tuple[Callable[[np.ndarray], torch.Tensor], dict[str, Any]]:
    card: dict[str, Any] = {"layer": options.layer, "frame_rate": grid.frame_rate}
    if options.teacher == "mfcc":
        return (lambda samples: mfcc(samples, grid)), card | {"encoder": "mfcc"}
    features = load_features(options.teacher, options.layer, options.smooth)
    return (lambda samples: torch.cat(list(features.stream(samples)))), card | {
        "encoder": features.encoder,
        "smooth": options.smooth,
    }


def _card(corpus: Path, options: IterationOptions, codebook: Codebook, result: dict[str, Any]) -> dict[str, Any]:
    return {
        "what": "small HuBERT encoder",
        "options": asdict(options) | {"teacher": Path(options.teacher).parent.name or options.teacher},
        "targets": codebook.card,
        "corpus": read_json(corpus / "card.json"),
        "training": result,
    }
