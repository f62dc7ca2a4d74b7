"""Codebooks: fitted on recordings drawn at random, or transferred to another encoder.

`fit_units` lets the recordings pass by once and clusters a uniform sample of their frames; `pretrain.targets` fits HuBERT's targets
with the same `draw` and `frames_of`. `transfer_codebook` transfers a codebook to another encoder: after continual pre-training the
units keep their numbers and their meaning, and what was trained on the old ones (DUAL's reader, a unit language model) goes on.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import SAMPLE_RATE, duration, read_audio
from speechssl.augment.training import parse_distortions
from speechssl.data.files import Recording, list_recordings
from speechssl.data.records import data_hash, load_corpus
from speechssl.encoders.base import single_threaded
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import hash_json
from speechssl.units.config import FitOptions, TransferOptions
from speechssl.units.features import Features, checked, load_features, load_features_of
from speechssl.units.kmeans import Codebook, Reservoir, check_out, fit_kmeans, load_codebook, made_before
from speechssl.units.storage import digest

SHARE, LEAST = 0.1, 400  # of the recordings; and how many of them at least, see `draw`
Item = TypeVar("Item")
Result = TypeVar("Result")
ITERATIONS = 100  # of L-BFGS
LONG = 600.0  # seconds from which on the features of a recording are not held at once


def fit_units(source: Path, encoder: str, out: Path, options: FitOptions) -> Codebook:
    """Fit on recordings drawn from a prepared corpus (its passages), a manifest or a folder; once.

    encoder: folder, hub id or shipped name, or `mfcc`. Recordings that cannot be used are listed and left out.
    Raises InputError where `out` cannot be written or is a codebook that was made from other inputs, where nothing can be used, and
    for options that exclude each other.
    """
    check_out(out)
    if encoder == "mfcc":
        check_mfcc(options.precision, options.device)
        if options.layer is not None:
            raise InputError(f"mfcc has no layer {options.layer}; leave out --layer")
    workers = options.workers or len(os.sched_getaffinity(0))
    with single_threaded(workers) as pool:
        torch.set_num_threads(1)  # here too, or what an encoder folds as it is loaded had other bits; the end puts it back
        features = load_features(encoder, options.layer, options.smooth, options.precision, options.device, options.margin)
        recordings, data = recordings_of(source, options.recordings, options.split, options.seed, options.share)
        sampling: dict[str, Any]
        card, sampling = features.card | data, {"budget": options.budget, "seed": options.seed, "starts": options.starts}
        sampling["standardise"] = options.standardise
        card["margin"] = options.margin
        made = made_before(out, card | {"K": options.clusters} | sampling)
        if made is not None:
            return made
        codebook = fit_kmeans(frames_of(recordings, features, pool, workers), options.clusters, card, **sampling)
        codebook.save(out)
        return codebook


def check_mfcc(precision: str | None, device: str) -> None:
    """Raises InputError for what only encoders have."""
    if precision not in (None, "fp32", "auto"):
        raise InputError(f"mfcc is computed in fp32, not in {precision}; leave out --precision")
    if device not in ("auto", "cpu"):
        raise InputError(f"mfcc is computed on the CPU, not on {device}; leave out --device")


def draw(recordings: Sequence[Item], seed: int, share: float | None = None, count: int | None = None) -> tuple[list[Item], dict]:
    """A random choice of the whole list, kept in its order, and what a card says of it: `recordings` that were `drawn_from` all.

    Lists are in the order of speakers, so the first so many would be a few of them. count: exactly so many (all, where there are
    no more); share: that share of them, rounded up. With neither it is SHARE, as HuBERT (arXiv 2106.07447, section IV-A) fits its
    k-means on 10 % of LibriSpeech, but no fewer than LEAST recordings, or all: 10 % of a small corpus would leave few frames and
    voices. Raises InputError where both are given, or a share is not above 0 and at most 1.
    """
    if share is not None and count is not None:
        raise InputError("--share and --recordings exclude each other; give one of them")
    if share is not None and not 0 < share <= 1:
        raise InputError(f"a share of {share:g} of the recordings cannot be drawn; give one above 0 and at most 1")
    total = len(recordings)
    wanted = count or (max(math.ceil(SHARE * total), LEAST) if share is None else math.ceil(round(share * total, 6)))
    places = np.sort(np.random.default_rng(seed).choice(total, min(wanted, total), replace=False))
    return [recordings[i] for i in places], {"recordings": len(places), "drawn_from": total}


def recordings_of(
    source: Path, count: int | None, split: str, seed: int, share: float | None = None
) -> tuple[list[Recording], dict[str, Any]]:
    """What `draw` takes of the passages of a prepared corpus or the recordings of another source, and what the card says of it."""
    if any(source.glob("*/passages.jsonl")):
        data = load_corpus(source, split)
        if not data.passages:
            raise InputError(f"{source / split} has no passages to fit a codebook on; prepare the corpus with some")
        chosen, drawn = draw([Recording(p.id, data.path(p)) for p in data.passages.values()], seed, share, count)
        return chosen, {"data": data_hash(source, split)} | drawn
    chosen, drawn = draw(list_recordings(source), seed, share, count)
    return chosen, {"data": hash_contents(chosen)} | drawn


def hash_contents(recordings: Sequence[Recording]) -> str:
    """Of the ids and the bytes of the files; of one that cannot be read, of its id alone."""
    return hash_json([[r.id, digest(r.path)] for r in tqdm(recordings, desc="hashing recordings", unit="file")])


def frames_of(
    recordings: Sequence[Recording], features: Features, pool: Executor, ahead: int, what: str = "features for k-means"
) -> Iterator[np.ndarray]:
    """(T_i, D) pieces of all recordings that can be used, in order; the others are listed and counted.

    pool: where recordings of no more than LONG seconds are encoded, `ahead` of them while one is used; longer ones are encoded here
    as their pieces are taken. Raises InputError where none can be used.
    """

    def encode(recording: Recording) -> tuple[float, Iterator[np.ndarray]]:
        """Seconds, and features as they are wanted."""
        samples = read_audio(recording.path)
        return len(samples) / SAMPLE_RATE, (checked(piece).numpy() for piece in features.stream(samples))

    def ahead_of_time(recording: Recording) -> tuple[float, Iterator[np.ndarray]] | None:
        """Seconds and all features; None for a long recording."""
        if duration(recording.path) > LONG:
            return None
        seconds, pieces = encode(recording)
        return seconds, iter(list(pieces))

    failed: dict[str, str] = {}
    encoded, begun = 0.0, time.monotonic()
    with tqdm(total=len(recordings), desc=what, unit="file") as bar:
        for recording, future in in_order(pool, ahead_of_time, recordings, ahead):
            try:
                seconds, pieces = future.result() or encode(recording)
                yield from pieces
                encoded += seconds
            except (InputError, ValueError) as error:
                failed[recording.id] = str(error)
            bar.update()
            bar.set_postfix_str(f"{encoded / (time.monotonic() - begun):.0f} x real time")
    tell_set_aside(failed, what)
    if len(failed) == len(recordings):
        raise InputError(f"none of {len(failed)} recordings can be used ({next(iter(failed.values()))}); give others")


def in_order(
    pool: Executor, function: Callable[[Item], Result], items: Sequence[Item], ahead: int
) -> Iterator[tuple[Item, Future[Result]]]:
    """Items with what the pool makes of them, in order; no more than `ahead` results wait beside the one that is being used."""
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    for item in items:
        waiting.append((item, pool.submit(function, item)))
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting


def transfer_codebook(source: Path, encoder: str, codebook: Path, other: str, out: Path, options: TransferOptions) -> Codebook:
    """A codebook for the encoder `other` whose unit k means what unit k of `codebook`, made for `encoder`, means; once.

    Centroid k is the mean of the other encoder's features (same layer, same smoothing) over the frames of clean recordings that the
    old codebook gives unit k: one step of k-means from the old assignment. A linear head (`linear_head`) learns the old units of
    clean recordings from the features of these and of their distorted versions. The card keeps the share of clean frames that then
    have the same unit (`agreement`). Raises InputError where the encoders' frames do not fit each other, a unit never occurs, or
    options exclude each other.
    """
    linear = options.read_out == "linear"
    if options.distort and not linear:
        raise InputError("means are of clean speech; leave out --distort, or give --read-out linear")
    distort = (
        parse_distortions(options.distort, seed=options.seed, probability=(1, 1), snr=options.snr_range)
        if options.distort
        else None
    )
    check_out(out)
    old = load_codebook(codebook)
    before = load_features_of(old, encoder, options.precision, options.device)
    margin = before.margin if options.margin is None else options.margin
    after = load_features(other, before.layer, before.smooth, options.precision, options.device, margin)
    if before.grid != after.grid:
        raise InputError(f"{other} has other frames than {encoder}; fit a codebook for it with `speechssl units fit`")
    recordings, data = recordings_of(source, options.recordings, options.split, options.seed)
    card = after.card | data | {"carried_from": old.hash, "K": old.size, "seed": options.seed}
    if linear:
        card |= {"read_out": "linear head on the units of another encoder", "budget": options.budget}
        card |= {"distort": distort.card} if distort else {}
    if old.names[1:]:
        card["transferred_through"] = list(old.names[1:])
    if (made := made_before(out, card)) is not None:
        return made

    def pairs_of(recording: Recording) -> tuple[np.ndarray, list[np.ndarray]]:
        """(T,) old units; and features (T, D) of the other encoder, of clean and of distorted speech."""
        samples = read_audio(recording.path)
        units = old.assign(torch.cat(list(before.stream(samples))))
        versions = [samples] if distort is None else [samples, distort.apply(samples, recording.id)[0]]
        return units, [torch.cat(list(after.stream(version))).numpy() for version in versions]

    failed, used = {}, []
    counts, drawn = np.zeros(old.size), Reservoir(options.budget, options.seed)
    total: Any = 0.0
    workers = options.workers or len(os.sched_getaffinity(0))
    with single_threaded(workers) as pool:
        jobs = in_order(pool, pairs_of, recordings, workers)
        for recording, future in tqdm(jobs, total=len(recordings), desc="transferring units", unit="file"):
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
                used.append(recording)
            except (InputError, ValueError) as error:
                failed[recording.id] = str(error)
        tell_set_aside(failed, "transferring units")
        if not counts.all():
            missing = int((counts == 0).sum())
            raise InputError(f"{missing} of {old.size} units never occur in these recordings; give more of them with --recordings")
        if linear:
            weights, offsets = linear_head(drawn.sample[:, :-1], drawn.sample[:, -1].astype(int), old.size)
            found = Codebook(weights, card, offsets=offsets)
        else:
            found = Codebook((total / counts[:, None]).astype(np.float32), card)

        def same(recording: Recording) -> np.ndarray:
            """(T,) whether both codebooks give a frame of clean speech the same unit."""
            samples = read_audio(recording.path)
            return old.assign(torch.cat(list(before.stream(samples)))) == found.assign(torch.cat(list(after.stream(samples))))

        shared = np.concatenate([future.result() for _, future in in_order(pool, same, used[:50], workers)])
    transferred = replace(found, card=card | {"agreement": round(float(shared.mean()), 4)})
    transferred.save(out)
    return transferred


def linear_head(features: np.ndarray, units: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Multinomial logistic regression: features (N, D) -> units (N,). Weights (K, D) and offsets (K,) float32 of raw features.

    A unit of which no frame was drawn is never given.
    """
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.linear_model import LogisticRegression

    mean, scale = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64) + 1e-9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ITERATIONS are enough: more change one frame in a thousand
        fitted = LogisticRegression(max_iter=ITERATIONS).fit((features - mean) / scale, units)
    rows, intercepts = fitted.coef_ / scale, fitted.intercept_
    if len(fitted.classes_) == 2:  # has one row, whose sign decides
        rows, intercepts = np.concatenate([-rows, rows]), np.concatenate([-intercepts, intercepts])
    weights, offsets = np.zeros((size, features.shape[1])), np.full(size, -1e9)
    weights[fitted.classes_], offsets[fitted.classes_] = rows, intercepts - rows @ mean
    return weights.astype(np.float32), offsets.astype(np.float32)
