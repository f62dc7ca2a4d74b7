"""`speechssl train choice` and `speechssl evaluate choice`: questions with options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from speechssl.adam import BERT
from speechssl.cli.qa_flags import TWICE, WAYS
from speechssl.cli.shared import ENCODERS, add_verb, snr_over_flag, trained, training_flags, training_options
from speechssl.errors import InputError
from speechssl.options import count, share, whole

TRAIN = """train multiple choice on words, on units or on audio words

A text encoder reads every window of a passage with the question and each option; the windows are combined, the options compete.
Without --units it reads what is written; with --units, --codebook and --encoder the units of passages, questions and options, that
`units extract` made of the train split; with --speechbert, --encoder and --recogniser the audio words of SpeechBERT, whose text
encoder goes on. For the other two --start goes on from a reader of the same symbols: of train dual, train text-qa, or this.
A killed run goes on with the same command.

  speechssl train choice corpus exp/models/choice-text
  speechssl train choice corpus exp/models/choice-units --units units --codebook units.safetensors --encoder minisqa-en/encoder \\
    --start exp/models/dual
  speechssl train choice corpus exp/models/choice-speechbert --speechbert exp/models/speechbert --encoder minisqa-en/encoder \\
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
    verb.add_argument("--codebook", type=Path, help="file of `speechssl units fit`")
    verb.add_argument("--encoder", help=f"that of the units or audio words: {ENCODERS}")
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
    from speechssl.qa.choice_train import ChoiceOptions, train_choice_heard, train_choice_text, train_choice_units

    more = {"window": o.window, "stride": o.stride, "asked": o.asked, "gradient_checkpointing": o.gradient_checkpointing}
    options = ChoiceOptions(
        training_options(o), o.text_encoder, o.combine, o.batch, o.windows, dropout=o.dropout, noise=o.noise, **more
    )
    _refuse_what_does_not_belong_together(o)
    if o.speechbert is not None:
        train_choice_heard(o.corpus, o.out, _speechbert(o), o.speechbert, options)
    elif o.units is not None:
        train_choice_units(o.corpus, o.units, o.out, _extractor(o), o.assignment, options, o.start)
    else:
        train_choice_text(o.corpus, o.out, options, o.source, o.start)
    what = "audio words" if o.speechbert else "units" if o.units else "words"
    print(f"{o.out}: multiple choice on {what}, windows by {o.combine}")


def _refuse_what_does_not_belong_together(o: argparse.Namespace) -> None:
    if o.speechbert is not None:
        chosen = (o.text_encoder, o.source, o.assignment) != ("minilm", "text", "most-frequent")
        if o.units or o.codebook or o.noise or o.start or chosen:
            raise InputError(
                "--units, --codebook, --assignment, --noise, --source, --start and --text-encoder are not for audio words, whose "
                "text encoder is SpeechBERT's; leave them out, or --speechbert"
            )
        if not (o.encoder and o.recogniser):
            raise InputError("--speechbert needs the --encoder that it was trained on and a --recogniser that cuts words")
    elif o.recogniser is not None:
        raise InputError("--recogniser cuts the words of SpeechBERT; give --speechbert as well, or leave it out")
    elif o.units is None and (o.codebook or o.encoder or o.noise):
        raise InputError("--codebook, --encoder and --noise are for units; give --units as well (or --speechbert), or none of them")


def _speechbert(o: argparse.Namespace) -> Any:
    from speechssl.artefacts import read_json
    from speechssl.asr.ctc import CtcRecogniser
    from speechssl.encoders.loading import load_encoder
    from speechssl.qa.speechbert.system import load_speechbert
    from speechssl.systems import SharedEncoder

    shared = SharedEncoder(load_encoder(o.encoder))  # SpeechBERT and recogniser see the same layers of one recording
    recogniser = CtcRecogniser.load(o.recogniser, shared)  # type: ignore[arg-type]
    return load_speechbert(o.speechbert, shared, recogniser, read_json(o.recogniser / "card.json")["weights"])


def _extractor(o: argparse.Namespace) -> Any:
    from speechssl.encoders.loading import load_encoder
    from speechssl.units.extract import extractor_of
    from speechssl.units.kmeans import load_codebook

    if not (o.codebook and o.encoder):
        raise InputError("--units needs the --codebook and the --encoder that made them")
    return extractor_of(load_encoder(o.encoder), load_codebook(o.codebook))


def add_evaluate_choice(what: Any) -> None:
    verb = add_verb(what, "choice", _evaluate, EVALUATE)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("out", type=Path, help="folder; gets predictions/, scores/ and results.jsonl")
    verb.add_argument("--models", default="minisqa-en", help="model folder with choice-units/, choice-speechbert/, choice-text/")
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
    from speechssl.evaluation.choice import run_choice
    from speechssl.report.published import published_choice

    known = published_choice(o.corpus, o.split)
    run = (o.passages, o.voices, o.seed, o.workers, o.bf16, o.snr_over)
    print(run_choice(o.corpus, o.out, o.models, o.systems, o.conditions, o.split, *run))
    print(f"\n{known}" if known else "", end="\n" if known else "")
