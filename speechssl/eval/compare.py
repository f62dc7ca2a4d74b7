"""Compare systems on the same questions: `read_results`, then `compare`, then `make_paired_tests`.

The bootstrap draws all scores of a corpus together, by the voices of the passage and of the
question, or by passage (`stats.choose_units`): differences between systems and between conditions
are paired. The word error rates beside the scores are drawn with them, by the passage's voice
alone. p-values are two-sided, at least 2 / 2^G for G voices or passages
(`stats.Estimate.p_value`), and adjusted by Holm over all tests of a comparison. `crossings.py`
finds where a cascade falls below a system without a transcript; `report/comparison.py` writes the
page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

from speechssl.data.records import write_synthetic_sentence
from speechssl.errors import InputError
from speechssl.eval.options import Metric
from speechssl.eval.predict import read_items
from speechssl.results import describe_seen, name_system
from speechssl.stats import (
    Estimate,
    ItemScore,
    combine_estimates,
    holm,
    resample_cells,
)
from speechssl.text import name_error_metric

# where no metric is named, the first of these that a corpus has is compared
METRICS: tuple[str, ...] = get_args(Metric)
WER = "wer"
PASSAGE = "passage"
# begins the names of systems that read the reference text with simulated errors
SIMULATED = "cascade-simulated"
REFERENCE = "text"  # the system that reads the reference text
ConditionAtSnr = tuple[str, float | None]  # condition and its SNR in dB
CLEAN: ConditionAtSnr = ("clean", None)


# ---- reading


@dataclass(frozen=True, eq=False)
class Scores:
    """One system under one condition on one corpus has these scores."""

    system: str
    condition: ConditionAtSnr
    lines: Mapping[str, Mapping[str, Any]]  # the line of each question, as `score` wrote it
    card: Mapping[str, Any]
    path: Path  # OUT/scores/SYSTEM/CONDITION.parquet

    @property
    def corpus(self) -> str:
        """Return the name of the corpus with its split."""
        return f"{self.card['corpus']} {self.card['split']}"

    @property
    def folder(self) -> Path:
        """Return the folder of the evaluation."""
        return self.path.parents[2].resolve()

    def collect_values(self, metric: str) -> dict[str, float]:
        """Collect the values of a metric by question, as far as they are known."""
        values = {}
        for question, line in self.lines.items():
            if line.get(metric) is not None:
                values[question] = float(line[metric])
        return values

    @property
    def has_transcripts(self) -> bool:
        """Return whether the system has transcripts whose errors are known."""
        return any(line.get("passage_words") for line in self.lines.values())


def read_results(folders: Sequence[Path], systems: Sequence[str] = ()) -> list[Scores]:
    """Read the scores in folders that `evaluate` wrote to. systems: the names of those that are
    wanted; (): all.

    Where several folders have the same system under the same condition of a corpus, the names of
    its models are added to its name (`_name_apart`). Raises InputError where there are no scores,
    or they are damaged.
    """
    scores: list[Scores] = []
    for folder in {folder.resolve(): folder for folder in folders}.values():
        paths = sorted(folder.glob("scores/*/*.parquet"))
        if not paths:
            raise InputError(
                f"{folder} has no scores of questions; give a folder that `speechssl evaluate` "
                "wrote to"
            )
        scores += map(_read_scores, paths)
    names = list(dict.fromkeys(s.system for s in scores))
    for system in systems:
        if system not in names:
            raise InputError(
                f"there are no scores of the system {system!r}; choose from {', '.join(names)}"
            )
    return _name_apart([s for s in scores if not systems or s.system in systems])


def _name_apart(scores: Sequence[Scores]) -> list[Scores]:
    """Give systems that several folders have different names: add the name of the models or, where
    these have the same name, as many last parts of the folder's path as it takes to differ."""
    counts = Counter((s.corpus, s.system, s.condition) for s in scores)
    repeated = {(corpus, system) for (corpus, system, _), count in counts.items() if count > 1}
    suffixes: dict[Path, str] = {}  # by folder
    for s in scores:
        if (s.corpus, s.system) in repeated:
            suffixes[s.folder] = s.card.get("encoder", "")
    if "" in suffixes.values() or len({*suffixes.values()}) < len(suffixes):
        parts = 1
        while len({folder.parts[-parts:] for folder in suffixes}) < len(suffixes):
            parts += 1
        suffixes = {folder: str(Path(*folder.parts[-parts:])) for folder in suffixes}
    renamed = []
    for s in scores:
        if (s.corpus, s.system) in repeated:
            s = replace(s, system=name_system(s.system, suffixes[s.folder]))
        renamed.append(s)
    return renamed


def _read_scores(path: Path) -> Scores:
    """Read the scores of a system under a condition."""
    lines, card = read_items(path)
    return Scores(
        system=card["system"],
        condition=(card["condition"], card["snr_db"]),
        lines={line["id"]: line for line in lines},
        card=card,
        path=path,
    )


