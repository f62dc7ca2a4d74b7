"""This module compares systems on the same questions: paired tests, and where a cascade falls below
a system without a transcript.

All scores of a corpus are drawn together, by the voice of the passage and that of the asker, or by
passage (`stats.choose_units`): differences of systems and of conditions are paired, and so is the
word error rate that a score is set against, which is drawn by the passage's voice alone. p-values
are two-sided, at least 2 / 2^G for G voices or passages (`stats.Estimate.p_value`), and then
adjusted by Holm over all tests of a comparison.

Where the lines cross: every point is one system in one condition, its word error rate and the
difference D of its score and that of the system without a transcript in the same condition. A curve
that never rises is fitted to D over WER (isotonic regression, straight between points); the lines
cross where it reaches 0, which is given where points were measured within NEAR on both sides. Where
it comes to 0 and stays there (nobody answers any more) they do not. Who is ahead without a crossing
is told from the points, not from the curve. The points of a family have one source of errors:
`noise` one recogniser in several conditions, `simulated` the reference text and simulated errors,
`recognisers` several in clean speech, `all` all of them. The interval holds 95 % of the resamples;
one in which the lines do not cross counts as crossing beyond that end of the range, and an end of
the interval that lies there is None.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from speechssl.augment.conditions import is_drawn
from speechssl.data.records import synthetic_sentence
from speechssl.errors import InputError
from speechssl.eval.options import Metric
from speechssl.eval.predict import read_items
from speechssl.eval.score import TYPES
from speechssl.results import (
    UNITS_FROM,
    Table,
    condition_name,
    describe_range,
    interval_text,
    join_words,
    metric_name,
    seconds_range,
    seen_sentence,
)
from speechssl.signal import ACTIVE, SNR_OVER
from speechssl.stats import FEWEST as FEWEST_GROUPS
from speechssl.stats import (
    RESAMPLES,
    BootstrapUnits,
    Difference,
    Estimate,
    Interval,
    ItemScore,
    combine_estimates,
    common_units,
    holm,
    mean_interval,
    paired_difference,
    resample_cells,
)
from speechssl.text import error_metric

# without a name the first that a corpus has
METRICS: tuple[str, ...] = get_args(Metric)
WER = "wer"
PASSAGE = "passage"
# systems that read the reference, with errors and without
SIMULATED, REFERENCE = "cascade-simulated", "text"
DRAWS = 2000  # resamples that the curve is fitted to
NEAR = 0.15  # WER, on either side of a crossing, within which something was measured
Where = tuple[str, float | None]  # condition and its SNR in dB
CLEAN: Where = ("clean", None)


def reads_reference(system: str) -> bool:
    return system == REFERENCE or system.startswith((SIMULATED, f"{REFERENCE} (", f"{REFERENCE}+"))


# ---- reading


@dataclass(frozen=True, eq=False)
class Scores:
    """This is what one system scored in one condition of one corpus. lines: by question."""

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
        return {
            i: float(line[metric]) for i, line in self.lines.items() if line.get(metric) is not None
        }

    @property
    def recognises(self) -> bool:
        """Tell whether it has a transcript whose errors are known."""
        return any(line.get("passage_words") for line in self.lines.values())


def read_results(folders: Sequence[Path], systems: Sequence[str] = ()) -> list[Scores]:
    """Read the scores below folders that `evaluate` wrote to. systems: only these; none: all.

    Where several folders have a system for the same condition of a corpus, it is named after them.
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
    if missing := [s for s in systems if s not in {f.system for f in scores}]:
        choices = ", ".join(dict.fromkeys(f.system for f in scores))
        raise InputError(f"there are no scores of the system {missing[0]!r}; choose from {choices}")
    scores = [f for f in scores if not systems or f.system in systems]
    of_system: dict[tuple[str, str, Where], list[Path]] = {}
    for f in scores:
        of_system.setdefault((f.corpus, f.system, f.condition), []).append(f.folder)
    twins = {
        (corpus, system) for (corpus, system, _), places in of_system.items() if len(places) > 1
    }
    different, parts = {f.folder for f in scores if (f.corpus, f.system) in twins}, 1
    # as many of the last parts as tell them apart
    while len({folder.parts[-parts:] for folder in different}) < len(different):
        parts += 1
    return [
        replace(s, system=(f"{s.system} ({Path(*s.folder.parts[-parts:])})"))
        if (s.corpus, s.system) in twins
        else s
        for s in scores
    ]


def _read_scores(path: Path) -> Scores:
    lines, card = read_items(path)
    snr = card["snr_db"]
    where = (card["condition"], None if snr is None else float(snr))
    return Scores(card["system"], where, {line["id"]: line for line in lines}, card, path)


# ---- comparing


