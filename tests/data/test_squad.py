"""Plain SQuAD and DRCD JSON: splits by name, recordings by id, times of words."""

import json

import numpy as np
import pytest
import soundfile

from speechssl.data.records import load_corpus
from speechssl.data.squad import prepare_drcd, prepare_squad, split_of
from speechssl.errors import InputError

TEXT = "Ann, who was born in Rome, left."
ASKED = [("q1", "Where was she born?", [("Rome", 21), ("in Rome", 18)]), ("q2", "Who?", [("Ann", 0)])]
WORDS = [["Ann", 0.0, 0.1], ["who", 0.1, 0.2], ["was", 0.2, 0.3], ["born", 0.3, 0.4], ["in", 0.4, 0.5], ["rome", 0.5, 0.7]]


@pytest.fixture
def source(tmp_path, squad_json):
    squad_json(tmp_path / "in/train-v1.1.json", (TEXT, ASKED), ("Nothing.", []))
    squad_json(tmp_path / "in/dev-v2.0.json", (TEXT, [("v1", "When?", [], {"is_impossible": True})]))
    return tmp_path / "in"


def test_texts_alone(source, tmp_path):
    report = prepare_squad(source, tmp_path / "out")
    train, dev = (load_corpus(tmp_path / "out", split) for split in ("train", "dev"))
    assert train.passages["0_0"].text == TEXT and [q.answers[0].char_start for q in train.questions] == [21, 0]
    assert len(dev.questions) == 1 and not dev.answerable
    assert report["splits"]["train"]["questions"]["published"] == 87_599
    assert report["splits"]["dev"]["questions"]["published"] == 11_873
    assert report["splits"]["train"]["hours"] == {"passages": 0, "questions": 0}


def test_drcd_is_mandarin_and_keeps_its_ids(tmp_path, squad_json):
    path = squad_json(tmp_path / "DRCD_dev.json", ("在歐洲", [("1-1-1", "哪裡？", [("歐洲", 1)])]), drcd="1")
    report = prepare_drcd(path, tmp_path / "out")
    corpus = load_corpus(tmp_path / "out", "dev")
    assert corpus.passages["1-1"].language == "zh" and corpus.questions[0].passage == "1-1"
    assert report["splits"]["dev"]["passages"] == {"read": 1, "kept": 1, "set_aside": 0, "published": 1_000, "agrees": False}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-v1.1", "train"),
        ("DRCD_training", "train"),
        ("validation", "dev"),
        ("my test", "test"),
        ("a b/c", "a-b"),
        ("mine", "mine"),
    ],
)
def test_splits_by_name(tmp_path, name, split):
    assert split_of(tmp_path / f"{name.split('/')[0]}.json") == split


@pytest.mark.parametrize("folder", ["audio", "audio/train"])
def test_recordings_and_times(source, tmp_path, recording, folder):
    (source / "dev-v2.0.json").unlink()
    parts = [recording(source / folder / f"0_0_{n}.wav", 0.35, 22_050) for n in range(2)]
    whole = recording(source / folder / "0_1.flac", 0.4)
    for name in ("q1", "q2"):
        recording(source / folder / f"{name}.wav", 0.2)
    (source / folder / "0_0.words.json").write_text(json.dumps(WORDS))
    report = prepare_squad(source, tmp_path / "out")
    corpus = load_corpus(tmp_path / "out", "train")
    passage = corpus.passages["0_0"]
    assert passage.seconds == pytest.approx(sum(map(len, parts)) / 22_050, abs=1 / 16_000) and len(passage.words) == 6
    assert corpus.passages["0_1"].seconds == len(whole) / 16_000
    times = [(a.text, a.start, a.end) for q in corpus.questions for a in q.answers]
    assert times == [("Rome", 0.5, 0.7), ("in Rome", 0.4, 0.7), ("Ann", 0.0, 0.1)]
    assert all(q.audio for q in corpus.questions) and report["splits"]["train"]["with_times"] == 2
    assert [f["what"] for f in report["splits"]["train"]["found"]] == ["passages without questions"]


def test_segments_from_1_and_a_hole(tmp_path, squad_json, recording):
    squad_json(tmp_path / "in/test.json", (TEXT, ASKED[:1]), ("More.", [("q3", "What?", [("More", 0)])]))
    for name in ("0_0_1", "0_0_2", "0_1_0", "0_1_2"):
        recording(tmp_path / f"in/audio/{name}.wav")
    report = prepare_squad(tmp_path / "in", tmp_path / "out")
    corpus = load_corpus(tmp_path / "out", "test")
    assert list(corpus.passages) == ["0_0"] and [q.id for q in corpus.questions] == ["q1"]
    assert report["splits"]["test"]["set_aside"] == {"segments of its recording are missing": 1, "its passage is set aside": 1}
    assert {f["what"]: f["count"] for f in report["splits"]["test"]["found"]}["answers without times"] == 2


