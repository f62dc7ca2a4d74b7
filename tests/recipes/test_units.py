"""recipes/units on almost nothing: every stage runs, leaves a table, and does nothing the second time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

from speechssl.io import read_json

from .shared import needs, run

pytestmark = needs("espeakng_loader", "parselmouth")


def test_smoke_run_leaves_a_table_and_repeats_nothing(tmp_path: Path, quick: str) -> None:
    digits = tmp_path / "fsdd"
    digits.mkdir()
    rng = np.random.default_rng(0)
    for digit in range(2):
        tone = np.sin(np.arange(6_000) * (0.2 + 0.3 * digit))
        for speaker in ("ann", "bob"):
            for number in (0, 1, 5, 6, 10, 11):
                soundfile.write(digits / f"{digit}_{speaker}_{number}.wav", 0.3 * tone + rng.normal(0, 0.01, len(tone)), 16_000)
    arguments = ("units/run.sh", "recipes/units/smoke.yaml", str(tmp_path / "exp"))
    table = run(*arguments, PATH=quick, FSDD=str(digits)).stdout
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    names = {row[0] for row in rows}
    assert names >= {"start", "spin-units", "spin-k-means", "r-spin-teacher-units", "r-spin-teacher-labels"}
    assert len(next(row for row in rows if row[0] == "start")) == len(rows[0])
    exp = tmp_path / "exp"
    assert read_json(exp / "quality" / "start-test-fsdd.json")["same_text"][0]["pairs"] == 8
    packed = (exp / "people.txt").read_text().split()
    assert packed and all(path in (exp / "speech.txt").read_text() for path in packed)
    made = {p: p.stat().st_mtime_ns for p in [*exp.glob("quality/*.json"), *exp.rglob("*.safetensors")]}
    assert run(*arguments, PATH=quick, FSDD=str(digits)).stdout.split("**dev**")[1] == table.split("**dev**")[1]
    assert {p: p.stat().st_mtime_ns for p in made} == made
