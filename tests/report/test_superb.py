"""SUPERB on the page: what is read, what stands in the tables, and figures that say what their
numbers say."""

from __future__ import annotations

import json
import math
import re
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl.data.superb import Turn
from speechssl.report.build import build_report, write_report
from speechssl.report.options import Report
from speechssl.report.superb import (
    MOST,
    Artefacts,
    Confusion,
    Head,
    SweepTrial,
    Timeline,
    blocks,
    confusions,
    det_curves,
    deviate,
    equal_error,
    layer_weights,
    match,
    matrix,
    of_superb,
    plain_tables,
    read_artefacts,
    summarise_superb,
    sweeps,
    timelines,
)
from speechssl.results import (
    LOWER_IS_BETTER,
    Row,
    append_rows,
    decimals,
    published_encoders,
    read_rows,
    results_table,
    unit,
)

from ..files import refused

# task, metric -> the clean score of the first encoder, of the second, what 5 dB of noise costs
CLEAN = {
    ("pr", "per"): (12.4, 31.0, 14.0),
    ("asr", "wer"): (21.3, 48.2, 22.0),
    ("asr", "wer_lm"): (15.1, 40.0, 18.0),
    ("ks", "acc"): (96.2, 88.1, 9.0),
    ("qbe", "mtwv"): (7.4, -0.4, 3.0),
    ("sid", "acc"): (81.4, 61.9, 20.0),
    ("asv", "eer"): (6.2, 14.8, 6.0),
    ("sd", "der"): (7.9, 13.1, 4.0),
    ("ic", "acc"): (94.0, 72.3, 11.0),
    ("sf", "slot_f1"): (88.5, 70.2, 12.0),
    ("sf", "slot_cer"): (25.2, 44.8, 15.0),
    ("er", "acc"): (64.9, 55.0, 6.0),
    ("se", "pesq"): (2.55, 2.31, 0.4),
    ("se", "stoi"): (93.8, 91.1, 4.0),
    ("ss", "si_sdri"): (9.4, 6.2, 2.1),
}
NOISE = {f"seen-{noise}": 1.0 for noise in ("g", "m+g+r")} | {"unseen-kitchen": 1.3}
ENCODERS = ("people-en", "facebook/hubert-base-ls960")
SLOTS = {
    "ks": {"keyword": "yes no up down left right on off stop go silence unknown".split()},
    "sid": {"speaker": [f"speaker-{n:02}" for n in range(44)]},
    "ic": {
        "action": ["activate", "bring", "change language", "deactivate", "decrease", "increase"],
        "object": (
            "Chinese English German Korean heat juice lamp lights music newspaper none "
            "shoes socks volume"
        ).split(),
        "location": ["bedroom", "kitchen", "none", "washroom"],
    },
    "er": {"emotion": ["angry", "happy", "neutral", "sad"]},
}

TEXTS = {  # task -> what was said, what was recognised
    "pr": ("DH AH K AE T".split(), "DH AH K AH T".split()),
    "asr": ("he read a book about the sea", "he red a boo about the see"),
    "sf": ("play B-artist bob E-artist", "play bob"),
}


def rows(seeds: int = 3, encoders: tuple[str, ...] = ENCODERS) -> list[Row]:
    made = []
    for (task, metric), (*clean, cost) in CLEAN.items():
        cost = cost if metric in LOWER_IS_BETTER else -cost
        for number, encoder in enumerate(encoders):
            value = clean[number % 2]
            for seed in range(seeds):
                near = value + (seed - 1) * abs(value) / 60
                made.append(row(task, encoder, "clean", None, metric, near, seed))
                made.append(
                    row(
                        task,
                        encoder,
                        "clean",
                        None,
                        f"{metric}_default",
                        near + cost * 0.2 * (1 + number),
                        seed,
                    )
                )
            for noise, factor in NOISE.items():
                for snr in (5.0, 0.0):
                    lost = cost * factor * (1 + 0.5 * number) * (20 - snr) / 15
                    made.append(row(task, encoder, noise, snr, metric, value + lost))
    ratios = {"ks": 7.4, "asr": 9.1}
    return made + [
        row(task, ENCODERS[0], "clean", None, "ratio_cached", ratio)
        for task, ratio in ratios.items()
    ]


