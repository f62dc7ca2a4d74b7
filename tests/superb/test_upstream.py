"""Log-mel and MFCC features in the place of an encoder."""

import numpy as np
import pytest
import torch

from speechssl.superb.upstream import load_upstream, log_mel


@pytest.mark.parametrize(("name", "width"), [("fbank", 80), ("mfcc", 39)])
def test_spectral_features_are_an_encoder_of_one_state(name, width):
    upstream, samples = load_upstream(name), np.random.default_rng(0).normal(0, 0.1, 16_123).astype(np.float32)
    states = upstream.hidden_states(samples)
    assert states.shape == (1, upstream.grid.frames(16_123), width) == (1, 99, width)
    assert torch.allclose(upstream.hidden_states(3 * samples), states, atol=1e-2)  # loudness is no cue
    assert upstream.hash != load_upstream("mfcc" if name == "fbank" else "fbank").hash
    with pytest.raises(ValueError, match="399 samples are fewer than the 400"):
        upstream.hidden_states(samples[:399])


def test_log_mel_is_kaldis_above_the_floor():
    tone = np.sin(2 * np.pi * 1_000 * np.arange(16_000) / 16_000).astype(np.float32)
    found = log_mel(tone)
    assert found.shape == (98, 80) and 25 <= int(found.mean(0).argmax()) <= 32  # 1 kHz is mel 28 of 80 below 8 kHz


def test_an_encoder_is_loaded_by_its_name(hubert_folder, encoder):
    assert load_upstream(hubert_folder("layer")).hash == encoder.hash
