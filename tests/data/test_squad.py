"""Plain SQuAD and DRCD JSON: every schema that is published, what is odd about questions,
recordings by id, times of words."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.options import Drcd, Squad
from speechssl.data.prepare import PrepareReport
from speechssl.data.records import Answer, Passage, Span, load_corpus
from speechssl.data.squad import (
    Paragraph,
    SquadQa,
    Style,
    add_times,
    as_text,
    collect_originals,
    is_squad,
    make_records,
    places,
    prepare_drcd,
    prepare_squad,
    read_golds,
    read_squad,
    read_words,
    split_of,
)
from speechssl.errors import InputError

from ..files import refused, remarks


def gold(text, start):
    return Answer(text, char_start=start)


# ---- files, as they are read


def test_every_schema(tmp_path, squad_json):
    asked = [("q1", "Where?", [("Rome", 16), ("in Rome", 13)])]
    first, second = read_squad(
        squad_json(tmp_path / "a.json", ("Ann was born in Rome.", asked), ("Empty.", []))
    )
    assert (first.title, first.context, first.id, second.article, second.number) == (
        "Title",
        "Ann was born in Rome.",
        "",
        0,
        1,
    )
    assert (
        first.questions[0].golds == (gold("Rome", 16), gold("in Rome", 13))
        and first.questions[0].impossible is None
    )
    assert second.questions == ()
    path = squad_json(
        tmp_path / "drcd.json", ("在歐洲", [("1147-1-1", "哪裡？", [("歐洲", 1)])]), drcd="1147"
    )
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a byte order mark does no harm
    (paragraph,) = read_squad(path)
    assert paragraph.id == "1147-1" and paragraph.questions[0].golds == (gold("歐洲", 1),)
    impossible = {
        "id": 7,
        "question": "Who?",
        "answers": [],
        "is_impossible": True,
        "plausible_answers": [{"text": "x"}],
    }
    some = [
        {"context": "a \ud83d b", "qas": [impossible]},
        {"context": "c"},
        {"context": "d", "qas": None},
    ]
    # SQuAD 2.0, and half a surrogate pair
    (tmp_path / "2.json").write_text(json.dumps({"data": [{"paragraphs": some}]}))
    first, second, third = read_squad(tmp_path / "2.json")
    assert (
        first.title,
        first.questions[0].id,
        first.questions[0].impossible,
        first.questions[0].golds,
    ) == ("", "7", True, ())
    assert first.context == "a � b" and second.questions == third.questions == ()


@pytest.mark.parametrize(
    ("answers", "golds"),
    [
        ([{"text": "a", "answer_start": 3}], [("a", 3)]),
        ({"text": ["a", "b"], "answer_start": [3, 5]}, [("a", 3), ("b", 5)]),
        ({"text": ["a", "b"], "answer_start": [3]}, [("a", 3), ("b", None)]),
        ({"text": [], "answer_start": []}, []),
        ({"text": "a", "answer_start": 3}, [("a", 3)]),
        ([{"text": 1871, "answer_start": "4"}], [("1871", 4)]),
        (
            [{"text": "a", "answer_start": -1}, {"text": "b"}, {"answer_start": 0}],
            [("a", None), ("b", None), ("", 0)],
        ),
        (
            [{"text": "a", "answer_start": 2.5}, {"text": "b", "answer_start": 2.0}],
            [("a", None), ("b", 2)],
        ),
        (
            [{"text": "a", "answer_start": True}, {"text": "b", "answer_start": float("inf")}],
            [("a", None), ("b", None)],
        ),
        (None, []),
        ({}, []),
    ],
)
def test_answers_in_every_form(answers, golds):
    assert read_golds(answers) == tuple(gold(*pair) for pair in golds)
    for none in ("Rome", 3, ["Rome"], [None]):
        with pytest.raises(TypeError):
            read_golds(none)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'{"data": [{"paragraphs": [{"context": "a", "qas": [',
            "is not whole JSON .*; correct it, or copy or download it again",
        ),
        (b"[" * 100_000, "is not whole JSON"),
        (b'{"data": "\xff\xfe"}', "is not whole JSON"),
        (b'{"rows": []}', "it has no list called data"),
        (b"[]", "it has no list called data"),
        (b'{"data": [3]}', r"data\[0\] has no list called paragraphs"),
        (
            b'{"data": [{"paragraphs": [{"qas": []}]}]}',
            r"data\[0\].paragraphs\[0\] has no text "
            r"called context",
        ),
        (
            b'{"data": [{"paragraphs": [{"context": "", "qas": {}}]}]}',
            r"paragraphs\[0\] has no list called qas",
        ),
        (
            b'{"data": [{"paragraphs": [{"context": "", "qas": [{"id": 1}]}]}]}',
            r"qas\[0\] has no question",
        ),
        (
            b'{"data": [{"paragraphs": [{"context": "", "qas": [{"question": "", "answers": '
            b'"x"}]}]}]}',
            "answers are not a list",
        ),
    ],
)
def test_another_file_is_one_sentence_that_names_it(tmp_path, content, message):
    (tmp_path / "x.json").write_bytes(content)
    assert refused(message, read_squad, tmp_path / "x.json").startswith(str(tmp_path / "x.json"))
    assert is_squad(tmp_path / "x.json") == (
        "whole JSON" in message or '{"data": [' in content.decode("latin-1")
    )
    refused("no.json", read_squad, tmp_path / "no.json")


@given(st.text(st.characters(), max_size=20) | st.integers() | st.none())
def test_any_text_can_be_written_and_keeps_its_offsets(value):
    text = as_text(value)
    assert text.encode("utf-8") is not None
    assert not isinstance(value, str) or len(text) == len(value)


# ---- records: kept with a remark, or set aside with a reason, and the counts always add up

BORN = "Ann was born in Rome."
ROME = (gold("Rome", 16),)


def paragraph(*asked, context=BORN, number=0, name="", title=""):
    return Paragraph(0, number, name, title, context, tuple(asked))


def recorded(*paragraphs, style=None, **more):
    """The records, what was remarked and how often, and why items were set aside."""
    report = PrepareReport("corpus")
    records, _ = make_records("test", list(paragraphs), style or Style(), report, **more)
    remarks = {what: number for (_, (what, _)), number in report.remarks.items()}
    return records, remarks, {line["id"]: line["reason"] for line in report.aside}


def test_offsets():
    records, *odd = recorded(paragraph(SquadQa("q", "Where?", ROME)))
    assert (
        records.passages[0].text == BORN
        and records.passages[0].id == records.questions[0].passage == "0_0"
    )
    assert records.questions[0].answers == (Answer("Rome", char_start=16),) and odd == [{}, {}]
    golds = (
        gold("Rome", 15),
        gold("Rome", None),
        gold("rome", 16),
        gold("Rome", 10**30),
        gold("Rome", 16),
    )
    wrong = paragraph(SquadQa("q", "Where?", golds))
    records, remarks, _ = recorded(wrong)
    assert [a.char_start for a in records.questions[0].answers] == [None, None, None, None, 16]
    assert remarks == {"answers whose offset does not match": 4}
    records, remarks, _ = recorded(wrong, style=Style(offsets=False))
    assert {a.char_start for a in records.questions[0].answers} == {None}
    assert remarks == {"answers with offsets of another text": 5}


def test_empty_answers_leave_their_question_unless_all_are():
    some = SquadQa("some", "Where?", (gold("", 0), *ROME, gold(" ", 3)))
    records, remarks, aside = recorded(
        paragraph(some, SquadQa("all", "Where?", (gold("", 0),)), SquadQa("none", "Where?", ()))
    )
    assert [(q.id, len(q.answers)) for q in records.questions] == [("some", 1)]
    assert remarks == {"empty answers": 3}
    assert aside == {"all": "every answer is empty", "none": "no answer, and not marked impossible"}
    three = (
        SquadQa("a", "Who?", (), True),
        SquadQa("b", "Who?", ROME, True),
        SquadQa("c", "Where?", ROME, False),
    )
    records, remarks, _ = recorded(paragraph(*three))
    assert [len(q.answers) for q in records.questions] == [0, 0, 1]
    assert remarks == {"questions marked impossible that have answers": 1}


def test_empty_texts_are_set_aside_but_empty_transcripts_are_kept():
    rows = (
        paragraph(SquadQa("a", "Where?", ROME), context=" "),
        paragraph(SquadQa("b", "", ROME), number=1),
    )
    records, _, aside = recorded(*rows)
    assert (
        aside == {"0_0": "empty passage", "a": ("its passage is set aside"), "b": "empty question"}
        and not records.questions
    )
    records, remarks, _ = recorded(
        *rows, style=Style(transcribed_passages=True, transcribed_questions=True)
    )
    assert [q.id for q in records.questions] == ["a", "b"] and len(records.passages) == 2
    assert {"passages with an empty transcript", "questions with an empty transcript"} < set(
        remarks
    )


def test_ids():
    same, other = SquadQa("q", "Where?", ROME), SquadQa("q", "In which town?", ROME)
    records, remarks, aside = recorded(
        paragraph(same, same, other, name="p"), paragraph(same, name="p")
    )
    assert [p.id for p in records.passages] == ["p", "p#2"]
    assert [(q.id, q.passage) for q in records.questions] == [
        ("q", "p"),
        ("q#2", "p"),
        ("q#3", "p#2"),
    ]
    assert aside == {"q": "the same question, word for word, with the same id"}
    assert remarks == {
        "ids of questions that occur twice": 2,
        ("ids of passages that occur twice"): 1,
    }
    records, remarks, _ = recorded(
        paragraph(SquadQa("", "Where?", ROME), SquadQa("", "Who?", ROME))
    )
    assert [q.id for q in records.questions] == ["0_0-1", "0_0-2"] and remarks == {
        ("questions without an id"): 2
    }


def test_transcripts_and_their_originals():
    transcribed = paragraph(
        SquadQa("q", "wear", (gold("rome", 16), gold("Rome", 9))), context=("and was born in rome")
    )
    style = Style(transcribed_passages=True, transcribed_questions=True)
    records, *_ = recorded(transcribed, style=style)
    assert (records.passages[0].text, records.passages[0].transcript) == (
        "",
        "and was born in rome",
    )
    assert (records.questions[0].text, records.questions[0].transcript) == ("", "wear")
    assert [a.char_start for a in records.questions[0].answers] == [16, None]
    known = collect_originals(
        [
            paragraph(SquadQa("q", "Where?", ROME), title="Ann"),
            paragraph(context="Original.", number=1, title="Ann"),
        ]
    )
    records, remarks, _ = recorded(transcribed, style=style, originals=known)
    assert (records.passages[0].text, records.passages[0].transcript) == (
        BORN,
        "and was born in rome",
    )
    assert (records.questions[0].text, records.questions[0].transcript) == ("Where?", "wear")
    # in what is written, which is the text now
    assert [a.char_start for a in records.questions[0].answers] == [None, 16]
    assert remarks == {"answers that are not word for word in the original": 1}
    by_place = [
        paragraph(context="oh", number=1, title="Ann"),
        paragraph(context="no", number=2, title="Ann"),
    ]
    records, remarks, _ = recorded(
        *by_place, style=Style(transcribed_passages=True), originals=known
    )
    assert [p.text for p in records.passages] == ["Original.", ""] and remarks[
        "passages without original"
    ] == 1


asked = st.builds(
    SquadQa,
    st.sampled_from(["", "a", "b", "a#2"]),
    st.sampled_from(["", " ", "Where?", "Who?"]),
    st.lists(
        st.builds(gold, st.sampled_from(["", "Rome", "x"]), st.sampled_from([None, 0, 16])),
        max_size=2,
    ).map(tuple),
    st.sampled_from([None, True, False]),
)
names = (
    st.integers(0, 1),
    st.integers(0, 1),
    st.sampled_from(["", "p", "0_0", "p#2"]),
    st.just(""),
)
paragraphs = st.builds(
    Paragraph, *names, st.sampled_from(["", BORN, "Rome"]), st.lists(asked, max_size=3).map(tuple)
)


@given(st.lists(paragraphs, max_size=4), st.booleans(), st.booleans())
def test_kept_and_set_aside_make_up_what_was_read(rows, passages, questions):
    report, style = (
        PrepareReport("corpus"),
        Style(transcribed_passages=passages, transcribed_questions=questions),
    )
    records, _ = make_records("test", rows, style, report)
    facts = report.to_json({"test": records})["splits"]  # asserts it
    assert not rows or facts["test"]["passages"]["read"] == len(rows)
    ids = {p.id for p in records.passages}
    assert len(ids) == len(records.passages) and len({q.id for q in records.questions}) == len(
        records.questions
    )
    assert all(q.passage in ids for q in records.questions)


# ---- the corpora

TEXT = "Ann, who was born in Rome, left."
ASKED = [
    ("q1", "Where was she born?", [("Rome", 21), ("in Rome", 18)]),
    ("q2", "Who?", [("Ann", 0)]),
]
WORDS = [
    ["Ann", 0.0, 0.1],
    ["who", 0.1, 0.2],
    ["was", 0.2, 0.3],
    ["born", 0.3, 0.4],
    ["in", 0.4, 0.5],
    ["rome", 0.5, 0.7],
]


@pytest.fixture
def source(tmp_path, squad_json):
    squad_json(tmp_path / "in/train-v1.1.json", (TEXT, ASKED), ("Nothing.", []))
    squad_json(
        tmp_path / "in/dev-v2.0.json", (TEXT, [("v1", "When?", [], {"is_impossible": True})])
    )
    return tmp_path / "in"


def test_texts_alone(source, tmp_path, squad_json):
    splits = prepare_squad(Squad(source=source, out=tmp_path / "out", workers=1))["splits"]
    train, dev = (load_corpus(tmp_path / "out", split) for split in ("train", "dev"))
    assert train.passages["0_0"].text == TEXT and [
        q.answers[0].char_start for q in train.questions
    ] == [21, 0]
    assert len(dev.questions) == 1 and not dev.answerable
    assert [splits[split]["questions"]["published"] for split in ("train", "dev")] == [
        87_599,
        11_873,
    ]
    assert splits["train"]["hours"] == {"passages": 0, "questions": 0}
    path = squad_json(
        tmp_path / "DRCD_dev.json", ("在歐洲", [("1-1-1", "哪裡？", [("歐洲", 1)])]), drcd="1"
    )
    report = prepare_drcd(Drcd(source=path, out=tmp_path / "drcd", workers=1))
    corpus = load_corpus(tmp_path / "drcd", "dev")
    assert corpus.passages["1-1"].language == "zh" and corpus.questions[0].passage == "1-1"
    assert report["splits"]["dev"]["passages"] == {
        "read": 1,
        "kept": 1,
        "set_aside": 0,
        "published": 1_000,
        "agrees": False,
    }


def test_splits_by_name(tmp_path):
    names = {
        "train-v1.1": "train",
        "DRCD_training": "train",
        "validation": "dev",
        "my test": "test",
        "a b": "a-b",
        "mine": "mine",
    }
    assert {name: split_of(tmp_path / f"{name}.json") for name in names} == names


@pytest.mark.parametrize("folder", ["audio", "audio/train"])
def test_recordings_and_times(source, tmp_path, recording, folder):
    (source / "dev-v2.0.json").unlink()
    parts = [recording(source / folder / f"0_0_{n}.wav", 0.35, 22_050) for n in range(2)]
    whole = recording(source / folder / "0_1.flac", 0.4)
    for name in ("q1", "q2"):
        recording(source / folder / f"{name}.wav", 0.2)
    (source / folder / "0_0.words.json").write_text(json.dumps(WORDS))
    report = prepare_squad(Squad(source=source, out=tmp_path / "out", workers=1))
    corpus = load_corpus(tmp_path / "out", "train")
    passage = corpus.passages["0_0"]
    assert (
        passage.seconds == pytest.approx(sum(map(len, parts)) / 22_050, abs=1 / 16_000)
        and len(passage.words) == 6
    )
    assert corpus.passages["0_1"].seconds == len(whole) / 16_000
    times = [(a.text, a.start, a.end) for q in corpus.questions for a in q.answers]
    assert times == [("Rome", 0.5, 0.7), ("in Rome", 0.4, 0.7), ("Ann", 0.0, 0.1)]
    assert all(q.audio for q in corpus.questions) and report["splits"]["train"]["with_times"] == 2
    assert remarks(report["splits"]["train"]) == {"passages without questions": 1}


def test_segments_from_1_a_hole_and_recordings_of_nothing(tmp_path, squad_json, recording):
    squad_json(
        tmp_path / "in/test.json", (TEXT, ASKED[:1]), ("More.", [("q3", "What?", [("More", 0)])])
    )
    for name in ("0_0_1", "0_0_2", "0_1_0", "0_1_2", "7_7", "else"):
        recording(tmp_path / f"in/audio/{name}.wav")
    report = prepare_squad(Squad(source=tmp_path / "in", out=tmp_path / "out", workers=1))
    corpus = load_corpus(tmp_path / "out", "test")
    assert list(corpus.passages) == ["0_0"] and [q.id for q in corpus.questions] == ["q1"]
    assert report["splits"]["test"]["set_aside"] == {
        ("segments of its recording are missing"): 1,
        "its passage is set aside": 1,
    }
    found = remarks(report["splits"]["test"])
    assert found["answers without times"] == 2
    assert found["questions without recordings"] == 1


def test_one_folder_of_recordings_for_two_splits(tmp_path, squad_json, recording):
    squad_json(tmp_path / "in/train.json", (TEXT, ASKED[:1]))
    squad_json(tmp_path / "in/test.json", ("More.", [("q3", "What?", [("More", 0)])]))
    for name in ("q1", "q3", "else"):
        recording(tmp_path / f"in/audio/{name}.wav")
    report = prepare_squad(Squad(source=tmp_path / "in", out=tmp_path / "out", workers=1))
    assert {split: facts["questions"]["kept"] for split, facts in report["splits"].items()} == {
        "train": 1,
        "test": 1,
    }
    card = json.loads((tmp_path / "out/card.json").read_text())
    # not the published files
    assert card["title"] == "JSON in the layout of SQuAD" and "licence" not in card


def test_a_file_may_state_its_licence(tmp_path, squad_json):
    for split, licence in (("train", "CC0"), ("test", "CC BY 4.0")):
        path = squad_json(tmp_path / f"in/{split}.json", (TEXT, ASKED[:1]))
        path.write_text(json.dumps(json.loads(path.read_text()) | {"licence": licence}))
    prepare_squad(Squad(source=tmp_path / "in", out=tmp_path / "out", workers=1))
    assert json.loads((tmp_path / "out/card.json").read_text())["licence"] == "CC BY 4.0, CC0"


def test_a_passage_and_a_question_of_one_id_are_two_files(tmp_path, squad_json, recording):
    path = squad_json(tmp_path / "in/test.json", ("Rome it is.", [("x", "Where?", [("Rome", 0)])]))
    content = json.loads(path.read_text())
    content["data"][0]["paragraphs"][0]["id"] = "x"
    path.write_text(json.dumps(content))
    samples = recording(tmp_path / "in/audio/x.ogg", 0.5)
    prepare_squad(Squad(source=tmp_path / "in", out=tmp_path / "out", workers=1))
    corpus = load_corpus(tmp_path / "out", "test")
    paths = [corpus.path(corpus.passages["x"]), corpus.path(corpus.questions[0])]
    assert len(set(paths)) == 2 and all(len(soundfile.read(p)[0]) == len(samples) for p in paths)


def test_another_folder_is_one_sentence(tmp_path, source, unmade):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/other.json").write_text("{}")
    for folder in ("empty", "no"):
        refused(
            "give a SQuAD or DRCD JSON file, or the folder",
            prepare_squad,
            Squad(source=tmp_path / folder, out=unmade, workers=1),
        )
    refused(
        "no text rules for the language 'fr'",
        prepare_squad,
        Squad(source=source, out=unmade, language="fr", workers=1),
    )
    (source / "dev-v2.0.json").write_text('{"data": [')
    refused(
        "dev-v2.0.json is not whole JSON",
        prepare_squad,
        Squad(source=source, out=unmade, workers=1),
    )
    (source / "dev-v2.0.json").rename(source / "train.json")
    (source / "train.json").write_bytes((source / "train-v1.1.json").read_bytes())
    refused(
        "look like train; give one of them, or rename one",
        prepare_squad,
        Squad(source=source, out=unmade, workers=1),
    )


def test_chinese_is_not_taken_for_english_nor_english_for_chinese(tmp_path, squad_json, unmade):
    chinese = squad_json(
        tmp_path / "dev.json", ("在歐洲 the EU", [("1", "歐洲在哪裡？", [("歐洲", 1)])])
    )
    english = squad_json(
        tmp_path / "test.json",
        ("The EU (歐盟) lies in Europe.", [("1", "Where is it?", [("Europe", 20)])]),
    )
    refused(
        "dev.json is mostly in Chinese.*`speechssl prepare drcd`, or give --language zh$",
        prepare_squad,
        Squad(source=chinese, out=unmade, workers=1),
    )
    refused(
        "test.json has hardly any Chinese.*`speechssl prepare squad`, or give --language en$",
        prepare_drcd,
        Drcd(source=english, out=unmade, workers=1),
    )
    prepare_squad(Squad(source=chinese, out=tmp_path / "zh", language="zh", workers=1))
    assert load_corpus(tmp_path / "zh", "dev").questions[0].language == "zh"
    prepare_drcd(
        Drcd(source=english, out=tmp_path / "en", language="en", workers=1)
    )  # that quotes some Chinese
    assert load_corpus(tmp_path / "en", "test").questions[0].language == "en"


def test_what_holds_no_question_that_can_be_used_is_refused(tmp_path, squad_json, unmade):
    for some in ((), (("", []),)):
        squad_json(tmp_path / "in/dev-v1.1.json", *some)
        refused(
            r"in has no usable question of squad \(its files are "
            r"empty\)",
            prepare_squad,
            Squad(source=tmp_path / "in", out=unmade, workers=1),
        )
    # passages without any question are a corpus
    squad_json(tmp_path / "in/dev-v1.1.json", (TEXT, []))
    report = prepare_squad(Squad(source=tmp_path / "in", out=tmp_path / "made", workers=1))[
        "splits"
    ]["dev"]
    assert report["passages"]["kept"] == 1
    assert report["questions"] == {
        "read": 0,
        "kept": 0,
        "set_aside": 0,
        "published": 10_570,
        "agrees": False,
    }


# ---- words found in a text, and answers timed by them


def spans(words):
    return tuple(Span(word, float(i), i + 1.0) for i, word in enumerate(words))


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("Ann, in Rome.", "ann in Rome", [(0, 3), (5, 7), (8, 12)]),
        ("a a", "a a", [(0, 1), (2, 3)]),
        ("在歐洲", "在 歐洲", [(0, 1), (1, 3)]),
        ("Ann left Rome", "Ann Rome", None),
        ("Ann", "Ann Rome", None),
        ("İstanbul is", "is", None),
        ("İstanbul Is", "İstanbul is", [(0, 8), (9, 11)]),
        ("Ann", "", []),
    ],
)
def test_places(text, words, found):
    assert places(text, spans(words.split())) == found


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=8), st.data())
def test_an_answer_of_whole_words_has_their_times(words, data):
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    start = len(" ".join([*words[:first], ""])) if first else 0
    passage = Passage("p", "", 99.0, " ".join(words), "", "en", spans(words))
    (answer,) = add_times((Answer(" ".join(words[first : last + 1]), char_start=start),), passage)
    assert (answer.start, answer.end) == (first, last + 1)


def test_no_times_without_an_offset_or_where_the_words_are_others():
    passage = Passage("p", "", 9.0, "Ann left", "", "en", spans(["Bob", "left"]))
    assert add_times((Answer("left", char_start=4), Answer("left")), passage) == (
        Answer("left", char_start=4),
        Answer("left"),
    )


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[" * 100_000,
        "[3]",
        '[["a", 1]]',
        '[["a", "x", 2]]',
        '[["a", 2, 1]]',
        '[["a", 0, NaN]]',
        "3",
    ],
)
def test_files_that_hold_no_words_are_named(tmp_path, content):
    (tmp_path / "p.words.json").write_text(content)
    refused(r"p.words.json .*; correct or remove the file", read_words, tmp_path / "p.words.json")


@pytest.mark.parametrize(
    ("written", "answered"),
    [
        ("False", True),
        ("false", True),
        (0, True),
        ("0", True),
        ("no", True),
        (None, True),
        ("", True),
    ]
    + [("True", False), ("true", False), (1, False), ("yes", False), (True, False)],
)
def test_a_word_of_truth_marks_a_question_impossible(written, answered, tmp_path, squad_json):
    squad_json(
        tmp_path / "in/test.json",
        (TEXT, [("a", "Where?", [("Rome", 16)], {"is_impossible": written})]),
    )
    ((question,),) = ([p.questions[0]] for p in read_squad(tmp_path / "in/test.json"))
    report = PrepareReport("squad")
    records, _ = make_records("test", read_squad(tmp_path / "in/test.json"), Style(), report)
    assert (question.impossible is True) != answered and bool(
        records.questions[0].answers
    ) == answered


def test_what_is_neither_true_nor_false_is_refused(tmp_path, squad_json):
    squad_json(tmp_path / "test.json", (TEXT, [("a", "Where?", [], {"is_impossible": "perhaps"})]))
    refused(
        "test.json is not SQuAD .*'perhaps' is neither true nor false",
        read_squad,
        tmp_path / "test.json",
    )


VALUE = st.sampled_from([None, "", "Rome", 0, 5.0, True, "Ann was born in Rome."])
OFFSET = st.sampled_from([None, 0, 16, -1, 999, "16", float("nan"), 1.5])
TRUTH = st.sampled_from([None, "", "False", "true", 0, 1, False, "perhaps"])


@given(st.lists(st.tuples(VALUE, VALUE, OFFSET, TRUTH), min_size=1, max_size=3))
def test_what_is_prepared_of_squad_can_be_loaded(rows):
    asked = [
        {
            "id": number,
            "question": text,
            "answers": [{"text": answer, "answer_start": offset}],
            "is_impossible": impossible,
        }
        for number, (text, answer, offset, impossible) in enumerate(rows)
    ]
    content = {"data": [{"paragraphs": [{"context": "Ann was born in Rome.", "qas": asked}]}]}
    with TemporaryDirectory() as folder:
        Path(folder, "test.json").write_text(json.dumps(content))
        try:
            report = prepare_squad(
                Squad(source=Path(folder, "test.json"), out=Path(folder, "out"), workers=1)
            )
        except InputError as error:
            assert "test.json" in str(error)
        else:
            kept = load_corpus(Path(folder, "out"), "test").questions
            assert len(kept) == report["splits"]["test"]["questions"]["kept"]


@pytest.mark.parametrize("twin", ["bob/0_0.wav", "ann/0_0.flac"])
def test_two_recordings_of_one_name_are_refused(tmp_path, squad_json, recording, unmade, twin):
    squad_json(tmp_path / "in/test.json", (TEXT, ASKED[:1]))
    for name in ("ann/0_0.wav", twin):
        recording(tmp_path / "in/audio" / name)
    message = refused(
        "are both called 0_0", prepare_squad, Squad(source=tmp_path / "in", out=unmade, workers=1)
    )
    assert "ann/0_0.wav" in message and twin in message
