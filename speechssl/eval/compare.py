"""Compare systems on the same questions: `read_results`, then `compare`, then `paired_tests`.

All scores of a corpus are drawn together, by the voice of the passage and that of the asker, or by
passage (`stats.choose_units`): differences of systems and of conditions are paired, and so is the
word error rate that a score is set against, which is drawn by the passage's voice alone. p-values
are two-sided, at least 2 / 2^G for G voices or passages (`stats.Estimate.p_value`), and then
adjusted by Holm over all tests of a comparison. Where a cascade falls below a system without a
transcript is found in `crossings`; `report/comparison.py` writes all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

from speechssl.data.records import synthetic_sentence
from speechssl.errors import InputError
from speechssl.eval.options import Metric
from speechssl.eval.predict import read_items
from speechssl.results import seen_sentence, system_label
from speechssl.stats import (
    RESAMPLES,
    BootstrapUnits,
    Estimate,
    ItemScore,
    combine_estimates,
    common_units,
    holm,
    resample_cells,
)
from speechssl.text import error_metric

# without a name the first that a corpus has
METRICS: tuple[str, ...] = get_args(Metric)
WER = "wer"
PASSAGE = "passage"
# systems that read the reference, with errors and without
SIMULATED, REFERENCE = "cascade-simulated", "text"
Where = tuple[str, float | None]  # condition and its SNR in dB
CLEAN: Where = ("clean", None)


# ---- reading


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores are those of one system under one condition on one corpus. lines: by question."""

    system: str
    condition: Where
    lines: Mapping[str, Mapping[str, Any]]
    card: Mapping[str, Any]
    path: Path

    @property
    def corpus(self) -> str:
        return f"{self.card['corpus']} {self.card['split']}"

    @property
    def folder(self) -> Path:
        return self.path.parents[2].resolve()

    def values(self, metric: str) -> dict[str, float]:
        lines = {i: line for i, line in self.lines.items() if line.get(metric) is not None}
        return {i: float(line[metric]) for i, line in lines.items()}

    @property
    def recognises(self) -> bool:
        """Tell whether it has a transcript whose errors are known."""
        return any(line.get("passage_words") for line in self.lines.values())


def read_results(folders: Sequence[Path], systems: Sequence[str] = ()) -> list[Scores]:
    """Read the scores below folders that `evaluate` wrote to. systems: only these; none: all.

    Where several folders have a system for the same condition of a corpus, its models stand beside
    it, or the folders where the models do not tell them apart.
    Raises InputError where there are no scores, or they are damaged.
    """
    scores: list[Scores] = []
    for folder in {folder.resolve(): folder for folder in folders}.values():
        paths = sorted(folder.glob("scores/*/*.parquet"))
        if not paths:
            below = sorted({str(p.parents[2]) for p in folder.glob("**/scores/*/*.parquet")})
            raise InputError(
                f"{folder} has no scores of questions; give a folder that `speechssl evaluate` "
                f"wrote to{': ' if below else ''}{' '.join(below)}"
            )
        scores += map(_read_scores, paths)
    found = list(dict.fromkeys(s.system for s in scores))
    for system in systems:
        if system not in found:
            raise InputError(
                f"there are no scores of the system {system!r}; choose from {', '.join(found)}"
            )
    scores = [s for s in scores if not systems or s.system in systems]
    counts = Counter((s.corpus, s.system, s.condition) for s in scores)
    twins = {(corpus, system) for (corpus, system, _), n in counts.items() if n > 1}
    models = {s.folder: s.card.get("encoder", "") for s in scores if (s.corpus, s.system) in twins}
    names = models
    if "" in models.values() or len({*models.values()}) < len(models):
        parts = 1  # as many of the last parts as tell the folders apart
        while len({folder.parts[-parts:] for folder in models}) < len(models):
            parts += 1
        names = {folder: str(Path(*folder.parts[-parts:])) for folder in models}
    named = []
    for s in scores:
        if (s.corpus, s.system) in twins:
            s = replace(s, system=system_label(s.system, names[s.folder]))
        named.append(s)
    return named


def _read_scores(path: Path) -> Scores:
    lines, card = read_items(path)
    snr = card["snr_db"]
    where = (card["condition"], None if snr is None else float(snr))
    return Scores(card["system"], where, {line["id"]: line for line in lines}, card, path)


