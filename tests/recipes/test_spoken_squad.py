"""The Spoken-SQuAD recipe: text QA on transcripts at three error rates, and the share of questions that they can answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from speechssl.cli import main
from speechssl.io import model_folder
from speechssl.results import read_rows

from . import published

STAGES = {"corpus": "prepare spoken-squad", "text-qa": "train text-qa", "evaluate": "evaluate qa", "report": "report"}
TESTS = ("test", "test-wer54")


@pytest.mark.parametrize("config", ["base", "smoke"])
def test_sections_hold_only_options_that_exist(config: str) -> None:
    published.check_options("spoken_squad", config, STAGES)


def test_checkpoints_are_found_by_name_in_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published.check_checkpoints("spoken_squad", tmp_path, monkeypatch)


def test_without_the_corpus_it_says_what_to_give(tmp_path: Path) -> None:
    published.check_needs_a_corpus("spoken_squad", tmp_path / "exp")


@published.speaks
def test_smoke_run_lays_f1_beside_error_rates_and_ceilings(tmp_path: Path, quick: str) -> None:
    said = published.smoke("spoken_squad", tmp_path, quick)
    for split in TESTS:
        found = {(r.system, r.metric): r for r in read_rows(tmp_path / split / "results.jsonl")}
        assert {(s, m) for s in ("cascade-given", "text") for m in ("em", "f1")} <= set(found)
        assert found["text", "wer"].value == 0 < found["cascade-given", "wer"].value
        assert (tmp_path / split / "report.html").is_file()
    table = [line for line in said.splitlines() if line.startswith(("| test |", "| test-"))]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert len(lines) == 4 and [line[2] for line in lines[::2]] == ["22.7", "54.8"]
    ceilings = [float(line[4]) for line in lines[::2]]
    assert ceilings[0] == 100 > ceilings[1]
    assert f"picture: {tmp_path / 'f1-wer.png'}" in said and (tmp_path / "f1-wer.png").stat().st_size > 10_000


@published.speaks
def test_without_a_training_set_the_shipped_reader_answers_and_it_is_said(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    assert main(["prepare", "miniature", "spoken-squad", str(corpus), "--test-passages", "2"]) == 0
    for path in corpus.rglob("spoken_train*.json"):
        path.unlink()
    done = published.run("spoken_squad", "recipes/spoken_squad/smoke.yaml", str(tmp_path / "smoke"), str(corpus))
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"left out: {corpus} has no train, so text QA is not trained; that of minisqa-en-robust is used" in done.stdout
    (shipped,) = (model_folder("minisqa-en-robust") / "text-qa").glob("model.safetensors")
    assert (tmp_path / "smoke/models/text-qa/model.safetensors").read_bytes() == shipped.read_bytes()
    assert read_rows(tmp_path / "smoke/test/results.jsonl")
    done = published.run("spoken_squad", "recipes/spoken_squad/base.yaml", str(tmp_path / "base"), str(corpus))
    assert done.returncode == 2 and f"{corpus} has no train, which recipes/spoken_squad/base.yaml trains on" in done.stderr