@dataclass(frozen=True, eq=False)
class Compared:
    """This is one corpus. estimates: by system, condition and metric, drawn together; of the metric
    and WER. aside: systems without it.

    drawn: what the bootstrap draws of its questions, which are the keys of places.
    """

    corpus: str
    metric: str
    scores: tuple[Scores, ...]
    estimates: Mapping[tuple[str, Where, str], Estimate]
    drawn: BootstrapUnits
    places: Mapping[str, int]
    aside: tuple[str, ...] = ()

    @property
    def systems(self) -> list[str]:
        return list(dict.fromkeys(s.system for s in self.scores))

    @property
    def conditions(self) -> list[Where]:
        """Clean first, then by name, from the quietest noise to the loudest."""
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

    def find(self, system: str, condition: Where) -> Scores | None:
        return next(
            (s for s in self.scores if (s.system, s.condition) == (system, condition)), None
        )

    def units(self, questions: Iterable[str]) -> BootstrapUnits:
        """Return what intervals over some of the questions draw."""
        return self.drawn.at([self.places[i] for i in questions])

    @property
    def errors(self) -> str:
        """Return what errors over the units of its language are called: WER, or CER where all of it
        is Chinese."""
        names = {error_metric(language) for language in self.card.get("languages") or ("en",)}
        return names.pop().upper() if len(names) == 1 else "WER"

    @property
    def textless(self) -> list[str]:
        """The systems without a transcript."""
        reading = {s.system for s in self.scores if s.recognises}
        return [s for s in self.systems if s not in reading]

    @property
    def recognisers(self) -> list[str]:
        """The cascades with a recogniser: not those that read the reference, with simulated errors
        or without."""
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
    compared = [
        c
        for of_corpus in by_corpus.values()
        if (c := _compare_corpus(of_corpus, metric, common, seed, resamples))
    ]
    if not compared:
        raise InputError(
            f"no result has {metric or 'a score'}; choose another --metric ({', '.join(METRICS)})"
        )
    return compared


def _compare_corpus(
    results: Sequence[Scores], metric: str | None, common: bool, seed: int, resamples: int
) -> Compared | None:
    """Compare on one corpus; None where nothing has the metric. Raises InputError for scores that
    cannot be paired."""
    wanted = [metric] if metric else METRICS
    metric = next((m for m in wanted if any(s.values(m) for s in results)), None)
    if metric is None:
        return None
    having = [s for s in results if s.values(metric)]
    shared = _shared_questions(having, metric, common)
    restricted = [
        replace(s, lines={i: line for i, line in s.lines.items() if i in shared}) for s in having
    ]

    voices, askers = (_speakers(restricted, field) for field in ("voice", "asker"))
    # what is drawn together: the metric, and WER where there is one
    cells: dict[tuple[str, Where, str], list[ItemScore]] = {}
    for scores in restricted:
        values = scores.values(metric)
        items = [
            ItemScore(i, str(line["passage"]), values[i], 1.0, voices[i], askers[i])
            for i, line in scores.lines.items()
        ]
        cells[scores.system, scores.condition, metric] = items
    for scores in restricted:
        if scores.recognises:
            cells[scores.system, scores.condition, WER] = _word_errors(scores, voices)

    def order(scores: Scores) -> tuple[bool, bool, float, str]:
        """Systems without a transcript, cascades, the reference text, and simulated errors from few
        to many."""
        rate = (
            re.search(r"@([0-9.]+)", scores.system) if scores.system.startswith(SIMULATED) else None
        )
        return (
            scores.recognises,
            reads_reference(scores.system),
            float(rate[1]) if rate else 0.0,
            scores.system,
        )

    questions, units = common_units(cells, PASSAGE)
    return Compared(
        corpus=restricted[0].corpus,
        metric=metric,
        scores=tuple(sorted(restricted, key=order)),
        estimates=resample_cells(cells, seed, resamples, PASSAGE),
        drawn=units,
        places={name: place for place, name in enumerate(questions)},
        aside=tuple(dict.fromkeys(s.system for s in results if s not in having)),
    )


def _speakers(results: Sequence[Scores], field: str) -> dict[str, str]:
    """Return the voice of every question's passage, or of who asks it (fields of a line); "" where
    none is known or two contradict each other: lines of some systems have none, and those of
    others, on the same data, say it.
    """
    names: dict[str, set[str]] = {}
    for scores in results:
        for i, line in scores.lines.items():
            names.setdefault(i, set()).update([str(line[field])] if field in line else [])
    return {i: of.pop() if len(of) == 1 else "" for i, of in names.items()}


