"""First-stage retrieval: systems x conditions; every answerable question ranks all passages of its split.

The right passage is the one that the question was asked about: another that answers it as well counts as wrong. Passages with equal
scores are in random order; metrics are the expectation over these orders (McSherry and Najork 2008, ECIR), so that a system that
scores everything alike is at chance. Files and rows are those of `spoken_qa`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from speechssl.augment import Condition, Distorter, parse_condition
from speechssl.cascade.data import Transcript
from speechssl.data.records import Corpus, Passage, Question, first_passages, load_corpus
from speechssl.eval.config import Retrieval
from speechssl.eval.run import Encoding
from speechssl.eval.scores import question_lines
from speechssl.eval.spoken_qa import evaluate_systems, find_recordings, models_name, rounds_of, table_of_rows
from speechssl.io import model_folder
from speechssl.results import Row, append_rows
from speechssl.retrieval import Retriever, load_retrievers

METRICS = ("r1", "r10", "mrr")
BEST = 10  # passages that predictions list


def run_retrieval(o: Retrieval) -> str:
    """Evaluate, append the rows, and return the table of everything in `o.out`/results.jsonl."""
    conditions = [parse_condition(c) for c in o.conditions]
    folder = model_folder(o.models)
    data = first_passages(load_corpus(o.corpus, o.split), o.passages)
    loaded = load_retrievers(folder, o.systems, o.text_encoder, o.bf16, data.language)
    distorter = Distorter(o.seed, o.voices, snr_over=o.snr_over)
    rows = evaluate_retrieval(loaded, data, conditions, o.out, distorter, o.workers, models_name(folder))
    append_rows(o.out / "results.jsonl", rows, by_content=True)
    return table_of_rows(o, conditions)


def evaluate_retrieval(
    systems: Sequence[Retriever],
    corpus: Corpus,
    conditions: Sequence[Condition],
    out: Path,
    distorter: Distorter,
    workers: int = 2,
    encoder_name: str = "",
) -> list[Row]:
    """Fill in the rankings that are missing and return the rows of all of them. Raises InputError without questions."""
    asked: list[Passage | Question] = [*corpus.passages.values(), *corpus.answerable]
    records = {r.id: r for r in asked}

    def score(system: Retriever, predictions: Mapping[str, Any]) -> tuple[Any, ...]:
        scored, transcripts = score_ranks(predictions["ranks"], corpus), predictions["transcripts"]
        return scored, transcripts, question_lines(scored, corpus, transcripts, METRICS), {"encoder": encoder_name}

    return evaluate_systems(
        rounds_of(systems, corpus, conditions, distorter),
        corpus,
        list(records),
        find_recordings(corpus, asked),
        lambda s: Encoding(lambda i, samples: s.encode(records[i], samples), s.needs_audio),
        lambda s, features, _: rank(s, corpus, features),
        score,
        METRICS,
        out,
        distorter,
        workers,
        encoder_name,
        {"what": "retrieval"},
    )


def rank(system: Retriever, corpus: Corpus, features: Mapping[str, Any]) -> dict[str, Any]:
    """Where the passage of every question stands, and which are the best.

    features: of recordings, by id. ranks: passages with a greater score, and passages with the same (itself among them).
    """
    questions = [q for q in corpus.answerable if q.id in features and q.passage in features]
    passages = [p for p in corpus.passages.values() if p.id in features]
    ranks, best = {}, {}
    if questions:
        scores = system.score([(q, features[q.id]) for q in questions], [(p, features[p.id]) for p in passages])
        place = {p.id: i for i, p in enumerate(passages)}
        for question, row in zip(questions, scores, strict=True):
            own = row[place[question.passage]]
            ranks[question.id] = [int((row > own).sum()), int((row == own).sum())]
            best[question.id] = [passages[i].id for i in np.argsort(-row, kind="stable")[:BEST]]
    return {"ranks": ranks, "best": best, "transcripts": {i: x.text for i, x in features.items() if isinstance(x, Transcript)}}


@dataclass(frozen=True)
class RankScore:
    """One question's scores, 0 to 1: whether its passage is the first, whether it is among the first ten, and 1 / rank."""

    id: str
    passage: str
    r1: float
    r10: float
    mrr: float


def score_ranks(ranks: Mapping[str, Sequence[int]], corpus: Corpus) -> list[RankScore]:
    """ranks: of `rank`. A question that could not be asked scores 0."""
    scored = []
    for question in corpus.answerable:
        above, equal = ranks.get(question.id, (len(corpus.passages), 1))
        places = np.arange(above + 1, above + equal + 1)  # all equally likely
        values = (places == 1).mean(), (places <= 10).mean(), (1 / places).mean() if question.id in ranks else 0.0
        scored.append(RankScore(question.id, question.passage, *map(float, values)))
    return scored
