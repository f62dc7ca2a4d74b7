"""The command line of a verb, made by jsonargparse from the dataclass of its options
(`speechssl.options`).

Every option can also stand in a YAML file under its name: `--config FILE` takes the defaults of a
call from the file, `--config FILE --stage SECTION` from a section of it, and `--print_config`
prints what would run. What is typed wins.
"""

from __future__ import annotations

import argparse
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from speechssl.errors import InputError
from speechssl.options import Range

# a group of their own in every verb's help
COMPUTING = ("precision", "device", "workers", "engine", "shard", "shard_size")
# of a file; dests of a parser
NO_OPTIONS = ("help", "config", "stage", "print_config", "json", "quiet", "verbose", "strict")


class Option(NamedTuple):
    """An option is a field of a dataclass. kind: its type without None; title: of its group."""

    name: str
    metadata: Mapping[str, Any]
    kind: Any
    default: Any
    title: str
    optional: bool


@dataclass(frozen=True)
class Manner:
    """Any verb prints and ends in this manner; what a verb does has no part in it."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    strict: bool = False


MANNER = {
    ("--json",): "print the result as one JSON value; all else goes to stderr",
    ("-q", "--quiet"): "print results and errors only",
    ("-v", "--verbose"): "also print warnings of libraries, where an error arose, time and memory",
    ("--strict",): "end with exit code 3 if items were set aside",
}


def take_manner(arguments: Sequence[str]) -> tuple[Manner, list[str]]:
    """Split what was typed into MANNER, wherever it stands before a "--", and the other
    arguments."""
    typed = list(arguments)
    end = typed.index("--") if "--" in typed else len(typed)
    names = {flag: flags[-1].removeprefix("--") for flags in MANNER for flag in flags}
    taken = {names[word]: True for word in typed[:end] if word in names}
    return Manner(**taken), [word for word in typed[:end] if word not in names] + typed[end:]


def options_of(
    config: type, default: Any = None, title: str = "", without: Sequence[str] = ()
) -> Iterator[Option]:
    """Yield all options of a dataclass and its groups; default: an instance whose values are the
    defaults."""
    hints = get_type_hints(config, include_extras=True)
    for f in fields(config):
        value = f.default if default is None else getattr(default, f.name)
        if f.name in without:
            continue
        if "title" in f.metadata:
            yield from options_of(type(value), value, f.metadata["title"], f.metadata["without"])
        elif "help" in f.metadata:
            kind = hints[f.name]
            optional = _is_optional(kind)
            if optional:
                kind = next(k for k in get_args(kind) if k is not type(None))
            name = f.metadata.get("name") or f.name
            under = f.metadata.get("under") or ("computing" if name in COMPUTING else title)
            yield Option(name, f.metadata, kind, value, under, optional)


def _is_optional(kind: Any) -> bool:
    return get_origin(kind) in (typing.Union, types.UnionType) and type(None) in get_args(kind)


def build(
    config: type, values: Mapping[str, Any], default: Any = None, without: Sequence[str] = ()
) -> Any:
    """Make the dataclass, and those of its groups, of the values that were parsed; default,
    without: as of `options_of`."""
    made = {}
    hints = get_type_hints(config)
    for f in fields(config):
        value = f.default if default is None else getattr(default, f.name)
        if f.name in without:
            pass
        elif "title" in f.metadata:
            value = build(type(value), values, value, f.metadata["without"])
        elif "help" in f.metadata:
            value = values[f.metadata.get("name") or f.name]
            if value is not None and f.metadata.get("values"):
                value = f.metadata["values"][value]
            elif value is not None and "Path" in str(hints[f.name]):
                value = tuple(map(Path, value)) if isinstance(value, list) else Path(value)
            value = tuple(value) if isinstance(value, list) else value
        if value is not MISSING:
            made[f.name] = value
    return config(**made)


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """The help shows the default of every option that has one, but for switches."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_none = action.default in (None, "", [], argparse.SUPPRESS)
        if has_none or action.required or action.nargs == 0:
            return action.help
        values = action.default if isinstance(action.default, list) else [action.default]
        texts = [f"{v:g}" if isinstance(v, float) else str(v) for v in values]
        return f"{action.help} (default: {' '.join(texts)})"


def typed_name(verb: str) -> str:
    """Return what is typed for a verb, or for a recipe's script, whose name is typed as it is."""
    return verb if verb.startswith("python ") else f"speechssl {verb}"


