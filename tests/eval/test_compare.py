"""Comparisons: paired on the same questions, symmetric, adjusted, and refused where questions or
data differ."""

import json

import numpy as np
import pytest

from speechssl.eval.compare import WER, compare, make_paired_tests, read_results
from speechssl.eval.crossings import describe_crossing, find_crossings, find_zero
from speechssl.eval.imported import import_predictions
from speechssl.eval.options import Predictions
from speechssl.eval.predict import read_items, write_items
from speechssl.report.comparison import run_comparison
from speechssl.report.options import Compare
from speechssl.results import read_rows

from ..files import refused, write_corpus

CLEAN = ("clean", None)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr("speechssl.eval.crossings.DRAWS", 100)


QUESTIONS, A_PASSAGE = 60, 3


def line(i, score, errors=None, metric="ff1", **changes):
    values = dict.fromkeys(("ff1", "aos", "em", "f1"))
    values |= {"id": f"q{i}", "passage": f"p{i // A_PASSAGE}", "type": ("person", "date")[i % 2]}
    values |= {"answer_seconds": 0.3 + 0.1 * (i % 10)}
    values |= {"passage_errors": errors, "passage_words": None if errors is None else 100}
    return values | {metric: score} | changes


def write(folder, system, lines, condition=CLEAN, **changes):
    """As `evaluate qa` leaves them."""
    name, snr = condition
    path = folder / "scores" / system / f"{name}{'' if snr is None else f'-{snr:g}-dB'}.parquet"
    card = {"corpus": "mini", "split": "test", "data": "0123", "synthetic": ""}
    card |= {"condition": name, "snr_db": snr, "system": system}
    write_items(path, lines, card | changes)
    return path


def scored(level, seed, errors=None, n=QUESTIONS):
    """Scores that scatter around a level. errors: of 100 words of every passage."""
    values = np.clip(np.random.default_rng(seed).normal(level, 0.1, n), 0, 1)
    return [line(i, float(v), errors) for i, v in enumerate(values)]


@pytest.fixture
def sweep(tmp_path):
    """A system at 0.5 whatever the noise, and a cascade that falls from 0.9 at a WER of 0 to 0.1 at
    80 %: they meet at 40 %."""
    for errors in (0, 30, 50, 80):
        system = "text" if errors == 0 else f"cascade-simulated@{errors}"
        write(tmp_path, system, scored(0.9 - errors / 100, errors, errors))
    write(tmp_path, "dual", scored(0.5, 1))
    return tmp_path


def comparison(out, *results, **options):
    """What is printed; tables.md, compare.html; and the corpora of compare.json."""
    printed = run_comparison(Compare(results=results, out=out, **options))
    corpora = json.loads((out / "compare.json").read_text(), parse_constant=pytest.fail)["corpora"]
    return printed, (out / "tables.md").read_text(), (out / "compare.html").read_text(), corpora


def test_swapping_two_systems_turns_the_sign(tmp_path):
    write(tmp_path, "a", scored(0.6, 0))
    write(tmp_path, "b", scored(0.5, 1))
    compared = compare(read_results([tmp_path]))
    (one,), (other,) = (make_paired_tests(compared, [pair])[0] for pair in (("a", "b"), ("b", "a")))
    assert one.difference.value == -other.difference.value == pytest.approx(10, abs=4)
    assert one.difference.p_value == other.difference.p_value < 0.01
    v, w = one.difference.interval, other.difference.interval
    assert (v.low, v.high) == pytest.approx((-w.high, -w.low))
    assert v.low > 0


@pytest.mark.parametrize(
    ("models", "names"),
    [
        (("people-en", "exp/models"), ("people-en", "exp/models")),
        (("people-en", "people-en"), ("one", "two")),
        (("people-en", ""), ("one", "two")),
    ],
)
def test_one_system_in_two_folders_has_its_models_beside_it_or_the_folder(models, names, tmp_path):
    for folder, encoder in zip(("one", "two"), models, strict=True):
        write(tmp_path / folder, "dual", scored(0.6, 0), encoder=encoder)
        write(tmp_path / folder, f"cascade-{folder}", scored(0.6, 0), encoder=encoder)
    found = {s.system for s in read_results([tmp_path / "one", tmp_path / "two"])}
    assert found == {*(f"dual ({name})" for name in names), "cascade-one", "cascade-two"}


