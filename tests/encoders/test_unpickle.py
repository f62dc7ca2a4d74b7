"""What is in a `.pt` or in a codebook of joblib is read and never run: stand-ins, refusals,
damage."""

import argparse
import builtins
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile

import joblib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN, KMeans, MiniBatchKMeans

from speechssl.encoders.unpickle import Inert, plain, read_centroids, read_pt
from speechssl.errors import InputError

from ..files import refused

CFG = {
    "model": {"_name": "hubert", "layers": [1, 2, 3], "nested": {"a": None, "b": 0.5}},
    "task": {"normalize": True},
}


class Runs:
    """Pickles into a call."""

    def __init__(self, function, *given):
        self.call = (function, given)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("style", ["dict", "omegaconf"])
def test_what_fairseq_writes_is_read_without_fairseq_or_omegaconf(
    fakes, tmp_path, monkeypatch, style, zipped
):
    fakes.write_fairseq(
        tmp_path / "x.pt", {"w": torch.arange(6.0).reshape(2, 3).t()}, CFG, style, zipped
    )
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
    torch.save(
        {"args": argparse.Namespace(heads=4, inner=argparse.Namespace(a=[1]))}, tmp_path / "x.pt"
    )
    assert plain(read_pt(tmp_path / "x.pt")["args"]) == {"heads": 4, "inner": {"a": [1]}}


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_come_back_as_they_are(tmp_path, dtype, zipped):
    base = torch.arange(24).reshape(4, 6).to(dtype)
    tensors = {
        "whole": base,
        "view": base[1:, ::2],
        "scalar": base[0, 0],
        "empty": base[:0],
        "parameter": None,
    }
    tensors["parameter"] = torch.nn.Parameter(torch.ones(2))
    torch.save(tensors, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    found = read_pt(tmp_path / "x.pt")
    assert all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype
        for name, tensor in tensors.items()
    )
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
    torch.save(
        {"model": {"w": torch.ones(1)}, "cfg": Runs(function, *given)},
        "x.pt",
        _use_new_zipfile_serialization=zipped,
    )
    refused(r"x\.pt .*it would execute .*do not trust this file", read_pt, tmp_path / "x.pt")
    assert not (tmp_path / "RAN").exists()


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_other_protocols_are_read_and_refused_alike(tmp_path, protocol):
    """getattr is inert: enums of some Pythons are pickled as getattr(class, name)."""
    content = {"a": torch.ones(2), "b": Runs(argparse.Namespace), "c": Runs(getattr, [], "append")}
    torch.save(content, tmp_path / "x.pt", pickle_protocol=protocol)
    found = read_pt(tmp_path / "x.pt")
    assert torch.equal(found["a"], torch.ones(2)) and isinstance(found["c"], Inert)
    torch.save(
        {"a": torch.ones(2), "b": Runs(os.system, "true")},
        tmp_path / "x.pt",
        pickle_protocol=protocol,
    )
    refused(r"would execute (posix|nt)\.system", read_pt, tmp_path / "x.pt")


def test_models_programs_and_archives_are_refused(tmp_path):
    path = tmp_path / "x.pt"
    refused(r"cannot read .*x\.pt .*No such file", read_pt, path)
    torch.save(torch.nn.Linear(2, 2), path)
    refused(r"would execute torch\.nn\.modules\.linear\.Linear", read_pt, path)
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)
    refused("is a TorchScript program", read_pt, path)
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    refused("tar format", read_pt, path)


def test_a_dotted_name_reaches_nothing(tmp_path):
    pickled = b"\x80\x04\x8c\x0bcollections\x8c\x1dOrderedDict.fromkeys.__call__\x93."
    torch.save({"a": 1}, tmp_path / "x.pt")
    rewrite(tmp_path / "x.pt", lambda _: pickled)
    assert issubclass(read_pt(tmp_path / "x.pt"), Inert)


def test_attributes_of_torch_are_not_changed(tmp_path):
    """BUILD with two states sets attributes of whatever lies on the stack."""
    pickled = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}X\x0e\x00\x00\x00__kwdefaults__}X\x01\x00\x00\x00aK\x01ss\x86b."
    torch.save({"a": 1}, tmp_path / "x.pt")
    rewrite(tmp_path / "x.pt", lambda _: pickled)
    read_pt(tmp_path / "x.pt")
    assert torch._utils._rebuild_tensor_v2.__kwdefaults__ is None


# ---- damage


