"""Parse the command line of a verb by argparse, with a parser that is made from the dataclass of
the verb's options (`speechssl.options`). --config takes options from a YAML file."""

from __future__ import annotations

import argparse
import inspect
import json
import math
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, get_args, get_origin

from speechssl.errors import InputError

# Options that stand below the title "computing" in the help, whichever dataclass has them.
COMPUTING = ("precision", "device", "workers", "engine", "shard", "shard_size")


class Option(NamedTuple):
    """An option is a field of a dataclass that has a help."""

    name: str
    metadata: Mapping[str, Any]  # as `speechssl.options.option` and `argument` give it
    kind: Any  # its type, without None
    default: Any
    title: str  # the title in the help below which it stands


class Parser(argparse.ArgumentParser):
    """This parser takes dashes and underscores in names of options, and raises InputError."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see `{self.prog} --help`)")

    def unify_names(self, arguments: Sequence[str]) -> list[str]:
        """Return the arguments with dashes in the names of options. Raises InputError for an
        unknown option, with the most similar name."""
        words = list(arguments)
        known = self._option_string_actions
        for i, word in enumerate(words):
            if word == "--":
                break
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                name = name.replace("_", "-")
                if name not in known:
                    self.error(f"there is no option {name}{suggest_name(name, known)}")
                words[i] = f"{name}{equals}{value}"
        return words


def suggest_name(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the most similar of the known names; "" where none is."""
    near = get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def list_options(
    config: type, default: Any = None, title: str = "", without: Sequence[str] = ()
) -> Iterator[Option]:
    """Yield all options of a dataclass and of its groups, whose fields are dataclasses themselves.

    default: an instance whose values are the defaults; None: the defaults are those of the fields.
    title: of the group in the help; without: the fields that are not offered as options here.
    """
    # `build` goes through the fields in the same way, and puts the parsed values in their places
    types_of_fields = typing.get_type_hints(config, include_extras=True)
    for f in fields(config):
        value = f.default if default is None else getattr(default, f.name)
        if f.name in without:
            continue
        if _is_group(f):
            yield from list_options(type(value), value, f.metadata["title"], f.metadata["without"])
        elif _is_option(f):
            kind = types_of_fields[f.name]
            if get_origin(kind) in (typing.Union, types.UnionType):  # X | None
                kind = get_args(kind)[0]
            name = _name_option(f)
            under = f.metadata.get("under") or ("computing" if name in COMPUTING else title)
            yield Option(name, f.metadata, kind, value, under)


def _is_group(f: Field[Any]) -> bool:
    """Return whether a field was made by `speechssl.options.group`."""
    return "title" in f.metadata


def _is_option(f: Field[Any]) -> bool:
    """Return whether a field was made by `speechssl.options.option` or `argument`."""
    return "help" in f.metadata


def _name_option(f: Field[Any]) -> str:
    """Return the name of the option of a field."""
    return f.metadata.get("name") or f.name


def build(
    config: type, values: Mapping[str, Any], default: Any = None, without: Sequence[str] = ()
) -> Any:
    """Make the dataclass, and those of its groups, from the parsed values. values: name of the
    option -> value; default, without: as in `list_options`."""
    arguments = {}
    for f in fields(config):
        value = f.default if default is None else getattr(default, f.name)
        if f.name not in without:
            if _is_group(f):
                value = build(type(value), values, value, f.metadata["without"])
            elif _is_option(f):
                value = _read_value(f, values[_name_option(f)])
        if value is not MISSING:
            arguments[f.name] = value
    return config(**arguments)


def _read_value(f: Field[Any], parsed: Any) -> Any:
    """Return the value of a field for a parsed value."""
    if f.metadata.get("values"):
        return f.metadata["values"].get(parsed)
    return tuple(parsed) if isinstance(parsed, list) else parsed


def show_call(program: str, config: type) -> str:
    """Show how a program is called, with its positional arguments and required options; the other
    options are "[options]"."""
    words = [program]
    for option in list_options(config):
        metadata = option.metadata
        name = option.name.upper()
        dots = " ..." if get_origin(option.kind) is tuple else ""
        if metadata.get("positional"):
            words.append(f"[{name}{dots}]" if metadata.get("nargs") else f"{name}{dots}")
        elif option.default is MISSING:
            words.append(f"{_format_flag(option)} {metadata.get('metavar') or name}{dots}")
    return " ".join([*words, "[options]"])


