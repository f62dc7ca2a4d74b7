"""Tests of the data of pre-training: recordings, their targets, and batches of crops, whose labels
are always those of the clean signal."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.audio import read_audio, write_flac
from speechssl.augment.training import parse_distortions
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.pretrain import data as data_module
from speechssl.pretrain.data import (
    LENGTH_RATIO,
    NO_LABEL,
    WIDEST_LENGTH_RATIO,
    Cropper,
    LabelledAudio,
    TrainingRecording,
    check_lengths,
    count_shortest_crop,
    list_training_data,
    make_buckets,
    pack_audio,
    write_targets,
)
from speechssl.pretrain.options import Batches, Masks
from speechssl.timing import FrameGrid
from speechssl.units.codebook import Codebook
from speechssl.units.features import Features

from ..files import refused, untouched, write_lines

GRID = FrameGrid(16_000, hop=320, receptive=400)
LENGTHS = (16_000, 24_000)  # samples
MASKS = Masks(mask_probability=0.65, mask_length=10)


def label_by_frame_number(lengths, samples):
    """Return recordings of these lengths, in which every frame is labelled by its number in the
    whole corpus."""
    frames = [GRID.count_frames(n) for n in lengths]
    return LabelledAudio(
        samples=samples.astype(np.int16),
        sample_bounds=np.cumsum([0, *lengths]),
        labels=np.arange(sum(frames), dtype=np.int16),
        label_bounds=np.cumsum([0, *frames]),
    )


def make_cropper(crops=8, crop_seconds=0.4, **changes):
    """Make a cropper of two recordings of noise, as loud as speech and with an offset."""
    noise = 3000 * np.random.default_rng(0).standard_normal(sum(LENGTHS)) + 500
    data = label_by_frame_number(LENGTHS, noise)
    return Cropper(data, GRID, MASKS, Batches(crops, crop_seconds), **{"seed": 5} | changes)


class InvertOddRows:
    """This distortion changes the sign of every second crop, and scales it by 1 to 2 as training
    progresses. It notes how it was called."""

    domains = ("clean", "inverted")

    def __init__(self):
        self.calls = []  # (key, progress)

    def apply(self, samples, key, progress):
        self.calls.append((key, progress))
        assert samples.dtype == np.float32
        assert abs(samples).max() <= 1
        row = key[-1]
        return (samples, 0) if row % 2 == 0 else (-samples * (1 + progress), 1)


@pytest.mark.parametrize("normalise", [True, False])
def test_labels_and_clean_samples_are_those_of_the_undistorted_signal(normalise):
    clean = make_cropper(normalise=normalise)(step=3)
    distort = InvertOddRows()
    cropper = make_cropper(normalise=normalise, distort=distort, clean=True, horizon=4)
    distorted = cropper(step=3)
    assert [key for key, _ in distort.calls] == [(5, 3, row) for row in range(8)]
    assert distorted["domains"].tolist() == [0, 1] * 4
    assert torch.equal(distorted["clean_samples"], clean["samples"])
    assert distorted["clean_samples"].dtype == torch.float32
    assert torch.equal(distorted["labels"], clean["labels"])
    assert torch.equal(distorted["mask"], clean["mask"])
    assert torch.equal(distorted["samples"][::2], clean["samples"][::2])
    inverted, original = distorted["samples"][1::2], clean["samples"][1::2]
    inverted = inverted - inverted.mean(1, keepdim=True)
    original = original - original.mean(1, keepdim=True)
    # at progress 3 / 4 a crop is scaled by 1.75, which normalisation removes
    scale = 1.0 if normalise else 1.75
    torch.testing.assert_close(inverted, -scale * original, atol=2e-4, rtol=2e-4)


def normalise_recordings(corpus):
    """Return each recording as an encoder that wants normalised input gets it in inference."""
    encoder = SpeechEncoder("", None, GRID, layers=1, width=1, normalise=True, hash="")
    recordings = np.split(corpus.samples, corpus.sample_bounds[1:-1])
    return [encoder.wave(samples / np.float32(32768)) for samples in recordings]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("samples", {}),
        ("second_samples", {"second_version": parse_distortions("g", probability=(0, 0))}),
        (
            "clean_samples",
            {"distort": parse_distortions("g", probability=(1, 1)), "clean": True},
        ),
    ],
)
def test_an_unchanged_crop_is_a_part_of_the_normalised_recording(name, options):
    make = make_cropper(**options)
    make.data.samples[: LENGTHS[0] // 2] //= 10  # half of the first recording is quiet
    recordings = normalise_recordings(make.data)
    batches = [make(step) for step in range(3)]
    crops = torch.cat([batch[name] for batch in batches])
    first_labels = torch.cat([batch["labels"] for batch in batches])[:, 0].tolist()
    bounds = make.data.label_bounds
    assert {label < bounds[1] for label in first_labels} == {True, False}  # of both recordings
    for crop, label in zip(crops, first_labels, strict=True):
        recording = int(label >= bounds[1])
        start = (label - bounds[recording]) * GRID.hop
        assert torch.equal(crop, recordings[recording][start : start + len(crop)])


@pytest.mark.parametrize(("snr", "over"), [(0.0, "signal"), (-5.0, "active")])
def test_a_noisy_crop_has_the_level_that_it_has_in_a_noisy_recording(snr, over):
    """A noisy crop is normalised as a recording of equally noisy crops would be, to variance 1."""
    noise = parse_distortions("g", probability=(1, 1), snr=(snr, snr), snr_over=over)
    make = make_cropper(distort=noise)
    crops = torch.cat([make(step)["samples"] for step in range(4)])
    torch.testing.assert_close(crops.std(1), torch.ones(len(crops)), atol=0.04, rtol=0)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_progress_of_schedules_counts_updates_and_ends_at_1(accumulation):
    """An update has `accumulation` batches; two updates are made beyond the end."""
    distort, updates = InvertOddRows(), 4
    make = make_cropper(distort=distort, horizon=updates, accumulation=accumulation, crops=1)
    batches = [make(number) for number in range((updates + 2) * accumulation)]
    expected = np.minimum(np.arange(len(batches)) / (accumulation * updates), 1)
    assert [batch["progress"].item() for batch in batches] == pytest.approx(expected)
    assert [progress for _, progress in distort.calls] == pytest.approx(expected)
    steps = np.repeat(np.arange(updates + 2), accumulation)
    assert [batch["step"].item() for batch in batches] == steps.tolist()
    assert len({key for key, _ in distort.calls}) == len(batches)  # all batches differ
    for batch in batches:  # numbers, which processes do not divide among them
        assert batch["progress"].ndim == 0
        assert batch["step"].ndim == 0


def test_frames_that_see_silence_have_no_label_and_the_others_their_own():
    shares = []  # of a crop that is not silenced
    for step in range(10):
        original = make_cropper(normalise=False)(step)
        batch = make_cropper(silence=1.0, normalise=False)(step)
        assert batch["samples"].shape == original["samples"].shape
        for samples, labels in zip(batch["samples"].numpy(), batch["labels"].numpy(), strict=True):
            sounding = np.flatnonzero(samples)
            labelled = np.flatnonzero(labels != NO_LABEL)  # frames
            shares.append(len(sounding) / len(samples))
            # a few samples beside the silence may be 0 by chance
            assert (labelled * GRID.hop >= sounding[0] - 3).all()
            assert (labelled * GRID.hop + GRID.receptive <= sounding[-1] + 4).all()
            assert (np.diff(labels[labelled]) == 1).all()
    assert 0.25 < min(shares) < 0.4
    assert max(shares) > 0.9


# ---- recordings that are shorter than a crop

COUNTS = st.lists(st.integers(0, 900), min_size=1, max_size=80)


@given(COUNTS, st.integers(1, 800), st.integers(1, 40))
def test_every_recording_is_in_one_bucket_of_crops_that_are_not_longer(counts, frames, crops):
    """counts: frames of every recording; frames and crops: of a batch of full length."""
    counts = np.array(counts)
    shortest = count_shortest_crop(frames, frame_rate=50.0)
    assert shortest == min(frames, 100)  # two seconds
    buckets = make_buckets(counts, frames, crops, shortest)
    in_buckets = [recording for bucket in buckets for recording in bucket.recordings]
    assert sorted(in_buckets) == np.flatnonzero(counts >= shortest).tolist()
    for bucket in buckets:
        lengths = counts[bucket.recordings]
        assert lengths.min() >= bucket.frames
        assert shortest <= bucket.frames <= frames
        if bucket.frames < frames:
            assert bucket.frames == lengths.min()
            assert lengths.max() <= WIDEST_LENGTH_RATIO * lengths.min()
            # only a bucket that would not fill a batch may be wider than LENGTH_RATIO
            assert lengths.max() <= LENGTH_RATIO * lengths.min() or len(lengths) <= bucket.crops
    if (counts >= frames).any():
        full = buckets[-1]
        assert full.recordings.tolist() == np.flatnonzero(counts >= frames).tolist()
        assert full.frames == frames
        assert full.crops == crops


def count_rows():
    """Return the rows of a batch of every bucket, for 48 crops of full length."""
    buckets = make_buckets(np.arange(100, 820, 3), frames=781, crops=48, shortest=100)
    return [bucket.crops for bucket in buckets]


def test_processes_can_share_every_batch(monkeypatch):
    rows_of_one = count_rows()
    assert len(set(rows_of_one)) > 2
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert count_rows() == rows_of_one  # two processes share the batches of one
    monkeypatch.setenv("WORLD_SIZE", "6")
    assert not any(count % 6 for count in count_rows())


@settings(max_examples=20)
@given(
    st.lists(st.integers(0, 80_000), min_size=1, max_size=8), st.integers(0, 99), st.integers(1, 9)
)
def test_no_crop_leaves_its_recording_and_the_seconds_are_those_of_the_batch(lengths, step, crops):
    samples = np.random.default_rng(0).integers(-3000, 3000, sum(lengths))
    data = label_by_frame_number(lengths, samples)
    batches = Batches(crops, crop_seconds=3.0)
    make = Cropper(data, GRID, MASKS, batches, seed=1, normalise=False)
    if max(map(GRID.count_frames, lengths)) < 100:  # two seconds, the shortest crop
        assert not make._buckets
        return
    batch = make(step)
    rows, frames = batch["labels"].shape
    assert batch["samples"].shape == (rows, GRID.count_samples(frames))
    assert batch["mask"].shape == (rows, frames)
    bounds = data.label_bounds
    for samples, labels in zip(batch["samples"].numpy(), batch["labels"].numpy(), strict=True):
        assert np.array_equal(labels, np.arange(labels[0], labels[0] + frames))
        recording = int(np.searchsorted(bounds, labels[0], side="right")) - 1
        start = data.sample_bounds[recording] + (labels[0] - bounds[recording]) * GRID.hop
        stop = start + len(samples)
        assert labels[-1] < bounds[recording + 1]
        assert stop <= data.sample_bounds[recording + 1]
        assert np.array_equal(samples, data.samples[start:stop] / np.float32(32768))


def test_a_crop_may_start_at_every_frame_with_room_behind_it():
    samples = np.random.default_rng(0).integers(-3000, 3000, GRID.count_samples(152))
    data = label_by_frame_number([len(samples)], samples)
    make = Cropper(data, GRID, MASKS, Batches(crops=4, crop_seconds=3.0), seed=1)
    starts = {int(labels[0]) for step in range(10) for labels in make(step)["labels"]}
    assert starts == {0, 1, 2}  # 152 frames, of which a crop has 150


# ---- recordings and targets

BOOK = Codebook(np.linspace(-0.05, 0.05, 8, dtype=np.float32)[:, None], {"encoder": "toy"})


def mean_of_frames(samples):
    """Return a toy encoder's features (T, 1): the mean of the samples that a frame owns."""
    frames = GRID.count_frames(len(samples))
    owned = samples[GRID.offset : GRID.offset + frames * GRID.hop].reshape(frames, GRID.hop)
    return torch.from_numpy(owned.mean(1, keepdims=True))