def test_p_values_are_adjusted_over_all_corpora(tmp_path):
    for corpus in ("one", "two"):
        for system, level in (("a", 0.6), ("b", 0.55)):
            lines = scored(level, len(system + corpus) + ord(system))
            write(tmp_path / corpus, system, lines, corpus=corpus)
    compared = compare(read_results([tmp_path / "one", tmp_path / "two"]))
    (one,), (two,) = make_paired_tests(compared)
    smallest = min(one, two, key=lambda t: t.difference.p_value)
    assert smallest.p_holm == pytest.approx(min(1, 2 * smallest.difference.p_value))


def test_snrs_over_active_speech_and_over_the_whole_signal_are_not_compared(tmp_path):
    pink = ("pink", 10.0)
    for name, facts in (("a", {}), ("b", {"snr_over": "signal"})):
        write(tmp_path, name, scored(0.5, 0), pink, **facts)
        write(tmp_path, name, scored(0.5, 0))
    refused("--snr-over", compare, read_results([tmp_path]))


# ---- where the lines cross


def test_lines_that_cross_are_found_where_they_do(sweep):
    (c,) = compare(read_results([sweep]))
    (x,) = find_crossings(c)
    assert x.family == "simulated" and x.at == pytest.approx(0.4, abs=0.04)
    assert x.low < x.at < x.high < x.low + 0.15
    assert x.share == 1
    assert [p.wer.value for p in x.points] == [0, 0.3, 0.5, 0.8]


@pytest.mark.parametrize(("level", "better"), [(0.97, "dual"), (0.02, "the cascade")])
def test_lines_that_do_not_cross_say_so(sweep, level, better):
    write(sweep, "dual", [line(i, level) for i in range(QUESTIONS)])
    (x,) = find_crossings(compare(read_results([sweep]))[0])
    assert (x.at, x.share) == (None, 0)
    assert f"{better} is ahead everywhere" in describe_crossing(x)


def write_points(folder, points):
    """points: WER in percent, score of a cascade and of DUAL in the same noise."""
    for errors, cascade, dual in points:
        noise = ("pink", float(-errors))
        write(folder, "cascade-ctc", [line(i, cascade, errors) for i in range(QUESTIONS)], noise)
        write(folder, "dual", [line(i, dual) for i in range(QUESTIONS)], noise)


@pytest.mark.parametrize(
    ("left", "right", "given"), [(10, 40, True), (9, 41, False), (10, 41, False), (8, 92, False)]
)
def test_a_crossing_is_given_where_points_were_measured_within_15_points_on_both_sides(
    tmp_path, left, right, given
):
    width = (right - left) / 100
    # they meet in the middle
    write_points(tmp_path, [(left, 0.5 + width / 2, 0.5), (right, 0.5 - width / 2, 0.5)])
    (x,) = find_crossings(compare(read_results([tmp_path]))[0])
    assert x.between == (left / 100, right / 100)
    assert x.share == 1
    if given:
        assert (x.low, x.at, x.high) == pytest.approx([(left + right) / 200] * 3)
    else:
        assert (x.low, x.at, x.high) == (None, None, None)


@pytest.mark.parametrize(
    ("wer", "difference", "at"),
    [
        ([0, 1], [1, -1], 0.5),
        ([1, 0], [-3, 1], 0.25),
        ([0, 1, 2], [1, 0, -1], 1),
        ([0, 1, 2, 3], [1, 0, 0, -1], 1.5),
        ([0, 1], [-1, -2], -np.inf),
        ([0, 1], [2, 1], np.inf),
        ([0, 1, 2], [2, 0, 0], np.inf),
        ([0, 1], [0, -1], -np.inf),
        ([0, 1], [0, 0], np.inf),
        ([0, 1, 2, 3], [3, -1, 1, -3], 1.5),
    ],
)
def test_where_a_curve_reaches_zero(wer, difference, at):
    assert find_zero(np.array(wer, float), np.array(difference, float)) == at


def test_the_word_error_rate_counts_every_passage_once(tmp_path):
    lines = [line(0, 1.0, 10), line(1, 1.0, 10), line(2, 1.0, 10), line(3, 1.0, 40)]
    write(tmp_path, "cascade-x", lines)
    (c,) = compare(read_results([tmp_path]))
    assert c.get("cascade-x", CLEAN, WER).value == 0.25


# ---- what cannot be compared


