"""Retrieval over systems and conditions: ranks with ties, what is ranked, what failed, and what report and compare make of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest

from speechssl.audio import write_flac
from speechssl.augment import Distorter, parse_condition
from speechssl.cli import main
from speechssl.data.records import load_corpus
from speechssl.errors import InputError
from speechssl.eval.retrieval import evaluate_retrieval, rank, score_ranks
from speechssl.io import read_json
from speechssl.report.build import write_report
from speechssl.report.comparison import run_comparison
from speechssl.report.config import Compare, Report
from speechssl.results import append_rows, read_rows

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
    root, rng = tmp_path / "corpus", np.random.default_rng(0)
    common = {"language": "en", "seconds": 1.0}
    rows = {
        "passages": [{"id": f"p{i}", "text": text, "speaker": f"s{i}"} for i, text in enumerate(TEXTS)],
        "questions": [
            {"id": q, "text": text, "passage": p, "speaker": "s", "answers": [{"text": "x"}] if q != "q3" else []}
            for q, (text, p) in QUESTIONS.items()
        ],
    }
    for kind, records in rows.items():
        for record in records:
            record |= common | {"audio": f"test/audio/{record['id']}.flac"}
            write_flac(root / record["audio"], rng.uniform(-0.5, 0.5, 16_000))
        (root / "test" / f"{kind}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (root / "card.json").write_text('{"corpus": "toy"}')
    return root


@dataclass
class Table:
    """Scores from a table; counts what it encoded."""

    scores: dict = field(default_factory=lambda: {"q0": [4, 3, 2, 1], "q1": [4, 3, 2, 1], "q2": [1, 1, 1, 1]})
    name: str = "tfidf-units"
    needs_audio: bool = True
    encoded: list = field(default_factory=list)

    @property
    def card(self):
        return {"name": self.name}

    def encode(self, record, samples):
        assert (samples is not None) == self.needs_audio
        self.encoded.append(record.id)
        return record.id

    def score(self, questions, passages):
        assert all(record.id == found for record, found in (*questions, *passages))
        return np.array([[self.scores[q.id][int(p.id[1])] for p, _ in passages] for q, _ in questions])


def run(systems, corpus, out, conditions=("clean",)):
    rows = evaluate_retrieval(systems, load_corpus(corpus, "test"), [*map(parse_condition, conditions)], out, Distorter(0))
    append_rows(out / "results.jsonl", rows)
    return {(r.system, r.condition, r.metric): (pytest.approx(r.value), r.n) for r in rows}


def test_ranks_count_all_passages_and_ties_are_chance(corpus, tmp_path):
    table = Table()
    found = run([table], corpus, tmp_path / "out")
    # first, second of four, and anywhere among four
    assert found["tfidf-units", "clean", "r1"] == (100 * (1 + 0 + 1 / 4) / 3, 3)
    assert found["tfidf-units", "clean", "r10"] == (100, 3)
    assert found["tfidf-units", "clean", "mrr"] == (100 * (1 + 1 / 2 + (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4) / 3, 3)
    assert sorted(table.encoded) == ["p0", "p1", "p2", "p3", "q0", "q1", "q2"]
    kept = read_json(tmp_path / "out/predictions/tfidf-units/clean.json")
    assert kept["ranks"] == {"q0": [0, 1], "q1": [1, 1], "q2": [0, 4]} and kept["best"]["q1"] == ["p0", "p1", "p2", "p3"]


def test_among_more_than_ten_passages_ten_count(corpus):
    data = load_corpus(corpus, "test")
    scores = score_ranks({"q0": [9, 1], "q1": [10, 1], "q2": [8, 4]}, data)
    assert [s.r10 for s in scores] == [1, 0, 0.5] and [s.mrr for s in scores][:2] == [1 / 10, 1 / 11]


def test_what_could_not_be_encoded_is_not_found(corpus, tmp_path, capsys):
    (corpus / "test/audio/p0.flac").write_bytes(b"no audio")
    assert run([Table()], corpus, tmp_path / "out")["tfidf-units", "clean", "r1"] == (100 * (0 + 1 + 1 / 3) / 3, 3)
    assert "set aside p0" in capsys.readouterr().err
    data = load_corpus(corpus, "test")
    assert rank(Table(), data, {})["ranks"] == {} and {s.mrr for s in score_ranks({}, data)} == {0}


def test_text_is_read_in_clean_speech_alone_and_finished_work_is_kept(corpus, tmp_path):
    reads, hears = Table(name="bm25-text", needs_audio=False), Table()
    found = run([reads, hears], corpus, tmp_path / "out", ["clean", "pink@5"])
    assert {(s, c) for s, c, _ in found} == {("bm25-text", "clean"), ("tfidf-units", "clean"), ("tfidf-units", "pink")}
    again = Table()
    assert run([again], corpus, tmp_path / "out", ["clean", "pink@5"]) and not again.encoded
    with pytest.raises(InputError, match="bm25-text read text, which noise does not change"):
        run([reads], corpus, tmp_path / "out", ["pink@5"])


@pytest.mark.slow
def test_report_and_compare_take_it_beside_answers_or_alone(corpus, tmp_path):
    out = tmp_path / "out"
    run([Table(), Table({"q0": [1, 2, 3, 4], "q1": [1, 2, 3, 4], "q2": [1, 2, 3, 4]}, "tfidf-ctc")], corpus, out)
    write_report(Report(out=out))
    assert "R@10" in (out / "report.html").read_text()
    assert "MRR" in run_comparison(Compare(results=(out,), out=tmp_path / "compare", pairs=("tfidf-units,tfidf-ctc",)))
    (tmp_path / "answers.json").write_text('{"q0": "x"}')
    answers = [str(tmp_path / "answers.json"), "--name", "mine"]
    assert main(["evaluate", "predictions", str(corpus), str(out), *answers]) == 0
    write_report(Report(out=out, corpus=corpus, conditions=("clean",)))
    assert {r.metric for r in read_rows(out / "results.jsonl")} == {"r1", "r10", "mrr", "em", "f1"}


def test_words_are_ranked_by_the_command(corpus, tmp_path, capsys):
    arguments = [str(corpus), str(tmp_path / "out"), "--systems", "bm25-text", "tfidf-text@3", "--workers", "1"]
    assert main(["evaluate", "retrieval", *arguments]) == 0
    rows = {(r.system, r.metric): r for r in read_rows(tmp_path / "out/results.jsonl")}
    assert {v.value for (_, metric), v in rows.items() if metric != "wer"} == {100}
    assert "r1 (%)" in capsys.readouterr().out and rows["bm25-text", "wer"].value == 0
