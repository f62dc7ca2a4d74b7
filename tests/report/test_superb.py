"""SUPERB on the page: what is read, what stands in the tables, and what figures are of."""

import re

import numpy as np
import pytest

from speechssl import results
from speechssl.report.superb import arrange_superb, is_superb, superb_grids
from speechssl.report.superb_figures import CLASSES, Artefacts, Head, deviate, share_confusions

# task, metric -> the clean score of the first encoder, of the second, what 5 dB of noise costs
CLEAN = {
    ("pr", "per"): (12.4, 31.0, 14.0),
    ("asr", "wer"): (21.3, 48.2, 22.0),
    ("ks", "acc"): (96.2, 88.1, 9.0),
    ("qbe", "mtwv"): (7.4, -0.4, 3.0),
    ("sid", "acc"): (81.4, 61.9, 20.0),
    ("sf", "slot_f1"): (88.5, 70.2, 12.0),
    ("se", "pesq"): (2.55, 2.31, 0.4),
    ("ss", "si_sdri"): (9.4, 6.2, 2.1),
}


NOISE = {f"seen-{noise}": 1.0 for noise in ("g", "m+g+r")} | {"unseen-kitchen": 1.3}
ENCODERS = ("people-en", "hubert-base-ls960")


def row(task, encoder, condition, snr, metric, value, seed=0):
    half = 0.02 * abs(value) + 0.1
    estimate = (value, value - half, value + half, 400, seed, "c0ffee")
    return results.Row(task, "head", encoder, condition, snr, metric, *estimate)


def rows(seeds=3):
    made = []
    for (task, metric), (*clean, cost) in CLEAN.items():
        cost = cost if metric in results.LOWER_IS_BETTER else -cost
        for number, encoder in enumerate(ENCODERS):
            value = clean[number]
            for seed in range(seeds):
                near = value + (seed - 1) * abs(value) / 60
                untuned = near + cost * 0.2 * (1 + number)
                made.append(row(task, encoder, "clean", None, metric, near, seed))
                made.append(row(task, encoder, "clean", None, f"{metric}_default", untuned, seed))
            for noise, factor in NOISE.items():
                for snr in (5.0, 0.0):
                    lost = cost * factor * (1 + 0.5 * number) * (20 - snr) / 15
                    made.append(row(task, encoder, noise, snr, metric, value + lost))
    for task, ratio in (("ks", 7.4), ("asr", 9.1)):
        made.append(row(task, ENCODERS[0], "clean", None, "ratio_cached", ratio))
    return made


def read(some):
    """The tables of some rows: title -> columns, and lines of texts."""
    return tables_of(superb_grids(arrange_superb(some), Artefacts()))


def tables_of(grids):
    tables = {}
    for grid in grids:
        columns = re.findall(r'<th id="\S*level1\S*"[^>]*>([^<]*)</th>', grid.html)
        texts = re.findall(r'<td id="[^"]*" class="([^"]*)" >([^<]*)</td>', grid.html)
        width = len(columns) or grid.html.count("<th ")
        lines = [texts[i : i + width] for i in range(0, len(texts), width)]
        tables[grid.title] = columns, [[text for _, text in line] for line in lines]
    return tables


def test_units_directions_and_decimals_of_the_metrics():
    units = {"acc": "%", "mtwv": "%", "si_sdri": "dB", "pesq": "", "ratio_cached": "×"}
    units |= {"si_sdri_default": "dB", "pesq_default": ""}
    assert {metric: results.unit(metric) for metric in units} == units
    errors = {"per", "eer", "der", "slot_cer", "wer_lm", "wer_lm_default", "eer_default"}
    assert errors <= results.LOWER_IS_BETTER
    scores = {"acc", "slot_f1", "mtwv", "pesq", "stoi", "si_sdri", "acc_default"}
    assert not scores & results.LOWER_IS_BETTER
    assert [results.decimals(metric) for metric in ("pesq", "si_sdri", "wer")] == [2, 1, 1]
    # the terminal calls only percent percent
    measured = [row("se", "a", "clean", None, m, 2.345) for m in ("pesq", "stoi", "si_sdr")]
    text = results.results_table(measured)
    assert "pesq (" not in text and "stoi (%)" in text and "si_sdr (dB)" in text
    assert "2.35 [" in text


# ---- reading


