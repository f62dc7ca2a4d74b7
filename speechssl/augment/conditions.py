"""Conditions name the distortions of an evaluation; `Distorter` and `FrozenDistorter` apply them.

All that is random in one is decided by (seed, kind of noise, utterance id) alone. Frozen noise is a
manifest with a row a mixture, so that every system, later run and laboratory gets the same. A row
says of which recordings the noise is and from which samples on, if it is not generated, and has the
SHA-256 of the noise as 16-bit audio, without which it is not applied.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from speechssl import signal
from speechssl.artifacts import write_lines
from speechssl.audio import SAMPLE_RATE, header_duration, to_int16
from speechssl.augment.noise import (
    SHARES,
    DrawnNoise,
    NoiseBank,
    Piece,
    find_recordings,
    read_recording,
    replay,
)
from speechssl.data.files import digest, manifest_path
from speechssl.data.records import read_lines
from speechssl.errors import InputError

RT60 = 0.5  # seconds; the middle room of the REVERB challenge (Kinoshita et al., WASPAA 2013)
LETTERS = ("m", "g", "r")  # of the sets: MUSAN or its stand-in, Gaussian, a random room
EXAMPLES = (
    "clean, pink@10, babble@5, coloured:-6@5, m+g+r@5, dev@5, held-out@5, mynoise.wav@5, "
    "reverb@0.6, rir=FOLDER, pitch@-2, "
    "band@1000-2000, codec@mp3:16 or reverb@0.5+mynoise.wav@5"
)
# a condition's name -> its label in tables and figures, and the text that `parse_condition` reads
SPELLINGS = {
    "clean": ("clean", "clean"),
    "noise": ("{stem} {0:g} dB", "{kind}@{0}"),
    "reverb": ("reverb {0:g} s", "reverb@{0}"),
    "rooms": ("r", "r"),
    "rir": ("rir {stem}", "rir={kind}"),
    "pitch": ("pitch {0:+g}", "pitch@{0}"),
    "band": ("no {0:g}-{1:g} Hz", "band@{0}-{1}"),
    "codec": ("{kind} {0:g} kbps", "codec@{kind}:{0}"),
}


@dataclass(frozen=True)
class Condition:
    """A condition is one distortion, or several in order. Written as `parse_condition` reads it:
    "pink@10"."""

    name: str  # a key of SPELLINGS, or chain
    # of noise: its name, a set, or the path of recordings; of rir: of impulse responses; of codec:
    # which
    kind: str = ""
    # of noise: its SNR in dB; reverb: seconds; pitch: semitones; band: Hz from, to; codec: kbit/s
    values: tuple[float, ...] = ()
    steps: tuple[Condition, ...] = ()  # of a chain: applied in this order

    @property
    def noisy(self) -> bool:
        """Tell whether there is noise in it, and so an SNR."""
        return any(step.name == "noise" for step in self.steps or (self,))

    @property
    def snr_db(self) -> float | None:
        """Return the SNR of its noise; None where it has none, or a chain has several."""
        levels = [step.values[0] for step in self.steps or (self,) if step.name == "noise"]
        return levels[0] if len(levels) == 1 else None

    @property
    def short(self) -> str:
        """Return the name in `results.jsonl`, which has a column for the SNR: "clean", "pink",
        "reverb" (of the usual length), "reverb 0.9 s"."""
        if self.name == "chain":
            return " + ".join(step.short for step in self.steps)
        if self.name == "noise":
            return _stem(self.kind)
        return "reverb" if self.values == (RT60,) and self.name == "reverb" else self.label

    @property
    def label(self) -> str:
        """Return the name in tables and figures: "clean", "pink 10 dB", "reverb 0.6 s", "pitch +2",
        "no 1000-2000 Hz", "mp3 16 kbps"."""
        if self.name == "chain":
            return " + ".join(step.label for step in self.steps)
        label, _ = SPELLINGS[self.name]
        return label.format(*self.values, kind=self.kind, stem=_stem(self.kind))

    @property
    def text(self) -> str:
        """Return the text that `parse_condition` reads."""
        if self.name == "chain":
            return "+".join(step.text for step in self.steps)
        _, text = SPELLINGS[self.name]
        return text.format(*map(_exact, self.values), kind=self.kind)


def _exact(number: float) -> str:
    """Return the shortest text that reads as this number."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def _stem(kind: str) -> str:
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
        Condition("rooms") if letter == "r" else Condition("noise", letter, step.values)
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
    except (ValueError, KeyError) as error:
        raise InputError(
            f"{text!r} is not a condition ({error}); write one like {EXAMPLES}"
        ) from None
    return steps[0] if len(steps) == 1 else Condition("chain", steps=steps)


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


