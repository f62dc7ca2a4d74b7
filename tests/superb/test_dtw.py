"""Subsequence DTW: equal to dtw-python on every shape, whatever lies beside a document, and where there is nothing to tell."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from speechssl.superb.tasks.spoken_terms import Documents, cheapest_paths, subsequence_costs


def frames(count, seed, width=5):
    return torch.tensor(np.random.default_rng(seed).standard_normal((count, width)), dtype=torch.float32)


def by_dtw_python(query, document):
    """s3prl's `match`, in double precision."""
    dtw = pytest.importorskip("dtw", reason="dtw-python is not installed")
    found = np.exp(cdist(query, document, "cosine")) - 1
    low, high = found.min(1, keepdims=True), found.max(1, keepdims=True)
    found = (found - low) / np.clip(high - low, 1e-9, np.inf)
    return dtw.dtw(found, step_pattern="asymmetric", open_begin=True, open_end=True).normalizedDistance


@given(st.integers(1, 30), st.lists(st.integers(2, 40), min_size=1, max_size=6), st.integers(0, 999))
def test_it_is_dtw_pythons(length, lengths, seed):
    query, documents = frames(length, seed), [frames(n, seed + 1 + i) for i, n in enumerate(lengths)]
    ours = subsequence_costs(query, Documents.of(documents)).numpy()
    assert ours == pytest.approx([by_dtw_python(query, d) for d in documents], abs=1e-5)


def test_local_distances_alone():
    found = torch.tensor([[[0.0, 9.0, 9.0, 1.0]], [[9.0, 9.0, 2.0, 9.0]], [[9.0, 9.0, 9.0, 9.5]]])
    assert cheapest_paths(found).item() == pytest.approx((0 + 2 + 9) / 3)  # goes on by two frames, then by none
    assert cheapest_paths(torch.tensor([[[5.0, 1.0]], [[0.0, 7.0]]])).item() == 2.5  # never back


def test_no_neighbour_and_no_padding_matters():
    query, documents = frames(12, 0), [frames(n, n) for n in (3, 30, 7, 19)]
    together = subsequence_costs(query, Documents.of(documents))
    alone = torch.cat([subsequence_costs(query, Documents.of([d])) for d in documents])
    assert torch.allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize("level", [1.0, 1e-4, 1e4])
def test_a_query_is_found_where_it_lies_at_any_level(level):
    query = frames(10, 1)
    holding = torch.cat([frames(20, 2), level * query, frames(20, 3)])
    cost, other = subsequence_costs(query, Documents.of([holding, frames(50, 4)]))
    assert cost < 1e-5 < 0.05 < other


@pytest.mark.parametrize("document", [frames(1, 0), frames(1, 0).repeat(9, 1), torch.zeros(4, 5)])
def test_a_document_without_contrast_fits_nothing(document):
    """dtw-python would be given zeros by s3prl's normalisation: the best cost there is."""
    assert subsequence_costs(frames(6, 1), Documents.of([document, frames(20, 2)]))[0] == 1
