"""Training of SpeechBERT: the autoencoder of audio words, masked words of text and speech, spans. Each stage resumes by itself.

Published (arXiv 1910.11559): BERT-base, MFCCs, words by forced alignment. Here any encoder's layer or MFCCs; the codes are computed
once, after the first stage, and stay as they are in the two others, as do the text embeddings that they were drawn to.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speechssl.cascade.ctc import CtcRecogniser
from speechssl.data.records import Corpus, Passage, Question, data_hash, first_passages, load_corpus
from speechssl.dual.data import Layout
from speechssl.dual.train import QaOptions, check_positions, check_shares, example_batches, layout_of
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import claim, read_json
from speechssl.processes import agreed, is_main, main_first
from speechssl.speechbert.data import WordTable, encode_corpus
from speechssl.speechbert.model import (
    CLS,
    PAD,
    SEP,
    CodeReader,
    MaskedBatches,
    MaskedWords,
    Sentence,
    TextHalf,
    Vocabulary,
    WordAutoencoder,
    WordBatches,
    WordEncoder,
    as_saved,
    codes_of,
    examples,
    new_encoder,
    pieces_of,
    save_speechbert,
    text_half,
    text_vectors,
)
from speechssl.text import pieces
from speechssl.textlm.encoders import TextCodec, pad_id, without_dropout
from speechssl.trainer import Batch, TrainingOptions, check_share, fit
from speechssl.units.features import Features


@dataclass(frozen=True)
class SpeechBertOptions:
    """The three stages. `masked` None: no masked words are predicted."""

    qa: QaOptions
    words: TrainingOptions
    masked: TrainingOptions | None
    passages: int | None = None  # training passages; their questions come along. None: all
    word_batch: int = 128  # audio words a step
    word_width: int = 256  # LSTM units, a direction
    pull: float = 1.0  # weight of the L1 distance to the text embedding
    masked_batch: int = 16  # sequences a step, half text, half speech
    masked_window: int = 100  # words a sequence
    spans: bool = True  # False: no questions are learnt, which `train choice` goes on from


def train_speechbert(
    corpus: Path,
    features: Features,
    out: Path,
    options: SpeechBertOptions,
    recogniser: CtcRecogniser | None = None,
    recogniser_card: Any = None,
    start: Path | None = None,
) -> None:
    """Train (once) and save SpeechBERT in `out`; features are kept in `out`/features until it is done.

    features: of what the audio words are made. recogniser: cuts every recording a second time, as it will be when questions are
    answered, and aligns the text of recordings without times; recogniser_card: what says which it is. start: see `text_half`.
    Raises InputError where `out` was made from other inputs, or there is nothing to learn from.
    """
    _check_shares(options)
    named = {name: value for name, value in asdict(options).items() if (name, value) != ("spans", True)}  # as earlier versions
    begun = read_json(start / "card.json").get("weights") if start else None
    made = {"features": features.card, "recogniser": recogniser_card, "start": begun, "data": data_hash(corpus, options.qa.split)}
    with claim(out, made | {"options": named}):
        if agreed((out / "card.json").is_file()):
            return
        text = text_half(options.qa, start)
        layout = layout_of(options.qa, CLS, SEP, PAD)
        check_positions(text.reader.encoder, layout, options.qa.text_encoder)
        data = first_passages(load_corpus(corpus, options.qa.split), options.passages)
        if options.spans and not data.answerable:
            raise _nothing_to_answer(data)
        with main_first():
            table = encode_corpus(data, features, recogniser, out / "features")
        encoder, facts = _train(data, table, text, layout, options, out / "checkpoints")
        card = made | text.card | facts | {"options": asdict(options), "corpus": read_json(corpus / "card.json")}
        with main_first():
            if is_main():
                save_speechbert(out, encoder, text.reader, layout, card)
                shutil.rmtree(out / "features")


def _train(
    data: Corpus, table: WordTable, text: TextHalf, layout: Layout, options: SpeechBertOptions, folder: Path
) -> tuple[WordEncoder, dict[str, Any]]:
    """All three stages. The word encoder, and what the card says of its training; the reader is trained in place."""
    found, left_out = examples(data, table) if options.spans else ([], {})
    tell_set_aside(left_out, "training of SpeechBERT", "question")
    if options.spans and not found:
        raise _nothing_to_answer(data)
    if not options.qa.dropout:
        without_dropout(text.reader.encoder)
    stages = _Stages(folder, options, text, table)
    encoder, codes = stages.words()
    stages.masked(data, codes)
    if options.spans:
        stages.spans(codes, example_batches(found, layout, options.qa))
    facts = {"audio_words": len(table), "examples": len(found), "left_out": len(left_out), "training": stages.results}
    return encoder, facts


def _nothing_to_answer(data: Corpus) -> InputError:
    where = data.root / data.split
    return InputError(f"{where} has no answerable question that can be used; without any, learn words alone (--no-spans)")


class _Stages:
    """The stages, one after another. results: what `fit` said of each."""

    def __init__(self, folder: Path, options: SpeechBertOptions, text: TextHalf, table: WordTable) -> None:
        self.folder, self.options, self.text, self.table = folder, options, text, table
        self.pieces = pieces_of(table.texts, TextCodec(text.tokenizer))
        self.results: dict[str, Any] = {}

    def words(self) -> tuple[WordEncoder, Tensor]:
        """The word encoder as it will be saved, and the codes (N, E) of all words."""
        options, known = self.options, np.flatnonzero([len(ids) > 0 for ids in self.pieces])
        if not len(known):
            raise InputError("no audio word of the corpus has a text that the tokeniser knows; there is nothing to learn from")
        torch.manual_seed(options.words.seed)
        encoder = new_encoder(self.table, self.text.embeddings.shape[1], options.word_width)
        batches = WordBatches(self.table, known, self._vectors, options.word_batch, options.words.seed)
        self.results["words"] = fit(WordAutoencoder(encoder, options.pull), batches, options.words, self.folder / "words")
        encoder = as_saved(encoder)
        return encoder, codes_of(encoder, self.table)

    def _vectors(self, numbers: np.ndarray) -> Tensor:
        return text_vectors([self.pieces[n] for n in numbers], self.text.embeddings)

    def masked(self, data: Corpus, codes: Tensor) -> None:
        """Train the text half's encoder in place."""
        options, tokenizer = self.options, self.text.tokenizer
        if options.masked is None:
            return
        torch.manual_seed(options.masked.seed)
        model = MaskedWords(self.text.reader, self.text.embeddings, codes)
        special = (tokenizer.cls_token_id, tokenizer.sep_token_id, pad_id(tokenizer), tokenizer.mask_token_id)
        vocabulary = Vocabulary(*special, len(self.text.embeddings), len(self.table))
        size, window, seed = options.masked_batch, options.masked_window, options.masked.seed
        batches = MaskedBatches(self._text(data), self._speech(), vocabulary, size, window, seed=seed)
        self.results["masked"] = fit(model, batches, options.masked, self.folder / "masked")

    def spans(self, codes: Tensor, batches: Callable[[int], Batch]) -> None:
        """Train the reader in place."""
        model = CodeReader(self.text.reader, codes)
        self.results["spans"] = fit(model, batches, self.options.qa.training, self.folder / "spans")

    def _text(self, data: Corpus) -> list[Sentence]:
        """What is written of every recording, as word pieces."""
        codec = TextCodec(self.text.tokenizer)
        records: list[Passage | Question] = [*data.passages.values(), *data.questions]
        coded = (codec.encode([word for word, _ in pieces(r.written, r.language)])[0] for r in records)
        return [Sentence(ids, list(ids[:, None])) for ids in coded if len(ids)]

    def _speech(self) -> list[Sentence]:
        """The audio words of every recording, cut in every way."""
        first = len(self.text.embeddings)
        sequences = (s for ways in self.table.sequences.values() for s in ways)
        made = [Sentence(s.numbers + first, self._targets(s.numbers)) for s in sequences]
        return [s for s in made if any(len(t) for t in s.targets)]

    def _targets(self, numbers: np.ndarray) -> Sequence[np.ndarray]:
        return [self.pieces[n] for n in numbers]


def _check_shares(options: SpeechBertOptions) -> None:
    check_shares(options.qa)
    check_share(options.word_batch)
    check_share(options.masked_batch)


def stage_options(training: TrainingOptions, steps: int, learning_rate: float, bf16: bool = True) -> TrainingOptions:
    """Those of an earlier stage: as the last one's but for steps and learning rate. bf16: not where it does not pay."""
    return replace(training, steps=steps, learning_rate=learning_rate, horizon=None, bf16=training.bf16 and bf16)
