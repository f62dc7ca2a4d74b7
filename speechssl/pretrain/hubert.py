"""One run of HuBERT pre-training, from recordings to an encoder folder: targets, then training; resumable.

From scratch or from any HuBERT; on what is recorded, or on what it sounds like distorted, with the clean signal's targets
(arXiv 2203.16104), perhaps beside a clean teacher and against a domain classifier.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from tqdm import tqdm
from transformers import HubertModel

from speechssl.audio import SAMPLE_RATE
from speechssl.encoders.base import SpeechEncoder
from speechssl.encoders.export import save_encoder
from speechssl.encoders.load import load_checkpoint, load_encoder
from speechssl.encoders.training import check_known, training_states
from speechssl.errors import InputError
from speechssl.io import SHIPPED, claim, hash_json, replacing, write_json
from speechssl.pretrain.adversarial import AdversaryOptions, scale_gradients
from speechssl.pretrain.data import Cropper, Distortions, MaskOptions, check_crops
from speechssl.pretrain.distil import DistilOptions, extras, named, plain
from speechssl.pretrain.presets import HUBERT
from speechssl.pretrain.targets import Material, fit_targets, load_labelled, material, pack_audio, packed, write_targets
from speechssl.processes import agreed, is_main, main_first, mean_of_processes, processes
from speechssl.timing import FrameGrid
from speechssl.trainer import Batch, TrainingOptions, check_share, fit
from speechssl.units.features import Features, load_features, load_features_of, mfcc_stream
from speechssl.units.kmeans import BUDGET, STARTS, Codebook, load_codebook

# The parts of pre-training that are no encoder, kept beside it: an ordinary Hugging Face folder with one file more.

NAME = "label_head.safetensors"


def save_label_head(model: Any, folder: Path, codebook: str) -> None:
    """Write projection and label embeddings of a `HubertPretraining` into the folder of its encoder. codebook: its hash."""
    state = {"labels": model.labels, **{f"project.{name}": value for name, value in model.project.state_dict().items()}}
    with replacing(folder / NAME) as temporary:
        save_file({k: v.detach().float().cpu().contiguous() for k, v in state.items()}, temporary, {"codebook": codebook})


def restore_label_head(model: Any, start: str, codebook: str) -> bool:
    """Go on with the head beside the encoder `start` where it is for this codebook; else keep the new one, and say so on stderr.

    Returns whether it was restored. Raises InputError for a head that cannot be read.
    """
    path = (SHIPPED / start if (SHIPPED / start / "config.json").is_file() else Path(start)) / NAME  # beside what was loaded
    if not path.is_file():
        return _tell(f"{start} has no label head; one for {len(model.labels)} clusters was made")
    try:
        with safe_open(path, "pt") as file:
            before = (file.metadata() or {}).get("codebook")
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dict
        fits = before == codebook and state["labels"].shape == model.labels.shape
        if not fits:
            old = f"{_size(state['labels'])} for codebook {before}"
            return _tell(f"the label head of {start} is {old}; it was re-made: {_size(model.labels)} for {codebook}")
        _fill(model, state)
    except (OSError, SafetensorError, KeyError, IndexError, RuntimeError) as error:
        why = " ".join(str(error).split())  # torch takes several lines
        raise InputError(f"cannot read the label head {path} ({why}); delete it and a new one is made") from error
    return True


def _size(labels: Any) -> str:
    return f"{labels.shape[0]} clusters in {labels.shape[1]} dimensions"


def _fill(model: Any, state: dict[str, Any]) -> None:
    project: nn.Module = model.project
    project.load_state_dict({k.removeprefix("project."): v for k, v in state.items() if k != "labels"})
    model.labels.data.copy_(state["labels"])


def _tell(text: str) -> bool:
    if is_main():
        tqdm.write(text, file=sys.stderr)
    return False


# HuBERT pre-training: predict the cluster of every frame, hidden ones above all (arXiv 2106.07447, section II).
#
# The published loss counts masked frames only. Where the input is not what the targets come from (another reading of the same
# words,
# as ContentVec's teacher, arXiv 2204.09224; or distorted speech with the clean signal's clusters, arXiv 2203.16104) the visible
# frames are worth learning from too, because the answer is not in the input: `visible_weight` says how much.
# Letters: B utterances, N samples, T frames, K clusters, D width.

PENALTY = 10.0  # of the published loss: times the mean square of the CNN's output


class HubertPretraining(nn.Module):
    """Encoder, projection and label embeddings. Logits are cosines divided by 0.1 (section II-C).

    extras: modules that add to the loss, called with the layers, the mask and the whole batch (`distillation`, `adversary`).
    gradient_scale: of the gradient into the CNN (published: 0.1).
    """

    def __init__(
        self,
        encoder: HubertModel,
        clusters: int,
        width: int = 128,
        visible_weight: float = 0.0,
        penalty: float = PENALTY,
        gradient_scale: float = 1.0,
        extras: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.project = nn.Linear(encoder.config.hidden_size, width)
        self.labels = nn.Parameter(torch.randn(clusters, width))
        self.visible_weight, self.penalty = visible_weight, penalty
        scale_gradients(encoder.feature_extractor, gradient_scale)
        self.extras = nn.ModuleList(extras)

    def forward(self, samples: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, **batch: torch.Tensor) -> Batch:
        """samples: (B, N), as the encoder wants them, unpadded; labels: (B, T) int, below 0 where there is none;
        mask: (B, T) bool. Returns the loss and scalars to be logged.
        """
        features, layers = training_states(self.encoder, samples, mask)
        found = self._predicted(final(self.encoder, layers[-1]), labels, mask)
        found["loss"] = found["loss"] + self.penalty * features.float().pow(2).mean()
        for extra in self.extras:
            added = extra(layers, mask, batch)
            found |= {"loss": found["loss"] + added.pop("loss")} | added
        return found

    def _predicted(self, hidden: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> Batch:
        """Cross-entropy and accuracy; of the frames that are not hidden only the accuracy, where they weigh nothing."""
        known = labels >= 0
        masked, right = self._cross_entropy(hidden, labels, mask & known)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.visible_weight > 0):
            seen, visible = self._cross_entropy(hidden, labels, ~mask & known)
        loss = (masked + self.visible_weight * seen) / (1 + self.visible_weight)
        return {"loss": loss, "masked_accuracy": right.detach(), "visible_accuracy": visible.detach()}

    def _cross_entropy(self, hidden: torch.Tensor, labels: torch.Tensor, where: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss and share of right predictions over the frames of all processes where `where` is true."""
        chosen = labels[where]
        vectors = functional.normalize(self.project(hidden[where]).float(), dim=-1)
        with torch.autocast(hidden.device.type, enabled=False):  # a cosine in bf16 is wrong by 0.04 after its division
            logits = vectors @ functional.normalize(self.labels, dim=-1).T / 0.1
        count = mean_of_processes(where.sum()).clamp(min=1 / processes())
        losses = functional.cross_entropy(logits, chosen, reduction="sum")
        return losses / count, (logits.argmax(-1) == chosen).float().sum() / count


def final(encoder: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """What is predicted from: the last layer, normalised where layers normalise their input (large)."""
    stable = getattr(encoder.config, "do_stable_layer_norm", False)
    return encoder.encoder.layer_norm(hidden) if stable else hidden  # type: ignore[union-attr, operator, return-value]


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
