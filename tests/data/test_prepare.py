"""What all corpora share: by what a folder is known, what is left of one that came to nothing, and
--passages N."""

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.artifacts import read_json
from speechssl.cli import main
from speechssl.data.options import Squad
from speechssl.data.prepare import PrepareReport, SplitRecords, Take, attach_takes
from speechssl.data.records import Passage, Question, load_corpus
from speechssl.data.squad import prepare_squad

from ..files import read_lines, refused, same_files, untouched

SPOKEN_QA = (
    "nmsqa odsqa toefl-qa spoken-squad slue-sqa5 heysquad squad-src sd-qa squad drcd".split()
)


@pytest.mark.parametrize("name", SPOKEN_QA)
def test_another_folder_is_one_sentence(name, tmp_path, capsys):
    (tmp_path / "notes.txt").touch()
    assert main(["prepare", name, str(tmp_path), str(tmp_path / "out")]) == 2
    assert f"has no files of {name}; give those that" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_left_alone(tmp_path, squad_json, capsys):
    source, out = tmp_path / "in", tmp_path / "out"
    squad_json(source / "dev.json", ("In Rome.", [("1", "Where?", [("Rome", 3)])]))
    o = Squad(source=source, out=out, workers=1)
    first = prepare_squad(o)
    assert read_json(out / "data_report.json") == first
    with untouched(out):
        assert prepare_squad(o) == first
    shutil.copytree(out, tmp_path / "whole")
    for name in ("card.json", "data_report.json"):  # a killed run begins again
        (out / name).unlink()
    prepare_squad(o)
    assert same_files(tmp_path / "whole", out)
    squad_json(source / "dev.json", ("In Rome!", [("1", "Where?", [("Rome", 3)])]))
    refused("made from other inputs", prepare_squad, o)


def test_answers_that_could_be_aligned_are_counted_and_the_verb_is_named(
    tmp_path, squad_json, recording, capsys
):
    """Two answers have a place in a passage with a recording, one occurs twice."""
    answers = {"1": ("Rome", 3), "2": ("Ann", -1), "3": ("a", -1)}
    asked = [(name, "What?", [answer]) for name, answer in answers.items()]
    source, out = tmp_path / "in", tmp_path / "out"
    squad_json(source / "dev.json", ("In Rome a and a Ann.", asked))
    recording(source / "audio/0_0.wav", 1.0)
    assert main(["prepare", "squad", str(source), str(out), "--workers", "1"]) == 0
    assert f"`speechssl align {out} " in capsys.readouterr().out
    assert read_json(out / "data_report.json")["splits"]["dev"]["answers_to_align"] == 2
    # text alone cannot be aligned
    assert main(["prepare", "squad", str(source), f"{out}-text", "--no-audio"]) == 0
    assert "speechssl align" not in capsys.readouterr().out


# ---- --passages N: a slice costs what it holds, what lies beyond it is counted, and the whole
# table is still compared


def reason(n):
    return f"beyond the first {n} passage{'s' * (n > 1)} with questions (--passages)"


@given(st.lists(st.integers(0, 4), max_size=8), st.one_of(st.none(), st.integers(1, 9)))
def test_kept_and_set_aside_are_what_was_read(asked, first):
    report = PrepareReport("any", first=first)
    report.count("dev", "passages", len(asked))
    report.count("dev", "questions", sum(asked))
    wanted = list(report.slice("dev", range(len(asked)), dict(enumerate(asked))))
    with_questions = [i for i, n in enumerate(asked) if n or first is None]
    assert wanted == with_questions[: first or len(asked)]
    kept = records(*map(str, wanted))
    questions = [q for i, q in zip(wanted, kept.questions, strict=True) for _ in range(asked[i])]
    facts = report.to_json({"dev": SplitRecords(kept.passages, questions)})["splits"]["dev"]
    beyond = len(asked) - len(wanted) + sum(asked) - len(questions)
    assert facts["set_aside"] == ({reason(first): beyond} if beyond else {})


def test_nothing_is_made_of_what_lies_beyond(tmp_path, squad_json, recording):
    """Three passages, the first without questions; recordings of all."""
    source, out = tmp_path / "squad", tmp_path / "out"
    asked = [[], [("q1", "Where?", [("Rome", 3)])], [("q2", "Who?", [("Ann", 0)]), ("q3", "", [])]]
    squad_json(source / "dev.json", *zip(["Mud.", "In Rome.", "Ann."], asked, strict=True))
    for name in ("0_0.mp3", "0_1.mp3", "0_2.mp3", "q1.wav", "q2.wav", "q3.wav"):
        recording(source / "audio" / name)
    report = prepare_squad(Squad(source=source, out=out, passages=1, workers=1))
    corpus, facts = load_corpus(out, "dev"), report["splits"]["dev"]
    assert (list(corpus.passages), [q.id for q in corpus.questions]) == (["0_1"], ["q1"])
    assert len(list((out / "dev/audio").glob("*.flac"))) == 1
    assert facts["passages"] == facts["questions"] == {"read": 3, "kept": 1, "set_aside": 2}
    # and not the empty question, which was never looked at
    assert facts["set_aside"] == {reason(1): 4}
    lines = read_lines(out / "set_aside.jsonl")
    assert [(line["kind"], line["count"]) for line in lines] == [("passages", 2), ("questions", 2)]
    refused("other inputs", prepare_squad, Squad(source=source, out=out, passages=2, workers=1))


# ---- recordings, attached to records


def records(*names):
    passages = [Passage(name, text="text", language="en") for name in names]
    questions = [Question(f"{name}-q", name, text="why", language="en") for name in names]
    return SplitRecords(passages, questions)


def test_every_record_has_audio_or_is_set_aside(tmp_path, recording):
    paths = [tmp_path / name for name in ("whole.wav", "first.flac", "second.flac", "cut.flac")]
    for path in paths:
        recording(path, 0.5)
    whole, first, second, cut = paths
    cut.write_bytes(cut.read_bytes()[:2000])
    takes = {"whole": Take((whole,)), "joined": Take((first, second)), "cut": Take((first, cut))}
    takes |= {"holed": Take((first,), 2), "gone": Take((tmp_path / "gone.wav",))}
    report, texts = PrepareReport("corpus"), records(*takes, "none")
    o = Squad(source=tmp_path, out=tmp_path / "out", workers=1)
    found = attach_takes(o, "test", texts, report, takes)
    kept = [(p.id, p.audio, p.seconds) for p in found.passages]
    assert kept == [("whole", str(whole), 0.5), ("joined", "test/audio/p-joined.flac", 1.0)]
    assert [q.id for q in found.questions] == ["whole-q", "joined-q"]
    reasons = dict.fromkeys(("cut", "gone"), "its recording cannot be used")
    reasons |= {"holed": "segments of its recording are missing"}
    reasons |= {"none": "it has no recording, and others have"}
    reasons |= {f"{name}-q": "its passage is set aside" for name in reasons}
    assert {line["id"]: line["reason"] for line in report.aside} == reasons
    report = PrepareReport("corpus")  # without any recording all stays text
    assert attach_takes(o, "test", texts, report, {}) == texts
    assert not report.aside
