"""SNRs are what was asked, nothing moves in time, and what is random depends on seed, kind and utterance alone."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.errors import InputError
from speechssl.noise import (
    Condition,
    Distorter,
    NoiseBank,
    active_level,
    babble,
    band_reject,
    distort,
    fit_length,
    gaussian,
    generator,
    mix,
    parse_condition,
    pink,
    pitch_shift,
    reverberate,
)
from speechssl.noise.room import room_impulse

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
PROPERTY = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32)
LENGTHS = st.integers(800, 20_000)


def steady(n: int = SAMPLE_RATE, seed: int = 0, level: float = 0.05) -> np.ndarray:
    """Something as loud everywhere, so that its active level is its RMS level."""
    return (level * np.random.default_rng(seed).standard_normal(n)).astype(np.float32)


def rms_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64))))


def real(*parts: str) -> Path:
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"the shared data folder is absent ({'/'.join(parts)})")
    return path


@pytest.fixture
def voices(tmp_path: Path) -> tuple[Path, ...]:
    """Five "people": a carrier each, with syllables of 0.2 s and pauses of 0.1 s."""
    time = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    for person in range(5):
        voice = 0.3 * np.sin(2 * np.pi * (110 + 37 * person) * time) * ((time + 0.05 * person) % 0.3 < 0.2)
        write_flac(tmp_path / "voices" / f"{person}.flac", voice)
    return tuple(sorted((tmp_path / "voices").iterdir()))


# Levels


@PROPERTY
@given(n=st.integers(1, 5000), seed=SEEDS)
def test_level_without_pauses_is_the_rms_level(n: int, seed: int) -> None:
    samples = np.sign(steady(n, seed)) * 0.1
    assert active_level(samples) == pytest.approx(rms_db(samples), abs=1e-6)


@PROPERTY
@given(pauses=st.lists(st.integers(0, 30), min_size=3, max_size=3), gain=st.floats(0.01, 3))
def test_level_ignores_pauses_and_follows_gain(pauses: list[int], gain: float) -> None:
    parts = [steady(6400, 1), steady(6400, 2)]
    gaps = [1e-4 * steady(320 * p, 3) for p in pauses]
    samples = np.concatenate([gaps[0], parts[0], gaps[1], parts[1], gaps[2]])
    assert active_level(gain * samples) == pytest.approx(rms_db(np.concatenate(parts)) + 20 * np.log10(gain), abs=1e-3)


def test_level_of_silence() -> None:
    assert active_level(np.zeros(1000)) == -np.inf
    with pytest.raises(ValueError, match="no samples"):
        active_level(np.zeros(0))


# Mixing


@PROPERTY
@given(n=LENGTHS, m=LENGTHS, snr=st.floats(-20, 40), level=st.floats(1e-3, 2), seed=SEEDS)
def test_measured_snr_is_the_asked_one(n: int, m: int, snr: float, level: float, seed: int) -> None:
    speech = steady(n, 1, 0.003)  # far from full scale, so that nothing is scaled down
    added = mix(speech, steady(m, 2, level), snr, np.random.default_rng(seed)).astype(np.float64) - speech
    assert rms_db(speech) - rms_db(added) == pytest.approx(snr, abs=0.1)


def test_pauses_do_not_change_the_noise() -> None:
    speech, noise = steady(16000, 1, 0.01), steady(48000, 2)
    paused = np.concatenate([speech, np.zeros(32000, np.float32)])
    added = [mix(s, noise[: len(s)], 5.0) - s for s in (speech, paused)]
    assert rms_db(added[0]) == pytest.approx(rms_db(added[1]), abs=0.1)


@PROPERTY
@given(n=LENGTHS, snr=st.floats(-30, -6), level=st.floats(0.4, 1))
def test_clip_guard_scales_the_whole(n: int, snr: float, level: float) -> None:
    speech, noise = np.clip(steady(n, 1, level), -1, 1), steady(n, 2)
    mixture = mix(speech, noise, snr)
    assert mixture.dtype == np.float32 and len(mixture) == n and np.abs(mixture).max() == 1.0
    weights, residual, *_ = np.linalg.lstsq(np.stack([speech, noise], 1).astype(np.float64), mixture, rcond=None)
    assert residual[0] < 1e-6 * n and weights[0] < 1  # still a sum of the two: nothing was clipped
    ratio = rms_db(weights[0] * speech) - rms_db(weights[1] * noise)
    assert ratio == pytest.approx(snr, abs=0.1)


@pytest.mark.parametrize(
    ("speech", "noise", "snr"),
    [(0, 1, 5.0), (1, 0, 5.0), (1, 1, float("nan")), (1, 1, float("inf"))],
)
def test_no_snr_to_be_had(speech: int, noise: int, snr: float) -> None:
    with pytest.raises(ValueError, match="SNR"):
        mix(speech * steady(), noise * steady(seed=1), snr)


@PROPERTY
@given(m=st.integers(1, 9000), n=st.integers(1, 30_000), seed=SEEDS)
def test_noise_is_fitted_without_gaps(m: int, n: int, seed: int) -> None:
    """A constant never falls at a join (equal-power fades raise it by 3 dB at most)."""
    fitted = fit_length(np.ones(m), n, np.random.default_rng(seed))
    assert fitted.shape == (n,) and fitted.min() > 1 - 1e-9 and fitted.max() < np.sqrt(2) + 1e-9


def test_joins_do_not_click() -> None:
    ramp = np.linspace(-1, 1, 4000)  # its two ends are as far apart as can be
    assert np.abs(np.diff(fit_length(ramp, 40_000))).max() < 0.01


def test_noise_is_repeated_not_stretched() -> None:
    time = np.arange(4000) / SAMPLE_RATE
    fitted = fit_length(np.sin(2 * np.pi * 1000 * time), 64_000)
    assert np.argmax(np.abs(np.fft.rfft(fitted))) == 4000  # 1000 Hz over 4 s


def test_long_noise_is_cropped_at_changing_places() -> None:
    noise = np.arange(100_000.0)
    starts = {float(fit_length(noise, 1000, generator(0, str(i)))[0]) for i in range(20)}
    assert len(starts) == 20 and fit_length(noise, 1000)[0] == 0


# Generated noise


@pytest.mark.parametrize("n", [1, 2, 777, 16000, 16001])
def test_generated_noise_has_its_length_and_power(n: int) -> None:
    for noise in (gaussian(n, generator(0)), pink(n, generator(0))):
        assert noise.shape == (n,) and np.isfinite(noise).all() and np.any(noise)
    if n >= 16000:
        assert rms_db(pink(n, generator(0))) == pytest.approx(0, abs=0.5)


def test_pink_falls_by_three_decibels_an_octave() -> None:
    frequency, density = signal.welch(pink(60 * SAMPLE_RATE, generator(1)), SAMPLE_RATE, nperseg=4096)
    band = (frequency > 50) & (frequency < 7000)
    slope = np.polyfit(np.log2(frequency[band]), 10 * np.log10(density[band]), 1)[0]
    assert slope == pytest.approx(-3.01, abs=0.1)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_babble_mixes_every_talker_at_one_level(count: int) -> None:
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    voices = [10.0**-i * np.sin(2 * np.pi * 100 * (i + 1) * time) for i in range(count)]
    spectrum = np.abs(np.fft.rfft(babble(voices, SAMPLE_RATE, generator(0), talkers=count)))
    heights = spectrum[100 : 100 * count + 1 : 100]
    np.testing.assert_allclose(heights, heights[0], rtol=1e-3)


def test_babble_needs_voices() -> None:
    with pytest.raises(ValueError, match="voices"):
        babble([], 100, generator(0))


# Rooms


@PROPERTY
@given(seed=SEEDS, rt60=st.floats(0.1, 1.5), delay=st.integers(0, 500))
def test_reverberation_does_not_move_the_direct_path(seed: int, rt60: float, delay: int) -> None:
    speech = np.zeros(8000, np.float32)
    speech[3000] = 0.1
    impulse = np.concatenate([np.zeros(delay), room_impulse(np.random.default_rng(seed), rt60)])
    wet = reverberate(speech, impulse)
    assert wet.shape == speech.shape and int(np.argmax(np.abs(wet))) == 3000
    assert np.abs(wet[:3000]).max() < 1e-3 * np.abs(wet).max()  # nothing comes before it


def test_reverberation_keeps_the_level_and_reaches_into_pauses() -> None:
    speech = np.concatenate([steady(), np.zeros(SAMPLE_RATE // 2, np.float32)])
    wet = reverberate(speech, room_impulse(np.random.default_rng(0), 0.6))
    assert active_level(wet) == pytest.approx(active_level(speech), abs=0.01)
    assert rms_db(wet[16000:17600]) > rms_db(speech) - 20


@pytest.mark.parametrize("rt60", [0.3, 0.6, 1.0])
def test_room_decays_in_the_asked_time(rt60: float) -> None:
    """Schroeder's backward integral between -5 and -25 dB (ISO 3382 T20), over ten rooms."""
    measured = []
    for seed in range(10):
        energy = np.cumsum(room_impulse(np.random.default_rng(seed), rt60)[::-1] ** 2)[::-1]
        decay = 10 * np.log10(energy / energy[0])
        measured.append(3 * int(np.argmax(decay < -25) - np.argmax(decay < -5)) / SAMPLE_RATE)
    assert np.mean(measured) == pytest.approx(rt60, rel=0.15)
    assert len({round(m, 6) for m in measured}) > 5  # the rooms differ


