"""What several verbs have in common: their making, their help, the options of training."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speechssl.errors import InputError
from speechssl.io import SHIPPED
from speechssl.trainer import HUBERT, Adam

# Options of a command line: numbers in their range, and defaults from a section of a YAML file.
#
# Every option of a verb can stand in the file under its name without the dashes, switches as true or false.


def parse(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Parse twice when a config is given: once to find the verb and the file, once with the file's defaults."""
    known, _ = config_parser().parse_known_args(arguments)
    if known.config is None:
        return parser.parse_args(arguments)
    section = _section(Path(known.config), known.stage)
    for verb in verbs_of(parser):
        if _is_called(verb, arguments):
            take_defaults(verb, section, f"{known.config}: the section {known.stage}")
    return parser.parse_args(arguments)


def take_defaults(verb: argparse.ArgumentParser, section: dict[str, Any], where: str) -> None:
    """Let the section's values be the defaults of a verb; what is there need not be typed."""
    options = {name.removeprefix("--"): a for a in verb._actions for name in a.option_strings if name.startswith("--")}
    for name, value in section.items():
        if name not in options:
            raise InputError(f"{where} has {name!r}, which `{verb.prog}` does not take")
        action = options[name]
        if isinstance(action, (argparse._StoreTrueAction, argparse._StoreFalseAction)):
            if not isinstance(value, bool):
                raise InputError(f"{where} has {value!r} for {name}; write true or false")
            value = action.const if value else not action.const
        elif action.nargs is None and isinstance(value, (list, dict)):
            raise InputError(f"{where} has {value!r} for {name}; give one value")
        elif action.nargs is not None:
            value = _list(action, value if isinstance(value, list) else [value], where)
        else:
            value = _converted(action, value, where)
        action.required = False
        verb.set_defaults(**{action.dest: value})


def _list(action: argparse.Action, values: list[Any], where: str) -> list[Any]:
    """Raises InputError unless there are as many as the option takes."""
    if isinstance(action.nargs, int) and len(values) != action.nargs:
        raise InputError(f"{where} has {values!r} for {action.option_strings[-1]}; give {action.nargs} values")
    return [_converted(action, value, where) for value in values]


def _converted(action: argparse.Action, value: Any, where: str) -> Any:
    """A value of the file as the type of its option; YAML reads 3e-4 as text and seed: 1 as a number."""
    if value is None or action.type is None:
        return value if value is None else str(value)
    try:
        converted = action.type(str(value))  # type: ignore[operator]
    except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
        raise InputError(f"{where} has {value!r} for {action.option_strings[-1]} ({error}); mend it") from error
    if action.choices is not None and converted not in action.choices:
        raise InputError(f"{where} has {value!r} for {action.option_strings[-1]}; choose from {', '.join(action.choices)}")
    return converted


def config_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--config", help="YAML file with a section of options a stage")
    parser.add_argument("--stage", help="which section of --config")
    return parser


def _section(path: Path, stage: str | None) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"cannot read the config {path} ({str(error).splitlines()[0]}); check the path") from error
    if not isinstance(content, dict) or stage not in content:
        known = ", ".join(map(str, content)) if isinstance(content, dict) else "none"
        raise InputError(f"{path} has no section {stage!r}; its sections are {known}; name one with --stage")
    section = content[stage] or {}
    if not isinstance(section, dict):
        raise InputError(f"{path}: the section {stage} is {section!r}; write its options as `name: value`, one a line")
    return {str(name): value for name, value in section.items()}


