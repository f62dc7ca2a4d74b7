"""The rows of a robustness grid, arranged: a panel a task, a series an encoder; and the sentence that sums them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from speechssl.evaluation.results import LOWER_IS_BETTER, Row, averaged
from speechssl.report.series import SYSTEMS, Cell, Condition, Results, Series, arrange, decibels, metric_name

GROUPS = ("seen-", "unseen-")  # what the names of noisy conditions of a grid begin with
CLEAN = Condition("clean")
AT = 5.0  # dB, the SNR that the summary speaks of


@dataclass(frozen=True)
class Panel:
    """One task by one metric. results: every encoder is a series, with the same colour in all panels."""

    task: str
    metric: str
    results: Results

    @property
    def label(self) -> str:
        return f"{SYSTEMS.get(self.task, self.task)}, {metric_name(self.metric)}"

    @property
    def encoders(self) -> tuple[Series, ...]:
        return self.results.having(self.metric)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.results.conditions(self.metric)

    def cell(self, encoder: Series, condition: Condition) -> Cell | None:
        return self.results.get(encoder, self.metric, condition)

    def loss(self, encoder: Series, condition: Condition) -> float | None:
        """Points that a condition costs against the encoder's own clean speech; below 0 where it is better. None: not measured."""
        clean, noisy = self.cell(encoder, CLEAN), self.cell(encoder, condition)
        if clean is None or noisy is None:
            return None
        return noisy.value - clean.value if self.metric in LOWER_IS_BETTER else clean.value - noisy.value


def of_grid(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of a grid, clean speech among them, and the others."""
    rows = list(rows)
    known = {(r.system, r.encoder, r.metric) for r in rows if r.condition.startswith(GROUPS)}
    mine = [(r.system, r.encoder, r.metric) in known and (r.condition == "clean" or r.condition.startswith(GROUPS)) for r in rows]
    return [r for r, m in zip(rows, mine, strict=True) if m], [r for r, m in zip(rows, mine, strict=True) if not m]


def panels(rows: Sequence[Row], first: Sequence[str] = ()) -> tuple[Panel, ...]:
    """rows: of a grid. Tasks and encoders in the order in which they appear. first: encoders that have the first colours."""
    encoders = series_of([*first, *(r.encoder for r in rows)])
    tasks = dict.fromkeys((r.system, r.metric.lower()) for r in rows)
    return tuple(Panel(task, metric, _results(rows, task, metric, encoders)) for task, metric in tasks)


def series_of(encoders: Iterable[str]) -> list[Series]:
    """A series for each name, in order of appearance."""
    return [Series(name, "", name, slot) for slot, name in enumerate(dict.fromkeys(encoders))]


def _results(rows: Sequence[Row], task: str, metric: str, encoders: Sequence[Series]) -> Results:
    mine = [replace(r, system=r.encoder, encoder="") for r in rows if (r.system, r.metric.lower()) == (task, metric)]
    by_name = {series.system: series for series in encoders}
    cells = {(by_name[s.system], m, c): cell for (s, m, c), cell in arrange(mine).cells.items()}
    return Results(tuple(encoders), cells)


def summarise_grid(found: Sequence[Panel]) -> str:
    """What unseen (else seen) noise costs every encoder, averaged over the tasks that all of them did. Empty without any.

    Units and tasks that need a recogniser (a cascade, SpeechBERT) do not count (`averaged`).
    """
    counted = averaged((p.task, p.metric) for p in found)
    tasks = [p for p in found if (p.task, p.metric) in counted]
    encoders = [e for e in (tasks[0].encoders if tasks else ()) if all(e in p.encoders for p in tasks)]
    level = _level(tasks)
    if not level or not encoders:
        return ""
    losses = {e: [loss for p in tasks for c in level if (loss := p.loss(e, c)) is not None] for e in encoders}
    told = [f"{e.label} {sum(values) / len(values):.1f}" for e, values in losses.items() if values]
    if not told:
        return ""
    count = f"Averaged over {len(tasks)} tasks, " if len(tasks) > 1 else ""
    group, snr = level[0].name.split("-")[0], level[0].snr_db
    noise = f"{group} noise{'' if snr is None else f' at {decibels(snr)}'}"
    sentence = f"{count}{noise} costs {_listed(told)} points against clean speech."
    return sentence[0].upper() + sentence[1:]


def _level(tasks: Sequence[Panel]) -> list[Condition]:
    """The conditions of the unseen (else the seen) group at the SNR nearest to AT."""
    every = list(dict.fromkeys(c for p in tasks for c in p.conditions))
    mine = [c for c in every if c.name.startswith("unseen-")] or [c for c in every if c.name.startswith("seen-")]
    ratios = [c.snr_db for c in mine if c.snr_db is not None]
    snr = min(ratios, key=lambda x: abs(x - AT), default=None)
    return [c for c in mine if c.snr_db == snr]


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1]