def pack_and_label(root, out, encode=mean_of_frames):
    """Pack the corpus `root`, write its targets beside `out`, and read both. encode: samples (N,) ->
    features (T, D)."""
    data, folder = list_training_data(root), out.parent / "targets"
    packed = pack_audio(data, out)
    features = Features("toy", GRID, raw=lambda samples: iter([encode(samples)]))
    made_from = {"corpus": data.hash}
    write_targets(data.recordings, folder, GRID, features, BOOK, packed, made_from)
    return LabelledAudio.load(packed, folder)


@given(
    st.lists(st.tuples(st.floats(0.05, 0.5), st.floats(0.05, 0.5)), min_size=1, max_size=10),
    st.integers(1, 200),
)
def test_a_frame_is_aligned_to_the_same_phone_of_the_reference(durations, count):
    """durations: seconds of every phone in the recording and in its reference reading. The middle of
    a frame and the middle of the frame that it is aligned to lie in the same phone."""
    anchors = np.vstack([[0, 0], np.cumsum(durations, 0)])
    reference_frames = GRID.count_frames(int(anchors[-1, 1] * 16_000))
    if reference_frames == 0:
        return
    recording = TrainingRecording("p", Path("p.flac"), Path("p.flac"), anchors)
    aligned = recording.align_frames(GRID, count, reference_frames)
    assert (np.diff(aligned) >= 0).all()
    assert aligned.min() >= 0
    assert aligned.max() < reference_frames
    half_frame = 0.011  # seconds, with rounding
    for frame, reference_frame in enumerate(aligned):
        middle = (frame * 320 + 200) / 16_000  # seconds
        reference_middle = (reference_frame * 320 + 200) / 16_000
        is_clipped = not 0 < reference_frame < reference_frames - 1
        if is_clipped or middle >= anchors[-1, 0]:
            continue
        phone = int(np.searchsorted(anchors[:, 0], middle, side="right")) - 1
        assert anchors[phone, 1] - half_frame <= reference_middle
        assert reference_middle <= anchors[phone + 1, 1] + half_frame


