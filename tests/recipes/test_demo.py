"""recipes/demo: its questions in free English, and the table of groups."""

import json

from speechssl.artifacts import read_json, write_json
from speechssl.results import Row, append_rows

from .shared import ROOT, script


def test_every_answer_in_free_english_occurs_once_in_its_passage_where_the_file_says():
    content = json.loads((ROOT / "recipes/demo/questions.json").read_text("utf-8"))
    paragraphs = [paragraph for article in content["data"] for paragraph in article["paragraphs"]]
    assert len(paragraphs) == 12
    for paragraph in paragraphs:
        text = paragraph["context"]
        assert len(paragraph["qas"]) == 4
        for asked in paragraph["qas"]:
            (answer,) = asked["answers"]
            start, words = answer["answer_start"], answer["text"]
            assert text[start : start + len(words)] == words
            assert text.lower().count(words.lower()) == 1
            assert len(words.split()) <= 6


def write_results(folder, scores):
    """FF1 by system, in clean speech or in noise."""
    rows = []
    for (system, snr), value in scores.items():
        place = ("clean", None) if snr is None else ("pink", snr)
        rows.append(Row("qa", system, "", *place, "ff1", value, None, None, 9, 0, ""))
    append_rows(folder / "results.jsonl", rows)


def test_the_table_of_groups_has_a_column_a_group(tmp_path):
    write_results(tmp_path, {("dual", None): 80.0, ("dual", 5.0): 40.0, ("dual", 0.0): 1.0})
    write_results(tmp_path / "held-out", {("dual", None): 60.0})
    write_json(tmp_path / "held-out/corpus/card.json", {"unknown_words": {"test": {"words": 65}}})
    write_results(tmp_path / "festival", {("dual", None): 70.0})
    write_results(tmp_path / "free", {("dual", None): 10.0, ("text", None): 90.0})
    others = (f"festival={tmp_path}/festival", f"free English by festival={tmp_path}/free")
    script("demo/groups.py").main(tmp_path, *others)
    table = read_json(tmp_path / "groups.json")
    assert table["columns"][-2:] == ["festival", "free English by festival"]
    assert table["rows"] == [
        ["dual", "80.0", "40.0", "60.0", "70.0", "10.0"],
        ["text", "–", "–", "–", "–", "90.0"],
    ]
    assert "65 %" in table["note"]
