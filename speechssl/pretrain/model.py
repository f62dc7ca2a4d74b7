"""The models of both methods of pre-training add heads and losses to an encoder.

HuBERT predicts the cluster of every frame, of masked frames above all (arXiv 2106.07447, section
II). The published loss counts masked frames only. Where the targets do not come from the input (but
from another reading of the same words, as ContentVec's teacher, arXiv 2204.09224; or from the clean
signal, while the input is distorted, arXiv 2203.16104) the visible frames teach something too, and
`visible_weight` is their weight.

wav2vec 2.0 tells the quantised frame behind a mask from other masked frames of the utterance (arXiv
2006.11477). The loss of a batch is a mean over its masked frames:

    InfoNCE + 0.1 (V - perplexity) / V + 10 mean(f²)

The perplexity is a mean over the codebooks, and f is the output of the convolutions before the
layer norm. fairseq adds up InfoNCE over the masked frames, adds both other terms times their
number, and divides the gradient by that number, which comes to the same. transformers'
`Wav2Vec2ForPreTraining` gives the sum, and has no feature penalty.

On distorted speech `CleanTeacher` and `DomainAdversary` add to the loss of either.

Letters: B utterances, N samples, T frames, D width; of wav2vec 2.0 M masked frames of an utterance,
K negatives of a frame, C width of the convolutions, D final width, G codebooks of V entries.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from tqdm import tqdm
from transformers import HubertModel, Wav2Vec2ForPreTraining, Wav2Vec2Model

from speechssl.artifacts import replace_file
from speechssl.augment.training import TrainingDistortions
from speechssl.checkpoints import fetch_checkpoint
from speechssl.encoders.checkpoints import Checkpoint, list_first
from speechssl.encoders.hubert import compute_states
from speechssl.encoders.load import load_checkpoint, save_extractor
from speechssl.errors import InputError
from speechssl.finetuning import find_added_modules
from speechssl.options import find_shipped
from speechssl.pretrain.data import equalise_masks
from speechssl.pretrain.options import Adversary, Contrast, Convolutions, Prediction, Pretraining
from speechssl.processes import average_processes, count_processes, is_main
from speechssl.training import Batch

LABEL_HEAD = "label_head.safetensors"  # lies in the encoder's Hugging Face folder


def scale_gradients(module: nn.Module, factor: float) -> None:
    """Multiply the gradients of all weights of a module by a factor.

    For the convolutions, all of whose gradient comes through their output, this is fairseq's
    `feature_grad_mult` (0.1 for both base models), the feature penalty's share included.
    """
    for weight in module.parameters():
        if factor != 1 and weight.requires_grad:
            weight.register_hook(lambda gradient: gradient * factor)


def average_count(count: Tensor) -> Tensor:
    """Return the mean of a count over the processes, as if all together counted at least one."""
    return average_processes(count).clamp(min=1 / count_processes())


def apply_final_norm(encoder: nn.Module, hidden: Tensor) -> Tensor:
    """Return the states that predictions are made from: those of the last layer, normalised where
    layers normalise their input (large)."""
    pre_norm = getattr(encoder.config, "do_stable_layer_norm", False)
    return encoder.encoder.layer_norm(hidden) if pre_norm else hidden  # type: ignore[union-attr, operator, return-value]


def add_auxiliary(
    losses: Batch,
    modules: nn.ModuleList,
    layers: Sequence[Tensor],
    mask: Tensor,
    batch: Mapping[str, Tensor],
) -> Batch:
    """Add the losses of `make_auxiliary` to a model's own, and their scalars to those that are
    logged."""
    for module in modules:
        outputs = module(layers, mask, batch)
        losses["loss"] = losses["loss"] + outputs.pop("loss")
        losses.update(outputs)
    return losses


class HubertPretraining(nn.Module):
    """HuBERT adds a projection and label embeddings to the encoder; logits are their cosines
    divided by 0.1 (section II-C).

    auxiliary: modules that add to the loss (`make_auxiliary`).
    """

    def __init__(
        self,
        encoder: HubertModel,
        clusters: int,
        prediction: Prediction,
        convolutions: Convolutions,
        auxiliary: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.encoder, self.prediction, self.convolutions = encoder, prediction, convolutions
        self.project = nn.Linear(encoder.config.hidden_size, prediction.projection)
        self.labels = nn.Parameter(torch.randn(clusters, prediction.projection))
        scale_gradients(encoder.feature_extractor, convolutions.gradient_scale)
        self.auxiliary = nn.ModuleList(auxiliary)

    def forward(self, samples: Tensor, labels: Tensor, mask: Tensor, **batch: Tensor) -> Batch:
        """Return the loss and scalars to be logged.

        samples: (B, N), as the encoder wants them, unpadded; labels: (B, T) int, below 0 where
        there is none; mask: (B, T) bool.
        """
        features, layers = compute_states(self.encoder, samples, mask)
        outputs = self.predict(apply_final_norm(self.encoder, layers[-1]), labels, mask)
        penalty = features.float().pow(2).mean()
        outputs["loss"] = outputs["loss"] + self.convolutions.feature_penalty * penalty
        return add_auxiliary(outputs, self.auxiliary, layers, mask, batch)

    def predict(self, hidden: Tensor, labels: Tensor, mask: Tensor) -> Batch:
        """Return cross-entropy and accuracy from the last layer (B, T, D). Visible frames of weight
        0 have an accuracy, but no gradient."""
        labelled = labels >= 0
        weight = self.prediction.visible_weight
        masked_loss, masked_accuracy = self._compute_loss(hidden, labels, mask & labelled)
        with torch.set_grad_enabled(torch.is_grad_enabled() and weight > 0):
            visible_loss, visible_accuracy = self._compute_loss(hidden, labels, ~mask & labelled)
        return {
            "loss": (masked_loss + weight * visible_loss) / (1 + weight),
            "masked_accuracy": masked_accuracy.detach(),
            "visible_accuracy": visible_accuracy.detach(),
        }

    def _compute_loss(
        self, hidden: Tensor, labels: Tensor, selected: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return mean loss and share of right predictions over the selected frames of all
        processes. selected: (B, T) bool."""
        targets = labels[selected]
        predicted = functional.normalize(self.project(hidden[selected]).float(), dim=-1)
        # a cosine in bf16 is wrong by 0.04 after its division
        with torch.autocast(hidden.device.type, enabled=False):
            logits = predicted @ functional.normalize(self.labels, dim=-1).T / 0.1
        count = average_count(selected.sum())
        loss = functional.cross_entropy(logits, targets, reduction="sum")
        right = (logits.argmax(-1) == targets).float().sum()
        return loss / count, right / count


