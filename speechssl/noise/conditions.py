"""Distortions by name: "clean", "pink@10", "m+g+r@5", "kitchen.wav@5", "reverb@0.6", "codec@mp3:16", "reverb@0.5+kitchen.wav@5"."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from speechssl.audio import SAMPLE_RATE
from speechssl.errors import InputError
from speechssl.noise.codecs import CODECS, bit_rates
from speechssl.noise.room import RT60_RANGE

RT60 = 0.5  # seconds; the middle room of the REVERB challenge (Kinoshita et al., WASPAA 2013)
SLOPES = (-24.0, 24.0)  # dB an octave, of coloured noise
LETTERS = ("m", "g", "r")  # of the sets: MUSAN or its stand-in, Gaussian, a random room
EXAMPLES = (
    "clean, pink@10, babble@5, coloured:-6@5, m+g+r@5, dev@5, held-out@5, kitchen.wav@5, reverb@0.6, rir=FOLDER, pitch@-2, "
    "band@1000-2000, codec@mp3:16 or reverb@0.5+kitchen.wav@5"
)
_FIXED = re.compile(
    rf"clean|pitch \S+|no \S+ Hz|(?:{'|'.join(CODECS)}) \S+ kbps"
)  # steps that no seed decides, as `short` has them


@dataclass(frozen=True)
class Condition:
    """One distortion, with the one number that it has, or several in order. Written as `parse_condition` reads it: "pink@10"."""

    name: str  # clean, noise, reverb, rooms, rir, pitch, band, codec or chain
    kind: str = (
        ""  # of noise: gaussian, pink, babble, a set, or the path of recordings; of rir: of impulse responses; of codec: which
    )
    snr_db: float | None = None  # of noise; of a chain: of the one noise in it
    rt60: float | None = None  # of reverb: seconds
    semitones: float | None = None  # of pitch
    band: tuple[float, float] | None = None  # of band: removed, in Hz
    kbps: float | None = None  # of codec
    steps: tuple[Condition, ...] = ()  # of a chain: applied in this order

    @property
    def noisy(self) -> bool:
        """Whether there is noise in it, and so an SNR."""
        return any(step.name == "noise" for step in self.steps or (self,))

    @property
    def short(self) -> str:
        """For `results.jsonl`, which has a column for the SNR: "clean", "pink", "reverb" (of the usual length), "reverb 0.9 s"."""
        if self.name == "chain":
            return " + ".join(step.short for step in self.steps)
        if self.name == "noise":
            return _called(self.kind)
        return "reverb" if self.name == "reverb" and self.rt60 == RT60 else self.label

    @property
    def label(self) -> str:
        """For tables and figures: "clean", "pink 10 dB", "reverb 0.6 s", "pitch +2", "no 1000-2000 Hz", "mp3 16 kbps"."""
        return {
            "noise": lambda: f"{_called(self.kind)} {self.snr_db:g} dB",
            "reverb": lambda: f"reverb {self.rt60:g} s",
            "rooms": lambda: "r",
            "rir": lambda: f"rir {Path(self.kind).stem}",
            "pitch": lambda: f"pitch {self.semitones:+g}",
            "band": lambda: f"no {self.band[0]:g}-{self.band[1]:g} Hz" if self.band else "",
            "codec": lambda: f"{self.kind} {self.kbps:g} kbps",
            "chain": lambda: " + ".join(step.label for step in self.steps),
        }.get(self.name, lambda: self.name)()

    @property
    def text(self) -> str:
        """As `parse_condition` reads it."""
        return {
            "noise": lambda: f"{self.kind}@{_exact(self.snr_db)}",
            "reverb": lambda: f"reverb@{_exact(self.rt60)}",
            "rooms": lambda: "r",
            "rir": lambda: f"rir={self.kind}",
            "pitch": lambda: f"pitch@{_exact(self.semitones)}",
            "band": lambda: f"band@{_exact(self.band[0])}-{_exact(self.band[1])}" if self.band else "",
            "codec": lambda: f"codec@{self.kind}:{_exact(self.kbps)}",
            "chain": lambda: "+".join(step.text for step in self.steps),
        }.get(self.name, lambda: self.name)()


def parse_condition(text: str) -> Condition:
    """Read "clean", "pink@10", "kitchen.wav@5" (dB), "reverb", "reverb@0.6" (s), "pitch@-2", "band@1000-2000" (Hz) and their like.

    Noise at an SNR: gaussian, pink, coloured:SLOPE (dB an octave), babble, m, g, dev, held-out, a set (m+g+r@5: each utterance gets
    one of the three), a file, folder or manifest, or name=PATH, which is then called by its name. r: a random room; rir=PATH:
    measured ones. Steps joined by "+" are applied in order. Raises InputError for anything else; whether a recording exists is
    checked by `Distorter.check`.
    """
    text = text.strip()
    if len(letters := text.rpartition("@")[0].split("+")) > 1 and set(letters) <= set(LETTERS):
        return _step(text, text)
    parts = _parts(text)
    if len(parts) == 1:
        return _step(parts[0], text)
    steps = tuple(_step(part, text) for part in parts)
    if any(step.name == "clean" for step in steps):
        raise InputError(_malformed(text))
    levels = [step.snr_db for step in steps if step.snr_db is not None]
    return Condition("chain", snr_db=levels[0] if len(levels) == 1 else None, steps=steps)


def is_drawn(short: str, snr_db: float | None) -> bool:
    """Whether a seed decides what is heard in a condition. short, snr_db: of the condition, as results have them."""
    return snr_db is not None or not all(_FIXED.fullmatch(step) for step in short.split(" + "))


def _parts(text: str) -> list[str]:
    """Split at each "+" that ends a step: names of files and sets have such a sign too."""
    parts: list[str] = []
    begun = False
    for piece in text.split("+"):
        part = parts.pop() + "+" + piece if begun else piece
        parts.append(part)
        begun = not (part.strip() in ("clean", "reverb", "r") or part.startswith("rir=") or re.search(r"@[^/@]+$", part))
    return parts if not begun else [text]


def _step(text: str, whole: str) -> Condition:
    text = text.strip()
    kind, at, value = text.rpartition("@") if "@" in text else (text, "", "")
    if text.startswith("rir=") and len(text) > len("rir="):
        return Condition("rir", text.removeprefix("rir="))
    if not kind or (kind in ("clean", "r") and at):
        raise InputError(_malformed(whole))
    if kind in ("clean", "r"):
        return Condition("clean" if kind == "clean" else "rooms")
    if not at and kind != "reverb":
        raise InputError(_malformed(whole))
    steps: dict[str, Callable[[], Condition]] = {
        "reverb": lambda: Condition("reverb", rt60=_number(value, whole, *RT60_RANGE) if at else RT60),
        "pitch": lambda: Condition("pitch", semitones=_number(value, whole, -24, 24)),
        "band": lambda: _band(value, whole),
        "codec": lambda: _codec(value, whole),
    }
    return steps.get(kind, lambda: _noise(kind, value, whole))()


def _noise(kind: str, value: str, text: str) -> Condition:
    if kind.startswith("coloured:"):
        kind = f"coloured:{_number(kind.removeprefix('coloured:'), text, *SLOPES):g}"
    return Condition("noise", kind, snr_db=_number(value, text, -100, 100))


def _band(value: str, text: str) -> Condition:
    low, _, high = value.partition("-")
    bottom = _number(low, text, 1, SAMPLE_RATE / 2 - 2)
    return Condition("band", band=(bottom, _number(high, text, bottom + 1, SAMPLE_RATE / 2 - 1)))


def _codec(value: str, text: str) -> Condition:
    codec, _, kbps = value.partition(":")
    if codec not in CODECS:
        raise InputError(f"the condition {text!r} names the codec {codec!r}; the codecs are {', '.join(CODECS)}")
    return Condition("codec", codec, kbps=_number(kbps, text, *bit_rates(codec)))


def _exact(number: float | None) -> str:
    """The shortest text that reads as this number."""
    return f"{number:g}" if number is not None and float(f"{number:g}") == number else repr(number)


def _called(kind: str) -> str:
    """What a noise is called in tables: its name, that of its file or folder, or the one given before "="."""
    name, equals, _ = kind.partition("=")
    if equals and re.fullmatch(r"[\w-]+", name):
        return name
    return kind if kind.startswith("coloured:") else Path(kind).stem  # a slope of -4.5 has no suffix


def _malformed(text: str) -> str:
    return f"{text!r} is not a condition; write one like {EXAMPLES}"


def _number(value: str, text: str, low: float, high: float) -> float:
    try:
        number = float(value)
    except ValueError as error:
        raise InputError(_malformed(text)) from error
    if not low <= number <= high:
        raise InputError(f"in the condition {text!r} the number {value} is not in [{low:g}, {high:g}]; change it")
    return number
