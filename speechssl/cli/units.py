"""`speechssl units`: codebooks and the units they give."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import Any

from speechssl.cli.parser import DRAWN, ENCODERS, add_group, add_verb, count, portion, snr_over_flag, weight, whole

FIT = """fit a codebook by k-means on a layer of an encoder or on MFCCs

A random choice of the recordings (--share or --recordings) passes by once, of any number and length; a uniform sample of --budget
frames is kept and clustered (MiniBatch k-means, k-means++). Files that cannot be used are listed and left out.

  speechssl units fit recordings/ facebook/hubert-base-ls960 hubert-l6.safetensors --layer 6 --clusters 100
  speechssl units fit corpus mfcc mfcc.safetensors --clusters 50
"""
EXTRACT = """units of a split, a manifest or a folder, as Parquet

SOURCE is a prepared corpus (with --split), a manifest (.jsonl with `audio` and perhaps `id` in every line, .txt or .tsv with a path
in every line, fairseq's .tsv too), a folder of audio (WAV, FLAC, MP3, OGG, OPUS, AIFF, AU), or one such file. OUT gets a row a
recording: id, seconds, frames, units, lengths (of the runs, in frames). The bytes depend on neither workers nor engine. A run that
was killed goes on with the same command. What cannot be read is listed in failed.jsonl and tried again by the same command.

  speechssl units extract recordings/ minisqa-en-robust/encoder minisqa-en-robust/units.safetensors units
  speechssl units extract corpus facebook/hubert-base-ls960 hubert-l6.safetensors units --split train --engine ray
"""
CARRY = """a codebook for another encoder, whose units keep their numbers and meaning

After continual pre-training: centroid k becomes the mean of NEW's features over the frames to which the old encoder and codebook
give unit k, in clean recordings. What was trained on the old units (DUAL's reader) works on the new ones, or goes on with them.

  speechssl units carry recordings/ minisqa-en-robust/encoder minisqa-en-robust/units.safetensors \\
    exp/robust/encoder exp/robust/units.safetensors
"""
IMPORT = """take over a published k-means codebook (joblib, as of fairseq and DUAL)

Only the centroids are taken, by a reader that runs nothing of what the file holds. The file does not say what it was fitted on:
name the encoder and the layer as its authors do, counted as everywhere here (n: output of transformer layer n; fairseq's n too).

  speechssl units import km_100.bin hubert-l6.safetensors --encoder facebook/hubert-base-ls960 --layer 6
"""
INSPECT = """how good units are: usage, bit rate, purity and PNMI, stability under noise, same-text distance; a picture of them

Purity and PNMI need phones: of the corpus, or of --alignment. The same-text distance needs MiniSQA and speechssl[synth].

  speechssl units inspect recordings/ minisqa-en-robust/encoder minisqa-en-robust/units.safetensors --picture units.png
  speechssl units inspect corpus minisqa-en-robust/encoder minisqa-en-robust/units.safetensors --split dev --out quality.json
"""


def add_units(verbs: Any) -> None:
    what = add_group(verbs, "units", "k-means codebooks and the units they give")
    for add in (_add_fit, _add_extract, _add_carry, _add_import, _add_inspect):
        add(what)


def _add_fit(what: Any) -> None:
    verb = add_verb(what, "fit", _fit, FIT)
    verb.add_argument(
        "source", type=Path, help="prepared corpus, manifest (.jsonl with `audio`, .txt or .tsv of paths) or folder of audio"
    )
    verb.add_argument("encoder", help=f"{ENCODERS}, or mfcc (39 a frame)")
    verb.add_argument("out", type=Path, help="codebook to write, it ends in .safetensors; its card goes beside it")
    verb.add_argument("--layer", type=whole, default=5, help="0: input of the first transformer layer, n: output of layer n")
    verb.add_argument("--clusters", type=count, default=100, help="K")
    verb.add_argument("--smooth", type=count, default=1, help="frames that features are averaged over (odd)")
    verb.add_argument("--share", type=portion, help=f"of the recordings to fit on, {DRAWN}")
    verb.add_argument("--recordings", "--passages", type=count, help="how many to fit on, in the place of a --share")
    verb.add_argument("--budget", type=count, default=300_000, help="frames of them, drawn at random, that k-means sees")
    verb.add_argument("--starts", type=count, default=20, help="of k-means, the best is kept")
    verb.add_argument("--split", default="train", help="of a prepared corpus")
    verb.add_argument("--precision", default="fp32", help="of the encoder: fp32, or bf16 or int8, which are faster")
    verb.add_argument("--device", default="auto", help="cpu, cuda, cuda:N, or auto: a GPU where there is one")
    verb.add_argument("--workers", type=count, help="recordings encoded at a time, which changes no bit (default: one a core)")
    verb.add_argument("--seed", type=whole, default=0, help="of the recordings, the frames and k-means")


def _fit(o: argparse.Namespace) -> None:
    from speechssl.units.fit import FitOptions, fit_units

    run = (o.split, o.precision, o.seed, o.device, o.workers)
    options = FitOptions(o.layer, o.clusters, o.smooth, o.recordings, o.budget, *run, o.share, o.starts)
    book = fit_units(o.source, o.encoder, o.out, options)
    print(f"{o.out}: K = {book.size}, {book.hash}")


def _add_extract(what: Any) -> None:
    verb = add_verb(what, "extract", _extract, EXTRACT)
    verb.add_argument("source", type=Path, help="prepared corpus (with --split), manifest, folder or audio file")
    verb.add_argument("encoder", help=f"{ENCODERS}, or mfcc")
    verb.add_argument("codebook", type=Path, help="file of `speechssl units fit` or import, or a shipped name")
    verb.add_argument("out", type=Path, help="folder; gets part-00000.parquet ... and card.json, with --split in OUT/SPLIT")
    verb.add_argument("--split", help="of a prepared corpus: train, dev or test")
    verb.add_argument("--passages", type=whole, help="only the first N passages of the split and their questions")
    verb.add_argument("--precision", help="fp32, or bf16 (faster, changes a unit in a hundred) or int8; default: the codebook's")
    verb.add_argument("--device", default="auto", help="cpu, cuda, cuda:N, or auto: a GPU where there is one")
    verb.add_argument("--engine", default="local", choices=["local", "ray"], help="ray: a Ray cluster (needs speechssl[ray])")
    verb.add_argument("--workers", type=count, help="recordings encoded at a time (default: the cores of the machine or cluster)")
    verb.add_argument(
        "--shard-size",
        type=count,
        default=200,
        help="recordings a part at most; a part also ends at 600 s of audio; a kill costs what is in the making",
    )
    several = "i/n: one of n processes that share the work, on any machines that see OUT; the last of them writes the card"
    verb.add_argument("--shard", type=shard, metavar="I/N", help=several)


def shard(text: str) -> tuple[int, int]:
    """i/n as (i, n)."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 1 to N, such as 2/8")
    return int(number), int(count)


def _extract(o: argparse.Namespace) -> None:
    from speechssl.data.sources import list_recordings, source_card
    from speechssl.errors import tell_set_aside
    from speechssl.units.corpus import LocalEngine, ShardMaker, extract_corpus
    from speechssl.units.extract import load_extractor
    from speechssl.units.ray_engine import RayEngine

    recordings, out = list_recordings(o.source, o.split, o.passages), o.out / (o.split or "")
    load = partial(load_extractor, o.encoder, o.codebook, o.precision, o.device)
    engine = RayEngine(load, o.workers) if o.engine == "ray" else LocalEngine(o.workers)
    source = source_card(o.source, o.split, o.passages)
    made = extract_corpus(ShardMaker(load(), out, o.shard_size), recordings, engine, source, o.shard)
    if not made.card:
        print(f"{out}: the parts of shard {o.shard[0]}/{o.shard[1]} are there; the last of the others writes the card")
        return
    tell_set_aside(made.failed, f"{out / 'failed.jsonl'}")
    hours, parts = made.card["seconds"] / 3600, len(made.card["parts"])
    print(f"{out}: units of {made.card['recordings']} recordings ({hours:.2f} h) in {parts} parts; {len(made.failed)} set aside")


def _add_carry(what: Any) -> None:
    verb = add_verb(what, "carry", _carry, CARRY)
    verb.add_argument("source", type=Path, help="prepared corpus, manifest or folder of clean recordings")
    verb.add_argument("encoder", help=f"that the codebook was fitted on: {ENCODERS}")
    verb.add_argument("codebook", type=Path, help="file of `speechssl units fit`, or a shipped name")
    verb.add_argument("new", help="encoder that gets a codebook, such as one that went on training from the first")
    verb.add_argument("out", type=Path, help="codebook to write; it ends in .safetensors")
    some = "how many, drawn at random by --seed; default: a tenth, but 400 at least, where there are as many"
    verb.add_argument("--recordings", "--passages", type=count, help=some)
    verb.add_argument("--split", default="train", help="of a prepared corpus")
    verb.add_argument("--precision", default="fp32", help="of the encoders: fp32, or bf16 or int8, which are faster")
    verb.add_argument("--device", default="auto", help="cpu, cuda, cuda:N, or auto: a GPU where there is one")
    verb.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="recordings encoded at a time")
    verb.add_argument("--seed", type=whole, default=0, help="of the choice of recordings")


def _carry(o: argparse.Namespace) -> None:
    from speechssl.units.fit import CarryOptions, carry_codebook

    options = CarryOptions(o.recordings, o.split, o.precision, o.device, o.workers, o.seed)
    book = carry_codebook(o.source, o.encoder, o.codebook, o.new, o.out, options)
    print(f"{o.out}: K = {book.size}, {book.hash}; {book.card['agreement']:.1%} of clean frames keep their unit")


def _add_import(what: Any) -> None:
    verb = add_verb(what, "import", _import, IMPORT)
    verb.add_argument("joblib", type=Path, help="file that joblib wrote, compressed or not, such as km_500.bin")
    verb.add_argument("out", type=Path, help="codebook to write; it ends in .safetensors")
    verb.add_argument("--encoder", required=True, help=f"that it was fitted on: {ENCODERS}")
    verb.add_argument("--layer", type=whole, required=True, help="of the encoder, e.g. 22 for DUAL")


def _import(o: argparse.Namespace) -> None:
    from speechssl.units.published import import_codebook

    book = import_codebook(o.joblib, o.out, o.encoder, o.layer)
    print(f"{o.out}: K = {book.size}, {book.centroids.shape[1]} dimensions, {book.hash}")


def _add_inspect(what: Any) -> None:
    verb = add_verb(what, "inspect", _inspect, INSPECT)
    verb.add_argument(
        "source", type=Path, help="prepared corpus, manifest (.jsonl with `audio`, .txt or .tsv of paths) or folder of audio"
    )
    verb.add_argument("encoder", help=f"{ENCODERS}; mfcc; or phones: the manifest's phones as units")
    verb.add_argument("codebook", type=Path, nargs="?", help="file of `units fit` or import, or a shipped name; none for phones")
    verb.add_argument("--split", help="of a prepared corpus (default: test)")
    verb.add_argument("--precision", help="of the encoder: fp32, bf16 or int8 (default: the codebook's)")
    verb.add_argument("--device", default="auto", help="cpu, cuda, cuda:N, or auto: a GPU where there is one")
    verb.add_argument("--recordings", type=count, help="only the first N")
    verb.add_argument("--alignment", type=Path, help='.jsonl of {"id", "phones": [[name, start, end]]}, or (a folder of) TextGrids')
    verb.add_argument("--pairs", type=whole, help="questions spoken by two voices each (MiniSQA; default there: 100; 0: none)")
    verb.add_argument("--noise", default="pink", help="for the stability: gaussian, pink, or a recording or folder")
    verb.add_argument("--snr", type=float, nargs="*", default=[20.0, 10.0, 5.0, 0.0], help="dB; nothing: no stability")
    snr_over_flag(verb)
    verb.add_argument("--noisy", type=count, default=20, help="recordings that are heard again at each of them")
    verb.add_argument("--picture", type=Path, help="draw units under the spectrogram: .png, .svg or .pdf")
    verb.add_argument("--recording", help="id of the recording to draw; default: the first")
    verb.add_argument("--span", type=weight, nargs=2, metavar=("START", "END"), help="seconds of it")
    verb.add_argument("--seed", type=whole, default=0, help="of the noise")
    verb.add_argument("--out", type=Path, help="write the figures as JSON")


def _inspect(o: argparse.Namespace) -> None:
    from speechssl.units.inspect import InspectOptions, inspect_units, lines

    noise, picture = (o.noise, tuple(o.snr), o.noisy), (o.picture, o.recording, tuple(o.span) if o.span else None)
    heard = (o.seed, o.precision, o.device, o.snr_over)
    options = InspectOptions(o.split, o.recordings, o.alignment, o.pairs, *noise, *picture, *heard)
    print("\n".join(lines(inspect_units(o.source, o.encoder, o.codebook, options, o.out))))
