"""These are the options of `speechssl evaluate`.

The docstring of a verb's options is its help in the shell, and so are the texts of the options.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal

from speechssl.cascade.options import ReaderOptions
from speechssl.errors import InputError
from speechssl.options import (
    BF16,
    DEVICE,
    SNR_OVER,
    Count,
    Parts,
    SnrOver,
    Whole,
    argument,
    group,
    option,
)
from speechssl.superb.options import Noisy

SPLIT = "split of the corpus: train, dev, test, or any other that it has"
ROWS = (
    "folder for predictions/ and results.jsonl; only rows of the same systems and conditions "
    "are replaced"
)
READERS = "precision of the text encoders; bf16 is fast with AVX512-BF16 or AMX and slow without"
CONDITION = "condition, as in `evaluate qa`"
NOT_GIVEN: Any = None  # `Parts` requires --encoder, but here --models may stand in its place
# metrics of spoken QA, multiple choice and retrieval; `compare` takes the first that was measured
Metric = Literal["ff1", "f1", "em", "aos", "set_accuracy", "accuracy", "mrr", "r1", "r10"]
TEST = "test"  # the grid of this split lies in OUT itself, those of others in OUT/SPLIT


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Evaluations of systems under conditions share these options."""

    corpus: Path = argument("prepared corpus")
    out: Path = argument(ROWS)
    conditions: tuple[str, ...] = option(("clean",), "conditions, from those above", least=1)
    split: str = option("test", SPLIT)
    passages: Whole | None = option(None, "use only the first N passages")
    snr_over: SnrOver = option("active", SNR_OVER, under="noise")
    voices: tuple[Path, ...] = option(
        (), "recordings of other people, from which babble is mixed", name="babble", under="noise"
    )
    seed: Whole = option(0, "seed of noise and bootstrap")
    bf16: bool = option(False, READERS, name="precision", values=BF16)
    device: str = option("auto", DEVICE)
    workers: Count = option(2, "number of threads")


@dataclass(frozen=True, kw_only=True)
class Qa(Conditions):
    """evaluate systems of spoken question answering under conditions (systems x conditions), on a
    corpus

    Writes predictions and results.jsonl.

    Systems: dual, dual-NAME (a reader of that name in --models), cascade-ctc and cascade-ctc-NAME
    (which decode with their n-gram, see `train ngram`), cascade-ctc-greedy (without it; rows of a
    head without an n-gram have this name too), cascade-MODEL (of Hugging Face), speechbert,
    speechbert-aligned (words segmented by the manifest's times, an upper bound).
    Without audio: text (text QA on the reference text, the topline), cascade-given (on the corpus's
    own transcripts), cascade-simulated@30 (on the text with simulated errors at a WER of 30 %,
    which --errors has).
    For recordings of many windows: dual@5, cascade-ctc@5 and the like read only the 5 windows that
    share most with the question. With --reader, a question-answering model of Hugging Face reads
    the words; text-qa/ in --models may be one, too.
    Cascades read the text of a question that has no recording; other systems cannot answer it.
    Without a folder of models, --encoder, --codebook and --dual name the parts of DUAL.
    Results are identified by a hash of the models: one model under two names is one row, with the
    name given last.
    Conditions: clean; noise at an SNR in dB as pink@10, babble@5, m+g+r@5 or mynoise.wav@5; reverb
    or reverb@0.6 (seconds); pitch@-2; band@1000-2000 (Hz); codec@mp3:16; and several in order,
    joined by +.

      speechssl evaluate qa corpus exp/mine --models exp/models --systems dual cascade-ctc \\
        --conditions clean pink@5 mynoise.wav@5
      speechssl evaluate qa corpus exp/mine --systems cascade-ctc text \\
        --reader deepset/minilm-uncased-squad2
      speechssl evaluate qa corpus exp/mine --encoder facebook/hubert-base-ls960 \\
        --codebook hubert-l6.safetensors --dual exp/dual
      speechssl report exp/mine corpus
    """

    models: str = option("people-en", "shipped set or model folder")
    parts: Parts = group(
        Parts(NOT_GIVEN),
        "DUAL from its parts, all three in the place of --models",
        without=("ctc", "text_qa", "speechbert"),
    )
    label: str | None = option(
        None, "name of the models in tables; default: that of --models or --dual"
    )
    systems: tuple[str, ...] | None = option(
        None,
        "systems, from those above; default: dual and cascade-ctc, as far as the models have them",
        least=1,
    )
    conditions: tuple[str, ...] = option(
        ("clean", "pink@20", "pink@10", "pink@5", "pink@0", "reverb"),
        "conditions, from those above",
        least=1,
    )
    errors: Path | None = option(
        None, "simulated.jsonl of recipes/minisqa/confusions.py, for cascade-simulated"
    )
    reading: ReaderOptions = group(ReaderOptions(), "reader of words")

    def __post_init__(self) -> None:
        """Raise InputError for parts without the others, and for parts beside --models."""
        parts = [p for p in (self.parts.encoder, self.parts.codebook, self.parts.dual) if p]
        if parts and (len(parts) < 3 or self.models != type(self).models):
            raise InputError(
                "--encoder, --codebook and --dual (the reader of units) go together, in the place "
                "of --models; give all three"
            )