@pytest.mark.parametrize(("rt60", "distance"), [(0.0, 1.0), (9.0, 1.0), (float("nan"), 1.0), (0.5, 0.0), (0.5, 4.0)])
def test_impossible_room(rt60: float, distance: float) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        room_impulse(np.random.default_rng(0), rt60, distance)


@pytest.mark.parametrize("impulse", [np.zeros(0), np.zeros(10)])
def test_empty_impulse(impulse: np.ndarray) -> None:
    with pytest.raises(ValueError, match="empty or zero"):
        reverberate(steady(), impulse)


# Pitch and band


def test_pitch_moves_and_time_does_not() -> None:
    time = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    shifted = pitch_shift(0.3 * np.sin(2 * np.pi * 400 * time) * (time > 1), 12)
    assert shifted.shape == time.shape and shifted.dtype == np.float32
    assert np.argmax(np.abs(np.fft.rfft(shifted))) / 2 == pytest.approx(800, abs=10)
    assert np.argmax(np.abs(shifted) > 0.05) / SAMPLE_RATE == pytest.approx(1.0, abs=0.03)


def test_band_is_rejected_without_delay() -> None:
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    kept, removed = (0.3 * np.sin(2 * np.pi * f * time) for f in (400, 1500))
    filtered = band_reject(kept + removed, 1000, 2000)
    np.testing.assert_allclose(filtered[2000:-2000], kept[2000:-2000], atol=0.01)
    with pytest.raises(ValueError, match="not a band"):
        band_reject(kept, 2000, 1000)


