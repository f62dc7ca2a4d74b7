"""Test Spoken-SQuAD: the clean files, the noisy files, whose offsets refer to another text, SQuAD's
own file beside them, and recordings of sentences."""

import pytest

from speechssl.data.options import SpokenSquad
from speechssl.data.records import load_corpus
from speechssl.data.spoken_squad import prepare_spoken_squad

from ..files import collect_remarks

CLEAN = "the denver broncos won in part because of the game"
NOISY = "the tender broncos one in part because of the gay"
ORIGINAL = "The Denver Broncos won, in part, because of the game."


QUESTIONS = [  # (id, text, [(answer, offset in ORIGINAL), ...])
    ("q1", "Who won?", [("Denver Broncos", 4), ("Broncos", 11)]),
    ("q2", "Why?", [("game", 48)]),
]


def prepare(source, out):
    """Prepare the corpus, and return its data report."""
    return prepare_spoken_squad(SpokenSquad(source=source, out=out, workers=1))


@pytest.fixture
def source(tmp_path, squad_json):
    """The clean files of train and test, and both noisy tests. The test has a second paragraph, to
    which the noisy files have no text."""
    root = tmp_path / "Spoken-SQuAD"
    clean = [("q1", "Who won?", [("denver broncos", 4), ("", 0)])]
    clean += [("q2", "Why?", [("the game", 42)])]
    squad_json(root / "spoken_test-v1.1.json", (CLEAN, clean), ("no question here", []))
    squad_json(root / "spoken_train-v1.1.json", (CLEAN, clean[1:]))
    for level in (44, 54):
        squad_json(root / f"spoken_test-v1.1_WER{level}.json", (NOISY, QUESTIONS), ("", []))
    return root


def test_noisy_tests_have_no_offsets_and_fewer_answers_in_their_text(source, tmp_path):
    report = prepare(source, tmp_path / "out")
    assert list(report["splits"]) == ["train", "test", "test-wer44", "test-wer54"]
    clean, noisy = report["splits"]["test"], report["splits"]["test-wer44"]
    assert (clean["answer_in_context"], noisy["answer_in_context"]) == (1, 0.5)
    assert collect_remarks(clean)["empty answers"] == 1
    test = load_corpus(tmp_path / "out", "test")
    assert (test.passages["0_0"].transcript, test.passages["0_0"].text) == (CLEAN, "")
    assert [a.char_start for a in test.questions[0].answers] == [4]
    noisy = load_corpus(tmp_path / "out", "test-wer54")
    assert [a.char_start for q in noisy.questions for a in q.answers] == [None] * 3


def test_texts_of_squads_own_file_become_those_of_the_tests(source, tmp_path, squad_json):
    squad_json(source / "dev-v1.1.json", (ORIGINAL, QUESTIONS), ("No question here.", []))
    prepare(source, tmp_path / "texts")
    splits = ("test-wer44", "test", "train")
    noisy, clean, train = (load_corpus(tmp_path / "texts", split) for split in splits)
    assert (noisy.passages["0_0"].text, noisy.passages["0_0"].transcript) == (ORIGINAL, NOISY)
    # offsets of the noisy files are right in the original text
    assert [a.char_start for q in noisy.questions for a in q.answers] == [4, 11, 48]
    assert clean.passages["0_1"].text == "No question here."
    assert train.passages["0_0"].text == ""
    assert train.questions[0].answers[0].char_start == 42


def test_sentences_of_the_clean_splits_are_joined(source, tmp_path, recording):
    folder = source / "Spoken-SQuAD_audio"
    for name in ("0_0_0", "0_0_1", "0_1_0", "0_1_1"):
        recording(folder / f"dev_wav/{name}.wav", 0.5, 24_000)
    for name in ("0_0_0", "0_0_1"):
        recording(folder / f"train_wav/{name}.wav", 0.5, 24_000)
    (folder / "dev_wav/0_1_1.wav").write_bytes(b"RIFF")
    report = prepare(source, tmp_path / "out")
    corpus = load_corpus(tmp_path / "out", "test")
    assert list(corpus.passages) == ["0_0"]
    assert corpus.passages["0_0"].seconds == 1
    assert report["splits"]["test"]["set_aside"] == {"its recording cannot be used": 1}
    noisy = load_corpus(tmp_path / "out", "test-wer44")
    assert [p.audio for p in noisy.passages.values()] == ["", ""]


@pytest.mark.slow
def test_the_published_clean_test(shared, tmp_path):
    report = prepare(shared("spoken_squad"), tmp_path / "out")
    facts = report["splits"]["test"]
    assert facts["questions"]["agrees"]
    assert facts["questions"]["kept"] == 5_351
    assert facts["passages"]["kept"] == 2_067
    assert collect_remarks(facts) == {"empty answers": 3}
