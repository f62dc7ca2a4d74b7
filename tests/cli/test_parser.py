"""The command line of a verb: options typed and from a file, and one sentence with exit code 2 for
what does not fit."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

import pytest
import yaml

from speechssl.cli import main, parse_arguments
from speechssl.cli.parser import make_parser, parse
from speechssl.options import (
    Amount,
    Count,
    Portion,
    Share,
    TrainingOptions,
    Weight,
    Whole,
    argument,
    group,
    option,
)

from ..files import refused


@dataclass(frozen=True)
class Inner:
    """Options of a group."""

    pull: Weight = option(1.0, "weight")
    noise: Share = option(0.0, "share", name="random_units")
    hidden: int = 3
    left_out: Count = option(7, "not here")


@dataclass(frozen=True, kw_only=True)
class Example:
    """do something

    speechssl example a b
    """

    source: Path = argument("source")
    more: Path | None = argument("more", optional=True)
    need: str = option(MISSING, "must be given")
    count: Count = option(2, "count")
    whole: Whole | None = option(None, "whole")
    portion: Portion | None = option(None, "portion")
    rate: Amount = option(1e-3, "rate")
    kind: Literal["a", "b"] = option("a", "kind")
    names: tuple[str, ...] = option(("x", "y"), "names", least=1)
    files: tuple[Path, ...] = option((), "files")
    span: tuple[float, float] | None = option(None, "span", metavar=("FROM", "TO"))
    fast: bool = option(False, "fast")
    audio: bool = option(True, "no audio")
    same: bool | None = option(None, "same")
    bf16: bool = option(True, "precision", name="precision", values={"fp32": False, "bf16": True})
    inner: Inner = group(Inner(pull=2.0, hidden=5, left_out=9), "a group", without=("left_out",))


def parsed(*arguments: str) -> Example:
    words = [word for word in arguments[:1] if not word.startswith("-")]
    return parse("example", Example, ["a", *words, "--need", "n", *arguments[len(words) :]])


def test_types_defaults_and_groups() -> None:
    made = parsed()
    assert made == Example(source=Path("a"), need="n", inner=Inner(2.0, 0.0, 5, 9))
    typed = (
        "b --count 3 --whole 0 --rate 3e-4 --kind b --names q --files f g --span -1 2.5 "
        "--fast --no-audio --no-same"
    )
    made = parsed(*typed.split(), "--precision", "fp32", "--pull", "0", "--random-units", "0.5")
    assert made == Example(
        source=Path("a"),
        more=Path("b"),
        need="n",
        count=3,
        whole=0,
        rate=3e-4,
        kind="b",
        names=("q",),
        same=False,
        files=(Path("f"), Path("g")),
        span=(-1.0, 2.5),
        fast=True,
        audio=False,
        bf16=False,
        inner=Inner(0.0, 0.5, 5, 9),
    )


def test_underscore_and_dash_are_alike() -> None:
    assert parsed("--random_units", "0.5", "--no_audio") == parsed(
        "--random-units=0.5", "--no-audio"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cuont", "3"], "`speechssl example` has no option --cuont; did you mean --count?"),
        (["--random", "3"], "did you mean --random-units?"),
        (["--units-at-random", "3"], "did you mean --random-units?"),
        (["--zzzzzz"], "no option --zzzzzz; see --help"),
        (["--count", "0"], "--count: 0 is out of range; give a number from 1 "),
        (
            ["--count", "99999999999999999999"],
            "--count: 99999999999999999999 is out of range; give a number up to",
        ),
        (["--whole", "-1"], "out of range; give a number from 0 "),
        (["--portion", "0"], "out of range; give a number above 0 and at most 1 "),
        (["--random-units", "1.5"], "out of range; give a number from 0 to 1 "),
        (["--rate", "nan"], "out of range; give a number above 0 "),
        (["--count", "many"], "'many' is not a whole number"),
        (["--rate", "much"], "'much' is not a number"),
        (["--kind", "c"], "invalid choice: 'c'"),
        (["--span", "1"], "expected 2 arguments"),
        (["--names"], "expected at least one argument"),
        (["b", "--fast", "c"], "has no argument c; it needs --need; see"),
        (["--config"], "--config of `speechssl example` needs a value"),
        (["--stage", "s"], "give the file with --config"),
    ],
)
def test_what_does_not_fit_is_one_sentence(arguments: list[str], message: str) -> None:
    assert message in refused("", parsed, *arguments) + " "


def test_what_must_be_given_is_named() -> None:
    refused(
        "`speechssl example` needs source, --need; see `speechssl example --help`",
        parse,
        "example",
        Example,
        [],
    )


def test_a_section_gives_defaults_and_typing_wins(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "s:\n  need: m\n  rate: 3e-4\n  names: q\n  files: [f, g]\n  span: [1, 2]\n  fast: "
        "true\n  audio: false\n"
        "  precision: fp32\n  random-units: 0.25\n  count: 7\n  whole: null\n  same: false\n"
    )
    made = parse("example", Example, ["a", "--config", str(file), "--stage", "s", "--count", "8"])
    assert made == Example(
        source=Path("a"),
        need="m",
        rate=3e-4,
        names=("q",),
        files=(Path("f"), Path("g")),
        span=(1.0, 2.0),
        fast=True,
        audio=False,
        bf16=False,
        count=8,
        same=False,
        inner=Inner(2.0, 0.25, 5, 9),
    )
    file.write_text("need: m\nsource: given\n")
    assert parse("example", Example, ["--config", str(file)]).source == Path("given")
    assert parse("example", Example, ["typed", f"--config={file}"]).source == Path("typed")


@pytest.mark.parametrize(
    ("content", "stage", "message"),
    [
        (
            "s:\n  cuont: 7\n",
            "s",
            "'cuont', which `speechssl example` does not take; did you mean count?",
        ),
        ("s: {}\n", "t", "no section 't'; its sections are s"),
        ("1: {}\n", "s", "its sections are 1"),
        ("s: 7\nt: 8\n", "u", "it has none; leave out --stage"),
        (
            "s: [",
            "s",
            "expected the node content, but found '<stream end>' in line 1; write its options as",
        ),
        (
            "s:\n  count: 1\n   bad: 2\n",
            "s",
            "mapping values are not allowed here in line 3; write its options as",
        ),
        ("? [1]\n: 2\n", None, "found unhashable key in line 1"),
        ("day: 2024-13-01\n", None, "month must be in 1..12"),
        (b"s: \xff\n", "s", "save it as UTF-8"),
        ("s: 7\n", "s", "write its options as `name: value`"),
        ("[1]", None, "write its options as `name: value`"),
        ("s:\n  count: 7\n", None, "name one of its sections with --stage: s"),
        ("s:\n  count: many\n", "s", "is not a whole number"),
        ("s:\n  count: 0\n", "s", "give a number from 1"),
        ("s:\n  count: 7.5\n", "s", "is not a whole number"),
        ("s:\n  count: [1, 2]\n", "s", "give one value"),
        ("s:\n  span: [1]\n", "s", "give 2 values"),
        ("s:\n  names: []\n", "s", "give one or more values"),
        ("s:\n  kind: c\n", "s", "choose from a, b"),
        ("s:\n  fast: maybe\n", "s", "write true or false"),
        (
            "s:\n  need: no\n",
            "s",
            "has False for need (to YAML, yes, no, on and off are true and "
            "false; put a word in quotes)",
        ),
        ("s:\n  names: [a, on]\n", "s", "put a word in quotes"),
        ("s:\n  count: yes\n", "s", "put a word in quotes"),
        ("s:\n  count: 7\n  count: 8\n", "s", "count stands there a second time in line 3"),
        ("s: {}\ns: {}\n", "s", "s stands there a second time in line 2"),
        ("s:\n  count: 010\n", "s", "010 is no decimal number in line 2"),
        ("s:\n  count: 1:30\n", "s", "1:30 is no decimal number"),
    ],
)
def test_a_bad_file_is_one_sentence(
    content: str | bytes, stage: str | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    assert message in refused(
        str(file), parsed, "--config", str(file), *(["--stage", stage] if stage else [])
    )


@pytest.mark.parametrize(
    "call",
    [
        "units evaluate a b c --conditions pink@3 --picture p.png --span 1 2 --alignment x",
        "train dual corpus units out --start people-en/dual --random-units 0.1 --precision fp32",
        "pretrain continue recordings out --start e --distort m+g+r --noise musan=m "
        "--no-same-masks --snr-range 1 2",
        "prepare librispeech a b --lexicon c d",
        "compare a b --pairs c,d",
    ],
)
def test_the_printed_config_is_the_call(
    call: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option_name in ("--print_config", "--print-config"):
        with pytest.raises(SystemExit) as end:
            main([*call.split(), option_name])
        assert end.value.code == 0
    printed = capsys.readouterr().out
    printed = printed[: len(printed) // 2]
    (tmp_path / "c.yaml").write_text(printed)
    words = 1 if call.startswith("compare") else 2
    again = parse_arguments([*call.split()[:words], "--config", str(tmp_path / "c.yaml")])
    assert again == parse_arguments(call.split()) and "config" not in yaml.safe_load(printed)


def test_help_has_text_defaults_and_groups() -> None:
    text = make_parser("example", Example).format_help()
    assert "do something" in text and "\nspeechssl example a b\n" in text
    assert (
        "a group:" in text
        and "(default: x y)" in text
        and ("(default: bf16)") in text
        and ("(default: 0.001)") in text
    )
    assert "None" not in text and "left-out" not in text and "hidden" not in text


def test_training_options_are_checked() -> None:
    refused(r"from 0 to below 1 \(--adam-betas\)", TrainingOptions, 1, 1.0, adam_betas=(0.9, 1.0))
