"""Manifests: a round trip, and one sentence with file and line for every kind of damage."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.audio import write_flac
from speechssl.data.records import (
    Answer,
    Passage,
    Question,
    Span,
    load_corpus,
    locate,
    occurrences,
    read_records,
    synthetic_note,
    write_records,
)

from ..files import refused, write_lines

PASSAGE = Passage(
    "p1",
    "audio/p1.flac",
    4.0,
    "the cat sat",
    "amy",
    "en",
    (Span("the", 0.0, 0.3), Span("cat", 0.3, 0.8)),
)
QUESTION = Question(
    "q1",
    "p1",
    "audio/q1.flac",
    1.5,
    "who sat",
    "bob",
    "en",
    (Answer("the cat", 0.0, 0.8, 0),),
    ("cat", "dog"),
    (0,),
)

texts = st.text(max_size=12)
times = st.floats(0, 1000).map(lambda x: round(x, 5))
spans = st.lists(
    st.builds(lambda text, *ends: Span(text, *sorted(ends)), texts, times, times), max_size=3
).map(tuple)
positive = st.floats(1e-3, 1e5)
answers = st.builds(Answer, texts, times, times, st.none() | st.integers(0, 99)) | st.builds(
    Answer, texts
)
passages = st.builds(
    Passage, texts, texts, positive, texts, texts, texts, spans, spans, texts, st.booleans()
)
some_answers, some_texts = (
    st.lists(answers, max_size=3).map(tuple),
    st.lists(texts, max_size=3).map(tuple),
)
correct = st.lists(st.integers(0, 3), max_size=2).map(tuple)
asked = (
    texts,
    texts,
    texts,
    positive,
    texts,
    texts,
    texts,
    some_answers,
    some_texts,
    correct,
    texts,
)
questions = st.builds(Question, *asked, spans, spans, texts, st.booleans(), some_texts)


def read(path: Path, kind: type) -> list[Any]:
    return [record for _, record in read_records(path, kind)]


@pytest.mark.slow
@given(st.lists(passages, max_size=4), st.lists(questions, max_size=4))
def test_records_survive_their_manifests(
    tmp_path_factory: pytest.TempPathFactory, some: list[Passage], others: list[Question]
) -> None:
    """Any text does: a line separator inside a string (U+0085, U+2028) is no end of a line."""
    folder = tmp_path_factory.mktemp("records")
    some = [*some, replace(PASSAGE, text="a\u2028b\x85c\rd\ne")]
    write_records(folder / "p.jsonl", some)
    write_records(folder / "q.jsonl", others)
    assert (
        read(folder / "p.jsonl", Passage) == some and read(folder / "q.jsonl", Question) == others
    )


def test_word_times_are_kept_to_a_fraction_of_a_sample(tmp_path: Path) -> None:
    write_records(tmp_path / "p.jsonl", [replace(PASSAGE, words=(Span("x", 1 / 3, 2 / 3),))])
    (word,) = read(tmp_path / "p.jsonl", Passage)[0].words
    assert abs(word.start - 1 / 3) < 0.5 / 16_000 and abs(word.end - 2 / 3) < 0.5 / 16_000


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
    assert list(found.passages) == ["p1", "p2"] and found.passages["p1"] == PASSAGE
    assert [q.id for q in found.questions] == ["q1", "q2", "q3"]
    assert [q.id for q in found.answerable] == ["q1", "q3"]
    assert found.path(QUESTION) == corpus / "audio" / "q1.flac"
    late = replace(QUESTION, answers=(Answer("x", 3.0, 4.04),))  # an answer may end a little late
    write_records(corpus / "dev" / "questions.jsonl", [late])
    assert load_corpus(corpus, "dev").questions == (late,)


def test_a_line_needs_only_an_id_and_a_recording_beside_the_manifest(tmp_path: Path) -> None:
    for name, seconds in (("p1", 2.5), ("q1", 1.0)):
        write_flac(
            tmp_path / f"dev/wav/{name}.flac",
            np.random.default_rng(0).uniform(-0.5, 0.5, int(seconds * 16_000)),
        )
    (tmp_path / "dev/passages.jsonl").write_text('{"id": "p1", "audio": "wav/p1.flac"}\n')
    lines = [
        {
            "id": "q1",
            "audio": "dev/wav/q1.flac",
            "passage": "p1",
            "answers": [{"text": "x", "start": 0.5, "end": 1.0}],
        }
    ]
    lines += [{"id": "q2", "text": "who?", "passage": "p1", "answers": []}]
    write_lines(tmp_path / "dev/questions.jsonl", lines)
    found = load_corpus(tmp_path, "dev")
    assert found.passages == {"p1": Passage("p1", "dev/wav/p1.flac", 2.5, "", "", "en")}
    spoken, written = found.questions
    assert (spoken.audio, spoken.seconds) == ("dev/wav/q1.flac", 1.0) and found.path(
        spoken
    ).is_file()
    assert (written.audio, written.seconds, written.answers) == ("", 0.0, ())
    (tmp_path / "dev/passages.jsonl").write_text('{"id": "p1", "audio": "wav/gone.flac"}\n')
    refused(
        "passages.jsonl:1 names wav/gone.flac, which does not exist in .* or beside the manifest",
        load_corpus,
        tmp_path,
        "dev",
    )


@pytest.mark.parametrize(
    ("card", "note"),
    [('{"synthetic": "all by a robot"}', "Synthetic speech: all by a robot."), ("{}", "")],
)
def test_a_card_says_what_was_spoken_by_a_synthesiser(tmp_path: Path, card: str, note: str) -> None:
    assert synthetic_note(tmp_path) == ""
    (tmp_path / "card.json").write_text(card)
    assert synthetic_note(tmp_path) == note


P, Q = "passages", "questions"


@pytest.mark.parametrize(
    ("manifest", "changes", "what"),
    [
        (P, {"id": "p1"}, "the id p1 occurs twice"),
        (P, {"id": 5}, "id is 5, which is not text"),
        (P, {"id": []}, "which is not text"),
        (P, {"text": None}, "text is None"),
        (P, {"audio": "audio/gone.flac"}, "which does not exist"),
        (P, {"audio": 7}, "audio is 7"),
        (P, {"seconds": 0}, "seconds is 0"),
        (P, {"seconds": float("nan")}, "seconds is nan"),
        (P, {"seconds": "4"}, "is not a Passage record"),
        (P, {"seconds": None}, "p2.flac is empty"),
        (P, {"words": [["the", 0.0]]}, "is not a Passage record"),
        (P, {"words": [["the", "early", 1.0]]}, "is not a Passage record"),
        (P, {"words": None}, "is not a Passage record"),
        (P, {"words": [["the", 0.4, 0.2]]}, "'the' lasts from 0.4 to 0.2 s"),
        (P, {"words": [["the", 0.0, float("nan")]]}, "'the' lasts from 0.0 to nan s"),
        (P, {"colour": "red"}, "has the unknown field 'colour'"),
        (Q, {"id": "q1"}, "the id q1 occurs twice"),
        (Q, {"passage": "p9"}, "refers to the passage p9"),
        (Q, {"passage": None}, "passage is None"),
        (Q, {"audio": "audio/gone.flac"}, "which does not exist"),
        (
            Q,
            {"answers": [{"text": "x", "start": 3.0, "end": 4.2}]},
            "lies outside its passage p2 ([0, ",
        ),
        (Q, {"answers": [{"text": "x", "start": -0.1, "end": 1.0}]}, "lies outside its passage"),
        (Q, {"answers": [{"text": "x", "start": 1.0, "end": 1.0}]}, "has no length"),
        (
            Q,
            {"answers": [{"text": "x", "start": 3.0, "end": 1.5}]},
            "is reversed; start comes before end",
        ),
        (Q, {"answers": [{"text": "x", "start": 1.0}]}, "only one of start and end"),
        (
            Q,
            {"answers": [{"text": "x", "start": "1.0", "end": "2.0"}]},
            "an answer of this question is malformed",
        ),
        (
            Q,
            {"answers": [{"text": "x", "start": float("nan"), "end": 2.0}]},
            "an answer of this question is malformed",
        ),
        (Q, {"answers": [{"text": 4}]}, "its text is 4"),
        (
            Q,
            {"answers": [{"text": "x", "char_start": -1}]},
            "its char_start is -1; leave it out where it is not known",
        ),
        (
            Q,
            {"answers": [{"words": "x"}]},
            "malformed (its fields are words; it needs text, and may have ",
        ),
        (Q, {"answers": ["x"]}, "the answers of this question are ['x']; write a list such as "),
        (
            Q,
            {"answers": {"text": ["x"], "answer_start": [3]}},
            "'answer_start': [3]}; write a list such as ",
        ),
        (Q, {"answers": None}, "the answers of this question are None; write a list such as "),
        (Q, {"options": None}, "are not a list of texts"),
        (Q, {"options": "ab"}, "are not a list of texts"),
        (Q, {"options": [1]}, "are not a list of texts"),
        (Q, {"correct": 2, "options": ["a", "b"]}, "there are 2 options"),
        (Q, {"correct": -1, "options": ["a", "b"]}, "there are 2 options"),
        (Q, {"correct": 1.0, "options": ["a", "b"]}, "correct is 1.0, but there are 2 options"),
        (
            Q,
            {"correct": [1, 1], "options": ["a", "b"]},
            "correct is [1, 1], but there are 2 options",
        ),
        (Q, {"seconds": -1.0}, "seconds is -1.0"),
    ],
)
def test_a_damaged_line(corpus: Path, manifest: str, changes: dict[str, Any], what: str) -> None:
    """The second record of a manifest, after a blank line: it stands on line 3."""
    path = corpus / "dev" / f"{manifest}.jsonl"
    first, second, *rest = path.read_text(encoding="utf-8").split("\n")
    path.write_text(
        "\n".join([first, "", json.dumps(json.loads(second) | changes), *rest]), encoding="utf-8"
    )
    assert what in refused(f"{path}:3", load_corpus, corpus, "dev")


@pytest.mark.parametrize(
    ("line", "what"),
    [("{", "is not JSON"), ("[]", "is not a JSON object"), ("{}", "lacks id; a passage")],
)
def test_lines_that_are_not_records(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "p.jsonl"
    write_records(path, [PASSAGE])
    path.write_text(path.read_text() + line + "\n")
    assert what in refused(f"{path}:2", read, path, Passage)
    lacking = {
        n: v for n, v in asdict(QUESTION).items() if n not in ("passage", "words", "phones")
    } | {"options": ["cat", "dog"]}
    path.write_text(json.dumps(lacking))
    refused(f"{path}:1 .*lacks passage; a question needs that", read, path, Question)
    path.write_text('{"id": "p1"}')
    refused(f"{path}:1 .*missing both audio and text", read, path, Passage)


def test_manifests_that_are_missing_or_not_text(corpus: Path, tmp_path: Path) -> None:
    refused(
        rf"{corpus / 'test'}.* it has the splits dev: name one "
        r"\(--split\)",
        load_corpus,
        corpus,
        "test",
    )
    refused(f"{tmp_path / 'no/dev'}.*prepare", load_corpus, tmp_path / "no", "dev")
    manifest = corpus / "dev" / "questions.jsonl"
    manifest.write_bytes(b"\xff\xfe")
    refused(f"cannot read .*{manifest}", load_corpus, corpus, "dev")
    manifest.unlink()
    refused(f"{manifest}.*check the path", load_corpus, corpus, "dev")


# ---- places of answers in what is written


def test_occurrences():
    assert occurrences("aa baa aa", "aa", "en") == [0, 7] and occurrences(
        "好好好", "好好", "zh"
    ) == [0, 1]


@pytest.mark.parametrize(
    ("answer", "place", "why"),
    [
        (Answer("Rome", char_start=3), (3, 7), ""),
        (Answer("Rome", char_start=4), None, "answers without offset that occur several times"),
        (Answer(" Ann "), (9, 12), ""),
        (Answer("An"), None, "answers that do not occur in the passage"),
        (Answer(" "), None, "answers that are empty"),
    ],
)
def test_an_answer_is_at_its_offset_or_its_only_occurrence(answer, place, why):
    assert locate(answer, "In Rome, Ann saw Rome.", "en") == (place, why)


def test_a_name_twice_in_a_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(
        '{"id": "a", "text": "b", "words": []}\n{"id": "c", "text": "d", "text": "e"}\n'
    )
    refused(
        "p.jsonl:2 is not JSON .it has text twice.",
        lambda: list(read_records(tmp_path / "p.jsonl", Passage)),
    )
