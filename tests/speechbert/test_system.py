"""The system: it hears recordings as audio words, answers in seconds, and refuses what does not
belong together."""

import numpy as np
import pytest

from speechssl.audio import read_audio
from speechssl.data.records import load_corpus
from speechssl.encoders.encoder import SharedEncoder
from speechssl.encoders.load import load_encoder
from speechssl.speechbert.system import load_speechbert
from speechssl.systems import load_systems

from ..files import change_json, refused
from .conftest import train_on, without_spans


@pytest.fixture
def trained(corpus, features, recogniser, options, tmp_path):
    train_on(corpus, features, tmp_path / "speechbert", options(2, 2, 2), recogniser)
    return tmp_path / "speechbert"


def test_a_corpus_is_heard_and_answered_from_end_to_end(trained, corpus, encoder, recogniser):
    data = load_corpus(corpus, "train")
    cut, aligned = load_speechbert(trained, encoder, recogniser), load_speechbert(trained, encoder)
    assert (cut.name, aligned.name) == ("speechbert", "speechbert-aligned")
    assert cut.card["boundaries"] == "r"
    assert aligned.card["boundaries"] == "those of the corpus"
    for system in (cut, aligned):
        encoded = {r.id: system.encode(r, read_audio(data.path(r))) for r in data.records}
        answers = system.answer_all([(encoded[q.id], encoded[q.passage]) for q in data.questions])
        for question, answer in zip(data.questions, answers, strict=True):
            passage = encoded[question.passage]
            assert answer.start in passage.starts
            assert answer.end in passage.ends
            assert answer.start < answer.end
            assert 0 < answer.confidence <= 1
            assert answer.text is None
    assert encoded["p0"].starts.tolist() == [0.05, 0.2, 0.4]
    assert encoded["p0"].codes.shape == (3, 32)


def test_only_the_times_of_the_recogniser_are_used(trained, encoder, recogniser):
    """Other words at the same times give the same codes."""
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 16_000).astype(np.float32)
    transcript = recogniser.transcribe(samples)
    assert len(transcript.words) > 1

    class Other:
        name, card = "other", {"asr": "other"}

        def transcribe(self, samples):
            words = [type(w)("zebra", w.start, w.end, 0.1) for w in transcript.words]
            return type(transcript)(tuple(words))

    one, two = (
        load_speechbert(trained, encoder, engine).encode(None, samples)
        for engine in (recogniser, Other())
    )
    assert np.array_equal(one.codes, two.codes)
    assert np.array_equal(one.starts, two.starts)


def test_another_encoder_and_another_kind_of_reader_are_refused(trained, encoder, hubert_folder):
    other, wanted = load_encoder(hubert_folder("group")), "was trained on the encoder .* load that"
    refused(wanted, load_speechbert, trained, other)
    change_json(trained / "card.json", what="DUAL reader")
    refused("is not a SpeechBERT", load_speechbert, trained, encoder)


def test_a_model_that_has_learnt_no_spans_is_not_asked_for_any(
    corpus, features, recogniser, options, encoder, tmp_path
):
    train_on(corpus, features, tmp_path / "speechbert", without_spans(options(1, 1, 1)), recogniser)
    names, shared = ["speechbert-aligned"], SharedEncoder(encoder)
    refused("was trained with --no-spans", load_systems, tmp_path, names, encoder=shared)
