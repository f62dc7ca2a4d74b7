"""Conditions name the distortions of an evaluation; `Distorter` and `FrozenDistorter` apply them.

All that is random in one is decided by (seed, kind of noise, utterance id) alone. Frozen noise is a
manifest with a row a mixture, so that every system, later run and laboratory gets the same. A row
says which recording (with its SHA-256) from which sample on, or which generator with which seed,
and the SHA-256 of the noise as 16-bit audio, without which it is not applied.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from speechssl import signal
from speechssl.artifacts import write_lines
from speechssl.audio import SAMPLE_RATE, duration, to_int16
from speechssl.augment.noise import (
    SHARES,
    DrawnNoise,
    NoiseBank,
    Piece,
    find_recordings,
    read_recording,
    replay,
)
from speechssl.data.files import digest
from speechssl.data.records import read_lines
from speechssl.errors import InputError

RT60 = 0.5  # seconds; the middle room of the REVERB challenge (Kinoshita et al., WASPAA 2013)
SLOPES = (-24.0, 24.0)  # dB an octave, of coloured noise
LETTERS = ("m", "g", "r")  # of the sets: MUSAN or its stand-in, Gaussian, a random room
EXAMPLES = (
    "clean, pink@10, babble@5, coloured:-6@5, m+g+r@5, dev@5, held-out@5, kitchen.wav@5, "
    "reverb@0.6, rir=FOLDER, pitch@-2, "
    "band@1000-2000, codec@mp3:16 or reverb@0.5+kitchen.wav@5"
)
# no seed decides these; as in `short`
_FIXED = re.compile(rf"clean|pitch \S+|no \S+ Hz|(?:{'|'.join(signal.CODECS)}) \S+ kbps")


@dataclass(frozen=True)
class Condition:
    """A condition is one distortion, with the one number that it has, or several in order. Written
    as `parse_condition` reads it: "pink@10"."""

    name: str  # clean, noise, reverb, rooms, rir, pitch, band, codec or chain
    # of noise: its name, a set, or the path of recordings; of rir: of impulse responses; of codec:
    # which
    kind: str = ""
    snr_db: float | None = None  # of noise; of a chain: of the one noise in it
    rt60: float | None = None  # of reverb: seconds
    semitones: float | None = None  # of pitch
    band: tuple[float, float] | None = None  # of band: removed, in Hz
    kbps: float | None = None  # of codec
    steps: tuple[Condition, ...] = ()  # of a chain: applied in this order

    @property
    def noisy(self) -> bool:
        """Tell whether there is noise in it, and so an SNR."""
        return any(step.name == "noise" for step in self.steps or (self,))

    @property
    def short(self) -> str:
        """Return the name in `results.jsonl`, which has a column for the SNR: "clean", "pink",
        "reverb" (of the usual length), "reverb 0.9 s"."""
        if self.name == "chain":
            return " + ".join(step.short for step in self.steps)
        if self.name == "noise":
            return _noise_name(self.kind)
        return "reverb" if self.name == "reverb" and self.rt60 == RT60 else self.label

    @property
    def label(self) -> str:
        """Return the name in tables and figures: "clean", "pink 10 dB", "reverb 0.6 s", "pitch +2",
        "no 1000-2000 Hz", "mp3 16 kbps"."""
        return self._spellings[0]

    @property
    def text(self) -> str:
        """Return the text that `parse_condition` reads."""
        return self._spellings[1]

    @property
    def _spellings(self) -> tuple[str, str]:
        """Return the label and the text."""
        match self.name:
            case "noise":
                return (
                    f"{_noise_name(self.kind)} {self.snr_db:g} dB"
                ), f"{self.kind}@{_exact(self.snr_db)}"
            case "reverb":
                return f"reverb {self.rt60:g} s", f"reverb@{_exact(self.rt60)}"
            case "rooms":
                return "r", "r"
            case "rir":
                return f"rir {Path(self.kind).stem}", f"rir={self.kind}"
            case "pitch":
                return f"pitch {self.semitones:+g}", f"pitch@{_exact(self.semitones)}"
            case "band" if self.band:
                low, high = self.band
                return f"no {low:g}-{high:g} Hz", f"band@{_exact(low)}-{_exact(high)}"
            case "codec":
                return f"{self.kind} {self.kbps:g} kbps", f"codec@{self.kind}:{_exact(self.kbps)}"
            case "chain":
                return " + ".join(step.label for step in self.steps), "+".join(
                    step.text for step in self.steps
                )
        return self.name, self.name


def _exact(number: float | None) -> str:
    """Return the shortest text that reads as this number."""
    return f"{number:g}" if number is not None and float(f"{number:g}") == number else repr(number)


def _noise_name(kind: str) -> str:
    """Return the name of a noise in tables: its own, that of its file or folder, or the one given
    before "="."""
    name, equals, _ = kind.partition("=")
    if equals and re.fullmatch(r"[\w-]+", name):
        return name
    # a slope of -4.5 has no suffix
    return kind if kind.startswith("coloured:") else Path(kind).stem


def _members(step: Condition) -> list[Condition]:
    """List the members of the set "m+g+r", a step for each letter; of any other step none."""
    letters = step.kind.split("+") if step.name == "noise" else []
    if len(letters) < 2 or not set(letters) <= set(LETTERS):
        return []
    return [
        Condition("rooms") if letter == "r" else Condition("noise", letter, snr_db=step.snr_db)
        for letter in letters
    ]


def parse_condition(text: str) -> Condition:
    """Read "clean", "pink@10", "kitchen.wav@5" (dB), "reverb", "reverb@0.6" (s), "pitch@-2",
    "band@1000-2000" (Hz) and their like.

    Noise at an SNR: gaussian, pink, coloured:SLOPE (dB an octave), babble, m, g, dev, held-out, a
    set (m+g+r@5: each utterance gets one of the three), a file, folder or manifest, or name=PATH,
    which is then called by its name. r: a random room; rir=PATH: measured ones. Steps joined by "+"
    are applied in order. Raises InputError for anything else; whether a recording exists is checked
    by `Distorter.check`.
    """
    text = text.strip()
    try:
        steps = tuple(map(_parse_step, _split_steps(text)))
        if len(steps) > 1 and any(step.name == "clean" for step in steps):
            raise ValueError("clean is no step of others")
    except ValueError as error:
        raise InputError(
            f"{text!r} is not a condition ({error}); write one like {EXAMPLES}"
        ) from None
    if len(steps) == 1:
        return steps[0]
    levels = [step.snr_db for step in steps if step.snr_db is not None]
    return Condition("chain", snr_db=levels[0] if len(levels) == 1 else None, steps=steps)


def _split_steps(text: str) -> list[str]:
    """Split at each "+" that ends a step: names of files and sets have such a sign too."""
    letters = text.rpartition("@")[0].split("+")
    if len(letters) > 1 and set(letters) <= set(LETTERS):
        return [text]
    parts: list[str] = []
    complete = True
    for piece in text.split("+"):
        part = piece if complete else parts.pop() + "+" + piece
        parts.append(part)
        bare = part.strip() in ("clean", "reverb", "r") or part.startswith("rir=")
        complete = bare or bool(re.search(r"@[^/@]+$", part))
    return parts if complete else [text]


def is_drawn(short: str, snr_db: float | None) -> bool:
    """Tell whether a seed decides the distortion of a condition. short, snr_db: of the condition,
    as results have them."""
    return snr_db is not None or not all(_FIXED.fullmatch(step) for step in short.split(" + "))


def _parse_number(value: str, low: float, high: float) -> float:
    number = float(value)
    if not low <= number <= high:
        raise ValueError(f"{value} is not in [{low:g}, {high:g}]")
    return number


def _parse_step(text: str) -> Condition:
    """Read one step. Raises ValueError."""
    text = text.strip()
    if text.startswith("rir=") and len(text) > len("rir="):
        return Condition("rir", text.removeprefix("rir="))
    if text == "clean":
        return Condition("clean")
    if text == "r":
        return Condition("rooms")
    if text == "reverb":
        return Condition("reverb", rt60=RT60)
    kind, _, value = text.rpartition("@")
    if kind in ("", "clean", "r"):
        raise ValueError("it has no number")
    match kind:
        case "reverb":
            return Condition("reverb", rt60=_parse_number(value, *signal.RT60_RANGE))
        case "pitch":
            return Condition("pitch", semitones=_parse_number(value, -24, 24))
        case "band":
            low, _, high = value.partition("-")
            bottom = _parse_number(low, 1, SAMPLE_RATE / 2 - 2)
            top = _parse_number(high, bottom + 1, SAMPLE_RATE / 2 - 1)
            return Condition("band", band=(bottom, top))
        case "codec":
            codec, _, kbps = value.partition(":")
            if codec not in signal.CODECS:
                raise ValueError(f"the codecs are {', '.join(signal.CODECS)}")
            return Condition("codec", codec, kbps=_parse_number(kbps, *signal.bit_rates(codec)))
    if kind.startswith("coloured:"):
        kind = f"coloured:{_parse_number(kind.removeprefix('coloured:'), *SLOPES):g}"
    return Condition("noise", kind, snr_db=_parse_number(value, -100, 100))


@dataclass(frozen=True)
class Distorter:
    """Applies conditions. seed: of all that is random; voices: speech recordings for babble, of
    other people; snr_over: the part of the speech that an SNR is measured over, see `speech_level`.
    """

    seed: int = 0
    voices: tuple[Path, ...] = ()
    # of recordings by name: musan, fsd50k, ...
    folders: Mapping[str, Path] = field(default_factory=dict)
    snr_over: str = signal.ACTIVE
    _banks: dict[str, NoiseBank] = field(default_factory=dict, repr=False, compare=False)

    def card(self, condition: Condition) -> dict[str, Any]:
        """Return the entries of a card of this condition: the seed, and the reference of its SNR
        where that is not active speech."""
        card: dict[str, Any] = {"seed": self.seed}
        if condition.noisy and self.snr_over != signal.ACTIVE:
            card["snr_over"] = self.snr_over
        return card

    def check(self, condition: Condition) -> None:
        """Raise InputError where `apply` would for want of voices or a noise file that can be read;
        call it before a long run."""
        for step in self._possible_steps(condition):
            for path in self._files(step):
                duration(path)

    def sources(self, condition: Condition) -> list[tuple[str, int]]:
        """Return name and size in bytes of the recordings that a condition draws on, and the
        versions of what is generated; a line more where its SNR is not over active speech."""
        sources: list[tuple[str, int]] = []
        for step in self._possible_steps(condition):
            if step.name == "noise":
                sources += self._bank(step.kind).sources
                if self.snr_over != signal.ACTIVE:
                    sources.append((f"SNR over: {self.snr_over}", 0))
            else:
                sources += [(path.name, path.stat().st_size) for path in self._files(step)]
        return sources

    def apply(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        """Distort samples (N,) at 16 kHz. Returns float32 (N,); "clean" gives the samples
        themselves.

        Raises ValueError for silent speech, InputError for noise that cannot be had.
        """
        for step in self.steps(condition, utterance_id):

            def source(n: int, step: Condition = step) -> np.ndarray:
                return self.draw(step, utterance_id, n).noise

            samples = perform(samples, step, source, self.snr_over)
        return samples

    def steps(self, condition: Condition, utterance_id: str) -> list[Condition]:
        """List the steps in order, and of a set the member that this utterance gets."""
        steps = []
        for step in condition.steps or (condition,):
            members = _members(step)
            if members:
                shares = np.array([SHARES[letter] for letter in step.kind.split("+")])
                rng = signal.generator(self.seed, step.kind, utterance_id)
                step = members[rng.choice(len(members), p=shares / shares.sum())]
            steps.append(step)
        return steps

    def draw(self, step: Condition, utterance_id: str, n: int) -> DrawnNoise:
        """Draw the noise (n,) of a step, or its impulse response, and say of which recordings it
        is; empty for a step that needs neither."""
        rng = partial(signal.generator, self.seed)
        if step.name == "noise":
            return self._bank(step.kind).draw(utterance_id, n)
        if step.name == "reverb":
            return DrawnNoise(signal.room_impulse(rng("reverb", utterance_id), step.rt60 or RT60))
        if step.name == "rooms":
            return DrawnNoise(signal.draw_room(rng("rooms", utterance_id)))
        if step.name == "rir":
            files = self._files(step)
            file = files[int(rng("rir", utterance_id).integers(len(files)))]
            return DrawnNoise(read_recording(file), (Piece(file, 0),))
        return DrawnNoise(np.zeros(0))

    def _possible_steps(self, condition: Condition) -> list[Condition]:
        """List the steps, and of a set all members."""
        return [
            one for step in condition.steps or (condition,) for one in (_members(step) or [step])
        ]

    def _files(self, step: Condition) -> tuple[Path, ...]:
        if step.name == "noise":
            return (*self._bank(step.kind).files, *self._bank(step.kind).voices)
        if step.name != "rir":
            return ()
        path = self.folders.get(step.kind, Path(step.kind))
        return tuple(find_recordings(path, "impulse responses"))

    def _bank(self, kind: str) -> NoiseBank:
        if kind not in self._banks:
            self._banks[kind] = NoiseBank.open(kind, self.voices, self.seed, self.folders)
        return self._banks[kind]


def perform(
    samples: np.ndarray,
    step: Condition,
    source: Callable[[int], np.ndarray],
    snr_over: str = signal.ACTIVE,
) -> np.ndarray:
    """Perform one step of a condition. samples: (N,); source: gives noise (n,), or the impulse
    response. Returns float32 (N,).

    Raises ValueError for silent speech.
    """
    match step.name:
        case "clean":
            return samples
        case "noise":
            snr_db = math.nan if step.snr_db is None else step.snr_db
            return signal.mix(samples, source(len(samples)), snr_db, over=snr_over)
        case "reverb" | "rooms" | "rir":
            return signal.reverberate(samples, source(len(samples)))
        case "pitch":
            return signal.pitch_shift(samples, step.semitones or 0.0)
        case "band":
            return signal.band_reject(samples, *(step.band or (0, 0)))
        case "codec":
            return signal.apply_codec(samples, step.kind, step.kbps or 0.0)
    raise ValueError(f"no condition is named {step.name!r}")


Row = dict[str, Any]


def freeze(
    conditions: Sequence[Condition], lengths: Mapping[str, int], distorter: Distorter, path: Path
) -> Path:
    """Write the mixtures of all conditions and utterances. lengths: samples at 16 kHz of each
    utterance, by its id. Returns `path`.

    Nothing is written unless all can be. Raises InputError for noise that cannot be had.
    """
    hashes: dict[Path, str] = {}
    # by utterance and noise, which is the same at every SNR
    sources: dict[tuple[str, str], Row] = {}
    root = path.parent.resolve()

    def describe_piece(piece: Piece) -> Row:
        """Name a recording, relative to the manifest where it lies below it, with its hash."""
        if piece.file not in hashes:
            hashes[piece.file] = digest(piece.file)
        file = piece.file.resolve()
        name = str(file.relative_to(root) if file.is_relative_to(root) else file)
        return {"file": name, "sha256": hashes[piece.file], "offset": piece.offset}

    def describe_source(step: Condition, key: str, n: int) -> Row:
        if step.name not in ("noise", "reverb", "rooms", "rir"):
            return {}
        what = step.kind if step.name == "noise" else step.text
        if (key, what) not in sources:
            draw = distorter.draw(step, key, n)
            if draw.pieces:
                made_of: Row = {"files": [describe_piece(piece) for piece in draw.pieces]}
            else:
                name = NoiseBank.open(step.kind).kind if step.name == "noise" else step.text
                made_of = {"generator": name, "key": key}
            sources[key, what] = {"source": made_of, "sha256": noise_hash(draw.noise)}
        return sources[key, what]

    rows = []
    for key, n in lengths.items():
        for condition in conditions:
            if condition.name == "clean":
                continue
            steps = []
            for step in distorter.steps(condition, key):
                steps.append({"apply": step.text, **describe_source(step, key, n)})
            facts = {
                "utterance": key,
                "samples": n,
                "condition": condition.text,
                "snr_db": condition.snr_db,
            }
            rows.append(facts | distorter.card(condition) | {"steps": steps})
    write_lines(path, rows)
    return path


@dataclass(frozen=True)
class FrozenDistorter:
    """Applies the mixtures of a manifest and no others; for the rest as `Distorter`."""

    manifest: Path
    _rows: dict[tuple[str, str], Row] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for _, row in read_lines(self.manifest):
            self._rows[row["utterance"], row["condition"]] = row

    @property
    def seed(self) -> int:
        """Return the seed that it was frozen with."""
        return int(next(iter(self._rows.values()))["seed"])

    @property
    def conditions(self) -> list[Condition]:
        """Return the conditions of the manifest, in its order."""
        return [parse_condition(text) for text in dict.fromkeys(text for _, text in self._rows)]

    def check(self, condition: Condition) -> None:
        """Raise InputError for a condition that is not in the manifest, and for recordings that
        cannot be read."""
        rows = [row for (_, text), row in self._rows.items() if text == condition.text]
        if not rows and condition.name != "clean":
            self._refuse(f"has no mixture of the condition {condition.text}")
        for source in [step["source"] for row in rows for step in row["steps"] if "source" in step]:
            for entry in source.get("files", ()):
                duration(self._piece(entry).file)

    def _refuse(self, why: str) -> NoReturn:
        raise InputError(f"{self.manifest} {why}; freeze it again with these conditions")

    def sources(self, condition: Condition) -> list[tuple[str, int]]:
        """Return name with hash, and size, of the manifest: it decides all."""
        return [(f"{self.manifest.name} {digest(self.manifest)}", self.manifest.stat().st_size)]

    def apply(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        """Distort samples (N,) at 16 kHz. Returns float32 (N,); "clean" gives the samples
        themselves.

        Raises InputError for a mixture that is not in the manifest or whose noise has changed,
        ValueError for silent speech.
        """
        if condition.name == "clean":
            return samples
        row = self._rows.get((utterance_id, condition.text))
        if row is None or row["samples"] != len(samples):
            self._refuse(
                f"has no mixture of the utterance {utterance_id}, of {len(samples)} samples, in "
                f"the condition {condition.text}"
            )
        for step in row["steps"]:
            apply, noise = parse_condition(step["apply"]), partial(self._noise, row, step)
            samples = perform(samples, apply, noise, row.get("snr_over", signal.ACTIVE))
        return samples

    def _noise(self, row: Row, step: Row, n: int) -> np.ndarray:
        """Return the noise (n,) or the impulse response of a step, as it was frozen."""
        source, condition = step["source"], parse_condition(step["apply"])
        if "files" in source:
            pieces = [self._piece(entry) for entry in source["files"]]
            noise = read_recording(pieces[0].file) if condition.name == "rir" else replay(pieces, n)
        elif condition.name == "noise":
            noise = NoiseBank(source["generator"], (), row["seed"]).sample(source["key"], n)
        else:
            noise = Distorter(row["seed"]).draw(condition, source["key"], n).noise
        if noise_hash(noise) != step["sha256"]:
            self._refuse(
                f"was frozen with another noise for the utterance {row['utterance']} in the "
                f"condition {row['condition']}"
            )
        return noise

    def _piece(self, entry: Row) -> Piece:
        return Piece(self.manifest.parent / entry["file"], entry["offset"])


def noise_hash(noise: np.ndarray) -> str:
    """Compute the SHA-256 of the noise as 16-bit audio: two of the same sound have the same,
    whatever their level."""
    peak = max(float(np.abs(noise).max(initial=0)), 1e-30)
    levelled = to_int16(np.asarray(noise, np.float64) / peak * (32767 / 32768))
    return hashlib.sha256(levelled.astype("<i2").tobytes()).hexdigest()
