"""What is in a `.pt` is read and never run: stand-ins, refusals, damage."""

import argparse
import builtins
import io
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.encoders.unpickle import Inert, plain, read_pt
from speechssl.errors import InputError

CFG = {"model": {"_name": "hubert", "layers": [1, 2, 3], "nested": {"a": None, "b": 0.5}}, "task": {"normalize": True}}


class Runs:
    """Pickles into a call."""

    def __init__(self, function, *given):
        self.call = (function, given)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("style", ["dict", "omegaconf"])
def test_what_fairseq_writes_is_read_without_fairseq_or_omegaconf(fakes, tmp_path, monkeypatch, style, zipped):
    fakes.write_fairseq(tmp_path / "x.pt", {"w": torch.arange(6.0).reshape(2, 3).t()}, CFG, style, zipped)
    for name in ("fairseq", "omegaconf"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it would raise
    content = read_pt(tmp_path / "x.pt")
    assert torch.equal(content["model"]["w"], torch.arange(6.0).reshape(2, 3).t())
    assert plain(content["cfg"]) == CFG
    assert isinstance(content["task_state"]["dictionaries"][0], Inert)
    assert plain(content["criterion"]) == "default"


def test_the_real_omegaconf_is_read(tmp_path):
    omegaconf = pytest.importorskip("omegaconf")
    torch.save({"cfg": omegaconf.OmegaConf.create(CFG)}, tmp_path / "x.pt")
    assert plain(read_pt(tmp_path / "x.pt")["cfg"]) == CFG


def test_a_namespace_is_its_attributes(tmp_path):
    torch.save({"args": argparse.Namespace(heads=4, inner=argparse.Namespace(a=[1]))}, tmp_path / "x.pt")
    assert plain(read_pt(tmp_path / "x.pt")["args"]) == {"heads": 4, "inner": {"a": [1]}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_come_back_as_they_are(tmp_path, dtype, zipped):
    base = torch.arange(24).reshape(4, 6).to(dtype)
    tensors = {"whole": base, "view": base[1:, ::2], "scalar": base[0, 0], "empty": base[:0], "parameter": None}
    tensors["parameter"] = torch.nn.Parameter(torch.ones(2))
    torch.save(tensors, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    found = read_pt(tmp_path / "x.pt")
    assert all(torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in tensors.items())
    assert not found["parameter"].requires_grad


# ---- refusals


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("function", "given"),
    [
        (os.system, ("touch RAN",)),
        (builtins.eval, ("open('RAN', 'w')",)),
        (builtins.exec, ("open('RAN', 'w')",)),
        (builtins.open, ("RAN", "w")),
        (subprocess.check_call, (["touch", "RAN"],)),
        (pickle.loads, (b"N.",)),
        (torch.load, ("RAN",)),
        (torch.hub.load, ("RAN", "RAN")),
        (builtins.__import__, ("RAN",)),
    ],
)
def test_what_would_run_is_refused_in_a_sentence(tmp_path, monkeypatch, function, given, zipped):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": {"w": torch.ones(1)}, "cfg": Runs(function, *given)}, "x.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match=r"x\.pt would execute .*do not trust this file"):
        read_pt(tmp_path / "x.pt")
    assert not (tmp_path / "RAN").exists()


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_other_protocols_are_read_and_refused_alike(tmp_path, protocol):
    """getattr is inert: enums of some Pythons are pickled as getattr(class, name)."""
    content = {"a": torch.ones(2), "b": Runs(argparse.Namespace), "c": Runs(getattr, [], "append")}
    torch.save(content, tmp_path / "x.pt", pickle_protocol=protocol)
    found = read_pt(tmp_path / "x.pt")
    assert torch.equal(found["a"], torch.ones(2)) and isinstance(found["c"], Inert)
    torch.save({"a": torch.ones(2), "b": Runs(os.system, "true")}, tmp_path / "x.pt", pickle_protocol=protocol)
    with pytest.raises(InputError, match=r"would execute (posix|nt)\.system"):
        read_pt(tmp_path / "x.pt")


def test_models_programs_and_archives_are_refused(tmp_path):
    path = tmp_path / "x.pt"
    with pytest.raises(InputError, match=r"there is no file .*x\.pt"):
        read_pt(path)
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(InputError, match=r"would execute torch\.nn\.modules\.linear\.Linear"):
        read_pt(path)
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)
    with pytest.raises(InputError, match="is a TorchScript program"):
        read_pt(path)
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    with pytest.raises(InputError, match="tar format"):
        read_pt(path)


