"""Sort questions by what may make them hard, and score every kind by itself: by the answer, by its
place, and by the word errors in its sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from speechssl.eval.compare import SIMULATED, Compared, Where
from speechssl.eval.score import TYPES
from speechssl.results import seconds_range
from speechssl.stats import Interval, mean_interval

if TYPE_CHECKING:
    from pandas import Categorical, Series

FEW_RESAMPLES = 1000  # of tables of missed answers
FEWEST = 5  # questions of a relation that stands by itself
MOST = 15  # relations that do
# half-open ranges
LENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0, float("inf"))  # seconds
WORDS = (1, 2, 3, 5, 9, float("inf"))
PLACES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0 + 1e-9)
RATES = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, float("inf"))  # word error rates of sentences


class QuestionBucket(NamedTuple):
    """A bucket has the questions of one line of a table. scores: by system."""

    name: str
    n: int
    scores: Mapping[str, Interval]


class Analysis(NamedTuple):
    """An analysis is one table. by: what the questions are sorted by. recogniser: whose errors, for
    all systems; "" where none count."""

    by: str
    condition: Where
    recogniser: str
    buckets: Sequence[QuestionBucket]


FIELDS = ("type", "relation", "answer_seconds", "answer_words", "position", "sentence_wer")


def analyses(c: Compared, condition: Where) -> list[Analysis]:
    """Make all tables that the lines of a condition give; those with a single bucket are left
    out."""
    import pandas  # slow to import

    scored = [s for s in c.scores if s.condition == condition]
    lines = {}
    for s in scored:
        frame = pandas.DataFrame.from_dict(s.lines, orient="index")
        lines[s.system] = frame.reindex(columns=[c.metric, *FIELDS])  # of choices some are unknown
    first = lines[scored[0].system]
    words = "characters" if c.errors == "CER" else "words"
    # what questions are sorted by, the recogniser whose errors count, the kind of every question
    sortings = [
        ("type of the answer", "", pandas.Categorical(first["type"], TYPES)),
        ("relation (of the corpus)", "", _sort_relations(first["relation"])),
        ("length of the answer", "", _sort(first["answer_seconds"], LENGTHS, seconds_range)),
        (f"{words} of the answer", "", _sort(first["answer_words"], WORDS, _count_range)),
        ("place in the passage", "", _sort(first["position"], PLACES, _percent)),
    ]
    for system in [s.system for s in scored if s.system in c.recognisers]:
        kinds = _sort(lines[system]["sentence_wer"], RATES, _percent)
        sortings.append((f"{c.errors} of the answer's sentence", system, kinds))

    found = []
    for by, recogniser, kinds in sortings:
        buckets = []
        for kind in kinds.categories:
            ids = first.index[kinds == kind]
            scores = {}
            for system, frame in lines.items():
                if len(ids) and not system.startswith(SIMULATED):
                    values = frame.loc[ids, c.metric].tolist()
                    scores[system] = mean_interval(values, c.units(ids), 0, FEW_RESAMPLES)
            if scores:
                buckets.append(QuestionBucket(kind, len(ids), scores))
        if len(buckets) > 1:
            found.append(Analysis(by, condition, recogniser, buckets))
    return found


def _sort(
    values: Series, edges: Sequence[float], name: Callable[[float, float], str]
) -> Categorical:
    """Sort values into the ranges between the edges, which `name` names."""
    import pandas

    labels = [name(*ends) for ends in pairwise(edges)]
    return pandas.cut(values.to_numpy(float), edges, right=False, labels=labels)


def _sort_relations(relations: Series) -> Categorical:
    """Sort questions by relation: the most frequent by themselves, the others together."""
    import pandas

    relations = relations.fillna("").astype(str).str.replace("_", " ")
    counts = relations[relations != ""].value_counts()
    frequent = [name for name, n in counts.head(MOST).items() if n >= FEWEST]
    rest = len(counts) - len(frequent)
    others = f"{rest} other{'s' * (rest > 1)}"
    kinds = relations.where(relations.isin(["", *frequent]), others)
    return pandas.Categorical(kinds.replace("", None), [*frequent, others])


def _percent(low: float, high: float) -> str:
    return f"{100 * low:.0f}-{100 * high:.0f} %" if high < 1e9 else f"over {100 * low:.0f} %"


def _count_range(low: float, high: float) -> str:
    if high > 1e9:
        return f"{low:g} or more"
    return f"{low:g}" if high == low + 1 else f"{low:g}-{high - 1:g}"
