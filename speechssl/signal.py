"""These functions measure and distort speech: levels, noise at an SNR, simulated rooms, codecs,
other pitches and voices. No distortion moves or stretches time.

Letters: N samples of speech, M of noise or of an impulse response, mono, full scale 1.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from speechssl.audio import SAMPLE_RATE, recode
from speechssl.errors import MissingExtra

LEVEL_FRAME = 0.02  # seconds over which power is measured
ACTIVE = "active"
# The level of speech for an SNR is that of its active parts, or that of the whole signal.
SNR_OVER = (ACTIVE, "signal")
FADE = 0.05  # seconds of cross-fade where a short noise is joined to itself
# Active speech: frames down to so many dB below the active level (ITU-T P.56, method B).
MARGIN_DB = 15.9


def make_generator(seed: int, *keys: str) -> Generator:
    """Make a random generator that depends on the seed and the keys only, and not on the process or
    on earlier random numbers."""
    digest = hashlib.sha256(json.dumps([seed, *keys]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def measure_active_level(samples: np.ndarray) -> float:
    """Return the level of speech without its pauses, in dB below full scale (RMS 1); -inf for
    silence. samples: (N,).

    This is a simple form of ITU-T P.56 method B: the mean power A of the 20 ms frames whose power
    is above A - 15.9 dB. It has no hangover, so pauses of any length are left out. Without pauses
    it is the RMS level.
    """
    starts = np.arange(0, len(samples), round(LEVEL_FRAME * SAMPLE_RATE))
    energies = np.add.reduceat(np.square(samples, dtype=np.float64), starts)
    counts = np.diff(np.r_[starts, len(samples)])
    active = np.ones(len(starts), bool)
    previous = None
    # each round drops frames below the mean alone, so this ends
    while previous != active.sum():
        previous = active.sum()
        power = energies[active].sum() / counts[active].sum()
        active &= energies >= counts * power * 10 ** (-MARGIN_DB / 10)
    return to_decibels(float(energies[active].sum() / counts[active].sum()))


def to_decibels(power: float) -> float:
    """Return a power in dB; -inf for a power of 0."""
    return 10 * float(np.log10(power)) if power > 0 else -np.inf


def measure_rms_level(samples: np.ndarray) -> float:
    """Return the RMS level of all samples, with pauses, in dB below full scale (RMS 1); -inf for
    silence. samples: (N,)."""
    return to_decibels(float(np.mean(np.square(samples, dtype=np.float64))))


def measure_level(samples: np.ndarray, over: str = ACTIVE) -> float:
    """Return the level of speech that an SNR is relative to, in dB; -inf for silence.

    samples: (N,). over: "active" for `measure_active_level`, so that pauses do not make the noise
    quieter; "signal" for `measure_rms_level` of the whole signal, as in arXiv 2210.07978.
    """
    return measure_active_level(samples) if over == ACTIVE else measure_rms_level(samples)


def limit_peak(samples: np.ndarray) -> np.ndarray:
    """Scale samples (N,) down to full scale if they are beyond it, and return float32. They are not
    clipped, since clipping would be another distortion."""
    return np.asarray(samples / max(1.0, float(np.abs(samples).max(initial=0))), np.float32)


def mix(
    speech: np.ndarray,
    noise: np.ndarray,
    snr_db: float,
    over: str = ACTIVE,
) -> np.ndarray:
    """Add noise to speech at an SNR in dB: speech level over RMS level of the noise that is added.

    speech: (N,); noise: (M,), cropped or repeated by `fit_at`; over: as in `measure_level`.
    Returns float32 (N,), scaled down as a whole if it would go beyond full scale. Raises ValueError
    where the speech or the noise is silent.
    """
    noise = fit_at(noise, len(speech), 0)
    level = measure_level(speech, over)
    noise_level = measure_rms_level(noise)
    if not (np.isfinite(level) and np.isfinite(noise_level)):
        raise ValueError(
            f"no SNR between speech at {level} dB and noise at {noise_level} dB: one is silent"
        )
    gain = 10 ** ((level - noise_level - snr_db) / 20)
    return limit_peak(np.asarray(speech, np.float64) + gain * noise)


def fit_length(noise: np.ndarray, n: int, rng: Generator) -> np.ndarray:
    """Fit noise (M,) to (n,) samples from a random offset."""
    return fit_at(noise, n, draw_offset(len(noise), n, rng))


def draw_offset(m: int, n: int, rng: Generator) -> int:
    """Sample the offset for `fit_at` in noise of m samples; all offsets are equally likely."""
    return int(rng.integers(m - n + 1 if m >= n else m - _choose_fade(m)))


def fit_at(noise: np.ndarray, n: int, offset: int) -> np.ndarray:
    """Fit noise (M,) to (n,) samples: crop it at the offset if it is longer; if it is shorter, make
    a loop of it with a cross-fade, and begin at the offset in the loop. The fades are of equal
    power, so that the level does not dip at a join."""
    if len(noise) >= n:
        return noise[offset : offset + n]
    fade = _choose_fade(len(noise))
    angle = (np.arange(fade) + 0.5) / max(fade, 1) * np.pi / 2
    # the end of the noise fades into its beginning, and the loop goes on behind that beginning
    join = noise[len(noise) - fade :] * np.cos(angle) + noise[:fade] * np.sin(angle)
    loop = np.concatenate([noise[fade : len(noise) - fade], join])
    return np.resize(np.roll(loop, -offset), n)


def _choose_fade(m: int) -> int:
    """Return the samples of a cross-fade in noise of m samples."""
    return min(round(FADE * SAMPLE_RATE), m // 2)


# ---- rooms

SPEED_OF_SOUND = 343.0  # metres a second
EARLY = 0.08  # seconds of separate reflections; later ones are too dense to be separate
# Hz of a high-pass, as in Allen & Berkley 1979: the images, which are all positive, add up to an
# offset that no room has.
LOW_CUT = 100.0
RT60_RANGE = (0.05, 5.0)  # seconds that `draw_impulse` takes
RT60S = (0.2, 1.0)  # seconds, the range of reverberation times in `draw_room`
DISTANCES = (0.3, 1.7)  # metres from the talker to the microphone, the range in `draw_room`


def draw_impulse(rng: Generator, rt60: float, distance: float = 1.5) -> np.ndarray:
    """Sample the impulse response (M,) of a room of 60 to 170 cubic metres. Sample 0 is the direct
    path, with a height of about 1.

    rt60: seconds in which sound falls by 60 dB, in [0.05, 5]. distance: metres from the talker to
    the microphone, at most 1.7.
    Reflections of the first 80 ms are computed by the image method for a shoebox (Allen & Berkley,
    JASA 65(4), 1979), whose walls absorb by Eyring's formula; noise that decays at the same rate
    follows (Lehmann & Johansson, IEEE TASLP 18(6), 2010).
    """
    from scipy import signal  # slow to import

    room = rng.uniform([5.0, 4.5, 2.7], [8.0, 6.0, 3.5])  # length, width and height in metres
    microphone = room * [*rng.uniform(0.4, 0.6, 2), rng.uniform(0.35, 0.65)]
    angle = rng.uniform(0, 2 * np.pi)
    talker = microphone + distance * np.array([np.cos(angle), np.sin(angle), 0.0])
    # Amplitude that a wall reflects, by Eyring's formula: rt60 = 0.161 V / (-S ln(1 - absorption))
    # and reflection² = 1 - absorption.
    surface = 2 * float(room[0] * room[1] + room[1] * room[2] + room[0] * room[2])
    reflection = float(np.exp(-0.161 * room.prod() / (2 * surface * rt60)))
    early = _sum_images(room, talker, microphone, reflection, round(EARLY * SAMPLE_RATE))
    # The tail: decaying noise, at the power that the second half of the early reflections has.
    seconds = np.arange(max(round(rt60 * SAMPLE_RATE), len(early))) / SAMPLE_RATE
    impulse = rng.standard_normal(len(seconds)) * 10 ** (-3 * seconds / rt60)
    half = len(early) // 2
    impulse *= np.sqrt(np.sum(early[half:] ** 2) / np.sum(impulse[half : len(early)] ** 2))
    impulse[: len(early)] = early
    highpass = signal.butter(2, LOW_CUT, "highpass", fs=SAMPLE_RATE, output="sos")
    return np.asarray(signal.sosfilt(highpass, impulse))


def draw_room(rng: Generator) -> np.ndarray:
    """Sample the impulse response (M,) of a room with a random reverberation time and distance."""
    return draw_impulse(rng, rng.uniform(*RT60S), rng.uniform(*DISTANCES))


def _sum_images(
    room: np.ndarray, talker: np.ndarray, microphone: np.ndarray, reflection: float, size: int
) -> np.ndarray:
    """Return the first `size` samples of the response: at each the sum of the images of the talker
    that arrive then. Times and amplitudes are relative to the direct path.

    room: its length, width and height; talker, microphone: their places, in metres. reflection:
    amplitude that a wall reflects.
    """
    direct = np.linalg.norm(talker - microphone)
    farthest = size / SAMPLE_RATE * SPEED_OF_SOUND + direct
    orders = np.ceil(farthest / (2 * room)).astype(int)
    squares = []
    walls = []
    for axis in range(3):  # images at 2rL ± x, after |r - q| + |r| walls; q = 1 mirrors the talker
        r, q = np.meshgrid(np.arange(-orders[axis], orders[axis] + 1), [0, 1], indexing="ij")
        image = 2 * r * room[axis] + (1 - 2 * q) * talker[axis]
        squares.append((image - microphone[axis]).ravel() ** 2)
        walls.append((np.abs(r - q) + np.abs(r)).ravel())
    distances = np.sqrt(np.add.outer(np.add.outer(*squares[:2]), squares[2])).ravel()
    bounces = np.add.outer(np.add.outer(*walls[:2]), walls[2]).ravel()
    arrivals = np.rint((distances - direct) / SPEED_OF_SOUND * SAMPLE_RATE).astype(int)
    heights = reflection**bounces * direct / distances
    near = arrivals < size
    return np.bincount(arrivals[near], heights[near], minlength=size)


# ---- a room, another pitch or voice, a missing band, a codec


class Codec(NamedTuple):
    """A codec of libsndfile has a format and a range of bit rates in kbit/s."""

    container: str
    subtype: str
    lowest: float  # at libsndfile's compression 1
    highest: float  # at its compression 0
    lowest_allowed: float  # libsndfile does not write MP3 at `lowest`


CODECS = {
    "mp3": Codec("MP3", "MPEG_LAYER_III", 8.0, 160.0, 16.0),
    "opus": Codec("OGG", "OPUS", 6.0, 256.0, 6.0),
}
# Samples by which LAME and a decoder delay sound, 576 and 529. A tag in the file states them, but
# at low bit rates a frame is too small for the tag.
LAME_DELAY = 1105


def get_bit_rates(codec: str) -> tuple[float, float]:
    """Return the lowest and the highest bit rate of a codec in kbit/s. Raises KeyError for a codec
    that is not in CODECS."""
    return CODECS[codec].lowest_allowed, CODECS[codec].highest


def apply_codec(samples: np.ndarray, codec: str, kbps: float) -> np.ndarray:
    """Send samples (N,) at 16 kHz through "mp3" or "opus" at a nominal bit rate in kbit/s. Returns
    float32 (N,), not delayed."""
    settings = CODECS[codec]
    compression = (settings.highest - kbps) / (settings.highest - settings.lowest)
    decoded = recode(limit_peak(samples), settings.container, settings.subtype, compression)
    extra = len(decoded) - len(samples)
    if extra > 0:  # an MP3 without the tag, which still has the delay and padding
        decoded = decoded[min(LAME_DELAY, extra) :]
    return limit_peak(np.pad(decoded, (0, max(len(samples) - len(decoded), 0)))[: len(samples)])


def reverberate(speech: np.ndarray, impulse: np.ndarray) -> np.ndarray:
    """Put speech in a room. speech: (N,); impulse: (M,), whose largest sample is the direct path.
    Returns float32 (N,).

    The direct path stays where the speech was (no delay), the tail after N is dropped, and the
    active level is kept.
    """
    from scipy import signal  # slow to import

    direct = int(np.argmax(np.abs(impulse)))
    wet = signal.fftconvolve(speech, impulse)[direct : direct + len(speech)]
    return _match_level(speech, wet)


def _match_level(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Scale the samples `after` to the active level of `before`; silence stays as it is."""
    change = measure_active_level(before) - measure_active_level(after)
    return limit_peak(after * 10 ** (change / 20) if np.isfinite(change) else after)


