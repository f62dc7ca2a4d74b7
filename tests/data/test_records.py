"""Test manifests: records that are written and read again, every kind of damage, and the places of
answers in a text."""

import json
from dataclasses import replace

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
    find_occurrences,
    load_corpus,
    locate,
    write_records,
)

from ..files import refused, write_lines

WORDS = (Span("the", 0.0, 0.3), Span("cat", 0.3, 0.8))
PASSAGE = Passage(
    id="p1",
    audio="audio/p1.flac",
    seconds=4.0,
    text="the cat sat",
    speaker="amy",
    words=WORDS,
)
ANSWERS = (Answer("the cat", start=0.0, end=0.8, char_start=0),)
QUESTION = Question(
    id="q1",
    passage="p1",
    audio="audio/q1.flac",
    seconds=1.5,
    text="who sat",
    speaker="bob",
    answers=ANSWERS,
    options=("cat", "dog"),
    correct=(0,),
)

texts = st.text(max_size=12)
times = st.tuples(st.floats(0, 1000), st.floats(0, 1000)).map(lambda pair: sorted(pair))
spans = st.lists(
    st.builds(lambda text, ends: Span(text, *(round(t, 5) for t in ends)), texts, times), max_size=3
).map(tuple)


@pytest.mark.slow
@given(text=texts, words=spans, options=st.lists(texts, max_size=3))
def test_records_survive_their_manifests(tmp_path_factory, text, words, options):
    """Texts may have any characters: U+0085 and U+2028 in a text end no line of the manifest."""
    folder = tmp_path_factory.mktemp("records")
    passages = [Passage("p", text=text, words=words, transcript=text)]
    passages += [Passage("q", seconds=1000.0, text="a\u2028b\x85c\rd\ne", phones=words)]
    answers = (Answer(text, 0.5, 2.0), Answer(f"{text}.", char_start=3), Answer("x", 0.5, 2.0))
    correct = tuple(range(len(options)))
    question = Question("1", "q", text=text, answers=answers, options=tuple(options))
    questions = [replace(question, correct=correct[:n], id=str(n)) for n in range(len(correct) + 1)]
    write_records(folder / "dev/passages.jsonl", passages)
    write_records(folder / "dev/questions.jsonl", questions)
    corpus = load_corpus(folder, "dev")
    assert list(corpus.passages.values()) == passages
    assert list(corpus.questions) == questions


@pytest.fixture
def corpus(tmp_path):
    """A corpus of two passages and three questions, one of them without an answer."""
    other = replace(PASSAGE, id="p2", audio="audio/p2.flac", words=())
    unanswerable = replace(QUESTION, id="q2", passage="p2", answers=(), options=(), correct=())
    untimed = replace(QUESTION, id="q3", answers=(Answer("cat"),))
    (tmp_path / "audio").mkdir()
    for name in ("p1", "p2", "q1"):
        (tmp_path / "audio" / f"{name}.flac").touch()
    write_records(tmp_path / "dev" / "passages.jsonl", [PASSAGE, other])
    write_records(tmp_path / "dev" / "questions.jsonl", [QUESTION, unanswerable, untimed])
    return tmp_path


def test_a_corpus_is_loaded(corpus):
    data = load_corpus(corpus, "dev")
    assert list(data.passages) == ["p1", "p2"]
    assert data.passages["p1"] == PASSAGE
    assert data.questions[0] == QUESTION
    assert [q.id for q in data.answerable] == ["q1", "q3"]
    assert data.path(QUESTION) == corpus / "audio" / "q1.flac"
    late = replace(QUESTION, answers=(Answer("x", 3.0, 4.04),))  # an answer may end a little late
    write_records(corpus / "dev" / "questions.jsonl", [late])
    assert load_corpus(corpus, "dev").questions == (late,)