def _shared_questions(results: Sequence[Scores], metric: str, common: bool) -> set[str]:
    """Return the questions that all have. Raises InputError where they are of other data or noise,
    or (without common) of other questions."""
    first = results[0]
    of_condition: dict[Where, Scores] = {}  # the first scores of every condition
    for other in results:
        if other.card["data"] != first.card["data"]:
            raise InputError(
                f"{first.path} and {other.path} were scored on different manifests of "
                f"{first.corpus}; evaluate both on one"
            )
        same = of_condition.setdefault(other.condition, other)
        if same.card.get("snr_over", ACTIVE) != other.card.get("snr_over", ACTIVE):
            raise InputError(
                f"{same.path} and {other.path} have SNRs over "
                f"{' and over '.join(SNR_OVER)}; evaluate both with one"
            )

    questions = [set(scores.values(metric)) for scores in results]
    shared = set.intersection(*questions)
    for other, ids in zip(results, questions, strict=True):
        if ids != questions[0] and not (common and shared):
            raise InputError(
                f"{first.path} and {other.path} were scored on different questions "
                f"({len(questions[0])} and {len(ids)}, "
                f"{len(shared)} in common); evaluate both on the same, leave one out "
                "(--systems), or compare on those in common "
                "(--common)"
            )
    return shared


def _word_errors(scores: Scores, voices: Mapping[str, str]) -> list[ItemScore]:
    """Count the word errors of questions. A passage is transcribed once and asked about several
    times: its errors and words count at the first of its questions."""
    seen: set[str] = set()
    items = []
    for i, line in scores.lines.items():
        first = line["passage"] not in seen
        seen.add(line["passage"])
        errors, words = (
            (line.get("passage_errors") or 0, line.get("passage_words") or 0) if first else (0, 0)
        )
        items.append(ItemScore(i, str(line["passage"]), float(errors), float(words), voices[i]))
    return items


# ---- paired tests


@dataclass(frozen=True)
class PairedTest:
    """These are points by which one system is better than another in one condition. p_holm:
    adjusted over the family, of so many tests.

    seeds: of their noise, where they differ and the audio was not the same; None: it was, as far as
    their cards say.
    """

    first: str
    second: str
    condition: Where
    difference: Estimate
    p_holm: float = 1.0
    family: int = 1
    seeds: tuple[Any, Any] | None = None


def paired_tests(
    compared: Sequence[Compared], pairs: Iterable[tuple[str, str]] = ()
) -> list[list[PairedTest]]:
    """Make the tests of every corpus, adjusted together. pairs: of systems; none: every system
    without a transcript against every other, or all pairs where that gives none. Raises InputError
    for a pair that no corpus has.
    """
    chosen, by_corpus = list(pairs), []
    for c in compared:
        every_pair, tests = list(combinations(c.systems, 2)), []
        one_textless = []
        for a, b in every_pair:
            if a in c.textless or b in c.textless:
                one_textless.append((a, b) if a in c.textless else (b, a))
        for first, second in chosen or one_textless or every_pair:
            for condition in c.conditions:
                one, other = c.find(first, condition), c.find(second, condition)
                if one and other:
                    scores = c.get(first, condition), c.get(second, condition)
                    difference = combine_estimates(lambda x, y: 100 * (x - y), *scores)  # type: ignore[arg-type]
                    seeds = one.card.get("seed"), other.card.get("seed")
                    apart = None not in seeds and seeds[0] != seeds[1] and is_drawn(*condition)
                    test = PairedTest(first, second, condition, difference)
                    tests.append(replace(test, seeds=seeds) if apart else test)
        by_corpus.append(tests)
    tested = {(t.first, t.second) for tests in by_corpus for t in tests}
    for pair in chosen:
        if pair not in tested:
            systems = ", ".join(dict.fromkeys(s for c in compared for s in c.systems))
            raise InputError(
                f"{' and '.join(pair)} were not scored in one condition of a "
                f"corpus; the systems are {systems}"
            )
    every = holm([t.difference.p_value for tests in by_corpus for t in tests])
    adjusted = iter(every)  # in the order in which they went in, corpus after corpus
    return [
        [replace(t, p_holm=next(adjusted), family=len(every)) for t in tests] for tests in by_corpus
    ]


# ---- where the lines cross


@dataclass(frozen=True)
class Point:
    """A point is a cascade, and the system without a transcript in the same condition."""

    system: str
    condition: Where
    wer: Estimate
    cascade: Estimate
    textless: Estimate

    @property
    def difference(self) -> float:
        return self.cascade.value - self.textless.value


