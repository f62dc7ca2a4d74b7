"""BM25 and TF-IDF against their formulas, term by term; n-grams."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.terms import bm25, ngrams, tfidf

DOCUMENTS = ["the red boat sails".split(), "the boat the boat".split(), "two cats".split(), []]


def lucene(query, document, documents):
    """BM25 of one pair, as the formula stands."""
    mean, score = sum(map(len, documents)) / len(documents), 0.0
    for term in query:
        having = sum(term in d for d in documents)
        idf = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
        times = Counter(document)[term]
        score += idf * times / (times + 1.2 * (1 - 0.75 + 0.75 * len(document) / mean))
    return score


words = st.lists(st.sampled_from("abcdef"), max_size=6)


@given(st.lists(words, min_size=1, max_size=4), st.lists(words, min_size=1, max_size=6))
def test_bm25_is_the_formula(queries, documents):
    found = bm25(queries, documents)
    wanted = [[lucene(q, d, documents) if any(documents) else 0 for d in documents] for q in queries]
    assert found == pytest.approx(np.array(wanted))


def test_bm25_is_that_of_bm25s():
    found = bm25([["red", "boat"], ["boat", "boat"], ["dog"]], DOCUMENTS)
    given = [[0.6923796, 0.37066695, 0, 0], [0.5059469, 0.7413339, 0, 0], [0, 0, 0, 0]]  # 0.3.16, "lucene", k1 1.2, b 0.75
    assert found == pytest.approx(np.array(given), abs=1e-6)


def test_tfidf_is_a_cosine_of_weighted_counts():
    (found,) = tfidf([["red", "boat"]], DOCUMENTS)
    idf = {term: math.log(5 / (1 + sum(term in d for d in DOCUMENTS))) + 1 for d in DOCUMENTS for term in d}

    def vector(terms):
        return np.array([Counter(terms)[t] * idf[t] for t in sorted(idf)])

    q, d = vector(["red", "boat"]), vector(DOCUMENTS[0])
    assert found[0] == pytest.approx(q @ d / np.linalg.norm(q) / np.linalg.norm(d))
    assert found[2] == found[3] == 0 < found[1] < found[0]


@pytest.mark.parametrize("score", [bm25, tfidf])
def test_documents_without_terms_and_unknown_terms_score_nothing(score):
    assert not score([["a"]], [[], []]).any()
    assert not score([["z"], []], [["a"], ["b"]]).any()


def test_ngrams_of_units_and_letters():
    assert ngrams([1, 2, 3, 2], 3) == [(1, 2, 3), (2, 3, 2)]
    assert ngrams("red", 2) == [("r", "e"), ("e", "d")]
    assert ngrams([1, 2], 3) == []
