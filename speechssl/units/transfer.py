"""A codebook is transferred to another encoder: unit k keeps its number and its meaning.

`transfer_codebook` is for after continual pre-training, so that what was trained on the old units
(DUAL's reader, a unit language model) goes on. The new units are the nearest means of the new
encoder's features, or the classes of a linear head. Letters: N samples, T frames, D dimensions, K
units.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from speechssl.audio import read_audio
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.data.recordings import Recording
from speechssl.encoders.encoder import open_pool
from speechssl.errors import InputError
from speechssl.processes import count_cores
from speechssl.units.codebook import Codebook, check_out, load_codebook, load_existing
from speechssl.units.features import (
    Features,
    encode_each,
    load_features,
    load_matching_features,
)
from speechssl.units.fit import draw_recordings
from speechssl.units.kmeans import Reservoir
from speechssl.units.options import Transfer

ITERATIONS = 100  # of L-BFGS
COMPARED = 50  # recordings at most whose units by both codebooks are compared
NEVER = -1e9  # score of a unit that no frame shall get


def transfer_codebook(o: Transfer) -> None:
    """Write a codebook for another encoder, once: its unit k means what unit k of `o.codebook`
    means for `o.encoder`.

    Centroid k is the mean of the new encoder's features over the frames of clean recordings that
    have the old unit k: one step of k-means from the old assignment. (Smoothing is the old one, and
    so is the layer without --layer.) With --read-out linear, `fit_head` learns the old units of
    clean recordings from features of these and of their distorted versions. The card states the
    share of frames that keep their unit (`agreement`), of the first COMPARED of the recordings that
    it was fitted on. Raises InputError where the frames of the two encoders differ, or a unit has
    no mean because it never occurs.
    """
    check_out(o.out)
    pair = _load_pair(o)
    recordings, data = draw_recordings(o.source, o.recordings, o.split, o.seed)
    card = pair.after.card | data | pair.old.lineage | {"K": pair.old.size, "seed": o.seed}
    if o.read_out == "linear":
        card |= {"read_out": "linear head on the units of another encoder", "budget": o.budget}
        if pair.distort:
            card["distort"] = pair.distort.card
    # settings that a card names where they are used: that they are absent has to agree as well
    optional = dict.fromkeys(("read_out", "budget", "distort", "margin"))
    book = load_existing(o.out, optional | card)
    if book is None:
        workers = o.workers or count_cores()
        with open_pool(workers) as pool:
            encoded = encode_each(pool, pair.encode, recordings, workers, "transferring units")
            fitted, compared = fit_codebook((x for _, x in encoded), o, card)
            frames_kept = list(pool.map(partial(pair.keeps_unit, fitted), compared))
            agreement = float(np.concatenate(frames_kept).mean())
        book = replace(fitted, card=card | {"agreement": round(agreement, 4)})
        book.save(o.out)
    print(
        f"{o.out}: {book.size} units; {book.card['agreement']:.1%} of the frames it was fitted on "
        f"keep theirs; {book.hash}"
    )


class EncodedRecording(NamedTuple):
    """A recording has been encoded by both encoders."""

    recording: Recording
    units: np.ndarray  # (T,), by the old encoder and codebook
    # (T, D) each, by the new encoder: of the clean and perhaps of the distorted recording
    features: list[np.ndarray]


@dataclass(frozen=True)
class Pair:
    """A pair is the old encoder with its codebook, and the new encoder."""

    old: Codebook
    before: Features  # of the old encoder
    after: Features  # of the new encoder
    distort: TrainingDistortions | None

    def encode(self, recording: Recording) -> EncodedRecording:
        """Encode a recording. Raises InputError for one that cannot be read, ValueError for one
        that is too short."""
        clean = read_audio(recording.path)
        units = self.old.assign(torch.cat(list(self.before.stream(clean))))
        features = [self.encode_after(clean).numpy()]
        if self.distort is not None:
            distorted, _ = self.distort.apply(clean, recording.id)
            features.append(self.encode_after(distorted).numpy())
        return EncodedRecording(recording, units, features)

    def keeps_unit(self, new: Codebook, encoded: EncodedRecording) -> np.ndarray:
        """Return whether both codebooks give a frame of a recording the same unit: (T,) bool."""
        features = self.encode_after(read_audio(encoded.recording.path))
        return np.asarray(encoded.units == new.assign(features))

    def encode_after(self, samples: np.ndarray) -> torch.Tensor:
        """Return the new encoder's features (T, D) of samples (N,)."""
        return torch.cat(list(self.after.stream(samples)))