@dataclass(frozen=True, kw_only=True)
class Choice(Conditions):
    """evaluate multiple-choice systems under conditions, beside chance and the longest option

    Systems: units, speechbert, cascade-ctc, cascade-ctc-greedy (without its n-gram),
    cascade-MODEL (of Hugging Face), text (the reference), cascade-given (transcripts that come with
    the corpus), chance (exact), longest-option. Those that use no audio are evaluated once, in the
    condition clean. Systems are given the number of right options, as the question states it.
    Conditions are those of `evaluate qa`.

      speechssl evaluate choice corpus exp/choice --systems chance longest-option
      speechssl evaluate choice corpus exp/choice --models exp/models \\
        --systems units cascade-ctc text --split test
    """

    models: str = option(
        "people-en",
        "model folder with choice-units/, choice-speechbert/, choice-text/; people-en has none of "
        "them",
    )
    systems: tuple[str, ...] = option(
        ("text", "chance", "longest-option"), "systems, from those above", least=1
    )
    split: str = option("dev", SPLIT)


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """score the answers of your own system in the same way

    FILE is JSON, question id -> answer: a text (the format of SQuAD's scorer), [start, end] in
    seconds, or {"text", "start", "end"}. Text gives EM and F1, seconds give FF1 and AOS; a question
    without an answer, or with one of the other form, counts 0. How many are answered, have no
    answer (null or "") and are not in the file is printed and kept.
    A FILE.jsonl is VoiceBench's, lines with `prompt` and `response`: a prompt is the question with
    the same words. EM and F1 of responses in sentences are low, and are not those of its judge.
    Writes predictions and rows to OUT, for `report` and `compare`.

      speechssl evaluate predictions corpus exp/mine predictions.json --name my-system --split dev
    """

    corpus: Path = argument("prepared corpus")
    out: Path = argument(ROWS)
    file: Path = argument("JSON file: question id -> answer, or VoiceBench's JSONL")
    name: str = option(MISSING, "name of the system in the tables")
    condition: str = option("clean", f"{CONDITION}, under which the system answered")
    split: str = option("test", SPLIT)
    seed: Whole = option(0, "seed of the bootstrap")

    def __post_init__(self) -> None:
        """Raise InputError for a name that no folder can have."""
        if Path(self.name).name != self.name:
            raise InputError(
                f"{self.name!r} cannot be the name of a system; give a --name without slashes"
            )


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """evaluate encoders in noise (encoders x tasks x noises x SNRs): the loss, and how much of it
    an encoder recovers

    An encoder is a folder, hub id or shipped name, or for the tasks units, dual, speechbert and
    cascade-* a folder of models: encoder/ with units.safetensors, dual/, speechbert/, ctc/,
    text-qa/. The first is the baseline. Missing heads are trained on clean speech, in OUT/heads.
    Tasks with their data: ks, ic, sid, style (a set, such as that of `prepare fsdd`), asr, dual,
    speechbert, cascade-ctc, cascade-ctc-greedy (a prepared corpus), units (any recordings).
    Mixtures are frozen in OUT/noise.jsonl first: every system gets the same input. Writes
    OUT/results.jsonl, degradation.json and tables.md; `speechssl report OUT` draws them. A killed
    run resumes. To choose settings, evaluate on --split dev with the noise dev, which is used
    neither in training nor in the test. Results on other splits than test are in OUT/SPLIT, heads
    always in OUT/heads: they are trained on train, with the learning rate that is best on clean
    speech of dev.

      speechssl evaluate robustness exp/robust --encoders shipped=people-en mine=exp/mine \\
        --tasks ks=tasks/ks units=recordings/ \\
        --seen m+g+r --unseen mynoise.wav held-out --snr 20 10 5 0
      speechssl evaluate robustness exp/robust --encoders a=exp/a b=exp/b --tasks ks=tasks/ks \\
        --split dev --unseen dev --snr 5
    """

    out: Path = argument(
        "folder for heads/, noise.jsonl, scores/, results.jsonl, degradation.json, tables.md"
    )
    encoders: tuple[str, ...] = option(
        MISSING, "encoders to compare; the first is the baseline", least=1, metavar="NAME=WHERE"
    )
    tasks: tuple[str, ...] = option(
        MISSING,
        "tasks and their data: ks, ic, sid, style, asr, units, dual, speechbert, cascade-ctc, "
        "cascade-ctc-greedy",
        least=1,
        metavar="TASK=DATA",
    )
    noise: Noisy = group(Noisy(seen=("m+g+r",), unseen=("held-out",)), "noise")
    split: str = option(
        TEST, "split to evaluate: dev to choose settings, test, or another split of the data"
    )
    passages: Count | None = option(None, "use only the first N passages in spoken QA")
    recordings: Count | None = option(
        None, "use only N recordings in every other task, drawn by --seed"
    )
    head_steps: Count = option(
        3000, "largest number of updates of a classifier, for each learning rate"
    )
    reading: ReaderOptions = group(
        ReaderOptions(), "reader of words, of cascade-ctc and cascade-ctc-greedy"
    )
    bf16: bool = option(False, READERS, name="precision", values=BF16)
    seed: Whole = option(0, "seed of noise, heads, choice of recordings and bootstrap")
    device: str = option("auto", DEVICE)
    workers: Count = option(2, "number of threads")