def row(
    task: str,
    encoder: str,
    condition: str,
    snr: float | None,
    metric: str,
    value: float,
    seed: int = 0,
) -> Row:
    half = 0.02 * abs(value) + 0.1
    return Row(
        task,
        "head",
        encoder,
        condition,
        snr,
        metric,
        value,
        value - half,
        value + half,
        400,
        seed,
        "c0ffee",
    )


def write_run(out: Path) -> Path:
    append_rows(out / "results.jsonl", rows())
    for encoder in ENCODERS:
        folder = encoder.replace("/", "-")
        for task in dict.fromkeys(task for task, _ in CLEAN):
            for seed in range(3 if task != "qbe" else 0):  # qbe trains nothing
                put(out / "heads" / folder / task / f"seed-{seed}" / "card.json", card(seed))
            detail = {
                "task": task,
                "encoder": encoder,
                "condition": "clean",
                "seed": 0,
                "detail": details(task),
            }
            put(out / "details" / folder / f"{task}.json", detail)
    return out


def put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def card(seed: int) -> dict[str, Any]:
    """What a head's folder says; the sweep stands with the first seed, and its highest rate
    diverged."""
    values = {1e-1: None, 1e-2: 40.0, 1e-3: 60.0, 1e-4: 50.0}
    sweep = [
        {"learning_rate": rate, "value": value, "steps": 400, "best": value == 60}
        for rate, value in values.items()
    ]
    found = {
        "layer_weights": [0.1, 0.2, 0.4, 0.3],
        "states": 4,
        "learning_rate": 1e-3,
        "default_learning_rate": 1e-4,
    }
    return found if seed else found | {"sweep": sweep}


def details(task: str) -> dict[str, Any]:
    if task in SLOTS:
        found = {}
        for slot, classes in SLOTS[task].items():
            found[slot] = {
                "classes": classes,
                "counts": (8 * np.eye(len(classes), dtype=int) + 1).tolist(),
            }
        return {"confusion": found}
    if task == "asv":
        return {"det": {"false_alarms": [1.0, 0.3, 0.1, 0.0], "misses": [0.0, 0.1, 0.2, 1.0]}}
    if task == "sd":
        turns = [("A", 0.4, 4.1), ("B", 3.6, 7.2), ("A", 7.5, 9.8)]
        truth = [{"speaker": speaker, "start": start, "end": end} for speaker, start, end in turns]
        predicted = [turn | {"speaker": "1" if turn["speaker"] == "A" else "0"} for turn in truth]
        return {
            "timeline": {"id": "mix-0001", "seconds": 15.0, "truth": truth, "predicted": predicted}
        }
    if task == "qbe":
        return {"layers": [1.0, 7.5, 4.0, -0.5]}
    if task not in TEXTS:
        return {}
    truth, predicted = TEXTS[task]
    return {"examples": [{"id": f"u{n}", "truth": truth, "predicted": predicted} for n in range(2)]}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("superb"))


@pytest.fixture(scope="module")
def found(run):
    rows = read_rows(run / "results.jsonl")
    return of_superb(rows, read_artefacts(run, rows))


@pytest.fixture(scope="module")
def page(run) -> str:
    write_report(Report(out=run, examples=2, conditions=("clean",)))
    return (run / "report.html").read_text()


# ---- metrics


def test_units_directions_and_decimals_of_the_metrics():
    assert {
        m: unit(m)
        for m in (
            "acc",
            "mtwv",
            "si_sdri",
            "si_sdri_default",
            "pesq",
            "pesq_default",
            "ratio_cached",
        )
    } == {
        "acc": "%",
        "mtwv": "%",
        "si_sdri": "dB",
        "si_sdri_default": "dB",
        "pesq": "",
        "pesq_default": "",
        "ratio_cached": "×",
    }
    assert {
        "per",
        "eer",
        "der",
        "slot_cer",
        "wer_lm",
        "wer_lm_default",
        "eer_default",
    } <= LOWER_IS_BETTER
    assert (
        not {"acc", "slot_f1", "mtwv", "pesq", "stoi", "si_sdri", "acc_default"} & LOWER_IS_BETTER
    )
    assert (decimals("pesq"), decimals("si_sdri"), decimals("wer")) == (2, 1, 1)
    # the terminal calls only percent percent
    text = results_table(
        [row("se", "a", "clean", None, m, 2.345) for m in ("pesq", "stoi", "si_sdr")]
    )
    assert (
        "pesq  " in text
        and "pesq (" not in text
        and "stoi (%)" in text
        and "si_sdr (dB)" in text
        and "2.35 [" in text
    )


