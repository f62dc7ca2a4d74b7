"""The configurations of all recipes: every section holds options of a verb, or of a program of the
recipe, that its scripts call with it."""

import argparse
import re

import pytest
import yaml

from recipes.minisqa.confusions import Confusions
from recipes.minisqa.retrieval import Retrieval
from recipes.minisqa.unit_pairs import Pairs
from recipes.odsqa.multilingual import Make
from recipes.superb.minisuperb import MiniSuperb
from recipes.superb.speed import SuperbSpeed
from speechssl.cli import VERBS, config_of
from speechssl.cli.parser import make_parser, write_arguments
from speechssl.errors import InputError

from ..corpora.make import Miniature
from .shared import ROOT, script

FILES = [file for file in sorted(ROOT.glob("recipes/*/*.yaml")) if file.parent.name != "speed"]
PROGRAMS = {  # that are given a section, and their options
    "recipes/minisqa/confusions.py": Confusions,
    "recipes/minisqa/retrieval.py": Retrieval,
    "recipes/minisqa/unit_pairs.py": Pairs,
    "recipes/odsqa/multilingual.py": Make,
    "recipes/superb/minisuperb.py": MiniSuperb,
    "recipes/superb/speed.py": SuperbSpeed,
    "tests/corpora/make.py": Miniature,
}


def scripts(recipe):
    return [*recipe.glob("*.sh"), *recipe.parent.glob("*.sh")]


def calls(recipe):
    """Section ($x where it is a variable) and the command that is called with it."""
    text = "\n".join(path.read_text() for path in scripts(recipe)).replace("\\\n", " ")
    pattern = r'--config "\$CONFIG" --stage "?([^\s";)]+)'
    return [(stage, line) for line in text.splitlines() for stage in re.findall(pattern, line)]


def options_of_line(line, recipe):
    """The verbs and programs of a command, and their options."""
    words = [found.split() for found in re.findall(r"speechssl ((?:[a-z0-9-]+ ?)+)", line)]
    verbs = {" ".join(some[:n]) for some in words for n in (1, 2)} & VERBS.keys()
    found = {verb: config_of(verb) for verb in verbs}
    found |= {name: options for name, options in PROGRAMS.items() if name in line}
    for name in re.findall(r"python \$HERE/(\w+\.py)", line):
        (options,) = re.findall(r"sys\.exit\(script\(\w+, (\w+)\)\)", (recipe / name).read_text())
        found[name] = getattr(script(f"{recipe.name}/{name}"), options)
    return found


def check(options, section):
    """Raise InputError where a section has what the options do not take."""
    parser = make_parser("verb", options)
    for action in parser._actions:  # what is given by position, or must be, stands in the scripts
        action.required = False
        if not action.option_strings:
            action.nargs = argparse.OPTIONAL
    parser.parse_args(parser.spell([*write_arguments(section), "--stage=s"]))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_every_section_of_a_recipe_holds_options_of_its_verb(file):
    known = calls(file.parent)
    for stage, section in yaml.safe_load(file.read_text()).items():
        if stage == "recipe":
            continue
        lines = [line for name, line in known if name == stage]
        lines = lines or [line for name, line in known if "$" in name]
        tried = {k: v for line in lines for k, v in options_of_line(line, file.parent).items()}
        # functions whose verb stands elsewhere
        tried = tried or {verb: config_of(verb) for verb in ("train dual", "superb run")}
        refused = []
        for options in tried.values():
            try:
                check(options, section or {})
            except InputError as error:
                refused.append(str(error))
        assert len(refused) < len(tried), (stage, refused)
