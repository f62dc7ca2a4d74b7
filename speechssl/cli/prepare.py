"""`speechssl prepare`: corpora."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from speechssl.cli.prepare_qa import add_spoken_qa
from speechssl.cli.prepare_superb import add_published
from speechssl.cli.shared import add_group, add_verb
from speechssl.options import count, share, whole

MINISQA = """make the synthetic spoken-QA corpus (needs speechssl[synth])

Passages and questions of a text generator, spoken by many voices of espeak-ng; those of train, dev and test are kept apart. What is
finished is left alone, what was killed goes on.

  speechssl prepare minisqa corpus
  speechssl prepare minisqa small --language zh --passages 100 --dev-passages 10 --test-passages 10
"""
MINISUPERB = """speak a small SUPERB: a set for each of its tasks, with no download (needs speechssl[synth])

pr: phones; asr: words; ks: keywords; qbe: documents and spoken queries; sid: who of 40 speaks; asv: whether one voice speaks in two
recordings; sd: who of two speaks when; ic: intents; sf: slots of commands; style: in which way (in the place of er, emotions);
se: speech in noise; ss: two voices at once. Each is a folder OUT/TASK with card.json and manifests for train, dev and test (qbe:
documents, dev and test); pr and asr share recordings, OUT/sentences. No voice of dev and test is heard in training, but in sid.
What is finished is left alone, what was killed goes on.

  speechssl prepare minisuperb sets
  speechssl prepare minisuperb sets --tasks ks sid --share 0.1
"""
FSDD = """digits of real voices (Free Spoken Digit Dataset) as sets for KS and SID

3,000 recordings of six speakers, read as they come: github.com/Jakobovski/free-spoken-digit-dataset.

  speechssl prepare fsdd free-spoken-digit-dataset/ tasks-fsdd
"""
MINISUPERB_TASKS = ["pr", "asr", "ks", "qbe", "sid", "asv", "sd", "ic", "sf", "style", "se", "ss"]


def add_prepare(verbs: Any) -> None:
    what = add_group(verbs, "prepare", "turn a corpus into JSONL manifests and 16 kHz audio")
    for add in (_add_minisqa, _add_minisuperb, _add_fsdd, add_spoken_qa, add_published):
        add(what)


def _add_minisqa(what: Any) -> None:
    verb = add_verb(what, "minisqa", _prepare_minisqa, MINISQA)
    verb.add_argument("out", type=Path, help="folder to make")
    verb.add_argument("--language", default="en", help="en or zh")
    verb.add_argument("--passages", type=whole, default=2000, help="training passages, about 30 s each")
    verb.add_argument("--dev-passages", type=whole, default=80, help="development passages")
    verb.add_argument("--test-passages", type=whole, default=140, help="test passages")
    verb.add_argument("--questions", type=count, default=5, help="questions a passage")
    verb.add_argument("--unanswerable", type=share, default=0.1, help="share of questions that the passage does not answer")
    verb.add_argument("--reference", action="store_true", help="read training passages a second time by one neutral voice")
    verb.add_argument("--seed", type=whole, default=0, help="same seed, same bytes")
    verb.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="processes; the bytes do not depend on it")


def _prepare_minisqa(o: argparse.Namespace) -> None:
    from speechssl.corpora.minisqa.speech import Settings, prepare

    counts = {"train": o.passages, "dev": o.dev_passages, "test": o.test_passages}
    card = prepare(o.out, Settings(o.language, counts, o.seed, o.questions, o.unanswerable, o.reference), o.workers)
    print(f"{o.out}: MiniSQA {o.language}, {', '.join(f'{n} {s}' for s, n in counts.items())} passages, data {card['manifests']}")


def _add_minisuperb(what: Any) -> None:
    verb = add_verb(what, "minisuperb", _prepare_minisuperb, MINISUPERB)
    verb.add_argument("out", type=Path, help="folder to make; gets a folder a set")
    verb.add_argument("--tasks", nargs="+", default=MINISUPERB_TASKS, help="which sets")
    verb.add_argument("--share", type=share, default=1.0, help="of the usual number of utterances (asr: 900 + 100 + 200)")
    verb.add_argument("--seed", type=whole, default=0, help="same seed, same bytes")
    verb.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="processes; the bytes do not depend on it")


def _prepare_minisuperb(o: argparse.Namespace) -> None:
    from speechssl.corpora.minisuperb.speech import Settings, prepare
    from speechssl.corpora.minisuperb.tasks import some_of

    for task, card in prepare(o.out, Settings(some_of(o.tasks, o.share), o.seed), o.workers).items():
        print(f"{o.out / task}: {', '.join(f'{n} {split}' for split, n in card['sizes'].items())} utterances")


def _add_fsdd(what: Any) -> None:
    verb = add_verb(what, "fsdd", _prepare_fsdd, FSDD)
    verb.add_argument("source", type=Path, help="the dataset, or its folder recordings/")
    verb.add_argument("out", type=Path, help="folder to make: audio/, ks/, sid/")


def _prepare_fsdd(o: argparse.Namespace) -> None:
    from speechssl.corpora.fsdd import prepare_fsdd

    print(f"{o.out}: {' and '.join(prepare_fsdd(o.source, o.out))}")
