"""The comparison on almost nothing: every step runs, all contenders compute the same, and the rows that are promised are there."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from speechssl.results import read_rows

ROOT = Path(__file__).parents[2]
missing = [name for name in ("espeakng_loader", "s3prl") if util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"the recipe needs the packages {', '.join(missing)}")


def test_smoke_run_leaves_rows_and_prints_tables(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "recipes/speed/run.sh", "recipes/speed/smoke.yaml", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PATH": path, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = read_rows(tmp_path / "results.jsonl")
    promised = {"x_realtime", "ratio_fp32", "ratio_bf16", "share_of_limit", "unit_agreement", "changed_units", "peak_gb"}
    assert {r.metric for r in rows} >= promised | {"ratio_sklearn", "same_units"} | {
        "steps_per_second",
        "steps_over_fp32",
        "steps_over_bf16",
        "over_training",
    }
    assert {r.system for r in rows} >= {"transformers fp32", "torchaudio fp32", "s3prl fp32", "speechssl fp32", "speechssl int8"}
    assert all(r.value > 0 for r in rows if r.metric in ("x_realtime", "ratio_fp32", "ratio_bf16", "unit_agreement"))
    assert next(r.value for r in rows if r.metric == "same_units") == 100
    assert "| speechssl bf16, % of the limit |" in done.stdout and "| changed_units | context 0 s | context 1 s |" in done.stdout
