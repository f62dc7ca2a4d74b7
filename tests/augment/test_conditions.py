"""Test conditions: their texts, their names, and the distortions that they stand for.

In the texts, m is noise of MUSAN, or generated noise in its place; g is Gaussian noise; r is a random
room; m+g+r gives every utterance one of the three. held-out is generated noise for tests.
"""

import numpy as np
import pytest

from speechssl.audio import SAMPLE_RATE, write_flac
from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.augment.conditions import FrozenDistorter, freeze
from speechssl.augment.noise import read_cached
from speechssl.errors import InputError

from ..files import refused
from ..test_signal import QUIET, steady


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
def test_a_condition_is_parsed_and_has_a_label(text, condition, label):
    assert parse_condition(text) == parse_condition(condition.text) == condition
    assert condition.label == label
    third = Condition("noise", "pink", (1 / 3,))  # its text has all digits
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
def test_a_chain_is_split_into_steps(text, steps, snr, short):
    chain = parse_condition(text)
    assert [step.text for step in chain.steps] == steps
    assert (chain.snr_db, chain.short) == (snr, short)
    assert parse_condition(chain.text) == chain


MALFORMED = "pink pink@loud pink@nan reverb@0 pitch@99 band@2000-1000 m+g+r rir= codec@aac:64"


@pytest.mark.parametrize("text", ["", *MALFORMED.split()])
def test_a_malformed_condition_is_refused(text):
    assert repr(text) in refused("is not a condition", parse_condition, text)


@pytest.mark.parametrize("kind", ["m", "held-out", "coloured:-12", "g", "pink"])
def test_noise_has_the_given_snr_and_is_the_same_at_every_snr(kind):
    samples = steady(level=QUIET).astype(np.float64)
    at_5 = Distorter().apply(samples, parse_condition(f"{kind}@5"), "u1") - samples
    at_15 = Distorter().apply(samples, parse_condition(f"{kind}@15"), "u1") - samples
    snr = 10 * np.log10(np.mean(samples**2) / np.mean(at_5**2))
    assert snr == pytest.approx(5, abs=0.1)
    np.testing.assert_allclose(at_5, at_15 * np.sqrt(10), atol=1e-6)  # 10 dB louder


def test_a_set_gives_each_utterance_one_member():
    condition = parse_condition("m+g+r@5")
    distorter = Distorter(seed=1)
    members = [distorter.draw_steps(condition, f"u{i}")[0] for i in range(2000)]
    texts = [member.text for member in members]
    shares = {"m@5": 0.3, "g@5": 0.4, "r": 0.3}
    assert {text: texts.count(text) / 2000 for text in shares} == pytest.approx(shares, abs=0.04)
    # an utterance gets the same member at every SNR
    at_zero = [distorter.draw_steps(parse_condition("m+g+r@0"), f"u{i}")[0].kind for i in range(50)]
    assert at_zero == [member.kind for member in members[:50]]


def test_a_chain_applies_its_steps_in_order_and_clean_returns_the_input():
    samples = steady(8000)
    distorter = Distorter(seed=2)
    assert distorter.apply(samples, Condition("clean"), "u1") is samples
    chain, room, noise = map(parse_condition, ("reverb@0.5+pink@5", "reverb@0.5", "pink@5"))
    expected = distorter.apply(distorter.apply(samples, room, "u1"), noise, "u1")
    np.testing.assert_array_equal(distorter.apply(samples, chain, "u1"), expected)


@pytest.mark.parametrize(
    "text", ["pink@30", "babble@30", "reverb@0.4", "band@500-1500", "reverb@0.3+pink@30"]
)
def test_distortions_do_not_move_speech_in_time(text, voices):
    samples = np.zeros(16_000, np.float32)
    samples[6000:8000] = steady(n=2000, seed=5)
    distorted = Distorter(0, voices).apply(samples, parse_condition(text), "u3")
    lag = int(np.argmax(np.correlate(distorted, samples, "full"))) - (len(samples) - 1)
    assert abs(lag) < SAMPLE_RATE // 1000  # less than a millisecond


def test_utterances_get_one_of_the_measured_rooms(tmp_path):
    """The impulse responses have their direct sound at sample 50, and one echo 400 or 900 samples
    later. Speech is a click at sample 1000, where its direct sound stays."""
    for name, echo in (("a", 400), ("b", 900)):
        impulse = np.zeros(1600)
        impulse[50] = 0.9
        impulse[50 + echo] = 0.45
        write_flac(tmp_path / f"{name}.flac", impulse)
    samples = np.zeros(4000, np.float32)
    samples[1000] = 0.5
    condition = parse_condition(f"rir={tmp_path}")
    echoes = set()
    for i in range(12):
        distorted = np.abs(Distorter().apply(samples, condition, f"u{i}"))
        second_loudest, loudest = np.argsort(distorted)[-2:]
        assert loudest == 1000
        echoes.add(int(second_loudest))
    assert echoes == {1000 + 400, 1000 + 900}
    with pytest.raises(InputError, match="missing"):
        Distorter().check(parse_condition("rir=missing"))


# ---- frozen mixtures are the same for every system; recordings that have changed are refused

# id of the utterance -> samples; an id may have any line separator but that of the manifest
LENGTHS = {"u1": 12_000, "ü/2": 20_000, "a\u2028b\x85c\x0cd": 800}
GENERATED = (
    "pink@10 pink@0 coloured:-6@5 m+g+r@5 held-out@5 r reverb@0.4 codec@mp3:24 band@500-900 clean"
).split()


def speech(key):
    """Make the samples of an utterance. key: its id."""
    return (0.05 * np.random.default_rng(len(key)).standard_normal(LENGTHS[key])).astype(np.float32)


@pytest.fixture
def texts(tmp_path):
    """Texts of conditions of all kinds. The recordings of noise and rooms lie beside the manifest."""
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


def test_frozen_mixtures_are_the_same_to_the_bit(manifest, texts, distorter):
    frozen = FrozenDistorter(manifest)
    assert frozen.seed == 4
    for condition in map(parse_condition, texts):
        frozen.check(condition)
        for key in LENGTHS:
            replayed = frozen.apply(speech(key), condition, key)
            np.testing.assert_array_equal(replayed, distorter.apply(speech(key), condition, key))


def test_mixtures_that_are_not_frozen_or_whose_noise_has_changed_are_refused(
    manifest, texts, tmp_path
):
    frozen = FrozenDistorter(manifest)
    pink = parse_condition("pink@10")
    refused("no mixture of the condition pink@7", frozen.check, parse_condition("pink@7"))
    refused("no mixture of the utterance u3", frozen.apply, speech("u1"), pink, "u3")
    refused("of 11999 samples", frozen.apply, speech("u1")[:-1], pink, "u1")
    for i in range(3):
        changed = 0.1 * np.random.default_rng(i + 9).standard_normal(9_000)
        write_flac(tmp_path / "street" / f"{i}.flac", changed)
    # another seed changes the generated noise
    manifest.write_text(manifest.read_text("utf-8").replace('"seed": 4', '"seed": 5'), "utf-8")
    frozen = FrozenDistorter(manifest)
    read_cached.cache_clear()
    street = f"{tmp_path / 'street'}@5"
    for text in (street, "pink@10", "held-out@5", "r", "reverb@0.4"):
        condition = parse_condition(text)
        message = "frozen with another noise for the utterance u1"
        refused(message, frozen.apply, speech("u1"), condition, "u1")
