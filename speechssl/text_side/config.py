"""`speechssl pretrain text`, `prepare sentence-tasks` and the group `text`: their options."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from speechssl.config import BERT, DEVICE, PLAIN, Count, Portion, TrainingOptions, Whole, argument, group, option, use_device
from speechssl.dual.config import ASSIGNMENT, BATCH, CHECKPOINTING, DROPOUT, TEXT_ENCODER, QaOptions

Objective = Literal["mlm", "whole-word", "span", "sentence-order", "replaced-token"]
Trained = Literal["all", "frozen", "biases", "none"]
Letters = Literal["own", "apart", "pinyin"]
LETTERS = (
    "letters of the second text: own, apart (every Latin letter becomes another character: English twice shares no symbol), or "
    "pinyin (Chinese in Latin letters, needs speechssl[chinese])"
)
TRAINED = "weights of the encoder that are trained: all, frozen (norms and positions alone), biases (BitFit), or none"
DATA = (
    "text, units, none (random weights), or artificial data: random, unigram, bigram (as frequent as in --text), nested, flat, "
    "flat-D (pairs, at most D places apart), shuffle-N (runs of N ids), dyck-K (brackets of K kinds), "
    "copy, copy-N, set; mixtures as 0.7*nested+0.3*copy"
)
RESULTS = "folder for results: runs/ and results.jsonl; several runs share it"
ARM = "name of this start in tables, such as scratch, with which all others are compared"


@dataclass(frozen=True)
class TextPretraining:
    """On what, how large, and how long; the defaults are those of BERT base but for the length of sequences and training."""

    training: TrainingOptions = group(TrainingOptions(100_000, 1e-4, 10_000, **vars(BERT)), "training")
    data: str = option("text", DATA)
    text: Path | None = option(
        None, "text: folder of .txt files, one of them, or a prepared corpus, whose written passages are read"
    )
    units: Path | None = option(None, "output of `speechssl units extract`, for --data units")
    second_text: Path | None = option(
        None, "text of another language: half of the sequences are of it, and the vocabulary is of both"
    )
    second_units: Path | None = option(None, "units of another language, likewise; of the same codebook")
    letters: Letters = option("own", LETTERS)
    documents: Count | None = option(None, "only the first N documents of each text; default: all")
    split: str = option("train", "split of a prepared corpus or of units")
    objective: Objective = option("mlm", "what is predicted; see above")
    tokenizer: str | None = option(
        None, "vocabulary: folder or hub id; default: WordPiece fitted to --text, or symbols without meaning"
    )
    vocabulary: Count = option(30_000, "entries of a vocabulary that is made here")
    like: str | None = option(None, "config of the encoder: folder or hub id of any text encoder, whose weights are not used")
    start: str | None = option(None, "text encoder to go on from, with its vocabulary, in the place of random weights")
    assignment: str = option("most-frequent", f"--data units: {ASSIGNMENT}")
    layers: Count = option(12, "layers of a BERT that is made here")
    width: Count = option(768, "its width")
    heads: Count = option(12, "its attention heads")
    positions: Count = option(512, "its positions")
    length: Count = option(128, "tokens in a sequence, specials included")
    batch: Count = option(256, BATCH)
    share: Portion = option(0.15, "share of the tokens that are predicted")
    dropout: bool = option(False, DROPOUT)
    gradient_checkpointing: bool = option(False, CHECKPOINTING)


@dataclass(frozen=True, kw_only=True)
class PretrainText:
    """pre-train a text encoder on artificial data, on real text, or on units

    What does pre-training teach that is not meaning? An encoder that has only seen brackets, copies or shuffled runs of numbers is
    fine-tuned like one that has read English (arXiv 2109.03537): real tokens are given the artificial ids in an arbitrary order.
    Objectives: mlm, whole-word, span (with SpanBERT's boundary objective), sentence-order (ALBERT), replaced-token (ELECTRA).
    OUT/encoder is a checkpoint for `train dual`, `train text-qa`, `text classify`. A killed run resumes with the same command.

      speechssl pretrain text exp/english --text texts/ --vocabulary 4000 --layers 4 --width 128 --heads 4 --steps 2000
      speechssl pretrain text exp/dyck --data dyck-64 --tokenizer exp/english/encoder --layers 4 --width 128 --heads 4 --steps 2000
      speechssl pretrain text exp/warm --data nested --start minilm --steps 500
      speechssl pretrain text exp/bilingual --text minisqa-en --second-text minisqa-zh --vocabulary 4000 --layers 4 --width 128
      speechssl pretrain text exp/like --text texts/ --like roberta-base --tokenizer roberta-base --objective span
    """

    out: Path = argument("folder for the encoder")
    device: str = option("auto", DEVICE)
    options: TextPretraining = group(TextPretraining(), "pre-training")

    def run(self) -> None:
        from speechssl.text_side.pretrain import pretrain_text

        use_device(self.device)
        print(f"{pretrain_text(self.out, self.options)}: text encoder, {self.options.objective} on {self.options.data}")


@dataclass(frozen=True, kw_only=True)
class SentenceTasks:
    """make sentence tasks of real text: order, overlap, topic

      order     two successive pieces of a text: do they stand in their order?
      overlap   a sentence and a few words: are these words of the sentence?
      topic     a sentence: which of the documents is it from?

    Documents of order and overlap are in one split alone; of topic every document has sentences in all. SOURCE is a folder of .txt
    files or a prepared corpus; OUT gets a folder a task, which `speechssl text classify` takes.

      speechssl prepare sentence-tasks texts/ exp/tasks
    """

    source: Path = argument("folder of .txt files, one of them, or a prepared corpus")
    out: Path = argument("folder for the tasks")
    split: str = option("train", "split of a prepared corpus")
    train: Count = option(2000, "examples of each task to train on")
    test: Count = option(500, "examples each of dev and test")
    topics: Count = option(8, "documents that topic is about: those with the most sentences")
    seed: Whole = option(0, "seed of the choice of examples")

    def run(self) -> None:
        from speechssl.text_side.tasks import make_sentence_tasks

        for line in make_sentence_tasks(self):
            print(line)


@dataclass(frozen=True)
class ClassifyOptions:
    """How an encoder is fine-tuned on a task: BERT's setting on GLUE (arXiv 1810.04805, section 4.1)."""

    training: TrainingOptions = group(TrainingOptions(1000, 5e-5, 100, **vars(BERT)), "training")
    batch: Count = option(32, BATCH)
    length: Count = option(128, "tokens in a sequence, specials included; longer texts lose their tail")
    dropout: bool = option(False, DROPOUT)
    evaluate_every: Whole = option(0, "also score every N steps, for curves; 0: only at the end")
    trained: Trained = option("all", TRAINED)


@dataclass(frozen=True, kw_only=True)
class Classify:
    """fine-tune an encoder on a classification task, and test it

    DATA is a folder of `prepare sentence-tasks`, one of GLUE as it is published (its name says which: CoLA, SST-2, MRPC, STS-B,
    QQP, MNLI, QNLI, RTE, WNLI), or any folder with train.jsonl, dev.jsonl and test.jsonl whose lines are {"text": ..., "pair": ...,
    "label": ...}. In the place of a text a line may have "symbols": a sequence of DNA, of notes, of anything, which get rows of the
    encoder as units do (--assignment). --assignment scratch draws a new encoder, re-init new embeddings.
    RESULTS/runs/TASK/ARM-SEED has what every test item got. A killed run resumes with the same command.

      speechssl text classify exp/tasks/order exp/dyck/encoder exp/text_side --arm dyck-64 --seed 1
      speechssl text classify exp/tasks/order exp/dyck/encoder exp/text_side --arm scratch --assignment scratch --seed 1
      speechssl text classify GLUE/RTE bert-base-uncased exp/text_side --arm bert
    """

    data: Path = argument("folder of a task")
    encoder: str = argument(TEXT_ENCODER)
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    assignment: str = option(
        "own",
        "own (the encoder's tokens), re-init (new embeddings), scratch (a new encoder as well); for symbols as of `train dual`",
    )
    device: str = option("auto", DEVICE)
    options: ClassifyOptions = group(ClassifyOptions(), "fine-tuning")

    def run(self) -> None:
        from speechssl.text_side.classify import classify

        use_device(self.device)
        print(classify(self.data, self.encoder, self.results, self.arm, self.assignment, self.options))


@dataclass(frozen=True)
class ComputeOptions:
    """How the frozen transformer is trained (arXiv 2103.05247, appendix)."""

    training: TrainingOptions = group(TrainingOptions(2000, 1e-3, 50, **vars(PLAIN)), "training")
    batch: Count = option(32, BATCH)
    size: Count | None = option(None, "bits of a string, or numbers in an expression; default: the paper's (1,000; 5; 512 tokens)")
    test: Count = option(500, "generated test examples; of images all are tested")
    evaluate_every: Whole = option(0, "also score every N steps, for curves; 0: only at the end")


@dataclass(frozen=True, kw_only=True)
class Compute:
    """train the frozen pre-trained transformer on a task that is no language

    Attention and feed-forward layers of a text encoder stay as they are; what is read in and out is learnt, with the layer norms
    and the positions (arXiv 2103.05247). TASK: bit-memory (a string is shown again with half of its bits masked), bit-xor, listops
    (nested MIN, MAX, MED, SUM_MOD), digits (scikit-learn's 8 x 8 images), or a local folder of MNIST (idx files) or CIFAR-10
    (binary version). Starts: pretrained; statistics (random weights with the mean and variance of each pre-trained matrix);
    default (the encoder's own initialisation). --trained all trains everything.

      speechssl text compute bit-memory minilm exp/text_side --arm frozen
      speechssl text compute listops minilm exp/text_side --arm statistics --init statistics --seed 1
      speechssl text compute digits minilm exp/text_side --arm full --trained all
    """

    task: str = argument("bit-memory, bit-xor, listops, digits, or a folder of MNIST or CIFAR-10")
    encoder: str = argument(TEXT_ENCODER)
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    init: Literal["pretrained", "statistics", "default"] = option("pretrained", "where the weights begin")
    trained: Trained = option("frozen", TRAINED)
    device: str = option("auto", DEVICE)
    options: ComputeOptions = group(ComputeOptions(), "training")

    def run(self) -> None:
        from speechssl.text_side.frozen import compute

        use_device(self.device)
        print(compute(self.task, self.encoder, self.results, self.arm, self.init, self.trained, self.options))


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """train DUAL's reader and score it as it learns

    For hundreds of steps the reader points at any fact, whatever is asked; then FF1 rises within a few. This trains the reader of
    `speechssl train dual` from any text encoder and scores it on another split every --every steps. UNITS has both splits,
    extracted with one codebook. `speechssl text gains` prints after how many steps each start reaches FF1 50, and what it gains
    in the end.

      speechssl text plateau corpus units exp/text_side --arm scratch --assignment scratch --text-encoder exp/english/encoder
      speechssl text plateau corpus units exp/text_side --arm dyck-64 --assignment random --text-encoder exp/dyck/encoder --seed 1
    """

    corpus: Path = argument("prepared corpus")
    units: Path = argument("folder of `speechssl units extract`")
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    assignment: str = option("most-frequent", ASSIGNMENT)
    scored: str = option("test", "split of corpus and units that is scored")
    every: Count = option(100, "steps between two scores")
    trained: Trained = option("all", TRAINED)
    device: str = option("auto", DEVICE)
    qa: QaOptions = group(
        QaOptions(TrainingOptions(600, 3e-4, 50, **vars(PLAIN)), answer=275), "reader", without=("subwords", "characters")
    )

    def run(self) -> None:
        from speechssl.text_side.plateau import plateau

        use_device(self.device)
        print(
            plateau(
                self.corpus, self.units, self.results, self.arm, self.assignment, self.qa, self.scored, self.every, self.trained
            )
        )


TWO = {"first": "text of the first language: folder of .txt files or a prepared corpus", "second": "of the second"}


@dataclass(frozen=True)
class LanguageOptions:
    """What is read of two languages, and which words are translations of each other."""

    lexicon: str = option(
        "minisqa",
        "translations: file with two words a line, minisqa (English and Mandarin), or same (the commonest words, each its own)",
    )
    letters: Letters = option("own", LETTERS)
    units: Path | None = option(None, "read the speech of both corpora: units of the first, output of `speechssl units extract`")
    second_units: Path | None = option(None, "units of the second, of the same codebook")
    assignment: str = option("most-frequent", f"of units: {ASSIGNMENT}")
    split: str = option("train", "split of prepared corpora and of units")
    documents: Count | None = option(None, "only the first N documents of each text; default: all")
    sequences: Count = option(500, "pieces of each text that are read at most")
    length: Count = option(128, "tokens in a piece, specials included")
    occurrences: Count = option(1, "times that a word has to occur")
    batch: Count = option(16, "sequences that run together")
    seed: Whole = option(0, "seed of the run: that of the encoder's pre-training, which gives units their tokens")


@dataclass(frozen=True, kw_only=True)
class Align:
    """measure by layer how near a text encoder has words and their translations

    Mean reciprocal rank of a word's translation among all words of the other language, both ways, as the states are and with the
    mean of each language taken away. Words are read in their contexts, in texts that need not be translations of each other.
    ENCODER is any text encoder, or a reader of `train text-qa`. With --units words are what is spoken between their times.

      speechssl text align minisqa-en minisqa-zh bert-base-multilingual-cased exp/text_side --arm mbert
      speechssl text align minisqa-en minisqa-zh exp/bilingual/encoder exp/text_side --arm bilingual
      speechssl text align minisqa-en minisqa-en exp/copy/encoder exp/text_side --arm copy --letters apart --lexicon same
      speechssl text align minisqa-en minisqa-zh exp/unit-mlm/encoder exp/text_side --arm units --units en --second-units zh
    """

    first: Path = argument(TWO["first"])
    second: Path = argument(TWO["second"])
    encoder: str = argument(TEXT_ENCODER)
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    device: str = option("auto", DEVICE)
    options: LanguageOptions = group(LanguageOptions(), "languages")

    def run(self) -> None:
        from speechssl.text_side.languages import align

        use_device(self.device)
        print(align(self.first, self.second, self.encoder, self.results, self.arm, self.options))


@dataclass(frozen=True, kw_only=True)
class Translate:
    """turn tokens into another language's by the mean difference of both

    The language vector (mean state of the second language less that of the first) is added, times alpha, to the output of a layer,
    and the head for masked tokens says what every token has become. Counted: tokens of the second language, and how many stand
    where the lexicon has them. ENCODER has such a head: mBERT, XLM-R, or what `pretrain text` left.

      speechssl text translate minisqa-en minisqa-zh exp/bilingual/encoder exp/text_side --arm bilingual --layers 1 2 --alphas 0 1 2
    """

    first: Path = argument(TWO["first"])
    second: Path = argument(TWO["second"])
    encoder: str = argument(TEXT_ENCODER)
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    layers: tuple[Whole, ...] = option((1,), "layers, 0 is what the first one reads", least=1)
    alphas: tuple[float, ...] = option((0.0, 1.0, 2.0, 3.0), "times that the vector is added; 0: as it is", least=1)
    device: str = option("auto", DEVICE)
    options: LanguageOptions = group(LanguageOptions(), "languages")

    def run(self) -> None:
        from speechssl.text_side.translation import translate

        use_device(self.device)
        print(translate(self.first, self.second, self.encoder, self.results, self.arm, self.layers, self.alphas, self.options))


@dataclass(frozen=True, kw_only=True)
class Vector:
    """write the shift that brings the second language to the first

    mean-difference: mean state of the first language less that of the second, for a reader that was trained on the first;
    zero-mean: less the mean of the second, for training (with the language of training as SECOND) and for reading alike.

      speechssl text vector minisqa-en minisqa-zh exp/text-qa exp/mean-difference.safetensors --layer 2
      speechssl evaluate qa minisqa-zh exp/zh --systems text --reader exp/text-qa --shift exp/mean-difference.safetensors
    """

    first: Path = argument(TWO["first"])
    second: Path = argument(TWO["second"])
    encoder: str = argument(f"{TEXT_ENCODER}; or a reader of `train text-qa`")
    out: Path = argument("file to write, .safetensors")
    layer: Whole = option(MISSING, "layer whose output the shift is added to; 0 is what the first one reads")
    method: Literal["mean-difference", "zero-mean"] = option("mean-difference", "see above")
    device: str = option("auto", DEVICE)
    options: LanguageOptions = group(LanguageOptions(), "languages")

    def run(self) -> None:
        from speechssl.text_side.languages import language_vector

        use_device(self.device)
        print(language_vector(self.first, self.second, self.encoder, self.out, self.layer, self.method, self.options))


@dataclass(frozen=True, kw_only=True)
class Gains:
    """print what every start gains over scratch, with intervals over seeds and items

    Reads RESULTS/runs and, with --answers, folders that `speechssl evaluate qa` wrote, in which the readers are called
    dual-ARM-SEED and text+text-ARM-SEED. Appends the gains to RESULTS/results.jsonl, of which `speechssl report RESULTS` makes a
    page.

      speechssl text gains exp/text_side
      speechssl text gains exp/text_side --answers exp/text_side/dual exp/text_side/text-qa
    """

    results: Path = argument(RESULTS)
    answers: tuple[Path, ...] = option((), "folders of `evaluate qa`")
    baseline: str = option("scratch", "arm that gains are over")
    seed: Whole = option(0, "seed of the bootstrap")

    def run(self) -> None:
        from speechssl.text_side.runs import gains_tables

        print("\n\n".join(table.text for table in gains_tables(self.results, self.answers, self.baseline, self.seed)))
