"""Slots as symbols, and their metrics equal to s3prl's on whatever is said."""

import random

import pytest

from speechssl.data.utterances import Slot
from speechssl.superb.tasks.transcription import marked_text, slot_symbols, slot_type_f1, slot_value_errors, slots_in

PLAY = "Play the new song by Madonna, please!"


def test_a_text_with_slots_becomes_symbols_and_a_marked_text():
    symbols = slot_symbols("fly to New York", [Slot("to city", "new york")])
    assert symbols == [*"fly", "|", *"to", "|", "B-to_city", *"new", "|", *"york", "E-to_city"]
    assert marked_text(symbols) == "fly to B-to_city new york E-to_city"
    marked = marked_text(slot_symbols(PLAY, [Slot("sort", "New song"), Slot("artist", "madonna")]))
    assert marked == "play the B-sort new song E-sort by B-artist madonna E-artist please"


def test_slots_are_found_in_the_order_of_speech():
    twice = [Slot("city", "rome"), Slot("city", "rome")]
    assert marked_text(slot_symbols("from rome to rome", twice)) == "from B-city rome E-city to B-city rome E-city"
    assert slot_symbols("", []) == []


@pytest.mark.parametrize("slots", [[Slot("a", "moon")], [Slot("a", "madonna"), Slot("b", "song")], [Slot("a", "")]])
def test_a_value_that_is_not_said_is_refused(slots):
    with pytest.raises(ValueError, match="does not occur"):
        slot_symbols(PLAY, slots)


def test_symbols_out_of_order_still_make_a_text():
    assert marked_text(["E-x", "|", "|", "a", "B-x", "B-x"]) == "E-x aB-x B-x"
    assert marked_text([]) == ""


def test_the_pattern_of_a_slot():
    assert slots_in("B-a one B-b two E-b E-a", True) == {"a": ["one two"]}
    assert slots_in("B-a one E-b", True) == {} and slots_in("B-a E-a", True) == {}
    assert slots_in("xB-a one E-ay B-a two  three E-a", False) == {"a": ["one", "two three"]}


def s3prls():
    pytest.importorskip("s3prl", reason="the optional extra s3prl is not installed")
    import sys
    import types

    from rapidfuzz.distance import Levenshtein

    from speechssl.encoders.s3prl import import_hub

    import_hub()
    stub = sys.modules.setdefault("editdistance", types.ModuleType("editdistance"))
    if not hasattr(stub, "eval"):  # a package that s3prl wants and does not install: the same distance
        stub.eval = Levenshtein.distance
    from s3prl.downstream.ctc import metric
    from s3prl.metric import slot_filling

    return slot_filling, metric


PIECES = ["B-city", "E-city", "B-city_name", "E-city_name", "B-x", "E-x", "rome", "new", "york", "a", "", " ", "E-", "B-"]


def random_marked(rng):
    return " ".join(rng.choice(PIECES) for _ in range(rng.randint(0, 12)))


def random_truth(rng):
    kinds = ["city", "x", "city_name"]
    parts = [rng.choice(["play", "to", f"B-{kind} {rng.choice(['rome', 'new york', 'a'])} E-{kind}"]) for kind in
             rng.choices(kinds, k=rng.randint(0, 5))]  # fmt: skip
    return " ".join(parts)


def damaged(rng, text):
    """The truth with some letters or markers lost, repeated or put elsewhere."""
    words = text.split(" ")
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(words))
        change = rng.choice(["drop", "repeat", "swap", "letter"])
        if change == "drop" and len(words) > 1:
            del words[at]
        elif change == "repeat":
            words.insert(at, words[at])
        elif change == "swap":
            words[at] = rng.choice(PIECES)
        else:
            words[at] += rng.choice("abc ")
    return " ".join(words)


@pytest.mark.parametrize("seed", range(6))
def test_metrics_are_s3prls_on_random_predictions(seed):
    rng, modules = random.Random(seed), s3prls()
    for _ in range(60):
        truth = [random_truth(rng) for _ in range(rng.randint(1, 8))]
        truth.append("B-x a E-x")  # theirs divides by the length of all values
        said = [random_marked(rng) if rng.random() < 0.4 else damaged(rng, text) for text in truth]
        pairs = list(zip(said, truth, strict=True))
        f1 = sum(slot_type_f1(*pair) for pair in pairs) / len(pairs)
        edits, characters = map(sum, zip(*(slot_value_errors(*pair) for pair in pairs), strict=True))
        for theirs in modules:
            assert f1 == pytest.approx(theirs.slot_type_f1(said, truth), abs=1e-12)
            assert edits / characters == pytest.approx(theirs.slot_value_cer(said, truth), abs=1e-12)


def test_odd_ones_are_s3prls_too():
    odd = [
        "",
        " ",
        "B-x",
        "E-x B-x",
        "B-x B-x a E-x",
        "B-x a E-x B-x a E-x",
        "B-x " + "a" * 500 + " E-x",
        "B-x a E-xy",
        "B-x E-x E-x",
    ]
    for said in odd:
        for truth in ["B-x a E-x", "no slots", "B-x a E-x B-x b c E-x B-y d E-y"]:
            for theirs in s3prls():
                assert slot_type_f1(said, truth) == pytest.approx(theirs.slot_type_f1([said], [truth]))
                edits, characters = slot_value_errors(said, truth)
                if characters:
                    assert edits / characters == pytest.approx(theirs.slot_value_cer([said], [truth]))


def test_texts_are_marked_as_s3prls_encoder_marks_them():
    s3prls()
    from s3prl.dataio.encoder.tokenizer import CharacterSlotTokenizer

    theirs = CharacterSlotTokenizer(list(" 'abcdefghijklmnopqrstuvwxyz"), ["B-sort", "E-sort", "B-artist", "E-artist"])
    text, iobs = "play the new song by madonna", "O O sort sort O artist"
    ours = marked_text(slot_symbols(text, [Slot("sort", "new song"), Slot("artist", "madonna")]))
    assert ours == theirs.decode(theirs.encode(text, iobs))
