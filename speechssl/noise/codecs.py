"""Speech that has been through a lossy codec: encoded and decoded in memory, its delay taken out again."""

from __future__ import annotations

import numpy as np

from speechssl.audio import recode
from speechssl.noise.level import guard

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