def _load_pair(o: Transfer) -> Pair:
    """Load both encoders. Raises InputError where their frames differ."""
    old = load_codebook(o.codebook)
    before = load_matching_features(old, o.encoder, o.precision)
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


def fit_codebook(
    recordings: Iterator[EncodedRecording], o: Transfer, card: dict[str, Any]
) -> tuple[Codebook, list[EncodedRecording]]:
    """Make the new codebook: a linear head on a sample of frames, or the mean of every unit. Return
    it, and the first COMPARED recordings without their features.

    Raises InputError where a unit has no mean.
    """
    size = card["K"]
    is_linear = o.read_out == "linear"
    counts = np.zeros(size)  # frames of every unit
    sums = np.zeros((size, 1))  # of every unit's features; the first recording makes it (K, D)
    sample = Reservoir(o.budget, o.seed)  # its rows are features and, in the last column, the unit
    compared: list[EncodedRecording] = []
    for recording in recordings:
        units = recording.units
        counts += np.bincount(units, minlength=size)
        if len(compared) < COMPARED:
            compared.append(recording._replace(features=[]))
        if is_linear:
            for features in recording.features:
                sample.add(np.column_stack([features, units]))
        else:
            clean = recording.features[0].astype(np.float64)
            sums_of_recording = np.zeros((size, clean.shape[1]))
            np.add.at(sums_of_recording, units, clean)
            sums = sums + sums_of_recording
    if not is_linear:
        missing = int((counts == 0).sum())
        if missing:
            raise InputError(
                f"{missing} of {size} units never occur in these recordings; give more of them "
                "with --recordings"
            )
        return Codebook((sums / counts[:, None]).astype(np.float32), card), compared
    rows = sample.sample
    unseen = size - len(np.unique(rows[:, -1]))
    if unseen:
        print(
            f"{unseen} of {size} units are not among these {len(rows)} frames, and the new "
            "codebook never gives them; a larger --budget may have them",
            file=sys.stderr,
        )
    weights, offsets = fit_head(rows[:, :-1], rows[:, -1].astype(int), size)
    return Codebook(weights, card, offsets=offsets), compared


def fit_head(features: np.ndarray, units: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Fit a multinomial logistic regression, features (N, D) -> units (N,): weights (K, D) and
    offsets (K,) float32 of raw features.

    A unit without a frame among these gets an offset so low that it never wins.
    """
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.linear_model import LogisticRegression

    mean = features.mean(0, dtype=np.float64)
    scale = features.std(0, dtype=np.float64) + 1e-9
    with warnings.catch_warnings():
        # ITERATIONS are enough: more iterations change one frame in a thousand
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(max_iter=ITERATIONS).fit((features - mean) / scale, units)
    rows, intercepts = fitted.coef_ / scale, fitted.intercept_
    if len(fitted.classes_) == 2:  # scikit-learn gives one row, whose sign decides
        rows = np.concatenate([-rows, rows])
        intercepts = np.concatenate([-intercepts, intercepts])
    weights = np.zeros((size, features.shape[1]))
    weights[fitted.classes_] = rows
    offsets = np.full(size, NEVER)
    offsets[fitted.classes_] = intercepts - rows @ mean
    return weights.astype(np.float32), offsets.astype(np.float32)
