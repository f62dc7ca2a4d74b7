"""This module holds the options of `speechssl units`: fitting, importing and transferring
codebooks, extracting and evaluating units, and finding frequent n-grams of them."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from speechssl.errors import InputError
from speechssl.options import (
    DEVICE,
    DRAWN,
    ENCODERS,
    SOURCE,
    Count,
    Portion,
    PrecisionOrAuto,
    Weight,
    Whole,
    argument,
    list_changes,
    option,
    refuse_given,
    refuse_ineffective,
)

BUDGET = 300_000  # frames of the sample that is clustered
STARTS = 20  # fairseq's `n_init`
SHARD = 200  # recordings of a part at most; a killed run loses the unfinished parts
CODEBOOK = "codebook of `speechssl units fit` or import, or a shipped name"
PRICE = (
    "price of a change of unit, in squared distances of features (or scores of a learned "
    "codebook): units are longer and fewer, 4 to 12 a second in the place of 15 to 25 (DPDP); 0: "
    "every frame has the unit of its nearest centroid"
)
OUT = "codebook file to write (.safetensors); its card is written beside it"
PARALLEL = "recordings encoded at a time; the result does not depend on it (default: one per core)"


def _check_spectral(o: Fit | Extract | Evaluate) -> None:
    """Raise InputError for a layer or a precision of MFCCs and filter banks, which have none."""
    if o.encoder in ("mfcc", "fbank"):
        refuse_given(("layer", "precision"), list_changes(o), f"with {o.encoder}")


@dataclass(frozen=True, kw_only=True)
class Fit:
    """fit a codebook by k-means to a layer of an encoder or to MFCCs

    Encodes a random choice of the recordings (--share or --recordings), keeps a uniform sample of
    --budget frames, and clusters it (MiniBatch k-means, k-means++). Recordings may be of any number
    and length. Files that cannot be used are listed and left out.

      speechssl units fit recordings/ facebook/hubert-base-ls960 hubert-l6.safetensors \\
        --layer 6 --clusters 100
      speechssl units fit corpus mfcc mfcc.safetensors --clusters 50
    """

    source: Path = argument(SOURCE)
    encoder: str = argument(f"{ENCODERS}, or mfcc (39 features a frame) or fbank (80 log-mel)")
    out: Path = argument(OUT)
    layer: Whole | None = option(
        None,
        "layer of the encoder, needed but for mfcc and fbank; 0: input of the first "
        "transformer layer, n: output of layer n",
    )
    clusters: Count = option(100, "number of clusters K")
    smooth: Count = option(1, "number of frames (odd) over which features are averaged")
    margin: Whole = option(
        0,
        "frames of silence that the encoder is given before and after every recording: words "
        "cut out tightly need some",
    )
    recordings: Count | None = option(None, "number of recordings to fit on, instead of --share")
    budget: Count = option(
        BUDGET, "number of frames of these recordings to fit k-means on, drawn at random"
    )
    split: str = option("train", "split of a prepared corpus")
    precision: PrecisionOrAuto = option(
        "fp32",
        "precision of the encoder; bf16 is faster; auto: bf16 where the "
        "processor or GPU has it, else fp32",
    )
    seed: Whole = option(0, "seed of the choice of recordings and frames, and of k-means")
    device: str = option("auto", DEVICE)
    workers: Count | None = option(None, PARALLEL)
    share: Portion | None = option(None, f"share of the recordings to fit on, {DRAWN}")
    starts: Count = option(STARTS, "number of k-means runs, of which the best is kept")
    standardise: bool = option(
        False, "scale every dimension to variance 1 before clustering (Whisper's layers need it)"
    )

    def __post_init__(self) -> None:
        _check_spectral(self)
        if self.share is not None and self.recordings is not None:
            raise InputError("--share and --recordings exclude each other; give one of them")


@dataclass(frozen=True, kw_only=True)
class FitPieces:
    """find pieces of units: those that often follow each other become one symbol

    UNITS is a folder of `speechssl units extract`. Pieces are to units what word pieces are to
    letters (byte pair encoding); `train unit-words` and `train dual` read them in the place of
    units: of phones a third as many symbols. The reader keeps them.

      speechssl units pieces units/train pieces.json --size 4000
      speechssl train dual corpus units exp/dual --pieces pieces.json
    """

    units: Path = argument("folder of units of one split")
    out: Path = argument("file for the pieces, .json")
    size: Count = option(4000, "number of pieces, the units themselves among them")
    least: Count = option(10, "how often two must follow each other to become one")
    boundary: Whole | None = option(
        None, "unit that ends a word, at which pieces end; default: there is none"
    )


@dataclass(frozen=True, kw_only=True)
class Extract:
    """extract the units of a split, a manifest or a folder, as Parquet

    SOURCE is a prepared corpus (with --split), a manifest (.jsonl or .csv with `audio` and perhaps
    `id` in every line, .txt or .tsv with a path in every line, also fairseq's .tsv), a folder of
    audio (WAV, FLAC, MP3, OGG, OPUS, AIFF, AU; by FFmpeg M4A, WebM and more), or one file. OUT gets
    a row for each recording: id, seconds, frames, units, lengths (of the runs of equal units, in
    frames). The output does not depend on workers and engine. A killed run resumes with the same
    command. Recordings that cannot be read are listed in _failed.jsonl; the same command tries them
    again.

      speechssl units extract recordings/ people-en/encoder people-en/units.safetensors units
      speechssl units extract corpus facebook/hubert-base-ls960 hubert-l6.safetensors units \\
        --split train --engine ray
    """

    source: Path = argument("prepared corpus (with --split), manifest, folder or audio file")
    encoder: str = argument(f"{ENCODERS}, mfcc or fbank")
    codebook: Path = argument(CODEBOOK)
    out: Path = argument(
        "folder for part-00000.parquet, ... and _card.json; with --split they are in OUT/SPLIT"
    )
    split: str | None = option(None, "split of a prepared corpus: train, dev or test")
    passages: Whole | None = option(
        None, "only the first N passages of the split and their questions"
    )
    precision: PrecisionOrAuto | None = option(
        None,
        "precision of the encoder; bf16 is faster and changes one unit in a hundred; default: "
        "the codebook's; "
        "auto: the codebook's too, but fp32 in place of bf16 where the processor or GPU has none",
    )
    price: Weight = option(0.0, PRICE)
    device: str = option("auto", DEVICE)
    engine: Literal["local", "ray"] = option(
        "local", "run on this machine, or on a Ray cluster (needs speechssl[ray])"
    )
    workers: Count | None = option(
        None, "recordings encoded at a time (default: the cores of the machine or cluster)"
    )
    shard_size: Count = option(
        SHARD,
        "most recordings in a part; a part also ends at 600 s of audio; a killed run loses "
        "at most one part",
    )
    shard: str | None = option(
        None,
        "do the I-th of N shares of the work, on any machines that share OUT; the last process "
        "to finish writes the card",
        metavar="I/N",
    )

    def __post_init__(self) -> None:
        _check_spectral(self)


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """transfer a codebook to another encoder, so that unit k keeps its meaning

    For use after continual pre-training: centroid k becomes the mean of NEW's features over the
    frames to which the old encoder and codebook give unit k in clean recordings. A model that was
    trained on the old units, such as DUAL's reader, can be used with the new units, or trained
    further with them. With --read-out linear a linear head predicts the old units instead, from
    clean and, with --distort, from distorted speech: where the new encoder learned something else,
    more frames keep their unit.

      speechssl units transfer recordings/ people-en/encoder people-en/units.safetensors \\
        exp/robust/encoder units.safetensors
      speechssl units transfer corpus exp/old/encoder exp/old/units.safetensors exp/new/encoder \\
        units.safetensors \\
        --read-out linear --distort m+g+r
    """

    source: Path = argument(f"{SOURCE}, of clean recordings")
    encoder: str = argument(f"encoder that the codebook was fitted on: {ENCODERS}")
    codebook: Path = argument(CODEBOOK)
    new: str = argument(
        "encoder to make a codebook for, such as the result of `speechssl pretrain continue`"
    )
    out: Path = argument(OUT)
    read_out: Literal["centroids", "linear"] = option(
        "centroids",
        "units of the new encoder: the nearest mean of its features, or the classes "
        "of a linear head",
    )
    distort: str | None = option(
        None,
        "distortions of the speech that a linear head learns from, beside clean speech, "
        "such as m+g+r (as in `pretrain`)",
    )
    snr_range: tuple[float, float] = option(
        (-5.0, 20.0), "range of their SNR in dB, drawn uniformly", metavar=("LOW", "HIGH")
    )
    margin: Whole | None = option(
        None,
        "frames of silence before and after every recording, for the new encoder; default: "
        "those of the old codebook",
    )
    layer: Whole | None = option(
        None, "layer of the new encoder; default: the one that the old codebook was fitted on"
    )
    budget: Count = option(
        BUDGET, "number of frames that a linear head is fitted on, drawn at random"
    )
    recordings: Count | None = option(None, f"number of recordings, {DRAWN}")
    split: str = option("train", "split of a prepared corpus")
    precision: PrecisionOrAuto = option(
        "fp32", "precision of the encoders; bf16 is faster; auto: as in `units fit`"
    )
    device: str = option("auto", DEVICE)
    workers: Count | None = option(None, PARALLEL)
    seed: Whole = option(0, "seed of the choice of recordings")

    def __post_init__(self) -> None:
        given = list_changes(self)
        if self.read_out != "linear":
            refuse_given(("distort", "budget"), given, "without --read-out linear")
        refuse_ineffective(given, {"distort": ("snr_range",)})


@dataclass(frozen=True, kw_only=True)
class Import:
    """import a published k-means codebook (joblib, as of fairseq and DUAL)

    Only the centroids are read; no code in the file is executed. The file does not record the
    encoder and layer it was fitted on: give those that its authors state (n: output of transformer
    layer n, as in fairseq).

      speechssl units import km_100.bin facebook/hubert-base-ls960 hubert-l6.safetensors --layer 6
    """

    joblib: Path = argument("joblib file, compressed or not, such as km_500.bin")
    encoder: str = argument(f"encoder that the codebook was fitted on: {ENCODERS}")
    out: Path = argument(OUT)
    layer: Whole = option(MISSING, "layer of the encoder, such as 22 for DUAL")


STABILITY = "stability under distortions"  # a title in the help


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """measure units: usage, bit rate, purity, PNMI, unit edit distance (UED) under distortions,
    same-text distance, ABX

    Purity and PNMI need phones, from the corpus or from --alignment. SOURCE can also be a list, a
    .csv or .tsv file with the columns audio, text and speaker, and perhaps group (who belongs
    together: a synthesiser, people): then the same-text distance and its AUC are measured across
    speakers in and between groups, ABX within and across speakers, and how well a linear probe
    finds the speaker.

      speechssl units evaluate recordings/ people-en/encoder people-en/units.safetensors
      speechssl units evaluate digits.csv people-en/encoder people-en/units.safetensors \\
        --violins distances.svg
      speechssl units evaluate corpus people-en/encoder people-en/units.safetensors --split dev \\
        --out quality.json
    """

    source: Path = argument(f"{SOURCE}; or list (.csv, .tsv) of audio, text and speaker")
    encoder: str = argument(f"{ENCODERS}, mfcc or fbank")
    codebook: Path = argument(CODEBOOK)
    out: Path | None = option(None, "write the measurements to this JSON file")
    split: str | None = option(None, "split of a prepared corpus (default: test)")
    first: Count | None = option(None, "only the first N recordings")
    alignment: Path | None = option(
        None,
        'phones of the recordings: .jsonl of {"id", "phones": [[name, start, end]]}, or (a '
        "folder of) TextGrids",
    )
    conditions: tuple[str, ...] = option(
        (
            "pink@20",
            "pink@10",
            "pink@5",
            "pink@0",
            "reverb@0.5",
            "pitch@2",
            "stretch@1.2",
            "codec@mp3:16",
            "codec@opus:8",
        ),
        "distortions for the stability measurement, as in `evaluate qa`, or stretch@TIMES; no "
        "value: skip it",
        under=STABILITY,
    )
    noisy: Count = option(20, "number of recordings to distort", under=STABILITY)
    violins: Path | None = option(
        None,
        "draw the distances of the same and of other texts, for every pair of groups of a list, "
        "to this .png, .svg or .pdf file",
    )
    seed: Whole = option(
        0, "seed of the noise, of the pairs that are compared, and of the speaker probe's folds"
    )
    precision: PrecisionOrAuto | None = option(
        None, "precision of the encoder; default: the codebook's"
    )
    price: Weight = option(0.0, PRICE)
    device: str = option("auto", DEVICE)

    def __post_init__(self) -> None:
        _check_spectral(self)
