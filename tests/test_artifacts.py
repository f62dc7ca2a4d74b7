"""Test files that are whole or absent, hashes, stages that are done, resumed or refused, and locks."""

import os
import subprocess
import sys

import pytest

from speechssl.artifacts import (
    begin_stage,
    hash_bytes,
    hash_files,
    hash_json,
    lock_folder,
    parse_json,
    read_json,
    replace_file,
    write_text,
)
from speechssl.errors import InputError

from .files import refused

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_a_file_appears_under_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "new" / "folder" / "x.txt"
    with replace_file(path) as temporary:
        temporary.touch(0o600)  # as safetensors writes, for the owner alone
        assert not path.exists()
        assert (temporary.parent, temporary.suffix) == (path.parent, ".txt")
    assert os.listdir(path.parent) == ["x.txt"]
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, error):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(error), replace_file(path) as temporary:
        temporary.write_text("new")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_hashes_depend_on_contents_and_not_on_the_order_of_keys(tmp_path):
    assert hash_json({"a": 1, "b": [2, 3]}) == hash_json({"b": [2, 3], "a": 1})
    assert hash_json({"a": 1}) != hash_json({"a": "1"})
    # the borders between the parts count
    assert len({hash_bytes(b"ab", b"c"), hash_bytes(b"a", b"bc"), hash_bytes(b"abc")}) == 3
    for name, text in (("a", "1"), ("b", "2")):
        write_text(tmp_path / name, text)
    both = [tmp_path / "a", tmp_path / "b"]
    assert hash_files(both) != hash_files(both[::-1])


# ---- stages


@pytest.mark.parametrize("content", ["[]", "{", ""])
def test_a_damaged_card_is_refused(tmp_path, content):
    (tmp_path / "card.json").write_text(content)
    refused("card.json.*make it again", read_json, tmp_path / "card.json")


def test_a_name_twice_in_json_is_refused():
    assert parse_json('{"a": {"b": 1}, "b": 2}') == {"a": {"b": 1}, "b": 2}
    with pytest.raises(ValueError, match="the name 'b' twice"):
        parse_json('{"a": [{"b": 1, "b": 2}]}')


def test_a_stage_is_done_when_its_card_is_written(tmp_path):
    for done in (False, True):
        with begin_stage(tmp_path / "a", {"data": "1"}, {"betas": (0.9, 0.98)}) as step:
            assert step.done == done
            assert step.made_from == {"data": "1", "options": {"betas": [0.9, 0.98]}}
            if not step.done:
                assert step.finish({"what": "x"}) == {"what": "x"}
            assert step.card == {"what": "x"}


def test_a_folder_made_from_other_inputs_is_refused(tmp_path):
    with begin_stage(tmp_path / "a", {"data": "1"}, {"steps": 2}):
        pass
    step = begin_stage(tmp_path / "a", {"data": "1", "seed": 1}, {"steps": 3})
    refused(r"other inputs \(options.steps, seed differ\)", step.__enter__)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/model.safetensors").touch()
    refused("b holds other files", begin_stage(tmp_path / "b", {}).__enter__)


def test_a_stage_goes_on_if_a_number_grows_and_refuses_a_smaller_one(tmp_path):
    for steps, done in ((2, False), (3, False), (3, True)):
        with begin_stage(tmp_path, {}, {"steps": steps}, grows="options.steps") as step:
            assert step.done == done
            step.finish({})
    refused(
        "steps differs", begin_stage(tmp_path, {}, {"steps": 2}, grows="options.steps").__enter__
    )


def test_an_input_error_removes_a_new_folder_and_keeps_an_old_one(tmp_path):
    with pytest.raises(InputError, match="too large"), begin_stage(tmp_path / "a", {"window": 600}):
        (tmp_path / "a/tokenizer.json").write_text("{}")
        raise InputError("too large")
    assert not (tmp_path / "a").exists()
    for error in (KeyboardInterrupt, InputError):  # the second finds the folder of the first
        with pytest.raises(error), begin_stage(tmp_path / "b", {"window": 300}):
            raise error
        assert (tmp_path / "b/made_from.json").is_file()


# ---- locks


def test_a_folder_is_locked_by_one_run_at_a_time(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom speechssl.artifacts import begin_stage\n"
        "with begin_stage(Path(sys.argv[1]), {}): pass"
    )
    run = [sys.executable, "-c", code, tmp_path / "a"]
    # the same thread may lock the folder again
    with begin_stage(tmp_path / "a", {}), lock_folder(tmp_path / "a", wait=False):
        second = subprocess.run(run, env=ENVIRONMENT, capture_output=True, text=True)
    assert "another run is writing into" in second.stderr
    assert subprocess.run(run, env=ENVIRONMENT).returncode == 0
