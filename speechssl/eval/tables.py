"""Tables of SUPERB from rows of results: encoders by tasks, what tuning is worth, and clean above seen above unseen noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from speechssl.data.records import synthetic_sentence
from speechssl.eval.compare import WER, Compared, Crossing, PairedTest, Where
from speechssl.eval.degradation import Grid, Task, drawn, gain, levels
from speechssl.eval.errors import Analysis, Bin
from speechssl.eval.grid import Setting
from speechssl.eval.resampling import Estimate, holm, mean_of
from speechssl.results import DEFAULT, LOWER_IS_BETTER, Row, aligned, counted_range, decimals, drawn_sentence, unit
from speechssl.stats import LEVEL, Interval
from speechssl.superb.catalogue import ORDER

# A comparison as JSON and as tables, which the page and Markdown have in common.

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


# The tables of the robustness grid: the lecture's (encoders x tasks, clean | seen | unseen), and what lies behind it.
#
# They go to the terminal, to `tables.md` and, as they are, into the report. A star marks a score that differs from the
# baseline's in
# the same column (p < 0.05, two-sided; by Holm's procedure over all such tests of the table, where that is asked for).

Numbers = Mapping[str, Any] | None
Place = tuple[str, ...]  # names of a line and a column


@dataclass(frozen=True)
class TextTable:
    """rows: as many texts as columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    @property
    def text(self) -> str:
        return "\n".join(filter(None, [self.title, aligned([self.columns, *self.rows]), self.note]))

    @property
    def markdown(self) -> str:
        lines = [self.columns, ("---",) + ("---:",) * (len(self.columns) - 1), *self.rows]
        body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return "\n\n".join(filter(None, [f"### {self.title}", body, self.note]))


@dataclass(frozen=True)
class Columns:
    """Conditions that make one column of the lecture's table: the mean over them is shown."""

    name: str
    settings: tuple[Setting, ...]


def lecture_columns(grid: Grid, at: float) -> list[Columns]:
    """Clean, and every group at the SNR that lies nearest to `at` (dB); a group without SNRs as it is."""
    columns = [Columns("clean", (grid.clean,))]
    for group in dict.fromkeys(s.group for s in grid.settings[1:]):
        mine = [found for found in levels(grid) if found[0].group == group]
        ratios = [found for found in mine if found[0].snr_db is not None]
        best = min(ratios or mine, key=lambda found: abs((found[0].snr_db or 0.0) - at))
        snr = best[0].snr_db
        columns.append(Columns(group if snr is None else f"{group} {snr:g} dB", tuple(best)))
    return columns


def score_tables(grid: Grid, at: float, corrected: bool) -> list[TextTable]:
    """The lecture's table, a line an encoder in a task, and for each task all conditions."""
    names = lecture_columns(grid, at)
    over = "; ".join(f"{c.name}: {_listed(c.settings)}" for c in names[1:])
    every = [Columns(s.label, (s,)) for s in grid.settings]
    tables = [_scores_of_robustness_tables(grid, grid.tasks, names, f"Clean, seen and unseen: {over}", corrected)]
    return tables + [_scores_of_robustness_tables(grid, [task], every, f"{task[0]}, {task[1]}", corrected) for task in grid.tasks]


def lecture_markdown(grid: Grid, at: float, corrected: bool) -> str:
    """As the lecture has it: a line an encoder, a column a task, clean above seen above unseen in every cell."""
    names = lecture_columns(grid, at)
    cells = _score_cells(grid, grid.tasks, names, corrected)
    head = ["encoder", *(f"{task} {metric}" for task, metric in grid.tasks)]
    rows = [
        [e, *("<br>".join(cells.get((*t, e, c.name), "-") for c in names) if grid.has(t, e) else "-" for t in grid.tasks)]
        for e in grid.encoders
    ]
    table = TextTable(f"Encoders and tasks: {', '.join(c.name for c in names)}", tuple(head), tuple(map(tuple, rows)))
    return table.markdown + f"\n\n{_note(grid, grid.tasks, corrected)}"


