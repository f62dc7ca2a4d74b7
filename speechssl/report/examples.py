"""The records behind the listening section, and the JSON file that carries them (audio in base64)."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from speechssl.artefacts import read_json, write_json
from speechssl.errors import InputError

Audio = tuple[bytes, str]  # encoded sound and its MIME type, as `waveform.encode_audio` gives them


@dataclass(frozen=True)
class Prediction:
    """What one system answered. start, end: seconds in the passage, None where it found nothing. ff1: percent, or
    None where it is judged by its text alone."""

    system: str
    start: float | None
    end: float | None
    confidence: float | None
    ff1: float | None
    transcript: str | None = None  # what the system heard, where it makes a transcript
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


def write_examples(path: Path | str, examples: Iterable[Example]) -> None:
    write_json(path, [_packed(example) for example in examples])


def read_examples(path: Path | str) -> tuple[Example, ...]:
    """Raises InputError when the file is missing or not what `write_examples` writes."""
    values = read_json(path)
    try:
        return tuple(_unpacked(v) for v in values)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} does not hold examples of a report ({error}); make it again with `write_examples`") from error


def _packed(example: Example) -> dict[str, Any]:
    values = asdict(example)
    for name in ("question_audio", "passage_audio"):
        data, mime = values[name]
        values[name] = {"mime": mime, "base64": base64.b64encode(data).decode("ascii")}
    values["envelope"] = [round(float(v), 3) for v in example.envelope]
    return values


def _unpacked(values: dict[str, Any]) -> Example:
    values = dict(values)
    for name in ("question_audio", "passage_audio"):
        values[name] = (base64.b64decode(values[name]["base64"], validate=True), str(values[name]["mime"]))
    values["envelope"] = tuple(float(v) for v in values["envelope"])
    values["gold"] = tuple((float(a), float(b)) for a, b in values["gold"])
    values["predictions"] = tuple(Prediction(**p) for p in values["predictions"])
    return Example(**values)
