"""`speechssl report`: a page from what was evaluated."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from speechssl.cli.shared import add_verb
from speechssl.options import whole

REPORT = """report.html from what `evaluate` left in a folder

One self-contained page: tables, figures, and questions to listen to with what was answered.

  speechssl report exp/mine corpus
  speechssl report exp/robust
  speechssl report exp/superb
"""


def add_report(verbs: Any) -> None:
    verb = add_verb(verbs, "report", _report, REPORT)
    verb.add_argument("out", type=Path, help="folder that `evaluate` wrote to; gets report.html")
    verb.add_argument("corpus", type=Path, nargs="?", help="prepared corpus of the questions; none for a robustness grid or SUPERB")
    verb.add_argument("--split", default="test", help="train, dev, test, or any other that the corpus has")
    verb.add_argument("--examples", type=whole, default=20, help="questions to listen to")
    verb.add_argument(
        "--conditions", nargs="+", default=["clean", "pink@5"], help="the examples are taken from these, as far as evaluated"
    )
    verb.add_argument(
        "--seed", type=whole, default=0, help="of the draw of examples and of the bootstrap; the noise is what `evaluate` used"
    )
    verb.add_argument("--tables", type=Path, nargs="*", default=[], help="JSON tables to print beside the results")
    verb.add_argument("--voices", type=Path, nargs="*", default=[], help="recordings that `evaluate` made babble from")


def _report(o: argparse.Namespace) -> None:
    from speechssl.evaluation.listening import write_report

    write_report(o.out, o.corpus, o.split, o.examples, o.conditions, o.seed, o.tables, o.voices)
    print(f"{o.out / 'report.html'}: open it in a browser")
