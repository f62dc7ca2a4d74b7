"""Distortions for training and evaluation: noise at an SNR, reverberation, pitch, a missing band, codecs.

Each is a function of arrays. Letters: N samples of speech, float32 mono, full scale 1. Nothing here moves or stretches
time, so the answer times of a distorted recording stay valid. What is random is drawn from a generator seeded by
(seed, kind of noise, utterance id) alone: the same on any number of workers in any order, and the same noise at every
SNR, so that a curve over SNRs compares like with like.
"""

from speechssl.noise.bank import NoiseBank, recording
from speechssl.noise.codecs import through_codec
from speechssl.noise.conditions import RT60, Condition, parse_condition
from speechssl.noise.distorter import Distorter, distort
from speechssl.noise.effects import band_reject, pitch_shift, reverberate
from speechssl.noise.files import AUDIO_SUFFIXES, noise_files
from speechssl.noise.frozen import FrozenDistorter, freeze
from speechssl.noise.level import active_level, generator
from speechssl.noise.mixing import fit_length, mix
from speechssl.noise.room import room_impulse
from speechssl.noise.signals import babble, coloured, gaussian, pink
from speechssl.noise.training import TrainingDistortions, parse_distortions

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
