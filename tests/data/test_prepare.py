"""Test what all loaders of spoken QA share: sources that are refused, corpora that are left alone,
--passages N, and recordings that are attached to records."""

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.artifacts import read_json
from speechssl.cli import VERBS, import_options, main
from speechssl.data.options import SpokenQA, Squad
from speechssl.data.prepare import PrepareReport, SplitRecords, Take, attach_takes
from speechssl.data.records import Passage, Question, load_corpus
from speechssl.data.squad import prepare_squad

from ..files import read_lines, refused, same_files, untouched

SPOKEN_QA = [verb.split()[-1] for verb in VERBS if issubclass(import_options(verb), SpokenQA)]


def test_ten_verbs_prepare_spoken_qa():
    assert len(SPOKEN_QA) >= 10


@pytest.mark.parametrize("name", SPOKEN_QA)
def test_a_source_of_another_corpus_is_refused(name, tmp_path, capsys):
    (tmp_path / "notes.txt").touch()
    assert main(["prepare", name, str(tmp_path), str(tmp_path / "out")]) == 2
    assert f"has no files of {name}; give those that" in capsys.readouterr().err
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


# ---- --passages N: only these are prepared; the others are counted, and compared with the
# published counts


def reason(n):
    """Return the reason for setting aside what lies beyond the first n passages."""
    return f"beyond the first {n} passage{'s' * (n > 1)} with questions (--passages)"


@given(st.lists(st.integers(0, 4), max_size=8), st.one_of(st.none(), st.integers(1, 9)))
def test_the_first_passages_with_questions_are_kept(question_counts, first):
    """question_counts: the number of questions of every passage; first: N, None for all."""
    report = PrepareReport("any", first=first)
    report.count("dev", "passages", len(question_counts))
    report.count("dev", "questions", sum(question_counts))
    numbers = range(len(question_counts))
    chosen = list(report.slice("dev", numbers, dict(enumerate(question_counts))))
    with_questions = [i for i in numbers if question_counts[i] or first is None]
    assert chosen == with_questions[: first or len(question_counts)]
    kept = make_records(*map(str, chosen))
    questions = []
    for i, question in zip(chosen, kept.questions, strict=True):
        questions += [question] * question_counts[i]
    facts = report.to_json({"dev": SplitRecords(kept.passages, questions)})["splits"]["dev"]
    beyond = len(question_counts) - len(chosen) + sum(question_counts) - len(questions)
    assert facts["set_aside"] == ({reason(first): beyond} if beyond else {})


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
    assert facts["set_aside"] == {reason(1): 4}
    lines = read_lines(out / "set_aside.jsonl")
    assert [(line["kind"], line["count"]) for line in lines] == [("passages", 2), ("questions", 2)]
    refused("other inputs", prepare_squad, Squad(source=source, out=out, passages=2, workers=1))


# ---- recordings, attached to records


def make_records(*names):
    """Make passages with these ids, and a question about each."""
    passages = [Passage(name, text="text", language="en") for name in names]
    questions = [Question(f"{name}-q", name, text="why", language="en") for name in names]
    return SplitRecords(passages, questions)


def test_every_record_has_audio_or_is_set_aside(tmp_path, recording):
    paths = [tmp_path / name for name in ("whole.wav", "first.flac", "second.flac", "cut.flac")]
    for path in paths:
        recording(path, 0.5)
    whole, first, second, cut = paths
    cut.write_bytes(cut.read_bytes()[:2000])
    takes = {
        "whole": Take((whole,)),
        "joined": Take((first, second)),
        "cut": Take((first, cut)),
        "holed": Take((first,), missing=2),
        "gone": Take((tmp_path / "gone.wav",)),
    }
    report = PrepareReport("corpus")
    texts = make_records(*takes, "none")
    o = Squad(source=tmp_path, out=tmp_path / "out", workers=1)
    attached = attach_takes(o, "test", texts, report, takes)
    kept = [(p.id, p.audio, p.seconds) for p in attached.passages]
    assert kept == [("whole", str(whole), 0.5), ("joined", "test/audio/p-joined.flac", 1.0)]
    assert [q.id for q in attached.questions] == ["whole-q", "joined-q"]
    reasons = dict.fromkeys(("cut", "gone"), "its recording cannot be used")
    reasons |= {"holed": "segments of its recording are missing"}
    reasons |= {"none": "it has no recording, and others have; add it, or give --no-audio"}
    reasons |= {f"{name}-q": "its passage is set aside" for name in reasons}
    assert {line["id"]: line["reason"] for line in report.aside} == reasons
    report = PrepareReport("corpus")
    # without any recording the records stay as they are
    assert attach_takes(o, "test", texts, report, {}) == texts
    assert not report.aside
