"""Noise: the bank, its files, and generated noise: every family makes a sound, no two alike, and
training, dev and test have no sound in common.
"""

from __future__ import annotations

import dis
import inspect
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy import signal

from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.augment import Distorter, NoiseBank, noise, parse_condition, training
from speechssl.augment.noise import (
    DEV,
    GENERATED,
    HELD_OUT,
    LEVEL,
    SEEN,
    Family,
    clip,
    noise_files,
    replay,
    stand_in,
)
from speechssl.augment.training import parse_distortions
from speechssl.errors import InputError
from speechssl.signal import generator

from ..files import refused
from .conftest import steady


def rms_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64))))


def test_folder_of_recordings(tmp_path: Path) -> None:
    for i in range(4):
        write_flac(tmp_path / "noises" / "sub" / f"{i}.flac", steady(8000, i))
    (tmp_path / "noises" / "README.txt").write_text("not audio")
    bank = NoiseBank.of(str(tmp_path / "noises"))
    assert [f.name for f in bank.files] == ["0.flac", "1.flac", "2.flac", "3.flac"]
    draws = [bank.sample(f"u{i}", 8000) for i in range(30)]
    # all of them are used
    assert {d.tobytes() for d in draws} == {read_audio(f).tobytes() for f in bank.files}


def test_the_place_of_the_noise_does_not_matter(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        write_flac(tmp_path / folder / "n.flac", steady(20_000))
    here, there = (NoiseBank.of(str(tmp_path / f)).sample("u1", 1000) for f in ("here", "there"))
    np.testing.assert_array_equal(here, there)


def test_a_silent_stretch_is_not_drawn(tmp_path: Path) -> None:
    noise = np.zeros(40_000, np.float32)
    noise[:20_000] = steady(20_000)
    write_flac(tmp_path / "n.flac", noise)
    bank = NoiseBank.of(str(tmp_path / "n.flac"))
    assert all(np.any(bank.sample(f"u{i}", 1000)) for i in range(20))


def test_what_is_missing_is_told_early_as_it_was_named(
    tmp_path: Path, voices: tuple[Path, ...]
) -> None:
    check = Distorter().check
    for kind in ("pinkish", "missing.wav"):
        refused(f"there is no noise {kind}", check, parse_condition(f"{kind}@5"))
    (tmp_path / "empty").mkdir()
    refused(
        f"no recordings of noise in {tmp_path}/empty; give a folder with .wav",
        check,
        parse_condition(f"{tmp_path}/empty@5"),
    )
    refused("there is no noise fsd50k; give .* or NAME=FOLDER", check, parse_condition("fsd50k@5"))
    named = Distorter(folders={"fsd50k": Path("nowhere")})
    refused(
        "the recordings nowhere of the noise fsd50k do not exist",
        named.check,
        parse_condition("fsd50k@5"),
    )
    refused(
        "needs voices; give recordings of other people with --babble",
        check,
        parse_condition("babble@5"),
    )
    Distorter(0, voices).check(parse_condition("babble@5"))


def test_a_manifest_and_a_named_folder(tmp_path: Path) -> None:
    for i in range(3):
        write_flac(tmp_path / "n" / f"{i}.flac", steady(8000, i))
    (tmp_path / "two.txt").write_text("n/0.flac\nn/2.flac\n")
    assert [f.name for f in NoiseBank.of(str(tmp_path / "two.txt")).files] == ["0.flac", "2.flac"]
    assert len(NoiseBank.of(f"fsd50k={tmp_path / 'n'}").files) == 3
    named = NoiseBank.of("fsd50k", folders={"fsd50k": tmp_path / "n"})
    np.testing.assert_array_equal(
        named.sample("u1", 500), NoiseBank.of(str(tmp_path / "n")).sample("u1", 500)
    )


def test_musan_is_noise_music_and_babble(tmp_path: Path) -> None:
    for kind, count in (("noise", 1), ("music", 1), ("speech", 4)):
        for i in range(count):
            write_flac(
                tmp_path / kind / "x" / f"{kind}{i}.flac", steady(12_000, 10 * len(kind) + i)
            )
    bank = NoiseBank.of("m", folders={"musan": tmp_path})
    draws = [bank.draw(f"u{i}", 4000).pieces for i in range(60)]
    assert {pieces[0].file.parts[-3] for pieces in draws} == {"noise", "music", "speech"}
    assert {len(pieces) for pieces in draws} == {1, 3, 4, 5, 6, 7}
    assert NoiseBank.of(f"musan={tmp_path}") == bank
    refused(
        "is not MUSAN: it has no recordings in noise, music, speech",
        NoiseBank.of,
        f"musan={tmp_path / 'speech'}",
    )


def test_a_draw_is_replayed_from_its_pieces(tmp_path: Path, voices: tuple[Path, ...]) -> None:
    for i, n in enumerate((3000, 30_000)):
        write_flac(tmp_path / "n" / f"{i}.flac", steady(n, i))
    for bank in (NoiseBank.of(str(tmp_path / "n")), NoiseBank.of("babble", voices)):
        for i in range(6):
            draw = bank.draw(f"u{i}", 8000)
            np.testing.assert_array_equal(replay(draw.pieces, 8000), draw.noise)


@pytest.mark.parametrize(
    "samples",
    [np.full(16_000, np.nan, np.float32), np.ones(10, np.float32), np.zeros(16_000)],
    ids=len,
)
def test_unusable_recordings_are_named(tmp_path: Path, samples: np.ndarray) -> None:
    soundfile.write(tmp_path / "bad.wav", samples, SAMPLE_RATE, subtype="FLOAT")
    with pytest.raises(InputError, match=r"bad\.wav"):
        NoiseBank.of(str(tmp_path / "bad.wav")).sample("u1", 100)


def test_a_folder_a_file_a_manifest_and_nothing(tmp_path: Path) -> None:
    """How manifests are read is proved in tests/data/test_files.py."""
    folder = tmp_path / "n"
    for name in ("b.wav", "a.FLAC", "sub/c.ogg", "sub/notes.txt", ".hidden.wav"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    assert [p.name for p in noise_files(folder)] == ["a.FLAC", "b.wav", "c.ogg"]
    assert noise_files(folder / "b.wav") == [folder / "b.wav"]
    assert noise_files(folder / "missing") == []
    (folder / "list.tsv").write_text("./\nb.wav\t100\nsub/c.ogg\t7\n")
    assert [p.resolve() for p in noise_files(folder / "list.tsv")] == [
        folder / "b.wav",
        folder / "sub" / "c.ogg",
    ]
    (folder / "list.txt").write_text("")
    refused("is empty", noise_files, folder / "list.txt")


@pytest.mark.parametrize(
    ("kind", "slope"),
    [("pink", -3.01), *((f"coloured:{s}", s) for s in (-12.0, -6.0, 0.0, 3.0, 6.0))],
)
def test_generated_noise_has_its_slope_and_power(kind: str, slope: float) -> None:
    noise = NoiseBank.of(kind, seed=1).sample("u1", 60 * SAMPLE_RATE)
    frequency, density = signal.welch(noise, SAMPLE_RATE, "blackmanharris", 4096)
    band = (frequency > 100) & (frequency < 7000)
    assert np.polyfit(np.log2(frequency[band]), 10 * np.log10(density[band]), 1)[
        0
    ] == pytest.approx(slope, abs=0.15)
    assert rms_db(noise) == pytest.approx(0, abs=0.5)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_babble_mixes_every_talker_at_one_level(tmp_path: Path, count: int) -> None:
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    for i in range(count):
        write_flac(tmp_path / f"{i}.flac", 0.9 * 3.0**-i * np.sin(2 * np.pi * 100 * (i + 1) * time))
    spectrum = np.abs(
        np.fft.rfft(NoiseBank.of("babble", sorted(tmp_path.iterdir())).sample("u1", SAMPLE_RATE))
    )
    heights = spectrum[100 : 100 * count + 1 : 100]
    assert (heights > 1000 * np.median(spectrum)).all()  # none is left out
    if count == 5:  # of fewer some speak more than once
        np.testing.assert_allclose(heights, heights[0], rtol=1e-2)


# ---- families of sounds

SETS = {"stand-in": SEEN, "dev": DEV, "held-out": HELD_OUT}
EVERY = [family for some in SETS.values() for family in some.items()]
ARITHMETIC = set(  # what the sets may share
    (
        "filtered shaped tilted wander phase harmonics resonances poisson strikes modal "
        "attack_decay "
        "on_and_off unit"
    ).split()
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
    """The names of the functions of `noise` that one calls, directly or through others."""
    found, todo = set[str](), {function.__name__}
    while todo:
        name = todo.pop()
        found.add(name)
        codes = [vars(noise)[name].__code__]
        for code in codes:
            codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
            names = {
                step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"
            }
            todo |= {other for other in names if inspect.isfunction(vars(noise).get(other))} - found
    return found


def test_no_sound_is_built_of_those_of_another_set() -> None:
    """No family is in two sets. They share arithmetic; no function of another set is called. Nor by
    training."""
    assert len(dict(EVERY)) == len({family for _, family in EVERY}) == len(EVERY) == 11 + 6 + 6
    of = {name: set().union(*map(called, some.values())) for name, some in SETS.items()}
    for one, other in combinations(of.values(), 2):
        assert one & other <= ARITHMETIC
    assert not ARITHMETIC & dict(EVERY).keys()
    evaluated = [DEV, HELD_OUT, GENERATED, *DEV.values(), *HELD_OUT.values()]
    assert not any(value is one for value in vars(training).values() for one in evaluated)


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
    made = bank.sample("u1", n)
    assert made.shape == (n,) and np.isfinite(made).all() and np.any(made)
    np.testing.assert_array_equal(made, bank.sample("u1", n))
