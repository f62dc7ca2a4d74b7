"""Masks and warps: s3prl's own numbers, and what padding and shortness must not do."""

import pytest
import torch

from speechssl.superb.tasks.transcription import SpecAugment

ASR, ADAPTIVE = SpecAugment(), SpecAugment(adaptive=True)


def theirs(options):
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    from speechssl.encoders.s3prl import import_hub

    import_hub()
    from s3prl.downstream.specaug import SpecAug

    return SpecAug(
        apply_time_warp=options.warp > 0,
        time_warp_window=options.warp,
        freq_mask_width_range=(0, options.frequency_width),
        num_freq_mask=options.frequency_masks,
        time_mask_width_range=(0, options.time_width),
        num_time_mask=options.time_masks,
        adaptive=options.adaptive,
        adaptive_number_ratio=options.share,
        adaptive_size_ratio=options.share,
        max_n_time_masks=options.most,
    )


@pytest.mark.parametrize("options", [ASR, ADAPTIVE, SpecAugment(warp=0), SpecAugment(3, 10, 10, 10, 10)])
@pytest.mark.parametrize("shape", [(60, 768), (10, 33), (11, 80), (200, 7), (1234, 60)])
def test_a_single_recording_is_masked_as_by_s3prl(options, shape):
    if options.adaptive and shape[0] < 25:
        pytest.skip("s3prl fails on so few frames")
    for seed in range(5):
        features = torch.randn(1, *shape, generator=torch.Generator().manual_seed(seed)) + 3
        torch.manual_seed(seed)
        wanted = theirs(options)([features[0].clone()])[0][0]
        torch.manual_seed(seed)
        found = options(features, torch.tensor([shape[0]]))
        assert torch.allclose(found[0], wanted, atol=1e-5)


def test_masks_are_of_the_published_sizes():
    torch.manual_seed(0)
    features = torch.ones(300, 400, 700)
    hidden = ~ASR(features, torch.full((300,), 400)).bool()
    dimensions, times = hidden.all(1).sum(1).float(), hidden.all(2).sum(1).float()
    assert 80 < dimensions.mean() < 4 * 24.5 and dimensions.max() <= 4 * 49  # overlaps make it less
    assert 35 < times.mean() < 2 * 19.5 and times.max() <= 2 * 39
    assert (hidden == hidden.all(1, keepdim=True) | hidden.all(2, keepdim=True)).all()
    grown = ~ADAPTIVE(features, torch.full((300,), 400)).bool()
    assert 60 < grown.all(2).sum(1).float().mean() < 16 * 7.5  # 16 masks of up to 15 frames


def test_each_recording_has_its_own_masks_over_its_own_frames():
    torch.manual_seed(0)
    features, lengths = torch.ones(40, 500, 64), torch.tensor([60, 500] * 20)
    changed = SpecAugment(frequency_masks=0)(features, lengths)
    assert all((one[n:] == 0).all() for one, n in zip(changed, lengths, strict=True))
    short = changed[::2, :60, 0]
    assert (short == 0).any(1).float().mean() > 0.8 and not (short == 0).all(1).any()
    assert len({tuple(row.tolist()) for row in short}) > 15


@pytest.mark.parametrize("options", [ASR, ADAPTIVE])
@pytest.mark.parametrize("frames", [1, 2, 10, 24, 49])
def test_short_and_narrow_ones_are_no_trouble(options, frames):
    for seed in range(20):
        torch.manual_seed(seed)
        changed = options(torch.ones(2, frames, 3), torch.tensor([frames, 1]))
        assert changed.shape == (2, frames, 3) and changed.isfinite().all()


def test_gradients_pass_and_the_input_is_left_alone():
    features = torch.randn(2, 80, 100, requires_grad=True)
    before = features.detach().clone()
    ASR(features, torch.tensor([80, 40])).sum().backward()
    assert torch.equal(features.detach(), before) and features.grad.isfinite().all()
    assert features.grad[1, 40:].eq(0).all() and features.grad[0].ne(0).any()