def test_a_robustness_grid_is_not_taken_for_superb():
    grid = [
        row(t, "a", c, None, "acc", 50.0) for t in ("ks", "sid") for c in ("clean", "seen-pink")
    ]
    assert not is_superb(grid, Artefacts())
    assert is_superb([*grid, row("asv", "a", "clean", None, "eer", 5.0)], Artefacts())
    assert is_superb(grid, Artefacts(heads=(Head("a", "ks"),)))


# ---- tables


def test_clean_speech_is_the_mean_over_seeds_and_the_best_is_marked():
    seeds = [row("asv", "a", "clean", None, "eer", v, s) for s, v in enumerate((4.0, 5.0, 9.0))]
    (grid, *_) = superb_grids(arrange_superb(seeds), Artefacts())
    assert tables_of([grid])["Clean speech"][1] == [["a", "6.0\n[3.8, 9.3]"]]
    assert "up to 3 seeds" in grid.note
    values = {("asv", "eer"): {"a": 5.0, "b": 9.0}, ("er", "acc"): {"a": 70.0, "b": 80.0}}
    measured = [
        row(t, e, "clean", None, m, v) for (t, m), of in values.items() for e, v in of.items()
    ]
    scores = arrange_superb(measured)
    best = scores[scores.best]
    assert list(zip(best.system, best.label, strict=True)) == [("asv", "a"), ("er", "b")]


def test_published_columns_are_those_that_we_measured_and_never_ranked_with_ours():
    title = "Published encoders, on the published sets"
    measured = [row("asv", "a", "clean", None, "eer", 5.0)]
    columns, lines = read(measured)[title]
    assert columns == ["Encoder", "ASV\nEER\u00a0↓"]
    assert [line[1] for line in lines] == ["6.02 †", "5.11 †", "4.07 †", "5.98 †", "3.77 †"]
    (grid,) = [g for g in superb_grids(arrange_superb(rows()), Artefacts()) if g.title == title]
    assert "not comparable with synthetic data" in grid.note and "best" not in grid.html
    assert title not in read([row("ss", "a", "clean", None, "si_sdri", 9.0)])
    assert results.published_encoders()["WavLM large"]["sf", "slot_cer"] == 18.36
    assert results.published_encoders()["HuBERT base"]["sid", "acc"] == 81.42


def test_the_lectures_table_averages_the_noises_of_a_group_at_5_db():
    tables = read(rows())
    _, lines = tables["Clean, seen and unseen noise"]
    wheres = {line[0].split("\n")[1] for line in lines}
    assert wheres == {"clean", "seen, 5\u00a0dB", "unseen, 5\u00a0dB"}
    assert not any("–" in line for line in lines)
    _, (_, _, unseen, *_) = tables["Clean, seen and unseen noise, the extension"]
    assert unseen[1] == "2.03\n−0.52"  # PESQ has two decimals
    noises = {"seen-a": (20.0, 60.0), "seen-b": (40.0, 80.0), "unseen-c": (50.0, 90.0)}
    made = [row("asv", "a", "clean", None, "eer", 10.0)]
    for noise, values in noises.items():
        for snr, value in zip((6.0, 0.0), values, strict=True):
            made.append(row("asv", "a", noise, snr, "eer", value))
    _, lines = read(made)["Clean, seen and unseen noise"]
    assert lines == [
        ["a\nclean", "10.0"],
        ["a\nseen, 6\u00a0dB", "30.0\n+20.0"],
        ["a\nunseen, 6\u00a0dB", "50.0\n+40.0"],
    ]
    # a group of which a noise is missing gives no mean
    places = (("clean", None), ("seen-x", 5.0), ("seen-y", 5.0))
    made = [row("asv", e, *place, "eer", 10.0) for e in "ab" for place in places]
    made.remove(row("asv", "b", "seen-y", 5.0, "eer", 10.0))
    _, lines = read(made)["Clean, seen and unseen noise"]
    assert {line[0][0] for line in lines} == {"a"}


# ---- figures


def test_det_axes_are_normal_deviates():
    assert deviate([0.5, 0.1]) == pytest.approx([0, -1.2816], abs=1e-4)
    assert np.isfinite(deviate([0.0, 1.0])).all()


def test_cells_are_percent_of_the_truth():
    classes = ["yes", "no", "never"]
    shares = share_confusions(classes, [[3, 1, 0], [0, 2, 0], [0, 0, 0]])
    assert shares.to_numpy().tolist() == [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    # of too many classes those confused most are kept
    counts = 8 * np.eye(100, dtype=int)
    counts[40:, 0] += 1
    shares = share_confusions(list(range(100)), counts.tolist())
    assert list(shares.index) == [0, *range(40, 40 + CLASSES - 1)]
