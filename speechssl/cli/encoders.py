"""`speechssl convert`: encoders between the formats."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from speechssl.cli.parser import add_verb, count

CONVERT = """write an encoder for Hugging Face, torchaudio or fairseq, and prove that it is the same

SOURCE is whatever load_encoder takes: a Hugging Face folder or hub id, torchaudio:HUBERT_BASE (any bundle), a torchaudio
state dict, or a fairseq .pt (fairseq is not needed, and nothing in the file is run).
OUT is a folder for huggingface; for the others a .pt, with a card beside it (and for torchaudio the arguments of
torchaudio.models.wav2vec2_model). It appears when it has been read again, its weights are the source's to the bit, and every
layer of two seconds of noise is within 1e-5 of the source's, each by its own library.
Only the encoder is written: heads and quantisers are listed and left out.

  speechssl convert hubert_base_ls960.pt hubert-base --to huggingface
  speechssl convert facebook/hubert-base-ls960 hubert.pt --to torchaudio
  speechssl convert odd.pt odd --to huggingface --strides 5 4 4 4 --heads 4 --post-norm"""


def add_convert(verbs: Any) -> None:
    verb = add_verb(verbs, "convert", _convert, CONVERT)
    verb.add_argument("source", help="folder, hub id, torchaudio:BUNDLE, or .pt file")
    verb.add_argument("out", type=Path, help="folder (huggingface) or .pt file to make")
    verb.add_argument("--to", required=True, choices=("huggingface", "torchaudio", "fairseq"), help="whose format OUT has")
    verb.add_argument("--strides", type=count, nargs="+", help="of the convolutions, where the source does not say them")
    verb.add_argument("--heads", type=count, help="attention heads, where the source does not say (usual: width / 64)")
    order = verb.add_mutually_exclusive_group()
    order.add_argument("--pre-norm", action="store_true", help="layer norm comes before attention, as in HuBERT large")
    order.add_argument("--post-norm", action="store_true", help="layer norm comes after attention, as in HuBERT base")


def _convert(o: argparse.Namespace) -> None:
    from speechssl.encoders.checkpoints import Architecture
    from speechssl.encoders.export import convert

    pre_norm = o.pre_norm if o.pre_norm or o.post_norm else None
    card = convert(o.source, o.out, o.to, Architecture(tuple(o.strides) if o.strides else None, o.heads, pre_norm))
    for layer, error in enumerate(card["largest_errors"]):
        print(f"layer {layer:>3}  relative error {error:.1e}")
    print(f"{o.out}: {card['what']}, {card['made_from']['hash']}{', ' + card['note'] if 'note' in card else ''}")
