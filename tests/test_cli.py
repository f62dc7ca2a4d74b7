"""The command line: help that teaches, options from a config, one sentence and exit code 2 for what cannot be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from speechssl.cli import _verbs, build_parser, main

ROOT = Path(__file__).parents[1]


def test_every_verb_has_help_for_every_option() -> None:
    for verb in _verbs(build_parser()):
        assert verb.description, verb.prog
        assert verb.format_help()
        assert not [a.dest for a in verb._actions if not a.help], verb.prog


def test_config_section_gives_defaults_and_typing_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    monkeypatch.setattr("speechssl.units.inspect.fit_units", lambda *a: seen.setdefault("options", a) and _Book())
    config = tmp_path / "c.yaml"
    config.write_text("units:\n  clusters: 7\n  smooth: 5\n")
    assert main(["units", "fit", "c", "e", "o", "--config", str(config), "--stage", "units", "--smooth", "3"]) == 0
    assert seen["options"][3:5] == (7, 3)


class _Book:
    size, hash = 7, "x"


@pytest.mark.parametrize(
    ("content", "stage", "said"),
    [
        ("units:\n  clusers: 7\n", "units", "clusers"),
        ("units: {}\n", "dual", "no section 'dual'"),
        ("units: [", "units", "cannot read the config"),
    ],
)
def test_bad_config_is_one_sentence(content: str, stage: str, said: str, tmp_path: Path, capsys) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(content)
    assert main(["units", "fit", "c", "e", "o", "--config", str(config), "--stage", stage]) == 2
    message = capsys.readouterr().err
    assert said in message and message.count("\n") == 1


STAGES = {
    "corpus": "prepare minisqa",
    "hubert-1": "pretrain",
    "hubert-2": "pretrain",
    "units": "units fit",
    "inspect": "units inspect",
    "extract": "units extract",
    "dual-1": "train dual",
    "dual-2": "train dual",
    "dual": "train dual",
    "assignment": "train dual",
    "ctc": "train ctc",
    "text-qa": "train text-qa",
    "evaluate": "evaluate",
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("recipe", ["base", "smoke"])
def test_recipe_sections_hold_only_options_that_exist(recipe: str, stage: str) -> None:
    import yaml

    verbs = {v.prog.removeprefix("speechssl "): {a.dest for a in v._actions} for v in _verbs(build_parser())}
    section = yaml.safe_load((ROOT / f"recipes/minisqa/{recipe}.yaml").read_text())[stage]
    assert {k.replace("-", "_") for k in section} <= verbs[STAGES[stage]]


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "no-such-corpus", "out"],
        ["report", "no-such-folder", "no-such-corpus"],
        ["evaluate", "c", "o", "--conditions", "pink"],
        ["prepare", "minisqa", "OUT", "--language", "xx", "--passages", "1"],
        ["train", "dual", "c", "no-such-codebook.safetensors", "u", "o", "--encoder", "no-such-encoder"],
    ],
)
def test_what_is_not_there_is_named(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("speechssl: ") and message.count("\n") == 1
    assert not (tmp_path / "out").exists()
