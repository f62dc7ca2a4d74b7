"""Recordings are distorted for training and evaluation: noise at an SNR, reverberation, pitch, a
missing band, codecs.

Each distortion is a function of arrays. Letters: N samples of speech, float32 mono, full scale 1.
Nothing here moves or stretches time, so the answer times of a distorted recording stay valid. All
that is random is drawn from a generator seeded by (seed, kind of noise, utterance id) alone: the
same on any number of workers in any order, and the same noise at every SNR, so that a curve over
SNRs compares like with like.
"""

from speechssl.augment.conditions import (
    Condition,
    Distorter,
    FrozenDistorter,
    freeze,
    parse_condition,
)
from speechssl.augment.noise import NoiseBank
from speechssl.augment.training import TrainingDistortions, parse_distortions

__all__ = [
    "Condition",
    "Distorter",
    "FrozenDistorter",
    "NoiseBank",
    "TrainingDistortions",
    "freeze",
    "parse_condition",
    "parse_distortions",
]
