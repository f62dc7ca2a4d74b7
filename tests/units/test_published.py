"""Published codebooks: what joblib really writes, what it wrote once, and what a file could hide."""

import os
import pickle
import struct
import zlib

import joblib
import numpy as np
import pytest
from sklearn.cluster import DBSCAN, KMeans, MiniBatchKMeans
from sklearn.pipeline import Pipeline

from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.io import read_json
from speechssl.units import published
from speechssl.units.features import UnitExtractor, load_features_of
from speechssl.units.kmeans import load_codebook
from speechssl.units.published import import_codebook, read_centroids

FRAMES = np.random.default_rng(0).standard_normal((200, 32))


def fitted(kind=MiniBatchKMeans, dtype=np.float32, **options):
    return kind(6, n_init=1, **{"random_state": 0} | options).fit(FRAMES.astype(dtype))


# ---- what is taken


@pytest.mark.parametrize(("kind", "dtype"), [(KMeans, np.float32), (MiniBatchKMeans, np.float64)])
@pytest.mark.parametrize("compress", [0, 3, ("zlib", 9), ("gzip", 3), ("bz2", 3), ("lzma", 3), ("xz", 3)])
def test_what_joblib_writes_is_read(tmp_path, kind, dtype, compress):
    model = fitted(kind, dtype)
    joblib.dump(model, tmp_path / "km.bin", compress=compress)
    centroids, card = read_centroids(tmp_path / "km.bin")
    assert centroids.dtype == np.float32 and centroids.flags.c_contiguous
    assert np.array_equal(centroids, model.cluster_centers_.astype(np.float32))
    assert card["kind"] == kind.__name__ and card["file"] == "km.bin" and card["scikit-learn"].count(".") == 2


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read(tmp_path, protocol):
    model = fitted(random_state=np.random.RandomState(1) if protocol % 2 else None)
    joblib.dump(model, tmp_path / "km.bin", protocol=protocol)
    assert np.array_equal(read_centroids(tmp_path / "km.bin")[0], model.cluster_centers_)


@pytest.mark.parametrize("protocol", range(5))
def test_a_plain_pickle_is_read(tmp_path, protocol):
    model = fitted()
    (tmp_path / "km.pkl").write_bytes(pickle.dumps(model, protocol))
    assert np.array_equal(read_centroids(tmp_path / "km.pkl")[0], model.cluster_centers_)


@pytest.mark.parametrize("change", ["order", "byte order", "no attributes"])
def test_memory_order_and_byte_order_are_kept(tmp_path, change):
    model = fitted(dtype=np.float64)
    expected = model.cluster_centers_.astype(np.float32)
    if change == "order":
        model.cluster_centers_ = np.asfortranarray(model.cluster_centers_)
    elif change == "byte order":
        model.cluster_centers_ = model.cluster_centers_.astype(">f8")
    else:
        model.__dict__ = {"cluster_centers_": model.cluster_centers_}
    joblib.dump(model, tmp_path / "km.bin")
    assert np.array_equal(read_centroids(tmp_path / "km.bin")[0], expected)


def renamed(content, **names):
    """A pickle whose short strings are exchanged for others, with their lengths."""
    for old, new in names.values():
        packed = [b"\x8c" + struct.pack("<B", len(name)) + name.encode() for name in (old, new)]
        assert packed[0] in content
        content = content.replace(*packed)
    return content


@pytest.mark.parametrize(
    "names",
    [
        {"numpy 1": ("numpy._core.multiarray", "numpy.core.multiarray")},
        {"sklearn 0.21": ("sklearn.cluster._kmeans", "sklearn.cluster.k_means_")},
        {"sklearn 0.20": ("joblib.numpy_pickle", "sklearn.externals.joblib.numpy_pickle")},
    ],
)
def test_names_of_older_versions_are_known(tmp_path, names):
    model = fitted()
    model.odd = np.float32(3.5)  # a scalar names numpy's multiarray
    (tmp_path / "old.bin").write_bytes(renamed(unframed(model), **names))
    assert np.array_equal(read_centroids(tmp_path / "old.bin")[0], model.cluster_centers_)


def unframed(model):
    """joblib's pickle of protocol 4 without the frames, whose stated lengths would no longer be right."""
    import io

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


# ---- as a codebook


@pytest.mark.slow
def test_an_imported_codebook_gives_scikit_learns_units(tmp_path, encoder, hubert_folder):
    samples = np.random.default_rng(1).uniform(-0.5, 0.5, 24_000).astype(np.float32)
    features = encoder.features(samples, 2)
    model = MiniBatchKMeans(5, n_init=1, random_state=0).fit(features.numpy())
    joblib.dump(model, tmp_path / "km.bin", compress=3)
    name, out = str(hubert_folder("layer")), tmp_path / "units.safetensors"
    made = import_codebook(tmp_path / "km.bin", out, name, 2)
    book = load_codebook(out)
    assert book.hash == made.hash and np.array_equal(book.assign(features), model.predict(features.numpy()))
    assert np.array_equal(UnitExtractor(load_features_of(book, name), book).frames(samples), model.predict(features.numpy()))
    card = read_json(out.with_suffix(".card.json"))
    assert {"encoder": load_encoder(name).hash, "layer": 2, "K": 5, "smooth": 1, "padding": "none"}.items() <= card.items()
    assert card["imported"]["file"] == "km.bin" and len(card["imported"]["hash"]) == 16


