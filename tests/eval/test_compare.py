"""Comparisons: paired on the same questions, symmetric, adjusted, and refused where questions or
data differ."""

import json
from dataclasses import replace
from typing import NamedTuple

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
    """Intervals of crossings are of few resamples, which are fast."""
    monkeypatch.setattr("speechssl.eval.crossings.DRAWS", 100)


QUESTIONS, QUESTIONS_PER_PASSAGE = 60, 3


def make_line(i, score, errors=None):
    """Make the line of a question as `evaluate qa` writes it. errors: among 100 words of the passage;
    None for a system without transcripts."""
    values = {"id": f"q{i}", "passage": f"p{i // QUESTIONS_PER_PASSAGE}", "ff1": score}
    return values | {"passage_errors": errors, "passage_words": None if errors is None else 100}


def write_scores(folder, system, lines, condition=CLEAN, **changes):
    """Write the scores of a system as `evaluate qa` does. changes: of the card."""
    name, snr = condition
    file = f"{name}.parquet" if snr is None else f"{name}-{snr:g}-dB.parquet"
    path = folder / "scores" / system / file
    card = {"corpus": "mini", "split": "test", "data": "0123", "synthetic": ""}
    card |= {"condition": name, "snr_db": snr, "system": system}
    write_items(path, lines, card | changes)
    return path


def make_lines(level, seed, errors=None, n=QUESTIONS):
    """Make lines whose scores scatter around a level. errors: as in `make_line`."""
    scores = np.clip(np.random.default_rng(seed).normal(level, 0.1, n), 0, 1)
    return [make_line(i, float(score), errors) for i, score in enumerate(scores)]


@pytest.fixture
def sweep(tmp_path):
    """The scores of a system at 0.5, and of a cascade that falls from 0.9 at a WER of 0 to 0.1 at
    80 %: they meet at 40 %."""
    for errors in (0, 30, 50, 80):
        system = "text" if errors == 0 else f"cascade-simulated@{errors}"
        write_scores(tmp_path, system, make_lines(0.9 - errors / 100, errors, errors))
    write_scores(tmp_path, "dual", make_lines(0.5, seed=1))
    return tmp_path


class Comparison(NamedTuple):
    """These are the outputs of `speechssl compare`."""

    printed: str
    tables: str  # tables.md
    page: str  # compare.html
    corpora: list  # of compare.json


def write_comparison(out, *results, **options):
    printed = run_comparison(Compare(results=results, out=out, **options))
    values = json.loads((out / "compare.json").read_text(), parse_constant=pytest.fail)
    tables, page = (out / "tables.md").read_text(), (out / "compare.html").read_text()
    return Comparison(printed, tables, page, values["corpora"])


def test_swapping_two_systems_turns_the_sign(tmp_path):
    write_scores(tmp_path, "a", make_lines(0.6, seed=0))
    write_scores(tmp_path, "b", make_lines(0.5, seed=1))
    compared = compare(read_results([tmp_path]))
    ((test,),) = make_paired_tests(compared, [("a", "b")])
    ((swapped,),) = make_paired_tests(compared, [("b", "a")])
    assert test.difference.value == pytest.approx(10, abs=4)
    assert swapped.difference.value == -test.difference.value
    assert test.difference.p_value < 0.01
    assert swapped.difference.p_value == test.difference.p_value
    low, high = test.difference.interval.ends
    assert low > 0
    assert swapped.difference.interval.ends == pytest.approx((-high, -low))


@pytest.mark.parametrize(
    ("models", "names"),
    [
        (("people-en", "exp/models"), ("people-en", "exp/models")),
        (("people-en", "people-en"), ("one", "two")),
        (("people-en", ""), ("one", "two")),
    ],
)
def test_a_system_in_two_folders_is_named_with_its_models_or_the_folder(models, names, tmp_path):
    lines = make_lines(0.6, seed=0)
    for folder, encoder in zip(("one", "two"), models, strict=True):
        write_scores(tmp_path / folder, "dual", lines, encoder=encoder)
        write_scores(tmp_path / folder, f"cascade-{folder}", lines, encoder=encoder)
    systems = {s.system for s in read_results([tmp_path / "one", tmp_path / "two"])}
    assert systems == {*(f"dual ({name})" for name in names), "cascade-one", "cascade-two"}


