"""These are the options of `speechssl answer`, `bundle` and `doctor`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from speechssl.cascade.options import ReaderOptions
from speechssl.options import DEVICE, ENCODERS, Parts, argument, group, option

# MISSING, typed as Any: `Parts` has no default for the encoder here, and argparse then requires it
REQUIRED: Any = MISSING


@dataclass(frozen=True, kw_only=True)
class AnswerQuestions:
    """answer questions from a spoken passage

    A question is a recording, or a text, which cascades alone can read. Prints start and end of
    every answer in the passage and, for a cascade, its words, and its transcript of a spoken
    question; the last lines say what each system is made of. Systems are dual, speechbert and
    cascade-RECOGNISER, with the recogniser ctc, ctc-greedy, or a Hugging Face model. In a
    long passage dual@5 or cascade-ctc@5 reads only the 5 windows that share most with the
    question.

    Without --systems: dual and cascade-ctc, whichever of them --models has. The models that ship
    know little but sentences of a text generator, read by synthesisers: for other speech give
    --recogniser, whose cascade then comes first. Its reader is the one that ships, which knows real
    questions, or --reader.

    The confidence, 0 to 1, is the share of the chosen span in a softmax over the best span of every
    window of the passage and "no answer". It is no probability of being right: in a short passage,
    which is one window, wrong answers are often near 1 as well. It ranks answers of one system, and
    does not compare systems.

      speechssl answer --passage lecture.mp3 --question question.wav --clip answer.wav
      speechssl answer --passage lecture.mp3 \\
        --question "When was the university founded?" "Who founded it?" --json
      speechssl answer --passage lecture.mp3 --question "Who founded it?" \\
        --recogniser openai/whisper-base
      speechssl answer --passage lecture.mp3 --question "Who founded it?" \\
        --recogniser openai/whisper-base --reader deepset/minilm-uncased-squad2 --null-threshold 0
    """

    passage: Path = option(
        MISSING,
        "recording of the passage: WAV, FLAC, MP3, OGG, AIFF, AU, M4A or WebM at any rate, of any "
        "length",
    )
    question: tuple[str, ...] = option(MISSING, "recordings of questions, or their texts", least=1)
    systems: tuple[str, ...] | None = option(None, "systems to run, from those above", least=1)
    recogniser: str | None = option(
        None,
        "recogniser of Hugging Face whose cascade comes first (openai/whisper-base), in the place "
        "of the CTC head of the models",
    )
    models: str = option("people-en", "shipped set or model folder")
    reading: ReaderOptions = group(ReaderOptions(), "reader of words", without=("shift",))
    language: str = option(
        "en",
        "language of the speech, en or zh: for Whisper, and for the rules by which texts are read",
    )
    clip: Path | None = option(
        None,
        "write the answer of the first system that has one to this audio file; with "
        "several questions: FILE-1, ...",
    )
    device: str = option("auto", DEVICE)


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """make a folder of models, which --models takes, from an encoder, a codebook and what was
    trained on them

    Copies the parts to OUT/encoder, OUT/units.safetensors, OUT/dual, ... and loads every system
    that they make: parts that were not made for each other are refused, and nothing is left.

      speechssl bundle exp/mine --encoder facebook/hubert-base-ls960 \\
        --codebook hubert-l6.safetensors --dual exp/dual
      speechssl bundle exp/mine --encoder exp/hubert/encoder --ctc exp/ctc \\
        --text-qa deepset/minilm-uncased-squad2
      speechssl answer --models exp/mine --passage lecture.mp3 --question question.wav
    """

    out: Path = argument("folder to make")
    parts: Parts = group(Parts(REQUIRED), "")


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """print what is installed, which engine runs an encoder here, which models are found, and how
    to install what is missing

    Nothing is downloaded or changed. Models are found where all verbs look for them: those that
    ship, $SPEECHSSL_MODELS, and the hub's cache.

      speechssl doctor
      speechssl doctor facebook/hubert-base-ls960
    """

    encoder: str | None = argument(
        f"encoder whose engine is named ({ENCODERS}); default: people-en/encoder", optional=True
    )