# ---- reading


def test_what_a_run_left_is_read_under_the_names_of_its_rows(found):
    artefacts = found.artefacts
    assert (
        {h.encoder for h in artefacts.heads}
        == {c.encoder for c in artefacts.confusions}
        == set(ENCODERS)
    )
    assert len(artefacts.heads) == 2 * 11 * 3 and len(artefacts.confusions) == 2 * 6
    assert all(math.isclose(sum(h.weights), 1, rel_tol=1e-6) for h in artefacts.heads)
    broken = [t for h in artefacts.heads for t in h.sweep if math.isnan(t.value)]
    assert broken and {t.learning_rate for t in broken} == {0.1}


def test_missing_files_are_left_out_and_folders_name_encoders_and_folds(tmp_path: Path):
    assert not read_artefacts(tmp_path)
    # no seed: another's
    put(tmp_path / "heads" / "a" / "ks" / "card.json", {"layer_weights": "of the robustness grid"})
    assert not read_artefacts(tmp_path)
    # folders within folders name an encoder
    put(
        tmp_path / "heads" / "facebook" / "hubert" / "ks" / "seed-7" / "card.json",
        {"layer_weights": [0.25, 0.75]},
    )
    (head,) = read_artefacts(tmp_path).heads
    assert (head.encoder, head.task, head.seed, head.weights) == (
        "facebook/hubert",
        "ks",
        7,
        (0.25, 0.75),
    )
    # folds are heads of their task
    for fold in ("fold-1", "fold-2"):
        put(tmp_path / f"heads/mine/er/{fold}/seed-0/card.json", {"layer_weights": [0.25, 0.75]})
    assert [(h.encoder, h.task, h.seed) for h in read_artefacts(tmp_path).heads[1:]] == [
        ("mine", "er", 0)
    ] * 2


CARD, DETAIL = {"layer_weights": [0.5, 0.5]}, {"encoder": "a", "task": "ks"}
DAMAGED = {
    "sum": CARD | {"layer_weights": [0.5, 0.9]},
    "negative": CARD | {"layer_weights": [-0.5, 1.5]},
    "texts": CARD | {"layer_weights": ["0.5", "0.5"]},
    "a list": [],
    "rate": CARD | {"learning_rate": 0},
    "sweep": CARD | {"sweep": [{"learning_rate": 0.1}]},
    "value": CARD | {"sweep": [{"learning_rate": 0.1, "value": "high", "steps": 3}]},
}
DETAILS = {
    "no detail": DETAIL,
    "ragged": DETAIL
    | {"detail": {"confusion": {"s": {"classes": ["a", "b"], "counts": [[1, 2], [3]]}}}},
    "no count": DETAIL | {"detail": {"confusion": {"s": {"classes": ["a"], "counts": [[0.5]]}}}},
    "lengths": DETAIL | {"detail": {"det": {"false_alarms": [0.1], "misses": [0.1, 0.2]}}},
    "no share": DETAIL | {"detail": {"det": {"false_alarms": [10], "misses": [20]}}},
    "backwards": DETAIL
    | {
        "detail": {
            "timeline": {
                "id": "x",
                "seconds": 2,
                "truth": [{"speaker": "A", "start": 2, "end": 1}],
                "predicted": [],
            }
        }
    },
    "no time": DETAIL
    | {"detail": {"timeline": {"id": "x", "seconds": 0, "truth": [], "predicted": []}}},
    "encoder": {"encoder": 3, "task": "ks", "detail": {}},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *(("heads/a/ks/seed-0/card.json", v) for v in DAMAGED.values()),
        *(("details/a/ks.json", v) for v in DETAILS.values()),
    ],
    ids=[*DAMAGED, *DETAILS],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, path: str, value):
    put(tmp_path / path, value)
    refused(re.escape(str(tmp_path / path)), read_artefacts, tmp_path)


def test_a_damaged_file_leaves_the_old_page(tmp_path: Path):
    append_rows(tmp_path / "results.jsonl", rows(1))
    (tmp_path / "report.html").write_text("old")
    path = tmp_path / "details" / "a" / "ks.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    refused("ks.json", write_report, Report(out=tmp_path, examples=2, conditions=("clean",)))
    assert (tmp_path / "report.html").read_text() == "old"


