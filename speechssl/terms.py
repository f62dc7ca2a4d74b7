"""BM25 and TF-IDF: which documents share the rare terms of a query. A term is a word, or an n-gram of letters or units.

BM25 is that of Robertson and Zaragoza (2009, Foundations and Trends in Information Retrieval 3(4), section 3.4.2) as Lucene has it:
k1 = 1.2 and b = 0.75 (theirs: k1 from 1.2 to 2, b from 0.5 to 0.8), and an inverse document frequency that is never negative. It is
five lines on the counts that TF-IDF needs as well; the package rank_bm25 has not changed since 2022, and bm25s, which is
maintained, gives the same scores (both were compared).
Letters: Q queries, P documents.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

K1, B = 1.2, 0.75
NGRAM = 3  # units or letters: the best of 1 to 8 on the development set of MiniSQA
Terms = Sequence[Hashable]


def ngrams(symbols: Terms, n: int) -> list[Hashable]:
    """Every n symbols in a row; none where there are fewer."""
    return list(zip(*(symbols[i:] for i in range(n)), strict=False))


def bm25(queries: Sequence[Terms], documents: Sequence[Terms]) -> np.ndarray:
    """(Q, P) scores, 0 where no term is shared. A term that a query has twice counts twice."""
    if not any(documents):
        return np.zeros((len(queries), len(documents)))
    asked, counts = _count(queries, documents)
    lengths, frequency = np.asarray(counts.sum(axis=1)).ravel(), np.bincount(counts.indices, minlength=counts.shape[1])
    found = counts.tocoo().astype(np.float64)
    found.data /= found.data + K1 * (1 - B + B * lengths[found.row] / lengths.mean())
    found.data *= np.log1p((len(documents) - frequency + 0.5) / (frequency + 0.5))[found.col]
    return (asked @ found.T).toarray()


def tfidf(queries: Sequence[Terms], documents: Sequence[Terms]) -> np.ndarray:
    """(Q, P) cosines of term counts times inverse document frequencies (scikit-learn's), 0 where no term is shared."""
    from sklearn.feature_extraction.text import TfidfTransformer

    if not any(documents):
        return np.zeros((len(queries), len(documents)))
    asked, counts = _count(queries, documents)
    weigh = TfidfTransformer().fit(counts)
    return (weigh.transform(asked) @ weigh.transform(counts).T).toarray()


def _count(queries: Sequence[Terms], documents: Sequence[Terms]) -> tuple[Any, Any]:
    """How often queries (Q, V) and documents (P, V) have each of the V terms of the documents, sparse."""
    from sklearn.feature_extraction.text import CountVectorizer  # slow to import

    counter = CountVectorizer(analyzer=list)
    counts = counter.fit_transform(documents)
    return counter.transform(queries), counts
