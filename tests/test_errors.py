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


def test_many_for_one_reason_are_one_line(capsys):
    many = {f"q{i}": f"passage p{i}-x has no transcript" for i in range(4)}
    files = {
        f"Rome_{c}": (f"/data/{c}.flac: {n} samples are fewer than 400")
        for c, n in zip("abcd", (1, 22, 3, 4), strict=True)
    }
    few = {f"u{i}": "silent" for i in range(3)}
    report_set_aside(many | few | files, "training")
    assert capsys.readouterr().err.splitlines() == [
        "set aside 4, such as q0: passage p0-x has no transcript",
        *(f"set aside u{i}: silent" for i in range(3)),
        "set aside 4, such as Rome_a: /data/a.flac: 1 samples are fewer than 400",
        "training: 11 recordings set aside",
    ]