@dataclass(frozen=True)
class Crossing:
    """Here a cascade falls below a system. at, low, high: WER, a fraction; None: beyond what was
    measured, or not near it. low_wer, high_wer: the range.

    between: the WER of the points that are nearest to the zero of the curve, left and right; None
    where it has none.
    share: of resamples that cross; None where too few voices or passages are drawn, and low and
    high are then at.
    """

    textless: str
    family: str
    points: tuple[Point, ...]
    at: float | None
    low: float | None
    high: float | None
    share: float | None
    between: tuple[float, float] | None

    @property
    def ahead(self) -> str:
        """Say who is ahead by the measured points: "cascade" or "textless" where the other is
        nowhere ahead, "neither" where they are equal throughout, "" where both are ahead somewhere.
        """
        cascade, textless = (any(p.difference * sign > 0 for p in self.points) for sign in (1, -1))
        if cascade and textless:
            return ""
        if cascade:
            return "cascade"
        return "textless" if textless else "neither"

    @property
    def low_wer(self) -> float:
        return min(p.wer.value for p in self.points)

    @property
    def high_wer(self) -> float:
        return max(p.wer.value for p in self.points)


def families(c: Compared, textless: str) -> dict[str, list[Point]]:
    """Sort the points that a system without a transcript is compared at, by their WER."""
    points = []
    for system in c.systems:
        for where in c.conditions:
            wer, cascade = c.get(system, where, WER), c.get(system, where)
            other = c.get(textless, where)
            if wer and cascade and other:
                points.append(Point(system, where, wer, cascade, other))
    points.sort(key=lambda p: p.wer.value)
    by_name = {f"noise, {name}": [p for p in points if p.system == name] for name in c.recognisers}
    by_name["simulated"] = [p for p in points if reads_reference(p.system)]
    by_name["recognisers"] = [
        p for p in points if p.system in c.recognisers and p.condition == CLEAN
    ]
    several = {name: members for name, members in by_name.items() if len(members) > 1}
    return several | {"all": points} if len(several) > 1 else several


def crossings(c: Compared) -> list[Crossing]:
    """Find the crossings of every system without a transcript and every family of at least two
    points."""
    crossings = []
    for textless, family, points in (
        (t, family, points) for t in c.textless for family, points in families(c, t).items()
    ):
        wer = np.array([p.wer.value for p in points])
        if len(set(wer)) < 2:
            continue
        at, _ = find_zero(wer, np.array([p.difference for p in points]))
        between = None if at is None else (float(wer[wer <= at].max()), float(wer[wer >= at].min()))
        if at is not None and between and max(at - between[0], between[1] - at) > NEAR + 1e-9:
            at = None
        low, high, share = at, at, None
        wers = np.stack([p.wer.widened[:DRAWS] for p in points], axis=1)
        apart = [combine_estimates(np.subtract, p.cascade, p.textless) for p in points]
        differences = np.stack([d.widened[:DRAWS] for d in apart], axis=1)
        usable = np.isfinite(wers).all(axis=1) & np.isfinite(differences).all(axis=1)
        if drawn := [
            find_zero(x, y) for x, y in zip(wers[usable], differences[usable], strict=True)
        ]:
            # a resample that does not cross would do so beyond the range: below it where the
            # cascade is never ahead, else above
            beyond = {"textless": -np.inf, "cascade": np.inf, "neither": np.inf}
            places = np.sort([beyond[side] if x is None else x for x, side in drawn])
            ends = (
                places[int(0.025 * len(places))],
                places[min(int(np.ceil(0.975 * len(places))), len(places)) - 1],
            )
            low, high = (
                float(end) if at is not None and np.isfinite(end) else None for end in ends
            )
            share = sum(not side for _, side in drawn) / len(drawn)
        crossings.append(Crossing(textless, family, tuple(points), at, low, high, share, between))
    return crossings


def find_zero(wer: np.ndarray, difference: np.ndarray) -> tuple[float | None, str]:
    """Find where the curve through the points comes from above 0 to below, and who is ahead where
    it does not. wer, difference: (P,)."""
    order = np.argsort(wer, kind="stable")
    x, y = wer[order], fit_falling(difference[order])
    if y[0] <= 0 or y[-1] >= 0:
        return None, "textless" if y[-1] < 0 else "cascade" if y[0] > 0 else "neither"
    level = np.flatnonzero(y == 0)
    if len(level):  # along a level stretch: its middle
        return float(x[level[0]] + x[level[-1]]) / 2, ""
    after = int(np.argmax(y < 0))
    a, b = y[after - 1], y[after]
    return float(x[after - 1] + (x[after] - x[after - 1]) * a / (a - b)), ""


def fit_falling(values: np.ndarray) -> np.ndarray:
    """Return the nearest values that never rise, by least squares (isotonic regression). values:
    (P,)."""
    from sklearn.isotonic import isotonic_regression  # slow to import

    fitted: np.ndarray = isotonic_regression(values, increasing=False)
    return fitted


NEVER = "they do not cross in the range measured"
FEW_RESAMPLES = 1000  # of tables of missed answers
FEWEST = 5  # questions of a relation that stands by itself
MOST = 15  # relations that do
LENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0, float("inf"))  # seconds
WORDS = (1, 2, 3, 5, 9, float("inf"))
PLACES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
RATES = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, float("inf"))  # word error rates of sentences and passages
Line = Mapping[str, Any]


