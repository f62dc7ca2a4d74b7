"""The lines of scores, which comparisons read: word errors of the passage, length and kind of the
answer, and how it errs."""

from dataclasses import replace

import pytest

from speechssl.data.records import Answer, Corpus, Passage, Question
from speechssl.eval.score import (
    ERRORS,
    QuestionScore,
    classify_answer,
    classify_error,
    make_question_lines,
)

TEXT = "A red boat sails. Two cats paid 3.5 euros for it! The end."


def passage(**changes):
    return replace(Passage("p", text=TEXT, speaker="s", language="en"), **changes)


def question(text="Two cats", **where):
    answer = Answer(text, **where)
    return Question("q", "p", text="Who paid?", speaker="s", language="en", answers=(answer,))


def corpus(tmp_path, questions, **changes):
    return Corpus(tmp_path, "test", {"p": passage(**changes)}, tuple(questions))


SCORE = QuestionScore(id="q", passage="p", ff1=None, aos=None, em=0.0, f1=0.5)


def test_errors_of_the_passage_are_counted_as_in_the_word_error_rate(tmp_path):
    data = corpus(tmp_path, [question()])
    # "coat" and "hats" are wrong, "euros" is missing, "and" is inserted
    transcript = "a red coat sails two hats paid 3.5 for it and the end"
    (line,) = make_question_lines([SCORE], data, {"p": transcript})
    assert (line["passage_errors"], line["passage_words"]) == (4, 12)
    # every word of a passage without a transcript is wrong
    (line,) = make_question_lines([SCORE], data, {"other": "x"})
    assert (line["passage_errors"], line["passage_words"]) == (12, 12)


def test_unknown_values_are_none(tmp_path):
    (line,) = make_question_lines([SCORE], corpus(tmp_path, [question("dogs")]), {})
    names = ("passage_errors", "passage_words", "answer_seconds")
    assert {line[name] for name in names} == {None}


def test_a_timed_answer_has_a_length(tmp_path):
    timed = question("two cats", start=4.0, end=6.0)
    (line,) = make_question_lines([SCORE], corpus(tmp_path, [timed], seconds=20.0), {})
    assert line["answer_seconds"] == 2
    assert line["type"] == "person"


# ---- kinds of answers, by rule: question words in English and Chinese, then the form of the answer

ENGLISH = [
    ("When was the bridge built?", "late that year", "date"),
    ("What opened it?", "4 May 1998", "date"),
    ("How many people live there?", "a handful", "number"),
    ("How long is it?", "3.5 km", "number"),
    ("Whose boat was it?", "the captain's", "person"),
    ("Where does molly andrews work", "victory gallery", "place"),
    ("Why did he leave?", "rain", "reason"),
    ("How does helen travel", "purple truck", "manner"),
    ("What happened?", "the bridge that they had built fell into the river", "clause"),
    ("What was it called?", "Tower of London", "proper noun"),
    ("what was it called", "tower of london", "other"),
    ("", "", "other"),
]
CHINESE = [
    ("他出生於哪一年？", "1949", "date"),
    ("共有幾個？", "三個", "number"),
    ("創辦人是誰？", "王小明", "person"),
    ("他住在哪個城市？", "臺北", "place"),
    ("他為什麼離開？", "下雨", "reason"),
    ("他如何離開？", "坐船", "manner"),
    ("發生了甚麼事？", "他們建造的那座橋在大雨之後倒塌了", "clause"),
    ("這是甚麼動物？", "白熊", "other"),
]


@pytest.mark.parametrize(
    ("language", "question", "answer", "kind"),
    [*(("en-gb", *case) for case in ENGLISH), *(("zh-TW", *case) for case in CHINESE)],
)
def test_the_kind_of_an_answer(language, question, answer, kind):
    assert classify_answer(question, answer, language) == kind


@pytest.mark.parametrize(
    ("shared", "predicted", "error"),
    [
        (1.0, 1.0, "right"),
        (1.0, 3.0, "right"),
        (1.0, 3.1, "too long"),
        (0.5, 2.0, "too long"),
        (0.3, 0.3, "too short"),
        (0.2, 0.4, "too short"),
        (0.2, 0.5, "little overlap"),
        (0.4, 1.5, "little overlap"),
        (0.0, 1.0, "no overlap"),
        (0.0, 0.0, "no answer"),
    ],
)
def test_how_an_answer_errs_against_a_gold_one_of_a_second(shared, predicted, error):
    assert error in ERRORS
    assert classify_error(shared, predicted, gold=1.0) == error
