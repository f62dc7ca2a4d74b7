"""The figures: what is drawn, what is left out, and that a figure can share a page with others."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.report.figures import PALETTE, Drawing, ShownCondition, arrange
from speechssl.report.spoken_qa import (
    Breakdown,
    _error_axis,
    bars,
    score_against_snr,
    score_against_wer,
    spread,
)
from speechssl.results import Row


def row(
    system: str,
    metric: str,
    value: float,
    condition: str = "clean",
    snr: float | None = None,
    **other: object,
) -> Row:
    fields = {
        "encoder": "hubert",
        "low": None,
        "high": None,
        "n": 100,
        "seed": 0,
        "card": "abc",
    } | other
    return Row(
        task="qa",
        system=system,
        metric=metric,
        value=value,
        condition=condition,
        snr_db=snr,
        **fields,
    )  # type: ignore[arg-type]


def noisy(
    metric: str, system: str, values: dict[float | None, float], **other: object
) -> list[Row]:
    """None is clean speech; a number is pink noise at this ratio."""
    return [
        row(system, metric, v, "clean" if snr is None else "pink", snr, **other)
        for snr, v in values.items()
    ]


CROSSING = [
    *noisy("ff1", "dual", {None: 40.0, 10: 38.0, 0: 30.0}, low=25.0, high=45.0),
    *noisy("ff1", "cascade-ctc", {None: 60.0, 10: 45.0, 0: 12.0}),
    *noisy("wer", "cascade-ctc", {None: 10.0, 10: 30.0, 0: 80.0}),
]


@cache
def curve() -> Drawing:
    return score_against_snr(arrange(CROSSING))


@cache
def crossing() -> Drawing:
    return score_against_wer(arrange(CROSSING))


def line_points(svg: str, slot: int) -> list[tuple[float, float]]:
    """The corners of the one long line in a series' colour."""
    colour = f"var(--s{slot}, {PALETTE[slot][0]})"
    paths = re.findall(r'<path d="([^"]*)" clip-path="[^"]*" style="([^"]*)"', svg)
    (path,) = [d for d, style in paths if f"stroke: {colour}" in style and d.count("L") > 1]
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path)]


@pytest.mark.slow
def test_points_lie_where_their_numbers_say():
    dual, cascade = line_points(curve().svg, 0), line_points(curve().svg, 1)
    # 0 dB, 10 dB, clean: from left to right
    assert [x for x, _ in dual] == sorted(x for x, _ in dual)
    height = (dual[0][1] - dual[2][1]) / (40.0 - 30.0)  # units a percent point; y points down
    assert cascade[0][1] - cascade[2][1] == pytest.approx(height * (60 - 12), abs=0.01)
    assert cascade[1][1] - dual[1][1] == pytest.approx(height * (38 - 45), abs=0.01)


def test_the_crossing_figure_puts_recognition_errors_along():
    cascade = line_points(crossing().svg, 1)
    (a, _), (b, _), (c, _) = cascade
    assert (c - a) / (b - a) == pytest.approx((80 - 10) / (30 - 10), abs=1e-3)
    # a chinese cascade is drawn against its character errors
    drawing = score_against_wer(
        arrange([replace(r, metric="cer") if r.metric == "wer" else r for r in CROSSING])
    )
    assert (
        "CER of" in drawing.svg
        and ("against the character error rate") in drawing.alt
        and "WER" not in drawing.svg
    )


def test_without_two_systems_and_two_conditions_there_is_no_figure():
    assert score_against_snr(arrange([row("dual", "ff1", 40.0)])) is None
    assert (
        score_against_wer(
            arrange([row("dual", "ff1", 40.0), row("c", "ff1", 4.0), row("c", "wer", 4.0)])
        )
        is None
    )
    # crossing needs a system without a transcript
    assert score_against_wer(arrange([r for r in CROSSING if r.system != "dual"])) is None
    assert score_against_wer(arrange([r for r in CROSSING if r.metric != "wer"])) is None
    # curve without clean speech
    drawing = score_against_snr(arrange(noisy("ff1", "dual", {10: 30.0, 0: 20.0})))
    assert ">clean<" not in drawing.svg and ">0\u00a0dB<" in drawing.svg


def test_a_panel_for_each_cascade_and_each_noise():
    other = noisy("ff1", "whisper", {None: 70.0, 10: 60.0}) + noisy(
        "wer", "whisper", {None: 5.0, 10: 9.0}
    )
    svg = score_against_wer(arrange(CROSSING + other)).svg
    assert ">WER of cascade-ctc (%)<" in svg and ">WER of whisper (%)<" in svg
    assert "WER of the recognisers, clean speech" in svg  # where both may be compared
    assert ">WER of the recognisers" not in crossing().svg
    several = [
        row(name, *cell)
        for name, a, b in (("a", 50.0, 10.0), ("b", 30.0, 60.0))
        for cell in (("ff1", a), ("wer", b))
    ]
    drawing = score_against_wer(arrange([row("dual", "ff1", 40.0), *several]))  # without any noise
    assert (
        "WER of the recognisers" in drawing.svg
        and ("a 50.0 at 10.0, b 30.0 at 60.0, dual 40.0") in drawing.alt
    )
    babble = [row("dual", "ff1", v, "babble", snr) for snr, v in ((10.0, 20.0), (0.0, 9.0))]
    svg = score_against_snr(arrange(CROSSING + babble)).svg
    assert all(
        (f">← more noise\N{EM SPACE}SNR of {noise}\N{EM SPACE}less noise →<") in svg
        for noise in ("pink noise", "babble")
    )


