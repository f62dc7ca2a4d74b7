"""Texts read aloud: every token of the text has its time."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from speechssl.audio import SAMPLE_RATE
from speechssl.data.records import Answer
from speechssl.synth.espeak import Voice
from speechssl.synth.minisqa import speakers
from speechssl.synth.speak import LONGEST, Reading, occurrences, read_aloud, timed

pytest.importorskip("espeakng_loader", reason='the synthesiser needs: pip install "speechssl[synth]"')

VOICES = {language: speakers(language, "dev")[0] for language in ("en", "zh")}
PIECES = [
    "the",
    "of",
    "i",
    "1990",
    "$5",
    "Dr.",
    "—",
    ",",
    "x/y",
    "U.S.",
    "中",
    "國",
    "兒",
    "，",
    "。",
    "\n",
    "?",
    "é",
    "ж",
    "\u200b",
    "😀",
]
TEXTS = st.one_of(st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join), st.text(max_size=40))


def read(text, language="en"):
    return read_aloud(text, VOICES[language], language)


def times(reading):
    return {w.text: (w.start, w.end) for w in reading.words}


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.sampled_from(["en", "zh"]))
@example("!!! ... here", "en")
@example("兄。ABC、", "zh")
def test_words_are_those_of_the_text_in_order_and_inside_the_audio(text, language):
    try:
        reading = read(text, language)
    except ValueError:
        return
    words = reading.words
    assert "".join(w.text for w in words) == "".join(text.split())
    assert language == "zh" or [w.text for w in words] == text.split()
    edges = [t for w in words for t in (w.start, w.end)]
    assert edges == sorted(edges) and edges[0] >= 0 and edges[-1] <= reading.seconds
    assert len(words) == len(reading.offsets) == len(reading.said)
    assert all(w.start == w.end for w, said in zip(words, reading.said, strict=True) if not said)


def test_a_number_lasts_as_long_as_it_is_said():
    found = times(read("1999年的人 , 他有25%。", "zh"))
    assert found["1999"][1] - found["1999"][0] > 2 * (found["人"][1] - found["人"][0])
    english = times(read("it was 1999 then"))
    assert english["1999"][1] - english["1999"][0] > 2 * (english["was"][1] - english["was"][0])
    assert english["1999"][1] <= english["then"][0]


def test_words_are_where_there_is_sound():
    reading = read("One here, two there. Three, four!\nfive")
    sound = np.zeros(len(reading.samples), bool)
    for word in reading.words:
        sound[round(word.start * SAMPLE_RATE) : round(word.end * SAMPLE_RATE)] = True
    energy = reading.samples**2
    assert energy[sound].sum() > 0.99 * energy.sum() and sound.mean() < 0.9


def test_word_times_agree_with_a_word_read_alone():
    """The last word of a sentence sounds the same and is as long, whatever sentences came before."""
    alone, after = read("banana."), read("Mr. Smith has 25 $ here. banana.")
    assert times(after)["banana."][1] - times(after)["banana."][0] == pytest.approx(times(alone)["banana."][1], abs=1e-6)
    size = len(alone.samples)
    assert np.abs(after.samples[-size + 400 :] - alone.samples[400:]).max() < 0.05  # resampled from another phase


def test_a_long_sentence_is_read_whole_and_in_order():
    text = ", ".join(f"word number {i}" for i in range(400))
    reading = read(text)
    lengths = [w.end - w.start for w in reading.words if w.text == "number"]
    assert len(text) > 15 * LONGEST and len(lengths) == 400 and min(lengths) > 0.1 and max(lengths) < 2 * min(lengths)
    assert reading.words[-1].end == pytest.approx(reading.seconds, abs=0.6)


def test_the_same_voice_says_the_same():
    first, again = (read("你好，iPhone 15。", "zh") for _ in range(2))
    assert np.array_equal(first.samples, again.samples) and first.words == again.words


@pytest.mark.parametrize(("text", "why"), [("", "empty"), (" \n", "empty"), ("—", "nothing"), ("中文", "nothing")])
def test_what_cannot_be_said_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        read(text)


@pytest.mark.parametrize("letter", "儿兒雄兄瓊窮炯匈龍龙灣湾髮发䶮龘鑫")
def test_characters_have_mandarin_syllables(letter):
    from speechssl.synth.espeak import speak
    from speechssl.synth.normalise import normalise

    spoken = speak(normalise(letter, "zh")[0].spoken, Voice("x", "cmn", ""))
    assert "(en)" not in spoken.said and 0.1 < len(spoken.samples) / spoken.sample_rate < 1.2


@pytest.mark.parametrize("pair", ["灣湾", "國国", "龍龙", "語语", "學学", "醫医", "過过", "這这"])
def test_traditional_characters_sound_as_simplified_ones(pair):
    one, other = (read(c, "zh").samples for c in pair)
    assert np.array_equal(one, other)


# ---- answers


TEXT = "The art of the party. He had 25 $ and art, 1990s."


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer("art", char_start=4), ("art",)),
        (Answer("party"), ("party.",)),
        (Answer("party", char_start=3), ("party.",)),  # an offset that does not hold it
        (Answer("25 $ and", char_start=29), ("25", "and")),
        (Answer("1990", char_start=43), ("1990s.",)),
    ],
)
def test_answers_have_the_times_of_their_words(answer, words):
    reading = read(TEXT)
    (start, end), why = timed(answer, TEXT, reading, "en")
    spans = {w.text: w for w in reading.words}
    assert why == "" and (start, end) == (round(spans[words[0]].start, 5), round(spans[words[-1]].end, 5))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer("art"), "several"),
        (Answer("cat"), "do not occur"),
        (Answer(" "), "empty"),
        (Answer("art", char_start=17), "several"),
    ],
)
def test_answers_without_a_place_have_no_time(answer, why):
    times, reason = timed(answer, TEXT, read(TEXT), "en")
    assert times is None and why in reason


def test_an_answer_of_which_nothing_is_said_has_no_time():
    assert timed(Answer("Παρά"), "so Παρά said", read("so Παρά said"), "en") == (None, "answers of which nothing can be said")
    assert read("so Παρά said — x").unsaid == 1


def test_occurrences():
    assert occurrences("aa baa aa", "aa", "en") == [0, 7] and occurrences("好好好", "好好", "zh") == [0, 1]


def test_a_reading_knows_its_length():
    assert Reading(np.zeros(SAMPLE_RATE, np.float32), (), (), ()).seconds == 1
