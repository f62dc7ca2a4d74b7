"""Test the sentences that a user reads about errors and about items that were set aside."""

import pickle
import tomllib
from pathlib import Path

from speechssl.errors import InputError, MissingExtra, list_packages, report_set_aside


def test_a_missing_extra_can_be_pickled():
    error = pickle.loads(pickle.dumps(MissingExtra("synthetic speech", "synth")))
    assert isinstance(error, InputError)
    assert "pip install 'espeakng-loader" in str(error)


def test_an_extra_is_installed_by_its_packages():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for extra in ("synth", "superb", "ray"):
        declared = project["optional-dependencies"][extra]
        assert "".join(list_packages(extra)).replace(" ", "") == "".join(declared).replace(" ", "")


def test_more_than_three_items_with_one_reason_are_one_line(capsys):
    four_files = {f"Rome_{c}": f"/data/{c}.flac: {ord(c)} samples are too few" for c in "abcd"}
    three_silent = {f"u{i}": "silent" for i in range(3)}
    report_set_aside(three_silent | four_files, "training")
    assert capsys.readouterr().err.splitlines() == [
        *(f"set aside u{i}: silent" for i in range(3)),
        "set aside 4, such as Rome_a: /data/a.flac: 97 samples are too few",
        "training: 7 recordings set aside",
    ]
