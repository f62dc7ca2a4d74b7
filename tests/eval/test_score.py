"""What is kept of every question for a comparison: kind and place of its answer, and how well its
passage was recognised."""

from dataclasses import replace

import pytest

from speechssl.data.records import Answer, Corpus, Passage, Question
from speechssl.eval.score import ERRORS, QuestionScore, answer_type, error_type, question_lines

TEXT = "A red boat sails. Two cats paid 3.5 euros for it! The end."


def passage(**changes):
    return replace(Passage("p", text=TEXT, speaker="s", language="en"), **changes)


def question(text="Two cats", **where):
    answer = Answer(text, **where)
    return Question("q", "p", text="Who paid?", speaker="s", language="en", answers=(answer,))


def corpus(tmp_path, questions, **changes):
    return Corpus(tmp_path, "test", {"p": passage(**changes)}, tuple(questions))


def scored(name="q", f1=0.5):
    return QuestionScore(name, "p", None, None, 0.0, f1)


def test_errors_of_the_passage_are_counted_as_the_word_error_rate_does(tmp_path):
    data = corpus(tmp_path, [question()])
    encoded = "a red coat sails two hats paid 3.5 for it and the end"
    (line,) = question_lines([scored()], data, {"p": encoded})
    assert (line["passage_errors"], line["passage_words"]) == (4, 12)
    # a passage that was not recognised is wrong throughout
    (line,) = question_lines([scored()], data, {"other": "x"})
    assert (line["passage_errors"], line["passage_words"]) == (12, 12)


def test_what_is_not_known_is_none(tmp_path):
    (silent,) = question_lines([scored()], corpus(tmp_path, [question("dogs")]), {})
    names = ("passage_errors", "passage_words", "answer_seconds")
    assert {silent[name] for name in names} == {None}
    timed = question("two cats", start=4.0, end=6.0)
    (line,) = question_lines([scored()], corpus(tmp_path, [timed], seconds=20.0), {})
    assert [line[name] for name in ("answer_seconds", "type")] == [2, "person"]


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
    assert answer_type(question, answer, language) == kind


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
    assert error_type(shared, predicted, 1.0) == error in ERRORS
