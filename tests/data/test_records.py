"""Manifests: a round trip, and one sentence with file and line for every kind of damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.records import (
    Answer,
    Passage,
    Question,
    Span,
    load_corpus,
    read_records,
    synthetic_note,
    write_records,
)
from speechssl.errors import InputError


def read_passages(p):
    return (r for _, r in read_records(p, Passage))


def read_questions(p):
    return (r for _, r in read_records(p, Question))


PASSAGE = Passage("p1", "audio/p1.flac", 4.0, "the cat sat", "amy", "en", (Span("the", 0.0, 0.3), Span("cat", 0.3, 0.8)))
QUESTION = Question(
    "q1", "p1", "audio/q1.flac", 1.5, "who sat", "bob", "en", (Answer("the cat", 0.0, 0.8, 0),), ("cat", "dog"), (0,)
)

texts = st.text(max_size=12)
times = st.floats(0, 1000).map(lambda x: round(x, 5))
spans = st.lists(st.builds(Span, texts, times, times), max_size=3).map(tuple)
positive = st.floats(1e-3, 1e5)
answers = st.builds(Answer, texts, times, times, st.none() | st.integers(0, 99)) | st.builds(Answer, texts)
passages = st.builds(Passage, texts, texts, positive, texts, texts, texts, spans, spans, texts, st.booleans())
questions = st.builds(
    Question,
    *(texts, texts, texts, positive, texts, texts, texts),
    st.lists(answers, max_size=3).map(tuple),
    st.lists(texts, max_size=3).map(tuple),
    st.lists(st.integers(0, 3), max_size=2).map(tuple),
    texts,
    spans,
    spans,
    texts,
    st.booleans(),
    st.lists(texts, max_size=3).map(tuple),
)


@pytest.mark.slow
@given(st.lists(passages, max_size=4), st.lists(questions, max_size=4))
def test_records_survive_their_manifests(
    tmp_path_factory: pytest.TempPathFactory, some: list[Passage], others: list[Question]
) -> None:
    """Any text does: a line separator inside a string (U+0085, U+2028) is no end of a line."""
    folder = tmp_path_factory.mktemp("records")
    write_records(folder / "p.jsonl", some)
    write_records(folder / "q.jsonl", others)
    assert list(read_passages(folder / "p.jsonl")) == some
    assert list(read_questions(folder / "q.jsonl")) == others


def test_line_separators_in_a_text(tmp_path: Path) -> None:
    odd = replace(PASSAGE, text="a\u2028b\x85c\rd\ne")
    write_records(tmp_path / "p.jsonl", [odd])
    assert list(read_passages(tmp_path / "p.jsonl")) == [odd]


def test_word_times_are_kept_to_a_fraction_of_a_sample(tmp_path: Path) -> None:
    write_records(tmp_path / "p.jsonl", [replace(PASSAGE, words=(Span("x", 1 / 3, 2 / 3),))])
    (word,) = next(read_passages(tmp_path / "p.jsonl")).words
    assert abs(word.start - 1 / 3) < 0.5 / 16_000
    assert abs(word.end - 2 / 3) < 0.5 / 16_000


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus of two passages and three questions, one of them without an answer."""
    other = replace(PASSAGE, id="p2", audio="audio/p2.flac", words=())
    two = replace(QUESTION, id="q2", passage="p2", answers=(), options=(), correct=())
    three = replace(QUESTION, id="q3", answers=(Answer("cat"),))
    (tmp_path / "audio").mkdir()
    for name in ("p1", "p2", "q1"):
        (tmp_path / "audio" / f"{name}.flac").touch()
    write_records(tmp_path / "dev" / "passages.jsonl", [PASSAGE, other])
    write_records(tmp_path / "dev" / "questions.jsonl", [QUESTION, two, three])
    return tmp_path


def test_a_corpus(corpus: Path) -> None:
    found = load_corpus(corpus, "dev")
    assert list(found.passages) == ["p1", "p2"]
    assert found.passages["p1"] == PASSAGE
    assert [q.id for q in found.questions] == ["q1", "q2", "q3"]
    assert [q.id for q in found.answerable] == ["q1", "q3"]
    assert found.path(QUESTION) == corpus / "audio" / "q1.flac"


@pytest.mark.parametrize(
    ("card", "said"), [('{"synthetic": "all by a robot"}', "Synthetic speech: all by a robot."), ("{}", ""), ("[1]", "")]
)
def test_a_card_says_what_was_spoken_by_a_synthesiser(tmp_path: Path, card: str, said: str) -> None:
    assert synthetic_note(tmp_path) == ""
    (tmp_path / "card.json").write_text(card)
    assert synthetic_note(tmp_path) == said


def test_an_answer_may_end_a_little_late(corpus: Path) -> None:
    late = replace(QUESTION, answers=(Answer("x", 3.0, 4.04),))
    write_records(corpus / "dev" / "questions.jsonl", [late])
    assert load_corpus(corpus, "dev").questions == (late,)


