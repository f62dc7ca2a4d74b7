"""Error rates of what was written down, with intervals from a bootstrap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rapidfuzz.distance import Levenshtein

from speechssl.bootstrap import Units, mean_interval, ratio_interval
from speechssl.superb.task import Measure

EXAMPLES = 5


def edits(truth: Mapping[str, str], said: Mapping[str, str]) -> list[tuple[int, int]]:
    """Errors and length, in words or whatever is separated by spaces, of every text by its id."""
    words = ((text.split(), said[name].split()) for name, text in truth.items())
    return [(Levenshtein.distance(wanted, found), len(wanted)) for wanted, found in words]


def rate_measure(metric: str, counts: Sequence[tuple[float, float]], units: Units, resamples: int) -> Measure:
    """Errors over lengths, pooled, in percent."""
    errors, lengths = zip(*counts, strict=True)
    if not resamples:
        return Measure.fixed(metric, 100 * sum(errors) / sum(lengths), len(counts))
    return Measure.of(metric, ratio_interval(errors, lengths, units, resamples=resamples).percent)


def mean_measure(metric: str, values: Sequence[float], units: Units, resamples: int) -> Measure:
    """The mean over utterances, in percent."""
    if not resamples:
        return Measure.fixed(metric, 100 * sum(values) / len(values), len(values))
    return Measure.of(metric, mean_interval(values, units, resamples=resamples).percent)


def examples(truth: Mapping[str, str], said: Mapping[str, str]) -> dict[str, Any]:
    """The first texts beside what was recognised."""
    return {"examples": [{"id": name, "truth": truth[name], "said": said[name]} for name in list(truth)[:EXAMPLES]]}
