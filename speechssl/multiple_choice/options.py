"""`speechssl train choice`: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from speechssl.dual.options import (
    ASSIGNMENT,
    CHECKPOINTING,
    DROPOUT,
    EVALUATION,
    LEARNING_RATES,
    RANDOM_UNITS,
    TEXT_ENCODER,
)
from speechssl.errors import InputError
from speechssl.options import (
    BERT,
    DEVICE,
    ENCODERS,
    TRAINED,
    Amount,
    Count,
    EvalOptions,
    Share,
    Trained,
    TrainingOptions,
    Whole,
    argument,
    group,
    option,
    shipped,
    use_device,
)


@dataclass(frozen=True)
class ChoiceOptions:
    """How multiple choice is trained."""

    training: TrainingOptions = group(TrainingOptions(600, 1e-4, 50, **vars(BERT)), "training")
    text_encoder: str = option("minilm", TEXT_ENCODER)
    combine: str = option(
        "attention", "how the windows of a passage are combined: attention or log-sum-exp"
    )
    batch: Count = option(4, "questions per step, over all processes")
    windows: Whole = option(2, "windows of a passage per training step; 0: all")
    window: Count = option(320, "passage tokens per window")
    stride: Count = option(160, "passage tokens from the start of a window to that of the next")
    asked: Count = option(
        160,
        "longest question with an option, in tokens; longer ones are truncated",
        name="max_question",
    )
    dropout: bool = option(False, DROPOUT)
    noise: Share = option(0.0, RANDOM_UNITS, name="random_units")
    gradient_checkpointing: bool = option(False, CHECKPOINTING)
    trained: Trained = option("all", TRAINED)
    evaluation: EvalOptions = group(EvalOptions(), EVALUATION)


@dataclass(frozen=True, kw_only=True)
class TrainChoice:
    """train multiple choice on words, on units or on audio words

    A text encoder reads every window of a passage with the question and each option; the windows
    are combined, and a softmax over the options follows. Without --units it reads the text. With
    --units it reads the units of passages, questions and options that `units extract` made from the
    train split. With --speechbert, --encoder and --ctc it reads the audio words of SpeechBERT,
    whose text encoder is trained further. For words and units, --start names a reader of the same
    units or words to start
    from, trained by train dual, train text-qa, or this verb. A killed run resumes with the same
    command.

      speechssl train choice corpus exp/models/choice-text
      speechssl train choice corpus exp/models/choice-units --units units --start exp/models/dual
      speechssl train choice corpus exp/models/choice-speechbert \\
        --speechbert exp/models/speechbert \\
        --encoder people-en/encoder --ctc exp/models/ctc
    """

    corpus: Path = argument("prepared corpus")
    out: Path = argument("folder for the trained model")
    source: Literal["text", "given"] = option(
        "text",
        "words to read: the reference text (text), or the corpus's transcripts (given)",
        name="read",
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
    options: ChoiceOptions = group(ChoiceOptions(), "reader")

    def run(self) -> None:
        from speechssl.dual.train import best_of, swept
        from speechssl.multiple_choice.train import (
            train_choice_speechbert,
            train_choice_text,
            train_choice_units,
        )

        self._check()
        use_device(self.device)
        system: Any = None if self.speechbert is None else self._speechbert()

        def train(out: Path, options: ChoiceOptions) -> None:
            if self.speechbert is not None:
                train_choice_speechbert(self.corpus, out, system, self.speechbert, options)
            elif self.units is not None:
                train_choice_units(
                    self.corpus, self.units, out, self.assignment, options, shipped(self.start)
                )
            else:
                train_choice_text(self.corpus, out, options, self.source, shipped(self.start))

        swept(self.out, self.learning_rates, self.options, train)
        what = "audio words" if self.speechbert else "units" if self.units else "words"
        print(
            f"{self.out}: multiple choice on {what}, windows by "
            f"{self.options.combine}{best_of(self.out)}"
        )

    def _check(self) -> None:
        """Raises InputError for options that do not belong together."""
        if self.speechbert is not None:
            other = (self.options.text_encoder, self.source, self.assignment) != (
                "minilm",
                "text",
                "most-frequent",
            )
            if self.units or self.options.noise or self.start or other:
                raise InputError(
                    "--units, --assignment, --random-units, --read, --start and --text-encoder "
                    "do not apply to audio words; the "
                    "text encoder is SpeechBERT's; leave them out, or leave out --speechbert"
                )
            if not (self.encoder and self.ctc):
                raise InputError(
                    "--speechbert needs the --encoder it was trained on and a --ctc "
                    "that segments words"
                )
        elif self.ctc is not None:
            raise InputError(
                "--ctc segments the words of SpeechBERT; give --speechbert as well, or leave it out"
            )
        elif self.encoder is not None:
            raise InputError(
                "--encoder is for audio words; give --speechbert as well, or leave it out"
            )
        elif self.units is None and self.options.noise:
            raise InputError("--random-units is for units; give --units as well, or leave it out")

    def _speechbert(self) -> Any:
        from speechssl.cascade.model import CtcRecogniser
        from speechssl.encoders.load import SharedEncoder, load_encoder
        from speechssl.speechbert.system import load_speechbert

        folder, ctc = shipped(self.speechbert), shipped(self.ctc)
        assert folder is not None and ctc is not None and self.encoder is not None
        # SpeechBERT and recogniser read the same layers of one recording
        shared = SharedEncoder(load_encoder(self.encoder))
        return load_speechbert(folder, shared, CtcRecogniser.load(ctc, shared))
