"""The models of both methods of pre-training add heads and losses to an encoder.

HuBERT predicts the cluster of every frame, hidden ones above all (arXiv 2106.07447, section II).
The published loss counts masked frames only. Where the input is not what the targets come from
(another reading of the same words, as ContentVec's teacher, arXiv 2204.09224; or distorted speech
with the clean signal's clusters, arXiv 2203.16104) the visible frames are worth learning from too,
because the answer is not in the input: `visible_weight` is their weight.

wav2vec 2.0 tells the quantised frame behind a mask from other frames of the utterance (arXiv
2006.11477). The loss of a batch is a mean over its hidden frames:

    InfoNCE + 0.1 (V - perplexity) / V + 10 mean(f²)

The perplexity is a mean over the codebooks, and f is what the convolutions give, before its layer
norm. fairseq adds up InfoNCE over the hidden frames, adds both other terms times their number, and
divides the gradient by that number: the same. transformers' `Wav2Vec2ForPreTraining` gives the sum,
and has no feature penalty.

On distorted speech `CleanTeacher` and `DomainAdversary` add to the loss of either.

Letters: B utterances, N samples, T frames, K clusters, D width; of wav2vec 2.0 M hidden frames, C
width of the convolutions, D final width, G codebooks of V entries.
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
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from tqdm import tqdm
from transformers import HubertModel, Wav2Vec2ForPreTraining, Wav2Vec2Model

from speechssl.artifacts import replacing
from speechssl.augment.training import TrainingDistortions
from speechssl.checkpoints import SHIPPED, checkpoint_folder
from speechssl.encoders.hubert import training_states
from speechssl.encoders.load import Checkpoint, load_checkpoint, save_extractor
from speechssl.errors import InputError
from speechssl.finetuning import added_modules
from speechssl.pretrain.data import equalise_masks
from speechssl.pretrain.options import Adversary, Contrast, Convolutions, Prediction, Pretraining
from speechssl.processes import is_main, mean_of_processes, processes
from speechssl.training import Batch

LABEL_HEAD = "label_head.safetensors"  # one file more in the encoder's Hugging Face folder


def scale_gradients(module: nn.Module, factor: float) -> None:
    """Multiply the gradients of all weights of a module by a factor.

    For the convolutions, all of whose gradient comes through their output, this is fairseq's
    `feature_grad_mult` (0.1 for both base models), the feature penalty's share included.
    """
    for weight in module.parameters():
        if factor != 1 and weight.requires_grad:
            weight.register_hook(lambda gradient: gradient * factor)


def final_states(encoder: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """Return the last layer as predictions are made from it: normalised where layers normalise
    their input (large)."""
    stable = getattr(encoder.config, "do_stable_layer_norm", False)
    return encoder.encoder.layer_norm(hidden) if stable else hidden  # type: ignore[union-attr, operator, return-value]


def add_auxiliary(
    losses: Batch,
    modules: nn.ModuleList,
    layers: Sequence[torch.Tensor],
    mask: torch.Tensor,
    batch: Mapping[str, torch.Tensor],
) -> Batch:
    """Add the losses of `auxiliary_losses` to a model's own, and their scalars to those that are
    logged."""
    for module in modules:
        more = module(layers, mask, batch)
        losses["loss"] = losses["loss"] + more.pop("loss")
        losses.update(more)
    return losses


class HubertPretraining(nn.Module):
    """HuBERT adds a projection and label embeddings to the encoder; logits are their cosines
    divided by 0.1 (section II-C).

    auxiliary: modules that add to the loss (`auxiliary_losses`).
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

    def forward(
        self, samples: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, **batch: torch.Tensor
    ) -> Batch:
        """Return the loss and scalars to be logged.

        samples: (B, N), as the encoder wants them, unpadded; labels: (B, T) int, below 0 where
        there is none; mask: (B, T) bool.
        """
        features, layers = training_states(self.encoder, samples, mask)
        outputs = self.predict(final_states(self.encoder, layers[-1]), labels, mask)
        penalty = features.float().pow(2).mean()
        outputs["loss"] = outputs["loss"] + self.convolutions.feature_penalty * penalty
        return add_auxiliary(outputs, self.auxiliary, layers, mask, batch)

    def predict(self, hidden: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> Batch:
        """Return cross-entropy and accuracy from the last layer (B, T, D); of visible frames only
        the accuracy where they weigh nothing."""
        labelled = labels >= 0
        weight = self.prediction.visible_weight
        masked_loss, masked_accuracy = self._cross_entropy(hidden, labels, mask & labelled)
        with torch.set_grad_enabled(torch.is_grad_enabled() and weight > 0):
            visible_loss, visible_accuracy = self._cross_entropy(hidden, labels, ~mask & labelled)
        return {
            "loss": (masked_loss + weight * visible_loss) / (1 + weight),
            "masked_accuracy": masked_accuracy.detach(),
            "visible_accuracy": visible_accuracy.detach(),
        }

    def _cross_entropy(
        self, hidden: torch.Tensor, labels: torch.Tensor, where: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean loss and share of right predictions over the frames of all processes where
        `where` is true."""
        targets = labels[where]
        predicted = functional.normalize(self.project(hidden[where]).float(), dim=-1)
        # a cosine in bf16 is wrong by 0.04 after its division
        with torch.autocast(hidden.device.type, enabled=False):
            logits = predicted @ functional.normalize(self.labels, dim=-1).T / 0.1
        count = mean_of_processes(where.sum()).clamp(min=1 / processes())
        loss = functional.cross_entropy(logits, targets, reduction="sum")
        right = (logits.argmax(-1) == targets).float().sum()
        return loss / count, right / count


def save_label_head(model: Any, folder: Path, codebook: str) -> None:
    """Write projection and label embeddings of a `HubertPretraining` into the folder of its
    encoder. codebook: its hash."""
    heads = {n: v for n, v in model.state_dict().items() if n.startswith(("labels", "project."))}
    weights = {name: value.float().cpu().contiguous() for name, value in heads.items()}
    with replacing(folder / LABEL_HEAD) as temporary:
        save_file(weights, temporary, {"codebook": codebook})


def restore_label_head(model: Any, start: str, codebook: str) -> bool:
    """Go on with the head beside the encoder `start` where it is for this codebook; else keep the
    new one, and report it on stderr.

    Returns whether it was restored.
    """
    folder = SHIPPED / start if (SHIPPED / start).is_dir() else Path(start)
    if (folder / LABEL_HEAD).is_file():
        with safe_open(folder / LABEL_HEAD, "pt") as file:
            before = file.metadata()["codebook"]
        state = load_file(folder / LABEL_HEAD)
        if before == codebook and state["labels"].shape == model.labels.shape:
            model.load_state_dict(state, strict=False)
            return True
    if is_main():
        tqdm.write(
            f"{start} has no label head for the codebook {codebook}; one for {len(model.labels)} "
            "clusters was made",
            file=sys.stderr,
        )
    return False


@dataclass(frozen=True)
class Quantised:
    """A frame is quantised to one entry of each codebook."""

    vectors: torch.Tensor  # (..., D)
    codes: torch.Tensor  # (..., G) int, the entries they are made of
    likely: torch.Tensor  # (..., G, V), the softmax without noise


class GumbelQuantiser(nn.Module):
    """Replace a frame of C numbers by its entry in each codebook, side by side: D numbers.

    While training, noise is added and the gradient of the soft choice is that of the hard one
    (straight-through); in eval mode the likeliest entry is taken. The names of the weights are
    those of transformers.
    """

    def __init__(self, features: int, codebooks: int, entries: int, width: int) -> None:
        super().__init__()
        self.codebooks, self.entries = codebooks, entries
        self.weight_proj = nn.Linear(features, codebooks * entries)
        self.codevectors = nn.Parameter(torch.rand(1, codebooks * entries, width // codebooks))
        nn.init.normal_(self.weight_proj.weight)  # both as fairseq has them
        nn.init.zeros_(self.weight_proj.bias)

    def forward(self, features: torch.Tensor, temperature: torch.Tensor | float) -> Quantised:
        """Quantise features (..., C), in float32 always: a softmax of 320 entries needs it."""
        logits = self.weight_proj(features).float().unflatten(-1, (self.codebooks, self.entries))
        with torch.autocast(features.device.type, enabled=False):
            choice = functional.gumbel_softmax(logits, tau=temperature) if self.training else logits  # type: ignore[arg-type]
            codes = choice.argmax(-1)
            chosen = functional.one_hot(codes, self.entries).float()
            if self.training:
                # exactly one and zeros, or equal codes would not give equal vectors
                chosen = chosen + (choice - choice.detach())
            vectors = torch.einsum(
                "...gv,gvd->...gd",
                chosen,
                self.codevectors.view(self.codebooks, self.entries, -1).float(),
            )
            return Quantised(vectors.flatten(-2), codes, logits.softmax(-1))


def perplexity(probabilities: torch.Tensor) -> torch.Tensor:
    """Return how many entries of each codebook are used, (G,) from 1 to V: the perplexity of the
    mean distribution over all frames of the batch.

    probabilities: (..., G, V). A batch that processes share counts as one, and the mean of the
    processes' gradients is the gradient. fairseq adds the codebooks up, and each of its processes
    counts for itself.
    """
    frames = probabilities.flatten(0, -3)
    count = mean_of_processes(torch.tensor(float(len(frames)), device=frames.device))
    mean = frames.sum(0) / count.clamp(min=1 / processes())
    if processes() > 1:  # the value is that of all processes, the gradient this one's share
        mean = mean + (mean_of_processes(mean) - mean).detach()
    entropy = -(mean * torch.log(mean + 1e-7)).sum(-1)
    return torch.exp(entropy)


class Wav2Vec2Pretraining(nn.Module):
    """wav2vec 2.0 adds a quantiser and projections to the encoder; in training mode with noise and
    dropout, in eval mode without either.

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
        self.auxiliary = nn.ModuleList()  # modules that add to the loss (`auxiliary_losses`)
        scale_gradients(encoder.feature_extractor, convolutions.gradient_scale)

    def forward(
        self,
        samples: torch.Tensor,
        mask: torch.Tensor,
        negatives: torch.Tensor,
        temperature: torch.Tensor | float,
        clean_samples: torch.Tensor | None = None,
        **batch: torch.Tensor,
    ) -> Batch:
        """Return the loss and scalars to be logged, from a batch of `ContrastiveBatches`.

        samples: (B, N), normalised where the encoder wants it, unpadded. mask: (B, T) bool, M in
        every row. negatives: (B, M, K) int, for every hidden frame the places of its negatives
        among the M. temperature: of the quantiser, one number. clean_samples: (B, N), the same
        speech before it was distorted; given, the targets are quantised from it, while the context
        network gets `samples`, of which the feature penalty is too. As without it the targets are
        learnt: their gradient goes into the convolutions, which the paper does not stop either.
        """
        features, layers = training_states(self.encoder, samples, mask)
        source = features
        if clean_samples is not None:
            source = self.encoder.feature_extractor(clean_samples).transpose(1, 2)
            batch = batch | {"clean_samples": clean_samples}
        quantised = self.quantise(source[mask].unflatten(0, (len(samples), -1)), temperature)
        context = final_states(self.encoder, layers[-1])[mask]
        predicted = self.project_hid(context).unflatten(0, (len(samples), -1))
        logits = self._logits(predicted, quantised, negatives)
        contrastive = _mean(-logits.log_softmax(-1)[..., 0])
        penalty = features.float().square().mean()
        entries = self.contrast.entries
        diversity = (entries - perplexity(quantised.likely).mean()) / entries
        outputs = {
            "loss": contrastive
            + self.contrast.diversity * diversity
            + self.convolutions.feature_penalty * penalty
        }
        # A frame counts as found where its own cosine is above all others; with no other left it
        # does not, unlike in fairseq.
        best = logits[..., 1:].amax(-1).detach()
        right = (logits[..., 0] > best) & best.isfinite()
        likeliest = functional.one_hot(quantised.likely.argmax(-1), entries).float()
        used = perplexity(likeliest).detach()
        outputs |= {
            "contrastive_loss": contrastive.detach(),
            "contrastive_accuracy": _mean(right.float()),
            "code_perplexity": used.mean(),
            "feature_penalty": penalty.detach(),
            "gumbel_temperature": torch.as_tensor(temperature),
        }
        return add_auxiliary(outputs, self.auxiliary, layers, mask, batch)

    def quantise(
        self, features: torch.Tensor, temperature: torch.Tensor | float = 1.0
    ) -> Quantised:
        """Quantise the output of the convolutions, (..., C), after the layer norm, never masked:
        the paper's Z."""
        normed = self.encoder.feature_projection.layer_norm(features)
        dropped = functional.dropout(normed, self.contrast.dropout, self.training)
        return self.quantizer(dropped, temperature)

    def _logits(
        self, predicted: torch.Tensor, quantised: Quantised, negatives: torch.Tensor
    ) -> torch.Tensor:
        """Return cosines over kappa, (B, M, 1 + K), the right one first. A negative of the same
        entries as the right one counts for none.

        All M² cosines of an utterance are made, and the K wanted ones taken from them: less than K
        vectors for each frame.
        """
        targets = self.project_q(quantised.vectors)
        # a cosine in bf16 is wrong by 0.04 after its division
        with torch.autocast(predicted.device.type, enabled=False):
            left = functional.normalize(predicted.float(), dim=-1)
            right = functional.normalize(targets.float(), dim=-1)
            cosines = left @ right.transpose(1, 2) / self.contrast.kappa
        codes = quantised.codes  # (B, M, G)
        same = torch.stack([row[:, None] == row[None] for row in codes]).all(-1)  # (B, M, M)
        own = cosines.diagonal(dim1=1, dim2=2)[..., None]
        others = cosines.masked_fill(same, -torch.inf).gather(-1, negatives.long())
        return torch.cat([own, others], dim=-1)  # own first


def _mean(values: torch.Tensor) -> torch.Tensor:
    """Return this process's part of the mean over a batch that processes may share: the mean of
    what they return is the mean over all of it."""
    count = mean_of_processes(torch.tensor(float(values.numel()), device=values.device))
    return values.sum() / count.clamp(min=1 / processes())


@dataclass(frozen=True)
class ContrastiveBatches:
    """Make batches for `Wav2Vec2Pretraining`, a function of (seed, step) only.

    crop: step -> samples and mask, as `Cropper` makes them (wav2vec 2.0: probability 0.65, length
    10), and clean_samples where the samples are distorted. As in fairseq the fullest masks lose
    frames at random, until all rows hide equally many.
    """

    crop: Callable[[int], Batch]
    contrast: Contrast
    seed: int = 0
    accumulation: int = 1  # batches an update, which the temperature counts

    def __call__(self, step: int) -> Batch:
        """Make the batch of a step."""
        batch = dict(self.crop(step))
        # not the numbers that the crop is drawn with
        rng = np.random.default_rng([self.seed, step, 0x77326])
        mask = equalise_masks(rng, batch["mask"].numpy())
        hidden = int(mask[0].sum())
        negatives = draw_negatives(rng, len(mask), hidden, self.contrast.negatives)
        batch.pop("labels", None)
        batch["mask"] = torch.from_numpy(mask)
        batch["negatives"] = torch.from_numpy(negatives)
        batch["temperature"] = torch.tensor(temperature(self.contrast, step // self.accumulation))
        return batch


def temperature(contrast: Contrast, update: int) -> float:
    """Return the temperature of the Gumbel softmax at an update, from 0 (section 4.2)."""
    falling = contrast.temperature_start * contrast.temperature_decay**update
    return max(falling, contrast.temperature_floor)


def draw_negatives(rng: np.random.Generator, rows: int, hidden: int, count: int) -> np.ndarray:
    """Draw for every hidden frame `count` of the others, any of them alike, with replacement:
    (rows, hidden, count) int64, places among the hidden frames of a row."""
    drawn = rng.integers(hidden - 1, size=(rows, hidden, count))
    return drawn + (drawn >= np.arange(hidden)[:, None])  # a frame's own place is left out


# ---- as a folder of transformers' `Wav2Vec2ForPreTraining`, from which quantiser and projections
# go on

# of `Contrast` in transformers' config, which has neither the feature penalty nor the
# gradient into the CNN
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
    """Write an ordinary Hugging Face folder of all that is trained; encoders can be loaded from it
    too. A card is the caller's."""
    config = copy.deepcopy(model.encoder.config)
    for ours, theirs in CONFIG_NAMES.items():
        setattr(config, theirs, getattr(model.contrast, ours))
    config.codevector_dim = model.contrast.width
    with torch.device("meta"):
        whole = Wav2Vec2ForPreTraining(config)
    weights = {  # without those of auxiliary losses
        re.sub(r"^encoder\.", "wav2vec2.", name): weight
        for name, weight in model.state_dict().items()
        if not name.startswith("auxiliary.")
    }
    whole.load_state_dict(weights, assign=True)
    whole.save_pretrained(folder)
    save_extractor(model.encoder.config, folder, model.normalise)


def load_pretraining(
    source: str | Path, contrast: Contrast, convolutions: Convolutions
) -> Wav2Vec2Pretraining:
    """Go on from any wav2vec 2.0: with the heads of a Hugging Face folder that has them, else with
    new ones; reported on stderr.

    Where G, V or D are others than the folder's, what they change is made anew. Raises InputError
    for an encoder that is not a wav2vec 2.0 or has adapters, and for heads of which a part is
    missing.
    """
    checkpoint = load_checkpoint(source)
    encoder = checkpoint.model
    is_plain = isinstance(encoder, Wav2Vec2Model) and encoder.adapter is None
    if not is_plain or added_modules(encoder):
        kind: Any = encoder.config
        raise InputError(
            f"{source} is a {kind.model_type} encoder, or has adapters; start contrastive "
            "pre-training from a plain wav2vec 2.0"
        )
    heads, _ = load_heads(source, checkpoint)
    model = Wav2Vec2Pretraining(
        encoder.train().requires_grad_(True), contrast, convolutions, checkpoint.normalise
    )

    def shapes(head: nn.Module) -> list[torch.Size]:
        return [weight.shape for weight in head.parameters()]

    reused = []
    for name in HEADS:
        head = getattr(model, name)
        trained = getattr(heads, name, None)
        if trained is not None and shapes(head) == shapes(trained):
            head.load_state_dict(trained.state_dict())
            reused.append(name)
    if is_main():
        tqdm.write(
            f"{checkpoint.name}: {', '.join(reused) or 'no head'} of pre-training as trained, "
            "the others made anew",
            file=sys.stderr,
        )
    return model


def load_heads(
    source: str | Path, checkpoint: Checkpoint
) -> tuple[Wav2Vec2ForPreTraining | None, dict[str, Any]]:
    """Load the folder's own model for its heads, and what they were trained with, by the fields of
    `Contrast`; None and nothing where it has none."""
    left_out = {name.split(".")[0] for name in checkpoint.left_out}
    if checkpoint.kind != "huggingface" or not left_out.intersection(HEADS):
        return None, {}
    whole = Wav2Vec2ForPreTraining.from_pretrained(
        checkpoint_folder(source, "speech encoder"), dtype=torch.float32
    )
    return whole, {ours: getattr(whole.config, theirs) for ours, theirs in CONFIG_NAMES.items()}


# ---- auxiliary losses of training on distorted speech: a teacher on the clean signal, and a
# domain adversary
#
# Domain-adversarial training makes an encoder whose layers do not show which distortion was applied
# (Ganin et al., JMLR 17, 2016): a classifier guesses the domain of an utterance from some layers,
# and the encoder learns to mislead it. `reversal` trains both at once through a layer that reverses
# the gradient; `alternating` trains the classifier alone in every other step and subtracts its loss
# from the encoder's in the steps between. Two trainings use it: that of a task's model with its
# upstream (`superb.tuning`), which is the DAT of arXiv 2203.16104, and continual pre-training,
# which is ours. C domains.


class Reverse(torch.autograd.Function):
    """Return the values themselves, and multiply their gradient by -weight (a scalar tensor)."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return -ctx.saved_tensors[0] * gradients[0], None


class DomainAdversary(nn.Module):
    """Classify the domain from a layer (one hidden layer, on the mean over time), and give the
    encoder its part of the loss.

    width: of the layer, which is number `layer` of those that are given.
    """

    def __init__(self, width: int, domains: int, adversary: Adversary, layer: int = -1) -> None:
        super().__init__()
        self.adversary, self.layer = adversary, layer
        hidden = adversary.domain_adversary_width
        classes = 2 if adversary.domain_adversary == "binary" else domains
        self.classifier = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )

    def forward(
        self, layers: Sequence[torch.Tensor], mask: torch.Tensor, batch: Mapping[str, torch.Tensor]
    ) -> Batch:
        """Return the loss and scalars to be logged.

        layers: (B, T, D) each; batch: with `domains` (B,) int, 0 clean; `progress`, `step`
        (updates): scalars.
        """
        domains = batch["domains"]
        if self.adversary.domain_adversary == "binary":
            domains = domains.clamp(max=1)
        weight = torch.as_tensor(self.adversary.domain_adversary_weight, device=domains.device)
        if self.adversary.domain_adversary_schedule == "ganin":
            # Ganin et al., section 5.2.2
            weight = weight * (2 / (1 + torch.exp(-10 * batch["progress"])) - 1)
        features = layers[self.layer].mean(1).float()
        sign: torch.Tensor | float = 1.0
        if self.adversary.domain_adversary_mode == "reversal":
            logits = self.classifier(Reverse.apply(features, weight))
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
    """Add `weight` times the mean squared distance of the student's layers from those of a teacher
    that gets the clean signal.

    Each layer's distance is divided by the variance of the teacher's layer, so that 1 is what the
    teacher's mean would get and layers count alike; frames that the student does not see are left
    out. teacher: of the same architecture; it is not trained and not saved with the student.
    """

    def __init__(self, teacher: nn.Module, weight: float = 1.0) -> None:
        super().__init__()
        # in a list: no part of the student's state
        self.hidden = [teacher.eval().requires_grad_(False)]
        self.weight = weight

    def forward(
        self, layers: Sequence[torch.Tensor], mask: torch.Tensor, batch: Mapping[str, torch.Tensor]
    ) -> Batch:
        """Return the loss and scalars to be logged.

        layers: (B, T, D) each; mask: (B, T) bool, the hidden frames; batch: with `clean_samples`,
        (B, N).
        """
        with torch.no_grad():
            teacher = self.hidden[0].to(batch["clean_samples"].device)
            _, targets = training_states(teacher, batch["clean_samples"], last=len(layers) - 1)
        # over the frames of all processes
        count = mean_of_processes((~mask).sum()).clamp(min=1 / processes())
        distances = []
        for layer, target in zip(layers, targets, strict=True):
            student, right = layer[~mask].float(), target[~mask].float()
            mean = mean_of_processes(right.sum(0) / count)
            variance = mean_of_processes((right - mean).square().sum(0) / count).mean()
            squared = (student - right).square().mean(1).sum() / count
            distances.append(squared / variance.clamp(min=1e-6))
        distance = torch.stack(distances).mean()
        return {"loss": self.weight * distance, "distillation": distance.detach()}


def auxiliary_losses(
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
