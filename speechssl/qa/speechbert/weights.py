"""SpeechBERT on disk: the reader as any reader (`qa/weights.py`), and beside it the word encoder.

The card is written last. It says which features the words are made of and holds the hash of either file.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from speechssl.artefacts import hash_files, read_json, replacing
from speechssl.errors import InputError
from speechssl.qa.int8 import dequantise, quantise
from speechssl.qa.reader import Layout, SpanModel
from speechssl.qa.speechbert.autoencoder import WordEncoder, WordShape
from speechssl.qa.weights import load_reader, save_reader

WORDS = "words.safetensors"
WHAT = "SpeechBERT"


def as_saved(encoder: WordEncoder) -> WordEncoder:
    """The encoder with the weights that a file would give back: what reads its codes is trained on those of the file."""
    encoder.load_state_dict(dequantise(quantise(encoder.state_dict())))
    return encoder.eval().requires_grad_(False)


def save_speechbert(folder: Path, encoder: WordEncoder, reader: SpanModel, layout: Layout, card: dict[str, Any]) -> None:
    """Write words.safetensors, model.safetensors, config.json and card.json."""
    with replacing(folder / WORDS) as temporary:
        save_file(quantise(encoder.state_dict()), temporary)
    words = {"shape": asdict(encoder.shape), "weights": hash_files([folder / WORDS])}
    save_reader(folder, reader, layout, card | {"what": WHAT, "words": words})


def load_weights(folder: Path) -> tuple[WordEncoder, SpanModel, Layout, dict[str, Any]]:
    """Raises InputError where a file is missing, damaged or not the one of the card, or the folder holds another kind of model."""
    card = read_json(folder / "card.json")
    words = card.get("words") if isinstance(card, dict) else None
    if not isinstance(words, dict) or card.get("what") != WHAT:
        raise InputError(f"{folder} does not hold SpeechBERT; give the folder of `speechssl train speechbert`")
    reader, layout, card = load_reader(folder)
    return _load_words(folder / WORDS, words, reader.embedding.embedding_dim), reader, layout, card


def _load_words(path: Path, words: dict[str, Any], width: int) -> WordEncoder:
    try:
        encoder = WordEncoder(WordShape(**words["shape"]))
        packed: dict[str, torch.Tensor] = load_file(path)
        if words.get("weights") != hash_files([path]):
            raise ValueError("its contents are not those the card was written for")
        if encoder.shape.code != width:
            raise ValueError(f"its codes have {encoder.shape.code} values and the reader takes {width}")
        encoder.load_state_dict(dequantise(packed))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{path} does not hold the word encoder of its card ({reason}); train or fetch it again") from error
    return encoder.eval().requires_grad_(False)