def test_a_line_needs_only_an_id_and_a_recording_beside_the_manifest(tmp_path):
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 40_000)
    write_flac(tmp_path / "dev/wav/p1.flac", samples)
    write_lines(tmp_path / "dev/passages.jsonl", [{"id": "p1", "audio": "wav/p1.flac"}])
    answer = {"text": "x", "start": 0.5, "end": 1.0}
    spoken = {"id": "q1", "audio": "dev/wav/p1.flac", "passage": "p1", "answers": [answer]}
    spoken["seconds"] = 0  # is not known
    written = {"id": "q2", "text": "who?", "passage": "p1", "answers": []}
    write_lines(tmp_path / "dev/questions.jsonl", [spoken, written])
    data = load_corpus(tmp_path, "dev")
    assert data.passages == {"p1": Passage("p1", audio="dev/wav/p1.flac", seconds=2.5)}
    assert [(q.audio, q.seconds) for q in data.questions] == [("dev/wav/p1.flac", 2.5), ("", 0.0)]


X = {"text": "x"}  # an answer


@pytest.mark.parametrize(
    ("manifest", "line", "message"),
    [
        ("passages", {"id": "p1"}, "the id p1 occurs twice"),
        ("passages", {"audio": "audio/gone.flac"}, "which does not exist"),
        ("passages", {"audio": "../gone.flac"}, "which leads out of"),
        ("passages", {"seconds": float("nan")}, "`seconds`"),
        ("passages", {"words": [["the", "early", 1.0]]}, "`words[0][1]`"),
        ("passages", {"words": [["the", 100.0, 1500.0]]}, "times look like milliseconds"),
        ("passages", {"phones": [["a", 0.0, 90.0]]}, "'a' is said from 0 to 90 s"),
        ("passages", {"colour": "red"}, "there is no `colour`"),
        ("passages", "{", "is not a JSON object"),
        ("passages", "[]", "is not a JSON object"),
        ("passages", '{"id": "p3"}', "neither audio nor text"),
        ("questions", {"passage": "p9"}, "the passage p9 is not in passages.jsonl"),
        ("questions", {"option_audio": ["audio/gone.flac"]}, "which does not exist"),
        ("questions", {"answers": [X | {"start": 3.0, "end": 4.2}]}, "does not lie in its passage"),
        ("questions", {"answers": [X | {"start": 1.0, "end": 1.0}]}, "does not lie in its passage"),
        ("questions", {"answers": [X | {"start": 900.0, "end": 1500.0}]}, "like milliseconds"),
        ("questions", {"answers": [X | {"start": 1.0}]}, "only one of start and end"),
        ("questions", {"answers": [{"words": "x"}]}, "neither text nor start and end"),
        ("questions", {"correct": 2, "options": ["a", "b"]}, "there are 2 options"),
    ],
)
def test_a_damaged_line_is_named(corpus, manifest, line, message):
    """The second record of a manifest is changed by fields, or replaced by a text. It is behind a
    blank line, on line 3."""
    path = corpus / "dev" / f"{manifest}.jsonl"
    first, second, *rest = path.read_text(encoding="utf-8").split("\n")
    if isinstance(line, dict):
        line = json.dumps(json.loads(second) | line)
    path.write_text("\n".join([first, "", line, *rest]), encoding="utf-8")
    assert message in refused(f"{path}:3", load_corpus, corpus, "dev")


def test_missing_manifests_and_those_that_are_no_text_are_refused(corpus):
    refused("it has the splits dev: name one", load_corpus, corpus, "test")
    refused("prepare one", load_corpus, corpus / "no", "dev")
    manifest = corpus / "dev" / "questions.jsonl"
    manifest.write_bytes(b"\xff\xfe")
    refused(f"cannot read .*{manifest}", load_corpus, corpus, "dev")


# ---- places of answers in a text


def test_occurrences_are_whole_words_in_english_and_may_overlap():
    assert find_occurrences("aa baa aa", "aa", "en") == [0, 7]
    assert find_occurrences("好好好", "好好", "zh") == [0, 1]


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
