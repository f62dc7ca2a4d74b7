"""Files are whole or absent; hashes tell contents apart."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.errors import InputError
from speechssl.io import hash_bytes, hash_files, hash_json, locked, read_json, replacing, stage, write_json, write_text


def test_a_file_appears_under_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "new" / "folder" / "x.txt"
    with replacing(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == path.parent and temporary.suffix == ".txt"
    assert path.read_text() == "half"
    assert os.listdir(path.parent) == ["x.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, error):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("new")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_a_killed_process_leaves_no_file_under_the_name(tmp_path):
    code = "import os, sys; from speechssl.io import replacing\nwith replacing(sys.argv[1]) as t: t.write_text('half'); os._exit(9)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "x.txt"], env=environment)
    assert done.returncode == 9
    assert not (tmp_path / "x.txt").exists()


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))


@given(VALUES)
def test_json_comes_back_as_it_was(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json(path, value)
    assert read_json(path) == value


def test_json_files_do_not_depend_on_the_order_of_keys(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "语"})
    write_json(tmp_path / "b.json", {"a": "语", "b": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert "语" in (tmp_path / "a.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe"])
def test_what_is_not_json_is_named(tmp_path, content):
    path = tmp_path / "card.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="card.json"):
        read_json(path)


def test_hashes_keep_the_borders_of_their_parts():
    assert hash_bytes(b"ab", b"c") != hash_bytes(b"a", b"bc") != hash_bytes(b"abc")
    assert hash_bytes(b"ab", b"c") == hash_bytes(b"ab", b"c")
    assert len(hash_bytes()) == len(hash_bytes(b"x")) == 16


def test_a_hash_of_files_is_of_contents_in_order(tmp_path):
    for name, text in (("a", "1"), ("b", "2"), ("c", "1")):
        write_text(tmp_path / name, text)
    a, b, c = (Path(tmp_path / name) for name in "abc")
    assert hash_files([a, b]) == hash_files([c, b]) != hash_files([b, a])
    assert hash_files([a]) != hash_files([a, c])


def test_a_hash_of_json_is_of_the_value():
    assert hash_json({"a": 1, "b": [2, 3]}) == hash_json({"b": [2, 3], "a": 1})
    assert hash_json({"a": 1}) != hash_json({"a": "1"})
    assert hash_json([1, 2]) != hash_json([2, 1])


def test_a_folder_belongs_to_what_it_was_first_made_from(tmp_path):
    made = {"data": "1", "options": {"steps": 2, "betas": (0.9, 0.98)}}
    for _ in range(2):  # the same again goes on
        with stage(tmp_path / "a", made):
            pass
    other = {"data": "1", "options": {"steps": 3, "betas": [0.9, 0.98]}, "seed": 1}
    with pytest.raises(InputError, match=r"other inputs \(options\.steps, seed differ\)"), stage(tmp_path / "a", other):
        pytest.fail("it was begun from other inputs")
    assert (tmp_path / "a/made_from.json").is_file()


def test_a_refused_command_leaves_no_folder_that_would_refuse_the_mended_one(tmp_path):
    with pytest.raises(InputError, match="too large"), stage(tmp_path / "a", {"window": 600}):
        (tmp_path / "a/tokenizer.json").write_text("{}")
        raise InputError("too large")
    assert not (tmp_path / "a").exists()
    with stage(tmp_path / "a", {"window": 300}):
        pass
    with pytest.raises(InputError, match="too large"), stage(tmp_path / "a", {"window": 300}):
        raise InputError("too large")
    assert (tmp_path / "a").exists()  # what was begun before is kept
    with pytest.raises(KeyboardInterrupt), stage(tmp_path / "b", {}):
        raise KeyboardInterrupt
    assert (tmp_path / "b/made_from.json").is_file()


def test_a_folder_that_does_not_say_what_it_holds_is_left_alone(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(InputError, match="not empty and does not say"), stage(tmp_path, {}):
        pytest.fail("it holds something else")
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_stage_is_done_when_its_card_is_there(tmp_path):
    for done in (False, True):
        with stage(tmp_path / "a", {"data": "1"}, {"steps": 2}) as step:
            assert step.done == done and step.made_from == {"data": "1", "options": {"steps": 2}}
            if not step.done:
                assert step.finish({"what": "x"}) == {"what": "x"}
            assert step.card == {"what": "x"}


def test_one_run_at_a_time_has_a_folder(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom speechssl.errors import InputError\nfrom speechssl.io import stage\n"
        "try:\n    with stage(Path(sys.argv[1]), {}): pass\nexcept InputError as error: sys.exit(str(error))"
    )
    run = [sys.executable, "-c", code, tmp_path / "a"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with stage(tmp_path / "a", {}), locked(tmp_path / "a"), locked(tmp_path / "a", wait=False):  # the same thread may
        refused = subprocess.run(run, env=environment, capture_output=True, text=True)
        assert refused.returncode == 1 and "another run is writing into" in refused.stderr
    assert subprocess.run(run, env=environment).returncode == 0
