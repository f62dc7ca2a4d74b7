"""Conditions are read, named and refused."""

from __future__ import annotations

import pytest

from speechssl.errors import InputError
from speechssl.noise import (
    Condition,
    parse_condition,
)


@pytest.mark.parametrize(
    ("text", "condition", "label"),
    [
        ("clean", Condition("clean"), "clean"),
        ("pink@10", Condition("noise", "pink", snr_db=10), "pink 10 dB"),
        ("babble@-2.5", Condition("noise", "babble", snr_db=-2.5), "babble -2.5 dB"),
        ("noises/kitchen.wav@5", Condition("noise", "noises/kitchen.wav", snr_db=5), "kitchen 5 dB"),
        ("a@b/x.wav@0", Condition("noise", "a@b/x.wav", snr_db=0), "x 0 dB"),
        ("reverb", Condition("reverb", rt60=0.5), "reverb 0.5 s"),
        ("reverb@0.6", Condition("reverb", rt60=0.6), "reverb 0.6 s"),
        ("pitch@-2", Condition("pitch", semitones=-2), "pitch -2"),
        ("band@1000-2000", Condition("band", band=(1000, 2000)), "no 1000-2000 Hz"),
    ],
)
def test_conditions_are_read_and_named(text: str, condition: Condition, label: str) -> None:
    assert parse_condition(text) == condition
    assert condition.label == label


@pytest.mark.parametrize(
    "text",
    ["", "pink", "pink@", "@5", "clean@3", "pink@loud", "pink@nan", "pink@inf", "reverb@0", "reverb@99", "reverb@"]
    + ["pitch", "pitch@99", "band", "band@1000", "band@2000-1000", "band@100-9000", "kitchen.wav"],
)
def test_malformed_conditions(text: str) -> None:
    with pytest.raises(InputError, match="condition") as caught:
        parse_condition(text)
    assert repr(text) in str(caught.value)
