"""Rows of results in a file (replaced by new ones, refused with file and line when damaged), and
the tables of rows."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.results import (
    Row,
    append_rows,
    describe_drawn,
    format_results,
    order_conditions,
    read_rows,
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

finite = st.floats(-1e6, 1e6)
rows = st.builds(
    Row,
    task=st.sampled_from(["qa", "ks"]),
    system=st.text(max_size=4),
    encoder=st.sampled_from(["", "hubert"]),
    condition=st.text(max_size=3),
    snr_db=st.none() | finite,
    metric=st.sampled_from(["FF1", "WER"]),
    value=finite,
    low=st.none() | st.just(-1e7),
    high=st.just(1e7),
    n=st.integers(0, 9),
    seed=st.integers(0, 2),
    card=st.text(max_size=4) | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "results.jsonl"


@pytest.mark.slow
@given(new_rows=st.lists(rows, max_size=6))
def test_rows_come_back_from_the_file(tmp_path_factory, new_rows):
    path = tmp_path_factory.mktemp("results") / "results.jsonl"
    append_rows(path, new_rows)
    last_of_cells = {row.cell: row for row in new_rows}
    assert read_rows(path) == tuple(last_of_cells.values())
    assert [p.name for p in path.parent.iterdir()] == ["results.jsonl"]


def test_appending_twice_changes_nothing(path):
    append_rows(path, [ROW, replace(ROW, metric="AOS")])
    with untouched(path.parent):
        append_rows(path, [ROW, replace(ROW, metric="AOS")])


@pytest.mark.parametrize(
    ("changes", "count"),
    [({"value": 60.0, "low": None}, 1), ({"card": "new"}, 1), ({"snr_db": None}, 2)],
)
def test_a_row_replaces_an_older_one_that_measured_the_same(path, changes, count):
    append_rows(path, [ROW])
    append_rows(path, [replace(ROW, **changes)])
    rows_read = read_rows(path)
    assert len(rows_read) == count
    assert rows_read[-1] == replace(ROW, **changes)


def test_an_snr_over_the_whole_signal_makes_another_condition(path):
    append_rows(path, [ROW])
    assert "snr_over" not in path.read_text()
    append_rows(path, [replace(ROW, value=40.0, low=None, high=None, snr_over="signal")])
    rows_read = read_rows(path)
    assert [(row.value, row.snr_over) for row in rows_read] == [(ROW.value, ""), (40.0, "signal")]
    head, *_ = format_results(rows_read).splitlines()
    assert f"{ROW.condition} 10 dB" in head
    assert f"{ROW.condition}, over the signal 10 dB" in head


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


def test_a_value_that_is_refused_leaves_the_file_alone(path):
    append_rows(path, [ROW])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_rows(path, [replace(ROW, value=float("nan"))])
    assert path.read_bytes() == before


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
    assert format_results(table_rows) == expected


def test_clean_speech_is_first_then_noises_by_falling_snr_then_conditions_without_one():
    conditions = [("reverb", None), ("pink", 0.0), ("codec", None), ("clean", None)]
    conditions += [("pink", 20.0), ("babble", 5.0), ("pink", 0.0)]
    ordered = [("clean", None), ("pink", 20.0), ("pink", 0.0), ("babble", 5.0)]
    assert order_conditions(conditions) == [*ordered, ("reverb", None), ("codec", None)]


def test_one_model_under_two_names_is_one_row_in_every_condition(path):
    clean = replace(ROW, condition="clean", snr_db=None)
    append_rows(path, [ROW, clean, replace(ROW, system="cascade", card="another")], by_content=True)
    append_rows(path, [replace(ROW, encoder="mine", value=51.5)], by_content=True)
    rows_read = {(row.encoder, row.system, row.condition, row.value) for row in read_rows(path)}
    renamed = {("mine", "dual", "babble", 51.5), ("mine", "dual", "clean", 51.25)}
    assert rows_read == renamed | {("hubert", "cascade", "babble", 51.25)}


@pytest.mark.parametrize(
    ("intervals", "sentence"),
    [
        (
            [("a", "voice", 8), ("b", "passage", 9), ("c", "", 0)],
            "95 % intervals draw 8 voices (a) and 9 passages (b).",
        ),
        ([("", "voice", 8), ("", "passage", 6)], "95 % intervals draw 8 voices and 6 passages."),
        ([("", "voice × asker", 8)], "95 % intervals draw 8 voices × askers."),
        ([("a", "passage", 4)], "No intervals: 4 passages, fewer than 5."),
    ],
)
def test_tables_say_which_units_their_intervals_draw(intervals, sentence):
    assert describe_drawn(intervals) == sentence


def test_a_table_ends_with_the_units_of_its_rows():
    row = replace(ROW, drawn="voice", groups=8)
    assert format_results([row]).endswith("\n\n95 % intervals draw 8 voices.")
