"""This module holds the options of `speechssl prepare minisqa`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from speechssl.data.options import CORES, PROCESSES
from speechssl.errors import InputError
from speechssl.options import Count, Share, Whole, argument, option


@dataclass(frozen=True, kw_only=True)
class MiniSqa:
    """make the synthetic spoken-QA corpus (needs speechssl[synth])

    Passages and questions of a text generator, spoken by voices of espeak-ng: 48 in train, 8 others
    in dev, 16 others in test. Finished work is kept; a killed run resumes with the same command.

      speechssl prepare minisqa corpus
      speechssl prepare minisqa small --language zh --passages 100 --dev-passages 10 \\
        --test-passages 10
      speechssl prepare minisqa new-words --held-out
    """

    out: Path = argument("folder to make")
    language: Literal["en", "zh"] = option("en", "language")
    passages: Whole | None = option(
        None, "number of training passages, about 30 s each (default: 2000; with --held-out: 0)"
    )
    dev_passages: Whole | None = option(
        None, "number of development passages (default: 80; with --held-out: 0)"
    )
    test_passages: Whole = option(140, "number of test passages")
    held_out: bool = option(
        False,
        "make a test of names, values and sentences that the ordinary corpus does not have, and "
        "print the share of unknown words",
    )
    questions: Count = option(5, "questions per passage")
    unanswerable: Share = option(0.1, "share of questions that the passage does not answer")
    reference: bool = option(
        False, "record the training passages a second time with one neutral voice"
    )
    synthesiser: Literal["espeak-ng", "flite", "kokoro", "piper", "festival"] = option(
        "espeak-ng", "Mandarin: espeak-ng and kokoro; piper gives no times of words"
    )
    seed: Whole = option(
        0,
        "seed of texts and voices; the same seed gives the same bytes (of "
        "kokoro: the same texts and times)",
    )
    workers: Count = option(CORES, PROCESSES)

    def __post_init__(self) -> None:
        if self.reference and self.synthesiser != "espeak-ng":
            raise InputError(
                "the second reading of --reference is espeak-ng's; leave it out for another "
                "synthesiser"
            )
