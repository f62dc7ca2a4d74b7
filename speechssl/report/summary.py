"""The opening paragraph of a report, written from the numbers: what each system reaches, and who leads where."""

from __future__ import annotations

from collections.abc import Sequence

from speechssl.evaluation.results import LOWER_IS_BETTER
from speechssl.report.series import METRICS, Cell, Condition, Results, Series, decibels, metric_name

MOST = 4  # systems in one sentence


def summarise(results: Results, metric: str = "ff1") -> str:
    """A few plain sentences about one metric, or about the first there is where it is missing. Empty without any."""
    if metric not in results.metrics:
        metric = next(iter(results.metrics), "")
    conditions = results.conditions(metric)
    if not conditions:
        return ""
    sentences = [_scores(results, metric, conditions[0])]
    hardest = _hardest(conditions)
    if hardest:
        sentences += [
            _scores(results, metric, hardest),
            _change(results, metric, conditions[0], hardest),
            _wer(results, hardest),
        ]
    return " ".join(filter(None, sentences))


def _hardest(conditions: Sequence[Condition]) -> Condition | None:
    """The least signal-to-noise ratio, else the last condition; None where there is one condition only."""
    noisy = [c for c in conditions[1:] if c.snr_db is not None]
    return min(noisy, key=lambda c: c.snr_db or 0.0, default=conditions[-1]) if len(conditions) > 1 else None


def _scores(results: Results, metric: str, condition: Condition) -> str:
    ranked = _ranked(results, metric, condition)
    cells = ranked[:MOST]
    told = [f"{s.label} {'reaches ' + metric_name(metric) + ' ' if not i else ''}{_number(c)}" for i, (s, c) in enumerate(cells)]
    more = f" ({len(ranked) - MOST} more in the table)" if len(ranked) > MOST else ""
    return f"{_place(condition)} {_listed(told)}{more}."


def _change(results: Results, metric: str, easy: Condition, hard: Condition) -> str:
    """Who leads at either end, and whether the intervals of the first two at the hard end overlap."""
    before, after = _ranked(results, metric, easy), _ranked(results, metric, hard)
    if len(before) < 2 or len(after) < 2:
        return ""
    (leader, first), (_, second) = after[:2]
    sure = "" if _apart(first, second) else ", though the intervals of the first two overlap"
    if leader == before[0][0]:
        return f"{leader.label} leads at both ends{sure}."
    return f"The order changes on the way: {before[0][0].label} leads {_where(easy)}, {leader.label} {_where(hard)}{sure}."


def _wer(results: Results, hard: Condition) -> str:
    clean = Condition("clean")
    errors = results.recognition
    pairs = [(s, results.get(s, errors, clean), results.get(s, errors, hard)) for s in results.having(errors)]
    told = [f"from {a.value:.1f} to {b.value:.1f} % for {s.label}" for s, a, b in pairs if a and b]
    return f"The {METRICS[errors][1].removesuffix(' of the transcript')} goes {_listed(told)}." if told else ""


def _ranked(results: Results, metric: str, condition: Condition) -> list[tuple[Series, Cell]]:
    found = [(s, cell) for s in results.series if (cell := results.get(s, metric, condition))]
    return sorted(found, key=lambda pair: pair[1].value, reverse=metric not in LOWER_IS_BETTER)


def _apart(a: Cell, b: Cell) -> bool:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return True
    return a.low > b.high or b.low > a.high


def _number(cell: Cell) -> str:
    interval = "" if cell.low is None or cell.high is None else f" [{cell.low:.1f}, {cell.high:.1f}]"
    return f"{cell.value:.1f}{interval}"


def _where(condition: Condition) -> str:
    if condition == Condition("clean"):
        return "in clean speech"
    if condition == Condition("written"):
        return "as written"
    if condition.snr_db is not None:
        return f"in {condition.family.lower()} at {decibels(condition.snr_db)}"
    return f"with {condition.family.lower()}"


def _place(condition: Condition) -> str:
    where = _where(condition)
    return where[0].upper() + where[1:]


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1] if parts else ""