def shift_pitch(samples: np.ndarray, semitones: float) -> np.ndarray:
    """Raise the pitch by semitones without a change of tempo (phase vocoder of librosa). samples:
    (N,). Returns float32 (N,)."""
    from librosa import effects  # type: ignore[attr-defined]  # slow to import

    shifted = effects.pitch_shift(
        np.asarray(samples, np.float32), sr=SAMPLE_RATE, n_steps=semitones, n_fft=512
    )
    return limit_peak(shifted)


def reject_band(samples: np.ndarray, low: float, high: float) -> np.ndarray:
    """Remove the band from low to high Hz, by a fourth-order Butterworth filter that runs both ways
    and so has no delay. samples: (N,). Returns float32 (N,)."""
    from scipy import signal  # slow to import

    filters = signal.butter(4, [low, high], "bandstop", fs=SAMPLE_RATE, output="sos")
    padding = min(3 * (2 * len(filters) + 1), len(samples) - 1)
    return limit_peak(signal.sosfiltfilt(filters, samples, padlen=padding))


PITCH_FLOOR, PITCH_CEILING = 75.0, 500.0  # Hz, the range in which Praat looks for a pitch
LOWEST_PITCH = 40.0  # Hz, of a changed voice
_PRAAT = threading.Lock()
# Hz, centres of the bands of ContentVec's code (arXiv 2204.09224), which Spin and R-Spin use too
EQUALISER = np.geomspace(60, 7600, 10)


