"""QUESST 2014: English only, and which documents hold a query."""

import pytest

from speechssl.data.superb import quesst14
from speechssl.data.superb.quesst14 import prepare_quesst14
from speechssl.data.utterances import load_set
from speechssl.errors import InputError


@pytest.fixture
def source(tmp_path, write, say, monkeypatch):
    monkeypatch.setattr(quesst14, "COUNTS", {"documents": 2, "dev": 1, "test": 1})
    root = tmp_path / "quesst"  # not under its own name
    lists = {
        "utterances": ("Audio", "quesst14_00001 nnenglish", "quesst14_00002 czech", "quesst14_00003 nnenglish"),
        "dev": ("dev_queries", "quesst14_dev_0001 nnenglish", "quesst14_dev_0002 basque"),
        "eval": ("eval_queries", "quesst14_eval_0001 nnenglish"),
    }
    for name, (folder, *lines) in lists.items():
        named = [line.split() for line in lines]
        say(root / f"scoring/language_key_{name}.lst", *(f"quesst14Database/{folder}/{n}.wav {lang}" for n, lang in named))
        for recording, _ in named:
            write(root / f"{folder}/{recording}.wav", rate=8_000)
    for name, matched in (("dev", ("00003", "00002", "00001")), ("eval", ("00003", "00003"))):
        lines = [f"LEXEME quesst14_{d} 1 0.00 5.10 quesst14_{name}_0001 <NA> <NA> <NA>" for d in matched]
        lines += ["SPEAKER quesst14_00001 1 0 5 <NA> <NA> one <NA>", "LEXEME quesst14_00001 1 0 5 NO_KEYWORD <NA> <NA> <NA>"]
        say(root / f"scoring/groundtruth_quesst14_{name}/quesst14_{name}.rttm", *lines)
    return root


def test_english_queries_and_the_documents_that_hold_them(source, tmp_path):
    prepare_quesst14(source, tmp_path / "out")
    splits = load_set(tmp_path / "out/qbe", "qbe").splits
    assert [u.id for u in splits["documents"]] == ["quesst14_00001", "quesst14_00003"]
    assert {u.id: u.matches for u in splits["dev"]} == {"quesst14_dev_0001": ("quesst14_00001", "quesst14_00003")}
    assert {u.id: u.matches for u in splits["test"]} == {"quesst14_eval_0001": ("quesst14_00003",)}
    assert splits["documents"][0].matches == () and splits["dev"][0].seconds == pytest.approx(0.1)


def test_another_ground_truth_is_one_sentence(source, tmp_path, say):
    truth = source / "scoring/groundtruth_quesst14_eval/quesst14_eval.rttm"
    say(truth, "LEXEME other 1 0 5 other <NA>")
    with pytest.raises(InputError, match=r"quesst14_eval.rttm says of no query which documents hold it; give the folder"):
        prepare_quesst14(source, tmp_path / "out")
    truth.unlink()
    with pytest.raises(InputError, match=r"quesst14_eval.rttm does not exist; give the folder"):
        prepare_quesst14(source, tmp_path / "out")


def test_a_missing_document_is_counted(source, tmp_path):
    (source / "Audio/quesst14_00003.wav").unlink()
    with pytest.raises(InputError, match=r"1 documents and not 2 as published, where .*Audio/quesst14_00003.wav is missing"):
        prepare_quesst14(source, tmp_path / "out")
    with pytest.raises(InputError, match="says of no query"):  # the one document that held the test query is gone
        prepare_quesst14(source, tmp_path / "out", any_count=True)
