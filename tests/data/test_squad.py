"""Test SQuAD and DRCD JSON: records and their faults, recordings by id, and times of words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data import squad
from speechssl.data.options import Drcd, Squad
from speechssl.data.prepare import PrepareReport
from speechssl.data.records import Span, load_corpus

from ..files import refused

# ---- the records of paragraphs: they are kept, or set aside with a reason

BORN = "Ann was born in Rome."
ROME = (squad.SquadAnswer("Rome", 16),)


def paragraph(*questions, context=BORN, number=0, name="", title=""):
    """Make a paragraph of these questions."""
    return squad.Paragraph(context, tuple(questions), id=name, title=title, number=number)


def make_records(*paragraphs, style=None, **options):
    """Make the records of paragraphs. Returns them, the remarks (what was found -> how often), and
    the items that were set aside (id -> reason)."""
    report = PrepareReport("corpus")
    records, _ = squad.make_records(
        "test", list(paragraphs), style or squad.Style(), report, **options
    )
    remarks = {what: number for (_, (what, _)), number in report.remarks.items()}
    return records, remarks, {line["id"]: line["reason"] for line in report.aside}


def test_an_answer_keeps_its_offset_only_where_the_context_has_it():
    golds = [squad.SquadAnswer("Rome", start) for start in (15, None, -1, 16)]
    golds.append(squad.SquadAnswer("rome", 16))
    rome = paragraph(squad.SquadQa("Where?", "q", tuple(golds)))
    records, remarks, aside = make_records(rome)
    assert records.passages[0].id == "0_0"
    assert records.questions[0].passage == "0_0"
    assert [a.char_start for a in records.questions[0].answers] == [None, None, None, 16, None]
    assert (remarks, aside) == ({"answers whose offset does not match": 4}, {})
    records, _, _ = make_records(rome, style=squad.Style(offsets=False))
    assert {a.char_start for a in records.questions[0].answers} == {None}


def test_empty_answers_leave_their_question_unless_all_are():
    empty = squad.SquadAnswer("", 0)
    blank = squad.SquadAnswer(" ", 3)
    some_empty = squad.SquadQa("Where?", "some", (empty, *ROME, blank))
    all_empty = squad.SquadQa("Where?", "all", (empty,))
    no_answers = squad.SquadQa("Where?", "none")
    records, remarks, aside = make_records(paragraph(some_empty, all_empty, no_answers))
    assert [(q.id, len(q.answers)) for q in records.questions] == [("some", 1)]
    assert remarks == {"empty answers": 2}
    assert aside == {"all": "every answer is empty", "none": "no answer, and not marked impossible"}


@pytest.mark.parametrize(
    ("written", "answered"),
    [
        *((written, True) for written in (False, "False", "FALSE", "no", "0", 0, 0.0, None)),
        *((written, False) for written in (True, "true", "Yes", "1", 1, 1.0)),
    ],
)
def test_a_question_marked_impossible_has_no_answers(tmp_path, squad_json, written, answered):
    questions = [("a", "Where?", [("Rome", 16)], {"is_impossible": written})]
    path = squad_json(tmp_path / "a.json", (BORN, questions))
    records, _, _ = make_records(*squad.read_squad(path))
    assert bool(records.questions[0].answers) == answered


def test_answers_of_a_question_marked_impossible_are_left_out_and_named():
    marked = [squad.SquadQa("Where?", f"q{i}", ROME, is_impossible=True) for i in range(7)]
    report = PrepareReport("squad")
    records, _ = squad.make_records("dev", [paragraph(*marked)], squad.Style(), report)
    assert {q.answers for q in records.questions} == {()}
    (found,) = report.summarise({"dev": records})["splits"]["dev"]["found"]
    assert found["what"] == "questions marked impossible that have answers"
    assert found["count"] == 7
    assert found["such_as"] == ["q0", "q1", "q2", "q3", "q4"]


def test_empty_texts_are_set_aside_but_empty_transcripts_are_kept():
    first = paragraph(squad.SquadQa("Where?", "a", ROME), context=" ")
    second = paragraph(squad.SquadQa("", "b", ROME), number=1)
    _, _, aside = make_records(first, second)
    assert aside == {"0_0": "empty passage", "a": "its passage is set aside", "b": "empty question"}
    style = squad.Style(transcribed_passages=True, transcribed_questions=True)
    records, _, _ = make_records(first, second, style=style)
    assert [q.id for q in records.questions] == ["a", "b"]
    assert len(records.passages) == 2


def test_repeated_ids_get_numbers_and_repeated_questions_are_set_aside():
    same = squad.SquadQa("Where?", "q", ROME)
    other = squad.SquadQa("In which town?", "q", ROME)
    nameless = squad.SquadQa("Where?", "", ROME)
    records, remarks, aside = make_records(
        paragraph(same, same, other, name="p"), paragraph(same, nameless, name="p")
    )
    assert [p.id for p in records.passages] == ["p", "p#2"]
    assert [q.id for q in records.questions] == ["q", "q#2", "q#3", "p#2-2"]
    assert [q.passage for q in records.questions] == ["p", "p", "p#2", "p#2"]
    assert aside == {"q": "the same question, word for word, with the same id"}
    assert remarks == {"ids that occur twice": 3}


def test_texts_of_originals_stand_beside_transcripts():
    golds = (squad.SquadAnswer("rome", 16), squad.SquadAnswer("Rome", 9))
    transcribed = paragraph(squad.SquadQa("wear", "q", golds), context="and was born in rome")
    style = squad.Style(transcribed_passages=True, transcribed_questions=True)
    records, *_ = make_records(transcribed, style=style)
    (passage,), (question,) = records.passages, records.questions
    assert (passage.text, passage.transcript) == ("", "and was born in rome")
    assert (question.text, question.transcript) == ("", "wear")
    assert [a.char_start for a in question.answers] == [16, None]
    originals = squad.collect_originals(
        [
            paragraph(squad.SquadQa("Where?", "q", ROME), title="Ann"),
            paragraph(context="Original.", number=1, title="Ann"),
        ]
    )
    records, *_ = make_records(transcribed, style=style, originals=originals)
    assert (records.passages[0].text, records.questions[0].text) == (BORN, "Where?")
    # offsets now refer to the original text
    assert [a.char_start for a in records.questions[0].answers] == [None, 16]
    by_place = [paragraph(context="oh", number=n, title="Ann") for n in (1, 2)]
    style = squad.Style(transcribed_passages=True)
    records, *_ = make_records(*by_place, style=style, originals=originals)
    assert [p.text for p in records.passages] == ["Original.", ""]


ANSWER_TEXTS = st.sampled_from(["", "Rome", "x"])
GOLDS = st.lists(
    st.builds(squad.SquadAnswer, ANSWER_TEXTS, st.sampled_from([None, 0, 16])), max_size=2
).map(tuple)
QUESTIONS = st.builds(
    squad.SquadQa,
    st.sampled_from(["", " ", "Where?", "Who?"]),
    st.sampled_from(["", "a", "b", "a#2"]),
    GOLDS,
    st.sampled_from([None, True, False]),
)
PARAGRAPHS = st.builds(
    squad.Paragraph,
    st.sampled_from(["", BORN, "Rome"]),
    st.lists(QUESTIONS, max_size=3).map(tuple),
    st.sampled_from(["", "p", "0_0", "p#2"]),
)


@given(
    paragraphs=st.lists(PARAGRAPHS, max_size=4),
    transcribed_passages=st.booleans(),
    transcribed_questions=st.booleans(),
)
def test_kept_and_set_aside_add_up(paragraphs, transcribed_passages, transcribed_questions):
    report = PrepareReport("corpus")
    style = squad.Style(
        transcribed_passages=transcribed_passages, transcribed_questions=transcribed_questions
    )
    records, _ = squad.make_records("test", paragraphs, style, report)
    facts = report.summarise({"test": records})["splits"]  # asserts that the counts add up
    assert not paragraphs or facts["test"]["passages"]["read"] == len(paragraphs)
    ids = {p.id for p in records.passages}
    assert len(ids) == len(records.passages)
    assert len({q.id for q in records.questions}) == len(records.questions)
    assert all(q.passage in ids for q in records.questions)


# ---- whole corpora

TEXT = "Ann, who was born in Rome, left."
TRAIN_QUESTIONS = [  # (id, text, [(answer, offset), ...])
    ("q1", "Where was she born?", [("Rome", 21), ("in Rome", 18)]),
    ("q2", "Who?", [("Ann", 0)]),
]
# (word, start, end) of the recording
WORDS = [["Ann", 0.0, 0.1], ["who", 0.1, 0.2], ["was", 0.2, 0.3], ["born", 0.3, 0.4]]
WORDS += [["in", 0.4, 0.5], ["rome", 0.5, 0.7]]


@pytest.fixture
def source(tmp_path, squad_json):
    """A training file with two paragraphs, and a development file with an impossible question."""
    squad_json(tmp_path / "in/train-v1.1.json", (TEXT, TRAIN_QUESTIONS), ("Nothing.", []))
    unanswered = [("v1", "When?", [], {"is_impossible": True})]
    squad_json(tmp_path / "in/dev-v2.0.json", (TEXT, unanswered))
    return tmp_path / "in"


def prepare(source, out, **options):
    """Prepare the corpus, and return its data report."""
    return squad.prepare_squad(Squad(source=source, out=out, workers=1, **options))


def test_squad_and_drcd_without_recordings(source, tmp_path, squad_json):
    splits = prepare(source, tmp_path / "out")["splits"]
    train, dev = (load_corpus(tmp_path / "out", split) for split in ("train", "dev"))
    assert train.passages["0_0"].text == TEXT
    assert [q.answers[0].char_start for q in train.questions] == [21, 0]
    assert (len(dev.questions), len(dev.answerable)) == (1, 0)
    published = [splits[split]["questions"]["published"] for split in ("train", "dev")]
    assert published == [87_599, 11_873]
    questions = [("1-1-1", "哪裡？", [("歐洲", 1)])]
    path = squad_json(tmp_path / "DRCD_dev.json", ("在歐洲", questions), drcd="1")
    squad.prepare_drcd(Drcd(source=path, out=tmp_path / "drcd", workers=1))
    corpus = load_corpus(tmp_path / "drcd", "dev")
    assert corpus.passages["1-1"].language == "zh"
    assert corpus.questions[0].passage == "1-1"


@pytest.mark.parametrize("folder", ["audio", "audio/train"])
def test_recordings_are_attached_and_answers_timed_by_words(source, tmp_path, recording, folder):
    (source / "dev-v2.0.json").unlink()
    parts = [recording(source / folder / f"0_0_{n}.wav", 0.35, 22_050) for n in range(2)]
    whole = recording(source / folder / "0_1.flac", 0.4)
    for name in ("q1", "q2"):
        recording(source / folder / f"{name}.wav", 0.2)
    (source / folder / "0_0.words.json").write_text(json.dumps(WORDS))
    report = prepare(source, tmp_path / "out")
    corpus = load_corpus(tmp_path / "out", "train")
    passage = corpus.passages["0_0"]
    assert passage.seconds == pytest.approx(sum(map(len, parts)) / 22_050, abs=1 / 16_000)
    assert len(passage.words) == 6
    assert corpus.passages["0_1"].seconds == len(whole) / 16_000
    times = [(a.text, a.start, a.end) for q in corpus.questions for a in q.answers]
    assert times == [("Rome", 0.5, 0.7), ("in Rome", 0.4, 0.7), ("Ann", 0.0, 0.1)]
    assert all(q.audio for q in corpus.questions)
    assert report["splits"]["train"]["with_times"] == 2


def test_recordings_of_another_split_are_not_attached(source, tmp_path, recording):
    (source / "audio/dev").mkdir(parents=True)
    recording(source / "audio/dev/0_0.wav", 0.4)  # train has a passage of this name as well
    prepare(source, tmp_path / "out")
    assert load_corpus(tmp_path / "out", "dev").passages["0_0"].audio
    assert not any(p.audio for p in load_corpus(tmp_path / "out", "train").passages.values())
    recording(source / "audio/0_1.wav", 0.3)  # beside the folder of dev: of every other split
    prepare(source, tmp_path / "beside")
    train = load_corpus(tmp_path / "beside", "train").passages
    assert {name for name, passage in train.items() if passage.audio} == {"0_1"}
    (source / "audio/dev/0_0.wav").rename(source / "audio/0_0.wav")
    (source / "audio/dev").rmdir()
    refused(
        "0_0.wav has a name of .* and of .*; put the recordings", prepare, source, tmp_path / "x"
    )


def test_a_file_may_state_its_licence(tmp_path, squad_json):
    for split, licence in (("train", "CC0"), ("test", "CC BY 4.0")):
        squad_json(tmp_path / f"in/{split}.json", (TEXT, TRAIN_QUESTIONS[:1]), licence=licence)
    prepare(tmp_path / "in", tmp_path / "out")
    card = json.loads((tmp_path / "out/card.json").read_text())
    assert card["title"] == "JSON in the layout of SQuAD"
    assert card["licence"] == "CC BY 4.0, CC0"


# a question that may be impossible
MAYBE = """{"data": [{"paragraphs": [{"context": "a", "qas": [
    {"question": "b", "is_impossible": "maybe"}]}]}]}"""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-v1.1.json", '{"data": [', "train-v1.1.json is not whole JSON"),
        ("train-v1.1.json", '{"data": [{"paragraphs": [{"qas": []}]}]}', "has no `context`"),
        ("train-v1.1.json", MAYBE, r"qas\[0\]`: is_impossible is 'maybe'; write true or false"),
        ("train.json", '{"data": []}', "look like train"),
        ("audio/0_0.words.json", '[["a", 1]]', r"0_0.words.json: `\[0\]`"),
        ("audio/ann/0_0.wav", "", "are both called 0_0"),
    ],
)
def test_damaged_files_are_refused(source, recording, absent_out, name, content, message):
    recording(source / "audio/0_0.wav", 1.0)
    (source / name).parent.mkdir(exist_ok=True)
    (source / name).write_text(content)
    refused(message, prepare, source, absent_out)


def test_an_unknown_language_and_a_corpus_without_questions_are_refused(
    tmp_path, source, squad_json, absent_out
):
    refused("no text rules for the language 'fr'", prepare, source, absent_out, language="fr")
    squad_json(tmp_path / "none/dev.json", ("", []))
    refused("no usable question of squad", prepare, tmp_path / "none", absent_out)


def test_chinese_is_not_taken_for_english_nor_english_for_chinese(tmp_path, squad_json, absent_out):
    questions = [("1", "歐洲在哪裡？", [("歐洲", 1)])]
    chinese = squad_json(tmp_path / "dev.json", ("在歐洲 the EU", questions))
    questions = [("1", "Where is it?", [("Europe", 20)])]
    english = squad_json(tmp_path / "test.json", ("The EU (歐盟) lies in Europe.", questions))
    refused("dev.json has 8 Chinese .* give --language zh", prepare, chinese, absent_out)
    refused(
        "test.json has 2 Chinese .* give --language en", prepare, english, absent_out, language="zh"
    )
    prepare(chinese, tmp_path / "zh", language="zh")
    assert load_corpus(tmp_path / "zh", "dev").questions[0].language == "zh"


# ---- the places of words in a text


@pytest.mark.parametrize(
    ("text", "words", "places"),
    [
        ("Ann, in Rome.", "ann in Rome", [(0, 3), (5, 7), (8, 12)]),
        ("a a", "a a", [(0, 1), (2, 3)]),
        ("在歐洲", "在 歐洲", [(0, 1), (1, 3)]),
        ("Ann left Rome", "Ann Rome", None),
        ("Ann", "Ann Rome", None),
        ("İstanbul Is", "İstanbul is", [(0, 8), (9, 11)]),
        ("Ann", "", []),
    ],
)
def test_places_of_words(text, words, places):
    spans = tuple(Span(word, float(i), i + 1.0) for i, word in enumerate(words.split()))
    assert squad.find_word_places(text, spans) == places
