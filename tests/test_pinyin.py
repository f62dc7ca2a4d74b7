"""Readings of Chinese characters."""

import sys

import pytest

from speechssl.errors import MissingExtra
from speechssl.text import parts, syllables

pytest.importorskip("pypinyin")


def test_a_syllable_has_its_tone_and_what_is_not_chinese_stays():
    assert syllables("北京3Tesla的") == "bei3jing13Teslade5"
    assert syllables("臺") == syllables("台") == "tai2"


def test_parts_are_initial_final_and_tone_as_far_as_a_character_has_them():
    assert parts("北") == ["b-", "-ei", "3"]
    assert parts("安的") == ["-an", "1", "d-", "-e", "5"]
    assert parts("") == []


@pytest.mark.parametrize("read", [parts, syllables])
def test_without_the_package_it_is_named(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypinyin", None)
    with pytest.raises(MissingExtra, match=r"speechssl\[chinese\]"):
        read("北")
