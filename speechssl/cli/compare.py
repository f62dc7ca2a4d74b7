"""`speechssl compare`: systems beside each other; `speechssl evaluate confusions`: the errors that its sweeps simulate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from speechssl.cli.shared import add_verb
from speechssl.options import count, whole

CONFUSIONS = """confusions.json: which errors a recogniser makes, to simulate more or fewer of them

Fitted on what a recogniser makes of a split that nothing is tested on. `evaluate qa` reads it for systems such as
cascade-simulated@30: text QA on the reference text with errors of this kind at a WER of 30 %.

  speechssl evaluate confusions corpus exp/errors --models exp/models --asr ctc --split dev
  speechssl evaluate qa corpus exp/sweep --systems text cascade-simulated@10 cascade-simulated@30 --conditions clean \\
    --errors exp/errors/confusions.json
"""


def add_confusions(what: Any) -> None:
    verb = add_verb(what, "confusions", _fit_confusions, CONFUSIONS)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("out", type=Path, help="folder; gets confusions.json")
    verb.add_argument("--models", default="minisqa-en", help="shipped set or model folder of the recogniser")
    verb.add_argument("--asr", default="ctc", help="ctc, ctc-NAME, pocketsphinx, MODEL of Hugging Face, or given: the corpus's own")
    verb.add_argument("--split", default="dev", help="any but test")
    verb.add_argument("--passages", type=count, help="only the first N passages")
    verb.add_argument("--condition", default="clean", help="what is heard, as `evaluate qa` writes conditions")
    verb.add_argument("--seed", type=whole, default=0, help="of the noise")
    verb.add_argument("--workers", type=count, default=2, help="threads")


def _fit_confusions(o: argparse.Namespace) -> None:
    from speechssl.evaluation.recognised import fit_on_corpus

    print(fit_on_corpus(o.corpus, o.out, o.models, o.asr, o.split, o.passages, o.condition, o.seed, o.workers))
