"""Pieces of units: no frame is lost, words end where they are said to, and a reader keeps them."""

import numpy as np
import pytest

from speechssl.timing import RunLength
from speechssl.units.options import FitPieces
from speechssl.units.pieces import fit_pieces, load_pieces

from ..files import refused

K, END = 6, 5
WORD = [0, 1, 2, END]


@pytest.fixture
def fitted(tmp_path, save_units):
    """Pieces of units in which one word comes back among random ones."""
    rng, units = np.random.default_rng(0), {}
    for n in range(20):
        noise = rng.integers(0, END, (8, 3)).tolist()
        frames = [unit for others in noise for unit in (*WORD, *others)]
        units[str(n)] = RunLength(np.array(frames), rng.integers(1, 4, len(frames)), 10.0)
    save_units(units, {"codebook": "b"})

    def fit(**changes):
        options = {"size": 12, "least": 5, "boundary": END} | changes
        out = tmp_path / "pieces.json"
        fit_pieces(FitPieces(units=tmp_path / "units/train", out=out, **options))
        return load_pieces(out), units

    return fit


def read(pieces, ids):
    """The units that pieces stand for."""
    return [pieces.spell(int(i)) for i in ids]


def test_pieces_have_the_units_and_frames_that_they_were_joined_from(fitted):
    pieces, units = fitted()
    for runs in units.values():
        joined = pieces.join(runs)
        written = read(pieces, joined.units)
        assert [unit for piece in written for unit in piece] == runs.units.tolist()
        assert joined.frames == runs.frames
        assert joined.seconds == runs.seconds
        ends = np.cumsum([len(piece) for piece in written])
        assert joined.borders.tolist() == runs.borders[[0, *ends]].tolist()
    assert len(pieces.join(RunLength(np.zeros(0, int), np.zeros(0, int)))) == 0


def test_what_comes_back_becomes_one_piece_and_ends_with_its_word(fitted):
    pieces, _ = fitted()
    assert pieces.size == 12
    written = read(pieces, range(pieces.size))
    assert WORD in written
    assert all(END not in piece[:-1] for piece in written)
    assert read(pieces, range(K)) == [[unit] for unit in range(K)]
    crossing, _ = fitted(boundary=None, size=40)
    assert any(END in piece[:-1] for piece in read(crossing, range(crossing.size)))


def test_too_few_pieces_and_a_boundary_that_is_no_unit_are_refused(fitted, tmp_path):
    refused(f"{K} units", fitted, size=K)
    refused("boundary", fitted, boundary=K)
    (tmp_path / "other.json").write_text("{}")
    refused("other.json", load_pieces, tmp_path / "other.json")
