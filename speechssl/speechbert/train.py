"""Training of SpeechBERT: the autoencoder of audio words, masked words of text and speech, spans.
Each stage resumes by itself.

Published (arXiv 1910.11559): BERT-base, MFCCs, words by forced alignment. Ours: any encoder's
layer; codes are computed once, after the first stage; a reader of words may take the place of the
text encoder; and the transfer to another encoder, for which the word encoder learns to give the
other's features of a word the old code of it, and the reader stays as it is.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from speechssl.audio import read_audio
from speechssl.cascade.model import CtcRecogniser
from speechssl.data.records import (
    Corpus,
    corpus_card,
    data_facts,
    data_hash,
    first_passages,
    load_corpus,
)
from speechssl.dual.data import check_times
from speechssl.dual.model import SpanModel, load_reader
from speechssl.dual.options import QaOptions
from speechssl.dual.system import Reader
from speechssl.dual.train import (
    answer_in_batches,
    check_positions,
    example_batches,
    held_out,
    held_out_hash,
    layout_of,
    mean_ff1,
    timed,
    weights_of,
)
from speechssl.encoders.load import SpeechEncoder
from speechssl.errors import InputError, report_set_aside
from speechssl.finetuning import merged, train_only, trained_parameters
from speechssl.io import hash_bytes, hash_json, read_json, stage
from speechssl.options import settings
from speechssl.processes import is_main, main_first
from speechssl.speechbert.data import (
    SPECIAL_IDS,
    SPECIALS,
    MaskedBatches,
    WordBatches,
    encode_corpus,
    span_examples,
    spans_of,
)
from speechssl.speechbert.model import (
    CodeEmbedding,
    CodeRegression,
    MaskedWords,
    WordAutoencoder,
    WordEncoder,
    as_saved,
    load_weights,
    save_speechbert,
)
from speechssl.speechbert.options import SpeechBertOptions, TransferSpeechBertOptions
from speechssl.speechbert.system import SpeechBertSystem, answer_codes, speechbert_features
from speechssl.text import pieces
from speechssl.textlm import (
    TextCodec,
    fast_attention,
    licences,
    load_text_encoder,
    load_tokenizer,
    special_tokens,
    without_dropout,
)
from speechssl.trainer import Evaluation, check_share, fit
from speechssl.units.features import Features, encoder_features

# in the card of a model that is transferred, and not of what is made
OF_THE_OLD = ("recipe", "scores")


def text_model(
    options: QaOptions, start: Path | None
) -> tuple[SpanModel, Tensor, PreTrainedTokenizerBase, dict[str, Any]]:
    """What SpeechBERT begins with on the side of text: a span model with a CodeEmbedding, the
    embeddings (V, E) of its words, its tokeniser, and what the card says of it.

    It is a text-pre-trained encoder, or `start`: a reader of `speechssl train text-qa`, whose span
    head comes along.
    Raises InputError where that is no reader of words, or its tokeniser has no mask token.
    """
    torch.manual_seed(options.training.seed)
    head, card = None, dict[str, Any]()
    if start is None:
        encoder, tokenizer = load_text_encoder(options.text_encoder)
        embeddings = encoder.get_input_embeddings().weight.detach().clone()
        weights = encoder.state_dict()  # a name may come to mean another encoder
        text_weights = hash_bytes(*(weights[k].numpy().tobytes() for k in sorted(weights)))
        card = {"text_encoder": options.text_encoder, "text_weights": text_weights}
    else:
        if not (start / "tokenizer.json").is_file():
            raise InputError(
                f"{start} has no tokenizer.json; --start takes a folder of "
                "`speechssl train text-qa`"
            )
        model, _, source = load_reader(start)
        if model.subwords is not None:
            raise InputError(
                f"{start} reads sub-word units, which speech does not have; give "
                "one trained with --subwords none"
            )
        tokenizer = load_tokenizer(start, model.embedding.num_embeddings)
        embeddings = model.embedding.weight.detach().clone()
        encoder, head = model.encoder.train().requires_grad_(True), model.head
        card = {
            "text_encoder": source.get("text_encoder"),
            "start": source["weights"],
            "start_corpus": source.get("corpus"),
        }
    if tokenizer.mask_token_id is None:
        raise InputError(
            "the text encoder's tokeniser has no mask token; choose an encoder that "
            "was trained by masking"
        )
    specials = nn.Embedding(SPECIALS, embeddings.shape[1])
    with torch.no_grad():
        specials.weight.copy_(embeddings[list(special_tokens(tokenizer))])
    reader = SpanModel(encoder, CodeEmbedding(specials))
    if head is not None:
        reader.head.load_state_dict(head.state_dict())
    return reader, embeddings, tokenizer, card


def train_speechbert(
    corpus: Path,
    features: Features,
    out: Path,
    options: SpeechBertOptions,
    recogniser: CtcRecogniser | None = None,
    start: Path | None = None,
) -> None:
    """Train (once) and save SpeechBERT in `out`; features are kept in `out`/features until it is
    done.

    features: of what the audio words are made. recogniser: cuts every recording a second time, as
    it will be when questions are answered, and aligns the text of recordings without times. start:
    see `text_model`.
    Raises InputError where `out` was made from other inputs, or there is nothing to learn from.
    """
    check_share(options.qa.batch, options.qa.short_batch, options.word_batch, options.masked_batch)
    made_from: dict[str, Any] = {
        "features": features.card,
        "recogniser": recogniser and recogniser.card["asr"],
    }
    made_from |= {"start": weights_of(start)}
    made_from |= {"data": data_hash(corpus, options.qa.split)} | held_out_hash(
        corpus, options.qa.evaluation
    )
    if options.qa.evaluation.eval_every and not options.spans:
        raise InputError(
            "--eval-every evaluates answers, which --no-spans does not train; leave out one of them"
        )
    if options.qa.trained != "all" and not options.spans:
        raise InputError(
            f"--trained {options.qa.trained} is of the third stage, which "
            "--no-spans skips; leave out one of them"
        )
    with stage(out, made_from, settings(options), grows="options.qa.training.steps") as step:
        if step.done:
            return
        dev = held_out(corpus, options.qa.evaluation)
        dev = dev and timed(dev, options.qa.evaluation)
        reader, embeddings, tokenizer, text_card = text_model(options.qa, start)
        layout, codec = layout_of(options.qa, *SPECIAL_IDS), TextCodec(tokenizer)
        check_positions(reader.encoder, layout, options.qa.text_encoder)
        train_only(deepcopy(reader.encoder), options.qa.trained)  # refused before hours of training
        data = first_passages(load_corpus(corpus, options.qa.split), options.passages)
        where = data.root / data.split
        nothing = (
            f"{where} has no usable answerable question; without any, train the word "
            "encoder only (--no-spans)"
        )
        if options.spans and not data.answerable:
            raise InputError(nothing)
        if options.spans:
            check_times(data)
        table = encode_corpus(data, features, recogniser, out / "features")
        examples, left_out = span_examples(data, table) if options.spans else ([], {})
        report_set_aside(left_out, "training of SpeechBERT", "question")
        if options.spans and not examples:
            raise InputError(nothing)
        if not options.qa.dropout:
            without_dropout(reader.encoder)
        checkpoints, results = out / "checkpoints", {}

        # 1: an autoencoder of the words whose text the tokeniser knows; a word of several pieces is
        # drawn to their mean
        ids_of = {text: codec.encode([text])[0] for text in set(table.texts)}
        word_pieces = [ids_of[text] for text in table.texts]
        numbers = np.flatnonzero([len(ids) > 0 for ids in word_pieces])
        if not len(numbers):
            raise InputError(
                "the tokeniser knows no text of an audio word of the corpus; check "
                "the language of the text encoder"
            )
        torch.manual_seed(options.words.seed)
        encoder = WordEncoder(
            table.features.shape[1], embeddings.shape[1], options.word_width
        ).fit_scale(table)

        def targets(chosen: np.ndarray) -> Tensor:
            return torch.stack(
                [embeddings[torch.from_numpy(word_pieces[n])].mean(0) for n in chosen]
            )

        batches: Any = WordBatches(table, numbers, targets, options.word_batch, options.words.seed)
        results["words"] = fit(
            WordAutoencoder(encoder, options.pull), batches, options.words, checkpoints / "words"
        )
        codes = as_saved(encoder).codes_of(table)

        # 2: masked words, of all texts and of all recordings, cut in every way
        if options.masked is not None:
            torch.manual_seed(options.masked.seed)
            model = MaskedWords(reader, embeddings, codes)
            coded = (
                codec.encode([word for word, _ in pieces(r.written, r.language)])[0]
                for r in data.records
            )
            texts = [(ids, list(ids[:, None])) for ids in coded if len(ids)]
            sequences = [s.numbers for ways in table.sequences.values() for s in ways]
            spoken = [
                (sequence + len(embeddings), [word_pieces[n] for n in sequence])
                for sequence in sequences
            ]
            spoken = [(ids, labels) for ids, labels in spoken if any(map(len, labels))]
            special = *special_tokens(tokenizer), tokenizer.mask_token_id
            sizes = len(embeddings), len(codes), options.masked_batch, options.masked_window
            batches = MaskedBatches(texts, spoken, special, *sizes, seed=options.masked.seed)
            with fast_attention(reader.encoder):
                results["masked"] = fit(model, batches, options.masked, checkpoints / "masked")
        if options.spans:  # 3
            # of what is added, in a run that was killed as well
            torch.manual_seed(options.qa.training.seed)
            train_only(reader.encoder, options.qa.trained)
            reader.embedding.codes = codes
            batches = example_batches(examples, layout, options.qa)
            evaluation = None
            if dev is not None:
                system = SpeechBertSystem(features, encoder, Reader(reader, layout), recogniser, {})
                evaluation = spoken_evaluation(system, dev, options.qa)
            with fast_attention(reader.encoder):
                results["spans"] = fit(
                    reader,
                    batches,
                    options.qa.training,
                    checkpoints / "spans",
                    evaluation=evaluation,
                )
        facts = {
            "audio_words": len(codes),
            "examples": len(examples),
            "left_out": len(left_out),
            "training": results,
        }
        facts |= {"trained_parameters": trained_parameters(reader)} if options.spans else {}
        card = (
            made_from
            | text_card
            | facts
            | {"options": settings(options), "corpus": corpus_card(corpus)}
        )
        card |= licences(corpus, options.qa.text_encoder, start) | data_facts(made_from, start)
        with main_first():
            if is_main():
                merged(reader.encoder)
                save_speechbert(out, encoder, reader, layout, card)
                shutil.rmtree(out / "features")


def spoken_evaluation(system: SpeechBertSystem, data: Corpus, options: QaOptions) -> Evaluation:
    """FF1 on held-out questions, whose recordings are encoded when they are first wanted. system:
    with the reader that is trained.

    A recording that cannot be read, or has no words, is no answer, as in evaluation.
    """
    model, layout = system.reader.model, system.reader.layout

    @cache
    def encoded() -> dict[str, Any]:
        words = {}
        for record in tqdm(data.records, desc="audio words for evaluation", unit="file"):
            with suppress(InputError, ValueError):
                words[record.id] = system.encode(record, read_audio(data.path(record)))
        questions = (q for q in data.questions if q.id in words and q.passage in words)
        return {q.id: (words[q.id], words[q.passage]) for q in questions}

    def score() -> float:
        items, trained_on = encoded(), model.embedding.codes
        reader = Reader(model, layout, device=str(model.head.weight.device))
        try:
            return mean_ff1(
                data, answer_in_batches(lambda batch: answer_codes(reader, batch), items)
            )
        finally:
            model.embedding.codes = trained_on

    return Evaluation(options.evaluation, "ff1", len(data.questions), score)


def transfer_speechbert(
    corpus: Path,
    encoder: SpeechEncoder,
    speechbert: Path,
    other: SpeechEncoder,
    out: Path,
    options: TransferSpeechBertOptions,
) -> dict[str, Any]:
    """Make (once) in `out` a SpeechBERT on the features of `other` that reads as the one in
    `speechbert`, on those of `encoder`.

    Words are cut by the times of the corpus. Returns the card; its `transferred` has `distance`:
    how far the new codes are from the old (L1), over the distance of the codes of two words drawn
    at random. Raises InputError where the encoder is not SpeechBERT's, the encoders' frames do not
    fit each other, or no word has times.
    """
    check_share(options.batch)
    words, reader, layout, card = load_weights(speechbert)
    before = speechbert_features(speechbert, encoder, card)
    if before.encoder == "mfcc":
        raise InputError(f"{speechbert} reads MFCCs and needs no transfer; use it as it is")
    if before.grid != other.grid or words.features != other.width or before.layer > other.layers:
        remedy = "train SpeechBERT for it with `speechssl train speechbert`"
        raise InputError(
            f"{other.name} has other frames than {encoder.name}, or no layer "
            f"{before.layer} of their width; {remedy}"
        )
    after = encoder_features(other, before.layer, before.smooth)
    data = first_passages(load_corpus(corpus, options.split), options.passages)
    where = data.root / data.split
    if sum(len(spans_of(r.words)) for r in data.records) < 2:
        raise InputError(
            f"{where} has no words with times; transfer SpeechBERT on a corpus that has them"
        )
    old = hash_json([card["weights"], card["words"]["weights"], card["features"]])
    made_from = {
        "transferred_from": old,
        "features": after.card,
        "data": data_hash(corpus, options.split),
    }
    with stage(out, made_from, settings(options), grows="options.training.steps") as step:
        if step.done:
            return dict(step.card)
        table, new = (
            encode_corpus(data, f, None, out / "features" / n)
            for f, n in ((before, "old"), (after, "new"))
        )
        if alone := sorted(table.sequences.keys() ^ new.sequences.keys()):
            raise InputError(
                f"{alone[0]} of {where} has audio words with one of the encoders "
                "only; remove it from the corpus"
            )
        codes = words.codes_of(table)
        torch.manual_seed(options.training.seed)
        model = CodeRegression(words.fit_scale(new).requires_grad_(True).train())
        numbers, seed = np.arange(len(codes)), options.training.seed
        batches = WordBatches(
            new, numbers, lambda n: codes[torch.from_numpy(n)], options.batch, seed
        )
        result = fit(model, batches, options.training, out / "checkpoints")
        moved = (as_saved(words).codes_of(new) - codes).abs().sum(-1).mean()
        apart = (
            (codes - codes[torch.from_numpy(np.random.default_rng(0).permutation(len(codes)))])
            .abs()
            .sum(-1)
        )
        facts = {
            "training": result,
            "audio_words": len(codes),
            "distance": round(float(moved / apart[apart > 0].mean()), 4),
        }
        facts |= {"from": old, "options": settings(options), "data": made_from["data"]}
        unchanged = {name: value for name, value in card.items() if name not in OF_THE_OLD}
        with main_first():
            if is_main():
                save_speechbert(
                    out,
                    words,
                    reader,
                    layout,
                    unchanged | {"features": after.card, "transferred": facts},
                )
                shutil.rmtree(out / "features")
    return dict(read_json(out / "card.json"))
