"""`speechssl compare`: systems beside each other; `speechssl evaluate confusions`: the errors that its sweeps simulate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from speechssl.cli.shared import add_verb, snr_over_flag
from speechssl.options import count, whole

CONFUSIONS = """confusions.json: which errors a recogniser makes, to simulate more or fewer of them

Fitted on what a recogniser makes of a split that nothing is tested on. `evaluate qa` reads it for systems such as
cascade-simulated@30: text QA on the reference text with errors of this kind at a WER of 30 %.

  speechssl evaluate confusions corpus exp/errors --models exp/models --asr ctc --split dev
  speechssl evaluate qa corpus exp/sweep --systems text cascade-simulated@10 cascade-simulated@30 --conditions clean \\
    --errors exp/errors/confusions.json
"""

COMPARE = """systems beside each other: tables, paired tests, where the lines cross, and which answers are missed

Reads what `evaluate` left in folders, and pairs what is about the same questions. Without --pairs every system without a transcript
is tested against every other. A sweep of the word error rate is several conditions of one cascade, cascades with several
recognisers, or cascade-simulated@WER. Leaves compare.json, tables.md and compare.html in --out.

  speechssl compare exp/mine exp/sweep --out exp/compare
  speechssl compare exp/nmsqa/dev exp/nmsqa/test --pairs dual,cascade-ctc --metric ff1
"""


def add_compare(verbs: Any) -> None:
    verb = add_verb(verbs, "compare", _compare, COMPARE)
    verb.add_argument("results", type=Path, nargs="+", help="folders that `evaluate` wrote to")
    verb.add_argument("--out", type=Path, default=Path("exp/compare"), help="folder; gets compare.json, tables.md, compare.html")
    verb.add_argument("--metric", default="", help="ff1, f1, em, aos, set_accuracy or accuracy; default: the first that is there")
    verb.add_argument("--pairs", nargs="+", default=[], metavar="A,B", help="systems to test against each other")
    verb.add_argument("--systems", nargs="+", default=[], help="only these")
    verb.add_argument("--common", action="store_true", help="compare on the questions that all systems of a corpus have")
    verb.add_argument("--seed", type=whole, default=0, help="of the bootstrap")


def _compare(o: argparse.Namespace) -> None:
    from speechssl.evaluation.comparing import run_comparison

    print(run_comparison(o.results, o.out, o.metric, o.pairs, o.systems, o.common, o.seed))


def add_confusions(what: Any) -> None:
    verb = add_verb(what, "confusions", _fit_confusions, CONFUSIONS)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("out", type=Path, help="folder; gets confusions.json")
    verb.add_argument("--models", default="minisqa-en", help="shipped set or model folder of the recogniser")
    verb.add_argument("--asr", default="ctc", help="ctc, ctc-NAME, pocketsphinx, MODEL of Hugging Face, or given: the corpus's own")
    verb.add_argument("--split", default="dev", help="any but test")
    verb.add_argument("--passages", type=count, help="only the first N passages")
    verb.add_argument("--condition", default="clean", help="what is heard, as `evaluate qa` writes conditions")
    snr_over_flag(verb)
    verb.add_argument("--seed", type=whole, default=0, help="of the noise")
    verb.add_argument("--workers", type=count, default=2, help="threads")


def _fit_confusions(o: argparse.Namespace) -> None:
    from speechssl.evaluation.recognised import fit_on_corpus

    print(fit_on_corpus(o.corpus, o.out, o.models, o.asr, o.split, o.passages, o.condition, o.seed, o.workers, o.snr_over))
