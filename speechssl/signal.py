"""Arithmetic of sounds: levels, noise under speech at an SNR, simulated rooms, and other
distortions. None moves or stretches time.

Letters: N samples of speech, M of noise or of an impulse response, mono, full scale 1.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib

import numpy as np

from speechssl.audio import SAMPLE_RATE, recode
from speechssl.errors import MissingExtra

LEVEL_FRAME = 0.02  # seconds over which power is measured
ACTIVE = "active"
# what of the speech an SNR is measured over: the active parts, or all of it
SNR_OVER = (ACTIVE, "signal")
FADE = 0.05  # seconds of cross-fade where a short noise is joined to itself
# ITU-T P.56 (12/2011), method B: active speech is what lies less than this below the active level
MARGIN_DB = 15.9


def generator(seed: int, *keys: str) -> np.random.Generator:
    """Make a random generator that depends on these values only, not on the process or on what was
    drawn before."""
    digest = hashlib.sha256(json.dumps([seed, *keys]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def active_level(samples: np.ndarray) -> float:
    """Return the level of speech without its pauses, in dB below full scale (RMS 1); -inf for
    silence. samples: (N,).

    A simple form of ITU-T P.56 method B: the mean power A of the 20 ms frames whose power is above
    A - 15.9 dB. It has no hangover, so pauses of any length count for nothing. Without pauses it is
    the RMS level.
    """
    starts = np.arange(0, len(samples), round(LEVEL_FRAME * SAMPLE_RATE))
    energies = np.add.reduceat(np.square(samples, dtype=np.float64), starts)
    counts = np.diff(np.r_[starts, len(samples)])
    active = np.ones(len(starts), bool)
    before = None
    # each round only drops frames below the mean, so this ends
    while before != active.sum():
        before = active.sum()
        power = energies[active].sum() / counts[active].sum()
        active &= energies >= counts * power * 10 ** (-MARGIN_DB / 10)
    return decibels(float(energies[active].sum() / counts[active].sum()))


def decibels(power: float) -> float:
    """Return a power in dB; -inf for none."""
    return 10 * float(np.log10(power)) if power > 0 else -np.inf


def rms_level(samples: np.ndarray) -> float:
    """Return the RMS level in dB below full scale (RMS 1), pauses and all; -inf for silence.
    samples: (N,)."""
    return decibels(float(np.mean(np.square(samples, dtype=np.float64))))


def speech_level(samples: np.ndarray, over: str = ACTIVE) -> float:
    """Return the level of speech that an SNR is counted from, in dB; -inf for silence. samples:
    (N,); over: one of SNR_OVER.

    "active", the default here: `active_level`, so that pauses do not make the noise quieter.
    "signal": `rms_level` of the whole signal, as in arXiv 2210.07978.
    """
    return active_level(samples) if over == ACTIVE else rms_level(samples)


def guard(samples: np.ndarray) -> np.ndarray:
    """Scale samples (N,) down to full scale where they are beyond, as float32: quieter is harmless,
    clipped is another distortion."""
    return np.asarray(samples / max(1.0, float(np.abs(samples).max(initial=0))), np.float32)


def mix(
    speech: np.ndarray,
    noise: np.ndarray,
    snr_db: float,
    rng: np.random.Generator | None = None,
    over: str = ACTIVE,
) -> np.ndarray:
    """Add noise to speech at an SNR in dB: speech level over RMS level of the noise that is added.

    speech: (N,); noise: (M,), cropped or repeated by `fit_length`; over: "active" speech or the
    whole "signal", see `speech_level`. Returns float32 (N,), scaled down as a whole where it would
    go beyond full scale. Raises ValueError where the speech or the noise is silent.
    """
    noise = fit_length(noise, len(speech), rng)
    level = speech_level(speech, over)
    noise_level = rms_level(noise)
    if not (np.isfinite(level) and np.isfinite(noise_level)):
        raise ValueError(
            f"no SNR between speech at {level} dB and noise at {noise_level} dB: one is silent"
        )
    gain = 10 ** ((level - noise_level - snr_db) / 20)
    return guard(np.asarray(speech, np.float64) + gain * noise)


def fit_length(noise: np.ndarray, n: int, rng: np.random.Generator | None = None) -> np.ndarray:
    """Fit noise (M,) to (n,): crop it at a random offset where longer, repeat it with cross-fades
    where shorter.

    rng None: from the beginning. The fades are of equal power, so that the level does not dip at a
    join.
    """
    return fit_at(noise, n, 0 if rng is None else random_offset(len(noise), n, rng))


def random_offset(m: int, n: int, rng: np.random.Generator) -> int:
    """Draw where `fit_at` is to begin in noise of m samples; any n of them are as likely."""
    return int(rng.integers(m - n + 1 if m >= n else m - _fade(m)))


def fit_at(noise: np.ndarray, n: int, offset: int) -> np.ndarray:
    """Fit noise as `fit_length` does, from an offset in samples: of the noise where it is long
    enough, else of the loop that it is made into."""
    if len(noise) >= n:
        return noise[offset : offset + n]
    fade = _fade(len(noise))
    angle = (np.arange(fade) + 0.5) / max(fade, 1) * np.pi / 2
    join = noise[len(noise) - fade :] * np.cos(angle) + noise[:fade] * np.sin(angle)
    # the join ends where the loop begins
    loop = np.concatenate([noise[fade : len(noise) - fade], join])
    return np.resize(np.roll(loop, -offset), n)


def _fade(m: int) -> int:
    return min(round(FADE * SAMPLE_RATE), m // 2)


# ---- rooms

SOUND = 343.0  # metres a second
EARLY = 0.08  # seconds of separate reflections; later ones are too dense to tell apart
# Hz; after Allen & Berkley 1979: images of one sign build up an offset that no room has
LOW_CUT = 100.0
RT60_RANGE = (0.05, 5.0)  # seconds
RT60S, DISTANCES = (0.2, 1.0), (0.3, 1.7)  # seconds and metres of `draw_room`


def room_impulse(rng: np.random.Generator, rt60: float, distance: float = 1.5) -> np.ndarray:
    """Draw the impulse response (M,) of a room of 60 to 170 cubic metres; sample 0 is the direct
    path, of height about 1.

    rt60: seconds in which sound falls by 60 dB, in [0.05, 5]; distance of talker and microphone:
    metres, at most 1.7.
    Reflections of the first 80 ms come by the image method for a shoebox (Allen & Berkley, JASA
    65(4), 1979), whose walls absorb by Eyring's formula; then noise decays at the same rate
    (Lehmann & Johansson, IEEE TASLP 18(6), 2010).
    """
    from scipy import signal  # slow to import

    room = rng.uniform([5.0, 4.5, 2.7], [8.0, 6.0, 3.5])
    microphone = room * [*rng.uniform(0.4, 0.6, 2), rng.uniform(0.35, 0.65)]
    angle = rng.uniform(0, 2 * np.pi)
    talker = microphone + distance * np.array([np.cos(angle), np.sin(angle), 0.0])
    # Amplitude kept at each wall: Eyring's rt60 = 0.161 V / (-S ln(1 - absorption)), reflection² =
    # 1 - absorption.
    surface = 2 * float(room[0] * room[1] + room[1] * room[2] + room[0] * room[2])
    reflection = float(np.exp(-0.161 * room.prod() / (2 * surface * rt60)))
    early = _images(room, talker, microphone, reflection, round(EARLY * SAMPLE_RATE))
    # The tail: decaying noise, at the power that the second half of the early reflections has.
    seconds = np.arange(max(round(rt60 * SAMPLE_RATE), len(early))) / SAMPLE_RATE
    impulse = rng.standard_normal(len(seconds)) * 10 ** (-3 * seconds / rt60)
    half = len(early) // 2
    impulse *= np.sqrt(np.sum(early[half:] ** 2) / np.sum(impulse[half : len(early)] ** 2))
    impulse[: len(early)] = early
    highpass = signal.butter(2, LOW_CUT, "highpass", fs=SAMPLE_RATE, output="sos")
    return np.asarray(signal.sosfilt(highpass, impulse))


def draw_room(rng: np.random.Generator) -> np.ndarray:
    """Draw the impulse response (M,) of a room, and its reverberation time and distance too."""
    return room_impulse(rng, rng.uniform(*RT60S), rng.uniform(*DISTANCES))


def _images(
    room: np.ndarray, talker: np.ndarray, microphone: np.ndarray, reflection: float, size: int
) -> np.ndarray:
    """Return (size,) arrivals of all images of the talker, relative to the direct path in time and
    height."""
    reach = size / SAMPLE_RATE * SOUND + np.linalg.norm(talker - microphone)
    orders = np.ceil(reach / (2 * room)).astype(int)
    squares = []
    walls = []
    for axis in range(3):  # images at 2rL ± x, after |r - q| + |r| walls; q = 1 mirrors the talker
        r, q = np.meshgrid(np.arange(-orders[axis], orders[axis] + 1), [0, 1], indexing="ij")
        image = 2 * r * room[axis] + (1 - 2 * q) * talker[axis]
        squares.append((image - microphone[axis]).ravel() ** 2)
        walls.append((np.abs(r - q) + np.abs(r)).ravel())
    distances = np.sqrt(np.add.outer(np.add.outer(*squares[:2]), squares[2])).ravel()
    bounces = np.add.outer(np.add.outer(*walls[:2]), walls[2]).ravel()
    direct = np.linalg.norm(talker - microphone)
    at = np.rint((distances - direct) / SOUND * SAMPLE_RATE).astype(int)
    near = at < size
    return np.bincount(at[near], (reflection**bounces * direct / distances)[near], minlength=size)


# ---- a room, another pitch or voice, a missing band, a codec

# container, subtype, and kbit/s of libsndfile's compression 1 and 0
CODECS = {
    "mp3": ("MP3", "MPEG_LAYER_III", 8.0, 160.0),
    "opus": ("OGG", "OPUS", 6.0, 256.0),
}
LOWEST = {"mp3": 16.0, "opus": 6.0}  # kbit/s; libsndfile writes no MP3 at its own lowest
# samples: 576 of the encoder and 529 of any decoder; where a frame is too small for the tag that
# tells them
LAME_DELAY = 1105


def bit_rates(codec: str) -> tuple[float, float]:
    """Return the bit rates of a codec in kbit/s, from and to. KeyError for one that is not in
    CODECS."""
    return LOWEST[codec], CODECS[codec][3]


def apply_codec(samples: np.ndarray, codec: str, kbps: float) -> np.ndarray:
    """Send samples (N,) at 16 kHz through "mp3" or "opus" at a nominal bit rate in kbit/s. Returns
    float32 (N,), not delayed."""
    container, subtype, low, high = CODECS[codec]
    decoded = recode(guard(samples), container, subtype, (high - kbps) / (high - low))
    extra = len(decoded) - len(samples)
    if extra > 0:  # an MP3 without the tag: neither the delay nor the padding was taken off
        decoded = decoded[min(LAME_DELAY, extra) :]
    return guard(np.pad(decoded, (0, max(len(samples) - len(decoded), 0)))[: len(samples)])


def reverberate(speech: np.ndarray, impulse: np.ndarray) -> np.ndarray:
    """Put speech in a room. speech: (N,); impulse: (M,), whose largest sample is the direct path.
    Returns float32 (N,).

    The direct path stays where the speech was (no delay), the tail after N is dropped, and the
    active level is kept.
    """
    from scipy import signal  # slow to import

    direct = int(np.argmax(np.abs(impulse)))
    wet = signal.fftconvolve(speech, impulse)[direct : direct + len(speech)]
    return _at_level_of(speech, wet)


def _at_level_of(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Scale samples to the active level that they had before; silence has none."""
    change = active_level(before) - active_level(after)
    return guard(after * 10 ** (change / 20) if np.isfinite(change) else after)