def make_parser(verb: str, config: type) -> Any:
    """Make the parser of a verb from the dataclass of its options."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog=typed_name(verb),
        description=describe_verb(config),
        formatter_class=Help,
        exit_on_error=False,
    )
    groups: dict[str, Any] = {"": parser}
    for option in options_of(config):
        if option.title not in groups:
            groups[option.title] = parser.add_argument_group(option.title)
        _add_option(groups[option.title], option)
    parser.add_argument(
        "--config",
        metavar="FILE",
        action="config",
        help=("read options of this call from a YAML file"),
    )
    parser.add_argument(
        "--stage",
        metavar="SECTION",
        default=argparse.SUPPRESS,
        help=("section of the file to read, if it has sections"),
    )
    output = parser.add_argument_group("output")
    for names, help in MANNER.items():
        output.add_argument(*names, action="store_true", default=argparse.SUPPRESS, help=help)
    printing = next(action for action in parser._actions if action.dest == "print_config")
    printing.help = "print the options of this call as YAML, which --config takes, and exit"
    printing.metavar = ""
    return parser


def describe_verb(config: type) -> str:
    """Return the help of a verb, the docstring of its dataclass."""
    import inspect

    return inspect.cleandoc(config.__doc__ or "") + getattr(config, "FOOTER", "")


def first_paragraph(config: type) -> str:
    """Return one line about a verb, for the list of all verbs."""
    return describe_verb(config).split("\n\n")[0].replace("\n", " ")


def _add_option(place: Any, option: Option) -> None:
    """Add an option to the parser or to a group of it."""
    name = option.name
    metadata = option.metadata
    default = option.default
    if metadata.get("positional"):
        _add_positional(place, option)
        return
    flag = f"--{name.replace('_', '-')}"
    more = {"help": metadata["help"], "dest": name}
    if metadata["values"]:
        shown = next((text for text, value in metadata["values"].items() if value == default), None)
        place.add_argument(flag, choices=list(metadata["values"]), default=shown, **more)
    elif option.kind is bool and option.optional:
        place.add_argument(flag, action="store_true", default=None, **more)
        place.add_argument(
            f"--no-{flag[2:]}",
            action="store_false",
            default=None,
            dest=name,
            help=(f"the opposite of {flag}"),
        )
    elif option.kind is bool:
        flag = f"--no-{flag[2:]}" if default else flag
        place.add_argument(flag, action=f"store_{'false' if default else 'true'}", **more)
    else:
        kind = option.kind
        if get_origin(kind) is tuple:
            kinds = get_args(kind)
            if kinds[-1] is not ...:
                more["nargs"] = len(kinds)
            else:
                more["nargs"] = "+" if metadata["least"] else "*"
            kind = kinds[0]
            default = list(default) if isinstance(default, tuple) else default
        if get_origin(kind) is Literal:
            more["choices"] = list(get_args(kind))
        if metadata["metavar"]:
            more["metavar"] = metadata["metavar"]
        required = default is MISSING
        if required:
            default = None
        elif isinstance(default, Path):
            default = str(default)
        place.add_argument(
            flag, type=_make_reader(kind), default=default, required=required, **more
        )


def _add_positional(place: Any, option: Option) -> None:
    kind = option.kind
    nargs = option.metadata["nargs"]
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
        nargs = "+"
    more: dict[str, Any] = {"help": option.metadata["help"]}
    if get_origin(kind) is Literal:
        # named as in the sentences about it; the help lists the choices
        more |= {"choices": list(get_args(kind)), "metavar": option.name}
    if nargs:
        more["nargs"] = nargs
    place.add_argument(option.name, type=_make_reader(kind), **more)


def _make_reader(kind: Any) -> Callable[[Any], Any]:
    """Make a function that reads a value as it was typed, or as YAML has it."""

    def read(value: Any) -> Any:
        if isinstance(value, (list, dict)):
            raise argparse.ArgumentTypeError(f"{value!r} is more than one value; give one value")
        number = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if number not in (int, float):
            return str(value)
        try:
            made = number(str(value))
        except ValueError:
            whole = "whole " if number is int else ""
            raise argparse.ArgumentTypeError(f"{str(value)!r} is not a {whole}number") from None
        for limit in get_args(kind)[1:]:
            if isinstance(limit, Range):
                limit.check(made)
        return made

    return read


def parse(verb: str, config: type, arguments: Sequence[str]) -> Any:
    """Return the dataclass of a call, from what was typed and the file of --config. Raises
    InputError for what does not fit."""
    parser = make_parser(verb, config)
    flags = {
        flag: action
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith("--")
    }
    flags["--print-config"] = flags["--print_config"]
    typed, file, stage = _take_config(list(arguments), flags, verb)
    if stage is not None and file is None:
        raise InputError(
            f"--stage {stage} names a section of a file; give the file with "
            "--config, or leave it out"
        )
    if file is not None:
        import yaml

        section = read_section(Path(file), stage)
        where = file if stage is None else f"{file}: the section {stage}"
        checked = check_section(verb, config, section, where)
        typed = [f"--config={yaml.safe_dump(checked)}", *typed]  # first: what is typed wins
    try:
        parsed = parser.parse_args(typed)
    except (argparse.ArgumentError, argparse.ArgumentTypeError, TypeError, ValueError) as error:
        required = [a.option_strings[0] for a in parser._actions if a.required and a.option_strings]
        raise InputError(_explain(str(error), verb, required)) from error
    return build(config, vars(parsed))


def _take_config(
    arguments: list[str], flags: Mapping[str, Any], verb: str
) -> tuple[list[str], str | None, str | None]:
    """Return the arguments with options as they are spelt here, and the values of --config and
    --stage apart from them."""
    typed: list[str] = []
    apart: dict[str, str | None] = {"--config": None, "--stage": None}
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*typed, word, *words], apart["--config"], apart["--stage"]
        if not word.startswith("--"):
            typed.append(word)
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name not in flags:
            hint = suggest_name(name, flags)
            if name.startswith("--out") and "--out" not in flags:  # --output-dir of other toolkits
                hint = (
                    "; what it writes is given without a name, such as OUT: see `"
                    f"{typed_name(verb)} --help`"
                )
            raise InputError(f"`{typed_name(verb)}` has no option {name}{hint}")
        if name in apart:
            found = value if equals else next(words, None)
            if found is None:
                raise InputError(
                    f"{name} of `{typed_name(verb)}` needs a value; see `{typed_name(verb)} --help`"
                )
            apart[name] = found
        else:
            spelt = "--print_config" if name == "--print-config" else name
            typed.append(spelt + equals + value)
    return typed, apart["--config"], apart["--stage"]


ELSEWHERE = {  # options of other toolkits and of other verbs -> what they are called here
    "lr": "learning-rate",
    "eval-steps": "eval-every",
    "epochs": "steps",
    "num-epochs": "steps",
    "gpu": "device",
    "cuda": "device",
    "fp16": "precision",
    "bf16": "precision",
    "fp32": "precision",
    "recordings": "first",
    "source": "read",
}


def suggest_name(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?", or where to look."""
    names = {name.lstrip("-"): name for name in sorted(known)}
    bare = word.lstrip("-").lower()
    near = [name for name in names if len(bare) > 1 and name.startswith(bare)] or get_close_matches(
        bare, names, 1, 0.7
    )
    parts = {part for part in re.split("[-_]", bare) if len(part) > 4}
    near = near or get_close_matches(
        bare, [name for name in names if parts & set(re.split("[-_]", name))], 1, 0
    )
    near = [name for name in [ELSEWHERE.get(bare)] if name in names] or near
    if not near:
        return "; see --help"
    return f"; did you mean {' or '.join(names[name] for name in near[:2])}?"