def test_p_values_are_adjusted_over_all_corpora(tmp_path):
    for corpus in ("one", "two"):
        write_scores(tmp_path / corpus, "a", make_lines(0.6, seed=101), corpus=corpus)
        write_scores(tmp_path / corpus, "b", make_lines(0.55, seed=102), corpus=corpus)
    compared = compare(read_results([tmp_path / "one", tmp_path / "two"]))
    (first,), (second,) = make_paired_tests(compared)
    smallest = min(first, second, key=lambda test: test.difference.p_value)
    assert smallest.p_holm == pytest.approx(min(1, 2 * smallest.difference.p_value))


def test_snrs_over_active_speech_and_over_the_whole_signal_are_not_compared(tmp_path):
    pink = ("pink", 10.0)
    lines = make_lines(0.5, seed=0)
    for system, changes in (("a", {}), ("b", {"snr_over": "signal"})):
        write_scores(tmp_path, system, lines, pink, **changes)
        write_scores(tmp_path, system, lines)
    refused("--snr-over", compare, read_results([tmp_path]))


# ---- crossings: the WER at which a cascade falls below a system without a transcript


def find_crossing(folder):
    """Find the one crossing of the scores in a folder."""
    (compared,) = compare(read_results([folder]))
    (crossing,) = find_crossings(compared)
    return crossing


def test_a_crossing_is_found(sweep):
    crossing = find_crossing(sweep)
    assert crossing.family == "simulated"
    assert crossing.at == pytest.approx(0.4, abs=0.04)
    assert crossing.low < crossing.at < crossing.high
    assert crossing.high - crossing.low < 0.15
    assert crossing.share == 1
    assert [p.wer.value for p in crossing.points] == [0, 0.3, 0.5, 0.8]


@pytest.mark.parametrize(("level", "better"), [(0.97, "dual"), (0.02, "the cascade")])
def test_systems_that_do_not_cross_are_said_not_to(sweep, level, better):
    write_scores(sweep, "dual", [make_line(i, level) for i in range(QUESTIONS)])
    crossing = find_crossing(sweep)
    assert (crossing.at, crossing.share) == (None, 0)
    assert f"{better} is ahead everywhere" in describe_crossing(crossing)


def test_points_that_disagree_are_named_with_who_is_ahead_there(sweep):
    crossing = find_crossing(sweep)
    first, *_, last = crossing.points
    apart = replace(crossing, points=(first, last), at=None, between=None)
    ahead = "the cascade is ahead at 0.0 %, dual is ahead at 80.0 %"
    assert ahead in describe_crossing(apart)


@pytest.mark.parametrize(
    ("left", "right", "is_given"),
    [(10, 40, True), (9, 41, False), (10, 41, False), (8, 92, False)],
)
def test_a_crossing_is_given_where_points_were_measured_within_15_points_on_both_sides(
    tmp_path, left, right, is_given
):
    """left, right: the WERs of two noises in percent; the systems meet in the middle."""
    width = (right - left) / 100
    for errors, cascade in ((left, 0.5 + width / 2), (right, 0.5 - width / 2)):
        noise = ("pink", float(-errors))
        lines = [make_line(i, cascade, errors) for i in range(QUESTIONS)]
        write_scores(tmp_path, "cascade-ctc", lines, noise)
        write_scores(tmp_path, "dual", [make_line(i, 0.5) for i in range(QUESTIONS)], noise)
    crossing = find_crossing(tmp_path)
    assert crossing.between == (left / 100, right / 100)
    assert crossing.share == 1
    middle = (left + right) / 200 if is_given else None
    assert (crossing.low, crossing.at, crossing.high) == pytest.approx((middle,) * 3)


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
    # three questions of one passage with 10 errors, and one of another with 40
    lines = [make_line(i, 1.0, errors=10) for i in range(QUESTIONS_PER_PASSAGE)]
    lines.append(make_line(QUESTIONS_PER_PASSAGE, 1.0, errors=40))
    write_scores(tmp_path, "cascade-x", lines)
    (compared,) = compare(read_results([tmp_path]))
    assert compared.find_estimate("cascade-x", CLEAN, WER).value == (10 + 40) / 200


# ---- what cannot be compared


def test_other_questions_are_refused_or_left_out(tmp_path):
    write_scores(tmp_path, "a", make_lines(0.5, seed=0))
    write_scores(tmp_path, "b", make_lines(0.5, seed=1, n=30))
    refused("different questions .30 in common.*--common", compare, read_results([tmp_path]))
    (in_common,) = compare(read_results([tmp_path]), common=True)
    assert in_common.find_estimate("a", CLEAN).n == 30
    (alone,) = compare(read_results([tmp_path], ["a"]))
    assert alone.find_estimate("a", CLEAN).n == QUESTIONS


