"""ODSQA: both tests, the companions, DRCD beside them, and recordings of sentences."""

import numpy as np
import pytest
import soundfile

from speechssl.data.odsqa import prepare_odsqa
from speechssl.data.options import Odsqa
from speechssl.data.records import load_corpus

from ..files import refused

TRANSCRIPT = "在歐洲梵語的學術研究"
ASKED = [
    ("1147-1-1", "哪一地區？", [("歐洲", 1), ("歐洲", 1)]),
    ("1147-1-2", "哪一語言？", [("梵語", 3)]),
]


def prepare(source, out, **options):
    return prepare_odsqa(Odsqa(source=source, out=out, workers=1, **options))


@pytest.fixture
def source(tmp_path, squad_json):
    """As published; a question is empty in the spoken version and absent from the other, and a
    paragraph has no question."""
    root, empty = tmp_path / "ODSQA", ("沒有問題", [])
    squad_json(root / "ODSQA_textq_test-v1.1.json", (TRANSCRIPT, ASKED[:1]), empty, drcd="1147")
    spoken = [("1147-1-1", "哪一地趣", [("歐洲", 1), ("歐洲", 1)]), ("1147-1-2", "", [("梵語", 3)])]
    squad_json(root / "ODSQA_spokenq_test-v1.1.json", (TRANSCRIPT, spoken), empty, drcd="1147")
    return root


def test_both_tests(source, tmp_path):
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


def test_beside_drcd_texts_are_those_that_were_read_out(source, tmp_path, squad_json):
    text = "　在歐洲，梵語的學術研究"
    asked = [("1147-1-1", "歐洲哪裡？", [("歐洲", 2)])]
    squad_json(source / "DRCD_dev.json", (text, asked), drcd="1147")
    prepare(source, tmp_path / "texts")
    corpus = load_corpus(tmp_path / "texts", "test-spokenq")
    passage, question = corpus.passages["1147-1"], corpus.questions[0]
    assert (passage.text, passage.transcript) == (text, TRANSCRIPT)
    assert corpus.passages["1147-2"].text == ""
    assert [a.char_start for a in question.answers] == [2, 2]
    assert question.text == "歐洲哪裡？"
    assert not (tmp_path / "texts/original-DRCD_dev.json").exists()


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("DRCD-TTS_train.json", "train-tts"),
        ("DRCD-TTS/dev.json", "dev-tts"),
        ("DRCD-backtrans.json", "train-backtrans"),
        ("ODSQA_spokenq_test-v1.1.json", "test-spokenq"),
    ],
)
def test_files_are_known_by_their_names(tmp_path, squad_json, name, split):
    squad_json(tmp_path / "in" / name, (TRANSCRIPT, ASKED), drcd="1147")
    assert list(prepare(tmp_path / "in", tmp_path / "out")["splits"]) == [split]
    corpus = load_corpus(tmp_path / "out", split)
    assert corpus.questions[0].answers[0].char_start == 1
    # a translation there and back was not spoken
    assert bool(corpus.passages["1147-1"].text) == split.endswith("backtrans")


def test_sentences_are_joined_to_the_sample_and_holes_are_not(source, tmp_path, recording):
    folder = source / "audio_data"
    sentences = [recording(folder / f"1147-1-{n}.wav", 0.3 + n / 16_000) for n in (1, 2, 3)]
    asked = recording(folder / "question/1147-1-1.wav", 0.2)
    for n in (1, 3):
        recording(folder / f"1147-2-{n}.wav")
    recording(folder / "9-9-9.wav")
    facts = prepare(source, tmp_path / "out")["splits"]["test-spokenq"]
    corpus = load_corpus(tmp_path / "out", "test-spokenq")
    samples, _ = soundfile.read(corpus.path(corpus.passages["1147-1"]))
    assert np.allclose(samples, np.concatenate(sentences), atol=2 / 32_768)
    audio = str(source.resolve() / "audio_data/question/1147-1-1.wav")
    assert (corpus.questions[0].audio, corpus.questions[0].seconds) == (audio, len(asked) / 16_000)
    assert facts["set_aside"] == {
        "segments of its recording are missing": 1,
        "it has no recording, and others have": 1,
    }
    prepare(source, tmp_path / "text", audio=False)
    assert len(load_corpus(tmp_path / "text", "test-spokenq").passages) == 2


def test_what_is_wrong_is_one_sentence(source, squad_json, recording, unmade):
    squad_json(source / "copy/ODSQA_textq_test-v1.1.json", (TRANSCRIPT, ASKED), drcd="1147")
    refused("look like test-textq", prepare, source, unmade)
    (source / "copy/ODSQA_textq_test-v1.1.json").write_text("{")
    refused("ODSQA_textq_test-v1.1.json is not whole JSON", prepare, source / "copy", unmade)
    (source / "copy/ODSQA_textq_test-v1.1.json").unlink()
    for folder in ("ann", "bob"):
        recording(source / folder / "question/1147-1-1.wav")
    refused("ann/.* and .*bob/.* are both called 1147-1-1", prepare, source, unmade)


@pytest.mark.slow
def test_the_real_text_questions(shared, tmp_path):
    facts = prepare(shared("odsqa"), tmp_path / "out")["splits"]["test-textq"]
    for kind, number in (("passages", 606), ("questions", 1_464)):
        assert (facts[kind]["kept"], facts[kind]["agrees"]) == (number, True)
    assert facts["found"] == []
    assert round(facts["answer_in_context"], 3) == 0.998
    questions = load_corpus(tmp_path / "out", "test-textq").questions
    assert sum(len(q.answers) for q in questions) == 2_842
