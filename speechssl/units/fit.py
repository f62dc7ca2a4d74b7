"""Fitting a codebook: a corpus that does not fit in memory passes by once, and a uniform sample of its frames is clustered."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from speechssl.artefacts import hash_json
from speechssl.audio import SAMPLE_RATE, read_audio
from speechssl.corpora.records import data_hash, load_corpus
from speechssl.corpora.sources import Recording, list_recordings
from speechssl.errors import InputError, tell_set_aside
from speechssl.units.features import Features, load_features
from speechssl.units.kmeans import Codebook, fit_kmeans, load_codebook

PASSAGES = 400  # of a prepared corpus: about 10 % of the data is enough (HuBERT, section IV-A)
LATER = ("precision", "padding")  # keys that cards of older codebooks lack


@dataclass(frozen=True)
class FitOptions:
    """How a codebook is fitted."""

    layer: int = 5
    clusters: int = 100  # K
    smooth: int = 1  # frames that features are averaged over, odd
    recordings: int | None = None  # how many; None: the first PASSAGES passages of a prepared corpus, all of another source
    budget: int = 300_000  # frames that are kept for k-means
    split: str = "train"  # of a prepared corpus
    precision: str = "fp32"  # of the encoder
    seed: int = 0
    device: str = "auto"


def fit_units(source: Path, encoder: str, out: Path, options: FitOptions) -> Codebook:
    """Fit on a prepared corpus (its passages), a manifest or a folder; once.

    encoder: folder, hub id or shipped name, or `mfcc`. Recordings that cannot be used are listed and left out.
    Raises InputError where `out` is a codebook that was made from other inputs, and where nothing can be used.
    """
    features = load_features(encoder, options.layer, options.smooth, options.precision, options.device)
    recordings, data = _recordings(source, options)
    card = features.card | data
    if out.is_file() and out.with_suffix(".card.json").is_file():
        return _made_before(out, card | {"K": options.clusters, "budget": options.budget, "seed": options.seed})
    codebook = fit_kmeans(frames_of(recordings, features), options.clusters, card, options.budget, options.seed)
    codebook.save(out)
    return codebook


def _made_before(out: Path, wanted: dict[str, Any]) -> Codebook:
    made = load_codebook(out)
    differing = [k for k, v in wanted.items() if made.card.get(k, v if k in LATER else None) != v]
    if differing:
        raise InputError(f"{out} was made from other inputs ({', '.join(differing)} differ); choose another file or delete it")
    return made


def _recordings(source: Path, options: FitOptions) -> tuple[list[Recording], dict[str, Any]]:
    """What to fit on, and what the card says about it. Of a folder or manifest a random choice: names are in order of speakers."""
    if any(source.glob("*/passages.jsonl")):
        count = options.recordings or PASSAGES
        data = load_corpus(source, options.split)
        if not data.passages:
            raise InputError(f"{source / options.split} has no passages to fit a codebook on; prepare the corpus with some")
        chosen = [Recording(p.id, data.path(p)) for p in list(data.passages.values())[:count]]
        return chosen, {"data": data_hash(source, options.split), "passages": count}
    found = list_recordings(source)
    if options.recordings is not None and options.recordings < len(found):
        places = np.random.default_rng(options.seed).choice(len(found), options.recordings, replace=False)
        found = [found[i] for i in np.sort(places)]
    sizes = [[r.id, r.path.stat().st_size if r.path.is_file() else 0] for r in found]
    return found, {"data": hash_json(sizes), "recordings": len(found)}


def frames_of(recordings: Sequence[Recording], features: Features, what: str = "features for k-means") -> Iterator[np.ndarray]:
    """(T_i, D) pieces of all recordings that can be used, one after another; the others are listed and counted.

    Raises InputError where none can be used.
    """
    failed: dict[str, str] = {}
    heard, begun = 0.0, time.monotonic()
    with tqdm(recordings, desc=what, unit="file") as bar:
        for recording in bar:
            try:
                samples = read_audio(recording.path)
                yield from (_finite(piece.numpy()) for piece in features.stream(samples))
                heard += len(samples) / SAMPLE_RATE
            except (InputError, ValueError) as error:
                failed[recording.id] = str(error)
            bar.set_postfix_str(f"{heard / (time.monotonic() - begun):.0f} x real time")
    tell_set_aside(failed, what)
    if len(failed) == len(recordings):
        raise InputError(f"none of {len(failed)} recordings can be used ({next(iter(failed.values()))}); give others")


def _finite(frames: np.ndarray) -> np.ndarray:
    if not np.isfinite(frames).all():
        raise ValueError("its features hold numbers that are not finite; check the encoder")
    return frames
