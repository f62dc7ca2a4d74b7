"""What intervals draw: voices that training did not know, from five on; else the next larger
unit."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.superb import Turn, Utterance, UtteranceSet, recording_units
from speechssl.stats import FEWEST, BootstrapUnits, choose_units, ratio_interval, unknown_voice

NAMES = st.sampled_from(["ann", "bob", "cleo", "dan", "eve", "fay", "gus", ""])


@given(
    st.lists(st.tuples(NAMES, st.integers(0, 9)), min_size=1, max_size=40),
    st.sets(NAMES, max_size=2),
)
def test_the_rule(items, known):
    voices, passages = [v for v, _ in items], [f"p{p}" for _, p in items]
    units = choose_units([unknown_voice(v, known) for v in voices], passages, "passage")
    if len(set(voices)) >= FEWEST and "" not in voices and not known & set(voices):
        assert (units.name, units.labels) == ("voice", voices)
    else:
        assert (units.name, units.labels) == ("passage", passages)
    assert len(set(units.groups)) == len(set(units.labels))


def recorded(*speakers, split="test", **fields):
    return tuple(Utterance(f"{split}-{i}", "", 1.0, s, **fields) for i, s in enumerate(speakers))


def made(test, train=()):
    return UtteranceSet(Path("set"), "ks", {"train": train, "test": test}, "0")


def test_superb_draws_voices_and_mixtures_draw_both():
    data = made(recorded(*"abcde"), recorded("x", split="train"))
    alone = BootstrapUnits("voice", (("a",), ("b",), ("c",), ("d",), ("e",)))
    assert recording_units(data, data.splits["test"]) == alone
    known = made(recorded(*"abcde"), recorded("x+c", split="train"))
    assert recording_units(known, known.splits["test"], "query").name == "query"
    mixed = made(recorded("a+b", "b+c", "d+e"))
    both = BootstrapUnits("voice", (("a", "b"), ("b", "c"), ("d", "e")))
    assert recording_units(mixed, mixed.splits["test"]) == both
    turns = tuple(Turn(s, 0.0, 1.0) for s in "abcba")
    talk = made(recorded("", turns=turns) + recorded("d+e", split="other"))
    assert recording_units(talk, talk.splits["test"]).groups == (("a", "b", "c"), ("d", "e"))
    # silence is nobody's and is drawn by itself
    silent = (Utterance("s", "", 1.0, labels={"keyword": "_silence_"}),)
    data = made(recorded(*"abcda") + silent)
    units = recording_units(data, data.splits["test"])
    assert (units.name, len(set(units.groups))) == ("voice", 5)


def test_a_mixture_counts_as_often_as_both_its_voices_were_drawn():
    """Two voices in every recording: the spread is that of the voices, wider than that of the
    recordings."""
    rng = np.random.default_rng(1)
    level = dict(zip("abcdefgh", rng.normal(0, 1, 8), strict=True))
    pairs = [tuple(rng.choice(list(level), 2, replace=False)) for _ in range(200)]
    values = np.array([level[a] + level[b] for a, b in pairs])

    def interval(voices, resamples=2_000):
        units = voices and choose_units(voices, list(map(str, range(200))), "recording")
        return ratio_interval(values, np.ones(200), units, resamples=resamples)

    both, each = interval(pairs), interval(None)
    assert (both.drawn, both.groups, both.value) == ("voice", 8, each.value)
    assert both.low < both.value < both.high
    assert both.high - both.low > 2 * (each.high - each.low)
    # but for one item, the weights are those of the cluster bootstrap
    single = [(a,) for a, _ in pairs[:-1]]
    one, other = (interval([*single, v], 20_000) for v in (pairs[-1], pairs[-1][:1]))
    assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=0.1)


def test_those_who_ask_are_drawn_too():
    voices, passages = [v for v in "abcdef" for _ in range(4)], [f"p{i // 2}" for i in range(24)]
    many, few = ["uvwxyz"[i % 6] for i in range(24)], ["uvw"[i % 3] for i in range(24)]
    three, nobody = [v for v in "abc" for _ in range(8)], [""] * 24
    both = choose_units(voices, passages, "passage", many)
    assert (len(set(both.groups)), both.askers, both.labels) == (6, tuple(many), voices)
    assert both.select([0, 5]).askers == ("u", "z")
    for spoke, asked, text in (
        (voices, many, "voice × asker"),
        # too few to be drawn: the result is about them
        (voices, few, "voice (about these 3 askers)"),
        (three, (), "passage (about these 3 voices)"),
        (three, few, "passage (about these 3 voices and 3 askers)"),
        (["a"] * 24, many, "passage × asker (about this 1 voice)"),
        # nothing is said of those who are not known, or whom training knew
        (nobody, ["", *few[1:]], "passage"),
    ):
        assert choose_units(spoke, passages, "passage", asked).text == text
