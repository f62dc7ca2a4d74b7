"""Retrieval over systems and conditions: ranks with ties, what is ranked, what failed, and what
report and compare make of it."""

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
    """Four passages; the last one is asked about by a question without an answer alone."""
    passages = [
        {"id": f"p{i}", "seconds": 1.0, "text": text, "speaker": f"s{i}"}
        for i, text in enumerate(TEXTS)
    ]
    answers = {q: [{"text": "x"}] if q != "q3" else [] for q in QUESTIONS}
    asked = [
        {"id": q, "seconds": 1.0, "text": text, "passage": p, "answers": answers[q]}
        for q, (text, p) in QUESTIONS.items()
    ]
    return write_corpus(tmp_path / "corpus", "test", passages=passages, questions=asked)


@dataclass
class Table:
    """Scores from a table; counts what it encoded."""

    scores: dict = field(
        default_factory=lambda: {"q0": [4, 3, 2, 1], "q1": [4, 3, 2, 1], "q2": [1, 1, 1, 1]}
    )
    name: str = "tfidf-units"
    needs_audio: bool = True
    encoded: list = field(default_factory=list)
    models: str = "a"

    @property
    def card(self):
        return {"name": self.name, "dual": self.models}

    def encode(self, record, samples):
        assert (samples is not None) == self.needs_audio
        self.encoded.append(record.id)
        return record.id

    def score(self, questions, passages):
        assert all(record.id == found for record, found in (*questions, *passages))
        return np.array(
            [[self.scores[q.id][int(p.id[1])] for p, _ in passages] for q, _ in questions]
        )


def run(systems, corpus, out, conditions=("clean",)):
    rows = retrieval.retrieve(
        systems,
        load_corpus(corpus, "test"),
        [*map(parse_condition, conditions)],
        Setup(out, Distorter(0)),
    )
    append_rows(out / "results.jsonl", rows)
    return {(r.system, r.condition, r.metric): (pytest.approx(r.value), r.n) for r in rows}