def change_voice(
    samples: np.ndarray, formants: float, pitch: float, pitch_range: float
) -> np.ndarray:
    """Change the voice to that of a speaker with another vocal tract, by Praat's "Change gender"
    (parselmouth). It runs at about 100 times real time.

    samples: (N,). formants, pitch (its median) and pitch_range are factors. Returns float32 (N,);
    samples without a pitch stay as they are. Raises MissingExtra without speechssl[voices].
    """
    try:
        import parselmouth
    except ImportError as error:
        raise MissingExtra("perturbation of voices", "voices") from error
    sound = parselmouth.Sound(np.asarray(samples, np.float64), SAMPLE_RATE)
    # Praat draws random numbers where there is no pitch; a sound must always give the same result
    seeding = f"random_initializeWithSeedUnsafelyButPredictably ({zlib.crc32(sound.values)})"
    with _PRAAT:  # outside of `try`: a Praat without this command must be an error
        parselmouth.praat.run(seeding)
    try:
        contour = sound.to_pitch_ac(
            pitch_floor=PITCH_FLOOR, pitch_ceiling=PITCH_CEILING, time_step=0.8 / PITCH_FLOOR
        )
        frequencies = contour.selected_array["frequency"]
        if not frequencies.any():
            return limit_peak(samples)
        voiced = frequencies[frequencies > 0]
        median = float(np.median(voiced)) * pitch
        # pitch_range multiplies distances from the median; Praat would never end if a pitch became
        # 0 or less
        below = median - pitch * float(voiced.min())
        if median <= LOWEST_PITCH:  # no range keeps the pitch above it
            pitch_range = 1.0
        elif median - below * pitch_range < LOWEST_PITCH:
            pitch_range = (median - LOWEST_PITCH) / below
        with _PRAAT:
            parselmouth.praat.run(seeding)
            changed = parselmouth.praat.call(
                [sound, contour], "Change gender", formants, median, pitch_range, 1.0
            ).values[0]
    except parselmouth.PraatError:  # too short for a period of the lowest pitch
        return limit_peak(samples)
    return limit_peak(np.pad(changed, (0, max(len(samples) - len(changed), 0)))[: len(samples)])