def name_as_typed(sentence: str, config: Any) -> str:
    """Call the settings of a stage in a sentence as the options of a call are called:
    `options.training.learning_rate` is --learning-rate. config: the dataclass of the call; what is
    none of its options stays."""
    flags: dict[str, str] = {}
    groups = [config] if is_dataclass(config) else []
    for place in groups:
        for f in fields(place):
            value = getattr(place, f.name)
            if "title" in f.metadata:
                groups.append(value)
            elif "help" in f.metadata and not f.metadata.get("positional"):
                no = "no-" if f.default is True and not f.metadata["values"] else ""
                flags[f.name] = f"--{no}{(f.metadata['name'] or f.name).replace('_', '-')}"
    return re.sub(
        r"\boptions\.(?:\w+\.)*(\w+)", lambda found: flags.get(found[1], found[0]), sentence
    )


def read_section(path: Path, stage: str | None) -> dict[str, Any]:
    """Read the options in a YAML file, or in a section of it."""
    import yaml

    def mapping(loader: Any, node: Any) -> Any:
        """Make a mapping, in which no name is given twice: the first would be lost in silence."""
        names: set[str] = set()
        for key, _ in node.value:
            if isinstance(key.value, str) and key.value in names:
                raise yaml.MarkedYAMLError(
                    problem=(f"{key.value} stands there a second time"), problem_mark=key.start_mark
                )
            names |= {key.value} if isinstance(key.value, str) else set()
        return loader.construct_yaml_map(node)

    def integer(loader: Any, node: Any) -> int:
        """Read a decimal number: to YAML, 010 is eight and 1:30 is ninety."""
        if not re.fullmatch(r"[-+]?(0|[1-9][0-9_]*)", node.value):
            raise yaml.MarkedYAMLError(
                problem=(f"{node.value} is no decimal number"), problem_mark=node.start_mark
            )
        return int(node.value)

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    Loader.add_constructor("tag:yaml.org,2002:int", integer)
    try:
        loader = Loader(path.read_text(encoding="utf-8"))
        try:
            content = loader.get_single_data()
        finally:
            loader.dispose()
    except RecursionError:
        raise InputError(
            f"cannot read the config {path} (it is nested too deeply); write its "
            "options as `name: value`"
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot read the config {path} ({error.strerror}); check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"cannot read the config {path} (it is not UTF-8); save it as UTF-8"
        ) from error
    except (ValueError, yaml.YAMLError) as error:  # ValueError: a date that there is not
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None)
        where = f" in line {mark.line + 1}" if mark else ""
        reason = problem or str(error).splitlines()[0]
        raise InputError(
            f"cannot read the config {path}: {reason}{where}; write its options as `name: "
            "value`, one a line"
        ) from error
    if stage is not None:
        sections = content if isinstance(content, dict) else {}
        if stage not in sections:
            known = [str(name) for name, value in sections.items() if isinstance(value, dict)]
            remedy = "it has none; leave out --stage"
            if known:
                remedy = f"its sections are {', '.join(known)}; name one with --stage"
            raise InputError(f"{path} has no section {stage!r}; {remedy}")
        content = sections[stage]
    if not isinstance(content or {}, dict):
        where = f"the section {stage}" if stage is not None else "it"
        raise InputError(
            f"{path}: {where} is {content!r}; write its options as `name: value`, one a line"
        )
    return dict(content or {})


