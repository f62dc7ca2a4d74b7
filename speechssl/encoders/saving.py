"""An encoder as an ordinary Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import Wav2Vec2FeatureExtractor

from speechssl.audio import SAMPLE_RATE


def save_encoder(encoder: Any, folder: Path, normalise: bool = True, bf16: bool = False) -> None:
    """Config, safetensors, feature extractor. bf16: half the bytes, weights rounded."""
    encoder.to(torch.bfloat16 if bf16 else torch.float32).save_pretrained(folder)
    save_extractor(encoder.config, folder, normalise)


def save_extractor(config: Any, folder: Path, normalise: bool) -> None:
    """What transformers does to samples before the encoder hears them, as the published checkpoints have it."""
    attends = config.feat_extract_norm == "layer"  # a group norm sees the padding, whatever is masked
    Wav2Vec2FeatureExtractor(sampling_rate=SAMPLE_RATE, do_normalize=normalise, return_attention_mask=attends).save_pretrained(
        folder
    )
