"""A comparison as JSON and as tables, which the page and Markdown have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from speechssl.bootstrap import Interval
from speechssl.corpora.records import synthetic_sentence
from speechssl.evaluation.comparison import WER, Compared, PairedTest, Where
from speechssl.evaluation.crossing import Crossing
from speechssl.evaluation.error_analysis import Analysis, Bin
from speechssl.evaluation.results import counted_range

NEVER = "they do not cross in the range measured"


@dataclass(frozen=True, eq=False)
class Compilation:
    """All there is to say of one corpus. bins: by system without a transcript, family, and "passage" or "sentence"."""

    compared: Compared
    tests: Sequence[PairedTest]
    crossings: Sequence[Crossing]
    bins: Mapping[tuple[str, str, str], Sequence[Bin]]
    analyses: Sequence[Analysis]


@dataclass(frozen=True)
class Printed:
    """A table with its title and a note."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""


def where_name(where: Where) -> str:
    name, snr = where
    return name if snr is None else f"{name} {snr:g} dB"


def points(v: Interval) -> str:
    """Percent with its interval."""
    return _with_ends(v.percent)


def _with_ends(v: Interval, sign: str = "") -> str:
    """A value with its interval, where it has one. sign: "+" for differences."""
    return f"{v.value:{sign}.1f}" + (f" [{v.low:{sign}.1f}, {v.high:{sign}.1f}]" if v.estimated else "")


def _lone(c: Compared, found: Iterable[Interval]) -> str:
    """What the note of a table says of values without an interval."""
    return "" if all(v.estimated for v in found) else f" One {c.drawn} has no interval."


def _drawn(c: Compared) -> str:
    """ "8 voices": what all intervals of a corpus draw."""
    return counted_range([next(iter(c.estimates.values())).groups], c.drawn)


# ---- tables


def tables_of(c: Compilation) -> list[Printed]:
    found = [_scores(c.compared, c.compared.metric), _scores(c.compared, WER), _tests(c), _crossings(c), *_bins(c)]
    every = [t for t in (*found, *(_analysis(c.compared, a) for a in c.analyses)) if t.rows]
    return [replace(t, note=f"{t.note} {synthetic(c.compared)}".strip()) for t in every]


def synthetic(c: Compared) -> str:
    """What tables of a corpus say where a synthesiser spoke some of it."""
    return synthetic_sentence(c.card.get("synthetic") or "")


def _scores(c: Compared, metric: str) -> Printed:
    conditions = [w for w in c.conditions if any(c.get(s, w, metric) for s in c.systems)]
    rows = [
        (system, *(points(e.interval) if (e := c.get(system, w, metric)) else "–" for w in conditions))
        for system in c.systems
        if any(c.get(system, w, metric) for w in conditions)
    ]
    n = next(iter(c.estimates.values())).n
    lone = _lone(c, (e.interval for s in c.systems for w in conditions if (e := c.get(s, w, metric))))
    title = f"{c.corpus}: {c.errors if metric == WER else _name(metric)}"
    items = f"the passages of {n} questions" if metric == WER else f"{n} questions"
    aside = f" Left out, for they have none: {', '.join(c.aside)}." if c.aside and metric == c.metric else ""
    note = f"Percent with 95 % intervals, which draw {_drawn(c)}; {items}.{lone}{aside}"
    return Printed(title, ("system", *map(where_name, conditions)), tuple(rows), note)


def _name(metric: str) -> str:
    return {"ff1": "FF1", "aos": "AOS", "f1": "F1", "em": "EM"}.get(metric, metric.replace("_", " "))


def _tests(c: Compilation) -> Printed:
    rows = []
    for t in c.tests:
        p = (f"{t.difference.p_value:.4f}", f"{t.p_holm:.4f}")
        rows.append((t.first, t.second, where_name(t.condition), _with_ends(t.difference.interval, "+"), *p))
    note = (
        f"Points of the first over the second on the same questions, with 95 % intervals; paired bootstrap that draws "
        f"{_drawn(c.compared)}, two-sided; p (Holm) is adjusted over all tests of this comparison."
        f"{_lone(c.compared, (t.difference.interval for t in c.tests))}"
    )
    if c.tests and (family := c.tests[0].family) * (least := 2.0 ** (1 - c.tests[0].difference.groups)) > 0.05:
        after = f", nor below {min(1.0, family * least):.2g} after Holm over {family} tests" if family > 1 else ""
        note += f" With {_drawn(c.compared)} no p can be below {least:.2g}{after}."
    note = f"{note} {other_noise(c.tests)}".strip()
    columns = ("first", "second", "condition", "difference", "p", "p (Holm)")
    return Printed(f"{c.compared.corpus}: paired differences, {_name(c.compared.metric)}", columns, tuple(rows), note)


