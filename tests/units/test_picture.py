"""The picture: everything at its time, to the frame grid, and only where there is something to show."""

import numpy as np
import pytest
import torch

from speechssl.errors import InputError
from speechssl.timing import FrameGrid, RunLength, interval_of_units
from speechssl.units import inspect as picture
from speechssl.units.inspect import colour, draw_units, log_mel, unit_blocks

GRID = FrameGrid(16_000, 320, 400)
RUNS = RunLength(np.array([7, 3, 7]), np.array([10, 30, 59]))  # 99 frames: 31,760 samples
SAMPLES = np.random.default_rng(0).uniform(-0.5, 0.5, 31_760 + 100).astype(np.float32)
PHONES = [("sil", 0.0, 0.5), ("AH0", 0.5, 1.99)]


def test_units_stand_over_the_samples_they_own():
    blocks = list(unit_blocks(RUNS, GRID))
    assert [b[0] for b in blocks] == ["7", "3", "7"] and blocks[0][3] == blocks[2][3] != blocks[1][3]
    borders = [0, GRID.seconds(10), GRID.seconds(40), 31_760 / 16_000]
    assert [b[1] for b in blocks] == borders[:-1] and [b[2] for b in blocks] == borders[1:]


def test_a_column_of_the_spectrogram_is_centred_on_its_sample():
    click = np.zeros(16_000, np.float32)
    click[8_000] = 1
    loudest = log_mel(click).sum(0).argmax()
    assert abs(int(loudest) * picture.HOP - 8_000) <= picture.HOP / 2


@pytest.mark.parametrize("piece", [2_000, 37])
@pytest.mark.parametrize(("first", "last"), [(0, 90), (100, 131), (350, 500), (398, None)])
def test_a_span_of_the_spectrogram_is_that_of_the_whole(monkeypatch, piece, first, last):
    from torchaudio.transforms import MelSpectrogram

    samples = SAMPLES * np.linspace(0.1, 2, len(SAMPLES), dtype=np.float32)  # the loudest is outside most spans
    power = MelSpectrogram(16_000, n_fft=1024, win_length=400, hop_length=80, n_mels=80, f_min=40.0)(torch.from_numpy(samples))
    whole = np.maximum(10 * np.log10(np.maximum(power, 1e-20) / power.max()), -70).numpy()
    monkeypatch.setattr(picture, "PIECE", piece)
    found = log_mel(samples, first, last)
    assert whole.shape == (80, 399) and np.allclose(found, whole[:, first:last], atol=1e-3)


def test_the_blocks_of_a_span_are_those_of_the_whole_that_touch_it():
    every = list(unit_blocks(RUNS, GRID))
    assert [b[1:3] for b in every] == [interval_of_units(GRID, RUNS, i, i) for i in range(3)]
    assert list(unit_blocks(RUNS, GRID, (0.3, 0.5))) == every[1:2]
    assert list(unit_blocks(RUNS, GRID, (every[1][2], 9.0))) == every[2:]


def test_names_that_no_font_has_are_no_warning(tmp_path, recwarn):
    draw_units(tmp_path / "a.png", SAMPLES, RUNS, GRID, [("\u8bed", 0.0, 1.0)], "\u8bed\u97f3 \U000e0fff")
    assert not [w for w in recwarn if "Glyph" in str(w.message)] and (tmp_path / "a.png").is_file()


def test_every_unit_has_its_colour():
    assert len({colour(i) for i in range(500)}) > 480
    assert colour(3) == colour(3) and all(len(colour(i)) == 7 for i in range(2_000))


@pytest.mark.parametrize("phones", [[], PHONES])
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_picture_is_written(tmp_path, phones, suffix):
    path = tmp_path / f"a{suffix}"
    draw_units(path, SAMPLES, RUNS, GRID, phones, "some $title$")
    content = path.read_bytes()
    assert len(content) > 5_000 and content[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    if suffix == ".svg":
        text = content.decode()
        assert "some $title$" in text and ">7<" in text and ">3<" in text and (">AH0<" in text) == bool(phones)
        again = tmp_path / "again.svg"
        draw_units(again, SAMPLES, RUNS, GRID, phones, "some $title$")
        assert again.read_text() == text


def test_a_long_recording_takes_rows_and_a_very_long_one_a_span(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "ROW_SECONDS", 0.5)
    assert picture._rows((0.0, 1.75), 2.0) == [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5), (1.5, 2.0)]
    assert picture._rows((0.5, 0.75), 2.0) == [(0.5, 0.75)]
    draw_units(tmp_path / "a.png", SAMPLES, RUNS, GRID, PHONES, span=(0.3, 1.6))
    monkeypatch.setattr(picture, "ROWS", 2)
    with pytest.raises(InputError, match="2.0 s are too long for a picture; name at most 1 s with --span"):
        draw_units(tmp_path / "b.png", SAMPLES, RUNS, GRID)
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize("span", [(3.0, 4.0), (1.0, 1.0), (1.5, 1.0), (0.0, float("nan"))])
def test_a_span_must_hold_something(tmp_path, span):
    with pytest.raises(InputError, match="holds nothing of a recording of 1.99 s; change --span"):
        draw_units(tmp_path / "a.png", SAMPLES, RUNS, GRID, span=span)


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"end its name in .png, .svg, .pdf"):
        draw_units(tmp_path / "a.bmp", SAMPLES, RUNS, GRID)
