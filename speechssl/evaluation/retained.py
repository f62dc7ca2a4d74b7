"""What DUAL and a cascade retain of what they reach in clean speech, as the noise grows.

Retained is 100 s(c) / s(clean), FF1 of a system under a condition over its own in clean speech. The questions are drawn together,
by voice or passage as everywhere, for both systems and all conditions; `resampling` has the bootstrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from speechssl.evaluation.degradation import Grid, Task, numbers
from speechssl.evaluation.resampling import Estimate, combined, mean_of, resampled
from speechssl.evaluation.results import CASCADE


@dataclass(frozen=True)
class Reader:
    """A system with the encoder that it hears by."""

    task: Task
    encoder: str


def against_cascade(grid: Grid) -> list[dict[str, Any]]:
    """Every DUAL beside the cascades of its own encoder and of the baseline: in every condition, and averaged over the SNRs of one
    noise (`mean_over`, which spares the choice of an SNR). difference: DUAL's share minus the cascade's, in points.
    """
    readers = [Reader(task, e) for task in grid.tasks if task[1] == "ff1" for e in grid.encoders if grid.has(task, e)]
    duals = [r for r in readers if r.task[0].startswith("dual")]
    cascades = [r for r in readers if r.task[0].startswith(CASCADE)]
    pairs = [(d, c) for d in duals for c in cascades if c.encoder in (d.encoder, grid.baseline)]
    return [line for dual, cascade in pairs for line in _pair(grid, dual, cascade)]


def _pair(grid: Grid, dual: Reader, cascade: Reader) -> list[dict[str, Any]]:
    cells = {(r, s): grid.cells[r.task, r.encoder, s].scored for r in (dual, cascade) for s in grid.settings}
    scores = resampled(cells, grid.seed, grid.resamples, grid.cells[dual.task, dual.encoder, grid.clean].unit)

    def kept(reader: Reader) -> list[Estimate]:
        clean = scores[reader, grid.clean]
        return [combined(lambda a, b: 100 * a / b, scores[reader, s], clean) for s in grid.settings[1:]]

    found = list(zip(grid.settings[1:], kept(dual), kept(cascade), strict=True))
    lines = []
    for name, group in groupby(found, key=lambda line: line[0].name):
        some = list(group)
        lines += [_line(dual, cascade, name, s.snr_db, [s.snr_db], a, b) for s, a, b in some]
        if len(some) > 1:
            means = (mean_of([a for _, a, _ in some]), mean_of([b for _, _, b in some]))
            lines.append(_line(dual, cascade, name, None, [s.snr_db for s, _, _ in some], *means))
    return lines


def _line(
    dual: Reader, cascade: Reader, condition: str, snr: float | None, over: Sequence[float | None], a: Estimate, b: Estimate
) -> dict[str, Any]:
    difference = combined(np.subtract, a, b)
    return {
        "dual": dual.task[0],
        "dual_encoder": dual.encoder,
        "cascade": cascade.task[0],
        "cascade_encoder": cascade.encoder,
        "condition": condition,
        "snr_db": snr,
        "mean_over": list(over),
        "dual_retained": numbers(a),
        "cascade_retained": numbers(b),
        "difference": {**(numbers(difference) or {}), "p_value": difference.p_value},
    }
