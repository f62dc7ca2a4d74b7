"""Conditions: their syntax, their names, and what the distorter applies."""

import numpy as np
import pytest

from speechssl.audio import SAMPLE_RATE, write_flac
from speechssl.augment import Condition, Distorter, FrozenDistorter, freeze, parse_condition
from speechssl.augment.noise import read_cached
from speechssl.errors import InputError

from ..files import refused
from .conftest import steady


@pytest.mark.parametrize(
    ("text", "condition", "label"),
    [
        ("clean", Condition("clean"), "clean"),
        ("pink@10", Condition("noise", "pink", (10,)), "pink 10 dB"),
        ("x/kitchen.wav@5", Condition("noise", "x/kitchen.wav", (5,)), "kitchen 5 dB"),
        ("coloured:-6@5", Condition("noise", "coloured:-6", (5,)), "coloured:-6 5 dB"),
        ("m+g+r@5", Condition("noise", "m+g+r", (5,)), "m+g+r 5 dB"),
        ("fsd50k=/data/FSD@5", Condition("noise", "fsd50k=/data/FSD", (5,)), "fsd50k 5 dB"),
        ("codec@mp3:16", Condition("codec", "mp3", (16,)), "mp3 16 kbps"),
        ("rir=halls/a", Condition("rir", "halls/a"), "rir a"),
        ("r", Condition("rooms"), "r"),
        ("pitch@-2", Condition("pitch", values=(-2,)), "pitch -2"),
        ("band@1000-2000", Condition("band", values=(1000, 2000)), "no 1000-2000 Hz"),
    ],
)
def test_conditions_are_read_and_named(text, condition, label):
    assert parse_condition(text) == parse_condition(condition.text) == condition
    assert condition.label == label
    third = Condition("noise", "pink", (1 / 3,))  # a text is exact
    assert parse_condition(third.text) == third


@pytest.mark.parametrize(
    ("text", "steps", "snr", "short"),
    [
        ("reverb@0.5+kitchen.wav@5", ["reverb@0.5", "kitchen.wav@5"], 5, "reverb + kitchen"),
        ("reverb+m+g+r@5", ["reverb@0.5", "m+g+r@5"], 5, "reverb + m+g+r"),
        (
            "rir=halls+a+b.wav@1+codec@mp3:16",
            ["rir=halls", "a+b.wav@1", "codec@mp3:16"],
            1,
            "rir halls + a+b + mp3 16 kbps",
        ),
        ("pink@3+babble@1", ["pink@3", "babble@1"], None, "pink + babble"),
    ],
)
def test_chains(text, steps, snr, short):
    chain = parse_condition(text)
    assert [step.text for step in chain.steps] == steps
    assert (chain.snr_db, chain.short) == (snr, short)
    assert parse_condition(chain.text) == chain


BAD = (
    "pink pink@loud pink@nan reverb@0 pitch@99 band@2000-1000 m+g+r rir= pink@5+clean codec@aac:64"
)


@pytest.mark.parametrize("text", ["", *BAD.split()])
def test_malformed_conditions(text):
    assert repr(text) in refused("is not a condition", parse_condition, text)


@pytest.mark.parametrize("kind", ["m", "held-out", "coloured:-12", "g", "pink"])
def test_every_noise_has_the_asked_snr_and_is_the_same_at_each(kind):
    samples = steady(16_000, 0, 0.003).astype(np.float64)
    conditions = [parse_condition(f"{kind}@{snr}") for snr in (5, 15)]
    added = [Distorter().apply(samples, condition, "u1") - samples for condition in conditions]
    snr = 10 * np.log10(np.mean(samples**2) / np.mean(added[0] ** 2))
    assert snr == pytest.approx(5, abs=0.1)
    np.testing.assert_allclose(added[0], added[1] * np.sqrt(10), atol=1e-6)


def test_a_set_gives_each_utterance_one_member():
    condition, distorter = parse_condition("m+g+r@5"), Distorter(1)
    members = [distorter.steps(condition, f"u{i}")[0] for i in range(2000)]
    found, shares = [member.text for member in members], {"m@5": 0.3, "g@5": 0.4, "r": 0.3}
    assert {text: found.count(text) / 2000 for text in shares} == pytest.approx(shares, abs=0.04)
    at_zero = [distorter.steps(parse_condition("m+g+r@0"), f"u{i}")[0].kind for i in range(50)]
    assert at_zero == [member.kind for member in members[:50]]  # the same at every SNR


