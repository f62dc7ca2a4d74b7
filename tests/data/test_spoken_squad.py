"""Spoken-SQuAD: the clean files, the noisy ones whose offsets mean nothing, SQuAD beside them, and
sentences."""

import json

import pytest
import soundfile

from speechssl.data.options import SpokenSquad
from speechssl.data.prepare import format_report
from speechssl.data.records import load_corpus
from speechssl.data.spoken_squad import prepare_spoken_squad

from ..files import refused, remarks

CLEAN = "the denver broncos won in part because of the game"
NOISY = "the tender broncos one in part because of the gay"
ORIGINAL = "The Denver Broncos won, in part, because of the game."


@pytest.fixture
def source(tmp_path, squad_json):
    root = tmp_path / "Spoken-SQuAD"
    clean = [
        ("q1", "Who won?", [("denver broncos", 4), ("", 0)]),
        ("q2", "Why?", [("the game", 42)]),
    ]
    squad_json(root / "spoken_test-v1.1.json", (CLEAN, clean), ("no question here", []))
    squad_json(root / "spoken_train-v1.1.json", (CLEAN, clean[1:]))
    kept = [
        ("q1", "Who won?", [("Denver Broncos", 4), ("Broncos", 11)]),
        ("q2", "Why?", [("game", 47)]),
    ]
    for level in (44, 54):
        squad_json(root / f"spoken_test-v1.1_WER{level}.json", (NOISY, kept), ("", []))
    return root


def test_splits_counts_and_the_ceiling(source, tmp_path, squad_json):
    report = prepare_spoken_squad(SpokenSquad(source=source, out=tmp_path / "out", workers=1))
    assert (
        list(report["splits"]) == ["train", "test", "test-wer44", "test-wer54"]
        and not report["absent"]
    )
    clean, noisy = report["splits"]["test"], report["splits"]["test-wer44"]
    assert (clean["answer_in_context"], noisy["answer_in_context"]) == (1, 0.5)
    assert remarks(clean)["empty answers"] == 1
    found = {f["what"]: (f["count"], f["done"]) for f in noisy["found"]}
    assert found["answers with offsets of another text"] == (
        3,
        "offsets ignored, scored by text only",
    )
    assert found["passages with an empty transcript"][0] == 1
    assert "published 37,111 (DIFFERENT)" in format_report(report) and (
        "50.0% of the questions"
    ) in format_report(report)
    test = load_corpus(tmp_path / "out", "test")
    assert (test.passages["0_0"].transcript, test.passages["0_0"].text) == (CLEAN, "")
    assert [a.char_start for a in test.questions[0].answers] == [4]
    noisy = load_corpus(tmp_path / "out", "test-wer54")
    assert [a.char_start for q in noisy.questions for a in q.answers] == [None] * 3
    # SQuAD's own file gives its texts to the tests alone
    asked = [
        ("q1", "Who won?", [("Denver Broncos", 4), ("Broncos", 11)]),
        ("q2", "Why?", [("game", 48)]),
    ]
    squad_json(source / "dev-v1.1.json", (ORIGINAL, asked), ("No question here.", []))
    facts = prepare_spoken_squad(SpokenSquad(source=source, out=tmp_path / "texts", workers=1))[
        "splits"
    ]["test-wer44"]
    noisy, clean, train = (
        load_corpus(tmp_path / "texts", split) for split in ("test-wer44", "test", "train")
    )
    assert (noisy.passages["0_0"].text, noisy.passages["0_0"].transcript) == (ORIGINAL, NOISY)
    # in the original they are right
    assert [a.char_start for q in noisy.questions for a in q.answers] == [4, 11, 48]
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
    assert list(
        prepare_spoken_squad(SpokenSquad(source=path, out=tmp_path / "out", workers=1))["splits"]
    ) == [split]


def test_recordings_of_the_clean_splits(source, tmp_path, recording):
    for name in (
        "dev_wav/0_0_0",
        "dev_wav/0_0_1",
        "dev_wav/0_1_0",
        "dev_wav/0_1_1",
        "train_wav/0_0_0",
        "train_wav/0_0_1",
    ):
        recording(source / f"Spoken-SQuAD_audio/{name}.wav", 0.5, 24_000)
    (source / "Spoken-SQuAD_audio/dev_wav/0_1_1.wav").write_bytes(b"RIFF")
    report = prepare_spoken_squad(SpokenSquad(source=source, out=tmp_path / "out", workers=2))
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
    for name in (
        "spoken_train-v1.1.json",
        "spoken_test-v1.1_WER44.json",
        "spoken_test-v1.1_WER54.json",
    ):
        (source / name).unlink()
    for name in ("0_0_0", "0_1_0", "9_9_0", "other"):
        recording(source / folder / f"{name}.wav")
    recording(source / "train_wav/0_0_0.wav")
    prepare_spoken_squad(SpokenSquad(source=source, out=tmp_path / "out", workers=1))
    assert len(load_corpus(tmp_path / "out", "test").passages) == 2


def test_another_folder_is_one_sentence(tmp_path, squad_json, unmade):
    (tmp_path / "empty").mkdir()
    squad_json(tmp_path / "other/ODSQA_textq_test-v1.1.json", ("a", []))
    for folder in ("empty", "other", "no"):
        refused(
            "give the folder of Spoken-SQuAD with any of spoken_tr",
            prepare_spoken_squad,
            SpokenSquad(source=tmp_path / folder, out=unmade, workers=1),
        )
    (tmp_path / "other/spoken_test-v1.1.json").write_text('{"data": {}}')
    refused(
        "spoken_test-v1.1.json is not SQuAD or DRCD JSON",
        prepare_spoken_squad,
        SpokenSquad(source=tmp_path / "other", out=unmade, workers=1),
    )


@pytest.mark.slow
def test_the_real_clean_test(shared, tmp_path):
    report = prepare_spoken_squad(
        SpokenSquad(source=shared("spoken_squad"), out=tmp_path / "out", workers=1)
    )
    facts = report["splits"]["test"]
    assert facts["questions"] == {
        "read": 5_351,
        "kept": 5_351,
        "set_aside": 0,
        "published": 5_351,
        "agrees": True,
    }
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
        paragraph["context"] = " ".join(
            w for i, w in enumerate(paragraph["context"].split()) if i % 3
        )
    (tmp_path / "spoken_test-v1.1_WER44.json").write_text(json.dumps(content))
    facts = prepare_spoken_squad(
        SpokenSquad(
            source=tmp_path / "spoken_test-v1.1_WER44.json", out=tmp_path / "noisy", workers=1
        )
    )["splits"]["test-wer44"]
    assert (
        facts["questions"]["kept"] == sum(len(p["qas"]) for p in paragraphs) > 300
        and 0.4 < facts["answer_in_context"] < 0.8
    )


def test_two_recordings_of_one_name_are_refused(source, tmp_path, recording):
    for folder in ("ann", "bob"):
        recording(source / f"dev_wav/{folder}/0_0_0.wav")
    message = refused(
        "are both called 0_0_0",
        prepare_spoken_squad,
        SpokenSquad(source=source, out=tmp_path / "out", workers=1),
    )
    assert "ann/0_0_0.wav" in message and "bob/0_0_0.wav" in message