def test_what_cannot_be_compared_is_named(tmp_path):
    dev, out = tmp_path / "dev", tmp_path / "out"
    refused("nowhere has no scores", read_results, [tmp_path / "nowhere"])
    damaged = write_scores(dev, "a", make_lines(0.5, seed=0))
    write_scores(dev, "b", make_lines(0.5, seed=1))
    results = read_results([dev])
    refused("the system 'c'; choose from a, b", read_results, [dev], ["c"])
    refused("a and c were not scored", make_paired_tests, compare(results), [("a", "c")])
    refused("no result has em", compare, results, "em")
    refused("is not a pair of systems", write_comparison, out, dev, pairs=("a,b,c",))
    assert not out.exists()
    assert len(read_results([dev, dev / "../dev"])) == len(read_results([dev]))
    damaged.write_bytes(b"no table")
    refused(r"cannot read .*clean\.parquet", read_results, [tmp_path / "dev"])


# ---- what is written


@pytest.mark.slow
def test_everything_is_written(sweep, tmp_path):
    first = write_comparison(tmp_path / "out", sweep, pairs=("dual,text",))
    assert "mini test: FF1" in first.printed
    (values,) = first.corpora
    assert values["crossings"][0]["at"] == pytest.approx(0.4, abs=0.04)
    (test,) = values["tests"]
    assert test["value"] == pytest.approx(-40, abs=4)
    assert test["p_value"] < 0.001
    assert test["p_holm"] == test["p_value"]  # there is one test
    assert "paired differences" in first.tables
    assert first.page.count('src="data:image/svg+xml') == 1
    second = write_comparison(tmp_path / "again", sweep, pairs=("dual,text",))
    assert second.page == first.page


def test_too_few_passages_for_intervals_are_said_to_be(tmp_path):
    for name, level in (("a", 0.6), ("b", 0.5)):
        write_scores(tmp_path / "results", name, make_lines(level, seed=0, n=QUESTIONS_PER_PASSAGE))
    printed = write_comparison(tmp_path / "out", tmp_path / "results").printed
    assert "No intervals: 1 passage, fewer than 5." in printed
    assert "95 % interval" not in printed


# ---- the units that intervals draw


@pytest.fixture
def voiced(tmp_path):
    """A corpus of two passages of each of six voices, and two questions about each passage."""
    common = {"text": "a red boat", "answers": [{"text": "boat"}]}
    passages = [{"id": f"p{i}", "text": "a red boat", "speaker": f"v{i // 2}"} for i in range(12)]
    questions = []
    for i in range(24):
        question = {"id": f"q{i}", "passage": f"p{i // 2}", "speaker": f"v{i % 6}"}
        questions.append(question | common)
    return write_corpus(tmp_path / "corpus", "test", passages=passages, questions=questions)


def import_answers(corpus, out, name, right):
    """Import the answers of a system that are right for the first `right` of the 24 questions;
    return what is printed."""
    answers = {f"q{i}": "boat" if i < right else "ship" for i in range(24)}
    file = out.parent / f"{name}.json"
    file.write_text(json.dumps(answers))
    return import_predictions(Predictions(corpus=corpus, out=out, file=file, name=name))


def list_units(out):
    """List the names and numbers of the units that the intervals of all rows draw."""
    return {(r.drawn, r.groups) for r in read_rows(out / "results.jsonl")}


@pytest.mark.slow
def test_imported_answers_are_compared_by_voices_that_training_did_not_hear(voiced, tmp_path):
    out = tmp_path / "out"
    assert "95 % intervals draw 6 voices × askers." in import_answers(voiced, out, "good", right=20)
    import_answers(voiced, out, "bad", right=8)
    assert list_units(out) == {("voice × asker", 6)}
    lines, _ = read_items(out / "scores/good/clean.parquet")
    assert [(x["voice"], x["asker"]) for x in lines[:3]] == [("v0", f"v{i}") for i in range(3)]
    comparison = write_comparison(tmp_path / "compared", out, metric="em")
    (compared,) = comparison.corpora
    assert compared["drawn"] == "voice × asker"
    assert {(c["drawn"], c["groups"]) for c in compared["cells"]} == {("voice × asker", 6)}
    assert "95 % intervals draw 6 voices × askers for all" in comparison.printed
    assert compared["tests"][0]["p_value"] >= 2 / 2**6
    # where training heard a voice, passages are drawn
    heard = [{"id": f"t{s}", "speaker": s} for s in ("v3", "somebody")]
    write_corpus(voiced, "train", passages=heard)
    import_answers(voiced, out, "good", right=20)
    import_answers(voiced, out, "bad", right=8)
    assert list_units(out) == {("passage", 12)}