def test_a_chain_is_its_steps_in_order_and_clean_is_the_input():
    samples, distorter = steady(8000), Distorter(2)
    assert distorter.apply(samples, Condition("clean"), "u1") is samples
    chain, room, noise = map(parse_condition, ("reverb@0.5+pink@5", "reverb@0.5", "pink@5"))
    expected = distorter.apply(distorter.apply(samples, room, "u1"), noise, "u1")
    np.testing.assert_array_equal(distorter.apply(samples, chain, "u1"), expected)


@pytest.mark.parametrize(
    "text", ["pink@30", "babble@30", "reverb@0.4", "band@500-1500", "reverb@0.3+pink@30"]
)
def test_nothing_moves_in_time(text, voices):
    samples = np.zeros(16_000, np.float32)
    samples[6000:8000] = steady(2000, 5)
    found = Distorter(0, voices).apply(samples, parse_condition(text), "u3")
    lag = int(np.argmax(np.correlate(found, samples, "full"))) - (len(samples) - 1)
    assert abs(lag) < SAMPLE_RATE // 1000


def test_measured_rooms(tmp_path):
    for name, echo in (("a", 400), ("b", 900)):
        impulse = np.zeros(1600)
        impulse[[50, 50 + echo]] = 0.9, 0.45
        write_flac(tmp_path / f"{name}.flac", impulse)
    samples = np.zeros(4000, np.float32)
    samples[1000] = 0.5
    condition = parse_condition(f"rir={tmp_path}")
    found = [Distorter().apply(samples, condition, f"u{i}") for i in range(12)]
    assert {int(np.argsort(np.abs(h))[-2]) for h in found} == {1400, 1900}
    assert all(np.argmax(np.abs(h)) == 1000 for h in found)
    with pytest.raises(InputError, match="missing"):
        Distorter().check(parse_condition("rir=missing"))


# ---- frozen mixtures are the same for every system, and what has changed since is refused


# an id may hold any line separator but the manifest's own
LENGTHS = {"u1": 12_000, "ü/2": 20_000, "a\u2028b\x85c\x0cd": 800}
GENERATED = (
    "pink@10 pink@0 coloured:-6@5 m+g+r@5 held-out@5 r reverb@0.4 codec@mp3:24 band@500-900 clean"
).split()


def speech(key):
    return (0.05 * np.random.default_rng(len(key)).standard_normal(LENGTHS[key])).astype(np.float32)


@pytest.fixture
def texts(tmp_path):
    """Conditions of all kinds; the recordings lie in the folder of the manifest."""
    street, rir = tmp_path / "street", tmp_path / "rir"
    for i in range(3):
        noise = np.random.default_rng(i).standard_normal(9_000 + 9_000 * i)
        write_flac(street / f"{i}.flac", 0.1 * noise)
    impulse = 0.9 * np.exp(-np.arange(1600) / 200) * np.random.default_rng(5).uniform(-1, 1, 1600)
    write_flac(rir / "hall.flac", impulse)
    return [*GENERATED, f"{street}@5", f"rir={rir}", f"reverb@0.4+{street}@5", "babble@5"]


@pytest.fixture
def distorter(voices):
    return Distorter(4, voices)


@pytest.fixture
def manifest(texts, distorter, tmp_path):
    conditions = list(map(parse_condition, texts))
    return freeze(conditions, LENGTHS, distorter, tmp_path / "frozen.jsonl")


def test_the_same_mixtures_to_the_bit(manifest, texts, distorter):
    frozen = FrozenDistorter(manifest)
    assert frozen.seed == 4
    for condition in map(parse_condition, texts):
        frozen.check(condition)
        for key in LENGTHS:
            one, other = (d.apply(speech(key), condition, key) for d in (frozen, distorter))
            np.testing.assert_array_equal(one, other)


def test_what_was_not_frozen_or_has_changed_is_refused(manifest, texts, tmp_path):
    frozen, pink = FrozenDistorter(manifest), parse_condition("pink@10")
    refused("no mixture of the condition pink@7", frozen.check, parse_condition("pink@7"))
    refused("no mixture of the utterance u3", frozen.apply, speech("u1"), pink, "u3")
    refused("of 11999 samples", frozen.apply, speech("u1")[:-1], pink, "u1")
    for i in range(3):
        changed = 0.1 * np.random.default_rng(i + 9).standard_normal(9_000)
        write_flac(tmp_path / "street" / f"{i}.flac", changed)
    manifest.write_text(manifest.read_text("utf-8").replace('"seed": 4', '"seed": 5'), "utf-8")
    frozen = FrozenDistorter(manifest)
    read_cached.cache_clear()
    for text in (texts[-4], "pink@10", "held-out@5", "r", "reverb@0.4"):
        condition = parse_condition(text)
        message = "frozen with another noise for the utterance u1"
        refused(message, frozen.apply, speech("u1"), condition, "u1")