def other_noise(tests: Sequence[PairedTest]) -> str:
    """One line that names the pairs which did not hear the same audio, and why; "" where all did."""
    places: dict[str, list[str]] = {}
    for t in tests:
        if t.seeds:
            pair = f"{t.first} (seed {t.seeds[0]}) and {t.second} (seed {t.seeds[1]})"
            places.setdefault(pair, []).append(where_name(t.condition))
    named = "; ".join(f"{pair} in {', '.join(some)}" for pair, some in places.items())
    return f"Not the same audio, for noise and rooms were drawn with different seeds: {named}." if named else ""


def _crossings(c: Compilation) -> Printed:
    rows = [(x.textless, family_name(x.family), len(x.points), _range(x), told(x), _share(x)) for x in c.crossings]
    note = (
        f"The {c.compared.errors} at which the cascade falls to the system without a transcript, on a fitted curve that never "
        "rises, with the middle 95 % of the resamples; the last column says in how many the lines cross in the range measured."
    )
    columns = (
        "without a transcript",
        f"{c.compared.errors} is varied by",
        "points",
        f"{c.compared.errors} measured",
        "they cross at",
        "in resamples",
    )
    return Printed(f"{c.compared.corpus}: where the lines cross", columns, tuple(rows), note)


def family_name(family: str) -> str:
    """What the word error rate is varied by."""
    return {"simulated": "simulated errors", "recognisers": "recognisers, clean", "all": "all of these"}.get(family, family)


def _share(x: Crossing) -> str:
    return "–" if x.share is None else f"{100 * x.share:.0f} %"


def _range(x: Crossing) -> str:
    return f"{100 * x.low_wer:.1f}-{100 * x.high_wer:.1f} %"


def told(x: Crossing) -> str:
    """Where, or that they do not."""
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


def _bins(c: Compilation) -> list[Printed]:
    found = []
    for (textless, family, what), bins in c.bins.items():
        rows = []
        for b in bins:
            gap = _with_ends(b.difference.percent, "+")
            rows.append((b.name, b.cascade.n, f"{100 * b.wer:.1f}", points(b.cascade), points(b.textless), gap))
        rate = c.compared.errors
        columns = (f"{rate} of the {what}", "questions", f"{rate} of these passages (%)", family, textless, "difference")
        note = f"All conditions pooled; every {what} counts in the range of its own {rate}, a question once a condition."
        note += _lone(c.compared, (b.difference for b in bins))
        title = f"{c.compared.corpus}: {_name(c.compared.metric)} by the {rate} of the {what}, {family} and {textless}"
        found.append(Printed(title, columns, tuple(rows), note))
    return found


def _analysis(c: Compared, a: Analysis) -> Printed:
    systems = [s for s in c.systems if any(s in b.scores for b in a.buckets)]
    rows = [(b.name, b.n, *(points(b.scores[s]) if s in b.scores else "–" for s in systems)) for b in a.buckets]
    by = f"{a.by} ({a.recogniser})" if a.recogniser else a.by
    note = f"{_name(c.metric)} in percent with 95 % intervals, which draw {c.drawn}s, {where_name(a.condition)}."
    note += _lone(c, (v for b in a.buckets for v in b.scores.values()))
    return Printed(f"{c.corpus}: by {by}", (a.by, "n", *systems), tuple(rows), note)


def markdown(tables: Sequence[Printed]) -> str:
    """Tables to paste: a heading, the note, the table."""
    return "\n".join(f"## {t.title}\n\n{t.note}\n\n{_grid(t)}\n" for t in tables)


def _grid(t: Printed) -> str:
    lines = [t.columns, tuple("---" for _ in t.columns), *t.rows]
    return "\n".join("| " + " | ".join(_cell(v) for v in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    text = "–" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


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
        "tests": [_test(t) for t in c.tests],
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


def _test(t: PairedTest) -> dict[str, Any]:
    about = {"first": t.first, "second": t.second, "condition": where_name(t.condition)}
    return about | _plain(t.difference.interval) | {"p_value": t.difference.p_value, "p_holm": t.p_holm, "seeds": t.seeds}


def _crossing(x: Crossing) -> dict[str, Any]:
    low, high = (None, None) if x.share is None else (x.low, x.high)
    about = {"textless": x.textless, "family": x.family, "at": x.at, "low": low, "high": high, "share": x.share}
    places = [
        {
            "system": p.system,
            "condition": where_name(p.condition),
            "wer": p.wer.value,
            "cascade": p.cascade.value,
            "textless": p.textless.value,
        }
        for p in x.points
    ]
    return about | {"told": told(x), "wer_measured": [x.low_wer, x.high_wer], "points": places}
