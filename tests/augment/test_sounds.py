"""Generated noise: every family makes a sound, no two alike, and training, dev and test have no sound in common."""

from __future__ import annotations

import inspect
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from speechssl.audio import SAMPLE_RATE
from speechssl.augment import sounds
from speechssl.augment import training as kinds
from speechssl.augment.noise import GENERATED, LEVEL, NoiseBank, clip, stand_in
from speechssl.augment.sounds import DEV, HELD_OUT, SEEN, Family
from speechssl.augment.training import parse_distortions
from speechssl.signal import generator

from ..files import refused

SETS = {"stand-in": SEEN, "dev": DEV, "held-out": HELD_OUT}
EVERY = [family for some in SETS.values() for family in some.items()]
ARITHMETIC = set(  # what the sets may share
    "shaped tilted wander phase harmonics resonances poisson strikes modal attack_decay on_and_off unit".split()
)


@pytest.mark.parametrize(("name", "family"), EVERY, ids=[name for name, _ in EVERY])
def test_every_family_makes_a_sound_and_no_two_alike(name: str, family: Family) -> None:
    sounds = [family(2 * SAMPLE_RATE, generator(seed, name)) for seed in (0, 0, 1)]
    for sound in sounds:
        assert sound.shape == (2 * SAMPLE_RATE,) and np.isfinite(sound).all() and np.std(sound) > 0
    np.testing.assert_array_equal(sounds[0], sounds[1])
    assert abs(np.corrcoef(sounds[0], sounds[2])[0, 1]) < 0.5


@pytest.mark.parametrize("name", SETS)
def test_clips_have_a_level_and_do_not_clip(name: str) -> None:
    for number in range(12):
        made = clip(SETS[name], generator(0, "test", str(number)), 2 * SAMPLE_RATE)
        assert made.dtype == np.int16 and made.shape == (2 * SAMPLE_RATE,)
        assert np.sqrt(np.mean((made / 32768) ** 2)) == pytest.approx(LEVEL, rel=0.1)
        assert np.abs(made.astype(int)).max() < 32767


def test_a_clip_depends_on_its_seed_and_number_alone() -> None:
    first = list(stand_in(7, 4, 1.0))
    np.testing.assert_array_equal(clip(SEEN, generator(7, "stand-in", "2"), SAMPLE_RATE), first[2])
    assert len({made.tobytes() for made in first}) == 4
    assert not np.array_equal(first[0], next(stand_in(8, 1, 1.0)))


def called(function: Any) -> set[str]:
    """The names of the functions of `sounds` that one calls, directly or through others."""
    found, todo = set[str](), {function.__name__}
    while todo:
        name = todo.pop()
        found.add(name)
        codes = [vars(sounds)[name].__code__]
        for code in codes:
            codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
            todo |= {other for other in code.co_names if inspect.isfunction(vars(sounds).get(other))} - found
    return found


def test_no_sound_is_built_of_those_of_another_set() -> None:
    """No family is in two sets. They share arithmetic; no function of another set is called. Nor by training."""
    assert len(dict(EVERY)) == len({family for _, family in EVERY}) == len(EVERY) == 11 + 6 + 6
    of = {name: set().union(*map(called, some.values())) for name, some in SETS.items()}
    for one, other in combinations(of.values(), 2):
        assert one & other <= ARITHMETIC
    assert not ARITHMETIC & dict(EVERY).keys()
    assert "augment.sounds" not in inspect.getsource(kinds)


@pytest.mark.parametrize("kind", ["dev", "held-out"])
def test_training_cannot_name_noise_of_evaluation(kind: str) -> None:
    assert GENERATED[kind] is SETS[kind]
    for name in (kind, *SETS[kind]):
        refused("neither a source", parse_distortions, name)


def test_evaluation_in_seen_families_has_other_clips() -> None:
    """Even where an utterance is called as a clip of training is numbered."""
    trained = list(stand_in(0, 2, 1.0))
    for number, made in enumerate(trained):
        drawn = NoiseBank.of("m").sample(str(number), SAMPLE_RATE)
        assert np.corrcoef(drawn, made)[0, 1] < 0.5


@pytest.mark.parametrize("n", [1, 2, 800, 40_001])
@pytest.mark.parametrize("kind", ["m", "dev", "held-out", "gaussian", "pink"])
def test_evaluation_gets_any_length(kind: str, n: int) -> None:
    bank = NoiseBank.of(kind, seed=2)
    noise = bank.sample("u1", n)
    assert noise.shape == (n,) and np.isfinite(noise).all() and np.any(noise)
    np.testing.assert_array_equal(noise, bank.sample("u1", n))
