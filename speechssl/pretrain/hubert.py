"""HuBERT pre-training: predict the cluster of every frame, hidden ones above all (arXiv 2106.07447, section II).

The published loss counts masked frames only. Where the input is not what the targets come from (another reading of the same
words, as ContentVec's teacher, arXiv 2204.09224; or distorted speech with the clean signal's clusters, arXiv 2203.16104) the
visible frames are worth learning from too, because the answer is not in the input: `visible_weight` is their weight.
Letters: B utterances, N samples, T frames, K clusters, D width.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle
from tqdm import tqdm
from transformers import HubertModel

from speechssl.encoders.training import training_states
from speechssl.errors import InputError
from speechssl.io import SHIPPED, replacing
from speechssl.pretrain.auxiliary import add_auxiliary
from speechssl.processes import is_main, mean_of_processes, processes
from speechssl.trainer import Batch

NAME = "label_head.safetensors"  # beside the encoder: an ordinary Hugging Face folder with one file more
PENALTY = 10.0  # of the published loss: times the mean square of the CNN's output

_HOOKS: weakref.WeakKeyDictionary[nn.Module, list[RemovableHandle]] = weakref.WeakKeyDictionary()


def scale_gradients(module: nn.Module, factor: float) -> None:
    """Multiply the gradients of all weights of a module by a factor, in place of any factor before.

    For the convolutions, all of whose gradient comes through their output, this is fairseq's `feature_grad_mult` (0.1 for both base
    models), the feature penalty's share included.
    """
    for handle in _HOOKS.pop(module, []):
        handle.remove()
    if factor != 1:
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        _HOOKS[module] = [weight.register_hook(lambda gradient: gradient * factor) for weight in weights]


def final(encoder: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """What is predicted from: the last layer, normalised where layers normalise their input (large)."""
    stable = getattr(encoder.config, "do_stable_layer_norm", False)
    return encoder.encoder.layer_norm(hidden) if stable else hidden  # type: ignore[union-attr, operator, return-value]


class HubertPretraining(nn.Module):
    """Encoder, projection and label embeddings. Logits are cosines divided by 0.1 (section II-C).

    auxiliary: modules that add to the loss (`auxiliary_losses`). gradient_scale: of the gradient into the CNN (published:
    0.1).
    """

    def __init__(
        self,
        encoder: HubertModel,
        clusters: int,
        width: int = 128,
        visible_weight: float = 0.0,
        penalty: float = PENALTY,
        gradient_scale: float = 1.0,
        auxiliary: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.project = nn.Linear(encoder.config.hidden_size, width)
        self.labels = nn.Parameter(torch.randn(clusters, width))
        self.visible_weight, self.penalty = visible_weight, penalty
        scale_gradients(encoder.feature_extractor, gradient_scale)
        self.auxiliary = nn.ModuleList(auxiliary)

    def forward(self, samples: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, **batch: torch.Tensor) -> Batch:
        """samples: (B, N), as the encoder wants them, unpadded; labels: (B, T) int, below 0 where there is none;
        mask: (B, T) bool. Returns the loss and scalars to be logged.
        """
        features, layers = training_states(self.encoder, samples, mask)
        found = self.predict(final(self.encoder, layers[-1]), labels, mask)
        found["loss"] = found["loss"] + self.penalty * features.float().pow(2).mean()
        return add_auxiliary(found, self.auxiliary, layers, mask, batch)

    def predict(self, hidden: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> Batch:
        """Cross-entropy and accuracy from the last layer (B, T, D); visible frames only the accuracy where they weigh nothing."""
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


def save_label_head(model: Any, folder: Path, codebook: str) -> None:
    """Write projection and label embeddings of a `HubertPretraining` into the folder of its encoder. codebook: its hash."""
    state = {"labels": model.labels, **{f"project.{name}": value for name, value in model.project.state_dict().items()}}
    with replacing(folder / NAME) as temporary:
        save_file({k: v.detach().float().cpu().contiguous() for k, v in state.items()}, temporary, {"codebook": codebook})


def restore_label_head(model: Any, start: str, codebook: str) -> bool:
    """Go on with the head beside the encoder `start` where it is for this codebook; else keep the new one, and report it on stderr.

    Returns whether it was restored. Raises InputError for a head that cannot be read.
    """

    def size(labels: Any) -> str:
        return f"{labels.shape[0]} clusters in {labels.shape[1]} dimensions"

    path = (SHIPPED / start if (SHIPPED / start / "config.json").is_file() else Path(start)) / NAME  # beside what was loaded
    message = f"{start} has no label head; one for {len(model.labels)} clusters was made"
    if path.is_file():
        try:
            with safe_open(path, "pt") as file:
                before = (file.metadata() or {}).get("codebook")
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dict
            labels = state.pop("labels")
            if before == codebook and labels.shape == model.labels.shape:
                model.project.load_state_dict({name.removeprefix("project."): value for name, value in state.items()})
                model.labels.data.copy_(labels)
                return True
            message = (
                f"the label head of {start} is {size(labels)} for codebook {before}; "
                f"it was re-made: {size(model.labels)} for {codebook}"
            )
        except (OSError, SafetensorError, KeyError, IndexError, RuntimeError) as error:
            why = " ".join(str(error).split())  # torch takes several lines
            raise InputError(f"cannot read the label head {path} ({why}); delete it, and a new one is made") from error
    if is_main():
        tqdm.write(message, file=sys.stderr)
    return False
