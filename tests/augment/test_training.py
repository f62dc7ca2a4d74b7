"""Distortions for training: libraries of noise, and what each crop gets."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE, read_audio, to_int16, write_flac
from speechssl.augment import training
from speechssl.augment.sounds import draw_clips
from speechssl.augment.training import (
    Library,
    TrainingDistortions,
    decode_recordings,
    parse_distortions,
)
from speechssl.errors import InputError

from ..files import refused

ROOT = Path(__file__).parents[2]
PROPERTY = settings(max_examples=30, deadline=None)


def noise(seed: int, n: int = SAMPLE_RATE) -> np.ndarray:
    return 0.1 * np.random.default_rng(seed).standard_normal(n)


def speech(n: int = SAMPLE_RATE, level: float = 0.003) -> np.ndarray:
    """Far from full scale, so that nothing is scaled down in tests of the SNR."""
    return (level * np.random.default_rng(1).standard_normal(n)).astype(np.float32)


def snr_db(samples: np.ndarray, distorted: np.ndarray) -> float:
    added = distorted.astype(np.float64) - samples
    return float(10 * np.log10(np.mean(samples.astype(np.float64) ** 2) / np.mean(added**2)))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for i in range(3):
        write_flac(tmp_path / "noises" / f"{i}.flac", noise(i))
    return sorted((tmp_path / "noises").iterdir())


def test_clips_are_the_recordings_and_kept_for_the_next_process(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = decode_recordings(files, "street", cache=tmp_path / "cache")
    for i, file in enumerate(files):
        start, end = first.edges[i : i + 2]
        np.testing.assert_array_equal(first.samples[start:end], to_int16(read_audio(file)))
    # another set is not taken from the cache
    assert len(decode_recordings(files[:2], "street", cache=tmp_path / "cache").edges) == 3
    monkeypatch.setattr(training, "read_audio", None)  # would fail if it were called
    second = decode_recordings(files, "street", cache=tmp_path / "cache")
    assert isinstance(second.samples, np.memmap) and second.card == first.card
    np.testing.assert_array_equal(first.samples, second.samples)
    np.testing.assert_array_equal(first.edges, second.edges)
    sent = pickle.dumps(second)
    assert len(sent) < 2000  # a worker maps the same file
    np.testing.assert_array_equal(pickle.loads(sent).samples, first.samples)


def test_bad_files_are_set_aside_and_named(
    files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files[0].parent
    soundfile.write(folder / "silent.wav", np.zeros(SAMPLE_RATE), SAMPLE_RATE)
    (folder / "text.wav").write_text("not audio")
    bad = [folder / name for name in ("silent.wav", "text.wav", "missing.wav")]
    assert len(decode_recordings([*files, *bad], "street").edges) == 4
    listed = capsys.readouterr().err
    assert all(path.name in listed for path in bad)
    refused("no recording of street noise can be used", decode_recordings, bad, "street")


def test_pauses_are_not_drawn() -> None:
    samples = to_int16(noise(0, 200_000))
    samples[:150_000] = 0
    found = Library(samples, np.array([0, len(samples)]), {})
    loud = [bool(np.any(found.crop(np.random.default_rng(i), 1000))) for i in range(100)]
    assert np.mean(loud) > 0.85  # of single draws a quarter would be


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> TrainingDistortions:
    folder = tmp_path_factory.mktemp("noises")
    for i, seconds in enumerate((0.3, 1.5, 4.0)):  # some shorter than a crop
        write_flac(folder / f"{i}.flac", noise(i, round(seconds * SAMPLE_RATE)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "draw_clips", lambda seed: draw_clips(seed, 4, 1.0))
        return parse_distortions(
            "m+g+r+p+b+c+s+street",
            {"voices": folder, "street": folder},
            probability=(1, 1),
            double=0.3,
        )


@PROPERTY
@given(
    n=st.integers(600, 30_000),
    key=st.tuples(st.integers(0, 9), st.integers(0, 10**6)),
    progress=st.floats(-1, 2),
)
def test_shape_type_and_domain(
    every_kind: TrainingDistortions, n: int, key: tuple[int, int], progress: float
) -> None:
    samples = speech(n, 0.05)
    before = samples.copy()
    distorted, domain = every_kind.apply(samples, key, progress)
    assert distorted.shape == (n,) and distorted.dtype == np.float32
    assert 0 <= domain < len(every_kind.domains)
    assert np.isfinite(distorted).all() and np.abs(distorted).max() <= 1
    np.testing.assert_array_equal(samples, before)


def test_domains_are_clean_and_the_letters(every_kind: TrainingDistortions) -> None:
    assert every_kind.domains == ("clean", "m", "g", "r", "p", "b", "c", "s", "street")
    assert {every_kind.apply(speech(4000), (i,), 0.0)[1] for i in range(150)} == set(range(1, 9))
    shortest = parse_distortions("g+r+c", probability=(1, 1))
    for n in (1, 2, 50):
        for i in range(12):
            assert shortest.apply(np.full(n, 0.1, np.float32), (i,), 0.0)[0].shape == (n,)


@PROPERTY
@given(
    low=st.floats(-10, 20),
    width=st.floats(0, 15),
    progress=st.floats(0, 1),
    key=st.integers(0, 10**9),
)
def test_the_snr_is_in_its_range(low: float, width: float, progress: float, key: int) -> None:
    distortions = parse_distortions(
        "g", probability=(1, 1), snr=(low, low + width), snr_end=(low - 5, low + width + 5)
    )
    samples = speech()
    distorted, _ = distortions.apply(samples, (key,), progress)
    spread = 5 * progress
    assert low - spread - 0.1 <= snr_db(samples, distorted) <= low + width + spread + 0.1


@pytest.mark.slow
def test_shares_and_probability_are_kept() -> None:
    distortions = parse_distortions("g:1+r:3", probability=(0.2, 0.8))
    samples = speech(800)
    for progress, distorted in ((0.0, 0.2), (1.0, 0.8)):
        counts = Counter(distortions.apply(samples, (i,), progress)[1] for i in range(3000))
        assert 1 - counts[0] / 3000 == pytest.approx(distorted, abs=0.03)
        assert counts[2] / (counts[1] + counts[2]) == pytest.approx(0.75, abs=0.04)


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(0, np.float32),
        np.zeros(4000, np.float32),
        np.full(4000, np.nan, np.float32),
        np.full(900, 1e-6, np.float32),
    ],
    ids=["empty", "zero", "nan", "faint"],
)
def test_silence_stays_clean(every_kind: TrainingDistortions, samples: np.ndarray) -> None:
    for i in range(20):
        distorted, domain = every_kind.apply(samples, (i,), 0.5)
        assert domain == 0 and distorted is samples


def test_snrs_over_the_whole_signal_count_its_silence() -> None:
    samples = np.concatenate([speech(), np.zeros(3 * SAMPLE_RATE, np.float32)])
    over = {
        name: parse_distortions("g", probability=(1, 1), snr=(5, 5), snr_over=name)
        for name in ("active", "signal")
    }
    assert snr_db(samples, over["signal"].apply(samples, (0, 0))[0]) == pytest.approx(5, abs=0.01)
    assert snr_db(samples, over["active"].apply(samples, (0, 0))[0]) == pytest.approx(
        5 - 10 * np.log10(4), abs=0.1
    )


def test_musan_of_the_user(tmp_path: Path) -> None:
    for kind in ("noise", "music", "speech"):
        write_flac(tmp_path / kind / "a" / f"{kind}.flac", speech(SAMPLE_RATE, 0.1))
    distortions = parse_distortions("m", {"musan": tmp_path}, probability=(1, 1))
    card = distortions.card["kinds"][0]
    assert card["set"] == "musan" and len(card["of"]) == 3
    assert {distortions.apply(speech(2000), (i,), 0.0)[1] for i in range(9)} == {1}
    (tmp_path / "music" / "a" / "music.flac").unlink()
    refused("no recordings in .*music", parse_distortions, "m", {"musan": tmp_path})


def test_measured_rooms_take_the_place_of_simulated_ones(tmp_path: Path) -> None:
    impulse = np.zeros(1600)
    impulse[[100, 900]] = 0.9, 0.45
    write_flac(tmp_path / "room.flac", impulse)
    distortions = parse_distortions("r", {"rir": tmp_path}, probability=(1, 1))
    click = np.zeros(4000, np.float32)
    click[1000] = 0.5
    found, domain = distortions.apply(click, "u1", 0.0)
    assert domain == 1 and np.argsort(np.abs(found))[-2:].tolist() == [1800, 1000]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "not a list"),
        ("g:x", "not a list"),
        ("g:0", "not a list"),
        ("g:nan", "not a list"),
        ("held-out", "not a list"),
        ("s", "no recordings in voices for voices"),
        ({"snr": (19, 10)}, "lower number first"),
        ({"snr_end": (0, float("nan"))}, "SNR range"),
    ],
)
def test_malformed_distortions_and_impossible_options(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_distortions(given) if isinstance(given, str) else parse_distortions("g", **given)
