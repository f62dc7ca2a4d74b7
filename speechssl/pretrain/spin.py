"""Spin and R-Spin train an encoder to give the same codes to two versions of an utterance, by
another speaker or in noise.

Spin (speaker-invariant clustering, arXiv 2305.11072) compares a projection of a layer with a
learned codebook. Each version predicts the codes of the other, which Sinkhorn's algorithm balances
so that all of them are used. The second version is the utterance by a perturbed speaker (`augment`,
kind v). R-Spin (arXiv 2311.09117) adds noise to both versions independently, and both predict
pseudo-labels of the clean signal as well; then all layers can be trained.
With `label_loss` "ctc" only the order of the pseudo-labels counts. This suits labels of a neutral
reading of the same text, whose frames fit those of the recording badly: Lee et al. 2022 (arXiv
2112.08352, section 3.2) normalise speech in this way.
Deviations: pseudo-labels are clusters or Spin's codes themselves (R-Spin: frequent sequences of
these, acoustic pieces); the codebook is normalised where it is used (the authors' code normalises
the stored one after every update); AdamW replaces Adam.

Letters: B utterances, N samples, T frames, F frames of a batch, K codes, D width, E width of the
projection.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from speechssl.augment.training import parse_distortions
from speechssl.encoders.hubert import check_trainable, compute_states
from speechssl.encoders.load import load_checkpoint, load_encoder, save_encoder
from speechssl.errors import InputError
from speechssl.pretrain.model import average_count
from speechssl.pretrain.options import PseudoLabels, Spin, Targets
from speechssl.pretrain.run import make_frame_grid, prepare_run, print_encoder
from speechssl.processes import average_processes, count_processes
from speechssl.training import Batch, fit, write_by_main
from speechssl.units.codebook import Codebook
from speechssl.units.features import make_features


def sinkhorn(scores: Tensor, epsilon: float, iterations: int) -> Tensor:
    """Balance soft codes: rows sum to 1, and in the batch of all processes all codes get the same
    sum (SwAV, arXiv 2006.09882).

    scores: (F, K) cosines. Returns (F, K) without gradient.
    """
    # at most e^50, for cosines and the published epsilon
    codes = torch.exp(scores.detach().float() / epsilon)
    for _ in range(iterations):
        total = average_processes(codes.sum(0)) * count_processes()
        codes = codes / (total * codes.shape[1]).clamp(min=torch.finfo(torch.float32).tiny)
        codes = codes / codes.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return codes


def compute_order_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Sum -log p(order of the labels) over the batch: CTC (Graves et al. 2006) without its blank.

    p adds up the probabilities of all ways to give every frame a label of its row, in order, so
    that each run of equal labels gets at least one frame.

    scores: (B, T, K), labels: (B, T), below 0 where unknown. Frames without a label take no part.
    Returns a scalar.
    """
    labelled = labels >= 0
    order = (~labelled).long().argsort(dim=1, stable=True)  # labelled frames first
    labels = labels.gather(1, order)
    scores = scores.gather(1, order.unsqueeze(-1).expand_as(scores))
    starts_run = labels != functional.pad(labels[:, :-1], (1, 0), value=-1)
    starts_run &= labels >= 0
    # the last symbol is a blank so improbable that no path goes through it
    log_p = functional.pad(functional.log_softmax(scores, -1), (0, 1), value=-1e4)
    return functional.ctc_loss(
        log_p.transpose(0, 1),
        labels[starts_run],
        input_lengths=labelled.sum(1),
        target_lengths=starts_run.sum(1),
        blank=scores.shape[-1],
        reduction="sum",
    )


def compute_label_loss(scores: Tensor, labels: Tensor, *, by_order: bool) -> tuple[Tensor, Tensor]:
    """Return the loss of pseudo-labels and the share of frames that get theirs, both means over the
    labelled frames of all processes.

    scores: (B, T, K), labels: (B, T), below 0 where unknown; by_order: whether only the order of a
    row's labels counts.
    """
    labelled = labels >= 0
    count = average_count(labelled.sum())
    predicted, expected = scores[labelled], labels[labelled]
    right = (predicted.detach().argmax(-1) == expected).float().sum()
    if by_order:
        return compute_order_loss(scores, labels) / count, right / count
    loss = functional.cross_entropy(predicted, expected, reduction="sum")
    return loss / count, right / count


