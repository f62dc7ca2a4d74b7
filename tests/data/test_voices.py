"""Test what a bootstrap interval resamples: the voices that did not occur in training, if there are
five or more, and otherwise passages or recordings."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.superb import Turn, Utterance, UtteranceSet, group_recordings
from speechssl.stats import FEWEST, BootstrapUnits, choose_units, estimate_ratio, hide_voice

NAMES = st.sampled_from(["ann", "bob", "cleo", "dan", "eve", "fay", "gus", ""])


@given(
    st.lists(st.tuples(NAMES, st.integers(0, 9)), min_size=1, max_size=40),
    st.sets(NAMES, max_size=2),
)
def test_voices_are_resampled_if_five_or_more_are_unknown(items, known):
    """items: (voice, number of the passage); known: voices of training."""
    voices = [voice for voice, _ in items]
    passages = [f"p{number}" for _, number in items]
    units = choose_units([hide_voice(v, known) for v in voices], passages, "passage")
    if len(set(voices)) >= FEWEST and "" not in voices and not known & set(voices):
        assert (units.name, units.labels) == ("voice", voices)
    else:
        assert (units.name, units.labels) == ("passage", passages)
    assert len(set(units.groups)) == len(set(units.labels))


def make_utterances(*speakers, split="test", **fields):
    """Make an utterance of every speaker."""
    return tuple(Utterance(f"{split}-{i}", "", 1.0, s, **fields) for i, s in enumerate(speakers))


def make_set(test, train=()):
    """Make a set of these utterances."""
    return UtteranceSet(Path("set"), "ks", {"train": train, "test": test}, "0")


def test_superb_resamples_voices_and_a_mixture_belongs_to_both():
    data = make_set(make_utterances(*"abcde"), make_utterances("x", split="train"))
    alone = BootstrapUnits("voice", (("a",), ("b",), ("c",), ("d",), ("e",)))
    assert group_recordings(data, data.splits["test"]) == alone
    known = make_set(make_utterances(*"abcde"), make_utterances("x+c", split="train"))
    assert group_recordings(known, known.splits["test"], "query").name == "query"
    mixed = make_set(make_utterances("a+b", "b+c", "d+e"))
    both = BootstrapUnits("voice", (("a", "b"), ("b", "c"), ("d", "e")))
    assert group_recordings(mixed, mixed.splits["test"]) == both
    turns = tuple(Turn(s, 0.0, 1.0) for s in "abcba")
    talk = make_set(make_utterances("", turns=turns) + make_utterances("d+e", split="other"))
    assert group_recordings(talk, talk.splits["test"]).groups == (("a", "b", "c"), ("d", "e"))
    # silence has no speaker and is resampled by itself
    silent = (Utterance("s", "", 1.0, labels={"keyword": "_silence_"}),)
    data = make_set(make_utterances(*"abcda") + silent)
    units = group_recordings(data, data.splits["test"])
    assert (units.name, len(set(units.groups))) == ("voice", 5)


def test_the_interval_of_mixtures_is_as_wide_as_their_voices_demand():
    """Every recording is a mixture of two of eight voices, and its value the sum of their levels.
    The interval by voices is more than twice as wide as that by recordings."""
    rng = np.random.default_rng(1)
    level = dict(zip("abcdefgh", rng.normal(0, 1, 8), strict=True))
    pairs = [tuple(rng.choice(list(level), 2, replace=False)) for _ in range(200)]
    values = np.array([level[a] + level[b] for a, b in pairs])

    def interval(voices, resamples=2_000):
        units = voices and choose_units(voices, list(map(str, range(200))), "recording")
        return estimate_ratio(values, np.ones(200), units, resamples=resamples)

    by_voice, by_recording = interval(pairs), interval(None)
    assert (by_voice.drawn, by_voice.groups) == ("voice", 8)
    assert by_voice.value == by_recording.value
    assert by_voice.low < by_voice.value < by_voice.high
    assert by_voice.high - by_voice.low > 2 * (by_recording.high - by_recording.low)
    # with one mixture among 199 single voices, the interval is about that without mixtures
    single = [(voice,) for voice, _ in pairs[:-1]]
    one_mixture = interval([*single, pairs[-1]], 5_000)
    no_mixture = interval([*single, pairs[-1][:1]], 5_000)
    assert one_mixture.low == pytest.approx(no_mixture.low, abs=0.1)
    assert one_mixture.high == pytest.approx(no_mixture.high, abs=0.1)


def test_askers_are_resampled_as_well():
    voices = [voice for voice in "abcdef" for _ in range(4)]
    passages = [f"p{i // 2}" for i in range(24)]
    six_askers = ["uvwxyz"[i % 6] for i in range(24)]
    three_askers = ["uvw"[i % 3] for i in range(24)]
    three_voices = [voice for voice in "abc" for _ in range(8)]
    units = choose_units(voices, passages, "passage", six_askers)
    assert len(set(units.groups)) == 6
    assert units.askers == tuple(six_askers)
    assert units.labels == voices
    assert units.select([0, 5]).askers == ("u", "z")
    for voices_of_items, askers, text in (
        (voices, six_askers, "voice × asker"),
        # three are too few to be resampled: the result is about them alone
        (voices, three_askers, "voice (about these 3 askers)"),
        (three_voices, (), "passage (about these 3 voices)"),
        (three_voices, three_askers, "passage (about these 3 voices and 3 askers)"),
        (["a"] * 24, six_askers, "passage × asker (about this 1 voice)"),
        # nothing is said about voices that are unknown, or that occur in training
        ([""] * 24, ["", *three_askers[1:]], "passage"),
    ):
        assert choose_units(voices_of_items, passages, "passage", askers).text == text
