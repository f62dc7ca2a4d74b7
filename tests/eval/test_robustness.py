"""The grid from the command line: what is left in a folder, what is done again; what noise costs:
by hand, and its properties."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechssl import stats as bootstrap
from speechssl.artifacts import read_json
from speechssl.augment import parse_condition
from speechssl.eval.conditions import Setting, list_settings
from speechssl.eval.grid import GridCell
from speechssl.eval.grid_makers import MAKERS
from speechssl.eval.options import Robustness
from speechssl.eval.robustness import (
    against_cascade,
    clean_gain,
    degradation,
    degradation_tables,
    draw_together,
    gain,
    lecture_columns,
    loss,
    make_rows,
    relative,
    removed,
    run_robustness,
    score_tables,
)
from speechssl.results import read_rows
from speechssl.stats import ItemScore
from speechssl.superb.options import Noisy

from ..files import refused
from .test_grid import Roughness, recordings
from .test_spoken_qa import Oracle, corpus  # noqa: F401  a fixture

# ---- plans


def test_conditions_without_an_snr_of_their_own_stand_at_every_one():
    found = list_settings(("m+g+r", "reverb@0.6"), ("held-out", "pink@7", "reverb"), (5.0, 0.0))
    assert [s.label for s in found] == [
        *("clean", "seen-m+g+r 5 dB", "seen-m+g+r 0 dB", "seen-reverb 0.6 s"),
        *("unseen-held-out 5 dB", "unseen-held-out 0 dB", "unseen-pink 7 dB", "unseen-reverb"),
    ]

    # and the noise at the end of a chain
    found = list_settings((), ("reverb@0.9+kitchen.wav", "pitch@-2+m+g+r", "a@b/bus.wav"), (5.0,))
    assert [s.condition.text for s in found[1:]] == [
        "reverb@0.9+kitchen.wav@5",
        "pitch@-2+m+g+r@5",
        "a@b/bus.wav@5",
    ]


# ---- the whole


def options(folder, encoders, tasks, **more):
    named = {
        kind: tuple(f"{k}={v}" for k, v in found.items())
        for kind, found in (("encoders", encoders), ("tasks", tasks))
    }
    made = Robustness(out=folder / "out", **named)
    noise = {name: more.pop(name) for name in list(more) if hasattr(made.noise, name)}
    return replace(made, noise=replace(made.noise, **noise), **more)


def makers(folder, made=None):
    """One task, whose tolerance depend on the encoder's name."""

    def make(name, subject, data, out, setup):
        (made if made is not None else []).append((subject.name, name, str(out)))
        metric = "wer" if name == "asr" else "acc"
        return [
            Roughness(
                sorted(folder.glob("*.flac")), 0.05 * (subject.name == "better"), name, metric
            )
        ]

    return {name: partial(make, name) for name in ("ks", "asr")}


@pytest.fixture(scope="module")
def base(tmp_path_factory, hubert_folder):
    """A grid that has been run: its folder, with audio/ and out/, its options, what was printed and
    what was made."""
    folder, made = tmp_path_factory.mktemp("grid"), []
    recordings(folder / "audio", 9)
    encoders = dict.fromkeys(("baseline", "better"), str(hubert_folder("layer")))
    tasks = {"ks": folder / "audio", "asr": folder / "audio"}
    plan = options(folder, encoders, tasks, seen=("pink",), unseen=("gaussian",), snr=(10.0, 5.0))
    return SimpleNamespace(
        folder=folder,
        plan=plan,
        text=run_robustness(plan, makers(folder / "audio", made)),
        made=made,
    )


@pytest.fixture
def plan(tmp_path, base):
    """The same, to be run for the first time."""
    return replace(base.plan, out=tmp_path / "out")


@pytest.fixture
def run(plan, base):
    """A copy of the grid, and how it is run again with other options."""
    shutil.copytree(base.folder / "out", plan.out)
    return lambda **changes: run_robustness(replace(plan, **changes), makers(base.folder / "audio"))


def noise(plan, **changes):
    return {"noise": replace(plan.noise, **changes)}


