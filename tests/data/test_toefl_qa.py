"""TOEFL-QA from its text files; counts on the real ones where they are."""

import re

import pytest

from speechssl.data.options import ToeflQa
from speechssl.data.records import load_corpus
from speechssl.data.toefl_qa import prepare_toefl_qa, tidy

from ..files import read_lines, refused

STORY = ["hi ,  um  ,  i need help .", "it costs 25 $ .then you pay ."]
OPTIONS = ("to ask 1", "to pay 0", "to sing 0", "to go 0")


def lines(sentences=STORY, question="why does he call", options=OPTIONS):
    made = [f"SENTENCE {s}\n" for s in sentences]
    made += [f"QUESTION {question}\n", *(f"OPTION {o}\n" for o in options)]
    return "".join(made)


def write(folder, name, text=""):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text or lines())


def prepare(source, out, **options):
    return prepare_toefl_qa(ToeflQa(source=source, out=out, workers=1, **options))


@pytest.fixture
def source(tmp_path):
    two = lines(options=("to ask 1", "to pay 1", "no 0", "yes 0"))
    for split in ("train", "dev", "test"):
        folder = tmp_path / "TOEFL-QA/data" / split
        write(folder, "tpo_1-conversation_1_10")
        write(folder, "tpo_1-conversation_1_2", two)
        write(folder, "tpo_1-lecture_1_1", lines(["another ."]))
    return tmp_path / "TOEFL-QA"


def test_questions_of_a_story_share_a_passage_of_a_sentence_a_line(source, tmp_path):
    counts = prepare(source, tmp_path / "out")["splits"]["train"]["questions"]
    assert (counts["read"], counts["kept"], counts["published"]) == (3, 3, 717)
    corpus = load_corpus(tmp_path / "out", "train")
    assert {name: p.text for name, p in corpus.passages.items()} == {
        "tpo_1-conversation_1": "hi, um, i need help.\nit costs 25 $. then you pay.",
        "tpo_1-lecture_1": "another.",
    }
    several, one, other = corpus.questions
    assert (several.id, one.id) == ("tpo_1-conversation_1_2", "tpo_1-conversation_1_10")
    assert (several.correct, several.options) == ((0, 1), ("to ask", "to pay", "no", "yes"))
    assert (one.correct, one.text, one.language) == ((0,), "why does he call", "en")
    assert other.passage == "tpo_1-lecture_1"
    part = prepare(source, tmp_path / "part", passages=1)["splits"]["train"]
    kept = [(part[kind]["read"], part[kind]["kept"]) for kind in ("passages", "questions")]
    assert kept == [(2, 1), (3, 2)]


def test_versions_of_a_story_and_windows_characters(source, tmp_path):
    write(source / "data/dev", "tpo_1-lecture_1_2", lines(["another  .", "with an end ."]))
    tabbed = re.sub(" (?=[01]\n)", "\t", lines(["so"]).replace("sing", "sing caf\u00e9"))
    (source / "data/test/tpo_9-lecture_1_1").write_bytes(tabbed.encode("cp1252"))
    prepare(source, tmp_path / "out")
    passages = {q.id: q.passage for q in load_corpus(tmp_path / "out", "dev").questions}
    assert passages["tpo_1-lecture_1_2"] == "tpo_1-lecture_1-version-2"
    asked = load_corpus(tmp_path / "out", "test").questions[-1]
    assert (asked.options, asked.correct) == (("to ask", "to pay", "to sing café", "to go"), (0,))


@pytest.mark.parametrize(
    ("text", "tidied"),
    [
        ("so ,  um  , 25 $ .", "so, um, 25 $."),
        ("class .then you", "class. then you"),
        ("that 's it , .5 of 'em", "that's it, .5 of 'em"),
        ("u.s. , 1,000 ?!", "u.s., 1,000?!"),
    ],
)
def test_tidy(text, tidied):
    assert tidy(text) == tidied


@pytest.mark.parametrize(
    "text",
    [
        lines()[:-3],
        lines()[: lines().index("OPTION to go")],
        lines() + "QUESTION again\n",
        lines([]),
        lines() + "PARAGRAPH x\n",
        lines(options=["a 0", "b 0", "c 0", "d 0"]),
        lines(question=""),
    ],
)
def test_a_broken_file_is_set_aside_and_the_others_are_kept(source, tmp_path, text):
    name = "tpo_1-lecture_1_1"
    write(source / "data/dev", name, text)
    counts = prepare(source, tmp_path / "out")["splits"]["dev"]["questions"]
    assert [line["id"] for line in read_lines(tmp_path / "out/set_aside.jsonl")] == [name]
    assert (counts["read"], counts["kept"], counts["set_aside"]) == (3, 2, 1)


def test_a_folder_in_which_nothing_can_be_used_is_refused(tmp_path, absent_out):
    write(tmp_path / "x/dev", "tpo_1-lecture_1_1", lines(question=""))
    refused("no usable question of toefl-qa", prepare, tmp_path / "x", absent_out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "stories", "asked", "several"), [("train", 150, 717, 101), ("dev", 24, 124, 16)]
)
def test_the_real_files_give_the_published_counts(shared, tmp_path, split, stories, asked, several):
    facts = prepare(shared("toefl_qa", "data", split), tmp_path / "out")["splits"][split]
    for kind, number in (("passages", stories), ("questions", asked)):
        assert (facts[kind]["kept"], facts[kind]["agrees"]) == (number, True)
    corpus = load_corpus(tmp_path / "out", split)
    assert sum(len(q.correct) > 1 for q in corpus.questions) == several
    texts = [p.text for p in corpus.passages.values()]
    assert not any(re.search(r"[\w'] [,.?!;:](?!\d)|  ", text) for text in texts)