class SpinPretraining(nn.Module):
    """Spin adds to an encoder the projection of one of its layers, a codebook, and a classifier
    of pseudo-labels. clusters: the number of classes; 0 for no classifier."""

    def __init__(self, encoder: nn.Module, o: Spin, clusters: int) -> None:
        super().__init__()
        config: Any = encoder.config
        self.encoder, self.o = encoder, o
        self.layer = o.learned.layer or config.num_hidden_layers
        self.project = nn.Linear(config.hidden_size, o.learned.projection)
        self.codebook = nn.Parameter(torch.randn(o.learned.codes, o.learned.projection))
        self.classify = nn.Linear(config.hidden_size, clusters) if clusters else None
        blocks: Any = encoder.encoder
        encoder.requires_grad_(o.trained_layers == 0)  # then the whole encoder is trained
        for block in blocks.layers[max(self.layer - o.trained_layers, 0) : self.layer]:
            block.requires_grad_(True)
        # Nothing above the layer gets a gradient: several processes would wait for one in vain.
        for block in blocks.layers[self.layer :]:
            block.requires_grad_(False)
        if getattr(config, "do_stable_layer_norm", False):
            blocks.layer_norm.requires_grad_(False)
        encoder.masked_spec_embed.requires_grad_(False)  # nothing is masked

    def forward(
        self,
        samples: Tensor,
        second_samples: Tensor,
        labels: Tensor,
        step: Tensor,
        **_: Tensor,
    ) -> Batch:
        """Return the loss and scalars to be logged: the share of frames whose versions have the
        same code, and how many codes are in use (perplexity).

        samples, second_samples: (B, N), the two versions, whose frames have the same content;
        labels: (B, T), below 0 where unknown; step: number of updates so far.
        """
        versions = torch.cat([samples, second_samples])
        _, states = compute_states(self.encoder, versions, last=self.layer)
        hidden = states[-1].flatten(0, 1)
        with torch.autocast(hidden.device.type, enabled=False):
            vectors = functional.normalize(self.project(hidden.float()), dim=-1)
            cosines = vectors @ functional.normalize(self.codebook, dim=-1).T
            first_cosines, second_cosines = cosines.chunk(2)
            first_loss = self._compute_loss(first_cosines, second_cosines)
            second_loss = self._compute_loss(second_cosines, first_cosines)
            loss = (first_loss + second_loss) / 2
            codes = cosines.detach().argmax(-1)
            first_codes, second_codes = codes.chunk(2)
            counts = torch.bincount(codes, minlength=self.o.learned.codes).float()
            shares = counts / counts.sum()
            logged = {
                "agreement": (first_codes == second_codes).float().mean(),
                "codes_in_use": torch.exp(-torch.xlogy(shares, shares).sum()),
            }
            if self.classify is not None:
                scores = self.classify(hidden.float()).unflatten(0, states[-1].shape[:2])
                is_warm = bool(step >= self.o.training.warmup_steps)
                by_order = self.o.labels.label_loss == "ctc" and is_warm
                pseudo_loss, accuracy = compute_label_loss(
                    scores, torch.cat([labels, labels]), by_order=by_order
                )
                logged["label_accuracy"] = accuracy
                loss = loss + self.o.labels.label_weight * pseudo_loss
        return {"loss": loss, **logged}

    def _compute_loss(self, cosines: Tensor, other: Tensor) -> Tensor:
        """Return the cross-entropy with which one version predicts the balanced codes of the other,
        from (F, K) each."""
        learned = self.o.learned
        codes = sinkhorn(other, learned.epsilon, learned.iterations)
        return functional.cross_entropy(cosines / learned.temperature, codes)

    def merge_projection(self) -> tuple[np.ndarray, np.ndarray]:
        """Return projection and codebook as one linear map, weights (K, D) and offsets (K,)
        float32: the code of a frame x is the k with the largest weights[k] x + offsets[k]."""
        with torch.no_grad():
            codes = functional.normalize(self.codebook.double(), dim=-1)
            weights = codes @ self.project.weight.double()
            offsets = codes @ self.project.bias.double()
        return weights.float().cpu().numpy(), offsets.float().cpu().numpy()