def check_section(
    verb: str, config: type, section: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Return the options of a file, by their names with underscores. where: the file, for messages.

    Raises InputError for names that the verb does not have and values that are none of theirs.
    """
    actions = {a.dest: a for a in make_parser(verb, config)._actions if a.dest not in NO_OPTIONS}
    checked = {}
    for written, value in section.items():
        name = str(written).replace("-", "_")
        if name not in actions:
            hint = suggest_name(name, actions)
            if isinstance(value, dict):
                hint = f"; name one of its sections with --stage: {', '.join(map(str, section))}"
            raise InputError(
                f"{where} has {written!r}, which `{typed_name(verb)}` does not take{hint}"
            )
        action = actions[name]
        may_be_none = value is None and action.default is None
        if action.nargs == 0 and not isinstance(value, bool) and not may_be_none:
            raise InputError(f"{where} has {value!r} for {name}; write true or false")
        try:
            checked[name] = _convert(action, value)
        except argparse.ArgumentTypeError as error:
            raise InputError(f"{where} has {value!r} for {name} ({error}); correct it") from error
    return checked


def _convert(action: Any, value: Any) -> Any:
    """Convert a value of a file to one of the option: the type's, one of its choices, as many as it
    takes."""
    if action.nargs == 0 or value is None:
        return value
    values = value if isinstance(value, list) and action.nargs not in (None, "?") else [value]
    if isinstance(action.nargs, int) and len(values) != action.nargs:
        raise argparse.ArgumentTypeError(f"give {action.nargs} values")
    if action.nargs == "+" and not values and action.default != []:
        raise argparse.ArgumentTypeError("give one or more values")
    if any(isinstance(v, bool) for v in values):
        raise argparse.ArgumentTypeError(
            "to YAML, yes, no, on and off are true and false; put a word in quotes"
        )
    made = [_make_reader(str)(v) if action.type is None else action.type(v) for v in values]
    for v in made:
        if action.choices is not None and v not in action.choices:
            raise argparse.ArgumentTypeError(f"choose from {', '.join(action.choices)}")
    return made[0] if action.nargs in (None, "?") else made


def _explain(message: str, verb: str, required: Sequence[str] = ()) -> str:
    """Say what argparse or jsonargparse says in a sentence of ours. required: options that must be
    given, for who typed their values bare."""
    message = " ".join(message.split())
    see_help = f"see `{typed_name(verb)} --help`"
    if found := re.fullmatch("the following arguments are required: (.*)", message):
        lacking = [
            f"--{name}" if f"--{name}" in required else name
            for name in found[1].replace("_", "-").split(", ")
        ]
        return f"`{typed_name(verb)}` needs {', '.join(lacking)}; {see_help}"
    if found := re.fullmatch("unrecognized arguments: (.*)", message):
        named = f"; it needs {' and '.join(required)}" if required else ""
        short = [
            f"{flags[0]} is {flags[-1]}"
            for flags in MANNER
            for name in required
            if flags[0] == name[1:3]
        ]  # -q for --question
        if short:
            named += f" ({', '.join(short)})"
        return f"`{typed_name(verb)}` has no argument {found[1]}{named}; {see_help}"
    message = re.sub(r"^argument (--)?", lambda m: m[1] or "", message)
    if found := re.search(r"invalid choice: '([^']*)' \(choose from (.*?)\)", message):
        near = get_close_matches(found[1], re.findall(r"[\w.-]+", found[2]), 1)
        message += "".join(f"; did you mean {name}?" for name in near)
    return f"{message} (`{typed_name(verb)}`)"
