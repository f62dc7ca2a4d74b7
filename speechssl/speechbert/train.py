"""Training of SpeechBERT: the autoencoder of audio words, masked words of text and speech, spans. Each stage resumes by itself.

Published (arXiv 1910.11559): BERT-base, MFCCs, words by forced alignment. Here any encoder's layer or MFCCs; the codes are computed
once, after the first stage, and stay as they are in the two others, as do the text embeddings that they were drawn to. To begin
with a reader of words in the place of a text-pre-trained encoder is ours: it knows the questions of its corpus in writing.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from speechssl.cascade.ctc import CtcRecogniser
from speechssl.config import TrainingOptions
from speechssl.data.records import Corpus, Passage, Question, data_hash, first_passages, load_corpus
from speechssl.dual.model import SpanModel
from speechssl.dual.train import check_positions, check_shares, example_batches, layout_of, weights_of
from speechssl.dual.weights import load_reader
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import hash_bytes, read_json, stage
from speechssl.processes import is_main, main_first
from speechssl.speechbert.config import SpeechBertOptions
from speechssl.speechbert.data import (
    CLS,
    PAD,
    SEP,
    SPECIALS,
    MaskedBatches,
    Sentence,
    Vocabulary,
    WordBatches,
    WordTable,
    encode_corpus,
    pieces_of,
    span_examples,
    text_vectors,
)
from speechssl.speechbert.model import (
    CodeReader,
    MaskedWords,
    WordAutoencoder,
    WordEncoder,
    WordShape,
    as_saved,
    save_speechbert,
)
from speechssl.text import pieces
from speechssl.textlm.config import QaOptions
from speechssl.textlm.encoders import TextCodec, load_text_encoder, load_tokenizer, pad_id, without_dropout
from speechssl.trainer import check_share, fit
from speechssl.units.features import Features


def stage_options(training: TrainingOptions, steps: int, learning_rate: float, bf16: bool = True) -> TrainingOptions:
    """Those of an earlier stage: as the last one's but for steps and learning rate. bf16: not where it does not pay."""
    return replace(training, steps=steps, learning_rate=learning_rate, horizon=None, bf16=training.bf16 and bf16)


@dataclass(frozen=True, eq=False)
class TextModel:
    """What SpeechBERT begins with on the side of text: a span model, the embeddings (V, E) of its words, and its tokeniser."""

    reader: SpanModel  # its embedding has the SPECIALS rows
    embeddings: Tensor
    tokenizer: PreTrainedTokenizerBase
    card: dict[str, Any]


