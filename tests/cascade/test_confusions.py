"""Simulated recognition errors: in the order of the words, and whole on disk. Those of a fitted
model are tested with the fit, in tests/recipes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.cascade.confusions import (
    ConfusionModel,
    Rates,
    WordConfusions,
    read_confusions,
    spell_words,
    write_confusions,
)

from ..files import change_json, refused

MODEL = ConfusionModel(
    "en",
    {"the": WordConfusions(9, 1, {"a": 2})},
    {"uh": 1},
    {"a": 3, "the": 6},
    (0.5,),
    Rates(0.2, 0.1, 0.1),
)


@given(
    st.lists(st.sampled_from(["the", "a", "boat", "unheard"]), max_size=30),
    st.floats(0.01, 0.8),
    st.integers(0, 3),
)
def test_what_is_said_follows_the_words_and_the_same_seed_says_the_same(words, wer, seed):
    edits = MODEL.simulate(words, wer, "p", seed)
    places = [i for _, i in edits]
    assert places == sorted(places) and set(places) <= set(range(len(words)))
    assert edits == MODEL.simulate(words, wer, "p", seed)


@pytest.mark.parametrize("wer", [0.0, -0.1, 0.81, float("nan")])
def test_rates_out_of_range_are_refused(wer):
    refused("cannot be simulated", MODEL.simulate, ["the"], wer, "p")


def test_mandarin_is_what_the_rules_of_texts_call_so():
    assert spell_words("臺北", "cmn-Hant") == spell_words("臺北", "zh") == list("台北")
    refused("no text rules for the language 'zha'", spell_words, "Vahcuengh", "zha")


def test_a_model_survives_the_disk(tmp_path):
    path = tmp_path / "confusions.json"
    write_confusions(path, MODEL, {"split": "dev"})
    assert read_confusions(path) == MODEL
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
def test_damaged_models_are_named(tmp_path, name, value):
    path = tmp_path / "confusions.json"
    write_confusions(path, MODEL, {})
    change_json(path, **{name: value})
    refused(r"confusions\.json is not a model", read_confusions, path)
