"""`speechssl report` and `compare`: their options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speechssl.config import Whole, argument, option
from speechssl.eval.config import SPLIT


@dataclass(frozen=True, kw_only=True)
class Report:
    """write report.html from the results in a folder

    One self-contained page: tables, figures, and questions to listen to with the systems' answers.

      speechssl report exp/mine corpus
      speechssl report exp/robust
      speechssl report exp/superb
    """

    out: Path = argument("folder that `evaluate` or `superb run` wrote to; gets report.html")
    corpus: Path | None = argument("prepared corpus of the questions; none for a robustness grid or SUPERB", optional=True)
    split: str = option("test", SPLIT)
    examples: Whole = option(20, "questions to listen to")
    conditions: tuple[str, ...] = option(("clean", "pink@5"), "conditions of these examples, as far as evaluated", least=1)
    seed: Whole = option(0, "of the draw of examples and of the bootstrap; the noise is that of `evaluate`")
    tables: tuple[Path, ...] = option((), "JSON tables to print beside the results")
    voices: tuple[Path, ...] = option((), "recordings that `evaluate` mixed babble from")

    def run(self) -> None:
        from speechssl.report.build import write_report

        shown = (self.examples, self.conditions, self.seed, self.tables, self.voices)
        write_report(self.out, self.corpus, self.split, *shown)
        print(f"{self.out / 'report.html'}: open it in a browser")


@dataclass(frozen=True, kw_only=True)
class Compare:
    """compare systems: tables, paired tests, where the lines cross, and which answers are missed

    Reads what `evaluate` wrote to folders, and pairs results on the same questions. Without --pairs every system without a
    transcript is tested against every other. A sweep of the word error rate is several conditions of one cascade, cascades with
    several recognisers, or cascade-simulated@WER. Writes compare.json, tables.md and compare.html to --out.

      speechssl compare exp/mine exp/sweep --out exp/compare
      speechssl compare exp/nmsqa/dev exp/nmsqa/test --pairs dual,cascade-ctc --metric ff1
    """

    results: tuple[Path, ...] = argument("folders that `evaluate` wrote to")
    out: Path = option(Path("exp/compare"), "folder for compare.json, tables.md, compare.html")
    metric: str = option("", "ff1, f1, em, aos, set_accuracy or accuracy; default: the first of them that was measured")
    pairs: tuple[str, ...] = option((), "systems to test against each other", least=1, metavar="A,B")
    systems: tuple[str, ...] = option((), "only these systems", least=1)
    common: bool = option(False, "compare on the questions that all systems of a corpus answered")
    seed: Whole = option(0, "of the bootstrap")

    def run(self) -> None:
        from speechssl.report.comparison import run_comparison

        print(run_comparison(self.results, self.out, self.metric, self.pairs, self.systems, self.common, self.seed))
