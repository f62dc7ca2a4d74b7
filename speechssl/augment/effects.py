"""Distortions of speech other than noise: a room, another pitch or voice, a missing band, a codec. Timing is kept."""

from __future__ import annotations

import numpy as np
from scipy import signal

from speechssl.audio import SAMPLE_RATE, recode
from speechssl.errors import MissingExtra
from speechssl.signal import active_level, guard

CODECS = {
    "mp3": ("MP3", "MPEG_LAYER_III", 8.0, 160.0),
    "opus": ("OGG", "OPUS", 6.0, 256.0),
}  # kbit/s of libsndfile's compression 1, 0
LOWEST = {"mp3": 16.0, "opus": 6.0}  # kbit/s; libsndfile writes no MP3 at its own lowest
LAME_DELAY = 1105  # samples: 576 of the encoder and 529 of any decoder; where a frame is too small for the tag that tells them


def bit_rates(codec: str) -> tuple[float, float]:
    """The bit rates of a codec in kbit/s, from and to. KeyError for one that is not in CODECS."""
    return LOWEST[codec], CODECS[codec][3]


def through_codec(samples: np.ndarray, codec: str, kbps: float) -> np.ndarray:
    """Samples (N,) at 16 kHz after "mp3" or "opus" at a nominal bit rate in kbit/s. Returns float32 (N,), not delayed.

    Raises ValueError for another codec or a bit rate that it has not.
    """
    if codec not in CODECS or not LOWEST[codec] <= kbps <= CODECS[codec][3]:
        raise ValueError(f"{codec} at {kbps} kbit/s is none of {', '.join(f'{c} {bit_rates(c)}' for c in CODECS)}")
    container, subtype, low, high = CODECS[codec]
    decoded = recode(guard(samples), container, subtype, (high - kbps) / (high - low))
    extra = len(decoded) - len(samples)
    if extra > 0:  # an MP3 without the tag: neither the delay nor the padding was taken off
        decoded = decoded[min(LAME_DELAY, extra) :]
    return guard(np.pad(decoded, (0, max(len(samples) - len(decoded), 0)))[: len(samples)])


def reverberate(speech: np.ndarray, impulse: np.ndarray) -> np.ndarray:
    """Speech in a room. speech: (N,); impulse: (M,), whose largest sample is the direct path. Returns float32 (N,).

    The direct path stays where the speech was (no delay), the tail after N is dropped, and the active level is kept.
    Raises ValueError for an impulse response that is empty or zero.
    """
    if not len(impulse) or not np.any(impulse):
        raise ValueError("the impulse response is empty or zero")
    direct = int(np.argmax(np.abs(impulse)))
    wet = signal.fftconvolve(speech, impulse)[direct : direct + len(speech)]
    change = active_level(speech) - active_level(wet)
    return guard(wet * 10 ** (change / 20) if np.isfinite(change) else wet)


def pitch_shift(samples: np.ndarray, semitones: float) -> np.ndarray:
    """Raise the pitch by semitones, timing kept (phase vocoder of librosa). samples: (N,). Returns float32 (N,)."""
    from librosa import effects  # type: ignore[attr-defined]  # slow to import

    shifted = effects.pitch_shift(np.asarray(samples, np.float32), sr=SAMPLE_RATE, n_steps=semitones, n_fft=512)
    return guard(shifted)


def band_reject(samples: np.ndarray, low: float, high: float) -> np.ndarray:
    """Remove low to high Hz (fourth-order Butterworth run both ways: no delay). samples: (N,). Returns float32 (N,).

    Raises ValueError unless 0 < low < high < 8000.
    """
    if not 0 < low < high < SAMPLE_RATE / 2:
        raise ValueError(f"[{low}, {high}] Hz is not a band between 0 and {SAMPLE_RATE / 2} Hz")
    filters = signal.butter(4, [low, high], "bandstop", fs=SAMPLE_RATE, output="sos")
    return guard(signal.sosfiltfilt(filters, samples, padlen=min(3 * (2 * len(filters) + 1), len(samples) - 1)))


FLOOR, CEILING = 75.0, 500.0  # Hz, of the voices whose pitch is found
EQUALISER = np.geomspace(60, 7600, 10)  # Hz, the bands of ContentVec's code (arXiv 2204.09224), used by Spin and R-Spin too


def other_voice(
    samples: np.ndarray, formants: float, pitch: float, pitch_range: float, sample_rate: int = SAMPLE_RATE
) -> np.ndarray:
    """Speech as a speaker with another vocal tract would say it: Praat's "Change gender", by parselmouth. About 100 x real time.

    samples: (N,). formants, pitch (its median) and pitch_range are factors. Returns float32 (N,); what has no pitch stays as it is.
    Raises MissingExtra without speechssl[voices].
    """
    try:
        import parselmouth
    except ImportError as error:
        raise MissingExtra("perturbation of voices", "voices") from error
    sound = parselmouth.Sound(np.asarray(samples, np.float64), sample_rate)
    try:
        found = sound.to_pitch_ac(pitch_floor=FLOOR, pitch_ceiling=CEILING, time_step=0.8 / FLOOR)
        frequencies = found.selected_array["frequency"]
        if not frequencies.any():
            return guard(samples)
        median = float(np.median(frequencies[frequencies > 0])) * pitch
        changed = parselmouth.praat.call([sound, found], "Change gender", formants, median, pitch_range, 1.0).values[0]
    except parselmouth.PraatError:  # too short for a period of the lowest pitch
        return guard(samples)
    return guard(np.pad(changed, (0, max(len(samples) - len(changed), 0)))[: len(samples)])


def equalise(samples: np.ndarray, decibels: np.ndarray, quality: np.ndarray, sample_rate: int = SAMPLE_RATE) -> np.ndarray:
    """A parametric equaliser: low shelf, eight peaks, high shelf (R. Bristow-Johnson's audio EQ cookbook) at EQUALISER.

    samples: (N,); decibels, quality: (10,). Returns float32 (N,) of the same active level.
    """
    a = 10 ** (np.asarray(decibels) / 40)
    omega = 2 * np.pi * EQUALISER / sample_rate
    cos, alpha = np.cos(omega), np.sin(omega) / (2 * np.asarray(quality))
    peaks = np.stack([1 + alpha * a, -2 * cos, 1 - alpha * a, 1 + alpha / a, -2 * cos, 1 - alpha / a], axis=1)
    root = 2 * np.sqrt(a) * alpha
    for n, sign in ((0, 1), (-1, -1)):  # the shelves
        low, high, c = a[n] + 1, a[n] - 1, sign * cos[n]
        upper = [a[n] * (low - high * c + root[n]), 2 * sign * a[n] * (high - low * c), a[n] * (low - high * c - root[n])]
        lower = [low + high * c + root[n], -2 * sign * (high + low * c), low + high * c - root[n]]
        peaks[n] = [*upper, *lower]
    out = signal.sosfilt(peaks / peaks[:, 3:4], samples)
    change = active_level(samples, sample_rate) - active_level(out, sample_rate)
    return guard(out * 10 ** (change / 20) if np.isfinite(change) else out)
