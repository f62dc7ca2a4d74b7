"""Make the section of SUPERB on a page: the tables of `superb run`, published scores, and the
figures of `superb_figures`."""

from __future__ import annotations

from collections.abc import Sequence

from speechssl.eval.superb import make_superb_tables, name_measure
from speechssl.report.page import Section
from speechssl.report.scores import assign_slots
from speechssl.report.superb_figures import Artefacts, draw_confusions, draw_det, draw_layers
from speechssl.results import PUBLISHED_SUPERB, Row, Table, load_published, read_published_encoders
from speechssl.superb.options import ORDER

NOISE_SNR = 5.0  # dB, the SNR that stands for noise


def make_superb_section(rows: Sequence[Row], artefacts: Artefacts) -> Section:
    """Make the section of SUPERB. rows: those of its tasks."""
    encoders = list(dict.fromkeys(row.encoder for row in rows))
    slots = assign_slots([*encoders, *(x.encoder for x in artefacts.details)])
    tables = make_superb_tables(rows, encoders, NOISE_SNR)
    measured = dict.fromkeys((row.task, row.metric) for row in rows)
    published_table = tabulate_published_scores(
        sorted(measured, key=lambda cell: ORDER.index(cell[0]))
    )
    drawings = [
        draw_layers(artefacts, slots),
        *draw_confusions(artefacts),
        draw_det(artefacts, slots),
    ]
    return Section("SUPERB", "", [*tables, *published_table], drawings)


def tabulate_published_scores(measured: Sequence[tuple[str, str]]) -> list[Table]:
    """Make a table of published scores for the measured tasks and metrics; no table where none of
    these was published."""
    encoders, checked = read_published_encoders(), load_published()["superb"]["checked"]
    rows = []
    for task, metric in measured:
        values = [scores.get((task, metric)) for scores in encoders.values()]
        if any(value is not None for value in values):
            mark = "" if task in checked else " †"
            texts = (None if value is None else f"{value:.2f}{mark}" for value in values)
            rows.append((name_measure(task, metric), *texts))
    note = f"{PUBLISHED_SUPERB} † Not verified against the leaderboard."
    title = "Published encoders, on the published sets"
    return [Table(title, ("task", *encoders), tuple(rows), note)] if rows else []