def is_reference(system: str) -> bool:
    """Return whether a system reads the reference text, with simulated errors or without."""
    return system == REFERENCE or system.startswith((SIMULATED, f"{REFERENCE} (", f"{REFERENCE}+"))


# ---- comparing


@dataclass(frozen=True, eq=False)
class Comparison:
    """A comparison holds the scores and estimates of systems on one corpus, by one metric."""

    corpus: str
    metric: str
    scores: tuple[Scores, ...]
    # estimates of the metric and of WER, drawn together, by system, condition and metric
    estimates: Mapping[tuple[str, ConditionAtSnr, str], Estimate]
    without_metric: tuple[str, ...] = ()  # systems that are left out, for they lack the metric

    @property
    def systems(self) -> list[str]:
        """List the systems in the order of the tables."""
        return list(dict.fromkeys(s.system for s in self.scores))

    @property
    def conditions(self) -> list[ConditionAtSnr]:
        """List clean speech first, then noises by name, from the quietest to the loudest."""
        conditions = {s.condition for s in self.scores}
        return sorted(conditions, key=lambda c: (c[0] != "clean", c[0], -(c[1] or 0.0)))

    @property
    def card(self) -> Mapping[str, Any]:
        """Return the card of some scores, for what all have in common: the corpus."""
        return self.scores[0].card

    @property
    def synthetic_sentence(self) -> str:
        """Return the sentence of tables where some of the corpus was synthesised, else ""."""
        return write_synthetic_sentence(self.card.get("synthetic") or "")

    @property
    def seen_sentence(self) -> str:
        """Return the sentence of tables where systems were trained on this data, else ""."""
        return describe_seen((s.system, s.card.get("seen", "")) for s in self.scores)

    def find_estimate(
        self, system: str, condition: ConditionAtSnr, metric: str | None = None
    ) -> Estimate | None:
        """Find an estimate; None where there is none. metric: default: the one that is compared."""
        return self.estimates.get((system, condition, metric or self.metric))

    @property
    def error_rate(self) -> str:
        """Return the name of the error rate: WER, or CER where the whole corpus is Chinese."""
        names = {name_error_metric(language) for language in self.card.get("languages") or ("en",)}
        return names.pop().upper() if len(names) == 1 else "WER"

    @property
    def textless(self) -> list[str]:
        """List the systems without a transcript."""
        with_transcripts = {s.system for s in self.scores if s.has_transcripts}
        return [s for s in self.systems if s not in with_transcripts]

    @property
    def cascades(self) -> list[str]:
        """List the cascades with a recogniser, which those that read the reference lack."""
        return [s for s in self.systems if s not in self.textless and not is_reference(s)]


def compare(
    results: Sequence[Scores],
    metric: str | None = None,
    common: bool = False,
    seed: int = 0,
) -> list[Comparison]:
    """Compare the systems of every corpus. metric: one of METRICS; None: the first of them that a
    corpus has. common: whether questions are left out that some systems of the corpus lack.

    Raises InputError for systems of one corpus that were scored on different data or (without
    common) on different questions, and where no result has the metric.
    """
    by_corpus: dict[str, list[Scores]] = {}
    for scores in results:
        by_corpus.setdefault(scores.corpus, []).append(scores)
    comparisons = []
    for corpus_scores in by_corpus.values():
        for name in [metric] if metric else METRICS:
            if any(s.collect_values(name) for s in corpus_scores):
                comparisons.append(_compare_corpus(corpus_scores, name, common, seed))
                break
    if not comparisons:
        raise InputError(
            f"no result has {metric or 'a score'}; choose another --metric ({', '.join(METRICS)})"
        )
    return comparisons


def _compare_corpus(results: Sequence[Scores], metric: str, common: bool, seed: int) -> Comparison:
    """Compare the systems of one corpus. Raises InputError for scores that cannot be paired."""
    with_metric = [s for s in results if s.collect_values(metric)]
    compared = {s.system for s in with_metric}
    shared = _find_shared_questions(with_metric, metric, common)
    on_shared = []  # the scores of the questions that all have
    for scores in with_metric:
        lines = {i: line for i, line in scores.lines.items() if i in shared}
        on_shared.append(replace(scores, lines=lines))
    # the metric, and WER where there is one, are drawn together
    cells: dict[tuple[str, ConditionAtSnr, str], list[ItemScore]] = {}
    for scores in on_shared:
        items = []
        for i, line in scores.lines.items():
            item = ItemScore(
                id=i,
                group=line["passage"],
                numerator=float(line[metric]),
                voice=line.get("voice", ""),
                asker=line.get("asker", ""),
            )
            items.append(item)
        cells[scores.system, scores.condition, metric] = items
    for scores in on_shared:
        if scores.has_transcripts:
            cells[scores.system, scores.condition, WER] = _count_word_errors(scores)

    def sort_key(scores: Scores) -> tuple[bool, bool, float, str]:
        """Sort systems without a transcript first, then cascades, the reference text, and simulated
        errors from few to many."""
        name, error_rate = scores.system, 0.0
        match = re.search(r"@([0-9.]+)", name)  # as in cascade-simulated@30
        if match and name.startswith(SIMULATED):
            error_rate = float(match[1])
        return scores.has_transcripts, is_reference(name), error_rate, name

    return Comparison(
        corpus=on_shared[0].corpus,
        metric=metric,
        scores=tuple(sorted(on_shared, key=sort_key)),
        estimates=resample_cells(cells, seed, unit=PASSAGE),
        without_metric=tuple(dict.fromkeys(s.system for s in results if s.system not in compared)),
    )


