"""What pre-training learns from: recordings in one array, and the cluster of every frame, of MFCCs or of an encoder's layer.

Where the corpus has a reference reading (`reference.jsonl`), clusters are fitted on it and read off it through the time anchors,
so that one sound has one target whoever speaks; else they come from the recording itself, as published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import read_audio, to_int16
from speechssl.data.files import Recording, list_recordings
from speechssl.data.records import corpus_card, data_hash, load_corpus, read_lines
from speechssl.encoders.base import single_threaded
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import hash_files, read_json, replacing, write_json
from speechssl.pretrain.data import LabelledAudio
from speechssl.timing import FrameGrid
from speechssl.units.config import BUDGET, STARTS
from speechssl.units.features import Features
from speechssl.units.fit import Item, draw, frames_of, hash_contents
from speechssl.units.kmeans import Codebook, fit_kmeans

MOST = 32_767  # clusters, that int16 can count


@dataclass(frozen=True)
class Reading:
    """A recording to train on, and where its targets are read: an audio file, and the time in it for a time in the recording."""

    id: str
    path: Path  # the recording
    audio: Path  # where its targets are read
    anchors: np.ndarray | None  # (A, 2) seconds in the recording, seconds in `audio`; None: the recording itself

    def frames(self, grid: FrameGrid, count: int, teacher_frames: int) -> np.ndarray:
        """(count,) int: the teacher's frame for each of the recording's `count` frames."""
        own = np.arange(count)
        if self.anchors is None:
            return np.minimum(own, teacher_frames - 1)
        middle = grid.offset + grid.hop // 2
        seconds = (own * grid.hop + middle) / grid.sample_rate
        there = np.interp(seconds, self.anchors[:, 0], self.anchors[:, 1])
        return np.clip(np.round((there * grid.sample_rate - middle) / grid.hop).astype(int), 0, teacher_frames - 1)


@dataclass(frozen=True)
class Material:
    """What is trained on."""

    readings: tuple[Reading, ...]
    hash: str  # of a prepared corpus, of its manifests; else of the ids and bytes of the recordings
    card: dict[str, Any]  # of the corpus, where there is one


def material(source: Path, recordings: int | None = None, reference: bool = True, seed: int = 0) -> Material:
    """The passages of a prepared corpus's training split, or the recordings of a manifest or folder.

    recordings: only so many, drawn at random by the seed (`units.fit.draw`): lists are in the order of speakers. reference: read
    targets off the corpus's reference readings where it has them.
    Raises InputError for a source that is none of these, or is empty.
    """

    def some(every: list[Item]) -> list[Item]:
        return draw(every, seed, count=recordings)[0] if recordings else every[:recordings]  # all, or none of them

    if not any(source.glob("*/passages.jsonl")):
        found = some(list_recordings(source))
        if not found:
            raise InputError(f"there are no recordings to train on in {recordings} of {source}; give more")
        path = source.with_suffix(".reference.jsonl")
        known = _reference_readings(source.parent, path) if reference and path.is_file() and source.is_file() else {}
        readings = tuple(Reading(r.id, r.path, *known.get(r.id, (r.path, None))) for r in found)
        return Material(readings, hash_contents(found) + (f"-{hash_files([path])}" if known else ""), {"corpus": source.name})
    data = load_corpus(source, "train")
    path = source / "train" / "reference.jsonl"
    known = _reference_readings(source, path) if reference and path.is_file() else {}
    chosen = some(list(data.passages.values()))
    if not chosen:
        raise InputError(f"{source / 'train'} has no passages to train on; prepare the corpus with some")
    readings = tuple(Reading(p.id, data.path(p), *known.get(p.id, (data.path(p), None))) for p in chosen)
    made = data_hash(source, "train") + ("" if recordings is None else f"-{recordings}-{seed}")
    return Material(readings, made, corpus_card(source))


def _reference_readings(corpus: Path, path: Path) -> dict[str, tuple[Path, np.ndarray]]:
    """Passage id -> audio and anchors, of every line of reference.jsonl."""
    found = {}
    for number, values in read_lines(path):
        try:
            name, audio, anchors = values["id"], corpus / values["audio"], np.array(values["anchors"], float)
            if anchors.ndim != 2 or anchors.shape[1] != 2 or not len(anchors) or not np.isfinite(anchors).all():
                raise ValueError(f"anchors of the shape {anchors.shape}")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}:{number} is not a reference reading ({error!r}); prepare the corpus again") from error
        if not audio.is_file():
            raise InputError(f"{path}:{number} names {audio}, which does not exist; prepare the corpus again")
        found[name] = audio, anchors
    return found


def packed(hash_of_data: str, out: Path) -> Path:
    """Where the training audio of a run in `out` lies in one array: beside it, for runs that share it."""
    return out.parent / f"packed-{hash_of_data}"


def pack_audio(readings: Sequence[Reading], out: Path, made_from: dict[str, Any], workers: int = 2) -> None:
    """Write all training audio into one raw array, `out`/samples.s16 (int16), with bounds and card; once."""
    if (out / "card.json").is_file() and read_json(out / "card.json") == made_from:
        return
    bounds, failed = [0], {}

    def read(reading: Reading) -> np.ndarray | str:
        try:
            return to_int16(read_audio(reading.path))
        except InputError as error:
            return str(error)

    with replacing(out / "samples.s16") as temporary, temporary.open("wb") as file:
        for reading, samples in zip(readings, _progress(read, readings, workers, "packing audio"), strict=True):
            if isinstance(samples, str):
                failed[reading.id] = samples
            else:
                file.write(samples.tobytes())
            bounds.append(bounds[-1] + (0 if isinstance(samples, str) else len(samples)))
    tell_set_aside(failed, "packing audio")
    if bounds[-1] == 0:
        raise InputError(f"none of {len(readings)} recordings can be read ({next(iter(failed.values()))}); give others")
    _save(out / "bounds.npy", np.array(bounds))
    write_json(out / "card.json", made_from)


def fit_targets(
    readings: Sequence[Reading],
    features: Features,
    clusters: int,
    seed: int = 0,
    share: float | None = None,
    budget: int = BUDGET,
    starts: int = STARTS,
    workers: int = 2,
) -> Codebook:
    """K-means on the features of recordings drawn at random by the seed, as HuBERT does on 10 % of them (arXiv 2106.07447, section
    IV-A); share: see `units.fit.draw`. `budget` of their frames are kept, where fairseq keeps all.

    The card says how many recordings were drawn from how many. Recordings that cannot be used are listed and left out. Raises
    InputError where none is left, for a share that cannot be drawn, and for more clusters than labels can name.
    """
    _check_clusters(clusters)
    chosen, drawn = draw(readings, seed, share)
    card = features.card | drawn | {"reference_reading": any(r.anchors is not None for r in chosen)}
    with single_threaded(workers) as pool:
        frames = frames_of([Recording(r.id, r.audio) for r in chosen], features, pool, workers)
        return fit_kmeans(frames, clusters, card, budget, seed, starts)


def write_targets(
    readings: Sequence[Reading],
    out: Path,
    grid: FrameGrid,
    features: Callable[[np.ndarray], torch.Tensor],
    codebook: Codebook,
    lengths: Sequence[int],
    made_from: dict[str, Any],
    workers: int = 2,
) -> None:
    """Write `out`/labels.npy (int16, all frames of all recordings in order) with its bounds and card; once.

    features: (N,) samples -> (T, D). lengths: samples of every recording as `pack_audio` found it, 0 for those it set aside.
    Raises InputError for labels at another rate than the frames they are for, and where hardly any cluster is used.
    """
    _check_clusters(codebook.size)
    rate = codebook.card.get("frame_rate", grid.frame_rate)
    if rate != grid.frame_rate:
        raise InputError(
            f"the targets have {rate:g} labels a second and the encoder {grid.frame_rate:g} frames; "
            f"give a teacher or codebook of {grid.frame_rate:g} a second"
        )
    made_from = {"codebook": codebook.hash} | made_from
    if (out / "card.json").is_file() and made_from.items() <= read_json(out / "card.json").items():
        return
    failed: dict[str, str] = {}

    def label(item: tuple[Reading, int]) -> np.ndarray:
        reading, length = item
        frames = grid.frames(length)
        if frames == 0:
            return np.zeros(0, np.int16)
        try:
            clusters = codebook.assign(features(read_audio(reading.audio)))
        except (InputError, ValueError) as error:  # without labels no crop is taken from it
            failed[reading.id] = str(error)
            return np.zeros(0, np.int16)
        return clusters[reading.frames(grid, frames, len(clusters))].astype(np.int16)

    labels = list(_progress(label, list(zip(readings, lengths, strict=True)), workers, "targets"))
    tell_set_aside(dict(sorted(failed.items())), "targets")
    used = len(np.unique(np.concatenate(labels[:50])))
    if used < min(5, codebook.size):  # a broken pipeline, and a model that would train to perfection on nothing
        raise InputError(
            f"the targets of the first passages use only {used} of {codebook.size} clusters; check the features of the teacher"
        )
    _save(out / "labels.npy", np.concatenate(labels))
    _save(out / "bounds.npy", np.cumsum([0] + [len(x) for x in labels]))
    write_json(out / "card.json", made_from | {"frame_rate": grid.frame_rate, "card": codebook.card})


def load_labelled(audio: Path, targets: Path) -> LabelledAudio:
    """What `pack_audio` and `write_targets` wrote, memory-mapped."""
    return LabelledAudio(
        np.memmap(audio / "samples.s16", np.int16, "r"),
        np.load(audio / "bounds.npy"),
        np.load(targets / "labels.npy"),
        np.load(targets / "bounds.npy"),
    )


def _progress(function: Callable, items: Sequence, workers: int, what: str) -> Iterator:
    with ThreadPoolExecutor(workers) as pool:
        yield from tqdm(pool.map(function, items), total=len(items), desc=what, unit="file")


def _save(path: Path, array: np.ndarray) -> None:
    with replacing(path) as temporary:
        np.save(temporary, array)


def _check_clusters(clusters: int) -> None:
    if clusters > MOST:
        raise InputError(f"{clusters} clusters are too many; give at most {MOST} with --clusters")
