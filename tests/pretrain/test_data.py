"""What pre-training learns from: recordings and targets; and crops of all lengths, with labels of
the clean signal."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.audio import read_audio, write_flac
from speechssl.augment.training import parse_distortions
from speechssl.encoders.encoder import SpeechEncoder
from speechssl.pretrain import data as room
from speechssl.pretrain.data import (
    LENGTH_RATIO,
    NO_LABEL,
    WIDEST_LENGTH_RATIO,
    Cropper,
    LabelledAudio,
    TrainingRecording,
    make_buckets,
    pack_audio,
    shortest_crop,
    training_data,
    write_targets,
)
from speechssl.pretrain.options import Batches, Masks
from speechssl.timing import FrameGrid
from speechssl.units.codebook import Codebook
from speechssl.units.features import Features

from ..files import refused, untouched, write_lines

GRID = FrameGrid(16_000, 320, 400)
LENGTHS = (16_000, 24_000)


def labelled(lengths, samples):
    """Each frame labelled by its number in the whole corpus."""
    frames = [GRID.frames(n) for n in lengths]
    bounds, labels = np.cumsum([0, *frames]), np.arange(sum(frames), dtype=np.int16)
    return LabelledAudio(samples.astype(np.int16), np.cumsum([0, *lengths]), labels, bounds)


def data():
    """Speech that is as loud as speech."""
    rng = np.random.default_rng(0)
    return labelled(LENGTHS, 3000 * rng.standard_normal(sum(LENGTHS)) + 500)


MASKS = Masks(0.65, 10)


def cropper(crops=8, crop_seconds=0.4, **changes):
    return Cropper(data(), GRID, MASKS, Batches(crops, crop_seconds), **{"seed": 5} | changes)


class Halves:
    """Turns every second crop round and scales it by how far the training is; remembers what it was
    asked."""

    domains = ("clean", "turned")

    def __init__(self):
        self.asked = []

    def apply(self, samples, key, progress):
        self.asked.append((key, progress))
        assert samples.dtype == np.float32
        assert abs(samples).max() <= 1
        return (samples, 0) if key[-1] % 2 == 0 else (-samples * (1 + progress), 1)


@pytest.mark.parametrize("normalise", [True, False])
def test_labels_and_clean_samples_are_those_of_the_undistorted_signal(normalise):
    plain, distort = cropper(normalise=normalise)(3), Halves()
    noisy = cropper(normalise=normalise, distort=distort, clean=True, horizon=4)(3)
    assert [key for key, _ in distort.asked] == [(5, 3, row) for row in range(8)]
    assert set(plain) == {"samples", "labels", "mask"}
    assert set(noisy) == {*plain, "domains", "progress", "step", "clean_samples"}
    assert torch.equal(plain["samples"][::2], noisy["samples"][::2])
    assert torch.equal(noisy["clean_samples"], plain["samples"])
    assert noisy["clean_samples"].dtype == torch.float32
    assert torch.equal(noisy["labels"], plain["labels"])
    assert torch.equal(noisy["mask"], plain["mask"])
    assert noisy["domains"].tolist() == [0, 1] * 4
    # a recording that was scaled as a whole is normalised to what it was
    turned, straight = (
        made["samples"][1::2] - made["samples"][1::2].mean(1, keepdim=True)
        for made in (noisy, plain)
    )
    scale = 1.0 if normalise else 1.75
    torch.testing.assert_close(turned, -scale * straight, atol=2e-4, rtol=2e-4)


def normalised_recordings(corpus):
    """Each recording as an encoder that wants normalised input gets it in inference."""
    encoder = SpeechEncoder("", None, GRID, 1, 1, normalise=True, hash="")
    recordings = np.split(corpus.samples, corpus.sample_bounds[1:-1])
    return [encoder.wave(samples / np.float32(32768)) for samples in recordings]


@pytest.mark.parametrize("how", ["plain", "second", "teacher"])
def test_a_crop_is_what_the_normalised_recording_holds_there(how):
    changes = {
        "plain": {},
        "second": {"second": parse_distortions("g", probability=(0, 0))},
        "teacher": {"distort": parse_distortions("g", probability=(1, 1)), "clean": True},
    }
    name = {"plain": "samples", "second": "second", "teacher": "clean_samples"}[how]
    make = cropper(**changes[how])
    samples = make.data.samples
    # a recording of which one half is quiet, as with a long pause
    samples[: LENGTHS[0] // 2] //= 10
    whole, frames = normalised_recordings(make.data), make.data.label_bounds
    batches = [make(step) for step in range(3)]
    crops, first = (torch.cat([batch[key] for batch in batches]) for key in (name, "labels"))
    assert {label < frames[1] for label in first[:, 0].tolist()} == {True, False}
    for crop, label in zip(crops, first[:, 0].tolist(), strict=True):
        recording = int(label >= frames[1])
        start = (label - frames[recording]) * GRID.hop
        assert torch.equal(crop, whole[recording][start : start + len(crop)])


@pytest.mark.parametrize(("snr", "over"), [(0.0, "signal"), (-5.0, "active")])
def test_a_noisy_crop_has_the_level_that_it_has_in_a_noisy_recording(snr, over):
    """Speech of one level and noise: all that is normalised is the same recording with as much
    noise."""
    noise = parse_distortions("g", probability=(1, 1), snr=(snr, snr), snr_over=over)
    make = cropper(distort=noise)
    crops = torch.cat([make(step)["samples"] for step in range(4)])
    torch.testing.assert_close(crops.std(1), torch.ones(len(crops)), atol=0.04, rtol=0)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_schedules_run_over_the_updates_reach_their_end_and_stay_there(accumulation):
    """However many batches an update has: one of them is one step of the training."""
    distort, updates = Halves(), 4
    make = cropper(distort=distort, horizon=updates, accumulation=accumulation, crops=1)
    made = [make(step) for step in range((updates + 2) * accumulation)]
    expected = np.minimum(np.arange(len(made)) / accumulation / updates, 1)
    assert expected[-2 * accumulation :].tolist() == [1] * 2 * accumulation
    assert [progress for _, progress in distort.asked] == pytest.approx(expected)
    assert [batch["progress"].item() for batch in made] == pytest.approx(expected)
    steps = np.repeat(np.arange(updates + 2), accumulation)
    assert [batch["step"].item() for batch in made] == steps.tolist()
    # the batches of an update are different ones
    assert len({key for key, _ in distort.asked}) == len(made)
    # what processes do not divide
    assert all(batch[name].ndim == 0 for batch in made for name in ("progress", "step"))


def test_frames_that_see_silence_have_no_label_and_the_others_their_own():
    shares = []
    for step in range(10):
        plain = cropper(normalise=False)(step)
        made = cropper(silence=1.0, normalise=False)(step)
        for samples, labels in zip(made["samples"].numpy(), made["labels"].numpy(), strict=True):
            sounding = np.flatnonzero(samples)
            known = np.flatnonzero(labels != NO_LABEL)
            shares.append(len(sounding) / len(samples))
            # a sample may be 0 by chance
            assert (known * GRID.hop >= sounding[0] - 3).all()
            assert (known * GRID.hop + GRID.receptive <= sounding[-1] + 4).all()
            assert (np.diff(labels[known]) == 1).all()
        assert made["samples"].shape == plain["samples"].shape
    assert 0.25 < min(shares) < 0.4
    assert max(shares) > 0.9


# ---- recordings that are shorter than a crop

COUNTS = st.lists(st.integers(0, 900), min_size=1, max_size=80)


@given(COUNTS, st.integers(1, 800), st.integers(1, 40))
def test_every_recording_is_in_one_bucket_of_crops_that_are_not_longer(counts, frames, crops):
    counts, shortest = np.array(counts), shortest_crop(frames, 50.0)
    found = make_buckets(counts, frames, crops, shortest)
    held = [i for bucket in found for i in bucket.recordings]
    assert sorted(held) == np.flatnonzero(counts >= shortest).tolist()
    assert shortest == min(frames, 100)
    for bucket in found:
        own = counts[bucket.recordings]
        assert own.min() >= bucket.frames
        assert shortest <= bucket.frames <= frames
        if bucket.frames < frames:
            assert bucket.frames == own.min()
            assert own.max() <= WIDEST_LENGTH_RATIO * own.min()
            # it grew to fill a batch
            assert own.max() <= LENGTH_RATIO * own.min() or len(own) <= bucket.crops
    if (counts >= frames).any():
        assert found[-1].recordings.tolist() == np.flatnonzero(counts >= frames).tolist()
        assert (found[-1].frames, found[-1].crops) == (frames, crops)


@pytest.mark.parametrize("processes", [2, 6])
def test_the_processes_can_share_every_batch_and_usual_numbers_of_them_change_nothing(
    processes, monkeypatch
):
    counts, crops = np.arange(100, 820, 3), 48
    one = [bucket.crops for bucket in make_buckets(counts, 781, crops, 100)]
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    found = [bucket.crops for bucket in make_buckets(counts, 781, crops, 100)]
    assert all(rows % processes == 0 for rows in found)
    assert len(set(found)) > 2
    assert processes > 2 or found == one


@settings(max_examples=20)
@given(
    st.lists(st.integers(0, 80_000), min_size=1, max_size=8), st.integers(0, 99), st.integers(1, 9)
)
def test_no_crop_leaves_its_recording_and_the_seconds_are_those_of_the_batch(lengths, step, crops):
    data = labelled(lengths, np.random.default_rng(0).integers(-3000, 3000, sum(lengths)))
    make = Cropper(data, GRID, MASKS, Batches(crops, 3.0), seed=1, normalise=False)
    if max(map(GRID.frames, lengths)) < 100:
        assert not make._buckets
        return
    made = make(step)
    rows, frames = made["labels"].shape
    assert made["samples"].shape == (rows, GRID.samples_for(frames))
    assert made["mask"].shape == (rows, frames)
    bounds = data.label_bounds
    for samples, labels in zip(made["samples"].numpy(), made["labels"].numpy(), strict=True):
        assert np.array_equal(labels, np.arange(labels[0], labels[0] + frames))
        of = int(np.searchsorted(bounds, labels[0], side="right")) - 1
        start = data.sample_bounds[of] + (labels[0] - bounds[of]) * GRID.hop
        stop = start + len(samples)
        assert labels[-1] < bounds[of + 1]
        assert stop <= data.sample_bounds[of + 1]
        assert np.array_equal(samples, data.samples[start:stop] / np.float32(32768))


def test_the_last_start_of_a_recording_is_drawn_too():
    samples = np.random.default_rng(0).integers(-3000, 3000, GRID.samples_for(152))
    make = Cropper(labelled([len(samples)], samples), GRID, MASKS, Batches(4, 3.0), seed=1)
    starts = {int(labels[0]) for step in range(10) for labels in make(step)["labels"]}
    assert starts == {0, 1, 2}  # crops have 150 frames


# ---- recordings and targets

BOOK = Codebook(np.linspace(-0.05, 0.05, 8, dtype=np.float32)[:, None], {"encoder": "toy"})


def features(samples):
    """(T, 1) mean of the samples a frame owns."""
    frames = GRID.frames(len(samples))
    owned = samples[GRID.offset : GRID.offset + frames * GRID.hop].reshape(frames, GRID.hop)
    return torch.from_numpy(owned.mean(1, keepdims=True))


def of(function):
    """Features of a function (N,) -> (T, D)."""
    return Features("toy", GRID, lambda samples: iter([function(samples)]))


def targets(root, out, function=features):
    """Everything packed and labelled beside `out`."""
    data, found = training_data(root), out.parent / "targets"
    packed, about = pack_audio(data, out), {"corpus": data.hash}
    write_targets(data.recordings, found, GRID, of(function), BOOK, packed, about)
    return LabelledAudio.load(packed, found)


@given(
    st.lists(st.tuples(st.floats(0.05, 0.5), st.floats(0.05, 0.5)), min_size=1, max_size=10),
    st.integers(1, 200),
)
def test_a_frame_is_read_in_the_same_phone(durations, count):
    """Phones with other lengths in either reading: a frame's middle and its teacher's middle lie in
    the same phone."""
    anchors = np.vstack([[0, 0], np.cumsum(durations, 0)])
    there = GRID.frames(int(anchors[-1, 1] * 16_000))
    if there == 0:
        return
    recording = TrainingRecording("p", Path("p.flac"), Path("p.flac"), anchors)
    found = recording.align_frames(GRID, count, there)
    assert (np.diff(found) >= 0).all()
    assert found.min() >= 0
    assert found.max() < there
    half = 0.011  # seconds: the teacher's middle is at most half a frame from the point meant
    for own, other in enumerate(found):
        here, read = (own * 320 + 200) / 16_000, (other * 320 + 200) / 16_000
        if not (0 < other < there - 1 and here < anchors[-1, 0]):
            continue
        phone = int(np.searchsorted(anchors[:, 0], here, side="right")) - 1
        assert anchors[phone, 1] - half <= read <= anchors[phone + 1, 1] + half


def with_reference(root):
    """A second reading of p1, a quarter slower, and what it says."""
    samples = np.random.default_rng(5).uniform(-0.5, 0.5, 30_154)
    write_flac(root / "train/reference/p1.flac", samples)
    anchors = [[0.0, 0.0], [24_123 / 16_000, 30_154 / 16_000]]
    row = {"id": "p1", "audio": "train/reference/p1.flac", "anchors": anchors}
    write_lines(root / "train/reference.jsonl", [row])


def test_labels_fit_the_packed_audio_to_the_frame(mini_corpus, tmp_path):
    root = mini_corpus()
    with_reference(root)
    data = targets(root, tmp_path / "out")
    assert np.diff(data.sample_bounds).tolist() == [16_000, 24_123, 9_999]
    assert np.diff(data.label_bounds).tolist() == [GRID.frames(n) for n in (16_000, 24_123, 9_999)]
    assert data.samples.dtype == data.labels.dtype == np.int16
    for i in (0, 2):
        audio = read_audio(root / f"train/audio/p{i}.flac")
        cut = data.samples[data.sample_bounds[i] : data.sample_bounds[i + 1]]
        assert np.array_equal(cut, audio * 32768)  # the 16 bits of the file
        labels = data.labels[data.label_bounds[i] : data.label_bounds[i + 1]]
        assert np.array_equal(labels, BOOK.assign(features(audio)))
    slow = BOOK.assign(features(read_audio(root / "train/reference/p1.flac")))
    mapped = training_data(root).recordings[1].align_frames(GRID, GRID.frames(24_123), len(slow))
    assert np.array_equal(data.labels[slice(*data.label_bounds[1:3])], slow[mapped])


def test_finished_work_is_not_done_again_and_a_killed_run_is(mini_corpus, tmp_path, dies_in):
    root, out = mini_corpus(), tmp_path / "out"
    for call in (1, 2):  # of the audio, and of the targets
        with dies_in(room, "_save_array", call):
            targets(root, out)
    targets(root, out)
    with untouched(out.parent):
        targets(root, out, lambda *_: pytest.fail("this was computed before"))


@pytest.mark.parametrize(
    "line",
    [
        "{no json",
        '{"id": "p0", "audio": "x.flac", "anchors": [[0, 0]]}',
        '{"id": "p0", "audio": "../x.flac", "anchors": [[0, 0]]}',
    ],
)
def test_a_damaged_reference_is_named(mini_corpus, line):
    root = mini_corpus((16_000,))
    (root / "train/reference.jsonl").write_text("\n" + line + "\n")
    refused("reference.jsonl:2", training_data, root)
