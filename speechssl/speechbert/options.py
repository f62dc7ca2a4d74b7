"""`speechssl train speechbert` and `train transfer-speechbert`: their options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speechssl.dual.options import LEARNING_RATES, QaOptions
from speechssl.errors import InputError
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
    option,
    shipped,
    use_device,
)


@dataclass(frozen=True)
class SpeechBertOptions:
    """The three stages: words (the autoencoder), masked words (None: no such stage), and spans."""

    qa: QaOptions
    words: TrainingOptions
    masked: TrainingOptions | None
    passages: Count | None = option(
        None, "number of training passages, with their questions; default: all"
    )
    word_batch: Count = option(128, "audio words per step, over all processes")
    word_width: Count = option(256, "LSTM units per direction")
    pull: Weight = option(1.0, "weight of the L1 distance to the text embedding")
    masked_batch: Count = option(
        16, "sequences per step, half text, half speech", name="mask_batch"
    )
    masked_window: Count = option(100, "words per sequence", name="mask_window")
    spans: bool = option(True, "skip the third stage, for a model that `train choice` starts from")


READER = QaOptions(TrainingOptions(600, 3e-4, 50, **vars(BERT)), answer=30)
# float32: a CPU has no fast LSTM in bfloat16
WORDS = TrainingOptions(1500, 2e-3, **vars(BERT), bf16=False)
MASKED = TrainingOptions(200, 1e-4, **vars(BERT))


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
    word_steps: Count = option(WORDS.steps, "number of updates of the autoencoder")
    word_learning_rate: Amount = option(
        WORDS.learning_rate, "peak learning rate of the autoencoder"
    )
    mask_steps: Whole = option(
        MASKED.steps, "number of updates on masked words; 0: skip this stage"
    )
    mask_learning_rate: Amount = option(MASKED.learning_rate, "peak learning rate on masked words")
    learning_rates: tuple[Amount, ...] = option(
        (), f"{LEARNING_RATES}; audio and masked words are trained anew for each", least=1
    )
    device: str = option("auto", DEVICE)
    options: SpeechBertOptions = group(
        SpeechBertOptions(READER, WORDS, MASKED), "audio words and masked words"
    )
    qa: QaOptions = group(READER, "reader", without=("noise", "subwords", "characters"))

    def run(self) -> None:
        from speechssl.dual.train import best_of, swept
        from speechssl.speechbert.train import train_speechbert

        use_device(self.device)
        # the first two stages are trained as the last one except for steps and learning rate
        both = replace(self.qa.training, horizon=None)
        words = replace(
            both, steps=self.word_steps, learning_rate=self.word_learning_rate, bf16=WORDS.bf16
        )
        masked = (
            replace(both, steps=self.mask_steps, learning_rate=self.mask_learning_rate)
            if self.mask_steps
            else None
        )
        options = replace(self.options, qa=self.qa, words=words, masked=masked)
        features, recogniser = self._features()

        def train(out: Path, qa: QaOptions) -> None:
            train_speechbert(
                self.corpus, features, out, replace(options, qa=qa), recogniser, shipped(self.start)
            )

        swept(self.out, self.learning_rates, self.qa, train)
        print(f"{self.out}: SpeechBERT{best_of(self.out)}")

    def _features(self) -> Any:
        """Features, and the recogniser or None."""
        from speechssl.cascade.model import CtcRecogniser
        from speechssl.encoders.load import SharedEncoder, load_encoder
        from speechssl.units.features import encoder_features, load_features

        folder = shipped(self.ctc)
        if self.encoder == "mfcc":
            if self.layer is not None:
                raise InputError(f"mfcc has no layer {self.layer}; leave out --layer")
            if folder is not None:
                raise InputError(
                    f"the recogniser {folder} reads an encoder's layers, not mfcc; leave out --ctc"
                )
            return load_features("mfcc", 0), None
        # features and recogniser read the same layers of one recording
        shared = SharedEncoder(load_encoder(self.encoder))
        features = encoder_features(shared, self.layer, 1)  # type: ignore[arg-type]
        return features, None if folder is None else CtcRecogniser.load(folder, shared)


@dataclass(frozen=True)
class TransferSpeechBertOptions:
    """How a SpeechBERT is transferred to another encoder."""

    training: TrainingOptions = group(TrainingOptions(500, 1e-3, 50, **vars(BERT)), "training")
    batch: Count = option(128, "audio words per step, over all processes")
    passages: Count | None = option(None, "number of passages, with their questions; default: all")
    split: str = option("train", "split of the corpus to use")


@dataclass(frozen=True, kw_only=True)
class TransferSpeechBert:
    """transfer a SpeechBERT to another encoder

    For use after continual pre-training: on clean recordings whose words have times, the word
    encoder is trained to give NEW's features of a word the code that the word has with the old
    encoder. It is trained in float32; the text encoder is not changed. A killed run resumes with
    the same command.

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

    def run(self) -> None:
        from speechssl.encoders.load import load_encoder
        from speechssl.speechbert.train import transfer_speechbert

        use_device(self.device)
        # as WORDS
        options = replace(self.options, training=replace(self.options.training, bf16=False))
        speechbert = shipped(self.speechbert) or self.speechbert
        card = transfer_speechbert(
            self.corpus,
            load_encoder(self.encoder),
            speechbert,
            load_encoder(self.new),
            self.out,
            options,
        )
        facts = card["transferred"]
        distance = (
            f"mean distance of the new codes from the old: {facts['distance']:.0%} of "
            "that between two words"
        )
        print(
            f"{self.out}: SpeechBERT, transferred by {facts['audio_words']} audio words; {distance}"
        )
