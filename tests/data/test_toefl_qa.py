"""TOEFL-QA from its text files; counts on the real ones where they are."""

import re

import pytest

from speechssl.data.options import ToeflQa
from speechssl.data.prepare import format_report
from speechssl.data.records import load_corpus
from speechssl.data.toefl_qa import prepare_toefl_qa, tidy

from ..files import read_lines, refused

STORY = ["hi ,  um  ,  i need help .", "it costs 25 $ .then you pay ."]


def lines(
    sentences=STORY,
    question="why does he call",
    options=("to ask 1", "to pay 0", "to sing 0", "to go 0"),
):
    return "".join(
        [f"SENTENCE {s}\n" for s in sentences]
        + [f"QUESTION {question}\n"]
        + [f"OPTION {o}\n" for o in options]
    )


def write(folder, name, text=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(
        (lines() if text is None else text).encode() if not isinstance(text, bytes) else text
    )


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "TOEFL-QA"
    for split in ("train", "dev", "test"):
        write(root / "data" / split, "tpo_1-conversation_1_10")
        write(
            root / "data" / split,
            "tpo_1-conversation_1_2",
            lines(options=("to ask 1", "to pay 1", "no 0", "yes 0")),
        )
        write(root / "data" / split, "tpo_1-lecture_1_1", lines(["another ."]))
    return root


def questions(out, split):
    return {q.id: q for q in load_corpus(out, split).questions}


def test_questions_of_a_story_share_a_passage_of_a_sentence_a_line(source, tmp_path):
    report = prepare_toefl_qa(ToeflQa(source=source, out=tmp_path / "out", workers=1))
    corpus = load_corpus(tmp_path / "out", "train")
    assert {n: p.text for n, p in corpus.passages.items()} == {
        "tpo_1-conversation_1": "hi, um, i need help.\nit costs 25 $. then you pay.",
        "tpo_1-lecture_1": "another.",
    }
    assert [q.id for q in corpus.questions] == [
        "tpo_1-conversation_1_2",
        "tpo_1-conversation_1_10",
        "tpo_1-lecture_1_1",
    ]
    several, one, _ = corpus.questions
    assert several.correct == (0, 1)
    assert several.options == ("to ask", "to pay", "no", "yes")
    assert one.correct == (0,)
    assert one.text == "why does he call" and one.language == "en" and not one.synthetic
    assert (
        "train questions: 3 read, 3 kept, 0 set aside; published 717 (DIFFERENT); no audio"
    ) in format_report(report)
    part = prepare_toefl_qa(ToeflQa(source=source, out=tmp_path / "part", passages=1, workers=1))[
        "splits"
    ]["train"]
    assert [(part[kind]["read"], part[kind]["kept"]) for kind in ("passages", "questions")] == [
        (2, 1),
        (3, 2),
    ]
    write(source / "data" / "dev", "tpo_7-lecture_1_1")  # other files
    refused(
        "other inputs", prepare_toefl_qa, ToeflQa(source=source, out=tmp_path / "out", workers=1)
    )


def test_quirks_are_kept(source, tmp_path):
    dev, test = source / "data" / "dev", source / "data" / "test"
    write(dev, "tpo_1-lecture_1_2", lines(["another  .", "with an end ."]))
    write(dev, "tpo_1-lecture_1_3", lines(["another."]))
    write(
        test,
        "tpo_2-lecture_1_1",
        lines(["so", ""], options=["a 1", "a 0", "b 0", "c 0"]).replace("\n", "\r\n") + "\n\n",
    )
    write(test, "tpo_2-lecture_1_2", lines(["so"], options=["a 1", "a 0", "b 0", "c 0"]))
    tabbed = re.sub(
        " (?=[01]\n)",
        "\t",
        lines(["so"]).replace("SENTENCE ", "SENTENCE\t").replace("OPTION ", "OPTION\t"),
    )
    write(test, "tpo_9-lecture_1_1", tabbed.replace("sing", "sing caf\u00e9").encode("cp1252"))
    write(test, "README", "of no matter")
    prepare_toefl_qa(ToeflQa(source=source, out=tmp_path / "out", workers=1))
    passages = {name: q.passage for name, q in questions(tmp_path / "out", "dev").items()}
    assert passages["tpo_1-lecture_1_2"] == "tpo_1-lecture_1-version-2"
    assert passages["tpo_1-lecture_1_3"] == "tpo_1-lecture_1"
    asked = questions(tmp_path / "out", "test")["tpo_9-lecture_1_1"]
    assert (asked.options, asked.correct) == (("to ask", "to pay", "to sing café", "to go"), (0,))


def test_tidy():
    assert tidy("so ,  um  , 25 $ .") == "so, um, 25 $."
    assert tidy("class .then you") == ("class. then you")
    assert tidy("  ") == ""
    assert tidy("that 's it , .5 of 'em") == ("that's it, .5 of 'em")
    assert tidy("u.s. , 1,000 ?!") == "u.s., 1,000?!"


@pytest.mark.parametrize(
    "text",
    [
        lines()[:-3],
        lines()[: lines().index("OPTION to go")],
        lines() + "QUESTION again\n",
        lines([]),
        lines() + "PARAGRAPH x\n",
        lines(options=["1", "b 0", "c 0", "d 0"]),
        lines(options=["a 0", "b 0", "c 0", "d 0"]),
        lines(question=""),
    ],
)
def test_a_broken_file_is_set_aside_and_the_others_are_kept(source, tmp_path, text):
    write(source / "data" / "dev", "tpo_1-lecture_1_1", text)
    report = prepare_toefl_qa(ToeflQa(source=source, out=tmp_path / "out", workers=1))
    (line,) = read_lines(tmp_path / "out/set_aside.jsonl")
    assert line["id"] == "tpo_1-lecture_1_1"
    counts = report["splits"]["dev"]["questions"]
    assert (counts["read"], counts["kept"], counts["set_aside"]) == (3, 2, 1)
    assert len(questions(tmp_path / "out", "dev")) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [("tpo_1-lecture_1_1", "no usable question of toefl-qa"), ("story.txt", "has no questions of")],
)
def test_a_folder_in_which_nothing_can_be_used_is_refused(tmp_path, unmade, name, message):
    write(tmp_path / "x" / "dev", name, lines(question=""))
    refused(message, prepare_toefl_qa, ToeflQa(source=tmp_path / "x", out=unmade, workers=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "stories", "asked", "several"), [("train", 150, 717, 101), ("dev", 24, 124, 16)]
)
def test_the_real_files_give_the_published_counts(shared, tmp_path, split, stories, asked, several):
    facts = prepare_toefl_qa(
        ToeflQa(source=shared("toefl_qa", "data", split), out=tmp_path / "out", workers=1)
    )["splits"][split]
    assert facts["passages"] == {
        "read": stories,
        "kept": stories,
        "set_aside": 0,
        "published": stories,
        "agrees": True,
    }
    assert facts["questions"] == {
        "read": asked,
        "kept": asked,
        "set_aside": 0,
        "published": asked,
        "agrees": True,
    }
    questions = load_corpus(tmp_path / "out", split).questions
    assert sum(len(q.correct) > 1 for q in questions) == several
    texts = [p.text for p in load_corpus(tmp_path / "out", split).passages.values()]
    assert not any(re.search(r"[\w'] [,.?!;:](?!\d)|  ", text) for text in texts)
