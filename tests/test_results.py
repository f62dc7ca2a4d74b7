"""Rows of results in a file (replaced by new ones, refused with file and line when damaged), and
the tables of rows."""

import json
from dataclasses import asdict, replace

import pytest

from speechssl.results import (
    Row,
    append_rows,
    drawn_sentence,
    read_rows,
    results_table,
)

from .files import refused, untouched

ROW = Row(
    task="qa",
    system="dual",
    encoder="hubert",
    condition="babble",
    snr_db=10.0,
    metric="FF1",
    value=51.25,
    low=49.0,
    high=53.5,
    n=400,
    seed=0,
    card="3f2a",
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "results.jsonl"


def test_appending_twice_or_a_value_that_is_refused_changes_nothing(path):
    append_rows(path, [ROW, replace(ROW, metric="AOS")])
    with untouched(path.parent):
        append_rows(path, [ROW, replace(ROW, metric="AOS")])
        with pytest.raises(ValueError, match="not JSON compliant"):
            append_rows(path, [replace(ROW, value=float("nan"))])


@pytest.mark.parametrize(
    ("changes", "count"),
    [({"value": 60.0, "card": "new"}, 1), ({"snr_db": None}, 2), ({"snr_over": "signal"}, 2)],
)
def test_a_row_replaces_an_older_one_that_measured_the_same(path, changes, count):
    append_rows(path, [ROW])
    append_rows(path, [replace(ROW, **changes)])
    rows_read = read_rows(path)
    assert len(rows_read) == count
    assert rows_read[-1] == replace(ROW, **changes)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "truncated"),
        (json.dumps({"system": "dual"}), "`task`"),
        (json.dumps(asdict(ROW) | {"value": "51"}), r"$.value"),
    ],
)
def test_damage_is_named_with_file_and_line(path, line, reason):
    append_rows(path, [ROW])
    path.write_text(path.read_text() + "\n" + line + "\n")
    assert reason in refused(f"{path}:3 ", read_rows, path)
    # damage is not overwritten
    assert reason in refused(f"{path}:3 ", append_rows, path, [replace(ROW, seed=9)])


def test_a_table_for_each_metric():
    table_rows = [
        replace(ROW, snr_db=0.0, value=40.0, low=38.0, high=42.0),
        ROW,
        replace(ROW, condition="clean", snr_db=None, value=55.04, low=None, high=None),
        replace(ROW, system="cascade", encoder="", value=30.0, low=28.0, high=31.0),
        replace(ROW, system="cascade", encoder="", value=40.0, low=38.0, high=42.0, seed=1),
        replace(ROW, metric="WER", system="cascade", encoder=""),
    ]
    expected = """\
FF1 (%)          n  clean                 babble 10 dB        babble 0 dB
-------------------------------------------------------------------------
dual (hubert)  400   55.0            51.2 [49.0, 53.5]  40.0 [38.0, 42.0]
cascade        400      -  35.0 [28.0, 42.0] (2 seeds)                  -

WER (%)    n       babble 10 dB
-------------------------------
cascade  400  51.2 [49.0, 53.5]"""
    assert results_table(table_rows) == expected


def test_one_model_under_two_names_is_one_row_in_every_condition(path):
    clean = replace(ROW, condition="clean", snr_db=None)
    append_rows(path, [ROW, clean, replace(ROW, system="cascade", card="another")], by_content=True)
    append_rows(path, [replace(ROW, encoder="mine", value=51.5)], by_content=True)
    rows_read = {(row.encoder, row.system, row.condition, row.value) for row in read_rows(path)}
    renamed = {("mine", "dual", "babble", 51.5), ("mine", "dual", "clean", 51.25)}
    assert rows_read == renamed | {("hubert", "cascade", "babble", 51.25)}


def test_tables_say_which_units_their_intervals_draw():
    intervals = [("a", "voice × asker", 8), ("b", "passage", 9), ("c", "", 0)]
    sentence = "95 % intervals draw 8 voices × askers (a) and 9 passages (b)."
    assert drawn_sentence(intervals) == sentence
    assert "4 passages, fewer than 5" in drawn_sentence([("a", "passage", 4)])
