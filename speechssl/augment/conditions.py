"""Conditions name the distortions of an evaluation; `Distorter` and `FrozenDistorter` apply them.

Random choices in a condition depend on (seed, kind of noise, utterance id) alone. `freeze` writes
them to a manifest with a row for every mixture of an utterance with noise, so that every system,
later run and laboratory gets the same noise. A row says from which samples of which recordings the
noise is taken, unless it is generated, and has the SHA-256 of the noise as 16-bit audio: other
noise is refused. In shapes, N and n are numbers of samples.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from speechssl import signal
from speechssl.artifacts import write_lines
from speechssl.audio import SAMPLE_RATE, read_duration, to_int16
from speechssl.augment.noise import (
    SHARES,
    DrawnNoise,
    NoiseBank,
    Piece,
    find_recordings,
    read_cached,
    replay,
)
from speechssl.data.files import hash_recording, make_manifest_path
from speechssl.data.records import read_lines
from speechssl.errors import InputError

RT60 = 0.5  # seconds; the middle room of the REVERB challenge (Kinoshita et al., WASPAA 2013)
# A set such as m+g+r distorts every utterance by one of its members. m is noise of MUSAN, or
# generated noise in its place, the stand-in; g is Gaussian noise; r is a random room.
LETTERS = ("m", "g", "r")
EXAMPLES = (
    "clean, pink@10, babble@5, coloured:-6@5, m+g+r@5, dev@5, held-out@5, mynoise.wav@5, "
    "reverb@0.6, rir=FOLDER, pitch@-2, "
    "band@1000-2000, codec@mp3:16 or reverb@0.5+mynoise.wav@5"
)
# name of a condition -> its label in tables and figures, and the text that `parse_condition` reads
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
    """A condition is one distortion, or a chain of several. Examples of its fields and properties:

        name    kind        values        text             label              short
        clean                             clean            clean              clean
        noise   pink        (10,) dB      pink@10          pink 10 dB         pink
        noise   m+g+r       (5,) dB       m+g+r@5          m+g+r 5 dB         m+g+r
        noise   kitchen.wav (5,) dB       kitchen.wav@5    kitchen 5 dB       kitchen
        reverb              (0.5,) s      reverb@0.5       reverb 0.5 s       reverb
        rooms                             r                r                  r
        rir     halls                     rir=halls        rir halls          rir halls
        pitch               (2,)          pitch@2          pitch +2           pitch +2
        band                (1e3, 2e3) Hz band@1000-2000   no 1000-2000 Hz    no 1000-2000 Hz
        codec   mp3         (16,) kbit/s  codec@mp3:16     mp3 16 kbps        mp3 16 kbps

    Values of pitch are semitones. A chain joins the texts of its steps by "+".
    """

    name: str  # a key of SPELLINGS, or "chain"
    kind: str = ""  # name of a noise or a codec, or path of recordings or impulse responses
    values: tuple[float, ...] = ()
    steps: tuple[Condition, ...] = ()  # of a chain, in the order in which they are applied

    @property
    def noisy(self) -> bool:
        """Return whether the condition has noise, and so an SNR."""
        return any(step.name == "noise" for step in self.steps or (self,))

    @property
    def snr_db(self) -> float | None:
        """Return the SNR of the noise; None for a condition without noise, or with several."""
        snrs = [step.values[0] for step in self.steps or (self,) if step.name == "noise"]
        return snrs[0] if len(snrs) == 1 else None

    @property
    def short(self) -> str:
        """Return the name in `results.jsonl`, which has a column for the SNR. Reverberation of RT60
        is "reverb", any other "reverb 0.9 s"."""
        if self.name == "chain":
            return " + ".join(step.short for step in self.steps)
        if self.name == "noise":
            return _name_noise(self.kind)
        return "reverb" if self.values == (RT60,) and self.name == "reverb" else self.label

    @property
    def label(self) -> str:
        """Return the name in tables and figures."""
        if self.name == "chain":
            return " + ".join(step.label for step in self.steps)
        label, _ = SPELLINGS[self.name]
        return label.format(*self.values, kind=self.kind, stem=_name_noise(self.kind))

    @property
    def text(self) -> str:
        """Return the text that `parse_condition` reads."""
        if self.name == "chain":
            return "+".join(step.text for step in self.steps)
        _, text = SPELLINGS[self.name]
        exact = [np.format_float_positional(value, trim="-") for value in self.values]
        return text.format(*exact, kind=self.kind)


# the conditions whose texts have no number
UNNUMBERED = {
    "clean": Condition("clean"),
    "reverb": Condition("reverb", values=(RT60,)),
    "r": Condition("rooms"),
}
LIMITS = {"reverb": signal.RT60_RANGE, "pitch": (-24, 24)}  # of the number


def _name_noise(kind: str) -> str:
    """Return the name of a noise in tables: "pink", "kitchen" for kitchen.wav, or "fsd50k" for
    fsd50k=PATH."""
    name, equals, _ = kind.partition("=")
    if equals and re.fullmatch(r"[\w-]+", name):
        return name
    # the ".5" of "coloured:-4.5" is no suffix of a file
    return kind if kind.startswith("coloured:") else Path(kind).stem


def _list_members(step: Condition) -> list[Condition]:
    """List the members of a set such as "m+g+r" as steps; the list is empty for other steps."""
    letters = step.kind.split("+") if step.name == "noise" else []
    if len(letters) < 2 or not set(letters) <= set(LETTERS):
        return []
    members = []
    for letter in letters:
        if letter == "r":
            members.append(Condition("rooms"))
        else:
            members.append(Condition("noise", letter, step.values))
    return members


def parse_condition(text: str) -> Condition:
    """Parse the text of a condition, such as those in the examples of `Condition`.

    Noise at an SNR ("pink@10") is gaussian, pink, coloured:SLOPE (dB an octave), babble, m or g
    (see LETTERS), dev or held-out (generated noise that no training has), a set (m+g+r@5: each
    utterance gets one of the three), a file, folder or manifest of recordings, or name=PATH, which
    gives them a name. r is a random room; rir=PATH has measured rooms. Steps joined by "+" are
    applied in order. Raises InputError for any other text; `Distorter.check` finds out whether
    recordings exist.
    """
    text = text.strip()
    try:
        steps = tuple(map(_parse_step, _split_steps(text)))
        if len(steps) > 1 and UNNUMBERED["clean"] in steps:
            raise ValueError("clean is no step of others")
    except (ValueError, KeyError) as error:
        raise InputError(
            f"{text!r} is not a condition ({error}); write one like {EXAMPLES}"
        ) from None
    return steps[0] if len(steps) == 1 else Condition("chain", steps=steps)


def _split_steps(text: str) -> list[str]:
    """Split a text at each "+" between steps. Sets ("m+g+r@5") and names of files ("a+b.wav@5") may
    have a "+" too: there it comes before the number of the step."""
    letters = text.rpartition("@")[0].split("+")
    if len(letters) > 1 and set(letters) <= set(LETTERS):
        return [text]
    steps: list[str] = []
    complete = True  # whether the last of `steps` is a whole step
    for part in text.split("+"):
        step = part if complete else f"{steps.pop()}+{part}"
        steps.append(step)
        has_no_number = step.strip() in UNNUMBERED or step.startswith("rir=")
        complete = has_no_number or bool(re.search(r"@[^/@]+$", step))
    return steps if complete else [text]


def _parse_number(text: str, lowest: float, highest: float) -> float:
    """Parse a number. Raises ValueError outside [lowest, highest]."""
    number = float(text)
    if not lowest <= number <= highest:
        raise ValueError(f"{text} is not in [{lowest:g}, {highest:g}]")
    return number


def _parse_step(text: str) -> Condition:
    """Parse one step. Raises ValueError for a text that is no step, and KeyError for an unknown
    codec."""
    text = text.strip()
    if text in UNNUMBERED:
        return UNNUMBERED[text]
    if text.startswith("rir=") and text != "rir=":
        return Condition("rir", text.removeprefix("rir="))
    kind, _, value = text.rpartition("@")
    match kind:
        case "":
            raise ValueError("it has no number")
        case "clean" | "r":
            raise ValueError(f"{kind} takes no number")
        case "reverb" | "pitch":
            return Condition(kind, values=(_parse_number(value, *LIMITS[kind]),))
        case "band":
            first, _, last = value.partition("-")
            low = _parse_number(first, 1, SAMPLE_RATE / 2 - 2)
            high = _parse_number(last, low + 1, SAMPLE_RATE / 2 - 1)
            return Condition("band", values=(low, high))
        case "codec":
            codec, _, kbps = value.partition(":")
            return Condition("codec", codec, (_parse_number(kbps, *signal.get_bit_rates(codec)),))
    if kind.startswith("coloured:"):
        slope = _parse_number(kind.removeprefix("coloured:"), -24, 24)
        kind = f"coloured:{slope:g}"
    return Condition("noise", kind, (_parse_number(value, -100, 100),))


@dataclass(frozen=True)
class Distorter:
    """A distorter applies conditions to utterances."""

    seed: int = 0  # decides all random choices
    voices: tuple[Path, ...] = ()  # speech of other people, for babble
    # name, such as "musan" -> folder of recordings
    folders: Mapping[str, Path] = field(default_factory=dict)
    snr_over: str = signal.ACTIVE  # the part of the speech that an SNR refers to: `measure_level`
    _banks: dict[str, NoiseBank] = field(default_factory=dict)

    def describe(self, condition: Condition) -> dict[str, Any]:
        """Return the entries of a card about a condition: the seed, and the part of the speech that
        its SNR refers to, unless that is active speech."""
        card: dict[str, Any] = {"seed": self.seed}
        if condition.noisy and self.snr_over != signal.ACTIVE:
            card["snr_over"] = self.snr_over
        return card

    def check(self, condition: Condition) -> None:
        """Raise InputError for missing voices, or noise that cannot be read, before a long run in
        whose middle `apply` would raise it."""
        for step in self._possible_steps(condition):
            for path in self._list_files(step):
                read_duration(path)

    def list_sources(self, condition: Condition) -> list[tuple[str, int]]:
        """Return, for cards, what results under a condition depend on: (name, bytes) of its
        recordings, (name, version) of generators of noise, and ("SNR over: ...", 0) where its SNR
        does not refer to active speech."""
        sources: list[tuple[str, int]] = []
        for step in self._possible_steps(condition):
            if step.name != "noise":
                sources += [(path.name, path.stat().st_size) for path in self._list_files(step)]
                continue
            sources += self._open_bank(step.kind).sources
            if self.snr_over != signal.ACTIVE:
                sources.append((f"SNR over: {self.snr_over}", 0))
        return sources

    def apply(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        """Distort samples (N,) at 16 kHz. Returns float32 (N,); "clean" gives the samples
        themselves.

        Raises ValueError for silent speech, and InputError for noise that is missing.
        """
        for step in self.draw_steps(condition, utterance_id):
            noise = self.draw(step, utterance_id, len(samples)).noise
            samples = apply_step(samples, step, noise, self.snr_over)
        return samples

    def draw_steps(self, condition: Condition, utterance_id: str) -> list[Condition]:
        """List the steps in order. Each set is replaced by the member that the utterance gets,
        which is drawn."""
        steps = []
        for step in condition.steps or (condition,):
            members = _list_members(step)
            if not members:
                steps.append(step)
                continue
            shares = np.array([SHARES[letter] for letter in step.kind.split("+")])
            rng = signal.make_generator(self.seed, step.kind, utterance_id)
            steps.append(members[rng.choice(len(members), p=shares / shares.sum())])
        return steps

    def draw(self, step: Condition, utterance_id: str, n: int) -> DrawnNoise:
        """Draw the noise (n,) of a step, or its impulse response (M,), with the recordings that it
        is taken from. The noise is empty for a step that needs neither."""
        rng = signal.make_generator(self.seed, step.name, utterance_id)
        match step.name:
            case "noise":
                return self._open_bank(step.kind).draw(utterance_id, n)
            case "reverb":
                return DrawnNoise(signal.draw_impulse(rng, *step.values))
            case "rooms":
                return DrawnNoise(signal.draw_room(rng))
            case "rir":
                files = self._list_files(step)
                file = files[int(rng.integers(len(files)))]
                return DrawnNoise(read_cached(file), (Piece(file, 0),))
        return DrawnNoise(np.zeros(0))

    def _possible_steps(self, condition: Condition) -> list[Condition]:
        """List the steps. Each set is replaced by all of its members."""
        steps = []
        for step in condition.steps or (condition,):
            steps += _list_members(step) or [step]
        return steps

    def _list_files(self, step: Condition) -> Sequence[Path]:
        """List the recordings, or impulse responses, of a step."""
        if step.name == "noise":
            return (*self._open_bank(step.kind).files, *self._open_bank(step.kind).voices)
        if step.name != "rir":
            return ()
        return find_recordings(self.folders.get(step.kind, Path(step.kind)), "impulse responses")

    def _open_bank(self, kind: str) -> NoiseBank:
        """Return the bank of a kind of noise, which is opened once."""
        if kind not in self._banks:
            self._banks[kind] = NoiseBank.open(kind, self.voices, self.seed, self.folders)
        return self._banks[kind]


def apply_step(
    samples: np.ndarray, step: Condition, noise: np.ndarray, snr_over: str
) -> np.ndarray:
    """Apply one step of a condition. samples: (N,); noise: (N,), or an impulse response (M,).
    Returns float32 (N,).

    Raises ValueError for silent speech.
    """
    match step.name:
        case "noise":
            return signal.mix(samples, noise, step.values[0], over=snr_over)
        case "reverb" | "rooms" | "rir":
            return signal.reverberate(samples, noise)
        case "pitch":
            return signal.shift_pitch(samples, *step.values)
        case "band":
            return signal.reject_band(samples, *step.values)
        case "codec":
            return signal.apply_codec(samples, step.kind, *step.values)
    return samples


# ---- frozen mixtures

Row = dict[str, Any]


def freeze(
    conditions: Sequence[Condition], lengths: Mapping[str, int], distorter: Distorter, path: Path
) -> Path:
    """Write a manifest of the mixtures of all utterances under all conditions. lengths: utterance
    id -> samples at 16 kHz. Returns `path`.

    Nothing is written if a mixture cannot be made. Raises InputError for noise that is missing.
    """
    hash_of = cache(hash_recording)  # hashes each recording once
    rows = []
    for utterance_id, n in lengths.items():
        noises: dict[Condition, Row] = {}  # step without its SNR -> its noise: all SNRs share it
        for condition in conditions:
            if condition.name == "clean":
                continue
            steps = []
            for step in distorter.draw_steps(condition, utterance_id):
                key = replace(step, values=()) if step.name == "noise" else step
                if key not in noises:
                    drawn = distorter.draw(key, utterance_id, n)
                    noises[key] = _describe_noise(drawn, path.parent, hash_of)
                steps.append({"apply": step.text, **noises[key]})
            row = {
                "utterance": utterance_id,
                "samples": n,
                "condition": condition.text,
                "snr_db": condition.snr_db,
                **distorter.describe(condition),
                "steps": steps,
            }
            rows.append(row)
    write_lines(path, rows)
    return path


def _describe_noise(drawn: DrawnNoise, folder: Path, hash_of: Callable[[Path], str]) -> Row:
    """Describe the noise of a step by its hash, and by the recordings that it is taken from. Paths
    are relative to the folder of the manifest if they lie below it."""
    files = []
    for piece in drawn.pieces:
        file = make_manifest_path(piece.file, folder)
        files.append({"file": file, "sha256": hash_of(piece.file), "offset": piece.offset})
    row: Row = {"files": files} if files else {}
    if len(drawn.noise):
        row["sha256"] = hash_noise(drawn.noise)
    return row


@dataclass(frozen=True)
class FrozenDistorter:
    """A frozen distorter applies the mixtures of a manifest, and refuses all others."""

    manifest: Path

    @cached_property
    def _rows(self) -> dict[tuple[str, str], Row]:
        """Read the rows: (id of the utterance, text of the condition) -> row."""
        rows = [row for _, row in read_lines(self.manifest)]
        return {(row["utterance"], row["condition"]): row for row in rows}

    @property
    def seed(self) -> int:
        """Return the seed of the distorter whose noise was frozen."""
        return int(next(iter(self._rows.values()))["seed"])

    def check(self, condition: Condition) -> None:
        """Raise InputError for a condition that is not in the manifest, and for recordings that
        cannot be read."""
        rows = [row for (_, text), row in self._rows.items() if text == condition.text]
        if not rows and condition.name != "clean":
            self._refuse(f"has no mixture of the condition {condition.text}")
        for row in rows:
            for step in row["steps"]:
                for piece in self._list_pieces(step):
                    read_duration(piece.file)

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
            noise = self._make_noise(row, frozen, step)
            samples = apply_step(samples, step, noise, row.get("snr_over", signal.ACTIVE))
        return samples

    def _make_noise(self, row: Row, frozen: Row, step: Condition) -> np.ndarray:
        """Return the noise (n,) or the impulse response (M,) of a frozen step."""
        n = row["samples"]
        pieces = self._list_pieces(frozen)
        if not pieces:  # the noise is generated
            noise = Distorter(row["seed"]).draw(step, row["utterance"], n).noise
        elif step.name == "rir":
            noise = read_cached(pieces[0].file)
        else:
            noise = replay(pieces, n)
        if len(noise) and hash_noise(noise) != frozen["sha256"]:
            self._refuse(
                f"was frozen with another noise for the utterance {row['utterance']} in the "
                f"condition {row['condition']}"
            )
        return noise

    def _list_pieces(self, frozen: Row) -> list[Piece]:
        """List the pieces of recordings that the noise of a frozen step is made of."""
        folder = self.manifest.parent
        return [Piece(folder / file["file"], file["offset"]) for file in frozen.get("files", ())]

    def _refuse(self, why: str) -> NoReturn:
        """Raise InputError for a manifest that does not fit what is asked of it."""
        raise InputError(f"{self.manifest} {why}; freeze it again with these conditions")


def hash_noise(noise: np.ndarray) -> str:
    """Hash noise (n,) as 16-bit audio with its peak at full scale (SHA-256, hexadecimal). The same
    noise at another level has the same hash."""
    peak = max(float(np.abs(noise).max(initial=0)), 1e-30)
    levelled = to_int16(np.asarray(noise, np.float64) / peak * (32767 / 32768))
    return hashlib.sha256(levelled.astype("<i2").tobytes()).hexdigest()
