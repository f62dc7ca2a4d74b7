"""What a user reads when something cannot be done."""

import pickle
import tomllib
from pathlib import Path

from speechssl.errors import InputError, MissingExtra, packages_of, report_set_aside


def test_a_worker_can_hand_its_refusal_to_its_parent():
    error = pickle.loads(pickle.dumps(MissingExtra("synthetic speech", "synth")))
    assert isinstance(error, InputError) and "pip install 'espeakng-loader" in str(error)


def test_an_extra_is_installed_by_its_packages():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for extra in ("synth", "superb", "ray"):
        wanted = project["optional-dependencies"][extra]
        assert "".join(packages_of(extra)).replace(" ", "") == "".join(wanted).replace(" ", "")


def test_the_first_are_listed_and_all_are_counted(capsys):
    report_set_aside({f"q{i}": "it has no transcript" for i in range(5)}, "training")
    assert capsys.readouterr().err.splitlines() == [
        *(f"set aside q{i}: it has no transcript" for i in range(3)),
        "training: 5 recordings set aside",
    ]
