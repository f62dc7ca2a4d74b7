"""The recipe of faults on almost nothing: both tables are there, and the union of shards is
whole."""

from __future__ import annotations

from pathlib import Path

from .shared import run


def test_smoke_run_prints_both_tables(tmp_path: Path) -> None:
    done = run("faults/run.sh", "recipes/faults/smoke.yaml", str(tmp_path))
    assert "| clock that jumps | 3 | the same bytes |" in done.stdout
    for row in ("| 1,000 | planned | ", "| 400 | killed after ", "| 400 | shard 2/3, killed"):
        assert row in done.stdout
    assert "The union of three processes is whole, no row is there twice" in done.stdout
