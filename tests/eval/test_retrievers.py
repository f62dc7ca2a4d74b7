"""The systems of first-stage retrieval: what their terms are, what their vectors are, and that each source is encoded once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from speechssl.cascade.data import TimedWord, Transcript
from speechssl.data.records import Passage
from speechssl.errors import InputError
from speechssl.eval.retrieval import Embedder, embedder_of_words, load_retrievers, mean_pooled, of_samples, shared_terms
from speechssl.io import model_folder
from speechssl.synth.minisqa import speakers
from speechssl.synth.speak import read_aloud
from speechssl.timing import RunLength


def record(name="p", text="", language="en"):
    return Passage(name, "", 1.0, text, "s", language)


def spoken(text, language="en"):
    separator = "" if language == "zh" else " "
    return record(language=language), Transcript(tuple(TimedWord(w, 0, 1, 1) for w in text.split()), separator)


def units(*units):
    return record(), RunLength(np.array(units), np.ones(len(units), int))


@pytest.mark.parametrize("method", ["bm25", "tfidf"])
def test_words_are_compared_in_one_form_and_chinese_by_character(method):
    (scores,) = shared_terms(method, None, [spoken("Which COLOUR?")], [spoken("the color"), spoken("colouring")])
    assert scores[0] > scores[1] == 0
    (scores,) = shared_terms(method, None, [spoken("貓 在 哪裡", "zh")], [spoken("一隻 猫", "zh"), spoken("狗", "zh")])
    assert scores[0] > scores[1] == 0


@pytest.mark.parametrize("method", ["bm25", "tfidf"])
def test_ngrams_forgive_what_is_misheard(method):
    passages = [spoken("lantern"), spoken("peacock")]
    assert not shared_terms(method, None, [spoken("lentern")], passages).any()
    (scores,) = shared_terms(method, 3, [spoken("lentern")], passages)
    assert scores[0] > scores[1] == 0


def test_terms_of_units_are_trigrams_or_as_long_as_they_are_asked_for():
    question, passages = [units(1, 2, 3, 4)], [units(9, 1, 2, 3, 9), units(3, 4, 9)]
    (three,) = shared_terms("tfidf", None, question, passages)
    assert three[0] > three[1] == 0
    assert (shared_terms("tfidf", 2, question, passages) > 0).all()
    assert not shared_terms("tfidf", 4, question, passages).any()


def one_hot(longest=None):
    """Vectors are counts of the tokens 0 to 5; specials count nothing."""
    table = torch.cat([torch.eye(6), torch.zeros(3, 6)])
    return Embedder(lambda ids, mask: mean_pooled(table[ids], mask), lambda runs: runs.units, (6, 7, 8), {}, longest)


def test_the_best_window_of_a_passage_counts():
    passages = [units(*[5] * 8, 1, 2, *[5] * 8), units(1, 5, 5, 5)]
    (narrow,) = one_hot().score(2, [units(1, 2)], passages)
    assert narrow == pytest.approx([1, 0.5])  # (1, 2) is a window; (1, 5) shares one of two
    (wide,) = one_hot().score(100, [units(1, 2)], passages)
    assert wide == pytest.approx([2**0.5 / (2 + 16**2) ** 0.5, 1 / (2 * 10) ** 0.5])


def test_a_passage_without_words_is_like_nothing():
    assert one_hot().score(4, [units(1)], [units(), units(1)]).tolist() == [[0, 1]]


@pytest.fixture
def folder(text_encoder, tokenizer, tmp_path):
    text_encoder("bert").save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_a_vector_is_the_mean_over_all_tokens_whatever_else_is_in_the_batch(folder, text_encoder, tokenizer):
    embedder = embedder_of_words(str(folder), bf16=False)
    texts = ["anna lost a lantern", "the silver lantern of anna and peter", "paris"]
    with torch.no_grad():
        hidden = [text_encoder("bert")(**tokenizer(t, return_tensors="pt")).last_hidden_state[0].mean(0) for t in texts]
    wanted = torch.stack([h / h.norm() for h in hidden]).numpy()
    found = embedder.score(100, [spoken(texts[0])], [spoken(t) for t in texts])
    assert found == pytest.approx(wanted[:1] @ wanted.T, abs=1e-5)


def test_a_window_that_is_too_long_for_the_text_encoder_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match="embeddings-text reads 126 tokens at once, not 254"):
        load_retrievers(tmp_path, ["embeddings-text"], str(folder))


@pytest.mark.parametrize("name", ["bm25", "bm25-", "cosine-text", "tfidf-text@0", "text"])
def test_unknown_systems_are_named(name, tmp_path):
    with pytest.raises(InputError, match=f"there is no system '{name}'; choose bm25-SOURCE"):
        load_retrievers(tmp_path, [name])


def test_what_reads_text_needs_no_models_and_no_audio(tmp_path):
    loaded = load_retrievers(tmp_path, ["bm25-text", "tfidf-given@4"])
    assert [s.name for s in loaded] == ["bm25-text", "tfidf-given@4"] and not any(s.needs_audio for s in loaded)
    assert loaded[0].encode(record(text="a red boat"), None).text == "a red boat"
    with pytest.raises(ValueError, match="no reference text"):
        loaded[0].encode(record(), None)


def test_systems_with_one_source_encode_a_recording_once():
    encoded = []
    encode = of_samples(lambda samples: encoded.append(samples) or len(encoded))
    first, second = np.zeros(3), np.zeros(3)
    assert [encode(None, x) for x in (first, first, second, first)] == [1, 1, 2, 3]


@pytest.mark.slow
def test_the_shipped_models_find_a_passage_by_its_units():
    pytest.importorskip("espeakng_loader")
    voice, other = speakers("en", "test")[:2]
    texts = ["The silver lantern hangs in the harbour of the old town.", "A doctor from the mountains sold seven green boats."]
    passages = [read_aloud(text, voice, "en").samples for text in texts]
    loaded = load_retrievers(model_folder("people-en"), ["bm25-ctc", "tfidf-units", "embeddings-units@20"])
    for system in loaded[1:]:
        found = [(record(), system.encode(record(), x)) for x in passages]
        question = record(), system.encode(record(), read_aloud("Who sold seven green boats?", other, "en").samples)
        scores = system.score([question], found)
        assert scores.shape == (1, 2) and scores[0, 1] > scores[0, 0]
    assert loaded[0].card["asr"] and isinstance(loaded[0].encode(record(), passages[0]), Transcript)
    assert loaded[1].card["codebook"] == loaded[2].card["codebook"] and "dual" in loaded[2].card