def degradation_tables(values: Mapping[str, Any]) -> list[TextTable]:
    """From what `degradation` and `against_cascade` give: averages over tasks, clean speech, DUAL beside the cascade."""
    found = [_shares(values), _clean(values), _retained(values.get("dual_against_cascade", []))]
    return [table for table in found if table.rows]


# ---- scores


def _scores_of_robustness_tables(
    grid: Grid, tasks: Sequence[Task], columns: Sequence[Columns], title: str, corrected: bool
) -> TextTable:
    cells = _score_cells(grid, tasks, columns, corrected)
    rows = [
        ((f"{task[0]} {task[1]}, {e}" if len(tasks) > 1 else e), *(cells[(*task, e, c.name)] for c in columns))
        for task in tasks
        for e in grid.encoders
        if grid.has(task, e)
    ]
    first = "task, encoder" if len(tasks) > 1 else "encoder"
    return TextTable(title, (first, *(c.name for c in columns)), tuple(rows), _note(grid, tasks, corrected))


def _score_cells(grid: Grid, tasks: Sequence[Task], columns: Sequence[Columns], corrected: bool) -> dict[Place, str]:
    """By task, metric, encoder and column: value, interval, and a star where it differs from the baseline's."""
    keys = [(t, e, c) for t in tasks for e in grid.encoders if grid.has(t, e) for c in columns]
    scores = {(*t, e, c.name): mean_of([grid.score(t, e, s) for s in c.settings]) for t, e, c in keys}
    tests: dict[Place, Estimate] = {
        (*t, e, c.name): mean_of([gain(grid, t, e, s) for s in c.settings])
        for t, e, c in keys
        if e != grid.baseline and grid.has(t, grid.baseline)
    }
    stars = significant(tests, corrected)
    return {place: f"{_cell_of_robustness_tables(score)}{'*' if place in stars else ''}" for place, score in scores.items()}


def significant(tests: Mapping[Place, Estimate], corrected: bool) -> set[Place]:
    """Which of a family of quantities are not 0. corrected: by Holm's procedure over the family."""
    p_values = [test.p_value for test in tests.values()]
    adjusted = holm(p_values) if corrected else p_values
    return {place for place, p in zip(tests, adjusted, strict=True) if p < 1 - LEVEL}


def _cell_of_robustness_tables(score: Estimate) -> str:
    v = score.interval.percent
    return f"{v.value:.1f}" + (f" [{v.low:.1f}, {v.high:.1f}]" if v.estimated else "")


def _note(grid: Grid, tasks: Sequence[Task], corrected: bool) -> str:
    kinds = {metric in LOWER_IS_BETTER for _, metric in tasks}
    lower = ", ".join(dict.fromkeys(metric for _, metric in tasks if metric in LOWER_IS_BETTER))
    better = {frozenset({True}): "less is better", frozenset({False}): "more is better"}.get(
        frozenset(kinds), f"more is better, but for {lower}"
    )
    how = "by Holm's procedure over this table" if corrected else "not corrected for the number of tests"
    return f"Percent; {better}. {drawn(grid, tasks)} * differs from the baseline, p < 0.05, {how}."


def _listed(settings: Sequence[Setting]) -> str:
    names = [s.name.removeprefix(f"{s.group}-") for s in settings]
    return names[0] if len(names) == 1 else f"mean of {', '.join(names)}"


# ---- degradation


def _shares(values: Mapping[str, Any]) -> TextTable:
    base = {(a["group"], a["snr_db"]): a["loss"] for a in values["averages"] if a["encoder"] == values["baseline"]}
    others = [a for a in values["averages"] if a["encoder"] != values["baseline"]]
    lines = [_share_of_robustness_tables(a, base[a["group"], a["snr_db"]]) for a in others]
    left = sorted({task for a in values["averages"] for task in a["left_out"]})
    columns = ("encoder", "noise", "baseline loses", "it loses", "removed %", "recovered %", "pooled %")
    note = (
        "Means over the tasks. removed: share of the baseline's loss, each against its own clean speech; recovered: both against "
        "the baseline's clean speech; pooled: removed, of the losses in points added up. " + values["drawn"]
    ).strip()
    kept = (
        f" Somewhere the baseline's loss was not certain, and the task left out of the shares: {', '.join(left)}." if left else ""
    )
    return TextTable("Loss in noise, averaged over tasks (points)", columns, tuple(lines), note + kept)