class QuestionBucket(NamedTuple):
    """These are the questions of one line of a table. scores: by system."""

    name: str
    n: int
    scores: Mapping[str, Interval]


class Analysis(NamedTuple):
    """This is one table. by: what the questions are sorted by. recogniser: whose errors, for all
    systems; "" where none count."""

    by: str
    condition: Where
    recogniser: str
    buckets: Sequence[QuestionBucket]


class Bin(NamedTuple):
    """A bin holds questions whose passage (or sentence) a cascade recognised with a word error rate
    in this range. wer: of these passages."""

    name: str
    wer: float
    cascade: Interval
    textless: Interval
    difference: Difference


class Compilation(NamedTuple):
    """These are all results of one corpus. bins: by system without a transcript, family, and
    "passage" or "sentence"."""

    compared: Compared
    tests: Sequence[PairedTest]
    crossings: Sequence[Crossing]
    bins: Mapping[tuple[str, str, str], Sequence[Bin]]
    analyses: Sequence[Analysis]


def compile_corpus(c: Compared, tests: Sequence[PairedTest]) -> Compilation:
    """Compile the results of one corpus. Missed answers are those in clean speech, or else in the
    first condition."""
    bins = {}
    for textless in c.textless:
        for family in ["simulated"] * ("simulated" in families(c, textless)) + c.recognisers:
            for what in ("passage", "sentence"):
                if len(of_family := by_own_wer(c, textless, family, what == "sentence")) > 1:
                    bins[textless, family, what] = of_family
    shown = CLEAN if CLEAN in c.conditions else c.conditions[0]
    return Compilation(c, tests, crossings(c), bins, analyses(c, shown))


# ---- which answers are missed


def analyses(c: Compared, condition: Where) -> list[Analysis]:
    """Make all tables that the lines of a condition give; those with a single bucket are left
    out."""
    scored = [s for s in c.scores if s.condition == condition]
    lines: Mapping[str, Line] = scored[0].lines if scored else {}
    # what questions are sorted by, the recogniser whose errors count, bucket by question, order
    sortings: list[tuple[str, str, Mapping[str, str | None], Sequence[str]]] = [
        ("type of the answer", "", {i: x.get("type") for i, x in lines.items()}, TYPES),
        ("relation (of the corpus)", "", *_sort_relations(lines)),
    ]
    words = "characters" if c.errors == "CER" else "words"
    for by, field, edges, name in (
        ("length of the answer", "answer_seconds", LENGTHS, seconds_range),
        (f"{words} of the answer", "answer_words", WORDS, _count_range),
        ("place in the passage", "position", PLACES, _percent),
    ):
        names = [name(*ends) for ends in pairwise(edges)]
        sortings.append((by, "", _sort(lines, field, edges, names), names))
    names = [_percent(*ends) for ends in pairwise(RATES)]
    for scores in scored:
        if scores.system in c.recognisers:
            found = _sort(scores.lines, "sentence_wer", RATES, names)
            sortings.append((f"{c.errors} of the answer's sentence", scores.system, found, names))

    systems = [s for s in scored if not s.system.startswith(SIMULATED)]
    analyses = []
    for by, recogniser, bucket_of, order in sortings:
        buckets = []
        for bucket in order:
            ids = [i for i, name in bucket_of.items() if name == bucket]
            if ids:
                units, values = c.units(ids), {}
                for s in systems:
                    of_system = [s.lines[i][c.metric] for i in ids]
                    values[s.system] = mean_interval(of_system, units, 0, FEW_RESAMPLES)
                buckets.append(QuestionBucket(bucket, len(ids), values))
        if len(buckets) > 1:
            analyses.append(Analysis(by, condition, recogniser, buckets))
    return analyses


def _sort(
    lines: Mapping[str, Line], field: str, edges: Sequence[float], names: Sequence[str]
) -> dict[str, str | None]:
    """Sort lines into half-open ranges of a field, the last one closed."""
    buckets: dict[str, str | None] = {}
    for i, line in lines.items():
        value = line.get(field)
        buckets[i] = None
        if value is not None and value >= edges[0]:
            buckets[i] = _range(value, edges, names)
    return buckets


def _sort_relations(lines: Mapping[str, Line]) -> tuple[dict[str, str | None], list[str]]:
    """Sort lines by relation: the most frequent by themselves, the others together."""
    of_line = {i: str(line.get("relation") or "") for i, line in lines.items()}
    counts = Counter(filter(None, of_line.values()))
    names = {r: r.replace("_", " ") for r, n in counts.most_common(MOST) if n >= FEWEST}
    rest = len(counts) - len(names)
    others = f"{rest} other{'s' * (rest > 1)}"
    buckets = {i: names.get(r, others) if r else None for i, r in of_line.items()}
    return buckets, [*names.values(), others]


