"""One evaluation from the command line, on corpora that are text only."""

import json
from pathlib import Path

import pytest

from speechssl.data.records import Answer, Passage, Question, data_hash, write_records
from speechssl.errors import InputError
from speechssl.eval import spoken_qa as run
from speechssl.eval.spoken_qa import run_evaluation
from speechssl.results import Row, read_rows


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """One passage as a recogniser wrote it, and a written question."""
    root = tmp_path / "corpus"
    write(root, Passage("p", "", 0.0, "", "", "en", transcript="anna lost a sliver lantern near oak field"))
    (root / "card.json").write_text("{}")
    return root


def write(root: Path, passage: Passage) -> None:
    write_records(root / "test/passages.jsonl", [passage])
    asked = Question("q", "p", "", 0.0, "what did anna lose", "", "en", (Answer("a silver lantern"),))
    write_records(root / "test/questions.jsonl", [asked])


def test_transcripts_of_the_corpus_are_read_with_written_questions(corpus: Path, tmp_path: Path) -> None:
    said = run_evaluation(corpus, tmp_path / "out", "minisqa-en-robust", ["cascade-given"], ["clean"])
    rows = {r.metric: r for r in read_rows(tmp_path / "out/results.jsonl")}
    assert rows.keys() == {"em", "f1"} and "cascade-given" in said  # no reference: nothing to count word errors against
    assert rows["f1"].value > 0 and rows["f1"].n == 1


def test_the_table_says_where_snrs_are_over_the_whole_signal(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("dual", "", "pink", 5.0, "ff1", 1.0, None, None, 1, 0, "")
    monkeypatch.setattr(run, "evaluate", lambda *_: [row])
    said = {
        (condition, over): run_evaluation(
            corpus, tmp_path / f"{condition}-{over}", "minisqa-en-robust", ["cascade-given"], [condition], snr_over=over
        )
        for condition in ("clean", "pink@5")
        for over in ("active", "signal")
    }
    assert [key for key, text in said.items() if "SNRs are over the whole signal" in text] == [("pink@5", "signal")]


def test_a_corpus_without_transcripts_is_one_sentence(corpus: Path, tmp_path: Path) -> None:
    write(corpus, Passage("p", "", 0.0, "anna lost a silver lantern", "", "en"))
    with pytest.raises(InputError, match="has no transcripts for cascade-given; use the system text"):
        run_evaluation(corpus, tmp_path / "out", "minisqa-en-robust", ["cascade-given"], ["clean"])
    assert not (tmp_path / "out").exists()


def test_errors_that_were_fitted_on_what_is_evaluated_are_refused(corpus: Path, tmp_path: Path) -> None:
    write(corpus, Passage("p", "", 0.0, "anna lost a silver lantern", "", "en", transcript="anna lost a sliver lantern"))
    values = {"kind": "confusions", "card": {"split": "test", "data": data_hash(corpus, "test")}}
    (tmp_path / "confusions.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match="confusions.json was fitted on .*test itself, .* give them with --errors$"):
        run_evaluation(
            corpus, tmp_path / "out", "minisqa-en-robust", ["cascade-simulated@30"], ["clean"], errors=tmp_path / "confusions.json"
        )
    assert not (tmp_path / "out").exists()
