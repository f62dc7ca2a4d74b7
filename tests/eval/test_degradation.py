"""The arithmetic of what noise costs: by hand, and its properties."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.augment import parse_condition
from speechssl.errors import InputError
from speechssl.eval.grid import Cell, Setting
from speechssl.eval.robustness import (
    against_cascade,
    clean_gain,
    degradation,
    degradation_tables,
    gain,
    gather,
    lecture_columns,
    lecture_table,
    loses,
    loss,
    relative,
    removed,
    rows_of,
    score_tables,
)
from speechssl.stats import ItemScore

CLEAN = Setting("clean", parse_condition("clean"))
SEEN, UNSEEN = (Setting(group, parse_condition("pink@5")) for group in ("seen", "unseen"))
LOUD = Setting("unseen", parse_condition("pink@0"))


def cell(task, metric, encoder, setting, value, n=100, failed=None):
    """A share `value` of n items has the numerator 1, spread over them by a fixed shuffle."""
    ones = np.random.default_rng(5).permutation(n) < round(value * n)
    scored = tuple(ItemScore(f"i{i}", f"i{i}", float(x), 1.0) for i, x in enumerate(ones))
    return Cell(encoder, task, metric, setting, scored, 0, "card", failed or {})


def grid_of(values, resamples=200):
    return gather(cells_of(values), 0, resamples)


def cells_of(values):
    """values: (task, metric, encoder) -> {setting: score}."""
    return [cell(*key, s, v) for key, line in values.items() for s, v in line.items()]


EXAMPLE = {
    ("ks", "acc", "base"): {CLEAN: 0.90, SEEN: 0.60, UNSEEN: 0.50},
    ("ks", "acc", "new"): {CLEAN: 0.85, SEEN: 0.80, UNSEEN: 0.75},
    ("asr", "wer", "base"): {CLEAN: 0.10, SEEN: 0.40, UNSEEN: 0.50},
    ("asr", "wer", "new"): {CLEAN: 0.20, SEEN: 0.25, UNSEEN: 0.30},
    ("units", "unit_error", "base"): {CLEAN: 0.0, SEEN: 0.50, UNSEEN: 0.80},
    ("units", "unit_error", "new"): {CLEAN: 0.0, SEEN: 0.25, UNSEEN: 0.40},
}
KS, ASR, UNITS = ("ks", "acc"), ("asr", "wer"), ("units", "unit_error")


def test_by_hand():
    grid = grid_of(EXAMPLE)
    assert loss(grid, KS, "base", UNSEEN).value == pytest.approx(40)
    assert loss(grid, ASR, "base", UNSEEN).value == pytest.approx(40)
    assert relative(grid, KS, "base", UNSEEN).value == pytest.approx(100 * 40 / 90)
    assert relative(grid, UNITS, "base", UNSEEN) is None
    assert gain(grid, ASR, "new", UNSEEN).value == pytest.approx(20)
    assert removed(grid, KS, "new", UNSEEN).value == pytest.approx(75)  # loses 10 of its own 85, where the baseline loses 40
    assert removed(grid, KS, "new", UNSEEN, own_clean=False).value == pytest.approx(62.5)  # 15 below the baseline's 90
    assert removed(grid, ASR, "new", UNSEEN).value == pytest.approx(75)
    assert removed(grid, ASR, "new", UNSEEN, own_clean=False).value == pytest.approx(50)
    # rows are those of results
    row = next(r for r in rows_of(grid_of(EXAMPLE)) if (r.system, r.encoder, r.condition) == ("asr", "new", "seen-pink"))
    assert (row.metric, row.snr_db, row.n, row.card) == ("wer", 5.0, 100, "card")
    assert row.low < 24.9 < row.value < 25.1 < row.high


def test_averages_give_every_task_the_same_weight_and_leave_out_what_loses_nothing():
    still = {("sid", "acc", e): {CLEAN: 0.7, SEEN: 0.7, UNSEEN: 0.7} for e in ("base", "new")}
    found = degradation(grid_of(EXAMPLE | still))
    (line,) = [a for a in found["averages"] if a["encoder"] == "new" and a["group"] == "unseen"]
    assert line["removed"]["value"] == pytest.approx(75)
    assert line["recovered"]["value"] == pytest.approx((62.5 + 50) / 2)
    assert line["pooled"]["value"] == pytest.approx(100 * (1 - (10 + 10 + 0) / (40 + 40 + 0)))
    assert line["loss"]["value"] == pytest.approx(20 / 3) and line["left_out"] == ["sid acc"]
    assert line["tasks"] == ["ks acc", "asr wer"]


def test_an_encoder_that_collapsed_gains_nothing_by_its_units():
    """Its units are the same in any noise: 0 errors against its own clean speech, and no answer anywhere."""
    collapsed = {("units", "unit_error", "new"): {CLEAN: 0.0, SEEN: 0.0, UNSEEN: 0.0}}
    collapsed |= {("ks", "acc", "new"): {CLEAN: 0.1, SEEN: 0.1, UNSEEN: 0.1}}
    grid = grid_of(EXAMPLE | collapsed)
    assert removed(grid, UNITS, "new", UNSEEN).value == pytest.approx(100)
    (with_units,) = [a for a in degradation(grid)["averages"] if a["encoder"] == "new" and a["group"] == "unseen"]
    alone = {key: line for key, line in (EXAMPLE | collapsed).items() if key[0] != "units"}
    (without,) = [a for a in degradation(grid_of(alone))["averages"] if a["encoder"] == "new" and a["group"] == "unseen"]
    for name in ("removed", "recovered", "pooled", "loss", "tasks"):
        assert with_units[name] == without[name]
    units = {key: line for key, line in EXAMPLE.items() if key[0] == "units"}
    found = degradation(grid_of(units))  # there is nothing else to average over
    assert found["averages"] == [] and found["clean"][0]["gain"] is None and len(found["cells"]) == 6


def test_clean_speech_tells_the_mean_and_the_worst_task_and_no_units():
    found = clean_gain(grid_of(EXAMPLE), "new")
    assert found["gain"]["value"] == pytest.approx(-7.5) and found["worst"]["task"] == "asr wer"
    assert found["worst"]["value"] == pytest.approx(-10)
    # a baseline without errors in clean speech hides no loss there
    perfect = EXAMPLE | {("asr", "wer", "base"): {CLEAN: 0.0, SEEN: 0.40, UNSEEN: 0.50}}
    found = clean_gain(grid_of(perfect), "new")
    assert found["worst"]["task"] == "asr wer" and found["worst"]["value"] == pytest.approx(-20)
    assert found["gain"]["value"] == pytest.approx((-5 - 20) / 2)


def test_every_cell_is_reported_with_its_tests_adjusted():
    found = degradation(grid_of(EXAMPLE))
    assert len(found["cells"]) == 18
    (line,) = [c for c in found["cells"] if (c["task"], c["encoder"], c["condition"]) == ("ks", "new", "unseen-pink")]
    assert line["snr_db"] == 5 and line["score"]["value"] == pytest.approx(75)
    assert line["gain"]["low"] > 0 and line["gain"]["p_value"] <= line["gain"]["p_holm"] < 0.1
    base = [c for c in found["cells"] if c["encoder"] == "base"]
    assert all(c["gain"] is None and c["removed"] is None for c in base)
    assert [c["loss"] for c in found["cells"] if c["condition"] == "clean"] == [None] * 6


def test_one_passage_has_values_without_intervals_and_nothing_certain():
    one = [replace(c, scored=tuple(replace(s, group="the only one") for s in c.scored)) for c in cells_of(EXAMPLE)]
    grid = gather(one, 0, 200)
    assert {(r.low, r.high) for r in rows_of(grid)} == {(None, None)} and not loses(grid, KS, [UNSEEN])
    found = degradation(grid)
    (line,) = [c for c in found["cells"] if (c["task"], c["encoder"], c["condition"]) == ("ks", "new", "unseen-pink")]
    assert line["gain"]["value"] == pytest.approx(25) and line["gain"]["low"] is None and line["gain"]["p_value"] == 1.0
    json.dumps(found, allow_nan=False)
    tables = [*score_tables(grid, 5.0, True), *degradation_tables(found)]
    text = "\n".join([lecture_table(grid, 5.0, True).markdown, *(t.text for t in tables)])
    assert "75.0" in text and "[" not in text


def test_a_cascade_is_compared_with_dual_and_is_no_task_of_the_average():
    systems = {
        ("dual", "ff1", "base"): {CLEAN: 0.50, UNSEEN: 0.40, LOUD: 0.30},
        ("dual", "ff1", "new"): {CLEAN: 0.50, UNSEEN: 0.45, LOUD: 0.40},
        ("cascade-ctc", "ff1", "base"): {CLEAN: 0.80, UNSEEN: 0.40, LOUD: 0.20},
        ("cascade-ctc", "ff1", "new"): {CLEAN: 0.80, UNSEEN: 0.60, LOUD: 0.40},
    }
    grid = grid_of(systems)
    assert grid.averaged == [("dual", "ff1")]
    lines = against_cascade(grid)
    assert len(lines) == 9  # two SNRs and their mean, for three pairs
    pairs = {(x["dual_encoder"], x["cascade_encoder"]) for x in lines}
    assert pairs == {("base", "base"), ("new", "new"), ("new", "base")}
    (mean,) = [x for x in lines if x["snr_db"] is None and x["dual_encoder"] == x["cascade_encoder"] == "new"]
    assert mean["mean_over"] == [5.0, 0.0]
    assert mean["difference"]["value"] == pytest.approx((90 + 80) / 2 - (75 + 50) / 2)
    text = "\n".join(t.text for t in degradation_tables(degradation(grid) | {"dual_against_cascade": lines}))
    assert "90.0 - 75.0 = +15.0" in text


def test_encoders_on_other_items_are_refused():
    other = cell("ks", "acc", "new", CLEAN, 0.5)
    other = Cell(other.encoder, other.task, other.metric, CLEAN, (ItemScore("x", "x", 1, 1),), 0, "", {})
    with pytest.raises(InputError, match="cannot be compared in the task ks"):
        gather([cell("ks", "acc", "base", CLEAN, 0.5), other], 0, 50)


def test_a_task_that_the_baseline_did_not_do_has_no_gain_and_stops_the_averages_only():
    lonely = {("sid", "acc", "new"): {CLEAN: 0.9, SEEN: 0.8, UNSEEN: 0.8}}
    grid = grid_of(EXAMPLE | lonely)
    found = degradation(grid)
    assert found["averages"] == [] and found["clean"] == []
    assert {c["gain"] for c in found["cells"] if c["task"] == "sid"} == {None}
    assert "sid acc" in lecture_table(grid, 5, True).markdown


# ---- properties

share = st.integers(1, 99).map(lambda x: x / 100)


@given(share, share, share, share)
def test_shares_agree_where_clean_speech_does_and_end_where_they_should(clean, noisy, mine, other):
    metric, o = ("acc", 1) if clean >= noisy else ("wer", -1)
    if clean == noisy:
        return
    values = {("t", metric, "base"): {CLEAN: clean, SEEN: noisy}, ("t", metric, "new"): {CLEAN: mine, SEEN: other}}
    grid, task = grid_of(values, 20), ("t", metric)
    own, base = removed(grid, task, "new", SEEN).value, removed(grid, task, "new", SEEN, own_clean=False).value
    assert own - base == pytest.approx(100 * o * (clean - mine) / abs(clean - noisy))
    assert base == pytest.approx(100 * o * (other - noisy) / abs(clean - noisy))
    assert base >= 0 or gain(grid, task, "new", SEEN).value < 0
    assert loss(grid, task, "new", SEEN).value + o * 100 * (other - mine) == pytest.approx(0)


@given(share, share)
def test_an_encoder_like_the_baseline_removes_nothing_with_certainty(clean, noisy):
    line = {CLEAN: max(clean, noisy), SEEN: min(clean, noisy)}
    if clean == noisy:
        return
    grid = grid_of({("t", "acc", "base"): line, ("t", "acc", "same"): line}, 50)
    found = removed(grid, ("t", "acc"), "same", SEEN).interval
    assert (found.value, found.low, found.high) == (0, 0, 0)
    assert gain(grid, ("t", "acc"), "same", SEEN).p_value == 1


# ---- tables


def test_the_lectures_table_takes_the_snr_that_lies_nearest_and_the_mean_over_noises():
    hum = Setting("unseen", parse_condition("gaussian@5"))
    grid = grid_of({("ks", "acc", "base"): {CLEAN: 0.9, SEEN: 0.6, UNSEEN: 0.5, LOUD: 0.1, hum: 0.7}})
    assert list(lecture_columns(grid, 6)) == ["clean", "seen 5 dB", "unseen 5 dB"]
    assert list(lecture_columns(grid, 0)) == ["clean", "seen 5 dB", "unseen 0 dB"]
    table = score_tables(grid, 5, True)[0]
    assert table.rows[0][3].startswith("60.0 [") and "mean of pink, gaussian" in table.title


def test_stars_are_for_what_differs_and_holm_gives_fewer():
    table, detail, *_ = score_tables(grid_of(EXAMPLE), 5, False)
    by_name = {row[0]: row[1:] for row in table.rows}
    assert by_name["ks acc, new"][2].endswith("*") and "*" not in "".join(by_name["ks acc, base"])
    assert not by_name["units unit_error, new"][0].endswith("*")
    assert detail.title == "ks, acc" and detail.columns == ("encoder", "clean", "seen-pink 5 dB", "unseen-pink 5 dB")
    strict = score_tables(grid_of(EXAMPLE), 5, True)[0]
    assert sum("*" in c for r in strict.rows for c in r) <= sum("*" in c for r in table.rows for c in r)
    # markdown has a line an encoder and as many cells as columns
    text = lecture_table(grid_of(EXAMPLE), 5, True).markdown
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert [line.count("|") for line in lines] == [5] * 4 and lines[2].count("<br>") == 6
    assert "less" not in text and "more is better, but for wer, unit_error" in text
