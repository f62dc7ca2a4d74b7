"""Result rows: replaced by key, whole at any time, refused with file and line when damaged."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.results import (
    Row,
    append_rows,
    drawn_sentence,
    order_conditions,
    read_rows,
    results_table,
)

from .files import refused, untouched

ROW = Row("qa", "dual", "hubert", "babble", 10.0, "FF1", 51.25, 49.0, 53.5, 400, 0, "3f2a")

finite, bound = st.floats(-1e6, 1e6), {"low": st.none() | st.just(-1e7), "high": st.just(1e7)}
cards = st.text(max_size=4) | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
where = {"task": st.sampled_from(["qa", "ks"]), "encoder": st.sampled_from(["", "hubert"])}
where |= {"system": st.text(max_size=4), "condition": st.text(max_size=3)}
where |= {"snr_db": st.none() | finite, "metric": st.sampled_from(["FF1", "WER"])}
rows = st.builds(
    Row, **where, **bound, value=finite, n=st.integers(0, 9), seed=st.integers(0, 2), card=cards
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "results.jsonl"


@pytest.mark.slow
@given(st.lists(rows, max_size=6))
def test_rows_survive_the_file(tmp_path_factory, some):
    path = tmp_path_factory.mktemp("results") / "results.jsonl"
    append_rows(path, some)
    wanted = {row.cell: row for row in some}
    assert read_rows(path) == tuple(wanted.values())
    assert [p.name for p in path.parent.iterdir()] == ["results.jsonl"]


def test_appending_twice_changes_nothing(path):
    append_rows(path, [ROW, replace(ROW, metric="AOS")])
    with untouched(path.parent):
        append_rows(path, [ROW, replace(ROW, metric="AOS")])


@pytest.mark.parametrize(
    ("other", "count"),
    [({"value": 60.0, "low": None}, 1), ({"card": "new"}, 1), ({"snr_db": None}, 2)],
)
def test_a_row_replaces_an_older_one_that_measured_the_same(path, other, count):
    append_rows(path, [ROW])
    append_rows(path, [replace(ROW, **other)])
    found = read_rows(path)
    assert len(found) == count
    assert found[-1] == replace(ROW, **other)


def test_snrs_over_the_whole_signal_are_other_conditions_and_the_usual_ones_are_written_as_ever(
    path,
):
    append_rows(path, [ROW])
    assert "snr_over" not in path.read_text()
    append_rows(path, [replace(ROW, value=40.0, low=None, high=None, snr_over="signal")])
    found = read_rows(path)
    assert [(row.value, row.snr_over) for row in found] == [(ROW.value, ""), (40.0, "signal")]
    head = results_table(found).splitlines()[0]
    assert f"{ROW.condition} 10 dB" in head and f"{ROW.condition}, over the signal 10 dB" in head


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "truncated"),
        (json.dumps({"system": "dual"}), "`task`"),
        (json.dumps(asdict(ROW) | {"value": "51"}), r"$.value"),
    ],
)
def test_damage_is_named_with_file_and_line(path, line, what):
    append_rows(path, [ROW])
    path.write_text(path.read_text() + "\n" + line + "\n")
    assert what in refused(f"{path}:3 ", read_rows, path)
    # damage is not overwritten
    assert what in refused(f"{path}:3 ", append_rows, path, [replace(ROW, seed=9)])


def test_a_value_that_is_refused_leaves_the_file_alone(path):
    append_rows(path, [ROW])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_rows(path, [replace(ROW, value=float("nan"))])
    assert path.read_bytes() == before


def test_the_table():
    some = [
        replace(ROW, snr_db=0.0, value=40.0, low=38.0, high=42.0),
        ROW,
        replace(ROW, condition="clean", snr_db=None, value=55.04, low=None, high=None),
        replace(ROW, system="cascade", encoder="", value=30.0, low=28.0, high=31.0),
        replace(ROW, system="cascade", encoder="", value=40.0, low=38.0, high=42.0, seed=1),
        replace(ROW, metric="WER", system="cascade", encoder=""),
    ]
    wanted = """\
FF1 (%)          n  clean                 babble 10 dB        babble 0 dB
-------------------------------------------------------------------------
dual (hubert)  400   55.0            51.2 [49.0, 53.5]  40.0 [38.0, 42.0]
cascade        400      -  35.0 [28.0, 42.0] (2 seeds)                  -

WER (%)    n       babble 10 dB
-------------------------------
cascade  400  51.2 [49.0, 53.5]"""
    assert results_table(some) == wanted


def test_clean_speech_is_first_then_noises_by_falling_snr_then_what_has_none():
    given = [("reverb", None), ("pink", 0.0), ("codec", None), ("clean", None), ("pink", 20.0)]
    given += [("babble", 5.0), ("pink", 0.0)]
    wanted = [("clean", None), ("pink", 20.0), ("pink", 0.0), ("babble", 5.0)]
    assert order_conditions(given) == [*wanted, ("reverb", None), ("codec", None)]


def test_one_model_under_two_names_is_one_row_in_every_condition(path):
    clean = replace(ROW, condition="clean", snr_db=None)
    append_rows(path, [ROW, clean, replace(ROW, system="cascade", card="another")], by_content=True)
    append_rows(path, [replace(ROW, encoder="mine", value=51.5)], by_content=True)
    found = {(row.encoder, row.system, row.condition, row.value) for row in read_rows(path)}
    renamed = {("mine", "dual", "babble", 51.5), ("mine", "dual", "clean", 51.25)}
    assert found == renamed | {("hubert", "cascade", "babble", 51.25)}


@pytest.mark.parametrize(
    ("found", "sentence"),
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
def test_tables_say_what_is_drawn(found, sentence):
    assert drawn_sentence(found) == sentence
    drawn = replace(ROW, drawn="voice", groups=8)
    assert results_table([drawn]).endswith("\n\n95 % intervals draw 8 voices.")
