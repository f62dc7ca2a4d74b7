"""Retrieval over systems and conditions: ranks with ties, recordings that cannot be encoded,
finished work; and the scores of the methods."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from recipes.minisqa import retrieval
from speechssl.augment import Distorter, parse_condition
from speechssl.cascade.data import TimedWord, Transcript
from speechssl.data.records import Passage, load_corpus
from speechssl.eval.predict import read_items
from speechssl.eval.spoken_qa import Setup
from speechssl.results import append_rows
from speechssl.timing import RunLength

from ..files import refused, write_corpus

TEXTS = ["a red boat sails", "two cats sleep", "paris is large", "the train was late"]
QUESTIONS = {
    "q0": ("what sails", "p0"),
    "q1": ("who sleeps with two cats", "p1"),
    "q2": ("is paris large", "p2"),
    "q3": ("why", "p3"),
}


@pytest.fixture
def corpus(tmp_path):
    """Four passages with a question each; q3 has no answer, so it is not asked."""
    passages = []
    for i, text in enumerate(TEXTS):
        passages.append({"id": f"p{i}", "seconds": 1.0, "text": text, "speaker": f"s{i}"})
    questions = []
    for name, (text, passage) in QUESTIONS.items():
        answers = [] if name == "q3" else [{"text": "x"}]
        question = {"id": name, "seconds": 1.0, "text": text, "passage": passage}
        questions.append(question | {"answers": answers})
    return write_corpus(tmp_path / "corpus", "test", passages=passages, questions=questions)


@dataclass
class FixedScores:
    """A stand-in for a retriever, whose scores are fixed; it notes the recordings it encodes."""

    name: str = "tfidf-units"
    needs_audio: bool = True
    encoded: list = field(default_factory=list)
    dual: str = "a"  # hash of a reader on its card

    @property
    def card(self):
        return {"name": self.name, "dual": self.dual}

    def encode(self, record, samples):
        assert (samples is not None) == self.needs_audio
        self.encoded.append(record.id)
        return record.id

    def score(self, questions, passages):
        assert all(record.id == content for record, content in (*questions, *passages))
        scores = {"q0": [4, 3, 2, 1], "q1": [4, 3, 2, 1], "q2": [1, 1, 1, 1]}  # of p0 to p3
        return np.array([[scores[q.id][int(p.id[1])] for p, _ in passages] for q, _ in questions])


def rank_passages(systems, corpus, out, conditions=("clean",)):
    """Evaluate systems. Returns (system, condition, metric) -> (value, number of questions)."""
    data = load_corpus(corpus, "test")
    parsed = [parse_condition(condition) for condition in conditions]
    rows = retrieval.rank_passages(systems, data, parsed, Setup(out, Distorter(0)))
    append_rows(out / "results.jsonl", rows)
    return {(r.system, r.condition, r.metric): (pytest.approx(r.value), r.n) for r in rows}


def test_metrics_are_expected_over_the_orders_of_equal_passages(corpus, tmp_path):
    system = FixedScores()
    results = rank_passages([system], corpus, tmp_path / "out")
    # the passage of q0 is the first, that of q1 the second, that of q2 anywhere among four
    assert results["tfidf-units", "clean", "r1"] == (100 * (1 + 0 + 1 / 4) / 3, 3)
    assert results["tfidf-units", "clean", "r10"] == (100, 3)
    mrr_of_q2 = (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4
    assert results["tfidf-units", "clean", "mrr"] == (100 * (1 + 1 / 2 + mrr_of_q2) / 3, 3)

    assert sorted(system.encoded) == ["p0", "p1", "p2", "p3", "q0", "q1", "q2"]
    rows, _ = read_items(tmp_path / "out/predictions/tfidf-units/clean.parquet")
    assert [(row["above"], row["equal"]) for row in rows] == [(0, 1), (1, 1), (0, 4)]
    assert rows[1]["best"] == ["p0", "p1", "p2", "p3"]


def test_a_question_scores_zero_where_its_passage_cannot_be_encoded(corpus, tmp_path, capsys):
    (corpus / "test/audio/p0.flac").write_bytes(b"no audio")
    results = rank_passages([FixedScores()], corpus, tmp_path / "out")
    # p1 is now the first for q1, and p2 anywhere among three for q2
    assert results["tfidf-units", "clean", "r1"] == (100 * (0 + 1 + 1 / 3) / 3, 3)
    assert "set aside p0" in capsys.readouterr().err


def test_a_system_of_text_is_evaluated_in_clean_speech_alone(corpus, tmp_path):
    of_text = FixedScores(name="bm25-text", needs_audio=False)
    systems = [of_text, FixedScores()]
    results = rank_passages(systems, corpus, tmp_path / "out", ["clean", "pink@5"])
    evaluated = {(system, condition) for system, condition, _ in results}
    expected = {("bm25-text", "clean"), ("tfidf-units", "clean"), ("tfidf-units", "pink")}
    assert evaluated == expected
    message = "read text, which noise does not change"
    refused(message, rank_passages, [of_text], corpus, tmp_path / "out", ["pink@5"])


def test_a_finished_condition_is_not_encoded_again(corpus, tmp_path):
    rank_passages([FixedScores()], corpus, tmp_path / "out")
    again = FixedScores()
    assert rank_passages([again], corpus, tmp_path / "out")
    assert not again.encoded
    message = r"has a system tfidf-units with another dual \(a\)"
    refused(message, rank_passages, [FixedScores(dual="b")], corpus, tmp_path / "out", ["pink@10"])


# ---- the methods: their items are (record, content)


def item_of_text(text):
    words = tuple(TimedWord(word, start=0, end=1, confidence=1) for word in text.split())
    return Passage("p"), Transcript(words, " ")


def item_of_units(*units):
    return Passage("p"), RunLength(np.array(units), np.ones(len(units), int))


@pytest.mark.parametrize(
    ("n", "shares_terms"),
    [(None, [True, False]), (2, [True, True]), (4, [False, False])],
)
def test_terms_of_units_are_trigrams_or_n_grams_where_n_is_given(n, shares_terms):
    question = item_of_units(1, 2, 3, 4)
    passages = [item_of_units(9, 1, 2, 3, 9), item_of_units(3, 4, 9)]
    (scores,) = retrieval.score_shared_terms("tfidf", n, [question], passages)
    assert (scores > 0).tolist() == shares_terms


def count_embedder():
    """Make an embedder whose vectors are proportional to the counts of the tokens 0 to 5."""
    table = torch.cat([torch.eye(6), torch.zeros(3, 6)])  # specials count nothing
    return retrieval.Embedder(
        run=lambda ids, mask: retrieval.pool_means(table[ids], mask),
        tokenise=lambda runs: runs.units,
        specials=(6, 7, 8),
        card={},
    )


def test_the_best_window_of_a_passage_counts_and_one_without_tokens_has_no_likeness():
    question = item_of_units(1, 2)
    passages = [item_of_units(*[5] * 8, 1, 2, *[5] * 8), item_of_units(1, 5, 5, 5)]
    (narrow,) = count_embedder().score(2, [question], passages)
    assert narrow == pytest.approx([1, 0.5])  # (1, 2) is a window; (1, 5) shares one of two
    (wide,) = count_embedder().score(100, [question], passages)
    # counts of the passages: 1, 1 and sixteen 5s; 1 and three 5s
    assert wide == pytest.approx([2 / (2 * (2 + 16**2)) ** 0.5, 1 / (2 * (1 + 3**2)) ** 0.5])

    passages = [item_of_units(), item_of_units(1)]
    assert count_embedder().score(4, [item_of_units(1)], passages).tolist() == [[0, 1]]


def test_every_window_begins_with_the_lead():
    sequences = []

    def run(ids, mask):
        sequences.extend(row[seen.bool()].tolist() for row, seen in zip(ids, mask, strict=True))
        return torch.ones(len(ids), 1)

    embedder = retrieval.Embedder(run, lambda runs: runs.units, (6, 7, 8), {}, lead=(7,))
    embedder.score(2, [item_of_units(1)], [item_of_units(1, 2, 3, 4)])
    assert [6, 7, 1, 7] in sequences
    assert {(6, 7, a, a + 1, 7) for a in (1, 2, 3)} <= set(map(tuple, sequences))


def test_a_vector_is_the_mean_over_all_tokens_whatever_else_is_in_the_batch(
    text_encoder, tokenizer, tmp_path
):
    text_encoder("bert").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    embedder = retrieval.load_word_embedder(str(tmp_path), bf16=False)
    texts = ["anna lost a lantern", "the silver lantern of anna and peter", "paris"]
    vectors = []
    with torch.no_grad():
        for text in texts:
            outputs = text_encoder("bert")(**tokenizer(text, return_tensors="pt"))
            mean = outputs.last_hidden_state[0].mean(0)
            vectors.append((mean / mean.norm()).numpy())
    items = [item_of_text(text) for text in texts]
    (cosines,) = embedder.score(100, items[:1], items)
    assert cosines == pytest.approx(np.stack(vectors) @ vectors[0], abs=1e-5)


def test_bm25_agrees_with_bm25s():
    documents = ["the red boat sails".split(), "the boat the boat".split(), "two cats".split(), []]
    scores = retrieval.bm25([["red", "boat"], ["boat", "boat"], ["dog"]], documents)
    # of bm25s 0.3.16 with method "lucene", k1 1.2, b 0.75
    expected = [[0.6923796, 0.37066695, 0, 0], [0.5059469, 0.7413339, 0, 0], [0, 0, 0, 0]]
    assert scores == pytest.approx(np.array(expected), abs=1e-6)

    assert not retrieval.bm25([["a"]], [[], []]).any()