def _count_range(low: float, high: float) -> str:
    if high > 1e9:
        return f"{low:g} or more"
    return f"{low:g}" if high == low + 1 else f"{low:g}-{high - 1:g}"


def by_own_wer(c: Compared, textless: str, family: str, sentences: bool = False) -> list[Bin]:
    """Pool the conditions of a family, and sort them by the word error rate of every passage (or
    sentence) by itself.

    family: a recogniser, or "simulated".
    """
    names = [_percent(*ends) for ends in pairwise(RATES)]
    # line, score of the cascade, of the other
    by_range: dict[str, list[tuple[Line, float, float]]] = {name: [] for name in names}
    for cascade in c.scores:
        simulated = family == "simulated" and reads_reference(cascade.system)
        other = c.find(textless, cascade.condition)
        if other is None or not (simulated or cascade.system == family):
            continue
        for i, line in cascade.lines.items():
            wer = line.get("sentence_wer") if sentences else None
            if line.get("passage_words") and not sentences:
                wer = line["passage_errors"] / line["passage_words"]
            if wer is not None:
                both = float(line[c.metric]), float(other.lines[i][c.metric])
                by_range[_range(wer, RATES, names)].append((line, *both))
    bins = []
    for name, members in by_range.items():
        if members:
            lines, first, second = zip(*members, strict=True)
            units = c.units(line["id"] for line in lines)
            wer = sum(x["passage_errors"] for x in lines) / sum(x["passage_words"] for x in lines)
            a, b = (mean_interval(x, units, 0, FEW_RESAMPLES) for x in (first, second))
            difference = paired_difference(first, second, units, 0, FEW_RESAMPLES)
            bins.append(Bin(name, wer, a, b, difference))
    return bins


def _range(value: float, edges: Sequence[float], names: Sequence[str]) -> str:
    return names[min(sum(value >= edge for edge in edges), len(names)) - 1]


def _percent(low: float, high: float) -> str:
    return f"{100 * low:.0f}-{100 * high:.0f} %" if high < 1e9 else f"over {100 * low:.0f} %"


# ---- words


def family_name(family: str) -> str:
    """Name what the word error rate is varied by."""
    return {
        "simulated": "simulated errors",
        "recognisers": ("recognisers, clean"),
        "all": "all of these",
    }.get(family, family)


def crossing_text(x: Crossing) -> str:
    """Say where they cross, or why no place is given, and in how many resamples they do."""
    share = "" if x.share is None else f"; {100 * x.share:.0f} % of the resamples cross"
    if x.at is not None:
        low = "below the range" if x.low is None else f"{100 * x.low:.1f}"
        high = "above the range" if x.high is None else f"{100 * x.high:.1f}"
        return f"{100 * x.at:.1f} %{f' [{low}, {high}]' if share else ''}{share}"
    if x.between:
        left, right = (f"{100 * wer:.1f}" for wer in x.between)
        return (
            f"they cross where nothing was measured nearby: the nearest points have {left} "
            f"and {right} %{share}"
        )
    if not x.ahead:
        first, second = (
            [f"{100 * p.wer.value:.1f}" for p in x.points if p.difference * sign > 0]
            for sign in (1, -1)
        )
        some = (
            f"the cascade is ahead at {join_words(first)} %, {x.textless} at {join_words(second)} %"
        )
        return f"they do not cross once and for all: {some}{share}"
    if x.ahead == "neither":
        return f"{NEVER}: they are equal throughout{share}"
    ahead, other = (
        (x.textless, "the cascade") if x.ahead == "textless" else ("the cascade", x.textless)
    )
    level = any(p.difference == 0 for p in x.points)
    reason = f"{other} is nowhere ahead" if level else f"{ahead} is ahead throughout"
    return f"{NEVER}: {reason}{share}"


def other_noise(tests: Sequence[PairedTest]) -> str:
    """Write one line that names the pairs which did not get the same audio, and why; "" where all
    did."""
    places: dict[str, list[str]] = {}
    for t in tests:
        if t.seeds:
            pair = f"{t.first} (seed {t.seeds[0]}) and {t.second} (seed {t.seeds[1]})"
            places.setdefault(pair, []).append(condition_name(*t.condition))
    texts = "; ".join(f"{pair} in {', '.join(names)}" for pair, names in places.items())
    return (
        (f"Not the same audio, for noise and rooms were drawn with different seeds: {texts}.")
        if texts
        else ""
    )


# ---- tables


