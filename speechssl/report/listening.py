"""This module has the data of questions to listen to, and of the table of all predictions.

A question to listen to shows the waveform of its passage, below it a lane for each answer, and
strips with units and phones. A waveform is an SVG image of WIDTH x HEIGHT SVG units, whatever the
length of the passage. The page stretches it sideways only, so that one unit is one pixel in height.
Letters: N samples of a recording at 16 kHz, P points of its envelope, the peaks of the waveform.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from speechssl.audio import SAMPLE_RATE
from speechssl.data.records import Corpus
from speechssl.eval.compare import Scores
from speechssl.eval.score import ERRORS
from speechssl.report.scores import label_condition
from speechssl.results import Table, name_full_condition

WIDTH, HEIGHT = 1000, 88  # of a waveform, in SVG units
NARROWEST = 3.0  # least width of a region in SVG units, so that it can be seen and clicked
# LAME's average rate: about 105 kB for 30 seconds of speech. At a constant rate as low as this, a
# frame is too small for the header with the encoder's delay, and the audio would be 1,105 samples
# late.
MP3 = {"bitrate_mode": "AVERAGE", "compression_level": 0.89}


class Region(NamedTuple):
    """A region is a span of time on a waveform."""

    # where it is drawn, in SVG units from 0 to WIDTH
    x: float
    width: float
    # what is played, in seconds
    start: float
    end: float


class Lane(NamedTuple):
    """A lane is one line under a waveform: the answer of a system, or the gold answer."""

    system: str | None  # None for the gold answer
    regions: tuple[Region, ...]
    # the transcript before, in and after the answer; None where there is no transcript
    pieces: tuple[str, str, str] | None
    ff1: float | None = None  # percent; None where the answer is scored by its text alone
    confidence: float | None = None


class Strip(NamedTuple):
    """A strip is a row of blocks under a waveform."""

    label: str
    blocks: tuple[tuple[str, float, float], ...]  # text, start and end in seconds
    coloured: bool = False  # whether equal texts have equal colours


@dataclass(frozen=True)
class ListeningExample:
    """An example is a question to listen to."""

    id: str
    question_text: str
    question_audio: bytes  # MP3
    passage_audio: bytes  # MP3
    seconds: float  # length of the passage
    envelope: tuple[float, ...]  # (P,) peaks from 0 to 1
    lanes: tuple[Lane, ...]  # the gold answer first
    condition: str = ""  # as printed, such as "Pink noise, 5 dB"
    # further groups that it belongs to: (name of the grouping, group)
    badges: tuple[tuple[str, str], ...] = ()
    strips: tuple[Strip, ...] = ()


def cut_at(text: str, answer: str, near: float = 0.5) -> tuple[str, str, str]:
    """Cut a text into the parts before, in and after the answer; (text, "", "") where the answer is
    not in the text.

    near: a place as a fraction of the text; of several occurrences the one nearest to it is taken.
    Case does not count; whole words are preferred.
    """
    words = re.escape(answer.strip())
    matches = list(re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE))
    matches = matches or list(re.finditer(words, text, re.IGNORECASE))
    if not words or not matches:
        return text, "", ""
    best = min(matches, key=lambda m: abs((m.start() + m.end()) / 2 - near * len(text)))
    return text[: best.start()], best[0], text[best.end() :]


def compute_envelope(samples: np.ndarray, points: int = 600) -> tuple[float, ...]:
    """Compute the peaks of |samples| in P = min(N, points) equal parts, scaled so that the greatest
    is 1 (all 0 for silence). samples: (N,)."""
    edges = np.linspace(0, len(samples), min(points, len(samples)) + 1).astype(int)[:-1]
    peaks = np.maximum.reduceat(np.abs(samples), edges)
    return tuple(round(float(p), 3) for p in peaks / max(peaks.max(), 1e-9))


def encode_audio(samples: np.ndarray) -> bytes:
    """Encode samples (N,) in [-1, 1] at 16 kHz as MP3, without a delay."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, np.clip(samples, -1, 1), SAMPLE_RATE, format="MP3", **MP3)
    return buffer.getvalue()


