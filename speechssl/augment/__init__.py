"""Distortions for training and evaluation: noise at an SNR, reverberation, pitch, a missing band, codecs.

Each is a function of arrays. Letters: N samples of speech, float32 mono, full scale 1. Nothing here moves or stretches
time, so the answer times of a distorted recording stay valid. What is random is drawn from a generator seeded by
(seed, kind of noise, utterance id) alone: the same on any number of workers in any order, and the same noise at every
SNR, so that a curve over SNRs compares like with like.
"""

from speechssl.augment.conditions import RT60, Condition, Distorter, distort, parse_condition
from speechssl.augment.effects import band_reject, pitch_shift, reverberate, through_codec
from speechssl.augment.mixtures import FrozenDistorter, freeze
from speechssl.augment.noise import AUDIO_SUFFIXES, NoiseBank, babble, coloured, gaussian, noise_files, pink, recording
from speechssl.augment.training import TrainingDistortions, parse_distortions
from speechssl.signal import active_level, fit_length, generator, mix, room_impulse

__all__ = [
    "AUDIO_SUFFIXES",
    "RT60",
    "Condition",
    "Distorter",
    "FrozenDistorter",
    "NoiseBank",
    "TrainingDistortions",
    "active_level",
    "babble",
    "band_reject",
    "coloured",
    "distort",
    "fit_length",
    "freeze",
    "gaussian",
    "generator",
    "mix",
    "noise_files",
    "parse_condition",
    "parse_distortions",
    "pink",
    "pitch_shift",
    "recording",
    "reverberate",
    "room_impulse",
    "through_codec",
]
