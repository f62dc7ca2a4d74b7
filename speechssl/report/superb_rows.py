"""The rows of a SUPERB run: which they are, what was measured in which order, and a cell for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from speechssl.evaluation.results import DEFAULT, Row, unit
from speechssl.report.robustness import CLEAN, GROUPS, Panel, panels, series_of
from speechssl.report.series import Cell, Condition, Series, arrange
from speechssl.report.superb import TASKS, Artefacts

ORDER = (
    ("pr", "per"),
    ("asr", "wer"),
    ("asr", "wer_lm"),
    ("ks", "acc"),
    ("qbe", "mtwv"),
    ("sid", "acc"),
    ("asv", "eer"),
    ("sd", "der"),
    ("ic", "acc"),
    ("sf", "slot_f1"),
    ("sf", "slot_cer"),
    ("er", "acc"),
    ("se", "pesq"),
    ("se", "stoi"),
    ("se", "si_sdr"),
    ("ss", "si_sdri"),
)
MAIN = {task: metric for task, metric in reversed(ORDER)}  # what heads are chosen by
OWN = frozenset({"pr", "qbe", "asv", "sd", "sf", "er", "se", "ss"})  # tasks that no robustness grid of old has
RATIO = "ratio_cached"
Measured = tuple[str, str]  # task, metric


@dataclass(frozen=True)
class Superb:
    """The rows of a SUPERB run and what lies beside them. Falsy where there are none."""

    rows: tuple[Row, ...] = ()
    artefacts: Artefacts = Artefacts()

    def __bool__(self) -> bool:
        return bool(self.rows or self.artefacts)

    def has(self, row: Row) -> bool:
        return bool(self) and (row.system in TASKS or row.metric == RATIO)

    def shows(self, row: Row) -> bool:
        """Whether the tables and figures of SUPERB show a row, so that nobody else need."""
        return self.has(row) and (row.condition == CLEAN.name or row.condition.startswith(GROUPS))

    @property
    def noisy(self) -> tuple[Panel, ...]:
        """A panel a task that was measured in noise, in the benchmark's order and with the colours of its encoders."""
        order = {column: number for number, column in enumerate(self.columns)}
        rows = [r for r in self.rows if (r.system, r.metric.lower()) in order and self.shows(r)]
        known = {(r.system, r.encoder, r.metric) for r in rows if r.condition.startswith(GROUPS)}
        mine = [r for r in rows if (r.system, r.encoder, r.metric) in known]
        return panels(sorted(mine, key=lambda r: order[r.system, r.metric.lower()]), [e.label for e in self.encoders])

    @cached_property
    def encoders(self) -> tuple[Series, ...]:
        return tuple(series_of([*(r.encoder for r in self.rows), *self.artefacts.encoders]))

    @cached_property
    def cells(self) -> Mapping[tuple[str, str, str, Condition], Cell]:
        """By encoder, task, metric and condition, a mean over seeds."""
        return {(s.encoder, s.system, metric, c): cell for (s, metric, c), cell in arrange(self.rows).cells.items()}

    @cached_property
    def columns(self) -> tuple[Measured, ...]:
        """What was measured of the tasks, in the benchmark's order."""
        found = {(task, metric) for _, task, metric, _ in self.cells if metric != RATIO and not metric.endswith(DEFAULT)}
        rest = sorted(found - set(ORDER), key=lambda m: (TASKS.index(m[0]), m[1]))
        return tuple(sorted([m for m in ORDER if m in found] + rest, key=lambda m: TASKS.index(m[0])))

    def at(self, encoder: str, column: Measured, condition: Condition = CLEAN) -> Cell | None:
        return self.cells.get((encoder, *column, condition))


def of_superb(rows: Iterable[Row], artefacts: Artefacts = Artefacts()) -> Superb:
    """Empty where neither the rows nor the artefacts are SUPERB's: keywords, intents, speakers and words alone may be a grid's."""
    rows = list(rows)
    sure = artefacts or any(r.system in OWN or r.metric in (RATIO, "wer_lm") or r.metric.endswith(DEFAULT) for r in rows)
    if not sure:
        return Superb()
    return Superb(tuple(r for r in rows if r.system in TASKS or r.metric == RATIO), artefacts)


def main_panels(found: Sequence[Panel]) -> list[Panel]:
    """One a task, in percent: what losses may be averaged over."""
    return [p for p in found if unit(p.metric) == "%" and MAIN.get(p.task, p.metric) == p.metric]
