"""The grid: every cell a file, every recording encoded once, killed runs, damaged files, recordings that cannot be read."""

import json

import numpy as np
import pytest

from speechssl.audio import read_audio, write_flac
from speechssl.augment import Distorter, parse_condition
from speechssl.errors import InputError
from speechssl.eval.grid import Item, Setting, first_items, freeze_mixtures, name_utterances, run_grid
from speechssl.eval.run import check_conditions

from .listeners import LiveMixtures, Roughness, recordings

CLEAN = Setting("clean", parse_condition("clean"))
NOISY = [Setting("seen", parse_condition("pink@5")), Setting("unseen", parse_condition("gaussian@0"))]
SETTINGS = [CLEAN, *NOISY]
PINK = parse_condition("pink@5")


def run(encoders, out, settings=SETTINGS, seed=0, workers=2):
    return run_grid(encoders, settings, out, LiveMixtures(Distorter(seed)), workers)


def files(out):
    return {p.relative_to(out): p.read_bytes() for p in sorted(out.rglob("*.json"))}


def test_every_cell_is_a_file_and_is_named_after_what_it_is(tmp_path):
    cells = run({"baseline": [Roughness(recordings(tmp_path / "a"))]}, tmp_path / "out")
    names = [f"baseline/ks-acc/{x}.json" for x in ("clean", "seen-pink-5-dB", "unseen-gaussian-0-dB")]
    assert sorted(str(p) for p in files(tmp_path / "out")) == [f"scores/{name}" for name in names]
    assert [c.setting.name for c in cells] == ["clean", "seen-pink", "unseen-gaussian"]
    assert [s.numerator for s in cells[0].scored] == [1.0] * 6 and sum(s.numerator for s in cells[2].scored) < 3


def test_tasks_share_what_they_encode_and_every_recording_is_encoded_once_a_condition(tmp_path):
    paths = recordings(tmp_path / "a")
    first, second = Roughness(paths), Roughness(paths[:3], name="sid")
    run({"e": [first, second]}, tmp_path / "out", workers=1)
    assert len(first.encoded) == 3 * 6 and len(second.encoded) == 3 * 3
    assert all(a is b for a, b in zip(first.encoded[:3], second.encoded[:3], strict=True))


def test_encoders_encode_the_same_mixtures_on_any_number_of_workers(tmp_path):
    paths = recordings(tmp_path / "a")
    one, other = Roughness(paths), Roughness(paths)
    run({"a": [one]}, tmp_path / "x", workers=1)
    run({"b": [other]}, tmp_path / "y", workers=3)
    sums = [sorted(float(np.sum(x)) for x in task.encoded) for task in (one, other)]
    assert sums[0] == sums[1]


def test_nothing_is_encoded_again_unless_something_changed(tmp_path):
    paths, out = recordings(tmp_path / "a"), tmp_path / "out"
    run({"e": [Roughness(paths)]}, out)
    for change, count in (({}, 0), ({"version": 1}, 18)):
        task = Roughness(paths, **change)
        run({"e": [task]}, out)
        assert len(task.encoded) == count
    task = Roughness(paths, version=1)
    run({"e": [task]}, out, seed=1)
    assert len(task.encoded) == 18


def test_a_killed_grid_goes_on_and_ends_in_the_same_bytes(tmp_path):
    class Killed(Roughness):
        def encode(self, samples):
            if len(self.encoded) == 8:
                raise KeyboardInterrupt
            return super().encode(samples)

    paths, out = recordings(tmp_path / "a"), tmp_path / "out"
    whole = run({"a": [Roughness(paths)], "b": [Roughness(paths, 0.1)]}, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run({"a": [Killed(paths)], "b": [Roughness(paths, 0.1)]}, out, workers=1)
    assert len(files(out)) == 1
    task = Roughness(paths)
    assert run({"a": [task], "b": [Roughness(paths, 0.1)]}, out) == whole
    assert len(task.encoded) == 12 and files(out) == files(tmp_path / "whole")


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b"\xff\xfe", "tampered"])
def test_a_damaged_file_of_scores_is_reported_and_made_again(tmp_path, damage, capsys):
    paths, out = recordings(tmp_path / "a"), tmp_path / "out"
    whole = run({"e": [Roughness(paths)]}, out)
    before, path = files(out), out / "scores/e/ks-acc/clean.json"
    if damage == "tampered":
        values = json.loads(path.read_text())
        values["items"][0]["numerator"] = 0.0
        damage = json.dumps(values).encode()
    path.write_bytes(damage)
    task = Roughness(paths)
    assert run({"e": [task]}, out) == whole and len(task.encoded) == 6 and files(out) == before
    assert "clean.json" in capsys.readouterr().err


