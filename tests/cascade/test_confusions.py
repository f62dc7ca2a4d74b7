"""Simulated recognition errors: as many as asked for, of the kinds of the fit, nested in each
other, and whole on disk."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.cascade.confusions import (
    ConfusionModel,
    Rates,
    WordConfusions,
    counted,
    fit_confusions,
    read_confusions,
    spelt_words,
    write_confusions,
)
from speechssl.metrics import word_error_rate

from ..files import change_json, refused

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
        " ".join(w for w, _ in model.simulate(spelt_words(t, "en"), wer, f"p{i}"))
        for i, t in enumerate(references)
    ]
    assert word_error_rate(references, simulated).rate == pytest.approx(wer, abs=0.01)
    found = counted(list(zip(references, simulated, strict=True)), "en")
    for kind in ("substituted", "deleted", "inserted"):
        assert getattr(found, kind) / found.wer == pytest.approx(
            getattr(model.rates, kind) / model.rates.wer, abs=0.04
        )


def test_what_comes_in_does_not_change_what_a_word_is_taken_for(model):
    """ "drawn" was once taken for the name under which the words to insert are kept."""
    fresh = replace(model, cache={})
    fresh.simulate(EASY * 50, 0.6, "insertions")
    assert fresh.simulate(["drawn"] * 20, 0.6, "p") == replace(model, cache={}).simulate(
        ["drawn"] * 20, 0.6, "p"
    )


def test_words_that_were_misheard_often_are_misheard_more_often(model, references):
    words = [w for t in references for w in spelt_words(t, "en")]
    kept = {i for spoken, i in model.simulate(words, 0.2, "p") if spoken == words[i]}
    hard, easy = ([i in kept for i, w in enumerate(words) if w in some] for some in (HARD, EASY))
    assert sum(hard) / len(hard) < sum(easy) / len(easy) - 0.1


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
    words = spelt_words(references[0], "en")
    low, high = (
        {i for spoken, i in model.simulate(words, wer, "p") if spoken == words[i]}
        for wer in (0.1, 0.4)
    )
    assert high < low


@given(
    st.lists(st.sampled_from([*EASY, *HARD, "unheard"]), max_size=30),
    st.floats(0.01, 0.8),
    st.integers(0, 3),
)
def test_what_is_said_follows_the_words_and_the_same_seed_says_the_same(words, wer, seed):
    model = ConfusionModel(
        "en",
        {"the": WordConfusions(9, 1, {"a": 2})},
        {"uh": 1},
        {"a": 3, "the": 6},
        (0.5,),
        Rates(0.2, 0.1, 0.1),
    )
    edits = model.simulate(words, wer, "p", seed)
    places = [i for _, i in edits]
    assert places == sorted(places) and set(places) <= set(range(len(words)))
    assert edits == model.simulate(words, wer, "p", seed)


def test_the_seed_and_the_name_of_a_text_decide_and_rates_out_of_range_are_refused(
    model, references
):
    words = spelt_words(references[0], "en")
    assert (
        model.simulate(words, 0.3, "p", 0)
        != model.simulate(words, 0.3, "p", 1)
        != model.simulate(words, 0.3, "q", 1)
    )
    for wer in (0.0, -0.1, 0.81, float("nan")):
        refused("cannot be simulated", model.simulate, ["the"], wer, "p")


@pytest.mark.slow
def test_chinese_errs_by_character():
    rng = random.Random(0)
    characters = "臺北市是一個大的城有很多人住在這裡山水天地"
    texts = ["".join(rng.choice(characters) for _ in range(300)) for _ in range(12)]
    outputs = [
        "".join(
            rng.choice(characters) if rng.random() < 0.2 else c for c in t if rng.random() > 0.05
        )
        for t in texts
    ]
    model = fit_confusions(list(zip(texts, outputs, strict=True)), "zh-TW")
    spoken = [
        "".join(w for w, _ in model.simulate(spelt_words(t, "zh"), 0.3, f"{i}"))
        for i, t in enumerate(texts)
    ]
    # of 3,600 characters
    assert word_error_rate(texts, spoken, "zh").rate == pytest.approx(0.3, abs=0.025)


def test_mandarin_is_what_the_rules_of_texts_call_so():
    assert spelt_words("臺北", "cmn-Hant") == spelt_words("臺北", "zh") == list("台北")
    refused("no text rules for the language 'zha'", spelt_words, "Vahcuengh", "zha")


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


@pytest.mark.slow
def test_fits_of_nothing_of_deletions_alone_and_of_an_empty_reference(monkeypatch):
    monkeypatch.setattr("speechssl.cascade.confusions._WORDS", 600)  # of the calibration
    refused("no error in 1 recognised texts", fit_confusions, [("the boat", "the boat")], "en")
    assert fit_confusions([("", "uh"), ("barmin", "armin")], "en").inserted == {"uh": 1}
    model = fit_confusions([("a red boat", "")], "en")
    spoken = [w for i in range(50) for w, _ in model.simulate(["red", "boat"], 0.4, f"p{i}")]
    assert set(spoken) == {"red", "boat"} and len(spoken) == pytest.approx(60, abs=12)


def test_a_model_survives_the_disk(model, tmp_path):
    path = tmp_path / "confusions.json"
    write_confusions(path, model, {"split": "dev"})
    words = spelt_words(text(100, 0), "en")
    assert read_confusions(path).simulate(words, 0.3, "p") == model.simulate(words, 0.3, "p")
    assert json.loads(path.read_text())["card"] == {"split": "dev"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "units"),
        ("words", {"the": 3}),
        ("words", {"the": [3, 0, {"a": 0}]}),
        ("words", {}),
        ("rates", [0.1, 0.1]),
        ("rates", [0, 0, 0]),
        ("calibration", [[0.1, [0.1, float("nan"), 0]]]),
        ("calibration", [[0.2, [0.1, 0, 0]], [0.1, [0.1, 0, 0]]]),
        ("vocabulary", None),
    ],
)
def test_damaged_models_are_named(model, tmp_path, name, value):
    path = tmp_path / "confusions.json"
    write_confusions(path, model, {})
    change_json(path, **{name: value})
    refused(r"confusions\.json is not a model", read_confusions, path)
