"""`speechssl train dual`: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speechssl.config import PLAIN, TrainingOptions, argument, group, option, shipped
from speechssl.textlm.config import ASSIGNMENT, QaOptions


@dataclass(frozen=True, kw_only=True)
class Train:
    """train DUAL's reader on extracted units

    A text encoder is trained to find the answer to a question in the units of a passage, without a transcript. UNITS is the output
    of `speechssl units extract` with --split train. Its card records encoder and codebook, so no speech encoder is loaded. A killed
    run resumes with the same command.

      speechssl train dual corpus units exp/dual
      speechssl train dual corpus units exp/dual-2 --start exp/dual --random-units 0.1
    """

    corpus: Path = argument("prepared corpus")
    units: Path = argument("folder of `speechssl units extract`")
    out: Path = argument("folder for the trained reader")
    start: Path | None = option(None, "trained reader of the same units to start from; default: the text encoder")
    assignment: str = option("most-frequent", ASSIGNMENT)
    qa: QaOptions = group(
        QaOptions(TrainingOptions(600, 3e-4, 50, **vars(PLAIN)), answer=275), "reader", without=("subwords", "characters")
    )

    def run(self) -> None:
        from speechssl.dual.train import train_dual

        train_dual(self.corpus, self.units, self.out, self.assignment, self.qa, shipped(self.start))
        print(f"{self.out}: DUAL reader, {self.assignment}")
