"""Spin and R-Spin: frames of two versions of an utterance, by another speaker or in noise, get the
same code.

Spin (speaker-invariant clustering, arXiv 2305.11072): a projection of a layer is compared with a
learned codebook; the codes of the one version, balanced by Sinkhorn's algorithm so that all of them
are used, are what the other predicts, and the other way round. The second version is the utterance
by a perturbed speaker (`augment`, kind v). R-Spin (arXiv 2311.09117): noise is added to both
versions independently, and both predict pseudo-labels of the clean signal as well; then all layers
can be trained.
With `label_loss` "ctc" only the order of the pseudo-labels counts: what a neutral reading of the
same text says, whose frames fit another reading's badly, is learned as Lee et al. 2022 (arXiv
2112.08352, section 3.2) normalise speech.
Deviations: pseudo-labels are clusters or Spin's codes themselves (R-Spin: frequent sequences of
these, acoustic pieces); the codebook is normalised where it is used (the authors' code normalises
the stored one after every update); AdamW for Adam.

Letters: B utterances, N samples, T frames, F frames of a batch, K codes, D width, E width of the
projection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import HubertModel

from speechssl.audio import SAMPLE_RATE
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.encoders.hubert import check_known
from speechssl.encoders.load import (
    SpeechEncoder,
    file_hashes,
    load_checkpoint,
    load_encoder,
    save_encoder,
)
from speechssl.encoders.training import training_states
from speechssl.errors import InputError
from speechssl.io import stage, write_json
from speechssl.options import TrainingOptions, settings
from speechssl.pretrain.data import (
    Cropper,
    LabelledAudio,
    MaskOptions,
    check_crops,
    pack_audio,
    training_data,
)
from speechssl.pretrain.options import Codes, PseudoLabels, Spin, Versions
from speechssl.pretrain.presets import HUBERT, HubertOptions
from speechssl.pretrain.run import hashes, make_targets
from speechssl.processes import is_main, main_first, mean_of_processes, processes
from speechssl.timing import FrameGrid
from speechssl.trainer import Batch, check_share, fit
from speechssl.units.kmeans import PADDING, Codebook

# of Sinkhorn's algorithm: e^(1 / epsilon) is beyond float32 from 0.0113 down, and training NaN
LEAST_EPSILON = 0.0125


@dataclass(frozen=True)
class SpinOptions:
    """What `speechssl pretrain spin` is given; the defaults of its options are those of Spin on a
    base encoder (2305.11072, section 3.1, and the authors' config/spin.yaml)."""

    start: str | None
    training: TrainingOptions
    size: str | None = Spin.size  # of a HuBERT with random weights, where there is no start
    layer: int | None = Codes.layer
    trained: int | None = Spin.trained_layers  # None: the whole encoder (R-Spin)
    codes: int = Codes.codes  # K
    projection: int = Codes.projection  # E
    temperature: float = Codes.temperature
    epsilon: float = Codes.epsilon
    iterations: int = Codes.iterations
    # of 17 s: 256 s a batch, rounded to what processes can divide; R-Spin has 384 s
    crops: int = Versions.crops
    seconds: float = Versions.seconds  # 272,000 samples
    recordings: int | None = None
    distort: TrainingDistortions | None = None  # of both versions
    silence: float = Versions.silence
    teacher: str | None = PseudoLabels.teacher
    teacher_layer: int | None = PseudoLabels.teacher_layer
    clusters: int = PseudoLabels.clusters
    codebook: str | None = PseudoLabels.codebook
    label_weight: float = PseudoLabels.label_weight
    label_loss: str = PseudoLabels.label_loss
    reference: bool = PseudoLabels.reference


def sinkhorn(scores: torch.Tensor, epsilon: float, iterations: int) -> torch.Tensor:
    """Balanced soft codes: rows sum to 1, and over the batch of all processes all codes get equally
    much (SwAV, arXiv 2006.09882).

    scores: (F, K) cosines. Returns (F, K) without gradient.
    """
    # e^50 at most, for cosines and the published epsilon
    codes = torch.exp(scores.detach().float() / epsilon)
    for _ in range(iterations):
        total = mean_of_processes(codes.sum(0)) * processes()
        codes = codes / (total * codes.shape[1]).clamp(min=torch.finfo(torch.float32).tiny)
        codes = codes / codes.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return codes


def order_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum over the batch of -log p(order of the labels), where p adds up all ways to give every
    frame one of the row's labels, in order and each at least once: CTC (Graves et al. 2006) without
    its blank.

    scores: (B, T, K), labels: (B, T), below 0 where unknown. Frames without a label take no part.
    Returns a scalar.
    """
    labelled = labels >= 0
    first = (~labelled).long().argsort(dim=1, stable=True)  # known frames first, in order
    labels = labels.gather(1, first)
    scores = scores.gather(1, first.unsqueeze(-1).expand_as(scores))
    begins = labels != functional.pad(labels[:, :-1], (1, 0), value=-1)
    begins &= labels >= 0
    # a blank, that no path goes through
    log_p = functional.pad(functional.log_softmax(scores, -1), (0, 1), value=-1e4)
    lengths = labelled.sum(1), begins.sum(1)
    return functional.ctc_loss(
        log_p.transpose(0, 1), labels[begins], *lengths, blank=scores.shape[-1], reduction="sum"
    )


class SpinPretraining(nn.Module):
    """An encoder, the projection of one of its layers, the codebook, and with `labels` a classifier
    of pseudo-labels."""

    def __init__(self, encoder: nn.Module, options: SpinOptions, labels: int = 0) -> None:
        super().__init__()
        config: Any = encoder.config
        self.encoder, self.options = encoder, options
        self.layer = options.layer or config.num_hidden_layers
        self.project = nn.Linear(config.hidden_size, options.projection)
        self.codebook = nn.Parameter(torch.randn(options.codes, options.projection))
        self.classify = nn.Linear(config.hidden_size, labels) if labels else None
        blocks: Any = encoder.encoder
        encoder.requires_grad_(options.trained is None)
        if options.trained is not None:
            for block in blocks.layers[max(self.layer - options.trained, 0) : self.layer]:
                block.requires_grad_(True)
        # layers above, and what only comes after them, get no gradient, which several processes
        # would wait for
        for block in blocks.layers[self.layer :]:
            block.requires_grad_(False)
        if getattr(config, "do_stable_layer_norm", False):
            blocks.layer_norm.requires_grad_(False)
        encoder.masked_spec_embed.requires_grad_(False)  # nothing is masked

    def forward(
        self,
        samples: torch.Tensor,
        second: torch.Tensor,
        labels: torch.Tensor,
        step: torch.Tensor,
        **_: torch.Tensor,
    ) -> Batch:
        """samples, second: (B, N), the two versions, frame by frame of the same content; labels:
        (B, T), below 0 where unknown; step: how many updates were made before.

        Returns the loss and scalars to be logged: the share of frames whose versions have the same
        code, and how many codes are in use (perplexity).
        """
        _, states = training_states(self.encoder, torch.cat([samples, second]), None, self.layer)
        hidden = states[-1].flatten(0, 1)
        with torch.autocast(hidden.device.type, enabled=False):
            vectors = functional.normalize(self.project(hidden.float()), dim=-1)
            one, two = (vectors @ functional.normalize(self.codebook, dim=-1).T).chunk(2)
            options = self.options
            targets = [
                sinkhorn(scores, options.epsilon, options.iterations) for scores in (one, two)
            ]
            swapped = ((one, targets[1]), (two, targets[0]))
            loss = torch.stack(
                [functional.cross_entropy(x / options.temperature, target) for x, target in swapped]
            ).mean()
            chosen = [scores.detach().argmax(-1) for scores in (one, two)]
            use = torch.bincount(torch.cat(chosen), minlength=options.codes).float()
            share = use / use.sum()
            logged = {
                "agreement": (chosen[0] == chosen[1]).float().mean(),
                "codes_in_use": torch.exp(-torch.xlogy(share, share).sum()),
            }
            if self.classify is not None:
                classes = torch.cat([labels, labels]).flatten()
                labelled = classes >= 0
                scores = self.classify(hidden.float())
                count = mean_of_processes(labelled.sum()).clamp(min=1 / processes())
                if options.label_loss == "ctc" and step >= options.training.warmup_steps:
                    pseudo = (
                        order_loss(
                            scores.unflatten(0, states[-1].shape[:2]), torch.cat([labels, labels])
                        )
                        / count
                    )
                else:
                    pseudo = (
                        functional.cross_entropy(
                            scores[labelled], classes[labelled], reduction="sum"
                        )
                        / count
                    )
                scores = scores[labelled]
                logged["label_accuracy"] = (
                    scores.detach().argmax(-1) == classes[labelled]
                ).float().sum() / count
                loss = loss + options.label_weight * pseudo
        return {"loss": loss, **logged}

    def read_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Code k of a frame x is the arg max of weights[k] x + offsets[k]: (K, D) and (K,)
        float32."""
        with torch.no_grad():
            codes = functional.normalize(self.codebook.double(), dim=-1)
            weights, offsets = (
                codes @ self.project.weight.double(),
                codes @ self.project.bias.double(),
            )
        return weights.float().cpu().numpy(), offsets.float().cpu().numpy()


def spin(source: Path, out: Path, options: SpinOptions) -> SpeechEncoder:
    """Train; OUT/encoder is the encoder. OUT/units.safetensors, its own codebook, and
    OUT/labels.safetensors, the linear head that predicts the pseudo-labels, are read-outs for
    `units extract`. Finished work is not repeated.

    Raises InputError for a start that is no HuBERT or wav2vec 2.0, and where `out` was made from
    other inputs.
    """
    check_share(options.crops)
    if options.epsilon < LEAST_EPSILON:
        raise InputError(
            f"--epsilon {options.epsilon:g} is too small for the codes to be balanced; give at "
            f"least {LEAST_EPSILON:g}"
        )
    if (options.start is None) == (options.size is None):
        raise InputError(
            "give --start, the HuBERT or wav2vec 2.0 to start from, or --size, for "
            "random weights; one of the two"
        )
    if options.size and options.trained is not None:
        raise InputError(
            "with --size all layers have random weights and must be trained; give "
            "--trained-layers 0 as well"
        )
    training = options.training
    voices = parse_distortions("v", seed=training.seed, probability=(1.0, 1.0))
    data = training_data(source, options.recordings, options.reference, training.seed)
    decisive = settings(replace(options, distort=None))
    # so that folders older than the option stay valid
    if options.label_loss == PseudoLabels.label_loss:
        del decisive["label_loss"]
    if options.size is None:
        del decisive["size"]
    decisive |= {"distort": getattr(options.distort, "card", None), "voices": voices.card}
    inputs = {"data": data.hash, "options": decisive | hashes(options)}
    with stage(out, inputs, grows="options.training.steps", card="encoder/card.json") as step:
        if step.done:
            return load_encoder(out / "encoder")
        start, normalise = _start(options)
        config: Any = start.config
        if not 1 <= (options.layer or 1) <= config.num_hidden_layers:
            name, last = options.start or options.size, config.num_hidden_layers
            raise InputError(
                f"{name} has the layers 1 to {last}, not {options.layer}; change --layer"
            )
        grid = FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)
        labels, codebook = 0, None
        with main_first():
            if options.teacher:
                layer = options.teacher_layer or (
                    0 if options.teacher == "mfcc" else load_encoder(options.teacher).layers
                )
                target_options = HubertOptions(
                    training, options.teacher, layer, clusters=options.clusters, codebook=options.codebook, seconds=options.seconds,
                    reference=options.reference,
                )  # fmt: skip
                codebook, audio = make_targets(data, out, grid, target_options)
                labels = codebook.size
            else:
                audio = LabelledAudio.load(pack_audio(data, out), grid)
                check_crops(np.diff(audio.sample_bounds).tolist(), grid, options.seconds)
        torch.manual_seed(training.seed)
        model = SpinPretraining(start.train(), options, labels)
        cropper = Cropper(
            audio, grid, MaskOptions(), options.crops, options.seconds, training.seed, normalise, options.distort,
            horizon=training.horizon or training.steps, accumulation=training.accumulation, silence=options.silence, second=voices,
        )  # fmt: skip
        result = fit(model, cropper, training, out / "checkpoints", cropper.audio_seconds)
        with main_first():
            if is_main():
                save_encoder(model.encoder, out / "encoder", normalise)
                encoder = load_encoder(out / "encoder")
                facts = {
                    "encoder": encoder.hash, "layer": model.layer, "smooth": 1, "frame_rate": grid.frame_rate, "padding": PADDING,
                    "settings": encoder.settings, "precision": encoder.precision, "read_out": ("codebook of "
                                                                                               "Spin"),
                }  # fmt: skip
                weights, offsets = model.read_out()
                Codebook(weights, facts, offsets=offsets).save(out / "units.safetensors")
                # readers of the codebook's units read what it predicts
                if codebook is not None and model.classify is not None:
                    of = "a reference reading" if options.reference else "the clean signal"
                    order = ", in order" if options.label_loss == "ctc" else ""
                    facts |= {
                        "read_out": (f"linear head on the clusters of {of}{order}")
                    } | codebook.carried
                    weights, offsets = (
                        x.detach().float().cpu().numpy()
                        for x in (model.classify.weight, model.classify.bias)
                    )
                    Codebook(weights, facts, offsets=offsets).save(out / "labels.safetensors")
                names = {
                    name: "/".join(Path(value).parts[-2:])
                    for name in ("start", "teacher", "codebook")
                    if (value := decisive[name])
                }
                card = {
                    "what": "encoder trained by Spin",
                    "options": decisive | names,
                    "corpus": data.card,
                    "training": result,
                }
                targets = (
                    {key: value for key, value in codebook.card.items() if key != "scores"}
                    if codebook
                    else None
                )
                made_of = {"targets": targets, "files": file_hashes(out / "encoder")} | cropper.card
                write_json(out / "encoder" / "card.json", card | made_of)
        return load_encoder(out / "encoder")


def _start(options: SpinOptions) -> tuple[Any, bool]:
    """The model to train, and whether its input is normalised."""
    if options.size:
        torch.manual_seed(options.training.seed)
        return HubertModel(HUBERT[options.size].config()), HUBERT[options.size].normalise
    name = options.start or ""
    checkpoint = load_checkpoint(name)
    check_known(checkpoint.model, name)
    return checkpoint.model, checkpoint.normalise
