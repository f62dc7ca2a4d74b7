"""The command line: finds the verb, makes its options from the dataclass of its room, and runs it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stderr
from typing import Any

from speechssl import __version__
from speechssl.cli.parser import about, meant, parse
from speechssl.cli.verbs import GROUPS, VERBS, config_of
from speechssl.errors import InputError
from speechssl.io import unusable
from speechssl.processes import is_main, leave

ABOUT = """usage: speechssl VERB [options]

Speech understanding with self-supervised encoders: discrete units, spoken question answering (DUAL), SUPERB.

  speechssl answer --passage lecture.mp3 --question question.wav
  speechssl units extract recordings/ minisqa-en-robust/encoder minisqa-en-robust/units.safetensors units
  speechssl VERB --help

Every option of a verb can also stand in a YAML file, under its name without the dashes (switches as true or false):
`--config recipes/minisqa/base.yaml --stage hubert-1` reads the options of a call from the section `hubert-1`, and --config alone
from a file without sections. Options on the command line have precedence. --print_config prints such a file."""


class Lines:
    """A log file in the place of a terminal. Of a line that is written over again and again (a progress bar, by a carriage return)
    it gets what stands there every EVERY seconds, and the last; empty lines, which bars leave where they end, are left out."""

    EVERY = 30.0

    def __init__(self, file: Any) -> None:
        self.file, self.line, self.written = file, "", time.monotonic()

    def write(self, text: str) -> int:
        for part in re.split(r"([\r\n])", text):
            due = part == "\n" or (part == "\r" and time.monotonic() - self.written >= self.EVERY)
            if due and (line := self.line.replace("\x1b[A", "").rstrip()):  # a bar below another moves up
                self.file.write(f"{line}\n")
                self.file.flush()
                self.written = time.monotonic()
            self.line = "" if part in ("\r", "\n") else self.line + part
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code: 0, or 2 after one sentence on what was wrong with the input."""
    try:
        config = parse_arguments(list(sys.argv[1:] if arguments is None else arguments))
        if config is not None:
            _quiet()
            with nullcontext() if sys.stderr.isatty() else redirect_stderr(Lines(sys.stderr)):
                config.run()
            leave()
    except InputError as error:
        print(f"speechssl: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a folder that cannot be written, a full disk
        print(f"speechssl: {unusable(error)}", file=sys.stderr)
        return 2
    except FloatingPointError as error:
        print(f"speechssl: training stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("speechssl: stopped; the same command resumes from what is written, or else starts again", file=sys.stderr)
        return 130
    return 0


def parse_arguments(arguments: list[str]) -> Any:
    """The options of a call as the dataclass of its verb; None where help or version was printed. Raises InputError."""
    words = [word.replace("_", "-") for word in arguments[:2]]
    for verb in (" ".join(words[:1]), " ".join(words)):
        if verb in VERBS:
            return parse(verb, config_of(verb), arguments[len(verb.split()) :])
    if arguments[:1] == ["--version"]:
        print(f"speechssl {__version__}")
        return None
    group = words[0] if words and words[0] in GROUPS else ""
    if not arguments or any(word in ("-h", "--help") for word in arguments[:2]):
        print(overview(group))
        return None
    inside = [verb.removeprefix(f"{group} ") for verb in VERBS if verb.startswith(f"{group} ")]
    if group and len(words) == 1:
        raise InputError(f"`speechssl {group}` needs a verb: {', '.join(inside)}")
    typed, known = (words[1], inside) if group else (words[0], [*GROUPS, *VERBS])
    raise InputError(f"`speechssl{' ' * bool(group)}{group}` has no verb {typed}{meant(typed, known)}")


def overview(group: str) -> str:
    """The help of `speechssl`, or of the verbs of a group."""
    verbs = sorted((verb for verb in VERBS if not group or verb.startswith(f"{group} ")), key=lambda verb: " " in verb)
    width = max(map(len, verbs)) + 2
    lines = [f"usage: speechssl {group} VERB [options]\n\n{GROUPS[group]}" if group else ABOUT]
    heading = None
    for verb in verbs:
        first, _, more = verb.partition(" ")
        if heading != (heading := first if more else ""):
            lines.append("\nverbs:" if group or not more else f"\n{GROUPS[first]}:")
        lines.append(f"  {verb:<{width}}{about(config_of(verb)).splitlines()[0]}")
    return "\n".join(lines)


def _quiet() -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not is_main():  # the first process prints for all
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if "transformers" in sys.modules:  # which has read these already
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