def make_data_uri(content: bytes, media_type: str = "audio/mpeg") -> str:
    """Make an address that holds the content, such as that of an <audio> element."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def draw_outline(peaks: Sequence[float]) -> str:
    """Draw the SVG path of a waveform: the envelope and its mirror image. peaks: (P,) in [0, 1]; a
    flat line where there are none."""
    values = list(peaks) or [0.0]
    step = WIDTH / len(values)
    middle = HEIGHT / 2
    points = []
    for i, peak in enumerate(values):
        # the outline leaves a margin of 3; 0.6 makes silence a line that can be seen
        points.append((step * (i + 0.5), max(0.6, peak * (middle - 3))))
    top = [f"{x:.1f} {middle - y:.1f}" for x, y in points]
    bottom = [f"{x:.1f} {middle + y:.1f}" for x, y in reversed(points)]
    return f"M0 {middle:g}L" + "L".join([*top, f"{WIDTH} {middle:g}", *bottom]) + "Z"


def make_region(start: float, end: float, seconds: float) -> Region:
    """Make the region of [start, end) in a passage of this length, all in seconds. Parts outside
    the passage are cut off."""
    first = min(max(start, 0.0), seconds)
    last = min(max(end, 0.0), seconds)
    width = max((last - first) / seconds * WIDTH, NARROWEST)
    x = min(first / seconds * WIDTH, WIDTH - width)
    return Region(round(x, 2), round(width, 2), round(first, 3), round(last, 3))


def list_ticks(seconds: float) -> tuple[tuple[float, str], ...]:
    """List the ticks of a time axis at round seconds, as (percent from the left, label); they
    divide it into at most seven steps."""
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
    step = next((s for s in steps if seconds / s <= 7), 1800)
    count = int(seconds / step + 1e-6) + 1
    return tuple((round(100 * i * step / seconds, 3), f"{i * step:g} s") for i in range(count))


# ---- the table of all predictions, which the page's script draws, filters and sorts

# the predictions of one system in one condition (`eval.predict.parse_predictions`)
Answers = Mapping[str, Any]
RIGHT = "Right: an FF1 of 50 or more (of an answer without times, the F1 of its words)."
KINDS = (
    f"{RIGHT} Below that: "
    "too long, where it holds half of the gold answer or more; too short, where half of it or more "
    "lies in that. Little overlap: less than half of either."
)


def find_predictions(score: Scores) -> Path:
    """Return OUT/predictions/A/B.parquet for the scores of OUT/scores/A/B.parquet."""
    folder = score.path.parents[2] / "predictions" / score.path.parent.name
    return folder / score.path.name


def list_predictions(
    scored: Sequence[tuple[Scores, Answers]],
    corpus: Corpus,
    examples: Mapping[tuple[str, str], str],
) -> list[dict[str, Any]]:
    """Make a row for each question, system and condition.

    examples: the identifier of the element on the page by the question's id and the label of its
    condition.
    """
    questions = {q.id: q for q in corpus.questions}
    answered = [score.lines.keys() & predicted["answers"].keys() for score, predicted in scored]
    common = set.intersection(*answered)  # the questions that all systems answered
    rows = []
    for score, predicted in scored:
        answers = predicted["answers"]
        name = name_full_condition(score.condition[0], score.card.get("snr_over"))
        condition = label_condition(name, score.condition[1])
        gives_text = any(answer.get("text") for answer in answers.values())
        for question_id, line in score.lines.items():
            question, answer = questions[question_id], answers.get(question_id) or {}
            start, end = answer.get("start") or 0.0, answer.get("end") or 0.0
            text = answer.get("text") or ""
            has_times = end > start
            if has_times and not gives_text:  # the words of the reference within the times
                words = corpus.passages[question.passage].words
                text = " ".join(w.text for w in words if start <= (w.start + w.end) / 2 < end)
            row = {
                "id": question_id,
                "question": question.written,
                "gold": question.answers[0].text,
                "type": line["type"],
                "seconds": _round(line["answer_seconds"]),
                "common": not common or question_id in common,
                "system": score.system,
                "condition": condition,
                "ff1": _round(line["ff1"], 100),
                "f1": _round(line["f1"], 100),
                "error": line["error"],
                "start": _round(start) if has_times else None,
                "end": _round(end) if has_times else None,
                "text": text,
                "spoken": has_times and not gives_text,
                "example": examples.get((question_id, condition), ""),
            }
            rows.append(row)
    return rows


def make_explorer(rows: Sequence[Mapping[str, Any]], slots: Mapping[str, int]) -> dict[str, Any]:
    """Return the predictions for page.js, sorted by condition and question. slots: numbers of the
    systems' colours in the palette."""
    conditions = list(dict.fromkeys(row["condition"] for row in rows))
    ids = dict.fromkeys(row["id"] for row in rows)
    questions = {name: number for number, name in enumerate(ids)}

    def sort_key(row: Mapping[str, Any]) -> tuple[int, int]:
        return conditions.index(row["condition"]), questions[row["id"]]

    return {
        "systems": list(slots),
        "slots": slots,
        "conditions": conditions,
        "fields": list(rows[0]),
        "rows": [list(row.values()) for row in sorted(rows, key=sort_key)],
    }


def tabulate_errors(explorer: Mapping[str, Any], note: str = "") -> list[Table]:
    """Make a table of the errors of every system in every condition, in percent of the questions;
    no table where the scores have no errors."""
    frame = pd.DataFrame(explorer["rows"], columns=explorer["fields"])
    frame = frame[frame.error != ""]
    if frame.empty:
        return []
    lines = []
    for cell, errors in frame.groupby(["condition", "system"], sort=False).error:
        shares = 100 * errors.value_counts(normalize=True).reindex(ERRORS, fill_value=0.0)
        lines.append((*cell, len(errors), *shares.round().astype(int)))
    columns = ("condition", "system", "n", *ERRORS)
    notes = f"Percent of the questions. {KINDS} {note}".strip()
    return [Table("How answers err", columns, tuple(lines), notes)]


def _round(value: float | None, times: int = 1) -> float | None:
    """Return a value, times a factor, with two decimals."""
    return None if value is None else round(times * value, 2)