def test_a_dotted_name_reaches_nothing(tmp_path):
    pickled = b"\x80\x04\x8c\x0bcollections\x8c\x1dOrderedDict.fromkeys.__call__\x93."
    archive = tmp_path / "x.pt"
    torch.save({"a": 1}, archive)
    _replace_record(archive, "data.pkl", pickled)
    assert issubclass(read_pt(archive), Inert)


def test_attributes_of_torch_are_not_changed(tmp_path):
    """BUILD with two states sets attributes of whatever lies on the stack."""
    pickled = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}X\x0e\x00\x00\x00__kwdefaults__}X\x01\x00\x00\x00aK\x01ss\x86b."
    torch.save({"a": 1}, tmp_path / "x.pt")
    _replace_record(tmp_path / "x.pt", "data.pkl", pickled)
    read_pt(tmp_path / "x.pt")
    from speechssl.encoders import unpickle

    assert torch._utils._rebuild_tensor_v2.__kwdefaults__ is None and unpickle._tensor.__kwdefaults__ is None


def test_settings_that_hold_themselves_are_not_followed_for_ever(fakes, tmp_path):
    with fakes.libraries() as classes:
        node = fakes.omegaconf_of({"a": 1}, classes)
        node._content["b"] = node
        torch.save(node, tmp_path / "x.pt")
    with pytest.raises(RecursionError):
        plain(read_pt(tmp_path / "x.pt"))


# ---- damage


def _replace_record(path, suffix, content):
    with zipfile.ZipFile(path) as archive:
        records = {i.filename: archive.read(i) for i in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, old in records.items():
            archive.writestr(name, content if name.endswith(suffix) else old)


@pytest.fixture(scope="module", params=[True, False], ids=["zip", "legacy"])
def whole(fakes, request, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "x.pt"
    state = {f"layer.{i}": torch.from_numpy(np.random.default_rng(i).standard_normal((8, 8)).astype(np.float32)) for i in range(4)}
    fakes.write_fairseq(path, state, CFG, "omegaconf", request.param)
    return path.read_bytes(), state


@pytest.mark.parametrize("keep", [0, 1, 4, 100, 0.3, 0.5, 0.9, 0.999, -1])
def test_a_cut_off_file_is_refused(whole, tmp_path, keep):
    content = whole[0]
    path = tmp_path / "x.pt"
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(InputError, match=r"x\.pt"):
        read_pt(path)


@given(st.data())
def test_a_damaged_byte_is_refused_or_changes_nothing_but_itself(whole, tmp_path_factory, data):
    content, state = whole
    place = data.draw(st.integers(0, len(content) - 1))
    path = tmp_path_factory.mktemp("damaged") / "x.pt"
    path.write_bytes(content[:place] + bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :])
    try:
        found = read_pt(path)
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return
    if content[:2] == b"PK" and isinstance(found, dict) and "model" in found:  # checksums: what is read is what was written
        assert all(torch.equal(found["model"].get(name), tensor) for name, tensor in state.items())


def test_a_flipped_bit_of_a_weight_is_noticed(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"w": torch.full((64,), 1.5)}, path)
    content = path.read_bytes()
    place = content.index(torch.full((4,), 1.5).numpy().tobytes())
    path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    with pytest.raises(InputError, match="does not have its checksum"):
        read_pt(path)


def test_a_tensor_beyond_its_storage_is_refused(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"w": torch.ones(4, 4)}, path)
    with zipfile.ZipFile(path) as archive:
        pickled = next(archive.read(n) for n in archive.namelist() if n.endswith("data.pkl"))
    assert pickled.count(b"K\x04K\x04\x86") == 1  # its shape
    _replace_record(path, "data.pkl", pickled.replace(b"K\x04K\x04\x86", b"K\x06K\x04\x86"))
    with pytest.raises(InputError, match="reaches beyond its storage"):
        read_pt(path)


def test_a_compressed_archive_is_read_right(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"w": torch.arange(1000.0)}, path)
    with zipfile.ZipFile(path) as archive:
        records = {i.filename: archive.read(i) for i in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    assert torch.equal(read_pt(path)["w"], torch.arange(1000.0))