def _format_flag(option: Option) -> str:
    """Return an option as it is typed: "--out"."""
    return f"--{option.name.replace('_', '-')}"


def make_parser(program: str, config: type) -> Parser:
    """Make the parser of a verb from the dataclass of its options."""
    parser = Parser(
        prog=program,
        usage=show_call(program, config),
        description=inspect.cleandoc(config.__doc__ or "") + getattr(config, "FOOTER", ""),
        # keeps the lines of docstrings, with a narrow column of options
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=28),
        allow_abbrev=False,
    )
    groups: dict[str, Any] = {"": parser}
    for option in list_options(config):
        if option.title not in groups:
            groups[option.title] = parser.add_argument_group(option.title)
        _add_option(groups[option.title], option)
    add = parser.add_argument
    add("--config", metavar="FILE", type=Path, help="read options of this call from a YAML file")
    add("--stage", metavar="SECTION", help="section of the file to read, if it has sections")
    printing = "print the options of this call as YAML, which --config takes, and exit"
    add("--print-config", action="store_true", help=printing)
    add = parser.add_argument_group("output").add_argument
    add("--json", action="store_true", help="print the result as one JSON value")
    add("-q", "--quiet", action="store_true", help="print results and errors only")
    add("-v", "--verbose", action="store_true", help="also print tracebacks, warnings of libraries")
    add("--strict", action="store_true", help="end with exit code 3 if items were set aside")
    return parser


def _add_option(place: Any, option: Option) -> None:
    """Add an option to the parser, or to a group of it."""
    metadata, kind = option.metadata, option.kind
    keywords: dict[str, Any] = {}  # of argparse
    for name in ("nargs", "metavar"):
        if metadata.get(name):
            keywords[name] = metadata[name]
    if get_origin(kind) is tuple:
        keywords["nargs"] = _count_values(option)
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        keywords["choices"] = list(get_args(kind))
        kind = str
    if metadata.get("positional"):
        keywords["metavar"] = option.name.upper()
        place.add_argument(option.name, help=metadata["help"], type=_make_reader(kind), **keywords)
        return
    if metadata["values"]:
        keywords["choices"] = list(metadata["values"])
    elif kind is bool:
        keywords["action"] = argparse.BooleanOptionalAction
    else:
        keywords["type"] = _make_reader(kind)
    default = _write_default(option)
    place.add_argument(
        _format_flag(option),
        dest=option.name,
        default=default,
        required=option.default is MISSING,
        help=metadata["help"] + _show_default(default),
        **keywords,
    )


def _count_values(option: Option) -> int | str:
    """Return how many values a tuple takes, as argparse's nargs: a number, * or +."""
    kinds = get_args(option.kind)
    if option.metadata.get("positional"):
        return "+"
    if option.metadata["least"] and option.default != ():
        return "+"
    return "*" if kinds[1:] == (...,) else len(kinds)  # tuple[Path, ...] or tuple[float, float]


def _write_default(option: Option) -> Any:
    """Return the default in the form that argparse parses values to; `build` turns it into the
    value of the dataclass."""
    default = None if option.default is MISSING else option.default
    if option.metadata["values"]:
        texts = [text for text, value in option.metadata["values"].items() if value == default]
        return texts[0] if texts else None
    return list(default) if isinstance(default, tuple) else default


def _show_default(default: Any) -> str:
    """Return " (default: ...)", the end of an option's help; "" for a default that is None, False
    or empty."""
    if default is None or default is False or default in ("", []):
        return ""
    values = default if isinstance(default, list) else [default]
    texts = [f"{v:g}" if isinstance(v, float) else str(v) for v in values]
    return f" (default: {' '.join(texts)})"


