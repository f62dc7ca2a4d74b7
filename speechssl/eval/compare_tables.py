"""A comparison as tables, which the page and Markdown have in common, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from speechssl.data.records import synthetic_sentence
from speechssl.eval.compare import WER, Compared, Crossing, PairedTest, Where
from speechssl.eval.error_analysis import Analysis, Bin
from speechssl.eval.tables import Table, with_interval
from speechssl.results import counted_range
from speechssl.stats import Interval

NEVER = "they do not cross in the range measured"
METRIC_NAMES = {"ff1": "FF1", "aos": "AOS", "f1": "F1", "em": "EM"}


@dataclass(frozen=True, eq=False)
class Compilation:
    """All results of one corpus. bins: by system without a transcript, family, and "passage" or "sentence"."""

    compared: Compared
    tests: Sequence[PairedTest]
    crossings: Sequence[Crossing]
    bins: Mapping[tuple[str, str, str], Sequence[Bin]]
    analyses: Sequence[Analysis]


# ---- words


def where_name(where: Where) -> str:
    name, snr = where
    return name if snr is None else f"{name} {snr:g} dB"


def family_name(family: str) -> str:
    """What the word error rate is varied by."""
    return {"simulated": "simulated errors", "recognisers": "recognisers, clean", "all": "all of these"}.get(family, family)


def crossing_text(x: Crossing) -> str:
    """Where the lines cross, or that they do not."""
    if x.at is None:
        if x.ahead == "neither":
            return f"{NEVER}: they are equal throughout"
        ahead, other = (x.textless, "the cascade") if x.ahead == "textless" else ("the cascade", x.textless)
        level = any(p.cascade.value == p.textless.value for p in x.points)
        return f"{NEVER}: {other} is nowhere ahead" if level else f"{NEVER}: {ahead} is ahead throughout"
    if x.share is None:
        return f"{100 * x.at:.1f} %"
    low = "below the range" if x.low is None else f"{100 * x.low:.1f}"
    high = "above the range" if x.high is None else f"{100 * x.high:.1f}"
    return f"{100 * x.at:.1f} % [{low}, {high}]"


def synthetic(c: Compared) -> str:
    """What tables of a corpus say where a synthesiser spoke some of it."""
    return synthetic_sentence(c.card.get("synthetic") or "")


def other_noise(tests: Sequence[PairedTest]) -> str:
    """One line that names the pairs which did not get the same audio, and why; "" where all did."""
    places: dict[str, list[str]] = {}
    for t in tests:
        if t.seeds:
            pair = f"{t.first} (seed {t.seeds[0]}) and {t.second} (seed {t.seeds[1]})"
            places.setdefault(pair, []).append(where_name(t.condition))
    named = "; ".join(f"{pair} in {', '.join(some)}" for pair, some in places.items())
    return f"Not the same audio, for noise and rooms were drawn with different seeds: {named}." if named else ""


def _name(metric: str) -> str:
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def _drawn(c: Compared) -> str:
    """ "8 voices": what all intervals of a corpus draw."""
    return counted_range([next(iter(c.estimates.values())).groups], c.drawn)


def _without_interval(c: Compared, found: Iterable[Interval]) -> str:
    """What the note of a table says of values without an interval."""
    return "" if all(v.estimated for v in found) else f" One {c.drawn} has no interval."


# ---- tables


def tables_of(c: Compilation) -> list[Table]:
    found = [_scores(c.compared, c.compared.metric), _scores(c.compared, WER), _tests(c), _crossings(c), *_bins(c)]
    found += [_analysis(c.compared, a) for a in c.analyses]
    return [replace(t, note=f"{t.note} {synthetic(c.compared)}".strip()) for t in found if t.rows]


def _scores(c: Compared, metric: str) -> Table:
    conditions = [w for w in c.conditions if any(c.get(s, w, metric) for s in c.systems)]
    estimates = {s: [c.get(s, w, metric) for w in conditions] for s in c.systems}
    rows = [
        (system, *(with_interval(e.interval.percent) if e else "–" for e in some))
        for system, some in estimates.items()
        if any(some)
    ]
    n = next(iter(c.estimates.values())).n
    lone = _without_interval(c, (e.interval for some in estimates.values() for e in some if e))
    title = f"{c.corpus}: {c.errors if metric == WER else _name(metric)}"
    items = f"the passages of {n} questions" if metric == WER else f"{n} questions"
    aside = f" Left out, for they have none: {', '.join(c.aside)}." if c.aside and metric == c.metric else ""
    note = f"Percent with 95 % intervals, which draw {_drawn(c)}; {items}.{lone}{aside}"
    return Table(title, ("system", *map(where_name, conditions)), tuple(rows), note)


def _tests(c: Compilation) -> Table:
    rows = [
        (
            t.first,
            t.second,
            where_name(t.condition),
            with_interval(t.difference.interval, "+"),
            f"{t.difference.p_value:.4f}",
            f"{t.p_holm:.4f}",
        )
        for t in c.tests
    ]
    note = (
        f"Points of the first over the second on the same questions, with 95 % intervals; paired bootstrap that draws "
        f"{_drawn(c.compared)}, two-sided; p (Holm) is adjusted over all tests of this comparison."
        f"{_without_interval(c.compared, (t.difference.interval for t in c.tests))}"
    )
    if c.tests and (family := c.tests[0].family) * (least := 2.0 ** (1 - c.tests[0].difference.groups)) > 0.05:
        after = f", nor below {min(1.0, family * least):.2g} after Holm over {family} tests" if family > 1 else ""
        note += f" With {_drawn(c.compared)} no p can be below {least:.2g}{after}."
    note = f"{note} {other_noise(c.tests)}".strip()
    columns = ("first", "second", "condition", "difference", "p", "p (Holm)")
    return Table(f"{c.compared.corpus}: paired differences, {_name(c.compared.metric)}", columns, tuple(rows), note)


def _crossings(c: Compilation) -> Table:
    errors, rows = c.compared.errors, []
    for x in c.crossings:
        measured = f"{100 * x.low_wer:.1f}-{100 * x.high_wer:.1f} %"
        share = "–" if x.share is None else f"{100 * x.share:.0f} %"
        rows.append((x.textless, family_name(x.family), len(x.points), measured, crossing_text(x), share))
    note = (
        f"The {errors} at which the cascade falls to the system without a transcript, on a fitted curve that never "
        "rises, with the middle 95 % of the resamples; the last column says in how many the lines cross in the range measured."
    )
    columns = ("without a transcript", f"{errors} is varied by", "points", f"{errors} measured", "they cross at", "in resamples")
    return Table(f"{c.compared.corpus}: where the lines cross", columns, tuple(rows), note)


def _bins(c: Compilation) -> list[Table]:
    found, rate = [], c.compared.errors
    for (textless, family, what), bins in c.bins.items():
        rows = []
        for b in bins:
            scores = (with_interval(b.cascade.percent), with_interval(b.textless.percent), with_interval(b.difference.percent, "+"))
            rows.append((b.name, b.cascade.n, f"{100 * b.wer:.1f}", *scores))
        columns = (f"{rate} of the {what}", "questions", f"{rate} of these passages (%)", family, textless, "difference")
        note = f"All conditions pooled; every {what} counts in the range of its own {rate}, a question once a condition."
        note += _without_interval(c.compared, (b.difference for b in bins))
        title = f"{c.compared.corpus}: {_name(c.compared.metric)} by the {rate} of the {what}, {family} and {textless}"
        found.append(Table(title, columns, tuple(rows), note))
    return found


def _analysis(c: Compared, a: Analysis) -> Table:
    systems = [s for s in c.systems if any(s in b.scores for b in a.buckets)]
    rows = [(b.name, b.n, *(with_interval(b.scores[s].percent) if s in b.scores else "–" for s in systems)) for b in a.buckets]
    by = f"{a.by} ({a.recogniser})" if a.recogniser else a.by
    note = f"{_name(c.metric)} in percent with 95 % intervals, which draw {c.drawn}s, {where_name(a.condition)}."
    note += _without_interval(c, (v for b in a.buckets for v in b.scores.values()))
    return Table(f"{c.corpus}: by {by}", (a.by, "n", *systems), tuple(rows), note)


# ---- compare.json


def as_json(c: Compilation) -> dict[str, Any]:
    """Fractions, not percent; differences in points. low and high are null where there is one voice or passage alone."""
    about = {name: c.compared.card.get(name) for name in ("corpus", "split", "data", "synthetic", "languages")}
    return about | {
        "metric": c.compared.metric,
        "error_rate": c.compared.errors,
        "drawn": c.compared.drawn,
        "cells": [
            {"system": s, "condition": where_name(w), "metric": metric, **_plain(e.interval)}
            for (s, w, metric), e in c.compared.estimates.items()
        ],
        "tests": [
            {"first": t.first, "second": t.second, "condition": where_name(t.condition), **_plain(t.difference.interval)}
            | {"p_value": t.difference.p_value, "p_holm": t.p_holm, "seeds": t.seeds}
            for t in c.tests
        ],
        "other_noise": other_noise(c.tests),
        "crossings": [_crossing(x) for x in c.crossings],
        "by_own_wer": [
            {"textless": textless, "family": family, "of": what, "bins": [_bin(b) for b in bins]}
            for (textless, family, what), bins in c.bins.items()
        ],
        "errors": [
            {
                "by": a.by,
                "condition": where_name(a.condition),
                "recogniser": a.recogniser,
                "buckets": [{"name": b.name, "n": b.n, "scores": {s: _plain(v) for s, v in b.scores.items()}} for b in a.buckets],
            }
            for a in c.analyses
        ],
    }


def _plain(v: Interval) -> dict[str, Any]:
    """An interval as JSON has it."""
    low, high = v.ends
    values = asdict(v) | {"low": low, "high": high}
    return {name: value for name, value in values.items() if name != "estimated"}


def _bin(b: Bin) -> dict[str, Any]:
    scores = {"cascade": _plain(b.cascade), "textless": _plain(b.textless), "difference": _plain(b.difference)}
    return {"name": b.name, "wer": b.wer} | scores


def _crossing(x: Crossing) -> dict[str, Any]:
    low, high = (None, None) if x.share is None else (x.low, x.high)
    points = [
        {"system": p.system, "condition": where_name(p.condition)}
        | {"wer": p.wer.value, "cascade": p.cascade.value, "textless": p.textless.value}
        for p in x.points
    ]
    about = {"textless": x.textless, "family": x.family, "at": x.at, "low": low, "high": high, "share": x.share}
    return about | {"text": crossing_text(x), "wer_measured": [x.low_wer, x.high_wer], "points": points}
