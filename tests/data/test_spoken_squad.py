"""Spoken-SQuAD (the clean files, the noisy ones whose offsets mean nothing, SQuAD beside them, sentences) and ODSQA."""

import json

import numpy as np
import pytest
import soundfile

from speechssl.data.prepare import Wanted, described
from speechssl.data.records import load_corpus
from speechssl.data.spoken_squad import prepare_odsqa, prepare_spoken_squad
from speechssl.errors import InputError

from ..files import remarks

CLEAN = "the denver broncos won in part because of the game"
NOISY = "the tender broncos one in part because of the gay"
ORIGINAL = "The Denver Broncos won, in part, because of the game."


@pytest.fixture
def source(tmp_path, squad_json):
    root = tmp_path / "Spoken-SQuAD"
    clean = [("q1", "Who won?", [("denver broncos", 4), ("", 0)]), ("q2", "Why?", [("the game", 42)])]
    squad_json(root / "spoken_test-v1.1.json", (CLEAN, clean), ("no question here", []))
    squad_json(root / "spoken_train-v1.1.json", (CLEAN, clean[1:]))
    kept = [("q1", "Who won?", [("Denver Broncos", 4), ("Broncos", 11)]), ("q2", "Why?", [("game", 47)])]
    for level in (44, 54):
        squad_json(root / f"spoken_test-v1.1_WER{level}.json", (NOISY, kept), ("", []))
    return root


def test_splits_counts_and_the_ceiling(source, tmp_path, squad_json):
    report = prepare_spoken_squad(source, tmp_path / "out")
    assert list(report["splits"]) == ["train", "test", "test-wer44", "test-wer54"] and not report["absent"]
    clean, noisy = report["splits"]["test"], report["splits"]["test-wer44"]
    assert (clean["answer_in_context"], noisy["answer_in_context"]) == (1, 0.5)
    assert remarks(clean)["empty answers"] == 1
    found = {f["what"]: (f["count"], f["done"]) for f in noisy["found"]}
    assert found["answers with offsets of another text"] == (3, "offsets ignored, scored by text only")
    assert found["passages with an empty transcript"][0] == 1
    assert "published 37,111 (DIFFERENT)" in described(report) and "50.0% of the questions" in described(report)
    test = load_corpus(tmp_path / "out", "test")
    assert (test.passages["0_0"].transcript, test.passages["0_0"].text) == (CLEAN, "")
    assert [a.char_start for a in test.questions[0].answers] == [4]
    noisy = load_corpus(tmp_path / "out", "test-wer54")
    assert [a.char_start for q in noisy.questions for a in q.answers] == [None] * 3
    # SQuAD's own file gives its texts to the tests alone
    asked = [("q1", "Who won?", [("Denver Broncos", 4), ("Broncos", 11)]), ("q2", "Why?", [("game", 48)])]
    squad_json(source / "dev-v1.1.json", (ORIGINAL, asked), ("No question here.", []))
    facts = prepare_spoken_squad(source, tmp_path / "texts")["splits"]["test-wer44"]
    noisy, clean, train = (load_corpus(tmp_path / "texts", split) for split in ("test-wer44", "test", "train"))
    assert (noisy.passages["0_0"].text, noisy.passages["0_0"].transcript) == (ORIGINAL, NOISY)
    assert [a.char_start for q in noisy.questions for a in q.answers] == [4, 11, 48]  # in the original they are right
    assert clean.passages["0_1"].text == "No question here."
    assert train.passages["0_0"].text == "" and train.questions[0].answers[0].char_start == 42
    assert (facts["answer_in_context"], facts["answer_in_original"]) == (0.5, 1)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("spoken_train-v1.1.json", "train"),
        ("spoken_test-v1.1.json", "test"),
        ("spoken_dev-v1.1_WER44.json", "test-wer44"),
        ("spoken_test-v1.1_WER54.json", "test-wer54"),
    ],
)
def test_one_file_alone(tmp_path, squad_json, name, split):
    path = squad_json(tmp_path / name, (CLEAN, [("q", "Why?", [("the game", 42)])]))
    assert list(prepare_spoken_squad(path, tmp_path / "out")["splits"]) == [split]


