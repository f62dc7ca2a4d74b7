"""Test the command line of a verb: typed options, options from a file, and options that are
refused."""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

import pytest
import yaml

from speechssl import options
from speechssl.cli import parse_arguments
from speechssl.cli.parser import parse_call

from ..files import refused


@dataclass(frozen=True)
class Inner:
    """These are the options of a group."""

    pull: options.Weight = options.option(1.0, "weight")
    noise: options.Share = options.option(0.0, "share", name="random_units")
    hidden: int = 3
    left_out: options.Count = options.option(7, "not here")


@dataclass(frozen=True, kw_only=True)
class Example:
    """do something

    speechssl example a b
    """

    source: Path = options.argument("source")
    more: Path | None = options.argument("more", optional=True)
    need: str = options.option(MISSING, "must be given")
    count: options.Count = options.option(2, "count")
    whole: options.Whole | None = options.option(None, "whole")
    portion: options.Portion | None = options.option(None, "portion")
    rate: options.Decay = options.option(1e-3, "rate")
    kind: Literal["a", "b"] = options.option("a", "kind")
    names: tuple[str, ...] = options.option(("x", "y"), "names", least=1)
    files: tuple[Path, ...] = options.option((), "files")
    span: tuple[float, float] | None = options.option(None, "span", metavar=("FROM", "TO"))
    fast: bool = options.option(False, "fast")
    audio: bool = options.option(True, "audio")
    same: bool | None = options.option(None, "same")
    bf16: bool = options.option(
        True, "precision", name="precision", values={"fp32": False, "bf16": True}
    )
    inner: Inner = options.group(
        Inner(pull=2.0, hidden=5, left_out=9), "a group", without=("left_out",)
    )


def parse(*arguments):
    """Parse a call of Example with SOURCE "a" and --need "n". If the first of `arguments` is no
    option, it is MORE."""
    more = [word for word in arguments[:1] if not word.startswith("-")]
    call = parse_call("example", Example, ["a", *more, "--need", "n", *arguments[len(more) :]])
    assert call
    return call[0]


def test_types_defaults_and_groups():
    defaults = Inner(pull=2.0, noise=0.0, hidden=5, left_out=9)
    assert parse() == Example(source=Path("a"), need="n", inner=defaults)
    typed = (
        "b --count 3 --whole 0 --rate 3e-4 --kind b --names q --files f g --span -1 2.5 "
        "--fast --no-audio --no-same --precision fp32 --pull 0 --random_units 0.5"
    )
    numbers = {"count": 3, "whole": 0, "rate": 3e-4, "span": (-1.0, 2.5)}
    texts = {"need": "n", "kind": "b", "names": ("q",), "files": (Path("f"), Path("g"))}
    switches = {"fast": True, "audio": False, "same": False, "bf16": False}
    inner = Inner(pull=0.0, noise=0.5, hidden=5, left_out=9)
    positional = {"source": Path("a"), "more": Path("b")}
    expected = Example(**positional, **numbers, **texts, **switches, inner=inner)
    assert parse(*typed.split()) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--cuont 3", "there is no option --cuont; did you mean --count?"),
        ("--count 0", "--count: 0 is out of range; give a number from 1"),
        ("--random-units 1.5", "out of range; give a number from 0 to 1"),
        ("--portion 0", "--portion: 0 is out of range; give a number above 0 to 1"),
        ("--rate nan", "nan is not a finite number"),
        ("--rate 1", "--rate: 1 is out of range"),
        ("--span 1", "--span: expected 2 arguments"),
        ("b --fast c", "unrecognized arguments: c"),
        ("--stage s", "give it with --config"),
    ],
)
def test_a_wrong_option_is_refused_by_name(arguments, message):
    refused(re.escape(message), parse, *arguments.split())


def test_typed_options_replace_those_of_the_section(tmp_path):
    section = {"need": "m", "span": [-1, 2], "audio": False, "files": ["f", "g"]}
    section |= {"precision": "fp32", "random-units": 0.25, "count": 7, "whole": None}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"s": section}))
    words = ["--config", str(tmp_path / "c.yaml"), "--stage", "s"]
    expected = Example(
        source=Path("a"),
        need="m",
        span=(-1.0, 2.0),
        audio=False,
        files=(Path("f"), Path("g")),
        bf16=False,
        inner=Inner(pull=2.0, noise=0.25, hidden=5, left_out=9),
        count=8,
    )
    for typed in (["a", *words, "--count", "8"], ["--count=8", *words, "a"]):
        assert parse_call("example", Example, typed)[0] == expected


@pytest.mark.parametrize(
    ("content", "stage", "message"),
    [
        ("s:\n  cuont: 7\n", "s", "there is no option --cuont; did you mean --count?"),
        ("s: {}\n", "t", "has no section 't'; its sections are s"),
        ("s: [", "s", "as YAML"),
        ("", None, "is empty"),
        ("s:\n  count: 7\n  count: 8\n", "s", "'count' is there twice"),
        ("s:\n  count: 7\n", None, "name one with --stage: s"),
    ],
)
def test_a_wrong_config_file_is_refused(content, stage, message, tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(content)
    typed = ["--config", str(file), *(["--stage", stage] if stage else [])]
    assert message in refused(str(file), parse, *typed)


@pytest.mark.parametrize(
    ("verb", "typed", "required"),
    [
        ("train dual", "--start people-en/dual --random-units 0.1 --precision fp32", "a b c"),
        ("pretrain continue", "--start e --distort m+g+r --noise musan=m --no-same-masks", "a b"),
    ],
)
def test_the_printed_config_gives_the_same_call(verb, typed, required, tmp_path, capsys):
    call = [*verb.split(), *required.split()]
    assert parse_arguments([*call, *typed.split(), "--print_config"]) is None
    (tmp_path / "c.yaml").write_text(capsys.readouterr().out)
    again = parse_arguments([*call, "--config", str(tmp_path / "c.yaml")])
    first = parse_arguments([*call, *typed.split()])
    assert again[0] == first[0]
