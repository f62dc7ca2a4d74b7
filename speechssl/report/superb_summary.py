"""What SUPERB's tables leave open: the gain of the cache, what was recognised, and a sentence about it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speechssl.report.series import SYSTEMS, Cell
from speechssl.report.superb import TASKS
from speechssl.report.superb_rows import MAIN, RATIO, Measured, Superb
from speechssl.report.superb_tables import best_of, printed

CACHED = ("Task", "Encoder", "times faster")
HEARD = ("Task", "Encoder", "What was said", "What was recognised")


def cache_lines(found: Superb) -> list[tuple[str, str, str]]:
    """Task, encoder, and how many times faster a head trains from cached features than with the encoder in the loop."""
    cells = {(task, encoder): cell for (encoder, task, metric, _), cell in found.cells.items() if metric == RATIO}
    order = sorted(cells, key=lambda k: (TASKS.index(k[0]) if k[0] in TASKS else len(TASKS), k[0]))
    return [(SYSTEMS.get(task, task), encoder, f"{cells[task, encoder].value:.2f} ×") for task, encoder in order]


def heard_lines(found: Superb) -> list[tuple[str, str, str, str]]:
    """In the order of the tasks; phones with spaces between."""
    heard = sorted((h for h in found.artefacts.heard if h.task in TASKS), key=lambda h: (TASKS.index(h.task), h.id))
    return [(SYSTEMS[h.task], h.encoder, h.truth, h.said or "–") for h in heard]


def summarise_superb(found: Superb) -> str:
    """How many encoders, tasks and seeds, and who is best how often. Empty without clean speech."""
    main = [(task, metric) for task, metric in found.columns if MAIN.get(task) == metric]
    scores = {c: {e.label: cell for e in found.encoders if (cell := found.at(e.label, c))} for c in main}
    scores = {c: cells for c, cells in scores.items() if cells}
    if not scores:
        return ""
    names = list(dict.fromkeys(e.label for e in found.encoders if any(e.label in cells for cells in scores.values())))
    seeds = max(cell.seeds for cells in scores.values() for cell in cells.values())
    who = names[0] if len(names) == 1 else f"{len(names)} encoders"
    counted = f"{len(scores)} {'task' if len(scores) == 1 else 'tasks'} of SUPERB"
    told = f"{who} on {counted}{f', {seeds} seeds each' if seeds > 1 else ''}."
    return told + _leaders(scores, names)


def _leaders(scores: Mapping[Measured, Mapping[str, Cell]], names: Sequence[str]) -> str:
    """Of the tasks that all did; a draw counts for all that share it."""
    common = {c: cells for c, cells in scores.items() if len(cells) == len(names)}
    if len(names) < 2 or not common:
        return ""
    wins = dict.fromkeys(names, 0)
    for column, cells in common.items():
        top = best_of(column, list(cells.values()))
        for name, cell in cells.items():
            wins[name] += printed(column, cell.value) == top
    ranked = sorted(names, key=lambda n: -wins[n])
    told = ", ".join(f"{name} in {wins[name]}" for name in ranked if wins[name])
    return f" Best in clean speech, of {len(common)} that all did: {told}."