def pitch_shift(samples: np.ndarray, semitones: float) -> np.ndarray:
    """Raise the pitch by semitones, timing kept (phase vocoder of librosa). samples: (N,). Returns
    float32 (N,)."""
    from librosa import effects  # type: ignore[attr-defined]  # slow to import

    shifted = effects.pitch_shift(
        np.asarray(samples, np.float32), sr=SAMPLE_RATE, n_steps=semitones, n_fft=512
    )
    return guard(shifted)


def band_reject(samples: np.ndarray, low: float, high: float) -> np.ndarray:
    """Remove low to high Hz (fourth-order Butterworth run both ways: no delay). samples: (N,).
    Returns float32 (N,)."""
    from scipy import signal  # slow to import

    filters = signal.butter(4, [low, high], "bandstop", fs=SAMPLE_RATE, output="sos")
    padding = min(3 * (2 * len(filters) + 1), len(samples) - 1)
    return guard(signal.sosfiltfilt(filters, samples, padlen=padding))


FLOOR, CEILING = 75.0, 500.0  # Hz, of the voices whose pitch is found
LOWEST_PITCH = 40.0  # Hz, of a changed voice
_PRAAT = threading.Lock()
# Hz, the bands of ContentVec's code (arXiv 2204.09224), used by Spin and R-Spin too
EQUALISER = np.geomspace(60, 7600, 10)


