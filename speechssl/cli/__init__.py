"""The command line: finds the verb, makes its options from the dataclass of its room, and runs
it."""

from __future__ import annotations

import inspect
import json
import os
import re
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

from speechssl import __version__
from speechssl.artifacts import CARD, describe_refusal, name_refused_file, read_json, write_json
from speechssl.cli.parser import (
    Manner,
    first_paragraph,
    name_as_typed,
    options_of,
    parse,
    suggest_name,
    take_manner,
)
from speechssl.cli.verbs import GROUPS, VERBS, config_of, function_of
from speechssl.errors import InputError, one_line, pop_set_aside
from speechssl.options import use_device
from speechssl.processes import is_main, peak_gpu_memory, peak_memory, wait_before_exit

ABOUT = """usage: speechssl VERB [options]

Speech understanding with self-supervised encoders: discrete units, spoken question answering
(DUAL), SUPERB.

  speechssl answer --passage lecture.mp3 --question question.wav
  speechssl units extract recordings/ people-en/encoder people-en/units.safetensors units
  speechssl VERB --help

Every option of a verb can also stand in a YAML file, under its name without the dashes (switches
as true or false): `--config recipes/minisqa/base.yaml --stage hubert-1` reads the options of a
call from the section `hubert-1`, and --config alone from a file without sections. Options on the
command line have precedence. --print_config prints such a file.

Every verb takes --json (print the result as one JSON value; everything else goes to stderr), -q
(print results and errors only), -v (also print warnings of libraries, where an error arose, time
and memory) and --strict. `speechssl --version -v` prints versions.

Exit codes: 0 done; 1 training diverged; 2 bad input, in one sentence on stderr; 3 done, but items
were set aside and --strict is given; 130 stopped by the keyboard."""
PATIENCE = 10.0  # seconds until another process than the first says what was wrong with its input
USAGE = "SPEECHSSL_USAGE"  # environment variable: a file that gets what every verb took
# options that are a file or a folder which is there already, and never a name on the hub or of what
# ships
INPUTS = (
    "alignment",
    "answers",
    "corpus",
    "data",
    "errors",
    "file",
    "first",
    "joblib",
    "lm",
    "manifest",
    "second",
    "second_text",
    "second_units",
    "shift",
    "source",
    "symbols",
    "text",
    "units",
    "voices",
    "word_units",
    "words",
)
PACKAGES = (
    "torch",
    "torchaudio",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "scikit-learn",
    "soundfile",
    "pyarrow",
)


class Lines:
    """A log file takes the place of a terminal. Of a line that is written over again and again (a
    progress bar, by a carriage return) it gets what stands there every EVERY seconds, and the last;
    empty lines, which bars leave where they end, are left out."""

    EVERY = 30.0

    def __init__(self, file: Any) -> None:
        self.file = file
        self.line = ""
        self.written = time.monotonic()

    def write(self, text: str) -> int:
        for part in re.split(r"([\r\n])", text):
            due = part == "\n" or (part == "\r" and time.monotonic() - self.written >= self.EVERY)
            # a bar below another moves up
            if due and (line := self.line.replace("\x1b[A", "").rstrip()):
                self.file.write(f"{line}\n")
                self.file.flush()
                self.written = time.monotonic()
            self.line = "" if part in ("\r", "\n") else self.line + part
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code: 0; 2 after one sentence on what was wrong with the
    input; the others are in ABOUT."""
    manner, typed = take_manner(sys.argv[1:] if arguments is None else arguments)
    return _attempt(partial(parse_arguments, typed, manner), manner)


def script(
    function: Callable[[Any], Any], options: type, arguments: Sequence[str] | None = None
) -> int:
    """Run a recipe's own function as `main` runs a verb. options: the dataclass that it takes."""
    manner, typed = take_manner(sys.argv[1:] if arguments is None else arguments)
    file = Path(inspect.getfile(function))
    program = f"python {'/'.join(file.parts[-3:])}"  # recipes/NAME/FILE.py
    return _attempt(partial(parse, program, options, typed), manner, function)


