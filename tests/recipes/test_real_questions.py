"""recipes/real_questions: splits share no articles, what spelling loses, and the curve."""

import json
import subprocess
import sys
from argparse import Namespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speechssl.artifacts import read_json, write_json
from speechssl.data.records import Answer, Passage, Question, load_corpus, write_records
from speechssl.stats import ItemScore, resample_cells

from .shared import ROOT, script

SPLITS = ("train", "dev", "test")


def table(path, titles):
    rows = [
        {"id": f"{title}-{i}", "title": title, "context": f"{title} is here {i}."}
        | {"question": "Where?", "answers": {"text": ["here"], "answer_start": [len(title) + 4]}}
        for title in titles
        for i in range(2)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def split(out, *arguments):
    """By split, title -> ids."""
    command = [sys.executable, "recipes/real_questions/split.py", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    data = {name: json.loads((out / f"{name}.json").read_text())["data"] for name in SPLITS}
    return {
        name: {a["title"]: {q["id"] for p in a["paragraphs"] for q in p["qas"]} for a in some}
        for name, some in data.items()
    }


def test_an_article_is_in_one_split_and_what_is_left_out_in_none(tmp_path):
    titles = sorted(f"t{i}" for i in range(20))
    dev, left_out = table(tmp_path / "dev.parquet", titles), tmp_path / "without"
    left_out.write_text("t3-0\n")
    found = split(tmp_path / "out", str(dev), str(tmp_path / "out"), "--without", str(left_out))
    assert [len(found[name]) for name in SPLITS] == [16, 2, 2]
    assert sorted(title for some in found.values() for title in some) == titles
    every = {f"{title}-{k}" for title in titles for k in range(2)}
    assert {i for some in found.values() for ids in some.values() for i in ids} == every - {"t3-0"}
    train = table(tmp_path / "train.parquet", ["other"])
    with_train = split(tmp_path / "more", str(dev), str(tmp_path / "more"), "--train", str(train))
    assert set(with_train["train"]) == {"other"}
    assert set(with_train["test"]) == set(found["test"])


# ---- textless.sh


def spoken(root, articles):
    """A corpus of articles with two passages of one to three questions each, without sound."""
    passages, questions = [], []
    root.mkdir()
    for i in range(2 * articles):
        name = f"{i // 2}_{i % 2}"
        audio, answer = f"{name}.wav", (Answer("text", 1, 2),)
        passages.append(Passage(name, audio, 9.0, f"text {name}", "ann", "en"))
        for n in range(1 + i // 2 % 3):
            asked = (f"{name}-{n}", name, audio, 2.0, f"what {n}", "bob", "en", answer)
            questions.append(Question(*asked))
        (root / audio).touch()
    write_records(root / "train/passages.jsonl", passages)
    write_records(root / "train/questions.jsonl", questions)
    write_json(root / "card.json", {"synthetic": f"spoken by {root.name}"})
    return root


def test_parts_of_the_data_are_whole_articles_with_all_their_readings_and_nested(tmp_path):
    readings = [spoken(tmp_path / name, 12) for name in ("one", "two")]
    settings = {"split": "train", "articles": True, "licence": "CC0", "copies": ()}
    settings |= {"distorted": 0.0, "distort": "m", "snr_range": (0.0, 20.0)}
    script("units/mix.py").main(Namespace(out=tmp_path / "train", corpora=readings, **settings))
    data = load_corpus(tmp_path / "train", "train")
    # nothing was copied
    assert data.path(data.questions[0]).parent in {tmp_path / "one", tmp_path / "two"}
    card = read_json(tmp_path / "train/card.json")
    assert card["licence"] == "CC0"
    assert card["synthetic"] == "spoken by one; spoken by two"
    curve = script("real_questions/curve.py")
    ends = curve.count_articles(tmp_path)
    assert len(ends) == 12 and ends[-1] == (48, 48)  # of 96 recorded questions, each by two voices
    order = [name.split("-")[1].split("_")[0] for name in data.passages]
    assert all(order[a] != order[a - 1] for a, _ in ends[:-1]) and order != sorted(order, key=int)
    parts = [curve.first_passages(ends, part) for part in (8, 4, 2, 1)]
    assert parts == sorted(parts) and set(parts) <= {passages for passages, _ in ends}
    assert [dict(ends)[n] for n in parts] == pytest.approx([6, 12, 24, 48], abs=3)


def test_the_line_of_the_curve_is_that_of_least_squares_in_every_resample():
    curve = script("real_questions/curve.py")
    rng, xs = np.random.default_rng(0), np.array([-3.0, -2.0, -0.9, 0.0])
    drawn = {x: enumerate(rng.uniform(0, 1, 40).tolist()) for x in xs}
    cells = {x: [ItemScore(str(i), str(i // 4), v, 1.0) for i, v in drawn[x]] for x in xs}
    scores = list(resample_cells(cells, unit="passage").values())
    found = curve.predict_score(xs, scores, 2.0)
    lines = np.polyfit(xs, np.array([s.drawn for s in scores]), 1)
    line = np.polyfit(xs, [s.value for s in scores], 1)
    assert found.value == pytest.approx(np.polyval(line, 2.0))
    assert found.drawn == pytest.approx(np.polyval(lines, 2.0))
    assert found.groups == 10


def test_spoken_squad_keeps_the_questions_that_were_held_out_and_gains_their_text(tmp_path):
    def articles(*paragraphs):
        made = [
            {"context": c, "qas": [{"id": i, "answers": []} for i in ids]} for c, ids in paragraphs
        ]
        return {"data": [{"title": "boats", "paragraphs": made}]}

    source, out = tmp_path / "source", tmp_path / "out"
    heard = articles(("a read boat", "ab"), ("to cats", "cd"))
    write_json(source / "spoken_test-v1.1.json", heard)
    write_json(tmp_path / "dev.json", articles(("Two cats.", "d")))
    script("spoken_squad/held_out.py").main(source, out, [tmp_path / "dev.json"])
    kept = read_json(out / "spoken_test-v1.1.json")["data"][0]["paragraphs"]
    assert [[q["id"] for q in p["qas"]] for p in kept] == [[], ["d"]]
    texts = read_json(out / "dev-v1.1.json")["data"][0]["paragraphs"]
    assert [p["context"] for p in texts] == ["a read boat", "Two cats."]
