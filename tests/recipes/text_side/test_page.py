"""The text side's section: the lecture's chart with what was published, curves, and a page of a
folder of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gains import Gains, print_gains
from page import Page, write_text_page
from speechssl.artifacts import write_json
from speechssl.results import Row, Table
from textside.published import GAIN, MEAN
from textside.runs import CONDITION
from textside.section import (
    Lectures,
    draw_curves,
    gain_by_length,
    kinds_by_length,
    read_lectures,
    sort_by_part,
    text_side_section,
)
from textside.tables import mean_curve


def row(
    task: str, arm: str, value: float, low: float | None = None, high: float | None = None
) -> Row:
    return Row(
        task,
        "head",
        arm,
        CONDITION,
        None,
        GAIN,
        value,
        low,
        high,
        40,
        0,
        "over scratch",
        "seed, item",
        3,
    )


ROWS = (
    *(row(task, "shuffle-64", 7.5, 5.0, 9.0) for task in ("order", "topic", MEAN)),
    row("order", "shuffle-4", 2.0, -1.0, 4.0),
    row("order", "random", -1.25, -3.0, 0.5),
    row("order", "english", 12.0, 10.0, 14.0),
)


def test_the_chart_stands_in_the_lectures_order_beside_what_was_published() -> None:
    section = text_side_section(Lectures(ROWS))
    assert list(Lectures(ROWS).gains("order")) == ["random", "shuffle-4", "shuffle-64", "english"]
    assert [drawing.title for drawing in section.drawings if drawing] == [
        "Part 1, artificial data: Gain over scratch",
        "Part 1, artificial data: Gain against the length of dependencies",
    ]
    (kind,) = kinds_by_length(Lectures(ROWS), "order").values()
    assert [(length, row.value) for length, row in kind] == [(4, 2.0), (64, 7.5)]
    assert gain_by_length(Lectures(ROWS[:1]), ["order"]) is None


def test_tables_stand_in_the_order_of_the_lectures_parts() -> None:
    titles = (
        "Scores",
        "Loss surfaces: dual",
        "ListOps by depth",
        "Token translation: examples",
        "Test score at equal training loss, symbols",
        "Other",
    )
    found = [
        table.title for table in sort_by_part(Table(title, ("start",), ()) for title in titles)
    ]
    assert [title.partition(",")[0] for title in found] == [
        "Other",
        "Part 1",
        "Part 2",
        "Part 3",
        "Part 4",
        "Part 7",
    ]
    assert found[-1] == "Part 7, loss surfaces: Loss surfaces: dual"


def test_curves_are_means_over_the_steps_of_all_seeds() -> None:
    seeds = [
        [(10.0, 1.0, 0.5), (20.0, 0.5, 0.7)],
        [(10.0, 3.0, 0.7), (20.0, 0.7, 0.9), (30.0, 0.1, 1.0)],
    ]
    assert mean_curve(seeds) == [(10.0, 2.0, 0.6), (20.0, pytest.approx(0.6), 0.8)]
    drawing = draw_curves(Lectures(curves={("order", "random"): seeds}), "order")
    assert drawing.title == "order: optimisation and generalisation"


def test_a_folder_of_runs_has_a_page_without_a_corpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = [
        {"step": 10, "loss": 1.0, "score": 0.5},
        {"step": 20, "loss": None, "score": 0.6},
        {"step": 30, "loss": 0.5, "score": 0.7},
    ]
    for arm, right in (("scratch", 0.0), ("nested", 1.0)):
        about = {"task": "order", "arm": arm, "seed": 0, "metric": "accuracy", "curve": points}
        items = {f"i{n}": [1.0, right if n % 2 else 1.0] for n in range(6)}
        write_json(tmp_path / f"runs/order/{arm}-0/scores.json", about | {"items": items})
    print_gains(Gains(results=tmp_path))
    printed = capsys.readouterr().out
    assert "+50.0 [" in printed and "most of English's" in printed
    write_text_page(Page(results=tmp_path))
    page = (tmp_path / "report.html").read_text()
    assert (
        "What a text-pre-trained encoder knows" in page and ("Gain over scratch, in points") in page
    )
    assert "optimisation and generalisation" in page and "+50.0 [" in page
    assert [
        len(p)
        for p in read_lectures(tmp_path, [row("order", "nested", 1.0)]).curves["order", "nested"]
    ] == [2]
