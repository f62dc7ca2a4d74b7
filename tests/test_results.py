"""Result rows: replaced by key, whole at any time, refused with file and line when damaged."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.results import (
    Row,
    append_rows,
    describe_range,
    drawn_sentence,
    order_conditions,
    read_rows,
    results_table,
)

from .files import refused

ROW = Row("qa", "dual", "hubert", "babble", 10.0, "FF1", 51.25, 49.0, 53.5, 400, 0, "3f2a")

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
    high=st.none() | st.just(1e7),
    n=st.integers(0, 9),
    seed=st.integers(0, 2),
    card=st.text(max_size=4) | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "results.jsonl"


@pytest.mark.slow
@given(st.lists(rows, max_size=6))
def test_rows_survive_the_file(tmp_path_factory: pytest.TempPathFactory, some: list[Row]) -> None:
    path = tmp_path_factory.mktemp("results") / "results.jsonl"
    append_rows(path, some)
    wanted = {row.key: row for row in some}
    assert read_rows(path) == tuple(wanted.values())
    assert [p.name for p in path.parent.iterdir()] == ["results.jsonl"]


def test_appending_twice_changes_nothing(path: Path) -> None:
    append_rows(path, [ROW, replace(ROW, metric="AOS")])
    before = path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino
    append_rows(path, [ROW])
    assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_the_same_key_replaces_with_the_keys_of_its_card_in_any_order(path: Path) -> None:
    row = replace(ROW, card={"layer": 6, "k": 100})
    append_rows(path, [row, replace(row, metric="AOS")])
    append_rows(
        path,
        [
            replace(
                row, card={"k": 100, "layer": 6}, value=60.0, low=None, high=None, n=401, snr_db=10
            )
        ],
    )
    assert [(row.metric, row.value) for row in read_rows(path)] == [("FF1", 60.0), ("AOS", 51.25)]


@pytest.mark.parametrize(
    "other", [{"system": "cascade"}, {"snr_db": None}, {"seed": 1}, {"card": {"layer": 6}}]
)
def test_another_key_is_another_row(path: Path, other: dict[str, object]) -> None:
    append_rows(path, [ROW])
    append_rows(path, [replace(ROW, **other)])  # type: ignore[arg-type]
    assert len(read_rows(path)) == 2


def test_snrs_over_the_whole_signal_are_other_conditions_and_the_usual_ones_are_written_as_ever(
    path: Path,
) -> None:
    append_rows(path, [ROW])
    assert "snr_over" not in path.read_text()
    append_rows(path, [replace(ROW, value=40.0, low=None, high=None, snr_over="signal")])
    found = read_rows(path)
    assert [(row.value, row.snr_over) for row in found] == [(ROW.value, ""), (40.0, "signal")]
    head = results_table(found).splitlines()[0]
    assert f"{ROW.condition} 10 dB" in head and f"{ROW.condition}, over the signal 10 dB" in head


def test_a_value_that_is_refused_leaves_the_file_alone(path: Path) -> None:
    append_rows(path, [ROW])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_rows(path, [replace(ROW, value=float("nan"))])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "truncated"),
        (json.dumps({"system": "dual"}), "`task`"),
        (json.dumps(asdict(ROW) | {"value": "51"}), r"$.value"),
    ],
)
def test_damage_is_named_with_file_and_line(path: Path, line: str, what: str) -> None:
    append_rows(path, [ROW])
    path.write_text(path.read_text() + "\n" + line + "\n")
    assert what in refused(f"{path}:3 ", read_rows, path)
    # damage is not overwritten
    assert what in refused(f"{path}:3 ", append_rows, path, [replace(ROW, seed=9)])


def test_the_table() -> None:
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


def test_clean_speech_is_first_then_noises_by_falling_snr_then_what_has_none() -> None:
    given = [("reverb", None), ("pink", 0.0), ("codec", None), ("clean", None), ("pink", 20.0)]
    given += [("babble", 5.0), ("pink", 0.0)]
    wanted = [("clean", None), ("pink", 20.0), ("pink", 0.0), ("babble", 5.0)]
    assert order_conditions(given) == [*wanted, ("reverb", None), ("codec", None)]


def test_one_model_under_two_names_is_one_row_in_every_condition(path: Path) -> None:
    clean = replace(ROW, condition="clean", snr_db=None)
    append_rows(path, [ROW, clean, replace(ROW, card={"of": "another"})], by_content=True)
    append_rows(path, [replace(ROW, encoder="mine", value=51.5)], by_content=True)
    found = [(row.encoder, row.condition, row.value) for row in read_rows(path)]
    assert found[:2] == [("mine", "babble", 51.5), ("mine", "clean", 51.25)]
    assert found[2:] == [("hubert", "babble", 51.25)]


def test_tables_say_what_is_drawn() -> None:
    several = drawn_sentence(
        [("a", "voice", 8), ("b", "passage", 9), ("c", "", 0), ("d", "voice", 8)]
    )
    assert several == "95 % intervals draw 8 voices (a, d) and 9 passages (b)."
    assert drawn_sentence([("", "voice", 8), ("", "passage", 6)]) == (
        "95 % intervals draw 8 voices and 6 passages."
    )
    assert drawn_sentence([("a", "passage", 4)]) == ""  # fewer than five have no interval
    about = drawn_sentence([("", "passage (about these 3 voices)", 24), ("", "voice × asker", 8)])
    assert about == "95 % intervals draw 24 passages (about these 3 voices) and 8 voices × askers."
    assert [describe_range({n}, "query") for n in (1, 2)] == ["1 query", "2 queries"]
    assert describe_range({4, 8}, "voice, recording") == "4 to 8 voices or recordings"
    drawn = replace(ROW, drawn="voice", groups=8)
    assert results_table([drawn, replace(drawn, metric="WER")]).endswith(
        "\n\n95 % intervals draw 8 voices."
    )
    assert not results_table([ROW]).endswith(".")