def test_what_cannot_be_read_counts_as_wrong_is_reported_and_tried_again(tmp_path, capsys):
    paths, out = recordings(tmp_path / "a"), tmp_path / "out"
    content = paths[0].read_bytes()
    paths[0].write_bytes(b"no audio")
    cells = run({"e": [Roughness(paths)]}, out)
    assert list(cells[0].failed) == ["u0"] and cells[0].scored[0].numerator == 0 and len(cells[0].scored) == 6
    assert "set aside u0" in capsys.readouterr().err
    paths[0].write_bytes(content)
    assert run({"e": [Roughness(paths)]}, out)[0].scored[0].numerator == 1


def test_noise_that_cannot_be_had_counts_against_no_encoder_but_ends_the_run(tmp_path):
    class Changed(LiveMixtures):
        def apply(self, samples, condition, utterance):
            if utterance == "u3" and condition.name != "clean":
                raise InputError("the noise has changed")
            return super().apply(samples, condition, utterance)

    with pytest.raises(InputError, match="the noise has changed"):
        run_grid({"e": [Roughness(recordings(tmp_path / "a"))]}, SETTINGS, tmp_path / "out", Changed(Distorter()))
    assert [p.name for p in files(tmp_path / "out")] == ["clean.json"]


def test_silent_speech_counts_as_wrong_and_the_rest_goes_on(tmp_path):
    paths = recordings(tmp_path / "a")
    write_flac(paths[2], np.zeros(8_000))
    cells = run({"e": [Roughness(paths)]}, tmp_path / "out")
    assert all(list(c.failed) == ["u2"] and c.scored[2].numerator == 0 for c in cells[1:])


def test_conditions_of_one_name_and_noise_that_is_not_there_are_refused(tmp_path):
    with pytest.raises(InputError, match="have the name 'seen-pink 5 dB'"):
        check_conditions([CLEAN, NOISY[0], NOISY[0]], Distorter())
    with pytest.raises(InputError, match=r"nowhere\.wav"):
        check_conditions([Setting("unseen", parse_condition(f"{tmp_path}/nowhere.wav@5"))], Distorter())


def test_names_of_recordings(tmp_path):
    first, second = recordings(tmp_path / "a", 2), recordings(tmp_path / "b", 1)
    tasks = [Roughness(first, name="ks"), Roughness(first, name="sid"), Roughness(second, name="ic")]
    names = name_utterances((t.name, t.items) for t in tasks)
    assert names == {("u0", first[0]): "ks/u0", ("u1", first[1]): "u1", ("u0", second[0]): "ic/u0"}
    # some of the items are drawn by the seed and keep their order
    items = [Item(str(i), tmp_path) for i in range(50)]
    found = first_items(items, 10, 0)
    assert found == first_items(items, 10, 0) != first_items(items, 10, 1)
    assert found == [i for i in items if i in found] and len(found) == 10
    assert first_items(items, None, 0) == first_items(items, 99, 0) == items
    assert set(first_items(items[:40], 10, 0)) & set(found)  # adding items changes few of those drawn


def test_one_recording_that_is_written_in_two_ways_is_encoded_once(tmp_path):
    paths = recordings(tmp_path / "a", 2)
    other = [tmp_path / "b" / ".." / "a" / p.name for p in paths]
    first, second = Roughness(paths), Roughness(other, name="sid")
    run({"e": [first, second]}, tmp_path / "out", [CLEAN], workers=1)
    assert all(a is b for a, b in zip(first.encoded, second.encoded, strict=True))


def test_numbers_of_numpy_can_be_written(tmp_path):
    class Numpy(Roughness):
        def score(self, encoded):
            return [type(s)(s.id, s.group, np.float32(s.numerator), np.int64(1)) for s in super().score(encoded)]

    cells = run({"e": [Numpy(recordings(tmp_path / "a"))]}, tmp_path / "out")
    assert cells[0].scored[0].denominator == 1.0


# ---- frozen mixtures


@pytest.fixture
def named(tmp_path):
    return {p.stem: p for p in recordings(tmp_path / "a", 3)}


def test_frozen_mixtures_are_those_of_the_distorter(tmp_path, named):
    frozen = freeze_mixtures(Distorter(7), named, [CLEAN.condition, PINK], tmp_path / "noise.jsonl")
    samples = read_audio(named["u1"])
    assert np.array_equal(frozen.apply(samples, PINK, "u1"), Distorter(7).apply(samples, PINK, "u1"))
    assert frozen.apply(samples, CLEAN.condition, "u1") is samples and frozen.seed == 7


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


def test_what_was_encoded_stays_valid_when_the_manifest_grows(tmp_path, named):
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
