"""Tests of Parquet parts: a part comes back as it was written, with the same bytes for the same
rows, and a missing part is named."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.artifacts import hash_bytes, write_json
from speechssl.timing import RunLength
from speechssl.units.storage import (
    CARD,
    Part,
    UtteranceUnits,
    decode_part,
    encode_part,
    iterate_units,
    load_units,
    name_part,
    read_units_card,
)

from ..files import refused
from .conftest import same_runs

# An utterance in these tests is (id, seconds, unit of every frame).
UTTERANCES = st.tuples(
    st.text(st.characters(codec="utf-8")), st.floats(0, 1e5), st.lists(st.integers(0, 3))
)


def make_part(utterances, **card):
    rows = []
    for name, seconds, frames in utterances:
        runs = RunLength.of_frames(np.array(frames, np.int64), seconds)
        rows.append(UtteranceUnits(name, seconds, runs, audio_hash="0123"))
    return Part(rows, {"K": 4} | card)


def write_units(folder, *parts):
    """Write a unit corpus whose parts are these lists of utterances. Returns the folder."""
    folder.mkdir()
    listed = []
    for index, utterances in enumerate(parts):
        content = encode_part(make_part(utterances))
        (folder / name_part(index)).write_bytes(content)
        listed.append({"file": name_part(index), "hash": hash_bytes(content)})
    write_json(folder / CARD, {"parts": listed})
    return folder


@pytest.mark.slow
@given(st.lists(UTTERANCES))
def test_a_part_comes_back_as_it_was(utterances):
    part = make_part(utterances, name="语")
    decoded = decode_part(encode_part(part))
    assert decoded.card == part.card
    for row, written in zip(decoded.utterances, part.utterances, strict=True):
        assert row.id == written.id
        assert row.audio_hash == written.audio_hash
        assert same_runs(row.runs, written.runs)
    assert encode_part(decoded) == encode_part(part)


def test_pyarrow_reads_the_folder_as_one_table_of_plain_columns(tmp_path):
    folder = write_units(tmp_path / "units", [("a", 0.1, [1, 1, 2])], [("b", 0.1, [3])])
    write_json(folder / "_failed.jsonl", {})  # pyarrow passes over names with _
    assert pq.read_table(folder)["id"].to_pylist() == ["a", "b"]
    table = pq.read_table(folder / "part-00000.parquet")
    row = {"id": "a", "seconds": 0.1, "frames": 3, "units": [1, 2], "lengths": [2, 1]}
    assert table.to_pylist() == [row | {"audio_hash": "0123"}]


def test_units_of_another_split_are_named(tmp_path):
    refused("run `speechssl units extract`", read_units_card, tmp_path / "units/train")
    (tmp_path / "units/test").mkdir(parents=True)
    write_json(tmp_path / "units/test" / CARD, {})
    refused("has those of test: give --split", read_units_card, tmp_path / "units/train")


def test_a_corpus_is_read_in_order_and_part_by_part(tmp_path):
    parts = [("b", 1.0, [1]), ("a", 1.0, [2, 2])], [], [("语", 1.0, [])]
    folder = write_units(tmp_path / "units", *parts)
    loaded = load_units(folder)
    assert list(loaded) == ["b", "a", "语"]
    assert loaded["a"].frames == 2
    stream = iterate_units(folder)
    assert next(stream).id == "b"
    (folder / "part-00002.parquet").unlink()
    assert next(stream).id == "a"  # the last part has not been read yet
    refused("part-00002.parquet", next, stream)
