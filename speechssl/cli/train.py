"""`speechssl train`: what reads units, words or an encoder's layers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from speechssl.adam import PLAIN
from speechssl.cli.choice import add_train_choice
from speechssl.cli.qa_flags import WAYS, qa_flags, qa_options
from speechssl.cli.shared import ENCODERS, add_group, add_verb, trained, training_flags, training_options
from speechssl.cli.train_speechbert import add_carry_speechbert, add_speechbert
from speechssl.options import amount, count, share, whole

DUAL = """train DUAL's reader on extracted units

A text encoder learns to find the answer in the units of a passage: no words anywhere. CODEBOOK and --encoder are those that made
UNITS (`units extract` with --split train). A killed run goes on with the same command.

  speechssl train dual corpus units.safetensors units exp/dual --encoder minisqa-en/encoder
  speechssl train dual corpus units.safetensors units exp/dual-2 --encoder minisqa-en/encoder --start exp/dual --noise 0.1
"""
TEXT = """train the cascade's text QA on the words of the corpus

A text encoder learns to find the answer in the written passage. --subwords adds how a word sounds to what it is, so that what a
recogniser mistook is still alike. A killed run goes on with the same command.

  speechssl train text-qa corpus exp/text-qa
  speechssl train text-qa corpus exp/text-qa --text-encoder bert-base-chinese --subwords pinyin
"""
CTC = """train a CTC head on a frozen encoder

It learns from the passages and questions of the corpus's training split and their words. A killed run goes on.

  speechssl train ctc corpus minisqa-en/encoder exp/ctc --layer all
"""


def add_train(verbs: Any) -> None:
    what = add_group(verbs, "train", "train DUAL, SpeechBERT, the CTC head, the cascade's text QA, or multiple choice")
    for add in (_add_dual, _add_text, _add_ctc, add_speechbert, add_carry_speechbert, add_train_choice):
        add(what)


def _add_dual(what: Any) -> None:
    verb = add_verb(what, "dual", _train_dual, DUAL)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("codebook", type=Path, help="file of `speechssl units fit`")
    verb.add_argument("units", type=Path, help="folder of `speechssl units extract`")
    verb.add_argument("out", type=Path, help="folder for the trained model")
    verb.add_argument("--encoder", required=True, help=f"that of the units: {ENCODERS}")
    verb.add_argument("--split", default="train", help="of the corpus and its units")
    verb.add_argument("--start", type=trained, help="reader of the same units to go on from; default: the text encoder")
    verb.add_argument("--noise", type=share, default=0.0, help="share of units replaced by random ones in training")
    verb.add_argument("--assignment", default="most-frequent", help=WAYS)
    qa_flags(verb, PLAIN, 275)


def _train_dual(o: argparse.Namespace) -> None:
    from speechssl.encoders.loading import load_encoder
    from speechssl.qa.train import train_dual
    from speechssl.units.extract import extractor_of
    from speechssl.units.kmeans import load_codebook

    extractor = extractor_of(load_encoder(o.encoder), load_codebook(o.codebook))
    train_dual(o.corpus, o.units, o.out, extractor, o.assignment, qa_options(o), o.start)
    print(f"{o.out}: DUAL reader, {o.assignment}")


def _add_text(what: Any) -> None:
    verb = add_verb(what, "text-qa", _train_text, TEXT)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("out", type=Path, help="folder for the trained model")
    verb.add_argument("--split", default="train", help="of the corpus")
    verb.add_argument(
        "--subwords", default="none", help="none, pinyin (needs speechssl[chinese]) or phones (English, needs speechssl[synth])"
    )
    verb.add_argument(
        "--characters", action="store_true", help="the vocabulary is the corpus's characters, on the text encoder's layers"
    )
    qa_flags(verb, PLAIN, 30)


def _train_text(o: argparse.Namespace) -> None:
    from speechssl.qa.train import train_text

    train_text(o.corpus, o.out, qa_options(o))
    print(f"{o.out}: text QA")


def _add_ctc(what: Any) -> None:
    verb = add_verb(what, "ctc", _train_ctc, CTC)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("encoder", help=ENCODERS)
    verb.add_argument("out", type=Path, help="folder for the trained model")
    verb.add_argument(
        "--layer", type=_layer, default="5", help="of the encoder that the head reads, or all: a weighted sum, as SUPERB"
    )
    verb.add_argument("--split", default="train", help="of the corpus")
    verb.add_argument("--longest", type=amount, default=8.0, help="seconds of a stretch of speech in training")
    verb.add_argument("--passages", type=whole, default=800, help="the first N training passages, with their questions")
    verb.add_argument("--batch", type=count, default=16, help="sequences a step, of all processes together")
    verb.add_argument("--lstm-width", type=count, default=256, help="units in each direction")
    training_flags(verb, 1500, 2e-3, 100, PLAIN)


def _layer(text: str) -> str:
    return text if text == "all" else str(whole(text))


def _train_ctc(o: argparse.Namespace) -> None:
    from speechssl.asr.train import CtcOptions, train_ctc
    from speechssl.encoders.loading import load_encoder

    layer = None if o.layer == "all" else int(o.layer)
    options = CtcOptions(training_options(o), layer, o.passages, o.batch, o.longest, o.lstm_width)
    train_ctc(o.corpus, load_encoder(o.encoder), o.out, options, o.split)
    print(f"{o.out}: CTC head")
