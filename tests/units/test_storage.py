"""Parquet parts: what goes in comes out, the same bytes for the same rows, and nothing that was
damaged is believed."""

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
    part_name,
    units_card,
)

from ..files import refused
from .conftest import same

ROWS = st.tuples(
    st.text(st.characters(codec="utf-8")), st.floats(0, 1e5), st.lists(st.integers(0, 3))
)


def utterances(rows):
    runs = [RunLength.of_frames(np.array(frames, np.int64), seconds) for _, seconds, frames in rows]
    some = zip(rows, runs, strict=True)
    return [UtteranceUnits(name, seconds, made, "0123") for (name, seconds, _), made in some]


def write(folder, *parts):
    """A unit corpus of these parts."""
    folder.mkdir()
    listed = []
    for index, rows in enumerate(parts):
        content = encode_part(Part(utterances(rows), {"K": 4}))
        (folder / part_name(index)).write_bytes(content)
        listed.append({"file": part_name(index), "hash": hash_bytes(content)})
    write_json(folder / "_card.json", {"parts": listed})
    return folder


@pytest.mark.slow
@given(st.lists(ROWS))
def test_rows_come_back_as_they_were(rows):
    part = Part(utterances(rows), {"K": 4, "name": "语"})
    found = decode_part(encode_part(part))
    assert found.card == part.card and len(found.utterances) == len(rows)
    for there, made in zip(found.utterances, part.utterances, strict=True):
        assert (there.id, there.audio_hash) == (made.id, made.audio_hash)
        assert same(there.runs, made.runs)
    assert encode_part(found) == encode_part(part)


def test_the_folder_is_one_table_of_plain_columns_for_other_readers(tmp_path):
    folder = write(tmp_path / "units", [("a", 0.1, [1, 1, 2])], [("b", 0.1, [3])])
    write_json(folder / "_failed.jsonl", {})
    assert pq.read_table(folder)["id"].to_pylist() == ["a", "b"]
    table = pq.read_table(folder / "part-00000.parquet")
    row = {"id": "a", "seconds": 0.1, "frames": 3, "units": [1, 2], "lengths": [2, 1]}
    assert table.to_pylist() == [row | {"audio_hash": "0123"}]


def test_units_of_another_split_are_named(tmp_path):
    refused("run `speechssl units extract`", units_card, tmp_path / "units/train")
    (tmp_path / "units/test").mkdir(parents=True)
    write_json(tmp_path / "units/test" / CARD, {})
    refused("has those of test: give --split", units_card, tmp_path / "units/train")


def test_a_corpus_is_read_in_order_and_part_by_part(tmp_path):
    folder = write(tmp_path / "units", [("b", 1.0, [1]), ("a", 1.0, [2, 2])], [], [("语", 1.0, [])])
    assert list(load_units(folder)) == ["b", "a", "语"] and load_units(folder)["a"].frames == 2
    stream = iterate_units(folder)
    assert next(stream).id == "b"
    (folder / "part-00002.parquet").unlink()
    assert next(stream).id == "a"
    refused("part-00002.parquet", next, stream)