def test_the_whole_grid(base, plan, run):
    out = plan.out
    assert (
        base.made[0] == ("baseline", "ks", str(base.folder / "out/heads/baseline/ks"))
        and len(base.made) == 4
    )
    rows = read_rows(out / "results.jsonl")
    assert len(rows) == 2 * 2 * 5 and {r.encoder for r in rows} == {"baseline", "better"}
    assert {(r.condition, r.snr_db) for r in rows} >= {
        ("clean", None),
        ("seen-pink", 5.0),
        ("unseen-gaussian", 10.0),
    }
    assert "unseen 5 dB" in base.text and "recovered" in base.text
    assert (out / "tables.md").read_text().startswith("## Encoders and tasks")
    values = read_json(out / "degradation.json")
    assert values["baseline"] == "baseline" and len(values["averages"]) == 8
    utterances = {
        json.loads(line)["utterance"] for line in (out / "noise.jsonl").read_text().splitlines()
    }
    assert utterances == {f"u{i}" for i in range(9)}
    # the same command again changes nothing
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in out.rglob("*") if p.is_file()}
    assert run() == base.text
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == {
        p: content for p, (_, content) in before.items()
    }
    scores = [p for p in before if "scores" in p.parts or p.name == "noise.jsonl"]
    assert scores and all(p.stat().st_mtime_ns == before[p][0] for p in scores)


@pytest.mark.slow
def test_another_split_is_evaluated_beside_the_test_split_and_shares_its_heads(
    tmp_path, base, plan, run
):
    """Even where the recordings have the same names."""
    out, made = plan.out, []
    recordings(tmp_path / "dev", 9, seed=1)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    text = run_robustness(
        replace(plan, split="dev", **noise(plan, unseen=("dev",))), makers(tmp_path / "dev", made)
    )
    shared = {
        (encoder, task, str(out / "heads" / encoder / task)) for encoder, task, _ in base.made
    }
    assert {p: p.read_bytes() for p in before} == before and set(made) == shared
    assert {
        p.relative_to(out).parts[0] for p in out.rglob("*") if p.is_file() and p not in before
    } == {"dev"}
    rows = read_rows(out / "dev" / "results.jsonl")
    assert {r.condition for r in rows} == {"clean", "seen-pink", "unseen-dev"} and len(
        rows
    ) == 2 * 2 * 5
    assert (
        "Scored on the dev split" in text
        and ("Scored on the dev split") in (out / "dev/tables.md").read_text()
    )
    assert b"Scored on the dev split" not in before[out / "tables.md"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ("kws=.",)}, "there is no task 'kws'; choose from"),
        ({"tasks": ("ks=nowhere",)}, "the data nowhere of the task ks"),
        ({"tasks": ("units=.",)}, "the encoder baseline is not enough for the task units"),
        ({"encoders": ("a=no-such-encoder",)}, "no-such-encoder"),
        ({"noise": Noisy()}, "has no noise"),
        ({"noise": Noisy(("pink", "pink"), snr=(10.0,))}, "have the name 'seen-pink 10 dB'"),
    ],
)
def test_bad_plans_are_refused_before_anything_is_made(base, plan, change, message):
    every = dict(MAKERS) | makers(base.folder / "audio")
    refused(message, lambda: run_robustness(replace(plan, **change), every))
    assert not plan.out.exists()


@pytest.mark.slow
def test_the_shipped_models_go_through_the_grid(tmp_path, corpus):  # noqa: F811
    """Units, DUAL and the cascade share an encoder, and a manifest without labels gives units."""
    (tmp_path / "own.txt").write_text(f"{corpus}/test/audio/p0.flac\n{corpus}/test/audio/q0.flac\n")
    tasks = {"units": tmp_path / "own.txt", "dual": corpus, "cascade-ctc": corpus}
    text = run_robustness(
        options(tmp_path, {"baseline": "people-en"}, tasks, seen=("pink",), unseen=(), snr=(5.0,))
    )
    found = {
        (r.name, r.metric, r.condition): (r.value, r.n)
        for r in read_rows(tmp_path / "out" / "results.jsonl")
    }
    systems = {
        ("units", "unit_error"),
        ("dual", "ff1"),
        ("cascade-ctc", "ff1"),
        ("cascade-ctc", "wer"),
    }
    assert set(found) == {(*s, c) for s in systems for c in ("clean", "seen-pink")}
    assert (
        found["units", "unit_error", "clean"] == (0, 2)
        and found["units", "unit_error", "seen-pink"][0] > 0
    )
    assert "What DUAL and the cascade keep of their clean FF1" in text