def test_recordings_of_the_clean_splits(source, tmp_path, recording):
    for name in ("dev_wav/0_0_0", "dev_wav/0_0_1", "dev_wav/0_1_0", "dev_wav/0_1_1", "train_wav/0_0_0", "train_wav/0_0_1"):
        recording(source / f"Spoken-SQuAD_audio/{name}.wav", 0.5, 24_000)
    (source / "Spoken-SQuAD_audio/dev_wav/0_1_1.wav").write_bytes(b"RIFF")
    report = prepare_spoken_squad(source, tmp_path / "out", Wanted(workers=2))
    corpus = load_corpus(tmp_path / "out", "test")
    assert list(corpus.passages) == ["0_0"] and corpus.passages["0_0"].seconds == 1
    assert soundfile.info(corpus.path(corpus.passages["0_0"])).samplerate == 16_000
    assert report["splits"]["test"]["set_aside"] == {"its recording is damaged": 1}
    assert "0_1_1.wav" in (tmp_path / "out/set_aside.jsonl").read_text()
    assert len(corpus.questions) == 2 and not corpus.questions[0].audio
    noisy = load_corpus(tmp_path / "out", "test-wer44")
    assert not any(p.audio for p in noisy.passages.values()) and len(noisy.passages) == 2


@pytest.mark.parametrize("folder", ["wav/test", "test/audio", "wavs"])
def test_recordings_wherever_they_were_unpacked(source, tmp_path, recording, folder):
    for name in ("spoken_train-v1.1.json", "spoken_test-v1.1_WER44.json", "spoken_test-v1.1_WER54.json"):
        (source / name).unlink()
    for name in ("0_0_0", "0_1_0", "9_9_0", "other"):
        recording(source / folder / f"{name}.wav")
    recording(source / "train_wav/0_0_0.wav")
    report = prepare_spoken_squad(source, tmp_path / "out")
    assert len(load_corpus(tmp_path / "out", "test").passages) == 2
    assert remarks(report["splits"]["test"])["recordings of no passage or question"] == 1


