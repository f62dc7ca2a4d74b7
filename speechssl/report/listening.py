"""Examples to listen to: peak envelopes, compact audio, spans along a passage, and a lane for every answer.

Letters: N samples, P points of an envelope. Drawings are WIDTH units wide, whatever the length of the passage; the page stretches
them sideways only, so that one unit is one pixel in height.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speechssl.errors import InputError
from speechssl.report.figures import PALETTE, Results, Series

Audio = tuple[bytes, str]  # encoded sound and its MIME type, as `encode_audio` gives them
UNKNOWN = Series("", "", "", len(PALETTE) - 1)  # grey, for a system without results
WIDTH, HEIGHT = 1000, 88
LEAST = 3.0  # width below which a span could not be seen or clicked
# LAME's average rate: about 105 kB for 30 seconds of speech. Not its constant rate: that low, a frame is too small for
# the header that tells the encoder's delay, and everything would sound 1,105 samples late.
MP3 = {"bitrate_mode": "AVERAGE", "compression_level": 0.89}
RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)  # Hz that MP3 knows


@dataclass(frozen=True)
class Region:
    """A span as drawn. x, width: in [0, WIDTH]; start, end: seconds, to be played."""

    x: float
    width: float
    start: float
    end: float


def envelope(samples: np.ndarray, points: int = 600) -> tuple[float, ...]:
    """Peaks of |samples| in P equal parts, the greatest at 1 (all 0 for silence).

    samples: (N,). Gives min(N, points) numbers. Raises InputError for empty, non-finite or multi-channel audio.
    """
    samples = _checked(samples)
    edges = np.linspace(0, len(samples), min(points, len(samples)) + 1).astype(int)[:-1]
    peaks = np.maximum.reduceat(np.abs(samples), edges)
    return tuple(round(float(p), 3) for p in peaks / max(peaks.max(), 1e-9))


def encode_audio(samples: np.ndarray, sample_rate: int) -> Audio:
    """MP3 in memory, sample for sample in time with what went in. samples: (N,) in [-1, 1]; sample_rate: Hz.

    Raises InputError for audio that `envelope` refuses and for a rate that MP3 does not know.
    """
    import soundfile

    if sample_rate not in RATES:
        raise InputError(f"audio at {sample_rate} Hz cannot go into a report; resample it to 16000 Hz")
    buffer = io.BytesIO()
    soundfile.write(buffer, np.clip(_checked(samples), -1, 1), sample_rate, format="MP3", **MP3)
    return buffer.getvalue(), "audio/mpeg"


def data_uri(audio: Audio) -> str:
    """Raises InputError for a MIME type that is not audio."""
    data, mime = audio
    if not re.fullmatch(r"audio/[a-z0-9.+-]+(; ?codecs=[a-z0-9.]+)?", mime):
        raise InputError(f"{mime!r} is not a type of audio; give audio/mpeg, audio/ogg or the like")
    return f"data:{mime};base64,{base64.b64encode(data).decode('ascii')}"


def outline(peaks: Sequence[float], height: int = HEIGHT) -> str:
    """SVG path of the envelope mirrored about its middle, WIDTH wide. peaks: (P,) in [0, 1]; empty: a flat line."""
    values = list(peaks) or [0.0]
    step, middle = WIDTH / len(values), height / 2
    points = [(step * (i + 0.5), max(0.6, v * (middle - 3))) for i, v in enumerate(values)]
    top = [f"{x:.1f} {middle - y:.1f}" for x, y in points]
    bottom = [f"{x:.1f} {middle + y:.1f}" for x, y in reversed(points)]
    return f"M0 {middle:g}L" + "L".join([*top, f"{WIDTH} {middle:g}", *bottom]) + "Z"


def region(start: float, end: float, seconds: float) -> Region:
    """Where [start, end) of a passage of this length lies. Parts outside the passage are cut off; all in seconds."""
    first, last = (min(max(t, 0.0), seconds) for t in (start, end))
    width = max((last - first) / seconds * WIDTH, LEAST)
    x = min(first / seconds * WIDTH, WIDTH - width)
    return Region(round(x, 2), round(width, 2), round(first, 3), round(last, 3))


def ticks(seconds: float, most: int = 7) -> tuple[tuple[float, str], ...]:
    """(percent from the left, label) for a time axis at round seconds."""
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
    step = next((s for s in steps if seconds / s <= most), 1800)
    count = int(seconds / step + 1e-6)
    return tuple((round(100 * i * step / seconds, 3), f"{i * step:g} s") for i in range(count + 1))


def _checked(samples: np.ndarray) -> np.ndarray:
    samples = np.asarray(samples, dtype=np.float32)
    if samples.ndim != 1 or not len(samples) or not np.isfinite(samples).all():
        raise InputError(f"audio of shape {samples.shape} cannot go into a report; give finite samples of one channel")
    return samples


@dataclass(frozen=True)
class Prediction:
    """What one system answered. start, end: seconds in the passage, None where it found nothing. ff1: percent, or
    None where it is scored by its text alone."""

    system: str
    start: float | None
    end: float | None
    confidence: float | None
    ff1: float | None
    transcript: str | None = None  # the recognised text, where the system makes one
    answer_text: str | None = None


@dataclass(frozen=True)
class Example:
    """One question to listen to.

    seconds: length of the passage. envelope: (P,) peaks in [0, 1]. gold: [start, end) in seconds, every annotation.
    """

    id: str
    question_text: str
    question_audio: Audio
    passage_text: str
    passage_audio: Audio
    seconds: float
    envelope: tuple[float, ...]
    gold: tuple[tuple[float, float], ...]
    answer_text: str
    predictions: tuple[Prediction, ...]
    condition: str = ""  # as it shall be printed, such as "Pink noise, 5 dB"


# ---- lanes


@dataclass(frozen=True)
class Lane:
    """One line under a waveform. pieces: a transcript cut into before, answer, after; None where there is no transcript."""

    series: Series | None  # None: gold
    label: str
    regions: tuple[Region, ...]
    prediction: Prediction | None
    pieces: tuple[str, str, str] | None


def lanes_of(example: Example, results: Results) -> list[Lane]:
    """Gold first, then the predictions in the order of the systems."""

    def cut(text: str, answer: str, regions: Sequence[Region]) -> tuple[str, str, str]:
        near = (regions[0].start + regions[0].end) / 2 / example.seconds if regions else 0.5
        return locate(text, answer, near) or (text, "", "")

    golden = tuple(region(start, end, example.seconds) for start, end in example.gold)
    gold = Lane(None, "Gold answer", golden, None, cut(example.passage_text, example.answer_text, golden))
    lanes = []
    for p in example.predictions:
        series = results.named(p.system) or UNKNOWN
        regions = () if p.start is None or p.end is None else (region(p.start, p.end, example.seconds),)
        pieces = None if p.transcript is None else cut(p.transcript, p.answer_text or "", regions)
        lanes.append((series.slot, Lane(series, series.label or p.system, regions, p, pieces)))
    return [gold, *(lane for _, lane in sorted(lanes, key=lambda pair: pair[0]))]


def locate(text: str, answer: str, near: float = 0.5) -> tuple[str, str, str] | None:
    """Cut a text at the occurrence of the answer that lies nearest to this fraction of the text: before, answer, after.

    Case does not count; whole words are preferred. None where the text does not hold the answer.
    """
    words = re.escape(answer.strip())
    if not words:
        return None
    found = list(re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE)) or list(re.finditer(words, text, re.IGNORECASE))
    if not found:
        return None
    best = min(found, key=lambda m: abs((m.start() + m.end()) / 2 - near * len(text)))
    return text[: best.start()], best[0], text[best.end() :]
