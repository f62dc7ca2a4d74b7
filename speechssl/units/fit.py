"""Codebooks are fitted on recordings drawn at random, transferred to another encoder, or imported
from what others published.

`transfer_codebook` is for after continual pre-training: the units keep their numbers and their
meaning, and what was trained on the old ones (DUAL's reader, a unit language model) goes on.
"""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment.training import parse_distortions
from speechssl.data.recordings import Recording, draw, hash_contents, recordings_of
from speechssl.data.records import data_hash
from speechssl.encoders.encoder import single_threaded
from speechssl.encoders.load import load_encoder
from speechssl.encoders.unpickle import read_centroids
from speechssl.errors import InputError, report_set_aside
from speechssl.units.codebook import Codebook, check_out, load_codebook, load_existing, versions
from speechssl.units.features import (
    encoder_features,
    features_of,
    load_features,
    stream_frames,
    submit_in_order,
)
from speechssl.units.kmeans import Reservoir, fit_kmeans
from speechssl.units.options import Fit, Import, Transfer
from speechssl.units.spectral import SPECTRAL

ITERATIONS = 100  # of L-BFGS
COMPARED = 50  # recordings at most whose units by both codebooks are compared


def fit_units(o: Fit) -> None:
    """Fit a codebook on recordings drawn from a prepared corpus (its passages), a manifest or a
    folder; once.

    Recordings that cannot be used are listed and left out. Raises InputError where OUT cannot be
    written or is a codebook that was made from other inputs, where nothing can be used, and for
    options that exclude each other.
    """
    check_out(o.out)
    check_spectral(o.encoder, o.precision)
    if o.encoder in SPECTRAL and o.layer is not None:
        raise InputError(f"{o.encoder} has no layer {o.layer}; leave out --layer")
    workers = o.workers or len(os.sched_getaffinity(0))
    with single_threaded(workers) as pool:
        # here too, or what an encoder folds as it is loaded had other bits; the end puts it back
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
    print(f"{o.out}: K = {codebook.size}, {codebook.hash}")


def check_spectral(encoder: str, precision: str | None) -> None:
    """Raise InputError for a precision that only encoders have, where this is none of them."""
    if encoder in SPECTRAL and precision not in (None, "fp32", "auto"):
        raise InputError(
            f"{encoder} is computed in fp32, not in {precision}; leave out --precision"
        )


def draw_recordings(
    source: Path, count: int | None, split: str, seed: int, share: float | None = None
) -> tuple[list[Recording], dict[str, Any]]:
    """Draw from the passages of a prepared corpus or the recordings of another source, as `draw`
    does; return them and what the card says of them."""
    chosen, sizes = draw(recordings_of(source, split), seed, share, count)
    is_corpus = any(source.glob("*/passages.jsonl"))
    return chosen, {
        "data": data_hash(source, split) if is_corpus else hash_contents(chosen)
    } | sizes


def transfer_codebook(o: Transfer) -> None:
    """Write a codebook for another encoder whose unit k means what unit k of `o.codebook`, made for
    `o.encoder`, means; once.

    Centroid k is the mean of the other encoder's features (same smoothing, and the same layer
    unless --layer) over the frames of clean recordings that the old codebook gives unit k: one step
    of k-means from the old assignment. A linear head (`linear_head`) learns the old units of clean
    recordings from the features of these and of their distorted versions. The card keeps the share
    of clean frames that then have the same unit (`agreement`). A unit that never occurs is never
    given by a linear head, and said so on stderr. Raises InputError where the encoders' frames do
    not fit each other, or a unit has no mean because it never occurs.
    """
    book = _transfer(o)
    print(
        f"{o.out}: K = {book.size}, {book.hash}; {book.card['agreement']:.1%} of clean "
        "frames keep their unit"
    )