def write_reference(root):
    """Write a reference reading of p1 that is a quarter slower."""
    length, reference_length = 24_123, 30_154  # samples
    samples = np.random.default_rng(5).uniform(-0.5, 0.5, reference_length)
    write_flac(root / "train/reference/p1.flac", samples)
    anchors = [[0.0, 0.0], [length / 16_000, reference_length / 16_000]]
    line = {"id": "p1", "audio": "train/reference/p1.flac", "anchors": anchors}
    write_lines(root / "train/reference.jsonl", [line])


def test_samples_and_labels_are_packed_recording_by_recording(mini_corpus, tmp_path):
    lengths = (16_000, 24_123, 9_999)
    root = mini_corpus(lengths)
    data = pack_and_label(root, tmp_path / "out")
    assert data.samples.dtype == np.int16
    assert data.labels.dtype == np.int16
    assert np.diff(data.sample_bounds).tolist() == list(lengths)
    assert np.diff(data.label_bounds).tolist() == [GRID.count_frames(n) for n in lengths]
    for i in range(3):
        audio = read_audio(root / f"train/audio/p{i}.flac")
        samples = data.samples[data.sample_bounds[i] : data.sample_bounds[i + 1]]
        assert np.array_equal(samples, audio * 32768)  # the 16 bits of the file
        labels = data.labels[data.label_bounds[i] : data.label_bounds[i + 1]]
        assert np.array_equal(labels, BOOK.assign(mean_of_frames(audio)))