def change_voice(
    samples: np.ndarray, formants: float, pitch: float, pitch_range: float
) -> np.ndarray:
    """Change speech to what a speaker with another vocal tract would say: Praat's "Change gender",
    by parselmouth. About 100 x real time.

    samples: (N,). formants, pitch (its median) and pitch_range are factors. Returns float32 (N,);
    what has no pitch stays as it is. Raises MissingExtra without speechssl[voices].
    """
    try:
        import parselmouth
    except ImportError as error:
        raise MissingExtra("perturbation of voices", "voices") from error
    sound = parselmouth.Sound(np.asarray(samples, np.float64), SAMPLE_RATE)
    seeding = f"random_initializeWithSeedUnsafelyButPredictably ({zlib.crc32(sound.values)})"
    with _PRAAT:  # a Praat without it is an error, and not a voice that stays as it is
        parselmouth.praat.run(seeding)
    try:
        contour = sound.to_pitch_ac(pitch_floor=FLOOR, pitch_ceiling=CEILING, time_step=0.8 / FLOOR)
        frequencies = contour.selected_array["frequency"]
        if not frequencies.any():
            return guard(samples)
        voiced = frequencies[frequencies > 0]
        median = float(np.median(voiced)) * pitch
        # a pitch moves away from the median by pitch_range; where one would fall to nothing or
        # below, Praat never ends
        below = median - pitch * float(voiced.min())
        if median - below * pitch_range < LOWEST_PITCH:
            pitch_range = min(pitch_range, (median - LOWEST_PITCH) / below)
        if pitch_range <= 0:  # the median itself is as low
            pitch_range = 1.0
        # it draws numbers where there is no pitch, and one sound is to give one result
        with _PRAAT:
            parselmouth.praat.run(seeding)
            changed = parselmouth.praat.call(
                [sound, contour], "Change gender", formants, median, pitch_range, 1.0
            ).values[0]
    except parselmouth.PraatError:  # too short for a period of the lowest pitch
        return guard(samples)
    return guard(np.pad(changed, (0, max(len(samples) - len(changed), 0)))[: len(samples)])


