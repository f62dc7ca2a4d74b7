"""The error model of a recogniser: simulated errors are as many as asked for, of the kinds of the
fit, and nested in each other; and the program that fits it."""

import math
import random
from pathlib import Path

import pytest

from recipes.minisqa.confusions import (
    Confusions,
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


def text(words, seed):
    rng = random.Random(seed)
    return " ".join(rng.choice(EASY if rng.random() < 0.5 else HARD) for _ in range(words))


def misheard(reference, rng):
    """Hard words lose a letter in a third of the cases, easy ones vanish in a tenth, and "uh" comes
    in."""
    spoken = []
    for word in reference.split():
        if word in EASY and rng.random() < 0.1:
            continue
        at = rng.randrange(len(word))
        spoken.append(word[:at] + word[at + 1 :] if word in HARD and rng.random() < 0.33 else word)
        spoken += ["uh"] if rng.random() < 0.03 else []
    return " ".join(spoken)


@pytest.fixture(scope="module")
def model():
    rng = random.Random(0)
    return fit_confusions([(t, misheard(t, rng)) for t in (text(200, i) for i in range(20))], "en")


@pytest.fixture(scope="module")
def references():
    return [text(250, f"test {i}") for i in range(40)]


@pytest.mark.parametrize("wer", [0.05, 0.3, 0.6])
def test_as_many_words_err_as_are_asked_for_in_the_shares_of_the_fit(model, references, wer):
    simulated = [
        " ".join(w for w, _ in model.simulate(spell_words(t, "en"), wer, f"p{i}"))
        for i, t in enumerate(references)
    ]
    assert word_error_rate(references, simulated).rate == pytest.approx(wer, abs=0.01)
    found = count_errors(list(zip(references, simulated, strict=True)), "en")
    for kind in ("substituted", "deleted", "inserted"):
        assert getattr(found, kind) / found.wer == pytest.approx(
            getattr(model.rates, kind) / model.rates.wer, abs=0.04
        )


def test_known_confusions_come_again_and_unknown_words_are_taken_for_similar_ones(model):
    known = dict(model.words["barmin"].taken_for)
    taken = [model.simulate(["barmin"] * 50, 0.4, f"p{i}") for i in range(10)]
    wrong = [w for some in taken for w, _ in some if w not in ("barmin", "uh")]
    assert sum(w in known for w in wrong) > len(wrong) / 3
    strange = [
        w
        for i in range(10)
        for w, _ in model.simulate(["barminx"] * 50, 0.5, f"p{i}")
        if w not in ("barminx", "uh")
    ]
    assert strange and set(strange) <= set(model.vocabulary)
    assert sum("arm" in w or w.startswith("bar") for w in strange) > len(strange) / 2


def test_errors_at_a_low_rate_are_among_those_at_a_higher_one(model, references):
    words = spell_words(references[0], "en")
    low, high = (
        {i for spoken, i in model.simulate(words, wer, "p") if spoken == words[i]}
        for wer in (0.1, 0.4)
    )
    assert high < low


def test_words_share_the_time_of_what_they_stand_for():
    spans = (Span("the", 0.0, 1.0), Span("boat", 1.0, 2.0), Span("sails", 2.0, 4.0))
    words = time_edits([("a", 0), ("sailsxx", 2), ("uhh", 2)], spans)
    border = pytest.approx(3.4)
    wanted = [("a", 0, 1), ("sailsxx", 2, border), ("uhh", border, 4)]
    assert [(w.text, w.start, w.end) for w in words] == wanted
    timed = (Span("Mother-in-law,", 0.0, 1.1), Span("--", 1.1, 1.2), Span("sails.", 2.0, 3.0))
    found = reference_words(Passage("p", "", 0.0, "", "s", "en", timed))
    wanted = [("mother", 0, 0.6), ("in", 0.6, 0.8), ("law", 0.8, 1.1), ("sails", 2, 3)]
    assert [(s.text, round(s.start, 2), round(s.end, 2)) for s in found] == wanted
    found = reference_words(Passage("p", "", 0.0, "The boat sails.", "s", "en"))
    assert [s.text for s in found] == ["the", "boat", "sails"] and math.isnan(found[0].start)


@pytest.mark.slow
def test_a_chinese_character_that_the_fit_has_not_seen_is_taken_for_one_that_sounds_alike():
    pytest.importorskip("pypinyin")
    alike = {"是": "事", "市": "式", "城": "成", "人": "仁", "在": "再"}
    texts = ["是市城人在" * 40] * 5
    outputs = ["".join(alike[c] if i % 4 == 0 else c for i, c in enumerate(t)) for t in texts]
    # words that may be said, too, of which one only sounds like the unseen 工
    outputs[0] += "公山水天地大小"
    texts[0] += "公山水天地大小"
    model = fit_confusions(list(zip(texts, outputs, strict=True)), "zh")
    spoken = [w for i in range(30) for w, _ in model.simulate(["工"] * 10, 0.5, f"{i}")]
    assert set(spoken) == {"工", "公"} and spoken.count("公") > 100


@pytest.mark.parametrize("options", [{"split": "verified_test"}, {"rates": (81.0,)}])
def test_the_test_split_and_impossible_rates_are_refused(options):
    with pytest.raises(InputError):
        Confusions(corpus=Path("corpus"), out=Path("out"), **options)