def equalise(samples: np.ndarray, decibels: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """Apply a parametric equaliser: low shelf, eight peaks, high shelf (R. Bristow-Johnson's audio
    EQ cookbook) at EQUALISER.

    samples: (N,); decibels, quality: (10,). Returns float32 (N,) of the same active level.
    """
    from scipy import signal  # slow to import

    a = 10 ** (np.asarray(decibels) / 40)  # named as in the cookbook: A, omega, alpha
    omega = 2 * np.pi * EQUALISER / SAMPLE_RATE
    cos = np.cos(omega)
    alpha = np.sin(omega) / (2 * np.asarray(quality))
    # (10, 6): the coefficients b0, b1, b2 and a0, a1, a2 of each filter, all peaks at first
    filters = np.stack(
        [1 + alpha * a, -2 * cos, 1 - alpha * a, 1 + alpha / a, -2 * cos, 1 - alpha / a], axis=1
    )
    root = 2 * np.sqrt(a) * alpha
    for n, sign in ((0, 1), (-1, -1)):  # the low and the high shelf
        plus, minus, c = a[n] + 1, a[n] - 1, sign * cos[n]
        numerator = [
            a[n] * (plus - minus * c + root[n]),
            2 * sign * a[n] * (minus - plus * c),
            a[n] * (plus - minus * c - root[n]),
        ]
        denominator = [
            plus + minus * c + root[n],
            -2 * sign * (minus + plus * c),
            plus + minus * c - root[n],
        ]
        filters[n] = [*numerator, *denominator]
    out = signal.sosfilt(filters / filters[:, 3:4], samples)
    return _match_level(samples, out)
