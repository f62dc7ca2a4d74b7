"""The command line: finds the verb, makes its options from the dataclass of its room, and runs
it."""

from __future__ import annotations

import inspect
import json
import os
import platform
import sys
import time
import traceback
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from speechssl import __version__
from speechssl.artifacts import CARD, describe_refusal, name_refused_file, read_json
from speechssl.cli.parser import describe_verb, parse, suggest_name
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
command line have precedence. --print-config prints such a file.

Every verb takes --json (print the result as one JSON value; everything else goes to stderr), -q
(print results and errors only), -v (also print warnings of libraries, where an error arose, time
and memory) and --strict. `speechssl --version -v` prints versions.

Exit codes: 0 done; 1 training diverged; 2 bad input, in one sentence on stderr; 3 done, but items
were set aside and --strict is given; 130 stopped by the keyboard."""
USAGE = "SPEECHSSL_USAGE"  # environment variable: a file that gets what every verb took
PACKAGES = (
    "torch torchaudio transformers tokenizers safetensors numpy scikit-learn soundfile pyarrow"
).split()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code: 0; 2 after one sentence on what was wrong with the
    input; the others are in ABOUT."""
    return _attempt(partial(parse_arguments, sys.argv[1:] if arguments is None else arguments))


def script(
    function: Callable[[Any], Any], options: type, arguments: Sequence[str] | None = None
) -> int:
    """Run a recipe's own function as `main` runs a verb. options: the dataclass that it takes."""
    typed = sys.argv[1:] if arguments is None else arguments
    file = Path(inspect.getfile(function))
    program = f"python {'/'.join(file.parts[-3:])}"  # recipes/NAME/FILE.py
    return _attempt(partial(parse, program, options, typed), function)