def train_spin(o: Spin) -> None:
    """Train OUT/encoder by Spin. OUT/units.safetensors, its own codebook, and
    OUT/labels.safetensors, the linear head that predicts the pseudo-labels, are codebooks for
    `units extract`. Finished work is not repeated.

    Raises InputError for a start that is no HuBERT or wav2vec 2.0, and where OUT was made from
    other inputs.
    """
    labels = o.labels
    voices = parse_distortions("v", seed=o.training.seed, probability=(1.0, 1.0))
    run = prepare_run(o, labels.reference, voices=voices.card)
    with run.begin() as step:
        if not step.done:
            encoder, normalise = _load_start(o)
            grid = make_frame_grid(encoder)
            codebook = None
            if labels.teacher:
                targets = make_label_targets(labels)
                codebook, audio = run.make_targets(grid, labels.teacher, targets)
            else:
                audio = run.load_unlabelled(grid)
            torch.manual_seed(o.training.seed)
            model = SpinPretraining(encoder.train(), o, codebook.size if codebook else 0)
            batches = run.make_cropper(audio, grid, normalise, second_version=voices)
            metrics = fit(model, batches, o.training, o.out / "checkpoints")
            facts = {
                "what": "encoder trained by Spin",
                "targets": codebook and codebook.card,
                "training": metrics,
            }
            write_by_main(save_encoder, model.encoder, run.folder, normalise)
            write_by_main(save_codebooks, model, o, codebook)
            write_by_main(run.write_card, facts | batches.card)
    print_encoder(o)


def save_codebooks(model: SpinPretraining, o: Spin, codebook: Codebook | None) -> None:
    """Write the learned codebook, and with pseudo-labels the head that predicts them. codebook:
    that of the pseudo-labels."""
    facts = make_features(load_encoder(o.out / "encoder"), model.layer, smooth=1).card
    weights, offsets = model.merge_projection()
    learned = Codebook(weights, facts | {"read_out": "codebook of Spin"}, offsets=offsets)
    learned.save(o.out / "units.safetensors")
    if codebook is None or model.classify is None:
        return
    signal = "a reference reading" if o.labels.reference else "the clean signal"
    order = ", in order" if o.labels.label_loss == "ctc" else ""
    facts["read_out"] = f"linear head on the clusters of {signal}{order}"
    # readers of the codebook's units read what it predicts
    head = make_head_codebook(model.classify, facts | codebook.lineage)
    head.save(o.out / "labels.safetensors")


def make_head_codebook(head: nn.Linear, card: dict[str, Any]) -> Codebook:
    """Return a linear head as a codebook: the unit of a frame is the class of the largest score."""
    weights = head.weight.detach().float().cpu().numpy()
    return Codebook(weights, card, offsets=head.bias.detach().float().cpu().numpy())


def _load_start(o: Spin) -> tuple[Any, bool]:
    """Load the model to train, and return whether its input is normalised. Raises InputError for a
    layer that it does not have."""
    checkpoint = load_checkpoint(o.start)
    encoder: Any = checkpoint.model
    check_trainable(encoder, o.start)
    if (o.learned.layer or 0) > encoder.config.num_hidden_layers:
        raise InputError(f"{o.start} has no layer {o.learned.layer}; change --layer")
    return encoder, checkpoint.normalise


def make_label_targets(labels: PseudoLabels) -> Targets:
    """Return the options of the clusters that are pseudo-labels."""
    teacher = str(labels.teacher)
    last = 0 if teacher == "mfcc" else load_encoder(teacher).layers
    return Targets(
        layer=last if labels.teacher_layer is None else labels.teacher_layer,
        clusters=labels.clusters,
        codebook=labels.codebook,
        reference=labels.reference,
    )