def reads_reference(system: str) -> bool:
    return system == REFERENCE or system.startswith((SIMULATED, f"{REFERENCE} (", f"{REFERENCE}+"))


# ---- comparing


@dataclass(frozen=True, eq=False)
class Compared:
    """Systems are compared on one corpus. estimates: of the metric and of WER, drawn together, by
    system, condition and metric; drawn: what the bootstrap draws; aside: systems without the
    metric.
    """

    corpus: str
    metric: str
    scores: tuple[Scores, ...]
    estimates: Mapping[tuple[str, Where, str], Estimate]
    drawn: BootstrapUnits
    aside: tuple[str, ...] = ()

    @property
    def systems(self) -> list[str]:
        return list(dict.fromkeys(s.system for s in self.scores))

    @property
    def conditions(self) -> list[Where]:
        """List clean speech first, then noises by name, from the quietest to the loudest."""
        conditions = {s.condition for s in self.scores}
        return sorted(conditions, key=lambda c: (c[0] != "clean", c[0], -(c[1] or 0.0)))

    @property
    def card(self) -> Mapping[str, Any]:
        return self.scores[0].card

    @property
    def synthetic(self) -> str:
        """Return what tables say where a synthesiser spoke some of the corpus."""
        return synthetic_sentence(self.card.get("synthetic") or "")

    @property
    def seen(self) -> str:
        """Return what tables say where systems were trained on what they are compared on."""
        return seen_sentence((s.system, s.card.get("seen", "")) for s in self.scores)

    def get(self, system: str, condition: Where, metric: str = "") -> Estimate | None:
        return self.estimates.get((system, condition, metric or self.metric))

    @property
    def errors(self) -> str:
        """Return what errors over the units of its language are called: WER, or CER where all of it
        is Chinese."""
        names = {error_metric(language) for language in self.card.get("languages") or ("en",)}
        return names.pop().upper() if len(names) == 1 else "WER"

    @property
    def textless(self) -> list[str]:
        """List the systems without a transcript."""
        reading = {s.system for s in self.scores if s.recognises}
        return [s for s in self.systems if s not in reading]

    @property
    def recognisers(self) -> list[str]:
        """List the cascades with a recogniser: not those that read the reference, with simulated
        errors or without."""
        return [s for s in self.systems if s not in self.textless and not reads_reference(s)]


def compare(
    results: Sequence[Scores],
    metric: str | None = None,
    common: bool = False,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Compared]:
    """Draw what belongs together, corpus by corpus. metric: one of METRICS; None: of each corpus
    the first that it has.

    common: compare on the questions that all systems of a corpus have.
    Raises InputError for systems of one corpus that were scored on other data or other questions,
    and where nothing has the metric.
    """
    by_corpus: dict[str, list[Scores]] = {}
    for scores in results:
        by_corpus.setdefault(scores.corpus, []).append(scores)
    compared = []
    for of_corpus in by_corpus.values():
        for name in [metric] if metric else METRICS:
            if any(s.values(name) for s in of_corpus):
                compared.append(_compare_corpus(of_corpus, name, common, seed, resamples))
                break
    if not compared:
        raise InputError(
            f"no result has {metric or 'a score'}; choose another --metric ({', '.join(METRICS)})"
        )
    return compared


def _compare_corpus(
    results: Sequence[Scores], metric: str, common: bool, seed: int, resamples: int
) -> Compared:
    """Compare on one corpus. Raises InputError for scores that cannot be paired."""
    having = [s for s in results if s.values(metric)]
    shared = _shared_questions(having, metric, common)
    restricted = []
    for scores in having:
        lines = {i: line for i, line in scores.lines.items() if i in shared}
        restricted.append(replace(scores, lines=lines))
    # what is drawn together: the metric, and WER where there is one
    cells: dict[tuple[str, Where, str], list[ItemScore]] = {}
    for scores in restricted:
        items = []
        for i, line in scores.lines.items():
            voices = line.get("voice", ""), line.get("asker", "")
            items.append(ItemScore(i, line["passage"], float(line[metric]), 1.0, *voices))
        cells[scores.system, scores.condition, metric] = items
    for scores in restricted:
        if scores.recognises:
            cells[scores.system, scores.condition, WER] = _word_errors(scores)

    def order(scores: Scores) -> tuple[bool, bool, float, str]:
        """Systems without a transcript, cascades, the reference text, and simulated errors from few
        to many."""
        name, simulated = scores.system, scores.system.startswith(SIMULATED)
        rate = re.search(r"@([0-9.]+)", name) if simulated else None
        return scores.recognises, reads_reference(name), float(rate[1]) if rate else 0.0, name

    _, units = common_units(cells, PASSAGE)
    return Compared(
        corpus=restricted[0].corpus,
        metric=metric,
        scores=tuple(sorted(restricted, key=order)),
        estimates=resample_cells(cells, seed, resamples, PASSAGE),
        drawn=units,
        aside=tuple(dict.fromkeys(s.system for s in results if s not in having)),
    )


