"""What is odd about questions and passages: kept with a remark, or set aside with a reason, and the counts always add up."""

from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.data.prepare_report import Ledger
from speechssl.data.records import Answer
from speechssl.data.squad import Asked, Gold, Paragraph, Style, drafted, originals

TEXT = "Ann was born in Rome."
ROME = (Gold("Rome", 16),)


def paragraph(*asked, context=TEXT, number=0, name="", title=""):
    return Paragraph(0, number, name, title, context, tuple(asked))


def drafts(*paragraphs, style=None, **more):
    ledger = Ledger("corpus")
    draft, _ = drafted("test", list(paragraphs), style or Style(), ledger, **more)
    return draft, ledger


def remarks(ledger):
    return {what: number for (_, (what, _)), number in ledger.found.items()}


def reasons(ledger):
    return {line["id"]: line["reason"] for line in ledger.aside}


def test_a_question_and_its_offset():
    draft, ledger = drafts(paragraph(Asked("q", "Where?", ROME)))
    assert draft.passages[0].text == TEXT and draft.passages[0].id == draft.questions[0].passage == "0_0"
    assert draft.questions[0].answers == (Answer("Rome", char_start=16),) and not ledger.found and not ledger.aside


def test_offsets_that_do_not_match_or_are_of_another_text():
    wrong = Asked("q", "Where?", (Gold("Rome", 15), Gold("Rome", None), Gold("rome", 16), Gold("Rome", 10**30), Gold("Rome", 16)))
    draft, ledger = drafts(paragraph(wrong))
    assert [a.char_start for a in draft.questions[0].answers] == [None, None, None, None, 16]
    assert remarks(ledger) == {"answers whose offset does not match": 4}
    draft, ledger = drafts(paragraph(wrong), style=Style(offsets=False))
    assert {a.char_start for a in draft.questions[0].answers} == {None}
    assert remarks(ledger) == {"answers with offsets of another text": 5}


def test_empty_answers_leave_their_question_unless_all_are():
    some = Asked("some", "Where?", (Gold("", 0), *ROME, Gold(" ", 3)))
    draft, ledger = drafts(paragraph(some, Asked("all", "Where?", (Gold("", 0),)), Asked("none", "Where?", ())))
    assert [(q.id, len(q.answers)) for q in draft.questions] == [("some", 1)]
    assert remarks(ledger) == {"empty answers": 3}
    assert reasons(ledger) == {"all": "every answer is empty", "none": "no answer, and not marked impossible"}


def test_impossible_questions_are_unanswerable():
    draft, ledger = drafts(
        paragraph(Asked("a", "Who?", (), True), Asked("b", "Who?", ROME, True), Asked("c", "Where?", ROME, False))
    )
    assert [len(q.answers) for q in draft.questions] == [0, 0, 1]
    assert remarks(ledger) == {"questions marked impossible that have answers": 1}


def test_empty_texts_are_set_aside_but_empty_transcripts_are_kept():
    rows = (paragraph(Asked("a", "Where?", ROME), context=" "), paragraph(Asked("b", "", ROME), number=1))
    draft, ledger = drafts(*rows)
    assert (
        reasons(ledger) == {"0_0": "empty passage", "a": "its passage is set aside", "b": "empty question"} and not draft.questions
    )
    draft, ledger = drafts(*rows, style=Style(heard_passages=True, heard_questions=True))
    assert [q.id for q in draft.questions] == ["a", "b"] and len(draft.passages) == 2
    assert {"passages with an empty transcript", "questions with an empty transcript"} < set(remarks(ledger))


def test_repetitions():
    same, other = Asked("q", "Where?", ROME), Asked("q", "In which town?", ROME)
    draft, ledger = drafts(paragraph(same, same, other, name="p"), paragraph(same, name="p"))
    assert [p.id for p in draft.passages] == ["p", "p#2"]
    assert [(q.id, q.passage) for q in draft.questions] == [("q", "p"), ("q#2", "p"), ("q#3", "p#2")]
    assert ledger.aside[0]["reason"] == "the same question, word for word, with the same id"
    assert remarks(ledger) == {"ids of questions that occur twice": 2, "ids of passages that occur twice": 1}


def test_questions_without_ids_are_named():
    draft, ledger = drafts(paragraph(Asked("", "Where?", ROME), Asked("", "Who?", ROME)))
    assert [q.id for q in draft.questions] == ["0_0-1", "0_0-2"] and remarks(ledger) == {"questions without an id": 2}


def test_transcripts_and_their_originals():
    heard = paragraph(Asked("q", "wear", (Gold("rome", 16), Gold("Rome", 9))), context="and was born in rome")
    style = Style(heard_passages=True, heard_questions=True)
    draft, _ = drafts(heard, style=style)
    assert (draft.passages[0].text, draft.passages[0].transcript) == ("", "and was born in rome")
    assert (draft.questions[0].text, draft.questions[0].transcript) == ("", "wear")
    assert [a.char_start for a in draft.questions[0].answers] == [16, None]
    draft, ledger = drafts(heard, style=style, originals=originals([paragraph(Asked("q", "Where?", ROME))]))
    assert (draft.passages[0].text, draft.passages[0].transcript) == (TEXT, "and was born in rome")
    assert (draft.questions[0].text, draft.questions[0].transcript) == ("Where?", "wear")
    assert [a.char_start for a in draft.questions[0].answers] == [None, 16]  # in what is written, which is the text now
    assert remarks(ledger) == {"answers that are not word for word in the original": 1}


def test_originals_of_paragraphs_without_questions_and_of_unknown_ones():
    known = originals([paragraph(Asked("q", "Where?", ROME), title="Ann"), paragraph(context="Original.", number=1, title="Ann")])
    heard = [paragraph(context="oh", number=1, title="Ann"), paragraph(context="no", number=2, title="Ann")]
    draft, ledger = drafts(*heard, style=Style(heard_passages=True), originals=known)
    assert [p.text for p in draft.passages] == ["Original.", ""] and remarks(ledger)["passages without original"] == 1


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
    draft, ledger = drafts(*rows, style=Style(heard_passages=passages, heard_questions=questions))
    ledger.keep("test", "passages", len(draft.passages))
    ledger.keep("test", "questions", len(draft.questions))
    report = ledger.report({}, {})  # asserts it
    assert not rows or report["splits"]["test"]["passages"]["read"] == len(rows)
    assert len({p.id for p in draft.passages}) == len(draft.passages) and len({q.id for q in draft.questions}) == len(
        draft.questions
    )
    names = {p.id for p in draft.passages}
    assert all(q.passage in names for q in draft.questions)
