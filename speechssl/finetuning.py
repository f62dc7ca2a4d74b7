"""Methods of fine-tuning train all or few weights of an encoder. Embeddings of new symbols and
heads are always trained; the embeddings of the tokens that an encoder was pre-trained with belong
to the encoder.

all           every weight
frozen        layer norms and positions: the frozen pre-trained transformer (arXiv 2103.05247)
biases        bias vectors: BitFit (arXiv 2106.10199); T5 and ModernBERT have none
adapters      a bottleneck behind the attention and one behind the feed-forward of every layer, with
              the layer norms (Houlsby et al., arXiv 1902.00751); they stay in the model that is
              saved
lora          a low rank added to the matrices of queries and values (arXiv 2106.09685), by peft;
              `merge_lora` adds it for saving
weighted-sum  no weight, but the shares of the layers' outputs, whose sum takes the place of the
              last one (ELMo, arXiv 1802.05365)
none          nothing of the encoder

Matrices are found by the names that transformers gives them, in speech encoders as in those of
text. Letters: B sequences, S tokens in a sequence, H width of the encoder, L layers, A width of a
bottleneck.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, get_args

import torch
from torch import Tensor, nn

from speechssl.errors import InputError, MissingExtra
from speechssl.options import Trained

METHODS = get_args(Trained)
# These methods suit every encoder; for messages.
OTHERS = "another --trained, such as all, frozen or none"
BOTTLENECK = 64  # A
RANK, ALPHA = 8, 16  # of LoRA
# the last matrix of attention and of feed-forward, whose output is added to the residual stream:
# "encoder.layer.0.attention.output.dense" in BERT, "block.0.layer.0.SelfAttention.o" in T5
_TO_RESIDUAL = re.compile(
    r"(output\.dense|attention\.dense|ffn_output|output_dense|out_lin|lin2|Wo|out_proj|o_proj"
    r"|down_proj|attn\.o|fc2|SelfAttention\.o|DenseReluDense\.wo)$"
)
# the matrices of queries and values: "attention.self.query" in BERT, "Wqkv" in ModernBERT
_QUERY_VALUE = (
    r"(query|value|query_proj|value_proj|in_proj|Wqkv|[qv]_lin|[qv]_proj"
    r"|SelfAttention\.[qv]|attn\.[qv])"
)


def train_only(encoder: nn.Module, trained: str) -> None:
    """Add the modules that a method needs, and freeze the weights that it does not train. trained:
    one of METHODS.

    Raises InputError for an encoder in which the method finds no place; MissingExtra for lora
    without peft.
    """
    if trained == "adapters":
        add_modules(encoder, {"adapters": BOTTLENECK})
    elif trained == "weighted-sum":
        add_modules(encoder, {"weighted_sum": True})
    elif trained == "lora":
        _add_lora(encoder)
    for name, module in encoder.named_modules():
        is_norm = "norm" in type(module).__name__.lower()
        leaf = name.rpartition(".")[2]
        is_position = (
            "position" in leaf
            or "pos_conv_embed" in name  # HuBERT's and wav2vec 2.0's
            or "relative_attention" in name  # T5's
            or leaf == "rel_embeddings"  # DeBERTa's
        )
        for weight, values in module.named_parameters(recurse=False):
            is_trained = {
                "all": True,
                "frozen": is_norm or is_position,
                "biases": weight.endswith("bias"),
                "adapters": is_norm or ".adapter." in f"{name}.",
                "lora": ".lora_" in name,
                "weighted-sum": weight == "layer_shares",
                "none": False,
            }
            values.requires_grad_(is_trained[trained])
    if trained != "none" and not count_trained(encoder):
        # biases: T5 and ModernBERT have none
        name = type(encoder).__name__
        raise InputError(f"{trained} finds nothing to train in {name}; choose {OTHERS}")


def count_trained(model: nn.Module) -> int:
    """Count the numbers that training changes; a pooler is never read."""
    count = 0
    for name, values in model.named_parameters():
        if values.requires_grad and "pooler" not in name.split("."):
            count += values.numel()
    return count


def find_added_modules(encoder: nn.Module) -> dict[str, Any]:
    """Return which modules methods have added to an encoder for good, as `add_modules` takes
    it."""
    added: dict[str, Any] = {}
    for module in encoder.modules():
        if isinstance(module, Bottleneck):
            added["adapters"] = module.down.out_features
    if hasattr(encoder, "layer_shares"):
        added["weighted_sum"] = True
    return added


def add_modules(encoder: nn.Module, modules: dict[str, Any]) -> None:
    """Add modules where the encoder does not have them yet. modules: `adapters`, the width of
    bottlenecks, and `weighted_sum`, True. Raises InputError as `train_only` does."""
    present = find_added_modules(encoder)
    if modules.get("adapters") and "adapters" not in present:
        _add_adapters(encoder, modules["adapters"])
    if modules.get("weighted_sum") and "weighted_sum" not in present:
        layers: int = encoder.config.num_hidden_layers  # type: ignore[assignment, union-attr]
        encoder.layer_shares = nn.Parameter(torch.zeros(layers + 1))
        encoder.register_forward_pre_hook(_ask_for_hidden_states, with_kwargs=True)
        encoder.register_forward_hook(_sum_layers)


def _add_adapters(encoder: nn.Module, width: int) -> None:
    """Add a bottleneck behind the attention and one behind the feed-forward of every layer."""
    matrices = []
    for name, module in encoder.named_modules():
        if isinstance(module, nn.Linear) and _TO_RESIDUAL.search(name):
            matrices.append(module)
    config = getattr(encoder, "config", None)
    # ALBERT has few layers, which it repeats
    groups = getattr(config, "num_hidden_groups", 0) * getattr(config, "inner_group_num", 1)
    depth: int = groups or getattr(config, "num_hidden_layers", 0)
    if not matrices or len(matrices) != 2 * depth:
        raise InputError(
            f"adapters find {len(matrices)} places in {type(encoder).__name__}, not two in each of "
            f"{depth} layers; choose {OTHERS}"
        )
    for matrix in matrices:
        matrix.adapter = Bottleneck(matrix.out_features, width)
        matrix.register_forward_hook(_adapt)


def merge_lora(encoder: nn.Module) -> nn.Module:
    """Merge LoRA's matrices into those of the encoder, and return it."""
    for name, module in list(encoder.named_modules()):
        if hasattr(module, "lora_A"):
            module.merge()
            parent, _, leaf = name.rpartition(".")
            setattr(encoder.get_submodule(parent), leaf, module.get_base_layer())
    return encoder