def text_model(options: QaOptions, start: Path | None) -> TextModel:
    """A text-pre-trained encoder, or `start`: a reader of `speechssl train text-qa`, whose span head comes along.

    Raises InputError where that is no reader of words, or its tokeniser has no mask token.
    """
    torch.manual_seed(options.training.seed)
    head, card = None, dict[str, Any]()
    if start is None:
        encoder, tokenizer = load_text_encoder(options.text_encoder)
        embeddings = encoder.get_input_embeddings().weight.detach().clone()
        weights = encoder.state_dict()  # a name may come to mean another encoder
        card = {
            "text_encoder": options.text_encoder,
            "text_weights": hash_bytes(*(weights[k].numpy().tobytes() for k in sorted(weights))),
        }
    else:
        if not (start / "tokenizer.json").is_file():
            raise InputError(f"{start} has no tokenizer.json; --start takes a folder of `speechssl train text-qa`")
        model, _, made = load_reader(start)
        if model.subwords is not None:
            raise InputError(f"{start} reads sub-word units, which speech has not; --start takes one of --subwords none")
        tokenizer = load_tokenizer(start, model.embedding.num_embeddings)
        embeddings = model.embedding.weight.detach().clone()
        encoder, head = model.encoder.train().requires_grad_(True), model.head
        card = {"text_encoder": made.get("text_encoder"), "start": made["weights"], "start_corpus": made.get("corpus")}
    if tokenizer.mask_token_id is None:
        raise InputError("the text encoder's tokeniser has no mask token; choose an encoder that was trained by masking")
    specials = nn.Embedding(SPECIALS, embeddings.shape[1])
    with torch.no_grad():
        specials.weight.copy_(embeddings[[tokenizer.cls_token_id, tokenizer.sep_token_id, pad_id(tokenizer)]])
    reader = SpanModel(encoder, specials)
    if head is not None:
        reader.head.load_state_dict(head.state_dict())
    return TextModel(reader, embeddings, tokenizer, card)


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
    answered, and aligns the text of recordings without times; recogniser_card: what says which it is. start: see `text_model`.
    Raises InputError where `out` was made from other inputs, or there is nothing to learn from.
    """
    check_shares(options.qa)
    check_share(options.word_batch)
    check_share(options.masked_batch)
    made = {"features": features.card, "recogniser": recogniser_card, "start": weights_of(start)}
    made |= {"data": data_hash(corpus, options.qa.split)}
    with stage(out, made, asdict(options)) as step:
        if step.done:
            return
        text = text_model(options.qa, start)
        layout = layout_of(options.qa, CLS, SEP, PAD)
        check_positions(text.reader.encoder, layout, options.qa.text_encoder)
        data = first_passages(load_corpus(corpus, options.qa.split), options.passages)
        where = data.root / data.split
        nothing = f"{where} has no answerable question that can be used; without any, learn words alone (--no-spans)"
        if options.spans and not data.answerable:
            raise InputError(nothing)
        with main_first():
            table = encode_corpus(data, features, recogniser, out / "features")
        examples, left_out = span_examples(data, table) if options.spans else ([], {})
        tell_set_aside(left_out, "training of SpeechBERT", "question")
        if options.spans and not examples:
            raise InputError(nothing)
        if not options.qa.dropout:
            without_dropout(text.reader.encoder)
        checkpoints, results = out / "checkpoints", {}
        word_pieces = pieces_of(table.texts, TextCodec(text.tokenizer))
        encoder, results["words"] = fit_words(table, word_pieces, text.embeddings, options, checkpoints / "words")
        codes = encoder.codes_of(table)
        if options.masked is not None:
            torch.manual_seed(options.masked.seed)
            model = MaskedWords(text.reader, text.embeddings, codes)
            masked = masked_batches(data, table, word_pieces, text, options)
            results["masked"] = fit(model, masked, options.masked, checkpoints / "masked")
        if options.spans:
            batches = example_batches(examples, layout, options.qa)
            results["spans"] = fit(CodeReader(text.reader, codes), batches, options.qa.training, checkpoints / "spans")
        facts = {"audio_words": len(table), "examples": len(examples), "left_out": len(left_out), "training": results}
        card = made | text.card | facts | {"options": asdict(options), "corpus": read_json(corpus / "card.json")}
        with main_first():
            if is_main():
                save_speechbert(out, encoder, text.reader, layout, card)
                shutil.rmtree(out / "features")


def fit_words(
    table: WordTable, pieces: list[np.ndarray], embeddings: Tensor, options: SpeechBertOptions, folder: Path
) -> tuple[WordEncoder, dict[str, Any]]:
    """The word encoder as it will be saved, and the results of its training. pieces: (P,) ids of every word of the table."""
    known = np.flatnonzero([len(ids) > 0 for ids in pieces])
    if not len(known):
        raise InputError("no audio word of the corpus has a text that the tokeniser knows; there is nothing to learn from")
    torch.manual_seed(options.words.seed)
    shape = WordShape(table.features.shape[1], embeddings.shape[1], options.word_width)
    encoder = WordEncoder(shape).fit_scale(table)

    def targets(numbers: np.ndarray) -> Tensor:
        return text_vectors([pieces[n] for n in numbers], embeddings)

    batches = WordBatches(table, known, targets, options.word_batch, options.words.seed)
    result = fit(WordAutoencoder(encoder, options.pull), batches, options.words, folder)
    return as_saved(encoder), result


def masked_batches(
    data: Corpus, table: WordTable, word_pieces: list[np.ndarray], text: TextModel, options: SpeechBertOptions
) -> MaskedBatches:
    """Of the texts of all recordings as word pieces, and of their audio words, cut in every way."""
    assert options.masked is not None
    tokenizer, first = text.tokenizer, len(text.embeddings)
    codec = TextCodec(tokenizer)
    records: list[Passage | Question] = [*data.passages.values(), *data.questions]
    coded = (codec.encode([word for word, _ in pieces(r.written, r.language)])[0] for r in records)
    texts = [Sentence(ids, list(ids[:, None])) for ids in coded if len(ids)]
    sequences = (s for ways in table.sequences.values() for s in ways)
    spoken = [Sentence(s.numbers + first, [word_pieces[n] for n in s.numbers]) for s in sequences]
    spoken = [s for s in spoken if any(len(t) for t in s.targets)]
    special = (tokenizer.cls_token_id, tokenizer.sep_token_id, pad_id(tokenizer), tokenizer.mask_token_id)
    vocabulary = Vocabulary(*special, first, len(table))
    return MaskedBatches(texts, spoken, vocabulary, options.masked_batch, options.masked_window, seed=options.masked.seed)
