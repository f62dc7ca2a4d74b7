"""As a system, SpeechBERT encodes recordings as audio words and answers in seconds.

The times of words are those that a recogniser finds (`speechbert`, which uses nothing else of its
output), or those of the corpus (`speechbert-aligned`, an upper bound, for they are not known when
questions are answered). Windows and the choice of the span are as in DUAL.
Letters: W words of one recording, E embedding width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.audio import SAMPLE_RATE
from speechssl.cascade.data import Recogniser
from speechssl.data.records import Passage, Question
from speechssl.dual.system import Reader, TimedAnswer, choose_device
from speechssl.errors import InputError
from speechssl.speechbert.data import make_word_table, recognise_words, sort_spans, stack_codes
from speechssl.speechbert.model import WordEncoder, load_weights
from speechssl.units.features import Features, check_finite, load_features, make_features


@dataclass(frozen=True, eq=False)
class AudioWords:
    """A recording is encoded as audio words, whose texts are not known."""

    codes: np.ndarray  # (W, E) float32
    starts: np.ndarray  # (W,) seconds
    ends: np.ndarray  # (W,)


def answer_codes(
    reader: Reader, items: Sequence[tuple[AudioWords, AudioWords]]
) -> list[TimedAnswer]:
    """Answer questions in seconds. items: (question, passage). A passage without words gives an
    empty answer at 0 s.

    reader: of a SpanModel with a CodeEmbedding, whose codes are those of these recordings until
    this returns.
    """
    recordings = {id(words): words.codes for pair in items for words in pair}
    embedding = reader.model.embedding
    before = embedding.codes
    embedding.codes, ids = stack_codes(recordings, embedding.embedding_dim)
    usable = [i for i, (_, passage) in enumerate(items) if len(passage.starts)]
    spans = reader.read([(ids[id(items[i][0])], ids[id(items[i][1])]) for i in usable])
    embedding.codes = before
    answers = [TimedAnswer(0.0, 0.0, 0.0)] * len(items)
    for i, span in zip(usable, spans, strict=True):
        passage = items[i][1]
        start, end = float(passage.starts[span.first]), float(passage.ends[span.last])
        answers[i] = TimedAnswer(start, end, span.confidence)
    return answers


@dataclass(frozen=True, eq=False)
class SpeechBertSystem:
    """SpeechBERT is a `systems.System`."""

    features: Features
    words: WordEncoder
    reader: Reader
    recogniser: Recogniser | None  # finds the words; None: they are those of the records
    card: Mapping[str, Any]
    needs_audio: bool = True

    @property
    def name(self) -> str:
        return "speechbert" if self.recogniser else "speechbert-aligned"

    def encode(self, record: Passage | Question | None, samples: Any) -> AudioWords:
        """Encode a recording. samples: (N,) float32 at 16 kHz. Raises ValueError for audio shorter
        than one frame, or where `speechbert-aligned` finds no words with times."""
        if self.recogniser is not None:
            words = recognise_words(self.recogniser, samples)
        else:
            words = sort_spans(record.words) if record else ()
            if not words:
                raise ValueError(
                    "its manifest has no words with times, which speechbert-aligned "
                    "needs; choose speechbert"
                )
        rows = check_finite(torch.cat(list(self.features.stream(samples)))).cpu().numpy()
        inside = [w for w in words if w.start < len(samples) / SAMPLE_RATE]
        table = make_word_table(rows, {"": (0, len(rows))}, {"": [inside]}, self.features.grid)
        (sequence,) = table.sequences[""]
        return AudioWords(self.words.encode_words(table).numpy(), sequence.starts, sequence.ends)

    def answer_all(self, items: Sequence[tuple[AudioWords, AudioWords]]) -> list[TimedAnswer]:
        return answer_codes(self.reader, items)


def load_speechbert(
    folder: Path, encoder: Any, recogniser: Recogniser | None = None, bf16: bool = False
) -> SpeechBertSystem:
    """Load the model in `folder`, on the features of this encoder. recogniser: finds the times of
    words; None: they are those of the records (`speechbert-aligned`). Raises InputError where the
    folder holds no SpeechBERT, or one of another encoder.
    """
    words, model, layout, card = load_weights(folder)
    features = match_features(folder, encoder, card)
    system_card = {
        "speechbert": card["weights"],
        "words": card["words"]["weights"],
        "features": card["features"],
    }
    boundaries = recogniser.card["asr"] if recogniser else "those of the corpus"
    system_card |= {"layout": card["layout"], "boundaries": boundaries}
    if bf16:
        system_card["bf16"] = True
    reader = Reader(model.to(choose_device()), layout, bf16=bf16)
    return SpeechBertSystem(features, words, reader, recogniser, system_card)


def match_features(folder: Path, encoder: Any, card: Mapping[str, Any]) -> Features:
    """Load the features on which the SpeechBERT in `folder`, with this card, was trained. Raises
    InputError where `encoder` is another than that of its training."""
    trained_on = card["features"]
    layer, smooth = trained_on.get("layer", 0), trained_on.get("smooth", 1)
    if trained_on["encoder"] == "mfcc":
        features = load_features("mfcc", 0, smooth)
    else:
        features = make_features(encoder, layer, smooth)
    for name in ("encoder", "frame_rate", "settings"):
        if trained_on.get(name) != features.card.get(name):
            raise InputError(
                f"{folder} was trained on the encoder {trained_on['encoder']} and this one is "
                f"{features.encoder} ({name} differs); load that encoder, transfer SpeechBERT to "
                "it (`speechssl train transfer-speechbert`) or train it again"
            )
    return features