@pytest.mark.slow
def test_the_grid_draws_voices_in_every_task_and_is_drawn_anew(tmp_path, base, plan, monkeypatch):
    made = []

    def make(voices, name, subject, data, out, setup):
        made.append(
            Roughness(sorted((base.folder / "audio").glob("*.flac")), 0.01, name, voices=voices)
        )
        return [made[-1]]

    def makers():
        return {
            n: lambda *a, n=n, v=v: make(v, n, *a) for n, v in (("ks", 5), ("ic", 6), ("sid", 0))
        }

    plan = replace(
        plan, tasks=tuple(f"{task}={base.folder / 'audio'}" for task in ("ks", "ic", "sid"))
    )
    printed = run_robustness(plan, makers())
    rows = read_rows(tmp_path / "out/results.jsonl")
    assert {(r.name, r.drawn, r.groups) for r in rows} == {
        ("ks", "voice", 5),
        ("ic", "voice", 6),
        ("sid", "session", 3),
    }
    sentence = "95 % intervals draw 5 to 6 voices."
    values = json.loads((tmp_path / "out/degradation.json").read_text())
    assert values["drawn"] == sentence and {c["drawn"] for c in values["cells"]} == {
        "voice",
        "session",
    }
    assert sentence in printed and sentence in (tmp_path / "out/tables.md").read_text()
    encoded = sum(len(task.encoded) for task in made)
    monkeypatch.setattr(bootstrap, "FEWEST", 7)
    run_robustness(plan, makers())
    found = {r.drawn for r in read_rows(tmp_path / "out/results.jsonl")}
    assert found == {"session", "session (about these 5 voices)", "session (about these 6 voices)"}
    assert sum(len(task.encoded) for task in made) == encoded


CLEAN = Setting("clean", parse_condition("clean"))
SEEN, UNSEEN = (Setting(group, parse_condition("pink@5")) for group in ("seen", "unseen"))
LOUD = Setting("unseen", parse_condition("pink@0"))


def cell(task, metric, encoder, setting, value, n=100, failed=None):
    """A share `value` of n items has the numerator 1, spread over them by a fixed shuffle."""
    ones = np.random.default_rng(5).permutation(n) < round(value * n)
    scored = tuple(ItemScore(f"i{i}", f"i{i}", float(x), 1.0) for i, x in enumerate(ones))
    return GridCell(encoder, task, metric, setting, scored, 0, "card", failed or {})


def grid_of(values, resamples=200):
    return draw_together(cells_of(values), 0, resamples)


def cells_of(values):
    """values: (task, metric, encoder) -> {setting: score}."""
    return [cell(*key, s, v) for key, line in values.items() for s, v in line.items()]


EXAMPLE = {
    ("ks", "acc", "base"): {CLEAN: 0.90, SEEN: 0.60, UNSEEN: 0.50},
    ("ks", "acc", "new"): {CLEAN: 0.85, SEEN: 0.80, UNSEEN: 0.75},
    ("asr", "wer", "base"): {CLEAN: 0.10, SEEN: 0.40, UNSEEN: 0.50},
    ("asr", "wer", "new"): {CLEAN: 0.20, SEEN: 0.25, UNSEEN: 0.30},
    ("units", "unit_error", "base"): {CLEAN: 0.0, SEEN: 0.50, UNSEEN: 0.80},
    ("units", "unit_error", "new"): {CLEAN: 0.0, SEEN: 0.25, UNSEEN: 0.40},
}
KS, ASR, UNITS = ("ks", "acc"), ("asr", "wer"), ("units", "unit_error")


def test_by_hand():
    grid = grid_of(EXAMPLE)
    assert loss(grid, KS, "base", UNSEEN).value == pytest.approx(40)
    assert loss(grid, ASR, "base", UNSEEN).value == pytest.approx(40)
    assert relative(grid, KS, "base", UNSEEN).value == pytest.approx(100 * 40 / 90)
    assert relative(grid, UNITS, "base", UNSEEN) is None
    assert gain(grid, ASR, "new", UNSEEN).value == pytest.approx(20)
    # loses 10 of its own 85, where the baseline loses 40
    assert removed(grid, KS, "new", UNSEEN).value == pytest.approx(75)
    # 15 below the baseline's 90
    assert removed(grid, KS, "new", UNSEEN, own_clean=False).value == pytest.approx(62.5)
    assert removed(grid, ASR, "new", UNSEEN).value == pytest.approx(75)
    assert removed(grid, ASR, "new", UNSEEN, own_clean=False).value == pytest.approx(50)
    # rows are those of results
    row = next(
        r
        for r in make_rows(grid_of(EXAMPLE))
        if (r.name, r.encoder, r.condition) == ("asr", "new", "seen-pink")
    )
    assert (row.metric, row.snr_db, row.n, row.card) == ("wer", 5.0, 100, "card")
    assert row.low < 24.9 < row.value < 25.1 < row.high