def _make_reader(kind: Any) -> Callable[[str], Any]:
    """Return a function that reads the typed text as a value: a text, a path, or a number, which
    must be finite and in range. kind: str, Path, int or float, or Annotated with a Range."""
    number, limits = get_args(kind) if get_origin(kind) is Annotated else (kind, None)
    if number not in (int, float):
        return number  # type: ignore[no-any-return]

    def read(text: str) -> Any:
        value = number(text)
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"{text} is not a finite number")
        if limits and value not in limits:
            raise argparse.ArgumentTypeError(f"{text} is out of range; give a number {limits}")
        return value

    read.__name__ = number.__name__  # for argparse's message: "invalid int value"
    return read


def parse_call(
    program: str, config: type, arguments: Sequence[str]
) -> tuple[Any, argparse.Namespace] | None:
    """Return the dataclass of a call, made from the typed arguments and the file of --config, and
    all values by name; None where --print-config printed them.

    Raises InputError for options or values that the verb does not take.
    """
    parser = make_parser(program, config)
    words = parser.unify_names(arguments)
    file, stage = _find_config(words, program)
    try:
        if file is not None:
            section = parser.unify_names(write_arguments(read_section(file, stage)))
            # typed arguments come later, and win. --config stands between, so that a list at the
            # end of the section does not take typed positional arguments.
            words = [*section, f"--config={file}", *words]
        values = parser.parse_args(words)
    except InputError as error:
        if file is None:
            raise
        where = f"{file}, section {stage}" if stage else file
        raise InputError(f"{error} (options of {where} are part of this call)") from error
    if values.print_config:
        print_options(config, vars(values))
        return None
    return build(config, vars(values)), values


def _find_config(words: Sequence[str], program: str) -> tuple[Path | None, str | None]:
    """Return the values of --config and --stage, which are needed before the other arguments are
    parsed."""
    parser = Parser(prog=program, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--stage")
    values, _ = parser.parse_known_args(words)
    if values.stage is not None and values.config is None:
        raise InputError(f"--stage {values.stage} names a section of a file; give it with --config")
    return values.config, values.stage


def print_options(config: type, values: Mapping[str, Any]) -> None:
    """Print the options of a call as YAML, which --config takes."""
    import yaml

    given = {
        o.name: values[o.name] for o in list_options(config) if not o.metadata.get("positional")
    }
    plain = json.loads(json.dumps(given, default=str))  # YAML has no paths and no tuples
    print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), end="")


def write_arguments(section: Mapping[str, Any]) -> list[str]:
    """Write the options of a section as they would be typed. Raises InputError for a section in
    it."""
    words = []
    for name, value in section.items():
        flag = f"--{name}"
        if isinstance(value, dict):
            names = ", ".join(section)
            raise InputError(f"{name} is a section; name one with --stage: {names}")
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{name}")
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        elif value is not None:
            words.append(f"{flag}={value}")
    return words


def _refuse_repeated(node: Any) -> None:
    """Raise ValueError where a mapping of a YAML document has a name twice, of which YAML would
    take the last. node: as `yaml.compose` returns it."""
    pairs = node.value if node is not None and node.id == "mapping" else []
    for name, count in Counter(str(key.value) for key, _ in pairs).items():
        if count > 1:
            raise ValueError(f"{name!r} is there twice")
    for _, value in pairs:
        _refuse_repeated(value)


def read_section(file: Path, stage: str | None) -> dict[str, Any]:
    """Read the options of a YAML file, or of its section `stage`. Raises InputError for a file that
    is no YAML of options or has a name twice, and for a section that it does not have."""
    import yaml

    try:
        text = file.read_text(encoding="utf-8")
        _refuse_repeated(yaml.compose(text, yaml.SafeLoader))
        content = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: not UTF-8
        reason = " ".join(str(error).split())
        raise InputError(f"cannot read the config {file} as YAML: {reason}") from error
    if content is None:
        raise InputError(f"{file} is empty; write options as `name: value`, one a line")
    if stage is not None and isinstance(content, dict):
        if stage not in content:
            raise InputError(
                f"{file} has no section {stage!r}; its sections are {', '.join(content)}"
            )
        content = content[stage] or {}
    if not isinstance(content, dict):
        raise InputError(f"{file}: write options as `name: value`, one a line, not {content!r}")
    return content
