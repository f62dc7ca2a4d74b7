"""These are the options of `speechssl report` and `speechssl compare`.

The docstring of a verb's options is its help in the shell, and so are the texts of the options.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speechssl.errors import InputError
from speechssl.eval.options import SPLIT, Metric
from speechssl.options import Whole, argument, option


@dataclass(frozen=True, kw_only=True)
class Report:
    """write report.html from the results in a folder

    One self-contained page: tables, figures, and questions to listen to with the systems' answers.
    A page is of one folder; `compare` takes several.

      speechssl report exp/mine corpus
      speechssl report exp/robust
      speechssl report exp/superb
    """

    out: Path = argument(
        "folder that `evaluate` or `superb run` wrote; report.html is written there"
    )
    corpus: Path | None = argument(
        "prepared corpus of the questions; not needed for a robustness grid or SUPERB",
        optional=True,
    )
    split: str | None = option(None, f"{SPLIT}; default: the one that was evaluated")
    examples: Whole = option(20, "number of questions to listen to")
    conditions: tuple[str, ...] = option(
        (),
        "conditions of these questions; default: clean, and the noisiest with at least half of "
        "the best clean FF1",
        least=1,
    )
    models: str = option(
        "people-en",
        "shipped set or model folder that was evaluated; its units are drawn under the waveforms",
    )
    differ: tuple[str, str] | None = option(
        None,
        "draw these questions only where the FF1 of systems A and B differs by 50 points or more",
        metavar=("A", "B"),
    )
    seed: Whole = option(0, "seed of the choice of questions; the noise is that of `evaluate`")
    tables: tuple[Path, ...] = option((), "JSON tables to add to the page")

    def __post_init__(self) -> None:
        """Raise InputError for --differ without questions."""
        if self.differ and not self.corpus:
            raise InputError("--differ draws questions; give the prepared corpus of them as well")


@dataclass(frozen=True, kw_only=True)
class Compare:
    """compare systems: paired tests, F1 against WER and where systems cross

    Reads folders that `evaluate` wrote, and pairs results on the same questions. Where several
    folders have the same system, its name has its models or else the folder added: "dual
    (exp/models)". Without --pairs every system that needs no transcript of the passages (the
    shipped units learned from readings of known text) is tested against every other system. A sweep
    of the word error rate has several conditions of one cascade, cascades with several recognisers,
    or cascade-simulated@WER. Writes compare.json, tables.md and compare.html to --out.

      speechssl compare exp/mine exp/sweep --out exp/compare
      speechssl compare exp/nmsqa/dev exp/nmsqa/test --pairs dual,cascade-ctc --metric ff1
    """

    results: tuple[Path, ...] = argument("folders that `evaluate` wrote")
    out: Path = option(Path("exp/compare"), "folder for compare.json, tables.md, compare.html")
    metric: Metric | None = option(
        None, "metric to compare; default: the first of these that was measured"
    )
    pairs: tuple[str, ...] = option(
        (), "pairs of systems to test: the score of A minus that of B", least=1, metavar="A,B"
    )
    systems: tuple[str, ...] = option((), "compare only these systems", least=1)
    common: bool = option(False, "use only the questions that all systems of a corpus answered")
    seed: Whole = option(0, "seed of the bootstrap")

    def __post_init__(self) -> None:
        """Raise InputError for a text that is no pair."""
        for text in self.pairs:
            if len(text.split(",")) != 2:
                raise InputError(
                    f"--pairs {text!r} is not a pair of systems; write dual,cascade-ctc"
                )
