"""Which weights of an encoder are trained: all, or few. What is read in and written out (embeddings of symbols, heads) always is.

all      every weight
frozen   layer norms and positions: the frozen pre-trained transformer (arXiv 2103.05247)
biases   bias vectors: BitFit (arXiv 2106.10199)
none     nothing of the encoder
"""

from __future__ import annotations

from torch import nn

DEVICES = ("all", "frozen", "biases", "none")


def train_only(encoder: nn.Module, trained: str) -> None:
    """trained: one of DEVICES."""
    for name, module in encoder.named_modules():
        norm = "norm" in type(module).__name__.lower()
        position = "position" in name.rpartition(".")[2] or "relative_attention" in name
        for weight, values in module.named_parameters(recurse=False):
            learnt = {"all": True, "frozen": norm or position, "biases": weight.endswith("bias"), "none": False}[trained]
            values.requires_grad_(learnt)


def trained_parameters(model: nn.Module) -> int:
    """Numbers that training changes."""
    return sum(values.numel() for values in model.parameters() if values.requires_grad)
