"""What a page shows of SUPERB below its tables: figures with their captions, and small tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speechssl.report.confusion import confusions
from speechssl.report.figures import Drawing
from speechssl.report.speaker_figures import det_curves, timelines
from speechssl.report.superb_figures import layer_weights, sweeps
from speechssl.report.superb_rows import Superb
from speechssl.report.superb_summary import CACHED, HEARD, cache_lines, heard_lines

LAYERS = (
    "Softmax weights of the sum that each head sees, in percent, a mean over seeds; column CNN is the output of the convolutions, "
    "the others are the layers of the transformer. QbE has no weights: the square marks the layer that dev chose."
)
CONFUSION = (
    "A line is what it was, a column what it was taken for; percent of the line, the stronger the colour the more (on a "
    "square-root scale, so that a few are seen as well)."
)
DET = (
    "Both axes are normal deviates. The marks are the equal error rates, where a curve crosses the dotted diagonal; the nearer to "
    "the lower left corner, the better."
)
TIMELINE = "The first recording of the test set: for each speaker the truth, and below it what each encoder's head said."
SWEEP = (
    "Ringed: the learning rate that dev chose. Dotted: the default. Hollow: given up before the end, as others were better by then."
)


def superb_figures(found: Superb) -> list[tuple[str, str, Drawing]]:
    """Title, caption and drawing of each figure that there are data for."""
    drawn = [
        ("Which layers the tasks use", LAYERS, layer_weights(found)),
        *((f"What was taken for what: {name}", CONFUSION, drawing) for name, drawing in confusions(found)),
        ("Speaker verification: misses against false alarms", DET, det_curves(found)),
        ("Diarisation: who spoke when", TIMELINE, timelines(found)),
        ("Score on dev by learning rate", SWEEP, sweeps(found)),
    ]
    return [(title, caption, drawing) for title, caption, drawing in drawn if drawing]


def superb_tables(found: Superb) -> list[tuple[str, tuple[str, ...], tuple[tuple[Any, ...], ...], str]]:
    """Title, columns, rows and note of each table that there are rows for."""
    cached = "Time of training a head with the encoder in the loop, over the time from hidden states computed once."
    heard = "The first recordings of the test set."
    made: list[tuple[str, tuple[str, ...], Sequence[tuple[Any, ...]], str]] = [
        ("Features once", CACHED, cache_lines(found), cached),
        ("What was recognised", HEARD, heard_lines(found), heard),
    ]
    return [(title, columns, tuple(lines), note) for title, columns, lines, note in made if lines]
