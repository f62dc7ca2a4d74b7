"""What the tables of recipes print of results: values with their intervals, and values of one
passage, which has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from speechssl.results import Row, append_rows

from .shared import script

ROW = Row("qa", "dual", "", "clean", None, "ff1", 61.25, 58.04, 64.5, 9, 0, "")


def test_a_grid_without_any_ratio_has_its_tables(tmp_path: Path) -> None:
    robustness = script("robustness/tables.py")
    rows = [
        replace(ROW, encoder=e, condition=c) for e in ("a", "b") for c in ("clean", "unseen-reverb")
    ]
    append_rows(tmp_path / "results.jsonl", rows)
    scores = robustness.read_scores(tmp_path / "results.jsonl")
    assert robustness.lay_out_means(scores).loc["b", "dual ff1"] == "61.2 · – · 61.2"
    table = robustness.table_of_scores(scores).markdown
    assert "| dual ff1 | unseen-reverb | 61.2 [58.0, 64.5] |" in table
    average = {
        "group": "unseen",
        "snr_db": None,
        "removed": {"value": 40.0, "low": None, "high": None},
        "recovered": None,
    }
    worst = {"task": "ks acc", "value": 1.0, "low": None, "high": None}
    clean = [{"encoder": e, "gain": None, "worst": worst} for e in ("a", "b")]
    values = {"clean": clean, "averages": [average | {"encoder": "b"}], "dual_against_cascade": []}
    assert "loss in unseen noise | – | 40.0 |" in robustness.targets(values).markdown
