"""Applies conditions to recordings for evaluation; what is random is decided by (seed, kind of noise, utterance id) alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.audio import SAMPLE_RATE, duration
from speechssl.augment.effects import CODECS, band_reject, bit_rates, pitch_shift, reverberate, through_codec
from speechssl.augment.noise import Draw, NoiseBank, Piece, noise_files, recording
from speechssl.errors import InputError
from speechssl.signal import ACTIVE, RT60_RANGE, generator, mix, room_impulse

# Distortions by name: "clean", "pink@10", "m+g+r@5", "kitchen.wav@5", "reverb@0.6", "codec@mp3:16", "reverb@0.5+kitchen.wav@5".

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


SHARES = {"m": 0.3, "g": 0.4, "r": 0.3}  # of the utterances of a set; as arXiv 2210.07978 draws them in training
RT60S, DISTANCES = (0.2, 1.0), (0.3, 1.7)  # seconds and metres of the rooms of "r"


@dataclass(frozen=True)
class Distorter:
    """Applies conditions. seed: of all that is random; voices: speech recordings for babble, of other people; snr_over: what of the
    speech an SNR is measured over, see `speech_level`."""

    seed: int = 0
    voices: tuple[Path, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)  # of recordings by name: musan, fsd50k, ...
    snr_over: str = ACTIVE
    _banks: dict[str, NoiseBank] = field(default_factory=dict, repr=False, compare=False)

    def card(self, condition: Condition) -> dict[str, Any]:
        """For the card of what is made in this condition: the seed, and what its SNR is over where that is not active speech."""
        return {"seed": self.seed} | ({"snr_over": self.snr_over} if condition.noisy and self.snr_over != ACTIVE else {})

    def check(self, condition: Condition) -> None:
        """Raises InputError where `apply` would for want of voices or a noise file that can be read; call it before a long run."""
        for step in self._possible(condition):
            for path in self._files(step):
                duration(path)

    def sources(self, condition: Condition) -> list[tuple[str, int]]:
        """Name and size in bytes of the recordings that a condition draws on, and the versions of what is generated; a line more
        where its SNR is not over active speech."""
        return [source for step in self._possible(condition) for source in self._sources(step)]

    def apply(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        """samples: (N,) at 16 kHz. Returns float32 (N,); "clean" gives the samples themselves.

        Raises ValueError for silent speech, InputError for noise that cannot be had.
        """
        for step in self.steps(condition, utterance_id):
            samples = perform(samples, step, partial(self._noise, step, utterance_id), self.snr_over)
        return samples

    def steps(self, condition: Condition, utterance_id: str) -> list[Condition]:
        """The steps in order, and of a set the member that this utterance gets."""
        return [self._member(step, utterance_id) for step in condition.steps or (condition,)]

    def draw(self, step: Condition, utterance_id: str, n: int) -> Draw:
        """The noise (n,) of a step, or its impulse response, and what it is of; empty for a step that needs neither."""
        draws: dict[str, Callable[[], Draw]] = {
            "noise": lambda: self._bank(step.kind).draw(utterance_id, n),
            "reverb": lambda: Draw(room_impulse(generator(self.seed, "reverb", utterance_id), step.rt60 or RT60)),
            "rooms": lambda: Draw(_any_room(generator(self.seed, "rooms", utterance_id))),
            "rir": lambda: _measured(self._impulses(step), generator(self.seed, "rir", utterance_id)),
        }
        return draws.get(step.name, lambda: Draw(np.zeros(0)))()

    def _noise(self, step: Condition, utterance_id: str, n: int) -> np.ndarray:
        return self.draw(step, utterance_id, n).noise

    def _member(self, step: Condition, utterance_id: str) -> Condition:
        if not (letters := _letters(step)):
            return step
        shares = np.array([SHARES[letter] for letter in letters])
        return _of_letter(
            letters[generator(self.seed, step.kind, utterance_id).choice(len(letters), p=shares / shares.sum())], step
        )

    def _possible(self, condition: Condition) -> list[Condition]:
        steps = condition.steps or (condition,)
        return [one for step in steps for one in ([_of_letter(x, step) for x in _letters(step)] or [step])]

    def _files(self, step: Condition) -> tuple[Path, ...]:
        if step.name == "rir":
            return self._impulses(step)
        bank = self._bank(step.kind) if step.name == "noise" else NoiseBank("")
        return (*bank.files, *bank.voices)

    def _sources(self, step: Condition) -> list[tuple[str, int]]:
        if step.name == "noise":
            return self._bank(step.kind).sources + ([] if self.snr_over == ACTIVE else [(f"SNR over: {self.snr_over}", 0)])
        return [(path.name, path.stat().st_size) for path in self._files(step)]

    def _impulses(self, step: Condition) -> tuple[Path, ...]:
        files = noise_files(self.folders.get(step.kind, Path(step.kind)))
        if not files:
            raise InputError(f"there are no impulse responses in {step.kind}; give an audio file, a folder of them or a list")
        return tuple(files)

    def _bank(self, kind: str) -> NoiseBank:
        if kind not in self._banks:
            self._banks[kind] = NoiseBank.of(kind, self.voices, self.seed, self.folders)
        return self._banks[kind]


def perform(samples: np.ndarray, step: Condition, source: Callable[[int], np.ndarray], snr_over: str = ACTIVE) -> np.ndarray:
    """One step of a condition. samples: (N,); source: gives noise (n,), or the impulse response. Returns float32 (N,).

    Raises ValueError for silent speech and for a step of no known name.
    """
    apply: dict[str, Callable[[], np.ndarray]] = {
        "clean": lambda: samples,
        "noise": lambda: mix(samples, source(len(samples)), math.nan if step.snr_db is None else step.snr_db, over=snr_over),
        "reverb": lambda: reverberate(samples, source(len(samples))),
        "rooms": lambda: reverberate(samples, source(len(samples))),
        "rir": lambda: reverberate(samples, source(len(samples))),
        "pitch": lambda: pitch_shift(samples, step.semitones or 0.0),
        "band": lambda: band_reject(samples, *(step.band or (0, 0))),
        "codec": lambda: through_codec(samples, step.kind, step.kbps or 0.0),
    }
    if step.name not in apply:
        raise ValueError(f"no condition is named {step.name!r}; the names are {', '.join(apply)}")
    return apply[step.name]()


def distort(samples: np.ndarray, condition: Condition, utterance_id: str, seed: int = 0) -> np.ndarray:
    """`Distorter.apply` for a single recording. samples: (N,). Returns float32 (N,)."""
    return Distorter(seed).apply(samples, condition, utterance_id)


def _letters(step: Condition) -> list[str]:
    """Of "m+g+r": its letters; of any other noise none."""
    letters = step.kind.split("+") if step.name == "noise" else []
    return letters if len(letters) > 1 and set(letters) <= set(LETTERS) else []


def _of_letter(letter: str, step: Condition) -> Condition:
    return Condition("rooms") if letter == "r" else Condition("noise", letter, snr_db=step.snr_db)


def _any_room(rng: np.random.Generator) -> np.ndarray:
    return room_impulse(rng, rng.uniform(*RT60S), rng.uniform(*DISTANCES))


def _measured(files: tuple[Path, ...], rng: np.random.Generator) -> Draw:
    file = files[int(rng.integers(len(files)))]
    return Draw(recording(file), (Piece(file, 0),))
