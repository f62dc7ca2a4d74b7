"""What pre-training learns from: recordings in one array, the cluster of every frame, and batches
of random crops.

Letters: B crops, N samples, T frames.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from speechssl.audio import read_audio, to_int16
from speechssl.augment.training import TrainingDistortions
from speechssl.data.files import Recording, draw, hash_contents, recordings_of
from speechssl.data.records import corpus_card, data_hash
from speechssl.encoders.load import single_threaded
from speechssl.errors import InputError, report_set_aside
from speechssl.io import (
    check_inside,
    hash_files,
    read_json,
    read_lines,
    replacing,
    write_json,
)
from speechssl.pretrain.options import Batches, Masks, Targets
from speechssl.processes import is_main, processes
from speechssl.timing import FrameGrid
from speechssl.trainer import Batch
from speechssl.units.features import Features, stream_frames
from speechssl.units.kmeans import Codebook, fit_kmeans

# ---- recordings and targets
#
# Targets are clusters of MFCCs or of an encoder's layer. Where the corpus has a reference reading
# (reference.jsonl), they are fitted on it and read off it through the time anchors, so that one
# sound has one target whoever speaks; else they come from the recording itself, as published.

WORKERS = 2  # threads that read and label; no file depends on it
MOST = 32_767  # clusters, that int16 can count


@dataclass(frozen=True)
class TrainingRecording:
    """A recording to train on, and where its targets are read: an audio file, and the time in it
    for a time in the recording."""

    id: str
    path: Path  # the recording
    audio: Path  # where its targets are read
    # (A, 2) seconds in the recording, seconds in `audio`; None: the recording itself
    anchors: np.ndarray | None

    def frames(self, grid: FrameGrid, count: int, teacher_frames: int) -> np.ndarray:
        """(count,) int: the teacher's frame for each of the recording's `count` frames."""
        frames = np.arange(count)
        if self.anchors is None:
            return np.minimum(frames, teacher_frames - 1)
        middle = grid.offset + grid.hop // 2
        seconds = (frames * grid.hop + middle) / grid.sample_rate
        teacher_seconds = np.interp(seconds, self.anchors[:, 0], self.anchors[:, 1])
        return np.clip(
            np.round((teacher_seconds * grid.sample_rate - middle) / grid.hop).astype(int),
            0,
            teacher_frames - 1,
        )


@dataclass(frozen=True)
class TrainingData:
    """What is trained on."""

    recordings: tuple[TrainingRecording, ...]
    hash: str  # of a prepared corpus, of its manifests; else of the ids and bytes of the recordings
    card: dict[str, Any]  # of the corpus, where there is one


def training_data(
    source: Path, recordings: int | None = None, reference: bool = True, seed: int = 0
) -> TrainingData:
    """The passages of a prepared corpus's training split, or the recordings of a manifest or
    folder.

    recordings: only so many, drawn at random by the seed (`draw`): lists are in the order of
    speakers. reference: read targets off the reference readings: train/reference.jsonl of a corpus,
    NAME.reference.jsonl beside a manifest NAME.txt.
    Raises InputError for a source that is none of these, or is empty.
    """
    is_corpus = any(source.glob("*/passages.jsonl"))
    selected = recordings_of(source, "train")
    if recordings is not None:
        selected = draw(selected, seed, count=recordings)[0]
    path = (
        source / "train" / "reference.jsonl"
        if is_corpus
        else source.with_suffix(".reference.jsonl")
    )
    root = source if is_corpus else source.parent
    readings: dict[str, tuple[Path, np.ndarray]] = {}  # id of a recording -> audio and anchors
    if reference and path.is_file() and (is_corpus or source.is_file()):
        for number, values in read_lines(path):
            try:
                check_inside(root, values["audio"], f"{path}:{number}")
                name, audio = values["id"], root / values["audio"]
                if not isinstance(name, str):
                    raise TypeError(f"the id {name}")
                anchors = np.array(values["anchors"], float)
                if (
                    anchors.ndim != 2
                    or anchors.shape[1] != 2
                    or not len(anchors)
                    or not np.isfinite(anchors).all()
                ):
                    raise ValueError(f"anchors of the shape {anchors.shape}")
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"{path}:{number} is not a reference reading ({error!r}); "
                    "prepare the corpus again"
                ) from error
            if not audio.is_file():
                raise InputError(
                    f"{path}:{number} names {audio}, which does not exist; prepare the corpus again"
                )
            readings[name] = audio, anchors
    chosen = tuple(
        TrainingRecording(r.id, r.path, *readings.get(r.id, (r.path, None))) for r in selected
    )
    if is_corpus:
        data_id = data_hash(source, "train") + (
            "" if recordings is None else f"-{recordings}-{seed}"
        )
        return TrainingData(chosen, data_id, corpus_card(source))
    return TrainingData(
        chosen,
        hash_contents(selected) + (f"-{hash_files([path])}" if readings else ""),
        {"corpus": source.name},
    )


def _is_made_from(folder: Path, inputs: Mapping[str, Any]) -> bool:
    """Whether a folder is finished and its card names these inputs."""
    card = folder / "card.json"
    return card.is_file() and inputs.items() <= read_json(card).items()


def pack_audio(data: TrainingData, out: Path) -> Path:
    """The folder of a run's audio: one raw array, samples.s16 (int16), with bounds.npy; written
    once, beside `out`, for all runs.

    Raises InputError where no recording can be read.
    """
    folder, made_from = out.parent / f"packed-{data.hash}", {"corpus": data.hash}
    if _is_made_from(folder, made_from):
        return folder
    bounds, failed = [0], {}

    def read(recording: TrainingRecording) -> np.ndarray | str:
        try:
            return to_int16(read_audio(recording.path))
        except InputError as error:
            return str(error)

    with replacing(folder / "samples.s16") as temporary, temporary.open("wb") as file:
        for recording, samples in zip(
            data.recordings, _progress(read, data.recordings, "packing audio"), strict=True
        ):
            if isinstance(samples, str):
                failed[recording.id] = samples
            else:
                file.write(samples.tobytes())
            bounds.append(bounds[-1] + (0 if isinstance(samples, str) else len(samples)))
    report_set_aside(failed, "packing audio")
    if bounds[-1] == 0:
        raise InputError(
            f"none of {len(data.recordings)} recordings can be read "
            f"({next(iter(failed.values()))}); give others"
        )
    _save(folder / "bounds.npy", np.array(bounds))
    write_json(folder / "card.json", made_from)
    return folder


def fit_targets(
    recordings: Sequence[TrainingRecording],
    features: Features,
    targets: Targets,
    seed: int = 0,
) -> Codebook:
    """K-means on the features of recordings drawn at random by the seed, as HuBERT does on 10 % of
    them (arXiv 2106.07447, section IV-A). `targets.budget` of their frames are kept, where fairseq
    keeps all.

    The card says how many recordings were drawn from how many. Recordings that cannot be used are
    listed and left out. Raises InputError where none is left, for a share that cannot be drawn, and
    for more clusters than labels can name.
    """
    _check_clusters(targets.clusters)
    chosen, drawn = draw(recordings, seed, targets.share)
    card = features.card | drawn | {"reference_reading": any(r.anchors is not None for r in chosen)}
    with single_threaded(WORKERS) as pool:
        frames = stream_frames([Recording(r.id, r.audio) for r in chosen], features, pool, WORKERS)
        return fit_kmeans(frames, targets.clusters, card, targets.budget, seed, targets.starts)


def write_targets(
    recordings: Sequence[TrainingRecording],
    out: Path,
    grid: FrameGrid,
    features: Features,
    codebook: Codebook,
    lengths: Sequence[int],
    made_from: dict[str, Any],
) -> None:
    """Write `out`/labels.npy (int16, all frames of all recordings in order) with its bounds and
    card; once.

    lengths: samples of every recording as `pack_audio` found it, 0 for those it set aside.
    Raises InputError for labels at another rate than the frames they are for, and where hardly any
    cluster is used.
    """
    _check_clusters(codebook.size)
    rate = codebook.card.get("frame_rate", grid.frame_rate)
    if rate != grid.frame_rate:
        raise InputError(
            f"the targets have {rate:g} labels a second and the encoder {grid.frame_rate:g} "
            "frames; "
            f"give a teacher or codebook of {grid.frame_rate:g} a second"
        )
    made_from = {"codebook": codebook.hash} | made_from
    if _is_made_from(out, made_from):
        return
    failed: dict[str, str] = {}
    uses = Counter(recording.audio for recording in recordings)

    def assigned(audio: Path) -> np.ndarray:
        return codebook.assign(torch.cat(list(features.stream(read_audio(audio))))).astype(np.int16)

    shared = cache(assigned)  # a reference reading that several recordings are labelled by

    def label(item: tuple[TrainingRecording, int]) -> np.ndarray:
        recording, length = item
        frames = grid.frames(length)
        if frames == 0:
            return np.zeros(0, np.int16)
        try:
            clusters = (shared if uses[recording.audio] > 1 else assigned)(recording.audio)
        except (InputError, ValueError) as error:  # without labels no crop is taken from it
            failed[recording.id] = str(error)
            return np.zeros(0, np.int16)
        return clusters[recording.frames(grid, frames, len(clusters))]

    labels = list(_progress(label, list(zip(recordings, lengths, strict=True)), "targets"))
    report_set_aside(dict(sorted(failed.items())), "targets")
    used = len(np.unique(np.concatenate(labels[:50])))
    # a broken pipeline, and a model that would train to perfection on nothing
    if used < min(5, codebook.size):
        raise InputError(
            f"the targets of the first passages use only {used} of {codebook.size} clusters; "
            "check the features of the teacher"
        )
    _save(out / "labels.npy", np.concatenate(labels))
    _save(out / "bounds.npy", np.cumsum([0] + [len(x) for x in labels]))
    write_json(
        out / "card.json",
        made_from | {"frame_rate": grid.frame_rate, "card": codebook.card},
    )


def _progress(function: Callable, items: Sequence, what: str) -> Iterator:
    with ThreadPoolExecutor(WORKERS) as pool:
        yield from tqdm(pool.map(function, items), total=len(items), desc=what, unit="file")


def _save(path: Path, array: np.ndarray) -> None:
    with replacing(path) as temporary:
        np.save(temporary, array)


def _check_clusters(clusters: int) -> None:
    if clusters > MOST:
        raise InputError(f"{clusters} clusters are too many; give at most {MOST} with --clusters")


@dataclass(frozen=True)
class LabelledAudio:
    """A corpus in one array: samples (S,) int16 and labels (F,) int16, with the bounds of every
    utterance in both."""

    samples: np.ndarray
    sample_bounds: np.ndarray  # (utterances + 1,)
    labels: np.ndarray
    label_bounds: np.ndarray

    @classmethod
    def load(cls, audio: Path, targets: Path | FrameGrid) -> LabelledAudio:
        """What `pack_audio` and `write_targets` wrote, memory-mapped; with a grid in the place of
        targets all labels are 0."""
        samples, bounds = (
            np.memmap(audio / "samples.s16", np.int16, "r"),
            np.load(audio / "bounds.npy"),
        )
        if isinstance(targets, Path):
            return cls(
                samples, bounds, np.load(targets / "labels.npy"), np.load(targets / "bounds.npy")
            )
        frames = np.cumsum([0] + [targets.frames(int(n)) for n in np.diff(bounds)])
        return cls(samples, bounds, np.broadcast_to(np.int16(0), frames[-1:]), frames)


# ---- crops
#
# Those of a batch are equally long. Recordings that are longer than a crop are cut to it; shorter
# ones go into batches of their own, of shorter and correspondingly more crops, so that a batch is
# about the same seconds of audio: what fairseq's `max_tokens` does with utterances of like length
# that are cut to the shortest of them.
# Where the encoder wants normalised input, a crop is normalised by mean and variance of its whole
# recording, as in fairseq and as the finished encoder gets its input (`SpeechEncoder.wave`).

# seconds of a crop; both papers' settings in fairseq leave out shorter recordings
# (`min_sample_size` 32,000)
SHORTEST = 2.0
ALIKE = 1.1  # the longest over the shortest of a bucket, so that little of the longest is cut away
# the same of a bucket that grows because it would not fill a batch: rather cut than repeat, within
# limits
APART = 1.5
NO_LABEL = -1
FLOOR = 1e-7  # beside a variance, as in transformers' feature extractor


def span_mask(rng: np.random.Generator, frames: int, probability: float, length: int) -> np.ndarray:
    """(T,) bool; frames * probability / length spans of `length` frames, at least two, that may
    overlap (fairseq's rule; HuBERT: 0.80, length 10)."""
    count = max(int(frames * probability / length + rng.random()), 2)
    places = max(frames - length, 1)
    mask = np.zeros(frames, bool)
    for start in rng.choice(places, size=min(count, places), replace=False):
        mask[start : start + length] = True
    return mask


def cut_to_same(rng: np.random.Generator, masks: np.ndarray) -> np.ndarray:
    """(B, T) bool -> (B, T) bool: every row with as many masked frames as the row that has fewest;
    single frames are drawn.

    fairseq's `require_same_masks`, on in its HuBERT and wav2vec 2.0. Its rows are those of one GPU,
    these those of the whole batch.
    """
    fewest = int(masks.sum(axis=1).min())
    cut = np.zeros_like(masks)
    for row, mask in zip(cut, masks, strict=True):
        row[rng.choice(np.flatnonzero(mask), fewest, replace=False)] = True
    return cut


@dataclass(frozen=True)
class Bucket:
    """What a batch is drawn from: the numbers of its recordings, none shorter than a crop, and the
    batch's shape."""

    recordings: np.ndarray
    frames: int  # of a crop
    crops: int  # of a batch


def shortest_crop(frames: int, frame_rate: float) -> int:
    """Frames of the shortest crop where the longest has `frames`: a recording that is shorter than
    it is never used."""
    return min(frames, round(SHORTEST * frame_rate))


def buckets(counts: np.ndarray, frames: int, crops: int, shortest: int) -> list[Bucket]:
    """Those with shorter crops in order of length, then the one with crops of full length; none
    where all are too short.

    counts: (recordings,) frames of every recording. frames, crops: of a batch of full length.
    shortest: of the shortest crop.
    """
    short = np.flatnonzero((counts >= shortest) & (counts < frames))
    short = short[np.argsort(counts[short], kind="stable")]
    # Fewer rows, by under a quarter of `crops`, that 2, 4, 8 ... processes can share: one process
    # takes as many, so that a batch stays the same. Another number of processes, or a larger one,
    # leaves out what it cannot share.
    unit = math.lcm(math.gcd(crops, 1 << max((crops // 4).bit_length() - 1, 0)), processes())
    buckets = []
    while len(short):
        lengths = counts[short]
        length = int(lengths[0])
        rows = frames * crops // length // unit * unit
        alike, apart = np.searchsorted(lengths, lengths[0] * np.array([ALIKE, APART]), "right")
        size = min(max(alike, rows), apart)
        buckets.append(Bucket(short[:size], length, rows))
        short = short[size:]
    long = np.flatnonzero(counts >= frames)
    return buckets + ([Bucket(long, frames, crops)] if len(long) else [])


@dataclass(frozen=True)
class Cropper:
    """Batches of random crops, a function of (seed, step) only.

    A batch is drawn from recordings of like length (`buckets`): where none is shorter than
    `crop_seconds`, from all of them.
    Labels are always those of the clean signal. With `distort` the encoder gets a distorted crop,
    and the batch says which domain it is of; with `clean` the batch holds the undistorted crops,
    too, for a teacher.
    With `normalise` a crop that is left as it is equals the same samples of the normalised
    recording. One that is silenced or distorted is normalised as though its whole recording had
    been changed as it was: only the crop is distorted, and its mean and variance before and after
    say by how much those of the recording change.
    """

    data: LabelledAudio
    grid: FrameGrid
    masks: Masks
    batches: Batches
    seed: int = 0
    normalise: bool = True  # as the encoder wants its input
    distort: TrainingDistortions | None = None
    clean: bool = False
    horizon: int = 1  # updates over which the schedules of the distortions run
    accumulation: int = 1  # batches an update
    # share of the crops of which a part is silenced, before they are distorted
    silence: float = 0.0
    # what makes a second version of every crop, which is then distorted by itself
    second: TrainingDistortions | None = None

    def __call__(self, step: int) -> Batch:
        """samples (B, N), normalised; labels (B, T) and mask (B, T); with distortions the domains
        (B,), which update it is, how much of the training has passed, 0 to 1, and perhaps
        clean_samples (B, N); with a second version `second` (B, N) and which update it is."""
        rng = np.random.default_rng([self.seed, step])
        bucket = self._draw_bucket(rng)
        frames = bucket.frames
        recordings = rng.choice(bucket.recordings, size=bucket.crops)
        crops = [self._crop(rng, int(i), frames) for i in recordings]
        stacked = partial(self._stacked, recordings, [crop for crop, _ in crops])
        if self.silence:
            crops = [self._silenced(rng, *crop) for crop in crops]
        span = self.masks.mask_probability, self.masks.mask_length
        masks = np.stack([span_mask(rng, frames, *span) for _ in crops])
        if self.masks.same_masks:
            masks = cut_to_same(rng, masks)
        batch = {
            "labels": torch.from_numpy(np.stack([labels for _, labels in crops])),
            "mask": torch.from_numpy(masks),
        }
        samples = [crop for crop, _ in crops]
        progress = min(step / max(self.horizon * self.accumulation, 1), 1.0)
        if self.second is not None:
            others = [
                self.second.apply(crop, (self.seed, step, row, 1), progress)[0]
                for row, crop in enumerate(samples)
            ]
            if self.distort is not None:
                others = [
                    self.distort.apply(crop, (self.seed, step, row, 2), progress)[0]
                    for row, crop in enumerate(others)
                ]
            batch |= {"second": stacked(others), "step": torch.tensor(step // self.accumulation)}
        if self.distort is None:
            return {"samples": stacked(samples)} | batch
        pairs = [
            self.distort.apply(crop, (self.seed, step, row), progress)
            for row, crop in enumerate(samples)
        ]
        batch |= {
            "samples": stacked([distorted for distorted, _ in pairs]),
            "domains": torch.tensor([domain for _, domain in pairs]),
            "progress": torch.tensor(progress),
            "step": torch.tensor(step // self.accumulation),
        }
        return batch | ({"clean_samples": stacked(samples)} if self.clean else {})

    @property
    def card(self) -> dict[str, str]:
        """It says over what the input was normalised, for the card of an encoder."""
        return {"normalised_over": "recording"} if self.normalise else {}

    def audio_seconds(self, step: int) -> float:
        """Seconds of speech in the batch of this step."""
        bucket = self._draw_bucket(np.random.default_rng([self.seed, step]))
        return bucket.crops * bucket.frames / self.grid.frame_rate

    @cached_property
    def _buckets(self) -> list[Bucket]:
        frames = round(self.batches.crop_seconds * self.grid.frame_rate)
        shortest = shortest_crop(frames, self.grid.frame_rate)
        counts = np.diff(self.data.label_bounds)
        by_length = buckets(counts, frames, self.batches.crops, shortest)
        if not by_length:
            raise InputError(_too_short(shortest / self.grid.frame_rate))
        return by_length

    def _draw_bucket(self, rng: np.random.Generator) -> Bucket:
        """In proportion to its batches, so that every recording is used equally often, as in
        fairseq's epochs.

        Where there is no choice, no number is drawn either.
        """
        if len(self._buckets) == 1:
            return self._buckets[0]
        weights = np.array([len(bucket.recordings) / bucket.crops for bucket in self._buckets])
        return self._buckets[rng.choice(len(weights), p=weights / weights.sum())]

    def _crop(
        self, rng: np.random.Generator, index: int, frames: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Samples (N,) float32 of full scale 1, labels (T,) int64."""
        first, last = self.data.label_bounds[index : index + 2]
        frame = int(rng.integers(last - first - frames + 1))
        start = int(self.data.sample_bounds[index]) + frame * self.grid.hop
        samples = (
            self.data.samples[start : start + self.grid.samples_for(frames)].astype(np.float32)
            / 32768
        )
        return samples, self.data.labels[first + frame : first + frame + frames].astype(np.int64)

    def _silenced(
        self, rng: np.random.Generator, samples: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Perhaps with silence before and after, as short recordings have it, three quarters at
        most; noise is added there too.

        Frames that see any of it have no label (-1): the targets know nothing of it.
        """
        if rng.random() >= self.silence:
            return samples, labels
        silent = rng.uniform(0, 0.75) * len(samples)
        first = int(silent * rng.random())
        last = len(samples) - int(silent) + first
        starts = np.arange(len(labels)) * self.grid.hop
        unseen = (starts < first) | (starts + self.grid.receptive > last)
        samples = np.concatenate(
            [
                np.zeros(first, np.float32),
                samples[first:last],
                np.zeros(len(samples) - last, np.float32),
            ]
        )
        return samples, np.where(unseen, NO_LABEL, labels)

    def _stacked(
        self, recordings: np.ndarray, crops: list[np.ndarray], made: list[np.ndarray]
    ) -> torch.Tensor:
        """(B, N), normalised where that is wanted. made: of the crops as they were cut from the
        recordings."""
        if self.normalise:
            made = [self._normalised(*row) for row in zip(recordings, crops, made, strict=True)]
        return torch.from_numpy(np.stack(made))

    def _normalised(self, recording: int, crop: np.ndarray, made: np.ndarray) -> np.ndarray:
        """What was made of a crop, with mean and variance of its recording, changed as those of the
        crop were."""
        mean, variance = self._moments(int(recording))
        (mean_before, before), (mean_after, after) = map(moments, (crop, made))
        mean += mean_after - mean_before
        variance *= (after + FLOOR) / (before + FLOOR)
        return (made - np.float32(mean)) * np.float32(1 / np.sqrt(variance + FLOOR))

    def _moments(self, recording: int) -> tuple[float, float]:
        """Mean and variance of a recording, of full scale 1. They are kept: it is drawn again."""
        if recording not in self._known_moments:
            first, last = self.data.sample_bounds[recording : recording + 2]
            mean, variance = moments(self.data.samples[first:last])
            self._known_moments[recording] = mean / 32768, variance / 32768**2
        return self._known_moments[recording]

    @cached_property
    def _known_moments(self) -> dict[int, tuple[float, float]]:
        return {}


def moments(samples: np.ndarray) -> tuple[float, float]:
    """Mean and variance, in float64 as `SpeechEncoder.wave` computes them."""
    samples = samples.astype(np.float64)
    mean = samples.mean()
    return float(mean), float(max(np.square(samples).mean() - mean**2, 0.0))


def check_crops(lengths: Sequence[int], grid: FrameGrid, crop_seconds: float) -> None:
    """Report on stderr how many recordings are too short for the shortest crop. Raises InputError
    where all are.

    lengths: samples of every recording, 0 for those that were set aside.
    """
    hours = np.array([n for n in lengths if n]) / grid.sample_rate / 3600
    shortest = shortest_crop(round(crop_seconds * grid.frame_rate), grid.frame_rate)
    used = np.array([grid.frames(n) >= shortest for n in lengths if n], bool)
    if not used.any():
        raise InputError(_too_short(shortest / grid.frame_rate))
    if not used.all() and is_main():
        least = f"a crop of {shortest / grid.frame_rate:g} s, the shortest"
        tqdm.write(
            f"{(~used).sum()} of {len(used)} recordings are too short for {least}, "
            f"which leaves {hours[used].sum():.3g} of {hours.sum():.3g} h; a smaller "
            "--crop-seconds leaves more",
            file=sys.stderr,
        )


def _too_short(seconds: float) -> str:
    least = f"no recording is as long as a crop of {seconds:g} s, the shortest"
    return (
        f"{least}; give a smaller --crop-seconds, or join short recordings to longer ones "
        "(recipes/units/pack.py)"
    )
