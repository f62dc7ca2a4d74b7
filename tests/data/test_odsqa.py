"""Test ODSQA: both tests, the companions DRCD-TTS and DRCD-backtrans, the original texts of DRCD,
and recordings of sentences."""

import numpy as np
import pytest
import soundfile

from speechssl.data.odsqa import prepare_odsqa
from speechssl.data.options import Odsqa
from speechssl.data.records import load_corpus

TRANSCRIPT = "在歐洲梵語的學術研究"
QUESTIONS = [  # (id, text, [(answer, offset), ...])
    ("1147-1-1", "哪一地區？", [("歐洲", 1), ("歐洲", 1)]),
    ("1147-1-2", "哪一語言？", [("梵語", 3)]),
]


def prepare(source, out, **options):
    """Prepare the corpus, and return its data report."""
    return prepare_odsqa(Odsqa(source=source, out=out, workers=1, **options))


@pytest.fixture
def source(tmp_path, squad_json):
    """Both tests. The second question is empty in the spoken test and absent from the text test; a
    second paragraph has no question."""
    root = tmp_path / "ODSQA"
    empty = ("沒有問題", [])
    squad_json(root / "ODSQA_textq_test-v1.1.json", (TRANSCRIPT, QUESTIONS[:1]), empty, drcd="1147")
    spoken = [("1147-1-1", "哪一地趣", [("歐洲", 1), ("歐洲", 1)]), ("1147-1-2", "", [("梵語", 3)])]
    squad_json(root / "ODSQA_spokenq_test-v1.1.json", (TRANSCRIPT, spoken), empty, drcd="1147")
    return root


def test_the_text_test_gives_the_spoken_test_its_texts(source, tmp_path):
    report = prepare(source, tmp_path / "out")
    splits = ("test-textq", "test-spokenq")
    text, spoken = (load_corpus(tmp_path / "out", split) for split in splits)
    assert [(q.text, q.transcript) for q in text.questions] == [("哪一地區？", "")]
    lines = [(q.id, q.text, q.transcript) for q in spoken.questions]
    assert lines == [("1147-1-1", "哪一地區？", "哪一地趣"), ("1147-1-2", "", "")]
    passage = spoken.passages["1147-1"]
    assert (passage.text, passage.transcript, passage.language) == ("", TRANSCRIPT, "zh")
    assert [a.char_start for a in text.questions[0].answers] == [1, 1]
    counts = report["splits"]["test-spokenq"]["questions"]
    assert (counts["kept"], counts["published"], counts["agrees"]) == (2, 1_465, False)


def test_texts_of_drcd_replace_transcripts_as_the_text(source, tmp_path, squad_json):
    text = "　在歐洲，梵語的學術研究"
    questions = [("1147-1-1", "歐洲哪裡？", [("歐洲", 2)])]
    squad_json(source / "DRCD_dev.json", (text, questions), drcd="1147")
    prepare(source, tmp_path / "texts")
    corpus = load_corpus(tmp_path / "texts", "test-spokenq")
    passage, question = corpus.passages["1147-1"], corpus.questions[0]
    assert (passage.text, passage.transcript) == (text, TRANSCRIPT)
    assert corpus.passages["1147-2"].text == ""
    assert [a.char_start for a in question.answers] == [2, 2]
    assert question.text == "歐洲哪裡？"


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("DRCD-TTS_train.json", "train-tts"),
        ("DRCD-TTS/dev.json", "dev-tts"),
        ("DRCD-backtrans.json", "train-backtrans"),
        ("ODSQA_spokenq_test-v1.1.json", "test-spokenq"),
    ],
)
def test_the_name_of_a_file_gives_its_split(tmp_path, squad_json, name, split):
    squad_json(tmp_path / "in" / name, (TRANSCRIPT, QUESTIONS), drcd="1147")
    assert list(prepare(tmp_path / "in", tmp_path / "out")["splits"]) == [split]
    corpus = load_corpus(tmp_path / "out", split)
    assert corpus.questions[0].answers[0].char_start == 1
    # a translation there and back was not spoken
    assert bool(corpus.passages["1147-1"].text) == split.endswith("backtrans")


def test_sentences_are_joined_unless_one_is_missing(source, tmp_path, recording):
    folder = source / "audio_data"
    sentences = [recording(folder / f"1147-1-{n}.wav", 0.3 + n / 16_000) for n in (1, 2, 3)]
    question = recording(folder / "question/1147-1-1.wav", 0.2)
    for n in (1, 3):
        recording(folder / f"1147-2-{n}.wav")
    recording(folder / "9-9-9.wav")
    facts = prepare(source, tmp_path / "out")["splits"]["test-spokenq"]
    corpus = load_corpus(tmp_path / "out", "test-spokenq")
    samples, _ = soundfile.read(corpus.path(corpus.passages["1147-1"]))
    assert np.allclose(samples, np.concatenate(sentences), atol=2 / 32_768)
    audio = str(source.resolve() / "audio_data/question/1147-1-1.wav")
    assert (corpus.questions[0].audio, corpus.questions[0].seconds) == (
        audio,
        len(question) / 16_000,
    )
    assert facts["set_aside"] == {
        "segments of its recording are missing": 1,
        "it has no recording, and others have; add it, or give --no-audio": 1,
    }
    prepare(source, tmp_path / "text", audio=False)
    assert len(load_corpus(tmp_path / "text", "test-spokenq").passages) == 2


@pytest.mark.slow
def test_the_published_text_test(shared, tmp_path):
    facts = prepare(shared("odsqa"), tmp_path / "out")["splits"]["test-textq"]
    for kind, number in (("passages", 606), ("questions", 1_464)):
        assert (facts[kind]["kept"], facts[kind]["agrees"]) == (number, True)
    assert facts["found"] == []
    assert round(facts["answer_in_context"], 3) == 0.998
    questions = load_corpus(tmp_path / "out", "test-textq").questions
    assert sum(len(q.answers) for q in questions) == 2_842
