"""A value that is not of its schema is one sentence, which names the file and the field."""

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import pytest
from msgspec import Meta

from speechssl.errors import InputError
from speechssl.schema import convert


class Word(NamedTuple):
    text: str
    start: float


@dataclass(frozen=True)
class Answer:
    text: str
    start: float | None = None
    end: float | None = None

    def __post_init__(self):
        if (self.start is None) != (self.end is None):
            raise ValueError("it has only one of start and end")


@dataclass(frozen=True)
class Record:
    id: str
    seconds: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    answers: tuple[Answer, ...] = ()
    words: tuple[Word, ...] = ()


def test_a_record_is_converted_and_names_that_it_does_not_have_are_ignored():
    value = {"id": "q", "seconds": 3, "answers": [{"text": "a"}], "words": [["a", 1]], "more": 1}
    assert convert(value, Record, "file:1") == Record("q", 3.0, (Answer("a"),), (Word("a", 1.0),))


@pytest.mark.parametrize(
    ("change", "said"),
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
def test_the_sentence_names_place_and_field(change, said):
    with pytest.raises(InputError) as refusal:
        convert({"id": "q", **change}, Record, "m.jsonl:12")
    assert str(refusal.value) == f"m.jsonl:12: {said}; correct the record"


def test_a_value_that_is_no_object():
    with pytest.raises(InputError, match="^card.json: the record is a list, an object is"):
        convert([], Record, "card.json")
