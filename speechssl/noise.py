"""Distortions for training and evaluation: noise at an SNR, reverberation, pitch, a missing band.

Each is a function of arrays. Letters: N samples of speech, float32 mono, full scale 1. Nothing here moves or stretches
time, so the answer times of a distorted recording stay valid. What is random is drawn from a generator seeded by
(seed, kind of noise, utterance id) alone: the same on any number of workers in any order, and the same noise at every
SNR, so that a curve over SNRs compares like with like.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy import fft, signal

from speechssl.audio import SAMPLE_RATE, duration, read_audio
from speechssl.errors import InputError
from speechssl.room import RT60_RANGE, room_impulse

LEVEL_FRAME = 0.02  # seconds over which power is measured
MARGIN_DB = 15.9  # ITU-T P.56 (12/2011), method B: active speech is what lies less than this below the active level
FADE = 0.05  # seconds of cross-fade where a short noise is joined to itself
TALKERS = 5  # the middle of the three to seven of Snyder et al., "X-vectors" (ICASSP 2018), data augmentation
RT60 = 0.5  # seconds; the middle room of the REVERB challenge (Kinoshita et al., WASPAA 2013)
AUDIO_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
PINK_FROM = 20.0  # Hz; below, 1/f would put more inaudible power into a long recording than into a short one


def generator(seed: int, *keys: str) -> np.random.Generator:
    """A random generator that depends on these values only, not on the process or on what was drawn before."""
    digest = hashlib.sha256(json.dumps([seed, *keys]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def active_level(samples: np.ndarray, sample_rate: int = SAMPLE_RATE) -> float:
    """Level of the speech without its pauses, in dB below full scale (RMS 1); -inf for silence. samples: (N,).

    A simple form of ITU-T P.56 method B: the mean power A of the 20 ms frames whose power is above A - 15.9 dB. It has
    no hangover, so pauses of any length count for nothing. Without pauses it is the RMS level. ValueError if N = 0.
    """
    if not len(samples):
        raise ValueError("no samples to measure")
    starts = np.arange(0, len(samples), round(LEVEL_FRAME * sample_rate))
    energies = np.add.reduceat(np.square(samples, dtype=np.float64), starts)
    counts = np.diff(np.r_[starts, len(samples)])
    active, before = np.ones(len(starts), bool), 0
    while before != (before := int(active.sum())):  # each round only drops frames below the mean, so this ends
        power = energies[active].sum() / counts[active].sum()
        active &= energies >= counts * power * 10 ** (-MARGIN_DB / 10)
    return _decibels(float(energies[active].sum() / counts[active].sum()))


def mix(
    speech: np.ndarray,
    noise: np.ndarray,
    snr_db: float,
    rng: np.random.Generator | None = None,
    sample_rate: int = SAMPLE_RATE,
) -> np.ndarray:
    """Speech plus noise at an SNR in dB: active speech level over RMS level of the noise that is added.

    speech: (N,); noise: (M,), cropped or repeated by `fit_length`. Returns float32 (N,), scaled down as a whole where
    it would go beyond full scale. Raises ValueError where the speech or the noise is silent or the SNR is not finite.
    """
    if not np.isfinite(snr_db):
        raise ValueError(f"an SNR of {snr_db} dB is not a number")
    noise = fit_length(noise, len(speech), rng, sample_rate)
    speech_level, noise_level = active_level(speech, sample_rate), _rms_level(noise)
    if not (np.isfinite(speech_level) and np.isfinite(noise_level)):
        raise ValueError(f"no SNR between speech at {speech_level} dB and noise at {noise_level} dB: one is silent")
    gain = 10 ** ((speech_level - noise_level - snr_db) / 20)
    return _guard(np.asarray(speech, np.float64) + gain * noise)


def fit_length(noise: np.ndarray, n: int, rng: np.random.Generator | None = None, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Noise (M,) to (n,): cropped at a random offset where longer, repeated with cross-fades where shorter.

    rng None: from the beginning. The fades are of equal power, so that the level does not dip at a join.
    """
    if len(noise) >= n:
        start = 0 if rng is None else int(rng.integers(len(noise) - n + 1))
        return noise[start : start + n]
    if not len(noise):
        raise ValueError("no noise to repeat")
    fade = min(round(FADE * sample_rate), len(noise) // 2)
    angle = (np.arange(fade) + 0.5) / max(fade, 1) * np.pi / 2
    join = noise[len(noise) - fade :] * np.cos(angle) + noise[:fade] * np.sin(angle)
    loop = np.concatenate([noise[fade : len(noise) - fade], join])  # the join ends where the loop begins
    return np.resize(np.roll(loop, 0 if rng is None else -int(rng.integers(len(loop)))), n)


def gaussian(n: int, rng: np.random.Generator) -> np.ndarray:
    """White Gaussian noise of power 1. Returns (n,)."""
    return rng.standard_normal(n)


def pink(n: int, rng: np.random.Generator, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Noise of power about 1 whose power density falls as 1/f from 20 Hz on (-3 dB an octave). Returns (n,)."""
    size = fft.next_fast_len(max(n, 2), real=True)
    frequency = fft.rfftfreq(size, 1 / sample_rate)
    weight = np.where(frequency >= PINK_FROM, 1 / np.sqrt(np.maximum(frequency, PINK_FROM)), 0)
    noise = fft.irfft(fft.rfft(rng.standard_normal(size)) * weight, size)
    return np.asarray(noise[:n] / np.sqrt(np.mean(noise**2)))


def babble(
    voices: Sequence[np.ndarray],
    n: int,
    rng: np.random.Generator,
    talkers: int = TALKERS,
    sample_rate: int = SAMPLE_RATE,
) -> np.ndarray:
    """Several talkers at once, each at the same active level. voices: recordings (M_i,), at least one. Returns (n,).

    A talker is a random voice; none is taken twice before each was taken once. Raises ValueError without voices.
    """
    if not voices:
        raise ValueError("babble needs recordings of voices")
    order = np.concatenate([rng.permutation(len(voices)) for _ in range(-(-talkers // len(voices)))])
    total = np.zeros(n)
    for index in order[:talkers]:
        talker = fit_length(voices[index], n, rng, sample_rate)
        if np.isfinite(level := active_level(talker, sample_rate)):  # a crop may fall into a long pause
            total += talker * 10 ** (-level / 20)
    return total


def reverberate(speech: np.ndarray, impulse: np.ndarray, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Speech in a room. speech: (N,); impulse: (M,), whose largest sample is the direct path. Returns float32 (N,).

    The direct path stays where the speech was (no delay), the tail after N is dropped, and the active level is kept.
    Raises ValueError for an impulse response that is empty or zero.
    """
    if not len(impulse) or not np.any(impulse):
        raise ValueError("the impulse response is empty or zero")
    direct = int(np.argmax(np.abs(impulse)))
    wet = signal.fftconvolve(speech, impulse)[direct : direct + len(speech)]
    change = active_level(speech, sample_rate) - active_level(wet, sample_rate)
    return _guard(wet * 10 ** (change / 20) if np.isfinite(change) else wet)


def pitch_shift(samples: np.ndarray, semitones: float, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Raise the pitch by semitones, timing kept (phase vocoder of librosa). samples: (N,). Returns float32 (N,)."""
    from librosa import effects  # type: ignore[attr-defined]  # slow to import

    shifted = effects.pitch_shift(np.asarray(samples, np.float32), sr=sample_rate, n_steps=semitones, n_fft=512)
    return _guard(shifted)


def band_reject(samples: np.ndarray, low: float, high: float, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """Remove low to high Hz (fourth-order Butterworth run both ways: no delay). samples: (N,). Returns float32 (N,).

    Raises ValueError unless 0 < low < high < sample_rate / 2.
    """
    if not 0 < low < high < sample_rate / 2:
        raise ValueError(f"[{low}, {high}] Hz is not a band between 0 and {sample_rate / 2} Hz")
    filters = signal.butter(4, [low, high], "bandstop", fs=sample_rate, output="sos")
    return _guard(signal.sosfiltfilt(filters, samples, padlen=min(3 * (2 * len(filters) + 1), len(samples) - 1)))


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


@dataclass(frozen=True)
class NoiseBank:
    """Where noise comes from. kind: gaussian, pink, babble (of the files), or recording (one of the files)."""

    kind: str
    files: tuple[Path, ...] = ()
    seed: int = 0

    @classmethod
    def of(cls, kind: str, voices: Sequence[Path] = (), seed: int = 0) -> NoiseBank:
        """The bank for a `Condition.kind`. Raises InputError where there is no such noise, or babble without voices."""
        if kind == "babble" and not voices:
            raise InputError("babble needs voices; name recordings of other people with --voices")
        if kind in ("gaussian", "pink", "babble"):
            return cls(kind, tuple(voices) if kind == "babble" else (), seed)
        path = Path(kind)
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES)
        if not files:
            raise InputError(f"there is no noise {kind}; give gaussian, pink, babble, an audio file or a folder")
        return cls("recording", tuple(files), seed)

    def sample(self, key: str, n: int) -> np.ndarray:
        """(n,) noise at 16 kHz, not silent, decided by the seed and the key alone. Raises InputError for a bad file."""
        rng = generator(self.seed, self.kind, key)
        for _ in range(16):
            noise = self._draw(rng, n)
            if np.any(noise):
                return noise
        raise InputError(f"{self.files[0]} and its like are silent for the most part; give other noise recordings")

    def _draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        if self.kind == "gaussian":
            return gaussian(n, rng)
        if self.kind == "pink":
            return pink(n, rng)
        if self.kind == "babble":
            chosen = rng.choice(len(self.files), min(TALKERS, len(self.files)), replace=False)
            return babble([recording(self.files[i]) for i in chosen], n, rng)
        return fit_length(recording(self.files[rng.integers(len(self.files))]), n, rng)


@dataclass(frozen=True)
class Distorter:
    """Applies conditions. seed: of all that is random; voices: speech recordings for babble, of other people."""

    seed: int = 0
    voices: tuple[Path, ...] = ()
    _banks: dict[str, NoiseBank] = field(default_factory=dict, repr=False, compare=False)

    def check(self, condition: Condition) -> None:
        """Raises InputError where `apply` would for want of voices or a noise file that can be read; call it before a long run."""
        for path in self._files(condition):
            duration(path)

    def sources(self, condition: Condition) -> list[tuple[str, int]]:
        """Name and size in bytes of the recordings that a condition draws on."""
        return [(path.name, path.stat().st_size) for path in self._files(condition)]

    def _files(self, condition: Condition) -> tuple[Path, ...]:
        return self._bank(condition.kind).files if condition.name == "noise" else ()

    def apply(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        """samples: (N,) at 16 kHz. Returns float32 (N,); "clean" gives the samples themselves.

        Raises ValueError for silent speech, InputError for noise that cannot be had.
        """
        apply: dict[str, Callable[[], np.ndarray]] = {
            "clean": lambda: samples,
            "noise": lambda: self._noisy(samples, condition, utterance_id),
            "reverb": lambda: reverberate(samples, self._room(condition, utterance_id)),
            "pitch": lambda: pitch_shift(samples, condition.semitones or 0.0),
            "band": lambda: band_reject(samples, *(condition.band or (0, 0))),
        }
        if condition.name not in apply:
            raise ValueError(f"no condition is named {condition.name!r}; the names are {', '.join(apply)}")
        return apply[condition.name]()

    def _noisy(self, samples: np.ndarray, condition: Condition, utterance_id: str) -> np.ndarray:
        noise = self._bank(condition.kind).sample(utterance_id, len(samples))
        return mix(samples, noise, math.nan if condition.snr_db is None else condition.snr_db)

    def _room(self, condition: Condition, utterance_id: str) -> np.ndarray:
        return room_impulse(generator(self.seed, "reverb", utterance_id), condition.rt60 or RT60)

    def _bank(self, kind: str) -> NoiseBank:
        if kind not in self._banks:
            self._banks[kind] = NoiseBank.of(kind, self.voices, self.seed)
        return self._banks[kind]


def distort(samples: np.ndarray, condition: Condition, utterance_id: str, seed: int = 0) -> np.ndarray:
    """`Distorter.apply` for a single recording. samples: (N,). Returns float32 (N,)."""
    return Distorter(seed).apply(samples, condition, utterance_id)


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


@lru_cache(maxsize=32)
def recording(path: Path) -> np.ndarray:
    """A noise or voice file (M,) at 16 kHz, read-only, kept for the next utterance. Errors as of `read_audio`."""
    samples = read_audio(path)
    samples.flags.writeable = False
    return samples


def _decibels(power: float) -> float:
    return 10 * float(np.log10(power)) if power > 0 else -np.inf


def _rms_level(samples: np.ndarray) -> float:
    return _decibels(float(np.mean(np.square(samples, dtype=np.float64))))


def _guard(samples: np.ndarray) -> np.ndarray:
    """float32, scaled down to full scale where beyond: quieter is harmless, clipped is another distortion."""
    return np.asarray(samples / max(1.0, float(np.abs(samples).max(initial=0))), np.float32)