# ---- whose rows


def test_a_robustness_grid_is_not_taken_for_superb():
    grid = [
        row(t, "a", c, None, "acc", 50.0) for t in ("ks", "sid") for c in ("clean", "seen-pink")
    ]
    assert not of_superb(grid) and not of_superb([row("dual", "a", "clean", None, "ff1", 40.0)])
    assert of_superb([*grid, row("asv", "a", "clean", None, "eer", 5.0)]).rows
    assert of_superb(grid, Artefacts(heads=(Head("a", "ks", 0, (0.5, 0.5)),)))


def test_columns_of_clean_speech_stand_in_the_benchmarks_order(found):
    assert [c for c in found.columns if c[0] in ("asr", "sf")] == [
        ("asr", "wer"),
        ("asr", "wer_lm"),
        ("sf", "slot_f1"),
        ("sf", "slot_cer"),
    ]
    more = of_superb([*rows(1), row("ks", "x", "clean", None, "f1", 3.0)])
    assert more.columns[3:5] == (("ks", "acc"), ("ks", "f1"))
    # default and ratio rows are no columns of clean speech
    table = blocks(found)[0].table
    assert not any("default" in c.small or "speed" in c.small for c in table.columns[1:])
    assert sum(width for _, width in table.heads) == len(table.columns) == 13


# ---- tables


def block(found, title: str):
    return next(b.table for b in blocks(found) if b.table.title.startswith(title))


def texts(found, title: str) -> dict[tuple[str, str], list[str]]:
    return {line[:2]: list(line[2:]) for line in block(found, title).texts}


def test_clean_speech_is_the_mean_over_seeds_and_the_best_is_marked():
    found = of_superb(
        [row("asv", "a", "clean", None, "eer", v, s) for s, v in enumerate((4.0, 5.0, 9.0))]
    )
    table = blocks(found)[0].table
    assert table.rows[0][1][:2] == ("6.0", "3.8–9.3") and "up to 3 seeds" in table.note
    assert table.columns[1][:2] == ("ASV", "EER\u00a0↓")
    # best is least where less is better
    values = {"a": (5.0, 70.0), "b": (9.0, 80.0)}
    tasks = (("asv", "eer"), ("er", "acc"))
    found = of_superb(
        [
            row(t, e, "clean", None, m, values[e][n])
            for e in values
            for n, (t, m) in enumerate(tasks)
        ]
    )
    lines = {
        label.text: [cell.best for cell in cells] for label, *cells in blocks(found)[0].table.rows
    }
    assert lines == {"a": [True, False], "b": [False, True]}


def test_published_numbers_stand_apart_and_are_never_ranked_with_ours(found):
    (theirs,) = [b.table for b in blocks(found) if b.strange]
    assert "not comparable with synthetic data" in theirs.note and "Not verified" in theirs.note
    ours = {line[0].text for b in blocks(found) if not b.strange for line in b.table.rows}
    assert not ours & set(published_encoders()) and not any(
        cell and cell.best for line in theirs.rows for cell in line
    )
    marks = {
        head.text: cell.small
        for head, cell in zip(theirs.columns[1:], theirs.rows[0][1:], strict=True)
    }
    assert marks["PR"] == "†" and marks["SID"] == marks["SD"] == marks["ER"] == ""


def test_published_columns_are_those_that_we_measured():
    found = of_superb([row("asv", "a", "clean", None, "eer", 5.0)])
    (theirs,) = [b.table for b in blocks(found) if b.strange]
    assert [head.text for head in theirs.columns[1:]] == ["ASV"]
    assert [cell.text for _, cell in theirs.rows] == ["6.02", "5.11", "4.07", "5.98", "3.77"]
    assert not any(
        b.strange for b in blocks(of_superb([row("ss", "a", "clean", None, "si_sdri", 9.0)]))
    )
    assert (
        published_encoders()["WavLM large"]["sf", "slot_cer"] == 18.36
        and published_encoders()["HuBERT base"]["sid", "acc"] == 81.42
    )