@pytest.mark.slow
def test_an_imported_codebook_is_written_once_and_no_other_is_overwritten(tmp_path, hubert_folder):
    name, out = str(hubert_folder("layer")), tmp_path / "units.safetensors"
    joblib.dump(fitted(), tmp_path / "km.bin")
    first = import_codebook(tmp_path / "km.bin", out, name, 1)
    written = out.stat().st_mtime_ns
    assert import_codebook(tmp_path / "km.bin", out, name, 1).hash == first.hash and out.stat().st_mtime_ns == written
    with pytest.raises(InputError, match=r"was made from other inputs \(layer differ\)"):
        import_codebook(tmp_path / "km.bin", out, name, 2)
    with pytest.raises(InputError, match=r"must end in .safetensors"):
        import_codebook(tmp_path / "km.bin", tmp_path / "km.4", name, 1)


@pytest.mark.slow
def test_a_codebook_that_does_not_fit_is_refused(tmp_path, hubert_folder):
    out, name = tmp_path / "units.safetensors", str(hubert_folder("layer"))
    with pytest.raises(InputError, match="MFCCs are scaled differently"):
        import_codebook(tmp_path / "km.bin", out, "mfcc", 0)
    joblib.dump(KMeans(2, n_init=1).fit(FRAMES[:, :7]), tmp_path / "km.bin")
    with pytest.raises(InputError, match="have 7 dimensions, the layers of .* 32; give the encoder"):
        import_codebook(tmp_path / "km.bin", out, name, 1)
    joblib.dump(fitted(), tmp_path / "km.bin")
    with pytest.raises(InputError, match="has the layers 0 to 2, not 22"):
        import_codebook(tmp_path / "km.bin", out, name, 22)
    assert not out.exists()


# ---- what is not taken


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("boom",)


class Harmless:
    def __reduce__(self):
        return len, ((),)


@pytest.mark.parametrize("bomb", [Bomb, Harmless])
@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("hidden", [False, True])
def test_no_function_of_the_file_is_called(tmp_path, monkeypatch, bomb, protocol, hidden):
    monkeypatch.chdir(tmp_path)
    model = fitted()
    if hidden:
        model.verbose = bomb()
    joblib.dump(model if hidden else bomb(), "km.bin", protocol=protocol)
    with pytest.raises(InputError, match=r"names (posix|builtins|__builtin__|nt)\.(mkdir|len), which no codebook needs"):
        read_centroids(tmp_path / "km.bin")
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
    with pytest.raises(InputError, match=r"^.*km\.bin [^\n]*$"):
        read_centroids(tmp_path / "km.bin")
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize("compress", [0, 3])
def test_a_file_that_is_cut_off_is_refused(tmp_path, compress):
    joblib.dump(fitted(), tmp_path / "km.bin", compress=compress)
    content = (tmp_path / "km.bin").read_bytes()
    for size in range(1, len(content), max(len(content) // 60, 1)):
        (tmp_path / "cut.bin").write_bytes(content[:size])
        with pytest.raises(InputError, match=r"cut\.bin "):
            read_centroids(tmp_path / "cut.bin")


def test_damaged_bytes_give_centroids_or_one_sentence(tmp_path, monkeypatch):
    joblib.dump(fitted(), tmp_path / "km.bin")
    content, rng, refused = (tmp_path / "km.bin").read_bytes(), np.random.default_rng(0), 0
    for _ in range(300):
        damaged = bytearray(content)
        for at in rng.integers(0, len(content), 3):
            damaged[at] = rng.integers(256)
        (tmp_path / "bad.bin").write_bytes(bytes(damaged))
        try:
            assert np.isfinite(read_centroids(tmp_path / "bad.bin")[0]).all()
        except InputError:
            refused += 1
    assert refused > 100


def with_centres(centres):
    model = fitted()
    model.cluster_centers_ = centres
    return model


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (KMeans(3), "without finite cluster_centers_"),
        (DBSCAN(), "names sklearn.cluster._dbscan.DBSCAN"),
        (Pipeline([("k", KMeans(3))]), "names sklearn.pipeline.Pipeline"),
        ({"cluster_centers_": FRAMES}, "holds dict, not a KMeans"),
        (FRAMES, "holds NumpyArrayWrapper, not a KMeans"),
        (np.array(["a", None]), "holds arrays of O8, not only of numbers"),
        *(
            (with_centres(centres), "without finite cluster_centers_")
            for centres in (np.full((3, 2), np.nan), np.zeros((0, 3)), np.zeros(4), np.zeros((3, 2), int), "text")
        ),
    ],
)
def test_what_is_no_codebook_is_named(tmp_path, value, message):
    joblib.dump(value, tmp_path / "km.bin")
    with pytest.raises(InputError, match=message):
        read_centroids(tmp_path / "km.bin")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ZF0x10              " + zlib.compress(b"x"), "was written by a joblib before 0.10"),
        (b"cjoblib.numpy_pickle\nNDArrayWrapper\n)R.", "was written by a joblib before 0.10"),
        (zlib.compress(bytes(1_000_000)), "holds more than 10000 bytes"),
        (None, "cannot read the codebook .*km.bin"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path, monkeypatch, content, message):
    monkeypatch.setattr(published, "LIMIT", 10_000)
    if content:
        (tmp_path / "km.bin").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_centroids(tmp_path / "km.bin")
