"""`speechssl train ctc` and `train text-qa`: their options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from speechssl.config import DEVICE, ENCODERS, PLAIN, Amount, Count, TrainingOptions, Whole, argument, group, option, use_device
from speechssl.dual.config import BATCH, QaOptions
from speechssl.errors import InputError


@dataclass(frozen=True)
class CtcOptions:
    """A head on one layer, or on the weighted sum of all, trained on random crops of whole words."""

    training: TrainingOptions = group(TrainingOptions(1500, 2e-3, 100, **vars(PLAIN)), "training")
    layer: int | None = 5  # None: all hidden states, as SUPERB has it; they take S times the disk
    passages: Whole = option(800, "use only the first N training passages, with their questions")
    batch: Count = option(16, BATCH)
    longest: Amount = option(8.0, "longest training crop, in seconds")
    lstm_width: Count = option(256, "LSTM units per direction")
    projection: int = 256


@dataclass(frozen=True, kw_only=True)
class TrainCtc:
    """train a CTC head on a frozen encoder

    This is the recogniser of the cascade. It is trained on recordings and words of the passages and questions of the training
    split. A killed run resumes with the same command.

      speechssl train ctc corpus minisqa-en-robust/encoder exp/ctc --layer all
    """

    corpus: Path = argument("prepared corpus")
    encoder: str = argument(ENCODERS)
    out: Path = argument("folder for the trained head")
    layer: str = option("5", "layer of the encoder that the head reads, or all: a weighted sum of the layers, as in SUPERB")
    split: str = option("train", "split of the corpus to train on")
    device: str = option("auto", DEVICE)
    head: CtcOptions = group(CtcOptions(), "")

    def run(self) -> None:
        from speechssl.cascade.train import train_ctc
        from speechssl.encoders.load import load_encoder

        if self.layer != "all" and not self.layer.isdecimal():
            raise InputError(f"--layer {self.layer} is not a layer; give a whole number from 0, or all")
        use_device(self.device)
        options = replace(self.head, layer=None if self.layer == "all" else int(self.layer))
        train_ctc(self.corpus, load_encoder(self.encoder), self.out, options, self.split)
        print(f"{self.out}: CTC head")


@dataclass(frozen=True, kw_only=True)
class TrainTextQa:
    """train the cascade's text QA on the words of the corpus

    A text encoder is trained to find the answer in the written passage. --subwords adds the pronunciation of every word, so that
    words that a recogniser confuses have similar embeddings. A killed run resumes with the same command.

      speechssl train text-qa corpus exp/text-qa
      speechssl train text-qa corpus exp/text-qa --text-encoder bert-base-chinese --subwords pinyin
    """

    corpus: Path = argument("prepared corpus")
    out: Path = argument("folder for the trained reader")
    device: str = option("auto", DEVICE)
    qa: QaOptions = group(QaOptions(TrainingOptions(600, 3e-4, 50, **vars(PLAIN)), answer=30), "reader", without=("noise",))

    def run(self) -> None:
        from speechssl.cascade.train import train_text

        use_device(self.device)
        train_text(self.corpus, self.out, self.qa)
        print(f"{self.out}: text QA")
