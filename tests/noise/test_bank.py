"""Noise of recordings: every file is used, wherever it lies; what is bad is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.errors import InputError
from speechssl.noise import (
    Distorter,
    NoiseBank,
    active_level,
    distort,
    parse_condition,
)

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"


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
