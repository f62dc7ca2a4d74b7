"""`speechssl prepare miniature`: a corpus to try a recipe with, in the layout of a published one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from speechssl.cli.shared import add_verb
from speechssl.options import count, whole

ABOUT = """make a tiny invented corpus in the layout of a published one, to try its recipe (needs speechssl[synth])

CORPUS is nmsqa, odsqa, toefl-qa, spoken-squad or slue-sqa5. Passages and questions are MiniSQA's, recordings espeak-ng's; what is
measured on them says nothing about the corpus. What is finished is left alone.

  speechssl prepare miniature nmsqa tiny/nmsqa
  speechssl prepare nmsqa tiny/nmsqa corpus
"""


def add_miniature(what: Any) -> None:
    verb = add_verb(what, "miniature", _prepare_miniature, ABOUT)
    verb.add_argument("corpus", help="see above")
    verb.add_argument("out", type=Path, help="folder to make")
    verb.add_argument("--passages", type=count, default=6, help="training passages")
    verb.add_argument("--dev-passages", type=count, default=2, help="development passages")
    verb.add_argument("--test-passages", type=count, default=3, help="test passages")
    verb.add_argument("--questions", type=count, default=4, help="questions a passage")
    verb.add_argument("--seed", type=whole, default=0, help="same seed, same tree")


def _prepare_miniature(o: argparse.Namespace) -> None:
    from speechssl.corpora.miniature.making import Settings, make_miniature

    counts = {"train": o.passages, "dev": o.dev_passages, "test": o.test_passages}
    made = make_miniature(o.out, Settings(o.corpus.replace("_", "-"), counts, o.questions, o.seed))
    found = ", ".join(f"{number} {split}" for split, number in counts.items())
    print(f"{o.out}: an invented miniature of {o.corpus}, {found} passages{'' if made else ' (there already)'}")
