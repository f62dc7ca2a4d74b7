"""The SUPERB recipe on almost nothing: killed it goes on; every task is evaluated in every
condition, with a page and tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from speechssl.results import read_rows
from speechssl.superb.tasks import ORDER

from .shared import needs, run, run_until, write_digits

FIRST = {
    "pr": "per",
    "asr": "wer",
    "qbe": "mtwv",
    "asv": "eer",
    "sd": "der",
    "sf": "slot_f1",
    "se": "pesq",
    "ss": "si_sdri",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With an FSDD and a real noise of a few synthetic sounds."""
    rng = np.random.default_rng(0)
    soundfile.write(tmp_path / "street.wav", rng.normal(0, 0.1, 48_000), 16_000)
    digits = write_digits(tmp_path / "fsdd/recordings", (3, 7))
    return {"FSDD": str(digits.parent), "UNSEEN": str(tmp_path / "street.wav")}


@needs("pesq", "espeakng_loader")
def test_smoke_run_survives_a_kill_in_the_caching_and_evaluates_every_task(
    tmp_path, environment, quick
):
    exp = tmp_path / "exp"
    arguments = ("superb/run.sh", "recipes/superb/smoke.yaml", str(exp))
    run_until(
        lambda: any(exp.glob("features/robust/*/shard-*.safetensors")),
        tmp_path / "log",
        *arguments,
        **environment,
    )
    kept = {p: p.stat().st_mtime_ns for p in exp.glob("features/*/*/shard-*.safetensors")}
    printed = (done := run(*arguments, PATH=quick, **environment)).stdout + done.stderr
    assert kept and all(p.stat().st_mtime_ns == at for p, at in kept.items())

    rows = {
        (r.task, r.encoder, r.condition, r.metric): r.value
        for r in read_rows(exp / "results.jsonl")
    }
    conditions = ("clean", "seen-m+g+r", "unseen-held-out", "unseen-street")
    assert {
        (t, e, c, FIRST.get(t, "acc"))
        for t in ORDER
        for e in ("robust", "fbank")
        for c in conditions
    } <= set(rows)
    assert ("all", "robust", "clean", "ratio_cached") in rows and (
        "asr",
        "robust",
        "clean",
        "wer_lm",
    ) in rows
    assert {r.task for r in read_rows(exp / "fsdd/results.jsonl")} == {"ks", "sid"}
    page = (exp / "report.html").read_text()
    assert all(
        text in page
        for text in ("Which layers the tasks use", "misses against false alarms", "not comparable")
    )
    assert (
        "| pr per ↓ |" in printed
        and "ratio" in printed
        and ("left out: none of the published sets is named") in printed
    )