def _attempt(
    read: Callable[[], tuple[Any, Namespace] | None], function: Callable[[Any], Any] | None = None
) -> int:
    """Read the options, call the function with them, and make exit codes of what is raised.

    function: None for that of the verb which the options are of.
    """
    verbose = strict = False
    try:
        call = read()
        if call is not None:
            options, typed = call
            verbose, strict = typed.verbose, typed.strict
            _run(function, options, typed)
            wait_before_exit()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough; what is left in the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as of a program that the signal ends
    except (InputError, OSError) as error:  # OSError: a folder that cannot be written, a full disk
        if verbose:
            traceback.print_exc()
        sentence = str(error) if isinstance(error, InputError) else describe_refusal(error)
        print(f"speechssl: {one_line(sentence)}", file=sys.stderr)
        return 2
    except FloatingPointError as error:
        print(f"speechssl: training stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("speechssl: stopped; the same command resumes what is written", file=sys.stderr)
        return 130
    set_aside = pop_set_aside()
    if strict and set_aside:
        print(f"speechssl: {set_aside} set aside (--strict)", file=sys.stderr)
        return 3
    return 0


def _run(function: Callable[[Any], Any] | None, options: Any, manner: Namespace) -> None:
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
        if manner.json:
            stack.enter_context(redirect_stdout(sys.stderr))
        with name_refused_file("a file"):
            if device := getattr(options, "device", None):
                use_device(device)
            # imported no sooner, for most import torch, which takes seconds
            result = (function or function_of(options))(options)
    seconds = time.monotonic() - started
    if os.environ.get(USAGE) and is_main():
        _record_usage(options, seconds)
    if manner.json:
        if result is None:
            result = _read_product(options)
        print(json.dumps(result, ensure_ascii=False, indent=1, default=str), file=out)
    if manner.verbose:
        print(f"took {seconds:.1f} s; peak memory {peak_memory():.2f} GB", file=sys.stderr)


def _read_product(options: Any) -> Any:
    """Return the rows of the results that a verb adds to, or the card of what it made: of a folder,
    of the encoder in it, or of a file."""
    if hasattr(options, "results"):
        from speechssl.results import list_rows  # imports NumPy

        return list_rows(options.results)
    out = Path(options.out)
    for path in (out / CARD, out / "encoder" / CARD, out.with_suffix(f".{CARD}")):
        if path.is_file():
            return {"out": str(out), "card": read_json(path)}
    return {"out": str(out)}


def _record_usage(options: Any, seconds: float) -> None:
    """Add a line to the file that $SPEECHSSL_USAGE names, in the folder of a recipe's run: what a
    verb took, by its stage."""
    file = Path(os.environ[USAGE])
    disk = 0
    for path in file.parent.rglob("*"):
        with suppress(FileNotFoundError):  # another verb of the run may have removed it meanwhile
            disk += path.lstat().st_size
    places = [str(getattr(options, name)) for name in ("corpus", "out") if hasattr(options, name)]
    line = {
        "stage": os.environ.get("SPEECHSSL_STAGE", ""),
        "command": " ".join([type(options).__name__, *places]),
        "seconds": round(seconds, 1),
        "peak_gb": round(peak_memory(), 3),
        "gpu_gb": round(peak_gpu_memory(), 3),
        "disk_gb": round(disk / 2**30, 3),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")


def parse_arguments(arguments: Sequence[str]) -> tuple[Any, Namespace] | None:
    """Return the options of a call as the dataclass of its verb, and all values by name; None where
    help or a version was printed. Raises InputError."""
    words = list(arguments)
    if words[:1] == ["help"]:  # `speechssl help units fit`
        words = [*words[1:], "--help"]
    for length in (1, 2):
        verb = " ".join(words[:length])
        if verb in VERBS:
            return parse(f"speechssl {verb}", config_of(verb), words[length:])
    if words[:1] == ["--version"]:
        print(versions() if {"-v", "--verbose"} & {*words} else f"speechssl {__version__}")
        return None
    group = words[0] if words and words[0] in GROUPS else ""
    typed = words[1:] if group else words
    if not words or typed[:1] in (["-h"], ["--help"]):
        print(overview(group))
        return None
    if not typed:
        raise InputError(f"`speechssl {group}` needs a verb (see `speechssl {group} --help`)")
    verb = " ".join(words[:2] if group else words[:1])
    raise InputError(f"speechssl has no verb {verb}{suggest_name(verb, [*VERBS, *GROUPS])}")


def versions() -> str:
    """List the versions of this package, of Python, and of what results depend on, a line each."""
    python = f"python {platform.python_version()} ({platform.platform()})"
    packages = [f"{name} {version(name)}" for name in PACKAGES]
    return "\n".join([f"speechssl {__version__}", python, *packages])


def overview(group: str) -> str:
    """List the verbs of a group, or with "" all, the shortest first, and a line about each."""
    verbs = [verb for verb in VERBS if not group or verb.startswith(f"{group} ")]
    verbs.sort(key=lambda verb: " " in verb)
    width = max(map(len, verbs)) + 2
    lines = [f"usage: speechssl {group} VERB [options]\n\n{GROUPS[group]}" if group else ABOUT]
    last_heading = ""
    for verb in verbs:
        first = verb.partition(" ")[0]
        heading = "verbs" if group or first == verb else GROUPS[first]
        if heading != last_heading:
            lines.append(f"\n{heading}:")
        last_heading = heading
        about = describe_verb(config_of(verb)).split("\n\n")[0].replace("\n", " ")
        lines.append(f"  {verb:<{width}}{about}")
    return "\n".join(lines)


def _quiet_libraries(verbose: bool) -> None:
    """Keep what libraries say of themselves off the terminal, but for verbose."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not sys.stderr.isatty():  # a log file gets a line of a progress bar now and then
        os.environ.setdefault("TQDM_MININTERVAL", "30")
    if not is_main():  # the first process prints for all
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if verbose:
        return
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # or every process warns of how DistributedDataParallel was built
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