def _share_of_robustness_tables(a: Mapping[str, Any], base: Numbers) -> tuple[str, ...]:
    noise = a["group"] if a["snr_db"] is None else f"{a['group']} {a['snr_db']:g} dB"
    return a["encoder"], noise, _signed(base), *(_signed(a[name]) for name in ("loss", "removed", "recovered", "pooled"))


def _clean(values: Mapping[str, Any]) -> TextTable:
    rows = tuple(
        (line["encoder"], _signed(line["gain"], "+"), f"{line['worst']['task']}: {_signed(line['worst'], '+')}")
        for line in values["clean"]
        if line["worst"]
    )
    note = f"Points by which it is better than the baseline in clean speech (below 0: worse). {values['drawn']}".strip()
    return TextTable("Clean speech", ("encoder", "mean over tasks", "worst task"), rows, note)


def _retained(lines: Sequence[Mapping[str, Any]]) -> TextTable:
    """A line a pair in one noise, a column an SNR."""
    pairs: dict[Place, dict[float | None, Mapping[str, Any]]] = {}
    for x in lines:
        place = (f"{x['dual']}, {x['dual_encoder']}", f"{x['cascade']}, {x['cascade_encoder']}", x["condition"])
        pairs.setdefault(place, {})[x["snr_db"]] = x
    ratios = sorted({x["snr_db"] for x in lines if x["snr_db"] is not None}, reverse=True)
    rows = tuple((*place, *(_kept(found.get(snr)) for snr in (*ratios, None))) for place, found in pairs.items())
    columns = ("DUAL", "cascade", "noise", *(f"{snr:g} dB" for snr in ratios), "mean, or without SNR")
    note = (
        "FF1 in percent of the system's own FF1 in clean speech: DUAL's - the cascade's = difference in points with its interval; "
        "the questions are drawn together. * p < 0.05, not corrected."
    )
    return TextTable("What DUAL and the cascade keep of their clean FF1", columns, rows, note)


def _kept(line: Mapping[str, Any] | None) -> str:
    if not line or "value" not in line["difference"]:
        return "-"
    star = "*" if line["difference"]["p_value"] < 1 - LEVEL else ""
    return f"{_short(line['dual_retained'])} - {_short(line['cascade_retained'])} = {_signed(line['difference'], '+')}{star}"


def _signed(n: Numbers, sign: str = "") -> str:
    if not n or "value" not in n:
        return "-"
    return f"{n['value']:{sign}.1f}" + (f" [{n['low']:{sign}.1f}, {n['high']:{sign}.1f}]" if n["low"] is not None else "")


def _short(n: Numbers) -> str:
    return f"{n['value']:.1f}" if n else "-"


def page_of(tables: Sequence[TextTable], lecture: str) -> str:
    """The Markdown of all tables."""
    return "\n\n".join([lecture, *(table.markdown for table in tables)]) + "\n"


GROUPS = ("clean", "seen", "unseen")


def superb_tables(rows: Sequence[Row], encoders: Sequence[str], at: float) -> list[TextTable]:
    """at: dB, the SNR that stands for noise. Tables that have nothing to say are left out."""
    mine = [row for row in rows if row.system in ORDER and row.encoder in encoders]
    clean = [row for row in mine if row.condition == "clean"]
    found = [_scores_of_superb_tables(clean, encoders), _tuning(clean, encoders), _noise(mine, encoders, at)]
    return [table for table in found if table.rows]


