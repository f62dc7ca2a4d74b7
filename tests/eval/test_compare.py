"""Comparisons: paired on the same questions, symmetric, adjusted, and refused where questions or
data differ."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechssl.data.records import Answer, Passage, Question, write_records
from speechssl.eval.compare import WER, compare, paired_tests, read_results
from speechssl.eval.crossings import crossing_text, crossings, find_zero
from speechssl.eval.imported import import_predictions
from speechssl.eval.missed import analyses, by_own_wer
from speechssl.eval.options import Predictions
from speechssl.eval.predict import read_items, write_items
from speechssl.report.comparison import run_comparison
from speechssl.report.options import Compare
from speechssl.results import read_rows

from ..files import refused

CLEAN = ("clean", None)
QUESTIONS, A_PASSAGE = 60, 3


def line(i, score, errors=None, metric="ff1", **changes):
    values = {
        "id": f"q{i}",
        "passage": f"p{i // A_PASSAGE}",
        "ff1": None,
        "aos": None,
        "em": None,
        "f1": None,
        "answer_seconds": 0.3 + 0.1 * (i % 10),
        "answer_words": 1 + i % 4,
        "position": (i % 10) / 10,
        "type": ("person", "date")[i % 2],
        "relation": "",
        "sentence_wer": None,
        "passage_errors": None,
        "passage_words": None,
    }
    if errors is not None:
        values |= {"sentence_wer": errors / 100, "passage_errors": errors, "passage_words": 100}
    return values | {metric: score} | changes


def write(folder, system, lines, condition=CLEAN, **changes):
    """As `evaluate qa` leaves them."""
    name, snr = condition
    path = folder / "scores" / system / f"{name}{'' if snr is None else f'-{snr:g}-dB'}.parquet"
    card = {
        "corpus": "mini",
        "split": "test",
        "data": "0123",
        "condition": name,
        "snr_db": snr,
        "system": system,
        "synthetic": "",
    }
    write_items(path, lines, card | changes)
    return path


def scored(level, seed, errors=None, n=QUESTIONS):
    """Scores that scatter around a level. errors: of 100 words of every passage."""
    values = np.clip(np.random.default_rng(seed).normal(level, 0.1, n), 0, 1)
    return [line(i, float(v), errors) for i, v in enumerate(values)]


def write_sweep(folder, of_lines=None, **changes):
    """A system at 0.5 whatever the noise, and a cascade that falls from 0.9 at a WER of 0 to 0.1 at
    80 %: they meet at 40 %.

    of_lines: fields that every line gets.
    """
    for errors in (0, 30, 50, 80):
        system = "text" if errors == 0 else f"cascade-simulated@{errors}"
        write(
            folder,
            system,
            [x | (of_lines or {}) for x in scored(0.9 - errors / 100, errors, errors)],
            **changes,
        )
    write(folder, "dual", [x | (of_lines or {}) for x in scored(0.5, 1)], **changes)


@pytest.fixture
def sweep(tmp_path):
    write_sweep(tmp_path)
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
    (one,), (other,) = (paired_tests(compared, [pair])[0] for pair in (("a", "b"), ("b", "a")))
    assert one.difference.value == -other.difference.value == pytest.approx(10, abs=4)
    assert one.difference.p_value == other.difference.p_value < 0.01
    v, w = one.difference.interval, other.difference.interval
    assert (v.low, v.high) == (pytest.approx(-w.high), pytest.approx(-w.low)) and v.low > 0


@settings(deadline=None, max_examples=10)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=12), st.integers(0, 5))
def test_differences_lie_in_their_intervals(tmp_path_factory, values, seed):
    folder = tmp_path_factory.mktemp("x")
    write(folder, "a", [line(i, v) for i, v in enumerate(values)])
    write(folder, "b", [line(i, v / 2) for i, v in enumerate(values)])
    ((test,),) = paired_tests(compare(read_results([folder]), seed=seed, resamples=500))
    v = test.difference.interval
    assert v.low - 1e-9 <= v.value <= v.high + 1e-9 and 0 < test.p_holm <= 1


def test_p_values_are_adjusted_over_all_corpora(tmp_path):
    for corpus in ("one", "two"):
        for system, level in (("a", 0.6), ("b", 0.55)):
            write(
                tmp_path / corpus,
                system,
                scored(level, len(system + corpus) + ord(system)),
                corpus=corpus,
            )
    found = [
        t
        for some in paired_tests(compare(read_results([tmp_path / "one", tmp_path / "two"])))
        for t in some
    ]
    smallest = min(found, key=lambda t: t.difference.p_value)
    assert len(found) == 2 and smallest.p_holm == pytest.approx(
        min(1, 2 * smallest.difference.p_value)
    )


def test_without_pairs_what_has_no_transcript_is_tested_against_the_others(sweep):
    (c,) = compare(read_results([sweep]))
    others = ["text", "cascade-simulated@30", "cascade-simulated@50", "cascade-simulated@80"]
    assert [(t.first, t.second) for t in paired_tests([c])[0]] == [
        ("dual", other) for other in others
    ]
    assert c.textless == ["dual"] and c.recognisers == []


@pytest.mark.slow
def test_pairs_that_encoded_other_noise_are_reported_and_others_are_not(tmp_path):
    pink, codec, room = ("pink", 10.0), ("mp3 16 kbps", None), ("reverb", None)
    for where in (CLEAN, pink, codec, room):
        write(tmp_path / "x", "dual", scored(0.6, 0), where, seed=0)
        write(tmp_path / "y", "cascade-ctc", scored(0.5, 1, 30), where, seed=7)
        write(tmp_path / "x", "text", scored(0.7, 2, 0), where, seed=0)
        write(tmp_path / "x", "cascade-old", scored(0.7, 2, 40), where)  # its card knows no seed
    printed, tables, page, (corpus,) = comparison(tmp_path / "out", tmp_path / "x", tmp_path / "y")
    line = "Not the same audio, for noise and rooms were drawn with different seeds: "
    line += "dual (seed 0) and cascade-ctc (seed 7) in pink 10 dB, reverb."
    assert printed.count(line) == 1 and line in tables and line in page
    reported = {(t["second"], t["condition"]) for t in corpus["tests"] if t["seeds"] == [0, 7]}
    assert corpus["other_noise"] == line and reported == {
        ("cascade-ctc", "pink 10 dB"),
        ("cascade-ctc", "reverb"),
    }
    assert {
        t["seeds"] is None for t in corpus["tests"] if (t["second"], t["condition"]) not in reported
    } == {True}
    assert comparison(tmp_path / "out", tmp_path / "x")[3][0]["other_noise"] == ""


def test_snrs_over_active_speech_and_over_the_whole_signal_are_not_compared(tmp_path):
    pink = ("pink", 10.0)
    for name, facts in (("a", {}), ("b", {"snr_over": "signal"})):
        write(tmp_path, name, scored(0.5, 0), pink, **facts)
        write(tmp_path, name, scored(0.5, 0))
    refused(
        "have SNRs over active and over signal; evaluate both with one",
        compare,
        read_results([tmp_path]),
    )


# ---- where the lines cross


@pytest.mark.slow
def test_lines_that_cross_are_found_where_they_do(sweep):
    (c,) = compare(read_results([sweep]))
    (x,) = crossings(c)
    assert x.family == "simulated" and x.at == pytest.approx(0.4, abs=0.04)
    assert x.low < x.at < x.high and x.share == 1 and x.high - x.low < 0.15
    assert [p.wer.value for p in x.points] == [0, 0.3, 0.5, 0.8]
    assert "% [" in crossing_text(x) and crossing_text(x).endswith("; 100 % of the resamples cross")


@pytest.mark.slow
@pytest.mark.parametrize(("level", "ahead"), [(0.97, "textless"), (0.02, "cascade")])
def test_lines_that_do_not_cross_say_so(sweep, level, ahead):
    write(sweep, "dual", [line(i, level) for i in range(QUESTIONS)])
    (x,) = crossings(compare(read_results([sweep]))[0])
    assert (x.at, x.ahead, x.share) == (None, ahead, 0) and (
        "do not cross in the range measured"
    ) in crossing_text(x)


def write_points(folder, points):
    """points: WER in percent, score of a cascade and of DUAL in the same noise."""
    for errors, cascade, dual in points:
        write(
            folder,
            "cascade-ctc",
            [line(i, cascade, errors) for i in range(QUESTIONS)],
            ("pink", float(-errors)),
        )
        write(folder, "dual", [line(i, dual) for i in range(QUESTIONS)], ("pink", float(-errors)))


@pytest.mark.parametrize(
    ("left", "right", "given"), [(10, 40, True), (9, 41, False), (10, 41, False), (8, 92, False)]
)
def test_a_crossing_is_given_where_points_were_measured_within_15_points_on_both_sides(
    tmp_path, left, right, given
):
    width = (right - left) / 100
    # they meet in the middle
    write_points(tmp_path, [(left, 0.5 + width / 2, 0.5), (right, 0.5 - width / 2, 0.5)])
    printed, tables, page, (corpus,) = comparison(tmp_path / "out", tmp_path)
    (x,) = corpus["crossings"]
    assert x["between"] == [left / 100, right / 100] and x["share"] == 1
    if given:
        assert (x["low"], x["at"], x["high"]) == pytest.approx([(left + right) / 200] * 3)
        text = (
            f"{(left + right) / 2:.1f} % [{(left + right) / 2:.1f}, "
            f"{(left + right) / 2:.1f}]; 100 % of the resamples cross"
        )
    else:
        assert (x["at"], x["low"], x["high"]) == (None, None, None)
        text = (
            f"they cross where nothing was measured nearby: the nearest points have {left}.0 "
            f"and {right}.0 %"
        )
    assert x["text"].startswith(text) and all(text in where for where in (printed, tables))
    assert page.count(text) == 2  # the summary and the table


@pytest.mark.parametrize(
    ("points", "ahead", "words"),
    [
        (
            [(10, 0.5, 0.9), (30, 0.3, 0.8), (92, 0.035, 0.0)],
            "",
            "the cascade is ahead at 92.0 %, dual at 10.0 and 30.0 %",
        ),
        ([(10, 0.5, 0.9), (30, 0.3, 0.8), (92, 0.0, 0.1)], "textless", "dual is ahead throughout"),
        ([(10, 0.5, 0.9), (30, 0.3, 0.3)], "textless", "the cascade is nowhere ahead"),
        (
            [(10, 0.9, 0.5), (30, 0.3, 0.4), (40, 0.4, 0.3)],
            "",
            "the cascade is ahead at 10.0 and 40.0 %, dual at 30.0 %",
        ),
        ([(10, 0.9, 0.5), (30, 0.4, 0.4)], "cascade", "dual is nowhere ahead"),
        ([(10, 0.5, 0.5), (30, 0.4, 0.4)], "neither", "they are equal throughout"),
    ],
)
def test_who_is_ahead_is_told_from_the_points_and_not_from_the_curve(
    tmp_path, points, ahead, words
):
    write_points(tmp_path, points)
    (x,) = crossings(compare(read_results([tmp_path]))[0])
    assert (x.at, x.ahead) == (None, ahead) and words in crossing_text(x)


@pytest.mark.parametrize(
    ("wer", "difference", "at"),
    [
        ([0, 1], [1, -1], 0.5),
        ([1, 0], [-3, 1], 0.25),
        ([0, 1, 2], [1, 0, -1], 1),
        ([0, 1, 2, 3], [1, 0, 0, -1], 1.5),
        ([0, 1], [-1, -2], None),
        ([0, 1], [2, 1], None),
        ([0, 1, 2], [2, 0, 0], None),
        ([0, 1], [0, -1], None),
        ([0, 1], [0, 0], None),
        ([0, 1, 2, 3], [3, -1, 1, -3], 1.5),
    ],
)
def test_where_a_curve_reaches_zero(wer, difference, at):
    assert find_zero(np.array(wer, float), np.array(difference, float))[0] == at


def test_the_word_error_rate_counts_every_passage_once(tmp_path):
    lines = [line(0, 1.0, 10), line(1, 1.0, 10), line(2, 1.0, 10), line(3, 1.0, 40)]
    write(tmp_path, "cascade-x", lines)
    (c,) = compare(read_results([tmp_path]))
    assert c.get("cascade-x", CLEAN, WER).value == 0.25


# ---- which answers are missed


def test_scores_by_kind_length_place_and_errors(tmp_path):
    write(tmp_path, "dual", [line(i, float(i % 2)) for i in range(QUESTIONS)])
    write(tmp_path, "cascade-ctc", [line(i, 0.5, 5 if i < 30 else 50) for i in range(QUESTIONS)])
    (c,) = compare(read_results([tmp_path]))
    found = {a.by: a for a in analyses(c, CLEAN)}
    assert list(found) == [
        "type of the answer",
        "length of the answer",
        "words of the answer",
        "place in the passage",
        "WER of the answer's sentence",
    ]
    kinds = {b.name: b for b in found["type of the answer"].buckets}
    assert (kinds["date"].scores["dual"].value, kinds["person"].scores["dual"].value) == (
        1,
        0,
    ) and kinds["date"].n == 30
    assert [b.name for b in found["length of the answer"].buckets] == [
        "under 0.5 s",
        "0.5-1 s",
        "1-2 s",
    ]
    assert [b.name for b in found["words of the answer"].buckets] == ["1", "2", "3-4"]
    sentences = found["WER of the answer's sentence"]
    assert sentences.recogniser == "cascade-ctc" and [(b.name, b.n) for b in sentences.buckets] == [
        ("0-10 %", 30),
        ("45-60 %", 30),
    ]
    bins = by_own_wer(c, "dual", "cascade-ctc")
    assert [(b.name, b.wer, b.cascade.value, b.textless.value) for b in bins] == [
        ("0-10 %", 0.05, 0.5, 0.5),
        ("45-60 %", 0.5, 0.5, 0.5),
    ]
    assert [b.name for b in by_own_wer(c, "dual", "cascade-ctc", sentences=True)] == [
        "0-10 %",
        "45-60 %",
    ]


def test_rare_relations_stand_together(tmp_path):
    relations = ["owner"] * 30 + ["pet"] * 28 + ["debt", "job"]
    write(tmp_path, "dual", [line(i, 0.5, relation=r) for i, r in enumerate(relations)])
    (c,) = compare(read_results([tmp_path]))
    found = next(a for a in analyses(c, CLEAN) if a.by.startswith("relation"))
    assert [(b.name, b.n) for b in found.buckets] == [("owner", 30), ("pet", 28), ("2 others", 2)]
    write(tmp_path, "dual", [line(i, 0.5, relation=r) for i, r in enumerate([*relations[:-1], ""])])
    (c,) = compare(read_results([tmp_path]))
    found = next(a for a in analyses(c, CLEAN) if a.by.startswith("relation"))
    assert [(b.name, b.n) for b in found.buckets] == [("owner", 30), ("pet", 28), ("1 other", 1)]


# ---- what cannot be compared


def test_other_questions_are_refused_or_left_out(tmp_path):
    write(tmp_path, "a", scored(0.5, 0))
    write(tmp_path, "b", scored(0.5, 1, n=30))
    refused(
        r"different questions \(60 and 30, 30 in "
        r"common\).*--common",
        compare,
        read_results([tmp_path]),
    )
    (c,) = compare(read_results([tmp_path]), common=True)
    assert c.get("a", CLEAN).n == 30
    (alone,) = compare(read_results([tmp_path], ["a"]))
    assert alone.systems == ["a"] and alone.get("a", CLEAN).n == 60


def test_systems_without_the_metric_stand_aside(tmp_path):
    write(tmp_path, "a", scored(0.5, 0))
    write(
        tmp_path,
        "choice-units",
        [{"id": f"c{i}", "passage": "p", "set_accuracy": i} for i in (0, 1)],
    )
    assert compare(read_results([tmp_path]))[0].systems == ["a"]
    (c,) = compare(read_results([tmp_path]), "set_accuracy")
    assert c.get("choice-units", CLEAN).value == 0.5 and not analyses(c, CLEAN)
    assert c.aside == ("a",)
    assert (
        "Left out, for they have none: choice-units." in comparison(tmp_path / "out", tmp_path)[0]
    )
    refused("no result has em", compare, read_results([tmp_path]), "em")


def test_folders_of_one_name_are_reported_apart_and_a_folder_counts_once(tmp_path):
    for name, level in (("first", 0.8), ("second", 0.2)):
        write(tmp_path / name / "dev", "dual", scored(level, 0))
    one, other = tmp_path / "first/dev", tmp_path / "second/dev"
    (c,) = compare(read_results([one, other, tmp_path / "second/../first/dev"]))
    assert c.systems == ["dual (first/dev)", "dual (second/dev)"]
    assert c.get(c.systems[0], CLEAN).value == pytest.approx(0.8, abs=0.05)
    assert c.get(c.systems[1], CLEAN).value == pytest.approx(0.2, abs=0.05)
    (c,) = compare(read_results([one, one]))
    assert c.systems == ["dual"]
    write(tmp_path / "other", "dual", scored(0.5, 0))
    assert compare(read_results([one, tmp_path / "other"]))[0].systems == [
        "dual (dev)",
        "dual (other)",
    ]


def test_folders_without_scores_are_named(tmp_path):
    refused("nowhere has no scores of questions", read_results, [tmp_path / "nowhere"])
    write(tmp_path / "dev", "dual", scored(0.5, 0))
    refused("`speechssl evaluate` wrote to: .*dev", read_results, [tmp_path])


def test_damaged_scores_are_named(tmp_path):
    write(tmp_path, "a", scored(0.5, 0)).write_bytes(b"no table")
    refused(r"cannot read .*clean\.parquet .*evaluate again", read_results, [tmp_path])


def test_pairs_and_systems_that_are_not_there_are_named(tmp_path):
    write(tmp_path, "a", scored(0.5, 0))
    write(tmp_path, "b", scored(0.5, 1))
    refused("no scores of the system 'c'; choose from a, b", read_results, [tmp_path], ["c"])
    refused(
        "a and c were not scored in one condition",
        paired_tests,
        compare(read_results([tmp_path])),
        [("a", "c")],
    )
    for pair in ("a", "a,a", "a,b,c", ",b"):
        refused("is not a pair of systems", comparison, tmp_path / "out", tmp_path, pairs=(pair,))
    assert not (tmp_path / "out").exists()


# ---- what is written


@pytest.mark.slow
def test_everything_is_written(sweep, tmp_path):
    printed, tables, page, (values,) = comparison(tmp_path / "out", sweep, pairs=("dual,text",))
    assert "where the lines cross" in printed and "mini test: FF1" in printed
    assert (
        values["crossings"][0]["at"] == pytest.approx(0.4, abs=0.04) and values["metric"] == "ff1"
    )
    (test,) = values["tests"]
    assert test["value"] == pytest.approx(-40, abs=4) and test["p_holm"] == test["p_value"] < 0.001
    titles = (
        "paired differences",
        "by type of the answer",
        "by the WER of the sentence",
    )
    assert all(title in tables for title in titles)
    widths = [
        {row.count(" | ") for row in block.split("\n") if row.startswith("|")}
        for block in tables.split("\n## ")
    ]
    assert all(len(some) == 1 for some in widths)
    assert page.count('src="data:image/svg+xml') == 1 and "://" not in page
    assert comparison(tmp_path / "again", sweep, pairs=("dual,text",))[2] == page


def test_one_passage_has_no_interval_anywhere(tmp_path):
    write_sweep(tmp_path, {"passage": "p0"})
    printed, tables, _, (corpus,) = comparison(tmp_path / "out", tmp_path)
    tables = tables.split("## Published")[0]
    assert "dual | text | clean | -4" in tables and "[" not in tables and "[" not in printed
    assert all(
        "Fewer than 5 passages have no interval." in t
        for t in tables.split("## ")[1:]
        if "lines cross" not in t
    )
    (crossing,) = corpus["crossings"]
    assert (
        crossing["at"] == pytest.approx(0.4, abs=0.05)
        and crossing["text"].endswith(" %")
        and crossing["share"] is None
    )
    of_bins = [
        x[part]
        for b in corpus["by_own_wer"]
        for x in b["bins"]
        for part in ("cascade", "textless", "difference")
    ]
    of_errors = [v for a in corpus["errors"] for b in a["buckets"] for v in b["scores"].values()]
    found = [*corpus["cells"], *corpus["tests"], crossing, *of_bins, *of_errors]
    assert of_bins and of_errors and all((x["low"], x["high"]) == (None, None) for x in found)


# ---- what intervals draw, as far as an evaluation tells it


@pytest.fixture
def voiced(tmp_path):
    """Two passages of each of six voices, and two questions about each; a passage is right or wrong
    as a whole."""
    root = tmp_path / "corpus"
    (root / "test").mkdir(parents=True)
    passages = [Passage(f"p{i}", "", 0.0, "a red boat", f"v{i // 2}", "en") for i in range(12)]
    questions = [
        Question(f"q{i}", f"p{i // 2}", "", 0.0, "what", f"v{i % 6}", "en", (Answer("boat"),))
        for i in range(24)
    ]
    write_records(root / "test/passages.jsonl", passages)
    write_records(root / "test/questions.jsonl", questions)
    return root


def train_on(corpus, *speakers):
    (corpus / "train").mkdir(exist_ok=True)
    write_records(
        corpus / "train/passages.jsonl", [Passage(f"t{s}", "", 0.0, "", s, "en") for s in speakers]
    )


def answered(corpus, out, name, right):
    """right: of 24."""
    file = out.parent / f"{name}.json"
    file.write_text(json.dumps({f"q{i}": "boat" if i < right else "ship" for i in range(24)}))
    return import_predictions(Predictions(corpus=corpus, out=out, file=file, name=name))


def drawn(out):
    return {(r.drawn, r.groups) for r in read_rows(out / "results.jsonl")}


def test_answers_from_elsewhere_and_their_comparison(voiced, tmp_path):
    out = tmp_path / "out"
    assert "95 % intervals draw 6 voices × askers." in answered(voiced, out, "good", 20)
    answered(voiced, out, "bad", 8)
    assert drawn(out) == {("voice × asker", 6)}
    lines, _ = read_items(out / "scores/good/clean.parquet")
    assert [x["voice"] for x in lines[:5]] == ["v0"] * 4 + ["v1"] and [
        x["asker"] for x in lines[:3]
    ] == ["v0", "v1", "v2"]
    printed, tables, page, (compared,) = comparison(tmp_path / "compared", out, metric="em")
    both = "voice × asker"
    assert compared["drawn"] == both and {(c["drawn"], c["groups"]) for c in compared["cells"]} == {
        (both, 6)
    }
    assert (
        "which draw 6 voices × askers" in printed
        and ("paired bootstrap that draws 6 voices × askers") in tables
    )
    assert compared["tests"][0]["p_value"] >= 2 / 2**6
    assert "which draw 6 voices × askers" in page

    train_on(voiced, "v3", "somebody")
    answered(voiced, out, "good", 20)
    answered(voiced, out, "bad", 8)
    assert drawn(out) == {("passage", 12)}
    assert (
        "paired bootstrap that draws 12 passages;"
        in comparison(tmp_path / "compared", out, metric="em")[0]
    )


def test_lines_without_a_voice_draw_passages_and_others_of_the_same_data_tell_it(voiced, tmp_path):
    out = tmp_path / "out"
    answered(voiced, out, "good", 20)
    answered(voiced, out, "bad", 8)
    for name, unit in (("good", "6 voices × askers"), ("bad", "6 passages × askers")):
        path = out / f"scores/{name}/clean.parquet"
        lines, card = read_items(path)
        for line in lines:
            del line["voice"]
        write_items(path, lines, card)
        assert f"which draw {unit}" in comparison(tmp_path / "compared", out, metric="em")[0]


def test_a_comparison_tells_which_p_cannot_be_reached(voiced, tmp_path):
    for name, right in (("a", 24), ("b", 12), ("c", 0)):
        answered(voiced, tmp_path / "out", name, right)
    _, tables, _, (compared,) = comparison(tmp_path / "compared", tmp_path / "out", metric="em")
    tests = compared["tests"]
    assert (
        "With 6 voices × askers no p can be below 0.031, nor below 0.094 after Holm over 3 tests."
    ) in tables
    assert (
        min(t["p_value"] for t in tests) == 2 / 2**6
        and min(t["p_holm"] for t in tests) == 3 * 2 / 2**6
    )