def spoil(path: Path, **changes: Any) -> None:
    """Change fields of the second record of a manifest, after a blank line: it stands on line 3."""
    first, second, *rest = path.read_text(encoding="utf-8").split("\n")
    path.write_text("\n".join([first, "", json.dumps(json.loads(second) | changes), *rest]), encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"id": "p1"}, "the id p1 occurs twice"),
        ({"id": 5}, "id is 5, which is not text"),
        ({"id": []}, "which is not text"),
        ({"text": None}, "text is None"),
        ({"audio": "audio/gone.flac"}, "which does not exist"),
        ({"audio": 7}, "audio is 7"),
        ({"seconds": 0}, "seconds is 0"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": "4"}, "is not a Passage record"),
        ({"seconds": None}, "is not a Passage record"),
        ({"words": [["the", 0.0]]}, "is not a Passage record"),
        ({"words": [["the", "early", 1.0]]}, "is not a Passage record"),
        ({"words": None}, "is not a Passage record"),
        ({"colour": "red"}, "has the unknown field 'colour'"),
    ],
)
def test_a_damaged_passage(corpus: Path, changes: dict[str, Any], what: str) -> None:
    path = corpus / "dev" / "passages.jsonl"
    spoil(path, **changes)
    assert_one_sentence(lambda: load_corpus(corpus, "dev"), f"{path}:3", what)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"id": "q1"}, "the id q1 occurs twice"),
        ({"passage": "p9"}, "refers to the passage p9"),
        ({"passage": None}, "passage is None"),
        ({"audio": "audio/gone.flac"}, "which does not exist"),
        ({"answers": [{"text": "x", "start": 3.0, "end": 4.2}]}, "lies outside its passage p2"),
        ({"answers": [{"text": "x", "start": -0.1, "end": 1.0}]}, "lies outside its passage"),
        ({"answers": [{"text": "x", "start": 1.0, "end": 1.0}]}, "lies outside its passage"),
        ({"answers": [{"text": "x", "start": 1.0}]}, "only one of start and end"),
        ({"answers": [{"text": "x", "start": "1.0", "end": "2.0"}]}, "an answer of this question is malformed"),
        ({"answers": [{"text": "x", "start": float("nan"), "end": 2.0}]}, "an answer of this question is malformed"),
        ({"answers": [{"text": 4}]}, "its text is 4"),
        ({"answers": [{"words": "x"}]}, "an answer of this question is malformed"),
        ({"answers": ["x"]}, "an answer of this question is malformed"),
        ({"answers": None}, "an answer of this question is malformed"),
        ({"options": None}, "are not a list of texts"),
        ({"options": "ab"}, "are not a list of texts"),
        ({"options": [1]}, "are not a list of texts"),
        ({"correct": 2, "options": ["a", "b"]}, "there are 2 options"),
        ({"correct": -1, "options": ["a", "b"]}, "there are 2 options"),
        ({"seconds": -1.0}, "seconds is -1.0"),
    ],
)
def test_a_damaged_question(corpus: Path, changes: dict[str, Any], what: str) -> None:
    path = corpus / "dev" / "questions.jsonl"
    spoil(path, **changes)
    assert_one_sentence(lambda: load_corpus(corpus, "dev"), f"{path}:3", what)


@pytest.mark.parametrize(("line", "what"), [("{", "is not JSON"), ("[]", "is not a JSON object"), ("{}", "missing")])
def test_lines_that_are_not_records(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "p.jsonl"
    write_records(path, [PASSAGE])
    path.write_text(path.read_text() + line + "\n")
    assert_one_sentence(lambda: list(read_passages(path)), f"{path}:2", what)


def test_a_field_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    values = asdict(QUESTION)
    del values["speaker"]
    path.write_text(json.dumps(values | {"words": [], "phones": [], "options": list(QUESTION.options)}))
    assert_one_sentence(lambda: list(read_questions(path)), f"{path}:1", "'speaker'")


def test_manifests_that_are_missing_or_not_text(corpus: Path, tmp_path: Path) -> None:
    assert_one_sentence(lambda: load_corpus(corpus, "test"), str(corpus / "test"), "it has the splits dev")
    assert_one_sentence(lambda: load_corpus(tmp_path / "no", "dev"), str(tmp_path / "no" / "dev"), "prepare")
    (corpus / "dev" / "questions.jsonl").write_bytes(b"\xff\xfe")
    assert_one_sentence(lambda: load_corpus(corpus, "dev"), str(corpus / "dev" / "questions.jsonl"), "cannot read")
    (corpus / "dev" / "questions.jsonl").unlink()
    assert_one_sentence(lambda: load_corpus(corpus, "dev"), str(corpus / "dev" / "questions.jsonl"), "check the path")


def assert_one_sentence(action: Callable[[], object], place: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        action()
    message = str(caught.value)
    assert place in message
    assert what in message
    assert "\n" not in message
