"""The rows of a robustness grid on the page: what is lost, who is who, and figures that say what
their numbers say."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.report.build import build_report
from speechssl.report.figures import PALETTE, ShownCondition
from speechssl.report.robustness import (
    CLEAN,
    curves,
    fitted,
    heat_map,
    of_grid,
    panels,
    relative_curves,
    shortened,
    summarise_grid,
)
from speechssl.results import Row

SCORES = {  # task, metric, encoder -> clean, seen 5 dB, seen 0 dB, unseen 5 dB, unseen 0 dB
    ("ks", "acc", "zeta"): (90, 70, 60, 65, 50),
    ("ks", "acc", "alpha"): (91, 85, 80, 82, 75),
    ("asr", "wer", "zeta"): (10, 40, 60, 35, 55),
    ("asr", "wer", "alpha"): (12, 20, 30, 22, 33),
    ("dual", "ff1", "zeta"): (50, 40, 30, 35, 25),
    ("cascade-ctc", "ff1", "zeta"): (80, 40, 20, 30, 8),
}
PLACES = [
    ("clean", None),
    ("seen-pink", 5.0),
    ("seen-pink", 0.0),
    ("unseen-hum", 5.0),
    ("unseen-hum", 0.0),
]


def rows(scores: dict = SCORES) -> list[Row]:
    return [
        Row("qa", task, encoder, condition, snr, metric, v, v - 2.0, v + 2.0, 100, 0, "c")
        for (task, metric, encoder), values in scores.items()
        for (condition, snr), v in zip(PLACES, values, strict=True)
    ]


def plain(value: float = 40.0) -> Row:
    return Row("qa", "dual", "hubert", "pink", 5.0, "ff1", value, None, None, 9, 0, "c")


def test_rows_of_a_grid_become_panels_with_one_colour_an_encoder():
    found = panels(rows())
    assert [p.task for p in found] == ["ks", "asr", "dual", "cascade-ctc"]
    assert [e.label for e in found[0].encoders] == ["zeta", "alpha"]
    slots = {(e.label, e.slot) for p in found for e in p.encoders}
    assert slots == {("zeta", 0), ("alpha", 1)}
    # losses point the same way for scores and for errors
    ks, asr, *_ = panels(rows())
    hum = ShownCondition("unseen-hum", 5.0)
    assert [p.loss(p.encoders[0], hum) for p in (ks, asr)] == [25, 25]
    assert (
        ks.loss(ks.encoders[0], CLEAN) == 0
        and ks.loss(ks.encoders[0], ShownCondition("seen-x", 1.0)) is None
    )
    # rows of a grid are reported from those of systems
    clean = Row("qa", "dual", "hubert", "clean", None, "ff1", 50.0, None, None, 9, 0, "c")
    grid, others = of_grid([*rows(), clean, plain()])
    assert grid == rows() and others == [clean, plain()]


def test_the_summary_averages_what_unseen_noise_costs_without_the_cascade():
    two = {key: v for key, v in SCORES.items() if key[0] in ("ks", "asr")}
    assert summarise_grid(panels(rows(two))) == (
        "Averaged over 2 tasks, unseen noise at 5\u00a0dB costs zeta 25.0 and alpha 9.5 points "
        "against clean speech."
    )
    more = two | {("speechbert", "ff1", name): (90, 9, 9, 9, 9) for name in ("zeta", "alpha")}
    assert summarise_grid(panels(rows(more))) == summarise_grid(panels(rows(two)))
    # (25 + 25 + 15) / 3: alpha did not do DUAL
    assert "zeta 21.7" in summarise_grid(panels(rows()))
    fewer = [
        r for r in rows(two) if (r.encoder, r.system, r.condition) != ("alpha", "asr", "unseen-hum")
    ]
    assert "zeta 25.0 points" in summarise_grid(panels(fewer)) and "alpha" not in summarise_grid(
        panels(fewer)
    )
    assert summarise_grid(()) == ""


@pytest.mark.slow
def test_every_cell_of_the_heat_map_holds_its_score():
    drawing = heat_map(panels(rows()))
    texts = re.findall(r">([0-9.]+)<", drawing.svg)
    for values in SCORES.values():
        assert all(f"{v:.1f}" in texts for v in values)
    ElementTree.fromstring(drawing.svg)
    # A page turns ink light on dark; on a light cell it must stay dark
    svg = heat_map(panels(rows())).svg
    for number in re.findall(r"<text[^>]*>90\.0</text>", svg):
        assert "var(" not in number
    # a missing cell and a noise without snr are drawn
    some = [r for r in rows() if not (r.encoder == "alpha" and r.condition == "unseen-hum")]
    some.append(
        Row("ks", "head", "alpha", "unseen-reverb", None, "acc", 77.7, None, None, 9, 0, "c")
    )
    drawing = heat_map(panels(some))
    assert ">77.7<" in drawing.svg and ">–<" in drawing.svg


def test_more_loss_is_darker_and_gains_are_no_loss():
    scores = {("ks", "acc", "a"): (50, 60, 49, 30, 0)}
    svg = heat_map(panels(rows(scores))).svg
    cells = svg[svg.index('id="heat-axes_1"') : svg.index('id="heat-axes_2"')]
    fills = re.findall(r'fill: (#[0-9a-f]{6})"', cells)
    shades = [sum(int(f[i : i + 2], 16) for i in (1, 3, 5)) for f in fills if f in fills[:5]][:5]
    assert shades[0] == shades[1] > shades[2] > shades[3] > shades[4]


@pytest.mark.slow
def test_curves_have_a_band_and_a_line_for_every_encoder():
    svg = curves(panels(rows())).svg
    # below every column
    assert svg.count("← more noise\N{EM SPACE}SNR (dB)\N{EM SPACE}less noise →") == 2
    lines = re.findall(
        r'<path d="[^"]*" clip-path="[^"]*" style="[^"]*stroke: var\(--s0, '
        rf"{PALETTE[0][0]}\)",
        svg,
    )
    assert len(lines) == 4 * 2  # tasks x noises
    assert svg.count("FillBetween") == 6 * 2
    # what is relative curves is relative to clean speech
    found = relative_curves(panels(rows()))
    assert (
        "dual, FF1, zeta: Seen pink, 0\u00a0dB 60.0, Seen pink, 5\u00a0dB 80.0, Clean speech 100.0"
    ) in found.alt
    assert "Unseen hum, 0\u00a0dB 10.0" in found.alt and ">cascade<" in found.svg
    # without data there is no figure
    clean = [r for r in rows() if r.condition == "clean"]
    assert (
        heat_map(panels(clean)) is curves(panels(clean)) is relative_curves(panels(clean)) is None
    )
    assert relative_curves(panels([r for r in rows() if r.system != "dual"])) is None
    one = [r for r in rows() if r.snr_db in (None, 5.0)]
    assert curves(panels(one)) is None and heat_map(panels(one)) is not None


@pytest.mark.slow
@given(st.text(min_size=1, max_size=60), st.floats(0.3, 4))
def test_names_fit_their_columns(name, inches):
    lines = fitted(name, inches).split("\n") if "\n" not in name else []
    assert len(lines) <= 2 and all(len(line) <= max(3, int(inches / 0.066)) for line in lines)
    assert len(shortened(name)) <= 23


@pytest.mark.slow
def test_the_page_has_a_table_a_task_and_its_own_title(tmp_path: Path):
    build_report(tmp_path / "r.html", rows())
    page = (tmp_path / "r.html").read_text()
    assert "<title>Speech encoders in noise</title>" in page
    for name in (
        "KS (keywords), accuracy",
        "ASR (CTC), WER",
        "dual, FF1",
        "cascade-ctc, FF1",
        "What noise costs, task by task",
    ):
        assert name in page
    # the best of a column is the best encoder of its task
    bold = re.findall(r'<td class="best">([0-9.]+)', page)
    assert (
        {"91.0", "85.0", "10.0", "20.0"} <= set(bold) and "90.0" not in bold and "40.0" not in bold
    )
    # a page of systems and of a grid has both
    build_report(tmp_path / "r.html", [*rows(), plain(41.7)])
    page = (tmp_path / "r.html").read_text()
    assert (
        "41.7" in page
        and "What noise costs" in page
        and ("with and without a transcript</title>") in page
    )


@pytest.mark.slow
@pytest.mark.parametrize("encoders", [1, 9])
def test_few_and_many_encoders_are_drawn(encoders):
    scores = {
        ("ks", "acc", f"an encoder with a long name {i}"): (90, 80, 70, 60, 50)
        for i in range(encoders)
    }
    drawn = [heat_map(panels(rows(scores))), curves(panels(rows(scores)))]
    assert all("an encoder with a" in d.svg for d in drawn)
