"""SpeechBERT as a system encodes recordings as audio words, answers in seconds, and refuses another
encoder and another kind of reader."""

import pytest

from speechssl.audio import read_audio
from speechssl.data.records import load_corpus
from speechssl.encoders.load import load_encoder
from speechssl.speechbert.system import load_speechbert

from ..files import change_json, refused
from .conftest import TIMED_WORDS, train_on


@pytest.fixture
def folder(corpus, features, recogniser, options, tmp_path):
    """The folder of a SpeechBERT after two steps a stage."""
    out = tmp_path / "speechbert"
    train_on(corpus, features, out, options(words=2, masked=2, spans=2), recogniser)
    return out


def test_answers_begin_and_end_with_audio_words(folder, corpus, encoder, recogniser):
    data = load_corpus(corpus, "train")
    system = load_speechbert(folder, encoder, recogniser)
    assert (system.name, system.card["boundaries"]) == ("speechbert", "r")
    encoded = {r.id: system.encode(r, read_audio(data.path(r))) for r in data.records}
    answers = system.answer_all([(encoded[q.id], encoded[q.passage]) for q in data.questions])
    for question, answer in zip(data.questions, answers, strict=True):
        passage = encoded[question.passage]
        assert answer.start in passage.starts
        assert answer.end in passage.ends
        assert answer.start < answer.end
        assert answer.text is None


def test_the_aligned_system_has_the_words_of_the_corpus(folder, corpus, encoder):
    system = load_speechbert(folder, encoder)
    assert system.name == "speechbert-aligned"
    data = load_corpus(corpus, "train")
    record = data.passages["p0"]
    words = system.encode(record, read_audio(data.path(record)))
    assert words.starts.tolist() == [start for _, start, _ in TIMED_WORDS]
    assert words.codes.shape == (3, 32)


def test_another_encoder_and_another_kind_of_reader_are_refused(folder, encoder, hubert_folder):
    other = load_encoder(hubert_folder("group"))
    refused("was trained on the encoder .* load that", load_speechbert, folder, other)
    change_json(folder / "card.json", what="DUAL reader")
    refused("is not a SpeechBERT", load_speechbert, folder, encoder)
