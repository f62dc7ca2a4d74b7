"""These are the options of `speechssl train speechbert` and `train transfer-speechbert`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from speechssl.dual.options import LEARNING_RATES, QaOptions
from speechssl.options import (
    BERT,
    DEVICE,
    ENCODERS,
    Amount,
    Count,
    TrainingOptions,
    Weight,
    Whole,
    argument,
    group,
    list_changes,
    option,
    refuse_given,
)


@dataclass(frozen=True)
class SpeechBertOptions:
    """These options say how the stages before that of spans are trained: audio words (an
    autoencoder), and masked words."""

    passages: Count | None = option(
        None, "number of training passages, with their questions; default: all"
    )
    word_steps: Count = option(1500, "number of updates of the autoencoder")
    word_learning_rate: Amount = option(2e-3, "peak learning rate of the autoencoder")
    word_batch: Count = option(128, "audio words per step, over all processes")
    word_width: Count = option(256, "LSTM units per direction")
    pull: Weight = option(1.0, "weight of the L1 distance to the text embedding")
    mask_steps: Whole = option(200, "number of updates on masked words; 0: skip this stage")
    mask_learning_rate: Amount = option(1e-4, "peak learning rate on masked words")
    mask_batch: Count = option(16, "sequences per step, half text, half speech")
    mask_window: Count = option(100, "words per sequence")
    spans: bool = option(
        True, "train the third stage; without it `train choice` starts from the model"
    )


@dataclass(frozen=True, kw_only=True)
class TrainSpeechBert:
    """train SpeechBERT, a text encoder that reads audio words

    There are three stages. An autoencoder makes one vector of every audio word, near the embedding
    of its text (--word-...). The text encoder is trained to predict masked words of text and speech
    (--mask-...), and then to find answer spans (the other training options; --trained is of this
    stage alone). A killed run resumes with the same command. Words are segmented by the times in
    the manifest and, with --ctc, a second time as they will be in evaluation.

      speechssl train speechbert corpus people-en/encoder exp/speechbert --layer 5 \\
        --ctc people-en/ctc
      speechssl train speechbert corpus mfcc exp/speechbert-mfcc --start people-en/text-qa
    """

    corpus: Path = argument("prepared corpus")
    encoder: str = argument(
        f"encoder for the features of audio words: {ENCODERS}; or mfcc, as published"
    )
    out: Path = argument("folder for the trained model")
    layer: Whole | None = option(None, "layer of the encoder; mfcc has none")
    ctc: Path | None = option(
        None, "folder of `speechssl train ctc` with this encoder, which segments words"
    )
    start: Path | None = option(
        None, "reader of `speechssl train text-qa` to start from; default: the text encoder"
    )
    learning_rates: tuple[Amount, ...] = option(
        (), f"{LEARNING_RATES}; audio and masked words are trained anew for each", least=1
    )
    device: str = option("auto", DEVICE)
    stages: SpeechBertOptions = group(SpeechBertOptions(), "audio words and masked words")
    qa: QaOptions = group(
        QaOptions(
            TrainingOptions(steps=600, learning_rate=3e-4, warmup_steps=50, **vars(BERT)),
            answer=30,
        ),
        "reader",
        without=("random_units", "subwords", "characters"),
    )

    def __post_init__(self) -> None:
        """Raise InputError for options that do not belong together."""
        given = list_changes(self)
        if self.encoder == "mfcc":
            refuse_given(("layer", "ctc"), given, "with mfcc")
        if not self.stages.spans:
            refuse_given(("learning_rates", "eval_every", "trained"), given, "with --no-spans")

    @property
    def words(self) -> TrainingOptions:
        """Return the options of the first stage, which are those of the last one with other steps
        and learning rate, and in float32, for a CPU has no fast LSTM in bfloat16."""
        return replace(
            self.qa.training,
            steps=self.stages.word_steps,
            learning_rate=self.stages.word_learning_rate,
            horizon=None,
            bf16=False,
        )

    @property
    def masked(self) -> TrainingOptions:
        """Return the options of the second stage, which are those of the last one with other steps
        and learning rate."""
        return replace(
            self.qa.training,
            steps=self.stages.mask_steps,
            learning_rate=self.stages.mask_learning_rate,
            horizon=None,
        )


@dataclass(frozen=True)
class TransferSpeechBertOptions:
    """These options say how a SpeechBERT is transferred to another encoder."""

    training: TrainingOptions = group(
        TrainingOptions(steps=500, learning_rate=1e-3, warmup_steps=50, **vars(BERT), bf16=False),
        "training",
    )
    batch: Count = option(128, "audio words per step, over all processes")
    passages: Count | None = option(None, "number of passages, with their questions; default: all")
    split: str = option("train", "split of the corpus to use")


@dataclass(frozen=True, kw_only=True)
class TransferSpeechBert:
    """transfer a SpeechBERT to another encoder

    For use after continual pre-training: on clean recordings whose words have times, the word
    encoder is trained to give NEW's features of a word the code that the word has with the old
    encoder, by default in float32; the text encoder is not changed. A killed run resumes with the
    same command.

      speechssl train transfer-speechbert corpus people-en/encoder people-en/speechbert \\
        exp/robust/encoder exp/robust/speechbert
    """

    corpus: Path = argument("prepared corpus whose words have times")
    encoder: str = argument(f"encoder that SpeechBERT was trained on: {ENCODERS}")
    speechbert: Path = argument("folder of `speechssl train speechbert`")
    new: str = argument(
        "encoder to transfer it to, such as the result of `speechssl pretrain continue`"
    )
    out: Path = argument("folder for the trained model")
    device: str = option("auto", DEVICE)
    options: TransferSpeechBertOptions = group(TransferSpeechBertOptions(), "")