def _attempt(
    read: Callable[[], Any], manner: Manner, function: Callable[[Any], Any] | None = None
) -> int:
    """Read the options, call the function with them, and make exit codes of what is raised.

    function: None for that of the verb which the options are of.
    """
    config = None
    try:
        config = read()
        if config is not None:
            _run(function, config, manner)
            wait_before_exit()
    except BrokenPipeError:  # `| head` has read enough
        # what is left in the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as of a program that the signal ends
    except (InputError, OSError) as error:  # OSError: a folder that cannot be written, a full disk
        # the first process says what it meets too, and torchrun ends this one when that has ended
        if not is_main():
            time.sleep(PATIENCE)
        if manner.verbose:
            traceback.print_exc()
        sentence = str(error) if isinstance(error, InputError) else describe_refusal(error)
        sentence = f"speechssl: {one_line(name_as_typed(sentence, config))}"
        print(sentence, file=sys.stderr)
        # torchrun prints a traceback of its own, and this at the end of it
        if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
            with suppress(OSError):
                write_json(file, {"message": sentence, "timestamp": int(time.time())})
        return 2
    except FloatingPointError as error:
        print(f"speechssl: training stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "speechssl: stopped; the same command resumes from what is written, or else starts "
            "again",
            file=sys.stderr,
        )
        return 130
    if manner.strict and (number := pop_set_aside()):
        print(
            f"speechssl: {number} {'items were' if number > 1 else 'item was'} set aside "
            "(--strict)",
            file=sys.stderr,
        )
        return 3
    return 0


def _run(function: Callable[[Any], Any] | None, config: Any, manner: Manner) -> None:
    """Run a verb, and print what it says, or with --json what it returns; where that is nothing,
    what it made."""
    pop_set_aside()  # of a call before, in one process
    _quiet_libraries(manner.verbose)
    started, out = time.monotonic(), sys.stdout
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        if not manner.verbose:  # a line, without the code that gave it
            warnings.showwarning = lambda message, *_, **__: print(
                f"warning: {message}", file=sys.stderr
            )
        if manner.quiet:
            stack.enter_context(redirect_stderr(stack.enter_context(open(os.devnull, "w"))))
        elif not sys.stderr.isatty():
            stack.enter_context(redirect_stderr(Lines(sys.stderr)))
        if manner.json:
            stack.enter_context(redirect_stdout(sys.stderr))
        with name_refused_file("a file"):
            _check_inputs(config)
            if device := getattr(config, "device", None):
                use_device(device)
            # imported no sooner, for most import torch, which takes seconds
            if function is None:
                function = function_of(config)
            result = function(config)
    if os.environ.get(USAGE) and is_main():
        _record_usage(config, time.monotonic() - started)
    if manner.json:
        if result is None:
            result = _read_product(config)
        print(json.dumps(result, ensure_ascii=False, indent=1, default=str), file=out)
    if manner.verbose:
        print(
            f"took {time.monotonic() - started:.1f} s; peak memory {peak_memory():.2f} GB",
            file=sys.stderr,
        )


def _check_inputs(config: Any) -> None:
    """Refuse, by an InputError, an input that is not there, before torch is loaded, which takes
    seconds; `prepare` needs none, and says what its folders should hold."""
    if config.__module__.startswith("speechssl.data"):
        return
    for option in options_of(type(config), config):
        if option.name not in INPUTS:
            continue
        flag = f"--{option.name.replace('_', '-')}"
        name = option.name if option.metadata.get("positional") else flag
        for path in option.default if isinstance(option.default, tuple) else (option.default,):
            if isinstance(path, Path) and not path.exists():
                raise InputError(f"{path} does not exist; check {name} ({option.metadata['help']})")


def _read_product(config: Any) -> Any:
    """Return the rows of the results that a verb adds to, or the card of what it made: of a folder,
    of the encoder in it, or of a file."""
    if hasattr(config, "results"):
        from speechssl.results import list_rows  # imports NumPy

        return list_rows(config.results)
    out = Path(config.out)
    product: dict[str, Any] = {"out": str(out)}
    for path in (out / CARD, out / "encoder" / CARD, out.with_suffix(f".{CARD}")):
        if path.is_file():
            return product | {"card": read_json(path)}
    return product


