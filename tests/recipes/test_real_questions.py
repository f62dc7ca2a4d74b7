"""The splits of recipes/real_questions share no article, its parts are whole articles, and its
curve is a line of least squares; recipes/spoken_squad holds out the same questions."""

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
from speechssl.errors import InputError
from speechssl.stats import ItemScore, resample_cells

from .shared import ROOT, script

SPLITS = ("train", "dev", "test")


def write_table(path, titles):
    """Write a table as NMSQA's, with two passages an article, one question each: "TITLE-0" and
    "TITLE-1". Returns its path."""
    rows = []
    for title in titles:
        for i in range(2):
            row = {"id": f"{title}-{i}", "title": title, "context": f"{title} is here {i}."}
            row["question"] = "Where?"
            row["answers"] = {"text": ["here"], "answer_start": [len(f"{title} is ")]}
            rows.append(row)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def split_table(table, out, *options):
    """Split a table by the recipe's program. Returns split -> title -> ids of questions."""
    command = [sys.executable, "recipes/real_questions/split.py", str(table), str(out), *options]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    ids = {}
    for split in SPLITS:
        articles = json.loads((out / f"{split}.json").read_text())["data"]
        ids[split] = {
            article["title"]: {q["id"] for p in article["paragraphs"] for q in p["qas"]}
            for article in articles
        }
    return ids


def test_an_article_is_in_one_split_and_an_excluded_question_in_none(tmp_path):
    titles = [f"t{i}" for i in range(20)]
    table, excluded = write_table(tmp_path / "dev.parquet", titles), tmp_path / "without"
    excluded.write_text("t3-0\n")
    splits = split_table(table, tmp_path / "out", "--without", str(excluded))
    assert [len(splits[name]) for name in SPLITS] == [16, 2, 2]
    assert sorted([*splits["train"], *splits["dev"], *splits["test"]]) == sorted(titles)
    ids = set()
    for articles in splits.values():
        ids.update(*articles.values())
    assert ids == {f"{title}-{i}" for title in titles for i in range(2)} - {"t3-0"}


def test_another_table_takes_the_place_of_train(tmp_path):
    table = write_table(tmp_path / "dev.parquet", [f"t{i}" for i in range(20)])
    train = write_table(tmp_path / "train.parquet", ["other"])
    without_train = split_table(table, tmp_path / "out")
    with_train = split_table(table, tmp_path / "more", "--train", str(train))
    assert set(with_train["train"]) == {"other"}
    assert set(with_train["test"]) == set(without_train["test"])


# ---- textless.sh


def write_readings(root, articles):
    """Write a corpus of articles "0", "1", ... of two passages each, without sound. Passages are
    called ARTICLE_0 and ARTICLE_1, and each has 1, 2 or 3 questions. Returns its folder."""
    passages, questions = [], []
    root.mkdir()
    for article in range(articles):
        for paragraph in range(2):
            name = f"{article}_{paragraph}"
            audio = f"{name}.wav"
            passages.append(
                Passage(
                    id=name,
                    audio=audio,
                    seconds=9.0,
                    text=f"text {name}",
                    speaker="ann",
                    language="en",
                )
            )
            for n in range(1 + article % 3):
                questions.append(
                    Question(
                        id=f"{name}-{n}",
                        passage=name,
                        audio=audio,
                        seconds=2.0,
                        text=f"what {n}",
                        speaker="bob",
                        language="en",
                        answers=(Answer("text", 1, 2),),
                    )
                )
            (root / audio).touch()
    write_records(root / "train/passages.jsonl", passages)
    write_records(root / "train/questions.jsonl", questions)
    write_json(root / "card.json", {"synthetic": f"spoken by {root.name}"})
    return root


@pytest.fixture
def mixed(tmp_path):
    """A folder as that of textless.sh: its corpus `train` joins readings of twelve articles by the
    synthesisers "one" and "two", whose own corpora lie beside it."""
    readings = [write_readings(tmp_path / name, articles=12) for name in ("one", "two")]
    options = Namespace(
        out=tmp_path / "train",
        corpora=readings,
        split="train",
        articles=True,
        licence="CC0",
        copies=(),
        distorted=0.0,
        distort="m",
        snr_range=(0.0, 20.0),
    )
    script("units/mix.py").main(options)
    return tmp_path


