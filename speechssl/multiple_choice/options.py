"""These are the options of `speechssl train choice`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from speechssl.dual.options import ASSIGNMENT, LEARNING_RATES, WindowOptions
from speechssl.errors import InputError
from speechssl.options import (
    BERT,
    DEVICE,
    ENCODERS,
    Amount,
    Count,
    TrainingOptions,
    Whole,
    argument,
    group,
    list_changes,
    option,
    refuse_given,
    refuse_ineffective,
)


@dataclass(frozen=True)
class ChoiceOptions(WindowOptions):
    """These options say how multiple choice is trained."""

    training: TrainingOptions = group(
        TrainingOptions(steps=600, learning_rate=1e-4, warmup_steps=50, **vars(BERT)), "training"
    )
    batch: Count = option(4, "questions per step, over all processes")
    windows: Whole = option(2, "windows of a passage per training step; 0: all")
    max_question: Count = option(
        160, "longest question with an option, in tokens; longer ones are truncated"
    )


@dataclass(frozen=True, kw_only=True)
class TrainChoice:
    """train multiple choice on words, on units or on audio words

    A text encoder reads every window of a passage with the question and each option; the windows
    are combined, and a softmax over the options follows. Without --units it reads the text. With
    --units it reads the units of passages, questions and options that `units extract` made from the
    train split. With --speechbert, --encoder and --ctc it reads the audio words of SpeechBERT,
    whose text encoder is trained further. For words and units, --start names a reader of the same
    units or words to start from, trained by train dual, train text-qa, or this verb. A killed run
    resumes with the same command.

      speechssl train choice corpus exp/models/choice-text
      speechssl train choice corpus exp/models/choice-units --units units --start exp/models/dual
      speechssl train choice corpus exp/models/choice-speechbert \\
        --speechbert exp/models/speechbert \\
        --encoder people-en/encoder --ctc exp/models/ctc
    """

    corpus: Path = argument("prepared corpus")
    out: Path = argument("folder for the trained model")
    read: Literal["text", "given"] = option(
        "text", "words to read: the reference text (text), or the corpus's transcripts (given)"
    )
    units: Path | None = option(None, "folder of `speechssl units extract`")
    encoder: str | None = option(None, f"encoder of the audio words: {ENCODERS}")
    speechbert: Path | None = option(
        None, "folder of `speechssl train speechbert`, whose audio words are read"
    )
    ctc: Path | None = option(
        None, "folder of `speechssl train ctc` with this encoder, which segments audio words"
    )
    assignment: str = option("most-frequent", ASSIGNMENT)
    start: Path | None = option(
        None, "trained reader of the same units or words to start from; default: the text encoder"
    )
    learning_rates: tuple[Amount, ...] = option((), LEARNING_RATES, least=1)
    device: str = option("auto", DEVICE)
    qa: ChoiceOptions = group(ChoiceOptions(), "reader")

    def __post_init__(self) -> None:
        """Raise InputError for options that do not belong together."""
        given = list_changes(self)
        if self.speechbert is None:
            refuse_ineffective(given, {"speechbert": ("encoder", "ctc")})
        else:
            other_kinds = ("units", "random_units", "start", "text_encoder", "read", "assignment")
            refuse_given(other_kinds, given, "on audio words")
            if not (self.encoder and self.ctc):
                raise InputError(
                    "--speechbert needs the --encoder it was trained on and a --ctc "
                    "that segments words"
                )
        if self.units is None:
            refuse_ineffective(given, {"units": ("random_units", "assignment")})
        else:
            refuse_given(("read",), given, "on units")