def test_the_lectures_table_averages_the_noises_of_a_group_at_5_db(found):
    shown = texts(found, "Clean, seen and unseen noise")
    assert {where for _, where in shown} == {"clean", "seen, 5\u00a0dB", "unseen, 5\u00a0dB"}
    assert not any("–" in line for line in shown.values()) and len(next(iter(shown.values()))) == 12
    extension = texts(found, "Clean, seen and unseen noise, the extension")
    assert extension[ENCODERS[0], "unseen, 5\u00a0dB"][0] == "2.03"  # PESQ has two decimals
    noises = {"seen-a": (20.0, 60.0), "seen-b": (40.0, 80.0), "unseen-c": (50.0, 90.0)}
    made = [row("asv", "a", "clean", None, "eer", 10.0)]
    made += [
        row("asv", "a", n, snr, "eer", v)
        for n, vs in noises.items()
        for snr, v in zip((6.0, 0.0), vs, strict=True)
    ]
    found = of_superb(made)
    table = block(found, "Clean, seen")
    shown = [(where.text, label.span, cell.text, cell.small) for label, where, cell in table.rows]
    assert shown == [
        ("clean", 3, "10.0", ""),
        ("seen, 6\u00a0dB", 0, "30.0", "+20.0"),
        ("unseen, 6\u00a0dB", 0, "50.0", "+40.0"),
    ]
    assert "mean of a, b" in table.note
    # a group of which a noise is missing gives no mean
    made = [
        row("asv", e, c, s, "eer", 10.0)
        for e in "ab"
        for c, s in (("clean", None), ("seen-x", 5.0), ("seen-y", 5.0))
    ]
    found = of_superb([r for r in made if (r.encoder, r.condition) != ("b", "seen-y")])
    assert {label for label, _ in texts(found, "Clean, seen")} == {"a"}


def test_tuned_and_default_speed_ups_and_recognised_texts_have_tables(found):
    assert ("KS (keywords)", ENCODERS[0], "7.40 ×") in plain_tables(found)[0].rows
    assert ("PR (phones)", ENCODERS[1], "DH AH K AE T", "DH AH K AH T") in plain_tables(found)[
        1
    ].rows
    made = [row("asv", "a", "clean", None, m, v) for m, v in (("eer", 5.0), ("eer_default", 8.0))]
    found = of_superb(made, Artefacts(heads=(Head("a", "asv", 0, (1.0,), 1e-3),)))
    table = block(found, "Tuned")
    assert [head.text for head in table.columns[1:]] == ["lr", "tuned", "default lr"]
    assert table.texts == [("ASV, EER\u00a0↓", "0.001", "5.0", "8.0")]


def test_the_summary_counts_who_leads():
    values = [
        ("asv", "eer", "a", 5.0),
        ("asv", "eer", "b", 9.0),
        ("er", "acc", "a", 50.0),
        ("er", "acc", "b", 60.0),
    ]
    values.append(("pr", "per", "a", 9.0))
    found = of_superb([row(t, e, "clean", None, m, v) for t, m, e, v in values])
    assert summarise_superb(found) == (
        "2 encoders on 3 tasks of SUPERB. Best in clean speech, of 2 that all did: a in 1, b in 1."
    )
    one = of_superb([row("asv", "a", "clean", None, "eer", 5.0, s) for s in range(2)])
    assert (
        summarise_superb(one) == ("a on 1 task of SUPERB, 2 seeds each.")
        and summarise_superb(of_superb([])) == ""
    )


# ---- figures


def drawn(drawing) -> str:
    ElementTree.fromstring(drawing.svg)
    return drawing.svg


@pytest.mark.slow
def test_layer_weights_are_means_over_seeds():
    heads = tuple(Head("a", "ks", seed, w) for seed, w in enumerate(((0.2, 0.8), (0.4, 0.6))))
    drawing = layer_weights(of_superb([], Artefacts(heads=heads, layers={"a": (1.0, 3.0)})))
    assert (
        "KS 30 70" in drawing.alt
        and ">30<" in drawn(drawing)
        and ">CNN<" in drawing.svg
        and "QbE" in drawing.svg
    )
    alone = Artefacts(heads=(Head("fbank", "ks", 0, (1.0,)),))
    assert layer_weights(of_superb([], alone)) is None


@pytest.mark.slow
@pytest.mark.parametrize("states", [2, 13, 25])
def test_few_and_many_layers_are_drawn(states):
    heads = tuple(
        Head(f"an encoder with a long name {n}", "ks", 0, (1 / states,) * states) for n in range(3)
    )
    assert drawn(layer_weights(of_superb([], Artefacts(heads=heads)))).count(">CNN<") == 3


