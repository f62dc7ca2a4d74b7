"""Error rates of what was written down, with intervals from a bootstrap over speakers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rapidfuzz.distance import Levenshtein

from speechssl.bootstrap import Interval, mean_interval, ratio_interval
from speechssl.corpora.utterances import Utterance
from speechssl.superb.task import Measure

EXAMPLES = 5


def edits(truth: Mapping[str, str], said: Mapping[str, str]) -> list[tuple[int, int]]:
    """Errors and length, in words or whatever is separated by spaces, of every text by its id."""
    words = ((text.split(), said[name].split()) for name, text in truth.items())
    return [(Levenshtein.distance(wanted, found), len(wanted)) for wanted, found in words]


def rate_measure(metric: str, counts: Sequence[tuple[float, float]], utterances: Sequence[Utterance], resamples: int) -> Measure:
    """Errors over lengths, pooled, in percent."""
    errors, lengths = zip(*counts, strict=True)
    if not resamples:
        return _fixed(metric, sum(errors) / sum(lengths), len(counts))
    return _measure(metric, ratio_interval(errors, lengths, groups(utterances), resamples=resamples))


def mean_measure(metric: str, values: Sequence[float], utterances: Sequence[Utterance], resamples: int) -> Measure:
    """The mean over utterances, in percent."""
    if not resamples:
        return _fixed(metric, sum(values) / len(values), len(values))
    return _measure(metric, mean_interval(values, groups(utterances), resamples=resamples))


def groups(utterances: Sequence[Utterance]) -> list[str]:
    """Whom the bootstrap draws together: the speaker, or the utterance itself where none is named."""
    return [f"speaker {u.speaker}" if u.speaker else u.id for u in utterances]


def examples(truth: Mapping[str, str], said: Mapping[str, str]) -> dict[str, Any]:
    """The first texts beside what was recognised."""
    return {"examples": [{"id": name, "truth": truth[name], "said": said[name]} for name in list(truth)[:EXAMPLES]]}


def _fixed(metric: str, share: float, n: int) -> Measure:
    return Measure(metric, 100 * share, 100 * share, 100 * share, n)


def _measure(metric: str, found: Interval) -> Measure:
    percent = found.percent
    return Measure(metric, percent.value, percent.low, percent.high, found.n)
