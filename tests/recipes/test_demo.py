"""The demo's questions in free English point at their answers, and its table has a column for every
group of test speech."""

import json

from speechssl.artifacts import read_json, write_json
from speechssl.results import Row, append_rows

from .shared import ROOT, script


def test_every_answer_in_free_english_occurs_once_in_its_passage_where_the_file_says():
    content = json.loads((ROOT / "recipes/demo/questions.json").read_text("utf-8"))
    paragraphs = [paragraph for article in content["data"] for paragraph in article["paragraphs"]]
    assert len(paragraphs) == 12
    for paragraph in paragraphs:
        passage = paragraph["context"]
        assert len(paragraph["qas"]) == 4
        for question in paragraph["qas"]:
            (answer,) = question["answers"]
            start, text = answer["answer_start"], answer["text"]
            assert passage[start : start + len(text)] == text
            assert passage.lower().count(text.lower()) == 1
            assert len(text.split()) <= 6


def ff1_row(system, value, snr_db=None):
    """Make a row of results: FF1 of a system in clean speech, or in pink noise at an SNR in dB."""
    condition = "clean" if snr_db is None else "pink"
    about = {"low": None, "high": None, "n": 9, "seed": 0, "card": ""}
    return Row("qa", system, "", condition, snr_db, "ff1", value, **about)


def test_the_table_of_groups_has_a_column_for_every_group(tmp_path):
    in_noise = [ff1_row("dual", 40.0, snr_db=5.0), ff1_row("dual", 1.0, snr_db=0.0)]
    append_rows(tmp_path / "results.jsonl", [ff1_row("dual", 80.0), *in_noise])
    append_rows(tmp_path / "held-out/results.jsonl", [ff1_row("dual", 60.0)])
    write_json(tmp_path / "held-out/corpus/card.json", {"unknown_words": {"test": {"words": 65}}})
    append_rows(tmp_path / "festival/results.jsonl", [ff1_row("dual", 70.0)])
    append_rows(tmp_path / "free/results.jsonl", [ff1_row("dual", 10.0), ff1_row("text", 90.0)])
    groups = (f"festival={tmp_path}/festival", f"free English by festival={tmp_path}/free")
    script("demo/groups.py").main(tmp_path, *groups)
    table = read_json(tmp_path / "groups.json")
    assert table["columns"][-2:] == ["festival", "free English by festival"]
    assert table["rows"] == [
        ["dual", "80.0", "40.0", "60.0", "70.0", "10.0"],
        ["text", "–", "–", "–", "–", "90.0"],
    ]
    assert "65 %" in table["note"]
