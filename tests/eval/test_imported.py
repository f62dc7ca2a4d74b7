"""Answers from elsewhere are scored as ours, and refused where they are not of the questions asked."""

import json

import pytest

from speechssl.data.records import Answer, Passage, Question, write_records
from speechssl.errors import InputError
from speechssl.eval.spoken_qa import import_predictions
from speechssl.results import read_rows


@pytest.fixture
def corpus(tmp_path):
    """Three questions, two of them with times; one has no answer."""
    root = tmp_path / "corpus"
    (root / "dev").mkdir(parents=True)
    (root / "p.flac").touch()
    answers = {"a": (Answer("red boat", 0.5, 1.0),), "b": (Answer("two", 1.0, 1.5), Answer("two cats", 1.0, 2.0)), "c": ()}
    write_records(root / "dev/passages.jsonl", [Passage("p", "p.flac", 2.0, "a red boat", "", "en")])
    write_records(root / "dev/questions.jsonl", [Question(i, "p", "", 0.0, "what", "", "en", a) for i, a in answers.items()])
    return root


def scores(corpus, tmp_path, predictions, name="mine"):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(predictions))
    said = import_predictions(corpus, tmp_path / "out", file, name, "dev")
    return said, {(r.system, r.metric): (r.value, r.n) for r in read_rows(tmp_path / "out/results.jsonl")}


def test_texts_are_scored_by_text(corpus, tmp_path):
    said, found = scores(corpus, tmp_path, {"a": "The red boat!", "c": "", "b": "two dogs"})
    assert found == {("mine", "em"): (50, 2), ("mine", "f1"): (pytest.approx(100 * (1 + 2 / 3) / 2), 2)}
    assert said.startswith("2 answers of mine; 0 questions have none")


def test_times_are_scored_by_time_and_both_by_both(corpus, tmp_path):
    said, found = scores(corpus, tmp_path, {"b": [1.0, 2.0]})
    assert found == {("mine", "ff1"): (50, 2), ("mine", "aos"): (50, 2)} and "1 questions have none" in said
    _, found = scores(corpus, tmp_path, {"a": {"text": "boat", "start": 0.5, "end": 1}}, "both")
    assert {metric: value for (name, metric), (value, _) in found.items() if name == "both"} == {
        **{"ff1": 50, "aos": 50, "em": 0},
        "f1": pytest.approx(100 / 3),
    }


def test_a_name_is_no_path(corpus, tmp_path):
    with pytest.raises(InputError, match="'mine/2' cannot be the name of a system; give a --name without slashes"):
        scores(corpus, tmp_path, {"a": "boat"}, "mine/2")
    assert not (tmp_path / "out").exists()


def test_other_predictions_of_the_same_name_are_not_replaced(corpus, tmp_path):
    scores(corpus, tmp_path, {"a": "boat"})
    scores(corpus, tmp_path, {"a": "boat"})
    with pytest.raises(InputError, match="holds other predictions called mine; give another --name"):
        scores(corpus, tmp_path, {"a": "boats"})


@pytest.mark.parametrize(
    ("predictions", "said"),
    [
        ([], "is not a JSON object"),
        ({}, "is not a JSON object"),
        ({"x": "boat"}, "has the question x, which is not in .*"),
        ({"a": 3}, "the answer of a is 3"),
        ({"a": [1.0]}, "the answer of a"),
        ({"a": [2.0, 1.0]}, "the answer of a"),
        ({"a": [True, 1.0]}, "the answer of a"),
        ({"a": {"words": "boat"}}, "the answer of a"),
        ({"a": {"text": None}}, "the answer of a"),
        ({"a": {"text": "boat", "start": 1.0}}, "the answer of a"),
    ],
)
def test_what_is_no_prediction_is_one_sentence_and_leaves_nothing(corpus, tmp_path, predictions, said):
    with pytest.raises(InputError, match=said):
        scores(corpus, tmp_path, predictions)
    assert not (tmp_path / "out").exists()
