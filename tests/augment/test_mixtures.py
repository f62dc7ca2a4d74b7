"""Frozen mixtures are the same for every system, and what has changed since is refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from speechssl.audio import SAMPLE_RATE, write_flac
from speechssl.augment import Distorter, FrozenDistorter, freeze, parse_condition
from speechssl.augment.conditions import noise_hash
from speechssl.errors import InputError

ROOT = Path(__file__).parents[2]
LENGTHS = {"u1": 12_000, "ü/2": 20_000}
GENERATED = [
    "pink@10",
    "pink@0",
    "coloured:-6@5",
    "m+g+r@5",
    "held-out@5",
    "r",
    "reverb@0.4",
    "codec@mp3:24",
    "band@500-900",
    "clean",
]


def speech(key: str) -> np.ndarray:
    return (0.05 * np.random.default_rng(len(key)).standard_normal(LENGTHS[key])).astype(np.float32)


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """Conditions of all kinds; the recordings lie in the folder of the manifest."""
    for i in range(3):
        write_flac(tmp_path / "street" / f"{i}.flac", 0.1 * np.random.default_rng(i).standard_normal(9_000 + 9_000 * i))
    impulse = 0.9 * np.exp(-np.arange(1600) / 200) * np.random.default_rng(5).uniform(-1, 1, 1600)
    write_flac(tmp_path / "rir" / "hall.flac", impulse)
    return [*GENERATED, f"{tmp_path / 'street'}@5", f"rir={tmp_path / 'rir'}", f"reverb@0.4+{tmp_path / 'street'}@5", "babble@5"]


@pytest.fixture
def distorter(voices: tuple[Path, ...]) -> Distorter:
    return Distorter(4, voices)


@pytest.fixture
def manifest(texts: list[str], distorter: Distorter, tmp_path: Path) -> Path:
    return freeze([parse_condition(t) for t in texts], LENGTHS, distorter, tmp_path / "frozen.jsonl")


def test_the_same_mixtures_to_the_bit(manifest: Path, texts: list[str], distorter: Distorter) -> None:
    frozen = FrozenDistorter(manifest)
    assert frozen.seed == 4 and frozen.conditions == [parse_condition(t) for t in texts if t != "clean"]
    for condition in map(parse_condition, texts):
        frozen.check(condition)
        for key in LENGTHS:
            np.testing.assert_array_equal(frozen.apply(speech(key), condition, key), distorter.apply(speech(key), condition, key))


def test_a_row_a_mixture(manifest: Path, texts: list[str], tmp_path: Path) -> None:
    rows = [json.loads(line) for line in manifest.read_text("utf-8").splitlines()]
    assert len(rows) == (len(texts) - 1) * len(LENGTHS)  # clean is no mixture
    row = next(r for r in rows if r["condition"] == f"{tmp_path / 'street'}@5" and r["utterance"] == "ü/2")
    (step,) = row["steps"]
    (piece,) = step["source"]["files"]
    assert row["samples"] == 20_000 and row["snr_db"] == 5 and piece["file"].startswith("street/") and len(piece["sha256"]) == 64
    assert len(next(r for r in rows if r["condition"] == "babble@5")["steps"][0]["source"]["files"]) == 5


def test_freezing_twice_gives_the_same_file(manifest: Path, texts: list[str], voices: tuple[Path, ...], tmp_path: Path) -> None:
    again = freeze([parse_condition(t) for t in texts], LENGTHS, Distorter(4, voices), tmp_path / "again.jsonl")
    assert again.read_bytes() == manifest.read_bytes()
    other = freeze([parse_condition(t) for t in texts], LENGTHS, Distorter(5, voices), tmp_path / "other.jsonl")
    assert other.read_bytes() != manifest.read_bytes()


@pytest.mark.slow
def test_another_process_mixes_the_same(manifest: Path, distorter: Distorter) -> None:
    program = (
        "import numpy as np, sys, hashlib; from pathlib import Path;"
        "from speechssl.augment import FrozenDistorter, parse_condition;"
        "x = (0.05 * np.random.default_rng(2).standard_normal(12000)).astype(np.float32);"
        "y = FrozenDistorter(Path(sys.argv[1])).apply(x, parse_condition('held-out@5'), 'u1');"
        "print(hashlib.sha256(y.tobytes()).hexdigest())"
    )
    run = subprocess.run([sys.executable, "-c", program, str(manifest)], cwd=ROOT, capture_output=True, text=True, check=True)
    mine = distorter.apply(speech("u1"), parse_condition("held-out@5"), "u1")
    assert run.stdout.strip() == hashlib.sha256(mine.tobytes()).hexdigest()


def test_a_manifest_moves_with_its_noise(manifest: Path, texts: list[str], tmp_path: Path, distorter: Distorter) -> None:
    """The condition names the old place; the noise comes from the new one."""
    condition = parse_condition(texts[-4])
    expected = distorter.apply(speech("u1"), condition, "u1")
    new = tmp_path / "new"
    (tmp_path / "street").rename(tmp_path / "old")
    new.mkdir()
    moved = manifest.rename(new / manifest.name)
    with pytest.raises(InputError, match="does not exist; restore it"):
        FrozenDistorter(moved).check(condition)
    (tmp_path / "old").rename(new / "street")
    np.testing.assert_array_equal(FrozenDistorter(moved).apply(speech("u1"), condition, "u1"), expected)


def test_a_changed_recording_is_refused(manifest: Path, texts: list[str], tmp_path: Path) -> None:
    condition = parse_condition(texts[-4])
    for i in range(3):
        write_flac(tmp_path / "street" / f"{i}.flac", 0.1 * np.random.default_rng(i + 9).standard_normal(9_000))
    frozen = FrozenDistorter(manifest)
    for attempt in (lambda: frozen.check(condition), lambda: frozen.apply(speech("u1"), condition, "u1")):
        with pytest.raises(InputError, match="is not the one that .* was frozen with"):
            attempt()


def test_another_generator_is_refused(manifest: Path) -> None:
    manifest.write_text(manifest.read_text("utf-8").replace('"seed": 4', '"seed": 5'), "utf-8")
    for text in ("pink@10", "held-out@5", "r", "reverb@0.4"):
        with pytest.raises(InputError, match="frozen with another noise for the utterance u1"):
            FrozenDistorter(manifest).apply(speech("u1"), parse_condition(text), "u1")


def test_what_was_not_frozen_is_refused(manifest: Path) -> None:
    frozen = FrozenDistorter(manifest)
    with pytest.raises(InputError, match="no mixture of the utterance u3"):
        frozen.apply(speech("u1"), parse_condition("pink@10"), "u3")
    with pytest.raises(InputError, match="no mixture of the condition pink@7"):
        frozen.check(parse_condition("pink@7"))
    with pytest.raises(InputError, match="has 11999 samples, not the 12000"):
        frozen.apply(speech("u1")[:-1], parse_condition("pink@10"), "u1")
    assert frozen.apply(clean := speech("u1"), parse_condition("clean"), "u9") is clean


def test_sources_follow_the_manifest(manifest: Path) -> None:
    before = FrozenDistorter(manifest).sources(parse_condition("pink@10"))
    manifest.write_text(manifest.read_text("utf-8").replace("pink@10", "pink@9"), "utf-8")
    assert FrozenDistorter(manifest).sources(parse_condition("pink@9")) != before


def test_nothing_is_written_where_noise_is_missing(distorter: Distorter, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no noise"):
        freeze([parse_condition("pink@5"), parse_condition("missing.wav@5")], LENGTHS, distorter, tmp_path / "f.jsonl")
    assert not list(tmp_path.glob("*f.jsonl*"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "contains no frozen noise"),
        ("{", ":1 is not a row"),
        ('{"utterance": "u1"}', ":1 is not a row"),
        ("[]", ":1 is not a row"),
    ],
)
def test_damaged_manifests(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "f.jsonl").write_text(content)
    with pytest.raises(InputError, match=message):
        FrozenDistorter(tmp_path / "f.jsonl")
    with pytest.raises(InputError, match="cannot read"):
        FrozenDistorter(tmp_path / "missing.jsonl")


def test_the_hash_is_of_the_sound_not_of_its_level() -> None:
    noise = np.random.default_rng(0).standard_normal(SAMPLE_RATE)
    assert noise_hash(noise) == noise_hash(3e-4 * noise) != noise_hash(noise[::-1])


def test_snrs_over_the_whole_signal_are_frozen_too(voices: tuple[Path, ...], tmp_path: Path) -> None:
    conditions = [parse_condition(text) for text in ("pink@5", "m+g+r@5", "reverb@0.4+pink@5", "reverb@0.4")]
    over = {name: Distorter(4, voices, snr_over=name) for name in ("active", "signal")}
    paths = {name: freeze(conditions, LENGTHS, d, tmp_path / f"{name}.jsonl") for name, d in over.items()}
    paused = {key: np.where(np.arange(n) % 8_000 < 4_000, speech(key), 0).astype(np.float32) for key, n in LENGTHS.items()}
    for condition in conditions:
        for key, samples in paused.items():
            live = {name: over[name].apply(samples, condition, key) for name in over}
            for name, path in paths.items():
                np.testing.assert_array_equal(FrozenDistorter(path).apply(samples, condition, key), live[name])
            assert np.array_equal(live["active"], live["signal"]) is (not condition.noisy) or condition.kind == "m+g+r"
    rows = {name: [json.loads(line) for line in path.read_text("utf-8").splitlines()] for name, path in paths.items()}
    assert {row.get("snr_over") for row in rows["active"]} == {None}  # manifests from before there was a choice stay as they are
    assert {row["condition"]: row.get("snr_over") for row in rows["signal"]} == {c.text: "signal" for c in conditions[:3]} | {
        "reverb@0.4": None
    }
    assert [{k: v for k, v in row.items() if k != "snr_over"} for row in rows["signal"]] == rows["active"]


def test_what_an_snr_is_over_is_a_source_only_where_it_is_not_the_default() -> None:
    noisy, room = parse_condition("pink@5"), parse_condition("reverb@0.4")
    assert Distorter().sources(noisy) == [] and Distorter().card(noisy) == {"seed": 0}
    assert Distorter(snr_over="signal").sources(noisy) == [("SNR over: signal", 0)]
    assert Distorter(snr_over="signal").card(noisy) == {"seed": 0, "snr_over": "signal"}
    assert Distorter(snr_over="signal").sources(room) == [] and Distorter(snr_over="signal").card(room) == {"seed": 0}
