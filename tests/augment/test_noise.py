"""Test noise from recordings, and generated noise: its spectrum, its level, and its variety."""

import numpy as np
import pytest
from scipy import signal

from speechssl.audio import SAMPLE_RATE, write_flac
from speechssl.augment import Distorter, NoiseBank, parse_condition
from speechssl.augment.sounds import CLIP_RMS, DEV, HELD_OUT, SEEN, generate_clip
from speechssl.augment.training import parse_distortions
from speechssl.signal import make_generator

from ..files import refused
from ..test_signal import rms_db, steady


def test_musan_is_noise_music_and_babble(tmp_path):
    for kind, count in (("noise", 1), ("music", 1), ("speech", 4)):
        for i in range(count):
            sound = steady(n=12_000, seed=10 * len(kind) + i)
            write_flac(tmp_path / kind / "x" / f"{kind}{i}.flac", sound)
    bank = NoiseBank.open("m", folders={"musan": tmp_path})
    draws = [bank.draw(f"u{i}", 4000).pieces for i in range(60)]
    assert {pieces[0].file.parts[-3] for pieces in draws} == {"noise", "music", "speech"}
    # noise and music are one recording, babble has 3 to 7 voices
    assert {len(pieces) for pieces in draws} == {1, 3, 4, 5, 6, 7}
    assert NoiseBank.open(f"musan={tmp_path}") == bank
    refused("is not MUSAN: it lacks", NoiseBank.open, f"musan={tmp_path / 'noise'}")


@pytest.mark.parametrize("kind", ["pinkish", "{}", "name={}/none", "babble"])
def test_unknown_noise_is_refused(tmp_path, kind):
    condition = parse_condition(f"{kind.format(tmp_path)}@5")
    refused(kind.format(tmp_path).removeprefix("name="), Distorter().check, condition)


@pytest.mark.parametrize(
    ("kind", "slope"),  # dB an octave; 1/f noise halves its power with every octave
    [("pink", -3.01), ("coloured:-6.0", -6.0), ("coloured:0.0", 0.0), ("coloured:6.0", 6.0)],
)
def test_generated_noise_has_its_slope_and_power(kind, slope):
    noise = NoiseBank.open(kind, seed=1).draw("u1", 60 * SAMPLE_RATE).noise
    frequency, density = signal.welch(noise, SAMPLE_RATE, "blackmanharris", 4096)
    band = (frequency > 100) & (frequency < 7000)  # away from both ends of the spectrum
    fitted, _ = np.polyfit(np.log2(frequency[band]), 10 * np.log10(density[band]), 1)
    assert fitted == pytest.approx(slope, abs=0.15)
    assert rms_db(noise) == pytest.approx(0, abs=0.5)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_babble_mixes_every_talker_at_one_level(tmp_path, count):
    """Talkers are tones of 100, 200, ... Hz, each three times fainter than the one before."""
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    for i in range(count):
        write_flac(tmp_path / f"{i}.flac", 0.9 * 3.0**-i * np.sin(2 * np.pi * 100 * (i + 1) * time))
    babble = NoiseBank.open("babble", sorted(tmp_path.iterdir())).draw("u1", SAMPLE_RATE).noise
    spectrum = np.abs(np.fft.rfft(babble))
    heights = spectrum[100 : 100 * count + 1 : 100]  # a second of noise: the index is in Hz
    assert (heights > 1000 * np.median(spectrum)).all()  # every talker speaks
    if count == 5:  # of fewer talkers, some speak more than once
        np.testing.assert_allclose(heights, heights[0], rtol=1e-2)


# ---- families of sounds

SETS = {"stand-in": SEEN, "dev": DEV, "held-out": HELD_OUT}
EVERY = [*SEEN, *DEV, *HELD_OUT]


@pytest.mark.parametrize("family", EVERY, ids=[family.__name__ for family in EVERY])
def test_every_family_makes_sounds_that_differ_by_their_seed(family):
    sounds = [family(2 * SAMPLE_RATE, make_generator(seed, family.__name__)) for seed in (0, 0, 1)]
    for sound in sounds:
        assert sound.shape == (2 * SAMPLE_RATE,)
        assert np.isfinite(sound).all()
        assert np.std(sound) > 0
    np.testing.assert_array_equal(sounds[0], sounds[1])
    assert abs(np.corrcoef(sounds[0], sounds[2])[0, 1]) < 0.5


@pytest.mark.parametrize("name", SETS)
def test_clips_have_a_level_and_do_not_clip(name):
    for number in range(12):
        clip = generate_clip(SETS[name], make_generator(0, "test", str(number)), 2 * SAMPLE_RATE)
        assert clip.dtype == np.int16
        assert clip.shape == (2 * SAMPLE_RATE,)
        assert np.sqrt(np.mean((clip / 32768) ** 2)) == pytest.approx(CLIP_RMS, rel=0.1)
        assert np.abs(clip.astype(int)).max() < 32767


def test_training_cannot_name_noise_of_evaluation():
    assert len(set(EVERY)) == len(SEEN) + len(DEV) + len(HELD_OUT)  # no family is in two sets
    for name in ("dev", "held-out"):
        refused("is not a list of distortions", parse_distortions, name)
