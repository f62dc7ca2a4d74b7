"""Distort recordings for training and evaluation: noise at an SNR, reverberation, pitch, a missing
band, codecs.

Each distortion is a function of arrays. In shapes, N is the number of samples of speech, float32
mono, full scale 1. Nothing here moves or stretches time, so the answer times of a distorted
recording stay valid. Random choices depend on a seed and a key alone (in an evaluation the kind of
noise and the utterance's id): they are the same on any number of workers in any order. In an
evaluation the noise of an utterance is the same at every SNR, so that points of a curve over SNRs
differ in the SNR alone.
"""

from speechssl.augment.conditions import Condition, Distorter, parse_condition
from speechssl.augment.noise import NoiseBank

__all__ = ["Condition", "Distorter", "NoiseBank", "parse_condition"]
