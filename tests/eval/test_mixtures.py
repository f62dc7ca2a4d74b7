"""Frozen mixtures: frozen once, the same for all, refused when the noise has changed."""

import json

import numpy as np
import pytest

from speechssl.audio import read_audio, write_flac
from speechssl.augment import Distorter, parse_condition
from speechssl.errors import InputError
from speechssl.eval.grid import freeze_mixtures

from .listeners import recordings

PINK, CLEAN = parse_condition("pink@5"), parse_condition("clean")


@pytest.fixture
def named(tmp_path):
    return {p.stem: p for p in recordings(tmp_path / "a", 3)}


def test_frozen_mixtures_are_those_of_the_distorter(tmp_path, named):
    frozen = freeze_mixtures(Distorter(7), named, [CLEAN, PINK], tmp_path / "noise.jsonl")
    samples = read_audio(named["u1"])
    assert np.array_equal(frozen.apply(samples, PINK, "u1"), Distorter(7).apply(samples, PINK, "u1"))
    assert frozen.apply(samples, CLEAN, "u1") is samples and frozen.seed == 7


def test_the_manifest_is_written_once_and_again_when_its_inputs_change(tmp_path, named):
    path = tmp_path / "noise.jsonl"
    freeze_mixtures(Distorter(), named, [PINK], path)
    before = path.stat().st_mtime_ns
    freeze_mixtures(Distorter(), named, [PINK], path)
    assert path.stat().st_mtime_ns == before
    content = path.read_bytes()
    path.write_bytes(content[:100])
    freeze_mixtures(Distorter(), named, [PINK], path)
    assert path.read_bytes() == content
    freeze_mixtures(Distorter(1), named, [PINK], path)
    assert path.read_bytes() != content


def test_what_was_heard_stays_valid_when_the_manifest_grows(tmp_path, named):
    path, some = tmp_path / "noise.jsonl", {"u0": named["u0"]}
    before = freeze_mixtures(Distorter(), some, [PINK], path).made_from(PINK, ["u0"])
    grown = freeze_mixtures(Distorter(), named, [PINK, parse_condition("gaussian@5")], path)
    assert grown.made_from(PINK, ["u0"]) == before != grown.made_from(PINK, ["u0", "u1"])


def test_noise_that_has_changed_since_is_another_noise(tmp_path, named):
    noise = tmp_path / "hum.flac"
    write_flac(noise, np.random.default_rng(0).normal(0, 0.1, 20_000))
    condition = parse_condition(f"{noise}@5")
    before = freeze_mixtures(Distorter(), named, [condition], tmp_path / "noise.jsonl")
    write_flac(noise, np.random.default_rng(1).normal(0, 0.1, 30_000))
    after = freeze_mixtures(Distorter(), named, [condition], tmp_path / "noise.jsonl")
    assert before.made_from(condition, ["u0"]) != after.made_from(condition, ["u0"])


def test_unreadable_recordings_are_left_out_and_all_of_them_are_an_error(tmp_path, named):
    named["u0"].write_bytes(b"no audio")
    freeze_mixtures(Distorter(), named, [PINK], tmp_path / "noise.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "noise.jsonl").read_text().splitlines()]
    assert {r["utterance"] for r in rows} == {"u1", "u2"}
    with pytest.raises(InputError, match="none of the 1 recordings can be read"):
        freeze_mixtures(Distorter(), {"u0": named["u0"]}, [PINK], tmp_path / "other.jsonl")
    assert not (tmp_path / "other.jsonl").exists()
