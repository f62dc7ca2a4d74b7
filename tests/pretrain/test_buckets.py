"""Recordings that are shorter than a crop are heard in batches of shorter crops; without them batches are what they were."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.errors import InputError
from speechssl.pretrain.data import ALIKE, APART, Cropper, LabelledAudio, MaskOptions, buckets, shortest_crop
from speechssl.pretrain.wav2vec2 import ContrastiveBatches
from speechssl.timing import FrameGrid

GRID = FrameGrid(16_000, 320, 400)
LONG = (32_000, 0, 40_123, 64_000, 33_000)  # one was set aside
MIXED = (70_000, 34_000, 36_000, 5_000, 52_000, 33_000, 66_000, 0, 48_000)


def corpus(lengths):
    """Random samples; a label is the number of its frame in the whole corpus."""
    frames = [GRID.frames(n) for n in lengths]
    samples = np.random.default_rng(0).integers(-3000, 3000, sum(lengths)).astype(np.int16)
    return LabelledAudio(samples, np.cumsum([0, *lengths]), np.arange(sum(frames)).astype(np.int16), np.cumsum([0, *frames]))


def cropper(lengths=MIXED, **changes):
    return Cropper(corpus(lengths), GRID, MaskOptions(), **{"crops": 8, "seconds": 4.0, "seed": 3} | changes)


def digest(batches):
    found = hashlib.sha256()
    for batch in batches:
        for name in sorted(batch):
            found.update(name.encode() + str(tuple(batch[name].shape)).encode() + batch[name].numpy().tobytes())
    return found.hexdigest()


# ---- all recordings longer than a crop

BEFORE = {  # twelve batches each, from before there were shorter crops
    "hubert": "52ad1047c3fc8fab8574065e18ee368ef9d24f276f26b137ca9410e1412c6db4",
    "wav2vec2": "7b670441a12039334f189ff117798aa4e3a452c33cfd4f594e05dcdd60035b12",
    "too short": "8e1d2fa7793bfc14c5af46a9139ec9a24fb285f4647aa7b860da74a0fb72fb75",  # one of them is too short for any crop
}


def test_batches_of_long_recordings_are_bit_for_bit_what_they_were():
    how = {"crops": 6, "seconds": 1.5, "normalise": False}
    contrastive = Cropper(corpus(LONG), GRID, MaskOptions(0.65, 10), 6, 1.5, 3, normalise=False)
    made = {
        "hubert": cropper(LONG, **how, silence=0.4),
        "wav2vec2": ContrastiveBatches(contrastive, seed=3, negatives=20, accumulation=2),
        "too short": cropper((32_000, 9_000, 40_123, 20_000), **how),
    }
    assert {name: digest(map(make, range(12))) for name, make in made.items()} == BEFORE
    assert made["hubert"].audio_seconds(0) == made["hubert"].audio_seconds(7) == 9


# ---- some shorter

COUNTS = st.lists(st.integers(0, 900), min_size=1, max_size=80)


@given(COUNTS, st.integers(1, 800), st.integers(1, 40))
def test_every_recording_is_in_one_bucket_of_crops_that_are_shorter_than_it(counts, frames, crops):
    counts, shortest = np.array(counts), shortest_crop(frames, 50.0)
    found = buckets(counts, frames, crops, shortest)
    held = [i for bucket in found for i in bucket.recordings]
    assert sorted(held) == np.flatnonzero(counts > shortest).tolist() and shortest == min(frames, 100)
    for bucket in found:
        own = counts[bucket.recordings]
        assert own.min() > bucket.frames and shortest <= bucket.frames <= frames
        if bucket.frames < frames:
            assert bucket.frames == own.min() - 1 and own.max() <= APART * own.min()
            assert own.max() <= ALIKE * own.min() or len(own) <= bucket.crops  # it grew to fill a batch
    if (counts > frames).any():
        assert found[-1].recordings.tolist() == np.flatnonzero(counts > frames).tolist()
        assert (found[-1].frames, found[-1].crops) == (frames, crops)


@given(COUNTS, st.integers(100, 800), st.integers(1, 200))
def test_a_batch_is_about_the_same_seconds_and_never_more(counts, frames, crops):
    for bucket in buckets(np.array(counts), frames, crops, shortest_crop(frames, 50.0)):
        together = bucket.frames * bucket.crops
        assert 0.75 * frames * crops - bucket.frames < together <= frames * crops and bucket.crops >= crops


@pytest.mark.parametrize("processes", [1, 2, 3, 6, 12])
@pytest.mark.parametrize("crops", [12, 48])
def test_the_processes_can_share_every_batch_and_usual_numbers_of_them_change_nothing(crops, processes, monkeypatch):
    counts = np.arange(100, 820, 3)
    one = [bucket.crops for bucket in buckets(counts, 781, crops, 100)]
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    found = [bucket.crops for bucket in buckets(counts, 781, crops, 100)]
    assert all(rows % processes == 0 for rows in found) and len(set(found)) > 2
    assert processes > 2 or found == one


@settings(max_examples=20)
@given(st.lists(st.integers(0, 80_000), min_size=1, max_size=8), st.integers(0, 99), st.integers(1, 9))
def test_no_crop_leaves_its_recording_and_the_seconds_are_those_of_the_batch(lengths, step, crops):
    data = corpus(lengths)
    make = Cropper(data, GRID, MaskOptions(), crops, 3.0, seed=1, normalise=False)
    if max(map(GRID.frames, lengths)) <= 100:
        with pytest.raises(InputError, match="no recording is longer than a crop of 2 s, the shortest; give a smaller"):
            make(step)
        return
    made = make(step)
    rows, frames = made["labels"].shape
    assert made["samples"].shape == (rows, GRID.samples_for(frames)) and made["mask"].shape == (rows, frames)
    assert make.audio_seconds(step) == rows * frames / 50
    bounds = data.label_bounds
    for samples, labels in zip(made["samples"].numpy(), made["labels"].numpy(), strict=True):
        assert np.array_equal(labels, np.arange(labels[0], labels[0] + frames))
        of = int(np.searchsorted(bounds, labels[0], side="right")) - 1
        start = data.sample_bounds[of] + (labels[0] - bounds[of]) * GRID.hop
        assert labels[-1] < bounds[of + 1] and start + len(samples) <= data.sample_bounds[of + 1]
        assert np.array_equal(samples, data.samples[start : start + len(samples)] / np.float32(32768))


def test_every_recording_is_heard_equally_often_but_those_below_two_seconds():
    make, steps = cropper(normalise=False), 250
    heard = np.concatenate(
        [np.searchsorted(make.data.label_bounds, make(s)["labels"][:, 0].numpy(), "right") - 1 for s in range(steps)]
    )
    counts = np.bincount(heard, minlength=len(MIXED))
    short = np.array(MIXED) < 32_000
    assert not counts[short].any()
    assert counts[~short] / counts.mean() * (~short).mean() == pytest.approx(1, abs=0.25)


def test_a_mixed_batch_depends_on_seed_and_step_only():
    first, again, other = cropper(silence=0.5), cropper(silence=0.5), cropper(silence=0.5, seed=4)
    made = [first(step) for step in (5, 0, 1, 2, 3, 4)]
    assert digest(made[1:] + made[:1]) == digest(map(again, range(6))) != digest(map(other, range(6)))
    assert len({tuple(batch["mask"].shape) for batch in made}) > 1


def test_masks_and_negatives_fit_shorter_crops():
    make = ContrastiveBatches(cropper(), negatives=7)
    made = [make(step) for step in range(20)]
    assert len({batch["mask"].shape for batch in made}) > 2
    for batch in made:
        rows, hidden = len(batch["samples"]), int(batch["mask"][0].sum())
        assert torch.equal(batch["mask"].sum(1), torch.full((rows,), hidden)) and batch["negatives"].shape == (rows, hidden, 7)