def _transfer(o: Transfer) -> Codebook:
    linear = o.read_out == "linear"
    distort = None
    if o.distort:
        distort = parse_distortions(o.distort, seed=o.seed, probability=(1, 1), snr=o.snr_range)
    check_out(o.out)
    old = load_codebook(o.codebook)
    before = features_of(old, o.encoder, o.precision)
    margin = before.margin if o.margin is None else o.margin
    layer = before.layer if o.layer is None else o.layer
    after = load_features(o.new, layer, before.smooth, o.precision, margin=margin)
    if before.grid != after.grid:
        raise InputError(
            f"{o.new} has other frames than {o.encoder}; fit a codebook for it with "
            "`speechssl units fit`"
        )
    recordings, data = draw_recordings(o.source, o.recordings, o.split, o.seed)
    card = after.card | data | old.lineage | {"K": old.size, "seed": o.seed}
    if linear:
        card |= {"read_out": "linear head on the units of another encoder", "budget": o.budget}
        if distort:
            card["distort"] = distort.card
    existing = load_existing(o.out, card)
    if existing is not None:
        return existing

    def encode(recording: Recording) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the old units (T,), and features (T, D) of the other encoder, of clean and of
        distorted speech."""
        samples = read_audio(recording.path)
        units = old.assign(torch.cat(list(before.stream(samples))))
        versions = [samples]
        if distort is not None:
            versions.append(distort.apply(samples, recording.id)[0])
        return units, [torch.cat(list(after.stream(version))).numpy() for version in versions]

    failed: dict[str, str] = {}
    counts = np.zeros(old.size)
    sums = np.zeros((old.size, 1))  # (K, D) of the features of every unit
    compared: list[tuple[Recording, np.ndarray]] = []  # recordings with their old units
    sample = Reservoir(o.budget, o.seed)  # of features and units
    workers = o.workers or len(os.sched_getaffinity(0))
    with single_threaded(workers) as pool:
        jobs = submit_in_order(pool, encode, recordings, workers)
        bar = tqdm(jobs, total=len(recordings), desc="transferring units", unit="file")
        for recording, future in bar:
            try:
                units, features = future.result()
            except (InputError, ValueError) as error:
                failed[recording.id] = str(error)
                continue
            counts += np.bincount(units, minlength=old.size)
            if linear:
                for version in features:
                    sample.add(np.column_stack([version, units]))
            else:
                sums = sums + _sum_by_unit(features[0], units, old.size)
            if len(compared) < COMPARED:
                compared.append((recording, units))
        report_set_aside(failed, "transferring units")
        missing = int((counts == 0).sum())
        absent = f"{missing} of {old.size} units never occur in these recordings"
        if missing and (not linear or missing == old.size):
            raise InputError(f"{absent}; give more of them with --recordings")
        if linear:
            if missing:
                tqdm.write(f"{absent}, and the new codebook never gives them", file=sys.stderr)
            features, units = sample.sample[:, :-1], sample.sample[:, -1].astype(int)
            weights, offsets = linear_head(features, units, old.size)
            fitted = Codebook(weights, card, offsets=offsets)
        else:
            fitted = Codebook((sums / counts[:, None]).astype(np.float32), card)

        def agree(pair: tuple[Recording, np.ndarray]) -> np.ndarray:
            """Tell of every frame (T,) of clean speech whether both codebooks give it one unit."""
            recording, units = pair
            return units == fitted.assign(torch.cat(list(after.stream(read_audio(recording.path)))))

        agreement = float(np.concatenate(list(pool.map(agree, compared))).mean())
    transferred = replace(fitted, card=card | {"agreement": round(agreement, 4)})
    transferred.save(o.out)
    return transferred


def _sum_by_unit(features: np.ndarray, units: np.ndarray, size: int) -> np.ndarray:
    """Sum the features (T, D) of every unit (T,): (K, D) float64."""
    sums = np.zeros((size, features.shape[1]))
    np.add.at(sums, units, features.astype(np.float64))
    return sums


def linear_head(
    features: np.ndarray, units: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Fit a multinomial logistic regression, features (N, D) -> units (N,): weights (K, D) and
    offsets (K,) float32 of raw features.

    A unit of which no frame was drawn is never given.
    """
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.linear_model import LogisticRegression

    mean = features.mean(0, dtype=np.float64)
    scale = features.std(0, dtype=np.float64) + 1e-9
    with warnings.catch_warnings():
        # ITERATIONS are enough: more change one frame in a thousand
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(max_iter=ITERATIONS).fit((features - mean) / scale, units)
    rows, intercepts = fitted.coef_ / scale, fitted.intercept_
    if len(fitted.classes_) == 2:  # has one row, whose sign decides
        rows = np.concatenate([-rows, rows])
        intercepts = np.concatenate([-intercepts, intercepts])
    weights = np.zeros((size, features.shape[1]))
    weights[fitted.classes_] = rows
    offsets = np.full(size, -1e9)
    offsets[fitted.classes_] = intercepts - rows @ mean
    return weights.astype(np.float32), offsets.astype(np.float32)


def import_codebook(o: Import) -> None:
    """Write the centroids of a joblib file as a codebook for a layer of an encoder; once.

    Raises InputError for a file that is not a fitted KMeans or MiniBatchKMeans, for centroids of
    another width than the layer, and where OUT cannot be written or is another codebook.
    """
    check_out(o.out)
    if o.encoder in SPECTRAL:
        raise InputError(
            f"{o.joblib} does not fit {o.encoder}, as fairseq scales its features "
            "differently; use `speechssl units fit`"
        )
    centroids, origin = read_centroids(o.joblib)
    model = load_encoder(o.encoder)
    card = encoder_features(model, o.layer, 1).card | {"imported": origin}
    if centroids.shape[1] != model.width:
        width = f"{centroids.shape[1]} dimensions, the layers of {o.encoder} {model.width}"
        raise InputError(
            f"the centroids of {o.joblib} have {width}; give the encoder that it was fitted on"
        )
    book = Codebook(centroids, card | {"versions": versions()}, str(o.out))
    if load_existing(o.out, card | {"K": book.size, "hash": book.hash}) is None:
        book.save(o.out)
    print(f"{o.out}: K = {book.size}, {book.centroids.shape[1]} dimensions, {book.hash}")