class Bottleneck(nn.Module):
    """A bottleneck gives x + up(gelu(down(x))), close to x at first."""

    def __init__(self, width: int, inner_width: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, inner_width)
        self.up = nn.Linear(inner_width, width)
        for layer in (self.down, self.up):
            nn.init.trunc_normal_(layer.weight, std=0.01, a=-0.02, b=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Change the output x (B, S, H) of a matrix."""
        return x + self.up(nn.functional.gelu(self.down(x)))


def _adapt(matrix: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """Send the output of a matrix through its bottleneck: a forward hook."""
    return matrix.adapter(output)  # type: ignore[no-any-return, operator]


def _ask_for_hidden_states(
    encoder: nn.Module, inputs: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Ask the encoder for the hidden states of all layers: a hook before its forward."""
    return inputs, kwargs | {"output_hidden_states": True}


def _sum_layers(encoder: Any, inputs: Any, output: Any) -> Any:
    """Put the weighted sum of L + 1 hidden states (B, S, H) in the place of the last: a forward
    hook."""
    length = output.last_hidden_state.shape[1]
    states = torch.stack([state[:, :length] for state in output.hidden_states])
    shares = encoder.layer_shares.softmax(0).to(states.dtype)
    output.last_hidden_state = torch.einsum("l,lbsh->bsh", shares, states)
    return output


def _add_lora(encoder: nn.Module) -> None:
    """Add low-rank matrices to those of queries and values, by peft, unless the encoder has
    none."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise MissingExtra("--trained lora", "peft") from error
    targets = rf"(.*\.)?{_QUERY_VALUE}"
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets)
    with suppress(ValueError):  # peft's for a pattern that no module has
        inject_adapter_in_model(config, encoder)
