"""Test values that are converted by a schema, and the sentences that name the file and the field of
others."""

import math

import pytest

from speechssl.data.records import Passage, Question, Span
from speechssl.errors import InputError
from speechssl.schema import convert


def test_a_record_is_converted_and_unknown_fields_are_ignored():
    value = {"id": "p", "seconds": 3, "words": [["a", 1, 2]], "more": 1}
    expected = Passage("p", seconds=3.0, words=(Span("a", 1.0, 2.0),))
    assert convert(value, Passage, "file:1") == expected


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": 3}, "`id` is a whole number, a string is expected"),
        ({"seconds": math.nan}, "`seconds` is not >= 0.0"),
        (
            {"answers": [{"text": "a", "start": "1"}]},
            "`answers[0].start` is a string, a number or null is expected",
        ),
        ({"answers": [{"text": "a", "end": 1}]}, "`answers[0]`: it has only one of start and end"),
        ({"words": [["a"]]}, "`words[0]`: expected `array` of length 3, got 1"),
    ],
)
def test_the_sentence_names_place_and_field(change, problem):
    with pytest.raises(InputError) as refusal:
        convert({"id": "q", "passage": "p", **change}, Question, "m.jsonl:12")
    assert str(refusal.value) == f"m.jsonl:12: {problem}; correct the record"


def test_a_value_that_is_no_object_is_refused():
    with pytest.raises(InputError, match="^card.json: the record is a list, an object is"):
        convert([], Question, "card.json")
