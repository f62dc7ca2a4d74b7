"""Codebooks: assignment against brute force, the reservoir against chance, files against
tampering."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from speechssl.checkpoints import SHIPPED
from speechssl.units import codebook
from speechssl.units.codebook import Codebook, Nearest, load_codebook
from speechssl.units.features import smooth, smooth_stream
from speechssl.units.kmeans import Reservoir, fit_kmeans

from ..files import refused

CARD = {"encoder": "abc", "layer": 1, "frame_rate": 50.0}


# ---- smoothing


@given(st.lists(st.integers(0, 9), max_size=8), st.sampled_from([1, 3, 5, 9]), st.integers(0, 99))
def test_smoothing_a_stream_is_smoothing_the_whole(sizes, width, seed):
    whole = torch.from_numpy(normal(seed, sum(sizes), 3))
    pieces = list(smooth_stream(whole.split(sizes) if sizes else [], width))
    expected = smooth(whole, width) if len(whole) else whole
    assert torch.equal(torch.cat([whole[:0], *pieces]), expected)


# ---- the reservoir


def kept(budget, sizes, seed):
    reservoir, at = Reservoir(budget, seed), 0
    for size in sizes:
        reservoir.add(np.arange(at, at + size, dtype=np.float32)[:, None])
        at += size
    assert reservoir.seen == at
    return reservoir.sample[:, 0].astype(int)


class OneByOne(Reservoir):
    """Algorithm R as it is written down: every late frame by itself."""

    def add(self, frames):
        for row in frames:
            if not self.seen:
                self.rows = np.empty((self.budget, len(row)), np.float32)
            slot = self.seen if self.seen < self.budget else self.rng.integers(0, self.seen + 1)
            if slot < self.budget:
                self.rows[slot] = row
            self.seen += 1


@given(
    st.integers(1, 40), st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(0, 999)
)
def test_a_reservoir_does_not_depend_on_how_the_stream_is_cut(budget, sizes, seed):
    one = OneByOne(budget, seed)
    one.add(np.arange(sum(sizes), dtype=np.float32)[:, None])
    if sum(sizes):
        expected = one.sample[:, 0].astype(int)
        assert np.array_equal(kept(budget, sizes, seed), expected)
        assert np.array_equal(kept(budget, [sum(sizes)], seed), expected)


# ---- fitting


def blobs(seed=0, count=60):
    rng = np.random.default_rng(seed)
    centres = np.array([[0, 0], [10, 0], [0, 10], [10, 10]], np.float32)
    noise = [rng.normal(0, 0.3, (20, 2)).astype(np.float32) for _ in range(count)]
    return centres, [centres[i % 4] + some for i, some in enumerate(noise)]


def test_clusters_are_found():
    centres, stream = blobs()
    book = fit_kmeans(iter(stream), 4, CARD, budget=500)
    distances = np.linalg.norm(book.centroids[:, None] - centres[None], axis=-1)
    assert sorted(distances.argmin(1)) == [0, 1, 2, 3]
    assert distances.min(1).max() < 0.2
    wanted = {"encoder": "abc", "layer": 1, "frames": 1_200, "budget": 500, "seed": 0}
    assert wanted.items() <= book.card.items()
    assert book.card["inertia"] == pytest.approx(2 * 0.3**2, rel=0.2)
    first, again, other = (
        fit_kmeans(iter(stream), 7, CARD, budget=300, seed=seed).hash for seed in (1, 1, 2)
    )
    assert first == again != other
    wanted = "3 frames of speech cannot make 4 clusters; give fewer --clusters"
    refused(wanted, fit_kmeans, [np.zeros((3, 2))], 4, CARD)


# ---- files


@pytest.fixture
def saved(tmp_path):
    book = Codebook(np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32), CARD)
    book.save(tmp_path / "book.safetensors")
    return book, tmp_path / "book.safetensors"


def test_a_codebook_comes_back_as_it_was(saved):
    book, path = saved
    loaded = load_codebook(str(path))
    assert np.array_equal(loaded.centroids, book.centroids)
    assert loaded.card == CARD | {"K": 6, "hash": book.hash}
    Codebook(book.centroids[:, ::2], CARD).save(path)  # strided
    assert np.array_equal(load_codebook(path).centroids, book.centroids[:, ::2])


def test_changed_and_missing_files_are_named(saved):
    _, path = saved
    centroids = load_file(path)["centroids"]
    centroids[2, 1] += 1e-4
    save_file({"centroids": centroids}, path)
    refused("book.safetensors does not match its card; fit it again", load_codebook, path)
    path.unlink()
    refused(r"book\.", load_codebook, path)


def test_a_shipped_codebook_is_found_by_its_name_and_a_wrong_path_is_called_one():
    name = "people-en/units.safetensors"
    assert load_codebook(name).hash == load_codebook(SHIPPED / name).hash
    refused("cannot read the codebook x/units.safetensors", load_codebook, "x/units.safetensors")
    refused("people-en/encoder has no codebook", load_codebook, "people-en/encoder")


# ---- assignment: the argmin of the true distances, whatever is close, and whatever else is in the
# call


def truth(features, centroids):
    """The first nearest, by distances in float64."""
    x, c = np.asarray(features, np.float64), np.asarray(centroids, np.float64)
    return np.concatenate([np.square(row[None] - c).sum(1).argmin(keepdims=True) for row in x])


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


OFFSETS, SCALES = st.sampled_from([0.0, 3.0, 1e3]), st.sampled_from([1e-3, 1.0, 50.0])


@given(st.integers(0, 10**6), OFFSETS, SCALES, st.integers(1, 40))
def test_it_is_the_argmin_of_float64(seed, offset, scale, clusters):
    centroids = (offset + scale * normal(seed, clusters, 24)).astype(np.float32)
    features = (offset + scale * normal(seed + 1, 150, 24)).astype(np.float32)
    found = Nearest(centroids)(torch.from_numpy(features))
    assert np.array_equal(found, truth(features, centroids))


def test_neither_blocks_nor_threads_change_it(monkeypatch, set_threads):
    centroids = normal(0, 40, 32)
    # all of them close calls
    features = torch.from_numpy(
        centroids[np.random.default_rng(1).integers(0, 40, (900, 2))].mean(1)
    )
    expected = truth(features, centroids)
    assert np.array_equal(Nearest(centroids)(features), expected)
    plain = (features.numpy() @ centroids.T - np.square(centroids).sum(1) / 2).argmax(1)
    assert (plain != expected).mean() > 0.05  # what one float32 product makes of it
    set_threads(2)
    assert np.array_equal(Nearest(centroids)(features), expected)
    set_threads(1)
    monkeypatch.setattr(codebook, "BLOCK_SCORES", 64 * 40)
    monkeypatch.setattr(codebook, "BLOCK_NUMBERS", 100)
    small = Nearest(centroids)
    assert small.block == 64
    assert np.array_equal(small(features), expected)


def test_standardised_clusters_are_not_decided_by_one_dimension_of_huge_variance():
    centres, stream = blobs()
    huge = np.random.default_rng(1).normal(0, 1e4, (len(stream), 20, 1)).astype(np.float32)
    wide = [np.concatenate([x, noise], axis=1) for x, noise in zip(stream, huge, strict=True)]
    plain, scaled = (fit_kmeans(iter(wide), 4, CARD, standardise=on) for on in (False, True))
    probes = torch.from_numpy(np.concatenate([centres, np.zeros((4, 1), np.float32)], axis=1))
    assert len(set(scaled.assign(probes))) == 4 > len(set(plain.assign(probes)))
    frames = np.concatenate(wide)
    # the argmax of its scores is the nearest centroid of scaled features
    scale = frames.astype(np.float64).std(0)
    distances = np.square((frames / scale)[:, None] - (scaled.centroids * scale)[None]).sum(-1)
    found = scaled.assign(torch.from_numpy(frames))
    assert (found == distances.argmin(1)).mean() > 0.999


def test_what_features_may_be():
    book, wide = Codebook(normal(0, 9, 8), {"layer": 1}), torch.from_numpy(normal(1, 50, 16))
    for some in (wide[:, ::2], wide[:, :8].bfloat16()):
        assert np.array_equal(book.assign(some), truth(some.float(), book.centroids))
    assert Nearest(book.centroids)(torch.zeros(0, 8)).shape == (0,)
    with pytest.raises(ValueError, match="features have 3 dimensions, the codebook 8"):
        book.assign(torch.zeros(2, 3))
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not finite"):
            book.assign(torch.full((3, 8), bad))
