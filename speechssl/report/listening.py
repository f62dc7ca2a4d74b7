"""Questions to listen to: the answers of all systems on the waveform, with units and phones below;
and the data of the table of all predictions.

Letters: N samples, P points of an envelope. Waveforms are WIDTH units wide, whatever the length of
the passage; the page stretches them sideways only, so that one unit is one pixel in height.
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
from speechssl.report.scores import condition_label
from speechssl.results import Table, full_condition

WIDTH, HEIGHT = 1000, 88
LEAST = 3.0  # width below which a span could not be seen or clicked
# LAME's average rate: about 105 kB for 30 seconds of speech. Not its constant rate: that low, a
# frame is too small for the header that tells the encoder's delay, and everything would sound
# 1,105 samples late.
MP3 = {"bitrate_mode": "AVERAGE", "compression_level": 0.89}


class Region(NamedTuple):
    """A region is a span as drawn. x, width: in [0, WIDTH]; start, end: seconds, to be played."""

    x: float
    width: float
    start: float
    end: float


class Lane(NamedTuple):
    """A lane is one line under a waveform: the answer of a system, or of no system, the gold one.

    pieces: what was said or recognised, cut into before, answer, after; None where there is no
    transcript. ff1: percent, None where the answer is scored by its text alone.
    """

    system: str | None
    regions: tuple[Region, ...]
    pieces: tuple[str, str, str] | None
    ff1: float | None = None
    confidence: float | None = None


class Strip(NamedTuple):
    """A strip is a row of blocks under a waveform. blocks: text, start, end in seconds. coloured:
    equal texts have equal colours."""

    label: str
    blocks: tuple[tuple[str, float, float], ...]
    coloured: bool = False


@dataclass(frozen=True)
class ListeningExample:
    """One question to listen to.

    seconds: length of the passage. envelope: (P,) peaks in [0, 1]. lanes: the gold answer first.
    """

    id: str
    question_text: str
    question_audio: bytes  # MP3
    passage_audio: bytes
    seconds: float
    envelope: tuple[float, ...]
    lanes: tuple[Lane, ...]
    condition: str = ""  # as it shall be printed, such as "Pink noise, 5 dB"
    # what groups it belongs to beside its condition: name of a grouping, group
    badges: tuple[tuple[str, str], ...] = ()
    strips: tuple[Strip, ...] = ()


def cut_at(text: str, answer: str, near: float = 0.5) -> tuple[str, str, str]:
    """Cut a text at the occurrence of the answer that lies nearest to this fraction of the text:
    before, answer, after; (text, "", "") where it does not hold the answer.

    Case does not count; whole words are preferred.
    """
    words = re.escape(answer.strip())
    matches = list(re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE))
    matches = matches or list(re.finditer(words, text, re.IGNORECASE))
    if not words or not matches:
        return text, "", ""
    best = min(matches, key=lambda m: abs((m.start() + m.end()) / 2 - near * len(text)))
    return text[: best.start()], best[0], text[best.end() :]


def envelope(samples: np.ndarray, points: int = 600) -> tuple[float, ...]:
    """Return the peaks of |samples| in P equal parts, the greatest at 1 (all 0 for silence).
    samples: (N,). There are min(N, points) of them."""
    edges = np.linspace(0, len(samples), min(points, len(samples)) + 1).astype(int)[:-1]
    peaks = np.maximum.reduceat(np.abs(samples), edges)
    return tuple(round(float(p), 3) for p in peaks / max(peaks.max(), 1e-9))


def encode_audio(samples: np.ndarray) -> bytes:
    """Return MP3, sample for sample in time with what went in. samples: (N,) in [-1, 1] at 16
    kHz."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, np.clip(samples, -1, 1), SAMPLE_RATE, format="MP3", **MP3)
    return buffer.getvalue()


def data_uri(audio: bytes) -> str:
    return f"data:audio/mpeg;base64,{base64.b64encode(audio).decode('ascii')}"


def outline(peaks: Sequence[float]) -> str:
    """Return the SVG path of the envelope mirrored about its middle, WIDTH wide. peaks: (P,) in
    [0, 1]; empty: a flat line."""
    values = list(peaks) or [0.0]
    step, middle = WIDTH / len(values), HEIGHT / 2
    points = [(step * (i + 0.5), max(0.6, v * (middle - 3))) for i, v in enumerate(values)]
    top = [f"{x:.1f} {middle - y:.1f}" for x, y in points]
    bottom = [f"{x:.1f} {middle + y:.1f}" for x, y in reversed(points)]
    return f"M0 {middle:g}L" + "L".join([*top, f"{WIDTH} {middle:g}", *bottom]) + "Z"


