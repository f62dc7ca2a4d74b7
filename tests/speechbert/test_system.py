"""SpeechBERT as a system encodes recordings as audio words, answers in seconds, and refuses another
encoder and another kind of reader."""

from dataclasses import replace

import numpy as np
import pytest

from speechssl.audio import read_audio
from speechssl.data.records import load_corpus
from speechssl.encoders.encoder import SharedEncoder
from speechssl.encoders.load import load_encoder
from speechssl.speechbert.system import load_speechbert
from speechssl.systems import load_systems

from ..files import change_json, refused
from .conftest import TIMED_WORDS, train_on, without_spans


@pytest.fixture
def folder(corpus, features, recogniser, options, tmp_path):
    """The folder of a SpeechBERT after two steps a stage."""
    out = tmp_path / "speechbert"
    train_on(corpus, features, out, options(words=2, masked=2, spans=2), recogniser)
    return out


def encode_all(system, data):
    return {r.id: system.encode(r, read_audio(data.path(r))) for r in data.records}


def test_answers_begin_and_end_with_audio_words(folder, corpus, encoder, recogniser):
    data = load_corpus(corpus, "train")
    system = load_speechbert(folder, encoder, recogniser)
    assert system.name == "speechbert"
    assert system.card["boundaries"] == "r"
    encoded = encode_all(system, data)
    answers = system.answer_all([(encoded[q.id], encoded[q.passage]) for q in data.questions])
    for question, answer in zip(data.questions, answers, strict=True):
        passage = encoded[question.passage]
        assert answer.start in passage.starts
        assert answer.end in passage.ends
        assert answer.start < answer.end
        assert 0 < answer.confidence <= 1
        assert answer.text is None


def test_the_aligned_system_has_the_words_of_the_corpus(folder, corpus, encoder):
    system = load_speechbert(folder, encoder)
    assert system.name == "speechbert-aligned"
    assert system.card["boundaries"] == "those of the corpus"
    encoded = encode_all(system, load_corpus(corpus, "train"))
    assert encoded["p0"].starts.tolist() == [start for _, start, _ in TIMED_WORDS]
    assert encoded["p0"].codes.shape == (3, 32)


def test_other_words_at_the_same_times_give_the_same_codes(folder, encoder, recogniser):
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 16_000).astype(np.float32)
    transcript = recogniser.transcribe(samples)
    assert len(transcript.words) > 1

    class OtherRecogniser:
        """This recognises another word at every time."""

        def __init__(self):
            self.name = "other"
            self.card = {"asr": "other"}

        def transcribe(self, samples):
            words = [replace(word, text="zebra", confidence=0.1) for word in transcript.words]
            return replace(transcript, words=tuple(words))

    expected = load_speechbert(folder, encoder, recogniser).encode(None, samples)
    encoded = load_speechbert(folder, encoder, OtherRecogniser()).encode(None, samples)
    assert np.array_equal(encoded.codes, expected.codes)
    assert np.array_equal(encoded.starts, expected.starts)


def test_another_encoder_is_refused(folder, hubert_folder):
    other = load_encoder(hubert_folder("group"))
    refused("was trained on the encoder .* load that", load_speechbert, folder, other)


def test_another_kind_of_reader_is_refused(folder, encoder):
    change_json(folder / "card.json", what="DUAL reader")
    refused("is not a SpeechBERT", load_speechbert, folder, encoder)


def test_a_model_without_the_stage_of_spans_is_refused_as_a_system(
    corpus, features, recogniser, options, encoder, tmp_path
):
    few_steps = without_spans(options(words=1, masked=1, spans=1))
    train_on(corpus, features, tmp_path / "speechbert", few_steps, recogniser)
    names = ["speechbert-aligned"]
    shared = SharedEncoder(encoder)
    refused("was trained with --no-spans", load_systems, tmp_path, names, encoder=shared)