def test_a_passage_and_a_question_of_one_id_in_an_odd_script(tmp_path, squad_json, recording):
    """Ids become names of files; both are written, and neither overwrites the other."""
    squad_json(tmp_path / "in/test.json", ("Rome it is.", [("梵/文", "Where?", [("Rome", 0)])]))
    content = json.loads((tmp_path / "in/test.json").read_text())
    content["data"][0]["paragraphs"][0]["id"] = "x"
    content["data"][0]["paragraphs"][0]["qas"][0]["id"] = "x"
    (tmp_path / "in/test.json").write_text(json.dumps(content))
    samples = recording(tmp_path / "in/audio/x.ogg", 0.5)
    prepare_squad(tmp_path / "in", tmp_path / "out")
    corpus = load_corpus(tmp_path / "out", "test")
    paths = [corpus.path(corpus.passages["x"]), corpus.path(corpus.questions[0])]
    assert len(set(paths)) == 2 and all(len(soundfile.read(p)[0]) == len(samples) for p in paths)


def test_another_folder_is_one_sentence(tmp_path, source):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/other.json").write_text("{}")
    for folder in ("empty", "no"):
        with pytest.raises(InputError, match="give a SQuAD or DRCD JSON file, or the folder") as error:
            prepare_squad(tmp_path / folder, tmp_path / "out")
        assert "\n" not in str(error.value)
    (source / "dev-v2.0.json").write_text('{"data": [')
    with pytest.raises(InputError, match="dev-v2.0.json is not whole JSON"):
        prepare_squad(source, tmp_path / "out")
    (source / "dev-v2.0.json").rename(source / "train.json")
    (source / "train.json").write_bytes((source / "train-v1.1.json").read_bytes())
    with pytest.raises(InputError, match="look like train; give one of them, or rename one"):
        prepare_squad(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_chinese_is_not_taken_for_english(tmp_path, squad_json):
    path = squad_json(tmp_path / "dev.json", ("在歐洲 the EU", [("1", "歐洲在哪裡？", [("歐洲", 1)])]))
    with pytest.raises(
        InputError, match=r"dev.json is mostly in Chinese characters.*`speechssl prepare drcd`, or say --language zh$"
    ):
        prepare_squad(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    prepare_squad(path, tmp_path / "out", language="zh")
    assert load_corpus(tmp_path / "out", "dev").questions[0].language == "zh"
    path = squad_json(tmp_path / "test.json", ("A 梵語 word.", [("1", "Which?", [("梵語", 2)])]))
    prepare_squad(path, tmp_path / "english")  # that quotes some
    squad_json(tmp_path / "train.json", ("x", [("1", "", [("x", 0)])]))
    prepare_squad(tmp_path / "train.json", tmp_path / "empty")


def test_english_is_not_taken_for_chinese(tmp_path, squad_json):
    path = squad_json(tmp_path / "dev.json", ("The EU (歐盟) lies in Europe.", [("1", "Where is it?", [("Europe", 20)])]))
    with pytest.raises(InputError, match=r"dev.json has hardly a Chinese.*`speechssl prepare squad`, or say --language en$"):
        prepare_drcd(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    prepare_drcd(path, tmp_path / "out", language="en")
    assert load_corpus(tmp_path / "out", "dev").questions[0].language == "en"


def test_a_language_without_rules_is_refused_before_anything_is_written(source, tmp_path):
    with pytest.raises(InputError, match="no text rules for the language 'fr'"):
        prepare_squad(source, tmp_path / "out", language="fr")
    assert not (tmp_path / "out").exists()


def test_recordings_of_nothing_are_counted(tmp_path, squad_json, recording):
    squad_json(tmp_path / "in/test.json", (TEXT, ASKED[:1]))
    for name in ("0_0", "7_7", "else"):
        recording(tmp_path / f"in/audio/{name}.wav")
    report = prepare_squad(tmp_path / "in", tmp_path / "out")
    found = {f["what"]: f["count"] for f in report["splits"]["test"]["found"]}
    assert found["recordings of no passage or question"] == 2 and found["questions without recordings"] == 1


def test_a_folder_of_something_else_is_not_written_into(source, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty and not the squad corpus; choose another folder"):
        prepare_squad(source, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_all_of_it_reads_the_real_odsqa(shared, tmp_path):
    report = prepare_drcd(shared("odsqa", "ODSQA_textq_test-v1.1.json"), tmp_path / "out")
    assert report["splits"]["test"]["questions"] == {"read": 1_464, "kept": 1_464, "set_aside": 0}
    assert np.isclose(report["splits"]["test"]["answer_in_letters"], 1)


@pytest.mark.parametrize(
    "paragraphs, why",
    [((), "its files are empty"), ((("", []),), "its files are empty")],
)
def test_what_holds_no_question_that_can_be_used_is_refused(tmp_path, squad_json, paragraphs, why):
    squad_json(tmp_path / "in/dev-v1.1.json", *paragraphs)
    with pytest.raises(InputError, match=rf"in holds no question of squad that can be used \({why}\)"):
        prepare_squad(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_passages_without_any_question_are_a_corpus(tmp_path, squad_json):
    squad_json(tmp_path / "in/dev-v1.1.json", (TEXT, []))
    report = prepare_squad(tmp_path / "in", tmp_path / "out")["splits"]["dev"]
    assert report["passages"]["kept"] == 1
    assert report["questions"] == {"read": 0, "kept": 0, "set_aside": 0, "published": 10_570, "agrees": False}
