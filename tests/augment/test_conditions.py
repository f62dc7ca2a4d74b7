"""Conditions are read, named and refused."""

from __future__ import annotations

import numpy as np
import pytest

from speechssl.augment import Condition, distort, parse_condition
from speechssl.augment.conditions import is_drawn
from speechssl.errors import InputError


@pytest.mark.parametrize(
    ("text", "condition", "label"),
    [
        ("clean", Condition("clean"), "clean"),
        ("pink@10", Condition("noise", "pink", snr_db=10), "pink 10 dB"),
        ("babble@-2.5", Condition("noise", "babble", snr_db=-2.5), "babble -2.5 dB"),
        ("noises/kitchen.wav@5", Condition("noise", "noises/kitchen.wav", snr_db=5), "kitchen 5 dB"),
        ("a@b/x.wav@0", Condition("noise", "a@b/x.wav", snr_db=0), "x 0 dB"),
        ("coloured:-6@5", Condition("noise", "coloured:-6", snr_db=5), "coloured:-6 5 dB"),
        ("coloured:-4.5@5", Condition("noise", "coloured:-4.5", snr_db=5), "coloured:-4.5 5 dB"),
        ("m+g+r@5", Condition("noise", "m+g+r", snr_db=5), "m+g+r 5 dB"),
        ("held-out@0", Condition("noise", "held-out", snr_db=0), "held-out 0 dB"),
        ("fsd50k=/data/FSD@5", Condition("noise", "fsd50k=/data/FSD", snr_db=5), "fsd50k 5 dB"),
        ("c++/x.wav@5", Condition("noise", "c++/x.wav", snr_db=5), "x 5 dB"),
        ("codec@mp3:16", Condition("codec", "mp3", kbps=16), "mp3 16 kbps"),
        ("codec@opus:6.5", Condition("codec", "opus", kbps=6.5), "opus 6.5 kbps"),
        ("rir=halls/a", Condition("rir", "halls/a"), "rir a"),
        ("r", Condition("rooms"), "r"),
        ("reverb", Condition("reverb", rt60=0.5), "reverb 0.5 s"),
        ("reverb@0.6", Condition("reverb", rt60=0.6), "reverb 0.6 s"),
        ("pitch@-2", Condition("pitch", semitones=-2), "pitch -2"),
        ("band@1000-2000", Condition("band", band=(1000, 2000)), "no 1000-2000 Hz"),
    ],
)
def test_conditions_are_read_and_named(text: str, condition: Condition, label: str) -> None:
    assert parse_condition(text) == condition
    assert condition.label == label
    assert parse_condition(condition.text) == condition


@pytest.mark.parametrize(
    ("text", "steps", "snr", "short"),
    [
        ("reverb@0.5+kitchen.wav@5", ["reverb@0.5", "kitchen.wav@5"], 5, "reverb + kitchen"),
        (" r + pink@3 ", ["r", "pink@3"], 3, "r + pink"),
        ("reverb+m+g+r@5", ["reverb@0.5", "m+g+r@5"], 5, "reverb + m+g+r"),
        ("rir=halls+a+b.wav@1+codec@mp3:16", ["rir=halls", "a+b.wav@1", "codec@mp3:16"], 1, "rir halls + a+b + mp3 16 kbps"),
        ("pink@3+babble@1", ["pink@3", "babble@1"], None, "pink + babble"),
    ],
)
def test_chains(text: str, steps: list[str], snr: float | None, short: str) -> None:
    chain = parse_condition(text)
    assert [step.text for step in chain.steps] == steps and (chain.snr_db, chain.short) == (snr, short)
    assert parse_condition(chain.text) == chain


@pytest.mark.parametrize("snr", [0.1, 1 / 3, -7.25, 5.0])
def test_the_text_is_exact(snr: float) -> None:
    assert parse_condition(Condition("noise", "pink", snr_db=snr).text).snr_db == snr


@pytest.mark.parametrize(
    "text",
    ["", "pink", "pink@", "@5", "clean@3", "pink@loud", "pink@nan", "pink@inf", "reverb@0", "reverb@99", "reverb@"]
    + [
        "pitch",
        "pitch@99",
        "band",
        "band@1000",
        "band@2000-1000",
        "band@100-9000",
        "kitchen.wav",
        "m+g+r",
        "r@5",
        "rir=",
        "rir",
        "held-out",
        "pink@5+",
        "+pink",
        "pink@5+clean",
    ]
    + ["codec", "codec@mp3", "codec@mp3:8", "codec@aac:64", "coloured:steep@5", "coloured:-60@5"],
)
def test_malformed_conditions(text: str) -> None:
    with pytest.raises(InputError, match="condition") as caught:
        parse_condition(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "drawn"),
    [("clean", False), ("pitch@-2.5", False), ("band@1000-2000", False), ("codec@mp3:16", False), ("pitch@2+band@900-1000", False),
     ("pink@10", True), ("m+g@5", True), ("reverb", True), ("reverb@0.6", True), ("r", True), ("reverb+codec@mp3:16", True),
     ("pink@5+gaussian@5", True)],
)  # fmt: skip
def test_what_a_seed_decides(text: str, drawn: bool) -> None:
    condition, speech = parse_condition(text), np.random.default_rng(0).normal(0, 0.1, 16_000)
    assert is_drawn(condition.short, condition.snr_db) is drawn
    assert np.array_equal(*(distort(speech, condition, "u", seed) for seed in (0, 1))) is not drawn


def test_a_noise_is_drawn_whatever_its_file_is_called() -> None:
    assert is_drawn("clean", 5.0) and is_drawn("rir hall", None) and is_drawn("kitchen", 0.0)
