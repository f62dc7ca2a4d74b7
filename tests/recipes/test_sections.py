"""The configurations of all recipes: every section holds options of a verb, or of a program of the
recipe, that its scripts call with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from recipes.minisqa.confusions import Confusions
from recipes.minisqa.retrieval import Retrieval
from recipes.superb.minisuperb import MiniSuperb
from speechssl.cli import VERBS, config_of
from speechssl.cli.parser import check_section
from speechssl.errors import InputError

from ..corpora.make import Miniature
from .shared import ROOT, script

# of scripts
FILES = [
    file
    for file in sorted(ROOT.glob("recipes/*/*.yaml"))
    if file.parent.name not in ("faults", "speed")
]
# verbs of functions that are given a section
IN_FUNCTIONS = {"minisqa": {"train dual"}, "robustness": {"superb run"}}
PYTHON = {"multilingual"}  # sections of a script of the recipe
PROGRAMS = {  # that are given a section, and their options
    "recipes/minisqa/confusions.py": Confusions,
    "recipes/minisqa/retrieval.py": Retrieval,
    "recipes/superb/minisuperb.py": MiniSuperb,
    "tests/corpora/make.py": Miniature,
}
SHARED = {"miniature", "minisqa"}  # stages of scripts that several recipes source
INHERITED = {"random-units"}  # of another section, and hidden by the script


def scripts(recipe: Path) -> list[Path]:
    return [*recipe.glob("*.sh"), *recipe.parent.glob("*.sh")]


def calls(recipe: Path) -> list[tuple[str, str]]:
    """Stage ($x where it is a variable) and the command that is called with it."""
    lines = (
        line
        for path in scripts(recipe)
        for line in path.read_text().replace("\\\n", " ").splitlines()
    )
    return [
        (stage, line) for line in lines for stage in re.findall(r'\$\(with "?([^")]+)"?\)', line)
    ]


def options_of_program(path: Path) -> type:
    """The dataclass that a program of a recipe gives to `speechssl.cli.script`."""
    program = script(f"{path.parent.name}/{path.name}")
    (name,) = re.findall(r"sys\.exit\(script\(\w+, (\w+)\)\)", path.read_text())
    options = getattr(program, name)
    assert isinstance(options, type)
    return options


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_every_section_of_a_recipe_holds_options_of_its_verb(file: Path) -> None:
    known, found = calls(file.parent), yaml.safe_load(file.read_text())
    for stage in found.keys() - {"recipe"} - PYTHON:
        of_stage = [line for name, line in known if name == stage] or [
            line for name, line in known if "$" in name
        ]
        words = [
            found.split()
            for line in of_stage
            for found in re.findall(
                r"speechssl "
                r"((?:[a-z0-9-]+ "
                r"?)+)",
                line,
            )
        ]
        verbs = {
            " ".join(some[:n]) for some in words for n in (1, 2)
        } & VERBS.keys() | IN_FUNCTIONS.get(file.parent.name, set())
        configs = {verb: config_of(verb) for verb in verbs} | {
            f"python {program}": config
            for program, config in PROGRAMS.items()
            if any(program in line for line in of_stage)
        }
        programs = re.findall(r"python \$HERE/(\w+\.py)", "\n".join(of_stage))
        configs |= {name: options_of_program(file.parent / name) for name in programs}
        refused = []
        for name, config in configs.items():
            try:
                check_section(name, config, found[stage] or {}, f"{file}: {stage}")
            except InputError as error:
                refused.append(str(error))
        # scripts choose among several verbs by what is there
        assert len(refused) < len(configs), (stage, refused)
        hidden = [
            name
            for name in found[stage] or ()
            if all(re.search(rf"--{name}\b", line) for line in of_stage)
        ]
        assert set(hidden) <= INHERITED, f"{stage}: the scripts give {hidden} themselves"


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_scripts_read_every_setting(file: Path) -> None:
    programs = [*file.parent.glob("*.py"), *file.parent.parent.glob("*.py")]
    text = "".join(path.read_text() for path in [*scripts(file.parent), *programs])
    settings = yaml.safe_load(file.read_text()).get("recipe") or {}
    assert not [name for name in settings if not re.search(rf"\b{name}\b", text)]


@pytest.mark.parametrize(
    "recipe", sorted({file.parent for file in FILES}), ids=lambda recipe: recipe.name
)
def test_every_stage_has_a_section(recipe: Path) -> None:
    sections = {name for file in recipe.glob("*.yaml") for name in yaml.safe_load(file.read_text())}
    assert {stage for stage, _ in calls(recipe) if "$" not in stage} <= sections | SHARED
