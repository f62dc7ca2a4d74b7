"""Generated noise: every family makes a sound, no two alike, and training, dev and test have no sound in common."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import numpy as np
import pytest

from speechssl.audio import SAMPLE_RATE
from speechssl.augment import training as kinds
from speechssl.augment.noise import GENERATED, NoiseBank
from speechssl.augment.training import parse_distortions
from speechssl.errors import InputError
from speechssl.signal import generator
from speechssl.synth.sounds import dev, held_out, scenes, seen
from speechssl.synth.sounds.scenes import LEVEL, clip, clips, stand_in

SETS = {"stand-in": seen, "dev": dev, "held-out": held_out}
EVERY = [family for module in SETS.values() for family in module.FAMILIES.items()]


@pytest.mark.parametrize(("name", "family"), EVERY, ids=[name for name, _ in EVERY])
def test_every_family_makes_a_sound_and_no_two_alike(name: str, family: seen.Family) -> None:
    sounds = [family(2 * SAMPLE_RATE, generator(seed, name)) for seed in (0, 0, 1)]
    for sound in sounds:
        assert sound.shape == (2 * SAMPLE_RATE,) and np.isfinite(sound).all() and np.std(sound) > 0
    np.testing.assert_array_equal(sounds[0], sounds[1])
    assert abs(np.corrcoef(sounds[0], sounds[2])[0, 1]) < 0.5


@pytest.mark.parametrize("families", [module.FAMILIES for module in SETS.values()], ids=SETS)
def test_clips_have_a_level_and_do_not_clip(families: dict[str, seen.Family]) -> None:
    for made in clips("test", families, 0, 12, 2.0):
        assert made.dtype == np.int16 and made.shape == (2 * SAMPLE_RATE,)
        assert np.sqrt(np.mean((made / 32768) ** 2)) == pytest.approx(LEVEL, rel=0.1)
        assert np.abs(made.astype(int)).max() < 32767


def test_a_clip_depends_on_its_seed_and_number_alone() -> None:
    first = list(stand_in(7, 4, 1.0))
    np.testing.assert_array_equal(clip(seen.FAMILIES, generator(7, "stand-in", "2"), SAMPLE_RATE), first[2])
    assert len({made.tobytes() for made in first}) == 4


# The noises of training, dev and test are disjoint


def test_no_family_is_in_two_sets() -> None:
    assert len(dict(EVERY)) == len({family for _, family in EVERY}) == len(EVERY) == 11 + 6 + 6


@pytest.mark.parametrize("module", SETS.values(), ids=SETS)
def test_no_sound_is_built_of_those_of_another_set(module: ModuleType) -> None:
    """They share arithmetic and a type; no function of another set is called, directly or by name."""
    others = {other.__name__ for other in SETS.values()} - {module.__name__}
    assert {name for name, value in vars(module).items() if getattr(value, "__module__", "") in others} <= {"Family"}
    for other in others:
        name = other.rpartition(".")[2]
        assert not re.search(rf"import .*\b{name}\b|{re.escape(other)}(?! import Family$)", inspect.getsource(module), re.M)


@pytest.mark.parametrize("kind", ["dev", "held-out"])
def test_training_can_not_name_what_it_must_not_hear(kind: str) -> None:
    module = SETS[kind]
    assert GENERATED[kind] is module.FAMILIES
    for user in (scenes, kinds):
        assert not re.search(rf"import .*\b{module.__name__.rpartition('.')[2]}\b", inspect.getsource(user))
    for name in (kind, *module.FAMILIES):
        with pytest.raises(InputError, match="neither a source"):
            parse_distortions(name)


def test_evaluation_in_seen_families_hears_other_clips() -> None:
    """Even where an utterance is called as a clip of training is numbered."""
    trained = list(stand_in(0, 2, 1.0))
    for number, made in enumerate(trained):
        heard = NoiseBank.of("m").sample(str(number), SAMPLE_RATE)
        assert np.corrcoef(heard, made)[0, 1] < 0.5


@pytest.mark.parametrize("n", [1, 100, 800, 16_000, 40_000])
@pytest.mark.parametrize("kind", ["m", "dev", "held-out"])
def test_evaluation_gets_any_length(kind: str, n: int) -> None:
    bank = NoiseBank.of(kind, seed=2)
    noise = bank.sample("u1", n)
    assert noise.shape == (n,) and np.any(noise)
    np.testing.assert_array_equal(noise, bank.sample("u1", n))
