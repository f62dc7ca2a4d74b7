"""Test values that are converted by a schema, and the sentences that name the file and the field of
others."""

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import pytest
from msgspec import Meta

from speechssl.errors import InputError
from speechssl.schema import convert


class Word(NamedTuple):
    """A word is a list in JSON."""

    text: str
    start: float


@dataclass(frozen=True)
class Answer:
    """An answer has a time, or only a text."""

    text: str
    start: float | None = None
    end: float | None = None

    def __post_init__(self):
        if (self.start is None) != (self.end is None):
            raise ValueError("it has only one of start and end")


@dataclass(frozen=True)
class Record:
    """A record has a field of every kind."""

    id: str
    seconds: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    answers: tuple[Answer, ...] = ()
    words: tuple[Word, ...] = ()


def test_a_record_is_converted_and_unknown_fields_are_ignored():
    value = {"id": "q", "seconds": 3, "answers": [{"text": "a"}], "words": [["a", 1]], "more": 1}
    expected = Record("q", seconds=3.0, answers=(Answer("a"),), words=(Word("a", 1.0),))
    assert convert(value, Record, "file:1") == expected


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": 3}, "`id` is a whole number, a string is expected"),
        ({"seconds": math.nan}, "`seconds` is not >= 0.0"),
        ({"answers": [{}]}, "`answers[0]` has no `text`"),
        (
            {"answers": [{"text": "a", "start": "1"}]},
            "`answers[0].start` is a string, a number or null is expected",
        ),
        ({"answers": [{"text": "a", "end": 1}]}, "`answers[0]`: it has only one of start and end"),
        ({"words": [["a"]]}, "`words[0]`: expected `array` of length 2, got 1"),
    ],
)
def test_the_sentence_names_place_and_field(change, problem):
    with pytest.raises(InputError) as refusal:
        convert({"id": "q", **change}, Record, "m.jsonl:12")
    assert str(refusal.value) == f"m.jsonl:12: {problem}; correct the record"


def test_a_value_that_is_no_object_is_refused():
    with pytest.raises(InputError, match="^card.json: the record is a list, an object is"):
        convert([], Record, "card.json")
