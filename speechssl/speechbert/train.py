"""This module trains SpeechBERT in three stages: the autoencoder of audio words, masked words of
text and speech, spans. A killed run resumes within the stage that it was in.

The published SpeechBERT (arXiv 1910.11559) has BERT-base, MFCCs, and words by forced alignment.
Here the features are a layer of any encoder, codes are computed once, after the first stage, and
training may start from a reader of words in the place of the text encoder. SpeechBERT can be
transferred to another encoder: the word encoder learns to make of the other encoder's features the
codes that words had, and the reader is not changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from speechssl.artifacts import begin_stage, hash_json, read_json
from speechssl.audio import read_audio
from speechssl.cascade.model import CtcRecogniser
from speechssl.data.records import (
    Corpus,
    hash_data,
    load_corpus,
    take_first_passages,
)
from speechssl.dual.data import ExampleBatches, Layout, find_answer_times
from speechssl.dual.fitting import (
    STEPS,
    check_positions,
    collect_reader_facts,
    describe_run,
    fit_reader,
    hash_splits,
    load_timed_questions,
    make_layout,
    make_timed_evaluation,
    read_weights_hash,
    save_questions,
    sweep_learning_rates,
)
from speechssl.dual.model import SpanModel, load_reader
from speechssl.dual.options import QaOptions
from speechssl.dual.system import Reader
from speechssl.encoders.encoder import SharedEncoder, SpeechEncoder
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError, report_set_aside
from speechssl.finetuning import merge_lora
from speechssl.options import find_shipped, select_settings
from speechssl.speechbert.data import (
    SPECIAL_IDS,
    SPECIALS,
    MaskedBatches,
    WordBatches,
    WordTable,
    encode_corpus,
    make_span_examples,
)
from speechssl.speechbert.model import (
    CodeEmbedding,
    CodeRegression,
    MaskedWords,
    WordAutoencoder,
    WordEncoder,
    load_weights,
    round_as_saved,
    save_speechbert,
)
from speechssl.speechbert.options import TrainSpeechBert, TransferSpeechBert
from speechssl.speechbert.system import (
    AudioWords,
    SpeechBertSystem,
    answer_codes,
    match_features,
)
from speechssl.text import split_pieces
from speechssl.textlm.encoders import load_text_encoder, remove_dropout
from speechssl.textlm.tokenizers import TextCodec, find_special_tokens, load_tokenizer
from speechssl.training import check_share, fit, write_by_main
from speechssl.units.features import Features, load_features, make_features

# keys on the card of a SpeechBERT that do not hold after its transfer
NOT_TRANSFERRED = ("recipe", "scores")


def train_speechbert(o: TrainSpeechBert) -> None:
    """Train SpeechBERT (arXiv 1910.11559) on an encoder and a recogniser, by their names."""
    if o.learning_rates:
        sweep_learning_rates(o, train_speechbert)
        return
    recogniser = None
    if o.encoder == "mfcc":
        features = load_features("mfcc", 0)
    else:
        # features and recogniser read the same layers of one recording
        encoder: Any = SharedEncoder(load_encoder(o.encoder))
        features = make_features(encoder, o.layer, 1)
        if o.ctc:
            recogniser = CtcRecogniser.load(find_shipped(o.ctc), encoder)
    fit_speechbert(replace(o, start=find_shipped(o.start)), features, recogniser)
    print(f"{o.out}: SpeechBERT{describe_run(o.out)}")


def fit_speechbert(
    o: TrainSpeechBert, features: Features, recogniser: CtcRecogniser | None
) -> None:
    """Train (once) and save SpeechBERT in OUT; features are kept in OUT/features until it is done.

    features: those of which audio words are made. recogniser: cuts every recording a second time,
    as in answering, and aligns the text of recordings without times. Raises InputError where OUT
    was made from other inputs, or no recording has words, or no question an answer with times.
    """
    check_share(o.qa.batch, o.qa.short_batch, o.stages.word_batch, o.stages.mask_batch)
    made_from: dict[str, Any] = hash_splits(o.corpus, o.qa.split, o.qa.evaluation) | {
        "features": features.card,
        "recogniser": recogniser and recogniser.card["asr"],
        "start": read_weights_hash(o.start),
    }
    options = {"qa": select_settings(o.qa)} | select_settings(o.stages)
    with begin_stage(o.out, made_from, options, grows="options.qa.training.steps") as step:
        if not step.done:
            encoder, reader, layout, metrics = fit_stages(o, features, recogniser)
            card = collect_reader_facts(o, made_from, o.qa.text_encoder)
            card |= made_from | metrics | {"options": options}
            merge_lora(reader.encoder)
            data = take_first_passages(load_corpus(o.corpus, o.qa.split), o.stages.passages)
            write_by_main(save_questions, o.out, data.questions, o.start)
            write_by_main(save_speechbert, o.out, encoder, reader, layout, card)
            shutil.rmtree(o.out / "features", ignore_errors=True)


def fit_stages(
    o: TrainSpeechBert, features: Features, recogniser: CtcRecogniser | None
) -> tuple[WordEncoder, SpanModel, Layout, dict[str, Any]]:
    """Train the stages. Returns the encoder of words, the reader with its layout, and the metrics
    of the training."""
    dev = load_timed_questions(o.corpus, o.qa.evaluation)
    text = make_text_model(o.qa, o.start)
    reader = text.reader
    layout = make_layout(o.qa, *SPECIAL_IDS)
    check_positions(reader.encoder, layout, o.qa.text_encoder)  # before hours of training
    data = take_first_passages(load_corpus(o.corpus, o.qa.split), o.stages.passages)
    if o.stages.spans and not any(find_answer_times(q) for q in data.answerable):
        raise InputError(
            f"{data.root / data.split} has no answer with times, which `speechssl align` finds; "
            "without any, train the word encoder only (--no-spans)"
        )
    table = encode_corpus(data, features, recogniser, o.out / "features")
    if not o.qa.dropout:
        remove_dropout(reader.encoder)

    results: dict[str, Any] = {}
    codec = TextCodec(text.tokenizer)
    pieces_by_text = {word: codec.encode([word])[0] for word in set(table.texts)}
    word_pieces = [pieces_by_text[word] for word in table.texts]
    encoder, results["words"] = fit_words(o, table, word_pieces, text.embeddings)
    codes = round_as_saved(encoder).encode_words(table)
    metrics = text.card | {"training": results, "audio_words": len(codes)}
    if o.stages.mask_steps:
        results["masked"] = fit_masked(o, data, table, word_pieces, text, codes)
    if o.stages.spans:
        examples, left_out = make_span_examples(data, table)
        report_set_aside(left_out, "training of SpeechBERT", "question")
        evaluation = None
        if dev is not None:
            system = SpeechBertSystem(features, encoder, Reader(reader, layout), recogniser, {})
            words = encode_held_out(system, dev)
            evaluation = make_timed_evaluation(
                dev, o.qa.evaluation, words, reader, layout, answer_codes
            )
        reader.embedding.codes = codes
        # adapters that are added to the encoder begin with the same weights in a resumed run
        torch.manual_seed(o.qa.training.seed)
        batches = ExampleBatches(examples, layout, o.qa)
        folder = o.out / "checkpoints/spans"
        fitted = fit_reader(reader, batches, layout, o.qa, folder, evaluation)
        results["spans"] = fitted["training"]
        metrics["examples"] = len(examples)
        metrics["left_out"] = len(left_out)
        metrics["trained_parameters"] = fitted["trained_parameters"]
    return encoder, reader, layout, metrics


class TextModel(NamedTuple):
    """A text model is a text encoder, or a reader of words, from which SpeechBERT begins."""

    reader: SpanModel  # with a CodeEmbedding
    embeddings: Tensor  # (V, E) of its words
    tokenizer: PreTrainedTokenizerBase
    card: dict[str, Any]  # facts for the card of SpeechBERT


def make_text_model(options: QaOptions, start: Path | None) -> TextModel:
    """Make the model from which SpeechBERT begins: of a text-pre-trained encoder, or of `start`, a
    reader of `speechssl train text-qa`, whose span head it keeps.

    Raises InputError where `start` is no reader of words or reads sub-word units, or where the
    tokeniser has no mask token.
    """
    torch.manual_seed(options.training.seed)
    head = None
    card: dict[str, Any]
    if start is None:
        encoder, tokenizer = load_text_encoder(options.text_encoder)
        embeddings = encoder.get_input_embeddings().weight.detach().clone()
        card = {"text_encoder": options.text_encoder}
    else:
        model, _, source = load_reader(start)
        if model.subwords is not None:
            raise InputError(
                f"{start} reads sub-word units, which speech does not have; give "
                "one trained with --subwords none"
            )
        tokenizer = load_tokenizer(start)
        embeddings = model.embedding.weight.detach().clone()
        model.train().requires_grad_(True)
        encoder, head = model.encoder, model.head
        card = {
            "text_encoder": source.get("text_encoder"),
            "start_corpus": source.get("corpus"),
        }
    if tokenizer.mask_token_id is None:
        raise InputError(
            "the text encoder's tokeniser has no mask token; choose an encoder that "
            "was trained by masking"
        )
    specials = nn.Embedding(SPECIALS, embeddings.shape[1])
    with torch.no_grad():
        specials.weight.copy_(embeddings[list(find_special_tokens(tokenizer))])
    reader = SpanModel(encoder, CodeEmbedding(specials))
    if head is not None:
        reader.head = head
    return TextModel(reader, embeddings, tokenizer, card)


# ---- the three stages


def fit_words(
    o: TrainSpeechBert, table: WordTable, word_pieces: Sequence[np.ndarray], embeddings: Tensor
) -> tuple[WordEncoder, dict[str, Any]]:
    """Train the autoencoder on the words whose text has word pieces; return the word encoder and
    the metrics.

    word_pieces: of every word of the table; embeddings: (V, E), whose mean over the pieces of a
    word is its target.
    """
    numbers = np.flatnonzero([len(ids) > 0 for ids in word_pieces])
    torch.manual_seed(o.words.seed)
    encoder = WordEncoder(table.features.shape[1], embeddings.shape[1], o.stages.word_width)
    encoder.fit_scale(table)

    def targets(chosen: np.ndarray) -> Tensor:
        return torch.stack([embeddings[torch.from_numpy(word_pieces[n])].mean(0) for n in chosen])

    batches = WordBatches(table, numbers, targets, o.stages.word_batch, o.words.seed)
    model = WordAutoencoder(encoder, o.stages.pull)
    return encoder, fit(model, batches, o.words, o.out / "checkpoints/words")


def fit_masked(
    o: TrainSpeechBert,
    data: Corpus,
    table: WordTable,
    word_pieces: Sequence[np.ndarray],
    text: TextModel,
    codes: Tensor,
) -> dict[str, Any]:
    """Train the text encoder on masked words of all texts and of all recordings, in both ways of
    cutting; return the metrics. codes: (N, E) of the words of the table."""
    torch.manual_seed(o.masked.seed)
    model = MaskedWords(text.reader, text.embeddings, codes)
    codec, vocabulary = TextCodec(text.tokenizer), len(text.embeddings)
    text_sentences = []
    for record in data.records:
        words = [word for word, _ in split_pieces(record.written, record.language)]
        ids, _ = codec.encode(words)
        if len(ids):
            text_sentences.append((ids, list(ids[:, None])))
    speech_sentences = []
    for ways in table.sequences.values():
        for sequence in ways:
            labels = [word_pieces[n] for n in sequence.numbers]
            if any(map(len, labels)):
                speech_sentences.append((sequence.numbers + vocabulary, labels))
    batches = MaskedBatches(
        text=text_sentences,
        speech=speech_sentences,
        specials=(*find_special_tokens(text.tokenizer), text.tokenizer.mask_token_id),
        vocabulary=vocabulary,
        words=len(codes),
        size=o.stages.mask_batch,
        window=o.stages.mask_window,
        seed=o.masked.seed,
    )
    return fit(model, batches, o.masked, o.out / "checkpoints/masked")


def encode_held_out(system: SpeechBertSystem, data: Corpus) -> dict[str, AudioWords]:
    """Encode the recordings of a corpus; those that cannot be read or have no words are left
    out."""
    encoded = {}
    for record in tqdm(data.records, desc="audio words for evaluation", unit="file"):
        with suppress(InputError, ValueError):
            encoded[record.id] = system.encode(record, read_audio(data.path(record)))
    return encoded


# ---- transfer to another encoder


def transfer_speechbert(o: TransferSpeechBert) -> None:
    """Transfer a SpeechBERT from an encoder to another, by their names."""
    card = fit_transfer(o, load_encoder(o.encoder), load_encoder(o.new))
    facts = card["transferred"]
    print(
        f"{o.out}: SpeechBERT, transferred by {facts['audio_words']} audio words; mean distance of "
        f"the new codes from the old: {facts['distance']:.0%} of that between two words"
    )


def fit_transfer(
    o: TransferSpeechBert, encoder: SpeechEncoder, other: SpeechEncoder
) -> dict[str, Any]:
    """Make (once) in OUT a SpeechBERT on the features of `other` whose codes are near those of the
    one in `o.speechbert` on the features of `encoder`.

    Words are cut by the times of the corpus. Returns the card, whose `transferred` has `distance`
    (`measure_relative_distance`). Raises InputError where the encoder is not SpeechBERT's, the
    encoders' frames do not fit each other, or no word has times.
    """
    check_share(o.options.batch)
    folder = find_shipped(o.speechbert)
    words, reader, layout, card = load_weights(folder)
    before = match_features(folder, encoder, card)
    if before.grid != other.grid or words.features != other.width or before.layer > other.layers:
        raise InputError(
            f"{other.name} has other frames than {encoder.name}, or no layer {before.layer} of "
            "their width; train SpeechBERT for it with `speechssl train speechbert`"
        )
    after = make_features(other, before.layer, before.smooth)
    data = take_first_passages(load_corpus(o.corpus, o.options.split), o.options.passages)
    made_from = {
        "transferred_from": hash_json([card["weights"], card["words"]["weights"], before.card]),
        "features": after.card,
        "data": hash_data(o.corpus, o.options.split),
    }
    with begin_stage(o.out, made_from, select_settings(o.options), grows=STEPS) as step:
        if not step.done:
            metrics = fit_codes(o, data, words, before, after)
            facts = made_from | {"options": select_settings(o.options)} | metrics
            unchanged = {name: value for name, value in card.items() if name not in NOT_TRANSFERRED}
            new_card = unchanged | {"features": after.card, "transferred": facts}
            write_by_main(save_speechbert, o.out, words, reader, layout, new_card)
            shutil.rmtree(o.out / "features", ignore_errors=True)
    return dict(read_json(o.out / "card.json"))


def fit_codes(
    o: TransferSpeechBert, data: Corpus, words: WordEncoder, before: Features, after: Features
) -> dict[str, Any]:
    """Train the word encoder `words` to make of the features `after` the codes that it makes of the
    features `before`; return the metrics. Raises InputError for a recording that has audio words
    with one of the encoders only."""
    old = encode_corpus(data, before, None, o.out / "features/old")
    new = encode_corpus(data, after, None, o.out / "features/new")
    unpaired = sorted(old.sequences.keys() ^ new.sequences.keys())
    if unpaired:
        raise InputError(
            f"{unpaired[0]} of {data.root / data.split} has audio words with one of the encoders "
            "only; remove it from the corpus"
        )
    codes = words.encode_words(old)
    seed = o.options.training.seed
    torch.manual_seed(seed)
    model = CodeRegression(words.fit_scale(new).requires_grad_(True).train())
    numbers = np.arange(len(codes))
    batches = WordBatches(new, numbers, codes.__getitem__, o.options.batch, seed)
    result = fit(model, batches, o.options.training, o.out / "checkpoints")
    distance = measure_relative_distance(round_as_saved(words).encode_words(new), codes)
    return {"training": result, "audio_words": len(codes), "distance": round(distance, 4)}


def measure_relative_distance(codes: Tensor, before: Tensor) -> float:
    """Measure the mean distance (L1) of the codes (N, E) of words from their codes before, divided
    by that of two random words before."""
    distance = (codes - before).abs().sum(-1).mean()
    others = before[torch.from_numpy(np.random.default_rng(0).permutation(len(before)))]
    distance_of_two = (before - others).abs().sum(-1)
    return float(distance / distance_of_two[distance_of_two > 0].mean())