def region(start: float, end: float, seconds: float) -> Region:
    """Return where [start, end) of a passage of this length lies. Parts outside the passage are cut
    off; all in seconds."""
    first, last = (min(max(t, 0.0), seconds) for t in (start, end))
    width = max((last - first) / seconds * WIDTH, LEAST)
    x = min(first / seconds * WIDTH, WIDTH - width)
    return Region(round(x, 2), round(width, 2), round(first, 3), round(last, 3))


def ticks(seconds: float) -> tuple[tuple[float, str], ...]:
    """Return (percent from the left, label) of a time axis at round seconds, seven steps at
    most."""
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
    step = next((s for s in steps if seconds / s <= 7), 1800)
    return tuple(
        (round(100 * i * step / seconds, 3), f"{i * step:g} s")
        for i in range(int(seconds / step + 1e-6) + 1)
    )


# ---- every prediction in one table to filter and sort, which the page's script draws

# predictions of one system in one condition, as `evaluate` left them
Answers = Mapping[str, Any]
RIGHT = "Right: an FF1 of 50 or more (of an answer without times, the F1 of its words)."
KINDS = (
    f"{RIGHT} Below that: "
    "too long, where it holds half of the gold answer or more; too short, where half of it or more "
    "lies in that. Little overlap: less than half of either."
)


def find_predictions(score: Scores) -> Path:
    """Return where the answers lie that were scored."""
    folder = score.path.parents[2] / "predictions" / score.path.parent.name
    return folder / score.path.name


def list_predictions(
    scored: Sequence[tuple[Scores, Answers]],
    corpus: Corpus,
    examples: Mapping[tuple[str, str], str],
) -> list[dict[str, Any]]:
    """Make a line a question, system and condition.

    examples: (id of a question, label of its condition) -> identifier of its element on the page.
    """
    questions = {q.id: q for q in corpus.questions}
    answered = [score.lines.keys() & given["answers"].keys() for score, given in scored]
    common = set.intersection(*answered)
    rows = []
    for score, given in scored:
        answers = given["answers"]
        name = full_condition(score.condition[0], score.card.get("snr_over"))
        where = condition_label(name, score.condition[1])
        reads = any(answer.get("text") for answer in answers.values())
        for question_id, line in score.lines.items():
            question, answer = questions[question_id], answers.get(question_id) or {}
            start, end = answer.get("start") or 0.0, answer.get("end") or 0.0
            text, timed = answer.get("text") or "", end > start
            if timed and not reads:
                words = corpus.passages[question.passage].words
                text = " ".join(w.text for w in words if start <= (w.start + w.end) / 2 < end)
            row = {
                "id": question_id,
                "question": question.written,
                "gold": question.answers[0].text if question.answers else "",
                "type": line["type"] or "",
                "seconds": _round(line["answer_seconds"]),
                "common": not common or question_id in common,
                "system": score.system,
                "condition": where,
                "ff1": _round(line["ff1"], 100),
                "f1": _round(line["f1"], 100),
                "error": line["error"] or "",
                "start": _round(start) if timed else None,
                "end": _round(end) if timed else None,
                "text": text,
                "spoken": timed and not reads,
                "example": examples.get((question_id, where), ""),
            }
            rows.append(row)
    return rows


def make_explorer(rows: Sequence[Mapping[str, Any]], slots: Mapping[str, int]) -> dict[str, Any]:
    """Return predictions for the page's script, by condition and question, within these as they
    come. slots: of the systems."""
    conditions = list(dict.fromkeys(row["condition"] for row in rows))
    questions = {name: place for place, name in enumerate(dict.fromkeys(r["id"] for r in rows))}

    def order(row: Mapping[str, Any]) -> tuple[int, int]:
        return conditions.index(row["condition"]), questions[row["id"]]

    return {
        "systems": list(slots),
        "slots": slots,
        "conditions": conditions,
        "fields": list(rows[0]),
        "rows": [list(row.values()) for row in sorted(rows, key=order)],
    }


def tabulate_errors(explorer: Mapping[str, Any], note: str = "") -> list[Table]:
    """Make a table of how the answers of a system err in a condition, in percent of its questions;
    none where no score says so."""
    frame = pd.DataFrame(explorer["rows"], columns=explorer["fields"])
    frame = frame[frame.error != ""]
    if frame.empty:
        return []
    lines = []
    for place, errors in frame.groupby(["condition", "system"], sort=False).error:
        shares = 100 * errors.value_counts(normalize=True).reindex(ERRORS, fill_value=0.0)
        lines.append((*place, len(errors), *shares.round().astype(int)))
    columns = ("condition", "system", "n", *ERRORS)
    notes = f"Percent of the questions. {KINDS} {note}".strip()
    return [Table("How answers err", columns, tuple(lines), notes)]


def _round(value: float | None, times: int = 1) -> float | None:
    return None if value is None else round(times * value, 2)