def test_another_folder_is_one_sentence(tmp_path, squad_json):
    (tmp_path / "empty").mkdir()
    squad_json(tmp_path / "other/ODSQA_textq_test-v1.1.json", ("a", []))
    for folder in ("empty", "other", "no"):
        with pytest.raises(InputError, match="give the folder of Spoken-SQuAD with any of spoken_train-v1.1.json"):
            prepare_spoken_squad(tmp_path / folder, tmp_path / "out")
    (tmp_path / "other/spoken_test-v1.1.json").write_text('{"data": {}}')
    with pytest.raises(InputError, match="spoken_test-v1.1.json is not SQuAD or DRCD JSON"):
        prepare_spoken_squad(tmp_path / "other", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_real_clean_test(shared, tmp_path):
    report = prepare_spoken_squad(shared("spoken_squad"), tmp_path / "out")
    facts = report["splits"]["test"]
    assert facts["questions"] == {"read": 5_351, "kept": 5_351, "set_aside": 0, "published": 5_351, "agrees": True}
    assert facts["passages"]["kept"] == 2_067
    found = remarks(facts)
    assert found["empty answers"] == 3 and found["passages without questions"] == 171
    assert not any("offset" in what for what in found) and facts["answer_in_letters"] == 1
    assert report["absent"] == ["train", "test-wer44", "test-wer54"]
    # over transcripts without every third word, as the noisy files are: answers and offsets stay
    content = json.loads((shared("spoken_squad") / "spoken_test-v1.1.json").read_text())
    content["data"] = content["data"][:3]
    paragraphs = [p for article in content["data"] for p in article["paragraphs"]]
    for paragraph in paragraphs:
        paragraph["context"] = " ".join(w for i, w in enumerate(paragraph["context"].split()) if i % 3)
    (tmp_path / "spoken_test-v1.1_WER44.json").write_text(json.dumps(content))
    facts = prepare_spoken_squad(tmp_path / "spoken_test-v1.1_WER44.json", tmp_path / "noisy")["splits"]["test-wer44"]
    assert facts["questions"]["kept"] == sum(len(p["qas"]) for p in paragraphs) > 300 and 0.4 < facts["answer_in_context"] < 0.8


# ---- ODSQA: both tests, the companions, DRCD beside them, and recordings of sentences


TRANSCRIPT = "在歐洲梵語的學術研究"
ASKED = [("1147-1-1", "哪一地區？", [("歐洲", 1), ("歐洲", 1)]), ("1147-1-2", "哪一語言？", [("梵語", 3)])]


@pytest.fixture
def odsqa(tmp_path, squad_json):
    """As published; a question is empty in the spoken version and absent from the other, and a paragraph has no question."""
    root = tmp_path / "ODSQA"
    squad_json(root / "ODSQA_textq_test-v1.1.json", (TRANSCRIPT, ASKED[:1]), ("沒有問題", []), drcd="1147")
    spoken = [("1147-1-1", "哪一地趣", [("歐洲", 1), ("歐洲", 1)]), ("1147-1-2", "", [("梵語", 3)])]
    squad_json(root / "ODSQA_spokenq_test-v1.1.json", (TRANSCRIPT, spoken), ("沒有問題", []), drcd="1147")
    return root


def test_both_tests_and_what_is_odd_about_them(odsqa, tmp_path, squad_json):
    report = prepare_odsqa(odsqa, tmp_path / "out")
    text, spoken = (load_corpus(tmp_path / "out", split) for split in ("test-textq", "test-spokenq"))
    assert [(q.text, q.transcript) for q in text.questions] == [("哪一地區？", "")]
    lines = [(q.id, q.text, q.transcript) for q in spoken.questions]
    assert lines == [("1147-1-1", "哪一地區？", "哪一地趣"), ("1147-1-2", "", "")]
    passage = spoken.passages["1147-1"]
    assert (passage.text, passage.transcript, passage.language, passage.audio) == ("", TRANSCRIPT, "zh", "")
    assert [a.char_start for a in text.questions[0].answers] == [1, 1]
    facts = report["splits"]["test-spokenq"]
    found = remarks(facts)
    assert facts["questions"] == {"read": 2, "kept": 2, "set_aside": 0, "published": 1_465, "agrees": False}
    assert found["questions with an empty transcript"] == 1 and found["passages without questions"] == 1 and found["articles"] == 1
    assert "published 1,465 (DIFFERENT)" in described(report) and "published 235 (DIFFERENT)" in described(report)
    assert report["absent"] == ["train-tts", "train-backtrans"]
    # beside DRCD's own file the texts are those that were read out, and offsets are theirs
    squad_json(odsqa / "DRCD_dev.json", ("　在歐洲，梵語的學術研究", [("1147-1-1", "歐洲哪裡？", [("歐洲", 2)])]), drcd="1147")
    prepare_odsqa(odsqa, tmp_path / "texts")
    corpus = load_corpus(tmp_path / "texts", "test-spokenq")
    passage = corpus.passages["1147-1"]
    assert (passage.text, passage.transcript) == ("　在歐洲，梵語的學術研究", TRANSCRIPT) and not corpus.passages["1147-2"].text
    assert [a.char_start for a in corpus.questions[0].answers] == [2, 2] and corpus.questions[0].text == "歐洲哪裡？"
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
        assert list(prepare_odsqa(source, tmp_path / f"out{number}")["splits"]) == [split]
        assert load_corpus(tmp_path / f"out{number}", split).questions[0].answers[0].char_start == 1


def test_companions_are_counted_together(tmp_path, squad_json):
    for name in ("DRCD-TTS_train.json", "DRCD-TTS_dev.json", "DRCD-backtrans.json", "DRCD_dev.json"):
        squad_json(tmp_path / "in" / name, (TRANSCRIPT, ASKED), drcd="1147")
    splits = prepare_odsqa(tmp_path / "in", tmp_path / "out")["splits"]
    found = {f["what"]: (f["count"], f["done"]) for f in splits["dev-tts"]["found"]}
    assert found["questions in dev-tts and train-tts"] == (4, "published 16,746 (DIFFERENT)")
    assert splits["train-backtrans"]["questions"]["published"] == 15_238 and "published" not in splits["train-tts"]["questions"]
    translated, spoken = (load_corpus(tmp_path / "out", f"train-{kind}").passages["1147-1"] for kind in ("backtrans", "tts"))
    assert (translated.text, translated.transcript, spoken.text, spoken.transcript) == (TRANSCRIPT, "", "", TRANSCRIPT)


def test_sentences_are_joined_to_the_sample_and_holes_are_not(odsqa, tmp_path, recording):
    (odsqa / "audio_data.zip").write_bytes(b"never opened")
    printed = described(prepare_odsqa(odsqa, tmp_path / "packed"))
    assert printed.count("archives that are packed (audio_data.zip): 1; not read; unpack those of recordings") == 2
    sentences = [recording(odsqa / f"audio_data/1147-1-{n}.wav", 0.3 + n / 16_000) for n in (1, 2, 3)]
    asked = recording(odsqa / "audio_data/question/1147-1-1.wav", 0.2)
    for n in (1, 3):
        recording(odsqa / f"audio_data/1147-2-{n}.wav")
    report = prepare_odsqa(odsqa, tmp_path / "out")
    assert "packed" not in described(report)
    corpus = load_corpus(tmp_path / "out", "test-spokenq")
    samples, _ = soundfile.read(corpus.path(corpus.passages["1147-1"]))
    assert np.allclose(samples, np.concatenate(sentences), atol=2 / 32_768)
    assert corpus.passages["1147-1"].seconds == sum(map(len, sentences)) / 16_000
    audio = str(odsqa.resolve() / "audio_data/question/1147-1-1.wav")
    assert (corpus.questions[0].audio, corpus.questions[0].seconds) == (audio, len(asked) / 16_000)
    facts = report["splits"]["test-spokenq"]
    assert facts["set_aside"] == {"segments of its recording are missing": 1, "it has no recording, and others have": 1}
    assert facts["hours"]["passages"] > 0
    prepare_odsqa(odsqa, tmp_path / "text", Wanted(audio=False))
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
    prepare_odsqa(tmp_path / "in", tmp_path / "out")
    corpus = load_corpus(tmp_path / "out", "test-textq")
    assert (corpus.passages["1147-1"].seconds, corpus.questions[0].seconds) == (0.5, 0.2)


def test_another_folder_than_odsqa_is_one_sentence(tmp_path, odsqa, squad_json):
    (tmp_path / "empty").mkdir()
    squad_json(tmp_path / "other/spoken_test-v1.1.json", ("a", []))
    squad_json(tmp_path / "original/DRCD_dev.json", (TRANSCRIPT, ASKED), drcd="1147")
    for folder in ("empty", "other", "original", "no"):
        with pytest.raises(InputError, match="give the folder of ODSQA with any of") as error:
            prepare_odsqa(tmp_path / folder, tmp_path / "out")
        assert "\n" not in str(error.value) and not (tmp_path / "out").exists()
    cut = odsqa / "ODSQA_textq_test-v1.1.json"
    cut.write_bytes(cut.read_bytes()[:-5])
    with pytest.raises(InputError, match="ODSQA_textq_test-v1.1.json is not whole JSON"):
        prepare_odsqa(odsqa, tmp_path / "out")
    squad_json(odsqa / "copy/ODSQA_textq_test-v1.1.json", (TRANSCRIPT, ASKED), drcd="1147")
    with pytest.raises(InputError, match="look like test-textq of ODSQA; leave one of them"):
        prepare_odsqa(odsqa, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_real_text_questions(shared, tmp_path):
    facts = prepare_odsqa(shared("odsqa"), tmp_path / "out")["splits"]["test-textq"]
    assert facts["passages"] == {"read": 606, "kept": 606, "set_aside": 0, "published": 606, "agrees": True}
    assert facts["questions"] == {"read": 1_464, "kept": 1_464, "set_aside": 0, "published": 1_464, "agrees": True}
    found = {f["what"]: (f["count"], f["done"]) for f in facts["found"]}
    assert found["articles"] == (235, "published 235") and found["passages without questions"] == (20, "kept")
    assert not any("offset" in what for what in found)
    assert round(facts["answer_in_context"], 3) == 0.998 and facts["answer_in_letters"] == 1
    assert sum(len(q.answers) for q in load_corpus(tmp_path / "out", "test-textq").questions) == 2_842
