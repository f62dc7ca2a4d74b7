"""`speechssl compare`: from folders that `evaluate` wrote to compare.json, tables.md and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speechssl import __version__
from speechssl.artefacts import write_json, write_text
from speechssl.errors import InputError
from speechssl.evaluation.comparison import METRICS, Compared, PairedTest, compare, paired_tests, read_results
from speechssl.evaluation.comparison_tables import Compilation, Printed, as_json, markdown, tables_of
from speechssl.evaluation.crossing import crossings, families
from speechssl.evaluation.error_analysis import analyses, by_own_wer, shown
from speechssl.report.comparison import write_page
from speechssl.report.published_qa import MARK, TITLE, published_columns, published_rows

FEW = 15  # paired tests that the terminal shows


def run_comparison(
    results: Sequence[Path],
    out: Path,
    metric: str = "",
    pairs: Sequence[str] = (),
    systems: Sequence[str] = (),
    common: bool = False,
    seed: int = 0,
) -> str:
    """Compare, write everything into `out`, and return the tables of scores and crossings, and of paired tests where they are few.

    pairs: "dual,cascade-ctc"; systems: only these. Raises InputError as `read_results`, `compare` and `paired_tests` do.
    """
    if metric and metric not in METRICS:
        raise InputError(f"there is no metric {metric!r}; choose one of {', '.join(METRICS)}")
    parsed = [_pair(p) for p in pairs]
    compared = compare(read_results(results, systems), metric, common, seed)
    found = [compile_corpus(c, t) for c, t in zip(compared, paired_tests(compared, parsed), strict=True)]
    printed = [t for c in found for t in tables_of(c)]
    note = _published(found)
    write_json(out / "compare.json", _settings(results, seed, common) | {"corpora": [as_json(c) for c in found]})
    write_text(out / "tables.md", markdown([*printed, note]))
    write_page(
        out / "compare.html", found, [note], {"Results": ", ".join(map(str, results)), "Made by": f"speechssl {__version__}"}
    )
    few = [t for t in printed if ": paired differences" in t.title and len(t.rows) <= FEW]
    crossing = [t for t in printed if t.title.endswith("where the lines cross")]
    told = [*(t for c in found for t in tables_of(c)[:1]), *few, *crossing]
    return markdown(told) + f"\n{out / 'compare.html'}: open it in a browser; {out / 'tables.md'} has every table"


def compile_corpus(c: Compared, some_tests: Sequence[PairedTest]) -> Compilation:
    bins = {}
    for textless in c.textless:
        names = ["simulated", *c.recognisers] if "simulated" in families(c, textless) else c.recognisers
        for family in names:
            for what in ("passage", "sentence"):
                if len(found := by_own_wer(c, textless, family, what == "sentence")) > 1:
                    bins[textless, family, what] = found
    return Compilation(c, some_tests, crossings(c), bins, analyses(c, shown(c)))


def _pair(text: str) -> tuple[str, str]:
    names = text.split(",")
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise InputError(f"--pairs {text!r} is not a pair of systems; write dual,cascade-ctc")
    return names[0], names[1]


def _settings(results: Sequence[Path], seed: int, common: bool) -> dict[str, Any]:
    return {"results": [str(r) for r in results], "seed": seed, "common": common, "made_by": f"speechssl {__version__}"}


def _published(found: Sequence[Compilation]) -> Printed:
    rows = published_rows([c.compared.corpus for c in found]) or published_rows(["nmsqa dev", "nmsqa test"])
    return Printed(TITLE, *published_columns(rows), MARK)
