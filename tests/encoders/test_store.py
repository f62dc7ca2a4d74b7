"""The feature store: computed once, whole or not at all, what failed is tried again, rows of all
recordings as of one array."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from speechssl.encoders.store import StoredRows, store_features

from ..files import refused

LENGTHS = {"a": 3, "b": 5, "c": 1, "d": 4}
ROWS = {
    name: torch.from_numpy(np.random.default_rng(n).normal(size=(n, 2))).half()
    for name, n in LENGTHS.items()
}


def stored(folder, encode=lambda name: (ROWS[name], None), **options):
    """Two recordings a shard."""
    given = {"what": "tests", "workers": 1, "shard_mb": 2e-6} | options
    return store_features(
        folder, {n: n for n in LENGTHS}, encode, dict.fromkeys(LENGTHS, 1), {"of": "x"}, **given
    )


def test_rows_come_back_with_what_else_is_known_and_nothing_is_computed_again(tmp_path):
    store = stored(
        tmp_path / "f",
        lambda name: (ROWS[name], {"length": len(ROWS[name])} if name != "c" else None),
    )
    again = stored(tmp_path / "f", lambda name: pytest.fail("computed again"))
    for found in (store, again, pickle.loads(pickle.dumps(store))):
        assert all(torch.equal(found[name], rows) for name, rows in ROWS.items())
        assert torch.equal(found.rows("b", 1, 3), ROWS["b"][1:3]) and "e" not in found
        assert found.facts == {name: {"length": n} for name, n in LENGTHS.items() if name != "c"}
    assert len(list((tmp_path / "f").glob("shard-*"))) == 2


@pytest.mark.parametrize("wanted", [slice(2, 10), slice(4, 4), slice(1, 12, 5), slice(12, 99)])
def test_all_rows_are_those_of_one_array(tmp_path, wanted):
    rows = StoredRows(stored(tmp_path / "f"))
    whole = np.concatenate([rows.numpy() for rows in ROWS.values()])
    assert rows.shape == whole.shape == (13, 2)
    assert rows.bounds["c"] == (8, 9)
    assert np.array_equal(rows[wanted], whole[wanted])
    assert rows[wanted].dtype == np.float16


def test_what_failed_is_tried_again_with_its_shard(tmp_path, capsys):
    def failing(name):
        if name == "b":
            raise ValueError("no sound")
        return (ROWS[name], None) if name != "c" else (ROWS[name] * torch.inf, None)

    store = stored(tmp_path / "f", failing)
    assert set(store.places) == {"a", "d"}
    assert store.failed["b"] == "no sound"
    assert "not finite" in store.failed["c"]
    assert "set aside b: no sound" in capsys.readouterr().err
    tried = []
    store = stored(tmp_path / "f", lambda name: (tried.append(name) or ROWS[name], None))
    assert tried == list(LENGTHS) == list(store.places)
    assert all(torch.equal(store[name], rows) for name, rows in ROWS.items())


def test_a_killed_run_loses_one_shard(tmp_path):
    def dying(name):
        if name == "d":
            raise KeyboardInterrupt
        return ROWS[name], None

    with pytest.raises(KeyboardInterrupt):
        stored(tmp_path / "f", dying)
    assert not (tmp_path / "f/card.json").exists()
    tried = []
    stored(tmp_path / "f", lambda name: (tried.append(name) or ROWS[name], None))
    assert tried == ["c", "d"]


def test_nothing_is_left_where_nothing_can_be_used_or_there_is_no_room(
    tmp_path, capsys, monkeypatch
):
    def failing(name):
        raise ValueError("no sound")

    wanted = r"no recording of 4 can be used for tests \(the first, a: no sound\); mend"
    refused(wanted, stored, tmp_path / "f", failing)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=3))
    wanted = "4 recordings in .* need 4e-09 GB and 3e-09 GB are free"
    refused(wanted, stored, tmp_path / "f", pytest.fail)  # nothing is begun
    assert "tests of 4 recordings: 4e-09 GB in" in capsys.readouterr().err
    assert not (tmp_path / "f").exists()
