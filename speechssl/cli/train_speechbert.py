"""`speechssl train speechbert`, three stages in one verb, and `carry-speechbert`, which takes what it made to another encoder."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from speechssl.adam import BERT
from speechssl.cli.qa_flags import qa_flags, qa_options
from speechssl.cli.shared import ENCODERS, add_verb, trained, training_flags, training_options
from speechssl.options import amount, count, weight, whole

SPEECHBERT = """train SpeechBERT: a text encoder that reads audio words

Three stages, each of which goes on where it was killed: an autoencoder makes one vector of every audio word, near the embedding of
its text (--word-...); masked words of text and of speech are predicted (--mask-...); spans are found (the options that are left).
Words are cut by the times in the manifest and, with --recogniser, a second time as they will be cut when questions are answered.

  speechssl train speechbert corpus minisqa-en/encoder exp/speechbert --recogniser minisqa-en/ctc
  speechssl train speechbert corpus mfcc exp/speechbert-mfcc --start minisqa-en/text-qa
"""
CARRY = """SpeechBERT for another encoder, which reads as it did

After continual pre-training: the word encoder learns to give NEW's features of a word the code that the word has with the old
encoder, in clean recordings whose words have times; it is trained in float32. The text encoder stays as it is. A killed run goes on
with the same command.

  speechssl train carry-speechbert corpus minisqa-en/encoder minisqa-en/speechbert exp/robust/encoder exp/robust/speechbert
"""


def add_speechbert(what: Any) -> None:
    verb = add_verb(what, "speechbert", _train_speechbert, SPEECHBERT)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("encoder", help=f"what audio words are made of: {ENCODERS}; or mfcc, as published")
    verb.add_argument("out", type=Path, help="folder for the trained model")
    verb.add_argument("--layer", type=whole, default=5, help="of the encoder")
    verb.add_argument("--recogniser", type=trained, help="folder of `speechssl train ctc` with this encoder, that cuts words")
    verb.add_argument("--start", type=trained, help="reader of `speechssl train text-qa` to go on from; default: the text encoder")
    verb.add_argument("--split", default="train", help="of the corpus")
    verb.add_argument("--passages", type=count, help="training passages, their questions come along; default: all")
    _word_flags(verb)
    qa_flags(verb, BERT, 30)


def add_carry_speechbert(what: Any) -> None:
    verb = add_verb(what, "carry-speechbert", _carry_speechbert, CARRY)
    verb.add_argument("corpus", type=Path, help="prepared corpus whose words have times")
    verb.add_argument("encoder", help=f"that SpeechBERT was trained on: {ENCODERS}")
    verb.add_argument("speechbert", type=trained, help="folder of `speechssl train speechbert`")
    verb.add_argument("new", help="encoder that gets a SpeechBERT, such as one that went on training from the first")
    verb.add_argument("out", type=Path, help="folder for the model")
    verb.add_argument("--passages", type=count, help="that are listened to, with their questions; default: all")
    verb.add_argument("--split", default="train", help="of the corpus")
    verb.add_argument("--batch", type=count, default=128, help="audio words a step, of all processes together")
    training_flags(verb, 500, 1e-3, 50, BERT)


def _carry_speechbert(o: argparse.Namespace) -> None:
    from speechssl.encoders.loading import load_encoder
    from speechssl.qa.speechbert.carry import CarryOptions, carry_speechbert

    training = replace(training_options(o), bf16=False)  # a CPU has no fast LSTM in bfloat16
    options = CarryOptions(training, o.batch, o.passages, o.split)
    card = carry_speechbert(o.corpus, load_encoder(o.encoder), o.speechbert, load_encoder(o.new), o.out, options)
    carried = card["carried"]
    off = f"a code is off by {carried['distance']:.0%} of what the codes of two words differ by"
    print(f"{o.out}: SpeechBERT, carried over by {carried['audio_words']} audio words; {off}")


def _word_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--word-steps", type=count, default=1500, help="updates of the autoencoder")
    verb.add_argument("--word-learning-rate", type=amount, default=2e-3, help="peak")
    verb.add_argument("--word-batch", type=count, default=128, help="audio words a step, of all processes together")
    verb.add_argument("--word-width", type=count, default=256, help="LSTM units in each direction")
    verb.add_argument("--pull", type=weight, default=1.0, help="weight of the L1 distance to the text embedding")
    verb.add_argument("--mask-steps", type=whole, default=200, help="updates on masked words; 0: no such stage")
    verb.add_argument("--mask-learning-rate", type=amount, default=1e-4, help="peak")
    verb.add_argument("--mask-batch", type=count, default=16, help="sequences a step, half text, half speech")
    verb.add_argument("--mask-window", type=count, default=100, help="words a sequence")
    verb.add_argument(
        "--no-spans", dest="spans", action="store_false", help="no third stage: `train choice` goes on from such a model"
    )


def _train_speechbert(o: argparse.Namespace) -> None:
    from speechssl.qa.speechbert.train import SpeechBertOptions, stage_options, train_speechbert

    qa = qa_options(o)
    words = stage_options(qa.training, o.word_steps, o.word_learning_rate, bf16=False)  # a CPU has no fast LSTM in bfloat16
    masked = stage_options(qa.training, o.mask_steps, o.mask_learning_rate) if o.mask_steps else None
    sizes = o.word_batch, o.word_width, o.pull, o.mask_batch, o.mask_window, o.spans
    features, recogniser, card = _hearing(o.encoder, o.layer, o.recogniser)
    train_speechbert(o.corpus, features, o.out, SpeechBertOptions(qa, words, masked, o.passages, *sizes), recogniser, card, o.start)
    print(f"{o.out}: SpeechBERT")


def _hearing(encoder: str, layer: int, recogniser: Path | None) -> Any:
    """Features, the recogniser and what its card says of its weights; both of these None without one."""
    from speechssl.artefacts import read_json
    from speechssl.asr.ctc import CtcRecogniser
    from speechssl.encoders.loading import load_encoder
    from speechssl.errors import InputError
    from speechssl.systems import SharedEncoder
    from speechssl.units.features import encoder_features, load_features

    if encoder == "mfcc":
        if recogniser is not None:
            raise InputError(f"the recogniser {recogniser} reads an encoder's layers, not mfcc; leave out --recogniser")
        return load_features("mfcc", 0), None, None
    shared = SharedEncoder(load_encoder(encoder))  # features and recogniser see the same layers of one recording
    features = encoder_features(shared, layer, 1)  # type: ignore[arg-type]
    if recogniser is None:
        return features, None, None
    return features, CtcRecogniser.load(recogniser, shared), read_json(recogniser / "card.json")["weights"]