def test_averages_give_every_task_the_same_weight_and_leave_out_none():
    def averaged_with(base, new):
        """base, new: their scores in clean speech and in unseen noise in one more task."""
        of_task = {
            ("sid", "acc", e): {CLEAN: a, SEEN: 0.5, UNSEEN: b}
            for e, (a, b) in (("base", base), ("new", new))
        }
        found = degradation(grid_of(EXAMPLE | of_task))
        (line,) = [a for a in found["averages"] if a["encoder"] == "new" and a["group"] == "unseen"]
        assert line["tasks"] == ["ks acc", "asr wer", "sid acc"]
        return line, degradation_tables(found)[0]

    # the baseline loses 1 point, for which nobody could vouch
    line, table = averaged_with((0.7, 0.69), (0.7, 0.67))
    assert line["removed"]["value"] == pytest.approx((75 + 75 - 200) / 3) and line["unhurt"] == []
    assert line["recovered"]["value"] == pytest.approx((62.5 + 50 - 200) / 3)
    assert line["pooled"]["value"] == pytest.approx(100 * (1 - (10 + 10 + 3) / (40 + 40 + 1)))
    assert line["loss"]["value"] == pytest.approx(23 / 3) and "not defined" not in table.note
    line, table = averaged_with((0.7, 0.7), (0.7, 0.67))  # it loses nothing
    assert (line["removed"], line["recovered"], line["unhurt"]) == (None, None, ["sid acc"])
    assert line["pooled"]["value"] == pytest.approx(100 * (1 - (10 + 10 + 3) / (40 + 40 + 0)))
    assert "so that mean shares are not defined: sid acc." in table.note


def test_an_encoder_that_collapsed_gains_nothing_by_its_units():
    """Its units are the same in any noise: 0 errors against its own clean speech, and no answer
    anywhere."""
    collapsed = {("units", "unit_error", "new"): {CLEAN: 0.0, SEEN: 0.0, UNSEEN: 0.0}}
    collapsed |= {("ks", "acc", "new"): {CLEAN: 0.1, SEEN: 0.1, UNSEEN: 0.1}}
    grid = grid_of(EXAMPLE | collapsed)
    assert removed(grid, UNITS, "new", UNSEEN).value == pytest.approx(100)
    (with_units,) = [
        a for a in degradation(grid)["averages"] if a["encoder"] == "new" and a["group"] == "unseen"
    ]
    alone = {key: line for key, line in (EXAMPLE | collapsed).items() if key[0] != "units"}
    (without,) = [
        a
        for a in degradation(grid_of(alone))["averages"]
        if a["encoder"] == "new" and a["group"] == "unseen"
    ]
    for name in ("removed", "recovered", "pooled", "loss", "tasks"):
        assert with_units[name] == without[name]
    units = {key: line for key, line in EXAMPLE.items() if key[0] == "units"}
    found = degradation(grid_of(units))  # there is nothing else to average over
    assert (
        found["averages"] == [] and found["clean"][0]["gain"] is None and len(found["cells"]) == 6
    )


def test_clean_speech_tells_the_mean_and_the_worst_task_and_no_units():
    found = clean_gain(grid_of(EXAMPLE), "new")
    assert found["gain"]["value"] == pytest.approx(-7.5) and found["worst"]["task"] == "asr wer"
    assert found["worst"]["value"] == pytest.approx(-10)
    # a baseline without errors in clean speech hides no loss there
    perfect = EXAMPLE | {("asr", "wer", "base"): {CLEAN: 0.0, SEEN: 0.40, UNSEEN: 0.50}}
    found = clean_gain(grid_of(perfect), "new")
    assert found["worst"]["task"] == "asr wer" and found["worst"]["value"] == pytest.approx(-20)
    assert found["gain"]["value"] == pytest.approx((-5 - 20) / 2)


