"""Test what all loaders of spoken QA share: sources that are refused, corpora that are left alone,
and --passages N."""

import shutil

import pytest

from speechssl.artifacts import read_json
from speechssl.cli import VERBS, import_options, main
from speechssl.data.options import SpokenQA, Squad
from speechssl.data.records import load_corpus
from speechssl.data.squad import prepare_squad

from ..files import refused, same_files, untouched

SPOKEN_QA = [verb.split()[-1] for verb in VERBS if issubclass(import_options(verb), SpokenQA)]


@pytest.mark.parametrize("name", SPOKEN_QA)
def test_a_source_of_another_corpus_is_refused(name, tmp_path, capsys):
    (tmp_path / "notes.txt").touch()
    assert main(["prepare", name, str(tmp_path), str(tmp_path / "out")]) == 2
    assert f"has no files of {name}; give those that" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "table", "recorded"),
    [
        ("odsqa", "ODSQA_textq_test-v1.1.json", "question/1147-1-1.wav"),
        ("sd-qa", "english.test.nzl-en-NZ.jsonl", "wav_eng/11.wav"),
        ("spoken-squad", "spoken_test-v1.1.json", "dev_wav/0_0_0.wav"),
        ("squad-src", "dev-v1.1.json", "dev/SPK013_DEV000001.wav"),
    ],
)
def test_two_recordings_of_one_name_but_other_contents_are_refused(
    name, table, recorded, tmp_path, recording, capsys
):
    source = tmp_path / "test/eng/nzl"  # as SD-QA has its dialects
    for folder, seconds in (("ann", 0.3), ("bob", 0.4)):
        recording(source / folder / recorded, seconds)
    (source / table).touch()
    assert main(["prepare", name, str(source), str(tmp_path / "out")]) == 2
    assert f"bob/{recorded} are both called " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_finished_corpus_is_left_alone_and_a_killed_run_goes_on(tmp_path, squad_json, capsys):
    source, out = tmp_path / "in", tmp_path / "out"
    squad_json(source / "dev.json", ("In Rome.", [("1", "Where?", [("Rome", 3)])]))
    o = Squad(source=source, out=out, workers=1)
    first = prepare_squad(o)
    assert read_json(out / "data_report.json") == first
    with untouched(out):
        assert prepare_squad(o) == first
    shutil.copytree(out, tmp_path / "whole")
    for name in ("card.json", "data_report.json"):  # as after a kill
        (out / name).unlink()
    prepare_squad(o)
    assert same_files(tmp_path / "whole", out)
    squad_json(source / "dev.json", ("In Rome!", [("1", "Where?", [("Rome", 3)])]))
    refused("made from other inputs", prepare_squad, o)


def test_answers_that_could_be_aligned_are_counted_and_the_verb_is_named(
    tmp_path, squad_json, recording, capsys
):
    """The passage has a recording. Two answers are found in its text; "a" occurs twice and has no
    offset."""
    answers = {"1": ("Rome", 3), "2": ("Ann", -1), "3": ("a", -1)}
    questions = [(name, "What?", [answer]) for name, answer in answers.items()]
    source, out = tmp_path / "in", tmp_path / "out"
    squad_json(source / "dev.json", ("In Rome a and a Ann.", questions))
    recording(source / "audio/0_0.wav", 1.0)
    assert main(["prepare", "squad", str(source), str(out), "--workers", "1"]) == 0
    assert f"`speechssl align {out} " in capsys.readouterr().out
    assert read_json(out / "data_report.json")["splits"]["dev"]["answers_to_align"] == 2
    # text alone cannot be aligned
    assert main(["prepare", "squad", str(source), f"{out}-text", "--no-audio"]) == 0
    assert "speechssl align" not in capsys.readouterr().out


def test_only_the_first_passages_are_prepared(tmp_path, squad_json, recording):
    """There are three passages, the first without questions, and recordings of all."""
    source, out = tmp_path / "squad", tmp_path / "out"
    questions_of_rome = [("q1", "Where?", [("Rome", 3)])]
    questions_of_ann = [("q2", "Who?", [("Ann", 0)]), ("q3", "", [])]
    squad_json(
        source / "dev.json",
        ("Mud.", []),
        ("In Rome.", questions_of_rome),
        ("Ann.", questions_of_ann),
    )
    for name in ("0_0.mp3", "0_1.mp3", "0_2.mp3", "q1.wav", "q2.wav", "q3.wav"):
        recording(source / "audio" / name)
    report = prepare_squad(Squad(source=source, out=out, passages=1, workers=1))
    corpus, facts = load_corpus(out, "dev"), report["splits"]["dev"]
    assert list(corpus.passages) == ["0_1"]
    assert [q.id for q in corpus.questions] == ["q1"]
    assert len(list((out / "dev/audio").glob("*.flac"))) == 1
    counts = {"read": 3, "kept": 1, "set_aside": 2}
    assert facts["passages"] == counts
    assert facts["questions"] == counts
    # the empty question q3 has no reason of its own: it was not looked at
    assert list(facts["set_aside"].values()) == [4]
    refused("other inputs", prepare_squad, Squad(source=source, out=out, passages=2, workers=1))
