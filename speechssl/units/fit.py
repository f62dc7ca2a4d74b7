"""Codebooks: fitted on recordings drawn at random, transferred to another encoder, or imported from
what others published.

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
from speechssl.data.files import Recording, draw, hash_contents, recordings_of
from speechssl.data.records import data_hash
from speechssl.encoders.load import load_encoder, single_threaded
from speechssl.encoders.unpickle import read_centroids
from speechssl.errors import InputError, report_set_aside
from speechssl.units.features import (
    SPECTRAL,
    encoder_features,
    features_of,
    frames_of,
    in_order,
    load_features,
)
from speechssl.units.kmeans import (
    Codebook,
    Reservoir,
    check_out,
    existing_codebook,
    fit_kmeans,
    load_codebook,
    versions,
)
from speechssl.units.options import FitOptions, TransferOptions

ITERATIONS = 100  # of L-BFGS
COMPARED = 50  # recordings at most whose units by both codebooks are compared


def fit_units(source: Path, encoder: str, out: Path, options: FitOptions) -> Codebook:
    """Fit on recordings drawn from a prepared corpus (its passages), a manifest or a folder; once.

    encoder: folder, hub id or shipped name, or one of `SPECTRAL`. Recordings that cannot be used
    are listed and left out.
    Raises InputError where `out` cannot be written or is a codebook that was made from other
    inputs, where nothing can be used, and for options that exclude each other.
    """
    check_out(out)
    check_spectral(encoder, options.precision, options.device)
    if encoder in SPECTRAL and options.layer is not None:
        raise InputError(f"{encoder} has no layer {options.layer}; leave out --layer")
    workers = options.workers or len(os.sched_getaffinity(0))
    with single_threaded(workers) as pool:
        # here too, or what an encoder folds as it is loaded had other bits; the end puts it back
        torch.set_num_threads(1)
        features = load_features(
            encoder,
            options.layer,
            options.smooth,
            options.precision,
            options.device,
            options.margin,
        )
        recordings, data = drawn_from(
            source, options.recordings, options.split, options.seed, options.share
        )
        sampling: dict[str, Any]
        card, sampling = (
            features.card | data,
            {"budget": options.budget, "seed": options.seed, "starts": options.starts},
        )
        sampling["standardise"] = options.standardise
        card["margin"] = options.margin
        existing = existing_codebook(out, card | {"K": options.clusters} | sampling)
        if existing is not None:
            return existing
        codebook = fit_kmeans(
            frames_of(recordings, features, pool, workers), options.clusters, card, **sampling
        )
        codebook.save(out)
        return codebook


def check_spectral(encoder: str, precision: str | None, device: str) -> None:
    """Raises InputError for what only encoders have, where this is none of them."""
    if encoder not in SPECTRAL:
        return
    if precision not in (None, "fp32", "auto"):
        raise InputError(
            f"{encoder} is computed in fp32, not in {precision}; leave out --precision"
        )
    if device not in ("auto", "cpu"):
        raise InputError(f"{encoder} is computed on the CPU, not on {device}; leave out --device")


def drawn_from(
    source: Path, count: int | None, split: str, seed: int, share: float | None = None
) -> tuple[list[Recording], dict[str, Any]]:
    """What `draw` takes of the passages of a prepared corpus or the recordings of another source,
    and what the card says of it."""
    chosen, drawn = draw(recordings_of(source, split), seed, share, count)
    is_corpus = any(source.glob("*/passages.jsonl"))
    return chosen, {
        "data": data_hash(source, split) if is_corpus else hash_contents(chosen)
    } | drawn


def transfer_codebook(
    source: Path, encoder: str, codebook: Path, other: str, out: Path, options: TransferOptions
) -> Codebook:
    """A codebook for the encoder `other` whose unit k means what unit k of `codebook`, made for
    `encoder`, means; once.

    Centroid k is the mean of the other encoder's features (same smoothing, and the same layer
    unless `options` has one) over the frames of clean recordings that the old codebook gives unit
    k: one step of k-means from the old assignment. A linear head (`linear_head`) learns the old
    units of clean recordings from the features of these and of their distorted versions. The card
    keeps the share of clean frames that then have the same unit (`agreement`). A unit that never
    occurs is never given by a linear head, and said so on stderr. Raises InputError where the
    encoders' frames do not fit each other, a unit has no mean because it never occurs, or options
    exclude each other.
    """
    linear = options.read_out == "linear"
    if options.distort and not linear:
        raise InputError(
            "means are of clean speech; leave out --distort, or give --read-out linear"
        )
    distort = (
        parse_distortions(
            options.distort, seed=options.seed, probability=(1, 1), snr=options.snr_range
        )
        if options.distort
        else None
    )
    check_out(out)
    old = load_codebook(codebook)
    before = features_of(old, encoder, options.precision, options.device)
    margin = before.margin if options.margin is None else options.margin
    layer = before.layer if options.layer is None else options.layer
    after = load_features(other, layer, before.smooth, options.precision, options.device, margin)
    if before.grid != after.grid:
        raise InputError(
            f"{other} has other frames than {encoder}; fit a codebook for it with "
            "`speechssl units fit`"
        )
    recordings, data = drawn_from(source, options.recordings, options.split, options.seed)
    card = after.card | data | old.carried | {"K": old.size, "seed": options.seed}
    if linear:
        card |= {
            "read_out": ("linear head on the units of another encoder"),
            "budget": options.budget,
        }
        card |= {"distort": distort.card} if distort else {}
    if (existing := existing_codebook(out, card)) is not None:
        return existing

    def pairs_of(recording: Recording) -> tuple[np.ndarray, list[np.ndarray]]:
        """(T,) old units; and features (T, D) of the other encoder, of clean and of distorted
        speech."""
        samples = read_audio(recording.path)
        units = old.assign(torch.cat(list(before.stream(samples))))
        versions = (
            [samples] if distort is None else [samples, distort.apply(samples, recording.id)[0]]
        )
        return units, [torch.cat(list(after.stream(version))).numpy() for version in versions]

    failed: dict[str, str] = {}
    compared: list[tuple[Recording, np.ndarray]] = []  # with their old units
    counts, drawn = np.zeros(old.size), Reservoir(options.budget, options.seed)
    total: Any = 0.0
    workers = options.workers or len(os.sched_getaffinity(0))
    with single_threaded(workers) as pool:
        jobs = in_order(pool, pairs_of, recordings, workers)
        for recording, future in tqdm(
            jobs, total=len(recordings), desc=("transferring units"), unit="file"
        ):
            try:
                units, versions = future.result()
                counts += np.bincount(units, minlength=old.size)
                if linear:
                    for features in versions:
                        drawn.add(np.column_stack([features, units]))
                else:
                    sums = np.zeros((old.size, versions[0].shape[1]))
                    np.add.at(sums, units, versions[0].astype(np.float64))
                    total = total + sums
                if len(compared) < COMPARED:
                    compared.append((recording, units))
            except (InputError, ValueError) as error:
                failed[recording.id] = str(error)
        report_set_aside(failed, "transferring units")
        if missing := int((counts == 0).sum()):
            absent = f"{missing} of {old.size} units never occur in these recordings"
            if not linear:
                raise InputError(f"{absent}; give more of them with --recordings")
            tqdm.write(
                f"{absent}, and the new codebook never gives them; more --recordings may have them",
                file=sys.stderr,
            )
        if linear:
            weights, offsets = linear_head(
                drawn.sample[:, :-1], drawn.sample[:, -1].astype(int), old.size
            )
            fitted = Codebook(weights, card, offsets=offsets)
        else:
            fitted = Codebook((total / counts[:, None]).astype(np.float32), card)

        def same(pair: tuple[Recording, np.ndarray]) -> np.ndarray:
            """(T,) whether both codebooks give a frame of clean speech the same unit."""
            recording, units = pair
            return units == fitted.assign(torch.cat(list(after.stream(read_audio(recording.path)))))

        shared = np.concatenate(
            [future.result() for _, future in in_order(pool, same, compared, workers)]
        )
    transferred = replace(fitted, card=card | {"agreement": round(float(shared.mean()), 4)})
    transferred.save(out)
    return transferred


def linear_head(
    features: np.ndarray, units: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Multinomial logistic regression: features (N, D) -> units (N,). Weights (K, D) and offsets
    (K,) float32 of raw features.

    A unit of which no frame was drawn is never given.
    """
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.linear_model import LogisticRegression

    mean, scale = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64) + 1e-9
    with warnings.catch_warnings():
        # ITERATIONS are enough: more change one frame in a thousand
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(max_iter=ITERATIONS).fit((features - mean) / scale, units)
    rows, intercepts = fitted.coef_ / scale, fitted.intercept_
    if len(fitted.classes_) == 2:  # has one row, whose sign decides
        rows, intercepts = np.concatenate([-rows, rows]), np.concatenate([-intercepts, intercepts])
    weights, offsets = np.zeros((size, features.shape[1])), np.full(size, -1e9)
    weights[fitted.classes_], offsets[fitted.classes_] = rows, intercepts - rows @ mean
    return weights.astype(np.float32), offsets.astype(np.float32)


def import_codebook(path: Path, out: Path, encoder: str, layer: int) -> Codebook:
    """Write the centroids of a joblib file as a codebook for a layer of an encoder, and return it;
    once.

    Raises InputError for a file that is not a fitted KMeans or MiniBatchKMeans, for centroids of
    another width than the layer, and where `out` cannot be written or is another codebook.
    """
    check_out(out)
    if encoder in SPECTRAL:
        raise InputError(
            f"{path} does not fit {encoder}, as fairseq scales its features "
            "differently; use `speechssl units fit`"
        )
    centroids, origin = read_centroids(path)
    model = load_encoder(encoder)
    card = encoder_features(model, layer, 1).card
    if centroids.shape[1] != model.width:
        width = f"{centroids.shape[1]} dimensions, the layers of {encoder} {model.width}"
        raise InputError(
            f"the centroids of {path} have {width}; give the encoder that it was fitted on"
        )
    codebook = Codebook(centroids, card | {"imported": origin, "versions": versions()}, str(out))
    existing = existing_codebook(
        out, card | {"imported": origin, "K": codebook.size, "hash": codebook.hash}
    )
    if existing is None:
        codebook.save(out)
    return existing or codebook
