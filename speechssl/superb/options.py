"""This module holds the options of `speechssl superb`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from speechssl.data.options import CORES
from speechssl.options import (
    CHECKPOINTS,
    DEVICE,
    SNR_OVER,
    SNR_RANGE,
    Amount,
    Count,
    Precision,
    Share,
    SnrOver,
    Whole,
    argument,
    group,
    list_changes,
    option,
    refuse_given,
    refuse_ineffective,
)
from speechssl.pretrain.options import Adversary

QBE = "qbe"  # has no head: `superb.tasks.spoken_terms`
ORDER = ("pr", "asr", "ks", QBE, "sid", "asv", "sd", "ic", "sf", "er", "se", "ss")  # of tasks
HEADS = "heads"  # title in the help
# the learning rates that the rules of SUPERB's constrained track allow
LEADERBOARD = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
UPSTREAM = (
    "fbank, mfcc, a model folder with encoder/ in it, or an encoder folder, .pt file, hub "
    "id, shipped or torchaudio:NAME"
)


@dataclass(frozen=True)
class Noisy:
    """These options name the conditions of an evaluation in noise."""

    seen: tuple[str, ...] = option((), "conditions that were used in training, as in `evaluate qa`")
    unseen: tuple[str, ...] = option(
        (), "noise that was not used in training: held-out, dev, mynoise.wav, a NAME of --noise"
    )
    snr: tuple[float, ...] = option(
        (20.0, 10.0, 5.0, 0.0), "SNRs in dB for conditions that name none"
    )
    snr_over: SnrOver = option("active", SNR_OVER)
    at: float = option(5.0, "SNR in dB for the table clean | seen | unseen")
    noise: tuple[str, ...] = option(
        (), "folders of noise recordings: musan, fsd50k, ...", metavar="NAME=FOLDER"
    )
    voices: tuple[Path, ...] = option(
        (), "recordings of other people, from which babble is mixed", name="babble"
    )


@dataclass(frozen=True, kw_only=True)
class Data:
    """These options say which sets of SUPERB are read, and how they are encoded."""

    tasks: tuple[str, ...] = option(
        ("all",),
        f"tasks: {' '.join(ORDER)}, or all; =FOLDER names the set of one task",
        least=1,
        metavar="TASK[=FOLDER]",
    )
    data: Path | None = option(
        None, "folder with a subfolder for each task that is not given as TASK=FOLDER"
    )
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
    """These options train heads on distorted speech, and the encoder with them."""

    finetune: bool = option(False, "train the encoder with each head; default: keep it frozen")
    # the authors' repository asks for a rate that is "at least ten times smaller"
    upstream_rate: Amount = option(0.1, "learning rate of the encoder, as a factor of the head's")
    trained: Literal["all", "frozen", "biases", "adapters", "lora"] = option(
        "all",
        "with --finetune, weights of the encoder that are trained: all, frozen (norms and "
        "positions alone), biases (BitFit), adapters (which stay in the encoder) or lora (needs "
        "speechssl[peft])",
    )
    start: Path | None = option(
        None,
        "folder of trained heads to start from, such as exp/superb/heads/mine; default: random "
        "heads",
    )
    distort: str | None = option(
        None,
        "train on distorted speech: kinds of distortion, such as m+g+r, also NAMEs of --noise; "
        "default: clean speech",
    )
    distorted: Share = option(0.5, "share of the training recordings to distort")
    snr_range: tuple[float, float] = option(
        SNR_RANGE, "range of the SNR in dB, drawn uniformly", metavar=("LOW", "HIGH")
    )
    noise_cache: Path | None = option(
        None, "folder to cache generated noise in; default: noise/ beside OUT"
    )


NEEDED = {  # option -> options that mean nothing without it
    "finetune": ("upstream_rate", "trained", "domain_adversary"),
    "distort": ("distorted", "snr_range", "noise_cache", "domain_adversary"),
    "domain_adversary": tuple(
        f"domain_adversary_{part}" for part in ("weight", "mode", "schedule")
    ),
}


@dataclass(frozen=True, kw_only=True)
class Superb:
    """run SUPERB: train small heads on an encoder, frozen or fine-tuned, and evaluate them

    DATA has a folder for each task, as `speechssl prepare` writes them for the published sets;
    `all` is every task whose folder exists (se and ss are SUPERB's extension; se needs
    speechssl[superb]). ks=FOLDER names the set of one task: train.jsonl, dev.jsonl and test.jsonl
    with lines such as {"audio": "yes/1.wav", "labels": {"keyword": "yes"}}.

    Hidden states are computed once and cached in OUT/features. A head is trained with every
    learning rate, and with the task's own, and the one that is best on dev is tested. With --seen
    and --unseen the heads, trained on clean speech, are evaluated in noise as well. Writes
    OUT/results.jsonl and superb.md; `speechssl report OUT` draws them. A killed run resumes.

    --distort trains the heads on labelled distorted speech beside clean (kinds as in `speechssl
    pretrain continue --help`), --finetune trains the encoder with each head, at its own smaller
    rate, and --domain-adversary is the domain-adversarial training (DAT) of arXiv 2203.16104: the
    encoder is trained to mislead a classifier of the domain (clean or distorted; or clean, m, g,
    r). Heads are then chosen by the mean of their scores on clean and on distorted dev speech.
    Results have the encoder's name with +distorted, +dat-binary-reversal-1, ... added;
    OUT/heads/NAME/TASK/seed-0/encoder is the trained encoder.

      speechssl superb run exp/superb --encoders people-en --tasks all --data sets
      speechssl superb run exp/superb --encoders people-en --units --tasks pr ks ic sid --data sets
      speechssl superb run exp/superb --encoders mine=exp/mine --tasks ks sid --data fsdd \\
        --unseen mynoise.wav --snr 10 5 0
      speechssl superb run exp/dat --encoders people-en --tasks ks ic --data sets --finetune \\
        --distort m+g+r --domain-adversary binary --learning-rates --seen m+g+r
    """

    out: Path = argument("folder for all output")
    encoders: tuple[str, ...] = option(MISSING, UPSTREAM, least=1, metavar="[NAME=]WHERE")
    units: bool = option(
        False,
        "also train heads on the units of each encoder, as one-hot vectors: its folder has "
        "units.safetensors beside encoder/; rows NAME-units",
    )
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
    cache_gb: Amount = option(
        50.0,
        "largest size of OUT/features in GB, per encoder; hidden states that do not fit are "
        "computed anew whenever they are needed, which is slower",
    )
    train_only: bool = option(
        False, "train heads and choose them on dev, without the test set", under=HEADS
    )
    noise: Noisy = group(Noisy(), "evaluation in noise")
    training: HeadTraining = group(HeadTraining(), "training on distorted speech")
    adversary: Adversary = group(Adversary(), "training on distorted speech")

    def __post_init__(self) -> None:
        """Raise InputError for options of the training that need others."""
        given = list_changes(self)
        refuse_ineffective(given, NEEDED)
        if not (self.training.finetune or self.training.distort):
            refuse_given(("start",), given, "without --finetune or --distort")


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
