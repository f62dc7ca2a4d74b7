"""ODSQA: both tests, the companions, DRCD beside them, and recordings of sentences."""

import numpy as np
import pytest
import soundfile

from speechssl.data.odsqa import prepare_odsqa
from speechssl.data.options import Odsqa
from speechssl.data.prepare import format_report
from speechssl.data.records import load_corpus

from ..files import refused, remarks

TRANSCRIPT = "在歐洲梵語的學術研究"
ASKED = [
    ("1147-1-1", "哪一地區？", [("歐洲", 1), ("歐洲", 1)]),
    ("1147-1-2", "哪一語言？", [("梵語", 3)]),
]


@pytest.fixture
def source(tmp_path, squad_json):
    """As published; a question is empty in the spoken version and absent from the other, and a
    paragraph has no question."""
    root = tmp_path / "ODSQA"
    squad_json(
        root / "ODSQA_textq_test-v1.1.json", (TRANSCRIPT, ASKED[:1]), ("沒有問題", []), drcd="1147"
    )
    spoken = [("1147-1-1", "哪一地趣", [("歐洲", 1), ("歐洲", 1)]), ("1147-1-2", "", [("梵語", 3)])]
    squad_json(
        root / "ODSQA_spokenq_test-v1.1.json", (TRANSCRIPT, spoken), ("沒有問題", []), drcd="1147"
    )
    return root


def test_both_tests_and_what_is_odd_about_them(source, tmp_path, squad_json):
    report = prepare_odsqa(Odsqa(source=source, out=tmp_path / "out", workers=1))
    text, spoken = (
        load_corpus(tmp_path / "out", split) for split in ("test-textq", "test-spokenq")
    )
    assert [(q.text, q.transcript) for q in text.questions] == [("哪一地區？", "")]
    lines = [(q.id, q.text, q.transcript) for q in spoken.questions]
    assert lines == [("1147-1-1", "哪一地區？", "哪一地趣"), ("1147-1-2", "", "")]
    passage = spoken.passages["1147-1"]
    assert (passage.text, passage.transcript, passage.language, passage.audio) == (
        "",
        TRANSCRIPT,
        "zh",
        "",
    )
    assert [a.char_start for a in text.questions[0].answers] == [1, 1]
    facts = report["splits"]["test-spokenq"]
    found = remarks(facts)
    assert facts["questions"] == {
        "read": 2,
        "kept": 2,
        "set_aside": 0,
        "published": 1_465,
        "agrees": False,
    }
    assert (
        found["questions with an empty transcript"] == 1
        and found["passages without questions"] == 1
        and found["articles"] == 1
    )
    assert "published 1,465 (DIFFERENT)" in format_report(report) and (
        "published 235 (DIFFERENT)"
    ) in format_report(report)
    assert report["absent"] == ["train-tts", "train-backtrans"]
    # beside DRCD's own file the texts are those that were read out, and offsets are theirs
    squad_json(
        source / "DRCD_dev.json",
        ("　在歐洲，梵語的學術研究", [("1147-1-1", "歐洲哪裡？", [("歐洲", 2)])]),
        drcd="1147",
    )
    prepare_odsqa(Odsqa(source=source, out=tmp_path / "texts", workers=1))
    corpus = load_corpus(tmp_path / "texts", "test-spokenq")
    passage = corpus.passages["1147-1"]
    assert (passage.text, passage.transcript) == (
        "　在歐洲，梵語的學術研究",
        TRANSCRIPT,
    ) and not corpus.passages["1147-2"].text
    assert [a.char_start for a in corpus.questions[0].answers] == [2, 2] and corpus.questions[
        0
    ].text == "歐洲哪裡？"
    assert not (tmp_path / "texts/original-DRCD_dev.json").exists()


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("DRCD-TTS_train.json", "train-tts"),
        ("DRCD-TTS.json", "train-tts"),
        ("drcd_tts_dev-v1.1.json", "dev-tts"),
        ("DRCD-TTS/train.json", "train-tts"),
        ("DRCD-TTS/dev.json", "dev-tts"),
        ("DRCD-backtrans.json", "train-backtrans"),
        ("DRCD_back_trans_dev.json", "dev-backtrans"),
        ("ODSQA_test-v1.1.json", "test-spokenq"),
        ("odsqa_spokenq_test-v1.1.json", "test-spokenq"),
        ("ODSQA_textq_test-v1.1.json", "test-textq"),
    ],
)
def test_files_are_known_by_their_names(tmp_path, squad_json, name, split):
    path = squad_json(tmp_path / "in" / name, (TRANSCRIPT, ASKED), drcd="1147")
    for number, source in enumerate((tmp_path / "in", path)):
        assert list(
            prepare_odsqa(Odsqa(source=source, out=tmp_path / f"out{number}", workers=1))["splits"]
        ) == [split]
        assert load_corpus(tmp_path / f"out{number}", split).questions[0].answers[0].char_start == 1


def test_companions_are_counted_together(tmp_path, squad_json):
    for name in (
        "DRCD-TTS_train.json",
        "DRCD-TTS_dev.json",
        "DRCD-backtrans.json",
        "DRCD_dev.json",
    ):
        squad_json(tmp_path / "in" / name, (TRANSCRIPT, ASKED), drcd="1147")
    splits = prepare_odsqa(Odsqa(source=tmp_path / "in", out=tmp_path / "out", workers=1))["splits"]
    found = {f["what"]: (f["count"], f["done"]) for f in splits["dev-tts"]["found"]}
    assert found["questions in dev-tts and train-tts"] == (4, "published 16,746 (DIFFERENT)")
    assert (
        splits["train-backtrans"]["questions"]["published"] == 15_238
        and "published" not in splits["train-tts"]["questions"]
    )
    translated, spoken = (
        load_corpus(tmp_path / "out", f"train-{kind}").passages["1147-1"]
        for kind in ("backtrans", "tts")
    )
    assert (translated.text, translated.transcript, spoken.text, spoken.transcript) == (
        TRANSCRIPT,
        "",
        "",
        TRANSCRIPT,
    )