def test_every_cell_is_reported_with_its_tests_adjusted():
    found = degradation(grid_of(EXAMPLE))
    assert len(found["cells"]) == 18
    (line,) = [
        c
        for c in found["cells"]
        if (c["task"], c["encoder"], c["condition"]) == ("ks", "new", "unseen-pink")
    ]
    assert line["snr_db"] == 5 and line["score"]["value"] == pytest.approx(75)
    assert line["gain"]["low"] > 0 and line["gain"]["p_value"] <= line["gain"]["p_holm"] < 0.1
    base = [c for c in found["cells"] if c["encoder"] == "base"]
    assert all(c["gain"] is None and c["removed"] is None for c in base)
    assert [c["loss"] for c in found["cells"] if c["condition"] == "clean"] == [None] * 6


def test_a_cascade_is_compared_with_dual_and_is_no_task_of_the_average():
    systems = {
        ("dual", "ff1", "base"): {CLEAN: 0.50, UNSEEN: 0.40, LOUD: 0.30},
        ("dual", "ff1", "new"): {CLEAN: 0.50, UNSEEN: 0.45, LOUD: 0.40},
        ("cascade-ctc", "ff1", "base"): {CLEAN: 0.80, UNSEEN: 0.40, LOUD: 0.20},
        ("cascade-ctc", "ff1", "new"): {CLEAN: 0.80, UNSEEN: 0.60, LOUD: 0.40},
    }
    grid = grid_of(systems)
    assert grid.averaged == [("dual", "ff1")]
    lines = against_cascade(grid)
    assert len(lines) == 9  # two SNRs and their mean, for three pairs
    pairs = {(x["dual_encoder"], x["cascade_encoder"]) for x in lines}
    assert pairs == {("base", "base"), ("new", "new"), ("new", "base")}
    (mean,) = [
        x
        for x in lines
        if x["snr_db"] is None and x["dual_encoder"] == x["cascade_encoder"] == "new"
    ]
    assert mean["mean_over"] == [5.0, 0.0]
    assert mean["difference"]["value"] == pytest.approx((90 + 80) / 2 - (75 + 50) / 2)
    text = "\n".join(
        t.text for t in degradation_tables(degradation(grid) | {"dual_against_cascade": lines})
    )
    assert "90.0 - 75.0 = +15.0" in text


def test_a_task_that_the_baseline_did_not_do_has_no_gain_and_stops_the_averages_only():
    lonely = {("sid", "acc", "new"): {CLEAN: 0.9, SEEN: 0.8, UNSEEN: 0.8}}
    grid = grid_of(EXAMPLE | lonely)
    found = degradation(grid)
    assert found["averages"] == [] and found["clean"] == []
    assert {c["gain"] for c in found["cells"] if c["task"] == "sid"} == {None}
    assert "sid acc" in score_tables(grid, 5)[0].markdown


# ---- properties

share = st.integers(1, 99).map(lambda x: x / 100)


@given(share, share, share, share)
def test_shares_agree_where_clean_speech_does_and_end_where_they_should(clean, noisy, mine, other):
    metric, o = ("acc", 1) if clean >= noisy else ("wer", -1)
    if clean == noisy:
        return
    values = {
        ("t", metric, "base"): {CLEAN: clean, SEEN: noisy},
        ("t", metric, "new"): {CLEAN: mine, SEEN: other},
    }
    grid, task = grid_of(values, 20), ("t", metric)
    own, base = (
        removed(grid, task, "new", SEEN).value,
        removed(grid, task, "new", SEEN, own_clean=False).value,
    )
    assert own - base == pytest.approx(100 * o * (clean - mine) / abs(clean - noisy))
    assert base == pytest.approx(100 * o * (other - noisy) / abs(clean - noisy))
    assert base >= 0 or gain(grid, task, "new", SEEN).value < 0
    assert loss(grid, task, "new", SEEN).value + o * 100 * (other - mine) == pytest.approx(0)


# ---- tables


def test_the_lectures_table_takes_the_snr_that_lies_nearest_and_the_mean_over_noises():
    hum = Setting("unseen", parse_condition("gaussian@5"))
    grid = grid_of(
        {("ks", "acc", "base"): {CLEAN: 0.9, SEEN: 0.6, UNSEEN: 0.5, LOUD: 0.1, hum: 0.7}}
    )
    assert list(lecture_columns(grid, 6)) == ["clean", "seen 5 dB", "unseen 5 dB"]
    assert list(lecture_columns(grid, 0)) == ["clean", "seen 5 dB", "unseen 0 dB"]
    table = score_tables(grid, 5)[1]
    assert table.rows[0][3].startswith("60.0 [") and "mean of pink, gaussian" in table.title
