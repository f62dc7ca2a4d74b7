"""The synthesiser: marks that cover every word, the same samples every time."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from speechssl.errors import InputError, MissingExtra
from speechssl.synth.minisqa import generate_passage, speakers
from speechssl.synth.synthesisers import Voice, pronounce, speak, speak_phones

pytest.importorskip("espeakng_loader", reason='the synthesiser needs: pip install "speechssl[synth]"')

ENGLISH = speakers("en", "train")[0]
TEXT = "the birthplace of the old baker is in the middle of nowhere and it isn't far"
SENTENCES = [
    (voice, sentence)
    for index, split in enumerate(("train", "dev", "test"))
    for language in ("en", "zh")
    for voice in speakers(language, split)[index : index + 3]
    for sentence in generate_passage(language, split, index, 0).sentences[:3]
]


def digest(spoken):
    return hashlib.sha256(spoken.samples.tobytes() + repr((spoken.words, spoken.phones)).encode()).hexdigest()


# ---- marks


def spoken_words(text):
    return list(text) if text[0] >= "一" else text.split()


@pytest.mark.parametrize(
    ("voice", "text"), [*SENTENCES, (ENGLISH, TEXT), (Voice("reference", "en-us", ""), TEXT), (ENGLISH, "baker")]
)
def test_marks_cover_every_word_in_order(voice, text):
    spoken = speak(text, voice)
    assert [mark.text for mark in spoken.words] == spoken_words(text)
    assert all(text[m.position : m.position + len(m.text)] == m.text for m in spoken.words)
    assert [m.position for m in spoken.words] == sorted({m.position for m in spoken.words})
    edges = [edge for m in spoken.words for edge in (m.start, m.end)]
    assert edges == sorted(edges) and all(m.start < m.end for m in spoken.words)
    assert edges[0] >= 0 and edges[-1] <= len(spoken.samples)
    assert spoken.sample_rate == 22_050 and spoken.samples.dtype == np.int16


@pytest.mark.parametrize(("voice", "text"), [*SENTENCES[::3], (ENGLISH, TEXT)])
def test_phones_follow_one_another_inside_the_words(voice, text):
    spoken = speak(text, voice)
    assert all(a.end == b.start for a, b in zip(spoken.phones, spoken.phones[1:], strict=False))
    assert 0 <= spoken.phones[0].start and spoken.phones[-1].end == len(spoken.samples)
    assert all(p.start < p.end and p.text and not set(p.text) & set("',%=") for p in spoken.phones)
    sounds = [p for p in spoken.phones if p.text != "_"]
    assert len(sounds) >= len(spoken.words)
    for phone in sounds:
        assert any(w.start <= phone.start < w.end for w in spoken.words), phone
    for word in spoken.words:
        assert any(p.start < word.end and word.start < p.end for p in sounds), word


def test_words_are_louder_than_what_is_around_them():
    spoken = speak(TEXT, ENGLISH)
    power = spoken.samples.astype(float) ** 2
    inside = np.zeros(len(power), bool)
    for word in spoken.words:
        inside[word.start : word.end] = True
    assert power[inside].mean() > 30 * power[~inside].mean()


def test_rate_pitch_and_variant_are_heard():
    plain = Voice("v", "en-us", "m3")
    slow, high, other = Voice("v", "en-us", "m3", rate=120), Voice("v", "en-us", "m3", pitch=90), Voice("v", "en-us", "f4")
    length, *_ = lengths = [len(speak(TEXT, v).samples) for v in (plain, slow, high, other)]
    assert lengths[1] > 1.2 * length
    assert len({digest(speak(TEXT, v)) for v in (plain, slow, high, other)}) == 4


# ---- the same samples


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_same_text_is_the_same_samples_whatever_came_between(language):
    """All voices, then all again in another order: some draw breath noise from the C library's generator."""
    everybody = [voice for split in ("train", "dev", "test") for voice in speakers(language, split)]
    first = {voice.name: digest(speak("the baker 一月 is old", voice)) for voice in everybody}
    again = {voice.name: digest(speak("the baker 一月 is old", voice)) for voice in reversed(everybody)}
    assert first == again and len(set(first.values())) == len(everybody)