# Conditions


@pytest.mark.parametrize(
    ("text", "condition", "label"),
    [
        ("clean", Condition("clean"), "clean"),
        ("pink@10", Condition("noise", "pink", snr_db=10), "pink 10 dB"),
        ("babble@-2.5", Condition("noise", "babble", snr_db=-2.5), "babble -2.5 dB"),
        ("noises/kitchen.wav@5", Condition("noise", "noises/kitchen.wav", snr_db=5), "kitchen 5 dB"),
        ("a@b/x.wav@0", Condition("noise", "a@b/x.wav", snr_db=0), "x 0 dB"),
        ("reverb", Condition("reverb", rt60=0.5), "reverb 0.5 s"),
        ("reverb@0.6", Condition("reverb", rt60=0.6), "reverb 0.6 s"),
        ("pitch@-2", Condition("pitch", semitones=-2), "pitch -2"),
        ("band@1000-2000", Condition("band", band=(1000, 2000)), "no 1000-2000 Hz"),
    ],
)
def test_conditions_are_read_and_named(text: str, condition: Condition, label: str) -> None:
    assert parse_condition(text) == condition
    assert condition.label == label


@pytest.mark.parametrize(
    "text",
    ["", "pink", "pink@", "@5", "clean@3", "pink@loud", "pink@nan", "pink@inf", "reverb@0", "reverb@99", "reverb@"]
    + ["pitch", "pitch@99", "band", "band@1000", "band@2000-1000", "band@100-9000", "kitchen.wav"],
)
def test_malformed_conditions(text: str) -> None:
    with pytest.raises(InputError, match="condition") as caught:
        parse_condition(text)
    assert repr(text) in str(caught.value)


CONDITIONS = ["pink@10", "gaussian@0", "babble@5", "reverb@0.4", "pitch@3", "band@500-1500"]


@pytest.mark.parametrize("text", CONDITIONS)
@pytest.mark.parametrize("n", [800, 16_001])
def test_length_and_type_are_kept_and_the_input_is_not_touched(text: str, n: int, voices: tuple[Path, ...]) -> None:
    samples = steady(n)
    before = samples.copy()
    distorted = Distorter(0, voices).apply(samples, parse_condition(text), "u1")
    assert distorted.shape == (n,) and distorted.dtype == np.float32 and np.abs(distorted).max() <= 1
    np.testing.assert_array_equal(samples, before)
    assert not np.array_equal(distorted, samples)


def test_clean_is_the_input() -> None:
    samples = steady()
    assert distort(samples, Condition("clean"), "u1") is samples


