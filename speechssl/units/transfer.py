"""A codebook is carried over to another encoder: unit k keeps its number and its meaning.

`transfer_codebook` is for after continual pre-training: what was trained on the old units (DUAL's
reader, a unit language model) goes on. Letters: N samples, T frames, D dimensions, K units.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.data.recordings import Recording
from speechssl.encoders.encoder import single_threaded
from speechssl.errors import InputError, report_set_aside
from speechssl.units.codebook import Codebook, check_out, load_codebook, load_existing
from speechssl.units.features import Features, features_of, load_features, submit_in_order
from speechssl.units.fit import draw_recordings
from speechssl.units.kmeans import Reservoir
from speechssl.units.options import Transfer

ITERATIONS = 100  # of L-BFGS
COMPARED = 50  # recordings at most whose units by both codebooks are compared


def transfer_codebook(o: Transfer) -> None:
    """Write a codebook for another encoder whose unit k means what unit k of `o.codebook`, made for
    `o.encoder`, means; once.

    Centroid k is the mean of the other encoder's features (same smoothing, and the same layer
    unless --layer) over the frames of clean recordings that the old codebook gives unit k: one step
    of k-means from the old assignment. A linear head (`linear_head`) learns the old units of clean
    recordings from the features of these and of their distorted versions. The card keeps the share
    of clean frames that then have the same unit (`agreement`). Raises InputError where the
    encoders' frames do not fit each other, or a unit has no mean because it never occurs.
    """
    check_out(o.out)
    pair = _load_pair(o)
    recordings, data = draw_recordings(o.source, o.recordings, o.split, o.seed)
    card = pair.after.card | data | pair.old.lineage | {"K": pair.old.size, "seed": o.seed}
    if o.read_out == "linear":
        card |= {"read_out": "linear head on the units of another encoder", "budget": o.budget}
        if pair.distort:
            card["distort"] = pair.distort.card
    book = load_existing(o.out, card)
    if book is None:
        workers = o.workers or len(os.sched_getaffinity(0))
        with single_threaded(workers) as pool:
            jobs = submit_in_order(pool, pair.encode, recordings, workers)
            fitted, known = _fit(jobs, o, card)

            def keeps_unit(item: tuple[Recording, np.ndarray]) -> np.ndarray:
                """Tell of every frame (T,) whether both codebooks give it one unit."""
                recording, units = item
                features = torch.cat(list(pair.after.stream(read_audio(recording.path))))
                return np.asarray(units == fitted.assign(features))

            agreement = float(np.concatenate(list(pool.map(keeps_unit, known))).mean())
        book = replace(fitted, card=card | {"agreement": round(agreement, 4)})
        book.save(o.out)
    print(
        f"{o.out}: K = {book.size}, {book.hash}; {book.card['agreement']:.1%} of clean "
        "frames keep their unit"
    )


@dataclass(frozen=True)
class Pair:
    """A pair is the old codebook with the features it reads, and those of the other encoder."""

    old: Codebook
    before: Features
    after: Features
    distort: TrainingDistortions | None

    def encode(self, recording: Recording) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the old units (T,), and features (T, D) of the other encoder, of clean and of
        distorted speech."""
        samples = read_audio(recording.path)
        units = self.old.assign(torch.cat(list(self.before.stream(samples))))
        versions = [samples]
        if self.distort is not None:
            versions.append(self.distort.apply(samples, recording.id)[0])
        return units, [torch.cat(list(self.after.stream(x))).numpy() for x in versions]


def _load_pair(o: Transfer) -> Pair:
    """Load both encoders. Raises InputError where their frames differ."""
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
    distort = None
    if o.distort:
        distort = parse_distortions(o.distort, seed=o.seed, probability=(1, 1), snr=o.snr_range)
    return Pair(old, before, after, distort)


def _fit(
    jobs: Iterator[tuple[Recording, Future[tuple[np.ndarray, list[np.ndarray]]]]],
    o: Transfer,
    card: dict[str, Any],
) -> tuple[Codebook, list[tuple[Recording, np.ndarray]]]:
    """Make the new codebook, a linear head on a sample of frames, or the mean of every unit; return
    COMPARED recordings with their old units too. jobs: of `Pair.encode`.

    Recordings that cannot be read are listed. Raises InputError where a unit has no mean.
    """
    size = card["K"]
    counts = np.zeros(size)
    sums = np.zeros((size, 1))  # (K, D) of the features of every unit
    sample = Reservoir(o.budget, o.seed)  # of features and units
    known: list[tuple[Recording, np.ndarray]] = []
    failed: dict[str, str] = {}
    for recording, future in tqdm(jobs, desc="transferring units", unit="file"):
        try:
            units, features = future.result()
        except (InputError, ValueError) as error:
            failed[recording.id] = str(error)
            continue
        counts += np.bincount(units, minlength=size)
        if o.read_out == "linear":
            for version in features:
                sample.add(np.column_stack([version, units]))
        else:
            own = np.zeros((size, features[0].shape[1]))
            np.add.at(own, units, features[0].astype(np.float64))
            sums = sums + own
        if len(known) < COMPARED:
            known.append((recording, units))
    report_set_aside(failed, "transferring units")
    missing = int((counts == 0).sum())
    absent = f"{missing} of {size} units never occur in these recordings"
    if missing == size or (missing and o.read_out != "linear"):
        raise InputError(f"{absent}; give more of them with --recordings")
    if o.read_out != "linear":
        return Codebook((sums / counts[:, None]).astype(np.float32), card), known
    if missing:
        tqdm.write(f"{absent}, and the new codebook never gives them", file=sys.stderr)
    rows, units = sample.sample[:, :-1], sample.sample[:, -1].astype(int)
    weights, offsets = linear_head(rows, units, size)
    return Codebook(weights, card, offsets=offsets), known


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
