"""Errors are fitted on what a recogniser makes of a split, never of the test split."""

import json

import numpy as np
import pytest

from speechssl.audio import write_flac
from speechssl.cascade.confusions import read_confusions
from speechssl.cascade.data import TimedWord, Transcript
from speechssl.errors import InputError
from speechssl.eval import spoken_qa
from speechssl.eval.config import Confusions
from speechssl.eval.spoken_qa import fit_on_corpus


@pytest.fixture
def corpus(tmp_path):
    """Two passages and a question; one passage has the corpus's own transcript."""
    root = tmp_path / "corpus"
    rows = {
        "passages": [
            {"id": "p0", "text": "a red boat sails", "transcript": "a red goat sails", "audio": "dev/p0.flac"},
            {"id": "p1", "text": "two cats", "audio": "dev/p1.flac"},
        ],
        "questions": [{"id": "q0", "text": "what sails", "passage": "p0", "audio": "dev/q0.flac"}],
    }
    for kind, records in rows.items():
        for record in records:
            write_flac(root / record["audio"], np.random.default_rng(0).uniform(-0.5, 0.5, 16_000))
            record |= {"seconds": 1.0, "speaker": "s", "language": "en"}
        (root / "dev" / f"{kind}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return root


class Failing:
    name = "failing"

    def transcribe(self, samples):
        return Transcript((TimedWord("goat", 0, 1, 1), TimedWord("sails", 0, 1, 1)))


@pytest.mark.slow
def test_errors_of_a_recogniser_are_fitted_on_passages_and_questions(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(spoken_qa, "shared_encoder", lambda folder: None)
    monkeypatch.setattr(spoken_qa, "load_recogniser", lambda *_: (Failing(), "0123"))
    (corpus / "dev/p1.flac").write_bytes(b"no audio")
    assert "2 texts with a WER of 66.7 %" in fit_on_corpus(Confusions(corpus=corpus, out=tmp_path / "out", workers=1))
    model = read_confusions(tmp_path / "out" / "confusions.json")
    assert model.words["what"].taken_for == {"goat": 1} and model.words["a"].count == 1
    assert "set aside p1" in capsys.readouterr().err
    assert "there already" in fit_on_corpus(Confusions(corpus=corpus, out=tmp_path / "out", workers=1))
    assert "2 texts" in fit_on_corpus(Confusions(corpus=corpus, out=tmp_path / "out", workers=1, seed=1))


@pytest.mark.slow
def test_transcripts_of_the_corpus_will_do(corpus, tmp_path):
    printed = fit_on_corpus(Confusions(corpus=corpus, out=tmp_path, models="none", recogniser="given"))
    assert "1 texts with a WER of 25.0 % (25.0 % substituted, 0.0 %" in printed


@pytest.mark.parametrize("split", ["test-wer44", "verified_test"])
def test_the_test_split_is_kept(corpus, tmp_path, split):
    with pytest.raises(InputError, match="cannot be fitted on .*test.* give --split dev"):
        fit_on_corpus(Confusions(corpus=corpus, out=tmp_path / "out", split=split))
    assert not (tmp_path / "out").exists()


def test_recognised_texts_are_needed(corpus, tmp_path):
    path = corpus / "dev/passages.jsonl"
    path.write_text(path.read_text().replace('"transcript": "a red goat sails", ', ""))
    with pytest.raises(InputError, match="dev has no transcripts, which --recogniser given needs; give another --recogniser$"):
        fit_on_corpus(Confusions(corpus=corpus, out=tmp_path, models="none", recogniser="given"))


def test_recordings_are_needed_before_a_recogniser_is(corpus, tmp_path, capsys):
    for path in (corpus / "dev").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line | {"audio": "", "seconds": 0.0}) + "\n" for line in lines))
    with pytest.raises(InputError, match="dev has no recordings for ctc; prepare the corpus with --speak"):
        fit_on_corpus(Confusions(corpus=corpus, out=tmp_path, models="none", recogniser="ctc", workers=1))
    assert capsys.readouterr().err == ""