def test_another_process_speaks_the_same_samples():
    code = (
        "import sys, hashlib; from speechssl.synth.synthesisers import speak; from speechssl.synth.minisqa import speakers\n"
        "for v in speakers('en', 'test'):\n"
        "    s = speak(sys.argv[1], v)\n"
        "    print(hashlib.sha256(s.samples.tobytes() + repr((s.words, s.phones)).encode()).hexdigest())"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MALLOC_PERTURB_": "165"}
    found = subprocess.run([sys.executable, "-c", code, TEXT], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [digest(speak(TEXT, voice)) for voice in speakers("en", "test")]


# ---- refusals


@pytest.mark.parametrize("voice", [Voice("v", "xx-nowhere", ""), Voice("v", "", ""), Voice("v", "en-us", "nobody")])
def test_an_unknown_voice_is_refused(voice):
    with pytest.raises(ValueError, match="espeak-ng has no (voice|variant)"):
        speak("hello", voice)


def test_after_a_refusal_the_next_voice_speaks():
    before = digest(speak(TEXT, ENGLISH))
    with pytest.raises(ValueError):
        speak("hello", Voice("v", "xx-nowhere", ""))
    assert digest(speak(TEXT, ENGLISH)) == before


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(MissingExtra, match=r"pip install 'espeakng-loader"):
        speak("hello", ENGLISH)


# ---- the table of speakers


def test_every_speaker_has_a_voice_of_its_own():
    for language in ("en", "zh"):
        everybody = [v for split in ("train", "dev", "test") for v in speakers(language, split)]
        assert len({v.name for v in everybody}) == len({v.variant for v in everybody}) == len(everybody) > 60
        assert "" not in {v.variant for v in everybody}  # the reference voice is nobody's


@pytest.mark.slow
def test_every_variant_of_the_table_exists():
    """espeak-ng takes an unknown variant for no variant at all: a voice is there when it sounds unlike the plain one."""
    for split in ("train", "dev", "test"):
        for voice in speakers("en", split):
            plain = Voice("plain", "en-us", "", voice.rate, voice.pitch, voice.range)
            assert digest(speak("hello", voice)) != digest(speak("hello", plain)), voice.variant


@pytest.mark.parametrize(("where", "known"), [(("fr", "train"), "it has en, zh"), (("en", "valid"), "it has train, dev, test")])
def test_an_unknown_language_or_split_names_the_known(where, known):
    with pytest.raises(InputError, match=known):
        speakers(*where)


def test_a_phone_without_time_of_its_own_is_said():
    spoken = speak("a hill", Voice("v", "en-us", "m3"))
    assert "l" not in [p.text for p in spoken.phones] and [p for p in spoken.all_phones if p != "_"] == ["a#", "h", "I", "l"]


def test_words_are_pronounced_one_by_one_without_a_sound():
    there, their, nothing, owl = pronounce(["there", "their", "", "owl"], "en-us")
    assert there == their and there[0] == "D" and nothing == [] and owl == pronounce(["owl"], "en-us")[0] != there
    with pytest.raises(ValueError, match="no voice 'xx'"):
        pronounce(["a"], "xx")


def test_a_word_from_its_phones_sounds_like_the_word() -> None:
    voice = Voice("x", "en-us", "m3")
    (phones,) = pronounce(["garden"], "en-us", stress=True)
    assert any(phone.startswith("'") for phone in phones) and pronounce(["garden"], "en-us")[0] == [p.lstrip("'") for p in phones]
    assert speak_phones(phones, voice).samples.tolist() == speak("garden", voice).samples.tolist()
    other = speak_phones(["k", *phones[1:]], voice)
    assert other.all_phones[0] == "k" and other.all_phones[1:] == speak("garden", voice).all_phones[1:]
