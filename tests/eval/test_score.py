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
    score_questions,
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


def test_an_answer_without_times_errs_by_its_words_beside_others_that_have_times(tmp_path):
    timed = question("two cats", start=4.0, end=6.0)
    data = corpus(tmp_path, [timed, replace(timed, id="r")], seconds=20.0)
    written = {"text": "two cats", "start": None, "end": None}
    heard = {"text": None, "start": 4.0, "end": 6.0}
    predictions = {"answers": {"q": written, "r": heard}, "transcripts": {}}
    by_words, by_times = score_questions(predictions, data)
    assert (by_words.ff1, by_words.f1, by_words.error) == (0, 1, "right")
    assert (by_times.ff1, by_times.f1, by_times.error) == (1, 0, "right")


def test_questions_whose_answers_are_known_by_times_alone_have_no_scores_of_words(tmp_path):
    data = corpus(tmp_path, [question("", start=4.0, end=6.0)], seconds=20.0)
    answer = {"text": "dogs", "start": 4.0, "end": 6.0}
    (score,) = score_questions({"answers": {"q": answer}, "transcripts": {"p": "dogs"}}, data)
    assert (score.ff1, score.em, score.f1) == (1, None, None)


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
