"""These are the options of `speechssl train ctc`, `train ngram`, `train text-qa` and `align`, and
of the reader of words.

The docstring of a verb's options is its help in the shell, and so are the texts of the options.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speechssl.dual.options import BATCH, EVALUATION, LEARNING_RATES, PASSAGES, QaOptions
from speechssl.errors import InputError
from speechssl.options import (
    DEVICE,
    ENCODERS,
    PLAIN,
    Amount,
    Count,
    EvalOptions,
    Share,
    TrainingOptions,
    argument,
    group,
    option,
)


@dataclass(frozen=True)
class ReaderOptions:
    """These options choose the reader of words of the cascade and `text`."""

    reader: str | None = option(
        None,
        "reader of cascade-* and text: folder or hub id of a question-answering model of Hugging "
        "Face (deepset/minilm-uncased-squad2), or of `train text-qa`; its name is added to that of "
        "the system; default: text-qa/ in --models",
    )
    null_threshold: float | None = option(
        None,
        'answer nothing where "no answer" (SQuAD 2.0) is worth more than the best span by more '
        "than this, in logits; it counts as wrong in `evaluate qa`, whose questions have answers; "
        "default: always answer",
    )
    shift: Path | None = option(
        None,
        "vector (.safetensors) that is added to a layer of the reader, for another language than "
        "that of its training; its name is added to that of the system; default: that which the "
        "reader was trained with, if any",
    )

    named: bool = True  # whether the names of systems have that of the reader added
    # the next three hold for a reader of Hugging Face, in tokens, as in transformers' run_qa.py
    max_seq_length: int = 384  # longest window, with the question
    doc_stride: int = 128  # overlap of two windows
    max_answer_length: int = 30


@dataclass(frozen=True)
class CtcOptions:
    """These options say how a head is trained: on one layer or the weighted sum of all, on random
    crops of whole words."""

    training: TrainingOptions = group(
        TrainingOptions(steps=1500, learning_rate=2e-3, warmup_steps=100, **vars(PLAIN)), "training"
    )
    # `all` stores the features of every layer: the disk of one for each, and for layer 0
    layer: str = option(
        "all",
        "layer of the encoder that the head reads, or all: a weighted sum "
        "of the layers, as in SUPERB",
    )
    passages: Count | None = option(
        800, "only the first N passages of the split and their questions, the default is"
    )
    batch: Count = option(16, BATCH)
    crop_seconds: Amount = option(8.0, "longest crop, in seconds")
    lstm_width: Count = option(256, "LSTM units per direction")
    projection: int = 256
    evaluation: EvalOptions = group(EvalOptions(), EVALUATION)

    def __post_init__(self) -> None:
        if self.layer != "all" and not self.layer.isdecimal():
            raise InputError(
                f"--layer {self.layer} is not a layer; give a whole number from 0, or all"
            )


@dataclass(frozen=True, kw_only=True)
class TrainCtc:
    """train a CTC head on a frozen encoder

    This is the recogniser of the cascade. It is trained on recordings and words of the passages and
    questions of the training split. A killed run resumes with the same command.

      speechssl train ctc corpus people-en/encoder exp/ctc
    """

    corpus: Path = argument("prepared corpus")
    encoder: str = argument(ENCODERS)
    out: Path = argument("folder for the trained head")
    split: str = option("train", "split of the corpus to train on")
    device: str = option("auto", DEVICE)
    head: CtcOptions = group(CtcOptions(), "")


@dataclass(frozen=True, kw_only=True)
class TrainNgram:
    """train the word n-gram that a CTC head decodes with, and choose its weight

    The n-gram is trained on the texts of the training split. The weight of the language model and
    the score of a word are those with the lowest word error rate on recordings of dev. The n-gram
    is kept in CTC/ngram; cascade-ctc decodes with it from then on, and cascade-ctc-greedy without
    it.

      speechssl train ngram corpus people-en/encoder exp/ctc
    """

    corpus: Path = argument("prepared corpus, whose training texts the n-gram knows")
    encoder: str = argument(ENCODERS)
    ctc: Path = argument("folder of `speechssl train ctc`")
    order: Count = option(4, "longest n-gram, in words (Mandarin: characters)")
    split: str = option("train", "split whose texts are used")
    passages: Count | None = option(None, PASSAGES)
    dev: Path | None = option(
        None, "corpus of the recordings that choose the weights; default: CORPUS"
    )
    dev_split: str = option("dev", "its split")
    dev_passages: Count = option(
        20, "number of its passages that are recognised, with their questions"
    )
    beam: Count = option(15, "prefixes kept after each frame")
    lm_weights: tuple[float, ...] = option(
        (0.5, 1.0, 1.5, 2.0, 3.0), "factors of log10 P that are tried, in nats", least=1
    )
    word_scores: tuple[float, ...] = option(
        (-1.0, 0.0, 1.0, 2.0), "scores of a word that are tried, in nats", least=1
    )
    device: str = option("auto", DEVICE)


@dataclass(frozen=True, kw_only=True)
class TrainTextQa:
    """train the cascade's text QA on the words of the corpus

    A text encoder is trained to find the answer in the written passage. --subwords adds the
    pronunciation of every word, so that words that a recogniser confuses have similar embeddings. A
    killed run resumes with the same command.

      speechssl train text-qa corpus exp/text-qa
      speechssl train text-qa corpus exp/text-qa --text-encoder bert-base-chinese --subwords pinyin
      speechssl train text-qa squad exp/text-qa-2 --start people-en/text-qa
    """

    corpus: Path = argument("prepared corpus")
    out: Path = argument("folder for the trained reader")
    start: Path | None = option(None, "trained text QA to start from; default: the text encoder")
    passages: Count | None = option(None, PASSAGES)
    learning_rates: tuple[Amount, ...] = option((), LEARNING_RATES, least=1)
    shift: Path | None = option(
        None,
        "vector (.safetensors) that is added to a layer, in training and afterwards",
    )
    device: str = option("auto", DEVICE)
    qa: QaOptions = group(QaOptions(answer=30), "reader", without=("random_units",))


@dataclass(frozen=True, kw_only=True)
class Align:
    """give words and answers their times from text and audio

    A corpus without times can then train DUAL, which learns where in the recording an answer is
    spoken. OUT is the corpus again, with `words` in passages and questions and times of answers;
    its recordings stay where they are. Extract units of OUT, not of the corpus before. English and
    Mandarin (character by character).

    A CTC recogniser aligns the known text in windows, so that a recording may last hours; words
    that it cannot spell (digits, foreign letters) get the time between their neighbours. Whisper
    gives times by its cross-attention, in pieces of at most 30 s cut at pauses, among which the
    text is shared out by what Whisper recognises.

    Confidence says how likely the text is relative to what the recogniser would write itself (per
    symbol, 0 to 1). A recording below --confidence is set aside, with its questions; an answer
    whose surroundings are below it gets no times.
    OUT/data_report.json has the counts (kept + set aside = read), OUT/set_aside.jsonl the reasons.
    A killed run resumes with the same command.

      speechssl align corpora/mine corpora/timed
      speechssl align corpora/mine/train/passages.jsonl corpora/mine-train \\
        --recogniser facebook/wav2vec2-large-960h-lv60-self
      speechssl align corpora/mine corpora/timed --recogniser openai/whisper-tiny.en
    """

    manifest: Path = argument(
        "prepared corpus, or one split of it, or the passages.jsonl of a split"
    )
    out: Path = argument("folder to make")
    models: str = option("people-en", "shipped set or model folder of the recogniser")
    recogniser: str = option(
        "ctc", "recogniser: ctc, ctc-NAME, or a MODEL of Hugging Face (CTC or Whisper)"
    )
    confidence: Share = option(0.1, "least confidence of an alignment; 0: keep all that fit")
    device: str = option("auto", DEVICE)
    workers: Count = option(2, "number of threads")
