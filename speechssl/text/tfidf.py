"""Find documents that share rare terms with a query, by TF-IDF. A term is a word, or an n-gram of
letters or units.

In shapes, Q is the number of queries, P that of documents.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

NGRAM = 3  # units or letters in a term: the best of 1 to 8 on the development set of MiniSQA
Terms = Sequence[Hashable]


def list_ngrams(symbols: Terms, n: int) -> list[Hashable]:
    """List every n symbols in a row; an empty list where there are fewer."""
    return list(zip(*(symbols[i:] for i in range(n)), strict=False))


def tfidf(queries: Sequence[Terms], documents: Sequence[Terms]) -> np.ndarray:
    """Compute the cosine of every query and document, (Q, P): 0 where they share no term. Their
    vectors are term counts times inverse document frequencies, with scikit-learn's defaults."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # slow to import

    if not any(documents):
        return np.zeros((len(queries), len(documents)))
    vectorizer = TfidfVectorizer(analyzer=list)
    weights = vectorizer.fit_transform(documents)
    return (vectorizer.transform(queries) @ weights.T).toarray()
