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
from speechssl.report.figures import PALETTE
from speechssl.report.scores import condition_label, conditions_of, find_label
from speechssl.results import full_condition

UNKNOWN = len(PALETTE) - 1  # grey, for a system without results
WIDTH, HEIGHT = 1000, 88
LEAST = 3.0  # width below which a span could not be seen or clicked
# LAME's average rate: about 105 kB for 30 seconds of speech. Not its constant rate: that low, a
# frame is too small for the header that tells the encoder's delay, and everything would sound
# 1,105 samples late.
MP3 = {"bitrate_mode": "AVERAGE", "compression_level": 0.89}


class Region(NamedTuple):
    """A span as drawn. x, width: in [0, WIDTH]; start, end: seconds, to be played."""

    x: float
    width: float
    start: float
    end: float


class Prediction(NamedTuple):
    """The answer of one system. start, end: seconds in the passage, None where it found nothing.
    ff1: percent, None where it is scored by its text alone."""

    system: str
    start: float | None
    end: float | None
    confidence: float | None
    ff1: float | None
    transcript: str | None = None  # the recognised text, where the system makes one
    answer_text: str | None = None


class Strip(NamedTuple):
    """A row of blocks under a waveform. blocks: text, start, end in seconds. coloured: equal texts
    have equal colours."""

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


@dataclass(frozen=True)
class Explorer:
    data: Mapping[str, Any]  # for JSON
    note: str = ""


def predictions_path(score: Scores) -> Path:
    """Return where the answers lie that were scored."""
    folder = score.path.parents[2] / "predictions" / score.path.parent.name
    return folder / score.path.name


def place_of(score: Scores, scores: pd.DataFrame) -> tuple[str, str]:
    """Return what the tables of the page call a system and a condition."""
    name, snr_db = score.condition
    name = full_condition(name, score.card.get("snr_over"))
    if name == "clean" and (scores.condition == "written").any():
        name = "written"
    return find_label(scores, score.system), condition_label(name, snr_db)


def in_order(names: Collection[str], order: Sequence[str]) -> list[str]:
    """Return each name once, those of `order` first."""
    return [name for name in dict.fromkeys([*order, *names]) if name in names]


def explorer_of(
    scored: Sequence[Scores],
    answers: Mapping[Path, Answers],
    scores: pd.DataFrame,
    slots: Mapping[str, int],
    corpus: Corpus | None = None,
    common: Collection[str] | None = None,
    examples: Mapping[tuple[str, str], str] | None = None,
) -> Explorer:
    """Make a line a question, system and condition.

    answers: by the path of their scores, as far as there are any. corpus: None leaves out what only
    it knows, the texts of questions and gold answers and the words that are said in an answer.
    common: ids of the questions that all systems answered; None: no difference is made. examples:
    (id of a question, label of its condition) -> identifier of its element on the page.
    """
    places = {score.path: place_of(score, scores) for score in scored}
    systems = in_order([label for label, _ in places.values()], list(slots))
    conditions = in_order([where for _, where in places.values()], conditions_of(scores))
    by_path = {score.path: answers.get(score.path, {}).get("answers", {}) for score in scored}
    by_id = {q.id: q for q in corpus.questions} if corpus else {}
    lines: dict[str, Mapping[str, Any]] = {}  # of a question the first that there is
    for score in scored:
        lines = dict(score.lines) | lines
    order = {name: place for place, name in enumerate(lines)}
    reading = set()  # systems that answer in words; of the others those of the span are shown
    for score in scored:
        if any(answer.get("text") for answer in by_path[score.path].values()):
            reading.add(places[score.path][0])
    rows = []
    for score in scored:
        label, where = places[score.path]
        for name, line in score.lines.items():
            question, about = by_id.get(name), lines[name]
            answer = by_path[score.path].get(name) or {}
            start, end = answer.get("start") or 0.0, answer.get("end") or 0.0
            text = answer.get("text") or ""
            if end > start and label not in reading and corpus:
                words = corpus.passages[line["passage"]].words
                text = " ".join(w.text for w in words if start <= (w.start + w.end) / 2 < end)
            row = {
                "order": order[name],
                "id": name,
                "question": question.written if question else "",
                "gold": question.answers[0].text if question and question.answers else "",
                "type": about.get("type") or "",
                "seconds": _round(about.get("answer_seconds")),
                "common": not common or name in common,
                "s": systems.index(label),
                "c": conditions.index(where),
                "ff1": _round(line.get("ff1"), 100),
                "f1": _round(line.get("f1"), 100),
                "error": line.get("error") or "",
                "start": _round(start) if end > start else None,
                "end": _round(end) if end > start else None,
                "text": text,
                "example": (examples or {}).get((name, where), ""),
            }
            rows.append(row)
    rows.sort(key=lambda row: (row["c"], row["order"], row["s"]))
    named = []
    for label in systems:
        slot = slots.get(label, UNKNOWN)
        named.append({"label": label, "slot": slot, "words": label in reading})
    data = {
        "systems": named,
        "conditions": conditions,
        "fields": list(rows[0]),
        "rows": [list(row.values()) for row in rows],
    }
    note = "In italics: what is said in the time that a system without words answers."
    return Explorer(data, note if corpus and len(reading) < len(systems) else "")


def _round(value: float | None, times: int = 1) -> float | None:
    return None if value is None else round(times * value, 2)