def test_other_questions_are_refused_or_left_out(tmp_path):
    write(tmp_path, "a", scored(0.5, 0))
    write(tmp_path, "b", scored(0.5, 1, n=30))
    refused("different questions .30 in common.*--common", compare, read_results([tmp_path]))
    (c,) = compare(read_results([tmp_path]), common=True)
    assert c.get("a", CLEAN).n == 30
    (alone,) = compare(read_results([tmp_path], ["a"]))
    assert alone.get("a", CLEAN).n == 60


def test_what_cannot_be_compared_is_named(tmp_path):
    refused("nowhere has no scores", read_results, [tmp_path / "nowhere"])
    write(tmp_path / "dev", "a", scored(0.5, 0))
    write(tmp_path / "dev", "b", scored(0.5, 1))
    found = read_results([tmp_path / "dev"])
    refused("the system 'c'; choose from a, b", read_results, [tmp_path / "dev"], ["c"])
    refused("a and c were not scored", make_paired_tests, compare(found), [("a", "c")])
    refused("no result has em", compare, found, "em")
    refused("is not a pair of systems", comparison, tmp_path / "out", tmp_path, pairs=("a,b,c",))
    assert not (tmp_path / "out").exists()
    write(tmp_path / "dev", "a", scored(0.5, 0)).write_bytes(b"no table")
    refused(r"cannot read .*clean\.parquet", read_results, [tmp_path / "dev"])


# ---- what is written


@pytest.mark.slow
def test_everything_is_written(sweep, tmp_path):
    printed, tables, page, (values,) = comparison(tmp_path / "out", sweep, pairs=("dual,text",))
    assert "mini test: FF1" in printed
    assert values["crossings"][0]["at"] == pytest.approx(0.4, abs=0.04)
    (test,) = values["tests"]
    assert test["value"] == pytest.approx(-40, abs=4)
    assert test["p_holm"] == test["p_value"] < 0.001
    assert "paired differences" in tables
    assert page.count('src="data:image/svg+xml') == 1
    assert comparison(tmp_path / "again", sweep, pairs=("dual,text",))[2] == page


# ---- what intervals draw, as far as an evaluation tells it


@pytest.fixture
def voiced(tmp_path):
    """Two passages of each of six voices, and two questions about each; a passage is right or wrong
    as a whole."""
    common = {"text": "a red boat", "answers": [{"text": "boat"}]}
    passages = [{"id": f"p{i}", "text": "a red boat", "speaker": f"v{i // 2}"} for i in range(12)]
    questions = [
        {"id": f"q{i}", "passage": f"p{i // 2}", "speaker": f"v{i % 6}"} | common for i in range(24)
    ]
    return write_corpus(tmp_path / "corpus", "test", passages=passages, questions=questions)


def answered(corpus, out, name, right):
    """right: of 24."""
    file = out.parent / f"{name}.json"
    file.write_text(json.dumps({f"q{i}": "boat" if i < right else "ship" for i in range(24)}))
    return import_predictions(Predictions(corpus=corpus, out=out, file=file, name=name))


def drawn(out):
    return {(r.drawn, r.groups) for r in read_rows(out / "results.jsonl")}


@pytest.mark.slow
def test_answers_from_elsewhere_and_their_comparison(voiced, tmp_path):
    out = tmp_path / "out"
    assert "95 % intervals draw 6 voices × askers." in answered(voiced, out, "good", 20)
    answered(voiced, out, "bad", 8)
    assert drawn(out) == {("voice × asker", 6)}
    lines, _ = read_items(out / "scores/good/clean.parquet")
    assert [(x["voice"], x["asker"]) for x in lines[:3]] == [("v0", f"v{i}") for i in range(3)]
    printed, _, _, (compared,) = comparison(tmp_path / "compared", out, metric="em")
    assert compared["drawn"] == "voice × asker"
    assert {(c["drawn"], c["groups"]) for c in compared["cells"]} == {("voice × asker", 6)}
    assert "which draw 6 voices × askers" in printed
    assert compared["tests"][0]["p_value"] >= 2 / 2**6
    # voices that training knew
    trained = [{"id": f"t{s}", "speaker": s} for s in ("v3", "somebody")]
    write_corpus(voiced, "train", passages=trained)
    answered(voiced, out, "good", 20)
    answered(voiced, out, "bad", 8)
    assert drawn(out) == {("passage", 12)}