def test_of_each_learning_rate_the_longest_trial_is_shown():
    sweep = (
        SweepTrial(1e-2, 30.0, 100),
        SweepTrial(1e-2, 50.0, 400),
        SweepTrial(1e-3, 20.0, 100),
        SweepTrial(1.0, math.nan, 400),
    )
    drawing = sweeps(of_superb([], Artefacts(heads=(Head("a", "ks", 0, (), 1e-2, None, sweep),))))
    assert (
        "0.001 20.0, 0.01 50.0 (chosen 0.01)" in drawing.alt
        and "30.0" not in drawing.alt
        and drawn(drawing)
    )
    assert (
        sweeps(of_superb([], Artefacts(heads=(Head("a", "ks", 0, (), 1e-2, None, sweep[:2]),))))
        is None
    )


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.floats(-3, 3), st.booleans()), min_size=4, max_size=40).filter(
        lambda x: 0 < sum(b for _, b in x) < len(x)
    )
)
def test_the_equal_error_rate_lies_between_misses_and_false_alarms(trials):
    marks = sorted({s for s, _ in trials} | {-4.0, 4.0})
    real, false = [s for s, b in trials if b], [s for s, b in trials if not b]
    alarms = tuple(sum(s >= m for s in false) / len(false) for m in marks)
    misses = tuple(sum(s < m for s in real) / len(real) for m in marks)
    rate = equal_error(sorted(zip(alarms, misses, strict=True), key=lambda p: (p[0], -p[1])))
    assert min(max(a, m) for a, m in zip(alarms, misses, strict=True)) + 1e-9 >= rate
    assert rate >= max(min(a, m) for a, m in zip(alarms, misses, strict=True)) - 1e-9


def test_det_axes_are_normal_deviates():
    assert (
        deviate(0.5) == pytest.approx(0)
        and deviate(0.1) == pytest.approx(-1.2816, abs=1e-4)
        and math.isfinite(deviate(0.0))
    )
    assert equal_error([(0.1, 0.2), (0.3, 0.0)]) == pytest.approx(0.15)  # crosses half-way
    two = Artefacts(errors={"a": ((1.0, 0.2, 0.0), (0.0, 0.2, 1.0)), "b": ((1.0, 0.0), (0.0, 0.0))})
    drawing = det_curves(of_superb([], two))
    assert "a: EER 20.0 %" in drawn(drawing) and "b: EER 0.0 %" in drawing.svg


def test_speakers_of_a_head_are_matched_with_the_true_ones():
    truth = (Turn("A", 0, 4), Turn("B", 5, 9))
    assert match(truth, (Turn("0", 5, 8), Turn("1", 1, 3))) == {"0": "B", "1": "A"}
    assert match(truth, (Turn("0", 0, 9),)) in ({"0": "A"}, {"0": "B"})
    assert match(truth, (Turn("0", 0, 3), Turn("1", 5, 6), Turn("2", 3, 4)))["2"] == "nobody 1"
    assert match((), (Turn("0", 0, 3),)) == {"0": "nobody 1"} and match(truth, ()) == {}
    # timelines say who spoke when
    line = Timeline("a", "mix", 9.0, (Turn("A", 0, 4), Turn("B", 5, 9)), (Turn("1", 5, 8.5),))
    drawing = timelines(of_superb([], Artefacts(timelines=(line,))))
    assert (
        "mix, A, a: never" in drawing.alt
        and ("mix, B, a: 5.0 to 8.5") in drawing.alt
        and ">mix<" in drawn(drawing)
    )


def square(size: int, slot: str = "s") -> Confusion:
    counts = tuple(tuple(8 if i == j else int(j == 0) for j in range(size)) for i in range(size))
    return Confusion("a", "sid", slot, tuple(f"class-{n}" for n in range(size)), counts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "names"), [(2, 2), (6, 6), (12, 12), (31, 31), (44, 15), (1251, 20)]
)
def test_few_and_many_classes_are_drawn(size, names):
    ((_, drawing),) = confusions(of_superb([], Artefacts(confusions=(square(size),))))
    assert drawn(drawing).count(">class-") == 2 * names
    assert (f"{MOST} of 1,251 classes" in drawing.svg) == (size == 1251)
    assert len(drawing.svg) < 200_000