def _number(value: str, low: float, high: float) -> float:
    number = float(value)
    if not low <= number <= high:
        raise ValueError(f"{value} is not in [{low:g}, {high:g}]")
    return number


def _parse_step(text: str) -> Condition:
    """Read one step. Raises ValueError, or KeyError for an unknown codec."""
    text = text.strip()
    named = {"clean": Condition("clean"), "r": Condition("rooms")}
    named["reverb"] = Condition("reverb", values=(RT60,))
    if text in named:
        return named[text]
    if text.startswith("rir=") and text != "rir=":
        return Condition("rir", text.removeprefix("rir="))
    kind, _, value = text.rpartition("@")
    match kind:
        case "" | "clean" | "r":
            raise ValueError("it has no number")
        case "reverb":
            return Condition("reverb", values=(_number(value, *signal.RT60_RANGE),))
        case "pitch":
            return Condition("pitch", values=(_number(value, -24, 24),))
        case "band":
            low, _, high = value.partition("-")
            bottom = _number(low, 1, SAMPLE_RATE / 2 - 2)
            return Condition(
                "band", values=(bottom, _number(high, bottom + 1, SAMPLE_RATE / 2 - 1))
            )
        case "codec":
            codec, _, kbps = value.partition(":")
            return Condition("codec", codec, (_number(kbps, *signal.bit_rates(codec)),))
    if kind.startswith("coloured:"):  # dB an octave
        kind = f"coloured:{_number(kind.removeprefix('coloured:'), -24, 24):g}"
    return Condition("noise", kind, (_number(value, -100, 100),))


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
                header_duration(path)

    def sources(self, condition: Condition) -> list[tuple[str, int]]:
        """Return name and size in bytes of the recordings that a condition draws on, and the
        versions of what is generated; a line more where its SNR is not over active speech."""
        sources: list[tuple[str, int]] = []
        for step in self._possible_steps(condition):
            if step.name != "noise":
                sources += [(path.name, path.stat().st_size) for path in self._files(step)]
                continue
            sources += self._bank(step.kind).sources
            if self.snr_over != signal.ACTIVE:
                sources.append((f"SNR over: {self.snr_over}", 0))
        return sources

    def apply(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        """Distort samples (N,) at 16 kHz. Returns float32 (N,); "clean" gives the samples
        themselves.

        Raises ValueError for silent speech, InputError for noise that cannot be had.
        """
        for step in self.steps(condition, utterance_id):
            noise = self.draw(step, utterance_id, len(samples)).noise
            samples = perform(samples, step, noise, self.snr_over)
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
        match step.name:
            case "noise":
                return self._bank(step.kind).draw(utterance_id, n)
            case "reverb":
                return DrawnNoise(signal.room_impulse(rng("reverb", utterance_id), *step.values))
            case "rooms":
                return DrawnNoise(signal.draw_room(rng("rooms", utterance_id)))
            case "rir":
                files = self._files(step)
                file = files[int(rng("rir", utterance_id).integers(len(files)))]
                return DrawnNoise(read_recording(file), (Piece(file, 0),))
        return DrawnNoise(np.zeros(0))

    def _possible_steps(self, condition: Condition) -> list[Condition]:
        """List the steps, and of a set all members."""
        steps = []
        for step in condition.steps or (condition,):
            steps += _members(step) or [step]
        return steps

    def _files(self, step: Condition) -> Sequence[Path]:
        if step.name == "noise":
            return (*self._bank(step.kind).files, *self._bank(step.kind).voices)
        if step.name != "rir":
            return ()
        return find_recordings(self.folders.get(step.kind, Path(step.kind)), "impulse responses")

    def _bank(self, kind: str) -> NoiseBank:
        if kind not in self._banks:
            self._banks[kind] = NoiseBank.open(kind, self.voices, self.seed, self.folders)
        return self._banks[kind]


def perform(samples: np.ndarray, step: Condition, noise: np.ndarray, snr_over: str) -> np.ndarray:
    """Perform one step of a condition. samples: (N,); noise: (N,), or an impulse response (M,).
    Returns float32 (N,).

    Raises ValueError for silent speech.
    """
    match step.name:
        case "noise":
            return signal.mix(samples, noise, step.values[0], over=snr_over)
        case "reverb" | "rooms" | "rir":
            return signal.reverberate(samples, noise)
        case "pitch":
            return signal.pitch_shift(samples, *step.values)
        case "band":
            return signal.band_reject(samples, *step.values)
        case "codec":
            return signal.apply_codec(samples, step.kind, *step.values)
    return samples


# ---- frozen mixtures

Row = dict[str, Any]


def freeze(
    conditions: Sequence[Condition], lengths: Mapping[str, int], distorter: Distorter, path: Path
) -> Path:
    """Write the mixtures of all conditions and utterances. lengths: samples at 16 kHz of each
    utterance, by its id. Returns `path`.

    Nothing is written unless all can be. Raises InputError for noise that cannot be had.
    """
    hash_of = cache(digest)

    @cache  # the noise is the same at every SNR
    def describe_noise(step: Condition, key: str, n: int) -> Row:
        """Say what a step needs: recordings, relative to the manifest where they lie below it, and
        the hash of the noise."""
        draw = distorter.draw(step, key, n)
        files = []
        for piece in draw.pieces:
            file = manifest_path(piece.file, path.parent)
            files.append({"file": file, "sha256": hash_of(piece.file), "offset": piece.offset})
        described: Row = {"files": files} if files else {}
        return described | ({"sha256": noise_hash(draw.noise)} if len(draw.noise) else {})

    rows = []
    for key, n in lengths.items():
        for condition in conditions:
            if condition.name == "clean":
                continue
            steps = []
            for step in distorter.steps(condition, key):
                source = replace(step, values=()) if step.name == "noise" else step
                steps.append({"apply": step.text, **describe_noise(source, key, n)})
            row = {"utterance": key, "samples": n, "condition": condition.text}
            row |= {"snr_db": condition.snr_db, **distorter.card(condition), "steps": steps}
            rows.append(row)
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

    def check(self, condition: Condition) -> None:
        """Raise InputError for a condition that is not in the manifest, and for recordings that
        cannot be read."""
        rows = [row for (_, text), row in self._rows.items() if text == condition.text]
        if not rows and condition.name != "clean":
            self._refuse(f"has no mixture of the condition {condition.text}")
        for row in rows:
            for step in row["steps"]:
                for piece in self._pieces(step):
                    header_duration(piece.file)

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
        for frozen in row["steps"]:
            step = parse_condition(frozen["apply"])
            noise = self._noise(row, frozen, step)
            samples = perform(samples, step, noise, row.get("snr_over", signal.ACTIVE))
        return samples

    def _noise(self, row: Row, frozen: Row, step: Condition) -> np.ndarray:
        """Return the noise (n,) or the impulse response of a step, as it was frozen."""
        n, pieces = row["samples"], self._pieces(frozen)
        if not pieces:
            noise = Distorter(row["seed"]).draw(step, row["utterance"], n).noise
        else:
            noise = read_recording(pieces[0].file) if step.name == "rir" else replay(pieces, n)
        if len(noise) and noise_hash(noise) != frozen["sha256"]:
            self._refuse(
                f"was frozen with another noise for the utterance {row['utterance']} in the "
                f"condition {row['condition']}"
            )
        return noise

    def _pieces(self, frozen: Row) -> list[Piece]:
        folder = self.manifest.parent
        return [Piece(folder / at["file"], at["offset"]) for at in frozen.get("files", ())]

    def _refuse(self, why: str) -> NoReturn:
        raise InputError(f"{self.manifest} {why}; freeze it again with these conditions")


def noise_hash(noise: np.ndarray) -> str:
    """Compute the SHA-256 of the noise as 16-bit audio: two of the same sound have the same,
    whatever their level."""
    peak = max(float(np.abs(noise).max(initial=0)), 1e-30)
    levelled = to_int16(np.asarray(noise, np.float64) / peak * (32767 / 32768))
    return hashlib.sha256(levelled.astype("<i2").tobytes()).hexdigest()
