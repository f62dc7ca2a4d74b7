"""HuBERT pre-training: predict the cluster of every frame, hidden ones above all (arXiv 2106.07447, section II).

The published loss counts masked frames only. Where the input is not what the targets come from (another reading of the same words,
as ContentVec's teacher, arXiv 2204.09224; or distorted speech with the clean signal's clusters, arXiv 2203.16104) the visible
frames are worth learning from too, because the answer is not in the input: `visible_weight` says how much.
Letters: B utterances, N samples, T frames, K clusters, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional
from transformers import HubertModel

from speechssl.encoders.training_forward import training_states
from speechssl.pretraining.gradients import scale_gradients
from speechssl.processes import mean_of_processes, processes
from speechssl.training import Batch

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
