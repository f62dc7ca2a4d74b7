"""SpeechBERT for another encoder: its audio words get the codes that they have with the encoder it was trained on.

After continual pre-training the reader stays as it is, as DUAL's does with a transferred codebook (`units`). The word encoder goes
on from its own weights: the other encoder's features of a word in, the old code of the same word out.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from speechssl.data.records import Corpus, Passage, Question, data_hash, first_passages, load_corpus
from speechssl.encoders.base import SpeechEncoder
from speechssl.errors import InputError
from speechssl.io import hash_json, read_json, stage
from speechssl.processes import is_main, main_first
from speechssl.speechbert.config import TransferOptions
from speechssl.speechbert.data import WordBatches, encode_corpus, spans_of
from speechssl.speechbert.model import WordEncoder, as_saved, load_weights, nearest, save_speechbert
from speechssl.speechbert.system import speechbert_features
from speechssl.trainer import Batch, check_share, fit
from speechssl.units.features import Features, encoder_features

OF_THE_OLD = ("recipe", "scores")  # in its card, and not of what is made


class CodeRegression(nn.Module):
    """The word encoder on another encoder's features, learning the codes that words have already."""

    def __init__(self, encoder: WordEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, features: Tensor, lengths: Tensor, targets: Tensor) -> Batch:
        """features: (B, T, D); lengths: (B,); targets: (B, E) codes. loss: L1 distance to its code, a mean over the words. nearest:
        share of words that have no nearer code in the batch than their own.
        """
        codes = self.encoder(features, lengths)
        return {"loss": (codes - targets).abs().sum(-1).mean(), "nearest": nearest(codes.detach(), targets)}


def transfer_speechbert(
    corpus: Path, encoder: SpeechEncoder, speechbert: Path, other: SpeechEncoder, out: Path, options: TransferOptions
) -> dict[str, Any]:
    """Make (once) in `out` a SpeechBERT on the features of `other` that reads as the one in `speechbert`, on those of `encoder`.

    Words are cut by the times of the corpus. Returns the card; its `transferred` has `distance`: how far the new codes are from the
    old (L1), over the distance of the codes of two words drawn at random. Raises InputError where the encoder is not SpeechBERT's,
    the encoders' frames do not fit each other, or no word has times.
    """
    check_share(options.batch)
    words, reader, layout, card = load_weights(speechbert)
    before = speechbert_features(speechbert, encoder, card)
    if before.encoder == "mfcc":
        raise InputError(f"{speechbert} is made of MFCCs and no encoder; it serves every encoder as it is")
    if before.grid != other.grid or words.shape.features != other.width or before.layer > other.layers:
        remedy = "train SpeechBERT for it with `speechssl train speechbert`"
        raise InputError(f"{other.name} has other frames than {encoder.name}, or no layer {before.layer} of their width; {remedy}")
    after = encoder_features(other, before.layer, before.smooth)
    data = first_passages(load_corpus(corpus, options.split), options.passages)
    records: list[Passage | Question] = [*data.passages.values(), *data.questions]
    if sum(len(spans_of(r.words)) for r in records) < 2:
        raise InputError(f"{data.root / data.split} has no words with times; transfer SpeechBERT on a corpus that has them")
    old = hash_json([card["weights"], card["words"]["weights"], card["features"]])
    made = {"transferred_from": old, "features": after.card, "data": data_hash(corpus, options.split)}
    with stage(out, made, asdict(options)) as step:
        if not step.done:
            fitted, facts = _fit(data, words, before, after, options, out)
            kept = {name: value for name, value in card.items() if name not in OF_THE_OLD}
            facts |= {"from": old, "options": asdict(options), "data": made["data"]}
            with main_first():
                if is_main():
                    save_speechbert(out, fitted, reader, layout, kept | {"features": after.card, "transferred": facts})
                    shutil.rmtree(out / "features")
    return dict(read_json(out / "card.json"))


def _fit(
    data: Corpus, words: WordEncoder, before: Features, after: Features, options: TransferOptions, out: Path
) -> tuple[WordEncoder, dict[str, Any]]:
    with main_first():
        old, new = (encode_corpus(data, f, None, out / "features" / name) for f, name in ((before, "old"), (after, "new")))
    if alone := sorted(old.sequences.keys() ^ new.sequences.keys()):
        where = data.root / data.split
        raise InputError(f"{alone[0]} of {where} gives audio words with one encoder only; take it out of the corpus")
    codes = words.codes_of(old)
    torch.manual_seed(options.training.seed)
    model = CodeRegression(words.fit_scale(new).requires_grad_(True).train())
    batches = WordBatches(new, np.arange(len(new)), lambda n: codes[torch.from_numpy(n)], options.batch, options.training.seed)
    result = fit(model, batches, options.training, out / "checkpoints")
    encoder = as_saved(words)
    other = codes[torch.from_numpy(np.random.default_rng(0).permutation(len(codes)))]  # the codes of words drawn at random
    apart = (codes - other).abs().sum(-1)
    distance = float((encoder.codes_of(new) - codes).abs().sum(-1).mean() / apart[apart > 0].mean())
    return encoder, {"training": result, "audio_words": len(new), "distance": round(distance, 4)}