def _shared_questions(results: Sequence[Scores], metric: str, common: bool) -> set[str]:
    """Return the questions that all have. Raises InputError where they are of other data or noise,
    or (without common) of other questions."""
    first = results[0]
    questions = set(first.values(metric))
    shared = questions.intersection(*(scores.values(metric) for scores in results))
    over: dict[Where, Any] = {}  # what the SNR of every condition is over
    for other in results:
        snr_over = other.card.get("snr_over")
        may_differ = common and shared
        why = ""
        if other.card["data"] != first.card["data"]:
            why = f"on different manifests of {first.corpus}; evaluate both on one"
        elif over.setdefault(other.condition, snr_over) != snr_over:
            why = "with SNRs over different parts of the signal; evaluate both with one --snr-over"
        elif other.values(metric).keys() != questions and not may_differ:
            why = (
                f"on different questions ({len(shared)} in common); leave one out (--systems), or "
                "compare on those in common (--common)"
            )
        if why:
            raise InputError(f"{first.path} and {other.path} were scored {why}")
    return shared


def _word_errors(scores: Scores) -> list[ItemScore]:
    """Count the word errors of questions. A passage is transcribed once and asked about several
    times: its errors and words count at the first of its questions."""
    seen: set[str] = set()
    items = []
    for i, line in scores.lines.items():
        passage, errors, words = line["passage"], 0.0, 0.0
        if passage not in seen:
            errors, words = line["passage_errors"] or 0, line["passage_words"] or 0
        seen.add(passage)
        items.append(ItemScore(i, passage, float(errors), float(words), line.get("voice", "")))
    return items


# ---- paired tests


@dataclass(frozen=True)
class PairedTest:
    """A paired test says by how many points a system is better in one condition. p_holm: adjusted
    over the family, of so many tests."""

    first: str
    second: str
    condition: Where
    difference: Estimate
    p_holm: float = 1.0
    family: int = 1


def paired_tests(
    compared: Sequence[Compared], pairs: Sequence[tuple[str, str]] = ()
) -> list[list[PairedTest]]:
    """Make the tests of every corpus, adjusted together. pairs: of systems; none: every system
    without a transcript against every other, or all pairs where that gives none. Raises InputError
    for a pair that no corpus has.
    """
    by_corpus: list[list[PairedTest]] = []
    for c in compared:
        every_pair = list(combinations(c.systems, 2))
        one_textless = []
        for a, b in every_pair:
            if a in c.textless or b in c.textless:
                one_textless.append((a, b) if a in c.textless else (b, a))
        tests = []
        for first, second in pairs or one_textless or every_pair:
            for condition in c.conditions:
                one, other = c.get(first, condition), c.get(second, condition)
                if one and other:
                    difference = combine_estimates(lambda x, y: 100 * (x - y), one, other)
                    tests.append(PairedTest(first, second, condition, difference))
        by_corpus.append(tests)
    every = [t for tests in by_corpus for t in tests]
    for pair in pairs:
        if pair not in {(t.first, t.second) for t in every}:
            systems = ", ".join(dict.fromkeys(s for c in compared for s in c.systems))
            raise InputError(
                f"{' and '.join(pair)} were not scored in one condition of a corpus; the systems "
                f"are {systems}"
            )
    # in the order in which they go in, corpus after corpus
    adjusted = iter(holm([t.difference.p_value for t in every]))
    return [
        [replace(t, p_holm=next(adjusted), family=len(every)) for t in tests] for tests in by_corpus
    ]
