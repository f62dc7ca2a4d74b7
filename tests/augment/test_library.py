"""A library decodes each file once, keeps it for the next process, and sets bad files aside."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE, read_audio, to_int16, write_flac
from speechssl.augment import training as library
from speechssl.augment.training import Library, generated, recorded
from speechssl.errors import InputError


def noise(seed: int, n: int = SAMPLE_RATE) -> np.ndarray:
    return 0.1 * np.random.default_rng(seed).standard_normal(n)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for i in range(3):
        write_flac(tmp_path / "noises" / f"{i}.flac", noise(i))
    return sorted((tmp_path / "noises").iterdir())


def test_clips_are_the_recordings(files: list[Path]) -> None:
    found = recorded(files, "street")
    assert len(found) == 3
    for i, file in enumerate(files):
        np.testing.assert_array_equal(found.clip(i), to_int16(read_audio(file)))


def test_kept_for_the_next_process(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = recorded(files, "street", cache=tmp_path / "cache")
    monkeypatch.setattr(library, "read_audio", None)  # would fail if it were called
    second = recorded(files, "street", cache=tmp_path / "cache")
    assert isinstance(second.samples, np.memmap) and second.card == first.card
    np.testing.assert_array_equal(first.samples, second.samples)
    np.testing.assert_array_equal(first.edges, second.edges)
    sent = pickle.dumps(second)
    assert len(sent) < 2000  # a worker maps the same file
    np.testing.assert_array_equal(pickle.loads(sent).samples, first.samples)


def test_another_set_of_files_is_not_taken_from_the_cache(files: list[Path], tmp_path: Path) -> None:
    assert len(recorded(files, "street", cache=tmp_path / "cache")) == 3
    assert len(recorded(files[:2], "street", cache=tmp_path / "cache")) == 2


def test_a_damaged_cache_is_refused(files: list[Path], tmp_path: Path) -> None:
    recorded(files, "street", cache=tmp_path / "cache")
    (kept,) = (tmp_path / "cache").glob("*/noise.int16")
    kept.write_bytes(kept.read_bytes()[:-2])
    with pytest.raises(InputError, match="delete the folder"):
        recorded(files, "street", cache=tmp_path / "cache")


def test_bad_files_are_set_aside_and_named(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = files[0].parent
    soundfile.write(folder / "silent.wav", np.zeros(SAMPLE_RATE), SAMPLE_RATE)
    soundfile.write(folder / "nan.wav", np.full(SAMPLE_RATE, np.nan, np.float32), SAMPLE_RATE, subtype="FLOAT")
    (folder / "text.wav").write_text("not audio")
    bad = [folder / name for name in ("silent.wav", "nan.wav", "text.wav", "missing.wav")]
    assert len(recorded([*files, *bad], "street")) == 3
    told = capsys.readouterr().err
    assert all(path.name in told for path in bad) and "4 recordings set aside" in told
    with pytest.raises(InputError, match="no recording of street noise can be used"):
        recorded(bad, "street")


def test_stereo_at_another_rate(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "s.wav", np.stack([noise(0, 44_100), noise(1, 44_100)], 1), 44_100)
    found = recorded([tmp_path / "s.wav"], "street")
    assert found.edges.tolist() == [0, SAMPLE_RATE]


def test_a_large_set_gives_a_stretch_of_each_file(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "HOURS", 1.5 / 3600)
    monkeypatch.setattr(library, "LEAST", 0.1)
    found = recorded(files, "street")
    assert np.diff(found.edges).tolist() == [8000] * 3
    starts = [np.flatnonzero(to_int16(read_audio(f)) == found.clip(i)[0]) for i, f in enumerate(files)]
    assert any(start[0] != 0 for start in starts)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 50_000), seed=st.integers(0, 2**32))
def test_crops_have_their_length(n: int, seed: int) -> None:
    samples = to_int16(noise(0, 30_000))
    crop = Library(samples, np.array([0, 10_000, 30_000]), {}).crop(np.random.default_rng(seed), n)
    assert crop.shape == (n,) and crop.dtype == np.float32 and np.isfinite(crop).all()


def test_pauses_are_not_drawn() -> None:
    samples = to_int16(noise(0, 200_000))
    samples[:150_000] = 0
    found = Library(samples, np.array([0, len(samples)]), {})
    loud = [bool(np.any(found.crop(np.random.default_rng(i), 1000))) for i in range(100)]
    assert np.mean(loud) > 0.85  # of single draws a quarter would be


def test_generated_noise_is_the_same_every_time(tmp_path: Path) -> None:
    one, two = generated(3, count=3, seconds=1.0), generated(3, tmp_path, count=3, seconds=1.0)
    np.testing.assert_array_equal(one.samples, two.samples)
    assert one.card["set"] == "stand-in" and not np.array_equal(one.samples, generated(4, count=3, seconds=1.0).samples)
