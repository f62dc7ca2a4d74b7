"""The quantiser of wav2vec 2.0: G codebooks of V entries, chosen by a Gumbel softmax (arXiv 2006.11477, section 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from speechssl.errors import InputError
from speechssl.processes import mean_of_processes, processes


@dataclass(frozen=True)
class Temperature:
    """Of the Gumbel softmax: from `start` down by `decay` an update, not below `floor` (section 4.2; large: floor 0.1)."""

    start: float = 2.0
    decay: float = 0.999995
    floor: float = 0.5

    def __call__(self, update: int) -> float:
        """At the update of this number, from 0."""
        return max(self.start * self.decay**update, self.floor)


@dataclass(frozen=True)
class Quantised:
    """vectors: (..., D); codes: (..., G) int, the entries they are made of; likely: (..., G, V), the softmax without noise."""

    vectors: torch.Tensor
    codes: torch.Tensor
    likely: torch.Tensor


class GumbelQuantiser(nn.Module):
    """A frame of C numbers -> its entry in each codebook, side by side: D numbers.

    While training, noise is added and the gradient of the soft choice is that of the hard one (straight-through); in eval mode the
    likeliest entry is taken. The names of the weights are those of transformers.
    Raises InputError where the codebooks cannot share D.
    """

    def __init__(self, features: int, codebooks: int = 2, entries: int = 320, width: int = 256) -> None:
        super().__init__()
        if width % codebooks:
            raise InputError(
                f"{codebooks} codebooks cannot share a width of {width}; give a width that is a multiple of {codebooks}"
            )
        self.codebooks, self.entries = codebooks, entries
        self.weight_proj = nn.Linear(features, codebooks * entries)
        self.codevectors = nn.Parameter(torch.rand(1, codebooks * entries, width // codebooks))
        nn.init.normal_(self.weight_proj.weight)  # both as fairseq has them
        nn.init.zeros_(self.weight_proj.bias)

    def forward(self, features: torch.Tensor, temperature: torch.Tensor | float) -> Quantised:
        """features: (..., C). In float32, whatever the autocast: a softmax of 320 needs it."""
        logits = self.weight_proj(features).float().unflatten(-1, (self.codebooks, self.entries))
        with torch.autocast(features.device.type, enabled=False):
            choice = functional.gumbel_softmax(logits, tau=temperature) if self.training else logits  # type: ignore[arg-type]
            codes = choice.argmax(-1)
            chosen = functional.one_hot(codes, self.entries).float()
            if self.training:
                chosen = chosen + (choice - choice.detach())  # exactly one and zeros, or equal codes would not give equal vectors
            vectors = torch.einsum("...gv,gvd->...gd", chosen, self.codevectors.view(self.codebooks, self.entries, -1).float())
            return Quantised(vectors.flatten(-2), codes, logits.softmax(-1))


def perplexity(probabilities: torch.Tensor) -> torch.Tensor:
    """(G,) how many entries of each codebook are used, 1 to V: of the mean distribution over all frames of the batch.

    probabilities: (..., G, V). Of a batch that processes share: of all of it, and the mean of the processes' gradients is the
    gradient. fairseq adds the codebooks up, and each of its processes counts for itself.
    """
    frames = probabilities.flatten(0, -3)
    count = mean_of_processes(torch.tensor(float(len(frames)), device=frames.device)).clamp(min=1 / processes())
    own = frames.sum(0) / count
    mean = own + (mean_of_processes(own) - own).detach() if processes() > 1 else own
    return torch.exp(-(mean * torch.log(mean + 1e-7)).sum(-1))
