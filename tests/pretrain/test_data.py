"""Random crops, distorted or not, of recordings of all lengths: labels and teacher stay with the clean signal."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.augment.training import parse_distortions
from speechssl.errors import InputError
from speechssl.pretrain.data import ALIKE, APART, NO_LABEL, Cropper, LabelledAudio, MaskOptions, buckets, check_crops, shortest_crop
from speechssl.pretrain.model import ContrastiveBatches
from speechssl.timing import FrameGrid

GRID = FrameGrid(16_000, 320, 400)
LENGTHS = (16_000, 24_000)


def data():
    """Speech that is as loud as speech, each frame labelled by where it is."""
    rng, frames = np.random.default_rng(0), [GRID.frames(n) for n in LENGTHS]
    samples = (3000 * rng.standard_normal(sum(LENGTHS)) + 500).astype(np.int16)
    return LabelledAudio(samples, np.cumsum([0, *LENGTHS]), np.arange(sum(frames), dtype=np.int16), np.cumsum([0, *frames]))


def cropper(**changes):
    return Cropper(data(), GRID, MaskOptions(), **{"crops": 8, "seconds": 0.4, "seed": 5} | changes)


class Halves:
    """Turns every second crop round and scales it by how far the training is; remembers what it was asked."""

    domains = ("clean", "turned")

    def __init__(self):
        self.asked = []

    def apply(self, samples, key, progress):
        self.asked.append((key, progress))
        assert samples.dtype == np.float32 and abs(samples).max() <= 1
        return (samples, 0) if key[-1] % 2 == 0 else (-samples * (1 + progress), 1)


@pytest.mark.parametrize("normalise", [True, False])
def test_labels_and_clean_samples_are_those_of_the_undistorted_signal(normalise):
    plain, distort = cropper(normalise=normalise)(3), Halves()
    noisy = cropper(normalise=normalise, distort=distort, clean=True, horizon=4)(3)
    assert [key for key, _ in distort.asked] == [(5, 3, row) for row in range(8)]
    assert set(plain) == {"samples", "labels", "mask"} == set(noisy) - {"domains", "progress", "step", "clean_samples"}
    assert torch.equal(plain["samples"][::2], noisy["samples"][::2])
    assert torch.equal(noisy["clean_samples"], plain["samples"]) and noisy["clean_samples"].dtype == torch.float32
    assert torch.equal(noisy["labels"], plain["labels"]) and torch.equal(noisy["mask"], plain["mask"])
    assert noisy["domains"].tolist() == [0, 1] * 4
    scale = 1.0 if normalise else 1.75
    torch.testing.assert_close(noisy["samples"][1::2], -scale * plain["samples"][1::2], atol=2e-4, rtol=2e-4)
    if normalise:
        for samples in (noisy["samples"], noisy["clean_samples"]):
            torch.testing.assert_close(samples.mean(1), torch.zeros(8), atol=1e-4, rtol=0)
            torch.testing.assert_close(samples.std(1), torch.ones(8), atol=2e-3, rtol=0)


def test_a_distorted_batch_depends_on_seed_and_step_only():
    same = {"distort": parse_distortions("g+b", probability=(0.5, 0.9), snr_end=(-5.0, 0.0)), "clean": True, "horizon": 9}
    first, again = (
        cropper(**same),
        cropper(**same | {"distort": parse_distortions("g+b", probability=(0.5, 0.9), snr_end=(-5.0, 0.0))}),
    )
    [first(step) for step in (0, 3, 9)]
    for name, value in first(7).items():
        assert torch.equal(value, again(7)[name]), name
    for other in (first(8), cropper(**same | {"seed": 6})(7)):
        assert not torch.equal(other["samples"], first(7)["samples"])
    assert set(first(7)["domains"].tolist()) <= {0, 1, 2} and first(7)["domains"].dtype == torch.int64


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
    assert [batch["step"].item() for batch in made] == np.repeat(np.arange(updates + 2), accumulation).tolist()
    assert len({key for key, _ in distort.asked}) == len(made)  # the batches of an update are different ones
    assert all(batch[name].ndim == 0 for batch in made for name in ("progress", "step"))  # what processes do not divide


def test_silence_stays_silence_and_finite():
    silent = LabelledAudio(np.zeros(16_000, np.int16), np.array([0, 16_000]), np.zeros(49, np.int16), np.array([0, 49]))
    made = Cropper(silent, GRID, MaskOptions(), 2, 0.4, distort=parse_distortions("g", probability=(1, 1)), clean=True)(0)
    assert made["samples"].abs().max() == made["clean_samples"].abs().max() == 0 and made["domains"].tolist() == [0, 0]


# ---- silence before and after


@pytest.mark.slow
def test_frames_that_see_silence_have_no_label_and_the_others_their_own():
    frames, partly, whole = 20, [], 0
    for step in range(20):
        made = cropper(silence=0.7, normalise=False)(step)
        for samples, labels in zip(made["samples"].numpy(), made["labels"].numpy(), strict=True):
            sounding = np.flatnonzero(samples)
            known = np.flatnonzero(labels != NO_LABEL)
            if len(known) == frames:
                whole += 1
                continue
            partly.append(len(sounding) / len(samples))
            begins, ends = known * GRID.hop, known * GRID.hop + GRID.receptive
            assert (begins >= sounding[0] - 3).all() and (ends <= sounding[-1] + 4).all()  # a sample that is 0 by chance
            assert np.array_equal(np.diff(labels[known]), np.ones(max(len(known) - 1, 0)))
            own = data().sample_bounds[int(labels[known[0]] >= GRID.frames(LENGTHS[0]))] if len(known) else 0
            base = 0 if not len(known) or labels[known[0]] < GRID.frames(LENGTHS[0]) else GRID.frames(LENGTHS[0])
            for frame in known:
                start = own + (labels[frame] - base) * GRID.hop
                expected = data().samples[start : start + GRID.receptive] / np.float32(32768)
                assert np.array_equal(samples[frame * GRID.hop : frame * GRID.hop + GRID.receptive], expected)
    assert 0.25 < min(partly) < 0.4 and max(partly) > 0.9
    assert whole / (20 * 8) == pytest.approx(0.3, abs=0.1)


def test_noise_is_in_the_silence_but_not_for_the_teacher():
    noise = parse_distortions("g", probability=(1, 1), snr=(0.0, 0.0))
    made = cropper(silence=1.0, distort=noise, clean=True, normalise=False)(2)
    silent = made["clean_samples"] == 0
    assert silent.any(1).sum() >= 6 and (made["samples"][silent] != 0).float().mean() > 0.99
    assert (made["labels"] == NO_LABEL).any() and made["domains"].tolist() == [1] * 8


def test_recordings_that_are_too_short_for_a_crop_are_counted_and_reported(capsys):
    check_crops((16_000, 0, 24_000, 56_000), GRID, 1.4)  # one was set aside
    err = capsys.readouterr().err
    assert "1 of 3 recordings are too short for a crop of 1.4 s, the shortest, which leaves 0.00139 of 0.00167 h" in err
    check_crops((16_000, 24_000), GRID, 0.5)
    assert capsys.readouterr().err == ""
    for lengths in ((16_000, 24_000), ()):
        with pytest.raises(
            InputError, match="no recording is longer than a crop of 2 s, the shortest; give a smaller --crop-seconds"
        ):
            check_crops(lengths, GRID, 60)
    check_crops((40_000, 32_000), GRID, 15.6)  # shorter crops are cut from what is shorter, to 2 s
    assert "1 of 2 recordings are too short for a crop of 2 s, the shortest" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", [0.98, 1.0])
def test_what_is_called_too_short_is_what_is_never_cut(seconds, capsys):
    frames = GRID.frames(LENGTHS[0])
    check_crops(LENGTHS, GRID, seconds)
    first = {int(labels[0]) < frames for step in range(20) for labels in cropper(seconds=seconds)(step)["labels"]}
    assert ("1 of 2 recordings" in capsys.readouterr().err) is (first == {False})


def test_rows_have_equally_many_masked_frames_where_that_is_asked_for():
    free, same = (Cropper(data(), GRID, MaskOptions(0.5, 4, same_masks=same), 8, 0.6, 5) for same in (False, True))
    assert all(len(set(same(step)["mask"].sum(1).tolist())) == 1 for step in range(10))
    assert any(len(set(free(step)["mask"].sum(1).tolist())) > 1 for step in range(10))
    assert all(torch.equal(free(step)["samples"], same(step)["samples"]) for step in range(3))  # the crops are the same


LONG = (32_000, 0, 40_123, 64_000, 33_000)  # one was set aside
MIXED = (70_000, 34_000, 36_000, 5_000, 52_000, 33_000, 66_000, 0, 48_000)


def corpus(lengths):
    """Random samples; a label is the number of its frame in the whole corpus."""
    frames = [GRID.frames(n) for n in lengths]
    samples = np.random.default_rng(0).integers(-3000, 3000, sum(lengths)).astype(np.int16)
    return LabelledAudio(samples, np.cumsum([0, *lengths]), np.arange(sum(frames)).astype(np.int16), np.cumsum([0, *frames]))


def mixed_cropper(lengths=MIXED, **changes):
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
        "hubert": mixed_cropper(LONG, **how, silence=0.4),
        "wav2vec2": ContrastiveBatches(contrastive, seed=3, negatives=20, accumulation=2),
        "too short": mixed_cropper((32_000, 9_000, 40_123, 20_000), **how),
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


@pytest.mark.slow
def test_every_recording_is_drawn_equally_often_but_those_below_two_seconds():
    make, steps = mixed_cropper(normalise=False), 250
    drawn = np.concatenate(
        [np.searchsorted(make.data.label_bounds, make(s)["labels"][:, 0].numpy(), "right") - 1 for s in range(steps)]
    )
    counts = np.bincount(drawn, minlength=len(MIXED))
    short = np.array(MIXED) < 32_000
    assert not counts[short].any()
    assert counts[~short] / counts.mean() * (~short).mean() == pytest.approx(1, abs=0.25)
