"""The verbs of the spoken-QA corpora: what they are called, what they say, and how they end."""

import argparse
import json
import sys
from dataclasses import fields
from inspect import signature
from types import ModuleType

import pytest

from speechssl.cli import main
from speechssl.cli.prepare import VERBS, add_spoken_qa, spelt
from speechssl.data.prepare import Wanted, described

SHARED = ("speak", "seed", "workers", "passages")
CONTENT = {"data": [{"paragraphs": [{"context": "Rome.", "qas": [{"id": "q", "question": "", "answers": []}]}]}]}


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_the_layout_and_where_it_comes_from(verb, capsys):
    with pytest.raises(SystemExit):
        main(["prepare", verb, "--help"])
    said = capsys.readouterr().out
    assert "--speak" in said and "SOURCE/" in said and f"speechssl prepare {verb} " in said
    assert any(place in said for place in ("github.com/", "github.io/", "huggingface.co/"))


@pytest.mark.parametrize("verb", VERBS)
def test_the_underscore_will_do_and_flags_reach_their_function(verb, tmp_path, monkeypatch, capsys):
    report, seen = {"corpus": verb, "splits": {}}, {}

    def prepare(source, out, wanted, **language):
        seen.update(source=str(source), out=str(out), **{name: getattr(wanted, name) for name in SHARED})
        return report

    module = ModuleType("any")
    setattr(module, f"prepare_{VERBS[verb].name or VERBS[verb].module}", prepare)
    monkeypatch.setitem(sys.modules, f"speechssl.data.spoken_qa.{VERBS[verb].module}", module)
    arguments = [
        "prepare",
        verb.replace("-", "_"),
        "a",
        str(tmp_path),
        "--speak",
        "--seed",
        "3",
        "--workers",
        "2",
        "--passages",
        "4",
    ]
    assert main(arguments) == 0
    assert seen == {"source": "a", "out": str(tmp_path), "speak": True, "seed": 3, "workers": 2, "passages": 4}
    printed = capsys.readouterr().out
    assert described(report) in printed and "data_report.json" in printed and "set_aside.jsonl" in printed


@pytest.mark.parametrize(("tag", "language"), [("zh-TW", "zh"), ("cmn", "zh"), ("en-gb", "en"), ("de", None)])
def test_a_tag_of_a_language_is_read_by_its_rules_and_others_are_refused(tag, language, tmp_path, monkeypatch, capsys):
    module, seen = ModuleType("any"), []
    module.prepare_drcd = lambda source, out, wanted, language: seen.append(language) or {"corpus": "drcd", "splits": {}}
    monkeypatch.setitem(sys.modules, "speechssl.data.squad", module)
    assert main(["prepare", "drcd", "a", str(tmp_path), "--language", tag]) == (0 if language else 2)
    assert seen == [language] * bool(language) and (language or "'de'" in capsys.readouterr().err)


@pytest.mark.parametrize("verb", VERBS)
def test_no_flag_is_ignored(verb):
    """What is no option of all loaders is one that the function takes."""
    parser = argparse.ArgumentParser()
    add_spoken_qa(parser.add_subparsers())
    given = vars(parser.parse_args([verb, "a", "b"])).keys() - {"corpus", "run", "config", "stage"}
    assert given - {f.name for f in fields(Wanted)} <= signature(VERBS[verb].function).parameters.keys()


def test_only_corpora_are_respelt():
    assert spelt(["prepare", "toefl_qa", "spoken_squad"]) == ["prepare", "toefl-qa", "spoken_squad"]
    assert spelt(["train", "toefl_qa"]) == ["train", "toefl_qa"] and spelt(["prepare"]) == ["prepare"] and spelt([]) == []


def test_a_corpus_is_made_and_reported(tmp_path, capsys):
    (tmp_path / "dev.json").write_text(json.dumps(CONTENT))
    assert main(["prepare", "squad", str(tmp_path / "dev.json"), str(tmp_path / "out"), "--no-audio"]) == 0
    said = capsys.readouterr().out
    assert "dev questions: 1 read, 0 kept, 1 set aside" in said and "1 set aside: empty question" in said
    assert json.loads((tmp_path / "out/set_aside.jsonl").read_text())["id"] == "q"


@pytest.mark.parametrize("verb", ["odsqa", "spoken-squad", "heysquad", "squad", "drcd"])
def test_another_folder_is_one_sentence_and_exit_code_2(verb, tmp_path, capsys):
    assert main(["prepare", verb, str(tmp_path), str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "has no file of this corpus; give " in said and said.count("\n") == 1 and not (tmp_path / "out").exists()
