"""Sort questions by what may make them hard, and score every kind by itself: by the type, the
length and the place of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from speechssl.eval.compare import SIMULATED, Compared, Where
from speechssl.eval.score import TYPES
from speechssl.results import seconds_range
from speechssl.stats import Interval, mean_interval

FEW_RESAMPLES = 1000  # of tables of missed answers
# half-open ranges
LENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0, float("inf"))  # seconds
PLACES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0 + 1e-9)


class QuestionBucket(NamedTuple):
    """A bucket has the questions of one line of a table. scores: by system."""

    name: str
    n: int
    scores: Mapping[str, Interval]


class Analysis(NamedTuple):
    """An analysis is one table. by: what the questions are sorted by."""

    by: str
    condition: Where
    buckets: Sequence[QuestionBucket]


def analyses(c: Compared, condition: Where) -> list[Analysis]:
    """Make all tables that the lines of a condition give; those with a single bucket are left
    out."""
    import pandas  # slow to import

    lines = {}
    for s in c.scores:
        if s.condition == condition and not s.system.startswith(SIMULATED):
            frame = pandas.DataFrame.from_dict(s.lines, orient="index")
            # of choices some are not known
            lines[s.system] = frame.reindex(
                columns=[c.metric, "type", "answer_seconds", "position"]
            )
    if not lines:
        return []
    first = next(iter(lines.values()))
    lengths = [seconds_range(*ends) for ends in pairwise(LENGTHS)]
    places = [f"{100 * low:.0f}-{100 * high:.0f} %" for low, high in pairwise(PLACES)]
    seconds, position = (first[name].to_numpy(float) for name in ("answer_seconds", "position"))
    sortings = {
        "type of the answer": pandas.Categorical(first["type"], TYPES),
        "length of the answer": pandas.cut(seconds, LENGTHS, right=False, labels=lengths),
        "place in the passage": pandas.cut(position, PLACES, right=False, labels=places),
    }
    found = []
    for by, kinds in sortings.items():
        buckets = []
        for kind in kinds.categories:
            ids, scores = first.index[kinds == kind], {}
            for system, frame in lines.items() if len(ids) else ():
                values = frame.loc[ids, c.metric].tolist()
                scores[system] = mean_interval(values, c.units(ids), 0, FEW_RESAMPLES)
            if scores:
                buckets.append(QuestionBucket(kind, len(ids), scores))
        if len(buckets) > 1:
            found.append(Analysis(by, condition, buckets))
    return found