def test_labels_come_from_the_reference_reading(mini_corpus, tmp_path):
    root = mini_corpus((16_000, 24_123, 9_999))
    write_reference(root)
    data = pack_and_label(root, tmp_path / "out")
    units = BOOK.assign(mean_of_frames(read_audio(root / "train/reference/p1.flac")))
    recording = list_training_data(root).recordings[1]
    frames = recording.align_frames(GRID, GRID.count_frames(24_123), len(units))
    labels = data.labels[data.label_bounds[1] : data.label_bounds[2]]
    assert np.array_equal(labels, units[frames])


def test_a_killed_run_goes_on_and_finished_work_is_not_repeated(mini_corpus, tmp_path, dies_in):
    root, out = mini_corpus(), tmp_path / "out"
    for call in (1, 2):  # while the audio is packed, and while the targets are written
        with dies_in(data_module, "_save_array", call):
            pack_and_label(root, out)
    pack_and_label(root, out)
    with untouched(out.parent):
        pack_and_label(root, out, encode=lambda samples: pytest.fail("it was encoded before"))


def test_a_reference_outside_of_the_corpus_is_refused(mini_corpus):
    root = mini_corpus((16_000,))
    line = {"id": "p0", "audio": "../x.flac", "anchors": [[0, 0]]}
    write_lines(root / "train/reference.jsonl", [line])
    refused("reference.jsonl:1", list_training_data, root)


def test_recordings_that_are_all_too_short_are_refused_before_anything_is_made(tmp_path):
    for name, seconds in (("a", 0.5), ("b", 0.9)):
        write_flac(tmp_path / f"{name}.flac", np.zeros(int(seconds * 16_000), np.float32))
    recordings = list_training_data(tmp_path).recordings
    message = r"shortest crop, 2\.005 s, and the longest lasts 0\.900 s"
    refused(message, check_lengths, recordings, GRID, 100)
    check_lengths(recordings, GRID, 40)
