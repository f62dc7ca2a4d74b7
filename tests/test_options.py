"""Options in a YAML file: what the recipes hold is taken, switches and lists as well."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from speechssl.cli import build_parser
from speechssl.cli.parser import parse, take_defaults, verbs_of

ROOT = Path(__file__).parents[1]


def test_switches_lists_and_required_options_can_stand_in_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("a:\n  encoder: some/encoder\n  no-bf16: true\n  dropout: false\n  learning-rate: 3e-4\n  noise: 0\n")
    parsed = parse(build_parser(), ["train", "choice", "c", "o", "--config", str(config), "--stage", "a"])
    assert (parsed.encoder, parsed.bf16, parsed.dropout, parsed.learning_rate, parsed.noise) == (
        "some/encoder",
        False,
        False,
        3e-4,
        0.0,
    )
    config.write_text("a:\n  systems: dual\n  voices: [a.wav, b.wav]\n  bf16: true\n")
    parsed = parse(build_parser(), ["evaluate", "qa", "c", "o", "--config", str(config), "--stage", "a"])
    assert (parsed.systems, parsed.voices, parsed.bf16) == (["dual"], [Path("a.wav"), Path("b.wav")], True)


STAGES = {
    "corpus": "prepare minisqa",
    "hubert-1": "pretrain hubert",
    "hubert-2": "pretrain hubert",
    "units": "units fit",
    "inspect": "units inspect",
    "extract": "units extract",
    "dual-1": "train dual",
    "dual-2": "train dual",
    "dual": "train dual",
    "assignment": "train dual",
    "ctc": "train ctc",
    "text-qa": "train text-qa",
    "evaluate": "evaluate qa",
    "assignments": "evaluate qa",
    "pocketsphinx": "evaluate qa",
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("recipe", ["base", "smoke"])
def test_recipe_sections_hold_only_options_that_exist(recipe: str, stage: str) -> None:
    section = yaml.safe_load((ROOT / f"recipes/minisqa/{recipe}.yaml").read_text())[stage]
    (verb,) = [v for v in verbs_of(build_parser()) if v.prog == f"speechssl {STAGES[stage]}"]
    take_defaults(verb, section, recipe)
