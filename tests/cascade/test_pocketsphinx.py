"""PocketSphinx: words, times, fillers, long audio, and that an utterance does not depend on the one before it."""

import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from speechssl.audio import resample
from speechssl.cascade.data import Recogniser
from speechssl.cascade.engines import DECODER, PocketSphinxRecogniser
from speechssl.errors import InputError, MissingExtra
from speechssl.synth.synthesisers import Voice, speak

RATE = 16_000
VOICE = Voice("tester", "en-us", "klatt6", 130, 40)  # the one it understands best
SENTENCES = ("the united states of america", "the teacher asked the children to write")


@pytest.fixture(scope="module")
def recogniser() -> PocketSphinxRecogniser:
    pytest.importorskip("pocketsphinx")
    return PocketSphinxRecogniser()


@pytest.fixture(scope="module")
def speech() -> list[np.ndarray]:
    pytest.importorskip("espeakng_loader")
    spoken = [speak(sentence, VOICE) for sentence in SENTENCES]
    return [resample(s.samples.astype(np.float32) / 32768, s.sample_rate, RATE) for s in spoken]


@pytest.mark.slow
def test_it_hears_words_of_the_sentence_where_they_are(recogniser, speech):
    transcript = recogniser.transcribe(speech[1])
    recognised = {word.text: word for word in transcript.words}
    assert isinstance(recogniser, Recogniser)
    spoken = speak(SENTENCES[1], VOICE)
    marks = {mark.text: (mark.start / spoken.sample_rate, mark.end / spoken.sample_rate) for mark in spoken.words}
    common = set(recognised) & set(marks)
    assert len(common) >= 3, transcript.text
    for text in common:
        assert recognised[text].start == pytest.approx(marks[text][0], abs=0.1)
        assert recognised[text].end == pytest.approx(marks[text][1], abs=0.2)  # a closure before the next word is silence to it


@pytest.mark.slow
def test_words_are_clean_in_order_and_inside_the_audio(recogniser, speech):
    words = recogniser.transcribe(speech[0]).words
    assert words
    assert all(not set("<>[]()+").intersection(w.text) and w.text for w in words)
    times = [0.0, *(t for w in words for t in (w.start, w.end)), len(speech[0]) / RATE]
    assert times == sorted(times)
    assert all(0 <= w.confidence <= 1 for w in words)


@pytest.mark.slow
def test_words_depend_neither_on_what_came_before_nor_on_other_threads(recogniser, speech):
    alone = [recogniser.transcribe(samples) for samples in speech]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(recogniser.transcribe, speech * 3)) == alone * 3


@pytest.mark.slow
def test_pieces_of_long_audio_are_heard_as_if_alone(recogniser, speech, monkeypatch):
    monkeypatch.setattr("speechssl.cascade.engines.LONGEST", 4.0)
    parts = [np.pad(x, (0, int(3.5 * RATE) - len(x))) for x in speech]  # 3.5 s each, the rest of it silent
    words = recogniser.transcribe(np.concatenate(parts)).words
    times = [t for w in words for t in (w.start, w.end)]
    assert times == sorted(times)
    assert {w.text for w in words if w.start > 3.4} >= {"the", "teacher", "children"}


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(10), np.zeros(RATE), np.full(RATE, 3.0)])
def test_silence_and_clipping_do_not_break_it(recogniser, samples):
    transcript = recogniser.transcribe(samples)
    assert all(0 <= w.start <= w.end <= len(samples) / RATE for w in transcript.words)


def test_stereo_is_refused(recogniser):
    with pytest.raises(ValueError, match="one channel"):
        recogniser.transcribe(np.zeros((RATE, 2)))


def test_fillers_and_alternate_marks_are_removed(recogniser, monkeypatch):
    names = ("<s>", "the(2)", "<sil>", "[NOISE]", "++UM++", "it's", "</s>")
    segments = [SimpleNamespace(word=w, start_frame=10 * i, end_frame=10 * i + 9, prob=1.1) for i, w in enumerate(names)]
    nothing = {name: lambda *_, **__: None for name in ("start_stream", "start_utt", "process_raw", "end_utt")}
    fake = SimpleNamespace(hyp=lambda: "something", seg=lambda: iter(segments), **nothing)
    monkeypatch.setattr(recogniser._own, "decoder", fake)
    words = recogniser.transcribe(np.zeros(RATE)).words
    assert [(w.text, w.start, w.end, w.confidence) for w in words] == [("the", 0.1, 0.2, 1.0), ("it's", 0.5, 0.6, 1.0)]


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    with pytest.raises(MissingExtra, match=r"needs the extra pocketsphinx: pip install '"):
        PocketSphinxRecogniser()


def test_settings_the_decoder_refuses_are_named(monkeypatch):
    pytest.importorskip("pocketsphinx")
    monkeypatch.setitem(DECODER, "topn", "many")
    with pytest.raises(InputError, match="does not accept"):
        PocketSphinxRecogniser()
