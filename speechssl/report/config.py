"""`speechssl report`, `compare` and `evaluate choice`: their options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speechssl.config import BF16, SNR_OVER, Count, SnrOver, Whole, argument, option
from speechssl.eval.config import ROWS, SPLIT


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


@dataclass(frozen=True, kw_only=True)
class Choice:
    """multiple choice: systems x conditions on a corpus, with chance and the longest option

    Systems: units, speechbert, cascade-ctc, cascade-pocketsphinx, cascade-MODEL (of Hugging Face), text (the reference),
    cascade-given (transcripts that come with the corpus), chance (exact), longest-option. Those that use no audio are evaluated
    once, in the condition clean. Systems know how many options are right, as the question states it. Conditions are those of
    `evaluate qa`.

      speechssl evaluate choice corpus exp/choice --models exp/models --systems units cascade-ctc text chance longest-option
    """

    corpus: Path = argument("prepared corpus")
    out: Path = argument(ROWS)
    models: str = option("minisqa-en-robust", "model folder with choice-units/, choice-speechbert/, choice-text/")
    systems: tuple[str, ...] = option(("text", "chance", "longest-option"), "systems, as above", least=1)
    conditions: tuple[str, ...] = option(("clean",), "conditions, as above", least=1)
    split: str = option("dev", SPLIT)
    passages: Whole | None = option(None, "only the first N passages")
    snr_over: SnrOver = option("active", SNR_OVER)
    voices: tuple[Path, ...] = option((), "recordings to mix babble from")
    bf16: bool = option(False, "of the text encoders", name="precision", values=BF16)
    seed: Whole = option(0, "of the noise and of the bootstrap")
    workers: Count = option(2, "threads")

    def run(self) -> None:
        from speechssl.eval.choice import run_choice
        from speechssl.report.published import published_choice

        published = published_choice(self.corpus, self.split)
        what = (self.corpus, self.out, self.models, self.systems, self.conditions, self.split)
        print(run_choice(*what, self.passages, self.voices, self.seed, self.workers, self.bf16, self.snr_over))
        if published:
            print(f"\n{published}")
