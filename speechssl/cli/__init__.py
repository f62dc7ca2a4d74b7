"""The command line: verbs only, a file a group of them. What a verb does lives in the room it calls."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from speechssl import __version__
from speechssl.cli.answer import add_answer
from speechssl.cli.encoders import add_convert
from speechssl.cli.evaluate import add_compare, add_evaluate, add_report
from speechssl.cli.parser import Help, parse
from speechssl.cli.prepare import add_prepare, spelt
from speechssl.cli.pretrain import add_pretrain
from speechssl.cli.superb import add_superb
from speechssl.cli.train import add_train
from speechssl.cli.units import add_units
from speechssl.errors import InputError
from speechssl.io import unusable
from speechssl.processes import is_main, leave

ABOUT = """Self-supervised speech encoders, the units they give, and spoken questions answered from them.

  speechssl answer --passage lecture.mp3 --question question.wav
  speechssl units extract recordings/ minisqa-en-robust/encoder minisqa-en-robust/units.safetensors units
  speechssl VERB --help

Every option of a verb can also stand in a YAML file, under its name without the dashes (switches as true or false):
`--config recipes/minisqa/base.yaml --stage hubert-1` takes the defaults of this call from the section `hubert-1`; what is typed
wins.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code: 0, or 2 after one sentence on what was wrong with the input."""
    parser = build_parser()
    try:
        options = parse(parser, spelt(list(sys.argv[1:] if arguments is None else arguments)))
        _quiet()
        options.run(options)
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
        print("speechssl: stopped; the same command goes on from what is written, or else begins again", file=sys.stderr)
        return 130
    return 0


def _quiet() -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not is_main():  # it says what the first process says
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("speechssl", description=ABOUT, formatter_class=Help)
    parser.add_argument("--version", action="version", version=f"speechssl {__version__}")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    add_prepare(verbs)
    add_convert(verbs)
    add_pretrain(verbs)
    add_units(verbs)
    add_train(verbs)
    add_evaluate(verbs)
    add_compare(verbs)
    add_superb(verbs)
    add_report(verbs)
    add_answer(verbs)
    return parser
