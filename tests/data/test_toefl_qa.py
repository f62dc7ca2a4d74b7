"""Test TOEFL-QA: stories, questions and options from its text files."""

import re

import pytest

from speechssl.data.options import ToeflQa
from speechssl.data.records import load_corpus
from speechssl.data.toefl_qa import prepare_toefl_qa

from ..files import read_lines

STORY = ["hi ,  um  ,  i need help .", "it 's 25 $ .then you pay ."]
OPTIONS = ("to ask 1", "to pay 0", "to sing 0", "to go 0")


def make_text(sentences=STORY, question="why does he call", options=OPTIONS):
    """Make the text of a question's file."""
    lines = [f"SENTENCE {sentence}\n" for sentence in sentences]
    lines.append(f"QUESTION {question}\n")
    lines += [f"OPTION {option}\n" for option in options]
    return "".join(lines)


def write(folder, name, text=""):
    """Write the file of a question."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text or make_text())


def prepare(source, out, **options):
    """Prepare the corpus, and return its data report."""
    return prepare_toefl_qa(ToeflQa(source=source, out=out, workers=1, **options))


@pytest.fixture
def source(tmp_path):
    """Three questions in every split: two about one story, one of them with two right options."""
    two_right = make_text(options=("to ask 1", "to pay 1", "no 0", "yes 0"))
    for split in ("train", "dev", "test"):
        folder = tmp_path / "TOEFL-QA/data" / split
        write(folder, "tpo_1-conversation_1_10")
        write(folder, "tpo_1-conversation_1_2", two_right)
        write(folder, "tpo_1-lecture_1_1", make_text(["another ."]))
    return tmp_path / "TOEFL-QA"


def test_questions_about_a_story_share_a_passage_with_one_sentence_a_line(source, tmp_path):
    counts = prepare(source, tmp_path / "out")["splits"]["train"]["questions"]
    assert (counts["read"], counts["kept"], counts["published"]) == (3, 3, 717)
    corpus = load_corpus(tmp_path / "out", "train")
    assert {name: p.text for name, p in corpus.passages.items()} == {
        "tpo_1-conversation_1": "hi, um, i need help.\nit's 25 $. then you pay.",
        "tpo_1-lecture_1": "another.",
    }
    several, one, other = corpus.questions
    assert (several.id, one.id) == ("tpo_1-conversation_1_2", "tpo_1-conversation_1_10")
    assert (several.correct, several.options) == ((0, 1), ("to ask", "to pay", "no", "yes"))
    assert (one.correct, one.text, one.language) == ((0,), "why does he call", "en")
    assert other.passage == "tpo_1-lecture_1"
    part = prepare(source, tmp_path / "part", passages=1)["splits"]["train"]
    assert part["questions"] == counts | {"kept": 2, "set_aside": 1}


def test_versions_of_a_story_become_passages_and_windows_1252_is_read(source, tmp_path):
    write(source / "data/dev", "tpo_1-lecture_1_2", make_text(["another  .", "with an end ."]))
    tabbed = re.sub(" (?=[01]\n)", "\t", make_text(["so"]).replace("sing", "sing caf\u00e9"))
    (source / "data/test/tpo_9-lecture_1_1").write_bytes(tabbed.encode("cp1252"))
    prepare(source, tmp_path / "out")
    passages = {q.id: q.passage for q in load_corpus(tmp_path / "out", "dev").questions}
    assert passages["tpo_1-lecture_1_2"] == "tpo_1-lecture_1-version-2"
    question = load_corpus(tmp_path / "out", "test").questions[-1]
    assert question.options == ("to ask", "to pay", "to sing café", "to go")
    assert question.correct == (0,)


@pytest.mark.parametrize(
    "text",
    [
        make_text()[:-3],  # the last option has no 0 or 1
        make_text(options=OPTIONS[:3]),
        make_text() + "QUESTION again\n",
        make_text([]),
        make_text() + "PARAGRAPH x\n",
        make_text(options=["a 0", "b 0", "c 0", "d 0"]),
        make_text(question=""),
    ],
)
def test_a_broken_file_is_set_aside_and_the_others_are_kept(source, tmp_path, text):
    name = "tpo_1-lecture_1_1"
    write(source / "data/dev", name, text)
    counts = prepare(source, tmp_path / "out")["splits"]["dev"]["questions"]
    assert [line["id"] for line in read_lines(tmp_path / "out/set_aside.jsonl")] == [name]
    assert (counts["read"], counts["kept"], counts["set_aside"]) == (3, 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "stories", "questions", "several_right"),
    [("train", 150, 717, 101), ("dev", 24, 124, 16)],
)
def test_the_published_files_give_the_published_counts(
    shared, tmp_path, split, stories, questions, several_right
):
    facts = prepare(shared("toefl_qa", "data", split), tmp_path / "out")["splits"][split]
    for kind, number in (("passages", stories), ("questions", questions)):
        assert (facts[kind]["kept"], facts[kind]["agrees"]) == (number, True)
    corpus = load_corpus(tmp_path / "out", split)
    assert sum(len(q.correct) > 1 for q in corpus.questions) == several_right
    texts = [p.text for p in corpus.passages.values()]
    assert not any(re.search(r"[\w'] [,.?!;:](?!\d)|  ", text) for text in texts)
