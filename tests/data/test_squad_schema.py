"""Files of the SQuAD family in every variant that is published, and files that are none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.squad import Gold, as_text, is_squad, read_golds, read_squad
from speechssl.errors import InputError


def test_squad_1_1(tmp_path, squad_json):
    path = squad_json(
        tmp_path / "a.json", ("Ann was born in Rome.", [("q1", "Where?", [("Rome", 16), ("in Rome", 13)])]), ("Empty.", [])
    )
    first, second = read_squad(path)
    assert (first.title, first.context, first.id, second.article, second.number) == ("Title", "Ann was born in Rome.", "", 0, 1)
    assert first.asked[0].golds == (Gold("Rome", 16), Gold("in Rome", 13)) and first.asked[0].impossible is None
    assert second.asked == ()


def test_drcd_has_ids_and_a_byte_order_mark_does_no_harm(tmp_path, squad_json):
    path = squad_json(tmp_path / "a.json", ("在歐洲", [("1147-1-1", "哪裡？", [("歐洲", 1)])]), drcd="1147")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    (paragraph,) = read_squad(path)
    assert paragraph.id == "1147-1" and paragraph.asked[0].golds == (Gold("歐洲", 1),)


def test_squad_2_0_without_titles_or_questions(tmp_path):
    unanswerable = {"id": 7, "question": "Who?", "answers": [], "is_impossible": True, "plausible_answers": [{"text": "x"}]}
    content = {
        "data": [{"paragraphs": [{"context": "a b", "qas": [unanswerable]}, {"context": "c"}, {"context": "d", "qas": None}]}]
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    first, second, third = read_squad(tmp_path / "a.json")
    assert (first.title, first.asked[0].id, first.asked[0].impossible, first.asked[0].golds) == ("", "7", True, ())
    assert second.asked == third.asked == ()


@pytest.mark.parametrize(
    ("answers", "golds"),
    [
        ([{"text": "a", "answer_start": 3}], [("a", 3)]),
        ({"text": ["a", "b"], "answer_start": [3, 5]}, [("a", 3), ("b", 5)]),
        ({"text": ["a", "b"], "answer_start": [3]}, [("a", 3), ("b", None)]),
        ({"text": [], "answer_start": []}, []),
        ({"text": "a", "answer_start": 3}, [("a", 3)]),
        ([{"text": 1871, "answer_start": "4"}], [("1871", 4)]),
        ([{"text": "a", "answer_start": -1}, {"text": "b"}, {"answer_start": 0}], [("a", None), ("b", None), ("", 0)]),
        ([{"text": "a", "answer_start": 2.5}, {"text": "b", "answer_start": 2.0}], [("a", None), ("b", 2)]),
        ([{"text": "a", "answer_start": True}, {"text": "b", "answer_start": float("inf")}], [("a", None), ("b", None)]),
        (None, []),
        ({}, []),
    ],
)
def test_answers_in_every_form(answers, golds):
    assert read_golds(answers) == tuple(Gold(*gold) for gold in golds)


@pytest.mark.parametrize("answers", ["Rome", 3, ["Rome"], [None]])
def test_answers_that_are_none(answers):
    with pytest.raises(TypeError):
        read_golds(answers)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"data": [{"paragraphs": [{"context": "a", "qas": [', "is not whole JSON .*; copy or download it again"),
        ("[" * 100_000, "is not whole JSON"),
        ('{"rows": []}', "it has no list called data"),
        ("[]", "it has no list called data"),
        ('{"data": [3]}', r"data\[0\] has no list called paragraphs"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"data\[0\].paragraphs\[0\] has no text called context"),
        ('{"data": [{"paragraphs": [{"context": "", "qas": {}}]}]}', r"paragraphs\[0\] has no list called qas"),
        ('{"data": [{"paragraphs": [{"context": "", "qas": [{"id": 1}]}]}]}', r"qas\[0\] has no question"),
        ('{"data": [{"paragraphs": [{"context": "", "qas": [{"question": "", "answers": "x"}]}]}]}', "answers are not a list"),
    ],
)
def test_another_file_is_one_sentence_that_names_it(tmp_path, content, said):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=said) as error:
        read_squad(tmp_path / "x.json")
    assert str(error.value).startswith(str(tmp_path / "x.json")) and "\n" not in str(error.value)


def test_bytes_that_are_no_text_and_files_that_are_not_there(tmp_path):
    (tmp_path / "x.json").write_bytes(b'{"data": "\xff\xfe"}')
    for name in ("x.json", "no.json"):
        with pytest.raises(InputError, match=name):
            read_squad(tmp_path / name)


def test_what_looks_like_squad(tmp_path, squad_json):
    (tmp_path / "other.json").write_text('{"a": 1}')
    whole = squad_json(tmp_path / "a.json", ("a", []))
    (tmp_path / "cut.json").write_bytes(whole.read_bytes()[:-9])
    assert is_squad(whole) and not is_squad(tmp_path / "other.json")
    assert is_squad(tmp_path / "cut.json")  # to be refused by name, not passed over


@given(st.text(st.characters(), max_size=20) | st.integers() | st.none())
def test_any_text_can_be_written_and_keeps_its_offsets(value):
    text = as_text(value)
    assert text.encode("utf-8") is not None
    if isinstance(value, str):
        assert len(text) == len(value)


def test_half_a_surrogate_pair(tmp_path):
    (tmp_path / "a.json").write_text('{"data": [{"paragraphs": [{"context": "a \\ud83d b", "qas": []}]}]}')
    assert read_squad(tmp_path / "a.json")[0].context == "a � b"
