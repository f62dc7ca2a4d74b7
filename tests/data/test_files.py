"""Ids as names of files."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.data.files import safe_name


@pytest.mark.slow
@settings(max_examples=50)
@given(st.text(min_size=1), st.text(min_size=1))
def test_names_of_files_are_safe_and_different(one, other):
    for name in (one, other):
        made = safe_name(name)
        assert "/" not in made and "\0" not in made and 0 < len(made.encode("utf-8", "surrogatepass")) <= 255
    assert one == other or safe_name(one) != safe_name(other)


@pytest.mark.parametrize("name", ["p", "tpo_1-lecture_2", "5733be284776f41900661182"])
def test_plain_ids_name_their_files(name):
    assert safe_name(name) == name


def test_other_ids_have_names_of_their_own():
    names = ["a/b", "a_b", "A_b", "../a", ".", "", "x" * 300, "問題", "問題二", "a b", "\ud800"]
    files = [safe_name(n) for n in names]
    assert len(set(map(str.lower, files))) == len(names) and all("/" not in f and 0 < len(f) < 120 and f != "." for f in files)
