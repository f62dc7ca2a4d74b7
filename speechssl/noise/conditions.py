"""One distortion by name: "clean", "pink@10", "kitchen.wav@5", "reverb@0.6", "pitch@-2", "band@1000-2000"."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speechssl.audio import SAMPLE_RATE
from speechssl.errors import InputError
from speechssl.noise.room import RT60_RANGE

RT60 = 0.5  # seconds; the middle room of the REVERB challenge (Kinoshita et al., WASPAA 2013)


@dataclass(frozen=True)
class Condition:
    """One distortion, with the one number that it has. Written as `parse_condition` reads it: "pink@10"."""

    name: str  # clean, noise, reverb, pitch or band
    kind: str = ""  # of noise: gaussian, pink, babble, or the path of a recording or of a folder of them
    snr_db: float | None = None  # of noise
    rt60: float | None = None  # of reverb: seconds
    semitones: float | None = None  # of pitch
    band: tuple[float, float] | None = None  # of band: removed, in Hz

    @property
    def short(self) -> str:
        """For `results.jsonl`, which has a column for the SNR: "clean", "pink", "reverb" (of the usual length), "reverb 0.9 s"."""
        if self.name == "noise":
            return Path(self.kind).stem
        return "reverb" if self.rt60 == RT60 else self.label

    @property
    def label(self) -> str:
        """For tables and figures: "clean", "pink 10 dB", "reverb 0.6 s", "pitch +2", "no 1000-2000 Hz"."""
        return {
            "noise": lambda: f"{Path(self.kind).stem} {self.snr_db:g} dB",
            "reverb": lambda: f"reverb {self.rt60:g} s",
            "pitch": lambda: f"pitch {self.semitones:+g}",
            "band": lambda: f"no {self.band[0]:g}-{self.band[1]:g} Hz" if self.band else "",
        }.get(self.name, lambda: self.name)()


def parse_condition(text: str) -> Condition:
    """Read "clean", "pink@10", "kitchen.wav@5" (dB), "reverb", "reverb@0.6" (s), "pitch@-2", "band@1000-2000" (Hz).

    Raises InputError for anything else. Whether a recording exists is checked by `Distorter.check`.
    """
    kind, at, value = text.strip().rpartition("@") if "@" in text else (text.strip(), "", "")
    if not kind or (kind == "clean" and at):
        raise InputError(_malformed(text))
    if kind == "clean":
        return Condition("clean")
    if kind == "reverb":
        return Condition("reverb", rt60=_number(value, text, *RT60_RANGE) if at else RT60)
    if kind == "pitch":
        return Condition("pitch", semitones=_number(value, text, -24, 24))
    if kind == "band":
        low, _, high = value.partition("-")
        bottom = _number(low, text, 1, SAMPLE_RATE / 2 - 2)
        return Condition("band", band=(bottom, _number(high, text, bottom + 1, SAMPLE_RATE / 2 - 1)))
    return Condition("noise", kind, snr_db=_number(value, text, -100, 100))


def _malformed(text: str) -> str:
    examples = "clean, pink@10, babble@5, kitchen.wav@5, reverb@0.6, pitch@-2 or band@1000-2000"
    return f"{text!r} is not a condition; write one like {examples}"


def _number(value: str, text: str, low: float, high: float) -> float:
    try:
        number = float(value)
    except ValueError as error:
        raise InputError(_malformed(text)) from error
    if not low <= number <= high:
        raise InputError(f"in the condition {text!r} the number {value} is not in [{low:g}, {high:g}]; change it")
    return number
