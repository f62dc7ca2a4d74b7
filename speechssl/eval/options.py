"""`speechssl evaluate` and `speechssl superb run | speed`: their options."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from speechssl.cascade.options import ReaderOptions
from speechssl.errors import InputError
from speechssl.io import alone
from speechssl.options import (
    BF16,
    CHECKPOINTS,
    DEVICE,
    ENCODERS,
    SNR,
    SNR_OVER,
    Amount,
    Count,
    Precision,
    Share,
    SnrOver,
    Trained,
    Whole,
    argument,
    changed,
    flat,
    group,
    noise_folders,
    option,
    refuse_ineffective,
    use_device,
)
from speechssl.pretrain.options import Adversary
from speechssl.results import rows_in

CORES = os.cpu_count() or 1
SPLIT = "split of the corpus: train, dev, test, or any other that it has"
ROWS = (
    "folder for predictions/ and results.jsonl; only rows of the same systems and conditions "
    "are replaced"
)
READERS = "precision of the text encoders; bf16 is fast with AVX512-BF16 or AMX and slow without"
SNRS = "SNRs in dB for conditions that name none"
HEADS, CACHE = "heads", "cache of hidden states"  # titles in the help
# the rates of SUPERB's rules for its constrained track
LEADERBOARD = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
PARTS = "DUAL from its parts, in the place of --models"
CONDITION = "condition, as in `evaluate qa`"
UPSTREAM = (
    "fbank, mfcc, a model folder with encoder/ in it, or an encoder folder, .pt file, hub "
    "id, shipped or torchaudio:NAME"
)


@dataclass(frozen=True, kw_only=True)
class Conditions(ABC):
    """What evaluations of systems under conditions share."""

    corpus: Path = argument("prepared corpus")
    out: Path = argument(ROWS)
    conditions: tuple[str, ...] = option(("clean",), "conditions, from those above", least=1)
    split: str = option("test", SPLIT)
    passages: Whole | None = option(None, "use only the first N passages")
    snr_over: SnrOver = option("active", SNR_OVER, under="noise")
    voices: tuple[Path, ...] = option(
        (), "recordings of other people, from which babble is mixed", name="babble", under="noise"
    )
    seed: Whole = option(0, "seed of noise, simulated errors and bootstrap")
    bf16: bool = option(False, READERS, name="precision", values=BF16)
    device: str = option("auto", DEVICE)
    workers: Count = option(2, "number of threads")

    def run(self) -> list[dict[str, Any]]:
        use_device(self.device)
        with alone(self.out):
            print(self.evaluate())
            return rows_in(self.out)

    @abstractmethod
    def evaluate(self) -> str:
        """Write predictions and rows; the table."""


@dataclass(frozen=True, kw_only=True)
class Qa(Conditions):
    """evaluate systems of spoken question answering under conditions (systems x conditions), on a
    corpus

    Writes predictions and results.jsonl.

    Systems: dual, dual-NAME (a reader of that name in --models), cascade-ctc and cascade-ctc-NAME
    (which decode with their n-gram, see `train ngram`), cascade-ctc-greedy (without it),
    cascade-pocketsphinx, cascade-MODEL (of Hugging Face), speechbert, speechbert-aligned (words
    segmented by the manifest's times, an upper bound).
    Without audio: text (text QA on the reference text, the topline), cascade-given (on the corpus's
    own transcripts), cascade-simulated@30 (on the text with simulated errors at a WER of 30 %, see
    `evaluate confusions`).
    For recordings of many windows: dual@5, cascade-ctc@5 and the like read only the 5 windows that
    share most with the question. With --reader, a question-answering model of Hugging Face reads
    the words; text-qa/ in --models may be one, too.
    Cascades read a question that has no recording as it is written; other systems cannot be asked
    it.
    Without a folder of models, --encoder, --codebook and --dual name the parts of DUAL.
    Results are identified by a hash of the models: one model under two names is one row, with the
    name given last.
    Conditions: clean; noise at an SNR in dB as pink@10, babble@5, m+g+r@5 or kitchen.wav@5; reverb
    or reverb@0.6 (seconds); pitch@-2; band@1000-2000 (Hz); codec@mp3:16; and several in order,
    joined by +.

      speechssl evaluate qa corpus exp/mine --models exp/models --systems dual cascade-ctc \\
        --conditions clean pink@5 kitchen.wav@5
      speechssl evaluate qa corpus exp/mine --systems cascade-ctc text \\
        --reader deepset/minilm-uncased-squad2
      speechssl evaluate qa corpus exp/mine --encoder facebook/hubert-base-ls960 \\
        --codebook hubert-l6.safetensors --dual exp/dual
      speechssl report exp/mine corpus
    """

    models: str = option("people-en", "shipped set or model folder")
    encoder: str | None = option(None, f"with --codebook and --dual: {ENCODERS}", under=PARTS)
    codebook: Path | None = option(None, "codebook of --encoder", under=PARTS)
    dual: Path | None = option(None, "reader of its units: a folder of `train dual`", under=PARTS)
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
        None, "confusions.json of simulated errors; default: that in --models"
    )
    reading: ReaderOptions = group(ReaderOptions(), "reader of words")

    def evaluate(self) -> str:
        from speechssl.eval.spoken_qa import run_evaluation

        if self.encoder is None and self.codebook is None and self.dual is None:
            return run_evaluation(self)
        from speechssl.systems import Parts, linked

        if self.encoder is None or self.codebook is None or self.dual is None:
            raise InputError(
                "--encoder, --codebook and --dual (the reader of units) go together; give all three"
            )
        if self.models != type(self).models:
            raise InputError(
                f"--models {self.models} names all parts at once; leave it out, or "
                "--encoder, --codebook and --dual"
            )
        with linked(Parts(self.encoder, self.codebook, self.dual)) as folder:
            label = self.label or "/".join(self.dual.parts[-2:])  # two readers may have one encoder
            return run_evaluation(replace(self, models=str(folder), label=label))


@dataclass(frozen=True, kw_only=True)
class Choice(Conditions):
    """evaluate multiple-choice systems under conditions, beside chance and the longest option

    Systems: units, speechbert, cascade-ctc, cascade-ctc-greedy (without its n-gram),
    cascade-pocketsphinx, cascade-MODEL (of Hugging Face), text (the reference), cascade-given
    (transcripts that come with the corpus), chance (exact), longest-option. Those that use no audio
    are evaluated once, in the condition clean. Systems are given the number of right options, as
    the question states it. Conditions are those of `evaluate qa`.

      speechssl evaluate choice corpus exp/choice --systems chance longest-option
      speechssl evaluate choice corpus exp/choice --models exp/models \\
        --systems units cascade-ctc text --split test
    """

    models: str = option(
        "people-en",
        "model folder with choice-units/, choice-speechbert/, choice-text/; "
        "people-en has none of them",
    )
    systems: tuple[str, ...] = option(
        ("text", "chance", "longest-option"), "systems, from those above", least=1
    )
    split: str = option("dev", SPLIT)

    def evaluate(self) -> str:
        from speechssl.eval.spoken_qa import run_choice

        return run_choice(self)


@dataclass(frozen=True, kw_only=True)
class Retrieval(Conditions):
    """evaluate first-stage retrieval under conditions: every question ranks all passages of the
    split

    Reports R@1, R@10 and MRR (times 100). Systems: METHOD-SOURCE or METHOD-SOURCE@N.
    Methods: bm25 and tfidf (shared words; zh: characters; with @N n-grams of N letters; of units
    n-grams, 3 without @N), embeddings (cosines of averaged vectors of a text encoder, of units of
    those of dual/ in --models; the best window of N tokens counts, 254 without @N).
    Sources: units, ctc, ctc-NAME, pocketsphinx, MODEL (of Hugging Face). Without audio, in the
    condition clean alone: text (the reference), given (the corpus's own transcripts). Conditions
    are those of `evaluate qa`.

      speechssl evaluate retrieval corpus exp/mine \\
        --systems bm25-text bm25-ctc tfidf-ctc@3 tfidf-units --conditions clean pink@5
    """

    models: str = option("people-en", "shipped set or model folder")
    systems: tuple[str, ...] = option(
        ("bm25-text", "bm25-ctc", "tfidf-units"), "systems, from those above", least=1
    )
    passages: Whole | None = option(None, "use only the first N passages, to ask about and to rank")
    text_encoder: str = option(
        "minilm", "text encoder for embeddings of words: minilm, a folder or a hub id"
    )

    def evaluate(self) -> str:
        from speechssl.eval.retrieval import run_retrieval

        return run_retrieval(self)


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """score the answers of your own system in the same way

    FILE is JSON, question id -> answer: a text (the format of SQuAD's scorer), [start, end] in
    seconds, or {"text", "start", "end"}. Text gives EM and F1, seconds give FF1 and AOS; a question
    without an answer, or with one of the other form, counts 0. How many are answered, have no
    answer (null or "") and are not in the file is printed and kept.
    Writes predictions and rows to OUT, for `report` and `compare`.

      speechssl evaluate predictions corpus exp/mine predictions.json --name my-system --split dev
    """

    corpus: Path = argument("prepared corpus")
    out: Path = argument(ROWS)
    file: Path = argument("JSON file: question id -> answer")
    name: str = option(MISSING, "name of the system in the tables")
    condition: str = option("clean", f"{CONDITION}, under which the system answered")
    split: str = option("test", SPLIT)
    seed: Whole = option(0, "seed of the bootstrap")

    def run(self) -> list[dict[str, Any]]:
        from speechssl.eval.spoken_qa import import_predictions

        with alone(self.out):
            print(import_predictions(self))
            return rows_in(self.out)


@dataclass(frozen=True, kw_only=True)
class Confusions:
    """fit the error model of a recogniser (confusions.json), to simulate transcripts with any error
    rate

    It is fitted on the output of a recogniser for a split that is not used for testing. `evaluate
    qa` reads it for systems such as cascade-simulated@30: text QA on the reference text with errors
    of this kind at a WER of 30 %.

      speechssl evaluate confusions corpus exp/errors --models exp/models --recogniser ctc \\
        --split dev
      speechssl evaluate qa corpus exp/sweep \\
        --systems text cascade-simulated@10 cascade-simulated@30 --conditions clean \\
        --errors exp/errors/confusions.json
    """

    corpus: Path = argument("prepared corpus")
    out: Path = argument("folder for confusions.json")
    models: str = option("people-en", "shipped set or model folder of the recogniser")
    recogniser: str = option(
        "ctc",
        "recogniser: ctc, ctc-NAME, ctc-greedy (without its n-gram), pocketsphinx, a MODEL of "
        "Hugging Face, or given: the corpus's "
        "own transcripts",
    )
    split: str = option("dev", "split of the corpus: any except test")
    passages: Count | None = option(None, "use only the first N passages")
    condition: str = option("clean", f"{CONDITION}, of the recordings")
    snr_over: SnrOver = option("active", SNR_OVER)
    seed: Whole = option(0, "seed of the noise")
    device: str = option("auto", DEVICE)
    workers: Count = option(2, "number of threads")

    def run(self) -> dict[str, Any]:
        from speechssl.cascade.confusions import confusions_card, read_confusions
        from speechssl.eval.spoken_qa import fit_on_corpus

        use_device(self.device)
        print(fit_on_corpus(self))
        path = self.out / "confusions.json"
        return {
            "out": str(path),
            "card": confusions_card(path),
            "rates": read_confusions(path).rates._asdict(),
        }


@dataclass(frozen=True)
class Noisy:
    """Conditions of an evaluation in noise."""

    seen: tuple[str, ...] = option((), "conditions that were used in training, as in `evaluate qa`")
    unseen: tuple[str, ...] = option(
        (), "noise that was not used in training: held-out, dev, kitchen.wav, a NAME of --noise"
    )
    snr: tuple[float, ...] = option((20.0, 10.0, 5.0, 0.0), SNRS)
    snr_over: SnrOver = option("active", SNR_OVER)
    at: float = option(5.0, "SNR in dB for the table clean | seen | unseen")
    noise: tuple[str, ...] = option(
        (), "folders of noise recordings: musan, fsd50k, ...", metavar="NAME=FOLDER"
    )
    voices: tuple[Path, ...] = option(
        (), "recordings of other people, from which babble is mixed", name="babble"
    )


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """evaluate encoders in noise (encoders x tasks x noises x SNRs): the loss, and how much of it
    an encoder recovers

    An encoder is a folder, hub id or shipped name, or for the tasks units, dual, speechbert and
    cascade-* a folder of models: encoder/ with units.safetensors, dual/, speechbert/, ctc/,
    text-qa/. The first is the baseline. Missing heads are trained
    on clean speech, in OUT/heads. Tasks with their data: ks, ic, sid, style (a set of `prepare
    minisuperb` or fsdd), asr,
    dual, speechbert, cascade-ctc, cascade-ctc-greedy (a prepared corpus), units (any recordings).
    Mixtures are frozen in OUT/noise.jsonl first: every system gets the same input. Writes
    OUT/results.jsonl, degradation.json and tables.md;
    `speechssl report OUT` draws them. A killed run resumes. To choose settings, evaluate on --split
    dev with the noise dev, which is used neither in training nor in the test. Results on other
    splits than test are in OUT/SPLIT, heads always in OUT/heads:
    they are trained on train, with the learning rate that is best on clean speech of dev.

      speechssl evaluate robustness exp/robust --encoders shipped=people-en mine=exp/mine \\
        --tasks ks=tasks/ks units=recordings/ \\
        --seen m+g+r --unseen kitchen.wav held-out --snr 20 10 5 0
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
        "test", "split to evaluate: dev to choose settings, test, or another split of the data"
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

    def run(self) -> list[dict[str, Any]]:
        from speechssl.eval.robustness import results_folder, run_robustness

        use_device(self.device)
        with alone(self.out):
            print(run_robustness(self))
            return rows_in(results_folder(self))


@dataclass(frozen=True, kw_only=True)
class Data:
    """The sets of SUPERB, and how the encoder is computed."""

    tasks: tuple[str, ...] = option(
        ("all",),
        "tasks: pr asr ks qbe sid asv sd ic sf er se ss, or all; =FOLDER names the set of one task",
        least=1,
        metavar="TASK[=FOLDER]",
    )
    data: Path | None = option(
        None, "folder with a subfolder for each task; default: synthetic sets, made in OUT/data"
    )
    share: Share = option(
        1.0, "size of the synthetic sets, as a share of the usual size", name="scale"
    )
    data_seed: Whole = option(0, "seed of the synthetic sets")
    precision: Precision = option("fp32", "precision of the encoder")
    device: str = option("auto", DEVICE)
    workers: Count = option(
        CORES, "number of threads of the encoder, and of processes for the heads"
    )
    preset: Literal["auto", "published", "small"] = option(
        "auto",
        "sizes and steps of the heads: SUPERB's (published), or small (for an hour of speech on "
        "a CPU); auto: small below 3 h",
    )


@dataclass(frozen=True)
class HeadTraining:
    """How heads, and the encoder with them, are trained on distorted speech."""

    finetune: bool = option(False, "train the encoder with each head; default: keep it frozen")
    upstream_rate: Amount | None = option(
        None, "learning rate of the encoder, as a factor of the head's; default: 0.1"
    )
    trained: Trained | None = option(
        None,
        "with --finetune, weights of the encoder that are trained: all, frozen (norms and "
        "positions alone), biases (BitFit), "
        "adapters (which stay in the encoder) or lora (needs speechssl[peft]); default: all",
    )
    start: Path | None = option(
        None,
        "folder of trained heads to start from, such as "
        "exp/superb/heads/mine; default: random heads",
    )
    distort: str | None = option(
        None,
        "train on distorted speech: kinds of distortion, such as m+g+r, also NAMEs of "
        "--noise; default: clean speech",
    )
    distorted: Share | None = option(
        None, "share of the training recordings to distort; default: 0.5"
    )
    snr_range: tuple[float, float] | None = option(
        None, "range of the SNR in dB, drawn uniformly; default: 10 19", metavar=("LOW", "HIGH")
    )
    noise_cache: Path | None = option(
        None, "folder to cache generated noise in; default: noise/ beside OUT"
    )


NEEDED = {  # option -> options that mean nothing without it
    "finetune": ("upstream_rate", "trained"),
    "distort": ("distorted", "snr_range", "noise_cache"),
    "domain_adversary": tuple(
        f"domain_adversary_{part}" for part in ("weight", "mode", "schedule")
    ),
}


@dataclass(frozen=True, kw_only=True)
class Superb:
    """run SUPERB: train small heads on an encoder, frozen or fine-tuned, and evaluate them

    Tasks: pr asr ks qbe sid asv sd ic sf er (SUPERB), se ss (its extension); `all` is all of them.
    Without --data the synthetic sets are made first (needs speechssl[synth]; se needs
    speechssl[superb]). With it, DATA has a folder for each task, as `speechssl prepare` writes them
    for the published sets; `all` is then every task whose folder exists. ks=FOLDER names the set of
    one task: train.jsonl, dev.jsonl and test.jsonl with lines such as {"audio": "yes/1.wav",
    "labels": {"keyword": "yes"}}.

    Hidden states are computed once and cached in OUT/features. Learning rates are compared on dev
    by successive halving, and the task's own is always trained to the end. With --seen and --unseen
    the heads, trained on clean speech, are evaluated in noise as well. Writes OUT/results.jsonl and
    superb.md; `speechssl report OUT` draws them. A killed run resumes.

    --distort trains the heads on labelled distorted speech beside clean (kinds as in `speechssl pretrain continue --help`),
    --finetune trains the encoder with each head, at its own smaller rate, and --domain-adversary is the domain-adversarial training
    (DAT) of arXiv 2203.16104: the encoder is trained to mislead a classifier of the domain (clean
    or distorted; or clean, m, g, r). Heads are then chosen by the mean of their scores on clean and
    on distorted dev speech. Results have the encoder's name with +distorted,
    +dat-binary-reversal-1, ... added; OUT/heads/NAME/TASK/seed-0/encoder is the trained encoder.

      speechssl superb run exp/superb --encoders people-en --tasks all
      speechssl superb run exp/superb --encoders mine=exp/mine --tasks ks sid --data fsdd \\
        --unseen kitchen.wav --snr 10 5 0
      speechssl superb run exp/dat --encoders people-en --tasks ks ic --finetune --distort m+g+r \\
        --domain-adversary binary --learning-rates --seen m+g+r
    """

    out: Path = argument("folder for all output")
    encoders: tuple[str, ...] = option(MISSING, UPSTREAM, least=1, metavar="[NAME=]WHERE")
    sets: Data = group(Data(), "tasks and data")
    learning_rates: tuple[Amount, ...] = option(
        LEADERBOARD, "learning rates to compare; no value: only the task's own", under=HEADS
    )
    seed: tuple[Whole, ...] = option(
        (0,),
        "seed of heads and batches, or several; learning rates are tuned with the first",
        least=1,
        under=HEADS,
    )
    steps: Count | None = option(
        None, "largest number of updates of every head; default: the preset's", under=HEADS
    )
    batch: Count | None = option(None, "recordings per update; default: the preset's", under=HEADS)
    lm: Path | None = option(
        None,
        "ARPA language model for asr, such as LibriSpeech's 4-gram.arpa.gz; default: a 4-gram of "
        "the training texts",
        under=HEADS,
    )
    features: Literal["auto", "cached", "loop"] = option(
        "auto",
        "take hidden states from a cache, or run the encoder in the loop; auto: cache them if "
        "there is room",
        under=CACHE,
    )
    cache_gb: Amount = option(50.0, "largest size of OUT/features in GB, per encoder", under=CACHE)
    train_only: bool = option(
        False, "train heads and choose them on dev, without the test set", under=HEADS
    )
    noise: Noisy = group(Noisy(), "evaluation in noise")
    training: HeadTraining = group(HeadTraining(), "training on distorted speech")
    adversary: Adversary = group(
        Adversary(), "training on distorted speech", without=("domain_adversary_layers",)
    )

    def run(self) -> list[dict[str, Any]]:
        from speechssl.eval.superb import run_superb

        print(run_superb(self, self._tuning()))
        # none of --train-only
        return rows_in(self.out) if (self.out / "results.jsonl").is_file() else []

    def _tuning(self) -> Any:
        """None where heads are trained on clean speech and a frozen encoder."""
        from speechssl.augment.training import parse_distortions
        from speechssl.superb.tuning import SHARE, UPSTREAM_RATE, Tuning

        o = self.training
        refuse_ineffective(flat(o) | changed(self.adversary), NEEDED)
        adversary = self.adversary if self.adversary.domain_adversary else None
        if not (o.finetune or o.distort or adversary):
            if o.start:
                raise InputError("--start needs --finetune or --distort; give one of them as well")
            return None
        distort = None
        if o.distort:
            share = SHARE if o.distorted is None else o.distorted
            cache = o.noise_cache or self.out.parent / "noise"
            drawn: dict[str, Any] = {
                "probability": (share, share),
                "snr": o.snr_range or SNR,
                "snr_over": self.noise.snr_over,
            }
            distort = parse_distortions(
                o.distort, noise_folders(self.noise.noise), seed=self.seed[0], cache=cache, **drawn
            )
        rate = (o.upstream_rate or UPSTREAM_RATE) if o.finetune else None
        bf16 = self.sets.precision == "bf16"
        return Tuning(
            rate=rate,
            distort=distort,
            adversary=adversary,
            bf16=bf16,
            heads=o.start,
            trained=o.trained or "all",
        )


@dataclass(frozen=True, kw_only=True)
class SuperbSpeed:
    """time the training of heads on cached features against training with the encoder in the loop

    Both are timed alternately in one process, on the same batches of every task; the time of
    caching is included. Appends rows `ratio_cached` to OUT/results.jsonl of a `superb run`.

      speechssl superb speed people-en exp/superb
    """

    encoder: str = argument(f"{UPSTREAM}; NAME=WHERE names it")
    out: Path = argument("folder of `superb run`")
    sets: Data = group(Data(), "")
    turns: Count = option(5, "number of batches to time on each side")

    def run(self) -> list[dict[str, Any]]:
        from speechssl.eval.superb import compare_cached

        print(
            compare_cached(
                Superb(out=self.out, encoders=(self.encoder,), sets=self.sets), self.turns
            )
        )
        return rows_in(self.out)


@dataclass(frozen=True, kw_only=True)
class SuperbExport:
    """export an encoder for s3prl's own runner of SUPERB

    OUT gets the encoder in Hugging Face's format (verified as `speechssl convert` does), the
    published settings of every task of SUPERB as s3prl's config files, run.sh with the command
    lines, a README and a card. Finished work is kept.

      speechssl superb export exp/hubert-2/encoder exp/s3prl
      FLUENT_COMMANDS=/data/fluent_speech_commands_dataset bash exp/s3prl/run.sh ic
    """

    encoder: str = argument(CHECKPOINTS)
    out: Path = argument("folder to make")

    def run(self) -> None:
        from speechssl.superb.export import export_upstream

        card = export_upstream(self.encoder, self.out)
        source = f"{card['made_from']['name']} ({card['made_from']['hash']})"
        print(f"{self.out}: {source} for s3prl's upstreams {', '.join(card['upstreams'])}")
        print(f"bash {self.out}/run.sh {'|'.join(card['tasks'])}")
