"""Tests of codebooks: smoothing, the reservoir, fitting by k-means, files, and the assignment of
frames to units, which is compared with brute force in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from speechssl.checkpoints import SHIPPED
from speechssl.units import codebook
from speechssl.units.codebook import Codebook, Nearest, load_codebook
from speechssl.units.features import smooth, smooth_chunks
from speechssl.units.kmeans import Reservoir, fit_kmeans

from ..files import refused

CARD = {"encoder": "abc", "layer": 1, "frame_rate": 50.0}


# ---- smoothing


@given(st.lists(st.integers(0, 9), max_size=8), st.sampled_from([1, 3, 5, 9]), st.integers(0, 99))
def test_smoothing_a_stream_is_smoothing_the_whole(sizes, width, seed):
    whole = torch.from_numpy(normal(seed, sum(sizes), 3))
    pieces = list(smooth_chunks(whole.split(sizes) if sizes else [], width))
    expected = smooth(whole, width) if len(whole) else whole
    assert torch.equal(torch.cat([whole[:0], *pieces]), expected)


# ---- the reservoir


def sample_numbers(reservoir, sizes):
    """Fill a reservoir with frames that hold their numbers 0, 1, 2 ... in the stream, as many at a
    time as `sizes` says. Returns the numbers in its sample."""
    start = 0
    for size in sizes:
        reservoir.add(np.arange(start, start + size, dtype=np.float32)[:, None])
        start += size
    assert reservoir.seen == start
    return reservoir.sample[:, 0].astype(int).tolist()


class OneByOne(Reservoir):
    """Algorithm R in its textbook form, which takes the frames one by one."""

    def add(self, frames):
        for row in frames:
            if not self.seen:
                self.parts = [np.empty((self.budget, len(row)), np.float32)]
            slot = self.seen if self.seen < self.budget else self.rng.integers(0, self.seen + 1)
            if slot < self.budget:
                self.parts[0][slot] = row
            self.seen += 1


@given(
    st.integers(1, 40), st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(0, 999)
)
def test_a_reservoir_does_not_depend_on_how_the_stream_is_cut(budget, sizes, seed):
    if sum(sizes):
        expected = sample_numbers(OneByOne(budget, seed), [sum(sizes)])
        assert sample_numbers(Reservoir(budget, seed), sizes) == expected
        assert sample_numbers(Reservoir(budget, seed), [sum(sizes)]) == expected


# ---- fitting

CENTRES = np.array([[0, 0], [10, 0], [0, 10], [10, 10]], np.float32)
SPREAD = 0.3  # standard deviation of a cluster in each of two dimensions


def make_clusters():
    """Return a stream of 60 arrays of 20 frames, 1,200 in all, each array about one of CENTRES."""
    rng = np.random.default_rng(0)
    stream = []
    for number in range(60):
        noise = rng.normal(0, SPREAD, (20, 2)).astype(np.float32)
        stream.append(CENTRES[number % 4] + noise)
    return stream


def test_kmeans_finds_the_clusters():
    book = fit_kmeans(make_clusters(), clusters=4, card=CARD, budget=500)
    distances = np.linalg.norm(book.centroids[:, None] - CENTRES[None], axis=-1)
    assert sorted(distances.argmin(1)) == [0, 1, 2, 3]
    assert distances.min(1).max() < 0.2
    wanted = {"encoder": "abc", "layer": 1, "frames": 1_200, "budget": 500, "seed": 0}
    assert wanted.items() <= book.card.items()
    assert book.card["inertia"] == pytest.approx(2 * SPREAD**2, rel=0.2)


def test_the_seed_decides_the_codebook():
    def fit_hash(seed):
        return fit_kmeans(make_clusters(), clusters=7, card=CARD, budget=300, seed=seed).hash

    assert fit_hash(seed=1) == fit_hash(seed=1)
    assert fit_hash(seed=1) != fit_hash(seed=2)


def test_fewer_frames_than_clusters_are_refused():
    wanted = "3 frames of speech cannot make 4 clusters; give fewer --clusters"
    refused(wanted, fit_kmeans, [np.zeros((3, 2))], 4, CARD)


# ---- files


def test_a_codebook_comes_back_as_it_was_and_no_other_does(tmp_path):
    path = tmp_path / "book.safetensors"
    centroids = normal(0, 6, 6)[:, ::2]  # not contiguous, as the library for files needs it
    book = Codebook(centroids, CARD)
    book.save(path)
    loaded = load_codebook(str(path))
    assert np.array_equal(loaded.centroids, centroids)
    assert loaded.card == CARD | {"K": 6, "hash": book.hash}
    save_file({"centroids": loaded.centroids + 1e-4}, path)
    refused("book.safetensors .it does not match its card.*fit it again", load_codebook, path)
    path.unlink()
    refused(r"book\.", load_codebook, path)


def test_a_shipped_codebook_is_found_by_its_name_and_a_path_without_one_refused():
    name = "people-en/units.safetensors"
    assert load_codebook(name).hash == load_codebook(SHIPPED / name).hash
    refused("cannot read the codebook x/units.safetensors", load_codebook, "x/units.safetensors")
    refused("people-en/encoder has no codebook", load_codebook, "people-en/encoder")


# ---- assignment: the exact argmin of the distances, for any frames in one call


def nearest_by_brute_force(features, centroids):
    """Return the first of the nearest centroids of every frame, by distances in float64."""
    x, c = np.asarray(features, np.float64), np.asarray(centroids, np.float64)
    return np.array([np.square(row - c).sum(1).argmin() for row in x])


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


OFFSETS, SCALES = st.sampled_from([0.0, 3.0, 1e3]), st.sampled_from([1e-3, 1.0, 50.0])


@given(st.integers(0, 10**6), OFFSETS, SCALES, st.integers(1, 40))
def test_units_are_the_argmin_of_distances_in_float64(seed, offset, scale, clusters):
    centroids = (offset + scale * normal(seed, clusters, 24)).astype(np.float32)
    features = (offset + scale * normal(seed + 1, 150, 24)).astype(np.float32)
    units = Nearest(centroids)(torch.from_numpy(features))
    assert np.array_equal(units, nearest_by_brute_force(features, centroids))


@pytest.fixture
def close_calls():
    """Return 40 centroids and 900 features halfway between two of them, so that rounding decides
    which is the nearer."""
    centroids = normal(0, 40, 32)
    pairs = np.random.default_rng(1).integers(0, 40, (900, 2))
    return centroids, torch.from_numpy(centroids[pairs].mean(1))


def test_a_float32_product_would_decide_close_calls_wrongly(close_calls):
    centroids, features = close_calls
    scores = features.numpy() @ centroids.T - np.square(centroids).sum(1) / 2
    assert (scores.argmax(1) != nearest_by_brute_force(features, centroids)).mean() > 0.05


def test_neither_blocks_nor_threads_change_a_close_call(close_calls, monkeypatch, set_threads):
    centroids, features = close_calls
    expected = nearest_by_brute_force(features, centroids)
    for threads in (2, 1):
        set_threads(threads)
        assert np.array_equal(Nearest(centroids)(features), expected)
    monkeypatch.setattr(codebook, "BLOCK_SCORES", 64 * len(centroids))  # 64 frames at a time
    small_blocks = Nearest(centroids)
    assert small_blocks.block == 64
    assert np.array_equal(small_blocks(features), expected)


def test_standardised_clusters_ignore_a_dimension_of_huge_variance():
    """Units are the nearest centroids of scaled features."""
    noise = np.random.default_rng(1).normal(0, 1e4, (60, 20, 1)).astype(np.float32)
    columns = zip(make_clusters(), noise, strict=True)
    stream = [np.concatenate(pair, axis=1) for pair in columns]
    centres = torch.from_numpy(np.pad(CENTRES, ((0, 0), (0, 1))))
    assert len(set(fit_kmeans(stream, 4, CARD).assign(centres))) < 4
    book = fit_kmeans(stream, 4, CARD, standardise=True)
    assert len(set(book.assign(centres))) == 4
    frames = np.concatenate(stream)
    scale = frames.astype(np.float64).std(0)
    # the book has c / s of each centroid c of scaled features x / s
    distances = np.square((frames / scale)[:, None] - (book.centroids * scale)[None]).sum(-1)
    units = book.assign(torch.from_numpy(frames))
    assert (units == distances.argmin(1)).mean() > 0.999


def test_features_may_be_strided_or_of_low_precision_or_none():
    book = Codebook(normal(0, 9, 8), {"layer": 1})
    features = torch.from_numpy(normal(1, 50, 16))
    strided = features[:, ::2]
    assert np.array_equal(book.assign(strided), nearest_by_brute_force(strided, book.centroids))
    rounded = features[:, :8].bfloat16()
    expected = nearest_by_brute_force(rounded.float(), book.centroids)
    assert np.array_equal(book.assign(rounded), expected)
    assert Nearest(book.centroids)(torch.zeros(0, 8)).shape == (0,)


def test_features_that_do_not_fit_are_refused():
    book = Codebook(normal(0, 9, 8), {"layer": 1})
    with pytest.raises(ValueError, match="features have 3 dimensions, the codebook 8"):
        book.assign(torch.zeros(2, 3))
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not finite"):
            book.assign(torch.full((3, 8), bad))
