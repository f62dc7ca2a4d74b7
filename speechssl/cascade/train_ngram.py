"""Train the n-gram that a CTC head decodes with: `speechssl train ngram`.

`train_and_tune_ngram` trains it on the texts of a split and chooses its weights on dev
(`choose_weights`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from speechssl.artifacts import begin_stage, hash_files
from speechssl.audio import read_audio
from speechssl.cascade.decode import (
    NGRAM_FILE,
    NGRAM_FOLDER,
    NGRAM_THRESHOLD,
    BeamDecoder,
    BeamOptions,
)
from speechssl.cascade.model import CtcRecogniser, CtcVocabulary, decode_greedily
from speechssl.cascade.ngrams import NgramModel, load_ngrams, save_ngrams, train_ngram
from speechssl.cascade.options import TrainNgram
from speechssl.cascade.train import find_recorded_texts
from speechssl.data.records import (
    Corpus,
    hash_data,
    load_corpus,
    read_corpus_card,
    take_first_passages,
)
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.encoders.load import load_encoder
from speechssl.metrics import word_error_rate
from speechssl.textlm.encoders import collect_licences


def train_ctc_ngram(o: TrainNgram) -> None:
    """Train the n-gram that a CTC head decodes with, and choose its weight."""
    card = train_and_tune_ngram(o, load_encoder(o.encoder))
    decoding, dev = card["decoding"], card["dev"]
    print(
        f"{o.ctc}/ngram: {o.order}-gram, weight {decoding['lm_weight']:g}, word score "
        f"{decoding['word_score']:g}; WER {card['wer']:.1f} % on {card['recordings']} recordings "
        f"of {dev['split']}, {card['wer_greedy']:.1f} % without it"
    )


def train_and_tune_ngram(o: TrainNgram, encoder: SpeechEncoder) -> dict[str, Any]:
    """Train an n-gram on the texts of a split, choose its weights on recordings of dev, and return
    its card; a finished one is not trained again. encoder: `o.encoder`, loaded.

    Raises InputError where no text can be spelt by the head, or dev has no recordings with texts.
    """
    recogniser = CtcRecogniser.load(o.ctc, encoder)
    dev_corpus = o.dev or o.corpus
    inputs = {
        "data": hash_data(o.corpus, o.split),
        "eval_data": hash_data(dev_corpus, o.dev_split),
        **recogniser.card,
    }
    choices: dict[str, Any] = {
        "order": o.order,
        "passages": o.passages,
        "dev_passages": o.dev_passages,
        "beam": o.beam,
        "lm_weights": o.lm_weights,
        "word_scores": o.word_scores,
    }
    with begin_stage(o.ctc / NGRAM_FOLDER, inputs, choices) as step:
        if step.done:
            return dict(step.card)
        path = o.ctc / NGRAM_FOLDER / NGRAM_FILE
        data = take_first_passages(load_corpus(o.corpus, o.split), o.passages)
        texts = [spell(r.text, recogniser.vocabulary) for r in data.records]
        save_ngrams(train_ngram(texts, o.order), path)
        model = load_ngrams(path)  # with probabilities rounded as in the file
        dev = take_first_passages(load_corpus(dev_corpus, o.dev_split), o.dev_passages)
        card = {
            "what": "n-gram",
            "corpus": read_corpus_card(o.corpus),
            "words": len(model.words),
            "ngrams": [len(ngrams.keys) for ngrams in model.ngrams],
            "dev": {
                "corpus": read_corpus_card(dev_corpus),
                "split": o.dev_split,
                "passages": o.dev_passages,
            },
            "weights": hash_files([path]),
            **choose_weights(recogniser, model, dev, o),
        }
        return step.finish(card | inputs | collect_licences(o.corpus))


def choose_weights(
    recogniser: CtcRecogniser, model: NgramModel, dev: Corpus, o: TrainNgram
) -> dict[str, Any]:
    """Return the entries of the card about decoding: the weights with the lowest word error rate on
    dev (in %), that rate and the rate without an n-gram, and all weights that were tried."""
    records = find_recorded_texts(dev)
    vocabulary = recogniser.vocabulary
    texts = [record.text for record in records]
    outputs = []
    for record in tqdm(records, desc="recognising dev", unit="recording"):
        outputs.append(recogniser.compute_log_probs(read_audio(dev.path(record))))

    def error_rate(decode: Callable[[torch.Tensor], str]) -> float:
        recognised = [decode(log_probs) for log_probs in outputs]
        return 100 * word_error_rate(texts, recognised, dev.language).rate

    tried = []
    for lm_weight in tqdm(o.lm_weights, desc="choosing weights", unit="weight"):
        for word_score in o.word_scores:
            options = BeamOptions(o.beam, lm_weight, word_score, NGRAM_THRESHOLD)
            wer = error_rate(BeamDecoder(model, vocabulary, options).decode)
            tried.append({"lm_weight": lm_weight, "word_score": word_score, "wer": wer})
    best = min(tried, key=lambda row: row["wer"])
    best_options = BeamOptions(o.beam, best["lm_weight"], best["word_score"], NGRAM_THRESHOLD)
    return {
        "decoding": asdict(best_options),
        "recordings": len(texts),
        "wer": best["wer"],
        "wer_greedy": error_rate(partial(decode_greedily, vocabulary=vocabulary)),
        "tried": tried,
    }


def spell(text: str, vocabulary: CtcVocabulary) -> str:
    """Spell a text with the symbols of a vocabulary: in lower case where the vocabulary has no
    capitals, and without the characters that it lacks.

    Words stay separated by spaces; where the vocabulary has no separator, every character is a
    word.
    """
    known = set(vocabulary.symbols) - {vocabulary.separator}
    if all(symbol.lower() == symbol for symbol in known):
        text = text.lower()
    if not vocabulary.separator:
        return " ".join(character for character in text if character in known)
    words = ["".join(c for c in word if c in known) for word in text.split()]
    return " ".join(word for word in words if word.strip("'"))
