"""The recipe of faults on almost nothing: both tables are there, and the union of shards is whole."""

from __future__ import annotations

from pathlib import Path

from .shared import run


def test_smoke_run_prints_both_tables(tmp_path: Path) -> None:
    done = run("faults/run.sh", "recipes/faults/smoke.yaml", str(tmp_path))
    assert "| clock that jumps | 3 | the same bytes |" in done.stdout
    assert (
        "| 1,000 | planned | " in done.stdout
        and "| 400 | killed after " in done.stdout
        and "| 400 | shard 2/3, killed" in done.stdout
    )
    assert "The union of three processes is whole, no row is there twice" in done.stdout
