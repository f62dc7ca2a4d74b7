"""The error model of a recogniser: simulated errors have the rate that was asked for and the shares
of the fit, and those at a low rate are among those at a higher one."""

import math
import random
from pathlib import Path

import pytest

from recipes.minisqa.confusions import (
    Confusions,
    Edit,
    count_errors,
    fit_confusions,
    reference_words,
    spell_words,
    time_edits,
)
from speechssl.data.records import Passage, Span
from speechssl.errors import InputError
from speechssl.metrics import word_error_rate

EASY = "the of in is at was and a it by".split()
HARD = [
    f"{a}{b}{c}"
    for a in ("bar", "cor", "del", "fen", "gol")
    for b in ("mi", "to", "ra", "lu")
    for c in ("n", "ck", "sh", "lt")
]


def make_text(words, seed):
    """Make a text, half of easy and half of hard words."""
    rng = random.Random(seed)
    return " ".join(rng.choice(EASY if rng.random() < 0.5 else HARD) for _ in range(words))


def mishear(reference, rng):
    """Take a letter from a third of the hard words, delete a tenth of the easy ones, and insert
    "uh"."""
    recognised = []
    for word in reference.split():
        if word in EASY and rng.random() < 0.1:
            continue
        letter = rng.randrange(len(word))
        if word in HARD and rng.random() < 0.33:
            word = word[:letter] + word[letter + 1 :]
        recognised.append(word)
        if rng.random() < 0.03:
            recognised.append("uh")
    return " ".join(recognised)


@pytest.fixture(scope="module")
def model():
    rng = random.Random(0)
    texts = [make_text(200, seed) for seed in range(20)]
    return fit_confusions([(text, mishear(text, rng)) for text in texts], "en")


@pytest.fixture(scope="module")
def references():
    return [make_text(250, f"test {i}") for i in range(40)]


def simulate_words(model, words, wer, texts):
    """Simulate errors in several texts of the same words; return the words of all."""
    simulated = []
    for i in range(texts):
        simulated += [edit.word for edit in model.simulate(words, wer, f"p{i}")]
    return simulated


@pytest.mark.parametrize("wer", [0.05, 0.3, 0.6])
def test_simulated_errors_have_the_rate_asked_for_and_the_shares_of_the_fit(model, references, wer):
    simulated = []
    for i, text in enumerate(references):
        edits = model.simulate(spell_words(text, "en"), wer, f"p{i}")
        simulated.append(" ".join(edit.word for edit in edits))
    assert word_error_rate(references, simulated).rate == pytest.approx(wer, abs=0.01)
    rates = count_errors(list(zip(references, simulated, strict=True)), "en")
    for kind in ("substituted", "deleted", "inserted"):
        share = getattr(rates, kind) / rates.wer
        share_of_fit = getattr(model.rates, kind) / model.rates.wer
        assert share == pytest.approx(share_of_fit, abs=0.04)


def test_a_known_word_is_taken_for_its_confusions_and_an_unknown_one_for_similar_ones(model):
    simulated = simulate_words(model, ["barmin"] * 50, wer=0.4, texts=10)
    wrong = [word for word in simulated if word not in ("barmin", "uh")]
    confusions = model.words["barmin"].taken_for
    assert sum(word in confusions for word in wrong) > len(wrong) / 3
    simulated = simulate_words(model, ["barminx"] * 50, wer=0.5, texts=10)
    wrong = [word for word in simulated if word not in ("barminx", "uh")]
    assert set(wrong) <= set(model.vocabulary)
    similar = [word for word in wrong if "arm" in word or word.startswith("bar")]
    assert len(similar) > len(wrong) / 2


def test_words_that_are_right_at_a_high_rate_are_right_at_a_lower_one(model, references):
    words = spell_words(references[0], "en")
    right = {}
    for wer in (0.1, 0.4):
        edits = model.simulate(words, wer, "p")
        right[wer] = {edit.position for edit in edits if edit.word == words[edit.position]}
    assert right[0.4] < right[0.1]


def test_words_with_errors_share_the_time_of_their_reference_word_by_letters():
    spans = (Span("the", 0.0, 1.0), Span("boat", 1.0, 2.0), Span("sails", 2.0, 4.0))
    words = time_edits([Edit("a", 0), Edit("sailsxx", 2), Edit("uhh", 2)], spans)
    border = pytest.approx(3.4)  # 7 of 10 letters of the two seconds from 2
    expected = [("a", 0, 1), ("sailsxx", 2, border), ("uhh", border, 4)]
    assert [(w.text, w.start, w.end) for w in words] == expected


def test_words_of_a_reference_share_the_time_of_its_timed_words_or_have_none():
    timed = (Span("Mother-in-law,", 0.0, 1.1), Span("--", 1.1, 1.2), Span("sails.", 2.0, 3.0))
    words = reference_words(Passage("p", language="en", words=timed))
    expected = [("mother", 0, 0.6), ("in", 0.6, 0.8), ("law", 0.8, 1.1), ("sails", 2, 3)]
    assert [(w.text, round(w.start, 2), round(w.end, 2)) for w in words] == expected

    words = reference_words(Passage("p", text="The boat sails.", language="en"))
    assert [word.text for word in words] == ["the", "boat", "sails"]
    assert math.isnan(words[0].start)


@pytest.mark.slow
def test_a_chinese_character_that_the_fit_has_not_seen_is_taken_for_one_that_sounds_alike():
    pytest.importorskip("pypinyin")
    sounds_alike = {"是": "事", "市": "式", "城": "成", "人": "仁", "在": "再"}
    text = "是市城人在" * 40
    recognised = ""
    for i, character in enumerate(text):
        recognised += sounds_alike[character] if i % 4 == 0 else character
    # more characters that can be recognised, of which 公 alone sounds like 工, which is not seen
    vocabulary = "公山水天地大小"
    pairs = [(text + vocabulary, recognised + vocabulary), *[(text, recognised)] * 4]
    simulated = simulate_words(fit_confusions(pairs, "zh"), ["工"] * 10, wer=0.5, texts=30)
    assert set(simulated) == {"工", "公"}
    assert simulated.count("公") > 100  # of 300, a half of which err


@pytest.mark.parametrize(
    "options", [{"split": "verified_test"}, {"split": "dev", "test": "dev"}, {"rates": (81.0,)}]
)
def test_the_test_split_and_impossible_rates_are_refused(options):
    with pytest.raises(InputError):
        Confusions(corpus=Path("corpus"), out=Path("out"), **options)
