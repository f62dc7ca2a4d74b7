"""Assignment: the argmin of the true distances, whatever is close, and whatever else is in the call."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speechssl.units import kmeans as nearest
from speechssl.units.kmeans import Codebook, Nearest, Product


def truth(features, centroids):
    """The first nearest, by distances in float64."""
    x, c = np.asarray(features, np.float64), np.asarray(centroids, np.float64)
    return np.concatenate([np.square(row[None] - c).sum(1).argmin(keepdims=True) for row in x])


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 3.0, 1e3]), st.sampled_from([1e-3, 1.0, 50.0]), st.integers(1, 40))
def test_it_is_the_argmin_of_float64(seed, offset, scale, clusters):
    centroids = (offset + scale * normal(seed, clusters, 24)).astype(np.float32)
    features = (offset + scale * normal(seed + 1, 150, 24)).astype(np.float32)
    assert np.array_equal(Nearest(centroids)(torch.from_numpy(features)), truth(features, centroids))


def test_what_float32_cannot_tell_is_told_in_float64():
    """Frames half-way between two centroids, moved by less than a float32 product resolves."""
    centroids = 100 + normal(0, 30, 64)
    pairs = np.random.default_rng(1).integers(0, 30, (400, 2))
    middles = centroids[pairs].mean(1).astype(np.float32)
    found, expected = Nearest(centroids)(torch.from_numpy(middles)), truth(middles, centroids)
    assert np.array_equal(found, expected)
    plain = (middles @ centroids.T - np.square(centroids).sum(1) / 2).argmax(1)
    assert (plain != expected).mean() > 0.1  # what one float32 product makes of it


def test_of_equals_the_first_is_taken():
    centroids = np.repeat(normal(0, 5, 16), 3, axis=0)
    found = Nearest(centroids)(torch.from_numpy(normal(1, 60, 16)))
    assert set(found % 3) == {0} and np.array_equal(found, truth(normal(1, 60, 16), centroids))
    assert not Nearest(np.zeros((7, 4), np.float32))(torch.zeros(9, 4)).any()


@given(st.integers(0, 999), st.lists(st.integers(0, 400), min_size=1, max_size=6))
def test_a_frame_does_not_depend_on_the_others(seed, sizes):
    features, find = torch.from_numpy(normal(seed, sum(sizes), 48)), Nearest(normal(seed + 1, 64, 48))
    pieces = np.concatenate([find(piece) for piece in features.split(sizes)])
    assert np.array_equal(find(features), pieces)


def test_neither_blocks_nor_threads_nor_the_kind_of_product_change_it(monkeypatch):
    centroids = normal(0, 40, 32)
    features = torch.from_numpy(centroids[np.random.default_rng(1).integers(0, 40, (900, 2))].mean(1))  # all of them close calls
    expected = truth(features, centroids)
    assert np.array_equal(Nearest(centroids)(features), expected)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert np.array_equal(Nearest(centroids)(features), expected)
    finally:
        torch.set_num_threads(before)
    monkeypatch.setattr(nearest, "CACHED", 64 * 40)
    monkeypatch.setattr(nearest, "EXACT", 100)
    small = Nearest(centroids)
    assert small.products[0].block == 64 and np.array_equal(small(features), expected)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = Nearest(centroids)
    assert len(plain.products) == 1 and not plain.products[0].packed and np.array_equal(plain(features), expected)


@pytest.mark.parametrize("dtypes", [[torch.float32], [torch.bfloat16], [torch.bfloat16, torch.float32]])
@pytest.mark.parametrize("kind", ["normal", "close", "clusters", "far", "ints"])
def test_every_product_leaves_the_nearest_among_its_candidates(monkeypatch, dtypes, kind):
    monkeypatch.setattr(nearest, "_dtypes", lambda device: dtypes)
    centroids, rng = normal(0, 40, 32), np.random.default_rng(1)
    features = {
        "normal": normal(1, 600, 32),
        "close": centroids[rng.integers(0, 40, (600, 2))].mean(1),
        "clusters": centroids[rng.integers(0, 40, 600)] + 0.3 * normal(1, 600, 32),
        "far": 1e4 + normal(1, 600, 32),
        "ints": rng.integers(-3, 4, (600, 32)).astype(np.float32),
    }[kind]
    assert np.array_equal(Nearest(centroids)(torch.from_numpy(features)), truth(features, centroids))


def test_bf16_alone_would_be_wrong_and_settles_most_of_what_is_clear(monkeypatch):
    centroids, rng = normal(0, 40, 32), np.random.default_rng(1)
    product = Product.of(centroids, torch.device("cpu"), torch.bfloat16)
    vague = torch.from_numpy(normal(1, 2_000, 32))
    assert (product._scores(vague).argmax(1).numpy() != truth(vague, centroids)).any()
    clear = torch.from_numpy(centroids[rng.integers(0, 40, 600)] + normal(1, 600, 32))
    frames, _ = product.candidates(clear, clear.norm(dim=1))
    assert (np.bincount(frames) == 1).mean() > 0.8


def test_a_looser_float32_of_torch_does_not_change_it(monkeypatch):
    centroids, features = normal(0, 40, 32), torch.from_numpy(normal(1, 500, 32))
    exact = torch.from_numpy(centroids - centroids.astype(np.float64).mean(0)).float()
    monkeypatch.setattr(nearest, "_dtypes", lambda device: [torch.float32])
    find, expected = Nearest(centroids), truth(features, centroids)

    def rounded(self, block):
        return torch.addmm(self.bias, block.bfloat16().float(), exact.bfloat16().float().T)

    monkeypatch.setattr(Product, "_scores", rounded)
    assert not np.array_equal(find(features), expected)
    before = torch.backends.mkldnn.matmul.fp32_precision
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        assert np.array_equal(find(features), expected)
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before


def test_strided_and_half_precision_features_are_taken():
    book = Codebook(normal(0, 9, 8), {})
    wide = torch.from_numpy(normal(1, 50, 16))
    assert np.array_equal(book.assign(wide[:, ::2]), truth(wide[:, ::2], book.centroids))
    assert np.array_equal(book.assign(wide[:, :8].bfloat16()), truth(wide[:, :8].bfloat16().float(), book.centroids))


def test_no_frames_have_no_units():
    assert Nearest(normal(0, 9, 8))(torch.zeros(0, 8)).shape == (0,)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_features_that_are_not_finite_are_refused(bad):
    features = torch.zeros(3, 8)
    features[1, 2] = bad
    with pytest.raises(ValueError, match="not finite"):
        Nearest(normal(0, 9, 8))(features)


def test_a_codebook_that_was_used_can_be_sent_to_another_process():
    book, features = Codebook(normal(0, 9, 8), {"layer": 1}), torch.from_numpy(normal(1, 50, 8))
    found = book.assign(features)
    assert np.array_equal(pickle.loads(pickle.dumps(book)).assign(features), found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same():
    centroids, features = normal(0, 500, 768), torch.from_numpy(normal(1, 4_000, 768))
    book = Codebook(centroids, {})
    assert np.array_equal(book.assign(features.cuda()), book.assign(features))
