"""Pre-training learns from batches of random crops: their samples, and the cluster of every frame.

`list_training_data` lists the recordings, `pack_audio` writes their samples into one array,
`fit_targets` and `write_targets` give every frame its cluster, and `Cropper` makes a batch.
Letters: B crops, N samples, T frames.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from tqdm import tqdm

from speechssl.artifacts import hash_files, replace_file, write_json
from speechssl.audio import measure_duration, read_audio, to_int16
from speechssl.augment.training import TrainingDistortions
from speechssl.data.recordings import (
    Recording,
    hash_contents,
    list_training_recordings,
    sample_recordings,
)
from speechssl.data.records import check_inside, hash_data, read_corpus_card, read_lines
from speechssl.encoders.encoder import open_pool
from speechssl.errors import InputError, report_set_aside
from speechssl.pretrain.options import Batches, Masks, Targets
from speechssl.processes import count_processes, is_main
from speechssl.schema import convert
from speechssl.timing import FrameGrid
from speechssl.training import Batch
from speechssl.units.codebook import Codebook
from speechssl.units.features import Features, stream_frames
from speechssl.units.kmeans import fit_kmeans

# ---- recordings and targets
#
# Targets are clusters of MFCCs or of an encoder's layer. They come from the recording itself, as
# published; or, where the corpus has a reference reading of the same words by another voice
# (reference.jsonl), from that reading, at the times that its anchors give. Then one sound has one
# target whoever speaks.

WORKERS = 2  # threads that read and label audio; their number changes no file


@dataclass(frozen=True)
class TrainingRecording:
    """The targets of a training recording come from an audio file: the recording itself, or its
    reference reading, in which anchors give the corresponding times."""

    id: str
    path: Path
    target_audio: Path  # the recording itself, or its reference reading
    # (A, 2): seconds in the recording, seconds in `target_audio`; None: both are the same file
    anchors: np.ndarray | None

    def align_frames(self, grid: FrameGrid, count: int, teacher_frames: int) -> np.ndarray:
        """Return the frame of `target_audio` that has the target of each frame of the recording,
        (T,) int.

        count: number of frames of the recording; teacher_frames: of `target_audio`.
        """
        frames = np.arange(count)
        if self.anchors is None:
            return np.minimum(frames, teacher_frames - 1)
        middle = grid.offset + grid.hop // 2  # sample in the middle of frame 0
        seconds = (frames * grid.hop + middle) / grid.sample_rate
        teacher_seconds = np.interp(seconds, self.anchors[:, 0], self.anchors[:, 1])
        nearest = np.round((teacher_seconds * grid.sample_rate - middle) / grid.hop).astype(int)
        return np.clip(nearest, 0, teacher_frames - 1)


@dataclass(frozen=True)
class TrainingData:
    """A run trains on these recordings."""

    recordings: tuple[TrainingRecording, ...]
    hash: str  # of a corpus's manifests, or of the ids and bytes of the recordings
    card: dict[str, Any]  # of the corpus, where there is one


def list_training_data(
    source: Path, recordings: int | None = None, reference: bool = True, seed: int = 0
) -> TrainingData:
    """Read the passages of a prepared corpus's training split, or the recordings of a manifest or
    folder.

    recordings: how many to sample at random by the seed (`sample_recordings`; a list may be in the
    order of speakers); None: all. reference: whether targets come from reference readings, where
    there are some: train/reference.jsonl of a corpus, NAME.reference.jsonl beside a manifest
    NAME.txt. Raises InputError for a source that is none of these, or is empty.
    """
    is_corpus = any(source.glob("*/passages.jsonl"))
    listed = list_training_recordings(source, "train")
    if recordings is not None:
        listed, _ = sample_recordings(listed, seed, count=recordings)
    if is_corpus:
        reference_file, root = source / "train" / "reference.jsonl", source
    else:
        reference_file, root = source.with_suffix(".reference.jsonl"), source.parent
    references: dict[str, tuple[Path, np.ndarray]] = {}
    if reference and reference_file.is_file():
        references = _read_references(reference_file, root)
    training_recordings = []
    for r in listed:
        target_audio, anchors = references.get(r.id, (r.path, None))
        training_recordings.append(TrainingRecording(r.id, r.path, target_audio, anchors))
    if is_corpus:
        hash, card = hash_data(source, "train"), read_corpus_card(source)
        if recordings is not None:
            hash += f"-{recordings}-{seed}"
    else:
        hash, card = hash_contents(listed), {"corpus": source.name}
        if references:
            hash += f"-{hash_files([reference_file])}"
    return TrainingData(tuple(training_recordings), hash, card)


@dataclass(frozen=True)
class Reference:
    """A line of reference.jsonl names a recording and its reference reading."""

    id: str
    audio: str  # file of the reference reading
    # pairs of corresponding times: seconds in the recording, seconds in `audio`
    anchors: Annotated[list[tuple[float, float]], msgspec.Meta(min_length=1)]


def _read_references(path: Path, root: Path) -> dict[str, tuple[Path, np.ndarray]]:
    """Read the reference readings: id of a recording -> audio file below `root`, anchors (A, 2).

    Raises InputError for a line that is no reference reading.
    """
    references = {}
    for number, values in read_lines(path):
        place = f"{path}:{number}"
        reference = convert(values, Reference, place, "prepare the corpus again")
        check_inside(root, reference.audio, place)
        references[reference.id] = root / reference.audio, np.array(reference.anchors)
    return references


def pack_audio(data: TrainingData, out: Path) -> Path:
    """Write the audio into one raw array, samples.s16 (int16) with bounds.npy, and return its
    folder, which lies beside `out` and is shared by all runs there.

    Raises InputError where no recording can be read.
    """
    folder = out.parent / f"packed-{data.hash}"
    if (folder / "card.json").is_file():
        return folder
    lengths = []
    failed = {}

    def read(recording: TrainingRecording) -> np.ndarray:
        try:
            return to_int16(read_audio(recording.path))
        except InputError as error:
            failed[recording.id] = str(error)
            return np.zeros(0, np.int16)

    with replace_file(folder / "samples.s16") as temporary, temporary.open("wb") as file:
        for samples in _map_in_threads(read, data.recordings, "packing audio"):
            file.write(samples.tobytes())
            lengths.append(len(samples))
    report_set_aside(failed, "packing audio")
    if not any(lengths):
        raise InputError(
            f"none of {len(lengths)} recordings can be read ({next(iter(failed.values()))}); give "
            "others"
        )
    _save_array(folder / "bounds.npy", np.cumsum([0, *lengths]))
    write_json(folder / "card.json", {"corpus": data.hash})
    return folder


def read_packed_lengths(packed: Path) -> list[int]:
    """Read the number of samples of every recording, 0 for those that were set aside."""
    lengths: list[int] = np.diff(np.load(packed / "bounds.npy")).tolist()
    return lengths


def fit_targets(
    recordings: Sequence[TrainingRecording], features: Features, targets: Targets, seed: int
) -> Codebook:
    """Fit k-means to the features of recordings that are sampled by the seed, as HuBERT does on
    10 % of them (arXiv 2106.07447, section IV-A). `targets.budget` of their frames are used, where
    fairseq uses all.

    The card says how many recordings were sampled from how many. Recordings that cannot be used are
    listed and left out. Raises InputError where none is left.
    """
    sampled, sizes = sample_recordings(recordings, seed, targets.share)
    has_references = any(r.anchors is not None for r in sampled)
    card = features.card | sizes | {"reference_reading": has_references}
    audio = [Recording(r.id, r.target_audio) for r in sampled]
    with open_pool(WORKERS) as pool:
        frames = stream_frames(audio, features, pool, WORKERS)
        return fit_kmeans(frames, targets.clusters, card, targets.budget, seed, targets.starts)


def write_targets(
    recordings: Sequence[TrainingRecording],
    out: Path,
    grid: FrameGrid,
    features: Features,
    codebook: Codebook,
    packed: Path,
    made_from: dict[str, Any],
) -> None:
    """Write `out`/labels.npy (int16, all frames of all recordings in order) with its bounds and
    card, unless it is finished already. packed: the folder of `pack_audio`; made_from: entries of
    the card.

    Raises InputError for a codebook whose labels come at another rate than the encoder's frames.
    """
    rate = codebook.card.get("frame_rate", grid.frame_rate)
    if rate != grid.frame_rate:
        raise InputError(
            f"the targets have {rate:g} labels a second and the encoder {grid.frame_rate:g} "
            f"frames; give a teacher or codebook of {grid.frame_rate:g} a second"
        )
    if (out / "card.json").is_file():
        return
    failed: dict[str, str] = {}

    @cache  # several recordings may be labelled by one reference reading
    def assign(audio: Path) -> np.ndarray:
        return codebook.assign(torch.cat(list(features.stream(read_audio(audio))))).astype(np.int16)

    def label(item: tuple[TrainingRecording, int]) -> np.ndarray:
        recording, length = item
        frames = grid.count_frames(length)
        if frames == 0:
            return np.zeros(0, np.int16)
        try:
            clusters = assign(recording.target_audio)
        except (InputError, ValueError) as error:  # without labels no crop is taken from it
            failed[recording.id] = str(error)
            return np.zeros(0, np.int16)
        return clusters[recording.align_frames(grid, frames, len(clusters))]

    items = list(zip(recordings, read_packed_lengths(packed), strict=True))
    labels = list(_map_in_threads(label, items, "targets"))
    report_set_aside(failed, "targets")
    _save_array(out / "labels.npy", np.concatenate(labels))
    _save_array(out / "bounds.npy", np.cumsum([0, *map(len, labels)]))
    facts = {
        "codebook": codebook.hash,
        "frame_rate": grid.frame_rate,
        "card": codebook.card,
    }
    write_json(out / "card.json", made_from | facts)


def _map_in_threads(function: Callable, items: Sequence, what: str) -> Iterator:
    """Yield what the function returns for every item, in order, with a progress bar."""
    with ThreadPoolExecutor(WORKERS) as pool:
        yield from tqdm(pool.map(function, items), total=len(items), desc=what, unit="file")


def _save_array(path: Path, array: np.ndarray) -> None:
    """Write an array as .npy, whole or not at all."""
    with replace_file(path) as temporary:
        np.save(temporary, array)


@dataclass(frozen=True)
class LabelledAudio:
    """The recordings of a corpus are joined to one array of samples and one of labels. Recording i
    has the samples from `sample_bounds[i]` to `sample_bounds[i + 1]`, and labels likewise."""

    samples: np.ndarray  # int16
    sample_bounds: np.ndarray  # (recordings + 1,)
    labels: np.ndarray  # int16, one a frame
    label_bounds: np.ndarray  # (recordings + 1,)

    @classmethod
    def load(cls, audio: Path, targets: Path | FrameGrid) -> LabelledAudio:
        """Read the folders of `pack_audio` (memory-mapped) and of `write_targets`; with a grid in
        the place of targets all labels are 0."""
        samples = np.memmap(audio / "samples.s16", np.int16, "r")
        sample_bounds = np.load(audio / "bounds.npy")
        if isinstance(targets, Path):
            labels = np.load(targets / "labels.npy")
            label_bounds = np.load(targets / "bounds.npy")
        else:
            counts = [targets.count_frames(int(n)) for n in np.diff(sample_bounds)]
            label_bounds = np.cumsum([0, *counts])
            labels = np.broadcast_to(np.int16(0), label_bounds[-1:])
        return cls(samples, sample_bounds, labels, label_bounds)


# ---- crops
#
# The crops of a batch are equally long. Longer recordings are cut to a crop. Shorter ones go into
# batches of their own, of shorter and correspondingly more crops, so that every batch has about as
# many seconds of audio. fairseq's `max_tokens` does the same with utterances of similar length that
# are cut to the shortest of them.
# Where the encoder wants normalised input, a crop is normalised by mean and variance of its whole
# recording, as in fairseq and as the finished encoder gets its input (`SpeechEncoder.wave`).

# Seconds. fairseq's settings for both papers leave out shorter recordings (`min_sample_size`
# 32,000).
SHORTEST_CROP = 2.0
# The most that the longest recording of a bucket is longer than the shortest, to whose length all
# are cut.
LENGTH_RATIO = 1.1
# The same for a bucket that would not fill a batch: cutting more is better than repeating.
WIDEST_LENGTH_RATIO = 1.5
NO_LABEL = -1
FLOOR = 1e-7  # added to a variance, as in transformers' feature extractor


def draw_mask(rng: np.random.Generator, frames: int, probability: float, length: int) -> np.ndarray:
    """Draw frames * probability / length spans of `length` frames, at least two, that may overlap
    (fairseq's rule; HuBERT: 0.80, length 10). Return (T,) bool, true where hidden."""
    count = max(int(frames * probability / length + rng.random()), 2)
    positions = max(frames - length, 1)
    mask = np.zeros(frames, bool)
    for start in rng.choice(positions, size=min(count, positions), replace=False):
        mask[start : start + length] = True
    return mask


def equalise_masks(rng: np.random.Generator, masks: np.ndarray) -> np.ndarray:
    """Unmask frames at random until every row of (B, T) bool has as many masked frames as the row
    with fewest.

    This is fairseq's `require_same_masks`, which its HuBERT and wav2vec 2.0 set. fairseq equalises
    the rows of one GPU, this function those of the whole batch.
    """
    fewest = int(masks.sum(axis=1).min())
    equalised = np.zeros_like(masks)
    for row, mask in zip(equalised, masks, strict=True):
        row[rng.choice(np.flatnonzero(mask), fewest, replace=False)] = True
    return equalised


@dataclass(frozen=True)
class Bucket:
    """A bucket has recordings of similar length, from which whole batches are drawn."""

    recordings: np.ndarray  # (R,) int, their numbers; none is shorter than a crop
    frames: int  # in a crop
    crops: int  # in a batch


def count_shortest_crop(frames: int, frame_rate: float) -> int:
    """Return the number of frames of the shortest crop, SHORTEST_CROP seconds, or `frames` where a
    full crop is shorter than that. Shorter recordings are never used."""
    return min(frames, round(SHORTEST_CROP * frame_rate))


def make_buckets(counts: np.ndarray, frames: int, crops: int, shortest: int) -> list[Bucket]:
    """Group recordings by length: buckets of shorter crops in order of length, then the one of
    crops of full length; none where all recordings are too short.

    counts: (recordings,) frames of every recording. frames, crops: size of a batch of full length.
    shortest: frames of the shortest crop.
    """
    short = np.flatnonzero((counts >= shortest) & (counts < frames))
    short = short[np.argsort(counts[short], kind="stable")]
    multiple = _choose_row_multiple(crops)
    buckets = []
    while len(short):
        lengths = counts[short]
        crop_frames = int(lengths[0])  # those of the shortest recording
        rows = frames * crops // crop_frames // multiple * multiple
        similar = int(np.searchsorted(lengths, crop_frames * LENGTH_RATIO, "right"))
        usable = int(np.searchsorted(lengths, crop_frames * WIDEST_LENGTH_RATIO, "right"))
        size = min(max(similar, rows), usable)
        buckets.append(Bucket(short[:size], crop_frames, rows))
        short = short[size:]
    long = np.flatnonzero(counts >= frames)
    if len(long):
        buckets.append(Bucket(long, frames, crops))
    return buckets


def _choose_row_multiple(crops: int) -> int:
    """Return the number that must divide the rows of a batch of shorter crops, so that 2, 4, 8 ...
    processes can share it; rounding to it leaves out less than a quarter of `crops`.

    One process rounds in the same way, so that its batches are the same. Where the number of
    processes is no such power of two, or larger, rows are rounded to a multiple of it as well.
    """
    power_of_two = 1 << max((crops // 4).bit_length() - 1, 0)
    return math.lcm(math.gcd(crops, power_of_two), count_processes())


@dataclass(frozen=True)
class Cropper:
    """A cropper makes batches of random crops, a function of (seed, step) only.

    A batch is drawn from recordings of similar length (`make_buckets`): where none is shorter than
    `crop_seconds`, from all of them. Labels are always those of the clean signal. With `distort`
    the encoder gets a distorted crop, and the batch names the domain of each; with `clean` the
    batch has the undistorted crops as well, for a teacher.

    With `normalise` an unchanged crop equals the same samples of the normalised recording. A crop
    that is silenced or distorted is normalised as though its whole recording had been changed in
    the same way: the mean and variance of the recording are changed as those of the crop were.
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
    accumulation: int = 1  # batches in an update
    # probability that the beginning and the end of a crop are silenced, before it is distorted
    silence: float = 0.0
    # makes a second version of every crop, which `distort` then distorts independently of the first
    second_version: TrainingDistortions | None = None

    def __call__(self, step: int) -> Batch:
        """Return samples (B, N), normalised where the encoder wants it, labels (B, T) and mask
        (B, T).

        With distortions the batch has the domains (B,), the `step` (updates so far), the `progress`
        of the training from 0 to 1, and with `clean` clean_samples (B, N); with a second version it
        has `second_samples` (B, N) and `step`.
        """
        rng = np.random.default_rng([self.seed, step])
        bucket = self._draw_bucket(rng)
        recordings = rng.choice(bucket.recordings, size=bucket.crops)
        crops = [self._draw_crop(rng, int(i), bucket.frames) for i in recordings]
        originals = [samples for samples, _ in crops]
        stack = partial(self._stack, recordings, originals)
        if self.silence:
            crops = [self._silence_part(rng, *crop) for crop in crops]
        samples = [crop_samples for crop_samples, _ in crops]
        labels = [crop_labels for _, crop_labels in crops]
        batch = {
            "labels": torch.from_numpy(np.stack(labels)),
            "mask": torch.from_numpy(self._draw_masks(rng, len(samples), bucket.frames)),
        }
        update = torch.tensor(step // self.accumulation)
        progress = min(step / (self.horizon * self.accumulation), 1.0)
        if self.second_version is not None:
            batch["second_samples"] = stack(self._make_second_versions(samples, step, progress))
            batch["step"] = update
        if self.distort is None:
            batch["samples"] = stack(samples)
            return batch
        distorted, domains = [], []
        for row, crop in enumerate(samples):
            version, domain = self.distort.apply(crop, (self.seed, step, row), progress)
            distorted.append(version)
            domains.append(domain)
        batch["samples"] = stack(distorted)
        batch["domains"] = torch.tensor(domains)
        batch["progress"] = torch.tensor(progress)
        batch["step"] = update
        if self.clean:
            batch["clean_samples"] = stack(samples)
        return batch

    def _draw_masks(self, rng: np.random.Generator, rows: int, frames: int) -> np.ndarray:
        """Draw masks (B, T) bool, true where frames are hidden."""
        probability, length = self.masks.mask_probability, self.masks.mask_length
        masks = np.stack([draw_mask(rng, frames, probability, length) for _ in range(rows)])
        return equalise_masks(rng, masks) if self.masks.same_masks else masks

    def _make_second_versions(
        self, samples: Sequence[np.ndarray], step: int, progress: float
    ) -> list[np.ndarray]:
        """Return the second version of every crop; with `distort` it is distorted too."""
        assert self.second_version is not None
        versions = []
        for row, crop in enumerate(samples):
            version, _ = self.second_version.apply(crop, (self.seed, step, row, 1), progress)
            if self.distort is not None:
                version, _ = self.distort.apply(version, (self.seed, step, row, 2), progress)
            versions.append(version)
        return versions

    @property
    def card(self) -> dict[str, str]:
        """Return what the card of an encoder says of the normalisation of its input."""
        return {"normalised_over": "recording"} if self.normalise else {}

    @cached_property
    def _buckets(self) -> list[Bucket]:
        frames = round(self.batches.crop_seconds * self.grid.frame_rate)
        shortest = count_shortest_crop(frames, self.grid.frame_rate)
        counts = np.diff(self.data.label_bounds)
        return make_buckets(counts, frames, self.batches.crops, shortest)

    def _draw_bucket(self, rng: np.random.Generator) -> Bucket:
        """Draw a bucket in proportion to its number of batches, so that every recording is used
        equally often, as in fairseq's epochs.

        With a single bucket no random number is drawn.
        """
        if len(self._buckets) == 1:
            return self._buckets[0]
        weights = np.array([len(bucket.recordings) / bucket.crops for bucket in self._buckets])
        return self._buckets[rng.choice(len(weights), p=weights / weights.sum())]

    def _draw_crop(
        self, rng: np.random.Generator, index: int, frames: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw a crop of a recording: samples (N,) float32 within -1 and 1, labels (T,) int64."""
        first_label, end_label = self.data.label_bounds[index : index + 2]
        frame = int(rng.integers(end_label - first_label - frames + 1))
        start = int(self.data.sample_bounds[index]) + frame * self.grid.hop
        samples = self.data.samples[start : start + self.grid.count_samples(frames)]
        labels = self.data.labels[first_label + frame : first_label + frame + frames]
        return samples.astype(np.float32) / 32768, labels.astype(np.int64)

    def _silence_part(
        self, rng: np.random.Generator, samples: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Silence the beginning and the end of a crop, in a share `silence` of the crops: they are
        then like short recordings, to whose pauses distortions add noise too.

        At most three quarters of a crop are silenced. Frames that see a silenced sample have no
        label (-1), because the targets come from the whole signal.
        """
        if rng.random() >= self.silence:
            return samples, labels
        silent = rng.uniform(0, 0.75) * len(samples)
        first = int(silent * rng.random())
        last = len(samples) - int(silent) + first
        starts = np.arange(len(labels)) * self.grid.hop
        sees_silence = (starts < first) | (starts + self.grid.receptive > last)
        partly_silent = np.zeros(len(samples), np.float32)
        partly_silent[first:last] = samples[first:last]
        return partly_silent, np.where(sees_silence, NO_LABEL, labels)

    def _stack(
        self, recordings: np.ndarray, crops: list[np.ndarray], versions: list[np.ndarray]
    ) -> torch.Tensor:
        """Stack versions of crops to (B, N), normalised where the encoder wants it. crops: as they
        are in the recordings."""
        if self.normalise:
            rows = zip(recordings, crops, versions, strict=True)
            versions = [self._normalise_version(*row) for row in rows]
        return torch.from_numpy(np.stack(versions))

    def _normalise_version(
        self, recording: int, crop: np.ndarray, version: np.ndarray
    ) -> np.ndarray:
        """Normalise a version of a crop by mean and variance of its recording, changed by as much
        as the version changed those of the crop."""
        mean, variance = self._measure_recording(int(recording))
        mean_before, variance_before = compute_moments(crop)
        mean_after, variance_after = compute_moments(version)
        mean += mean_after - mean_before
        variance *= (variance_after + FLOOR) / (variance_before + FLOOR)
        return (version - np.float32(mean)) * np.float32(1 / np.sqrt(variance + FLOOR))

    def _measure_recording(self, recording: int) -> tuple[float, float]:
        """Return mean and variance of a recording, for samples within -1 and 1. They are computed
        once."""
        if recording not in self._known_moments:
            first, last = self.data.sample_bounds[recording : recording + 2]
            mean, variance = compute_moments(self.data.samples[first:last])
            self._known_moments[recording] = mean / 32768, variance / 32768**2
        return self._known_moments[recording]

    @cached_property
    def _known_moments(self) -> dict[int, tuple[float, float]]:
        return {}


def compute_moments(samples: np.ndarray) -> tuple[float, float]:
    """Return mean and variance of samples (N,), computed in float64 as by `SpeechEncoder.wave`."""
    samples = samples.astype(np.float64)
    mean = samples.mean()
    return float(mean), float(max(np.square(samples).mean() - mean**2, 0.0))


def check_lengths(recordings: Sequence[TrainingRecording], grid: FrameGrid, shortest: int) -> None:
    """Raise InputError where all recordings are shorter than the frames of the shortest crop. It
    measures them up to the first that is long enough."""
    longest = 0.0
    for recording in recordings:
        with suppress(InputError):  # reported when the audio is packed
            longest = max(longest, measure_duration(recording.path))
        if grid.count_frames(grid.find_sample(longest)) >= shortest:
            return
    if longest:
        needed = grid.count_samples(shortest) / grid.sample_rate
        raise InputError(
            f"no recording is as long as the shortest crop, {needed:.3f} s, and the longest lasts "
            f"{longest:.3f} s; join them (python recipes/units/pack.py packed.txt FOLDER, and "
            "train on packed.txt), or give a smaller --crop-seconds"
        )


def report_short(packed: Path, grid: FrameGrid, shortest: int) -> None:
    """Report on stderr how many recordings of `pack_audio` are shorter than the frames of the
    shortest crop."""
    frames = [grid.count_frames(n) for n in read_packed_lengths(packed) if n]
    short = sum(count < shortest for count in frames)
    if short and is_main():
        tqdm.write(
            f"{short} of {len(frames)} recordings are too short for a crop of "
            f"{shortest / grid.frame_rate:g} s, the shortest; a smaller --crop-seconds, or "
            "recordings joined, would train on them, too",
            file=sys.stderr,
        )
