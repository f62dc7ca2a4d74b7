"""What is odd about questions and passages: kept with a remark, or set aside with a reason, and the counts always add up."""

from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.data.prepare import PrepareReport
from speechssl.data.records import Answer
from speechssl.data.squad import Asked, Gold, Paragraph, Style, originals, records_of

TEXT = "Ann was born in Rome."
ROME = (Gold("Rome", 16),)


def paragraph(*asked, context=TEXT, number=0, name="", title=""):
    return Paragraph(0, number, name, title, context, tuple(asked))


def by_split(*paragraphs, style=None, **more):
    report = PrepareReport("corpus")
    records, _ = records_of("test", list(paragraphs), style or Style(), report, **more)
    return records, report


def remarks(report):
    return {what: number for (_, (what, _)), number in report.found.items()}


def reasons(report):
    return {line["id"]: line["reason"] for line in report.aside}


def test_a_question_and_its_offset():
    records, report = by_split(paragraph(Asked("q", "Where?", ROME)))
    assert records.passages[0].text == TEXT and records.passages[0].id == records.questions[0].passage == "0_0"
    assert records.questions[0].answers == (Answer("Rome", char_start=16),) and not report.found and not report.aside


def test_offsets_that_do_not_match_or_are_of_another_text():
    wrong = Asked("q", "Where?", (Gold("Rome", 15), Gold("Rome", None), Gold("rome", 16), Gold("Rome", 10**30), Gold("Rome", 16)))
    records, report = by_split(paragraph(wrong))
    assert [a.char_start for a in records.questions[0].answers] == [None, None, None, None, 16]
    assert remarks(report) == {"answers whose offset does not match": 4}
    records, report = by_split(paragraph(wrong), style=Style(offsets=False))
    assert {a.char_start for a in records.questions[0].answers} == {None}
    assert remarks(report) == {"answers with offsets of another text": 5}


def test_empty_answers_leave_their_question_unless_all_are():
    some = Asked("some", "Where?", (Gold("", 0), *ROME, Gold(" ", 3)))
    records, report = by_split(paragraph(some, Asked("all", "Where?", (Gold("", 0),)), Asked("none", "Where?", ())))
    assert [(q.id, len(q.answers)) for q in records.questions] == [("some", 1)]
    assert remarks(report) == {"empty answers": 3}
    assert reasons(report) == {"all": "every answer is empty", "none": "no answer, and not marked impossible"}


def test_impossible_questions_are_unanswerable():
    records, report = by_split(
        paragraph(Asked("a", "Who?", (), True), Asked("b", "Who?", ROME, True), Asked("c", "Where?", ROME, False))
    )
    assert [len(q.answers) for q in records.questions] == [0, 0, 1]
    assert remarks(report) == {"questions marked impossible that have answers": 1}


def test_empty_texts_are_set_aside_but_empty_transcripts_are_kept():
    rows = (paragraph(Asked("a", "Where?", ROME), context=" "), paragraph(Asked("b", "", ROME), number=1))
    records, report = by_split(*rows)
    assert reasons(report) == {"0_0": "empty passage", "a": "its passage is set aside", "b": "empty question"}
    assert not records.questions
    records, report = by_split(*rows, style=Style(transcribed_passages=True, transcribed_questions=True))
    assert [q.id for q in records.questions] == ["a", "b"] and len(records.passages) == 2
    assert {"passages with an empty transcript", "questions with an empty transcript"} < set(remarks(report))


def test_repetitions():
    same, other = Asked("q", "Where?", ROME), Asked("q", "In which town?", ROME)
    records, report = by_split(paragraph(same, same, other, name="p"), paragraph(same, name="p"))
    assert [p.id for p in records.passages] == ["p", "p#2"]
    assert [(q.id, q.passage) for q in records.questions] == [("q", "p"), ("q#2", "p"), ("q#3", "p#2")]
    assert report.aside[0]["reason"] == "the same question, word for word, with the same id"
    assert remarks(report) == {"ids of questions that occur twice": 2, "ids of passages that occur twice": 1}


def test_questions_without_ids_are_named():
    records, report = by_split(paragraph(Asked("", "Where?", ROME), Asked("", "Who?", ROME)))
    assert [q.id for q in records.questions] == ["0_0-1", "0_0-2"] and remarks(report) == {"questions without an id": 2}


def test_transcripts_and_their_originals():
    heard = paragraph(Asked("q", "wear", (Gold("rome", 16), Gold("Rome", 9))), context="and was born in rome")
    style = Style(transcribed_passages=True, transcribed_questions=True)
    records, _ = by_split(heard, style=style)
    assert (records.passages[0].text, records.passages[0].transcript) == ("", "and was born in rome")
    assert (records.questions[0].text, records.questions[0].transcript) == ("", "wear")
    assert [a.char_start for a in records.questions[0].answers] == [16, None]
    records, report = by_split(heard, style=style, originals=originals([paragraph(Asked("q", "Where?", ROME))]))
    assert (records.passages[0].text, records.passages[0].transcript) == (TEXT, "and was born in rome")
    assert (records.questions[0].text, records.questions[0].transcript) == ("Where?", "wear")
    assert [a.char_start for a in records.questions[0].answers] == [None, 16]  # in what is written, which is the text now
    assert remarks(report) == {"answers that are not word for word in the original": 1}


def test_originals_of_paragraphs_without_questions_and_of_unknown_ones():
    known = originals([paragraph(Asked("q", "Where?", ROME), title="Ann"), paragraph(context="Original.", number=1, title="Ann")])
    heard = [paragraph(context="oh", number=1, title="Ann"), paragraph(context="no", number=2, title="Ann")]
    records, report = by_split(*heard, style=Style(transcribed_passages=True), originals=known)
    assert [p.text for p in records.passages] == ["Original.", ""] and remarks(report)["passages without original"] == 1


asked = st.builds(
    Asked,
    st.sampled_from(["", "a", "b", "a#2"]),
    st.sampled_from(["", " ", "Where?", "Who?"]),
    st.lists(st.builds(Gold, st.sampled_from(["", "Rome", "x"]), st.sampled_from([None, 0, 16])), max_size=2).map(tuple),
    st.sampled_from([None, True, False]),
)
paragraphs = st.builds(
    Paragraph,
    st.integers(0, 1),
    st.integers(0, 1),
    st.sampled_from(["", "p", "0_0", "p#2"]),
    st.just(""),
    st.sampled_from(["", TEXT, "Rome"]),
    st.lists(asked, max_size=3).map(tuple),
)


@settings(max_examples=50)
@given(st.lists(paragraphs, max_size=4), st.booleans(), st.booleans())
def test_kept_and_set_aside_make_up_what_was_read(rows, passages, questions):
    records, report = by_split(*rows, style=Style(transcribed_passages=passages, transcribed_questions=questions))
    report.keep("test", "passages", len(records.passages))
    report.keep("test", "questions", len(records.questions))
    report = report.to_json({}, {})  # asserts it
    assert not rows or report["splits"]["test"]["passages"]["read"] == len(rows)
    assert len({p.id for p in records.passages}) == len(records.passages) and len({q.id for q in records.questions}) == len(
        records.questions
    )
    names = {p.id for p in records.passages}
    assert all(q.passage in names for q in records.questions)