def tables_of(compilation: Compilation) -> list[Table]:
    """Make the tables: scores, word errors, paired differences, crossings, scores by word error
    rate, missed answers; none without rows."""
    compared = compilation.compared
    tables = [
        score_table(compared, compared.metric),
        score_table(compared, WER),
        paired_table(compilation),
        crossing_table(compilation),
        *(binned_table(compared, *key, bins) for key, bins in compilation.bins.items()),
        *(analysis_table(compared, analysis) for analysis in compilation.analyses),
    ]
    corpus, synthetic = compared.corpus, " ".join(filter(None, [compared.synthetic, compared.seen]))
    return [
        replace(t, title=f"{corpus}: {t.title}", note=f"{t.note} {synthetic}".strip())
        for t in tables
        if t.rows
    ]


def _drawn(compared: Compared, metric: str = "") -> str:
    """ "8 voices × askers": what the intervals of a metric draw."""
    of_metric = [
        e for (_, _, name), e in compared.estimates.items() if name == (metric or compared.metric)
    ]
    return describe_range([of_metric[0].groups], of_metric[0].unit) if of_metric else ""


def _without_interval(compared: Compared, intervals: Iterable[Interval]) -> str:
    """Write a sentence where one has no interval."""
    fewest = describe_range([FEWEST_GROUPS], compared.drawn.text)
    return (
        ""
        if all(interval.estimated for interval in intervals)
        else (f" Fewer than {fewest} have no interval.")
    )


def score_table(compared: Compared, metric: str) -> Table:
    """Make a table: a line a system, a column a condition. metric: that of the comparison, or
    WER."""
    conditions = [
        c for c in compared.conditions if any(compared.get(s, c, metric) for s in compared.systems)
    ]
    rows, intervals = [], []
    for system in compared.systems:
        estimates = [compared.get(system, condition, metric) for condition in conditions]
        if any(estimates):
            rows.append(
                (system, *(interval_text(e.interval.percent if e else None) for e in estimates))
            )
            intervals += [e.interval for e in estimates if e]
    n = next(iter(compared.estimates.values())).n
    items, name, aside = f"{n} questions", metric_name(metric), ""
    if metric == WER:
        items, name = f"the passages of {n} questions", compared.errors
    elif compared.aside:
        aside = f" Left out, for they have none: {', '.join(compared.aside)}."
    lone = _without_interval(compared, intervals)
    note = (
        f"Percent with 95 % intervals, which draw {_drawn(compared, metric)}; {items}.{lone}{aside}"
    )
    return Table(name, ("system", *(condition_name(*c) for c in conditions)), tuple(rows), note)


def paired_table(compilation: Compilation) -> Table:
    """Make a table: a line a test."""
    compared, tests, drawn = compilation.compared, compilation.tests, _drawn(compilation.compared)
    rows = []
    for test in tests:
        difference = interval_text(test.difference.interval, "+")
        p_values = f"{test.difference.p_value:.4f}", f"{test.p_holm:.4f}"
        rows.append(
            (test.first, test.second, condition_name(*test.condition), difference, *p_values)
        )
    note = (
        "Points of the first over the second on the same questions, with 95 % intervals; paired "
        "bootstrap that draws "
        f"{drawn}; p by changing their signs, two-sided; p (Holm) is adjusted over all tests of "
        "this comparison."
        f"{_without_interval(compared, (t.difference.interval for t in tests))}"
    )
    if tests:  # so few groups may be drawn that nothing could be significant
        family, least = tests[0].family, 2.0 ** (1 - tests[0].difference.groups)
        if family * least > 0.05:
            after = (
                (f", nor below {min(1.0, family * least):.2g} after Holm over {family} tests")
                if family > 1
                else ""
            )
            note += f" With {drawn} no p can be below {least:.2g}{after}."
    columns = ("first", "second", "condition", "difference", "p", "p (Holm)")
    return Table(
        f"paired differences, {metric_name(compared.metric)}",
        columns,
        tuple(rows),
        f"{note} {other_noise(tests)}".strip(),
    )


def crossing_table(compilation: Compilation) -> Table:
    """Make a table: a line a family of points."""
    errors, rows = compilation.compared.errors, []
    for x in compilation.crossings:
        measured = f"{100 * x.low_wer:.1f}-{100 * x.high_wer:.1f} %"
        rows.append((x.textless, family_name(x.family), len(x.points), measured, crossing_text(x)))
    note = (
        f"The {errors} at which the cascade falls to the system without a transcript, on a "
        "fitted curve that never rises, with the "
        f"middle 95 % of the resamples; given where points were measured within {100 * NEAR:.0f} "
        f"points of {errors} on both sides. "
        "Who is ahead is told from the points. Without a transcript: of what is asked about; "
        f"{UNITS_FROM}."
    )
    columns = (
        "without a transcript",
        f"{errors} is varied by",
        "points",
        f"{errors} measured",
        "they cross at",
    )
    return Table("where the lines cross", columns, tuple(rows), note)


