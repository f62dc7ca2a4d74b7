"""The SUPERB recipe on almost nothing: killed it goes on; every task is evaluated in every condition, with a page and tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from speechssl.cli.parser import check_section
from speechssl.cli.verbs import config_of
from speechssl.results import read_rows
from speechssl.superb.tasks import ORDER

from .shared import ROOT, kill_when, needs

STAGES = {"synthetic": "superb run", "speed": "superb speed", "fsdd": "superb run", "published": "superb run"}
FIRST = {"pr": "per", "asr": "wer", "qbe": "mtwv", "asv": "eer", "sd": "der", "sf": "slot_f1", "se": "pesq", "ss": "si_sdri"}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("recipe", ["base", "smoke"])
def test_recipe_sections_hold_only_options_that_exist(recipe: str, stage: str) -> None:
    section = yaml.safe_load((ROOT / f"recipes/superb/{recipe}.yaml").read_text())[stage]
    check_section(STAGES[stage], config_of(STAGES[stage]), section, recipe)
    assert not {"seed", "data-seed", "out", "unseen"} & set(section)  # run.sh's own would hide them


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With an FSDD and a real noise of a few synthetic sounds."""
    rng = np.random.default_rng(0)
    soundfile.write(tmp_path / "street.wav", rng.normal(0, 0.1, 48_000), 16_000)
    (tmp_path / "fsdd/recordings").mkdir(parents=True)
    for digit in (3, 7):
        for speaker in ("ann", "bob"):
            for index in (0, 5, 10, 11):
                wave = np.sin(np.arange(4000) * (0.1 + 0.05 * digit)) * 0.3 + rng.normal(0, 0.01, 4000)
                soundfile.write(tmp_path / f"fsdd/recordings/{digit}_{speaker}_{index}.wav", wave, 8000)
    kept = {k: v for k, v in os.environ.items() if k != "SEED"}
    made = {"FSDD": str(tmp_path / "fsdd"), "UNSEEN": str(tmp_path / "street.wav")}
    return kept | made | {"HF_HUB_OFFLINE": "1"}


def start(exp: Path, environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    command = ["bash", "recipes/superb/run.sh", "recipes/superb/smoke.yaml", str(exp)]
    with log.open("wb") as file:
        files = {"stdin": subprocess.PIPE, "stdout": file, "stderr": file}
        return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **files)


@needs("pesq", "espeakng_loader")
def test_smoke_run_survives_a_kill_in_the_caching_and_evaluates_every_task(
    tmp_path: Path, environment: dict[str, str], quick: str
) -> None:
    exp, log = tmp_path / "exp", tmp_path / "log"
    usual = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    kill_when(lambda: any(exp.glob("features/robust/*/shard-*.safetensors")), start(exp, environment | usual, log), log)
    kept = {p: p.stat().st_mtime_ns for p in exp.glob("features/*/*/shard-*.safetensors")}
    with start(exp, environment | {"PATH": quick}, log) as running:
        assert running.wait(timeout=900) == 0, log.read_text(errors="replace")[-3000:]
    assert kept and all(p.stat().st_mtime_ns == at for p, at in kept.items())

    rows = {(r.system, r.encoder, r.condition, r.metric): r.value for r in read_rows(exp / "results.jsonl")}
    conditions = ("clean", "seen-m+g+r", "unseen-held-out", "unseen-street")
    assert {(t, e, c, FIRST.get(t, "acc")) for t in ORDER for e in ("robust", "fbank") for c in conditions} <= set(rows)
    assert ("all", "robust", "clean", "ratio_cached") in rows and ("asr", "robust", "clean", "wer_lm") in rows
    assert {r.system for r in read_rows(exp / "fsdd/results.jsonl")} == {"ks", "sid"}
    page = (exp / "report.html").read_text()
    assert all(text in page for text in ("Which layers the tasks use", "misses against false alarms", "not comparable"))
    printed = log.read_text(errors="replace")
    assert "| pr per ↓ |" in printed and "ratio" in printed and "left out: none of the published sets is named" in printed