def save_label_head(model: Any, folder: Path, codebook_hash: str) -> None:
    """Write projection and label embeddings of a `HubertPretraining` into the folder of its
    encoder. codebook_hash: of the codebook whose clusters it predicts."""
    heads = {n: v for n, v in model.state_dict().items() if n.startswith(("labels", "project."))}
    weights = {name: value.float().cpu().contiguous() for name, value in heads.items()}
    with replace_file(folder / LABEL_HEAD) as temporary:
        save_file(weights, temporary, {"codebook": codebook_hash})


def restore_label_head(model: Any, start: str, codebook_hash: str) -> None:
    """Load the label head beside the encoder `start` where it is for this codebook; else keep the
    new one, and report it on stderr."""
    path = find_shipped(Path(start)) / LABEL_HEAD
    if path.is_file():
        with safe_open(path, "pt") as file:
            head_codebook_hash = file.metadata()["codebook"]
        state = load_file(path)
        if head_codebook_hash == codebook_hash and state["labels"].shape == model.labels.shape:
            model.load_state_dict(state, strict=False)
            return
    if is_main():
        tqdm.write(
            f"{start} has no label head for the codebook {codebook_hash}; one for "
            f"{len(model.labels)} clusters was made",
            file=sys.stderr,
        )


@dataclass(frozen=True)
class QuantisedFrames:
    """A frame is quantised to one entry of each codebook."""

    vectors: Tensor  # (..., D)
    codes: Tensor  # (..., G) int, the entry of each codebook
    probabilities: Tensor  # (..., G, V), the softmax without noise


