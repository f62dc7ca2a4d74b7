"""What is in a `.pt` or in a codebook of joblib is read and never run: stand-ins, refusals,
damage."""

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

from speechssl.encoders.unpickle import plain, read_centroids, read_pt

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
    assert plain(content["criterion"]) == "default"


def test_the_real_omegaconf_is_read(tmp_path):
    omegaconf = pytest.importorskip("omegaconf")
    torch.save({"cfg": omegaconf.OmegaConf.create(CFG)}, tmp_path / "x.pt")
    assert plain(read_pt(tmp_path / "x.pt")["cfg"]) == CFG


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_come_back_as_they_are(tmp_path, dtype, zipped):
    base = torch.arange(24).reshape(4, 6).to(dtype)
    tensors = {"whole": base, "view": base[1:, ::2], "scalar": base[0, 0], "empty": base[:0]}
    tensors["parameter"] = torch.nn.Parameter(torch.ones(2))
    torch.save(tensors, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    found = read_pt(tmp_path / "x.pt")
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
        assert found[name].dtype == tensor.dtype
    assert not found["parameter"].requires_grad


# ---- refusals


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("function", "given"),
    [
        (os.system, ("touch RAN",)),
        (builtins.eval, ("open('RAN', 'w')",)),
        (pickle.loads, (b"N.",)),
        (torch.load, ("RAN",)),
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


def fitted(kind=MiniBatchKMeans, dtype=np.float32, **options):
    return kind(6, n_init=1, **{"random_state": 0} | options).fit(FRAMES.astype(dtype))


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
def test_what_joblib_writes_is_read(tmp_path, kind, dtype, seed, options):
    model = fitted(kind, dtype, random_state=seed)
    joblib.dump(model, tmp_path / "km.bin", **options)
    centroids, card = read_centroids(tmp_path / "km.bin")
    assert centroids.dtype == np.float32 and centroids.flags.c_contiguous
    assert np.array_equal(centroids, model.cluster_centers_.astype(np.float32))
    assert card["kind"] == kind.__name__


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
        b"\x80\x02\x82\x01.",  # EXT1
        b"S'persistent'\nQ.",  # BINPERSID
        b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)R}(S'shape'\n(L9999999999999L\ntS'dtype'\ncnumpy\ndtype\n(S'f8'\ntRub.",
        b"",
    ],
)
def test_hand_made_pickles_are_refused_in_one_sentence(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "km.bin").write_bytes(content)
    refused(r"^.*km\.bin [^\n]*$", read_centroids, tmp_path / "km.bin")
    assert not (tmp_path / "boom").exists()


def with_centres(centres):
    model = fitted()
    model.cluster_centers_ = centres
    return model


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (KMeans(3), "KeyError: 'cluster_centers_'"),
        (DBSCAN(), "it holds DBSCAN, not a KMeans"),
        (with_centres(np.full((3, 2), np.nan)), "its cluster_centers_ are not finite"),
        (with_centres(np.zeros(4)), "its cluster_centers_ are not finite"),
    ],
)
def test_what_is_no_codebook_is_named(tmp_path, value, message):
    joblib.dump(value, tmp_path / "km.bin")
    refused(message, read_centroids, tmp_path / "km.bin")
