"""Tests of pieces, the symbols to which byte pair encoding merges units: they stand for the units
and frames that they were joined from, and end at the unit that ends a word."""

import numpy as np
import pytest

from speechssl.timing import RunLength
from speechssl.units.options import FitPieces
from speechssl.units.pieces import fit_pieces, load_pieces

from ..files import refused

K = 6  # units, as the fixture `save_units` writes it to the card
END = 5  # the unit that ends a word
WORD = [0, 1, 2, END]


@pytest.fixture
def units():
    """Return the units of 20 recordings by id: WORD eight times, each before three random units."""
    rng = np.random.default_rng(0)
    units_by_id = {}
    for number in range(20):
        units = []
        for others in rng.integers(0, END, (8, 3)).tolist():
            units += [*WORD, *others]
        lengths = rng.integers(1, 4, len(units))
        units_by_id[str(number)] = RunLength(np.array(units), lengths, seconds=10.0)
    return units_by_id


@pytest.fixture
def fit(units, tmp_path, save_units):
    """Return a function (**changes of the options) -> Pieces fitted on `units`."""
    save_units(units, {"codebook": "b"})

    def fit_with(**changes):
        options = {"size": 12, "least": 5, "boundary": END} | changes
        out = tmp_path / "pieces.json"
        fit_pieces(FitPieces(units=tmp_path / "units/train", out=out, **options))
        return load_pieces(out)

    return fit_with


def spell_all(pieces, ids):
    """Return the units of each of the pieces."""
    return [pieces.spell(int(piece)) for piece in ids]


def test_pieces_have_the_units_and_frames_that_they_were_joined_from(fit, units):
    pieces = fit()
    for runs in units.values():
        joined = pieces.join(runs)
        spelled = spell_all(pieces, joined.units)
        assert [unit for piece in spelled for unit in piece] == runs.units.tolist()
        assert joined.frames == runs.frames
        assert joined.seconds == runs.seconds
        ends = np.cumsum([len(piece) for piece in spelled])
        assert joined.borders.tolist() == runs.borders[[0, *ends]].tolist()


def test_no_units_have_no_pieces(fit):
    no_units = RunLength(np.zeros(0, int), np.zeros(0, int))
    assert len(fit().join(no_units)) == 0


def test_a_word_that_comes_back_becomes_one_piece(fit):
    pieces = fit()
    assert pieces.size == 12
    assert WORD in spell_all(pieces, range(pieces.size))
    assert spell_all(pieces, range(K)) == [[unit] for unit in range(K)]  # units come first


def test_pieces_end_at_the_boundary_where_there_is_one(fit):
    pieces = fit(boundary=END)
    for piece in spell_all(pieces, range(pieces.size)):
        assert END not in piece[:-1]
    crossing = fit(boundary=None, size=40)
    assert any(END in piece[:-1] for piece in spell_all(crossing, range(crossing.size)))


def test_too_few_pieces_and_a_boundary_that_is_no_unit_are_refused(fit, tmp_path):
    refused(f"{K} units", fit, size=K)
    refused("boundary", fit, boundary=K)
    (tmp_path / "other.json").write_text("{}")
    refused("other.json", load_pieces, tmp_path / "other.json")
