"""Codebooks are fitted on recordings sampled at random, or imported from published files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from speechssl.data.recordings import (
    Recording,
    hash_contents,
    list_training_recordings,
    sample_recordings,
)
from speechssl.data.records import hash_data
from speechssl.encoders.encoder import open_pool
from speechssl.encoders.hama import PHONES, load_hama, read_phone_symbols
from speechssl.encoders.load import load_encoder
from speechssl.encoders.unpickle import read_centroids
from speechssl.errors import InputError
from speechssl.processes import count_cores
from speechssl.units.codebook import Codebook, check_out, list_versions, load_existing
from speechssl.units.features import load_features, make_features, stream_frames
from speechssl.units.kmeans import fit_kmeans
from speechssl.units.options import Fit, Import


def fit_units(o: Fit) -> None:
    """Fit a codebook, once, on recordings sampled from a prepared corpus (its passages), a manifest
    or a folder.

    Recordings that cannot be used are listed and left out. Raises InputError where OUT cannot be
    written or is a codebook that was made from other inputs, and where no recording can be used.
    """
    check_out(o.out)
    workers = o.workers or count_cores()
    with open_pool(workers) as pool:
        # The main thread too: loading an encoder computes weights, whose bits depend on the number
        # of threads. `open_pool` restores the number at its end.
        torch.set_num_threads(1)
        features = load_features(o.encoder, o.layer, o.smooth, o.precision, margin=o.margin)
        recordings, data = draw_recordings(o.source, o.recordings, o.split, o.seed, o.share)
        card = features.card | data | {"margin": o.margin}
        sampling: dict[str, Any] = {
            "budget": o.budget,
            "seed": o.seed,
            "starts": o.starts,
            "standardise": o.standardise,
        }
        codebook = load_existing(o.out, card | {"K": o.clusters} | sampling)
        if codebook is None:
            frames = stream_frames(recordings, features, pool, workers)
            codebook = fit_kmeans(frames, o.clusters, card, **sampling)
            codebook.save(o.out)
    print(
        f"{o.out}: {codebook.size} units of {o.encoder}"
        f"{'' if o.layer is None else f', layer {o.layer}'}, fitted to {data['recordings']:,} of "
        f"{data['drawn_from']:,} recordings; {codebook.hash}"
    )


def make_phone_codebook() -> Codebook:
    """Return the codebook of the phone recogniser `hama:phones`: unit k is its symbol k."""
    features = make_features(load_hama(PHONES), layer=0, smooth=1)
    facts = features.card | {"read_out": "phones, by greedy CTC", "symbols": read_phone_symbols()}
    return Codebook(np.eye(len(read_phone_symbols()), dtype=np.float32), facts)


def draw_recordings(
    source: Path, count: int | None, split: str, seed: int, share: float | None = None
) -> tuple[list[Recording], dict[str, Any]]:
    """Sample the passages of a prepared corpus, or the recordings of another source: `count` of
    them, or a `share` (0 to 1), as `sample_recordings` does. Return them, and the entries of the
    card about them."""
    recordings, sizes = sample_recordings(
        list_training_recordings(source, split), seed, share, count
    )
    is_corpus = any(source.glob("*/passages.jsonl"))
    data = hash_data(source, split) if is_corpus else hash_contents(recordings)
    return recordings, {"data": data} | sizes


def import_codebook(o: Import) -> None:
    """Write the centroids of a joblib file, once, as a codebook for a layer of an encoder.

    Raises InputError for a file that is not a fitted KMeans or MiniBatchKMeans, for centroids of
    another width than the layer, and where OUT cannot be written or is another codebook.
    """
    check_out(o.out)
    centroids, origin = read_centroids(o.joblib)
    model = load_encoder(o.encoder)
    card = make_features(model, o.layer, 1).card | {"imported": origin}
    if centroids.shape[1] != model.width:
        width = f"{centroids.shape[1]} dimensions, the layers of {o.encoder} {model.width}"
        raise InputError(
            f"the centroids of {o.joblib} have {width}; give the encoder that it was fitted on"
        )
    book = Codebook(centroids, card | {"versions": list_versions()}, str(o.out))
    if load_existing(o.out, card | {"K": book.size, "hash": book.hash}) is None:
        book.save(o.out)
    print(f"{o.out}: {book.size} units of {o.encoder}, layer {o.layer}; {book.hash}")