def equalise(samples: np.ndarray, decibels: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """Apply a parametric equaliser: low shelf, eight peaks, high shelf (R. Bristow-Johnson's audio
    EQ cookbook) at EQUALISER.

    samples: (N,); decibels, quality: (10,). Returns float32 (N,) of the same active level.
    """
    from scipy import signal  # slow to import

    a = 10 ** (np.asarray(decibels) / 40)
    omega = 2 * np.pi * EQUALISER / SAMPLE_RATE
    cos = np.cos(omega)
    alpha = np.sin(omega) / (2 * np.asarray(quality))
    peaks = np.stack(
        [1 + alpha * a, -2 * cos, 1 - alpha * a, 1 + alpha / a, -2 * cos, 1 - alpha / a], axis=1
    )
    root = 2 * np.sqrt(a) * alpha
    for n, sign in ((0, 1), (-1, -1)):  # the shelves
        low, high, c = a[n] + 1, a[n] - 1, sign * cos[n]
        upper = [
            a[n] * (low - high * c + root[n]),
            2 * sign * a[n] * (high - low * c),
            a[n] * (low - high * c - root[n]),
        ]
        lower = [low + high * c + root[n], -2 * sign * (high + low * c), low + high * c - root[n]]
        peaks[n] = [*upper, *lower]
    out = signal.sosfilt(peaks / peaks[:, 3:4], samples)
    return _at_level_of(samples, out)