def test_mixed_readings_are_not_copied_and_their_card_names_all(mixed):
    data = load_corpus(mixed / "train", "train")
    assert data.path(data.questions[0]).parent in {mixed / "one", mixed / "two"}
    card = read_json(mixed / "train/card.json")
    assert card["licence"] == "CC0"
    assert card["synthetic"] == "spoken by one; spoken by two"


def test_parts_of_the_data_are_whole_articles_with_all_their_readings(mixed):
    parts = script("real_questions/curve.py").list_parts(mixed)
    assert len(parts) == 12
    # Twelve articles of 2 passages, which two voices read. Their questions count once, though two
    # voices read them: 1, 2 and 3 a passage in every three articles.
    assert (parts[-1].passages, parts[-1].questions) == (12 * 2 * 2, 4 * 2 * (1 + 2 + 3))
    passages = load_corpus(mixed / "train", "train").passages
    article_of = [name.split("-")[1].split("_")[0] for name in passages]  # "one-7_0" -> "7"
    for part in parts[:-1]:
        assert article_of[part.passages] != article_of[part.passages - 1]
    assert article_of != sorted(article_of, key=int)


def test_a_part_has_about_its_share_of_the_questions(mixed):
    curve = script("real_questions/curve.py")
    parts = curve.list_parts(mixed)
    chosen = [curve.choose_part(parts, divisor) for divisor in (8, 4, 2, 1)]
    assert [part.questions for part in chosen] == pytest.approx([6, 12, 24, 48], abs=3)


@pytest.mark.parametrize(
    ("steps", "questions", "refused"),
    [((9, 9), (10, 20), False), ((9, 8), (10, 20), True), ((9, 9), (20, 10), True)],
)
def test_a_curve_is_of_readers_that_differ_in_their_data_alone(steps, questions, refused):
    curve = script("real_questions/curve.py")
    cards = [{"options": {"steps": number}, "start": None} for number in steps]
    parts = [curve.Part(1, 1, number) for number in questions]
    if refused:
        with pytest.raises(InputError, match="a, b are no curve"):
            curve.check_alike(("a", "b"), cards, parts)
    else:
        curve.check_alike(("a", "b"), cards, parts)


def test_the_line_of_the_curve_is_that_of_least_squares_in_every_resample():
    curve = script("real_questions/curve.py")
    rng = np.random.default_rng(0)
    xs = np.array([-3.0, -2.0, -0.9, 0.0])  # log2 of the share of the questions: an eighth ... all
    cells = {}  # 40 questions of 10 passages a place
    for x in xs:
        values = rng.uniform(0, 1, 40).tolist()
        cells[x] = [ItemScore(str(i), str(i // 4), v, 1.0) for i, v in enumerate(values)]
    scores = list(resample_cells(cells, unit="passage").values())
    predicted = curve.predict_score(xs, scores, 2.0)
    line = np.polyfit(xs, [score.value for score in scores], 1)
    assert predicted.value == pytest.approx(np.polyval(line, 2.0))
    lines = np.polyfit(xs, np.array([score.resampled for score in scores]), 1)
    assert predicted.resampled == pytest.approx(np.polyval(lines, 2.0))
    assert predicted.groups == 10


def test_spoken_squad_keeps_the_questions_that_were_held_out_and_gains_their_text(tmp_path):
    def write_article(path, passages):
        """Write an article as SQuAD does. passages: text -> ids of its questions."""
        paragraphs = []
        for text, ids in passages.items():
            questions = [{"id": question, "answers": []} for question in ids]
            paragraphs.append({"context": text, "qas": questions})
        write_json(path, {"data": [{"title": "boats", "paragraphs": paragraphs}]})

    def read_paragraphs(path):
        return read_json(path)["data"][0]["paragraphs"]

    source, out = tmp_path / "source", tmp_path / "out"
    recognised = {"a read boat": ["a", "b"], "to cats": ["c", "d"]}  # of a red boat, two cats
    write_article(source / "spoken_test-v1.1.json", recognised)
    write_article(tmp_path / "dev.json", {"Two cats.": ["d"]})  # d is held out
    script("spoken_squad/held_out.py").main(source, out, tmp_path / "dev.json")
    paragraphs = read_paragraphs(out / "spoken_test-v1.1.json")
    assert [[q["id"] for q in p["qas"]] for p in paragraphs] == [[], ["d"]]
    texts = [paragraph["context"] for paragraph in read_paragraphs(out / "dev-v1.1.json")]
    assert texts == ["a read boat", "Two cats."]
