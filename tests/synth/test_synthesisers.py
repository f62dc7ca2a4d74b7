"""flite, festival and piper as espeak-ng: the same text gives samples, and words with their times."""

import shutil
from ctypes import util

import numpy as np
import pytest

from speechssl.errors import InputError
from speechssl.synth import synthesisers
from speechssl.synth.minisqa import Settings, prepare, speakers
from speechssl.synth.synthesisers import Voice, speak, voices

TEXT = 'Who paid "Tom" in 1984, and why?'
NEEDS = {
    "flite": pytest.mark.skipif(util.find_library("flite") is None, reason="flite is not installed (Debian package flite)"),
    "festival": pytest.mark.skipif(shutil.which("festival") is None, reason="festival is not installed (Debian package festival)"),
}
TIMED = [pytest.param(name, marks=[mark, pytest.mark.slow]) for name, mark in NEEDS.items()]


@pytest.mark.parametrize("name", TIMED)
def test_words_and_phones_have_times_in_order(name):
    voice = voices(name)[0]
    spoken = speak(TEXT, voice)
    assert spoken.samples.dtype == np.int16 and len(spoken.samples) > 1.5 * spoken.sample_rate
    assert [mark.text for mark in spoken.words] == ["Who", "paid", "Tom", "in", "1984", "and", "why"]
    assert all(TEXT[mark.position :].startswith(mark.text) for mark in spoken.words)
    edges = [x for mark in spoken.words for x in (mark.start, mark.end)]
    assert edges == sorted(edges) and edges[0] > 0 and edges[-1] <= len(spoken.samples)
    year = spoken.words[4]
    assert year.end - year.start > 0.6 * spoken.sample_rate  # three words are said
    assert all(a.end == b.start for a, b in zip(spoken.phones, spoken.phones[1:], strict=False))
    loud = np.abs(spoken.samples[spoken.words[1].start : spoken.words[1].end].astype(float)).mean()
    assert loud > 5 * np.abs(spoken.samples[: edges[0] // 2].astype(float)).mean()
    assert np.array_equal(speak(TEXT, voice).samples, spoken.samples)


@pytest.mark.parametrize("name", TIMED)
def test_minisqa_is_spoken_by_it_with_the_same_text(name, tmp_path):
    from speechssl.data.records import load_corpus

    counts = {"train": 0, "dev": 0, "test": 1}
    prepare(tmp_path / name, Settings("en", counts, 0, synthesiser=name))
    data = load_corpus(tmp_path / name, "test")
    assert {q.speaker for q in data.questions} <= {voice.name for voice in speakers("en", "test", name)}
    answers = [a for q in data.questions for a in q.answers]
    assert answers and all(a.start < a.end <= data.passages["test-000000"].seconds for a in answers)
    with pytest.raises(InputError, match="made"):
        prepare(tmp_path / name, Settings("en", counts, 0))


def test_what_is_not_there_is_one_sentence(monkeypatch):
    with pytest.raises(InputError, match="no synthesiser 'sam'; choose espeak-ng, flite, piper, festival"):
        voices("sam")
    with pytest.raises(InputError, match="no synthesiser 'sam'"):
        speak(TEXT, Voice("x", "en", "", engine="sam"))
    with pytest.raises(InputError, match="speaks English only"):
        speakers("zh", "test", "flite")
    with pytest.raises(InputError, match="second reading of --reference is espeak-ng's"):
        prepare("nowhere", Settings("en", {"train": 0, "dev": 0, "test": 0}, 0, reference=True, synthesiser="flite"))
    monkeypatch.setattr(synthesisers.shutil, "which", lambda _: None)
    with pytest.raises(InputError, match="festival is not installed; on Debian: apt-get install festival"):
        speak(TEXT, Voice("x", "en", "nobody", engine="festival"))
    monkeypatch.setattr(synthesisers.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"needs the extra piper: pip install '"):
        speak(TEXT, Voice("x", "en", "nobody", engine="piper"))


@pytest.mark.slow
@NEEDS["festival"]
def test_festival_without_a_voice_is_one_sentence():
    with pytest.raises(InputError, match="festival has no voice nobody"):
        speak(TEXT, Voice("x", "en", "nobody", engine="festival"))
