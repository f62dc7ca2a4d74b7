"""Systems beside each other on the same questions: paired tests, and where a cascade falls below a system without a transcript.

All scores of a corpus are drawn together, by the voice of the passage or by passage (`stats.choose_units`): differences of systems
and of conditions are paired, and so is the word error rate that a score is set against. p-values are two-sided, at least
2 / 2^G for G voices or passages (`stats.two_sided`), and then adjusted by Holm over all tests of a comparison.

Where the lines cross: every point is one system in one condition, its word error rate and the difference D of its score and that of
the system without a transcript in the same condition. A curve that never rises is fitted to D over WER (isotonic regression,
straight between points); the lines cross where it reaches 0. The points of a family have one source of errors:

    noise          one recogniser in several conditions
    simulated      the reference text, and simulated errors
    recognisers    several recognisers in clean speech
    all            all of them

Where the difference comes to 0 and stays there (nobody answers any more) the lines do not cross. The interval holds 95 % of the
resamples. A resample in which the lines do not cross counts as crossing beyond that end of the range; an end of the interval that
lies there is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.errors import InputError
from speechssl.eval.scores import read_lines
from speechssl.io import hash_bytes, read_json
from speechssl.signal import ACTIVE, SNR_OVER
from speechssl.stats import RESAMPLES, Estimate, ItemScore, combined, common_units, holm, resampled
from speechssl.text import error_metric

METRICS = ("ff1", "f1", "em", "aos", "set_accuracy", "accuracy")  # the first that a corpus has is compared, where none is named
WER = "wer"
PASSAGE = "passage"
SIMULATED, REFERENCE = "cascade-simulated", "text"  # systems that read the reference, with errors and without
DRAWS = 2000  # resamples that the curve is fitted to
Where = tuple[str, float | None]  # condition and its SNR in dB
CLEAN: Where = ("clean", None)


def reads_reference(system: str) -> bool:
    return system == REFERENCE or system.startswith((SIMULATED, f"{REFERENCE} ("))


# ---- reading


@dataclass(frozen=True, eq=False)
class Scores:
    """What one system scored in one condition of one corpus. lines: by question."""

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
        """That it was evaluated into."""
        return self.path.parents[2].resolve()

    def values(self, metric: str) -> dict[str, float]:
        """The score of every question that has one."""
        return {i: float(line[metric]) for i, line in self.lines.items() if line.get(metric) is not None}

    @property
    def recognises(self) -> bool:
        """Whether it has a transcript whose errors are known."""
        return any(line.get("passage_words") for line in self.lines.values())


def read_results(folders: Sequence[Path], systems: Sequence[str] = ()) -> list[Scores]:
    """The scores below folders that `evaluate` wrote to. systems: only these; none: all.

    Where several folders have a system for the same condition of a corpus, it is named after them. Raises InputError where there
    are no scores, or they are damaged.
    """
    found: list[Scores] = []
    for folder in {folder.resolve(): folder for folder in folders}.values():
        paths = sorted(folder.glob("scores/*/*.jsonl"))
        if not paths and (below := sorted({p.parents[2] for p in folder.glob("**/scores/*/*.jsonl")})):
            names = " ".join(map(str, below))
            raise InputError(f"{folder} has no scores of questions itself; give its subfolders that have: {names}")
        if not paths:
            raise InputError(f"{folder} has no scores of questions; run the evaluation into it again (its answers are kept)")
        found += map(_read_scores, paths)
    if missing := [s for s in systems if s not in {f.system for f in found}]:
        known = ", ".join(dict.fromkeys(f.system for f in found))
        raise InputError(f"there are no scores of the system {missing[0]!r}; choose from {known}")
    found = [f for f in found if not systems or f.system in systems]
    of_system: dict[tuple[str, str, Where], list[Path]] = {}
    for f in found:
        of_system.setdefault((f.corpus, f.system, f.condition), []).append(f.folder)
    several = {(corpus, system) for (corpus, system, _), some in of_system.items() if len(some) > 1}
    different, parts = {f.folder for f in found if (f.corpus, f.system) in several}, 1
    while len({folder.parts[-parts:] for folder in different}) < len(different):  # as many of the last parts as tell them apart
        parts += 1
    return [
        replace(f, system=f"{f.system} ({Path(*f.folder.parts[-parts:])})") if (f.corpus, f.system) in several else f for f in found
    ]


def _read_scores(path: Path) -> Scores:
    lines, card = read_lines(path), read_json(path.with_suffix(".card.json"))
    wanted = ("corpus", "split", "data", "condition")
    if not isinstance(card, dict) or any(not isinstance(card.get(name), str) for name in wanted):
        raise InputError(f"{path.with_suffix('.card.json')} does not record what was scored ({', '.join(wanted)}); evaluate again")
    if card.get("lines") not in (None, hash_bytes(path.read_bytes())):
        raise InputError(f"{path} was changed after it was written; evaluate again")
    for line in lines:
        scores = [value for metric in METRICS if (value := line.get(metric)) is not None]
        if not isinstance(line.get("passage"), str) or any(not isinstance(v, (int, float)) or not 0 <= v <= 1 for v in scores):
            raise InputError(f"{path} has no passage or no score in [0, 1] for the question {line['id']}; evaluate again")
    snr = card.get("snr_db")
    where = (card["condition"], None if snr is None else float(snr))
    return Scores(str(card.get("system", path.parent.name)), where, {line["id"]: line for line in lines}, card, path)


# ---- comparing


@dataclass(frozen=True, eq=False)
class Compared:
    """One corpus. estimates: by system, condition and metric, drawn together; of the metric and WER. aside: systems without it.

    drawn: what the bootstrap draws ("voice", "passage"). groups: which of them every question belongs to.
    """

    corpus: str
    metric: str
    scores: tuple[Scores, ...]
    estimates: Mapping[tuple[str, Where, str], Estimate]
    drawn: str
    groups: Mapping[str, str]
    aside: tuple[str, ...] = ()

    @property
    def systems(self) -> list[str]:
        return list(dict.fromkeys(s.system for s in self.scores))

    @property
    def conditions(self) -> list[Where]:
        """Clean first, then by name, from the quietest noise to the loudest."""
        found = {s.condition for s in self.scores}
        return sorted(found, key=lambda c: (c[0] != "clean", c[0], -(c[1] or 0.0)))

    @property
    def card(self) -> Mapping[str, Any]:
        return self.scores[0].card

    def get(self, system: str, condition: Where, metric: str = "") -> Estimate | None:
        return self.estimates.get((system, condition, metric or self.metric))

    def of(self, system: str, condition: Where) -> Scores | None:
        return next((s for s in self.scores if (s.system, s.condition) == (system, condition)), None)

    @property
    def errors(self) -> str:
        """What errors over the units of its language are called: WER, or CER where all of it is Chinese."""
        names = {error_metric(language) for language in self.card.get("languages") or ("en",)}
        return names.pop().upper() if len(names) == 1 else "WER"

    @property
    def textless(self) -> list[str]:
        """The systems without a transcript."""
        reading = {s.system for s in self.scores if s.recognises}
        return [s for s in self.systems if s not in reading]

    @property
    def recognisers(self) -> list[str]:
        """The cascades with a recogniser: not those that read the reference, with simulated errors or without."""
        return [s for s in self.systems if s not in self.textless and not reads_reference(s)]


def compare(
    found: Sequence[Scores], metric: str = "", common: bool = False, seed: int = 0, resamples: int = RESAMPLES
) -> list[Compared]:
    """Draw what belongs together, corpus by corpus. metric: one of METRICS; "": of each corpus the first that it has.

    common: compare on the questions that all systems of a corpus have.
    Raises InputError for systems of one corpus that were scored on other data or other questions, and where nothing has the metric.
    """
    by_corpus: dict[str, list[Scores]] = {}
    for scores in found:
        by_corpus.setdefault(scores.corpus, []).append(scores)
    compared = [c for some in by_corpus.values() if (c := _compare_corpus(some, metric, common, seed, resamples))]
    if not compared:
        raise InputError(f"no result has {metric or 'a score'}; choose another --metric ({', '.join(METRICS)})")
    return compared


def _compare_corpus(found: Sequence[Scores], metric: str, common: bool, seed: int, resamples: int) -> Compared | None:
    metric = next((m for m in ([metric] if metric else METRICS) if any(s.values(m) for s in found)), "")
    if not metric:
        return None
    having = [s for s in found if s.values(metric)]
    over: dict[Where, Scores] = {}
    for other in having:
        first = having[0]
        if other.card["data"] != first.card["data"]:
            raise InputError(
                f"{first.path} and {other.path} were scored on different manifests of {first.corpus}; evaluate both on one"
            )
        first = over.setdefault(other.condition, other)
        if first.card.get("snr_over", ACTIVE) != other.card.get("snr_over", ACTIVE):
            raise InputError(f"{first.path} and {other.path} have SNRs over {' and over '.join(SNR_OVER)}; evaluate both with one")

    ids = [set(s.values(metric)) for s in having]
    shared = set.intersection(*ids)
    different = next((s for s, some in zip(having, ids, strict=True) if some != ids[0]), None)
    if different and not (common and shared):
        raise InputError(
            f"{having[0].path} and {different.path} were scored on different questions ({len(ids[0])} and "
            f"{len(different.values(metric))}, {len(shared)} in common); evaluate both on the same, leave one out (--systems), or "
            "compare on those in common (--common)"
        )
    kept = [replace(s, lines={i: line for i, line in s.lines.items() if i in shared}) for s in having]

    known: dict[str, set[str]] = {}  # lines without a voice say nothing: where others of the same data have one, it holds
    for scores in kept:
        for i, line in scores.lines.items():
            known.setdefault(i, set()).update([str(line["voice"])] if "voice" in line else [])
    voices = {i: some.pop() if len(some) == 1 else "" for i, some in known.items()}
    cells: dict[tuple[str, Where, str], list[ItemScore]] = {}
    for s in kept:
        values = s.values(metric)
        items = [ItemScore(i, str(line["passage"]), values[i], 1.0, voices[i]) for i, line in s.lines.items()]
        cells[s.system, s.condition, metric] = items
    for s in kept:
        if not s.recognises:
            continue
        seen: set[str] = set()
        items = []  # errors and words of every passage, at the first of its questions
        for i, line in s.lines.items():
            again = line["passage"] in seen
            seen.add(line["passage"])
            errors, words = (0, 0) if again else (line.get("passage_errors") or 0, line.get("passage_words") or 0)
            items.append(ItemScore(i, str(line["passage"]), float(errors), float(words), voices[i]))
        cells[s.system, s.condition, WER] = items

    def order(scores: Scores) -> tuple[bool, bool, float, str]:
        """Systems without a transcript, cascades, the reference text, and simulated errors from few to many."""
        rate = re.search(r"@([0-9.]+)", scores.system) if scores.system.startswith(SIMULATED) else None
        return scores.recognises, reads_reference(scores.system), float(rate[1]) if rate else 0.0, scores.system

    questions, units = common_units(cells, PASSAGE)
    return Compared(
        kept[0].corpus,
        metric,
        tuple(sorted(kept, key=order)),
        resampled(cells, seed, resamples, PASSAGE),
        units.name,
        dict(zip(questions, units.labels, strict=True)),
        tuple(dict.fromkeys(s.system for s in found if s not in having)),
    )


# ---- paired tests


@dataclass(frozen=True)
class PairedTest:
    """Points by which one system is better than another in one condition. p_holm: adjusted over the family, of so many tests.

    seeds: of their noise, where they differ and the audio was not the same; None: it was, as far as their cards say.
    """

    first: str
    second: str
    condition: Where
    difference: Estimate
    p_holm: float = 1.0
    family: int = 1
    seeds: tuple[int, int] | None = None


def paired_tests(compared: Sequence[Compared], pairs: Iterable[tuple[str, str]] = ()) -> list[list[PairedTest]]:
    """The tests of every corpus, adjusted together. pairs: of systems; none: every system without a transcript against every other,
    or all pairs where that gives none. Raises InputError for a pair that no corpus has.
    """
    chosen, found = list(pairs), []
    for c in compared:
        tests = []
        for first, second in chosen or default_pairs(c):
            for condition in c.conditions:
                a, b = c.get(first, condition), c.get(second, condition)
                if a and b:
                    difference = combined(lambda x, y: 100 * (x - y), a, b)
                    tests.append(PairedTest(first, second, condition, difference, seeds=_seeds(c, first, second, condition)))
        found.append(tests)
    for first, second in chosen:
        if not any((t.first, t.second) == (first, second) for some in found for t in some):
            known = ", ".join(dict.fromkeys(s for c in compared for s in c.systems))
            raise InputError(f"{first} and {second} were not scored in one condition of a corpus; the systems are {known}")
    every = holm([t.difference.p_value for some in found for t in some])
    adjusted = iter(every)
    return [[replace(t, p_holm=next(adjusted), family=len(every)) for t in some] for some in found]


def default_pairs(c: Compared) -> list[tuple[str, str]]:
    pairs = list(combinations(c.systems, 2))
    one_textless = [(a, b) if a in c.textless else (b, a) for a, b in pairs if a in c.textless or b in c.textless]
    return one_textless or pairs


def _seeds(c: Compared, first: str, second: str, condition: Where) -> tuple[int, int] | None:
    """As of `PairedTest`."""
    one, other = (s.card.get("seed") if (s := c.of(name, condition)) else None for name in (first, second))
    if one is None or other is None or one == other:
        return None
    from speechssl.augment.conditions import is_drawn  # slow to import

    return (one, other) if is_drawn(*condition) else None


# ---- where the lines cross


@dataclass(frozen=True)
class Point:
    """A cascade, and the system without a transcript in the same condition."""

    system: str
    condition: Where
    wer: Estimate
    cascade: Estimate
    textless: Estimate


@dataclass(frozen=True)
class Crossing:
    """at, low, high: WER, a fraction; None: beyond what was measured. low_wer, high_wer: the range.

    share: of resamples that cross; None where there are none (one voice or passage), and low and high are then at.
    ahead: "cascade" or "textless" where the other is nowhere ahead, "neither" where they are equal throughout, "" where they cross.
    """

    textless: str
    family: str
    points: tuple[Point, ...]
    at: float | None
    low: float | None
    high: float | None
    share: float | None
    ahead: str

    @property
    def low_wer(self) -> float:
        return min(p.wer.value for p in self.points)

    @property
    def high_wer(self) -> float:
        return max(p.wer.value for p in self.points)


def families(c: Compared, textless: str) -> dict[str, list[Point]]:
    """Points by family, from the lowest word error rate to the highest."""
    points = []
    for system in c.systems:
        for where in c.conditions:
            wer, cascade, other = c.get(system, where, WER), c.get(system, where), c.get(textless, where)
            if wer and cascade and other:
                points.append(Point(system, where, wer, cascade, other))
    found = {f"noise, {name}": [p for p in points if p.system == name] for name in c.recognisers}
    found["simulated"] = [p for p in points if reads_reference(p.system)]
    found["recognisers"] = [p for p in points if p.system in c.recognisers and p.condition == CLEAN]
    several = [name for name, some in found.items() if len(some) > 1]
    if len(several) > 1:
        found["all"] = points
    return {name: sorted(found[name], key=lambda p: p.wer.value) for name in found if name in several or name == "all"}


def crossings(c: Compared) -> list[Crossing]:
    """Of every system without a transcript and every family of at least two points."""
    found = [(textless, family, points) for textless in c.textless for family, points in families(c, textless).items()]
    return [_cross(textless, family, points) for textless, family, points in found if len({p.wer.value for p in points}) > 1]


def _cross(textless: str, family: str, points: Sequence[Point]) -> Crossing:
    wer = np.array([p.wer.value for p in points])
    at, ahead = zero(wer, np.array([p.cascade.value - p.textless.value for p in points]))
    wers = np.stack([p.wer.drawn[:DRAWS] for p in points], axis=1)
    differences = np.stack([(p.cascade.drawn - p.textless.drawn)[:DRAWS] for p in points], axis=1)
    usable = np.isfinite(wers).all(axis=1) & np.isfinite(differences).all(axis=1)
    drawn = [zero(x, y) for x, y in zip(wers[usable], differences[usable], strict=True)]
    if not drawn:
        return Crossing(textless, family, tuple(points), at, at, at, None, ahead)
    beyond = {"textless": -np.inf, "cascade": np.inf, "neither": np.inf}
    places = np.sort([beyond[side] if x is None else x for x, side in drawn])
    ends = (places[int(0.025 * len(places))], places[min(int(np.ceil(0.975 * len(places))), len(places)) - 1])
    low, high = (float(end) if np.isfinite(end) else None for end in ends)
    share = sum(not side for _, side in drawn) / len(drawn)
    return Crossing(textless, family, tuple(points), at, low, high, share, ahead)


def zero(wer: np.ndarray, difference: np.ndarray) -> tuple[float | None, str]:
    """Where the curve through the points comes from above 0 to below, and who is ahead where it does not. wer, difference: (P,)."""
    order = np.argsort(wer, kind="stable")
    x, y = wer[order], falling(difference[order])
    if y[0] <= 0 or y[-1] >= 0:
        return None, "textless" if y[-1] < 0 else "cascade" if y[0] > 0 else "neither"
    level = np.flatnonzero(y == 0)
    if len(level):  # along a level stretch: its middle
        return float(x[level[0]] + x[level[-1]]) / 2, ""
    after = int(np.argmax(y < 0))
    a, b = y[after - 1], y[after]
    return float(x[after - 1] + (x[after] - x[after - 1]) * a / (a - b)), ""


def falling(values: np.ndarray) -> np.ndarray:
    """The nearest values that never rise, by least squares (isotonic regression). values: (P,)."""
    from sklearn.isotonic import isotonic_regression  # slow to import

    fitted: np.ndarray = isotonic_regression(values, increasing=False)
    return fitted