class GumbelQuantiser(nn.Module):
    """A quantiser replaces a frame of C numbers by its entries in the codebooks, which are D
    numbers together.

    In training, noise is added to the logits, and the hard choice gets the gradient of the soft one
    (straight-through); in eval mode the likeliest entry is taken. The names of the weights are
    those of transformers.
    """

    def __init__(self, features: int, codebooks: int, entries: int, width: int) -> None:
        super().__init__()
        self.codebooks, self.entries = codebooks, entries
        self.weight_proj = nn.Linear(features, codebooks * entries)
        self.codevectors = nn.Parameter(torch.rand(1, codebooks * entries, width // codebooks))
        # both as in fairseq
        nn.init.normal_(self.weight_proj.weight)
        nn.init.zeros_(self.weight_proj.bias)

    def forward(self, features: Tensor, temperature: Tensor | float) -> QuantisedFrames:
        """Quantise features (..., C), always in float32, which a softmax of 320 entries needs."""
        logits = self.weight_proj(features).float().unflatten(-1, (self.codebooks, self.entries))
        with torch.autocast(features.device.type, enabled=False):
            choice = functional.gumbel_softmax(logits, tau=temperature) if self.training else logits  # type: ignore[arg-type]
            codes = choice.argmax(-1)
            chosen = functional.one_hot(codes, self.entries).float()
            if self.training:
                # the value stays exactly one-hot, so that equal codes give equal vectors
                chosen = chosen + (choice - choice.detach())
            vectors = torch.einsum(
                "...gv,gvd->...gd",
                chosen,
                self.codevectors.view(self.codebooks, self.entries, -1).float(),
            )
            return QuantisedFrames(vectors.flatten(-2), codes, logits.softmax(-1))


def perplexity(probabilities: Tensor) -> Tensor:
    """Return how many entries of each codebook are used, (G,) from 1 to V: the perplexity of the
    mean distribution over all frames of the batch.

    probabilities: (..., G, V). A batch that processes share counts as one batch, and the mean of
    the processes' gradients is its gradient. fairseq adds up the perplexities of the codebooks, and
    computes them in each process by itself.
    """
    frames = probabilities.flatten(0, -3)
    count = average_count(torch.tensor(float(len(frames)), device=frames.device))
    mean = frames.sum(0) / count
    if count_processes() > 1:  # the value is that of all processes, the gradient this one's share
        mean = mean + (average_processes(mean) - mean).detach()
    entropy = -(mean * torch.log(mean + 1e-7)).sum(-1)
    return torch.exp(entropy)


class Wav2Vec2Pretraining(nn.Module):
    """wav2vec 2.0 adds a quantiser and projections to the encoder. Training mode has noise and
    dropout, eval mode neither.

    normalise: whether the encoder's input is normalised, which is saved with it.
    """

    def __init__(
        self,
        encoder: Wav2Vec2Model,
        contrast: Contrast,
        convolutions: Convolutions,
        normalise: bool = True,
    ) -> None:
        super().__init__()
        self.encoder, self.contrast, self.convolutions = encoder, contrast, convolutions
        self.normalise = normalise
        config: Any = encoder.config
        self.quantizer = GumbelQuantiser(
            config.conv_dim[-1], contrast.codebooks, contrast.entries, contrast.width
        )
        self.project_hid = nn.Linear(config.hidden_size, contrast.width)
        self.project_q = nn.Linear(contrast.width, contrast.width)
        self.auxiliary = nn.ModuleList()  # modules that add to the loss (`make_auxiliary`)
        scale_gradients(encoder.feature_extractor, convolutions.gradient_scale)

    def forward(
        self,
        samples: Tensor,
        mask: Tensor,
        negatives: Tensor,
        temperature: Tensor | float,
        clean_samples: Tensor | None = None,
        **batch: Tensor,
    ) -> Batch:
        """Return the loss and scalars to be logged, from a batch of `ContrastiveBatches`.

        samples: (B, N), normalised where the encoder wants it, unpadded. mask: (B, T) bool, M
        frames in every row. negatives: (B, M, K) int, for every masked frame the positions of its
        negatives among the M. temperature: of the quantiser, one number. clean_samples: (B, N), the
        same speech before it was distorted. The targets are quantised from `clean_samples` where
        they are given; context network and feature penalty take `samples`. The gradient of the
        targets goes into the convolutions in both cases; the paper does not stop it either.
        """
        features, layers = compute_states(self.encoder, samples, mask)
        source = features
        if clean_samples is not None:
            source = self.encoder.feature_extractor(clean_samples).transpose(1, 2)
            batch = batch | {"clean_samples": clean_samples}
        quantised = self.quantise(source[mask].unflatten(0, (len(samples), -1)), temperature)
        context = apply_final_norm(self.encoder, layers[-1])[mask]
        predicted = self.project_hid(context).unflatten(0, (len(samples), -1))
        logits = self._compute_logits(predicted, quantised, negatives)
        contrastive = _average_batch(-logits.log_softmax(-1)[..., 0])
        penalty = features.float().square().mean()
        entries = self.contrast.entries
        diversity = (entries - perplexity(quantised.probabilities).mean()) / entries
        outputs = {
            "loss": contrastive
            + self.contrast.diversity * diversity
            + self.convolutions.feature_penalty * penalty
        }
        # A frame is identified where its own cosine is above all others. Where no negative is left
        # it is not, unlike in fairseq.
        best = logits[..., 1:].amax(-1).detach()
        right = (logits[..., 0] > best) & best.isfinite()
        likeliest = functional.one_hot(quantised.probabilities.argmax(-1), entries).float()
        code_perplexity = perplexity(likeliest).detach().mean()
        outputs |= {
            "contrastive_loss": contrastive.detach(),
            "contrastive_accuracy": _average_batch(right.float()),
            "code_perplexity": code_perplexity,
            "feature_penalty": penalty.detach(),
            "gumbel_temperature": torch.as_tensor(temperature),
        }
        return add_auxiliary(outputs, self.auxiliary, layers, mask, batch)

    def quantise(self, features: Tensor, temperature: Tensor | float = 1.0) -> QuantisedFrames:
        """Quantise the output of the convolutions, (..., C), after its layer norm (the paper's Z),
        which is never masked."""
        normed = self.encoder.feature_projection.layer_norm(features)
        dropped = functional.dropout(normed, self.contrast.dropout, self.training)
        return self.quantizer(dropped, temperature)

    def _compute_logits(
        self, predicted: Tensor, quantised: QuantisedFrames, negatives: Tensor
    ) -> Tensor:
        """Return cosines over kappa, (B, M, 1 + K), the right one first. A negative that has the
        same codes as the right one gets -inf, so that it does not count.

        All M² cosines of an utterance are computed and the K wanted ones taken from them, which
        needs less memory than K vectors for each frame.
        """
        targets = self.project_q(quantised.vectors)
        # a cosine in bf16 is wrong by 0.04 after its division
        with torch.autocast(predicted.device.type, enabled=False):
            predicted = functional.normalize(predicted.float(), dim=-1)
            targets = functional.normalize(targets.float(), dim=-1)
            cosines = predicted @ targets.transpose(1, 2) / self.contrast.kappa
        codes = quantised.codes  # (B, M, G)
        same_codes = torch.stack([row[:, None] == row[None] for row in codes]).all(-1)  # (B, M, M)
        positives = cosines.diagonal(dim1=1, dim2=2)[..., None]
        all_negatives = cosines.masked_fill(same_codes, -torch.inf)
        return torch.cat([positives, all_negatives.gather(-1, negatives.long())], dim=-1)


def _average_batch(values: Tensor) -> Tensor:
    """Return this process's part of the mean over a batch that processes may share: the mean of
    these parts is the mean over the whole batch."""
    return values.sum() / average_count(torch.tensor(float(values.numel()), device=values.device))


@dataclass(frozen=True)
class ContrastiveBatches:
    """These are the batches for `Wav2Vec2Pretraining`, a function of (seed, step) only.

    crop: step -> samples and mask, as `Cropper` makes them (wav2vec 2.0: probability 0.65, length
    10), and clean_samples where the samples are distorted. As in fairseq the fullest masks lose
    frames at random, until all rows have equally many.
    """

    crop: Callable[[int], Batch]
    contrast: Contrast
    seed: int = 0
    accumulation: int = 1  # batches in an update; the temperature depends on the update

    def __call__(self, step: int) -> Batch:
        """Make the batch of a step."""
        batch = dict(self.crop(step))
        # the third number makes this another generator than that of the crop
        rng = np.random.default_rng([self.seed, step, 0x77326])
        mask = equalise_masks(rng, batch["mask"].numpy())
        masked_frames = int(mask[0].sum())
        negatives = draw_negatives(rng, len(mask), masked_frames, self.contrast.negatives)
        batch.pop("labels", None)
        batch["mask"] = torch.from_numpy(mask)
        batch["negatives"] = torch.from_numpy(negatives)
        temperature = anneal_temperature(self.contrast, step // self.accumulation)
        batch["temperature"] = torch.tensor(temperature)
        return batch


def anneal_temperature(contrast: Contrast, update: int) -> float:
    """Return the temperature of the Gumbel softmax at an update, counted from 0 (section 4.2)."""
    falling = contrast.temperature_start * contrast.temperature_decay**update
    return max(falling, contrast.temperature_floor)


def draw_negatives(rng: np.random.Generator, rows: int, frames: int, count: int) -> np.ndarray:
    """Sample for every masked frame `count` others of its row, uniformly and with replacement.
    Return their positions among the masked frames of the row, (rows, frames, count) int64."""
    positions = rng.integers(frames - 1, size=(rows, frames, count))
    # positions from the frame's own on move up by one, so that its own is never sampled
    return positions + (positions >= np.arange(frames)[:, None])


# ---- folders of transformers' `Wav2Vec2ForPreTraining`, which keep quantiser and projections for
# further training

# A field of `Contrast` -> its name in transformers' config, which has neither the feature penalty
# nor the gradient into the CNN.
CONFIG_NAMES = {
    "codebooks": "num_codevector_groups",
    "entries": "num_codevectors_per_group",
    "width": "proj_codevector_dim",
    "kappa": "contrastive_logits_temperature",
    "diversity": "diversity_loss_weight",
    "dropout": "feat_quantizer_dropout",
}
HEADS = ("quantizer", "project_q", "project_hid")


def save_pretraining(model: Wav2Vec2Pretraining, folder: Path) -> None:
    """Write an ordinary Hugging Face folder with encoder and heads; encoders can be loaded from it
    too. The caller writes its card."""
    config = copy.deepcopy(model.encoder.config)
    for field, config_name in CONFIG_NAMES.items():
        setattr(config, config_name, getattr(model.contrast, field))
    config.codevector_dim = model.contrast.width
    with torch.device("meta"):
        complete = Wav2Vec2ForPreTraining(config)
    weights = {}
    for name, weight in model.state_dict().items():
        if not name.startswith("auxiliary."):  # the auxiliary losses are not saved
            weights[re.sub(r"^encoder\.", "wav2vec2.", name)] = weight
    complete.load_state_dict(weights, assign=True)
    complete.save_pretrained(folder)
    save_extractor(model.encoder.config, folder, model.normalise)


def load_pretraining(
    source: str | Path, contrast: Contrast, convolutions: Convolutions
) -> Wav2Vec2Pretraining:
    """Load any wav2vec 2.0 for further training: with the heads of a Hugging Face folder that has
    them, else with new ones, which is reported on stderr.

    A head whose size changes with G, V or D is made anew. Raises InputError for an encoder that is
    not a wav2vec 2.0 or has adapters, and for heads of which a part is missing.
    """
    checkpoint = load_checkpoint(source)
    encoder = checkpoint.model
    is_plain = isinstance(encoder, Wav2Vec2Model) and encoder.adapter is None
    if not is_plain or find_added_modules(encoder):
        kind: Any = encoder.config
        raise InputError(
            f"{source} is a {kind.model_type} encoder, or has adapters; start contrastive "
            "pre-training from a plain wav2vec 2.0"
        )
    heads, _ = load_heads(source, checkpoint)
    model = Wav2Vec2Pretraining(
        encoder.train().requires_grad_(True), contrast, convolutions, checkpoint.normalise
    )
    for name in HEADS:
        head = getattr(model, name)
        trained_head = getattr(heads, name, None)
        if trained_head is not None and _list_shapes(head) == _list_shapes(trained_head):
            head.load_state_dict(trained_head.state_dict())
        elif is_main():
            tqdm.write(f"{checkpoint.name} has no {name} that fits; one was made", file=sys.stderr)
    return model


def _list_shapes(head: nn.Module) -> list[torch.Size]:
    """Return the shapes of all weights of a head."""
    return [weight.shape for weight in head.parameters()]


def load_heads(
    source: str | Path, checkpoint: Checkpoint
) -> tuple[Wav2Vec2ForPreTraining | None, dict[str, Any]]:
    """Load the whole model of a folder for its heads, and the values that they were trained with,
    by the fields of `Contrast`. Return (None, {}) where the folder has no heads."""
    left_out = {name.split(".")[0] for name in checkpoint.left_out}
    if checkpoint.kind != "huggingface" or not left_out.intersection(HEADS):
        return None, {}
    folder = fetch_checkpoint(source, "speech encoder")
    complete, info = Wav2Vec2ForPreTraining.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    missing = [name for name in info["missing_keys"] if name.split(".")[0] in HEADS]
    if missing:
        raise InputError(
            f"{source} lacks a part of its pre-training heads ({list_first(missing)}); fetch it "
            "again, or start from the encoder alone"
        )
    config = complete.config
    return complete, {field: getattr(config, name) for field, name in CONFIG_NAMES.items()}


# ---- auxiliary losses of training on distorted speech: a teacher on the clean signal, and a
# domain adversary
#
# Domain-adversarial training makes an encoder whose layers do not show which distortion was applied
# (Ganin et al., JMLR 17, 2016): a classifier guesses the domain of an utterance from a layer, and
# the encoder learns to mislead it. `reversal` trains both at once through a layer that reverses
# the gradient; `alternating` trains the classifier alone in every other step and subtracts its loss
# from the encoder's in the steps between. Two trainings use it: that of a task's model with its
# upstream (`superb.tuning`), which is the DAT of arXiv 2203.16104, and continual pre-training,
# which is ours.


class ReverseGradient(torch.autograd.Function):
    """This function returns the values themselves, and multiplies their gradient by -weight (a
    scalar tensor)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.saved_tensors[0] * gradients[0], None


class DomainAdversary(nn.Module):
    """An adversary classifies the domain from the mean over time of the last layer, by one hidden
    layer, and gives the encoder its part of the loss. width: of the last layer."""

    def __init__(self, width: int, domains: int, adversary: Adversary) -> None:
        super().__init__()
        self.adversary = adversary
        hidden = adversary.domain_adversary_width
        classes = 2 if adversary.domain_adversary == "binary" else domains
        self.classifier = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )

    def forward(self, layers: Sequence[Tensor], mask: Tensor, batch: Mapping[str, Tensor]) -> Batch:
        """Return the loss and scalars to be logged.

        layers: (B, T, D) each; batch: has `domains` (B,) int, 0 for clean, and the scalars
        `progress` and `step` (updates so far).
        """
        domains = batch["domains"]
        if self.adversary.domain_adversary == "binary":
            domains = domains.clamp(max=1)
        weight = torch.as_tensor(self.adversary.domain_adversary_weight, device=domains.device)
        if self.adversary.domain_adversary_schedule == "ganin":
            # Ganin et al., section 5.2.2
            weight = weight * (2 / (1 + torch.exp(-10 * batch["progress"])) - 1)
        features = layers[-1].mean(1).float()
        sign: Tensor | float = 1.0
        if self.adversary.domain_adversary_mode == "reversal":
            logits = self.classifier(ReverseGradient.apply(features, weight))
        elif int(batch["step"]) % 2 == 0:
            logits = self.classifier(features.detach())
        else:  # an odd step of `alternating` trains the encoder
            # the classifier gets no gradient at all, so that no momentum moves it
            fixed = {name: value.detach() for name, value in self.classifier.named_parameters()}
            logits = functional_call(self.classifier, fixed, (features,))
            sign = -weight
        return {
            "loss": sign * functional.cross_entropy(logits, domains),
            "domain_accuracy": (logits.argmax(-1) == domains).float().mean(),
            "adversary_weight": weight.detach().float(),
        }


class CleanTeacher(nn.Module):
    """This loss is `weight` times the mean squared distance of the student's layers from those of a
    teacher that gets the clean signal.

    The distance of a layer is divided by the variance of the teacher's layer, so that layers count
    equally, and a student that always gave the teacher's mean would have distance 1. Frames that
    are masked for the student are left out. teacher: has the same architecture; it is not trained
    and not saved with the student.
    """

    def __init__(self, teacher: nn.Module, weight: float = 1.0) -> None:
        super().__init__()
        # a module in a list is no part of the student's state
        self.unregistered = [teacher.eval().requires_grad_(False)]
        self.weight = weight

    def forward(self, layers: Sequence[Tensor], mask: Tensor, batch: Mapping[str, Tensor]) -> Batch:
        """Return the loss and scalars to be logged.

        layers: (B, T, D) each; mask: (B, T) bool; batch: has `clean_samples`, (B, N).
        """
        with torch.no_grad():
            teacher = self.unregistered[0].to(batch["clean_samples"].device)
            _, targets = compute_states(teacher, batch["clean_samples"], last=len(layers) - 1)
        count = average_count((~mask).sum())
        distances = []
        for layer, target in zip(layers, targets, strict=True):
            states = layer[~mask].float()
            visible_targets = target[~mask].float()
            mean = average_processes(visible_targets.sum(0) / count)
            variance = average_processes((visible_targets - mean).square().sum(0) / count).mean()
            squared = (states - visible_targets).square().mean(1).sum() / count
            distances.append(squared / variance.clamp(min=1e-6))
        distance = torch.stack(distances).mean()
        return {"loss": self.weight * distance, "distillation": distance.detach()}


def make_auxiliary(
    encoder: Any, o: Pretraining, start: str | None, distort: TrainingDistortions | None
) -> list[nn.Module]:
    """Make the modules that add to the loss of pre-training; they are called with the layers, the
    mask and the whole batch."""
    auxiliary: list[nn.Module] = []
    if o.distillation.distil and start:
        auxiliary.append(CleanTeacher(load_checkpoint(start).model, o.distillation.distil))
    if o.adversary.domain_adversary and distort:
        width = encoder.config.hidden_size
        auxiliary.append(DomainAdversary(width, len(distort.domains), o.adversary))
    return auxiliary