def rewrite(path, change=lambda pickled: pickled, compression=zipfile.ZIP_STORED):
    """Write an archive of torch again, with another pickle in it or compressed."""
    with zipfile.ZipFile(path) as archive:
        records = {i.filename: archive.read(i) for i in archive.infolist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in records.items():
            archive.writestr(name, change(content) if name.endswith("data.pkl") else content)


@pytest.fixture(scope="module", params=[True, False], ids=["zip", "legacy"])
def whole(fakes, request, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "x.pt"
    state = {
        f"layer.{i}": torch.from_numpy(
            np.random.default_rng(i).standard_normal((8, 8)).astype(np.float32)
        )
        for i in range(4)
    }
    fakes.write_fairseq(path, state, CFG, "omegaconf", request.param)
    return path.read_bytes(), state


@pytest.mark.parametrize("keep", [0, 4, 0.3, 0.999, -1])
def test_a_cut_off_file_is_refused(whole, tmp_path, keep):
    content = whole[0]
    path = tmp_path / "x.pt"
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    refused(r"x\.pt", read_pt, path)


@given(st.data())
def test_a_damaged_byte_is_refused_or_changes_nothing_but_itself(whole, tmp_path_factory, data):
    content, state = whole
    place = data.draw(st.integers(0, len(content) - 1))
    path = tmp_path_factory.mktemp("damaged") / "x.pt"
    path.write_bytes(
        content[:place]
        + bytes([content[place] ^ data.draw(st.integers(1, 255))])
        + content[place + 1 :]
    )
    try:
        found = read_pt(path)
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return
    # checksums: what is read is what was written
    if content[:2] == b"PK" and isinstance(found, dict) and "model" in found:
        assert all(torch.equal(found["model"].get(name), tensor) for name, tensor in state.items())


def test_a_flipped_bit_of_a_weight_is_noticed(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"w": torch.full((64,), 1.5)}, path)
    content = path.read_bytes()
    place = content.index(torch.full((4,), 1.5).numpy().tobytes())
    path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    refused("does not have its checksum", read_pt, path)


def test_a_compressed_archive_is_read_right(tmp_path):
    torch.save({"w": torch.arange(1000.0)}, tmp_path / "x.pt")
    rewrite(tmp_path / "x.pt", compression=zipfile.ZIP_DEFLATED)
    assert torch.equal(read_pt(tmp_path / "x.pt")["w"], torch.arange(1000.0))


# ---- codebooks of joblib

FRAMES = np.random.default_rng(0).standard_normal((200, 32))


def fitted(kind=MiniBatchKMeans, dtype=np.float32, **options):
    return kind(6, n_init=1, **{"random_state": 0} | options).fit(FRAMES.astype(dtype))


@pytest.mark.parametrize(
    ("kind", "dtype", "seed"),
    [(KMeans, np.float32, 0), (MiniBatchKMeans, np.float64, np.random.RandomState(1))],
)
@pytest.mark.parametrize(
    "options",
    [
        *(
            {"compress": kind}
            for kind in (0, 3, ("zlib", 9), ("gzip", 3), ("bz2", 3), ("lzma", 3), ("xz", 3))
        ),
        *({"protocol": number} for number in range(6)),
    ],
)
def test_what_joblib_writes_is_read(tmp_path, kind, dtype, seed, options):
    model = fitted(kind, dtype, random_state=seed)
    joblib.dump(model, tmp_path / "km.bin", **options)
    centroids, card = read_centroids(tmp_path / "km.bin")
    assert centroids.dtype == np.float32 and centroids.flags.c_contiguous
    assert np.array_equal(centroids, model.cluster_centers_.astype(np.float32))
    assert (
        card["kind"] == kind.__name__
        and card["file"] == "km.bin"
        and card["scikit-learn"].count(".") == 2
    )


@pytest.mark.parametrize("protocol", range(5))
def test_a_plain_pickle_is_read(tmp_path, protocol):
    model = fitted()
    (tmp_path / "km.pkl").write_bytes(pickle.dumps(model, protocol))
    assert np.array_equal(read_centroids(tmp_path / "km.pkl")[0], model.cluster_centers_)


@pytest.mark.parametrize("stored", [np.asfortranarray, lambda x: x.astype(">f8")])
def test_memory_order_and_byte_order_are_kept_and_no_other_attributes_are_needed(tmp_path, stored):
    model = fitted(dtype=np.float64)
    expected = model.cluster_centers_.astype(np.float32)
    model.__dict__ = {"cluster_centers_": stored(model.cluster_centers_)}
    joblib.dump(model, tmp_path / "km.bin")
    assert np.array_equal(read_centroids(tmp_path / "km.bin")[0], expected)


@pytest.mark.parametrize(
    ("now", "before"),
    [
        ("numpy._core.multiarray", "numpy.core.multiarray"),  # numpy 1
        ("sklearn.cluster._kmeans", "sklearn.cluster.k_means_"),  # scikit-learn 0.21
        ("joblib.numpy_pickle", "sklearn.externals.joblib.numpy_pickle"),  # scikit-learn 0.20
    ],
)
def test_names_of_older_versions_are_known(tmp_path, now, before):
    model = fitted()
    model.odd = np.float32(3.5)  # a scalar names numpy's multiarray
    content, packed = (
        unframed(model),
        [b"\x8c" + struct.pack("<B", len(name)) + name.encode() for name in (now, before)],
    )
    assert packed[0] in content
    (tmp_path / "old.bin").write_bytes(content.replace(*packed))
    assert np.array_equal(read_centroids(tmp_path / "old.bin")[0], model.cluster_centers_)


def unframed(model):
    """joblib's pickle of protocol 4 without the frames, whose stated lengths would no longer be
    right."""
    from joblib.numpy_pickle import NumpyPickler

    class Unframed(NumpyPickler):
        def __init__(self, file):
            super().__init__(file, protocol=4)
            self.framer.start_framing = lambda: None
            self.framer.commit_frame = lambda force=False: None

    file = io.BytesIO()
    Unframed(file).dump(model)
    return file.getvalue()


def test_wrappers_of_joblib_before_1_2_have_no_padding(tmp_path, monkeypatch):
    from joblib.numpy_pickle import NumpyArrayWrapper

    model, made = fitted(), NumpyArrayWrapper.__init__

    def older(self, *a, **k):
        made(self, *a, **k)
        del self.numpy_array_alignment_bytes

    monkeypatch.setattr(NumpyArrayWrapper, "__init__", older)
    joblib.dump(model, tmp_path / "km.bin")
    assert np.array_equal(read_centroids(tmp_path / "km.bin")[0], model.cluster_centers_)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("hidden", [False, True])
def test_no_function_of_the_file_is_called(tmp_path, monkeypatch, protocol, hidden):
    monkeypatch.chdir(tmp_path)
    model, call = fitted(), Runs(os.mkdir, "boom")
    model.verbose = call
    joblib.dump(model if hidden else call, "km.bin", protocol=protocol)
    refused(r"it would execute (posix|nt)\.mkdir", read_centroids, tmp_path / "km.bin")
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'touch boom'\ntR.",  # GLOBAL, REDUCE
        b"(S'touch boom'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'touch boom'\no.",  # OBJ
        b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n(N}S'__call__'\nNstb.",  # state for a name
        b"ccopy_reg\n_reconstructor\n(cos\nsystem\nc__builtin__\nobject\nNtR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"\x80\x02\x82\x01.",  # EXT1
        b"S'persistent'\nQ.",  # BINPERSID
        b"ccopy_reg\n_reconstructor\n(S'x'\ntR.",
        b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)R}(S'shape'\n(L9999999999999L\ntS'dtype'\ncnumpy\ndtype\n(S'f8'\ntRub.",
        b"cnumpy\ndtype\n(S'O8'\ntR.",
        b"].",
        b"I1\n.",
        b".",
        b"",
        b"x\x9c",
        b"\x1f\x8b",
        b"PK\x03\x04",
    ],
)
def test_hand_made_pickles_are_refused_in_one_sentence(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "km.bin").write_bytes(content)
    refused(r"^.*km\.bin [^\n]*$", read_centroids, tmp_path / "km.bin")
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize("compress", [0, 3])
def test_a_file_that_is_cut_off_is_refused(tmp_path, compress):
    joblib.dump(fitted(), tmp_path / "km.bin", compress=compress)
    content = (tmp_path / "km.bin").read_bytes()
    for size in range(1, len(content), max(len(content) // 20, 1)):
        (tmp_path / "cut.bin").write_bytes(content[:size])
        refused(r"cut\.bin ", read_centroids, tmp_path / "cut.bin")


def with_centres(centres):
    model = fitted()
    model.cluster_centers_ = centres
    return model


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (KMeans(3), "KeyError: 'cluster_centers_'"),
        (DBSCAN(), "it holds DBSCAN, not a KMeans"),
        ({"cluster_centers_": FRAMES}, "it holds dict, not a KMeans"),
        (np.array(["a", None]), "km.bin"),
        (with_centres(np.full((3, 2), np.nan)), "its cluster_centers_ are not finite"),
        (with_centres(np.zeros((0, 3))), "its cluster_centers_ are not finite"),
        (with_centres(np.zeros(4)), "its cluster_centers_ are not finite"),
        (with_centres("text"), "km.bin"),
    ],
)
def test_what_is_no_codebook_is_named(tmp_path, value, message):
    joblib.dump(value, tmp_path / "km.bin")
    refused(message, read_centroids, tmp_path / "km.bin")
