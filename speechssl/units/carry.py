"""A codebook carried over to another encoder: after continual pre-training the units keep their numbers and their meaning.

Fitting anew would give other units in another order, and what was trained on the old ones (DUAL's reader, a unit language model)
would have to be trained again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import read_audio
from speechssl.corpora.sources import Recording
from speechssl.errors import InputError, tell_set_aside
from speechssl.units.extract import single_threaded
from speechssl.units.features import Features, load_features, load_features_of
from speechssl.units.fit import in_order, recordings_of
from speechssl.units.kmeans import Codebook, check_out, load_codebook, made_before


@dataclass(frozen=True)
class CarryOptions:
    """recordings: how many are drawn (None: as `draw` in `fit`); device, precision: of the encoders."""

    recordings: int | None = None
    split: str = "train"
    precision: str = "fp32"
    device: str = "auto"
    workers: int = 2
    seed: int = 0


def carry_codebook(source: Path, encoder: str, codebook: Path, other: str, out: Path, options: CarryOptions) -> Codebook:
    """A codebook for the encoder `other` whose unit k means what unit k of `codebook`, made for `encoder`, means; once.

    Centroid k is the mean of the other encoder's features (same layer, same smoothing) over the frames of clean recordings that the
    old codebook gives unit k: one step of k-means from the old assignment. The card keeps the share of frames that then have the
    same unit (`agreement`). Raises InputError where the encoders' frames do not fit each other, or a unit never occurs.
    """
    check_out(out)
    old = load_codebook(codebook)
    before = load_features_of(old, encoder, options.precision, options.device)
    after = load_features(other, before.layer, before.smooth, options.precision, options.device)
    if before.grid != after.grid:
        raise InputError(f"{other} has other frames than {encoder}; fit a codebook for it with `speechssl units fit`")
    recordings, data = recordings_of(source, options.recordings, options.split, options.seed)
    card = after.card | data | {"carried_from": old.hash, "K": old.size, "seed": options.seed}
    if (made := made_before(out, card)) is not None:
        return made
    with single_threaded(options.workers) as pool:
        jobs = in_order(pool, lambda r: _sums(r, old, before, after), recordings, options.workers)
        carried, used = _carried(jobs, old, card, len(recordings))
        agreement = _agreement(pool, used[:50], old, carried, before, after, options.workers)
    carried = Codebook(carried.centroids, card | {"agreement": round(agreement, 4)})
    carried.save(out)
    return carried


def _sums(recording: Recording, old: Codebook, before: Features, after: Features) -> tuple[np.ndarray, np.ndarray]:
    """Of one recording: (K, D) sums of the other encoder's features by unit, and (K,) counts."""
    samples = read_audio(recording.path)
    units = old.assign(torch.cat(list(before.stream(samples))))
    features = torch.cat(list(after.stream(samples))).double().numpy()
    sums = np.zeros((old.size, features.shape[1]))
    np.add.at(sums, units, features)
    return sums, np.bincount(units, minlength=old.size)


def _carried(jobs: Any, old: Codebook, card: dict[str, Any], total: int) -> tuple[Codebook, list[Recording]]:
    """The codebook, and the recordings that it is of."""
    sums, counts, failed, used = 0.0, np.zeros(old.size), {}, []
    for recording, future in tqdm(jobs, total=total, desc="carrying units over", unit="file"):
        try:
            own, number = future.result()
            sums, counts = sums + own, counts + number
            used.append(recording)
        except (InputError, ValueError) as error:
            failed[recording.id] = str(error)
    tell_set_aside(failed, "carrying units over")
    if not counts.all():
        missing = int((counts == 0).sum())
        raise InputError(f"{missing} of {old.size} units never occur in these recordings; give more of them with --recordings")
    return Codebook((sums / counts[:, None]).astype(np.float32), card), used


def _agreement(
    pool: Any, recordings: Sequence[Recording], old: Codebook, new: Codebook, before: Features, after: Features, workers: int
) -> float:
    """Share of the frames of clean speech that both give the same unit."""

    def same(recording: Recording) -> np.ndarray:
        samples = read_audio(recording.path)
        return old.assign(torch.cat(list(before.stream(samples)))) == new.assign(torch.cat(list(after.stream(samples))))

    return float(np.concatenate([future.result() for _, future in in_order(pool, same, recordings, workers)]).mean())