def _measures(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Tasks with their metrics, in SUPERB's order."""
    found = dict.fromkeys((row.system, row.metric) for row in rows if not _aside(row))
    return sorted(found, key=lambda pair: ORDER.index(pair[0]))


def _aside(row: Row) -> bool:
    return row.metric.endswith(DEFAULT) or row.metric.startswith("ratio")


def _scores_of_superb_tables(rows: Sequence[Row], encoders: Sequence[str]) -> TextTable:
    """A line a measure, a column an encoder: value [interval], mean over seeds."""
    lines = [
        (
            name(task, metric),
            *(_cell_of_superb_tables([r for r in rows if (r.system, r.metric, r.encoder) == (task, metric, e)]) for e in encoders),
        )
        for task, metric in _measures(rows)
    ]
    seeds = len({row.seed for row in rows})
    note = "Test sets, clean speech; ↑ more is better, ↓ less is. "
    note += drawn_sentence((row.system, row.drawn, row.groups) for row in rows if not _aside(row))
    note += f" Means over {seeds} seeds, the interval reaches over those of all." if seeds > 1 else ""
    return TextTable("SUPERB", ("task", *encoders), tuple(lines), note.strip())


def _tuning(rows: Sequence[Row], encoders: Sequence[str]) -> TextTable:
    """The first measure of every task at the learning rate that does best on dev, and at the task's own."""
    tasks = dict.fromkeys((r.system, r.metric.removesuffix(DEFAULT)) for r in rows if r.metric.endswith(DEFAULT))

    def cell(task: str, metric: str, encoder: str) -> str:
        both = [
            _cell_of_superb_tables([r for r in rows if (r.system, r.metric, r.encoder) == (task, m, encoder)])
            for m in (metric, f"{metric}{DEFAULT}")
        ]
        return " / ".join(text.partition(" ")[0] for text in both)

    ordered = sorted(tasks, key=lambda pair: ORDER.index(pair[0]))
    lines = [(name(task, metric), *(cell(task, metric, e) for e in encoders)) for task, metric in ordered]
    return TextTable("Learning rate tuned on dev / the task's own", ("task", *encoders), tuple(lines), "Test sets, clean speech.")


def _noise(rows: Sequence[Row], encoders: Sequence[str], at: float) -> TextTable:
    """As the lecture has it: clean, seen noise, unseen noise; each group at the SNR nearest to `at`, the mean over its noises."""
    groups = [g for g in GROUPS if any(_group(row) == g for row in rows)]
    if len(groups) == 1:
        return TextTable("", (), ())
    lines = [
        (
            name(task, metric),
            *(_stack([r for r in rows if (r.system, r.metric, r.encoder) == (task, metric, e)], groups, at) for e in encoders),
        )
        for task, metric in _measures(rows)
    ]
    but = ", but for those of encoders with + in their names" if any("+" in e for e in encoders) else ""
    note = f"Noise at the SNR nearest to {at:g} dB, the mean over the noises of a group. Heads were trained on clean speech{but}."
    return TextTable(" | ".join(groups), ("task", *encoders), tuple(lines), note)


def _stack(rows: Sequence[Row], groups: Sequence[str], at: float) -> str:
    return " | ".join(_near([r for r in rows if _group(r) == group], at) for group in groups)


def _near(rows: Sequence[Row], at: float) -> str:
    if not rows:
        return "-"
    distance: Callable[[Row], float] = lambda r: abs((at if r.snr_db is None else r.snr_db) - at)  # noqa: E731
    rows = [r for r in rows if r.snr_db is not None] or rows  # one without an SNR counts where there is no other
    best = min(map(distance, rows))
    values = [r.value for r in rows if distance(r) == best]
    return _number(rows[0].metric, sum(values) / len(values))


def _group(row: Row) -> str:
    return row.condition.partition("-")[0]


def name(task: str, metric: str) -> str:
    """ "sid acc ↑", "ss si_sdri (dB) ↑"."""
    shown = f" ({unit(metric)})" if unit(metric) not in ("", "%") else ""
    return f"{task} {metric}{shown} {'↓' if metric in LOWER_IS_BETTER else '↑'}"


def _cell_of_superb_tables(rows: Sequence[Row]) -> str:
    if not rows:
        return "-"
    metric = rows[0].metric
    text = _number(metric, sum(r.value for r in rows) / len(rows))
    lows, highs = [r.low for r in rows if r.low is not None], [r.high for r in rows if r.high is not None]
    return f"{text} [{_number(metric, min(lows))}, {_number(metric, max(highs))}]" if lows and highs else text


def _number(metric: str, value: float) -> str:
    return f"{value:.{decimals(metric)}f}"
