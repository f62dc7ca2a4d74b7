"""This module holds the options of `speechssl convert`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from speechssl.options import argument, option


@dataclass(frozen=True, kw_only=True)
class Convert:
    """convert an encoder to the format of Hugging Face, torchaudio or fairseq, and verify all
    layers

    SOURCE is a Hugging Face folder or hub id, torchaudio:HUBERT_BASE (any bundle), a torchaudio
    state dict, or a fairseq .pt (fairseq is not needed, and no code in the file is executed). OUT
    is a folder for huggingface, else a .pt with a card beside it (for torchaudio with the arguments
    of torchaudio.models.wav2vec2_model). All layers are verified before it is written: the weights
    that are read back are bit for bit the source's, and every layer's output for two seconds of
    noise is within 1e-5 of the source's, each computed by its own library. Only the encoder is
    written: heads and quantisers are listed and left out. Strides and heads that a state dict of
    torchaudio does not tell are assumed; a NAME.json beside NAME.pt with the arguments of
    wav2vec2_model states them.

      speechssl convert hubert_base_ls960.pt hubert-base --to huggingface
      speechssl convert facebook/hubert-base-ls960 hubert.pt --to torchaudio
    """

    source: str = argument("folder, hub id, torchaudio:BUNDLE, or .pt file")
    out: Path = argument("folder (huggingface) or .pt file to write")
    to: Literal["huggingface", "torchaudio", "fairseq"] = option(MISSING, "format of OUT")
