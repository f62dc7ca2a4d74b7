"""TF-IDF finds documents that share rare terms with a query. A term is a word, or an n-gram of
letters or units.

Letters: Q queries, P documents.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

NGRAM = 3  # units or letters of a term: the best of 1 to 8 on the development set of MiniSQA
Terms = Sequence[Hashable]


def ngrams(symbols: Terms, n: int) -> list[Hashable]:
    """List every n symbols in a row; an empty list where there are fewer."""
    return list(zip(*(symbols[i:] for i in range(n)), strict=False))


def tfidf(queries: Sequence[Terms], documents: Sequence[Terms]) -> np.ndarray:
    """Return (Q, P) cosines of term counts times inverse document frequencies (scikit-learn's), 0
    where no term is shared."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # slow to import

    if not any(documents):
        return np.zeros((len(queries), len(documents)))
    vectorizer = TfidfVectorizer(analyzer=list)
    weights = vectorizer.fit_transform(documents)
    return (vectorizer.transform(queries) @ weights.T).toarray()
