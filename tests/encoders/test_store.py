"""Tests of the feature store: features are computed once, shards are whole or absent, recordings
that failed are tried again, and the rows of all recordings can be read as one array."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from speechssl.encoders.store import StoredRows, store_features

from ..files import refused

LENGTHS = {"a": 3, "b": 5, "c": 1, "d": 4}  # rows of each recording
ROWS = {}
for _name, _length in LENGTHS.items():
    _normal = np.random.default_rng(_length).normal(size=(_length, 2))
    ROWS[_name] = torch.from_numpy(_normal).half()


def encode(name):
    """Return the rows of a recording, and no further value."""
    return ROWS[name], None


def store_rows(folder, encode=encode):
    """Store the four recordings, two in a shard."""
    return store_features(
        folder,
        recordings={name: name for name in LENGTHS},
        encode=encode,
        sizes=dict.fromkeys(LENGTHS, 1),  # bytes
        made_from={"of": "x"},
        what="tests",
        workers=1,
        shard_mb=2e-6,
    )


@pytest.fixture
def encoded_names():
    """Return an `encode` that notes the recordings, and the list of these."""
    names = []

    def encode_and_note(name):
        names.append(name)
        return encode(name)

    return encode_and_note, names


def test_rows_and_facts_come_back_and_are_computed_once(tmp_path):
    def encode_with_length(name):
        return ROWS[name], {"length": len(ROWS[name])} if name != "c" else None

    store = store_rows(tmp_path / "f", encode_with_length)
    again = store_rows(tmp_path / "f", lambda name: pytest.fail("computed again"))
    for opened in (store, again, pickle.loads(pickle.dumps(store))):
        for name, rows in ROWS.items():
            assert torch.equal(opened[name], rows)
        assert torch.equal(opened.read_rows("b", 1, 3), ROWS["b"][1:3])
        assert "e" not in opened
        assert opened.facts == {"a": {"length": 3}, "b": {"length": 5}, "d": {"length": 4}}
    assert len(list((tmp_path / "f").glob("shard-*"))) == 2


@pytest.mark.parametrize("wanted", [slice(2, 10), slice(4, 4), slice(1, 12, 5), slice(12, 99)])
def test_all_rows_are_those_of_one_array(tmp_path, wanted):
    rows = StoredRows(store_rows(tmp_path / "f"))
    whole = np.concatenate([rows.numpy() for rows in ROWS.values()])
    assert rows.shape == whole.shape
    assert rows.bounds["c"] == (8, 9)  # a and b have eight rows
    assert np.array_equal(rows[wanted], whole[wanted])
    assert rows[wanted].dtype == np.float16


def test_recordings_that_failed_are_tried_again_with_their_shard(tmp_path, capsys, encoded_names):
    def fail_for_b_and_c(name):
        if name == "b":
            raise ValueError("no sound")
        if name == "c":
            return ROWS[name] * torch.inf, None
        return ROWS[name], None

    store = store_rows(tmp_path / "f", fail_for_b_and_c)
    assert set(store.places) == {"a", "d"}
    assert store.failed["b"] == "no sound"
    assert "not finite" in store.failed["c"]
    assert "set aside b: no sound" in capsys.readouterr().err
    encode_and_note, names = encoded_names
    store = store_rows(tmp_path / "f", encode_and_note)
    assert names == list(LENGTHS)
    for name, rows in ROWS.items():
        assert torch.equal(store[name], rows)


def test_a_killed_run_loses_one_shard(tmp_path, encoded_names):
    def die_at_d(name):
        if name == "d":
            raise KeyboardInterrupt
        return ROWS[name], None

    with pytest.raises(KeyboardInterrupt):
        store_rows(tmp_path / "f", die_at_d)
    assert not (tmp_path / "f/card.json").exists()
    encode_and_note, names = encoded_names
    store_rows(tmp_path / "f", encode_and_note)
    assert names == ["c", "d"]


def test_a_source_without_a_usable_recording_is_refused(tmp_path):
    def fail(name):
        raise ValueError("no sound")

    wanted = r"none of 4 recordings can be used for tests \(no sound\); mend"
    refused(wanted, store_rows, tmp_path / "f", fail)
    assert not (tmp_path / "f").exists()


def test_a_disk_without_room_is_refused_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=3))
    wanted = "4 recordings in .* need 4e-09 GB and 3e-09 GB are free"
    refused(wanted, store_rows, tmp_path / "f", pytest.fail)
    assert "tests of 4 recordings: 4e-09 GB in" in capsys.readouterr().err
    assert not (tmp_path / "f").exists()