def _record_usage(config: Any, seconds: float) -> None:
    """Add a line to the file that $SPEECHSSL_USAGE names, in the folder of a recipe's run: what a
    verb took, by its stage."""
    file = Path(os.environ[USAGE])
    disk = 0.0
    for folder, _, names in os.walk(file.parent):
        for name in names:
            # another verb of the run may have removed it meanwhile
            with suppress(FileNotFoundError):
                found = os.lstat(os.path.join(folder, name))
                disk += found.st_size / 2**30 if stat.S_ISREG(found.st_mode) else 0
    places = [str(getattr(config, name)) for name in ("corpus", "out") if hasattr(config, name)]
    line = {
        "stage": os.environ.get("SPEECHSSL_STAGE", ""),
        "command": " ".join([type(config).__name__, *places]),
        "seconds": round(seconds, 1),
        "peak_gb": round(peak_memory(), 3),
        "gpu_gb": round(peak_gpu_memory(), 3),
        "disk_gb": round(disk, 3),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")


def parse_arguments(arguments: list[str], manner: Manner = Manner()) -> Any:
    """Return the options of a call as the dataclass of its verb; None where help or version was
    printed. Raises InputError."""
    if arguments[:1] == ["help"]:  # `speechssl help units fit`
        arguments = [*arguments[1:], "--help"]
    words = [word.replace("_", "-") for word in arguments[:2]]
    for verb in (" ".join(words[:1]), " ".join(words)):
        if verb in VERBS:
            return parse(verb, config_of(verb), arguments[len(verb.split()) :])
    if arguments[:1] == ["--version"]:
        print(versions() if manner.verbose else f"speechssl {__version__}")
        return None
    group = words[0] if words and words[0] in GROUPS else ""
    if not words or words[bool(group) :][:1] in (["-h"], ["--help"]):
        print(overview(group))
        return None
    inside = [verb.removeprefix(f"{group} ") for verb in VERBS if verb.startswith(f"{group} ")]
    if group and len(words) == 1:
        raise InputError(f"`speechssl {group}` needs a verb: {', '.join(inside)}")
    first = [*GROUPS, *(verb for verb in VERBS if " " not in verb), "--version", "--help"]
    typed, known = (words[1], inside) if group else (words[0], first)
    # `speechssl extract` for `speechssl units extract`
    second = [verb for verb in VERBS if verb.endswith(f" {typed}")]
    hint = suggest_name(typed, known)
    if second and not group:
        hint = f"; did you mean {' or '.join(second)}?"
    what = "option" if typed.startswith("-") else "verb"
    raise InputError(f"`speechssl{' ' * bool(group)}{group}` has no {what} {typed}{hint}")


def versions() -> str:
    """List the versions of this package, of Python, and of what results depend on, a line each."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    lines = [
        f"speechssl {__version__}",
        f"python {platform.python_version()} ({platform.platform()})",
    ]
    for name in PACKAGES:
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name} is not installed")
    return "\n".join(lines)


def overview(group: str) -> str:
    """List the verbs of a group, or with "" all, the shortest first, and a line about each."""
    verbs = [verb for verb in VERBS if not group or verb.startswith(f"{group} ")]
    verbs.sort(key=lambda verb: " " in verb)
    width = max(map(len, verbs)) + 2
    lines = [f"usage: speechssl {group} VERB [options]\n\n{GROUPS[group]}" if group else ABOUT]
    heading = None
    for verb in verbs:
        first, _, more = verb.partition(" ")
        before = heading
        heading = first if more else ""
        if heading != before:
            lines.append("\nverbs:" if group or not more else f"\n{GROUPS[first]}:")
        lines.append(f"  {verb:<{width}}{first_paragraph(config_of(verb))}")
    return "\n".join(lines)


def _quiet_libraries(verbose: bool) -> None:
    """Keep what libraries say of themselves off the terminal, but for verbose."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not is_main():  # the first process prints for all
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if verbose:
        return
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # or every process warns of how DistributedDataParallel was built
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if "transformers" in sys.modules:  # which has read these already
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