def test_sentences_are_joined_to_the_sample_and_holes_are_not(source, tmp_path, recording):
    sentences = [
        recording(source / f"audio_data/1147-1-{n}.wav", 0.3 + n / 16_000) for n in (1, 2, 3)
    ]
    asked = recording(source / "audio_data/question/1147-1-1.wav", 0.2)
    for n in (1, 3):
        recording(source / f"audio_data/1147-2-{n}.wav")
    report = prepare_odsqa(Odsqa(source=source, out=tmp_path / "out", workers=1))
    corpus = load_corpus(tmp_path / "out", "test-spokenq")
    samples, _ = soundfile.read(corpus.path(corpus.passages["1147-1"]))
    assert np.allclose(samples, np.concatenate(sentences), atol=2 / 32_768)
    assert corpus.passages["1147-1"].seconds == sum(map(len, sentences)) / 16_000
    audio = str(source.resolve() / "audio_data/question/1147-1-1.wav")
    assert (corpus.questions[0].audio, corpus.questions[0].seconds) == (audio, len(asked) / 16_000)
    facts = report["splits"]["test-spokenq"]
    assert facts["set_aside"] == {
        ("segments of its recording are missing"): 1,
        "it has no recording, and others have": 1,
    }
    assert facts["hours"]["passages"] > 0
    prepare_odsqa(Odsqa(source=source, out=tmp_path / "text", audio=False, workers=1))
    assert len(load_corpus(tmp_path / "text", "test-spokenq").passages) == 2


@pytest.mark.parametrize(
    ("passage", "question"),
    [
        ("QA/1147-1-1.wav", "QA/Q1147-1-1.wav"),
        ("C1147_1_1.wav", "q_1147_1_1.wav"),
        ("passages/1147-1-1.wav", "questions/1147-1-1.wav"),
        ("wav/1147-1.wav", "wav/Q/1147-1-1.wav"),
    ],
)
def test_recordings_under_several_names(tmp_path, squad_json, recording, passage, question):
    squad_json(tmp_path / "in/ODSQA_textq_test-v1.1.json", (TRANSCRIPT, ASKED[:1]), drcd="1147")
    recording(tmp_path / "in" / passage, 0.5)
    recording(tmp_path / "in" / question, 0.2)
    prepare_odsqa(Odsqa(source=tmp_path / "in", out=tmp_path / "out", workers=1))
    corpus = load_corpus(tmp_path / "out", "test-textq")
    assert (corpus.passages["1147-1"].seconds, corpus.questions[0].seconds) == (0.5, 0.2)


def test_another_folder_is_one_sentence(tmp_path, source, squad_json, unmade):
    (tmp_path / "empty").mkdir()
    squad_json(tmp_path / "other/spoken_test-v1.1.json", ("a", []))
    squad_json(tmp_path / "original/DRCD_dev.json", (TRANSCRIPT, ASKED), drcd="1147")
    for folder in ("empty", "other", "original", "no"):
        refused(
            "give the folder of ODSQA with any of",
            prepare_odsqa,
            Odsqa(source=tmp_path / folder, out=unmade, workers=1),
        )
    cut = source / "ODSQA_textq_test-v1.1.json"
    cut.write_bytes(cut.read_bytes()[:-5])
    refused(
        "ODSQA_textq_test-v1.1.json is not whole JSON",
        prepare_odsqa,
        Odsqa(source=source, out=unmade, workers=1),
    )
    squad_json(source / "copy/ODSQA_textq_test-v1.1.json", (TRANSCRIPT, ASKED), drcd="1147")
    refused(
        "look like test-textq of ODSQA; leave one of them",
        prepare_odsqa,
        Odsqa(source=source, out=unmade, workers=1),
    )


@pytest.mark.slow
def test_the_real_text_questions(shared, tmp_path):
    facts = prepare_odsqa(Odsqa(source=shared("odsqa"), out=tmp_path / "out", workers=1))["splits"][
        "test-textq"
    ]
    assert facts["passages"] == {
        "read": 606,
        "kept": 606,
        "set_aside": 0,
        "published": 606,
        "agrees": True,
    }
    assert facts["questions"] == {
        "read": 1_464,
        "kept": 1_464,
        "set_aside": 0,
        "published": 1_464,
        "agrees": True,
    }
    found = {f["what"]: (f["count"], f["done"]) for f in facts["found"]}
    assert found["articles"] == (235, "published 235") and found["passages without questions"] == (
        20,
        "kept",
    )
    assert not any("offset" in what for what in found)
    assert round(facts["answer_in_context"], 3) == 0.998 and facts["answer_in_letters"] == 1
    assert (
        sum(len(q.answers) for q in load_corpus(tmp_path / "out", "test-textq").questions) == 2_842
    )


@pytest.mark.parametrize("name", ["1147-1-1.wav", "question/1147-1-1.wav"])
def test_two_recordings_of_one_name_are_refused(source, tmp_path, recording, name):
    for folder in ("ann", "bob"):
        recording(source / folder / name)
    message = refused(
        "are both called 1147-1-1",
        prepare_odsqa,
        Odsqa(source=source, out=tmp_path / "out", workers=1),
    )
    assert f"ann/{name}" in message and f"bob/{name}" in message
