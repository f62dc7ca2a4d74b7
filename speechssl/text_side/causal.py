"""Language models that read from left to right, of any kind that `AutoModelForCausalLM` loads: text's, and those of units.

Every model here is trained with one table of rows, which reads symbols and writes them: the logits of the next symbol are the
products of the output with the rows. Kinds whose output is computed otherwise are refused when they are loaded, which is tried.
Letters: B sequences, S symbols in a sequence, V rows of the table, E their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, PreTrainedModel

from speechssl.dual.model import EncoderInputs
from speechssl.errors import InputError
from speechssl.io import checkpoint_folder
from speechssl.text_side.objectives import Source
from speechssl.textlm import longest_sequence, reason_of
from speechssl.trainer import Batch

KIND = "language model"
SEEN = 1e-4  # logits that differ by less are the same


def load_causal(name: str) -> PreTrainedModel:
    """A language model with its weights, in training. Raises InputError where there is none, or as `checked` does."""
    source = checkpoint_folder(name, KIND)
    try:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, trust_remote_code=False)
    except Exception as error:  # transformers, safetensors and the hub client each raise their own
        raise InputError(
            f"cannot load the language model {source} ({reason_of(error)}); give one that reads from left to right, as GPT-2"
        ) from error
    return checked(model, name)


def make_causal(values: dict[str, Any]) -> PreTrainedModel:
    """One with random weights. values: its config, as `to_dict` gives it. Raises InputError for sizes that do not fit."""
    try:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values))
    except Exception as error:  # every kind has its own for sizes that do not fit
        raise InputError(f"cannot make a language model of this config ({reason_of(error)}); give other sizes") from error
    return checked(model, str(values.get("model_type")))


def gpt2_values(vocabulary: int, layers: int, width: int, heads: int, positions: int) -> dict[str, Any]:
    """The config of a GPT-2. Raises InputError for a width that is no multiple of the heads."""
    if width % heads:
        raise InputError(f"{heads} heads cannot share a width of {width}; give --width a multiple of --heads")
    sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": positions, "vocab_size": vocabulary}
    return GPT2Config(**sizes, bos_token_id=0, eos_token_id=0).to_dict()


def set_rows(model: PreTrainedModel, rows: torch.Tensor, special: int) -> None:
    """Give a model a table (V, E) that reads and writes. special: id of the symbol that begins and ends sequences."""
    table = nn.Embedding(*rows.shape)
    table.weight = nn.Parameter(rows.detach().clone())
    model.config.tie_word_embeddings = True
    for config in (model.config, model.generation_config):
        config.bos_token_id = config.eos_token_id = config.pad_token_id = special
    model.resize_token_embeddings(len(rows), mean_resizing=False)  # of what writes as well
    model.set_input_embeddings(table)
    model.tie_weights()


def checked(model: PreTrainedModel, name: str) -> PreTrainedModel:
    """The model. Raises InputError for one that cannot be used."""
    if reason := why_not_causal(model.eval()):
        raise InputError(f"{name} cannot be a language model here: {reason}; give one of the kind of GPT-2, OPT or Llama")
    return model.train()


@torch.inference_mode()
def why_not_causal(model: PreTrainedModel) -> str:
    """Why a model is none that reads vectors from left to right, or none whose output fits its rows; "" where it is."""
    try:
        rows = model.get_input_embeddings().weight
        one = torch.randn(1, 4, rows.shape[1], generator=torch.Generator().manual_seed(0))
        last, first = (one * torch.tensor(signs)[:, None] for signs in ([1.0, 1, 1, -1], [-1.0, 1, 1, 1]))
        hidden = [model.base_model(inputs_embeds=x).last_hidden_state[0] for x in (one, last, first)]
    except Exception as error:  # what a model of another kind raises
        return f"it does not read vectors in the place of tokens ({reason_of(error)})"
    if hidden[0].shape[-1] != rows.shape[1]:
        return "its output is not as wide as its embeddings"
    if not hidden[0][:3].allclose(hidden[1][:3], atol=SEEN):
        return "it sees what follows"
    return "" if not hidden[0][3].allclose(hidden[2][3], atol=1e-8) else "it does not see what came before"


class CausalModel(nn.Module):
    """The layers of a language model, and the rows that read and write."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Takes the table out of the model; `whole` puts it back. Raises InputError where the rows alone do not write."""
        super().__init__()
        with torch.inference_mode():
            ids = torch.arange(4)[None] % model.get_input_embeddings().num_embeddings
            model.eval()
            wanted = model(input_ids=ids).logits
            found = model.base_model(input_ids=ids).last_hidden_state @ model.get_input_embeddings().weight.T
            model.train()
        if wanted.shape != found.shape or not wanted.allclose(found, atol=SEEN, rtol=1e-3):
            raise InputError(
                f"what a {model.config.model_type} writes is not the product of its output and its rows; "
                "give a language model of the kind of GPT-2, OPT or Llama"
            )
        self.table = model.get_input_embeddings()
        self.body = model.base_model
        self.inputs = EncoderInputs(self.body, self.table.embedding_dim)

    def logits(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """ids, mask: (B, S), padding behind. Returns (B, S, V), of the symbol that comes next."""
        hidden = self.body(**self.inputs(self.table(ids), mask, None)).last_hidden_state
        return (hidden @ self.table.weight.T).float()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Batch:
        """loss: cross-entropy of every symbol but the first, in nats. right: how many are predicted."""
        asked = mask[:, 1:].bool()
        logits, wanted = self.logits(ids, mask)[:, :-1][asked], ids[:, 1:][asked]
        right = (logits.argmax(1) == wanted).float().mean().detach()
        return {"loss": functional.cross_entropy(logits, wanted), "right": right}


def whole(model: PreTrainedModel, trained: CausalModel) -> PreTrainedModel:
    """The model of `CausalModel` with its rows, as transformers has it."""
    set_rows(model, trained.table.weight, model.config.eos_token_id)
    return model.eval()


@dataclass(frozen=True)
class CausalBatches:
    """Batches of pieces of a source, a function of (seed, step) only. first: the symbol before every piece, None: none."""

    source: Source
    first: int | None
    pad: int
    batch: int  # B
    length: int  # S
    seed: int = 0

    def __call__(self, step: int) -> Batch:
        """ids, mask: (B, S)."""
        rng = np.random.default_rng([self.seed, step])
        begin = [] if self.first is None else [self.first]
        return padded([[*begin, *self.source(rng, self.length - len(begin))[0]] for _ in range(self.batch)], self.pad)


def padded(sequences: Sequence[Sequence[int]], pad: int) -> Batch:
    """ids, mask: (B, S), padding behind."""
    size = max(map(len, sequences))
    ids = torch.full((len(sequences), size), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, sequence in enumerate(sequences):
        ids[i, : len(sequence)] = torch.as_tensor(np.asarray(sequence, np.int64))
        mask[i, : len(sequence)] = 1
    return {"ids": ids, "mask": mask}


def check_length(length: int, model: PreTrainedModel) -> None:
    """Raises InputError for sequences that are longer than the positions of a model."""
    longest = longest_sequence(model)
    if longest is not None and length > longest:
        raise InputError(
            f"sequences of {length} symbols do not fit into the {longest} positions of the language model; give a smaller --length"
        )


def save_causal(model: PreTrainedModel, trained: CausalModel, folder: Path) -> None:
    """A checkpoint that `load_causal` and transformers read."""
    whole(model, trained).save_pretrained(folder)