def _find_shared_questions(results: Sequence[Scores], metric: str, common: bool) -> set[str]:
    """Find the questions that all results have. Raises InputError for results on different data or
    noise, or (without common) on different questions."""
    first = results[0]
    questions = set(first.collect_values(metric))
    shared = questions.intersection(*(scores.collect_values(metric) for scores in results))
    may_differ = common and bool(shared)
    remedy = ", or compare on those in common (--common)" if shared and not common else ""
    snr_overs: dict[ConditionAtSnr, Any] = {}  # by condition, that of its first result
    for other in results:
        snr_over = other.card.get("snr_over")
        difference = ""
        if other.card["data"] != first.card["data"]:
            difference = f"on different manifests of {first.corpus}; evaluate both on one"
        elif snr_overs.setdefault(other.condition, snr_over) != snr_over:
            difference = (
                "with SNRs over different parts of the signal; evaluate both with one --snr-over"
            )
        elif other.collect_values(metric).keys() != questions and not may_differ:
            difference = (
                f"on different questions ({len(shared)} in common); leave one out (--systems)"
                f"{remedy}"
            )
        if difference:
            raise InputError(f"{first.path} and {other.path} were scored {difference}")
    return shared


def _count_word_errors(scores: Scores) -> list[ItemScore]:
    """Count the word errors of passages, question by question. A passage is transcribed once and
    may have several questions: its errors and words count at the first of them."""
    counted: set[str] = set()
    items = []
    for i, line in scores.lines.items():
        passage = line["passage"]
        is_first = passage not in counted
        counted.add(passage)
        item = ItemScore(
            id=i,
            group=passage,
            numerator=float(line["passage_errors"] or 0) if is_first else 0.0,
            denominator=float(line["passage_words"] or 0) if is_first else 0.0,
            voice=line.get("voice", ""),
        )
        items.append(item)
    return items


# ---- paired tests


@dataclass
class PairedTest:
    """A paired test compares two systems in one condition."""

    first: str
    second: str
    condition: ConditionAtSnr
    difference: Estimate  # points by which the first is better
    p_holm: float = 1.0  # p-value, adjusted over all tests of the comparison
    family: int = 1  # number of tests that are adjusted together


def make_paired_tests(
    comparisons: Sequence[Comparison], pairs: Sequence[tuple[str, str]] = ()
) -> list[list[PairedTest]]:
    """Make the tests of every corpus, whose p-values are adjusted together.

    pairs: the pairs of systems that are tested; (): every system without a transcript against every
    other system, or all pairs where no system is without a transcript. Raises InputError for a pair
    that no corpus has.
    """
    by_corpus: list[list[PairedTest]] = []
    for c in comparisons:
        all_pairs = list(combinations(c.systems, 2))
        textless_pairs = []  # the system without a transcript first
        for a, b in all_pairs:
            if a in c.textless:
                textless_pairs.append((a, b))
            elif b in c.textless:
                textless_pairs.append((b, a))
        tests = []
        for first, second in pairs or textless_pairs or all_pairs:
            for condition in c.conditions:
                score, other = c.find_estimate(first, condition), c.find_estimate(second, condition)
                if score and other:
                    difference = combine_estimates(lambda x, y: 100 * (x - y), score, other)
                    tests.append(PairedTest(first, second, condition, difference))
        by_corpus.append(tests)
    all_tests = [t for tests in by_corpus for t in tests]
    tested = {(t.first, t.second) for t in all_tests}
    for pair in pairs:
        if pair not in tested:
            systems = ", ".join(dict.fromkeys(s for c in comparisons for s in c.systems))
            raise InputError(
                f"{' and '.join(pair)} were not scored in one condition of a corpus; the systems "
                f"are {systems}"
            )
    adjusted = holm([t.difference.p_value for t in all_tests])
    for test, p_value in zip(all_tests, adjusted, strict=True):
        test.p_holm, test.family = p_value, len(all_tests)
    return by_corpus