def test_cells_are_percent_of_the_truth():
    found = Confusion(
        "a", "ks", "keyword", ("yes", "no", "never"), ((3, 1, 0), (0, 2, 0), (0, 0, 0))
    )
    assert matrix(found, False).shares == ((0.75, 0.25, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0))
    ((name, drawing),) = confusions(of_superb([], Artefacts(confusions=(found,))))
    assert name == "KS (keywords)" and "most often yes is taken for no (25)" in drawing.alt
    assert all(f">{n}<" in drawing.svg for n in ("75", "25", "100"))
    # of too many classes those confused most are kept
    assert (
        matrix(square(100), False).classes[0] == "class-0"
        and len(matrix(square(100), False).classes) == MOST
    )


# ---- the page


def test_the_page_is_superbs_and_holds_all_that_it_shows(page):
    assert "<title>SUPERB: what speech encoders are good for</title>" in page
    for title in (
        "Clean speech",
        "Published encoders, on the published sets",
        "Clean, seen and unseen noise",
        "Which layers the tasks use",
        "What was taken for what: KS (keywords)",
        "misses against false alarms",
        "who spoke when",
        "Score on dev by learning rate",
        "Tuned and default learning rate",
        "Features once",
        "What was recognised",
        "What noise costs, task by task",
        "What noise costs, in decibels",
        "Scores against the signal-to-noise ratio (SNR)",
        "In noise, task by task",
    ):
        assert title in page
    assert page.index("Published encoders") > page.index(">Clean speech<")
    # identifiers are unique and nothing lies outside
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids)
    assert not re.search(r"https?://|@import|url\((?!#)|<img|<image", page)


def test_no_number_is_called_percent_that_is_none(page):
    captions = [
        unescape(re.sub("<[^>]*>", "", c))
        for c in re.findall(r"<caption>(.*?)</caption>", page, re.S)
    ]
    scales = {
        "SS (separation), SI-SDRi": "Decibels; higher is better",
        "SE (enhancement), PESQ": "On its own scale",
        "ASV (verification), EER": "Percent; lower is better",
    }
    for name, scale in scales.items():
        caption = next(c for c in captions if c.startswith(name))
        assert scale in caption and ("Percent" in caption) == ("Percent" in scale)
    heat = page[page.index('id="heat-figure') : page.index("What noise costs, in decibels")]
    assert "SI-SDRi" not in heat and "PESQ" not in heat


def test_rows_alone_make_a_page_with_escaped_names(tmp_path: Path):
    build_report(tmp_path / "r.html", [row("qbe", "a", "clean", None, "mtwv", -1.25)])
    text = (tmp_path / "r.html").read_text()
    assert (
        "<title>SUPERB" in text
        and "\u22121.2" in text
        and 'id="results"' not in text
        and "<figure" not in text
    )
    # names are escaped
    build_report(tmp_path / "r.html", [row("asv", "<b>&x", "clean", None, "eer", 5.0)])
    assert "<b>&x" not in (tmp_path / "r.html").read_text()
    # other noises are shown as of any system
    noisy = [
        row("asv", "a", "clean", None, "eer", 5.0),
        row("asv", "a", "babble", 5.0, "eer", 33.3),
    ]
    build_report(tmp_path / "r.html", noisy)
    text = (tmp_path / "r.html").read_text()
    assert "33.3" in text[text.index('id="results"') : text.index("rows behind this page")]


@pytest.mark.slow
def test_systems_and_superb_on_one_page_have_both(tmp_path: Path):
    build_report(tmp_path / "r.html", [row("dual", "a", "clean", None, "ff1", 41.7), *rows(1)])
    text = (tmp_path / "r.html").read_text()
    assert (
        "with and without a transcript</title>" in text
        and "41.7" in text
        and ("Published encoders") in text
    )


def test_a_folder_with_nothing_of_it_says_so(tmp_path: Path):
    append_rows(tmp_path / "results.jsonl", [row("ks", "a", "clean", None, "acc", 50.0)])
    config = Report(out=tmp_path, examples=2, conditions=("clean",))
    refused("has neither SUPERB nor a robustness grid; give the corpus", write_report, config)
    put(tmp_path / "heads" / "a" / "ks" / "seed-0" / "card.json", {"layer_weights": [0.5, 0.5]})
    write_report(config)
    assert "SUPERB" in (tmp_path / "report.html").read_text()
