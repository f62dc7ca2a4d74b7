"""The long table of scores: means over seeds, names, order and the best; tables pivoted from it;
figures that need two points."""

import re
from dataclasses import replace

import pytest

from speechssl.report.page import metric_grids
from speechssl.report.scores import arrange
from speechssl.results import Row


def row(system, metric, value, condition="clean", snr=None, **other):
    fields = {"encoder": "h", "low": None, "high": None, "n": 100, "seed": 0, "card": ""} | other
    place = {"task": "qa", "system": system, "condition": condition, "snr_db": snr}
    return Row(**place, metric=metric, value=value, **fields)


def in_pink(metric, system, values, **other):
    """None is clean speech; a number is pink noise at this ratio."""
    rows = []
    for snr, value in values.items():
        place = ("clean", None) if snr is None else ("pink", snr)
        rows.append(row(system, metric, value, *place, **other))
    return rows


CROSSING = [
    *in_pink("ff1", "dual", {None: 40.0, 10: 38.0, 0: 30.0}, low=25.0, high=45.0),
    *in_pink("ff1", "cascade-ctc", {None: 60.0, 10: 45.0, 0: 12.0}),
    *in_pink("wer", "cascade-ctc", {None: 10.0, 10: 30.0, 0: 80.0}),
]


def test_rows_that_differ_in_their_seed_are_averaged_and_the_last_card_counts():
    seeds = [row("dual", "ff1", v, low=v - 1, high=v + 2, seed=s) for s, v in enumerate((3.0, 6.0))]
    (score,) = arrange([*seeds, replace(seeds[1], value=9.0, card="again")]).itertuples()
    assert (score.value, score.low, score.high, score.seeds) == (6.0, 2.0, 8.0, 2)
    assert score.text == "6.0\n[2.0, 8.0]"


@pytest.mark.parametrize(
    ("metric", "more", "best"),
    [
        ("ff1", {}, ["cascade-ctc"]),
        ("wer", {}, ["dual"]),
        ("ff1", {"drawn": "passage", "groups": 2}, []),  # of two passages nothing is the best
    ],
)
def test_the_best_of_a_column_is_marked(metric, more, best):
    rows = [row(s, metric, v, **more) for s, v in (("dual", 10.0), ("cascade-ctc", 20.0))]
    scores = arrange(rows)
    assert list(scores.label[scores.best]) == best
    assert not arrange(rows[:1]).best.any()


def test_a_table_has_a_line_a_system_and_a_column_a_condition():
    first, wer = metric_grids(arrange(CROSSING), "Synthetic speech.")
    assert (first.title, wer.title) == ("FF1", "WER")
    cells = re.findall(r'<td id="[^"]*" class="[^"]*?(best)?" *>([^<]*)</td>', first.html)
    assert [text.split("\n")[0] for _, text in cells] == [
        *("dual", "40.0", "38.0", "30.0", "100"),
        *("cascade-ctc", "60.0", "45.0", "12.0", "100"),
    ]
    assert [text.split("\n")[0] for best, text in cells if best] == ["30.0", "60.0", "45.0"]
    assert "Percent; higher is better. In brackets: 95 % intervals." in first.note
    assert "lower is better" in wer.note and "In brackets" not in wer.note
    assert first.note.endswith("Synthetic speech.")


def test_rooms_stand_behind_noise():
    reverb = row("dual", "ff1", 35.0, "reverb")
    (grid,) = metric_grids(arrange([reverb, *in_pink("ff1", "dual", {0: 30.0, None: 40.0})]))
    places = [grid.html.index(f">{name}<") for name in ("Clean", "Pink noise", "Reverberation")]
    assert places == sorted(places)
