"""Tests of the restricted unpickler: a `.pt` or a codebook of joblib is read as its library wrote
it, and code in a file is refused and never run."""

import builtins
import io
import os
import pickle
import sys
import tarfile

import joblib
import numpy as np
import pytest
import torch
from sklearn.cluster import DBSCAN, KMeans, MiniBatchKMeans

from speechssl.encoders.unpickle import read_centroids, read_pt, replace_stand_ins

from ..files import refused
from .conftest import write_fairseq

CFG = {
    "model": {"_name": "hubert", "layers": [1, 2, 3], "nested": {"a": None, "b": 0.5}},
    "task": {"normalize": True},
}


class Call:
    """An object of this class is pickled as a call, which an ordinary unpickler would run."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("style", ["dict", "omegaconf"])
def test_a_checkpoint_of_fairseq_is_read_without_fairseq_or_omegaconf(
    tmp_path, monkeypatch, style, zipped
):
    weight = torch.arange(6.0).reshape(2, 3).t()
    write_fairseq(tmp_path / "x.pt", {"w": weight}, CFG, style, zipped)
    for name in ("fairseq", "omegaconf"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it would raise
    content = read_pt(tmp_path / "x.pt")
    assert torch.equal(content["model"]["w"], weight)
    assert replace_stand_ins(content["cfg"]) == CFG
    assert replace_stand_ins(content["criterion"]) == "default"


def test_the_real_omegaconf_is_read(tmp_path):
    omegaconf = pytest.importorskip("omegaconf")
    torch.save({"cfg": omegaconf.OmegaConf.create(CFG)}, tmp_path / "x.pt")
    assert replace_stand_ins(read_pt(tmp_path / "x.pt")["cfg"]) == CFG


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_come_back_as_they_are(tmp_path, dtype, zipped):
    base = torch.arange(24).reshape(4, 6).to(dtype)
    tensors = {"whole": base, "view": base[1:, ::2], "scalar": base[0, 0], "empty": base[:0]}
    tensors["parameter"] = torch.nn.Parameter(torch.ones(2))
    torch.save(tensors, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    content = read_pt(tmp_path / "x.pt")
    for name, tensor in tensors.items():
        assert torch.equal(content[name], tensor)
        assert content[name].dtype == tensor.dtype
    assert not content["parameter"].requires_grad


# ---- refusals


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (os.system, ("touch RAN",)),
        (builtins.eval, ("open('RAN', 'w')",)),
        (pickle.loads, (b"N.",)),
        (torch.load, ("RAN",)),
    ],
)
def test_a_call_in_a_checkpoint_is_refused(tmp_path, monkeypatch, function, arguments, zipped):
    monkeypatch.chdir(tmp_path)
    content = {"model": {"w": torch.ones(1)}, "cfg": Call(function, *arguments)}
    torch.save(content, "x.pt", _use_new_zipfile_serialization=zipped)
    refused(r"x\.pt .*it would execute .*do not trust this file", read_pt, tmp_path / "x.pt")
    assert not (tmp_path / "RAN").exists()


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


# ---- codebooks of joblib

FRAMES = np.random.default_rng(0).standard_normal((200, 32))


def fit(kind=MiniBatchKMeans, dtype=np.float32, seed=0):
    return kind(n_clusters=6, n_init=1, random_state=seed).fit(FRAMES.astype(dtype))


@pytest.mark.parametrize(
    ("kind", "dtype", "seed"),
    [(KMeans, np.float32, 0), (MiniBatchKMeans, np.float64, np.random.RandomState(1))],
)
@pytest.mark.parametrize(
    "options",
    [
        *({"compress": (kind, 3)} for kind in ("zlib", "gzip", "bz2", "lzma", "xz")),
        *({"protocol": number} for number in range(6)),
    ],
)
def test_a_codebook_of_joblib_is_read(tmp_path, kind, dtype, seed, options):
    model = fit(kind, dtype, seed)
    joblib.dump(model, tmp_path / "km.bin", **options)
    centroids, card = read_centroids(tmp_path / "km.bin")
    assert centroids.dtype == np.float32
    assert centroids.flags.c_contiguous
    assert np.array_equal(centroids, model.cluster_centers_.astype(np.float32))
    assert card["kind"] == kind.__name__


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("within_estimator", [False, True])
def test_a_call_in_a_codebook_is_refused(tmp_path, monkeypatch, protocol, within_estimator):
    monkeypatch.chdir(tmp_path)
    model, call = fit(), Call(os.mkdir, "boom")
    model.verbose = call
    joblib.dump(model if within_estimator else call, "km.bin", protocol=protocol)
    refused(r"it would execute (posix|nt)\.mkdir", read_centroids, tmp_path / "km.bin")
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize(
    "content",  # with the opcodes that would call a function
    [
        b"cos\nsystem\n(S'touch boom'\ntR.",  # GLOBAL, REDUCE
        b"(S'touch boom'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'touch boom'\no.",  # OBJ
        b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n(N}S'__call__'\nNstb.",  # BUILD: would set __call__ of the class
        # REDUCE: an object of the class os.system
        b"ccopy_reg\n_reconstructor\n(cos\nsystem\nc__builtin__\nobject\nNtR.",
        b"\x80\x02\x82\x01.",  # EXT1: whatever copyreg has under the number 1
        b"S'persistent'\nQ.",  # BINPERSID: what a program has under this name
        # BUILD: an array of 10^13 numbers, none of which follow
        b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)R}(S'shape'\n(L9999999999999L\ntS'dtype'\ncnumpy\ndtype\n(S'f8'\ntRub.",
        b"",
    ],
)
def test_hand_made_pickles_are_refused_in_one_sentence(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "km.bin").write_bytes(content)
    refused(r"^.*km\.bin [^\n]*$", read_centroids, tmp_path / "km.bin")
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (KMeans(3), "KeyError: 'cluster_centers_'"),
        (DBSCAN(), "KeyError: 'cluster_centers_'"),
    ],
)
def test_an_object_that_is_no_codebook_is_refused(tmp_path, value, message):
    joblib.dump(value, tmp_path / "km.bin")
    refused(message, read_centroids, tmp_path / "km.bin")