def test_values_and_intervals_may_be_missing():
    rows = [*CROSSING, row("dual", "ff1", math.nan, "pink", 5.0), row("dual", "wer", math.inf)]
    broken = [Breakdown(system="dual", bucket="short", value=math.nan, low=None, high=None, n=3)]
    drawings = [score_against_snr(arrange(rows)), score_against_wer(arrange(rows))]
    assert all(d and "nan" not in d.svg and "inf" not in d.svg for d in drawings)
    assert bars(arrange(rows), broken) is None
    # intervals may be missing
    with_bars, without = (
        score_against_snr(arrange(noisy("ff1", "dual", {None: 40.0, 0: 30.0}, **given_)))
        for given_ in ({"low": 28.0, "high": 44.0}, {"low": None, "high": math.nan})
    )
    assert (
        with_bars.svg.count("stroke-opacity: 0.55") == 2
        and ("stroke-opacity: 0.55") not in without.svg
    )


def test_figures_share_no_identifier_and_hold_text_alone():
    first, other = curve(), crossing()
    assert score_against_snr(arrange(CROSSING)) == first
    ids = [set(re.findall(r'id="([^"]*)"', d.svg)) for d in (first, other)]
    assert ids[0] and ids[1] and not ids[0] & ids[1]
    for drawing, known in zip((first, other), ids, strict=True):
        used = re.findall(r'(?:href="|url\()#([^")]*)', drawing.svg)
        assert used and set(used) <= known
    # figures are well formed text and without outside
    for drawing in (curve(), crossing()):
        texts = ["".join(e.itertext()) for e in ElementTree.fromstring(drawing.svg).iter("text")]
        assert "dual" in texts and "cascade-ctc" in texts
        assert (
            "http" not in drawing.svg
            and "<style" not in drawing.svg
            and "font-family" not in drawing.svg
        )
    # names are text not markup nor formulas
    svg = score_against_snr(arrange(noisy("ff1", "<b>$x$ & co", {None: 1.0, 0: 2.0}))).svg
    assert "&lt;b&gt;$x$ &amp; co" in svg
    # alternative text holds every number
    assert all(f"{r.value:.1f}" in crossing().alt for r in CROSSING)


@pytest.mark.parametrize(
    ("rates", "ends"),
    [
        ([5.0, 90.0], (0, 95.4)),
        ([49.1, 94.0], (40, 99.64)),
        ([0.0], (0, 1)),
        ([30.0, 50.0], (20, 53)),
    ],
)
def test_an_axis_of_errors_has_no_empty_half(rates, ends):
    assert _error_axis(rates) == pytest.approx(ends)


def test_bars_follow_the_order_given_and_say_how_many():
    groups = [("short", 31.0), ("long", 52.0)]
    given_ = [
        Breakdown(system="dual", bucket=b, value=v, low=v - 2, high=None, n=7) for b, v in groups
    ]
    drawing = bars(arrange([], also=["dual"]), given_)
    texts = [
        "".join(e.itertext()).strip() for e in ElementTree.fromstring(drawing.svg).iter("text")
    ]
    assert texts.index("short") < texts.index("long") and "31" in texts and "52" in texts
    assert texts.count("7 questions") == 2 and "dual, long: 52.0" in drawing.alt


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9))
def test_spread_keeps_order_distance_and_range(places: list[float]):
    moved = spread(places, 5.0, 0.0, 100.0)
    order = sorted(range(len(places)), key=lambda i: places[i])
    assert all(moved[b] - moved[a] > 4.0 for a, b in pairwise(order))
    assert min(moved) >= 0 and max(moved) <= 100


def test_rows_are_arranged_from_easy_to_hard_with_names_that_tell_apart():
    rows = [
        row("d", "FF1", 10.0, c, snr)
        for c, snr in (("reverb", None), ("pink", 0.0), ("pink", 20.0), ("clean", None))
    ]
    rows += [
        row("d", "ff1", 20.0, seed=1, low=15.0, high=22.0),
        row("d", "ff1", 12.0, seed=0, low=11.0, high=13.0),
    ]
    results = arrange(rows)
    assert [c.label for c in results.conditions("ff1")] == [
        "Clean speech",
        "Pink noise, 20\u00a0dB",
        "Pink noise, 0\u00a0dB",
        "Reverberation",
    ]
    cell = results.get(results.series[0], "ff1", ShownCondition("clean"))
    assert (cell.value, cell.low, cell.high, cell.seeds) == (16.0, 11.0, 22.0, 2)
    # series are reported apart by encoder only where needed
    rows = [
        row("dual", "ff1", 1.0),
        row("dual", "ff1", 2.0, encoder="wavlm"),
        row("cascade", "ff1", 3.0),
    ]
    results = arrange(rows, also=["dual", "cascade", "dual/wavlm", "new"])
    assert [s.label for s in results.series] == ["dual · hubert", "dual · wavlm", "cascade", "new"]
    assert results.named("dual/wavlm") == results.series[1] and results.named("nobody") is None