def verbs_of(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found: list[argparse.ArgumentParser] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                found += verbs_of(child) or [child]
    return found


def _is_called(verb: argparse.ArgumentParser, arguments: list[str]) -> bool:
    words = verb.prog.split()[1:]
    return arguments[: len(words)] == words


def count(text: str) -> int:
    """A whole number from 1."""
    return _number(text, int, 1)


def whole(text: str) -> int:
    """A whole number from 0."""
    return _number(text, int, 0)


def share(text: str) -> float:
    """A number from 0 to 1."""
    return _number(text, float, 0, 1)


def portion(text: str) -> float:
    """A number above 0 and at most 1."""
    return _number(text, float, sys.float_info.min, 1)


def amount(text: str) -> float:
    """A number above 0."""
    return _number(text, float, sys.float_info.min)


def weight(text: str) -> float:
    """A number from 0 up."""
    return _number(text, float, 0)


def _number(text: str, kind: Callable[[str], Any], low: float, high: float = sys.float_info.max) -> Any:
    try:
        value = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' if kind is int else ''}number") from None
    if not low <= value <= high:
        bounds = "from 1" if low == 1 else "from 0" if low == 0 else "above 0"
        bounds += f"{' and at most' if low > 0 else ' to'} {high:g}" if high == 1 else ""
        raise argparse.ArgumentTypeError(f"{text} is out of range; give a number {bounds}")
    return value


Handler = Callable[[argparse.Namespace], None]


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Tells the default of every option that has one, but for switches."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.required or action.nargs == 0:
            return action.help
        if isinstance(action.default, list):
            shown = " ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in action.default)
            return f"{action.help} (default: {shown})" if shown else action.help
        if action.default == "":
            return action.help
        return super()._get_help_string(action)


def snr_over_flag(verb: argparse.ArgumentParser, default: str | None = "active") -> None:
    """default: None for verbs that tell what was typed from what was not."""
    over = "what of the speech an SNR is measured over: its active parts, or the whole signal with its pauses, as arXiv 2210.07978"
    over += "" if default else "; default: active"
    verb.add_argument("--snr-over", choices=("active", "signal"), default=default, help=over)


DRAWN = "drawn at random by --seed; default: 0.1, but 400 recordings at least, where there are as many"


def add_verb(verbs: Any, name: str, run: Handler, about: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=about.splitlines()[0], description=about, parents=[config_parser()], formatter_class=Help)
    verb.set_defaults(run=run)
    return verb


def trained(name: str) -> Path:
    """The type of an option: a folder of something trained, or one that ships by its name, such as minisqa-en-robust/text-qa."""
    shipped = SHIPPED / name
    return shipped if (shipped / "card.json").is_file() else Path(name)


def add_group(verbs: Any, name: str, about: str) -> Any:
    return verbs.add_parser(name, help=about, description=about).add_subparsers(required=True, metavar="WHAT")


def training_flags(
    verb: argparse.ArgumentParser,
    steps: int | None = None,
    learning_rate: float | None = None,
    warmup: int | None = None,
    adam: Adam = HUBERT,
) -> None:
    """Without numbers their defaults are those of --size. adam: of the source of what is trained."""
    clip, saves, logs, of_size = (1.0, 250, 50, "") if steps else (None, None, None, "; default: of --size")
    verb.add_argument("--steps", type=count, default=steps, help=f"optimiser updates{of_size}")
    verb.add_argument("--horizon", type=count, help="steps the schedule is laid out for, where training stops earlier")
    verb.add_argument("--learning-rate", type=amount, default=learning_rate, help=f"peak{of_size}")
    rises = f"steps over which the learning rate rises to its peak{of_size}"
    verb.add_argument("--warmup-steps", type=whole, default=warmup, help=rises)
    betas, epsilon, decay = (list(adam.adam_betas), adam.adam_epsilon, adam.weight_decay) if steps else (None, None, None)
    averages = f"AdamW's decay of the mean gradient and of the mean square{of_size}"
    verb.add_argument("--adam-betas", type=share, nargs=2, default=betas, metavar=("B1", "B2"), help=averages)
    verb.add_argument("--adam-epsilon", type=amount, default=epsilon, help=f"AdamW's, beside the root of the mean square{of_size}")
    verb.add_argument("--weight-decay", type=weight, default=decay, help=f"AdamW's; biases and layer norms have none{of_size}")
    verb.add_argument("--accumulation", type=count, default=1, help="batches that make one update, where memory is short")
    verb.add_argument("--clip", type=weight, default=clip, help=f"largest gradient norm; 0: any{of_size}")
    kept = f"steps between checkpoints; a killed run resumes from the last{of_size}"
    verb.add_argument("--save-every", type=count, default=saves, help=kept)
    verb.add_argument("--log-every", type=count, default=logs, help=f"steps between lines of checkpoints/log.jsonl{of_size}")
    verb.add_argument("--no-bf16", dest="bf16", action="store_false", help="train in float32, not with bf16 autocast")
    verb.add_argument("--seed", type=whole, default=0, help="of weights and batches")
    verb.add_argument(
        "--tensorboard",
        action="store_true",
        help="log for TensorBoard in checkpoints/tensorboard too (needs speechssl[tensorboard])",
    )


TRAINING = (
    *("steps", "horizon", "learning_rate", "warmup_steps", "accumulation", "clip", "save_every", "log_every"),
    *("adam_betas", "adam_epsilon", "weight_decay", "bf16", "seed", "tensorboard"),
)


def training_options(o: argparse.Namespace) -> Any:
    from speechssl.trainer import TrainingOptions

    return TrainingOptions(**{name: getattr(o, name) for name in TRAINING if getattr(o, name) is not None})


CHECKPOINTS = "encoder folder, .pt file, hub id, shipped name or torchaudio:NAME"  # that can be trained
ENCODERS = "encoder folder, .pt file, hub id, shipped name, torchaudio:NAME or s3prl:NAME"
