"""Questions to listen to: the answers of all systems on the waveform, with units and phones below;
and the data of the table of all predictions.

Letters: N samples, P points of an envelope. Waveforms are WIDTH units wide, whatever the length of
the passage; the page stretches them sideways only, so that one unit is one pixel in height.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from speechssl.audio import SAMPLE_RATE
from speechssl.data.records import Corpus
from speechssl.eval.compare import Scores
from speechssl.eval.score import ERRORS
from speechssl.report.figures import PALETTE
from speechssl.report.scores import condition_label, conditions_of, find_label
from speechssl.results import Table, full_condition

UNKNOWN = len(PALETTE) - 1  # grey, for a system without results
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


class Prediction(NamedTuple):
    """A prediction is the answer of one system. start, end: seconds in the passage, None where it
    found nothing. ff1: percent, None where it is scored by its text alone."""

    system: str
    start: float | None
    end: float | None
    confidence: float | None
    ff1: float | None
    transcript: str | None = None  # the recognised text, where the system makes one
    answer_text: str | None = None


class Strip(NamedTuple):
    """A strip is a row of blocks under a waveform. blocks: text, start, end in seconds. coloured:
    equal texts have equal colours."""

    label: str
    blocks: tuple[tuple[str, float, float], ...]
    coloured: bool = False


@dataclass(frozen=True)
class ListeningExample:
    """One question to listen to.

    seconds: length of the passage. envelope: (P,) peaks in [0, 1]. gold: [start, end) in seconds,
    every annotation.
    """

    id: str
    question_text: str
    question_audio: bytes  # MP3
    passage_text: str
    passage_audio: bytes
    seconds: float
    envelope: tuple[float, ...]
    gold: tuple[tuple[float, float], ...]
    answer_text: str
    predictions: tuple[Prediction, ...]
    condition: str = ""  # as it shall be printed, such as "Pink noise, 5 dB"
    # what groups it belongs to beside its condition: name of a grouping, group
    badges: tuple[tuple[str, str], ...] = ()
    strips: tuple[Strip, ...] = ()


class Lane(NamedTuple):
    """One line under a waveform. slot: of its colour, None for the gold answer. pieces: a
    transcript cut into before, answer, after; None where there is no transcript."""

    slot: int | None
    label: str
    regions: tuple[Region, ...]
    prediction: Prediction | None
    pieces: tuple[str, str, str] | None


def lanes_of(
    example: ListeningExample, scores: pd.DataFrame, slots: Mapping[str, int]
) -> list[Lane]:
    """Return the gold answer first, then the predictions in the order of the systems."""

    def cut(text: str, answer: str, regions: Sequence[Region]) -> tuple[str, str, str]:
        near = (regions[0].start + regions[0].end) / 2 / example.seconds if regions else 0.5
        return locate(text, answer, near) or (text, "", "")

    golden = tuple(region(start, end, example.seconds) for start, end in example.gold)
    said = cut(example.passage_text, example.answer_text, golden)
    lanes = []
    for p in example.predictions:
        label = find_label(scores, p.system)
        regions: tuple[Region, ...] = ()
        if p.start is not None and p.end is not None:
            regions = (region(p.start, p.end, example.seconds),)
        pieces = None if p.transcript is None else cut(p.transcript, p.answer_text or "", regions)
        lanes.append(Lane(slots.get(label, UNKNOWN), label, regions, p, pieces))
    lanes.sort(key=lambda lane: lane.slot or 0)
    return [Lane(None, "Gold answer", golden, None, said), *lanes]


def locate(text: str, answer: str, near: float = 0.5) -> tuple[str, str, str] | None:
    """Cut a text at the occurrence of the answer that lies nearest to this fraction of the text:
    before, answer, after.

    Case does not count; whole words are preferred. None where the text does not hold the answer.
    """
    words = re.escape(answer.strip())
    matches = list(re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE)) or list(
        re.finditer(words, text, re.IGNORECASE)
    )
    if not words or not matches:
        return None
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
KINDS = (
    "Right: an FF1 of 50 or more (of an answer without times, the F1 of its words). Below that: "
    "too long, where it holds half of the gold answer or more; too short, where half of it or more "
    "lies in that. Little overlap: less than half of either."
)


def predictions_path(score: Scores) -> Path:
    """Return where the answers lie that were scored."""
    folder = score.path.parents[2] / "predictions" / score.path.parent.name
    return folder / score.path.name


def list_predictions(
    scored: Sequence[tuple[Scores, Answers]],
    scores: pd.DataFrame,
    corpus: Corpus | None = None,
    common: Collection[str] = (),
    examples: Mapping[tuple[str, str], str] | None = None,
) -> list[dict[str, Any]]:
    """Make a line a question, system and condition.

    scored: with their answers, {} where there are none. corpus: None leaves out what only it knows,
    the texts of questions and gold answers and the words that are said in an answer. common: ids of
    the questions that all systems answered; empty: no difference is made. examples: (id of a
    question, label of its condition) -> identifier of its element on the page.
    """
    by_id = {q.id: q for q in corpus.questions} if corpus else {}
    written = (scores.condition == "written").any()
    rows = []
    for score, predictions in scored:
        answers = predictions.get("answers", {})
        name = full_condition(score.condition[0], score.card.get("snr_over"))
        name = "written" if written and name == "clean" else name
        where = condition_label(name, score.condition[1])
        reads = any(answer.get("text") for answer in answers.values())
        for question_id, line in score.lines.items():
            question, answer = by_id.get(question_id), answers.get(question_id) or {}
            start, end = answer.get("start") or 0.0, answer.get("end") or 0.0
            text, spoken = answer.get("text") or "", end > start and not reads and corpus
            if spoken and corpus:
                words = corpus.passages[line["passage"]].words
                text = " ".join(w.text for w in words if start <= (w.start + w.end) / 2 < end)
            row = {
                "id": question_id,
                "question": question.written if question else "",
                "gold": question.answers[0].text if question and question.answers else "",
                "type": line.get("type") or "",
                "seconds": _round(line.get("answer_seconds")),
                "common": not common or question_id in common,
                "system": find_label(scores, score.system),
                "condition": where,
                "ff1": _round(line.get("ff1"), 100),
                "f1": _round(line.get("f1"), 100),
                "error": line.get("error") or "",
                "start": _round(start) if end > start else None,
                "end": _round(end) if end > start else None,
                "text": text,
                "spoken": bool(spoken),
                "example": (examples or {}).get((question_id, where), ""),
            }
            rows.append(row)
    return rows


def explorer_of(
    rows: Sequence[Mapping[str, Any]], scores: pd.DataFrame, slots: Mapping[str, int]
) -> dict[str, Any]:
    """Return predictions for the page's script. Systems and conditions stand in their order."""
    systems = list(dict.fromkeys([*slots, *(row["system"] for row in rows)]))
    conditions = list(dict.fromkeys([*conditions_of(scores), *(row["condition"] for row in rows)]))
    questions = {row["id"]: place for place, row in enumerate(reversed(rows))}

    def order(row: Mapping[str, Any]) -> tuple[int, int, int]:
        system, condition = systems.index(row["system"]), conditions.index(row["condition"])
        return condition, -questions[row["id"]], system

    return {
        "systems": systems,
        "slots": {name: slots.get(name, UNKNOWN) for name in systems},
        "conditions": conditions,
        "fields": list(rows[0]),
        "rows": [list(row.values()) for row in sorted(rows, key=order)],
    }


def error_table(explorer: Mapping[str, Any], note: str = "") -> Table | None:
    """Say how the answers of a system err in a condition, in percent of its questions; None where
    no score says so."""
    frame = pd.DataFrame(explorer["rows"], columns=explorer["fields"])
    frame = frame[frame.error != ""]
    if not len(frame):
        return None
    lines = []
    for place, errors in frame.groupby(["condition", "system"], sort=False).error:
        shares = errors.value_counts(normalize=True)
        percent = (round(100 * shares.get(error, 0.0)) for error in ERRORS)
        lines.append((*place, len(errors), *percent))
    columns = ("condition", "system", "n", *ERRORS)
    notes = f"Percent of the questions. {KINDS} {note}".strip()
    return Table("How answers err", columns, tuple(lines), notes)


def _round(value: float | None, times: int = 1) -> float | None:
    return None if value is None else round(times * value, 2)
