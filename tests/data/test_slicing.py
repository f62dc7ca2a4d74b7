"""--passages N: a slice costs what it holds, what lies beyond it is counted, and the whole table is still compared."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.nmsqa import prepare_nmsqa
from speechssl.data.odsqa import prepare_odsqa
from speechssl.data.prepare import PrepareReport, Wanted, described
from speechssl.data.records import load_corpus
from speechssl.data.spoken_squad import prepare_spoken_squad
from speechssl.data.squad import prepare_squad
from speechssl.data.toefl_qa import prepare_toefl_qa
from speechssl.errors import InputError


def reason(n):
    return f"beyond the first {n} passage{'s' * (n > 1)} with questions (--passages)"


@given(st.lists(st.integers(0, 4), max_size=8), st.one_of(st.none(), st.integers(1, 9)))
def test_kept_and_set_aside_are_what_was_read(asked, first):
    report = PrepareReport("any", first=first)
    report.count("dev", "passages", len(asked))
    report.count("dev", "questions", sum(asked))
    wanted = report.slice("dev", range(len(asked)), dict(enumerate(asked)))
    assert list(wanted) == [i for i, n in enumerate(asked) if n or first is None][: first or len(asked)]
    report.keep("dev", "passages", len(wanted))
    report.keep("dev", "questions", sum(asked[i] for i in wanted))
    said = report.to_json({}, {})["splits"]["dev"]["set_aside"]
    beyond = len(asked) - len(wanted) + sum(asked) - sum(asked[i] for i in wanted)
    assert said == ({reason(first): beyond} if beyond else {})


@pytest.fixture
def source(tmp_path, squad_json, recording):
    """Three passages, the first without questions; recordings of all."""
    asked = [[], [("q1", "Where?", [("Rome", 3)])], [("q2", "Who?", [("Ann", 0)]), ("q3", "", [])]]
    squad_json(tmp_path / "squad/dev.json", *zip(["Mud.", "In Rome.", "Ann."], asked, strict=True))
    for number in range(3):
        recording(tmp_path / f"squad/audio/0_{number}.mp3")
    for name in ("q1", "q2", "q3"):
        recording(tmp_path / f"squad/audio/{name}.wav")
    return tmp_path / "squad"


def test_nothing_is_made_of_what_lies_beyond(source, tmp_path):
    report = prepare_squad(source, tmp_path / "out", Wanted(passages=1))
    corpus, facts = load_corpus(tmp_path / "out", "dev"), report["splits"]["dev"]
    assert (list(corpus.passages), [q.id for q in corpus.questions]) == (["0_1"], ["q1"])
    assert len(list((tmp_path / "out/dev/audio").glob("*.flac"))) == 1
    assert (facts["passages"], facts["questions"]) == (
        {"read": 3, "kept": 1, "set_aside": 2},
        {"read": 3, "kept": 1, "set_aside": 2},
    )
    assert facts["set_aside"] == {reason(1): 4}  # and not the empty question, which was never looked at
    lines = [json.loads(line) for line in (tmp_path / "out/set_aside.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["count"]) for line in lines] == [("passages", 2), ("questions", 2)]
    assert f"4 set aside: {reason(1)}" in described(report)
    assert next(f for f in facts["found"] if f["what"].startswith("recordings"))["what"].endswith("of the slice")


def test_another_slice_is_another_corpus(source, tmp_path):
    prepare_squad(source, tmp_path / "out", Wanted(passages=1))
    prepare_squad(source, tmp_path / "out", Wanted(passages=1))  # is left alone
    with pytest.raises(InputError):
        prepare_squad(source, tmp_path / "out", Wanted(passages=2))
    with pytest.raises(InputError):
        prepare_squad(source, tmp_path / "out")


def test_more_than_there_is_is_everything_with_questions(source, tmp_path):
    report = prepare_squad(source, tmp_path / "out", Wanted(passages=9))
    assert report["splits"]["dev"]["passages"]["kept"] == 2


@pytest.mark.parametrize(
    ("prepare", "where", "split", "passages", "questions"),
    [
        (prepare_nmsqa, "nmsqa", "dev", 2067, 10_570),
        (prepare_odsqa, "odsqa", "test-textq", 606, 1464),
        (prepare_spoken_squad, "spoken_squad", "test", None, 5351),
        (prepare_toefl_qa, "toefl_qa", "train", 150, 717),
        (prepare_toefl_qa, "toefl_qa", "dev", 24, 124),
    ],
)
def test_the_whole_of_a_real_table_is_counted(shared, tmp_path, prepare, where, split, passages, questions):
    report = prepare(shared(where), tmp_path / "out", Wanted(passages=2))
    facts, corpus = report["splits"][split], load_corpus(tmp_path / "out", split)
    assert len(corpus.passages) == 2 and {q.passage for q in corpus.questions} == set(corpus.passages)
    assert facts["questions"]["read"] == questions and facts["questions"]["agrees"]
    assert facts["questions"]["kept"] == len(corpus.questions)
    assert passages is None or facts["passages"] | {"agrees": True} == facts["passages"]
    assert "DIFFERENT" not in described(report)
