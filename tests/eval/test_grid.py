"""The grid: every cell a file, every recording heard once, killed runs, damaged files, recordings that cannot be read."""

import json

import numpy as np
import pytest

from speechssl.audio import write_flac
from speechssl.augment import Distorter, parse_condition
from speechssl.errors import InputError
from speechssl.eval.grid import Item, Setting, first_items, name_utterances, run_grid
from speechssl.eval.run import check_conditions

from .listeners import LiveMixtures, Roughness, recordings

CLEAN = Setting("clean", parse_condition("clean"))
NOISY = [Setting("seen", parse_condition("pink@5")), Setting("unseen", parse_condition("gaussian@0"))]
SETTINGS = [CLEAN, *NOISY]


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


def test_tasks_share_what_they_hear_and_every_recording_is_heard_once_a_condition(tmp_path):
    paths = recordings(tmp_path / "a")
    first, second = Roughness(paths), Roughness(paths[:3], name="sid")
    run({"e": [first, second]}, tmp_path / "out", workers=1)
    assert len(first.heard) == 3 * 6 and len(second.heard) == 3 * 3
    assert all(a is b for a, b in zip(first.heard[:3], second.heard[:3], strict=True))


def test_encoders_hear_the_same_mixtures_on_any_number_of_workers(tmp_path):
    paths = recordings(tmp_path / "a")
    one, other = Roughness(paths), Roughness(paths)
    run({"a": [one]}, tmp_path / "x", workers=1)
    run({"b": [other]}, tmp_path / "y", workers=3)
    sums = [sorted(float(np.sum(x)) for x in task.heard) for task in (one, other)]
    assert sums[0] == sums[1]


def test_nothing_is_heard_again_unless_something_changed(tmp_path):
    paths, out = recordings(tmp_path / "a"), tmp_path / "out"
    run({"e": [Roughness(paths)]}, out)
    for change, count in (({}, 0), ({"version": 1}, 18)):
        task = Roughness(paths, **change)
        run({"e": [task]}, out)
        assert len(task.heard) == count
    task = Roughness(paths, version=1)
    run({"e": [task]}, out, seed=1)
    assert len(task.heard) == 18


def test_a_killed_grid_goes_on_and_ends_in_the_same_bytes(tmp_path):
    class Killed(Roughness):
        def encode(self, samples):
            if len(self.heard) == 8:
                raise KeyboardInterrupt
            return super().encode(samples)

    paths, out = recordings(tmp_path / "a"), tmp_path / "out"
    whole = run({"a": [Roughness(paths)], "b": [Roughness(paths, 0.1)]}, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run({"a": [Killed(paths)], "b": [Roughness(paths, 0.1)]}, out, workers=1)
    assert len(files(out)) == 1
    task = Roughness(paths)
    assert run({"a": [task], "b": [Roughness(paths, 0.1)]}, out) == whole
    assert len(task.heard) == 12 and files(out) == files(tmp_path / "whole")


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b"\xff\xfe", "tampered"])
def test_a_damaged_file_of_scores_is_told_and_made_again(tmp_path, damage, capsys):
    paths, out = recordings(tmp_path / "a"), tmp_path / "out"
    whole = run({"e": [Roughness(paths)]}, out)
    before, path = files(out), out / "scores/e/ks-acc/clean.json"
    if damage == "tampered":
        values = json.loads(path.read_text())
        values["items"][0]["numerator"] = 0.0
        damage = json.dumps(values).encode()
    path.write_bytes(damage)
    task = Roughness(paths)
    assert run({"e": [task]}, out) == whole and len(task.heard) == 6 and files(out) == before
    assert "clean.json" in capsys.readouterr().err


def test_what_cannot_be_read_counts_as_wrong_is_told_and_tried_again(tmp_path, capsys):
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


def test_nothing_heard_is_an_error_and_leaves_nothing(tmp_path):
    paths = recordings(tmp_path / "a")
    for path in paths:
        path.unlink()
    with pytest.raises(InputError, match="e, ks, clean: none of the 6 recordings could be encoded"):
        run({"e": [Roughness(paths)]}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_conditions_of_one_name_and_noise_that_is_not_there_are_refused(tmp_path):
    with pytest.raises(InputError, match="have the name 'seen-pink 5 dB'"):
        check_conditions([CLEAN, NOISY[0], NOISY[0]], Distorter())
    with pytest.raises(InputError, match=r"nowhere\.wav"):
        check_conditions([Setting("unseen", parse_condition(f"{tmp_path}/nowhere.wav@5"))], Distorter())


def test_one_id_for_different_recordings_gets_the_tasks_name(tmp_path):
    first, second = recordings(tmp_path / "a", 2), recordings(tmp_path / "b", 1)
    tasks = [Roughness(first, name="ks"), Roughness(first, name="sid"), Roughness(second, name="ic")]
    names = name_utterances((t.name, t.items) for t in tasks)
    assert names == {("u0", first[0]): "ks/u0", ("u1", first[1]): "u1", ("u0", second[0]): "ic/u0"}


def test_one_recording_that_is_written_in_two_ways_is_heard_once(tmp_path):
    paths = recordings(tmp_path / "a", 2)
    other = [tmp_path / "b" / ".." / "a" / p.name for p in paths]
    first, second = Roughness(paths), Roughness(other, name="sid")
    run({"e": [first, second]}, tmp_path / "out", [CLEAN], workers=1)
    assert all(a is b for a, b in zip(first.heard, second.heard, strict=True))


def test_some_of_the_items_are_drawn_by_the_seed_and_keep_their_order(tmp_path):
    items = [Item(str(i), tmp_path) for i in range(50)]
    found = first_items(items, 10, 0)
    assert found == first_items(items, 10, 0) != first_items(items, 10, 1)
    assert found == [i for i in items if i in found] and len(found) == 10
    assert first_items(items, None, 0) == first_items(items, 99, 0) == items
    assert set(first_items(items[:40], 10, 0)) & set(found)  # adding items changes few of those drawn


def test_numbers_of_numpy_can_be_written(tmp_path):
    class Numpy(Roughness):
        def score(self, heard):
            return [type(s)(s.id, s.group, np.float32(s.numerator), np.int64(1)) for s in super().score(heard)]

    cells = run({"e": [Numpy(recordings(tmp_path / "a"))]}, tmp_path / "out")
    assert cells[0].scored[0].denominator == 1.0