def test_order_and_workers_do_not_matter(voices: tuple[Path, ...]) -> None:
    distorter, jobs = Distorter(3, voices), [(parse_condition(c), f"u{i}") for c in CONDITIONS for i in range(3)]
    samples = steady(4000)
    forwards = [distorter.apply(samples, *job) for job in jobs]
    backwards = [Distorter(3, voices).apply(samples, *job) for job in reversed(jobs)][::-1]
    with ThreadPoolExecutor(2) as pool:
        parallel = list(pool.map(lambda job: distorter.apply(samples, *job), jobs))
    for one, two, three in zip(forwards, backwards, parallel, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_another_process_draws_the_same() -> None:
    program = "from speechssl.noise import NoiseBank; print(NoiseBank('pink', seed=7).sample('u1', 5).tolist())"
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == str(NoiseBank("pink", seed=7).sample("u1", 5).tolist())


@pytest.mark.parametrize("text", ["pink@10", "babble@5", "reverb@0.4"])
def test_utterances_and_seeds_differ(text: str, voices: tuple[Path, ...]) -> None:
    samples, condition = steady(4000), parse_condition(text)
    results = [Distorter(s, voices).apply(samples, condition, u) for s, u in [(0, "u1"), (0, "u2"), (1, "u1")]]
    assert len({r.tobytes() for r in results}) == 3


def test_every_snr_has_the_same_noise() -> None:
    samples = steady(8000, 0, 0.01)
    added = [distort(samples, parse_condition(f"pink@{snr}"), "u1").astype(np.float64) - samples for snr in (0, 10)]
    np.testing.assert_allclose(added[0], added[1] * np.sqrt(10), atol=1e-6)


# Banks of recordings


def test_folder_of_recordings(tmp_path: Path) -> None:
    for i in range(4):
        write_flac(tmp_path / "noises" / "sub" / f"{i}.flac", steady(8000, i))
    (tmp_path / "noises" / "README.txt").write_text("not audio")
    bank = NoiseBank.of(str(tmp_path / "noises"))
    assert [f.name for f in bank.files] == ["0.flac", "1.flac", "2.flac", "3.flac"]
    draws = [bank.sample(f"u{i}", 8000) for i in range(30)]
    assert {d.tobytes() for d in draws} == {read_audio(f).tobytes() for f in bank.files}  # all of them are used


def test_the_place_of_the_noise_does_not_matter(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        write_flac(tmp_path / folder / "n.flac", steady(20_000))
    here, there = (NoiseBank.of(str(tmp_path / f)).sample("u1", 1000) for f in ("here", "there"))
    np.testing.assert_array_equal(here, there)


def test_a_silent_stretch_is_not_drawn(tmp_path: Path) -> None:
    noise = np.zeros(40_000, np.float32)
    noise[:20_000] = steady(20_000)
    write_flac(tmp_path / "n.flac", noise)
    bank = NoiseBank.of(str(tmp_path / "n.flac"))
    assert all(np.any(bank.sample(f"u{i}", 1000)) for i in range(20))


@pytest.mark.parametrize("kind", ["pinkish", "missing.wav"])
def test_unknown_noise_is_refused_early(kind: str) -> None:
    with pytest.raises(InputError, match=f"there is no noise {kind}"):
        Distorter().check(parse_condition(f"{kind}@5"))


def test_babble_without_voices_is_refused_early(voices: tuple[Path, ...]) -> None:
    with pytest.raises(InputError, match="needs voices"):
        Distorter().check(parse_condition("babble@5"))
    Distorter(0, voices).check(parse_condition("babble@5"))


def test_bad_recording_is_named(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "silent.wav", np.zeros(SAMPLE_RATE), SAMPLE_RATE)
    with pytest.raises(InputError, match=r"silent\.wav is silent"):
        distort(steady(), parse_condition(f"{tmp_path / 'silent.wav'}@5"), "u1")


def test_kitchen_noise_over_real_speech() -> None:
    speech = 0.1 * read_audio(real("fsdd", "recordings", "3_jackson_0.wav"))
    kitchen = real("noise", "kitchen.wav")
    added = distort(speech, parse_condition(f"{kitchen}@5"), "3_jackson_0").astype(np.float64) - speech
    assert active_level(speech) - rms_db(added) == pytest.approx(5, abs=0.1)


def test_babble_of_real_voices() -> None:
    folder = real("fsdd", "recordings")
    voices = tuple(folder / f"3_{who}_0.wav" for who in ("george", "jackson", "lucas", "nicolas"))
    speech = read_audio(folder / "7_theo_0.wav")
    mixture = Distorter(0, voices).apply(speech, parse_condition("babble@0"), "7_theo_0")
    assert len(mixture) == len(speech) and 0.2 < np.corrcoef(mixture, speech)[0, 1] < 0.95
