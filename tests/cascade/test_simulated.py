"""Text QA on simulated errors: times are shared, unknown times stay unknown, and wrong records are reported."""

import math
import shutil

import pytest

from speechssl.cascade.confusions import Confusions, Rates, Word, write_confusions
from speechssl.cascade.system import parse_rate, reference_words, simulated_words, timed_edits
from speechssl.data.records import Passage, Span
from speechssl.errors import InputError
from speechssl.io import model_folder
from speechssl.systems import load_systems

MODEL = Confusions("en", {"the": Word(9, 1, {"a": 2})}, {"uh": 1}, {"a": 3, "the": 6, "boat": 2}, (0.5,), Rates(0.2, 0.1, 0.1))
SPANS = (Span("the", 0.0, 1.0), Span("boat", 1.0, 2.0), Span("sails", 2.0, 4.0))


def passage(**changes):
    values = {"id": "p", "audio": "", "seconds": 0.0, "text": "The boat sails.", "speaker": "s", "language": "en"}
    return Passage(**values | changes)


def test_a_word_keeps_its_time_and_an_inserted_one_shares_that_of_the_word_before():
    words = timed_edits([("a", 0), ("sailsxx", 2), ("uhh", 2)], SPANS)
    assert [(w.text, w.start, w.end) for w in words] == [
        ("a", 0, 1),
        ("sailsxx", 2, pytest.approx(3.4)),
        ("uhh", pytest.approx(3.4), 4),
    ]


def test_words_are_spelt_and_those_that_are_several_share_their_time():
    found = reference_words(passage(words=(Span("Mother-in-law,", 0.0, 1.1), Span("--", 1.1, 1.2), Span("sails.", 2.0, 3.0))))
    assert [(s.text, round(s.start, 2), round(s.end, 2)) for s in found] == [
        ("mother", 0, 0.6), ("in", 0.6, 0.8), ("law", 0.8, 1.1), ("sails", 2, 3),
    ]  # fmt: skip


def test_without_times_there_are_none():
    found = reference_words(passage())
    assert [s.text for s in found] == ["the", "boat", "sails"] and all(math.isnan(s.start) and math.isnan(s.end) for s in found)


def test_the_rate_is_in_the_name():
    assert [parse_rate(f"cascade-simulated@{x}") for x in ("30", "2.5", "80")] == pytest.approx([0.3, 0.025, 0.8])
    for name in ("", "@", "@x", "@0", "@81", "@nan"):
        with pytest.raises(InputError, match="has no word error rate"):
            parse_rate(f"cascade-simulated{name}")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    path = tmp_path_factory.mktemp("errors") / "confusions.json"
    write_confusions(path, MODEL, {})
    (system,) = load_systems(model_folder("people-en"), ["cascade-simulated@30"], errors=path, seed=3)
    return system


@pytest.mark.slow
def test_the_system_reads_and_answers_in_seconds(loaded):
    assert loaded.name == "cascade-simulated@30" and not loaded.needs_audio and loaded.card["seed"] == 3
    encoded = loaded.encode(passage(words=SPANS * 5), None)
    assert encoded == loaded.encode(passage(words=SPANS * 5), None)
    (answer,) = loaded.answer_all([(loaded.encode(passage(id="q", words=SPANS), None), encoded)])
    assert 0 <= answer.start < answer.end <= 4 and answer.text
    with pytest.raises(ValueError, match="reads the text of a corpus"):
        loaded.encode(None, None)


@pytest.mark.parametrize(("changes", "message"), [({"text": ""}, "no reference text"), ({"language": "zh"}, "fitted on 'en'")])
def test_records_that_cannot_be_read_are_reported(loaded, changes, message):
    with pytest.raises(ValueError, match=message):
        loaded.encode(passage(**changes), None)


@pytest.mark.parametrize("language", ["cmn", "zh-TW", "CMN-Hant", "zh"])
def test_errors_of_mandarin_are_for_all_that_is_mandarin(language):
    fitted = Confusions("zh", {"北": Word(9, 0, {"背": 2})}, {}, {"北": 6, "背": 3}, (0.5,), Rates(0.2, 0.0, 0.0))
    encoded = simulated_words(fitted, 0.3, 3, passage(text="台北", language=language))
    assert len(encoded.text) == 2 and encoded.separator == ""


def test_errors_that_were_not_fitted_are_asked_for():
    with pytest.raises(InputError, match=r"confusions\.json, which does not exist; fit it with"):
        load_systems(model_folder("people-en"), ["cascade-simulated@30"])


@pytest.mark.slow
def test_a_smaller_recogniser_has_its_own_name(tmp_path):
    folder = shutil.copytree(model_folder("people-en"), tmp_path / "models")
    shutil.copytree(folder / "ctc", folder / "ctc-small")
    assert [s.name for s in load_systems(folder, ["cascade-ctc", "cascade-ctc-small"])] == ["cascade-ctc", "cascade-ctc-small"]
    with pytest.raises(InputError, match="has no ctc-tiny/"):
        load_systems(folder, ["cascade-ctc-tiny"])
