"""Test --speak: texts that are read aloud with the time of every token, corpora that get audio, and
what is spoken for written tokens."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from speechssl.artifacts import read_json, write_json
from speechssl.audio import SAMPLE_RATE, read_audio, write_flac
from speechssl.data.options import SpokenQA
from speechssl.data.prepare import PrepareReport, SplitRecords, write_corpus
from speechssl.data.records import Answer, Passage, Question, Span, load_corpus
from speechssl.synth.minisqa import list_split_voices
from speechssl.synth.speak import (
    choose_voice_split,
    normalise,
    read_aloud,
    speak_drafts,
    time_answer,
)
from speechssl.synth.synthesisers import Spoken, Voice

from ..files import read_lines

pytest.importorskip(
    "espeakng_loader", reason='the synthesiser needs: pip install "speechssl[synth]"'
)

VOICES = {language: list_split_voices(language, "dev")[0] for language in ("en", "zh")}
TOKENS = [*"the of i 1990 $5 Dr. — , x/y U.S. 中 國 兒 ， 。 ? é ж 😀".split(), "\n", "\u200b"]
TEXTS = st.one_of(
    st.lists(st.sampled_from(TOKENS), max_size=25).map(" ".join), st.text(max_size=40)
)


def read(text, language="en"):
    """Read a text aloud."""
    return read_aloud(text, VOICES[language], language)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(TEXTS, st.sampled_from(["en", "zh"]))
@example("!!! ... here", "en")
@example("兄。ABC、", "zh")
def test_words_are_those_of_the_text_and_their_times_are_in_order(text, language):
    try:
        reading = read(text, language)
    except ValueError:  # nothing in the text can be spoken
        return
    words = reading.words
    assert "".join(w.text for w in words) == "".join(text.split())
    assert language == "zh" or [w.text for w in words] == text.split()
    edges = [t for w in words for t in (w.start, w.end)]
    assert edges == sorted(edges)
    assert edges[0] >= 0
    assert edges[-1] <= reading.seconds
    assert len(reading.offsets) == len(words)
    for word, is_spoken in zip(words, reading.spoken, strict=True):
        assert is_spoken or word.start == word.end


LINES = "The art of the party. He had 25 $ and art, 1990s. So Παρά said."


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer("art", char_start=4), ("art",)),
        (Answer("party"), ("party.",)),
        (Answer("party", char_start=3), ("party.",)),  # a wrong offset
        (Answer("25 $ and", char_start=29), ("25", "and")),
        (Answer("1990", char_start=43), ("1990s.",)),
    ],
)
def test_answers_have_the_times_of_their_words(answer, words):
    reading = read(LINES)
    times, why = time_answer(answer, LINES, reading, "en")
    spans = {w.text: w for w in reading.words}
    assert why == ""
    assert times == (round(spans[words[0]].start, 5), round(spans[words[-1]].end, 5))


TEXT = "Rome fell in 476. It was not built in a day; it fell in 1 day."


def passage(name="p", text=TEXT, language="en", **fields):
    """Make a passage without audio."""
    return Passage(name, text=text, language=language, **fields)


def question(name="q", about="p", text="When did Rome fall?", language="en", **fields):
    """Make a question without audio. about: id of its passage."""
    return Question(name, about, text=text, language=language, **fields)


def make_records():
    """Make an English and a Chinese passage, a question with answers, one with options, and one in
    Chinese."""
    answers = [Answer("476", char_start=TEXT.index("476"))]
    answers += [Answer(text) for text in ("fell", "Rome", "Carthage")]
    choice = question("c", options=("in 476", "never"), correct=(0,))
    chinese = passage("z/1", "", "zh", transcript="羅馬在476年滅亡。")
    chinese_question = question("q-z", about="z/1", text="何時？", language="zh-TW")
    questions = [question(answers=tuple(answers)), choice, chinese_question]
    return SplitRecords([passage(), chinese], questions)


def prepare(out, by_split, **options):
    """Speak the records of every split, and write the corpus. Returns the data report, and the
    spoken records."""
    report = PrepareReport("tried")
    write_json(out / "settings.json", {"corpus": "tried", "source": "here"})
    for split, drafts in by_split.items():
        report.count(split, "passages", len(drafts.passages))
        report.count(split, "questions", len(drafts.questions))
    o = SpokenQA(source=Path(), out=out, workers=1, **options)
    spoken = speak_drafts(o, by_split, report)
    return write_corpus(out, spoken, report, {}), spoken


@pytest.fixture(scope="module")
def spoken_corpus(tmp_path_factory):
    """The folder of a corpus of two splits that were spoken."""
    out = tmp_path_factory.mktemp("spoken") / "corpus"
    prepare(out, {"train": make_records(), "test-noisy": make_records()})
    return out


def test_every_record_has_audio_by_another_voice_than_its_passage_and_split(spoken_corpus):
    voices = {}
    for split in ("train", "test-noisy"):
        corpus = load_corpus(spoken_corpus, split)
        voices[split] = {r.speaker for r in corpus.records}
        assert all(q.speaker != corpus.passages[q.passage].speaker for q in corpus.questions)
        for record in corpus.records:
            assert record.synthetic
            assert record.speaker
            assert len(read_audio(corpus.path(record))) == round(record.seconds * SAMPLE_RATE)
            assert "".join(w.text for w in record.words) == "".join(record.written.split())
    assert not voices["train"] & voices["test-noisy"]
    splits = ("Train-tts", "validation", "verified_test")
    assert [choose_voice_split(split) for split in splits] == ["train", "dev", "test"]
    options = corpus.questions[1].option_audio
    assert [len(read_audio(spoken_corpus / audio)) > 4000 for audio in options] == [True, True]
    assert read_json(spoken_corpus / "card.json")["synthetic"] == (
        "4 of 4 passages, 6 of 6 questions and 4 of 4 options spoken by espeak-ng"
    )
    transcript = corpus.passages["z/1"]  # spoken where there is no text
    assert transcript.text == ""
    assert [w.text for w in transcript.words[:4]] == ["羅", "馬", "在", "476"]


def test_records_with_audio_are_left_alone(tmp_path):
    file = tmp_path / "real.flac"
    write_flac(file, np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE).astype(np.float32))
    audio = {"audio": str(file), "seconds": 1.0}
    real = replace(passage(), **audio, speaker="her", words=(Span("Rome", 0, 1),))
    answered = question(answers=(Answer("Rome", 0.0, 1.0, 0),))
    recorded = replace(answered, id="recorded", **audio, speaker="him")
    optioned = replace(recorded, id="optioned", options=("yes", "no"), correct=(0,))
    drafts = SplitRecords([real], [answered, recorded, optioned])
    _, spoken = prepare(tmp_path / "out", {"dev": drafts})
    assert spoken["dev"].passages == [real]
    first, second, choice = spoken["dev"].questions
    assert first.synthetic
    assert first.answers == answered.answers
    assert second == recorded
    assert (choice.audio, choice.speaker, choice.synthetic) == (recorded.audio, "him", True)
    assert len(choice.option_audio) == 2
    load_corpus(tmp_path / "out", "dev")


def test_records_that_cannot_be_spoken_are_set_aside(tmp_path):
    texts = {"p": "Rome (Ρώμη) fell.", "empty": "", "greek": "Ρώμη"}
    passages = [passage(name, text) for name, text in texts.items()]
    passages.append(passage("german", "Rom", "de"))
    questions = [question(), question("none", text=" "), question("de", language="de")]
    questions += [question(f"about-{name}", name) for name in ("empty", "german")]
    questions.append(question("blank", options=("yes", ""), correct=(0,)))
    report, spoken = prepare(tmp_path, {"dev": SplitRecords(passages, questions)})
    reasons = {line["id"]: line["reason"] for line in read_lines(tmp_path / "set_aside.jsonl")}
    assert [p.id for p in spoken["dev"].passages] == ["p"]
    assert [q.id for q in spoken["dev"].questions] == ["q"]
    assert set(reasons) == {r.id for r in (*passages, *questions)} - {"p", "q"}
    assert report["splits"]["dev"]["passages"] == {"read": 4, "kept": 1, "set_aside": 3}


def test_a_part_sounds_like_the_whole_and_a_seed_changes_the_voices(spoken_corpus, tmp_path):
    records = make_records()
    one = SplitRecords(records.passages[:1], records.questions[1:2])
    prepare(tmp_path / "slice", {"train": one})
    names = ["train/spoken/passages/p.flac", "train/spoken/questions/c.option-1.flac"]
    for name in names:
        assert (tmp_path / "slice" / name).read_bytes() == (spoken_corpus / name).read_bytes()
    _, other = prepare(tmp_path / "other", {"train": one}, seed=5)
    assert (
        other["train"].passages[0].speaker
        != load_corpus(spoken_corpus, "train").passages["p"].speaker
    )


# ---- what is spoken for written tokens


def spoken_text(text, language):
    """Return the text that the synthesiser gets."""
    return " ".join(f"{w.spoken}{w.pause}" for w in normalise(text, language) if w.spoken)


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        (
            "$25 million, or 25 $ (3.5%) .",
            "twenty five million dollars, or twenty five dollars three point five percent,",
        ),
        ("the 1990s, the 19th century", "the nineteen nineties, the nineteenth century"),
        ("Dr. Smith vs. the U.S. e.g. here", "doctor Smith versus the U S for example here"),
        ("St. Louis is no. Really", "saint Louis is no. Really"),
        ("World War II 1914-1918", "World War two nineteen fourteen to nineteen eighteen"),
        (
            "co2 in8 X.25 .5 1973's",
            "co two in eight X twenty five zero point five nineteen seventy three's",
        ),
        ("this—of −4 3—4", "this of minus four three four"),
        ("α-helix A&B 10:30 1,024", "alpha helix A and B ten thirty one thousand twenty four"),
        ("“don’t” rock'n'roll café Şile", "don't rock'n'roll café Sile"),
        ("Παρά 中文 😀 \u200bzero\u200b x", "zero x"),
        ("um ,  , well", "um well"),
        ("<b> ---", "less than b greater than"),
        ("١٢٣", "one hundred twenty three"),
        ("½ 5½ 2¾ ⅔", "one half five and one half two and three quarters two thirds"),
        ("10² 10¹² x²", "ten two ten twelve x two"),
        (
            "$1 $1.50 50%-60%",
            "one dollar one point five zero dollars fifty percent to sixty percent",
        ),
        ("", ""),
    ],
)
def test_english_tokens_are_spelled_out(written, spoken):
    assert spoken_text(written, "en") == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("1990年", "一九九零 年"),
        ("25.5%的人", "百分之二十五点五 的 人"),
        ("1,234元，10-20個", "一千二百三十四 元 十到二十 個"),
        ("用iPhone和DNA。", "用 iPhone 和 DNA"),
        ("３．５％", "百分之三点五"),
        ("3500年前3/4", "三千五百 年 前 四分之三"),
        ("10℃ 3:2 𠀀あ", "十 摄氏度 三比二"),
        ("二〇〇三年，一九九○年，○", "二 零零 三 年 一 九 九 零 年"),
        ("1990-1995年 1990-1995人", "一九九零到一九九五 年 一千九百九十到一千九百九十五 人"),
        ("½ 5½ 10² ١٢年", "二分之一 五又二分之一 十 二 十二 年"),
    ],
)
def test_mandarin_tokens_are_spelled_out(written, spoken):
    assert " ".join(w.spoken for w in normalise(written, "zh") if w.spoken) == spoken


@pytest.mark.parametrize(
    ("engine", "spoken"), [("espeak-ng", "其顒而，西擁。"), ("kokoro", "窮兒，兄。")]
)
def test_characters_that_espeak_ng_misreads_are_replaced_for_it_alone(engine, spoken, monkeypatch):
    texts = []

    def speak(text, voice):
        texts.append(text)
        return Spoken(np.zeros(1600, np.int16), 16_000, (), ())

    monkeypatch.setattr("speechssl.synth.speak.speak", speak)
    read_aloud("窮兒，兄。", Voice("x", "cmn", "m3", engine=engine), "zh")
    assert texts == [spoken]


def test_sentences_end_at_marks_and_line_breaks_but_not_at_abbreviations():
    text = "Mr. J. Smith, of the U.S. Army, left... He did! Did he?\nno stop here\nlast"
    assert [w.text for w in normalise(text, "en") if w.ends_sentence] == [
        "left...",
        "did!",
        "he?",
        "here",
    ]
    ends = [w.text for w in normalise("他說：「好。」然後？走了；", "zh") if w.ends_sentence]
    assert ends == ["。」", "？", "；"]
