"""Targets for pre-training: the cluster of every frame, from MFCCs (iteration 1) or from an encoder's layer (iteration 2).

Where the corpus has a reference reading (`reference.jsonl`), clusters are fitted on it and read off it through the time anchors,
so that one sound has one target whoever speaks; else they come from the recording itself, as published.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from speechssl.artefacts import read_json, replacing, write_json
from speechssl.audio import read_audio
from speechssl.corpora.records import Passage, data_hash, load_corpus
from speechssl.encoders.pretraining import LabelledAudio
from speechssl.timing import FrameGrid
from speechssl.units.kmeans import Codebook, fit_kmeans

Features = Callable[[np.ndarray], torch.Tensor]  # (N,) samples -> (T, D)


@dataclass(frozen=True)
class Teacher:
    """Where a passage's targets are read: an audio file, and the time in it for a time in the passage."""

    passage: Passage
    audio: Path
    anchors: np.ndarray | None  # (A, 2) seconds in the passage, seconds in `audio`; None: the passage itself

    def frames(self, grid: FrameGrid, count: int, teacher_frames: int) -> np.ndarray:
        """The teacher's frame for each of the passage's `count` frames."""
        own = np.arange(count)
        if self.anchors is None:
            return np.minimum(own, teacher_frames - 1)
        middle = grid.offset + grid.hop // 2
        seconds = (own * grid.hop + middle) / grid.sample_rate
        there = np.interp(seconds, self.anchors[:, 0], self.anchors[:, 1])
        return np.clip(np.round((there * grid.sample_rate - middle) / grid.hop).astype(int), 0, teacher_frames - 1)


def teachers(corpus: Path, split: str = "train") -> list[Teacher]:
    """One teacher a passage: its reference reading where there is one, else itself."""
    data = load_corpus(corpus, split)
    path = corpus / split / "reference.jsonl"
    readings = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    known = {r["id"]: (corpus / r["audio"], np.array(r["anchors"])) for r in readings}
    return [Teacher(p, *known.get(p.id, (data.path(p), None))) for p in data.passages.values()]


def fit_targets(corpus: Path, features: Features, clusters: int, card: dict, seed: int = 0, passages: int = 400) -> Codebook:
    """K-means on the teachers of the first `passages` passages (about 10 % of the data is enough: section IV-A)."""
    chosen = teachers(corpus)[:passages]
    stream = (features(read_audio(t.audio)).numpy() for t in tqdm(chosen, desc="features for k-means", unit="file"))
    return fit_kmeans(stream, clusters, card | {"reference_reading": chosen[0].anchors is not None}, seed=seed)


def write_targets(corpus: Path, out: Path, grid: FrameGrid, features: Features, codebook: Codebook, workers: int = 2) -> None:
    """Write `out`/labels.npy (int16, all frames of all passages in manifest order) with its bounds and card; once."""
    made_from = {"codebook": codebook.hash, "corpus": data_hash(corpus)}
    if (out / "card.json").is_file() and made_from.items() <= read_json(out / "card.json").items():
        return

    def label(teacher: Teacher) -> np.ndarray:
        frames = grid.frames(round(teacher.passage.seconds * grid.sample_rate))
        clusters = codebook.assign(features(read_audio(teacher.audio)))
        return clusters[teacher.frames(grid, frames, len(clusters))].astype(np.int16)

    labels = list(_progress(label, teachers(corpus), workers, "targets"))
    _guard(labels)
    _save(out / "labels.npy", np.concatenate(labels))
    _save(out / "bounds.npy", np.cumsum([0] + [len(x) for x in labels]))
    write_json(out / "card.json", made_from | {"frame_rate": grid.frame_rate, "card": codebook.card})


def pack_audio(corpus: Path, out: Path, workers: int = 2) -> None:
    """Write all training audio into one memory-mapped array, `out`/samples.npy (int16), with bounds and card; once."""
    made_from = {"corpus": data_hash(corpus)}
    if (out / "card.json").is_file() and read_json(out / "card.json") == made_from:
        return
    data = load_corpus(corpus, "train")
    paths = [data.path(p) for p in data.passages.values()]
    lengths = [round(p.seconds * 16_000) for p in data.passages.values()]
    bounds = np.cumsum([0] + lengths)
    with replacing(out / "samples.npy") as temporary:
        array = np.lib.format.open_memmap(temporary, "w+", np.int16, (int(bounds[-1]),))
        whole = _progress(lambda path: np.round(read_audio(path) * 32767).astype(np.int16), paths, workers, "packing audio")
        for first, last, samples in zip(bounds[:-1], bounds[1:], whole, strict=True):
            array[first:last] = samples
        array.flush()
    _save(out / "bounds.npy", bounds)
    write_json(out / "card.json", made_from)


def load_labelled(audio: Path, targets: Path) -> LabelledAudio:
    """What `pack_audio` and `write_targets` wrote, memory-mapped."""
    return LabelledAudio(
        np.load(audio / "samples.npy", mmap_mode="r"),
        np.load(audio / "bounds.npy"),
        np.load(targets / "labels.npy"),
        np.load(targets / "bounds.npy"),
    )


def _progress(function: Callable, items: list, workers: int, what: str) -> Iterator:
    with ThreadPoolExecutor(workers) as pool:
        yield from tqdm(pool.map(function, items), total=len(items), desc=what, unit="file")


def _save(path: Path, array: np.ndarray) -> None:
    with replacing(path) as temporary:
        np.save(temporary, array)


def _guard(labels: list[np.ndarray]) -> None:
    """All labels equal means a broken pipeline, and a model that would train to perfection on nothing."""
    used = np.unique(np.concatenate(labels[:50]))
    if len(used) < 5:
        raise ValueError(f"the targets of the first passages use only {len(used)} clusters; look at the features")
