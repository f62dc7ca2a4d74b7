"""Runs of pre-training, from recordings to targets and an encoder folder: one run protocol for both methods.

A run makes its targets, trains, and writes `OUT/encoder`; it is resumable. It begins from scratch or goes on from any HuBERT or
wav2vec 2.0; on what is recorded, or on a distorted version of it with the clean signal's targets (arXiv 2203.16104), perhaps beside
a teacher on the clean signal and against a domain classifier.

Targets are the clusters of every frame, of MFCCs or of an encoder's layer. Where the corpus has a reference reading
(`reference.jsonl`), clusters are fitted on it and read off it through the time anchors, so that one sound has one target whoever
speaks; else they come from the recording itself, as published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import HubertModel, Wav2Vec2Model

from speechssl.audio import SAMPLE_RATE, read_audio, to_int16
from speechssl.config import settings
from speechssl.data.files import Recording, list_recordings
from speechssl.data.records import corpus_card, data_hash, load_corpus, read_lines
from speechssl.encoders.export import save_encoder
from speechssl.encoders.hubert import check_known
from speechssl.encoders.load import SpeechEncoder, file_hashes, load_checkpoint, load_encoder, single_threaded
from speechssl.errors import InputError, tell_set_aside
from speechssl.io import hash_files, hash_json, read_json, replacing, stage, write_json
from speechssl.pretrain.auxiliary import auxiliary_losses
from speechssl.pretrain.data import Cropper, LabelledAudio, check_crops, unlabelled
from speechssl.pretrain.model import (
    ContrastiveBatches,
    HubertPretraining,
    Wav2Vec2Pretraining,
    load_pretraining,
    restore_label_head,
    save_label_head,
    save_pretraining,
)
from speechssl.pretrain.presets import HUBERT, WAV2VEC2, HubertOptions, Options
from speechssl.processes import is_main, main_first
from speechssl.timing import FrameGrid
from speechssl.trainer import check_share, fit
from speechssl.units.config import BUDGET, STARTS
from speechssl.units.features import Features, load_features, load_features_of, spectral_stream
from speechssl.units.fit import Item, draw, frames_of, hash_contents
from speechssl.units.kmeans import Codebook, fit_kmeans, load_codebook


def pretrain(source: Path, out: Path, options: Options) -> SpeechEncoder:
    """Run it; what it makes lies in `out`, the encoder in `out`/encoder. Finished work is not done again.

    source: a prepared corpus (its training passages), a manifest or a folder of recordings. The audio is packed once for all runs
    beside `out`, in packed-<hash of the data>, and so are a HuBERT's targets. Raises InputError where `out` was made from other
    inputs.
    """
    check_share(options.crops)
    hubert, training = isinstance(options, HubertOptions), options.training
    data = material(source, options.recordings, isinstance(options, HubertOptions) and options.reference, training.seed)
    hashes: dict[str | None, str | None] = {}  # of the encoders and the codebook that it is made from, in the place of their names
    teacher = options.teacher if isinstance(options, HubertOptions) else None
    for name in {teacher, options.start}:  # mostly one
        if name and name != "mfcc":
            hashes[name] = load_encoder(name).hash
    inputs = {"start": hashes.get(options.start)} if hubert or options.start else {}
    if isinstance(options, HubertOptions):
        inputs |= {"teacher": hashes.get(teacher, teacher)}
        inputs |= {"codebook": load_codebook(Path(options.codebook)).hash} if options.codebook else {}
    with stage(
        out, {"data": data.hash, "options": plain(options) | inputs}, grows="options.training.steps", card="encoder/card.json"
    ) as step:
        if step.done:
            return load_encoder(out / "encoder")
        torch.manual_seed(training.seed)
        audio, of_losses = packed(data.hash, out), (options.start, options.distort, options.distil, options.adversary)
        model: HubertPretraining | Wav2Vec2Pretraining
        if isinstance(options, HubertOptions):
            encoder, normalise = _hubert_encoder(options)
            grid = FrameGrid.of_convolutions(SAMPLE_RATE, encoder.config.conv_kernel, encoder.config.conv_stride)
            auxiliary = auxiliary_losses(encoder, *of_losses)  # raises what cannot be had before the targets are made
            with main_first():
                codebook, targets = make_targets(data, out, grid, options)
            objective = (options.projection, options.mask.visible_weight, options.penalty, options.gradient_scale)
            model = HubertPretraining(encoder, codebook.size, *objective, auxiliary)
            if options.start:
                restore_label_head(model, options.start, codebook.hash)
            labelled = load_labelled(audio, targets)
        else:
            if options.start:
                model = load_pretraining(options.start, options.contrastive)
                check_known(model.encoder, options.start)
            else:
                size = WAV2VEC2[options.size]
                made = options.contrastive or size.contrastive
                model = Wav2Vec2Pretraining(Wav2Vec2Model(size.config()), made, size.normalise)
            normalise, config = model.normalise, model.encoder.config
            model.auxiliary.extend(auxiliary_losses(model.encoder, *of_losses))
            grid = FrameGrid.of_convolutions(SAMPLE_RATE, config.conv_kernel, config.conv_stride)
            with main_first():
                pack_audio(data.readings, audio, {"corpus": data.hash})
            bounds = np.load(audio / "bounds.npy")
            check_crops(np.diff(bounds).tolist(), grid, options.seconds)
            labelled = unlabelled(np.memmap(audio / "samples.s16", np.int16, "r"), bounds, grid)
        cropper = Cropper(
            labelled,
            grid,
            options.mask,
            options.crops,
            options.seconds,
            training.seed,
            normalise,
            options.distort,
            clean=options.distil is not None if hubert else options.distort is not None,
            horizon=training.horizon or training.steps,
            accumulation=training.accumulation,
            silence=options.silence or 0.0,
        )
        batches: Any = cropper
        if not isinstance(options, HubertOptions):
            batches = ContrastiveBatches(cropper, training.seed, options.negatives, options.temperature, training.accumulation)
        result = fit(model, batches, training, out / "checkpoints", cropper.audio_seconds)
        with main_first():
            if is_main():
                folder = out / "encoder"
                card: dict[str, Any] = {"options": named(options), "corpus": data.card, "training": result}
                if isinstance(options, HubertOptions):
                    save_encoder(model.encoder, folder, normalise, options.save_bf16)
                    save_label_head(model, folder, codebook.hash)
                    card |= {"what": "HuBERT encoder", "targets": codebook.card}
                else:
                    save_pretraining(model, folder)
                    card |= {"what": "wav2vec 2.0 with its heads"}
                write_json(folder / "card.json", card | {"files": file_hashes(folder)})
        return load_encoder(out / "encoder")


def plain(options: Options) -> dict[str, Any]:
    """As JSON holds it; options that were not given are left out, so that folders older than an option stay valid."""
    values = settings(replace(options, distort=None)) | {"distort": getattr(options.distort, "card", None)}
    if not values["mask"]["same_masks"]:
        del values["mask"]["same_masks"]
    return {name: value for name, value in values.items() if value is not None}


def named(options: Options) -> dict[str, Any]:
    """`plain` for a card, which has the names of things and not where they lie on this machine."""
    values = plain(options)
    return values | {n: "/".join(Path(values[n]).parts[-2:]) for n in ("teacher", "start", "codebook") if n in values}


def _hubert_encoder(options: HubertOptions) -> tuple[HubertModel, bool]:
    """The model to train, in float32, and whether its input is normalised. Raises InputError for a start that is not a HuBERT."""
    if not options.start:
        size = HUBERT[options.size or "small"]
        return HubertModel(size.config()).train(), size.normalise
    checkpoint = load_checkpoint(options.start)
    if not isinstance(checkpoint.model, HubertModel):
        kind = checkpoint.model.config.model_type
        raise InputError(f"{options.start} is a {kind} encoder; start this training from a HuBERT")
    check_known(checkpoint.model, options.start)
    return checkpoint.model.train().requires_grad_(True), checkpoint.normalise


def make_targets(data: Material, out: Path, grid: FrameGrid, options: HubertOptions) -> tuple[Codebook, Path]:
    """Pack the audio, get or fit the codebook, once, and label all frames with it; the folder of the labels, too.

    grid: of the frames that are labelled.
    """
    audio = packed(data.hash, out)
    pack_audio(data.readings, audio, {"corpus": data.hash})
    lengths = np.diff(np.load(audio / "bounds.npy")).tolist()
    check_crops(lengths, grid, options.seconds)
    if options.codebook:
        codebook = load_codebook(Path(options.codebook))
        features = load_features_of(codebook, options.teacher, options.precision)
    else:
        if options.teacher == "mfcc":
            features = Features("mfcc", grid, partial(spectral_stream, grid=grid, kind="mfcc"))
        else:
            features = load_features(options.teacher, options.layer, options.smooth, options.precision or "fp32")
        path = out / "targets.safetensors"
        if not path.is_file():
            sampling = (options.share, options.budget or BUDGET, options.starts or STARTS)
            fit_targets(data.readings, features, options.clusters, options.training.seed, *sampling).save(path)
        codebook = load_codebook(path)
    decisive = [data.hash, codebook.hash, options.reference, asdict(grid), options.precision]
    folder = out.parent / f"targets-{hash_json(decisive)}"  # beside `out` too, for runs that share the targets
    made_from = {"corpus": data.hash, "reference": options.reference}
    streamed = lambda samples: torch.cat(list(features.stream(samples)))  # noqa: E731
    write_targets(data.readings, folder, grid, streamed, codebook, lengths, made_from)
    return codebook, folder


# ---- what pre-training learns from: recordings in one array, and the cluster of every frame

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