def binned_table(
    compared: Compared, textless: str, family: str, what: str, bins: Sequence[Bin]
) -> Table:
    """Make a table: a line a range of error rates. what: "passage" or "sentence"."""
    errors, rows = compared.errors, []
    for b in bins:
        scores = (
            interval_text(b.cascade.percent),
            interval_text(b.textless.percent),
            interval_text(b.difference.percent, "+"),
        )
        rows.append((b.name, b.cascade.n, f"{100 * b.wer:.1f}", *scores))
    title = f"{metric_name(compared.metric)} by the {errors} of the {what}, {family} and {textless}"
    columns = (
        f"{errors} of the {what}",
        "questions",
        f"{errors} of these passages (%)",
        family,
        textless,
        "difference",
    )
    note = (
        f"All conditions pooled; every {what} counts in the range of its own {errors}, a "
        "question once a condition."
    )
    return Table(
        title,
        columns,
        tuple(rows),
        note + _without_interval(compared, (b.difference for b in bins)),
    )


def analysis_table(compared: Compared, analysis: Analysis) -> Table:
    """Make a table: a line a kind of question, a column a system."""
    systems = [
        s for s in compared.systems if any(s in bucket.scores for bucket in analysis.buckets)
    ]
    rows = []
    for bucket in analysis.buckets:
        scores = [bucket.scores.get(system) for system in systems]
        rows.append(
            (
                bucket.name,
                bucket.n,
                *(interval_text(score.percent if score else None) for score in scores),
            )
        )
    note = (
        f"{metric_name(compared.metric)} in percent with 95 % intervals, which draw "
        f"{_drawn(compared)}, "
        f"{condition_name(*analysis.condition)}."
    )
    note += _without_interval(
        compared, (score for bucket in analysis.buckets for score in bucket.scores.values())
    )
    title = f"by {analysis.by}" + (f" ({analysis.recogniser})" if analysis.recogniser else "")
    return Table(title, (analysis.by, "n", *systems), tuple(rows), note)


# ---- compare.json


def as_json(compilation: Compilation) -> dict[str, Any]:
    """Return JSON. Numbers are fractions, not percent; differences in points. low and high are null
    where too few voices or passages are drawn."""
    compared = compilation.compared

    def plain(value: Any) -> Any:
        if isinstance(value, Interval):
            values = asdict(value) | dict(zip(("low", "high"), value.ends, strict=True))
            del values["estimated"]
            return values
        if isinstance(value, (Bin, QuestionBucket)):
            return plain(value._asdict())
        return {name: plain(x) for name, x in value.items()} if isinstance(value, dict) else value

    cells = [
        {
            "system": system,
            "condition": condition_name(*condition),
            "metric": metric,
            **plain(estimate.interval),
        }
        for (system, condition, metric), estimate in compared.estimates.items()
    ]
    tests = []
    for test in compilation.tests:
        pair = {
            "first": test.first,
            "second": test.second,
            "condition": condition_name(*test.condition),
        }
        difference = {
            **plain(test.difference.interval),
            "p_value": test.difference.p_value,
            "p_holm": test.p_holm,
        }
        tests.append(pair | difference | {"seeds": test.seeds})
    crossings = []
    for x in compilation.crossings:
        points = []
        for p in x.points:
            values = {"wer": p.wer.value, "cascade": p.cascade.value, "textless": p.textless.value}
            points.append({"system": p.system, "condition": condition_name(*p.condition)} | values)
        crossings.append(
            {
                "textless": x.textless,
                "family": x.family,
                "at": x.at,
                "low": None if x.share is None else x.low,
                "high": None if x.share is None else x.high,
                "share": x.share,
                "ahead": x.ahead,
                "between": x.between,
                "text": crossing_text(x),
                "wer_measured": [x.low_wer, x.high_wer],
                "points": points,
            }
        )
    by_own_wer = [
        {"textless": textless, "family": family, "of": what, "bins": list(map(plain, bins))}
        for (textless, family, what), bins in compilation.bins.items()
    ]
    errors = []
    for analysis in compilation.analyses:
        changed = {
            "condition": condition_name(*analysis.condition),
            "buckets": list(map(plain, analysis.buckets)),
        }
        errors.append(analysis._asdict() | changed)
    corpus_facts = {
        name: compared.card.get(name)
        for name in ("corpus", "split", "data", "synthetic", "languages")
    }
    return corpus_facts | {
        "seen": {s.system: s.card["seen"] for s in compared.scores if s.card.get("seen")},
        "metric": compared.metric,
        "error_rate": compared.errors,
        "drawn": compared.drawn.text,
        "cells": cells,
        "tests": tests,
        "other_noise": other_noise(compilation.tests),
        "crossings": crossings,
        "by_own_wer": by_own_wer,
        "errors": errors,
    }
