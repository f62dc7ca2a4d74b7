"""Cutting long recordings at pauses, and putting the words back."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.cascade.data import TimedWord, Transcript, features_on_disk, split_at_pauses, transcribe_pieces
from speechssl.errors import InputError
from speechssl.io import read_json, write_json

RATE = 1_000


@given(samples=st.integers(0, 20_000), longest=st.floats(0.4, 6), seed=st.integers(0, 99))
def test_pieces_tile_the_recording_and_none_is_too_long(samples, longest, seed):
    audio = np.random.default_rng(seed).normal(size=samples).astype(np.float32)
    pieces = split_at_pauses(audio, longest, RATE)
    assert [i for a, b in pieces for i in range(a, b)] == list(range(samples))
    assert all(0 < b - a <= longest * RATE for a, b in pieces)


def test_cuts_fall_into_the_pauses():
    audio = np.ones(10_000, np.float32)
    for pause in (1.4, 3.1, 4.4, 6.0, 7.3, 9.0):
        audio[int((pause - 0.1) * RATE) : int((pause + 0.1) * RATE)] = 0
    borders = [0, 1400, 3100, 4400, 6000, 7300, 9000, 10_000]
    assert split_at_pauses(audio, 2.0, RATE) == list(itertools.pairwise(borders))


def test_a_short_recording_stays_whole_and_pieces_too_short_for_a_pause_are_refused():
    assert split_at_pauses(np.zeros(2_000), 2.0, RATE) == [(0, 2_000)]
    assert split_at_pauses(np.zeros(0), 2.0, RATE) == []
    with pytest.raises(ValueError, match=r"at least 0\.4 s"):
        split_at_pauses(np.zeros(10), 0.3, RATE)


def test_words_come_back_where_they_were_said_and_inside_their_piece():
    audio = np.ones(3_000, np.float32)
    audio[1_400:1_600] = 0
    seen: list[int] = []

    def decode(piece: np.ndarray) -> list[TimedWord]:
        seen.append(len(piece))
        return [TimedWord("one", 0.1, 0.5, 1.0), TimedWord("late", 1.2, 9.0, 1.0)]

    words = transcribe_pieces(audio, 2.0, RATE, decode)
    assert seen == [1_500, 1_500]
    assert [(w.start, w.end) for w in words] == [(0.1, 0.5), (1.2, 1.5), (1.6, 2.0), (2.7, 3.0)]
    assert Transcript(words).text == "one late one late"
    assert Transcript(words[:2], "").text == "onelate"


def test_a_flipped_bit_in_kept_features_is_noticed(tmp_path):
    recordings = {"a": np.ones((3, 2)), "b": np.zeros((5, 2))}
    for _ in range(2):
        array, bounds, facts = features_on_disk(recordings, lambda rows: (rows, len(rows)), tmp_path, "tests")
        assert array.shape == (8, 2) and bounds == {"a": (0, 3), "b": (3, 8)} and facts == {"a": 3, "b": 5}
    kept, index = tmp_path / "features.f16", tmp_path / "index.card.json"
    card = read_json(index)
    index.unlink()
    write_json(tmp_path / "index.json", {name: card[name] for name in ("stops", "shape", "facts", "failed")})  # as it was before
    assert features_on_disk(recordings, lambda rows: pytest.fail("made again"), tmp_path, "tests")[1] == bounds
    write_json(index, card | {"files": [kept.name]})
    with pytest.raises(InputError, match="does not say what its files are; delete the folder"):
        features_on_disk(recordings, lambda rows: (rows, len(rows)), tmp_path, "tests")
    write_json(index, card)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:7] + b"!" + whole[8:])
    with pytest.raises(InputError, match=r"features.f16 is not the file that its card describes; delete .* made again"):
        features_on_disk(recordings, lambda rows: (rows, len(rows)), tmp_path, "tests")
