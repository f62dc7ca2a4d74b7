"""Crops that are heard distorted: labels and teacher stay with the clean signal, and schedules run over the updates."""

import numpy as np
import pytest
import torch

from speechssl.augment.training import parse_distortions
from speechssl.errors import InputError
from speechssl.pretrain.data import NO_LABEL, Cropper, LabelledAudio, MaskOptions, check_crops
from speechssl.timing import FrameGrid

GRID = FrameGrid(16_000, 320, 400)
LENGTHS = (16_000, 24_000)
NEW = {"domains", "progress", "step"}


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


def test_without_distortions_a_batch_is_what_it_was():
    made = cropper(clean=True, horizon=10)(3)
    assert set(made) == {"samples", "labels", "mask"}
    heard = cropper(distort=Halves())(3)
    assert set(heard) == {"samples", "labels", "mask"} | NEW
    for name in ("labels", "mask"):
        assert torch.equal(made[name], heard[name])
    assert torch.equal(made["samples"][::2], heard["samples"][::2])


@pytest.mark.parametrize("normalise", [True, False])
def test_labels_and_clean_samples_are_those_of_the_undistorted_signal(normalise):
    plain, heard = cropper(normalise=normalise)(3), cropper(normalise=normalise, distort=Halves(), clean=True, horizon=4)(3)
    assert torch.equal(heard["clean_samples"], plain["samples"]) and heard["clean_samples"].dtype == torch.float32
    assert torch.equal(heard["labels"], plain["labels"]) and torch.equal(heard["mask"], plain["mask"])
    assert heard["domains"].tolist() == [0, 1] * 4
    scale = 1.0 if normalise else 1.75
    torch.testing.assert_close(heard["samples"][1::2], -scale * plain["samples"][1::2], atol=2e-4, rtol=2e-4)
    if normalise:
        for samples in (heard["samples"], heard["clean_samples"]):
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


def test_every_crop_of_every_step_gets_an_own_draw():
    distort = Halves()
    make = cropper(distort=distort, crops=2)
    [make(step) for step in (0, 1, 0)]
    assert [key for key, _ in distort.asked] == [(5, 0, 0), (5, 0, 1), (5, 1, 0), (5, 1, 1), (5, 0, 0), (5, 0, 1)]


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


def test_the_share_and_the_noise_that_are_asked_for_are_heard():
    """From half of the crops at 20 dB to all of them at 0 dB."""
    distort = parse_distortions("g", probability=(0.5, 1.0), snr=(20.0, 20.0), snr_end=(0.0, 0.0))
    make = cropper(distort=distort, clean=True, horizon=100, normalise=False, crops=40)

    def ratios(step):
        made = make(step)
        noise = made["samples"] - made["clean_samples"]
        found = made["clean_samples"].square().mean(1) / noise.square().mean(1)
        assert torch.equal(torch.isinf(found), made["domains"] == 0)
        return 10 * torch.log10(found[made["domains"] > 0])

    assert 12 <= len(ratios(0)) <= 28 and ratios(0).mean().item() == pytest.approx(20, abs=0.5)
    assert len(ratios(100)) == 40 and ratios(100).mean().item() == pytest.approx(0, abs=0.5)
    assert ratios(50).mean().item() == pytest.approx(10, abs=0.5)


def test_silence_stays_silence_and_finite():
    silent = LabelledAudio(np.zeros(16_000, np.int16), np.array([0, 16_000]), np.zeros(49, np.int16), np.array([0, 49]))
    made = Cropper(silent, GRID, MaskOptions(), 2, 0.4, distort=parse_distortions("g", probability=(1, 1)), clean=True)(0)
    assert made["samples"].abs().max() == made["clean_samples"].abs().max() == 0 and made["domains"].tolist() == [0, 0]


# ---- silence before and after


def test_frames_that_see_silence_have_no_label_and_the_others_their_own():
    frames, partly, whole = 20, [], 0
    for step in range(20):
        made = cropper(silence=0.7, normalise=False)(step)
        for samples, labels in zip(made["samples"].numpy(), made["labels"].numpy(), strict=True):
            heard = np.flatnonzero(samples)
            known = np.flatnonzero(labels != NO_LABEL)
            if len(known) == frames:
                whole += 1
                continue
            partly.append(len(heard) / len(samples))
            begins, ends = known * GRID.hop, known * GRID.hop + GRID.receptive
            assert (begins >= heard[0] - 3).all() and (ends <= heard[-1] + 4).all()  # a sample that is 0 by chance
            assert np.array_equal(np.diff(labels[known]), np.ones(max(len(known) - 1, 0)))
            own = data().sample_bounds[int(labels[known[0]] >= GRID.frames(LENGTHS[0]))] if len(known) else 0
            base = 0 if not len(known) or labels[known[0]] < GRID.frames(LENGTHS[0]) else GRID.frames(LENGTHS[0])
            for frame in known:
                start = own + (labels[frame] - base) * GRID.hop
                expected = data().samples[start : start + GRID.receptive] / np.float32(32768)
                assert np.array_equal(samples[frame * GRID.hop : frame * GRID.hop + GRID.receptive], expected)
    assert 0.25 < min(partly) < 0.4 and max(partly) > 0.9
    assert whole / (20 * 8) == pytest.approx(0.3, abs=0.1)


def test_noise_is_heard_in_the_silence_and_the_teacher_hears_none():
    noise = parse_distortions("g", probability=(1, 1), snr=(0.0, 0.0))
    made = cropper(silence=1.0, distort=noise, clean=True, normalise=False)(2)
    silent = made["clean_samples"] == 0
    assert silent.any(1).sum() >= 6 and (made["samples"][silent] != 0).float().mean() > 0.99
    assert (made["labels"] == NO_LABEL).any() and made["domains"].tolist() == [1] * 8


def test_recordings_that_are_too_short_for_a_crop_are_counted_and_said(capsys):
    check_crops((16_000, 0, 24_000, 56_000), GRID, 1.4)  # one was set aside
    said = capsys.readouterr().err
    assert "1 of 3 recordings are too short for a crop of 1.4 s, the shortest, which leaves 0.00139 of 0.00167 h" in said
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
    heard = {int(labels[0]) < frames for step in range(20) for labels in cropper(seconds=seconds)(step)["labels"]}
    assert ("1 of 2 recordings" in capsys.readouterr().err) is (heard == {False})


def test_rows_have_equally_many_masked_frames_where_that_is_asked_for():
    free, same = (Cropper(data(), GRID, MaskOptions(0.5, 4, same_masks=same), 8, 0.6, 5) for same in (False, True))
    assert all(len(set(same(step)["mask"].sum(1).tolist())) == 1 for step in range(10))
    assert any(len(set(free(step)["mask"].sum(1).tolist())) > 1 for step in range(10))
    assert all(torch.equal(free(step)["samples"], same(step)["samples"]) for step in range(3))  # the crops are the same