def test_ranks_count_all_passages_and_ties_are_chance(corpus, tmp_path):
    table = Table()
    found = run([table], corpus, tmp_path / "out")
    # first, second of four, and anywhere among four
    assert found["tfidf-units", "clean", "r1"] == (100 * (1 + 0 + 1 / 4) / 3, 3)
    assert found["tfidf-units", "clean", "r10"] == (100, 3)
    assert found["tfidf-units", "clean", "mrr"] == (
        100 * (1 + 1 / 2 + (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4) / 3,
        3,
    )
    assert sorted(table.encoded) == ["p0", "p1", "p2", "p3", "q0", "q1", "q2"]
    kept, _ = read_items(tmp_path / "out/predictions/tfidf-units/clean.parquet")
    assert [(row["above"], row["equal"]) for row in kept] == [(0, 1), (1, 1), (0, 4)]
    assert kept[1]["best"] == ["p0", "p1", "p2", "p3"]


def test_what_could_not_be_encoded_is_not_found(corpus, tmp_path, capsys):
    (corpus / "test/audio/p0.flac").write_bytes(b"no audio")
    assert run([Table()], corpus, tmp_path / "out")["tfidf-units", "clean", "r1"] == (
        100 * (0 + 1 + 1 / 3) / 3,
        3,
    )
    assert "set aside p0" in capsys.readouterr().err
    data = load_corpus(corpus, "test")
    rows = retrieval.RetrievalTask(data).predict(Table(), {}, "clean")
    assert {(s.r1, s.r10, s.mrr) for s in retrieval.score_ranks(rows)} == {(0, 0, 0)}


def test_text_is_read_in_clean_speech_alone_and_finished_work_is_kept(corpus, tmp_path):
    out, conditions = tmp_path / "out", ["clean", "pink@5"]
    reads = Table(name="bm25-text", needs_audio=False)
    found = run([reads, Table()], corpus, out, conditions)
    read = {("bm25-text", "clean"), ("tfidf-units", "clean"), ("tfidf-units", "pink")}
    assert {(s, c) for s, c, _ in found} == read
    again = Table()
    assert run([again], corpus, out, conditions)
    assert not again.encoded
    refused("read text, which noise does not change", run, [reads], corpus, out, ["pink@5"])
    other = r"made by another tfidf-units, with another dual \(a\)"
    refused(other, run, [Table(models="b")], corpus, out, ["pink@10"])


# ---- the systems


def record(name="p", text="", language="en"):
    return Passage(name, "", 1.0, text, "s", language)


def spoken(text, language="en"):
    separator = "" if language == "zh" else " "
    return record(language=language), Transcript(
        tuple(TimedWord(w, 0, 1, 1) for w in text.split()), separator
    )


def units(*units):
    return record(), RunLength(np.array(units), np.ones(len(units), int))


def test_terms_of_units_are_trigrams_or_as_long_as_they_are_asked_for():
    question, passages = [units(1, 2, 3, 4)], [units(9, 1, 2, 3, 9), units(3, 4, 9)]
    (three,) = retrieval.score_shared_terms("tfidf", None, question, passages)
    assert three[0] > three[1] == 0
    assert (retrieval.score_shared_terms("tfidf", 2, question, passages) > 0).all()
    assert not retrieval.score_shared_terms("tfidf", 4, question, passages).any()


def one_hot(longest=None):
    """Vectors are counts of the tokens 0 to 5; specials count nothing."""
    table = torch.cat([torch.eye(6), torch.zeros(3, 6)])
    return retrieval.Embedder(
        lambda ids, mask: retrieval.pool_means(table[ids], mask),
        lambda runs: runs.units,
        (6, 7, 8),
        {},
        longest,
    )


def test_the_best_window_of_a_passage_counts():
    passages = [units(*[5] * 8, 1, 2, *[5] * 8), units(1, 5, 5, 5)]
    (narrow,) = one_hot().score(2, [units(1, 2)], passages)
    assert narrow == pytest.approx([1, 0.5])  # (1, 2) is a window; (1, 5) shares one of two
    (wide,) = one_hot().score(100, [units(1, 2)], passages)
    assert wide == pytest.approx([2**0.5 / (2 + 16**2) ** 0.5, 1 / (2 * 10) ** 0.5])
    assert one_hot().score(4, [units(1)], [units(), units(1)]).tolist() == [[0, 1]]


@pytest.fixture
def folder(text_encoder, tokenizer, tmp_path):
    text_encoder("bert").save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_a_vector_is_the_mean_over_all_tokens_whatever_else_is_in_the_batch(
    folder, text_encoder, tokenizer
):
    embedder = retrieval.load_word_embedder(str(folder), bf16=False)
    texts = ["anna lost a lantern", "the silver lantern of anna and peter", "paris"]
    with torch.no_grad():
        hidden = [
            text_encoder("bert")(**tokenizer(t, return_tensors="pt")).last_hidden_state[0].mean(0)
            for t in texts
        ]
    wanted = torch.stack([h / h.norm() for h in hidden]).numpy()
    found = embedder.score(100, [spoken(texts[0])], [spoken(t) for t in texts])
    assert found == pytest.approx(wanted[:1] @ wanted.T, abs=1e-5)


def test_bm25_is_that_of_bm25s():
    documents = ["the red boat sails".split(), "the boat the boat".split(), "two cats".split(), []]
    found = retrieval.bm25([["red", "boat"], ["boat", "boat"], ["dog"]], documents)
    # 0.3.16, "lucene", k1 1.2, b 0.75
    given = [[0.6923796, 0.37066695, 0, 0], [0.5059469, 0.7413339, 0, 0], [0, 0, 0, 0]]
    assert found == pytest.approx(np.array(given), abs=1e-6)
    assert not retrieval.bm25([["a"]], [[], []]).any()
